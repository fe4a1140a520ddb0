//! Renditions that are made of a stream's own media, such as by a transcoder.
//!
//! Their samples already have times on the stream's timeline, and belong to the period and segment
//! that what they were made of belongs to. So a rendition that is made here starts with the same
//! segment numbers, cuts where its source has keyframes, and tells of the same discontinuities as its
//! source, however much later its samples come. Where some of it was never made there is a hole in its
//! times but none in its numbers, which must be consecutive: after that they are behind its source's.

use std::sync::Arc;
use std::time::Duration;

use media::{Codec, Kind, Sample};

use crate::error::{PublishError, Refused};
use crate::publisher;
use crate::stream::{Derives, Stream};
use crate::track::{Track, TrackState};
use crate::{PublisherInfo, UnixMicros};

/// The number these tracks have among their publisher's, which no publisher gives its own.
const SOURCE: u32 = u32::MAX;

/// The right to add a rendition to a stream that is made of the stream's own media. Its name is taken
/// while this lives; it does not keep the stream alive.
#[derive(Debug)]
pub struct Derived {
    stream: Arc<Stream>,
    id: u64,
    rendition: String,
    /// What the next samples are of, if that is new.
    codec: Option<Codec>,
    /// A sample is waited for that decoding can start at and that lies after all before.
    shut: bool,
}

/// Where in its track the sample is that another was made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentId {
    /// Its segment's period ([`Segment::period`](crate::Segment::period)).
    pub period: u64,
    /// Its segment's number.
    pub msn: u64,
}

impl Stream {
    /// Takes `rendition` as the name of one that is made of this stream's own media. Manifests of
    /// a stream that has just begun wait for its first segment, at most for `patience`.
    ///
    /// # Errors
    /// Somebody publishes a rendition of that name.
    pub fn derive(
        self: &Arc<Self>,
        rendition: &str,
        patience: Duration,
        now: UnixMicros,
    ) -> Result<Derived, PublishError> {
        let info =
            PublisherInfo { peer: None, protocol: "ladder", rendition: Some(rendition.to_owned()) };
        let derives = Derives { awaited: Some(now.after(patience)) };
        let id = self.enter(&info, Some(derives), now)?;
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

    /// What follows does not continue what came before, as after a restart of what makes it: samples
    /// are dropped up to one that decoding can start at and that lies after all there are.
    pub fn restart(&mut self) {
        self.shut = true;
    }

    /// Manifests need not wait for it any longer.
    pub fn expect_nothing(&mut self) {
        let mut inner = self.stream.lock();
        if let Some(at) = inner.publisher(self.id)
            && let Some(derives) = &mut inner.publishers[at].derives
        {
            derives.awaited = None;
        }
        self.stream.note_readiness(&inner);
    }

    /// Samples that follow are of `codec`.
    ///
    /// # Errors
    /// It is not video.
    pub fn configure(&mut self, codec: Codec) -> Result<(), Refused> {
        if codec.kind() != Kind::Video || matches!(codec, Codec::Other(_)) {
            return Err(Refused::Codec(codec.rfc6381().into_owned()));
        }
        self.codec = Some(codec);
        Ok(())
    }

    /// Publishes a sample. Its times are the stream's, in the timescale of video tracks, 90 kHz;
    /// `place` is where what it was made of is. Answers its track, unless the sample was dropped.
    ///
    /// # Errors
    /// No codec was configured, there are too many tracks, the stream is over, or memory ran out.
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
            track.source == SOURCE && track.handle.rendition.as_ref() == Some(&self.rendition)
        });
        let end = known.and_then(|index| inner.tracks[index].packager.end());
        if self.shut && (!sample.sync || end.is_some_and(|end| sample.dts < end)) {
            return Ok(None);
        }
        self.shut = false;

        let index = match (known, self.codec.take()) {
            (Some(index), None) => index,
            (Some(index), Some(codec)) => {
                // A source whose configuration changes begins a period, so this need not.
                inner.tracks[index].configure(codec, *b"und")?;
                index
            }
            (None, Some(codec)) => {
                let called = (Some(self.rendition.clone()), SOURCE);
                let (settings, from) = (self.stream.settings(), (place.period, place.msn));
                publisher::add(inner, settings, called, from, (codec, *b"und"), now)?;
                inner.tracks.len() - 1
            }
            (None, None) => return Err(Refused::UnknownTrack),
        };
        let ahead = self.stream.ahead();
        inner.push(index, false, place.period, sample, (now, ahead))?;
        inner.tracks[index].last_sample = now;
        let (track, id) = (Arc::clone(&inner.tracks[index].handle), inner.tracks[index].id());
        let active = &mut inner.publishers[publisher];
        active.tracks = vec![id];
        active.last_sample = now;
        // Manifests list what has a complete segment; so it is that which they wait for.
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
            track.source == SOURCE && track.handle.rendition.as_ref() == Some(&self.rendition)
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
