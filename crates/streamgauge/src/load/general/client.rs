//! Connections to servers through hyper.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::spawn_local;
use tokio_rustls::TlsConnector;
use viewer::tls::client_config;

use super::blame::describe;
use crate::load::several::source_for;
use crate::load::tally::Fault;
use crate::load::target::{ByteRange, Target};
use crate::load::trouble::Trouble;
use crate::load::url::Origin;
use crate::load::wire::{Metered, Wire};
use crate::load::{Error, Plan};

/// Body of a request, always empty.
pub(super) type Body = Empty<Bytes>;

/// How connections are made, the same for all workers.
#[derive(Clone)]
pub(in crate::load) struct Client {
    tls: TlsConnector,
    pub(super) http2: bool,
    /// Local address of connections; `None` if the system picks it.
    source: Option<IpAddr>,
}

/// Runs the tasks of hyper on the current thread.
#[derive(Clone)]
struct Here;

impl<F: Future + 'static> hyper::rt::Executor<F> for Here {
    fn execute(&self, future: F) {
        spawn_local(async move {
            future.await;
        });
    }
}

/// A connection that takes requests.
pub(super) enum Session {
    /// With the number of received bytes that do not belong to a counted answer yet.
    One(http1::SendRequest<Body>, Rc<Cell<u64>>),
    Many(http2::SendRequest<Body>),
}

impl Client {
    pub(in crate::load) fn new(plan: &Plan, source: Option<IpAddr>) -> Result<Self, Error> {
        let mut config =
            client_config(&plan.trust).map_err(|error| Error::Tls(error.to_string()))?;
        // ALPN, RFC 7301.
        let protocol: &[u8] = if plan.http2 { b"h2" } else { b"http/1.1" };
        config.alpn_protocols = vec![protocol.to_vec()];
        let tls = TlsConnector::from(Arc::new(config));
        Ok(Self { tls, http2: plan.http2, source })
    }

    pub(super) async fn connect(
        &self,
        origin: &Origin,
        address: SocketAddr,
        wire: &Rc<Wire>,
    ) -> Result<Session, Trouble> {
        let of_io = |error: &io::Error| Trouble::new(Fault::of_io(error), error.to_string());
        let socket = self.open(address).await.map_err(|error| of_io(&error))?;
        socket.set_nodelay(true).map_err(|error| of_io(&error))?;
        if !origin.is_secure() {
            return self.handshake(socket, wire).await;
        }
        let in_tls = |detail: String| Trouble::new(Fault::Tls, detail);
        let name =
            ServerName::try_from(origin.host.clone()).map_err(|error| in_tls(error.to_string()))?;
        let socket =
            self.tls.connect(name, socket).await.map_err(|error| in_tls(error.to_string()))?;
        if self.http2 && socket.get_ref().1.alpn_protocol() != Some(b"h2") {
            return Err(in_tls("the server does not speak HTTP/2".to_owned()));
        }
        self.handshake(socket, wire).await
    }

    async fn open(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let Some(source) = source_for(self.source, address) else {
            return TcpStream::connect(address).await;
        };
        let socket = TcpSocket::new_v4()?;
        socket.bind(source)?;
        socket.connect(address).await
    }

    async fn handshake<S>(&self, socket: S, wire: &Rc<Wire>) -> Result<Session, Trouble>
    where
        S: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        let wrong = |error: hyper::Error| describe(&error, false);
        // Connections report their errors to the requests that they carry.
        if self.http2 {
            let (sender, connection) = http2::Builder::new(Here)
                .initial_stream_window_size(1 << 20)
                .initial_connection_window_size(16 << 20)
                .handshake(TokioIo::new(Metered::http2(socket, wire)))
                .await
                .map_err(wrong)?;
            spawn_local(connection);
            Ok(Session::Many(sender))
        } else {
            let unaccounted = Rc::default();
            let socket = TokioIo::new(Metered::http1(socket, wire, &unaccounted));
            let (sender, connection) = http1::handshake(socket).await.map_err(wrong)?;
            spawn_local(connection);
            Ok(Session::One(sender, unaccounted))
        }
    }
}

impl Session {
    pub(super) async fn send(
        &mut self,
        request: Request<Body>,
    ) -> hyper::Result<Response<Incoming>> {
        match self {
            Self::One(sender, _) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
            Self::Many(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
        }
    }
}

/// Makes a request for hyper.
pub(super) fn request(
    plan: &Plan,
    target: &Target,
    range: Option<ByteRange>,
) -> Result<Request<Body>, Trouble> {
    let uri = if plan.http2 { target.url.to_string() } else { target.url.path.clone() };
    let mut request = Request::builder().method(target.method.as_str()).uri(uri);
    if !plan.http2 {
        request = request.header("Host", target.url.origin.host_field());
        if !plan.keep_alive {
            request = request.header("Connection", "close");
        }
    }
    for (name, value) in &plan.headers {
        request = request.header(name, value);
    }
    if let Some(ByteRange { first, last }) = range {
        request = request.header("Range", format!("bytes={first}-{last}"));
    }
    request.body(Empty::new()).map_err(|error| Trouble::new(Fault::Local, error.to_string()))
}
