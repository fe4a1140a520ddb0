//! A server with files whose every byte the tests know.

use std::net::TcpStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};
use testkit::Server;
use testkit::http::{Client, Response};

/// No wait in these tests is longer.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// A server with one worker, and files below its VOD root.
pub(crate) struct Origin {
    pub(crate) server: Server,
}

impl Origin {
    pub(crate) fn start() -> Self {
        Self::with("")
    }

    /// With this configuration.
    pub(crate) fn with(configuration: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("headwater.toml");
        std::fs::write(&path, configuration).unwrap();
        let path = path.to_str().unwrap();
        let binary = env!("CARGO_BIN_EXE_headwater");
        let server = Server::start(binary, ["--workers", "1", "--config", path]);
        std::fs::create_dir(server.folder().join("media")).unwrap();
        Self { server }
    }

    /// Where `/vod/NAME` is.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.server.folder().join("media").join(name)
    }

    /// Puts a file there.
    pub(crate) fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.server.http, LIMIT).unwrap()
    }

    /// A connection with a receive buffer as small as it gets.
    pub(crate) fn reluctant(&self) -> TcpStream {
        let address = self.server.http;
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        socket.connect(&address.into()).unwrap();
        let socket = TcpStream::from(socket);
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        socket
    }

    /// A counter of `/metrics`.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let metrics = self.server.metrics();
        let line = metrics.text().lines().find(|line| line.starts_with(&format!("{name} ")));
        let value = line.unwrap_or_else(|| panic!("no {name} in {}", metrics.text()));
        value.rsplit(' ').next().unwrap().parse().unwrap()
    }

    /// Files the server has open.
    pub(crate) fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.server.id())).unwrap().count()
    }
}

/// GET on a connection that is kept.
#[track_caller]
pub(crate) fn get(client: &mut Client, path: &str, fields: &[(&str, &str)]) -> Response {
    client.send("GET", path, fields, b"").unwrap();
    client.receive().unwrap()
}

/// Bytes that are nowhere the same for long, different for each seed.
pub(crate) fn pattern(seed: u64, size: usize) -> Vec<u8> {
    let mut random = Random(seed.wrapping_mul(2) + 1);
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        bytes.extend_from_slice(&random.next().to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}

/// Numbers that are the same in each run (xorshift64*).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// Waits until a number has grown and does not any more.
#[track_caller]
pub(crate) fn settled(mut number: impl FnMut() -> u64) -> u64 {
    let (mut last, mut same) = (0, 0);
    eventually("it settles", || {
        let now = number();
        same = if now == last && now > 0 { same + 1 } else { 0 };
        last = now;
        same == 10
    });
    last
}

/// Waits until something is so.
#[track_caller]
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < LIMIT, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
