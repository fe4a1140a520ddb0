//! A live stream: its tracks, who publishes them, and who watches.

mod rest;

use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use media::{Kind, Sample};
use payload::memory::{Account, Memory, Pressure};
use tokio::sync::watch;

use crate::PublisherInfo;
use crate::dates::Dates;
use crate::error::PublishError;
use crate::gop::{Gop, Learnt};
use crate::packager::{Boundaries, Cutting};
use crate::tap::Unit;
use crate::timeline::{Mapped, ORIGIN, Timeline, TrackClock};
use crate::track::{Track, TrackState};
use crate::viewers::{Delivery, Viewers, Viewing};
use crate::{Settings, UnixMicros, rescale};

/// Periods that may begin in a minute: a publisher whose clock jumps, or that changes or returns, more
/// often than that is refused. Each costs all viewers' players a new start.
const MOST_TURNS: u32 = 20;
/// Samples that fill no part are published all the same when nothing has come for so long. More than
/// there is between the frames of a slide show, whose parts would else be too short.
const HELD: Duration = Duration::from_secs(3);
/// Streams without a video are cut like regular ones, once there is so much audio, in microseconds.
const SOUND_ALONE: i64 = 300_000;
/// A publisher's clock may lag the wall clock by this before it counts as drift, not jitter.
const DRIFT: u64 = 500_000;

/// How far along a stream is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Somebody publishes.
    Live,
    /// The publisher was lost and may come back.
    Offline,
    /// It is over; what is left can be watched for a while.
    Ended,
}

/// A stream's tracks and state at one moment.
#[derive(Debug, Clone)]
pub struct State {
    /// How far along it is.
    pub status: Status,
    /// Its tracks in order of arrival, without those that were let go of. Names are stable.
    pub tracks: Vec<Arc<Track>>,
    /// Who publishes now.
    pub publishers: Vec<PublisherInfo>,
    /// Wall-clock time at which its timeline's 0 is played: `availabilityStartTime`.
    pub epoch: UnixMicros,
    /// From which period on the wall clock had been set by how many microseconds since the stream
    /// began: `epoch` is off by that.
    pub clock_sets: Vec<(u64, i64)>,
    /// Counts changes.
    pub version: u64,
}

/// A live stream.
#[derive(Debug)]
pub struct Stream {
    name: Arc<str>,
    settings: Settings,
    since: UnixMicros,
    state: watch::Sender<Arc<State>>,
    inner: Mutex<Inner>,
    viewers: Arc<Viewers>,
    manifests: [ArcSwapOption<(u64, Bytes)>; Delivery::ALL.len()],
    ready: watch::Sender<bool>,
    /// What no segment exceeds, once that is known.
    target_duration: watch::Sender<Option<Duration>>,
    /// What the wall clock is ahead of the clock that never steps, in microseconds.
    ahead: Arc<AtomicI64>,
}

/// What publishers change.
#[derive(Debug)]
pub(crate) struct Inner {
    /// When the stream's time 0 was, by the clock that never steps.
    epoch: UnixMicros,
    /// The same by the wall clock, for what is told to viewers.
    dates: Dates,
    /// The latter as it was with the first sample. DASH clients hold on to it.
    began: Option<UnixMicros>,
    gop: Gop,
    pub(crate) learnt: Option<Learnt>,
    /// Where the first publisher publishes from.
    owner: Option<PublisherInfo>,
    pub(crate) turns: Limiter,
    pub(crate) period: u64,
    /// Whether a sample of it has come.
    period_begun: bool,
    pub(crate) publishers: Vec<Active>,
    next_publisher: u64,
    pub(crate) tracks: Vec<TrackState>,
    /// Number of the first segment.
    first_msn: u64,
    pub(crate) boundaries: Boundaries,
    /// Tracks so far, of video and of others: no name comes twice.
    pub(crate) named: [u32; 2],
    /// When the last publisher was found to be gone.
    lost: Option<UnixMicros>,
    ended: Option<UnixMicros>,
    /// Where its tracks' windows are.
    pub(crate) memory: Arc<Memory>,
    /// What they hold of it.
    pub(crate) account: Arc<Account>,
}

