//! The memory and the places that all streams share, and which streams give way when they run out.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

use std::sync::Arc;

use live::{PublishError, Publisher, PublisherInfo, Registry, Settings, Status, UnixMicros};
use media::codec::avc;
use media::{Codec, Sample};

const START: u64 = 1_700_000_000_000_000;

fn video_codec() -> Codec {
    Codec::Avc(avc::Config::parse(testkit::avc_record(31).into()).unwrap())
}

fn sample(millis: i64, sync: bool, size: usize) -> Sample {
    Sample { dts: millis, cts: 0, duration: 0, sync, data: vec![7; size].into() }
}

/// Publishes `frames` of 40 ms to each stream in turn. Each frame has `size` bytes, and every 25th
/// is a keyframe.
fn publish_side_by_side(
    publishers: &mut [(Publisher, usize)],
    frames: std::ops::Range<i64>,
    mut after_each: impl FnMut(UnixMicros),
) {
    for frame in frames {
        let now = UnixMicros(START + frame as u64 * 40_000);
        for (publisher, size) in &mut *publishers {
            publisher.sample(1, sample(frame * 40, frame % 25 == 0, *size), now).unwrap();
        }
        after_each(now);
    }
}

fn begin(registry: &Registry, name: &str) -> Result<Publisher, PublishError> {
    let info = PublisherInfo { peer: None, protocol: "test", rendition: None };
    let mut publisher = registry.publish(name, info, UnixMicros(START))?;
    publisher.track(1, video_codec(), 1000, *b"und", UnixMicros(START)).unwrap();
    Ok(publisher)
}

/// Seconds of media that playlists list, and that viewers can ask for.
fn listed_and_held(publisher: &Publisher) -> (f64, f64) {
    let track = publisher.stream().track("v0").unwrap();
    let window = track.window();
    let seconds = |ticks: u64| ticks as f64 / 90_000.0;
    let held = window.all().map(|segment| segment.duration).sum();
    (seconds(window.listed().map(|segment| segment.duration).sum()), seconds(held))
}

#[test]
fn memory_of_all_streams_is_bounded_and_the_largest_gives_way() {
    let limit = 40 << 20;
    let registry = Registry::with_memory(Settings::default(), limit);
    let sizes = [[10_000; 8].as_slice(), &[1_000; 2]].concat();
    let mut publishers: Vec<_> = sizes
        .into_iter()
        .enumerate()
        .map(|(i, size)| (begin(&registry, &format!("s{i}")).unwrap(), size))
        .collect();
    let mut refused = 0;
    publish_side_by_side(&mut publishers, 0..3000, |now| {
        let memory = registry.memory();
        assert!(memory.used <= memory.limit, "{memory:?}");
        if now.0 % 1_000_000 == 0 {
            registry.sweep(now);
            match begin(&registry, &format!("late{}", now.0)) {
                Err(PublishError::NoMemory { limit: said }) => {
                    assert_eq!(said, limit);
                    refused += 1;
                }
                Err(other) => panic!("{other}"),
                Ok(late) => drop(late),
            }
        }
    });
    assert!(refused >= 90, "of 120 seconds, {refused}");
    let memory = registry.memory();
    assert!(memory.given_up > 0 && memory.used > limit / 4 * 3, "{memory:?}");
    let windows: Vec<(f64, f64)> =
        publishers.iter().map(|(publisher, _)| listed_and_held(publisher)).collect();
    for (stream, (listed, held)) in windows.iter().enumerate() {
        assert!(*listed >= 12.0, "{stream} lists {listed} s");
        assert!(held >= listed);
    }
    // Eight streams of 250 kB/s would hold 84 MB. The others keep their whole windows.
    assert!(windows[..8].iter().all(|(_, held)| *held < 35.0), "{windows:?}");
    for (listed, held) in &windows[8..] {
        assert!(*listed >= 29.0 && *held >= 41.0, "{windows:?}");
    }
    drop(publishers);
    registry.sweep(UnixMicros(START + 200_000_000));
    registry.sweep(UnixMicros(START + 240_000_000));
    registry.sweep(UnixMicros(START + 280_000_000));
    assert_eq!(registry.memory().used, 0);
    assert!(begin(&registry, "late").is_ok());
}

/// The publishers' machine stands still for 20 s, and their streams are short of memory. Playlists count what is in
/// segments, and not that time (RFC 8216bis 6.2.2).
#[test]
fn streams_that_give_way_list_three_target_durations_after_a_pause() {
    let registry = Registry::with_memory(Settings::default(), 40 << 20);
    // 30 s of each are 9 MB.
    let mut publishers: Vec<_> =
        (0..5).map(|i| (begin(&registry, &format!("s{i}")).unwrap(), 12_000)).collect();
    let mut look = |frames| {
        publish_side_by_side(&mut publishers, frames, |_| {});
        for (publisher, _) in &publishers {
            let (listed, _) = listed_and_held(publisher);
            assert!(listed >= 12.0, "{listed} s");
        }
    };
    look(0..1500);
    let given_up = registry.memory().given_up;
    assert!(given_up > 0);
    for frame in 2000..2500 {
        look(frame..frame + 1);
    }
    assert!(registry.memory().given_up > given_up);
}

