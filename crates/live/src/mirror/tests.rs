//! A copy that gets its changes through a network that loses, doubles and reorders them.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use media::codec::{aac, avc};
use media::{Codec, Sample};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::{Change, Changes, Mirror, Taken};
use crate::{Publisher, PublisherInfo, Registry, Settings, Stream, Track, UnixMicros};

mod moved;

const START: u64 = 1_700_000_000_000_000;

/// A stream, its copy, and the network between them.
struct Scene {
    registry: Registry,
    other: Registry,
    publisher: Option<Publisher>,
    stream: Arc<Stream>,
    changes: Changes,
    under_way: VecDeque<Change>,
    mirror: Option<Mirror>,
    now: UnixMicros,
    frame: i64,
    random: testkit::Random,
    /// How many windows were compared, and how often the copy asked for what it lacked.
    compared: usize,
    asked: usize,
}

fn info() -> PublisherInfo {
    PublisherInfo { peer: None, protocol: "test", rendition: None }
}

impl Scene {
    fn new(seed: u64) -> Self {
        let registry = Registry::new(Settings::default());
        let now = UnixMicros(START);
        let publisher = registry.publish("x", info(), now).unwrap();
        let stream = Arc::clone(publisher.stream());
        let mut scene = Self {
            changes: Changes::new(&stream),
            registry,
            other: Registry::new(Settings::default()),
            publisher: Some(publisher),
            stream,
            under_way: VecDeque::new(),
            mirror: None,
            now,
            frame: 0,
            random: testkit::Random::new(seed),
            compared: 0,
            asked: 0,
        };
        scene.announce();
        scene
    }

    fn announce(&mut self) {
        let video = Codec::Avc(avc::Config::parse(testkit::avc_record(31).into()).unwrap());
        let audio = Codec::Aac(aac::Config::parse(Bytes::from_static(&[0x11, 0x90])).unwrap());
        let publisher = self.publisher.as_mut().unwrap();
        publisher.track(0, video, 1000, *b"und", self.now).unwrap();
        publisher.track(1, audio, 1000, *b"deu", self.now).unwrap();
    }

    /// The machine of the stream goes, and a publisher comes to the one that has a copy, after two seconds. Returns what
    /// was the copy.
    fn move_on(&mut self, publisher: PublisherInfo) -> Arc<Stream> {
        assert!(self.other.adopt("x", self.now));
        self.mirror = None;
        self.now.0 += 2_000_000;
        self.publisher = Some(self.other.publish("x", publisher, self.now).unwrap());
        self.announce();
        self.frame = 0;
        self.other.stream("x").unwrap()
    }

    /// One frame of video, and the audio beside it.
    fn publish(&mut self, keyframes: i64, has_audio: bool) {
        self.now.0 += 40_000;
        let size = 50 + self.random.index(3000);
        let data = |byte: i64| Bytes::from(vec![byte as u8; size]);
        let sync = self.frame % keyframes == 0;
        let dts = self.frame * 40;
        let publisher = self.publisher.as_mut().unwrap();
        let sample = Sample { dts, cts: 0, duration: 0, sync, data: data(self.frame) };
        publisher.sample(0, sample, self.now).unwrap();
        if has_audio {
            for half in 0..2 {
                let sample = Sample {
                    dts: dts + half * 21,
                    cts: 0,
                    duration: 0,
                    sync: true,
                    data: data(half).slice(..20),
                };
                publisher.sample(1, sample, self.now).unwrap();
            }
        }
        self.frame += 1;
    }

    /// Whether something happens that has this probability, in percent.
    fn happens(&mut self, percent: u64) -> bool {
        self.random.below(100) < percent
    }

    /// Sends what has changed, and lets some of it arrive.
    fn carry(&mut self, bad: u64) {
        while let Some(change) = self.changes.take() {
            if self.happens(bad) {
                continue;
            }
            if self.happens(bad) {
                self.under_way.push_back(change.clone());
            }
            let late = self.happens(bad) && !self.under_way.is_empty();
            let at =
                if late { self.random.index(self.under_way.len()) } else { self.under_way.len() };
            self.under_way.insert(at, change);
        }
        while !self.under_way.is_empty() && !self.happens(bad) {
            let change = self.under_way.pop_front().unwrap();
            self.arrive(&change);
        }
    }

