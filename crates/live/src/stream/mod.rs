//! A live stream: its tracks, its publishers, and its viewers.

mod inner;
mod life;
mod rest;

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use media::Kind;
use payload::memory::Memory;
use tokio::sync::watch;

pub(crate) use self::inner::{Derives, Inner};
pub(crate) use self::life::Entry;
use crate::change::{Adoption, Description};
use crate::delivery::Delivery;
use crate::info::Status;
use crate::sessions::{Permit, Quality, Report, Reporter};
use crate::track::{Track, TrackState};
use crate::viewers::{Viewers, Viewing};
use crate::{PublisherInfo, Settings, UnixMicros};

/// A stream's tracks and state at one moment.
#[derive(Debug, Clone)]
pub struct State {
    /// Whether the stream is live, offline or over.
    pub status: Status,
    /// Its tracks in order of arrival, without removed ones. Names are stable.
    pub tracks: Vec<Arc<Track>>,
    /// The present publishers.
    pub publishers: Vec<PublisherInfo>,
    /// Wall-clock time of stream time 0 as it was with the first sample: `availabilityStartTime`.
    /// Later periods may have another ([`Segment::epoch`](crate::Segment::epoch)).
    pub epoch: UnixMicros,
    /// Number of changes so far.
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
    /// The longest that a segment may last, once that is known.
    target_duration: watch::Sender<Option<Duration>>,
    /// How far the wall clock is ahead of the clock that never steps, in microseconds.
    ahead: Arc<AtomicI64>,
}

