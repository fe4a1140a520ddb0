//! What the cache saves, and what it costs. The proxy counts requests.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use testkit::{Server, eventually, noise};

use crate::proxy::Asked;
use crate::support::{LIMIT, Store, ask, bytes, clip, origin, refusal, resources};

/// Bytes of a block.
const BLOCK: usize = 2 << 20;

fn gets(asked: &[Asked]) -> usize {
    asked.iter().filter(|asked| asked.is_for_bytes()).count()
}

/// Bytes that the files of a folder have on the disk.
fn on_disk(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).unwrap().filter_map(|entry| entry.ok()?.metadata().ok());
    files.map(|metadata| metadata.blocks() * 512).sum()
}

/// Bytes of blocks that the cache counts.
fn counted(server: &Server) -> u64 {
    server.metric("headwater_store_cache_bytes")
}

#[test]
fn many_viewers_of_a_block_make_one_request() {
    let store = Store::start();
    let cache = tempfile::tempdir().unwrap();
    let all = noise(4, BLOCK);
    store.put("a.bin", &all);
    let proxy = store.proxy();
    let server = origin(&proxy, cache.path(), "timeout = \"60s\"\nrevalidate = \"1h\"\n");
    assert_eq!(ask(&server, "/vod/a.bin", &[("If-Match", "\"x\"")]).status(), 412);
    proxy.hold();
    std::thread::scope(|scope| {
        let viewers: Vec<_> =
            (0..30).map(|_| scope.spawn(|| bytes(&server, "/vod/a.bin"))).collect();
        eventually(LIMIT, "the viewers wait", || {
            server.metric("headwater_store_misses_total") == 30
        });
        proxy.open();
        assert!(viewers.into_iter().all(|viewer| viewer.join().unwrap() == all));
    });
    assert_eq!(gets(&proxy.take()), 1);
}

#[test]
fn the_blocks_after_those_of_a_viewer_are_fetched_ahead_and_no_others() {
    let store = Store::start();
    let cache = tempfile::tempdir().unwrap();
    store.put("a.bin", &noise(7, 12 * BLOCK));
    store.put("minute.mp4", &clip("minute.mp4"));
    let proxy = store.proxy();
    let options = "read_ahead = \"4MiB\"\nrevalidate = \"1h\"\ntimeout = \"60s\"\n";
    let server = origin(&proxy, cache.path(), options);
    let fetched = |blocks: &[usize]| {
        let range = |block: &usize| format!("bytes={}-{}", block * BLOCK, (block + 1) * BLOCK - 1);
        let wanted: Vec<_> = blocks.iter().map(|block| Some(range(block))).collect();
        let ranges = || {
            let mut asked = proxy.asked();
            asked.retain(Asked::is_for_bytes);
            asked.sort_by_key(|asked| {
                asked.range.as_ref().map(|range| (range.len(), range.clone()))
            });
            asked.into_iter().map(|asked| asked.range).collect::<Vec<_>>()
        };
        eventually(LIMIT, "the blocks are fetched", || ranges().len() >= wanted.len());
        assert_eq!(ranges(), wanted);
    };
    let range = |range| assert_eq!(ask(&server, "/vod/a.bin", &[("Range", range)]).status(), 206);
    // Who asks for as little as this only looks what a file is.
    range("bytes=0-99");
    fetched(&[0]);
    // All within 4 MiB after what was sent.
    range("bytes=0-99999");
    fetched(&[0, 1, 2]);
    range("bytes=100000-199999");
    fetched(&[0, 1, 2]);
    range("bytes=2097152-2197151");
    fetched(&[0, 1, 2, 3]);
    // At another place, only what follows there.
    range("bytes=16777216-16877215");
    fetched(&[0, 1, 2, 3, 8, 9, 10]);
    // Up to the end of the object.
    range("bytes=23068672-23168671");
    fetched(&[0, 1, 2, 3, 8, 9, 10, 11]);
    // What is fetched ahead is asked for in order. So a wrong block would have been asked for before the last one.
    range("bytes=12582912-12583011");
    fetched(&[0, 1, 2, 3, 6, 8, 9, 10, 11]);
    proxy.take();
    // The index is for the player, and is at the front. The segment after it is what a viewer is sent.
    bytes(&server, "/vod/minute.mp4/v0/media.m3u8");
    fetched(&[0]);
    bytes(&server, "/vod/minute.mp4/v0/0.m4s");
    fetched(&[0, 1, 2]);
}

