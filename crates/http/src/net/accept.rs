//! The accept loop.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};
use tracing::{info, warn};

use super::gate::{Full, Gate, Permit};
use super::log_limit::LogLimit;

/// How long accepting pauses when the process is out of descriptors or memory: from, to.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// A connection that was accepted, and whether a limit keeps it out.
#[derive(Debug)]
pub struct Accepted {
    /// The connection.
    pub stream: TcpStream,
    /// Its other end.
    pub peer: SocketAddr,
    /// Its place. Without one it is to be closed, which the log has been told.
    pub permit: Option<Permit>,
}

/// Accepts connections of `protocol` for as long as it is polled, and gives each to `take`. An error that
/// others must mend, like descriptors that have run out, is logged and tried again.
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
                    warn!(protocol, %peer, others, "refused: the limit of {limit} is reached");
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

/// Errors of `accept` that a connection brought with it and took away (accept(2)).
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
