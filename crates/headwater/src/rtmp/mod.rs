//! RTMP connections: publishers into live streams, live streams to players.

mod play;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use live::{Delivery, PublishError, PublisherInfo};
use media::flv::TagKind;
use protocol::rtmp::{Blame, ServerConfig, ServerEvent, ServerSession, code};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::Origin;
use crate::ingest::{self, Ingest};
use crate::metrics::TooSlow;
use play::Play;

/// Ignored messages of a publisher that are logged; it is disconnected after many more.
const IGNORED: (u32, u32) = (3, 32);

/// A connection whose requests to publish were refused so often is closed.
const REFUSED: u32 = 16;

/// Characters of a refused name that are logged.
const SHOWN: usize = 160;

/// Bytes in the kernel and not yet sent to a player: what a slow one is behind by stays where it
/// can still be skipped.
const UNSENT: u32 = 128 << 10;

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
    /// When it last published something; without a role, since when it has none.
    heard: Instant,
    /// Messages that could not be read.
    ignored: u32,
    /// Requests to publish that were refused.
    refused: u32,
}

impl Connection {
    fn new(origin: Arc<Origin>, socket: TcpStream, peer: SocketAddr) -> Self {
        if let Err(error) = configure(&socket) {
            tracing::debug!(%peer, %error, "socket options");
        }
        let session = ServerSession::new(ServerConfig::default(), origin.now().0);
        Self {
            origin,
            socket,
            peer,
            session,
            role: Role::None,
            heard: Instant::now(),
            ignored: 0,
            refused: 0,
        }
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
        let mut buffer = vec![0; READ];
        loop {
            let deadline = self.deadline();
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
                error = overdue(deadline) => return Err(error),
                () = down(&mut shutdown) => return Ok(()),
            };
            match read {
                Some(0) => return Ok(()),
                Some(size) => self.handle_input(&buffer[..size]).await?,
                None => {}
            }
        }
    }

    /// Until when the peer must have done something.
    fn deadline(&self) -> Option<(Instant, Error)> {
        let config = &self.origin.config;
        let (limit, error): (Duration, fn(Duration) -> Error) = match self.role {
            Role::None => (config.rtmp.setup_timeout.into(), Error::Idle),
            // Another may have its name long before. This is for its memory, and for viewers, who
            // are to learn that nobody publishes.
            Role::Publish(_) => (3 * Duration::from(config.live.silence), Error::Silent),
            Role::Play(_) => return None,
        };
        Some((self.heard + limit, error(limit)))
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
            Role::Publish(ingest) => {
                self.heard = Instant::now();
                ingest.handle_tag(kind, timestamp, payload, now)
            }
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
            ServerEvent::Ignored(error) => self.ignore(error)?,
            ServerEvent::Close { .. } => {
                self.role = Role::None;
                self.heard = Instant::now();
            }
            ServerEvent::StreamLength { .. }
            | ServerEvent::BufferLength { .. }
            | ServerEvent::Pong { .. } => {}
            // The enum may grow; what is new asks for nothing.
            _ => {}
        }
        Ok(())
    }

    /// A message that could not be read: there may be a few.
    fn ignore(&mut self, error: protocol::rtmp::Error) -> Result<(), Error> {
        if error.blame == Blame::LimitExceeded {
            return Err(error.into());
        }
        let (logged, most) = IGNORED;
        self.ignored = self.ignored.saturating_add(1);
        if self.ignored > most && error.blame == Blame::PeerMisbehaved {
            return Err(Error::Garbage(error));
        }
        if self.ignored <= logged {
            tracing::warn!(peer = %self.peer, stream = self.name(), %error, "rtmp message ignored");
        }
        Ok(())
    }

    /// After an error: nothing more is sent.
    fn give_up(&self, error: &Error) {
        let why = match error {
            Error::Stalled(_) => TooSlow::Stalled,
            Error::TooSlow => TooSlow::Behind,
            _ => return,
        };
        if let Role::Play(_) = &self.role {
            self.origin.slow_viewers.closed(Delivery::Rtmp, why);
        }
        // What is queued in the kernel would be kept for as long as the peer is silent.
        let _ = self.socket.set_zero_linger();
    }

    fn publish(&mut self, path: &str, query: &str) -> Result<(), Error> {
        let peer = self.peer;
        let Some(name) = path.strip_prefix("live/") else {
            tracing::warn!(%peer, path = shown(path), "publish refused: not below live/");
            return self.refuse(code::PUBLISH_BAD_NAME, "streams are named live/NAME");
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
                self.heard = Instant::now();
                self.session.accept_publish()?;
            }
            Err(error) => {
                tracing::warn!(%peer, stream = shown(name), %error, "publish refused");
                let code = match error {
                    PublishError::TooManyStreams => code::PUBLISH_DENIED,
                    _ => code::PUBLISH_BAD_NAME,
                };
                return self.refuse(code, &error.to_string());
            }
        }
        Ok(())
    }

    /// Tells a publisher no; it may ask again, for some time.
    fn refuse(&mut self, code: &str, why: &str) -> Result<(), Error> {
        self.session.reject_publish(code, why)?;
        self.refused += 1;
        if self.refused < REFUSED { Ok(()) } else { Err(Error::Refused) }
    }

    fn play(&mut self, path: &str) -> Result<(), Error> {
        let stream = path.strip_prefix("live/").and_then(|name| self.origin.registry.stream(name));
        let Some(stream) = stream else {
            tracing::debug!(peer = %self.peer, path = shown(path), "play: no such stream");
            self.session.reject_play(code::PLAY_STREAM_NOT_FOUND, "no such stream")?;
            return Ok(());
        };
        let chunk_size = ServerConfig::default().chunk_size;
        self.role = Role::Play(Box::new(Play::new(
            stream,
            self.peer,
            self.origin.viewer_limits(),
            chunk_size,
        )));
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

/// As much of what a peer called something as goes into a log.
fn shown(name: &str) -> &str {
    name.char_indices().nth(SHOWN).map_or(name, |(end, _)| &name[..end])
}

/// Once the deadline has passed, what was missed; never without one.
async fn overdue(deadline: Option<(Instant, Error)>) -> Error {
    let Some((at, error)) = deadline else { return std::future::pending().await };
    tokio::time::sleep_until(at).await;
    error
}

fn configure(socket: &TcpStream) -> std::io::Result<()> {
    socket.set_nodelay(true)?;
    let socket = SockRef::from(socket);
    socket.set_tcp_notsent_lowat(UNSENT)?;
    // A player that vanished without a word is found out even where nothing is sent to it.
    let keepalive = TcpKeepalive::new().with_time(Duration::from_secs(60));
    socket.set_tcp_keepalive(&keepalive.with_interval(Duration::from_secs(15)).with_retries(4))
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
                    return Err(Error::Replaced(silence));
                }
            }
        }
    }
}
