//! A viewer of a title. It gets the title's segments one after the other, each when it is due.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::{Fault, Outbox, Piece, Ready, Response, Upgraded};
use live::Delivery;
use live::cursor::Choice;
use protocol::push::frame::{self, Head, Opcode};
use protocol::push::message::{Command, Discontinuity, Event};
use protocol::push::query::{self, From, Query};
use tokio::task::{coop, yield_now};
use tokio::time::Instant;
use vod::Title;

use super::Push;
use super::abr::TitleAbr;
use super::session::{Error, Heard, Said, Session, poll_time};
use super::title_cursor::{self, Item, TitleCursor};
use crate::access::Grant;
use crate::pace::{Hand, Pace, Plan, Schedule, Share};
use crate::path::StreamPath;
use crate::titles::{Viewing, gather};
use crate::traces::Trace;

/// Bytes that one viewer may be sent before other tasks of its thread get their turn.
const BURST: usize = 512 << 10;

/// How long the rest of a message may take when the connection closes after it.
const LAST: Duration = Duration::from_secs(2);

/// A viewer's request, before its connection is a WebSocket.
pub(super) struct Viewer {
    push: Rc<Push>,
    cursor: TitleCursor,
    choice: Choice,
    abr: Option<TitleAbr>,
    plan: Plan,
    from: Duration,
}

impl Viewer {
    pub(super) fn new(push: &Rc<Push>, title: &Arc<Title>, query: Query) -> Result<Self, Response> {
        let choice = Choice { rendition: query.rendition, max: query.max };
        if let Some(name) = &choice.rendition
            && !title_cursor::has_rendition(title, name)
        {
            return Err(
                Response::text(404, "no such rendition").header("Cache-Control", "no-cache")
            );
        }
        let mut cursor = TitleCursor::new(Arc::clone(title), &choice);
        let abr = TitleAbr::new(title, &choice, None);
        if let Some(track) = abr.as_ref().and_then(TitleAbr::track) {
            cursor.follow(track);
        }
        let config = &push.origin.config.vod;
        let plan = match query.pace {
            None => config.plan(None),
            Some(query::Pace::Fast) => config.plan(Some(Pace::Fast)),
            // Each segment has as long to arrive as the longest one plays.
            Some(query::Pace::Realtime) => {
                Plan { pace: Pace::Burst, burst: cursor.longest(), rate: 1.0 }
            }
        };
        let from = match query.from {
            From::Live | From::Start => Duration::ZERO,
            From::At(time) => time,
        };
        Ok(Self { push: Rc::clone(push), cursor, choice, abr, plan, from })
    }

    /// Runs the viewer to its end.
    pub(super) async fn run(self, connection: Upgraded, grant: Grant, trace: Trace) {
        let mut watching = Box::new(Watching::new(self, connection, grant, trace));
        let result = watching.run().await;
        Box::pin(watching.end(result)).await;
    }
}

/// A viewer and its WebSocket.
struct Watching {
    session: Session,
    cursor: TitleCursor,
    choice: Choice,
    /// Set if the server chooses the rendition.
    abr: Option<TitleAbr>,
    /// The video whose header was sent last.
    told: Option<usize>,
    /// Starts anew where the viewer began or last sought.
    schedule: Schedule,
    /// Time at which the viewer began or last sought.
    began: Duration,
    hand: Hand,
    /// Its share of the link, if it is paced.
    place: Option<Share>,
    /// The next segment, while its short pieces are being read.
    gathering: Option<Gathering>,
    /// The message that is being sent. Events wait for its end.
    media: Outbox,
    sending: Option<Sending>,
    /// Whether a part of the message is in the kernel.
    has_begun: bool,
    paused: bool,
    /// Bytes sent since other tasks of its thread last had their turn.
    burst: usize,
    _viewing: Viewing,
}

/// A segment whose short pieces another thread reads.
struct Gathering {
    item: Item,
    pieces: Pin<Box<dyn Future<Output = io::Result<Vec<Piece>>>>>,
}

/// The segment that is being sent: its presentation times and its size in bytes.
struct Sending {
    from: Duration,
    until: Duration,
    size: u64,
}

/// What became of the attempt to load the next segment.
enum Load {
    /// There is something to read or to send.
    Loaded,
    /// The segment is not due yet.
    Wait(Duration),
    /// There is no further segment.
    End,
}