    fn arrive(&mut self, change: &Change) {
        let Some(mirror) = &mut self.mirror else {
            if let Change::Stream(description) = change {
                let mut mirror = self.other.mirror("x", description, self.now).unwrap();
                assert_eq!(mirror.apply(change, self.now).unwrap(), Taken::Yes);
                self.mirror = Some(mirror);
            }
            return;
        };
        if mirror.apply(change, self.now).unwrap() == Taken::Missing {
            self.ask();
        }
        self.compare(false);
    }

    /// The copy asks for what it lacks, and gets all of it.
    fn ask(&mut self) {
        self.asked += 1;
        let places = self.mirror.as_ref().map(Mirror::places).unwrap_or_default();
        let mut rest = Changes::since(&self.stream, places);
        while let Some(change) = rest.take() {
            if let (None, Change::Stream(of)) = (&self.mirror, &change) {
                self.mirror = Some(self.other.mirror("x", of, self.now).unwrap());
            }
            let mirror = self.mirror.as_mut().unwrap();
            let taken = mirror.apply(&change, self.now).unwrap();
            assert_ne!(taken, Taken::Missing);
        }
    }

    /// Compares each track whose window has the same version here and there, or all of them.
    fn compare(&mut self, all: bool) {
        let copy = self.mirror.as_ref().unwrap().stream();
        let (of, it) = (self.stream.state(), copy.state());
        if all {
            assert_eq!((of.version, of.tracks.len()), (it.version, it.tracks.len()));
        }
        if of.version == it.version {
            assert_eq!((of.status, of.epoch), (it.status, it.epoch));
            assert_eq!(of.publishers, it.publishers);
            assert_eq!(self.stream.since(), copy.since());
        }
        for track in &it.tracks {
            let Some(original) = of.tracks.iter().find(|other| other.name == track.name) else {
                continue;
            };
            let same = original.window().version == track.window().version;
            assert!(same || !all, "{}", track.name);
            if same {
                assert_same(original, track);
                self.compared += 1;
            }
        }
        if all {
            assert_eq!(self.stream.target_duration(), copy.target_duration());
            assert_eq!(self.stream.is_ready(), copy.is_ready());
            let names = |tracks: &[Arc<Track>]| {
                tracks.iter().map(|track| track.name.clone()).collect::<Vec<_>>()
            };
            assert_eq!(names(&of.tracks), names(&it.tracks));
            for (original, track) in of.tracks.iter().zip(&it.tracks) {
                assert_eq!(original.is_present(), track.is_present());
                assert_eq!(original.is_silenced(), track.is_silenced());
            }
        }
    }

    /// The copy has everything in the end.
    fn settle(&mut self) {
        self.under_way.clear();
        self.carry(0);
        self.ask();
        self.compare(true);
    }
}

/// All that deliveries may tell of a track is the same.
fn assert_same(original: &Track, track: &Track) {
    let (of, it) = (original.window(), track.window());
    assert_eq!(
        (of.unlisted, of.ended, of.rate),
        (it.unlisted, it.ended, it.rate),
        "{}",
        track.name
    );
    assert_eq!(original.part_limit(), track.part_limit());
    assert_eq!(original.header().bytes, track.header().bytes);
    assert_eq!(original.frame_rate(), track.frame_rate());
    assert_eq!(of.open.is_some(), it.open.is_some());
    assert_eq!(of.all().count(), it.all().count());
    for (one, other) in of.all().zip(it.all()) {
        assert_eq!((one.msn, one.start, one.presents), (other.msn, other.start, other.presents));
        assert_eq!(
            (one.duration, one.period, one.period_start),
            (other.duration, other.period, other.period_start)
        );
        assert_eq!((one.discontinuity, one.captured), (other.discontinuity, other.captured));
        assert_eq!(
            (one.expected_end, &one.header.bytes),
            (other.expected_end, &other.header.bytes)
        );
        assert_eq!((one.header.msn, &one.header.track), (other.header.msn, &other.header.track));
        assert_eq!(one.parts.len(), other.parts.len());
        for (one, other) in one.parts.iter().zip(&other.parts) {
            assert_eq!(one.region.as_ref(), other.region.as_ref());
            assert_eq!(one.samples, other.samples);
            assert_eq!(
                (one.start, one.duration, one.independent),
                (other.start, other.duration, other.independent)
            );
            assert_eq!(one.published, other.published);
        }
    }
}

