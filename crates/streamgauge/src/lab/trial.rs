//! One trial: a server is started, loaded and measured, and ended again.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use super::arguments::{Values, fill, fill_all};
use super::folders::Folders;
use super::link::{self, Link};
use super::media::Made;
use super::metrics::{Loaded, add_pushed};
use super::observe::{Recorded, Span};
use super::peer::{Job, Peer};
use super::plan::Trial;
use super::process::{Place, Server};
use super::program::{Program, Seat};
use super::record::{self, Parameters};
use super::scenario::{Publisher, Scenario, Tool};
use super::signals::{Interrupted, POLL, Stop};
use super::{profile, study_b};
use crate::{meter, units};

/// How long a live stream may take until it can be played.
const UNTIL_PLAYABLE: Duration = Duration::from_secs(60);
/// What a trial says that was interrupted.
const INTERRUPTED: &str = "interrupted";

/// Where trials take place.
#[derive(Debug)]
pub(super) struct Bench<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) folders: &'a Folders,
    pub(super) peers: &'a BTreeMap<String, Peer>,
    pub(super) made: &'a Made,
    /// The run's folder.
    pub(super) out: &'a Path,
    /// A folder for what servers write, on the file system of the media.
    pub(super) scratch: &'a Path,
    pub(super) server_cpus: Option<&'a str>,
    pub(super) load_cpus: Option<&'a str>,
    pub(super) stop: &'a Stop,
    /// How much shorter the time after the load is.
    pub(super) scale: f64,
}

/// What templates of a load may ask for.
struct Known<'a> {
    parameters: &'a Parameters,
    urls: Vec<String>,
    media: &'a BTreeMap<String, PathBuf>,
}

impl Values for Known<'_> {
    fn value(&self, name: &str) -> Option<String> {
        let url = || self.urls.first().map(String::as_str);
        let (address, uri) = url().map(parts).unwrap_or_default();
        let (host, port) = address.rsplit_once(':').unwrap_or((address, "80"));
        match name {
            "url" => url().map(str::to_owned),
            "urls" => Some(self.urls.join(" ")),
            "host" => Some(host.to_owned()),
            "port" => Some(port.to_owned()),
            "uri" => Some(uri.to_owned()),
            _ => match name.strip_prefix("media.") {
                Some(name) => Some(self.media.get(name)?.to_string_lossy().into_owned()),
                None => self.parameters.value(name),
            },
        }
    }

    fn values(&self, name: &str) -> Option<Vec<String>> {
        (name == "urls").then(|| self.urls.clone())
    }
}

/// The address and the path of a URL.
fn parts(url: &str) -> (&str, &str) {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split_at(rest.find('/').unwrap_or(rest.len()))
}

/// What a trial asks the server for: files, or a stream.
fn wanted(trial: &Trial<'_>) -> anyhow::Result<Vec<String>> {
    let asked = trial.load.path.iter().chain(&trial.load.stream);
    asked.map(|text| fill(text, &trial.case.values)).collect()
}

/// What a trial asks of the server.
pub(super) fn job(trial: &Trial<'_>) -> anyhow::Result<Job> {
    Ok(fill(&trial.load.job, &trial.case.values)?.parse()?)
}

/// How long a trial takes, and whether its templates can be filled in at all.
pub(super) fn expected(
    trial: &Trial<'_>,
    scenario: &Scenario,
    scale: f64,
) -> anyhow::Result<Duration> {
    let url = || "http://127.0.0.1:20000/x".to_owned();
    let media = scenario.media.keys().map(|name| (name.clone(), PathBuf::new())).collect();
    let urls = wanted(trial)?.iter().map(|_| url()).collect();
    let known = Known { parameters: &trial.case.values, urls, media: &media };
    let load = trial.load;
    let arguments = fill_all(&load.arguments, &known).context("arguments")?;
    if let Some(background) = &load.background {
        fill_all(&background.arguments, &known).context("background.arguments")?;
    }
    if let Some(publish) = &load.publish {
        let file = fill(&publish.file, &known).context("publish.file")?;
        ensure!(scenario.media.contains_key(&file), "publish.file: there is no media {file:?}");
    }
    if let Some(timeout) = &load.timeout {
        units::time(&fill(timeout, &known)?).context("timeout")?;
    }
    Ok(load.settle + load.with.length(&arguments) + rest(load.rest, scale))
}

