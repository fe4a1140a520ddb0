//! Requests of WHIP, each on a connection of its own.

use std::net::IpAddr;
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use axum::body::{Body, to_bytes};
use axum::http::uri::Scheme;
use axum::http::{HeaderMap, Method, Request, StatusCode, Uri, header};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::PATIENCE;

/// Longest payload of an answer, in bytes.
const MOST_ANSWER: usize = 64 << 10;

/// Longest part of a server's sentence that is shown, in characters.
const SENTENCE: usize = 200;

/// A connection to an HTTP server, for one request.
pub(super) struct Connection {
    sender: http1::SendRequest<Body>,
    url: Uri,
    /// The address of this machine on the way to the server.
    pub(super) local: IpAddr,
}

/// What a server answered.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) payload: String,
}

impl Answer {
    /// The status, and what the server says about it.
    pub(super) fn sentence(&self) -> String {
        let line = self.payload.trim().lines().next().unwrap_or_default();
        let line: String = line.chars().filter(|char| !char.is_control()).take(SENTENCE).collect();
        if line.is_empty() { self.status.to_string() } else { format!("{}: {line}", self.status) }
    }

    /// The URL that the header `Location` names, which may be relative to that of the request.
    pub(super) fn location(&self, asked: &Uri) -> anyhow::Result<Uri> {
        let location = self.headers.get(header::LOCATION).context("an answer without Location")?;
        let location = location.to_str().context("Location")?;
        if location.starts_with("http://") || location.starts_with("https://") {
            return parse(location);
        }
        let scheme = asked.scheme_str().unwrap_or_default();
        let authority = asked.authority().map_or("", |authority| authority.as_str());
        if location.starts_with('/') {
            return parse(&format!("{scheme}://{authority}{location}"));
        }
        let folder = asked.path().rsplit_once('/').map_or("", |(folder, _)| folder);
        parse(&format!("{scheme}://{authority}{folder}/{location}"))
    }
}

/// Reads an `http://` or `https://` URL.
pub(super) fn parse(url: &str) -> anyhow::Result<Uri> {
    let parsed: Uri = url.parse().with_context(|| format!("{url}: not a URL"))?;
    let is_http = [Some(&Scheme::HTTP), Some(&Scheme::HTTPS)].contains(&parsed.scheme());
    ensure!(is_http, "{url}: a WHIP URL begins with http:// or https://");
    let authority = parsed.authority().map_or("", |authority| authority.as_str());
    ensure!(!authority.contains('@'), "a user name in a WHIP URL is not supported");
    Ok(parsed)
}

impl Connection {
    /// Connects to the server of a URL.
    pub(super) async fn to(url: &Uri) -> anyhow::Result<Self> {
        let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
        let has_tls = url.scheme() == Some(&Scheme::HTTPS);
        let port = url.port_u16().unwrap_or(if has_tls { 443 } else { 80 });
        let connected = async {
            let stream = TcpStream::connect((host, port)).await?;
            let local = stream.local_addr()?.ip();
            let sender = if has_tls {
                let name = ServerName::try_from(host.to_owned())?;
                let connector = TlsConnector::from(Arc::new(tls()?));
                speak(connector.connect(name, stream).await.context("TLS")?).await?
            } else {
                speak(stream).await?
            };
            Ok(Self { sender, url: url.clone(), local })
        };
        let connected: anyhow::Result<Self> =
            timeout(PATIENCE, connected).await.context("connecting takes too long")?;
        connected.with_context(|| format!("{host}:{port}"))
    }

    /// Sends a request, with a payload of this type if there is one.
    pub(super) async fn ask(
        mut self,
        method: Method,
        payload: Option<(&str, &str)>,
    ) -> anyhow::Result<Answer> {
        let authority = self.url.authority().map_or("", |authority| authority.as_str());
        let target = self.url.path_and_query().map_or("/", |target| target.as_str());
        let mut request =
            Request::builder().method(method).uri(target).header(header::HOST, authority);
        if let Some((kind, _)) = payload {
            request = request.header(header::CONTENT_TYPE, kind);
        }
        let body = payload.map_or_else(Body::empty, |(_, text)| Body::from(text.to_owned()));
        let request = request.body(body)?;
        let answered = async {
            let (head, body) = self.sender.send_request(request).await?.into_parts();
            let payload = to_bytes(Body::new(body), MOST_ANSWER).await?;
            let payload = String::from_utf8_lossy(&payload).into_owned();
            anyhow::Ok(Answer { status: head.status, headers: head.headers, payload })
        };
        let answered = timeout(PATIENCE, answered).await.context("no answer in time")?;
        answered.with_context(|| format!("request to {authority}"))
    }
}

/// Speaks HTTP/1.1 over a stream.
async fn speak(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> anyhow::Result<http1::SendRequest<Body>> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // The connection ends with the sender. The request reports each error.
    tokio::spawn(connection);
    Ok(sender)
}

/// TLS with the authorities that this system trusts, or those in the file that the environment's
/// `SSL_CERT_FILE` names.
fn tls() -> anyhow::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        bail!("this system has no certificates of authorities: SSL_CERT_FILE may name a file");
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let mut config = config?.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn locations_are_relative_to_the_request() {
        let plain = parse("http://tv.example:8080/live/x/whip?token=1").unwrap();
        let secure = parse("https://tv.example/live/x/whip").unwrap();
        let of = |asked: &Uri, location: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::LOCATION, HeaderValue::from_static(location));
            let answer = Answer { status: StatusCode::CREATED, headers, payload: String::new() };
            answer.location(asked).map(|url| url.to_string()).map_err(|error| error.to_string())
        };
        assert_eq!(of(&plain, "/live/x/whip/1").unwrap(), "http://tv.example:8080/live/x/whip/1");
        assert_eq!(of(&plain, "whip/1?a").unwrap(), "http://tv.example:8080/live/x/whip/1?a");
        assert_eq!(of(&plain, "https://other.example/1").unwrap(), "https://other.example/1");
        assert_eq!(of(&secure, "/live/x/whip/1").unwrap(), "https://tv.example/live/x/whip/1");
        assert_eq!(of(&secure, "1").unwrap(), "https://tv.example/live/x/1");
    }

    #[test]
    fn other_urls_are_refused() {
        for (url, why) in [
            ("ftp://tv.example/live/x/whip", "http:// or https://"),
            ("http://user:secret@tv.example/live/x/whip", "a user name"),
            ("http://", "not a URL"),
        ] {
            let error = parse(url).unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains("secret"), "{error}");
        }
    }
}