#[test]
fn a_copy_is_the_stream_whatever_the_network_does() {
    let inputs = (
        any::<u64>(),
        10..80_i64,
        prop_oneof![Just(0_u64), 1..20_u64],
        prop::collection::vec(100..400_u32, 0..3),
    );
    let mut runner = TestRunner::new(ProptestConfig { cases: 40, ..ProptestConfig::default() });
    let asked = Cell::new(0);
    let run = runner.run(&inputs, |(seed, keyframes, bad, stops)| {
        let mut scene = Scene::new(seed);
        for (turn, frames) in stops.into_iter().chain([300]).enumerate() {
            for frame in 0..frames {
                // The publisher returns without its audio, and later has it again.
                scene.publish(keyframes, turn != 1 || frame > 60);
                scene.carry(bad);
                if frame % 25 == 0 {
                    scene.registry.sweep(scene.now);
                    scene.other.sweep(scene.now);
                }
            }
            scene.settle();
            scene.publisher = None;
            scene.now.0 += 3_000_000;
            scene.registry.sweep(scene.now);
            scene.carry(bad);
            scene.publisher = Some(scene.registry.publish("x", info(), scene.now).unwrap());
            scene.announce();
        }
        prop_assert!(scene.compared > 100, "{}", scene.compared);
        asked.set(asked.get() + scene.asked);
        // Nobody returns.
        scene.publisher = None;
        scene.registry.sweep(scene.now);
        scene.now.0 += 40_000_000;
        scene.registry.sweep(scene.now);
        scene.settle();
        let window = scene.mirror.as_ref().unwrap().stream().track("v0").unwrap().window();
        prop_assert!(window.ended);
        Ok(())
    });
    run.unwrap_or_else(|error| panic!("{error}"));
    // One network that is nearly good may lose nothing that has to be asked for. All together lose much.
    assert!(asked.get() > 200, "asked {} times", asked.get());
}

