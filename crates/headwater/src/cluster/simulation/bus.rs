//! The connection of a node to the simulated message system ([`network`](super::network)).

use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use cluster::wire::{Ask, Question};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use live::UnixMicros;
use tokio::time::{Instant, sleep, sleep_until};

use super::super::bus::{Bus, Entry, Failed, Incoming, Subscription, Unwritten};
use super::super::lease::LASTS;
use super::network::{Held, Inbox, Life, Network, State, Subscriber, WAY, age, lock};
use crate::clock::Clock;

/// How long the message system is tried before it is said that it does not answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The connection of one node, for one of its lives.
#[derive(Debug)]
pub(super) struct SimulatedBus {
    network: Arc<Network>,
    node: String,
    life: u64,
    clock: Clock,
    /// Until when the node stands still.
    still: Arc<Mutex<Instant>>,
}

impl SimulatedBus {
    pub(super) fn new(network: Arc<Network>, node: String, life: u64, clock: Clock) -> Self {
        Self { network, node, life, clock, still: Arc::new(Mutex::new(Instant::now())) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.network.0)
    }

    fn is_alive(&self) -> bool {
        self.state().lives.contains_key(&self.life)
    }

    /// The node ends, without a word: nothing that it begins ever comes to an end.
    pub(super) fn crash(&self) {
        self.state().lives.remove(&self.life);
    }

    /// Changes what is so of the node's connection.
    fn change(&self, change: impl FnOnce(&mut Life)) {
        if let Some(life) = self.state().lives.get_mut(&self.life) {
            change(life);
        }
    }

    /// Puts the node on a side.
    pub(super) fn move_to(&self, side: u8) {
        self.change(|life| life.side = side);
    }

    /// Takes the connection away, or gives it back.
    pub(super) fn cut(&self, is_cut: bool) {
        let now = self.clock.now();
        self.change(|life| {
            if life.is_cut && !is_cut {
                life.connected = now;
            }
            life.is_cut = is_cut;
        });
    }

    /// From now on, the bucket does not hear this node.
    pub(super) fn lose_bucket(&self) {
        self.change(|life| life.lacks_bucket = true);
    }

    /// From now on, answers of more bytes than these do not come to this node.
    pub(super) fn narrow(&self, most: usize) {
        self.state().narrow = Some((self.life, most));
    }

    /// Lets the node take this for true of its connection, or what is so.
    pub(super) fn deceive(&self, believes: Option<bool>) {
        self.change(|life| life.believes = believes);
    }

    /// Limits what comes to the node to so many bytes a second, or lets all come at once.
    pub(super) fn slow_down(&self, rate: Option<u64>) {
        self.change(|life| life.down.rate = rate);
        if rate.is_none() {
            self.state().hurry(self.life);
        }
    }

    /// Limits what the node sends to so many bytes a second.
    pub(super) fn slow_up(&self, rate: Option<u64>) {
        self.change(|life| life.up.rate = rate);
    }

    /// The node stands still, as a stopped process does, and goes on then: it hears nothing, and nothing that it does
    /// reaches anybody.
    pub(super) fn stand_still(&self, until: Instant) {
        *lock(&self.still) = until;
        self.state().wake(self.life);
    }

    /// Waits while the node stands still, or for ever where it has ended.
    async fn moves(&self) {
        loop {
            let still = *lock(&self.still);
            if still <= Instant::now() {
                break;
            }
            sleep_until(still).await;
        }
        if !self.is_alive() {
            pending::<()>().await;
        }
    }

    /// Waits until the bucket has answered, or for ever where this node has ended. Says whether it was heard, and
    /// whether its answer is.
    async fn ask_bucket(&self) -> Result<bool, Failed> {
        self.moves().await;
        let (reaches, way, is_lost) = {
            let mut state = self.state();
            state.steps += 1;
            let life = state.lives.get(&self.life).copied();
            let hears = |it: Life| !it.is_cut && !it.lacks_bucket;
            let reaches = life.is_some_and(|it| hears(it) && Some(it.side) == state.bucket_side);
            let bad = state.bad;
            (reaches, state.random.below(WAY), state.happens(bad))
        };
        sleep(Duration::from_millis(1 + way)).await;
        self.moves().await;
        if !reaches {
            sleep(PATIENCE).await;
            return Err(Failed("the bucket does not answer".to_owned()));
        }
        Ok(is_lost)
    }

