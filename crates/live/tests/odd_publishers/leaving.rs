//! Tracks that their publishers end, leave out, or come back without.

use super::*;

#[test]
fn a_publisher_that_returns_without_its_audio_leaves_nobody_waiting() {
    let registry = Registry::new(Settings::default());
    let at = |millis: i64| UnixMicros(START + millis as u64 * 1000);
    let mut first = publisher(&registry);
    first.track(0, video_codec(31), 1000, *b"und", at(0)).unwrap();
    first.track(1, audio_codec(48_000), 1000, *b"und", at(0)).unwrap();
    for frame in 0..300 {
        let millis = frame * 100 / 3;
        first.sample(0, sample(millis, frame % 60 == 0, 100), at(millis)).unwrap();
        first.sample(1, sample(millis, true, 50), at(millis)).unwrap();
    }
    let stream = std::sync::Arc::clone(first.stream());
    let (video, audio) = (stream.track("v0").unwrap(), stream.track("a0").unwrap());
    drop(first);
    registry.sweep(at(12_000));
    assert!(audio.is_present(), "its publisher may come back with it");

    let mut second = publisher(&registry);
    second.track(0, video_codec(31), 1000, *b"und", at(12_000)).unwrap();
    for frame in 0..2700 {
        let now = 12_000 + frame * 100 / 3;
        second.sample(0, sample(frame * 100 / 3, frame % 60 == 0, 100), at(now)).unwrap();
        if frame % 30 == 29 {
            registry.sweep(at(now));
        }
        // A viewer plays the audio as HLS for half a minute.
        if frame < 900 {
            audio.ask(at(now));
        }
        if (60..1500).contains(&frame) {
            assert!(!audio.is_present() && video.is_present(), "frame {frame}");
            assert!(!audio.window().ended, "frame {frame}");
            let end = |track: &live::Track, timescale: f64| {
                track.window().newest().unwrap().presented_end() as f64 / timescale
            };
            let behind = end(&video, 90_000.0) - end(&audio, 48_000.0);
            assert!((-0.1..1.0).contains(&behind), "{behind} s behind at frame {frame}");
        }
    }
    assert!(audio.window().ended && stream.track("a0").is_none());
    assert!(!video.window().ended);
}

/// A viewer keeps the audio alive after its publisher came back without it. Then that one leaves, too.
#[test]
fn what_had_gone_stays_gone_while_nobody_publishes() {
    let registry = Registry::new(Settings::default());
    let at = |millis: i64| UnixMicros(START + millis as u64 * 1000);
    let mut sent = 0;
    let mut publish = |audio: bool, seconds: i64| {
        let began = sent;
        let mut publisher = publisher(&registry);
        publisher.track(0, video_codec(31), 1000, *b"und", at(began)).unwrap();
        if audio {
            publisher.track(1, audio_codec(48_000), 1000, *b"und", at(began)).unwrap();
        }
        for frame in 0..seconds * 30 {
            let millis = frame * 100 / 3;
            sent = began + millis;
            publisher.sample(0, sample(millis, frame % 60 == 0, 100), at(sent)).unwrap();
            if audio {
                publisher.sample(1, sample(millis, true, 50), at(sent)).unwrap();
            }
            publisher.stream().track("a0").unwrap().ask(at(sent));
            if frame % 30 == 29 {
                registry.sweep(at(sent));
            }
        }
        (std::sync::Arc::clone(publisher.stream()), sent)
    };
    publish(true, 10);
    let (stream, left) = publish(false, 20);
    let audio = stream.track("a0").unwrap();
    assert!(!audio.is_present() && audio.is_silenced());
    for seconds in 1..29 {
        registry.sweep(at(left + seconds * 1000));
        assert!(!audio.is_present(), "{seconds} s after the last publisher");
        assert!(stream.track("v0").unwrap().is_present());
    }
}

/// AAC Main, for which there is no silent access unit.
fn main_codec() -> Codec {
    let config: u16 = 1 << 11 | 3 << 7 | 2 << 3;
    Codec::Aac(aac::Config::parse(Bytes::copy_from_slice(&config.to_be_bytes())).unwrap())
}

