//! Receives datagrams and gives each to its session. Datagrams from strangers leave no state.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::net::Worker;
use quinn_udp::RecvMeta;
use str0m::net::Protocol;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::{Instant, sleep};

use super::admit::admit;
use super::shared::Shared;
use super::stun::binding_request;
use super::{Datagram, Inbox, LONGEST, Message};
use crate::webrtc::send::path::Path;
use crate::webrtc::send::socket::{BUFFER, BUFFERS};

/// Receives until the worker ends.
pub(in crate::webrtc) async fn receive(shared: Rc<Shared>, worker: Worker) {
    let mut buffers = vec![vec![0; BUFFER]; BUFFERS];
    let mut metas = [RecvMeta::default(); BUFFERS];
    let mut peers = Peers { shared: Rc::clone(&shared), worker, known: HashMap::new(), swept: 64 };
    loop {
        let count = match shared.transport.datagrams.receive(&mut buffers, &mut metas).await {
            Ok(count) => count,
            Err(error) => {
                tracing::debug!(%error, "receiving datagrams");
                sleep(Duration::from_millis(10)).await;
                continue;
            }
        };
        let now = (Instant::now(), SystemTime::now());
        for (buffer, meta) in buffers.iter().zip(&metas).take(count) {
            let destination = SocketAddr::new(meta.addr.ip().to_canonical(), meta.addr.port());
            let own = shared.transport.datagrams.address;
            let ip = meta.dst_ip.filter(|_| own.ip().is_unspecified()).unwrap_or(own.ip());
            let source = SocketAddr::new(ip.to_canonical(), own.port());
            let path = Path { protocol: Protocol::Udp, source, destination };
            let came = came(meta.timestamp, now);
            let bytes = buffer.get(..meta.len).unwrap_or_default();
            for bytes in bytes.chunks(meta.stride.max(1)) {
                peers.take(Datagram { path, bytes: bytes.into(), came });
            }
        }
    }
}

/// Times of the kernel that are further in the past are not believed. A process that was stopped gets old datagrams.
const OLDEST: Duration = Duration::from_secs(60);

/// When a datagram came that is read at `now`, by the kernel's time of it since 1970. Publishers compute the network's
/// rate from these times, so they must not depend on when this process ran.
fn came(by_kernel: Option<Duration>, (now, wall): (Instant, SystemTime)) -> Instant {
    let wall = wall.duration_since(UNIX_EPOCH).unwrap_or_default();
    let age = by_kernel.and_then(|by_kernel| wall.checked_sub(by_kernel));
    // Somebody may have set the clock meanwhile.
    age.filter(|age| *age < OLDEST).and_then(|age| now.checked_sub(age)).unwrap_or(now)
}

/// The peers whose datagrams come to this worker.
struct Peers {
    shared: Rc<Shared>,
    worker: Worker,
    known: HashMap<SocketAddr, Inbox>,
    /// When more than this many are known, those whose session is over are forgotten.
    swept: usize,
}

impl Peers {
    /// Gives a datagram to its session.
    fn take(&mut self, datagram: Datagram) {
        let peer = datagram.path.destination;
        if peer.port() == 0 || datagram.bytes.len() > LONGEST {
            // Nothing can be sent to port 0, and the error would look as if the kernel could not cut datagrams:
            // all viewers of this worker would get their packets one by one.
            return self.shared.sessions.count_dropped();
        }
        if let Some(request) = binding_request(&datagram.bytes) {
            let is_new = !self.known.contains_key(&peer);
            let Some(inbox) = admit(&self.shared, &self.worker, &request, is_new) else {
                return self.shared.sessions.count_dropped();
            };
            self.known.insert(peer, inbox);
            if self.known.len() > self.swept {
                self.known.retain(|_, inbox| !inbox.is_closed());
                self.swept = (2 * self.known.len()).max(64);
            }
        }
        let Entry::Occupied(known) = self.known.entry(peer) else {
            return self.shared.sessions.count_dropped();
        };
        match known.get().try_send(Message::Datagram(datagram)) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => self.shared.sessions.count_dropped(),
            Err(TrySendError::Closed(_)) => {
                known.remove();
                self.shared.sessions.count_dropped();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_came_when_the_kernel_says() {
        let (now, wall) = (Instant::now(), SystemTime::now());
        let of = |time: SystemTime| Some(time.duration_since(UNIX_EPOCH).unwrap());
        let before = Duration::from_millis(7);
        assert_eq!(came(of(wall - before), (now, wall)), now - before);
        for unknown in [None, of(wall + before), of(wall - OLDEST), Some(Duration::ZERO)] {
            assert_eq!(came(unknown, (now, wall)), now, "{unknown:?}");
        }
    }
}
