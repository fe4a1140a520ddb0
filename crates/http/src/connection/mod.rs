//! One connection: reads requests and sends responses in their order, with limits on everything.

mod input;
mod output;
#[cfg(test)]
mod tests;

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use bytes::BytesMut;
use tokio::time::Instant;
use tracing::debug;

use self::input::{Input, LINGER, linger};
use crate::counters::count;
use crate::io::{Io, Stream};
use crate::net::{Permit, Timer, Watch, request_id};
use crate::refusal::{self, MAX_CONTENT, MAX_DISCARD, log_short, log_stall, log_too_slow};
use crate::send::{self, Outbox};
use crate::shared::Shared;
use crate::source::{Broken, Why};
use crate::upgrade::{Held, Switch, Transport, Upgraded};
use crate::{Handler, Method, PayloadFraming, Request, Response, Version, control, date};

/// What an answer counts in addition to its bytes: making it takes about as much work as sending
/// this many bytes.
const ANSWER: usize = 8 << 10;

/// Serves a connection to its end.
pub(crate) async fn drive<S: Stream + Into<Box<dyn Transport>>, H: Handler>(
    stream: S,
    peer: SocketAddr,
    permit: Permit,
    shared: Rc<Shared<H>>,
) {
    let mut connection = Connection::new(stream, peer, shared);
    let end = connection.run().await;
    // Boxed, so that a waiting connection has no room for what its end may need.
    Box::pin(finish(connection, permit, end)).await;
}

/// Finishes a connection after the driver's part of it has ended.
async fn finish<S: Stream + Into<Box<dyn Transport>>, H: Handler>(
    connection: Connection<S, H>,
    permit: Permit,
    end: Result<End, Fault>,
) {
    let Connection { stream, peer, shared, input, .. } = connection;
    let tally = shared.tally();
    match end {
        Ok(End::Close { linger: false }) => {
            let mut stream = stream;
            let farewell = poll_fn(|cx| stream.poll_farewell(cx));
            // The connection is closed now, whether the farewell was sent in time or not.
            let _ = tokio::time::timeout(LINGER.1, farewell).await;
        }
        Ok(End::Close { linger: true }) => linger(stream).await,
        Ok(End::Switch(Switch(switch))) => switch(Upgraded {
            transport: stream.into(),
            input: input.freeze(),
            peer,
            drain: shared.worker.drain.clone(),
            held: Held::new(&shared.counters, &shared.worker, permit),
        }),
        Ok(End::HandOver(request)) => {
            count(&tally.handed_over, 1);
            let replay = if input.is_empty() {
                request.head().clone()
            } else {
                [&request.head()[..], &input[..]].concat().into()
            };
            drop(request);
            let io = Io::new(stream, replay, peer, shared.config.stall_timeout, permit);
            let io = io.counted(shared.own_tally());
            if let Some(io) = control::serve(io, Rc::clone(&shared)).await {
                let (stream, _, _permit) = io.into_parts();
                let mut connection = Connection::new(stream, peer, shared);
                if connection.refuse_late().await.is_ok() {
                    linger(connection.stream).await;
                }
            }
        }
        Err(Fault::Stalled) => {
            count(&tally.stalled, 1);
            let timeout = shared.config.stall_timeout;
            log_stall(peer, timeout);
            // The kernel would keep queued bytes for as long as the peer is silent.
            let _ = stream.tcp().set_zero_linger();
        }
        Err(Fault::TooSlow) => {
            count(&tally.stalled, 1);
            log_too_slow(peer, shared.config.region_timeout);
            let _ = stream.tcp().set_zero_linger();
        }
        Err(Fault::File(broken)) => {
            log_short(peer, &broken);
            if matches!(broken.why, Why::Rewritten | Why::Shorter) {
                // The kernel would take unsent bytes from the file as it is now: other bytes, or
                // zeros.
                let _ = stream.tcp().set_zero_linger();
            }
        }
        Err(Fault::Gone) => debug!(%peer, "the peer left before its answer was complete"),
        Err(Fault::Io(error)) => debug!(%peer, %error, "connection lost"),
    }
}

