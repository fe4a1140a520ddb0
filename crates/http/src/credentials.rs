//! The server's certificate and key: reads their files, and reads them again when they change.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use payload::FileState;
use rustix::fs::{Mode, OFlags};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::ResolvesServerCert;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{InconsistentKeys, ServerConfig};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tracing::{info, warn};
use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

/// HTTP/2 over TLS (RFC 9113 3.1).
pub(crate) const H2: &[u8] = b"h2";

/// The offered protocols (RFC 7301), the preferred one first.
const ALPN: [&[u8]; 2] = [H2, b"http/1.1"];

/// Most bytes of a file. Real chains and keys are far smaller.
const MAX_FILE: u64 = 1 << 20;

/// Time between two checks of the files.
const LOOK: Duration = Duration::from_secs(2);

/// Paths of a certificate chain and its key, both in PEM (RFC 7468).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The server's certificate, followed by those that lead from it to an authority.
    pub certificate: PathBuf,
    /// Its private key: PKCS #8, PKCS #1 or SEC 1.
    pub key: PathBuf,
}

/// Why a certificate and key cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {what}", path.display())]
pub struct CredentialsError {
    /// Which file has the error.
    pub file: CredentialsFile,
    path: PathBuf,
    what: String,
}

/// One of the two files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields of `Credentials`")]
pub enum CredentialsFile {
    Certificate,
    Key,
}

/// What a certificate says (RFC 5280). Times are in seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFacts {
    /// From when on it is valid.
    pub not_before: u64,
    /// Until when it is valid.
    pub not_after: u64,
    /// The hosts that it is for: names and addresses.
    pub names: Vec<String>,
    /// Whether it names itself as its issuer.
    pub is_self_signed: bool,
}

impl CertificateFacts {
    /// Reads them from a certificate in DER.
    ///
    /// # Errors
    ///
    /// It is no certificate.
    pub fn of(der: &[u8]) -> Result<Self, x509_cert::der::Error> {
        let certificate = Certificate::from_der(der)?;
        let tbs = certificate.tbs_certificate();
        let validity = tbs.validity();
        let named = tbs.get_extension::<SubjectAltName>()?;
        let names = named.into_iter().flat_map(|(_, SubjectAltName(names))| names);
        let host = |name| match name {
            GeneralName::DnsName(name) => Some(name.to_string()),
            GeneralName::IpAddress(octets) => {
                let v4 = <[u8; 4]>::try_from(octets.as_bytes()).map(IpAddr::from);
                let v6 = || <[u8; 16]>::try_from(octets.as_bytes()).map(IpAddr::from);
                Some(v4.or_else(|_| v6()).ok()?.to_string())
            }
            _ => None,
        };
        Ok(Self {
            not_before: validity.not_before.to_unix_duration().as_secs(),
            not_after: validity.not_after.to_unix_duration().as_secs(),
            names: names.filter_map(host).collect(),
            is_self_signed: tbs.issuer() == tbs.subject(),
        })
    }
}

/// What new connections get of a listener.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    pub(crate) config: Arc<ServerConfig>,
    /// Until when its certificate is valid, in seconds since 1970. `None` without a certificate that is understood.
    pub(crate) not_after: Option<u64>,
}

/// Until when a certificate is valid, in seconds since 1970.
pub(crate) fn not_after(pair: &CertifiedKey) -> Option<u64> {
    let own = CertificateFacts::of(pair.end_entity_cert().ok()?);
    own.ok().map(|facts| facts.not_after)
}

/// The latest offer that could be used.
pub(crate) type Current = watch::Receiver<Offer>;

impl Credentials {
    /// Reads the files and checks that they belong together. Blocks.
    ///
    /// # Errors
    ///
    /// A file cannot be read or has no certificate or key, or the key does not belong to the
    /// certificate.
    pub fn check(&self) -> Result<(), CredentialsError> {
        self.load().map(drop)
    }

