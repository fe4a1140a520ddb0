//! TLS: which certificates are trusted, and connections over it (rustls, without its I/O).

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::{Error, Kind};

/// Which certificates are trusted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trust {
    /// Those of the authorities that this system trusts.
    System,
    /// Those of the authorities in a PEM file.
    Authorities(PathBuf),
    /// Any certificate. The server must still have its key.
    Anybody,
}

/// Why TLS cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TlsError(String);

impl TlsError {
    fn new(why: impl fmt::Display) -> Self {
        Self(why.to_string())
    }
}

/// Makes a client's configuration. It asks for no protocol (ALPN, RFC 7301) yet.
///
/// # Errors
/// There are no authorities to trust, or their file cannot be read.
pub fn client_config(trust: &Trust) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(TlsError::new)?;
    let roots = match trust {
        Trust::System => of_system()?,
        Trust::Authorities(path) => from_file(path)?,
        Trust::Anybody => {
            let verifier = Arc::new(AnyCertificate(provider));
            let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
            return Ok(builder.with_no_client_auth());
        }
    };
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

fn from_file(path: &Path) -> Result<RootCertStore, TlsError> {
    let wrong =
        |error: &dyn fmt::Display| TlsError::new(format_args!("{}: {error}", path.display()));
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))? {
        let certificate = certificate.map_err(|error| wrong(&error))?;
        roots.add(certificate).map_err(|error| wrong(&error))?;
    }
    if roots.is_empty() { Err(wrong(&"no certificate in it")) } else { Ok(roots) }
}

fn of_system() -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        let hint = "this system has no certificates of authorities: --authorities or --insecure";
        return Err(TlsError::new(hint));
    }
    Ok(roots)
}

/// How viewers' connections are encrypted where a URL asks for TLS.
#[derive(Debug, Clone)]
pub struct Tls {
    http: Arc<ClientConfig>,
    bare: Arc<ClientConfig>,
}

impl Tls {
    /// Makes it for the certificates that are trusted.
    ///
    /// # Errors
    /// Those of [`client_config`].
    pub fn new(trust: &Trust) -> Result<Self, TlsError> {
        let bare = client_config(trust)?;
        let mut http = bare.clone();
        http.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { http: Arc::new(http), bare: Arc::new(bare) })
    }

    /// The configuration for a protocol within TLS: it decides which ALPN is asked for.
    fn config(&self, within: Within) -> Arc<ClientConfig> {
        match within {
            Within::Http => self.http.clone(),
            Within::Rtmp => self.bare.clone(),
        }
    }
}

/// The protocol within TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Within {
    /// HTTP/1.1, or WebSocket, which begins as HTTP/1.1.
    Http,
    /// RTMP, which has no ALPN name.
    Rtmp,
}

/// A connection over TLS.
#[derive(Debug)]
pub(crate) struct Stream {
    tcp: TcpStream,
    session: ClientConnection,
    /// Whether the last read filled the buffer, so that the session may hold more.
    more: bool,
}

impl Stream {
    /// Makes the TLS handshake with the server at the other end of `tcp`.
    pub(crate) async fn open(
        tls: &Tls,
        within: Within,
        host: &str,
        tcp: TcpStream,
        patience: Duration,
    ) -> Result<Self, Error> {
        let wrong = |error: &dyn fmt::Display| Error::new(Kind::Tls, format!("TLS: {error}"));
        let name = ServerName::try_from(host.to_owned()).map_err(|error| wrong(&error))?;
        let session =
            ClientConnection::new(tls.config(within), name).map_err(|error| wrong(&error))?;
        let mut stream = Self { tcp, session, more: false };
        let what = || format!("agreeing on keys: nothing for {patience:?}");
        timeout(patience, stream.agree())
            .await
            .map_err(|_| Error::new(Kind::Timeout, what()))?
            .map_err(|error| Error::io(&error, "agreeing on keys"))?;
        Ok(stream)
    }

    async fn agree(&mut self) -> io::Result<()> {
        loop {
            while !self.flush()? {
                self.tcp.writable().await?;
            }
            if !self.session.is_handshaking() {
                return Ok(());
            }
            self.tcp.readable().await?;
            match self.receive() {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
        }
    }

    /// Takes records from the socket; 0 at its end.
    fn receive(&mut self) -> io::Result<usize> {
        let read = self.session.read_tls(&mut Wire(&self.tcp))?;
        if let Err(error) = self.session.process_new_packets() {
            // The alert to the server is a courtesy; nothing depends on it.
            let _ = self.flush();
            return Err(io::Error::new(ErrorKind::InvalidData, error));
        }
        Ok(read)
    }

    /// Sends the records that wait; returns whether all are sent.
    fn flush(&mut self) -> io::Result<bool> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut Wire(&self.tcp)) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    pub(crate) fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.more { Poll::Ready(Ok(())) } else { self.tcp.poll_read_ready(context) }
    }

    pub(crate) fn poll_writable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.tcp.poll_write_ready(context)
    }

    /// Reads everything that is there and fits.
    pub(crate) fn try_read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        loop {
            let rest = into.get_mut(filled..).unwrap_or_default();
            if rest.is_empty() {
                self.more = true;
                return Ok(filled);
            }
            let read = match self.session.reader().read(rest) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => None,
                other => Some(other),
            };
            match read {
                Some(Ok(size)) if size > 0 => {
                    filled += size;
                    continue;
                }
                // The end, orderly or not, is reported after all the bytes before it.
                Some(_) if filled > 0 => {
                    self.more = true;
                    return Ok(filled);
                }
                Some(end) => return end,
                None => {}
            }
            match self.receive() {
                Ok(_) => {
                    // Sends answers to the server's key updates.
                    self.flush()?;
                }
                Err(error) if filled > 0 => {
                    self.more = error.kind() != ErrorKind::WouldBlock;
                    return Ok(filled);
                }
                Err(error) => {
                    self.more = false;
                    return Err(error);
                }
            }
        }
    }

    /// Takes bytes to send, as many as there is room for.
    pub(crate) fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = self.session.writer().write(bytes)?;
        if self.flush()? || taken > 0 { Ok(taken) } else { Err(ErrorKind::WouldBlock.into()) }
    }

    /// Whether accepted bytes have not been sent yet.
    pub(crate) fn owes(&self) -> bool {
        self.session.wants_write()
    }
}

/// The socket, as rustls reads and writes it.
struct Wire<'a>(&'a TcpStream);

impl Read for Wire<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(into)
    }
}

impl Write for Wire<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Accepts any certificate, if the server has its key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
