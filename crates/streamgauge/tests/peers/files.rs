//! Files of peers: their keys, and errors that are refused.

use streamgauge::lab::peer::{Job, Peer};

use crate::{Scene, lab};

const GOOD: &str = r#"title = "Mine"
about = "A server."
[version]
command = ["mine", "--version"]
[[file]]
path = "etc/mine.conf"
text = '''listen { {host}:{http} }'''
[start]
command = ["mine", "{work}/etc/mine.conf"]
environment = { MINE_THREADS = "{cpus}" }
ready = { tcp = "{http}" }
[serves]
file = "http://{host}:{http}/{path}"
[publish]
rtmp = "rtmp://{host}:{rtmp}/live/{name}"
"#;

#[test]
fn a_whole_file_is_read() {
    let peer = Scene::new().peer(GOOD).unwrap();
    assert_eq!(peer.name, "mine");
    assert_eq!(peer.start.seconds, 10);
    assert!(peer.serves(Job::File).is_some());
    assert!(peer.serves(Job::Pull).is_none());
}

#[test]
fn an_origin_is_a_peer_beside_it_that_has_none_itself() {
    let scene = Scene::new();
    let behind =
        |origin: &str| GOOD.replacen("[version]", &format!("origin = \"{origin}\"\n[version]"), 1);
    std::fs::write(scene.path("first.toml"), GOOD).unwrap();
    std::fs::write(scene.path("second.toml"), behind("first")).unwrap();
    let peer = scene.peer(&behind("first")).unwrap();
    assert_eq!(peer.origin.unwrap().name, "first");
    for (origin, expected) in [
        ("absent", "absent.toml"),
        ("../first", "not the name of a file beside this one"),
        ("second", "second has an origin itself"),
    ] {
        let error = format!("{:#}", scene.peer(&behind(origin)).expect_err(origin));
        assert!(error.contains("mine.toml: origin: ") && error.contains(expected), "{error}");
    }
}

#[test]
fn errors_name_file_line_and_key() {
    let scene = Scene::new();
    for (good, bad, expected) in [
        ("title", "titel", "mine.toml:1: titel: unknown key, expected one of `title`"),
        ("title = \"Mine\"\n", "", "mine.toml:1: missing key `title`"),
        ("[start]", "[starts]", "mine.toml:8: starts: unknown key"),
        ("ready = ", "redy = ", "mine.toml:11: start.redy: unknown key, expected one of `command`"),
        ("ready = { tcp = \"{http}\" }\n", "", "mine.toml:8: start: missing key `ready`"),
        ("tcp", "udp", "mine.toml:11: start.ready.udp: unknown word `udp`, expected one of `http`"),
        (
            "{work}/etc",
            "{wrok}/etc",
            "mine.toml:9: start.command[1]: unknown variable {wrok}, expected",
        ),
        (
            "{host}:{http} }",
            "{hots}:{http} }",
            "mine.toml:7: file[0].text: unknown variable {hots}",
        ),
        ("/{path}", "/{file}", "mine.toml:13: serves.file: unknown variable {file}"),
        (
            "{cpus}",
            "{cores}",
            "mine.toml:10: start.environment.MINE_THREADS: unknown variable {cores}",
        ),
        (
            "file = \"http",
            "files = \"http",
            "mine.toml:13: serves.files: unknown word `files`, expected one of `file`",
        ),
        (
            "etc/mine.conf\"",
            "../mine.conf\"",
            "mine.toml:6: file[0].path: not a path below the work folder",
        ),
        ("\"etc/mine.conf\"", "\"/etc/mine.conf\"", "mine.toml:6: file[0].path: not a path below"),
        ("[\"mine\", \"--version\"]", "[]", "mine.toml:4: version.command: no program"),
        ("[\"mine\", \"--version\"]", "\"mine\"", "mine.toml:4: version.command: invalid type"),
        ("rtmp = \"", "rtmps = \"", "mine.toml:15: publish.rtmps: unknown key, expected `rtmp`"),
        (
            "[serves]\n",
            "[stop]\nsignal = \"FOO\"\n[serves]\n",
            "mine.toml:13: stop.signal: unknown word `FOO`",
        ),
        ("[publish]", "[publish", "mine.toml:14: "),
    ] {
        let text = GOOD.replacen(good, bad, 1);
        assert_ne!(text, GOOD, "{good}");
        let error = format!("{:#}", scene.peer(&text).expect_err(bad));
        assert!(error.contains(expected), "{error}\nshould have been: {expected}");
    }
}

#[test]
fn every_section_that_must_be_there_is_asked_for() {
    let scene = Scene::new();
    for section in ["version", "start", "serves"] {
        let mut text = String::new();
        let mut skipped = false;
        for line in GOOD.lines() {
            if line.starts_with('[') {
                skipped = line == format!("[{section}]");
            }
            if !skipped {
                text += line;
                text += "\n";
            }
        }
        let error = format!("{:#}", scene.peer(&text).expect_err(section));
        assert!(error.contains(&format!("mine.toml:1: missing key `{section}`")), "{error}");
    }
}

#[test]
fn every_peer_of_the_lab_is_read() {
    for peer in Peer::read_all(&lab()).unwrap() {
        assert!(!peer.title.is_empty() && peer.about.ends_with('.'), "{}", peer.name);
        assert!(!peer.serves.is_empty(), "{}: serves nothing", peer.name);
        for live in [Job::RtmpLive, Job::FlvLive, Job::HlsLive, Job::LlhlsLive, Job::DashLive] {
            let takes = |peer: &Peer| peer.publish.rtmp.is_some();
            let published = takes(&peer) || peer.origin.as_deref().is_some_and(takes);
            assert!(peer.serves(live).is_none() || published, "{}: {live}", peer.name);
        }
    }
}
