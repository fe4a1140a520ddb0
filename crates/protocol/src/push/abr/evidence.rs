use super::{Decision, Rule, Seen, fitting};

/// A viewer is not sent more than it can take in time: it goes down when what waits will take so
/// long, in microseconds, and is not getting less.
const WAITS: u64 = 350_000;

/// So long is too long even if it is getting less.
const WAITS_LONG: u64 = 1_500_000;

/// At the lowest rung a viewer is skipped to live when what waits will take so long.
const TOO_FAR: u64 = 4_000_000;

/// After a decision, what was sent before it is let through first.
const SETTLES: u64 = 1_000_000;

/// It goes up only after so long without anything that waits, at first and later.
const CALM: (u64, u64) = (600_000, 1_200_000);

/// After so long it goes up without having been shown that the link carries more, as long as it has
/// not been shown that it carries less.
const BORED: u64 = 20_000_000;

/// What it must have carried, in terms of what it is to carry.
const MARGIN: f64 = 1.15;

/// It goes down to what fits into so much of what was carried.
const SAFE: f64 = 0.85;

/// What waits is dropped where the rendition has so much more than what is carried; else the viewer's
/// buffer bears it until the next keyframe.
const HOPELESS: f64 = 1.4;

/// A rung that was left so soon was a failed try.
const FAILED: u64 = 8_000_000;

/// How long a rung is not tried again: at first, and at most. Doubled with each failure.
const BACK_OFF: (u64, u64) = (8_000_000, 240_000_000);

/// The time is not doubled where the link carried nearly enough: such a try costs a moment's delay.
const NEARLY: f64 = 1.5;

/// A rung may be tried before that if so much more is promised than was when the try failed.
const CHANGED: f64 = 1.6;

/// So long a figure of what was carried counts for.
const REMEMBERED: u64 = 5_000_000;

/// Nothing is learnt of a longer time: what happened in it may have been long ago.
const RECENT: u64 = 2_000_000;

/// Unless no more was written in it than so many segments: what one of them took does not get old.
const SEGMENTS: u64 = 4;

/// Nor of a shorter one, while something waits all the time and otherwise.
const ENOUGH: (u64, u64) = (180_000, 390_000);

/// A burst that took the link so long tells what it carries; a shorter one, that it carries as much.
const TELLING: u64 = 60_000;

/// What has waited for so long at most when there is room for it is sent although its rung is being
/// left: it may have been a moment's trouble.
const WORTH: u64 = 900_000;

/// What waits must do so for so long: a chunk that was just written is not late.
const LASTS: u64 = 180_000;

/// Goes down at once when more waits than a viewer's buffer bears, up only when the bursts that chunks
/// are have shown that the link carries more, and back only after a time that grows with each failure.
///
/// A live chunk is written at once and then nothing for a while, so how fast it was acknowledged,
/// less the round trip that it takes anyway, tells what the link carries, though on average it
/// carries no more than it is given.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    before: Option<Seen>,
    carried: Option<Carried>,
    /// What was seen when too much began to wait.
    late: Option<Seen>,
    /// When the viewer took nothing of what there was for it, last.
    stopped: Option<u64>,
    /// Since when nothing waits.
    calm: Option<u64>,
    /// It has gone down and the keyframe has not come yet.
    leaves: bool,
    /// When it decided last.
    decided: Option<u64>,
    tried: Option<Try>,
    barred: Vec<Bar>,
}

/// What of late was carried.
#[derive(Debug, Clone, Copy)]
struct Carried {
    /// Bits per second.
    rate: f64,
    /// Whether it cannot be more.
    is_all: bool,
    at: u64,
}

/// A rung that was gone up to.
#[derive(Debug, Clone, Copy)]
struct Try {
    rung: usize,
    at: u64,
    /// What the link had been found to carry.
    promised: f64,
}

/// A rung that is not tried again.
#[derive(Debug, Clone, Copy)]
struct Bar {
    rung: usize,
    until: u64,
    /// How long it was barred for.
    wait: u64,
    promised: f64,
}

