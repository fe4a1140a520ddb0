//! Listeners, one for each event loop of the media plane, and the connections they accept.

use std::io;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use http::net::{self, Accepted, Gate, LogId, Permit, Task, Worker};
use http::{Identity, Transport};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;

use super::connection::Connection;
use super::play::{Broadcasts, Messages};
use super::slots::{Pool, Shared, Undecided};
use crate::Origin;
use crate::config::Config;

/// How many connections may neither publish nor play, over all event loops: as many as may publish
/// or play, within this range. If more come, the oldest are closed. After an interruption all peers
/// may connect at once, and each needs a moment to say what it wants.
pub(crate) const UNDECIDED: RangeInclusive<usize> = 256..=4096;

/// A bound address, ready to serve.
pub struct Server {
    origin: Arc<Origin>,
    address: SocketAddr,
    listeners: Listeners,
    tls: Option<Tls>,
    /// Limits that the connections of all workers share.
    capacity: Arc<Capacity>,
}

/// One listener for each worker, which takes it.
type Listeners = Mutex<Vec<Option<std::net::TcpListener>>>;

/// The listeners of RTMPS.
struct Tls {
    address: SocketAddr,
    listeners: Listeners,
    identity: Identity,
}

/// Limits on connections, over all event loops.
#[derive(Debug)]
struct Capacity {
    /// All connections, whatever they do, by address. Their places limit their number.
    all: Arc<Gate>,
    /// Connections of one event loop that neither publish nor play.
    undecided: usize,
    publishers: Arc<Pool>,
    players: Arc<Pool>,
}

impl Server {
    /// Binds a listener for each worker of `config` to `rtmp.listen`. Port 0 takes a free port.
    ///
    /// # Errors
    /// The same as those of [`http::Server::bind`].
    pub fn bind(origin: Arc<Origin>, config: &http::Config) -> io::Result<Self> {
        let (listeners, address) = listen(origin.config.rtmp.listen, config)?;
        let capacity = Arc::new(Capacity::new(&origin.config, config.workers.get()));
        Ok(Self { origin, address, listeners, tls: None, capacity })
    }

    /// Also takes connections with TLS (RTMPS) at a second address. The limits apply to both together.
    ///
    /// # Errors
    /// The same as those of [`Self::bind`].
    pub fn with_tls(
        mut self,
        address: SocketAddr,
        identity: Identity,
        config: &http::Config,
    ) -> io::Result<Self> {
        let (listeners, address) = listen(address, config)?;
        self.tls = Some(Tls { address, listeners, identity });
        Ok(self)
    }

    /// The bound address of RTMPS, if there is one.
    pub fn tls_address(&self) -> Option<SocketAddr> {
        self.tls.as_ref().map(|tls| tls.address)
    }

    /// The bound address, with the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts connections on this worker's event loop until the worker drains. Call it on that
    /// event loop. The worker then waits for the open connections to end.
    pub fn serve(&self, worker: &Worker) {
        let interval = self.origin.config.rtmp.flush_interval.into();
        let broadcasts = Broadcasts::new(Messages, interval);
        let capacity = &self.capacity;
        let shared = Rc::new(Shared {
            origin: Arc::clone(&self.origin),
            broadcasts,
            undecided: Undecided::new(capacity.undecided),
            publishers: Arc::clone(&capacity.publishers),
            players: Arc::clone(&capacity.players),
            drain: worker.drain.clone(),
        });
        let secured = self.tls.as_ref().map(|tls| (&tls.listeners, Some(tls.identity.clone())));
        for (listeners, identity) in [(&self.listeners, None)].into_iter().chain(secured) {
            let mut listeners = listeners.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(listener) = listeners.get_mut(worker.index).and_then(Option::take) else {
                continue;
            };
            let (shared, gate) = (Rc::clone(&shared), Arc::clone(&capacity.all));
            let worker = worker.clone();
            spawn_local(async move {
                match TcpListener::from_std(listener) {
                    Ok(listener) => accept(listener, identity, shared, gate, worker).await,
                    Err(error) => tracing::error!(%error, "cannot accept rtmp connections"),
                }
            });
        }
    }
}

