//! A live stream: its tracks, who publishes them, and who watches.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use media::{Kind, Sample};
use tokio::sync::watch;

use crate::memory::{Account, Memory};
use crate::packager::Cutting;
use crate::publisher::{Publisher, PublisherInfo};
use crate::timeline::{Mapped, ORIGIN, Timeline, TrackClock};
use crate::track::{Track, TrackState};
use crate::viewers::{Delivery, Viewers, Viewing};
use crate::{Settings, UnixMicros, rescale};

/// Segment starts of the leading track that followers may still cut at.
const BOUNDARIES: usize = 16;
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
    /// Every track it has had, in order of arrival. Names are stable.
    pub tracks: Vec<Arc<Track>>,
    /// Who publishes now.
    pub publishers: Vec<PublisherInfo>,
    /// Wall-clock time at which its timeline's 0 is played: `availabilityStartTime`.
    pub epoch: UnixMicros,
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
}

/// What publishers change.
#[derive(Debug)]
pub(crate) struct Inner {
    epoch: UnixMicros,
    /// The epoch as it was with the first sample. DASH clients hold on to it.
    began: Option<UnixMicros>,
    pub(crate) period: u64,
    /// Whether a sample of it has come.
    period_begun: bool,
    pub(crate) publishers: Vec<Active>,
    next_publisher: u64,
    pub(crate) tracks: Vec<TrackState>,
    /// Number of the first segment.
    first_msn: u64,
    /// Starts of the leading track's segments, microseconds of stream time.
    pub(crate) boundaries: VecDeque<i64>,
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
    timeline: Timeline,
    /// For who makes a rendition of the stream's own media.
    pub(crate) derives: Option<Derives>,
}

/// What is known of a rendition that is made of the stream's own media.
#[derive(Debug, Default)]
pub(crate) struct Derives {
    /// Manifests wait for its first sample, until then.
    pub(crate) awaited: Option<UnixMicros>,
}

impl Stream {
    /// A stream nobody publishes yet; no segment of it has a number below `after`.
    pub(crate) fn new(
        name: Arc<str>,
        settings: Settings,
        memory: &Arc<Memory>,
        now: UnixMicros,
        after: u64,
    ) -> Self {
        let state = State {
            status: Status::Live,
            tracks: Vec::new(),
            publishers: Vec::new(),
            epoch: now,
            version: 0,
        };
        Self {
            name,
            since: now,
            state: watch::Sender::new(Arc::new(state)),
            inner: Mutex::new(Inner {
                epoch: now,
                began: None,
                period: 0,
                period_begun: false,
                publishers: Vec::new(),
                next_publisher: 0,
                tracks: Vec::new(),
                first_msn: first_msn(&settings, now).max(after),
                boundaries: VecDeque::new(),
                lost: None,
                ended: None,
                account: Account::open(memory.budget()),
                memory: Arc::clone(memory),
            }),
            settings,
            viewers: Arc::default(),
            manifests: Default::default(),
            ready: watch::Sender::new(false),
        }
    }

