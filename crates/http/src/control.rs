//! Connections of the control plane: axum on hyper.
//!
//! A browser that fetched a page here next requests playlists on the same connection. So requests
//! for the media plane are also answered here: by its handler, through hyper. All requests of
//! HTTP/2 are answered this way.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use axum::extract::ConnectInfo;
use axum::http::{self, HeaderValue, StatusCode};
use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Incoming};
use hyper::service::{Service, service_fn};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::task::AbortHandle;
use tracing::debug;

use crate::content::{Content, Progress};
use crate::counters::count;
use crate::io::{Io, Stream};
use crate::net::request_id;
use crate::refusal::{self, MAX_CONTENT, MAX_DISCARD, log_stall};
use crate::shared::Shared;
use crate::upgrade::{Held, Switch, Transport, Upgraded};
use crate::upload::Upload;
use crate::{BadRequest, Handler, Request, Response};

/// The place for the function that receives a connection after the 101 which hyper sends.
type Slot = Rc<Cell<Option<Switch>>>;

/// Serves a connection with hyper to its end. If a head that has begun is not finished in time, the
/// connection is returned.
///
/// The extensions of each request contain the peer's address as [`ConnectInfo`]. The router runs on
/// the runtime that called [`Server::run`](super::Server::run). So it cannot block the worker, and
/// tasks it spawns outlive the worker.
pub(crate) async fn serve<S: Stream + Into<Box<dyn Transport>>, H: Handler>(
    io: Io<S>,
    shared: Rc<Shared<H>>,
) -> Option<Io<S>> {
    let (peer, stalled) = (io.peer(), io.stalled());
    let slot = Slot::default();
    let service = service_fn(|request: hyper::Request<Incoming>| {
        let shared = Rc::clone(&shared);
        let progress = Progress::new(&stalled);
        // hyper leaves the connection open after a 101 only if the request asked for one.
        let asks = request.extensions().get::<OnUpgrade>().is_some();
        let slot = asks.then(|| Rc::clone(&slot));
        async move { Ok::<_, Infallible>(answer(&shared, peer, request, progress, slot).await) }
    });
    let mut connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(shared.config.head_timeout)
        .max_buf_size(shared.config.max_head)
        // As in the media plane: first the answer, then the close.
        .half_close(true)
        .serve_connection(TokioIo::new(io), service);
    // The order matters: a draining server answers the request that has arrived, and then closes.
    let result = tokio::select! {
        biased;
        result = &mut connection => result,
        () = shared.worker.drain.begun() => {
            Pin::new(&mut connection).graceful_shutdown();
            (&mut connection).await
        }
    };
    // hyper gives up without an answer. A peer that has sent nothing expects none, and a peer that
    // does not read its last answer cannot be told.
    if result.as_ref().is_err_and(hyper::Error::is_timeout) {
        let parts = connection.into_parts();
        let io = parts.io.into_inner();
        return (!parts.read_buf.is_empty() && !io.is_waiting()).then_some(io);
    }
    if result.is_ok()
        && let Some(Switch(switch)) = slot.take()
    {
        let parts = connection.into_parts();
        let io = parts.io.into_inner();
        // hyper does not wait until the end of the 101 is taken.
        if io.is_waiting() {
            debug!(%peer, "closed: the peer did not read its answers");
            return None;
        }
        let (transport, replay, permit) = io.into_parts();
        switch(Upgraded {
            transport: transport.into(),
            input: [parts.read_buf, replay].concat().into(),
            peer,
            drain: shared.worker.drain.clone(),
            held: Held::new(&shared.counters, &shared.worker, permit),
        });
        return None;
    }
    lost(&shared, peer, &stalled, result);
    None
}

/// Counts and logs a connection that ended badly.
pub(crate) fn lost<H: Handler>(
    shared: &Shared<H>,
    peer: SocketAddr,
    stalled: &Cell<bool>,
    result: hyper::Result<()>,
) {
    let Err(error) = result else { return };
    if stalled.get() {
        count(&shared.tally().stalled, 1);
        log_stall(peer, shared.config.stall_timeout);
    } else {
        debug!(%peer, %error, "connection lost");
    }
}

