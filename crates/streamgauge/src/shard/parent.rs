//! The side of the parent.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::{Line, Order, VERB, monotonic};

/// How long children may take to get ready: they may have to read a long reference.
const READY: Duration = Duration::from_secs(60);
/// Time from the order to start to the start itself. The order must reach all children before.
const LEAD: Duration = Duration::from_millis(30);
/// How long a child may take to end after closing its output.
const ENDING: Duration = Duration::from_secs(1);
/// Pause between two checks whether it has ended.
const POLL: Duration = Duration::from_millis(1);
/// How many messages of children are queued. Further ones wait in the children.
const ON_THE_WAY: usize = 4096;

/// News of a child.
#[derive(Debug)]
pub enum Heard<M> {
    /// A result.
    Said(M),
    /// The child has ended, and has sent everything.
    Ended,
    /// The child could not go on: which one, and why.
    Failed(String),
}

#[derive(Debug)]
struct One {
    process: Child,
    orders: ChildStdin,
    /// Name in messages.
    name: String,
    /// Why the child cannot go on, if it has reported so.
    failed: Option<String>,
}

enum Event<M> {
    Line(Line<M>),
    Garbage(String),
    Closed,
}

/// The children of a run. Dropping it kills those that still run.
#[derive(Debug)]
pub struct Shards<M> {
    children: Vec<One>,
    events: mpsc::Receiver<(usize, Event<M>)>,
}

impl<M: DeserializeOwned + Send + 'static> Shards<M> {
    /// Starts a child for each job, and waits until all are ready. `role` tells the children what
    /// to do.
    ///
    /// # Errors
    /// A child cannot be started, or cannot begin its job.
    pub async fn start<J: Serialize>(role: &str, jobs: &[J]) -> anyhow::Result<Self> {
        let (heard, events) = mpsc::channel(ON_THE_WAY);
        let mut shards = Self { children: Vec::with_capacity(jobs.len()), events };
        for (number, job) in jobs.iter().enumerate() {
            let place = format!("process {} of {}", number + 1, jobs.len());
            let (one, output) = One::start(role, &place, job).with_context(|| place.clone())?;
            shards.children.push(one);
            let heard = heard.clone();
            thread::Builder::new()
                .name(place)
                .spawn(move || listen(output, number, &heard))
                .context("starting a thread")?;
        }
        drop(heard);
        timeout(READY, shards.all_ready()).await.context("waiting for processes to be ready")??;
        Ok(shards)
    }

    async fn all_ready(&mut self) -> anyhow::Result<()> {
        let mut ready = 0;
        while ready < self.children.len() {
            match self.events.recv().await {
                Some((_, Event::Line(Line::Ready))) => ready += 1,
                Some((number, event)) => match self.take(number, event) {
                    Some(Heard::Failed(why)) => bail!(why),
                    Some(_) => bail!("{} ended before the run", self.children[number].name),
                    None => {}
                },
                None => bail!("processes ended before the run"),
            }
        }
        Ok(())
    }

    /// Lets all children start at one moment. If one is gone, [`Shards::hear`] reports it later.
    pub fn begin(&mut self) {
        self.order(Order::Begin(monotonic() + LEAD));
    }

    /// Tells all children to stop and send their results so far.
    pub fn stop(&mut self) {
        self.order(Order::Stop);
    }

    fn order(&mut self, order: Order) {
        for child in &mut self.children {
            // If the child is gone, the end of its output reports it.
            let _ = line(&mut child.orders, &order);
        }
    }

    /// Returns the next news and the number of its child, which is that of its job. `None` once all
    /// have ended. The future may be dropped and made again.
    pub async fn hear(&mut self) -> Option<(usize, Heard<M>)> {
        loop {
            let (number, event) = self.events.recv().await?;
            if let Some(heard) = self.take(number, event) {
                return Some((number, heard));
            }
        }
    }

    fn take(&mut self, number: usize, event: Event<M>) -> Option<Heard<M>> {
        let child = &mut self.children[number];
        match event {
            Event::Line(Line::Said(message)) => return Some(Heard::Said(message)),
            Event::Line(Line::Failed(why)) => child.failed = Some(why),
            Event::Garbage(why) => child.failed = Some(why),
            Event::Line(Line::Ready) => {}
            Event::Closed => {
                let ended = child.end();
                let why = match (child.failed.take(), ended) {
                    (Some(why), _) => why,
                    (None, Some(status)) if status.success() => return Some(Heard::Ended),
                    (None, Some(status)) => status.to_string(),
                    (None, None) => "did not end".to_owned(),
                };
                return Some(Heard::Failed(format!("{}: {why}", child.name)));
            }
        }
        None
    }
}

impl One {
    fn start<J: Serialize>(
        role: &str,
        place: &str,
        job: &J,
    ) -> anyhow::Result<(Self, ChildStdout)> {
        // The running program, even if its file has been replaced.
        let mut process = Command::new("/proc/self/exe")
            .args([VERB, role])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (orders, output) = (process.stdin.take(), process.stdout.take());
        let name = format!("{place} (pid {})", process.id());
        let mut one = Self {
            process,
            orders: orders.context("a process without standard input")?,
            name,
            failed: None,
        };
        line(&mut one.orders, job)?;
        Ok((one, output.context("a process without standard output")?))
    }

    /// Waits for the child's end and returns its status. Kills it if it does not end.
    fn end(&mut self) -> Option<ExitStatus> {
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

impl Drop for One {
    fn drop(&mut self) {
        self.kill();
    }
}

fn line(to: &mut ChildStdin, what: &impl Serialize) -> anyhow::Result<()> {
    let mut text = serde_json::to_vec(what)?;
    text.push(b'\n');
    Ok(to.write_all(&text)?)
}

/// Passes on the lines of a child until it closes its output.
fn listen<M: DeserializeOwned>(
    output: ChildStdout,
    number: usize,
    heard: &mpsc::Sender<(usize, Event<M>)>,
) {
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        let event = serde_json::from_str(&line).map_or_else(
            |error| Event::Garbage(format!("said what cannot be read: {error}")),
            Event::Line,
        );
        if heard.blocking_send((number, event)).is_err() {
            return;
        }
    }
    // The receiver may be gone, which it knows.
    let _ = heard.blocking_send((number, Event::Closed));
}
