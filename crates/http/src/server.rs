//! Listeners, worker threads, the accept loop, and shutting down.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;

use axum::Router;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{self, LocalOptions};
use tokio::sync::{mpsc, watch};
use tokio::task::spawn_local;
use tracing::info;

use crate::counters::{Counters, count};
use crate::credentials::{Current, Keeper};
use crate::net::{self, Accepted, Gate, LogId, Worker};
use crate::shared::Shared;
use crate::{Certificates, Config, Credentials, Handler, Identity, connection, handshake};

/// A bound address that is ready to serve.
#[derive(Debug)]
pub struct Server {
    listeners: Vec<std::net::TcpListener>,
    address: SocketAddr,
    tls: Option<Tls>,
    config: Arc<Config>,
    cors: Arc<[u8]>,
    gate: Arc<Gate>,
    counters: Arc<Counters>,
}

/// The address for TLS.
#[derive(Debug)]
struct Tls {
    listeners: Vec<std::net::TcpListener>,
    address: SocketAddr,
    current: Current,
    /// Without one, somebody else supplies certificates.
    keeper: Option<Keeper>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Serving,
    Draining,
    /// No worker has anything left to wait for.
    Done,
}

impl Server {
    /// Binds one listener per worker to the address. Port 0 selects a free one.
    ///
    /// # Errors
    ///
    /// [`AddrInUse`](io::ErrorKind::AddrInUse) even if the other holder of the port shares it: two
    /// servers on one port would each get half of the viewers.
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) for a configuration out of range.
    pub fn bind(address: SocketAddr, config: Config) -> io::Result<Self> {
        let invalid = |what| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        if config.max_head < 8 << 10 {
            return invalid("max_head is less than 8192");
        }
        let cors = match &config.cors {
            Some(origin) if !origin.is_empty() && origin.bytes().all(|b| b.is_ascii_graphic()) => {
                format!(
                    "Access-Control-Allow-Origin: {origin}\r\nAccess-Control-Expose-Headers: *\r\n"
                )
            }
            Some(_) => return invalid("cors is not an origin"),
            None => String::new(),
        };
        let (listeners, address) = net::listen(address, config.workers, config.unsent_limit)?;
        let per_address = config.max_connections_per_address.clone();
        let gate = Arc::new(Gate::new(config.max_connections, per_address));
        let counters = Arc::new(Counters::new(Arc::clone(&gate), listeners.len()));
        let cors = cors.into_bytes().into();
        let tls = None;
        Ok(Self { listeners, address, tls, config: Arc::new(config), cors, gate, counters })
    }

    /// Also serves a second address, with TLS: the same content over HTTP/2 or HTTP/1.1, as the
    /// client prefers. The connection limits apply to both addresses together. Blocks while it
    /// reads the credentials. They are read again when they change, or when the process gets
    /// SIGHUP.
    ///
    /// # Errors
    ///
    /// The same as those of [`bind`](Self::bind), and [`InvalidData`](io::ErrorKind::InvalidData)
    /// if the credentials cannot be used.
    pub fn with_tls(self, address: SocketAddr, credentials: Credentials) -> io::Result<Self> {
        let keeper = Keeper::new(credentials);
        let keeper = keeper.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        let current = keeper.current();
        self.listen_with_tls(address, current, Some(keeper))
    }

    /// Like [`with_tls`](Self::with_tls), with certificates that come while the server runs.
    ///
    /// # Errors
    ///
    /// The same as those of [`bind`](Self::bind).
    pub fn with_certificates(
        self,
        address: SocketAddr,
        certificates: &Certificates,
    ) -> io::Result<Self> {
        self.listen_with_tls(address, certificates.current(), None)
    }

    fn listen_with_tls(
        mut self,
        address: SocketAddr,
        current: Current,
        keeper: Option<Keeper>,
    ) -> io::Result<Self> {
        let (listeners, address) =
            net::listen(address, self.config.workers, self.config.unsent_limit)?;
        self.tls = Some(Tls { listeners, address, current, keeper });
        Ok(self)
    }

    /// The bound address, with the selected port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address bound for TLS, if any.
    pub fn tls_address(&self) -> Option<SocketAddr> {
        self.tls.as_ref().map(|tls| tls.address)
    }

    /// The certificate and key of the TLS listener, if there is one. They are kept fresh while the server runs.
    pub fn identity(&self) -> Option<Identity> {
        self.tls.as_ref().map(|tls| Identity::new(tls.current.clone()))
    }

    /// The counters. They stay readable while and after the server runs.
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// Serves until `shutdown` is ready, then drains: closes idle connections, and lets responses
    /// in progress finish for at most `Config::grace`. Connections are accepted until the end, so
    /// that the control plane can report the progress; requests for media are refused with 503. If
    /// the future is dropped instead, the workers end at once.
    ///
    /// `handlers` is called on each worker's thread, inside its runtime. The `control` router runs
    /// on the runtime that calls this.
    ///
    /// # Errors
    ///
    /// A worker cannot be started, or ends by itself (a panic in `handlers`).
    pub async fn run<H: Handler>(
        self,
        handlers: impl Fn(Worker) -> H + Send + Sync + 'static,
        control: Router,
        shutdown: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let handlers = Arc::new(handlers);
        let runtime = runtime::Handle::current();
        let (phase, _) = watch::channel(Phase::Serving);
        let (ended, mut ends) = mpsc::unbounded_channel();
        let (idle, mut idles) = mpsc::unbounded_channel();
        let mut threads = Vec::new();
        let (mut secured, current, keeper) = match self.tls {
            Some(Tls { listeners, current, keeper, .. }) => {
                (listeners.into_iter(), Some(current), keeper)
            }
            None => (Vec::new().into_iter(), None, None),
        };
        for (index, listener) in self.listeners.into_iter().enumerate() {
            let secured = secured.next().zip(current.clone());
            let handlers = Arc::clone(&handlers);
            let phase = phase.subscribe();
            let end = End { ended: ended.clone(), idle: idle.clone() };
            let (config, cors) = (Arc::clone(&self.config), Arc::clone(&self.cors));
            let (gate, counters) = (Arc::clone(&self.gate), Arc::clone(&self.counters));
            let (router, control) = (control.clone(), runtime.clone());
            let work = move || -> io::Result<()> {
                let runtime = runtime::Builder::new_current_thread()
                    .enable_all()
                    .build_local(LocalOptions::default())?;
                runtime.block_on(async {
                    let worker = Worker::new(index);
                    let shared = Shared {
                        handler: handlers(worker.clone()),
                        worker,
                        config,
                        cors,
                        gate,
                        counters,
                        router: TowerToHyperService::new(router),
                        control,
                    };
                    let listener = TcpListener::from_std(listener)?;
                    let secured = match secured {
                        Some((listener, current)) => {
                            Some((TcpListener::from_std(listener)?, current))
                        }
                        None => None,
                    };
                    work(listener, secured, Rc::new(shared), phase, &end).await;
                    io::Result::Ok(())
                })?;
                // Blocking reads from a disk are not waited for.
                runtime.shutdown_background();
                Ok(())
            };
            threads.push(thread::Builder::new().name(format!("http-{index}")).spawn(work)?);
        }
        let keep = async {
            match keeper {
                Some(keeper) => keeper.keep().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = shutdown => {
                phase.send_replace(Phase::Draining);
                // A worker that has nothing left to do still listens. The kernel gives each
                // listener a share of the connections, and closing a listener resets those in its
                // queue.
                for _ in &threads {
                    idles.recv().await;
                }
                phase.send_replace(Phase::Done);
                for _ in &threads {
                    ends.recv().await;
                }
            }
            // A worker that ends now has failed. The others end with `phase`.
            _ = ends.recv() => {}
            kept = keep => kept?,
        }
        drop(phase);
        for thread in threads {
            thread.join().map_err(|_| io::Error::other("a worker panicked"))??;
        }
        Ok(())
    }
}

