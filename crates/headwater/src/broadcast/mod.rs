//! Pushes live streams to many viewers: each part wakes each event loop once, not each viewer.
//!
//! ```text
//!                                     ┌ subscriber   socket
//! parts ─ Broadcast (loop, tracks) ───┼ subscriber   socket     one write each, no task woken
//!                                     └ subscriber ─ takes less ─▶ its own task: the rest, its own cursor
//!                                          ▲                            │
//!                                          └───────── all sent ─────────┘
//! ```
//!
//! A viewer at the live edge with nothing unsent is *subscribed*: its task sleeps until its socket
//! has input or [`Subscription::poll_left`] is ready. The broadcast collects the parts of a flush
//! interval, joins them into one run of bytes for all, and writes this run to each subscriber's
//! socket. If a socket takes less, the subscription ends. The viewer's own task then sends the rest
//! and goes on with its own cursor; the viewer is subscribed again once it has caught up. Some
//! messages are for some viewers only: the stream's end, other tracks, or that a viewer fell
//! behind. Their own tasks send these, so the broadcast ends all subscriptions for that.
//!
//! Subscribers, their tasks and the broadcast are on one thread. A subscriber is always at a
//! boundary between parts, so its task may write other messages if it writes each of them whole.

mod follower;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
pub use follower::{BURST, Burst, Container, Follower, PIECES};
use follower::{Bookmark, Item};
use http::Transport;
use live::cursor::{Choice, Limits, Next, Stir};
use live::{Stream, Track, UnixMicros};
use slab::Slab;
use tokio::task::{spawn_local, yield_now};
use tokio::time::Instant;

use crate::sessions::Meter;

/// Subscribers written to before the loop's other tasks have their turn: a millisecond or two.
const TURN: usize = 128;

/// Time between two looks at a watched subscriber.
const LOOKS: Duration = Duration::from_millis(390);

/// Watched subscribers are looked at in this many groups, one group at a time. All subscribers that
/// are served after a look wait for it.
const SHARES: u32 = 8;

/// The broadcast's own cursor is never too slow: each subscriber gets everything.
const UNLIMITED: Limits = Limits { queue: u64::MAX, patience: Duration::MAX };

/// Where a subscriber's bytes go.
pub trait Line {
    /// Writes once. Returns the number of bytes taken.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is no room, and errors of the connection.
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize>;

    /// Whether it has taken bytes that are not yet in the kernel.
    fn holds(&self) -> bool {
        false
    }

    /// Whether it wants [looks](Self::look). The answer counts from when the viewer subscribes.
    fn is_watched(&self) -> bool {
        false
    }

    /// Called about twice a second, before a write. Returns whether the subscription must end.
    fn look(&self) -> bool {
        false
    }
}

impl<T: Transport> Line for T {
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.try_write_vectored(&[IoSlice::new(bytes)])
    }

    fn holds(&self) -> bool {
        Transport::holds(self)
    }
}

/// The broadcasts of one event loop and container.
pub struct Broadcasts<C> {
    container: C,
    interval: Duration,
    /// Broadcasts by the addresses of their tracks. A broadcast keeps its tracks alive.
    broadcasts: RefCell<HashMap<Key, Weak<Broadcast>>>,
}

type Key = Vec<*const Track>;

/// The subscribers of the same tracks.
struct Broadcast {
    stream: Arc<Stream>,
    tracks: Box<[Arc<Track>]>,
    subscribers: RefCell<Slab<Subscriber>>,
    /// The current batch, or the last one.
    batch: RefCell<Rc<Batch>>,
    began: Instant,
    /// When subscribers were last looked at, as time since `began`.
    looked: Cell<Duration>,
    /// Whether the broadcast's task has ended.
    over: Cell<bool>,
}

