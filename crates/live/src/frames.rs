//! How long the newest sample lasts, before the next one is there.

use std::collections::VecDeque;

use media::Sample;

use crate::packager::JITTER;
use crate::rescale;

/// Frames over which the frame duration is averaged.
const HISTORY: usize = 128;

/// How long access units of so many samples last, in a timescale that their sampling rate need not
/// divide: the rate may change, the timescale may not.
#[derive(Clone, Copy)]
pub(crate) struct UnitDuration {
    /// Samples of the unit times the timescale: ticks times the rate.
    ticks: u64,
    rate: u64,
    /// What the units so far lasted beyond whole ticks, in ticks times the rate.
    rest: u64,
}

impl UnitDuration {
    fn next(self) -> u32 {
        u32::try_from((self.ticks + self.rest) / self.rate).unwrap_or(u32::MAX).max(1)
    }

    fn advance(&mut self) {
        self.rest = (self.ticks + self.rest) % self.rate;
    }
}

/// Predicts how long the newest sample lasts, before the next one is there.
pub(crate) struct FrameDuration {
    timescale: u32,
    /// AAC: every access unit decodes to as many samples. Times then count access units, and the
    /// publisher's clock only corrects them.
    pub(crate) fixed: Option<UnitDuration>,
    opus: bool,
    /// Decode times the source said, as long as they were about as far apart as each other.
    times: VecDeque<i64>,
    /// What the source said the newest sample's duration is; 0 where it does not say.
    said: u32,
    /// The prediction.
    pub(crate) guess: Option<f64>,
}

impl FrameDuration {
    pub(crate) fn new(track: &media::Track) -> Self {
        let fixed =
            track.codec.frame_length().zip(track.codec.sound()).map(|(frame, (rate, _))| {
                let ticks = u64::from(frame) * u64::from(track.timescale);
                UnitDuration { ticks, rate: u64::from(rate.max(1)), rest: 0 }
            });
        Self {
            timescale: track.timescale,
            fixed,
            opus: matches!(track.codec, media::Codec::Opus(_)),
            times: VecDeque::new(),
            said: 0,
            guess: None,
        }
    }

    /// The times that follow have nothing to do with those before.
    pub(crate) fn restart(&mut self) {
        self.times.clear();
    }

    /// A sample of the predicted duration was taken.
    pub(crate) fn advance(&mut self) {
        if let Some(fixed) = &mut self.fixed {
            fixed.advance();
        }
    }

    pub(crate) fn observe(&mut self, dts: i64, duration: u32) {
        self.said = duration;
        let Some(&last) = self.times.back() else {
            self.times.push_back(dts);
            return;
        };
        let step = dts - last;
        if step <= 0 {
            self.times.clear();
            self.times.push_back(dts);
            return;
        }
        let jitter = f64::from(self.timescale) * JITTER;
        let regular = self.mean().is_none_or(|mean| (step as f64 - mean).abs() <= jitter);
        if !regular {
            // At a varying rate the last step is the best guess at the next; but one step alone
            // that is much longer is a frame the publisher dropped, or a hole.
            let alone = self.times.len() > 2 || step > i64::from(self.timescale);
            let pause = alone && step as f64 > 4.0 * self.guess.unwrap_or(0.0);
            if !pause {
                self.guess = Some(step as f64);
            }
            self.times.clear();
            self.times.push_back(last);
        }
        self.times.push_back(dts);
        if self.times.len() > HISTORY {
            self.times.pop_front();
        }
        if regular && let Some(mean) = self.mean() {
            self.guess = Some(self.nominal(mean));
        }
    }

    pub(crate) fn mean(&self) -> Option<f64> {
        let steps = self.times.len().checked_sub(1).filter(|&steps| steps > 0)?;
        Some((self.times.back()? - self.times.front()?) as f64 / steps as f64)
    }

    /// Whether time is counted in access units that know their duration.
    pub(crate) fn counts(&self) -> bool {
        self.fixed.is_some() || self.opus
    }

    /// How far a source's time may be from the counted one before the source is believed: an
    /// access unit; one of Opus is 20 ms, mostly.
    pub(crate) fn tolerance(&self) -> i64 {
        let opus = if self.opus { self.timescale / 50 } else { 0 };
        i64::from(self.fixed.map_or(opus, UnitDuration::next))
    }

    pub(crate) fn is_unknown(&self) -> bool {
        !self.counts() && self.said == 0 && self.guess.is_none()
    }

    pub(crate) fn next(&self, sample: &Sample) -> u32 {
        if let Some(fixed) = self.fixed {
            return fixed.next();
        }
        if self.opus
            && let Some(duration) = media::codec::opus::packet_duration(&sample.data)
        {
            let ticks = rescale(i64::from(duration), 48_000, self.timescale);
            return u32::try_from(ticks).unwrap_or(1).max(1);
        }
        if self.said > 0 {
            return self.said;
        }
        let guess = self.guess.map_or(self.timescale / 30, |guess| guess.round() as u32);
        guess.clamp(1, self.timescale.saturating_mul(10))
    }

    /// The duration that stands for all of the track's frames, `newest` being one.
    pub(crate) fn steady(&self, newest: u32) -> u32 {
        let counted = self.fixed.map(UnitDuration::next);
        counted.unwrap_or_else(|| self.guess.map_or(newest, |guess| guess.round() as u32)).max(1)
    }

    /// The exact duration where `mean` is, but for rounding, that of a common frame rate: the one
    /// assumed so far if that still holds.
    pub(crate) fn nominal(&self, mean: f64) -> f64 {
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
        let rounding = f64::from(self.timescale) * 0.001 / (self.times.len().max(2) - 1) as f64;
        RATES
            .iter()
            .map(|(n, d)| f64::from(self.timescale) * d / n)
            .filter(|exact| (exact - mean).abs() <= rounding)
            .reduce(|best, other| if self.guess == Some(other) { other } else { best })
            .unwrap_or(mean)
    }
}
