//! The client of HTTP by which the origin asks other servers.
//!
//! It follows no redirection and takes no proxy from the environment, because requests have passwords. It trusts the
//! authorities of this system, or those in the file that the environment's `SSL_CERT_FILE` names.

use std::net::ToSocketAddrs;
use std::sync::Arc;
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Client, Response, Url, redirect};
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// For how long a connection is kept for the next request. Servers keep theirs for longer, so that a request hardly
/// ever meets the end of its connection.
const IDLE: Duration = Duration::from_secs(1);
/// For how long a server may take to accept a connection.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most names that are looked up at once. A look-up takes a thread, and goes on when nobody waits for it any more.
const LOOK_UPS: usize = 4;

/// Why a server cannot be asked. The URL is not told: it may have a password.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unusable {
    /// Not a URL of HTTP.
    #[error("is not an http:// or https:// URL")]
    Url,
    /// Only the certificates of authorities are missing.
    #[error(
        "cannot be asked: this system has no certificates of authorities: SSL_CERT_FILE may name a file"
    )]
    NoAuthorities,
    /// TLS cannot be set up.
    #[error("cannot be asked: {0}")]
    Tls(#[from] rustls::Error),
    /// The client cannot be set up.
    #[error("cannot be asked: {0}")]
    Client(#[from] reqwest::Error),
    /// The system has no random numbers.
    #[error("cannot be asked: no random numbers")]
    NoRandom,
}

/// A client for the server of a URL, and the URL. These authorities are trusted beside those of the system.
pub(crate) fn new(
    url: &str,
    authorities: &[CertificateDer<'_>],
) -> Result<(Client, Url), Unusable> {
    let url = Url::parse(url).map_err(|_| Unusable::Url)?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(Unusable::Url);
    }
    let client = Client::builder()
        .tls_backend_preconfigured(tls(url.scheme() == "https", authorities)?)
        .redirect(redirect::Policy::none())
        .no_proxy()
        .dns_resolver(LookUps(Arc::new(Semaphore::new(LOOK_UPS))))
        .user_agent(concat!("headwater/", env!("CARGO_PKG_VERSION")))
        .pool_idle_timeout(IDLE)
        .build()?;
    Ok((client, url))
}

/// TLS, with authorities if it is `needed`.
fn tls(needed: bool, authorities: &[CertificateDer<'_>]) -> Result<ClientConfig, Unusable> {
    let mut roots = RootCertStore::empty();
    if needed {
        for authority in authorities {
            roots.add(authority.clone().into_owned())?;
        }
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            return Err(Unusable::NoAuthorities);
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions()?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

/// Looks names up as the system does, a few at once.
struct LookUps(Arc<Semaphore>);

impl Resolve for LookUps {
    fn resolve(&self, name: Name) -> Resolving {
        let turns = Arc::clone(&self.0);
        Box::pin(async move {
            let turn = turns.acquire_owned().await?;
            let found = tokio::task::spawn_blocking(move || {
                let found = (name.as_str(), 0).to_socket_addrs();
                drop(turn);
                found
            });
            Ok(Box::new(found.await??) as Addrs)
        })
    }
}

/// Reads a response's payload of `most` bytes or less.
pub(crate) async fn body(response: &mut Response, most: usize) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(reason)? {
        if body.len() + piece.len() > most {
            return Err(format!("longer than {} KiB", most >> 10));
        }
        body.extend_from_slice(&piece);
    }
    Ok(body)
}

/// Why an exchange failed, for the log. The URL is not told.
pub(crate) fn reason(error: reqwest::Error) -> String {
    format!("{:#}", anyhow::Error::new(error.without_url()))
}

/// Makes a connection to the server of a URL, and sends nothing on it. Takes 10 s at most.
pub(crate) async fn reach(url: &str) -> Result<(), String> {
    let url = Url::parse(url).map_err(|_| Unusable::Url.to_string())?;
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let port = url.port_or_known_default().unwrap_or_default();
    match timeout(PATIENCE, TcpStream::connect((host, port))).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(format!("{host}:{port}: {error}")),
        Err(_) => Err(format!("{host}:{port}: no connection in {PATIENCE:?}")),
    }
}
