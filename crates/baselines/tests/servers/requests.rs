//! Requests and their answers.

use std::ops::Range;

use crate::support::{BIG, Kind, MODIFIED, Server, Site, each_server};

/// A request for `big.bin` and its answer.
struct Case {
    method: &'static str,
    headers: &'static [(&'static str, &'static str)],
    status: u16,
    /// The bytes of the file that are selected.
    bytes: Range<usize>,
}

const fn get(
    headers: &'static [(&'static str, &'static str)],
    status: u16,
    bytes: Range<usize>,
) -> Case {
    Case { method: "GET", headers, status, bytes }
}

const CASES: &[Case] = &[
    get(&[], 200, 0..BIG),
    Case { method: "HEAD", headers: &[], status: 200, bytes: 0..BIG },
    // RFC 9110 14.2: Range is defined for GET alone.
    Case { method: "HEAD", headers: &[("Range", "bytes=0-9")], status: 200, bytes: 0..BIG },
    get(&[("Range", "bytes=0-0")], 206, 0..1),
    get(&[("range", "bytes=0-")], 206, 0..BIG),
    get(&[("Range", "bytes=65536-131071")], 206, 65536..131_072),
    // Ranges across the boundaries of pieces that models hold.
    get(&[("Range", "bytes=4194303-8388608")], 206, 4_194_303..8_388_609),
    get(&[("Range", "bytes=9000000-99999999999999999999")], 206, 9_000_000..BIG),
    get(&[("Range", "bytes=-1")], 206, BIG - 1..BIG),
    get(&[("Range", "bytes=-99999999")], 206, 0..BIG),
    get(&[("Range", "bytes=9999999-")], 416, 0..0),
    get(&[("Range", "bytes=-0")], 416, 0..0),
    get(&[("Range", "bytes=5-4")], 200, 0..BIG),
    get(&[("Range", "bytes=0-1,5-6")], 200, 0..BIG),
    get(&[("Range", "lines=0-1")], 200, 0..BIG),
    get(&[("Range", "bytes=x")], 200, 0..BIG),
    get(&[("If-Modified-Since", MODIFIED)], 304, 0..0),
    get(&[("If-Modified-Since", MODIFIED), ("Range", "bytes=0-1")], 304, 0..0),
    // The second paper's example, even with its weekday: RFC 9110 does not require the right one.
    get(&[("If-Modified-Since", "Tue, 06 Dec 2022 03:54:33 GMT")], 304, 0..0),
    get(&[("If-Modified-Since", "Monday, 06-Dec-21 14:56:55 GMT")], 304, 0..0),
    get(&[("If-Modified-Since", "Mon Dec  6 14:56:55 2021")], 304, 0..0),
    get(&[("If-Modified-Since", "Mon, 06 Dec 2021 14:56:54 GMT")], 200, 0..BIG),
    get(&[("If-Modified-Since", "yesterday")], 200, 0..BIG),
    get(&[("If-Modified-Since", MODIFIED), ("If-None-Match", "\"x\"")], 200, 0..BIG),
    get(&[("Range", "bytes=7-9"), ("If-Range", MODIFIED)], 206, 7..10),
    get(&[("Range", "bytes=7-9"), ("If-Range", "Mon, 06 Dec 2021 14:56:56 GMT")], 200, 0..BIG),
    get(&[("Range", "bytes=7-9"), ("If-Range", "\"tag\"")], 200, 0..BIG),
];

fn answers_are_exact(kind: Kind) {
    let site = Site::new();
    let server = Server::start(kind, &site.root(), &[]);
    for Case { method, headers, status, bytes } in CASES {
        let response = server.ask(method, "/big.bin", headers);
        let case = format!("{method} {headers:?}: {:?}", response.head);
        assert_eq!(response.status(), *status, "{case}");
        let length = (*status != 304).then(|| bytes.len().to_string());
        assert_eq!(response.header("Content-Length"), length.as_deref(), "{case}");
        let sent = if *method == "HEAD" { 0..0 } else { bytes.clone() };
        assert!(response.body == site.big[sent], "{case}: other bytes");
        let range = match status {
            206 => Some(format!("bytes {}-{}/{BIG}", bytes.start, bytes.end - 1)),
            416 => Some(format!("bytes */{BIG}")),
            _ => None,
        };
        assert_eq!(response.header("Content-Range"), range.as_deref(), "{case}");
        assert_eq!(response.header("Last-Modified"), Some(MODIFIED), "{case}");
        assert!(response.header("Date").is_some_and(|date| date.ends_with(" GMT")), "{case}");
        if matches!(status, 200 | 206) {
            assert_eq!(response.header("Accept-Ranges"), Some("bytes"), "{case}");
            assert_eq!(response.header("Content-Type"), Some("application/octet-stream"));
        }
    }
}
each_server!(answers_are_exact);

fn paths_name_files(kind: Kind) {
    let site = Site::new();
    let server = Server::start(kind, &site.root(), &[]);
    let found = [
        ("/small.txt", "hello", "text/plain; charset=utf-8"),
        ("//small.txt?a=/../b", "hello", "text/plain; charset=utf-8"),
        ("/sub/inside.txt", "hello", "text/plain; charset=utf-8"),
        ("/%73mall%2Etxt", "hello", "text/plain; charset=utf-8"),
        ("http://elsewhere/small.txt", "hello", "text/plain; charset=utf-8"),
        ("/a%20b.mp4", "a space", "video/mp4"),
        ("/", "<p>root", "text/html; charset=utf-8"),
        ("/sub/", "<p>sub", "text/html; charset=utf-8"),
        ("/empty.txt", "", "text/plain; charset=utf-8"),
    ];
    for (path, body, media_type) in found {
        let response = server.ask("GET", path, &[]);
        assert_eq!((response.status(), response.text()), (200, body), "{path}");
        assert_eq!(response.header("Content-Type"), Some(media_type), "{path}");
    }
    for path in [
        "/missing",
        "/sub",
        "/small.txt/",
        "/outside.txt",
        "/absolute.txt",
        "/../secret.txt",
        "/sub/../../secret.txt",
        "/%2e%2e/secret.txt",
        "/..%2fsecret.txt",
        "/small.txt%00",
        "/./small.txt",
        "//etc/passwd",
    ] {
        let response = server.ask("GET", path, &[]);
        assert_eq!(response.status(), 404, "{path}: {response:?}");
        assert!(!response.text().contains("secret"), "{path}");
    }
    assert_eq!(server.ask("GET", "/empty.txt", &[("Range", "bytes=0-")]).status(), 416);
}
each_server!(paths_name_files);