/// A rendition whose publisher does not return gives its memory back, while another rendition of
/// its stream goes on and keeps its own.
#[test]
fn a_rendition_that_left_gives_its_memory_back_while_its_stream_goes_on() {
    let settings = Settings::default();
    let reconnect = settings.reconnect;
    let registry = Registry::new(settings);
    let mut stays = vec![(begin(&registry, "one").unwrap(), 2_000)];
    publish_side_by_side(&mut stays, 0..1500, |now| registry.sweep(now));
    let alone = registry.memory().used;

    let info = PublisherInfo { peer: None, protocol: "test", rendition: Some("high".to_owned()) };
    let mut leaves = registry.publish("one", info, at(1500)).unwrap();
    leaves.track(1, video_codec(), 1000, *b"und", at(1500)).unwrap();
    let mut both = vec![stays.remove(0), (leaves, 10_000)];
    publish_side_by_side(&mut both, 1500..3000, |now| registry.sweep(now));
    let stream = both[0].0.stream().clone();
    let share = registry.memory().used - alone;
    let media: usize =
        stream.track("v1").unwrap().window().all().map(|segment| segment.len()).sum();
    // 250 kB/s, for 42 s or more.
    assert!(media > 42 * 250_000 && share >= media as u64, "{share} bytes for {media} of media");

    drop(both.pop());
    let last = at(2999);
    let is_there = || stream.state().tracks.iter().any(|track| track.name == "v1");
    publish_side_by_side(&mut both, 3000..4500, |now| {
        registry.sweep(now);
        assert_eq!(stream.state().status, Status::Live);
        // Until then its publisher may come back.
        let kept = now.since(last) < reconnect;
        assert_eq!(is_there(), kept, "{:?} after its last frame", now.since(last));
        let used = registry.memory().used;
        // What stays grows and shrinks by the segment being made and the slabs around it.
        let wanted = if kept { alone + share } else { alone };
        let off = used.abs_diff(wanted);
        assert!(off < share / 10, "{used} bytes instead of {wanted}, of which {share} leave");
    });
    let (listed, held) = listed_and_held(&both[0].0);
    assert!(listed >= 29.0 && held >= 41.0, "{listed} s of {held} s");
}

/// If not even three target durations of each stream fit, the stream that holds most is refused
/// more.
#[test]
fn a_stream_that_cannot_give_way_any_further_is_refused_more_and_others_are_not() {
    let limit = 8 << 20;
    let registry = Registry::with_memory(Settings::default(), limit);
    let mut small = vec![(begin(&registry, "small").unwrap(), 1_000)];
    publish_side_by_side(&mut small, 0..250, |_| {});
    let mut large = begin(&registry, "large").unwrap();
    // There is only one keyframe and hardly any time passes: the first segment only grows.
    let now = UnixMicros(START + 250 * 40_000);
    let refused = (0..10_000).find_map(|frame| {
        let result = large.sample(1, sample(frame, frame == 0, 20_000), now);
        assert!(registry.memory().used <= limit);
        result.err()
    });
    let refused = refused.expect("there is a limit").to_string();
    assert_eq!(refused, "packaging failed: the memory for live streams is used up");
    let registry = &registry;
    publish_side_by_side(&mut small, 250..2000, |_| assert!(registry.memory().used <= limit));
    let (listed, held) = listed_and_held(&small[0].0);
    assert!(listed >= 29.0 && held >= 41.0, "{listed} s, {held} s");
}

/// When `frame` of [`publish_side_by_side`] comes.
fn at(frame: i64) -> UnixMicros {
    UnixMicros(START + frame as u64 * 40_000)
}

