//! The store, and origins before it.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use testkit::http::{Client, Response};
use testkit::{Port, Program, Server, eventually, playlist};

use crate::proxy::Proxy;

/// A time limit for anything that a test waits for, on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// The store needs credentials, and takes any.
pub(crate) const ENVIRONMENT: [(&str, &str); 3] = [
    ("AWS_ACCESS_KEY_ID", "headwater"),
    ("AWS_SECRET_ACCESS_KEY", "headwater"),
    ("AWS_REGION", "us-east-1"),
];

/// The store asks for a signature, and takes any.
const SIGNED: &str = "AWS4-HMAC-SHA256 Credential=headwater/20260101/us-east-1/s3/aws4_request, \
                      SignedHeaders=host, Signature=0";

/// A server with buckets. Tests that run at the same time share it, because it takes long to start.
struct Moto {
    address: SocketAddr,
    _port: Port,
    _program: Program,
}

impl Moto {
    fn shared() -> Arc<Self> {
        static RUNS: Mutex<Weak<Moto>> = Mutex::new(Weak::new());
        let mut runs = RUNS.lock().unwrap();
        runs.upgrade().unwrap_or_else(|| {
            let moto = Arc::new(Self::start());
            *runs = Arc::downgrade(&moto);
            moto
        })
    }

    fn start() -> Self {
        let binary =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/moto/bin/moto_server");
        assert!(binary.is_file(), "no moto: scripts/moto.sh installs it");
        let port = Port::find();
        let mut command = Command::new(binary);
        command.args(["-H", "127.0.0.1", "-p", &port.to_string()]);
        let program = Program::spawn(&mut command);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port.number()));
        eventually(LIMIT, "moto listens", || TcpStream::connect(address).is_ok());
        Self { address, _port: port, _program: program }
    }
}

/// A bucket of the server.
pub(crate) struct Store {
    moto: Arc<Moto>,
    bucket: String,
}

impl Store {
    /// An empty bucket.
    pub(crate) fn start() -> Self {
        static BUCKETS: AtomicU32 = AtomicU32::new(0);
        let bucket = format!("films{}", BUCKETS.fetch_add(1, Ordering::Relaxed));
        let store = Self { moto: Moto::shared(), bucket };
        store.ask("PUT", &format!("/{}", store.bucket), b"");
        store
    }

    /// A proxy before the store.
    pub(crate) fn proxy(&self) -> Proxy {
        Proxy::before(self.moto.address, &self.bucket)
    }

    /// Puts an object where the origin has `/vod/NAME`.
    pub(crate) fn put(&self, name: &str, bytes: &[u8]) {
        let encoded = name.bytes().map(|byte| match byte {
            b'/' | b'.' | b'0'..=b'9' | b'a'..=b'z' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        });
        self.ask("PUT", &format!("/{}/vod/{}", self.bucket, encoded.collect::<String>()), bytes);
    }

    /// Deletes the object that the origin has at `/vod/NAME`.
    pub(crate) fn delete(&self, name: &str) {
        self.ask("DELETE", &format!("/{}/vod/{name}", self.bucket), b"");
    }

    /// Puts clips there, under their own names.
    pub(crate) fn put_clips(&self, names: &[&str]) {
        for name in names {
            self.put(name, &clip(name));
        }
    }

    fn ask(&self, method: &str, path: &str, body: &[u8]) {
        let mut client = Client::connect(self.moto.address, LIMIT).unwrap();
        let answer = client.ask(method, path, &[("Authorization", SIGNED)], body);
        assert!(matches!(answer.status(), 200 | 204), "{method} {path}: {answer:?}");
    }
}

/// The bytes of the clip `mp4/NAME`.
pub(crate) fn clip(name: &str) -> Vec<u8> {
    std::fs::read(testkit::clip(&format!("mp4/{name}"))).unwrap()
}

/// Starts an origin whose files are in the store behind the proxy, with further options of its
/// table.
pub(crate) fn origin(proxy: &Proxy, cache: &Path, options: &str) -> Server {
    let root = format!("s3://{}/vod", proxy.bucket);
    let options = format!("endpoint = \"http://{}\"\n{options}", proxy.address);
    origin_of(&root, cache, &options, &ENVIRONMENT)
}

/// Starts an origin whose files are at the address of a store, with these credentials.
pub(crate) fn origin_of(
    root: &str,
    cache: &Path,
    options: &str,
    environment: &[(&str, &str)],
) -> Server {
    let cache = cache.display();
    let text = format!(
        "[vod]\nroot = \"{root}\"\nlisting = true\npace = \"fast\"\n[vod.store]\n\
         allow_http = true\ncache = \"{cache}\"\n{options}"
    );
    Server::with_environment(env!("CARGO_BIN_EXE_headwater"), &text, environment)
}

/// Starts an origin that refuses to begin, and returns what it says.
pub(crate) fn refusal(root: &str, options: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("headwater.toml");
    let text = format!("[vod]\nroot = \"{root}\"\n[vod.store]\n{options}");
    std::fs::write(&path, text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_headwater"));
    command.args(["serve", "--http", "127.0.0.1:0", "--rtmp", "127.0.0.1:0", "--webrtc"]);
    command.arg("127.0.0.1:0").arg("--config").arg(path).envs(ENVIRONMENT);
    let end = Program::spawn(command.current_dir(folder.path())).wait(LIMIT);
    assert!(!end.status.success(), "{end:?}");
    end.stderr
}

/// Starts an origin with files of a folder.
pub(crate) fn local(folder: &Path) -> Server {
    let text = format!("[vod]\nroot = \"{}\"\nlisting = true\npace = \"fast\"\n", folder.display());
    Server::configured(env!("CARGO_BIN_EXE_headwater"), &text, testkit::NO_ARGUMENTS)
}

/// Asks for a path, with these header fields.
pub(crate) fn ask(server: &Server, path: &str, headers: &[(&str, &str)]) -> Response {
    let mut client = Client::connect(server.http, LIMIT).unwrap();
    client.get(path, headers)
}

/// The bytes at a path. Fails if the answer is no success.
#[track_caller]
pub(crate) fn bytes(server: &Server, path: &str) -> Vec<u8> {
    let answer = ask(server, path, &[]);
    assert_eq!(answer.status(), 200, "{path}: {answer:?}");
    answer.body
}

/// The addresses in an HLS playlist.
pub(crate) fn addresses(playlist: &str) -> Vec<String> {
    playlist::listed(playlist).chain(playlist::uris(playlist, "#")).map(str::to_owned).collect()
}

/// Everything that a title has for HLS and DASH players, by address without version.
#[track_caller]
pub(crate) fn resources(server: &Server, title: &str) -> Vec<(String, Vec<u8>)> {
    let plain = |address: &str| address.split('?').next().unwrap_or_default().to_owned();
    let mut found = Vec::new();
    let index = String::from_utf8(bytes(server, &format!("/vod/{title}/index.m3u8"))).unwrap();
    for playlist in addresses(&index) {
        let folder = playlist.rsplit_once('/').unwrap().0.to_owned();
        let text = bytes(server, &format!("/vod/{title}/{playlist}"));
        for each in addresses(&String::from_utf8(text).unwrap()) {
            let address = format!("/vod/{title}/{folder}/{each}");
            found.push((plain(&address), bytes(server, &address)));
        }
    }
    assert!(found.len() >= 2, "{index}");
    found
}
