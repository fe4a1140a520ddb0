//! A child's side.

use std::io::{self, BufRead, Write};
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

/// The parent, as a child knows it.
#[derive(Debug)]
pub struct Parent {
    begin: mpsc::Receiver<Duration>,
    stopped: watch::Receiver<bool>,
}

impl Parent {
    /// Takes the job that the parent hands over, does it, and tells the parent if it cannot be
    /// done. `work` says [`Parent::ready`] once it could begin.
    ///
    /// # Errors
    /// There is no parent, or its job cannot be read.
    pub fn serve<J: DeserializeOwned>(
        work: impl FnOnce(J, &Self) -> anyhow::Result<()>,
    ) -> anyhow::Result<Exit> {
        let mut job = String::new();
        io::stdin().lock().read_line(&mut job).context("reading a job")?;
        let job = serde_json::from_str(&job).context("reading a job, which only a parent gives")?;
        let (begun, begin) = mpsc::channel();
        let (stop, stopped) = watch::channel(false);
        thread::Builder::new()
            .name("orders".to_owned())
            .spawn(move || listen(&begun, &stop))
            .context("starting a thread")?;
        let parent = Self { begin, stopped };
        if let Err(error) = work(job, &parent) {
            write(&Line::<()>::Failed(format!("{error:#}")))?;
        }
        Ok(Exit::Success)
    }

    /// Says that all is there, and waits for the moment at which all children begin.
    ///
    /// # Errors
    /// The parent is gone.
    pub fn ready(&self) -> anyhow::Result<()> {
        write(&Line::<()>::Ready)?;
        let at = self.begin.recv().context("waiting to begin")?;
        thread::sleep(at.saturating_sub(monotonic()));
        Ok(())
    }

    /// Says what has been found.
    ///
    /// # Errors
    /// The parent is gone.
    pub fn say<M: Serialize>(&self, message: &M) -> anyhow::Result<()> {
        Ok(write(&Line::Said(message))?)
    }

    /// Whether the parent has said to end.
    pub fn stopped(&self) -> watch::Receiver<bool> {
        self.stopped.clone()
    }
}

/// Takes orders, and ends the process when no more can come.
fn listen(begun: &mpsc::Sender<Duration>, stop: &watch::Sender<bool>) {
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        match serde_json::from_str(&line) {
            // Whoever no longer waits is past it.
            Ok(Order::Begin(at)) => drop(begun.send(at)),
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
