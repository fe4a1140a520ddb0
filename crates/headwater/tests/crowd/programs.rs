//! Load generators by others. The server answers every request, none fails, and both sides count
//! the same.

use std::process::Command;

use testkit::{Program, Server};

use crate::support::{LIMIT, connect, metric, put, start};

/// Bytes of the file that all of them fetch.
const SIZE: usize = 1000;

/// Number of requests for programs that take such a number.
const REQUESTS: u64 = 2000;

fn site() -> (Server, String) {
    let server = start("");
    put(&server, "file.bin", SIZE);
    let url = server.url("/vod/file.bin");
    (server, url)
}

/// Number of requests that the server has answered.
fn answered(server: &Server) -> u64 {
    let mut client = connect(server);
    assert_eq!(metric(&mut client, "headwater_http_bad_requests_total"), 0);
    metric(&mut client, "headwater_http_requests_total")
}

fn run(program: &str, arguments: &[&str]) -> String {
    let finished = Program::spawn(Command::new(program).args(arguments)).wait(LIMIT);
    let output = String::from_utf8_lossy(&finished.stdout).into_owned() + &finished.stderr;
    assert!(finished.status.success(), "{program}: {output}");
    output
}

/// The first number after `label`.
#[track_caller]
fn number(output: &str, label: &str) -> u64 {
    let (_, rest) = output.split_once(label).unwrap_or_else(|| panic!("no {label:?}: {output}"));
    let digits: String =
        rest.trim_start().chars().take_while(|digit| digit.is_ascii_digit()).collect();
    digits.parse().unwrap_or_else(|_| panic!("no number behind {label:?}: {output}"))
}

/// Runs wrk. It must count as many requests as the server, except for those in flight at its end.
fn wrk(script: Option<&str>, in_flight: u64) {
    let (server, url) = site();
    let path = server.folder().join("script.lua");
    // By default wrk counts an answer as an error if it takes longer than two seconds.
    let mut arguments = vec!["-t1", "-c8", "-d1s", "--timeout", "60s"];
    if let Some(script) = script {
        std::fs::write(&path, script).unwrap();
        arguments.extend(["-s", path.to_str().unwrap()]);
    }
    arguments.push(&url);
    let output = run("wrk", &arguments);
    assert!(!output.contains("Socket errors") && !output.contains("Non-2xx"), "{output}");
    let requests = output.lines().find(|line| line.contains(" requests in ")).unwrap();
    let requests: u64 = requests.split_whitespace().next().unwrap().parse().unwrap();
    let served = answered(&server);
    assert!(
        requests > 0 && (requests..=requests + in_flight).contains(&served),
        "{output}{served}"
    );
}

#[test]
fn by_wrk() {
    wrk(None, 8);
}

/// Each write has sixteen requests.
#[test]
fn by_wrk_pipelined() {
    let script = r#"
        init = function(args)
            local requests = {}
            for i = 1, 16 do requests[i] = wrk.format("GET") end
            all = table.concat(requests)
        end
        request = function() return all end
    "#;
    wrk(Some(script), 8 * 16);
}

#[test]
fn by_ab() {
    let (server, url) = site();
    let output = run("ab", &["-q", "-k", "-n", &REQUESTS.to_string(), "-c", "16", &url]);
    assert_eq!(number(&output, "Complete requests:"), REQUESTS);
    assert_eq!(number(&output, "Failed requests:"), 0);
    assert_eq!(number(&output, "Keep-Alive requests:"), REQUESTS, "{output}");
    assert_eq!(number(&output, "HTML transferred:"), REQUESTS * SIZE as u64);
    assert!(!output.contains("Non-2xx"), "{output}");
    assert_eq!(answered(&server), REQUESTS);
    // Each request has a connection of its own.
    let output = run("ab", &["-q", "-n", &REQUESTS.to_string(), "-c", "16", &url]);
    assert_eq!(
        (number(&output, "Complete requests:"), number(&output, "Failed requests:")),
        (REQUESTS, 0)
    );
    assert_eq!(answered(&server), 2 * REQUESTS);
}

#[test]
fn by_httperf() {
    let (server, _) = site();
    let (address, port) = (server.http.ip().to_string(), server.http.port().to_string());
    let fixed = ["--hog", "--uri", "/vod/file.bin", "--num-conns", "50", "--num-calls", "40"];
    let output = run("httperf", &[&["--server", &address, "--port", &port], &fixed[..]].concat());
    assert_eq!(number(&output, "replies"), REQUESTS, "{output}");
    assert_eq!(number(&output, "2xx="), REQUESTS, "{output}");
    assert_eq!(number(&output, "Errors: total"), 0, "{output}");
    assert_eq!(answered(&server), REQUESTS);
}

#[test]
fn by_h2load() {
    let (server, url) = site();
    let output = run("h2load", &["--h1", "-n", &REQUESTS.to_string(), "-c", "16", &url]);
    assert!(output.contains(&format!("{REQUESTS} succeeded, 0 failed, 0 errored")), "{output}");
    assert_eq!(number(&output, "status codes:"), REQUESTS, "{output}");
    assert_eq!(answered(&server), REQUESTS);
}

#[test]
#[ignore = "needs vegeta, which Debian 12 does not have: cargo test --test crowd -- --ignored"]
fn by_vegeta() {
    let (server, url) = site();
    let script = format!(
        "echo 'GET {url}' | vegeta attack -duration=1s -rate=500 | vegeta report -type=text"
    );
    let output = run("sh", &["-c", &script]);
    assert!(output.contains("100.00%") && output.contains("200:500"), "{output}");
    assert_eq!(answered(&server), 500);
}
