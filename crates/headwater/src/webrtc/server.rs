//! The listener of WebRTC.

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use http::net::{self, Gate, Worker};
use tokio::net::TcpListener;
use tokio::task::spawn_local;
use tokio::time::Instant;

use super::offer::Identity;
use super::play::feed::Feeds;
use super::send::Transport;
use super::send::socket::Socket;
use super::send::tcp_queue::Connections;
use super::sessions::Sessions;
use super::sessions::datagrams;
use super::sessions::shared::Shared;
use super::sessions::tcp;
use crate::Origin;
use crate::config::Config;
use crate::ladder::Companions;

/// How many ports are tried where any free port is asked for.
const TRIES: usize = 16;

/// A bound address, ready to serve.
pub struct Server {
    pub(super) origin: Arc<Origin>,
    address: SocketAddr,
    /// One of each for each worker, which takes them.
    sockets: Mutex<Vec<Option<Sockets>>>,
    pub(super) sessions: Arc<Sessions>,
    /// Limits sessions, by address as well.
    pub(super) gate: Arc<Gate>,
    /// Limits connections by TCP.
    connections_gate: Arc<Gate>,
    connections: Arc<Connections>,
    pub(super) identity: Identity,
    /// What makes of a stream what viewers cannot take as it is.
    pub(super) companions: Arc<Companions>,
}

impl Server {
    /// Binds sockets for each worker to `webrtc.listen`. Port 0 takes a free port.
    ///
    /// # Errors
    /// The address cannot be bound for UDP and, with `webrtc.tcp`, for TCP, or no certificate can be made.
    pub fn bind(
        origin: Arc<Origin>,
        companions: Arc<Companions>,
        workers: NonZeroUsize,
    ) -> io::Result<Self> {
        let Config { webrtc, http, .. } = &origin.config;
        let (sockets, address) = bind(webrtc.listen, webrtc.tcp, workers)?;
        let identity = Identity::new().ok_or_else(|| io::Error::other("no DTLS certificate"))?;
        let most = if webrtc.max_sessions == 0 { usize::MAX } else { webrtc.max_sessions };
        let gate = |times: usize| {
            let per_address = webrtc.max_sessions_per_address.saturating_mul(times);
            Arc::new(Gate::new(most.saturating_mul(times), http.per_address(per_address)))
        };
        Ok(Self {
            address,
            sockets: Mutex::new(sockets.into_iter().map(Some).collect()),
            sessions: Arc::default(),
            gate: gate(1),
            connections_gate: gate(tcp::FOR_A_SESSION),
            connections: Arc::default(),
            identity,
            companions,
            origin,
        })
    }

    /// The bound address, with the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Receives datagrams and connections on this worker's event loop, and runs the sessions whose peers' first
    /// packets come here. Call it on that event loop. The worker then waits for the sessions to end.
    pub fn serve(&self, worker: &Worker) {
        let mut sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(sockets) = sockets.get_mut(worker.index).and_then(Option::take) else { return };
        let listener = sockets.listener.map(TcpListener::from_std).transpose();
        let (datagrams, listener) =
            match Socket::new(sockets.datagrams).and_then(|own| Ok((own, listener?))) {
                Ok(sockets) => sockets,
                Err(error) => {
                    tracing::error!(%error, "cannot serve webrtc");
                    return;
                }
            };
        let shared = Shared {
            origin: Arc::clone(&self.origin),
            sessions: Arc::clone(&self.sessions),
            crypto: self.identity.crypto(),
            transport: Transport { datagrams, connections: Arc::clone(&self.connections) },
            batch: RefCell::default(),
            feeds: Rc::new(Feeds::default()),
            drain: worker.drain.clone(),
        };
        let shared = Rc::new(shared);
        if let Some(listener) = listener {
            let gate = Arc::clone(&self.connections_gate);
            spawn_local(tcp::accept(listener, gate, Rc::clone(&shared), worker.clone()));
        }
        spawn_local(datagrams::receive(shared, worker.clone()));
    }

    /// Ends sessions whose peer did not send its first datagram in time. Call it about once a second.
    pub fn sweep(&self) {
        self.sessions.sweep(Instant::now());
    }

    /// Number of datagrams that belonged to no session, or for which a session had no room.
    pub fn dropped(&self) -> u64 {
        self.sessions.dropped()
    }

    /// Number of sessions.
    pub fn open(&self) -> usize {
        self.gate.open()
    }

    /// The addresses that a peer at `peer` is told: those of this machine on the way to the peer and
    /// on the way to others, and the configured ones.
    pub(super) fn addresses(&self, peer: SocketAddr) -> Vec<SocketAddr> {
        let port = self.address.port();
        let mut addresses = Vec::new();
        let mut add = |address: SocketAddr| {
            if !address.ip().is_unspecified() && !addresses.contains(&address) {
                addresses.push(address);
            }
        };
        if self.address.ip().is_unspecified() {
            // These two belong to nobody (RFC 5737, RFC 3849): a route to them is the default route.
            let v4 = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 9));
            let v6 = SocketAddr::from((Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), 9));
            for remote in [SocketAddr::new(peer.ip().to_canonical(), 9), v4, v6] {
                if self.address.is_ipv6() || remote.is_ipv4() {
                    add(SocketAddr::new(
                        own_address(remote).unwrap_or(Ipv4Addr::UNSPECIFIED.into()),
                        port,
                    ));
                }
            }
        } else {
            add(self.address);
        }
        for &address in &self.origin.config.webrtc.addresses {
            add(SocketAddr::new(address, port));
        }
        addresses
    }
}

/// What one worker listens on.
struct Sockets {
    datagrams: UdpSocket,
    listener: Option<std::net::TcpListener>,
}

/// Binds sockets for each worker, to one port for UDP and TCP.
fn bind(
    listen: SocketAddr,
    takes_tcp: bool,
    workers: NonZeroUsize,
) -> io::Result<(Vec<Sockets>, SocketAddr)> {
    let mut left = TRIES;
    loop {
        let (datagrams, address) = net::datagrams(listen, workers)?;
        let listeners = match takes_tcp.then(|| net::listen(address, workers, tcp::UNSENT)) {
            // Any free port is asked for, and this one is free for UDP only.
            Some(Err(error))
                if error.kind() == io::ErrorKind::AddrInUse && listen.port() == 0 && left > 0 =>
            {
                left -= 1;
                continue;
            }
            Some(listened) => listened?.0,
            None => Vec::new(),
        };
        let mut listeners = listeners.into_iter();
        let both = |datagrams| Sockets { datagrams, listener: listeners.next() };
        return Ok((datagrams.into_iter().map(both).collect(), address));
    }
}

/// The address of this machine from which it would send to `remote`. Nothing is sent.
fn own_address(remote: SocketAddr) -> Option<IpAddr> {
    let any: SocketAddr = match remote {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(remote).ok()?;
    Some(socket.local_addr().ok()?.ip())
}
