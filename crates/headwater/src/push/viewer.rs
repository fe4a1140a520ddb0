//! One viewer: what it is sent, and what it says.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use live::{Delivery, Status, Stream, Viewing};
use protocol::push::budget::Budget;
use protocol::push::frame::{self, Opcode, Reader};
use protocol::push::message::{Command, Discontinuity, Event};
use protocol::push::query::{From, Query, Unit};
use protocol::push::{CloseCode, Violation};
use tokio::task::coop;
use tokio::time::Instant;

use super::wire::Wire;
use super::{Push, describe, messages};
use crate::Origin;
use crate::deliver::cursor::{Choice, Cursor, Next};
use crate::fan::{Follower, Outbox, Seat};
use crate::http::{Response, Timer, Upgraded, Watch};
use crate::metrics::TooSlow;

/// Pieces that go out in one write at most, while there are more parts at hand.
const BATCH: usize = 64;

/// Bytes of one read: more than a record of TLS holds.
const READ: usize = 32 << 10;

/// How long a viewer may take to hear that it is being closed, and what it may still say.
const FAREWELL: (Duration, usize) = (Duration::from_secs(2), 1 << 20);

/// A viewer is gone when nothing was heard of it for so many pings.
const UNANSWERED: u32 = 3;

thread_local! {
    /// What is read into: a viewer has nothing of its own while nothing comes.
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ].into());
}

/// Why a viewer's connection ends, other than by its leave or the stream's end.
#[derive(Debug, thiserror::Error)]
enum Error {
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
}

/// What a viewer asked for, before its connection is a WebSocket.
pub(super) struct Viewer {
    push: Rc<Push>,
    stream: Arc<Stream>,
    peer: SocketAddr,
    unit: Unit,
    from: From,
    choice: Choice,
    place: Place,
}

/// How it follows the stream.
enum Place {
    /// Not yet, or not while it is paused.
    None,
    /// With a cursor of its own.
    Alone(Box<Follower>),
    /// With all others at the live edge.
    Rides(Seat),
}

impl Viewer {
    pub(super) fn new(
        push: &Rc<Push>,
        stream: &Arc<Stream>,
        peer: SocketAddr,
        query: Query,
    ) -> Self {
        Self {
            push: Rc::clone(push),
            stream: Arc::clone(stream),
            peer,
            unit: query.latency,
            from: query.from,
            choice: Choice { rendition: query.rendition, max: query.max },
            place: Place::None,
        }
    }

    /// Finds its place in the stream.
    pub(super) fn choose(&mut self) -> Result<(), Response> {
        if let Some(name) = &self.choice.rendition
            && !describe::renditions(&self.stream.state()).iter().any(|t| t.is_called(name))
        {
            return Err(
                Response::text(404, "no such rendition").header("Cache-Control", "no-cache")
            );
        }
        let limits = self.push.origin.viewer_limits();
        let whole = self.unit == Unit::Segment;
        let cursor = Cursor::chosen(&self.stream, limits, self.choice.clone(), whole);
        let Some(mut cursor) = cursor else {
            let response = Response::text(503, "the stream has no keyframe yet");
            return Err(response.header("Retry-After", 1));
        };
        match self.from {
            From::Live => {}
            From::Start => {
                cursor.seek(f64::MIN);
            }
            From::At(time) => {
                cursor.seek(time.as_secs_f64());
            }
        }
        self.place = Place::Alone(Box::new(Follower::new(cursor)));
        Ok(())
    }

    /// The whole of its life.
    pub(super) fn run(self, connection: Upgraded) -> impl Future<Output = ()> {
        // What an asynchronous function is given it keeps beside what it makes of it.
        let mut session = Session::new(self, connection.drain.begun(), connection);
        async move {
            let result = session.run().await;
            Box::pin(session.end(result)).await;
        }
    }
}

