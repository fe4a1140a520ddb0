//! The program's log. It goes to standard error, which perhaps nobody reads.
//!
//! An event loop that writes to a full pipe stops for ever, and all its viewers with it. So each
//! line goes into a queue of [`QUEUE`] bytes, and a separate thread writes the queue. A line that
//! does not fit is dropped and counted; when there is room again, the log tells the count. Anybody
//! who connects can cause most lines. So there is a limit on lines from one place in the code,
//! [`LINES`], and one frequent problem leaves room for the others.
//!
//! A line is text or JSON (`format`), and says which connection, session or request it is about (`http::net::LogId`).

mod format;

use std::collections::HashMap;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use http::net::LogLimit;
use serde::{Deserialize, Serialize};
use tracing::callsite::Identifier;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::registry::LookupSpan;

use self::format::Own;
use crate::followed::Followed;

/// Lines that are kept for those who follow the log, and how many bytes of each.
const TAIL: (usize, usize) = (500, 1 << 10);

static RECENT: LazyLock<Arc<Followed<String>>> = LazyLock::new(|| Arc::new(Followed::new(TAIL.0)));

/// The newest lines, also those that standard error did not take. They are cut after a kilobyte, and have no colours.
pub fn tail() -> &'static Arc<Followed<String>> {
    &RECENT
}

/// Keeps a line for those who follow the log.
fn keep(line: &[u8]) {
    let line = String::from_utf8_lossy(line);
    let mut text = String::new();
    // Of a line, only the colours of its own have escape characters: ESC [ … m.
    let mut parts = line.trim_end().split('\x1b');
    text.push_str(parts.next().unwrap_or_default());
    for part in parts {
        text.push_str(part.split_once('m').map_or(part, |(_, rest)| rest));
    }
    if text.len() > TAIL.1 {
        text.truncate(text.floor_char_boundary(TAIL.1));
        text.push('…');
    }
    RECENT.add(|_| text);
}

/// The target of the log's own lines.
const TARGET: &str = module_path!();

/// How lines are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One object a line: `time`, `level`, `target`, `message`, `connection`, `session` and `request_id` if the line is
    /// about one, and `fields`.
    Json,
}

/// Most bytes of lines that wait to be written.
const QUEUE: usize = 1 << 20;

/// Bytes counted for each line besides its text.
const OVERHEAD: usize = 64;

/// Most lines of one kind, from one place in the code, and the time in which they count. Debug
/// lines have no limit: an operator who turns them on wants all of them.
const LINES: (u32, Duration) = (200, Duration::from_secs(10));

/// How long the program waits at its end for the last lines to be written. Nobody may be reading
/// them, so the wait has an end. It is long enough for a busy machine: the last line often says why
/// the program fails. Unit tests always read them.
const FAREWELL: Duration = Duration::from_secs(if cfg!(test) { 60 } else { 3 });

static DROPPED: AtomicU64 = AtomicU64::new(0);
static HELD_BACK: AtomicU64 = AtomicU64::new(0);

/// Number of lines missing from the log since the program started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missing {
    /// Standard error was not read fast enough.
    pub dropped: u64,
    /// There were too many of one kind.
    pub held_back: u64,
}

/// Counts the lines missing from the log.
pub fn missing() -> Missing {
    Missing { dropped: DROPPED.load(Relaxed), held_back: HELD_BACK.load(Relaxed) }
}

