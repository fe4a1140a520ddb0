//! Tracks that are in no stream.

use std::sync::Arc;

use media::{Codec, Sample};

use crate::error::Refused;
use crate::tap::Unit;
use crate::track::{self, Track};
use crate::{Header, UnixMicros};

/// Makes a track that is in no stream, and so in no playlist, manifest or list of tracks. Who is
/// given the track reads it by its taps. Nothing is cut into parts: its window stays empty.
#[derive(Debug)]
pub struct Unlisted {
    track: Arc<Track>,
}

impl Unlisted {
    /// Makes a track with this description.
    ///
    /// # Errors
    /// Its codec cannot be described.
    pub fn new(described: media::Track) -> Result<Self, Refused> {
        let header = track::header(0, described)?;
        let track = Arc::new(Track::new(String::new(), None, (None, 0), header));
        Ok(Self { track })
    }

    /// The track.
    pub fn track(&self) -> &Arc<Track> {
        &self.track
    }

    /// Sets the codec of the samples that follow.
    ///
    /// # Errors
    /// The codec cannot be described.
    pub fn configure(&self, codec: Codec) -> Result<(), Refused> {
        let described = media::Track { codec, ..self.track.header().track.clone() };
        self.track.describe(track::header(0, described)?);
        Ok(())
    }

    /// Gives a sample to all that read the track. Its times are in the track's timescale. It is kept
    /// for who begins with the newest keyframe, as far as a tap keeps samples.
    pub fn hand(&self, sample: Sample, period: u64, now: UnixMicros) {
        let header: Arc<Header> = self.track.header();
        self.track.taps.hand(Unit { sample, period, header, received: now });
    }

    /// Ends the track. Nothing may follow.
    pub fn end(&self) {
        self.track.taps.end();
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use bytes::Bytes;
    use media::codec::avc;

    use super::*;
    use crate::tap::Tapped;

    #[test]
    fn who_comes_late_begins_with_the_newest_keyframe() {
        let video = avc::Config::parse(testkit::avc_record(31).into()).unwrap();
        let codec = Codec::Avc(video);
        let described = media::Track { id: 1, timescale: 90_000, codec, language: *b"und" };
        let unlisted = Unlisted::new(described).unwrap();
        let hand = |frame: i64| {
            let data = Bytes::from_static(&[0; 8]);
            let sync = frame % 50 == 0;
            let sample = Sample { dts: frame * 3600, cts: 0, duration: 0, sync, data };
            unlisted.hand(sample, 0, UnixMicros(0));
        };
        (0..120).for_each(hand);
        let mut tap = unlisted.track().tap_from_keyframe();
        hand(120);
        unlisted.end();
        let context = &mut Context::from_waker(Waker::noop());
        for frame in 100..=120 {
            let next = Box::pin(tap.next()).as_mut().poll(context);
            let Poll::Ready(Tapped::Unit(unit)) = next else { panic!("no {frame}: {next:?}") };
            assert_eq!((unit.sample.dts, unit.sample.sync), (frame * 3600, frame == 100));
        }
        let over = Box::pin(tap.next()).as_mut().poll(context);
        assert!(matches!(over, Poll::Ready(Tapped::Over)));
        assert!(unlisted.track().window().newest().is_none());
    }
}
