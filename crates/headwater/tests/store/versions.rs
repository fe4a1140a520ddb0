//! An object that is replaced while it is watched.

use testkit::http::Client;
use testkit::{Server, eventually, noise};

use crate::support::{LIMIT, Store, addresses, ask, bytes, clip, origin};

/// How long the origin takes an object for unchanged in these tests.
const REVALIDATE: &str = "revalidate = \"200ms\"\nread_ahead = \"0B\"\n";

/// Waits until the origin has another version of a file.
fn changes(server: &Server, path: &str, etag: &str) {
    eventually(LIMIT, "the new version", || {
        ask(server, path, &[("Range", "bytes=0-0")]).header("etag") != Some(etag)
    });
}

/// The segments that the playlist of `a.mp4` names.
fn segments(server: &Server) -> Vec<String> {
    let index = String::from_utf8(bytes(server, "/vod/a.mp4/index.m3u8")).unwrap();
    let media = addresses(&index).into_iter().find(|a| a.starts_with("v0/media")).unwrap();
    let text = String::from_utf8(bytes(server, &format!("/vod/a.mp4/{media}"))).unwrap();
    let segments = addresses(&text).into_iter().map(|each| format!("/vod/a.mp4/v0/{each}"));
    segments.filter(|each| each.contains(".m4s")).collect()
}

#[test]
fn a_response_never_has_bytes_of_two_versions() {
    let store = Store::start();
    let cache = tempfile::tempdir().unwrap();
    let (old, new) = (noise(1, 24 << 20), noise(2, 24 << 20));
    store.put("a.bin", &old);
    let server = origin(&store.proxy(), cache.path(), REVALIDATE);
    let mut viewer = Client::connect(server.http, LIMIT).unwrap();
    viewer.send("GET", "/vod/a.bin", &[], b"").unwrap();
    let (head, mut body) = viewer.begin().unwrap();
    assert_eq!(head.status, 200);
    let etag = head.header("etag").unwrap().to_owned();
    let mut got = vec![0; 64 << 10];
    std::io::Read::read_exact(&mut body, &mut got).unwrap();
    store.put("a.bin", &new);
    // The rest of the old version is not to be had. What arrives is of that version.
    let ended = std::io::Read::read_to_end(&mut body, &mut got);
    assert!(ended.is_err(), "the answer was cut short");
    assert!(got.len() < old.len() && got == old[..got.len()], "{}", got.len());
    changes(&server, "/vod/a.bin", &etag);
    assert!(bytes(&server, "/vod/a.bin") == new);
    // A player that goes on where it was gets the new file from its beginning.
    let rest = [("Range", "bytes=100-"), ("If-Range", etag.as_str())];
    assert_eq!(ask(&server, "/vod/a.bin", &rest).status(), 200);
}

#[test]
fn who_finds_that_a_title_was_replaced_is_told_that_its_version_is_over() {
    let store = Store::start();
    let cache = tempfile::tempdir().unwrap();
    store.put("a.mp4", &clip("two-minutes.mp4"));
    // Only the bytes of a segment tell the origin that there is another version.
    let server = origin(&store.proxy(), cache.path(), "revalidate = \"1h\"\nread_ahead = \"0B\"\n");
    let segments = segments(&server);
    store.put("a.mp4", &clip("minute.mp4"));
    assert_eq!(ask(&server, segments.last().unwrap(), &[]).status(), 404);
}

#[test]
fn segments_of_a_replaced_title_end_and_its_playlists_name_the_new_ones() {
    let store = Store::start();
    let cache = tempfile::tempdir().unwrap();
    store.put("a.mp4", &clip("two-minutes.mp4"));
    let server = origin(&store.proxy(), cache.path(), REVALIDATE);
    let old = segments(&server);
    let first = bytes(&server, &old[0]);
    store.put("a.mp4", &clip("minute.mp4"));
    eventually(LIMIT, "the new playlist", || segments(&server) != old);
    let new = segments(&server);
    // The old version is over, even where its bytes are here.
    eventually(LIMIT, "the old version is over", || ask(&server, &old[0], &[]).status() == 404);
    assert_eq!(ask(&server, old.last().unwrap(), &[]).status(), 404);
    assert!(bytes(&server, &new[0]) != first);
}
