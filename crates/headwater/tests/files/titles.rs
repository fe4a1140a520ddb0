//! What operators are told of the titles on disk.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Command;

use serde_json::{Value, json};
use testkit::http::Response;
use testkit::{Program, clip, demo_clip, http};

use crate::support::{LIMIT, Origin};

const API: &str = "/api/v1/titles";

#[track_caller]
fn ask(origin: &Origin, what: &str) -> Response {
    http::get(origin.operators(), &format!("{API}{what}"))
}

#[track_caller]
fn told(origin: &Origin, what: &str) -> Value {
    let answer = ask(origin, what);
    assert_eq!(answer.status(), 200, "{what}: {}", answer.text());
    serde_json::from_slice(&answer.body).unwrap()
}

/// The paths of a list.
fn paths(list: &Value) -> Vec<&str> {
    let titles = list["titles"].as_array().unwrap().iter();
    titles.map(|title| title["path"].as_str().unwrap()).collect()
}

#[test]
fn folders_are_listed_with_what_is_known_of_their_titles() {
    let origin = Origin::start();
    let film = fs::read(demo_clip()).unwrap();
    for name in ["a film.mp4", "films/high.mp4", "films/low.mp4", "films/notes.txt"] {
        origin.put(name, &film);
    }
    origin.put("broken.mp4", b"no film");
    let list = told(&origin, "");
    assert_eq!(paths(&list), ["vod/a film.mp4", "vod/broken.mp4", "vod/films"]);
    assert_eq!(
        (&list["folder"], &list["is_title"], &list["next"]),
        (&json!("vod"), &json!(false), &Value::Null)
    );
    let first = &list["titles"][0];
    assert_eq!((&first["kind"], &first["size"]), (&json!("file"), &json!(film.len())));
    assert_eq!((&first["viewers"], &first["opened"]), (&json!(0), &Value::Null));
    assert!(first["modified"].as_str().unwrap().ends_with('Z'), "{first}");
    let list = told(&origin, "?folder=vod%2Ffilms&after=high.mp4");
    assert_eq!((paths(&list), &list["is_title"]), (vec!["vod/films/low.mp4"], &json!(true)));

    // To look at a keyframe is not to watch.
    let title = told(&origin, "/vod/a%20film.mp4");
    let opened = &title["opened"];
    assert_eq!(opened["duration_seconds"], 16.0, "{opened}");
    let kinds: Vec<_> = opened["tracks"].as_array().unwrap().iter().map(|it| &it["kind"]).collect();
    assert_eq!(kinds, ["video", "audio"]);
    assert_eq!(opened["poster"], true);
    let poster = |path: &str| http::get(origin.operators(), &format!("/api/v1/posters/vod/{path}"));
    let picture = poster("a%20film.mp4");
    assert_eq!((picture.status(), picture.header("Content-Type")), (200, Some("video/mp4")));
    let file = origin.server.folder().join("poster.mp4");
    fs::write(&file, &picture.body).unwrap();
    let mut ffprobe = Command::new("ffprobe");
    ffprobe.args([
        "-v",
        "error",
        "-count_frames",
        "-show_entries",
        "stream=width,nb_read_frames",
        "-of",
        "csv=p=0",
    ]);
    let seen = Program::spawn(ffprobe.arg(&file)).wait(LIMIT);
    assert_eq!(String::from_utf8_lossy(&seen.stdout).trim(), "1280,1");
    let list = told(&origin, "");
    assert_eq!(list["titles"][0], title, "the list has what was opened");
    assert_eq!(title["viewers"], 0);
    let broken = told(&origin, "/vod/broken.mp4");
    assert!(broken["opened"]["refusal"].is_string(), "{broken}");
    assert_eq!(broken["opened"]["poster"], false);
    assert_eq!(poster("broken.mp4").status(), 404);
    let folder = told(&origin, "/vod/films");
    assert_eq!(
        (&folder["kind"], &folder["opened"]["duration_seconds"]),
        (&json!("folder"), &json!(16.0))
    );

    // Those who watch count for the folders above, too.
    assert_eq!(origin.get("/vod/films/high.mp4/index.m3u8").status(), 200);
    assert_eq!(told(&origin, "")["titles"][2]["viewers"], 1);
    assert_eq!(told(&origin, "/vod/films")["viewers"], 1);
    assert_eq!(told(&origin, "?folder=vod/films")["titles"][0]["viewers"], 1);

    // A file that is replaced is another title.
    origin.put("a film.mp4", &fs::read(clip("mp4/sound.mp4")).unwrap());
    assert_eq!(told(&origin, "")["titles"][0]["opened"], Value::Null);
    assert_eq!(told(&origin, "/vod/a%20film.mp4")["opened"]["poster"], false);
    assert_eq!(poster("a%20film.mp4").status(), 404);
}

