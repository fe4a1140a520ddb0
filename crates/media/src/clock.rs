//! Turns timestamps that wrap around into times that do not.

/// Turns the values of a clock that wraps after a number of bits into times that do not wrap. Each
/// value means the time nearest to the time before. So a time may lie up to half the clock's range
/// behind the last one, or almost half the range ahead.
///
/// RTMP's chunk headers wrap at 24 bits, FLV and RTMP timestamps at 32, MPEG-TS's at 33, and RTP's
/// at 32. One `Unwrapper` serves all tracks of a stream, so that the tracks stay on one timeline
/// across a wrap.
#[derive(Debug, Clone)]
pub struct Unwrapper {
    bits: u32,
    last: Option<i64>,
}

impl Unwrapper {
    /// Creates a clock of `bits` bits, from 1 to 62.
    ///
    /// # Panics
    /// When `bits` is outside that range. It is a constant of a format, never input.
    pub const fn new(bits: u32) -> Self {
        assert!(bits >= 1 && bits <= 62, "a clock of 1 to 62 bits");
        Self { bits, last: None }
    }

    /// Time that `value` means. The first value is taken as it is. Bits above the clock's are
    /// ignored. A value exactly half the range away counts as behind.
    pub fn unwrap(&mut self, value: u64) -> i64 {
        let range = 1i64 << self.bits;
        // The value is below 2^62, so the cast to i64 keeps it.
        let value = (value & (range as u64 - 1)) as i64;
        let time = match self.last {
            None => value,
            Some(last) => {
                let ahead = (value - last).rem_euclid(range);
                let step = if ahead >= range / 2 { ahead - range } else { ahead };
                // Only 2^31 wraps of the 32-bit clock could reach the end of i64.
                last.saturating_add(step)
            }
        };
        self.last = Some(time);
        time
    }

    /// Time of the last value, if there was one.
    pub fn last(&self) -> Option<i64> {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn crosses_the_wrap_both_ways() {
        for bits in [24, 31, 32, 33] {
            let range = 1i64 << bits;
            let mut clock = Unwrapper::new(bits);
            assert_eq!(clock.unwrap(range as u64 - 10), range - 10);
            assert_eq!(clock.unwrap(5), range + 5);
            // An audio sample from just before the wrap arrives after a video sample from behind
            // it.
            assert_eq!(clock.unwrap(range as u64 - 3), range - 3);
            assert_eq!(clock.unwrap(30), range + 30);
            assert_eq!(clock.last(), Some(range + 30));
        }
    }

    #[test]
    fn half_the_range_lies_behind() {
        let mut clock = Unwrapper::new(32);
        clock.unwrap(1 << 31);
        assert_eq!(clock.unwrap(0), 0);
        assert_eq!(clock.unwrap(1 << 31), -(1 << 31));
        assert_eq!(clock.unwrap((1 << 31) - 1 + (1 << 31)), -1);
    }

    proptest! {
        /// Any walk whose steps stay below half the range is reproduced.
        #[test]
        fn follows_any_walk(
            bits in prop::sample::select(vec![24u32, 31, 32, 33]),
            start in 0i64..1 << 24,
            steps in prop::collection::vec(-0.499f64..0.499, 1..200),
        ) {
            let range = 1i64 << bits;
            let mut clock = Unwrapper::new(bits);
            let mut time = start % range;
            prop_assert_eq!(clock.unwrap(time as u64), time);
            for step in steps {
                time += (step * range as f64) as i64;
                let value = time.rem_euclid(range) as u64;
                prop_assert_eq!(clock.unwrap(value), time);
                // Bits above the clock's have no effect.
                prop_assert_eq!(clock.unwrap(value | 1 << 63), time);
            }
        }

        /// For any values, the time matches the value modulo the range, and is the nearest such
        /// time.
        #[test]
        fn is_nearest(values in prop::collection::vec(any::<u64>(), 1..200)) {
            let range = 1i64 << 32;
            let mut clock = Unwrapper::new(32);
            let mut last = None;
            for value in values {
                let time = clock.unwrap(value);
                prop_assert_eq!(time.rem_euclid(range) as u64, value & 0xffff_ffff);
                if let Some(last) = last {
                    prop_assert!((-range / 2..range / 2).contains(&(time - last)));
                }
                last = Some(time);
            }
        }
    }
}
