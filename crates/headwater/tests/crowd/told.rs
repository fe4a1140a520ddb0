//! Viewers that tell of themselves by CMCD: each is counted once, and nobody can make up many.

use std::time::Instant;

use serde_json::{Value, json};
use testkit::http::{Client, Response};
use testkit::{Port, Server, demo_clip, eventually, nginx, playlist};

use crate::support::{BINARY, LIMIT, connect, start};

const STREAM: &str = "/api/v1/streams/live/demo";

/// A server whose stream has a playlist.
fn demo(configuration: &str) -> Server {
    let server = Server::configured(BINARY, configuration, ["--workers", "1", "--demo"]);
    server.get_until("/live/demo/v0/media.m3u8", LIMIT, |answer| answer.status() == 200);
    server
}

/// What the API says of the stream, without those who were only seen by the test that waited for it.
fn stream(server: &Server) -> Value {
    serde_json::from_slice(&server.get(STREAM).body).unwrap()
}

fn send(
    client: &mut Client,
    request: (&str, &str),
    fields: &[(&str, &str)],
    body: &str,
) -> Response {
    client.ask(request.0, request.1, fields, body.as_bytes())
}

#[test]
fn a_viewer_is_counted_once_by_its_session() {
    let server = demo("");
    let mut client = connect(&server);
    let playlist = "/live/demo/v0/media.m3u8";
    let queried =
        |sid: &str| format!("CMCD=bl%3D2100%2Cbr%3D900%2Cot%3Dv%2Csf%3Dh%2Csid%3D%22{sid}%22");
    // Each session with two browsers, over several connections, and in all three ways.
    let mut ask = || {
        for browser in ["a", "b"] {
            let agent = ("User-Agent", browser);
            let mut other = connect(&server);
            for path in [playlist.to_owned(), "/live/demo/index.m3u8".to_owned()] {
                let path = format!("{path}?{}", queried("one"));
                assert_eq!(send(&mut other, ("GET", &path), &[agent], "").status(), 200);
            }
            let fields = [
                agent,
                ("CMCD-Object", "br=64,ot=a"),
                ("CMCD-Request", "bl=500,mtp=25000,su"),
                ("CMCD-Session", "sf=d,sid=\"two\""),
                ("CMCD-Status", "bs"),
            ];
            assert_eq!(
                send(&mut client, ("GET", "/live/demo/v0/init.mp4"), &fields, "").status(),
                200
            );
            let third = "sid=\"three\",sf=h,st=ll,msd=900,bl=(1500),v=2,e=t\nsid=\"three\",sta=p";
            let beacon = ("POST", "/live/demo/cmcd");
            assert_eq!(send(&mut client, beacon, &[agent], third).status(), 204);
        }
    };
    // The browser of the test that waited for the playlist counts until it is forgotten. A player that says twice
    // within a second that it stalled says the same stall twice.
    let begun = Instant::now();
    let quality = loop {
        ask();
        let stream = stream(&server);
        let viewers = ["hls", "dash", "llhls"].map(|delivery| stream["viewers"][delivery].as_u64());
        let quality = &stream["quality"];
        if viewers == [Some(1); 3] && quality["stalls"].as_u64() > Some(0) {
            break quality.clone();
        }
        assert!(begun.elapsed() < LIMIT, "not three viewers: {stream:#}\n{}", server.log());
    };
    assert_eq!(quality["viewers"], 3, "{quality}");
    assert_eq!(quality["buffer_seconds"]["median"], 1.5, "{quality}");
    assert_eq!(quality["startup_seconds"], json!({ "median": 0.9, "bad": 0.9 }), "{quality}");
    assert_eq!(quality["throughput"]["median"], 25_000_000.0, "{quality}");
    assert_eq!(quality["urgent"], 1, "{quality}");

    // They leave.
    let begun = Instant::now();
    loop {
        for sid in ["one", "two", "three"] {
            let path = format!("/live/demo/cmcd?CMCD=sta%3Dq%2Csid%3D%22{sid}%22");
            assert_eq!(send(&mut client, ("POST", &path), &[], "").status(), 204);
        }
        let stream = stream(&server);
        if stream["quality"]["viewers"] == 0 {
            break;
        }
        assert!(begun.elapsed() < LIMIT, "somebody is left: {stream:#}\n{}", server.log());
    }
}

