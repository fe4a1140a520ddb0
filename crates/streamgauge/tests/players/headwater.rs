//! The origin's demo stream, by all its deliveries.

use std::time::Duration;

use testkit::{Lateness, demo_clip};

use crate::common::{LIMIT, document, origin, start};
use crate::support::{assert_verdict, deliveries};

/// For how many seconds a machine did not run a server. A server that answers later than that is itself to blame.
fn of_machine(lateness: &Lateness) -> f64 {
    lateness.longest().min(Duration::from_secs(6)).as_secs_f64()
}

#[test]
fn every_delivery_of_the_demo_is_the_published_file_whole() {
    let server = origin();
    let lateness = Lateness::of(&server);
    let reference = demo_clip();
    let urls = deliveries(&server);
    // All at the same time: the origin and this machine can serve six.
    let running: Vec<_> = urls
        .iter()
        .map(|url| {
            let reference = reference.to_str().unwrap();
            start(["watch", url, "--duration", "25s", "--json", "--reference", reference])
        })
        .collect();
    for (url, program) in urls.iter().zip(running) {
        let (code, document) = document(program);
        assert_verdict(code, &document, true);
        let viewer = &document["viewer"];
        let number =
            |key: &str| viewer[key].as_f64().unwrap_or_else(|| panic!("{key}: {viewer:#}"));
        assert_eq!(viewer["end"], "time", "{url}: {viewer:#}");
        assert!(viewer["troubles"].as_object().unwrap().is_empty(), "{url}: {viewer:#}");
        let verified = &viewer["verified"];
        let is_whep = url.ends_with("/whep");
        // By WHEP the sound is made by ffmpeg, which begins when the first viewer comes.
        let of = if is_whep { &viewer["video"] } else { viewer };
        assert!(of["received"].as_f64().unwrap() > 3.5, "{url}: {viewer:#}");
        if is_whep {
            // Some 30 pictures per second.
            assert!(verified["matched"].as_u64().unwrap() > 100, "{url}: {viewer:#}");
            assert!(viewer["rtp"]["packets"].as_u64().unwrap() > 100, "{url}: {viewer:#}");
            assert!(number("first_picture") <= number("startup"), "{url}: {viewer:#}");
        } else {
            assert_eq!(verified["matched"], verified["samples"], "{url}: {viewer:#}");
            assert!(viewer["rtp"].is_null(), "{url}: {viewer:#}");
        }
        // There are some 77 access units per second.
        assert!(verified["samples"].as_u64().unwrap() > 100, "{url}: {viewer:#}");
        // The generator tells if it stood still for some of this. The server may have, too.
        let longest = if document["generator"]["saturated"] == true { 14.0 } else { 6.5 };
        let longest = longest + of_machine(&lateness);
        assert!(number("startup") < longest, "{url}: {viewer:#}");
        let watched = number("watched");
        let media = number("media_bytes");
        assert!((300e3..4e5 * watched).contains(&media), "{url}: {viewer:#}");
        for track in ["video", "audio"].into_iter().filter(|track| !is_whep || *track == "video") {
            assert!(viewer[track]["received"].as_f64().unwrap() > 3.5, "{url}: {viewer:#}");
        }
        if !url.ends_with(".flv") && !url.starts_with("rtmp") && !is_whep {
            let behind = viewer["delivery"]["min"].as_f64().unwrap();
            assert!((-0.2..2.0).contains(&behind), "{url}: {viewer:#}");
        }
    }
}

#[test]
fn a_file_that_is_pushed_is_the_file_whole_and_its_end_is_no_failure() {
    let folder = tempfile::tempdir().unwrap();
    let film = testkit::clip("mp4/film.mp4");
    std::fs::copy(&film, folder.path().join("film.mp4")).unwrap();
    let arguments = ["--vod".as_ref(), folder.path().as_os_str()];
    let server = testkit::Server::start(testkit::headwater(), arguments);
    let push = format!("ws://{}/vod/film.mp4/push", server.http);
    for query in ["?pace=fast", "?from=4&pace=realtime"] {
        let lateness = Lateness::of(&server);
        let url = format!("{push}{query}");
        let reference = film.to_str().unwrap();
        let watch = ["watch", &url, "--duration", "60s", "--json", "--reference", reference];
        let (code, document) = document(start(watch));
        assert_verdict(code, &document, true);
        let viewer = &document["viewer"];
        assert_eq!(viewer["end"], "ended", "{viewer:#}");
        // A busy machine makes a viewer of media that come in real time wait for a moment. The generator tells if it
        // stood still for some seconds. The server may have, too.
        let longest = if document["generator"]["saturated"] == true { 10.0 } else { 3.0 };
        let longest = longest + of_machine(&lateness);
        assert!(viewer["stalled"].as_f64().unwrap() < longest, "{viewer:#}");
        assert_eq!((&viewer["holes"], &viewer["reconnects"]), (&0.into(), &0.into()), "{viewer:#}");
        // A file has no latency.
        assert!(viewer["behind_live"].is_null() && viewer["delivery"].is_null(), "{viewer:#}");
        let verified = &viewer["verified"];
        assert_eq!(verified["matched"], verified["samples"], "{viewer:#}");
        let from = viewer["video"]["from"].as_f64().unwrap();
        let to = viewer["video"]["to"].as_f64().unwrap();
        assert!((from == 4.0) == query.contains("from") && to >= 9.9, "{viewer:#}");
    }
    let arguments = ["--start", "10", "--max", "10", "--fast", "--min-bitrate", "100000"];
    let capacity = ["capacity", &format!("{push}?pace=fast"), "--duration", "30s", "--json"];
    let (code, document) = document(start(capacity.into_iter().chain(arguments)));
    // Even if the generator was the limit, all viewers were served.
    assert!(matches!(code, 0 | 3), "{document:#}");
    let step = &document["steps"][0];
    assert_eq!((&step["passed"], &step["results"]["satisfied"]), (&true.into(), &10.into()));
}