/// One of who publish.
#[derive(Debug)]
pub(crate) struct Active {
    id: u64,
    info: PublisherInfo,
    pub(crate) last_sample: UnixMicros,
    /// Its tracks, by track_ID.
    pub(crate) tracks: Vec<u32>,
    timeline: Timeline,
    turns: Limiter,
    /// For who makes a rendition of the stream's own media.
    pub(crate) derives: Option<Derives>,
}

/// What is known of a rendition that is made of the stream's own media.
#[derive(Debug, Default)]
pub(crate) struct Derives {
    /// Manifests wait for its first segment, until then.
    pub(crate) awaited: Option<UnixMicros>,
}

/// Counts what may happen [`MOST_TURNS`] times a minute.
#[derive(Debug, Default)]
pub(crate) struct Limiter {
    since: UnixMicros,
    count: u32,
}

impl Limiter {
    /// It happened; answers whether that was not too often.
    pub(crate) fn allows(&mut self, now: UnixMicros) -> bool {
        if now.since(self.since) >= Duration::from_secs(60) {
            *self = Self { since: now, count: 0 };
        }
        self.count = self.count.saturating_add(1);
        self.count <= MOST_TURNS
    }
}

impl Stream {
    /// A stream nobody publishes yet; no segment of it has a number below `after`. `ahead` is by how
    /// much the wall clock is ahead of `now`, whenever it is looked at.
    pub(crate) fn new(
        name: Arc<str>,
        settings: Settings,
        memory: &Arc<Memory>,
        now: UnixMicros,
        after: u64,
        ahead: Arc<AtomicI64>,
    ) -> Self {
        let state = State {
            status: Status::Live,
            tracks: Vec::new(),
            publishers: Vec::new(),
            epoch: now,
            clock_sets: Vec::new(),
            version: 0,
        };
        Self {
            name,
            since: now,
            state: watch::Sender::new(Arc::new(state)),
            inner: Mutex::new(Inner {
                epoch: now,
                dates: Dates::default(),
                began: None,
                gop: Gop::default(),
                learnt: None,
                owner: None,
                turns: Limiter::default(),
                period: 0,
                period_begun: false,
                publishers: Vec::new(),
                next_publisher: 0,
                tracks: Vec::new(),
                first_msn: first_msn(&settings, now).max(after),
                boundaries: Boundaries::default(),
                named: [0; 2],
                lost: None,
                ended: None,
                account: Account::open(memory.budget()),
                memory: Arc::clone(memory),
            }),
            settings,
            viewers: Arc::default(),
            manifests: Default::default(),
            ready: watch::Sender::new(false),
            target_duration: watch::Sender::new(None),
            ahead,
        }
    }

    /// What no segment exceeds, but for rounding to whole seconds: EXT-X-TARGETDURATION. Until the
    /// publisher's keyframes have told, the most that it can be.
    pub fn target_duration(&self) -> Duration {
        let most = || self.settings.target_duration.max(self.settings.keyframe_distance);
        self.target_duration.borrow().unwrap_or_else(most)
    }

    /// How much playlists list: four target durations at least, since players begin three before the
    /// end (RFC 8216bis 6.2.2).
    pub fn window(&self) -> Duration {
        self.settings.window.max(4 * self.target_duration())
    }

    /// Waits until it is known what no segment exceeds, or the stream is over without. Playlists
    /// must not be told before.
    pub async fn settled(&self) -> bool {
        let mut known = self.target_duration.subscribe();
        let mut state = self.state.subscribe();
        tokio::select! {
            _ = known.wait_for(Option::is_some) => {}
            _ = state.wait_for(|state| state.status == Status::Ended) => {}
        }
        self.is_settled()
    }

    /// Whether it is known what no segment exceeds.
    pub fn is_settled(&self) -> bool {
        self.target_duration.borrow().is_some()
    }

