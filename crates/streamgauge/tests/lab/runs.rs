//! Whole runs, with real servers.

use crate::support::{LIMIT, Lab, clip, json, origin};

fn study() -> String {
    let clip = clip("films/clip.mp4");
    format!(
        r#"
title = "mine"
{clip}
[[load]]
name = "requests"
peers = []
job = "file"
path = "films/clip.mp4"
with = "http"
arguments = ["{{urls}}", "--rate", "{{rate}}", "--duration", "{{duration}}s", "--range-size", "4KiB"]
[load.cases]
rate = [20]
# The test interrupts a trial in the middle, also where the machine stands still for some seconds.
[load.constants]
duration = 10
[[load]]
name = "players"
peers = []
job = "rtmp-vod"
path = "films/clip.mp4"
with = "viewers"
arguments = ["{{url}}", "--batches", "{{batches}}", "--batch-size", "2", "--interval", "100ms", "--duration", "8s"]
rest = "1s"
study_b_files = true
[load.cases]
batches = [2]
[load.derive]
clients = "batches * 2"
[[load]]
name = "live"
peers = []
job = "flv-live"
stream = "mine"
with = "viewers"
arguments = ["{{url}}", "--batch-size", "2", "--duration", "8s"]
[load.publish]
file = "clip"
with = "ffmpeg"
"#
    )
}

#[test]
fn a_run_that_is_interrupted_goes_on_where_it_was() {
    let lab = Lab::new(&[("mine.toml", &study()), ("origin.toml", &origin())]);
    let origin = lab.path("origin.toml");
    let peers = ["--peer", "nginx", "--peer", origin.to_str().unwrap()];
    let program = lab.start(&peers);
    program.stderr_line(LIMIT, |line| line.starts_with("[2/4, "));
    program.terminate();
    let finished = program.wait(LIMIT);
    assert_eq!(finished.status.code(), Some(130), "{}", finished.stderr);
    let document: serde_json::Value = serde_json::from_slice(&finished.stdout).unwrap();
    assert_eq!(document["interrupted"], true, "{document:#}");
    assert_eq!(lab.trial("requests/rate=20/origin/1")["failed"], "interrupted");
    let first = lab.trial("requests/rate=20/nginx/1");
    assert_eq!(first["failed"], serde_json::Value::Null, "{first:#}");

    let (code, document, told) = lab.run(&peers);
    // While other tests run, the generator may be the limit.
    assert!(code == 0 || code == 3, "{code} {told}");
    assert_eq!((&document["trials"], &document["kept"]), (&4.into(), &1.into()), "{told}");
    // Without a terminal each trial has a line, with what there is so far.
    let lines: Vec<_> = told.lines().filter(|line| line.starts_with('[')).collect();
    assert_eq!(lines.len(), 3, "{told}");
    assert!(lines[0].starts_with("[2/4, ") && lines[0].contains(" to go; 1 measured"), "{told}");
    assert!(lines[2].contains("; 3 measured"), "{told}");
    assert_eq!(document["run"]["warnings"].as_array().unwrap().len(), 2, "{document:#}");
    assert_eq!(lab.trial("requests/rate=20/nginx/1"), first);
    for (trial, clients, seconds) in [
        ("requests/rate=20/origin/1", None, 9.9),
        // It ends when all players have the film, however soon that is.
        ("players/batches=2/origin/1", Some(4.0), 0.1),
        ("live/case/origin/1", Some(2.0), 7.9),
    ] {
        let trial = lab.trial(trial);
        let metric = |name: &str| trial["metrics"][name].as_f64();
        assert_eq!(trial["failed"], serde_json::Value::Null, "{trial:#}");
        assert_eq!(metric("clients"), clients, "{trial:#}");
        assert_eq!(metric("errors"), Some(0.0), "{trial:#}");
        assert!(metric("load_seconds").unwrap() >= seconds, "{trial:#}");
        let incoming = metric("in_mbit_mean");
        assert_eq!(incoming.is_some(), metric("sent_bytes").is_some(), "{trial:#}");
        if let (Some(rate), Some(bytes)) = (incoming, metric("sent_bytes")) {
            // Figures of a document lose their last digit.
            let counted = bytes * 8e-6 / metric("load_seconds").unwrap();
            assert!((rate - counted).abs() <= counted * 1e-9, "{trial:#}");
        }
        assert_eq!(incoming.is_some_and(|rate| rate > 0.0), clients.is_some(), "{trial:#}");
        assert!(metric("out_mbit_mean").unwrap() > 0.1, "{trial:#}");
        assert!(metric("server_memory_mib").unwrap() > 1.0, "{trial:#}");
        assert!(metric("server_idle_memory_mib").unwrap() > 1.0, "{trial:#}");
        for used in ["server_cores", "server_thread_cores"] {
            assert!((0.0..64.0).contains(&metric(used).unwrap()), "{trial:#}");
        }
        assert!((0.0..=100.0).contains(&metric("other_cpu_percent").unwrap()), "{trial:#}");
    }
    let requests = lab.path("out/trials/requests/rate=20/nginx/1");
    assert!(requests.join("latency.hlog").exists() && requests.join("load.json").exists());
    let players = lab.path("out/trials/players/batches=2/origin/1");
    let served = lab.trial("players/batches=2/origin/1")["metrics"]["satisfied"].as_f64().unwrap();
    let count = std::fs::read_to_string(players.join(format!("run000_4_rtmp_8-{served}"))).unwrap();
    assert_eq!(count.trim(), served.to_string());
    let times = std::fs::read_to_string(players.join("run000_4_rtmp_8.times")).unwrap();
    let times: Vec<f64> = times.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(times.len(), 4);
    assert_eq!(times.iter().filter(|time| **time >= 7200.0).count() as f64, served);
    let csv = std::fs::read_to_string(players.join("run000_4_rtmp_8.csv")).unwrap();
    assert!(csv.starts_with("seconds,load,memory,cpu,up,down\n"), "{csv}");
    // The servers' files are gone.
    assert_eq!(std::fs::read_dir(lab.path("target/lab/work")).unwrap().count(), 0);
    let run = json(&lab.path("out/run.json"));
    assert!(run["peers"]["nginx"]["version"].as_str().unwrap().contains("nginx"), "{run:#}");
    assert_eq!(run["media"]["clip"].as_str().unwrap().len(), 64);

    let (code, _, told) = lab.run(&[&peers[..], &["--scale", "0.5"]].concat());
    assert_eq!(code, 2, "{told}");
    assert!(told.contains("another scale"), "{told}");
}

