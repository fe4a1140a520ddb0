//! Times as playlists and manifests write them.

use crate::Micros;

/// Parses a decimal number of seconds, `9.009`, as microseconds, and rounds further digits. `None`
/// if the text is no such number, is negative, or is not below a hundred million.
pub(crate) fn seconds(text: &str) -> Option<Micros> {
    number_of_seconds(text, 8)
}

/// The same for numbers with at most so many digits before the point, which may be 12.
fn number_of_seconds(text: &str, most: usize) -> Option<Micros> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty())
        || whole.len() > most
        || !digits(whole)
        || !digits(fraction)
    {
        return None;
    }
    let whole: Micros = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut micros = 0;
    let mut unit = 100_000;
    for digit in fraction.bytes().take(6) {
        micros += Micros::from(digit - b'0') * unit;
        unit /= 10;
    }
    let up = fraction.as_bytes().get(6).is_some_and(|digit| *digit >= b'5');
    Some(whole * 1_000_000 + micros + Micros::from(up))
}

/// Parses an ISO 8601 date and time as microseconds since 1970 UTC: `2026-11-21T20:01:00.25Z`. It
/// ends with `Z`, an offset (`+01:00`, `+0100`, `+01`), or nothing, which means UTC.
pub(crate) fn date(text: &str) -> Option<Micros> {
    let text = text.trim();
    let (day, time) = text.split_once(['T', 't', ' '])?;
    let mut parts = day.splitn(3, '-');
    let year: i64 = number(parts.next()?, 4)?;
    let month: i64 = number(parts.next()?, 2)?;
    let day: i64 = number(parts.next()?, 2)?;
    let (time, offset) = match time.find(['Z', 'z', '+', '-']) {
        Some(at) => time.split_at(at),
        None => (time, ""),
    };
    let mut parts = time.splitn(3, ':');
    let hour: i64 = number(parts.next()?, 2)?;
    let minute: i64 = number(parts.next()?, 2)?;
    let second = seconds(parts.next().unwrap_or("0"))?;
    let plausible = (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour <= 24
        && minute < 60
        && second < 61_000_000;
    if !plausible {
        return None;
    }
    let offset = match offset.as_bytes() {
        [] | [b'Z' | b'z'] => 0,
        [sign @ (b'+' | b'-'), ..] => {
            let digits: String = offset[1..].chars().filter(|c| *c != ':').collect();
            let (hours, minutes) = digits.split_at_checked(2)?;
            let hours: i64 = number(hours, 2)?;
            let minutes: i64 = if minutes.is_empty() { 0 } else { number(minutes, 2)? };
            let offset = hours * 60 + minutes;
            if *sign == b'-' { -offset } else { offset }
        }
        _ => return None,
    };
    let minutes = (days_from_civil(year, month, day) * 24 + hour) * 60 + minute - offset;
    Some(minutes * 60_000_000 + second)
}

fn number(text: &str, digits: usize) -> Option<i64> {
    let right = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    right.then(|| text.parse().ok())?
}

/// Counts the days from 1970-01-01 to a date of the Gregorian calendar. Years begin in March here;
/// 400 of them are 146,097 days.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Parses an xs:duration (XML Schema 3.2.6), `PT1H2M3.5S`, as microseconds. Years and months have
/// no fixed length; they count as 365 and 30 days. A period of a live presentation may begin at a
/// number of seconds since 1970, which has ten digits.
pub(crate) fn duration(text: &str) -> Option<Micros> {
    let mut rest = text.trim().strip_prefix('P')?;
    let mut in_time = false;
    let mut sum: Micros = 0;
    let mut any = false;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('T') {
            (rest, in_time) = (after, true);
            continue;
        }
        let end = rest.find(|c: char| c.is_ascii_alphabetic())?;
        let (number, unit) = rest.split_at_checked(end)?;
        let mut chars = unit.chars();
        let factor = match (chars.next()?, in_time) {
            ('Y', false) => 365 * 86_400,
            ('M', false) => 30 * 86_400,
            ('D', false) => 86_400,
            ('H', true) => 3600,
            ('M', true) => 60,
            ('S', true) => 1,
            _ => return None,
        };
        rest = chars.as_str();
        sum = sum.checked_add(number_of_seconds(number, 10)?.checked_mul(factor)?)?;
        any = true;
    }
    any.then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_seconds() {
        for (text, micros) in [
            ("10", Some(10_000_000)),
            ("9.009", Some(9_009_000)),
            (".5", Some(500_000)),
            ("0.2000005", Some(200_001)),
            ("", None),
            (".", None),
            ("-1", None),
            ("1e3", None),
            ("123456789", None),
        ] {
            assert_eq!(seconds(text), micros, "{text:?}");
        }
    }

    #[test]
    fn dates() {
        for (text, micros) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2026-11-21T20:01:00.250Z", Some(1_795_291_260_250_000)),
            ("2026-11-21T21:01:00.25+01:00", Some(1_795_291_260_250_000)),
            ("2026-11-21T20:01:00.25", Some(1_795_291_260_250_000)),
            ("2026-11-21T15:31:00.25-0430", Some(1_795_291_260_250_000)),
            ("2000-02-29T00:00:00Z", Some(951_782_400_000_000)),
            ("2000-2-29T00:00:00Z", None),
            ("2000-13-01T00:00:00Z", None),
            ("yesterday", None),
            ("2000-01-01T00:00:00+é0", None),
        ] {
            assert_eq!(date(text), micros, "{text}");
        }
    }

    #[test]
    fn durations() {
        for (text, micros) in [
            ("PT0S", Some(0)),
            ("PT1.5S", Some(1_500_000)),
            ("PT1H2M3.25S", Some(3_723_250_000)),
            ("P1DT1S", Some(86_401_000_000)),
            ("PT1732800000S", Some(1_732_800_000_000_000)),
            ("P9999999999Y", None),
            ("P", None),
            ("PT", None),
            ("1S", None),
            ("PT1X", None),
            ("PT99999999999S", None),
        ] {
            assert_eq!(duration(text), micros, "{text}");
        }
    }
}