struct Connection<S, H> {
    stream: S,
    peer: SocketAddr,
    /// Bytes that were received but not yet parsed.
    input: BytesMut,
    /// When bytes were received last.
    received: std::time::Instant,
    outbox: Outbox,
    timer: Timer,
    /// When a head that has begun must be complete.
    head_deadline: Option<Instant>,
    /// Whether a request has been received.
    served: bool,
    /// Whether the connection came when the server was draining, or just before. It gets one
    /// answer.
    late: bool,
    /// Whether the peer has closed its sending half. It may still read.
    half_closed: bool,
    /// Bytes sent, and answers made, since the other connections of the thread last had their turn.
    burst: usize,
    /// Whether the kernel may take only `Config::unsent_limit` unsent bytes, instead of
    /// the limit for files (in `output`).
    bounded: bool,
    drain: Watch,
    shared: Rc<Shared<H>>,
}

/// How the driver's part of a connection ends.
enum End {
    /// Everything is sent. `linger` is whether the peer may not expect the end.
    Close {
        linger: bool,
    },
    HandOver(Request),
    /// The connection continues in another protocol.
    Switch(Switch),
}

enum Fault {
    Io(io::Error),
    /// The bytes of a file are no longer available.
    File(Broken),
    /// The peer took no byte for `Config::stall_timeout`.
    Stalled,
    /// The peer took longer than `Config::region_timeout` for an answer.
    TooSlow,
    /// The peer reset the connection while its answer was made.
    Gone,
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Broken> for Fault {
    fn from(broken: Broken) -> Self {
        Self::File(broken)
    }
}

impl From<send::Fault> for Fault {
    fn from(fault: send::Fault) -> Self {
        match fault {
            send::Fault::Socket(error) => Self::Io(error),
            send::Fault::File(broken) => Self::File(broken),
        }
    }
}

/// Properties of a request that its response depends on.
#[derive(Clone, Copy)]
struct Asked {
    head_only: bool,
    version: Version,
    keep_alive: bool,
}

impl<S: Stream, H: Handler> Connection<S, H> {
    fn new(stream: S, peer: SocketAddr, shared: Rc<Shared<H>>) -> Self {
        Self {
            stream,
            peer,
            input: BytesMut::new(),
            received: std::time::Instant::now(),
            outbox: Outbox::default(),
            timer: Timer::new(shared.config.head_timeout),
            head_deadline: None,
            served: false,
            late: shared.worker.drain.has_begun(),
            half_closed: false,
            burst: 0,
            bounded: true,
            drain: shared.worker.drain.begun(),
            shared,
        }
    }

    async fn run(&mut self) -> Result<End, Fault> {
        let config = Rc::clone(&self.shared);
        let config = &config.config;
        loop {
            match Request::parse(&mut self.input, self.peer, config.max_head) {
                Ok(Some(mut request)) => {
                    request.set_received(self.received);
                    self.head_deadline = None;
                    self.served = true;
                    // Boxed, so that a connection that waits for a request has no room for the
                    // making of an answer.
                    if let Some(end) = Box::pin(self.serve(request)).await? {
                        return Ok(end);
                    }
                    self.take_turns(ANSWER).await;
                }
                Ok(None) => {
                    self.flush().await?;
                    match self.fill().await? {
                        Input::Received => {}
                        Input::Expired if !self.input.is_empty() => {
                            Box::pin(self.refuse_late()).await?;
                            return Ok(End::Close { linger: true });
                        }
                        Input::Closed | Input::Expired | Input::Draining => {
                            return Ok(End::Close { linger: false });
                        }
                    }
                }
                Err(reason) => {
                    let id = request_id::in_head(&self.input);
                    let tally = self.shared.tally();
                    let response = refusal::refused(tally, self.peer, &self.input, reason, id);
                    Box::pin(self.refuse(response)).await?;
                    return Ok(End::Close { linger: true });
                }
            }
        }
    }

