//! Links whose bandwidth changes: as functions of time, and as random walks with fixed seeds.

/// Simulated time of each run, in microseconds.
pub(super) const LENGTH: u64 = 120_000_000;

/// Time for which one value of a random walk holds, in microseconds.
const TICK: u64 = 100_000;

/// A link between server and viewer.
pub(super) struct Link {
    pub(super) name: &'static str,
    /// Description for humans.
    pub(super) about: &'static str,
    /// Bits per second, one value per [`TICK`].
    rates: Vec<u64>,
    /// Round-trip time in microseconds, without queueing in the link.
    pub(super) rtt: u64,
    /// Bytes that can queue in the link before it loses packets.
    pub(super) buffer: u64,
}

impl Link {
    fn new(
        name: &'static str,
        about: &'static str,
        (rtt, buffer): (u64, u64),
        mut rate: impl FnMut(u64) -> u64,
    ) -> Self {
        let rates = (0..LENGTH / TICK).map(|tick| rate(tick * TICK)).collect();
        Self { name, about, rates, rtt, buffer }
    }

    /// Bits per second at time `now`.
    pub(super) fn rate(&self, now: u64) -> u64 {
        let tick = usize::try_from(now / TICK).unwrap_or(usize::MAX);
        self.rates.get(tick).copied().unwrap_or_default()
    }

    /// Upper bound for every rule: the mean of the best renditions that the link carries at each
    /// time.
    pub(super) fn most(&self, ladder: &[u64]) -> u64 {
        let best = |rate: &u64| ladder.iter().rfind(|&bits| bits <= rate).unwrap_or(&0);
        self.rates.iter().map(best).sum::<u64>() / self.rates.len() as u64
    }
}

/// A generator of random numbers (splitmix64), reproducible by its seed.
struct Random(u64);

impl Random {
    /// From 0 to 1.
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Approximately normal, of variance 1.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.next()).sum::<f64>() - 6.0
    }
}

/// 4G: a rate that wanders around 4 Mbit/s over seconds, fades now and then, and pauses during
/// handovers between cells.
fn mobile(seed: u64) -> impl FnMut(u64) -> u64 {
    let (mut random, mut state, mut fades, mut pauses) = (Random(seed), 0.0, 0, 0);
    move |_| {
        // Correlated over about 5 s.
        state = 0.98 * state + 0.2 * random.normal();
        if random.next() < 0.005 {
            fades = 10 + (random.next() * 30.0) as u32;
        }
        if random.next() < 0.0015 {
            pauses = 4 + (random.next() * 8.0) as u32;
        }
        let (fading, paused) = (fades > 0, pauses > 0);
        (fades, pauses) = (fades.saturating_sub(1), pauses.saturating_sub(1));
        let rate = 4e6 * (0.6 * state).exp() * if fading { 0.25 } else { 1.0 };
        if paused { 0 } else { (rate as u64).clamp(150_000, 30_000_000) }
    }
}

/// Wi-Fi: 20 Mbit/s, and for short times a tenth or a twentieth of it while others send.
fn wireless(seed: u64) -> impl FnMut(u64) -> u64 {
    let (mut random, mut busy, mut share) = (Random(seed), 0, 1.0);
    move |_| {
        if busy == 0 && random.next() < 0.03 {
            busy = 1 + (random.next() * random.next() * 30.0) as u32;
            share = if random.next() < 0.3 { 0.05 } else { 0.15 };
        }
        let rate = 20e6 * (0.8 + 0.4 * random.next());
        let rate = if busy > 0 { rate * share } else { rate };
        busy = busy.saturating_sub(1);
        rate as u64
    }
}

/// The effect of loss bursts on TCP over a link of 8 Mbit/s: silence until its timeout, then a slow
/// start.
fn lossy(seed: u64) -> impl FnMut(u64) -> u64 {
    let (mut random, mut silent, mut slow) = (Random(seed), 0, 0);
    move |_| {
        if silent == 0 && random.next() < 0.012 {
            silent = 2 + (random.next() * 5.0) as u32;
            slow = 8;
        }
        if silent > 0 {
            silent -= 1;
            return 0;
        }
        slow = u32::saturating_sub(slow, 1);
        8_000_000 >> (slow / 2)
    }
}

/// A rate that rises from `low` to `high` and falls back, within `period`.
fn triangle(now: u64, period: u64, low: u64, high: u64) -> u64 {
    let at = now % period;
    let up = at.min(period - at);
    low + (high - low) * up / (period / 2)
}

/// All links.
pub(super) fn all() -> Vec<Link> {
    const NEAR: (u64, u64) = (30_000, 60_000);
    let during = |now: u64, from: u64, to: u64| (from * 1_000_000..to * 1_000_000).contains(&now);
    vec![
        Link::new("steady", "8 Mbit/s", NEAR, |_| 8_000_000),
        Link::new("narrow", "1.6 Mbit/s", NEAR, |_| 1_600_000),
        Link::new("far", "7 Mbit/s, 180 ms away", (180_000, 150_000), |_| 7_000_000),
        Link::new("drop", "8, for 30 s 1, then 8 Mbit/s", NEAR, |now| {
            if during(now, 40, 70) { 1_000_000 } else { 8_000_000 }
        }),
        Link::new("deep", "the same with a buffer of 400 kB in it", (30_000, 400_000), |now| {
            if during(now, 40, 70) { 1_000_000 } else { 8_000_000 }
        }),
        Link::new("steps", "0.5, 2, 8, 3, 1, 6 Mbit/s for 20 s each", NEAR, |now| {
            [500_000, 2_000_000, 8_000_000, 3_000_000, 1_000_000, 6_000_000]
                [(now / 20_000_000 % 6) as usize]
        }),
        Link::new("ramps", "0.4 to 8 Mbit/s and back in 40 s", NEAR, |now| {
            triangle(now, 40_000_000, 400_000, 8_000_000)
        }),
        Link::new("outages", "6 Mbit/s, nothing for 2 of each 30 s", (40_000, 60_000), |now| {
            if now % 30_000_000 > 28_000_000 { 0 } else { 6_000_000 }
        }),
        Link::new("4G", "wanders about 4 Mbit/s, fades, pauses", (60_000, 200_000), mobile(4)),
        Link::new("4G, another", "the same with another seed", (60_000, 200_000), mobile(44)),
        Link::new("Wi-Fi", "20 Mbit/s, at moments a twentieth", (15_000, 100_000), wireless(5)),
        Link::new("loss", "8 Mbit/s, timeouts and slow starts", (50_000, 60_000), lossy(6)),
    ]
}