/// A viewer and its WebSocket.
struct Session {
    push: Rc<Push>,
    stream: Arc<Stream>,
    peer: SocketAddr,
    unit: Unit,
    choice: Choice,
    place: Place,
    /// A fan writes to it while the viewer rides.
    wire: Rc<Wire>,
    drain: Watch,
    reader: Reader,
    budget: Budget,
    /// What was read with the request.
    input: Bytes,
    /// What is to be sent before anything else: whole messages, the first of which may have begun.
    outbox: Outbox,
    /// Since when the viewer has taken nothing of it.
    blocked: Option<Instant>,
    /// When it is pinged next, and how many pings it has not answered.
    ping: Instant,
    unanswered: u32,
    timer: Timer,
    /// Nothing more is said.
    over: bool,
    _viewing: Viewing,
}

/// How a part of a session ended.
enum Phase {
    /// Another follows.
    Next,
    /// The connection is to be closed.
    Over,
}

/// What a session was waiting for.
enum Stir {
    /// The fan put it off.
    Left,
    Input,
    Room,
    Next(Next),
    Time,
    Drain,
}

impl Session {
    fn new(viewer: Viewer, drain: Watch, connection: Upgraded) -> Self {
        let Viewer { push, stream, peer, unit, choice, place, .. } = viewer;
        let interval: Duration = push.origin.config.push.ping_interval.into();
        let Upgraded { transport, input, held, .. } = connection;
        Self {
            unit,
            choice,
            place,
            wire: Rc::new(Wire { transport, held }),
            drain,
            reader: Reader::default(),
            budget: Budget::default(),
            input,
            outbox: Outbox::default(),
            blocked: None,
            ping: Instant::now() + interval,
            unanswered: 0,
            timer: Timer::new(interval),
            over: false,
            _viewing: stream.watch(Delivery::Push),
            push,
            stream,
            peer,
        }
    }

    async fn run(&mut self) -> Result<(), Error> {
        self.welcome()?;
        let input = std::mem::take(&mut self.input);
        self.take_in(&input)?;
        drop(input);
        loop {
            // Most of their time viewers ride, and need nothing of what this waits for.
            let phase = match self.place {
                Place::Rides(_) => self.ride().await?,
                Place::None | Place::Alone(_) => Box::pin(self.go_alone()).await?,
            };
            match phase {
                Phase::Next => {}
                Phase::Over => return Ok(()),
            }
        }
    }

    /// What a viewer hears first.
    fn welcome(&mut self) -> Result<(), Error> {
        if let Place::Alone(follower) = &mut self.place {
            let hello = describe::hello(&self.stream.state(), follower.cursor.tracks());
            self.outbox.push(messages::event(&Event::Hello(hello)));
            self.outbox.push(header(follower)?);
        }
        Ok(())
    }

    fn say(&mut self, event: &Event) {
        self.outbox.push(messages::event(event));
    }

    /// While a fan writes what the viewer is to be sent.
    async fn ride(&mut self) -> Result<Phase, Error> {
        self.outbox.shrink();
        loop {
            let Self { place, wire, drain, timer, ping, .. } = self;
            let Place::Rides(seat) = place else { return Ok(Phase::Next) };
            // By hand: this is all the state that most viewers' tasks have.
            let stir = poll_fn(|cx| {
                // First: where a write ended in the middle of a message, nothing else may follow.
                if seat.poll_left(cx).is_ready() {
                    return Poll::Ready(Stir::Left);
                }
                if Pin::new(&mut *drain).poll(cx).is_ready() {
                    return Poll::Ready(Stir::Drain);
                }
                if wire.transport.poll_read_ready(cx).is_ready() {
                    return Poll::Ready(Stir::Input);
                }
                timer.poll(*ping, cx).map(|()| Stir::Time)
            });
            match stir.await {
                Stir::Input => {
                    if !self.read()? {
                        return Ok(Phase::Over);
                    }
                }
                Stir::Time => self.look_around()?,
                Stir::Left | Stir::Drain | Stir::Room | Stir::Next(_) => {
                    self.alight()?;
                    return Ok(Phase::Next);
                }
            }
            self.send()?;
            if !self.is_idle() || self.over {
                self.alight()?;
                return Ok(Phase::Next);
            }
        }
    }

