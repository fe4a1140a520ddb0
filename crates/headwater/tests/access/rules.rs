//! Rules: users, stream keys and addresses.

use std::process::Command;

use testkit::http::Client;
use testkit::{NO_ARGUMENTS, Program, Server, eventually};

use crate::support::{
    BINARY, LIMIT, UPGRADE, aiortc, ask, play, publish, publish_to, server, status, wait_for,
};

/// Alice publishes with a key, and plays as a user whose password is `open sesame`.
const RULES: &str = "[access]\nmax_failures = 0\n\
    [[access.rule]]\nactions = [\"publish\"]\npath = \"live/cam\"\nkey = \"k-1 &\"\n\
    [[access.rule]]\nactions = [\"play\", \"api\", \"metrics\"]\nuser = \"alice\"\npassword = \"HASH\"\n";

/// What a user of `headwater hash-password` gets.
fn hash(password: &str) -> String {
    let mut command = Command::new("sh");
    command.args(["-c", "printf '%s\\n' \"$1\" | \"$2\" hash-password", "sh", password, BINARY]);
    String::from_utf8(Program::output(&mut command, LIMIT)).unwrap().trim().to_owned()
}

/// `alice:open sesame` as RFC 7617 has it.
const ALICE: (&str, &str) = ("Authorization", "Basic YWxpY2U6b3BlbiBzZXNhbWU=");
const QUERY: &str = "user=alice&password=open%20sesame";

fn guarded() -> Server {
    server(&RULES.replace("HASH", &hash("open sesame"))).1
}

