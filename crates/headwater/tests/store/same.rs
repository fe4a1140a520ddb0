//! Every delivery of a title from the store has the same bytes as from a folder.

use std::fs;
use std::path::Path;

use testkit::access_unit_hashes;
use testkit::push::Client;

use crate::support::{Store, addresses, ask, bytes, clip, local, origin, resources};

/// Clips with their index at either end, with several tracks, fragmented, and with odd times.
const CLIPS: [&str; 5] =
    ["film.mp4", "late-index.mp4", "tracks.mp4", "fragmented-aac.mp4", "sound.mp4"];

#[test]
fn a_title_is_the_same_from_the_store_and_from_a_folder() {
    let (store, folder) = (Store::start(), tempfile::tempdir().unwrap());
    let cache = tempfile::tempdir().unwrap();
    let put = |name: &str, bytes: &[u8]| {
        store.put(name, bytes);
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    };
    for name in CLIPS {
        put(name, &clip(name));
    }
    put("film.en.vtt", b"WEBVTT\n\n00:01.000 --> 00:02.000\nOne\n");
    put("movie/high.mp4", &clip("film.mp4"));
    put("movie/low.mp4", &clip("short.mp4"));
    put("a b/\u{fc}.mp4", &clip("short.mp4"));
    put("broken.mp4", &clip("film.mp4")[..100_000]);
    put("text.txt", b"text");

    let there = origin(&store.proxy(), cache.path(), "");
    let here = local(folder.path());
    for title in CLIPS.iter().chain(&["movie", "a%20b/%C3%BC.mp4"]) {
        let (of_store, of_folder) = (resources(&there, title), resources(&here, title));
        assert_eq!(of_store.len(), of_folder.len(), "{title}");
        for ((address, bytes), (same, wanted)) in of_store.iter().zip(&of_folder) {
            assert_eq!(address, same);
            assert!(bytes == wanted, "{address}");
        }
        let manifests = [&there, &here].map(|server| {
            let text = bytes(server, &format!("/vod/{title}/manifest.mpd"));
            let text = String::from_utf8(text).unwrap();
            // Only the version differs.
            let version = text.split("v=").nth(1).unwrap().split(['"', '&']).next().unwrap();
            text.replace(version, "V")
        });
        assert_eq!(manifests[0], manifests[1], "{title}");
    }
    // Plain files, whole and in ranges.
    let film = clip("film.mp4");
    assert!(bytes(&there, "/vod/film.mp4") == film);
    let last = film.len() - 1;
    for range in ["0-0", "1048570-1048590", "-7", "3000000-", &format!("{last}-{last}")] {
        let [a, b] = [&there, &here]
            .map(|server| ask(server, "/vod/film.mp4", &[("Range", &format!("bytes={range}"))]));
        assert_eq!((a.status(), b.status()), (206, 206), "{range}");
        assert_eq!(a.header("content-range"), b.header("content-range"), "{range}");
        assert!(a.body == b.body, "{range}");
    }
    let etag = ask(&there, "/vod/film.mp4", &[]).header("etag").unwrap().to_owned();
    assert!(etag.starts_with('"'), "{etag}");
    assert_eq!(ask(&there, "/vod/film.mp4", &[("If-None-Match", &etag)]).status(), 304);
    // What is not there, or is no title.
    for path in [
        "/vod/none.mp4",
        "/vod/none.mp4/index.m3u8",
        "/vod/film.mp4/none",
        "/vod/film.mp4/v0/999.m4s",
        "/vod/movie/none.mp4",
        "/vod/../film.mp4",
        "/vod/movie/..%2ffilm.mp4",
        "/vod/movie/%2e%2e/film.mp4",
        "/vod/broken.mp4/index.m3u8",
        "/vod/text.txt/index.m3u8",
        "/vod/text.txt",
        "/vod/movie//low.mp4/",
        "/vod/film.mp4/",
    ] {
        let [a, b] = [&there, &here].map(|server| ask(server, path, &[]).status());
        assert_eq!(a, b, "{path}");
    }
    assert_eq!(ask(&there, "/vod/broken.mp4/index.m3u8", &[]).status(), 422);
    assert!(bytes(&there, "/vod/broken.mp4") == film[..100_000]);
    // Folders.
    for path in ["/vod/", "/vod/movie", "/vod/movie/", "/vod/a%20b/"] {
        let names = [&there, &here].map(|server| {
            let listed = ask(server, path, &[("Accept", "application/json")]);
            assert_eq!(listed.status(), 200, "{path}");
            let text = listed.text().to_owned();
            let part = |key: &str| -> Vec<String> {
                let parts = text.split(key).skip(1);
                parts.map(|rest| rest.split([',', '}']).next().unwrap().to_owned()).collect()
            };
            (part("\"name\":"), part("\"type\":"), part("\"size\":"))
        });
        assert_eq!(names[0], names[1], "{path}");
    }
    let index = String::from_utf8(bytes(&there, "/vod/film.mp4/index.m3u8")).unwrap();
    assert!(addresses(&index).iter().any(|address| address.starts_with("t0/")), "{index}");
}

#[test]
fn a_title_by_rtmp_has_the_same_frames_from_the_store_and_from_a_folder() {
    let (store, folder) = (Store::start(), tempfile::tempdir().unwrap());
    let cache = tempfile::tempdir().unwrap();
    store.put_clips(&["film.mp4"]);
    fs::write(folder.path().join("film.mp4"), clip("film.mp4")).unwrap();
    let (there, here) = (origin(&store.proxy(), cache.path(), ""), local(folder.path()));
    let frames = [&there, &here].map(|server| access_unit_hashes(server.rtmp_url("vod/film.mp4")));
    assert!(frames[0].len() > 100 && frames[0] == frames[1]);
}

#[test]
fn a_title_by_push_has_the_same_messages_from_the_store_and_from_a_folder() {
    let (store, folder) = (Store::start(), tempfile::tempdir().unwrap());
    let cache = tempfile::tempdir().unwrap();
    store.put_clips(&["film.mp4"]);
    fs::write(folder.path().join("film.mp4"), clip("film.mp4")).unwrap();
    let (there, here) = (origin(&store.proxy(), cache.path(), ""), local(folder.path()));
    let messages = [&there, &here].map(|server| {
        let mut client = Client::connect(server.http, "/vod/film.mp4/push");
        let mut messages = Vec::new();
        loop {
            let frame = client.next().expect("the server says that it ends");
            match frame.opcode {
                2 => messages.push(frame.payload),
                8 => break,
                _ => {}
            }
        }
        messages
    });
    assert!(messages[0].len() > 4 && messages[0] == messages[1]);
}

#[test]
fn the_address_of_a_folder_serves_as_its_path_does() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("film.mp4"), clip("film.mp4")).unwrap();
    let address = format!("file://{}", folder.path().display());
    let (there, here) = (local(Path::new(&address)), local(folder.path()));
    assert!(resources(&there, "film.mp4") == resources(&here, "film.mp4"));
    for path in ["/vod/film.mp4", "/vod/"] {
        assert!(bytes(&there, path) == bytes(&here, path), "{path}");
    }
    assert_eq!(
        ask(&there, "/vod/../film.mp4", &[]).status(),
        ask(&here, "/vod/../film.mp4", &[]).status()
    );
    assert_eq!(ask(&there, "/vod/none.mp4", &[]).status(), 404);
}
