//! A live stream: its tracks, who publishes them, and who watches.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use media::{Codec, Kind, Sample};
use tokio::sync::watch;

use crate::packager::{Cutting, Packager};
use crate::timeline::{Mapped, ORIGIN, Timeline, TrackClock};
use crate::viewers::{Delivery, Viewers, Viewing};
use crate::window::{Header, Window};
use crate::{Settings, UnixMicros, rescale};

/// The most tracks a stream may have.
const MOST_TRACKS: usize = 16;
/// Segment starts of the leading track that followers may still cut at.
const BOUNDARIES: usize = 16;
/// A publisher's clock may lag the wall clock by this before it counts as drift, not jitter.
const DRIFT: u64 = 500_000;
/// Audio so far behind the video is taken to be missing, in microseconds.
const MISSING: i64 = 2_000_000;
/// Silence that stands in for it stays so far behind the video, so that sound that comes back finds
/// its place free.
const BEHIND: i64 = 500_000;
/// So often silence in a track's place is logged.
const SILENCES_TOLD: u32 = 8;
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

/// Who publishes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublisherInfo {
    /// Where from; none for a clip the origin itself publishes.
    pub peer: Option<SocketAddr>,
    /// `rtmp`, or `file` for a clip the origin itself publishes.
    pub protocol: &'static str,
    /// Name of the rendition, where the stream has several publishers.
    pub rendition: Option<String>,
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

/// One track of a stream: what viewers ask for.
#[derive(Debug)]
pub struct Track {
    /// Name in URLs: `v0`, `a0`, …
    pub name: String,
    /// Video or audio.
    pub kind: Kind,
    /// Rendition its publisher named, if any.
    pub rendition: Option<String>,
    window: watch::Sender<Arc<Window>>,
    header: watch::Sender<Arc<Header>>,
    /// `PART-TARGET` in the track's timescale; 0 while unknown.
    part_limit: AtomicU64,
    /// Whether its publisher sends samples for it.
    present: watch::Sender<bool>,
}

impl Track {
    /// The window as it is now.
    pub fn window(&self) -> Arc<Window> {
        self.window.borrow().clone()
    }

    /// The window, with word of every change.
    pub fn subscribe(&self) -> watch::Receiver<Arc<Window>> {
        self.window.subscribe()
    }

    /// The newest header.
    pub fn header(&self) -> Arc<Header> {
        self.header.borrow().clone()
    }

    /// The longest a part may be, in the track's timescale: fixed with the first part.
    pub fn part_limit(&self) -> Option<u32> {
        u32::try_from(self.part_limit.load(Ordering::Acquire)).ok().filter(|&limit| limit > 0)
    }

    /// Whether samples are coming (or are waited for), so that manifests should offer it.
    pub fn is_present(&self) -> bool {
        *self.present.borrow()
    }

    /// Answers whether that is new.
    fn set_present(&self, present: bool) -> bool {
        self.present.send_if_modified(|was| std::mem::replace(was, present) != present)
    }

    /// Samples per second as a fraction, as its newest full part has them.
    pub fn frame_rate(&self) -> Option<(u32, u32)> {
        let window = self.window();
        let timescale = u64::from(self.header().track.timescale);
        let part = window.all().rev().flat_map(|segment| segment.parts.iter().rev()).nth(1)?;
        let (mut n, mut d) = (timescale * part.samples.len() as u64, u64::from(part.duration));
        let (mut a, mut b) = (n, d);
        while b > 0 {
            (a, b) = (b, a % b);
        }
        (n, d) = (n / a.max(1), d / a.max(1));
        Some((u32::try_from(n).ok()?, u32::try_from(d).ok().filter(|&d| d > 0)?))
    }

