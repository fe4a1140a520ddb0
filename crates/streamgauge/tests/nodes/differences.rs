//! Nodes that differ are found out.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Once};
use std::time::Duration;

use serde_json::Value;
use testkit::{NO_ARGUMENTS, Server, eventually, headwater, noise};

use crate::common::{assert_published, origin};
use crate::relay::{Answer, start};
use crate::{LIMIT, compare, count, document, document_of, spawn};

/// The demo stream by HLS and by DASH.
const DEMO: [&str; 2] = ["/live/demo/index.m3u8", "/live/demo/manifest.mpd"];

/// The URLs of a path on an origin and on a relay in front of it.
fn both(origin: &Server, relay: SocketAddr, path: &str) -> [String; 2] {
    [origin.url(path), format!("http://{relay}{path}")]
}

/// Compares an origin and a relay that alters what it passes on.
#[track_caller]
fn differences(
    origin: &Server,
    path: &str,
    alter: impl Fn(&str, &mut Answer) + Send + Sync + 'static,
) -> Value {
    let [document] = differences_of(origin, [path], alter);
    document
}

/// Compares several paths of an origin and of such a relay at the same time.
#[track_caller]
fn differences_of<const N: usize>(
    origin: &Server,
    paths: [&str; N],
    alter: impl Fn(&str, &mut Answer) + Send + Sync + 'static,
) -> [Value; N] {
    let relay = start(origin.http, alter);
    let running = paths.map(|path| {
        let [own, relayed] = both(origin, relay, path);
        // Media are compared also where the machine stands still for some seconds.
        let program = spawn(&[&own, &relayed, "--duration", "12s", "--timeout", "30s", "--json"]);
        (own, relayed, program)
    });
    running.map(|(own, relayed, program)| {
        let (code, document) = document_of(&program.wait(LIMIT));
        assert_names(&document, code, [&own, &relayed]);
        document
    })
}

/// Checks the verdict, and that differences are of these nodes.
#[track_caller]
fn assert_names(document: &Value, code: i32, urls: [&str; 2]) {
    let [own, relayed] = urls;
    let differ = count(document, "differences") > 0;
    assert_eq!(code == 1, differ, "{document:#}");
    assert_eq!(document["passed"], !differ, "{document:#}");
    for difference in document["differences"].as_array().unwrap() {
        let nodes = [&difference["node"], &difference["from"]].map(|url| url.as_str().unwrap());
        assert!(nodes.contains(&own) && nodes.contains(&relayed), "{difference:#}");
    }
}

/// Checks that all differences are of this kind, and of objects that `of` accepts. There are some.
#[track_caller]
fn assert_all(document: &Value, what: &str, of: impl Fn(&str) -> bool) {
    let all = document["differences"].as_array().unwrap();
    assert!(!all.is_empty(), "{document:#}");
    for difference in all {
        assert_eq!(difference["what"], what, "{difference:#}");
        assert!(of(difference["object"].as_str().unwrap()), "{difference:#}");
    }
}

#[test]
fn a_relay_that_alters_nothing_is_the_same() {
    let origin = origin();
    for document in differences_of(&origin, DEMO, |_, _| {}) {
        assert_eq!(document["differences"], Value::Array(Vec::new()), "{document:#}");
        assert!(count(&document, "objects") >= 6, "{document:#}");
    }
}

#[test]
fn a_byte_of_a_part_and_of_a_segment_is_found() {
    let origin = origin();
    // Objects of video only: init, segments and parts.
    let altered = |path: &str| path.contains("/v0/") && path.ends_with(".m4s");
    let alter = move |path: &str, answer: &mut Answer| {
        if altered(path) && answer.status == 200 {
            answer.body[100] ^= 1;
        }
    };
    let [document_of_hls, document_of_dash] = differences_of(&origin, DEMO, alter);
    for document in [&document_of_hls, &document_of_dash] {
        assert_all(document, "body", |name| name.starts_with("v0/") && name.ends_with(".m4s"));
        for difference in document["differences"].as_array().unwrap() {
            assert_eq!(difference["offset"], 100, "{difference:#}");
            assert_eq!(difference["lengths"][0], difference["lengths"][1]);
        }
    }
    // A part has two dots in its name, and a segment one.
    let is_part =
        |difference: &Value| difference["object"].as_str().unwrap().matches('.').count() > 1;
    let all = document_of_hls["differences"].as_array().unwrap();
    assert!(all.iter().any(is_part) && !all.iter().all(is_part), "{document_of_hls:#}");
}

