//! Dates, where a publisher's clock or the wall clock steps or drifts.

use super::*;

/// Media times follow the publisher's clock. Dates follow the wall clock, also when it was set.
#[test]
fn dates_follow_a_wall_clock_that_was_set_with_the_next_period() {
    for hour in [3_600_000_000i64, -3_600_000_000] {
        let registry = Registry::new(Settings::default());
        let mut publisher = publisher(&registry);
        publisher.track(0, video_codec(31), 1000, *b"und", UnixMicros(START)).unwrap();
        for frame in 0..600i64 {
            if frame == 300 {
                registry.follow_wall_clock(hour);
            }
            let now = UnixMicros(START + frame as u64 * 33_333);
            publisher.sample(0, sample(frame * 100 / 3, frame % 60 == 0, 100), now).unwrap();
        }
        let stream = publisher.stream();
        let window = stream.track("v0").unwrap().window();
        let epochs: Vec<i64> = window
            .all()
            .map(|segment| segment.captured.0 as i64 - segment.presents * 100 / 9)
            .collect();
        let (old, new): (Vec<i64>, Vec<i64>) =
            epochs.iter().partition(|epoch| (**epoch - epochs[0]).abs() < 10_000);
        assert!(old.len() == 5 && new.len() == 5, "{epochs:?}");
        assert!(new.iter().all(|epoch| (epoch - old[0] - hour).abs() < 10_000), "{epochs:?}");
        assert_eq!(window.all().filter(|segment| segment.discontinuity).count(), 1);
    }
}

/// Dates follow a clock that drifts, too: with a period once they are far off, and never within
/// one.
#[test]
fn dates_follow_a_clock_that_drifts_in_few_periods_that_all_tracks_share() {
    for ppm in [200i64, -200] {
        let registry = Registry::new(Settings::default());
        let mut publisher = publisher(&registry);
        let drifted =
            |millis: i64| START.saturating_add_signed(millis * 1000 + millis * ppm / 1000);
        publisher.track(0, video_codec(31), 1000, *b"und", UnixMicros(START)).unwrap();
        publisher.track(1, audio_codec(8_000), 1000, *b"und", UnixMicros(START)).unwrap();
        let stream = std::sync::Arc::clone(publisher.stream());
        // By track, the periods in order: number, epoch, and when the first segment was captured.
        let mut periods = [const { Vec::<(u64, i64, u64)>::new() }; 2];
        let mut worst = 0;
        for frame in 0..3 * 3600 * 10i64 {
            let millis = frame * 100;
            let now = UnixMicros(drifted(millis));
            publisher.sample(0, sample(millis, frame % 20 == 0, 100), now).unwrap();
            // An access unit lasts 128 ms.
            for unit in (millis + 127) / 128..(millis + 227) / 128 {
                publisher.sample(1, sample(unit * 128, true, 50), now).unwrap();
            }
            if frame % 50 != 49 {
                continue;
            }
            for (name, periods) in ["v0", "a0"].into_iter().zip(&mut periods) {
                for segment in stream.track(name).unwrap().window().all() {
                    if periods.last().is_none_or(|&(number, ..)| number < segment.period) {
                        assert!(segment.parts[0].independent, "{name}: a period without keyframe");
                        assert_eq!(segment.discontinuity, segment.period > 0);
                        periods.push((segment.period, segment.epoch(), segment.captured.0));
                    }
                    let known = periods.iter().find(|&&(number, ..)| number == segment.period);
                    assert_eq!(known.unwrap().1, segment.epoch(), "{name}");
                }
            }
            let newest =
                std::sync::Arc::clone(stream.track("v0").unwrap().window().newest().unwrap());
            let due = newest.presents * 100 / 9 - 1_000_000;
            worst = worst.max(drifted(due / 1000).abs_diff(newest.captured.0));
        }
        let [video, audio] = periods;
        let numbered = |track: &[(u64, i64, u64)]| -> Vec<_> {
            track.iter().map(|&(number, epoch, _)| (number, epoch)).collect()
        };
        assert_eq!(numbered(&video), numbered(&audio));
        assert!((3..=6).contains(&video.len()), "{ppm}: {video:?}");
        for pair in video.windows(2) {
            assert!((pair[1].1 - pair[0].1).abs() >= 250_000, "{ppm}: {video:?}");
            assert!(pair[1].2 - pair[0].2 > 1_700_000_000, "{ppm}: {video:?}");
        }
        assert!(worst < 1_000_000, "{ppm}: off by {worst} µs");
    }
}

/// A clock that leaps ahead while no time passes begins a period. Its dates go on where those before ended.
#[test]
fn dates_do_not_leap_with_a_publishers_clock() {
    let registry = Registry::new(Settings::default());
    let mut publisher = publisher(&registry);
    publisher.track(0, video_codec(31), 1000, *b"und", UnixMicros(START)).unwrap();
    for frame in 0..600i64 {
        let millis = frame * 100 / 3 + if frame < 300 { 0 } else { 8_000 };
        let now = UnixMicros(START + frame as u64 * 33_333);
        publisher.sample(0, sample(millis, frame % 60 == 0, 100), now).unwrap();
    }
    let window = publisher.stream().track("v0").unwrap().window();
    assert_eq!(window.all().filter(|segment| segment.discontinuity).count(), 1);
    let begun = |segment: &live::Segment| segment.captured.0 - START;
    let dates: Vec<u64> = window.all().map(|segment| begun(segment) / 10_000).collect();
    for (at, date) in dates.iter().enumerate() {
        assert!(date.abs_diff(at as u64 * 200) <= 5, "hundredths of a second: {dates:?}");
    }
}