    /// Mean bits per second over the window, and of its densest segment. From the parts at hand
    /// while there is no complete segment; `None` before the first part.
    pub fn bitrate(&self) -> Option<(u64, u64)> {
        let window = self.window();
        let timescale = u64::from(self.header().track.timescale);
        let rate = |bytes: u64, ticks: u64| bytes * 8 * timescale / ticks.max(1);
        let (mut bytes, mut ticks, mut peak) = (0, 0, 0);
        for segment in window.all() {
            let complete = window.is_complete(segment.msn);
            if complete || window.segments.is_empty() {
                bytes += segment.len() as u64;
                ticks += segment.duration;
                peak = peak.max(rate(segment.len() as u64, segment.duration));
            }
        }
        (ticks > 0).then(|| (rate(bytes, ticks), peak))
    }
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

#[derive(Debug)]
struct Inner {
    epoch: UnixMicros,
    /// The epoch as it was with the first sample. DASH clients hold on to it.
    began: Option<UnixMicros>,
    period: u64,
    /// Whether a sample of it has come.
    period_begun: bool,
    publishers: Vec<Active>,
    next_publisher: u64,
    tracks: Vec<TrackState>,
    /// Number of the first segment.
    first_msn: u64,
    /// Starts of the leading track's segments, microseconds of stream time.
    boundaries: VecDeque<i64>,
    /// When the last publisher was found to be gone.
    lost: Option<UnixMicros>,
    ended: Option<UnixMicros>,
}

#[derive(Debug)]
struct Active {
    id: u64,
    info: PublisherInfo,
    last_sample: UnixMicros,
    offset: Option<i64>,
}

struct TrackState {
    handle: Arc<Track>,
    rendition: Option<String>,
    /// The publisher's own number for it.
    source: u32,
    packager: Packager,
    last_sample: UnixMicros,
    /// How much of the leading video came since its last sample, in microseconds.
    waited: i64,
    /// Silence stands in for its samples, which do not come.
    silent: bool,
    /// How often it has begun to.
    silences: u32,
    /// Its samples do not come, and nothing can stand in for them.
    missing: bool,
}

impl std::fmt::Debug for TrackState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TrackState").field("handle", &self.handle).finish_non_exhaustive()
    }
}