/// Published streams keep whole windows as long as any stream without a publisher holds media.
#[test]
fn ended_streams_give_way_first_in_the_order_they_ended() {
    let limit = 48 << 20;
    let registry = Registry::with_memory(Settings::default(), limit);
    let stream = |name: &str, size: usize| (begin(&registry, name).unwrap(), size);
    // Each has 250 kB/s: 10 MB in the window and in the segments kept after it.
    let mut gone = vec![stream("first", 10_000), stream("second", 10_000)];
    let mut there = vec![stream("large", 10_000), stream("small", 1_000)];
    publish_side_by_side(&mut gone, 0..1250, |_| {});
    let known: Vec<_> = gone.iter().map(|(publisher, _)| publisher.stream().clone()).collect();
    let held = |stream: &live::Stream| {
        let tracks = &stream.state().tracks;
        tracks.iter().map(|track| track.window().all().count()).sum::<usize>()
    };
    let (first, second) = (&known[0], &known[1]);
    gone.remove(0);
    gone.remove(0);
    let all = held(first);
    assert!(all > 15, "{all}");

    publish_side_by_side(&mut there, 1250..2500, |_| {
        assert!(registry.memory().used <= limit);
        assert!(held(second) == all || held(first) == 0, "who left first gives way first");
    });
    assert_eq!(held(first), all, "there was room");
    let given_up = registry.memory().given_up;
    // Two streams come later, and others for a moment.
    there.extend([stream("late", 10_000), stream("later", 5_000)]);
    publish_side_by_side(&mut there, 2500..4000, |now| {
        assert!(registry.memory().used <= limit);
        assert!(held(second) == all || held(first) == 0, "who left first gives way first");
        if now.0 % 1_000_000 == 0 {
            drop(begin(&registry, &format!("moment{}", now.0)).expect("there is room"));
        }
    });
    assert!(registry.memory().given_up > given_up);
    assert_eq!((held(first), first.state().status), (0, Status::Ended));
    for (publisher, _) in &there {
        let (listed, held) = listed_and_held(publisher);
        let name = publisher.stream().name();
        assert!(listed >= 29.0 && held >= 41.0, "{name} lists {listed} s of {held} s");
    }
}

/// Streams that are published for a moment, with one frame each, take no memory from those that
/// stay and refuse nobody.
#[test]
fn names_published_for_a_moment_refuse_nobody() {
    let limit = 16 << 20;
    let registry = Registry::with_memory(Settings::default(), limit);
    let mut stays = vec![(begin(&registry, "stays").unwrap(), 2_000)];
    publish_side_by_side(&mut stays, 0..1500, |_| {});
    for number in 0..3000 {
        let frame = 1500 + number / 4;
        let mut moment = begin(&registry, &format!("m{number}")).expect("there is room");
        for of_it in 0..8 {
            moment.sample(1, sample(of_it * 40, of_it == 0, 3_000), at(frame)).unwrap();
        }
        drop(moment);
        if number % 4 == 0 {
            publish_side_by_side(&mut stays, frame..frame + 1, |_| {});
        }
        if number % 100 == 0 {
            registry.sweep(at(frame));
        }
        assert!(registry.memory().used <= limit);
    }
    let (listed, held) = listed_and_held(&stays[0].0);
    assert!(listed >= 29.0 && held >= 41.0, "{listed} s of {held} s");
}

/// A publisher that returns to a stream that had to end begins it anew, with numbers that viewers
/// do not know yet.
#[test]
fn a_stream_that_gave_way_altogether_begins_anew_when_its_publisher_returns() {
    let registry = Registry::with_memory(Settings::default(), 8 << 20);
    let mut one = vec![(begin(&registry, "returns").unwrap(), 1_000)];
    publish_side_by_side(&mut one, 0..250, |_| {});
    let stream = one[0].0.stream().clone();
    let track = stream.track("v0").unwrap();
    let newest = track.window().newest().unwrap().msn;
    drop(one);
    assert_eq!(stream.state().status, Status::Offline);
    // All frames come at one time: no part is made of them before memory runs out.
    let mut large = begin(&registry, "large").unwrap();
    let full = (0..1000)
        .find_map(|frame| large.sample(1, sample(frame, frame == 0, 20_000), at(250)).err());
    assert!(full.is_some());
    assert_eq!(stream.state().status, Status::Ended);
    let window = track.window();
    assert!(window.ended && window.all().next().is_none());
    drop(large);

    let mut one = vec![(begin(&registry, "returns").unwrap(), 1_000)];
    assert!(!Arc::ptr_eq(one[0].0.stream(), &stream));
    publish_side_by_side(&mut one, 250..300, |_| {});
    let first = one[0].0.stream().track("v0").unwrap().window().all().next().unwrap().msn;
    assert!(first > newest, "{first} after {newest}");
}

/// A form of a part that is as long as the part.
fn form(part: &live::Part) -> Option<bytes::Bytes> {
    let make = || Ok::<_, std::convert::Infallible>(part.region.as_ref().to_vec());
    part.flv.get_or_make(part, make).unwrap()
}

fn newest(stream: &live::Stream) -> Arc<live::Part> {
    let window = stream.track("v0").unwrap().window();
    window.newest().unwrap().parts.last().unwrap().clone()
}