#[test]
fn programs_of_others_publish_and_play_with_credentials_only() {
    let server = guarded();
    // RTMP in.
    for refused in ["live/cam", "live/cam?key=wrong", "live/other?key=k-1%20%26"] {
        let ended = publish(&server, refused).wait(LIMIT);
        assert!(!ended.status.success(), "{refused}");
    }
    let publisher = publish(&server, "live/cam?key=k-1%20%26");
    wait_for(&server, &format!("/live/cam/index.m3u8?{QUERY}"));

    // HLS, DASH and FLV out, with credentials in the URL as curl and ffmpeg have them.
    let with = format!("http://alice:open%20sesame@{}", server.http);
    for path in ["/live/cam/index.m3u8", "/live/cam/manifest.mpd", "/live/cam/live.flv"] {
        let headers = ["-headers", "Authorization: Basic YWxpY2U6b3BlbiBzZXNhbWU=\r\n"];
        let played = play(&server.url(path), &headers);
        assert!(played.status.success(), "{path}: {}", played.stderr);
        let refused = play(&server.url(path), &[]);
        assert!(!refused.status.success() && refused.stderr.contains("401"), "{}", refused.stderr);
    }
    let played = play(&format!("{with}/live/cam/live.flv"), &[]);
    assert!(played.status.success(), "{}", played.stderr);

    // RTMP out.
    let played = play(&server.rtmp_url(&format!("live/cam?{QUERY}")), &[]);
    assert!(played.status.success(), "{}", played.stderr);
    for refused in ["live/cam", "live/cam?user=alice&password=wrong"] {
        assert!(!play(&server.rtmp_url(refused), &[]).status.success(), "{refused}");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dump.flv");
    let (app, url) = (format!("live?{QUERY}"), format!("rtmp://{}/live?{QUERY}", server.rtmp));
    let mut rtmpdump = Command::new("rtmpdump");
    rtmpdump.args(["-q", "-v", "-r", &url, "-a", &app, "-y", "cam", "-o"]).arg(&file);
    let rtmpdump = Program::spawn(&mut rtmpdump);
    eventually(LIMIT, "rtmpdump saves", || file.metadata().is_ok_and(|file| file.len() > 100_000));
    rtmpdump.terminate();

    // A refusal is told, and no secret is logged.
    let log = server.log();
    assert!(log.contains("publish refused") && log.contains("not allowed with these credentials"));
    for secret in ["k-1", "sesame", "YWxpY2U6"] {
        assert!(!log.contains(secret), "{log}");
    }
    publisher.terminate();
}

/// As the URLs of ffmpeg, the fields of OBS and the properties of GStreamer have them.
#[test]
fn encoders_are_asked_for_user_and_password() {
    let (_folder, server) = server(
        "[access]\nrtmp_challenge = true\nmax_failures = 0\n\
         [[access.rule]]\nactions = [\"publish\"]\npath = \"live/a*\"\nuser = \"alice\"\npassword = \"se+cret=\"\n\
         [[access.rule]]\nactions = [\"publish\"]\nkey = \"k\"\n",
    );
    let url = |user: &str, path: &str| format!("rtmp://{user}@{}/{path}", server.rtmp);
    for (refused, why) in [
        (url("alice:wrong", "live/a1"), "Incorrect username/password"),
        (url("bob:se+cret=", "live/a1"), "Incorrect username/password"),
        (url("alice:se+cret=", "live/b"), "not allowed with these credentials"),
        (server.rtmp_url("live/a1"), "No credentials set"),
    ] {
        let ended = publish_to(&refused).wait(LIMIT);
        let told = format!("{}{}", ended.stderr, server.log());
        assert!(!ended.status.success() && told.contains(why), "{refused}: {told}");
    }
    let _ffmpeg = publish_to(&url("alice:se+cret=", "live/a1"));
    // Whoever gives credentials is not asked.
    let _key = publish_to(&server.rtmp_url("live?key=k/b"));
    let location = server.rtmp_url("live/a2");
    let mut gstreamer = Command::new("gst-launch-1.0");
    gstreamer.args(["-q", "videotestsrc", "is-live=true", "!", "x264enc", "tune=zerolatency"]);
    gstreamer.args(["key-int-max=30", "!", "flvmux", "streamable=true", "!", "rtmp2sink"]);
    gstreamer.args(["timeout=60", &format!("location={location}")]);
    gstreamer.args(["flash-version=FMLE/3.0", "username=alice", "password=se+cret="]);
    let _gstreamer = Program::spawn(&mut gstreamer);
    for name in ["a1", "a2", "b"] {
        wait_for(&server, &format!("/live/{name}/index.m3u8"));
    }
    // Players are asked nothing.
    assert!(play(&server.rtmp_url("live/a1"), &[]).status.success());
    assert!(!server.log().contains("se+cr"), "no secret is logged");
}

#[test]
fn http_and_webrtc_tell_how_to_give_credentials() {
    let server = guarded();
    let _publisher = publish(&server, "live/cam?key=k-1%20%26");
    wait_for(&server, &format!("/live/cam/index.m3u8?{QUERY}"));
    for path in [
        "/live/cam/index.m3u8",
        "/live/cam/v0/media.m3u8",
        "/vod/film.mp4",
        "/api/v1/streams",
        "/metrics",
    ] {
        let answer = ask(&server, "GET", path, &[], b"");
        assert_eq!(answer.status(), 401, "{path}");
        let ways = answer
            .head
            .headers
            .iter()
            .filter(|(name, _)| name.eq_ignore_ascii_case("www-authenticate"));
        let ways: Vec<_> = ways.map(|(_, value)| value.split(' ').next().unwrap()).collect();
        assert_eq!(ways, ["Basic", "Bearer"], "{path}");
        assert_eq!(answer.header("cache-control"), Some("no-store"), "{path}");
        let wrong = ("Authorization", "Basic YWxpY2U6d3Jvbmc=");
        assert_eq!(status(&server, path, &[wrong]), 403, "{path}");
        let right = status(&server, path, &[ALICE]);
        assert_eq!(right, if path.starts_with("/vod/") { 404 } else { 200 }, "{path}");
    }
    // A cache that serves others must not keep what one was given.
    for file in ["index.m3u8", "manifest.mpd", "v0/media.m3u8", "v0/init.mp4"] {
        let path = format!("/live/cam/{file}");
        let answer = ask(&server, "GET", &path, &[ALICE], b"");
        let kept = answer.header("cache-control").unwrap();
        assert!(kept.starts_with("private, ") && !kept.contains("s-maxage"), "{path}: {kept}");
        let answer = ask(&server, "GET", &format!("{path}?{QUERY}"), &[], b"");
        assert!(!answer.header("cache-control").unwrap().contains("private"), "{path}");
    }
    // Who is sent to another node may play there.
    assert_eq!(status(&server, "/route/live/cam/index.m3u8", &[]), 401);
    assert_eq!(status(&server, "/route/live/cam/index.m3u8", &[ALICE]), 307);

    // Push.
    let mut client = Client::connect(server.http, LIMIT).unwrap();
    assert_eq!(client.get("/live/cam/push", &UPGRADE).status(), 401);
    let mut client = Client::connect(server.http, LIMIT).unwrap();
    let headers: Vec<_> = UPGRADE.into_iter().chain([ALICE]).collect();
    client.send("GET", "/live/cam/push", &headers, b"").unwrap();
    assert_eq!(client.begin().unwrap().0.status, 101);

    // WHIP and WHEP.
    for (path, query, expected) in [
        ("/live/cam/whep", "", 401),
        ("/live/cam/whep", "?user=alice&pass=x", 403),
        ("/live/cam/whip", "", 401),
        ("/live/other/whip", "?key=k-1%20%26", 403),
        // Let in, it is told that this is no offer.
        ("/live/cam/whep", "?user=alice&pass=open%20sesame", 400),
        ("/live/cam/whip", "?key=k-1%20%26", 400),
    ] {
        let sdp = [("Content-Type", "application/sdp")];
        let answer = ask(&server, "POST", &format!("{path}{query}"), &sdp, b"v=0");
        assert_eq!(answer.status(), expected, "{path}{query}: {}", answer.text());
        let mut names = answer.head.headers.iter().map(|(name, _)| name);
        assert_eq!(names.any(|name| name == "www-authenticate"), expected == 401);
    }
    // The page of another site asks first whether it may send the header.
    let preflight = [
        ("Origin", "https://elsewhere.example"),
        ("Access-Control-Request-Method", "GET"),
        ("Access-Control-Request-Headers", "authorization"),
    ];
    let answer = ask(&server, "OPTIONS", "/live/cam/index.m3u8", &preflight, b"");
    assert_eq!(answer.header("access-control-allow-headers"), Some("authorization"));
}

#[test]
fn aiortc_publishes_and_plays_with_a_key() {
    let (_folder, server) = server(
        "[[access.rule]]\nactions = [\"publish\"]\nkey = \"in\"\n\
         [[access.rule]]\nactions = [\"play\", \"api\"]\nkey = \"out\"\n",
    );
    let refused = aiortc("publish", &server.url("/live/cam/whip?key=out")).wait(LIMIT);
    assert_eq!(refused.status.code(), Some(3), "{}", refused.stderr);
    let publisher = aiortc("publish", &server.url("/live/cam/whip?key=in"));
    server.get_until("/api/v1/streams/live/cam?key=out", LIMIT, |answer| {
        answer.text().contains("\"avc1.42")
    });
    let refused = aiortc("see", &server.url("/live/cam/whep")).wait(LIMIT);
    assert_eq!(refused.status.code(), Some(3), "{}", refused.stderr);
    let seen = aiortc("see", &server.url("/live/cam/whep?key=out")).wait(LIMIT);
    assert!(seen.status.success(), "{}", seen.stderr);
    publisher.terminate();
    assert!(publisher.wait(LIMIT).status.success());
}

#[test]
fn guesses_are_slowed_down_and_nobody_who_watches_notices() {
    let (_folder, server) = server(
        "[access]\nmax_failures = 5\n[[access.rule]]\nactions = [\"play\"]\nkey = \"right\"\n",
    );
    let _publisher = publish(&server, "live/cam");
    wait_for(&server, "/live/cam/index.m3u8?key=right");
    let watches = play(&server.url("/live/cam/index.m3u8"), &[]);
    assert!(watches.stderr.contains("401"), "nothing was tried: {}", watches.stderr);
    let statuses: Vec<u16> = (0..1000)
        .map(|guess| status(&server, &format!("/live/cam/index.m3u8?key=guess-{guess}"), &[]))
        .collect();
    let of = |status| statuses.iter().filter(|it| **it == status).count();
    // A minute gives back five, and a slow machine takes some time for a thousand.
    assert!(of(429) > 900 && of(403) >= 5 && of(403) + of(429) == 1000, "{} {}", of(403), of(429));
    let slowed = ask(&server, "GET", "/live/cam/index.m3u8?key=guess", &[], b"");
    if slowed.status() == 429 {
        let wait: u64 = slowed.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=12).contains(&wait), "{wait}");
    }
    // The same by RTMP and WebRTC: one count for all.
    let ended = play(&server.rtmp_url("live/cam?key=wrong"), &[]);
    assert!(!ended.status.success());
    // Who was let in before goes on.
    assert!(play(&server.url("/live/cam/live.flv?key=right"), &[]).status.success());
}

