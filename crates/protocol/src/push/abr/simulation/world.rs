//! Simulates a source of chunks, a server, its kernel, a link and a viewer, in steps of 5 ms.

use std::collections::VecDeque;

use super::super::{Decision, Rule, Seen};
use super::links::{LENGTH, Link};

/// Microseconds of a step, a chunk, a group of pictures, and between decisions while bytes wait.
const STEP: u64 = 5_000;
const CHUNK: u64 = 200_000;
pub(super) const GROUP: u64 = 2_000_000;
const ASKED: u64 = 100_000;

/// Bytes that the kernel takes beyond those on their way (`TCP_NOTSENT_LOWAT`).
const UNSENT: u64 = 32 << 10;

/// Bytes of a TCP segment.
const SEGMENT: f64 = 1448.0;

/// Media with which the viewer begins to play, and how much faster it plays when it has more.
const BUFFER: u64 = 1_000_000;
const FASTER: f64 = 1.05;

/// Media with which a stall ends.
const AGAIN: u64 = 400_000;

#[derive(Debug, Clone, Copy)]
struct Chunk {
    start: u64,
    left: u64,
    rendition: usize,
}

impl Chunk {
    /// The chunk that begins at `start`. A chunk with a keyframe has twice the bytes of the others.
    fn new(start: u64, rendition: usize, ladder: &[u64]) -> Self {
        let group = ladder[rendition] * (GROUP / 1_000) / 8_000;
        let share = if start.is_multiple_of(GROUP) { 2 } else { 1 };
        Self { start, left: group * share / (GROUP / CHUNK + 1), rendition }
    }
}

/// Result of a viewer. Times are in microseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Course {
    /// Mean bits per second of the received media, over the simulated time.
    pub(super) quality: u64,
    /// Time without a frame after the first one, because none arrived: in total, and the longest.
    pub(super) stalled: u64,
    pub(super) longest: u64,
    /// Duration of media that were never sent.
    pub(super) skipped: u64,
    pub(super) switches: u32,
    /// Mean time from capture to display.
    pub(super) latency: u64,
}

impl Course {
    /// Duration of all media that were not seen.
    pub(super) fn missing(&self) -> u64 {
        self.stalled + self.skipped
    }
}

/// How a server carries out a decision to go down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Descent {
    /// The server drops waiting bytes where the rule says so.
    Told,
    /// The server sends the waiting bytes and adds nothing. Then the lower rendition follows, as in
    /// the paper.
    Drained,
}

/// A queue of chunks, with its size in bytes.
#[derive(Debug, Default)]
struct Chunks {
    chunks: VecDeque<Chunk>,
    bytes: u64,
}

impl Chunks {
    fn push(&mut self, chunk: Chunk) {
        self.bytes += chunk.left;
        self.chunks.push_back(chunk);
    }

    /// Takes up to `most` bytes of the first chunk. Returns the piece, and whether it is the last
    /// of its chunk.
    fn take(&mut self, most: u64) -> Option<(Chunk, bool)> {
        let first = self.chunks.front_mut()?;
        let size = first.left.min(most);
        let piece = Chunk { left: size, ..*first };
        first.left -= size;
        self.bytes -= size;
        let last = first.left == 0;
        if last {
            self.chunks.pop_front();
        }
        Some((piece, last))
    }
}

struct World<'a> {
    link: &'a Link,
    ladder: &'a [u64],
    now: u64,
    /// Published, but not entirely taken by the kernel; and whether the first chunk is taken in
    /// part.
    queue: Chunks,
    begun: bool,
    /// Whether the current rendition is being left, so that waiting bytes may be dropped.
    leaves: bool,
    /// Whether nothing is added until the next keyframe.
    holds: bool,
    /// Taken by the kernel, but not sent.
    unsent: Chunks,
    /// Sent, and queued in the link; and the times of sending.
    waiting: Chunks,
    sent: VecDeque<u64>,
    /// Through the link: when they are acknowledged, and how many bytes; and the sum of the bytes.
    acknowledging: VecDeque<(u64, u64)>,
    through: u64,
    window: f64,
    threshold: f64,
    reduced: u64,
    credit: f64,
    seen: Seen,
    viewer: Viewer,
    course: Course,
}

#[derive(Default)]
struct Viewer {
    /// End of the received media, the recently skipped ranges, and the playing position.
    got: u64,
    holes: VecDeque<(u64, u64)>,
    played: f64,
    begun: bool,
    playing: bool,
    stall: u64,
    latency: (u64, u64),
}

