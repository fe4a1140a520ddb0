//! The track that renditions are made of. It remembers the place of each frame.

use std::collections::VecDeque;

use live::{Part, Segment, SegmentId};

/// Most seconds by which a rendition may be behind its source. Frames beyond are skipped.
pub(super) const MOST_BEHIND: i64 = 10;

/// Number of frames that are remembered: more than a decoder and an encoder hold.
const MOST_FRAMES: usize = 4096;

/// ffmpeg writes FLV timestamps without their highest bit.
const FLV_TIMES: i64 = 1 << 31;

/// A frame of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame {
    /// Presentation time, in the track's timescale.
    pub(super) pts: i64,
    /// How long before its presentation time a frame is decoded that waits for no other. This is
    /// the delay that frame reordering causes in the source. Renditions do not reorder frames, but
    /// use the same delay. So their segments begin at the same decode times.
    pub(super) early: i32,
    /// The segment that the frame is in.
    pub(super) place: SegmentId,
    /// Presentation time in milliseconds.
    at: i64,
}

/// The frames that ffmpeg is transcoding. ffmpeg gets their times in milliseconds. By these times
/// each output frame is matched with its source frame, which gives its exact time and its segment.
#[derive(Debug, Default)]
pub(super) struct Frames {
    frames: VecDeque<Frame>,
    early: i32,
}

impl Frames {
    /// Remembers the frames of a part. Returns the presentation time of each in milliseconds, as
    /// ffmpeg gets it.
    pub(super) fn note<'a>(
        &'a mut self,
        segment: &'a Segment,
        part: &'a Part,
    ) -> impl Iterator<Item = (&'a live::SampleLayout, u64)> {
        let timescale = segment.header.track.timescale;
        let place = SegmentId { period: segment.period, msn: segment.msn };
        part.samples.iter().map(move |layout| {
            if layout.sync {
                self.early = layout.cts.max(0);
            }
            (layout, self.add(layout.dts + i64::from(layout.cts), timescale, place))
        })
    }

    /// Remembers one frame. Returns its presentation time in milliseconds, as ffmpeg gets it.
    pub(super) fn add(&mut self, pts: i64, timescale: u32, place: SegmentId) -> u64 {
        let at = millis(pts, timescale);
        if self.frames.len() >= MOST_FRAMES {
            self.frames.pop_front();
        }
        self.frames.push_back(Frame { pts, early: self.early, place, at });
        at.unsigned_abs()
    }

    /// Finds the frame with this presentation time in milliseconds, as FLV has it.
    pub(super) fn find(&self, at: i64) -> Option<Frame> {
        let apart = |frame: &Frame| {
            let after = (frame.at - at).rem_euclid(FLV_TIMES);
            after.min(FLV_TIMES - after)
        };
        // Programs round differently, so 1 ms apart also matches. The search starts with the newest
        // frame, because output follows input soon.
        let within = |most: i64| self.frames.iter().rev().find(|frame| apart(frame) <= most);
        within(0).or_else(|| within(1)).copied()
    }
}

/// A time in whole milliseconds, and not negative: Matroska has no others.
pub(super) fn millis(time: i64, timescale: u32) -> i64 {
    live::rescale(time, timescale, 1000).max(0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use live::{Publisher, PublisherInfo, Registry, Settings, Track, UnixMicros};
    use media::codec::avc;
    use media::{Codec, Sample};

    use super::*;

    /// A stream of 30 frames per second with a keyframe each second.
    struct Scene {
        publisher: Publisher,
        now: UnixMicros,
        frames: i64,
    }

    impl Scene {
        fn new() -> Self {
            let registry = Registry::new(Settings::default());
            let now = UnixMicros(1_700_000_000_000_000);
            let info = PublisherInfo { peer: None, protocol: "test", rendition: None };
            let mut publisher = registry.publish("x", info, now).unwrap();
            let record = testkit::avc_record(31).into();
            let codec = Codec::Avc(avc::Config::parse(record).unwrap());
            publisher.track(0, codec, 90_000, *b"und", now).unwrap();
            Self { publisher, now, frames: 0 }
        }

        fn publish(&mut self, seconds: i64) -> Arc<Track> {
            for _ in 0..seconds * 30 {
                self.now.0 += 33_333;
                let sync = self.frames % 30 == 0;
                let (dts, data) = (self.frames * 3000, Bytes::from_static(&[0; 64]));
                let sample = Sample { dts, cts: 6000, duration: 0, sync, data };
                self.publisher.sample(0, sample, self.now).unwrap();
                self.frames += 1;
            }
            self.publisher.stream().track("v0").unwrap()
        }
    }

    #[test]
    fn renditions_are_decoded_as_early_as_keyframes() {
        let mut scene = Scene::new();
        let track = scene.publish(1);
        let mut frames = Frames::default();
        let window = track.window();
        for (segment, part) in window.all().flat_map(|s| s.parts.iter().map(move |p| (s, p))) {
            assert!(frames.note(segment, part).count() > 0);
        }
        let first = frames.find(1067).unwrap();
        assert_eq!((first.pts, first.early), (96_000, 6000));
        assert_eq!(first.place, SegmentId { period: 0, msn: window.newest().unwrap().msn });
    }

    fn frames(times: impl IntoIterator<Item = i64>) -> Frames {
        let place = SegmentId { period: 0, msn: 1 };
        let frame = |at: i64| Frame { pts: at * 90, early: 0, place, at };
        Frames { frames: times.into_iter().map(frame).collect(), early: 0 }
    }

    #[test]
    fn a_frame_is_found_by_its_time() {
        let thirty = frames([1000, 1033, 1067, 1100]);
        assert_eq!(thirty.find(1033).unwrap().pts, 1033 * 90);
        assert_eq!(thirty.find(1066).unwrap().pts, 1067 * 90);
        assert_eq!(thirty.find(1050), None);
        // At 1,000 frames a second, the neighbours are within the tolerance for rounding.
        let thousand = frames(0..100);
        assert_eq!(thousand.find(50).unwrap().at, 50);
    }

    #[test]
    fn times_that_do_not_fit_into_flv_are_found_all_the_same() {
        let late = FLV_TIMES * 3 + 5;
        let frames = frames([late - 40, late, late + 40]);
        assert_eq!(frames.find(5).unwrap().at, late);
        assert_eq!(frames.find(FLV_TIMES - 35).unwrap().at, late - 40);
        assert_eq!(frames.find(4).unwrap().at, late);
    }
}
