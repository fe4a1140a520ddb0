//! Live playlists and manifests of a server that makes them as time passes: the requests, their
//! times, and their results.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod support;

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use support::low_latency::{BEFORE, PARTS, Stream};
use support::*;
use viewer::{End, Options, Rendition};

#[test]
fn parts_by_hint_or_by_blocking_reload_without_a_hole() {
    for hints in [true, false] {
        let stream = Stream::new(hints);
        let server = Server::start(move |asked| stream.answer(&asked.target));
        let reference = Some(AudioClip::new(PARTS as u32).reference());
        let report = verified(&server.url("/media.m3u8"), reference);
        assert_eq!((report.end, report.holes), (End::Ended, 0), "{report:#?}");
        assert!(report.troubles.is_empty(), "{report:#?}");
        assert_eq!(report.verified.unwrap().missing, 0);
        let asked = server.asked();
        let paths: Vec<&str> = asked.iter().map(|asked| asked.target.as_str()).collect();
        let count = |what: &str| paths.iter().filter(|path| path.contains(what)).count();
        // From the third part before the live end on, no part twice, none left out, and no whole
        // segment. The end of the stream shows in the playlist, so the last hint comes to nothing.
        let parts: Vec<&str> =
            paths.iter().copied().filter(|path| path.starts_with("/p")).collect();
        let wanted: Vec<String> =
            (BEFORE - 3..PARTS + u64::from(hints)).map(|part| format!("/p{part}.m4s")).collect();
        assert_eq!(parts, wanted);
        near(report.received, (PARTS - (BEFORE - 3)) as f64 * 0.512, 1e-6);
        assert!(!paths.iter().any(|path| path.as_bytes()[1].is_ascii_digit()), "{paths:?}");
        // A playlist for each part, and the first and the last.
        let reloads = (PARTS - BEFORE) as usize + 1;
        assert_eq!((count("_HLS_part="), count("_HLS_skip=YES")), (reloads, reloads), "{paths:?}");
        assert_eq!(count("media.m3u8"), reloads + 1, "{paths:?}");
        // The playlist comes after the part that it lists if the player follows hints.
        let last = paths.iter().rposition(|path| path.starts_with("/p")).unwrap();
        assert!(paths[last - 1].contains("_HLS_part="), "{paths:?}");
        let of_playlist = paths.iter().position(|path| path.contains("_HLS_part=0")).unwrap();
        let of_part = paths.iter().position(|path| *path == format!("/p{BEFORE}.m4s")).unwrap();
        assert_eq!(of_part < of_playlist, hints, "{paths:?}");
    }
}

#[test]
fn whole_segments_by_polling_where_low_latency_is_not_wanted() {
    let stream = Stream::new(true);
    let server = Server::start(move |asked| {
        // Each reload has one more segment, except the second.
        if asked.target == "/media.m3u8" && ![0, 2].contains(&asked.before) {
            stream.make_next();
        }
        stream.answer(&asked.target)
    });
    let polls = Options { low_latency: false, ..options() };
    let begun = Instant::now();
    let report = watch(&server.url("/media.m3u8"), polls, false, None, LIMIT);
    assert_eq!((report.end, report.holes), (End::Ended, 0), "{report:#?}");
    let asked = server.asked();
    let paths: Vec<&str> = asked.iter().map(|asked| asked.target.as_str()).collect();
    let media: Vec<&str> = paths.iter().copied().filter(|path| path.ends_with(".m4s")).collect();
    // Three target durations before the end are three segments.
    let first = BEFORE / 2 - 3;
    let wanted: Vec<String> = (first..PARTS / 2).map(|segment| format!("/{segment}.m4s")).collect();
    assert_eq!(media, wanted);
    near(report.received, (PARTS / 2 - first) as f64 * 1.024, 1e-6);
    assert!(!paths.iter().any(|path| path.contains("_HLS")), "{paths:?}");
    // One reload for each target duration, or two if nothing was new. The first counts from the
    // start of the player.
    let loads = asked.iter().filter(|asked| asked.target == "/media.m3u8").map(|asked| asked.at);
    let loads: Vec<Instant> = [begun].into_iter().chain(loads.skip(1)).collect();
    assert_eq!(loads.len() as u64, 1 + (PARTS - BEFORE) / 2 + 1 + 1);
    for (number, pair) in loads.windows(2).enumerate() {
        let least = if number == 2 { 0.5 } else { 1.0 };
        // The player counts in microseconds.
        let found = (pair[1] - pair[0]).as_secs_f64() + 1e-5;
        assert!(found >= least, "{number}: {loads:?}");
    }
}

