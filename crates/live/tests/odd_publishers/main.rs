//! Publishers unlike any encoder, as a hostile peer may be.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

mod absent;
mod clocks;
mod hanging;
mod leaving;
mod silence;

use std::time::Duration;

use bytes::Bytes;
use live::{PublishError, Publisher, PublisherInfo, Registry, Settings, UnixMicros};
use media::codec::{aac, avc};
use media::{Codec, Sample};

const START: u64 = 1_700_000_000_000_000;

fn video_codec(level: u8) -> Codec {
    Codec::Avc(avc::Config::parse(testkit::avc_record(level).into()).unwrap())
}

/// AAC-LC, stereo.
fn audio_codec(rate: u32) -> Codec {
    let index: u16 = match rate {
        48_000 => 3,
        44_100 => 4,
        _ => 11,
    };
    let config = 2 << 11 | index << 7 | 2 << 3;
    Codec::Aac(aac::Config::parse(Bytes::copy_from_slice(&config.to_be_bytes())).unwrap())
}

fn publisher(registry: &Registry) -> Publisher {
    let info = PublisherInfo { peer: None, protocol: "test", rendition: None };
    registry.publish("x", info, UnixMicros(START)).unwrap()
}

fn sample(millis: i64, sync: bool, size: usize) -> Sample {
    Sample { dts: millis, cts: 0, duration: 0, sync, data: vec![7; size].into() }
}

#[test]
fn audio_that_changes_its_sampling_rate_stays_in_time() {
    for (before, after) in [(48_000, 44_100), (44_100, 48_000), (48_000, 8_000), (8_000, 48_000)] {
        let registry = Registry::new(Settings::default());
        let mut publisher = publisher(&registry);
        let mut now = START;
        let mut time = 0.0;
        for rate in [before, after] {
            publisher.track(1, audio_codec(rate), 1000, *b"und", UnixMicros(now)).unwrap();
            let until = time + 60.0;
            while time < until {
                now = START + (time * 1e6) as u64;
                let unit = sample((time * 1000.0_f64).round() as i64, true, 50);
                publisher.sample(1, unit, UnixMicros(now)).unwrap();
                time += 1024.0 / f64::from(rate);
            }
        }
        let track = publisher.stream().track("a0").unwrap();
        let (window, timescale) = (track.window(), f64::from(track.header().track.timescale));
        for segment in window.all() {
            assert_eq!(f64::from(segment.header.track.timescale), timescale);
        }
        let end = window.newest().unwrap().end() as f64 / timescale - 1.0;
        assert!((end - time).abs() < 0.3, "{before} to {after}: at {end} s instead of {time} s");
        // Every access unit is there, and one is decoded after the other.
        let mut last = None;
        let mut units = 0;
        for segment in window.all().filter(|segment| segment.start as f64 / timescale > 70.0) {
            for part in &segment.parts {
                assert!(last.is_none_or(|end| end == part.start), "parts abut");
                last = Some(part.start + i64::from(part.duration));
                units += part.samples.len();
            }
        }
        let first = window.all().find(|s| s.start as f64 / timescale > 70.0).unwrap();
        let seconds = end + 1.0 - first.start as f64 / timescale;
        let expected = seconds * f64::from(after) / 1024.0;
        assert!((units as f64 - expected).abs() < 1.5, "{units} units instead of {expected}");
        let captured = window.newest().unwrap().captured.0;
        assert!(now.abs_diff(captured) < 5_000_000, "{before} to {after}");
    }
}

#[test]
fn segment_numbers_do_not_come_again() {
    // This holds for any segment target.
    for target in [2000, 500, 100] {
        let settings =
            Settings { segment_target: Duration::from_millis(target), ..Settings::default() };
        let registry = Registry::new(settings.clone());
        let mut now = UnixMicros(START);
        let mut last = 0;
        for _ in 0..2 {
            let info = PublisherInfo { peer: None, protocol: "test", rendition: None };
            let mut publisher = registry.publish("x", info, now).unwrap();
            let mut first = None;
            for i in 0..3000 {
                publisher.track(0, video_codec(31), 1000, *b"und", now).unwrap();
                publisher.sample(0, sample(i * 33, true, 10), now).unwrap();
                now = now.after(Duration::from_micros(33_333));
                let track = publisher.stream().track("v0").unwrap();
                first = first.or(track.window().newest().map(|segment| segment.msn));
            }
            let first = first.unwrap();
            assert!(first > last, "{target} ms: {first} after {last}");
            let stream = publisher.stream().clone();
            drop(publisher);
            registry.sweep(now);
            registry.sweep(now.after(settings.reconnect));
            assert!(stream.track("v0").unwrap().window().ended);
            last = stream.track("v0").unwrap().window().newest().unwrap().msn;
        }
    }
}

