//! HTTP/2, and HTTP/1.1 over TLS, through hyper. [`super::worker`] speaks neither.
//!
//! Plan, demand and tally are the same. But this client uses several times the processor time, every byte
//! of a body passes through this program, and HTTP/1.1 is not pipelined.
//!
//! ```text
//! demand ─▶ exchanges, a task each ─▶ client: hyper, rustls ─▶ answers ─▶ tally
//! ```
//!
//! The loop in this file starts exchanges. [`exchange`] is one exchange, [`client`] makes
//! connections, [`blame`] says what errors mean, [`length`] asks for the lengths of targets before
//! a run.

mod blame;
mod client;
mod exchange;
mod length;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use hyper::Response;
use hyper::body::Incoming;
use hyper::client::conn::http2;
use tokio::sync::{Mutex, Notify, Semaphore};
use tokio::task::{LocalSet, spawn_local};

use super::Plan;
use super::alarm::Alarm;
use super::assignment::{Assignment, Start, TICK};
use super::check::Reference;
use super::clock::Clock;
use super::redirect::Servers;
use super::response::Head;
use super::tally::Tally;
use super::target::Target;
use super::url::Origin;
use super::wire::Wire;
use client::{Body, Session};

pub(super) use client::Client;
pub(super) use length::find_lengths;

/// The data that all exchanges of a worker share.
struct Context {
    plan: Plan,
    targets: Vec<Rc<Target>>,
    client: Client,
    clock: Clock,
    reference: Option<Rc<Reference>>,
    servers: RefCell<Servers>,
    tally: RefCell<Tally>,
    wire: Rc<Wire>,
    /// Permits for exchanges at the same time.
    permits: Semaphore,
    /// Connections of HTTP/1.1 without a request.
    idle: RefCell<HashMap<Origin, Vec<Session>>>,
    /// Connections of HTTP/2, each with whether it has answered.
    shared: RefCell<HashMap<Origin, Vec<Slot>>>,
    connections: usize,
    turn: Cell<usize>,
    /// How many clients of a closed loop may send their next request.
    returned: Cell<u64>,
    woken: Notify,
}

/// The place of one HTTP/2 connection, and whether the connection has answered.
type Slot = Rc<Mutex<Option<(http2::SendRequest<Body>, Rc<Cell<bool>>)>>>;

/// Runs to the end of the demand, until it is stopped, or until the longest wait after the end is
/// over.
pub(super) fn run(mut given: Assignment<'_>, client: Client) -> io::Result<Tally> {
    let start = Start::now(given.clock);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let streams = if client.http2 { given.plan.pipeline } else { 1 };
    let reference = given.plan.check.as_ref().filter(|_| given.reference.is_some());
    let context = Rc::new(Context {
        plan: given.plan.clone(),
        targets: given.plan.targets.iter().cloned().map(Rc::new).collect(),
        client,
        clock: given.clock,
        reference: reference.map(|path| Reference::open(path)).transpose()?.map(Rc::new),
        servers: Servers::new(given.addresses.clone()).into(),
        tally: RefCell::default(),
        wire: Rc::default(),
        permits: Semaphore::new(given.connections.saturating_mul(streams).min(1 << 20)),
        idle: RefCell::default(),
        shared: RefCell::default(),
        connections: given.connections,
        turn: Cell::new(0),
        returned: Cell::new(0),
        woken: Notify::new(),
    });
    let tasks = LocalSet::new();
    tasks.block_on(&runtime, drive(&mut given, &context, start))?;
    let ended = given.clock.now();
    // Exchanges that are under way end here.
    drop(tasks);
    context.count_wire();
    let mut tally = context.tally.take();
    given.finish(&mut tally, &start, ended);
    Ok(tally)
}

/// Starts exchanges as the demand says.
async fn drive(given: &mut Assignment<'_>, context: &Rc<Context>, start: Start) -> io::Result<()> {
    let alarm = Alarm::new()?;
    let clock = given.clock;
    loop {
        for _ in 0..context.returned.take() {
            given.demand.give_back();
        }
        let now = clock.now();
        if given.is_over(now) {
            return Ok(());
        }
        while let Some((number, due)) = given.demand.take(now) {
            let mut tally = context.tally.borrow_mut();
            tally.counters.requests += 1;
            if let Some(due) = due {
                tally.lag.saturating_record(now.saturating_sub(due));
            }
            drop(tally);
            let taken = due.map(|_| now);
            let due = due.unwrap_or_else(|| clock.now());
            spawn_local(context.clone().exchange(number, due, taken));
        }
        context.count_wire();
        {
            let mut tally = context.tally.borrow_mut();
            tally.counters.cpu_ns = start.on_cpu();
            given.shared.publish(&tally.counters);
            if given.demand.is_exhausted() && tally.counters.in_flight() == 0 {
                return Ok(());
            }
        }
        let now = clock.now();
        let wake = given.demand.wakes_at().unwrap_or(u64::MAX).min(now + TICK);
        tokio::select! {
            rang = alarm.after(Duration::from_nanos(wake.saturating_sub(now))) => rang?,
            () = context.woken.notified() => {}
        }
    }
}

impl Context {
    /// Takes over the counters of the connections.
    fn count_wire(&self) {
        let mut tally = self.tally.borrow_mut();
        tally.counters.sent_bytes = self.wire.sent.get();
        tally.counters.head_bytes = self.wire.overhead.get();
    }
}

/// Takes the fields that matter here from a head that hyper has read.
fn head_of(response: &Response<Incoming>) -> Head {
    let mut head = Head::new(response.status().as_u16());
    for (name, value) in response.headers() {
        // hyper has checked the head, so these fields are well-formed.
        let _ = head.take_field(name.as_str(), value.as_bytes(), &mut false);
    }
    head
}
