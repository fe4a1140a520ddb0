use super::{Decision, Rule, Seen};

/// So long the queue is watched.
const WATCHED: u64 = 2_000_000;

/// The rule of "Efficient and Adaptive Web-native Live Video Streaming" (2014), 6.A: if the queue has
/// grown over a time, a lower quality once it is drained; if it is empty, a higher one; else neither.
#[derive(Debug, Clone, Copy, Default)]
pub struct ThreeState {
    before: Option<(u64, u64)>,
}

impl Rule for ThreeState {
    fn decide(&mut self, seen: &Seen, ladder: &[u64], rung: usize) -> Decision {
        let queue = seen.queued;
        let Some((at, before)) = self.before else {
            self.before = Some((seen.now, queue));
            return Decision::Stay;
        };
        if seen.now.saturating_sub(at) < WATCHED {
            return Decision::Stay;
        }
        self.before = Some((seen.now, queue));
        if queue > before && rung > 0 {
            Decision::Down(rung - 1)
        } else if queue == 0 && before == 0 && rung + 1 < ladder.len() {
            Decision::Up(rung + 1)
        } else {
            Decision::Stay
        }
    }
}
