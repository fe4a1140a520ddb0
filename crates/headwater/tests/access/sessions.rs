//! Sessions one by one, and how an administrator ends them.

use std::io::Read;
use std::process::Command;

use serde_json::Value;
use testkit::http::Client;
use testkit::{Program, Server, eventually};

use crate::support::{LIMIT, UPGRADE, aiortc, ask, operate, operated, publish, sessions, wait_for};

/// Waits for one session that got or sent something, and ends it.
#[track_caller]
fn end_one(server: &Server, query: &str) -> Value {
    let mut found = Vec::new();
    eventually(LIMIT, query, || {
        found = sessions(server, query);
        found.len() == 1 && found[0]["bytes"].as_u64().unwrap() > 10_000
    });
    let session = found.remove(0);
    let path = format!("/api/v1/sessions/{}", session["id"]);
    assert_eq!(operate(server, "DELETE", &path, &[]).status(), 204);
    session
}

#[test]
fn an_administrator_ends_publishers_and_viewers_by_each_protocol() {
    let server = operated("");
    let stays = publish(&server, "live/cam");
    wait_for(&server, "/live/cam/index.m3u8");
    let publisher = publish(&server, "live/gone");
    let whip = aiortc("publish", &server.url("/live/rtc/whip"));
    wait_for(&server, "/live/rtc/index.m3u8");

    let mut player = Command::new("ffmpeg");
    player.args(["-v", "error", "-i", &server.rtmp_url("live/cam"), "-c", "copy"]);
    let player = Program::spawn(player.args(["-f", "null", "-"]));
    let mut push = Client::connect(server.http, LIMIT).unwrap();
    push.send("GET", "/live/cam/push", &UPGRADE, b"").unwrap();
    let mut flv = Client::connect(server.http, LIMIT).unwrap();
    flv.send("GET", "/live/cam/live.flv", &[], b"").unwrap();
    let mut mp4 = Client::connect(server.http, LIMIT).unwrap();
    mp4.send("GET", "/live/cam/live.mp4", &[], b"").unwrap();
    let whep = aiortc("hold", &server.url("/live/rtc/whep"));

    let told = end_one(&server, "?stream=live/gone");
    assert_eq!((&told["action"], &told["protocol"]), (&"publish".into(), &"rtmp".into()));
    assert!(told["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{told}");
    assert!(!publisher.wait(LIMIT).status.success(), "ffmpeg learns that it may not go on");
    let told = end_one(&server, "?stream=live/cam&action=play&protocol=rtmp");
    assert_eq!(told["ended"], Value::Null);
    player.wait(LIMIT);
    // The viewer before its publisher: it would end with the stream.
    end_one(&server, "?protocol=webrtc");
    end_one(&server, "?protocol=whip");
    let (head, mut body) = flv.begin().unwrap();
    assert_eq!(head.status, 200);
    end_one(&server, "?protocol=flv");
    assert!(body.read_to_end(&mut Vec::new()).is_err(), "the response is broken off");
    let (_, mut body) = mp4.begin().unwrap();
    end_one(&server, "?protocol=mp4");
    assert!(body.read_to_end(&mut Vec::new()).is_err(), "the response is broken off");
    let (head, _) = push.begin().unwrap();
    assert_eq!(head.status, 101);
    let told = end_one(&server, "?protocol=push");
    assert!(told["behind_seconds"].is_number(), "{told}");
    let (mut socket, mut all) = push.into_parts();
    let _ = socket.read_to_end(&mut all);
    let reason = b"an administrator ended this session";
    assert!(all.windows(reason.len()).any(|part| part == reason), "the viewer is told why");

    // All are over, for this reason, and nobody else noticed.
    eventually(LIMIT, "only the publisher is left", || sessions(&server, "").len() == 1);
    let ended = sessions(&server, "?ended=true");
    for protocol in ["rtmp", "whip", "webrtc", "flv", "mp4", "push"] {
        let reason = "an administrator ended this session";
        let found =
            ended.iter().any(|it| it["protocol"] == protocol && it["ended"]["reason"] == reason);
        assert!(found, "{protocol}: {ended:?}");
    }
    let state = ask(&server, "GET", "/api/v1/streams/live/cam", &[], b"");
    assert!(state.text().contains("\"state\":\"live\""), "{}", state.text());
    for program in [stays, whip, whep] {
        program.terminate();
    }
}

#[test]
fn only_administrators_end_sessions_and_see_addresses() {
    let server = operated(
        "[control]\nadmin = []\n[[access.rule]]\nactions = [\"api\"]\nuser = \"op\"\npassword = \"pw\"\n",
    );
    let publisher = publish(&server, "live/cam");
    let asks = |method: &str, path: &str, headers: &[(&str, &str)]| {
        operate(&server, method, path, headers)
    };
    // `op:pw`
    let known = [("Authorization", "Basic b3A6cHc=")];
    assert_eq!(asks("GET", "/api/v1/sessions", &[]).status(), 401);
    let mut list = asks("GET", "/api/v1/sessions", &known);
    eventually(LIMIT, "the publisher is listed", || {
        list = asks("GET", "/api/v1/sessions", &known);
        list.text().contains("127.0.0.1:")
    });
    let told: Value = serde_json::from_slice(&list.body).unwrap();
    let path = format!("/api/v1/sessions/{}", told["sessions"][0]["id"]);
    // A page of another site, in a browser that knows the password.
    let of_others = [known[0], ("Origin", "http://elsewhere.example")];
    assert_eq!(asks("GET", "/api/v1/sessions", &of_others).status(), 403);
    assert_eq!(asks("DELETE", &path, &of_others).status(), 403);
    assert_eq!(asks("DELETE", &path, &[]).status(), 401);
    assert_eq!(asks("DELETE", &path, &known).status(), 204);
    publisher.wait(LIMIT);
}

/// Whoever an address alone lets in has shown nothing, and a page can use it.
#[test]
fn an_address_that_may_observe_ends_nothing() {
    let server = operated(
        "[control]\nadmin = []\n[[access.rule]]\nactions = [\"api\"]\naddresses = [\"127.0.0.0/8\"]\n",
    );
    let _publisher = publish(&server, "live/cam");
    let mut list = Vec::new();
    eventually(LIMIT, "the publisher is listed", || {
        list = sessions(&server, "");
        !list.is_empty()
    });
    assert_eq!(list[0]["peer"], Value::Null);
    let path = format!("/api/v1/sessions/{}", list[0]["id"]);
    assert_eq!(operate(&server, "DELETE", &path, &[]).status(), 403);
}
