//! One connection: reads requests and sends responses in their order, with limits on everything.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use socket2::SockRef;
use tokio::io::{AsyncWriteExt, Interest, ReadBuf};
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::counters::count;
use crate::io::{Io, Stream};
use crate::net::Patience;
use crate::net::Permit;
use crate::net::Timer;
use crate::net::Watch;
use crate::refusal::{MAX_DISCARD, log_refusal, log_stall};
use crate::send::{self, Outbox};
use crate::shared::Shared;
use crate::source::{Broken, Why};
use crate::upgrade::{Held, Switch, Transport, Upgraded};
use crate::{
    Body, BodyStream, Handler, Method, PayloadFraming, Piece, Request, Response, Version, control,
    date, length, slice,
};

/// Bytes per read.
const READ: usize = 16 << 10;

/// How many bytes of unread requests a connection takes from a peer while an answer is made or
/// sent. The rest waits in the kernel.
const MAX_AHEAD: usize = 16 << 10;

/// Answers to pipelined requests are collected up to this many bytes before they are sent.
const COALESCE: u64 = 64 << 10;

/// How the end of a streamed payload is marked.
#[derive(Clone, Copy)]
enum Framing {
    /// Chunked transfer coding, RFC 9112 7.1.
    Chunked,
    /// By its length: this many bytes are left.
    Length(u64),
    /// By the end of the connection.
    Close,
}

impl Framing {
    fn of(chunked: bool) -> Self {
        if chunked { Self::Chunked } else { Self::Close }
    }
}

/// How many bytes a connection may send before the other connections of its thread have their turn.
const BURST: usize = 512 << 10;

/// What an answer counts in addition to its bytes: making it takes about as much work as sending
/// this many bytes.
const ANSWER: usize = 8 << 10;

/// How many unsent bytes the kernel may take of a payload in files or in a window. They are not
/// copied, but they count as TCP memory. If a file is written to meanwhile, its unsent bytes go out
/// as they are then. The driver is woken when half of this is sent. A smaller limit costs more
/// wakes and calls. With this one, an answer of 1 MiB is still taken at once.
const FILES_UNSENT: u32 = 1 << 20;

/// How many bytes are read, and for how long, after the last response on a connection that we
/// close. Unread input would make the kernel drop the response (RFC 9112 9.6).
const LINGER: (usize, Duration) = (1 << 20, Duration::from_secs(2));

/// How long a connection without any request yet may take to send one once the server drains. So a
/// client that checks whether the server is ready gets an answer.
const FIRST_REQUEST: Duration = Duration::from_millis(500);

thread_local! {
    /// Buffer for the thread's reads. A connection keeps only bytes that it cannot use at once, so
    /// an idle connection has no buffer.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; READ]);
}

