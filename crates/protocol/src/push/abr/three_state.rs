use super::{Decision, Rule, Seen};

/// Microseconds for which the queue is observed before each decision.
const WATCHED: u64 = 2_000_000;

/// The rule of "Efficient and Adaptive Web-native Live Video Streaming" (2014), 6.A. If the queue
/// has grown over a time, it goes down once the queue is drained. If the queue is empty, it goes
/// up. Otherwise it stays.
///
/// The length of the queue is its minimum over the time, because the queue is never empty right
/// after a chunk was written.
#[derive(Debug, Clone, Copy, Default)]
pub struct ThreeState {
    since: Option<u64>,
    least: u64,
    before: Option<u64>,
}

impl Rule for ThreeState {
    fn decide(&mut self, seen: &Seen, ladder: &[u64], rendition: usize) -> Decision {
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
        if before.is_some_and(|before| least > before) && rendition > 0 {
            Decision::Down { to: rendition - 1, drop: true }
        } else if least == 0 && rendition + 1 < ladder.len() {
            Decision::Up(rendition + 1)
        } else {
            Decision::Stay
        }
    }

    fn switched(&mut self, now: u64) {
        (self.since, self.least, self.before) = (Some(now), u64::MAX, None);
    }
}
