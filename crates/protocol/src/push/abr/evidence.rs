use super::{Decision, Rule, Seen, fitting};

/// Delay in microseconds that is too long. The rule goes down when the waiting bytes need longer
/// than this to arrive, and are not getting fewer.
const WAITS: u64 = 350_000;

/// Delay at which the rule goes down even if the waiting bytes are getting fewer.
const WAITS_LONG: u64 = 1_500_000;

/// Delay at which a viewer on the lowest rendition is skipped to live.
const TOO_FAR: u64 = 4_000_000;

/// Time after a decision without another one, so that the bytes sent before it can arrive.
const SETTLES: u64 = 1_000_000;

/// The rule goes up only after nothing has waited for this long: before the first decision, and
/// later.
const CALM: (u64, u64) = (600_000, 1_200_000);

/// After nothing has waited for this long, the rule goes up without evidence that the link carries
/// more, unless the rate of the link is known.
const BORED: u64 = 20_000_000;

/// The rule goes up if the measured rate is this many times the bitrate of the next rendition.
const MARGIN: f64 = 1.15;

/// The rule goes down to a rendition that fits into this fraction of the measured rate.
const SAFE: f64 = 0.85;

/// Waiting bytes are dropped if the rendition has more than this many times the measured rate.
/// Otherwise the viewer's buffer covers the delay until the next keyframe.
const HOPELESS: f64 = 1.4;

/// A try has failed if its rendition is left within this time.
const FAILED: u64 = 8_000_000;

/// How long a rendition is not tried again: after the first failure, and at most. Each failure
/// doubles the time.
const BACK_OFF: (u64, u64) = (8_000_000, 240_000_000);

/// The time is not doubled if the rendition has at most this many times the measured rate: such a
/// try costs only a short delay.
const NEARLY: f64 = 1.5;

/// A rendition may be tried earlier if the measured rate is this many times the rate at the failed
/// try.
const CHANGED: f64 = 1.6;

/// How long a measured rate is used.
const REMEMBERED: u64 = 5_000_000;

/// Longer observations are not used: the events in them may be long past.
const RECENT: u64 = 2_000_000;

/// Exception to [`RECENT`]: observations of at most this many writes. How long a segment took does
/// not become outdated.
const SEGMENTS: u64 = 4;

/// Shorter observations are not used either: the limit while bytes wait all the time, and
/// otherwise.
const ENOUGH: (u64, u64) = (180_000, 390_000);

/// A burst that occupied the link for this long shows the link's rate. A shorter burst shows only
/// that the link carries at least that rate.
const TELLING: u64 = 60_000;

/// While a rendition is being left, its next chunk is still sent if at most this much media waits:
/// the trouble may have been momentary.
const WORTH: u64 = 900_000;

/// Bytes must wait for this long before the rule acts: a chunk that was just written is not late.
const LASTS: u64 = 180_000;

/// Goes down at once when more bytes wait than a viewer's buffer can cover. Goes up only when
/// bursts have shown that the link carries more. Goes back to a failed rendition only after a time
/// that grows with each failure.
///
/// A live chunk is written at once, and then nothing for a while. On average the link carries no
/// more than it is given. But the time until a chunk is acknowledged, minus the round trip that
/// every chunk takes, shows how much the link can carry.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    before: Option<Seen>,
    carried: Option<Carried>,
    /// The observation when too many bytes began to wait.
    late: Option<Seen>,
    /// When the viewer was last seen not reading although bytes waited for it.
    stopped: Option<u64>,
    /// Since when nothing has waited.
    calm: Option<u64>,
    /// Whether the rule has gone down, but the keyframe has not come yet.
    leaves: bool,
    /// Time of the last decision.
    decided: Option<u64>,
    tried: Option<Try>,
    barred: Vec<Bar>,
}

/// A rate that was measured recently.
#[derive(Debug, Clone, Copy)]
struct Carried {
    /// Bits per second.
    rate: f64,
    /// Whether this is the link's full rate. Otherwise the link may carry more.
    is_all: bool,
    at: u64,
}

/// A try of a higher rendition.
#[derive(Debug, Clone, Copy)]
struct Try {
    rendition: usize,
    at: u64,
    /// The measured rate at that time.
    promised: f64,
}

/// A rendition that is not tried again for a while.
#[derive(Debug, Clone, Copy)]
struct Bar {
    rendition: usize,
    until: u64,
    /// How long the rendition was barred.
    wait: u64,
    promised: f64,
}

