//! Stamps that `headwater publish --stamp` puts into a stream, on their way through servers to
//! players of every delivery.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

#[path = "../common/mod.rs"]
mod common;
mod relay;

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use testkit::{Port, Program, Server, demo_clip, eventually, headwater, headwater_publish};

use common::{LIMIT, document, newest_tick, start};
use relay::Relay;

/// For how long the relay holds bytes back.
const HELD: Duration = Duration::from_millis(300);

/// A generous limit for the least latency: a part, plus the delays of a busy machine.
/// `viewer::player::times` has tests of players on a clock that stands still: there, stamps tell the
/// latency exactly.
const MOST: f64 = 3.0;

fn publish(url: &str) -> Program {
    headwater_publish(headwater(), demo_clip(), url, &["--loop", "--stamp"])
}

/// Starts a verified viewer. It compares the stream with the file without stamps.
fn watch(url: &str) -> Program {
    let reference = demo_clip();
    let reference = reference.to_str().unwrap();
    // 100 samples of video take 3.4 s. A busy machine takes a while to begin, and may stand still for seconds.
    start(["watch", url, "--duration", "15s", "--json", "--reference", reference])
}

/// Checks that every access unit was verified and that stamps gave the latency; returns the
/// smallest latency.
#[track_caller]
fn delivery(url: &str, program: Program) -> f64 {
    let (_, document) = document(program);
    let viewer = &document["viewer"];
    assert_eq!(viewer["end"], "time", "{url}: {viewer:#}");
    let verified = &viewer["verified"];
    if url.ends_with("/whep") {
        // The sound is not the file's. Where the viewer is not run for a while, packets are lost, each of one picture.
        let [missing, lost] = [&verified["missing"], &viewer["rtp"]["lost"]].map(Value::as_u64);
        let is_held_up = document["generator"]["loops"][0]["lag_max"].as_f64() > Some(0.3);
        let most = if is_held_up { lost } else { Some(0) };
        assert!(missing.is_some() && missing <= most, "{url}: {document:#}");
    } else {
        assert_eq!(verified["matched"], verified["samples"], "{url}: {viewer:#}");
    }
    assert!(verified["samples"].as_u64().unwrap() > 100, "{url}: {viewer:#}");
    told(url, viewer)
}

/// The smallest latency of a viewer, by stamps.
#[track_caller]
fn told(url: &str, viewer: &Value) -> f64 {
    assert_eq!(viewer["clock"], "stamp", "{url}: {viewer:#}");
    let least = |key: &str| viewer[key]["min"].as_f64().unwrap_or_else(|| panic!("{viewer:#}"));
    assert!((0.0..MOST).contains(&least("delivery")), "{url}: {viewer:#}");
    assert!(least("behind_live") > 0.0, "{url}: {viewer:#}");
    least("delivery")
}

/// Starts a viewer that does not verify, until it is told to end.
fn viewer(url: &str, folder: &Path) -> Program {
    let folder = folder.to_str().unwrap();
    start(["viewers", url, "--batch-size", "1", "--duration", "10m", "--json", "-o", folder])
}

/// Whether the viewer of a run that writes to this folder plays, and knows the publisher's clock.
fn knows_the_clock(folder: &Path) -> bool {
    newest_tick(folder).is_some_and(|tick| tick["playing"] == 1 && tick["delivery"] != 0.0)
}

#[test]
fn every_delivery_of_the_origin_tells_the_publishers_clock() {
    let server = Server::start(headwater(), testkit::NO_ARGUMENTS);
    let publisher = publish(&server.rtmp_url("live/x"));
    server.get_until("/live/x/v0/media.m3u8", LIMIT, |response| {
        response.status() == 200 && response.text().matches("#EXTINF").count() >= 4
    });
    let urls = [
        server.rtmp_url("live/x"),
        server.url("/live/x/live.flv"),
        server.url("/live/x/live.mp4"),
        server.url("/live/x/index.m3u8"),
        server.url("/live/x/manifest.mpd"),
        server.url("/live/x/whep"),
    ];
    let verified: Vec<_> = urls.iter().map(|url| watch(url)).collect();
    for (url, program) in urls.iter().zip(verified) {
        delivery(url, program);
    }
    let folder = tempfile::tempdir().unwrap();
    let folders: Vec<_> =
        (0..urls.len()).map(|number| folder.path().join(number.to_string())).collect();
    let skimmed: Vec<_> =
        urls.iter().zip(&folders).map(|(url, folder)| viewer(url, folder)).collect();
    for (url, folder) in urls.iter().zip(&folders) {
        eventually(LIMIT, url, || knows_the_clock(folder));
    }
    for ((url, program), folder) in urls.iter().zip(skimmed).zip(&folders) {
        program.terminate();
        document(program);
        let lines = std::fs::read_to_string(folder.join("viewers.jsonl")).unwrap();
        told(url, &serde_json::from_str(lines.lines().next().unwrap()).unwrap());
    }
    drop(publisher);
}

#[test]
fn bytes_that_are_held_back_are_late_by_that() {
    let server = Server::start(headwater(), testkit::NO_ARGUMENTS);
    let rtmp = server.rtmp_url("live/x");
    let publisher = publish(&rtmp);
    server.get_until("/live/x/v0/media.m3u8", LIMIT, |response| {
        response.status() == 200 && response.text().contains("#EXTINF")
    });
    let flv = server.url("/live/x/live.flv");
    let through = |url: &str| {
        let (scheme, rest) = url.split_once("://").unwrap();
        let (authority, path) = rest.split_once('/').unwrap();
        let relay = Relay::start(authority.parse().unwrap(), HELD);
        (format!("{scheme}://{}/{path}", relay.address), relay)
    };
    let (rtmp, _of_rtmp) = through(&rtmp);
    let (flv, _of_flv) = through(&flv);
    let late = [(&rtmp, watch(&rtmp)), (&flv, watch(&flv))];
    for (url, program) in late {
        let least = delivery(url, program);
        assert!(least >= HELD.as_secs_f64(), "{url}: {least}");
    }
    drop(publisher);
}

#[test]
fn nginx_passes_stamps_on() {
    let folder = tempfile::tempdir().unwrap();
    let port = Port::find();
    let config = format!(
        "load_module /usr/lib/nginx/modules/ngx_rtmp_module.so;
         user root; error_log stderr;
         events {{}}
         rtmp {{ server {{ listen 127.0.0.1:{port};
           application live {{ live on; wait_key on; }} }} }}"
    );
    let nginx = testkit::nginx(folder.path(), &port, &config);
    let url = format!("rtmp://127.0.0.1:{port}/live/x");
    let publisher = publish(&url);
    publisher.stderr_line(LIMIT, |line| line.contains("publishing"));
    delivery(&url, watch(&url));
    drop((publisher, nginx));
}
