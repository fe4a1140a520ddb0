//! How people write times, sizes and bit rates: `500ms`, `10s`, `5m`; `64KiB`, `1MB`; `1200kbit/s`.
//! The configuration file and the command line use the same units.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A duration, written as a decimal number and a unit: `ms`, `s`, `m` or `h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(pub Duration);

/// A count of bytes, written as a whole number and a unit: `B`, `kB`, `MB`, `GB` (powers of 1000)
/// or `KiB`, `MiB`, `GiB` (powers of 1024).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Size(pub u64);

/// Bits per second, written as a whole number and a unit: `bit/s`, `kbit/s` or `Mbit/s` (powers of
/// 1000).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bitrate(pub u64);

/// A factor with three decimals at most, written as a plain number: 1.25 or 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Factor(u32);

/// The text is not a time, a size or a bit rate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{found}` is not {expected}")]
pub struct ParseError {
    found: String,
    expected: &'static str,
}

const A_TIME: &str = "a time such as 500ms, 10s or 5m";
const A_SIZE: &str = "a size such as 512B, 64KiB or 1MB";
const A_BITRATE: &str = "a bitrate such as 800kbit/s or 5Mbit/s";

/// Nanoseconds in each unit, the largest first.
const TIME_UNITS: [(&str, u64); 4] =
    [("h", 3_600_000_000_000), ("m", 60_000_000_000), ("s", 1_000_000_000), ("ms", 1_000_000)];

/// Bytes in each unit. A size is written in the first unit that divides it.
const SIZE_UNITS: [(&str, u64); 7] = [
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("kB", 1_000),
    ("B", 1),
];

/// Bits per second in each unit. A bit rate is written in the first unit that divides it.
const BITRATE_UNITS: [(&str, u64); 3] = [("Mbit/s", 1_000_000), ("kbit/s", 1_000), ("bit/s", 1)];

impl Time {
    /// Makes a time of milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }

    /// Makes a time of seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(Duration::from_secs(secs))
    }
}

impl Size {
    /// Makes a size of KiB; saturates.
    pub const fn from_kib(kib: u64) -> Self {
        Self(kib.saturating_mul(1 << 10))
    }

    /// Makes a size of MiB; saturates.
    pub const fn from_mib(mib: u64) -> Self {
        Self(mib.saturating_mul(1 << 20))
    }
}

impl Bitrate {
    /// Makes a bit rate of kbit/s; saturates.
    pub const fn from_kbit(kbit: u64) -> Self {
        Self(kbit.saturating_mul(1000))
    }
}

impl Factor {
    /// Makes a factor of thousandths.
    pub const fn from_thousandths(thousandths: u32) -> Self {
        Self(thousandths)
    }

    /// The factor as a number.
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / 1000.0
    }
}

impl From<Time> for Duration {
    fn from(time: Time) -> Self {
        time.0
    }
}

impl From<Size> for u64 {
    fn from(size: Size) -> Self {
        size.0
    }
}

impl FromStr for Time {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let parse = || {
            let (number, unit) = split(text)?;
            let (_, nanos) = TIME_UNITS.iter().find(|(name, _)| *name == unit)?;
            let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
            // No clock keeps digits beyond the nanosecond.
            if !digits(whole) || !digits(fraction) || fraction.len() > 9 {
                return None;
            }
            let scale = 10u128.pow(u32::try_from(fraction.len()).ok()?);
            let value =
                whole.parse::<u128>().ok()?.checked_mul(scale)? + fraction.parse::<u128>().ok()?;
            let total = value.checked_mul(u128::from(*nanos))? / scale;
            Some(Self(Duration::from_nanos(u64::try_from(total).ok()?)))
        };
        parse().ok_or_else(|| ParseError { found: text.to_owned(), expected: A_TIME })
    }
}

impl FromStr for Size {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let size = whole(text, &SIZE_UNITS).map(Self);
        size.ok_or_else(|| ParseError { found: text.to_owned(), expected: A_SIZE })
    }
}

impl FromStr for Bitrate {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let bitrate = whole(text, &BITRATE_UNITS).map(Self);
        bitrate.ok_or_else(|| ParseError { found: text.to_owned(), expected: A_BITRATE })
    }
}

/// Parses a whole number with one of these units.
fn whole(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (number, unit) = split(text)?;
    let (_, each) = units.iter().find(|(name, _)| *name == unit)?;
    if !digits(number) {
        return None;
    }
    number.parse::<u64>().ok()?.checked_mul(*each)
}

/// Splits the text into number and unit. A blank between them is allowed.
fn split(text: &str) -> Option<(&str, &str)> {
    let text = text.trim();
    let unit = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(unit);
    Some((number.trim_end(), unit))
}

/// Whether the text is one digit or more, and nothing else. `parse` alone would accept a sign.
fn digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

impl fmt::Display for Time {
    /// Writes the time in the largest unit that needs no fraction: `90s`, not `1.5m`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        if nanos == 0 {
            return f.write_str("0s");
        }
        for (unit, each) in TIME_UNITS {
            if nanos.is_multiple_of(u128::from(each)) {
                return write!(f, "{}{unit}", nanos / u128::from(each));
            }
        }
        // The time is finer than a millisecond: a fraction of at most six digits follows.
        let fraction = format!("{:06}", nanos % 1_000_000);
        write!(f, "{}.{}ms", nanos / 1_000_000, fraction.trim_end_matches('0'))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_whole(f, self.0, &SIZE_UNITS)
    }
}

impl fmt::Display for Bitrate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_whole(f, self.0, &BITRATE_UNITS)
    }
}

