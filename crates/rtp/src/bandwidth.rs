//! What feedback tells of the link to a receiver: transport-wide congestion control,
//! draft-holmer-rmcat-transport-wide-cc-extensions-01.
//!
//! The sender numbers all packets, and the receiver tells when each came. The link is taken for a queue
//! that one bottleneck serves in order: a packet's service begins when it arrives there, or when the packet
//! before it is done. So the time in which the bottleneck was busy is known, and bits by busy time are the
//! bit rate that the link can carry, also where the sender sends less. No packet is sent only to find out:
//! a frame is a burst of packets, which keeps the bottleneck busy. How long the first packet of a burst was in
//! service is part of its delay, so it does not count.
//!
//! The clocks of both sides differ by an unknown offset. The shortest delay of the last 10 to 20 s counts as
//! none. So clocks may drift, and a route may change.

use std::collections::VecDeque;

#[cfg(test)]
mod tests;

/// Packets that are remembered until there is feedback on them.
pub const MOST_SENT: usize = 4_096;

/// The number of the first packet. The packet has its last 16 bits. Numbers below it would be those of
/// feedback on packets before the first.
const FIRST: u64 = 1 << 16;

/// For how long a shortest delay is used, in microseconds: at least this, and at most twice.
const MEMORY: u64 = 10_000_000;

/// A delay that is this much longer than the shortest, in microseconds, is that of another clock.
const OTHER_CLOCK: i64 = 30_000_000;

/// A delay beyond the shortest, in microseconds, that comes from the link's jitter and not from a queue.
const JITTER: u64 = 50_000;

/// The time in microseconds after which a loss counts little more than a third of what it did.
const LOSSES_FADE: f64 = 2_000_000.0;

/// What is known of a link. Times are in microseconds of the sender's clock, without the shortest delay.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Observed {
    /// When the newest packet came.
    pub now: u64,
    /// Bytes that came since the beginning, without the first packet of each burst.
    pub acknowledged: u64,
    /// For how long the bottleneck was busy with them.
    pub busy: u64,
    /// How often it became busy.
    pub bursts: u64,
    /// Bytes that waited for it when the newest packet came. 0 while the delay is that of jitter.
    pub queued: u64,
    /// Bytes that were lost in the last two seconds or so.
    pub lost: f64,
}

/// Observes the link by what was sent and by the feedback on it.
#[derive(Debug)]
pub struct Estimator {
    /// The number of the first of `sent`.
    first: u64,
    sent: VecDeque<Sent>,
    shortest: Shortest,
    observed: Observed,
}

#[derive(Debug, Clone, Copy)]
struct Sent {
    at: u64,
    bytes: u32,
}

/// The shortest delay, from the sender's clock to the receiver's, in microseconds.
#[derive(Debug, Default)]
struct Shortest {
    /// Since when `now` is learnt.
    since: u64,
    before: Option<i64>,
    now: Option<i64>,
}

impl Shortest {
    /// Learns the delay of a packet that was sent at a time. Returns the shortest.
    fn learn(&mut self, delay: i64, at: u64) -> i64 {
        let known = self.now.into_iter().chain(self.before).min();
        if known.is_some_and(|known| delay.saturating_sub(known) > OTHER_CLOCK) {
            *self = Self::default();
        }
        if self.now.is_none() || at.saturating_sub(self.since) >= MEMORY {
            *self = Self { since: at, before: self.now, now: None };
        }
        let now = self.now.map_or(delay, |now| now.min(delay));
        self.now = Some(now);
        self.before.map_or(now, |before| before.min(now))
    }
}

impl Default for Estimator {
    fn default() -> Self {
        Self {
            first: FIRST,
            sent: VecDeque::new(),
            shortest: Shortest::default(),
            observed: Observed::default(),
        }
    }
}

impl Estimator {
    /// The number of the next packet. Its last 16 bits are the packet's transport-wide sequence number.
    pub fn next(&self) -> u64 {
        self.first + self.sent.len() as u64
    }

    /// Notes that the next packet was sent, at `now` in microseconds of any clock that goes on.
    pub fn sent(&mut self, bytes: usize, now: u64) {
        if self.sent.len() >= MOST_SENT {
            self.sent.pop_front();
            self.first += 1;
        }
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.sent.push_back(Sent { at: now, bytes });
    }

    /// Takes feedback: the numbers of packets, ascending, and when each came by the receiver's clock in
    /// microseconds, or `None` if it has not come. What is no packet of ours is passed over, and so is
    /// more than [`MOST_SENT`] packets.
    pub fn take(&mut self, feedback: impl IntoIterator<Item = (u64, Option<i64>)>) {
        let before = self.observed.now;
        let (mut lost, mut missing, mut newest) = (0, 0, None);
        for (number, came) in feedback.into_iter().take(MOST_SENT) {
            let place = number.checked_sub(self.first).and_then(|it| usize::try_from(it).ok());
            let Some(sent) = place.and_then(|place| self.sent.get(place)).copied() else {
                continue;
            };
            let Some(came) = came else {
                missing += u64::from(sent.bytes);
                continue;
            };
            // What is missing before a packet that came is lost. Later packets may be on their way.
            lost += std::mem::take(&mut missing);
            self.sent.drain(..=place.unwrap_or_default());
            self.first = number + 1;
            self.arrive(sent, came);
            newest = Some(sent.at);
        }
        let Some(newest) = newest else { return };
        let observed = &mut self.observed;
        let fades = observed.now.saturating_sub(before) as f64 / LOSSES_FADE;
        observed.lost = observed.lost * (-fades).exp() + lost as f64;
        observed.queued = 0;
        if observed.now.saturating_sub(newest) > JITTER {
            let waits = self.sent.iter().take_while(|sent| sent.at < observed.now);
            observed.queued = waits.map(|sent| u64::from(sent.bytes)).sum();
        }
    }

    fn arrive(&mut self, sent: Sent, came: i64) {
        // Clocks that are wrong by centuries do no harm.
        let delay = came.saturating_sub_unsigned(sent.at);
        let shortest = self.shortest.learn(delay, sent.at);
        let delay = delay.saturating_sub(shortest).max(0).unsigned_abs();
        let done = sent.at.saturating_add(delay);
        let observed = &mut self.observed;
        if sent.at > observed.now {
            observed.bursts += 1;
        } else {
            // It waited while the packet before it was in service.
            observed.acknowledged += u64::from(sent.bytes);
        }
        observed.busy += done.saturating_sub(observed.now.max(sent.at));
        observed.now = observed.now.max(done);
    }

    /// What is known of the link.
    pub fn observed(&self) -> Observed {
        self.observed
    }

    /// Begins again, after a time in which packets were not numbered: in it, clocks may have drifted.
    pub fn restart(&mut self) {
        self.first = self.next();
        self.sent.clear();
        self.shortest = Shortest::default();
        (self.observed.queued, self.observed.lost) = (0, 0.0);
    }

    /// Forgets losses: the sender has reacted to them.
    pub fn forgive(&mut self) {
        self.observed.lost = 0.0;
    }
}
