//! HTTP/2 and TLS: the general client counts and checks like the other one.

use super::compare::Nginx;
use super::{count, finish, run};

fn https(nginx: &Nginx, path: &str) -> String {
    format!("https://localhost:{}{path}", nginx.port)
}

#[track_caller]
fn assert_good(document: &serde_json::Value, requests: u64, protocol: &str) {
    assert_eq!(count(document, "/counters/responses"), requests, "{document:#}");
    assert_eq!(count(document, "/counters/errors"), 0, "{document:#}");
    assert_eq!(count(document, "/counters/body_bytes"), requests * 4096, "{document:#}");
    assert_eq!(document["protocol"], protocol);
    assert_eq!(document["general_client"], true);
}

#[test]
fn http_1_over_tls() {
    let nginx = Nginx::start("ssl");
    let url = https(&nginx, "/4k");
    let common = ["--requests", "200", "--connections", "4", "--insecure"];
    let document = run(&[&[url.as_str()], &common[..]].concat());
    assert_good(&document, 200, "HTTP/1.1");
    assert_eq!(count(&document, "/counters/connections"), 4);
    let document = run(&[&[url.as_str(), "--no-keepalive"], &common[..]].concat());
    assert_good(&document, 200, "HTTP/1.1");
    assert_eq!(count(&document, "/counters/connections"), 200);
    let authorities = nginx.file("certificate.pem");
    let document = run(&[&url, "--requests", "20", "--authorities", &authorities]);
    assert_good(&document, 20, "HTTP/1.1");
}

#[test]
fn http_2_over_tls_and_without() {
    let nginx = Nginx::start("ssl http2");
    let url = https(&nginx, "/4k");
    let common =
        ["--requests", "200", "--connections", "2", "--pipeline", "10", "--http2", "--insecure"];
    let document = run(&[&[url.as_str()], &common[..]].concat());
    assert_good(&document, 200, "HTTP/2");
    assert_eq!(count(&document, "/counters/connections"), 2);
    let nginx = Nginx::start("http2");
    let document = run(&[&[nginx.url("/4k").as_str()], &common[..]].concat());
    assert_good(&document, 200, "HTTP/2");
}

#[test]
fn heads_and_frames_are_counted() {
    for (listen, http2) in [("ssl", false), ("ssl http2", true), ("http2", true)] {
        let nginx = Nginx::start(listen);
        let url = if listen == "http2" { nginx.url("/1m") } else { https(&nginx, "/1m") };
        let mut arguments =
            vec![url.as_str(), "--requests", "50", "--connections", "2", "--insecure"];
        arguments.extend(http2.then_some("--http2"));
        let document = run(&arguments);
        let [answers, sent, bodies, asked] = nginx.sent_since(0, 50);
        assert_eq!((answers, bodies), (50, count(&document, "/counters/body_bytes")));
        // For HTTP/2, nginx counts only the bytes of streams. Settings, windows and the preface are
        // not included.
        let besides = if http2 { 2 * 100 } else { 0 };
        let heads = count(&document, "/counters/head_bytes");
        let least = sent - bodies;
        assert!((least..=least + besides).contains(&heads), "{listen}: {heads}, nginx {least}");
        let ours = count(&document, "/counters/sent_bytes");
        if http2 {
            // nginx counts before header compression. Windows are opened 50 MB wide in all.
            assert!(ours > 50 * 9 && ours < 50 * 500, "{listen}: {ours}, nginx {asked}");
        } else {
            assert_eq!(ours, asked);
        }
    }
}

#[test]
fn a_redirection_to_https_is_followed_where_tls_is_in_play() {
    let secure = Nginx::start("ssl http2");
    // To the host of the target: other names are not looked up during a run.
    let to = secure.url("/4k").replace("http://", "https://");
    let moved = format!("rewrite ^/moved {to} redirect");
    let plain = Nginx::start(&format!("http2; {moved}"));
    let common = ["--requests", "40", "--connections", "4", "--insecure"];
    let document = run(&[&[&*plain.url("/moved"), "--http2"], &common[..]].concat());
    // This includes the bodies of the redirections.
    assert_eq!(count(&document, "/statuses/200"), 40, "{document:#}");
    assert_eq!(count(&document, "/counters/redirects"), 40);
    assert_eq!(document["protocol"], "HTTP/2");
    // One https:// URL among the targets is enough.
    let plain = Nginx::start(&format!("; {moved}"));
    let document = run(&[&[&*plain.url("/moved"), &to], &common[..]].concat());
    assert_eq!(count(&document, "/statuses/200"), 40, "{document:#}");
    assert_eq!(count(&document, "/counters/redirects"), 20);
    // The client for plain HTTP/1.1 cannot follow, and the error says what to do.
    let document = run(&[&plain.url("/moved"), "--requests", "10"]);
    let first = document.pointer("/errors/bad_redirect/first").unwrap().as_str().unwrap();
    assert!(first.contains(&format!("{to}: ask for that URL itself")), "{first}");
    assert_eq!(count(&document, "/errors/bad_redirect/count"), 10);
}

#[test]
fn an_open_loop_ranges_and_a_check() {
    let nginx = Nginx::start("ssl http2");
    let file = nginx.file("www/1m");
    let document = run(&[
        &https(&nginx, "/1m"),
        "--rate",
        "100",
        "--duration",
        "1s",
        "--range-size",
        "4096",
        "--check",
        &file,
        "--http2",
        "--insecure",
    ]);
    assert_good(&document, 100, "HTTP/2");
    assert_eq!(count(&document, "/statuses/206"), 100);
    assert_eq!(count(&document, "/generator/lag/count"), 100);
}

#[test]
fn a_certificate_that_is_not_trusted_is_a_fault() {
    let nginx = Nginx::start("ssl");
    let document = run(&[&https(&nginx, "/4k"), "--requests", "10", "--connections", "2"]);
    // The system trusts no authority, which is reported before the run.
    assert_eq!(count(&document, "/errors/tls/count"), 10, "{document:#}");
    assert_eq!(document["exit_status"], 1);
}

#[test]
fn a_server_without_http_2_is_found_out() {
    let nginx = Nginx::start("ssl");
    let arguments = ["--requests", "10", "--http2", "--insecure", "--connections", "1"];
    let document = run(&[&[https(&nginx, "/4k").as_str()], &arguments[..]].concat());
    assert_eq!(count(&document, "/errors/tls/count"), 10, "{document:#}");
}

#[test]
fn a_file_without_certificates_is_refused() {
    let nginx = Nginx::start("");
    let file = nginx.file("www/4k");
    let finished = finish(&["https://localhost:1/", "--authorities", &file]);
    assert_eq!(finished.status.code(), Some(2));
    assert!(finished.stderr.contains("no certificate in it"), "{}", finished.stderr);
}