impl Evidence {
    /// Measures the rate since the last measurement, if enough time has passed.
    fn learn(&mut self, seen: &Seen) {
        let Some(before) = self.before else {
            self.before = Some(*seen);
            return;
        };
        let time = seen.now.saturating_sub(before.now);
        let busy = seen.busy.saturating_sub(before.busy);
        // A viewer of segments is observed while a segment is written to it. Bytes wait at both
        // ends of such an observation, but not between the segments.
        let waits = before.queued > 0 && seen.queued > 0;
        let full = waits && busy >= time / 100 * 90;
        let enough = if full { ENOUGH.0.max(2 * seen.min_rtt) } else { ENOUGH.1 };
        if time < enough {
            return;
        }
        self.before = Some(*seen);
        let writes = seen.writes.saturating_sub(before.writes);
        let is_idle = before.queued == 0 && seen.queued == 0;
        if time > RECENT && !(is_idle && (1..=SEGMENTS).contains(&writes)) {
            return;
        }
        if takes_nothing(&before, seen) {
            self.stopped = Some(seen.now);
            return;
        }
        let bits = 8 * seen.acknowledged.saturating_sub(before.acknowledged);
        if full {
            // Bytes waited all the time, so no round trip has to be subtracted.
            let rate = bits as f64 * 1e6 / time as f64;
            self.carried = Some(Carried { rate, is_all: true, at: seen.now });
            return;
        }
        if bits == 0 {
            return;
        }
        let writes = writes.max(1);
        let delay = seen.rtt.saturating_sub(seen.min_rtt);
        let never_rests = busy >= time / 100 * 95;
        if never_rests && delay >= TELLING {
            // The bytes on their way increase, although the kernel has taken all bytes.
            let rate = bits as f64 * 1e6 / busy as f64;
            self.carried = Some(Carried { rate, is_all: true, at: seen.now });
            return;
        }
        let wire = if before.queued > 0 || seen.queued > 0 {
            busy
        } else if never_rests {
            // The round trip is longer than the time between two writes. The first byte of a burst
            // takes the shortest round trip. The last byte takes longer by the time that the link
            // needs for the burst.
            writes.saturating_mul(2 * delay).min(busy)
        } else {
            // Each write was acknowledged before the next.
            busy.saturating_sub(writes.saturating_mul(seen.min_rtt))
        };
        let is_all = wire >= TELLING * writes;
        let wire = wire.max(busy / 20).max(1000);
        let rate = bits as f64 * 1e6 / wire as f64;
        let known = self.carried(seen.now);
        let is_all = is_all && known.is_none_or(|known| known.is_all);
        let rate = match known {
            // Other causes than the link may slow a burst down, but nothing makes it too fast.
            Some(known) if rate < known.rate => 0.8 * known.rate + 0.2 * rate,
            Some(known) => 0.5 * known.rate + 0.5 * rate,
            None => rate,
        };
        self.carried = Some(Carried { rate, is_all, at: seen.now });
    }

    /// The measured rate, if it is recent.
    fn carried(&self, now: u64) -> Option<Carried> {
        self.carried.filter(|known| now.saturating_sub(known.at) <= REMEMBERED)
    }

    /// How long the waiting bytes need to arrive, beyond the round trip.
    fn waiting(&self, seen: &Seen, bits: u64) -> u64 {
        let rate = match self.carried(seen.now) {
            Some(known) if known.is_all => known.rate,
            _ => bits as f64,
        };
        let late = left(seen) as f64 * 8e6 / rate.max(1.0);
        (late as u64).saturating_sub(seen.rtt)
    }

    /// Whether too many bytes have waited for a while and are not getting fewer.
    fn is_late(&mut self, seen: &Seen, waiting: u64) -> bool {
        if waiting <= WAITS {
            self.late = None;
            return false;
        }
        let before = *self.late.get_or_insert(*seen);
        if seen.now.saturating_sub(before.now) < LASTS {
            return false;
        }
        if takes_nothing(&before, seen) {
            // The viewer would not read any rendition.
            (self.late, self.stopped) = (Some(*seen), Some(seen.now));
            return false;
        }
        left(seen) >= left(&before) || waiting > WAITS_LONG
    }

    /// Records that the rendition is left. Soon after a try this is a failed try, unless the viewer
    /// had stopped reading.
    fn fail(&mut self, seen: &Seen, ladder: &[u64], rendition: usize) {
        let stopped = self.stopped.is_some_and(|at| seen.now.saturating_sub(at) < RECENT);
        if let Some(tried) = self.tried.take()
            && seen.now.saturating_sub(tried.at) < FAILED
            && !stopped
        {
            let bits = ladder.get(rendition).copied().unwrap_or_default();
            self.bar(tried, bits, seen.now);
        }
    }

    fn bar(&mut self, failed: Try, bits: u64, now: u64) {
        let known = self.barred.iter_mut().find(|bar| bar.rendition == failed.rendition);
        let carried = self.carried.map_or(0.0, |known| known.rate);
        let near = bits as f64 <= carried * NEARLY;
        let wait = known.as_ref().map_or(0, |bar| if near { bar.wait } else { bar.wait * 2 });
        let wait = wait.clamp(BACK_OFF.0, BACK_OFF.1);
        let bar =
            Bar { rendition: failed.rendition, until: now + wait, wait, promised: failed.promised };
        match known {
            Some(known) => *known = bar,
            None => self.barred.push(bar),
        }
    }

