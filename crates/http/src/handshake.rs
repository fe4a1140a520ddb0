//! The beginning of a TLS connection: the handshake, and the protocol that it selects.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tracing::debug;

use crate::certificates::ACME;
use crate::counters::count;
use crate::credentials::{Current, H2};
use crate::io::Stream as _;
use crate::net::Permit;
use crate::shared::Shared;
use crate::tls::Tls;
use crate::{Handler, Transport, connection, h2};

/// The server's certificate and key, for listeners of other protocols.
#[derive(Clone, Debug)]
pub struct Identity(Current);

impl Identity {
    pub(crate) fn new(current: Current) -> Self {
        Self(current)
    }

    /// Until when the newest certificate is valid, in seconds since 1970. `None` while there is none that is understood.
    pub fn not_after(&self) -> Option<u64> {
        self.0.borrow().not_after
    }

    /// Makes a TLS connection of an accepted one, with the newest certificate. It costs a signature on the event loop.
    ///
    /// # Errors
    /// The handshake fails, or is not complete within `limit`.
    pub async fn accept(
        &self,
        stream: TcpStream,
        limit: Duration,
    ) -> io::Result<impl Transport + use<>> {
        // The protocols of HTTPS are not spoken here.
        let mut config = ServerConfig::clone(&self.0.borrow().config);
        config.alpn_protocols.clear();
        let handshake = TlsAcceptor::from(Arc::new(config)).accept(stream);
        let accepted = tokio::time::timeout(limit, handshake).await;
        Ok(RefCell::new(Tls::new(accepted.map_err(io::Error::from).flatten()?)))
    }
}

/// Serves a connection to its end: the handshake, and then HTTP/2, or HTTP/1.1 if the client does
/// not support HTTP/2.
///
/// The handshake has the same time limit as a request head. It costs a signature on the event loop.
pub(crate) async fn drive<H: Handler>(
    stream: TcpStream,
    peer: SocketAddr,
    permit: Permit,
    shared: Rc<Shared<H>>,
    config: Arc<ServerConfig>,
) {
    let handshake = TlsAcceptor::from(config).accept(stream);
    let late = shared.worker.drain.has_begun();
    let accepted = tokio::select! {
        accepted = tokio::time::timeout(shared.config.head_timeout, handshake) => accepted,
        // A connection that arrives later is still answered.
        () = shared.worker.drain.begun(), if !late => return,
    };
    let mut stream = match accepted.map_err(io::Error::from).flatten() {
        Ok(stream) => Tls::new(stream),
        Err(error) => {
            count(&shared.tally().tls_failed, 1);
            debug!(%peer, %error, "TLS handshake failed");
            return;
        }
    };
    match stream.alpn() {
        Some(H2) => Box::pin(h2::drive(stream, peer, permit, shared)).await,
        // An authority has seen the certificate, and nothing else belongs to that protocol (RFC 8737 4).
        Some(ACME) => poll_fn(|cx| stream.poll_farewell(cx)).await,
        _ => Box::pin(connection::drive(stream, peer, permit, shared)).await,
    }
}
