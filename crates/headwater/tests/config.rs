//! The configuration file: what it documents, what is refused, and which line is named.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use headwater::config::{Bitrate, Config, Error, Rung, Size, Time};

/// The reference file, `config/headwater.toml`.
const REFERENCE: &str = include_str!("../../../config/headwater.toml");

fn parse(text: &str) -> Result<Config, Error> {
    Config::parse(text, Path::new("headwater.toml"))
}

fn refusal(text: &str) -> String {
    parse(text).expect_err(text).to_string()
}

/// Collects the dotted path of every leaf.
fn keys(table: &toml::Table, prefix: &str, into: &mut BTreeSet<String>) {
    for (name, value) in table {
        let path = format!("{prefix}{name}");
        match value {
            toml::Value::Table(inner) => keys(inner, &format!("{path}."), into),
            _ => {
                into.insert(path);
            }
        }
    }
}

#[test]
fn the_reference_file_gives_the_defaults() {
    assert_eq!(parse(REFERENCE).unwrap(), Config::default());
}

#[test]
fn the_file_for_kubernetes_is_accepted() {
    let config = parse(include_str!("../../../deploy/kubernetes/headwater.toml")).unwrap();
    assert_eq!((config.cluster.nats.len(), config.cluster.replicas), (3, 3));
}

#[test]
fn the_reference_file_gives_every_option() {
    let mut documented = BTreeSet::new();
    keys(&REFERENCE.parse().unwrap(), "", &mut documented);
    let mut there = BTreeSet::new();
    keys(&Config::default().to_toml().unwrap().parse().unwrap(), "", &mut there);
    assert_eq!(documented, there);
    assert!(there.contains("http.listen") && there.contains("workers"), "{there:?}");
}

#[test]
fn every_option_of_the_reference_file_has_a_comment() {
    let lines: Vec<&str> = REFERENCE.lines().collect();
    for (before, line) in lines.iter().zip(&lines[1..]) {
        // Lines of an array are indented: its comment is above it.
        if line.contains('=') && !line.starts_with(['#', ' ']) {
            assert!(before.starts_with("# "), "no comment above `{line}`");
        }
    }
}

#[test]
fn defaults_are_in_bounds_and_need_no_file() {
    Config::default().validate().unwrap();
    assert_eq!(Config::load(None).unwrap(), Config::default());
    assert_eq!(parse("").unwrap(), Config::default());
    let Config { http, rtmp, live, .. } = Config::default();
    // Limits by address are on, and generous.
    assert_eq!((http.max_connections_per_address, rtmp.max_connections_per_address), (1000, 1000));
    assert!(rtmp.max_players > 0 && rtmp.max_publishers > 0 && !live.foreign_renditions);
}

#[test]
fn a_file_changes_what_it_names_and_nothing_else() {
    let config = parse(
        "workers = 2\n\
         [http]\nlisten = \"[::1]:0\"\nidle_timeout = \"90s\"\n\
         [live]\npart_target = \"33.3ms\"\nviewer_queue = \"512KiB\"\n\
         [ladder]\nsource = false\nstreams = [\"events/*\"]\n\
         [[ladder.rungs]]\nname = \"low\"\nwidth = 640\nheight = 360\nbitrate = \"400kbit/s\"\n\
         [vod]\nroot = \"/srv/films\"\n\
         [control]\nadmin = [\"10.0.0.0/8\"]\nembed = \"https://example.org https://*.example.net\"\n",
    )
    .unwrap();
    let mut expected = Config { workers: 2, ..Config::default() };
    expected.http.listen = "[::1]:0".parse().unwrap();
    expected.http.idle_timeout = Time(Duration::from_secs(90));
    expected.live.part_target = Time(Duration::from_micros(33_300));
    expected.live.viewer_queue = Size(512 * 1024);
    expected.ladder.source = false;
    expected.ladder.streams = vec!["events/*".to_owned()];
    let (name, bitrate) = ("low".to_owned(), Bitrate(400_000));
    expected.ladder.rungs = vec![Rung { name, width: 640, height: 360, bitrate }];
    expected.vod.root = "/srv/films".into();
    expected.control.admin = vec!["10.0.0.0/8".parse().unwrap()];
    expected.control.embed = "https://example.org https://*.example.net".to_owned();
    assert_eq!(config, expected);
}

#[test]
fn the_effective_configuration_reads_back_as_itself() {
    let mut config = Config::default();
    config.http.cors_origin = String::new();
    config.live.part_target = Time(Duration::from_nanos(33_366_667));
    config.drain.timeout = Time(Duration::ZERO);
    config.vod.root = "with \"quotes\" and ü".into();
    config.ladder.rungs.truncate(2);
    config.ladder.rungs[0].bitrate = Bitrate(64_001);
    assert_eq!(parse(&config.to_toml().unwrap()).unwrap(), config);
}

