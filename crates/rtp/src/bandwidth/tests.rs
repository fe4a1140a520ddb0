use std::collections::VecDeque;

use super::*;

/// How far the receiver's clock is from the sender's.
const OFFSET: i64 = -7_000_000_123;

/// The time for which packets are on their way without a queue.
const WAY: u64 = 40_000;

/// A link with one bottleneck, in virtual time. Its receiver tells 100 ms later what came.
struct Link {
    /// Bits per second.
    rate: u64,
    /// One packet in so many is lost at random.
    loses: u64,
    random: u64,
    /// When the bottleneck has served all.
    done: u64,
    came: VecDeque<(u64, Option<i64>)>,
    estimator: Estimator,
}

impl Link {
    fn new(rate: u64, loses: u64) -> Self {
        let (came, estimator) = (VecDeque::new(), Estimator::default());
        Self { rate, loses, random: 7, done: 0, came, estimator }
    }

    fn is_lost(&mut self) -> bool {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.loses > 0 && (self.random >> 33).is_multiple_of(self.loses)
    }

    /// Sends frames of so many packets of 1,000 bytes, 25 a second.
    fn send(&mut self, times: std::ops::Range<u64>, packets: u64) {
        for now in times.step_by(40_000) {
            for _ in 0..packets {
                let number = self.estimator.next();
                self.estimator.sent(1_000, now);
                let came = if self.is_lost() {
                    None
                } else {
                    self.done = self.done.max(now) + 8_000_000_000 / self.rate;
                    Some(OFFSET + (self.done + WAY) as i64)
                };
                self.came.push_back((number, came));
            }
            if now.is_multiple_of(120_000) {
                self.tell(now);
            }
        }
    }

    /// The receiver tells of the packets that have come by now.
    fn tell(&mut self, now: u64) {
        let now = now as i64 + OFFSET;
        let is_past = |came: &(u64, Option<i64>)| came.1.is_none_or(|came| came <= now);
        let past = self.came.iter().take_while(|came| is_past(came)).count();
        self.estimator.take(self.came.drain(..past));
    }
}

/// Bits per second, of what came from one observation to another, while the bottleneck was busy.
fn rate(before: Observed, after: Observed) -> f64 {
    let bits = 8 * (after.acknowledged - before.acknowledged);
    bits as f64 * 1e6 / (after.busy - before.busy) as f64
}

#[track_caller]
fn is_near(rate: f64, expected: f64) {
    assert!((rate / expected - 1.0).abs() < 0.05, "{rate} {expected}");
}

#[test]
fn bursts_show_what_the_link_carries_although_less_is_sent() {
    // 1 Mbit/s is sent.
    for carries in [1_500_000, 3_000_000, 12_000_000] {
        let mut link = Link::new(carries, 0);
        link.send(0..2_000_000, 5);
        let before = link.estimator.observed();
        link.send(2_000_000..6_000_000, 5);
        let after = link.estimator.observed();
        is_near(rate(before, after), carries as f64);
        assert_eq!((after.queued, after.lost), (0, 0.0));
        // Each frame is a burst, and its first packet does not count.
        let bursts = after.bursts - before.bursts;
        assert!((97..=103).contains(&bursts), "{bursts}");
        assert!((after.acknowledged - before.acknowledged).abs_diff(4_000 * bursts) <= 4_000);
    }
}

#[test]
fn a_queue_is_seen_while_it_grows_and_when_it_is_gone() {
    let mut link = Link::new(3_000_000, 0);
    link.send(0..2_000_000, 10);
    assert_eq!(link.estimator.observed().queued, 0);
    // It carries a third, half of what is sent: some 125 kB more wait each second.
    link.rate = 1_000_000;
    link.send(2_000_000..2_400_000, 10);
    let before = link.estimator.observed();
    link.send(2_400_000..4_000_000, 10);
    let after = link.estimator.observed();
    is_near(rate(before, after), 1_000_000.0);
    assert!((200_000..=250_000).contains(&after.queued), "{after:?}");
    // It was busy all the time.
    is_near((after.busy - before.busy) as f64, (after.now - before.now) as f64);
    link.rate = 3_000_000;
    link.send(4_000_000..8_000_000, 5);
    let after = link.estimator.observed();
    assert_eq!(after.queued, 0);
    let before = after;
    link.send(8_000_000..9_000_000, 5);
    is_near(rate(before, link.estimator.observed()), 3_000_000.0);
}

