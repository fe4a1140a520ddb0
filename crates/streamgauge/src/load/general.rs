//! HTTP/2, and HTTP/1.1 over TLS, by hyper: for what [`super::worker`] does not speak.
//!
//! Same plan, same demand, same tally. It costs several times the processor time, every byte of a
//! body passes through this program, and HTTP/1.1 is not pipelined.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{Mutex, Notify, Semaphore};
use tokio::task::{LocalSet, spawn_local};
use tokio_rustls::TlsConnector;

use super::alarm::Alarm;
use super::check::{Comparison, Reference};
use super::clock::{Clock, ThreadTime};
use super::connection::{Trouble, wrong_range};
use super::response::Head;
use super::several::source_for;
use super::tally::{Fault, Tally};
use super::target::{ByteRange, Target, of_request};
use super::url::{Origin, Scheme};
use super::wire::{Metered, Wire};
use super::worker::Assignment;
use super::{Error, Plan, probe, tls};

/// Between two publications of the counters.
const TICK: u64 = 100_000_000;
/// How long a client of a closed loop rests when nobody answered its connection.
const REST: Duration = Duration::from_millis(100);
/// How often a request is sent again, at most.
const MOST_SENT_AGAIN: u8 = 8;

type Body = Empty<Bytes>;

/// How connections are made; the same for all workers.
#[derive(Clone)]
pub(super) struct Client {
    tls: TlsConnector,
    http2: bool,
    /// The address that connections come from, if that matters.
    source: Option<IpAddr>,
}

/// Runs what hyper starts on the thread it is on.
#[derive(Clone)]
struct Here;

impl<F: Future + 'static> hyper::rt::Executor<F> for Here {
    fn execute(&self, future: F) {
        spawn_local(async move {
            future.await;
        });
    }
}

/// A connection that takes requests.
enum Session {
    /// With the number of bytes received that no answer accounts for yet.
    One(http1::SendRequest<Body>, Rc<Cell<u64>>),
    Many(http2::SendRequest<Body>),
}

impl Client {
    pub(super) fn new(plan: &Plan, source: Option<IpAddr>) -> Result<Self, Error> {
        let tls = TlsConnector::from(Arc::new(tls::config(plan)?));
        Ok(Self { tls, http2: plan.http2, source })
    }

    async fn connect(
        &self,
        origin: &Origin,
        address: SocketAddr,
        wire: &Rc<Wire>,
    ) -> Result<Session, Trouble> {
        let of_io = |error: &io::Error| Trouble::new(Fault::of_io(error), error.to_string());
        let socket = self.open(address).await.map_err(|error| of_io(&error))?;
        socket.set_nodelay(true).map_err(|error| of_io(&error))?;
        if !origin.is_secure() {
            return self.handshake(socket, wire).await;
        }
        let in_tls = |detail: String| Trouble::new(Fault::Tls, detail);
        let name =
            ServerName::try_from(origin.host.clone()).map_err(|error| in_tls(error.to_string()))?;
        let socket =
            self.tls.connect(name, socket).await.map_err(|error| in_tls(error.to_string()))?;
        if self.http2 && socket.get_ref().1.alpn_protocol() != Some(b"h2") {
            return Err(in_tls("the server does not speak HTTP/2".to_owned()));
        }
        self.handshake(socket, wire).await
    }

    async fn open(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let Some(source) = source_for(self.source, address) else {
            return TcpStream::connect(address).await;
        };
        let socket = TcpSocket::new_v4()?;
        socket.bind(source)?;
        socket.connect(address).await
    }

    async fn handshake<S>(&self, socket: S, wire: &Rc<Wire>) -> Result<Session, Trouble>
    where
        S: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        let wrong = |error: hyper::Error| describe(&error, false);
        // The connections say what befell them to the requests they carry.
        if self.http2 {
            let (sender, connection) = http2::Builder::new(Here)
                .initial_stream_window_size(1 << 20)
                .initial_connection_window_size(16 << 20)
                .handshake(TokioIo::new(Metered::http2(socket, wire)))
                .await
                .map_err(wrong)?;
            spawn_local(connection);
            Ok(Session::Many(sender))
        } else {
            let unaccounted = Rc::default();
            let socket = TokioIo::new(Metered::http1(socket, wire, &unaccounted));
            let (sender, connection) = http1::handshake(socket).await.map_err(wrong)?;
            spawn_local(connection);
            Ok(Session::One(sender, unaccounted))
        }
    }
}

