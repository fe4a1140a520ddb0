//! Live streams to many viewers by push: one wake for each event loop and part, not for each viewer.
//!
//! ```text
//!                               ┌ rider   socket
//! parts ─ Fan (loop, tracks) ───┼ rider   socket     one write each, no task woken
//!                               └ rider ─ takes less ─▶ its own task: the rest, a cursor of its own
//!                                    ▲                    │
//!                                    └── all sent ────────┘
//! ```
//!
//! A viewer that is at the live edge and has nothing unsent *rides*: its task sleeps on its socket's
//! readability and on [`Seat::poll_left`]. The fan gathers what comes within the flush interval, joins it
//! to one run of bytes for all, and writes that to each rider's socket. One whose socket takes less
//! is put off, with the rest and the place from which its own cursor goes on, and rides again once
//! it has caught up. What only some viewers must hear (the stream's end, other tracks, that they
//! fell behind) is said by their own tasks: the fan puts all off for that.
//!
//! Riders, their tasks and the fan are on one thread. A rider is always at a boundary between parts,
//! so its task may write what else it has to say as long as that goes out whole.

mod follower;
mod outbox;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use follower::{Bookmark, Item};
pub use follower::{Container, Follower};
use live::cursor::{Choice, Limits, Next, Stir};
use live::{Stream, Track, UnixMicros};
pub use outbox::Outbox;
use slab::Slab;
use tokio::net::TcpStream;
use tokio::task::{spawn_local, yield_now};
use tokio::time::Instant;

/// Riders written to before the loop's other tasks have their turn: a millisecond or two.
const TURN: usize = 128;

/// Between two looks at a rider that is to be looked at.
const LOOKS: Duration = Duration::from_millis(390);

/// Of riders that are to be looked at, one in so many has its turn at a time: looks are time that all
/// after them wait for what they get.
const SHARES: u32 = 8;

/// A fan itself is never too slow: whoever rides it gets all there is.
const UNLIMITED: Limits = Limits { queue: u64::MAX, patience: Duration::MAX };

/// Where a rider's bytes go.
pub trait Line {
    /// One write; how many bytes were taken.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is no room, and those of the connection.
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize>;

    /// Whether it has taken bytes that the kernel has not got yet.
    fn holds(&self) -> bool {
        false
    }

    /// Whether it is to be [looked](Self::look) at, as of when the viewer gets on.
    fn is_watched(&self) -> bool {
        false
    }

    /// To be called about twice a second, before something is written: whether the viewer has to get
    /// off.
    fn look(&self) -> bool {
        false
    }
}

impl Line for TcpStream {
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        Self::try_write(self, bytes)
    }
}

/// The fans of one event loop and container.
pub struct Fans<C> {
    container: C,
    interval: Duration,
    /// By the addresses of the tracks, which a fan keeps.
    fans: RefCell<HashMap<Key, Weak<Fan>>>,
}

type Key = Vec<*const Track>;

/// Riders of the same tracks.
struct Fan {
    stream: Arc<Stream>,
    tracks: Box<[Arc<Track>]>,
    riders: RefCell<Slab<Rider>>,
    /// What is being handed out, or was last.
    batch: RefCell<Rc<Batch>>,
    began: Instant,
    /// When riders were looked at, since it began.
    looked: Cell<Duration>,
    /// Nobody hands out anything any more.
    over: Cell<bool>,
}

/// What riders get at one time.
struct Batch {
    /// Counts from 0, which has nothing.
    number: u64,
    items: Vec<Item>,
    /// The items one after the other.
    joined: Bytes,
    /// Which shares of the riders, a bit each, are looked at before they get it.
    looks: u32,
    /// Where a viewer is that has them.
    end: Rc<Bookmark>,
}

struct Rider {
    line: Rc<dyn Line>,
    /// Number of the last batch that it was given or had no need of.
    served: u64,
    /// Where it is, if it joined with parts that the fan has yet to hand out.
    ahead: Option<Rc<Bookmark>>,
    is_watched: bool,
    /// Of its task.
    waker: Option<Waker>,
    off: Option<Box<Off>>,
}