const PYTHON: &str = r#"
title = "Python"
about = "Anybody's server."
[version]
command = ["python3", "--version"]
[start]
command = ["python3", "-m", "http.server", "--bind", "{host}", "--directory", "{root}", "{http}"]
ready = { http = "http://{host}:{http}/" }
[serves]
file = "http://{host}:{http}/{path}"
"#;

const MORTAL: &str = r#"
title = "Mortal"
about = "Ends in the middle of a load."
[version]
command = ["python3", "--version"]
[[file]]
path = "server.py"
text = '''
import http.server, os, sys
class Handler(http.server.SimpleHTTPRequestHandler):
    count = 0
    def do_GET(self):
        Handler.count += 1
        if Handler.count > 10:
            print("this was enough", flush=True)
            os._exit(7)
        super().do_GET()
    def log_message(self, *args):
        pass
os.chdir("{root}")
http.server.HTTPServer(("{host}", {http}), Handler).serve_forever()
'''
[start]
command = ["python3", "{work}/server.py"]
ready = { tcp = "{http}" }
[serves]
file = "http://{host}:{http}/{path}"
"#;

const REQUESTS: &str = r#"
title = "requests"
[media.page]
path = "page"
make = ["dd", "if=/dev/zero", "of={out}", "bs=1000", "count=4"]
[[load]]
name = "requests"
peers = []
job = "file"
path = "page"
with = "http"
arguments = ["{url}", "--rate", "50", "--duration", "1s"]
"#;

#[test]
fn a_server_that_dies_has_failed_and_the_run_goes_on() {
    let lab = Lab::new(&[
        ("mine.toml", REQUESTS),
        ("python.toml", PYTHON),
        ("mortal.toml", MORTAL),
        ("absent.toml", &PYTHON.replace("python3", "/no/such/program")),
    ]);
    let paths = ["mortal.toml", "python.toml", "absent.toml"].map(|name| lab.path(name));
    let peers: Vec<_> = paths.iter().flat_map(|path| ["--peer", path.to_str().unwrap()]).collect();
    let (code, document, told) = lab.run(&peers);
    assert_eq!(code, 1, "{told}");
    let dead = lab.trial("requests/case/mortal/1");
    let why = dead["failed"].as_str().unwrap();
    assert!(why.contains("the server has ended") && why.contains("this was enough"), "{why}");
    let roles: Vec<_> = dead["commands"].as_array().unwrap().iter().map(|c| &c["role"]).collect();
    assert_eq!(roles, ["server", "load"]);
    assert_eq!(document["failed"].as_object().unwrap().len(), 1, "{document:#}");
    let absent = document["run"]["absent"]["absent"].as_str().unwrap();
    assert!(absent.contains("/no/such/program"), "{absent}");
    let alive = lab.trial("requests/case/python/1");
    assert_eq!(alive["metrics"]["requests"], 50.0, "{alive:#}");
    assert_eq!(alive["metrics"]["errors"], 0.0, "{alive:#}");
    // Only failed trials run again.
    let (code, document, _) = lab.run(&peers);
    assert_eq!((code, &document["kept"]), (1, &1.into()), "{document:#}");
}

