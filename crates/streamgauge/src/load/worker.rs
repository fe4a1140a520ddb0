//! One event loop: requests when they are due, over connections of its own.
//!
//! ```text
//! demand ─▶ ready ─▶ dispatch ─▶ connections ─▶ answers ─▶ tally
//!             ▲         │ ▲           │             │
//!             │         ▼ │           │             │
//!             │       waiting         │             │
//!             └── sent again ─────────┴─ redirected ┘
//! ```
//!
//! It shares nothing with the other loops but counters that they read, and asks the kernel twice
//! for an exchange: to send, and to receive.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

use super::check::Reference;
use super::clock::{Clock, ThreadTime, nanoseconds};
use super::connection::{Answer, Asked, Connection, Exchange, Io, Trouble};
use super::demand::Demand;
use super::several::source_for;
use super::tally::{Fault, Shared, Tally};
use super::target::{Target, of_request};
use super::url::{Origin, Scheme, Url};
use super::{Plan, bare, probe};

/// Between two looks for what has timed out, and at the processor's clock.
const TICK: u64 = 100_000_000;
/// How long a client of a closed loop rests when nobody answered its connection.
const REST: Duration = Duration::from_millis(100);
/// Events taken from the kernel at once; the next request is looked for after each such batch.
const BATCH: usize = 64;
/// Waking later than this is a standstill: what had come lay unread, in nanoseconds.
const STANDSTILL: u64 = 1_000_000;
/// The most requests that wait for a connection. Beyond it the schedule waits with the rest, each
/// of which keeps its time.
const MOST_WAITING: usize = 1 << 20;
/// How often a request is sent again, at most.
const MOST_SENT_AGAIN: u8 = 8;

/// What a worker is given.
pub(super) struct Assignment<'a> {
    pub(super) plan: &'a Plan,
    pub(super) demand: Demand,
    /// Where each origin is, as found before the run.
    pub(super) addresses: &'a HashMap<Origin, SocketAddr>,
    pub(super) reference: Option<&'a Reference>,
    /// The most connections it may hold at a time.
    pub(super) connections: usize,
    /// The address they come from, if that matters.
    pub(super) source: Option<IpAddr>,
    /// When the clients of a closed loop begin, if not all at once.
    pub(super) starts: Vec<u64>,
    pub(super) clock: Clock,
    pub(super) shared: &'a Shared,
    pub(super) stop: &'a AtomicBool,
}

/// One server that is asked.
struct Peer {
    origin: Origin,
    address: SocketAddr,
    /// Connections without a request, the latest used last.
    idle: VecDeque<Key>,
    /// Connections with fewer requests than may be pipelined.
    partial: VecDeque<Key>,
}

/// A connection's place and the count of its users, so that a name of one that has gone is known
/// as such.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    place: u32,
    user: u32,
}

impl Key {
    fn to_bits(self) -> u64 {
        u64::from(self.user) << 32 | u64::from(self.place)
    }

    fn from_bits(bits: u64) -> Self {
        Self { place: bits as u32, user: (bits >> 32) as u32 }
    }
}

#[derive(Default)]
struct Place {
    user: u32,
    connection: Option<Connection>,
    in_idle: bool,
    in_partial: bool,
    touched: bool,
}

pub(super) struct Worker<'a> {
    given: Assignment<'a>,
    asked: Vec<Rc<Asked>>,
    peers: Vec<Peer>,
    epoll: OwnedFd,
    places: Vec<Place>,
    free: Vec<u32>,
    ready: VecDeque<Exchange>,
    waiting: VecDeque<Exchange>,
    /// When clients that rest go on.
    resting: BinaryHeap<Reverse<u64>>,
    /// When connections that read slowly go on.
    paused: BinaryHeap<Reverse<(u64, Key)>>,
    /// Connections with something to send.
    touched: Vec<Key>,
    answers: Vec<Answer>,
    /// Nanoseconds, in all, by which it woke later than it wanted, where that was a standstill.
    standstill: u64,
    io: Io<'a>,
    tally: Tally,
}

