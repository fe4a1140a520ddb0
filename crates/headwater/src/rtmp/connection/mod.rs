//! One RTMP connection, whether it publishes, plays or has not decided yet: its socket, its
//! deadlines and its end. [`requests`] answers what the peer asks for.

mod requests;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::net::{Look, Patience, Watch};
use http::{Ready, Transport};
use live::Delivery;
use media::flv::{AUDIO_FOURCCS, VIDEO_FOURCCS};
use protocol::rtmp::{Capabilities, ServerConfig, ServerSession, code};
use tokio::task::{coop, yield_now};
use tokio::time::Instant;

use super::lookup::{self, Lookup};
use super::publish::Publish;
use super::slots::{Admission, Shared};
use super::{Error, file, play};
use crate::Origin;
use crate::access::Grant;
use crate::broadcast::Subscription;
use crate::counts::TooSlow;
use crate::send_queue::SendQueue;
use crate::sessions::{Over, Session};
use crate::titles::flv;
use crate::traces::Trace;

/// How long a peer that has everything, or was told to leave, has to close its side.
const LINGER: Duration = Duration::from_secs(2);

/// What peers are told when the server drains.
const SHUTTING_DOWN: &str = "The server is shutting down.";

/// Most bytes that one read takes from a socket.
const READ: usize = 64 << 10;

/// Most events of a connection that are handled in one turn. A read may bring thousands of tiny
/// messages, and the other connections of the thread wait meanwhile.
const EVENTS_A_TURN: usize = 128;

thread_local! {
    /// The read buffer that all connections of a thread share. An idle connection has no buffer of
    /// its own.
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ].into());
}

/// The application that a peer connected to.
#[derive(Default)]
struct App {
    /// As the peer named it.
    path: String,
    /// The query that came with it.
    query: String,
    /// The permission for the role that begins.
    grant: Grant,
}

enum Role {
    None,
    Publish(Box<Publish>),
    /// A live stream.
    Play(Box<play::Play>),
    /// A file.
    File(Box<file::Play>),
}

/// What a connection's role wants done next.
enum Next {
    Send(Vec<Bytes>),
    /// The live stream ended.
    Ended,
    /// The file was sent to its end.
    Complete,
}

/// How a phase of a connection's life ended.
enum Phase {
    /// Another phase follows.
    Next,
    /// The connection is to be closed.
    Over,
}

pub(super) struct Connection<S> {
    shared: Rc<Shared>,
    /// While a player is subscribed, the broadcast writes to this socket.
    socket: Rc<S>,
    peer: SocketAddr,
    session: ServerSession,
    /// Bytes that the session and the role have to send. The role is asked for more only when this
    /// is empty.
    send_queue: SendQueue,
    /// Set while the send queue holds bytes that the socket does not take.
    blocked: Option<Box<Patience>>,
    /// When to check again on a player of a file that takes nothing.
    again: Option<Instant>,
    /// Input that arrived while it could not be handled.
    unread: Vec<u8>,
    /// Whether a turn ended before the session's events and `unread` did.
    has_more: bool,
    /// Whether the last read filled its buffer. TLS may have more input then, though the socket has none.
    may_have_more: bool,
    lookup: Option<Lookup>,
    /// Boxed, because players need it no more once they play.
    app: Box<App>,
    role: Role,
    /// Set while it has a role.
    listed: Option<Box<Session>>,
    /// A slot while it has a role or changes it, else a place among the undecided.
    admission: Admission,
    /// Whether the peer was told why it must leave. The connection closes when this is sent.
    leaves: bool,
    drain: Watch,
    /// When the connection must end because the server drains.
    farewell: Option<Instant>,
    /// When a publisher last sent something. For a connection without a role: since when it has
    /// none. For a player that gets nothing: since when.
    heard: Instant,
    /// Number of messages that could not be read.
    ignored: u32,
    /// Number of refused requests to publish.
    refused: u32,
    /// Until it gets its first byte of media, or begins to publish.
    trace: Trace,
}

