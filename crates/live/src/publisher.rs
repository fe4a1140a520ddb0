//! Who publishes a stream, and what becomes of each sample.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use media::{Codec, Kind, Sample};

use crate::memory::Arena;
use crate::packager::Packager;
use crate::stream::{Inner, Stream};
use crate::timeline::{Mapped, TrackClock};
use crate::track::{self, Track, TrackState};
use crate::{Settings, UnixMicros, rescale};

/// The most tracks a stream may have.
const MOST_TRACKS: usize = 16;

/// Who publishes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublisherInfo {
    /// Where from; none for a clip the origin itself publishes.
    pub peer: Option<SocketAddr>,
    /// `rtmp`, `file` for a clip the origin itself publishes, or `ladder` for a rendition that is
    /// made of the stream's own media.
    pub protocol: &'static str,
    /// Name of the rendition, where the stream has several publishers.
    pub rendition: Option<String>,
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
    /// There is nothing more to publish to.
    #[error("the stream is over")]
    Over,
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
    /// Its tracks by its own numbers for them.
    sources: HashMap<u32, Source>,
}

impl Publisher {
    pub(crate) fn new(stream: Arc<Stream>, id: u64, info: PublisherInfo) -> Self {
        Self { stream, id, info, sources: HashMap::new() }
    }

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
        self.stream.lock().publisher(self.id).is_none()
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
        let publisher = inner.publisher(self.id).ok_or(Refused::Replaced)?;
        inner.publishers[publisher].last_sample = now;
        let known = inner.tracks.iter().position(|track| {
            track.handle.rendition == self.info.rendition
                && track.source == source
                && track.handle.kind == kind
        });
        let index = match known {
            Some(index) => {
                if inner.tracks[index].configure(codec, language)? {
                    inner.next_period();
                }
                index
            }
            None => {
                let rendition = self.info.rendition.clone();
                let settings = self.stream.settings();
                let from = (inner.period, inner.joining_msn());
                add(&mut inner, settings, (rendition, source), from, (codec, language), now)?;
                self.stream.announce(&inner);
                inner.tracks.len() - 1
            }
        };
        if self.sources.get(&source).is_none_or(|known| known.index != index) {
            self.sources.insert(source, Source::new(index, timescale, kind));
        }
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
        let source = self.sources.get_mut(&source).ok_or(Refused::UnknownTrack)?;
        let mut guard = self.stream.lock();
        let inner = &mut *guard;
        let publisher = inner.publisher(self.id).ok_or(Refused::Replaced)?;
        inner.publishers[publisher].last_sample = now;
        if source.holds_back(&sample, self.stream.settings().target_duration) {
            return Ok(());
        }
        inner.tracks[source.index].last_sample = now;

        if inner.begin(now) {
            self.stream.announce(inner);
        }
        let said = rescale(sample.dts, source.timescale, 1_000_000);
        let offset = match inner.place(publisher, &mut source.clock, said, now) {
            Mapped::Offset(offset) => offset,
            Mapped::Jumped { offset, by } => {
                tracing::debug!(
                    stream = self.stream.name(), peer = ?self.info.peer,
                    track = inner.tracks[source.index].handle.name,
                    at_ms = said / 1000, by_ms = by / 1000, "publisher's clock jumped"
                );
                offset
            }
        };

        let leads = inner.leader() == Some(source.index);
        let track = &mut inner.tracks[source.index];
        source.translate(&mut sample, offset, track.timescale());
        if track.resume(sample.dts, inner.period, &inner.boundaries, now)? {
            self.stream.announce(inner);
        }
        inner.push(source.index, leads, inner.period, sample, now)?;
        if leads && self.sources.len() > 1 {
            let tracks = self.sources.values().map(|source| source.index);
            if inner.stand_in(self.stream.name(), tracks, now)? {
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
        let Some(at) = inner.publisher(self.id) else { return };
        let last = inner.publishers.remove(at).last_sample;
        for source in self.sources.values() {
            let track = &mut inner.tracks[source.index];
            match track.packager.flush(last) {
                Ok(true) => track.publish(),
                Ok(false) => {}
                Err(error) => tracing::warn!(stream = self.stream.name(), %error, "last samples"),
            }
        }
        self.stream.announce(&inner);
        self.stream.note_readiness(&inner);
    }
}

/// Adds a track, after those there are, that begins in this period with a segment of this number.
pub(crate) fn add(
    inner: &mut Inner,
    settings: &Settings,
    (rendition, source): (Option<String>, u32),
    (period, msn): (u64, u64),
    (codec, language): (Codec, [u8; 3]),
    now: UnixMicros,
) -> Result<(), Refused> {
    if inner.tracks.len() >= MOST_TRACKS {
        return Err(Refused::TooManyTracks);
    }
    let kind = codec.kind();
    let letter = if kind == Kind::Video { 'v' } else { 'a' };
    let number = inner.tracks.iter().filter(|track| track.handle.kind == kind).count();
    let id = u32::try_from(inner.tracks.len() + 1).unwrap_or(u32::MAX);
    // Audio counts in its own samples, so that access units abut exactly.
    let timescale = codec.sound().map_or(90_000, |(rate, _)| rate);
    let described = media::Track { id, timescale, codec, language };
    let header = track::header(msn, described)?;
    let arena = Arena::new(&inner.memory, Arc::clone(&inner.account))?;
    let packager = Packager::new(settings, Arc::clone(&header), period, arena);
    let handle = Arc::new(Track::new(format!("{letter}{number}"), rendition, header));
    inner.tracks.push(TrackState::new(handle, source, packager, now));
    Ok(())
}

/// One track as its publisher counts it.
#[derive(Debug)]
struct Source {
    /// Where it is among the stream's tracks.
    index: usize,
    timescale: u32,
    clock: TrackClock,
    gate: Gate,
}

/// Samples before the first that decoding can start at are dropped, but not for ever: a stream may
/// have none.
#[derive(Debug, Clone, Copy)]
enum Gate {
    /// No sample came.
    Shut,
    /// None to start at came; decode time of the first that did, in the publisher's timescale.
    Since(i64),
    /// Samples are taken.
    Open,
}

impl Source {
    fn new(index: usize, timescale: u32, kind: Kind) -> Self {
        let gate = if kind == Kind::Video { Gate::Shut } else { Gate::Open };
        Self { index, timescale, clock: TrackClock::default(), gate }
    }

    /// Whether to drop a sample because decoding cannot start at it, for `longest` at most.
    fn holds_back(&mut self, sample: &Sample, longest: Duration) -> bool {
        let first = match self.gate {
            Gate::Open => return false,
            Gate::Shut => sample.dts,
            Gate::Since(first) => first,
        };
        let longest = i64::try_from(longest.as_millis()).unwrap_or(0);
        let longest = rescale(longest, 1000, self.timescale);
        let held = !sample.sync && sample.dts.saturating_sub(first) < longest;
        self.gate = if held { Gate::Since(first) } else { Gate::Open };
        held
    }

    /// Counts a sample's times in `units` on the stream's timeline, which is the publisher's plus
    /// `offset` microseconds.
    fn translate(&self, sample: &mut Sample, offset: i64, units: u32) {
        let scale = |time: i64| rescale(time, self.timescale, units);
        sample.dts = scale(sample.dts).saturating_add(rescale(offset, 1_000_000, units));
        sample.cts = i32::try_from(scale(i64::from(sample.cts))).unwrap_or(0);
        sample.duration = u32::try_from(scale(i64::from(sample.duration))).unwrap_or(0);
    }
}