    /// What the wall clock is ahead of the clock that never steps, in microseconds.
    pub(crate) fn ahead(&self) -> i64 {
        self.ahead.load(Ordering::Relaxed)
    }

    /// Its name, `live/` not included.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A number above those of all its segments.
    pub(crate) fn next_msn(&self) -> u64 {
        self.lock().next_msn()
    }

    /// How it is cut and kept.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// When it began.
    pub fn since(&self) -> UnixMicros {
        self.since
    }

    /// Its tracks and state as they are now.
    pub fn state(&self) -> Arc<State> {
        self.state.borrow().clone()
    }

    /// Its tracks and state, with word of every change.
    pub fn subscribe(&self) -> watch::Receiver<Arc<State>> {
        self.state.subscribe()
    }

    /// A track by its name in URLs.
    pub fn track(&self, name: &str) -> Option<Arc<Track>> {
        self.state.borrow().tracks.iter().find(|track| track.name == name).cloned()
    }

    /// Whether manifests can be written: something has parts, and of each kind that was announced so
    /// has one track. Once true, it stays so.
    pub fn is_ready(&self) -> bool {
        *self.ready.borrow()
    }

    /// Waits until manifests can be written, or the stream is over without.
    pub async fn ready(&self) -> bool {
        let mut ready = self.ready.subscribe();
        let mut state = self.state.subscribe();
        tokio::select! {
            _ = ready.wait_for(|&ready| ready) => {}
            _ = state.wait_for(|state| state.status == Status::Ended) => {}
        }
        self.is_ready()
    }

    /// To be called when a track's window or presence changed.
    pub(crate) fn note_readiness(&self, inner: &Inner) {
        if self.is_ready() {
            return;
        }
        let present = || inner.tracks.iter().filter(|track| track.handle.is_present());
        let started = |track: &TrackState| {
            let window = track.packager.window();
            window.all().map(|segment| segment.parts.len()).sum::<usize>() >= 2
        };
        // One rendition that is announced and does not come keeps nobody waiting; that there is
        // audio, or a video, is waited for.
        let has_parts = |kind: Kind| {
            let mut of_kind = present().filter(|track| track.handle.kind == kind).peekable();
            of_kind.peek().is_none() || of_kind.any(|track| track.handle.part_limit().is_some())
        };
        let ready = !inner.awaits_derived()
            && has_parts(Kind::Video)
            && has_parts(Kind::Audio)
            && present().any(started);
        if ready {
            self.ready.send_replace(true);
        }
    }

    /// Offers one of its tracks to new viewers, or no longer.
    pub fn offer(&self, track: &Track, offered: bool) {
        if track.set_offered(offered) {
            self.announce(&self.lock());
        }
    }

    /// Counts a viewer for as long as the guard lives.
    pub fn watch(&self, delivery: Delivery) -> Viewing {
        self.viewers.watch(delivery)
    }

    /// Counts a viewer that comes by requests; `who` tells viewers apart.
    pub fn seen(&self, delivery: Delivery, who: u64, now: UnixMicros) {
        self.viewers.seen(delivery, who, now);
    }

    /// How many watch, by every delivery.
    pub fn viewers(&self, now: UnixMicros) -> [(Delivery, usize); Delivery::ALL.len()] {
        self.viewers.count(now)
    }

