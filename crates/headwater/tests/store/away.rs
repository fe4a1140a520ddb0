//! A store that is away, or slow.

use testkit::{eventually, noise};

use crate::support::{LIMIT, Store, ask, bytes, clip, origin, resources};

/// Bytes of a block.
const BLOCK: usize = 2 << 20;

const OPTIONS: &str = "revalidate = \"200ms\"\ntimeout = \"1s\"\nread_ahead = \"0B\"\n";

/// The same for an origin that fills its cache: a busy machine holds up the store.
const PATIENT: &str = "revalidate = \"200ms\"\ntimeout = \"60s\"\nread_ahead = \"0B\"\n";

#[test]
fn what_is_here_is_served_on_when_the_store_is_away() {
    let store = Store::start();
    let cache = tempfile::tempdir().unwrap();
    let film = clip("film.mp4");
    store.put("movie/high.mp4", &film);
    store.put("movie/not-yet-watched.bin", b"x");
    store.put("film.mp4", &film);
    store.put("film.en.vtt", b"WEBVTT\n\n00:01.000 --> 00:02.000\nOne\n");
    store.put("long.bin", &noise(6, 8 * BLOCK));
    let proxy = store.proxy();
    let server = origin(&proxy, cache.path(), PATIENT);
    let titles = ["film.mp4", "movie"];
    let all = titles.map(|title| resources(&server, title));
    let begins = |server: &testkit::Server| {
        assert_eq!(ask(server, "/vod/long.bin", &[("Range", "bytes=0-9")]).status(), 206);
    };
    begins(&server);
    server.stop(LIMIT);
    let server = origin(&proxy, cache.path(), OPTIONS);
    assert!(titles.map(|title| resources(&server, title)) == all);
    begins(&server);
    proxy.close();
    assert!(titles.map(|title| resources(&server, title)) == all);
    let not_here = |server: &testkit::Server| {
        for path in [
            "/vod/other.mp4",
            "/vod/other.mp4/index.m3u8",
            "/vod/other/",
            "/vod/movie/not-yet-watched.bin",
        ] {
            let answer = ask(server, path, &[]);
            assert_eq!(answer.status(), 503, "{path}");
            assert!(answer.header("retry-after").is_some(), "{path}");
        }
        begins(server);
        let rest = ask(server, "/vod/long.bin", &[("Range", "bytes=14000000-14000009")]);
        assert_eq!((rest.status(), rest.header("retry-after")), (503, Some("5")));
    };
    not_here(&server);
    let lines = server.whole_log();
    let count = lines.matches("the store does not answer as it should").count();
    assert!((1..=8).contains(&count), "{lines}");
    // A process that begins while the store is away knows what it left in the cache.
    server.stop(LIMIT);
    let server = origin(&proxy, cache.path(), OPTIONS);
    assert!(titles.map(|title| resources(&server, title)) == all);
    not_here(&server);
    proxy.open();
    eventually(LIMIT, "the store is back", || {
        ask(&server, "/vod/long.bin", &[("Range", "bytes=14000000-14000009")]).status() == 206
    });
    assert!(titles.map(|title| resources(&server, title)) == all);
}

#[test]
fn a_deleted_object_does_not_come_back_when_the_store_goes_away() {
    let store = Store::start();
    let cache = tempfile::tempdir().unwrap();
    store.put("a.bin", b"x");
    let proxy = store.proxy();
    let server = origin(&proxy, cache.path(), OPTIONS);
    eventually(LIMIT, "the object is there", || ask(&server, "/vod/a.bin", &[]).status() == 200);
    store.delete("a.bin");
    eventually(LIMIT, "the object is gone", || ask(&server, "/vod/a.bin", &[]).status() == 404);
    proxy.close();
    let failed = || server.metric("headwater_store_errors_total");
    let before = failed();
    eventually(LIMIT, "the store was asked again", || {
        assert_eq!(ask(&server, "/vod/a.bin", &[]).status(), 404);
        failed() > before
    });
    assert_eq!(ask(&server, "/vod/a.bin", &[]).status(), 404);
}

#[test]
fn who_waits_for_a_slow_store_disturbs_nobody() {
    let store = Store::start();
    let cache = tempfile::tempdir().unwrap();
    store.put("film.mp4", &clip("film.mp4"));
    let cold: Vec<_> = (0..40).map(|number| format!("cold{number}.mp4")).collect();
    for name in &cold {
        store.put(name, &clip("short.mp4"));
    }
    let proxy = store.proxy();
    let server = origin(&proxy, cache.path(), "revalidate = \"300ms\"\ntimeout = \"60s\"\n");
    let all = resources(&server, "film.mp4");
    proxy.hold();
    std::thread::scope(|scope| {
        let waiting: Vec<_> = cold
            .iter()
            .map(|name| {
                let path = format!("/vod/{name}/index.m3u8");
                let server = &server;
                scope.spawn(move || bytes(server, &path))
            })
            .collect();
        eventually(LIMIT, "the viewers wait", || {
            server.metric("headwater_store_misses_total") >= 10
        });
        // The title is looked up again and again meanwhile.
        for _ in 0..3 {
            assert!(resources(&server, "film.mp4") == all);
        }
        assert!(waiting.iter().all(|viewer| !viewer.is_finished()));
        proxy.open();
        waiting.into_iter().for_each(|viewer| drop(viewer.join().unwrap()));
    });
}