    /// Has it go on by itself if it rides. What the fan had yet to write comes after what is in the
    /// outbox, which is empty if the fan has written a part of something.
    fn alight(&mut self) -> Result<(), Error> {
        match std::mem::replace(&mut self.place, Place::None) {
            Place::Rides(seat) => {
                let (unsent, follower) = seat.leave(self.push.origin.viewer_limits())?;
                let mut follower = Box::new(follower);
                let cursor = follower.cursor.with_choice(self.choice.clone());
                follower.cursor = cursor.with_whole(self.unit == Unit::Segment);
                self.outbox.push(unsent);
                self.place = Place::Alone(follower);
            }
            place => self.place = place,
        }
        Ok(())
    }

    /// Lets it ride if it may, all it was given having been sent.
    fn board(&mut self) -> bool {
        let fans = self.push.fans(self.unit);
        self.place = match std::mem::replace(&mut self.place, Place::None) {
            Place::Alone(follower) => match fans.join(&self.stream, follower, &self.wire) {
                Ok(seat) => Place::Rides(seat),
                Err(follower) => Place::Alone(follower),
            },
            place => place,
        };
        matches!(self.place, Place::Rides(_))
    }

    /// Until the viewer can ride, or the connection is to be closed.
    async fn go_alone(&mut self) -> Result<Phase, Error> {
        loop {
            coop::consume_budget().await;
            self.send()?;
            let idle = self.is_idle();
            if idle && self.over {
                return Ok(Phase::Over);
            }
            if idle && self.board() {
                return Ok(Phase::Next);
            }
            let wake = self.wake();
            let Self { place, wire, drain, timer, stream, push, outbox, over, .. } = self;
            let listens = !*over && !outbox.is_full();
            let draining = !*over;
            let stir = tokio::select! {
                stir = poll_fn(|cx| poll_wire(wire, listens, !idle, cx)) => stir,
                next = next(place, stream, &push.origin), if idle => Stir::Next(next),
                () = drain, if draining => Stir::Drain,
                () = poll_fn(|cx| timer.poll(wake, cx)) => Stir::Time,
            };
            match stir {
                Stir::Input => {
                    if !self.read()? {
                        return Ok(Phase::Over);
                    }
                }
                Stir::Time => self.look_around()?,
                Stir::Next(next) => self.go_on(next)?,
                Stir::Drain => self.close(CloseCode::GoingAway, "the server is shutting down"),
                Stir::Left | Stir::Room => {}
            }
        }
    }

    /// Puts what comes next in the outbox, and what else there is already.
    fn go_on(&mut self, mut next: Next) -> Result<(), Error> {
        let origin = Arc::clone(&self.push.origin);
        let mut pieces = 0;
        loop {
            match next {
                Next::Part { track, segment, part } => {
                    let Self { place, outbox, push, unit, .. } = self;
                    let Place::Alone(follower) = place else { return Ok(()) };
                    let container = push.fans(*unit).container();
                    follower.write(container, (track, &segment, &part), |piece| {
                        pieces += 1;
                        outbox.push(piece);
                    })?;
                }
                Next::Tracks => self.announce()?,
                Next::Skipped => {
                    origin.slow_viewers.skipped(Delivery::Push, self.stream.name(), self.peer);
                    self.say(&Event::Discontinuity { reason: Discontinuity::Skipped });
                }
                Next::TooSlow => return Err(Error::TooSlow),
                Next::Ended => {
                    self.finish();
                    return Ok(());
                }
            }
            let Place::Alone(follower) = &mut self.place else { return Ok(()) };
            if pieces >= BATCH {
                return Ok(());
            }
            next = match follower.cursor.poll(origin.now()) {
                Some(next) => next,
                None => return Ok(()),
            };
        }
    }

    /// The stream is over.
    fn finish(&mut self) {
        self.say(&Event::End);
        self.close(CloseCode::Normal, "");
    }

    /// Tells which tracks follow.
    fn announce(&mut self) -> Result<(), Error> {
        let Place::Alone(follower) = &mut self.place else { return Ok(()) };
        let picture = follower.cursor.tracks().find(|track| track.kind == media::Kind::Video);
        let picture = picture.map(|track| track.name.clone());
        let header = header(follower)?;
        self.say(&Event::Discontinuity { reason: Discontinuity::Tracks });
        if let Some(rendition) = picture {
            self.say(&Event::Rendition { rendition });
        }
        self.outbox.push(header);
        Ok(())
    }

