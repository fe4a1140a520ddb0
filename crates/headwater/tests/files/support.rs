//! A server with files whose every byte the tests know.

use std::net::TcpStream;
use std::ops::Deref;
use std::time::{Duration, Instant};

use testkit::http::Client;
use testkit::{Server, eventually};

/// The longest wait in these tests.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// A server with one worker. It serves the files that a test puts into its VOD root.
pub(crate) struct Origin {
    pub(crate) server: Server,
}

impl Deref for Origin {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

impl Origin {
    pub(crate) fn start() -> Self {
        Self::with("")
    }

    /// Starts it with this configuration.
    pub(crate) fn with(configuration: &str) -> Self {
        let binary = env!("CARGO_BIN_EXE_headwater");
        Self { server: Server::configured(binary, configuration, ["--workers", "1"]) }
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.server.http, LIMIT).unwrap()
    }

    /// How many descriptors it has open for longer than a moment: the least of a second in which none closes. Each second
    /// it reads files of /proc, too.
    #[track_caller]
    pub(crate) fn descriptors_at_rest(&self) -> usize {
        let (mut least, mut since) = (usize::MAX, Instant::now());
        eventually(LIMIT, "no descriptor closes", || {
            let now = self.descriptors();
            if now < least {
                (least, since) = (now, Instant::now());
            }
            since.elapsed() > Duration::from_secs(1)
        });
        least
    }

    /// Connects with the smallest receive buffer that the kernel grants.
    pub(crate) fn reluctant(&self) -> TcpStream {
        let socket = testkit::narrow_socket(self.http, 4096).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        socket
    }
}

/// Waits until a number has grown and stays the same. Returns it.
#[track_caller]
pub(crate) fn settled(mut number: impl FnMut() -> u64) -> u64 {
    let (mut last, mut same) = (0, 0);
    eventually(LIMIT, "it settles", || {
        let now = number();
        same = if now == last && now > 0 { same + 1 } else { 0 };
        last = now;
        same == 10
    });
    last
}