    /// The answer, unless it was lost.
    async fn answered<T>(&self, answer: T, is_lost: bool) -> Result<T, Failed> {
        self.moves().await;
        if !is_lost {
            return Ok(answer);
        }
        sleep(PATIENCE).await;
        Err(Failed("the answer was lost".to_owned()))
    }
}

impl Bus for SimulatedBus {
    fn is_connected(&self) -> bool {
        let life = self.state().lives.get(&self.life).copied();
        life.is_some_and(|life| life.believes.unwrap_or(!life.is_cut))
    }

    fn connected(&self) -> UnixMicros {
        self.state().lives.get(&self.life).map_or(UnixMicros(0), |life| life.connected)
    }

    fn inbox(&self) -> String {
        let mut state = self.state();
        state.named += 1;
        format!("inbox.{}", state.named)
    }

    fn subscribe(&self, subject: String) -> BoxFuture<'_, Result<Subscription, Failed>> {
        async move {
            self.moves().await;
            let inbox = Arc::new(Inbox::new(&self.still));
            let subscriber = Subscriber { life: self.life, inbox: Arc::downgrade(&inbox) };
            self.state().subscriptions.entry(subject).or_default().push(subscriber);
            let next = |inbox: Arc<Inbox>| async move { Some((inbox.next().await, inbox)) };
            Ok(stream::unfold(inbox, next).boxed())
        }
        .boxed()
    }

    fn publish(
        &self,
        subject: String,
        reply: Option<String>,
        payload: Bytes,
    ) -> BoxFuture<'_, Result<(), Failed>> {
        async move {
            self.moves().await;
            let mut through = Instant::now();
            self.change(|life| through = life.up.carry(payload.len()));
            if through > Instant::now() {
                sleep_until(through).await;
                self.moves().await;
            }
            let mut state = self.state();
            let asks_nothing = |question: Question| matches!(question.ask, Ask::Nothing);
            // Whether a node is there may be asked at any time. All other messages are counted.
            let is_counted = !subject.starts_with("headwater.node.")
                || !Question::read(&payload).is_ok_and(asks_nothing);
            if subject.starts_with("headwater.") && is_counted {
                *state.sent.entry(subject.clone()).or_default() += 1;
            }
            if subject.starts_with("headwater.live.") {
                let (_, epoch): (u8, u64) = postcard::take_from_bytes(&payload[4..]).unwrap().0;
                let teller = state.tellers.entry((subject.clone(), epoch)).or_insert(self.life);
                assert_eq!(*teller, self.life, "{} tells {subject} {epoch}, too", self.node);
            }
            state.send(self.life, &subject, &Incoming { payload, reply, is_unheard: false });
            Ok(())
        }
        .boxed()
    }

    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Entry>, Failed>> {
        async move {
            let is_lost = self.ask_bucket().await?;
            let entry = {
                let mut state = self.state();
                age(&mut state, key);
                let held = state.bucket.get(key);
                held.map(|held| Entry { revision: held.revision, value: held.value.clone() })
            };
            self.answered(entry, is_lost).await
        }
        .boxed()
    }

    fn put<'a>(
        &'a self,
        key: &'a str,
        expected: u64,
        value: String,
    ) -> BoxFuture<'a, Result<u64, Unwritten>> {
        async move {
            let is_lost = self.ask_bucket().await?;
            let written = {
                let mut state = self.state();
                age(&mut state, key);
                let newest = state.bucket.get(key).map_or(0, |held| held.revision);
                if newest == expected {
                    state.revision += 1;
                    let revision = state.revision;
                    let held =
                        Held { revision, value: value.into(), until: Instant::now() + LASTS };
                    state.bucket.insert(key.to_owned(), held);
                    Ok(revision)
                } else {
                    Err(Unwritten::Conflict)
                }
            };
            self.answered(written, is_lost).await?
        }
        .boxed()
    }
}
