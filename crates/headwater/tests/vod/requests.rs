//! Names, versions, caching, ranges; refused requests and their answers.

use std::fs;
use std::path::Path;

use testkit::eventually;
use testkit::http::{Client, get_with};

use crate::support::{LIMIT, bytes, connect, media, read_hls, server};

const IMMUTABLE: &str = "public, max-age=31536000, immutable";
const REVALIDATE: &str = "public, max-age=0, must-revalidate";

fn without_version(path: &str) -> &str {
    path.split('?').next().unwrap()
}

#[test]
fn versioned_names_may_be_cached_for_ever() {
    let server = server(&testkit::media_dir());
    let mut client = connect(&server);
    let title = "mp4/film.mp4";
    let hls = read_hls(&mut client, title);
    let video = &hls.video[0];
    for path in [video.header.as_ref().unwrap(), &video.segments[1].0] {
        let named = client.get(path, &[]);
        assert_eq!((named.status(), named.header("cache-control")), (200, Some(IMMUTABLE)));
        let etag = named.header("etag").unwrap().to_owned();
        let plain = client.get(without_version(path), &[]);
        assert_eq!((plain.status(), plain.header("cache-control")), (200, Some(REVALIDATE)));
        assert!(plain.body == named.body && plain.header("etag") == Some(&etag), "{path}");

        let unchanged = get_with(server.http, path, &[("If-None-Match", &etag)]);
        assert_eq!((unchanged.status(), unchanged.body.len()), (304, 0));
        let other = get_with(server.http, path, &[("If-Match", "\"other\"")]);
        assert_eq!(other.status(), 412);
        let head = client.ask("HEAD", path, &[], b"");
        let length = named.body.len().to_string();
        assert_eq!((head.status(), head.header("content-length")), (200, Some(&*length)));

        // Across the bytes that the server makes and those of the file, and from one sample to the
        // next.
        let end = named.body.len() - 1;
        for (first, last) in [(0, 0), (0, end), (1, end.min(3000)), (end / 2, end), (end, end)] {
            let range = format!("bytes={first}-{last}");
            let part = get_with(server.http, path, &[("Range", &range)]);
            assert_eq!(part.status(), 206, "{path} {range}");
            assert!(part.body == named.body[first..=last], "{path} {range}");
        }
        let beyond = get_with(server.http, path, &[("Range", &format!("bytes={}-", end + 1))]);
        assert_eq!(beyond.status(), 416);
    }
    for manifest in ["index.m3u8", "manifest.mpd", "v0/media.m3u8", "v0/iframes.m3u8"] {
        let path = format!("/vod/{title}/{manifest}");
        let answer = client.get(&path, &[]);
        assert_eq!((answer.status(), answer.header("cache-control")), (200, Some(REVALIDATE)));
        let etag = answer.header("etag").unwrap();
        let again = get_with(server.http, &path, &[("If-None-Match", etag)]);
        assert_eq!(again.status(), 304, "{path}");
    }
    let types = [
        ("index.m3u8", "application/vnd.apple.mpegurl"),
        ("manifest.mpd", "application/dash+xml"),
        ("v0/init.mp4", "video/mp4"),
        ("v0/0.m4s", "video/iso.segment"),
        ("a0/init.mp4", "audio/mp4"),
        ("a0/0.m4s", "audio/iso.segment"),
    ];
    for (name, content_type) in types {
        let answer = client.get(&format!("/vod/{title}/{name}"), &[]);
        assert_eq!(answer.header("content-type"), Some(content_type), "{name}");
        assert_eq!(answer.header("access-control-allow-origin"), Some("*"), "{name}");
    }
}