#[test]
fn a_low_latency_manifest_is_followed_as_its_segments_are_made() {
    for verify in [true, false] {
        let stream = Presentation::new((BEFORE as u32, PARTS as u32), || {
            // The clock that steps wait for is a little later, so no chunk can come before its time.
            (SystemTime::now().duration_since(UNIX_EPOCH).unwrap(), Instant::now())
        });
        let server = Server::start(move |asked| stream.answer(&asked.target));
        let reference = verify.then(|| AudioClip::new(PARTS as u32).reference());
        let begun = Instant::now();
        let report = watch(&server.url("/x.mpd"), options(), verify, reference, LIMIT);
        let whole = begun.elapsed().as_secs_f64();
        assert_eq!((report.end, report.holes), (End::Ended, 0), "{report:#?}");
        assert!(report.troubles.is_empty(), "{report:#?}");
        // Every segment once, in order, and up to the end.
        let asked = server.asked();
        let media: Vec<&str> = asked
            .iter()
            .map(|asked| asked.target.as_str())
            .filter(|path| path.ends_with(".m4s"))
            .collect();
        let wanted: Vec<String> = (0..PARTS / 2)
            .rev()
            .take(media.len())
            .map(|segment| format!("/s{segment}.m4s"))
            .collect();
        assert!(media.iter().rev().eq(wanted.iter()), "{media:?}");
        near(report.received, media.len() as f64 * 1.024, 1e-6);
        // A chunk arrives when its last sample has been captured, or later on a busy machine. The
        // first may be 2.5 s old: the latency that is wanted, and a segment.
        let delivery = report.delivery.unwrap();
        assert!(delivery.min >= -0.001 && delivery.max < 3.0 + whole, "{delivery:?}");
        let behind = report.behind_live.unwrap().mean;
        assert!(behind > 0.0 && behind < 3.0 + whole, "{behind}");
    }
}

/// A segment of video is listed while it is being made, but none of audio. Audio segments are
/// listed and fetched while the video's is on its way.
#[test]
fn a_track_goes_on_while_a_segment_of_the_other_is_made() {
    let (clip, told) = (AudioClip::new(4), std::sync::mpsc::channel());
    let (audio_came, comes) = (told.0, std::sync::Mutex::new(told.1));
    let server = Server::start(move |asked| match asked.target.as_str() {
        "/x.mpd" => {
            let segments = asked.before.min(2);
            let set = |kind: &str, more: usize| {
                format!(
                    "<AdaptationSet contentType=\"{kind}\"><SegmentTemplate timescale=\"48000\" \
                     initialization=\"init.mp4\" media=\"{kind}$Number$.m4s\" startNumber=\"0\">\
                     <SegmentTimeline><S t=\"0\" d=\"24576\" r=\"{more}\"/></SegmentTimeline>\
                     </SegmentTemplate><Representation id=\"{kind}\" bandwidth=\"64000\"/></AdaptationSet>"
                )
            };
            let (kind, update) = match asked.before {
                0..20 => ("dynamic", " availabilityStartTime=\"1970-01-01T00:00:00Z\""),
                _ => ("static", " mediaPresentationDuration=\"PT1.536S\""),
            };
            let text = format!(
                "<MPD type=\"{kind}\" minimumUpdatePeriod=\"PT0.1S\"{update}><Period start=\"PT0S\">{}{}\
                 </Period></MPD>",
                set("video", 0),
                set("audio", segments)
            );
            ok(text.as_bytes())
        }
        "/init.mp4" => ok(&clip.header()),
        "/video0.m4s" => {
            // This segment is complete once the player has asked for the audio beside it.
            let came = comes.lock().unwrap().recv_timeout(LIMIT / 4);
            if came.is_ok() { ok(&clip.fragment(0)) } else { status("500 No Audio") }
        }
        path => {
            let number = path.strip_prefix("/audio").unwrap().strip_suffix(".m4s").unwrap();
            if number == "2" {
                let _ = audio_came.send(());
            }
            ok(&clip.fragment(number.parse().unwrap()))
        }
    });
    let report = watch(&server.url("/x.mpd"), options(), false, None, LIMIT);
    assert_eq!((report.end, report.troubles.len()), (End::Ended, 0), "{report:#?}");
}

/// How fast a connection is depends on the machine. Whatever the player chooses, it plays each
/// segment once. `player::times` shows, on a clock that the test moves, what it chooses.
#[test]
fn a_player_that_chooses_renditions_plays_each_segment_once() {
    let renditions = Renditions::new();
    let reference = renditions.clip.reference();
    let server = Server::start(move |asked| renditions.answer(&asked.target));
    let automatic = Options { rendition: Rendition::Auto, ..options() };
    let url = server.url("/index.m3u8");
    let report = watch(&url, automatic, true, Some(reference), LIMIT);
    assert_eq!((report.end, report.troubles.len()), (End::Ended, 0), "{report:#?}");
    assert_eq!((report.holes, report.verified.unwrap().matched), (0, 32 * u64::from(UNITS)));
    near(report.received, 32.0 * 0.512, 1e-6);
    let asked = server.asked();
    let media: Vec<&str> = asked.iter().map(|asked| asked.target.as_str()).collect();
    let media: Vec<&str> = media.into_iter().filter(|path| path.ends_with(".m4s")).collect();
    assert_eq!(media[0], "/low/0.m4s");
    for (number, path) in media.iter().enumerate() {
        assert!(path.ends_with(&format!("/{number}.m4s")), "{media:?}");
    }
    assert_eq!(media.len(), 8, "none twice: {media:?}");
    // Each change shows in the counts.
    let of = |path: &str| path.split('/').nth(1).map(str::to_owned);
    let changes = media.windows(2).filter(|pair| of(pair[0]) != of(pair[1])).count();
    assert_eq!(report.switches as usize, changes, "{media:?}");
}
