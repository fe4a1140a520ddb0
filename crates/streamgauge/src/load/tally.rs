//! The counters and histograms of a worker. Other threads can read the cumulative counters at any
//! time. The memory of the histograms does not depend on the length of the run.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Why a request got no good answer.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
#[clap(rename_all = "snake_case")]
pub enum Fault {
    /// Nobody listens there.
    Refused,
    /// There is no way there: no route, no such host, or no answer to a connection.
    Unreachable,
    /// The connection was reset.
    Reset,
    /// The connection was closed before an answer began.
    Closed,
    /// The answer was not complete in time.
    Timeout,
    /// The connection ended within the body.
    ShortBody,
    /// Content-Length differs from the bytes, or from Content-Range: the bytes after the body are
    /// no answer.
    ContentLength,
    /// The answer is not valid HTTP.
    BadResponse,
    /// The answer has other bytes than the range asked for.
    WrongRange,
    /// The body differs from the file that it must equal.
    Corrupt,
    /// There were more redirections than allowed.
    TooManyRedirects,
    /// A redirection leads nowhere: it has no Location, or an unusable one.
    BadRedirect,
    /// The TLS handshake failed.
    Tls,
    /// This machine had no descriptor, port or memory left; the generator is at fault.
    Local,
}

impl Fault {
    /// All faults, in order.
    pub const ALL: [Self; 14] = [
        Self::Refused,
        Self::Unreachable,
        Self::Reset,
        Self::Closed,
        Self::Timeout,
        Self::ShortBody,
        Self::ContentLength,
        Self::BadResponse,
        Self::WrongRange,
        Self::Corrupt,
        Self::TooManyRedirects,
        Self::BadRedirect,
        Self::Tls,
        Self::Local,
    ];

    /// Name in documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::Reset => "reset",
            Self::Closed => "closed",
            Self::Timeout => "timeout",
            Self::ShortBody => "short_body",
            Self::ContentLength => "content_length",
            Self::BadResponse => "bad_response",
            Self::WrongRange => "wrong_range",
            Self::Corrupt => "corrupt",
            Self::TooManyRedirects => "too_many_redirects",
            Self::BadRedirect => "bad_redirect",
            Self::Tls => "tls",
            Self::Local => "local",
        }
    }

    /// Whether no connection was made, so that another request at once would be useless.
    pub(super) fn is_of_connecting(self) -> bool {
        matches!(self, Self::Refused | Self::Unreachable | Self::Local)
    }

    /// The fault that an error of a socket means for its request.
    pub fn of_io(error: &std::io::Error) -> Self {
        use std::io::ErrorKind;
        match error.kind() {
            ErrorKind::ConnectionRefused => Self::Refused,
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => Self::Reset,
            ErrorKind::TimedOut => Self::Timeout,
            ErrorKind::UnexpectedEof => Self::ShortBody,
            ErrorKind::AddrNotAvailable | ErrorKind::AddrInUse | ErrorKind::OutOfMemory => {
                Self::Local
            }
            _ => match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
                Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE) => Self::Local,
                Some(rustix::io::Errno::NOBUFS | rustix::io::Errno::NOMEM) => Self::Local,
                _ => Self::Unreachable,
            },
        }
    }
}

/// Cumulative counts of a worker or, added up, of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counters {
    /// Requests started. A request that is redirected or sent again counts once.
    pub requests: u64,
    /// Complete answers of any status.
    pub responses: u64,
    /// Requests without a complete answer, or with a bad one.
    pub errors: u64,
    /// Bytes of bodies, without their transfer coding.
    pub body_bytes: u64,
    /// Bytes of heads and of transfer codings; over HTTP/2, of all frames except the data in them.
    /// TLS is not counted.
    pub head_bytes: u64,
    /// Bytes of requests; over HTTP/2, of all frames sent. TLS is not counted.
    pub sent_bytes: u64,
    /// Connections opened.
    pub connections: u64,
    /// Requests sent again because the server had closed their kept connection.
    pub sent_again: u64,
    /// Redirections followed.
    pub redirects: u64,
    /// Processor time of the workers, in nanoseconds.
    pub cpu_ns: u64,
}