/// A server whose program only `--peer-bin` can tell.
const RIVAL: &str = r#"
title = "Rival"
about = "Anybody's server, in a version."
[install]
hint = "write it."
[version]
command = ["{bin.no-such-rival}", "--version"]
at_least = "2"
[start]
command = ["{bin.no-such-rival}", "{host}", "{root}", "{http}"]
ready = { http = "http://{host}:{http}/" }
[serves]
file = "http://{host}:{http}/{path}"
"#;

#[test]
fn a_peer_without_its_program_is_left_out_and_named() {
    let lab = Lab::new(&[
        ("mine.toml", REQUESTS),
        ("python.toml", PYTHON),
        ("rival.toml", RIVAL),
        (
            "script",
            "#!/bin/sh\n[ $1 = --version ] && { cat \"$0.version\"; exit; }\n\
             exec python3 -m http.server --bind $1 --directory $2 $3\n",
        ),
        ("rival.version", "rival 1.9\n"),
    ]);
    let program = lab.path("rival");
    let script = std::fs::read_to_string(lab.path("script")).unwrap();
    testkit::write_program(&program, &script);
    let paths = ["rival.toml", "python.toml"].map(|name| lab.path(name));
    let peers: Vec<_> = paths.iter().flat_map(|path| ["--peer", path.to_str().unwrap()]).collect();
    let named = format!("no-such-rival={}", program.display());
    let with = [&peers[..], &["--peer-bin", &named]].concat();
    for (arguments, expected) in [
        (&peers, "there is no program no-such-rival on PATH, and no --peer-bin no-such-rival=PATH"),
        (&with, "the program is \"rival 1.9\", but the peer's file is for versions from 2 on"),
    ] {
        let (code, document, told) = lab.run(arguments);
        // While other tests run, the generator may be the limit.
        assert!(code == 0 || code == 3, "{code} {told}");
        let why = document["run"]["absent"]["rival"].as_str().unwrap();
        assert!(why.starts_with(expected) && why.ends_with(". How to get it: write it."), "{why}");
        assert!(told.contains(&format!("without rival: {expected}")), "{told}");
        assert_eq!(document["trials"], 1, "{document:#}");
        assert!(document["run"]["peers"].get("rival").is_none(), "{document:#}");
        assert!(!lab.path("out/trials/requests/case/rival").exists());
        assert_eq!(lab.trial("requests/case/python/1")["metrics"]["requests"], 50.0);
    }
    std::fs::write(lab.path("rival.version"), "rival 2.1\n").unwrap();
    let (code, document, told) = lab.run(&with);
    assert!(code == 0 || code == 3, "{code} {told}");
    let rival = document["run"]["peers"]["rival"].clone();
    assert_eq!(rival["version"], "rival 2.1");
    let build = rival["build"].as_str().unwrap();
    assert!(build.len() == 12 && build.bytes().all(|digit| digit.is_ascii_hexdigit()), "{rival}");
    assert_eq!(document["run"]["instrument"]["title"], "streamgauge", "{document:#}");
    assert_eq!(document["run"]["absent"], serde_json::json!({}));
    let trial = lab.trial("requests/case/rival/1");
    assert_eq!(trial["metrics"]["requests"], 50.0, "{trial:#}");
    // Records name the program, not the place where this machine has it.
    let words = trial["commands"][0]["arguments"].to_string();
    assert!(
        words.contains("no-such-rival") && !words.contains(program.to_str().unwrap()),
        "{words}"
    );
    // Another build of the same version goes on with the run.
    testkit::write_program(&program, &(script + "# built again\n"));
    let (_, again, _) = lab.run(&with);
    let warned = format!("rival was another when the run began: rival 2.1 (build {build})");
    let has = |run: &serde_json::Value| {
        run["run"]["warnings"].as_array().unwrap().contains(&warned.as_str().into())
    };
    assert!(!has(&document) && has(&again), "{again:#}");
    let wrong = [&peers[..], &["--peer-bin", "no-such-rival=/no/such/file"]].concat();
    let (code, _, told) = lab.run(&wrong);
    assert_eq!(code, 2, "{told}");
    assert!(
        told.contains("--peer-bin no-such-rival=/no/such/file: there is no such program"),
        "{told}"
    );
}
