//! Viewers of a live stream that go back anywhere in its window, and do not count as too slow for
//! that. The stream stands still meanwhile, so no viewer is behind for another reason.

use serde_json::json;
use testkit::push::Client;
use testkit::{Server, demo_clip, playlist, publish_looped, time_of, track_of};

use crate::renditions::link;
use crate::support::{LIMIT, metric, server};

/// A viewer may normally be much less behind than the window lasts.
const TABLES: &str = "[live]\nsegment_target = \"1s\"\ntarget_duration = \"2s\"\nwindow = \"1m\"\n\
    silence = \"10m\"\nviewer_queue = \"256KiB\"\nviewer_patience = \"1s\"\n";

/// Start times of the listed video segments, in seconds of the stream's timeline.
#[track_caller]
fn listed(server: &Server) -> Vec<f64> {
    let folder = "/live/window/v0";
    let playlist = server.get(&format!("{folder}/media.m3u8"));
    let names = playlist::listed(playlist.text());
    let segments = names.map(|name| server.get(&format!("{folder}/{name}")));
    let found = segments.filter(|answer| answer.status() == 200);
    found.map(|answer| time_of(&answer.body) as f64 / 90_000.0).collect()
}

/// Decode time of the next video chunk, in seconds. Asserts that nothing was skipped.
#[track_caller]
fn next_time(client: &mut Client) -> f64 {
    let frame = client.until(|frame| match frame.opcode {
        1 => panic!("{}", frame.event()),
        2 => frame.payload[4..8] != *b"ftyp" && track_of(&frame.payload) == 1,
        _ => false,
    });
    time_of(&frame.payload) as f64 / 90_000.0
}

#[test]
fn the_whole_window_may_be_watched_by_who_is_behind_on_purpose() {
    let server = server(TABLES);
    let publisher = publish_looped(demo_clip(), &server.rtmp_url("live/window"));
    server.until_listed("live/window", &["v0"], 8, LIMIT);
    publisher.pause();

    // From the oldest segment on without a gap, also over a link on which that takes longer than a
    // viewer may normally be behind.
    let (address, _) = link(server.http, 350_000);
    let (before, mut clients) = (listed(&server), Vec::new());
    for address in [server.http, address] {
        let mut client = Client::connect(address, "/live/window/push?from=start");
        assert_eq!(client.next().unwrap().event()["event"], "hello");
        clients.push(client);
    }
    for client in &mut clients {
        let (first, mut last) = (next_time(client), f64::MIN);
        assert!(first <= before[0] + 0.001, "{first} {before:?}");
        let mut time = first;
        while time < first + 6.0 {
            assert!(last == f64::MIN || time > last && time - last < 0.5, "{last}, then {time}");
            last = time;
            time = next_time(client);
        }
    }

    // Seeks to any second of the window.
    let mut client = Client::connect(server.http, "/live/window/push");
    for back in [5.5, 1.5, 4.0, 2.2] {
        let starts = listed(&server);
        let newest = starts.last().unwrap();
        let wanted = newest - back;
        client.say(&json!({"seek": wanted}).to_string());
        let event = client.until(|frame| frame.opcode == 1 && frame.event()["event"] != "hello");
        assert_eq!(event.event(), json!({"event": "discontinuity", "reason": "seek"}));
        let time = next_time(&mut client);
        assert!(time <= wanted && time > wanted - 1.5, "{wanted}: {time} {starts:?}");
    }
    for counter in ["skipped", "closed"] {
        let metrics = server.metrics();
        let slow = format!("headwater_slow_viewers_{counter}_total{{delivery=\"push\"");
        let mut counts = metrics.text().lines().filter(|line| line.starts_with(&slow));
        assert!(counts.all(|line| line.ends_with(" 0")), "{}", metrics.text());
    }
    assert_eq!(metric(&server, "headwater_viewers{stream=\"live/window\",delivery=\"push\"}"), 3);
}