/// The time after a load: as long as it was, or as short as the run, but not below a second.
fn rest(rest: Duration, scale: f64) -> Duration {
    let shorter = Duration::try_from_secs_f64(rest.as_secs_f64() * scale).unwrap_or(rest);
    shorter.max(rest.min(Duration::from_secs(1)))
}

impl Bench<'_> {
    /// Carries a trial out, and writes what came of it into its folder. A server that fails is
    /// something that comes of it.
    ///
    /// # Errors
    /// The trial's folder cannot be written to.
    pub(super) fn run(&self, trial: &Trial<'_>) -> anyhow::Result<record::Trial> {
        let began = Instant::now();
        let folder = self.out.join(&trial.folder);
        let shown = || folder.display().to_string();
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(shown)?;
        }
        fs::create_dir_all(&folder).with_context(shown)?;
        let mut kept = record::Trial {
            form: record::FORM,
            load: trial.load.name.clone(),
            parameters: trial.case.parameters.clone(),
            scaled: trial.case.scaled.clone(),
            peer: trial.peer.clone(),
            repetition: trial.repetition,
            began: now(),
            elapsed: 0.0,
            commands: Vec::new(),
            metrics: BTreeMap::new(),
            saturated: false,
            warnings: Vec::new(),
            failed: None,
        };
        if let Err(error) = self.conduct(trial, &folder, &mut kept) {
            let interrupted = error.is::<Interrupted>();
            let why = if interrupted { INTERRUPTED.to_owned() } else { format!("{error:#}") };
            kept.failed = Some(why);
        }
        if trial.is_profile() {
            // The profiler costs the server time that it does not have in other trials.
            kept.metrics.clear();
        }
        kept.elapsed = began.elapsed().as_secs_f64();
        write_json(&folder.join("trial.json"), &kept)?;
        Ok(kept)
    }

    fn conduct(
        &self,
        trial: &Trial<'_>,
        folder: &Path,
        kept: &mut record::Trial,
    ) -> anyhow::Result<()> {
        let scratch = Scratch::new(self.scratch)?;
        let root = scratch.0.join("root");
        self.made.link(self.scenario, &root)?;
        let wanted = wanted(trial)?;
        let peer = self.peers.get(&trial.peer).context("there is no such peer")?;
        // Taken away after everything that is in it.
        let link = trial.load.link.as_deref().map(Link::new).transpose().context("link")?;
        let place = Place {
            host: if link.is_some() { link::SERVER } else { "127.0.0.1" }.to_owned(),
            root,
            work: scratch.0.join("work"),
            cpus: self.server_cpus.map(str::to_owned),
            netns: link.as_ref().map(|link| link.server().to_owned()),
            wanted: wanted.first().cloned(),
            folders: self.folders.clone(),
        };
        let server = Server::start(peer, &place, &folder.join("server.log"))?;
        kept.commands.push(record::Command {
            role: "server".to_owned(),
            arguments: server.command().to_vec(),
            status: None,
        });
        let job = job(trial)?;
        let urls = wanted.iter().map(|wanted| server.url(job, wanted));
        let mut stage = Stage {
            bench: self,
            trial,
            folder,
            seat: Seat {
                cpus: self.load_cpus.map(str::to_owned),
                netns: link.as_ref().map(|link| link.client().to_owned()),
            },
            known: Known {
                parameters: &trial.case.values,
                urls: urls.collect::<anyhow::Result<_>>()?,
                media: &self.made.paths,
            },
            server,
            programs: Vec::new(),
        };
        let result = stage.run(kept);
        let Stage { mut programs, server, .. } = stage;
        for program in programs.iter_mut().rev() {
            if !program.has_ended()? {
                program.end()?;
            }
        }
        kept.commands.extend(programs.iter().map(Program::record));
        let stopped = server.stop();
        result?;
        stopped?;
        Ok(())
    }
}