/// What a viewer's task woke up for.
enum Stir {
    Wrote(Result<usize, Fault>),
    /// The pieces of the next segment.
    Gathered(io::Result<Vec<Piece>>),
    Input,
    Room,
    Time,
    Drain,
}

impl Watching {
    fn new(viewer: Viewer, connection: Upgraded, grant: Grant, trace: Trace) -> Self {
        let Viewer { push, mut cursor, choice, abr, plan, from } = viewer;
        let origin = &push.origin;
        let name = name(cursor.title());
        let viewing = origin.title_viewers.connected(&name, Delivery::Push);
        let path = StreamPath::parse(&name).unwrap_or(StreamPath::Vod(&name));
        let listed = push.list(path, connection.peer, grant);
        let (now, is_paced) = (origin.now(), plan.pace != Pace::Fast);
        let place = is_paced.then(|| Share::new(&origin.balance));
        cursor.seek(from);
        Self {
            session: Session::new(push, connection, listed, trace),
            began: cursor.next().map_or(Duration::ZERO, |item| item.start),
            cursor,
            choice,
            abr,
            told: None,
            schedule: Schedule::new(plan, now),
            hand: Hand::new(now),
            place,
            gathering: None,
            media: Outbox::default(),
            sending: None,
            has_begun: false,
            paused: false,
            burst: 0,
            _viewing: viewing,
        }
    }

    async fn run(&mut self) -> Result<(), Error> {
        self.session.say(&Event::Hello(self.cursor.hello()));
        self.push_header()?;
        let said = self.session.first()?;
        self.heed(said);
        loop {
            coop::consume_budget().await;
            if self.burst >= BURST {
                self.burst = 0;
                yield_now().await;
            }
            if self.is_between() {
                self.session.send()?;
            } else {
                self.consider();
            }
            let idle = self.is_between() && self.session.is_idle();
            if idle && self.session.over {
                return Ok(());
            }
            let mut due = None;
            if idle && !self.paused && self.gathering.is_none() {
                match self.load()? {
                    Load::Loaded => {}
                    Load::Wait(wait) => {
                        due = Instant::now().checked_add(wait);
                        self.consider();
                    }
                    Load::End => {
                        self.session.finish();
                        continue;
                    }
                }
            }
            match self.stir(due).await {
                Stir::Wrote(written) => self.wrote(written?),
                Stir::Gathered(pieces) => self.begin(pieces)?,
                Stir::Input => {
                    let Heard { said, left } = self.session.read()?;
                    self.heed(said);
                    if left {
                        return Ok(());
                    }
                }
                Stir::Time => self.look_around()?,
                Stir::Drain => self.session.go_away(),
                Stir::Room => {}
            }
        }
    }

    /// Whether no media message is being sent.
    fn is_between(&self) -> bool {
        self.media.size() == 0
    }

    /// Chooses the rendition anew, if the server chooses.
    fn consider(&mut self) {
        if let Self { session, abr: Some(abr), media, .. } = self {
            abr.look(|| session.wire.transport.told(), media.size());
        }
    }

    /// Follows the rendition that suits the viewer's wishes and its link now.
    fn follow(&mut self) {
        let Self { cursor, choice, abr, .. } = self;
        match abr.as_ref().and_then(TitleAbr::track) {
            Some(track) => cursor.follow(track),
            None => cursor.choose(choice),
        }
    }

    /// Loads the next segment, if it is due.
    fn load(&mut self) -> Result<Load, Error> {
        if self.abr.as_ref().is_some_and(TitleAbr::is_idle) {
            self.consider();
        }
        self.follow();
        // The viewer is told of a change only now, however often the choice changed meanwhile.
        if self.cursor.video() != self.told {
            self.announce()?;
            return Ok(Load::Loaded);
        }
        let Some(item) = self.cursor.next() else {
            self.leave();
            return Ok(Load::End);
        };
        let now = self.session.push.origin.now();
        let position = item.start.saturating_sub(self.began);
        if let Some(place) = &mut self.place
            && let Some(wait) = place.due(&self.schedule, &self.hand, position, now)
        {
            return Ok(Load::Wait(wait));
        }
        let title = Arc::clone(self.cursor.title());
        let pieces =
            self.cursor.pieces(item).filter(|_| title.is_intact()).ok_or(Error::Changed)?;
        let pieces = Box::pin(async move { gather(&title, pieces).await });
        self.gathering = Some(Gathering { item, pieces });
        Ok(Load::Loaded)
    }

