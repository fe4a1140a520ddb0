//! Packets that wait to be sent to peers by TCP, each after its length (RFC 4571 2).
//!
//! What does not fit into a connection is dropped as a network drops datagrams, so that a link that is too
//! short makes media incomplete, and not late.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::webrtc::end::SILENCE;

/// Bytes that wait for a connection: the largest keyframes, and some of what follows.
const MOST_WAITING: usize = 512 << 10;

/// How long bytes are on their way into the kernel. While they are for longer, the link is too short, and
/// nothing is added.
const LATE: Duration = Duration::from_millis(500);

/// The connections that belong to sessions, by the address of the peer.
#[derive(Default)]
pub(in crate::webrtc) struct Connections {
    queues: Mutex<HashMap<SocketAddr, Arc<TcpQueue>>>,
}

impl Connections {
    fn queues(&self) -> MutexGuard<'_, HashMap<SocketAddr, Arc<TcpQueue>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends packets to a peer. Those for which there is no room are dropped, and all if the peer's connection
    /// is gone.
    pub(in crate::webrtc) fn send<'a>(
        &self,
        peer: SocketAddr,
        packets: impl IntoIterator<Item = &'a [u8]>,
    ) {
        let queue = self.queues().get(&peer).cloned();
        if let Some(queue) = queue {
            queue.add(packets);
        }
    }

    /// Whether a connection of this peer belongs to a session.
    pub(in crate::webrtc) fn has(&self, peer: SocketAddr) -> bool {
        self.queues().contains_key(&peer)
    }

    /// Makes a peer known, until the result is dropped.
    pub(in crate::webrtc) fn add(self: &Arc<Self>, peer: SocketAddr) -> Known {
        let queue = Arc::<TcpQueue>::default();
        self.queues().insert(peer, Arc::clone(&queue));
        Known { connections: Arc::clone(self), peer, queue }
    }
}

/// A connection that sessions can send by.
pub(in crate::webrtc) struct Known {
    connections: Arc<Connections>,
    peer: SocketAddr,
    pub(in crate::webrtc) queue: Arc<TcpQueue>,
}

impl Drop for Known {
    fn drop(&mut self) {
        let mut queues = self.connections.queues();
        // The peer may have connected again from the same port.
        if queues.get(&self.peer).is_some_and(|queue| Arc::ptr_eq(queue, &self.queue)) {
            queues.remove(&self.peer);
        }
    }
}

/// The queue of a connection: packets after their lengths (frames of RFC 4571), which it is to write.
#[derive(Default)]
pub(in crate::webrtc) struct TcpQueue {
    waiting: Mutex<Waiting>,
    more: Notify,
}

#[derive(Default)]
struct Waiting {
    frames: Vec<u8>,
    /// Since when the connection writes those that it took before.
    writes: Option<Instant>,
}

impl TcpQueue {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds packets as long as there is room.
    fn add<'a>(&self, packets: impl IntoIterator<Item = &'a [u8]>) {
        let mut waiting = self.waiting();
        if waiting.writes.is_some_and(|since| since.elapsed() > LATE) {
            return;
        }
        for packet in packets {
            let Ok(length) = u16::try_from(packet.len()) else { continue };
            if waiting.frames.len() + 2 + packet.len() > MOST_WAITING {
                break;
            }
            waiting.frames.extend_from_slice(&length.to_be_bytes());
            waiting.frames.extend_from_slice(packet);
        }
        drop(waiting);
        self.more.notify_one();
    }

    /// Takes all frames.
    fn take(&self) -> Vec<u8> {
        let mut waiting = self.waiting();
        waiting.writes = (!waiting.frames.is_empty()).then(Instant::now);
        std::mem::take(&mut waiting.frames)
    }
}

/// Writes the frames of a queue. It may be stopped at any byte, and goes on there.
pub(in crate::webrtc) struct Writer<'a, W> {
    to: W,
    queue: &'a TcpQueue,
    frames: Vec<u8>,
    written: usize,
}

