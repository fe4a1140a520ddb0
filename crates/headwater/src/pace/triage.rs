//! Whom a link serves that cannot serve all.
//!
//! Shared by need, a link that carries four fifths of what its viewers play has every one of them
//! stall. So it serves as many as it carries, those who came first, and the others are set aside:
//! they get what is left over, and come back as it becomes more.

use std::time::Duration;

use live::UnixMicros;

/// How far apart decisions are: as long as it takes to see what the last one did.
const INTERVAL: Duration = Duration::from_secs(2);

/// A link is too short that carries less of what its viewers play than this: as little as the rest
/// is, a player makes it good by a pause or two, and it is nobody's turn to go without.
const BEARABLE: f64 = 0.89;

/// How much of what the link carries is for those that are kept to play; with the rest they make good
/// what they lost.
const KEPT: f64 = 0.97;

/// What those in need must have lost on average, in microseconds: a second of many arrivals is not
/// yet a short link.
const LOST: i64 = 1_000_000;

/// Fewer viewers than this have no common link, for all one knows.
const FEWEST: usize = 20;

/// At each decision for which those that are kept lack nothing, one comes back for so many of them.
const BACK: usize = 25;

/// If less than this goes out for some being set aside, the link was not what they had in common.
const SAME: f64 = 0.93;

/// How long nobody is set aside after that: at first, and at most.
const PATIENCE: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(3600));

/// What is known of all viewers at one time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Observed {
    /// Microseconds of media that were delivered to all of them, ever, and of those to viewers that
    /// are set aside.
    pub delivered: u64,
    pub delivered_aside: u64,
    /// Viewers that want something, and how many of them are set aside.
    pub viewers: usize,
    pub aside: usize,
    /// Rank of the next that comes.
    pub joined: u64,
    /// Whether so many are in need that their link must be short.
    pub short: bool,
    /// Microseconds of media that those in need have been kept waiting for, on average.
    pub lost: i64,
}

/// Decides from which rank on viewers are set aside.
#[derive(Debug)]
pub(super) struct Triage {
    /// When it last decided, and what had been delivered then, to all and to those set aside.
    since: UnixMicros,
    delivered: u64,
    delivered_aside: u64,
    /// Viewers that the link carried when some were last set aside, until it is seen what became of it.
    trial: Option<f64>,
    /// Until when nobody is set aside, and for how long the next time.
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

    /// When to decide next.
    pub(super) fn next(&self) -> UnixMicros {
        self.since.after(INTERVAL)
    }

    /// The first rank that is set aside from now on, `u64::MAX` for none, given what it was.
    pub(super) fn decide(&mut self, observed: Observed, cutoff: u64, now: UnixMicros) -> u64 {
        let elapsed = now.since(self.since);
        // As many viewers would play it as it came.
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
            // After a pause longer than an interval nothing is known of what the link carries.
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