/// Bytes of a track's window.
fn held(track: &live::Track) -> usize {
    track.window().all().map(|segment| segment.len()).sum()
}

#[test]
fn a_clock_that_stands_still_does_not_fill_the_memory() {
    for step in [0, -190, 1] {
        let registry = Registry::new(Settings::default());
        let mut publisher = publisher(&registry);
        publisher.track(0, video_codec(31), 1000, *b"und", UnixMicros(START)).unwrap();
        let mut clock = 1 << 40;
        for i in 0..10 * 60 * 30 {
            let now = UnixMicros(START + i * 33_333);
            publisher.sample(0, sample(clock, i % 60 == 0, 4000), now).unwrap();
            clock += if i > 60 { step } else { (i as i64 + 1) * 100 / 3 - i as i64 * 100 / 3 };
        }
        let track = publisher.stream().track("v0").unwrap();
        let seconds = held(&track) / (4000 * 30);
        assert!(seconds < 240, "step {step}: {seconds} s of media are held");
    }
}

#[test]
fn frames_further_apart_than_segments_may_last_break_no_promise() {
    for distance in [3_500, 5_000, 9_000] {
        let registry = Registry::new(Settings::default());
        let mut publisher = publisher(&registry);
        publisher.track(0, video_codec(31), 1000, *b"und", UnixMicros(START)).unwrap();
        for i in 0..20u64 {
            let now = UnixMicros(START + i * distance * 1000);
            publisher.sample(0, sample((i * distance) as i64, true, 100), now).unwrap();
            let track = publisher.stream().track("v0").unwrap();
            let limit = track.part_limit().unwrap_or(10 * 90_000).into();
            let longest = publisher.stream().target_duration().as_secs() * 90_000;
            assert!(limit <= longest);
            for segment in track.window().all() {
                assert!(
                    segment.duration <= longest + 45_000,
                    "{distance}: {} ticks",
                    segment.duration
                );
                for part in &segment.parts {
                    assert!(
                        u64::from(part.duration) <= limit,
                        "{distance}: part of {} ticks, longer than {limit}",
                        part.duration
                    );
                }
            }
        }
    }
}

/// Without a limit, a publisher whose clock jumps, whose tracks change, or that returns again and
/// again would make players start anew each time, and add a period each time to playlists and
/// manifests.
#[test]
fn a_publisher_that_makes_too_many_periods_is_refused() {
    /// Publishes a little; the number counts the calls.
    type Turn<'a> = &'a dyn Fn(&Registry, &mut Option<Publisher>, i64) -> Result<(), String>;
    let turn = |how: Turn<'_>| {
        let registry = Registry::new(Settings::default());
        let mut publisher = None;
        let refused = (0..100).find_map(|i| how(&registry, &mut publisher, i).err());
        let track = registry.stream("x").unwrap().track("v0").unwrap();
        let periods = track.window().newest().unwrap().period;
        assert!((5..=20).contains(&periods), "{periods} periods");
        refused.unwrap()
    };
    let publish = |publisher: &mut Publisher, level: u8, began: i64, now: i64| {
        let at = |millis: i64| UnixMicros(START + (now + millis) as u64 * 1000);
        publisher
            .track(0, video_codec(level), 1000, *b"und", at(0))
            .map_err(|error| error.to_string())?;
        for frame in 0..10 {
            publisher
                .sample(0, sample(began + frame * 33, frame == 0, 100), at(frame * 33))
                .map_err(|error| error.to_string())?;
        }
        Ok(())
    };
    let jumps = turn(&|registry, held, i| {
        let held = held.get_or_insert_with(|| publisher(registry));
        publish(held, 31, i % 2 * 100_000, i * 500)
    });
    let changes = turn(&|registry, held, i| {
        let held = held.get_or_insert_with(|| publisher(registry));
        publish(held, 30 + (i % 2) as u8, i * 500, i * 500)
    });
    let returns = turn(&|registry, held, i| {
        *held = None;
        let info = PublisherInfo { peer: None, protocol: "test", rendition: None };
        let now = UnixMicros(START + i as u64 * 500_000);
        let mut publisher = registry.publish("x", info, now).map_err(|error| error.to_string())?;
        publish(&mut publisher, 31, 0, i * 500)
    });
    for why in [jumps, changes, returns] {
        assert!(why.contains("too often within a minute"), "{why}");
    }
}