    /// The stream's manifest for `delivery` (of HLS the multivariant playlist), rendered by `render`
    /// unless it was for this `version` of it. Versions only grow.
    pub fn manifest(
        &self,
        delivery: Delivery,
        version: u64,
        render: impl FnOnce() -> Bytes,
    ) -> Bytes {
        let manifest = &self.manifests[delivery as usize];
        if let Some(known) = &*manifest.load()
            && known.0 == version
        {
            return known.1.clone();
        }
        let rendered = render();
        manifest.store(Some(Arc::new((version, rendered.clone()))));
        rendered
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic while holding it would leave a half-cut chunk at worst; other viewers go on.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn announce(&self, inner: &Inner) {
        let status = match (inner.ended, inner.is_published()) {
            (Some(_), _) => Status::Ended,
            (None, false) => Status::Offline,
            (None, true) => Status::Live,
        };
        self.state.send_modify(|state| {
            *state = Arc::new(State {
                status,
                tracks: inner.tracks.iter().map(|track| Arc::clone(&track.handle)).collect(),
                publishers: inner.publishers.iter().map(|active| active.info.clone()).collect(),
                epoch: inner.began.unwrap_or(inner.epoch),
                clock_sets: inner.dates.sets().to_vec(),
                version: state.version + 1,
            });
        });
    }

    /// Adds one to who publish, by a number that is answered. Refused where the stream is over.
    pub(crate) fn enter(
        &self,
        info: &PublisherInfo,
        derives: Option<Derives>,
        now: UnixMicros,
    ) -> Result<u64, PublishError> {
        let mut inner = self.lock();
        if inner.is_over() {
            return Err(PublishError::Over);
        }
        if derives.is_none() && !self.settings.foreign_renditions && inner.is_foreign(info) {
            return Err(PublishError::Foreign);
        }
        if let Some(at) =
            inner.publishers.iter().position(|active| active.info.rendition == info.rendition)
        {
            let active = &inner.publishers[at];
            // What is made here comes again when there is something to make it of.
            let is_here =
                active.derives.is_some() || now.since(active.last_sample) < self.settings.silence;
            if is_here {
                return Err(PublishError::InUse(active.info.clone()));
            }
            let silent = inner.publishers.remove(at);
            let peer = silent.info.peer.map(tracing::field::display);
            tracing::info!(stream = %self.name, peer, "silent publisher replaced");
        }
        if derives.is_none() {
            // What it publishes does not follow on what was published before, if anything was. Beside
            // others it finds its place on their timeline.
            let returns = inner.tracks.iter().any(|track| track.handle.rendition == info.rendition);
            if returns && !inner.is_published() {
                if inner.period_begun && !inner.turns.allows(now) {
                    return Err(PublishError::TooOften);
                }
                inner.next_period();
            }
            if !inner.is_published() {
                inner.owner = Some(info.clone());
            }
            inner.lost = None;
            inner.account.resume();
        }
        inner.next_publisher += 1;
        let id = inner.next_publisher;
        inner.publishers.push(Active {
            id,
            info: info.clone(),
            last_sample: now,
            tracks: Vec::new(),
            timeline: Timeline::default(),
            turns: Limiter::default(),
            derives,
        });
        self.announce(&inner);
        Ok(id)
    }

    /// Does what time demands; answers whether the stream is over and may be forgotten.
    pub(crate) fn sweep(&self, now: UnixMicros) -> bool {
        self.viewers.sweep(now);
        let mut inner = self.lock();
        inner.give_way();
        if let Some(ended) = inner.ended {
            return now.since(ended) > self.window();
        }
        let mut changed = false;
        for active in inner.publishers.iter_mut().filter_map(|active| active.derives.as_mut()) {
            active.awaited.take_if(|until| now >= *until);
        }
        let live = inner.is_published();
        if !live && inner.lost.is_none() {
            inner.lost = Some(now);
        }
        if inner.lost.is_some_and(|lost| now.since(lost) >= self.settings.reconnect) {
            for track in &mut inner.tracks {
                if let Err(error) = track.packager.end_stream(now) {
                    tracing::warn!(stream = %self.name, track = track.handle.name, %error, "end");
                }
                track.publish();
            }
            inner.ended = Some(now);
            changed = true;
            tracing::info!(stream = %self.name, "stream ended");
        }
        let inner = &mut *inner;
        let mut gone = Vec::new();
        let newest = inner.tracks.iter().map(|track| track.last_sample).max().unwrap_or(now);
        for track in &mut inner.tracks {
            let quiet = now.since(track.last_sample);
            if quiet > HELD {
                match track.packager.flush(now) {
                    Ok(true) => track.publish(),
                    Ok(false) => {}
                    Err(error) => {
                        let track = &track.handle.name;
                        tracing::warn!(stream = %self.name, track, %error, "samples held back");
                    }
                }
            }
            if inner.ended.is_some() {
                continue;
            }
            // While nobody publishes, what was there is waited for: not what had gone before.
            if !live {
                let recent = newest.since(track.last_sample) < self.settings.silence;
                let there = track.packager.window().newest().is_some() && (recent || track.silent);
                changed |= track.handle.set_present(there);
                continue;
            }
            let id = track.id();
            let announced = inner.publishers.iter().any(|active| active.tracks.contains(&id));
            let returned = |active: &Active| active.info.rendition == track.handle.rendition;
            // Its publisher is back without it, or may yet come back with it. Where nothing at all comes, as
            // from a publisher whose network is interrupted, all tracks are waited for.
            let behind = newest.since(track.last_sample);
            let expected = match announced || !inner.publishers.iter().any(returned) {
                true => behind < self.settings.silence || announced && track.silent,
                false => quiet < Duration::from_secs(1),
            };
            changed |= track.handle.set_present(expected && !track.missing);
            // Whoever plays a track that has gone is given silence for as long as it asks, if that can
            // be made; a player of segments that plays two tracks would else wait for ever.
            let played = track.silent && track.handle.is_asked_for(now, self.settings.reconnect);
            if !announced && quiet >= self.settings.reconnect && !played {
                gone.push(id);
            }
        }
        for id in gone {
            changed = true;
            self.remove(inner, id, now);
        }
        if let Some(learnt) = inner.learn_by_waiting(now, &self.settings) {
            self.learn(inner, learnt);
        }
        if changed {
            self.announce(inner);
        }
        self.note_readiness(inner);
        // A stream whose only publisher left before any sample has nothing to wait for.
        let abandoned = !inner.is_published() && inner.tracks.is_empty();
        if abandoned {
            inner.ended = Some(now);
            self.announce(inner);
        }
        abandoned
    }

    /// Ends a track whose publisher has gone, for those who still follow it, and lets go of it.
    fn remove(&self, inner: &mut Inner, id: u32, now: UnixMicros) {
        let Some(at) = inner.track(id) else { return };
        let mut track = inner.tracks.remove(at);
        let name = &track.handle.name;
        if let Err(error) = track.packager.end_stream(now) {
            tracing::warn!(stream = %self.name, track = name, %error, "end of a track");
        }
        tracing::info!(stream = %self.name, track = name, "track ended: nobody publishes it");
        track.handle.set_present(false);
        track.publish();
    }

    /// It is known what segments may last.
    pub(crate) fn learn(&self, inner: &mut Inner, learnt: Learnt) {
        inner.learnt = Some(learnt);
        for track in &mut inner.tracks {
            track.packager.set_target_duration(learnt.target_duration, learnt.regular);
        }
        self.target_duration.send_replace(Some(learnt.target_duration));
        tracing::debug!(stream = %self.name, ?learnt, "what a segment may last");
    }
}

impl Inner {
    /// Where among the publishers `id` is; `None` if another took its place.
    pub(crate) fn publisher(&self, id: u64) -> Option<usize> {
        self.publishers.iter().position(|active| active.id == id)
    }