impl<S: Transport + 'static> Connection<S> {
    pub(super) fn new(shared: Rc<Shared>, socket: S, peer: SocketAddr) -> Self {
        let capabilities = Capabilities::forward(&VIDEO_FOURCCS, &AUDIO_FOURCCS);
        let config = ServerConfig { capabilities, ..ServerConfig::default() };
        let session = ServerSession::new(config, shared.origin.now().0);
        let drain = shared.drain.begun();
        let admission = shared.undecided.enter();
        let trace = shared.origin.traces.accepted();
        Self {
            shared,
            socket: Rc::new(socket),
            peer,
            session,
            send_queue: SendQueue::default(),
            blocked: None,
            again: None,
            unread: Vec::new(),
            has_more: false,
            may_have_more: false,
            lookup: None,
            app: Box::default(),
            listed: None,
            role: Role::None,
            admission,
            leaves: false,
            drain,
            farewell: None,
            heard: Instant::now(),
            ignored: 0,
            refused: 0,
            trace,
        }
    }

    /// Name of the stream or file that it publishes or plays.
    fn name(&self) -> Option<&str> {
        match &self.role {
            Role::None => None,
            Role::Publish(publish) => Some(publish.name()),
            Role::Play(play) => Some(play.name()),
            Role::File(play) => Some(play.path()),
        }
    }

    /// Whether it is a player that gets nothing until it asks.
    fn is_at_rest(&self) -> bool {
        match &self.role {
            Role::Play(play) => play.is_paused(),
            Role::File(play) => play.is_at_rest(),
            Role::None | Role::Publish(_) => false,
        }
    }

    fn is_player(&self) -> bool {
        !matches!(self.role, Role::Publish(_))
    }

    pub(super) async fn run(&mut self) -> Result<(), Error> {
        // What came together with the end of a TLS handshake makes no socket ready.
        if !self.read()? {
            return Ok(());
        }
        loop {
            // Players are subscribed most of their time and need none of this future's state, so it
            // is boxed.
            let phase = match self.subscription() {
                Some(_) => self.be_subscribed().await?,
                None => Box::pin(self.go_alone()).await?,
            };
            match phase {
                Phase::Next => {}
                Phase::Over => return Ok(()),
            }
        }
    }

    fn subscription(&self) -> Option<&Subscription> {
        match &self.role {
            Role::Play(play) => play.subscription(),
            Role::None | Role::Publish(_) | Role::File(_) => None,
        }
    }

    /// Handles the player's input while a broadcast writes to the player.
    async fn be_subscribed(&mut self) -> Result<Phase, Error> {
        self.session.shrink();
        self.send_queue.shrink();
        loop {
            let subscription = match &self.role {
                Role::Play(play) => play.subscription(),
                _ => None,
            };
            let Some(subscription) = subscription else { return Ok(Phase::Next) };
            let (drain, listed) = (&mut self.drain, &mut self.listed);
            // Written by hand: this is all the state that the tasks of most players hold.
            let readable = poll_fn(|cx| {
                // This check comes first: if a write ended in the middle of a message, nothing else
                // may follow.
                if subscription.poll_left(cx).is_ready()
                    || Pin::new(&mut *drain).poll(cx).is_ready()
                    || listed.as_mut().is_some_and(|listed| listed.poll_over(cx).is_ready())
                {
                    return Poll::Ready(None);
                }
                self.socket.poll_read_ready(cx).map(Some)
            });
            match readable.await {
                Some(ready) => ready?,
                None => return self.leave(),
            }
            if !self.read()? {
                return Ok(Phase::Over);
            }
            self.send()?;
            let busy = !self.is_all_sent()
                || self.lookup.is_some()
                || self.has_more
                || self.may_have_more
                || !self.unread.is_empty();
            if busy || self.leaves {
                return self.leave();
            }
        }
    }

    /// Takes over from the broadcast, if the broadcast still writes.
    fn leave(&mut self) -> Result<Phase, Error> {
        if let Role::Play(play) = &mut self.role {
            self.send_queue.push(play.leave()?);
        }
        Ok(Phase::Next)
    }

    /// Subscribes a player if possible, and returns whether it is subscribed.
    fn join(&mut self) -> bool {
        match &mut self.role {
            Role::Play(play) => play.join(&self.shared.broadcasts, &self.socket),
            Role::None | Role::Publish(_) | Role::File(_) => false,
        }
    }

    /// Runs until a player can be subscribed or the connection is to be closed.
    async fn go_alone(&mut self) -> Result<Phase, Error> {
        loop {
            coop::consume_budget().await;
            // A role that ended while another is asked for keeps its slot until then.
            if matches!(self.role, Role::None) && self.lookup.is_none() {
                self.admission.give_back(&self.shared.undecided);
            }
            if self.leaves {
                let lost = self.admission.lost();
                return tokio::select! {
                    phase = self.finish() => phase,
                    () = lost => Ok(Phase::Over),
                };
            }
            self.send()?;
            let listens = self.lookup.is_none() && !self.send_queue.is_full();
            if listens && self.may_have_more && !self.has_more && self.unread.is_empty() {
                yield_now().await;
                if !self.read()? {
                    return Ok(Phase::Over);
                }
                continue;
            }
            if listens && (self.has_more || !self.unread.is_empty()) {
                if self.has_more {
                    yield_now().await;
                }
                let unread = std::mem::take(&mut self.unread);
                self.take_in(&unread)?;
                continue;
            }
            let idle = self.is_all_sent() && self.lookup.is_none();
            let stays = !self.shared.drain.has_begun() && self.over().is_none();
            if idle && stays && self.join() {
                return Ok(Phase::Next);
            }
            let writes = !self.is_all_sent();
            let wake = self.wake();
            let listed = self.listed.as_mut().filter(|_| !self.leaves);
            tokio::select! {
                ready = poll_fn(|cx| self.socket.poll_ready(listens, writes, cx)) => {
                    if let Ready::Input = ready && !self.read()? {
                        return Ok(Phase::Over);
                    }
                }
                next = next(&mut self.role, &self.shared.origin), if idle => match next {
                    Ok(Next::Send(pieces)) => {
                        self.trace.has_media();
                        pieces.into_iter().for_each(|p| self.send_queue.push(p));
                    }
                    Ok(Next::Complete) => {
                        self.session.play_complete()?;
                        self.collect();
                        self.heard = Instant::now();
                    }
                    Ok(Next::Ended) => {
                        self.session.play_unpublished()?;
                        self.collect();
                        return self.finish().await;
                    }
                    Err(Broken::FlvTitle(error)) => {
                        self.fail(&error);
                        return self.finish().await;
                    }
                    Err(Broken::Connection(error)) => return Err(error),
                },
                found = lookup::done(&mut self.lookup) => {
                    self.lookup = None;
                    self.found(found)?;
                    self.collect();
                }
                () = self.admission.lost() => return Err(Error::Crowded),
                () = &mut self.drain, if self.farewell.is_none() => self.prepare_to_leave(),
                () = sleep_until(wake) => self.overdue()?,
                over = over(listed) => {
                    self.dismiss(&over.to_string(), Error::Over(over));
                    self.collect();
                }
            }
        }
    }

    /// Writes as much as the socket takes.
    fn send(&mut self) -> Result<(), Error> {
        if self.is_all_sent() {
            return Ok(());
        }
        // What TLS takes while it holds something back is no sign of the peer.
        let held = self.socket.holds();
        let drained = held && self.socket.try_drain()?;
        let sent = self.send_queue.send(|parts| self.socket.try_write_vectored(parts))?;
        if let Some(listed) = self.listed.as_ref().filter(|_| self.is_player()) {
            listed.meter().add(sent as u64);
            if sent > 0 {
                self.trace.sent();
            }
        }
        if self.is_all_sent() {
            self.blocked = None;
        } else if drained || sent > 0 && !held || self.blocked.is_none() {
            self.blocked = Some(Box::new(Patience::new(self.timeout())));
        }
        if let Role::File(play) = &mut self.role {
            let unsent = self.send_queue.len().max(usize::from(self.socket.holds()));
            let again = play.sent(unsent, self.shared.origin.now());
            self.again = again.map(|wait| Instant::now() + wait);
        }
        Ok(())
    }

    /// Whether everything is in the kernel.
    fn is_all_sent(&self) -> bool {
        self.send_queue.is_empty() && !self.socket.holds()
    }

    /// Sends what is left before the connection closes.
    async fn finish(&mut self) -> Result<Phase, Error> {
        loop {
            self.send()?;
            let Some(patience) = &self.blocked else { break };
            match tokio::time::timeout_at(
                patience.next(),
                poll_fn(|cx| self.socket.poll_write_ready(cx)),
            )
            .await
            {
                Ok(writable) => writable?,
                Err(_) => self.look_at_peer()?,
            }
        }
        self.linger().await;
        Ok(Phase::Over)
    }

    /// Reads and drops input from a peer that has not closed its side yet. Unread input would make
    /// the kernel drop what the peer has not taken.
    async fn linger(&mut self) {
        let read = async {
            poll_fn(|cx| self.socket.poll_shutdown(cx)).await?;
            loop {
                poll_fn(|cx| self.socket.poll_read_ready(cx)).await?;
                match BUFFER.with_borrow_mut(|buffer| self.socket.try_read(buffer)) {
                    Ok(0) => return io::Result::Ok(()),
                    Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                    _ => {}
                }
            }
        };
        let over = async {
            if !self.leaves {
                // Until then, the viewer is behind.
                let behind = self.shared.origin.config.live.viewer_patience.into();
                let taken = Patience::new(self.timeout());
                let taken = taken.until_taken(|| self.socket.unacknowledged());
                let _ = tokio::time::timeout(behind, taken).await;
            }
            tokio::time::sleep(LINGER).await;
        };
        // Whatever the result, the connection closes now.
        tokio::select! {
            _ = read => return,
            () = over => {}
        }
        if !self.leaves && self.socket.unacknowledged().is_some_and(|left| left > 0) {
            self.give_up(&Error::TooSlow);
        }
    }

    /// Reads what has arrived. Returns false when the peer has closed its side.
    fn read(&mut self) -> Result<bool, Error> {
        BUFFER.with_borrow_mut(|buffer| match self.socket.try_read(buffer) {
            Ok(0) => Ok(false),
            Ok(size) => {
                self.may_have_more = size == buffer.len();
                self.take_in(&buffer[..size]).map(|()| true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.may_have_more = false;
                Ok(true)
            }
            Err(error) => Err(error.into()),
        })
    }

    /// Gives input to the session. A peer that breaks the protocol leaves. It is told why, if it
    /// has come far enough to understand.
    fn take_in(&mut self, input: &[u8]) -> Result<(), Error> {
        match self.digest(input) {
            Err(error @ (Error::Protocol(_) | Error::Garbage(_)))
                if self.session.is_connected() =>
            {
                if !self.leaves {
                    self.dismiss(&error.to_string(), error);
                    self.collect();
                }
                Ok(())
            }
            result => result,
        }
    }

    /// Gives input to the session and keeps what cannot be handled now, or not in this turn.
    fn digest(&mut self, mut input: &[u8]) -> Result<(), Error> {
        let mut left = EVENTS_A_TURN;
        loop {
            let result = self.session.handle_input(input);
            // Events from before an error are still good. Those after a dismissal are not: a publisher would get a
            // name that the connection has no use for.
            while !self.leaves
                && (left > 0 || result.is_err())
                && let Some(event) = self.session.poll_event()
            {
                self.handle_event(event)?;
                left = left.saturating_sub(1);
            }
            self.collect();
            input = &input[result?..];
            self.has_more = left == 0;
            if self.leaves || input.is_empty() && !self.has_more {
                return Ok(());
            }
            if self.has_more || self.lookup.is_some() || self.send_queue.is_full() {
                self.unread = input.to_vec();
                return Ok(());
            }
        }
    }

    /// Moves the session's output into the send queue.
    fn collect(&mut self) {
        while let Some(piece) = self.session.poll_output() {
            self.send_queue.answer(piece);
        }
    }

    /// When to check the deadlines again.
    fn wake(&self) -> Option<Instant> {
        let look = self.blocked.as_ref().map(|patience| patience.next());
        let deadline = self.deadline().map(|(at, _)| at);
        [look, deadline, self.again, self.farewell].into_iter().flatten().min()
    }

    /// Why the peer may no longer do what it does, if so.
    fn over(&mut self) -> Option<Over> {
        self.listed.as_mut().filter(|_| !self.leaves).and_then(|listed| listed.look())
    }

    /// Ends the role, and tells of it.
    fn drop_role(&mut self) -> Role {
        self.listed = None;
        std::mem::replace(&mut self.role, Role::None)
    }

    /// Handles a time that [`wake`](Self::wake) named.
    fn overdue(&mut self) -> Result<(), Error> {
        self.look_at_peer()?;
        if self.farewell.is_some_and(|at| at <= Instant::now()) {
            return self.bid_farewell();
        }
        match self.deadline() {
            Some((at, error)) if at <= Instant::now() => Err(error),
            // The next round takes care of the player.
            _ => Ok(()),
        }
    }

    /// Prepares to leave when the server drains. A peer that understands the request to reconnect
    /// goes on for some time, in which it connects elsewhere or waits for a new server. All others
    /// leave now.
    fn prepare_to_leave(&mut self) {
        let has_role = !matches!(self.role, Role::None);
        let told = has_role && self.session.request_reconnect(None, SHUTTING_DOWN);
        self.collect();
        let grace: Duration = self.shared.origin.config.drain.timeout.into();
        let time = if told { grace / 2 } else { Duration::ZERO };
        self.farewell = Some(Instant::now() + time);
    }

    /// Ends the publication or the playback in order.
    fn bid_farewell(&mut self) -> Result<(), Error> {
        match self.drop_role() {
            Role::None => {}
            Role::Publish(_) => {
                self.session.send_status("status", code::UNPUBLISH_SUCCESS, SHUTTING_DOWN);
            }
            // A player takes this for the end of the stream, and does not come again.
            Role::Play(play) if self.shared.origin.goes_on_elsewhere(play.stream()) => {}
            Role::Play(_) | Role::File(_) => self.session.play_unpublished()?,
        }
        self.collect();
        self.leaves = true;
        Ok(())
    }

    /// Checks, when it is time, whether a peer with a full socket still takes anything.
    fn look_at_peer(&mut self) -> Result<(), Error> {
        let look = self.blocked.as_mut();
        let look = look.map(|patience| patience.look(|| self.socket.unacknowledged()));
        if look == Some(Look::Stalled) { Err(Error::Stalled(self.timeout())) } else { Ok(()) }
    }

    /// When the peer must have done something, and the error if it has not.
    fn deadline(&self) -> Option<(Instant, Error)> {
        let config = &self.shared.origin.config;
        let (limit, error): (Duration, fn(Duration) -> Error) = match self.role {
            Role::None => (config.rtmp.setup_timeout.into(), Error::Idle),
            // Another publisher can take the name long before this. The limit frees the memory and
            // lets viewers learn that nobody publishes.
            Role::Publish(_) => (3 * Duration::from(config.live.silence), Error::Silent),
            _ if self.is_at_rest() => (config.rtmp.pause_timeout.into(), Error::AtRest),
            Role::Play(_) | Role::File(_) => return None,
        };
        Some((self.heard + limit, error(limit)))
    }

    /// How long a peer may accept no byte.
    fn timeout(&self) -> Duration {
        self.shared.origin.config.http.send_timeout.into()
    }

    /// Makes a peer leave that cannot go on, and tells it why.
    fn dismiss(&mut self, why: &str, error: Error) {
        self.session.send_status("error", code::FAILED, why);
        if let Some(listed) = &self.listed {
            listed.because(&error);
        }
        self.say_end(&Err(error));
        // The role ends before the connection closes, so a publisher that returns finds the name
        // free.
        self.drop_role();
        self.leaves = true;
    }

    /// Logs how the connection ended.
    pub(super) fn say_end(&self, result: &Result<(), Error>) {
        let peer = self.peer;
        match result {
            Ok(()) => tracing::debug!(%peer, "rtmp connection closed"),
            // Players usually leave in this way.
            Err(error) if error.is_reset() && self.is_player() => {
                tracing::debug!(%peer, "rtmp player left");
            }
            Err(error) => {
                tracing::warn!(%peer, stream = self.name(), %error, "rtmp connection ended");
                if let Some(listed) = &self.listed {
                    listed.because(error);
                }
                self.give_up(error);
            }
        }
    }

    /// Cleans up after an error: nothing more is sent.
    fn give_up(&self, error: &Error) {
        let why = match error {
            Error::Stalled(_) => TooSlow::Stalled,
            Error::TooSlow => TooSlow::Behind,
            _ => return,
        };
        if let Some(listed) = self.listed.as_ref().filter(|_| self.is_player()) {
            let counts = &self.shared.origin.slow_viewers;
            counts.closed(Delivery::Rtmp, listed.path(), self.peer, why);
        }
        // Otherwise the kernel would keep its queue for as long as the peer is silent.
        self.socket.forget();
    }
}

