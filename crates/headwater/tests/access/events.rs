//! Events: to a server of the operator, and to who follows.

use std::fs;
use std::io::{BufRead, BufReader, Lines, Read};

use serde_json::Value;
use testkit::http::Client;
use testkit::{Server, eventually};

use crate::hook::{PATIENT, hook};
use crate::support::{LIMIT, operated, publish, server, wait_for};

/// Follows the events of a server.
struct Follower<R>(Lines<BufReader<R>>);

fn asks_to_follow(server: &Server, query: &str, headers: &[(&str, &str)]) -> Client {
    asks(server, &format!("/api/v1/events{query}"), headers)
}

fn asks(server: &Server, path: &str, headers: &[(&str, &str)]) -> Client {
    let mut client = Client::connect(server.operators(), LIMIT).unwrap();
    client.send("GET", path, headers, b"").unwrap();
    client
}

fn follow(client: &mut Client) -> Follower<impl Read> {
    let (head, body) = client.begin().unwrap();
    assert_eq!(head.status, 200);
    assert_eq!(head.header("Content-Type"), Some("text/event-stream"));
    Follower(BufReader::new(body).lines())
}

impl<R: Read> Follower<R> {
    /// The next event.
    #[track_caller]
    fn next(&mut self) -> Value {
        let data = self.0.find_map(|line| Some(line.unwrap().strip_prefix("data: ")?.to_owned()));
        serde_json::from_str(&data.expect("more events")).unwrap()
    }

    /// The first event of this name from here on.
    #[track_caller]
    fn wait_for(&mut self, name: &str) -> Value {
        loop {
            let event = self.next();
            if event["event"] == name {
                return event;
            }
        }
    }
}

