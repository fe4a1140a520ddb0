//! A node, and what viewers could see there.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use live::backup::Switches;
use live::tap::{Tap, Tapped};
use live::{Delivery, Segment, Stream, Track, UnixMicros, Viewing};
use tokio::time::Instant;

use super::bus::SimulatedBus;
use super::frame::Frame;
use super::network::Network;
use crate::Origin;
use crate::clock::Clock;
use crate::cluster::Cluster;
use crate::config::Config;

/// The time at which simulations begin.
const START: u64 = 1_700_000_000_000_000;

/// One life of a node.
pub(super) struct Node {
    pub(super) name: String,
    pub(super) origin: Arc<Origin>,
    pub(super) bus: Arc<SimulatedBus>,
    /// What was seen of tracks. A track is known by its address, which stays its own while it is held here.
    seen: HashMap<*const Track, Seen>,
    /// Who watches.
    viewing: HashMap<String, (Arc<Stream>, Viewing)>,
    /// Who reads single units of video.
    taps: HashMap<String, Reader>,
    swept: Instant,
}

/// Somebody who reads single units of a track.
struct Reader {
    track: Arc<Track>,
    tap: Tap,
    /// The period and the decode time of the last unit.
    last: (u64, i64),
}

/// What was seen of a track.
struct Seen {
    /// Kept, so that its address is not used again.
    track: Arc<Track>,
    /// The parts, by place, as a digest of their bytes.
    parts: HashMap<(u64, usize), u64>,
    next: (u64, usize),
    last: Option<Frame>,
}

/// What was checked, in numbers.
#[derive(Debug, Default)]
pub(super) struct Checked {
    pub(super) parts: u64,
    pub(super) of_copies: u64,
    pub(super) discontinuities: u64,
    /// How often a copy was away for longer than its window reaches back.
    pub(super) skips: u64,
    /// Single units that came, each once and in order.
    pub(super) units: u64,
    /// How often a backup took over, and a primary.
    pub(super) to_backup: u64,
    pub(super) to_primary: u64,
}

impl Checked {
    /// Counts how often publishers took over at a node that ends.
    pub(super) fn count_switches(&mut self, node: &Node) {
        let Switches { to_backup, to_primary } = node.origin.seats.switches();
        self.to_backup += to_backup;
        self.to_primary += to_primary;
    }
}

impl Node {
    /// Starts a node. Its clock is ahead of others by this time.
    pub(super) fn start(
        network: &Arc<Network>,
        began: Instant,
        name: &str,
        ahead: Duration,
        mut config: Config,
    ) -> Self {
        let copies = config.cluster.copies.into();
        config.live.window = crate::config::Time::from_secs(6);
        config.live.part_target = crate::config::Time::from_millis(500);
        let mut origin = Origin::new(config);
        origin.clock = Clock { started: (UnixMicros(START).after(ahead), began) };
        let bus = network.join(name, origin.clock);
        let origin = Arc::new(origin);
        let place = (String::new(), String::new());
        let viewed = (Arc::clone(&origin.seats), Arc::clone(&origin.title_viewers));
        let cluster = Cluster::begin(
            Arc::clone(&bus) as _,
            name.to_owned(),
            place,
            copies,
            viewed,
            origin.clock,
        );
        origin.cluster.set(cluster).expect("it is new");
        Self {
            name: name.to_owned(),
            origin,
            bus,
            seen: HashMap::new(),
            viewing: HashMap::new(),
            taps: HashMap::new(),
            swept: Instant::now(),
        }
    }

    /// Does what an origin does once a second.
    pub(super) fn sweep(&mut self) {
        if self.swept.elapsed() >= Duration::from_secs(1) {
            self.swept = Instant::now();
            self.origin.registry.sweep(self.origin.now());
        }
    }

    /// A viewer comes, or stays.
    pub(super) async fn watch(&mut self, name: &str) {
        match self.origin.stream(name).await {
            Ok(Some(stream)) => {
                let viewing = stream.watch(Delivery::Push);
                self.viewing.insert(name.to_owned(), (stream, viewing));
            }
            Ok(None) | Err(_) => self.leave(name),
        }
    }

