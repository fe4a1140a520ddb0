use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Time between two checks whether a process has ended.
const POLL: Duration = Duration::from_millis(2);

/// How much of each output of a program is kept. A program that writes without end must not take
/// all memory of the machine.
const KEPT: usize = 64 << 20;

/// A process that a test starts, and that ends with the test.
///
/// Its standard input is empty, and its output is captured. Dropping it kills the process by its
/// own id, and no other process.
#[derive(Debug)]
pub struct Program {
    name: String,
    child: Child,
    stdout: Captured,
    stderr: Captured,
}

/// The result of a program that has ended.
#[derive(Debug)]
pub struct Finished {
    /// Exit status.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error, as text.
    pub stderr: String,
}

impl Program {
    /// Starts the program.
    ///
    /// # Panics
    /// The program cannot be started, most often because it is not installed.
    #[track_caller]
    pub fn spawn(command: &mut Command) -> Self {
        let name = command.get_program().to_string_lossy().into_owned();
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{name} cannot be started: {error}"));
        let stdout = Captured::read(child.stdout.take().expect("piped above"));
        let stderr = Captured::read(child.stderr.take().expect("piped above"));
        Self { name, child, stdout, stderr }
    }

    /// Process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it is still running.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Its standard output so far.
    pub fn stdout(&self) -> Vec<u8> {
        self.stdout.so_far()
    }

    /// Its standard error so far.
    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.stderr.so_far()).into_owned()
    }

    /// Its standard error up to the end, for a program that has ended: its last output may still be
    /// in the pipe. After `limit`, what there is: a process that it left running may hold the pipe.
    pub fn last_stderr(&self, limit: Duration) -> String {
        String::from_utf8_lossy(&self.stderr.to_end(limit)).into_owned()
    }

    /// Waits for the first line of standard output that `wanted` accepts.
    ///
    /// # Panics
    /// The program ends, or `limit` passes, without such a line.
    #[track_caller]
    pub fn stdout_line(&self, limit: Duration, wanted: impl Fn(&str) -> bool) -> String {
        self.line(&self.stdout, "standard output", limit, wanted)
    }

    /// Waits for the first line of standard error that `wanted` accepts.
    ///
    /// # Panics
    /// The program ends, or `limit` passes, without such a line.
    #[track_caller]
    pub fn stderr_line(&self, limit: Duration, wanted: impl Fn(&str) -> bool) -> String {
        self.line(&self.stderr, "standard error", limit, wanted)
    }

    #[track_caller]
    fn line(
        &self,
        from: &Captured,
        called: &str,
        limit: Duration,
        wanted: impl Fn(&str) -> bool,
    ) -> String {
        from.wait(limit, |bytes| {
            let whole = bytes.iter().rposition(|b| *b == b'\n')?;
            String::from_utf8_lossy(&bytes[..whole]).lines().find(|l| wanted(l)).map(str::to_owned)
        })
        .unwrap_or_else(|| {
            panic!("{}: no such line on {called} in {limit:?}\n{}", self.name, self.stderr())
        })
    }

    /// Asks the program to end: SIGTERM.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Asks the program to read its files again: SIGHUP.
    pub fn hang_up(&self) {
        self.signal(Signal::HUP);
    }

    /// Stops the process with SIGSTOP: its sockets stay open, but it does not read them. So it is
    /// the slowest possible peer, in any protocol.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
        // A process that waits for a processor stops only when it gets one.
        let state = format!("/proc/{}/stat", self.child.id());
        let has_stopped = || {
            let state = std::fs::read_to_string(&state).unwrap_or_default();
            state.rsplit_once(") ").is_none_or(|(_, fields)| !fields.starts_with(['R', 'S', 'D']))
        };
        while !has_stopped() {
            thread::sleep(POLL);
        }
    }

    /// Continues the process after [`Program::pause`].
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        // The process was not waited for, so the id is still its own. It may have ended already.
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let _ = pid.map(|pid| kill_process(pid, signal));
    }

    /// The exit status if it ends within `limit`; otherwise it keeps running.
    pub fn ended_within(&mut self, limit: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < deadline => thread::sleep(POLL),
                Ok(None) => return None,
                Err(error) => panic!("{}: cannot be waited for: {error}", self.name),
            }
        }
    }

    /// Waits until it ends by itself.
    ///
    /// # Panics
    /// `limit` passes first. The process is then killed, and the message has its output.
    #[track_caller]
    pub fn wait(mut self, limit: Duration) -> Finished {
        let deadline = Instant::now() + limit;
        let Some(status) = self.ended_within(limit) else {
            panic!("{} has not ended after {limit:?}\n{}", self.name, self.stderr());
        };
        // The last output may still be in the pipe.
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_secs(1));
        let stdout = self.stdout.to_end(left);
        let stderr = self.last_stderr(left);
        Finished { status, stdout, stderr }
    }

    /// Calls [`Program::terminate`], then [`Program::wait`].
    ///
    /// # Panics
    /// It has not ended after `limit`.
    #[track_caller]
    pub fn stop(self, limit: Duration) -> Finished {
        self.terminate();
        self.wait(limit)
    }

    /// Runs a program to its end and returns its standard output.
    ///
    /// # Panics
    /// The program fails, or `limit` passes. The message has its output.
    #[track_caller]
    pub fn output(command: &mut Command, limit: Duration) -> Vec<u8> {
        let program = Self::spawn(command);
        let finished = program.wait(limit);
        assert!(finished.status.success(), "{command:?}: {}\n{}", finished.status, finished.stderr);
        finished.stdout
    }
}

