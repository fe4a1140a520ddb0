//! Traces for an operator's collector: how long a publisher took until viewers could watch, and a viewer until the first
//! byte.
//!
//! ```text
//! rtmp, push, webrtc, deliver ─ Trace ─▶ queue (bounded) ─ exporter ─▶ ENDPOINT/v1/traces   OTLP, JSON over HTTP
//!      event loops                                          main runtime
//! ```
//!
//! Without an endpoint, a [`Trace`] is empty: it allocates nothing and reads no clock. The trace of an unsampled HTTP
//! request is empty, too. An RTMP connection is sampled when it asks for something.
//! docs/traces.md tells operators what the spans are.

mod context;
mod exporter;

use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use http::Request;
use http::net::{LogId, LogLimit, Names};
use live::Stream;
use tokio::sync::mpsc::{Receiver, Sender, channel, error::TrySendError};

pub use context::Context;
use context::random;
pub use exporter::Exporter;

use crate::config;
use crate::sessions::Doing;

/// Most traces that wait for the collector. A trace has a kilobyte at most, but for what its peer named.
const QUEUE: usize = 2048;

/// Longest text in an attribute, in bytes.
const LONGEST: usize = 256;

/// Most requests in a second that are traced only because their clients want it: strangers must not take the queue from
/// publishers.
const WANTED: u32 = 100;

/// Where traces go. Clones are the same one.
#[derive(Debug, Clone, Default)]
pub struct Traces(Option<Arc<Kept>>);

#[derive(Debug)]
struct Kept {
    queue: Sender<Finished>,
    /// Until somebody sends them on.
    finished: Mutex<Option<Receiver<Finished>>>,
    /// Of 2^64 random numbers, those below this are sampled.
    sampled_below: u64,
    dropped: AtomicU64,
    /// Limits the requests that are traced only because their clients want it.
    wanted: Mutex<LogLimit>,
    not_granted: AtomicU64,
}

impl Traces {
    /// Traces for the collector of the configuration, and nothing without one.
    pub fn new(config: &config::Traces) -> Self {
        if config.endpoint.is_empty() {
            return Self::default();
        }
        let (queue, finished) = channel(QUEUE);
        // The conversion saturates.
        let sampled_below = (config.sample.as_f64() * u64::MAX as f64) as u64;
        let finished = Mutex::new(Some(finished));
        Self(Some(Arc::new(Kept {
            queue,
            finished,
            sampled_below,
            dropped: AtomicU64::default(),
            wanted: Mutex::new(LogLimit::new(WANTED, Duration::from_secs(1))),
            not_granted: AtomicU64::default(),
        })))
    }

    /// Spans that no collector took.
    pub fn dropped(&self) -> u64 {
        self.0.as_ref().map_or(0, |kept| kept.dropped.load(Ordering::Relaxed))
    }

    /// Requests whose clients wanted a trace, beyond the limit.
    pub fn not_granted(&self) -> u64 {
        self.0.as_ref().map_or(0, |kept| kept.not_granted.load(Ordering::Relaxed))
    }

    /// A connection that was accepted, and that may publish or play later.
    pub fn accepted(&self) -> Trace {
        Trace(self.0.as_ref().map(|kept| Box::new(Open::new(kept, Instant::now()))))
    }

    /// Notes what a connection that was accepted asks for. Players are sampled now. A second request begins now.
    pub fn connection_asks(
        &self,
        trace: &mut Trace,
        (doing, protocol): (Doing, &'static str),
        path: &dyn Display,
    ) {
        let Some(kept) = &self.0 else { return };
        if trace.0.as_ref().is_none_or(|open| open.about.is_some()) {
            trace.failed(&"the peer asked for something else before");
            *trace = self.accepted();
        }
        if doing == Doing::Play && !kept.samples() {
            trace.0 = None;
            return;
        }
        trace.phase("connect");
        trace.asks(doing, protocol, path);
    }

    /// A request of HTTP. It is sampled if its `traceparent` (W3C Trace Context) says so, up to a limit; without one, as
    /// the configuration says.
    pub fn request(&self, request: &Request) -> Trace {
        self.viewer(request.header("traceparent"), || request.received())
    }

    /// The same, of a request that has this `traceparent` and came at this time.
    pub fn viewer(&self, parent: Option<&str>, came: impl FnOnce() -> Instant) -> Trace {
        let Some(kept) = &self.0 else { return Trace::default() };
        let parent = parent.and_then(Context::parse);
        let is_wanted = parent.is_none_or(|parent| parent.is_sampled);
        let is_sampled =
            is_wanted && (kept.samples() || parent.is_some() && kept.grants(Instant::now()));
        let open = || Box::new(Open { parent, ..Open::new(kept, came()) });
        Trace(is_sampled.then(open))
    }

    /// A publisher whose request of HTTP comes now. All are sampled.
    pub fn publisher(&self, parent: Option<&str>) -> Trace {
        let parent = parent.and_then(Context::parse);
        let open = |kept| Box::new(Open { parent, ..Open::new(kept, Instant::now()) });
        Trace(self.0.as_ref().map(open))
    }
}

impl Kept {
    /// Whether the next one is sampled.
    fn samples(&self) -> bool {
        self.sampled_below == u64::MAX || random() < self.sampled_below
    }

