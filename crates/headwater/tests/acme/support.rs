//! An authority, and servers that have their certificates from it.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;
use testkit::{NO_ARGUMENTS, Port, Program, Server, certificate, eventually};

/// The longest wait in these tests. Of failures, the second is 10 s after the first, and the third 40 s after that.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// A lifetime of certificates that ends in no test.
pub(crate) const LONG: Duration = Duration::from_secs(90 * 24 * 3600);

/// pebble, with a server of names that has every name at 127.0.0.1.
pub(crate) struct Authority {
    folder: TempDir,
    listen: Port,
    management: Port,
    names: Port,
    /// Where it looks by HTTP-01.
    pub(crate) http: Port,
    /// Where it looks by TLS-ALPN-01.
    pub(crate) tls: Port,
    lifetime: Duration,
    /// How many of a hundred good nonces it refuses, as an authority may.
    pub(crate) refused_nonces: u8,
    /// pebble itself.
    pub(crate) program: PathBuf,
    programs: Option<[Program; 2]>,
}

impl Authority {
    /// Starts one whose certificates have this lifetime.
    pub(crate) fn start(lifetime: Duration) -> Self {
        let mut authority = Self::prepared(lifetime);
        authority.run();
        authority
    }

    /// One that is away.
    pub(crate) fn prepared(lifetime: Duration) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = (folder.path().join("own.pem"), folder.path().join("own.key"));
        certificate::make("pebble", &certificate, &key);
        let [listen, management, names, http, tls] = [(); 5].map(|()| Port::find());
        let (refused_nonces, program, programs) = (0, "pebble".into(), None);
        Self {
            folder,
            listen,
            management,
            names,
            http,
            tls,
            lifetime,
            refused_nonces,
            program,
            programs,
        }
    }

    /// Starts it. It knows nothing of before, and has another root.
    pub(crate) fn run(&mut self) {
        let folder = self.folder.path();
        let configuration = format!(
            r#"{{"pebble": {{
                "listenAddress": "127.0.0.1:{}", "managementListenAddress": "127.0.0.1:{}",
                "certificate": {:?}, "privateKey": {:?}, "httpPort": {}, "tlsPort": {},
                "certificateValidityPeriod": {}, "domainBlocklist": ["blocked.example"]
            }}}}"#,
            self.listen,
            self.management,
            folder.join("own.pem"),
            folder.join("own.key"),
            self.http,
            self.tls,
            self.lifetime.as_secs(),
        );
        std::fs::write(folder.join("pebble.json"), configuration).unwrap();
        let resolver = format!("127.0.0.1:{}", self.names);
        let mut names = Command::new("pebble-challtestsrv");
        names.args(["-defaultIPv4", "127.0.0.1", "-defaultIPv6", "", "-dns01", &resolver]);
        names.args(["-http01", "", "-https01", "", "-tlsalpn01", "", "-management", "127.0.0.1:0"]);
        let mut pebble = Command::new(&self.program);
        pebble.args(["-dnsserver", &resolver, "-config"]).arg(folder.join("pebble.json"));
        pebble.env("PEBBLE_WFE_NONCEREJECT", self.refused_nonces.to_string());
        // It looks at once, and each time.
        pebble.env("PEBBLE_VA_NOSLEEP", "1").env("PEBBLE_AUTHZREUSE", "0");
        self.programs = Some([Program::spawn(&mut names), Program::spawn(&mut pebble)]);
        for port in [&self.names, &self.management, &self.listen] {
            let address = (Ipv4Addr::LOCALHOST, port.number());
            eventually(LIMIT, "pebble listens", || TcpStream::connect(address).is_ok());
        }
        let root = self.manage("/roots/0", &[]);
        std::fs::write(self.root(), root).unwrap();
    }

    pub(crate) fn kill(&mut self) {
        self.programs = None;
    }

    /// The root of the certificates that it issues.
    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().join("root.pem")
    }

    pub(crate) fn directory(&self) -> String {
        format!("https://127.0.0.1:{}/dir", self.listen)
    }

    /// The URL of something that is no part of ACME.
    pub(crate) fn managed(&self, path: &str) -> String {
        format!("https://127.0.0.1:{}{path}", self.management)
    }

    /// What it answers to a request that is no part of ACME.
    pub(crate) fn manage(&self, path: &str, arguments: &[&str]) -> Vec<u8> {
        let mut curl = Command::new("curl");
        curl.args(["-sSf", "--noproxy", "*", "--cacert"]).arg(self.own()).args(arguments);
        Program::output(curl.arg(self.managed(path)), LIMIT)
    }

    /// The folder in which servers keep what they get.
    pub(crate) fn storage(&self) -> PathBuf {
        self.folder.path().join("storage")
    }

    /// A file that is kept.
    pub(crate) fn kept(&self, name: &str) -> PathBuf {
        self.storage().join(format!("127.0.0.1-{}-dir", self.listen)).join(name)
    }

    /// The configuration of a server for these domains, with this address for TLS.
    pub(crate) fn configuration(&self, domains: &[&str], listen: SocketAddr) -> String {
        configuration(domains, listen, &self.directory(), &self.own(), &self.storage())
    }

    /// Its own certificate.
    pub(crate) fn own(&self) -> PathBuf {
        self.folder.path().join("own.pem")
    }

    /// Starts a server that it reaches by HTTP-01 only.
    pub(crate) fn by_http(&self, domains: &[&str]) -> Server {
        self.by_http_as(&self.configuration(domains, ANY))
    }

    /// Starts a server with this configuration that it reaches by HTTP-01.
    pub(crate) fn by_http_as(&self, configuration: &str) -> Server {
        let listen = format!("127.0.0.1:{}", self.http);
        Server::configured(BINARY, configuration, ["--http", &listen])
    }

    /// Starts a server that it reaches by TLS-ALPN-01 only.
    pub(crate) fn by_tls(&self, domains: &[&str]) -> Server {
        let listen = SocketAddr::from(([127, 0, 0, 1], self.tls.number()));
        Server::configured(BINARY, &self.configuration(domains, listen), NO_ARGUMENTS)
    }
}

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_headwater");

