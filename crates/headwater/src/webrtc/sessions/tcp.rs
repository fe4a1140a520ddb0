//! ICE over TCP (RFC 6544), for networks that let no datagrams pass. Peers connect, the origin never does.
//!
//! Packets are the same as in datagrams, each after its length (RFC 4571 2). `tcp_queue` keeps those that go out.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use http::net::{self, Accepted, Gate, LogId, Worker};
use str0m::net::Protocol;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;
use tokio::time::{Instant, timeout};

use super::admit::admit;
use super::shared::Shared;
use super::stun::binding_request;
use super::{Datagram, Inbox, LONGEST, Message};
use crate::webrtc::end::SILENCE;
use crate::webrtc::send::path::Path;
use crate::webrtc::send::tcp_queue::Writer;

/// How long the farewell of a session may take.
const FAREWELL: Duration = Duration::from_secs(1);

/// Bytes that the kernel keeps unsent for each connection. More would only be late.
pub(in crate::webrtc) const UNSENT: u32 = 32 << 10;

/// Connections for each session that there may be. A browser opens one to each address of ours.
pub(crate) const FOR_A_SESSION: usize = 4;

/// Reads frames.
struct Frames<R> {
    from: R,
    bytes: BytesMut,
}

impl<R: AsyncRead + Unpin> Frames<R> {
    fn new(from: R) -> Self {
        Self { from, bytes: BytesMut::new() }
    }

    /// The next packet. `None` at the end, and where a frame is too long.
    async fn next(&mut self) -> io::Result<Option<Box<[u8]>>> {
        loop {
            if let Some((length, _)) = self.bytes.split_first_chunk() {
                let length = usize::from(u16::from_be_bytes(*length));
                if length > LONGEST {
                    return Ok(None);
                }
                if let Some(packet) = self.bytes.get(2..2 + length) {
                    let packet = packet.into();
                    self.bytes.advance(2 + length);
                    return Ok(Some(packet));
                }
            }
            self.bytes.reserve(2 + LONGEST);
            if self.from.read_buf(&mut self.bytes).await? == 0 {
                return Ok(None);
            }
        }
    }
}

/// Accepts connections until the worker drains.
pub(in crate::webrtc) async fn accept(
    listener: TcpListener,
    gate: Arc<Gate>,
    shared: Rc<Shared>,
    worker: Worker,
) {
    let take = |Accepted { stream, peer, permit }| {
        let Some(permit) = permit else { return };
        let (shared, worker) = (Rc::clone(&shared), worker.clone());
        spawn_local(LogId::connection().scope(async move {
            let result = run(stream, peer, &shared, &worker).await;
            tracing::debug!(%peer, ?result, "tcp connection of webrtc over");
            drop(permit);
        }));
    };
    tokio::select! {
        never = net::accept("webrtc", &listener, &gate, take) => match never {},
        () = worker.drain.begun() => {}
    }
}

/// Runs a connection: the first packet must prove to which session it belongs. It ends with that session.
async fn run(
    mut stream: TcpStream,
    peer: SocketAddr,
    shared: &Rc<Shared>,
    worker: &Worker,
) -> io::Result<()> {
    let canonical = |at: SocketAddr| SocketAddr::new(at.ip().to_canonical(), at.port());
    let (own, peer) = (canonical(stream.local_addr()?), canonical(peer));
    let path = Path { protocol: Protocol::Tcp, source: own, destination: peer };
    let (reader, to) = stream.split();
    let mut frames = Frames::new(reader);
    let first = timeout(SILENCE, frames.next()).await??;
    let inbox = first.as_deref().and_then(binding_request).and_then(|request| {
        // Each connection is an address of its own.
        admit(shared, worker, &request, true)
    });
    let (Some(first), Some(inbox)) = (first, inbox) else {
        shared.sessions.count_dropped();
        return Ok(());
    };
    let _task = worker.task();
    let known = shared.transport.connections.add(peer);
    let mut writer = Writer::new(to, &known.queue);
    let is_admitted = |packet: &[u8]| {
        // A request may be the first with the credentials of a restart, or be from before it.
        let is_admitted = binding_request(packet).is_none_or(|request| {
            let admitted = admit(shared, worker, &request, false);
            admitted.is_some_and(|admitted| admitted.same_channel(&inbox))
        });
        if !is_admitted {
            shared.sessions.count_dropped();
        }
        is_admitted
    };
    let result = tokio::select! {
        result = read(&mut frames, path, first, &inbox, is_admitted) => result,
        result = writer.run() => result,
        () = inbox.closed() => timeout(FAREWELL, writer.flush()).await?,
    };
    result
}

/// Gives packets that are admitted to the session, as fast as it takes them.
async fn read(
    frames: &mut Frames<impl AsyncRead + Unpin>,
    path: Path,
    first: Box<[u8]>,
    inbox: &Inbox,
    is_admitted: impl Fn(&[u8]) -> bool,
) -> io::Result<()> {
    let mut next = Some(first);
    while let Some(bytes) = next {
        let is_admitted = is_admitted(&bytes);
        let datagram = Datagram { path, bytes, came: Instant::now() };
        if is_admitted && inbox.send(Message::Datagram(datagram)).await.is_err() {
            // The session is over, which ends the connection in order.
            std::future::pending::<()>().await;
        }
        next = frames.next().await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt, duplex};

    use super::*;
    use crate::webrtc::send::tcp_queue::testing::frame;

    #[tokio::test]
    async fn frames_come_out_however_they_are_cut() {
        let packets = [&b"one"[..], b"", &[7; LONGEST], b"four"];
        let bytes = packets.map(frame).concat();
        for piece in [1, 2, 3, 1000, bytes.len()] {
            let (mut peer, own) = duplex(piece);
            let mut frames = Frames::new(own);
            let send = async {
                for piece in bytes.chunks(piece) {
                    peer.write_all(piece).await.unwrap();
                }
                drop(peer);
            };
            let receive = async {
                let mut came = Vec::new();
                while let Some(packet) = frames.next().await.unwrap() {
                    came.push(packet);
                }
                came
            };
            let ((), came) = tokio::join!(send, receive);
            assert!(came.iter().map(|packet| &packet[..]).eq(packets), "pieces of {piece}");
        }
    }

    #[tokio::test]
    async fn a_frame_that_is_too_long_ends_all_before_it_is_kept() {
        let (mut peer, own) = duplex(64);
        peer.write_all(&frame(&[1])).await.unwrap();
        peer.write_all(&(LONGEST as u16 + 1).to_be_bytes()).await.unwrap();
        let mut frames = Frames::new(own);
        assert_eq!(frames.next().await.unwrap().as_deref(), Some(&[1][..]));
        assert_eq!(frames.next().await.unwrap(), None);
    }
}
