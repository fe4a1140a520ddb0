//! Where viewers go, and what is told of the nodes.

use std::io::{ErrorKind, Read};
use std::time::Instant;

use protocol::rtmp::ClientEvent;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use testkit::http::Client;
use testkit::playlist::numbers;
use testkit::{Nats, Server, eventually, http, rtmp};

use crate::support::{LIMIT, clip, node, node_of, node_with, publish, send};

#[test]
fn viewers_are_sent_to_the_nodes_that_say_where_they_are() {
    let nats = Nats::start();
    let a = node(&nats, "a");
    let told = |zone: &str| format!("advertise = \"http://{zone}.example\"\nzone = \"{zone}\"\n");
    let (eu, us) = (node_with(&nats, "b", &told("eu")), node_with(&nats, "c", &told("us")));
    let nodes = || http::get(a.http, "/api/v1/cluster").text().to_owned();
    eventually(LIMIT, "a knows all", || {
        ["\"a\"", "\"b\"", "\"c\""].iter().all(|it| nodes().contains(it))
    });
    let route = |path: &str| {
        let answer = http::get(a.http, path);
        (answer.status(), answer.header("location").unwrap_or_default().to_owned())
    };
    let sent = |to: &str| (307, to.to_owned());
    let index = "/route/live/x/index.m3u8";
    assert_eq!(
        route(&format!("{index}?zone=us&a=b")),
        sent("http://us.example/live/x/index.m3u8?a=b")
    );
    assert_eq!(route(&format!("{index}?zone=eu")), sent("http://eu.example/live/x/index.m3u8"));
    assert_eq!(route("/route/other/x").0, 404);
    // A node that drains gets no further viewers, before it has ended.
    drop(us);
    eventually(LIMIT, "c leaves", || {
        route(&format!("{index}?zone=us")) == sent("http://eu.example/live/x/index.m3u8")
    });
    drop(eu);
}

#[test]
fn without_a_cluster_a_viewer_stays() {
    let alone = Server::start(env!("CARGO_BIN_EXE_headwater"), testkit::NO_ARGUMENTS);
    for asked in ["/route/live/x/index.m3u8?zone=eu", "/route//live/x/index.m3u8"] {
        let answer = http::get(alone.http, asked);
        assert_eq!((answer.status(), answer.header("location")), (307, Some("/live/x/index.m3u8")));
    }
    for path in ["/api/v1/cluster", "/nodes"] {
        assert_eq!(http::get(alone.http, path).status(), 404);
    }
    assert!(!http::get(alone.http, "/api/v1/streams").text().contains("\"node\""));
}

/// What a node tells of the cluster.
fn told(node: &Server) -> Value {
    serde_json::from_str(http::get(node.http, "/api/v1/cluster").text()).unwrap()
}

#[test]
fn nodes_streams_and_copies_are_told_and_a_node_that_went_away() {
    let nats = Nats::start();
    let (a, b) =
        (node_with(&nats, "a", "zone = \"eu\"\n"), node_with(&nats, "b", "zone = \"us\"\n"));
    let mut publisher = publish(&a, &clip(), "live/x");
    eventually(LIMIT, "a copy", || {
        http::get(b.http, "/live/x/v0/media.m3u8").status() == 200
            && told(&a)["streams"][0]["copies"] != json!([])
    });
    let told_by_a = told(&a);
    let stream = &told_by_a["streams"][0];
    assert_eq!(
        (&stream["name"], &stream["node"], &stream["live"]),
        (&json!("live/x"), &json!("a"), &json!(true))
    );
    assert_eq!(stream["copies"][0]["node"], "b");
    // A busy machine may hold up this test until a has lost the stream, which it then takes again.
    let behind = || told(&b)["streams"][0]["copies"][0]["behind_seconds"].as_f64();
    let has_all = || behind().is_some_and(|behind| behind < 1.5);
    let signal = |signal| {
        let process = Pid::from_raw(a.id().try_into().unwrap()).unwrap();
        kill_process(process, signal).unwrap();
    };
    let begun = Instant::now();
    let (mut is_late, mut was_halted) = (false, false);
    while !is_late {
        assert!(begun.elapsed() < LIMIT, "the copy is never late");
        if was_halted && !publisher.is_running() {
            publisher = publish(&a, &clip(), "live/x");
        }
        eventually(LIMIT, "the copy has all", has_all);
        // While its node tells nothing, the copy falls behind.
        signal(Signal::STOP);
        was_halted = true;
        eventually(LIMIT, "the copy is late, or is none", || {
            let behind = behind();
            is_late = behind.is_some_and(|behind| behind > 2.0);
            is_late || behind.is_none()
        });
        signal(Signal::CONT);
    }
    eventually(LIMIT, "the copy has all again", has_all);
    let nodes = &told_by_a["nodes"];
    let seen = |node: usize| {
        (nodes[node]["zone"].clone(), nodes[node]["streams"].clone(), nodes[node]["copies"].clone())
    };
    assert_eq!(seen(0), (json!("eu"), json!(1), json!(0)));
    assert_eq!(seen(1), (json!("us"), json!(0), json!(1)));
    eventually(LIMIT, "a measures its load", || told(&b)["nodes"][0]["load"].as_f64() > Some(0.0));
    assert_eq!((&told_by_a["gone"], &told_by_a["streams_left_out"]), (&json!([]), &json!(0)));

    b.kill();
    eventually(LIMIT, "b has gone", || told(&a)["gone"][0]["name"] == "b");
    let told = told(&a);
    assert_eq!((&told["gone"][0]["zone"], &told["nodes"][1]), (&json!("us"), &Value::Null));
    assert_eq!(told["streams"][0]["copies"], json!([]));
}

