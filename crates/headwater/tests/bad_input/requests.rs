//! Requests for things that do not exist, and requests that HTTP does not allow.

use std::io::{Read, Write};
use std::net::TcpStream;

use testkit::http::{Client, get_with};

use testkit::{is_closed_within, uninterrupted};

use crate::support::{LIMIT, Origin, assert_refused};

/// An origin with one file of 1,000 bytes below its VOD root.
fn with_file() -> (Origin, Vec<u8>) {
    let origin = Origin::start("");
    let bytes: Vec<u8> = (0..1000u32).map(|n| (n % 251) as u8).collect();
    let root = origin.folder().join("media");
    std::fs::write(root.join("file.bin"), &bytes).expect("it is ours");
    (origin, bytes)
}

/// Sends bytes and reads the answer; the connection must be closed after it.
#[track_caller]
fn last_answer(origin: &Origin, request: &[u8]) -> testkit::http::Response {
    let mut client = Client::connect(origin.http, LIMIT).expect("the server listens");
    client.send_raw(request).expect("the server takes it");
    let response = client.receive().expect("the server answers");
    assert!(client.is_closed_within(LIMIT), "{:?}", String::from_utf8_lossy(request));
    response
}

#[test]
fn unknown_stream_track_or_file() {
    let origin = Origin::start("");
    let publisher = origin.publish("live/known", &["--fast"]);
    assert!(publisher.wait(LIMIT).status.success());
    let playlist = origin.playlist("live/known", "v0");
    for path in [
        "/live/unknown/index.m3u8",
        "/live/unknown/manifest.mpd",
        "/live/unknown/live.mp4",
        "/live/unknown/live.flv",
        "/live/unknown/v0/media.m3u8",
        "/live/unknown/v0/init.mp4",
        "/live/unknown/v0/1.m4s",
        "/live/unknown/v0/1.0.m4s",
        "/live/known/v9/media.m3u8",
        "/live/known/v9/init.mp4",
        "/live/known/v9/1.m4s",
        "/live/known/v9/1.0.m4s",
        "/live/known/v0/init.1.mp4",
        "/live/known/nothing",
        "/live/known",
        "/live/",
        "/vod/nothing.mp4",
        "/vod/nothing/index.m3u8",
        "/vod/",
    ] {
        assert_refused(&origin.get(path), 404);
    }
    // A part beyond its segment's end never comes to exist, and caches may remember that.
    let complete = playlist.segments();
    let msn = complete[0].strip_suffix(".m4s").unwrap();
    let response = origin.get(&format!("/live/known/v0/{msn}.99.m4s"));
    assert_refused(&response, 404);
    let cache = response.header("Cache-Control").unwrap();
    assert!(cache.ends_with(", immutable"), "{cache}");
    for path in ["/nothing", "/api/v1/nothing", "/api/v1/streams/live/unknown"] {
        let response = origin.get(path);
        assert_eq!((response.status(), response.body.len() < 256), (404, true), "{response:?}");
    }
}

/// 20,000 requests for streams and files that do not exist, each by another name, may take 2 MiB of
/// the process at most: it keeps nothing of them.
#[test]
fn polling_what_does_not_exist_costs_no_memory() {
    const REQUESTS: usize = 20_000;
    const BATCH: usize = 100;
    const MARGIN: u64 = 2 << 10;
    let origin = Origin::start("workers = 1\n");
    let mut socket = TcpStream::connect(origin.http).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    let mut poll = |from: usize, to: usize| {
        for first in (from..to).step_by(BATCH) {
            let requests: String = (first..first + BATCH)
                .map(|n| match n % 4 {
                    0 => format!("GET /live/nobody-{n}/index.m3u8 HTTP/1.1\r\nHost: x\r\n\r\n"),
                    1 => format!("GET /live/nobody-{n}/v0/media.m3u8?_HLS_msn={n} HTTP/1.1\r\nHost: x\r\n\r\n"),
                    2 => format!("GET /live/nobody-{n}/live.flv HTTP/1.1\r\nHost: x\r\n\r\n"),
                    _ => format!("GET /vod/nobody-{n}.mp4 HTTP/1.1\r\nHost: x\r\n\r\n"),
                })
                .collect();
            socket.write_all(requests.as_bytes()).unwrap();
            let (mut answered, mut buffer, mut tail) = (0, [0; 16 << 10], Vec::new());
            while answered < BATCH {
                let read = uninterrupted(|| socket.read(&mut buffer)).unwrap();
                assert!(read > 0, "closed after {answered} of a batch");
                tail.extend_from_slice(&buffer[..read]);
                let mark = b"HTTP/1.1 404 ";
                answered += tail.windows(mark.len()).filter(|window| window == mark).count();
                // Bytes that may be the beginning of the next mark stay.
                tail.drain(..tail.len() - tail.len().min(mark.len() - 1));
            }
        }
    };
    // The first ones warm up allocators and threads.
    poll(0, 4000);
    let before = origin.memory();
    poll(4000, 4000 + REQUESTS);
    let after = origin.memory();
    assert!(after <= before + MARGIN, "{before} KiB before, {after} KiB after");
}

