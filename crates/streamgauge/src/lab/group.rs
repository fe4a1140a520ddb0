//! A process group that ends with this program, however this program ends.
//!
//! A server may have workers, and this program may be ended by SIGKILL, which nothing can be done
//! about in it. So each group has a guard: a shell that waits for the end of a pipe which only this
//! program holds, and then kills its own group. (PR_SET_PDEATHSIG would reach the server but not its
//! workers, and comes already when the thread ends that started it.) The guard leads the group and is
//! waited for last, so that no other group can have its id until everything in it has ended.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use procfs::process::all_processes;
use rustix::process::{Pid, Signal, kill_process_group};

/// It survives what its group is asked to end with, and says so before anything is started in it.
const GUARD: &str = "trap '' HUP INT QUIT TERM USR1 USR2 WINCH; echo; read -r end; kill -KILL 0";

/// Between two looks at whether a group has ended.
const POLL: Duration = Duration::from_millis(10);

/// How long processes may take to end that were killed: the kernel may be writing for them.
const KILLED: Duration = Duration::from_secs(10);

/// A program, its arguments behind it, that reads nothing.
pub(super) fn command(
    words: &[String],
    out: impl Into<Stdio>,
    complaints: impl Into<Stdio>,
) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdin(Stdio::null()).stdout(out).stderr(complaints);
    command
}

/// A process group. Dropping it kills whatever is in it.
#[derive(Debug)]
pub(super) struct Group {
    guard: Child,
    id: Pid,
}

impl Group {
    /// An empty one.
    ///
    /// # Errors
    /// There is no `sh`.
    pub(super) fn new() -> anyhow::Result<Self> {
        let mut guard = Command::new("sh")
            .args(["-c", GUARD])
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("sh")?;
        let id = i32::try_from(guard.id()).ok().and_then(Pid::from_raw);
        let id = id.context("a process without an id")?;
        let said = guard.stdout.take().map(|mut out| out.read_exact(&mut [0]));
        let group = Self { guard, id };
        match said {
            Some(Ok(())) => Ok(group),
            _ => bail!("sh: the guard of a process group ended"),
        }
    }

    /// Starts a program in it.
    ///
    /// # Errors
    /// The program is not there, or cannot be started.
    pub(super) fn spawn(&self, command: &mut Command) -> anyhow::Result<Child> {
        let spawned = command.process_group(self.id.as_raw_nonzero().get()).spawn();
        spawned.with_context(|| command.get_program().to_string_lossy().into_owned())
    }

    /// Sends all of it a signal.
    pub(super) fn signal(&self, signal: Signal) {
        // That all have ended already is fine.
        let _ = kill_process_group(self.id, signal);
    }

    /// Whether everything that was started in it ended within `limit`.
    pub(super) fn ended_within(&self, limit: Duration) -> anyhow::Result<bool> {
        let deadline = Instant::now() + limit;
        while self.is_inhabited()? {
            if Instant::now() >= deadline {
                return Ok(false);
            }
            sleep(POLL);
        }
        Ok(true)
    }

    /// Whether something runs in it besides the guard. What has ended and was not waited for does
    /// not: whose parent has gone may wait for ever where process 1 waits for nobody.
    fn is_inhabited(&self) -> anyhow::Result<bool> {
        let group = self.id.as_raw_nonzero().get();
        let running = |stat: &procfs::process::Stat| {
            stat.pgrp == group && stat.pid != group && !matches!(stat.state, 'Z' | 'X')
        };
        let all = all_processes().context("/proc")?;
        Ok(all.filter_map(|process| process.ok()?.stat().ok()).any(|stat| running(&stat)))
    }

    /// Kills all of it but the guard, and waits until they have ended.
    ///
    /// # Errors
    /// They have not ended after 10 s.
    pub(super) fn kill(&mut self) -> anyhow::Result<()> {
        self.signal(Signal::KILL);
        if self.ended_within(KILLED)? { Ok(()) } else { bail!("cannot be killed") }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Not waited for before they have ended: the group's id is the guard's until then.
        let _ = self.kill();
        let _ = self.guard.wait();
    }
}
