//! The rules against links that change: a source of chunks, a kernel's buffer, a link, a viewer.

use std::collections::VecDeque;
use std::fmt;

use super::{Decision, Evidence, Rule, Seen, ThreeState, Throughput};

/// Bits per second of the renditions.
const LADDER: [u64; 4] = [400_000, 1_000_000, 2_500_000, 5_000_000];

/// Microseconds: a step of the simulation, a chunk, a group of pictures, between decisions.
const STEP: u64 = 5_000;
const CHUNK: u64 = 200_000;
const GROUP: u64 = 2_000_000;
const ASKED: u64 = 250_000;

/// Bytes that the kernel takes beyond what is on its way.
const KERNEL: u64 = 128 << 10;

/// The viewer begins to play with so much, and again after a stall.
const BUFFER: u64 = 1_000_000;

/// A link: bits per second at each microsecond, and its round trip.
struct Link {
    name: &'static str,
    rate: fn(u64) -> u64,
    rtt: u64,
}

/// So long each is simulated.
const LENGTH: u64 = 120_000_000;

const LINKS: [Link; 7] = [
    Link { name: "steady 8M", rate: |_| 8_000_000, rtt: 30_000 },
    Link { name: "steady 1.6M", rate: |_| 1_600_000, rtt: 30_000 },
    Link { name: "steady 3.6M far", rate: |_| 3_600_000, rtt: 180_000 },
    Link {
        name: "drop",
        rate: |now| if (40_000_000..80_000_000).contains(&now) { 700_000 } else { 8_000_000 },
        rtt: 40_000,
    },
    Link {
        name: "saw",
        rate: |now| 600_000 + (now % 20_000_000) * 8_000_000 / 20_000_000,
        rtt: 40_000,
    },
    Link {
        name: "outages",
        rate: |now| if now % 30_000_000 > 28_000_000 { 0 } else { 6_000_000 },
        rtt: 40_000,
    },
    Link {
        name: "noise",
        // A new rate each half second, from 0.8 to 6.8 Mbit/s.
        rate: |now| 800_000 + (now / 500_000).wrapping_mul(0x9E37_79B9_7F4A_7C15) % 6_000_000,
        rtt: 60_000,
    },
];

#[derive(Debug, Clone, Copy)]
struct Chunk {
    start: u64,
    bytes: u64,
    rung: usize,
}

/// How a viewer fared.
#[derive(Debug, Clone, Copy, Default)]
struct Course {
    /// Bits per second of what it got, mean over the simulated time.
    quality: u64,
    /// Microseconds without a picture after the first: stalls, and what was skipped.
    missing: u64,
    switches: u32,
}

impl fmt::Display for Course {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (quality, missing) = (self.quality as f64 / 1e6, self.missing as f64 / 1e6);
        write!(f, "{quality:5.2} Mbit/s {missing:6.1} s missing {:4} switches", self.switches)
    }
}

struct World<'a> {
    link: &'a Link,
    now: u64,
    /// Published and not taken by the kernel.
    queue: VecDeque<Chunk>,
    /// Taken by the kernel and not through the link yet, with what is left of each and when it was
    /// taken.
    kernel: VecDeque<(Chunk, u64, u64)>,
    /// Through the link: when it is acknowledged, and how much.
    acknowledging: VecDeque<(u64, u64)>,
    /// At the viewer's: media up to so far, and how far it has played.
    got: u64,
    played: u64,
    playing: bool,
    begun: bool,
    seen: Seen,
    credit: f64,
    course: Course,
    bits: u64,
}

