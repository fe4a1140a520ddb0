use std::fmt;
use std::sync::Arc;

use str0m::config::{CryptoProvider, DtlsCert};

/// The certificate for DTLS that all viewers of a lane share, and the cryptography. To make one
/// takes longer than to connect.
pub(crate) struct Identity {
    pub(crate) crypto: Arc<CryptoProvider>,
    pub(crate) certificate: DtlsCert,
}

impl Identity {
    /// Makes a certificate.
    pub(crate) fn new() -> Option<Self> {
        let crypto = Arc::new(str0m::crypto::from_feature_flags());
        let certificate = crypto.dtls_provider.generate_certificate()?;
        Some(Self { crypto, certificate })
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}