/// Serves a connection to its end.
pub(crate) async fn drive<S: Stream + Into<Transport>, H: Handler>(
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
async fn finish<S: Stream + Into<Transport>, H: Handler>(
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
            held: Held { tally: shared.own_tally(), _permit: permit, _task: shared.task() },
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
                let (stream, _permit) = io.into_stream();
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
        Err(Fault::File(broken)) => {
            warn!(%peer, "closed short: {broken}");
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
    /// [`FILES_UNSENT`].
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

/// Result of waiting for input.
enum Input {
    Received,
    Closed,
    Expired,
    Draining,
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
                Ok(Some(request)) => {
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
                    log_refusal(self.shared.tally(), self.peer, &self.input, reason);
                    Box::pin(self.refuse(Response::text(reason.status(), reason))).await?;
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
    async fn exchange(&mut self, request: Request) -> Result<Option<End>, Fault> {
        let shared = Rc::clone(&self.shared);
        if !shared.accepts(&request) {
            // The next driver copies all bytes it sends.
            self.bound_unsent(true)?;
            return Ok(Some(End::HandOver(request)));
        }
        count(&shared.tally().requests, 1);
        // A peer that waits for 100 (Continue) may send its payload or leave it out.
        let payload = match request.payload() {
            PayloadFraming::Length(0) => Some(0),
            PayloadFraming::Length(n) if n <= MAX_DISCARD && request.header("expect").is_none() => {
                Some(n)
            }
            _ => None,
        };
        let (wished, is_bare) = (request.keep_alive(), payload == Some(0));
        let asked = Asked {
            head_only: request.method() == Method::Head,
            version: request.version(),
            keep_alive: wished && payload.is_some(),
        };
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
        count(&self.shared.tally().bad_requests, 1);
        debug!(peer = %self.peer, "request head not finished in time");
        self.refuse(Response::text(408, "request head too slow")).await
    }

    /// Sends a response, or puts it in the outbox if it is short. Returns whether the connection
    /// can be used again.
    async fn respond(&mut self, response: Response, asked: Asked) -> Result<bool, Fault> {
        let has_content = response.may_have_content();
        let (mut head, body) = response.into_parts();
        date::write_line(&mut head);
        head.extend_from_slice(&self.shared.cors);
        let chunked = asked.version == Version::Http11;
        let mut keep_alive = asked.keep_alive && !self.shared.worker.drain.has_begun();
        match body.size() {
            _ if !has_content => {}
            Some(size) => {
                head.extend_from_slice(b"Content-Length: ");
                push_number(&mut head, size);
                head.extend_from_slice(b"\r\n");
            }
            None if chunked => head.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
            // The end of the payload is the end of the connection.
            None => keep_alive = false,
        }
        head.extend_from_slice(match (keep_alive, asked.version) {
            (true, Version::Http11) => b"\r\n".as_slice(),
            (true, Version::Http10) => b"Connection: keep-alive\r\n\r\n",
            (false, _) => b"Connection: close\r\n\r\n",
        });
        self.outbox.push(head.into());
        if has_content && !asked.head_only {
            match body {
                Body::Empty => {}
                Body::Pieces(pieces) => {
                    self.bound_unsent(self.holds_back(&pieces))?;
                    for piece in pieces {
                        self.outbox.push_piece(piece)?;
                    }
                }
                Body::Stream(stream) => {
                    self.bound_unsent(true)?;
                    self.stream(stream, Framing::of(chunked)).await?;
                }
                Body::Sized(size, stream) => {
                    self.bound_unsent(true)?;
                    self.stream(stream, Framing::Length(size)).await?;
                }
            }
        }
        // Files are kept open for only one response at a time.
        if self.outbox.size() > COALESCE || self.outbox.has_files() {
            self.flush().await?;
            self.outbox.release();
        }
        Ok(keep_alive)
    }

    /// Whether the kernel may take only few unsent bytes of a complete payload. If its bytes are
    /// copied, they take memory in the kernel. Bytes that are sent from a file are in memory anyway
    /// and never skipped. The kernel may take more of them, so that the driver is woken less often.
    fn holds_back(&self, pieces: &[Piece]) -> bool {
        let copied = |piece: &Piece| !S::SENDS_FILES || matches!(piece, Piece::Bytes(_));
        let copied: u64 = pieces.iter().filter(|piece| copied(piece)).map(Piece::len).sum();
        // A shorter payload reaches neither limit.
        let limit = u64::from(self.shared.config.unsent_limit);
        if length(pieces) <= limit { self.bounded } else { copied > limit }
    }

    /// Sets how many unsent bytes the kernel may take: few, or as many as for files.
    fn bound_unsent(&mut self, bounded: bool) -> io::Result<()> {
        if self.bounded != bounded {
            let limit = self.shared.config.unsent_limit;
            let most = if bounded { limit } else { limit.max(FILES_UNSENT) };
            SockRef::from(self.stream.tcp()).set_tcp_notsent_lowat(most)?;
            self.bounded = bounded;
        }
        Ok(())
    }

    /// Sends a payload piece by piece.
    async fn stream(
        &mut self,
        mut body: Box<dyn BodyStream>,
        framing: Framing,
    ) -> Result<(), Fault> {
        let sent = self.pieces(&mut *body, framing).await;
        if matches!(sent, Err(Fault::Stalled)) {
            body.stalled();
        }
        sent
    }

    async fn pieces(
        &mut self,
        body: &mut dyn BodyStream,
        mut framing: Framing,
    ) -> Result<(), Fault> {
        let mut told = false;
        let mut drain = self.shared.worker.drain.begun();
        while !matches!(framing, Framing::Length(0)) {
            let parts = match poll_fn(|cx| Poll::Ready(body.poll_next(cx))).await {
                Poll::Ready(next) => next,
                Poll::Pending => {
                    self.flush().await?;
                    self.unless_gone(|cx| {
                        if !told && Pin::new(&mut drain).poll(cx).is_ready() {
                            told = true;
                            body.drain();
                        }
                        body.poll_next(cx)
                    })
                    .await?
                }
            };
            let Some(mut parts) = parts.transpose()? else { break };
            if let Framing::Length(left) = &mut framing {
                if *left < length(&parts) {
                    parts = slice(&parts, &(0..*left));
                }
                *left -= length(&parts);
            }
            let chunked = matches!(framing, Framing::Chunked);
            let size = length(&parts);
            // An empty chunk would end the payload.
            if size == 0 {
                continue;
            }
            if chunked {
                self.outbox.push(format!("{size:x}\r\n").into());
            }
            for piece in parts {
                self.outbox.push_streamed(piece)?;
            }
            if chunked {
                self.outbox.push(Bytes::from_static(b"\r\n"));
            }
            self.flush().await?;
            // A stream that is always ready is told here that the server drains.
            if !told && self.shared.worker.drain.has_begun() {
                told = true;
                body.drain();
            }
        }
        match framing {
            Framing::Chunked => self.outbox.push(Bytes::from_static(b"0\r\n\r\n")),
            Framing::Close | Framing::Length(0) => {}
            Framing::Length(_) => {
                let short = io::Error::new(io::ErrorKind::UnexpectedEof, "payload cut short");
                return Err(short.into());
            }
        }
        Ok(())
    }

    /// Reads and drops a request's payload. Returns false if it does not arrive.
    async fn discard(&mut self, mut payload: u64) -> Result<bool, Fault> {
        loop {
            let n = payload.min(self.input.len() as u64);
            self.input.advance(n as usize);
            payload -= n;
            if payload == 0 {
                // The next head has its own time limit.
                self.head_deadline = None;
                return Ok(true);
            }
            self.flush().await?;
            let deadline = *self
                .head_deadline
                .get_or_insert_with(|| Instant::now() + self.shared.config.head_timeout);
            if !matches!(self.wait(deadline, false).await?, Input::Received) {
                return Ok(false);
            }
        }
    }

    /// Waits until the head may be complete.
    async fn fill(&mut self) -> Result<Input, Fault> {
        let config = &self.shared.config;
        let (max_head, now) = (config.max_head, Instant::now());
        let deadline = if !self.input.is_empty() {
            *self.head_deadline.get_or_insert(now + config.head_timeout)
        } else {
            self.input = BytesMut::new();
            now + if self.served { config.idle_timeout } else { config.head_timeout }
        };
        loop {
            let before = self.input.len();
            let input = self.wait(deadline, before == 0).await?;
            // Parsing always begins at the start of the head. A peer that sends byte by byte must
            // cause it only for the first bytes and at line ends.
            let promising = self.input.len() < 512
                || self.input.len() > max_head
                || self.input[before..].contains(&b'\n');
            if promising || !matches!(input, Input::Received) {
                return Ok(input);
            }
        }
    }

    /// Waits for input.
    async fn wait(&mut self, mut deadline: Instant, idle: bool) -> Result<Input, Fault> {
        poll_fn(|cx| {
            if let Poll::Ready(n) = self.poll_read(cx) {
                return Poll::Ready(Ok(if n? == 0 { Input::Closed } else { Input::Received }));
            }
            self.burst = 0;
            if idle && Pin::new(&mut self.drain).poll(cx).is_ready() {
                if self.served {
                    return Poll::Ready(Ok(Input::Draining));
                }
                // The connection's first request may already be on its way.
                if !std::mem::replace(&mut self.late, true) {
                    deadline = deadline.min(Instant::now() + FIRST_REQUEST);
                }
            }
            self.timer.poll(deadline, cx).map(|()| Ok(Input::Expired))
        })
        .await
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        SCRATCH.with_borrow_mut(|scratch| {
            let mut buffer = ReadBuf::new(scratch);
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer))?;
            self.input.extend_from_slice(buffer.filled());
            Poll::Ready(Ok(buffer.filled().len()))
        })
    }

    /// Waits for an answer, or for the next part of one, unless the peer is gone. Requests that the
    /// peer sends meanwhile are kept, as long as there is room.
    ///
    /// A peer that has closed its sending half may still wait for the answer (RFC 9112 9.6). A peer
    /// that has closed the connection looks the same until something is sent to it. So the driver
    /// waits in both cases: every answer takes a limited time.
    async fn unless_gone<T>(
        &mut self,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Result<T, Fault> {
        if !self.half_closed {
            let ready = poll_fn(|cx| match poll(cx) {
                Poll::Ready(ready) => Poll::Ready(Ok(Some(ready))),
                Poll::Pending => self.poll_last(cx).map(|last| last.map(|()| None)),
            });
            if let Some(ready) = ready.await? {
                return Ok(ready);
            }
            self.half_closed = true;
        }
        let mut reset = pin!(self.stream.tcp().ready(Interest::ERROR));
        poll_fn(|cx| match poll(cx) {
            Poll::Ready(ready) => Poll::Ready(Ok(ready)),
            Poll::Pending => reset.as_mut().poll(cx).map(|_| Err(Fault::Gone)),
        })
        .await
    }

    /// Ready when the peer has closed its sending half.
    fn poll_last(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.input.len() < MAX_AHEAD {
            if ready!(self.poll_read(cx))? == 0 {
                return Poll::Ready(Ok(()));
            }
        }
        Poll::Pending
    }

    /// Sends everything in the outbox.
    async fn flush(&mut self) -> Result<(), Fault> {
        while self.outbox.size() > 0 || self.stream.holds() {
            let mut patience = None;
            let sent = poll_fn(|cx| {
                let tally = self.shared.tally();
                if self.outbox.size() > 0
                    && let Poll::Ready(sent) = self.outbox.poll_write(&mut self.stream, tally, cx)
                {
                    return Poll::Ready(sent.map_err(Fault::from));
                }
                // Each byte that the kernel takes restarts the time limit.
                if self.stream.holds()
                    && let Poll::Ready(drained) = self.stream.poll_drain(cx)
                {
                    return Poll::Ready(drained.map(|_| 0).map_err(Fault::from));
                }
                self.burst = 0;
                // A slow disk is not the peer's fault.
                if self.outbox.is_reading() {
                    patience = None;
                    return Poll::Pending;
                }
                let timeout = self.shared.config.stall_timeout;
                let patience = patience.get_or_insert_with(|| Patience::new(timeout));
                let stalled = patience.poll(&mut self.timer, self.stream.tcp(), cx);
                stalled.map(|()| Err(Fault::Stalled))
            })
            .await?;
            count(&self.shared.tally().bytes_sent, sent as u64);
            self.take_turns(sent).await;
        }
        Ok(())
    }

    /// Lets the other connections of the thread have their turn, if this one has used up its own.
    async fn take_turns(&mut self, done: usize) {
        self.burst += done;
        if self.burst >= BURST {
            self.burst = 0;
            tokio::task::yield_now().await;
        }
    }
}

/// Closes a connection in such a way that its last response arrives.
async fn linger<S: Stream>(mut stream: S) {
    let (most, time) = LINGER;
    let end = async {
        stream.shutdown().await?;
        let mut read = 0;
        while read < most {
            let n = poll_fn(|cx| {
                SCRATCH.with_borrow_mut(|scratch| {
                    let mut buffer = ReadBuf::new(scratch);
                    ready!(Pin::new(&mut stream).poll_read(cx, &mut buffer))?;
                    Poll::Ready(io::Result::Ok(buffer.filled().len()))
                })
            })
            .await?;
            if n == 0 {
                break;
            }
            read += n;
        }
        io::Result::Ok(())
    };
    // The connection is closed now in any case.
    let _ = tokio::time::timeout(time, end).await;
}

fn push_number(head: &mut Vec<u8>, number: u64) {
    let mut digits = [0; 20];
    let mut start = digits.len();
    let mut rest = number;
    loop {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    head.extend_from_slice(&digits[start..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        for number in [0, 7, 10, 4096, u64::MAX] {
            let mut head = Vec::new();
            push_number(&mut head, number);
            assert_eq!(head, number.to_string().as_bytes());
        }
    }
}
