//! The command line: refused arguments, interruptions and documents.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use crate::common::{LIMIT, assert_published, document, start};

#[test]
fn arguments_that_cannot_be_used_are_refused() {
    for arguments in [
        &["watch", "x"][..],
        &["watch", "ftp://h/x"],
        &["watch", "rtmp://h"],
        &["watch", "rtmp://h/live/x", "--duration", "10"],
        &["watch", "rtmp://h/live/x", "--reference", "/no/such/file"],
        &["viewers", "rtmp://h/live/x"],
        &["viewers", "rtmp://h/live/x", "--duration", "1s", "--verify", "some"],
        &["viewers", "rtmp://h/live/x", "--duration", "1s", "--batches", "0"],
        &["viewers", "rtmp://h/live/x", "--duration", "1s", "--batch-size", "4000000000"],
        &["viewers", "rtmp://h/live/x", "--duration", "1s", "--at-least", "2"],
        &["capacity", "rtmp://h/live/x", "--start", "10", "--max", "5"],
        &["capacity", "rtmp://h/live/x", "--min-bitrate", "fast"],
        &["capacity", "rtmp://h/live/x", "--share", "1.5"],
        &["watch", "rtmp://h/live/x", "--announce-buffer", "1200h"],
    ] {
        let finished = start(arguments).wait(LIMIT);
        assert_eq!(finished.status.code(), Some(2), "{arguments:?}: {}", finished.stderr);
        assert!(!finished.stderr.is_empty() && finished.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn an_interrupted_run_tells_what_it_had_and_a_silent_server_holds_nobody() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/x.m3u8", silent.local_addr().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("run");
    let program = start([
        "viewers",
        &url,
        "--batch-size",
        "3",
        "--duration",
        "10m",
        "--timeout",
        "10m",
        "--json",
        "-o",
        output.to_str().unwrap(),
    ]);
    // All three viewers are connected, so the run has started. Without an interruption it would take
    // 10 min.
    let connected: Vec<_> = (0..3).map(|_| silent.accept().unwrap()).collect();
    program.terminate();
    let (_, document) = document(program);
    assert_eq!(document["interrupted"], true, "{document:#}");
    assert_eq!(document["viewers"]["reported"], 3, "{document:#}");
    assert!(output.join("summary.json").exists());
    drop(connected);

    let viewers = ["viewers", &url, "--batch-size", "2", "--duration", "1s", "--timeout", "10m"];
    let (_, document) = crate::common::document(start(viewers.into_iter().chain(["--json"])));
    assert_eq!(document["viewers"]["satisfied"], 0, "{document:#}");
}

#[test]
fn capacity_ends_where_most_viewers_get_too_little_however_much_the_others_get() {
    use std::io::{Read, Write};

    /// Bits per second for each viewer of the first two steps and for three of the third, and for the
    /// other four of the third.
    const RATES: [f64; 2] = [48e6, 1e6];
    /// The first step has one viewer, and the second has four.
    const FAST: usize = 1 + 4 + 3;
    let film = std::fs::read(testkit::clip("mp4/fragmented.mp4")).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/x.mp4", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for (number, mut socket) in listener.incoming().flatten().enumerate() {
            let (film, rate) = (film.clone(), RATES[usize::from(number >= FAST)]);
            std::thread::spawn(move || {
                let _ = socket.read(&mut [0; 1024]);
                let begun = Instant::now();
                let _ = socket.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
                let mut sent = 0;
                for piece in film.chunks(1 << 14) {
                    // No byte goes out before it is due. A thread that is late catches up.
                    sent += piece.len();
                    let due = begun + Duration::from_secs_f64(sent as f64 * 8.0 / rate);
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                    if socket.write_all(piece).is_err() {
                        break;
                    }
                }
            });
        }
    });
    let (_, document) = document(start([
        "capacity",
        &url,
        "--fast",
        "--start",
        "1",
        "--step",
        "3",
        "--max",
        "7",
        "--min-bitrate",
        "2.5M",
        "--duration",
        "20s",
        "--pause",
        "100ms",
        "--json",
    ]));
    // The server is exact in one direction: no viewer gets more than its rate. On a busy machine the
    // fast viewers may take nearly ten times as long as due, and still get enough.
    assert_eq!(document["capacity"], 4, "{document:#}");
    assert_eq!(document["inflexion"], 7, "{document:#}");
    let rates: Vec<f64> = document["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s["bit_rate"].as_f64().unwrap())
        .collect();
    let [one, four, seven] = rates[..] else { panic!("{rates:?}") };
    let [fast, slow] = RATES.map(|rate| rate / 1e6);
    assert!(one <= fast && four <= fast, "{rates:?}");
    assert!(one >= 2.5 && four >= 2.5, "{rates:?}");
    // On average the viewers of the last step got more than they need. But most got less.
    assert!(2.5 <= seven && seven <= (3.0 * fast + 4.0 * slow) / 7.0, "{rates:?}");
    let served = |step: usize| document["steps"][step]["served"].as_u64().unwrap();
    assert!(served(0) == 1 && served(1) >= 2 && served(2) <= 3, "{document:#}");
}

