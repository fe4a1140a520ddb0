//! Counts, times and sizes in command-line arguments.

use std::time::Duration;

/// A number of at least 1.
pub(crate) fn count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("not a number from 1".to_owned()),
        Ok(number) => Ok(number),
    }
}

/// `500ms`, `10s`, `1m`.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let units = [("ms", 1), ("s", 1000), ("m", 60_000)];
    match scaled(text, &units) {
        Some(milliseconds @ 1..) => Ok(Duration::from_millis(milliseconds)),
        _ => Err("not a time such as 500ms, 10s or 1m".to_owned()),
    }
}

/// `4096`, `64KiB`, `1MB`.
pub(crate) fn size(text: &str) -> Result<usize, String> {
    let units = [
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("kB", 1000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("", 1),
    ];
    match scaled(text, &units).map(usize::try_from) {
        Some(Ok(bytes @ 1..)) => Ok(bytes),
        _ => Err("not a size such as 4096, 64KiB or 1MB".to_owned()),
    }
}

/// A number with a unit, converted to the smallest unit. The first unit that ends the text counts.
fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (number, scale) =
        units.iter().find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, scale)))?;
    // `parse` alone would accept a sign.
    let digits = number.bytes().all(|digit| digit.is_ascii_digit());
    number.parse::<u64>().ok().filter(|_| digits)?.checked_mul(*scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes() {
        assert_eq!(time("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(time("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(time("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(size("4096"), Ok(4096));
        assert_eq!(size("64KiB"), Ok(65536));
        assert_eq!(size("1MB"), Ok(1_000_000));
        for bad in ["", "0s", "-1s", "+1s", "1", "s", "1.5s", "99999999999999999999s"] {
            assert!(time(bad).is_err(), "{bad}");
        }
        for bad in ["", "0", "+1", "-1", "KiB", "1 KiB", "1K", "99999999999999999GiB"] {
            assert!(size(bad).is_err(), "{bad}");
        }
        assert!(count("0").is_err());
        assert_eq!(count("3"), Ok(3));
    }
}
