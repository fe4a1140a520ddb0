//! Formats of values in playlists.

use std::fmt;

/// A quoted-string, RFC 8216bis 4.2. It has no escapes, so characters that are not allowed are
/// replaced.
pub(super) struct Quoted<'a>(pub(super) &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        write!(f, "{}", Line(self.0).replacing('"', '\''))?;
        f.write_str("\"")
    }
}

/// Text on one line. Control characters become spaces.
pub(super) struct Line<'a>(pub(super) &'a str);

impl<'a> Line<'a> {
    fn replacing(self, from: char, to: char) -> impl fmt::Display + 'a {
        let bad = move |c: char| c == from || c.is_control();
        fmt::from_fn(move |f| {
            let mut rest = self.0;
            while let Some(at) = rest.find(bad) {
                f.write_str(&rest[..at])?;
                let mut after = rest[at..].chars();
                let found = after.next();
                fmt::Write::write_char(f, if found == Some(from) { to } else { ' ' })?;
                rest = after.as_str();
            }
            f.write_str(rest)
        })
    }
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Line(self.0).replacing('\n', ' '))
    }
}

/// Microseconds, written as seconds with six decimals.
pub(super) struct Seconds(pub(super) u64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

/// Ticks in microseconds, rounded to the nearest.
pub(super) fn micros(ticks: u64, timescale: u32) -> u64 {
    let scale = u128::from(timescale.max(1));
    let micros = (u128::from(ticks) * 1_000_000 + scale / 2) / scale;
    u64::try_from(micros).unwrap_or(u64::MAX)
}

/// Ticks in microseconds, rounded up: for limits on values that are rounded to the nearest.
pub(super) fn micros_up(ticks: u64, timescale: u32) -> u64 {
    let scale = u128::from(timescale.max(1));
    let micros = (u128::from(ticks) * 1_000_000).div_ceil(scale);
    u64::try_from(micros).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_line_breaks_cannot_end_a_value() {
        assert_eq!(Quoted("a\"b\r\nc\u{85}é").to_string(), "\"a'b  c é\"");
        assert_eq!(Line("a\"b\n#EXT-X-ENDLIST").to_string(), "a\"b #EXT-X-ENDLIST");
    }

    #[test]
    fn ticks_round_to_microseconds() {
        assert_eq!(micros(1, 3), 333_333);
        assert_eq!(micros(2, 3), 666_667);
        assert_eq!(micros_up(1, 3), 333_334);
        assert_eq!(micros_up(90_000, 90_000), 1_000_000);
        assert_eq!(Seconds(1_000_001).to_string(), "1.000001");
    }
}
