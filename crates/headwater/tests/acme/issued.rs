//! Certificates are got, kept, used again, and renewed.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use testkit::{Program, Server};

use crate::support::{Authority, LIMIT, LONG, shown, until_shown};

const DOMAINS: [&str; 2] = ["example.org", "www.example.org"];

/// What the API's health check says by HTTPS, as curl sees it.
fn health(server: &Server, name: &str, authority: &Authority) -> String {
    let https = server.https.unwrap();
    let mut curl = Command::new("curl");
    curl.args([
        "-sSf",
        "--noproxy",
        "*",
        "--resolve",
        &format!("{name}:{}:127.0.0.1", https.port()),
    ]);
    curl.arg("--cacert").arg(authority.root());
    curl.arg(format!("https://{name}:{}/healthz", https.port()));
    String::from_utf8(Program::output(&mut curl, LIMIT)).unwrap()
}

/// Until when a certificate is valid, in seconds since 1970, as openssl sees it.
fn end(certificate: &str) -> String {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(format!("{certificate}-----END CERTIFICATE-----\n").as_bytes()).unwrap();
    let mut shell = Command::new("sh");
    let script = "date -d \"$(openssl x509 -noout -enddate -in \"$0\" | cut -d= -f2)\" +%s";
    let said = Program::output(shell.args(["-c", script]).arg(file.path()), LIMIT);
    String::from_utf8(said).unwrap().trim().to_owned()
}

#[test]
fn by_http_for_https_and_rtmps_and_kept() {
    let mut authority = Authority::prepared(LONG);
    authority.refused_nonces = 20;
    authority.run();
    let server = authority.by_http(&DOMAINS);
    let first = until_shown(&server, DOMAINS[0], &authority, "");
    for name in DOMAINS {
        assert_eq!(health(&server, name, &authority), "ok\n");
        let rtmps = shown(server.rtmps.unwrap(), name, &authority.root());
        assert!(rtmps.is_good && rtmps.certificate == first, "{rtmps:?}");
    }
    let told = server.metric("headwater_tls_certificate_expiry_timestamp_seconds");
    assert_eq!(told.to_string(), end(&first));

    // The answers are there only while the authority asks.
    assert_eq!(server.get("/.well-known/acme-challenge/x").status(), 404);
    for name in ["certificate.pem", "account.json"] {
        let mode = fs::metadata(authority.kept(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }

    // A server that starts again asks nobody.
    server.stop(LIMIT);
    authority.kill();
    let server = authority.by_http(&DOMAINS);
    let again = shown(server.https.unwrap(), DOMAINS[1], &authority.root());
    assert!(again.is_good && again.certificate == first, "{again:?}");
    assert!(!server.whole_log().contains("no new certificate"));
}

#[test]
fn by_tls_where_http_does_not_reach_the_server() {
    let authority = Authority::start(LONG);
    let server = authority.by_tls(&DOMAINS);
    until_shown(&server, DOMAINS[1], &authority, "");
    assert_eq!(health(&server, DOMAINS[0], &authority), "ok\n");
    let log = server.whole_log();
    assert_eq!(log.matches("no new certificate").count(), 1, "{log}");
    assert!(log.contains("by HTTP-01: "), "{log}");
    // Nobody else offers that protocol, and the answers are gone.
    let mut openssl = Command::new("openssl");
    openssl.args(["s_client", "-connect", &server.https.unwrap().to_string()]);
    openssl.args(["-servername", DOMAINS[0], "-alpn", "acme-tls/1"]);
    let refused = Program::spawn(&mut openssl).wait(LIMIT);
    assert!(!refused.status.success(), "{refused:?}");
}

#[test]
fn renewed_in_time_and_used_on_while_the_authority_is_away() {
    // Renewed 12 s after it was issued.
    let mut authority = Authority::start(Duration::from_secs(18));
    let server = authority.by_http(&DOMAINS[..1]);
    let first = until_shown(&server, DOMAINS[0], &authority, "");
    let second = until_shown(&server, DOMAINS[0], &authority, &first);

    authority.kill();
    server.log_line(LIMIT, |line| line.contains("no new certificate"));
    let old = shown(server.https.unwrap(), DOMAINS[0], &authority.root());
    assert!(!old.certificate.is_empty() && old.certificate != first, "{old:?}");
    assert_eq!(server.get("/healthz").status(), 200);

    // It returns with another root, and does not know the account.
    authority.run();
    let last = until_shown(&server, DOMAINS[0], &authority, "");
    assert!(last != first && last != second);
    server.log_line(LIMIT, |line| line.contains("the account is gone"));
    let log = server.whole_log();
    assert_eq!(log.matches("new account").count(), 2, "{log}");
}

#[test]
fn asked_anew_if_the_domains_change() {
    let authority = Authority::start(LONG);
    let server = authority.by_http(&DOMAINS[..1]);
    let first = until_shown(&server, DOMAINS[0], &authority, "");
    server.stop(LIMIT);
    let server = authority.by_http(&DOMAINS);
    let second = until_shown(&server, DOMAINS[1], &authority, "");
    assert_ne!(first, second);
    assert!(!server.whole_log().contains("new account"), "the account is kept");
}

/// Debian's pebble is too old for this.
#[test]
#[ignore = "interop"]
fn renewed_when_the_authority_says() {
    let mut authority = Authority::prepared(LONG);
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/pebble/pebble");
    if !program.is_file() {
        eprintln!("left out: scripts/pebble.sh could not build pebble");
        return;
    }
    authority.program = program;
    authority.run();
    let server = authority.by_http(&DOMAINS);
    let first = until_shown(&server, DOMAINS[0], &authority, "");
    server.stop(LIMIT);

    // As if it was revoked.
    let window =
        r#"{"suggestedWindow": {"start": "2020-01-01T00:00:00Z", "end": "2020-01-02T00:00:00Z"}}"#;
    let certificate = format!("{first}-----END CERTIFICATE-----\n");
    let advice = serde_json::json!({"Certificate": certificate, "ARIResponse": window});
    authority.manage("/set-renewal-info/", &["--data", &advice.to_string()]);
    let server = authority.by_http(&DOMAINS);
    until_shown(&server, DOMAINS[1], &authority, &first);
    // The order said which certificate it replaced, and the authority took it.
    assert!(!server.whole_log().contains("no new certificate"));
}