#[test]
fn a_line_of_a_playlist_is_found() {
    let origin = origin();
    let document = differences(&origin, "/live/demo/v0/media.m3u8", |path, answer| {
        if path.contains("media.m3u8") {
            // A line that does not change when playlists are asked for: answers that are waited for are compared
            // only with others of these.
            let text = String::from_utf8_lossy(&answer.body);
            answer.body = text.replace("PART-INF:", "PART-INF:X-ALTERED=1,").into();
        }
    });
    assert_all(&document, "body", |name| name.starts_with("media.m3u8 in state "));
    let first = &document["differences"][0];
    assert!(first["offset"].as_u64().unwrap() > 20, "{first:#}");
}

#[test]
fn a_field_of_a_header_is_found() {
    let origin = origin();
    let document = differences(&origin, "/live/demo/index.m3u8", |path, answer| {
        if path.contains("/a0/init") {
            answer.set("content-type", "audio/aac");
        }
    });
    assert_all(&document, "Content-Type", |name| name.starts_with("a0/init"));
    let values = document["differences"][0]["values"].to_string();
    assert!(values.contains("audio/aac") && values.contains("audio/mp4"), "{values}");
}

#[test]
fn an_object_that_a_node_does_not_have_is_found() {
    let origin = origin();
    let document = differences(&origin, "/live/demo/index.m3u8", |path, answer| {
        if path.contains("/v0/init") {
            answer.status = 404;
            answer.body.clear();
        }
    });
    assert_all(&document, "absent", |name| name.starts_with("v0/init"));
    assert_eq!(document["differences"][0]["values"][0], "status 404");
    let troubled = document["nodes"].as_array().unwrap().iter().filter(|n| n["troubles"] != 0);
    assert_eq!(troubled.count(), 1, "{document:#}");
}

#[test]
fn a_playlist_that_a_node_does_not_serve_is_found() {
    let origin = origin();
    let document = differences(&origin, "/live/demo/index.m3u8", |path, answer| {
        if path.contains("/a0/media.m3u8") {
            answer.status = 500;
            answer.body.clear();
        }
    });
    let all = document["differences"].as_array().unwrap();
    let is_it = |difference: &&Value| difference["object"] == "a0/media.m3u8";
    let found = all.iter().find(is_it).unwrap_or_else(|| panic!("{document:#}"));
    assert_eq!((&found["what"], &found["values"][0]), (&"absent".into(), &"status 500".into()));
}

#[test]
fn files_are_compared_to_the_first_byte_that_differs() {
    let origin = Server::start(headwater(), NO_ARGUMENTS);
    let bytes = noise(3, 9_000_000);
    origin.put("file.bin", &bytes);
    let same = differences(&origin, "/vod/file.bin", |_, _| {});
    assert_eq!((count(&same, "bytes"), count(&same, "differences")), (9_000_000, 0));
    let altered = differences(&origin, "/vod/file.bin", |_, answer| {
        let range = answer.fields.iter().find(|(name, _)| name == "content-range").unwrap();
        let first: usize = range.1["bytes ".len()..].split('-').next().unwrap().parse().unwrap();
        if let Some(byte) =
            5_000_000_usize.checked_sub(first).and_then(|at| answer.body.get_mut(at))
        {
            *byte ^= 1;
        }
    });
    assert_all(&altered, "body", |name| name.starts_with("file.bin "));
    assert_eq!(altered["differences"][0]["offset"], 5_000_000, "{altered:#}");
    let text = compare(&[&origin.url("/vod/file.bin"), &origin.url("/vod/file.bin")]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.ends_with("the same on all nodes\n"), "{text}");
}

#[test]
fn a_node_without_ranges_is_compared_range_by_range() {
    let origin = Server::start(headwater(), NO_ARGUMENTS);
    let bytes = noise(3, 9_000_000);
    origin.put("file.bin", &bytes);
    for altered in [None, Some(5_000_000)] {
        let bytes = bytes.clone();
        let document = differences(&origin, "/vod/file.bin", move |_, answer| {
            answer.status = 200;
            answer.fields.retain(|(name, _)| name != "content-range");
            answer.body.clone_from(&bytes);
            if let Some(at) = altered {
                answer.body[at] ^= 1;
            }
        });
        let Some(at) = altered else {
            assert_eq!(
                (count(&document, "bytes"), count(&document, "differences")),
                (9_000_000, 0)
            );
            continue;
        };
        assert_eq!(
            (count(&document, "differences"), &document["differences"][0]["offset"]),
            (1, &at.into())
        );
    }
}