/// Who waits for changes is woken by each, also by one of the stream itself.
#[tokio::test]
async fn who_waits_is_told_of_each_change() {
    let mut scene = Scene::new(3);
    let mut changes = Changes::new(&scene.stream);
    let mut told = [0; 3];
    for _ in 0..60 {
        while let Ok(change) = tokio::time::timeout(Duration::ZERO, changes.next()).await {
            told[match change {
                Change::Stream(_) => 0,
                Change::Part(_) => 1,
                Change::Window(_) => 2,
            }] += 1;
        }
        scene.publish(25, true);
    }
    assert!(told[0] >= 3 && told[1] > 15 && told[2] > 15, "{told:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, ..ProptestConfig::default() })]

    /// The machine of a stream goes, at any moment, and another goes on from its copy. A third had more of the stream,
    /// or less.
    #[test]
    fn a_copy_goes_on_as_the_stream(
        seed in any::<u64>(),
        keyframes in 10..60_i64,
        frames in 60..300_u32,
        more in 0..40_u32,
        bad in 0..30_u64,
    ) {
        let mut scene = Scene::new(seed);
        for _ in 0..frames {
            scene.publish(keyframes, true);
            scene.carry(bad);
        }
        // The third machine gets everything, also what comes after the second has lost the first.
        let third = Registry::new(Settings::default());
        let mut changes = Changes::new(&scene.stream);
        let Some(Change::Stream(of)) = changes.take() else { panic!("no description") };
        let mut mirror = third.mirror("x", &of, scene.now).unwrap();
        mirror.apply(&Change::Stream(of), scene.now).unwrap();
        (0..more).for_each(|_| scene.publish(keyframes, true));
        while let Some(change) = changes.take() {
            prop_assert_eq!(mirror.apply(&change, scene.now).unwrap(), Taken::Yes);
        }
        prop_assume!(scene.mirror.is_some());
        let copy = Arc::clone(scene.mirror.as_ref().unwrap().stream());
        prop_assume!(copy.state().tracks.len() == 2 && copy.is_ready());
        let before: Vec<_> = copy.state().tracks.iter().map(|track| track.window()).collect();
        prop_assume!(before.iter().all(|window| window.newest().is_some()));
        let epoch = before[0].newest().unwrap().epoch();

        prop_assert!(scene.other.adopt("x", scene.now));
        prop_assert!(!scene.other.adopt("x", scene.now));
        scene.mirror = None;
        prop_assert_ne!(copy.state().status, crate::Status::Ended, "its mirror does not end it");
        scene.now.0 += 2_000_000;
        scene.publisher = Some(scene.other.publish("x", info(), scene.now).unwrap());
        prop_assert!(Arc::ptr_eq(scene.publisher.as_ref().unwrap().stream(), &copy));
        scene.announce();
        // The encoder begins again, with a clock of its own.
        scene.frame = 0;
        (0..150).for_each(|_| scene.publish(keyframes, true));

        let names: Vec<_> = copy.state().tracks.iter().map(|track| track.name.clone()).collect();
        prop_assert_eq!(names, ["v0", "a0"]);
        for (track, before) in copy.state().tracks.iter().zip(&before) {
            let window = track.window();
            let newest = before.newest().unwrap();
            let numbers: Vec<_> = window.all().map(|segment| segment.msn).collect();
            prop_assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{:?}", numbers);
            prop_assert!(window.newest().unwrap().msn > newest.msn);
            for segment in before.all() {
                let Some(now) = window.segment(segment.msn) else { continue };
                for (one, other) in segment.parts.iter().zip(&now.parts) {
                    prop_assert!(Arc::ptr_eq(one, other), "what was published stays");
                }
            }
            let first = window.all().find(|segment| segment.period > newest.period).unwrap();
            prop_assert!(first.discontinuity && first.period == newest.period + 1);
            prop_assert!(first.start >= newest.end());
            // Dates go on: what comes 2 s later is dated so, within what the pause leaves open.
            prop_assert!((first.epoch() - epoch).abs() < 3_000_000, "{} {}", first.epoch(), epoch);
        }

        // The third machine follows, unless it had segments that the second had not: its copy is over then, and another
        // one begins.
        let adopted = &copy.past().1[0].places;
        let had = |id| adopted.iter().find(|(known, _)| *known == id).unwrap().1.0;
        let had_more = mirror.places().iter().any(|&(id, (msn, _))| msn > had(id));
        let mut changes = Changes::since(&copy, mirror.places());
        let first = changes.take().unwrap();
        prop_assert_eq!(mirror.apply(&first, scene.now).is_err(), had_more);
        if had_more {
            drop(mirror);
            let Change::Stream(of) = &first else { panic!("no description") };
            mirror = third.mirror("x", of, scene.now).unwrap();
            changes = Changes::new(&copy);
        }
        while let Some(change) = changes.take() {
            prop_assert_ne!(mirror.apply(&change, scene.now).unwrap(), Taken::Missing);
        }
        for (original, track) in copy.state().tracks.iter().zip(&mirror.stream().state().tracks) {
            prop_assert_eq!(original.window().version, track.window().version);
            let (of, it) = (original.window(), track.window());
            prop_assert_eq!(of.newest().map(|s| (s.msn, s.parts.len())), it.newest().map(|s| (s.msn, s.parts.len())));
        }
    }
}

#[test]
fn a_copy_gives_way_where_memory_is_short() {
    let mut scene = Scene::new(4);
    // About five megabytes.
    let settings = Settings { window: Duration::from_mins(2), ..Settings::default() };
    scene.registry = Registry::new(settings);
    let publisher = scene.registry.publish("x", info(), scene.now).unwrap();
    scene.stream = Arc::clone(publisher.stream());
    scene.publisher = Some(publisher);
    scene.announce();
    let small = Registry::with_memory(Settings::default(), 4 << 20);
    let mut changes = Changes::new(&scene.stream);
    let Some(Change::Stream(of)) = changes.take() else { panic!("no description") };
    let mut mirror = small.mirror("x", &of, scene.now).unwrap();
    mirror.apply(&Change::Stream(of), scene.now).unwrap();
    for _ in 0..4000 {
        scene.publish(25, true);
        while let Some(change) = changes.take() {
            assert_ne!(mirror.apply(&change, scene.now).unwrap(), Taken::Missing);
        }
        let version = |stream: &Stream| stream.track("v0").map(|track| track.window().version);
        assert_eq!(version(&scene.stream), version(mirror.stream()));
    }
    let [whole, copy] = [&scene.stream, mirror.stream()].map(|it| it.track("v0").unwrap().window());
    let first = copy.all().next().unwrap().msn;
    assert!(first > whole.all().next().unwrap().msn, "the copy is shorter");
    assert_eq!(copy.newest().map(|it| it.msn), whole.newest().map(|it| it.msn));
    for segment in copy.all() {
        let of = whole.segment(segment.msn).unwrap();
        let mut parts = of.parts.iter().zip(&segment.parts);
        assert!(parts.all(|(of, it)| of.region.as_ref() == it.region.as_ref()));
    }
    // What playlists list is the same, as far as it is here.
    let listed = |window: &crate::Window| window.all().nth(window.unlisted).unwrap().msn;
    assert_eq!(listed(&copy), listed(&whole).max(first));
    let memory = small.memory();
    assert!(memory.given_up > 5 && memory.used <= memory.limit, "{memory:?}");
}

#[test]
fn a_copy_cannot_be_published_and_ends_with_its_mirror() {
    let mut scene = Scene::new(1);
    (0..100).for_each(|_| {
        scene.publish(50, true);
        scene.carry(0);
    });
    let copy = scene.other.stream("x").unwrap();
    assert!(copy.is_ready());
    let refused = scene.other.publish("x", info(), scene.now).unwrap_err();
    assert_eq!(refused, crate::PublishError::Elsewhere);
    // Nothing that time does to streams happens to the copy.
    let version = copy.state().version;
    scene.other.sweep(UnixMicros(scene.now.0 + 100_000_000));
    assert_eq!(copy.state().version, version);
    let mut tap = copy.track("v0").unwrap().tap();
    scene.mirror = None;
    assert!(matches!(tap.take(), Some(crate::tap::Tapped::Over)));
    assert_eq!(copy.state().status, crate::Status::Ended);
    scene.other.sweep(UnixMicros(scene.now.0 + 1_000_000));
    assert!(scene.other.stream("x").is_none());
    assert_eq!(scene.other.memory().used, 0);
}

#[test]
fn who_reads_single_units_of_a_copy_gets_those_of_each_part() {
    let mut scene = Scene::new(2);
    scene.publish(50, true);
    scene.carry(0);
    let mut units = None;
    for _ in 0..100 {
        scene.publish(50, true);
        scene.carry(0);
        let copy = scene.mirror.as_ref().unwrap().stream();
        units = units.or_else(|| copy.track("v0").map(|track| track.tap()));
    }
    let (mut units, mut times) = (units.unwrap(), Vec::new());
    while let Some(crate::tap::Tapped::Unit(unit)) = units.take() {
        assert!(unit.sample.data.len() >= 50);
        times.push(unit.sample.dts);
    }
    assert!(times.len() > 80, "{}", times.len());
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] == 3600), "{times:?}");
}