#[test]
fn a_refusal_names_file_line_and_key() {
    for (text, expected) in [
        // Unknown keys, anywhere.
        (
            "[http]\nlisten = \"0.0.0.0:80\"\nmax_head = 1\n",
            "headwater.toml:3: http.max_head: unknown key, expected one of `listen`, ",
        ),
        ("\n\nworker = 1\n", "headwater.toml:3: worker: unknown key, expected one of `workers`, "),
        ("[htttp]\nlisten = 1\n", "headwater.toml:1: htttp: unknown key, expected one of "),
        ("live = { windows = \"30s\" }", "headwater.toml:1: live.windows: unknown key, "),
        ("\nlive.windows = \"30s\"", "headwater.toml:2: live.windows: unknown key, "),
        (
            "[ladder]\nrungs = [\n{ name = \"x\", width = 2, height = 2, rate = 1 },\n]\n",
            "headwater.toml:3: ladder.rungs.rate: unknown key, expected one of `name`, ",
        ),
        ("[ladder]\n\nenable = true\n", "headwater.toml:3: ladder.enable: unknown key, "),
        // Wrong types.
        (
            "workers = \"two\"",
            "headwater.toml:1: workers: invalid type: string \"two\", expected usize",
        ),
        ("[http]\n\nmax_connections = -1", "headwater.toml:3: http.max_connections: invalid value"),
        (
            "[live]\nwindow = 30",
            "headwater.toml:2: live.window: invalid type: integer `30`, \
             expected a time such as 500ms, 10s or 5m",
        ),
        (
            "[cluster]\nnats = \"nats://ann:secret@192.0.2.1\"",
            "headwater.toml:2: cluster.nats: must be a list of addresses such as ",
        ),
        (
            "[[access.rule]]\nactions = [\"api\"]\nuser = \"ann\"\npassword = 12345678",
            "headwater.toml:4: access.rule.password: must be a text in quotes",
        ),
        (
            "[[access.rule]]\nactions = [\"publish\"]\nkey = \"\"",
            "headwater.toml:3: access.rule.key: must not be empty",
        ),
        (
            "[[access.rule]]\nactions = [\"publish\"]\nkey = hunter2",
            "headwater.toml:3: string values must be quoted, expected literal string",
        ),
        ("http = 8080", "headwater.toml:1: http: invalid type: integer `8080`"),
        // Invalid values.
        (
            "[live]\n# a comment\nwindow = \"30\"",
            "headwater.toml:3: live.window: `30` is not a time such as 500ms, 10s or 5m",
        ),
        (
            "[live]\nviewer_queue = \"4M\"",
            "headwater.toml:2: live.viewer_queue: `4M` is not a size such as 512B, 64KiB or 1MB",
        ),
        (
            "[http]\nlisten = \"localhost\"",
            "headwater.toml:2: http.listen: is not an address and port such as 0.0.0.0:8080",
        ),
        (
            "[ladder]\nrungs = [{ name = \"x\", width = 640, height = 360 }]\n",
            "headwater.toml:2: ladder.rungs: missing field `bitrate`",
        ),
        (
            "[[ladder.rungs]]\nname = \"x\"\nwidth = 640\nheight = 360\nbitrate = \"1M\"\n",
            "headwater.toml:5: ladder.rungs.bitrate: `1M` is not a bitrate such as 800kbit/s or 5Mbit/s",
        ),
        // Not TOML.
        ("[http]\nlisten\n", "headwater.toml:2: "),
        ("workers = 1\nworkers = 2\n", "headwater.toml:2: workers: duplicate key"),
    ] {
        let found = refusal(text);
        assert!(found.starts_with(expected), "{text:?}\n  gives    {found}\n  expected {expected}");
        assert!(!found.contains('\n'), "more than one line: {found:?}");
    }
}

