//! Chooses the rendition of a live stream for a viewer, by what the kernel reports of its
//! connection.
//!
//! ```text
//! broadcast, about twice a second ─┐                        ┌ goes on as it is
//!                                  ├▶ look ─ rule ─ decided ┤
//! own task, while it waits ────────┘                        └ goes on alone up to the other's keyframe
//! ```

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::net::Told;
use live::cursor::Choice;
use live::{State, Track};
use media::Kind;
use protocol::push::abr::{self, AnyRule, Decision, Rule, Seen};
use tokio::time::Instant;

use crate::broadcast::Line;
use crate::config::PushRule;
use crate::push::describe;
use crate::push::wire::Wire;

/// Time between two looks at a viewer that data waits for.
pub(in crate::push) const LOOKS: Duration = Duration::from_millis(100);

/// Unsent bytes that the kernel accepts for such a viewer (`TCP_NOTSENT_LOWAT`).
const UNSENT: u32 = 32 << 10;

/// These limit the bytes in the kernel, sent or not (`SO_SNDBUF`), to what the best rendition that
/// may come next has, and half as much again, in this many microseconds and this many round trips.
/// At least [`LEAST`] bytes are allowed. When a link's rate falls, lost bytes are sent again before
/// anything else, so few bytes should be in flight. But there must be enough to show that the link
/// carries the next rendition.
const MOMENT: u64 = 80_000;
const ROUNDS: u64 = 2;
const LEAST: usize = 48 << 10;

/// The bound if nothing is chosen: no real limit.
const ANY: usize = 4 << 20;

/// How often to renew the list of renditions to choose from.
const RENEWED: Duration = Duration::from_secs(5);

/// The renditions that a viewer may get, by rising bit rate, and the one it gets.
pub(in crate::push) struct LiveAbr {
    renditions: Box<[Rendition]>,
    at: usize,
    /// Number of renditions at the last renewal, including those that the viewer may not get.
    known: usize,
    renewed: Instant,
    rule: AnyRule,
    began: Instant,
    looked: Option<Instant>,
    /// In microseconds; 0 before the first look.
    min_rtt: u64,
    decided: Decision,
    /// Whether it switches down, and the waiting media may not be worth sending.
    pub(in crate::push) leaves: bool,
}

/// A rendition.
struct Rendition {
    track: Arc<Track>,
    /// Bits per second, with audio.
    bits: u64,
}

/// The renditions that a viewer with these wishes may get, by rising bit rate.
fn renditions(state: &State, choice: &Choice) -> Box<[Rendition]> {
    let audio = state.tracks.iter().find(|t| t.kind == Kind::Audio && t.is_present());
    let audio = audio.map_or(0, |track| describe::bitrate(track));
    let renditions = describe::renditions(state);
    let pinned = choice.rendition.as_ref();
    if let Some(track) = renditions.iter().find(|t| pinned.is_some_and(|name| t.is_called(name))) {
        return [Rendition { track: Arc::clone(track), bits: 0 }].into();
    }
    let rated = renditions.into_iter().rev().map(|track| (describe::bitrate(&track), track));
    let max = choice.max.unwrap_or(u64::MAX);
    // If all exceed the viewer's maximum, the lowest one is allowed.
    let allowed = rated.enumerate().filter(|(at, (bits, _))| *at == 0 || *bits <= max);
    allowed.map(|(_, (bits, track))| Rendition { track, bits: bits + audio }).collect()
}

/// Number of renditions.
fn frames(state: &State) -> usize {
    let usable = |track: &&Arc<Track>| {
        track.kind == Kind::Video && track.is_present() && track.part_limit().is_some()
    };
    state.tracks.iter().filter(usable).count()
}

/// Whether a viewer with these wishes may get `track`.
pub(in crate::push) fn allows(state: &State, choice: &Choice, track: &Arc<Track>) -> bool {
    renditions(state, choice).iter().any(|rendition| Arc::ptr_eq(&rendition.track, track))
}

/// The first rendition for a viewer whose link is not known yet.
pub(in crate::push) fn begin(state: &State, choice: &Choice) -> Option<Arc<Track>> {
    let renditions = renditions(state, choice);
    let bits: Vec<_> = renditions.iter().map(|rendition| rendition.bits).collect();
    renditions.get(abr::start(&bits)).map(|rendition| Arc::clone(&rendition.track))
}

/// Bytes to allow in the kernel for a rendition with this bit rate, on a link with this round-trip
/// time in microseconds.
fn room(bits: u64, min_rtt: u64) -> usize {
    let moment = ROUNDS.saturating_mul(min_rtt).saturating_add(MOMENT);
    let bytes = (bits / 8 * 3 / 2).saturating_mul(moment) / 1_000_000;
    usize::try_from(bytes).unwrap_or(usize::MAX).clamp(LEAST, ANY)
}