impl<'a> Worker<'a> {
    pub(super) fn new(mut given: Assignment<'a>) -> std::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let io = Io::new(given.clock, given.reference);
        let resting = std::mem::take(&mut given.starts).into_iter().map(Reverse).collect();
        let mut worker = Self {
            given,
            asked: Vec::new(),
            peers: Vec::new(),
            epoll,
            places: Vec::new(),
            free: Vec::new(),
            ready: VecDeque::new(),
            waiting: VecDeque::new(),
            resting,
            paused: BinaryHeap::new(),
            touched: Vec::new(),
            answers: Vec::new(),
            standstill: 0,
            io,
            tally: Tally::default(),
        };
        for target in &worker.given.plan.targets {
            let peer = peer_of(&mut worker.peers, &target.url.origin, worker.given.addresses)?;
            let head = request_head(target, worker.given.plan);
            let bare = bare::answer(target);
            worker.asked.push(Rc::new(Asked { target: target.clone(), peer, head, bare }));
        }
        Ok(worker)
    }

    /// Runs to the end of the demand, until it is stopped, or as long after the end as a run may.
    pub(super) fn run(mut self) -> Tally {
        let clock = self.given.clock;
        let before = ThreadTime::read();
        let began = clock.now();
        let mut events = Vec::with_capacity(BATCH);
        let mut next_tick = 0;
        loop {
            let now = clock.now();
            if self.given.stop.load(Relaxed) || self.given.demand.is_over(now) {
                break;
            }
            self.resume(now);
            self.issue(now);
            if now >= next_tick {
                self.tally.counters.cpu_ns = ThreadTime::cpu().saturating_sub(before.on_cpu);
                self.expire(now);
                next_tick = now + TICK;
            }
            self.given.shared.publish(&self.tally.counters);
            if self.is_done() {
                break;
            }
            let now = clock.now();
            let wake = self.wake(next_tick);
            let left = Duration::from_nanos(wake.saturating_sub(now));
            events.clear();
            let left = Timespec::try_from(left).unwrap_or_default();
            // Interrupted or failing, the loop goes round, and ends with the demand at the latest.
            let _ = epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&left));
            let late = clock.now().saturating_sub(wake.max(now));
            if late > STANDSTILL {
                self.standstill += late;
            }
            // All that has come is read before anything is sent: an answer's time is not held up by
            // the requests that follow others, and the server is woken once for many.
            for event in &events {
                self.handle(Key::from_bits(event.data.u64()), event.flags);
            }
        }
        self.finish(before, began)
    }

    fn finish(mut self, before: ThreadTime, began: u64) -> Tally {
        let now = self.given.clock.now();
        let after = ThreadTime::read();
        let unanswered = self.in_flight();
        if self.given.demand.waits_for_answers() && !self.given.stop.load(Relaxed) {
            // They were waited for as long as a run may: their omission would flatter the server.
            for _ in 0..unanswered {
                self.tally.failed(Fault::Timeout, || "unanswered when the run ended".to_owned());
            }
        } else {
            self.tally.unfinished = unanswered;
        }
        self.tally.not_begun = self.given.demand.left();
        self.tally.settle();
        self.tally.counters.cpu_ns = after.on_cpu.saturating_sub(before.on_cpu);
        self.tally.ended = now as f64 / 1e9;
        self.tally.wall_seconds = now.saturating_sub(began) as f64 / 1e9;
        self.tally.starved_seconds = after.waiting.saturating_sub(before.waiting) as f64 / 1e9;
        self.given.shared.publish(&self.tally.counters);
        self.tally
    }

    /// Requests begun and neither answered nor failed.
    fn in_flight(&self) -> u64 {
        let counters = &self.tally.counters;
        counters.requests.saturating_sub(counters.responses + counters.errors)
    }

    fn is_done(&self) -> bool {
        self.given.demand.is_exhausted() && self.in_flight() == 0
    }

    /// When there is something to do, whatever the connections do.
    fn wake(&self, next_tick: u64) -> u64 {
        let resting = self.resting.peek().map(|Reverse(until)| *until);
        let paused = self.paused.peek().map(|Reverse((until, _))| *until);
        let all = [self.given.demand.wakes_at(), resting, paused];
        all.into_iter().flatten().fold(next_tick, u64::min)
    }

    /// Lets slow connections whose pause is over read on.
    fn resume(&mut self, now: u64) {
        while let Some(Reverse((until, key))) = self.paused.peek().copied()
            && until <= now
        {
            self.paused.pop();
            self.read(key);
        }
    }

    /// Begins what is due, but not so much of it at once that answers would lie about unread.
    fn issue(&mut self, now: u64) {
        while self.resting.peek().is_some_and(|Reverse(until)| *until <= now) {
            self.resting.pop();
            self.given.demand.give_back();
        }
        for _ in 0..BATCH {
            if self.waiting.len() >= MOST_WAITING {
                break;
            }
            let Some((number, due)) = self.given.demand.take(now) else { break };
            let taken = due.map(|_| now.saturating_sub(self.standstill));
            let due = match due {
                Some(due) => {
                    self.tally.lag.saturating_record(now.saturating_sub(due));
                    due
                }
                None => self.given.clock.now(),
            };
            let plan = self.given.plan;
            let (place, range) = of_request(&plan.targets, plan.rule, number);
            self.tally.counters.requests += 1;
            self.ready.push_back(Exchange {
                asked: self.asked[place].clone(),
                range,
                due,
                taken,
                begun: 0,
                first_byte: 0,
                redirects: 0,
                sent_again: 0,
            });
            self.dispatch_ready();
        }
        // What is sent may fail, and then goes over another connection.
        loop {
            self.dispatch_ready();
            self.flush_touched();
            if self.ready.is_empty() {
                break;
            }
        }
    }

    fn dispatch_ready(&mut self) {
        while let Some(exchange) = self.waiting.pop_front() {
            if let Err(exchange) = self.dispatch(exchange) {
                self.waiting.push_front(exchange);
                break;
            }
        }
        while let Some(exchange) = self.ready.pop_front() {
            // Who waits longer goes first.
            let unplaced =
                if self.waiting.is_empty() { self.dispatch(exchange) } else { Err(exchange) };
            if let Err(exchange) = unplaced {
                self.tally.queued += 1;
                self.waiting.push_back(exchange);
            }
        }
    }

    /// Finds a connection for a request: one without any, a new one, or one that has room.
    fn dispatch(&mut self, exchange: Exchange) -> Result<(), Exchange> {
        let at = exchange.asked.peer;
        let thinks = !self.given.plan.manner.think.is_zero();
        let has_room = |worker: &Self| worker.open_connections() < worker.given.connections;
        // Clients that think keep their connections meanwhile: each has its own, and who rested
        // longest goes on first.
        while !(thinks && has_room(self))
            && let Some(key) = self.next_idle(at, thinks)
        {
            if self.get(key).is_some_and(|c| c.flying.is_empty() && !c.closing) {
                self.ask(key, exchange);
                return Ok(());
            }
        }
        if has_room(self) || self.close_idle_of_other(at) {
            self.open(exchange);
            return Ok(());
        }
        let depth = self.given.plan.pipeline;
        while let Some(key) = self.peers[at].partial.pop_front() {
            self.places[key.place as usize].in_partial = false;
            if self.get(key).is_some_and(|c| c.flying.len() < depth && !c.closing) {
                self.ask(key, exchange);
                return Ok(());
            }
        }
        Err(exchange)
    }

    fn open_connections(&self) -> usize {
        self.places.len() - self.free.len()
    }

    fn next_idle(&mut self, at: usize, oldest: bool) -> Option<Key> {
        let idle = &mut self.peers[at].idle;
        let key = if oldest { idle.pop_front() } else { idle.pop_back() }?;
        self.places[key.place as usize].in_idle = false;
        Some(key)
    }

    /// Makes room for a connection to the peer at `at`.
    fn close_idle_of_other(&mut self, at: usize) -> bool {
        for other in (0..self.peers.len()).filter(|other| *other != at) {
            while let Some(key) = self.next_idle(other, true) {
                if self.get(key).is_some_and(|c| c.flying.is_empty()) {
                    self.close(key, None);
                    return true;
                }
            }
        }
        false
    }

    fn get(&mut self, key: Key) -> Option<&mut Connection> {
        let place = self.places.get_mut(key.place as usize)?;
        place.connection.as_mut().filter(|_| place.user == key.user)
    }

    fn ask(&mut self, key: Key, mut exchange: Exchange) {
        exchange.begun = self.given.clock.now();
        exchange.first_byte = 0;
        let closes = !self.given.plan.keep_alive;
        let Some(connection) = self.get(key) else { return };
        connection.ask(exchange, closes);
        self.touch(key);
        self.list(key);
    }

    fn touch(&mut self, key: Key) {
        let place = &mut self.places[key.place as usize];
        if !place.touched {
            place.touched = true;
            self.touched.push(key);
        }
    }

    /// Lets a connection be found, if it can take a request.
    fn list(&mut self, key: Key) {
        let depth = self.given.plan.pipeline;
        let Some(place) = self.places.get_mut(key.place as usize) else { return };
        let Some(connection) = place.connection.as_ref().filter(|c| !c.closing) else { return };
        let peer = &mut self.peers[connection.peer];
        if connection.flying.is_empty() {
            if !place.in_idle {
                place.in_idle = true;
                peer.idle.push_back(key);
            }
        } else if connection.flying.len() < depth && !place.in_partial {
            place.in_partial = true;
            peer.partial.push_back(key);
        }
    }

    fn open(&mut self, exchange: Exchange) {
        let at = exchange.asked.peer;
        let now = self.given.clock.now();
        let address = self.peers[at].address;
        let read_rate = self.given.plan.manner.read_rate;
        let source = source_for(self.given.source, address);
        let opened =
            Connection::open((source, address), at, now, read_rate).and_then(|connection| {
                let place = self.free.pop().unwrap_or_else(|| {
                    self.places.push(Place::default());
                    (self.places.len() - 1) as u32
                });
                let key = Key { place, user: self.places[place as usize].user };
                let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT;
                let data = epoll::EventData::new_u64(key.to_bits());
                let added = epoll::add(&self.epoll, &connection.socket, data, flags);
                self.places[place as usize].connection = Some(connection);
                match added {
                    Ok(()) => Ok(key),
                    Err(error) => {
                        self.close(key, None);
                        Err(Trouble::of_io(error))
                    }
                }
            });
        match opened {
            Ok(key) => {
                self.tally.counters.connections += 1;
                self.ask(key, exchange);
            }
            Err(trouble) => self.fail(&exchange, &trouble),
        }
    }

    fn flush_touched(&mut self) {
        while let Some(key) = self.touched.pop() {
            self.places[key.place as usize].touched = false;
            self.flush(key);
        }
    }

    fn flush(&mut self, key: Key) {
        let Some(place) = self.places.get_mut(key.place as usize) else { return };
        let Some(connection) = place.connection.as_mut().filter(|_| place.user == key.user) else {
            return;
        };
        if connection.connecting.is_some() {
            return;
        }
        match connection.flush(&mut self.tally.counters) {
            Ok(true) => {}
            Ok(false) => self.watch(key, true),
            Err(trouble) => {
                // What the peer said before it closed explains more than that it has.
                self.read(key);
                self.close(key, Some(&trouble));
            }
        }
    }

    /// Asks to be told when a connection can be read from, unless it is not to be read from, and
    /// when it can be `written` to.
    fn watch(&mut self, key: Key, written: bool) {
        let Some(connection) = self.places[key.place as usize].connection.as_ref() else { return };
        let mut flags = epoll::EventFlags::empty();
        flags.set(epoll::EventFlags::IN, !connection.paused);
        flags.set(epoll::EventFlags::OUT, written);
        let data = epoll::EventData::new_u64(key.to_bits());
        if let Err(error) = epoll::modify(&self.epoll, &connection.socket, data, flags) {
            self.close(key, Some(&Trouble::of_io(error)));
        }
    }

    fn handle(&mut self, key: Key, flags: epoll::EventFlags) {
        let now = self.given.clock.now();
        let Some(connection) = self.get(key) else { return };
        if let Some(since) = connection.connecting {
            match connection.connected() {
                Ok(()) => {
                    connection.connecting = None;
                    self.tally.connect.saturating_record(now.saturating_sub(since));
                    self.watch(key, false);
                    self.flush(key);
                }
                Err(trouble) => self.close(key, Some(&trouble)),
            }
        } else if flags.contains(epoll::EventFlags::OUT) {
            self.watch(key, false);
            self.flush(key);
        }
        if flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR)
            && let Some(connection) = self.get(key)
        {
            connection.hurry();
        }
        if flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR)
        {
            self.read(key);
        }
    }

    fn read(&mut self, key: Key) {
        let Some(place) = self.places.get_mut(key.place as usize) else { return };
        let Some(connection) = place.connection.as_mut().filter(|_| place.user == key.user) else {
            return;
        };
        let mut answers = std::mem::take(&mut self.answers);
        let result = connection.read(&mut self.io, &mut self.tally.counters, &mut answers);
        let closes = connection.closing && connection.flying.is_empty();
        for answer in answers.drain(..) {
            self.answered(answer);
        }
        self.answers = answers;
        match result {
            Err(trouble) => self.close(key, Some(&trouble)),
            Ok(()) if closes => self.close(key, None),
            Ok(()) => {
                self.list(key);
                self.pause(key);
            }
        }
    }

    /// Leaves a connection alone that has read as much as it may for now; listens to it again when
    /// there was less to read than it might.
    fn pause(&mut self, key: Key) {
        if self.given.plan.manner.read_rate.is_none() {
            return;
        }
        let now = self.given.clock.now();
        let Some(connection) = self.get(key) else { return };
        let until = connection.rests_until(now);
        let was_paused = std::mem::replace(&mut connection.paused, until.is_some());
        let unsent = !connection.out.is_empty();
        if was_paused != until.is_some() {
            self.watch(key, unsent);
        }
        if let Some(until) = until {
            self.paused.push(Reverse((until, key)));
        }
    }

    fn answered(&mut self, answer: Answer) {
        let Answer { exchange, status, location, last_byte, fault } = answer;
        if let Some(trouble) = fault {
            return self.fail(&exchange, &trouble);
        }
        let redirects = self.given.plan.redirects;
        if redirects > 0 && matches!(status, 301 | 302 | 303 | 307 | 308) {
            return match self.redirected(&exchange, location.as_deref()) {
                Ok(asked) => {
                    self.tally.counters.redirects += 1;
                    let redirects = exchange.redirects + 1;
                    self.ready.push_back(Exchange { asked, redirects, ..exchange });
                }
                Err(trouble) => self.fail(&exchange, &trouble),
            };
        }
        let Exchange { due, first_byte, .. } = exchange;
        let taken = exchange.taken.map(|taken| taken + self.standstill);
        self.tally.answered(status, due, taken, first_byte, last_byte);
        self.client_is_free(Duration::ZERO);
    }

    /// What a redirection asks for instead.
    fn redirected(
        &mut self,
        exchange: &Exchange,
        location: Option<&str>,
    ) -> Result<Rc<Asked>, Trouble> {
        let plan = self.given.plan;
        if exchange.redirects >= plan.redirects {
            let detail = format!("more than {} redirections", plan.redirects);
            return Err(Trouble::new(Fault::TooManyRedirects, detail));
        }
        let bad = |reason: &str| Trouble::new(Fault::BadRedirect, reason);
        let location = location.ok_or_else(|| bad("a redirection without Location"))?;
        let from = &exchange.asked.target;
        let url: Url = from.url.join(location).map_err(|error| bad(&error.to_string()))?;
        if url.origin.is_secure() {
            // Only the other client could follow, which a run has from its beginning or not at all.
            return Err(bad(&format!("a redirection from http to {url}: ask for that URL itself")));
        }
        if url.origin.scheme != Scheme::Http {
            return Err(bad(&format!("a redirection to {url}, which is no HTTP")));
        }
        let peer = peer_of(&mut self.peers, &url.origin, self.given.addresses)
            .map_err(|error| Trouble::new(Fault::Unreachable, error.to_string()))?;
        let target = Target { url, ..from.clone() };
        let head = request_head(&target, plan);
        Ok(Rc::new(Asked { target, peer, head, bare: None }))
    }

    /// Gives a connection up. Its first request fails of `trouble`, unless that says no more than
    /// that the server had closed a kept connection; those behind it were never looked at, and go
    /// over another.
    fn close(&mut self, key: Key, trouble: Option<&Trouble>) {
        let Some(place) = self.places.get_mut(key.place as usize) else { return };
        if place.user != key.user {
            return;
        }
        let Some(connection) = place.connection.take() else { return };
        *place = Place { user: place.user.wrapping_add(1), ..Place::default() };
        self.free.push(key.place);
        let kept = connection.answered > 0;
        for (number, mut exchange) in connection.flying.into_iter().enumerate() {
            let first = trouble.filter(|_| number == 0);
            let stale = first.is_none_or(|trouble| {
                kept && exchange.first_byte == 0
                    && matches!(trouble.fault, Fault::Closed | Fault::Reset)
            });
            let again = exchange.asked.target.is_idempotent()
                && exchange.sent_again < MOST_SENT_AGAIN
                && stale;
            if again {
                exchange.sent_again += 1;
                self.tally.counters.sent_again += 1;
                self.ready.push_back(exchange);
            } else if let Some(trouble) = trouble {
                self.fail(&exchange, trouble);
            } else {
                let trouble =
                    Trouble::new(Fault::Closed, "the connection was closed before its turn");
                self.fail(&exchange, &trouble);
            }
        }
    }

    fn fail(&mut self, exchange: &Exchange, trouble: &Trouble) {
        let Exchange { asked, range, .. } = exchange;
        self.tally.failed(trouble.fault, || {
            let range =
                range.map_or_else(String::new, |r| format!(" bytes {}-{}", r.first, r.last));
            let Target { method, url, .. } = &asked.target;
            format!("{method} {url}{range}: {}", trouble.detail)
        });
        if matches!(trouble.fault, Fault::Refused | Fault::Unreachable | Fault::Local) {
            self.client_is_free(REST);
        } else {
            self.client_is_free(Duration::ZERO);
        }
    }

    /// A client has its answer, or none, and asks again when it has rested and thought.
    fn client_is_free(&mut self, rest: Duration) {
        let rest = rest.max(self.given.plan.manner.think);
        if rest.is_zero() || !self.given.demand.is_closed() {
            self.given.demand.give_back();
        } else {
            self.resting.push(Reverse(self.given.clock.now() + nanoseconds(rest)));
        }
    }

    /// Fails what has taken too long.
    fn expire(&mut self, now: u64) {
        let limit = nanoseconds(self.given.plan.timeout);
        let late = |since: u64| now.saturating_sub(since) > limit;
        for place in 0..self.places.len() {
            let Place { user, connection: Some(connection), .. } = &self.places[place] else {
                continue;
            };
            if !connection.flying.front().is_some_and(|front| late(front.begun)) {
                continue;
            }
            let trouble = if connection.connecting.is_some() {
                Trouble::new(Fault::Unreachable, "no answer to a connection in time")
            } else {
                Trouble::new(Fault::Timeout, "not completely answered in time")
            };
            let key = Key { place: place as u32, user: *user };
            self.close(key, Some(&trouble));
        }
        while let Some(exchange) = self.waiting.pop_front_if(|waiting| late(waiting.due)) {
            self.fail(&exchange, &Trouble::new(Fault::Timeout, "no connection was free in time"));
        }
        self.issue(now);
    }
}

/// The place of an origin among the peers, where it gets one if it has none.
fn peer_of(
    peers: &mut Vec<Peer>,
    origin: &Origin,
    addresses: &HashMap<Origin, SocketAddr>,
) -> std::io::Result<usize> {
    if let Some(place) = peers.iter().position(|peer| peer.origin == *origin) {
        return Ok(place);
    }
    let address = match addresses.get(origin) {
        Some(address) => *address,
        // Only a redirection leads to an origin that was not looked up before the run.
        None => probe::first_address(origin)?,
    };
    peers.push(Peer {
        origin: origin.clone(),
        address,
        idle: VecDeque::new(),
        partial: VecDeque::new(),
    });
    Ok(peers.len() - 1)
}

/// A request without its Range field and empty line.
fn request_head(target: &Target, plan: &Plan) -> Vec<u8> {
    if bare::answer(target).is_some() {
        return vec![bare::REQUEST];
    }
    let mut head = format!(
        "{} {} HTTP/1.1\r\nHost: {}\r\n",
        target.method,
        target.url.path,
        target.url.origin.host_field()
    );
    for (name, value) in &plan.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.into_bytes()
}
