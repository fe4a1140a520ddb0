//! Frames that come further apart than parts last: slides, and screens that are shared.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

use std::sync::Arc;

use live::{Part, PublisherInfo, Registry, Settings, UnixMicros};
use media::codec::avc;
use media::{Codec, Sample};

const START: u64 = 1_700_000_000_000_000;

/// Publishes frames at these milliseconds, every second a keyframe, and answers the parts.
fn publish(times: &[i64]) -> Vec<Arc<Part>> {
    let registry = Registry::new(Settings::default());
    let info = PublisherInfo { peer: None, protocol: "test", rendition: None };
    let at = |millis: i64| UnixMicros(START + millis.unsigned_abs() * 1000);
    let mut publisher = registry.publish("x", info, at(0)).unwrap();
    let codec = Codec::Avc(avc::Config::parse(testkit::avc_record(31).into()).unwrap());
    publisher.track(0, codec, 1000, *b"und", at(0)).unwrap();
    for (number, &dts) in times.iter().enumerate() {
        let sync = number % 2 == 0;
        let sample = Sample { dts, cts: 0, duration: 0, sync, data: vec![7; 100].into() };
        publisher.sample(0, sample, at(dts)).unwrap();
    }
    let track = publisher.stream().track("v0").unwrap();
    drop(publisher);
    track.window().all().flat_map(|segment| segment.parts.clone()).collect()
}

/// Of each frame, in milliseconds after the first is shown: when it is decoded, shown, and due by the
/// publisher's clock. Parts abut, and no frame is shown before it is decoded.
fn frames(parts: &[Arc<Part>]) -> Vec<(i64, i64, i64)> {
    let shown = |part: &Part, at: usize| part.samples[at].dts + i64::from(part.samples[at].cts);
    let origin = shown(&parts[0], 0);
    let mut end = parts[0].start;
    let mut frames = Vec::new();
    for part in parts {
        assert_eq!(part.start, end, "parts abut");
        end = part.start + i64::from(part.duration);
        let chunk = media::cmaf::chunks(&part.region.to_bytes(), None).next().unwrap().unwrap();
        let mut dts = part.start;
        for (at, sample) in chunk.samples.iter().enumerate() {
            assert_eq!(dts + i64::from(sample.cts), shown(part, at), "both say when it is shown");
            assert!(sample.cts >= 0, "shown before it is decoded");
            let told =
                [dts, shown(part, at), part.samples[at].dts].map(|time| (time - origin) / 90);
            frames.push(told.into());
            dts += i64::from(sample.duration);
        }
    }
    frames
}

/// hls.js places a track by when it is decoded, and so chooses audio that does not belong to it.
#[test]
fn who_sends_a_frame_now_and_then_has_it_decoded_just_before_it_is_shown() {
    let regular = |step: i64| (0..20).map(|number| number * step).collect::<Vec<_>>();
    let uneven = [0, 985, 2010, 3000, 4012, 4991, 6003, 7000, 7990, 9015];
    for times in [regular(1000), regular(500), regular(200), uneven.to_vec()] {
        let frames = frames(&publish(&times));
        assert_eq!(frames.len(), times.len());
        for (&(decoded, shown, due), &time) in frames.iter().zip(&times) {
            assert!(shown.abs_diff(time) <= 1, "shown at {shown}, not {time}");
            assert!((60..=160).contains(&(shown - decoded)), "{time}: {}", shown - decoded);
            assert!(due.abs_diff(time) <= 60, "due at {due}, not {time}");
        }
    }
}

/// What nobody could foretell costs once, and nothing for good.
#[test]
fn frames_that_come_sooner_after_all_are_late_once() {
    let mut times: Vec<i64> = (0..10).map(|number| number * 1000).collect();
    let bursts = [9_000, 20_000, 30_000];
    for burst in bursts {
        times.extend((1..60).map(|number| burst + number * 100 / 3));
        times.extend((3..10).map(|number| burst + number * 1000));
    }
    let frames = frames(&publish(&times));
    assert_eq!(frames.len(), times.len());
    let late = frames.iter().zip(&times).filter(|((_, shown, _), time)| shown.abs_diff(**time) > 1);
    // Frames are expected 1 s apart, and each lasts until 0.1 s before the next is expected. The
    // frames that come before that are shown then, so none is 0.9 s late.
    let late: Vec<(i64, i64)> = late.map(|((_, shown, _), &time)| (time, shown - time)).collect();
    assert_eq!(late.first().map(|&(time, _)| time), Some(9_033));
    for (time, by) in late {
        assert!((9_000..9_900).contains(&time) && (0..900).contains(&by), "{time}: {by} ms late");
    }
}

/// The first frame of many cameras and encoders comes long before the others.
#[test]
fn one_pause_at_the_beginning_tells_nothing() {
    let mut times = vec![0, 700];
    times.extend((1..60).map(|number| 700 + number * 100 / 3));
    let frames = frames(&publish(&times));
    for (&(_, shown, _), &time) in frames.iter().zip(&times) {
        assert!(shown.abs_diff(time) <= 1, "shown at {shown}, not {time}");
    }
}
