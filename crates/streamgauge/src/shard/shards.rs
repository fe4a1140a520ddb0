//! The side of the parent.

use std::marker::PhantomData;
use std::time::Duration;

use anyhow::{Context, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::{Carrier, Line, Link, News, Order, monotonic};

/// How long children may take to get ready: they may have to read a long reference.
const READY: Duration = Duration::from_secs(60);
/// How many messages of children are queued. Further ones wait in the children.
const ON_THE_WAY: usize = 4096;

/// News of a child.
#[derive(Debug)]
pub enum Heard<M> {
    /// A result.
    Said(M),
    /// The child started later than the others: which one, and by how much.
    Late(String),
    /// The child has ended, and has sent everything.
    Ended,
    /// The child could not go on: which one, and why.
    Failed(String),
}

#[derive(Debug)]
struct One {
    link: Box<dyn Link>,
    is_ready: bool,
    /// Why the child cannot go on, if it has reported so.
    failed: Option<String>,
}

/// The children of a run. Dropping it kills those that still run.
#[derive(Debug)]
pub struct Shards<M> {
    children: Vec<One>,
    lead: Duration,
    told: mpsc::Receiver<(usize, News)>,
    messages: PhantomData<fn() -> M>,
}

impl<M: DeserializeOwned> Shards<M> {
    /// Starts a child for each job, and waits until all are ready. `role` tells the children what
    /// to do.
    ///
    /// # Errors
    /// A child cannot be started, or cannot begin its job.
    pub async fn start<J: Serialize>(
        carrier: &dyn Carrier,
        role: &str,
        jobs: &[J],
    ) -> anyhow::Result<Self> {
        let (tell, told) = mpsc::channel(ON_THE_WAY);
        let jobs = jobs.iter().map(line).collect::<anyhow::Result<Vec<_>>>()?;
        let links = carrier.start(role, &jobs, &tell)?;
        drop((tell, jobs));
        let children = links.into_iter().map(|link| One { link, is_ready: false, failed: None });
        let mut shards = Self {
            children: children.collect(),
            lead: carrier.lead(),
            told,
            messages: PhantomData,
        };
        timeout(READY, shards.all_ready()).await.context("waiting for processes to be ready")??;
        Ok(shards)
    }

    async fn all_ready(&mut self) -> anyhow::Result<()> {
        while !self.children.iter().all(|child| child.is_ready) {
            let Some((number, news)) = self.told.recv().await else {
                bail!("processes ended before the run");
            };
            match self.take(number, news) {
                Some(Heard::Failed(why)) => bail!(why),
                Some(_) => bail!("{} ended before the run", self.children[number].link.name()),
                None => {}
            }
        }
        Ok(())
    }

    /// Lets all children start at one moment, and waits for it. If one is gone, [`Shards::hear`]
    /// reports it later.
    ///
    /// # Errors
    /// The order cannot be written.
    pub async fn begin(&mut self) -> anyhow::Result<()> {
        let at = monotonic() + self.lead;
        for child in &mut self.children {
            child.link.send(line(&Order::Begin(child.link.time_there(at)))?);
        }
        sleep(at.saturating_sub(monotonic())).await;
        Ok(())
    }

    /// Tells all children to go on from where they wait for each other.
    ///
    /// # Errors
    /// The order cannot be written.
    pub fn release(&mut self) -> anyhow::Result<()> {
        self.order(Order::Release)
    }

    /// Tells all children to stop and send their results so far.
    ///
    /// # Errors
    /// The order cannot be written.
    pub fn stop(&mut self) -> anyhow::Result<()> {
        self.order(Order::Stop)
    }

    fn order(&mut self, order: Order) -> anyhow::Result<()> {
        for child in &mut self.children {
            child.link.send(line(&order)?);
        }
        Ok(())
    }

    /// Returns the next news and the number of its child, which is that of its job. `None` once all
    /// have ended. The future may be dropped and made again.
    pub async fn hear(&mut self) -> Option<(usize, Heard<M>)> {
        loop {
            let (number, news) = self.told.recv().await?;
            if let Some(heard) = self.take(number, news) {
                return Some((number, heard));
            }
        }
    }

    fn take(&mut self, number: usize, news: News) -> Option<Heard<M>> {
        let child = &mut self.children[number];
        match news {
            News::Line(line) => match serde_json::from_slice(&line) {
                Ok(Line::Said(message)) => return Some(Heard::Said(message)),
                Ok(Line::Ready) => child.is_ready = true,
                Ok(Line::Late(by)) => {
                    let name = child.link.name();
                    let late = format!("{name} started {:.3} s late", by.as_secs_f64());
                    return Some(Heard::Late(late));
                }
                Ok(Line::Failed(why)) => child.failed = Some(why),
                Err(error) => child.failed = Some(format!("said what cannot be read: {error}")),
            },
            News::Closed => {
                let ended = child.link.end();
                let why = child.failed.take().or(ended.err());
                let Some(why) = why else { return Some(Heard::Ended) };
                return Some(Heard::Failed(format!("{}: {why}", child.link.name())));
            }
        }
        None
    }
}

fn line(what: &impl Serialize) -> anyhow::Result<Vec<u8>> {
    let mut text = serde_json::to_vec(what)?;
    text.push(b'\n');
    Ok(text)
}