#[test]
fn events_reach_followers_and_the_operators_server() {
    // It fails at first, and gets nothing twice after that.
    let failed = std::sync::atomic::AtomicBool::new(false);
    let (address, got) = hook(move |_| {
        Some(if failed.swap(true, std::sync::atomic::Ordering::Relaxed) { 204 } else { 500 })
    });
    let (_folder, server) = server(&format!(
        "[live]\nreconnect = \"1s\"\n[rtmp]\nmax_players = 1\n[events]\nwebhook = \"http://{address}/e\"\n{PATIENT}\
         [[access.rule]]\nactions = [\"publish\"]\nkey = \"right\"\n"
    ));
    let mut client = asks_to_follow(&server, "", &[]);
    let mut follower = follow(&mut client);
    let publisher = publish(&server, "live/cam?key=right");
    let started = follower.wait_for("stream_started");
    assert_eq!(started["stream"], "live/cam");
    wait_for(&server, "/live/cam/index.m3u8");

    assert!(!publish(&server, "live/cam?key=secret-guess").wait(LIMIT).status.success());
    let refused = follower.wait_for("publisher_refused");
    assert_eq!((&refused["stream"], &refused["protocol"]), (&"live/cam".into(), &"rtmp".into()));
    assert!(refused["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{refused}");
    assert!(!refused.to_string().contains("secret-guess"), "{refused}");

    publisher.terminate();
    follower.wait_for("stream_lost");
    let ended = follower.wait_for("stream_ended");
    assert_eq!(ended["stream"], "live/cam");

    // One who comes again gets what was missed. The header comes before the query, which a page sends each time.
    let last = started["id"].to_string();
    let header = [("Last-Event-ID", &*last)];
    for (query, headers, first) in [
        ("", &header[..], &refused),
        ("?after=0", &[][..], &started),
        ("?after=0", &header[..], &refused),
    ] {
        let mut client = asks_to_follow(&server, query, headers);
        let mut again = follow(&mut client);
        assert_eq!(again.next(), *first, "{query} {headers:?}");
        assert_eq!(again.wait_for("stream_ended"), ended);
    }
    let mut client = asks_to_follow(&server, "?after=soon", &[]);
    assert_eq!(client.begin().unwrap().0.status, 400);

    let names = || {
        let got = got.lock().unwrap();
        got.iter().map(|it| it["event"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    eventually(LIMIT, "the operator's server has all", || {
        names().iter().any(|name| name == "stream_ended")
    });
    let names = names();
    assert_eq!(names[..2], ["stream_started", "stream_started"], "the first was tried again");
    assert_eq!(names.iter().filter(|name| *name == "publisher_refused").count(), 1);
}

#[test]
fn administrators_follow_the_log() {
    let server = operated(
        "[control]\nadmin = []\n\
         [[access.rule]]\nactions = [\"api\"]\nuser = \"op\"\npassword = \"pw\"\n\
         [[access.rule]]\nactions = [\"publish\"]\nkey = \"right\"\n",
    );
    // Lines have addresses, so not everybody who may observe gets them.
    for (server, status) in [(&operated("[control]\nadmin = []\n"), 403), (&server, 401)] {
        let (head, _) = asks(server, "/api/v1/log", &[]).begin().unwrap();
        assert_eq!(head.status, status);
    }
    // `op:pw`
    let known = ("Authorization", "Basic b3A6cHc=");
    let mut client = asks(&server, "/api/v1/log?after=0", &[known]);
    let mut follower = follow(&mut client);
    let mut wait_for = |text: &str| loop {
        let line = follower.next()["line"].as_str().unwrap().to_owned();
        assert!(!line.contains("secret-1"), "{line}");
        if line.contains(text) {
            return line;
        }
    };
    // What was logged before, and what is logged now.
    assert!(wait_for("ready http=").contains(" INFO "));
    assert!(!publish(&server, "live/cam?key=secret-1").wait(LIMIT).status.success());
    let line = wait_for("publish refused");
    assert!(line.contains("127.0.0.1:") && line.contains(" WARN "), "{line}");
}

#[test]
fn a_refused_publisher_learns_no_address_and_tells_no_key() {
    let server = operated("[control]\nadmin = []\n");
    let mut client = asks_to_follow(&server, "?after=0", &[]);
    let mut follower = follow(&mut client);
    let _publisher = publish(&server, "live/a");
    follower.wait_for("stream_started");
    for (name, stream, reason) in [
        ("live/a", "live/a", "already published"),
        ("live/b&key=secret-2", "live/b", "\"b\" is not a stream name"),
        ("live/c?rendition=low?key=secret-2", "live/c", "\"low\" is not a rendition's name"),
    ] {
        assert!(!publish(&server, name).wait(LIMIT).status.success(), "{name}");
        let refused = follower.wait_for("publisher_refused");
        assert_eq!(refused["stream"], stream, "{refused}");
        assert!(refused["reason"].as_str().unwrap().starts_with(reason), "{refused}");
        assert!(!refused.to_string().contains("127.0.0.1:"), "{refused}");
        assert!(!refused.to_string().contains("secret-2"), "{refused}");
    }
    let log = server.whole_log();
    assert!(
        log.contains("already published by 127.0.0.1:"),
        "the log is for administrators: {log}"
    );
    assert!(!log.contains("secret-2"), "{log}");
}

#[test]
fn following_ends_when_the_rule_that_allows_it_is_gone() {
    followers_of_a_rule_that_goes("");
    // By its address alone, a peer may read events but not the log.
    followers_of_a_rule_that_goes(
        "[[access.rule]]\nactions = [\"api\"]\naddresses = [\"127.0.0.0/8\"]\n",
    );
}

fn followers_of_a_rule_that_goes(other: &str) {
    let rule = |key: &str| format!("[[access.rule]]\nactions = [\"api\"]\nkey = \"{key}\"\n");
    let stay = rule("stays") + other;
    let server = operated(&(rule("goes") + &stay));
    let follows = ["/api/v1/events?key=goes", "/api/v1/log?key=goes", "/api/v1/events?key=stays"];
    let mut clients = follows.map(|path| asks(&server, path, &[]));
    let [events, log, stays] = clients.each_mut();
    let bodies = [events, log].map(|client| client.begin().unwrap());
    let mut stays = follow(stays);
    fs::write(server.folder().join("headwater.toml"), stay).unwrap();
    assert!(server.whole_log().contains("took [access]"));
    for (head, mut body) in bodies {
        assert_eq!(head.status, 200);
        body.read_to_end(&mut Vec::new()).unwrap();
    }
    let _publisher = publish(&server, "live/a");
    stays.wait_for("stream_started");
}