/// Writes the number in the largest unit that divides it. The last unit is 1.
fn write_whole(f: &mut fmt::Formatter<'_>, number: u64, units: &[(&str, u64)]) -> fmt::Result {
    let divides = |each: u64| each == 1 || number != 0 && number.is_multiple_of(each);
    match units.iter().find(|(_, each)| divides(*each)) {
        Some((unit, each)) => write!(f, "{}{unit}", number / each),
        None => write!(f, "{number}"),
    }
}

impl fmt::Display for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.as_f64())
    }
}

impl Serialize for Factor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.as_f64())
    }
}

impl<'de> Deserialize<'de> for Factor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Accepts TOML's integers, too.
        let number = f64::deserialize(deserializer)?;
        let thousandths = (number * 1000.0).round();
        if (0.0..=f64::from(u32::MAX)).contains(&thousandths) {
            // The number is whole, and the check above shows that it is in range.
            return Ok(Self(thousandths as u32));
        }
        Err(de::Error::custom(format_args!("{number} is not a factor such as 1.25")))
    }
}

/// Serializes and deserializes the type as text, in any format.
macro_rules! as_text {
    ($type:ident, $expected:ident) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Visitor;

                impl de::Visitor<'_> for Visitor {
                    type Value = $type;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expected)
                    }

                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$type, E> {
                        text.parse().map_err(E::custom)
                    }
                }

                deserializer.deserialize_str(Visitor)
            }
        }
    };
}

as_text!(Time, A_TIME);
as_text!(Size, A_SIZE);
as_text!(Bitrate, A_BITRATE);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        for (text, nanos) in [
            ("500ms", 500_000_000),
            ("10s", 10_000_000_000),
            ("10 s", 10_000_000_000),
            ("5m", 300_000_000_000),
            ("2h", 7_200_000_000_000),
            ("0s", 0),
            ("1.5s", 1_500_000_000),
            ("33.366666ms", 33_366_666),
            ("0.5m", 30_000_000_000),
        ] {
            assert_eq!(text.parse(), Ok(Time(Duration::from_nanos(nanos))), "{text}");
        }
    }

    #[test]
    fn bad_times_are_refused_and_quoted() {
        for text in [
            "",
            "10",
            "s",
            "-1s",
            "+1s",
            "1e3s",
            "10sec",
            "1s500ms",
            ".5s",
            "1.s",
            "1.2.3s",
            "0.0000000001s",
            "99999999999999999999h",
            "600000h000",
            "1S",
            "١s",
        ] {
            let error = text.parse::<Time>().expect_err(text).to_string();
            assert_eq!(error, format!("`{text}` is not a time such as 500ms, 10s or 5m"));
        }
    }

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("0B", 0),
            ("512B", 512),
            ("64KiB", 65_536),
            ("1MB", 1_000_000),
            ("1 MiB", 1_048_576),
            ("3kB", 3_000),
            ("2GiB", 2_147_483_648),
            ("2GB", 2_000_000_000),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for text in ["", "64", "KiB", "-1B", "1.5MiB", "1KB", "1kib", "18446744073709551616B"] {
            let error = text.parse::<Size>().expect_err(text).to_string();
            assert_eq!(error, format!("`{text}` is not a size such as 512B, 64KiB or 1MB"));
        }
    }

    #[test]
    fn bitrates_are_read_as_people_write_them() {
        for (text, bits) in
            [("100kbit/s", 100_000), ("5 Mbit/s", 5_000_000), ("64000bit/s", 64_000), ("0bit/s", 0)]
        {
            assert_eq!(text.parse(), Ok(Bitrate(bits)), "{text}");
        }
        for text in ["", "100", "100k", "1.5Mbit/s", "-1kbit/s", "1Kbit/s", "1kbps", "1kbit"] {
            let error = text.parse::<Bitrate>().expect_err(text).to_string();
            let expected = "is not a bitrate such as 800kbit/s or 5Mbit/s";
            assert_eq!(error, format!("`{text}` {expected}"));
        }
    }

    #[test]
    fn the_largest_whole_unit_is_written() {
        for (time, text) in [
            (Time::from_millis(1500), "1500ms"),
            (Time::from_secs(90), "90s"),
            (Time::from_secs(60), "1m"),
            (Time(Duration::from_nanos(33_366_666)), "33.366666ms"),
            (Time(Duration::from_micros(500)), "0.5ms"),
        ] {
            assert_eq!(time.to_string(), text);
        }
        assert_eq!(Size(65_536).to_string(), "64KiB");
        assert_eq!(Size(1_000_000).to_string(), "1MB");
        assert_eq!(Size(1_001).to_string(), "1001B");
        assert_eq!(Bitrate::from_kbit(1200).to_string(), "1200kbit/s");
        assert_eq!(Bitrate::from_kbit(5000).to_string(), "5Mbit/s");
        assert_eq!(Bitrate(0).to_string(), "0bit/s");
    }

    proptest! {
        #[test]
        fn quantities_are_read_back_as_written(nanos: u64, bytes: u64) {
            let time = Time(Duration::from_nanos(nanos));
            prop_assert_eq!(time.to_string().parse(), Ok(time));
            prop_assert_eq!(Size(bytes).to_string().parse(), Ok(Size(bytes)));
            prop_assert_eq!(Bitrate(bytes).to_string().parse(), Ok(Bitrate(bytes)));
        }

        #[test]
        fn no_text_makes_it_panic(text in ".{0,40}") {
            let _ = text.parse::<Time>();
            let _ = text.parse::<Size>();
        }
    }
}
