//! Frames that come further apart than parts last: slides, and screens that are shared.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

use std::sync::Arc;

use live::{Part, Publisher, PublisherInfo, Registry, Settings, UnixMicros};
use media::codec::avc;
use media::{Codec, Sample};

const START: u64 = 1_700_000_000_000_000;

fn begin(registry: &Registry) -> Publisher {
    let info = PublisherInfo { peer: None, protocol: "test", rendition: None };
    let mut publisher = registry.publish("x", info, UnixMicros(START)).unwrap();
    let codec = Codec::Avc(avc::Config::parse(testkit::avc_record(31).into()).unwrap());
    publisher.track(0, codec, 1000, *b"und", UnixMicros(START)).unwrap();
    publisher
}

/// Publishes a frame at this millisecond. Every second frame is a keyframe.
fn push(publisher: &mut Publisher, number: usize, dts: i64) {
    let sync = number.is_multiple_of(2);
    let sample = Sample { dts, cts: 0, duration: 0, sync, data: vec![7; 100].into() };
    publisher.sample(0, sample, UnixMicros(START + dts.unsigned_abs() * 1000)).unwrap();
}

/// Publishes frames at these milliseconds, and answers the parts.
fn publish(times: &[i64]) -> Vec<Arc<Part>> {
    let registry = Registry::new(Settings::default());
    let mut publisher = begin(&registry);
    for (number, &dts) in times.iter().enumerate() {
        push(&mut publisher, number, dts);
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
fn rare_frames_are_decoded_just_before_they_are_shown() {
    let regular = |step: i64| (0..20).map(|number| number * step).collect::<Vec<_>>();
    let uneven = [0, 985, 2010, 3000, 4012, 4991, 6003, 7000, 7990, 9015];
    for times in [regular(1000), regular(500), regular(200), uneven.to_vec()] {
        let frames = frames(&publish(&times));
        assert_eq!(frames.len(), times.len());
        for (&(decoded, shown, due), &time) in frames.iter().zip(&times) {
            assert!(shown.abs_diff(time) <= 1, "shown at {shown}, not {time}");
            assert!((60..=160).contains(&(shown - decoded)), "{time}: {}", shown - decoded);
            assert!(due.abs_diff(time) <= 1, "due at {due}, not {time}");
        }
    }
}

/// Frames come sooner than any before, in bursts, or faster from then on. None is late.
#[test]
fn frames_that_come_sooner_than_expected_are_shown_in_time() {
    let every = |step: i64, count: i64| (0..count).map(move |number| number * step);
    let slow = |step| every(step, 10).collect::<Vec<i64>>();
    let mut bursts = slow(1000);
    for burst in [9_000, 20_000, 30_000] {
        bursts.extend((1..60).map(|number| burst + number * 100 / 3));
        bursts.extend((3..10).map(|number| burst + number * 1000));
    }
    let mut patterns = vec![bursts];
    for step in [1000, 500, 200, 120] {
        // As long as a part may last, and then for good.
        for (faster, count) in [(33, 5), (33, 600), (17, 100), (100, 50), (1, 20)] {
            let mut times = slow(step);
            let last = times[9];
            times.extend(every(faster, count).map(|time| last + faster + time));
            let last = times.last().copied().unwrap();
            times.extend(every(step, 5).map(|time| last + step + time));
            patterns.push(times);
        }
        // A burst after each number of slow frames, so also before the length of a part is known.
        for before in 1..10 {
            let mut times: Vec<i64> = every(step, before).collect();
            let last = times.last().copied().unwrap();
            times.extend(every(33, 40).map(|time| last + 33 + time));
            patterns.push(times);
        }
    }
    for times in patterns {
        let frames = frames(&publish(&times));
        assert_eq!(frames.len(), times.len());
        for (&(_, shown, due), &time) in frames.iter().zip(&times) {
            assert!(shown.abs_diff(time) <= 1, "shown at {shown}, not {time}: {times:?}");
            assert!(due.abs_diff(time) <= 1, "due at {due}, not {time}: {times:?}");
        }
    }
}

/// A publisher may send a frame only when the picture changes. Viewers get the last picture although no
/// frame follows it.
#[test]
fn the_newest_frame_does_not_wait_for_ever() {
    let registry = Registry::new(Settings::default());
    let at = |millis: i64| UnixMicros(START + millis.unsigned_abs() * 1000);
    let mut publisher = begin(&registry);
    let track = publisher.stream().track("v0").unwrap();
    let shown = || {
        let window = track.window();
        window
            .all()
            .flat_map(|segment| &segment.parts)
            .map(|part| part.samples.len())
            .sum::<usize>()
    };
    for number in 0..10 {
        push(&mut publisher, number, number as i64 * 1000);
    }
    assert_eq!(shown(), 9);
    registry.sweep(at(11_900));
    assert_eq!(shown(), 9, "the next may yet come");
    registry.sweep(at(12_100));
    assert_eq!(shown(), 10);
    // It lasts until 0.1 s before the next was expected. The next is shown in time.
    push(&mut publisher, 10, 12_200);
    push(&mut publisher, 11, 12_233);
    drop(publisher);
    let parts: Vec<_> = track.window().all().flat_map(|segment| segment.parts.clone()).collect();
    let times = (0..10).map(|number| number * 1000).chain([12_200, 12_233]);
    for (&(_, shown, _), time) in frames(&parts).iter().zip(times) {
        assert!(shown.abs_diff(time) <= 1, "shown at {shown}, not {time}");
    }
}

/// A new configuration begins a period, and may come sooner than the next frame was expected.
#[test]
fn a_frame_that_begins_a_period_sooner_than_expected_is_shown_in_time() {
    let registry = Registry::new(Settings::default());
    let mut publisher = begin(&registry);
    let times: Vec<i64> =
        (0..10).map(|number| number * 1000).chain([9_034, 9_067, 9_100]).collect();
    for (number, &time) in times.iter().enumerate() {
        if time == 9_034 {
            let codec = Codec::Avc(avc::Config::parse(testkit::avc_record(40).into()).unwrap());
            let now = UnixMicros(START + time.unsigned_abs() * 1000);
            publisher.track(0, codec, 1000, *b"und", now).unwrap();
        }
        push(&mut publisher, number, time);
    }
    let track = publisher.stream().track("v0").unwrap();
    drop(publisher);
    let parts: Vec<_> = track.window().all().flat_map(|segment| segment.parts.clone()).collect();
    assert_eq!(track.window().newest().unwrap().period, 1);
    for (&(_, shown, _), time) in frames(&parts).iter().zip(times) {
        assert!(shown.abs_diff(time) <= 1, "shown at {shown}, not {time}");
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
