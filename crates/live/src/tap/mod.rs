//! A track's access units as they come, before the packager cuts them into parts.
//!
//! Deliveries that send frames rather than parts, such as WebRTC, read a tap. A part waits until it
//! is full. A tap has each unit as soon as the publisher sent it. Silence that replaces missing
//! audio is in the parts only.
//!
//! All taps of a track share one ring. The ring holds the newest units, and only while somebody
//! reads them. A tap that is too slow loses the oldest units, learns how many it lost, and delays
//! nobody.
//!
//! A decoder needs all units since a keyframe. A [`FromKeyframe`] has them from the start.

mod from_keyframe;
mod handing;

use std::collections::VecDeque;
use std::sync::Arc;

pub use from_keyframe::FromKeyframe;
pub(crate) use handing::{Handing, TURN};
use media::Sample;
use tokio::sync::watch;

use crate::UnixMicros;
use crate::window::Header;

/// The most units that wait for the slowest tap of a track.
const MOST_UNITS: usize = 256;
/// The most bytes that these units hold. The newest unit stays, whatever its size.
const MOST_BYTES: usize = 4 << 20;

/// One access unit of a track.
#[derive(Debug)]
pub struct Unit {
    /// The unit. Its times are those of its [`SampleLayout`](crate::SampleLayout), in the track's timescale. Its
    /// duration is 0 if the publisher does not give one.
    pub sample: Sample,
    /// Its period. If the number changes, the media before do not continue. In a stream that came from another machine,
    /// numbers may be higher than those of segments.
    pub period: u64,
    /// The header that decodes it.
    pub header: Arc<Header>,
    /// When it came.
    pub received: UnixMicros,
}

/// The next event of a tap.
#[derive(Debug)]
pub enum Tapped {
    /// The next unit.
    Unit(Arc<Unit>),
    /// The tap was too slow: this many units before the next are lost.
    Lost(u64),
    /// The track is over.
    Over,
}

/// Reads a track's access units from now on. Each comes once, in decode order.
#[derive(Debug)]
pub struct Tap {
    ring: watch::Receiver<Ring>,
    /// Number of the next unit.
    next: u64,
}

/// The newest access units of a track.
#[derive(Debug, Default)]
struct Ring {
    units: VecDeque<Arc<Unit>>,
    bytes: usize,
    /// Number of the first of `units`.
    first: u64,
    over: bool,
}

/// The source of a track's taps.
#[derive(Debug, Default)]
pub(crate) struct Taps {
    ring: watch::Sender<Ring>,
}

impl Tap {
    /// Waits for the next unit.
    pub async fn next(&mut self) -> Tapped {
        loop {
            if let Some(next) = self.take() {
                return next;
            }
            if self.ring.changed().await.is_err() {
                return Tapped::Over;
            }
        }
    }

    /// The next unit, if there is one now.
    pub fn take(&mut self) -> Option<Tapped> {
        let ring = self.ring.borrow_and_update();
        let lost = ring.first.saturating_sub(self.next);
        if lost > 0 {
            self.next = ring.first;
            return Some(Tapped::Lost(lost));
        }
        let index = usize::try_from(self.next - ring.first).ok()?;
        match ring.units.get(index) {
            Some(unit) => {
                self.next += 1;
                Some(Tapped::Unit(Arc::clone(unit)))
            }
            None => ring.over.then_some(Tapped::Over),
        }
    }
}

impl Taps {
    /// A tap that begins with the next unit.
    pub(crate) fn tap(&self) -> Tap {
        let ring = self.ring.subscribe();
        let next = ring.borrow().end();
        Tap { ring, next }
    }

    /// A tap that begins with the newest unit in the ring at which decoding can start, and whether
    /// there is one. If not, the tap begins with the next unit.
    fn tap_from_keyframe(&self) -> (Tap, bool) {
        let mut tap = self.tap();
        let ring = tap.ring.borrow();
        let newest = ring.units.iter().rposition(|unit| unit.sample.sync);
        let next = newest.map(|newest| ring.first + newest as u64);
        drop(ring);
        tap.next = next.unwrap_or(tap.next);
        (tap, next.is_some())
    }

    /// Whether any tap reads.
    pub(crate) fn are_read(&self) -> bool {
        self.ring.receiver_count() > 0
    }

    /// Gives a unit to all taps.
    pub(crate) fn hand(&self, unit: Unit) {
        self.ring.send_modify(|ring| ring.push(Arc::new(unit)));
    }

    /// Drops the units if no tap reads any more.
    pub(crate) fn rest(&self) {
        if !self.are_read() && !self.ring.borrow().units.is_empty() {
            self.ring.send_modify(Ring::clear);
        }
    }

    /// Tells all taps that no further unit comes.
    pub(crate) fn end(&self) {
        self.ring.send_modify(|ring| ring.over = true);
    }
}

