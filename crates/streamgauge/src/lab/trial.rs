//! One trial: starts a server, loads and measures it, and ends it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context;

use super::bench::Bench;
use super::known::{Known, job, wanted};
use super::link::{self, Link};
use super::plan::Trial;
use super::process::{Ended, Placement, Server};
use super::program::{Program, Seat};
use super::record;
use super::signals::Interrupted;
use super::stage::Stage;
use crate::files::replace_json;

impl Bench<'_> {
    /// Runs a trial and writes its results to its folder. A failure of the server is one of the
    /// results.
    ///
    /// # Errors
    /// The folder of the trial cannot be written to.
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
            let why =
                if interrupted { record::INTERRUPTED.to_owned() } else { format!("{error:#}") };
            kept.failed = Some(why);
        }
        if trial.is_profile() {
            // The profiler takes time that the server has in other trials.
            kept.metrics.clear();
        }
        let words = kept.commands.iter_mut().flat_map(|command| &mut command.arguments);
        for text in words.chain(&mut kept.warnings).chain(&mut kept.failed) {
            *text = self.names.shorten(text);
        }
        kept.elapsed = began.elapsed().as_secs_f64();
        replace_json(&folder.join("trial.json"), &kept)?;
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
        // Dropped after everything that uses it.
        let link = trial.load.link.as_deref().map(Link::new).transpose().context("link")?;
        let place = Placement {
            host: if link.is_some() { link::SERVER } else { "127.0.0.1" }.to_owned(),
            root,
            work: scratch.0.join("server"),
            cpus: self.server_cpus.map(str::to_owned),
            netns: link.as_ref().map(|link| link.server().to_owned()),
            wanted: wanted.first().cloned(),
            folders: self.folders.clone(),
        };
        let server = Server::start_unless(self.stop, peer, &place, &folder.join("server.log"))?;
        for (role, server) in [("origin", server.origin()), ("server", Some(&server))] {
            kept.commands.extend(server.map(|server| record::Command {
                role: role.to_owned(),
                arguments: server.command().to_vec(),
                status: None,
            }));
        }
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
            link: link.as_ref(),
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
        if stopped? == Ended::Killed {
            kept.warnings.push("the server had to be killed: it did not end when asked to".into());
        }
        Ok(())
    }
}

/// A folder that is removed when it is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(within: &Path) -> anyhow::Result<Self> {
        let own = std::process::id().to_string();
        for entry in fs::read_dir(within).into_iter().flatten().flatten() {
            // A folder of a process that was killed, or of this process's previous trial.
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_used = name != own && Path::new("/proc").join(&name).exists();
            if name.parse::<u32>().is_ok() && !is_used {
                // Another run may be removing it as well.
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
        // The next trial removes what is left.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The current time, RFC 3339 in UTC, to the second.
pub(super) fn now() -> String {
    let now = jiff::Timestamp::now();
    now.round(jiff::Unit::Second).unwrap_or(now).to_string()
}
