//! The command line of the origin.

use std::ffi::OsString;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use headwater::config::{Config, Time};
use headwater::ladder::confine;
use headwater::reload::File;
use headwater::sign::{hashed, signed};
use headwater::{doctor, heap, log, publish, serve};
use tokio::runtime::Runtime;

/// Takes live streams and files in, and serves them to as many viewers as the machine carries.
#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve: publish to rtmp://HOST/live/NAME, watch at http://HOST:8080/watch/live/NAME
    Serve(Serve),
    /// Validate the configuration and print what is in effect, as TOML
    Check {
        /// Configuration file
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Tell what on this machine stands in the way of serving many viewers, and what to do. Changes nothing. The exit
    /// status is 0 without a problem, 1 with one, 2 for a configuration that cannot be used
    Doctor {
        /// Configuration file
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// One document on standard output, docs/schema/doctor.schema.json
        #[arg(long)]
        json: bool,
    },
    /// Send an MP4 or FLV file to a server, in real time: by RTMP, or by WHIP (H.264, AV1 or HEVC, and Opus)
    Publish {
        /// The file
        input: PathBuf,
        /// Where to: rtmp://HOST[:PORT]/live/NAME, or http[s]://HOST[:PORT]/live/NAME/whip
        url: String,
        /// Begin again at the end, for ever; timestamps go on
        #[arg(long = "loop")]
        repeat: bool,
        /// As fast as the server takes it; by RTMP only
        #[arg(long)]
        fast: bool,
        /// Put the wall clock of sending into each video access unit, as an SEI message (H.264,
        /// HEVC) or metadata OBU (AV1): streamgauge's players tell by it how far behind they are,
        /// over any protocol. Their machine's clock and this one's must agree
        #[arg(long)]
        stamp: bool,
    },
    /// Print a signed path, by which its viewers need no other credentials
    Sign(Sign),
    /// Read a password from standard input, and print its hash for `[[access.rule]]`
    HashPassword,
    /// Become another program that may do little: how the origin starts ffmpeg
    #[command(hide = true)]
    Confine {
        #[command(flatten)]
        limits: confine::Limits,
        /// The program
        program: PathBuf,
        /// Its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
}

#[derive(Args)]
struct Sign {
    /// The path: live/NAME, vod/PATH, a playlist of either, or a pattern in which * stands for any text without a
    /// slash and ** for any text
    path: String,
    /// How long the signed path holds: 30m, 12h
    #[arg(long, value_name = "T")]
    expires: Option<Time>,
    /// The one address that may use it
    #[arg(long, value_name = "A")]
    address: Option<IpAddr>,
    /// Configuration file, which names the key (access.signing_key)
    #[arg(long, value_name = "FILE", conflicts_with = "key")]
    config: Option<PathBuf>,
    /// File with the key
    #[arg(long, value_name = "FILE", required_unless_present = "config")]
    key: Option<PathBuf>,
}

#[derive(Args)]
struct Serve {
    /// Configuration file; see config/headwater.toml
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address of the HTTP listener
    #[arg(long, value_name = "ADDR")]
    http: Option<SocketAddr>,
    /// Address of the RTMP listener
    #[arg(long, value_name = "ADDR")]
    rtmp: Option<SocketAddr>,
    /// Address of the WebRTC socket
    #[arg(long, value_name = "ADDR")]
    webrtc: Option<SocketAddr>,
    /// Address of the listener of dashboard, API and metrics
    #[arg(long, value_name = "ADDR")]
    control: Option<SocketAddr>,
    /// Folder served below /vod/
    #[arg(long, value_name = "DIR")]
    vod: Option<PathBuf>,
    /// How lines of the log are written
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<log::Format>,
    /// Event loops; one for each core if not given
    #[arg(long, value_name = "N")]
    workers: Option<usize>,
    /// Publish a bundled clip, over and over, as live/demo
    #[arg(long)]
    demo: bool,
}

fn main() -> ExitCode {
    heap::return_large_blocks();
    let logging = log::start();
    match run(Arguments::parse().command, &logging) {
        Ok(code) => code,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::from(2)
        }
    }
}