#[test]
fn bounds_name_the_option_its_line_and_what_is_allowed() {
    for (text, expected) in [
        ("workers = 1025", "headwater.toml:1: workers: must be from 0 to 1024, is 1025"),
        (
            "[http]\nhead_timeout = \"0s\"",
            "headwater.toml:2: http.head_timeout: must be from 100ms to 1h, is 0s",
        ),
        (
            "[live]\nviewer_queue = \"1B\"",
            "headwater.toml:2: live.viewer_queue: must be from 64KiB to 1GiB, is 1B",
        ),
        (
            "[live]\ntarget_duration = \"4500ms\"",
            "headwater.toml:2: live.target_duration: must be whole seconds, is 4500ms",
        ),
        (
            "[http]\ncors_origin = \"*\\r\\nSet-Cookie: a=b\"",
            "headwater.toml:2: http.cors_origin: must be visible ASCII without blanks",
        ),
        (
            "[ladder]\npreset = \"quick\"",
            "headwater.toml:2: ladder.preset: must be one of ultrafast, superfast, veryfast, \
             faster, fast, medium, slow, slower, veryslow",
        ),
        (
            "[cluster]\nnats = [\"nats://a\", \"nats://ann:pass:4222\"]",
            "headwater.toml:2: cluster.nats: number 2 must be an address such as nats://192.0.2.1:4222",
        ),
        (
            "[cluster]\nnats = [\"nats://ann:pass@a\", \"b\", \"nats://pass@c\"]",
            "headwater.toml:2: cluster.nats: number 3 has another user than an address before it",
        ),
        ("[ladder]\nnice = -1", "headwater.toml:2: ladder.nice: must be from 0 to 19, is -1"),
        (
            "[ladder]\nstreams = [\"a\", \"b c\"]",
            "headwater.toml:2: ladder.streams: \"b c\" is not a stream's name, in which * may \
             stand for anything",
        ),
        (
            "[ladder]\nreserved_for = [\"a b\"]",
            "headwater.toml:2: ladder.reserved_for: \"a b\" is not a stream's name, in which * may \
             stand for anything",
        ),
        (
            "[ladder]\nreserved = 9\nreserved_for = [\"a\"]",
            "headwater.toml:2: ladder.reserved: 9 are more than ladder.max_streams",
        ),
        (
            "[ladder]\nreserved = 1",
            "headwater.toml:2: ladder.reserved: places are kept for no stream: ladder.reserved_for \
             is empty",
        ),
        (
            "[ladder]\nmemory = \"1MiB\"",
            "headwater.toml:2: ladder.memory: must be from 64MiB to 1024GiB, is 1MiB",
        ),
        (
            "[ladder]\nread = [\"/opt\", \"lib\"]",
            "headwater.toml:2: ladder.read: lib does not begin with /",
        ),
        (
            "[ladder]\nsandbox = \"on\"",
            "headwater.toml:2: ladder.sandbox: unknown variant `on`, expected one of `auto`, \
             `require`, `off`",
        ),
        ("[ladder]\nrungs = []", "headwater.toml:2: ladder.rungs: must be 1 to 8"),
        (
            "[ladder]\nenabled = true\nffmpeg = \"/no/such/ffmpeg\"",
            "headwater.toml:3: ladder.ffmpeg: there is no program /no/such/ffmpeg",
        ),
        ("[vod]\nroot = \"\"", "headwater.toml:2: vod.root: must not be empty"),
        (
            "[vod]\nroot = \"ftp://films\"",
            "headwater.toml:2: vod.root: must be a folder, or begin with s3, gs, az or file, not ftp",
        ),
        ("[vod.store]\ncache = \"\"", "headwater.toml:2: vod.store.cache: must not be empty"),
        (
            "[vod.store]\ncache_size = \"1MiB\"",
            "headwater.toml:2: vod.store.cache_size: must be from 64MiB to 1048576GiB, is 1MiB",
        ),
        (
            "[vod.store]\nrequests = 0",
            "headwater.toml:2: vod.store.requests: must be from 1 to 1024, is 0",
        ),
        (
            "[vod.store]\ntimeout = \"2m\"",
            "headwater.toml:2: vod.store.timeout: must be from 100ms to 1m, is 2m",
        ),
        (
            "[vod]\nsegment_target = \"10ms\"",
            "headwater.toml:2: vod.segment_target: must be from 100ms to 1h, is 10ms",
        ),
        (
            "[live]\nmemory = \"1MiB\"",
            "headwater.toml:2: live.memory: must be from 16MiB to 1024GiB, is 1MiB",
        ),
        (
            "[control]\nembed = \"https://a.example; script-src *\"",
            "headwater.toml:2: control.embed: must be \"*\", origins such as https://example.org, or empty",
        ),
        (
            "[control]\nhosts = [\"ops.example:8081\"]",
            "headwater.toml:2: control.hosts: must be names of hosts, without scheme and port",
        ),
        (
            "[events]\nwebhook = \"ftp://a.example\"",
            "headwater.toml:2: events.webhook: must be an http or https URL",
        ),
        (
            "[control]\nadmin = [\"127.0.0.1/33\"]",
            "headwater.toml:2: control.admin: invalid IP address syntax",
        ),
        ("[vod]\nrate = 0.5", "headwater.toml:2: vod.rate: must be from 1 to 100, is 0.5"),
        ("[vod]\nburst = \"2h\"", "headwater.toml:2: vod.burst: must be from 0s to 1h, is 2h"),
        (
            "[vod]\npace = \"quick\"",
            "headwater.toml:2: vod.pace: unknown variant `quick`, expected one of `fast`, \
             `realtime`, `burst`",
        ),
        ("[vod]\nrate = nan", "headwater.toml:2: vod.rate: NaN is not a factor such as 1.25"),
        (
            "[vod]\nindex_memory = \"1KiB\"",
            "headwater.toml:2: vod.index_memory: must be from 1MiB to 1024GiB, is 1KiB",
        ),
        (
            "[drain]\ntimeout = \"2h\"",
            "headwater.toml:2: drain.timeout: must be from 0s to 1h, is 2h",
        ),
    ] {
        assert_eq!(refusal(text), expected, "{text:?}");
    }
}

