//! A viewer of a live stream: subscribed to a broadcast at the live edge, or alone behind it.

mod choosing;
mod commands;

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::{Ready, Response, Upgraded};
use live::cursor::{Choice, Cursor, Next};
use live::{Delivery, Status, Stream, Track, Viewing};
use media::Kind;
use protocol::push::message::{Discontinuity, Event, Hello};
use protocol::push::query::{From, Query, Unit};
use tokio::task::coop;
use tokio::time::Instant;

use super::abr::{self, Watched};
use super::session::{Error, Session, poll_time};
use super::{Push, describe, messages};
use crate::Origin;
use crate::access::Grant;
use crate::broadcast::{BURST, Follower, PIECES, Subscription};
use crate::path::StreamPath;
use crate::traces::Trace;

/// Bytes of media taken out of the window at once if the server chooses the rendition. Media that
/// are taken out cannot be dropped.
const AHEAD: usize = 16 << 10;

/// Time between checks whether there are media again for a viewer that wants to go on.
const RETRIES: Duration = Duration::from_millis(200);

/// A viewer's request, before its connection is a WebSocket.
pub(super) struct Viewer {
    push: Rc<Push>,
    stream: Arc<Stream>,
    unit: Unit,
    from: From,
    choice: Choice,
    alive: bool,
    mode: Mode,
}

/// How a viewer follows the stream.
enum Mode {
    /// Not at all: it has not started, is paused, or waits for media.
    None,
    /// Alone, with a cursor of its own.
    Alone(Box<Follower>),
    /// With all other subscribed viewers, at the live edge.
    Subscribed(Subscription),
}

impl Viewer {
    pub(super) fn new(push: &Rc<Push>, stream: &Arc<Stream>, query: Query) -> Self {
        Self {
            push: Rc::clone(push),
            stream: Arc::clone(stream),
            unit: query.latency,
            from: query.from,
            choice: Choice { rendition: query.rendition, max: query.max },
            alive: query.alive,
            mode: Mode::None,
        }
    }

    /// Finds the viewer's place in the stream.
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
        // The viewer's link is not known yet.
        let first = abr::begin(&self.stream.state(), &self.choice);
        let first = Choice { rendition: first.map(|track| track.name.clone()), max: None };
        let cursor = Cursor::chosen(&self.stream, limits, first, whole);
        let Some(mut cursor) = cursor.map(|cursor| cursor.with_choice(self.choice.clone())) else {
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
        self.mode = Mode::Alone(Box::new(Follower::new(cursor)));
        Ok(())
    }

    /// Runs the viewer to its end.
    pub(super) fn run(
        self,
        connection: Upgraded,
        grant: Grant,
        trace: Trace,
    ) -> impl Future<Output = ()> {
        // An async function would store its arguments twice: as arguments and in its state.
        let mut watching = Watching::new(self, connection, grant, trace);
        async move {
            let result = watching.run().await;
            Box::pin(watching.end(result)).await;
        }
    }
}

/// A viewer and its WebSocket.
struct Watching {
    session: Session,
    stream: Arc<Stream>,
    unit: Unit,
    choice: Choice,
    mode: Mode,
    /// Set if there are renditions to choose from.
    watched: Option<Rc<Watched>>,
    /// The rendition that it was last told. It counts as a viewer of this one.
    counted: Option<Arc<Track>>,
    paused: bool,
    /// Where to go on, in seconds of the stream's timeline, if it sought while it had no place.
    sought: Option<f64>,
    _viewing: Viewing,
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.count(None);
    }
}

/// How a phase of a viewer's life ended.
enum Phase {
    /// Another phase follows.
    Next,
    /// The connection is to be closed.
    Over,
}

/// What a viewer's task woke up for.
enum Stir {
    /// The broadcast ended the subscription.
    Left,
    Input,
    Room,
    Next(Next),
    Time,
    Drain,
}

impl std::convert::From<Ready> for Stir {
    fn from(ready: Ready) -> Self {
        match ready {
            Ready::Input => Self::Input,
            Ready::Room => Self::Room,
        }
    }
}