impl Evidence {
    /// Takes note of what was carried since something was learnt.
    fn learn(&mut self, seen: &Seen) {
        let Some(before) = self.before else {
            self.before = Some(*seen);
            return;
        };
        let time = seen.now.saturating_sub(before.now);
        let busy = seen.busy.saturating_sub(before.busy);
        // A viewer of segments is looked at while a segment is written to it. Something waits then, but
        // between two segments nothing does.
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
            // With something waiting all the time there is no trip to be waited for.
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
            // What is on its way grows, though the kernel has taken all.
            let rate = bits as f64 * 1e6 / busy as f64;
            self.carried = Some(Carried { rate, is_all: true, at: seen.now });
            return;
        }
        let wire = if before.queued > 0 || seen.queued > 0 {
            busy
        } else if never_rests {
            // The trip is longer than from one write to the next. A burst's first byte takes the least
            // time, its last as much longer as the link needs for the burst.
            writes.saturating_mul(2 * delay).min(busy)
        } else {
            // Each write was through before the next.
            busy.saturating_sub(writes.saturating_mul(seen.min_rtt))
        };
        let is_all = wire >= TELLING * writes;
        let wire = wire.max(busy / 20).max(1000);
        let rate = bits as f64 * 1e6 / wire as f64;
        let known = self.carried(seen.now);
        let is_all = is_all && known.is_none_or(|known| known.is_all);
        let rate = match known {
            // A burst may be slowed by what the link has nothing to do with; it is never too fast.
            Some(known) if rate < known.rate => 0.8 * known.rate + 0.2 * rate,
            Some(known) => 0.5 * known.rate + 0.5 * rate,
            None => rate,
        };
        self.carried = Some(Carried { rate, is_all, at: seen.now });
    }

    /// Of late, if anything was.
    fn carried(&self, now: u64) -> Option<Carried> {
        self.carried.filter(|known| now.saturating_sub(known.at) <= REMEMBERED)
    }

    /// How long what waits will take, beyond what is on its way anyway.
    fn waiting(&self, seen: &Seen, bits: u64) -> u64 {
        let rate = match self.carried(seen.now) {
            Some(known) if known.is_all => known.rate,
            _ => bits as f64,
        };
        let late = left(seen) as f64 * 8e6 / rate.max(1.0);
        (late as u64).saturating_sub(seen.rtt)
    }

    /// Whether too much has waited for a while and is not getting less.
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
            // Of no rendition would it take anything.
            (self.late, self.stopped) = (Some(*seen), Some(seen.now));
            return false;
        }
        left(seen) >= left(&before) || waiting > WAITS_LONG
    }

    /// Takes note that the rung is left: soon after it was tried, that was a failed try, unless it was
    /// the viewer who stopped reading.
    fn fail(&mut self, seen: &Seen, ladder: &[u64], rung: usize) {
        let stopped = self.stopped.is_some_and(|at| seen.now.saturating_sub(at) < RECENT);
        if let Some(tried) = self.tried.take()
            && seen.now.saturating_sub(tried.at) < FAILED
            && !stopped
        {
            let bits = ladder.get(rung).copied().unwrap_or_default();
            self.bar(tried, bits, seen.now);
        }
    }

    fn bar(&mut self, failed: Try, bits: u64, now: u64) {
        let known = self.barred.iter_mut().find(|bar| bar.rung == failed.rung);
        let carried = self.carried.map_or(0.0, |known| known.rate);
        let near = bits as f64 <= carried * NEARLY;
        let wait = known.as_ref().map_or(0, |bar| if near { bar.wait } else { bar.wait * 2 });
        let wait = wait.clamp(BACK_OFF.0, BACK_OFF.1);
        let bar = Bar { rung: failed.rung, until: now + wait, wait, promised: failed.promised };
        match known {
            Some(known) => *known = bar,
            None => self.barred.push(bar),
        }
    }

    fn go_down(&mut self, seen: &Seen, ladder: &[u64], rung: usize) -> Decision {
        self.fail(seen, ladder, rung);
        self.decided = Some(seen.now);
        self.calm = None;
        self.leaves = true;
        let carried = self.carried(seen.now).map_or(0.0, |known| known.rate);
        let to = fitting(ladder, (carried * SAFE) as u64).min(rung - 1);
        let bits = ladder.get(rung).copied().unwrap_or_default();
        Decision::Down { to, drop: bits as f64 > carried * HOPELESS }
    }

    /// To the next rung, if there is reason to believe that the link carries it.
    fn go_up(&mut self, seen: &Seen, ladder: &[u64], rung: usize, calm: u64) -> Decision {
        let carried = self.carried(seen.now);
        let promised = carried.map_or(0.0, |known| known.rate);
        let to = rung + 1;
        let Some(&bits) = ladder.get(to) else { return Decision::Stay };
        let shown = promised >= bits as f64 * MARGIN;
        if !shown && (calm < BORED || carried.is_some_and(|known| known.is_all)) {
            return Decision::Stay;
        }
        let bar = self.barred.iter().find(|bar| bar.rung == to);
        if bar.is_some_and(|bar| seen.now < bar.until && promised < bar.promised * CHANGED) {
            return Decision::Stay;
        }
        self.decided = Some(seen.now);
        self.tried = Some(Try { rung: to, at: seen.now, promised });
        self.calm = None;
        Decision::Up(to)
    }

    /// A try that lasted went well: the next failure is the first again.
    fn forgive(&mut self, now: u64) {
        if let Some(tried) = self.tried
            && now.saturating_sub(tried.at) >= FAILED
        {
            self.tried = None;
            self.barred.retain(|bar| bar.rung != tried.rung);
        }
    }

    /// Of what is sent as fast as it is taken: the best that leaves something to catch up with. Where it
    /// is only known that the link carries as much, one rung at a time.
    fn follow(&mut self, seen: &Seen, ladder: &[u64], rung: usize) -> Decision {
        let Some(carried) = self.carried(seen.now) else { return Decision::Stay };
        let higher = fitting(ladder, (carried.rate / MARGIN / MARGIN) as u64);
        let lower = fitting(ladder, (carried.rate * SAFE) as u64);
        if lower < rung && carried.is_all {
            self.fail(seen, ladder, rung);
            self.decided = Some(seen.now);
            return Decision::Down { to: lower, drop: false };
        }
        if higher > rung && carried.is_all {
            self.decided = Some(seen.now);
            return Decision::Up(higher);
        }
        if higher > rung {
            return self.go_up(seen, ladder, rung, 0);
        }
        Decision::Stay
    }
}

