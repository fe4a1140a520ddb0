//! NATS servers that do not let everybody in.

use std::path::PathBuf;
use std::process::Command;

use testkit::{Nats, NatsAccount, Program, Server, eventually, http};

use crate::support::{LIMIT, clip, is_unknown, node_with, publish};

/// Whether a node has a stream.
fn has(node: &Server, stream: &str) -> bool {
    http::get(node.http, &format!("/{stream}/v0/media.m3u8")).status() == 200
}

/// A node that the servers refuse serves its own publishers, and says what is wrong. Others share their streams.
fn only_one_is_refused(a: &Server, b: &Server, refused: &Server, secrets: &[&str]) {
    let clip = clip();
    let _publishers = [publish(a, &clip, "live/x"), publish(refused, &clip, "live/y")];
    eventually(LIMIT, "a copy", || has(b, "live/x"));
    eventually(LIMIT, "its own", || has(refused, "live/y"));
    assert_eq!(http::get(refused.http, "/live/x/index.m3u8").status(), 503);
    // A node that has lost its server for a moment does not know it.
    eventually(LIMIT, "b has no y", || is_unknown(b, "/live/y/index.m3u8"));
    refused.log_line(LIMIT, |line| {
        line.contains("authorization violation") && line.contains("nats://127.0.0.1:")
    });
    for node in [a, b, refused] {
        let log = node.whole_log();
        assert!(secrets.iter().all(|secret| !log.contains(secret)), "{log}");
    }
}

#[test]
fn credentials_let_a_node_in() {
    let (account, other) = (NatsAccount::new(), NatsAccount::new());
    let nats = Nats::start_guarded(&account.access());
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| -> PathBuf {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let (right, wrong) = (account.credentials(), other.credentials());
    let node = |name: &str, credentials: &str| {
        let path = file(name, credentials);
        node_with(&nats, name, &format!("credentials = {path:?}\n"))
    };
    let [a, b, c] = [("a", &right), ("b", &right), ("c", &wrong)].map(|(name, it)| node(name, it));
    // The JWT, which may have two dashes in a row, and the seed.
    let secrets = [&right, &wrong].into_iter().flat_map(|text| text.lines());
    let secrets: Vec<_> =
        secrets.filter(|line| line.len() > 50 && !line.starts_with("--")).collect();
    assert_eq!(secrets.len(), 4);
    only_one_is_refused(&a, &b, &c, &secrets);
    let path = folder.path().join("c");
    let log = c.whole_log();
    let mut said = log.lines().filter(|line| line.contains("authorization violation"));
    assert!(said.all(|line| line.contains(path.to_str().unwrap())), "{log}");
    // What is no credentials at all is refused by the node itself.
    let cut = file("cut", &right[..right.len() - 60]);
    let configuration =
        file("toml", &format!("[cluster]\nnats = {:?}\ncredentials = {cut:?}\n", nats.urls()));
    let mut command = Command::new(env!("CARGO_BIN_EXE_headwater"));
    command.args(["serve", "--http", "127.0.0.1:0", "--rtmp", "127.0.0.1:0", "--config"]);
    let ended = Program::spawn(command.arg(configuration)).wait(LIMIT);
    assert!(!ended.status.success());
    let said = format!("cluster.credentials = {}", cut.display());
    assert!(ended.stderr.contains(&said), "{}", ended.stderr);
    assert!(secrets.iter().all(|secret| !ended.stderr.contains(secret)), "{}", ended.stderr);
}

#[test]
fn a_user_or_a_token_in_the_address_lets_a_node_in() {
    for (access, right, wrong) in [
        ("user: ann, password: \"p@ss word\"", "ann:p%40ss%20word", "ann:wr0ng"),
        ("token: \"t0ken/1\"", "t0ken%2F1", "wr0ng"),
    ] {
        let nats = Nats::start_guarded(&format!("authorization {{ {access} }}\n"));
        let node = |name: &str, user: &str| {
            let url = nats.url(0).replace("://", &format!("://{user}@"));
            let text = format!("[cluster]\nnats = [{url:?}]\nnode = \"{name}\"\n");
            // Whatever the library logs, too.
            let environment = [("HEADWATER_LOG", "info,async_nats=trace")];
            Server::with_environment(env!("CARGO_BIN_EXE_headwater"), &text, &environment)
        };
        let (a, b, c) = (node("a", right), node("b", right), node("c", wrong));
        let secrets = ["p@ss", "p%40ss", "t0ken", "wr0ng"];
        only_one_is_refused(&a, &b, &c, &secrets);
    }
}
