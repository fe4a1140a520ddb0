//! Numbers of versions: `1.20.1`.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

/// The number of a version. Zeros at its end do not count: 2.0 is 2.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct Number(Vec<u64>);

/// A text that is no [`Number`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not the number of a version, like 1.20 or 2")]
pub struct NotANumber(String);

impl FromStr for Number {
    type Err = NotANumber;

    fn from_str(text: &str) -> Result<Self, NotANumber> {
        // Rust reads a sign as part of a number.
        let part = |part: &str| part.parse().ok().filter(|_| !part.starts_with('+'));
        let parts: Option<Vec<u64>> = text.split('.').map(part).collect();
        let mut parts = parts.ok_or_else(|| NotANumber(text.to_owned()))?;
        while parts.len() > 1 && parts.last() == Some(&0) {
            parts.pop();
        }
        Ok(Self(parts))
    }
}

impl TryFrom<String> for Number {
    type Error = NotANumber;

    fn try_from(text: String) -> Result<Self, NotANumber> {
        text.parse()
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<_> = self.0.iter().map(u64::to_string).collect();
        f.write_str(&parts.join("."))
    }
}

impl Number {
    /// Finds the number in a line that a program printed: the first word that begins with digits
    /// and a point, after a `v` or not. So the 1.0 of `gst-launch-1.0` is none.
    pub fn find(line: &str) -> Option<Self> {
        let separates = |c: char| c.is_whitespace() || "/(),:;=".contains(c);
        line.split(separates).find_map(|word| {
            let word = word.strip_prefix(['v', 'V']).unwrap_or(word);
            let end = word.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(word.len());
            let number = word.get(..end)?.trim_end_matches('.');
            if number.contains('.') { number.parse().ok() } else { None }
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn number(text: &str) -> Number {
        text.parse().expect("a number")
    }

    #[test]
    fn numbers_are_compared_part_by_part() {
        assert!(number("1.9") < number("1.20"));
        assert!(number("1.20") < number("1.20.1"));
        assert!(number("1.20.1") < number("2"));
        assert_eq!(number("2.0.0"), number("2"));
        assert_eq!(number("0").to_string(), "0");
        for bad in ["", "1.", ".1", "1..2", "v1", "+1", "1.x", "99999999999999999999"] {
            assert!(bad.parse::<Number>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_number_is_found_in_what_programs_print() {
        for (line, expected) in [
            ("v1.20.1-6-g3e09466c", "1.20.1"),
            ("Node-Media-Server 4.4.3", "4.4.3"),
            ("nginx version: nginx/1.22.1", "1.22.1"),
            ("GStreamer Core Library version 1.22.0", "1.22"),
            ("gst-launch-1.0 version 1.22.3", "1.22.3"),
            ("OvenMediaEngine v0.19.1 (v0.19.1-3-gabc) [debug]", "0.19.1"),
            ("Server 7 of 2024, version=7.1.", "7.1"),
        ] {
            assert_eq!(Number::find(line), Some(number(expected)), "{line}");
        }
        assert_eq!(Number::find("a server without a number, build 12"), None);
    }

    proptest! {
        #[test]
        fn a_number_is_found_again_where_it_is_printed(
            parts in prop::collection::vec(0..1_000_u64, 2..5),
            before in "[a-z ]{0,9}",
        ) {
            let parts: Vec<_> = parts.iter().map(u64::to_string).collect();
            let text = parts.join(".");
            let number: Number = text.parse().expect("a number");
            prop_assert_eq!(&number.to_string().parse::<Number>().expect("a number"), &number);
            prop_assert_eq!(Number::find(&format!("{before} v{text}-rc1")), Some(number));
        }

        #[test]
        fn any_line_can_be_searched(line in ".*") {
            let _ = Number::find(&line);
        }
    }
}