/// Reports the end of a worker's thread, even after a panic.
struct End {
    ended: mpsc::UnboundedSender<()>,
    /// Used by a worker that has nothing left to wait for.
    idle: mpsc::UnboundedSender<()>,
}

impl Drop for End {
    fn drop(&mut self) {
        // If `run` was dropped, nobody listens any more.
        let _ = self.idle.send(());
        let _ = self.ended.send(());
    }
}

/// Runs a worker from its start to its end.
async fn work<H: Handler>(
    listener: TcpListener,
    secured: Option<(TcpListener, Current)>,
    shared: Rc<Shared<H>>,
    mut phase: watch::Receiver<Phase>,
    end: &End,
) {
    let accept_secured = async {
        match &secured {
            Some((listener, current)) => accept(listener, Some(current), &shared).await,
            None => std::future::pending().await,
        }
    };
    let mut accept = pin!(async {
        tokio::select! {
            never = accept(&listener, None, &shared) => match never {},
            never = accept_secured => match never {},
        }
    });
    let told = tokio::select! {
        never = &mut accept => match never {},
        told = phase.wait_for(|&phase| phase == Phase::Draining) => told.is_ok(),
    };
    if !told {
        return;
    }
    shared.worker.drain.begin();
    let mut server = phase.clone();
    let ended = async {
        shared.worker.all_ended().await;
        // If `run` was dropped, nobody receives this.
        let _ = end.idle.send(());
        let _ = phase.wait_for(|&phase| phase == Phase::Done).await;
    };
    tokio::select! {
        never = accept => match never {},
        () = ended => {}
        () = tokio::time::sleep(shared.config.grace) => {
            let (worker, open) = (shared.worker.index, shared.worker.running());
            if open > 0 {
                info!(worker, open, "draining took too long: closing what is left");
            }
        }
        // This happens only if the server was dropped.
        _ = server.wait_for(|_| false) => {}
    }
}

async fn accept<H: Handler>(
    listener: &TcpListener,
    tls: Option<&Current>,
    shared: &Rc<Shared<H>>,
) -> Infallible {
    let take = |Accepted { stream, peer, permit }| {
        count(&shared.tally().accepted, 1);
        let Some(permit) = permit else {
            count(&shared.tally().refused, 1);
            // A client that begins with a TLS handshake would not understand the answer.
            if tls.is_none() {
                refuse(&stream);
            }
            return;
        };
        // Connections that arrive while the server drains are answered, but not waited for.
        let task = (!shared.worker.drain.has_begun()).then(|| shared.task());
        let shared = Rc::clone(shared);
        let tls = tls.map(|current| Arc::clone(&current.borrow().config));
        // Two kinds of tasks, so that a plain connection has no room for TLS.
        match tls {
            None => spawn_local(LogId::connection().scope(async move {
                let _task = task;
                connection::drive(stream, peer, permit, shared).await;
            })),
            Some(tls) => spawn_local(LogId::connection().scope(async move {
                let _task = task;
                handshake::drive(stream, peer, permit, shared, tls).await;
            })),
        };
    };
    net::accept("http", listener, &shared.gate, take).await
}

/// Sends the reason, if the socket takes it at once.
fn refuse(stream: &TcpStream) {
    const ANSWER: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nServer: headwater\r\n\
        Retry-After: 5\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let _ = stream.try_write(ANSWER);
    // Unread input would make the kernel drop the answer.
    let _ = stream.try_read(&mut [0; 4096]);
}
