//! What authorities get that look whether this server has a name.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::middleware::map_response;
use axum::routing::get;
use http::Certificates;
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::sign::CertifiedKey;

use super::Error;
use crate::control::harmless;

/// The answers of the order under way.
pub(super) struct Answers {
    tokens: Tokens,
    certificates: Certificates,
}

/// For each token, what proves that the account's key is known here (RFC 8555 8.1).
type Tokens = Arc<Mutex<HashMap<String, String>>>;

impl Answers {
    pub(super) fn new(certificates: Certificates) -> Self {
        Self { tokens: Tokens::default(), certificates }
    }

    /// Adds an answer to HTTP-01 (RFC 8555 8.3).
    pub(super) fn by_http(&self, token: &str, proof: &str) {
        lock(&self.tokens).insert(token.to_owned(), proof.to_owned());
    }

    /// Adds an answer to TLS-ALPN-01 (RFC 8737 3): a certificate that has the digest of the proof in it.
    pub(super) fn by_tls(&self, name: &str, digest: &[u8]) -> Result<(), Error> {
        let certificate = with_digest(name, digest).map_err(Error::Answer)?;
        self.certificates.prove(name, certificate);
        Ok(())
    }

    pub(super) fn clear(&self) {
        lock(&self.tokens).clear();
        self.certificates.prove_no_more();
    }

    pub(super) fn router(&self) -> Router {
        let tokens = Arc::clone(&self.tokens);
        let answer = async move |Path(token): Path<String>| {
            let proof = lock(&tokens).get(&token).cloned();
            proof.ok_or((StatusCode::NOT_FOUND, "no such token\n"))
        };
        Router::new()
            .route("/.well-known/acme-challenge/{token}", get(answer))
            .layer(map_response(harmless))
    }
}

fn lock(tokens: &Tokens) -> MutexGuard<'_, HashMap<String, String>> {
    tokens.lock().unwrap_or_else(PoisonError::into_inner)
}

fn with_digest(name: &str, digest: &[u8]) -> Result<CertifiedKey, String> {
    let made = || {
        let mut params = CertificateParams::new([name.to_owned()])?;
        params.distinguished_name = DistinguishedName::new();
        params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?;
        Ok::<_, rcgen::Error>((certificate.der().clone(), key.serialize_der()))
    };
    let (certificate, key) = made().map_err(|error| error.to_string())?;
    let key = PrivatePkcs8KeyDer::from(key).into();
    let key = rustls::crypto::aws_lc_rs::default_provider().key_provider.load_private_key(key);
    // rustls does not compare the two: it does not know the extension, which is critical.
    Ok(CertifiedKey::new(vec![certificate], key.map_err(|error| error.to_string())?))
}