/// Finds out the length of each target that has no range of its own.
pub(super) fn find_lengths(
    plan: &mut Plan,
    addresses: &HashMap<Origin, SocketAddr>,
) -> Result<(), Error> {
    let client = Client::new(plan, None)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut known: HashMap<String, u64> = HashMap::new();
    for place in 0..plan.targets.len() {
        let target = &plan.targets[place];
        if target.range.is_some() {
            continue;
        }
        let url = target.url.to_string();
        let length = match known.get(&url) {
            Some(length) => *length,
            None => {
                let found = find_length(&client, plan, target, addresses);
                let found = async { tokio::time::timeout(plan.timeout, found).await };
                let found = LocalSet::new().block_on(&runtime, found);
                let found = found.unwrap_or_else(|_| Err("no answer in time".to_owned()));
                found.map_err(|reason| Error::Length { url: url.clone(), reason })?
            }
        };
        known.insert(url, length);
        plan.targets[place].length = Some(length);
    }
    Ok(())
}

async fn find_length(
    client: &Client,
    plan: &Plan,
    target: &Target,
    addresses: &HashMap<Origin, SocketAddr>,
) -> Result<u64, String> {
    let origin = &target.url.origin;
    let address = addresses.get(origin).copied().ok_or("no address")?;
    let session = client.connect(origin, address, &Rc::default()).await;
    let mut session = session.map_err(|trouble| trouble.detail)?;
    let get = Target { method: "GET".to_owned(), ..target.clone() };
    let first = Some(ByteRange { first: 0, last: 0 });
    let request = request(plan, &get, first).map_err(|trouble| trouble.detail)?;
    let response = session.send(request).await.map_err(|error| describe(&error, false).detail)?;
    let head = head_of(&response);
    match head.status {
        206 => head.whole.ok_or_else(|| "Content-Range does not say".to_owned()),
        200 => head.content_length.ok_or_else(|| "no Content-Length".to_owned()),
        status => Err(format!("status {status}")),
    }
}

