//! A viewer of a title: its segments one after the other, when they are due.

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::{Fault, Outbox, Piece, Response, Upgraded};
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
use super::session::{Error, Heard, Said, Session};
use super::title_cursor::{self, Item, TitleCursor};
use super::wire::Ready;
use crate::pace::{Hand, Pace, Plan, Schedule, Share};
use crate::path::StreamPath;
use crate::titles::{Viewing, gather};

/// What one viewer may be sent before the others of its thread have their turn.
const BURST: usize = 512 << 10;

/// How long a message that was begun may take when the connection is to be closed after it.
const LAST: Duration = Duration::from_secs(2);

/// What a viewer asked for, before its connection is a WebSocket.
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
            // Each has as long to arrive as the longest plays.
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

    /// The whole of its life.
    pub(super) async fn run(self, connection: Upgraded) {
        let mut watching = Box::new(Watching::new(self, connection));
        let result = watching.run().await;
        Box::pin(watching.end(result)).await;
    }
}

/// A viewer and its WebSocket.
struct Watching {
    session: Session,
    cursor: TitleCursor,
    choice: Choice,
    /// Where the server chooses the rendition.
    abr: Option<TitleAbr>,
    /// The video whose header it was sent last.
    told: Option<usize>,
    /// Runs from where it began or last sought.
    schedule: Schedule,
    /// Where that was.
    began: Duration,
    hand: Hand,
    /// Among the paced viewers, where it is one.
    place: Option<Share>,
    /// What is read of the next segment before it is sent.
    gathering: Option<Gathering>,
    /// The message that is on its way. What else is to be said waits for its end.
    media: Outbox,
    sending: Option<Sending>,
    /// Whether some of it is with the kernel.
    has_begun: bool,
    paused: bool,
    /// Bytes sent since the others of its thread last had their turn.
    burst: usize,
    _viewing: Viewing,
}

/// A segment whose short pieces are being read, which others do elsewhere.
struct Gathering {
    item: Item,
    pieces: Pin<Box<dyn Future<Output = Option<Vec<Piece>>>>>,
}

/// What is on its way: from when to when it is presented, and its bytes.
struct Sending {
    from: Duration,
    until: Duration,
    size: u64,
}

/// What became of a segment that would be the next.
enum Load {
    /// There is something to be read or sent.
    Loaded,
    /// It is not due yet.
    Wait(Duration),
    /// There is none.
    End,
}

/// What a viewer was waiting for.
enum Stir {
    Wrote(Result<usize, Fault>),
    /// The next segment, if it could be read.
    Gathered(Option<Vec<Piece>>),
    Input,
    Room,
    Time,
    Drain,
}

