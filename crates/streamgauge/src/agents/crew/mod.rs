//! The agents that share a run, as the verb knows them that the user has started.

mod find;
mod link;
mod member;
mod said;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use async_nats::{Client, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::timeout;

use self::link::Remote;
use self::member::Member;
use super::clock::Offset;
use super::log::log;
use super::nats::Servers;
use super::report::{Agent, Clocks, Lost};
use super::wire::{self, Ask, Report, WINDOW};
use crate::shard::{Carrier, Link, Told};
use crate::signals::INTERRUPTED;

/// Least time from an order to its effect. The order must reach all agents before.
const LEAD: Duration = Duration::from_millis(300);
/// How many of the longest shortest round trips an order may take besides.
const ROUND_TRIPS: u32 = 4;
/// How long saying goodbye may take.
const LEAVING: Duration = Duration::from_secs(2);

/// Why the figures of an agent cannot be trusted.
#[derive(Debug, Clone, Default)]
pub struct Doubts {
    /// The reasons.
    pub reasons: Vec<String>,
    /// Whether some of its results have not come.
    pub is_missing: bool,
}

/// What a child has said: a piece of its output and what the agent tells with it.
type Piece = (Report, Bytes);

/// The agents of a run. They are reserved until this is dropped, which must not be within a runtime.
#[derive(Debug)]
pub struct Crew {
    /// What speaks with the agents, also while the verb does other things.
    runtime: Option<Runtime>,
    post: Arc<Post>,
    members: Vec<Arc<Member>>,
}

/// The connection of a crew.
#[derive(Debug)]
struct Post {
    client: Client,
    /// The subject to which agents send.
    run: String,
    asked: Mutex<Asked>,
    /// Number of the next child.
    next: AtomicU32,
    children: Mutex<HashMap<u32, mpsc::Sender<Piece>>>,
}

/// The agents that were asked to serve the run.
#[derive(Debug, Default)]
struct Asked {
    ids: Vec<String>,
    /// Whether they are being freed. Nobody is asked from then on.
    closed: bool,
}

impl Post {
    /// Ends the run at an agent. One that does not hear it finds out by our silence.
    async fn release(&self, id: &str) {
        let release = Ask::Release { run: self.run.clone() };
        let _ = self.client.publish(wire::subject(id), wire::write(&release, b"")).await;
    }

    /// Ends the run at all agents that may have heard of it. No further ones are asked.
    async fn release_all(&self) {
        let ids = {
            let mut asked = self.asked();
            asked.closed = true;
            asked.ids.clone()
        };
        for id in ids {
            self.release(&id).await;
        }
        let _ = self.client.flush().await;
    }

    fn asked(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Frees the agents and ends the program if a signal comes before the run has begun. After that, the verb ends its
    /// run itself.
    async fn end_by_signal(self: Arc<Self>, (mut interrupt, mut terminate): (Signal, Signal)) {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        if self.next.load(Relaxed) == 0 {
            let _ = timeout(LEAVING, self.release_all()).await;
            log("interrupted before the run began");
            std::process::exit(INTERRUPTED);
        }
    }

    fn children(&self) -> MutexGuard<'_, HashMap<u32, mpsc::Sender<Piece>>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands what agents send to the children's tasks.
    async fn receive(self: Arc<Self>, mut inbox: Subscriber) {
        while let Some(message) = inbox.next().await {
            // Garbage on this subject does no harm.
            let Ok((report, body)) = wire::read::<Report>(&message.payload) else { continue };
            let child = self.children().get(&report.child).cloned();
            if let Some(child) = child {
                // No agent sends more than there is room for. If one does, a piece is missing.
                let _ = child.try_send((report, body));
            }
        }
    }
}

impl Crew {
    /// Reserves so many agents, and compares their clocks with ours. From now on until the run begins, SIGINT and
    /// SIGTERM free the agents and end the program.
    ///
    /// # Errors
    /// NATS cannot be reached, or there are not enough agents. The error says which there are.
    pub fn reserve(servers: &Servers, count: u32) -> anyhow::Result<Self> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let (post, members) = runtime.block_on(async {
            let interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
            let terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
            let client = servers.connect("crew", false).await?;
            let run = client.new_inbox();
            let inbox = client.subscribe(run.clone()).await?;
            let (asked, next, children) = (Mutex::default(), AtomicU32::new(0), Mutex::default());
            let post = Arc::new(Post { client, run, asked, next, children });
            tokio::spawn(Arc::clone(&post).receive(inbox));
            tokio::spawn(Arc::clone(&post).end_by_signal((interrupt, terminate)));
            let members = find::reserve(&post, count as usize).await?;
            anyhow::Ok((post, members))
        })?;
        let crew = Self { runtime: Some(runtime), post, members };
        crew.clocks_compared()?;
        Ok(crew)
    }

