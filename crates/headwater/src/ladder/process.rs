//! One ffmpeg process: start, input, output and end.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, getpriority_process, kill_process_group, setpriority_process};
use tokio::net::unix::pipe;
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::timeout;

use super::command::{Made, Rate, arguments};
use super::confine::Limits;
use super::log::{Log, Severity};
use crate::config::Ladder;

/// How long a process may take for its remaining frames when its input has ended.
pub(super) const LAST: Duration = Duration::from_secs(5);

/// Held while a process starts. During this time any new process would inherit the pipes of this
/// one.
static STARTING: Mutex<()> = Mutex::new(());

/// Number of processes started so far.
static TURNS: AtomicUsize = AtomicUsize::new(0);

/// A running ffmpeg.
pub(super) struct Process {
    pub(super) child: Child,
    pub(super) group: Group,
    /// The source's frames are written here.
    pub(super) input: ChildStdin,
    /// The output of each rendition.
    pub(super) outputs: Vec<pipe::Receiver>,
}

impl Process {
    /// Starts ffmpeg. When the origin dies, ffmpeg's input ends, and so ffmpeg ends too.
    pub(super) fn start(
        ladder: &Ladder,
        made: &[Made],
        rate: Rate,
        log: &Arc<Log>,
    ) -> io::Result<Self> {
        let (mut outputs, mut inherited) = (Vec::new(), Vec::new());
        for made in made {
            let (output, into) = io::pipe()?;
            outputs.push(pipe::Receiver::from_owned_fd(output.into())?);
            inherited.push((made.clone(), OwnedFd::from(into)));
        }
        let numbers: Vec<_> =
            inherited.iter().map(|(made, into)| (made.clone(), into.as_raw_fd())).collect();
        let program = ladder.program().ok_or(io::ErrorKind::NotFound)?;
        let turn = TURNS.fetch_add(1, Ordering::Relaxed);
        let mut command = Command::from(Limits::new(ladder, turn).command(&program));
        command.args(arguments(ladder, &numbers, rate));
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        // ffmpeg has a process group of its own: Ctrl-C at a terminal is for the origin, which
        // drains.
        command.kill_on_drop(true).process_group(0);

        let starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, into) in &inherited {
            fcntl_setfd(into, FdFlags::empty())?;
        }
        let started = command.spawn();
        drop(inherited);
        drop(starting);

        let mut child = started?;
        let group = Group::of(&child);
        if let Err(error) = give_way(group.0, ladder.nice) {
            log.say(Severity::Warning, &format!("ladder.nice = {}: {error}", ladder.nice));
        }
        let piped = |what| io::Error::other(format!("no pipe to its standard {what}"));
        let input = child.stdin.take().ok_or_else(|| piped("input"))?;
        let stderr = child.stderr.take().ok_or_else(|| piped("error"))?;
        let log = Arc::clone(log);
        tokio::spawn(async move { log.follow(stderr).await });
        Ok(Self { child, group, input, outputs })
    }
}

/// Raises the niceness of a new process by `nice` above that of this process.
fn give_way(pid: Option<Pid>, nice: i32) -> io::Result<()> {
    let Some(pid) = pid else { return Ok(()) };
    let own = getpriority_process(None)?;
    setpriority_process(Some(pid), (own + nice).min(19))?;
    Ok(())
}

/// The process group of ffmpeg. Dropping this kills the group. The program may be a script around
/// ffmpeg, so there may be several processes.
pub(super) struct Group(Option<Pid>);

impl Group {
    fn of(child: &Child) -> Self {
        Self(child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)))
    }

    /// Kills the group. Call this no later than when the first process has been waited for. When
    /// all processes have gone, the group's number may belong to others, so it is not used again.
    pub(super) fn kill(&mut self) {
        if let Some(pid) = self.0.take() {
            // The processes may just have ended.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Waits until the process has ended and its output is read. Kills the process if this takes too
/// long, and in any case the processes that it leaves behind.
pub(super) async fn end(
    child: &mut Child,
    mut group: Group,
    outputs: impl Future<Output = ()>,
) -> io::Result<ExitStatus> {
    let mut outputs = pin!(outputs);
    let read = timeout(LAST, async {
        outputs.as_mut().await;
        child.wait().await
    });
    if let Ok(status) = read.await {
        return status;
    }
    group.kill();
    let status = child.wait().await;
    // The killed group held the writing ends of the pipes, so reading ends. Processes that left the
    // group are not waited for.
    let _ = timeout(LAST, outputs).await;
    status
}