impl<'a> World<'a> {
    fn new(link: &'a Link, ladder: &'a [u64]) -> Self {
        Self {
            link,
            ladder,
            now: 0,
            queue: Chunks::default(),
            begun: false,
            leaves: false,
            holds: false,
            unsent: Chunks::default(),
            waiting: Chunks::default(),
            sent: VecDeque::new(),
            acknowledging: VecDeque::new(),
            through: 0,
            window: 10.0 * SEGMENT,
            threshold: f64::MAX,
            reduced: 0,
            credit: 0.0,
            seen: Seen { rtt: link.rtt, min_rtt: link.rtt, ..Seen::default() },
            viewer: Viewer::default(),
            course: Course::default(),
        }
    }

    fn in_flight(&self) -> u64 {
        self.waiting.bytes + self.through
    }

    fn unacknowledged(&self) -> u64 {
        self.unsent.bytes + self.in_flight()
    }

    fn see(&self) -> Seen {
        Seen {
            now: self.now,
            queued: self.queue.bytes,
            unacknowledged: self.unacknowledged(),
            ..self.seen
        }
    }

    fn step(&mut self, rule: &dyn Rule) {
        self.hand_over(rule);
        self.send();
        if self.unacknowledged() > 0 {
            self.seen.busy += STEP;
        }
        self.carry();
        self.acknowledge();
        self.viewer.play(self.now, &mut self.course);
        self.now += STEP;
    }

    /// The kernel takes as many bytes as it has room for.
    fn hand_over(&mut self, rule: &dyn Rule) {
        if self.unacknowledged() == 0 && self.queue.bytes > 0 {
            self.seen.writes += 1;
        }
        while self.unsent.bytes < UNSENT
            && let Some(next) = self.queue.chunks.front()
        {
            let bits = self.ladder[next.rendition];
            if self.leaves && !self.begun && !rule.is_worth_sending(&self.see(), bits) {
                self.drop_waiting();
                return;
            }
            if let Some((piece, last)) = self.queue.take(UNSENT - self.unsent.bytes) {
                self.begun = !last;
                self.unsent.push(piece);
            }
        }
    }

    /// TCP sends as much as its window allows. If the link's buffer is full, packets are lost.
    fn send(&mut self) {
        while self.in_flight() < self.window as u64
            && let Some((piece, _)) = self.unsent.take(self.window as u64 - self.in_flight())
        {
            self.waiting.push(piece);
            self.sent.push_back(self.now);
        }
        if self.waiting.bytes > self.link.buffer && self.now >= self.reduced {
            self.window = (0.7 * self.window).max(4.0 * SEGMENT);
            self.threshold = self.window;
            self.reduced = self.now + self.seen.rtt;
        }
    }

    fn carry(&mut self) {
        self.credit += self.link.rate(self.now) as f64 / 8.0 * STEP as f64 / 1e6;
        let mut carried = 0;
        while self.credit >= 1.0
            && let Some((piece, last)) = self.waiting.take(self.credit as u64)
        {
            carried += piece.left;
            self.credit -= piece.left as f64;
            if last {
                self.deliver(piece);
            }
        }
        if self.waiting.bytes == 0 {
            self.credit = 0.0;
        }
        if carried > 0 {
            self.acknowledging.push_back((self.now + self.link.rtt, carried));
            self.through += carried;
        }
    }

    /// A piece has passed the link. If its chunk is complete, the viewer takes the chunk.
    fn deliver(&mut self, piece: Chunk) {
        let sent = self.sent.pop_front().unwrap_or(self.now);
        let trip = self.link.rtt + self.now - sent;
        self.seen.rtt = (7 * self.seen.rtt + trip) / 8;
        let lines = [&self.waiting, &self.unsent, &self.queue];
        let next = lines.into_iter().find_map(|line| line.chunks.front());
        if next.is_none_or(|next| next.start != piece.start) {
            self.viewer.take(piece, &mut self.course, self.ladder);
        }
    }

    fn acknowledge(&mut self) {
        while let Some(&(at, bytes)) = self.acknowledging.front()
            && at <= self.now
        {
            let limited = self.in_flight() as f64 > 0.5 * self.window;
            self.acknowledging.pop_front();
            self.through -= bytes;
            self.seen.acknowledged += bytes;
            if limited {
                let slow = self.window < self.threshold;
                self.window += bytes as f64 * if slow { 1.0 } else { SEGMENT / self.window };
            }
        }
    }

