//! Decides which viewers to serve when a link cannot serve all.
//!
//! If a link carries four fifths of what its viewers play and shares this equally, every viewer
//! stalls. So the server serves as many viewers as the link carries, in the order in which they
//! came. It sets the others aside: they get what is left over, and come back when more is left.

use std::time::Duration;

use live::UnixMicros;

/// Time between decisions. The effect of a decision must show before the next.
const INTERVAL: Duration = Duration::from_secs(2);

/// A link is too short if it carries less than this fraction of what its viewers play. A player
/// makes up for a smaller lack with a pause or two, so nobody needs to be set aside.
const BEARABLE: f64 = 0.89;

/// Fraction of the link's rate that is for the viewers that are kept. With the rest they recover
/// what they lost.
const KEPT: f64 = 0.97;

/// Microseconds that viewers in need must have lost on average. Many arrivals in one second do not
/// make a link short.
const LOST: i64 = 1_000_000;

/// With fewer viewers than this, one cannot tell whether they share a link.
const FEWEST: usize = 20;

/// Number of kept viewers for each viewer that comes back at a decision, if the kept ones lack
/// nothing.
const BACK: usize = 25;

/// If the total rate falls below this fraction when viewers are set aside, they did not share the
/// link.
const SAME: f64 = 0.93;

/// After such a mistake, nobody is set aside for this time: at first, and at most.
const PATIENCE: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(3600));

/// Figures of all viewers at one time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Observed {
    /// Microseconds of media ever delivered, to all viewers and to those set aside.
    pub delivered: u64,
    pub delivered_aside: u64,
    /// Number of viewers that want something, and how many of them are set aside.
    pub viewers: usize,
    pub aside: usize,
    /// Rank of the next viewer that joins.
    pub joined: u64,
    /// Whether so many viewers are in need that their link must be short.
    pub short: bool,
    /// Microseconds of media for which viewers in need have waited, on average.
    pub lost: i64,
}

/// Decides which viewers are set aside: those from some rank on.
#[derive(Debug)]
pub(super) struct Triage {
    /// Time of the last decision, and the totals delivered by then.
    since: UnixMicros,
    delivered: u64,
    delivered_aside: u64,
    /// Rate of the link when viewers were last set aside. It is kept until the effect shows.
    trial: Option<f64>,
    /// Until when nobody is set aside, and how long that lasts the next time.
    not_before: UnixMicros,
    patience: Duration,
}

impl Triage {
    pub(super) fn new(now: UnixMicros) -> Self {
        Self {
            since: now,
            delivered: 0,
            delivered_aside: 0,
            trial: None,
            not_before: now,
            patience: PATIENCE.0,
        }
    }

    /// When the next decision is due.
    pub(super) fn next(&self) -> UnixMicros {
        self.since.after(INTERVAL)
    }

    /// Returns the first rank that is set aside from now on; `u64::MAX` for none. `cutoff` is the
    /// present one.
    pub(super) fn decide(&mut self, observed: Observed, cutoff: u64, now: UnixMicros) -> u64 {
        let elapsed = now.since(self.since);
        // The rate is the number of viewers that could play at this rate.
        let rate = |media: u64| media as f64 / elapsed.as_micros().max(1) as f64;
        let carried = rate(observed.delivered.saturating_sub(self.delivered));
        let leftover = rate(observed.delivered_aside.saturating_sub(self.delivered_aside));
        self.since = now;
        (self.delivered, self.delivered_aside) = (observed.delivered, observed.delivered_aside);
        if let Some(before) = self.trial.take()
            && observed.short
            && carried < SAME * before
        {
            self.not_before = now.after(self.patience);
            self.patience = (2 * self.patience).min(PATIENCE.1);
            return u64::MAX;
        }
        let kept = observed.viewers.saturating_sub(observed.aside);
        if !observed.short {
            let back = (kept / BACK).max(1) as u64;
            let cutoff = cutoff.saturating_add(back);
            return if cutoff < observed.joined { cutoff } else { u64::MAX };
        }
        let bearable = carried >= BEARABLE * observed.viewers as f64;
        let begins = cutoff == u64::MAX;
        if observed.viewers < FEWEST
            || now < self.not_before
            || observed.lost < LOST
            || (begins && bearable)
            // After a pause longer than an interval, the link's rate is not known.
            || elapsed > 2 * INTERVAL
        {
            return cutoff;
        }
        let most = ((KEPT * (carried - leftover)) as usize).max(1);
        let excess = kept.saturating_sub(most) as u64;
        if begins && excess > 0 {
            self.trial = Some(carried);
        }
        cutoff.min(observed.joined).saturating_sub(excess)
    }
}
