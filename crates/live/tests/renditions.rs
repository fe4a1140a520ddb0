//! Renditions from several encoders, each with its own clock. Encoders come and go.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

use live::{Publisher, PublisherInfo, Registry, Settings, Track, UnixMicros};
use media::codec::avc;
use media::{Codec, Sample};

const START: u64 = 1_700_000_000_000_000;
/// Time between two frames, in milliseconds.
const FRAME: i64 = 40;

fn at(millis: i64) -> UnixMicros {
    UnixMicros(START + u64::try_from(millis).unwrap() * 1000)
}

/// An encoder that publishes one rendition with a keyframe every two seconds.
struct Encoder {
    publisher: Publisher,
    /// Wall-clock time at which its own clock says `clock`, in milliseconds.
    began: i64,
    clock: i64,
    size: usize,
}

impl Encoder {
    /// Publishes `rendition` from `began` on. Its clock begins at `clock`.
    fn start(registry: &Registry, rendition: &str, level: u8, began: i64, clock: i64) -> Self {
        let rendition = Some(rendition.to_owned());
        let info = PublisherInfo { peer: None, protocol: "test", rendition };
        let mut publisher = registry.publish("x", info, at(began)).unwrap();
        let codec = Codec::Avc(avc::Config::parse(testkit::avc_record(level).into()).unwrap());
        publisher.track(0, codec, 1000, *b"und", at(began)).unwrap();
        Self { publisher, began, clock, size: 4000 }
    }

    /// Publishes the frame that is due now.
    fn frame(&mut self, now: i64) {
        let since = now - self.began;
        let sync = since % 2000 == 0;
        let data = vec![7; self.size].into();
        let sample = Sample { dts: self.clock + since, cts: 0, duration: 0, sync, data };
        self.publisher.sample(0, sample, at(now)).unwrap();
    }
}

/// Where a track's newest part ends, in milliseconds of decode time.
fn end(track: &Track) -> i64 {
    track.window().newest().unwrap().end() / 90
}

fn run(encoders: &mut [&mut Encoder], from: i64, until: i64, mut each: impl FnMut(i64)) {
    for now in (from..until).step_by(FRAME as usize) {
        for encoder in &mut *encoders {
            encoder.frame(now);
        }
        each(now);
    }
}

#[test]
fn an_encoder_that_starts_late_with_a_clock_of_its_own_is_not_placed_in_the_past() {
    for late in [3200, 4000, 8000, 9600, 20_000] {
        let registry = Registry::new(Settings::default());
        let mut high = Encoder::start(&registry, "high", 31, 0, 0);
        run(&mut [&mut high], 0, late, |_| {});
        let mut low = Encoder::start(&registry, "low", 30, late, 0);
        run(&mut [&mut high, &mut low], late, late + 6000, |_| {});
        let stream = registry.stream("x").unwrap();
        let (high, low) = (stream.track("v0").unwrap(), stream.track("v1").unwrap());
        let behind = end(&high) - end(&low);
        assert!(behind.abs() <= 400, "{behind} ms behind, having started {late} ms later");
    }
}

/// Renditions of one encoder share its clock. Its connections open one after another, and larger
/// frames take longer to encode. The same frame keeps the same time in each of them.
#[test]
fn renditions_of_one_encoder_stay_together_however_late_they_come() {
    for late in [0, 400, 2000, 2800] {
        let registry = Registry::new(Settings::default());
        let mut low = Encoder::start(&registry, "low", 30, 0, 5_000_000);
        run(&mut [&mut low], 0, late, |_| {});
        // Frames that come now were captured `late` milliseconds ago.
        let mut high = Encoder::start(&registry, "high", 31, late, 5_000_000);
        run(&mut [&mut low, &mut high], late, late + 6000, |_| {});
        let stream = registry.stream("x").unwrap();
        let (low, high) = (stream.track("v0").unwrap(), stream.track("v1").unwrap());
        let behind = end(&low) - end(&high);
        assert!((behind - late).abs() <= 400, "{behind} ms behind instead of {late} ms");
    }
}

#[test]
fn a_rendition_that_returns_goes_on_at_once_and_disturbs_no_other() {
    // The encoder's clock starts anew or goes on. Its frames have the same size as before or
    // another.
    for (leaves, returns, clock) in [
        (2000, 2160, 0),
        (6000, 6160, 0),
        (6000, 6160, 6160),
        (9000, 14_000, 0),
        (30_000, 33_000, 0),
    ] {
        for level in [30, 31] {
            let context = format!("left at {leaves}, back at {returns} ms, clock {clock}, {level}");
            let registry = Registry::new(Settings::default());
            let mut high = Encoder::start(&registry, "high", 40, 0, 0);
            let mut low = Encoder::start(&registry, "low", 30, 0, 0);
            run(&mut [&mut high, &mut low], 0, leaves, |_| {});
            drop(low);
            run(&mut [&mut high], leaves, returns, |_| {});
            let stream = registry.stream("x").unwrap();
            let (v0, v1) = (stream.track("v0").unwrap(), stream.track("v1").unwrap());
            let mut low = Encoder::start(&registry, "low", level, returns, clock);
            run(&mut [&mut high, &mut low], returns, returns + 12_000, |now| {
                let behind = end(&v0) - end(&v1);
                let settled = now > returns + 1000;
                assert!(!settled || behind.abs() <= 700, "{behind} ms behind at {now}: {context}");
            });
            for track in [&v0, &v1] {
                let window = track.window();
                for segment in window.all().filter(|segment| window.is_complete(segment.msn)) {
                    let lasts = segment.duration / 90;
                    assert!(lasts >= 100, "a segment of {lasts} ms of {}: {context}", track.name);
                }
                let (_, peak) = track.bitrate().unwrap();
                assert!(peak < 4_000_000, "{} has a peak of {peak}: {context}", track.name);
            }
        }
    }
}

