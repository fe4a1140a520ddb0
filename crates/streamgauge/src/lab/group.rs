//! A process group that ends with this program, however this program ends.
//!
//! A server may have workers. This program may be ended by SIGKILL, which it cannot handle. So each
//! group has a guard: a shell that waits for the end of a pipe which only this program holds open,
//! and then kills its own group. (PR_SET_PDEATHSIG would reach the server but not its workers, and
//! it is sent as soon as the thread that started the server ends.) The guard leads the group, and
//! this program waits for the guard last. So no other group can get its id until everything in the
//! group has ended.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use procfs::process::all_processes;
use rustix::process::{Pid, Signal, kill_process_group};

/// The guard survives the signals that end its group. It writes a line before anything else starts
/// in the group.
const GUARD: &str = "trap '' HUP INT QUIT TERM USR1 USR2 WINCH; echo; read -r end; kill -KILL 0";

/// Pause between two checks whether a group has ended.
const POLL: Duration = Duration::from_millis(10);

/// How long killed processes may take to end: the kernel may still be writing for them.
const KILLED: Duration = Duration::from_secs(10);

/// Makes a command from a program and its arguments. It has no standard input.
pub(super) fn command(
    words: &[String],
    out: impl Into<Stdio>,
    complaints: impl Into<Stdio>,
) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdin(Stdio::null()).stdout(out).stderr(complaints);
    command
}

/// A process group. Dropping it kills everything in it.
#[derive(Debug)]
pub(super) struct Group {
    guard: Child,
    id: Pid,
}

impl Group {
    /// Makes an empty group.
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

    /// Starts a program in the group.
    ///
    /// # Errors
    /// The program does not exist, or cannot be started.
    pub(super) fn spawn(&self, command: &mut Command) -> anyhow::Result<Child> {
        let spawned = command.process_group(self.id.as_raw_nonzero().get()).spawn();
        spawned.with_context(|| command.get_program().to_string_lossy().into_owned())
    }

    /// Sends a signal to the whole group.
    pub(super) fn signal(&self, signal: Signal) {
        // It is fine if all have ended already.
        let _ = kill_process_group(self.id, signal);
    }

    /// Waits until everything that was started in the group has ended, at most for `limit`; returns
    /// whether it has.
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

    /// Whether anything runs in the group besides the guard. A zombie does not count: if its parent
    /// is gone and process 1 waits for nobody, it stays forever.
    fn is_inhabited(&self) -> anyhow::Result<bool> {
        let group = self.id.as_raw_nonzero().get();
        let running = |stat: &procfs::process::Stat| {
            stat.pgrp == group && stat.pid != group && !matches!(stat.state, 'Z' | 'X')
        };
        let all = all_processes().context("/proc")?;
        Ok(all.filter_map(|process| process.ok()?.stat().ok()).any(|stat| running(&stat)))
    }

    /// Kills everything in the group, and waits until all but the guard have ended.
    ///
    /// # Errors
    /// Some have not ended after 10 s.
    pub(super) fn kill(&mut self) -> anyhow::Result<()> {
        self.signal(Signal::KILL);
        if self.ended_within(KILLED)? { Ok(()) } else { bail!("cannot be killed") }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The guard is waited for last: until then nobody else gets the id of the group.
        let _ = self.kill();
        let _ = self.guard.wait();
    }
}