    /// Where among the tracks the one with this track_ID is; `None` if it has gone.
    pub(crate) fn track(&self, id: u32) -> Option<usize> {
        self.tracks.iter().position(|track| track.id() == id)
    }

    /// Whether it is a rendition from elsewhere than the stream's first publisher.
    fn is_foreign(&self, info: &PublisherInfo) -> bool {
        let address = |info: &PublisherInfo| info.peer.map(|peer| peer.ip().to_canonical());
        let from: Option<IpAddr> = address(info);
        // What is made here of the stream's own media is nobody's.
        let mut others = self.publishers.iter().filter(|active| active.derives.is_none());
        let others = others.any(|active| active.info.rendition != info.rendition);
        (info.rendition.is_some() || others)
            && self.owner.as_ref().is_some_and(|owner| address(owner) != from)
    }

    /// Whether the stream's timeline is this publisher's: the first of those that publish.
    pub(crate) fn is_main(&self, publisher: usize) -> bool {
        let mut others = self.publishers[..publisher].iter();
        !others.any(|active| active.derives.is_none())
    }

    /// Whether somebody publishes it, other than what is made of its own media.
    pub(crate) fn is_published(&self) -> bool {
        self.publishers.iter().any(|active| active.derives.is_none())
    }

    /// Whether a rendition of it is being made, and can be expected soon.
    fn awaits_derived(&self) -> bool {
        let derives = self.publishers.iter().filter_map(|active| active.derives.as_ref());
        derives.into_iter().any(|derives| derives.awaited.is_some())
    }