#[test]
fn malformed_request_line_header_or_query() {
    let (origin, _) = with_file();
    for request in [
        "GET\r\n\r\n",
        "GET /vod/file.bin\r\n\r\n",
        "GET /vod/file.bin HTTP/3.1\r\nHost: x\r\n\r\n",
        "GET vod/file.bin HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /vod/%zz HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /vod/file.bin HTTP/1.1\r\n\r\n",
        "GET /vod/file.bin HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
        "GET /vod/file.bin HTTP/1.1\r\nHost: x\r\nBad Name: 1\r\n\r\n",
        "GET /vod/file.bin HTTP/1.1\r\nHost: x\r\nNo colon\r\n\r\n",
        "GET /vod/file.bin HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n",
        "GET /vod/file.bin HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
        "\u{0}\u{1}\u{2}\r\n\r\n",
    ] {
        assert_refused(&last_answer(&origin, request.as_bytes()), 400);
    }
    // The resource interprets its query. A resource without queries ignores it; a malformed
    // directive is refused (see `window`).
    assert_eq!(origin.get("/vod/file.bin?a=b&&=%20").status(), 200);
}

#[test]
fn head_over_8_kib() {
    let (origin, _) = with_file();
    let field = |length: usize| {
        format!("GET /vod/file.bin HTTP/1.1\r\nHost: x\r\nX-Long: {}\r\n\r\n", "a".repeat(length))
    };
    assert_refused(&last_answer(&origin, field(8192).as_bytes()), 431);
    let mut client = Client::connect(origin.http, LIMIT).unwrap();
    client.send_raw(field(8000).as_bytes()).unwrap();
    assert_eq!(client.receive().unwrap().status(), 200);
}

#[test]
fn head_not_finished_in_time() {
    // A busy machine may take seconds from a connection to its request.
    let origin = Origin::start("[http]\nhead_timeout = \"8s\"\n");
    let mut silent = TcpStream::connect(origin.http).unwrap();
    assert_refused(&last_answer(&origin, b"GET /vod/file.bin HTTP/1.1\r\nHost:"), 408);
    // A connection without a request is closed without an answer.
    assert!(is_closed_within(&mut silent, LIMIT));
}

#[test]
fn unsatisfiable_range() {
    let (origin, _) = with_file();
    for range in ["bytes=1000-", "bytes=5000-6000", "bytes=-0"] {
        let response = get_with(origin.http, "/vod/file.bin", &[("Range", range)]);
        assert_refused(&response, 416);
        assert_eq!(response.header("Content-Range"), Some("bytes */1000"), "{range}");
    }
}

#[test]
fn malformed_range_or_unknown_unit() {
    let (origin, bytes) = with_file();
    for range in ["bytes=", "bytes=a-b", "bytes=9-1", "bytes=--1", "seconds=1-2", "nonsense"] {
        let response = get_with(origin.http, "/vod/file.bin", &[("Range", range)]);
        assert_eq!((response.status(), &response.body), (200, &bytes), "{range}");
    }
    let good = get_with(origin.http, "/vod/file.bin", &[("Range", "bytes=10-19")]);
    assert_eq!((good.status(), &good.body[..]), (206, &bytes[10..20]));
}