impl LiveAbr {
    /// Makes the choice for a viewer that gets `now`. `None` if there is nothing to choose from.
    pub(in crate::push) fn new(
        rule: PushRule,
        state: &State,
        choice: &Choice,
        now: &Arc<Track>,
    ) -> Option<Self> {
        // Most streams have one rendition, and nothing is to be done for their viewers.
        let known = frames(state);
        if known < 2 {
            return None;
        }
        let renditions = renditions(state, choice);
        if renditions.len() < 2 {
            return None;
        }
        let at = renditions.iter().position(|rendition| Arc::ptr_eq(&rendition.track, now));
        let began = Instant::now();
        Some(Self {
            renditions,
            // It may no longer be allowed to get its present rendition.
            at: at.unwrap_or(0),
            known,
            renewed: began,
            rule: rule.into(),
            began,
            looked: None,
            min_rtt: 0,
            decided: Decision::Stay,
            leaves: false,
        })
    }

    /// Renews the list of renditions. Returns false if there is nothing to choose from.
    pub(in crate::push) fn renew(
        &mut self,
        state: &State,
        choice: &Choice,
        now: &Arc<Track>,
    ) -> bool {
        self.renditions = renditions(state, choice);
        self.known = frames(state);
        self.renewed = Instant::now();
        self.stand(now);
        self.renditions.len() > 1
    }

    /// Whether the list of renditions may be out of date.
    pub(in crate::push) fn is_old(&self, state: &State) -> bool {
        self.renewed.elapsed() >= RENEWED
            || self.known != frames(state)
            || !self.renditions.iter().all(|rendition| rendition.track.is_present())
    }

    /// Notes that the viewer gets `now` from here on.
    pub(in crate::push) fn switched(&mut self, now: &Arc<Track>) {
        self.stand(now);
        self.leaves = false;
        self.rule.switched(self.began.elapsed().as_micros() as u64);
    }

    fn stand(&mut self, now: &Arc<Track>) {
        let at = self.renditions.iter().position(|rendition| Arc::ptr_eq(&rendition.track, now));
        self.at = at.unwrap_or(0);
    }

    /// Whether it could switch up.
    pub(in crate::push) fn is_below_top(&self) -> bool {
        self.at + 1 < self.renditions.len()
    }

    /// Whether it is time to look again.
    pub(in crate::push) fn is_due(&self) -> bool {
        self.looked.is_none_or(|at| at.elapsed() >= LOOKS)
    }

    /// Looks at the connection and decides. `told` asks the kernel. `queued` are bytes that the
    /// kernel has not taken.
    pub(in crate::push) fn look(
        &mut self,
        told: impl FnOnce() -> Option<Told>,
        queued: u64,
        writes: u64,
        catching_up: bool,
    ) {
        self.looked = Some(Instant::now());
        let Some(told) = told() else { return };
        self.min_rtt = told.min_rtt;
        let seen = self.seen(&told, queued, writes, catching_up);
        let (bits, count) = self.bits();
        self.decided = self.rule.decide(&seen, &bits[..count], self.at);
        tracing::trace!(?seen, at = self.at, decided = ?self.decided, rule = ?self.rule, "looked");
    }

    /// The bit rates of the ladder. It has at most as many renditions as a stream has tracks.
    fn bits(&self) -> ([u64; 16], usize) {
        let mut bits = [0; 16];
        for (bits, rendition) in bits.iter_mut().zip(&self.renditions) {
            *bits = rendition.bits;
        }
        (bits, self.renditions.len().min(bits.len()))
    }

    fn seen(&self, told: &Told, queued: u64, writes: u64, catching_up: bool) -> Seen {
        Seen {
            now: self.began.elapsed().as_micros() as u64,
            queued,
            catching_up,
            unacknowledged: told.unacknowledged,
            acknowledged: told.acknowledged,
            busy: told.busy,
            viewer_limited: told.viewer_limited,
            writes,
            rtt: told.rtt,
            min_rtt: told.min_rtt,
        }
    }

    /// Bytes to allow in the kernel.
    fn bound(&self) -> usize {
        let near = self.renditions.iter().skip(self.at).take(2);
        let bits = near.map(|rendition| rendition.bits).max().unwrap_or(0);
        room(bits, self.min_rtt)
    }

    /// Whether a decision waits to be carried out.
    pub(in crate::push) fn has_decided(&self) -> bool {
        self.decided != Decision::Stay
    }

    /// Takes the decision, if there is one.
    pub(in crate::push) fn take_decided(&mut self) -> Decision {
        std::mem::replace(&mut self.decided, Decision::Stay)
    }