/// What all subscribers get at one time.
struct Batch {
    /// Counts from 0; batch 0 is empty.
    number: u64,
    items: Vec<Item>,
    /// The items joined together.
    joined: Bytes,
    /// The groups of subscribers to look at before they get the batch, one bit each.
    looks: u32,
    /// The place of a viewer that has the items.
    end: Rc<Bookmark>,
}

struct Subscriber {
    line: Rc<dyn Line>,
    meter: Meter,
    /// Number of the last batch that it got or did not need.
    served: u64,
    /// Its place, if it joined with parts that the broadcast has yet to write.
    ahead: Option<Rc<Bookmark>>,
    is_watched: bool,
    /// Wakes the viewer's task.
    waker: Option<Waker>,
    off: Option<Box<Off>>,
}

/// How a subscription ended.
struct Off {
    error: Option<io::Error>,
    unsent: Bytes,
    at: Rc<Bookmark>,
}

/// A viewer's subscription to a broadcast. Dropping it ends the subscription and drops unsent
/// bytes.
pub struct Subscription {
    broadcast: Rc<Broadcast>,
    key: Option<usize>,
}

impl<C: Container + 'static> Broadcasts<C> {
    /// Makes it without broadcasts. Parts are held back for at most `interval`.
    pub fn new(container: C, interval: Duration) -> Rc<Self> {
        Rc::new(Self { container, interval, broadcasts: RefCell::default() })
    }

    /// Subscribes a viewer. Everything before its place must have been written to its line. Returns
    /// the follower if the viewer must go on alone for now: it is not at the live edge, has not
    /// kept up for long enough, or lacks something that all subscribers have.
    ///
    /// # Errors
    /// The follower itself is the only error.
    pub fn join(
        self: &Rc<Self>,
        stream: &Arc<Stream>,
        mut follower: Box<Follower>,
        (line, meter): (&Rc<impl Line + 'static>, &Meter),
    ) -> Result<Subscription, Box<Follower>> {
        if follower.cursor.is_behind() || !follower.cursor.is_at_edge() {
            return Err(follower);
        }
        meter.is_behind(0.0);
        let key: Key = follower.cursor.tracks().map(Arc::as_ptr).collect();
        let known = self.broadcasts.borrow().get(&key).and_then(Weak::upgrade);
        let broadcast = match known.filter(|broadcast| !broadcast.over.get()) {
            Some(broadcast) => {
                let here = follower.bookmark();
                let batch = Rc::clone(&broadcast.batch.borrow());
                if !here.is_not_before(&batch.end) {
                    return Err(follower);
                }
                let ahead = (here != *batch.end).then(|| Rc::new(here));
                return Ok(Broadcast::subscription(&broadcast, (line, meter), batch.number, ahead));
            }
            None => Rc::new(Broadcast::new(Arc::clone(stream), &follower)),
        };
        self.broadcasts.borrow_mut().insert(key.clone(), Rc::downgrade(&broadcast));
        let subscription = Broadcast::subscription(&broadcast, (line, meter), 0, None);
        let end = End { broadcasts: Rc::clone(self), key, broadcast };
        spawn_local(lead(end, *follower));
        Ok(subscription)
    }

    /// The container that writes the parts.
    pub fn container(&self) -> &C {
        &self.container
    }

    /// Collects everything from the follower's place on. The flag tells whether that was all.
    /// Otherwise the follower has skipped parts or cannot go on.
    fn gather(&self, follower: &mut Follower) -> (Vec<Item>, Bookmark, bool) {
        let mut items = Vec::new();
        loop {
            let before = follower.bookmark();
            // The time is for limits, and there are none.
            match follower.cursor.poll(UnixMicros::default()) {
                None => return (items, follower.bookmark(), true),
                Some(Next::Part { track, segment, part }) => {
                    match follower.item(&self.container, (track, &segment, &part)) {
                        Ok(Some(item)) => items.push(item),
                        Ok(None) | Err(_) => return (items, before, false),
                    }
                }
                Some(_) => return (items, before, false),
            }
        }
    }
}

