//! A worker's socket for datagrams.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};

use quinn_udp::{RecvMeta, UdpSocketState};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::Interest;
use tokio::net::UdpSocket;

use super::batch::Batch;
use super::path::Path;

/// How many buffers one call fills, and the bytes of each: the kernel joins datagrams of one peer up
/// to this length.
pub(in crate::webrtc) const BUFFERS: usize = 8;
pub(in crate::webrtc) const BUFFER: usize = 1 << 16;

/// A worker's socket.
pub(in crate::webrtc) struct Socket {
    io: UdpSocket,
    state: UdpSocketState,
    pub(in crate::webrtc) address: SocketAddr,
}

impl Socket {
    pub(in crate::webrtc) fn new(socket: std::net::UdpSocket) -> io::Result<Self> {
        let io = UdpSocket::from_std(socket)?;
        let (state, address) = (UdpSocketState::new((&io).into())?, io.local_addr()?);
        Ok(Self { io, state, address })
    }

    /// Sends a datagram, or drops it if the kernel has no room: the peer asks again for what it
    /// misses.
    pub(in crate::webrtc) fn send(&self, path: Path, contents: &[u8]) {
        if let Err(error) = self.send_one(path, contents, None) {
            tracing::trace!(destination = %path.destination, %error, "datagram not sent");
        }
    }

    /// Sends packets, with as few calls as the kernel allows. Those for which it has no room are dropped,
    /// and so are all after them: the next would find no room either.
    pub(in crate::webrtc) fn send_all(&self, path: Path, batch: &Batch) {
        for (bytes, size) in batch.groups() {
            if let Err(error) = self.send_group(path, bytes, size)
                && error.kind() == io::ErrorKind::WouldBlock
            {
                tracing::trace!(destination = %path.destination, "packets not sent: no room");
                return;
            }
        }
    }

    /// Sends packets of one size, but for a shorter last one.
    fn send_group(&self, path: Path, bytes: &[u8], size: usize) -> io::Result<()> {
        if bytes.len() > size && self.state.max_gso_segments() > 1 {
            match self.send_one(path, bytes, Some(size)) {
                // The network card, its driver or the path cannot cut datagrams. `state` remembers it.
                Err(error) if is_refused(&error) => {
                    tracing::debug!(%error, "packets are sent one by one from now on");
                }
                sent => return sent,
            }
        }
        for packet in bytes.chunks(size) {
            match self.send_one(path, packet, None) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
                Err(error) => {
                    tracing::trace!(destination = %path.destination, %error, "packet not sent");
                }
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// Makes one call. The kernel cuts `contents` into packets of `segment_size`, if that is given.
    fn send_one(&self, path: Path, contents: &[u8], segment_size: Option<usize>) -> io::Result<()> {
        let transmit = quinn_udp::Transmit {
            destination: self.as_family(path.destination),
            ecn: None,
            contents,
            segment_size,
            src_ip: self.address.ip().is_unspecified().then(|| path.source.ip()),
        };
        let send = || self.state.try_send((&self.io).into(), &transmit);
        self.io.try_io(Interest::WRITABLE, send)
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

    /// Whether the kernel has a datagram that was not received yet. It may be an empty one.
    pub(in crate::webrtc) fn is_readable(&self) -> bool {
        let mut socket = [PollFd::new(&self.io, PollFlags::IN)];
        poll(&mut socket, Some(&Timespec::default())).is_ok_and(|count| count > 0)
    }

    /// Waits for datagrams. Returns how many of the buffers they fill.
    pub(in crate::webrtc) async fn receive(
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

/// Whether the kernel refused to cut a datagram into packets (udp(7), UDP_SEGMENT).
fn is_refused(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL))
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket as Plain;
    use std::time::Duration;

    use str0m::net::Protocol;

    use super::*;

    /// A socket, a peer, and the path between them.
    async fn pair() -> (Socket, Plain, Path) {
        let bind = || Plain::bind("127.0.0.1:0").unwrap();
        let (own, peer) = (bind(), bind());
        // A server of another test may still send to a peer that has gone. This peer may have the same port now.
        peer.connect(own.local_addr().unwrap()).unwrap();
        own.set_nonblocking(true).unwrap();
        peer.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let own = Socket::new(own).unwrap();
        // tokio must have heard once that there is room.
        own.io.writable().await.unwrap();
        let (source, destination) = (own.address, peer.local_addr().unwrap());
        let path = Path { protocol: Protocol::Udp, source, destination };
        (own, peer, path)
    }

    /// A batch with these packets.
    fn batch(mut batch: Batch, sizes: impl IntoIterator<Item = usize>) -> Batch {
        for (number, size) in sizes.into_iter().enumerate() {
            batch.add_packet(&vec![number as u8; size]);
        }
        batch
    }

    /// The size and the first byte of each packet that comes.
    fn received(peer: &Plain, count: usize) -> Vec<(usize, u8)> {
        let mut buffer = [0; 2048];
        let mut next = |_| {
            let length = testkit::uninterrupted(|| peer.recv(&mut buffer)).unwrap();
            (length, buffer[0])
        };
        let all = (0..count).map(&mut next).collect();
        peer.set_nonblocking(true).unwrap();
        assert!(peer.recv(&mut [0; 2048]).is_err());
        all
    }

    #[tokio::test]
    async fn packets_arrive_as_they_were_added() {
        let (socket, peer, path) = pair().await;
        assert!(socket.state.max_gso_segments() > 1, "this kernel has no UDP_SEGMENT");
        let sizes = [40, 1000, 1000, 1000, 7, 7, 300];
        socket.send_all(path, &batch(Batch::default(), sizes));
        let expected: Vec<_> = sizes.into_iter().zip(0..).collect();
        assert_eq!(received(&peer, 7), expected);
        assert!(socket.state.max_gso_segments() > 1);
    }

    #[tokio::test]
    async fn where_the_kernel_refuses_to_cut_packets_are_sent_one_by_one() {
        let (socket, peer, path) = pair().await;
        // Linux takes 128 packets as one at most, so it refuses these as some drivers refuse any.
        socket.send_all(path, &batch(Batch::joining(200), [10; 200]));
        let expected: Vec<_> = (0..200).map(|number| (10, number)).collect();
        assert_eq!(received(&peer, 200), expected);
        assert_eq!(socket.state.max_gso_segments(), 1);
        peer.set_nonblocking(false).unwrap();
        socket.send_all(path, &batch(Batch::default(), [9, 9, 4]));
        assert_eq!(received(&peer, 3), [(9, 0), (9, 1), (4, 2)]);
    }

    #[tokio::test]
    async fn packets_that_cannot_be_sent_are_dropped() {
        let (socket, peer, path) = pair().await;
        // A datagram of IPv4 has at most 65,507 bytes. Those after it are sent.
        socket.send_all(path, &batch(Batch::default(), [5, 65_600, 6]));
        assert_eq!(received(&peer, 2), [(5, 0), (6, 2)]);
    }
}