/// A publisher with two layers of one picture, each a rendition with a name of its own.
struct Layers {
    publisher: Publisher,
}

impl Layers {
    const NAMES: [&str; 2] = ["h", "l"];

    fn start(registry: &Registry, rendition: Option<&str>) -> Self {
        let rendition = rendition.map(str::to_owned);
        let info = PublisherInfo { peer: None, protocol: "test", rendition };
        let mut publisher = registry.publish("x", info, at(0)).unwrap();
        for (source, (name, level)) in (0..).zip(Self::NAMES.into_iter().zip([40, 30])) {
            publisher.name(source, name).unwrap();
            let codec = Codec::Avc(avc::Config::parse(testkit::avc_record(level).into()).unwrap());
            publisher.track(source, codec, 1000, *b"und", at(0)).unwrap();
        }
        Self { publisher }
    }

    /// Publishes the frames of some layers that are due from `from` until `until`, and lets time pass.
    fn run(&mut self, registry: &Registry, sources: &[u32], (from, until): (i64, i64)) {
        for now in (from..until).step_by(FRAME as usize) {
            for source in sources {
                let data = vec![7; 4000].into();
                let sample = Sample { dts: now, cts: 0, duration: 0, sync: now % 2000 == 0, data };
                self.publisher.sample(*source, sample, at(now)).unwrap();
            }
            if now % 1000 == 0 {
                registry.sweep(at(now));
            }
        }
    }
}

#[test]
fn layers_of_one_publisher_are_renditions_with_names() {
    let registry = Registry::new(Settings::default());
    let mut layers = Layers::start(&registry, None);
    layers.run(&registry, &[0, 1], (0, 6000));
    let mut others = Layers::start(&registry, Some("b"));
    others.run(&registry, &[0], (6000, 8000));
    let stream = registry.stream("x").unwrap();
    let names = |stream: &live::Stream| {
        let state = stream.state();
        let names = state.tracks.iter().map(|track| track.rendition.clone().unwrap());
        names.collect::<Vec<_>>()
    };
    assert_eq!(names(&stream), ["h", "l", "b-h", "b-l"]);
    assert_eq!(stream.state().publishers.len(), 2);
    for bad in ["", "a/b", ".", &"n".repeat(65)] {
        let refused = layers.publisher.name(7, bad).unwrap_err();
        assert!(matches!(refused, live::PublishError::BadRendition(_)), "{refused}");
    }
    // A name means one rendition.
    let info = |rendition: &str| PublisherInfo {
        peer: None,
        protocol: "test",
        rendition: Some(rendition.to_owned()),
    };
    let refused = registry.publish("x", info("l"), at(8000)).unwrap_err();
    assert!(matches!(refused, live::PublishError::InUse(_)), "{refused}");
    let _other = registry.publish("x", info("m"), at(8000)).unwrap();
    let refused = layers.publisher.name(7, "m").unwrap_err();
    assert!(matches!(refused, live::PublishError::InUse(_)), "{refused}");
    // A publisher that returns finds its layers.
    drop(layers);
    let mut layers = Layers::start(&registry, None);
    layers.run(&registry, &[0, 1], (8000, 10_000));
    assert_eq!(names(&stream), ["h", "l", "b-h", "b-l"]);
}

/// The first layer leads. A publisher that switches it off goes on with the other, and no period begins when
/// the layer comes again, however long that takes.
#[test]
fn a_layer_that_is_switched_off_and_on_disturbs_no_other() {
    for (off, on) in [(6000, 8000), (6000, 13_000), (6000, 20_000), (10_000, 34_000)] {
        let registry = Registry::new(Settings::default());
        let mut layers = Layers::start(&registry, None);
        layers.run(&registry, &[0, 1], (0, off));
        let stream = registry.stream("x").unwrap();
        let (high, low) = (stream.track("v0").unwrap(), stream.track("v1").unwrap());
        let before = end(&low);
        layers.run(&registry, &[1], (off, on));
        assert!((end(&low) - before - (on - off)).abs() <= 400, "off for {} ms", on - off);
        assert_eq!(high.is_present(), on - off < 10_000, "off for {} ms", on - off);
        layers.run(&registry, &[0, 1], (on, on + 6000));
        assert!(high.is_present() && (end(&high) - end(&low)).abs() <= 400);
        let window = low.window();
        assert!(window.all().all(|segment| !segment.discontinuity), "off for {} ms", on - off);
    }
}
