//! Renditions made from a stream's own media agree with their source although they are late.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use live::{
    Derived, PublishError, Publisher, PublisherInfo, Refused, Registry, SegmentId, Settings,
    Status, Stream, Track, UnixMicros,
};
use media::codec::avc;
use media::{Codec, Sample};

const START: UnixMicros = UnixMicros(1_700_000_000_000_000);
const PATIENCE: Duration = Duration::from_secs(3);
/// How many frames the rendition is behind its source: the transcoder's latency.
const LATE: usize = 20;

fn codec(level: u8) -> Codec {
    Codec::Avc(avc::Config::parse(testkit::avc_record(level).into()).unwrap())
}

fn info(rendition: Option<&str>) -> PublisherInfo {
    let rendition = rendition.map(str::to_owned);
    PublisherInfo { peer: None, protocol: "test", rendition }
}

/// A stream, its publisher of 30 frames a second, and a rendition made from it.
struct Scene {
    registry: Registry,
    stream: Arc<Stream>,
    publisher: Option<Publisher>,
    derived: Derived,
    now: UnixMicros,
    /// Frames published since the publisher connected.
    frames: i64,
    /// Place of the last source part that the transcoder has read.
    taken: Option<(u64, usize)>,
    /// Samples that the transcoder has still to make.
    making: VecDeque<(Sample, SegmentId)>,
}

impl Scene {
    fn new(settings: Settings) -> Self {
        let registry = Registry::new(settings);
        let mut publisher = registry.publish("x", info(None), START).unwrap();
        publisher.track(0, codec(31), 1000, *b"und", START).unwrap();
        let stream = Arc::clone(publisher.stream());
        let mut derived = stream.derive("low", PATIENCE, START).unwrap();
        derived.configure(codec(10)).unwrap();
        Self {
            registry,
            stream,
            publisher: Some(publisher),
            derived,
            now: START,
            frames: 0,
            taken: None,
            making: VecDeque::new(),
        }
    }

    fn source(&self) -> Arc<Track> {
        self.stream.track("v0").unwrap()
    }

    fn low(&self) -> Option<Arc<Track>> {
        self.stream.state().tracks.iter().find(|track| track.is_called("low")).cloned()
    }

    /// Publishes one frame of the source, and the frames of the rendition that are ready.
    fn frame(&mut self, gop: i64) {
        self.now = self.now.after(Duration::from_micros(33_333));
        let sample = Sample {
            dts: self.frames * 100 / 3,
            cts: 67,
            duration: 0,
            sync: self.frames % gop == 0,
            data: Bytes::from_static(&[1; 32]),
        };
        self.frames += 1;
        self.publisher.as_mut().unwrap().sample(0, sample, self.now).unwrap();
        self.look();
        self.make(LATE);
    }

    /// Gives the source's new parts to the transcoder.
    fn look(&mut self) {
        let window = self.source().window();
        for segment in window.all() {
            for (at, part) in segment.parts.iter().enumerate() {
                if self.taken.is_some_and(|taken| taken >= (segment.msn, at)) {
                    continue;
                }
                self.taken = Some((segment.msn, at));
                let place = SegmentId { period: segment.period, msn: segment.msn };
                let made = part.samples.iter().map(|layout| Sample {
                    dts: layout.dts,
                    cts: layout.cts,
                    duration: 0,
                    sync: layout.sync,
                    data: Bytes::from_static(&[2; 8]),
                });
                self.making.extend(made.map(|sample| (sample, place)));
            }
        }
    }

    /// Publishes the rendition's frames, except the last `keep`.
    fn make(&mut self, keep: usize) {
        while self.making.len() > keep {
            let (sample, place) = self.making.pop_front().unwrap();
            self.derived.sample(sample, place, self.now).unwrap();
        }
    }

    /// Number, start and discontinuity of each complete segment.
    fn segments(track: &Track) -> Vec<(u64, i64, bool)> {
        let window = track.window();
        window.segments.iter().map(|s| (s.msn, s.start, s.discontinuity)).collect()
    }

    /// Asserts that the rendition's complete segments are the same as the source's.
    #[track_caller]
    fn assert_agrees(&self, at_least: usize) {
        let (source, low) = (Self::segments(&self.source()), Self::segments(&self.low().unwrap()));
        assert!(low.len() >= at_least, "{low:?}");
        assert_eq!(low, source[..low.len()], "the rendition's segments are not its source's");
    }
}

