//! A server with a certificate of its own, and the programs that talk to it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use testkit::{Program, Server};

/// No wait in these tests is longer.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// Both protocols, as curl's options.
pub(crate) const PROTOCOLS: [&str; 2] = ["--http1.1", "--http2"];

pub(crate) struct Site {
    pub(crate) server: Server,
    folder: TempDir,
}

impl Site {
    /// With these lines more of configuration, and of arguments. `tables` begins with what belongs
    /// to `[http]`.
    pub(crate) fn start(tables: &str, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
        make_certificate("first", &certificate, &key);
        let path = folder.path().join("headwater.toml");
        let tls = configuration(&certificate, &key);
        std::fs::write(&path, format!("[http]\n{tables}\n{tls}")).unwrap();
        let fixed = ["--workers", "2", "--config", path.to_str().unwrap()];
        let arguments = fixed.iter().chain(arguments);
        let server = Server::start(env!("CARGO_BIN_EXE_headwater"), arguments);
        std::fs::create_dir(server.folder().join("media")).unwrap();
        Self { server, folder }
    }

    pub(crate) fn certificate(&self) -> PathBuf {
        self.folder.path().join("cert.pem")
    }

    pub(crate) fn key(&self) -> PathBuf {
        self.folder.path().join("key.pem")
    }

    /// A path for what the test makes.
    pub(crate) fn scratch(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Where `/vod/NAME` is.
    pub(crate) fn media(&self, name: &str) -> PathBuf {
        self.server.folder().join("media").join(name)
    }

    /// The `https://` URL of a path.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.server.https.expect("configured"))
    }

    /// curl that trusts the server's certificate.
    pub(crate) fn curl(&self, arguments: &[&str]) -> Command {
        let mut curl = Command::new("curl");
        let limit = LIMIT.as_secs().to_string();
        curl.args(["-sS", "--noproxy", "*", "--max-time", &limit, "--cacert"]);
        curl.arg(self.certificate()).args(arguments);
        curl
    }

    /// What curl gets.
    #[track_caller]
    pub(crate) fn get(&self, protocol: &str, path: &str) -> Vec<u8> {
        Program::output(&mut self.curl(&[protocol, "-f", &self.url(path)]), LIMIT)
    }

    /// A counter or gauge of `/metrics`.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let metrics = self.server.metrics();
        let line = metrics.text().lines().find(|line| line.starts_with(&format!("{name} ")));
        let value = line.unwrap_or_else(|| panic!("no {name} in {}", metrics.text()));
        value.rsplit(' ').next().unwrap().parse().unwrap()
    }

    /// Waits until it has this value at least.
    #[track_caller]
    pub(crate) fn until_metric(&self, name: &str, least: u64) {
        until(|| self.metric(name) >= least);
    }
}

/// The table that names these files.
pub(crate) fn configuration(certificate: &Path, key: &Path) -> String {
    let (certificate, key) = (certificate.display(), key.display());
    format!(
        "[http.tls]\nlisten = \"127.0.0.1:0\"\ncertificate = \"{certificate}\"\nkey = \"{key}\"\n"
    )
}

/// A certificate for 127.0.0.1, signed with its own key.
#[track_caller]
pub(crate) fn make_certificate(name: &str, certificate: &Path, key: &Path) {
    // Of openssl's own extensions none: they make it an authority's.
    let request = format!(
        "[req]\nprompt = no\ndistinguished_name = who\nx509_extensions = for\n\
         [who]\nCN = {name}\n[for]\nsubjectAltName = IP:127.0.0.1\n"
    );
    let configuration = certificate.with_extension("cnf");
    std::fs::write(&configuration, request).unwrap();
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]);
    openssl.args(["-nodes", "-days", "30", "-config"]).arg(configuration);
    openssl.arg("-keyout").arg(key).arg("-out").arg(certificate);
    Program::output(&mut openssl, LIMIT);
}

#[track_caller]
pub(crate) fn until(mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !condition() {
        assert!(Instant::now() < deadline, "not what was waited for in {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Bytes that are nowhere the same for long, different for each seed.
pub(crate) fn pattern(seed: u64, size: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2) + 1;
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        bytes.extend_from_slice(&(state >> 16).to_le_bytes()[..4]);
    }
    bytes.truncate(size);
    bytes
}
