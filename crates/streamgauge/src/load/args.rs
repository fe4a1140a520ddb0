//! The verb `http`: its arguments as written, and the plan that they mean.

use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::Args;

use super::criterion::Criterion;
use super::progress::Progress;
use super::record::Folder;
use super::report::{self, Document};
use super::slow::Manner;
use super::target::{Order, Rule, Target};
use super::url::{Scheme, Url};
use super::{Pace, Plan, Tick, prepare, run};
use crate::agents::Crew;
use crate::agents::args::CrewArguments;
use crate::certificates::Certificates;
use crate::{Exit, signals, text, units};

/// Default number of connections of a closed loop.
const CONNECTIONS: u64 = 10;
/// Default for the most connections of an open loop.
const MOST_CONNECTIONS: u64 = 10_000;
/// Default duration of a run.
const DURATION: Duration = Duration::from_secs(10);
/// How many requests per second one event loop gets, if there are processors for more loops.
const RATE_OF_LOOP: f64 = 10_000.0;
/// The largest file of targets, in bytes.
const LARGEST_FILE: u64 = 256 << 20;

/// Loads a server over HTTP, at a constant rate or with connections that wait for their answers
#[derive(Debug, Args)]
pub struct Arguments {
    /// What to ask for, in turn
    #[arg(value_name = "URL")]
    urls: Vec<String>,
    /// Open loop: this many requests per second, whatever the server does. A latency counts from
    /// the time when its request was due
    #[arg(long, value_name = "N", value_parser = rate)]
    rate: Option<f64>,
    /// Closed loop: this many connections, each of which sends a new request when it has its answer
    /// (10). With --rate: the most connections at a time (10,000)
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    connections: Option<u64>,
    /// Duration of the run (10s)
    #[arg(long, short, value_name = "T", value_parser = units::time)]
    duration: Option<Duration>,
    /// Number of requests
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,
    /// Ask for ranges of this size, spread over the length of each target; for limit://HOST:PORT:
    /// how many bytes the server sends for each byte, which is found out if not given
    #[arg(long, value_name = "B", value_parser = range_size)]
    range_size: Option<u64>,
    /// Order of these ranges
    #[arg(long, value_name = "ORDER", value_enum, default_value_t = Order::Random)]
    range_order: Order,
    /// Seed of random ranges: the same seed gives the same ranges
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// A file of targets, one on each line: [METHOD] URL [FIRST-LAST]
    #[arg(long, value_name = "FILE")]
    targets: Option<PathBuf>,
    /// How many requests a connection sends before it has their answers; with --http2, at a time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pipeline: u16,
    /// Open a connection for each request
    #[arg(long)]
    no_keepalive: bool,
    /// Slow clients: each connection takes at most this many bytes per second
    #[arg(long, value_name = "B", value_parser = read_rate)]
    read_rate: Option<u64>,
    /// Closed loop: how long a connection rests between an answer and its next request
    #[arg(long, value_name = "T", value_parser = units::time, conflicts_with_all = ["rate", "pipeline"])]
    think: Option<Duration>,
    /// Closed loop: connections start one after the other, spread over this time
    #[arg(long, value_name = "T", value_parser = units::time, conflicts_with_all = ["rate", "pipeline"])]
    ramp: Option<Duration>,
    /// HTTP/2 instead of HTTP/1.1, by a general client that costs several times as much
    #[arg(long)]
    http2: bool,
    #[command(flatten)]
    certificates: Certificates,
    /// A header field of every request, "Name: value"; may be repeated
    #[arg(long, short = 'H', value_name = "FIELD", value_parser = field)]
    header: Vec<(String, String)>,
    /// How long an answer may take
    #[arg(long, value_name = "T", default_value = "30s", value_parser = units::time)]
    timeout: Duration,
    /// How many redirections are followed for one request; 0: they are answers like others
    #[arg(long, value_name = "N", default_value_t = 10)]
    redirects: u32,
    /// Compare bodies with this file, byte for byte; exit status 1 if one differs
    #[arg(long, value_name = "FILE")]
    check: Option<PathBuf>,
    /// Exit status 1 if this holds: p99>20ms, first.p99.9>5ms, max>1s, errors>0, errors>1%,
    /// status>1%, rate<900, throughput<100MB; may be repeated
    #[arg(long, value_name = "CRITERION")]
    fail_if: Vec<Criterion>,
    /// Event loops, each on its own thread; by default as many as the rate or the connections need,
    /// up to one for each processor
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Poll for events instead of sleeping until there are some. Takes a processor for each event
    /// loop, but a server on the same machine then has no cost for waking the load
    #[arg(long, conflicts_with = "http2")]
    busy_poll: bool,
    /// Processes that share the run, of all agents together; by default as few as the limit of open files and the ports of
    /// an address allow
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=250))]
    processes: Option<u32>,
    /// Keep raw records in this folder
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// One document on standard output, docs/schema/http.schema.json
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    machines: CrewArguments,
}

fn rate(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|rate: &f64| rate.is_finite() && (1e-3..=1e8).contains(rate))
        .ok_or_else(|| "not a number of requests a second".to_owned())
}

fn range_size(text: &str) -> Result<u64, String> {
    match units::size(text) {
        Ok(0) => Err("a range has at least a byte".to_owned()),
        Ok(size) => Ok(size),
        Err(error) => Err(error.to_string()),
    }
}

fn read_rate(text: &str) -> Result<u64, String> {
    match units::size(text) {
        Ok(0) => Err("a connection takes at least a byte a second".to_owned()),
        Ok(rate) => Ok(rate),
        Err(error) => Err(error.to_string()),
    }
}