    /// A number above those of all complete segments, and of those of tracks it let go of.
    fn next_msn(&self) -> u64 {
        let tracks = self.tracks.iter().map(|track| track.packager.next_msn());
        tracks.fold(self.first_msn, u64::max)
    }

    /// Whether it is over.
    pub(crate) fn is_over(&self) -> bool {
        self.ended.is_some()
    }

    /// The timeline begins with the first sample. Answers whether this is the first.
    pub(crate) fn begin(&mut self, now: UnixMicros, ahead: i64) -> bool {
        if self.began.is_some() {
            return false;
        }
        self.epoch = UnixMicros(now.0.saturating_sub(ORIGIN.unsigned_abs()));
        self.dates.begin(ORIGIN, signed(now), ahead);
        self.began = Some(UnixMicros(u64::try_from(self.dates.epoch(0, ORIGIN)).unwrap_or(0)));
        true
    }

    /// Places time `t` of a publisher's track, in microseconds, on the stream's timeline, where the
    /// track's media end at `end`. A jump of the clock that the timeline goes by begins a period; another publisher that jumps is put back
    /// to where the stream is, which nobody else notices. `None`: it jumps too often.
    pub(crate) fn place(
        &mut self,
        publisher: usize,
        clock: &mut TrackClock,
        (t, end): (i64, Option<i64>),
        now: UnixMicros,
        ahead: i64,
    ) -> Option<Mapped> {
        let here = self.here(now);
        if self.publishers[publisher].timeline.offset().is_none() {
            let others = self.publishers.iter().find_map(|active| active.timeline.offset());
            self.publishers[publisher].timeline = Timeline::beside(others);
        }
        let main = self.is_main(publisher);
        let active = &mut self.publishers[publisher];
        let mapped = active.timeline.map(clock, t, (signed(now), here), end);
        if matches!(mapped, Mapped::Jumped { .. }) {
            let turns = if main { &mut self.turns } else { &mut active.turns };
            if !turns.allows(now) {
                return None;
            }
            if main {
                self.next_period();
            }
        }
        self.begin_period(ahead);
        Some(mapped)
    }

    /// A sample of this period comes.
    fn begin_period(&mut self, ahead: i64) {
        if !std::mem::replace(&mut self.period_begun, true) && self.period > 0 {
            self.dates.turn(self.period, ahead);
        }
    }

    /// Whether what follows, at stream time `t` of the leading track, must be told apart from what
    /// was: nothing came for longer than a segment may last, or the wall clock was set.
    pub(crate) fn breaks_off(&mut self, index: usize, t: i64, sync: bool, ahead: i64) -> bool {
        let longest = self.learnt.map_or(i64::MAX, |learnt| {
            i64::try_from(learnt.target_duration.as_micros()).unwrap_or(i64::MAX)
        });
        let track = &self.tracks[index];
        let paused = track.packager.is_in(self.period)
            && track.end().is_some_and(|end| t.saturating_sub(end) > longest);
        let breaks = self.period_begun && (paused || sync && self.dates.is_set(ahead));
        if breaks {
            self.next_period();
            self.begin_period(ahead);
        }
        breaks
    }

    /// How often the wall clock was set.
    pub(crate) fn clock_sets(&self) -> usize {
        self.dates.sets().len()
    }

