//! Metrics from documents that the verbs print about a real server.

use std::process::Command;

use serde_json::{Value, json};
use streamgauge::lab::metrics::Loaded;
use streamgauge::lab::scenario::Tool;
use testkit::{Program, Server, headwater};

use crate::common::{document_of, start};
use crate::support::LIMIT;

#[track_caller]
fn document(arguments: &[&str]) -> Value {
    document_of(&start(arguments.iter().chain(&["--json"])).wait(LIMIT)).1
}

#[track_caller]
fn number(document: &Value, pointer: &str) -> f64 {
    let value = document.pointer(pointer).and_then(Value::as_f64);
    value.unwrap_or_else(|| panic!("{pointer}: {document:#}"))
}

#[track_caller]
fn assert_near(found: f64, right: f64) {
    assert!((found - right).abs() <= 1e-6 * right.abs(), "{found} for {right}");
}

#[test]
fn metrics_are_those_of_the_documents() {
    let server = Server::start(headwater(), ["--demo"]);
    server.get_until("/live/demo/v0/media.m3u8", LIMIT, |response| {
        response.status() == 200 && response.text().matches("#EXTINF").count() >= 4
    });
    let hls = server.url("/live/demo/index.m3u8");
    let of_viewers = document(&[
        "viewers",
        &hls,
        "--batches",
        "2",
        "--batch-size",
        "2",
        "--interval",
        "100ms",
        "--duration",
        // Media come also where the machine stands still for some seconds.
        "12s",
    ]);
    let found = Loaded::of(Tool::Viewers, &of_viewers);
    let metric =
        |name: &str| *found.metrics.get(name).unwrap_or_else(|| panic!("{name}: {found:?}"));
    assert_eq!((metric("clients"), metric("errors")), (4.0, 0.0));
    let at = |name: &str| number(&of_viewers, &format!("/viewers/{name}"));
    assert_near(metric("satisfied_percent"), at("satisfied") * 25.0);
    assert_near(metric("startup_p50_ms"), at("startup/p50") * 1e3);
    // Four viewers have no 99th percentile.
    assert!(!found.metrics.contains_key("startup_p99_ms"), "{found:?}");
    assert_near(metric("delivery_p50_ms"), at("delivery/p50") * 1e3);
    assert_near(metric("media_kib_per_client"), at("media_bytes") / 4096.0);
    assert_near(metric("kib_per_client"), (at("media_bytes") + at("overhead_bytes")) / 4096.0);
    assert_near(metric("overhead_bytes"), at("overhead_bytes") + at("sent_bytes"));
    assert_near(metric("bit_rate_kbit"), at("bit_rate_all_mean") * 1e3);
    assert_near(metric("playlist_mean_ms"), at("requests_by_kind/playlist/mean") * 1e3);
    assert_eq!(found.saturated, of_viewers["generator"]["saturated"]);

    let page = server.url("/live/demo/v0/media.m3u8");
    for arguments in [["--connections", "3"], ["--rate", "50"]] {
        let of_http = document(&[&["http", &page, "--duration", "1s"][..], &arguments].concat());
        let found = Loaded::of(Tool::Http, &of_http);
        let metric = |name: &str| found.metrics.get(name).copied();
        assert_eq!(metric("clients"), (arguments[0] == "--connections").then_some(3.0));
        assert_eq!(metric("requests"), Some(number(&of_http, "/counters/requests")));
        assert_eq!(metric("errors"), Some(0.0));
        let count = number(&of_http, "/last_byte/count");
        for (name, quantile) in [("p50", 0.5), ("p99", 0.99), ("p99_9", 0.999)] {
            let told = metric(&format!("latency_{name}_ms"));
            // A percentile needs a request beyond it.
            assert_eq!(told.is_some(), count * (1.0 - quantile) >= 0.999_999, "{name} of {count}");
            if let Some(told) = told {
                assert_near(told, number(&of_http, &format!("/last_byte/{name}")) * 1e3);
            }
        }
        let bytes =
            number(&of_http, "/counters/body_bytes") + number(&of_http, "/counters/head_bytes");
        let kb = bytes / 1024.0 / number(&of_http, "/elapsed");
        assert_near(metric("kb_per_second").unwrap(), kb);
    }

    // Requests for a missing file are answered as fast as any.
    let of_nothing = document(&["http", &server.url("/nothing"), "--requests", "5"]);
    let found = Loaded::of(Tool::Http, &of_nothing);
    let counts = ["responses", "errors", "unfinished"].map(|name| found.metrics[name]);
    assert_eq!(counts, [5.0, 5.0, 0.0], "{of_nothing:#}");

    let flv = server.url("/live/demo/live.flv");
    let steps = ["--start", "1", "--step", "1", "--max", "2", "--duration", "12s", "--pause", "0s"];
    let of_capacity = document(&[&["capacity", &flv, "--min-bitrate", "1k"][..], &steps].concat());
    let found = Loaded::of(Tool::Capacity, &of_capacity);
    assert_eq!(found.metrics["capacity"], 2.0, "{of_capacity:#}");
    assert_eq!(found.metrics["clients"], 2.0);
    // The work of the server for both steps cannot be divided by what the last one got.
    for of_last in ["responses", "requests", "received_bytes", "sent_bytes"] {
        assert!(!found.metrics.contains_key(of_last), "{of_last}: {found:?}");
    }
    assert_eq!(found.metrics["served"], number(&of_capacity, "/steps/1/served"));
    assert_eq!(found.metrics["served_percent"], found.metrics["served"] * 50.0);
    assert_near(
        found.metrics["bit_rate_kbit"],
        number(&of_capacity, "/steps/1/results/bit_rate_all_mean") * 1e3,
    );
}

