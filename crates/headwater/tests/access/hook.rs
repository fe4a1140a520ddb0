//! A server that decides.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

use crate::support::{LIMIT, aiortc, play, publish, server, status, wait_for};

/// The server of these tests may be late to answer: a busy machine holds it up.
pub(crate) const PATIENT: &str = "timeout = \"60s\"\n";

/// A server that answers each request as `decide` says: with a status, or not at all.
pub(crate) fn hook(
    decide: impl Fn(&Value) -> Option<u16> + Send + 'static,
) -> (SocketAddr, Arc<Mutex<Vec<Value>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let asked: Arc<Mutex<Vec<Value>>> = Arc::default();
    let noted = Arc::clone(&asked);
    thread::spawn(move || {
        let mut silent = Vec::new();
        for socket in listener.incoming() {
            let mut reader = BufReader::new(socket.unwrap());
            let mut length = 0;
            for line in reader.by_ref().lines() {
                let line = line.unwrap().to_lowercase();
                if let Some(value) = line.strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                if line.is_empty() {
                    break;
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let question: Value = serde_json::from_slice(&body).unwrap();
            let decided = decide(&question);
            noted.lock().unwrap().push(question);
            let mut socket = reader.into_inner();
            match decided {
                Some(status) => {
                    let head = format!(
                        "HTTP/1.1 {status} x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                    );
                    let _ = socket.write_all(head.as_bytes());
                }
                None => silent.push(socket),
            }
        }
    });
    (address, asked)
}

#[test]
fn a_server_decides_about_each_protocol() {
    let (address, asked) = hook(|question| {
        let is_key = question["password"] == "k" || question["user"] == "alice";
        Some(if is_key { 204 } else { 401 })
    });
    let (_folder, server) = server(&format!(
        "[access]\nmax_failures = 0\n[access.webhook]\nurl = \"http://{address}/hook?a=1\"\n{PATIENT}"
    ));
    assert!(!publish(&server, "live/cam?key=no").wait(LIMIT).status.success());
    let _publisher = publish(&server, "live/cam?key=k");
    wait_for(&server, "/live/cam/index.m3u8?key=k");
    assert!(play(&server.rtmp_url("live/cam?user=alice"), &[]).status.success());
    assert!(!play(&server.rtmp_url("live/cam"), &[]).status.success());
    assert_eq!(status(&server, "/live/cam/index.m3u8", &[]), 401);
    assert_eq!(status(&server, "/live/cam/index.m3u8?key=x", &[]), 403);
    let whip = aiortc("publish", &server.url("/live/cam2/whip?key=k"));
    wait_for(&server, "/live/cam2/index.m3u8?key=k");
    whip.terminate();
    let asked = asked.lock().unwrap();
    let find = |protocol: &str, action: &str| {
        let found = asked.iter().find(|it| it["protocol"] == protocol && it["action"] == action);
        found.unwrap_or_else(|| panic!("{protocol} {action}: {asked:?}"))
    };
    assert_eq!(find("rtmp", "publish")["path"], "live/cam");
    assert_eq!(find("rtmp", "publish")["ip"], "127.0.0.1");
    assert_eq!(find("rtmp", "play")["user"], "alice");
    assert_eq!(find("http", "play")["query"], "key=k");
    assert_eq!(find("whip", "publish")["path"], "live/cam2");
}

#[test]
fn a_server_that_does_not_decide_lets_nobody_in_and_disturbs_nobody() {
    // It answers the publisher, and then no more.
    let (address, _) = hook(|question| match question["query"].as_str() {
        Some("key=redirect") => Some(302),
        Some("key=fails") => Some(500),
        Some("key=hangs") => None,
        _ => Some(200),
    });
    let (_folder, server) = server(&format!(
        "[access]\nmax_failures = 0\n[access.webhook]\nurl = \"http://{address}/\"\ntimeout = \"20s\"\ncache = \"1h\"\n"
    ));
    let _publisher = publish(&server, "live/cam?key=k");
    wait_for(&server, "/live/cam/index.m3u8?key=k");
    let hanging: Vec<_> = (0..20)
        .map(|_| {
            let http = server.http;
            thread::spawn(move || {
                testkit::http::get(http, "/live/cam/index.m3u8?key=hangs").status()
            })
        })
        .collect();
    // Those who were let in go on meanwhile.
    assert_eq!(status(&server, "/live/cam/index.m3u8?key=k", &[]), 200);
    assert!(play(&server.url("/live/cam/live.flv?key=k"), &[]).status.success());
    assert!(hanging.into_iter().all(|it| it.join().unwrap() == 503));
    for query in ["redirect", "fails"] {
        assert_eq!(status(&server, &format!("/live/cam/index.m3u8?key={query}"), &[]), 503);
    }
    let log = server.whole_log();
    assert!(log.contains("the webhook does not decide") && !log.contains("key=hangs"), "{log}");
}

#[test]
fn those_are_let_in_about_whom_nobody_decides_if_the_operator_says_so() {
    // Nobody listens there.
    let port = testkit::Port::find();
    let address = format!("127.0.0.1:{port}");
    let (_folder, server) = server(&format!(
        "[access.webhook]\nurl = \"http://{address}/\"\non_failure = \"allow\"\nactions = [\"play\"]\n"
    ));
    let _publisher = publish(&server, "live/cam");
    wait_for(&server, "/live/cam/index.m3u8");
    let line = server.log_line(LIMIT, |line| line.contains("the webhook does not decide"));
    assert!(line.contains("does=\"allowed\""), "{line}");
}

#[test]
fn whom_the_server_let_in_goes_on_while_others_of_the_address_guess() {
    let (address, asked) =
        hook(|question| Some(if question["password"] == "k" { 200 } else { 403 }));
    let (_folder, server) = server(&format!(
        "[access]\nmax_failures = 3\n[access.webhook]\nurl = \"http://{address}/\"\ncache = \"1h\"\n{PATIENT}"
    ));
    let _publisher = publish(&server, "live/cam?key=k");
    wait_for(&server, "/live/cam/index.m3u8?key=k");
    let statuses: Vec<_> =
        (0..10).map(|n| status(&server, &format!("/live/cam/index.m3u8?key={n}"), &[])).collect();
    assert!(statuses.contains(&403) && statuses.contains(&429), "{statuses:?}");
    // A reload of a low-latency player asks nobody anew.
    // The server asks about the publisher again now and then.
    let anew = || asked.lock().unwrap().iter().filter(|it| it["recheck"] != true).count();
    let before = anew();
    for part in 0..5 {
        let reload = format!("/live/cam/index.m3u8?key=k&_HLS_msn=1&_HLS_part={part}");
        assert_eq!(status(&server, &reload, &[]), 200);
    }
    assert_eq!(anew(), before);
}