    /// Has a sample of this period, its times on the stream's timeline in its track's timescale,
    /// packaged. Where the leading track starts segments the others follow.
    pub(crate) fn push(
        &mut self,
        index: usize,
        leads: bool,
        period: u64,
        sample: Sample,
        (now, ahead): (UnixMicros, i64),
    ) -> io::Result<()> {
        self.give_way();
        let units = self.tracks[index].timescale();
        let at = rescale(sample.dts, units, 1_000_000);
        let shown = rescale(sample.pts(), units, 1_000_000);
        if leads {
            self.keep_time(at, now);
            self.dates.observe(at, signed(now));
        }
        let track = &mut self.tracks[index];
        let cutting = if leads || track.handle.kind == Kind::Video {
            Cutting::Leading
        } else {
            Cutting::Following(&self.boundaries)
        };
        let tapped = track.handle.taps.are_read().then(|| sample.clone());
        let before = track.packager.next_msn();
        let opens = track.packager.is_between_segments();
        let changed = track.packager.push(sample, period, cutting, now, &self.dates)?;
        match tapped {
            Some(sample) => {
                let header = Arc::clone(track.packager.header());
                track.handle.taps.hand(Unit { sample, period, header, received: now });
            }
            None => track.handle.taps.rest(),
        }
        let begins = leads && (opens || track.packager.next_msn() != before);
        if let Some((start, end)) = track.packager.segment_times().filter(|_| begins) {
            self.boundaries.push(rescale(start, units, 1_000_000));
            self.boundaries.next = end.map(|end| rescale(end, units, 1_000_000));
        }
        if changed {
            track.publish();
        }
        if begins {
            let from = self.tracks.iter().filter_map(TrackState::end).fold(shown, i64::max);
            self.dates.adjust(period, from, ahead);
        }
        Ok(())
    }

    /// Gives up the oldest segment of each track if memory runs out and this stream holds more than its
    /// share.
    fn give_way(&mut self) {
        if let Some(pressure) = self.account.pressure() {
            let given_up = self.shorten(pressure);
            self.account.gave_up(given_up);
        }
    }

    /// Takes the oldest segment from each track that can do without; how many there were.
    fn shorten(&mut self, pressure: Pressure) -> u64 {
        let mut given_up = 0;
        for track in &mut self.tracks {
            if track.packager.give_way(pressure) {
                track.publish();
                given_up += 1;
            }
        }
        given_up
    }

    /// What follows does not continue what came before. Several reasons before the next sample,
    /// such as a publisher that returns with another configuration, make one discontinuity: there
    /// is one tag for it, and numbers that count discontinuities must agree with the tags.
    pub(crate) fn next_period(&mut self) {
        self.period += u64::from(self.period_begun);
        self.period_begun = false;
    }

    /// The track whose keyframes decide where segments end: of those that are coming the one that came
    /// first. Nothing is cut by one that was announced and sends nothing, nor is anything learnt of it.
    pub(crate) fn leader(&self) -> Option<usize> {
        let first = |kind: Kind| {
            let tracks = self.tracks.iter().enumerate();
            let coming = tracks
                .filter(|(_, track)| track.handle.kind == kind && track.handle.is_coming())
                .min_by_key(|(_, track)| track.began.map_or(u64::MAX, |began| began.0));
            coming.map(|(index, _)| index)
        };
        first(Kind::Video).or_else(|| first(Kind::Audio))
    }

    /// Where the stream stands, microseconds of stream time.
    fn here(&self, now: UnixMicros) -> i64 {
        let wall = i64::try_from(now.since(self.epoch).as_micros()).unwrap_or(i64::MAX);
        self.tracks.iter().filter_map(TrackState::end).fold(wall, i64::max)
    }

    /// Number of a new track's first segment: that of the leading track's newest, or, for the
    /// first track, the stream's.
    pub(crate) fn joining_msn(&self) -> u64 {
        let leader = self.leader().map(|index| self.tracks[index].packager.next_msn());
        leader.unwrap_or(self.first_msn)
    }

