//! An RTMP server to which a file is published.

use std::io;

use anyhow::{Context, bail, ensure};
use media::flv::{Message, TagKind};
use protocol::rtmp::{
    Capabilities, ClientConfig, ClientEvent, ClientSession, PublishKind, Purpose, Url,
};
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::PATIENCE;

/// A connection to a server, which publishes.
pub(super) struct Connection {
    socket: TcpStream,
    session: ClientSession,
}

impl Connection {
    /// Connects. [`Connection::start`] comes next.
    pub(super) async fn open(url: &str) -> anyhow::Result<Self> {
        let parsed = Url::parse(url).with_context(|| url.to_owned())?;
        let socket = timeout(PATIENCE, TcpStream::connect((parsed.host.as_str(), parsed.port)))
            .await
            .context("connecting takes too long")?
            .with_context(|| format!("{}:{}", parsed.host, parsed.port))?;
        socket.set_nodelay(true)?;
        let mut config = ClientConfig::new(&parsed, Purpose::Publish(PublishKind::Live));
        // A client that announces this capability must support it, and this one does not.
        config.capabilities = config.capabilities.without(Capabilities::RECONNECT);
        let session = ClientSession::new(config, u64::from(std::process::id()));
        Ok(Self { socket, session })
    }

    /// Runs from the handshake to `NetStream.Publish.Start`.
    pub(super) async fn start(&mut self) -> anyhow::Result<()> {
        let started = async {
            loop {
                self.flush().await?;
                if self.session.is_started() {
                    return Ok(());
                }
                self.receive().await?;
            }
        };
        timeout(PATIENCE, started).await.context("the server does not answer")?
    }

    /// Waits until a time and handles what the server says meanwhile.
    pub(super) async fn wait(&mut self, until: Instant) -> anyhow::Result<()> {
        while Instant::now() < until {
            tokio::select! {
                () = sleep_until(until) => return Ok(()),
                ready = self.socket.readable() => {
                    ready?;
                    self.take_in()?;
                    self.flush().await?;
                }
            }
        }
        Ok(())
    }

    async fn receive(&mut self) -> anyhow::Result<()> {
        self.socket.readable().await?;
        self.take_in()
    }

    /// Takes in what has arrived. Fails if that is the end of the connection.
    fn take_in(&mut self) -> anyhow::Result<()> {
        ensure!(self.read()? != Some(0), "the server closed the connection");
        Ok(())
    }

    /// Reads what has arrived, up to the size of the buffer. Returns the number of bytes: 0 at the
    /// end, `None` if nothing has arrived.
    fn read(&mut self) -> anyhow::Result<Option<usize>> {
        let mut buffer = [0; 4096];
        let size = match self.socket.try_read(&mut buffer) {
            Ok(size) => size,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let mut input = &buffer[..size];
        while !input.is_empty() {
            let taken = self.session.handle_input(input)?;
            input = &input[taken..];
            while let Some(event) = self.session.poll_event() {
                match event {
                    ClientEvent::Rejected { code, description } => {
                        bail!("the server refused: {code}: {description}")
                    }
                    ClientEvent::Ended { code, description } => {
                        bail!("the server ended the stream: {code}: {description}")
                    }
                    // An error after the end means that the server did not take everything.
                    ClientEvent::Status { level, code, description } if level == "error" => {
                        bail!("the server reports {code}: {description}")
                    }
                    event => tracing::debug!(?event, "server"),
                }
            }
        }
        Ok(Some(size))
    }

    pub(super) async fn send(&mut self, message: &Message) -> anyhow::Result<()> {
        let (time, payload) = (message.timestamp(), message.payload());
        match message.kind() {
            TagKind::Audio => self.session.send_audio(time, payload)?,
            TagKind::Video => self.session.send_video(time, payload)?,
            TagKind::Script => self.session.send_metadata(time, &payload)?,
        }
        self.flush().await
    }

    async fn flush(&mut self) -> anyhow::Result<()> {
        while let Some(piece) = self.session.poll_output() {
            let mut rest = &piece[..];
            let mut deadline = Instant::now() + PATIENCE;
            while !rest.is_empty() {
                let ready = self.socket.ready(Interest::READABLE | Interest::WRITABLE);
                let ready =
                    timeout_at(deadline, ready).await.context("the server reads nothing")??;
                // Reads even while the server takes nothing: otherwise both sides could wait for
                // the other to read. The server may also say that it wants no more.
                if ready.is_readable() {
                    self.take_in()?;
                }
                if !ready.is_writable() {
                    continue;
                }
                match self.socket.try_write(rest) {
                    Ok(written) => {
                        rest = &rest[written..];
                        deadline = Instant::now() + PATIENCE;
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => {
                        // The server's last words tell more than the broken connection does.
                        while self.read()?.is_some_and(|size| size > 0) {}
                        return Err(error.into());
                    }
                }
            }
        }
        Ok(())
    }

    /// Ends the stream, and waits until the server has taken everything.
    pub(super) async fn finish(mut self) -> anyhow::Result<()> {
        self.session.close();
        self.flush().await?;
        self.socket.shutdown().await?;
        let drained = async {
            loop {
                self.socket.readable().await?;
                if self.read()? == Some(0) {
                    return Ok(());
                }
            }
        };
        let reset = |error: &anyhow::Error| {
            let error = error.downcast_ref::<io::Error>();
            error.is_some_and(|error| error.kind() == io::ErrorKind::ConnectionReset)
        };
        match timeout(PATIENCE, drained).await {
            Ok(Err(error)) if !reset(&error) => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }
}
