//! A push viewer's WebSocket, for live streams and titles alike. It reads the viewer's messages,
//! queues replies, and detects viewers that vanished or take nothing. Its owner decides which media
//! to send.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::net::{Look, Patience, Timer, Watch};
use http::{Broken, Fault, Upgraded};
use live::Delivery;
use protocol::push::budget::Budget;
use protocol::push::frame::{self, Opcode, Reader};
use protocol::push::message::{Command, Event};
use protocol::push::{CloseCode, Violation};
use tokio::time::Instant;

use super::wire::Wire;
use super::{Push, messages};
use crate::config::PushRule;
use crate::counts::TooSlow;
use crate::send_queue::SendQueue;
use crate::sessions::{Over, Session as Listed};
use crate::traces::Trace;

/// Bytes of one read: more than a TLS record holds.
const READ: usize = 32 << 10;

/// How long a viewer that has everything, or was told why it must leave, may take to close in order,
/// and how many bytes it may still send.
const FAREWELL: (Duration, usize) = (Duration::from_secs(2), 1 << 20);

/// A viewer that sends nothing for this many ping intervals is gone.
const UNANSWERED: u32 = 3;

thread_local! {
    /// The read buffer that all viewers of a thread share. An idle viewer has no buffer of its own.
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ].into());
}

/// Why a viewer's connection ends, other than by the viewer's wish or the stream's end.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Violation(#[from] Violation),
    #[error("{0}")]
    Media(#[from] media::Error),
    #[error("reads too slowly")]
    TooSlow,
    #[error("took nothing for {0:?}")]
    Stalled(Duration),
    #[error("nothing was heard of it for {0:?}")]
    Vanished(Duration),
    #[error("{0}")]
    File(#[from] Broken),
    #[error("the file has changed or cannot be read")]
    Changed,
    #[error("the file cannot be read: {0}")]
    Unread(io::Error),
    #[error("{0}")]
    Over(Over),
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Socket(error) => Self::Io(error),
            Fault::File(broken) => Self::File(broken),
        }
    }
}

/// A message of a viewer on which the owner must act.
#[derive(Debug)]
pub(super) enum Said {
    Command(Command),
    /// The viewer closes the WebSocket with this code. Call [`Session::answer_close`].
    Close(Option<u16>),
}

/// The result of a read.
pub(super) struct Heard {
    pub(super) said: Vec<Said>,
    /// The viewer has left without a close.
    pub(super) left: bool,
}

/// A viewer's WebSocket.
pub(super) struct Session {
    pub(super) push: Rc<Push>,
    pub(super) peer: SocketAddr,
    /// Others may write to it while this session has nothing unsent.
    pub(super) wire: Rc<Wire>,
    pub(super) drain: Watch,
    reader: Reader,
    budget: Budget,
    /// Input that came with the request.
    input: Bytes,
    /// Whole messages that go out before anything else. The first may be partly sent.
    pub(super) send_queue: SendQueue,
    /// Set while the connection takes no more of what is to be sent.
    blocked: Option<Box<Patience>>,
    /// When to send the next ping, and how many pings are unanswered.
    pub(super) ping: Instant,
    unanswered: u32,
    /// Whether the viewer hears of each ping.
    pub(super) says_alive: bool,
    pub(super) timer: Timer,
    /// Ends when the viewer may no longer watch.
    pub(super) listed: Listed,
    /// Nothing more is queued.
    pub(super) over: bool,
    /// Until it gets its first byte of media.
    pub(super) trace: Trace,
}

/// Ready at a time, or when a viewer must leave: when to call [`Session::look_around`].
pub(super) fn poll_time(
    timer: &mut Timer,
    at: Instant,
    listed: &mut Listed,
    cx: &mut Context<'_>,
) -> Poll<()> {
    if listed.poll_over(cx).is_ready() { Poll::Ready(()) } else { timer.poll(at, cx) }
}