/// A camera whose clock is set between two keyframes.
#[test]
fn a_clock_that_jumps_between_keyframes_begins_a_period_with_the_next() {
    let registry = Registry::new(Settings::default());
    let mut publisher = publisher(&registry);
    publisher.track(0, video_codec(31), 1000, *b"und", UnixMicros(START)).unwrap();
    for frame in 0..600i64 {
        let millis = frame * 100 / 3 - if frame < 307 { 0 } else { 2_000 };
        let now = UnixMicros(START + frame as u64 * 33_333);
        publisher.sample(0, sample(millis, frame % 60 == 0, 100), now).unwrap();
    }
    let window = publisher.stream().track("v0").unwrap().window();
    let begun: Vec<_> = window.all().filter(|segment| segment.discontinuity).collect();
    assert_eq!(begun.len(), 1);
    assert!(begun[0].parts[0].independent);
    let frame = begun[0].start / 3000 - 30;
    assert!((358..=360).contains(&frame), "at frame {frame}");
    let units: usize = window.all().flat_map(|s| &s.parts).map(|part| part.samples.len()).sum();
    assert!(units > 590, "{units} frames");
    for pair in window.all().collect::<Vec<_>>().windows(2) {
        let gap = pair[1].start - pair[0].end();
        assert!((0..3_000).contains(&gap), "{gap}");
    }
}

/// The audio's times leap ahead, and the video's do not: that is a hole in the audio, and no pause of the stream.
#[test]
fn audio_that_leaps_alone_begins_no_period() {
    let registry = Registry::new(Settings::default());
    let mut publisher = publisher(&registry);
    publisher.track(0, video_codec(31), 1000, *b"und", UnixMicros(START)).unwrap();
    publisher.track(1, audio_codec(48_000), 1000, *b"und", UnixMicros(START)).unwrap();
    let mut units = 0;
    for frame in 0..600i64 {
        let millis = frame * 100 / 3;
        let now = UnixMicros(START + millis as u64 * 1000);
        publisher.sample(0, sample(millis, frame % 60 == 0, 100), now).unwrap();
        while units * 1024 / 48 <= millis {
            let leapt = units * 1024 / 48 + if frame < 300 { 0 } else { 6_000 };
            publisher.sample(1, sample(leapt, true, 50), now).unwrap();
            units += 1;
        }
    }
    let window = publisher.stream().track("v0").unwrap().window();
    let newest = window.newest().unwrap();
    assert_eq!(newest.period, 0);
    let epochs = window.all().map(|segment| segment.captured.0 as i64 - segment.presents * 100 / 9);
    let epochs: Vec<i64> = epochs.collect();
    assert!(epochs.iter().all(|epoch| (epoch - epochs[0]).abs() < 10_000), "{epochs:?}");
}

/// A rendition has the only video, and so it leads. Its clock advances by nine seconds with each frame, and each of
/// these begins a period. That does not use up what the main publisher may.
#[test]
fn a_rendition_that_leads_answers_for_its_periods_itself() {
    let registry = Registry::new(Settings::default());
    let at = |millis: i64| UnixMicros(START + millis.unsigned_abs() * 1000);
    let publish = |rendition: Option<&str>, now| {
        let rendition = rendition.map(str::to_owned);
        let info = PublisherInfo { peer: None, protocol: "test", rendition };
        registry.publish("x", info, at(now))
    };
    let (mut main, mut leads) = (publish(None, 0).unwrap(), publish(Some("v"), 0).unwrap());
    main.track(1, audio_codec(48_000), 1000, *b"und", at(0)).unwrap();
    leads.track(0, video_codec(31), 1000, *b"und", at(0)).unwrap();
    let mut clock = 0;
    let mut refused = None;
    let mut units = 0;
    for frame in 0..300 {
        let now = frame * 40;
        while units * 64 / 3 <= now {
            main.sample(1, sample(units * 64 / 3, true, 50), at(now)).unwrap();
            units += 1;
        }
        if refused.is_none() {
            clock += if frame < 100 { 40 } else { 9_000 };
            refused = leads.sample(0, sample(clock, frame % 25 == 0, 100), at(now)).err();
        }
    }
    assert!(refused.unwrap().to_string().contains("too often within a minute"));
    let periods = registry.stream("x").unwrap().track("v0").unwrap().window();
    assert!((15..=20).contains(&periods.newest().unwrap().period));
    // Its limit stays when it returns.
    drop(leads);
    let mut leads = publish(Some("v"), 12_100).unwrap();
    leads.track(0, video_codec(31), 1000, *b"und", at(12_100)).unwrap();
    let again = (0..100).find_map(|frame| {
        let now = 12_100 + frame * 40;
        leads.sample(0, sample(frame * 9_000, frame % 25 == 0, 100), at(now)).err()
    });
    assert!(again.unwrap().to_string().contains("too often within a minute"));
    let periods = registry.stream("x").unwrap().track("v0").unwrap().window();
    assert!(periods.newest().unwrap().period <= 20);
    drop((main, leads));
    let mut main = publish(None, 13_000).unwrap();
    main.track(1, audio_codec(48_000), 1000, *b"und", at(13_000)).unwrap();
    main.sample(1, sample(0, true, 50), at(13_000)).unwrap();
}
