//! Parses times, sizes and bit rates from the command line.

use std::time::Duration;

/// A value that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {wanted}")]
pub struct BadValue {
    text: String,
    wanted: &'static str,
}

/// Splits a text into its number and its unit.
fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(end)?;
    let number: f64 = number.parse().ok()?;
    Some((number, unit.trim()))
}

/// Parses a time: `500ms`, `10s`, `5m`, `1h`, up to a year.
///
/// # Errors
/// The text is no such time.
pub fn time(text: &str) -> Result<Duration, BadValue> {
    let bad = || BadValue { text: text.to_owned(), wanted: "a time such as 500ms, 10s or 5m" };
    let (number, unit) = split(text).ok_or_else(bad)?;
    let seconds = match unit {
        "us" => number / 1e6,
        "ms" => number / 1e3,
        "s" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3600.0,
        _ => return Err(bad()),
    };
    if seconds > 366.0 * 86_400.0 {
        return Err(bad());
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| bad())
}

/// Parses a share of a whole: `5%`, or `0.05`.
///
/// # Errors
/// The text is no such share, or a number of 1 or more without a sign of per cent.
pub fn share(text: &str) -> Result<f64, BadValue> {
    let bad = || BadValue { text: text.to_owned(), wanted: "a share such as 5% or 0.05" };
    match split(text).ok_or_else(bad)? {
        (number, "%") => Ok(number / 100.0),
        (number, "") if number < 1.0 => Ok(number),
        _ => Err(bad()),
    }
}

/// Parses a size: `64KiB`, `1MB`, `1500` (bytes).
///
/// # Errors
/// The text is no such size.
pub fn size(text: &str) -> Result<u64, BadValue> {
    let bad = || BadValue { text: text.to_owned(), wanted: "a size such as 1500, 64KiB or 1MB" };
    let (number, unit) = split(text).ok_or_else(bad)?;
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kib" => 1024.0,
        "kb" => 1e3,
        "m" | "mib" => 1_048_576.0,
        "mb" => 1e6,
        "g" | "gib" => 1_073_741_824.0,
        "gb" => 1e9,
        _ => return Err(bad()),
    };
    whole(number * factor).ok_or_else(bad)
}

/// Parses a bit rate: `600k`, `1.2M`, `800000` bits per second; also `kbit/s` and similar.
///
/// # Errors
/// The text is no such bit rate.
pub fn bit_rate(text: &str) -> Result<u64, BadValue> {
    let bad = || BadValue { text: text.to_owned(), wanted: "a bit rate such as 600k or 1.2M" };
    let (number, unit) = split(text).ok_or_else(bad)?;
    let unit = unit.to_ascii_lowercase();
    let factor = match unit.trim_end_matches("bit/s").trim_end_matches("bps") {
        "" => 1.0,
        "k" => 1e3,
        "m" => 1e6,
        "g" => 1e9,
        _ => return Err(bad()),
    };
    whole(number * factor).ok_or_else(bad)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in range as checked")]
fn whole(number: f64) -> Option<u64> {
    (0.0..9e15).contains(&number).then(|| number.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_understood() {
        for (text, millis) in
            [("500ms", 500), ("10s", 10_000), ("1.5s", 1500), ("5m", 300_000), ("1h", 3_600_000)]
        {
            assert_eq!(time(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for (text, bytes) in
            [("1500", 1500), ("64KiB", 65_536), ("1MB", 1_000_000), ("1.5 MiB", 1_572_864)]
        {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for (text, bits) in
            [("600k", 600_000), ("1.2M", 1_200_000), ("800000", 800_000), ("2 Mbit/s", 2_000_000)]
        {
            assert_eq!(bit_rate(text), Ok(bits), "{text}");
        }
        for (text, part) in [("5%", 0.05), ("0.05", 0.05), ("0", 0.0), ("12.5 %", 0.125)] {
            assert_eq!(share(text), Ok(part), "{text}");
        }
    }

    #[test]
    fn bad_quantities_are_refused() {
        for text in ["", "10", "s", "-1s", "1e3s", "10 parsecs", "1.2.3s", "99999999h", "é"] {
            assert!(time(text).is_err(), "{text}");
        }
        for text in ["", "-1", "1 furlong", "99999999GB", "k"] {
            assert!(size(text).is_err(), "{text}");
            assert!(bit_rate(text).is_err(), "{text}");
        }
        for text in ["", "5", "-5%", "5s", "%"] {
            assert!(share(text).is_err(), "{text}");
        }
    }
}
