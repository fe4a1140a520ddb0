//! Sessions one by one, and how an administrator ends them.

use std::io::Read;
use std::process::Command;

use serde_json::Value;
use testkit::http::{Client, Response};
use testkit::{Program, Server, eventually, playlist};

use crate::support::{
    LIMIT, SILENT_VIEWERS, UPGRADE, aiortc, ask, operate, operated, publish, sessions, wait_for,
};

const REASON: &str = "an administrator ended this session";

/// ffmpeg plays a URL until it ends, as the player of this name.
fn plays(url: &str, name: &str) -> Program {
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-v", "warning", "-user_agent", name, "-i", url, "-c", "copy"]);
    Program::spawn(ffmpeg.args(["-f", "null", "-"]))
}

/// Asks as the player of this name.
#[track_caller]
fn ask_as(server: &Server, name: &str, path: &str) -> Response {
    ask(server, "GET", path, &[("User-Agent", name)], b"")
}

/// The answer to a player whose session was ended.
#[track_caller]
fn assert_refused(answer: &Response) {
    assert_eq!((answer.status(), answer.text().trim()), (403, REASON));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
}

/// What is told of a session that ended.
#[track_caller]
fn ended(server: &Server, id: &Value) -> Value {
    let mut all = sessions(server, "?ended=true");
    all.retain(|it| it["id"] == *id);
    all.pop().unwrap_or_else(|| panic!("session {id} has not ended"))
}

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
    let server = operated(SILENT_VIEWERS);
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
    let reason = REASON.as_bytes();
    assert!(all.windows(reason.len()).any(|part| part == reason), "the viewer is told why");

    // All are over, for this reason, and nobody else noticed.
    eventually(LIMIT, "only the publisher is left", || sessions(&server, "").len() == 1);
    let ended = sessions(&server, "?ended=true");
    for protocol in ["rtmp", "whip", "webrtc", "flv", "mp4", "push"] {
        let found =
            ended.iter().any(|it| it["protocol"] == protocol && it["ended"]["reason"] == REASON);
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
    wait_for(&server, "/live/cam/index.m3u8");
    assert_eq!(ask_as(&server, "player", "/live/cam/a0/media.m3u8").status(), 200);
    list = sessions(&server, "?stream=live/cam");
    assert_eq!(list.len(), 2);
    assert!(list.iter().all(|it| it["peer"] == Value::Null), "{list:?}");
    let path = format!("/api/v1/sessions/{}", list[0]["id"]);
    assert_eq!(operate(&server, "DELETE", &path, &[]).status(), 403);
}

