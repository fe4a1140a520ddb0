//! When frames are due, how long the newest frame lasts before the next one arrives, and how long
//! access units of audio last.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::time::Duration;

use media::Sample;

use crate::rescale;

/// Number of frames over which the frame duration is averaged.
const HISTORY: usize = 128;
/// Number of frames in a row that must come when they are due before the next one is expected to.
/// Few are enough: a publisher with a regular frame rate mostly has it from the start.
const REGULAR: u32 = 3;
/// How far from the time when it is due a frame may come and count as on time, in seconds. Clocks
/// of a millisecond round up, down or to the nearest.
const ROUNDING: f64 = 0.001;

/// Duration of access units that all have the same number of samples. The timescale need not be a
/// multiple of the sampling rate: the rate may change, the timescale may not.
#[derive(Clone, Copy)]
pub(crate) struct UnitDuration {
    /// The unit's duration in ticks, times the rate: its samples times the timescale.
    ticks: u64,
    rate: u64,
    /// Remainder of the units' durations so far beyond whole ticks, times the rate.
    rest: u64,
}

impl UnitDuration {
    fn next(self) -> u32 {
        u32::try_from((self.ticks + self.rest) / self.rate).unwrap_or(u32::MAX).max(1)
    }

    fn advance(&mut self) {
        self.rest = (self.ticks + self.rest) % self.rate;
    }

    /// The end of the first unit that ends at `until` or later, if units abut from `from` on.
    fn reach(self, from: i64, until: i64) -> i64 {
        let (ticks, rate, rest) =
            (i128::from(self.ticks.max(1)), i128::from(self.rate), i128::from(self.rest));
        // Whole ticks, times the rate, that the units must fill beyond the remainder before them.
        let missing = (i128::from(until) - i128::from(from)).max(0) * rate - rest;
        let units = (missing + ticks - 1).div_euclid(ticks).max(0);
        let lasts = (units * ticks + rest) / rate;
        from.saturating_add(i64::try_from(lasts).unwrap_or(i64::MAX))
    }
}

/// Durations of access units of audio, which are known from the units themselves.
///
/// A unit's time is counted in access units. The publisher's clock only shows that some are
/// missing.
pub(crate) struct Units {
    timescale: u32,
    /// For AAC, where every access unit decodes to the same number of samples. `None` for Opus.
    fixed: Option<UnitDuration>,
    /// How many units in a row the source timed too late, or too early if negative.
    off: i32,
}

/// AAC may be this much off its counted time for a while: encoders give one time to several units,
/// or the time at which they got them.
const JITTER: Duration = Duration::from_millis(120);
/// After so many units of AAC in a row that are off in the same direction, the source is believed.
const STEADILY: u32 = 10;

impl Units {
    /// The durations of a track of AAC or Opus; `None` for any other track.
    pub(crate) fn of(track: &media::Track) -> Option<Self> {
        let fixed =
            track.codec.frame_length().zip(track.codec.audio()).map(|(frame, (rate, _))| {
                let ticks = u64::from(frame) * u64::from(track.timescale);
                UnitDuration { ticks, rate: u64::from(rate.max(1)), rest: 0 }
            });
        let known = fixed.is_some() || matches!(track.codec, media::Codec::Opus(_));
        known.then_some(Self { timescale: track.timescale, fixed, off: 0 })
    }

    /// What a source tells whose next unit begins `gap` ticks after the end of the newest: `Greater`
    /// if units are missing between them, `Less` if there is no room for this unit, else `Equal`.
    /// The times of Opus come from RTP and are exact, so they are believed at once.
    pub(crate) fn judge(&self, gap: i64) -> Ordering {
        let side = self.side(gap);
        let jitter = i64::try_from(JITTER.as_millis()).unwrap_or(0);
        let is_small = gap.unsigned_abs() <= rescale(jitter, 1000, self.timescale).unsigned_abs();
        let may_pass = self.fixed.is_some() && is_small;
        let steadily = self.off_with(side).unsigned_abs() >= STEADILY;
        if may_pass && !steadily { Ordering::Equal } else { side }
    }

    /// Notes the gap before a unit.
    pub(crate) fn note(&mut self, gap: i64) {
        self.off = self.off_with(self.side(gap));
    }