/// One publisher of a stream does not affect the tracks of another.
#[test]
fn another_publishers_clock_cuts_nobody_elses_tracks_and_strangers_may_not_join() {
    let registry = Registry::new(Settings::default());
    let info = |peer: &str, rendition: Option<&str>| PublisherInfo {
        peer: Some(peer.parse().unwrap()),
        protocol: "test",
        rendition: rendition.map(str::to_owned),
    };
    let at = |millis: i64| UnixMicros(START + millis as u64 * 1000);
    let publish = |info| registry.publish("x", info, at(0));
    let mut first = publish(info("192.0.2.1:1000", None)).unwrap();
    let stranger = publish(info("192.0.2.2:1000", Some("evil"))).unwrap_err();
    assert_eq!(stranger, PublishError::Foreign);
    let mut second = publish(info("192.0.2.1:1001", Some("low"))).unwrap();
    first.track(0, video_codec(31), 1000, *b"und", at(0)).unwrap();
    second.track(0, video_codec(30), 1000, *b"und", at(0)).unwrap();
    let (mut refused, mut clock) = (None, 0);
    for frame in 0..1800i64 {
        let now = at(frame * 33);
        first.sample(0, sample(frame * 33, frame % 60 == 0, 100), now).unwrap();
        clock += if frame % 90 == 89 { 60_000 } else { 33 };
        if refused.is_none() {
            refused = second.sample(0, sample(clock, frame % 60 == 0, 50), now).err();
        }
    }
    let stream = registry.stream("x").unwrap();
    let (high, low) = (stream.track("v0").unwrap(), stream.track("v1").unwrap());
    for track in [&high, &low] {
        assert!(track.window().all().all(|segment| segment.period == 0), "{}", track.name);
    }
    assert!(high.window().all().all(|segment| segment.duration <= 180_090));
    // Each jump was moved to where the stream is.
    let end = |track: &live::Track| track.window().newest().unwrap().end() / 90_000;
    assert!(end(&high).abs_diff(end(&low)) <= 2, "{} and {}", end(&high), end(&low));
    // The publisher leaves. After a while its track is removed, and its followers are told.
    drop(second);
    first.sample(0, sample(61_000, true, 100), at(61_000)).unwrap();
    first.sample(0, sample(70_000, true, 100), at(70_000)).unwrap();
    registry.sweep(at(70_500));
    assert!(!low.is_present() && high.is_present());
    // When nobody publishes, the stream waits for the track that was there to the end. The track
    // that had gone before does not become present again.
    drop(first);
    registry.sweep(at(71_000));
    assert!(!low.is_present() && high.is_present());
    let mut first = registry.publish("x", info("192.0.2.1:1002", None), at(72_000)).unwrap();
    first.track(0, video_codec(31), 1000, *b"und", at(72_000)).unwrap();
    first.sample(0, sample(0, true, 100), at(72_000)).unwrap();
    registry.sweep(at(91_000));
    assert!(stream.track("v1").is_none() && low.window().ended);
    assert!(!high.window().ended);
    drop(first);
    registry.sweep(at(92_000));
    assert_eq!(stream.state().tracks.len(), 1);
    assert!(!low.is_present() && high.is_present());
}

/// A publisher of a rendition whose clock runs ahead, in steps too small for jumps, moves nobody
/// else. Nor does one whose configuration changes too often use up what the main publisher may.
#[test]
fn a_rendition_that_runs_ahead_or_changes_does_not_move_the_main_publisher() {
    let registry = Registry::new(Settings::default());
    let publish = |rendition: Option<&str>| {
        let rendition = rendition.map(str::to_owned);
        let info = PublisherInfo { peer: None, protocol: "test", rendition };
        registry.publish("x", info, UnixMicros(START)).unwrap()
    };
    let (mut first, mut second) = (publish(None), publish(Some("low")));
    let at = |millis: i64| UnixMicros(START + millis.unsigned_abs() * 1000);
    first.track(0, video_codec(31), 1000, *b"und", at(0)).unwrap();
    second.track(0, video_codec(30), 1000, *b"und", at(0)).unwrap();
    let mut refused = None;
    for frame in 0..600i64 {
        let now = at(frame * 33);
        first.sample(0, sample(frame * 33, frame % 60 == 0, 100), now).unwrap();
        second.sample(0, sample(frame * 9_000, frame % 60 == 0, 50), now).unwrap();
        if refused.is_none() {
            let codec = video_codec(30 + (frame % 2) as u8);
            refused = second.track(0, codec, 1000, *b"und", now).err();
        }
    }
    assert!(refused.unwrap().to_string().contains("too often within a minute"));
    let ahead = registry.stream("x").unwrap().track("v1").unwrap().window().newest().unwrap().end();
    assert!(ahead > 3_600 * 90_000, "{} s", ahead / 90_000);
    first.sample(0, sample(7_200_000, true, 100), at(600 * 33)).unwrap();
    let window = registry.stream("x").unwrap().track("v0").unwrap().window();
    let newest = window.newest().unwrap();
    assert!(newest.end() < 22 * 90_000, "{} s", newest.end() / 90_000);
}