/// Waits until a session must end.
async fn over(listed: Option<&mut Box<Session>>) -> Over {
    match listed {
        Some(listed) => poll_fn(|cx| listed.poll_over(cx)).await,
        None => std::future::pending().await,
    }
}

/// Stays pending without a time.
async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Why a role ended.
enum Broken {
    FlvTitle(flv::Error),
    Connection(Error),
}

/// Waits for what the role wants done next. Stays pending while the role wants nothing.
async fn next(role: &mut Role, origin: &Origin) -> Result<Next, Broken> {
    match role {
        Role::Play(play) => {
            let next = play.next(origin).await.map_err(Broken::Connection)?;
            Ok(next.map_or(Next::Ended, Next::Send))
        }
        Role::File(play) => match play.next(origin).await.map_err(Broken::FlvTitle)? {
            file::Next::Media(pieces) => Ok(Next::Send(pieces)),
            file::Next::Complete => Ok(Next::Complete),
        },
        Role::None => std::future::pending().await,
        Role::Publish(publish) => {
            // A publisher that was replaced learns it when it sends something. One that never sends
            // would stay for ever without this check.
            let silence: Duration = origin.config.live.silence.into();
            loop {
                tokio::time::sleep(silence).await;
                if publish.is_replaced() {
                    return Err(Broken::Connection(Error::Replaced(silence)));
                }
            }
        }
    }
}
