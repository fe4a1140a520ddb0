//! The command line: its arguments as written, and the plans that they mean.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use viewer::player::Target;
use viewer::tls::{Trust, client_config};
use viewer::{Options, Rendition};

use crate::agents::Crew;
use crate::agents::args::{AgentArguments, CrewArguments};
use crate::certificates::Certificates;
use crate::fleet::{self, Original, Plan, Verify};
use crate::{
    Exit, calibrate, capacity, compare, lab, load, meter, nodes, report, shard, text, units,
    viewers, watch,
};

/// Loads, watches and measures any media server.
#[derive(Debug, Parser)]
#[command(version, about, after_help = EXIT_STATUS)]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

const EXIT_STATUS: &str = "Exit status: 0 success; 1 the measured server failed the criterion asked \
    for; 2 unusable arguments or input; 3 the generator itself was saturated, so the figures are \
    not to be trusted.";

#[derive(Debug, Subcommand)]
enum Verb {
    Agent(AgentArguments),
    Calibrate(calibrate::Arguments),
    Http(Box<load::args::Arguments>),
    Meter(meter::args::Arguments),
    Peers(lab::install::Arguments),
    Run(lab::run::Arguments),
    /// One viewer, everything verified
    Watch(WatchArguments),
    Compare(compare::Arguments),
    CompareNodes(nodes::args::Arguments),
    /// More and more viewers at once, up to where they no longer get the bit rate they need
    Capacity(CapacityArguments),
    Report(report::Arguments),
    /// Many viewers: batches that join one after the other and watch to the end
    Viewers(ViewersArguments),
    /// A share of another process's run
    #[command(hide = true)]
    Shard {
        role: String,
    },
}

/// How viewers behave.
#[derive(Debug, Args)]
struct Behaviour {
    /// Longest wait for a connection, an answer, or anything further
    #[arg(long, value_name = "T", default_value = "10s", value_parser = units::time)]
    timeout: Duration,
    /// Media a player buffers before it begins, and after a stall
    #[arg(long, value_name = "T", default_value = "500ms", value_parser = units::time)]
    buffer: Duration,
    /// RTMP: how much media a player says that it buffers; servers may send this much of a file at once
    #[arg(long, value_name = "T", default_value = "3s", value_parser = announced)]
    announce_buffer: Duration,
    /// How much media a player of finished media may have ahead; 0s: all, as fast as it comes
    #[arg(long, value_name = "T", default_value = "30s", value_parser = units::time)]
    ahead: Duration,
    /// auto, highest, lowest, or an index in rising order of bit rate
    #[arg(long, value_name = "WHICH", default_value = "highest", value_parser = rendition)]
    rendition: Rendition,
    /// Whole segments only: no parts, blocking reloads, or chunks of segments being made
    #[arg(long)]
    no_low_latency: bool,
    /// Ask for parts only once a playlist lists them, not by EXT-X-PRELOAD-HINT
    #[arg(long)]
    no_hints: bool,
    /// RTMP, FLV, MP4 and WHEP, live: connect again where a connection is lost; other players always do
    #[arg(long)]
    reconnect: bool,
    #[command(flatten)]
    certificates: Certificates,
    /// Event loops, each on a core; one for each core if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    loops: Option<u16>,
    /// Processes that share the run and its loops, of all agents together; by default as few as can open all files
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=250))]
    processes: Option<u32>,
}

impl Behaviour {
    fn options(&self) -> anyhow::Result<Options> {
        let trust = self.certificates.trust();
        if matches!(trust, Trust::Authorities(_)) {
            // An unusable file is reported before the run.
            client_config(&trust)?;
        }
        Ok(Options {
            patience: self.timeout,
            buffer: self.buffer,
            announce_buffer: self.announce_buffer,
            ahead: (!self.ahead.is_zero()).then_some(self.ahead),
            rendition: self.rendition,
            low_latency: !self.no_low_latency,
            hints: !self.no_hints,
            reconnect: self.reconnect,
            trust,
        })
    }

    fn loops(&self, crew: Option<&Crew>) -> usize {
        let here = || std::thread::available_parallelism().map_or(1, usize::from);
        let cores = || crew.map_or_else(here, Crew::cores);
        self.loops.map_or_else(cores, usize::from)
    }
}

