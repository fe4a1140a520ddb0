//! One RTMP connection, whatever it is there for.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::net::{Look, Patience, Watch};
use live::{Delivery, PublishError, PublisherInfo};
use media::flv::TagKind;
use protocol::rtmp::{Blame, PlayStart, ServerConfig, ServerEvent, ServerSession, code};
use socket2::SockRef;
use tokio::io::{Interest, Ready};
use tokio::net::TcpStream;
use tokio::task::coop;
use tokio::time::Instant;

use super::lookup::{self, Found, Lookup, NoTitle, Wanted};
use super::publish::Publish;
use super::slots::{Shared, Slot};
use super::{Error, REFUSED, file, play};
use crate::Origin;
use crate::access::{self, Action, Credentials};
use crate::broadcast::{Outbox, Subscription};
use crate::counts::TooSlow;
use crate::pace::Pace;
use crate::path::{StreamPath, of_rtmp};
use crate::titles::flv;

/// Ignored messages of a publisher that are logged; it is disconnected after many more.
const IGNORED: (u32, u32) = (3, 32);

/// How long a peer that was told to leave has to read that, and close.
const LINGER: Duration = Duration::from_secs(2);

/// What peers are told when the server drains.
const SHUTTING_DOWN: &str = "The server is shutting down.";

/// Characters of a refused name that are logged.
const SHOWN: usize = 160;

/// Bytes in the kernel and not yet sent to a player of a live stream: what a slow one is behind by
/// stays where it can still be skipped.
const UNSENT: u32 = 128 << 10;

/// The same for a player of a file: what is in the kernel is counted as delivered.
const UNSENT_OF_FILE: u32 = 32 << 10;

/// One read from a socket takes no more.
const READ: usize = 64 << 10;

thread_local! {
    /// What is read into: a connection has nothing of its own while nothing comes.
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ].into());
}

enum Role {
    None,
    Publish(Box<Publish>),
    /// A live stream.
    Play(Box<play::Play>),
    /// A file.
    File(Box<file::Play>),
}

/// What a connection's role asks to be done.
enum Next {
    Send(Vec<Bytes>),
    /// The live stream ended.
    Ended,
    /// The file was sent to its end.
    Complete,
}

/// How a part of a connection's life ended.
enum Phase {
    /// Another follows.
    Next,
    /// The connection is to be closed.
    Over,
}

pub(super) struct Connection {
    shared: Rc<Shared>,
    /// A broadcast writes to it while a player is subscribed.
    socket: Rc<TcpStream>,
    peer: SocketAddr,
    session: ServerSession,
    /// What the session and the role have to send. Nothing more is asked of the role until it is
    /// empty.
    outbox: Outbox,
    /// While there is something in it for which there is no room.
    blocked: Option<Box<Patience>>,
    /// When a player of a file that takes nothing is to be looked at again.
    again: Option<Instant>,
    /// What was read while nothing could be done with it.
    unread: Vec<u8>,
    lookup: Option<Lookup>,
    /// Application, as the peer named it.
    app: String,
    role: Role,
    /// Among all publishers or players, while it is one.
    slot: Option<Slot>,
    /// It was told why, and is to be closed when that is sent.
    leaves: bool,
    drain: Watch,
    /// When it is to leave, since the server drains.
    farewell: Option<Instant>,
    /// When it last published something; without a role, since when it has none; of a player that
    /// is sent nothing, since when.
    heard: Instant,
    /// Messages that could not be read.
    ignored: u32,
    /// Requests to publish that were refused.
    refused: u32,
}

impl Connection {
    pub(super) fn new(shared: Rc<Shared>, socket: TcpStream, peer: SocketAddr) -> Self {
        let session = ServerSession::new(ServerConfig::default(), shared.origin.now().0);
        let drain = shared.drain.begun();
        Self {
            shared,
            socket: Rc::new(socket),
            peer,
            session,
            outbox: Outbox::default(),
            blocked: None,
            again: None,
            unread: Vec::new(),
            lookup: None,
            app: String::new(),
            role: Role::None,
            slot: None,
            leaves: false,
            drain,
            farewell: None,
            heard: Instant::now(),
            ignored: 0,
            refused: 0,
        }
    }

    /// Name of the stream it publishes or plays.
    fn name(&self) -> Option<&str> {
        match &self.role {
            Role::None => None,
            Role::Publish(publish) => Some(publish.name()),
            Role::Play(play) => Some(play.name()),
            Role::File(play) => Some(play.path()),
        }
    }

