//! What carries packets to peers: datagrams, or TCP where a network lets none pass.

pub(super) mod batch;
pub(super) mod path;
pub(super) mod socket;
pub(super) mod source;
pub(super) mod tcp_queue;

use std::sync::Arc;

use str0m::net::Protocol;

use batch::Batch;
use path::Path;
use socket::Socket;
use tcp_queue::Connections;

/// What a worker's sessions send by.
pub(super) struct Transport {
    pub(super) datagrams: Socket,
    /// Those of all workers: a session stays where it began, its peer's connections may come elsewhere.
    pub(super) connections: Arc<Connections>,
}

impl Transport {
    /// Sends a packet, or drops it where there is no room: the peer asks again for what it misses.
    pub(super) fn send(&self, path: Path, packet: &[u8]) {
        match path.protocol {
            Protocol::Udp => self.datagrams.send(path, packet),
            _ => self.connections.send(path.destination, [packet]),
        }
    }

    /// Whether a path is a connection that has ended.
    pub(super) fn has_ended(&self, path: Path) -> bool {
        path.protocol != Protocol::Udp && !self.connections.has(path.destination)
    }

    /// Sends packets. Those for which there is no room are dropped.
    pub(super) fn send_all(&self, path: Path, batch: &Batch) {
        match path.protocol {
            Protocol::Udp => self.datagrams.send_all(path, batch),
            _ => self.connections.send(path.destination, batch.packets()),
        }
    }
}
