//! The messages that viewers of titles get: compared byte by byte, and with a client by others.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

pub(crate) use testkit::clip as media;
use testkit::http::get_with;
use testkit::push::{Client, KEY};
use testkit::{Program, Server, certificate, eventually, playlist, track_of};

use crate::support::{Got, LIMIT, metric, with_rare_pings};

/// A server of a folder of files, with these lines of configuration.
#[track_caller]
pub(crate) fn server(root: &Path, tables: &str) -> Server {
    let arguments = [OsStr::new("--vod"), root.as_os_str()];
    Server::configured(env!("CARGO_BIN_EXE_headwater"), &with_rare_pings(tables), arguments)
}

/// Runs ffmpeg, which must succeed, and returns its standard output.
#[track_caller]
pub(crate) fn ffmpeg<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Vec<u8> {
    let quiet = ["-nostdin", "-hide_banner", "-loglevel", "error", "-xerror", "-y"];
    Program::output(Command::new("ffmpeg").args(quiet).args(arguments), LIMIT)
}

/// Hashes of the decoded frames and runs of audio, in order. The hash is fast, because there are
/// hundreds of megabytes. Edit lists are ignored, because a pushed stream has none.
#[track_caller]
fn decoded(file: &Path, map: &str) -> Vec<String> {
    let mut arguments = vec![OsStr::new("-ignore_editlist"), OsStr::new("1"), OsStr::new("-i")];
    let output =
        ["-map", map, "-fps_mode", "passthrough", "-f", "framehash", "-hash", "murmur3", "-"];
    arguments.push(file.as_os_str());
    arguments.extend(output.map(OsStr::new));
    testkit::framehash(&ffmpeg(arguments)).into_iter().map(|frame| frame.md5).collect()
}

/// A track's segments, in the order of its media playlist.
#[track_caller]
pub(crate) fn segments(server: &Server, title: &str, track: &str) -> Vec<Vec<u8>> {
    let folder = format!("/vod/{title}/{track}");
    let playlist = server.get(&format!("{folder}/media.m3u8"));
    assert_eq!(playlist.status(), 200, "{folder}");
    let bodies = playlist::listed(playlist.text()).map(|name| {
        let answer = server.get(&format!("{folder}/{name}"));
        assert_eq!(answer.status(), 200, "{name}");
        answer.body
    });
    bodies.collect()
}

/// Asserts that a client by others gets a whole title as it is in the file and in HLS.
#[track_caller]
fn check(
    server: &Server,
    url: &str,
    (root, title): (&Path, &str),
    tracks: &[&str],
    certificate: Option<&Path>,
) {
    let got = Got::receive(&format!("{url}/vod/{title}/push?pace=fast"), None, certificate);
    let (hello, end) = (&got.events[0], &got.events[1]);
    assert_eq!(hello["event"], "hello");
    let seconds = hello["duration"].as_f64().unwrap();
    assert!(seconds > 1.0, "{hello}");
    assert_eq!((end, got.events.len()), (&serde_json::json!({"event": "end"}), 2));

    let (header, messages) = got.media.split_first().unwrap();
    assert_eq!(header[4..8], *b"ftyp");
    let mut pushed = HashMap::<u32, Vec<&Vec<u8>>>::new();
    for message in messages {
        pushed.entry(track_of(message)).or_default().push(message);
        // Video and audio segments end at the same times and come together.
        let counts = || pushed.values().map(Vec::len);
        let apart = counts().max().unwrap() - counts().min().unwrap();
        assert!(apart <= 1 || pushed.len() < tracks.len(), "{apart} segments apart");
    }
    assert_eq!(pushed.len(), tracks.len(), "{title}");
    for track in tracks {
        let segments = segments(server, title, track);
        let pushed = &pushed[&track_of(&segments[0])];
        assert_eq!(pushed.len(), segments.len(), "{title} {track}");
        assert!(pushed.iter().zip(&segments).all(|(a, b)| *a == b), "{title} {track}");
    }

    let folder = tempfile::tempdir().unwrap();
    let film = folder.path().join("film.mp4");
    std::fs::write(&film, got.media.concat()).unwrap();
    for track in tracks {
        let map = if track.starts_with('v') { "0:v:0" } else { "0:a:0" };
        let (got, source) = (decoded(&film, map), decoded(&root.join(title), map));
        assert_eq!(got.len(), source.len(), "{title} {map}");
        assert!(got == source, "{title} {map}: other frames");
    }
}

#[test]
fn a_foreign_client_gets_a_whole_title_as_hls_has_it() {
    let titles = [
        ("mp4/film.mp4", &["v0", "a0"][..]),
        // moov last, B-frames, 5.1
        ("mp4/surround-60.mp4", &["v0", "a0"]),
        ("mp4/hevc.mp4", &["v0"]),
        ("mp4/opus.mp4", &["a0"]),
    ];
    check_all(&testkit::media_dir(), &titles);
}

#[test]
#[ignore = "corpus"]
fn corpus_a_foreign_client_gets_a_whole_title_as_hls_has_it() {
    let titles = [
        ("bbb/bbb_10s_1080p_h264_aac.mp4", &["v0", "a0"][..]),
        // moov last, B-frames, 5.1
        ("bbb/bbb_2s_1080p60_51ch.mp4", &["v0", "a0"]),
        ("mp4/torchcodec_testsrc2_h265.mp4", &["v0"]),
        ("mp4/membrane_ref_opus.mp4", &["a0"]),
    ];
    check_all(&testkit::corpus_dir(), &titles);
}

