//! The listener of operators, and how little of it viewers have.

use testkit::http::{Client, Response};
use testkit::{NO_ARGUMENTS, Server, http};

use crate::support::{BINARY, LIMIT, ask, server};

/// What is for operators.
const OPERATORS: [&str; 7] = [
    "/",
    "/nodes",
    "/metrics",
    "/api/v1/streams",
    "/api/v1/sessions",
    "/api/v1/events",
    "/api/v1/cluster",
];

fn through_a_proxy(server: &Server, path: &str) -> Response {
    ask(server, "GET", path, &[("X-Forwarded-For", "127.0.0.1")], b"")
}

#[test]
fn viewers_have_no_dashboard_no_lists_and_no_metrics() {
    let (_folder, server) = server("");
    for path in OPERATORS {
        let answer = through_a_proxy(&server, path);
        assert_eq!(answer.status(), 403, "{path}");
        assert!(answer.text().contains("control.listen"), "{path}: {}", answer.text());
    }
    for path in ["/watch/live/x", "/api/v1/time", "/healthz", "/readyz", "/api/v1/openapi.json"] {
        assert_eq!(through_a_proxy(&server, path).status(), 200, "{path}");
    }
    assert_eq!(through_a_proxy(&server, "/api/v1/streams/live/x").status(), 404);
    // At its own listener, whoever reaches it has all of it, and media, too.
    let at = server.control.unwrap();
    for path in ["/", "/metrics", "/api/v1/streams", "/api/v1/sessions", "/watch/live/x"] {
        let mut client = Client::connect(at, LIMIT).unwrap();
        client.send("GET", path, &[("X-Forwarded-For", "192.0.2.1")], b"").unwrap();
        assert_eq!(client.receive().unwrap().status(), 200, "{path}");
    }
    server.put("a.txt", b"a file");
    assert_eq!(http::get(at, "/vod/a.txt").text(), "a file");
}

#[test]
fn addresses_that_may_administer_have_all_of_it_at_the_public_listener() {
    let nobody = Server::configured(BINARY, "[control]\nadmin = []\n", NO_ARGUMENTS);
    let everybody = Server::configured(BINARY, "", NO_ARGUMENTS);
    for path in ["/", "/metrics", "/api/v1/streams", "/api/v1/sessions"] {
        assert_eq!(nobody.get(path).status(), 403, "{path}");
        assert_eq!(everybody.get(path).status(), 200, "{path}");
    }
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
    let wrong = ask(&server, "POST", "/api/v1/streams", &[], b"");
    assert_eq!((wrong.status(), wrong.header("Allow")), (405, Some("GET,HEAD")));
    assert_eq!(wrong.header("Content-Type"), Some("application/problem+json"));
}

/// Nobody asked for the default address, so another server may have it.
#[test]
fn the_default_address_may_be_taken() {
    let first = ["--control", "127.0.0.1:8081"];
    let servers = [(); 2].map(|()| Server::configured(BINARY, "", first));
    let took = |server: &Server| {
        assert_eq!(server.control, None, "the ready line is as it was");
        !server.log().contains("no listener for the control plane")
    };
    assert!(servers.iter().filter(|server| took(server)).count() <= 1);
    assert!(servers.iter().all(|server| server.get("/healthz").status() == 200));
}
