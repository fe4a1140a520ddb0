//! Connections of the control plane: axum on hyper.
//!
//! A browser that fetched a page here asks for playlists on the same connection next, so requests
//! that are the media plane's get their answer from its handler here as well, by way of hyper. So
//! does all of HTTP/2.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;

use axum::extract::ConnectInfo;
use axum::http::{self, HeaderValue, StatusCode};
use bytes::BytesMut;
use hyper::body::{Body, Incoming};
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::task::AbortHandle;
use tracing::debug;

use crate::content::{Content, Progress};
use crate::counters::count;
use crate::io::{Io, Stream};
use crate::refusal::{MAX_DISCARD, log_refusal, log_stall};
use crate::shared::Shared;
use crate::upload::Upload;
use crate::{BadRequest, Handler, Request, Response};

/// Serves a connection by hyper to its end, or until a head that has begun is not finished in time:
/// then it comes back.
///
/// The peer's address is in the extensions of each request, as [`ConnectInfo`]. The router's work is
/// done on the runtime [`Server::run`](super::Server::run) was called on: nothing it does can hold
/// the worker up, and what it spawns outlives the worker.
pub(crate) async fn serve<S: Stream, H: Handler>(
    io: Io<S>,
    shared: Rc<Shared<H>>,
) -> Option<Io<S>> {
    let (peer, stalled) = (io.peer(), io.stalled());
    let service = service_fn(|request| {
        let shared = Rc::clone(&shared);
        let progress = Progress::new(&stalled);
        async move { Ok::<_, Infallible>(answer(&shared, peer, request, progress).await) }
    });
    let mut connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(shared.config.head_timeout)
        .max_buf_size(shared.config.max_head)
        // As the media plane: the answer, then the close.
        .half_close(true)
        .serve_connection(TokioIo::new(io), service);
    // In this order: a server that drains answers the request that is there, and then closes.
    let result = tokio::select! {
        biased;
        result = &mut connection => result,
        () = shared.worker.drain.begun() => {
            Pin::new(&mut connection).graceful_shutdown();
            (&mut connection).await
        }
    };
    // hyper gives up without a word. A peer that has said nothing expects none, and one that does
    // not read its last answer cannot be told.
    if result.as_ref().is_err_and(hyper::Error::is_timeout) {
        let parts = connection.into_parts();
        let io = parts.io.into_inner();
        return (!parts.read_buf.is_empty() && !io.is_waiting()).then_some(io);
    }
    lost(&shared, peer, &stalled, result);
    None
}

/// Counts and logs how a connection ended, if not well.
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

/// Answers a request, by the plane that it is for.
pub(crate) async fn answer<H: Handler>(
    shared: &Rc<Shared<H>>,
    peer: SocketAddr,
    mut request: hyper::Request<Incoming>,
    progress: Rc<Progress>,
) -> http::Response<Content> {
    let to = To { peer, bare: is_bare(&request), progress };
    match media_request(shared, peer, &request) {
        Ok(Some(media)) => {
            count(&shared.tally().requests, 1);
            if request.version() == http::Version::HTTP_2 {
                let whole = discard(request.body_mut());
                // In time or not, what it has means nothing.
                let _ = tokio::time::timeout(shared.config.head_timeout, whole).await;
            }
            return to.convert(shared, shared.answer(media).await);
        }
        Ok(None) => {}
        Err(response) => return to.convert(shared, response),
    }
    request.extensions_mut().insert(ConnectInfo(peer));
    let request = request.map(|payload| Upload::new(payload, shared.config.head_timeout));
    let late = request.body().late();
    let answer = shared.control.spawn(shared.router.call(request));
    let _cancel = AbortOnDrop(answer.abort_handle());
    match answer.await {
        // Whatever the router made of what there was.
        Ok(Ok(_)) if late.get() => {
            count(&shared.tally().bad_requests, 1);
            debug!(%peer, "request payload not finished in time");
            let response = Response::text(408, "request payload too slow");
            to.convert(shared, response.header("Connection", "close"))
        }
        Ok(Ok(mut response)) => {
            let server = response.headers_mut().entry(http::header::SERVER);
            server.or_insert(HeaderValue::from_static("headwater"));
            response.map(|body| Content::control(body, to.progress))
        }
        // A panic, which has been reported; a router's own error is `Infallible`.
        _ => to.convert(shared, Response::text(500, "internal error")),
    }
}

/// A peer that leaves takes its request with it.
struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Reads and drops a request's payload, unless it is long: one that turns out to be malformed gets
/// the error that it should instead of an answer (RFC 9113 8.1.1). HTTP/1.1 has no such error.
async fn discard(body: &mut Incoming) {
    let mut left = MAX_DISCARD;
    while left > 0 && !body.is_end_stream() {
        let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await else {
            return;
        };
        left = left.saturating_sub(frame.data_ref().map_or(0, |data| data.len() as u64));
    }
}

/// Whether the answer goes out as it is: hyper drops the payload of an answer to HEAD in HTTP/1.1
/// alone.
fn is_bare(request: &hyper::Request<Incoming>) -> bool {
    request.version() == http::Version::HTTP_2 && request.method() == http::Method::HEAD
}

/// The request as the media plane sees it, if it is one of its; the same checks apply to all.
fn media_request<H: Handler>(
    shared: &Shared<H>,
    peer: SocketAddr,
    request: &hyper::Request<Incoming>,
) -> Result<Option<Request>, Response> {
    let target = request.uri().to_string();
    let read = match request.version() {
        http::Version::HTTP_2 => head_of_http2(request),
        _ => Ok(head_of(request, &target)),
    };
    // hyper has held the head to the limit; written out again it may be a little longer.
    match read.and_then(|mut head| Request::parse(&mut head, peer, usize::MAX)) {
        Ok(request) => Ok(request.filter(|request| shared.accepts(request))),
        Err(reason) => {
            log_refusal(shared.tally(), peer, target.as_bytes(), reason);
            Err(Response::text(reason.status(), reason))
        }
    }
}

/// The head as it was received, or might have been.
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

/// The head of a request that says the same in HTTP/1.1 (RFC 9113 8.3.1).
fn head_of_http2(request: &hyper::Request<Incoming>) -> Result<BytesMut, BadRequest> {
    let uri = request.uri();
    let target = uri.path_and_query().map_or(uri.path(), |target| target.as_str());
    let Some(authority) = uri.authority() else { return Ok(head_of(request, target)) };
    let mut head = head_of(request, target);
    match request.headers().get(http::header::HOST) {
        Some(host) if host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes()) => {}
        // Another host than the one asked for.
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

/// Whom an answer is for.
struct To {
    peer: SocketAddr,
    /// Without its payload.
    bare: bool,
    progress: Rc<Progress>,
}

impl To {
    /// hyper adds `Date` and the framing.
    fn convert<H>(self, shared: &Shared<H>, response: Response) -> http::Response<Content> {
        let response = match response.status() {
            101 => Response::text(426, "only on a connection of its own, by HTTP/1.1"),
            _ => response,
        };
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