fn field(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("no colon in it")?;
    let value = value.trim();
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.is_empty() || !name.bytes().all(token) {
        return Err(format!("{name:?} is not the name of a field"));
    }
    if !value.bytes().all(|b| b == b'\t' || (b >= b' ' && b != 0x7f)) {
        return Err("control characters in the value".to_owned());
    }
    if ["host", "connection", "content-length", "transfer-encoding"]
        .contains(&name.to_ascii_lowercase().as_str())
    {
        return Err(format!("{name} is set by the client itself"));
    }
    Ok((name.to_owned(), value.to_owned()))
}

impl Arguments {
    /// Makes the plan of the run, for this machine or for those of a crew.
    ///
    /// # Errors
    /// The arguments contradict each other, or the targets are unusable.
    pub fn plan(&self, crew: Option<&Crew>) -> anyhow::Result<Plan> {
        let mut targets = Vec::new();
        for url in &self.urls {
            targets.push(Target::get(Url::parse(url)?));
        }
        if let Some(path) = &self.targets {
            let name = || path.display().to_string();
            let length = std::fs::metadata(path).with_context(name)?.len();
            ensure!(length <= LARGEST_FILE, "{}: more than {LARGEST_FILE} bytes", name());
            let text = std::fs::read_to_string(path).with_context(name)?;
            targets.extend(super::target::parse(&text).with_context(name)?);
        }
        ensure!(!targets.is_empty(), "nothing to ask for: give a URL, or --targets FILE");
        if self.http2 && targets.iter().any(|target| target.method == "CONNECT") {
            bail!("CONNECT is not an exchange");
        }
        let bare = |target: &Target| target.url.origin.scheme == Scheme::Limit;
        if targets.iter().any(bare) {
            ensure!(targets.iter().all(bare), "limit:// and HTTP cannot be asked for in one run");
            ensure!(!self.http2, "limit:// is no HTTP: --http2 has no meaning for it");
        }
        let rule =
            self.range_size.map(|size| Rule { size, order: self.range_order, seed: self.seed });
        let pace = self.rate.map_or(Pace::Closed, |rate| Pace::Open { rate });
        let connections = match (self.connections, pace) {
            (Some(connections), _) => connections,
            (None, Pace::Open { .. }) => MOST_CONNECTIONS,
            (None, Pace::Closed) => CONNECTIONS,
        };
        let wanted = match pace {
            Pace::Open { rate } => (rate / RATE_OF_LOOP).ceil() as usize,
            Pace::Closed => usize::try_from(connections).unwrap_or(usize::MAX),
        };
        let here = || std::thread::available_parallelism().map_or(1, usize::from);
        let cores = crew.map_or_else(here, Crew::cores);
        let threads = self.threads.map_or(wanted.clamp(1, cores), usize::from);
        let mut headers = self.header.clone();
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("user-agent")) {
            headers.push(("User-Agent".to_owned(), "streamgauge".to_owned()));
        }
        let endless = self.duration.is_none() && self.requests.is_none();
        let plan = Plan {
            targets,
            rule,
            headers,
            pace,
            connections,
            connections_given: self.connections.is_some() || pace == Pace::Closed,
            pipeline: usize::from(self.pipeline),
            keep_alive: !self.no_keepalive,
            manner: self.manner(),
            duration: self.duration.or(endless.then_some(DURATION)),
            requests: self.requests,
            timeout: self.timeout,
            redirects: self.redirects,
            check: self.check.clone(),
            threads,
            busy_poll: self.busy_poll,
            processes: self.processes.unwrap_or_default(),
            http2: self.http2,
            trust: self.certificates.trust(),
        };
        if plan.is_general() && (plan.manner != Manner::default() || plan.busy_poll) {
            bail!(
                "--read-rate, --think, --ramp and --busy-poll are of the client for plain HTTP/1.1, \
                 not of that for HTTP/2 and TLS"
            );
        }
        Ok(plan)
    }

    fn manner(&self) -> Manner {
        Manner {
            read_rate: self.read_rate,
            think: self.think.unwrap_or_default(),
            ramp: self.ramp.unwrap_or_default(),
        }
    }

    /// Does what the arguments ask for. Prints the document, or a text for people, to standard
    /// output.
    ///
    /// # Errors
    /// Arguments or input are unusable, or records cannot be written.
    pub fn run(&self) -> anyhow::Result<Exit> {
        // Reserves machines only for arguments that are usable.
        self.plan(None)?;
        let machines = self.machines.crew()?;
        let crew = machines.as_ref();
        let mut plan = self.plan(crew)?;
        let stop = signals::stop()?;
        let addresses = match prepare(&mut plan, crew, &stop) {
            // There are no results yet that could be shown.
            Err(super::Error::Interrupted) => {
                // Frees the agents.
                drop(machines);
                std::process::exit(signals::INTERRUPTED)
            }
            prepared => prepared?,
        };
        let mut folder = self.output.as_deref().map(Folder::create).transpose()?;
        let mut progress = Progress::new(&plan);
        let mut trouble = None;
        let mut observe = |tick: &Tick| {
            progress.tick(tick);
            if let Some(Err(error)) = folder.as_mut().map(|folder| folder.tick(tick)) {
                // Without records, the load is of no use.
                trouble.get_or_insert(error);
                stop.store(true, Relaxed);
            }
        };
        let outcome = run(&plan, crew, &addresses, &stop, &mut observe)?;
        progress.finish();
        if let Some(error) = trouble {
            return Err(error.context("writing records"));
        }
        let document = Document::new(&plan, &outcome, &self.fail_if);
        if let Some(folder) = folder {
            folder.finish(&outcome, &document).context("writing records")?;
        }
        if self.json {
            text::json(&document)?;
        } else {
            report::write(&document, &mut std::io::stdout().lock())?;
        }
        Ok(document.exit())
    }
}
