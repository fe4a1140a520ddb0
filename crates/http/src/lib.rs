//! The media plane: HTTP/1.1 with our own connection driver, with or without TLS, and HTTP/2 over
//! TLS with hyper.
//!
//! ```text
//! Server ─ one thread, runtime and listener (two with TLS) per worker
//!   └ accept ─ Gate (connection limits) ─ connection, or handshake ─ connection or h2
//!        ├ Request ─ Handler ─ Response ─ send        bytes and playlists
//!        └ Handler::accepts is false ─ control        axum on hyper, which gets the whole
//!                                                     connection (in HTTP/2: each request)
//! ```
//!
//! - `server` binds listeners and runs worker threads. `shared` is what the connections of a worker
//!   share. `handshake`, `tls`, `credentials` and `certificates` are TLS.
//! - `connection` is the HTTP/1.1 driver, with its `input` and `output`. `h2` and `control` are
//!   HTTP/2 and the control plane, with `content` and `upload` as payloads and `io` as their
//!   streams. `upgrade` passes a connection to another protocol.
//! - `request` and `target` parse heads, `bad_request` and `refusal` handle bad ones.
//! - `response`, `representation`, `range`, `conditional` and `date` make answers.
//! - `send` is the only place that writes payloads, by the system calls of `socket`. `cache` and
//!   `ahead` keep it from waiting for a disk, and `source` keeps a response to one version of its
//!   file.
//! - [`net`] serves connections of any protocol: listeners, accept loop, limits, slow peers,
//!   draining. `counters` counts.
//!
//! The driver takes no lock for a request: all connections of a worker share only data of that
//! worker's thread. It uses another thread only to read bytes that are not in the page cache. A
//! [`Handler`] may lock what it needs. After a connection has sent 512 KiB, or by one call at most 2 MiB of a
//! file, the other connections of its thread have their turn; each answer counts 8 KiB in addition to
//! its bytes. A peer's use
//! of memory is limited, per connection: one head and one read of input, one [`Handler`] call, and
//! one unsent answer (of short pipelined answers up to 64 KiB).
//!
//! The crate follows RFC 9110 (semantics), RFC 9112 (HTTP/1.1) and RFC 9113 (HTTP/2).

mod ahead;
mod bad_request;
mod cache;
mod certificates;
mod conditional;
mod connection;
mod content;
mod control;
mod counters;
mod credentials;
pub mod date;
mod gather;
mod h2;
mod handshake;
mod io;
pub mod net;
mod range;
mod refusal;
mod representation;
mod request;
mod response;
mod send;
mod server;
mod shared;
mod socket;
mod source;
mod target;
mod tls;
mod upgrade;
mod upload;

use std::num::NonZeroUsize;
use std::time::Duration;

pub use bad_request::BadRequest;
pub use cache::read_now;
pub use certificates::Certificates;
pub use conditional::{Precondition, Validators};
pub use counters::{Counters, Totals};
pub use credentials::{CertificateFacts, Credentials, CredentialsError, CredentialsFile};
pub use handshake::Identity;
use net::PerAddress;
pub use payload::{FileVersion, OpenFile, Piece, Region, length, slice};
pub use range::{ByteRanges, MAX_RANGES};
pub use representation::Representation;
pub use request::{Method, PayloadFraming, Request, Version};
pub use response::{Body, BodyStream, Response};
pub use send::{Fault, Outbox};
pub use server::Server;
pub use socket::Socket;
pub use source::Broken;
pub use target::percent_decode;
pub use upgrade::{Held, Ready, Transport, Upgraded};

/// Answers the requests of the media plane.
///
/// The function given to [`Server::run`] makes one handler per worker, on that worker's thread. It
/// is cloned for each connection, and need not be `Send`.
pub trait Handler: Clone + 'static {
    /// Whether this request is for the media plane. If not, its connection goes to the control
    /// plane.
    ///
    /// It is called for every method. Of accepted requests, only GET and HEAD reach
    /// [`handle`](Self::handle), and POST where [`posts`](Self::posts) says so. The driver itself
    /// answers OPTIONS (including a CORS preflight), and refuses the rest with 405.
    fn accepts(&self, request: &Request) -> bool;

    /// Whether a POST of this accepted request's target reaches [`handle`](Self::handle). By default
    /// none does.
    fn posts(&self, request: &Request) -> bool {
        let _ = request;
        false
    }

    /// Answers a GET, HEAD or POST. For HEAD only the length of the body is sent.
    ///
    /// The future is dropped if the peer resets the connection while it waits. A peer that closes
    /// only its sending half still gets its answer, and a peer that closes both halves looks the
    /// same. So every answer must be made in a limited time.
    fn handle(&self, request: Request) -> impl Future<Output = Response>;
}

/// How connections are served. [`Default`] gives the documented values.
#[derive(Clone, Debug)]
pub struct Config {
    /// Threads, each with its own runtime and listener. Default: one per available core.
    pub workers: NonZeroUsize,
    /// Most bytes of a request head; a longer one is answered with 431. At least 8,192, the
    /// default.
    pub max_head: usize,
    /// Time limit for a head from its first byte to its end, for a new connection's first byte, for
    /// a TLS handshake, and for the payload of a request to the control plane. On a connection of
    /// the control plane, the time of a head begins with the answer before it. Default: 10 s.
    pub head_timeout: Duration,
    /// How long a connection may stay open between requests. Default: 60 s.
    pub idle_timeout: Duration,
    /// How long a peer may take no byte of the data for it before its connection is closed, which
    /// happens up to a quarter of this time later. Default: 30 s.
    pub stall_timeout: Duration,
    /// How long a peer may take for an answer that keeps memory of a live window
    /// ([`Piece::Region`]). Regions of at most 16 KiB are copied, and keep none. Default: 5 min.
    pub region_timeout: Duration,
    /// Time limit for responses in progress after the shutdown signal. Default: 10 s.
    pub grace: Duration,
    /// Most connections at a time over all workers. Default: 16,000. Each takes a file descriptor.
    /// If the process may open fewer, accepting pauses until some connections are closed.
    pub max_connections: usize,
    /// Most connections at a time from one address. Default: no limit.
    pub max_connections_per_address: Option<PerAddress>,
    /// Most bytes per connection that the kernel has accepted and not yet sent
    /// (`TCP_NOTSENT_LOWAT`). It keeps a slow viewer's backlog where it can still be skipped.
    /// Default: 128 KiB. The limit is 1 MiB, or this value if it is larger, for a complete answer
    /// that is sent without a copy from a file or a window: nothing of such an answer is skipped,
    /// and more wakes would cost more than they save.
    pub unsent_limit: u32,
    /// `Access-Control-Allow-Origin` of media responses: `*` (the default), one origin, or none.
    pub cors: Option<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            workers: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
            max_head: 8 << 10,
            head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            stall_timeout: Duration::from_secs(30),
            region_timeout: Duration::from_secs(300),
            grace: Duration::from_secs(10),
            max_connections: 16_000,
            max_connections_per_address: None,
            unsent_limit: 128 << 10,
            cors: Some("*".to_owned()),
        }
    }
}