#[test]
fn a_stream_has_so_many_publishers_and_no_more() {
    let registry = Registry::new(Settings::default());
    let publish = |number: u32| {
        let rendition = Some(format!("r{number}"));
        let info = PublisherInfo { peer: None, protocol: "test", rendition };
        registry.publish("x", info, UnixMicros(START))
    };
    let main = || PublisherInfo { peer: None, protocol: "test", rendition: None };
    // The main publisher does not count.
    let first = registry.publish("x", main(), UnixMicros(START)).unwrap();
    let mut publishers: Vec<_> = (0..16).map(|number| publish(number).unwrap()).collect();
    assert_eq!(publish(16).unwrap_err(), PublishError::TooManyPublishers);
    // The source itself is not kept out.
    drop(first);
    drop(registry.publish("x", main(), UnixMicros(START)).unwrap());
    publishers.pop();
    publish(16).unwrap();
}

/// Each new part copies the list of its segment's parts, and playlists name them all.
#[test]
fn tiny_frames_on_a_clock_that_stands_still_make_no_endless_segment() {
    let registry = Registry::new(Settings::default());
    let mut publisher = publisher(&registry);
    publisher.track(0, video_codec(31), 1000, *b"und", UnixMicros(START)).unwrap();
    for i in 0..700_000 {
        let now = UnixMicros(START + i * 10);
        publisher.sample(0, sample(i.min(60) as i64 * 100 / 3, i == 0, 11), now).unwrap();
    }
    let window = publisher.stream().track("v0").unwrap().window();
    let parts: Vec<_> = window.all().map(|segment| segment.parts.len()).collect();
    assert!(parts.len() > 1 && parts.iter().all(|&parts| parts <= 513), "{parts:?}");
}

/// A phone changes its network, and so its address. A rendition made here from its stream does not
/// keep it out.
#[test]
fn a_publisher_may_return_from_another_address_beside_what_is_made_of_its_media() {
    let registry = Registry::new(Settings::default());
    let publish = |peer: &str| {
        let peer = Some(peer.parse().unwrap());
        let info = PublisherInfo { peer, protocol: "test", rendition: None };
        registry.publish("x", info, UnixMicros(START))
    };
    let first = publish("192.0.2.1:1000").unwrap();
    let stream = std::sync::Arc::clone(first.stream());
    let _made = stream.derive("low", Duration::from_secs(5), UnixMicros(START)).unwrap();
    drop(first);
    assert!(publish("192.0.2.2:1000").is_ok());
}

/// An encoder that publishes nothing but renditions, and whose address changed, is not kept out. A
/// stranger could take the stream by its name as well, as long as nobody publishes it.
#[test]
fn an_encoder_of_renditions_may_return_from_another_address() {
    let registry = Registry::new(Settings::default());
    let publish = |peer: &str, rendition: &str| {
        let (peer, rendition) = (Some(peer.parse().unwrap()), Some(rendition.to_owned()));
        let info = PublisherInfo { peer, protocol: "test", rendition };
        registry.publish("x", info, UnixMicros(START))
    };
    let (high, low) =
        (publish("192.0.2.1:1", "high").unwrap(), publish("192.0.2.1:2", "low").unwrap());
    drop(high);
    assert_eq!(publish("192.0.2.2:1", "high").unwrap_err(), PublishError::Foreign);
    drop(low);
    let _high = publish("192.0.2.2:2", "high").unwrap();
    let _low = publish("192.0.2.2:3", "low").unwrap();
    // Now the new address owns the stream.
    assert_eq!(publish("192.0.2.1:3", "other").unwrap_err(), PublishError::Foreign);
}

