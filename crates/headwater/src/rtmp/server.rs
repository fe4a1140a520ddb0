//! Listeners, one for each event loop of the media plane, and the connections that come by them.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinSet, spawn_local};

use super::connection::Connection;
use super::play::{Fans, Messages};
use crate::Origin;
use crate::http::{self, Throttle};

/// A bound address, ready to serve.
pub struct Server {
    origin: Arc<Origin>,
    address: SocketAddr,
    /// Each is taken by its worker.
    listeners: Mutex<Vec<Option<std::net::TcpListener>>>,
    /// Connections of all workers.
    connections: Arc<AtomicUsize>,
}

/// What the connections of one event loop share.
pub(super) struct Shared {
    pub(super) origin: Arc<Origin>,
    pub(super) fans: Rc<Fans>,
    /// Of publishers there is no room for.
    pub(super) full: RefCell<Throttle>,
}

impl Server {
    /// Binds a listener per worker of `config` to `rtmp.listen`; port 0 takes a free one.
    ///
    /// # Errors
    /// As those of [`http::Server::bind`].
    pub fn bind(origin: Arc<Origin>, config: &http::Config) -> io::Result<Self> {
        let (listeners, address) = http::listen_all(origin.config.rtmp.listen, config)?;
        let listeners = Mutex::new(listeners.into_iter().map(Some).collect());
        Ok(Self { origin, address, listeners, connections: Arc::default() })
    }

    /// The address bound, with the port taken.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts connections on this worker's event loop, which it is called on, until the worker
    /// drains. Those in progress are closed then.
    pub fn serve(&self, worker: &http::Worker) {
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        let listener = listeners.get_mut(worker.index).and_then(Option::take);
        let interval = self.origin.config.rtmp.flush_interval.into();
        let fans = Fans::new(Messages, interval);
        let shared =
            Rc::new(Shared { origin: Arc::clone(&self.origin), fans, full: RefCell::default() });
        let (connections, drain) = (Arc::clone(&self.connections), worker.drain.clone());
        spawn_local(async move {
            let Some(listener) = listener else { return };
            match TcpListener::from_std(listener) {
                Ok(listener) => tokio::select! {
                    () = accept(listener, shared, connections) => {}
                    () = drain.begun() => {}
                },
                Err(error) => tracing::error!(%error, "cannot accept rtmp connections"),
            }
        });
    }
}

/// Accepts connections. Dropped, it closes them.
async fn accept(listener: TcpListener, shared: Rc<Shared>, connections: Arc<AtomicUsize>) {
    let limit = shared.origin.config.rtmp.max_connections;
    let mut tasks = JoinSet::new();
    let mut failing = false;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            // What became of it is in the log.
            Some(_) = tasks.join_next() => continue,
        };
        let (socket, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors or memory: others must leave first.
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!(%error, "cannot accept rtmp connections, trying again");
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        if std::mem::take(&mut failing) {
            tracing::info!("rtmp connections are accepted again");
        }
        let counted = Counted::one_more(&connections);
        if limit > 0 && connections.load(Ordering::Relaxed) > limit {
            tracing::warn!(%peer, limit, "rtmp connection refused: too many");
            continue;
        }
        tasks.spawn_local(drive(Rc::clone(&shared), socket, peer, counted));
    }
}

/// The whole of a connection's life.
fn drive(
    shared: Rc<Shared>,
    socket: TcpStream,
    peer: SocketAddr,
    counted: Counted,
) -> impl Future<Output = ()> {
    // What an asynchronous function is given it keeps beside what it makes of it.
    let mut connection = Connection::new(shared, socket, peer);
    async move {
        let _counted = counted;
        let result = connection.run().await;
        connection.say_end(&result);
    }
}

struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn one_more(connections: &Arc<AtomicUsize>) -> Self {
        connections.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(connections))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
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
        let origin = Arc::new(Origin::new(crate::config::Config::default()));
        let fans = Fans::new(Messages, Duration::ZERO);
        let shared = Rc::new(Shared { origin, fans, full: RefCell::default() });
        let drive = drive(shared, socket, peer, Counted::one_more(&Arc::default()));
        // The session and its own, and hardly more.
        assert!(size_of_val(&drive) <= 900, "{}", size_of_val(&drive));
    }
}