    fn go_down(&mut self, seen: &Seen, ladder: &[u64], rendition: usize) -> Decision {
        self.fail(seen, ladder, rendition);
        self.decided = Some(seen.now);
        self.calm = None;
        self.leaves = true;
        let carried = self.carried(seen.now).map_or(0.0, |known| known.rate);
        let to = fitting(ladder, (carried * SAFE) as u64).min(rendition - 1);
        let bits = ladder.get(rendition).copied().unwrap_or_default();
        Decision::Down { to, drop: bits as f64 > carried * HOPELESS }
    }

    /// Goes up one rendition, if there is reason to believe that the link carries it.
    fn go_up(&mut self, seen: &Seen, ladder: &[u64], rendition: usize, calm: u64) -> Decision {
        let carried = self.carried(seen.now);
        let promised = carried.map_or(0.0, |known| known.rate);
        let to = rendition + 1;
        let Some(&bits) = ladder.get(to) else { return Decision::Stay };
        let shown = promised >= bits as f64 * MARGIN;
        if !shown && (calm < BORED || carried.is_some_and(|known| known.is_all)) {
            return Decision::Stay;
        }
        let bar = self.barred.iter().find(|bar| bar.rendition == to);
        if bar.is_some_and(|bar| seen.now < bar.until && promised < bar.promised * CHANGED) {
            return Decision::Stay;
        }
        self.decided = Some(seen.now);
        self.tried = Some(Try { rendition: to, at: seen.now, promised });
        self.calm = None;
        Decision::Up(to)
    }

    /// After a try that lasted, the next failure counts as the first again.
    fn forgive(&mut self, now: u64) {
        if let Some(tried) = self.tried
            && now.saturating_sub(tried.at) >= FAILED
        {
            self.tried = None;
            self.barred.retain(|bar| bar.rendition != tried.rendition);
        }
    }

    /// Decides while media of the past are sent as fast as the viewer takes them: chooses the best
    /// rendition that leaves bandwidth to catch up. Where the link's full rate is unknown, it goes
    /// up one rendition at a time.
    fn follow(&mut self, seen: &Seen, ladder: &[u64], rendition: usize) -> Decision {
        let Some(carried) = self.carried(seen.now) else { return Decision::Stay };
        let higher = fitting(ladder, (carried.rate / MARGIN / MARGIN) as u64);
        let lower = fitting(ladder, (carried.rate * SAFE) as u64);
        if lower < rendition && carried.is_all {
            self.fail(seen, ladder, rendition);
            self.decided = Some(seen.now);
            return Decision::Down { to: lower, drop: false };
        }
        if higher > rendition && carried.is_all {
            self.decided = Some(seen.now);
            return Decision::Up(higher);
        }
        if higher > rendition {
            return self.go_up(seen, ladder, rendition, 0);
        }
        Decision::Stay
    }
}

/// Bytes that have not reached the viewer.
fn left(seen: &Seen) -> u64 {
    seen.queued + seen.unacknowledged
}

/// Whether the viewer's receive window was full all the time and it took nothing. Such a viewer
/// does not read, which tells nothing about the link.
fn takes_nothing(before: &Seen, seen: &Seen) -> bool {
    let time = seen.now.saturating_sub(before.now);
    let limited = seen.viewer_limited.saturating_sub(before.viewer_limited);
    seen.acknowledged == before.acknowledged && limited >= time / 10 * 9
}

impl Rule for Evidence {
    fn decide(&mut self, seen: &Seen, ladder: &[u64], rendition: usize) -> Decision {
        self.learn(seen);
        self.forgive(seen.now);
        let Some(&bits) = ladder.get(rendition) else { return Decision::Stay };
        let settled = self.decided.is_none_or(|at| seen.now.saturating_sub(at) >= SETTLES);
        if seen.catching_up {
            self.calm = None;
            return if settled { self.follow(seen, ladder, rendition) } else { Decision::Stay };
        }
        let waiting = self.waiting(seen, bits);
        if self.is_late(seen, waiting) && settled {
            if rendition > 0 {
                return self.go_down(seen, ladder, rendition);
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
        if self.leaves
            && self.carried(seen.now).is_some_and(|known| known.rate >= bits as f64 * MARGIN)
        {
            self.leaves = false;
            return Decision::Up(rendition);
        }
        let calm = seen.now - *self.calm.get_or_insert(seen.now);
        let enough = if self.decided.is_none() { CALM.0 } else { CALM.1 };
        if settled && calm >= enough {
            return self.go_up(seen, ladder, rendition, calm);
        }
        Decision::Stay
    }

    fn is_worth_sending(&self, seen: &Seen, bits: u64) -> bool {
        let late = seen.queued.saturating_mul(8_000_000) / bits.max(1);
        let hopeless = self.carried.is_some_and(|known| {
            known.is_all && (bits / 20..bits / 3).contains(&(known.rate as u64))
        });
        late <= if hopeless { WORTH / 2 } else { WORTH }
    }

    fn switched(&mut self, now: u64) {
        self.decided = Some(now);
        self.calm = None;
        self.late = None;
        self.leaves = false;
        if let Some(tried) = &mut self.tried {
            tried.at = now;
        }
    }
}
