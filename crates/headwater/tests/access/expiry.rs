//! Tokens, and sessions that end with them.

use std::time::Duration;

use crate::support::{
    Crowd, LIMIT, SILENT_VIEWERS, aiortc, ask, play, publish, server, sessions, status, token,
    unix_now, wait_for,
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
    let (_folder, server) = server(&format!("{CONFIGURATION}{SILENT_VIEWERS}"));
    let hour = unix_now() + 3600;
    let (publishes, plays) = (token(&claims("publish", hour)), token(&claims("play", hour)));
    let _publisher = publish(&server, &format!("live/cam?token={publishes}"));
    let webrtc = aiortc("publish", &server.url(&format!("/live/camrtc/whip?token={publishes}")));
    wait_for(&server, &format!("/live/cam/index.m3u8?token={plays}"));
    wait_for(&server, &format!("/live/camrtc/index.m3u8?token={plays}"));

    // All of these begin while they may. Where the machine is too slow for that, they get longer.
    let mut seconds = 12;
    let (soon, crowd) = loop {
        let soon = unix_now() + seconds;
        let [publishes, plays] =
            ["publish", "play"].map(|action| format!("token={}", token(&claims(action, soon))));
        let crowd = Crowd::begin(&server, &format!("cam-{seconds}"), &publishes, &plays);
        let mut has_begun = false;
        while !has_begun && unix_now() < soon {
            std::thread::sleep(Duration::from_millis(50));
            // Two publishers last beside these.
            has_begun = sessions(&server, "").len() == 2 + Crowd::SESSIONS;
        }
        if has_begun {
            break (soon, crowd);
        }
        drop(crowd);
        seconds *= 2;
        assert!(seconds < LIMIT.as_secs(), "they never begin in time");
    };

    // And all end by themselves, not before.
    crowd.wait_for_end(&server, "the permission has expired", || assert!(unix_now() >= soon));
    // Nobody else noticed.
    let plays = token(&claims("play", hour));
    for name in ["cam", "camrtc"] {
        let path = format!("/api/v1/streams/live/{name}?token={plays}");
        let answer = ask(&server, "GET", &path, &[], b"");
        assert!(answer.text().contains("\"state\":\"live\""), "{}", answer.text());
    }
    webrtc.terminate();
}