/// Starts the log on standard error. `HEADWATER_LOG` selects what is logged; panics are logged too.
/// Dropping the returned value writes the last lines.
///
/// # Panics
/// If it was called before, or if no thread can be started.
#[must_use]
pub fn start() -> Logging {
    let wanted = std::env::var("HEADWATER_LOG").unwrap_or_default();
    let (filter, flaw) = filter(&wanted);
    let limits = Arc::new(Limits::default());
    let (queue, lines) = queue();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(Arc::clone(&queue))
        .with_ansi(io::stderr().is_terminal())
        .event_format(Limited { is_json: Arc::clone(&queue.is_json), limits: Arc::clone(&limits) })
        .init();
    if let Some(flaw) = flaw {
        tracing::warn!("HEADWATER_LOG: {flaw}: {wanted:?}");
    }
    // The default hook would wait for a reader of standard error.
    std::panic::set_hook(Box::new(|panic| {
        let trace = std::backtrace::Backtrace::capture();
        match trace.status() {
            std::backtrace::BacktraceStatus::Captured => tracing::error!("{panic}\n{trace}"),
            _ => tracing::error!("{panic}"),
        }
    }));
    let write = {
        let queue = Arc::clone(&queue);
        move || write(&lines, &queue, &limits, io::stderr())
    };
    let thread = thread::Builder::new().name("log".to_owned()).spawn(write);
    thread.expect("a program that cannot start a thread can do nothing else either");
    Logging(queue)
}

/// What is logged of libraries where `HEADWATER_LOG` does not name them.
///
/// h2 warns of every unexpected frame, and peers decide how many of those come. object_store tells
/// of each attempt at a request; `store` logs those that fail. async_nats tells of each attempt to
/// connect, many times a second; `cluster` logs some of them, and what they are about.
const LIBRARIES: &str = "h2=error,object_store=warn,async_nats=off";

/// The filter for what an operator wants, and what is wrong with that. What is wanted comes behind what is usual, and
/// the last directive about a target counts.
fn filter(wanted: &str) -> (EnvFilter, Option<String>) {
    let usual = |wanted: &str| format!("{LIBRARIES},{wanted}");
    let all = match wanted.trim() {
        "" => usual("info"),
        // Of libraries, no more is logged than of the program.
        few @ ("off" | "error") => few.to_owned(),
        wanted => usual(wanted),
    };
    match EnvFilter::try_new(all) {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new(usual("info")), Some(error.to_string())),
    }
}

/// The running log.
#[derive(Debug)]
pub struct Logging(Arc<Queue>);

impl Logging {
    /// Writes lines in another format from now on.
    pub fn set_format(&self, format: Format) {
        self.0.is_json.store(format == Format::Json, Relaxed);
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        let (done, written) = mpsc::channel();
        if self.0.entries.send(Entry::End(done)).is_ok() {
            // Whether the lines were written or not, the program does not wait for a reader.
            let _ = written.recv_timeout(FAREWELL);
        }
    }
}

/// The limit of each kind of line.
#[derive(Debug, Default)]
struct Limits(Mutex<HashMap<Identifier, (&'static Metadata<'static>, LogLimit, u64)>>);

impl Limits {
    /// Whether this line may be logged.
    fn take(&self, kind: &'static Metadata<'static>, now: Instant) -> bool {
        if *kind.level() > Level::INFO {
            return true;
        }
        let mut kinds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || (kind, LogLimit::new(LINES.0, LINES.1), 0);
        let (_, limit, untold) = kinds.entry(kind.callsite()).or_insert_with(new);
        let admitted = limit.take(now).is_some();
        if !admitted {
            *untold += 1;
            HELD_BACK.fetch_add(1, Relaxed);
        }
        admitted
    }

    /// Numbers of lines of each kind held back since the last call.
    fn untold(&self) -> Vec<(&'static Metadata<'static>, u64)> {
        let mut kinds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let untold = kinds.values_mut().map(|(kind, _, untold)| (*kind, std::mem::take(untold)));
        untold.filter(|&(_, lines)| lines > 0).collect()
    }
}

/// Formats the events that the limits let through.
struct Limited {
    is_json: Arc<AtomicBool>,
    limits: Arc<Limits>,
}

