//! Paths that are not files: folders, links, pipes.

use std::fs::File;
use std::os::unix::fs::symlink;
use std::time::{Duration, UNIX_EPOCH};

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use testkit::noise;

use crate::support::Origin;

#[test]
fn only_files_are_served() {
    let origin = Origin::start();
    origin.put("folder/file.bin", b"x");
    let pipe = origin.vod("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    let mut client = origin.client();
    for path in [
        "/vod/",
        "/vod/folder",
        "/vod/folder/",
        "/vod/pipe",
        "/vod/none",
        "/vod/none/none",
        "/vod/folder/file.bin/",
        "/vod/folder/file.bin/more",
    ] {
        let answer = client.get(path, &[]);
        assert_eq!(answer.status(), 404, "{path}");
        assert!(answer.body.len() < 200);
    }
    let long = format!("/vod/{}", "a".repeat(300));
    assert_eq!(client.get(&long, &[]).status(), 404);
    assert_eq!(client.get("/vod//folder///file.bin", &[]).text(), "x");
    assert_eq!(client.get("/vod/folder/file.bin?t=5", &[]).text(), "x");
}

/// A tree of segments from another program is served as it is.
#[test]
fn a_tree_of_segments() {
    let origin = Origin::start();
    for (name, kind) in [
        ("title/index.m3u8", "application/vnd.apple.mpegurl"),
        ("title/manifest.mpd", "application/dash+xml"),
        ("title/high/init.mp4", "video/mp4"),
        ("title/high/1.m4s", "video/iso.segment"),
        ("title/high/1.ts", "video/mp2t"),
        ("title/high/en.vtt", "text/vtt; charset=utf-8"),
        ("title/high/secret.key", "application/octet-stream"),
        ("title/poster.webp", "image/webp"),
        ("title/Ünïcode näme.MP4", "video/mp4"),
    ] {
        let bytes = noise(name.len() as u64, 1000);
        origin.put(name, &bytes);
        let path = format!("/vod/{}", name.replace(' ', "%20"));
        let answer = origin.client().get(&path, &[]);
        assert_eq!((answer.status(), answer.header("Content-Type")), (200, Some(kind)), "{name}");
        assert!(answer.body == bytes, "{name}");
    }
}

#[test]
fn links() {
    let origin = Origin::start();
    origin.put("folder/file.bin", b"inside");
    std::fs::write(origin.server.folder().join("outside.bin"), b"outside").unwrap();
    symlink("folder/file.bin", origin.vod("in")).unwrap();
    symlink("../folder/file.bin", origin.vod("folder/up")).unwrap();
    symlink("../outside.bin", origin.vod("out")).unwrap();
    symlink("/etc/hostname", origin.vod("absolute")).unwrap();
    symlink("..", origin.vod("above")).unwrap();
    symlink("loop", origin.vod("loop")).unwrap();
    // Absolute links may lead to the root's own files, and to nothing else.
    let root = origin.vod("").canonicalize().unwrap();
    std::fs::create_dir(root.with_extension("beside")).unwrap();
    std::fs::write(root.with_extension("beside").join("file.bin"), b"outside").unwrap();
    for (to, link) in [
        (root.join("folder/file.bin"), "whole"),
        (root.join("folder"), "whole-folder"),
        (root.join("none.bin"), "dangling"),
        (root.with_extension("beside"), "beside"),
    ] {
        symlink(to, origin.vod(link)).unwrap();
    }
    let mut client = origin.client();
    for path in ["/vod/in", "/vod/folder/up", "/vod/whole", "/vod/whole-folder/file.bin"] {
        let answer = client.get(path, &[]);
        assert_eq!((answer.status(), answer.text()), (200, "inside"), "{path}");
    }
    let mut status = |path: &str| client.get(path, &[]).status();
    assert_eq!(status("/vod/dangling"), 404);
    for path in
        ["/vod/out", "/vod/absolute", "/vod/above/outside.bin", "/vod/beside/file.bin", "/vod/loop"]
    {
        assert_eq!(status(path), 404, "{path}");
    }
    assert_eq!(origin.server.whole_log().matches("leads out of the VOD root").count(), 4);
}

#[test]
fn listings() {
    let origin = Origin::with("[vod]\nlisting = true\n");
    origin.put("b.mp4", &[0; 1234]);
    origin.put("a <&>.vtt", b"");
    origin.put("folder/inner.mp4", b"x");
    // No request can name these.
    for name in [".hidden", "tab\tname.mp4", "line\nname.mp4", "del\x7fname.mp4", "back\\slash.mp4"]
    {
        origin.put(name, b"x");
    }
    symlink("../../outside", origin.vod("folder/out")).unwrap();
    symlink("../b.mp4", origin.vod("folder/in.mp4")).unwrap();
    let mut client = origin.client();
    let json = [("Accept", "application/json")];
    let names = |text: &str| -> Vec<(String, String, Option<u64>)> {
        let entries: Vec<serde_json::Value> = serde_json::from_str(text).unwrap();
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        entries
            .iter()
            .map(|entry| (text(&entry["name"]), text(&entry["type"]), entry["size"].as_u64()))
            .collect()
    };
    let entry = |name: &str, kind: &str, size| (name.to_owned(), kind.to_owned(), size);
    let answer = client.get("/vod/", &json);
    assert_eq!(answer.header("Content-Type"), Some("application/json"));
    assert_eq!(answer.header("Vary"), Some("Accept"));
    assert_eq!(
        names(answer.text()),
        [
            entry("folder", "directory", None),
            entry("a <&>.vtt", "file", Some(0)),
            entry("b.mp4", "file", Some(1234)),
        ]
    );
    for path in ["/vod/folder", "/vod/folder/"] {
        let answer = client.get(path, &json);
        // The list leaves out the link that leads out of the folder.
        assert_eq!(
            names(answer.text()),
            [entry("in.mp4", "file", Some(1234)), entry("inner.mp4", "file", Some(1))]
        );
    }
    // Every link of the page works.
    for folder in ["/vod/", "/vod/folder/"] {
        let page = client.get(folder, &[]);
        assert_eq!(page.header("Content-Type"), Some("text/html; charset=utf-8"));
        let links: Vec<_> = page.text().split("href=\"").skip(1).collect();
        assert_eq!(links.len(), 3, "{}", page.text());
        for link in links {
            let link = link.split('"').next().unwrap();
            assert_eq!(client.get(link, &[]).status(), 200, "{link}");
        }
    }
    assert!(client.get("/vod/", &[]).text().contains("a &lt;&amp;&gt;.vtt"));
    // Files are still served as files, and a missing folder is not found.
    assert_eq!(client.get("/vod/b.mp4", &[]).body.len(), 1234);
    assert_eq!(client.get("/vod/none/", &[]).status(), 404);
}

/// A list that is cut short would look complete.
#[test]
fn a_folder_with_too_many_names_says_so() {
    let origin = Origin::with("[vod]\nlisting = true\n");
    origin.put("many/0.bin", b"x");
    let name = |number: u32| origin.vod(&format!("many/{number}.bin"));
    (1..10_000).for_each(|number| drop(File::create(name(number)).unwrap()));
    let mut client = origin.client();
    let json = [("Accept", "application/json")];
    assert_eq!(client.get("/vod/many/", &json).text().matches("\"name\"").count(), 10_000);
    File::create(name(10_000)).unwrap();
    for accept in [&json[..], &[]] {
        let answer = client.get("/vod/many/", accept);
        assert_eq!(answer.status(), 403);
        assert_eq!(answer.text(), "the folder has more than 10000 names, too many to list\n");
    }
    // The files in it are still served.
    assert_eq!(client.get("/vod/many/0.bin", &[]).text(), "x");
}

/// Times that HTTP dates cannot express: before 1970, after 9999.
#[test]
fn files_out_of_time() {
    let origin = Origin::with("[vod]\nlisting = true");
    for (name, time) in [
        ("old.bin", UNIX_EPOCH - Duration::from_secs(100)),
        ("new.bin", UNIX_EPOCH + Duration::from_secs(300_000_000_000)),
    ] {
        let path = origin.put(name, b"x");
        File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
        let answer = origin.client().get(&format!("/vod/{name}"), &[]);
        assert_eq!((answer.status(), answer.header("Last-Modified")), (200, None), "{name}");
    }
    let answer = origin.client().get("/vod/", &[("Accept", "application/json")]);
    assert_eq!(answer.status(), 200, "{}", answer.text());
    assert!(answer.text().contains("old.bin") && answer.text().contains("new.bin"));
}

/// A server without descriptors must not tell anybody that the file does not exist.
#[test]
fn a_server_in_need_does_not_deny_a_file() {
    // Each event loop needs descriptors when it begins, which may be after the server is ready. Here are two: one for
    // operators, and one for everybody else.
    let origin = Origin::with("[control]\nlisten = \"127.0.0.1:0\"\n");
    origin.put("a.bin", b"x");
    assert_eq!(testkit::http::get(origin.server.operators(), "/healthz").status(), 200);
    let mut client = origin.client();
    assert_eq!(client.get("/vod/none", &[]).status(), 404);
    let server = Pid::from_raw(origin.server.id().cast_signed());
    // The server inherited our limits.
    let few = Rlimit { current: Some(1), maximum: getrlimit(Resource::Nofile).maximum };
    let before = prlimit(server, Resource::Nofile, few).unwrap();
    for _ in 0..3 {
        let answer = client.get("/vod/a.bin", &[]);
        assert_eq!(answer.status(), 503, "{}", answer.text());
        assert_eq!(answer.header("Cache-Control"), Some("no-store"));
        assert!(answer.header("Retry-After").is_some());
    }
    prlimit(server, Resource::Nofile, before).unwrap();
    assert_eq!(client.get("/vod/a.bin", &[]).status(), 200);
    assert_eq!(origin.server.whole_log().matches("file not opened").count(), 1);
}
