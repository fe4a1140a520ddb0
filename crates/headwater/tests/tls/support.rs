//! A server with a certificate of its own, and the programs that talk to it.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;
use testkit::{Program, Server, certificate, eventually};

/// The longest wait in these tests.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// curl's options for the two protocols.
pub(crate) const PROTOCOLS: [&str; 2] = ["--http1.1", "--http2"];

pub(crate) struct Site {
    pub(crate) server: Server,
    folder: TempDir,
}

impl Site {
    /// Starts a server with these arguments and lines of configuration. `tables` begins with the
    /// lines of `[http]`.
    pub(crate) fn start(tables: &str, arguments: &[&str]) -> Self {
        Self::make(tables, "", arguments)
    }

    /// Starts a server with these lines of `[http]`, and with other tables.
    pub(crate) fn configured(http: &str, others: &str) -> Self {
        Self::make(http, others, &[])
    }

    /// Starts a server with these lines of `[http]`, other tables, and these arguments.
    pub(crate) fn make(tables: &str, others: &str, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
        certificate::make("first", &certificate, &key);
        let table = certificate::table(&certificate, &key);
        let tables = format!("[http]\n{tables}\n{table}\n{others}");
        let arguments = ["--workers", "2"].iter().chain(arguments);
        let server = Server::configured(env!("CARGO_BIN_EXE_headwater"), &tables, arguments);
        Self { server, folder }
    }

    pub(crate) fn certificate(&self) -> PathBuf {
        self.folder.path().join("cert.pem")
    }

    pub(crate) fn key(&self) -> PathBuf {
        self.folder.path().join("key.pem")
    }

    /// The path of a file that the test makes.
    pub(crate) fn scratch(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The `https://` URL of a path.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.server.https.expect("configured"))
    }

    /// A command of curl that trusts the server's certificate.
    pub(crate) fn curl(&self, arguments: &[&str]) -> Command {
        let mut curl = Command::new("curl");
        let limit = LIMIT.as_secs().to_string();
        curl.args(["-sS", "--noproxy", "*", "--max-time", &limit, "--cacert"]);
        curl.arg(self.certificate()).args(arguments);
        curl
    }

    /// Fetches a path with curl. Returns the body.
    #[track_caller]
    pub(crate) fn get(&self, protocol: &str, path: &str) -> Vec<u8> {
        Program::output(&mut self.curl(&[protocol, "-f", &self.url(path)]), LIMIT)
    }

    /// The current value of a counter or gauge of `/metrics`.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        self.server.metric(name)
    }

    /// Waits until a counter or gauge is `least` or more.
    #[track_caller]
    pub(crate) fn until_metric(&self, name: &str, least: u64) {
        eventually(LIMIT, &format!("{name} is {least}"), || self.metric(name) >= least);
    }
}
