//! The listener of operators, and how little of it viewers have.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use testkit::http::Client;
use testkit::{NO_ARGUMENTS, Server, http};

use crate::support::{BINARY, LIMIT, ask, operated, server};

/// What is for operators.
const OPERATORS: [&str; 11] = [
    "/",
    "/nodes",
    "/metrics",
    "/api/v1/streams",
    "/api/v1/sessions",
    "/api/v1/titles",
    "/api/v1/titles/vod/x.mp4",
    "/api/v1/posters/vod/x.mp4",
    "/api/v1/events",
    "/api/v1/log",
    "/api/v1/cluster",
];

/// The status of a request with these header fields.
#[track_caller]
fn status(at: SocketAddr, path: &str, fields: &[&str]) -> u16 {
    let host = format!("Host: {at}");
    let named = fields.iter().any(|field| field.starts_with("Host:"));
    let fields = fields.iter().copied().chain((!named).then_some(&*host));
    let fields = fields.collect::<Vec<_>>().join("\r\n");
    let mut client = Client::connect(at, LIMIT).unwrap();
    client.send_raw(format!("GET {path} HTTP/1.1\r\n{fields}\r\n\r\n").as_bytes()).unwrap();
    client.receive().unwrap().status()
}

#[test]
fn viewers_have_no_dashboard_no_lists_and_no_metrics() {
    let server = operated("");
    let at = server.control.unwrap();
    for path in OPERATORS {
        let answer = server.get(path);
        assert_eq!(answer.status(), 403, "{path}");
        assert!(answer.text().contains("control.listen"), "{path}: {}", answer.text());
    }
    assert_eq!(ask(&server, "DELETE", "/api/v1/sessions/1", &[], b"").status(), 404);
    for path in ["/watch/live/x", "/api/v1/time", "/healthz", "/readyz", "/api/v1/openapi.json"] {
        assert_eq!(server.get(path).status(), 200, "{path}");
    }
    assert_eq!(server.get("/api/v1/streams/live/x").status(), 404);
    // The operators' listener has all of it, and media, too, but not for pages of other sites.
    for path in ["/", "/metrics", "/api/v1/streams", "/api/v1/sessions", "/watch/live/x"] {
        assert_eq!(http::get(at, path).status(), 200, "{path}");
    }
    for path in OPERATORS {
        for field in [
            "Origin: http://elsewhere.example",
            "Sec-Fetch-Site: cross-site",
            "Host: rebound.example",
        ] {
            assert_eq!(status(at, path, &[field]), 403, "{path} {field}");
        }
    }
    server.put("a.txt", b"a file");
    assert_eq!(http::get(at, "/vod/a.txt").text(), "a file");
}

/// As it was before there was another listener.
#[test]
fn at_the_default_address_this_machine_has_it_at_the_public_listener() {
    let (_folder, server) = server("");
    let nobody = Server::configured(BINARY, "[control]\nadmin = []\n", NO_ARGUMENTS);
    for path in ["/", "/metrics", "/api/v1/streams", "/api/v1/sessions", "/api/v1/history"] {
        assert_eq!(server.get(path).status(), 200, "{path}");
        assert_eq!(nobody.get(path).status(), 403, "{path}");
        for field in
            ["X-Forwarded-For: 127.0.0.1", "Origin: http://elsewhere.example", "Host: live.example"]
        {
            assert_eq!(status(server.http, path, &[field]), 403, "{path} {field}");
        }
    }
    assert_eq!(ask(&server, "DELETE", "/api/v1/sessions/1", &[], b"").status(), 404);
}

/// The first line of the answer to a request of HTTP/1.0 with these header fields.
#[track_caller]
fn old_status(at: SocketAddr, path: &str, fields: &str) -> String {
    let mut socket = TcpStream::connect(at).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    socket.write_all(format!("GET {path} HTTP/1.0\r\n{fields}\r\n").as_bytes()).unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned()
}

/// HTTP/1.0 needs no `Host`, and some programs that collect metrics send none.
#[test]
fn programs_need_not_name_a_host() {
    let named = operated("[control]\nhosts = [\"ops.example\"]\n");
    let (_folder, public) = server("");
    for path in ["/metrics", "/api/v1/streams"] {
        for (at, fields, expected) in [
            (named.control.unwrap(), "", "200 OK"),
            (named.control.unwrap(), "Host: ops.example\r\n", "200 OK"),
            (named.control.unwrap(), "Host: other.example\r\n", "403 Forbidden"),
            (named.control.unwrap(), "Origin: http://elsewhere.example\r\n", "403 Forbidden"),
            (named.control.unwrap(), "Origin: null\r\n", "403 Forbidden"),
            (named.control.unwrap(), "Sec-Fetch-Site: cross-site\r\n", "403 Forbidden"),
            (public.http, "", "200 OK"),
            (public.http, "X-Forwarded-For: 192.0.2.1\r\n", "403 Forbidden"),
        ] {
            let found = old_status(at, path, fields);
            assert!(found.ends_with(expected), "{path} {fields}: {found}");
        }
    }
}

/// A proxy in front of the operators' listener.
#[test]
fn operators_come_by_the_names_that_are_configured() {
    let server = operated("[control]\nhosts = [\"Ops.example\"]\n");
    let at = server.control.unwrap();
    let asks = |name: &str| {
        status(at, "/api/v1/streams", &[&format!("Host: {name}"), "X-Forwarded-For: 192.0.2.1"])
    };
    assert_eq!(
        [asks("ops.example"), asks("ops.example:8443"), asks("other.example")],
        [200, 200, 403]
    );
}

#[test]
fn errors_of_the_api_are_problem_details() {
    let (_folder, server) = server("");
    for (path, status, detail) in [
        ("/api/v1/streams/live/none", 404, "no such stream"),
        ("/api/v1/none", 404, "no such page"),
        ("/api/v1/sessions?ended=maybe", 400, "action is publish or play"),
        ("/route/none", 404, "no such stream"),
    ] {
        let answer = server.get(path);
        assert_eq!(answer.status(), status, "{path}");
        assert_eq!(answer.header("Content-Type"), Some("application/problem+json"), "{path}");
        let told: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(told["status"], status, "{path}");
        assert!(told["detail"].as_str().unwrap().starts_with(detail), "{path}: {told}");
    }
    // A request that never gets there is refused with a line of text.
    let refused = server.get("/api/v1/../streams");
    assert_eq!(refused.status(), 404);
    assert_eq!(refused.header("Content-Type"), Some("text/plain; charset=utf-8"));
    let wrong = ask(&server, "POST", "/api/v1/streams", &[], b"");
    assert_eq!((wrong.status(), wrong.header("Allow")), (405, Some("GET,HEAD")));
    assert_eq!(wrong.header("Content-Type"), Some("application/problem+json"));
}

/// Nobody asked for the default address, so another server may have it.
#[test]
fn the_default_address_may_be_taken() {
    let servers = [(); 2].map(|()| Server::configured(BINARY, "", NO_ARGUMENTS));
    let took = |server: &Server| {
        assert_eq!(server.control, None, "the ready line is as it was");
        // The log may come later than the ready line. This line of it is after the other.
        server.log_line(LIMIT, |line| line.contains("ready http="));
        !server.log().contains("no listener for the control plane")
    };
    assert!(servers.iter().filter(|server| took(server)).count() <= 1);
    assert!(servers.iter().all(|server| server.get("/healthz").status() == 200));
}
