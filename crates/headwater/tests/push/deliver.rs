//! The messages that viewers get.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use testkit::push::Client;
use testkit::{Program, Server, certificate, eventually, playlist, time_of, track_of};

use crate::support::{Got, LIMIT, metric, server};

/// The segments that are complete now, by track.
fn segments(server: &Server) -> HashMap<&'static str, Vec<Vec<u8>>> {
    let of = |track: &'static str| {
        let playlist = server.get(&format!("/live/demo/{track}/media.m3u8"));
        let bodies: Vec<_> = playlist::listed(playlist.text())
            .map(|name| server.get(&format!("/live/demo/{track}/{name}")))
            .filter(|answer| answer.status() == 200)
            .map(|answer| answer.body)
            .collect();
        (track, bodies)
    };
    [of("v0"), of("a0")].into()
}

/// Asserts that ffmpeg decodes the file without an error, and at least this many frames.
#[track_caller]
fn decodes(file: &Path, least: usize) {
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-v", "error", "-xerror", "-i"]).arg(file).args(["-f", "null", "-"]);
    let errors = Program::spawn(&mut ffmpeg).wait(LIMIT);
    assert!(errors.status.success() && errors.stderr.is_empty(), "{}", errors.stderr);
    let pictures = testkit::ffprobe_packets(file);
    let pictures = pictures.iter().filter(|packet| packet.kind == "video").count();
    assert!(pictures >= least, "{pictures} pictures");
}

#[track_caller]
fn check(server: &Server, url: &str, unit: &str, certificate: Option<&Path>) {
    // Both are about seven seconds of two tracks.
    let count = if unit == "segment" { 19 } else { 87 };
    let folder = tempfile::tempdir().unwrap();
    let url = format!("{url}/live/demo/push?latency={unit}");
    let got = Got::receive(&url, Some(count), certificate);
    let segments = segments(server);

    let hello = &got.events[0];
    assert_eq!(hello["event"], "hello");
    assert_eq!(hello["rendition"], "v0");
    assert_eq!(hello["renditions"][0]["name"], "v0");
    assert!(hello["renditions"][0]["codecs"].as_str().unwrap().starts_with("avc1."), "{hello}");
    assert_eq!(hello["audio"]["name"], "a0");
    assert!(got.events.iter().all(|event| event["event"] != "error"), "{:?}", got.events);

    let (header, chunks) = got.media.split_first().unwrap();
    assert_eq!(header[4..8], *b"ftyp");
    let mut tracks = HashMap::<u32, Vec<u8>>::new();
    for chunk in chunks {
        tracks.entry(track_of(chunk)).or_default().extend_from_slice(chunk);
    }
    assert_eq!(tracks.len(), 2);
    let film = folder.path().join("film.mp4");
    std::fs::write(&film, got.media.concat()).unwrap();
    decodes(&film, 90);

    // Push has the same bytes as the segments of the same time.
    for (track, segments) in segments {
        let number = track_of(&segments[0]);
        let pushed = &tracks[&number];
        let found = segments.iter().filter(|segment| {
            pushed.windows(segment.len()).step_by(1).any(|part| part == &segment[..])
        });
        assert!(found.count() >= 2, "{track} in {} bytes", pushed.len());
    }
}

#[test]
fn a_foreign_client_gets_what_hls_has_in_chunks() {
    let server = server("");
    check(&server, &format!("ws://{}", server.http), "chunk", None);
}

#[test]
fn a_foreign_client_gets_the_same_over_tls() {
    let folder = tempfile::tempdir().unwrap();
    let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    certificate::make("push", &cert, &key);
    let server = server(&certificate::table(&cert, &key));
    check(&server, &format!("wss://{}", server.https.unwrap()), "chunk", Some(&cert));
}

#[test]
fn a_foreign_client_gets_what_hls_has_in_segments() {
    let server = server("[live]\nsegment_target = \"1s\"\n");
    check(&server, &format!("ws://{}", server.http), "segment", None);
}

#[test]
fn messages_cost_four_bytes_or_ten_and_viewers_are_counted() {
    let server = server("workers = 1");
    let mut clients: Vec<_> =
        (0..3).map(|_| Client::connect(server.http, "/live/demo/push")).collect();
    let viewers = || {
        let answer = server.get("/api/v1/streams/live/demo");
        serde_json::from_str::<Value>(answer.text()).unwrap()["viewers"]["push"].clone()
    };
    eventually(LIMIT, "all are counted", || viewers() == 3);
    let gauge = r#"headwater_viewers{stream="live/demo",delivery="push"}"#;
    assert_eq!(metric(&server, gauge), 3);
    let read = |client: &mut Client, chunks: &mut HashMap<_, _>| {
        let frame = client.next().unwrap();
        assert_eq!(frame.opcode, 2);
        let head = if frame.payload.len() < 1 << 16 { 4 } else { 10 };
        assert_eq!(frame.head, head);
        chunks.insert((track_of(&frame.payload), time_of(&frame.payload)), frame.payload);
    };
    let mut all = Vec::new();
    for client in &mut clients {
        assert_eq!(client.next().unwrap().event()["event"], "hello");
        let header = client.next().unwrap();
        assert_eq!((header.opcode, &header.payload[4..8]), (2, &b"ftyp"[..]));
        let mut chunks = HashMap::new();
        while chunks.len() < 30 {
            read(client, &mut chunks);
        }
        all.push(chunks);
    }
    // All viewers get the same chunks, once those of the first are there where the others began.
    eventually(LIMIT, "they share chunks", || {
        clients.iter_mut().zip(&mut all).for_each(|(client, chunks)| read(client, chunks));
        let (first, others) = all.split_first().unwrap();
        let of = |other: &HashMap<_, _>| {
            let shared = other.iter().filter_map(|(key, chunk)| Some((first.get(key)?, chunk)));
            shared.inspect(|(same, chunk)| assert!(same == chunk)).count()
        };
        others.iter().all(|other| of(other) > 10)
    });
    clients.pop();
    eventually(LIMIT, "one has gone", || viewers() == 2);
}