/// A balancer learns of it before anything ends, and so do the other nodes.
#[test]
fn a_node_that_drains_says_so_while_its_viewers_are_still_served() {
    let nats = Nats::start();
    // A viewer waits for a segment for three of these.
    let live = "segment_target = \"20s\"\ntarget_duration = \"20s\"\nsilence = \"5m\"\n";
    let a = node_of(&nats, "a", live, "");
    // Long enough that the viewer alone decides when b ends.
    let drain = "advertise = \"http://b.example\"\n[drain]\ntimeout = \"5m\"\n";
    let mut b = node_of(&nats, "b", live, drain);
    let mut publisher = rtmp::Client::publish(a.rtmp, "live/x");
    send(&mut publisher, 0..50_000);
    let playlist = "/live/x/v0/media.m3u8";
    // All that it has sent is there: the end of the third segment is not known yet.
    let mut sent = Vec::new();
    eventually(LIMIT, "a copy", || {
        sent = numbers(http::get(b.http, playlist).text());
        sent.len() == 2
    });
    let awaited = sent[1] + 1;
    let ready = || told(&a)["nodes"][1]["ready"].as_bool();
    eventually(LIMIT, "a knows b", || ready() == Some(true));
    let route = || {
        let answer = http::get(a.http, "/route/live/x/index.m3u8");
        answer.header("location").unwrap().to_owned()
    };
    assert_eq!(route(), "http://b.example/live/x/index.m3u8");
    let mut viewer = Client::connect(b.http, LIMIT).unwrap();
    let requests = || b.metric("headwater_http_requests_total");
    let before = requests();
    viewer.send("GET", &format!("{playlist}?_HLS_msn={awaited}"), &[], b"").unwrap();
    eventually(LIMIT, "b has the request", || requests() > before);
    b.terminate();
    eventually(LIMIT, "b is not ready", || http::get(b.http, "/readyz").status() == 503);
    eventually(LIMIT, "a knows it", || ready() == Some(false));
    // No other says where it is.
    assert_eq!(route(), "/live/x/index.m3u8");
    assert_eq!(http::get(b.http, "/live/x/index.m3u8").status(), 503);
    send(&mut publisher, 50_000..70_000);
    let answer = viewer.receive().unwrap();
    assert_eq!((answer.status(), answer.header("connection")), (200, Some("close")));
    assert!(numbers(answer.text()).contains(&awaited), "{}", answer.text());
    drop(viewer);
    eventually(LIMIT, "b ends", || !b.is_running());
    assert_eq!(b.stop(LIMIT).status.code(), Some(0));
    eventually(LIMIT, "b has gone", || told(&a)["gone"][0]["name"] == "b");
}

/// Players take an orderly end for that of the stream, and do not come again.
#[test]
fn a_node_that_ends_breaks_off_and_ends_no_stream() {
    let nats = Nats::start();
    let (a, b) = (node(&nats, "a"), node(&nats, "b"));
    let mut publisher = rtmp::Client::publish(a.rtmp, "live/x");
    send(&mut publisher, 0..5000);
    eventually(LIMIT, "a copy", || http::get(b.http, "/live/x/v0/media.m3u8").status() == 200);
    let mut viewers = ["live.flv", "live.mp4"].map(|file| {
        let mut viewer = Client::connect(b.http, LIMIT).unwrap();
        viewer.send("GET", &format!("/live/x/{file}"), &[], b"").unwrap();
        viewer
    });
    let mut bodies = viewers.each_mut().map(|viewer| {
        let (head, mut body) = viewer.begin().unwrap();
        assert_eq!(head.status, 200);
        body.read_exact(&mut [0; 8]).unwrap();
        body
    });
    let mut player = rtmp::Client::play(b.rtmp, "live/x");
    player
        .until(|event| matches!(event, ClientEvent::Video { .. } | ClientEvent::Audio { .. }))
        .unwrap();
    b.terminate();
    for body in &mut bodies {
        let end = body.read_to_end(&mut Vec::new()).map_err(|error| error.kind());
        assert_eq!(end, Err(ErrorKind::UnexpectedEof));
    }
    let rest = player.rest();
    assert!(!rest.iter().any(|event| matches!(event, ClientEvent::Ended { .. })), "{rest:?}");
    // The stream goes on at its node.
    send(&mut publisher, 5000..6000);
    assert_eq!(http::get(a.http, "/live/x/v0/media.m3u8").status(), 200);
}
