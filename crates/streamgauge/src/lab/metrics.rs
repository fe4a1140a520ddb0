//! Computes the metrics of a trial from the document of its load and from the samples of the meter.
//! docs/scenarios.md lists names and units. A value that the document lacks gives no metric.

use std::collections::BTreeMap;

use serde_json::Value;

use super::scenario::Tool;
use crate::meter::Sample;
use crate::{number, percentile};

/// Metrics by name.
pub type Metrics = BTreeMap<String, f64>;

/// The results of a load.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Loaded {
    /// What it measured.
    pub metrics: Metrics,
    /// Whether the load itself was the limit.
    pub saturated: bool,
    /// Warnings for readers of the figures.
    pub warnings: Vec<String>,
    /// Whether the load was interrupted.
    pub interrupted: bool,
}

impl Loaded {
    /// Reads the document of one of this program's verbs (docs/schema).
    pub fn of(tool: Tool, document: &Value) -> Self {
        let document = Document(document);
        let mut loaded = Self {
            metrics: Metrics::new(),
            saturated: document.flag("/generator/saturated"),
            warnings: document.texts("/warnings"),
            interrupted: document.flag("/interrupted"),
        };
        loaded.warnings.extend(doubts(&document.at("/generator")));
        match tool {
            Tool::Viewers => {
                let size = document.number("/batch_size");
                let clients = document.number("/batches").zip(size).map(|(a, b)| a * b);
                loaded.viewers(&document.at("/viewers"), clients);
                // Steps of `capacity` may take as long as the server does: they have no such figure.
                document.copy(&mut loaded.metrics, "/viewers/watched_seconds", WATCHED, 1.0);
            }
            Tool::Capacity => loaded.capacity(&document),
            _ => http(&document, &mut loaded.metrics),
        }
        loaded
    }

    /// Takes the metrics of simulated players. Latencies by several clocks do not belong together.
    fn viewers(&mut self, of: &Document<'_>, clients: Option<f64>) {
        viewers(of, clients, &mut self.metrics);
        let clocks = of.0.pointer("/clocks").and_then(Value::as_object);
        let clocks = clocks.into_iter().flatten().filter_map(|(name, n)| Some((name, n.as_f64()?)));
        let mut words = Vec::new();
        for (name, count) in clocks {
            self.metrics.insert(format!("by_{}", name.replace('-', "_")), count);
            words.push(format!("{name} ({count} viewers)"));
        }
        if words.len() > 1 {
            let words = words.join(", ");
            self.warnings.push(format!("load: latencies are by several clocks: {words}"));
        }
    }

    /// Takes the metrics of the last step, which has the most viewers.
    fn capacity(&mut self, document: &Document<'_>) {
        document.copy(&mut self.metrics, "/capacity", "capacity", 1.0);
        document.copy(&mut self.metrics, "/inflexion", "inflexion", 1.0);
        if let Some(lost) = document.0.pointer("/lost").and_then(Value::as_str) {
            self.saturated = true;
            self.warnings.push(format!("load: lost {lost}"));
        }
        let Some(steps) = document.0.pointer("/steps").and_then(Value::as_array) else { return };
        for step in steps {
            let step = Document(step);
            self.saturated |= step.flag("/generator/saturated");
            self.warnings.extend(doubts(&step.at("/generator")));
        }
        if let Some(last) = steps.last().map(Document) {
            let clients = last.number("/viewers");
            self.viewers(&last.at("/results"), clients);
            last.copy(&mut self.metrics, "/served", "served", 1.0);
            let served = last.number("/served").zip(clients.filter(|clients| *clients > 0.0));
            if let Some((served, clients)) = served {
                self.metrics.insert("served_percent".to_owned(), served / clients * 100.0);
            }
        }
        // The server is measured over all steps, and over the viewer that comes before them where no bit rate is
        // given. Its work must not be divided by what the last step got.
        let has_others = document.number("/encoded_bit_rate").is_some() || steps.len() > 1;
        if has_others {
            for of_last in [RESPONSES, BYTES, SENT, "requests"] {
                self.metrics.remove(of_last);
            }
        }
    }
}

/// A pause of the generator that is worth a warning, in seconds. It may be too short for the 99th percentile by which
/// the generator judges itself, and yet cause the stalls and the largest delays of a run.
const PAUSE: f64 = 1.0;