impl World<'_> {
    fn new(link: &Link) -> World<'_> {
        World {
            link,
            now: 0,
            queue: VecDeque::new(),
            kernel: VecDeque::new(),
            acknowledging: VecDeque::new(),
            got: 0,
            played: 0,
            playing: false,
            begun: false,
            seen: Seen { rtt: link.rtt, min_rtt: link.rtt, ..Seen::default() },
            credit: 0.0,
            course: Course::default(),
            bits: 0,
        }
    }

    fn in_kernel(&self) -> u64 {
        self.kernel.iter().map(|(_, left, _)| left).sum()
    }

    fn unacknowledged(&self) -> u64 {
        self.in_kernel() + self.acknowledging.iter().map(|(_, bytes)| bytes).sum::<u64>()
    }

    /// One step: the kernel takes, the link carries, the viewer plays.
    fn step(&mut self) {
        if self.unacknowledged() > 0 {
            self.seen.busy += STEP;
        }
        while let Some(chunk) = self.queue.front()
            && (self.kernel.is_empty() || self.in_kernel() + chunk.bytes <= KERNEL)
        {
            let chunk = *chunk;
            self.queue.pop_front();
            self.kernel.push_back((chunk, chunk.bytes, self.now));
            self.seen.writes += 1;
        }
        self.credit += (self.link.rate)(self.now) as f64 / 8.0 * STEP as f64 / 1e6;
        let mut carried = 0;
        while let Some((chunk, left, taken)) = self.kernel.front_mut() {
            let bytes = (*left).min(self.credit as u64);
            *left -= bytes;
            carried += bytes;
            self.credit -= bytes as f64;
            let trip = self.link.rtt + self.now - *taken;
            self.seen.rtt = (7 * self.seen.rtt + trip) / 8;
            if *left > 0 {
                break;
            }
            let chunk = *chunk;
            self.kernel.pop_front();
            self.arrive(chunk);
        }
        if self.kernel.is_empty() {
            self.credit = 0.0;
        }
        if carried > 0 {
            self.acknowledging.push_back((self.now + self.link.rtt, carried));
        }
        while let Some(&(at, bytes)) = self.acknowledging.front()
            && at <= self.now
        {
            self.acknowledging.pop_front();
            self.seen.acknowledged += bytes;
        }
        self.play();
        self.now += STEP;
    }

    fn arrive(&mut self, chunk: Chunk) {
        if !self.begun {
            self.begun = true;
            (self.got, self.played) = (chunk.start, chunk.start);
        }
        if chunk.start > self.got {
            // Skipped: it is not shown, and the player jumps over it.
            self.course.missing += chunk.start - self.got;
            self.played += chunk.start - self.got;
        }
        self.got = chunk.start + CHUNK;
        self.bits += LADDER[chunk.rung] * CHUNK / 1_000_000;
    }

    fn play(&mut self) {
        if !self.begun {
            return;
        }
        let held = self.got - self.played.min(self.got);
        if self.playing && held >= STEP {
            self.played += STEP;
        } else if !self.playing && held >= BUFFER {
            self.playing = true;
        } else {
            if self.playing || self.played > 0 && self.now > 5_000_000 {
                self.course.missing += STEP;
            }
            self.playing = false;
        }
    }
}

fn run(link: &Link, rule: &mut dyn Rule) -> Course {
    let mut world = World::new(link);
    let (mut rung, mut wanted) = (0, None::<usize>);
    // Dropping what waits, until the next keyframe.
    let mut holds = false;
    while world.now < LENGTH {
        if world.now.is_multiple_of(CHUNK) {
            if world.now.is_multiple_of(GROUP) {
                if let Some(next) = wanted.take() {
                    rung = next;
                    world.course.switches += 1;
                }
                holds = false;
            }
            if !holds {
                let bytes = LADDER[rung] * CHUNK / 8_000_000;
                world.queue.push_back(Chunk { start: world.now, bytes, rung });
            }
        }
        world.step();
        if world.now.is_multiple_of(ASKED) {
            let seen = Seen {
                now: world.now,
                queued: world.queue.iter().map(|chunk| chunk.bytes).sum(),
                unacknowledged: world.unacknowledged(),
                ..world.seen
            };
            match rule.decide(&seen, &LADDER, wanted.unwrap_or(rung)) {
                Decision::Stay => {}
                Decision::Up(to) => wanted = Some(to),
                Decision::Down(to) => {
                    wanted = Some(to);
                    // What waits is of a rendition that does not get through in time.
                    holds = !world.queue.is_empty();
                    world.queue.clear();
                }
                Decision::SkipToLive => {
                    holds = true;
                    world.queue.clear();
                }
            }
        }
    }
    world.course.quality = world.bits * 1_000_000 / LENGTH;
    world.course
}

