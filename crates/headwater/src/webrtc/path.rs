use std::net::SocketAddr;

use str0m::net::{Protocol, Transmit};

/// From which address of ours a packet is sent, to which of the peer, and how. A packet that came has the path
/// on which an answer goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Path {
    pub(super) protocol: Protocol,
    pub(super) source: SocketAddr,
    pub(super) destination: SocketAddr,
}

impl Path {
    /// Whether both lead to one address of the peer.
    pub(super) fn leads_to_that_of(&self, other: &Self) -> bool {
        (self.protocol, self.destination) == (other.protocol, other.destination)
    }
}

impl From<&Transmit> for Path {
    fn from(transmit: &Transmit) -> Self {
        let Transmit { proto, source, destination, .. } = transmit;
        Self { protocol: *proto, source: *source, destination: *destination }
    }
}