    /// Whether the next one is traced because its client wants it.
    fn grants(&self, now: Instant) -> bool {
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        let is_granted = wanted.take(now).is_some();
        self.not_granted.fetch_add(u64::from(!is_granted), Ordering::Relaxed);
        is_granted
    }

    fn drop_spans(&self, count: usize) {
        self.dropped.fetch_add(count as u64, Ordering::Relaxed);
    }
}

/// A trace while it is made: what somebody waits for, phase by phase. If it is dropped before [`done`](Self::done), the
/// peer left first.
#[derive(Debug, Default)]
pub struct Trace(Option<Box<Open>>);

#[derive(Debug)]
struct Open {
    kept: Arc<Kept>,
    parent: Option<Context>,
    /// Who does what by which protocol. A connection that has not said so is not told of.
    about: Option<About>,
    began: Instant,
    /// The phases that are over: their names, and when they ended.
    phases: Vec<(&'static str, Instant)>,
    has_media: bool,
    attributes: Vec<(&'static str, Value)>,
    /// The names that the log has, if they are not those of the task that ends the trace.
    names: Option<LogId>,
}

#[derive(Debug)]
struct About {
    doing: Doing,
    protocol: &'static str,
    path: String,
}

#[derive(Debug)]
enum Value {
    Text(String),
    Number(u64),
}

/// A trace that is complete.
#[derive(Debug)]
struct Finished {
    id: u128,
    span: u64,
    /// The span of the client that it belongs to.
    parent: Option<u64>,
    about: About,
    /// In nanoseconds since 1970, as all times here.
    began: u64,
    phases: Vec<(&'static str, u64)>,
    end: u64,
    attributes: Vec<(&'static str, Value)>,
    error: Option<String>,
}

impl Finished {
    /// Number of its spans.
    fn spans(&self) -> usize {
        1 + self.phases.len()
    }
}

impl Open {
    fn new(kept: &Arc<Kept>, began: Instant) -> Self {
        let kept = Arc::clone(kept);
        let (phases, attributes) = (Vec::new(), Vec::new());
        let (parent, about, has_media, names) = (None, None, false, None);
        Self { kept, parent, about, began, phases, has_media, attributes, names }
    }
}

impl Trace {
    /// Whether anything is noted.
    pub fn is_open(&self) -> bool {
        self.0.is_some()
    }

    /// Notes what the peer asks for.
    pub fn asks(&mut self, doing: Doing, protocol: &'static str, path: &dyn Display) {
        if let Some(open) = &mut self.0 {
            open.about = Some(About { doing, protocol, path: shortened(&path.to_string()) });
        }
    }

    /// Keeps the names that the log has now: another task may end the trace.
    pub fn keep_names(&mut self) {
        if let Some(open) = &mut self.0 {
            open.names = Some(LogId::current());
        }
    }

    /// Ends a phase, which began when the one before ended.
    pub fn phase(&mut self, name: &'static str) {
        if let Some(open) = &mut self.0 {
            open.phases.push((name, Instant::now()));
        }
    }

    /// Adds an attribute.
    pub fn text(&mut self, name: &'static str, value: &str) {
        if let Some(open) = &mut self.0 {
            open.attributes.push((name, Value::Text(shortened(value))));
        }
    }

    /// Adds an attribute that is a number.
    pub fn number(&mut self, name: &'static str, value: u64) {
        if let Some(open) = &mut self.0 {
            open.attributes.push((name, Value::Number(value)));
        }
    }

    /// Ends the phase in which media were waited for: they are there, and go to the connection now.
    pub fn has_media(&mut self) {
        if let Some(open) = &mut self.0
            && !std::mem::replace(&mut open.has_media, true)
        {
            open.phases.push(("wait for media", Instant::now()));
        }
    }

    /// Bytes went to the connection. Where media are there, no more is waited for.
    pub fn sent(&mut self) {
        if self.0.as_ref().is_some_and(|open| open.has_media) {
            self.phase("first byte");
            self.done();
        }
    }

    /// The first media of a publisher have come. The trace ends when viewers can watch `stream`, or now without one: the
    /// publisher waits for another one's end.
    pub fn first_media(&mut self, stream: Option<&Arc<Stream>>) {
        self.phase("first media");
        let Some(stream) = stream.filter(|_| self.is_open()).cloned() else { return self.done() };
        let mut trace = std::mem::take(self);
        tokio::spawn(LogId::current().scope(async move {
            if stream.ready().await {
                trace.phase("ready for viewers");
                trace.done();
            } else {
                trace.failed(&"the stream ended before viewers could watch");
            }
        }));
    }

    /// What the peer waited for is there.
    pub fn done(&mut self) {
        self.finish(None);
    }

    /// The peer does not get what it waited for.
    pub fn failed(&mut self, why: &dyn Display) {
        if self.is_open() {
            self.finish(Some(shortened(&why.to_string())));
        }
    }

    fn finish(&mut self, error: Option<String>) {
        let Some(open) = self.0.take() else { return };
        let Open { kept, parent, about, began, phases, mut attributes, names, .. } = *open;
        let Some(about) = about else { return };
        // The names that the log has, too.
        let tell = |Names { connection, session, request }: Names<'_>| {
            let numbers = [("headwater.connection", connection), ("headwater.session", session)];
            let numbers =
                numbers.into_iter().filter_map(|(name, n)| Some((name, Value::Number(n?))));
            attributes.extend(numbers);
            let request = request.map(|id| Value::Text(id.to_owned()));
            attributes.extend(request.map(|id| ("headwater.request_id", id)));
        };
        match names {
            Some(names) => names.within(|| LogId::tell(tell)),
            None => LogId::tell(tell),
        }
        // Both clocks are read once, so that spans of a trace cannot overlap because one of them is set.
        let (now, time) = (Instant::now(), SystemTime::now());
        let time = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let at = |when: Instant| nanos(time.saturating_sub(now.saturating_duration_since(when)));
        let phases = phases.into_iter().map(|(name, end)| (name, at(end))).collect();
        let (began, end) = (at(began), nanos(time));
        let id = parent.map_or_else(
            || u128::from(random()) << 64 | u128::from(random()),
            |parent| parent.trace,
        );
        let parent = parent.map(|parent| parent.span);
        let span = random();
        let finished = Finished { id, span, parent, about, began, phases, end, attributes, error };
        if let Err(TrySendError::Full(lost) | TrySendError::Closed(lost)) =
            kept.queue.try_send(finished)
        {
            kept.drop_spans(lost.spans());
        }
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        self.failed(&"the peer left before");
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn shortened(text: &str) -> String {
    text[..text.floor_char_boundary(LONGEST)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Factor;

    fn traces(thousandths: u32) -> Traces {
        let endpoint = "http://127.0.0.1:4318".to_owned();
        Traces::new(&config::Traces { endpoint, sample: Factor::from_thousandths(thousandths) })
    }

    fn playing(traces: &Traces) -> bool {
        let mut trace = traces.accepted();
        traces.connection_asks(&mut trace, (Doing::Play, "rtmp"), &"live/x");
        trace.is_open()
    }

    #[test]
    fn who_is_traced() {
        let off = Traces::new(&config::Traces::default());
        assert!(!off.accepted().is_open() && !off.publisher(None).is_open());
        assert!(!playing(&off) && playing(&traces(1000)) && !playing(&traces(0)));
        let some = traces(100);
        let count = (0..10_000).filter(|_| playing(&some)).count();
        assert!((500..2000).contains(&count), "{count}");
        assert!(traces(0).publisher(None).is_open(), "publishers always are");
        // A player that was not sampled may publish later.
        let none = traces(0);
        let mut trace = none.accepted();
        none.connection_asks(&mut trace, (Doing::Play, "rtmp"), &"live/x");
        none.connection_asks(&mut trace, (Doing::Publish, "rtmp"), &"live/x");
        assert!(trace.is_open());
    }

    #[test]
    fn clients_may_want_so_many_traces_a_second() {
        let traces = traces(0);
        let kept = traces.0.as_ref().unwrap();
        let (first, second) = (Instant::now(), Duration::from_secs(1));
        let granted = |at| (0..WANTED + 5).filter(|_| kept.grants(at)).count();
        assert_eq!((granted(first), granted(first + second / 2)), (WANTED as usize, 0));
        assert_eq!(granted(first + second), WANTED as usize);
        assert_eq!(traces.not_granted(), u64::from(WANTED + 15));
    }

    #[test]
    fn what_has_no_room_is_counted_and_who_asked_for_nothing_is_not_told_of() {
        let traces = traces(1000);
        for _ in 0..QUEUE + 5 {
            drop(traces.accepted());
            let mut trace = traces.accepted();
            traces.connection_asks(&mut trace, (Doing::Play, "rtmp"), &"live/x");
            trace.sent();
            assert!(trace.is_open(), "these bytes were no media");
            trace.has_media();
            trace.has_media();
            assert!(trace.is_open());
            trace.sent();
            assert!(!trace.is_open());
        }
        // All of it, `connect`, `wait for media` and `first byte`.
        assert_eq!(traces.dropped(), 5 * 4);
    }

    #[test]
    fn what_peers_name_is_shortened() {
        let traces = traces(1000);
        let mut trace = traces.accepted();
        traces.connection_asks(&mut trace, (Doing::Play, "rtmp"), &"\u{e4}".repeat(1000));
        drop(trace);
        let mut finished = traces.0.as_ref().unwrap().finished.lock().unwrap().take().unwrap();
        let finished = finished.try_recv().unwrap();
        assert_eq!(finished.about.path.len(), LONGEST);
        assert_eq!(finished.error.as_deref(), Some("the peer left before"));
    }
}