/// Why a generator's figures are in doubt.
fn doubts(generator: &Document<'_>) -> Vec<String> {
    let reasons = generator.texts("/reasons").into_iter().map(|reason| format!("load: {reason}"));
    let loops = generator.0.pointer("/loops").and_then(Value::as_array).into_iter().flatten();
    let lags = loops.filter_map(|each| Document(each).number("/lag_max"));
    let longest = lags.fold(0.0, f64::max);
    let pause =
        format!("load: a loop of the generator stood still for {} s", number::fixed(longest, 1));
    reasons.chain((longest >= PAUSE).then_some(pause)).collect()
}

/// A document, or a part of it.
#[derive(Clone, Copy)]
struct Document<'a>(&'a Value);

impl<'a> Document<'a> {
    fn at(self, pointer: &str) -> Self {
        Self(self.0.pointer(pointer).unwrap_or(&Value::Null))
    }

    fn number(self, pointer: &str) -> Option<f64> {
        self.0.pointer(pointer)?.as_f64().filter(|number| number.is_finite())
    }

    fn flag(self, pointer: &str) -> bool {
        self.0.pointer(pointer).and_then(Value::as_bool).unwrap_or_default()
    }

    fn texts(self, pointer: &str) -> Vec<String> {
        let texts = self.0.pointer(pointer).and_then(Value::as_array);
        let text = |text: &'a Value| text.as_str().map(str::to_owned);
        texts.into_iter().flatten().filter_map(text).collect()
    }

    /// Adds up the numbers of an object, or one number of each of its members.
    fn sum(self, pointer: &str, of_each: &str) -> Option<f64> {
        let members = self.0.pointer(pointer)?.as_object()?;
        let numbers = members.values().filter_map(|member| Document(member).number(of_each));
        // The sum of no numbers would be -0.
        Some(numbers.fold(0.0, |sum, number| sum + number))
    }

    /// Counts the complete answers in which a server refuses a request: those with status 400 or
    /// above.
    fn refused(self) -> f64 {
        let statuses = self.0.pointer("/statuses").and_then(Value::as_object);
        let of = |(status, count): (&String, &Value)| {
            status.parse::<u16>().ok().filter(|status| *status >= 400).and(count.as_f64())
        };
        statuses.into_iter().flatten().filter_map(of).fold(0.0, |sum, count| sum + count)
    }

    /// Whether a percentile may stand for that of all `clients`. Some may have no value: those that never began to play
    /// have no time until they began. They are worse than all that have one, so they must be few beside those
    /// beyond the percentile: a tenth of them at most.
    fn tells(self, pointer: &str, clients: f64) -> bool {
        let Some(quantile) = percentile::stated(pointer) else { return true };
        let of = pointer.rsplit_once('/').map_or("", |(of, _)| of);
        let count = self.number(&format!("{of}/count")).unwrap_or_default();
        count >= clients * (1.0 - (1.0 - quantile) / 10.0) - 1e-6
    }

    /// Copies a number. A percentile is copied only if its distribution has enough values for it.
    fn copy(self, to: &mut Metrics, pointer: &str, name: &str, factor: f64) {
        if let Some(quantile) = percentile::stated(pointer) {
            let of = pointer.rsplit_once('/').map_or("", |(of, _)| of);
            let count = self.0.pointer(&format!("{of}/count")).and_then(Value::as_u64);
            if !percentile::has(count.unwrap_or_default(), quantile) {
                return;
            }
        }
        if let Some(number) = self.number(pointer) {
            to.insert(name.to_owned(), number * factor);
        }
    }
}

const MS: f64 = 1e3;

/// Kinds of requests and their names in metrics. Blocking reloads have metrics of their own,
/// because their time depends on the stream.
const REQUESTS: [(&str, &str); 5] = [
    ("playlist", "playlist"),
    ("reload", "reload"),
    ("segment", "segment"),
    ("part", "part"),
    ("hinted", "hinted"),
];
/// Kinds of requests for media. Each answer is a chunk.
const CHUNKS: [&str; 3] = ["segment", "part", "hinted"];

