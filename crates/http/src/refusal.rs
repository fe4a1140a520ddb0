//! Refused requests and connections: what is logged, and how much is still read.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::{debug, info, warn};

use crate::counters::{Tally, count};
use crate::net::{LogId, LogLimit};
use crate::source::Broken;
use crate::{BadRequest, Response};

/// The payload of a GET has no meaning. Up to this many bytes of it are read and dropped; for a
/// longer one, the connection is closed.
pub(crate) const MAX_DISCARD: u64 = 64 << 10;

/// Most bytes of a POST's payload that the handler gets. Of a longer one it gets nothing.
pub(crate) const MAX_CONTENT: u64 = 16 << 10;

/// Most characters of a request line in a log line.
const LOGGED: usize = 200;

/// [`crate::net::request_id::NAME`], as our answers of HTTP/1.1 write names of fields.
const REQUEST_ID: &str = "X-Request-Id";

/// Counts and logs a refused request, and answers it. `line` is its beginning.
pub(crate) fn refused(
    tally: &Tally,
    peer: SocketAddr,
    line: &[u8],
    reason: BadRequest,
    id: Arc<str>,
) -> Response {
    let response = Response::text(reason.status(), reason).header(REQUEST_ID, &id);
    LogId::current().and_request(id).within(|| log_refusal(tally, peer, line, reason));
    response
}

/// Counts, logs and answers a request whose `part` did not come in time.
pub(crate) fn late(tally: &Tally, peer: SocketAddr, part: &'static str, id: Arc<str>) -> Response {
    count(&tally.bad_requests, 1);
    let text = format_args!("request {part} too slow");
    let response = Response::text(408, text).header(REQUEST_ID, &id);
    LogId::current()
        .and_request(id)
        .within(|| debug!(%peer, "request {part} not finished in time"));
    response
}

/// Answers a request of the control plane that panicked, which was already logged.
pub(crate) fn failed(id: &str) -> Response {
    Response::text(500, "internal error").header(REQUEST_ID, id)
}

fn log_refusal(tally: &Tally, peer: SocketAddr, line: &[u8], reason: BadRequest) {
    count(&tally.bad_requests, 1);
    let line = shown(line.split(|&byte| byte == b'\n').next().unwrap_or_default());
    let line = String::from_utf8_lossy(&line[..line.len().min(LOGGED)]);
    // `Debug` escapes characters that could begin another log line.
    let request = line.trim_end();
    if reason == BadRequest::Path {
        info!(%peer, ?request, "refused: {reason}");
    } else {
        debug!(%peer, ?request, "refused: {reason}");
    }
}

/// The part of a request line that may be logged: without the query and without a signed path
/// (`/s/TOKEN/…`), because both may contain what is as good as a password.
fn shown(line: &[u8]) -> &[u8] {
    const SIGNED: &[u8] = b"/s/";
    let end = line.iter().position(|&byte| byte == b'?').unwrap_or(line.len());
    let signed = line[..end].windows(SIGNED.len()).position(|window| window == SIGNED);
    &line[..signed.map_or(end, |at| at + SIGNED.len())]
}

/// Logs that a connection is closed because its peer does not read.
pub(crate) fn log_stall(peer: SocketAddr, timeout: Duration) {
    warn!(%peer, "closed: the peer took nothing for {timeout:?}");
}

/// Logs that a connection is closed because its peer takes an answer too slowly that keeps memory
/// of a live stream.
pub(crate) fn log_too_slow(peer: SocketAddr, timeout: Duration) {
    warn!(%peer, "closed: the peer took longer than {timeout:?} for an answer of live media");
}

/// Logs that an answer ends before all of it was sent. A store that is away, or a disk that fails, ends many at once.
pub(crate) fn log_short(peer: SocketAddr, broken: &Broken) {
    thread_local! {
        static LOG: RefCell<LogLimit> = const { RefCell::new(LogLimit::rare()) };
    }
    if let Some(others) = LOG.with_borrow_mut(|log| log.take(Instant::now())) {
        warn!(%peer, others, "closed short: {broken}");
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::{self, Write};
    use std::sync::Mutex;

    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Record};
    use tracing::{Event, Metadata, Subscriber, span};

    use super::*;
    use crate::counters::{Counters, OwnTally};
    use crate::net::Gate;

    /// Keeps the fields of all log lines.
    #[derive(Default)]
    struct Log(Mutex<Lines>);

    #[derive(Default)]
    struct Lines(String);

    impl Visit for Lines {
        fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
            write!(self.0, "{field}={value:?} ").unwrap();
        }
    }

    impl Subscriber for Log {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }

        fn record(&self, _: &span::Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

        fn event(&self, event: &Event<'_>) {
            event.record(&mut *self.0.lock().unwrap());
        }

        fn enter(&self, _: &span::Id) {}

        fn exit(&self, _: &span::Id) {}
    }

    #[test]
    fn no_secret_of_a_refused_request_is_logged() {
        let log = Arc::new(Log::default());
        let counters = Arc::new(Counters::new(Arc::new(Gate::new(1, None)), 1));
        let tally = OwnTally::new(&counters, 0);
        let peer = (std::net::Ipv4Addr::LOCALHOST, 1).into();
        tracing::subscriber::with_default(Arc::clone(&log), || {
            for line in [
                "POST /live/a%2Fb/whip?key=SECRET HTTP/1.1\r\nHost: h\r\n\r\n",
                "POST /live/a%2Fb/whip?a=b?key=SECRET",
                "GET /s/SECRET/live/a%2Fb/master.m3u8 HTTP/1.1\r\nHost: h\r\n\r\n",
                "GET //s//SECRET/../x HTTP/1.1\r\nHost: h\r\n\r\n",
                "https://h/s/SECRET/live/a%2Fb/whep?key=SECRET",
            ] {
                for reason in [BadRequest::Path, BadRequest::Target] {
                    refused(&tally, peer, line.as_bytes(), reason, "id".into());
                }
            }
        });
        let lines = &log.0.lock().unwrap().0;
        assert!(!lines.contains("SECRET"), "{lines}");
        for kept in ["POST /live/a%2Fb/whip\"", "GET /s/\"", "https://h/s/\""] {
            assert!(lines.contains(kept), "{kept}: {lines}");
        }
    }
}