/// One publisher sends a video track with source 0, and beside it for ten seconds a track of this
/// codec with source 1. After that it sends the second track no more, or ends it. After 100 s it
/// sends the second track again. `each` sees the stream and the second track in every second.
fn leave_out(codec: Codec, ends: bool, each: impl Fn(i64, &live::Stream, &live::Track)) {
    let registry = Registry::new(Settings::default());
    let at = |millis: i64| UnixMicros(START + millis as u64 * 1000);
    let mut publisher = publisher(&registry);
    publisher.track(0, video_codec(31), 1000, *b"und", at(0)).unwrap();
    publisher.track(1, codec, 1000, *b"und", at(0)).unwrap();
    let stream = std::sync::Arc::clone(publisher.stream());
    let (stays, leaves) = (stream.state().tracks[0].clone(), stream.state().tracks[1].clone());
    for frame in 0..4000 {
        let (now, millis) = (at(frame * 100 / 3), frame * 100 / 3);
        publisher.sample(0, sample(millis, frame % 60 == 0, 100), now).unwrap();
        if !(300..3000).contains(&frame) {
            publisher.sample(1, sample(millis, frame % 60 == 0, 50), now).unwrap();
        } else if frame == 300 && ends {
            publisher.end_track(1, now);
        }
        if frame % 30 == 29 {
            registry.sweep(now);
            assert!(stays.is_present() && !stays.window().ended, "{millis} ms");
            each(frame / 30, &stream, &leaves);
        }
    }
    // What comes again is a track of its own.
    let names: Vec<String> = stream.state().tracks.iter().map(|track| track.name.clone()).collect();
    let new = if leaves.name == "v1" { "v2" } else { "a1" };
    assert_eq!(names, ["v0", new]);
    let track = stream.track(new).unwrap();
    let behind = stays.window().newest().unwrap().captured.since(UnixMicros(START)).as_secs_f64()
        - track.window().newest().unwrap().captured.since(UnixMicros(START)).as_secs_f64();
    assert!(behind.abs() < 4.0, "{behind} s");
}

#[test]
fn a_track_that_is_no_longer_sent_ends_while_others_go_on() {
    for (codec, is_silenced) in
        [(video_codec(30), false), (main_codec(), false), (audio_codec(48_000), true)]
    {
        let Settings { reconnect, silence, .. } = Settings::default();
        leave_out(codec, false, |second, stream, track| {
            let rest = 10 + reconnect.as_secs() as i64;
            if second < rest - 1 {
                assert!(!track.window().ended, "at {second} s");
            } else if (rest..99).contains(&second) {
                assert!(track.window().ended && !track.is_present(), "at {second} s");
                assert!(stream.track(&track.name).is_none(), "at {second} s");
            }
            // Silence stands in for stereo, and new viewers get it until the track has gone.
            let listed = track.is_silenced() || track.is_present();
            let quiet = 11 + silence.as_secs() as i64;
            if is_silenced {
                assert!(listed || !(quiet..rest - 1).contains(&second), "at {second} s");
            } else {
                assert!(!listed || !(quiet..99).contains(&second), "at {second} s");
            }
        });
    }
}

#[test]
fn a_track_that_its_publisher_ends_ends_within_two_seconds() {
    for codec in [video_codec(30), main_codec(), audio_codec(48_000)] {
        leave_out(codec, true, |second, stream, track| {
            assert_eq!(track.window().ended, second >= 11, "at {second} s");
            let listed = stream.track(&track.name).is_some();
            assert_eq!(listed, second < 11, "at {second} s");
        });
    }
}

/// A viewer who plays two tracks would wait for the audio. So silence goes on while it asks.
#[test]
fn audio_that_its_publisher_ends_is_silent_for_those_who_play_it() {
    let ask = |second: i64, track: &live::Track| {
        if second < 50 {
            track.ask(UnixMicros(START + second as u64 * 1_000_000));
        }
    };
    for ends in [false, true] {
        leave_out(audio_codec(48_000), ends, |second, _, track| {
            ask(second, track);
            assert_eq!(track.window().ended, second >= 79, "at {second} s");
            let silenced = if ends { 12 } else { 41 };
            if (silenced..79).contains(&second) {
                assert!(!track.is_present() && track.is_silenced(), "at {second} s");
            }
        });
    }
}