impl Stream {
    /// A stream nobody publishes yet; no segment of it has a number below `after`.
    pub(crate) fn new(name: Arc<str>, settings: Settings, now: UnixMicros, after: u64) -> Self {
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
    fn note_readiness(&self, inner: &Inner) {
        if self.is_ready() {
            return;
        }
        let mut present = inner.tracks.iter().filter(|track| track.handle.is_present()).peekable();
        let started = |track: &TrackState| {
            let window = track.packager.window();
            window.all().map(|segment| segment.parts.len()).sum::<usize>() >= 2
        };
        let ready = present.peek().is_some()
            && present.all(|track| track.handle.part_limit().is_some())
            && inner.tracks.iter().any(started);
        if ready {
            self.ready.send_replace(true);
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

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic while holding it would leave a half-cut chunk at worst; other viewers go on.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn announce(&self, inner: &Inner) {
        let status = match (inner.ended, inner.publishers.is_empty()) {
            (Some(_), _) => Status::Ended,
            (None, true) => Status::Offline,
            (None, false) => Status::Live,
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
        let mut inner = self.lock();
        if let Some(at) =
            inner.publishers.iter().position(|active| active.info.rendition == info.rendition)
        {
            if now.since(inner.publishers[at].last_sample) < self.settings.silence {
                return Err(inner.publishers[at].info.clone());
            }
            let silent = inner.publishers.remove(at);
            let peer = silent.info.peer.map(tracing::field::display);
            tracing::info!(stream = %self.name, peer, "silent publisher replaced");
        }
        // What it publishes does not follow on what was published before, if anything was.
        let returns = inner.tracks.iter().any(|track| track.rendition == info.rendition);
        if returns {
            inner.next_period();
        }
        inner.next_publisher += 1;
        let id = inner.next_publisher;
        inner.publishers.push(Active { id, info: info.clone(), last_sample: now, offset: None });
        inner.lost = None;
        self.announce(&inner);
        drop(inner);
        Ok(Publisher {
            stream: Arc::clone(self),
            id,
            info,
            timeline: Timeline::default(),
            sources: HashMap::new(),
        })
    }

    /// Does what time demands; answers whether the stream is over and may be forgotten.
    pub(crate) fn sweep(&self, now: UnixMicros) -> bool {
        self.viewers.sweep(now);
        let mut inner = self.lock();
        if let Some(ended) = inner.ended {
            return now.since(ended) > self.settings.window;
        }
        let mut changed = false;
        let live = !inner.publishers.is_empty();
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
            if quiet > Duration::from_secs(1) && track.packager.flush(now).unwrap_or(false) {
                track.publish();
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
        let abandoned = inner.publishers.is_empty() && inner.tracks.is_empty();
        if abandoned {
            inner.ended = Some(now);
            self.announce(&inner);
        }
        abandoned
    }
}

impl TrackState {
    /// Pushes `unit` again and again, from `from` to `until` in the track's timescale.
    fn fill(
        &mut self,
        period: u64,
        boundaries: &VecDeque<i64>,
        (unit, duration): (Bytes, u32),
        (from, until): (i64, i64),
        now: UnixMicros,
    ) -> Result<(), Refused> {
        let described = &self.packager.header().track;
        let units = described.timescale;
        let rate = described.codec.sound().map_or(units, |(rate, _)| rate);
        let duration = u32::try_from(rescale(i64::from(duration), rate, units)).unwrap_or(1);
        let boundaries = boundaries.iter().map(|&at| rescale(at, 1_000_000, units)).collect();
        let mut changed = false;
        let mut dts = from;
        while dts + i64::from(duration) <= until {
            let sample = Sample { dts, cts: 0, duration, sync: true, data: unit.clone() };
            changed |=
                self.packager.push(sample, period, Cutting::Following, &boundaries, now, now)?;
            dts = self.packager.end().unwrap_or(dts + i64::from(duration));
        }
        if changed {
            self.publish();
        }
        Ok(())
    }

    fn publish(&self) {
        let window = self.packager.window();
        if let Some(limit) = self.packager.part_limit() {
            self.handle.part_limit.store(u64::from(limit), Ordering::Release);
        }
        if let Some(newest) = window.newest()
            && !Arc::ptr_eq(&newest.header, &self.handle.header.borrow())
        {
            self.handle.header.send_replace(Arc::clone(&newest.header));
        }
        self.handle.window.send_replace(Arc::new(window.clone()));
    }
}

/// Why a publisher's sample was not taken.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// It was silent for too long and another publisher took its place.
    #[error("another publisher took over after this one had been silent")]
    Replaced,
    /// The track cannot be packaged.
    #[error("a track of {0} cannot be packaged")]
    Codec(String),
    /// Too many tracks.
    #[error("a stream has at most {MOST_TRACKS} tracks")]
    TooManyTracks,
    /// The sample is of a track that was not announced.
    #[error("sample of a track without a configuration")]
    UnknownTrack,
    /// The machine failed: no memory file, no memory.
    #[error("packaging failed: {0}")]
    Io(#[from] std::io::Error),
}

/// The right to publish a stream, or one rendition of it. Dropping it leaves the stream waiting
/// for its return.
#[derive(Debug)]
pub struct Publisher {
    stream: Arc<Stream>,
    id: u64,
    info: PublisherInfo,
    timeline: Timeline,
    sources: HashMap<u32, Source>,
}

#[derive(Debug)]
struct Source {
    index: usize,
    timescale: u32,
    clock: TrackClock,
    /// Samples before the first that decoding can start at are dropped, but not for ever: a
    /// stream may have none. Decode time of the first of them.
    waiting: Option<Option<i64>>,
}

impl Publisher {
    /// The stream it publishes.
    pub fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// Who it is.
    pub fn info(&self) -> &PublisherInfo {
        &self.info
    }

    /// Whether another publisher took its place because it was silent.
    pub fn is_replaced(&self) -> bool {
        !self.stream.lock().publishers.iter().any(|active| active.id == self.id)
    }

    /// Announces a track, or a new configuration of one: samples of `source` that follow are of
    /// `codec`, their times in `timescale`.
    ///
    /// # Errors
    /// The codec cannot be packaged, there are too many tracks, or the publisher was replaced.
    pub fn track(
        &mut self,
        source: u32,
        codec: Codec,
        timescale: u32,
        language: [u8; 3],
        now: UnixMicros,
    ) -> Result<(), Refused> {
        let kind = codec.kind();
        if kind == Kind::Other || matches!(codec, Codec::Other(_)) {
            return Err(Refused::Codec(codec.rfc6381().into_owned()));
        }
        let mut inner = self.stream.lock();
        let Some(active) = inner.publishers.iter_mut().find(|active| active.id == self.id) else {
            return Err(Refused::Replaced);
        };
        active.last_sample = now;
        // Audio counts in its own samples, so that access units abut exactly.
        let units = codec.sound().map_or(90_000, |(rate, _)| rate);
        let position = inner.tracks.iter().position(|track| {
            track.rendition == self.info.rendition
                && track.source == source
                && track.handle.kind == kind
        });
        if let Some(index) = position {
            let track = &mut inner.tracks[index];
            let current = track.packager.header().track.clone();
            if current.codec != codec {
                // The timescale stays: the times of what was published are counted in it.
                let described = media::Track { codec, ..current };
                let bytes = header(&described)?;
                let msn = track.packager.next_msn();
                track.packager.reconfigure(Arc::new(Header { msn, track: described, bytes }));
                inner.next_period();
            }
            let video = kind == Kind::Video;
            self.sources.entry(source).or_insert_with(|| Source {
                index,
                timescale,
                clock: TrackClock::default(),
                waiting: video.then_some(None),
            });
            return Ok(());
        }
        if inner.tracks.len() >= MOST_TRACKS {
            return Err(Refused::TooManyTracks);
        }
        let letter = if kind == Kind::Video { 'v' } else { 'a' };
        let number = inner.tracks.iter().filter(|track| track.handle.kind == kind).count();
        let id = u32::try_from(inner.tracks.len() + 1).unwrap_or(u32::MAX);
        let described = media::Track { id, timescale: units, codec, language };
        let header = Arc::new(Header {
            msn: inner.first_msn(),
            bytes: header(&described)?,
            track: described,
        });
        let handle = Arc::new(Track {
            name: format!("{letter}{number}"),
            kind,
            rendition: self.info.rendition.clone(),
            window: watch::Sender::default(),
            header: watch::Sender::new(Arc::clone(&header)),
            part_limit: AtomicU64::new(0),
            present: watch::Sender::new(true),
        });
        let period = inner.period;
        let packager = Packager::new(&self.stream.settings, header, period)?;
        inner.tracks.push(TrackState {
            handle,
            rendition: self.info.rendition.clone(),
            source,
            packager,
            last_sample: now,
            waited: 0,
            silent: false,
            silences: 0,
            missing: false,
        });
        let index = inner.tracks.len() - 1;
        let waiting = (kind == Kind::Video).then_some(None);
        let clock = TrackClock::default();
        self.sources.insert(source, Source { index, timescale, clock, waiting });
        self.stream.announce(&inner);
        Ok(())
    }

    /// Publishes a sample of an announced track. Times are the publisher's own.
    ///
    /// # Errors
    /// The track was not announced, the publisher was replaced, or memory ran out.
    pub fn sample(
        &mut self,
        source: u32,
        mut sample: Sample,
        now: UnixMicros,
    ) -> Result<(), Refused> {
        let Some(entry) = self.sources.get_mut(&source) else {
            return Err(Refused::UnknownTrack);
        };
        let mut guard = self.stream.lock();
        let inner = &mut *guard;
        let Some(active) = inner.publishers.iter_mut().find(|active| active.id == self.id) else {
            return Err(Refused::Replaced);
        };
        active.last_sample = now;
        inner.tracks[entry.index].last_sample = now;
        if let Some(first) = &mut entry.waiting {
            let first = *first.get_or_insert(sample.dts);
            let limit = rescale(
                i64::try_from(self.stream.settings.target_duration.as_millis()).unwrap_or(0),
                1000,
                entry.timescale,
            );
            if !sample.sync && sample.dts.saturating_sub(first) < limit {
                return Ok(());
            }
            entry.waiting = None;
        }

        let wall = i64::try_from(now.0).unwrap_or(i64::MAX);
        if inner.began.is_none() {
            inner.epoch = UnixMicros(now.0.saturating_sub(ORIGIN.unsigned_abs()));
            inner.began = Some(inner.epoch);
            self.stream.announce(inner);
        }
        let here = inner.here(now);
        let said = rescale(sample.dts, entry.timescale, 1_000_000);
        if self.timeline.offset().is_none() {
            let others = inner.publishers.iter().filter(|active| active.id != self.id);
            self.timeline = Timeline::beside(others.filter_map(|active| active.offset).next());
        }
        let offset = match self.timeline.map(&mut entry.clock, said, wall, here) {
            Mapped::Offset(offset) => offset,
            Mapped::Jumped { offset, by } => {
                inner.next_period();
                let track = &inner.tracks[entry.index].handle.name;
                tracing::debug!(
                    stream = %self.stream.name, peer = ?self.info.peer, %track,
                    at_ms = said / 1000, by_ms = by / 1000, "publisher's clock jumped"
                );
                offset
            }
        };
        if let Some(active) = inner.publishers.iter_mut().find(|active| active.id == self.id) {
            active.offset = self.timeline.offset();
        }

        let leader = inner.leader();
        let period = inner.period;
        inner.period_begun = true;
        let track = &mut inner.tracks[entry.index];
        let units = track.packager.header().track.timescale;
        let scale = |time: i64| rescale(time, entry.timescale, units);
        let dts = scale(sample.dts).saturating_add(rescale(offset, 1_000_000, units));
        sample.cts = i32::try_from(scale(i64::from(sample.cts))).unwrap_or(0);
        sample.duration = u32::try_from(scale(i64::from(sample.duration))).unwrap_or(0);
        sample.dts = dts;

        let track = &mut inner.tracks[entry.index];
        track.waited = 0;
        if std::mem::take(&mut track.silent)
            && let Some(unit) = crate::silence::access_unit(&track.packager.header().track.codec)
        {
            let from = track.packager.end().unwrap_or(dts);
            track.fill(period, &inner.boundaries, unit, (from, dts), now)?;
        }
        if std::mem::take(&mut track.missing) && track.handle.set_present(true) {
            self.stream.announce(inner);
        }

        let leads = leader == Some(entry.index);
        if leads {
            inner.keep_time(rescale(dts, units, 1_000_000), now);
        }
        let captured = inner
            .epoch
            .0
            .saturating_add(u64::try_from(rescale(dts, units, 1_000_000)).unwrap_or(0));
        let cutting = match inner.tracks[entry.index].handle.kind {
            Kind::Video => Cutting::Leading,
            _ if leads => Cutting::Leading,
            _ => Cutting::Following,
        };
        let boundaries: VecDeque<i64> = match cutting {
            Cutting::Leading => VecDeque::new(),
            Cutting::Following => {
                inner.boundaries.iter().map(|&at| rescale(at, 1_000_000, units)).collect()
            }
        };
        let track = &mut inner.tracks[entry.index];
        let before = track.packager.next_msn();
        let opened = track.packager.is_between_segments();
        let changed =
            track.packager.push(sample, period, cutting, &boundaries, now, UnixMicros(captured))?;
        if leads
            && (opened || track.packager.next_msn() != before)
            && let Some(start) = track.packager.segment_start()
        {
            inner.boundaries.push_back(rescale(start, units, 1_000_000));
            if inner.boundaries.len() > BOUNDARIES {
                inner.boundaries.pop_front();
            }
        }
        if changed {
            inner.tracks[entry.index].publish();
        }
        if leads && self.sources.len() > 1 {
            let indices: Vec<_> = self.sources.values().map(|source| source.index).collect();
            if inner.stand_in(&self.stream, &indices, now)? {
                self.stream.announce(inner);
            }
        }
        self.stream.note_readiness(inner);
        Ok(())
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        let mut inner = self.stream.lock();
        let Some(at) = inner.publishers.iter().position(|active| active.id == self.id) else {
            return;
        };
        let last = inner.publishers.remove(at).last_sample;
        for source in self.sources.values() {
            let track = &mut inner.tracks[source.index];
            match track.packager.flush(last) {
                Ok(true) => track.publish(),
                Ok(false) => {}
                Err(error) => tracing::warn!(stream = %self.stream.name, %error, "last samples"),
            }
        }
        self.stream.announce(&inner);
        self.stream.note_readiness(&inner);
    }
}

impl Inner {
    /// What follows does not continue what came before. Several reasons before the next sample,
    /// such as a publisher that returns with another configuration, make one discontinuity: there
    /// is one tag for it, and numbers that count discontinuities must agree with the tags.
    fn next_period(&mut self) {
        self.period += u64::from(self.period_begun);
        self.period_begun = false;
    }

    /// The track whose keyframes decide where segments end.
    fn leader(&self) -> Option<usize> {
        let present = |kind: Kind| {
            self.tracks
                .iter()
                .position(|track| track.handle.kind == kind && track.handle.is_present())
        };
        present(Kind::Video).or_else(|| present(Kind::Audio))
    }

    /// Where the stream stands, microseconds of stream time.
    fn here(&self, now: UnixMicros) -> i64 {
        let wall = i64::try_from(now.since(self.epoch).as_micros()).unwrap_or(i64::MAX);
        self.tracks
            .iter()
            .filter_map(|track| {
                let units = track.packager.header().track.timescale;
                Some(rescale(track.packager.end()?, units, 1_000_000))
            })
            .fold(wall, i64::max)
    }

    /// Number of a new track's first segment: that of the leading track's newest, or, for the
    /// first track, the stream's.
    fn first_msn(&self) -> u64 {
        let leader = self.leader().map(|index| self.tracks[index].packager.next_msn());
        leader.unwrap_or(self.first_msn)
    }

    /// Lets silence stand in for audio among `tracks` that has fallen behind the leading video.
    /// Audio that cannot be stood in for is no longer offered. Answers whether that changed.
    fn stand_in(
        &mut self,
        stream: &Stream,
        tracks: &[usize],
        now: UnixMicros,
    ) -> Result<bool, Refused> {
        let Some(leader) = self.leader().map(|index| &self.tracks[index]) else { return Ok(false) };
        let units = leader.packager.header().track.timescale;
        let Some(end) = leader.packager.end() else { return Ok(false) };
        let last = leader.packager.last_duration();
        let last = rescale(last, units, 1_000_000);
        // Where the newest frame starts: that is how far its audio should be.
        let end = rescale(end, units, 1_000_000) - last;
        let mut announce = false;
        for &index in tracks {
            let track = &mut self.tracks[index];
            if track.handle.kind != Kind::Audio {
                continue;
            }
            track.waited += last;
            if track.missing || track.waited < if track.silent { BEHIND } else { MISSING } {
                continue;
            }
            let described = &track.packager.header().track;
            let (codec, units) = (described.codec.clone(), described.timescale);
            let Some(unit) = crate::silence::access_unit(&codec) else {
                track.missing = true;
                announce |= track.handle.set_present(false);
                continue;
            };
            if !track.silent {
                track.silent = true;
                track.silences += 1;
                // Sound that comes and goes is told of at first only.
                if track.silences <= SILENCES_TOLD {
                    tracing::warn!(
                        stream = %stream.name, track = track.handle.name, at_ms = end / 1000,
                        "no audio comes; silence stands in for it"
                    );
                }
            }
            // Not before its own end, and not over a pause in which no video came either.
            let from = rescale(end - track.waited, 1_000_000, units);
            let from = track.packager.end().map_or(from, |end| end.max(from));
            let until = rescale(end - BEHIND, 1_000_000, units);
            track.fill(self.period, &self.boundaries, unit, (from, until), now)?;
        }
        Ok(announce)
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

fn header(track: &media::Track) -> Result<Bytes, Refused> {
    media::cmaf::header(&[track]).map_err(|error| Refused::Codec(error.to_string()))
}
