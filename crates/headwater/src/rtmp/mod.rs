//! RTMP connections: publishers into live streams, live streams to players.

mod play;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use live::{PublishError, PublisherInfo};
use media::flv::TagKind;
use protocol::rtmp::{ServerConfig, ServerEvent, ServerSession, code};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::Origin;
use crate::ingest::Ingest;
use play::Play;

/// One read from a socket takes no more.
const READ: usize = 64 << 10;

/// Accepts connections until `shutdown` says so. Connections in progress go on until they end or
/// their task is dropped.
pub async fn serve(
    origin: Arc<Origin>,
    listener: TcpListener,
    mut shutdown: watch::Receiver<bool>,
) {
    let connections = Arc::new(AtomicUsize::new(0));
    let limit = origin.config.rtmp.max_connections;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = down(&mut shutdown) => return,
        };
        let (socket, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors or memory: others must leave first.
                tracing::warn!(%error, "rtmp accept");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
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
                Err(error) => tracing::warn!(
                    %peer, stream = connection.name(), %error, "rtmp connection ended"
                ),
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
    Silent(Duration),
    #[error("{0}")]
    Refused(#[from] live::Refused),
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

enum Role {
    None,
    Publish(Box<Ingest>),
    Play(Box<Play>),
}

struct Connection {
    origin: Arc<Origin>,
    socket: TcpStream,
    peer: SocketAddr,
    session: ServerSession,
    role: Role,
}

impl Connection {
    fn new(origin: Arc<Origin>, socket: TcpStream, peer: SocketAddr) -> Self {
        if let Err(error) = socket.set_nodelay(true) {
            tracing::debug!(%peer, %error, "TCP_NODELAY");
        }
        let session = ServerSession::new(ServerConfig::default(), origin.now().0);
        Self { origin, socket, peer, session, role: Role::None }
    }

    /// Name of the stream it publishes or plays.
    fn name(&self) -> Option<&str> {
        match &self.role {
            Role::None => None,
            Role::Publish(ingest) => Some(ingest.publisher().stream().name()),
            Role::Play(play) => Some(play.name()),
        }
    }

    fn is_player(&self) -> bool {
        !matches!(self.role, Role::Publish(_))
    }

    async fn run(&mut self, mut shutdown: watch::Receiver<bool>) -> Result<(), Error> {
        let setup: Duration = self.origin.config.rtmp.setup_timeout.into();
        let started = tokio::time::Instant::now();
        let mut buffer = vec![0; READ];
        loop {
            let read = tokio::select! {
                read = self.socket.read(&mut buffer) => Some(read?),
                bytes = next_for_player(&mut self.role, &self.origin) => {
                    match bytes? {
                        Some(bytes) => self.write(&bytes).await?,
                        None => {
                            self.session.play_unpublished()?;
                            self.flush().await?;
                            return Ok(());
                        }
                    }
                    None
                }
                () = tokio::time::sleep_until(started + setup), if matches!(self.role, Role::None) => {
                    return Err(Error::Idle(setup));
                }
                () = down(&mut shutdown) => return Ok(()),
            };
            match read {
                Some(0) => return Ok(()),
                Some(size) => self.handle_input(&buffer[..size]).await?,
                None => {}
            }
        }
    }

    async fn handle_input(&mut self, mut input: &[u8]) -> Result<(), Error> {
        loop {
            let result = self.session.handle_input(input);
            // What came before an error is still good.
            while let Some(event) = self.session.poll_event() {
                self.handle_event(event)?;
            }
            self.flush().await?;
            let taken = result?;
            input = &input[taken..];
            if input.is_empty() {
                return Ok(());
            }
        }
    }

    fn handle_event(&mut self, event: ServerEvent) -> Result<(), Error> {
        let now = self.origin.now();
        let mut media = |kind, timestamp, payload: &Bytes| match &mut self.role {
            Role::Publish(ingest) => ingest.handle_tag(kind, timestamp, payload, now),
            Role::None | Role::Play(_) => Ok(()),
        };
        match event {
            ServerEvent::Audio { timestamp, payload } => {
                media(TagKind::Audio, timestamp, &payload)?;
            }
            ServerEvent::Video { timestamp, payload } => {
                media(TagKind::Video, timestamp, &payload)?;
            }
            ServerEvent::Metadata { timestamp, payload, .. } => {
                media(TagKind::Script, timestamp, &payload)?;
            }
            ServerEvent::Connect { .. } => self.session.accept_connect()?,
            ServerEvent::PublishRequest { app, name, query, .. } => {
                self.publish(&path(&app, &name), &query)?;
            }
            ServerEvent::PlayRequest { app, name, .. } => self.play(&path(&app, &name))?,
            ServerEvent::Seek { .. } => self.session.reject_seek("live streams do not seek")?,
            ServerEvent::Pause { paused, .. } => {
                if let Role::Play(play) = &mut self.role {
                    play.pause(paused);
                }
            }
            ServerEvent::Ignored(error) => {
                tracing::warn!(peer = %self.peer, stream = self.name(), %error, "rtmp message ignored");
            }
            ServerEvent::Close { .. } => self.role = Role::None,
            ServerEvent::StreamLength { .. }
            | ServerEvent::BufferLength { .. }
            | ServerEvent::Pong { .. } => {}
            // The enum may grow; what is new asks for nothing.
            _ => {}
        }
        Ok(())
    }

    fn publish(&mut self, path: &str, query: &str) -> Result<(), Error> {
        let peer = self.peer;
        let Some(name) = path.strip_prefix("live/") else {
            tracing::warn!(%peer, path, "publish refused: not below live/");
            self.session.reject_publish(code::PUBLISH_BAD_NAME, "streams are named live/NAME")?;
            return Ok(());
        };
        let rendition = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("rendition="))
            .filter(|name| !name.is_empty())
            .map(|name| name.chars().take(64).collect());
        let info = PublisherInfo { peer: Some(peer), protocol: "rtmp", rendition };
        match self.origin.registry.publish(name, info, self.origin.now()) {
            Ok(publisher) => {
                tracing::info!(%peer, stream = name, "publisher");
                self.role = Role::Publish(Box::new(Ingest::new(publisher)));
                self.session.accept_publish()?;
            }
            Err(error) => {
                tracing::warn!(%peer, stream = name, %error, "publish refused");
                let code = match error {
                    PublishError::TooManyStreams => code::PUBLISH_DENIED,
                    _ => code::PUBLISH_BAD_NAME,
                };
                self.session.reject_publish(code, &error.to_string())?;
            }
        }
        Ok(())
    }

    fn play(&mut self, path: &str) -> Result<(), Error> {
        let stream = path.strip_prefix("live/").and_then(|name| self.origin.registry.stream(name));
        let Some(stream) = stream else {
            tracing::debug!(peer = %self.peer, path, "play: no such stream");
            self.session.reject_play(code::PLAY_STREAM_NOT_FOUND, "no such stream")?;
            return Ok(());
        };
        let chunk_size = ServerConfig::default().chunk_size;
        self.role =
            Role::Play(Box::new(Play::new(stream, self.origin.viewer_limits(), chunk_size)));
        self.session.accept_play(false)?;
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), Error> {
        let mut pieces = Vec::new();
        while let Some(piece) = self.session.poll_output() {
            pieces.push(piece);
        }
        if pieces.is_empty() { Ok(()) } else { self.write(&pieces).await }
    }

    /// Writes everything, or finds that the peer takes nothing.
    async fn write(&mut self, pieces: &[Bytes]) -> Result<(), Error> {
        let patience: Duration = self.origin.config.http.send_timeout.into();
        let mut slices: Vec<_> = pieces.iter().map(|piece| std::io::IoSlice::new(piece)).collect();
        let mut slices = &mut slices[..];
        std::io::IoSlice::advance_slices(&mut slices, 0);
        while !slices.is_empty() {
            let written = tokio::time::timeout(patience, self.socket.write_vectored(slices))
                .await
                .map_err(|_| Error::Stalled(patience))??;
            if written == 0 {
                return Err(std::io::Error::from(std::io::ErrorKind::WriteZero).into());
            }
            std::io::IoSlice::advance_slices(&mut slices, written);
        }
        Ok(())
    }
}

/// The stream's path: RTMP splits it into application and name at a place of the client's choice.
fn path(app: &str, name: &str) -> String {
    format!("{}/{}", app.trim_matches('/'), name.trim_matches('/'))
}

/// What a player is to be sent next; for ever pending while nobody plays. `None`: the stream ended.
async fn next_for_player(role: &mut Role, origin: &Origin) -> Result<Option<Vec<Bytes>>, Error> {
    match role {
        Role::Play(play) => play.next(origin).await,
        Role::None => std::future::pending().await,
        Role::Publish(ingest) => {
            // A publisher that was replaced is found out when it sends something; one that never
            // does would stay for ever.
            let silence: Duration = origin.config.live.silence.into();
            loop {
                tokio::time::sleep(silence).await;
                if ingest.publisher().is_replaced() {
                    return Err(Error::Silent(silence));
                }
            }
        }
    }
}