impl Watching {
    fn new(viewer: Viewer, connection: Upgraded) -> Self {
        let Viewer { push, mut cursor, choice, abr, plan, from } = viewer;
        let origin = &push.origin;
        let name = name(cursor.title());
        let viewing = origin.title_viewers.connected(&name, Delivery::Push);
        let (now, is_paced) = (origin.now(), plan.pace != Pace::Fast);
        let place = is_paced.then(|| Share::new(&origin.balance));
        cursor.seek(from);
        Self {
            session: Session::new(push, connection),
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

    /// Whether no message of media is on its way.
    fn is_between(&self) -> bool {
        self.media.size() == 0
    }

    /// Lets the rendition be chosen anew, where the server chooses.
    fn consider(&mut self) {
        if let Self { session, abr: Some(abr), media, .. } = self {
            session.wire.transport.with_tcp(|tcp| abr.look(tcp, media.size()));
        }
    }

    /// Follows the rendition that its wishes and its link come to now.
    fn follow(&mut self) {
        let Self { cursor, choice, abr, .. } = self;
        match abr.as_ref().and_then(TitleAbr::track) {
            Some(track) => cursor.follow(track),
            None => cursor.choose(choice),
        }
    }

    /// Has the next segment read and sent, if it is due.
    fn load(&mut self) -> Result<Load, Error> {
        if self.abr.as_ref().is_some_and(TitleAbr::is_idle) {
            self.consider();
        }
        self.follow();
        // Told only now, however often it has changed meanwhile.
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

    /// Puts what was gathered on its way.
    fn begin(&mut self, pieces: Option<Vec<Piece>>) -> Result<(), Error> {
        let Some(Gathering { item, .. }) = self.gathering.take() else { return Ok(()) };
        let pieces = pieces.ok_or(Error::Changed)?;
        let size = pieces.iter().map(Piece::len).sum::<u64>();
        let head = Head::new(Opcode::Binary, usize::try_from(size).unwrap_or(usize::MAX));
        self.has_begun = false;
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

    /// Waits until there is something to be done; writes, where that is it.
    async fn stir(&mut self, due: Option<Instant>) -> Stir {
        let Self { session, media, hand, place, paused, abr, gathering, .. } = self;
        let (sends, says) = (media.size() > 0, !session.is_idle());
        if sends || says {
            session.took(false, false);
        }
        let looks = abr.as_ref().filter(|_| sends || due.is_some()).map(TitleAbr::next);
        let due = [due, looks].into_iter().flatten().min();
        let mut deadline = due.map_or(session.wake(), |due| due.min(session.wake()));
        let Session { push, wire, drain, timer, outbox, over, .. } = session;
        let listens = !*over && !outbox.is_full();
        let mut is_full = false;
        let stir = poll_fn(|cx| {
            // Before what is sent, for which there may always be room.
            match wire.poll_ready(listens, !sends && says, cx) {
                Poll::Ready(Ready::Input) => return Poll::Ready(Stir::Input),
                Poll::Ready(Ready::Room) => return Poll::Ready(Stir::Room),
                Poll::Pending => {}
            }
            if !*over && Pin::new(&mut *drain).poll(cx).is_ready() {
                return Poll::Ready(Stir::Drain);
            }
            if sends && let Poll::Ready(written) = wire.transport.poll_send(media, &wire.held, cx) {
                return Poll::Ready(Stir::Wrote(written));
            }
            // Nothing else may be half sent when it begins.
            if !sends
                && !says
                && let Some(gathering) = gathering
                && let Poll::Ready(pieces) = gathering.pieces.as_mut().poll(cx)
            {
                return Poll::Ready(Stir::Gathered(pieces));
            }
            // What keeps it waiting is the viewer, not a disk.
            let full = (sends || says) && !media.is_reading();
            if let Some(place) = place.as_mut().filter(|_| full && !*paused)
                && !std::mem::replace(&mut is_full, true)
            {
                let again = place.wait(hand, push.origin.now());
                let again = again.and_then(|again| Instant::now().checked_add(again));
                deadline = again.map_or(deadline, |again| again.min(deadline));
            }
            timer.poll(deadline, cx).map(|()| Stir::Time)
        });
        stir.await
    }

    /// It wants nothing for now.
    fn leave(&mut self) {
        if let Some(place) = &mut self.place {
            place.leave();
        }
    }

    /// So much of what is on its way is with the kernel.
    fn wrote(&mut self, written: usize) {
        self.burst += written;
        self.has_begun = true;
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

    /// A time that was waited for has come.
    fn look_around(&mut self) -> Result<(), Error> {
        if self.media.is_reading() {
            // It is we who keep it waiting.
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

    /// Does what the viewer says.
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
            // What was seen of its link counts for as long as it wishes for the same.
            self.abr = TitleAbr::new(self.cursor.title(), &self.choice, self.cursor.video());
        }
        if let Some(time) = seek {
            self.seek(Duration::try_from_secs_f64(time).unwrap_or_default());
        }
        if let Some(pause) = pause {
            self.pause(pause);
        }
    }

    /// Tells which rendition follows.
    fn announce(&mut self) -> Result<(), Error> {
        if !self.cursor.title().aligned {
            // Some of it may have been shown.
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
        self.session.outbox.push(header.into());
        Ok(())
    }

    /// Goes on elsewhere, after what is on its way. The pace begins anew.
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

    /// A paused viewer is sent nothing after what is on its way, and goes on where it was.
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

    /// Says how it ended, to the viewer too where it can hear it.
    async fn end(&mut self, result: Result<(), Error>) {
        self.leave();
        if let Err(error) = &result {
            self.session.report(&name(self.cursor.title()), error);
        }
        if !self.is_between() {
            // Nothing can be said after half a message.
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
            Ok(()) => self.session.farewell().await,
            Err(error) => self.session.tell(error).await,
        }
    }

    /// Sends the rest of the message that is on its way; whether that could be done.
    async fn complete(&mut self) -> bool {
        let Self { session: Session { wire, .. }, media, .. } = self;
        let rest = async {
            while media.size() > 0 {
                poll_fn(|cx| wire.transport.poll_send(media, &wire.held, cx)).await?;
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