    /// Begins to send the segment that was gathered.
    fn begin(&mut self, pieces: io::Result<Vec<Piece>>) -> Result<(), Error> {
        let Some(Gathering { item, .. }) = self.gathering.take() else { return Ok(()) };
        let pieces = pieces.map_err(Error::Unread)?;
        let size = pieces.iter().map(Piece::len).sum::<u64>();
        let head = Head::new(Opcode::Binary, usize::try_from(size).unwrap_or(usize::MAX));
        self.has_begun = false;
        self.session.trace.has_media();
        self.media.push(Bytes::copy_from_slice(head.as_ref()));
        for each in pieces {
            self.media.push_piece(each)?;
        }
        self.cursor.advance(item);
        let end = self.cursor.title().duration;
        let until = self.cursor.next().map_or(end, |next| next.start);
        self.sending = Some(Sending { from: item.start, until, size: self.media.size() });
        if let Some(abr) = &mut self.abr {
            abr.begins();
        }
        Ok(())
    }

    /// Waits until there is something to do. Writes if possible.
    async fn stir(&mut self, due: Option<Instant>) -> Stir {
        let Self { session, media, hand, place, paused, abr, gathering, .. } = self;
        let (sends, says) = (media.size() > 0, !session.is_idle());
        if sends || says {
            session.took(false, false);
        }
        let looks = abr.as_ref().filter(|_| sends || due.is_some()).map(TitleAbr::next);
        let due = [due, looks].into_iter().flatten().min();
        let mut deadline = due.map_or(session.wake(), |due| due.min(session.wake()));
        let Session { push, wire, drain, timer, send_queue, over, listed, .. } = session;
        let listens = !*over && !send_queue.is_full();
        let mut is_full = false;
        let stir = poll_fn(|cx| {
            // Input comes before output: there may always be room for output.
            match wire.transport.poll_ready(listens, !sends && says, cx) {
                Poll::Ready(Ready::Input) => return Poll::Ready(Stir::Input),
                Poll::Ready(Ready::Room) => return Poll::Ready(Stir::Room),
                Poll::Pending => {}
            }
            if !*over && Pin::new(&mut *drain).poll(cx).is_ready() {
                return Poll::Ready(Stir::Drain);
            }
            if sends && let Poll::Ready(written) = wire.poll_send(media, cx) {
                return Poll::Ready(Stir::Wrote(written));
            }
            // Nothing else may be half sent when the segment begins.
            if !sends
                && !says
                && let Some(gathering) = gathering
                && let Poll::Ready(pieces) = gathering.pieces.as_mut().poll(cx)
            {
                return Poll::Ready(Stir::Gathered(pieces));
            }
            // The viewer, and not a disk, causes the wait.
            let full = (sends || says) && !media.is_reading();
            if let Some(place) = place.as_mut().filter(|_| full && !*paused)
                && !std::mem::replace(&mut is_full, true)
            {
                let again = place.wait(hand, push.origin.now());
                let again = again.and_then(|again| Instant::now().checked_add(again));
                deadline = again.map_or(deadline, |again| again.min(deadline));
            }
            poll_time(timer, deadline, listed, cx).map(|()| Stir::Time)
        });
        stir.await
    }

    /// Notes that the viewer wants nothing for now.
    fn leave(&mut self) {
        if let Some(place) = &mut self.place {
            place.leave();
        }
    }

    /// Notes that `written` more bytes are in the kernel.
    fn wrote(&mut self, written: usize) {
        self.burst += written;
        self.session.listed.meter().add(written as u64);
        self.has_begun = true;
        self.session.trace.sent();
        let left = self.media.size();
        self.session.took(true, left == 0 && self.session.is_idle());
        if let Some(Sending { from, until, size }) = &self.sending {
            let part = size.saturating_sub(left) as f64 / (*size).max(1) as f64;
            let position = *from + until.saturating_sub(*from).mul_f64(part);
            let now = self.session.push.origin.now();
            self.hand.deliver(position.saturating_sub(self.began), now);
        }
        if left == 0 {
            self.sending = None;
            self.media.release();
        }
    }

