//! A message system that loses, doubles, delays and reorders messages, falls into sides that do not hear each other, and
//! has a bucket that goes away. Nodes use it by their connections ([`bus`](super::bus)).

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use live::UnixMicros;
use testkit::Random;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::super::bus::Incoming;
use super::super::lease::LASTS;
use super::bus::SimulatedBus;
use crate::clock::Clock;

/// The longest way of a message that is not held up.
pub(super) const WAY: u64 = 20;
/// [`State::most_waiting`] at first.
const MOST_WAITING: usize = 256;

/// What all nodes share.
#[derive(Debug)]
pub(super) struct Network(pub(super) Mutex<State>);

#[derive(Debug)]
pub(super) struct State {
    pub(super) random: Random,
    /// How many messages in a thousand are lost. As many come twice, and as many overtake one.
    pub(super) bad: u64,
    pub(super) subscriptions: BTreeMap<String, Vec<Subscriber>>,
    /// A life that gets no answers of more bytes than this.
    pub(super) narrow: Option<(u64, usize)>,
    /// The most messages that wait for a subscriber. Further ones are lost.
    most_waiting: usize,
    /// The lives of nodes that go on. A node that starts again has another one.
    pub(super) lives: HashMap<u64, Life>,
    /// The side on which the bucket is, if it is there at all.
    pub(super) bucket_side: Option<u8>,
    pub(super) bucket: BTreeMap<String, Held>,
    pub(super) revision: u64,
    pub(super) named: u64,
    /// Messages that came or were lost, and uses of the bucket.
    pub(super) steps: u64,
    /// How many messages were sent to subjects that are not inboxes, without questions whether a node is there.
    pub(super) sent: HashMap<String, usize>,
    /// The life that told changes of a stream, by the name of the stream and the epoch of the lease.
    pub(super) tellers: HashMap<(String, u64), u64>,
}

#[derive(Debug)]
pub(super) struct Subscriber {
    pub(super) life: u64,
    pub(super) inbox: Weak<Inbox>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Life {
    /// Nodes of one side hear each other.
    pub(super) side: u8,
    /// Whether the node has no connection.
    pub(super) is_cut: bool,
    /// Whether the bucket does not hear the node, though all nodes do.
    pub(super) lacks_bucket: bool,
    /// Whether the node believes that it is connected, where it is wrong about that.
    pub(super) believes: Option<bool>,
    pub(super) connected: UnixMicros,
    /// The link to the node. `up` is the link from the node.
    pub(super) down: Link,
    pub(super) up: Link,
}

/// One direction of a node's link.
#[derive(Debug, Clone, Copy)]
pub(super) struct Link {
    /// Bytes a second; `None` for as many as there are.
    pub(super) rate: Option<u64>,
    /// When all bytes that were sent so far are through.
    free: Instant,
}

impl Link {
    fn new() -> Self {
        Self { rate: None, free: Instant::now() }
    }

    /// When a message of so many bytes is through, after those before it.
    pub(super) fn carry(&mut self, bytes: usize) -> Instant {
        let Some(rate) = self.rate else { return Instant::now() };
        let takes = Duration::from_micros(bytes as u64 * 1_000_000 / rate);
        self.free = self.free.max(Instant::now()) + takes;
        self.free
    }
}

/// A key of the bucket.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) revision: u64,
    pub(super) value: Bytes,
    pub(super) until: Instant,
}

/// Messages on their way to one subscription.
#[derive(Debug)]
pub(super) struct Inbox {
    messages: Mutex<VecDeque<(Instant, Incoming)>>,
    came: Notify,
    /// Until when the node stands still.
    still: Arc<Mutex<Instant>>,
}

impl Inbox {
    pub(super) fn new(still: &Arc<Mutex<Instant>>) -> Self {
        Self { messages: Mutex::default(), came: Notify::new(), still: Arc::clone(still) }
    }

    pub(super) async fn next(&self) -> Incoming {
        loop {
            let came = self.came.notified();
            let due = {
                let mut messages = lock(&self.messages);
                let still = *lock(&self.still);
                let due = messages.front().map(|&(due, _)| due.max(still));
                if due.is_some_and(|due| due <= Instant::now()) {
                    return messages.pop_front().expect("one is due").1;
                }
                due
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

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Network {
    pub(super) fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State {
            random: Random::new(seed),
            bad: 0,
            narrow: None,
            most_waiting: MOST_WAITING,
            subscriptions: BTreeMap::new(),
            lives: HashMap::new(),
            bucket_side: Some(0),
            bucket: BTreeMap::new(),
            revision: 0,
            named: 0,
            steps: 0,
            sent: HashMap::new(),
            tellers: HashMap::new(),
        })))
    }

    /// Connects a node that starts. It has this clock.
    pub(super) fn join(self: &Arc<Self>, node: &str, clock: Clock) -> Arc<SimulatedBus> {
        let mut state = lock(&self.0);
        let life = state.named;
        state.named += 1;
        let connected = clock.now();
        let (down, up) = (Link::new(), Link::new());
        let (is_cut, lacks_bucket) = (false, false);
        let life_of = Life { side: 0, is_cut, lacks_bucket, believes: None, connected, down, up };
        state.lives.insert(life, life_of);
        Arc::new(SimulatedBus::new(Arc::clone(self), node.to_owned(), life, clock))
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

    /// How many messages wait for a subscriber at most.
    pub(super) fn keep_at_most(&self, most: usize) {
        lock(&self.0).most_waiting = most;
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

    pub(super) fn happens(&mut self, thousandth: u64) -> bool {
        self.random.below(1000) < thousandth
    }

    pub(super) fn send(&mut self, from: u64, subject: &str, message: &Incoming) {
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
                self.deliver(subscriber.life, &inbox, message.clone());
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

    /// Everything that is on its way to a node comes now.
    pub(super) fn hurry(&self, life: u64) {
        for inbox in self.inboxes(life) {
            let now = Instant::now();
            lock(&inbox.messages).iter_mut().for_each(|(due, _)| *due = now.min(*due));
        }
        self.wake(life);
    }

    /// Lets the subscriptions of a node look again when their next message is due.
    pub(super) fn wake(&self, life: u64) {
        self.inboxes(life).for_each(|inbox| inbox.came.notify_one());
    }

    fn inboxes(&self, life: u64) -> impl Iterator<Item = Arc<Inbox>> {
        let subscribers = self.subscriptions.values().flatten();
        let of = subscribers.filter(move |subscriber| subscriber.life == life);
        of.filter_map(|subscriber| subscriber.inbox.upgrade())
    }

    fn deliver(&mut self, to: u64, inbox: &Inbox, message: Incoming) {
        let overtakes = self.happens(self.bad);
        let way = Duration::from_millis(1 + self.random.below(WAY));
        let mut messages = lock(&inbox.messages);
        let has_room = messages.len() < self.most_waiting;
        let Some(life) = self.lives.get_mut(&to).filter(|_| has_room) else {
            return;
        };
        let through = life.down.carry(message.payload.len());
        let due = messages.back().map_or(through, |(due, _)| *due);
        let due = due.max(through + way);
        let at = messages.len() - usize::from(overtakes && !messages.is_empty());
        messages.insert(at, (due, message));
        drop(messages);
        inbox.came.notify_one();
    }
}

/// Lets a key end. The bucket then keeps a note for as long as the key lasted.
pub(super) fn age(state: &mut State, key: &str) {
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