#[test]
fn the_worst_delay_is_that_of_the_last_media_of_the_last_viewers() {
    let of = |viewers: u64| {
        let delivery = json!({ "count": viewers, "p50": 0.1, "p99": 0.25 });
        let found = json!({ "viewers": { "delivery_p99": delivery } });
        Loaded::of(Tool::Viewers, &found).metrics.get("delivery_worst_ms").copied()
    };
    assert_eq!((of(100), of(99)), (Some(250.0), None));
}

#[test]
fn latencies_by_several_clocks_are_a_warning() {
    let of =
        |clocks: &Value| Loaded::of(Tool::Viewers, &json!({ "viewers": { "clocks": clocks } }));
    let loaded = of(&json!({ "stamp": 4 }));
    assert_eq!((loaded.metrics["by_stamp"], loaded.warnings.len()), (4.0, 0));
    let loaded = of(&json!({ "date-time": 1, "stamp": 3 }));
    assert_eq!((loaded.metrics["by_date_time"], loaded.metrics["by_stamp"]), (1.0, 3.0));
    let said = "load: latencies are by several clocks: date-time (1 viewers), stamp (3 viewers)";
    assert_eq!(loaded.warnings, [said]);
}

/// Viewers that never began to play have no time until they began, and are worse than all that have one.
#[test]
fn a_percentile_is_told_if_nearly_all_viewers_have_a_value() {
    let of = |played: u64| {
        let startup = json!({ "count": played, "p50": 0.2, "p99": 0.3 });
        let found = json!({ "batches": 10, "batch_size": 100, "viewers": { "startup": startup } });
        let metrics = Loaded::of(Tool::Viewers, &found).metrics;
        ["startup_p50_ms", "startup_p99_ms"].map(|name| metrics.contains_key(name))
    };
    assert_eq!(
        [1000, 999, 998, 950, 949].map(of),
        [[true, true], [true, true], [true, false], [true, false], [false, false]]
    );
}

#[test]
fn a_pause_of_the_generator_is_a_warning() {
    let warned = |lag: f64| {
        let loops = json!([{ "lag_max": 0.1 }, { "lag_max": lag }]);
        let generator = json!({ "saturated": false, "reasons": ["it is slow"], "loops": loops });
        let document = json!({ "generator": generator, "warnings": [] });
        let of_step = Loaded::of(Tool::Capacity, &json!({ "steps": [document] })).warnings;
        let warned = Loaded::of(Tool::Viewers, &document).warnings;
        assert_eq!(of_step, warned);
        warned
    };
    assert_eq!(warned(0.9), ["load: it is slow"]);
    let pause = "load: a loop of the generator stood still for 3.2 s";
    assert_eq!(warned(3.21), ["load: it is slow", pause]);
}

#[test]
fn output_of_other_tools_is_read() {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("page.bin"), [7; 4096]).unwrap();
    let server = Server::start(headwater(), ["--vod", root.path().to_str().unwrap()]);
    let page = server.url("/vod/page.bin");
    let arguments =
        |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    // By default wrk counts answers that take 2 s as errors.
    let patient = ["-t", "1", "-c", "2", "-d", "1", "--timeout", "60s", "--latency", &page];
    for (tool, words) in
        [(Tool::Ab, vec!["-n", "200", "-c", "2", &page]), (Tool::Wrk, patient.into())]
    {
        let output = Program::output(Command::new(tool.name()).args(&words), LIMIT);
        let text = String::from_utf8(output).unwrap();
        let metrics = tool.parse(&text, &arguments(&words)).unwrap();
        assert_eq!(metrics["clients"], 2.0, "{text}");
        assert_eq!(metrics["errors"], 0.0, "{text}");
        assert!(metrics["requests"] >= 20.0, "{text}");
        assert!(metrics["requests_per_second"] > 10.0, "{text}");
        let [p50, p90] = ["latency_p50_ms", "latency_p90_ms"].map(|name| metrics[name]);
        assert!(p50 <= p90 && p90 < 90_000.0, "{text}");
        let has_p99 = metrics.contains_key("latency_p99_ms");
        assert_eq!(has_p99, metrics["responses"] >= 100.0, "{text}");
        assert!(metrics["kb_per_second"] > 0.0, "{text}");
        assert!(tool.parse("nothing of the kind", &[]).is_err());
    }
    let nothing = server.url("/nothing");
    let words = ["-n", "20", "-c", "2", &nothing];
    let output = Program::output(Command::new("ab").args(words), LIMIT);
    let text = String::from_utf8(output).unwrap();
    let metrics = Tool::Ab.parse(&text, &arguments(&words)).unwrap();
    assert_eq!((metrics["responses"], metrics["errors"]), (20.0, 20.0), "{text}");
}

/// The steps after it were not run, so the capacity may be too low.
#[test]
fn a_capacity_that_lost_an_agent_is_not_trusted() {
    let document = json!({ "capacity": 300, "steps": [], "lost": "agent b in this step" });
    let loaded = Loaded::of(Tool::Capacity, &document);
    assert!(loaded.saturated);
    assert_eq!(loaded.warnings, ["load: lost agent b in this step"]);
    assert!(!Loaded::of(Tool::Capacity, &json!({ "capacity": 300, "steps": [] })).saturated);
}