    /// Whether it is a player that is sent nothing until it asks.
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
        loop {
            // Most of their time players are subscribed, and need nothing of what this waits for.
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

    /// While a broadcast writes what a player is to be sent.
    async fn be_subscribed(&mut self) -> Result<Phase, Error> {
        self.session.shrink();
        self.outbox.shrink();
        loop {
            let subscription = match &self.role {
                Role::Play(play) => play.subscription(),
                _ => None,
            };
            let Some(subscription) = subscription else { return Ok(Phase::Next) };
            let drain = &mut self.drain;
            // By hand: this is all the state that most players' tasks have.
            let readable = poll_fn(|cx| {
                // First: where a write ended in the middle of a message, nothing else may follow.
                if subscription.poll_left(cx).is_ready()
                    || Pin::new(&mut *drain).poll(cx).is_ready()
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
            let busy = !self.outbox.is_empty() || self.lookup.is_some() || !self.unread.is_empty();
            if busy || self.leaves {
                return self.leave();
            }
        }
    }

    /// Takes over from the broadcast, if it still writes.
    fn leave(&mut self) -> Result<Phase, Error> {
        if let Role::Play(play) = &mut self.role {
            self.outbox.push(play.leave()?);
        }
        Ok(Phase::Next)
    }

    /// Subscribes a player if that can be; answers whether it is.
    fn join(&mut self) -> bool {
        match &mut self.role {
            Role::Play(play) => play.join(&self.shared.broadcasts, &self.socket),
            Role::None | Role::Publish(_) | Role::File(_) => false,
        }
    }

    /// Until a player can be subscribed, or the connection is to be closed.
    async fn go_alone(&mut self) -> Result<Phase, Error> {
        loop {
            coop::consume_budget().await;
            if self.leaves {
                return self.finish().await;
            }
            self.send()?;
            let listens = self.lookup.is_none() && !self.outbox.is_full();
            if listens && !self.unread.is_empty() {
                let unread = std::mem::take(&mut self.unread);
                self.take_in(&unread)?;
                continue;
            }
            let idle = self.outbox.is_empty() && self.lookup.is_none();
            if idle && !self.shared.drain.has_begun() && self.join() {
                return Ok(Phase::Next);
            }
            let interest = match (listens, self.outbox.is_empty()) {
                (true, true) => Some(Interest::READABLE),
                (true, false) => Some(Interest::READABLE | Interest::WRITABLE),
                (false, false) => Some(Interest::WRITABLE),
                (false, true) => None,
            };
            let wake = self.wake();
            tokio::select! {
                ready = ready(&self.socket, interest) => {
                    if ready?.is_readable() && listens && !self.read()? {
                        return Ok(Phase::Over);
                    }
                }
                next = next(&mut self.role, &self.shared.origin), if idle => match next {
                    Ok(Next::Send(pieces)) => pieces.into_iter().for_each(|p| self.outbox.push(p)),
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
                () = &mut self.drain, if self.farewell.is_none() => self.prepare_to_leave(),
                () = sleep_until(wake) => self.overdue()?,
            }
        }
    }

    /// Writes what the socket takes.
    fn send(&mut self) -> Result<(), Error> {
        if self.outbox.is_empty() {
            return Ok(());
        }
        let sent = self.outbox.send(|parts| self.socket.try_write_vectored(parts))?;
        if self.outbox.is_empty() {
            self.blocked = None;
        } else if sent > 0 || self.blocked.is_none() {
            self.blocked = Some(Box::new(Patience::new(self.timeout())));
        }
        if let Role::File(play) = &mut self.role {
            let again = play.sent(self.outbox.len(), self.shared.origin.now());
            self.again = again.map(|wait| Instant::now() + wait);
        }
        Ok(())
    }

    /// Sends what there is before the connection is closed.
    async fn finish(&mut self) -> Result<Phase, Error> {
        loop {
            self.send()?;
            let Some(patience) = &self.blocked else { break };
            match tokio::time::timeout_at(patience.next(), self.socket.writable()).await {
                Ok(writable) => writable?,
                Err(_) => self.look_at_peer()?,
            }
        }
        if self.leaves {
            self.linger().await;
        }
        Ok(Phase::Over)
    }

    /// Reads and drops what a peer still sends that does not know yet that it is to leave: unread
    /// input would make the kernel drop what it was told.
    async fn linger(&self) {
        let read = async {
            SockRef::from(&self.socket).shutdown(Shutdown::Write)?;
            loop {
                self.socket.readable().await?;
                match BUFFER.with_borrow_mut(|buffer| self.socket.try_read(buffer)) {
                    Ok(0) => return io::Result::Ok(()),
                    Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                    _ => {}
                }
            }
        };
        // Either way the connection is closed now.
        let _ = tokio::time::timeout(LINGER, read).await;
    }

    /// Reads what is there; false when the peer has said its last.
    fn read(&mut self) -> Result<bool, Error> {
        BUFFER.with_borrow_mut(|buffer| match self.socket.try_read(buffer) {
            Ok(0) => Ok(false),
            Ok(size) => self.take_in(&buffer[..size]).map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
            Err(error) => Err(error.into()),
        })
    }

    /// Lets the session read. A peer that breaks the protocol is told so and leaves, if it has come so far
    /// that it would understand.
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

    /// Lets the session read; what it cannot take now is kept.
    fn digest(&mut self, mut input: &[u8]) -> Result<(), Error> {
        loop {
            let result = self.session.handle_input(input);
            // What came before an error is still good.
            while let Some(event) = self.session.poll_event() {
                self.handle_event(event)?;
            }
            self.collect();
            input = &input[result?..];
            if input.is_empty() || self.leaves {
                return Ok(());
            }
            if self.lookup.is_some() || self.outbox.is_full() {
                self.unread = input.to_vec();
                return Ok(());
            }
        }
    }

    /// Takes over what the session has to send.
    fn collect(&mut self) {
        while let Some(piece) = self.session.poll_output() {
            self.outbox.answer(piece);
        }
    }

    /// When to look at the time again.
    fn wake(&self) -> Option<Instant> {
        let look = self.blocked.as_ref().map(|patience| patience.next());
        let deadline = self.deadline().map(|(at, _)| at);
        [look, deadline, self.again, self.farewell].into_iter().flatten().min()
    }

    /// A time that [`wake`](Self::wake) named has come.
    fn overdue(&mut self) -> Result<(), Error> {
        self.look_at_peer()?;
        if self.farewell.is_some_and(|at| at <= Instant::now()) {
            return self.bid_farewell();
        }
        match self.deadline() {
            Some((at, error)) if at <= Instant::now() => Err(error),
            // The next round looks after the player.
            _ => Ok(()),
        }
    }

    /// The server drains. A peer that understands the request to connect again has some time to do so,
    /// elsewhere or when there is a server again, and goes on until then; others leave now.
    fn prepare_to_leave(&mut self) {
        let has_role = !matches!(self.role, Role::None);
        let told = has_role && self.session.request_reconnect(None, SHUTTING_DOWN);
        self.collect();
        let grace: Duration = self.shared.origin.config.drain.timeout.into();
        let time = if told { grace / 2 } else { Duration::ZERO };
        self.farewell = Some(Instant::now() + time);
    }

    /// Ends what is published or played, in order.
    fn bid_farewell(&mut self) -> Result<(), Error> {
        match std::mem::replace(&mut self.role, Role::None) {
            Role::None => {}
            Role::Publish(_) => {
                self.session.send_status("status", code::UNPUBLISH_SUCCESS, SHUTTING_DOWN);
            }
            Role::Play(_) | Role::File(_) => self.session.play_unpublished()?,
        }
        self.collect();
        self.slot = None;
        self.leaves = true;
        Ok(())
    }

    /// Finds out, if it is time to, whether a peer for which there is no room takes anything.
    fn look_at_peer(&mut self) -> Result<(), Error> {
        let look = self.blocked.as_mut().map(|patience| patience.look(&self.socket));
        if look == Some(Look::Stalled) { Err(Error::Stalled(self.timeout())) } else { Ok(()) }
    }

    /// Until when the peer must have done something.
    fn deadline(&self) -> Option<(Instant, Error)> {
        let config = &self.shared.origin.config;
        let (limit, error): (Duration, fn(Duration) -> Error) = match self.role {
            Role::None => (config.rtmp.setup_timeout.into(), Error::Idle),
            // Another may have its name long before. This is for its memory, and for viewers, who
            // are to learn that nobody publishes.
            Role::Publish(_) => (3 * Duration::from(config.live.silence), Error::Silent),
            _ if self.is_at_rest() => (config.rtmp.pause_timeout.into(), Error::AtRest),
            Role::Play(_) | Role::File(_) => return None,
        };
        Some((self.heard + limit, error(limit)))
    }

    /// How long a peer may take nothing.
    fn timeout(&self) -> Duration {
        self.shared.origin.config.http.send_timeout.into()
    }

    fn handle_event(&mut self, event: ServerEvent) -> Result<(), Error> {
        let now = self.shared.origin.now();
        match event {
            ServerEvent::Audio { timestamp, payload } => {
                self.take_tag(TagKind::Audio, timestamp, &payload);
            }
            ServerEvent::Video { timestamp, payload } => {
                self.take_tag(TagKind::Video, timestamp, &payload);
            }
            ServerEvent::Metadata { timestamp, payload, .. } => {
                self.take_tag(TagKind::Script, timestamp, &payload);
            }
            ServerEvent::Connect { app, .. } => {
                self.app = app;
                self.session.accept_connect()?;
            }
            ServerEvent::PublishRequest { app, name, query, .. } => {
                self.publish(&of_rtmp(&app, &name), &query)?;
            }
            ServerEvent::PlayRequest { app, name, query, start, duration } => {
                let path = of_rtmp(&app, &name);
                match StreamPath::parse(&path).filter(|path| self.may(Action::Play, *path, &query))
                {
                    Some(StreamPath::Vod(path)) => {
                        self.look_up_to_play(path.to_owned(), &query, start, duration)?;
                    }
                    Some(StreamPath::Live(name)) => self.play(name)?,
                    None => self.refuse_unknown(&path)?,
                }
            }
            ServerEvent::StreamLength { name, transaction, .. } => {
                let path = of_rtmp(&self.app, &name);
                if let Some(StreamPath::Vod(path)) = StreamPath::parse(&path)
                    && self.may(Action::Play, StreamPath::Vod(path), "")
                {
                    self.look_up(path.to_owned(), Wanted::Length { transaction });
                }
            }
            ServerEvent::Seek { position } => match &mut self.role {
                Role::File(play) => {
                    let position = play.seek(position, now);
                    self.session.accept_seek(position as f64)?;
                }
                _ => self.session.reject_seek("live streams do not seek")?,
            },
            ServerEvent::Pause { paused, .. } => {
                let rested = self.is_at_rest();
                match &mut self.role {
                    Role::Play(play) => play.pause(paused),
                    Role::File(play) => play.pause(paused, now),
                    Role::None | Role::Publish(_) => {}
                }
                // To pause again is no news.
                if !rested {
                    self.heard = Instant::now();
                }
            }
            ServerEvent::Ignored(error) => self.ignore(error)?,
            ServerEvent::Close { .. } => {
                self.role = Role::None;
                self.slot = None;
                self.again = None;
                self.heard = Instant::now();
            }
            ServerEvent::BufferLength { .. } | ServerEvent::Pong { .. } => {}
            // The enum may grow; what is new asks for nothing.
            _ => {}
        }
        Ok(())
    }

    /// Takes what a publisher sends; one that may not go on is told why, and leaves.
    fn take_tag(&mut self, kind: TagKind, timestamp: u32, payload: &Bytes) {
        let Role::Publish(publish) = &mut self.role else { return };
        self.heard = Instant::now();
        if let Err(error) = publish.handle_tag(kind, timestamp, payload, self.shared.origin.now()) {
            self.dismiss(&error.to_string(), error.into());
        }
    }

    /// Has a peer leave that cannot go on, when it has been told why.
    fn dismiss(&mut self, why: &str, error: Error) {
        self.session.send_status("error", code::FAILED, why);
        self.say_end(&Err(error));
        // Before it has gone: whoever returns finds the name free.
        self.role = Role::None;
        self.slot = None;
        self.leaves = true;
    }

    /// A message that could not be read: there may be a few.
    fn ignore(&mut self, error: protocol::rtmp::Error) -> Result<(), Error> {
        if error.blame == Blame::LimitExceeded {
            return Err(error.into());
        }
        let (logged, most) = IGNORED;
        self.ignored = self.ignored.saturating_add(1);
        if self.ignored > most && error.blame == Blame::PeerMisbehaved {
            return Err(Error::Garbage(error));
        }
        if self.ignored <= logged {
            tracing::warn!(peer = %self.peer, stream = self.name(), %error, "rtmp message ignored");
        }
        Ok(())
    }

    /// Says how it ended.
    pub(super) fn say_end(&self, result: &Result<(), Error>) {
        let peer = self.peer;
        match result {
            Ok(()) => tracing::debug!(%peer, "rtmp connection closed"),
            // How players leave.
            Err(error) if error.is_reset() && self.is_player() => {
                tracing::debug!(%peer, "rtmp player left");
            }
            Err(error) => {
                tracing::warn!(%peer, stream = self.name(), %error, "rtmp connection ended");
                self.give_up(error);
            }
        }
    }

    /// After an error: nothing more is sent.
    fn give_up(&self, error: &Error) {
        let why = match error {
            Error::Stalled(_) => TooSlow::Stalled,
            Error::TooSlow => TooSlow::Behind,
            _ => return,
        };
        if let Role::Play(_) | Role::File(_) = &self.role {
            self.shared.origin.slow_viewers.closed(Delivery::Rtmp, why);
        }
        // What is queued in the kernel would be kept for as long as the peer is silent.
        let _ = self.socket.set_zero_linger();
    }

    fn publish(&mut self, path: &str, query: &str) -> Result<(), Error> {
        let peer = self.peer;
        let Some(StreamPath::Live(name)) = StreamPath::parse(path) else {
            tracing::warn!(%peer, path = shown(path), "publish refused: not below live/");
            return self.refuse(code::PUBLISH_BAD_NAME, "streams are named live/NAME");
        };
        if !self.may(Action::Publish, StreamPath::Live(name), query) {
            tracing::warn!(%peer, stream = shown(name), "publish refused: not allowed");
            return self.refuse(code::PUBLISH_DENIED, "not allowed");
        }
        let rendition = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("rendition="))
            .filter(|name| !name.is_empty())
            .map(str::to_owned);
        let Some(slot) = self.shared.publishers.take() else {
            let limit = self.shared.origin.config.rtmp.max_publishers;
            tracing::warn!(%peer, stream = shown(name), limit, "publish refused: too many publishers");
            self.session.reject_publish(code::PUBLISH_DENIED, "too many publishers")?;
            self.leaves = true;
            return Ok(());
        };
        let info = PublisherInfo { peer: Some(peer), protocol: "rtmp", rendition };
        match self.shared.origin.registry.publish(name, info, self.shared.origin.now()) {
            Ok(publisher) => {
                self.role = Role::Publish(Box::new(Publish::new(publisher)));
                self.slot = Some(slot);
                self.heard = Instant::now();
                self.session.accept_publish()?;
            }
            Err(error) => {
                tracing::warn!(%peer, stream = shown(name), %error, "publish refused");
                let (code, why) = match error {
                    // Not by whom: a publisher's address is only for who may administer.
                    PublishError::InUse(_) => (code::PUBLISH_BAD_NAME, "already published".into()),
                    PublishError::BadName(_) | PublishError::BadRendition(_) => {
                        (code::PUBLISH_BAD_NAME, error.to_string())
                    }
                    _ => (code::PUBLISH_DENIED, error.to_string()),
                };
                return self.refuse(code, &why);
            }
        }
        Ok(())
    }

    /// Tells a publisher no; it may ask again, for some time.
    fn refuse(&mut self, code: &str, why: &str) -> Result<(), Error> {
        self.session.reject_publish(code, why)?;
        self.refused += 1;
        if self.refused < REFUSED { Ok(()) } else { Err(Error::Refused) }
    }

    /// Whether the peer may do this with a path, by what its query says.
    fn may(&self, action: Action, path: StreamPath<'_>, query: &str) -> bool {
        access::may(action, path, self.peer, Credentials { query, authorization: None })
    }

    /// Tells a player that there is nothing for it of that name.
    fn refuse_unknown(&mut self, path: &str) -> Result<(), Error> {
        tracing::debug!(peer = %self.peer, path = shown(path), "play: no such stream");
        self.session.reject_play(code::PLAY_STREAM_NOT_FOUND, "no such stream")?;
        Ok(())
    }

    fn play(&mut self, name: &str) -> Result<(), Error> {
        let Some(stream) = self.shared.origin.registry.stream(name) else {
            return self.refuse_unknown(name);
        };
        let Some(slot) = self.shared.players.take() else { return self.refuse_player(name) };
        self.slot = Some(slot);
        let play = play::Play::new(stream, self.peer, self.shared.origin.viewer_limits());
        self.role = Role::Play(Box::new(play));
        self.keep_unsent(UNSENT);
        self.session.accept_play(false)?;
        Ok(())
    }

    /// Tells a player that there are too many.
    fn refuse_player(&mut self, path: &str) -> Result<(), Error> {
        let limit = self.shared.origin.config.rtmp.max_players;
        tracing::warn!(peer = %self.peer, path = shown(path), limit, "play refused: too many players");
        self.session.reject_play(code::PLAY_FAILED, "too many players")?;
        self.leaves = true;
        Ok(())
    }

    fn look_up_to_play(
        &mut self,
        path: String,
        query: &str,
        start: PlayStart,
        duration: Option<f64>,
    ) -> Result<(), Error> {
        let start = match start {
            PlayStart::Any => 0.0,
            PlayStart::At(start) => start,
            // 7.2.2.1: of that name there is no live stream.
            PlayStart::Live => {
                self.session.reject_play(code::PLAY_STREAM_NOT_FOUND, "files are not live")?;
                return Ok(());
            }
        };
        let plan = self.shared.origin.config.vod.plan(Pace::from_query(query));
        self.look_up(path.clone(), Wanted::Play { path, plan, start, duration });
        Ok(())
    }

    /// Looks for a title; nothing more is heard of the peer until that is done.
    fn look_up(&mut self, path: String, wanted: Wanted) {
        self.lookup = Some(lookup::title(&self.shared.origin, path, wanted));
    }

    fn found(&mut self, Found { flv_title, wanted }: Found) -> Result<(), Error> {
        match (flv_title, wanted) {
            (Ok(flv_title), Wanted::Length { transaction }) => {
                self.session.answer_stream_length(transaction, flv_title.duration().as_secs_f64());
            }
            // There is no answer that means no.
            (Err(_), Wanted::Length { .. }) => {}
            (Ok(flv_title), Wanted::Play { path, plan, start, duration }) => {
                let Some(slot) = self.shared.players.take() else {
                    return self.refuse_player(&path);
                };
                self.slot = Some(slot);
                let play = file::Play::new(&self.shared.origin, flv_title, plan, start, duration);
                tracing::debug!(peer = %self.peer, path = play.path(), "plays");
                self.role = Role::File(Box::new(play));
                self.keep_unsent(UNSENT_OF_FILE);
                self.session.accept_play(true)?;
            }
            (Err(NoTitle::NotFound), Wanted::Play { path, .. }) => {
                tracing::debug!(peer = %self.peer, path = shown(&path), "play: no such file");
                self.session.reject_play(code::PLAY_STREAM_NOT_FOUND, "no such file")?;
            }
            (Err(NoTitle::Failed(reason)), Wanted::Play { path, .. }) => {
                tracing::warn!(peer = %self.peer, path = shown(&path), reason, "play refused");
                self.session.reject_play(code::PLAY_FAILED, &reason)?;
            }
        }
        Ok(())
    }

    /// A title that could not be played to its end.
    fn fail(&mut self, error: &flv::Error) {
        tracing::warn!(peer = %self.peer, stream = self.name(), %error, "playing failed");
        self.session.send_status("error", code::PLAY_FAILED, &error.to_string());
        self.collect();
    }

    fn keep_unsent(&self, bytes: u32) {
        if let Err(error) = SockRef::from(&self.socket).set_tcp_notsent_lowat(bytes) {
            tracing::debug!(peer = %self.peer, %error, "socket options");
        }
    }
}

/// As much of what a peer called something as goes into a log.
fn shown(name: &str) -> &str {
    name.char_indices().nth(SHOWN).map_or(name, |(end, _)| &name[..end])
}

/// Ready when the socket is, never without interest in it.
async fn ready(socket: &TcpStream, interest: Option<Interest>) -> io::Result<Ready> {
    match interest {
        Some(interest) => socket.ready(interest).await,
        None => std::future::pending().await,
    }
}

/// Never without a time.
async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Why a role came to an end.
enum Broken {
    FlvTitle(flv::Error),
    Connection(Error),
}

/// What the role wants done next; for ever pending while it wants nothing.
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
            // A publisher that was replaced is found out when it sends something; one that never
            // does would stay for ever.
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
