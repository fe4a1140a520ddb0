//! A message system that loses, doubles, delays and reorders messages, falls into sides that do not hear each other, and
//! has a bucket that goes away.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, pending};
use futures_util::{FutureExt, StreamExt, stream};
use live::UnixMicros;
use testkit::Random;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use super::super::bus::{Bus, Entry, Failed, Incoming, Subscription, Unwritten};
use super::super::lease::LASTS;
use crate::clock::Clock;

/// How long the message system is tried before it is said that it does not answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest way of a message that is not held up.
const WAY: u64 = 20;

/// What all nodes share.
#[derive(Debug)]
pub(super) struct Network(Mutex<State>);

#[derive(Debug)]
struct State {
    random: Random,
    /// Messages in a thousand that are lost, and as many that come twice, and that overtake one.
    bad: u64,
    subscriptions: BTreeMap<String, Vec<Subscriber>>,
    /// A life that gets no answers of more bytes than these.
    narrow: Option<(u64, usize)>,
    /// The lives of nodes that go on. A node that starts again has another one.
    lives: HashMap<u64, Life>,
    /// The side on which the bucket is, if it is there at all.
    bucket_side: Option<u8>,
    bucket: BTreeMap<String, Held>,
    revision: u64,
    inboxes: u64,
    /// Messages that came or were lost, and uses of the bucket.
    steps: u64,
    /// How many messages were sent to subjects that are not inboxes.
    sent: HashMap<String, usize>,
    /// By which life changes of a stream were told with a lease of this epoch.
    tellers: HashMap<(String, u64), u64>,
}

#[derive(Debug)]
struct Subscriber {
    life: u64,
    inbox: Weak<Inbox>,
}

#[derive(Debug, Clone, Copy)]
struct Life {
    /// Nodes of one side hear each other.
    side: u8,
    /// Whether it has no connection.
    is_cut: bool,
    connected: UnixMicros,
}

/// A key of the bucket.
#[derive(Debug)]
struct Held {
    revision: u64,
    value: Bytes,
    until: Instant,
}

/// Messages on their way to one subscription.
#[derive(Debug, Default)]
struct Inbox {
    messages: Mutex<VecDeque<(Instant, Incoming)>>,
    came: Notify,
}

impl Inbox {
    async fn next(&self) -> Incoming {
        loop {
            let came = self.came.notified();
            let due = {
                let mut messages = lock(&self.messages);
                match messages.front() {
                    Some(&(due, _)) if due <= Instant::now() => {
                        return messages.pop_front().expect("one is due").1;
                    }
                    first => first.map(|(due, _)| *due),
                }
            };
            match due {
                Some(due) => {
                    tokio::select! { biased; () = sleep_until(due) => {}, () = came => {} }
                }
                None => came.await,
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Network {
    pub(super) fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State {
            random: Random::new(seed),
            bad: 0,
            narrow: None,
            subscriptions: BTreeMap::new(),
            lives: HashMap::new(),
            bucket_side: Some(0),
            bucket: BTreeMap::new(),
            revision: 0,
            inboxes: 0,
            steps: 0,
            sent: HashMap::new(),
            tellers: HashMap::new(),
        })))
    }

    /// Connects a node that starts. It has this clock.
    pub(super) fn join(self: &Arc<Self>, node: &str, clock: Clock) -> Arc<SimulatedBus> {
        let mut state = lock(&self.0);
        let life = state.inboxes;
        state.inboxes += 1;
        let connected = clock.now();
        state.lives.insert(life, Life { side: 0, is_cut: false, connected });
        Arc::new(SimulatedBus { network: Arc::clone(self), node: node.to_owned(), life, clock })
    }

    /// How much has happened.
    pub(super) fn steps(&self) -> u64 {
        lock(&self.0).steps
    }

    /// How many messages were sent to a subject.
    pub(super) fn sent(&self, subject: &str) -> usize {
        lock(&self.0).sent.get(subject).copied().unwrap_or(0)
    }

    /// How many messages in a thousand are lost, come twice, and overtake another one.
    pub(super) fn worsen(&self, bad: u64) {
        lock(&self.0).bad = bad;
    }

    /// On which side the bucket is; on none, it does not answer.
    pub(super) fn move_bucket(&self, side: Option<u8>) {
        lock(&self.0).bucket_side = side;
    }

    /// The bucket is lost with all servers that had it, and begins anew.
    pub(super) fn lose_bucket(&self) {
        let mut state = lock(&self.0);
        state.bucket.clear();
        state.revision = 0;
    }
}

impl State {
    /// Whether one life can reach another.
    fn reaches(&self, from: u64, to: u64) -> bool {
        let place = |life| self.lives.get(&life).filter(|life| !life.is_cut).map(|life| life.side);
        place(from).is_some_and(|side| place(to) == Some(side))
    }

    fn happens(&mut self, thousandth: u64) -> bool {
        self.random.below(1000) < thousandth
    }