/// Answers a request. While the server drains, the answer is the last on its connection. hyper ends
/// the connection then, but it may have taken the request before, and says so only if it is told.
/// With a `slot`, the connection may change its protocol.
pub(crate) async fn answer<H: Handler>(
    shared: &Rc<Shared<H>>,
    peer: SocketAddr,
    request: hyper::Request<Incoming>,
    progress: Rc<Progress>,
    slot: Option<Slot>,
) -> http::Response<Content> {
    // HTTP/2 has no such field.
    let is_http1 = request.version() != http::Version::HTTP_2;
    let mut response = answer_by_plane(shared, peer, request, progress, slot).await;
    let goes_on = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    if is_http1 && !goes_on && shared.worker.drain.has_begun() {
        response.headers_mut().insert(http::header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Answers a request by the plane it is for.
async fn answer_by_plane<H: Handler>(
    shared: &Rc<Shared<H>>,
    peer: SocketAddr,
    mut request: hyper::Request<Incoming>,
    progress: Rc<Progress>,
    slot: Option<Slot>,
) -> http::Response<Content> {
    let to = To { peer, bare: is_bare(&request), progress, slot };
    match media_request(shared, peer, &request) {
        Ok(Some(mut media)) => {
            count(&shared.tally().requests, 1);
            if shared.takes_content(&media) {
                let whole = collect(request.body_mut());
                if let Ok(content) = tokio::time::timeout(shared.config.head_timeout, whole).await {
                    media.set_content(content);
                }
            } else if request.version() == http::Version::HTTP_2 {
                let whole = discard(request.body_mut());
                // The payload has no meaning, whether it arrived in time or not.
                let _ = tokio::time::timeout(shared.config.head_timeout, whole).await;
            }
            return to.convert(shared, shared.answer(media).await);
        }
        Ok(None) => {}
        Err(reason) => {
            let target = request.uri().to_string();
            let id = request_id_of(&request);
            let response = refusal::refused(shared.tally(), peer, target.as_bytes(), reason, id);
            return to.convert(shared, response);
        }
    }
    request.extensions_mut().insert(ConnectInfo(peer));
    let id = request_id_of(&request);
    // The router's log lines have the id that an answer made here has.
    if let Ok(id) = HeaderValue::from_str(&id) {
        request.headers_mut().insert(request_id::NAME, id);
    }
    let request = request.map(|payload| Upload::new(payload, shared.config.head_timeout));
    let late = request.body().late();
    let answer = shared.control.spawn(shared.router.call(request));
    let _cancel = AbortOnDrop(answer.abort_handle());
    match answer.await {
        // The router's answer does not count, because it was made from an incomplete payload.
        Ok(Ok(_)) if late.get() => {
            let response = refusal::late(shared.tally(), peer, "payload", id);
            to.convert(shared, response.header("Connection", "close"))
        }
        Ok(Ok(mut response)) => {
            let server = response.headers_mut().entry(http::header::SERVER);
            server.or_insert(HeaderValue::from_static("headwater"));
            response.map(|body| Content::control(body, to.progress))
        }
        // A panic. A router has no other errors: its type is `Infallible`.
        _ => to.convert(shared, refusal::failed(&id)),
    }
}

/// The request's id: the client's, or else a new one.
fn request_id_of(request: &hyper::Request<Incoming>) -> Arc<str> {
    let given = request.headers().get(request_id::NAME);
    given.and_then(|id| request_id::given(id.as_bytes())).unwrap_or_else(request_id::make)
}

/// When the peer leaves, its request is aborted.
struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Reads and drops a request's payload, unless it is long. A malformed payload then causes the
/// protocol's error instead of an answer (RFC 9113 8.1.1). HTTP/1.1 has no such error.
async fn discard(body: &mut Incoming) {
    let mut left = MAX_DISCARD;
    while left > 0 && !body.is_end_stream() {
        let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await else {
            return;
        };
        left = left.saturating_sub(frame.data_ref().map_or(0, |data| data.len() as u64));
    }
}

/// Reads a request's payload. A long one is dropped, and so is one that does not arrive whole.
async fn collect(body: &mut Incoming) -> Bytes {
    let mut content = BytesMut::new();
    while !body.is_end_stream() {
        let Some(frame) = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await else { break };
        let Ok(frame) = frame else { return Bytes::new() };
        content.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
        if content.len() as u64 > MAX_CONTENT {
            return Bytes::new();
        }
    }
    content.freeze()
}

/// Whether the answer's payload must be dropped here. hyper drops the payload of an answer to HEAD
/// only in HTTP/1.1.
fn is_bare(request: &hyper::Request<Incoming>) -> bool {
    request.version() == http::Version::HTTP_2 && request.method() == http::Method::HEAD
}

/// The request in the form of the media plane, if it is for that plane. All requests are checked.
fn media_request<H: Handler>(
    shared: &Shared<H>,
    peer: SocketAddr,
    request: &hyper::Request<Incoming>,
) -> Result<Option<Request>, BadRequest> {
    let mut head = match request.version() {
        http::Version::HTTP_2 => head_of_http2(request)?,
        _ => head_of(request, &request.uri().to_string()),
    };
    // hyper has limited the size of the head. The head written again may be a little longer.
    let request = Request::parse(&mut head, peer, usize::MAX)?;
    Ok(request.filter(|request| shared.accepts(request)))
}

/// The head as it was received, or an equivalent one.
fn head_of(request: &hyper::Request<Incoming>, target: &str) -> BytesMut {
    let mut head = BytesMut::with_capacity(512);
    let mut put = |parts: &[&[u8]]| parts.iter().for_each(|part| head.extend_from_slice(part));
    let version = if request.version() == http::Version::HTTP_10 { "0" } else { "1" };
    let method = request.method().as_str();
    put(&[method.as_bytes(), b" ", target.as_bytes(), b" HTTP/1.", version.as_bytes(), b"\r\n"]);
    for (name, value) in request.headers() {
        put(&[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"]);
    }
    put(&[b"\r\n"]);
    head
}

/// An equivalent head in HTTP/1.1 (RFC 9113 8.3.1).
fn head_of_http2(request: &hyper::Request<Incoming>) -> Result<BytesMut, BadRequest> {
    let uri = request.uri();
    let target = uri.path_and_query().map_or(uri.path(), |target| target.as_str());
    let Some(authority) = uri.authority() else { return Ok(head_of(request, target)) };
    let mut head = head_of(request, target);
    match request.headers().get(http::header::HOST) {
        Some(host) if host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes()) => {}
        // `Host` names another host than the authority.
        Some(_) => return Err(BadRequest::Host),
        None => {
            head.truncate(head.len() - 2);
            for part in ["host: ", authority.as_str(), "\r\n\r\n"] {
                head.extend_from_slice(part.as_bytes());
            }
        }
    }
    Ok(head)
}

/// The receiver of an answer.
struct To {
    peer: SocketAddr,
    /// Whether to send the answer without its payload.
    bare: bool,
    progress: Rc<Progress>,
    /// Present if the connection can change its protocol.
    slot: Option<Slot>,
}

impl To {
    /// Converts a response for hyper, which adds `Date` and the framing.
    fn convert<H>(self, shared: &Shared<H>, mut response: Response) -> http::Response<Content> {
        match (response.take_switch(), &self.slot) {
            (Some(switch), Some(slot)) => slot.set(Some(switch)),
            // HTTP/2 has no field `Upgrade` that could say more (RFC 9113 8.2.2).
            _ if response.status() == 101 => response = Response::text(426, "only by HTTP/1.1"),
            _ => {}
        }
        let status = StatusCode::from_u16(response.status());
        let mut converted = http::Response::new(Content::empty());
        *converted.status_mut() = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = converted.headers_mut();
        let own = [("Server", "headwater")].into_iter().chain(response.headers());
        let cors = std::str::from_utf8(&shared.cors).unwrap_or_default();
        for (name, value) in own.chain(cors.lines().filter_map(|line| line.split_once(": "))) {
            let name = http::HeaderName::from_bytes(name.as_bytes());
            if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value.as_bytes())) {
                headers.append(name, value);
            }
        }
        let has_content = response.may_have_content();
        let body = response.into_parts().1;
        if let Some(size) = body.size().filter(|_| has_content) {
            headers.insert(http::header::CONTENT_LENGTH, HeaderValue::from(size));
        }
        if has_content && !self.bare {
            let (tally, drain) = (shared.own_tally(), shared.worker.drain.begun());
            *converted.body_mut() = Content::media(body, self.peer, self.progress, tally, drain);
        }
        converted
    }
}
