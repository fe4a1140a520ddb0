//! A viewer reports the delays and stalls that the server causes, with their lengths, and broken
//! media, with their places. Unit tests, `player::times`, have a clock that stands while nobody
//! waits, and know each time exactly. Here the clock is the machine's.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod support;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use support::*;
use viewer::{End, Options, Report};

/// Rounding of times in reports, in seconds.
const ROUNDING: f64 = 0.01;

/// Watches, and returns how long that took, in seconds. A busy machine makes each step take longer,
/// and may cause further stalls. So the tests know the least that a time must be, and the most: the
/// part of the whole that the server's other steps leave.
fn timed(watch: impl FnOnce() -> Report) -> (Report, f64) {
    let begun = Instant::now();
    let report = watch();
    (report, begun.elapsed().as_secs_f64())
}

/// Asserts that a time is no less than the server's steps make it, and no more than `most`.
#[track_caller]
fn within(found: f64, least: f64, most: f64) {
    let range = least - ROUNDING..=most + ROUNDING;
    assert!(range.contains(&found), "{found} where {range:?} is right");
}

#[test]
fn startup_is_what_the_server_delayed() {
    let clip = AudioClip::new(4);
    let server = Server::start(move |asked| match asked.target.as_str() {
        "/x/0.m4s" => late(700, &clip.fragment(0)),
        other => clip.answer(other),
    });
    for verify in [false, true] {
        let url = server.url("/x/index.m3u8");
        let (report, whole) = timed(|| watch(&url, options(), verify, None, LIMIT));
        assert_eq!((report.end, report.holes), (End::Ended, 0), "{report:#?}");
        // One segment is more than the buffered 500 ms.
        within(report.first_media.unwrap(), 0.7, whole);
        within(report.startup.unwrap(), 0.7, whole);
    }
}

#[test]
fn stalls_are_as_many_and_as_long_as_the_server_made_them() {
    let clip = AudioClip::new(5);
    let server = Server::start(move |asked| match asked.target.as_str() {
        // The first two segments play for 1.024 s. The third comes at 2.0 s, the fourth at 4.5 s.
        "/x/2.m4s" => late(2000, &clip.fragment(2)),
        "/x/3.m4s" => late(2500, &clip.fragment(3)),
        other => clip.answer(other),
    });
    let patient = Options { patience: Duration::from_secs(10), ..options() };
    let url = server.url("/x/index.m3u8");
    let (report, whole) = timed(|| watch(&url, patient, true, None, LIMIT));
    assert_eq!((report.end, report.holes), (End::Ended, 0), "{report:#?}");
    assert!(report.stalls >= 2, "{report:#?}");
    // By the end of the last stall, three segments have been played.
    let most = whole - report.startup.unwrap() - 3.0 * 0.512;
    within(report.stalled, (2.0 - 1.024) + (2.5 - 0.512), most);
    near(report.received, 5.0 * 0.512, 1e-6);
}

#[test]
fn a_player_of_something_finished_takes_no_more_than_it_has_room_for() {
    let clip = AudioClip::new(12);
    let server = Server::start(move |asked| clip.answer(&asked.target));
    let narrow = Options { ahead: Some(Duration::from_secs(1)), ..options() };
    let duration = Duration::from_millis(1500);
    let url = server.url("/x/index.m3u8");
    let (report, whole) = timed(|| watch(&url, narrow, false, None, duration));
    // Received are the media that have played, the media ahead, and the segment that filled the
    // buffer.
    assert_eq!((report.end, report.holes), (End::Time, 0), "{report:#?}");
    // On a busy machine it begins to play later, and ends later.
    within(report.received, 0.0, whole.max(1.5) + 1.0 + 0.512);
}

