//! The side of the child.

use std::io::{self, BufRead, Read, Write};
use std::process;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::{Line, Order, monotonic};
use crate::Exit;

/// A child that starts later than this after the others says so.
const LATE: Duration = Duration::from_millis(100);

/// Longest job, in bytes. It has the targets of a load.
const LONGEST_JOB: u64 = 256 << 20;

/// The parent, seen from a child.
#[derive(Debug)]
pub struct Parent {
    begin: mpsc::Receiver<Duration>,
    released: watch::Receiver<bool>,
    stopped: watch::Receiver<bool>,
}

impl Parent {
    /// Takes the job from the parent and does it. Tells the parent if the job cannot be done.
    /// `work` calls [`Parent::ready`] when it could start.
    ///
    /// # Errors
    /// There is no parent, or the job cannot be read.
    pub fn serve<J: DeserializeOwned>(
        work: impl FnOnce(J, &Self) -> anyhow::Result<()>,
    ) -> anyhow::Result<Exit> {
        let mut job = String::new();
        io::stdin().lock().take(LONGEST_JOB).read_line(&mut job).context("reading a job")?;
        let job = serde_json::from_str(&job).context("reading a job, which only a parent gives")?;
        let (begun, begin) = mpsc::channel();
        let (release, released) = watch::channel(false);
        let (stop, stopped) = watch::channel(false);
        thread::Builder::new()
            .name("orders".to_owned())
            .spawn(move || listen(&begun, &release, &stop))
            .context("starting a thread")?;
        let parent = Self { begin, released, stopped };
        if let Err(error) = work(job, &parent) {
            write(&Line::<()>::Failed(format!("{error:#}")))?;
        }
        Ok(Exit::Success)
    }

    /// Tells the parent that the child is ready, and waits for the moment at which all children
    /// start.
    ///
    /// # Errors
    /// The parent is gone.
    pub fn ready(&self) -> anyhow::Result<()> {
        write(&Line::<()>::Ready)?;
        let at = self.begin.recv().context("waiting to begin")?;
        thread::sleep(at.saturating_sub(monotonic()));
        let late = monotonic().saturating_sub(at);
        if late > LATE {
            write(&Line::<()>::Late(late))?;
        }
        Ok(())
    }

    /// Sends a result to the parent.
    ///
    /// # Errors
    /// The parent is gone.
    pub fn say<M: Serialize>(&self, message: &M) -> anyhow::Result<()> {
        Ok(write(&Line::Said(message))?)
    }

    /// Whether the parent has told the child to go on from where it waits for other children.
    pub fn released(&self) -> watch::Receiver<bool> {
        self.released.clone()
    }

    /// Whether the parent has told the child to stop.
    pub fn stopped(&self) -> watch::Receiver<bool> {
        self.stopped.clone()
    }
}

/// Receives orders. Ends the process when no more can come.
fn listen(
    begun: &mpsc::Sender<Duration>,
    release: &watch::Sender<bool>,
    stop: &watch::Sender<bool>,
) {
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        match serde_json::from_str(&line) {
            // The receiver may have stopped waiting already.
            Ok(Order::Begin(at)) => drop(begun.send(at)),
            Ok(Order::Release) => drop(release.send(true)),
            Ok(Order::Stop) => drop(stop.send(true)),
            Err(_) => break,
        }
    }
    process::exit(Exit::Unusable as i32);
}

fn write<M: Serialize>(line: &Line<M>) -> io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    let mut out = io::stdout().lock();
    out.write_all(&text)?;
    out.flush()
}