    fn close(&mut self, code: CloseCode, reason: &str) {
        if !std::mem::replace(&mut self.over, true) {
            self.outbox.push(frame::close(code, reason).into());
        }
    }

    fn is_idle(&self) -> bool {
        self.outbox.is_empty() && !self.wire.transport.holds()
    }

    /// Writes what the connection takes.
    fn send(&mut self) -> Result<(), Error> {
        if self.is_idle() {
            return Ok(());
        }
        let drained = self.wire.transport.holds() && self.wire.transport.try_drain()?;
        let sent = self.outbox.send(|parts| self.wire.try_write_vectored(parts))?;
        if self.is_idle() {
            self.blocked = None;
        } else if sent > 0 || drained || self.blocked.is_none() {
            if self.blocked.is_some() {
                // There was no room, and now there is: it has taken something.
                self.unanswered = 0;
            }
            self.blocked = Some(Instant::now());
        }
        Ok(())
    }

    /// When to look at the time again.
    fn wake(&self) -> Instant {
        let stalled = self.blocked.map(|since| since + self.patience());
        stalled.map_or(self.ping, |stalled| stalled.min(self.ping))
    }

    /// How long a viewer may take nothing.
    fn patience(&self) -> Duration {
        self.push.origin.config.http.send_timeout.into()
    }

    /// A time that was waited for has come.
    fn look_around(&mut self) -> Result<(), Error> {
        let now = Instant::now();
        let patience = self.patience();
        if self.blocked.is_some_and(|since| since + patience <= now) {
            return Err(Error::Stalled(patience));
        }
        if self.ping <= now {
            let interval: Duration = self.push.origin.config.push.ping_interval.into();
            if self.unanswered >= UNANSWERED {
                return Err(Error::Vanished(interval * UNANSWERED));
            }
            self.unanswered += 1;
            self.ping = now + interval;
            // While it has much to take already, it need not be asked as well.
            if !self.over && self.outbox.is_empty() {
                self.outbox.push(frame::frame(Opcode::Ping, &[]).into());
            }
        }
        Ok(())
    }