/// What no rule can exceed: the best rung that the link carries at each moment.
fn most(link: &Link) -> u64 {
    let moments = (0..LENGTH).step_by(GROUP as usize);
    let best = |now| LADDER.iter().rfind(|&&bits| bits <= (link.rate)(now)).unwrap_or(&0);
    moments.map(best).sum::<u64>() / (LENGTH / GROUP)
}

fn courses(link: &Link) -> [Course; 3] {
    let rules: [&mut dyn Rule; 3] =
        [&mut ThreeState::default(), &mut Throughput::default(), &mut Evidence::default()];
    rules.map(|rule| run(link, rule))
}

#[test]
fn the_one_that_is_used_is_seldom_without_a_picture_and_near_what_the_link_carries() {
    let (mut missing, mut worth) = ([0; 3], [0.0; 3]);
    let mut table = String::new();
    for link in &LINKS {
        let most = most(link) as f64;
        for (at, course) in courses(link).iter().enumerate() {
            let share = course.quality as f64 / most;
            missing[at] += course.missing;
            // A second without a picture is as bad as a second of the best is good.
            worth[at] += share - course.missing as f64 / LENGTH as f64;
            let name = ["three-state", "throughput", "evidence"][at];
            table += &format!(
                "{:16} {name:12} {course}, {:3.0} % of {:.2}\n",
                link.name,
                100.0 * share,
                most / 1e6
            );
        }
    }
    table += &format!("missing {missing:?}, worth {worth:.2?}\n");
    assert!(missing[2] < missing[0] / 4, "{table}");
    assert!(worth[2] > worth[0] && worth[2] > worth[1], "{table}");
    let all = LENGTH * LINKS.len() as u64;
    assert!(missing[2] < all / 16 && worth[2] > 0.75 * LINKS.len() as f64, "{table}");
}

#[test]
fn a_link_that_carries_a_rendition_is_left_alone() {
    for link in &LINKS[..3] {
        let [.., evidence] = courses(link);
        assert!(evidence.switches <= 6, "{}: {evidence}", link.name);
        assert!(evidence.missing < 3_000_000, "{}: {evidence}", link.name);
    }
}

#[test]
fn after_a_failed_try_the_next_comes_later() {
    // Bursts get through fast, but no more than 1.2 Mbit/s on average: a policer.
    let mut rule = Evidence::default();
    let mut tries = Vec::new();
    let (mut seen, mut rung) = (Seen { rtt: 20_000, min_rtt: 20_000, ..Seen::default() }, 1_usize);
    for turn in 1..2400_u64 {
        let bits = LADDER[rung];
        seen.now = turn * ASKED;
        let bytes = bits * ASKED / 8_000_000;
        seen.writes += 1;
        if rung > 1 {
            seen.queued += bytes / 2;
            seen.acknowledged += bytes / 2;
            seen.busy += ASKED;
        } else {
            seen.queued = 0;
            seen.acknowledged += bytes;
            seen.busy += 22_000;
        }
        match rule.decide(&seen, &LADDER, rung) {
            Decision::Up(to) => {
                tries.extend((to == 2).then_some(seen.now));
                rung = to;
            }
            Decision::Down(_) => rung = 1,
            Decision::Stay | Decision::SkipToLive => {}
        }
    }
    let gaps: Vec<_> = tries.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!((3..20).contains(&tries.len()), "{tries:?}");
    assert!(gaps.is_sorted() && gaps.last() > Some(&100_000_000), "{gaps:?}");
}