/// Runs a broadcast while it has subscribers and parts come.
async fn lead<C: Container + 'static>(end: End<C>, mut follower: Follower) {
    let End { broadcasts, broadcast, .. } = &end;
    follower.cursor = follower.cursor.with_limits(UNLIMITED).with_choice(Choice::default());
    let renditions = follower.cursor.renditions();
    while follower.cursor.stir().await == Stir::Parts && !broadcast.subscribers.borrow().is_empty()
    {
        if !broadcasts.interval.is_zero() {
            tokio::time::sleep(broadcasts.interval).await;
        }
        let (items, place, complete) = broadcasts.gather(&mut follower);
        broadcast.hand_out(items, place).await;
        // The subscribers' own tasks decide which of the new tracks each viewer may get.
        if !complete || !is_same(&renditions, &follower.cursor.renditions()) {
            return;
        }
    }
}

fn is_same(one: &[Arc<Track>], other: &[Arc<Track>]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| Arc::ptr_eq(one, other))
}

/// Tells the subscribers when a broadcast's task ends, for whatever reason.
struct End<C> {
    broadcasts: Rc<Broadcasts<C>>,
    key: Key,
    broadcast: Rc<Broadcast>,
}

impl<C> Drop for End<C> {
    fn drop(&mut self) {
        self.broadcast.over.set(true);
        self.broadcasts.broadcasts.borrow_mut().remove(&self.key);
        let batch = Rc::clone(&self.broadcast.batch.borrow());
        for (_, subscriber) in self.broadcast.subscribers.borrow_mut().iter_mut() {
            if subscriber.off.is_none() {
                let (unsent, at) = subscriber.take_due(&batch);
                subscriber.put_off(Off { error: None, unsent, at });
            }
        }
    }
}

impl Broadcast {
    fn new(stream: Arc<Stream>, first: &Follower) -> Self {
        let end = Rc::new(first.bookmark());
        let batch = Batch { number: 0, items: Vec::new(), joined: Bytes::new(), looks: 0, end };
        Self {
            stream,
            tracks: first.cursor.tracks().cloned().collect(),
            subscribers: RefCell::default(),
            batch: RefCell::new(Rc::new(batch)),
            began: Instant::now(),
            looked: Cell::default(),
            over: Cell::new(false),
        }
    }