#[test]
fn a_new_language_makes_a_header_and_the_same_again_does_not() {
    let registry = Registry::new(Settings::default());
    let mut publisher = publisher(&registry);
    let languages = [*b"und", *b"und", *b"deu", *b"deu"];
    for (i, language) in languages.into_iter().enumerate() {
        let began = i as i64 * 5_000;
        let now = |millis: i64| UnixMicros(START + (began + millis) as u64 * 1000);
        publisher.track(1, audio_codec(8_000), 1000, language, now(0)).unwrap();
        for millis in (0..5_000).step_by(128) {
            publisher.sample(1, sample(began + millis, true, 50), now(millis)).unwrap();
        }
    }
    let track = publisher.stream().track("a0").unwrap();
    assert_eq!(track.header().track.language, *b"deu");
    let window = track.window();
    let first = &window.all().next().unwrap().header;
    let mut headers = vec![first.msn];
    headers.extend(window.all().map(|segment| segment.header.msn));
    headers.dedup();
    assert_eq!(headers, [first.msn, track.header().msn]);
    assert_eq!(first.track.language, *b"und");
    assert_eq!(window.all().filter(|segment| segment.discontinuity).count(), 1);
}

#[test]
fn a_number_used_for_audio_and_video_by_turns_goes_to_the_track_of_its_kind() {
    let registry = Registry::new(Settings::default());
    let mut publisher = publisher(&registry);
    for i in 0..200i64 {
        let now = UnixMicros(START + i as u64 * 100_000);
        let codec = if i % 20 < 10 { video_codec(31) } else { audio_codec(8_000) };
        let size = if i % 20 < 10 { 1_000 } else { 50 };
        publisher.track(0, codec, 1000, *b"und", now).unwrap();
        publisher.sample(0, sample(i * 100, true, size), now).unwrap();
    }
    let stream = std::sync::Arc::clone(publisher.stream());
    drop(publisher);
    for (name, size) in [("v0", 1_000), ("a0", 50)] {
        let window = stream.track(name).unwrap().window();
        let mut samples = window
            .all()
            .flat_map(|segment| &segment.parts)
            .flat_map(|part| part.samples.iter())
            .peekable();
        assert!(samples.peek().is_some(), "{name} is empty");
        // Silence replaces missing audio.
        let own = |found: u32| found == size || name == "a0" && found < 10;
        assert!(samples.all(|sample| own(sample.size)), "{name} holds samples of the other");
    }
}

#[test]
fn video_that_never_begins_does_not_keep_the_audio_from_viewers() {
    let registry = Registry::new(Settings::default());
    let mut publisher = publisher(&registry);
    publisher.track(0, video_codec(31), 1000, *b"und", UnixMicros(START)).unwrap();
    publisher.track(1, audio_codec(48_000), 1000, *b"und", UnixMicros(START)).unwrap();
    for i in 0..15 * 30 {
        let now = UnixMicros(START + i as u64 * 33_333);
        // There is no keyframe, and by this clock the wait for one never ends.
        publisher.sample(0, sample(0, false, 100), now).unwrap();
        publisher.sample(1, sample(i * 33, true, 50), now).unwrap();
        if i % 30 == 0 {
            registry.sweep(now);
        }
    }
    assert!(publisher.stream().is_ready());
    assert!(!publisher.stream().track("v0").unwrap().is_present());
}

#[test]
fn a_publisher_that_falls_silent_keeps_its_tracks_until_it_goes_on() {
    let registry = Registry::new(Settings::default());
    let mut publisher = publisher(&registry);
    publisher.track(0, video_codec(31), 1000, *b"und", UnixMicros(START)).unwrap();
    publisher.track(1, audio_codec(48_000), 1000, *b"und", UnixMicros(START)).unwrap();
    for second in 0..40 {
        // The publisher's network is interrupted for 25 s. Its connection survives.
        for i in (0..50).filter(|_| !(8..33).contains(&second)) {
            let millis = second * 1000 + i * 20;
            let now = UnixMicros(START + millis as u64 * 1000);
            publisher.sample(0, sample(millis, i % 50 == 0, 100), now).unwrap();
            publisher.sample(1, sample(millis, true, 50), now).unwrap();
        }
        registry.sweep(UnixMicros(START + (second as u64 + 1) * 1_000_000));
        for name in ["v0", "a0"] {
            let track = publisher.stream().track(name).unwrap();
            assert!(track.is_present(), "{name} is not offered after {second} s");
        }
    }
}

