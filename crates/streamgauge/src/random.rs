//! Random numbers that depend on a seed and a number alone, so that a run can be repeated.

/// SplitMix64: every bit of the result depends on every bit of the input.
pub(crate) fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Makes a number below `limit` of a random one: the high half of the product. It is uniform except
/// for a bias below limit / 2^64.
pub(crate) fn below(random: u64, limit: u64) -> u64 {
    ((u128::from(random) * u128::from(limit)) >> 64) as u64
}