impl Session {
    /// The rule that chooses among the renditions of a live stream.
    pub(super) fn rule(&self) -> PushRule {
        self.push.origin.config.push.rule
    }

    pub(super) fn new(push: Rc<Push>, connection: Upgraded, listed: Listed, trace: Trace) -> Self {
        let interval: Duration = push.origin.config.push.ping_interval.into();
        let Upgraded { transport, input, held, drain, peer } = connection;
        Self {
            push,
            peer,
            wire: Rc::new(Wire { transport, held }),
            drain: drain.begun(),
            reader: Reader::default(),
            budget: Budget::default(),
            input,
            send_queue: SendQueue::default(),
            blocked: None,
            ping: Instant::now() + interval,
            unanswered: 0,
            says_alive: false,
            timer: Timer::new(interval),
            listed,
            over: false,
            trace,
        }
    }

    /// Queues an event. Most events answer commands. So a viewer that sends many commands and reads
    /// little is not read from.
    pub(super) fn say(&mut self, event: &Event) {
        self.send_queue.answer(messages::event(event));
    }

    /// Tells a viewer that asked for it that the connection is there.
    pub(super) fn tell_alive(&mut self) {
        if self.says_alive {
            let interval: Duration = self.push.origin.config.push.ping_interval.into();
            let every = interval.as_secs_f64();
            self.send_queue.push(messages::event(&Event::Alive { every }));
        }
    }

    pub(super) fn close(&mut self, code: CloseCode, reason: &str) {
        if !std::mem::replace(&mut self.over, true) {
            self.send_queue.push(frame::close(code, reason).into());
        }
    }

    /// Answers a viewer that closes the WebSocket (RFC 6455 5.5.1).
    pub(super) fn answer_close(&mut self, code: Option<u16>) {
        let payload = code.map(u16::to_be_bytes);
        let payload = payload.as_ref().map_or(&[][..], |code| code);
        self.send_queue.push(frame::frame(Opcode::Close, payload).into());
        self.over = true;
    }

    /// Closes because the server is shutting down.
    pub(super) fn go_away(&mut self) {
        self.close(CloseCode::GoingAway, "the server is shutting down");
    }

    /// Closes because the stream is over.
    pub(super) fn finish(&mut self) {
        self.say(&Event::End);
        self.close(CloseCode::Normal, "");
    }

    /// Whether everything queued is in the kernel.
    pub(super) fn is_idle(&self) -> bool {
        self.send_queue.is_empty() && !self.wire.transport.holds()
    }

    /// Writes as much as the connection takes.
    pub(super) fn send(&mut self) -> Result<(), Error> {
        if self.is_idle() {
            return Ok(());
        }
        let drained = self.wire.transport.holds() && self.wire.transport.try_drain()?;
        let sent = self.send_queue.send(|parts| self.wire.try_write_vectored(parts))?;
        self.listed.meter().add(sent as u64);
        if sent > 0 {
            self.trace.sent();
        }
        self.took(sent > 0 || drained, self.is_idle());
        Ok(())
    }

    /// Notes the result of a write. Call this after each attempt to write. `some`: the connection
    /// took bytes. `all`: nothing is left for the viewer.
    pub(super) fn took(&mut self, some: bool, all: bool) {
        if some && self.blocked.is_some() {
            // There was no room before and there is now, so the viewer has taken something.
            self.unanswered = 0;
        }
        if all {
            self.blocked = None;
        } else if some || self.blocked.is_none() {
            let timeout = self.push.origin.config.http.send_timeout;
            self.blocked = Some(Box::new(Patience::new(timeout.into())));
        }
    }

    /// When to call [`look_around`](Self::look_around) again.
    pub(super) fn wake(&self) -> Instant {
        let looks = self.blocked.as_ref().map(|patience| patience.next());
        looks.into_iter().fold(self.ping, Instant::min)
    }

