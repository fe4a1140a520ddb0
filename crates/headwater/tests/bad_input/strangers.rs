//! Pages of other sites, and files that pose as ours.

use std::net::SocketAddr;

use testkit::Server;
use testkit::http::{Client as Http, Response, get, get_with};
use testkit::rtmp::Client;

use crate::support::{BINARY, LIMIT, Origin, clip};

const LIST: &str = "/api/v1/streams";
const ONE: &str = "/api/v1/streams/live/watched";

/// An origin with a stream whose publisher has an address, and with a listener for operators.
fn published(config: &str) -> (Server, Client) {
    let config = format!("[live]\nsilence = \"10m\"\n{config}");
    let origin = Server::configured(BINARY, &config, ["--control", "127.0.0.1:0"]);
    let mut publisher = Client::publish(origin.rtmp, "live/watched");
    clip()[..20].iter().for_each(|message| publisher.send(message));
    origin.get_until(ONE, LIMIT, |answer| answer.text().contains("\"publishers\":[{"));
    (origin, publisher)
}

/// The answer to a request with exactly these header fields.
fn ask(at: SocketAddr, path: &str, fields: &str) -> Response {
    let mut client = Http::connect(at, LIMIT).expect("the server answers");
    client
        .send_raw(format!("GET {path} HTTP/1.1\r\n{fields}\r\n").as_bytes())
        .expect("the server answers");
    client.receive().expect("the server answers")
}

#[test]
fn addresses_of_publishers_are_for_who_administers() {
    let (origin, publisher) = published("");
    let address = publisher.address().to_string();
    let operators = origin.operators();
    for (at, path) in [(operators, LIST), (origin.http, ONE)] {
        let own = format!("http://{at}");
        for headers in [&[][..], &[("Origin", &*own), ("Sec-Fetch-Site", "same-origin")]] {
            let answer = get_with(at, path, headers);
            assert!(answer.text().contains(&address), "{path} {headers:?}: {answer:?}");
            assert_eq!(answer.header("Access-Control-Allow-Origin"), None);
        }
        for (headers, is_proxy) in [
            (&[("Origin", "https://elsewhere.example")][..], false),
            (&[("Origin", "null")], false),
            (&[("Sec-Fetch-Site", "cross-site")], false),
            (&[("X-Forwarded-For", "127.0.0.1")], true),
            (&[("Forwarded", "for=127.0.0.1")], true),
        ] {
            let answer = get_with(at, path, headers);
            assert!(!answer.text().contains(&address), "{path} {headers:?}: {answer:?}");
            let cors = answer.header("Access-Control-Allow-Origin");
            if path == LIST {
                // The list is not for pages of other sites at all.
                assert_eq!((answer.status(), cors), (if is_proxy { 200 } else { 403 }, None));
                continue;
            }
            assert_eq!(answer.status(), 200);
            assert!(answer.text().contains("live/watched"), "{answer:?}");
            assert!(answer.text().contains("\"peer\":null"), "{answer:?}");
            assert_eq!(cors, Some("*"));
        }
        // A name that somebody else has pointed at this server.
        let rebound = ask(at, path, "Host: rebound.example\r\n");
        assert!(!rebound.text().contains(&address), "{rebound:?}");
        assert_eq!(rebound.status(), if path == LIST { 403 } else { 200 });
    }
    // The viewers' listener has no list, wherever the request comes from.
    assert_eq!(origin.get(LIST).status(), 403);
    // A cached answer for one kind of client is never given to the other, in either order.
    assert!(get(operators, LIST).text().contains(&address));
    drop(publisher);
}

#[test]
fn nobody_administers_where_no_address_may() {
    let (origin, publisher) = published("[control]\nadmin = []\n");
    let address = publisher.address().to_string();
    let list = get(origin.operators(), LIST);
    assert!(list.text().contains("live/watched") && !list.text().contains(&address));
    assert!(!origin.get(ONE).text().contains(&address));
}

#[test]
fn control_plane_responses_have_a_policy_and_their_type() {
    let origin = Origin::start("[control]\nembed = \"https://club.example\"\n");
    let policy = |path: &str| {
        let answer = origin.get(path);
        assert_eq!(answer.header("X-Content-Type-Options"), Some("nosniff"), "{path}");
        answer.header("Content-Security-Policy").unwrap_or_default().to_owned()
    };
    for path in [LIST, "/metrics", "/nothing", "/api/v1/time", "/healthz"] {
        assert_eq!(policy(path), "default-src 'none'; frame-ancestors 'none'", "{path}");
    }
    // The headers of its script decide what a worker may do, also those of a 304.
    let script = origin.get("/player/push.js");
    let etag = script.header("ETag").unwrap_or("*").to_owned();
    let known = get_with(origin.http, "/player/push.js", &[("If-None-Match", &etag)]);
    for answer in [script, known] {
        assert_eq!(answer.header("Content-Security-Policy"), None);
        assert_eq!(answer.header("X-Content-Type-Options"), Some("nosniff"));
    }
    let dashboard = policy("/");
    assert!(dashboard.contains("script-src 'self'"), "{dashboard}");
    assert!(dashboard.contains("frame-ancestors 'none'"), "{dashboard}");
    let player = policy("/watch/live/demo");
    assert!(player.contains("media-src 'self' blob: data:"), "{player}");
    assert!(player.contains(&format!(" ws://{} ", origin.http)), "{player}");
    assert!(player.ends_with("; frame-ancestors https://club.example"), "{player}");
}

#[test]
fn files_are_no_pages_of_ours() {
    let origin = Origin::start("[vod]\nlisting = true\n");
    let root = origin.folder().join("media");
    for (name, sandboxed) in [
        ("page.html", true),
        ("page.HTM", true),
        ("picture.svg", true),
        ("data.xml", true),
        ("page.xhtml", true),
        ("own.mpd", true),
        ("captions.ttml", true),
        ("paper.pdf", true),
        ("script.js", true),
        ("list.m3u8", true),
        ("unknown", true),
        ("film.mp4", false),
        ("sound.mp3", false),
        ("picture.png", false),
    ] {
        std::fs::write(root.join(name), "<script>alert(1)</script>").unwrap();
        let path = format!("/vod/{name}");
        let whole = origin.get(&path);
        let etag = whole.header("ETag").unwrap().to_owned();
        let some = get_with(origin.http, &path, &[("Range", "bytes=0-3")]);
        let known = get_with(origin.http, &path, &[("If-None-Match", &etag)]);
        for (answer, status) in [(whole, 200), (some, 206), (known, 304)] {
            assert_eq!(answer.status(), status, "{name}");
            assert_eq!(answer.header("X-Content-Type-Options"), Some("nosniff"), "{name}");
            let policy = answer.header("Content-Security-Policy");
            assert_eq!(policy, sandboxed.then_some("sandbox"), "{name}");
        }
    }
    let listing = origin.get("/vod/");
    assert_eq!(listing.header("X-Content-Type-Options"), Some("nosniff"));
    let policy = listing.header("Content-Security-Policy").unwrap();
    assert!(policy.starts_with("default-src 'none'"), "{policy}");
}
