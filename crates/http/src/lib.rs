//! The media plane: HTTP/1.1 over our own connection driver, with TLS or without; HTTP/2 with TLS, by
//! hyper.
//!
//! ```text
//! Server ─ one thread, runtime and listener (two with TLS) per worker
//!   └ accept ─ Gate (connection limits) ─ connection, or handshake ─ connection or h2
//!        ├ Request ─ Handler ─ Response ─ send        bytes and playlists
//!        └ Handler::accepts is false ─ control        axum on hyper, the connection handed over whole
//!                                                     (of HTTP/2: each request)
//! ```
//!
//! The driver takes no lock for a request: everything a worker's connections share lives on that
//! worker's thread. It asks another thread only to read what the page cache has not got, and a
//! [`Handler`] may lock and ask what it needs. A connection that has sent 512 KiB, where each answer
//! counts as 8 KiB more than it has, lets the others of its thread have their turn. What a peer can
//! make the driver hold is bounded: one head and one read of input, one [`Handler`] call and one
//! unsent answer (pipelined short answers: up to 64 KiB of them) per connection.
//!
//! Follows RFC 9110 (semantics), RFC 9112 (HTTP/1.1) and RFC 9113 (HTTP/2).

mod ahead;
mod bad_request;
mod cache;
mod conditional;
mod connection;
mod content;
mod control;
mod counters;
mod credentials;
pub mod date;
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
mod source;
mod target;
mod tls;
mod upgrade;
mod upload;

use std::num::NonZeroUsize;
use std::time::Duration;

pub use bad_request::BadRequest;
pub use cache::read_now;
pub use conditional::{Precondition, Validators};
pub use counters::{Counters, Totals};
pub use credentials::{Credentials, CredentialsError, CredentialsFile};
use net::PerAddress;
pub use payload::{FileVersion, Piece, Region, length, slice};
pub use range::{ByteRanges, MAX_RANGES};
pub use representation::Representation;
pub use request::{Method, PayloadFraming, Request, Version};
pub use response::{Body, BodyStream, Response};
pub use send::{Fault, Outbox};
pub use server::Server;
pub use source::Broken;
pub use upgrade::{Held, Transport, Upgraded};

/// What answers the requests of the media plane.
///
/// Made once per worker, on that worker's thread, by the function given to [`Server::run`], and
/// cloned for each of its connections; it need not be `Send`.
pub trait Handler: Clone + 'static {
    /// Whether this request is for the media plane. If not, its connection goes to the control
    /// plane.
    ///
    /// Called for every method. Of what is accepted, only GET and HEAD reach
    /// [`handle`](Self::handle); the driver answers OPTIONS (also a CORS preflight) and refuses the
    /// rest with 405 by itself.
    fn accepts(&self, request: &Request) -> bool;

    /// Answers a GET or HEAD. The body of an answer to HEAD is not sent, only its length.
    ///
    /// Dropped if the peer resets the connection while it waits. One that closes its sending half is
    /// answered, and one that closes both cannot be told from it: so every answer must come in
    /// bounded time.
    fn handle(&self, request: Request) -> impl Future<Output = Response>;
}

/// How connections are served. [`Default`] gives the values of the documentation.
#[derive(Clone, Debug)]
pub struct Config {
    /// Threads, each with a runtime and a listener of its own. Default: one per available core.
    pub workers: NonZeroUsize,
    /// Bytes a request head may have; beyond it 431. At least 8,192, the default.
    pub max_head: usize,
    /// How long a head may take from its first byte to its end, a new connection to its first
    /// byte, and a TLS handshake; and the payload of a request to the control plane. On a
    /// connection handed over a head's time begins with the answer before it. Default: 10 s.
    pub head_timeout: Duration,
    /// How long a connection may stay open between requests. Default: 60 s.
    pub idle_timeout: Duration,
    /// How long a peer may take not one byte of what is to be sent before its connection is closed,
    /// which happens up to a quarter later. Default: 30 s.
    pub stall_timeout: Duration,
    /// How long responses in progress may take after the shutdown signal. Default: 10 s.
    pub grace: Duration,
    /// Connections at a time over all workers. Default: 16,000. Each takes a file descriptor; where
    /// the process may open fewer, accepting pauses until some are closed.
    pub max_connections: usize,
    /// Connections at a time from one address. Default: no limit.
    pub max_connections_per_address: Option<PerAddress>,
    /// Bytes accepted by the kernel and not yet sent, per connection (`TCP_NOTSENT_LOWAT`). Keeps a
    /// slow viewer's backlog where it can still be skipped. Default: 128 KiB. Of an answer that is
    /// all at hand and goes out without being copied, from a file or a window, the kernel may have
    /// 1 MiB, or this if it is more: nothing of one is skipped, and waking us for less costs more
    /// than it saves.
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
            grace: Duration::from_secs(10),
            max_connections: 16_000,
            max_connections_per_address: None,
            unsent_limit: 128 << 10,
            cors: Some("*".to_owned()),
        }
    }
}
