//! What carries packets to peers: datagrams, or TCP where a network lets none pass.

pub(super) mod batch;
pub(super) mod path;
pub(super) mod socket;
pub(super) mod source;
pub(super) mod tcp_queue;

use std::sync::Arc;

use str0m::net::{Protocol, Transmit};

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
    /// Sends what str0m says, or drops it where there is no room: the peer asks again for what it
    /// misses.
    pub(super) fn send(&self, transmit: &Transmit) {
        let path = Path::from(transmit);
        match path.protocol {
            Protocol::Udp => self.datagrams.send(path, &transmit.contents),
            _ => self.connections.send(path.destination, [&*transmit.contents]),
        }
    }

    /// Sends packets. Those for which there is no room are dropped.
    pub(super) fn send_all(&self, path: Path, batch: &Batch) {
        match path.protocol {
            Protocol::Udp => self.datagrams.send_all(path, batch),
            _ => self.connections.send(path.destination, batch.packets()),
        }
    }
}
