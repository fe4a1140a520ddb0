use super::{Decision, Rule, Seen};

/// So long the queue is watched.
const WATCHED: u64 = 2_000_000;

/// The rule of "Efficient and Adaptive Web-native Live Video Streaming" (2014), 6.A: if the queue has
/// grown over a time, a lower quality once it is drained; if it is empty, a higher one; else neither.
///
/// How full the queue is, is the least that it was over the time: right after a chunk was written it
/// is never empty.
#[derive(Debug, Clone, Copy, Default)]
pub struct ThreeState {
    since: Option<u64>,
    least: u64,
    before: Option<u64>,
}

impl Rule for ThreeState {
    fn decide(&mut self, seen: &Seen, ladder: &[u64], rung: usize) -> Decision {
        let Some(since) = self.since else {
            (self.since, self.least) = (Some(seen.now), seen.queued);
            return Decision::Stay;
        };
        self.least = self.least.min(seen.queued);
        if seen.now.saturating_sub(since) < WATCHED {
            return Decision::Stay;
        }
        let least = std::mem::replace(&mut self.least, seen.queued);
        self.since = Some(seen.now);
        let before = self.before.replace(least);
        if before.is_some_and(|before| least > before) && rung > 0 {
            Decision::Down { to: rung - 1, drop: true }
        } else if least == 0 && rung + 1 < ladder.len() {
            Decision::Up(rung + 1)
        } else {
            Decision::Stay
        }
    }

    fn switched(&mut self, now: u64) {
        (self.since, self.least, self.before) = (Some(now), u64::MAX, None);
    }
}
