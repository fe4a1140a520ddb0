//! A worker's socket for datagrams.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};

use quinn_udp::{RecvMeta, UdpSocketState};
use str0m::net::Transmit;
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// How many buffers one call fills, and the bytes of each: the kernel joins datagrams of one peer up
/// to this length.
pub(super) const BUFFERS: usize = 8;
pub(super) const BUFFER: usize = 1 << 16;

/// A worker's socket.
pub(super) struct Socket {
    io: UdpSocket,
    state: UdpSocketState,
    pub(super) address: SocketAddr,
}

impl Socket {
    pub(super) fn new(socket: std::net::UdpSocket) -> io::Result<Self> {
        let io = UdpSocket::from_std(socket)?;
        let (state, address) = (UdpSocketState::new((&io).into())?, io.local_addr()?);
        Ok(Self { io, state, address })
    }

    /// Sends a datagram, or drops it if the kernel has no room: the peer asks again for what it
    /// misses.
    pub(super) fn send(&self, transmit: &Transmit) {
        let transmit = quinn_udp::Transmit {
            destination: self.as_family(transmit.destination),
            ecn: None,
            contents: &transmit.contents,
            segment_size: None,
            src_ip: self.address.ip().is_unspecified().then(|| transmit.source.ip()),
        };
        let send = || self.state.try_send((&self.io).into(), &transmit);
        if let Err(error) = self.io.try_io(Interest::WRITABLE, send) {
            tracing::trace!(destination = %transmit.destination, %error, "datagram not sent");
        }
    }

    /// The address in the form that a socket of this family takes.
    fn as_family(&self, address: SocketAddr) -> SocketAddr {
        match address.ip() {
            IpAddr::V4(v4) if self.address.is_ipv6() => {
                (v4.to_ipv6_mapped(), address.port()).into()
            }
            _ => address,
        }
    }

    /// Waits for datagrams. Returns how many of the buffers they fill.
    pub(super) async fn receive(
        &self,
        buffers: &mut [Vec<u8>],
        metas: &mut [RecvMeta; BUFFERS],
    ) -> io::Result<usize> {
        let receive = || {
            let mut slices = buffers.iter_mut().map(|buffer| IoSliceMut::new(buffer));
            let mut slices: [_; BUFFERS] =
                std::array::from_fn(|_| slices.next().unwrap_or(IoSliceMut::new(&mut [])));
            self.state.recv((&self.io).into(), &mut slices, metas)
        };
        self.io.async_io(Interest::READABLE, receive).await
    }
}