impl Stream {
    /// A stream that nobody publishes yet. No segment of it has a number below `after`. `ahead`
    /// always holds how far the wall clock is ahead of the clock that `now` is read from.
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
            version: 0,
        };
        Self {
            name,
            since: now,
            state: watch::Sender::new(Arc::new(state)),
            inner: Mutex::new(Inner::new(&settings, memory, now, after)),
            settings,
            viewers: Arc::default(),
            manifests: Default::default(),
            ready: watch::Sender::new(false),
            target_duration: watch::Sender::new(None),
            ahead,
        }
    }

    /// A copy of a stream that another machine has. It has no tracks yet.
    pub(crate) fn mirrored(
        name: Arc<str>,
        of: &Description,
        memory: &Arc<Memory>,
        ahead: Arc<AtomicI64>,
    ) -> Self {
        let stream = Self::new(name, of.settings.clone(), memory, of.since, 0, ahead);
        stream.lock().is_mirrored = true;
        stream
    }

    /// Makes a copy what the stream is elsewhere.
    pub(crate) fn describe(&self, inner: &Inner, of: &Description) {
        let state = State {
            status: of.status,
            tracks: inner.tracks.iter().map(|track| Arc::clone(&track.handle)).collect(),
            publishers: of.publishers.clone(),
            epoch: of.epoch,
            version: of.version,
        };
        self.target_duration.send_if_modified(|known| {
            let is_new = *known != of.target_duration;
            *known = of.target_duration;
            is_new
        });
        self.state.send_replace(Arc::new(state));
        if of.ready {
            self.ready.send_replace(true);
        }
    }

    /// How many video tracks and other tracks there have been, and where this machine went on with the stream.
    pub(crate) fn past(&self) -> ([u32; 2], Vec<Adoption>) {
        let inner = self.lock();
        (inner.named, inner.adoptions.clone())
    }

    /// Whether manifests can be written; the receiver is notified when that changes.
    pub(crate) fn subscribe_ready(&self) -> watch::Receiver<bool> {
        self.ready.subscribe()
    }

    /// The longest that a segment may last, once that is known; the receiver is notified when that changes.
    pub(crate) fn subscribe_target_duration(&self) -> watch::Receiver<Option<Duration>> {
        self.target_duration.subscribe()
    }

    /// The longest that a segment may last, before rounding to whole seconds: EXT-X-TARGETDURATION.
    /// Until the publisher's keyframes decide it, this is the greatest possible value.
    pub fn target_duration(&self) -> Duration {
        let most = || self.settings.target_duration.max(self.settings.keyframe_distance);
        self.target_duration.borrow().unwrap_or_else(most)
    }

    /// Duration that playlists list: at least four target durations, because players begin three
    /// before the end (RFC 8216bis 6.2.2).
    pub fn window(&self) -> Duration {
        self.settings.window.max(4 * self.target_duration())
    }

    /// Waits until the target duration is known or the stream is over, and returns whether it is
    /// known. Playlists must not be sent before.
    pub async fn settled(&self) -> bool {
        let mut known = self.target_duration.subscribe();
        let mut state = self.state.subscribe();
        tokio::select! {
            _ = known.wait_for(Option::is_some) => {}
            _ = state.wait_for(|state| state.status == Status::Ended) => {}
        }
        self.is_settled()
    }

    /// Whether the target duration is known.
    pub fn is_settled(&self) -> bool {
        self.target_duration.borrow().is_some()
    }

    /// How far the wall clock is ahead of the clock that never steps, in microseconds.
    pub(crate) fn ahead(&self) -> i64 {
        self.ahead.load(Ordering::Relaxed)
    }

    /// Whether it is a copy of a stream that another machine has.
    pub fn is_mirrored(&self) -> bool {
        self.lock().is_mirrored
    }

    /// Its name, `live/` not included.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A number above the numbers of all its segments.
    pub(crate) fn next_msn(&self) -> u64 {
        self.lock().next_msn()
    }

    /// When the newest sample of any of its tracks came to this machine.
    pub(crate) fn newest_arrival(&self) -> UnixMicros {
        let inner = self.lock();
        let newest = inner.tracks.iter().map(|track| track.last_sample).max();
        newest.unwrap_or(self.since)
    }

    /// When the newest part of any of its tracks was published.
    pub fn newest_published(&self) -> Option<UnixMicros> {
        let newest = |track: &Arc<Track>| Some(track.window().newest()?.parts.last()?.published);
        self.state().tracks.iter().filter_map(newest).max()
    }

    /// The settings of this stream.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// When it began.
    pub fn since(&self) -> UnixMicros {
        self.since
    }

    /// Its tracks and state at this moment.
    pub fn state(&self) -> Arc<State> {
        self.state.borrow().clone()
    }

    /// Its tracks and state; the receiver is notified of every change.
    pub fn subscribe(&self) -> watch::Receiver<Arc<State>> {
        self.state.subscribe()
    }

    /// A track by its name in URLs.
    pub fn track(&self, name: &str) -> Option<Arc<Track>> {
        self.state.borrow().tracks.iter().find(|track| track.name == name).cloned()
    }

    /// Whether manifests can be written. Some track must have parts, and so must one track of each
    /// kind that was announced. Once true, it stays true.
    pub fn is_ready(&self) -> bool {
        *self.ready.borrow()
    }

    /// Waits until manifests can be written or the stream is over, and returns whether they can.
    pub async fn ready(&self) -> bool {
        let mut ready = self.ready.subscribe();
        let mut state = self.state.subscribe();
        tokio::select! {
            _ = ready.wait_for(|&ready| ready) => {}
            _ = state.wait_for(|state| state.status == Status::Ended) => {}
        }
        self.is_ready()
    }

    /// Updates whether manifests can be written. Call it when a track's window or presence changed.
    pub(crate) fn note_readiness(&self, inner: &Inner) {
        if self.is_ready() {
            return;
        }
        let present = || inner.tracks.iter().filter(|track| track.handle.is_present());
        let started = |track: &TrackState| {
            let window = track.packager.window();
            window.all().map(|segment| segment.parts.len()).sum::<usize>() >= 2
        };
        // Manifests wait for the first video and the first audio track, but not for every announced
        // rendition.
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

    /// Starts or stops offering one of its tracks to new viewers.
    pub fn offer(&self, track: &Track, offered: bool) {
        let inner = self.lock();
        if !inner.is_mirrored && track.set_offered(offered) {
            self.announce(&inner);
        }
    }

    /// Counts a viewer for as long as the guard lives.
    pub fn watch(&self, delivery: Delivery) -> Viewing {
        self.viewers.watch(delivery)
    }

    /// Counts a viewer that makes requests; `who` tells viewers apart.
    pub fn seen(&self, delivery: Delivery, who: u64, now: UnixMicros) {
        self.viewers.seen(delivery, who, now);
    }

    /// Takes what a viewer tells of itself. `permit` is called if the viewer is a new one. Returns whether it is
    /// counted by that; if not, [`seen`](Self::seen) counts it.
    pub fn told(
        &self,
        by: Reporter,
        report: &Report,
        now: UnixMicros,
        permit: impl FnOnce() -> Option<Permit>,
    ) -> bool {
        self.viewers.told(by, report, now, permit)
    }

    /// How the viewers are that told of themselves.
    pub fn quality(&self, now: UnixMicros) -> Option<Quality> {
        self.viewers.sessions.quality(now)
    }

    /// Number of viewers of each delivery.
    pub fn viewers(&self, now: UnixMicros) -> [(Delivery, usize); Delivery::ALL.len()] {
        self.viewers.count(now)
    }

    /// The stream's manifest for `delivery` (for HLS the multivariant playlist). Calls `render`
    /// unless the manifest of this `version` is there already. Versions only grow.
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
        // A panic while the lock is held leaves at worst a half-cut chunk. Viewers of it go on.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn announce(&self, inner: &Inner) {
        self.announce_after(inner, 0);
    }

    /// Like [`Self::announce`], and leaves out so many versions.
    pub(crate) fn announce_after(&self, inner: &Inner, left_out: u64) {
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
                version: state.version + 1 + left_out,
            });
        });
    }
}