/// Bytes that the viewer has not got.
fn left(seen: &Seen) -> u64 {
    seen.queued + seen.unacknowledged
}

/// Whether all that time the viewer had no room and took nothing: it does not read, which says nothing
/// about the link.
fn takes_nothing(before: &Seen, seen: &Seen) -> bool {
    let time = seen.now.saturating_sub(before.now);
    let limited = seen.viewer_limited.saturating_sub(before.viewer_limited);
    seen.acknowledged == before.acknowledged && limited >= time / 10 * 9
}

impl Rule for Evidence {
    fn decide(&mut self, seen: &Seen, ladder: &[u64], rung: usize) -> Decision {
        self.learn(seen);
        self.forgive(seen.now);
        let Some(&bits) = ladder.get(rung) else { return Decision::Stay };
        let settled = self.decided.is_none_or(|at| seen.now.saturating_sub(at) >= SETTLES);
        if seen.catching_up {
            self.calm = None;
            return if settled { self.follow(seen, ladder, rung) } else { Decision::Stay };
        }
        let waiting = self.waiting(seen, bits);
        if self.is_late(seen, waiting) && settled {
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
        if self.leaves
            && self.carried(seen.now).is_some_and(|known| known.rate >= bits as f64 * MARGIN)
        {
            self.leaves = false;
            return Decision::Up(rung);
        }
        let calm = seen.now - *self.calm.get_or_insert(seen.now);
        let enough = if self.decided.is_none() { CALM.0 } else { CALM.1 };
        if settled && calm >= enough {
            return self.go_up(seen, ladder, rung, calm);
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
