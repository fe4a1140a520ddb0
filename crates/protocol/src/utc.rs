//! Calendar time in the form of manifests.

use std::fmt;

/// A time in milliseconds since 1970 UTC. It is shown in the form of ISO 8601 and RFC 3339:
/// `2026-11-21T20:01:00.250Z`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Utc(pub u64);

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, millis) = (self.0 / 1000, self.0 % 1000);
        let (days, second) = (seconds / 86_400, seconds % 86_400);
        let (year, month, day) = civil(days);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
    }
}

/// A time in microseconds since 1970 UTC. Whole milliseconds are shown like [`Utc`], other times
/// with six decimals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UtcMicros(pub u64);

impl fmt::Display for UtcMicros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (millis, micros) = (self.0 / 1000, self.0 % 1000);
        if micros == 0 {
            return Utc(millis).fmt(f);
        }
        let text = Utc(millis).to_string();
        write!(f, "{}{micros:03}Z", text.trim_end_matches('Z'))
    }
}

/// Year, month and day of a day counted from 1970-01-01, in the Gregorian calendar.
///
/// Here years begin in March, so that the leap day is the last day of a year. 400 years have
/// 146,097 days.
fn civil(days: u64) -> (u64, u64, u64) {
    // 719,468 days lie between 0000-03-01 and 1970-01-01.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // From March on, months have 31, 30, 31, 30 and 31 days, repeatedly: 153 days in five months.
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year_of_era + carry, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_dates() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199_999, "2024-02-29T23:59:59.999Z"),
            (1_795_291_260_250, "2026-11-21T20:01:00.250Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(Utc(millis).to_string(), text);
        }
    }

    #[test]
    fn microseconds_are_written_where_there_are_any() {
        assert_eq!(UtcMicros(1_250_000).to_string(), "1970-01-01T00:00:01.250Z");
        assert_eq!(UtcMicros(1_250_007).to_string(), "1970-01-01T00:00:01.250007Z");
    }

    #[test]
    fn days_follow_each_other() {
        let mut previous = civil(0);
        for day in 1..200_000 {
            let (year, month, day) = civil(day);
            let (y, m, d) = previous;
            let next_day = (year, month, day) == (y, m, d + 1);
            let next_month = (year, month, day) == (y, m + 1, 1) && d >= 28;
            let next_year = (year, month, day) == (y + 1, 1, 1) && (m, d) == (12, 31);
            assert!(next_day || next_month || next_year, "{previous:?} {:?}", (year, month, day));
            previous = (year, month, day);
        }
    }
}