/// All viewers that need another form of a part share one. If there is no memory for it, nobody
/// gets one.
#[test]
fn viewers_share_the_forms_of_parts_and_get_none_that_there_is_no_room_for() {
    let limit = 8 << 20;
    let registry = Registry::with_memory(Settings::default(), limit);
    let mut one = vec![(begin(&registry, "one").unwrap(), 1_000)];
    publish_side_by_side(&mut one, 0..50, |_| {});
    let stream = one[0].0.stream().clone();
    let part = newest(&stream);
    let used = registry.memory().used;
    let shared = form(&part).unwrap();
    assert_eq!(registry.memory().used, used + shared.len() as u64);
    assert_eq!(form(&part).unwrap().as_ptr(), shared.as_ptr());
    assert_eq!(registry.memory().used, used + shared.len() as u64);

    // The form lives until the slowest viewer drops it, even after the part has left the window.
    drop(part);
    publish_side_by_side(&mut one, 50..1500, |_| {});
    let used = registry.memory().used;
    let length = shared.len() as u64;
    drop(shared);
    assert_eq!(registry.memory().used, used - length);

    // A stream whose parts are all held, as by slow viewers, until memory runs out.
    let mut large = begin(&registry, "large").unwrap();
    let large_stream = large.stream().clone();
    let mut parts: Vec<Arc<live::Part>> = Vec::new();
    for frame in 1500.. {
        if large.sample(1, sample(frame * 40, frame % 25 == 0, 10_000), at(frame)).is_err() {
            break;
        }
        let window = large_stream.track("v0").unwrap().window();
        let part = window.newest().and_then(|newest| newest.parts.last());
        parts.extend(
            part.filter(|part| parts.last().is_none_or(|last| !Arc::ptr_eq(last, part))).cloned(),
        );
    }
    assert!(registry.memory().used <= limit);
    let unneeded = || -> Result<Vec<u8>, ()> { panic!("it is made in vain") };
    assert_eq!(parts[1].rtmp.get_or_make(&parts[1], unneeded), Ok(None));
    // There is memory again.
    drop((parts, large));
    publish_side_by_side(&mut one, 1500..1600, |_| {});
    assert!(form(&newest(&stream)).is_some());
}

/// A publisher that returns in time finds its stream unchanged. The stream no longer counts as one
/// without a publisher.
#[test]
fn a_publisher_that_is_back_gives_way_no_longer() {
    let limit = 16 << 20;
    let registry = Registry::with_memory(Settings::default(), limit);
    let mut back = vec![(begin(&registry, "back").unwrap(), 1_000)];
    publish_side_by_side(&mut back, 0..1250, |_| {});
    drop(back);
    let mut back = vec![(begin(&registry, "back").unwrap(), 1_000)];
    let mut large = vec![(begin(&registry, "large").unwrap(), 20_000)];
    for frame in 1250..3000 {
        publish_side_by_side(&mut back, frame..frame + 1, |_| {});
        publish_side_by_side(&mut large, frame..frame + 1, |_| {});
    }
    assert!(registry.memory().given_up > 0);
    let (listed, held) = listed_and_held(&back[0].0);
    assert!(listed >= 29.0 && held >= 41.0, "{listed} s of {held} s");
}

#[test]
fn streams_that_lived_shortest_give_way_when_all_places_are_taken() {
    let registry = Registry::new(Settings::default());
    let publish = |name: &str, frames| {
        let mut publishers = [(begin(&registry, name).unwrap(), 100)];
        publish_side_by_side(&mut publishers, 0..frames, |_| {});
        publishers.into_iter().next().unwrap().0
    };
    // Somebody publishes this stream.
    let live = publish("live", 2);
    // The encoder of this stream has lost its connection and will return.
    drop(publish("kept", 250));
    // A viewer waits for the first media of this stream, whose publisher left without any.
    let info = PublisherInfo { peer: None, protocol: "test", rendition: None };
    drop(registry.publish("empty", info, UnixMicros(START)).unwrap());
    let empty = registry.stream("empty").unwrap();
    for number in 3..10_000 {
        drop(publish(&format!("momentary{number}"), 3));
    }
    assert_eq!(registry.streams().len(), 10_000);
    // Nobody has swept, and publishers are admitted all the same.
    let late: Vec<_> =
        (0..150).map(|number| begin(&registry, &format!("late{number}")).unwrap()).collect();
    // Each takes one place.
    assert_eq!(registry.streams().len(), 10_000);
    assert!(late.iter().all(|late| registry.stream(late.stream().name()).is_some()));
    assert_eq!(empty.state().status, Status::Ended);
    assert!(registry.stream("empty").is_none());
    let kept = registry.stream("kept").expect("others lived shorter");
    assert!(kept.track("v0").is_some());
    assert_eq!(live.stream().state().status, Status::Live);
    assert!(registry.stream("live").is_some());
}