#[test]
fn options_that_disagree_are_refused_at_the_line_that_made_them() {
    for (text, expected) in [
        (
            "[live]\npart_target = \"3s\"",
            "headwater.toml:2: live.part_target: 3s is longer than live.segment_target, 2s",
        ),
        // The file gives only the other of the two keys, so the message names its line.
        (
            "[live]\nsegment_target = \"150ms\"",
            "headwater.toml:2: live.part_target: 200ms is longer than live.segment_target, 150ms",
        ),
        (
            "[live]\nsegment_target = \"5s\"",
            "headwater.toml:2: live.segment_target: 5s is longer than live.target_duration, 4s",
        ),
        (
            "[live]\nreconnect = \"1m\"\nwindow = \"15s\"",
            "headwater.toml:3: live.window: 15s is less than 4 × live.target_duration, 16s",
        ),
        (
            "[rtmp]\nlisten = \"0.0.0.0:8080\"",
            "headwater.toml:2: rtmp.listen: 0.0.0.0:8080 is taken by http.listen",
        ),
        (
            "[webrtc]\nlisten = \"0.0.0.0:1935\"",
            "headwater.toml:2: webrtc.listen: 0.0.0.0:1935 is taken by rtmp.listen",
        ),
    ] {
        assert_eq!(refusal(text), expected, "{text:?}");
    }
    parse("[http]\nlisten = \"127.0.0.1:0\"\n[rtmp]\nlisten = \"127.0.0.1:0\"").unwrap();
    // UDP alone shares a port with anything. The default port may be taken: the server runs without WebRTC.
    parse("[webrtc]\nlisten = \"0.0.0.0:1935\"\ntcp = false").unwrap();
    parse("[rtmp]\nlisten = \"0.0.0.0:8189\"").unwrap();
}

#[test]
fn rungs_must_be_told_apart_and_can_be_made() {
    let rungs = |rungs: &[(&str, u32, u32, &str)]| {
        let rungs = rungs.iter().map(|(name, width, height, bitrate)| {
            format!(
                "{{ name = {name:?}, width = {width}, height = {height}, bitrate = {bitrate:?} }}"
            )
        });
        format!("[ladder]\nrungs = [{}]", rungs.collect::<Vec<_>>().join(", "))
    };
    for (given, expected) in [
        (&[("v1", 640, 360, "1Mbit/s")][..], "\"v1\" is not a name: "),
        (&[("", 640, 360, "1Mbit/s")], "\"\" is not a name: "),
        (&[("x", 8, 360, "1Mbit/s")], "must be from 16 to 8192, is 8"),
        (&[("x", 640, 10_000, "1Mbit/s")], "must be from 16 to 8192, is 10000"),
        (&[("x", 640, 360, "1kbit/s")], "must be from 8kbit/s to 500Mbit/s, is 1kbit/s"),
        (&[("x", 640, 360, "1Mbit/s"), ("x", 320, 180, "1Mbit/s")], "two are called \"x\""),
    ] {
        let found = refusal(&rungs(given));
        assert!(found.starts_with("headwater.toml:2: ladder.rungs: "), "{found}");
        assert!(found.contains(expected), "{found}");
    }
    parse(&rungs(&[("x", 640, 360, "1Mbit/s"), ("y", 320, 180, "1Mbit/s")])).unwrap();
}

#[test]
fn conflicts_by_the_command_line_are_refused_by_their_key() {
    let mut config = Config::default();
    config.http.listen = config.rtmp.listen;
    let error = config.validate().expect_err("both on one port").to_string();
    assert_eq!(error, "rtmp.listen: 0.0.0.0:1935 is taken by http.listen");
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("absent.toml");
    let error = Config::load(Some(&path)).expect_err("no such file").to_string();
    assert!(error.starts_with(&format!("{}: No such file", path.display())), "{error}");

    let path = folder.path().join("latin1.toml");
    std::fs::write(&path, b"[vod]\nroot = \"fran\xe7ais\"\n").unwrap();
    let error = Config::load(Some(&path)).expect_err("not UTF-8").to_string();
    assert!(error.starts_with(&path.display().to_string()), "{error}");
}
