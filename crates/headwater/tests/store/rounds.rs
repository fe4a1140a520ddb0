//! What a cold answer costs: how many requests to the store, and how many of them one after another. The proxy lets the
//! requests pass round by round.

use testkit::push::Client;
use testkit::{Server, noise};

use crate::proxy::Proxy;
use crate::support::{Store, ask, clip, origin};

/// Nothing is fetched ahead or asked again while a test runs, however slow the machine is.
const OPTIONS: &str = "read_ahead = \"0B\"\nrevalidate = \"1h\"\ntimeout = \"60s\"\n";

/// The film with an index that is longer by so many bytes. Its samples are where they were only if the index is behind
/// them.
fn with_long_index(name: &str, by: usize) -> Vec<u8> {
    let mut film = clip(name);
    let at = film.windows(4).position(|kind| kind == b"moov").unwrap() - 4;
    let length = u32::from_be_bytes(film[at..at + 4].try_into().unwrap());
    let all = u32::try_from(by).unwrap();
    film[at..at + 4].copy_from_slice(&(length + all).to_be_bytes());
    let end = at + length as usize;
    let unused = [&all.to_be_bytes(), &b"free"[..], &vec![0; by - 8]].concat();
    film.splice(end..end, unused);
    film
}

/// Asks for something, and returns the answer. It needs these rounds of requests to the store, each with so many at the
/// same time, and no others.
fn asks<T: Send>(proxy: &Proxy, rounds: &[usize], ask: impl FnOnce() -> T + Send) -> T {
    proxy.take();
    let answer = std::thread::scope(|scope| {
        let asking = scope.spawn(ask);
        rounds.iter().for_each(|requests| proxy.round(*requests));
        asking.join().unwrap()
    });
    assert_eq!(proxy.asked().len(), rounds.iter().sum::<usize>(), "{:?}", proxy.asked());
    answer
}

fn started() -> (Store, Proxy, Server, tempfile::TempDir) {
    let (store, cache) = (Store::start(), tempfile::tempdir().unwrap());
    let proxy = store.proxy();
    let server = origin(&proxy, cache.path(), OPTIONS);
    proxy.step();
    (store, proxy, server, cache)
}

#[test]
fn a_cold_plain_file_needs_one_request_unless_only_its_length_tells_where_the_bytes_are() {
    let (store, proxy, server, _cache) = started();
    let all = noise(3, 10 << 20);
    for (number, (range, status, wanted, rounds)) in [
        ("bytes=0-99", 206, &all[..100], &[1][..]),
        ("bytes=5000000-5000099", 206, &all[5_000_000..5_000_100], &[1]),
        // These bytes are in two blocks.
        ("bytes=2097000-2097199", 206, &all[2_097_000..2_097_200], &[1, 1]),
        ("bytes=-7", 206, &all[all.len() - 7..], &[1, 1]),
        // It is not as long.
        ("bytes=99000000-", 416, &[], &[1, 1]),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("{number}.bin");
        store.put(&name, &all);
        let path = format!("/vod/{name}");
        let answer = asks(&proxy, rounds, || ask(&server, &path, &[("Range", range)]));
        assert_eq!(answer.status(), status, "{range}");
        assert!(status == 416 || answer.body == wanted, "{range}");
    }
    store.put("small.bin", &all[..1000]);
    let small = asks(&proxy, &[1], || ask(&server, "/vod/small.bin", &[]));
    assert!(small.body == all[..1000]);
    store.put("empty.bin", b"");
    let empty = asks(&proxy, &[1, 1], || ask(&server, "/vod/empty.bin", &[]));
    assert_eq!((empty.status(), empty.body.len()), (200, 0));
    // There is no such file, and no such folder.
    assert_eq!(asks(&proxy, &[1, 1], || ask(&server, "/vod/none.bin", &[])).status(), 404);
    // Whether the file has changed is known without its bytes.
    store.put("tag.bin", &all);
    let condition = [("If-None-Match", "*")];
    assert_eq!(asks(&proxy, &[1], || ask(&server, "/vod/tag.bin", &condition)).status(), 304);
}

