/// Bit rates of a track's segments in bits per second, with their headers: RFC 8216 4.3.4.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bandwidth {
    /// Bit rate of the whole track: `AVERAGE-BANDWIDTH`.
    pub average: u64,
    /// Peak segment bit rate, RFC 8216 section 4.1: the highest of any run of segments that lasts
    /// 0.5 to 1.5 target durations. `BANDWIDTH`.
    pub peak: u64,
}

impl Bandwidth {
    /// Bit rates of consecutive segments, each given as its duration in units of `timescale` and
    /// its size in bytes.
    pub(crate) fn of(segments: &[(u64, u64)], timescale: u32) -> Self {
        let timescale = u128::from(timescale);
        // A run without duration has no rate, so it counts as one unit long.
        let rate = |(units, bytes): (u128, u128)| {
            let rate = (bytes * 8 * timescale).div_ceil(units.max(1));
            u64::try_from(rate).unwrap_or(u64::MAX)
        };
        let add = |(units, bytes): (u128, u128), next: &(u64, u64)| {
            (units + u128::from(next.0), bytes + u128::from(next.1))
        };
        let average = rate(segments.iter().fold((0, 0), add));
        let longest = segments.iter().map(|(units, _)| *units).max().unwrap_or_default();
        // EXT-X-TARGETDURATION: the longest segment, rounded to the nearest second.
        let seconds = ((u128::from(longest) * 2 + timescale) / (timescale * 2).max(1)).max(1);
        let target = seconds * timescale;
        let mut peak = None;
        for (index, _) in segments.iter().enumerate() {
            let mut run = (0, 0);
            // Segments without duration could make runs of any length, so the length is limited.
            for next in segments.iter().skip(index).take(MAX_RUN) {
                run = add(run, next);
                if run.0 * 2 > target * 3 {
                    break;
                }
                if run.0 * 2 >= target {
                    peak = peak.max(Some(rate(run)));
                }
            }
        }
        Self { average, peak: peak.unwrap_or(average).max(average) }
    }
}

/// The most segments in a run: those of the longest run that counts, if each lasts a thirtieth of
/// the target.
const MAX_RUN: usize = 45;

/// Frames per second as a fraction in lowest terms: `30000/1001`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameRate {
    /// Number of frames.
    pub frames: u32,
    /// Number of seconds they take; not 0.
    pub seconds: u32,
}

impl FrameRate {
    /// Rate of `count` frames in `span` units, most of which last `usual` units: the rate of the
    /// latter if the average agrees within 1 %, otherwise the average in thousandths.
    pub(crate) fn of(count: u32, span: u64, usual: u32, timescale: u32) -> Option<Self> {
        let frames = u128::from(count) * u128::from(timescale);
        let expected = u128::from(count) * u128::from(usual);
        let constant = expected.abs_diff(span.into()) * 100 <= u128::from(span);
        if usual > 0 && constant {
            return Self::reduced(timescale.into(), usual.into());
        }
        Self::reduced((frames * 1_000).checked_div(span.into())?, 1_000)
    }

    fn reduced(frames: u128, seconds: u128) -> Option<Self> {
        let (mut a, mut b) = (frames, seconds);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        let part = |whole: u128| u32::try_from(whole.checked_div(a)?).ok().filter(|part| *part > 0);
        Some(Self { frames: part(frames)?, seconds: part(seconds)? })
    }

    /// Frames per second as a number.
    pub fn per_second(self) -> f64 {
        f64::from(self.frames) / f64::from(self.seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_that_of_runs_of_half_to_one_and_a_half_targets() {
        // Segments of 2 s with 1,000 bytes each; then a last one of a tenth of a second, too short
        // to count as a run.
        let segments = [(2_000, 1_000), (2_000, 3_000), (2_000, 1_000), (100, 1_000)];
        let rates = Bandwidth::of(&segments, 1_000);
        assert_eq!(rates.average, (6_000u64 * 8 * 1_000).div_ceil(6_100));
        assert_eq!(rates.peak, 12_000);
        // Together with the segment before it, it counts: 2,000 bytes in 2.1 s.
        let segments = [(2_000, 1_000), (2_000, 1_000), (100, 1_000)];
        assert_eq!(Bandwidth::of(&segments, 1_000).peak, (2_000u64 * 8_000).div_ceil(2_100));
        assert_eq!(
            Bandwidth::of(&[(100, 1_000)], 1_000),
            Bandwidth { average: 80_000, peak: 80_000 }
        );
        assert_eq!(Bandwidth::of(&[(0, 10)], 1_000).average, 80_000);
        assert_eq!(Bandwidth::of(&[], 1_000), Bandwidth::default());
    }

    #[test]
    fn a_frame_rate_is_a_fraction_where_the_frames_keep_to_it() {
        let rate = |count, span, usual, timescale| {
            FrameRate::of(count, span, usual, timescale).map(|rate| (rate.frames, rate.seconds))
        };
        assert_eq!(rate(300, 300 * 1_001, 1_001, 30_000), Some((30_000, 1_001)));
        assert_eq!(rate(240, 240 * 512, 512, 12_288), Some((24, 1)));
        assert_eq!(rate(3, 3_000, 40, 1_000), Some((1, 1)));
        assert_eq!(rate(1, 0, 0, 1_000), None);
        assert_eq!(rate(0, 0, 0, 0), None);
    }
}