    fn clocks_compared(&self) -> anyhow::Result<()> {
        let Some(runtime) = &self.runtime else { return Ok(()) };
        runtime.block_on(async {
            for member in &self.members {
                member.compared().await?;
            }
            Ok(())
        })
    }

    /// How many agents there are.
    pub fn count(&self) -> u32 {
        u32::try_from(self.members.len()).unwrap_or(u32::MAX)
    }

    /// How many files a process may open at each agent.
    pub fn files(&self) -> u64 {
        self.members.iter().map(|member| member.hello.files).min().unwrap_or_default()
    }

    /// How many processors all agents can use, if all use equally many.
    pub fn cores(&self) -> usize {
        let least = self.members.iter().map(|member| member.hello.cores).min().unwrap_or(1);
        // An agent says what it likes.
        least.max(1) as usize * self.members.len().max(1)
    }

    /// Name of an agent, by its place in the crew.
    pub fn name(&self, place: usize) -> &str {
        self.members.get(place).map_or("", |member| &member.hello.name)
    }

    /// How far the clocks of an agent's machine are ahead of this one's, as far as it is known now.
    pub fn offset(&self, place: usize) -> Option<Offset> {
        self.members.get(place)?.offset()
    }

    /// The first agent that was lost, and why.
    pub fn lost(&self) -> Option<String> {
        let lost = |member: &Arc<Member>| {
            member.gone().map(|(_, why)| format!("agent {}: {why}", member.hello.name))
        };
        self.members.iter().find_map(lost)
    }

    /// What is known of the agents after a run that began at `began`. `used` has, for each agent, what
    /// [`Crew::offset`] returned for the run. An agent that went away after all its results had come is not lost.
    pub fn report(
        &self,
        began: Instant,
        processes: u32,
        used: &[Option<Offset>],
        doubts: &[Doubts],
    ) -> Vec<Agent> {
        let report = |(place, member): (usize, &Arc<Member>)| {
            let best = member.offset();
            let used = used.get(place).copied().flatten();
            let Doubts { reasons, is_missing } = doubts.get(place).cloned().unwrap_or_default();
            // A run may end before a silent agent is given up.
            let away = || member.gone().or_else(|| member.silent());
            let lost = is_missing.then(away).flatten().map(|(at, why)| Lost {
                at: at.saturating_duration_since(began).as_secs_f64(),
                why,
            });
            Agent {
                name: member.hello.name.clone(),
                version: member.hello.version.clone(),
                cores: member.hello.cores,
                processes,
                clock: used.zip(best).map(|(used, best)| Clocks::new(&used, &best)),
                saturated: !reasons.is_empty(),
                reasons,
                lost,
            }
        };
        self.members.iter().enumerate().map(report).collect()
    }
}

impl Carrier for Crew {
    /// The first children go to the first agent, and so on, equally many to each.
    fn start(
        &self,
        role: &str,
        jobs: &[Vec<u8>],
        told: &Told,
    ) -> anyhow::Result<Vec<Box<dyn Link>>> {
        let Some(runtime) = &self.runtime else { return Ok(Vec::new()) };
        let _inside = runtime.enter();
        let each = jobs.len().div_ceil(self.members.len().max(1)).max(1);
        let mut links: Vec<Box<dyn Link>> = Vec::with_capacity(jobs.len());
        for (member, jobs) in self.members.iter().zip(jobs.chunks(each)) {
            for job in jobs {
                let place = links.len();
                let name = match jobs.len() {
                    1 => format!("agent {}", member.hello.name),
                    of => {
                        format!("agent {}, process {} of {of}", member.hello.name, place % each + 1)
                    }
                };
                let number = self.post.next.fetch_add(1, Relaxed);
                let (said, says) = mpsc::channel(WINDOW + 1);
                self.post.children().insert(number, said);
                let mut remote = Remote::start(
                    (&self.post, member, number),
                    role,
                    name,
                    (place, says, told.clone()),
                );
                remote.send(job.clone());
                links.push(Box::new(remote));
            }
        }
        Ok(links)
    }

    fn lead(&self) -> Duration {
        let trips = self.members.iter().filter_map(|member| member.offset());
        LEAD + trips.map(|best| best.round_trip).max().unwrap_or_default() * ROUND_TRIPS
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        runtime.block_on(async { timeout(LEAVING, self.post.release_all()).await.ok() });
        runtime.shutdown_background();
    }
}
