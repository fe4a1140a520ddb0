use std::net::SocketAddr;

use str0m::net::{Protocol, Transmit};

/// The way of a packet: an address of ours, an address of the peer, and the protocol.
///
/// The path of a packet that came is the path on which an answer goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::webrtc) struct Path {
    pub(in crate::webrtc) protocol: Protocol,
    pub(in crate::webrtc) source: SocketAddr,
    pub(in crate::webrtc) destination: SocketAddr,
}

impl Path {
    /// Whether both paths lead to the same address of the peer, by the same protocol.
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