impl<S, N> FormatEvent<S, N> for Limited
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let kind = event.metadata();
        if !self.limits.take(kind, Instant::now()) {
            return Ok(());
        }
        let mut line = String::new();
        if self.is_json.load(Relaxed) {
            format::json(&mut line, event);
        } else {
            // Only the hook for panics logs in this module.
            let (has_colours, is_panic) = (writer.has_ansi_escapes(), kind.target() == TARGET);
            format::text(&mut line, context, (event, has_colours, is_panic))?;
        }
        writer.write_str(&line)
    }
}

enum Entry {
    Line(Vec<u8>),
    /// Answered when everything before it is written.
    End(Sender<()>),
}

/// Lines that wait to be written.
#[derive(Debug)]
struct Queue {
    entries: Sender<Entry>,
    /// Bytes in the queue.
    size: AtomicUsize,
    /// Lines that were dropped and are not yet reported.
    dropped: AtomicU64,
    /// Whether lines are JSON.
    is_json: Arc<AtomicBool>,
}

fn queue() -> (Arc<Queue>, Receiver<Entry>) {
    let (entries, lines) = mpsc::channel();
    let (size, dropped, is_json) = (AtomicUsize::new(0), AtomicU64::new(0), Arc::default());
    (Arc::new(Queue { entries, size, dropped, is_json }), lines)
}

impl Queue {
    fn drop_one(&self) {
        self.dropped.fetch_add(1, Relaxed);
        DROPPED.fetch_add(1, Relaxed);
    }
}