#[test]
fn random_losses_count_for_a_while_and_do_not_change_the_rate() {
    let mut link = Link::new(4_000_000, 20);
    link.send(0..10_000_000, 10);
    let before = link.estimator.observed();
    link.send(10_000_000..20_000_000, 10);
    let after = link.estimator.observed();
    is_near(rate(before, after), 4_000_000.0);
    assert_eq!(after.queued, 0);
    // One in 20 of 500 kB in two seconds.
    assert!((10_000.0..40_000.0).contains(&after.lost), "{after:?}");
    link.loses = 0;
    link.send(20_000_000..30_000_000, 10);
    assert!(link.estimator.observed().lost < 500.0);
    link.estimator.forgive();
    assert_eq!(link.estimator.observed().lost, 0.0);
}

#[test]
fn a_longer_way_and_a_drifting_clock_are_no_queue_for_long() {
    let mut estimator = Estimator::default();
    for packet in 0..2_000_u64 {
        let (at, number) = (packet * 40_000, estimator.next());
        estimator.sent(1_000, at);
        // The receiver's clock is 100 ppm too fast, and the way becomes longer after 20 s.
        let longer = if packet < 500 { 0 } else { 200_000 };
        let came = at + at / 10_000 + WAY + longer;
        estimator.take([(number, Some(came as i64))]);
    }
    let before = estimator.observed();
    // Within the drift of 20 s.
    assert!(before.now < 2_000 * 40_000 + 5_000, "{before:?}");
    assert!(before.busy < 2_000 * 2_000 + 200_000 * 600, "{before:?}");
    assert_eq!(before.queued, 0);
}

#[test]
fn feedback_that_is_wrong_changes_nothing_and_holds_nothing() {
    let mut estimator = Estimator::default();
    // Nothing was sent.
    estimator.take([(0, Some(1)), (u64::MAX, Some(i64::MAX)), (FIRST, Some(0))]);
    assert_eq!(estimator.observed(), Observed::default());
    for now in 0..10_000 {
        estimator.sent(1_000, now);
    }
    assert_eq!((estimator.sent.len(), estimator.next()), (MOST_SENT, FIRST + 10_000));
    // What was forgotten, what is missing with nothing after it, and what was not sent.
    let first = estimator.first;
    estimator.take([(first - 1, Some(5)), (first, None), (first + 10_000, Some(5))]);
    assert_eq!(estimator.observed(), Observed::default());
    // One packet came, the first of a burst, and the same again. Those before it are gone, but they are not lost: nobody said so.
    estimator.take([(first + 2, Some(5)), (first + 2, Some(5)), (first, Some(5))]);
    let observed = estimator.observed();
    assert_eq!((observed.acknowledged, observed.bursts, observed.lost), (0, 1, 0.0));
    // A clock that jumps.
    estimator.take([(first + 3, Some(i64::MIN)), (first + 4, Some(i64::MAX))]);
    estimator.take([(first + 5, None), (first + 6, Some(0))]);
    let observed = estimator.observed();
    assert_eq!(observed.lost, 1_000.0);
    assert!(observed.now < 60_000_000, "{observed:?}");
    // A report of more packets than any link has on its way.
    estimator.take((0..u64::MAX).map(|number| (number, None)));
}

proptest::proptest! {
    #[test]
    fn no_feedback_panics(
        rounds in proptest::collection::vec(
            (0..40_u8, 0..100_000_u64, proptest::collection::vec(proptest::num::u8::ANY, 0..40)),
            0..30,
        ),
    ) {
        let (mut estimator, mut now) = (Estimator::default(), 0);
        for (packets, later, body) in rounds {
            for _ in 0..packets {
                now += later;
                estimator.sent(1_200, now);
            }
            let mut message = vec![0x8f, 205, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2];
            // Numbers and counts that may be right.
            message.extend([0, body.len() as u8, 0, packets]);
            message.extend(body);
            message.resize(message.len().next_multiple_of(4), 0);
            message[3] = (message.len() / 4 - 1) as u8;
            let before = estimator.observed();
            estimator.take(crate::feedback::read(&message, estimator.next()));
            let after = estimator.observed();
            assert!(after.now >= before.now && after.busy <= after.now, "{after:?}");
            assert!(after.busy >= before.busy && after.acknowledged >= before.acknowledged);
        }
    }
}