    fn subscription(
        broadcast: &Rc<Self>,
        (line, meter): (&Rc<impl Line + 'static>, &Meter),
        served: u64,
        ahead: Option<Rc<Bookmark>>,
    ) -> Subscription {
        let is_watched = line.is_watched();
        let (line, meter) = (Rc::clone(line) as Rc<dyn Line>, meter.clone());
        let subscriber =
            Subscriber { line, meter, served, ahead, is_watched, waker: None, off: None };
        let key = broadcast.subscribers.borrow_mut().insert(subscriber);
        Subscription { broadcast: Rc::clone(broadcast), key: Some(key) }
    }

    /// Writes to every subscriber. A viewer that joins meanwhile misses nothing.
    async fn hand_out(&self, items: Vec<Item>, end: Bookmark) {
        let number = self.batch.borrow().number + 1;
        let joined = join(follower::all(&items));
        let now = self.began.elapsed();
        let looks = due(self.looked.replace(now), now);
        let batch = Rc::new(Batch { number, items, joined, looks, end: Rc::new(end) });
        *self.batch.borrow_mut() = Rc::clone(&batch);
        let mut key = 0;
        while self.serve(key, &batch) {
            key += TURN;
            yield_now().await;
        }
    }

    /// Writes to some subscribers, from `key` on. Returns whether there may be more.
    fn serve(&self, key: usize, batch: &Batch) -> bool {
        let mut subscribers = self.subscribers.borrow_mut();
        for key in key..key + TURN {
            if let Some(subscriber) = subscribers.get_mut(key)
                && subscriber.off.is_none()
                && subscriber.served < batch.number
            {
                subscriber.serve(batch, batch.looks >> (key % SHARES as usize) & 1 == 1);
            }
        }
        key + TURN < subscribers.capacity()
    }
}

impl Subscriber {
    fn serve(&mut self, batch: &Batch, looks: bool) {
        let (mut unsent, at) = self.take_due(batch);
        if looks && self.is_watched && self.line.look() {
            return self.put_off(Off { error: None, unsent, at });
        }
        if unsent.is_empty() {
            return;
        }
        let written = self.line.try_write(&unsent);
        if let Ok(written) = written {
            self.meter.add(written as u64);
        }
        let error = match written {
            Ok(written) if written == unsent.len() && !self.line.holds() => return,
            Ok(written) => {
                unsent = unsent.slice(written..);
                None
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(error) => Some(error),
        };
        self.put_off(Off { error, unsent, at });
    }

    /// The bytes of the batch that it still lacks, and its place after them.
    fn take_due(&mut self, batch: &Batch) -> (Bytes, Rc<Bookmark>) {
        let is_served = std::mem::replace(&mut self.served, batch.number) == batch.number;
        let ahead = self.ahead.take();
        match (is_served, ahead) {
            (true, ahead) => (Bytes::new(), ahead.unwrap_or_else(|| Rc::clone(&batch.end))),
            (false, None) => (batch.joined.clone(), Rc::clone(&batch.end)),
            (false, Some(ahead)) => (join(ahead.lacks(&batch.items)), Rc::clone(&batch.end)),
        }
    }

    fn put_off(&mut self, off: Off) {
        self.off = Some(Box::new(off));
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Subscription {
    /// Ready when the broadcast has ended the subscription. Until then, everything that the viewer
    /// was given is written.
    pub fn poll_left(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut subscribers = self.broadcast.subscribers.borrow_mut();
        let Some(subscriber) = self.key.and_then(|key| subscribers.get_mut(key)) else {
            return Poll::Ready(());
        };
        if subscriber.off.is_some() {
            return Poll::Ready(());
        }
        if !subscriber.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            subscriber.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Ends the subscription. Returns the bytes to write next, and the follower that goes on after
    /// them.
    ///
    /// # Errors
    /// The last write failed.
    pub fn leave(mut self, limits: Limits) -> io::Result<(Bytes, Follower)> {
        let subscriber =
            self.key.take().map(|key| self.broadcast.subscribers.borrow_mut().remove(key));
        let Some(mut subscriber) = subscriber else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let (unsent, at) = match subscriber.off.take() {
            Some(off) => match off.error {
                Some(error) => return Err(error),
                None => (off.unsent, off.at),
            },
            None => subscriber.take_due(&self.broadcast.batch.borrow()),
        };
        Ok((unsent, Follower::at(&self.broadcast.stream, &self.broadcast.tracks, &at, limits)))
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.broadcast.subscribers.borrow_mut().try_remove(key);
        }
    }
}

/// The groups whose turn for a look has come between these times, one bit each.
fn due(before: Duration, now: Duration) -> u32 {
    let turns = |time: Duration| time.as_micros() * u128::from(SHARES) / LOOKS.as_micros();
    let due = (turns(before)..turns(now)).take(SHARES as usize);
    due.fold(0, |shares, turn| shares | 1 << (turn % u128::from(SHARES)))
}

/// Joins pieces into one run of bytes. Then a write has one range for each subscriber, and a slow
/// subscriber keeps one piece. The bytes are copied once for all.
fn join(mut pieces: Vec<Bytes>) -> Bytes {
    if let [_] = pieces[..] {
        return pieces.remove(0);
    }
    let mut joined = BytesMut::with_capacity(pieces.iter().map(Bytes::len).sum());
    for piece in pieces {
        joined.extend_from_slice(&piece);
    }
    joined.freeze()
}