/// Becomes another program. Returns only if this fails, and then reports the error in ffmpeg's
/// format, as the origin expects.
fn become_another(limits: &confine::Limits, program: &Path, arguments: &[OsString]) -> ExitCode {
    let error = confine::run(limits, program, arguments);
    // An error is ignored: it could not be reported either.
    let _ = writeln!(io::stderr(), "[fatal] {}: {error}", program.display());
    ExitCode::from(126)
}

/// Raises the soft limit of open descriptors to the hard limit. Each viewer and each publisher
/// needs a descriptor. The usual soft limit of 1,024 is for programs that use `select`.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::warn!(%error, ?limit, "limit of open descriptors stays as it is");
    }
}

/// Prints a command's output. A reader that has gone wants no more of it, which is no failure.
fn say(text: &str) -> anyhow::Result<()> {
    let mut output = io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("standard output")
        }
        _ => Ok(()),
    }
}

fn run(command: Command, logging: &log::Logging) -> anyhow::Result<ExitCode> {
    match command {
        Command::Serve(arguments) => {
            logging.set_format(arguments.log_format.unwrap_or_default());
            raise_descriptor_limit();
            let mut config = Config::load(arguments.config.as_deref())?;
            let file = arguments.config.map(|path| File::new(path, config.clone()));
            config.log.format = arguments.log_format.unwrap_or(config.log.format);
            logging.set_format(config.log.format);
            config.http.listen = arguments.http.unwrap_or(config.http.listen);
            config.rtmp.listen = arguments.rtmp.unwrap_or(config.rtmp.listen);
            config.webrtc.listen = arguments.webrtc.unwrap_or(config.webrtc.listen);
            config.control.listen = arguments.control.unwrap_or(config.control.listen);
            config.vod.root = arguments.vod.unwrap_or(config.vod.root);
            config.workers = arguments.workers.unwrap_or(config.workers);
            config.validate()?;
            let runtime = Runtime::new()?;
            let served = runtime.block_on(serve::run(config, file, arguments.demo));
            // RTMP connections end with their tasks.
            runtime.shutdown_background();
            served?;
        }
        Command::Check { config } => {
            say(&Config::load(config.as_deref())?.to_toml()?)?;
        }
        Command::Doctor { config, json } => {
            let config = Config::load_for_any_machine(config.as_deref())?;
            let runtime = Runtime::new()?;
            let report = runtime.block_on(doctor::run(&config));
            // A look at a file that does not answer may still wait.
            runtime.shutdown_background();
            let text =
                if json { serde_json::to_string_pretty(&report)? } else { report.to_string() };
            say(&format!("{text}\n"))?;
            return Ok(ExitCode::from(u8::from(report.problems > 0)));
        }
        Command::Sign(Sign { path, expires, address, config, key }) => {
            let key = match key {
                Some(key) => key,
                None => Config::load(config.as_deref())?.access.signing_key,
            };
            anyhow::ensure!(!key.as_os_str().is_empty(), "access.signing_key is not set");
            let signed = signed(&path, expires.map(Into::into), address, &key)?;
            say(&format!("{signed}\n"))?;
        }
        Command::HashPassword => {
            let mut password = String::new();
            io::stdin().read_line(&mut password).context("standard input")?;
            let hashed = hashed(password.trim_end_matches(['\r', '\n']))?;
            say(&format!("{hashed}\n"))?;
        }
        Command::Publish { input, url, repeat, fast, stamp } => {
            let options = publish::Options { repeat, fast, stamp };
            Runtime::new()?.block_on(publish::run(&input, &url, options))?;
        }
        Command::Confine { limits, program, arguments } => {
            // The confinement applies to the calling thread, and there is no other thread yet.
            return Ok(become_another(&limits, &program, &arguments));
        }
    }
    Ok(ExitCode::SUCCESS)
}