    /// Its name, `live/` not included.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A number above those of all its segments.
    pub(crate) fn next_msn(&self) -> u64 {
        let inner = self.lock();
        inner.tracks.iter().map(|track| track.packager.next_msn()).max().unwrap_or(0)
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

    /// Whether manifests can be written: every track that was announced has parts, and there was
    /// time for each to be announced. Once true, it stays so.
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
        let mut present = inner.tracks.iter().filter(|track| track.handle.is_present()).peekable();
        let started = |track: &TrackState| {
            let window = track.packager.window();
            window.all().map(|segment| segment.parts.len()).sum::<usize>() >= 2
        };
        let ready = present.peek().is_some()
            && !inner.awaits_derived()
            && present.all(|track| track.handle.part_limit().is_some())
            && inner.tracks.iter().any(started);
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
                version: state.version + 1,
            });
        });
    }

    /// Lets a publisher in. `Err` names who publishes already.
    pub(crate) fn admit(
        self: &Arc<Self>,
        info: PublisherInfo,
        now: UnixMicros,
    ) -> Result<Publisher, PublisherInfo> {
        let id = self.enter(&info, None, now)?;
        Ok(Publisher::new(Arc::clone(self), id, info))
    }

    /// Adds one to who publish, by a number that is answered. `Err` names who publishes already.
    pub(crate) fn enter(
        &self,
        info: &PublisherInfo,
        derives: Option<Derives>,
        now: UnixMicros,
    ) -> Result<u64, PublisherInfo> {
        let mut inner = self.lock();
        if let Some(at) =
            inner.publishers.iter().position(|active| active.info.rendition == info.rendition)
        {
            let active = &inner.publishers[at];
            // What is made here comes again when there is something to make it of.
            let is_here =
                active.derives.is_some() || now.since(active.last_sample) < self.settings.silence;
            if is_here {
                return Err(active.info.clone());
            }
            let silent = inner.publishers.remove(at);
            let peer = silent.info.peer.map(tracing::field::display);
            tracing::info!(stream = %self.name, peer, "silent publisher replaced");
        }
        if derives.is_none() {
            // What it publishes does not follow on what was published before, if anything was.
            let returns = inner.tracks.iter().any(|track| track.handle.rendition == info.rendition);
            if returns {
                inner.next_period();
            }
            inner.lost = None;
        }
        inner.next_publisher += 1;
        let id = inner.next_publisher;
        let (info, timeline) = (info.clone(), Timeline::default());
        inner.publishers.push(Active { id, info, last_sample: now, timeline, derives });
        self.announce(&inner);
        Ok(id)
    }

    /// Does what time demands; answers whether the stream is over and may be forgotten.
    pub(crate) fn sweep(&self, now: UnixMicros) -> bool {
        self.viewers.sweep(now);
        let mut inner = self.lock();
        inner.give_way();
        if let Some(ended) = inner.ended {
            return now.since(ended) > self.settings.window;
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
        for track in &mut inner.tracks {
            let quiet = now.since(track.last_sample);
            if quiet > Duration::from_secs(1) {
                match track.packager.flush(now) {
                    Ok(true) => track.publish(),
                    Ok(false) => {}
                    Err(error) => {
                        let track = &track.handle.name;
                        tracing::warn!(stream = %self.name, track, %error, "samples held back");
                    }
                }
            }
            let expected = quiet < self.settings.silence || track.silent;
            let present = !live || (expected && !track.missing);
            changed |= track.handle.set_present(present);
        }
        if changed {
            self.announce(&inner);
        }
        self.note_readiness(&inner);
        // A stream whose only publisher left before any sample has nothing to wait for.
        let abandoned = !inner.is_published() && inner.tracks.is_empty();
        if abandoned {
            inner.ended = Some(now);
            self.announce(&inner);
        }
        abandoned
    }
}

impl Inner {
    /// Where among the publishers `id` is; `None` if another took its place.
    pub(crate) fn publisher(&self, id: u64) -> Option<usize> {
        self.publishers.iter().position(|active| active.id == id)
    }

    /// Whether somebody publishes it, other than what is made of its own media.
    fn is_published(&self) -> bool {
        self.publishers.iter().any(|active| active.derives.is_none())
    }

    /// Whether a rendition of it is being made, and can be expected soon.
    fn awaits_derived(&self) -> bool {
        let derives = self.publishers.iter().filter_map(|active| active.derives.as_ref());
        derives.into_iter().any(|derives| derives.awaited.is_some())
    }

    /// Whether it is over.
    pub(crate) fn is_over(&self) -> bool {
        self.ended.is_some()
    }

    /// The timeline begins with the first sample. Answers whether this is the first.
    pub(crate) fn begin(&mut self, now: UnixMicros) -> bool {
        if self.began.is_some() {
            return false;
        }
        self.epoch = UnixMicros(now.0.saturating_sub(ORIGIN.unsigned_abs()));
        self.began = Some(self.epoch);
        true
    }

    /// Places time `t` of a publisher's track, in microseconds, on the stream's timeline. A jump of
    /// the publisher's clock begins a period.
    pub(crate) fn place(
        &mut self,
        publisher: usize,
        clock: &mut TrackClock,
        t: i64,
        now: UnixMicros,
    ) -> Mapped {
        let here = self.here(now);
        if self.publishers[publisher].timeline.offset().is_none() {
            let others = self.publishers.iter().find_map(|active| active.timeline.offset());
            self.publishers[publisher].timeline = Timeline::beside(others);
        }
        let wall = i64::try_from(now.0).unwrap_or(i64::MAX);
        let mapped = self.publishers[publisher].timeline.map(clock, t, wall, here);
        if matches!(mapped, Mapped::Jumped { .. }) {
            self.next_period();
        }
        self.period_begun = true;
        mapped
    }