#[test]
fn the_first_byte_of_a_cold_title_needs_two_rounds_at_most() {
    let (store, proxy, server, _cache) = started();
    let vtt = b"WEBVTT\n\n00:01.000 --> 00:02.000\nOne\n";
    let put = |name: &str| {
        for (ending, film) in [
            ("front", clip("minute.mp4")),
            ("long", with_long_index("minute.mp4", 3 << 20)),
            ("end", clip("late-index.mp4")),
            ("long-end", with_long_index("late-index.mp4", 3 << 20)),
        ] {
            store.put(&format!("{name}-{ending}.mp4"), &film);
        }
    };
    for (name, resource) in
        [("hls", "index.m3u8"), ("media", "v0/media.m3u8"), ("dash", "manifest.mpd")]
    {
        put(name);
        for (film, rounds) in [
            // The file's first block, and which subtitles there are.
            ("front", &[2][..]),
            // The other blocks with the index.
            ("long", &[2, 1]),
            ("end", &[2, 1]),
            ("long-end", &[2, 2]),
        ] {
            let path = format!("/vod/{name}-{film}.mp4/{resource}");
            let answer = asks(&proxy, rounds, || ask(&server, &path, &[]));
            assert_eq!(answer.status(), 200, "{path}");
        }
    }
    // Segments after the playlist: the first is in the first block.
    for (segment, rounds) in [("0", &[][..]), ("9", &[1])] {
        let path = format!("/vod/media-front.mp4/v0/{segment}.m4s");
        assert_eq!(asks(&proxy, rounds, || ask(&server, &path, &[])).status(), 200, "{path}");
    }
    // Segments of titles of which the origin knows nothing yet. Only the index tells where a later one is.
    put("cold");
    put("later");
    for (title, segment, rounds) in [
        ("cold-front", 0, &[2][..]),
        ("cold-end", 0, &[2, 1]),
        ("later-front", 9, &[2, 1]),
        ("later-end", 2, &[2, 1, 1]),
    ] {
        let path = format!("/vod/{title}.mp4/v0/{segment}.m4s");
        assert_eq!(asks(&proxy, rounds, || ask(&server, &path, &[])).status(), 200, "{path}");
    }
    // Subtitles come with the index behind the media.
    store.put("text.mp4", &clip("late-index.mp4"));
    store.put("text.en.vtt", vtt);
    store.put("text.de.vtt", vtt);
    let index = asks(&proxy, &[2, 3], || ask(&server, "/vod/text.mp4/index.m3u8", &[]));
    assert!(index.text().contains("t1/"), "{index:?}");
    // A folder with a ladder: its names, all heads, and all indexes behind the media.
    for (film, rounds) in [("minute.mp4", &[1, 2][..]), ("late-index.mp4", &[1, 2, 2])] {
        for name in ["high.mp4", "low.mp4"] {
            store.put(&format!("ladder-{}/{name}", rounds.len()), &clip(film));
        }
        let path = format!("/vod/ladder-{}/index.m3u8", rounds.len());
        assert_eq!(asks(&proxy, rounds, || ask(&server, &path, &[])).status(), 200, "{path}");
    }
    let none = asks(&proxy, &[2], || ask(&server, "/vod/none.mp4/index.m3u8", &[]));
    assert_eq!(none.status(), 404);
    // The first message by push. Then the origin goes on to the next block.
    put("push");
    for (film, rounds) in [("front", &[2][..]), ("end", &[2, 1])] {
        let path = format!("/vod/push-{film}.mp4/push");
        asks(&proxy, rounds, || Client::connect(server.http, &path).next().unwrap());
    }
}

#[test]
fn a_warm_title_needs_one_round_after_a_restart() {
    let (store, cache) = (Store::start(), tempfile::tempdir().unwrap());
    store.put_clips(&["late-index.mp4"]);
    let proxy = store.proxy();
    let asked = |server: &Server| ask(server, "/vod/late-index.mp4/index.m3u8", &[]).status();
    let server = origin(&proxy, cache.path(), OPTIONS);
    assert_eq!(asked(&server), 200);
    server.stop(crate::support::LIMIT);
    proxy.until_left();
    let server = origin(&proxy, cache.path(), OPTIONS);
    proxy.step();
    assert_eq!(asks(&proxy, &[2], || asked(&server)), 200);
    assert!(!proxy.asked().iter().any(|asked| asked.is_for_bytes()), "{:?}", proxy.asked());
}