    fn send(&mut self, from: u64, subject: &str, message: &Incoming) {
        let subscribers = self.subscriptions.remove(subject).unwrap_or_default();
        let mut is_heard = false;
        for subscriber in &subscribers {
            let Some(inbox) = subscriber.inbox.upgrade() else { continue };
            if !self.reaches(from, subscriber.life) {
                continue;
            }
            is_heard = true;
            self.steps += 1;
            let is_answer = subject.starts_with("inbox.");
            let is_long = |(life, most)| life == subscriber.life && message.payload.len() > most;
            if self.happens(self.bad) || is_answer && self.narrow.is_some_and(is_long) {
                continue;
            }
            for _ in 0..1 + u32::from(self.happens(self.bad)) {
                self.deliver(&inbox, message.clone());
            }
        }
        let there: Vec<_> =
            subscribers.into_iter().filter(|it| it.inbox.strong_count() > 0).collect();
        if !there.is_empty() {
            self.subscriptions.insert(subject.to_owned(), there);
        }
        if let Some(reply) = message.reply.as_ref().filter(|_| !is_heard) {
            let payload = Bytes::new();
            self.send(from, reply, &Incoming { payload, reply: None, is_unheard: true });
        }
    }

    fn deliver(&mut self, inbox: &Inbox, message: Incoming) {
        let overtakes = self.happens(self.bad);
        let way = Duration::from_millis(1 + self.random.below(WAY));
        let mut messages = lock(&inbox.messages);
        let due = messages.back().map_or(Instant::now(), |(due, _)| *due);
        let due = due.max(Instant::now() + way);
        let at = messages.len() - usize::from(overtakes && !messages.is_empty());
        messages.insert(at, (due, message));
        drop(messages);
        inbox.came.notify_one();
    }
}

/// The connection of one node, for one of its lives.
#[derive(Debug)]
pub(super) struct SimulatedBus {
    network: Arc<Network>,
    node: String,
    life: u64,
    clock: Clock,
}

impl SimulatedBus {
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

    /// Puts the node on a side.
    pub(super) fn move_to(&self, side: u8) {
        if let Some(life) = self.state().lives.get_mut(&self.life) {
            life.side = side;
        }
    }

    /// From now on, answers of more bytes than these do not come to this node.
    pub(super) fn narrow(&self, most: usize) {
        self.state().narrow = Some((self.life, most));
    }

    /// Takes the connection away, or gives it back.
    pub(super) fn cut(&self, is_cut: bool) {
        let now = self.clock.now();
        if let Some(life) = self.state().lives.get_mut(&self.life) {
            if life.is_cut && !is_cut {
                life.connected = now;
            }
            life.is_cut = is_cut;
        }
    }

    /// Waits until the bucket has answered, or for ever where this node has ended. Says whether it was heard, and
    /// whether its answer is.
    async fn ask_bucket(&self) -> Result<bool, Failed> {
        let (reaches, way, is_lost) = {
            let mut state = self.state();
            state.steps += 1;
            let life = state.lives.get(&self.life).copied();
            let reaches = life.is_some_and(|it| !it.is_cut && Some(it.side) == state.bucket_side);
            let bad = state.bad;
            (reaches, state.random.below(WAY), state.happens(bad))
        };
        sleep(Duration::from_millis(1 + way)).await;
        if !self.is_alive() {
            pending::<()>().await;
        }
        if !reaches {
            sleep(PATIENCE).await;
            return Err(Failed("the bucket does not answer".to_owned()));
        }
        Ok(is_lost)
    }

    /// The answer, unless it was lost.
    async fn answered<T>(&self, answer: T, is_lost: bool) -> Result<T, Failed> {
        if !is_lost {
            return Ok(answer);
        }
        sleep(PATIENCE).await;
        Err(Failed("the answer was lost".to_owned()))
    }
}

/// Lets a key end. The bucket then keeps a note for as long as the key lasted.
fn age(state: &mut State, key: &str) {
    let now = Instant::now();
    let Some(held) = state.bucket.get_mut(key).filter(|held| held.until <= now) else { return };
    if held.value.is_empty() {
        state.bucket.remove(key);
    } else {
        state.revision += 1;
        held.revision = state.revision;
        held.value = Bytes::new();
        held.until += LASTS;
        age(state, key);
    }
}

impl Bus for SimulatedBus {
    fn is_connected(&self) -> bool {
        self.state().lives.get(&self.life).is_some_and(|life| !life.is_cut)
    }

    fn connected(&self) -> UnixMicros {
        self.state().lives.get(&self.life).map_or(UnixMicros(0), |life| life.connected)
    }

    fn inbox(&self) -> String {
        let mut state = self.state();
        state.inboxes += 1;
        format!("inbox.{}", state.inboxes)
    }

    fn subscribe(&self, subject: String) -> BoxFuture<'_, Result<Subscription, Failed>> {
        async move {
            if !self.is_alive() {
                pending::<()>().await;
            }
            let inbox = Arc::new(Inbox::default());
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
            if !self.is_alive() {
                pending::<()>().await;
            }
            let mut state = self.state();
            if subject.starts_with("headwater.") {
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
