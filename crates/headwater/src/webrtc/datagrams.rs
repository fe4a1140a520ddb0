//! Receives datagrams and gives each to its session. Datagrams from strangers leave no state.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use http::net::Worker;
use quinn_udp::RecvMeta;
use str0m::ice::StunMessage;
use tokio::sync::mpsc::error::TrySendError;
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep};

use super::session;
use super::sessions::{Datagram, Found, Inbox, Message};
use super::shared::Shared;
use super::socket::{BUFFER, BUFFERS};

/// Receives until the worker ends.
pub(super) async fn receive(shared: Rc<Shared>, worker: Worker) {
    let mut buffers = vec![vec![0; BUFFER]; BUFFERS];
    let mut metas = [RecvMeta::default(); BUFFERS];
    let mut peers = Peers { shared: Rc::clone(&shared), worker, known: HashMap::new(), swept: 64 };
    loop {
        let count = match shared.socket.receive(&mut buffers, &mut metas).await {
            Ok(count) => count,
            Err(error) => {
                tracing::debug!(%error, "receiving datagrams");
                sleep(Duration::from_millis(10)).await;
                continue;
            }
        };
        let came = Instant::now();
        for (buffer, meta) in buffers.iter().zip(&metas).take(count) {
            let source = SocketAddr::new(meta.addr.ip().to_canonical(), meta.addr.port());
            let to = shared.socket.address;
            let ip = meta.dst_ip.filter(|_| to.ip().is_unspecified()).unwrap_or(to.ip());
            let destination = SocketAddr::new(ip.to_canonical(), to.port());
            let bytes = buffer.get(..meta.len).unwrap_or_default();
            for bytes in bytes.chunks(meta.stride.max(1)) {
                peers.take(Datagram { source, destination, bytes: bytes.into(), came });
            }
        }
    }
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
        let source = datagram.source;
        if source.port() == 0 {
            // Nothing can be sent there, and the error would look as if the kernel could not cut datagrams:
            // all viewers of this worker would get their packets one by one.
            return self.shared.sessions.count_dropped();
        }
        if let Some(request) = binding_request(&datagram.bytes) {
            let Shared { sessions, crypto, .. } = &*self.shared;
            let is_new = !self.known.contains_key(&source);
            let fragment = request.split_username().map(|(own, _)| own);
            let sha1 =
                |key: &[u8], parts: &[&[u8]]| crypto.sha1_hmac_provider.sha1_hmac(key, parts);
            let found = fragment.and_then(|fragment| {
                let knows = |password: &str| request.verify(password.as_bytes(), sha1);
                sessions.admit(fragment, is_new, knows)
            });
            let Some(Found { inbox, waiting }) = found else { return sessions.count_dropped() };
            self.known.insert(source, inbox);
            if let Some((waiting, place)) = waiting {
                let (shared, task) = (Rc::clone(&self.shared), self.worker.task());
                spawn_local(async move {
                    let _held = (task, place);
                    session::run(*waiting, &shared).await;
                });
            }
            if self.known.len() > self.swept {
                self.known.retain(|_, inbox| !inbox.is_closed());
                self.swept = (2 * self.known.len()).max(64);
            }
        }
        let Entry::Occupied(known) = self.known.entry(source) else {
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

/// A STUN binding request (RFC 8445 7.2.2).
fn binding_request(datagram: &[u8]) -> Option<StunMessage<'_>> {
    // RFC 7983 7: the first byte tells STUN from DTLS and RTP.
    if !matches!(datagram.first(), Some(0 | 1)) || datagram.len() < 20 {
        return None;
    }
    StunMessage::parse(datagram).ok().filter(StunMessage::is_binding_request)
}