    /// On which side of the counted time a unit is, if it is more than about one access unit away.
    /// An access unit of Opus mostly lasts 20 ms.
    fn side(&self, gap: i64) -> Ordering {
        let unit = i64::from(self.fixed.map_or(self.timescale / 50, UnitDuration::next));
        match gap {
            // A period may begin up to a unit after its time, where the period before ends.
            gap if gap < -unit * 3 / 2 => Ordering::Less,
            gap if gap > unit => Ordering::Greater,
            _ => Ordering::Equal,
        }
    }

    /// `off` with one more unit.
    fn off_with(&self, side: Ordering) -> i32 {
        match side {
            Ordering::Equal => 0,
            Ordering::Greater => self.off.max(0).saturating_add(1),
            Ordering::Less => self.off.min(0).saturating_sub(1),
        }
    }

    /// How long `sample` lasts, in ticks.
    pub(crate) fn duration(&self, sample: &Sample) -> u32 {
        if let Some(fixed) = self.fixed {
            return fixed.next();
        }
        let packet = media::codec::opus::packet_duration(&sample.data).unwrap_or(960);
        u32::try_from(rescale(i64::from(packet), 48_000, self.timescale)).unwrap_or(1).max(1)
    }

    /// Counts a sample that was taken.
    pub(crate) fn advance(&mut self) {
        if let Some(fixed) = &mut self.fixed {
            fixed.advance();
        }
    }

    /// Where the first unit that starts at `until` or later begins, if the newest unit ends at
    /// `from`. `None` for Opus, whose later durations are unknown.
    pub(crate) fn first_from(&self, from: i64, until: i64) -> Option<i64> {
        Some(self.fixed?.reach(from, until))
    }
}

/// Times of frames whose durations are unknown.
///
/// At a regular frame rate the times are those of the rate, within the rounding of the source's
/// clock. Otherwise they are the source's.
#[derive(Debug)]
pub(crate) struct Cadence {
    timescale: u32,
    /// The source's latest times that are about evenly spaced.
    times: VecDeque<i64>,
    /// Frame duration at the rate of those times.
    step: Option<f64>,
    /// When the newest frame was due.
    due: f64,
    /// Number of frames in a row that came when they were due.
    regular: u32,
    /// Duration that the source gives the newest frame, or 0.
    said: u32,
}

impl Cadence {
    pub(crate) fn new(timescale: u32) -> Self {
        Self { timescale, times: VecDeque::new(), step: None, due: 0.0, regular: 0, said: 0 }
    }

    /// Forgets the times so far: the times that follow have nothing to do with them. The frame rate
    /// most likely stays the same.
    pub(crate) fn restart(&mut self) {
        self.times.clear();
        if self.step.is_none() {
            self.regular = 0;
        }
    }

    /// Takes the duration of earlier frames. The frame rate most likely stays the same.
    pub(crate) fn assume(&mut self, step: f64) {
        self.step = Some(step);
    }

    /// Takes the source's time of the next frame, and the source's duration or 0. Returns when the
    /// frame is due: within a millisecond of the source's time.
    pub(crate) fn observe(&mut self, time: i64, said: u32) -> i64 {
        self.said = said;
        let Some(&last) = self.times.back() else {
            return self.begin(time);
        };
        let rounding = f64::from(self.timescale) * ROUNDING;
        let step = (time - last) as f64;
        let mean = self.mean();
        // Both ends of a step are rounded.
        let like_others = mean.is_none_or(|mean| (step - mean).abs() <= 2.0 * rounding);
        if step <= 0.0 || !like_others {
            self.times.clear();
            if step > 0.0 {
                self.times.push_back(last);
            }
        }
        self.times.push_back(time);
        if self.times.len() > HISTORY {
            self.times.pop_front();
        }
        let before = self.step;
        if let Some(mean) = self.mean() {
            self.step = Some(self.nominal(mean));
        }
        let expected = self.due + before.or(self.step).unwrap_or(step);
        if (expected - time as f64).abs() <= rounding {
            self.regular = self.regular.saturating_add(1);
            self.due = expected;
            return expected.round() as i64;
        }
        self.regular = 0;
        self.due = time as f64;
        time
    }

    fn begin(&mut self, time: i64) -> i64 {
        self.times.push_back(time);
        self.due = time as f64;
        time
    }

    /// How long the newest frame lasts. `None` if the rate is not regular and the source does not
    /// say.
    pub(crate) fn step(&self) -> Option<i64> {
        if self.said > 0 {
            return Some(i64::from(self.said));
        }
        // Rounds the end of the newest frame, and not its duration. So durations add up at a rate
        // whose frames do not last whole ticks.
        let step = self.step.filter(|_| self.regular >= REGULAR)?;
        Some(((self.due + step).round() - self.due.round()).max(1.0) as i64)
    }