#[test]
fn other_methods() {
    let (origin, _) = with_file();
    for method in ["POST", "PUT", "DELETE", "PATCH", "BREW"] {
        for path in ["/vod/file.bin", "/live/unknown/index.m3u8"] {
            let mut client = Client::connect(origin.http, LIMIT).unwrap();
            let response = client.ask(method, path, &[], b"");
            assert_refused(&response, 405);
            assert_eq!(response.header("Allow"), Some("GET, HEAD, OPTIONS"), "{method} {path}");
        }
    }
}

#[test]
fn dot_segments_encoded_slashes_nul_and_links_out_of_the_root() {
    let (origin, bytes) = with_file();
    let outside = origin.folder().join("secret.txt");
    std::fs::write(&outside, "secret").unwrap();
    let root = origin.folder().join("media");
    std::os::unix::fs::symlink(&outside, root.join("out.txt")).unwrap();
    std::os::unix::fs::symlink("../secret.txt", root.join("up.txt")).unwrap();
    std::os::unix::fs::symlink("..", root.join("folder")).unwrap();
    std::os::unix::fs::symlink("file.bin", root.join("in.bin")).unwrap();
    for (path, logged) in [
        ("/vod/../secret.txt", "secret.txt"),
        ("/vod/a/../../secret.txt", "a/../../secret.txt"),
        ("/vod/%2e%2e/secret.txt", "%2e%2e/secret.txt"),
        ("/vod/..%2fsecret.txt", "..%2fsecret.txt"),
        ("/vod/%2fetc%2fhostname", "%2fetc%2fhostname"),
        ("/vod/file.bin%00.mp4", "file.bin%00.mp4"),
        ("/vod/..%5csecret.txt", "..%5csecret.txt"),
        ("/vod/out.txt", "/vod/out.txt"),
        ("/vod/up.txt", "/vod/up.txt"),
        ("/vod/folder/secret.txt", "/vod/folder/secret.txt"),
    ] {
        let mut client = Client::connect(origin.http, LIMIT).unwrap();
        client.send_raw(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
        assert_refused(&client.receive().unwrap(), 404);
        let (socket, _) = client.into_parts();
        let peer = format!("peer={}", socket.local_addr().unwrap());
        origin.log_line(LIMIT, |line| line.contains(&peer) && line.contains(logged));
    }
    // A link to a file inside the folder is served as a file.
    assert_eq!(origin.get("/vod/in.bin").body, bytes);
}

#[test]
fn mp4_that_is_cut_off_or_corrupt() {
    let (origin, _) = with_file();
    let whole = std::fs::read(testkit::demo_clip()).unwrap();
    let moov = whole.windows(4).position(|window| window == b"moov").unwrap();
    let stbl = whole.windows(4).position(|window| window == b"stsz").unwrap();
    let mut corrupt = whole.clone();
    // The sample count of the first track.
    corrupt[stbl + 12..stbl + 16].fill(0xff);
    let cases = [
        ("cut-media.mp4", whole[..whole.len() * 6 / 10].to_vec()),
        ("cut-index.mp4", whole[..moov + 300].to_vec()),
        ("no-index.mp4", whole[..moov - 4].to_vec()),
        ("corrupt-index.mp4", corrupt),
        ("noise.mp4", testkit::noise(1, 10_000)),
        ("empty.mp4", Vec::new()),
    ];
    for (name, bytes) in &cases {
        std::fs::write(origin.folder().join("media").join(name), bytes).unwrap();
        for manifest in ["index.m3u8", "manifest.mpd"] {
            let response = origin.get(&format!("/vod/{name}/{manifest}"));
            assert_eq!(response.status(), 422, "{name}/{manifest}: {response:?}");
            assert_refused(&response, 422);
            // The answer tells what is wrong, not only that something is.
            let text = response.text();
            assert!(text.contains("at byte") || text.contains("no "), "{name}: {text}");
        }
        let response = origin.get(&format!("/vod/{name}"));
        assert!(
            response.status() == 200 && response.body == *bytes,
            "{name}: {}",
            response.status()
        );
    }
}
