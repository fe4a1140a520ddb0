use std::time::Duration;

/// A duration that several timescales can express exactly: whole units of `1 / per_second`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shift {
    /// Number of units.
    pub units: u64,
    /// Units per second. It divides every track's timescale, so that the duration is the same in
    /// each.
    pub per_second: u32,
}

impl Shift {
    /// The duration in units of a track's timescale.
    pub fn in_timescale(self, timescale: u32) -> i64 {
        let each = u64::from(timescale / self.per_second.max(1));
        i64::try_from(self.units.saturating_mul(each)).unwrap_or(i64::MAX)
    }

    /// The duration, rounded down to the nanosecond.
    pub fn duration(self) -> Duration {
        let nanos = u128::from(self.units) * 1_000_000_000 / u128::from(self.per_second.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// Relation between a title's time and the time of its files. Both fields mean the same moment in
/// every timescale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Timeline {
    /// Time in the files at which the title begins, in units of the shift. It is above 0 where
    /// media were cut out of a longer recording, and a little below 0 where an edit list begins
    /// between keyframes.
    pub(crate) start: i64,
    pub(crate) shift: Shift,
}

/// Times at which a track begins, in its sample table, with their timescale.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Beginning {
    /// Decode time of its first sample.
    pub(crate) decoded: i64,
    /// Time at which it is first presented.
    pub(crate) presented: i64,
    pub(crate) timescale: u32,
}

impl Timeline {
    /// The timeline begins with the first track that is presented, rounded down to a unit that all
    /// timescales share. It is shifted so far that no decode time is negative.
    pub(crate) fn of(tracks: &[Beginning]) -> Self {
        let divisor = |a: u32, b: u32| {
            let (mut a, mut b) = (a, b);
            while b != 0 {
                (a, b) = (b, a % b);
            }
            a
        };
        let timescales = tracks.iter().map(|track| track.timescale);
        let per_second = timescales.reduce(divisor).unwrap_or(1).max(1);
        // A unit of the shift is a whole number of the track's units.
        let units =
            |time: i64, timescale: u32| time.div_euclid(i64::from((timescale / per_second).max(1)));
        let start = tracks.iter().map(|track| units(track.presented, track.timescale)).min();
        let start = start.unwrap_or_default();
        let late = |track: &Beginning| {
            let decoded = units(track.decoded, track.timescale);
            u64::try_from(start.saturating_sub(decoded)).unwrap_or_default()
        };
        let units = tracks.iter().map(late).max().unwrap_or_default();
        Self { start, shift: Shift { units, per_second } }
    }

    /// Offset from the times of a track's sample table to stream time, in the track's timescale.
    pub(crate) fn to_stream(self, timescale: u32) -> i64 {
        let each = i64::from(timescale / self.shift.per_second.max(1));
        self.shift.in_timescale(timescale).saturating_sub(self.start.saturating_mul(each))
    }

    /// Time in the files at which the title begins, in milliseconds, rounded down.
    pub(crate) fn start_millis(self) -> i64 {
        let millis = i128::from(self.start) * 1_000;
        let millis = millis.div_euclid(i128::from(self.shift.per_second.max(1)));
        millis.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beginning(decoded: i64, presented: i64, timescale: u32) -> Beginning {
        Beginning { decoded, presented, timescale }
    }

    #[test]
    fn the_shift_is_the_same_moment_in_every_timescale() {
        let tracks = [beginning(-1_024, 0, 48_000), beginning(-1_024, 0, 12_288)];
        let Timeline { start, shift } = Timeline::of(&tracks);
        // A twelfth of a second.
        assert_eq!((start, shift.units, shift.per_second), (0, 32, 384));
        assert_eq!((shift.in_timescale(48_000), shift.in_timescale(12_288)), (4_000, 1_024));
        assert_eq!(shift.duration(), Duration::from_nanos(83_333_333));
        let tracks = [beginning(-1, 0, 44_100), beginning(0, 0, 1_001)];
        assert_eq!(Timeline::of(&tracks).shift.per_second, 7);
        assert_eq!(Timeline::of(&[]).to_stream(90_000), 0);
    }

    #[test]
    fn a_title_begins_with_what_is_presented_first() {
        // One hour in. The audio begins half a second after the video, which is reordered.
        let hour = 3_600;
        let video = beginning(hour * 90_000 - 3_000, hour * 90_000, 90_000);
        let audio = beginning(hour * 48_000 + 24_000, hour * 48_000 + 24_000, 48_000);
        let late = Timeline::of(&[video, audio]);
        assert_eq!(late.start_millis(), hour * 1_000);
        assert_eq!(late.shift.in_timescale(90_000), 3_000);
        assert_eq!(video.decoded + late.to_stream(90_000), 0);
        assert_eq!(audio.decoded + late.to_stream(48_000), 24_000 + 1_600);
        // Frames before time 0 are shown.
        let early = Timeline::of(&[beginning(-45_000, -42_000, 90_000)]);
        assert_eq!((early.start_millis(), early.shift.units), (-467, 3_000));
        assert_eq!(early.to_stream(90_000), 45_000);
        // Nothing overflows.
        for time in [i64::MIN, i64::MAX] {
            let far = Timeline::of(&[beginning(time, time, 1), beginning(0, 0, 3)]);
            let _ = (far.to_stream(u32::MAX), far.start_millis());
        }
    }
}