/// Adds metrics of simulated players. `clients` is their number, including those that failed.
fn viewers(viewers: &Document<'_>, clients: Option<f64>, to: &mut Metrics) {
    let clients = clients.or(viewers.number("/reported")).unwrap_or_default();
    to.insert("clients".to_owned(), clients);
    for (pointer, name, factor) in [
        ("/satisfied", "satisfied", 1.0),
        ("/played", "played", 1.0),
        ("/stalled", "stalled", 1.0),
        ("/stalls", "stalls", 1.0),
        ("/stall_seconds", "stall_seconds", 1.0),
        ("/switches", "switches", 1.0),
        ("/startup/p50", "startup_p50_ms", MS),
        ("/startup/p99", "startup_p99_ms", MS),
        ("/received/mean", "received_mean_s", 1.0),
        // Viewers that got nothing count as 0.
        ("/bit_rate_all_mean", "bit_rate_kbit", 1e3),
        ("/delivery/p50", "delivery_p50_ms", MS),
        ("/delivery/p99", "delivery_p99_ms", MS),
        ("/delivery_p99/p99", "delivery_worst_ms", MS),
        ("/behind_live/mean", "behind_live_mean_ms", MS),
        ("/late/p50", "late_p50_ms", MS),
        ("/late/p99", "late_p99_ms", MS),
        ("/requests", "requests", 1.0),
    ] {
        if viewers.tells(pointer, clients) {
            viewers.copy(to, pointer, name, factor);
        }
    }
    for (kind, name) in REQUESTS {
        let at = format!("/requests_by_kind/{kind}");
        viewers.copy(to, &format!("{at}/mean"), &format!("{name}_mean_ms"), MS);
        viewers.copy(to, &format!("{at}/p99"), &format!("{name}_p99_ms"), MS);
    }
    if let Some(answered) = viewers.sum("/requests_by_kind", "/count").filter(|n| *n > 0.0) {
        to.insert(RESPONSES.to_owned(), answered);
    }
    if let Some(errors) = viewers.sum("/errors", "") {
        to.insert("errors".to_owned(), errors);
    }
    let media = viewers.number("/media_bytes").unwrap_or_default();
    let received = viewers.number("/overhead_bytes").unwrap_or_default();
    let sent = viewers.number("/sent_bytes").unwrap_or_default();
    to.insert(SENT.to_owned(), sent);
    let overhead = received + sent;
    to.insert("overhead_bytes".to_owned(), overhead);
    if media > 0.0 {
        to.insert("overhead_percent".to_owned(), overhead / media * 100.0);
    }
    let count = |kind: &&str| viewers.number(&format!("/requests_by_kind/{kind}/count"));
    let chunks: f64 = CHUNKS.iter().filter_map(count).sum();
    if chunks > 0.0 {
        to.insert("overhead_bytes_per_chunk".to_owned(), overhead / chunks);
    }
    to.insert(BYTES.to_owned(), media + received);
    if clients > 0.0 {
        let satisfied = to.get("satisfied").copied().unwrap_or_default();
        to.insert("satisfied_percent".to_owned(), satisfied / clients * 100.0);
        to.insert("kib_per_client".to_owned(), (media + received) / 1024.0 / clients);
        to.insert("media_kib_per_client".to_owned(), media / 1024.0 / clients);
    }
}

/// Adds the overhead of each chunk of a push delivery, which has no requests. `chunks` is how many
/// chunks the scenario expects for each client.
pub(super) fn add_pushed(metrics: &mut Metrics, chunks: f64) {
    let of = |name| metrics.get(name).copied().unwrap_or_default();
    let all = chunks * of("clients");
    let overhead = of("overhead_bytes");
    if all > 0.0 {
        metrics.entry("overhead_bytes_per_chunk".to_owned()).or_insert(overhead / all);
    }
}

/// Bytes that clients received. The server's work is divided by them.
const BYTES: &str = "received_bytes";
/// Bytes that viewers sent: their requests.
const SENT: &str = "sent_bytes";
/// Seconds that viewers watched, added up. The server's work is divided by them, too.
const WATCHED: &str = "watched_s";
/// Complete answers. The server's work is divided by them, too.
const RESPONSES: &str = "responses";