/// Counters that other threads can read while their owner adds to them.
///
/// Each counter is consistent; two of them may be of different moments.
#[derive(Debug, Default)]
#[repr(align(128))] // Apart from the next worker's, by two lines of cache.
pub struct Shared([AtomicU64; 10]);

impl Shared {
    /// Publishes these counters.
    pub fn publish(&self, counters: &Counters) {
        for (cell, value) in self.0.iter().zip(counters.fields()) {
            cell.store(value, Relaxed);
        }
    }

    /// The counters that were published last.
    pub fn read(&self) -> Counters {
        let mut counters = Counters::default();
        for (field, cell) in counters.fields_mut().into_iter().zip(&self.0) {
            *field = cell.load(Relaxed);
        }
        counters
    }
}

impl Counters {
    fn fields(&self) -> [u64; 10] {
        [
            self.requests,
            self.responses,
            self.errors,
            self.body_bytes,
            self.head_bytes,
            self.sent_bytes,
            self.connections,
            self.sent_again,
            self.redirects,
            self.cpu_ns,
        ]
    }

    fn fields_mut(&mut self) -> [&mut u64; 10] {
        [
            &mut self.requests,
            &mut self.responses,
            &mut self.errors,
            &mut self.body_bytes,
            &mut self.head_bytes,
            &mut self.sent_bytes,
            &mut self.connections,
            &mut self.sent_again,
            &mut self.redirects,
            &mut self.cpu_ns,
        ]
    }

    /// Requests that are neither answered nor failed.
    pub(super) fn in_flight(&self) -> u64 {
        self.requests.saturating_sub(self.responses + self.errors)
    }

    /// Adds the counters of another worker.
    pub fn add(&mut self, other: &Self) {
        for (field, value) in self.fields_mut().into_iter().zip(other.fields()) {
            *field = field.saturating_add(value);
        }
    }
}

/// Makes a histogram of nanoseconds, from 1 ns to an hour, exact to a thousandth of each value.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("bounds and precision that exist")
}

/// All results of one worker.
#[derive(Debug, Serialize, Deserialize)]
pub struct Tally {
    /// The counters.
    pub counters: Counters,
    /// Time from when a request was due to the first byte of its answer. In a closed loop, a
    /// request is due when it is sent.
    #[serde(with = "v2")]
    pub first_byte: Histogram<u64>,
    /// Time from when a request was due to the last byte of its answer.
    #[serde(with = "v2")]
    pub last_byte: Histogram<u64>,
    /// Time from when the worker took a request up to the last byte of its answer, without the
    /// worker's standstills in between: [`Tally::last_byte`] without the generator's lag. Empty in
    /// a closed loop.
    #[serde(with = "v2")]
    pub prompt: Histogram<u64>,
    /// Time from starting to open a connection until it is open, including TLS.
    #[serde(with = "v2")]
    pub connect: Histogram<u64>,
    /// Time from when a request was due until the worker took it up. The generator itself adds it
    /// to a latency. Empty in a closed loop.
    #[serde(with = "v2")]
    pub lag: Histogram<u64>,
    /// Complete answers by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Requests without a good answer, by kind: their number, and a description of the first.
    pub faults: BTreeMap<Fault, (u64, String)>,
    /// Requests that waited for a connection because all were busy.
    pub queued: u64,
    /// Requests of the schedule that never started.
    pub not_begun: u64,
    /// Requests that were neither answered nor failed when the run ended.
    pub unfinished: u64,
    /// How long the worker ran, in seconds.
    pub wall_seconds: f64,
    /// When the last worker finished, in seconds since the start of the run.
    pub ended: f64,
    /// How long the worker was ready to run but had no processor, in seconds.
    pub starved_seconds: f64,
    #[serde(skip)]
    last_status: (u16, u64),
}