    fn is_asked(&self, seldom: bool, rendition: usize) -> bool {
        if seldom && self.queue.bytes == 0 {
            let before = (self.now + STEP).is_multiple_of(2 * CHUNK);
            return before && rendition + 1 < self.ladder.len();
        }
        self.now.is_multiple_of(ASKED)
    }

    /// Drops chunks that are not begun, up to the next keyframe.
    fn drop_waiting(&mut self) {
        self.holds = true;
        let chunks = &mut self.queue.chunks;
        chunks.truncate(usize::from(self.begun));
        self.queue.bytes = chunks.front().map_or(0, |chunk| chunk.left);
    }
}

impl Viewer {
    fn take(&mut self, chunk: Chunk, course: &mut Course, ladder: &[u64]) {
        if !self.begun {
            self.begun = true;
            self.got = chunk.start;
            self.played = chunk.start as f64;
        }
        if chunk.start > self.got {
            self.holes.push_back((self.got, chunk.start));
            course.skipped += chunk.start - self.got;
        }
        self.got = self.got.max(chunk.start + CHUNK);
        course.quality += ladder[chunk.rendition] * CHUNK / 1_000_000;
    }

    fn play(&mut self, now: u64, course: &mut Course) {
        if !self.begun {
            return;
        }
        // Playback jumps over skipped media.
        while let Some(&(from, to)) = self.holes.front()
            && self.played >= from as f64
        {
            self.played = self.played.max(to as f64);
            self.holes.pop_front();
        }
        let held = self.got.saturating_sub(self.played as u64);
        if self.playing && held >= STEP {
            let late = now.saturating_sub(self.played as u64) > BUFFER + CHUNK;
            let faster = held > BUFFER / 2 && late;
            self.played += STEP as f64 * if faster { FASTER } else { 1.0 };
            self.stall = 0;
        } else if self.playing {
            self.playing = false;
        }
        if !self.playing {
            self.playing = held >= if self.latency.1 == 0 { BUFFER } else { AGAIN };
            if self.latency.1 > 0 {
                self.stall += STEP;
                course.stalled += STEP;
                course.longest = course.longest.max(self.stall);
            }
        }
        if self.playing || self.latency.1 > 0 {
            self.latency.0 += now.saturating_sub(self.played as u64);
            self.latency.1 += 1;
        }
        course.latency = self.latency.0 / self.latency.1.max(1);
    }
}

/// Simulates a viewer of a ladder over a link, for which a rule decides.
///
/// With `seldom`, the rule is asked as the origin asks it while nothing waits: before every other
/// chunk, and not at all for a viewer on the highest rendition.
pub(super) fn run(
    link: &Link,
    ladder: &[u64],
    (descent, seldom): (Descent, bool),
    rule: &mut dyn Rule,
) -> Course {
    let mut world = World::new(link, ladder);
    let mut rendition = super::super::start(ladder);
    let mut wanted = None::<usize>;
    while world.now < LENGTH {
        if world.now.is_multiple_of(CHUNK) && world.now > 0 {
            let start = world.now - CHUNK;
            let ready = descent == Descent::Told || world.queue.bytes == 0;
            if start.is_multiple_of(GROUP) && ready {
                if world.leaves && !rule.is_worth_sending(&world.see(), ladder[rendition]) {
                    world.drop_waiting();
                }
                (world.holds, world.leaves) = (false, false);
                if let Some(next) = wanted.take() {
                    world.course.switches += u32::from(next != rendition);
                    rendition = next;
                    rule.switched(world.now);
                }
            }
            if !world.holds {
                world.queue.push(Chunk::new(start, rendition, ladder));
            }
        }
        world.step(rule);
        if world.is_asked(seldom, rendition) {
            match rule.decide(&world.see(), ladder, rendition) {
                Decision::Stay => {}
                Decision::Up(to) => {
                    wanted = Some(to);
                    world.leaves = false;
                }
                Decision::Down { to, drop } => {
                    wanted = Some(to);
                    world.leaves = drop && descent == Descent::Told;
                    world.holds |= drop && descent == Descent::Drained;
                }
                Decision::SkipToLive => world.drop_waiting(),
            }
        }
    }
    world.course.quality = world.course.quality * 1_000_000 / LENGTH;
    world.course
}