#[derive(Debug, Args)]
struct ViewersArguments {
    /// What to watch: rtmp://…, ….m3u8, ….mpd, ws://…, …/whep, or an MP4 or FLV over HTTP; all over TLS too
    url: Target,
    /// Batches
    #[arg(long, value_name = "X", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    batches: u32,
    /// Viewers in a batch
    #[arg(long, value_name = "Y", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    batch_size: u32,
    /// From one batch to the next
    #[arg(long, value_name = "T", default_value = "1s", value_parser = units::time)]
    interval: Duration,
    /// How long viewers watch, counted from when the last batch has joined
    #[arg(long, value_name = "T", value_parser = units::time)]
    duration: Duration,
    /// full; sample=K: one viewer in K; none
    #[arg(long, value_name = "HOW", default_value = "none", value_parser = verify)]
    verify: Verify,
    /// An MP4 or FLV that the stream was made from; verified viewers compare its access units
    #[arg(long, value_name = "FILE")]
    reference: Option<PathBuf>,
    /// Share of the duration that a viewer must get media for
    #[arg(long, value_name = "SHARE", default_value_t = 0.9)]
    at_least: f64,
    /// How many viewers may get less before the exit status is 1
    #[arg(long, value_name = "N", default_value_t = 0)]
    allowed: u32,
    /// Keep raw records in this folder
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// One document on standard output, docs/schema/viewers.schema.json
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    behaviour: Behaviour,
    #[command(flatten)]
    machines: CrewArguments,
}

#[derive(Debug, Args)]
struct WatchArguments {
    /// What to watch: rtmp://…, ….m3u8, ….mpd, ws://…, …/whep, or an MP4 or FLV over HTTP; all over TLS too
    url: Target,
    /// For how long; by default until the stream ends or is interrupted
    #[arg(long, value_name = "T", value_parser = units::time)]
    duration: Option<Duration>,
    /// An MP4 or FLV that the stream was made from; its access units are compared
    #[arg(long, value_name = "FILE")]
    reference: Option<PathBuf>,
    /// One document on standard output, docs/schema/watch.schema.json
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    behaviour: Behaviour,
}

#[derive(Debug, Args)]
struct CapacityArguments {
    /// What to watch: rtmp://…, ….m3u8, ….mpd, ws://…, …/whep, or an MP4 or FLV over HTTP; all over TLS too
    url: Target,
    /// Viewers of the first step
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    start: u32,
    /// How many more viewers each step has
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    step: u32,
    /// Viewers of the last step
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..))]
    max: u32,
    /// Bit rate that viewers must get; by default 0.9 of the bit rate of the media
    #[arg(long, value_name = "B", value_parser = units::bit_rate)]
    min_bitrate: Option<u64>,
    /// Share of the viewers that must get it; with less, a step has too many viewers
    #[arg(long, value_name = "SHARE", default_value_t = 0.5)]
    share: f64,
    /// Viewers ask for media only when all viewers of a step are connected; their times begin then
    #[arg(long)]
    start_barrier: bool,
    /// How long the viewers of a step watch, unless the media end before
    #[arg(long, value_name = "T", default_value = "10s", value_parser = units::time)]
    duration: Duration,
    /// Pause between steps
    #[arg(long, value_name = "T", default_value = "1s", value_parser = units::time)]
    pause: Duration,
    /// full; sample=K: one viewer in K; none
    #[arg(long, value_name = "HOW", default_value = "none", value_parser = verify)]
    verify: Verify,
    /// Take finished media as fast as they come, not at playing speed
    #[arg(long)]
    fast: bool,
    /// Keep raw records in this folder
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// One document on standard output, docs/schema/capacity.schema.json
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    behaviour: Behaviour,
    #[command(flatten)]
    machines: CrewArguments,
}

/// A time that SetBufferLength can say, in 32 bits of milliseconds.
fn announced(text: &str) -> Result<Duration, String> {
    let time = units::time(text).map_err(|error| error.to_string())?;
    let fits = u32::try_from(time.as_millis()).is_ok();
    fits.then_some(time).ok_or_else(|| "more than 1193h".to_owned())
}

fn rendition(text: &str) -> Result<Rendition, String> {
    match text {
        "auto" => Ok(Rendition::Auto),
        "highest" => Ok(Rendition::Highest),
        "lowest" => Ok(Rendition::Lowest),
        index => index
            .parse()
            .map(Rendition::Index)
            .map_err(|_| "not auto, highest, lowest or an index".to_owned()),
    }
}

fn verify(text: &str) -> Result<Verify, String> {
    let bad = || "not full, none or sample=K".to_owned();
    match text {
        "full" => Ok(Verify::Full),
        "none" => Ok(Verify::None),
        other => {
            let each = other.strip_prefix("sample=").and_then(|each| each.parse().ok());
            each.filter(|&each| each > 0).map(Verify::Sample).ok_or_else(bad)
        }
    }
}

fn reference(path: Option<&PathBuf>) -> anyhow::Result<Option<Original>> {
    use anyhow::Context;
    let open = |path: &PathBuf| Original::open(path).with_context(|| path.display().to_string());
    path.map(open).transpose()
}