#[test]
fn another_file_is_not_what_was_published() {
    let server = origin();
    let other = testkit::clip("flv/legacy.flv");
    // The error ends it.
    let arguments = ["--duration", "60s", "--json", "--reference", other.to_str().unwrap()];
    let url = server.url("/live/demo/live.flv");
    let (code, document) = document(start(["watch", &url].into_iter().chain(arguments)));
    assert_verdict(code, &document, false);
    assert_eq!(document["viewer"]["error"]["kind"], "corrupt", "{document:#}");
}

#[test]
fn batches_join_one_after_the_other_and_their_records_are_whole() {
    let server = origin();
    let folder = tempfile::tempdir().unwrap();
    // Both at the same time.
    let running =
        [(server.rtmp_url("live/demo"), false), (server.url("/live/demo/index.m3u8"), true)].map(
            |(url, requests)| {
                let folder = folder.path().join(if requests { "hls" } else { "rtmp" });
                let output = folder.to_str().unwrap();
                let program = start([
                    "viewers",
                    &url,
                    "--batches",
                    "3",
                    "--batch-size",
                    "4",
                    "--interval",
                    "500ms",
                    "--duration",
                    "12s",
                    // Some seconds of media, also where the machine stands still for the other seconds.
                    "--at-least",
                    "0.3",
                    "--verify",
                    "sample=4",
                    "--json",
                    "-o",
                    output,
                ]);
                (program, folder, requests)
            },
        );
    for (program, folder, requests) in running {
        let (code, document) = document(program);
        assert_verdict(code, &document, true);
        let viewers = &document["viewers"];
        assert_eq!(viewers["reported"], 12, "{document:#}");
        if code == 0 {
            assert_eq!(viewers["satisfied"], 12, "{document:#}");
        }
        assert!(viewers["errors"].as_object().unwrap().is_empty(), "{document:#}");
        assert!(viewers["verified_samples"].as_u64().unwrap() > 0, "{document:#}");
        assert_eq!(viewers["requests"].as_u64().unwrap() > 100, requests, "{document:#}");
        // The last batch joins after two intervals, and stays for 12 s.
        let elapsed = document["elapsed"].as_f64().unwrap();
        assert!(elapsed >= 13.0, "{document:#}");
        // A generator that stood still for seconds reports that it was saturated.
        assert!(code != 0 || elapsed < 24.0, "{document:#}");

        let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
        let lines: Vec<serde_json::Value> =
            read("viewers.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 12);
        for line in &lines {
            let batch = line["batch"].as_f64().unwrap();
            let late = line["joined"].as_f64().unwrap() - 0.5 * batch;
            assert!(late >= 0.0 && (code != 0 || late < 3.0), "{line:#}");
            let left = line["joined"].as_f64().unwrap() + line["watched"].as_f64().unwrap();
            assert!(left <= elapsed, "{line:#}");
            let id = line["id"].as_u64().unwrap();
            assert_eq!(line["verified"].is_null(), id % 4 != 0, "{line:#}");
        }
        let sum: u64 = lines.iter().map(|line| line["media_bytes"].as_u64().unwrap()).sum();
        assert_eq!(viewers["media_bytes"], sum);
        let last: serde_json::Value =
            serde_json::from_str(read("ticks.jsonl").lines().last().unwrap()).unwrap();
        assert_eq!(last["media_bytes"], sum);
        assert_eq!((&last["joined"], &last["left"]), (&12.into(), &12.into()));
        let summary: serde_json::Value = serde_json::from_str(&read("summary.json")).unwrap();
        assert_eq!(summary["viewers"]["media_bytes"], sum);
        assert!(read("startup.hlog").contains("HIST"), "an HDR interval log");
    }
}

#[test]
fn viewers_by_whep_see_and_hear_and_end_their_sessions() {
    let server = origin();
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().to_str().unwrap();
    let (reference, url) = (demo_clip(), server.url("/live/demo/whep"));
    let program = start([
        "viewers",
        &url,
        "--batches",
        "2",
        "--batch-size",
        "1",
        "--interval",
        "500ms",
        "--duration",
        "20s",
        "--at-least",
        "0",
        "--verify",
        "full",
        "--reference",
        reference.to_str().unwrap(),
        "--json",
        "-o",
        output,
    ]);
    let (code, document) = document(program);
    assert_verdict(code, &document, true);
    assert_eq!(document["protocol"], "whep", "{document:#}");
    let viewers = &document["viewers"];
    assert_eq!((&viewers["reported"], &viewers["played"]), (&2.into(), &2.into()), "{document:#}");
    assert!(viewers["troubles"].as_object().unwrap().is_empty(), "{document:#}");
    // The offer, and the end of the session.
    assert_eq!(viewers["requests"], 4, "{document:#}");
    let lines = std::fs::read_to_string(folder.path().join("viewers.jsonl")).unwrap();
    let mut packets = 0;
    for line in lines.lines() {
        let viewer: serde_json::Value = serde_json::from_str(line).unwrap();
        for track in ["video", "audio"] {
            assert!(viewer[track]["received"].as_f64().unwrap() > 0.0, "{viewer:#}");
        }
        packets += viewer["rtp"]["packets"].as_u64().unwrap();
    }
    assert_eq!(viewers["rtp"]["packets"], packets, "{document:#}");
    testkit::eventually(LIMIT, "no session", || server.metric("headwater_webrtc_sessions") == 0);
}

#[test]
fn av1_by_whep_is_that_of_the_file() {
    is_that_of_the_file_by_whep("mp4/av1-aac.mp4");
}

#[test]
fn hevc_by_whep_is_that_of_the_file() {
    is_that_of_the_file_by_whep("mp4/hevc-aac.mp4");
}

#[track_caller]
fn is_that_of_the_file_by_whep(clip: &str) {
    // ffmpeg makes the audio for WebRTC. It gives way to all that keeps a machine busy, and is too slow then.
    let config = "[ladder]\nnice = 0\n";
    let server = testkit::Server::configured(testkit::headwater(), config, testkit::NO_ARGUMENTS);
    let (clip, url) = (testkit::clip(clip), server.url("/live/x/whep"));
    let _publisher = server.publish(&clip, &server.rtmp_url("live/x"), &["--loop"]);
    server.get_until("/live/x/index.m3u8", LIMIT, |answer| answer.status() == 200);
    let reference = clip.to_str().unwrap();
    let watch = ["watch", &url, "--duration", "20s", "--json", "--reference", reference];
    let (code, document) = document(start(watch));
    assert_verdict(code, &document, true);
    let viewer = &document["viewer"];
    // The clips last 2 s. Where a machine that stood still has lost most of one, the next pictures seem to be older.
    let has_lost = viewer["rtp"]["lost"] != 0 && document["generator"]["saturated"] == true;
    assert!(has_lost || viewer["troubles"].as_object().unwrap().is_empty(), "{viewer:#}");
    // Some 30 pictures a second. They are compared, the sound is not.
    assert!(viewer["verified"]["matched"].as_u64().unwrap() > 60, "{viewer:#}");
}

#[test]
fn a_stream_that_does_not_exist_is_refused_by_whep() {
    let server = testkit::Server::start(testkit::headwater(), testkit::NO_ARGUMENTS);
    let url = server.url("/live/none/whep");
    let (code, document) = document(start(["watch", &url, "--duration", "60s", "--json"]));
    assert_verdict(code, &document, false);
    let error = &document["viewer"]["error"];
    assert_eq!((&error["kind"], &error["what"]), (&"status".into(), &"status 404".into()));
}

#[test]
fn a_server_that_goes_away_is_one_kind_of_error_and_no_hang() {
    let server = origin();
    let url = server.rtmp_url("live/demo");
    let program = start(["viewers", &url, "--batch-size", "5", "--duration", "10m", "--json"]);
    // The origin goes away once all viewers play.
    server.get_until("/metrics", LIMIT, |response| {
        response.text().lines().any(|line| {
            line.contains("viewers") && line.contains("rtmp") && line.trim_end().ends_with(" 5")
        })
    });
    let began = std::time::Instant::now();
    drop(server);
    let (code, document) = document(program);
    // Long before the end of their time.
    assert!(began.elapsed() < LIMIT, "{:?}", began.elapsed());
    assert_verdict(code, &document, false);
    let ended: u64 = document["viewers"]["errors"]
        .as_object()
        .unwrap()
        .values()
        .filter_map(|n| n.as_u64())
        .sum();
    // Viewers learn that the stream is over, or their connections are just closed.
    assert_eq!(document["viewers"]["reported"], 5, "{document:#}");
    assert!(ended <= 5 && document["viewers"]["satisfied"] == 0, "{document:#}");
}
