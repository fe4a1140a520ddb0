//! What is seen of the link to a viewer, for a rule of `protocol::push::abr`.
//!
//! ```text
//! packets are numbered ─ feedback ─▶ estimator ─┬▶ Seen
//! otherwise ─────────────── receiver reports ───┘
//! ```

use live::UnixMicros;
use protocol::push::abr::Seen;
use rtp::bandwidth::Observed;
use rtp::feedback::{self, Told};
use str0m::rtp::rtcp::ReceptionReport;

use crate::webrtc::send::source::{NTP_BEFORE_UNIX, Numbers};

/// A link that loses this fraction of the packets, in 256ths, carries no more: draft-ietf-rmcat-gcc-02 6.
const LOSSY: u8 = 26;

/// A round trip that is this much longer than the shortest is that of a link with a queue. In 65,536ths of a
/// second, as reports have it: 250 ms.
const QUEUE: u32 = 1 << 14;

/// A longer round trip than this is none: 30 s.
const NO_ROUND_TRIP: u32 = 30 << 16;

/// What is seen of a link. Times are in microseconds of any clock that goes on.
pub(super) struct Link {
    pub(super) seen: Seen,
    /// Numbers packets, if the viewer tells which of them came.
    pub(super) numbers: Option<Numbers>,
    /// What the estimator had observed before.
    observed: Observed,
    /// When the last report came, and the bytes that had been sent then.
    reported: (u64, u32),
    /// The shortest round trip of reports.
    shortest: Option<u32>,
    /// The bytes that had been sent when a report first told that the link carries less, while all reports since
    /// tell the same.
    overloaded: Option<u32>,
}

impl Link {
    pub(super) fn new(numbers: Option<Numbers>) -> Self {
        let (seen, observed) = (Seen::default(), Observed::default());
        Self { seen, numbers, observed, reported: (0, 0), shortest: None, overloaded: None }
    }

    /// Takes feedback on packets that were numbered, in a compound RTCP packet. Returns whether there is any.
    pub(super) fn take(&mut self, compound: &[u8]) -> bool {
        let Some(numbers) = &self.numbers else { return false };
        let told = feedback::read(compound, numbers.estimator.next());
        let is_any = !told.is_empty();
        self.learn(told);
        is_any
    }

    /// Learns which packets came. A queue of the link counts as one of ours: both hold what was sent too fast.
    fn learn(&mut self, told: Vec<Told>) {
        let Some(numbers) = &mut self.numbers else { return };
        numbers.estimator.take(told);
        let observed = numbers.estimator.observed();
        let before = std::mem::replace(&mut self.observed, observed);
        let seen = &mut self.seen;
        seen.now = seen.now.max(observed.now);
        seen.acknowledged += observed.acknowledged - before.acknowledged;
        seen.busy += observed.busy - before.busy;
        seen.writes += observed.bursts - before.bursts;
        seen.queued = observed.queued;
        seen.unacknowledged = observed.lost as u64;
    }

    /// Takes a receiver report on a source (RFC 3550 6.4.1).
    ///
    /// `sent` bytes of the source were sent so far. The report counts only while packets are not numbered,
    /// because feedback tells more.
    pub(super) fn report(
        &mut self,
        report: &ReceptionReport,
        sent: u32,
        is_numbered: bool,
        (now, wall): (u64, UnixMicros),
    ) {
        if sent == self.reported.1 {
            // Nothing was sent since the last one, so nothing can be lost.
            return;
        }
        let (at, before) = std::mem::replace(&mut self.reported, (now, sent));
        let round_trip = round_trip(report, wall);
        self.shortest = self.shortest.into_iter().chain(round_trip).min();
        if is_numbered {
            self.overloaded = None;
            return;
        }
        let has_queue = round_trip > self.shortest.map(|shortest| shortest + QUEUE);
        let seen = &mut self.seen;
        seen.now = seen.now.max(now);
        (seen.queued, seen.unacknowledged) = (0, 0);
        if report.fraction_lost >= LOSSY || has_queue {
            let (bytes, time) = (u64::from(sent.wrapping_sub(before)), now.saturating_sub(at));
            let from = *self.overloaded.get_or_insert(before);
            // How much waits is not told. The rule goes down when more and more waits. The bytes of one report
            // do not show that: they follow the size of frames.
            seen.queued = sent.wrapping_sub(from).into();
            seen.acknowledged += bytes * (256 - u64::from(report.fraction_lost)) / 256;
            seen.busy += time;
        } else {
            self.overloaded = None;
        }
    }

    /// Notes that packets take another path from here on.
    pub(super) fn moved(&mut self) {
        self.shortest = None;
    }

    /// Notes that packets are numbered from here on.
    pub(super) fn restart(&mut self) {
        if let Some(numbers) = &mut self.numbers {
            numbers.estimator.restart();
        }
    }