/// Any free port.
pub(crate) const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// The configuration of a server with RTMPS, whose certificate is from this directory.
pub(crate) fn configuration(
    domains: &[&str],
    listen: SocketAddr,
    directory: &str,
    root: &Path,
    storage: &Path,
) -> String {
    format!(
        "[http.tls]\nlisten = \"{listen}\"\ndomains = {domains:?}\n\
         [http.tls.acme]\nemail = \"admin@example.org\"\ndirectory = \"{directory}\"\n\
         ca_root = {root:?}\nstorage = {storage:?}\n\
         [rtmp.tls]\nenabled = true\nlisten = \"127.0.0.1:0\"\n"
    )
}

/// What openssl says of the server's certificate for a name.
#[derive(Debug)]
pub(crate) struct Shown {
    /// In PEM; empty if the handshake was refused.
    pub(crate) certificate: String,
    /// Whether it leads to the root and is for the name.
    pub(crate) is_good: bool,
}

pub(crate) fn shown(address: SocketAddr, name: &str, root: &Path) -> Shown {
    let mut openssl = Command::new("openssl");
    openssl.args(["s_client", "-connect", &address.to_string(), "-servername", name]);
    openssl.args(["-verify_hostname", name]);
    if root.is_file() {
        openssl.arg("-CAfile").arg(root);
    }
    let said = Program::spawn(&mut openssl).wait(LIMIT);
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let begins = said.find("-----BEGIN CERTIFICATE-----");
    let ends = said.find("-----END CERTIFICATE-----");
    let certificate = begins.zip(ends).map_or("", |(begins, ends)| &said[begins..ends]).to_owned();
    Shown {
        is_good: said.contains("Verify return code: 0 (ok)") && !certificate.is_empty(),
        certificate,
    }
}

/// Waits for a good certificate that is not `before`, and returns it.
#[track_caller]
pub(crate) fn until_shown(
    server: &Server,
    name: &str,
    authority: &Authority,
    before: &str,
) -> String {
    let mut found = String::new();
    eventually(LIMIT, "there is a good certificate", || {
        let shown = shown(server.https.unwrap(), name, &authority.root());
        let is_found = shown.is_good && shown.certificate != before;
        found = shown.certificate;
        is_found
    });
    found
}
