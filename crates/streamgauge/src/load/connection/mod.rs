//! One HTTP/1.1 connection: the requests it has sent, and their answers.
//!
//! Sockets do not block. Bytes of bodies that nobody needs to see are dropped in the kernel
//! (`MSG_TRUNC`, tcp(7)): they are counted and acknowledged, but never copied.

mod incoming;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, connect, recv, send,
    socket_with, sockopt,
};

use super::check::Reference;
use super::clock::Clock;
use super::exchange::{Answer, Exchange};
use super::response::{Bad, Body, Head, LONGEST_HEAD};
use super::slow::Allowance;
use super::tally::{Counters, Fault};
use super::target::ByteRange;
use super::trouble::Trouble;
use incoming::Incoming;

/// If a body has fewer bytes left than this, they are read together with the next head. Dropping
/// them would take a call of its own.
const DROP_FROM: u64 = 4 << 10;
/// The most bytes that one call drops.
const DROP_MOST: usize = 16 << 20;

/// What the connections of a worker share: buffers, and the file that bodies must equal.
pub(super) struct Io<'a> {
    pub(super) clock: Clock,
    pub(super) reference: Option<&'a Reference>,
    scratch: Vec<u8>,
    /// Never written to, so it takes address space but no memory.
    dropped: Vec<u8>,
    expected: Vec<u8>,
}

impl<'a> Io<'a> {
    pub(super) fn new(clock: Clock, reference: Option<&'a Reference>) -> Self {
        let scratch = if reference.is_some() { 256 << 10 } else { LONGEST_HEAD };
        Self {
            clock,
            reference,
            scratch: vec![0; scratch],
            dropped: vec![0; DROP_MOST],
            expected: Vec::new(),
        }
    }
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) socket: OwnedFd,
    /// Index of its peer among those of the worker.
    pub(super) peer: usize,
    /// When it began to connect; `None` once it is connected.
    pub(super) connecting: Option<u64>,
    /// Requests without a complete answer, in order.
    pub(super) flying: VecDeque<Exchange>,
    /// How many complete answers it has received.
    pub(super) answered: u64,
    /// Whether it takes no more requests.
    pub(super) closing: bool,
    /// Bytes of requests that the kernel has not taken.
    pub(super) out: Vec<u8>,
    /// The part of a head that has come.
    input: Vec<u8>,
    incoming: Option<Incoming>,
    /// Whether the body of the last answer ended by its Content-Length.
    ended_by_length: bool,
    /// How fast it may read, if its client is slow.
    allowance: Option<Allowance>,
    /// Whether it has used up its allowance and reads nothing until there is more.
    pub(super) paused: bool,
}