    /// Pings the viewer if a ping is due, and finds out whether the viewer has gone or takes
    /// nothing. Call this at the time of [`wake`](Self::wake).
    pub(super) fn look_around(&mut self) -> Result<(), Error> {
        if let Some(patience) = &mut self.blocked {
            match patience.look(|| self.wire.transport.unacknowledged()) {
                // The ping is behind data that the viewer has yet to take.
                Look::Takes => self.unanswered = 0,
                Look::Waits => {}
                Look::Stalled => {
                    return Err(Error::Stalled(self.push.origin.config.http.send_timeout.into()));
                }
            }
        }
        let now = Instant::now();
        if let Some(over) = self.listed.look() {
            return Err(Error::Over(over));
        }
        if self.ping <= now {
            let interval: Duration = self.push.origin.config.push.ping_interval.into();
            self.unanswered += 1;
            if self.unanswered >= UNANSWERED {
                return Err(Error::Vanished(interval * UNANSWERED));
            }
            self.ping = now + interval;
            // A viewer with data still to take need not be pinged.
            if !self.over && self.send_queue.is_empty() {
                self.send_queue.push(frame::frame(Opcode::Ping, &[]).into());
                self.tell_alive();
            }
        }
        Ok(())
    }

    /// Handles the input that came with the request.
    pub(super) fn first(&mut self) -> Result<Vec<Said>, Error> {
        let (input, mut said) = (std::mem::take(&mut self.input), Vec::new());
        self.take_in(&input, &mut said)?;
        Ok(said)
    }