#[test]
fn absent_tracks_and_segments_are_not_found() {
    let server = server(&testkit::media_dir());
    let mut client = connect(&server);
    let title = "/vod/mp4/film.mp4";
    let hls = read_hls(&mut client, "mp4/film.mp4");
    let count = hls.video[0].segments.len();
    let version = hls.video[0].segments[0].0.split("?v=").nth(1).unwrap();
    let beyond = format!("v0/{count}.m4s");
    let named = format!("v0/{count}.m4s?v={version}");
    for name in [
        &beyond,
        &named,
        "v0/18446744073709551615.m4s",
        "v0/18446744073709551616.m4s",
        "v0/4294967296.m4s",
        "v0/-1.m4s",
        "v0/00.m4s",
        "v0/x.m4s",
        "v0/.m4s",
        "v0/0.0.m4s",
        "v0/t0.m4s",
        "v0/i.999.m4s",
        "a0/i.0.m4s",
        "a0/iframes.m3u8",
        "v1/init.mp4",
        "a1/media.m3u8",
        "t0/media.m3u8",
        "t0/0.vtt",
        "t0/all.vtt",
        "v0/0.vtt",
        "v0/",
        "v0",
        "x/y/z.m4s",
        "",
        "v0/init.mp4/index.m3u8",
        "index.m3u8/index.m3u8",
        "index.m3u8/v0/init.mp4",
        "index.m3u8/media.m3u8",
        "manifest.mpd/media.m3u8",
        // Other versions than the present one.
        "v0/0.m4s?v=0",
        "v0/0.m4s?v=",
        "v0/0.m4s?v=0000000000000000",
        "v0/init.mp4?v=x",
        "v0/media.m3u8?v=0",
        "v0/iframes.m3u8?v=0",
    ] {
        let answer = client.get(&format!("{title}/{name}"), &[]);
        assert_eq!(answer.status(), 404, "{name}: {answer:?}");
        assert!(!answer.header("cache-control").unwrap_or("").contains("immutable"), "{name}");
    }
    for path in [
        "/vod/none.mp4/index.m3u8",
        "/vod/none/index.m3u8",
        "/vod/index.m3u8",
        "/vod/v0/init.mp4",
        "/vod/sound.aac/manifest.mpd/index.m3u8",
        "/vod//index.m3u8",
        "/vod/bbb/none.mp4/v0/0.m4s",
    ] {
        assert_eq!(client.get(path, &[]).status(), 404, "{path}");
    }
}

#[test]
fn nothing_outside_the_root_is_a_title() {
    let folder = tempfile::tempdir().unwrap();
    let (root, outside) = (folder.path().join("root"), folder.path().join("outside"));
    fs::create_dir(&root).unwrap();
    fs::create_dir(&outside).unwrap();
    let clip = media("mp4/surround-60.mp4");
    fs::copy(&clip, outside.join("secret.mp4")).unwrap();
    fs::copy(&clip, root.join("movie.mp4")).unwrap();
    std::os::unix::fs::symlink(outside.join("secret.mp4"), root.join("link.mp4")).unwrap();
    std::os::unix::fs::symlink(&outside, root.join("folder")).unwrap();
    std::os::unix::fs::symlink("movie.mp4", root.join("inside.mp4")).unwrap();
    let server = server(&root);
    let mut client = connect(&server);
    assert_eq!(client.get("/vod/movie.mp4/index.m3u8", &[]).status(), 200);
    assert_eq!(client.get("/vod/inside.mp4/index.m3u8", &[]).status(), 200, "stays inside");
    for name in ["index.m3u8", "manifest.mpd", "v0/init.mp4", "v0/0.m4s", "v0/0.m4s?v=1"] {
        for title in ["link.mp4", "folder/secret.mp4", "folder"] {
            let path = format!("/vod/{title}/{name}");
            assert_eq!(client.get(&path, &[]).status(), 404, "{path}");
        }
    }
    let outside = "leads out of the VOD root";
    server.log_line(LIMIT, |line| line.contains(outside) && line.contains("link.mp4"));
    for path in [
        "/vod/../outside/secret.mp4/index.m3u8",
        "/vod/x/../../outside/secret.mp4/index.m3u8",
        "/vod/%2e%2e/outside/secret.mp4/index.m3u8",
        "/vod/..%2foutside%2fsecret.mp4/index.m3u8",
        "/vod/movie.mp4%2findex.m3u8",
        "/vod/movie.mp4/v0%2f0.m4s",
        "/vod/movie.mp4%00/index.m3u8",
        "/vod/movie.mp4/..%5cindex.m3u8",
    ] {
        // The server refuses the request after its head, and closes the connection.
        let answer = server.get(path);
        assert!([400, 404].contains(&answer.status()), "{path}: {answer:?}");
    }
}

