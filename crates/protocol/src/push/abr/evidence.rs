use super::{Decision, Rule, Seen, fitting};

/// A viewer is not sent more than it can take in time: it goes down when so much of the rendition
/// waits, in microseconds of it, and it is not getting less.
const WAITS: u64 = 450_000;

/// So much waits too long even if it is getting less.
const WAITS_LONG: u64 = 1_500_000;

/// At the lowest rung a viewer is skipped to live when so much waits.
const TOO_FAR: u64 = 4_000_000;

/// After a decision, what was sent before it is let through first.
const SETTLES: u64 = 1_500_000;

/// It goes up only after so long without anything that waits.
const CALM: u64 = 3_000_000;

/// What it must have carried, in terms of what it is to carry.
const MARGIN: f64 = 1.15;

/// It goes down to what fits into so much of what was carried.
const SAFE: f64 = 0.85;

/// A rung that was left so soon was a failed try.
const FAILED: u64 = 12_000_000;

/// How long a rung is not tried again: at first, and at most. Doubled with each failure.
const BACK_OFF: (u64, u64) = (8_000_000, 240_000_000);

/// So long a figure of what was carried counts for.
const REMEMBERED: u64 = 5_000_000;

/// Rungs that are told apart.
const RUNGS: usize = 16;

/// Goes down at once when more waits than a viewer's buffer bears, up only when the bursts that chunks
/// are have shown that the link carries more, and back only after a time that grows with each failure.
///
/// A live chunk is written at once and then nothing for a while, so how fast it was acknowledged,
/// less the round trip that it takes anyway, tells what the link carries, though on average it
/// carries no more than it is given.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    before: Option<Seen>,
    /// Bits per second that were carried: of late, and when that was.
    carried: Option<(f64, u64)>,
    /// Bytes that waited when it was last asked.
    waited: u64,
    /// Since when nothing waits.
    calm: Option<u64>,
    /// When it decided last.
    decided: Option<u64>,
    /// When it went up, and to which rung.
    tried: Option<(u64, usize)>,
    /// Of each rung, until when it is not tried, and for how long it was not.
    barred: [(u64, u64); RUNGS],
}

impl Evidence {
    /// Takes note of what was carried since it was last asked.
    fn learn(&mut self, seen: &Seen) {
        let Some(before) = self.before.replace(*seen) else { return };
        let bits = 8 * seen.acknowledged.saturating_sub(before.acknowledged);
        let busy = seen.busy.saturating_sub(before.busy);
        if bits == 0 {
            if seen.unacknowledged > 0 && before.unacknowledged > 0 {
                // It was busy all the time and nothing came through.
                self.carried = self.carried.map(|(rate, at)| (rate * 0.7, at));
            }
            return;
        }
        let writes = seen.writes.saturating_sub(before.writes);
        let wire = if before.queued > 0 || seen.queued > 0 {
            // With something waiting all the time there is no trip to be waited for.
            busy
        } else if busy < (seen.now - before.now) / 100 * 95 {
            // Each write was through before the next.
            busy.saturating_sub(writes.saturating_mul(seen.min_rtt))
        } else {
            // The trip is longer than from one to the next. A burst's first byte takes the least time,
            // its last as much longer as the link needs for the burst.
            writes.saturating_mul(2 * seen.rtt.saturating_sub(seen.min_rtt)).min(busy)
        };
        let wire = wire.max(busy / 20).max(1000);
        let rate = bits as f64 * 1e6 / wire as f64;
        let rate = match self.carried {
            // Of what it carries the last is nearest to the truth, and the less the safer.
            Some((known, at)) if seen.now.saturating_sub(at) < REMEMBERED => {
                if rate < known {
                    0.5 * known + 0.5 * rate
                } else {
                    0.8 * known + 0.2 * rate
                }
            }
            _ => rate,
        };
        self.carried = Some((rate, seen.now));
    }

    fn bar(&mut self, rung: usize, now: u64) {
        if let Some((until, wait)) = self.barred.get_mut(rung) {
            *wait = (*wait * 2).clamp(BACK_OFF.0, BACK_OFF.1);
            *until = now + *wait;
        }
    }

    /// How long what waits would take to play, beyond what is on its way anyway.
    fn waiting(seen: &Seen, bits: u64) -> u64 {
        let bytes = seen.queued + seen.unacknowledged;
        let late = u128::from(bytes) * 8_000_000 / u128::from(bits.max(1));
        u64::try_from(late).unwrap_or(u64::MAX).saturating_sub(seen.rtt)
    }

    fn go_down(&mut self, seen: &Seen, ladder: &[u64], rung: usize) -> Decision {
        if let Some((at, tried)) = self.tried.take()
            && seen.now.saturating_sub(at) < FAILED
        {
            self.bar(tried, seen.now);
        }
        self.decided = Some(seen.now);
        self.calm = None;
        let safe = self.carried.map_or(0, |(rate, _)| (rate * SAFE) as u64);
        Decision::Down(fitting(ladder, safe).min(rung - 1))
    }

    fn go_up(&mut self, seen: &Seen, ladder: &[u64], rung: usize) -> Decision {
        let Some((carried, at)) = self.carried else { return Decision::Stay };
        if seen.now.saturating_sub(at) > REMEMBERED {
            return Decision::Stay;
        }
        let allowed = |target: &usize| {
            let free = self.barred.get(*target).is_none_or(|&(until, _)| until <= seen.now);
            free && ladder.get(*target).is_some_and(|&bits| bits as f64 * MARGIN <= carried)
        };
        // What is barred bars what is above it.
        let target = (rung + 1..ladder.len()).take_while(allowed).last();
        let Some(target) = target else { return Decision::Stay };
        self.decided = Some(seen.now);
        self.tried = Some((seen.now, target));
        self.calm = None;
        Decision::Up(target)
    }
}

impl Rule for Evidence {
    fn decide(&mut self, seen: &Seen, ladder: &[u64], rung: usize) -> Decision {
        self.learn(seen);
        let Some(&bits) = ladder.get(rung) else { return Decision::Stay };
        let waiting = Self::waiting(seen, bits);
        let bytes = seen.queued + seen.unacknowledged;
        let grows = bytes >= self.waited;
        self.waited = bytes;
        if let Some((at, tried)) = self.tried
            && seen.now.saturating_sub(at) >= FAILED
        {
            // It went well: the next failure is the first again.
            self.tried = None;
            if let Some(barred) = self.barred.get_mut(tried) {
                *barred = (0, 0);
            }
        }
        let settled = self.decided.is_none_or(|at| seen.now.saturating_sub(at) >= SETTLES);
        if settled && (waiting > WAITS && grows || waiting > WAITS_LONG) {
            if rung > 0 {
                return self.go_down(seen, ladder, rung);
            }
            if waiting > TOO_FAR && seen.queued > 0 {
                self.decided = Some(seen.now);
                return Decision::SkipToLive;
            }
        }
        if seen.queued > 0 || waiting > WAITS / 2 {
            self.calm = None;
            return Decision::Stay;
        }
        let since = *self.calm.get_or_insert(seen.now);
        if settled && seen.now.saturating_sub(since) >= CALM {
            return self.go_up(seen, ladder, rung);
        }
        Decision::Stay
    }
}
