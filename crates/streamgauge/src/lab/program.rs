//! A program that takes part in a trial besides the server: the load, a publisher, a profiler.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::process::Signal;

use super::group::{Group, command};
use super::log::last_lines;
use super::record;
use super::signals::Stop;

/// How long a program may take to end that was asked to: streamgauge writes what it has.
const PATIENCE: Duration = Duration::from_secs(15);

/// Where a program runs.
#[derive(Debug, Clone, Default)]
pub(super) struct Seat {
    /// The processors it may use, as taskset has them.
    pub(super) cpus: Option<String>,
    /// The network namespace it is in.
    pub(super) netns: Option<String>,
}

/// A program that runs, in a process group of its own. Dropping it kills the group.
#[derive(Debug)]
pub(super) struct Program {
    role: &'static str,
    words: Vec<String>,
    child: Child,
    group: Group,
    log: PathBuf,
    status: Option<i32>,
}

impl Program {
    /// Starts a program. What it prints goes to `out`, what it complains about to `log`; to one
    /// file, if they are the same.
    ///
    /// # Errors
    /// It is not there, or the files cannot be written.
    pub(super) fn start(
        role: &'static str,
        seat: &Seat,
        words: &[String],
        out: &Path,
        log: &Path,
    ) -> anyhow::Result<Self> {
        let words = seat.prefixed(words);
        let create = |path: &Path| File::create(path).with_context(|| path.display().to_string());
        let stdout = create(out)?;
        let stderr = if out == log { stdout.try_clone()? } else { create(log)? };
        let group = Group::new()?;
        let child = group.spawn(&mut command(&words, stdout, stderr))?;
        Ok(Self { role, words, child, group, log: log.to_owned(), status: None })
    }

    /// What it is for.
    pub(super) fn role(&self) -> &'static str {
        self.role
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended.
    pub(super) fn has_ended(&mut self) -> anyhow::Result<bool> {
        let Some(status) = self.child.try_wait()? else { return Ok(false) };
        self.status = status.code();
        Ok(true)
    }

    /// Waits for its end. Where it is not to go on, it has ended when this returns.
    ///
    /// # Errors
    /// [`Interrupted`](super::signals::Interrupted), or that it had not ended after `limit`.
    pub(super) fn wait(&mut self, limit: Duration, stop: &Stop) -> anyhow::Result<()> {
        self.wait_while(limit, stop, &mut || Ok(()))
    }

    /// The same, as long as something holds.
    ///
    /// # Errors
    /// Likewise, or what `holds` says.
    pub(super) fn wait_while(
        &mut self,
        limit: Duration,
        stop: &Stop,
        holds: &mut dyn FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let ended = stop.wait(limit, &mut || {
            if self.has_ended()? {
                return Ok(Some(()));
            }
            holds().map(|()| None)
        });
        match ended {
            Ok(Some(())) => Ok(()),
            Ok(None) => {
                self.kill()?;
                bail!("the {} had not ended after {:.0} s", self.role, limit.as_secs_f64());
            }
            Err(error) => {
                self.end()?;
                Err(error)
            }
        }
    }

    /// Asks it to end (SIGINT), and kills it if it does not.
    pub(super) fn end(&mut self) -> anyhow::Result<()> {
        self.group.signal(Signal::INT);
        // Whoever was asked to end waits for this, too.
        let ended = Stop::default().wait(PATIENCE, &mut || Ok(self.has_ended()?.then_some(())))?;
        if ended.is_none() { self.kill() } else { Ok(()) }
    }

    /// Kills it, and what it has started.
    pub(super) fn kill(&mut self) -> anyhow::Result<()> {
        self.group.kill()?;
        self.status = self.child.wait()?.code();
        Ok(())
    }

    /// Its exit status; none where a signal ended it.
    pub(super) fn status(&self) -> Option<i32> {
        self.status
    }

    /// What it printed last.
    pub(super) fn last_words(&self) -> String {
        last_lines(&self.log)
    }

    /// As it is kept.
    pub(super) fn record(&self) -> record::Command {
        record::Command {
            role: self.role.to_owned(),
            arguments: self.words.clone(),
            status: self.status,
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It has ended already, or ends now.
        let _ = self.group.kill();
        let _ = self.child.wait();
    }
}

impl Seat {
    /// A command with what puts it there before it. Each of them becomes the next, so that the
    /// process stays the same.
    pub(super) fn prefixed(&self, words: &[String]) -> Vec<String> {
        let mut before: Vec<&str> = Vec::new();
        if let Some(name) = &self.netns {
            before.extend(["ip", "netns", "exec", name]);
        }
        if let Some(list) = &self.cpus {
            before.extend(["taskset", "--cpu-list", list]);
        }
        before.into_iter().map(str::to_owned).chain(words.iter().cloned()).collect()
    }
}
