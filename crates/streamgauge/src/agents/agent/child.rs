//! A child that an agent has started, and what is passed on between its pipes and NATS.

use std::future::Future;
use std::sync::Arc;

use anyhow::Context;
use async_nats::{Client, Subject};
use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::sync::{Semaphore, mpsc};

use crate::agents::log::log;
use crate::agents::wire::{self, Answer, PIECE, Report, WINDOW};
use crate::shard;

/// How many pieces of input may wait. A crew sends the next when it has the answer to the last.
const INPUTS: usize = 4;

/// A child, as its run knows it.
pub(super) struct Child {
    input: mpsc::Sender<(Bytes, Option<Subject>)>,
    window: Arc<Semaphore>,
    /// How many pieces the crew has taken.
    taken: u64,
}

impl Child {
    pub(super) fn input(&self, input: Bytes, reply: Option<Subject>) -> Result<(), String> {
        self.input.try_send((input, reply)).map_err(|_| "the child takes no more".to_owned())
    }

    /// The crew says how many pieces it has taken since the start. It may say so again.
    pub(super) fn taken(&mut self, all: u64) -> Result<(), String> {
        let pieces = usize::try_from(all.saturating_sub(self.taken)).unwrap_or(usize::MAX);
        if pieces > WINDOW.saturating_sub(self.window.available_permits()) {
            return Err("more pieces than were sent".to_owned());
        }
        self.window.add_permits(pieces);
        self.taken = self.taken.max(all);
        Ok(())
    }
}

/// A child, and the work of its task. Aborting the task kills the child.
pub(super) fn start(
    client: Client,
    run: String,
    number: u32,
    role: &'static str,
) -> (Child, impl Future<Output = ()>) {
    let (input, inputs) = mpsc::channel(INPUTS);
    let window = Arc::new(Semaphore::new(WINDOW));
    let child = Child { input, window: window.clone(), taken: 0 };
    let mut output = Output { client, run, child: number, number: 0, window };
    let work = async move {
        let ended = serve(&mut output, role, inputs).await.map_err(|error| format!("{error:#}"));
        output.end(ended).await;
    };
    (child, work)
}

async fn serve(
    output: &mut Output,
    role: &str,
    inputs: mpsc::Receiver<(Bytes, Option<Subject>)>,
) -> anyhow::Result<()> {
    let mut command = Command::from(shard::command(role));
    let mut process = command.kill_on_drop(true).spawn().context("starting a process")?;
    let orders = process.stdin.take().context("a process without standard input")?;
    let said = process.stdout.take().context("a process without standard output")?;
    // Its standard input stays open until it has closed its output: a child ends with its input.
    let client = output.client.clone();
    tokio::select! {
        () = feed(&client, orders, inputs) => {}
        passed = output.pass_on(said) => passed?,
    }
    let status = process.wait().await?;
    anyhow::ensure!(status.success(), "{status}");
    Ok(())
}

/// Writes input to a child, and answers each piece. Ends with the inputs.
async fn feed(
    client: &Client,
    mut orders: ChildStdin,
    mut inputs: mpsc::Receiver<(Bytes, Option<Subject>)>,
) {
    while let Some((input, reply)) = inputs.recv().await {
        let answer = match orders.write_all(&input).await {
            Ok(()) => Answer::Done,
            Err(error) => Answer::Refused(format!("the child takes no input: {error}")),
        };
        if let Some(reply) = reply {
            // A crew that gets no answer gives the child up.
            let _ = client.publish(reply, wire::write(&answer, b"")).await;
        }
    }
}

/// What a child says, on its way to the crew.
struct Output {
    client: Client,
    run: String,
    child: u32,
    /// Number of the next message.
    number: u64,
    window: Arc<Semaphore>,
}

impl Output {
    /// Passes on all that a child says.
    async fn pass_on(&mut self, mut said: ChildStdout) -> anyhow::Result<()> {
        let mut buffer = vec![0; PIECE];
        loop {
            // Nobody closes the semaphore.
            self.window.acquire().await.context("the window is closed")?.forget();
            let length = said.read(&mut buffer).await.context("reading what a child says")?;
            if length == 0 {
                return Ok(());
            }
            self.send(None, buffer.get(..length).unwrap_or_default()).await?;
        }
    }

    async fn end(&mut self, ended: Result<(), String>) {
        if let Err(error) = self.send(Some(ended), b"").await {
            log(format_args!("the end of a child was not told: {error:#}"));
        }
    }

    async fn send(&mut self, ended: Option<Result<(), String>>, body: &[u8]) -> anyhow::Result<()> {
        let report = Report { child: self.child, number: self.number, ended };
        self.number += 1;
        Ok(self.client.publish(self.run.clone(), wire::write(&report, body)).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_again_counts_once_and_what_is_lost_is_made_up_for() {
        let window = Arc::new(Semaphore::new(WINDOW));
        let mut child = Child { input: mpsc::channel(1).0, window: window.clone(), taken: 0 };
        for _ in 0..20 {
            window.try_acquire().unwrap().forget();
        }
        for (all, left) in [(8, WINDOW - 12), (8, WINDOW - 12), (20, WINDOW), (16, WINDOW)] {
            assert_eq!(child.taken(all), Ok(()));
            assert_eq!(window.available_permits(), left);
        }
        assert!(child.taken(21).is_err() && child.taken(u64::MAX).is_err());
    }
}