#[test]
fn segments_have_their_sources_numbers_and_times() {
    for gop in [15, 30, 50, 75] {
        let mut scene = Scene::new(Settings::default());
        for _ in 0..600 {
            scene.frame(gop);
        }
        scene.assert_agrees(5);
        let (source, low) = (scene.source(), scene.low().unwrap());
        assert_eq!(low.part_limit(), source.part_limit());
        let times = |track: &Track| -> Vec<(i64, u32)> {
            let window = track.window();
            window.segments.iter().flat_map(|s| &s.parts).map(|p| (p.start, p.duration)).collect()
        };
        let (source, low) = (times(&source), times(&low));
        assert_eq!(low, source[..low.len()], "parts, GOPs of {gop}");
    }
}

#[test]
fn a_discontinuity_is_told_of_where_the_source_has_it() {
    let mut scene = Scene::new(Settings::default());
    for _ in 0..200 {
        scene.frame(30);
    }
    // The publisher leaves and returns while the transcoder still has earlier frames.
    drop(scene.publisher.take());
    scene.look();
    assert_eq!(scene.stream.state().status, Status::Offline);
    scene.now = scene.now.after(Duration::from_secs(2));
    let mut back = scene.registry.publish("x", info(None), scene.now).unwrap();
    back.track(0, codec(31), 1000, *b"und", scene.now).unwrap();
    (scene.publisher, scene.frames) = (Some(back), 0);
    assert!(scene.making.len() >= LATE);
    for _ in 0..300 {
        scene.frame(30);
    }
    scene.assert_agrees(6);
    let tagged = Scene::segments(&scene.low().unwrap());
    assert_eq!(tagged.iter().filter(|segment| segment.2).count(), 1);
}

#[test]
fn manifests_wait_for_it_but_not_for_long() {
    let mut scene = Scene::new(Settings::default());
    for _ in 0..LATE {
        scene.frame(30);
    }
    assert!(!scene.stream.is_ready(), "the source alone is no ladder");
    for _ in 0..20 {
        scene.frame(30);
    }
    assert!(!scene.stream.is_ready(), "what has no complete segment is not listed");
    for _ in 0..60 {
        scene.frame(30);
    }
    assert!(scene.stream.is_ready());

    // A rendition that never comes.
    let mut scene = Scene::new(Settings::default());
    while scene.frames < 60 {
        scene.frame(30);
        scene.making.clear();
    }
    scene.registry.sweep(scene.now);
    assert!(!scene.stream.is_ready());
    scene.registry.sweep(START.after(PATIENCE));
    assert!(scene.stream.is_ready());

    // A rendition that is given up.
    let mut scene = Scene::new(Settings::default());
    while scene.frames < 60 {
        scene.frame(30);
        scene.making.clear();
    }
    assert!(!scene.stream.is_ready());
    scene.derived.expect_nothing();
    assert!(scene.stream.is_ready());
}

#[test]
fn a_derived_rendition_takes_its_name_and_keeps_no_stream_alive() {
    let mut scene = Scene::new(Settings::default());
    for _ in 0..90 {
        scene.frame(30);
    }
    let refused = scene.registry.publish("x", info(Some("low")), scene.now).unwrap_err();
    assert!(matches!(refused, PublishError::InUse(info) if info.protocol == "ladder"));
    assert!(scene.stream.derive("low", PATIENCE, scene.now).is_err());

    drop(scene.publisher.take());
    assert_eq!(scene.stream.state().status, Status::Offline);
    scene.registry.sweep(scene.now);
    scene.registry.sweep(scene.now.after(Settings::default().reconnect));
    assert_eq!(scene.stream.state().status, Status::Ended);
    let (sample, place) = scene.making.pop_front().unwrap();
    let late = scene.derived.sample(sample, place, scene.now);
    assert!(matches!(late, Err(Refused::Over)), "{late:?}");
    assert!(scene.low().unwrap().window().ended);
}

#[test]
fn a_rendition_that_begins_when_the_source_has_gone_is_offered_beside_it() {
    let settings = Settings::default();
    let mut scene = Scene::new(settings.clone());
    for _ in 0..LATE {
        scene.frame(10);
    }
    drop(scene.publisher.take());
    scene.look();
    // On a busy machine the transcoder begins later than a track may be silent beside others.
    scene.now = scene.now.after(settings.silence + Duration::from_secs(1));
    scene.registry.sweep(scene.now);
    scene.make(scene.making.len() - 1);
    let low = scene.low().unwrap();
    assert_eq!(low.part_limit(), None, "a part needs more than a sample");
    scene.registry.sweep(scene.now);
    scene.make(0);
    scene.registry.sweep(scene.now.after(settings.reconnect));
    assert_eq!(scene.stream.state().status, Status::Ended);
    for track in [scene.source(), low] {
        assert!(track.is_present(), "{}", track.name);
        assert!(!track.window().segments.is_empty(), "{}", track.name);
    }
}