impl Ring {
    /// Number of the next unit to come.
    fn end(&self) -> u64 {
        self.first + self.units.len() as u64
    }

    fn push(&mut self, unit: Arc<Unit>) {
        self.bytes += unit.sample.data.len();
        self.units.push_back(unit);
        while self.units.len() > 1
            && (self.units.len() > MOST_UNITS || self.bytes > MOST_BYTES)
            && let Some(oldest) = self.units.pop_front()
        {
            self.bytes -= oldest.sample.data.len();
            self.first += 1;
        }
    }

    fn clear(&mut self) {
        (self.first, self.bytes) = (self.end(), 0);
        self.units.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use bytes::Bytes;
    use media::{Codec, codec};

    use super::*;
    use crate::{Publisher, PublisherInfo, Registry, Settings};

    const START: UnixMicros = UnixMicros(1_700_000_000_000_000);

    fn publisher() -> (Registry, Publisher) {
        let registry = Registry::new(Settings::default());
        let info = PublisherInfo { peer: None, protocol: "test", rendition: None };
        let mut publisher = registry.publish("x", info, START).unwrap();
        let video = codec::avc::Config::parse(testkit::avc_record(31).into()).unwrap();
        publisher.track(0, Codec::Avc(video), 1000, *b"und", START).unwrap();
        (registry, publisher)
    }

    fn publish(publisher: &mut Publisher, frame: i64, size: usize) {
        let data = Bytes::from(vec![u8::try_from(frame % 251).unwrap(); size]);
        let sample = Sample { dts: frame * 40, cts: 0, duration: 0, sync: frame == 0, data };
        publisher.sample(0, sample, START).unwrap();
    }

    fn unit(tapped: Tapped) -> Arc<Unit> {
        let Tapped::Unit(unit) = tapped else { panic!("{tapped:?}") };
        unit
    }

    #[test]
    fn units_come_at_once_and_not_with_their_part() {
        let (_registry, mut publisher) = publisher();
        publish(&mut publisher, 0, 9);
        let track = publisher.stream().track("v0").unwrap();
        let mut tap = track.tap();
        let context = &mut Context::from_waker(Waker::noop());
        let mut next = Box::pin(tap.next());
        assert!(next.as_mut().poll(context).is_pending());
        publish(&mut publisher, 1, 10);
        let window = track.window();
        assert!(window.newest().is_none_or(|newest| newest.is_empty()), "no part is full");
        let Poll::Ready(first) = next.as_mut().poll(context) else { panic!("it does not come") };
        let first = unit(first);
        drop(next);
        assert_eq!((first.sample.dts, first.sample.data.len()), (90_000 + 40 * 90, 10));
        assert!(!first.sample.sync && first.period == 0 && first.received == START);
        assert_eq!(first.header.track.id, track.header().track.id);
        assert!(tap.take().is_none());
    }

    #[test]
    fn a_slow_tap_loses_the_oldest_and_delays_nobody() {
        let (_registry, mut publisher) = publisher();
        let track = publisher.stream().track("v0").unwrap();
        let (mut slow, mut quick) = (track.tap(), track.tap());
        for frame in 0..300 {
            publish(&mut publisher, frame, 10);
            assert_eq!(unit(quick.take().unwrap()).sample.dts, 90_000 + frame * 3600);
        }
        let lost = 300 - MOST_UNITS as u64;
        assert!(matches!(slow.take(), Some(Tapped::Lost(n)) if n == lost));
        assert_eq!(unit(slow.take().unwrap()).sample.dts, 90_000 + lost as i64 * 3600);
        // The ring holds fewer units if they are large.
        publish(&mut publisher, 300, MOST_BYTES);
        publish(&mut publisher, 301, MOST_BYTES + 1);
        assert!(matches!(slow.take(), Some(Tapped::Lost(_))));
        assert_eq!(unit(slow.take().unwrap()).sample.dts, 90_000 + 301 * 3600);
        assert!(slow.take().is_none());
    }

    #[test]
    fn nothing_is_held_for_nobody() {
        let (registry, mut publisher) = publisher();
        let track = publisher.stream().track("v0").unwrap();
        let held = || track.taps.ring.borrow().units.len();
        publish(&mut publisher, 0, 10);
        assert_eq!(held(), 0);
        let tap = track.tap();
        publish(&mut publisher, 1, 10);
        assert_eq!(held(), 1);
        drop(tap);
        publish(&mut publisher, 2, 10);
        assert_eq!(held(), 0);
        let mut later = track.tap();
        assert!(later.take().is_none());
        publish(&mut publisher, 3, 10);
        assert_eq!(unit(later.take().unwrap()).sample.dts, 90_000 + 3 * 3600);
        // The publisher leaves, and does not return.
        drop(publisher);
        registry.sweep(START);
        registry.sweep(START.after(Settings::default().reconnect));
        assert!(matches!(later.take(), Some(Tapped::Over)));
    }
}