/// Histograms in HdrHistogram's V2 encoding.
mod v2 {
    use hdrhistogram::Histogram;
    use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};
    use serde::Deserialize;
    use serde::de::Error as _;
    use serde::ser::Error as _;

    pub(super) fn serialize<S: serde::Serializer>(
        histogram: &Histogram<u64>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let mut bytes = Vec::new();
        let written = V2Serializer::new().serialize(histogram, &mut bytes);
        written.map_err(|error| S::Error::custom(format!("{error:?}")))?;
        to.serialize_bytes(&bytes)
    }

    pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(
        from: D,
    ) -> Result<Histogram<u64>, D::Error> {
        let bytes = Vec::<u8>::deserialize(from)?;
        let read = Deserializer::new().deserialize(&mut bytes.as_slice());
        let read: Histogram<u64> = read.map_err(|error| D::Error::custom(format!("{error:?}")))?;
        // Added to a histogram of our own, whose bounds are known.
        let mut histogram = super::histogram();
        histogram.add(&read).map_err(|error| D::Error::custom(error.to_string()))?;
        Ok(histogram)
    }
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            counters: Counters::default(),
            first_byte: histogram(),
            last_byte: histogram(),
            prompt: histogram(),
            connect: histogram(),
            lag: histogram(),
            statuses: BTreeMap::new(),
            faults: BTreeMap::new(),
            queued: 0,
            not_begun: 0,
            unfinished: 0,
            wall_seconds: 0.0,
            ended: 0.0,
            starved_seconds: 0.0,
            last_status: (0, 0),
        }
    }
}

impl Tally {
    /// Counts a complete answer to a request that was due at `due` and, in an open loop, taken up
    /// at `taken`. `status` is 0 without HTTP.
    pub fn answered(
        &mut self,
        status: u16,
        due: u64,
        taken: Option<u64>,
        first_byte: u64,
        last_byte: u64,
    ) {
        self.counters.responses += 1;
        self.first_byte.saturating_record(first_byte.saturating_sub(due));
        self.last_byte.saturating_record(last_byte.saturating_sub(due));
        if let Some(taken) = taken {
            self.prompt.saturating_record(last_byte.saturating_sub(taken));
        }
        // Nearly all answers have the same status as the answer before.
        if self.last_status.0 != status {
            self.settle();
            self.last_status.0 = status;
        }
        self.last_status.1 += 1;
    }

    /// Counts a request without a good answer. `detail` describes the failure.
    pub fn failed(&mut self, fault: Fault, detail: impl FnOnce() -> String) {
        self.counters.errors += 1;
        let entry = self.faults.entry(fault).or_insert_with(|| (0, detail()));
        entry.0 += 1;
    }

    /// Brings [`Tally::statuses`] up to date.
    pub fn settle(&mut self) {
        let (status, count) = std::mem::take(&mut self.last_status);
        // Answers without HTTP have no status.
        if count > 0 && status > 0 {
            *self.statuses.entry(status).or_default() += count;
        }
    }

