//! The metrics are those that the documents, the dashboard and the alert rules name.

use std::collections::BTreeSet;
use std::process::Command;

use testkit::http::Client;
use testkit::{Program, Server, certificate, demo_clip, eventually};

use super::{BINARY, LIMIT, watch};

/// All names of metrics in a text. Histograms have three, of which the common part counts.
fn names(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let found = text.match_indices("headwater_").map(|(at, _)| {
        let name = text[at..].split(|c| !is_part(c)).next().unwrap();
        let mut parts = ["_bucket", "_sum", "_count"].into_iter();
        parts.find_map(|part| name.strip_suffix(part)).unwrap_or(name).to_owned()
    });
    found.collect()
}

/// The names of all samples in an answer.
fn samples(metrics: &str) -> BTreeSet<String> {
    names(&metrics.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n"))
}

/// A server of which everything is used that has metrics, except a cluster and a store.
#[test]
fn what_documents_and_dashboards_name_exists() {
    let folder = tempfile::tempdir().unwrap();
    let [pem, key] = ["cert.pem", "key.pem"].map(|name| folder.path().join(name));
    certificate::make("metrics", &pem, &key);
    let rule = "[[access.rule]]\nactions = [\"publish\"]\nkey = \"a long enough key\"\n";
    let options = certificate::table(&pem, &key) + rule;
    let server = Server::configured(BINARY, &options, ["--demo"]);
    watch(&server);
    let publisher = format!("{}?key=a%20long%20enough%20key", server.rtmp_url("live/x"));
    let _publisher = testkit::publish_looped(demo_clip(), &publisher);
    let mut ffmpeg = Command::new("ffmpeg");
    let url = server.rtmp_url("live/demo");
    let _player =
        Program::spawn(ffmpeg.args(["-v", "error", "-i", &url, "-c", "copy", "-f", "null", "-"]));
    let mut push = testkit::push::Client::connect(server.http, "/live/demo/push");
    let mut client = Client::connect(server.http, LIMIT).unwrap();
    let refused = ("POST", "/live/y/whip");
    let answer = client.ask(refused.0, refused.1, &[("Content-Type", "application/sdp")], b"v=0");
    assert_eq!(answer.status(), 401);

    let documented = include_str!("../../../../docs/metrics.md");
    let (always, sometimes) = documented.split_once("Only in a cluster:").unwrap();
    let once = ["headwater_push_violations_total".to_owned()];
    let wanted: BTreeSet<_> = names(always).into_iter().filter(|it| !once.contains(it)).collect();
    let mut missing = BTreeSet::new();
    let mut real = BTreeSet::new();
    eventually(LIMIT, "all metrics that are documented", || {
        let beacon = b"sid=\"one\",sf=h,bl=2100,mtp=25000,br=900,msd=700,bs";
        assert_eq!(client.ask("POST", "/live/demo/cmcd", &[], beacon).status(), 204);
        let _ = push.next();
        real = samples(server.metrics().text());
        let lacks: BTreeSet<_> = wanted.difference(&real).cloned().collect();
        if missing != lacks {
            eprintln!("missing: {lacks:?}");
            missing = lacks;
        }
        missing.is_empty()
    });
    let extra: Vec<_> = real.difference(&wanted).collect();
    assert!(extra.is_empty(), "not in docs/metrics.md: {extra:?}");

    // What this server does not have is at least in the code.
    let code = include_str!("../../src/metrics/mod.rs");
    for name in names(sometimes).iter().chain(&once) {
        let stem = name.trim_start_matches("headwater_").trim_end_matches("_total");
        let stem = stem.trim_end_matches("_bytes");
        assert!(code.contains(&format!("\"{stem}\"")), "{name}");
    }
    let deploy = [
        include_str!("../../../../deploy/grafana/headwater.json"),
        include_str!("../../../../deploy/prometheus/alerts.yml"),
        include_str!("../../../../deploy/prometheus/alerts_test.yml"),
    ];
    for text in deploy {
        let unknown: Vec<_> = names(text).into_iter().filter(|it| !real.contains(it)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }
}
