//! Learns how far apart a publisher's keyframes are, and from that what a segment may last.
//!
//! EXT-X-TARGETDURATION must not change while a stream lasts, and no segment may be longer. A
//! publisher with a keyframe every two seconds should not get the target duration of one with up to
//! ten: players stay three target durations behind the end. But if the target duration is too short
//! for the publisher, segments are cut without a keyframe, and a player that joins there shows
//! nothing. So the decision comes before the first playlist. It depends on the encoder's own
//! description, or on the first keyframes.
//!
//! A regular encoder makes a keyframe of the first frame at or after a multiple of its interval. So
//! its distances are round, or up to one frame longer. At 30 frames a second, 2 of 15 irregular
//! distances are round by chance. If the first distance is longer than 1 s, one round distance is
//! enough: of irregular publishers that begin with 1 to 4 s, 13 % are taken for regular. If it is
//! shorter, the second distance must be equal within a frame: with distances of up to 4 s, fewer
//! than 1 % are taken for regular. A regular publisher waits at most 1 s for the second distance.

use std::time::Duration;

use crate::Settings;

/// The distance of a regular publisher's keyframes is a multiple of this, in microseconds.
const GRID: i64 = 500_000;
/// A keyframe may come one frame late, but by no more than this, in microseconds.
const SLACK: i64 = 50_000;
/// Rounding of publishers' clocks, in microseconds. A keyframe comes no earlier than this.
const ROUNDING: i64 = 1_000;
/// A first distance up to this is believed when the second is equal, in microseconds.
const SHORT: i64 = 1_000_000;
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
    /// Presentation and decode time of the first keyframe, in microseconds, and the number of frames
    /// since then.
    first: Option<(i64, i64, i64)>,
    /// Distance of the first two keyframes in microseconds, if it is round and short.
    before: Option<i64>,
    /// The most frames from one keyframe to the next, according to the encoder.
    most_frames: Option<u32>,
}