impl Watching {
    fn new(viewer: Viewer, connection: Upgraded, grant: Grant, trace: Trace) -> Self {
        let Viewer { push, stream, unit, choice, alive, mode, .. } = viewer;
        let listed = push.list(StreamPath::Live(stream.name()), connection.peer, grant);
        let mut session = Session::new(push, connection, listed, trace);
        session.says_alive = alive;
        Self {
            session,
            unit,
            choice,
            mode,
            watched: None,
            counted: None,
            paused: false,
            sought: None,
            _viewing: stream.watch(Delivery::Push),
            stream,
        }
    }

    async fn run(&mut self) -> Result<(), Error> {
        self.welcome()?;
        let said = self.session.first()?;
        self.heed(said)?;
        loop {
            // Viewers are subscribed most of their time and need none of this future's state, so it
            // is boxed.
            let phase = match self.mode {
                Mode::Subscribed(_) => self.be_subscribed().await?,
                Mode::None | Mode::Alone(_) => Box::pin(self.go_alone()).await?,
            };
            match phase {
                Phase::Next => {}
                Phase::Over => return Ok(()),
            }
        }
    }

    /// Queues the first event and the headers.
    fn welcome(&mut self) -> Result<(), Error> {
        if let Mode::Alone(follower) = &mut self.mode {
            let hello = describe::hello(&self.stream.state(), follower.cursor.tracks());
            let behind = (follower.cursor.behind() * 1000.0).round() / 1000.0;
            self.session.listed.meter().is_behind(behind);
            self.session.say(&Event::Hello(Hello { behind: Some(behind), ..hello }));
            // From now on the viewer knows how long nothing may come.
            self.session.tell_alive();
            self.session.send_queue.push(header(follower)?);
        }
        if let Some(video) = self.video() {
            self.count(video);
        }
        Ok(())
    }

    /// Counts it as a viewer of this rendition.
    fn count(&mut self, now: Option<Arc<Track>>) {
        let before = std::mem::replace(&mut self.counted, now);
        self.session.listed.gets(self.counted.as_ref().map(|track| &*track.name));
        let chosen = &self.session.push.origin.chosen;
        chosen.change(&self.stream, before.as_ref(), self.counted.as_ref());
    }

    /// Handles the viewer's input and the pings while a broadcast writes to the viewer.
    async fn be_subscribed(&mut self) -> Result<Phase, Error> {
        self.session.send_queue.shrink();
        loop {
            let wake = self.session.wake();
            let Session { wire, drain, timer, listed, .. } = &mut self.session;
            let Mode::Subscribed(subscription) = &self.mode else { return Ok(Phase::Next) };
            // Written by hand: this is all the state that the tasks of most viewers hold.
            let stir = poll_fn(|cx| {
                // This check comes first: if a write ended in the middle of a message, nothing else
                // may follow.
                if subscription.poll_left(cx).is_ready() {
                    return Poll::Ready(Stir::Left);
                }
                if Pin::new(&mut *drain).poll(cx).is_ready() {
                    return Poll::Ready(Stir::Drain);
                }
                if wire.transport.poll_read_ready(cx).is_ready() {
                    return Poll::Ready(Stir::Input);
                }
                poll_time(timer, wake, listed, cx).map(|()| Stir::Time)
            });
            match stir.await {
                Stir::Input => {
                    if !self.read()? {
                        return Ok(Phase::Over);
                    }
                }
                Stir::Time => {
                    if let Err(error) = self.session.look_around() {
                        // Nobody else may write what follows.
                        self.leave()?;
                        return Err(error);
                    }
                }
                Stir::Left | Stir::Drain | Stir::Room | Stir::Next(_) => {
                    self.leave()?;
                    return Ok(Phase::Next);
                }
            }
            self.session.send()?;
            if !self.session.is_idle() || self.session.over {
                self.leave()?;
                return Ok(Phase::Next);
            }
        }
    }