    /// Adds the tally of another worker, which must be settled.
    pub fn add(&mut self, other: &Self) {
        self.counters.add(&other.counters);
        let histograms = [
            (&mut self.first_byte, &other.first_byte),
            (&mut self.last_byte, &other.last_byte),
            (&mut self.prompt, &other.prompt),
            (&mut self.connect, &other.connect),
            (&mut self.lag, &other.lag),
        ];
        for (into, from) in histograms {
            into.add(from).expect("the same bounds");
        }
        for (status, count) in &other.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
        for (fault, (count, detail)) in &other.faults {
            self.faults.entry(*fault).or_insert_with(|| (0, detail.clone())).0 += count;
        }
        self.queued += other.queued;
        self.not_begun += other.not_begun;
        self.unfinished += other.unfinished;
        self.wall_seconds += other.wall_seconds;
        self.ended = self.ended.max(other.ended);
        self.starved_seconds += other.starved_seconds;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tallies_of_workers_add_up() {
        let mut one = Tally::default();
        one.answered(200, 1_000, None, 2_000, 5_000);
        one.answered(404, 1_000, None, 3_000, 4_000);
        one.answered(200, 0, None, 1_000_000, 2_000_000);
        one.failed(Fault::Reset, || "first".to_owned());
        one.failed(Fault::Reset, || unreachable!("only the first is described"));
        one.settle();
        let mut both = Tally::default();
        both.answered(200, 0, None, 1, 1);
        both.settle();
        both.add(&one);
        assert_eq!(both.statuses, BTreeMap::from([(200, 3), (404, 1)]));
        assert_eq!(both.faults, BTreeMap::from([(Fault::Reset, (2, "first".to_owned()))]));
        assert_eq!((both.counters.responses, both.counters.errors), (4, 2));
        assert_eq!(both.last_byte.len(), 4);
        let middle = both.last_byte.value_at_quantile(0.5);
        assert!(middle.abs_diff(3_000) <= 3, "{middle}");
        let longest = both.last_byte.max();
        assert!(longest.abs_diff(2_000_000) <= 2_000, "{longest}");
    }

    #[test]
    fn a_tally_of_another_process_is_read_unchanged() {
        let mut tally = Tally::default();
        for n in 1..=10_000 {
            tally.answered(200, 0, Some(n), n * 1000, n * 7919);
            tally.lag.saturating_record(n);
        }
        tally.failed(Fault::Reset, || "why".to_owned());
        tally.last_byte.saturating_record(u64::MAX);
        tally.settle();
        let text = serde_json::to_string(&tally).unwrap();
        assert!(text.len() < 100_000, "{}", text.len());
        let read: Tally = serde_json::from_str(&text).unwrap();
        assert_eq!(read.counters, tally.counters);
        assert_eq!((&read.statuses, &read.faults), (&tally.statuses, &tally.faults));
        for (one, other) in [
            (&read.first_byte, &tally.first_byte),
            (&read.last_byte, &tally.last_byte),
            (&read.prompt, &tally.prompt),
            (&read.connect, &tally.connect),
            (&read.lag, &tally.lag),
        ] {
            assert_eq!(one, other);
        }
        let mut both = Tally::default();
        both.add(&tally);
        both.add(&read);
        assert_eq!(both.prompt.len(), 20_000);
    }

    #[test]
    fn histograms_are_exact_to_a_thousandth_and_bounded() {
        let mut histogram = histogram();
        for value in [1, 20_000, 1_234_567, 98_765_432_100] {
            histogram.saturating_record(value);
            let found = histogram.max();
            assert!(found.abs_diff(value) <= value / 1000, "{value} {found}");
        }
        histogram.saturating_record(u64::MAX);
        assert!(histogram.max() >= 3_600_000_000_000);
        assert!(histogram.distinct_values() * 8 < 400_000);
        // Independent of the number and size of the values.
        let values = histogram.distinct_values();
        for n in 0..200_000_u64 {
            histogram.saturating_record(n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (n % 64));
        }
        assert_eq!(histogram.distinct_values(), values);
        assert!(!histogram.is_auto_resize());
    }

    #[test]
    fn published_counters_are_read_unchanged() {
        let mut counters = Counters::default();
        for (value, field) in (1..).zip(counters.fields_mut()) {
            *field = value;
        }
        let shared = Shared::default();
        shared.publish(&counters);
        assert_eq!(shared.read(), counters);
    }

    #[test]
    fn faults_are_named_as_they_are_written() {
        for fault in Fault::ALL {
            assert_eq!(serde_json::to_value(fault).unwrap(), fault.name());
        }
    }
}
