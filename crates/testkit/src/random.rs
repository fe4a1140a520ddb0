//! Pseudo-random numbers. Tests need variety, but the same in every run.

/// A sequence of numbers that depends on its seed alone (xorshift64*).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The sequence of a seed, which may be any number.
    pub fn new(seed: u64) -> Self {
        // The state must not be 0. Seeds that are near to each other give states that are not.
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `limit`.
    ///
    /// # Panics
    /// `limit` is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        // The upper bits are the better ones.
        (self.number() >> 16) % limit
    }

    /// An index into something of this length.
    ///
    /// # Panics
    /// `length` is 0.
    pub fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }
}

/// `length` bytes in which no pattern comes twice, different for each seed.
pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend_from_slice(&random.number().to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_the_same_in_every_run_and_another_for_each_seed() {
        assert_eq!(noise(7, 1001), noise(7, 1001));
        let of_seeds: std::collections::HashSet<_> = (0..1000).map(|seed| noise(seed, 8)).collect();
        // A pair of seeds may share a state, but not many do.
        assert!(of_seeds.len() > 990);
        assert_eq!(noise(7, 13), noise(7, 1001)[..13]);
    }

    #[test]
    fn all_numbers_below_a_limit_come() {
        let mut random = Random::new(0);
        let mut seen = [false; 7];
        for _ in 0..200 {
            seen[usize::try_from(random.below(7)).unwrap()] = true;
        }
        assert_eq!(seen, [true; 7]);
    }
}
