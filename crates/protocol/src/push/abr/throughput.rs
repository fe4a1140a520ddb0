use super::{Decision, Rule, Seen, fitting};

/// Microseconds over which acknowledged bytes are counted for one measurement.
const COUNTED: u64 = 1_000_000;

/// The method that most players use for the segments they fetch, applied to bytes that are
/// acknowledged while something waits: it chooses the best rendition of at most 0.8 of the smoothed
/// rate.
#[derive(Debug, Clone, Copy, Default)]
pub struct Throughput {
    before: Option<Seen>,
    rate: Option<f64>,
}

impl Rule for Throughput {
    fn decide(&mut self, seen: &Seen, ladder: &[u64], rendition: usize) -> Decision {
        let Some(before) = self.before else {
            self.before = Some(*seen);
            return Decision::Stay;
        };
        if seen.now.saturating_sub(before.now) < COUNTED {
            return Decision::Stay;
        }
        self.before = Some(*seen);
        let busy = seen.busy.saturating_sub(before.busy);
        let bits = 8 * seen.acknowledged.saturating_sub(before.acknowledged);
        if busy == 0 || bits == 0 {
            // Nothing arrived, so the rate is only known to be lower.
            if seen.unacknowledged > 0 {
                self.rate = self.rate.map(|rate| rate / 2.0);
            }
        } else {
            let now = bits as f64 * 1e6 / busy as f64;
            self.rate = Some(self.rate.map_or(now, |rate| 0.7 * rate + 0.3 * now));
        }
        let Some(rate) = self.rate else { return Decision::Stay };
        match fitting(ladder, (0.8 * rate) as u64) {
            target if target < rendition => Decision::Down { to: target, drop: true },
            target if target > rendition => Decision::Up(target),
            _ => Decision::Stay,
        }
    }

    fn switched(&mut self, _: u64) {}
}
