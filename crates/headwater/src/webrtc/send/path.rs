use std::net::SocketAddr;

use str0m::net::{Protocol, Transmit};

/// From which address of ours a packet is sent, to which of the peer, and how. A packet that came has the path
/// on which an answer goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::webrtc) struct Path {
    pub(in crate::webrtc) protocol: Protocol,
    pub(in crate::webrtc) source: SocketAddr,
    pub(in crate::webrtc) destination: SocketAddr,
}

impl Path {
    /// Whether both lead to one address of the peer.
    pub(in crate::webrtc) fn leads_to_that_of(&self, other: &Self) -> bool {
        (self.protocol, self.destination) == (other.protocol, other.destination)
    }
}

impl From<&Transmit> for Path {
    fn from(transmit: &Transmit) -> Self {
        let Transmit { proto, source, destination, .. } = transmit;
        Self { protocol: *proto, source: *source, destination: *destination }
    }
}