    /// Answers one request. `Some` if the driver handles no more requests on this connection; then
    /// everything is sent.
    async fn serve(&mut self, request: Request) -> Result<Option<End>, Fault> {
        let end = self.exchange(request).await?;
        if end.is_some() {
            self.flush().await?;
        }
        Ok(end)
    }

    /// Answers one request. `Some` if the driver handles no more requests on this connection.
    async fn exchange(&mut self, mut request: Request) -> Result<Option<End>, Fault> {
        let shared = Rc::clone(&self.shared);
        // The peer may leave its payload out, or sends it only after a 100 (Continue).
        let expects =
            request.payload() != PayloadFraming::Length(0) && request.header("expect").is_some();
        // The next driver decodes chunks, and sends a 100.
        let is_chunked = request.payload() == PayloadFraming::Chunked;
        let hands_over = (expects || is_chunked) && shared.takes_content(&request);
        if hands_over || !shared.accepts(&request) {
            // The next driver copies all bytes it sends.
            self.bound_unsent(true)?;
            return Ok(Some(End::HandOver(request)));
        }
        count(&shared.tally().requests, 1);
        let mut payload = match request.payload() {
            PayloadFraming::Length(n) if n <= MAX_DISCARD && !expects => Some(n),
            _ => None,
        };
        let (wished, is_bare) = (request.keep_alive(), payload == Some(0));
        let asked = Asked {
            head_only: request.method() == Method::Head,
            version: request.version(),
            keep_alive: wished && payload.is_some(),
        };
        if let Some(n @ 1..=MAX_CONTENT) = payload
            && shared.takes_content(&request)
        {
            let Some(content) = self.collect(n as usize).await? else {
                self.refuse_late().await?;
                return Ok(Some(End::Close { linger: true }));
            };
            request.set_content(content);
            payload = Some(0);
        }
        let response = {
            let mut answer = pin!(shared.answer(request));
            match poll_fn(|cx| Poll::Ready(answer.as_mut().poll(cx))).await {
                Poll::Ready(response) => response,
                Poll::Pending => {
                    self.flush().await?;
                    self.unless_gone(|cx| answer.as_mut().poll(cx)).await?
                }
            }
        };
        let mut response = response;
        if let Some(switch) = response.take_switch() {
            self.bound_unsent(true)?;
            let (mut head, _) = response.into_parts();
            date::write_line(&mut head);
            head.extend_from_slice(b"\r\n");
            self.outbox.push(head.into());
            return Ok(Some(End::Switch(switch)));
        }
        let response = match response.status() {
            200.. => response,
            _ => Response::text(500, "no final response"),
        };
        let keep_alive = self.respond(response, asked).await?;
        let Some(payload) = payload.filter(|_| keep_alive) else {
            // A payload that still arrives would make the kernel drop the answer.
            let linger = wished || !is_bare;
            return Ok(Some(End::Close { linger }));
        };
        Ok(match self.discard(payload).await? {
            true => None,
            false => Some(End::Close { linger: true }),
        })
    }

    /// Puts a last response in the outbox and sends it.
    async fn refuse(&mut self, response: Response) -> Result<(), Fault> {
        let head_only = self.input.trim_ascii_start().starts_with(b"HEAD ");
        let asked = Asked { head_only, version: Version::Http11, keep_alive: false };
        self.respond(response, asked).await?;
        self.flush().await
    }

    /// Refuses a request whose head took too long.
    async fn refuse_late(&mut self) -> Result<(), Fault> {
        let id = request_id::in_head(&self.input);
        self.refuse(refusal::late(self.shared.tally(), self.peer, "head", id)).await
    }
}