    /// Ends the subscription, if there is one. Bytes that the broadcast has not written are
    /// appended to the send queue. The send queue is empty if the broadcast has written only a part
    /// of something.
    fn leave(&mut self) -> Result<(), Error> {
        match std::mem::replace(&mut self.mode, Mode::None) {
            Mode::Subscribed(subscription) => {
                let (unsent, follower) =
                    subscription.leave(self.session.push.origin.viewer_limits())?;
                let mut follower = Box::new(follower);
                let cursor = follower.cursor.with_choice(self.choice.clone());
                follower.cursor = cursor.with_whole(self.unit == Unit::Segment);
                self.session.send_queue.push(unsent);
                self.mode = Mode::Alone(follower);
            }
            place => self.mode = place,
        }
        Ok(())
    }

    /// Subscribes the viewer if possible. Everything that it was given before must have been sent.
    fn join(&mut self) -> bool {
        let Session { push, wire, listed, .. } = &self.session;
        let meter = listed.meter();
        let broadcasts = push.broadcasts(self.unit);
        self.mode = match std::mem::replace(&mut self.mode, Mode::None) {
            Mode::Alone(follower) => {
                let subscription = match &self.watched {
                    Some(watched) => broadcasts.join(&self.stream, follower, (watched, meter)),
                    None => broadcasts.join(&self.stream, follower, (wire, meter)),
                };
                subscription.map_or_else(Mode::Alone, Mode::Subscribed)
            }
            place => place,
        };
        matches!(self.mode, Mode::Subscribed(_))
    }

    /// Runs until the viewer can be subscribed or the connection is to be closed.
    async fn go_alone(&mut self) -> Result<Phase, Error> {
        loop {
            coop::consume_budget().await;
            self.session.send()?;
            let idle = self.session.is_idle();
            if idle && self.session.over {
                return Ok(Phase::Over);
            }
            // Starts only when all earlier events are sent: a viewer that pauses again and again
            // then gets no more of them.
            if idle && !self.paused && self.begin()? {
                continue;
            }
            self.choose_rendition(idle)?;
            if idle && self.join() {
                return Ok(Phase::Next);
            }
            let wake = self.wake(idle);
            let Self { session, mode, stream, .. } = self;
            let Session { push, wire, drain, timer, send_queue, over, listed, .. } = session;
            let listens = !*over && !send_queue.is_full();
            let draining = !*over;
            let stir = tokio::select! {
                stir = poll_fn(|cx| wire.transport.poll_ready(listens, !idle, cx)) => stir.into(),
                next = next(mode, stream, &push.origin), if idle => Stir::Next(next),
                () = drain, if draining => Stir::Drain,
                () = poll_fn(|cx| poll_time(timer, wake, listed, cx)) => Stir::Time,
            };
            match stir {
                Stir::Input => {
                    if !self.read()? {
                        return Ok(Phase::Over);
                    }
                }
                Stir::Time => self.session.look_around()?,
                Stir::Next(next) => {
                    self.session.trace.has_media();
                    self.go_on(next)?;
                }
                Stir::Drain => self.session.go_away(),
                Stir::Left | Stir::Room => {}
            }
        }
    }

