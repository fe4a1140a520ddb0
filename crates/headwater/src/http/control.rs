//! Connections of the control plane: axum on hyper.
//!
//! A browser that fetched a page here asks for playlists on the same connection next, so requests
//! that are the media plane's get their answer from its handler here as well, by way of hyper.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use axum::extract::ConnectInfo;
use axum::http::{self, HeaderValue, StatusCode};
use bytes::{Bytes, BytesMut};
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::task::AbortHandle;
use tracing::{debug, warn};

use super::drain::Watch;
use super::io::Io;
use super::limits::count;
use super::server::Shared;
use super::source::{self, Broken, Sources};
use super::{Body, BodyStream, Handler, Piece, Request, Response, connection};

/// Serves a connection by hyper to its end.
///
/// The peer's address is in the extensions of each request, as [`ConnectInfo`]. The router's work is
/// done on the runtime [`Server::run`](super::Server::run) was called on: nothing it does can hold
/// the worker up, and what it spawns outlives the worker.
pub(super) async fn serve<H: Handler>(io: Io, shared: Rc<Shared<H>>) {
    let peer = io.peer();
    let service = service_fn(|request| {
        let shared = Rc::clone(&shared);
        async move { Ok::<_, Infallible>(answer(&shared, peer, request).await) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(shared.config.head_timeout)
        .max_buf_size(shared.config.max_head)
        .serve_connection(TokioIo::new(io), service);
    let mut connection = pin!(connection);
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = shared.drain.begun() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        debug!(%peer, %error, "control connection lost");
    }
}

async fn answer<H: Handler>(
    shared: &Rc<Shared<H>>,
    peer: SocketAddr,
    mut request: hyper::Request<Incoming>,
) -> http::Response<Content> {
    match media_request(shared, peer, &request) {
        Ok(Some(media)) => {
            count(&shared.tally().requests, 1);
            return convert(shared, peer, shared.answer(media).await);
        }
        Ok(None) => {}
        Err(response) => return convert(shared, peer, response),
    }
    request.extensions_mut().insert(ConnectInfo(peer));
    let answer = shared.control.spawn(shared.router.call(request));
    let _cancel = AbortOnDrop(answer.abort_handle());
    match answer.await {
        Ok(Ok(mut response)) => {
            let server = response.headers_mut().entry(http::header::SERVER);
            server.or_insert(HeaderValue::from_static("headwater"));
            response.map(Content::Control)
        }
        // A panic, which has been reported; a router's own error is `Infallible`.
        _ => convert(shared, peer, Response::text(500, "internal error")),
    }
}

/// A peer that leaves takes its request with it.
struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The request as the media plane sees it, if it is one of its; the same checks apply to all.
fn media_request<H: Handler>(
    shared: &Shared<H>,
    peer: SocketAddr,
    request: &hyper::Request<Incoming>,
) -> Result<Option<Request>, Response> {
    let mut head = BytesMut::with_capacity(512);
    let mut put = |parts: &[&[u8]]| parts.iter().for_each(|part| head.extend_from_slice(part));
    let target = request.uri().to_string();
    let version = if request.version() == http::Version::HTTP_10 { "0" } else { "1" };
    let method = request.method().as_str();
    put(&[method.as_bytes(), b" ", target.as_bytes(), b" HTTP/1.", version.as_bytes(), b"\r\n"]);
    for (name, value) in request.headers() {
        put(&[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"]);
    }
    put(&[b"\r\n"]);
    // hyper has held the head to the limit; written out again it may be a little longer.
    match Request::parse(&mut head, peer, usize::MAX) {
        Ok(request) => Ok(request.filter(|request| shared.accepts(request))),
        Err(reason) => {
            connection::log_refusal(shared.tally(), peer, target.as_bytes(), reason);
            Err(Response::text(reason.status(), reason))
        }
    }
}

/// hyper adds `Date` and the framing.
fn convert<H>(shared: &Shared<H>, peer: SocketAddr, response: Response) -> http::Response<Content> {
    let status = StatusCode::from_u16(response.status());
    let mut converted = http::Response::new(Content::Empty);
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
    let body = response.into_parts().1;
    if let Body::Sized(size, _) = &body {
        headers.insert(http::header::CONTENT_LENGTH, HeaderValue::from(*size));
    }
    *converted.body_mut() = match body {
        Body::Empty => Content::Empty,
        Body::Pieces(pieces) => Content::Media(Media::new(pieces.into(), None, peer)),
        // hyper holds a payload to the length announced.
        Body::Stream(stream) | Body::Sized(_, stream) => {
            let stream = Streaming { stream, drain: shared.drain.begun(), told: false };
            Content::Media(Media::new(VecDeque::new(), Some(stream), peer))
        }
    };
    converted
}

/// A response's payload as hyper takes it.
enum Content {
    Empty,
    Media(Media),
    Control(axum::body::Body),
}

/// A payload of the media plane. What is in files is read into memory, on a blocking thread.
struct Media {
    ready: VecDeque<Piece>,
    sources: Sources,
    reading: Option<Reading>,
    peer: SocketAddr,
    /// Where more comes from.
    stream: Option<Streaming>,
}

type Reading = Pin<Box<dyn Future<Output = Result<Bytes, Broken>>>>;

struct Streaming {
    stream: Box<dyn BodyStream>,
    drain: Watch,
    told: bool,
}

impl Media {
    fn new(ready: VecDeque<Piece>, stream: Option<Streaming>, peer: SocketAddr) -> Self {
        Self { ready, sources: Sources::default(), reading: None, stream, peer }
    }

    /// hyper closes the connection short.
    fn fail(&self, broken: &Broken) -> Poll<Option<io::Result<Bytes>>> {
        warn!(peer = %self.peer, "closed short: {broken}");
        Poll::Ready(Some(Err(io::Error::other(broken.to_string()))))
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        loop {
            if let Some(reading) = &mut self.reading {
                let read = ready!(reading.as_mut().poll(cx));
                self.reading = None;
                return match read {
                    Ok(bytes) => Poll::Ready(Some(Ok(bytes))),
                    Err(broken) => self.fail(&broken),
                };
            }
            match self.ready.front_mut() {
                Some(piece) if piece.is_empty() => {
                    self.ready.pop_front();
                }
                Some(Piece::Bytes(bytes)) => {
                    return Poll::Ready(Some(Ok(std::mem::take(bytes))));
                }
                Some(Piece::File { file, range }) => {
                    let next = range.start..range.end.min(range.start + source::READ);
                    range.start = next.end;
                    match self.sources.of(file) {
                        Ok(source) => self.reading = Some(Box::pin(source::read(source, next))),
                        Err(broken) => return self.fail(&broken),
                    }
                }
                None => {
                    let Some(streaming) = &mut self.stream else { return Poll::Ready(None) };
                    match ready!(streaming.poll_next(cx)) {
                        Some(pieces) => self.ready.extend(pieces?),
                        None => return Poll::Ready(None),
                    }
                }
            }
        }
    }
}

impl Streaming {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Vec<Piece>>>> {
        if !self.told && Pin::new(&mut self.drain).poll(cx).is_ready() {
            self.told = true;
            self.stream.drain();
        }
        self.stream.poll_next(cx)
    }
}

impl hyper::body::Body for Content {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            Self::Empty => Poll::Ready(None),
            Self::Media(media) => media.poll_next(cx).map_ok(Frame::data),
            Self::Control(body) => Pin::new(body).poll_frame(cx).map_err(io::Error::other),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Media(Media { ready, stream: None, .. }) => {
                SizeHint::with_exact(ready.iter().map(Piece::len).sum())
            }
            Self::Media(_) => SizeHint::default(),
            Self::Control(body) => body.size_hint(),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Media(media) => {
                media.stream.is_none()
                    && media.reading.is_none()
                    && media.ready.iter().all(Piece::is_empty)
            }
            Self::Control(body) => body.is_end_stream(),
        }
    }
}