    /// How long frames lasted lately, at a regular rate or not.
    pub(crate) fn usual(&self) -> Option<i64> {
        self.step.map(|step| step.round() as i64)
    }

    fn mean(&self) -> Option<f64> {
        let steps = self.times.len().checked_sub(1).filter(|&steps| steps > 0)?;
        Some((self.times.back()? - self.times.front()?) as f64 / steps as f64)
    }

    /// The exact frame duration of the common frame rate that `mean` fits but for rounding, or else
    /// `mean`. If several rates fit, the one assumed so far goes first.
    fn nominal(&self, mean: f64) -> f64 {
        const RATES: [(f64, f64); 13] = [
            (10.0, 1.0),
            (12.0, 1.0),
            (15.0, 1.0),
            (20.0, 1.0),
            (24.0, 1.0),
            (25.0, 1.0),
            (30.0, 1.0),
            (48.0, 1.0),
            (50.0, 1.0),
            (60.0, 1.0),
            (24_000.0, 1001.0),
            (30_000.0, 1001.0),
            (60_000.0, 1001.0),
        ];
        let rounding = f64::from(self.timescale) * ROUNDING / (self.times.len().max(2) - 1) as f64;
        RATES
            .iter()
            .map(|(n, d)| f64::from(self.timescale) * d / n)
            .filter(|exact| (exact - mean).abs() <= rounding)
            .reduce(|best, other| if self.step == Some(other) { other } else { best })
            .unwrap_or(mean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(times: impl IntoIterator<Item = i64>) -> (Vec<i64>, Cadence) {
        let mut cadence = Cadence::new(90_000);
        let due = times.into_iter().map(|time| cadence.observe(time, 0)).collect();
        (due, cadence)
    }

    #[test]
    fn a_rate_is_found_in_times_of_whole_milliseconds() {
        for (n, d, exact) in [(30, 1, 3000), (60, 1, 1500), (25, 1, 3600), (30_000, 1001, 3003)] {
            // Rounded to nearest, down and up.
            for add in [500 * n, 0, 1000 * n - 1] {
                let said =
                    |frame: i64| (frame * d * 1_000_000 + add * 1000 / 1000).div_euclid(n * 1000);
                let (due, cadence) = due((0..300).map(|frame| said(frame) * 90));
                assert_eq!(cadence.step(), Some(exact), "{n}/{d}");
                for (frame, due) in due.iter().enumerate() {
                    let apart = due.abs_diff(said(frame as i64) * 90);
                    assert!(apart <= 90, "{n}/{d}: frame {frame} is {apart} ticks from its time");
                }
            }
        }
    }

    #[test]
    fn an_irregular_frame_is_due_when_it_comes_and_nothing_is_told_of_its_end() {
        let times = [0, 33, 67, 100, 167, 200, 233, 267, 333].map(|time| time * 90);
        let (due, cadence) = due(times);
        for (due, said) in due.iter().zip(times) {
            assert!(due.abs_diff(said) <= 90);
        }
        assert_eq!(cadence.step(), None);
    }

    #[test]
    fn a_clock_that_moves_by_more_than_rounding_moves_the_times_at_one_place() {
        // Sender reports of WebRTC move video beside the audio. The times are those of an RTP clock.
        for (frame, moves) in [(6000, 225), (6000, -225), (3000, -900), (1500, 225), (3750, -225)] {
            for at in i64::from(REGULAR) + 1..200 {
                let said = |count: i64| count * frame + if count < at { 0 } else { moves };
                let (due, _) = due((0..300).map(said));
                assert!(due.into_iter().eq((0..300).map(said)), "{frame} {moves} {at}");
            }
        }
    }

    #[test]
    fn units_are_counted_to_the_one_that_starts_at_a_time_or_later() {
        let unit = UnitDuration { ticks: 1024 * 48_000, rate: 44_100, rest: 7 };
        for until in [-5, 0, 1, 1114, 1115, 50_000, 96_000, 1_000_000] {
            let (mut slow, mut end) = (unit, 0);
            while end < until {
                end += i64::from(slow.next());
                slow.advance();
            }
            assert_eq!(unit.reach(0, until), end, "{until}");
        }
        // A leading track may be years ahead.
        assert!(unit.reach(0, i64::MAX / 2) >= i64::MAX / 2);
    }
}