#[test]
fn with_a_barrier_all_viewers_begin_when_the_last_has_connected() {
    let media = testkit::media_dir();
    let server = testkit::Server::start(testkit::headwater(), ["--vod", media.to_str().unwrap()]);
    let url = server.url("/vod/mp4/fragmented.mp4");
    for processes in ["1", "2"] {
        let folder = tempfile::tempdir().unwrap();
        let step = ["--start", "6", "--max", "6", "--min-bitrate", "1k", "--duration", "60s"];
        let loops = ["--fast", "--processes", processes, "--loops", "2"];
        let more = ["--start-barrier", "--json", "-o"];
        let arguments = ["capacity", &url].into_iter().chain(step).chain(loops).chain(more);
        let output = folder.path().to_str().unwrap();
        let (_, document) = document(start(arguments.chain([output])));
        assert_eq!(document["start_barrier"], true, "{document:#}");
        assert_eq!(document["steps"][0]["served"], 6, "{document:#}");
        // The viewers of a process begin at the same microsecond.
        let text = std::fs::read_to_string(folder.path().join("000006/viewers.jsonl")).unwrap();
        let joined = text.lines().map(|line| {
            let viewer: serde_json::Value = serde_json::from_str(line).unwrap();
            viewer["joined"].to_string()
        });
        let moments: std::collections::BTreeSet<String> = joined.collect();
        assert!(moments.len() <= processes.parse().unwrap(), "{moments:?}");
    }
}

#[test]
fn an_interrupted_capacity_tells_the_steps_before() {
    let server = crate::common::origin();
    let folder = tempfile::tempdir().unwrap();
    let url = server.rtmp_url("live/demo");
    // The viewer gets something also where the machine stands still for some seconds.
    let arguments = ["--start", "1", "--step", "1", "--min-bitrate", "1k", "--duration", "12s"];
    let pause = ["--pause", "300s", "--json", "-o", folder.path().to_str().unwrap()];
    let program = start(["capacity", &url].into_iter().chain(arguments).chain(pause));
    let step = folder.path().join("000001/summary.json");
    testkit::eventually(LIMIT, "the first step is done", || step.exists());
    // The pause would last 5 min.
    program.terminate();
    let (_, document) = document(program);
    assert_eq!((&document["interrupted"], &document["capacity"]), (&true.into(), &1.into()));
    assert_eq!(document["steps"].as_array().unwrap().len(), 1, "{document:#}");
    assert!(folder.path().join("summary.json").exists());

    // Before the bit rate of the media is known, there are no other results.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("rtmp://{}/live/x", silent.local_addr().unwrap());
    let program = start(["capacity", &url, "--duration", "60s", "--timeout", "50s", "--json"]);
    let connected = silent.accept().unwrap();
    program.terminate();
    let (_, document) = crate::common::document(program);
    assert_eq!((&document["interrupted"], &document["capacity"]), (&true.into(), &0.into()));
    drop(connected);
}

#[test]
fn the_published_schemas_are_those_of_the_documents() {
    let schemas = [
        ("watch", schemars::schema_for!(streamgauge::watch::Document)),
        ("viewers", schemars::schema_for!(streamgauge::viewers::Document)),
        ("capacity", schemars::schema_for!(streamgauge::capacity::Document)),
        ("viewer-record", schemars::schema_for!(viewer::Report)),
        ("tick-record", schemars::schema_for!(streamgauge::record::Tick)),
    ];
    for (name, schema) in schemas {
        assert_published(name, &schema);
    }
}