/// Encoders that stop end all tracks. They may come back: nothing ends but what they sent.
#[test]
fn a_publisher_that_ends_all_its_tracks_may_return_to_them() {
    let registry = Registry::new(Settings::default());
    let at = |millis: i64| UnixMicros(START + millis as u64 * 1000);
    for began in [0, 20_000] {
        let mut publisher = publisher(&registry);
        publisher.track(0, video_codec(31), 1000, *b"und", at(began)).unwrap();
        publisher.track(1, main_codec(), 1000, *b"und", at(began)).unwrap();
        for frame in 0..300 {
            let (now, millis) = (at(began + frame * 100 / 3), frame * 100 / 3);
            publisher.sample(0, sample(millis, frame % 60 == 0, 100), now).unwrap();
            publisher.sample(1, sample(millis, true, 50), now).unwrap();
        }
        publisher.end_track(0, at(began + 10_000));
        publisher.end_track(1, at(began + 10_000));
        registry.sweep(at(began + 14_000));
        let tracks = &publisher.stream().state().tracks;
        assert_eq!(tracks.len(), 2);
        assert!(tracks.iter().all(|track| !track.window().ended && track.is_present()));
    }
}

/// The encoder of one rendition stops and ends its track. It may come back, while others go on.
#[test]
fn a_rendition_whose_encoder_stops_waits_for_it_to_return() {
    let settings = Settings { reconnect: Duration::from_secs(8), ..Settings::default() };
    let registry = Registry::new(settings);
    let at = |millis: i64| UnixMicros(START + millis as u64 * 1000);
    let mut renditions = ["high", "low"].map(|name| {
        let info = PublisherInfo { peer: None, protocol: "test", rendition: Some(name.into()) };
        let mut publisher = registry.publish("x", info, at(0)).unwrap();
        publisher.track(0, video_codec(31), 1000, *b"und", at(0)).unwrap();
        Some(publisher)
    });
    let listed = |seconds: i64| {
        registry.sweep(at(seconds * 1000));
        registry.stream("x").unwrap().state().tracks.len()
    };
    for frame in 0..600i64 {
        let (now, millis) = (at(frame * 100 / 3), frame * 100 / 3);
        for publisher in renditions.iter_mut().flatten() {
            publisher.sample(0, sample(millis, frame % 60 == 0, 100), now).unwrap();
        }
        if frame == 150 {
            let mut low = renditions[1].take().unwrap();
            low.end_track(0, now);
        }
        if frame % 30 == 0 {
            let seconds = frame / 30;
            assert_eq!(listed(seconds), if seconds < 13 { 2 } else { 1 }, "at {seconds} s");
        }
    }
}

/// Each end and return makes a track. A publisher may not do so without end.
#[test]
fn a_publisher_that_restarts_tracks_too_often_is_refused() {
    let registry = Registry::new(Settings::default());
    let mut publisher = publisher(&registry);
    publisher.track(1, audio_codec(48_000), 1000, *b"und", UnixMicros(START)).unwrap();
    let refused = (0..100i64).find_map(|i| {
        let at = |millis: i64| UnixMicros(START + (i * 2_000 + millis) as u64 * 1000);
        let begins = publisher.track(0, video_codec(31), 1000, *b"und", at(0));
        if let Err(error) = begins {
            return Some((i, error.to_string()));
        }
        publisher.sample(0, sample(i * 2_000, true, 100), at(0)).unwrap();
        publisher.end_track(0, at(10));
        publisher.sample(1, sample(i * 2_000 + 1_500, true, 50), at(1_500)).unwrap();
        registry.sweep(at(1_500));
        None
    });
    let (times, why) = refused.unwrap();
    assert!((5..30).contains(&times) && why.contains("too often within a minute"), "{times} {why}");
}

/// Protocols number tracks differently: WHIP's first video is 1, and enhanced RTMP's are 0 and 1.
#[test]
fn two_videos_are_two_tracks_whatever_number_a_former_publisher_gave() {
    let registry = Registry::new(Settings::default());
    let mut former = publisher(&registry);
    former.track(1, video_codec(31), 1000, *b"und", UnixMicros(START)).unwrap();
    former.sample(1, sample(0, true, 100), UnixMicros(START)).unwrap();
    drop(former);
    let mut next = publisher(&registry);
    for (number, level) in [(0, 31), (1, 30)] {
        next.track(number, video_codec(level), 1000, *b"und", UnixMicros(START)).unwrap();
    }
    let state = registry.stream("x").unwrap().state();
    let tracks: Vec<_> = state.tracks.iter().map(|track| &*track.name).collect();
    assert_eq!(tracks, ["v0", "v1"]);
}