    /// Notes that another rendition is sent from here on: what was seen was for the former one.
    pub(super) fn forgive(&mut self) {
        (self.seen.queued, self.seen.unacknowledged) = (0, 0);
        self.overloaded = None;
        if let Some(numbers) = &mut self.numbers {
            numbers.estimator.forgive();
        }
    }
}

/// The round trip that a report tells of, in 65,536ths of a second (RFC 3550 6.4.1). `None` if its sender has
/// no report of ours yet.
fn round_trip(report: &ReceptionReport, wall: UnixMicros) -> Option<u32> {
    if report.last_sr_time == 0 {
        return None;
    }
    let seconds = ((wall.0 / 1_000_000) as u32).wrapping_add(NTP_BEFORE_UNIX);
    let fraction = (wall.0 % 1_000_000) * (1 << 16) / 1_000_000;
    let now = seconds << 16 | fraction as u32;
    let round_trip = now.wrapping_sub(report.last_sr_time).wrapping_sub(report.last_sr_delay);
    (round_trip < NO_ROUND_TRIP).then_some(round_trip)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use protocol::push::abr::{Decision, Evidence, Rule};

    use super::*;

    const LADDER: [u64; 3] = [300_000, 1_000_000, 3_000_000];

    /// Microseconds between frames, and of a group of pictures.
    const FRAME: u64 = 40_000;
    const GROUP: u64 = 2_000_000;

    /// A viewer and its link, in virtual time. Its packets are numbered on each rendition.
    struct World {
        link: Link,
        rule: Evidence,
        at: usize,
        to: Option<usize>,
        /// When the bottleneck has served all that it took, and how much it takes, in microseconds.
        done: u64,
        buffer: u64,
        /// One packet in so many is lost at random.
        loses: Option<u64>,
        random: u64,
        came: VecDeque<Told>,
        /// The longest delay of a packet since this was set to 0.
        late: u64,
        switches: usize,
    }

    impl World {
        fn new(at: usize, buffer: u64, loses: Option<u64>) -> Self {
            Self {
                link: Link::new(Numbers::new(3)),
                rule: Evidence::default(),
                at,
                to: None,
                done: 0,
                buffer,
                loses,
                random: 5,
                came: VecDeque::new(),
                late: 0,
                switches: 0,
            }
        }

        fn is_lost(&mut self) -> bool {
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            self.loses.is_some_and(|loses| (self.random >> 33).is_multiple_of(loses))
        }

        /// Plays for these seconds over a link of so many bits per second.
        fn play(&mut self, seconds: std::ops::Range<u64>, rate: u64) {
            let times = seconds.start * 1_000_000..seconds.end * 1_000_000;
            for now in times.step_by(FRAME as usize) {
                if now.is_multiple_of(GROUP) {
                    let to = self.to.take().unwrap_or(self.at);
                    self.switch(to, now);
                }
                self.send(now, rate);
                // The viewer tells each 80 ms.
                if now.is_multiple_of(2 * FRAME) {
                    let came = |told: &Told| told.1.is_none_or(|at| at <= now as i64);
                    let past = self.came.iter().take_while(|told| came(told)).count();
                    self.link.learn(self.came.drain(..past).collect());
                    self.decide(now);
                }
            }
        }

        fn send(&mut self, now: u64, rate: u64) {
            // A keyframe is as large as six other frames of its group of 50.
            let frame = LADDER[self.at] / 8 * GROUP / 1_000_000 / 55;
            let mut bytes = if now.is_multiple_of(GROUP) { 6 * frame } else { frame };
            while bytes > 0 {
                let packet = bytes.min(1_200);
                bytes -= packet;
                let estimator = &mut self.link.numbers.as_mut().unwrap().estimator;
                let number = estimator.next();
                estimator.sent(packet as usize, now);
                let is_lost = self.done.saturating_sub(now) > self.buffer || self.is_lost();
                let came = (!is_lost).then(|| {
                    self.done = self.done.max(now) + packet * 8_000_000 / rate;
                    self.late = self.late.max(self.done - now);
                    (self.done + 30_000) as i64
                });
                self.came.push_back((number, came));
            }
        }

        fn decide(&mut self, now: u64) {
            match self.rule.decide(&self.link.seen, &LADDER, self.at) {
                Decision::Down { to, drop: true } => self.switch(to, now),
                Decision::Down { to, .. } | Decision::Up(to) => self.to = Some(to),
                Decision::Stay | Decision::SkipToLive => {}
            }
        }

        fn switch(&mut self, to: usize, now: u64) {
            if std::mem::replace(&mut self.at, to) == to {
                return;
            }
            self.switches += 1;
            self.to = None;
            self.rule.switched(now.max(self.link.seen.now));
            self.link.forgive();
        }
    }

    #[test]
    fn a_viewer_goes_down_with_its_link_and_comes_up_again() {
        // The link holds a second of media, or loses all that it cannot carry at once.
        for buffer in [1_000_000, 150_000] {
            let mut world = World::new(1, buffer, None);
            world.play(0..20, 4_500_000);
            assert_eq!((world.at, world.switches), (2, 1), "{buffer}");
            // It carries a third: one rendition less.
            world.play(20..24, 1_500_000);
            assert!(world.at < 2, "{buffer}");
            world.play(24..36, 1_500_000);
            assert_eq!(world.at, 1, "{buffer}");
            world.late = 0;
            world.play(36..60, 1_500_000);
            assert_eq!(world.at, 1, "{buffer}");
            assert!(world.late < 350_000, "{buffer} {}", world.late);
            world.play(60..90, 4_500_000);
            assert_eq!(world.at, 2, "{buffer}");
            assert!(world.switches <= 6, "{buffer} {}", world.switches);
        }
    }

    #[test]
    fn random_losses_send_nobody_down() {
        let mut world = World::new(1, 1_000_000, Some(20));
        world.play(0..60, 8_000_000);
        assert_eq!((world.at, world.switches), (2, 1));
    }

    #[test]
    fn who_has_the_lowest_tries_more_seldom_while_its_link_carries_no_more() {
        let mut world = World::new(0, 1_000_000, None);
        // Twice in a minute, up and down again.
        world.play(0..60, 700_000);
        assert_eq!((world.at, world.switches), (0, 4));
    }

    /// A report after a round trip of `round_trip`, and 0.5 s at the viewer.
    fn report(lost: u8, round_trip: u32, wall: UnixMicros) -> ReceptionReport {
        let seconds = (wall.0 / 1_000_000) as u32 + NTP_BEFORE_UNIX;
        let last_sr_time = (seconds << 16).wrapping_sub(round_trip + (1 << 15));
        ReceptionReport {
            ssrc: 1.into(),
            fraction_lost: lost,
            packets_lost: 0,
            max_seq: 0,
            jitter: 0,
            last_sr_time,
            last_sr_delay: 1 << 15,
        }
    }

    #[test]
    fn reports_of_losses_and_of_long_round_trips_lead_down_and_calm_leads_up() {
        for (lost, round_trip) in [(60, 1_000), (0, 40_000)] {
            let (mut link, mut rule, mut at) = (Link::new(None), Evidence::default(), 2);
            let (mut seconds, mut sent) = (0, 0);
            let mut play = |count: u64, lost, round_trip| {
                for _ in 0..count {
                    seconds += 1;
                    let wall = UnixMicros((1_000_000 + seconds) * 1_000_000);
                    let report = report(lost, round_trip, wall);
                    let now = seconds * 1_000_000;
                    // The first second that is too much is also the one with the most bytes.
                    sent += if seconds == 31 { 420_000 } else { 375_000 };
                    link.report(&report, sent, false, (now, wall));
                    match rule.decide(&link.seen, &LADDER, at) {
                        Decision::Down { to, .. } | Decision::Up(to) => {
                            at = to;
                            rule.switched(now);
                            link.forgive();
                        }
                        Decision::Stay | Decision::SkipToLive => {}
                    }
                }
                at
            };
            assert_eq!(play(30, 10, 1_000), 2, "some losses");
            assert!(play(4, lost, round_trip) < 2, "{lost} {round_trip}");
            assert_eq!(play(120, 0, 1_000), 2, "{lost} {round_trip}");
        }
    }

    #[test]
    fn reports_that_come_more_often_than_frames_lead_down() {
        let (mut link, mut rule) = (Link::new(None), Evidence::default());
        let mut decide = |number: u64| {
            // Ten frames a second, and one packet in four is lost. Between two frames nothing can be lost.
            let lost = if number.is_multiple_of(2) { 64 } else { 0 };
            let wall = UnixMicros((1_000_000 + number) * 50_000);
            let sent = (number / 2 + 1) * 37_500;
            let now = number * 50_000;
            link.report(&report(lost, 1_000, wall), sent as u32, false, (now, wall));
            rule.decide(&link.seen, &LADDER, 2)
        };
        assert!((0..60).any(|number| matches!(decide(number), Decision::Down { .. })));
    }

    #[test]
    fn round_trips() {
        let wall = UnixMicros(1_700_000_000_000_000);
        assert_eq!(round_trip(&report(0, 700, wall), wall), Some(700));
        let none = ReceptionReport { last_sr_time: 0, ..report(0, 0, wall) };
        assert_eq!(round_trip(&none, wall), None);
        // One that is not over before it began.
        assert_eq!(round_trip(&report(0, 0, UnixMicros(wall.0 + 1_000_000)), wall), None);
    }
}