fn begun(part: &mut super::NewPart) -> &mut super::NewSegment {
    part.begins.as_mut().unwrap()
}

#[test]
fn numbers_that_no_machine_makes_are_refused() {
    let mut scene = Scene::new(4);
    let mut changes = Changes::new(&scene.stream);
    (0..60).for_each(|_| scene.publish(25, true));
    let all: Vec<_> = std::iter::from_fn(|| changes.take()).collect();
    let huge = [i64::MAX, i64::MIN, 1 << 53];
    let mut refused = 0;
    for change in &all {
        let Change::Stream(of) = &all[0] else { panic!("no description first") };
        let mut mirror = scene.other.mirror("y", of, scene.now).unwrap();
        for before in &all {
            if std::ptr::eq(before, change) {
                break;
            }
            mirror.apply(before, scene.now).unwrap();
        }
        for number in huge {
            let unsigned = number.unsigned_abs();
            let mut bad = Vec::new();
            match change {
                Change::Stream(of) => {
                    let mut other = of.as_ref().clone();
                    other.version = unsigned;
                    bad.push(Change::Stream(Arc::new(other.clone())));
                    (other.version, other.settings.target_duration) = (0, Duration::MAX);
                    assert!(scene.other.mirror("z", &other, scene.now).is_err());
                }
                Change::Part(part) => {
                    let with = |change: fn(&mut super::NewPart, i64)| {
                        let mut other = part.clone();
                        change(&mut other, number);
                        Change::Part(other)
                    };
                    bad.push(with(|part, number| part.place.0 = number.unsigned_abs()));
                    bad.push(with(|part, number| part.start = number));
                    bad.push(with(|part, number| part.samples[0].dts = number));
                    if part.begins.is_some() {
                        bad.push(with(|part, number| begun(part).presents = number));
                        bad.push(with(|part, number| begun(part).expected_end = Some(number)));
                        bad.push(with(|part, number| begun(part).period = number.unsigned_abs()));
                        bad.push(with(|part, _| {
                            (begun(part).period, begun(part).discontinuity) = (0, true);
                        }));
                    }
                }
                Change::Window(window) => {
                    bad.push(Change::Window(super::WindowState {
                        version: unsigned,
                        ..window.clone()
                    }));
                    bad.push(Change::Window(super::WindowState {
                        rate: Some((1, unsigned)),
                        ..window.clone()
                    }));
                }
            }
            for bad in bad {
                assert!(mirror.apply(&bad, scene.now).is_err());
                refused += 1;
            }
        }
        // It still takes what is right.
        assert_ne!(mirror.apply(change, scene.now).unwrap(), Taken::Missing);
    }
    assert!(refused > 100, "{refused}");
}