/// Adds metrics of `http`.
fn http(document: &Document<'_>, to: &mut Metrics) {
    const MIB: f64 = 1_048_576.0;
    for (pointer, name, factor) in [
        ("/counters/requests", "requests", 1.0),
        ("/counters/responses", RESPONSES, 1.0),
        ("/unfinished", "unfinished", 1.0),
        ("/responses_per_second", "requests_per_second", 1.0),
        ("/body_bytes_per_second", "mib_per_second", 1.0 / MIB),
        ("/last_byte/mean", "latency_mean_ms", MS),
        ("/last_byte/p50", "latency_p50_ms", MS),
        ("/last_byte/p90", "latency_p90_ms", MS),
        ("/last_byte/p99", "latency_p99_ms", MS),
        ("/last_byte/p99_9", "latency_p99_9_ms", MS),
        ("/last_byte/p99_99", "latency_p99_99_ms", MS),
        ("/last_byte/max", "latency_max_ms", MS),
        ("/first_byte/p99", "first_byte_p99_ms", MS),
        ("/connect/p99", "connect_p99_ms", MS),
    ] {
        document.copy(to, pointer, name, factor);
    }
    // An open loop opens as many connections as it needs, so it has no fixed number of clients.
    if document.0.pointer("/loop").and_then(Value::as_str) == Some("closed") {
        document.copy(to, "/connections", "clients", 1.0);
    }
    if let Some(errors) = document.sum("/errors", "/count") {
        // Refusals count as errors: a server that sheds load answers fastest, but gives no service.
        to.insert("errors".to_owned(), errors + document.refused());
    }
    let bytes = |name: &str| document.number(&format!("/counters/{name}")).unwrap_or_default();
    let received = bytes("body_bytes") + bytes("head_bytes");
    to.insert(BYTES.to_owned(), received);
    if let Some(elapsed) = document.number("/elapsed").filter(|elapsed| *elapsed > 0.0) {
        // As ab computes it: with the heads, and 1,024 bytes to a kB.
        to.insert("kb_per_second".to_owned(), received / 1024.0 / elapsed);
    }
}

/// A metric by which others are divided.
fn positive(metrics: &Metrics, name: &str) -> Option<f64> {
    metrics.get(name).copied().filter(|number| *number > 0.0)
}

/// What reached the origin while the load ran, as far as the origin reports it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Through {
    /// Whether the origin is behind a cache that viewers ask.
    pub cached: bool,
    /// Requests to the origin.
    pub requests: Option<f64>,
    /// Bytes of the origin's answers.
    pub bytes: Option<f64>,
    /// Processor time of the origin in seconds, if it is another process than the server.
    pub cpu: Option<f64>,
}

impl Through {
    /// Adds these figures to the metrics of the load.
    pub(super) fn add_to(&self, seconds: f64, metrics: &mut Metrics) {
        let (asked, watched) = (positive(metrics, "requests"), positive(metrics, WATCHED));
        let mut put = |name: &str, value: f64| {
            metrics.insert(name.to_owned(), value);
        };
        if let Some(requests) = self.requests {
            put("origin_requests", requests);
            put("origin_requests_per_second", requests / seconds);
            if let Some(asked) = asked.filter(|_| self.cached) {
                put("hit_percent", (1.0 - requests / asked) * 100.0);
            }
        }
        if let Some(bytes) = self.bytes {
            put("origin_mbit_mean", bytes * 8e-6 / seconds);
        }
        if let Some(cpu) = self.cpu {
            put("origin_cpu_s", cpu);
            put("origin_cores", cpu / seconds);
            if let Some(watched) = watched {
                put("origin_us_per_client_second", cpu * 1e6 / watched);
            }
        }
    }
}

/// The observations of the meter during a trial.
#[derive(Debug, Clone, Default)]
pub struct Observed {
    /// The sample at the start of the load.
    pub before: Option<Sample>,
    /// The sample at the end of the load.
    pub after: Option<Sample>,
    /// Samples of every second, until the meter stopped.
    pub samples: Vec<Sample>,
    /// Processor time of the load and of this program, in seconds.
    pub load_cpu: f64,
    /// How long the used processors were busy while the load ran, in seconds.
    pub busy: f64,
    /// How many processors were used.
    pub processors: u32,
    /// What reached the origin.
    pub through: Through,
}

/// Processor time is counted in hundredths of a second: a shorter time before the load tells little
/// of what the server uses when it is idle.
const LEAST_IDLE: f64 = 0.5;

/// The time span of a load.
#[derive(Clone, Copy)]
struct Span<'a> {
    before: &'a Sample,
    after: &'a Sample,
    seconds: f64,
    /// How many clients share the resources used in that time.
    clients: Option<f64>,
}