/// How a rider came off.
struct Off {
    error: Option<io::Error>,
    unsent: Bytes,
    at: Rc<Bookmark>,
}

/// A viewer's place on a fan. Dropping it gives the place up, and what was not sent.
pub struct Seat {
    fan: Rc<Fan>,
    key: Option<usize>,
}

impl<C: Container + 'static> Fans<C> {
    /// None yet; parts are held back for at most `interval`.
    pub fn new(container: C, interval: Duration) -> Rc<Self> {
        Rc::new(Self { container, interval, fans: RefCell::default() })
    }

    /// Lets a viewer ride to whose line everything before its place was written. It is given back
    /// if it has to go on by itself for now: it is not at the live edge, has not kept up for long
    /// enough, or lacks something that all riders have.
    ///
    /// # Errors
    /// None but the follower itself.
    pub fn join(
        self: &Rc<Self>,
        stream: &Arc<Stream>,
        mut follower: Box<Follower>,
        line: &Rc<impl Line + 'static>,
    ) -> Result<Seat, Box<Follower>> {
        if follower.cursor.is_behind() || !follower.cursor.is_at_edge() {
            return Err(follower);
        }
        let key: Key = follower.cursor.tracks().map(Arc::as_ptr).collect();
        let known = self.fans.borrow().get(&key).and_then(Weak::upgrade);
        let fan = match known.filter(|fan| !fan.over.get()) {
            Some(fan) => {
                let here = follower.bookmark();
                let batch = Rc::clone(&fan.batch.borrow());
                if !here.is_not_before(&batch.end) {
                    return Err(follower);
                }
                let ahead = (here != *batch.end).then(|| Rc::new(here));
                return Ok(Fan::seat(&fan, line, batch.number, ahead));
            }
            None => Rc::new(Fan::new(Arc::clone(stream), &follower)),
        };
        self.fans.borrow_mut().insert(key.clone(), Rc::downgrade(&fan));
        let seat = Fan::seat(&fan, line, 0, None);
        let end = End { fans: Rc::clone(self), key, fan };
        spawn_local(lead(end, *follower));
        Ok(seat)
    }

    /// How parts are written.
    pub fn container(&self) -> &C {
        &self.container
    }

    /// What there is from the follower's place on, and whether that was all: if not, the follower
    /// has skipped some or cannot go on.
    fn gather(&self, follower: &mut Follower) -> (Vec<Item>, Bookmark, bool) {
        let mut items = Vec::new();
        loop {
            let before = follower.bookmark();
            // The time is for limits, of which there are none.
            match follower.cursor.poll(UnixMicros::default()) {
                None => return (items, follower.bookmark(), true),
                Some(Next::Part { track, segment, part }) => {
                    match follower.item(&self.container, (track, &segment, &part)) {
                        Ok(item) => items.push(item),
                        Err(_) => return (items, before, false),
                    }
                }
                Some(_) => return (items, before, false),
            }
        }
    }
}

/// A fan's task: while it has riders, and parts come.
async fn lead<C: Container + 'static>(end: End<C>, mut follower: Follower) {
    let End { fans, fan, .. } = &end;
    follower.cursor = follower.cursor.with_limits(UNLIMITED).with_choice(Choice::default());
    let renditions = follower.cursor.renditions();
    while follower.cursor.stir().await == Stir::Parts && !fan.riders.borrow().is_empty() {
        if !fans.interval.is_zero() {
            tokio::time::sleep(fans.interval).await;
        }
        let (items, place, complete) = fans.gather(&mut follower);
        fan.hand_out(items, place).await;
        // Which of them each may be sent is for riders' own tasks to say.
        if !complete || !is_same(&renditions, &follower.cursor.renditions()) {
            return;
        }
    }
}

fn is_same(one: &[Arc<Track>], other: &[Arc<Track>]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| Arc::ptr_eq(one, other))
}

/// However a fan's task ends, its riders learn of it.
struct End<C> {
    fans: Rc<Fans<C>>,
    key: Key,
    fan: Rc<Fan>,
}