/// A trial whose server runs.
struct Stage<'a> {
    bench: &'a Bench<'a>,
    trial: &'a Trial<'a>,
    folder: &'a Path,
    seat: Seat,
    known: Known<'a>,
    server: Server,
    /// What was started besides the server, in order.
    programs: Vec<Program>,
}

impl Stage<'_> {
    fn run(&mut self, kept: &mut record::Trial) -> anyhow::Result<()> {
        self.publish()?;
        let pid = i32::try_from(self.server.pid())?;
        let options = meter::Options {
            pids: vec![pid],
            with_children: true,
            network_of: self.seat.netns.is_some().then_some(pid),
        };
        let recorded = Recorded::start(&options, &self.folder.join("meter.csv"))?;
        self.pause(self.trial.load.settle)?;
        let cpus = [self.bench.server_cpus, self.bench.load_cpus];
        let publisher = self.programs.first().map(Program::pid);
        let span = Span::begin(&options, &recorded, cpus, publisher)?;
        if self.trial.is_profile() {
            self.profile(&span)?;
        }
        self.background()?;
        let loaded = self.load()?;
        let background = self.program("background").map(|program| program.pid());
        let mut observed = span.end(&recorded, background)?;
        self.end_background(kept)?;
        self.pause(rest(self.trial.load.rest, self.bench.scale))?;
        observed.samples = recorded.stop()?;
        let load = loaded?;
        kept.metrics.extend(load.metrics);
        kept.saturated = load.saturated;
        kept.warnings.extend(load.warnings);
        if let Some(&record::Value::Number(chunks)) = self.known.parameters.get("chunks") {
            add_pushed(&mut kept.metrics, chunks);
        }
        observed.add_to(&mut kept.metrics);
        if self.trial.is_profile() {
            self.end_profile()?;
        }
        if self.trial.load.study_b_files {
            study_b::keep(self.trial, self.folder, &kept.metrics)?;
        }
        Ok(())
    }

    fn pause(&mut self, time: Duration) -> anyhow::Result<()> {
        let Self { bench, server, .. } = self;
        bench.stop.pause(time, &mut || server.check())
    }

    fn start(
        &mut self,
        role: &'static str,
        words: &[String],
        out: &str,
        log: &str,
    ) -> anyhow::Result<()> {
        let (out, log) = (self.folder.join(out), self.folder.join(log));
        let program = Program::start(role, &self.seat, words, &out, &log)?;
        self.programs.push(program);
        Ok(())
    }

    /// Starts the publisher, where there is one, and waits until its stream can be played.
    fn publish(&mut self) -> anyhow::Result<()> {
        let (Some(publish), Some(stream)) = (&self.trial.load.publish, &self.trial.load.stream)
        else {
            return Ok(());
        };
        ensure!(publish.protocol == "rtmp", "publish: {} is not known", publish.protocol);
        let name = fill(stream, &self.known)?;
        let url = self.server.publish_url(&name)?;
        let file = fill(&publish.file, &self.known)?;
        let file = self.known.value(&format!("media.{file}")).context("no such media")?;
        let words = match publish.with {
            Publisher::Headwater => {
                let beside = self.bench.folders.programs.join("headwater");
                let program = if beside.exists() { beside } else { "headwater".into() };
                let program = program.to_string_lossy();
                let stamp = if publish.stamp { "--stamp" } else { "" };
                vec![&program, "publish", &file, &url, "--loop", stamp]
                    .into_iter()
                    .filter(|word| !word.is_empty())
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            }
            Publisher::Ffmpeg => [
                "ffmpeg",
                "-nostdin",
                "-loglevel",
                "error",
                "-re",
                "-stream_loop",
                "-1",
                "-i",
                &file,
                "-c",
                "copy",
                "-f",
                "flv",
                &url,
            ]
            .map(str::to_owned)
            .to_vec(),
        };
        self.start("publisher", &words, "publisher.log", "publisher.log")?;
        let deadline = Instant::now() + UNTIL_PLAYABLE;
        while !self.is_playable()? {
            let publisher = &mut self.programs[0];
            ensure!(!publisher.has_ended()?, "the publisher ended: {}", publisher.last_words());
            ensure!(
                Instant::now() < deadline,
                "the stream cannot be played after {} s",
                UNTIL_PLAYABLE.as_secs()
            );
            self.pause(Duration::from_millis(100))?;
        }
        Ok(())
    }

    /// Whether a player gets media within a moment.
    fn is_playable(&mut self) -> anyhow::Result<bool> {
        let own = std::env::current_exe()?.to_string_lossy().into_owned();
        let url = self.known.value("url").unwrap_or_default();
        let words = [&own, "watch", &url, "--duration", "3s", "--timeout", "2s", "--json"];
        let (out, log) = (self.folder.join("probe.json"), self.folder.join("probe.log"));
        let words = words.map(str::to_owned);
        let mut player = Program::start("probe", &self.seat, &words, &out, &log)?;
        while !player.has_ended()? {
            self.pause(POLL)?;
        }
        let document: serde_json::Value =
            serde_json::from_slice(&fs::read(&out)?).unwrap_or_default();
        fs::remove_file(out)?;
        fs::remove_file(log)?;
        let bytes = document.pointer("/viewer/media_bytes").and_then(serde_json::Value::as_u64);
        Ok(bytes > Some(0))
    }

    fn background(&mut self) -> anyhow::Result<()> {
        let Some(background) = &self.trial.load.background else { return Ok(()) };
        let words = self.command(background.with, &background.arguments)?;
        self.start("background", &words, "background.log", "background.log")
    }

    fn program(&mut self, role: &str) -> Option<&mut Program> {
        self.programs.iter_mut().find(|program| program.role() == role)
    }

    fn end_background(&mut self, kept: &mut record::Trial) -> anyhow::Result<()> {
        let Some(background) = self.program("background") else { return Ok(()) };
        if background.has_ended()? {
            kept.warnings.push("the load in the background ended before the other".to_owned());
            return Ok(());
        }
        background.end()
    }

    /// Program and arguments of a load.
    fn command(&self, tool: Tool, arguments: &[String]) -> anyhow::Result<Vec<String>> {
        let mut words = if tool.is_ours() {
            let own = std::env::current_exe()?.to_string_lossy().into_owned();
            vec![own, tool.name().to_owned()]
        } else {
            vec![tool.name().to_owned()]
        };
        if tool == Tool::Vegeta {
            words.push("attack".to_owned());
        }
        words.extend(fill_all(arguments, &self.known)?);
        Ok(words)
    }

    /// Makes the load and waits for its end. The outer error is the trial's, the inner one the
    /// load's own, after which the server is still measured.
    fn load(&mut self) -> anyhow::Result<anyhow::Result<Loaded>> {
        let load = self.trial.load;
        let mut words = self.command(load.with, &load.arguments)?;
        let limit = match &load.timeout {
            Some(timeout) => units::time(&fill(timeout, &self.known)?)?,
            None => load.with.limit(&words),
        };
        let out = if load.with.is_ours() {
            let folder = self.folder.join("load").to_string_lossy().into_owned();
            words.extend(["--json".to_owned(), "-o".to_owned(), folder]);
            "load.json"
        } else {
            "load.log"
        };
        if load.with == Tool::Vegeta {
            let targets = self.folder.join("load.targets");
            let lines: String = self.known.urls.iter().map(|url| format!("GET {url}\n")).collect();
            fs::write(&targets, lines)?;
            words.push(format!("-targets={}", targets.display()));
            words.push(format!("-output={}", self.folder.join("load.bin").display()));
        }
        self.start("load", &words, out, "load.log")?;
        let deadline = Instant::now() + limit;
        loop {
            let Self { programs, server, bench, .. } = self;
            let program = programs.last_mut().context("the load is gone")?;
            if program.has_ended()? {
                break;
            }
            if bench.stop.is_asked() {
                program.end()?;
                bail!(Interrupted);
            }
            if let Err(error) = server.check() {
                program.end()?;
                return Err(error);
            }
            if Instant::now() > deadline {
                program.kill()?;
                bail!("the load had not ended after {:.0} s", limit.as_secs_f64());
            }
            std::thread::sleep(POLL);
        }
        self.server.check()?;
        Ok(self.loaded(&words))
    }

    /// What the load found.
    fn loaded(&self, words: &[String]) -> anyhow::Result<Loaded> {
        let program = self.programs.last().context("the load is gone")?;
        let tool = self.trial.load.with;
        if !tool.is_ours() {
            ensure!(program.status() == Some(0), "{}: {}", tool.name(), program.last_words());
            let log = self.folder.join("load.log");
            if tool == Tool::Vegeta {
                let binary = self.folder.join("load.bin").to_string_lossy().into_owned();
                let report = ["vegeta", "report", "-type=json", &binary].map(str::to_owned);
                let mut report = Program::start("report", &Seat::default(), &report, &log, &log)?;
                while !report.has_ended()? {
                    self.bench.stop.pause(POLL, &mut || Ok(()))?;
                }
            }
            let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
            return tool.parse(&text, words).map(|metrics| Loaded { metrics, ..Loaded::default() });
        }
        let ended = matches!(program.status(), Some(0 | 1 | 3));
        ensure!(ended, "the load failed: {}", program.last_words());
        let path = self.folder.join("load.json");
        let document: serde_json::Value =
            serde_json::from_slice(&fs::read(&path)?).context("load.json")?;
        let loaded = Loaded::of(tool, &document);
        ensure!(!loaded.interrupted, Interrupted);
        keep_histograms(self.folder)?;
        Ok(loaded)
    }

    fn profile(&mut self, span: &Span) -> anyhow::Result<()> {
        let words = profile::command(&span.processes(), self.folder);
        // On a processor of the load's: what it costs is not the server's.
        self.start("profile", &words, "profile.log", "profile.log")
    }

    fn end_profile(&mut self) -> anyhow::Result<()> {
        if let Some(profiler) = self.program("profile") {
            profiler.end()?;
        }
        profile::report(self.folder)
    }
}