    /// The viewer reads single units of video.
    pub(super) fn read(&mut self, name: &str) {
        let track = self.viewing.get(name).and_then(|(stream, _)| stream.track("v0"));
        let is_read = |track: &Arc<Track>| {
            self.taps.get(name).is_some_and(|reader| Arc::ptr_eq(&reader.track, track))
        };
        if let Some(track) = track.filter(|track| !is_read(track)) {
            let reader = Reader { tap: track.tap(), track, last: (0, i64::MIN) };
            self.taps.insert(name.to_owned(), reader);
        }
    }

    /// The viewer goes.
    pub(super) fn leave(&mut self, name: &str) {
        self.viewing.remove(name);
        self.taps.remove(name);
    }

    /// Checks what has come since the last call: numbers are consecutive, frames as well, unless a discontinuity is
    /// told. With `whole`, also that nothing has changed that was there before.
    pub(super) fn check(&mut self, whole: bool, checked: &mut Checked) {
        for (name, Reader { tap, last, .. }) in &mut self.taps {
            while let Some(Tapped::Unit(unit)) = tap.take() {
                let place = (unit.period, unit.sample.dts);
                assert!(*last < place, "{} {name}: unit {place:?} after {last:?}", self.name);
                *last = place;
                checked.units += 1;
            }
        }
        self.seen.retain(|_, seen| Arc::strong_count(&seen.track) > 1);
        for stream in self.origin.registry.streams() {
            for track in &stream.state().tracks {
                let seen = self.seen.entry(Arc::as_ptr(track)).or_insert_with(|| Seen {
                    track: Arc::clone(track),
                    parts: HashMap::new(),
                    next: (0, 0),
                    last: None,
                });
                let place = || format!("{} {} {}", self.name, stream.name(), track.name);
                let before = checked.parts;
                seen.check(whole, &place, checked);
                if stream.is_mirrored() {
                    checked.of_copies += checked.parts - before;
                }
            }
        }
    }
}

fn digest(bytes: &[u8]) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

impl Seen {
    fn check(&mut self, whole: bool, place: &dyn Fn() -> String, checked: &mut Checked) {
        let window = self.track.window();
        let mut before: Option<u64> = None;
        let first = window.all().next().map_or(0, |segment| segment.msn);
        if first > self.next.0 {
            // The track is new here, or more has come since the last check than its window holds.
            checked.skips += u64::from(self.next.0 > 0);
            (self.next, self.last) = ((first, 0), None);
        }
        for segment in window.all() {
            let msn = segment.msn;
            assert!(before.is_none_or(|before| before + 1 == msn), "{}: {msn}", place());
            before = Some(msn);
            if whole {
                let shown = self.parts.keys().filter(|(of, _)| *of == msn).count();
                assert!(shown <= segment.parts.len(), "{}: {msn} has lost parts", place());
                for (at, part) in segment.parts.iter().enumerate() {
                    if let Some(known) = self.parts.get(&(msn, at)) {
                        let same = *known == digest(part.region.as_ref());
                        assert!(same, "{}: {msn}.{at} has changed", place());
                    }
                }
            }
            if msn >= self.next.0 {
                self.take(segment, place, checked);
            }
        }
        self.parts.retain(|(msn, _), _| *msn >= first);
    }

    fn take(&mut self, segment: &Segment, place: &dyn Fn() -> String, checked: &mut Checked) {
        let msn = segment.msn;
        if msn > self.next.0 {
            self.next = (msn, 0);
        }
        for (at, part) in segment.parts.iter().enumerate().skip(self.next.1) {
            checked.parts += 1;
            self.parts.insert((msn, at), digest(part.region.as_ref()));
            for (number, sample) in part.samples.iter().enumerate() {
                let frame = Frame::read(part.sample(sample));
                let is_told = (at, number) == (0, 0) && segment.discontinuity;
                if let (Some(last), Some(frame)) = (self.last, frame)
                    && !frame.follows(last)
                {
                    let whose = format!("{last:?}, {frame:?} at {msn}.{at}");
                    assert!(is_told, "{}: {whose} without a discontinuity", place());
                    checked.discontinuities += 1;
                }
                self.last = frame.or(self.last);
            }
        }
        self.next = (msn, segment.parts.len());
    }
}