impl<C> Drop for End<C> {
    fn drop(&mut self) {
        self.fan.over.set(true);
        self.fans.fans.borrow_mut().remove(&self.key);
        let batch = Rc::clone(&self.fan.batch.borrow());
        for (_, rider) in self.fan.riders.borrow_mut().iter_mut() {
            if rider.off.is_none() {
                let (unsent, at) = rider.take_due(&batch);
                rider.put_off(Off { error: None, unsent, at });
            }
        }
    }
}

impl Fan {
    fn new(stream: Arc<Stream>, first: &Follower) -> Self {
        let end = Rc::new(first.bookmark());
        let batch = Batch { number: 0, items: Vec::new(), joined: Bytes::new(), looks: 0, end };
        Self {
            stream,
            tracks: first.cursor.tracks().cloned().collect(),
            riders: RefCell::default(),
            batch: RefCell::new(Rc::new(batch)),
            began: Instant::now(),
            looked: Cell::default(),
            over: Cell::new(false),
        }
    }

    fn seat(
        fan: &Rc<Self>,
        line: &Rc<impl Line + 'static>,
        served: u64,
        ahead: Option<Rc<Bookmark>>,
    ) -> Seat {
        let is_watched = line.is_watched();
        let line = Rc::clone(line) as Rc<dyn Line>;
        let rider = Rider { line, served, ahead, is_watched, waker: None, off: None };
        let key = fan.riders.borrow_mut().insert(rider);
        Seat { fan: Rc::clone(fan), key: Some(key) }
    }

    /// Writes to every rider. Those that join meanwhile are behind nothing of it.
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

    /// Writes to some riders from `key` on; whether there may be more.
    fn serve(&self, key: usize, batch: &Batch) -> bool {
        let mut riders = self.riders.borrow_mut();
        for key in key..key + TURN {
            if let Some(rider) = riders.get_mut(key)
                && rider.off.is_none()
                && rider.served < batch.number
            {
                rider.serve(batch, batch.looks >> (key % SHARES as usize) & 1 == 1);
            }
        }
        key + TURN < riders.capacity()
    }
}

impl Rider {
    fn serve(&mut self, batch: &Batch, looks: bool) {
        let (mut unsent, at) = self.take_due(batch);
        if looks && self.is_watched && self.line.look() {
            return self.put_off(Off { error: None, unsent, at });
        }
        if unsent.is_empty() {
            return;
        }
        let error = match self.line.try_write(&unsent) {
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

    /// What it has yet to be given of the batch, and where it is then.
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

impl Seat {
    /// Ready when the fan has put the viewer off. Until then everything it was given is written.
    pub fn poll_left(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut riders = self.fan.riders.borrow_mut();
        let Some(rider) = self.key.and_then(|key| riders.get_mut(key)) else {
            return Poll::Ready(());
        };
        if rider.off.is_some() {
            return Poll::Ready(());
        }
        if !rider.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            rider.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Gets off: what is to be written next, and who goes on after it.
    ///
    /// # Errors
    /// The last write failed.
    pub fn leave(mut self, limits: Limits) -> io::Result<(Bytes, Follower)> {
        let rider = self.key.take().map(|key| self.fan.riders.borrow_mut().remove(key));
        let Some(mut rider) = rider else { return Err(io::ErrorKind::NotConnected.into()) };
        let (unsent, at) = match rider.off.take() {
            Some(off) => match off.error {
                Some(error) => return Err(error),
                None => (off.unsent, off.at),
            },
            None => rider.take_due(&self.fan.batch.borrow()),
        };
        Ok((unsent, Follower::at(&self.fan.stream, &self.fan.tracks, &at, limits)))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.fan.riders.borrow_mut().try_remove(key);
        }
    }
}

/// Shares whose turn to be looked at has come between these times, a bit each.
fn due(before: Duration, now: Duration) -> u32 {
    let turns = |time: Duration| time.as_micros() * u128::from(SHARES) / LOOKS.as_micros();
    let due = (turns(before)..turns(now)).take(SHARES as usize);
    due.fold(0, |shares, turn| shares | 1 << (turn % u128::from(SHARES)))
}

/// One run of bytes, so that a rider costs the kernel one range and what a slow one keeps is one
/// piece. Copied once for all.
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
