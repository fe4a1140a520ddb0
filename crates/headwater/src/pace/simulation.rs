//! A simulation: many viewers behind one link that divides itself as TCP does. It needs no real
//! time.

use std::sync::Arc;
use std::time::Duration;

use live::UnixMicros;

use super::{Balance, Hand, Pace, Plan, Schedule, Share};

const EPOCH: UnixMicros = UnixMicros(1_700_000_000_000_000);
const TICK: Duration = Duration::from_millis(10);
/// Seconds of media handed to a socket at once.
const BLOCK: f64 = 0.25;

/// One viewer. Amounts are seconds of media.
struct Viewer {
    schedule: Schedule,
    hand: Hand,
    place: Share,
    /// Its weight when viewers share the link.
    weight: f64,
    /// Seconds of media that its own link takes in a second.
    own: f64,
    /// Media handed to the socket, and how much of that is delivered.
    sent: f64,
    delivered: f64,
    held_until: UnixMicros,
    /// When to call [`Share::wait`] again.
    again: Option<UnixMicros>,
    /// Least media in hand after the first twenty seconds.
    least: Duration,
}

impl Viewer {
    fn new(balance: &Arc<Balance>, weight: f64, own: f64, now: UnixMicros) -> Self {
        let plan = Plan { pace: Pace::Burst, burst: Duration::from_secs(10), rate: 1.25 };
        Self {
            schedule: Schedule::new(plan, now),
            hand: Hand::new(now),
            place: Share::new(balance),
            weight,
            own,
            sent: 0.0,
            delivered: 0.0,
            held_until: now,
            again: None,
            least: Duration::MAX,
        }
    }

    fn waits(&self) -> bool {
        self.sent - self.delivered > 1e-9
    }

    /// Hands the next block to the socket if it is due and no other viewer goes first.
    fn prepare(&mut self, ruled: bool, now: UnixMicros) {
        if self.waits() || now < self.held_until {
            return;
        }
        let position = Duration::from_secs_f64(self.sent);
        let wait = if ruled {
            self.place.due(&self.schedule, &self.hand, position, now)
        } else {
            self.schedule.when(position).map(|when| when.since(now)).filter(|wait| !wait.is_zero())
        };
        match wait {
            Some(wait) => self.held_until = now.after(wait),
            None => self.sent += BLOCK,
        }
    }

    /// Takes what the link delivers in a tick.
    fn receive(&mut self, amount: f64, now: UnixMicros) {
        let waited = self.waits();
        self.delivered = (self.delivered + amount).min(self.sent);
        self.hand.deliver(Duration::from_secs_f64(self.delivered), now);
        if !self.waits() {
            self.again = None;
        } else if (waited && self.again.is_none()) || self.again.is_some_and(|again| again <= now) {
            self.again = self.place.wait(&self.hand, now).map(|spare| now.after(spare));
        }
        if now.since(EPOCH) > Duration::from_secs(20) {
            self.least = self.least.min(self.hand.held(now));
        }
    }
}

struct Outcome {
    viewers: Vec<Viewer>,
}

impl Outcome {
    /// Fewest seconds of media that any viewer got.
    fn least_delivered(&self) -> f64 {
        self.viewers.iter().map(|viewer| viewer.delivered).fold(f64::INFINITY, f64::min)
    }

    /// Fewest seconds of media that any viewer had in hand, once playing.
    fn least_in_hand(&self) -> f64 {
        self.viewers.iter().map(|viewer| viewer.least.as_secs_f64()).fold(f64::INFINITY, f64::min)
    }

    fn mean_delivered(&self) -> f64 {
        let sum: f64 = self.viewers.iter().map(|viewer| viewer.delivered).sum();
        sum / self.viewers.len() as f64
    }
}

/// Simulates `seconds` with viewers, given by weight and own link, behind a link that carries
/// `capacity` seconds of media in a second.
fn run(viewers: &[(f64, f64)], capacity: f64, seconds: u64, ruled: bool) -> Outcome {
    let balance = Arc::new(Balance::new(EPOCH));
    let mut now = EPOCH;
    let mut viewers: Vec<_> =
        viewers.iter().map(|&(weight, own)| Viewer::new(&balance, weight, own, now)).collect();
    while now.since(EPOCH) < Duration::from_secs(seconds) {
        now = now.after(TICK);
        step(&mut viewers, capacity, ruled, now);
    }
    Outcome { viewers }
}

/// Simulates one tick of a link that carries `capacity` seconds of media in a second.
fn step(viewers: &mut [Viewer], capacity: f64, ruled: bool, now: UnixMicros) {
    for viewer in &mut *viewers {
        viewer.prepare(ruled, now);
    }
    let tick = TICK.as_secs_f64();
    let want = |viewer: &Viewer| (viewer.sent - viewer.delivered).min(viewer.own * tick);
    let wants: Vec<_> = viewers.iter().map(|viewer| (viewer.weight, want(viewer))).collect();
    for (viewer, amount) in viewers.iter_mut().zip(shared(&wants, capacity * tick)) {
        viewer.receive(amount, now);
    }
}

/// Divides `amount` by weight. No viewer gets more than it wants.
fn shared(wants: &[(f64, f64)], amount: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wants.len()).collect();
    order.sort_by(|&a, &b| {
        let level = |at: usize| wants[at].1 / wants[at].0;
        level(a).total_cmp(&level(b))
    });
    let mut left = amount;
    let mut weights: f64 = wants.iter().map(|(weight, _)| weight).sum();
    let mut amounts = vec![0.0; wants.len()];
    for at in order {
        let (weight, want) = wants[at];
        amounts[at] = want.min(left * weight / weights);
        left -= amounts[at];
        weights -= weight;
    }
    amounts
}