impl Observed {
    /// Adds what the system and the server used to the metrics of the load.
    pub fn add_to(&self, metrics: &mut Metrics) {
        let (Some(before), Some(after)) = (&self.before, &self.after) else { return };
        let seconds = after.at - before.at;
        if seconds <= 0.0 {
            return;
        }
        let clients = metrics.get("clients").copied().filter(|clients| *clients > 0.0);
        let mut put = |name: &str, value: f64| {
            metrics.insert(name.to_owned(), value);
        };
        put("load_seconds", seconds);
        let span = Span { before, after, seconds, clients };
        self.system(&span, &mut put);
        self.server(&span, &mut put);
        self.through.add_to(seconds, metrics);
        // Loopback counts what comes in and what goes out as one.
        if let Some(sent) = metrics.get(SENT).copied() {
            metrics.insert("in_mbit_mean".to_owned(), sent * 8e-6 / seconds);
        }
        let Some(cpu) = metrics.get("server_cpu_s").copied() else { return };
        if let Some(bytes) = positive(metrics, BYTES) {
            metrics.insert("server_cpu_s_per_gb".to_owned(), cpu / (bytes / 1e9));
        }
        if let Some(watched) = positive(metrics, WATCHED) {
            metrics.insert("server_us_per_client_second".to_owned(), cpu * 1e6 / watched);
        }
        if let Some(answers) = positive(metrics, RESPONSES) {
            metrics.insert("server_us_per_request".to_owned(), cpu * 1e6 / answers);
            // Less than one tick of the kernel's clock reads as none.
            if cpu > 0.0 {
                metrics.insert("server_requests_per_cpu_s".to_owned(), answers / cpu);
            }
        }
    }

    /// Iterates over the samples from the start of the load to its end.
    fn during<'a>(
        &'a self,
        before: &Sample,
        after: &'a Sample,
    ) -> impl Iterator<Item = &'a Sample> {
        let (from, to) = (before.at, after.at);
        self.samples
            .iter()
            .filter(move |sample| sample.at > from && sample.at <= to)
            .chain(std::iter::once(after))
    }

    /// Iterates over the whole seconds within the load, as pairs of samples. A load shorter than a
    /// second has none.
    fn seconds(&self, before: &Sample, after: &Sample) -> impl Iterator<Item = (&Sample, &Sample)> {
        let (from, to) = (before.at, after.at);
        let pairs = self.samples.iter().zip(self.samples.iter().skip(1));
        pairs.filter(move |(a, b)| a.at >= from && b.at <= to && b.at > a.at)
    }

    /// How much a figure grew at most, compared with the start of the load.
    fn growth(&self, span: &Span<'_>, figure: impl Fn(&Sample) -> u64) -> f64 {
        let most = self.during(span.before, span.after).map(&figure).max();
        most.unwrap_or_default().saturating_sub(figure(span.before)) as f64
    }

    fn system(&self, span: &Span<'_>, put: &mut dyn FnMut(&str, f64)) {
        let Span { before, after, seconds, clients } = *span;
        let cpu = after.system.cpu;
        let memory = self.growth(span, |sample| sample.system.memory);
        put("cpu_percent", cpu);
        put("memory_grown_mib", memory / 1_048_576.0);
        if let Some(clients) = clients {
            put("cpu_percent_per_client", cpu / clients);
            put("memory_mib_per_client", memory / 1_048_576.0 / clients);
            let slab = self.growth(span, |sample| sample.slab);
            let queues = self.growth(span, |sample| sample.sockets.tcp_memory);
            put("slab_kib_per_client", slab / 1024.0 / clients);
            put("socket_queues_kib_per_client", queues / 1024.0 / clients);
        }
        let out = after.system.up.saturating_sub(before.system.up);
        let mean = out as f64 * 8e-6 / seconds;
        let peak = self
            .seconds(before, after)
            .map(|(a, b)| b.system.up.saturating_sub(a.system.up) as f64 * 8e-6 / (b.at - a.at))
            .fold(mean, f64::max);
        put("out_mbit_mean", mean);
        put("out_mbit_peak", peak);
        let counted = after.kernel.since(&before.kernel);
        put("tcp_retransmits", counted.of("TcpRetransSegs") as f64);
        put("receive_queue_drops", counted.of("TcpExtTCPRcvQDrop") as f64);
        put("receive_prunes", counted.of("TcpExtPruneCalled") as f64);
    }

    /// What the server used before the load.
    fn idle(&self, before: &Sample, put: &mut dyn FnMut(&str, f64)) {
        put("server_idle_memory_mib", memory(before) as f64 / 1_048_576.0);
        let first = self.samples.first().filter(|first| before.at - first.at >= LEAST_IDLE);
        if let Some(first) = first {
            put("server_idle_cores", processor_time(first, before) / (before.at - first.at));
        }
    }

    fn server(&self, span: &Span<'_>, put: &mut dyn FnMut(&str, f64)) {
        let Span { before, after, seconds, clients } = *span;
        self.idle(before, put);
        // Workers come and go. For a worker that has ended, its last known use counts.
        let mut used: BTreeMap<i32, (f64, f64)> = BTreeMap::new();
        for sample in self.during(before, after) {
            for process in &sample.processes {
                used.insert(process.pid, totals(process));
            }
        }
        let begun: BTreeMap<i32, (f64, f64)> =
            before.processes.iter().map(|process| (process.pid, totals(process))).collect();
        let (mut cpu, mut switches) = (0.0, 0.0);
        for (pid, (at_end, switches_at_end)) in used {
            let (at_begin, switches_at_begin) = begun.get(&pid).copied().unwrap_or_default();
            cpu += (at_end - at_begin).max(0.0);
            switches += (switches_at_end - switches_at_begin).max(0.0);
        }
        put("server_cpu_s", cpu);
        put("server_cores", cpu / seconds);
        let peak = self
            .seconds(before, after)
            .map(|(a, b)| processor_time(a, b) / (b.at - a.at))
            .fold(cpu / seconds, f64::max);
        put("server_cores_peak", peak);
        if let Some(used) = busiest_thread(before, after) {
            put("server_thread_cores", used / seconds);
        }
        put("server_switches", switches);
        let waiting: Option<Vec<f64>> = self.during(before, after).map(sending).collect();
        if let Some(waiting) = waiting {
            put("server_threads_sending", waiting.iter().sum::<f64>() / waiting.len() as f64);
        }
        let most = self.during(before, after).map(memory).max().unwrap_or_default();
        put("server_memory_mib", most as f64 / 1_048_576.0);
        if let Some(clients) = clients {
            put("server_memory_kib_per_client", self.growth(span, memory) / 1024.0 / clients);
            // If one process may not be read, none may.
            if anonymous(after).is_some() {
                let grown = self.growth(span, |sample| anonymous(sample).unwrap_or_default());
                put("server_anonymous_kib_per_client", grown / 1024.0 / clients);
            }
        }
        if self.processors > 0 {
            let origin = self.through.cpu.unwrap_or_default();
            let other = (self.busy - cpu - origin - self.load_cpu).max(0.0);
            // The system's and the processes' times are read one after the other. On a busy machine
            // the interval of the former is a little longer.
            let percent = other / seconds / f64::from(self.processors) * 100.0;
            put("other_cpu_percent", percent.min(100.0));
        }
    }
}

