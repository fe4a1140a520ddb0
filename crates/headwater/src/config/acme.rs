//! `[http.tls.acme]`: the authority that the server has its certificate from.

use std::path::PathBuf;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde::{Deserialize, Serialize};

/// `[http.tls.acme]`: the authority that the server has its certificate from, if domains are configured (RFC 8555).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Acme {
    /// Where the authority may write to about the account, or empty.
    pub email: String,
    /// The URL of the authority's directory.
    pub directory: String,
    /// PEM file with the authorities that the directory's server may have its own certificate from, beside those of the
    /// system; empty for none.
    pub ca_root: PathBuf,
    /// The folder for the account and the certificate.
    pub storage: PathBuf,
}

impl Default for Acme {
    fn default() -> Self {
        Self {
            email: String::new(),
            directory: "https://acme-v02.api.letsencrypt.org/directory".to_owned(),
            ca_root: PathBuf::new(),
            storage: PathBuf::from("./acme"),
        }
    }
}

impl Acme {
    /// Reads `ca_root`, if it is given.
    pub(crate) fn roots(&self) -> Result<Vec<CertificateDer<'static>>, String> {
        if self.ca_root.as_os_str().is_empty() {
            return Ok(Vec::new());
        }
        let bad = |what: &dyn std::fmt::Display| format!("{}: {what}", self.ca_root.display());
        let text = std::fs::read(&self.ca_root).map_err(|error| bad(&error))?;
        let roots = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
        let roots = roots.map_err(|error| bad(&error))?;
        if roots.is_empty() {
            return Err(bad(&"has no certificate in it"));
        }
        Ok(roots)
    }
}