/// The table of pauses in README.md of this crate: a pause of up to a second, a longer one, and one
/// longer than a segment may last.
#[test]
fn a_pause_is_made_up_for_or_lasts_one_part_or_is_a_discontinuity() {
    let pauses = [(800, 0, 0), (3_000, 0, 1), (15_000, 1, 0)];
    let cases = pauses.into_iter().flat_map(|pause| [(pause, false), (pause, true)]);
    for ((pause, discontinuities, long_parts), audio_first) in cases {
        let registry = Registry::new(Settings::default());
        let mut publisher = publisher(&registry);
        let at = |millis: i64| UnixMicros(START + millis as u64 * 1000);
        publisher.track(0, video_codec(31), 1000, *b"und", at(0)).unwrap();
        publisher.track(1, audio_codec(48_000), 1000, *b"und", at(0)).unwrap();
        let stream = std::sync::Arc::clone(publisher.stream());
        let (mut units, mut shown) = (0, Vec::new());
        for frame in 0..600 {
            // The pause begins within a group of pictures.
            let millis = frame * 100 / 3 + if frame < 250 { 0 } else { pause };
            if !audio_first {
                publisher.sample(0, sample(millis, frame % 60 == 0, 100), at(millis)).unwrap();
            }
            shown.push(millis);
            if frame == 250 {
                units = millis * 48 / 1024;
            }
            while units * 1024 / 48 <= millis {
                publisher.sample(1, sample(units * 1024 / 48, true, 50), at(millis)).unwrap();
                units += 1;
            }
            if audio_first {
                publisher.sample(0, sample(millis, frame % 60 == 0, 100), at(millis)).unwrap();
            }
        }
        assert_eq!(stream.target_duration(), Duration::from_secs(4));
        drop(publisher);
        for (name, timescale) in [("v0", 90_000), ("a0", 48_000)] {
            let track = stream.track(name).unwrap();
            let (window, most) = (track.window(), track.part_limit().unwrap());
            let found = window.all().filter(|segment| segment.discontinuity).count();
            assert_eq!(found, discontinuities, "{pause} ms, {name}");
            let mut end = None;
            let mut long = Vec::new();
            for segment in window.all() {
                for part in &segment.parts {
                    let follows = end.is_none_or(|end| end == (segment.period, part.start));
                    let new = end.is_some_and(|(period, _)| period != segment.period);
                    assert!(follows || new, "{pause} ms, {name}: {end:?}, then {}", part.start);
                    end = Some((segment.period, part.start + i64::from(part.duration)));
                    if part.duration > most {
                        long.push(part.duration * 10 / timescale);
                    }
                }
            }
            if name == "a0" {
                assert!(long.is_empty(), "{pause} ms: {long:?} tenths of a second");
                continue;
            }
            // The long part has the frames before the pause, too, but no more than a part has.
            assert!(
                long.len() == long_parts && long.iter().all(|part| (30..=32).contains(part)),
                "{pause} ms: {long:?} tenths of a second"
            );
            // Each frame is shown at its time.
            let samples = window.all().flat_map(|segment| &segment.parts);
            let samples = samples.flat_map(|part| part.samples.iter());
            let times: Vec<i64> = samples.map(|s| s.dts + i64::from(s.cts)).collect();
            assert_eq!(times.len(), shown.len());
            for (time, millis) in times.iter().zip(&shown) {
                let late = time - times[0] - millis * 90;
                assert!(late.abs() <= 90, "{pause} ms: {millis} ms shown {late} ticks late");
            }
        }
    }
}

/// ffmpeg sends the new configuration of each track right before its next sample. The source may be another one, whose
/// clock is 5 s behind.
#[test]
fn configurations_that_change_one_after_the_other_make_one_period() {
    for behind in [0, 5_000] {
        let registry = Registry::new(Settings::default());
        let mut publisher = publisher(&registry);
        let mut units = 0;
        for frame in 0..600i64 {
            let millis = frame * 100 / 3;
            let now = UnixMicros(START + millis as u64 * 1000);
            let (level, behind) = if frame >= 300 { (40, behind) } else { (31, 0) };
            publisher.track(0, video_codec(level), 1000, *b"und", now).unwrap();
            publisher.sample(0, sample(millis - behind, frame % 60 == 0, 100), now).unwrap();
            // The audio's comes some frames later.
            let language = if frame >= 303 { *b"deu" } else { *b"und" };
            publisher.track(1, audio_codec(48_000), 1000, language, now).unwrap();
            while frame % 4 == 3 && units * 1024 / 48 <= millis {
                let unit = sample(units * 1024 / 48 - behind, true, 50);
                publisher.sample(1, unit, now).unwrap();
                units += 1;
            }
        }
        for name in ["v0", "a0"] {
            let window = publisher.stream().track(name).unwrap().window();
            let begun: Vec<_> = window.all().filter(|segment| segment.discontinuity).collect();
            assert_eq!(begun.len(), 1, "{name}, {behind} ms behind");
            assert_eq!(begun[0].period, 1, "{name}, {behind} ms behind");
            assert!(window.listed().count() >= 9, "{name}, {behind} ms behind");
        }
    }
}