#[test]
fn beacons_are_taken_on_every_connection_and_by_pages_of_others() {
    let server = demo("");
    let mut client = connect(&server);
    let beacon = "sid=\"one\",sf=h";
    let query = "/live/demo/cmcd?CMCD=sid%3D%22one%22%2Csf%3Dh";
    for _ in 0..2 {
        for (request, body) in [
            (("POST", "/live/demo/cmcd"), beacon),
            (("POST", query), ""),
            (("GET", query), ""),
            (("HEAD", query), ""),
        ] {
            let answer = send(&mut client, request, &[("Content-Type", "application/cmcd")], body);
            assert_eq!((answer.status(), answer.header("cache-control")), (204, Some("no-store")));
            assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
        }
        let preflight = [
            ("Access-Control-Request-Method", "POST"),
            ("Access-Control-Request-Headers", "content-type"),
        ];
        let answer = send(&mut client, ("OPTIONS", "/live/demo/cmcd"), &preflight, "");
        let methods = answer.header("access-control-allow-methods").unwrap();
        assert!(methods.contains("POST"), "{methods}");
        // The connection is one of the control plane from here on.
        assert_eq!(send(&mut client, ("GET", "/healthz"), &[], "").status(), 200);
    }
    let fields = "cmcd-object,cmcd-request,cmcd-session,cmcd-status";
    let preflight =
        [("Access-Control-Request-Method", "GET"), ("Access-Control-Request-Headers", fields)];
    let answer = send(&mut client, ("OPTIONS", "/live/demo/v0/media.m3u8"), &preflight, "");
    assert_eq!(answer.header("access-control-allow-headers"), Some(fields));
    assert_eq!(send(&mut client, ("POST", "/live/none/cmcd"), &[], beacon).status(), 404);
    assert_eq!(send(&mut client, ("POST", "/vod/none.mp4/cmcd"), &[], beacon).status(), 404);
    assert_eq!(send(&mut client, ("POST", "/live/demo/v0/media.m3u8"), &[], beacon).status(), 405);
}

#[test]
fn nobody_makes_up_many_viewers_and_what_cannot_be_read_is_ignored() {
    let server = demo("[http]\nunlimited_networks = []\nmax_sessions_per_address = 3\n");
    let mut client = connect(&server);
    let playlist = "/live/demo/v0/media.m3u8";
    // Another viewer of the address, who names no session.
    let other = [("User-Agent", "another")];
    let nested = format!("sid={}", "\"\\".repeat(1000));
    let (long, many) = (format!("sid=\"{}\"", "x".repeat(6000)), "bl=1,".repeat(1200));
    let hostile = [
        nested.as_str(),
        &long,
        &many,
        "bl=99999999999999999999999999,br=-1,mtp=1e9,sid=7,sf=(,ot=\"\"\"",
        "\u{1f3a5}=\u{fc},=,,,;;((((((\"",
        "sid=\"a,b\",unknown=?1,com.example-x=(1 2 3);q=\"sid\"",
    ];
    let mut number = 0;
    let mut flood = || {
        for text in hostile {
            let fields = [("CMCD-Session", text), ("CMCD-Status", text)];
            // A head of 8 KiB has room for one of the long ones.
            let fields = if text.len() > 3000 { &fields[..1] } else { &fields[..] };
            assert_eq!(send(&mut client, ("GET", playlist), fields, "").status(), 200, "{text}");
            assert_eq!(send(&mut client, ("POST", "/live/demo/cmcd"), &[], text).status(), 204);
        }
        for _ in 0..300 {
            number += 1;
            let beacon = format!("sid=\"made up {number}\",sf=h,bl=0");
            let answer = send(&mut client, ("POST", "/live/demo/cmcd"), &[], &beacon);
            assert_eq!(answer.status(), 204);
        }
        assert_eq!(send(&mut client, ("GET", playlist), &other, "").status(), 200);
    };
    let mut most = 0;
    eventually(LIMIT, "the sessions that have room are counted", || {
        flood();
        let told = stream(&server);
        most = most.max(told["quality"]["viewers"].as_u64().unwrap());
        // Three have a place. Two more are counted by address and browser, one of which sent the hostile ones.
        told["viewers"]["hls"] == 4 || told["viewers"]["hls"] == 5
    });
    assert_eq!(most, 3);
    let payload = "x".repeat(60_000);
    assert_eq!(send(&mut client, ("POST", "/live/demo/cmcd"), &[], &payload).status(), 204);
}