impl Gop {
    /// Takes the next frame in decode order, with its presentation and decode time in microseconds
    /// and whether it is a keyframe; `data` is its access unit. Returns the result once it is known.
    pub(crate) fn observe(
        &mut self,
        (pts, dts, sync): (i64, i64, bool),
        data: &[u8],
        settings: &Settings,
    ) -> Option<Learnt> {
        if settings.keyframe_distance <= settings.target_duration {
            return Some(Learnt::regular(settings));
        }
        let Some((first, decoded, frames)) = &mut self.first else {
            self.first = Some((pts, dts, 0));
            self.most_frames = media::codec::keyframe_interval(data);
            return None;
        };
        *frames += 1;
        let distance = pts - *first;
        // The frame after the first keyframe is often presented after several others (B-frames), so
        // decode times tell how long a frame lasts.
        let glanced = dts - *decoded;
        let lasts = glanced / *frames;
        let micros = |duration: Duration| i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        let (regular, longest) =
            (micros(settings.target_duration), micros(settings.keyframe_distance));
        let frame = lasts.min(SLACK);
        let result = |regular: bool| match regular {
            true => Learnt::regular(settings),
            false => Learnt::irregular(settings),
        };
        if let Some(most) = self.most_frames
            && glanced >= GLANCE
        {
            // An encoder that adds keyframes at scene changes stays below its own maximum.
            let most = i64::from(most).saturating_mul(lasts);
            return Some(result(most <= regular + frame));
        }
        if let Some(before) = self.before {
            let longer = distance - 2 * before;
            let most = frame + ROUNDING;
            return (sync || longer > most).then(|| result(longer.abs() <= most));
        }
        if sync {
            let late = (distance + ROUNDING).rem_euclid(GRID) - ROUNDING;
            let is_regular = late <= frame && distance <= regular + frame;
            if is_regular && distance <= SHORT + frame {
                self.before = Some(distance);
                return None;
            }
            return Some(result(is_regular));
        }
        (distance >= longest).then(|| Learnt::irregular(settings))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result, and at which frame it is known, for frames at `rate` a second, in milliseconds as
    /// in RTMP, with keyframes at these frames.
    fn learn_at(rate: f64, keyframes: &[i64], data: &[u8]) -> (u64, bool, i64) {
        let (mut gop, settings) = (Gop::default(), Settings::default());
        for frame in 0..1000 {
            let at = 1_000_000 + (frame as f64 * 1000.0 / rate).round() as i64 * 1000;
            let sync = keyframes.contains(&frame);
            if let Some(learnt) = gop.observe((at, at, sync), data, &settings) {
                return (learnt.target_duration.as_secs(), learnt.regular, frame);
            }
        }
        panic!("nothing was learnt");
    }

    /// The same at 30 frames a second, with keyframes at these distances in frames.
    fn learn(distances: &[i64], data: &[u8]) -> (u64, bool, i64) {
        let mut keyframes = vec![0];
        for distance in distances {
            keyframes.push(keyframes.last().unwrap() + distance);
        }
        learn_at(30.0, &keyframes, data)
    }

    #[test]
    fn a_round_distance_is_a_regular_publishers() {
        for frames in [45, 60, 61, 90, 120] {
            assert_eq!(learn(&[frames], b""), (4, true, frames), "{frames}");
        }
        for frames in [1, 15, 16, 30, 31] {
            assert_eq!(learn(&[frames, frames], b""), (4, true, 2 * frames), "{frames}");
        }
    }

    /// Each keyframe is the first frame at or after a multiple of the interval.
    #[test]
    fn regular_encoders_are_known_by_the_second_keyframe_or_a_second_later() {
        let rates = [24.0, 25.0, 30_000.0 / 1001.0, 30.0, 50.0, 60_000.0 / 1001.0, 60.0];
        for (rate, interval) in rates
            .into_iter()
            .flat_map(|rate| [0.5, 1.0, 2.0, 3.0, 4.0].map(|interval| (rate, interval)))
        {
            let nth = |number: i64| (number as f64 * interval * rate - 1e-6).ceil() as i64;
            let keyframes: Vec<i64> = (0..10).map(nth).collect();
            let decides = if interval > 1.0 { nth(1) } else { nth(2) };
            let found = learn_at(rate, &keyframes, b"");
            assert_eq!(found, (4, true, decides), "{interval} s at {rate}");
            // Encoders also count frames.
            let counted: Vec<i64> = (0..10).map(|number| number * nth(1)).collect();
            assert!(learn_at(rate, &counted, b"").1, "{} frames at {rate}", nth(1));
        }
    }

    #[test]
    fn few_random_distances_are_taken_for_regular() {
        let mut random = testkit::Random::new(1);
        let mut share = |least: i64, most: i64| {
            let of = 4000;
            let wrong = (0..of)
                .filter(|_| {
                    let first = least + random.below((most - least + 1) as u64) as i64;
                    let second = 1 + random.below(120) as i64;
                    learn(&[first, second], b"").1
                })
                .count();
            wrong as f64 / f64::from(of)
        };
        let (short, long) = (share(2, 30), share(32, 119));
        assert!(short < 0.01, "{short}");
        assert!(long < 0.14, "{long}");
    }

    #[test]
    fn any_other_distance_may_be_followed_by_a_longer_one() {
        for frames in [9, 24, 50, 59, 130, 250, 299] {
            assert_eq!(learn(&[frames], b""), (10, false, frames), "{frames}");
        }
        // A short distance decides nothing. This is known when the next keyframe is late or early.
        assert_eq!(learn(&[15, 40], b""), (10, false, 32));
        assert_eq!(learn(&[30, 10], b""), (10, false, 40));
        // It does not wait for a second keyframe without end.
        assert_eq!(learn(&[600], b""), (10, false, 300));
    }

    #[test]
    fn the_encoders_keyframe_interval_is_known_with_its_first_frames() {
        let says =
            |keyint| format!("\0\0\0\x05x264 - core 164 - options: keyint={keyint} scenecut=40");
        assert_eq!(learn(&[17], says("60").as_bytes()), (4, true, 5));
        assert_eq!(learn(&[60], says("250").as_bytes()), (10, false, 5));
        assert_eq!(learn(&[60], says("infinite").as_bytes()), (4, true, 60));
    }

    /// x264 and x265 encode the last frame of each group of B-frames before the others.
    #[test]
    fn frames_that_are_presented_later_change_nothing() {
        for (rate, between, keyint, regular) in [
            (25.0, 3, 50, true),
            (24.0, 3, 96, true),
            (30.0, 3, 90, true),
            (60.0, 3, 240, true),
            (25.0, 4, 100, true),
            (25.0, 3, 102, false),
            (30.0, 4, 250, false),
        ] {
            let says = format!("\0\0\0\x05x264 - core 164 - options: keyint={keyint} scenecut=40");
            let time =
                |frame: i64| 1_000_000 + (frame as f64 * 1000.0 / rate).round() as i64 * 1000;
            let (mut gop, settings) = (Gop::default(), Settings::default());
            let learnt = (0..600_i64).find_map(|frame| {
                let (group, place) =
                    ((frame - 1).div_euclid(between + 1), (frame - 1) % (between + 1));
                // Of each group, the last frame is decoded first.
                let shown = match (frame, place) {
                    (0, _) => 0,
                    (_, 0) => (group + 1) * (between + 1),
                    _ => frame - 1,
                };
                let sync = frame == 0;
                gop.observe((time(shown + 2), time(frame), sync), says.as_bytes(), &settings)
            });
            assert_eq!(
                learnt.unwrap().regular,
                regular,
                "{rate} frames a second, {between} between"
            );
        }
    }
}
