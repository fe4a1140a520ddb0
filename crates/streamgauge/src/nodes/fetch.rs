//! Fetches objects of one node: whole bodies, with the header fields that matter.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::spawn_local;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use viewer::url::Url;

use super::ledger::FIELDS;

/// Longest body.
const LONGEST: usize = 256 << 20;
/// How many idle connections are kept.
const IDLE: usize = 16;

/// A good answer.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    /// The values of [`FIELDS`]; empty where there is none.
    pub(super) fields: [String; FIELDS.len()],
    /// Length of the whole file, if this is a range of it, and it is known.
    pub(super) whole: Option<u64>,
    /// Whether it came without its length, as what is still being made does.
    pub(super) is_growing: bool,
    pub(super) body: Bytes,
    /// When the last byte came.
    pub(super) at: Instant,
}

/// There is no good answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The node refuses.
    #[error("status {0}")]
    Status(u16),
    /// The body is too long, or does not end.
    #[error("a body of more than {LONGEST} bytes")]
    TooLong,
    /// The answer takes too long.
    #[error("no answer in time")]
    Late,
    /// The connection fails.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// What comes is no HTTP.
    #[error("{0}")]
    Http(#[from] hyper::Error),
    /// No such request can be made.
    #[error("{0}")]
    Request(String),
}

type Sender = SendRequest<Empty<Bytes>>;

/// What is wanted of a body.
struct Cut {
    /// Bytes before that.
    skip: u64,
    /// Bytes that are still wanted.
    take: u64,
}

impl Default for Cut {
    /// All of it.
    fn default() -> Self {
        Self { skip: 0, take: u64::MAX }
    }
}

impl Cut {
    /// What is wanted of the next bytes.
    fn of(&mut self, mut data: Bytes) -> Bytes {
        let length = |data: &Bytes| data.len() as u64;
        let skipped = self.skip.min(length(&data));
        let mut kept = data.split_off(usize::try_from(skipped).unwrap_or(usize::MAX));
        let taken = self.take.min(length(&kept));
        kept.truncate(usize::try_from(taken).unwrap_or(usize::MAX));
        (self.skip, self.take) = (self.skip - skipped, self.take - taken);
        kept
    }
}

/// A client of one node.
pub(super) struct Client {
    tls: TlsConnector,
    patience: Duration,
    /// Idle connections, by authority.
    idle: RefCell<Vec<(String, Sender)>>,
}

impl Client {
    pub(super) fn new(tls: &Arc<ClientConfig>, patience: Duration) -> Self {
        Self { tls: TlsConnector::from(Arc::clone(tls)), patience, idle: RefCell::default() }
    }

    /// Asks for a resource, or for a range of it, first and last byte. Where the node sends no ranges, the answer is
    /// cut to the range, and the rest is not read. The node may take `longer` than usual to answer.
    ///
    /// # Errors
    /// [`Failure`].
    pub(super) async fn get(
        &self,
        url: &Url,
        range: Option<(u64, u64)>,
        longer: Duration,
    ) -> Result<Answer, Failure> {
        let mut request = Request::get(url.target())
            .header("Host", url.authority())
            .header("User-Agent", "streamgauge");
        if let Some((first, last)) = range {
            request = request.header("Range", format!("bytes={first}-{last}"));
        }
        let request = request.body(Empty::new()).map_err(|e| Failure::Request(e.to_string()))?;
        let deadline = Instant::now() + self.patience + longer;
        let exchange = self.exchange(url, request, range);
        timeout_at(deadline, exchange).await.map_err(|_| Failure::Late)?
    }

    async fn exchange(
        &self,
        url: &Url,
        request: Request<Empty<Bytes>>,
        range: Option<(u64, u64)>,
    ) -> Result<Answer, Failure> {
        let (mut sender, used) = match self.take(url.authority()).await {
            Some(idle) => (idle, true),
            None => (self.connect(url).await?, false),
        };
        let response = match sender.send_request(request.clone()).await {
            Ok(response) => response,
            // The node may close an idle connection at any time (RFC 9112 9.3).
            Err(_) if used => {
                sender = self.connect(url).await?;
                sender.send_request(request).await?
            }
            Err(error) => return Err(error.into()),
        };
        let status = response.status().as_u16();
        if !matches!(status, 200 | 206) {
            return Err(Failure::Status(status));
        }
        let headers = response.headers();
        let text = |name: &str| {
            let values = headers.get_all(name).iter();
            values.map(|v| String::from_utf8_lossy(v.as_bytes())).collect::<Vec<_>>().join(", ")
        };
        let fields = FIELDS.map(text);
        let number = |text: &str| text.parse::<u64>().ok();
        let mut wanted = Cut::default();
        let whole = match range {
            Some((first, last)) if status == 200 => {
                wanted = Cut { skip: first, take: (last + 1).saturating_sub(first) };
                number(&text("Content-Length"))
            }
            _ => text("Content-Range").rsplit_once('/').and_then(|(_, whole)| number(whole)),
        };
        let is_growing = !headers.contains_key("Content-Length");
        let mut incoming = response.into_body();
        let mut body = BytesMut::new();
        while let Some(frame) = incoming.frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            let data = wanted.of(data);
            if body.len() + data.len() > LONGEST {
                return Err(Failure::TooLong);
            }
            body.extend_from_slice(&data);
            if wanted.take == 0 {
                break;
            }
        }
        let at = Instant::now();
        let mut idle = self.idle.borrow_mut();
        // A connection with the rest of an answer is of no use.
        if idle.len() < IDLE && wanted.take > 0 {
            idle.push((url.authority().to_owned(), sender));
        }
        Ok(Answer { fields, whole, is_growing, body: body.freeze(), at })
    }

    /// An idle connection that is still open.
    async fn take(&self, authority: &str) -> Option<Sender> {
        loop {
            let mut sender = {
                let mut idle = self.idle.borrow_mut();
                let place = idle.iter().position(|(to, _)| to == authority)?;
                idle.swap_remove(place).1
            };
            if sender.ready().await.is_ok() {
                return Some(sender);
            }
        }
    }

    async fn connect(&self, url: &Url) -> Result<Sender, Failure> {
        let socket = TcpStream::connect((url.host(), url.port()));
        let socket = timeout(self.patience, socket).await.map_err(|_| Failure::Late)??;
        socket.set_nodelay(true)?;
        if !url.is_secure() {
            return handshake(socket).await;
        }
        let name = ServerName::try_from(url.host().to_owned()).map_err(io::Error::other)?;
        handshake(self.tls.connect(name, socket).await?).await
    }
}

async fn handshake<S>(socket: S) -> Result<Sender, Failure>
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(socket)).await?;
    // The connection reports its errors to the requests that it carries.
    spawn_local(connection);
    Ok(sender)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_cut_to_a_range() {
        for length in [1, 3, 10, 100] {
            let all: Vec<u8> = (0..100).collect();
            let mut cut = Cut { skip: 25, take: 30 };
            let kept: Vec<u8> =
                all.chunks(length).flat_map(|it| cut.of(it.to_vec().into())).collect();
            assert_eq!((&kept[..], cut.take), (&all[25..55], 0), "{length}");
            let mut cut = Cut { skip: 90, take: 30 };
            let kept: Vec<u8> =
                all.chunks(length).flat_map(|it| cut.of(it.to_vec().into())).collect();
            assert_eq!((&kept[..], cut.take), (&all[90..], 20), "{length}");
            let mut whole = Cut::default();
            assert!(all.chunks(length).all(|it| whole.of(it.to_vec().into()) == it));
        }
    }
}