#[test]
fn a_node_that_is_far_ahead_waits_for_the_others() {
    let origin = Server::start(headwater(), NO_ARGUMENTS);
    // More than may wait for other nodes, in segments that are listed at once.
    let (segments, length) = (60, 8 << 20);
    let body = noise(5, length);
    let serve = |pause: Duration| {
        let body = body.clone();
        let begun = Once::new();
        start(origin.http, move |path, answer| {
            (answer.status, answer.fields) = (200, Vec::new());
            if path.ends_with(".m3u8") {
                let listed: String =
                    (0..segments).map(|n| format!("#EXTINF:2,\n{n}.ts\n")).collect();
                let head = "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXT-X-PLAYLIST-TYPE:VOD\n";
                answer.body = format!("{head}{listed}#EXT-X-ENDLIST\n").into_bytes();
                return;
            }
            // The other node has answered much when this one begins.
            begun.call_once(|| std::thread::sleep(pause));
            answer.body.clone_from(&body);
        })
    };
    let nodes = [serve(Duration::ZERO), serve(Duration::from_secs(3))];
    let [fast, slow] = nodes.map(|node| format!("http://{node}/vod/x.m3u8"));
    let (code, document) = document(&[&fast, &slow, "--timeout", "90s"]);
    assert_eq!((code, count(&document, "given_up")), (0, 0), "{document:#}");
    let all = segments * length as u64;
    assert!(count(&document, "bytes") >= all && all > 256 << 20, "{document:#}");
}

#[test]
fn a_node_is_asked_for_all_it_was_not_seen_to_have() {
    let origin = Server::start(headwater(), NO_ARGUMENTS);
    // So many, and so slow, that asking for all takes longer than asking again may take.
    let segments = 100;
    let serve = |listed: u32, pause: Duration| {
        start(origin.http, move |path, answer| {
            (answer.status, answer.fields) = (200, Vec::new());
            if path.ends_with(".m3u8") {
                let listed: String = (0..listed).map(|n| format!("#EXTINF:2,\n{n}.ts\n")).collect();
                let head = "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXT-X-PLAYLIST-TYPE:VOD\n";
                answer.body = format!("{head}{listed}#EXT-X-ENDLIST\n").into_bytes();
                return;
            }
            std::thread::sleep(pause);
            answer.body = b"media".to_vec();
        })
    };
    let nodes = [serve(segments, Duration::ZERO), serve(1, Duration::from_secs(1))];
    let [fast, slow] = nodes.map(|node| format!("http://{node}/vod/x.m3u8"));
    let (_, document) = document(&[&fast, &slow, "--timeout", "90s"]);
    assert_eq!(count(&document, "differences"), 0, "{document:#}");
    assert!(count(&document, "objects") >= u64::from(segments), "{document:#}");
}

#[test]
fn an_interrupt_ends_it_with_what_was_compared() {
    let origin = origin();
    let asked = Arc::new(AtomicU64::new(0));
    let of_all = Arc::clone(&asked);
    let relay = start(origin.http, move |_, _| {
        of_all.fetch_add(1, Relaxed);
    });
    let [own, relayed] = both(&origin, relay, "/live/demo/index.m3u8");
    let program = spawn(&[&own, &relayed, "--duration", "10m", "--json"]);
    eventually(LIMIT, "objects were asked for", || asked.load(Relaxed) > 30);
    program.terminate();
    let (code, document) = document_of(&program.wait(LIMIT));
    assert_eq!((code, &document["interrupted"]), (0, &true.into()), "{document:#}");
    assert!(count(&document, "objects") > 0, "{document:#}");
}

#[test]
fn what_cannot_be_compared_is_refused() {
    for (arguments, complaint) in [
        (&["http://h/x.m3u8"][..], "URL"),
        (&["rtmp://h/live/x", "rtmp://i/live/x"], "only HLS, DASH and files"),
        (&["http://h/x.m3u8", "http://h/x.mpd"], "all URLs must be"),
        (&["http://h/x.m3u8", "ftp://h/x.m3u8"], "ftp"),
    ] {
        let finished = compare(arguments);
        assert_eq!(finished.status.code(), Some(2), "{arguments:?}");
        assert!(finished.stderr.contains(complaint), "{}", finished.stderr);
    }
    // Nobody is there, so nothing is compared.
    let (code, document) =
        document(&["http://127.0.0.1:9/x.mpd", "http://127.0.0.1:9/y.mpd", "--duration", "1s"]);
    assert_eq!((code, count(&document, "objects")), (1, 0), "{document:#}");
    assert!(document["nodes"][0]["trouble"].as_str().unwrap().contains("refused"), "{document:#}");
}

#[test]
fn the_published_schema_is_that_of_the_document() {
    assert_published(
        "compare-nodes",
        &schemars::schema_for!(streamgauge::nodes::document::Document),
    );
}
