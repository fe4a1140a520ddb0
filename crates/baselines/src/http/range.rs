//! One range of bytes (RFC 9110 14.2).

use std::ops::Range;

/// The part that a `Range` field selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Selected {
    /// Everything: the field is malformed, has another unit, or has several ranges, for which a
    /// server may send the whole.
    Whole,
    /// These bytes, at least one, all within the representation.
    Part(Range<u64>),
    /// Nothing: the status is 416.
    Nothing,
}

/// The part of `length` bytes that `field` selects.
pub(crate) fn select(field: &str, length: u64) -> Selected {
    let Some((first, last)) = parse(field) else { return Selected::Whole };
    let range = match (first, last) {
        (Some(first), Some(last)) if first > last => return Selected::Whole,
        (Some(first), Some(last)) => first..last.saturating_add(1).min(length),
        (Some(first), None) => first..length,
        // An empty representation satisfies a suffix, but `Content-Range` cannot express it.
        (None, Some(1..)) if length == 0 => return Selected::Whole,
        (None, Some(count)) => length.saturating_sub(count)..length,
        (None, None) => return Selected::Whole,
    };
    if range.is_empty() { Selected::Nothing } else { Selected::Part(range) }
}

/// The numbers around the hyphen of `bytes=FIRST-LAST`.
fn parse(field: &str) -> Option<(Option<u64>, Option<u64>)> {
    let (unit, range) = field.split_once('=')?;
    let (first, last) = range.trim().split_once('-')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    Some((number(first)?, number(last)?))
}

/// Digits or nothing. A number that is larger than any file counts as the largest.
fn number(digits: &str) -> Option<Option<u64>> {
    if digits.is_empty() {
        return Some(None);
    }
    let all = digits.bytes().all(|digit| digit.is_ascii_digit());
    all.then(|| Some(digits.parse().unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_or_the_whole() {
        let of = |field| select(field, 100);
        assert_eq!(of("bytes=0-0"), Selected::Part(0..1));
        assert_eq!(of("Bytes = 5-"), Selected::Part(5..100));
        assert_eq!(of("bytes=-30"), Selected::Part(70..100));
        assert_eq!(of("bytes=-300"), Selected::Part(0..100));
        assert_eq!(of("bytes=99-99999999999999999999"), Selected::Part(99..100));
        for none in ["bytes=100-", "bytes=100-200", "bytes=-0", "bytes=99999999999999999999-"] {
            assert_eq!(of(none), Selected::Nothing, "{none}");
        }
        for whole in
            ["", "bytes", "bytes=", "bytes=-", "bytes=2-1", "bytes=+1-2", "bytes=0-1,3-4", "s=0-1"]
        {
            assert_eq!(of(whole), Selected::Whole, "{whole}");
        }
        assert_eq!(select("bytes=0-", 0), Selected::Nothing);
        assert_eq!(select("bytes=-1", 0), Selected::Whole);
    }
}