/// All resources of one version, by name.
struct Snapshot(Vec<(String, Vec<u8>)>);

impl Snapshot {
    fn of(client: &mut Client, title: &str) -> Self {
        let hls = read_hls(client, title);
        let paths = hls.media().flat_map(|track| {
            track.header.iter().chain(track.segments.iter().map(|(path, _)| path)).cloned()
        });
        let paths: Vec<String> = paths.collect();
        Self(paths.into_iter().map(|path| (path.clone(), bytes(client, &path).to_vec())).collect())
    }

    /// Asserts that these names now give the same bytes as before, or nothing. Returns how many
    /// give nothing.
    fn holds(&self, client: &mut Client) -> usize {
        let mut gone = 0;
        for (path, then) in &self.0 {
            let now = client.get(path, &[]);
            match now.status() {
                404 => gone += 1,
                200 => assert!(now.body == *then, "{path}: other bytes under the same name"),
                other => panic!("{path}: {other}"),
            }
        }
        gone
    }
}

#[test]
fn a_file_that_is_replaced_is_another_version() {
    let folder = tempfile::tempdir().unwrap();
    let movie = folder.path().join("movie.mp4");
    fs::copy(media("mp4/film.mp4"), &movie).unwrap();
    let server = server(folder.path());
    let mut client = connect(&server);
    let first = Snapshot::of(&mut client, "movie.mp4");
    assert_eq!(first.holds(&mut client), 0);

    // The file is replaced by another between the playlist and the segments.
    let other = folder.path().join("other");
    fs::copy(media("mp4/late-index.mp4"), &other).unwrap();
    fs::rename(&other, &movie).unwrap();
    eventually(LIMIT, "names of the old version lead nowhere", || {
        first.holds(&mut client) == first.0.len()
    });
    let second = Snapshot::of(&mut client, "movie.mp4");
    assert_eq!(second.holds(&mut client), 0);

    // The file is overwritten. From then on no bytes of it are sent as the old version.
    let clip = fs::read(media("mp4/surround-60.mp4")).unwrap();
    fs::write(&movie, &clip).unwrap();
    assert_eq!(second.holds(&mut client), second.0.len());
    let third = Snapshot::of(&mut client, "movie.mp4");
    assert_eq!(third.holds(&mut client), 0);

    fs::remove_file(&movie).unwrap();
    eventually(LIMIT, "names of a file that is gone lead nowhere", || {
        third.holds(&mut client) == third.0.len()
    });
    assert_eq!(client.get("/vod/movie.mp4/index.m3u8", &[]).status(), 404);
}

#[test]
fn a_file_that_is_cut_off_is_refused_with_the_reason_and_stays_downloadable() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
    // moov first, and a part of the media missing; moov last, and so missing; not an MP4; empty.
    let first = fs::read(media("mp4/film.mp4")).unwrap();
    let last = fs::read(media("mp4/surround.mp4")).unwrap();
    write("half.mp4", &first[..first.len() / 2]);
    write("headless.mp4", &last[..last.len() / 2]);
    write("text.mp4", b"this is no film, and never was");
    write("empty.mp4", b"");
    let server = server(folder.path());
    let mut client = connect(&server);
    for (name, reason) in [
        ("half.mp4", "cut off"),
        ("headless.mp4", "cut off"),
        ("text.mp4", ""),
        ("empty.mp4", "moov"),
    ] {
        for resource in ["index.m3u8", "manifest.mpd", "v0/media.m3u8", "v0/init.mp4", "v0/0.m4s"] {
            let path = format!("/vod/{name}/{resource}");
            let answer = client.get(&path, &[]);
            assert_eq!(answer.status(), 422, "{path}: {answer:?}");
            assert!(answer.text().contains(name) && answer.text().contains(reason), "{answer:?}");
            let cache = answer.header("cache-control").unwrap();
            assert!(cache.contains("no-cache"), "{path}: {cache}");
        }
        let file = fs::read(folder.path().join(name)).unwrap();
        assert!(bytes(&mut client, &format!("/vod/{name}")) == file, "{name}");
        let log = server.whole_log();
        let said = log.lines().filter(|line| line.contains("not packaged") && line.contains(name));
        assert_eq!(said.count(), 1, "once a version: {log}");
    }
    // Once the file is whole, it is served.
    write("half.mp4", &first);
    assert!(!read_hls(&mut client, "half.mp4").video.is_empty());
}

