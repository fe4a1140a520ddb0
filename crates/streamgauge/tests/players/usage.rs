//! The command line: refused arguments, interruptions and documents.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use crate::support::{LIMIT, document, start};

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
        "60s",
        "--timeout",
        "50s",
        "--json",
        "-o",
        output.to_str().unwrap(),
    ]);
    // All three viewers are connected, so the run has started.
    let connected: Vec<_> = (0..3).map(|_| silent.accept().unwrap()).collect();
    let began = Instant::now();
    program.terminate();
    let (_, document) = document(program);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(document["interrupted"], true, "{document:#}");
    assert_eq!(document["viewers"]["reported"], 3, "{document:#}");
    assert!(output.join("summary.json").exists());
    drop(connected);

    let began = Instant::now();
    let arguments = ["viewers", &url, "--batch-size", "2", "--duration", "1s", "--json"];
    let (_, document) = crate::support::document(start(arguments));
    assert!(began.elapsed() < Duration::from_secs(11), "{:?}", began.elapsed());
    assert_eq!(document["viewers"]["satisfied"], 0, "{document:#}");
}

#[test]
fn capacity_ends_where_viewers_get_too_little() {
    // A server that sends at most 64 KiB per second to each viewer, however many there are: an FLV
    // of audio that has this bit rate.
    let flv = std::fs::read(testkit::clip("flv/legacy.flv")).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/x.flv", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        use std::io::{Read, Write};
        use std::sync::Arc;
        use std::sync::atomic::{AtomicU32, Ordering};
        let viewers = Arc::new(AtomicU32::new(0));
        for mut socket in listener.incoming().flatten() {
            let (flv, viewers) = (flv.clone(), viewers.clone());
            std::thread::spawn(move || {
                let _ = socket.read(&mut [0; 1024]);
                let mut text = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n".to_vec();
                text.extend_from_slice(&flv);
                viewers.fetch_add(1, Ordering::SeqCst);
                for piece in text.chunks(1 << 14) {
                    // 4 MiB per second, shared by the connected viewers.
                    let share = viewers.load(Ordering::SeqCst);
                    std::thread::sleep(Duration::from_micros(3906) * share);
                    if socket.write_all(piece).is_err() {
                        break;
                    }
                }
                viewers.fetch_sub(1, Ordering::SeqCst);
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
        "6M",
        "--duration",
        "20s",
        "--pause",
        "100ms",
        "--json",
    ]));
    // 33 Mbit/s for one, 8 for each of four, 5 for each of seven.
    assert_eq!(document["capacity"], 4, "{document:#}");
    assert_eq!(document["inflexion"], 7, "{document:#}");
    let rates: Vec<f64> = document["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s["bit_rate"].as_f64().unwrap())
        .collect();
    assert!(rates[0] < 34.0 && rates[0] > rates[1] && rates[1] > rates[2], "{rates:?}");
}

#[test]
fn an_interrupted_capacity_tells_the_steps_before() {
    let server = crate::support::origin();
    let folder = tempfile::tempdir().unwrap();
    let url = server.rtmp_url("live/demo");
    let arguments = ["--start", "1", "--step", "1", "--min-bitrate", "1k", "--duration", "3s"];
    let pause = ["--pause", "300s", "--json", "-o", folder.path().to_str().unwrap()];
    let program = start(["capacity", &url].into_iter().chain(arguments).chain(pause));
    let step = folder.path().join("000001/summary.json");
    crate::support::until("the first step is done", || step.exists());
    let began = Instant::now();
    program.terminate();
    let (_, document) = document(program);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!((&document["interrupted"], &document["capacity"]), (&true.into(), &1.into()));
    assert_eq!(document["steps"].as_array().unwrap().len(), 1, "{document:#}");
    assert!(folder.path().join("summary.json").exists());

    // Before the bit rate of the media is known, there are no other results.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("rtmp://{}/live/x", silent.local_addr().unwrap());
    let program = start(["capacity", &url, "--duration", "60s", "--timeout", "50s", "--json"]);
    let connected = silent.accept().unwrap();
    program.terminate();
    let (_, document) = crate::support::document(program);
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
        let schema = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schema");
        let path = format!("{folder}/{name}.schema.json");
        if std::env::var_os("UPDATE_SCHEMAS").is_some() {
            std::fs::write(&path, &schema).unwrap();
        }
        let published = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(published == schema, "{name}: run the tests once with UPDATE_SCHEMAS=1");
    }
}
