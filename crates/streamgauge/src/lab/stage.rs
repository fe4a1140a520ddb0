//! The part of a trial while its server runs: publisher, meter, load.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use super::arguments::{Values, fill, fill_all};
use super::bench::Bench;
use super::known::{Known, around, job};
use super::link::Link;
use super::metrics::{Loaded, add_pushed};
use super::observe::{Recorded, Span};
use super::plan::Trial;
use super::process::Server;
use super::program::{Program, Seat};
use super::record;
use super::scenario::{Publisher, Tool};
use super::signals::Interrupted;
use super::{origin, profile, study_b};
use crate::meter;

/// How long a live stream may take until it can be played.
const UNTIL_PLAYABLE: Duration = Duration::from_secs(60);
/// How long one check of it may take. The player gets 5 s; a machine that is busy with something else takes longer.
const LONGEST_LOOK: Duration = Duration::from_secs(60);
/// How long vegeta may take for its report.
const LONGEST_REPORT: Duration = Duration::from_secs(120);

/// A trial with a running server.
pub(super) struct Stage<'a> {
    pub(super) bench: &'a Bench<'a>,
    pub(super) trial: &'a Trial<'a>,
    pub(super) folder: &'a Path,
    pub(super) seat: Seat,
    pub(super) known: Known<'a>,
    pub(super) server: Server,
    pub(super) link: Option<&'a Link>,
    /// The programs that were started besides the server, in order.
    pub(super) programs: Vec<Program>,
}