    /// Reads what has arrived, up to a close.
    pub(super) fn read(&mut self) -> Result<Heard, Error> {
        let mut said = Vec::new();
        loop {
            let left =
                BUFFER.with_borrow_mut(|buffer| match self.wire.transport.try_read(buffer) {
                    Ok(0) => Ok(Some(true)),
                    Ok(size) => self.take_in(&buffer[..size], &mut said).map(|()| None),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Some(false)),
                    Err(error) => Err(error.into()),
                })?;
            // A viewer that closes and still sends must not keep the others waiting.
            let closes = matches!(said.last(), Some(Said::Close(_)));
            if left.is_some() || closes {
                return Ok(Heard { said, left: left.unwrap_or(false) });
            }
        }
    }

    fn take_in(&mut self, mut input: &[u8], said: &mut Vec<Said>) -> Result<(), Error> {
        // Nothing after a close counts (RFC 6455 1.4).
        while !self.over
            && !matches!(said.last(), Some(Said::Close(_)))
            && let Some(event) = self.reader.next(&mut input)?
        {
            self.unanswered = 0;
            self.budget.spend(self.push.origin.now().0)?;
            match event {
                frame::Event::Text(text) => said.push(Said::Command(Command::parse(&text)?)),
                frame::Event::Ping(payload) => {
                    self.send_queue.answer(frame::frame(Opcode::Pong, &payload).into());
                }
                frame::Event::Pong => {}
                frame::Event::Close(code) => said.push(Said::Close(code)),
            }
        }
        Ok(())
    }

    /// Reports to the log and the metrics how watching `stream` ended.
    pub(super) fn report(&self, stream: &str, error: &Error) {
        let (peer, origin, path) = (self.peer, &self.push.origin, self.listed.path());
        if !matches!(error, Error::Io(_)) {
            self.listed.because(error);
        }
        match error {
            Error::Io(error) => tracing::debug!(%peer, stream, %error, "push viewer left"),
            Error::Violation(violation) => {
                tracing::info!(%peer, stream, %violation, "push viewer closed");
                origin.violations.count(violation.code.number());
            }
            Error::Media(_) | Error::File(_) | Error::Changed | Error::Unread(_) => {
                tracing::warn!(%peer, stream, %error, "push viewer closed");
            }
            Error::TooSlow => {
                tracing::warn!(
                    stream, %peer, delivery = "push", "viewer closed: reads too slowly"
                );
                origin.slow_viewers.closed(Delivery::Push, path, peer, TooSlow::Behind);
            }
            Error::Stalled(_) => {
                tracing::warn!(stream, %peer, delivery = "push", "viewer closed: takes nothing");
                origin.slow_viewers.closed(Delivery::Push, path, peer, TooSlow::Stalled);
                self.wire.held.stalled();
            }
            Error::Vanished(_) => tracing::info!(%peer, stream, %error, "push viewer gone"),
            Error::Over(_) => tracing::info!(%peer, stream, %error, "push viewer closed"),
        }
    }

    /// Tells the viewer about the error and closes the connection. Any message already begun must
    /// be in the send queue or sent. A viewer that cannot be told is dropped.
    pub(super) async fn tell(&mut self, error: Error) {
        match error {
            Error::Violation(violation) => self.close(violation.code, violation.what),
            Error::TooSlow => {
                let message = "you read too slowly".to_owned();
                self.say(&Event::Error { code: "slow", message });
                self.close(CloseCode::PolicyViolation, "reads too slowly");
            }
            Error::Media(error) => {
                self.say(&Event::Error { code: "media", message: error.to_string() });
                self.close(CloseCode::InternalError, "");
            }
            Error::Over(over) => {
                let code = match over {
                    Over::Expired => "expired",
                    Over::Ended => "kicked",
                    Over::Revoked => "forbidden",
                };
                let message = over.to_string();
                self.say(&Event::Error { code, message: message.clone() });
                self.close(CloseCode::PolicyViolation, &message);
            }
            // The place of the file is not a viewer's concern.
            Error::File(_) | Error::Changed | Error::Unread(_) => {
                let message = Error::Changed.to_string();
                self.say(&Event::Error { code: "file", message });
                self.close(CloseCode::InternalError, "");
            }
            Error::Io(_) => return,
            // Otherwise the kernel would keep its queue for as long as the peer is silent.
            Error::Stalled(_) | Error::Vanished(_) => return self.wire.transport.forget(),
        }
        self.farewell(Duration::ZERO).await;
    }

    /// Closes a connection whose viewer has been sent all, and may be behind.
    pub(super) async fn end(&mut self) {
        self.farewell(self.push.origin.config.live.viewer_patience.into()).await;
    }

    /// Sends what is left, and closes the connection so that this arrives: unread input would make
    /// the kernel drop it. A viewer that takes it has `behind` for this.
    async fn farewell(&mut self, behind: Duration) {
        let (time, most) = FAREWELL;
        let wire = Rc::clone(&self.wire);
        let taken = Patience::new(self.push.origin.config.http.send_timeout.into());
        let over = async {
            let taken = taken.until_taken(|| wire.transport.unacknowledged());
            let _ = tokio::time::timeout(behind, taken).await;
            tokio::time::sleep(time).await;
        };
        let said = async {
            loop {
                self.send()?;
                if self.is_idle() {
                    break;
                }
                poll_fn(|cx| self.wire.transport.poll_write_ready(cx)).await?;
            }
            poll_fn(|cx| self.wire.transport.poll_shutdown(cx)).await?;
            let mut read = 0;
            while read < most {
                poll_fn(|cx| self.wire.transport.poll_read_ready(cx)).await?;
                match BUFFER.with_borrow_mut(|buffer| self.wire.transport.try_read(buffer)) {
                    Ok(0) => break,
                    Ok(size) => read += size,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Ok::<(), Error>(())
        };
        // Whatever the result, the connection closes now.
        tokio::select! {
            _ = said => return,
            () = over => {}
        }
        // A viewer that did not take the end. Otherwise the kernel would keep its queue for as long as
        // the peer is silent.
        if !behind.is_zero() && wire.transport.unacknowledged().is_some_and(|left| left > 0) {
            wire.transport.forget();
        }
    }
}
