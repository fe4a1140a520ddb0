//! Carries lines to and from processes of this machine.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::{Carrier, Link, News, Told, VERB};

/// Time from an order to its effect. The order must reach all children before.
const LEAD: Duration = Duration::from_millis(30);
/// How long a child may take to end after closing its output.
const ENDING: Duration = Duration::from_secs(1);
/// Pause between two checks whether it has ended.
const POLL: Duration = Duration::from_millis(1);

/// Starts children on this machine.
#[derive(Debug, Clone, Copy)]
pub struct Pipes;

impl Carrier for Pipes {
    fn start(
        &self,
        role: &str,
        jobs: &[Vec<u8>],
        told: &Told,
    ) -> anyhow::Result<Vec<Box<dyn Link>>> {
        let mut links: Vec<Box<dyn Link>> = Vec::with_capacity(jobs.len());
        for (number, job) in jobs.iter().enumerate() {
            let place = format!("process {} of {}", number + 1, jobs.len());
            let (mut process, output) =
                Process::start(role, &place).with_context(|| place.clone())?;
            process.orders.write_all(job).with_context(|| place.clone())?;
            links.push(Box::new(process));
            let told = told.clone();
            thread::Builder::new()
                .name(place)
                .spawn(move || listen(output, number, &told))
                .context("starting a thread")?;
        }
        Ok(links)
    }

    fn lead(&self) -> Duration {
        LEAD
    }
}

/// The command that starts a child, with pipes to it.
pub(crate) fn command(role: &str) -> Command {
    // The running program, even if its file has been replaced.
    let mut command = Command::new("/proc/self/exe");
    command.args([VERB, role]).stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

#[derive(Debug)]
struct Process {
    process: Child,
    orders: ChildStdin,
    name: String,
}

impl Process {
    fn start(role: &str, place: &str) -> anyhow::Result<(Self, ChildStdout)> {
        let mut process = command(role).spawn()?;
        let (orders, output) = (process.stdin.take(), process.stdout.take());
        let name = format!("{place} (pid {})", process.id());
        let orders = orders.context("a process without standard input")?;
        let output = output.context("a process without standard output")?;
        Ok((Self { process, orders, name }, output))
    }

    /// Waits for the child's end and returns its status. Kills it if it does not end.
    fn status(&mut self) -> Option<ExitStatus> {
        let deadline = Instant::now() + ENDING;
        while Instant::now() < deadline {
            match self.process.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) => thread::sleep(POLL),
                Err(_) => return None,
            }
        }
        self.kill();
        None
    }

    fn kill(&mut self) {
        // The child has not been waited for, so the id is still its own. It is fine if it has
        // ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Link for Process {
    fn name(&self) -> &str {
        &self.name
    }

    fn send(&mut self, line: Vec<u8>) {
        // If the child is gone, the end of its output reports it.
        let _ = self.orders.write_all(&line);
    }

    fn end(&mut self) -> Result<(), String> {
        match self.status() {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(status.to_string()),
            None => Err("did not end".to_owned()),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Passes on the lines of a child until it closes its output.
fn listen(output: ChildStdout, number: usize, told: &Told) {
    for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
        if told.blocking_send((number, News::Line(line))).is_err() {
            return;
        }
    }
    // The receiver may be gone, which it knows.
    let _ = told.blocking_send((number, News::Closed));
}