impl Session {
    async fn send(&mut self, request: Request<Body>) -> hyper::Result<Response<Incoming>> {
        match self {
            Self::One(sender, _) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
            Self::Many(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
        }
    }
}

/// What the exchanges of a worker share.
struct Context {
    plan: Plan,
    targets: Vec<Rc<Target>>,
    client: Client,
    clock: Clock,
    reference: Option<Rc<Reference>>,
    addresses: HashMap<Origin, SocketAddr>,
    tally: RefCell<Tally>,
    wire: Rc<Wire>,
    /// Exchanges that may run at a time.
    permits: Semaphore,
    /// Over HTTP/1.1: connections without a request.
    idle: RefCell<HashMap<Origin, Vec<Session>>>,
    /// Over HTTP/2: connections, each with whether it has answered.
    shared: RefCell<HashMap<Origin, Vec<Slot>>>,
    connections: usize,
    turn: Cell<usize>,
    /// Clients of a closed loop that may ask again.
    returned: Cell<u64>,
    woken: Notify,
}

type Slot = Rc<Mutex<Option<(http2::SendRequest<Body>, Rc<Cell<bool>>)>>>;

/// Runs to the end of the demand, until it is stopped, or as long after the end as a run may.
pub(super) fn run(mut given: Assignment<'_>, client: Client) -> io::Result<Tally> {
    let before = ThreadTime::read();
    let began = given.clock.now();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let streams = if client.http2 { given.plan.pipeline } else { 1 };
    let reference = given.plan.check.as_ref().filter(|_| given.reference.is_some());
    let context = Rc::new(Context {
        plan: given.plan.clone(),
        targets: given.plan.targets.iter().cloned().map(Rc::new).collect(),
        client,
        clock: given.clock,
        reference: reference.map(|path| Reference::open(path)).transpose()?.map(Rc::new),
        addresses: given.addresses.clone(),
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
    tasks.block_on(&runtime, drive(&mut given, &context, before))?;
    let ended = given.clock.now();
    // What is under way ends here.
    drop(tasks);
    context.count_wire();
    let mut tally = context.tally.take();
    let unanswered = in_flight(&tally);
    if given.demand.waits_for_answers() && !given.stop.load(Relaxed) {
        for _ in 0..unanswered {
            tally.failed(Fault::Timeout, || "unanswered when the run ended".to_owned());
        }
    } else {
        tally.unfinished = unanswered;
    }
    let after = ThreadTime::read();
    tally.not_begun = given.demand.left();
    tally.settle();
    tally.counters.cpu_ns = after.on_cpu.saturating_sub(before.on_cpu);
    tally.ended = ended as f64 / 1e9;
    tally.wall_seconds = ended.saturating_sub(began) as f64 / 1e9;
    tally.starved_seconds = after.waiting.saturating_sub(before.waiting) as f64 / 1e9;
    given.shared.publish(&tally.counters);
    Ok(tally)
}

fn in_flight(tally: &Tally) -> u64 {
    let counters = &tally.counters;
    counters.requests.saturating_sub(counters.responses + counters.errors)
}

/// Begins exchanges as the demand says.
async fn drive(
    given: &mut Assignment<'_>,
    context: &Rc<Context>,
    before: ThreadTime,
) -> io::Result<()> {
    let alarm = Alarm::new()?;
    let clock = given.clock;
    loop {
        for _ in 0..context.returned.take() {
            given.demand.give_back();
        }
        let now = clock.now();
        if given.stop.load(Relaxed) || given.demand.is_over(now) {
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
            tally.counters.cpu_ns = ThreadTime::cpu().saturating_sub(before.on_cpu);
            given.shared.publish(&tally.counters);
            if given.demand.is_exhausted() && in_flight(&tally) == 0 {
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

/// One answer, or why there is none.
struct Received {
    status: u16,
    first_byte: u64,
    /// Of the body, in bytes.
    length: u64,
    location: Option<String>,
    fault: Option<Trouble>,
}

/// Why a request got no answer, and whether only since a kept connection had gone.
struct Lost {
    trouble: Trouble,
    stale: bool,
}

impl From<Trouble> for Lost {
    fn from(trouble: Trouble) -> Self {
        Self { trouble, stale: false }
    }
}

impl Context {
    /// Takes over what was counted on the connections.
    fn count_wire(&self) {
        let mut tally = self.tally.borrow_mut();
        tally.counters.sent_bytes = self.wire.sent.get();
        tally.counters.head_bytes = self.wire.overhead.get();
    }

    /// Carries request `number` out, redirections included, and counts what came of it.
    async fn exchange(self: Rc<Self>, number: u64, due: u64, taken: Option<u64>) {
        let (place, range) = of_request(&self.plan.targets, self.plan.rule, number);
        let first = self.targets[place].clone();
        let limit = self.plan.timeout;
        let result = tokio::time::timeout(limit, self.follow(first.clone(), range)).await;
        let late = || Trouble::new(Fault::Timeout, "not completely answered in time");
        let rest = match result.unwrap_or_else(|_| Err(late())) {
            Ok(Received { status, first_byte, fault: None, .. }) => {
                let now = self.clock.now();
                self.tally.borrow_mut().answered(status, due, taken, first_byte, now);
                false
            }
            Ok(Received { fault: Some(trouble), .. }) | Err(trouble) => {
                let Target { method, url, .. } = &*first;
                self.tally
                    .borrow_mut()
                    .failed(trouble.fault, || format!("{method} {url}: {}", trouble.detail));
                matches!(trouble.fault, Fault::Refused | Fault::Unreachable | Fault::Local)
            }
        };
        if rest && self.plan.pace == super::Pace::Closed {
            tokio::time::sleep(REST).await;
        }
        self.returned.set(self.returned.get() + 1);
        self.woken.notify_one();
    }

    async fn follow(
        &self,
        mut target: Rc<Target>,
        range: Option<ByteRange>,
    ) -> Result<Received, Trouble> {
        let _permit = match self.permits.try_acquire() {
            Ok(permit) => permit,
            Err(_) => {
                self.tally.borrow_mut().queued += 1;
                let closed = |_| Trouble::new(Fault::Local, "no permit");
                self.permits.acquire().await.map_err(closed)?
            }
        };
        let (mut redirects, mut again) = (0, 0);
        loop {
            match self.once(&target, range).await {
                Ok(received)
                    if self.plan.redirects > 0
                        && received.fault.is_none()
                        && matches!(received.status, 301 | 302 | 303 | 307 | 308) =>
                {
                    redirects += 1;
                    if redirects > self.plan.redirects {
                        let detail = format!("more than {} redirections", self.plan.redirects);
                        return Err(Trouble::new(Fault::TooManyRedirects, detail));
                    }
                    let bad = |detail: String| Trouble::new(Fault::BadRedirect, detail);
                    let location = received
                        .location
                        .ok_or_else(|| bad("a redirection without Location".to_owned()))?;
                    let url = target.url.join(&location).map_err(|error| bad(error.to_string()))?;
                    if url.origin.scheme == Scheme::Limit {
                        return Err(bad(format!("a redirection to {url}, which is no HTTP")));
                    }
                    self.tally.borrow_mut().counters.redirects += 1;
                    target = Rc::new(Target { url, ..(*target).clone() });
                }
                Err(Lost { stale: true, .. })
                    if again < MOST_SENT_AGAIN && target.is_idempotent() =>
                {
                    again += 1;
                    self.tally.borrow_mut().counters.sent_again += 1;
                }
                Err(lost) => return Err(lost.trouble),
                Ok(received) => return Ok(received),
            }
        }
    }

    async fn once(&self, target: &Target, range: Option<ByteRange>) -> Result<Received, Lost> {
        let origin = &target.url.origin;
        let request = request(&self.plan, target, range)?;
        let (mut session, kept, answered) = self.session(origin).await?;
        let lost = |error: &hyper::Error| Lost {
            trouble: describe(error, false),
            stale: kept && is_stale(error),
        };
        let response = session.send(request).await.map_err(|error| lost(&error))?;
        if let Some(answered) = answered {
            answered.set(true);
        }
        let first_byte = self.clock.now();
        let mut received = self.receive(response, target, range).await?;
        received.first_byte = first_byte;
        let Session::One(sender, unaccounted) = session else { return Ok(received) };
        // No other answer is under way here.
        self.wire.add_overhead(unaccounted.take().saturating_sub(received.length));
        if self.plan.keep_alive && !sender.is_closed() {
            let mut idle = self.idle.borrow_mut();
            if idle.values().map(Vec::len).sum::<usize>() < self.connections {
                idle.entry(origin.clone()).or_default().push(Session::One(sender, unaccounted));
            }
        }
        Ok(received)
    }

    /// A connection, whether it has answered before, and where to note that it has.
    async fn session(
        &self,
        origin: &Origin,
    ) -> Result<(Session, bool, Option<Rc<Cell<bool>>>), Trouble> {
        if !self.client.http2 {
            let kept = self.idle.borrow_mut().get_mut(origin).and_then(Vec::pop);
            return match kept {
                Some(session) => Ok((session, true, None)),
                None => Ok((self.connect(origin).await?, false, None)),
            };
        }
        let slot = {
            let mut shared = self.shared.borrow_mut();
            let slots = shared
                .entry(origin.clone())
                .or_insert_with(|| (0..self.connections).map(|_| Slot::default()).collect());
            let turn = self.turn.get();
            self.turn.set(turn.wrapping_add(1));
            slots[turn % slots.len()].clone()
        };
        let mut slot = slot.lock().await;
        if let Some((sender, answered)) = slot.as_ref().filter(|(sender, _)| !sender.is_closed()) {
            return Ok((Session::Many(sender.clone()), answered.get(), Some(answered.clone())));
        }
        let session = self.connect(origin).await?;
        let answered = Rc::new(Cell::new(false));
        if let Session::Many(sender) = &session
            && self.plan.keep_alive
        {
            *slot = Some((sender.clone(), answered.clone()));
        }
        Ok((session, false, Some(answered)))
    }

    async fn connect(&self, origin: &Origin) -> Result<Session, Trouble> {
        let address = match self.addresses.get(origin) {
            Some(address) => *address,
            None => probe::first_address(origin)
                .map_err(|error| Trouble::new(Fault::Unreachable, error.to_string()))?,
        };
        let began = self.clock.now();
        let session = self.client.connect(origin, address, &self.wire).await?;
        let mut tally = self.tally.borrow_mut();
        tally.counters.connections += 1;
        tally.connect.saturating_record(self.clock.now().saturating_sub(began));
        Ok(session)
    }

    async fn receive(
        &self,
        response: Response<Incoming>,
        target: &Target,
        range: Option<ByteRange>,
    ) -> Result<Received, Trouble> {
        let head = head_of(&response);
        let fault = wrong_range(&head, range);
        let reference = self.reference.as_deref().filter(|_| target.method != "HEAD");
        let mut comparison = reference.and_then(|reference| {
            let comparison = match (head.status, head.content_range) {
                (200, _) => Comparison::new(0, reference.length()),
                (206, Some(Ok(range))) => {
                    Comparison::new(range.first, range.last.saturating_add(1))
                }
                _ => return None,
            };
            Some((reference, comparison))
        });
        let mut buffer = Vec::new();
        let mut body = response.into_body();
        let mut length = 0;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| describe(&error, true))?;
            let Some(bytes) = frame.data_ref() else { continue };
            length += bytes.len() as u64;
            self.tally.borrow_mut().counters.body_bytes += bytes.len() as u64;
            if let Some((reference, comparison)) = &mut comparison {
                comparison.take(reference, bytes, &mut buffer);
            }
        }
        let wrong = comparison.and_then(|(_, comparison)| comparison.finish());
        let corrupt = wrong.map(|wrong| Trouble::new(Fault::Corrupt, wrong.to_string()));
        let Head { status, location, .. } = head;
        Ok(Received { status, first_byte: 0, length, location, fault: fault.or(corrupt) })
    }
}

fn request(
    plan: &Plan,
    target: &Target,
    range: Option<ByteRange>,
) -> Result<Request<Body>, Trouble> {
    let uri = if plan.http2 { target.url.to_string() } else { target.url.path.clone() };
    let mut request = Request::builder().method(target.method.as_str()).uri(uri);
    if !plan.http2 {
        request = request.header("Host", target.url.origin.host_field());
        if !plan.keep_alive {
            request = request.header("Connection", "close");
        }
    }
    for (name, value) in &plan.headers {
        request = request.header(name, value);
    }
    if let Some(ByteRange { first, last }) = range {
        request = request.header("Range", format!("bytes={first}-{last}"));
    }
    request.body(Empty::new()).map_err(|error| Trouble::new(Fault::Local, error.to_string()))
}

/// What matters of a head that hyper has read.
fn head_of(response: &Response<Incoming>) -> Head {
    let mut head = Head::new(response.status().as_u16());
    for (name, value) in response.headers() {
        // What hyper lets pass is well-formed, as far as these fields matter.
        let _ = head.take_field(name.as_str(), value.as_bytes(), &mut false);
    }
    head
}

/// Whether an error says no more than that the server had closed a kept connection.
fn is_stale(error: &hyper::Error) -> bool {
    let h2 = cause::<h2::Error>(error);
    let refused = |e: &h2::Error| {
        e.is_go_away() || e.is_io() || e.reason() == Some(h2::Reason::REFUSED_STREAM)
    };
    error.is_canceled()
        || error.is_incomplete_message()
        || error.is_closed()
        || h2.is_some_and(refused)
        || cause::<io::Error>(error).is_some_and(|e| Fault::of_io(e) == Fault::Reset)
}

fn cause<T: std::error::Error + 'static>(error: &hyper::Error) -> Option<&T> {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

/// What an error means for its request; `begun` is whether its answer had.
fn describe(error: &hyper::Error, begun: bool) -> Trouble {
    let ended = if begun { Fault::ShortBody } else { Fault::Closed };
    let fault = if let Some(error) = cause::<io::Error>(error) {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => ended,
            io::ErrorKind::InvalidData => Fault::BadResponse,
            _ => Fault::of_io(error),
        }
    } else if let Some(error) = cause::<h2::Error>(error) {
        if error.is_remote() && error.is_reset() {
            Fault::Reset
        } else if error.is_go_away() && error.is_remote() {
            ended
        } else {
            Fault::BadResponse
        }
    } else if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
        ended
    } else {
        Fault::BadResponse
    };
    let mut detail = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        detail.push_str(&format!(": {error}"));
        source = error.source();
    }
    Trouble::new(fault, detail)
}
