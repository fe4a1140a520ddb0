//! Where viewers go, and what is told of the nodes.

use testkit::{Nats, eventually, http};

use crate::support::{LIMIT, node, node_with};

#[test]
fn viewers_are_sent_to_the_nodes_that_say_where_they_are() {
    let nats = Nats::start();
    let a = node(&nats, "a");
    let told = |zone: &str| format!("advertise = \"http://{zone}.example\"\nzone = \"{zone}\"\n");
    let (eu, us) = (node_with(&nats, "b", &told("eu")), node_with(&nats, "c", &told("us")));
    let nodes = || http::get(a.http, "/api/v1/cluster").text().to_owned();
    eventually(LIMIT, "a knows all", || {
        ["\"a\"", "\"b\"", "\"c\""].iter().all(|it| nodes().contains(it))
    });
    let route = |path: &str| {
        let answer = http::get(a.http, path);
        (answer.status(), answer.header("location").unwrap_or_default().to_owned())
    };
    let sent = |to: &str| (307, to.to_owned());
    let index = "/route/live/x/index.m3u8";
    assert_eq!(
        route(&format!("{index}?zone=us&a=b")),
        sent("http://us.example/live/x/index.m3u8?a=b")
    );
    assert_eq!(route(&format!("{index}?zone=eu")), sent("http://eu.example/live/x/index.m3u8"));
    assert_eq!(route("/route/other/x").0, 404);
    // A node that drains gets no further viewers, before it has ended.
    drop(us);
    eventually(LIMIT, "c leaves", || {
        route(&format!("{index}?zone=us")) == sent("http://eu.example/live/x/index.m3u8")
    });
    drop(eu);
}

#[test]
fn without_a_cluster_a_viewer_stays() {
    let alone = testkit::Server::start(env!("CARGO_BIN_EXE_headwater"), testkit::NO_ARGUMENTS);
    let answer = http::get(alone.http, "/route/live/x/index.m3u8?zone=eu");
    assert_eq!((answer.status(), answer.header("location")), (307, Some("/live/x/index.m3u8")));
    assert_eq!(http::get(alone.http, "/api/v1/cluster").status(), 404);
}
