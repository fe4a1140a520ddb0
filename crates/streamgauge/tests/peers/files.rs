//! Files of peers: their keys, and errors that are refused.

use std::path::Path;
use std::process::Command;

use streamgauge::lab::peer::{Install, Job, Peer, VARIABLES};

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
    assert_eq!(peer.start.seconds, 60);
    assert!(peer.serves(Job::File).is_some());
    assert!(peer.serves(Job::Pull).is_none());
}

#[test]
fn a_peer_based_on_another_adds_to_its_files() {
    let scene = Scene::new();
    let variant = |base: &str, path: &str| {
        format!(
            "title = \"More\"\nabout = \"Another.\"\nbased_on = \"{base}\"\n[[append]]\npath = \"{path}\"\n\
             text = \"more {{cpus}}\"\n"
        )
    };
    std::fs::write(scene.path("first.toml"), GOOD).unwrap();
    std::fs::write(scene.path("second.toml"), variant("first", "etc/mine.conf")).unwrap();
    let peer = scene.peer(&variant("second", "etc/mine.conf")).unwrap();
    assert_eq!((&*peer.name, &*peer.title, &*peer.about), ("mine", "More", "Another."));
    let text = peer.files[0].text.fill(|name| Some(name.to_uppercase())).unwrap();
    assert_eq!(text, "listen { HOST:HTTP }more CPUSmore CPUS");

    for (text, expected) in [
        (variant("absent", "etc/mine.conf"), "mine.toml: based_on: "),
        (variant("../first", "etc/mine.conf"), "based_on: \"../first\": not the name of a file"),
        (variant("mine", "etc/mine.conf"), "more than 4 peers are based on each other"),
        (variant("first", "no.conf"), "append[0].path: first has no file no.conf"),
        (
            variant("first", "etc/mine.conf") + "[stop]\nsignal = \"INT\"\n",
            "mine.toml:7: stop: unknown key, expected one of `title`, `about`, `based_on`, `append`",
        ),
    ] {
        let error = format!("{:#}", scene.peer(&text).expect_err(expected));
        assert!(error.contains(expected), "{error}");
    }
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
        (
            "[version]",
            "[version]\nbelow = \"v2\"",
            "mine.toml:4: version.below: `v2` is not the number of a version, like 1.20 or 2",
        ),
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
        for live in [
            Job::RtmpLive,
            Job::FlvLive,
            Job::HlsLive,
            Job::LlhlsLive,
            Job::DashLive,
            Job::WhepLive,
        ] {
            let takes = |peer: &Peer| peer.publish.rtmp.is_some();
            let published = takes(&peer) || peer.origin.as_deref().is_some_and(takes);
            assert!(peer.serves(live).is_none() || published, "{}: {live}", peer.name);
        }
    }
}

/// A value for each variable that a server's texts can have.
fn value(name: &str) -> Option<String> {
    Some(match name {
        "host" => "127.0.0.1".to_owned(),
        "http" | "rtmp" | "webrtc" | "origin" => "20001".to_owned(),
        "cpus" => "2".to_owned(),
        "path" | "name" => "fish".to_owned(),
        folder => format!("/{folder}"),
    })
}

/// Each configuration that a peer of the lab writes has all its values, and is of its language.
/// That of some servers no other test sees, because they are not there.
#[test]
fn every_configuration_of_the_lab_is_whole() {
    let mut read = Vec::new();
    for peer in Peer::read_all(&lab()).unwrap() {
        for file in &peer.files {
            let path: &Path = file.path.as_ref();
            let at = format!("{}: {}", peer.name, path.display());
            let text = file.text.fill(value).expect(&at);
            for variable in VARIABLES {
                assert!(!text.contains(&format!("{{{variable}}}")), "{at}: {variable}");
            }
            match path.extension().and_then(|ending| ending.to_str()) {
                Some("json") => drop(serde_json::from_str::<serde_json::Value>(&text).expect(&at)),
                Some("toml") => drop(text.parse::<toml::Table>().expect(&at)),
                Some("xml") => drop(roxmltree::Document::parse(&text).expect(&at)),
                Some("sh") => {
                    let status = Command::new("sh").args(["-n", "-c", &text]).status().unwrap();
                    assert!(status.success(), "{at}");
                }
                Some("conf") if peer.name == "srs" => assert_blocks(&text, &at),
                _ => continue,
            }
            read.push(peer.name.clone());
        }
    }
    for peer in ["mistserver", "node-media-server", "ovenmediaengine", "srs", "gstreamer-hls"] {
        assert!(read.iter().any(|name| name == peer), "{peer} was not checked");
    }
}

/// Checks that a text consists of directives with `;` at their end, and of blocks in braces.
#[track_caller]
fn assert_blocks(text: &str, at: &str) {
    let mut depth = 0;
    for line in text.lines().map(|line| line.split('#').next().unwrap_or_default().trim()) {
        match line.chars().last() {
            Some('{') => depth += 1,
            Some('}') => depth -= 1,
            Some(last) => assert_eq!(last, ';', "{at}: {line}"),
            None => {}
        }
        assert!(depth >= 0, "{at}: a brace too many: {line}");
    }
    assert_eq!(depth, 0, "{at}: a block without its end");
}

/// Whatever a peer needs that `--install` does not bring, the file says how to get it.
#[test]
fn every_peer_of_the_lab_can_be_got() {
    for peer in Peer::read_all(&lab()).unwrap() {
        let Install { debian, npm, pypi, cargo, make, hint } = &peer.install;
        let packages = [debian, npm, pypi, cargo].iter().any(|names| !names.is_empty());
        let comes_with_the_machine = ["node", "python"].contains(&&*peer.name);
        assert!(
            packages || make.is_some() || hint.is_some() || comes_with_the_machine,
            "{}",
            peer.name
        );
    }
}
