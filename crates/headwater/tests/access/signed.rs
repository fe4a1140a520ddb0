//! Signed paths.

use std::process::Command;

use testkit::Program;
use testkit::http::Client;

use crate::support::{
    BINARY, LIMIT, UPGRADE, aiortc, ask, play, publish, server, status, wait_for,
};

/// What `headwater sign` prints.
fn sign(folder: &tempfile::TempDir, arguments: &[&str]) -> String {
    let mut command = Command::new(BINARY);
    command.arg("sign").args(arguments).arg("--key").arg(folder.path().join("key"));
    let line = String::from_utf8(Program::output(&mut command, LIMIT)).unwrap();
    line.strip_suffix('\n').unwrap().to_owned()
}

#[test]
fn whoever_has_a_signed_path_plays() {
    let (folder, server) = server(
        "[access]\nsigning_key = \"KEY\"\nmax_failures = 0\n\
         [[access.rule]]\nactions = [\"publish\"]\nkey = \"in\"\n",
    );
    let _publishers = [publish(&server, "live/a/cam?key=in"), publish(&server, "live/b?key=in")];
    let signed = sign(&folder, &["live/a/cam"]);
    let (prefix, path) = signed.split_at(signed.find("/live/").unwrap());
    assert_eq!(path, "/live/a/cam");
    // The stream is signed, whichever of its resources was named.
    for path in ["/live/a/cam/index.m3u8", "live/a/cam/v0/media.m3u8", "live/a/cam/whep"] {
        assert_eq!(sign(&folder, &[path]), format!("{prefix}/{}", path.trim_start_matches('/')));
    }
    wait_for(&server, &format!("{prefix}/live/a/cam/index.m3u8"));
    for path in ["index.m3u8", "manifest.mpd", "live.mp4", "live.flv"] {
        let played = play(&server.url(&format!("{prefix}/live/a/cam/{path}")), &[]);
        assert!(played.status.success(), "{path}: {}", played.stderr);
    }
    let seen = aiortc("see", &server.url(&format!("{prefix}/live/a/cam/whep"))).wait(LIMIT);
    assert!(seen.status.success(), "{}", seen.stderr);
    let mut client = Client::connect(server.http, LIMIT).unwrap();
    client.send("GET", &format!("{prefix}/live/a/cam/push"), &UPGRADE, b"").unwrap();
    assert_eq!(client.begin().unwrap().0.status, 101);

    // A player may tell of itself where it may play.
    let beacon = |path: &str| ask(&server, "POST", path, &[], b"sid=\"one\",sf=h").status();
    assert_eq!(beacon(&format!("{prefix}/live/a/cam/cmcd")), 204);
    assert_eq!((beacon("/live/a/cam/cmcd"), beacon(&format!("{prefix}/live/b/cmcd"))), (401, 403));

    // One playlist serves all: it names everything from where it is, and shared caches may keep it.
    let playlist = ask(&server, "GET", &format!("{prefix}/live/a/cam/v0/media.m3u8"), &[], b"");
    let lines = playlist.text().lines();
    assert!(lines.clone().any(|line| line.ends_with(".m4s")));
    assert!(lines.clone().all(|line| !line.contains("/s/") && !line.starts_with('/')));
    assert!(playlist.header("cache-control").unwrap().starts_with("public"));

    let everything = sign(&folder, &["live/**"]);
    let everything = everything.strip_suffix("/live/**").unwrap();
    let elsewhere = sign(&folder, &["--address", "192.0.2.1", "live/a/cam"]);
    let here = sign(&folder, &["--address", "127.0.0.1", "live/a/cam"]);
    let changed = format!("{}x{}", &prefix[..20], &prefix[21..]);
    for (path, expected) in [
        (format!("{everything}/live/b/index.m3u8"), 200),
        (format!("{here}/index.m3u8"), 200),
        (format!("{prefix}/live/a/cam/whip"), 405),
        ("/live/a/cam/index.m3u8".to_owned(), 401),
        (format!("{prefix}/live/b/index.m3u8"), 403),
        (format!("{prefix}/live/a/cam/../../b/index.m3u8"), 400),
        (format!("{prefix}/live/a%2Fcam/index.m3u8"), 400),
        (format!("{elsewhere}/index.m3u8"), 403),
        (format!("{changed}/live/a/cam/index.m3u8"), 403),
        ("/s/x/live/a/cam/index.m3u8".to_owned(), 403),
        (format!("/s/{}/live/a/cam/index.m3u8", "x".repeat(4000)), 403),
        (format!("{prefix}{prefix}/live/a/cam/index.m3u8"), 404),
    ] {
        let found = status(&server, &path, &[]);
        let is_refused = matches!((found, expected), (404, 400));
        assert!(found == expected || is_refused, "{path}: {found}");
    }
    assert_eq!(
        ask(&server, "POST", &format!("{prefix}/live/a/cam/whip"), &[], b"v=0").status(),
        403
    );
}

#[test]
fn a_signed_path_ends() {
    let (folder, server) = server("[access]\nsigning_key = \"KEY\"\nmax_failures = 0\n");
    let _publisher = publish(&server, "live/cam");
    let signed = sign(&folder, &["live/cam"]);
    wait_for(&server, &format!("{signed}/index.m3u8"));
    let short = sign(&folder, &["--expires", "8s", "live/cam"]);
    let mut client = Client::connect(server.http, LIMIT).unwrap();
    client.send("GET", &format!("{short}/live.flv"), &[], b"").unwrap();
    let (head, mut body) = client.begin().unwrap();
    // A machine that stood still for so long begins too late.
    if head.status == 200 {
        let mut all = Vec::new();
        let ended = std::io::Read::read_to_end(&mut body, &mut all);
        assert!(ended.is_err() && !all.is_empty(), "it is broken off: {ended:?}");
        server.log_line(LIMIT, |line| line.contains("the permission has expired"));
    }
    server.get_until(&format!("{short}/index.m3u8"), LIMIT, |answer| answer.status() == 403);
    assert_eq!(status(&server, &format!("{signed}/index.m3u8"), &[]), 200);
}

#[test]
fn paths_that_cannot_be_signed() {
    let (folder, _server) = server("");
    for arguments in [
        &["live"][..],
        &["live/"],
        &["http://127.0.0.1/live/cam"],
        &["live/../cam"],
        &["live/cam", "--expires", "soon"],
        &["live/cam", "--address", "here"],
    ] {
        let mut command = Command::new(BINARY);
        command.arg("sign").args(arguments).arg("--key").arg(folder.path().join("key"));
        let ended = Program::spawn(&mut command).wait(LIMIT);
        assert_eq!(ended.status.code(), Some(2), "{arguments:?}: {}", ended.stderr);
    }
    assert!(sign(&folder, &["vod/my film.mp4"]).ends_with("/vod/my%20film.mp4"));
}
