//! A program of a trial other than the server: the load, a publisher, a profiler.

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

/// How long a program may take to end after SIGINT: streamgauge writes its results then.
const PATIENCE: Duration = Duration::from_secs(15);

/// The place where a program runs.
#[derive(Debug, Clone, Default)]
pub(super) struct Seat {
    /// The processors it may use, written as for taskset.
    pub(super) cpus: Option<String>,
    /// Its network namespace.
    pub(super) netns: Option<String>,
}

/// A running program in its own process group. Dropping it kills the group.
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
    /// Starts a program. Its output goes to `out`, its standard error to `log`. Both may be the
    /// same file.
    ///
    /// # Errors
    /// The program does not exist, or the files cannot be written.
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

    /// Role of the program in the trial.
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

    /// Waits for its end. When this returns an error, the program has ended, too.
    ///
    /// # Errors
    /// [`Interrupted`](super::signals::Interrupted), or the program has not ended after `limit`.
    pub(super) fn wait(&mut self, limit: Duration, stop: &Stop) -> anyhow::Result<()> {
        self.wait_while(limit, stop, &mut || Ok(()))
    }

    /// Does the same while `holds` succeeds.
    ///
    /// # Errors
    /// Those of [`Self::wait`], or the error of `holds`.
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

    /// Asks the program to end (SIGINT), and kills it if it does not end in time.
    pub(super) fn end(&mut self) -> anyhow::Result<()> {
        self.group.signal(Signal::INT);
        // A stop that was already asked for does not cut this wait short.
        let ended = Stop::default().wait(PATIENCE, &mut || Ok(self.has_ended()?.then_some(())))?;
        if ended.is_none() { self.kill() } else { Ok(()) }
    }

    /// Kills the program and everything it has started.
    pub(super) fn kill(&mut self) -> anyhow::Result<()> {
        self.group.kill()?;
        self.status = self.child.wait()?.code();
        Ok(())
    }

    /// Its exit status; `None` if a signal ended it.
    pub(super) fn status(&self) -> Option<i32> {
        self.status
    }

    /// The last lines that it printed.
    pub(super) fn last_words(&self) -> String {
        last_lines(&self.log)
    }

    /// Its entry in the record of the trial.
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
    /// Puts commands before a command that move it to this place. Each of them replaces itself by
    /// the next, so that the process keeps its id.
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
