//! W3C Trace Context: the trace that a client names for its request. Random numbers for new traces.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

/// The span of a client that a request belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context {
    /// The trace. Not 0.
    pub trace: u128,
    /// The client's span in it. Not 0.
    pub span: u64,
    /// Whether the client keeps its own spans.
    pub is_sampled: bool,
}

impl Context {
    /// Parses a `traceparent`. `None` if it is not one, and so has no meaning.
    pub fn parse(text: &str) -> Option<Self> {
        let is_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        let mut parts = text.trim_ascii().split('-');
        let mut part = |length| {
            let part = parts.next()?;
            (part.len() == length && part.bytes().all(is_hex)).then_some(part)
        };
        let (version, trace, span, flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
        // Later versions may have more fields.
        if version == "ff" || version == "00" && parts.next().is_some() {
            return None;
        }
        let trace = u128::from_str_radix(trace, 16).ok().filter(|&id| id != 0)?;
        let span = u64::from_str_radix(span, 16).ok().filter(|&id| id != 0)?;
        let is_sampled = u8::from_str_radix(flags, 16).ok()? & 1 == 1;
        Some(Self { trace, span, is_sampled })
    }
}

/// A random number other than 0: for ids, and no secret. Each thread begins elsewhere, by the system's random numbers.
pub(super) fn random() -> u64 {
    thread_local! {
        static STATE: Cell<u64> = Cell::new(RandomState::new().hash_one(0));
    }
    // SplitMix64.
    let state = STATE.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
    STATE.set(state);
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_standard_allows_has_a_meaning() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let context = Context::parse(good).unwrap();
        assert_eq!(context.trace, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert_eq!((context.span, context.is_sampled), (0x00f0_67aa_0ba9_02b7, true));
        assert!(!Context::parse(&good.replace("-01", "-fe")).unwrap().is_sampled);
        assert!(Context::parse(&format!("01{}-more", &good[2..])).unwrap().is_sampled);
        for bad in [
            "",
            "00",
            &good[..54],
            &good.to_uppercase(),
            &format!("{good}-more"),
            &format!("ff{}", &good[2..]),
            &good.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &good.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &good.replace("00f067aa0ba902b7", "+0f067aa0ba902b7"),
            &good.replace('4', "\u{e4}"),
        ] {
            assert_eq!(Context::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn random_numbers_are_spread() {
        let below = (0..10_000).filter(|_| random() < u64::MAX / 100).count();
        assert!((20..500).contains(&below), "{below}");
    }
}