#[test]
fn after_a_restart_it_goes_on_at_a_keyframe_that_lies_ahead() {
    let mut scene = Scene::new(Settings::default());
    for _ in 0..100 {
        scene.frame(30);
    }
    let before = scene.low().unwrap().window().newest().unwrap().end();
    // The transcoder begins again at the source's newest segment. It made some of that before.
    let newest = scene.source().window().newest().unwrap().msn;
    scene.taken = Some((newest, 0)).map(|(msn, _)| (msn - 1, usize::MAX));
    scene.making.clear();
    scene.derived.restart();
    scene.derived.configure(codec(10)).unwrap();
    for _ in 0..200 {
        scene.frame(30);
    }
    let (source, low) = (scene.source().window(), scene.low().unwrap().window());
    let joined = low.segments.iter().find(|segment| segment.start > before).unwrap();
    assert!(joined.parts[0].independent);
    assert!(!joined.discontinuity, "times go on");
    let same = source.segments.iter().find(|segment| segment.msn == joined.msn).unwrap();
    assert_eq!(same.start, joined.start);
}

#[test]
fn a_source_may_be_there_only_for_what_is_made_of_it() {
    let mut scene = Scene::new(Settings::default());
    for _ in 0..90 {
        scene.frame(30);
    }
    let (source, version) = (scene.source(), scene.stream.state().version);
    scene.stream.offer(&source, false);
    assert!(!source.is_present());
    assert!(scene.stream.state().version > version, "manifests are written anew");
    for _ in 0..90 {
        scene.frame(30);
    }
    scene.registry.sweep(scene.now);
    assert!(!source.is_present());
    scene.assert_agrees(2);
    scene.stream.offer(&source, true);
    assert!(source.is_present());
}

#[test]
fn a_derived_name_stays_taken_while_the_source_is_silent() {
    let mut scene = Scene::new(Settings::default());
    for _ in 0..90 {
        scene.frame(30);
    }
    let made = scene.low().unwrap().window().newest().unwrap().end();
    scene.now = scene.now.after(2 * Settings::default().silence);
    scene.registry.sweep(scene.now);
    let refused = scene.registry.publish("x", info(Some("low")), scene.now).unwrap_err();
    assert!(matches!(refused, PublishError::InUse(info) if info.protocol == "ladder"));
    assert!(scene.stream.derive("low", PATIENCE, scene.now).is_err());
    for _ in 0..90 {
        scene.frame(30);
    }
    assert!(scene.low().unwrap().window().newest().unwrap().end() > made, "it goes on");
}

#[test]
fn segments_not_made_leave_a_hole_in_times_and_none_in_numbers() {
    let mut scene = Scene::new(Settings::default());
    for _ in 0..300 {
        scene.frame(30);
    }
    let made = scene.low().unwrap().window().newest().unwrap().end();
    for _ in 0..300 {
        scene.frame(30);
        scene.making.clear();
    }
    scene.derived.restart();
    scene.derived.configure(codec(10)).unwrap();
    for _ in 0..300 {
        scene.frame(30);
    }
    let (source, low) = (scene.source().window(), scene.low().unwrap().window());
    let numbers: Vec<u64> = low.all().map(|segment| segment.msn).collect();
    let first = numbers[0];
    assert_eq!(numbers, (first..).take(numbers.len()).collect::<Vec<_>>());
    assert!(low.all().all(|segment| !segment.discontinuity));
    let after: Vec<_> = low.segments.iter().filter(|segment| segment.start >= made).collect();
    assert!(after.len() >= 3, "{numbers:?}");
    for segment in after {
        let same = source.segments.iter().find(|same| same.start == segment.start).unwrap();
        assert_eq!(same.end(), segment.end());
        assert!(
            (segment.msn + 4..segment.msn + 6).contains(&same.msn),
            "{} {}",
            segment.msn,
            same.msn
        );
        assert!(segment.captured.since(same.captured) < Duration::from_millis(50));
        assert!(segment.parts[0].independent);
    }
}