fn check_all(root: &Path, titles: &[(&str, &[&str])]) {
    let server = server(root, "");
    let url = format!("ws://{}", server.http);
    for (title, tracks) in titles {
        check(&server, &url, (root, title), tracks, None);
    }
    let copied = metric(&server, "headwater_http_file_sent_bytes_total");
    assert!(copied > 1 << 20, "{copied} bytes sent without a copy");
}

#[test]
fn a_foreign_client_gets_the_same_over_tls() {
    let folder = tempfile::tempdir().unwrap();
    let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    certificate::make("push", &cert, &key);
    let tables = certificate::table(&cert, &key);
    let server = server(&testkit::media_dir(), &tables);
    let url = format!("wss://{}", server.https.unwrap());
    let title = "mp4/film.mp4";
    check(&server, &url, (&testkit::media_dir(), title), &["v0", "a0"], Some(&cert));
}

/// A film like that of the paper: 300 chunks of two seconds, 6,656,763 bytes.
#[test]
fn the_papers_movie_costs_four_bytes_a_chunk() {
    let folder = tempfile::tempdir().unwrap();
    let film = folder.path().join("film.mp4");
    let picture = "testsrc2=size=320x240:rate=6:duration=600,noise=alls=6:allf=t:all_seed=5";
    ffmpeg(
        ["-f", "lavfi", "-i", picture, "-c:v", "libx264", "-preset", "ultrafast", "-threads", "1"]
            .into_iter()
            .chain(["-b:v", "86k", "-maxrate", "120k", "-bufsize", "240k", "-pix_fmt", "yuv420p"])
            .chain(["-g", "12", "-keyint_min", "12", "-sc_threshold", "0"])
            .chain([film.to_str().unwrap()]),
    );
    let server = server(folder.path(), "");
    let mut client = Client::connect(server.http, "/vod/film.mp4/push?pace=fast");
    let (mut chunks, mut media, mut heads, mut rest) = (0, 0, 0, 0);
    let hello = client.next().unwrap();
    let header = client.next().unwrap();
    rest += hello.head + hello.payload.len() + header.head + header.payload.len();
    loop {
        let frame = client.next().unwrap();
        if frame.opcode != 2 {
            assert_eq!(frame.event()["event"], "end");
            rest += frame.head + frame.payload.len();
            break;
        }
        assert_eq!(frame.head, if frame.payload.len() < 1 << 16 { 4 } else { 10 });
        chunks += 1;
        media += frame.payload.len();
        heads += frame.head;
    }
    assert_eq!(client.closed(), 1000);
    assert_eq!((chunks, heads), (300, 1200));
    assert!((6_000_000..7_500_000).contains(&media), "{media} bytes");
    let share = heads as f64 / media as f64;
    assert!(share <= 0.000_2, "{share}");
    // The other messages come once: a few hundred bytes, and the header.
    assert!(rest < 1500, "{rest} bytes");
}

#[test]
fn viewers_are_counted_and_told_why_not() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(media("mp4/film.mp4"), folder.path().join("film.mp4")).unwrap();
    let whole = std::fs::read(media("mp4/film.mp4")).unwrap();
    std::fs::write(folder.path().join("cut.mp4"), &whole[..whole.len() / 2]).unwrap();
    std::fs::create_dir(folder.path().join("packed")).unwrap();
    std::fs::write(folder.path().join("packed/push"), "a file of that name").unwrap();
    let server = server(folder.path(), "");
    let good = [
        ("Upgrade", "websocket"),
        ("Connection", "Upgrade"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", KEY),
    ];
    for (path, headers, status) in [
        ("/vod/film.mp4/push", &[][..], 426),
        ("/vod/film.mp4/push", &good[1..], 426),
        ("/vod/film.mp4/push", &good[..3], 400),
        ("/vod/film.mp4/push?pace=slow", &good, 400),
        ("/vod/film.mp4/push?from=x", &good, 400),
        ("/vod/film.mp4/push?rendition=v1", &good, 404),
        ("/vod/film.mp4/push?v=0123456789abcdef", &good, 404),
        ("/vod/other.mp4/push", &good, 404),
        ("/vod/push", &good, 404),
        ("/vod/packed/push", &good, 200),
    ] {
        let answer = get_with(server.http, path, headers);
        assert_eq!(answer.status(), status, "{path} {headers:?}: {}", answer.text());
    }
    // Push is refused with the same answer as manifests.
    let manifest = server.get("/vod/cut.mp4/index.m3u8");
    let push = get_with(server.http, "/vod/cut.mp4/push", &good);
    assert_eq!((push.status(), push.text()), (422, manifest.text()));
    let mut head = testkit::http::Client::connect(server.http, LIMIT).unwrap();
    head.send_raw(b"HEAD /vod/film.mp4/push HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let (answer, _) = head.begin().unwrap();
    assert_eq!(answer.status, 426);

    let viewers = || {
        let gauge = r#"headwater_viewers{stream="vod/film.mp4",delivery="push"}"#;
        metric(&server, gauge)
    };
    let clients: Vec<_> =
        (0..2).map(|_| Client::connect(server.http, "/vod/film.mp4/push")).collect();
    eventually(LIMIT, "both are counted", || viewers() == 2);
    drop(clients);
    eventually(LIMIT, "none is counted", || viewers() == 0);
}