/// Frames of a millisecond, each a keyframe, for a minute, then a clock that jumps with each frame.
/// Playlists list no more than the window and the target durations allow.
#[test]
fn frames_of_a_millisecond_and_jumps_leave_playlists_short() {
    let registry = Registry::new(Settings::default());
    let mut publisher = publisher(&registry);
    let at = |millis: i64| UnixMicros(START + millis as u64 * 1000);
    publisher.track(0, video_codec(31), 1000, *b"und", at(0)).unwrap();
    let track = publisher.stream().track("v0").unwrap();
    let listed = || {
        let window = track.window();
        (window.all().count(), window.all().map(|segment| segment.parts.len()).sum::<usize>())
    };
    for millis in 0..60_000 {
        publisher.sample(0, sample(millis, true, 200), at(millis)).unwrap();
    }
    let (segments, parts) = listed();
    assert!(segments <= 32 && parts <= 400, "{segments} segments, {parts} parts");
    let jump = |i: i64| 60_000 + i + i % 2 * 100_000;
    let refused = (0..10_000)
        .find_map(|i| publisher.sample(0, sample(jump(i), true, 200), at(60_000 + i)).err());
    assert!(refused.unwrap().to_string().contains("too often within a minute"));
    let (segments, parts) = listed();
    assert!(segments <= 64 && parts <= 450, "{segments} segments, {parts} parts");
}

/// Keyframes up to ten seconds apart, in any order. Players begin at any listed segment, and the
/// target duration that they were told holds.
#[test]
fn segments_begin_with_keyframes_however_far_apart_up_to_ten_seconds() {
    let distances = [8000, 10_000, 7000, 9500, 300, 10_000, 2000, 9900, 7100, 10_000];
    let mut keyframes = vec![0];
    for distance in distances {
        keyframes.push(keyframes.last().unwrap() + distance);
    }
    let registry = Registry::new(Settings::default());
    let mut publisher = publisher(&registry);
    let at = |millis: i64| UnixMicros(START + millis as u64 * 1000);
    publisher.track(0, video_codec(31), 1000, *b"und", at(0)).unwrap();
    publisher.track(1, audio_codec(48_000), 1000, *b"und", at(0)).unwrap();
    let stream = std::sync::Arc::clone(publisher.stream());
    let (track, audio) = (stream.track("v0").unwrap(), stream.track("a0").unwrap());
    let (mut told, mut seen) = (None, std::collections::BTreeSet::new());
    let mut units = 0;
    for millis in (0..*keyframes.last().unwrap()).step_by(40) {
        let due = keyframes.iter().any(|at| (millis - 39..=millis).contains(at));
        publisher.sample(0, sample(millis, due, 100), at(millis)).unwrap();
        while units * 64 / 3 <= millis {
            publisher.sample(1, sample(units * 64 / 3, true, 50), at(millis)).unwrap();
            units += 1;
        }
        if !stream.is_settled() {
            continue;
        }
        let target = stream.target_duration();
        assert_eq!(*told.get_or_insert(target), target, "at {millis} ms");
        let window = track.window();
        for segment in window.listed() {
            seen.insert(segment.msn);
            assert!(segment.parts[0].independent, "segment {} at {millis} ms", segment.msn);
            assert!(segment.duration <= target.as_secs() * 90_000 + 45_000, "{}", segment.duration);
        }
    }
    assert!(seen.len() >= 8, "{seen:?}");
    // Audio waits for the keyframes, too. Short segments would be left: GStreamer passes over them.
    let lasted = |segment: &std::sync::Arc<live::Segment>| segment.duration * 1000 / 48_000;
    let short: Vec<u64> = audio.window().listed().map(lasted).filter(|&ms| ms < 1200).collect();
    assert!(short.is_empty(), "{short:?} ms");
}