    /// The track of this rendition; `None` if the viewer already has it.
    pub(in crate::push) fn rendition(&self, at: usize) -> Option<&Arc<Track>> {
        self.renditions.get(at).filter(|_| at != self.at).map(|rendition| &rendition.track)
    }

    /// Whether the waiting media of the present rendition are worth sending before a switch.
    pub(in crate::push) fn is_worth_sending(&self, queued: u64) -> bool {
        let bits = self.renditions.get(self.at).map_or(0, |rendition| rendition.bits);
        self.rule.is_worth_sending(&Seen { queued, ..Seen::default() }, bits)
    }
}

/// The connection of a viewer whose rendition the server chooses. The broadcast writes to it.
pub(in crate::push) struct Watched {
    wire: Rc<Wire>,
    pub(in crate::push) abr: RefCell<LiveAbr>,
    /// Number of writes when nothing else waited.
    writes: Cell<u64>,
    /// The bound that the kernel was given; 0 if none.
    bound: Cell<usize>,
}

impl Watched {
    pub(in crate::push) fn new(wire: &Rc<Wire>, abr: LiveAbr) -> Rc<Self> {
        // Bytes in the kernel cannot be dropped. A kernel without this option works too.
        let _ = wire.transport.bound_unsent(UNSENT);
        let (abr, bound) = (RefCell::new(abr), Cell::default());
        Rc::new(Self { wire: Rc::clone(wire), abr, writes: Cell::default(), bound })
    }

    /// Call this when something is written and nothing else waited.
    pub(in crate::push) fn writes(&self) {
        self.writes.set(self.writes.get() + 1);
    }

    /// Looks at the connection and decides. `told` asks the kernel. `queued` are bytes that the
    /// kernel has not taken.
    pub(in crate::push) fn look_at(&self, queued: u64, catching_up: bool) {
        let writes = self.writes.get();
        let mut abr = self.abr.borrow_mut();
        abr.look(|| self.wire.transport.told(), queued, writes, catching_up);
        let (bound, before) = (abr.bound(), self.bound.get());
        if bound.abs_diff(before) > before / 4 {
            self.bind(bound);
        }
    }

    /// Bounds the bytes in the kernel.
    fn bind(&self, bytes: usize) {
        self.bound.set(bytes);
        // The kernel doubles the figure for its own overhead, which is small here.
        let _ = self.wire.transport.bound(bytes / 2);
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if self.bound.get() > 0 {
            self.bind(ANY);
        }
    }
}

impl Line for Watched {
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.writes();
        self.wire.try_write(bytes)
    }

    fn holds(&self) -> bool {
        self.wire.holds()
    }

    fn is_watched(&self) -> bool {
        self.abr.borrow().is_below_top()
    }

    fn look(&self) -> bool {
        self.look_at(0, false);
        self.abr.borrow().has_decided()
    }
}

#[cfg(test)]
mod tests {
    use protocol::push::abr::Evidence;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// A distant viewer may have enough in flight to show that the link carries the next rendition.
    /// A near viewer has no more in flight than a link that falls to a fifth carries in 0.8 s.
    #[test]
    fn bytes_in_flight_are_bounded_but_enough_to_show_the_rate() {
        for bits in [100_000, 1_200_000, 5_000_000, 20_000_000_u64] {
            for rtt in [500, 20_000, 180_000] {
                let rate = room(bits, rtt) as u64 * 8_000_000 / rtt;
                assert!(rate >= bits * 3, "{bits} {rtt}: {rate}");
            }
        }
        assert!(room(5_000_000, 500) * 8 <= 1_000_000 * 4 / 5);
        assert_eq!(room(0, 0), LEAST);
        assert_eq!(room(u64::MAX, u64::from(u32::MAX)), ANY);
    }

    /// Prints which part of a core it takes to look at 10,000 viewers twice a second.
    #[tokio::test]
    #[ignore = "a measurement"]
    async fn cost_of_looking() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (mut near, mut far) = (near.unwrap(), far.unwrap().0);
        near.write_all(&[7; 4096]).await.unwrap();
        far.read_exact(&mut [0; 4096]).await.unwrap();
        let (mut rule, ladder) = (Evidence::default(), [100_000, 1_200_000, 5_000_000]);
        let began = Instant::now();
        for turn in 0..20_000 {
            let told = http::net::told(&near).unwrap();
            let seen = Seen {
                now: turn * 400_000,
                acknowledged: told.acknowledged + turn * 5_000,
                busy: told.busy,
                rtt: told.rtt,
                min_rtt: told.min_rtt,
                ..Seen::default()
            };
            let _ = std::hint::black_box(rule.decide(&seen, &ladder, 2));
        }
        println!("{:.2} % of a core", began.elapsed().as_secs_f64() * 100.0);
        println!("{} bytes of a viewer", size_of::<Watched>() + 3 * size_of::<Rendition>());
    }
}