fn listen(address: SocketAddr, config: &http::Config) -> io::Result<(Listeners, SocketAddr)> {
    let (listeners, address) = net::listen(address, config.workers, config.unsent_limit)?;
    Ok((Mutex::new(listeners.into_iter().map(Some).collect()), address))
}

/// Accepts connections until the worker drains. Each connection holds a task of the worker, so the
/// worker waits for it.
async fn accept(
    listener: TcpListener,
    identity: Option<Identity>,
    shared: Rc<Shared>,
    gate: Arc<Gate>,
    worker: Worker,
) {
    let take = |Accepted { stream, peer, permit }| {
        let Some(permit) = permit else { return };
        let (shared, held) = (Rc::clone(&shared), (permit, worker.task()));
        // Two kinds of tasks, so that a plain connection has no room for TLS.
        match identity.clone() {
            None => spawn_local(LogId::connection().scope(drive(shared, stream, peer, held))),
            Some(identity) => {
                let secured = drive_secured(shared, (stream, identity), peer, held);
                spawn_local(LogId::connection().scope(secured))
            }
        };
    };
    let protocol = if identity.is_some() { "rtmps" } else { "rtmp" };
    tokio::select! {
        never = net::accept(protocol, &listener, &gate, take) => match never {},
        () = worker.drain.begun() => {}
    }
}

/// Makes the handshake of TLS, and then runs the connection. A peer has as much time for the handshake as it has to say
/// what it wants.
async fn drive_secured(
    shared: Rc<Shared>,
    (stream, identity): (TcpStream, Identity),
    peer: SocketAddr,
    held: (Permit, Task),
) {
    let limit = shared.origin.config.rtmp.setup_timeout.into();
    let drained = shared.drain.begun();
    let place = shared.undecided.enter();
    let accepted = tokio::select! {
        accepted = identity.accept(stream, limit) => accepted,
        () = drained => return,
        // Too many neither publish nor play, and this one has waited longest.
        () = place.lost() => return,
    };
    drop(place);
    match accepted {
        Ok(socket) => Box::pin(drive(shared, socket, peer, held)).await,
        Err(error) => tracing::debug!(%peer, %error, "TLS handshake of rtmps failed"),
    }
}

/// Runs a connection from its start to its end.
fn drive(
    shared: Rc<Shared>,
    socket: impl Transport + 'static,
    peer: SocketAddr,
    held: (Permit, Task),
) -> impl Future<Output = ()> {
    // An async function would store its arguments twice: as arguments and in its state. The
    // connection is made out here to save that memory.
    let mut connection = Connection::new(shared, socket, peer);
    async move {
        let _held = held;
        let result = connection.run().await;
        connection.say_end(&result);
    }
}

impl Capacity {
    fn new(config: &Config, workers: usize) -> Self {
        let rtmp = &config.rtmp;
        let (publishers, players) = (Pool::new(rtmp.max_publishers), Pool::new(rtmp.max_players));
        let undecided = publishers.most().saturating_add(players.most());
        let undecided = undecided.clamp(*UNDECIDED.start(), *UNDECIDED.end()).div_ceil(workers);
        let per_address = config.http.per_address(rtmp.max_connections_per_address);
        Self { all: Arc::new(Gate::new(usize::MAX, per_address)), undecided, publishers, players }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn players_take_little_memory() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = listener.local_addr().unwrap();
        let socket = TcpStream::connect(peer).await.unwrap();
        let origin = Arc::new(Origin::new(Config::default()));
        let capacity = Capacity::new(&origin.config, 1);
        let permit = capacity.all.admit(peer.ip()).unwrap();
        let Capacity { undecided, publishers, players, .. } = capacity;
        let undecided = Undecided::new(undecided);
        let broadcasts = Broadcasts::new(Messages, std::time::Duration::ZERO);
        let worker = Worker::new(0);
        let drain = worker.drain.clone();
        let shared = Rc::new(Shared { origin, broadcasts, undecided, publishers, players, drain });
        let drive = drive(shared, socket, peer, (permit, worker.task()));
        // The future holds the session, the connection's own state, and hardly more.
        assert!(size_of_val(&drive) <= 950, "{}", size_of_val(&drive));
    }
}