impl Drop for Program {
    #[expect(clippy::print_stderr, reason = "the report of the test that is failing")]
    fn drop(&mut self) {
        // Errors do not matter: the process has ended already, or ends now.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("--- {} said ---\n{}---", self.name, self.stderr());
        }
    }
}

/// One output of a program. It is read continuously, so that the program never blocks on it.
#[derive(Debug, Clone)]
struct Captured(Arc<(Mutex<Buffer>, Condvar)>);

#[derive(Debug, Default)]
struct Buffer {
    bytes: Vec<u8>,
    ended: bool,
}

impl Captured {
    fn read(mut pipe: impl Read + Send + 'static) -> Self {
        let captured = Self(Arc::default());
        let to = captured.clone();
        // The thread ends with the pipe, so with the program and any processes it has left running.
        thread::spawn(move || {
            let mut chunk = [0; 16 << 10];
            loop {
                let read = pipe.read(&mut chunk).unwrap_or(0);
                let mut buffer = to.lock();
                let room = KEPT.saturating_sub(buffer.bytes.len());
                buffer.bytes.extend_from_slice(&chunk[..read.min(room)]);
                buffer.ended = read == 0;
                to.0.1.notify_all();
                if read == 0 {
                    return;
                }
            }
        });
        captured
    }

    fn lock(&self) -> MutexGuard<'_, Buffer> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn so_far(&self) -> Vec<u8> {
        self.lock().bytes.clone()
    }

    /// Waits until `find` finds something in the output. `None` if the output ends or `limit`
    /// passes first.
    fn wait<T>(&self, limit: Duration, find: impl Fn(&[u8]) -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + limit;
        let mut buffer = self.lock();
        loop {
            let found = find(&buffer.bytes);
            let left = deadline.saturating_duration_since(Instant::now());
            if found.is_some() || buffer.ended || left.is_zero() {
                return found;
            }
            buffer = self.0.1.wait_timeout(buffer, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn to_end(&self, limit: Duration) -> Vec<u8> {
        self.wait(limit, |_| None::<()>);
        self.so_far()
    }
}

/// Writes a program that can be started, such as a script, to this path.
///
/// Another process writes it. One that is forked from this process meanwhile would have the file open, and Linux does
/// not start a program that is open for writing (execve(2), ETXTBSY).
///
/// # Panics
/// The file cannot be written.
#[track_caller]
pub fn write_program(path: &Path, text: &str) {
    let mut written = tempfile::NamedTempFile::new().expect("a temporary file");
    written.write_all(text.as_bytes()).expect("the file is new");
    let mut install = Command::new("install");
    install.args(["-m", "755"]).arg(written.path()).arg(path);
    Program::output(&mut install, Duration::from_secs(60));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Program {
        Program::spawn(Command::new("sh").args(["-c", script]))
    }

    #[test]
    fn a_programs_output_and_status_are_kept() {
        let finished = sh("echo out; echo err >&2; exit 3").wait(Duration::from_secs(60));
        assert_eq!(finished.status.code(), Some(3));
        assert_eq!(finished.stdout, b"out\n");
        assert_eq!(finished.stderr, "err\n");
    }

    #[test]
    fn more_output_than_a_pipe_holds_does_not_block_it() {
        let bytes = Program::output(
            Command::new("head").args(["-c", "1000000", "/dev/zero"]),
            Duration::from_secs(60),
        );
        assert_eq!(bytes.len(), 1_000_000);
    }

    #[test]
    fn a_line_is_found_as_soon_as_it_is_whole() {
        let program = sh("echo first; echo ready 1; exec sleep 60");
        let line = program.stdout_line(Duration::from_secs(60), |l| l.starts_with("ready"));
        assert_eq!(line, "ready 1");
    }

    #[test]
    #[should_panic(expected = "no such line")]
    fn the_end_of_the_output_ends_the_wait_for_a_line() {
        sh("echo other").stdout_line(Duration::from_secs(60), |l| l == "ready");
    }

    #[test]
    #[should_panic(expected = "has not ended")]
    fn a_program_that_runs_too_long_fails_the_test() {
        sh("exec sleep 60").wait(Duration::from_millis(20));
    }

    #[test]
    fn a_dropped_program_is_gone() {
        let program = sh("exec sleep 60");
        let process = format!("/proc/{}", program.id());
        assert!(Path::new(&process).exists());
        drop(program);
        assert!(!Path::new(&process).exists());
    }

    #[test]
    fn a_paused_program_does_nothing_until_resumed() {
        let mut program = sh("trap 'exit 7' TERM; echo up; while :; do sleep 0.01; done");
        program.stdout_line(Duration::from_secs(60), |l| l == "up");
        program.pause();
        program.terminate();
        assert_eq!(program.ended_within(Duration::from_millis(100)), None);
        program.resume();
        assert_eq!(program.wait(Duration::from_secs(60)).status.code(), Some(7));
    }
}