/// Each call writes a whole line.
impl Write for &Queue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // An event that was held back arrives as an empty line.
        if line.is_empty() {
            return Ok(0);
        }
        keep(line);
        let size = line.len() + OVERHEAD;
        if self.size.fetch_add(size, Relaxed) + size > QUEUE {
            self.size.fetch_sub(size, Relaxed);
            self.drop_one();
        } else if self.entries.send(Entry::Line(line.to_vec())).is_err() {
            self.drop_one();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes the queue's lines until the queue is closed.
fn write(lines: &Receiver<Entry>, queue: &Queue, limits: &Limits, mut sink: impl Write) {
    let mut told = Instant::now();
    loop {
        let mut end = None;
        match lines.recv_timeout(LINES.1) {
            Ok(Entry::Line(line)) => {
                // If nobody reads any more, each write fails. The thread still goes on.
                if sink.write_all(&line).is_err() {
                    queue.drop_one();
                }
                queue.size.fetch_sub(line.len() + OVERHEAD, Relaxed);
            }
            Ok(Entry::End(done)) => end = Some(done),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let mut notices = String::new();
        let dropped = queue.dropped.swap(0, Relaxed);
        let is_json = queue.is_json.load(Relaxed);
        if dropped > 0 {
            let lines = [("lines", Own::Number(dropped))];
            format::own(&mut notices, is_json, "lines were dropped: nobody took them", &lines);
        }
        if end.is_some() || told.elapsed() >= LINES.1 {
            told = Instant::now();
            for (kind, lines) in limits.untold() {
                let place = Own::Kind(kind.target(), kind.line().unwrap_or_default());
                let fields = [("lines", Own::Number(lines)), ("kind", place)];
                let text = "too many lines of a kind: some were not logged";
                format::own(&mut notices, is_json, text, &fields);
            }
        }
        notices.lines().for_each(|line| keep(line.as_bytes()));
        if !notices.is_empty() && sink.write_all(notices.as_bytes()).is_err() {
            // The report was not written, so these lines still count as unreported.
            queue.dropped.fetch_add(dropped, Relaxed);
        }
        if let Some(done) = end {
            // The waiting thread may have given up.
            let _ = done.send(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::SyncSender;

    use tracing::dispatcher::{self, Dispatch};

    use super::*;

    /// A subscriber like the program's, writing to `queue`.
    fn subscriber(queue: &Arc<Queue>, limits: &Arc<Limits>) -> Dispatch {
        let is_json = Arc::clone(&queue.is_json);
        let format = Limited { is_json, limits: Arc::clone(limits) };
        let subscriber = tracing_subscriber::fmt().with_writer(Arc::clone(queue));
        Dispatch::new(subscriber.with_ansi(false).event_format(format).finish())
    }

    /// The lines, as they are written, of what `does` logs.
    pub(super) fn logged(is_json: bool, does: impl FnOnce()) -> Vec<String> {
        let (queue, lines) = queue();
        queue.is_json.store(is_json, Relaxed);
        dispatcher::with_default(&subscriber(&queue, &Arc::default()), does);
        let line = |entry| match entry {
            Entry::Line(line) => String::from_utf8(line).unwrap(),
            Entry::End(_) => panic!("nobody ended the log"),
        };
        lines.try_iter().map(line).collect()
    }

    #[test]
    fn what_is_wanted_comes_behind_what_is_usual() {
        let directives = |wanted: &str| {
            let (filter, flaw) = filter(wanted);
            let mut all: Vec<_> = filter.to_string().split(',').map(str::to_owned).collect();
            all.sort_unstable();
            (all.join(","), flaw.is_some())
        };
        let usual = "async_nats=off,h2=error,info,object_store=warn".to_owned();
        for wanted in ["", " ", "info"] {
            assert_eq!(directives(wanted), (usual.clone(), false), "{wanted:?}");
        }
        let more = "async_nats=off,h2=error,headwater=debug,object_store=warn,warn".to_owned();
        assert_eq!(directives("headwater=debug,warn"), (more, false));
        let one = "async_nats=off,h2=error,headwater::rtmp=debug,object_store=warn".to_owned();
        assert_eq!(directives("headwater::rtmp=debug"), (one, false));
        for few in ["off", "error"] {
            assert_eq!(directives(few), (few.to_owned(), false));
        }
        assert_eq!(directives("headwater=debgu"), (usual, true));
    }

    /// Each write waits until the other end receives it.
    struct Gate(SyncSender<String>);

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let text = String::from_utf8(bytes.to_vec()).unwrap();
            self.0.send(text).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_tail_has_lines_without_colours_and_cut() {
        keep(b"\x1b[2m2026\x1b[0m \x1b[33m WARN\x1b[0m a line\n");
        keep("é".repeat(TAIL.1).as_bytes());
        // Other tests log too.
        let kept = tail().kept();
        let has = |line: &str| kept.iter().any(|kept| **kept == *line);
        assert!(has("2026  WARN a line"), "{kept:?}");
        assert!(has(&format!("{}…", "é".repeat(TAIL.1 / 2))), "{kept:?}");
    }

    #[test]
    fn lines_that_nobody_reads_are_dropped_and_told_of() {
        let (queue, lines) = queue();
        let limits = Arc::new(Limits::default());
        // The channel has no buffer, so nothing is written before it is received.
        let (gate, written) = mpsc::sync_channel(0);
        thread::spawn({
            let (queue, limits) = (Arc::clone(&queue), Arc::clone(&limits));
            move || write(&lines, &queue, &limits, Gate(gate))
        });
        let line = [&[b'x'; 999][..], b"\n"].concat();
        let sent = 2 * QUEUE / line.len();
        for _ in 0..sent {
            (&*queue).write_all(&line).unwrap();
        }
        let dropped = queue.dropped.load(Relaxed) as usize;
        let room = QUEUE / (line.len() + OVERHEAD);
        // The line that is being written keeps its place until it is written.
        assert_eq!(sent - dropped, room);
        let first = written.recv().unwrap();
        assert_eq!(first.as_bytes(), line);
        let told = written.recv().unwrap();
        assert!(told.contains(" WARN headwater::log: lines were dropped"), "{told}");
        assert!(told.ends_with(&format!(" lines={dropped}\n")), "{told}");
        for _ in 1..room {
            assert_eq!(written.recv().unwrap().as_bytes(), line);
        }
        // There is room again.
        (&*queue).write_all(b"after\n").unwrap();
        assert_eq!(written.recv().unwrap(), "after\n");
        assert_eq!(queue.dropped.load(Relaxed), 0);
        drop(Logging(Arc::clone(&queue)));
        assert_eq!(queue.size.load(Relaxed), 0);
    }

    #[test]
    fn one_kind_of_line_leaves_room_for_the_others() {
        let (queue, lines) = queue();
        let limits = Arc::new(Limits::default());
        dispatcher::with_default(&subscriber(&queue, &limits), || {
            for peer in 0..LINES.0 + 50 {
                tracing::info!(peer, "refused");
                tracing::debug!(peer, "is not logged at all");
            }
            tracing::warn!("another");
        });
        let mut logged = Vec::new();
        while let Ok(Entry::Line(line)) = lines.try_recv() {
            logged.push(String::from_utf8(line).unwrap());
        }
        let refused = logged.iter().filter(|line| line.contains("refused peer=")).count();
        assert_eq!((refused, logged.len()), (LINES.0 as usize, LINES.0 as usize + 1));
        assert!(logged.last().unwrap().contains(" WARN headwater::log::tests: another"));
        let untold = limits.untold();
        let [(kind, 50)] = untold[..] else { panic!("{untold:?}") };
        assert_eq!(kind.level(), &Level::INFO);
        assert!(limits.untold().is_empty());
        assert!(missing().held_back >= 50);
    }

    #[test]
    fn suppressed_lines_are_counted_at_the_end() {
        let (queue, lines) = queue();
        let limits = Arc::new(Limits::default());
        dispatcher::with_default(&subscriber(&queue, &limits), || {
            for _ in 0..LINES.0 + 7 {
                tracing::info!("again");
            }
        });
        let (gate, written) = mpsc::sync_channel(1000);
        thread::spawn({
            let queue = Arc::clone(&queue);
            move || write(&lines, &queue, &limits, Gate(gate))
        });
        drop(Logging(queue));
        let last = written.try_iter().last().unwrap();
        assert!(
            last.contains("some were not logged lines=7 kind=headwater::log::tests:"),
            "{last}"
        );
    }

    #[test]
    fn its_own_lines_are_json_where_all_are() {
        let (queue, lines) = queue();
        queue.is_json.store(true, Relaxed);
        let limits = Arc::new(Limits::default());
        dispatcher::with_default(&subscriber(&queue, &limits), || {
            for _ in 0..LINES.0 + 7 {
                tracing::info!("again");
            }
        });
        queue.drop_one();
        let (gate, written) = mpsc::sync_channel(1000);
        thread::spawn({
            let queue = Arc::clone(&queue);
            move || write(&lines, &queue, &limits, Gate(gate))
        });
        drop(Logging(queue));
        let parsed = |text: String| -> Vec<serde_json::Value> {
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        };
        let objects: Vec<_> = written.try_iter().flat_map(parsed).collect();
        let own: Vec<_> =
            objects.iter().filter(|object| object["target"] == "headwater::log").collect();
        let [dropped, held_back] = own[..] else { panic!("{own:#?}") };
        assert_eq!((&dropped["level"], &dropped["fields"]["lines"]), (&"WARN".into(), &1.into()));
        assert_eq!(held_back["fields"]["lines"], 7);
        let kind = held_back["fields"]["kind"].as_str().unwrap();
        assert!(kind.starts_with("headwater::log::tests:"), "{kind}");
    }

    #[test]
    fn too_many_lines_are_counted() {
        let start = Instant::now();
        let span = Duration::from_secs(10);
        let mut limit = LogLimit::new(16, span);
        for _ in 0..16 {
            assert_eq!(limit.take(start), Some(0));
        }
        assert_eq!(limit.take(start), None);
        assert_eq!(limit.take(start), None);
        assert_eq!(limit.take(start + span), Some(2));
        assert_eq!(limit.take(start + span), Some(0));
    }
}