    /// Reads what is there; false when the viewer has left without a word.
    fn read(&mut self) -> Result<bool, Error> {
        loop {
            let went_on =
                BUFFER.with_borrow_mut(|buffer| match self.wire.transport.try_read(buffer) {
                    Ok(0) => Ok(Some(false)),
                    Ok(size) => self.take_in(&buffer[..size]).map(|()| None),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Some(true)),
                    Err(error) => Err(error.into()),
                })?;
            if let Some(went_on) = went_on {
                return Ok(went_on);
            }
        }
    }

    fn take_in(&mut self, mut input: &[u8]) -> Result<(), Error> {
        while !self.over
            && let Some(event) = self.reader.next(&mut input)?
        {
            self.unanswered = 0;
            self.budget.spend(self.push.origin.now().0)?;
            match event {
                frame::Event::Text(text) => self.obey(Command::parse(&text)?)?,
                frame::Event::Ping(payload) => {
                    self.outbox.answer(frame::frame(Opcode::Pong, &payload).into());
                }
                frame::Event::Pong => {}
                frame::Event::Close(code) => {
                    self.alight()?;
                    let payload = code.map(u16::to_be_bytes);
                    let payload = payload.as_ref().map_or(&[][..], |code| code);
                    self.outbox.push(frame::frame(Opcode::Close, payload).into());
                    self.over = true;
                }
            }
        }
        Ok(())
    }

    /// Does what the viewer says.
    fn obey(&mut self, command: Command) -> Result<(), Error> {
        let Command { rendition, max, seek, pause } = command;
        if rendition.is_some() || max.is_some() {
            let before = self.choice.clone();
            if let Some(rendition) = rendition {
                self.choice.rendition = rendition;
            }
            if let Some(max) = max {
                self.choice.max = max;
            }
            if self.choice != before {
                self.choose_again()?;
            }
        }
        if let Some(time) = seek {
            self.alight()?;
            if let Place::Alone(follower) = &mut self.place
                && follower.cursor.seek(time)
            {
                self.say(&Event::Discontinuity { reason: Discontinuity::Seek });
            }
        }
        match (pause, &self.place) {
            (Some(true), Place::Alone(_) | Place::Rides(_)) => {
                self.alight()?;
                self.place = Place::None;
            }
            (Some(false), Place::None) => self.begin(Discontinuity::Pause)?,
            _ => {}
        }
        Ok(())
    }

    /// Follows the rendition that its wishes come to now.
    fn choose_again(&mut self) -> Result<(), Error> {
        self.alight()?;
        let Place::Alone(follower) = &mut self.place else { return Ok(()) };
        if follower.cursor.choose(self.choice.clone()) {
            self.announce()?;
        }
        Ok(())
    }

    /// Goes on at the newest keyframe.
    fn begin(&mut self, reason: Discontinuity) -> Result<(), Error> {
        let limits = self.push.origin.viewer_limits();
        let whole = self.unit == Unit::Segment;
        if let Some(cursor) = Cursor::chosen(&self.stream, limits, self.choice.clone(), whole) {
            let mut follower = Box::new(Follower::new(cursor));
            let header = header(&mut follower)?;
            self.place = Place::Alone(follower);
            self.say(&Event::Discontinuity { reason });
            self.outbox.push(header);
        }
        Ok(())
    }

    /// Says how it ended, to the viewer too where it can hear it.
    async fn end(&mut self, result: Result<(), Error>) {
        let (peer, stream) = (self.peer, self.stream.name());
        let origin = &self.push.origin;
        let Err(error) = result else { return self.farewell().await };
        match &error {
            Error::Io(error) => return tracing::debug!(%peer, stream, %error, "push viewer left"),
            Error::Violation(violation) => {
                tracing::info!(%peer, stream, %violation, "push viewer closed");
                origin.violations.count(violation.code.number());
            }
            Error::Media(error) => tracing::warn!(%peer, stream, %error, "push viewer closed"),
            Error::TooSlow => {
                tracing::warn!(
                    stream, %peer, delivery = "push", "viewer closed: reads too slowly"
                );
                origin.slow_viewers.closed(Delivery::Push, TooSlow::Behind);
            }
            Error::Stalled(_) => {
                tracing::warn!(stream, %peer, delivery = "push", "viewer closed: takes nothing");
                origin.slow_viewers.closed(Delivery::Push, TooSlow::Stalled);
                self.wire.held.stalled();
            }
            Error::Vanished(_) => tracing::info!(%peer, stream, %error, "push viewer gone"),
        }
        // What a fan had begun to write comes first.
        if self.alight().is_err() {
            return;
        }
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
            // What is queued in the kernel would be kept for as long as the peer is silent.
            _ => return self.wire.transport.forget(),
        }
        self.farewell().await;
    }

    /// Sends what is left and closes the connection so that it arrives: unread input would make the
    /// kernel drop it.
    async fn farewell(&mut self) {
        self.place = Place::None;
        let (time, most) = FAREWELL;
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
        // Either way the connection is closed now.
        let _ = tokio::time::timeout(time, said).await;
    }
}

/// The message with the headers of what comes next, which the follower knows to be given.
fn header(follower: &mut Follower) -> Result<Bytes, media::Error> {
    let headers = follower.cursor.headers();
    follower.know_headers(&headers);
    messages::header(&headers)
}

fn poll_wire(wire: &Wire, listens: bool, writes: bool, cx: &mut Context<'_>) -> Poll<Stir> {
    // Errors show when it is read or written.
    if listens && wire.transport.poll_read_ready(cx).is_ready() {
        return Poll::Ready(Stir::Input);
    }
    if writes && wire.transport.poll_write_ready(cx).is_ready() {
        return Poll::Ready(Stir::Room);
    }
    Poll::Pending
}

/// What is to be sent next, waited for.
async fn next(place: &mut Place, stream: &Stream, origin: &Origin) -> Next {
    match place {
        Place::Alone(follower) => follower.cursor.next(|| origin.now()).await,
        Place::Rides(_) => std::future::pending().await,
        Place::None => {
            // A paused viewer keeps the stream's window in memory: not for longer than others may
            // watch it.
            let mut state = stream.subscribe();
            let _ = state.wait_for(|state| state.status == Status::Ended).await;
            Next::Ended
        }
    }
}
