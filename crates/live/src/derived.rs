//! Renditions made from a stream's own media, for example by a transcoder.
//!
//! Their samples already have times on the stream's timeline, and belong to the period and segment
//! of the source samples. So such a rendition starts with its source's segment numbers, cuts at its
//! source's keyframes, and has its source's discontinuities, however much later its samples come.
//! If some of its frames were never made, its times have a hole. Its segment numbers have no hole,
//! because they must be consecutive. From there on they are lower than the source's.

use std::sync::Arc;
use std::time::Duration;

use media::{Codec, Kind, Sample};

use crate::error::{PublishError, Refused};
use crate::publisher;
use crate::stream::{Derives, Entry, Stream};
use crate::track::{DERIVED, Track, TrackState};
use crate::{PublisherInfo, UnixMicros};

/// The right to add a rendition that is made from the stream's own media. The rendition's name is
/// taken while this lives, unless another machine goes on with the stream. It does not keep the
/// stream alive.
#[derive(Debug)]
pub struct Derived {
    stream: Arc<Stream>,
    id: u64,
    rendition: String,
    /// The codec of the next samples, if it is new.
    codec: Option<Codec>,
    /// Samples are dropped until one that decoding can start at and that is later than all before.
    shut: bool,
}

/// Place of the source sample that a sample was made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentId {
    /// Its segment's period ([`Segment::period`](crate::Segment::period)).
    pub period: u64,
    /// Its segment's number.
    pub msn: u64,
}

impl Stream {
    /// Adds `rendition`, made from this stream's own media. Manifests of a stream that has just
    /// begun wait for its first segment, for `patience` at most.
    ///
    /// # Errors
    /// The stream is over, or somebody publishes a rendition of that name.
    pub fn derive(
        self: &Arc<Self>,
        rendition: &str,
        patience: Duration,
        now: UnixMicros,
    ) -> Result<Derived, PublishError> {
        let info =
            PublisherInfo { peer: None, protocol: "ladder", rendition: Some(rendition.to_owned()) };
        let derives = Derives { awaited: Some(now.after(patience)) };
        let id = self.enter(&info, (Some(derives), Entry::First), now)?;
        Ok(Derived {
            stream: Arc::clone(self),
            id,
            rendition: rendition.to_owned(),
            codec: None,
            shut: true,
        })
    }
}

impl Derived {
    /// The rendition's name.
    pub fn rendition(&self) -> &str {
        &self.rendition
    }

    /// Marks that the next samples do not continue those before, for example because the transcoder
    /// restarted. Samples are dropped until one that decoding can start at and that is later than
    /// all before.
    pub fn restart(&mut self) {
        self.shut = true;
    }

    /// Stops manifests from waiting for this rendition.
    pub fn expect_nothing(&mut self) {
        let mut inner = self.stream.lock();
        if let Some(at) = inner.publisher(self.id)
            && let Some(derives) = &mut inner.publishers[at].derives
        {
            derives.awaited = None;
        }
        self.stream.note_readiness(&inner);
    }

    /// Sets the codec of the samples that follow.
    ///
    /// # Errors
    /// The codec is not video.
    pub fn configure(&mut self, codec: Codec) -> Result<(), Refused> {
        if codec.kind() != Kind::Video || matches!(codec, Codec::Other(_)) {
            return Err(Refused::Codec(codec.rfc6381().into_owned()));
        }
        self.codec = Some(codec);
        Ok(())
    }

    /// Publishes a sample. Its times are the stream's, in the timescale of video tracks, 90 kHz.
    /// `place` is the place of its source sample. Returns its track, or `None` if the sample was
    /// dropped.
    ///
    /// # Errors
    /// No codec was configured, there are too many tracks, the stream is over or another machine's
    /// ([`Refused::Replaced`]), or memory ran out.
    pub fn sample(
        &mut self,
        sample: Sample,
        place: SegmentId,
        now: UnixMicros,
    ) -> Result<Option<Arc<Track>>, Refused> {
        let mut guard = self.stream.lock();
        let inner = &mut *guard;
        let publisher = inner.publisher(self.id).ok_or(Refused::Replaced)?;
        if inner.is_over() {
            return Err(Refused::Over);
        }
        let known = inner.tracks.iter().position(|track| {
            track.source == DERIVED && track.handle.rendition.as_ref() == Some(&self.rendition)
        });
        let end = known.and_then(|index| inner.tracks[index].packager.end());
        if self.shut && (!sample.sync || end.is_some_and(|end| sample.dts < end)) {
            return Ok(None);
        }
        self.shut = false;

        let index = match (known, self.codec.take()) {
            (Some(index), None) => index,
            (Some(index), Some(codec)) => {
                // A configuration change of the source begins a period, so this need not begin
                // another.
                inner.tracks[index].configure(codec, *b"und")?;
                index
            }
            (None, Some(codec)) => {
                let name = Some(self.rendition.clone());
                let called = (name.clone(), name, DERIVED);
                let (settings, from) = (self.stream.settings(), (place.period, place.msn));
                publisher::add(inner, settings, called, from, (codec, *b"und"), now)?;
                inner.tracks.len() - 1
            }
            (None, None) => return Err(Refused::UnknownTrack),
        };
        inner.push(index, false, place.period, sample, now)?;
        inner.tracks[index].last_sample = now;
        let (track, id) = (Arc::clone(&inner.tracks[index].handle), inner.tracks[index].id());
        let active = &mut inner.publishers[publisher];
        active.tracks = vec![id];
        active.last_sample = now;
        // Manifests list tracks with a complete segment, so they wait for one.
        let complete = !track.window().segments.is_empty();
        let derives = active.derives.as_mut().filter(|_| complete);
        let awaited = derives.and_then(|derives| derives.awaited.take());
        if awaited.is_some() || known.is_none() {
            self.stream.announce(inner);
        }
        self.stream.note_readiness(inner);
        Ok(Some(track))
    }
}

impl Drop for Derived {
    fn drop(&mut self) {
        let mut inner = self.stream.lock();
        let Some(at) = inner.publisher(self.id) else { return };
        let last = inner.publishers.remove(at).last_sample;
        let over = inner.is_over();
        let named = |track: &&mut TrackState| {
            track.source == DERIVED && track.handle.rendition.as_ref() == Some(&self.rendition)
        };
        if let Some(track) = inner.tracks.iter_mut().find(named).filter(|_| !over) {
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
