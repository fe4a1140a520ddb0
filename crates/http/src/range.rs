//! Range requests for bytes (RFC 9110 14).

use std::ops::Range;

/// Most ranges in one request. If there are more, the header is ignored and the whole is sent.
/// Clients must accept this, and it costs less than the ranges might.
pub const MAX_RANGES: usize = 16;

/// The part of a representation that a `Range` field selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ByteRanges {
    /// Everything: there is no field, or it is malformed, or it has an unknown unit or too many
    /// ranges.
    Whole,
    /// These ranges, each non-empty and within the representation. They are in the requested order,
    /// but ranges that overlap or touch are merged into the first of them. So their sum never
    /// exceeds the whole.
    Parts(Vec<Range<u64>>),
    /// Nothing: the answer is 416 with `Content-Range: bytes */LENGTH`.
    Unsatisfiable,
}

impl ByteRanges {
    /// Reads the value of a `Range` field for a representation of `length` bytes.
    pub fn select(field: &str, length: u64) -> Self {
        match parse(field) {
            Some(specs) => Self::resolve(&specs, length),
            None => Self::Whole,
        }
    }

    fn resolve(specs: &[Spec], length: u64) -> Self {
        let mut parts: Vec<Range<u64>> = Vec::with_capacity(specs.len());
        for spec in specs {
            let mut range = match *spec {
                // A suffix of an empty representation is satisfiable, but `Content-Range` cannot
                // express it.
                Spec::Last(1..) if length == 0 => return Self::Whole,
                Spec::Last(n) => length - n.min(length)..length,
                Spec::From(first) => first..length,
                Spec::Between(first, last) => first..last.saturating_add(1).min(length),
            };
            if range.is_empty() {
                continue;
            }
            // There are at most MAX_RANGES, so the quadratic time is short.
            let mut place = parts.len();
            while let Some(i) =
                parts.iter().position(|p| p.start <= range.end && range.start <= p.end)
            {
                let other = parts.remove(i);
                range = range.start.min(other.start)..range.end.max(other.end);
                place = place.min(i);
            }
            parts.insert(place.min(parts.len()), range);
        }
        if parts.is_empty() { Self::Unsatisfiable } else { Self::Parts(parts) }
    }
}

/// One member of a range set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spec {
    /// `first-last`
    Between(u64, u64),
    /// `first-`
    From(u64),
    /// `-count`
    Last(u64),
}

/// Parses a field; `None` if it must be ignored.
fn parse(field: &str) -> Option<Vec<Spec>> {
    let (unit, set) = field.split_once('=')?;
    if !unit.eq_ignore_ascii_case("bytes") {
        return None;
    }
    let mut specs = Vec::new();
    for spec in set.split(',').map(|spec| spec.trim_matches([' ', '\t'])) {
        // Recipients of a list must accept empty members (RFC 9110 5.6.1.2).
        if spec.is_empty() {
            continue;
        }
        if specs.len() == MAX_RANGES {
            return None;
        }
        let (first, last) = spec.split_once('-')?;
        specs.push(match (first, last) {
            ("", last) => Spec::Last(number(last)?),
            (first, "") => Spec::From(number(first)?),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                if first > last {
                    return None;
                }
                Spec::Between(first, last)
            }
        });
    }
    (!specs.is_empty()).then_some(specs)
}

