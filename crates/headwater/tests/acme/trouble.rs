//! What goes wrong, and how the server goes on.

use std::fs;
use std::path::Path;

use testkit::{NO_ARGUMENTS, Server, eventually, write_program};

use crate::support::{ANY, Authority, BINARY, LIMIT, LONG, configuration, shown, until_shown};

const DOMAIN: &str = "example.org";

/// A server with this directory, and what it says of its first failure.
fn failing(authority: &Authority, directory: &str, domain: &str) -> (Server, String) {
    let (own, storage) = (authority.own(), authority.storage());
    let configuration = configuration(&[domain], ANY, directory, &own, &storage);
    let server = authority.by_http_as(&configuration);
    let said = server.log_line(LIMIT, |line| line.contains("no new certificate"));
    (server, said)
}

#[test]
fn without_a_certificate_handshakes_are_refused_and_all_else_works() {
    let mut authority = Authority::prepared(LONG);
    let (server, said) = failing(&authority, &authority.directory(), DOMAIN);
    assert!(said.contains("Connection refused") && said.contains("again_in=10s"), "{said}");
    for address in [server.https.unwrap(), server.rtmps.unwrap()] {
        let refused = shown(address, DOMAIN, &authority.root());
        assert_eq!(refused.certificate, "");
    }
    assert_eq!(server.get("/healthz").status(), 200);
    for _ in 0..20 {
        shown(server.https.unwrap(), DOMAIN, &authority.root());
    }
    let failed = || server.metric("headwater_http_tls_handshakes_failed_total");
    eventually(LIMIT, "all refused handshakes are counted", || failed() == 21);
    let log = server.whole_log();
    let told = log.matches("there is no certificate yet").count();
    assert!((1..20).contains(&told), "{log}");

    authority.run();
    until_shown(&server, DOMAIN, &authority, "");
}

#[test]
fn answers_that_are_none() {
    let authority = Authority::start(LONG);
    for (directory, domain, what) in [
        (authority.managed("/nothing"), DOMAIN, "the status of the answer is 404"),
        (authority.managed("/roots/0"), DOMAIN, "JSON"),
        (authority.directory(), "blocked.example", "rejectedIdentifier"),
    ] {
        let (server, said) = failing(&authority, &directory, domain);
        assert!(said.contains(what), "{said}");
        assert_eq!(server.get("/healthz").status(), 200);
        server.stop(LIMIT);
    }
}

#[test]
fn a_server_that_the_authority_does_not_reach_is_told_why_by_both_ways() {
    let authority = Authority::start(LONG);
    let configuration = authority.configuration(&[DOMAIN], ANY);
    let server = Server::configured(BINARY, &configuration, NO_ARGUMENTS);
    let said = server.log_line(LIMIT, |line| line.contains("example.org by HTTP-01: "));
    assert!(said.contains("again_in=10s") && said.contains("refused"), "{said}");
    let said = server.log_line(LIMIT, |line| line.contains("example.org by TLS-ALPN-01: "));
    assert!(said.contains("again_in=40s") && said.contains("Failed to connect"), "{said}");
    assert_eq!(server.get("/healthz").status(), 200);
}

#[test]
fn used_though_it_cannot_be_written_and_written_later() {
    let authority = Authority::start(LONG);
    // A file where the folder should be.
    fs::write(authority.storage(), "").unwrap();
    let server = authority.by_http(&[DOMAIN]);
    until_shown(&server, DOMAIN, &authority, "");
    let said = server.log_line(LIMIT, |line| line.contains("cannot be written"));
    assert!(said.contains("storage") && said.contains("Not a directory"), "{said}");
    fs::remove_file(authority.storage()).unwrap();
    let is_kept = |name| authority.kept(name).is_file();
    eventually(LIMIT, "both are kept", || is_kept("certificate.pem") && is_kept("account.json"));
}

/// The disk is a small one that only the server sees, in a namespace of its own.
#[test]
fn used_though_the_disk_is_full_and_written_when_it_has_room() {
    let authority = Authority::start(LONG);
    let storage = authority.storage();
    fs::create_dir(&storage).unwrap();
    let starts = tempfile::tempdir().unwrap();
    let starts = starts.path().join("headwater");
    let text = format!(
        "#!/bin/sh\nexec unshare --map-root-user --mount sh -e -c '\n\
         mount -t tmpfs -o size=256k none {0}\n\
         dd if=/dev/zero of={0}/other bs=4096 2> /dev/null || :\n\
         exec {BINARY} \"$@\"' sh \"$@\"\n",
        storage.display()
    );
    write_program(&starts, &text);
    let listen = format!("127.0.0.1:{}", authority.http);
    let configuration = authority.configuration(&[DOMAIN], ANY);
    let server = Server::configured(&starts, &configuration, ["--http", &listen]);
    until_shown(&server, DOMAIN, &authority, "");
    let said = server.log_line(LIMIT, |line| line.contains("cannot be written"));
    assert!(said.contains("storage") && said.contains("No space left"), "{said}");
    assert_eq!(server.get("/healthz").status(), 200);
    // The disk as the server sees it.
    let seen = |path: &Path| {
        let root = format!("/proc/{}/root", server.id());
        Path::new(&root).join(path.strip_prefix("/").unwrap())
    };
    fs::remove_file(seen(&storage.join("other"))).unwrap();
    let is_kept = |name| fs::metadata(seen(&authority.kept(name))).is_ok_and(|it| it.len() > 0);
    eventually(LIMIT, "both are kept", || is_kept("certificate.pem") && is_kept("account.json"));
}

#[test]
fn kept_files_that_are_broken_are_told_of_and_replaced() {
    let authority = Authority::start(LONG);
    let server = authority.by_http(&[DOMAIN]);
    let first = until_shown(&server, DOMAIN, &authority, "");
    server.stop(LIMIT);
    for name in ["certificate.pem", "account.json"] {
        let whole = fs::read(authority.kept(name)).unwrap();
        fs::write(authority.kept(name), &whole[..whole.len() / 4]).unwrap();
    }
    let server = authority.by_http(&[DOMAIN]);
    until_shown(&server, DOMAIN, &authority, &first);
    for kept in ["certificate", "account"] {
        let file = if kept == "account" { "account.json" } else { "certificate.pem" };
        let said = format!("the kept {kept} cannot be used");
        server.log_line(LIMIT, |line| line.contains(&said) && line.contains(file));
    }
}
