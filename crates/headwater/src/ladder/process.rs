//! One ffmpeg process: start, input, output and end.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, getpriority_process, kill_process_group, setpriority_process};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::timeout;

use super::confine::Limits;
use super::log::{Log, Severity};
use crate::Origin;
use crate::config::Ladder;

/// An ffmpeg that takes no frame for this time hangs.
const HANGS: Duration = Duration::from_secs(20);

/// How long to wait before ffmpeg is started again after a failure: at first, and at most. The wait
/// doubles with each failure.
pub(super) const BACK_OFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// An ffmpeg that ran this long had no lasting problem.
const RAN_WELL: Duration = Duration::from_secs(30);

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
    /// The frames to transcode are written here.
    pub(super) input: ChildStdin,
    /// What ffmpeg writes, in the order of its arguments.
    pub(super) outputs: Vec<pipe::Receiver>,
}

impl Process {
    /// Starts ffmpeg with so many outputs. `arguments` gets their descriptors. When the origin dies,
    /// ffmpeg's input ends, and so ffmpeg ends too.
    pub(super) fn start(
        ladder: &Ladder,
        outputs: usize,
        arguments: impl FnOnce(&[RawFd]) -> Vec<String>,
        log: &Arc<Log>,
    ) -> Result<Self, End> {
        Self::spawn(ladder, outputs, arguments, log).map_err(|error| {
            let path = ladder.ffmpeg.display();
            End::Failed(format!("ladder.ffmpeg = {path} cannot be started: {error}"))
        })
    }

    fn spawn(
        ladder: &Ladder,
        outputs: usize,
        arguments: impl FnOnce(&[RawFd]) -> Vec<String>,
        log: &Arc<Log>,
    ) -> io::Result<Self> {
        let pipes: io::Result<Vec<_>> = (0..outputs).map(|_| io::pipe()).collect();
        let (outputs, inherited): (Vec<_>, Vec<_>) = pipes?.into_iter().unzip();
        let outputs: io::Result<_> = outputs
            .into_iter()
            .map(|output| pipe::Receiver::from_owned_fd(output.into()))
            .collect();
        let outputs = outputs?;
        let numbers: Vec<_> = inherited.iter().map(AsRawFd::as_raw_fd).collect();
        let program = ladder.program().ok_or(io::ErrorKind::NotFound)?;
        let turn = TURNS.fetch_add(1, Ordering::Relaxed);
        let mut command = Command::from(Limits::new(ladder, turn).command(&program));
        command.args(arguments(&numbers));
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        // ffmpeg has a process group of its own: Ctrl-C at a terminal is for the origin, which
        // drains.
        command.kill_on_drop(true).process_group(0);

        let starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        for into in &inherited {
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

/// How a process ended.
pub(super) enum End {
    /// The stream is over.
    Over,
    /// Others publish renditions with all these names, or the stream takes none of ours.
    NothingLeft,
    /// The source's configuration changed.
    Changed,
    /// The process failed.
    Failed(String),
}

/// Failures in a row.
#[derive(Debug, Default)]
pub(super) struct Failures(pub(super) u32);

impl Failures {
    /// Counts the failure of a process that ran for `ran`. Returns how long to wait before the next
    /// one is started.
    pub(super) fn add(&mut self, ran: Duration) -> Duration {
        if ran >= RAN_WELL {
            self.0 = 0;
        }
        let (least, most) = BACK_OFF;
        let wait = least.saturating_mul(1 << self.0.min(16)).min(most);
        self.0 += 1;
        wait
    }
}

/// Attends a process until it has ended. `feed` writes its input, and `read` returns when its
/// outputs are read.
pub(super) async fn attend(
    origin: &Arc<Origin>,
    (mut child, mut group): (Child, Group),
    feed: impl Future<Output = End>,
    read: impl Future<Output = ()>,
) -> End {
    let _running = Running::one_more(origin);
    let mut end = tokio::select! {
        end = feed => end,
        _ = child.wait() => End::Failed("there was more to make".to_owned()),
    };
    if let End::Failed(_) = &end {
        // ffmpeg stopped taking frames and may still log the reason.
        let _ = timeout(LAST / 5, child.wait()).await;
        group.kill();
    }
    let status = ended(&mut child, group, read).await;
    if let End::Failed(why) = &mut end {
        *why = match status {
            Ok(status) => format!("ffmpeg ended, {status}: {why}"),
            Err(error) => format!("ffmpeg: {error}: {why}"),
        };
    }
    end
}

/// Writes to ffmpeg's input. Fails with the reason if ffmpeg does not take it all within [`HANGS`].
pub(super) async fn give(
    input: &mut (impl AsyncWrite + Unpin),
    bytes: &[u8],
) -> Result<(), String> {
    match timeout(HANGS, input.write_all(bytes)).await {
        Ok(written) => written.map_err(|error| format!("its input: {error}")),
        Err(_) => Err(format!("no frame was taken for {HANGS:?}")),
    }
}

/// Counts a process while it runs.
struct Running(Arc<Origin>);

impl Running {
    fn one_more(origin: &Arc<Origin>) -> Self {
        origin.ladders.running.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(origin))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.ladders.running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Waits until the process has ended and its output is read. Kills the process if this takes too
/// long, and in any case the processes that it leaves behind.
async fn ended(
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

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::time::{Instant, sleep};

    use super::*;

    #[test]
    fn each_failure_in_a_row_doubles_the_wait() {
        let mut failures = Failures::default();
        let mut after = |seconds| failures.add(Duration::from_secs(seconds)).as_secs();
        assert_eq!([0; 8].map(&mut after), [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!([30, 29].map(&mut after), [1, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_ffmpeg_that_takes_no_frame_for_20_s_hangs() {
        let (mut input, mut ffmpeg) = tokio::io::duplex(8);
        let slow = tokio::spawn(async move {
            sleep(HANGS - Duration::from_millis(1)).await;
            let mut frame = [0; 12];
            ffmpeg.read_exact(&mut frame).await.unwrap();
            ffmpeg
        });
        assert_eq!(give(&mut input, &[1; 12]).await, Ok(()));
        let ffmpeg = slow.await.unwrap();
        // The pipe takes this frame, but not the next.
        assert_eq!(give(&mut input, &[2; 8]).await, Ok(()));
        let began = Instant::now();
        assert_eq!(give(&mut input, &[3; 8]).await.unwrap_err(), "no frame was taken for 20s");
        assert_eq!(began.elapsed(), HANGS);
        drop(ffmpeg);
        let gone = give(&mut input, &[4; 8]).await.unwrap_err();
        assert!(gone.starts_with("its input: "), "{gone}");
    }
}
