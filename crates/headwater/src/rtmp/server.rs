//! Listeners, one for each event loop of the media plane, and the connections that come by them.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use http::net::{self, Accepted, Gate, Permit, Task, Worker};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;

use super::connection::Connection;
use super::play::{Broadcasts, Messages};
use super::slots::{Pool, Shared};
use crate::Origin;
use crate::config::Config;

/// Connections besides those that publish or play: who has yet to say what it wants, within
/// `rtmp.setup_timeout`, may have any place there is, and when there is none it is told so.
const UNDECIDED: usize = 256;

/// A bound address, ready to serve.
pub struct Server {
    origin: Arc<Origin>,
    address: SocketAddr,
    /// Each is taken by its worker.
    listeners: Mutex<Vec<Option<std::net::TcpListener>>>,
    /// What the connections of all workers have to share.
    capacity: Arc<Capacity>,
}

/// How many there may be, over all event loops.
#[derive(Debug)]
struct Capacity {
    /// Connections, whatever they are there for: as many as have a place below, and some more.
    all: Arc<Gate>,
    publishers: Arc<Pool>,
    players: Arc<Pool>,
}

impl Server {
    /// Binds a listener per worker of `config` to `rtmp.listen`; port 0 takes a free one.
    ///
    /// # Errors
    /// As those of [`http::Server::bind`].
    pub fn bind(origin: Arc<Origin>, config: &http::Config) -> io::Result<Self> {
        let (listeners, address) =
            net::listen(origin.config.rtmp.listen, config.workers, config.unsent_limit)?;
        let listeners = Mutex::new(listeners.into_iter().map(Some).collect());
        let capacity = Arc::new(Capacity::new(&origin.config));
        Ok(Self { origin, address, listeners, capacity })
    }

    /// The address bound, with the port taken.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts connections on this worker's event loop, which it is called on, until the worker
    /// drains. It waits for those in progress then, which take their leave.
    pub fn serve(&self, worker: &Worker) {
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        let listener = listeners.get_mut(worker.index).and_then(Option::take);
        let interval = self.origin.config.rtmp.flush_interval.into();
        let broadcasts = Broadcasts::new(Messages, interval);
        let capacity = &self.capacity;
        let shared = Rc::new(Shared {
            origin: Arc::clone(&self.origin),
            broadcasts,
            publishers: Arc::clone(&capacity.publishers),
            players: Arc::clone(&capacity.players),
            drain: worker.drain.clone(),
        });
        let (gate, worker) = (Arc::clone(&capacity.all), worker.clone());
        spawn_local(async move {
            let Some(listener) = listener else { return };
            match TcpListener::from_std(listener) {
                Ok(listener) => accept(listener, shared, gate, worker).await,
                Err(error) => tracing::error!(%error, "cannot accept rtmp connections"),
            }
        });
    }
}

/// Accepts connections until the worker drains. Each holds one of its tasks, so the worker waits for them.
async fn accept(listener: TcpListener, shared: Rc<Shared>, gate: Arc<Gate>, worker: Worker) {
    let take = |Accepted { stream, peer, permit }| {
        let Some(permit) = permit else { return };
        spawn_local(drive(Rc::clone(&shared), stream, peer, (permit, worker.task())));
    };
    tokio::select! {
        never = net::accept("rtmp", &listener, &gate, take) => match never {},
        () = worker.drain.begun() => {}
    }
}

/// The whole of a connection's life.
fn drive(
    shared: Rc<Shared>,
    socket: TcpStream,
    peer: SocketAddr,
    held: (Permit, Task),
) -> impl Future<Output = ()> {
    // What an asynchronous function is given it keeps beside what it makes of it.
    let mut connection = Connection::new(shared, socket, peer);
    async move {
        let _held = held;
        let result = connection.run().await;
        connection.say_end(&result);
    }
}

impl Capacity {
    fn new(config: &Config) -> Self {
        let rtmp = &config.rtmp;
        let (publishers, players) = (Pool::new(rtmp.max_publishers), Pool::new(rtmp.max_players));
        let all = publishers.most().saturating_add(players.most()).saturating_add(UNDECIDED);
        let per_address = config.http.per_address(rtmp.max_connections_per_address);
        Self { all: Arc::new(Gate::new(all, per_address)), publishers, players }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_a_player_keeps_is_small() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = listener.local_addr().unwrap();
        let socket = TcpStream::connect(peer).await.unwrap();
        let origin = Arc::new(Origin::new(Config::default()));
        let capacity = Capacity::new(&origin.config);
        let permit = capacity.all.admit(peer.ip()).unwrap();
        let Capacity { publishers, players, .. } = capacity;
        let broadcasts = Broadcasts::new(Messages, std::time::Duration::ZERO);
        let worker = Worker::new(0);
        let drain = worker.drain.clone();
        let shared = Rc::new(Shared { origin, broadcasts, publishers, players, drain });
        let drive = drive(shared, socket, peer, (permit, worker.task()));
        // The session and its own, and hardly more.
        assert!(size_of_val(&drive) <= 950, "{}", size_of_val(&drive));
    }
}