#[test]
fn latency_is_from_the_time_that_the_media_say() {
    let clip = AudioClip::new(8);
    let server = Server::start(move |asked| {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64;
        match asked.target.as_str() {
            // Each fragment was captured 3 s before it is sent.
            "/live.mp4" => {
                let mut acts = vec![Act::Send(
                    [b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", &clip.header()[..]].concat(),
                )];
                for number in 0..8u64 {
                    let captured = unix - 3_000_000 + number * 512_000;
                    acts.push(Act::Send(clip.stamped(number as u32, captured)));
                    acts.push(Act::Wait(Duration::from_millis(512)));
                }
                acts.push(Act::Close);
                acts
            }
            _ => status("404 Not Found"),
        }
    });
    // The player waits for the third fragment.
    let buffered = Options { buffer: Duration::from_millis(1300), ..options() };
    for verify in [false, true] {
        let url = server.url("/live.mp4");
        let (report, whole) = timed(|| watch(&url, buffered.clone(), verify, None, LIMIT));
        assert_eq!((report.end, report.holes), (End::Ended, 0), "{report:#?}");
        near(report.received, 8.0 * 0.512, 1e-6);
        within(report.startup.unwrap(), 2.0 * 0.512, whole);
        // Delivery is measured to the end of the fragment, half a second less than to its start.
        let delivery = report.delivery.as_ref().unwrap();
        within(delivery.min, 3.0 - 0.512, delivery.max);
        within(delivery.max, 3.0 - 0.512, 3.0 - 0.512 + whole);
        // What the player waited is what it is behind.
        let behind = report.behind_live.as_ref().unwrap().mean;
        within(behind, 3.0 + 2.0 * 0.512, 3.0 + whole);
        within(report.late.as_ref().unwrap().max, 0.0, whole);
    }
}

/// Serves the clip with one fragment replaced.
fn with(fragment: u32, bytes: impl Fn(&AudioClip) -> Vec<u8> + Send + Sync + 'static) -> Server {
    let clip = AudioClip::new(6);
    Server::start(move |asked| {
        if asked.target == format!("/x/{fragment}.m4s") {
            ok(&bytes(&clip))
        } else {
            clip.answer(&asked.target)
        }
    })
}

#[test]
fn whole_media_are_found_whole() {
    let server = with(2, |clip| clip.fragment(2));
    let report = verified(&server.url("/x/index.m3u8"), Some(AudioClip::new(6).reference()));
    assert_eq!((report.end, report.holes), (End::Ended, 0), "{report:#?}");
    let verified = report.verified.unwrap();
    assert_eq!((verified.samples, verified.matched), (144, 144));
    assert_eq!((verified.missing, verified.holes), (0, 0));
}

#[test]
fn every_way_to_break_media_is_found_where_it_is() {
    type Breaks = fn(&AudioClip) -> Vec<u8>;
    let cases: [(&str, Breaks, &str); 8] = [
        (
            "a bit of an access unit",
            |clip| {
                let mut bytes = clip.fragment(2);
                let last = bytes.len() - 1;
                bytes[last] ^= 1;
                bytes
            },
            "not the source's",
        ),
        (
            "cut off",
            |clip| {
                let bytes = clip.fragment(2);
                bytes[..bytes.len() - 100].to_vec()
            },
            "cut off",
        ),
        (
            "a size in trun",
            |clip| {
                let mut bytes = clip.fragment(2);
                let at = bytes.windows(4).position(|four| four == b"trun").unwrap();
                bytes[at + 8] = 0xFF;
                bytes
            },
            "",
        ),
        (
            "two access units in the wrong order",
            |clip| {
                let mut samples = clip.samples(2);
                let (a, b) = (samples[3].data.clone(), samples[4].data.clone());
                (samples[3].data, samples[4].data) = (b, a);
                clip.write(2, &samples)
            },
            "before the one that should come",
        ),
        (
            "decode times that run back",
            |clip| {
                let mut samples = clip.samples(2);
                samples.iter_mut().for_each(|sample| sample.dts -= 4800);
                clip.write(2, &samples)
            },
            "runs back by 0.09999",
        ),
        (
            "another track",
            |clip| {
                let mut bytes = clip.fragment(2);
                let at = bytes.windows(4).position(|four| four == b"tfhd").unwrap();
                bytes[at + 11] = 9;
                bytes
            },
            "track_ID 9",
        ),
        (
            "an empty access unit",
            |clip| {
                let mut samples = clip.samples(2);
                samples[5].data = Default::default();
                clip.write(2, &samples)
            },
            "empty access unit",
        ),
        ("no media at all", |_| b"\0\0\0\x08free".to_vec(), "no fragment"),
    ];
    for (name, breaks, says) in cases {
        let server = with(2, breaks);
        let report = verified(&server.url("/x/index.m3u8"), Some(AudioClip::new(6).reference()));
        let (kind, what) = failure(&report);
        assert_eq!(kind, "corrupt", "{name}: {what}");
        assert!(what.contains(says) && what.contains("2.m4s"), "{name}: {what}");
        near(report.received, 2.0 * 0.512, 1e-6);
        // A viewer that does not verify finds nothing.
        let report = plain(&server.url("/x/index.m3u8"));
        assert!(report.error.is_none(), "{name}: {report:#?}");
    }
}

#[test]
fn missing_media_are_counted_and_the_viewer_goes_on() {
    let server = with(3, |clip| {
        let mut samples = clip.samples(3);
        samples.drain(..4);
        clip.write(3, &samples)
    });
    let report = verified(&server.url("/x/index.m3u8"), Some(AudioClip::new(6).reference()));
    assert_eq!(report.end, End::Ended, "{report:#?}");
    let verified = report.verified.unwrap();
    assert_eq!((verified.missing, verified.holes, report.holes), (4, 1, 1), "{report:#?}");
    near(report.missing, 4.0 * 1024.0 / 48_000.0, 1e-3);
}