    /// Puts the next part in the send queue, and further parts that are already there.
    fn go_on(&mut self, mut next: Next) -> Result<(), Error> {
        let origin = Arc::clone(&self.session.push.origin);
        let mut pieces = 0;
        loop {
            match next {
                Next::Part { track, segment, part } => {
                    let Self { session: Session { push, send_queue, .. }, mode, unit, .. } = self;
                    if let Some(watched) = self.watched.as_ref().filter(|_| send_queue.is_empty()) {
                        watched.writes();
                    }
                    let Mode::Alone(follower) = mode else { return Ok(()) };
                    let container = push.broadcasts(*unit).container();
                    follower.write(container, (track, &segment, &part), |piece| {
                        pieces += 1;
                        send_queue.push(piece);
                    })?;
                }
                Next::Tracks => self.announce(Some(Discontinuity::Tracks))?,
                Next::Switched { gap } => {
                    self.announce(gap.then_some(Discontinuity::Skipped))?;
                }
                Next::Skipped => {
                    let (stream, peer) = (self.stream.name(), self.session.peer);
                    if let Mode::Alone(follower) = &mut self.mode {
                        self.session.listed.meter().is_behind(follower.cursor.behind());
                    }
                    origin.slow_viewers.skipped(Delivery::Push, stream, peer);
                    self.session.say(&Event::Discontinuity { reason: Discontinuity::Skipped });
                }
                Next::TooSlow => return Err(Error::TooSlow),
                Next::Ended => {
                    self.session.finish();
                    return Ok(());
                }
            }
            let Mode::Alone(follower) = &mut self.mode else { return Ok(()) };
            let most = if self.watched.is_some() { AHEAD } else { BURST };
            if pieces >= PIECES || self.session.send_queue.len() >= most {
                return Ok(());
            }
            next = match follower.cursor.poll(origin.now()) {
                Some(next) => next,
                None => return Ok(()),
            };
        }
    }

    /// Tells the viewer which tracks follow, and what is missing before them.
    fn announce(&mut self, missing: Option<Discontinuity>) -> Result<(), Error> {
        let Some(video) = self.video() else { return Ok(()) };
        let Mode::Alone(follower) = &mut self.mode else { return Ok(()) };
        let header = header(follower)?;
        if let Some(reason) = missing {
            self.session.say(&Event::Discontinuity { reason });
        }
        if let Some(track) = video {
            self.follows(track);
        }
        self.session.send_queue.push(header);
        Ok(())
    }

    /// Tells the viewer that another rendition follows.
    fn follows(&mut self, track: Arc<Track>) {
        self.session.say(&Event::Rendition { rendition: track.name.clone() });
        if let Some(watched) = &self.watched {
            watched.abr.borrow_mut().switched(&track);
        }
        self.count(Some(track));
    }

    /// The rendition of its video, if any, while it has a cursor of its own.
    fn video(&self) -> Option<Option<Arc<Track>>> {
        let Mode::Alone(follower) = &self.mode else { return None };
        Some(follower.cursor.tracks().find(|track| track.kind == Kind::Video).cloned())
    }

    /// When to check the deadlines again.
    fn wake(&self, idle: bool) -> Instant {
        let wake = self.session.wake();
        match &self.watched {
            Some(_) if !idle => wake.min(Instant::now() + abr::LOOKS),
            // No single event tells that there are media again, so this is polled.
            _ if idle && !self.paused && matches!(self.mode, Mode::None) => {
                wake.min(Instant::now() + RETRIES)
            }
            _ => wake,
        }
    }

    /// Logs how the viewer ended, and tells the viewer if possible.
    async fn end(&mut self, result: Result<(), Error>) {
        if let Err(error) = &result {
            self.session.report(self.stream.name(), error);
            // The rest of what a broadcast had begun to write comes first.
            if self.leave().is_err() {
                return;
            }
        }
        self.mode = Mode::None;
        match result {
            Ok(()) => self.session.end().await,
            Err(error) => self.session.tell(error).await,
        }
    }
}

/// Makes the message with the headers of the next media. The follower then counts them as given.
fn header(follower: &mut Follower) -> Result<Bytes, media::Error> {
    let headers = follower.cursor.headers();
    follower.know_headers(&headers);
    messages::header(&headers)
}

/// Waits for what to send next.
async fn next(place: &mut Mode, stream: &Stream, origin: &Origin) -> Next {
    match place {
        Mode::Alone(follower) => follower.cursor.next(|| origin.now()).await,
        Mode::Subscribed(_) => std::future::pending().await,
        Mode::None => {
            // A paused viewer keeps the stream's window in memory. It may do so no longer than
            // others may watch the stream.
            let mut state = stream.subscribe();
            let _ = state.wait_for(|state| state.status == Status::Ended).await;
            Next::Ended
        }
    }
}