/// Processor time and context switches of a process.
fn totals(process: &crate::meter::Usage) -> (f64, f64) {
    let switches = process.switches_voluntary + process.switches_involuntary;
    (process.cpu_user + process.cpu_system, switches as f64)
}

/// Processor time that one thread used between two samples, of the processes that there are at the end. `None` if the
/// kernel does not count it. It is too little if a thread that had used less before has become the busiest.
fn busiest_thread(earlier: &Sample, later: &Sample) -> Option<f64> {
    let then: BTreeMap<i32, Option<f64>> =
        earlier.processes.iter().map(|process| (process.pid, process.cpu_thread)).collect();
    let used = |process: &crate::meter::Usage| {
        let before = then.get(&process.pid).copied().unwrap_or(Some(0.0))?;
        Some((process.cpu_thread? - before).max(0.0))
    };
    later.processes.iter().filter_map(used).max_by(f64::total_cmp)
}

/// Processor time that processes used between two samples. A new process counts from its start.
fn processor_time(earlier: &Sample, later: &Sample) -> f64 {
    let then: BTreeMap<i32, f64> =
        earlier.processes.iter().map(|process| (process.pid, totals(process).0)).collect();
    let used = |process: &crate::meter::Usage| {
        (totals(process).0 - then.get(&process.pid).copied().unwrap_or_default()).max(0.0)
    };
    later.processes.iter().map(used).sum()
}

/// Memory of all processes, in bytes: the proportional size, or the resident size if that may not
/// be read.
fn memory(sample: &Sample) -> u64 {
    let of = |process: &crate::meter::Usage| process.proportional.unwrap_or(process.resident);
    sample.processes.iter().map(of).sum()
}

/// Threads of all processes that wait to send; `None` if it is unknown for one of them.
fn sending(sample: &Sample) -> Option<f64> {
    let of = |process: &crate::meter::Usage| process.sending;
    sample.processes.iter().map(of).sum::<Option<u64>>().map(|count| count as f64)
}

/// Anonymous memory of all processes, in bytes; `None` if it is unknown for one of them.
fn anonymous(sample: &Sample) -> Option<u64> {
    sample.processes.iter().map(|process| process.anonymous).sum()
}