#[test]
fn an_administrator_ends_players_of_hls_and_dash() {
    let server = operated("");
    let _publisher = publish(&server, "live/cam");
    wait_for(&server, "/live/cam/index.m3u8");
    let gone = plays(&server.url("/live/cam/index.m3u8"), "gone");
    let hls = "?stream=live/cam&action=play&protocol=hls";
    let mut told = Value::Null;
    eventually(LIMIT, "the player gets media", || {
        told = sessions(&server, hls).pop().unwrap_or_default();
        told["bytes"].as_u64() > Some(100_000) && told["behind_seconds"].is_number()
    });
    assert!(told["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{told}");
    assert_eq!((&told["rendition"], &told["ended"]), (&Value::Null, &Value::Null));
    let stays = plays(&server.url("/live/cam/index.m3u8"), "stays");
    eventually(LIMIT, "another player comes", || sessions(&server, hls).len() == 2);
    let other = sessions(&server, hls).pop().unwrap();
    let (id, other) = (&told["id"], &other["id"]);
    assert_ne!(id, other);

    let end = |id: &Value| operate(&server, "DELETE", &format!("/api/v1/sessions/{id}"), &[]);
    assert_eq!((end(id).status(), end(id).status()), (204, 404));
    assert_eq!(ended(&server, id)["ended"]["reason"], REASON);
    for path in ["index.m3u8", "v0/media.m3u8", "v0/init.mp4", "v0/9999.m4s", "cmcd"] {
        assert_refused(&ask_as(&server, "gone", &format!("/live/cam/{path}")));
    }
    let left = gone.wait(LIMIT);
    assert!(left.stderr.contains("403"), "{}", left.stderr);
    // The other player gets more than before. Its session goes on where a busy machine holds it up for longer than it may
    // be silent: a HEAD adds no bytes.
    let bytes = || {
        let headers = [("User-Agent", "stays")];
        assert_eq!(ask(&server, "HEAD", "/live/cam/index.m3u8", &headers, b"").status(), 200);
        let found = sessions(&server, hls);
        assert!(found.len() == 1 && found[0]["id"] == *other, "{found:?}");
        found[0]["bytes"].as_u64().unwrap()
    };
    let before = bytes();
    eventually(LIMIT, "the other goes on", || bytes() > before + 100_000);

    let dash = plays(&server.url("/live/cam/manifest.mpd"), "dash");
    let told = end_one(&server, "?protocol=dash");
    assert_eq!((&told["stream"], &told["action"]), (&"live/cam".into(), &"play".into()));
    assert_refused(&ask_as(&server, "dash", "/live/cam/manifest.mpd"));
    dash.terminate();
    // A reload that waits for the next part shows low latency. A player that stops asking has left, for no reason.
    let playlist = ask_as(&server, "low", "/live/cam/v0/media.m3u8").text().to_owned();
    let (msn, part) = playlist::hint(&playlist);
    let next = format!("/live/cam/v0/media.m3u8?_HLS_msn={msn}&_HLS_part={part}");
    assert_eq!(ask_as(&server, "low", &next).status(), 200);
    let low = sessions(&server, "?protocol=llhls").remove(0);
    eventually(LIMIT, "it has left", || sessions(&server, "?protocol=llhls").is_empty());
    assert_eq!(ended(&server, &low["id"])["ended"]["reason"], Value::Null);
    stays.terminate();
}

#[test]
fn players_of_titles_are_sessions_and_those_of_files_are_not() {
    let server = operated("");
    server.put("film.mp4", &std::fs::read(testkit::demo_clip()).unwrap());
    let playlist = ask_as(&server, "a", "/vod/film.mp4/v0/media.m3u8").text().to_owned();
    assert_eq!(ask_as(&server, "b", "/vod//film.mp4/manifest.mpd").status(), 200);
    assert_eq!(ask_as(&server, "c", "/vod/film.mp4").status(), 200);
    assert_eq!(ask_as(&server, "c", "/vod/none.mp4/index.m3u8").status(), 404);
    let segment = playlist::listed(&playlist).next().unwrap();
    let segment = ask_as(&server, "a", &format!("/vod/film.mp4/v0/{segment}"));
    let mut told = Vec::new();
    eventually(LIMIT, "all was sent", || {
        told = sessions(&server, "?stream=vod/film.mp4");
        told.len() == 2 && told[0]["bytes"] == segment.body.len() + playlist.len()
    });
    assert_eq!((&told[0]["protocol"], &told[1]["protocol"]), (&"hls".into(), &"dash".into()));
    assert_eq!(sessions(&server, "").len(), 2);
    let path = format!("/api/v1/sessions/{}", told[0]["id"]);
    assert_eq!(operate(&server, "DELETE", &path, &[]).status(), 204);
    for path in ["/vod/film.mp4/index.m3u8", "/vod//film.mp4/v0/0.m4s"] {
        assert_refused(&ask_as(&server, "a", path));
        assert_eq!(ask_as(&server, "b", path).status(), 200);
    }
    assert_eq!(ask_as(&server, "a", "/vod/film.mp4").status(), 200, "a rule keeps it out");
}

#[test]
fn a_session_ends_when_its_player_says_so() {
    let server = operated("");
    server.put("film.mp4", &std::fs::read(testkit::demo_clip()).unwrap());
    // Two pages of one browser: one names its session in each request, and the other in beacons alone.
    let named = "/vod/film.mp4/index.m3u8?CMCD=sid%3D%22one%22%2Csf%3Dh";
    assert_eq!(ask_as(&server, "browser", named).status(), 200);
    assert_eq!(ask_as(&server, "browser", "/vod/film.mp4/index.m3u8").status(), 200);
    let beacon = |told: &str| {
        let headers = [("User-Agent", "browser")];
        let answer = ask(&server, "POST", "/vod/film.mp4/cmcd", &headers, told.as_bytes());
        assert_eq!(answer.status(), 204);
    };
    let ids = || -> Vec<Value> {
        sessions(&server, "").iter_mut().map(|session| session["id"].take()).collect()
    };
    let begun = ids();
    assert_eq!(begun.len(), 2);
    beacon("sid=\"two\",sf=h");
    beacon("sid=\"three\",sf=h,sta=e");
    assert_eq!(ids(), begun, "nobody here has named this one");
    beacon("sid=\"one\",sf=h,sta=e");
    assert_eq!(ids(), begun[1..]);
    beacon("sid=\"two\",sf=h,sta=e");
    assert!(ids().is_empty());
    assert_eq!(sessions(&server, "?ended=true").len(), 2);
}

#[test]
fn sessions_that_one_address_makes_up_are_bounded() {
    let server = operated("[http]\nunlimited_networks = []\nmax_sessions_per_address = 20\n");
    server.put("film.mp4", &std::fs::read(testkit::demo_clip()).unwrap());
    let path = "/vod/film.mp4/a0/media.m3u8";
    assert_eq!(ask_as(&server, "gone", path).status(), 200);
    let gone = sessions(&server, "").remove(0);
    let end = format!("/api/v1/sessions/{}", gone["id"]);
    assert_eq!(operate(&server, "DELETE", &end, &[]).status(), 204);
    let mut client = Client::connect(server.http, LIMIT).unwrap();
    for made_up in 0..10_000 {
        let session = made_up.to_string();
        assert_eq!(client.get(path, &[("X-Playback-Session-Id", &session)]).status(), 200);
    }
    let answer = operate(&server, "GET", "/api/v1/sessions", &[]);
    let told: Value = serde_json::from_slice(&answer.body).unwrap();
    assert!((1..=20).contains(&told["sessions"].as_array().unwrap().len()), "{told}");
    assert!(told["only_counted"].as_u64() > Some(20), "{told}");
    assert_refused(&ask_as(&server, "gone", path));
    assert_eq!(ended(&server, &gone["id"])["ended"]["reason"], REASON);
}