    /// Lets silence stand in for audio that has fallen behind the leading track: that of
    /// `publisher`, and what no longer has one. Answers whether any is no longer offered.
    pub(crate) fn stand_in(
        &mut self,
        stream: &str,
        publisher: usize,
        now: UnixMicros,
    ) -> io::Result<bool> {
        let leader = self.leader().map(|index| &self.tracks[index]);
        let Some(leader) = leader.filter(|leader| leader.handle.kind == Kind::Video) else {
            return Ok(false);
        };
        let Some(end) = leader.end() else { return Ok(false) };
        let lasts = rescale(leader.packager.last_duration(), leader.timescale(), 1_000_000);
        // When the newest frame is due: that is how far its audio should be.
        let newest = (end - lasts, lasts);
        let mut changed = false;
        for track in self.tracks.iter_mut().filter(|track| track.handle.kind == Kind::Audio) {
            let id = track.id();
            let others = self.publishers.iter().enumerate();
            let elsewhere = others
                .into_iter()
                .any(|(at, active)| at != publisher && active.tracks.contains(&id));
            if !elsewhere {
                let at = (self.period, &self.boundaries, &self.dates);
                changed |= track.stand_in(stream, newest, at, now)?;
            }
        }
        Ok(changed)
    }

    /// Audio of `index` comes, or comes again, the next at decode time `dts`: silence stands in for
    /// what is missing before. Answers whether the track is offered again.
    pub(crate) fn resume(&mut self, index: usize, dts: i64, now: UnixMicros) -> io::Result<bool> {
        let track = &mut self.tracks[index];
        track.resume(dts, (self.period, &self.boundaries, &self.dates), now)
    }

    /// Learns from a sample of the leading track what segments may last.
    pub(crate) fn learn(
        &mut self,
        index: usize,
        sample: &Sample,
        settings: &Settings,
    ) -> Option<Learnt> {
        if self.learnt.is_some() {
            return None;
        }
        let track = &self.tracks[index];
        let at = rescale(sample.pts(), track.timescale(), 1_000_000);
        if track.handle.kind == Kind::Video {
            return self.gop.observe((at, sample.sync), &sample.data, settings);
        }
        let first = *self.boundaries.starts.front()?;
        (at - first >= SOUND_ALONE).then(|| Learnt::regular(settings))
    }

    /// What segments may last where no sample tells: who waits for playlists does not wait for a
    /// video that is announced and never comes, nor for a keyframe without end.
    fn learn_by_waiting(&self, now: UnixMicros, settings: &Settings) -> Option<Learnt> {
        let leader = &self.tracks[self.leader().filter(|_| self.learnt.is_none())?];
        let waited = {
            let window = leader.packager.window();
            let first = window.all().next()?.parts.first()?.published;
            now.since(first)
        };
        match leader.handle.kind {
            Kind::Video if waited <= settings.keyframe_distance => None,
            Kind::Video => Some(Learnt::irregular(settings)),
            _ => Some(Learnt::regular(settings)),
        }
    }

    /// Follows the wall clock: a sample for stream time `t` arrived at `now`. Earlier than ever
    /// is nearer the truth, much later is drift.
    fn keep_time(&mut self, t: i64, now: UnixMicros) {
        let epoch = now.0.saturating_sub(u64::try_from(t).unwrap_or(0));
        if epoch < self.epoch.0 || epoch > self.epoch.0 + DRIFT {
            self.epoch = UnixMicros(epoch);
        }
    }
}

fn signed(time: UnixMicros) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX)
}

/// Number of a stream's first segment: seconds since 1970, or parts of a second where segments may
/// be shorter. More than so many are not made for long (half a segment target is the shortest), so
/// the numbers of a stream that ended, or of one before a restart, do not come again, and caches
/// that hold segments of it can do no harm.
fn first_msn(settings: &Settings, now: UnixMicros) -> u64 {
    let shortest = u64::try_from(settings.segment_target.as_micros() / 2).unwrap_or(u64::MAX);
    (now.0 / shortest.clamp(1, 1_000_000)).max(1)
}