impl Connection {
    /// Begins to connect, from a local address if one is given. Reads at most `read_rate` bytes per
    /// second.
    pub(super) fn open(
        (source, address): (Option<SocketAddr>, SocketAddr),
        peer: usize,
        now: u64,
        read_rate: Option<u64>,
    ) -> Result<Self, Trouble> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket =
            socket_with(family, SocketType::STREAM, flags, None).map_err(Trouble::of_io)?;
        // Without this, a request that follows another would wait for an acknowledgement.
        sockopt::set_tcp_nodelay(&socket, true).map_err(Trouble::of_io)?;
        let allowance = read_rate.map(Allowance::new);
        if let Some(allowance) = allowance {
            // Set before connecting, which fixes the scale of the window.
            sockopt::set_socket_recv_buffer_size(&socket, allowance.buffer())
                .map_err(Trouble::of_io)?;
        }
        if let Some(source) = source {
            bind(&socket, &source).map_err(Trouble::of_io)?;
        }
        match connect(&socket, &address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(Trouble::of_io(error)),
        }
        Ok(Self {
            socket,
            peer,
            connecting: Some(now),
            flying: VecDeque::new(),
            answered: 0,
            closing: false,
            out: Vec::new(),
            input: Vec::new(),
            incoming: None,
            ended_by_length: false,
            allowance,
            paused: false,
        })
    }

    /// Checks whether the connection succeeded, once it can be written to.
    pub(super) fn connected(&mut self) -> Result<(), Trouble> {
        match sockopt::socket_error(&self.socket) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) | Err(error) => Err(Trouble::of_io(error)),
        }
    }

    /// Queues a request. [`Connection::flush`] sends it.
    pub(super) fn ask(&mut self, exchange: Exchange, closes: bool) {
        use std::io::Write;
        self.out.extend_from_slice(&exchange.asked.head);
        if exchange.asked.bare.is_some() {
            self.flying.push_back(exchange);
            self.closing |= closes;
            return;
        }
        if let Some(ByteRange { first, last }) = exchange.range {
            write!(self.out, "Range: bytes={first}-{last}\r\n").expect("a Vec takes all");
        }
        self.out.extend_from_slice(if closes { b"Connection: close\r\n\r\n" } else { b"\r\n" });
        self.flying.push_back(exchange);
        self.closing |= closes;
    }

    /// Sends the queued requests; returns whether all of them are sent.
    pub(super) fn flush(&mut self, counters: &mut Counters) -> Result<bool, Trouble> {
        let mut sent = 0;
        let result = loop {
            if sent == self.out.len() {
                break Ok(true);
            }
            match send(&self.socket, &self.out[sent..], SendFlags::NOSIGNAL) {
                Ok(taken) => {
                    sent += taken;
                    counters.sent_bytes += taken as u64;
                }
                Err(Errno::AGAIN) => break Ok(false),
                Err(Errno::INTR) => {}
                Err(error) => break Err(Trouble::of_io(error)),
            }
        };
        self.out.drain(..sent);
        result
    }

    /// Reads the bytes that have come and adds complete answers to `answers`.
    ///
    /// After an error the connection is unusable. The error belongs to its first request, if it has
    /// any.
    pub(super) fn read(
        &mut self,
        io: &mut Io<'_>,
        counters: &mut Counters,
        answers: &mut Vec<Answer>,
    ) -> Result<(), Trouble> {
        loop {
            let most =
                self.allowance.map_or(usize::MAX, |allowance| allowance.most(io.clock.now()));
            if most == 0 {
                return Ok(());
            }
            self.begin_bare(io.reference);
            let drained = match self.incoming.as_ref().map_or(0, Incoming::unseen) {
                unseen if unseen >= DROP_FROM => {
                    let most = most.min(usize::try_from(unseen).unwrap_or(usize::MAX));
                    self.drop_body(most, io, counters, answers)?
                }
                _ => self.read_bytes(most, io, counters, answers)?,
            };
            if drained || self.flying.is_empty() {
                return Ok(());
            }
        }
    }

    /// Time until which nothing is read, if it is after `now`.
    pub(super) fn rests_until(&self, now: u64) -> Option<u64> {
        self.allowance.map(Allowance::opens).filter(|opens| *opens > now)
    }

    /// Lets it read everything that is left, because nothing more will come.
    pub(super) fn hurry(&mut self) {
        self.allowance = None;
    }

    fn took(&mut self, bytes: usize, clock: Clock) {
        if let Some(allowance) = &mut self.allowance {
            allowance.take(bytes, clock.now());
        }
    }

    /// Drops bytes of a body; returns whether nothing more can be read now.
    fn drop_body(
        &mut self,
        most: usize,
        io: &mut Io<'_>,
        counters: &mut Counters,
        answers: &mut Vec<Answer>,
    ) -> Result<bool, Trouble> {
        let most = most.min(io.dropped.len());
        let dropped = match recv(&self.socket, &mut io.dropped[..most], RecvFlags::TRUNC) {
            Ok((_, 0)) => return self.end(io.clock.now(), answers).map(|()| true),
            Ok((_, dropped)) => dropped,
            Err(Errno::AGAIN) => return Ok(true),
            Err(Errno::INTR) => return Ok(false),
            Err(error) => return Err(Trouble::of_io(error)),
        };
        counters.body_bytes += dropped as u64;
        self.took(dropped, io.clock);
        self.came(|| io.clock.now());
        if let Some(incoming) = &mut self.incoming {
            incoming.pass_over(dropped as u64);
            if incoming.body.is_complete() {
                answers.extend(self.complete(io.clock.now()));
            }
        }
        Ok(dropped < most)
    }

    /// Reads bytes and parses them; returns whether nothing more can be read now.
    fn read_bytes(
        &mut self,
        most: usize,
        io: &mut Io<'_>,
        counters: &mut Counters,
        answers: &mut Vec<Answer>,
    ) -> Result<bool, Trouble> {
        let kept = self.input.len();
        // A kept part is shorter than the longest head, so there is room after it.
        io.scratch[..kept].copy_from_slice(&self.input);
        let room = most.min(io.scratch.len() - kept);
        let into = &mut io.scratch[kept..kept + room];
        let read = match recv(&self.socket, into, RecvFlags::empty()) {
            Ok((_, 0)) => return self.end(io.clock.now(), answers).map(|()| true),
            Ok((_, read)) => read,
            Err(Errno::AGAIN) => return Ok(true),
            Err(Errno::INTR) => return Ok(false),
            Err(error) => return Err(Trouble::of_io(error)),
        };
        let now = io.clock.now();
        self.input.clear();
        self.took(read, io.clock);
        let drained = read < room;
        let mut rest = &io.scratch[..kept + read];
        while !rest.is_empty() {
            self.begin_bare(io.reference);
            if self.incoming.is_none() {
                match self.begin(rest, now, io.reference)? {
                    Some(length) => {
                        counters.head_bytes += length as u64;
                        rest = &rest[length..];
                    }
                    None => {
                        self.input.extend_from_slice(rest);
                        break;
                    }
                }
            }
            self.came(|| now);
            let Some(incoming) = &mut self.incoming else { continue };
            let before = incoming.received;
            let taken = incoming.take(rest, io.reference, &mut io.expected)?;
            let payload = incoming.received - before;
            counters.body_bytes += payload;
            counters.head_bytes += taken as u64 - payload;
            rest = &rest[taken..];
            if incoming.body.is_complete() {
                let mut answer = self.complete(now);
                if let Some(answer) = &mut answer
                    && self.flying.is_empty()
                    && !rest.is_empty()
                {
                    answer.fault.get_or_insert_with(|| excess(self.ended_by_length));
                    self.closing = true;
                    rest = &[];
                }
                answers.extend(answer);
            }
        }
        Ok(drained)
    }

    /// Starts the answer to a request without HTTP, which has no head.
    fn begin_bare(&mut self, reference: Option<&Reference>) {
        if self.incoming.is_some() {
            return;
        }
        let Some(length) = self.flying.front().and_then(|front| front.asked.bare) else { return };
        self.incoming = Some(Incoming::bare(length, reference));
    }

    /// Notes the time of the first byte of an answer.
    fn came(&mut self, now: impl FnOnce() -> u64) {
        if let Some(front) = self.flying.front_mut()
            && front.first_byte == 0
            && self.incoming.is_some()
        {
            front.first_byte = now();
        }
    }

    /// Takes a head from the front of `bytes`, if it has come whole. Passes over interim ones.
    fn begin(
        &mut self,
        bytes: &[u8],
        now: u64,
        reference: Option<&Reference>,
    ) -> Result<Option<usize>, Trouble> {
        let Some(front) = self.flying.front_mut() else {
            return Err(excess(self.ended_by_length));
        };
        if front.first_byte == 0 {
            front.first_byte = now;
        }
        let head = match Head::parse(bytes, front.asked.target.method == "HEAD") {
            Ok(Some(head)) => head,
            Ok(None) => return Ok(None),
            // The body is longer than its Content-Length. The next head cannot be found after it.
            Err(Bad::NoAnswer) if self.ended_by_length => return Err(excess(true)),
            Err(bad) => return Err(Trouble::new(Fault::BadResponse, format!("the answer {bad}"))),
        };
        let length = head.length;
        if head.is_interim() {
            front.first_byte = 0;
            return Ok(Some(length));
        }
        self.closing |= !head.keeps_alive;
        self.incoming = Some(Incoming::new(head, front, reference));
        Ok(Some(length))
    }

    /// Ends the answer. The next bytes belong to another one.
    fn complete(&mut self, now: u64) -> Option<Answer> {
        let mut incoming = self.incoming.take()?;
        let exchange = self.flying.pop_front()?;
        self.answered += 1;
        self.ended_by_length = incoming.content_length.is_some();
        let fault = incoming.fault();
        let Incoming { status, location, .. } = incoming;
        Some(Answer { exchange, status, location, last_byte: now, fault })
    }

    /// Handles the end of the connection by the peer.
    fn end(&mut self, now: u64, answers: &mut Vec<Answer>) -> Result<(), Trouble> {
        self.closing = true;
        match &self.incoming {
            Some(Incoming { body: Body::UntilClose, .. }) => {
                answers.extend(self.complete(now));
                Ok(())
            }
            Some(Incoming { status: 0, received: 0, .. }) => {
                Err(Trouble::new(Fault::Closed, "the connection was closed unanswered"))
            }
            Some(Incoming { received, content_length, .. }) => {
                let of = content_length.map_or_else(String::new, |length| format!(" of {length}"));
                let detail = format!("the connection ended after {received}{of} bytes of the body");
                Err(Trouble::new(Fault::ShortBody, detail))
            }
            None if !self.input.is_empty() => {
                Err(Trouble::new(Fault::ShortBody, "the connection ended within the head"))
            }
            None => Err(Trouble::new(Fault::Closed, "the connection was closed unanswered")),
        }
    }
}

fn excess(ended_by_length: bool) -> Trouble {
    if ended_by_length {
        Trouble::new(Fault::ContentLength, "bytes follow the announced end of the body")
    } else {
        Trouble::new(Fault::BadResponse, "bytes came that nobody asked for")
    }
}
