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

/// Counts and logs a request of which a part did not come in time, and answers it.
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
    let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(&line[..line.len().min(LOGGED)]);
    // `Debug` escapes characters that could begin another log line.
    let request = line.trim_end();
    if reason == BadRequest::Path {
        info!(%peer, ?request, "refused: {reason}");
    } else {
        debug!(%peer, ?request, "refused: {reason}");
    }
}

/// Logs that a connection is closed because its peer does not read.
pub(crate) fn log_stall(peer: SocketAddr, timeout: Duration) {
    warn!(%peer, "closed: the peer took nothing for {timeout:?}");
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
