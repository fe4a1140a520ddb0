//! RTMP connections: publishers into live streams, live streams and files to players.
//!
//! ```text
//!              ┌ ingest                 publishes
//! connection ──┼ play   live::Cursor    plays a live stream: parts as they come
//!              └ file   film, pace      plays a file: blocks when they are due
//! ```

mod connection;
mod file;
mod film;
mod lookup;
mod outbox;
mod play;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use media::flv::{Message, TagKind};
use protocol::rtmp::{ServerConfig, chunk, message};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::{Origin, ingest};
use connection::Connection;

pub use film::Films;

/// A connection whose requests to publish were refused so often is closed.
const REFUSED: u32 = 16;

/// Accepts connections until `shutdown` says so. Connections in progress go on until they end or
/// their task is dropped.
pub async fn serve(
    origin: Arc<Origin>,
    listener: TcpListener,
    mut shutdown: watch::Receiver<bool>,
) {
    let connections = Arc::new(AtomicUsize::new(0));
    let limit = origin.config.rtmp.max_connections;
    let mut failing = false;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = down(&mut shutdown) => return,
        };
        let (socket, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors or memory: others must leave first.
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!(%error, "cannot accept rtmp connections, trying again");
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        if std::mem::take(&mut failing) {
            tracing::info!("rtmp connections are accepted again");
        }
        if limit > 0 && connections.load(Ordering::Relaxed) >= limit {
            tracing::warn!(%peer, limit, "rtmp connection refused: too many");
            continue;
        }
        connections.fetch_add(1, Ordering::Relaxed);
        let guard = Counted(Arc::clone(&connections));
        let (origin, shutdown) = (Arc::clone(&origin), shutdown.clone());
        tokio::spawn(async move {
            let _guard = guard;
            let mut connection = Connection::new(origin, socket, peer);
            match connection.run(shutdown).await {
                Ok(()) => tracing::debug!(%peer, "rtmp connection closed"),
                // How players leave.
                Err(error) if error.is_reset() && connection.is_player() => {
                    tracing::debug!(%peer, "rtmp player left");
                }
                Err(error) => {
                    tracing::warn!(
                        %peer, stream = connection.name(), %error, "rtmp connection ended"
                    );
                    connection.give_up(&error);
                }
            }
        });
    }
}

/// Ready when the origin shuts down.
async fn down(shutdown: &mut watch::Receiver<bool>) {
    // An error means that whoever would say so is gone, which says the same.
    let _ = shutdown.wait_for(|&down| down).await;
}

struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Why a connection ended, other than by the peer's leave.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("{0}")]
    Protocol(#[from] protocol::rtmp::Error),
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("nothing was published or played within {0:?}")]
    Idle(Duration),
    #[error("silent for {0:?}, and another publisher took over")]
    Replaced(Duration),
    #[error("no whole message was published for {0:?}")]
    Silent(Duration),
    #[error("too many messages that cannot be read, the last: {0}")]
    Garbage(protocol::rtmp::Error),
    #[error("refused to publish {REFUSED} times")]
    Refused,
    #[error("{0}")]
    Ingest(#[from] ingest::Error),
    #[error("no byte accepted for {0:?}")]
    Stalled(Duration),
    #[error("reads too slowly")]
    TooSlow,
}

impl Error {
    fn is_reset(&self) -> bool {
        use std::io::ErrorKind::{BrokenPipe, ConnectionReset};
        matches!(self, Self::Io(error) if matches!(error.kind(), BrokenPipe | ConnectionReset))
    }
}

/// A message as every player is sent it.
fn wire(message: &Message) -> Bytes {
    let (csid, kind) = match message.kind() {
        TagKind::Audio => (chunk::csid::SHARED_AUDIO, message::AUDIO),
        TagKind::Video => (chunk::csid::SHARED_VIDEO, message::VIDEO),
        TagKind::Script => (chunk::csid::SHARED_DATA, message::DATA_AMF0),
    };
    let (time, payload) = (message.timestamp(), message.payload());
    chunk::shared_message(csid, kind, time, &payload, ServerConfig::default().chunk_size)
}