impl Stage<'_> {
    /// Measures the server under its load.
    pub(super) fn run(&mut self, kept: &mut record::Trial) -> anyhow::Result<()> {
        self.publish()?;
        let pid = i32::try_from(self.server.pid())?;
        let options = meter::Options {
            pids: vec![pid],
            with_children: true,
            network_of: self.seat.netns.is_some().then_some(pid),
        };
        let recorded = Recorded::start(&options, &self.folder.join("meter.csv"))?;
        self.pause(around(self.trial.load.settle, self.bench.scale))?;
        let cpus = [self.bench.server_cpus, self.bench.load_cpus];
        let publisher = self.programs.first().map(Program::pid);
        let span = Span::begin(&options, &recorded, cpus, publisher)?;
        let origin = origin::Span::begin(&self.server)?;
        if self.trial.is_profile() {
            self.profile(&span)?;
        }
        self.background()?;
        let loaded = self.load()?;
        let background = self.program("background").map(|program| program.pid());
        let mut observed = span.end(&recorded, background)?;
        observed.through = origin.end(&self.server)?;
        self.end_background(kept)?;
        self.pause(around(self.trial.load.rest, self.bench.scale))?;
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

    /// Starts the publisher, if there is one, and waits until its stream can be played.
    fn publish(&mut self) -> anyhow::Result<()> {
        let (Some(publish), Some(stream)) = (&self.trial.load.publish, &self.trial.load.stream)
        else {
            return Ok(());
        };
        let name = fill(stream, &self.known)?;
        let url = self.server.publish_url(publish.with.ingest(), &name)?;
        let file = fill(&publish.file, &self.known)?;
        let file = self.known.value(&format!("media.{file}")).context("no such media")?;
        let words = match publish.with {
            Publisher::Headwater | Publisher::Whip => {
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
            publishes(publisher)?;
            ensure!(
                Instant::now() < deadline,
                "the stream cannot be played after {} s",
                UNTIL_PLAYABLE.as_secs()
            );
            self.pause(Duration::from_millis(100))?;
        }
        Ok(())
    }

    /// Whether a player gets media at this moment.
    fn is_playable(&mut self) -> anyhow::Result<bool> {
        let own = std::env::current_exe()?.to_string_lossy().into_owned();
        let url = self.known.value("url").unwrap_or_default();
        let words = [&own, "watch", &url, "--duration", "3s", "--timeout", "2s", "--json"];
        let (out, log) = (self.folder.join("probe.json"), self.folder.join("probe.log"));
        let words = words.map(str::to_owned);
        let mut player = Program::start("probe", &self.seat, &words, &out, &log)?;
        let Self { bench, server, .. } = self;
        player.wait_while(LONGEST_LOOK, bench.stop, &mut || server.check())?;
        let document: serde_json::Value =
            serde_json::from_slice(&fs::read(&out)?).unwrap_or_default();
        fs::remove_file(out)?;
        fs::remove_file(log)?;
        let bytes = document.pointer("/viewer/media_bytes").and_then(serde_json::Value::as_u64);
        Ok(bytes > Some(0))
    }

    fn background(&mut self) -> anyhow::Result<()> {
        let Some(background) = &self.trial.load.background else { return Ok(()) };
        let mut known = self.known.clone();
        if !background.path.is_empty() {
            let job = job(self.trial)?;
            let wanted = fill_all(&background.path, &known)?;
            let urls = wanted.iter().map(|wanted| self.server.url(job, wanted));
            known.urls = urls.collect::<anyhow::Result<_>>()?;
        }
        let words = Self::command(background.with, &background.arguments, &known)?;
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
    fn command(tool: Tool, arguments: &[String], known: &Known<'_>) -> anyhow::Result<Vec<String>> {
        let mut words = if tool.is_ours() {
            let own = std::env::current_exe()?.to_string_lossy().into_owned();
            vec![own, tool.name().to_owned()]
        } else {
            vec![tool.name().to_owned()]
        };
        if tool == Tool::Vegeta {
            words.push("attack".to_owned());
        }
        words.extend(fill_all(arguments, known)?);
        Ok(words)
    }

    /// Makes the load and waits for its end. The outer error fails the trial. After an inner error,
    /// which is the load's own, the server is still measured.
    fn load(&mut self) -> anyhow::Result<anyhow::Result<Loaded>> {
        let load = self.trial.load;
        let mut words = Self::command(load.with, &load.arguments, &self.known)?;
        let limit = load.with.limit(&words);
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
        let length = load.with.expected(&words);
        let began = Instant::now();
        let Self { programs, server, bench, link, .. } = self;
        let mut changes = load.link_changes.iter().peekable();
        let (program, others) = programs.split_last_mut().context("the load is gone")?;
        program.wait_while(limit, bench.stop, &mut || {
            while let Some(change) =
                changes.next_if(|change| began.elapsed() >= length.mul_f64(change.at))
            {
                link.context("link")?.change(&change.rate)?;
            }
            // Where the server ends, its publisher does too.
            server.check()?;
            others.iter_mut().try_for_each(publishes)
        })?;
        if let Some(change) = changes.next() {
            bail!("the load ended before its link changed to {}", change.rate);
        }
        self.server.check()?;
        Ok(self.loaded(&words))
    }

    /// The results of the load.
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
                report.wait(LONGEST_REPORT, self.bench.stop)?;
                ensure!(report.status() == Some(0), "vegeta report: {}", report.last_words());
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
        // perf runs on a processor of the load, so its cost is not the server's.
        self.start("profile", &words, "profile.log", "profile.log")
    }

    fn end_profile(&mut self) -> anyhow::Result<()> {
        if let Some(profiler) = self.program("profile") {
            profiler.end()?;
        }
        profile::report(self.folder, self.bench.stop)
    }
}

/// Fails if this is the publisher, and it has ended: it repeats its file until somebody ends it. Without it the server
/// has nothing to do, and its viewers nothing to play.
fn publishes(program: &mut Program) -> anyhow::Result<()> {
    let is_over = program.role() == "publisher" && program.has_ended()?;
    ensure!(!is_over, "the publisher ended: {}", program.last_words());
    Ok(())
}

/// Moves the histograms beside trial.json, to the names that figures use.
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

#[cfg(test)]
mod tests {
    use super::super::signals::Stop;
    use super::*;

    #[test]
    fn a_publisher_that_has_ended_is_no_publisher() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let words = ["sh", "-c", "echo the server closed >&2"].map(str::to_owned);
        for role in ["publisher", "background"] {
            let mut program = Program::start(role, &Seat::default(), &words, &log, &log).unwrap();
            program.wait(Duration::from_secs(600), &Stop::default()).unwrap();
            let told = publishes(&mut program).err().map(|error| error.to_string());
            let wanted = "the publisher ended: the server closed".to_owned();
            assert_eq!(told, (role == "publisher").then_some(wanted));
        }
    }
}
