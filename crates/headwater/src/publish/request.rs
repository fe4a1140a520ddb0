//! Requests of WHIP, each on a connection of its own.

use std::net::IpAddr;

use anyhow::{Context, bail, ensure};
use axum::body::{Body, to_bytes};
use axum::http::uri::Scheme;
use axum::http::{HeaderMap, Method, Request, StatusCode, Uri, header};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

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
        let authority = asked.authority().map_or("", |authority| authority.as_str());
        if location.starts_with('/') {
            return parse(&format!("http://{authority}{location}"));
        }
        let folder = asked.path().rsplit_once('/').map_or("", |(folder, _)| folder);
        parse(&format!("http://{authority}{folder}/{location}"))
    }
}

/// Reads an `http://` URL.
pub(super) fn parse(url: &str) -> anyhow::Result<Uri> {
    let parsed: Uri = url.parse().with_context(|| format!("{url}: not a URL"))?;
    if parsed.scheme() == Some(&Scheme::HTTPS) {
        bail!("{url}: headwater publish has no TLS, so a WHIP URL begins with http://");
    }
    ensure!(parsed.scheme() == Some(&Scheme::HTTP), "{url}: a WHIP URL begins with http://");
    let authority = parsed.authority().map_or("", |authority| authority.as_str());
    ensure!(!authority.contains('@'), "a user name in a WHIP URL is not supported");
    Ok(parsed)
}

impl Connection {
    /// Connects to the server of a URL.
    pub(super) async fn to(url: &Uri) -> anyhow::Result<Self> {
        let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
        let port = url.port_u16().unwrap_or(80);
        let connected = async {
            let stream = TcpStream::connect((host, port)).await?;
            let local = stream.local_addr()?.ip();
            let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
            // It ends with the sender. What goes wrong with it, the request reports.
            tokio::spawn(connection);
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

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn locations_are_relative_to_the_request() {
        let asked = parse("http://tv.example:8080/live/x/whip?token=1").unwrap();
        let of = |location: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::LOCATION, HeaderValue::from_static(location));
            let answer = Answer { status: StatusCode::CREATED, headers, payload: String::new() };
            answer.location(&asked).map(|url| url.to_string()).map_err(|error| error.to_string())
        };
        assert_eq!(of("/live/x/whip/1").unwrap(), "http://tv.example:8080/live/x/whip/1");
        assert_eq!(of("whip/1?a").unwrap(), "http://tv.example:8080/live/x/whip/1?a");
        assert_eq!(of("http://other.example/1").unwrap(), "http://other.example/1");
        assert!(of("https://other.example/1").unwrap_err().contains("no TLS"));
    }

    #[test]
    fn other_urls_are_refused() {
        for (url, why) in [
            ("https://tv.example/live/x/whip", "no TLS"),
            ("http://user:secret@tv.example/live/x/whip", "a user name"),
            ("http://", "not a URL"),
        ] {
            let error = parse(url).unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains("secret"), "{error}");
        }
    }
}
