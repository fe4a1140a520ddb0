//! Certificates: which are refused, and how a new one replaces the old.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use testkit::{Program, certificate, eventually};

use crate::support::{LIMIT, Site};

/// The name in the certificate that the server shows.
fn shown(site: &Site) -> String {
    let address = site.server.https.unwrap().to_string();
    let mut openssl = Command::new("openssl");
    openssl.args(["s_client", "-connect", &address, "-alpn", "h2"]);
    let said = Program::spawn(&mut openssl).wait(LIMIT);
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("ALPN protocol: h2"), "{said}");
    let subject = said.lines().find_map(|line| line.strip_prefix("subject="));
    subject.unwrap_or_else(|| panic!("{said}")).trim().replace("CN = ", "").replace("CN=", "")
}

/// Replaces a file atomically.
fn replace(path: &Path, text: &str) {
    let beside = path.with_extension("new");
    fs::write(&beside, text).unwrap();
    fs::rename(beside, path).unwrap();
}

#[test]
fn replaced_while_connections_live() {
    let site = Site::start("", &["--demo"]);
    site.server.get_until("/live/demo/index.m3u8", LIMIT, |answer| answer.status() == 200);
    assert_eq!(shown(&site), "first");
    let to = site.scratch("live.mp4");
    let url = site.url("/live/demo/live.mp4");
    // It plays for as long as the test takes. Of two limits, curl takes the last.
    let patient = ["--max-time", "600"];
    let mut curl = site.curl(&["--http2", "-N", "-o", to.to_str().unwrap(), &url]);
    curl.args(patient);
    let mut viewer = Program::spawn(&mut curl);
    let size = || fs::metadata(&to).map_or(0, |file| file.len());
    eventually(LIMIT, "the viewer gets something", || size() > 0);

    let (certificate, key) = (site.scratch("other.pem"), site.scratch("other.key"));
    certificate::make("second", &certificate, &key);
    let second = [certificate, key].map(|path| fs::read_to_string(path).unwrap());
    // The two files are written one after the other. Between the two writes they do not fit
    // together.
    replace(&site.certificate(), &second[0]);
    site.server.log_line(LIMIT, |line| line.contains("is not the key of the certificate"));
    assert_eq!(shown(&site), "first");
    replace(&site.key(), &second[1]);
    eventually(LIMIT, "the second one is shown", || shown(&site) == "second");

    // A file without a certificate, and a missing file.
    File::create(site.certificate()).unwrap();
    site.server.log_line(LIMIT, |line| line.contains("has no certificate in it"));
    assert_eq!(shown(&site), "second");
    fs::remove_file(site.key()).unwrap();
    replace(&site.certificate(), &second[0]);
    site.server.log_line(LIMIT, |line| line.contains("No such file"));
    assert_eq!(shown(&site), "second");

    // A viewer that began with the first certificate goes on.
    let before = size();
    eventually(LIMIT, "the viewer gets more", || size() > before + 100_000);
    assert!(viewer.is_running());
}

#[test]
fn the_metrics_tell_until_when_it_is_valid() {
    const NAME: &str = "headwater_tls_certificate_expiry_timestamp_seconds";
    let site = Site::start("", &[]);
    let days = |days: u64| Duration::from_secs(days * 86_400);
    let left = Duration::from_secs(site.metric(NAME)) - UNIX_EPOCH.elapsed().unwrap();
    assert!(left > days(29) && left <= days(30), "{left:?}");
    certificate::make_expired("old", &site.certificate(), &site.key());
    // This is 2 January 2020.
    eventually(LIMIT, "the new one is told of", || site.metric(NAME) == 1_577_923_200);
}

#[test]
fn read_again_at_sighup() {
    let site = Site::start("", &[]);
    certificate::make("second", &site.certificate(), &site.key());
    let mut kill = Command::new("kill");
    Program::output(kill.args(["-HUP", &site.server.id().to_string()]), LIMIT);
    site.server.log_line(LIMIT, |line| line.contains("certificate and key read again"));
    assert_eq!(shown(&site), "second");
}

/// The first line that `headwater check` prints.
fn refusal(configuration: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("headwater.toml");
    fs::write(&path, configuration).unwrap();
    let mut check = Command::new(env!("CARGO_BIN_EXE_headwater"));
    let finished = Program::spawn(check.args(["check", "--config"]).arg(&path)).wait(LIMIT);
    assert_eq!(finished.status.code(), Some(2), "{finished:?}");
    let said = finished.stderr.lines().next().unwrap_or_default();
    let at = said.find("headwater.toml").unwrap_or_else(|| panic!("{said}"));
    said[at..].to_owned()
}

#[test]
fn unusable_certificates_and_keys_are_refused_with_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (certificate, key) = (path("cert.pem"), path("key.pem"));
    certificate::make("a", &certificate, &key);
    certificate::make("b", &path("other.pem"), &path("other.key"));
    fs::write(path("garbage"), b"nothing\n").unwrap();
    let broken = "-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n";
    fs::write(path("broken"), broken).unwrap();
    File::create(path("huge")).unwrap().set_len(2 << 20).unwrap();
    Program::output(Command::new("mkfifo").arg(path("fifo")), LIMIT);
    for (certificate, key, line, option, what) in [
        ("none", "key.pem", 3, "certificate", "none: No such file or directory (os error 2)"),
        ("cert.pem", "none", 4, "key", "none: No such file or directory (os error 2)"),
        ("garbage", "key.pem", 3, "certificate", "garbage: has no certificate in it"),
        ("key.pem", "key.pem", 3, "certificate", "key.pem: has no certificate in it"),
        ("broken", "key.pem", 3, "certificate", "broken: "),
        ("huge", "key.pem", 3, "certificate", "huge: has more than 1 MiB"),
        // Nobody writes to the fifo, and the server does not wait for that.
        ("fifo", "key.pem", 3, "certificate", "fifo: is not a regular file"),
        ("cert.pem", "fifo", 4, "key", "fifo: is not a regular file"),
        ("cert.pem", "garbage", 4, "key", "garbage: has no private key in it"),
        ("cert.pem", "other.key", 4, "key", "other.key: is not the key of the certificate in "),
    ] {
        let said = refusal(&certificate::table(&path(certificate), &path(key)));
        let (place, rest) = said.split_once(": ").unwrap();
        assert_eq!(place, format!("headwater.toml:{line}"), "{said}");
        let rest = rest.strip_prefix(&format!("http.tls.{option}: ")).expect(&said);
        let rest = rest.strip_prefix(&format!("{}/", folder.path().display())).expect(&said);
        assert!(rest.starts_with(what), "{said}");
    }
    let said = refusal("[http.tls]\ncertificate = \"x\"\n");
    assert_eq!(said, "headwater.toml:2: http.tls.key: must be given where http.tls.certificate is");
    let said = refusal("[http.tls]\ncertificates = \"x\"\n");
    assert!(said.starts_with("headwater.toml:2: http.tls.certificates: unknown key"), "{said}");
    let both = certificate::table(&certificate, &key).replace("127.0.0.1:0", "0.0.0.0:8080");
    let said = refusal(&both);
    assert_eq!(said, "headwater.toml:2: http.tls.listen: 0.0.0.0:8080 is taken by http.listen");
}