#[test]
fn viewers_of_titles_tell_of_themselves_too() {
    let server = start("");
    server.put("film.mp4", &std::fs::read(demo_clip()).unwrap());
    let mut client = connect(&server);
    let playlist = "/vod/film.mp4/index.m3u8";
    // Who does not ask is forgotten soon, so all is looked up in one answer.
    let mut metrics = String::new();
    let has = |metrics: &str, line: &str| metrics.lines().any(|it| it == line);
    eventually(LIMIT, "two viewers", || {
        // The beacon is of the page that asks for the playlist, and tells nothing in that request.
        let beacon = "sid=\"one\",sf=h,bl=(30000)";
        assert_eq!(send(&mut client, ("GET", playlist), &[], "").status(), 200);
        assert_eq!(send(&mut client, ("POST", "/vod/film.mp4/cmcd"), &[], beacon).status(), 204);
        let told = [("CMCD-Session", "sid=\"two\"")];
        assert_eq!(
            send(&mut client, ("GET", "/vod/film.mp4/manifest.mpd"), &told, "").status(),
            200
        );
        server.metrics().text().clone_into(&mut metrics);
        has(&metrics, "headwater_viewers{stream=\"vod/film.mp4\",delivery=\"hls\"} 1")
            && has(&metrics, "headwater_viewers{stream=\"vod/film.mp4\",delivery=\"dash\"} 1")
    });
    assert!(has(&metrics, "headwater_quality_viewers{stream=\"vod/film.mp4\"} 2"), "{metrics}");
    let median =
        "headwater_quality_buffer_seconds{stream=\"vod/film.mp4\",viewers=\"median\"} 30.0";
    assert!(has(&metrics, median), "{metrics}");
}

/// The part of docs/cmcd.md that configures nginx, for these addresses.
fn documented(listen: &str, origin: &str) -> String {
    let text = include_str!("../../../../docs/cmcd.md");
    let (_, text) = text.split_once("```nginx\n").unwrap();
    let (text, _) = text.split_once("```").unwrap();
    let text = text.replace("127.0.0.1:8090", listen).replace("127.0.0.1:8080", origin);
    // The viewers of a test ask more often on one connection than nginx allows by itself.
    format!("events {{}} http {{ access_log off; keepalive_requests 1000000; {text} }}")
}

/// The cache has the address and the browser of one viewer. So by requests alone there are two of them.
#[test]
fn viewers_behind_a_cache_are_counted_by_their_beacons() {
    const VIEWERS: usize = 30;
    let server = demo("");
    let folder = tempfile::tempdir().unwrap();
    let port = Port::find();
    let listen = format!("127.0.0.1:{}", port.number());
    let configuration = documented(&listen, &server.http.to_string());
    let _nginx = nginx(folder.path(), &port, &configuration);
    let mut viewers: Vec<_> =
        (0..VIEWERS).map(|_| Client::connect(listen.parse().unwrap(), LIMIT).unwrap()).collect();
    let header = server.get("/live/demo/v0/media.m3u8");
    let map = playlist::uris(header.text(), "#EXT-X-MAP:").next().unwrap();
    let header = format!("/live/demo/v0/{map}");
    let mut hits = 0;
    eventually(LIMIT, "all viewers behind the cache are counted", || {
        for (number, viewer) in viewers.iter_mut().enumerate() {
            let agent = [("User-Agent", if number % 2 == 0 { "even" } else { "odd" })];
            // Header of the track, from the cache for all but the first.
            let told = format!("CMCD=sid%3D%22{number}%22%2Csf%3Dh");
            let path = match number % 3 {
                0 => format!("{header}?{told}"),
                1 => format!("{header}?{told}&a=b"),
                _ => format!("{header}?a=b&{told}"),
            };
            let answer = send(viewer, ("GET", &path), &agent, "");
            assert_eq!(answer.status(), 200);
            hits += usize::from(answer.header("x-cache") == Some("HIT"));
            let playlist = send(viewer, ("GET", "/live/demo/v0/media.m3u8"), &agent, "");
            assert_eq!(playlist.status(), 200);
            let beacon = format!("/live/demo/cmcd?CMCD=sid%3D%22{number}%22%2Csf%3Dh%2Cst%3Dl");
            assert_eq!(send(viewer, ("POST", &beacon), &agent, "").status(), 204);
        }
        let told = stream(&server);
        assert!(told["viewers"]["hls"].as_u64() <= Some(VIEWERS as u64 + 1), "{told}");
        told["viewers"]["hls"] == VIEWERS && told["quality"]["viewers"] == VIEWERS
    });
    // Of the three forms of the path, two are the same without the parameter.
    assert!(hits >= VIEWERS - 3, "{hits} from the cache");
}