#[test]
fn an_already_segmented_title_is_served_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let title = folder.path().join("movie");
    fs::create_dir_all(title.join("v0")).unwrap();
    fs::copy(media("mp4/surround-60.mp4"), title.join("movie.mp4")).unwrap();
    for (name, content) in [("index.m3u8", "#EXTM3U\n"), ("v0/0.m4s", "mine"), ("v0/all.vtt", "x")]
    {
        fs::write(title.join(name), content).unwrap();
    }
    let server = server(folder.path());
    let mut client = connect(&server);
    assert_eq!(client.get("/vod/movie/index.m3u8", &[]).body, b"#EXTM3U\n");
    assert_eq!(client.get("/vod/movie/v0/0.m4s", &[]).body, b"mine");
    assert_eq!(client.get("/vod/movie/v0/0.m4s?v=1", &[]).body, b"mine");
    assert_eq!(client.get("/vod/movie/v0/all.vtt", &[]).body, b"x");
    // Missing resources are made.
    let manifest = client.get("/vod/movie/manifest.mpd", &[]);
    assert_eq!(manifest.header("content-type"), Some("application/dash+xml"), "{manifest:?}");
    assert_eq!(client.get("/vod/movie/v0/init.mp4", &[]).header("content-type"), Some("video/mp4"));
}

#[test]
fn a_track_that_is_left_out_is_named_in_the_log() {
    let server = server(&testkit::media_dir());
    let mut client = connect(&server);
    // The video can be packaged. The codec of the audio cannot.
    let title = "mp4/mp3.mp4";
    for resource in ["index.m3u8", "manifest.mpd", "v0/media.m3u8", "index.m3u8"] {
        assert_eq!(client.get(&format!("/vod/{title}/{resource}"), &[]).status(), 200);
    }
    let log = server.whole_log();
    let said = log.lines().filter(|line| line.contains("track left out") && line.contains(title));
    assert_eq!(said.count(), 1, "once a version: {log}");
}

/// The metric's value for a title and delivery.
fn viewers(server: &testkit::Server, title: &str, delivery: &str) -> Option<u64> {
    let metrics = server.metrics();
    let label = format!("headwater_viewers{{stream=\"vod/{title}\",delivery=\"{delivery}\"}} ");
    let line = metrics.text().lines().find_map(|line| line.strip_prefix(&label).map(str::to_owned));
    line.map(|value| value.parse().unwrap())
}

#[test]
fn viewers_are_told_apart_and_counted() {
    let server = server(&testkit::media_dir());
    let title = "mp4/surround-60.mp4";
    let ask = |agent: &str, name: &str| {
        let path = format!("/vod/{title}/{name}");
        assert_eq!(get_with(server.http, &path, &[("User-Agent", agent)]).status(), 200);
    };
    ask("one", "index.m3u8");
    ask("one", "v0/media.m3u8");
    ask("two", "index.m3u8");
    ask("three", "manifest.mpd");
    ask("three", "v0/0.m4s");
    ask("four", "v0/0.m4s");
    assert_eq!(viewers(&server, title, "hls"), Some(2));
    assert_eq!(viewers(&server, title, "dash"), Some(1));
}

#[test]
fn the_player_page_is_there_for_titles() {
    let server = server(Path::new("/nonexistent"));
    let answer = server.get("/watch/vod/films/movie.mp4?via=dash");
    assert_eq!(answer.header("content-type").map(|kind| kind.contains("html")), Some(true));
}
