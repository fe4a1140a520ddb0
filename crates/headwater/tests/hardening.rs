//! What unusual but not hostile peers may rely on.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

use std::time::Duration;

use testkit::http::get_with;
use testkit::{NO_ARGUMENTS, Server};

const BINARY: &str = env!("CARGO_BIN_EXE_headwater");
const LIMIT: Duration = Duration::from_secs(60);

/// A viewer with a cached playlist asks whether it is still valid.
#[test]
fn conditions_hold_for_playlists_too_and_across_streams_of_one_name() {
    let server = Server::configured(BINARY, "[live]\nreconnect = \"1s\"\n", NO_ARGUMENTS);
    let mut tags = Vec::new();
    for _ in 0..2 {
        let mut publisher =
            server.publish(testkit::demo_clip(), &server.rtmp_url("live/x"), &["--loop"]);
        for path in ["/live/x/v0/media.m3u8", "/live/x/manifest.mpd"] {
            server.get_until(path, LIMIT, |response| {
                response.status() == 200 && !response.text().contains("ENDLIST")
            });
        }
        publisher.terminate();
        assert!(publisher.ended_within(LIMIT).is_some());
        server.until_ended("live/x", "v0", LIMIT);
        for path in ["/live/x/v0/media.m3u8", "/live/x/manifest.mpd"] {
            let response = server.get(path);
            let tag = response.header("etag").unwrap().to_owned();
            for (condition, value, status) in [
                ("If-None-Match", tag.clone(), 304),
                ("If-None-Match", format!("\"other\", {tag}"), 304),
                ("If-None-Match", format!("W/{tag}"), 304),
                ("If-None-Match", "*".to_owned(), 304),
                ("If-None-Match", "\"other\"".to_owned(), 200),
                ("If-Match", "\"other\"".to_owned(), 412),
            ] {
                let answer = get_with(server.http, path, &[(condition, &value)]);
                assert_eq!(answer.status(), status, "{path} {condition}: {value}");
                assert_eq!(answer.header("etag"), Some(&*tag), "{path} {condition}: {value}");
            }
            // Versions count from 0 again when a name is published anew; tags must not.
            let began = tag.split('-').next().unwrap().to_owned();
            assert!(!tags.contains(&(path, began.clone())), "{tag} again");
            tags.push((path, began));
        }
    }
    server.stop(LIMIT);
}