    /// Has a sample of this period, its times on the stream's timeline in its track's timescale,
    /// packaged. Where the leading track starts segments the others follow.
    pub(crate) fn push(
        &mut self,
        index: usize,
        leads: bool,
        period: u64,
        sample: Sample,
        now: UnixMicros,
    ) -> io::Result<()> {
        self.give_way();
        let units = self.tracks[index].timescale();
        let at = rescale(sample.dts, units, 1_000_000);
        if leads {
            self.keep_time(at, now);
        }
        let captured = UnixMicros(self.epoch.0.saturating_add(u64::try_from(at).unwrap_or(0)));
        let track = &mut self.tracks[index];
        let cutting = if leads || track.handle.kind == Kind::Video {
            Cutting::Leading
        } else {
            Cutting::Following(&self.boundaries)
        };
        let before = track.packager.next_msn();
        let opens = track.packager.is_between_segments();
        let changed = track.packager.push(sample, period, cutting, now, captured)?;
        if leads
            && (opens || track.packager.next_msn() != before)
            && let Some(start) = track.packager.segment_start()
        {
            self.boundaries.push_back(rescale(start, units, 1_000_000));
            if self.boundaries.len() > BOUNDARIES {
                self.boundaries.pop_front();
            }
        }
        if changed {
            track.publish();
        }
        Ok(())
    }

    /// Gives up the oldest segment of each track if memory runs out and this stream holds more than its
    /// share.
    fn give_way(&mut self) {
        let Some(pressure) = self.account.pressure() else { return };
        let mut given_up = 0;
        for track in &mut self.tracks {
            if track.packager.give_way(pressure) {
                track.publish();
                given_up += 1;
            }
        }
        self.account.gave_up(given_up);
    }

    /// What follows does not continue what came before. Several reasons before the next sample,
    /// such as a publisher that returns with another configuration, make one discontinuity: there
    /// is one tag for it, and numbers that count discontinuities must agree with the tags.
    pub(crate) fn next_period(&mut self) {
        self.period += u64::from(self.period_begun);
        self.period_begun = false;
    }

    /// The track whose keyframes decide where segments end.
    pub(crate) fn leader(&self) -> Option<usize> {
        let present = |kind: Kind| {
            self.tracks
                .iter()
                .position(|track| track.handle.kind == kind && track.handle.is_coming())
        };
        present(Kind::Video).or_else(|| present(Kind::Audio))
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

    /// Lets silence stand in for audio among `tracks` that has fallen behind the leading track.
    /// Answers whether any is no longer offered.
    pub(crate) fn stand_in(
        &mut self,
        stream: &str,
        tracks: impl Iterator<Item = usize>,
        now: UnixMicros,
    ) -> io::Result<bool> {
        let Some(leader) = self.leader().map(|index| &self.tracks[index]) else { return Ok(false) };
        let Some(end) = leader.end() else { return Ok(false) };
        let lasts = rescale(leader.packager.last_duration(), leader.timescale(), 1_000_000);
        // Where the newest frame starts: that is how far its audio should be.
        let newest = (end - lasts, lasts);
        let mut changed = false;
        for index in tracks {
            let track = &mut self.tracks[index];
            if track.handle.kind == Kind::Audio {
                changed |= track.stand_in(stream, newest, self.period, &self.boundaries, now)?;
            }
        }
        Ok(changed)
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

/// Number of a stream's first segment: seconds since 1970, or parts of a second where segments may
/// be shorter. More than so many are not made for long (half a segment target is the shortest), so
/// the numbers of a stream that ended, or of one before a restart, do not come again, and caches
/// that hold segments of it can do no harm.
fn first_msn(settings: &Settings, now: UnixMicros) -> u64 {
    let shortest = u64::try_from(settings.segment_target.as_micros() / 2).unwrap_or(u64::MAX);
    (now.0 / shortest.clamp(1, 1_000_000)).max(1)
}