/// How much later than the first listed segment of video the first listed one of audio is
/// presented, in milliseconds, 9 s after the first frame. The audio began `lead` milliseconds before
/// the video.
fn listed_after_audio_alone(lead: u64) -> i64 {
    let registry = Registry::new(Settings::default());
    let mut publisher = publisher(&registry);
    publisher.track(0, video_codec(31), 1000, *b"und", UnixMicros(START)).unwrap();
    publisher.track(1, audio_codec(48_000), 1000, *b"und", UnixMicros(START)).unwrap();
    for millis in 0..lead + 9_000 {
        let now = UnixMicros(START + millis * 1000);
        // An access unit lasts 21 1/3 ms.
        if millis * 3 % 64 < 3 {
            publisher.sample(1, sample(millis as i64, true, 9), now).unwrap();
        }
        if millis >= lead && (millis - lead).is_multiple_of(40) {
            let sync = (millis - lead).is_multiple_of(2000);
            publisher.sample(0, sample(millis as i64, sync, 9), now).unwrap();
        }
        if millis.is_multiple_of(1000) {
            registry.sweep(now);
        }
    }
    let first = |name| {
        let track = publisher.stream().track(name).unwrap();
        let first = track.window().listed().next().unwrap().presents;
        first * 1000 / i64::from(track.header().track.timescale)
    };
    first("a0") - first("v0")
}

/// hls.js does not place audio from before its video (docs/player.md).
#[test]
fn playlists_of_a_new_stream_begin_with_its_video() {
    let listed = listed_after_audio_alone(3_000);
    assert!((-250..50).contains(&listed), "{listed} ms");
    // So little audio before the video is listed.
    let listed = listed_after_audio_alone(100);
    assert!((-102..=-98).contains(&listed), "{listed} ms");
    // The playlists of the audio alone were told before the video came.
    let listed = listed_after_audio_alone(20_000);
    assert!((-20_002..=-19_998).contains(&listed), "{listed} ms");
}

/// A publisher that leaves right after its first frame leaves only audio from before it.
#[test]
fn a_playlist_is_not_left_without_media_when_its_stream_ends() {
    let registry = Registry::new(Settings::default());
    let mut publisher = publisher(&registry);
    let at = |millis: u64| UnixMicros(START + millis * 1000);
    publisher.track(0, video_codec(31), 1000, *b"und", at(0)).unwrap();
    publisher.track(1, audio_codec(48_000), 1000, *b"und", at(0)).unwrap();
    for unit in 0..141 {
        let millis = unit * 64 / 3;
        publisher.sample(1, sample(millis as i64, true, 9), at(millis)).unwrap();
    }
    publisher.sample(0, sample(3_000, true, 9), at(3_000)).unwrap();
    let audio = publisher.stream().track("a0").unwrap();
    drop(publisher);
    registry.sweep(at(3_000));
    registry.sweep(at(3_000).after(Settings::default().reconnect));
    let window = audio.window();
    assert!(window.ended);
    assert_eq!(window.listed().map(|segment| segment.duration / 48_000).collect::<Vec<_>>(), [3]);
}

/// Each pause of more than a segment begins a period. By the wall clock a publisher cannot pause as
/// often as one whose clock jumps.
#[test]
fn claimed_pauses_are_limited_and_real_pauses_are_not() {
    // Frames 5 s apart are pauses where a segment lasts 4 s.
    let run = |apart: u64, frames: u64| {
        let registry = Registry::new(Settings::default());
        let mut publisher = publisher(&registry);
        publisher.track(0, video_codec(31), 1000, *b"und", UnixMicros(START)).unwrap();
        let mut time = 0;
        for i in 0..90 {
            time = i * 100 / 3;
            let now = UnixMicros(START + time as u64 * 1000);
            publisher.sample(0, sample(time, i % 30 == 0, 100), now).unwrap();
        }
        assert_eq!(publisher.stream().target_duration(), Duration::from_secs(4));
        let began = START + time as u64 * 1000;
        let refused = (1..=frames).find_map(|i| {
            let now = UnixMicros(began + i * apart);
            time += 5_000;
            publisher.sample(0, sample(time, true, 100), now).err()
        });
        let window = registry.stream("x").unwrap().track("v0").unwrap().window();
        (refused.map(|why| why.to_string()), window.newest().unwrap().period)
    };
    let (refused, periods) = run(1_000, 10_000);
    assert!(refused.unwrap().contains("too often within a minute"));
    assert!(periods <= 20, "{periods} periods");
    // It really pauses, for three minutes.
    assert_eq!(run(5_000_000, 36).0, None);
}