/// Weights from 1 to 8, as viewers with different round-trip times have.
fn unequal(count: usize) -> Vec<(f64, f64)> {
    (0..count).map(|at| (1.0 + 7.0 * (at * 37 % count) as f64 / count as f64, 1000.0)).collect()
}

#[test]
fn a_link_that_is_just_enough_keeps_everybody_playing() {
    let viewers = unequal(200);
    let without = run(&viewers, 220.0, 60, false);
    let with = run(&viewers, 220.0, 60, true);
    assert!(without.least_in_hand() < 0.01, "{}", without.least_in_hand());
    assert!(with.least_in_hand() > 1.0, "{}", with.least_in_hand());
    assert!(without.least_delivered() < 20.0, "{}", without.least_delivered());
    assert!(with.least_delivered() > 62.0, "{}", with.least_delivered());
    // The rules waste little of the link.
    assert!(
        with.mean_delivered() > 0.95 * without.mean_delivered(),
        "{}",
        with.mean_delivered() / without.mean_delivered()
    );
}

#[test]
fn a_link_that_is_somewhat_too_short_is_short_for_all() {
    let viewers = unequal(200);
    let without = run(&viewers, 184.0, 60, false);
    let with = run(&viewers, 184.0, 60, true);
    assert!(without.least_delivered() < 20.0, "{}", without.least_delivered());
    // 92 % of a minute is all that the link carries.
    assert!(with.least_delivered() > 53.0, "{}", with.least_delivered());
    assert!(
        with.mean_delivered() > 0.95 * without.mean_delivered(),
        "{}",
        with.mean_delivered() / without.mean_delivered()
    );
}

/// Number of viewers that got nine tenths of `seconds` of media.
fn served(viewers: &[Viewer], seconds: f64) -> usize {
    viewers.iter().filter(|viewer| viewer.delivered >= 0.9 * seconds).count()
}

#[test]
fn a_link_that_is_far_too_short_serves_those_who_came_first() {
    for (capacity, least) in [(166.0, 140), (100.0, 80), (50.0, 30)] {
        let viewers = unequal(200);
        let with = run(&viewers, capacity, 120, true);
        let first = served(&with.viewers[..least], 120.0);
        assert!(first == least, "{first} of {least} at {capacity}");
        // The capacity that they leave is not wasted.
        let all: f64 = with.viewers.iter().map(|viewer| viewer.delivered).sum();
        assert!(all > 0.92 * capacity * 120.0, "{all} at {capacity}");
    }
}

#[test]
fn viewers_set_aside_come_back_when_others_leave() {
    let balance = Arc::new(Balance::new(EPOCH));
    let mut viewers: Vec<_> = unequal(200)
        .iter()
        .map(|&(weight, own)| Viewer::new(&balance, weight, own, EPOCH))
        .collect();
    let mut now = EPOCH;
    let until = |seconds| EPOCH.after(Duration::from_secs(seconds));
    while now < until(60) {
        now = now.after(TICK);
        step(&mut viewers, 160.0, true, now);
    }
    assert!(balance.aside() > 20, "{}", balance.aside());
    viewers.drain(..80);
    while now < until(120) {
        now = now.after(TICK);
        step(&mut viewers, 160.0, true, now);
    }
    assert_eq!(balance.aside(), 0);
    for viewer in &viewers {
        assert!(viewer.hand.held(now) > Duration::from_secs(2), "{:?}", viewer.hand.held(now));
    }
}

#[test]
fn one_slow_link_is_nobody_elses() {
    let mut viewers = unequal(100);
    viewers[0].1 = 0.5;
    let with = run(&viewers, 1000.0, 60, true);
    for viewer in &with.viewers[1..] {
        assert!(viewer.least > Duration::from_secs(12), "{:?}", viewer.least);
    }
    assert!((29.0..31.0).contains(&with.viewers[0].delivered));
}

#[test]
fn many_slow_links_stop_nobody_else() {
    let mut viewers = unequal(100);
    for (_, own) in &mut viewers[..50] {
        *own = 0.5;
    }
    let with = run(&viewers, 1000.0, 60, true);
    for (at, viewer) in with.viewers.iter().enumerate() {
        if at < 50 {
            // These viewers share another short link. It looks like the common one, so they lack
            // media in turns.
            assert!(viewer.delivered > 20.0, "{at}: {}", viewer.delivered);
        } else {
            assert!(viewer.least > Duration::from_millis(1500), "{:?}", viewer.least);
        }
    }
}

#[test]
fn late_viewers_are_served_first_and_starve_nobody() {
    // Half of the viewers join a link that the others have filled. Then the link is just enough.
    let balance = Arc::new(Balance::new(EPOCH));
    let mut viewers: Vec<_> = unequal(100)
        .iter()
        .map(|&(weight, own)| Viewer::new(&balance, weight, own, EPOCH))
        .collect();
    let mut now = EPOCH;
    let mut first = None;
    while now.since(EPOCH) < Duration::from_secs(60) {
        now = now.after(TICK);
        if now.since(EPOCH) == Duration::from_secs(20) {
            let late = unequal(100);
            viewers
                .extend(late.iter().map(|&(weight, own)| Viewer::new(&balance, weight, own, now)));
        }
        step(&mut viewers, 220.0, true, now);
        let has_some = |viewer: &Viewer| viewer.delivered > 2.0;
        if first.is_none() && viewers.len() == 200 && viewers.iter().all(has_some) {
            first = Some(now.since(EPOCH) - Duration::from_secs(20));
        }
    }
    assert!(first.is_some_and(|first| first < Duration::from_secs(2)), "{first:?}");
    for viewer in &viewers {
        assert!(viewer.hand.held(now) > Duration::from_secs(2));
    }
}