    /// Handles a time that was waited for.
    fn look_around(&mut self) -> Result<(), Error> {
        if self.media.is_reading() {
            // The disk causes the wait, not the viewer.
            self.session.took(true, true);
        }
        self.session.look_around()
    }

    fn heed(&mut self, said: Vec<Said>) {
        for said in said {
            match said {
                Said::Command(command) => self.obey(command),
                Said::Close(code) => self.session.answer_close(code),
            }
        }
    }

    /// Carries out a command of the viewer.
    fn obey(&mut self, command: Command) {
        let Command { rendition, max, seek, pause } = command;
        let before = self.choice.clone();
        if let Some(rendition) = rendition {
            self.choice.rendition = rendition;
        }
        if let Some(max) = max {
            self.choice.max = max;
        }
        if self.choice != before {
            // Measurements of its link stay valid only while its wishes stay the same.
            self.abr = TitleAbr::new(self.cursor.title(), &self.choice, self.cursor.video());
        }
        if let Some(time) = seek {
            self.seek(Duration::try_from_secs_f64(time).unwrap_or_default());
        }
        if let Some(pause) = pause {
            self.pause(pause);
        }
    }

    /// Tells the viewer which rendition follows.
    fn announce(&mut self) -> Result<(), Error> {
        if !self.cursor.title().aligned {
            // Parts of the next segment may have been shown already.
            self.session.say(&Event::Discontinuity { reason: Discontinuity::Tracks });
        }
        if let Some(rendition) = self.cursor.rendition() {
            let rendition = rendition.to_owned();
            self.session.say(&Event::Rendition { rendition });
        }
        self.push_header()
    }

    fn push_header(&mut self) -> Result<(), Error> {
        let header = frame::frame(Opcode::Binary, &self.cursor.header()?);
        self.told = self.cursor.video();
        self.session.send_queue.push(header.into());
        Ok(())
    }

    /// Goes on at another time, after the message that is being sent. The pace starts anew.
    fn seek(&mut self, time: Duration) {
        let now = self.session.push.origin.now();
        self.follow();
        self.cursor.seek(time);
        self.began = self.cursor.next().map_or(time, |item| item.start);
        self.schedule = Schedule::new(self.schedule.plan(), now);
        self.hand = Hand::new(now);
        self.leave();
        self.sending = None;
        self.gathering = None;
        self.session.say(&Event::Discontinuity { reason: Discontinuity::Seek });
        if std::mem::take(&mut self.paused) {
            self.pause(true);
        }
    }

    /// Pauses or resumes. A paused viewer gets nothing after the message that is being sent, and
    /// resumes where it stopped.
    fn pause(&mut self, paused: bool) {
        if std::mem::replace(&mut self.paused, paused) == paused {
            return;
        }
        let now = self.session.push.origin.now();
        if paused {
            self.schedule.pause(now);
            self.hand.pause(now);
            self.gathering = None;
            self.leave();
        } else {
            self.schedule.resume(now);
            self.hand.resume(now);
        }
    }

    /// Logs how the viewer ended, and tells the viewer if possible.
    async fn end(&mut self, result: Result<(), Error>) {
        self.leave();
        if let Err(error) = &result {
            self.session.report(&name(self.cursor.title()), error);
        }
        if !self.is_between() {
            // After half a message, nothing else can be sent.
            let can_hear = match &result {
                Err(Error::Violation(_)) if self.has_begun => self.complete().await,
                Err(_) => !self.has_begun,
                Ok(()) => false,
            };
            if !can_hear {
                return self.session.wire.transport.forget();
            }
        }
        match result {
            Ok(()) => self.session.end().await,
            Err(error) => self.session.tell(error).await,
        }
    }

    /// Sends the rest of the message that is being sent. Returns whether this succeeded.
    async fn complete(&mut self) -> bool {
        let Self { session: Session { wire, .. }, media, .. } = self;
        let rest = async {
            while media.size() > 0 {
                poll_fn(|cx| wire.poll_send(media, cx)).await?;
            }
            Ok::<(), Fault>(())
        };
        tokio::time::timeout(LAST, rest).await.is_ok_and(|sent| sent.is_ok())
    }
}

/// The stream's name.
fn name(title: &Title) -> String {
    StreamPath::Vod(&title.path).to_string()
}