#[test]
fn without_rules_only_near_addresses_publish() {
    let server =
        Server::configured(BINARY, "[access]\npublish_from = [\"192.0.2.0/24\"]\n", NO_ARGUMENTS);
    let ended = publish(&server, "live/cam").wait(LIMIT);
    assert!(!ended.status.success());
    let line = server.log_line(LIMIT, |line| line.contains("publish refused"));
    assert!(line.contains("nothing in [access] says who may publish"), "{line}");
    let sdp = [("Content-Type", "application/sdp")];
    assert_eq!(ask(&server, "POST", "/live/cam/whip", &sdp, b"v=0").status(), 403);
    assert_eq!(status(&server, "/live/cam/index.m3u8", &[]), 404, "anybody may play");
}

#[test]
fn whoever_may_play_a_title_gets_no_other_files() {
    let (_folder, server) = server(
        "[vod]\nlisting = true\n\
         [[access.rule]]\nactions = [\"play\"]\npath = \"vod/*\"\naddresses = [\"127.0.0.0/8\"]\n",
    );
    std::fs::create_dir_all(server.vod("private/v0")).unwrap();
    for file in ["private/index.m3u8", "private/v0/1.m4s", "private/notes.txt"] {
        server.put(file, b"private");
    }
    server.put("film.mp4", &std::fs::read(testkit::demo_clip()).unwrap());
    for (path, expected) in [
        ("/vod/film.mp4", 200),
        ("/vod/film.mp4/index.m3u8", 200),
        ("/vod/film.mp4/v0/0.m4s", 200),
        ("/vod/private/index.m3u8", 401),
        ("/vod/private/v0/1.m4s", 401),
        ("/vod/private/notes.txt", 401),
        ("/vod//private///notes.txt", 401),
        ("/vod/./private/notes.txt", 400),
    ] {
        let found = status(&server, path, &[]);
        assert!(found == expected || expected == 400 && found == 404, "{path}: {found}");
    }
    assert_eq!(status(&server, "/vod/private", &[]), status(&server, "/vod/private/", &[]));
}