#[test]
fn a_copy_of_a_stream_that_is_over_does_not_go_on() {
    let mut scene = Scene::new(5);
    (0..100).for_each(|_| {
        scene.publish(25, true);
        scene.carry(0);
    });
    scene.publisher = None;
    scene.registry.sweep(scene.now);
    scene.now.0 += 31_000_000;
    scene.registry.sweep(scene.now);
    scene.settle();
    let copy = scene.other.stream("x").unwrap();
    assert_eq!(copy.state().status, crate::Status::Ended);
    let newest = copy.track("v0").unwrap().window().newest().unwrap().msn;
    assert!(!scene.other.adopt("x", scene.now));
    // A new stream of the name begins, with numbers of its own.
    let publisher = scene.other.publish("x", info(), scene.now).unwrap();
    assert!(!Arc::ptr_eq(publisher.stream(), &copy));
    assert!(publisher.stream().next_msn() > newest);
}

/// Units that come singly are handed on at once, and those that are lost come with their part: each once, in order.
#[tokio::test]
async fn single_units_come_before_their_part_and_once() {
    for bad in [0, 20] {
        let mut scene = Scene::new(5 + bad);
        let mut units = super::Units::new(&scene.stream);
        units.limit(|_| true);
        for _ in 0..100 {
            scene.publish(50, true);
            scene.carry(0);
        }
        let copy = Arc::clone(scene.mirror.as_ref().unwrap().stream());
        let stream = Arc::clone(&scene.stream);
        let tap = |of: &Stream, name| of.track(name).unwrap().tap();
        let mut taps =
            ["v0", "a0"].map(|name| (tap(&copy, name), Vec::new(), tap(&stream, name), None));
        assert_eq!(scene.mirror.as_ref().unwrap().read_by_unit().len(), 2);
        for turn in 0..300_usize {
            // A new configuration begins a period.
            if turn == 150 {
                scene.publisher = None;
                scene.now.0 += 3_000_000;
                scene.publisher = Some(scene.registry.publish("x", info(), scene.now).unwrap());
                scene.announce();
            }
            scene.publish(50, true);
            while let Ok(unit) = tokio::time::timeout(Duration::ZERO, units.next()).await {
                let now = scene.now;
                if !scene.happens(bad) {
                    scene.mirror.as_mut().unwrap().hand(unit, now).unwrap();
                }
            }
            scene.carry(bad / 4);
            for (tap, got, own, newest) in &mut taps {
                while let Some(crate::tap::Tapped::Unit(unit)) = tap.take() {
                    got.push((unit.period, unit.sample.dts));
                }
                while let Some(crate::tap::Tapped::Unit(unit)) = own.take() {
                    *newest = Some((unit.period, unit.sample.dts));
                }
                // Without loss, no unit waits for its part.
                if bad == 0 && (20..140).contains(&turn) {
                    assert_eq!(got.last(), newest.as_ref(), "in turn {turn}");
                }
            }
        }
        scene.settle();
        for ((tap, got, ..), name) in taps.iter_mut().zip(["v0", "a0"]) {
            while let Some(crate::tap::Tapped::Unit(unit)) = tap.take() {
                got.push((unit.period, unit.sample.dts));
            }
            let window = scene.stream.track(name).unwrap().window();
            let all: Vec<_> = window
                .all()
                .flat_map(|s| {
                    s.parts.iter().flat_map(|part| part.samples.iter().map(|l| (s.period, l.dts)))
                })
                .collect();
            assert!(got.windows(2).all(|pair| pair[0] < pair[1]), "{name}: twice or out of order");
            let first = all.iter().position(|place| *place >= got[0]).unwrap();
            let missing = all[first..].iter().filter(|place| !got.contains(place)).count();
            assert_eq!(missing, 0, "{name} with {bad}");
        }
    }
}
