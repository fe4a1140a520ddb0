//! `limit://`: a number of bytes for one byte, from `baseline limit`.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use testkit::{Program, built};

use super::server::{Server, pattern};
use super::{LIMIT, count, finish, number, run};

struct Limit {
    url: String,
    file: PathBuf,
    _program: Program,
    _folder: tempfile::TempDir,
}

impl Limit {
    fn start(bytes: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, pattern(bytes)).unwrap();
        static BASELINE: OnceLock<PathBuf> = OnceLock::new();
        let baseline = BASELINE.get_or_init(|| built("baselines", "baseline"));
        let mut command = Command::new(baseline);
        command.args(["limit", "--listen", "127.0.0.1:0", "--file"]).arg(&file);
        let program = Program::spawn(&mut command);
        let ready = program.stdout_line(LIMIT, |_| true);
        let url = format!("limit://{}", ready.trim().strip_prefix("ready http=").unwrap());
        Self { url, file, _program: program, _folder: folder }
    }
}

#[test]
fn every_byte_asked_for_and_sent_is_counted() {
    for bytes in [100, 65_536, 3_000_001] {
        let limit = Limit::start(bytes);
        let size = bytes.to_string();
        for arguments in [
            &["--connections", "4"][..],
            &["--connections", "3", "--range-size", &size, "--threads", "2"],
            &["--connections", "2", "--pipeline", "8"],
            &["--rate", "200", "--connections", "4"],
            &["--connections", "4", "--check", limit.file.to_str().unwrap()],
        ] {
            let document = run(&[&[&*limit.url, "--requests", "100"], arguments].concat());
            for (path, expected) in [
                ("/counters/responses", 100),
                ("/counters/errors", 0),
                ("/counters/body_bytes", 100 * bytes as u64),
                ("/counters/head_bytes", 0),
                ("/counters/sent_bytes", 100),
                ("/first_byte/count", 100),
            ] {
                assert_eq!(count(&document, path), expected, "{arguments:?} {document:#}");
            }
            assert!(count(&document, "/counters/connections") <= 4);
            assert_eq!(document["protocol"], "limit");
            assert_eq!(document["statuses"], serde_json::json!({}));
            let (first, last) = ("/first_byte/max", "/last_byte/max");
            assert!(number(&document, "/first_byte/min") > 0.0);
            assert!(number(&document, first) <= number(&document, last) * 1.001);
        }
    }
}

#[test]
fn a_connection_for_each_byte() {
    let limit = Limit::start(10_000);
    let document = run(&[&limit.url, "--requests", "50", "--no-keepalive"]);
    assert_eq!(count(&document, "/counters/responses"), 50, "{document:#}");
    assert_eq!(count(&document, "/counters/connections"), 50);
}

#[test]
fn unexpected_responses_are_reported_before_the_run() {
    let limit = Limit::start(1000);
    let http = Server::start(&[]);
    for (arguments, reason) in [
        (
            &[&*limit.url, "--range-size", "999"][..],
            "1000 bytes or more were sent for one, not 999",
        ),
        (&[&limit.url, "--range-size", "2000"], "1000 bytes were sent for one, not 2000"),
        (&[&limit.url, &http.url("/ok")], "cannot be asked for in one run"),
        (&[&limit.url, "--http2"], "--http2 has no meaning"),
        (&[&http.url("/ok").replace("http", "limit")], "limit:// has no paths"),
        (&["limit://127.0.0.1:1"], "refused"),
    ] {
        let finished = finish(arguments);
        assert_eq!(finished.status.code(), Some(2), "{}", finished.stderr);
        assert!(finished.stderr.contains(reason), "{reason}: {}", finished.stderr);
    }
}

#[test]
fn another_file_than_the_one_expected_is_found() {
    let limit = Limit::start(10_000);
    let other = limit.file.with_file_name("other");
    let mut bytes = pattern(10_000);
    bytes[777] ^= 1;
    std::fs::write(&other, bytes).unwrap();
    let document = run(&[&limit.url, "--requests", "5", "--check", other.to_str().unwrap()]);
    assert_eq!(count(&document, "/errors/corrupt/count"), 5, "{document:#}");
    assert_eq!(document["exit_status"], 1);
}
