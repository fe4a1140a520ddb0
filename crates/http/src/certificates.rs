//! Certificates that come while the server runs, and those by which an authority sees who has a name (TLS-ALPN-01,
//! RFC 8737).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::sync::watch;
use tracing::warn;

use crate::credentials::{self, Current, Offer};
use crate::net::LogLimit;

/// The protocol that an authority offers alone when it looks at a name (RFC 8737 4).
pub(crate) const ACME: &[u8] = b"acme-tls/1";

/// Where a TLS listener has its certificate from if no file has it. Clones are the same one.
///
/// Until a certificate is supplied, all handshakes are refused but those of an authority.
#[derive(Clone, Debug)]
pub struct Certificates {
    current: watch::Sender<Offer>,
    proofs: Proofs,
}

/// For each name, the certificate for the authority.
type Proofs = Arc<RwLock<HashMap<String, Arc<CertifiedKey>>>>;

impl Certificates {
    /// Has no certificate yet.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub fn new() -> Result<Self, rustls::Error> {
        let proofs = Proofs::default();
        let (current, _) = watch::channel(offer(None, &proofs)?);
        Ok(Self { current, proofs })
    }

    /// New connections get this certificate from now on.
    ///
    /// # Errors
    /// TLS cannot be set up. The certificate stays as it was.
    pub fn supply(&self, certificate: Arc<CertifiedKey>) -> Result<(), rustls::Error> {
        self.current.send_replace(offer(Some(certificate), &self.proofs)?);
        Ok(())
    }

    /// An authority that asks for this name, in lower case, gets this certificate until
    /// [`prove_no_more`](Self::prove_no_more).
    pub fn prove(&self, name: &str, certificate: CertifiedKey) {
        let mut proofs = self.proofs.write().unwrap_or_else(PoisonError::into_inner);
        proofs.insert(name.to_owned(), Arc::new(certificate));
    }

    /// Refuses authorities.
    pub fn prove_no_more(&self) {
        self.proofs.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    pub(crate) fn current(&self) -> Current {
        self.current.subscribe()
    }
}

fn offer(certificate: Option<Arc<CertifiedKey>>, proofs: &Proofs) -> Result<Offer, rustls::Error> {
    let not_after = certificate.as_deref().and_then(credentials::not_after);
    let told = Mutex::new(LogLimit::rare());
    let chosen = Chosen { certificate, proofs: Arc::clone(proofs), told };
    let mut config = credentials::config(Arc::new(chosen))?;
    config.alpn_protocols.push(ACME.to_vec());
    Ok(Offer { config: Arc::new(config), not_after })
}

/// Chooses the certificate of a handshake.
#[derive(Debug)]
struct Chosen {
    certificate: Option<Arc<CertifiedKey>>,
    proofs: Proofs,
    told: Mutex<LogLimit>,
}

impl ResolvesServerCert for Chosen {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        if hello.alpn().is_some_and(|offered| offered.eq([ACME])) {
            let proofs = self.proofs.read().unwrap_or_else(PoisonError::into_inner);
            return proofs.get(&hello.server_name()?.to_ascii_lowercase()).cloned();
        }
        if self.certificate.is_none() {
            let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(others) = told.take(Instant::now()) {
                warn!(others, "TLS handshake refused: there is no certificate yet");
            }
        }
        self.certificate.clone()
    }
}