/// Puts the histograms beside trial.json, by the names that figures know them by.
fn keep_histograms(folder: &Path) -> anyhow::Result<()> {
    let Ok(files) = fs::read_dir(folder.join("load")) else { return Ok(()) };
    for file in files {
        let path = file?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if !name.ends_with(".hlog") {
            continue;
        }
        let name = if name == "last_byte.hlog" {
            "latency.hlog"
        } else {
            name.strip_prefix("request-").unwrap_or(name)
        };
        fs::rename(&path, folder.join(name))?;
    }
    Ok(())
}

/// A folder that is taken away when it is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(within: &Path) -> anyhow::Result<Self> {
        let own = std::process::id().to_string();
        for entry in fs::read_dir(within).into_iter().flatten().flatten() {
            // Of a process that was killed, or of this one's trial before.
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_used = name != own && Path::new("/proc").join(&name).exists();
            if name.parse::<u32>().is_ok() && !is_used {
                // Another run may be doing the same.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        let path = within.join(own);
        fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left is taken away by the next trial.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Writes a document so that it is there whole or not at all.
pub(super) fn write_json(path: &Path, document: &impl serde::Serialize) -> anyhow::Result<()> {
    let partial = path.with_extension("json.partial");
    let shown = || path.display().to_string();
    let text = serde_json::to_string_pretty(document)?;
    fs::write(&partial, text + "\n").with_context(shown)?;
    fs::rename(&partial, path).with_context(shown)
}

/// Now, RFC 3339 in UTC, to the second.
pub(super) fn now() -> String {
    let now = jiff::Timestamp::now();
    now.round(jiff::Unit::Second).unwrap_or(now).to_string()
}