/// A number in digits. One that is too large for any file counts as the largest.
fn number(digits: &str) -> Option<u64> {
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    Some(digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parts(bounds: &[(u64, u64)]) -> ByteRanges {
        ByteRanges::Parts(bounds.iter().map(|&(start, end)| start..end).collect())
    }

    /// The examples of RFC 9110 14.1.2 and 14.2, for 10,000 bytes.
    #[test]
    fn of_the_specification() {
        let select = |field| ByteRanges::select(field, 10_000);
        assert_eq!(select("bytes=0-499"), parts(&[(0, 500)]));
        assert_eq!(select("bytes=500-999"), parts(&[(500, 1000)]));
        assert_eq!(select("bytes=-500"), parts(&[(9500, 10_000)]));
        assert_eq!(select("bytes=9500-"), parts(&[(9500, 10_000)]));
        assert_eq!(select("bytes=0-0,-1"), parts(&[(0, 1), (9999, 10_000)]));
        assert_eq!(
            select("bytes= 0-999, 4500-5499, -1000"),
            parts(&[(0, 1000), (4500, 5500), (9000, 10_000)])
        );
        assert_eq!(select("bytes=500-600,601-999"), parts(&[(500, 1000)]));
        assert_eq!(select("bytes=500-700,601-999"), parts(&[(500, 1000)]));
    }

    #[test]
    fn edges() {
        let select = |field: &str| ByteRanges::select(field, 100);
        for whole in [
            "",
            "bytes",
            "bytes=",
            "bytes=,",
            "bytes=-",
            "bytes=a-b",
            "bytes=1",
            "bytes=2-1",
            "bytes=0-1,2-1",
            "bytes=+1-2",
            "bytes=1--2",
            "bytes=0x1-2",
            "seconds=1-2",
            "bytes=0 -1",
            "bytes 0-1",
            "bytes =0-1",
            "=0-1",
        ] {
            assert_eq!(select(whole), ByteRanges::Whole, "{whole}");
        }
        for none in [
            "bytes=100-",
            "bytes=100-200",
            "bytes=-0",
            "bytes=200-,-0",
            "bytes=18446744073709551616-",
        ] {
            assert_eq!(select(none), ByteRanges::Unsatisfiable, "{none}");
        }
        assert_eq!(select("BYTES=,1-1 ,"), parts(&[(1, 2)]));
        assert_eq!(select("bytes=99-99999999999999999999"), parts(&[(99, 100)]));
        assert_eq!(select("bytes=0-18446744073709551615"), parts(&[(0, 100)]));
        assert_eq!(select("bytes=-1000"), parts(&[(0, 100)]));
        assert_eq!(select("bytes=200-,5-6"), parts(&[(5, 7)]));
        assert_eq!(select("bytes=50-59,0-9,40-69"), parts(&[(40, 70), (0, 10)]));
        assert_eq!(ByteRanges::select("bytes=0-", 0), ByteRanges::Unsatisfiable);
        assert_eq!(ByteRanges::select("bytes=-1", 0), ByteRanges::Whole);
        let many = |n| format!("bytes={}", vec!["0-"; n].join(","));
        assert_eq!(select(&many(MAX_RANGES)), parts(&[(0, 100)]));
        assert_eq!(select(&many(MAX_RANGES + 1)), ByteRanges::Whole);
    }

    proptest! {
        #[test]
        fn never_amplifies(
            specs in proptest::collection::vec((0..300_u64, 0..300_u64, 0..3), 1..20),
            length in 0..300_u64,
        ) {
            let set: Vec<_> = specs.iter().map(|(a, b, kind)| match kind {
                0 => format!("{}-{}", a.min(b), a.max(b)),
                1 => format!("{a}-"),
                _ => format!("-{b}"),
            }).collect();
            match ByteRanges::select(&format!("bytes={}", set.join(",")), length) {
                ByteRanges::Parts(parts) => {
                    prop_assert!(!parts.is_empty());
                    for (i, part) in parts.iter().enumerate() {
                        prop_assert!(part.start < part.end && part.end <= length);
                        for other in &parts[..i] {
                            prop_assert!(part.end < other.start || other.end < part.start);
                        }
                    }
                    let covered = |x: u64| specs.iter().any(|&(a, b, kind)| match kind {
                        0 => (a.min(b)..=a.max(b)).contains(&x),
                        1 => a <= x,
                        _ => x + b >= length,
                    });
                    for x in 0..length {
                        prop_assert_eq!(covered(x), parts.iter().any(|part| part.contains(&x)));
                    }
                }
                ByteRanges::Unsatisfiable => {
                    let beyond = specs.iter().all(|&(a, b, kind)| match kind {
                        0 => a.min(b) >= length,
                        1 => a >= length,
                        _ => b == 0,
                    });
                    prop_assert!(beyond);
                }
                ByteRanges::Whole => prop_assert!(specs.len() > MAX_RANGES || length == 0),
            }
        }

        #[test]
        fn any_text(field in "\\PC{0,40}", length: u64) {
            if let ByteRanges::Parts(parts) = ByteRanges::select(&format!("bytes={field}"), length) {
                prop_assert!(parts.iter().all(|part| part.start < part.end && part.end <= length));
            }
        }
    }
}
