//! What playlists list after a publisher was away.

use super::*;

/// How much a track's playlist lists, in seconds.
fn listed(track: &live::Track) -> f64 {
    let window = track.window();
    let timescale = f64::from(track.header().track.timescale);
    window.listed().map(|segment| segment.duration as f64).sum::<f64>() / timescale
}

/// RFC 8216bis 6.2.2: a segment must not leave a playlist if less than three target durations stay. The time
/// while nobody published is in no segment. What has left a playlist is still there for a while.
#[test]
fn playlists_keep_three_target_durations_after_an_absence() {
    for away in [9_000, 25_000, 29_000] {
        let registry = Registry::new(Settings::default());
        let at = |millis: i64| UnixMicros(START + millis.unsigned_abs() * 1000);
        let mut left: Vec<Option<std::sync::Arc<live::Window>>> = vec![None, None];
        for (began, lasts) in [(0, 60_000), (60_000 + away, 60_000)] {
            let info = PublisherInfo { peer: None, protocol: "test", rendition: None };
            let mut publisher = registry.publish("x", info, at(began)).unwrap();
            publisher.track(0, video_codec(31), 1000, *b"und", at(began)).unwrap();
            publisher.track(1, audio_codec(48_000), 1000, *b"und", at(began)).unwrap();
            let stream = std::sync::Arc::clone(publisher.stream());
            let tracks = ["v0", "a0"].map(|name| stream.track(name).unwrap());
            let mut units = 0;
            for frame in 0..lasts * 3 / 100 {
                let millis = frame * 100 / 3;
                let now = at(began + millis);
                publisher.sample(0, sample(millis, frame % 60 == 0, 100), now).unwrap();
                while units * 64 / 3 <= millis {
                    publisher.sample(1, sample(units * 64 / 3, true, 50), now).unwrap();
                    units += 1;
                }
                if began == 0 {
                    continue;
                }
                let target = stream.target_duration().as_secs_f64();
                for (track, left) in tracks.iter().zip(&left) {
                    let listed = listed(track);
                    assert!(listed >= 3.0 * target, "{}: {listed} s, {millis} ms", track.name);
                    // A player that read the last playlist before the absence has three target durations to ask.
                    let there = left.as_ref().unwrap().listed().next().unwrap();
                    let is_there = track.window().segment(there.msn).is_some();
                    assert!(is_there || millis >= 12_000, "{} at {millis} ms", track.name);
                }
            }
            drop(publisher);
            registry.sweep(at(began + lasts));
            left = tracks.iter().map(|track| Some(track.window())).collect();
            // Both list the same time again, but for a segment that is complete in one of them.
            let [video, audio] = &tracks;
            let apart = (listed(video) - listed(audio)).abs();
            assert!((29.0..34.0).contains(&listed(video)) && apart < 2.5, "{apart} s");
        }
    }
}