#[test]
fn a_restart_with_a_warm_cache_asks_for_no_bytes() {
    let store = Store::start();
    let cache = tempfile::tempdir().unwrap();
    store.put("film.mp4", &clip("film.mp4"));
    let proxy = store.proxy();
    let before = origin(&proxy, cache.path(), "");
    let all = resources(&before, "film.mp4");
    let whole = bytes(&before, "/vod/film.mp4");
    let end = before.stop(LIMIT);
    assert!(end.status.success(), "{end:?}");
    assert!(gets(&proxy.take()) >= 2);
    let after = origin(&proxy, cache.path(), "");
    assert!(resources(&after, "film.mp4") == all);
    assert!(bytes(&after, "/vod/film.mp4") == whole);
    assert_eq!(gets(&proxy.asked()), 0, "{:?}", proxy.asked());
    // Another process must not use the folder at the same time.
    let options = format!("cache = \"{}\"\n", cache.path().display());
    let refused = refusal("s3://films/vod", &options);
    assert!(refused.contains("in use by another process"), "{refused}");
}

#[test]
fn an_address_that_cannot_be_meant_is_refused() {
    for (root, options, says) in [
        ("s3://", "", "s3://: names no bucket"),
        ("s3://films/a//b", "", "s3://films/a//b: the prefix is not the beginning of a key"),
        (
            "s3://films",
            "endpoint = \"http://127.0.0.1:1\"\n",
            "http://127.0.0.1:1 is not encrypted, and vod.store.allow_http is false",
        ),
        ("gs://films", "cache = \"/proc/none\"\n", "the cache /proc/none"),
    ] {
        let refused = refusal(root, options);
        assert!(refused.contains(says), "{refused}");
    }
}

#[test]
fn what_is_damaged_on_the_disk_is_fetched_again() {
    let store = Store::start();
    let cache = tempfile::tempdir().unwrap();
    let all = noise(5, 3 * BLOCK + 5);
    store.put("a.bin", &all);
    store.put("b.bin", &all);
    let proxy = store.proxy();
    let before = origin(&proxy, cache.path(), "");
    assert!(bytes(&before, "/vod/a.bin") == all && bytes(&before, "/vod/b.bin") == all);
    before.stop(LIMIT);
    // A byte of each copy changes, and one of the two indexes is torn.
    let files = |ending: &str| {
        let files = fs::read_dir(cache.path()).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| path.extension().is_some_and(|e| e == ending)).collect::<Vec<_>>()
    };
    assert_eq!((files("data").len(), files("index").len()), (2, 2));
    for data in files("data") {
        let file = fs::File::options().write(true).open(data).unwrap();
        file.write_all_at(&[!all[BLOCK + 7]], BLOCK as u64 + 7).unwrap();
    }
    let torn = fs::File::options().write(true).open(&files("index")[0]).unwrap();
    torn.set_len(30).unwrap();
    proxy.take();
    let after = origin(&proxy, cache.path(), "");
    assert_eq!(files("data").len(), 1, "a copy without an index is removed");
    assert!(bytes(&after, "/vod/a.bin") == all && bytes(&after, "/vod/b.bin") == all);
    // All blocks of one, and one of the other.
    assert_eq!(gets(&proxy.take()), 4 + 1);
    assert_eq!(after.metric("headwater_store_damaged_total"), 1);
}

#[test]
fn the_cache_is_bounded() {
    let store = Store::start();
    let cache = tempfile::tempdir().unwrap();
    const LIMIT_OF_CACHE: u64 = 64 << 20;
    let all: Vec<_> = (0..4).map(|seed| noise(10 + seed, 12 * BLOCK)).collect();
    for (number, bytes) in all.iter().enumerate() {
        store.put(&format!("{number}.bin"), bytes);
    }
    let proxy = store.proxy();
    let server = origin(&proxy, cache.path(), "cache_size = \"64MiB\"\n");
    for (number, wanted) in all.iter().enumerate() {
        assert!(bytes(&server, &format!("/vod/{number}.bin")) == *wanted, "{number}");
        assert!(counted(&server) <= LIMIT_OF_CACHE);
        assert!(on_disk(cache.path()) <= LIMIT_OF_CACHE + (1 << 20));
    }
    assert!(server.metric("headwater_store_evictions_total") >= 16);
    // The last is here, and the first is not.
    proxy.take();
    assert!(bytes(&server, "/vod/3.bin") == all[3]);
    assert_eq!(gets(&proxy.take()), 0);
    assert!(bytes(&server, "/vod/0.bin") == all[0]);
    assert!(gets(&proxy.take()) > 0);
}