    fn load(&self) -> Result<Offer, CredentialsError> {
        use CredentialsFile::{Certificate, Key};
        let text = self.read(Certificate)?;
        let chain = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|error| self.bad(Certificate, error))?;
        if chain.is_empty() {
            return Err(self.bad(Certificate, "has no certificate in it"));
        }
        let key = match PrivateKeyDer::from_pem_slice(&self.read(Key)?) {
            Err(pem::Error::NoItemsFound) => Err(self.bad(Key, "has no private key in it")),
            key => key.map_err(|error| self.bad(Key, error)),
        }?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let signer = provider.key_provider.load_private_key(key.clone_key());
        signer.map_err(|error| self.bad(Key, error))?;
        let pair = CertifiedKey::from_der(chain, key, &provider).map_err(|error| match error {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                let certificate = self.certificate.display();
                self.bad(Key, format_args!("is not the key of the certificate in {certificate}"))
            }
            error => self.bad(Certificate, error),
        })?;
        let not_after = not_after(&pair);
        let config = config(Arc::new(SingleCertAndKey::from(pair)));
        let config = Arc::new(config.map_err(|error| self.bad(Key, error))?);
        Ok(Offer { config, not_after })
    }

    /// Reads the files as [`Self::check`] does, and tells what the server's certificate says. Blocks.
    ///
    /// # Errors
    ///
    /// Those of [`Self::check`], and that the certificate is not understood.
    pub fn facts(&self) -> Result<CertificateFacts, CredentialsError> {
        use CredentialsFile::Certificate;
        self.load()?;
        let first = CertificateDer::from_pem_slice(&self.read(Certificate)?);
        let first = first.map_err(|error| self.bad(Certificate, error))?;
        CertificateFacts::of(&first).map_err(|error| self.bad(Certificate, error))
    }

    fn path(&self, file: CredentialsFile) -> &Path {
        match file {
            CredentialsFile::Certificate => &self.certificate,
            CredentialsFile::Key => &self.key,
        }
    }

    fn read(&self, file: CredentialsFile) -> Result<Vec<u8>, CredentialsError> {
        let bad = |error: io::Error| self.bad(file, error);
        // NONBLOCK: a FIFO with nobody at its other end must not hold the thread.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = rustix::fs::open(self.path(file), flags, Mode::empty());
        let opened = File::from(opened.map_err(|error| bad(error.into()))?);
        if !opened.metadata().map_err(bad)?.is_file() {
            return Err(self.bad(file, "is not a regular file"));
        }
        let mut text = Vec::new();
        match opened.take(MAX_FILE + 1).read_to_end(&mut text).map_err(bad)? as u64 {
            0..=MAX_FILE => Ok(text),
            _ => Err(self.bad(file, "has more than 1 MiB")),
        }
    }

    fn bad(&self, file: CredentialsFile, what: impl fmt::Display) -> CredentialsError {
        CredentialsError { file, path: self.path(file).to_owned(), what: what.to_string() }
    }

    /// States of both files, as far as their metadata tell.
    fn states(&self) -> [Option<FileState>; 2] {
        let state = |path| std::fs::metadata(path).ok().map(|metadata| FileState::of(&metadata));
        [&self.certificate, &self.key].map(state)
    }
}

/// What a listener offers, with the certificates of `certificates`.
pub(crate) fn config(
    certificates: Arc<dyn ResolvesServerCert>,
) -> Result<ServerConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(certificates);
    config.alpn_protocols = ALPN.map(<[u8]>::to_vec).into();
    // Returning clients are recognized by tickets that they keep, not by sessions that the
    // server keeps. A new certificate has a new ticket key, so all clients see it.
    config.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new()?;
    Ok(config)
}

/// Credentials in use, and their files.
#[derive(Debug)]
pub(crate) struct Keeper {
    look: Look,
    current: watch::Sender<Offer>,
}

#[derive(Debug)]
struct Look {
    credentials: Credentials,
    /// The files' states when they were last read.
    seen: [Option<FileState>; 2],
    /// Why they could not be used then.
    refused: Option<CredentialsError>,
    /// How often this was logged.
    told: u64,
}

