//! Tokens, and sessions that end with them.

use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use testkit::Program;
use testkit::http::Client;

use crate::support::{
    LIMIT, UPGRADE, aiortc, ask, play, publish, server, status, token, unix_now, wait_for,
};

const CONFIGURATION: &str =
    "[access]\nmax_failures = 0\n[access.jwt]\nkeys = \"KEY\"\nissuer = \"us\"\nleeway = \"0s\"\n";

fn claims(action: &str, expires: u64) -> String {
    format!(
        r#"{{"iss":"us","exp":{expires},"permissions":[{{"actions":["{action}"],"path":"live/cam*"}}]}}"#
    )
}

#[test]
fn tokens_let_programs_of_others_in() {
    let (_folder, server) = server(CONFIGURATION);
    let hour = unix_now() + 3600;
    let (publishes, plays) = (token(&claims("publish", hour)), token(&claims("play", hour)));
    assert!(!publish(&server, &format!("live/cam?token={plays}")).wait(LIMIT).status.success());
    assert!(!publish(&server, &format!("live/x?token={publishes}")).wait(LIMIT).status.success());
    let _publisher = publish(&server, &format!("live/cam?token={publishes}"));
    wait_for(&server, &format!("/live/cam/index.m3u8?token={plays}"));
    let bearer = format!("Bearer {plays}");
    assert_eq!(status(&server, "/live/cam/index.m3u8", &[("Authorization", &bearer)]), 200);
    let played = play(&server.rtmp_url(&format!("live/cam?token={plays}")), &[]);
    assert!(played.status.success(), "{}", played.stderr);
    let (_, rest) = plays.split_once('.').unwrap();
    let (_, signature) = rest.split_once('.').unwrap();
    let none = "eyJhbGciOiJub25lIn0";
    for forged in [
        format!("{none}.{}.", rest.split_once('.').unwrap().0),
        format!("{none}.{rest}"),
        // The claims of another with this one's signature.
        format!("{}.{signature}", publishes.rsplit_once('.').unwrap().0),
        token(&claims("play", unix_now() - 60)),
        token(&claims("play", hour).replace("us", "them")),
        token(&claims("play", hour).replace("live/cam*", "live/../**")),
        token(&format!("{}{}", "[".repeat(2000), "]".repeat(2000))),
        token(&claims("play", hour).replace("us", &"x".repeat(5000))),
        "...".to_owned(),
        publishes,
    ] {
        let path = format!("/live/cam/index.m3u8?token={forged}");
        let found = status(&server, &path, &[]);
        // A head that is too long is refused before anybody looks at it.
        assert!(found == 403 || found == 431 && forged.len() > 6000, "{found} {forged:.60}");
    }
    assert!(!server.log().contains(rest), "no token is logged");
}

#[test]
fn publishers_and_players_end_with_their_tokens() {
    let (_folder, server) = server(CONFIGURATION);
    let hour = unix_now() + 3600;
    let (publishes, plays) = (token(&claims("publish", hour)), token(&claims("play", hour)));
    let _publisher = publish(&server, &format!("live/cam?token={publishes}"));
    let webrtc = aiortc("publish", &server.url(&format!("/live/camrtc/whip?token={publishes}")));
    wait_for(&server, &format!("/live/cam/index.m3u8?token={plays}"));
    wait_for(&server, &format!("/live/camrtc/index.m3u8?token={plays}"));

    // All of these begin while they may. Where the machine is too slow for that, they get longer.
    let mut seconds = 12;
    let (soon, rtmp, whip, whep, player, mut push, mut flv) = loop {
        let soon = unix_now() + seconds;
        let publishes = token(&claims("publish", soon));
        let plays = token(&claims("play", soon));
        let mut push = Client::connect(server.http, LIMIT).unwrap();
        push.send("GET", &format!("/live/cam/push?token={plays}"), &UPGRADE, b"").unwrap();
        let mut flv = Client::connect(server.http, LIMIT).unwrap();
        flv.send("GET", &format!("/live/cam/live.flv?token={plays}"), &[], b"").unwrap();
        let rtmp = publish(&server, &format!("live/cam-b{seconds}?token={publishes}"));
        let whip = format!("/live/cam-c{seconds}/whip?token={publishes}");
        let whip = aiortc("publish", &server.url(&whip));
        let whep = aiortc("hold", &server.url(&format!("/live/camrtc/whep?token={plays}")));
        let mut player = Command::new("ffmpeg");
        let url = server.rtmp_url(&format!("live/cam?token={plays}"));
        player.args(["-v", "error", "-i", &url, "-c", "copy", "-f", "null", "-"]);
        let player = Program::spawn(&mut player);
        let mut has_begun = false;
        while !has_begun && unix_now() < soon {
            std::thread::sleep(Duration::from_millis(50));
            let sessions = ask(&server, "GET", "/api/v1/sessions", &[], b"");
            let sessions: Value = serde_json::from_slice(&sessions.body).unwrap();
            // Two publishers last beside these six.
            has_begun = sessions["sessions"].as_array().unwrap().len() == 8;
        }
        if has_begun {
            break (soon, rtmp, whip, whep, player, push, flv);
        }
        for program in [rtmp, whip, whep, player] {
            program.terminate();
        }
        seconds *= 2;
        assert!(seconds < LIMIT.as_secs(), "they never begin in time");
    };

    // And all end by themselves, not before.
    let is_over = |program: Program| {
        program.wait(LIMIT);
        assert!(unix_now() >= soon);
    };
    is_over(rtmp);
    is_over(player);
    let (head, mut body) = flv.begin().unwrap();
    let mut all = Vec::new();
    assert_eq!(head.status, 200);
    assert!(std::io::Read::read_to_end(&mut body, &mut all).is_err());
    let (head, _) = push.begin().unwrap();
    assert_eq!(head.status, 101);
    let (mut socket, mut all) = push.into_parts();
    let _ = std::io::Read::read_to_end(&mut socket, &mut all);
    let told = b"the permission has expired";
    assert!(all.windows(told.len()).any(|part| part == told), "the viewer is told why");
    for reason in ["whip session over", "rtmp connection ended", "push viewer closed"] {
        let line = server.log_line(LIMIT, |line| {
            line.contains(reason) && line.contains("the permission has expired")
        });
        assert!(line.contains("cam"), "{line}");
    }
    whip.terminate();
    whep.terminate();
    // Nobody else noticed.
    let plays = token(&claims("play", hour));
    for name in ["cam", "camrtc"] {
        let path = format!("/api/v1/streams/live/{name}?token={plays}");
        let answer = ask(&server, "GET", &path, &[], b"");
        assert!(answer.text().contains("\"state\":\"live\""), "{}", answer.text());
    }
    webrtc.terminate();
}