impl Arguments {
    /// Does what the arguments ask for. Prints the document, or a text for people, to standard
    /// output.
    ///
    /// # Errors
    /// Arguments or input are unusable.
    pub fn run(self) -> anyhow::Result<Exit> {
        match self.verb {
            Verb::Agent(arguments) => arguments.run(),
            Verb::Calibrate(arguments) => arguments.run(),
            Verb::Http(arguments) => arguments.run(),
            Verb::Meter(arguments) => arguments.run(),
            Verb::Peers(arguments) => arguments.run(),
            Verb::Run(arguments) => arguments.run(),
            Verb::Watch(arguments) => run_watch(&arguments),
            Verb::Compare(arguments) => arguments.run(),
            Verb::CompareNodes(arguments) => arguments.run(),
            Verb::Capacity(arguments) => run_capacity(&arguments),
            Verb::Report(arguments) => arguments.run(),
            Verb::Viewers(arguments) => run_viewers(&arguments),
            Verb::Shard { role } => match role.as_str() {
                shard::VIEWERS => fleet::serve(),
                shard::HTTP => load::several::serve(),
                other => anyhow::bail!("no share of a run is called {other}"),
            },
        }
    }
}

fn run_viewers(arguments: &ViewersArguments) -> anyhow::Result<Exit> {
    anyhow::ensure!((0.0..=1.0).contains(&arguments.at_least), "--at-least is a share, 0 to 1");
    let (options, original) =
        (arguments.behaviour.options()?, reference(arguments.reference.as_ref())?);
    // All other arguments are usable when machines are reserved.
    let crew = arguments.machines.crew()?;
    let plan = Plan {
        target: arguments.url.clone(),
        options,
        batches: arguments.batches,
        batch_size: arguments.batch_size,
        interval: arguments.interval,
        duration: arguments.duration,
        together: false,
        verify: arguments.verify,
        reference: original,
        loops: arguments.behaviour.loops(crew.as_ref()),
        processes: arguments.behaviour.processes,
    };
    let run = viewers::Arguments {
        url: arguments.url.to_string(),
        plan,
        share: arguments.at_least,
        allowed: arguments.allowed,
        folder: arguments.output.clone(),
        quiet: arguments.json,
    };
    let document = viewers::run(&run, crew.as_ref())?;
    let shown = if arguments.json { text::json(&document) } else { text::viewers(&document) };
    shown?;
    Ok(document.exit())
}

/// As good as forever.
const TEN_YEARS: Duration = Duration::from_secs(10 * 365 * 86_400);

fn run_watch(arguments: &WatchArguments) -> anyhow::Result<Exit> {
    let plan = Plan {
        target: arguments.url.clone(),
        options: arguments.behaviour.options()?,
        batches: 1,
        batch_size: 1,
        interval: Duration::ZERO,
        duration: arguments.duration.unwrap_or(TEN_YEARS),
        together: false,
        verify: Verify::Full,
        reference: reference(arguments.reference.as_ref())?,
        loops: 1,
        processes: arguments.behaviour.processes,
    };
    let document = watch::run(&arguments.url.to_string(), &plan, arguments.json)?;
    let shown = if arguments.json { text::json(&document) } else { text::watch(&document) };
    shown?;
    Ok(document.exit())
}

fn run_capacity(arguments: &CapacityArguments) -> anyhow::Result<Exit> {
    anyhow::ensure!(arguments.start <= arguments.max, "--start is beyond --max");
    anyhow::ensure!((0.0..=1.0).contains(&arguments.share), "--share is a share, 0 to 1");
    let mut options = arguments.behaviour.options()?;
    if arguments.fast {
        options.ahead = None;
    }
    let crew = arguments.machines.crew()?;
    let plan = Plan {
        target: arguments.url.clone(),
        options,
        batches: 1,
        batch_size: 1,
        interval: Duration::ZERO,
        duration: arguments.duration,
        together: arguments.start_barrier,
        verify: arguments.verify,
        reference: None,
        loops: arguments.behaviour.loops(crew.as_ref()),
        processes: arguments.behaviour.processes,
    };
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52 bits per second")]
    let min_bit_rate = arguments.min_bitrate.map(|bits| bits as f64 / 1e6);
    let run = capacity::Arguments {
        url: arguments.url.to_string(),
        plan,
        start: arguments.start,
        step: arguments.step,
        max: arguments.max,
        min_bit_rate,
        share: arguments.share,
        pause: arguments.pause,
        folder: arguments.output.clone(),
        quiet: arguments.json,
    };
    let document = capacity::run(&run, crew.as_ref())?;
    let shown = if arguments.json { text::json(&document) } else { text::capacity(&document) };
    shown?;
    Ok(document.exit())
}