impl Keeper {
    /// Loads the credentials. Blocks.
    pub(crate) fn new(credentials: Credentials) -> Result<Self, CredentialsError> {
        let seen = credentials.states();
        let (current, _) = watch::channel(credentials.load()?);
        Ok(Self { look: Look { credentials, seen, refused: None, told: 0 }, current })
    }

    pub(crate) fn current(&self) -> Current {
        self.current.subscribe()
    }

    /// Checks the files every few seconds, and at SIGHUP. Existing connections keep the credentials
    /// with which they were accepted.
    ///
    /// # Errors
    ///
    /// The process cannot listen for the signal.
    pub(crate) async fn keep(self) -> io::Result<()> {
        let Self { mut look, current } = self;
        let mut hang_up = signal(SignalKind::hangup())?;
        loop {
            let asked = tokio::select! {
                _ = hang_up.recv() => true,
                () = tokio::time::sleep(LOOK) => false,
            };
            let looked = spawn_blocking(move || {
                let found = look.again(asked);
                (look, found)
            });
            let found;
            (look, found) = looked.await.map_err(io::Error::other)?;
            if let Some(offer) = found {
                let certificate = look.credentials.certificate.display();
                info!(%certificate, "certificate and key read again");
                current.send_replace(offer);
            }
        }
    }
}

impl Look {
    /// The new offer, if the files have changed and can be used. An error is logged once.
    /// The two files are not written at the same moment, so refused ones are tried again each time.
    fn again(&mut self, asked: bool) -> Option<Offer> {
        let now = self.credentials.states();
        if now == self.seen && self.refused.is_none() && !asked {
            return None;
        }
        match self.credentials.load() {
            Ok(offer) => {
                (self.seen, self.refused) = (now, None);
                Some(offer)
            }
            Err(error) => {
                if asked || self.refused.as_ref() != Some(&error) {
                    self.told += 1;
                    warn!("the certificate stays as it was: {error}");
                }
                (self.seen, self.refused) = (now, Some(error));
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make(at: &Credentials) {
        testkit::certificate::make("test", &at.certificate, &at.key);
    }

    #[test]
    fn a_pair_is_taken_when_it_fits_and_a_bad_one_is_told_of_once() {
        let folder = tempfile::tempdir().unwrap();
        let pair = |name: &str| Credentials {
            certificate: folder.path().join(format!("{name}.pem")),
            key: folder.path().join(format!("{name}.key")),
        };
        let (used, other) = (pair("used"), pair("other"));
        make(&used);
        make(&other);
        let mut look = Keeper::new(used.clone()).unwrap().look;
        assert!(look.again(false).is_none() && look.told == 0);
        assert!(look.again(true).is_some(), "asked for");

        std::fs::rename(&other.certificate, &used.certificate).unwrap();
        for _ in 0..3 {
            assert!(look.again(false).is_none());
            let refused = look.refused.as_ref().unwrap();
            assert_eq!((refused.file, look.told), (CredentialsFile::Key, 1));
        }
        // Half a key, written in place: now the error is another one.
        std::fs::write(&used.key, "-----BEGIN PRIVATE KEY-----\n").unwrap();
        for _ in 0..3 {
            assert!(look.again(false).is_none() && look.told == 2);
        }
        std::fs::rename(&other.key, &used.key).unwrap();
        assert!(look.again(false).is_some() && look.refused.is_none());
        assert!(look.again(false).is_none() && look.told == 2);
    }

    #[test]
    fn a_certificate_tells_its_times_and_names() {
        let folder = tempfile::tempdir().unwrap();
        let [certificate, key] = ["c.pem", "k.pem"].map(|name| folder.path().join(name));
        let pair = Credentials { certificate, key };
        make(&pair);
        let facts = pair.facts().unwrap();
        assert_eq!(facts.names, ["127.0.0.1", "localhost"]);
        assert_eq!(facts.not_after - facts.not_before, 30 * 86_400);
        assert!(facts.is_self_signed);
    }
}
