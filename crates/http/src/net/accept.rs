//! The accept loop.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};
use tracing::{info, warn};

use super::gate::{Full, Gate, Permit};
use super::log_id::LogId;
use super::log_limit::LogLimit;

/// How long accepting pauses when the process has no descriptors or memory left: at first, and at
/// most.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// An accepted connection, unless a limit refuses it.
#[derive(Debug)]
pub struct Accepted {
    /// The connection.
    pub stream: TcpStream,
    /// Address of the peer.
    pub peer: SocketAddr,
    /// Its place under the limits. Without one the connection must be closed; this was already
    /// logged.
    pub permit: Option<Permit>,
}

/// Accepts connections of `protocol` while it is polled, and passes each to `take`. Errors with
/// other causes than the connection, such as a lack of descriptors, are logged, and accepting is
/// tried again.
pub async fn accept(
    protocol: &'static str,
    listener: &TcpListener,
    gate: &Arc<Gate>,
    mut take: impl FnMut(Accepted),
) -> Infallible {
    let mut back_off = BACK_OFF.0;
    let (mut exhausted, mut full) = (LogLimit::rare(), LogLimit::rare());
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                if back_off > BACK_OFF.0 {
                    info!(protocol, "connections are accepted again");
                }
                back_off = BACK_OFF.0;
                let admitted = gate.admit(peer.ip());
                if let Err(reason) = admitted
                    && let Some(others) = full.take(Instant::now())
                {
                    let limit = match reason {
                        Full::Server => "all connections",
                        Full::Address => "connections from one address",
                    };
                    LogId::connection().within(|| {
                        warn!(protocol, %peer, others, "refused: the limit of {limit} is reached");
                    });
                }
                take(Accepted { stream, peer, permit: admitted.ok() });
            }
            Err(error) if is_of_the_connection(&error) => {}
            Err(error) => {
                if let Some(others) = exhausted.take(Instant::now()) {
                    warn!(protocol, %error, others, "cannot accept connections, trying again");
                }
                tokio::time::sleep(back_off).await;
                back_off = (back_off * 2).min(BACK_OFF.1);
            }
        }
    }
}

/// Whether an error of `accept` concerns only the connection that caused it (accept(2)).
fn is_of_the_connection(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::ConnectionAborted
            | Kind::ConnectionReset
            | Kind::ConnectionRefused
            | Kind::Interrupted
            | Kind::PermissionDenied
            | Kind::HostUnreachable
            | Kind::NetworkUnreachable
            | Kind::NetworkDown
            | Kind::TimedOut
    )
}
