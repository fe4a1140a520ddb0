//! Learns how far apart a publisher's keyframes are, and from that what a segment may last.
//!
//! EXT-X-TARGETDURATION must not change while a stream lasts, and no segment may be longer. A
//! publisher with a keyframe every two seconds should not get the target duration of one with up to
//! ten: players stay three target durations behind the end. But if the target duration is too short
//! for the publisher, segments are cut without a keyframe, and a player that joins there shows
//! nothing. So the decision comes before the first playlist. It depends on the encoder's own
//! description, or on the first two keyframes.

use std::time::Duration;

use crate::Settings;

/// The distance of a regular publisher's keyframes is a multiple of this, in microseconds.
const GRID: i64 = 500_000;
/// A keyframe distance may be off by one frame, but by no more than this, in microseconds.
const SLACK: i64 = 50_000;
/// With the encoder's description and the first frames' rate the decision needs this much video, in
/// microseconds.
const GLANCE: i64 = 150_000;

/// What a segment may last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Learnt {
    /// EXT-X-TARGETDURATION.
    pub(crate) target_duration: Duration,
    /// Whether all keyframes are expected to be as far apart as the first two.
    pub(crate) regular: bool,
}

impl Learnt {
    pub(crate) fn regular(settings: &Settings) -> Self {
        Self { target_duration: settings.target_duration, regular: true }
    }

    pub(crate) fn irregular(settings: &Settings) -> Self {
        let target_duration = settings.keyframe_distance.max(settings.target_duration);
        Self { target_duration, regular: target_duration == settings.target_duration }
    }
}

/// The first frames of a stream's leading video.
#[derive(Debug, Default)]
pub(crate) struct Gop {
    /// Presentation time of the first keyframe, in microseconds, and the number of frames since
    /// then.
    first: Option<(i64, i64)>,
    /// The most frames from one keyframe to the next, according to the encoder.
    most_frames: Option<u32>,
}

impl Gop {
    /// Takes a frame with presentation time `at`, in microseconds; `data` is its access unit.
    /// Returns the result once it is known.
    pub(crate) fn observe(
        &mut self,
        (at, sync): (i64, bool),
        data: &[u8],
        settings: &Settings,
    ) -> Option<Learnt> {
        if settings.keyframe_distance <= settings.target_duration {
            return Some(Learnt::regular(settings));
        }
        let Some((first, frames)) = &mut self.first else {
            self.first = Some((at, 0));
            self.most_frames = media::codec::keyframe_interval(data);
            return None;
        };
        *frames += 1;
        let distance = at - *first;
        let micros = |duration: Duration| i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        let (regular, longest) =
            (micros(settings.target_duration), micros(settings.keyframe_distance));
        if let Some(most) = self.most_frames
            && distance >= GLANCE
        {
            // An encoder that adds keyframes at scene changes stays below its own maximum.
            let most = i64::from(most).saturating_mul(distance / *frames);
            let slack = (distance / *frames).min(SLACK);
            return Some(match most <= regular + slack {
                true => Learnt::regular(settings),
                false => Learnt::irregular(settings),
            });
        }
        if sync {
            let frame = (distance / *frames).min(SLACK);
            let off = (distance + GRID / 2).rem_euclid(GRID) - GRID / 2;
            let is_round = off.abs() <= frame * 3 / 2;
            return Some(match distance <= regular + frame && is_round {
                true => Learnt::regular(settings),
                false => Learnt::irregular(settings),
            });
        }
        (distance >= longest).then(|| Learnt::irregular(settings))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result, and at which frame it is known, for 30 frames a second with keyframes at these
    /// distances in frames.
    fn learn(distances: &[i64], data: &[u8]) -> (u64, bool, i64) {
        let (mut gop, settings) = (Gop::default(), Settings::default());
        let mut keyframes = vec![0];
        for distance in distances {
            keyframes.push(keyframes.last().unwrap() + distance);
        }
        for frame in 0..1000 {
            let at = 1_000_000 + frame * 100_000 / 3;
            if let Some(learnt) = gop.observe((at, keyframes.contains(&frame)), data, &settings) {
                return (learnt.target_duration.as_secs(), learnt.regular, frame);
            }
        }
        panic!("nothing was learnt");
    }

    #[test]
    fn a_round_distance_is_a_regular_publishers() {
        for frames in [15, 30, 60, 61, 90, 120] {
            assert_eq!(learn(&[frames], b""), (4, true, frames), "{frames}");
        }
    }

    #[test]
    fn any_other_distance_may_be_followed_by_a_longer_one() {
        for frames in [9, 24, 50, 130, 250, 299] {
            assert_eq!(learn(&[frames], b""), (10, false, frames), "{frames}");
        }
        // It does not wait for a second keyframe without end.
        assert_eq!(learn(&[600], b""), (10, false, 300));
    }

    #[test]
    fn what_the_encoder_says_is_known_with_its_first_frames() {
        let says =
            |keyint| format!("\0\0\0\x05x264 - core 164 - options: keyint={keyint} scenecut=40");
        assert_eq!(learn(&[17], says("60").as_bytes()), (4, true, 5));
        assert_eq!(learn(&[60], says("250").as_bytes()), (10, false, 5));
        assert_eq!(learn(&[60], says("infinite").as_bytes()), (4, true, 60));
    }
}