#[test]
fn nothing_else_of_the_machine_is_told() {
    let origin = Origin::start();
    origin.put("folder/a.mp4", b"x");
    origin.put("deep/folder/a.mp4", b"x");
    for name in [".hidden.mp4", "tab\tname.mp4", "line\nname.mp4", "back\\slash.mp4"] {
        origin.put(&format!("folder/{name}"), b"x");
    }
    let strange = origin.vod("folder").join(OsStr::from_bytes(b"not \xff unicode.mp4"));
    fs::write(strange, "x").unwrap();
    fs::create_dir(origin.vod("outside")).unwrap();
    fs::rename(origin.vod("outside"), origin.server.folder().join("outside")).unwrap();
    for (link, to) in [
        ("out", "../../outside"),
        ("absolute.mp4", "/etc/hostname"),
        ("above", "../.."),
        ("loop.mp4", "loop.mp4"),
        ("dangling.mp4", "none.mp4"),
        ("in.mp4", "../deep/folder/a.mp4"),
        ("within", "../deep"),
    ] {
        symlink(to, origin.vod("folder").join(link)).unwrap();
    }
    let list = told(&origin, "?folder=vod/folder");
    assert_eq!(paths(&list), ["vod/folder/a.mp4", "vod/folder/in.mp4", "vod/folder/within"]);
    assert_eq!(paths(&told(&origin, "?folder=vod/folder/within")), ["vod/folder/within/folder"]);
    let long = format!("vod/{}", "a".repeat(300));
    let deep = format!("vod{}", "/folder".repeat(800));
    for path in [
        "",
        "/",
        "vod/",
        "vod//folder",
        "vod/..",
        "vod/../vod",
        "vod/folder/..",
        "vod/%2e%2e",
        "vod/..%2foutside",
        "vod%2f..%2f..%2fetc",
        "vod/%252e%252e",
        "vod/a%00",
        "vod/folder/a.mp4/b",
        "vod/none",
        "vod/folder/out",
        "vod/folder/above",
        "vod/folder/above/outside",
        "vod/folder/absolute.mp4",
        "vod/folder/loop.mp4",
        "/etc",
        "live",
        &long,
        &deep,
    ] {
        let answer = ask(&origin, &format!("?folder={path}"));
        assert_eq!(answer.status(), 404, "{path}: {}", answer.text());
        assert_eq!(answer.header("Content-Type"), Some("application/problem+json"), "{path}");
        let answer = ask(&origin, &format!("/{path}"));
        assert_eq!(answer.status(), 404, "{path}: {}", answer.text());
        let poster = http::get(origin.operators(), &format!("/api/v1/posters/{path}"));
        assert_eq!(poster.status(), 404, "{path}: {}", poster.text());
    }
    assert_eq!(ask(&origin, "?folder=vod&folder=vod").status(), 400);
    // It is a file, and no folder.
    assert_eq!(ask(&origin, "?folder=vod/folder/a.mp4").status(), 404);
    // The root need not exist.
    fs::rename(origin.vod(""), origin.server.folder().join("away")).unwrap();
    assert_eq!(told(&origin, "")["titles"], json!([]));
}

#[test]
fn a_folder_that_cannot_be_read_is_told_as_one_that_is_not_there() {
    let origin = Origin::start();
    origin.put("closed/a.mp4", b"x");
    let closed = origin.vod("closed");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    // The administrator of a machine reads all.
    let expected = if fs::read_dir(&closed).is_ok() { 200 } else { 404 };
    let answer = ask(&origin, "?folder=vod/closed");
    assert_eq!(answer.status(), expected, "{}", answer.text());
    assert_eq!(paths(&told(&origin, "")), ["vod/closed"]);
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn folders_may_have_very_many_files() {
    let origin = Origin::start();
    let many = origin.vod("many");
    fs::create_dir_all(&many).unwrap();
    // Segments of another program are no titles. With the folder itself and that above, it has 100,000 names.
    for number in 0..97_498 {
        fs::write(many.join(format!("{number:05}.ts")), "").unwrap();
    }
    for number in 0..2_500 {
        fs::write(many.join(format!("x{number:04}.mp4")), "").unwrap();
    }
    let (mut found, mut answers, mut after) = (Vec::new(), 0, String::new());
    loop {
        let list = told(&origin, &format!("?folder=vod/many&after={after}"));
        found.extend(paths(&list).into_iter().map(str::to_owned));
        assert!(list["titles"].as_array().unwrap().len() <= 1000);
        answers += 1;
        let Some(next) = list["next"].as_str() else { break };
        next.clone_into(&mut after);
    }
    let all: Vec<_> = (0..2_500).map(|number| format!("vod/many/x{number:04}.mp4")).collect();
    assert!(found == all, "{} titles", found.len());
    assert_eq!(answers, 12);
    fs::write(many.join("one more"), "").unwrap();
    let answer = ask(&origin, "?folder=vod/many");
    assert_eq!(answer.status(), 422);
    assert!(answer.text().contains("the folder has too many names to list"), "{}", answer.text());
}