impl<'a, W: AsyncWrite + Unpin> Writer<'a, W> {
    pub(in crate::webrtc) fn new(to: W, queue: &'a TcpQueue) -> Self {
        Self { to, queue, frames: Vec::new(), written: 0 }
    }

    /// Writes what waits now. An error if the peer takes nothing for as long as a peer may be silent.
    pub(in crate::webrtc) async fn flush(&mut self) -> io::Result<()> {
        loop {
            while let Some(left) = self.frames.get(self.written..).filter(|left| !left.is_empty()) {
                let count = timeout(SILENCE, self.to.write(left)).await??;
                if count == 0 {
                    return Err(io::ErrorKind::WriteZero.into());
                }
                self.written += count;
            }
            (self.frames, self.written) = (self.queue.take(), 0);
            if self.frames.is_empty() {
                return Ok(());
            }
        }
    }

    /// Writes whatever is added, for ever.
    pub(in crate::webrtc) async fn run(&mut self) -> io::Result<()> {
        loop {
            self.flush().await?;
            self.queue.more.notified().await;
        }
    }
}

#[cfg(test)]
pub(in crate::webrtc) mod testing {
    /// A packet after its length (RFC 4571 2).
    pub(in crate::webrtc) fn frame(packet: &[u8]) -> Vec<u8> {
        let mut frame = u16::try_from(packet.len()).unwrap().to_be_bytes().to_vec();
        frame.extend(packet);
        frame
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, duplex};

    use super::testing::frame;
    use super::*;

    #[tokio::test]
    async fn a_writer_that_is_stopped_goes_on_at_the_same_byte() {
        let (own, mut peer) = duplex(10);
        let queue = TcpQueue::default();
        let mut writer = Writer::new(own, &queue);
        queue.add([&[1; 30][..], &[2; 5]]);
        // It fills the pipe, and is stopped.
        assert!(timeout(Duration::ZERO, writer.flush()).await.is_err());
        queue.add([&[3; 4][..]]);
        let expected = [frame(&[1; 30]), frame(&[2; 5]), frame(&[3; 4])].concat();
        let mut came = vec![0; expected.len()];
        let (written, read) = tokio::join!(writer.flush(), peer.read_exact(&mut came));
        written.unwrap();
        read.unwrap();
        assert_eq!(came, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_connection_does_not_take_is_dropped() {
        let queue = TcpQueue::default();
        let packet = [9; 1000];
        queue.add(std::iter::repeat_n(&packet[..], 1000));
        let most = queue.waiting().frames.len();
        assert!(most <= MOST_WAITING && most > MOST_WAITING - 1002, "{most}");
        // All are whole.
        assert_eq!(most % 1002, 0);
        assert_eq!(queue.take().len(), most);
        // As long as these are written, others wait, but not for long.
        queue.add([&packet[..]]);
        tokio::time::advance(LATE).await;
        queue.add([&packet[..]]);
        assert_eq!(queue.waiting().frames.len(), 2 * 1002);
        tokio::time::advance(Duration::from_millis(1)).await;
        queue.add([&packet[..]]);
        assert_eq!(queue.take().len(), 2 * 1002);
        // The link takes bytes again.
        queue.add([&packet[..]]);
        assert_eq!(queue.take().len(), 1002);
        assert!(queue.take().is_empty());
        assert_eq!(queue.waiting().writes, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_nothing_is_given_up() {
        let (own, _peer) = duplex(10);
        let queue = TcpQueue::default();
        let mut writer = Writer::new(own, &queue);
        queue.add([&[1; 30][..]]);
        let before = Instant::now();
        assert_eq!(writer.flush().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(before.elapsed(), SILENCE);
    }

    #[test]
    fn a_peer_that_connects_again_stays_known() {
        let connections = Arc::<Connections>::default();
        let peer = SocketAddr::from(([127, 0, 0, 1], 9));
        let first = connections.add(peer);
        let second = connections.add(peer);
        drop(first);
        assert!(connections.has(peer));
        connections.send(peer, [&[1][..]]);
        assert_eq!(second.queue.take(), [0, 1, 1]);
        drop(second);
        assert!(!connections.has(peer));
    }
}
