//! Answers what other nodes ask of this one's streams.
//!
//! An answer about a whole window takes a while where a link is slow. So these take turns, and no node has more than a few
//! of the places. All other questions are answered at once.

use std::collections::HashMap;
use std::sync::Arc;

use cluster::name;
use cluster::wire::{self, Ask, Message, Question};
use futures_util::StreamExt;
use live::Status;
use live::backup::Claim;
use live::mirror::Changes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{Cluster, bus, copy, units};

/// The most windows that are told at once.
const MOST_ANSWERS: usize = 64;
/// The most of these for one node.
const MOST_FOR_A_NODE: usize = 8;
/// The most questions for windows that are answered or wait for their turn. Others are dropped: a node that hears nothing
/// asks again.
const MOST_QUESTIONS: usize = 256;

/// Answers questions. Runs for ever.
pub(super) async fn run(cluster: Arc<Cluster>) {
    if has_namesake(&cluster).await {
        let node = &*cluster.node;
        tracing::error!(node, "another node has the name of this one: cluster.node must differ");
    }
    let Ok(mut questions) = cluster.bus.subscribe(name::questions(&cluster.node)).await else {
        return;
    };
    let mut turns = Turns::default();
    let mut answers = JoinSet::new();
    while let Some(message) = questions.next().await {
        while answers.try_join_next().is_some() {}
        let question = match Question::read(&message.payload) {
            Ok(question) => question,
            Err(error) => {
                cluster.refuse(&error);
                continue;
            }
        };
        if let Ask::Wants(wants) = &question.ask {
            let own = cluster.owned().contains_key(&question.stream);
            if let Some(stream) = cluster.registry.stream(&question.stream).filter(|_| own) {
                units::want(&cluster, &stream, wants);
            }
            continue;
        }
        let Some(reply) = message.reply else { continue };
        // Who has nothing of the stream yet asks for all of its window.
        let is_window = matches!(&question.ask, Ask::Changes(places) if places.is_empty());
        let most = if is_window { MOST_QUESTIONS } else { 2 * MOST_QUESTIONS };
        if answers.len() >= most {
            cluster.refused.inc();
            continue;
        }
        let turn = is_window.then(|| turns.ask(&question.asker));
        let cluster = Arc::clone(&cluster);
        answers.spawn(async move {
            // Who asks gives up when nothing has come for twice this time.
            let waited = match turn {
                Some(turn) => timeout(copy::ANSWER / 2, turn.wait()).await.map(Some),
                None => Ok(None),
            };
            if let Ok(_turn) = waited {
                Answer::new(&cluster, question).tell(&cluster, &reply).await;
            }
        });
    }
}

/// Whether another node answers to the name of this one, which does not yet.
async fn has_namesake(cluster: &Cluster) -> bool {
    // The first connection may not be made yet. The question waits for it.
    let Ok(question) = cluster.question("", Ask::Nothing) else { return false };
    let answer = cluster.bus.request(name::questions(&cluster.node), question).await;
    matches!(answer, Ok(bus::Answer::Payload(_)))
}

/// Lets nodes take turns.
#[derive(Debug)]
struct Turns {
    all: Arc<Semaphore>,
    of_nodes: HashMap<String, Arc<Semaphore>>,
}

impl Default for Turns {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(MOST_ANSWERS)), of_nodes: HashMap::new() }
    }
}

/// A question that waits for its turn: one of its node's first, and then one of all.
#[derive(Debug)]
struct Turn([Arc<Semaphore>; 2]);

impl Turns {
    fn ask(&mut self, node: &str) -> Turn {
        self.of_nodes.retain(|_, turns| Arc::strong_count(turns) > 1);
        let new = || Arc::new(Semaphore::new(MOST_FOR_A_NODE));
        let of_node = self.of_nodes.entry(node.to_owned()).or_insert_with(new);
        Turn([Arc::clone(of_node), Arc::clone(&self.all)])
    }
}

impl Turn {
    /// Waits. The turn lasts as long as the permits.
    async fn wait(self) -> Vec<OwnedSemaphorePermit> {
        let mut permits = Vec::new();
        for turns in self.0 {
            permits.extend(turns.acquire_owned().await);
        }
        permits
    }
}

/// What a node is told.
struct Answer {
    /// The epoch of the lease under which this node has the stream, or copies it. 0 if it does neither.
    epoch: u64,
    changes: Option<Changes>,
    last: Message,
}

impl Answer {
    fn new(cluster: &Cluster, question: Question) -> Self {
        let Question { stream: name, ask, .. } = question;
        let now = cluster.clock.now();
        let own = cluster.owned().get(&name).copied();
        let stream = own.and_then(|_| cluster.registry.stream(&name));
        let done = |epoch, changes| Self { epoch, changes, last: Message::Done };
        match (ask, own, stream) {
            (Ask::Changes(places), Some((epoch, _)), Some(stream)) => {
                done(epoch, Some(Changes::since(&stream, places)))
            }
            // The stream's node has gone, and its publisher or a viewer came to the asker.
            (Ask::Changes(places), None, _) => match cluster.copied(&name) {
                Some(copied) => done(copied.epoch(), Some(Changes::since(copied.stream(), places))),
                None => done(0, None),
            },
            (Ask::TakeOver(places, role, takes_back), Some((epoch, _)), Some(stream)) => {
                let to = Claim { role: role.into(), takes_back };
                if !cluster.seats.cede(&name, to, now) {
                    return done(epoch, None);
                }
                cluster.cede(&name);
                let changes = Some(Changes::since(&stream, places));
                Self { epoch, changes, last: Message::Ceded }
            }
            (Ask::Cede, Some((epoch, _)), Some(stream))
                if stream.state().status == Status::Offline
                    && !cluster.seats.has_next(&name, now) =>
            {
                cluster.cede(&name);
                Self { epoch, changes: None, last: Message::Ceded }
            }
            // This node gave the stream away, and could not give the lease back.
            (Ask::Cede, None, _)
                if !cluster.has_live(&name) && !cluster.seats.has_next(&name, now) =>
            {
                Self { epoch: 0, changes: None, last: Message::Ceded }
            }
            // The asker learns that this node is there.
            _ => done(0, None),
        }
    }

    async fn tell(self, cluster: &Cluster, reply: &str) {
        let Self { epoch, mut changes, last } = self;
        let window = changes.as_ref().map(Changes::window).unwrap_or_default();
        let told = async move {
            let changes = std::iter::from_fn(|| changes.as_mut()?.take().map(Message::Change));
            for message in changes.chain([last]) {
                for bytes in wire::write(epoch, &message).unwrap_or_default() {
                    if cluster.bus.publish(reply.to_owned(), None, bytes).await.is_err() {
                        return;
                    }
                }
            }
        };
        let _ = timeout(copy::longest_answer(window), told).await;
    }
}
