//! When frames were captured.

use std::time::Duration;

use live::UnixMicros;
use tokio::time::Instant;

/// A frame that was captured longer ago counts as captured now: the clock was set, or the stream is
/// none that anybody calls live.
const LONG_AGO: Duration = Duration::from_secs(60);

/// What tells how old frames are.
pub(super) struct Ages {
    pub(super) now: Instant,
    /// The wall clock, now.
    pub(super) wall: UnixMicros,
    /// When time 0 of the stream was captured, in microseconds of the wall clock, if known.
    pub(super) epoch: Option<i64>,
}

impl Ages {
    /// When a frame with this RTP time was captured. Sender reports tell viewers, who put video beside
    /// audio by this and know how far behind they are.
    pub(super) fn captured(&self, time: i64, rate: u32) -> Instant {
        let age = self.epoch.and_then(|epoch| {
            let at = epoch.saturating_add(live::rescale(time, rate, 1_000_000));
            let age = i64::try_from(self.wall.0).ok()?.saturating_sub(at);
            // A report cannot tell of a time that has not come.
            Some(Duration::from_micros(age.max(0).unsigned_abs()))
        });
        let age = age.filter(|age| *age < LONG_AGO).unwrap_or_default();
        self.now.checked_sub(age).unwrap_or(self.now)
    }
}

#[cfg(test)]
mod tests {
    use rtp::{AUDIO_RATE, VIDEO_RATE};

    use super::*;

    #[test]
    fn captures_are_in_the_past_and_on_one_clock() {
        let now = Instant::now() + LONG_AGO;
        let ages = |wall, epoch| Ages { now, wall: UnixMicros(wall), epoch };
        let ago =
            |ages: Ages, time, rate| now.duration_since(ages.captured(time, rate)).as_micros();
        let epoch = 1_700_000_000_000_000_i64;
        let wall = epoch.unsigned_abs() + 10_000_000;
        // Now is 10 s after the beginning. Video and audio of 9.7 s after the beginning are 0.3 s old.
        for (time, rate) in [(90_000 * 97 / 10, VIDEO_RATE), (48_000 * 97 / 10, AUDIO_RATE)] {
            assert_eq!(ago(ages(wall, Some(epoch)), time, rate), 300_000);
        }
        // What seems to come from the future, or is of no known time, is captured now.
        assert_eq!(ago(ages(wall, Some(epoch)), 90_000 * 11, VIDEO_RATE), 0);
        assert_eq!(ago(ages(wall, None), 90_000 * 5, VIDEO_RATE), 0);
        for time in [i64::MIN, i64::MAX, -90_000 * 3600] {
            assert_eq!(ago(ages(wall, Some(epoch)), time, VIDEO_RATE), 0);
        }
    }
}
