//! `headwater publish`: sends a file to a server in real time, over RTMP or WHIP.
//!
//! ```text
//! input ─▶ what is due, and when ─▶ stamper ─┬▶ messages ─▶ rtmp
//!                                            └▶ samples  ─▶ whip
//! ```

mod input;
mod request;
mod rtmp;
mod stamper;
mod whip;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use input::{Due, Media};
use stamper::Stamper;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

/// How to publish.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Start again at the end of the file. Timestamps go on.
    pub repeat: bool,
    /// Send as fast as the server takes the data, instead of in real time. WHIP has no such way.
    pub fast: bool,
    /// Put a capture stamp ([`media::stamp`]), the time of sending, into each video access unit.
    pub stamp: bool,
}

/// How long the server may take to answer, and to connect.
const PATIENCE: Duration = Duration::from_secs(10);

/// Publishes the MP4 or FLV file `input` to `url`: by WHIP if it begins with `http://` or
/// `https://`, otherwise by RTMP. Returns at the end of the file. With [`Options::repeat`] it does not
/// end by itself.
///
/// SIGINT and SIGTERM end a session of WHIP, and this then returns, too.
///
/// # Errors
/// The file cannot be read, or holds nothing that the protocol carries, or nothing that can take the
/// stamps asked for. Or the server refuses or goes away.
pub async fn run(input: &Path, url: &str, options: Options) -> anyhow::Result<()> {
    let media = Media::open(input).with_context(|| input.display().to_string())?;
    ensure!(!options.stamp || media.has_video(), "no video that could be stamped");
    let is_whip = url.starts_with("http://") || url.starts_with("https://");
    ensure!(
        !(is_whip && options.fast),
        "--fast is not possible by WHIP: it sends in real time, and packets that come faster are lost"
    );
    let mut stop = Stop::new(is_whip)?;
    let opened = async {
        if is_whip {
            anyhow::Ok(Server::Whip(Box::new(whip::Session::open(&media, url).await?)))
        } else {
            Ok(Server::Rtmp(Box::new(rtmp::Connection::open(url).await?)))
        }
    };
    let mut server = tokio::select! {
        opened = opened => opened?,
        () = stop.asked() => return Ok(()),
    };
    let sent = tokio::select! {
        sent = send(&media, &mut server, options, (input, url)) => sent,
        () = stop.asked() => {
            tracing::info!("told to end");
            Ok(())
        }
    };
    if let Err(error) = sent {
        server.give_up().await;
        return Err(error);
    }
    tokio::select! {
        finished = server.finish() => finished,
        // A second signal.
        () = stop.asked() => Ok(()),
    }
}

/// Sends the file, once or for ever.
async fn send(
    media: &Media,
    server: &mut Server,
    options: Options,
    (input, url): (&Path, &str),
) -> anyhow::Result<()> {
    server.start().await?;
    tracing::info!(input = %input.display(), %url, "publishing");
    let start = Instant::now();
    server.headers(media).await?;
    let mut stamper = options.stamp.then(Stamper::default);
    let mut turn = 0;
    loop {
        for due in media.all_due(turn) {
            let (at, due) = due?;
            if !options.fast {
                server.wait_for(start + Duration::from_millis(at.unsigned_abs())).await?;
            }
            // The stamp is made only now, at the time of sending.
            let due = match &mut stamper {
                Some(stamper) => due.stamped(stamper)?,
                None => due,
            };
            server.send(due).await?;
        }
        turn += 1;
        if !options.repeat {
            return Ok(());
        }
    }
}

/// The server that a file is published to.
enum Server {
    Rtmp(Box<rtmp::Connection>),
    Whip(Box<whip::Session>),
}

impl Server {
    /// Does what comes before the media.
    async fn start(&mut self) -> anyhow::Result<()> {
        match self {
            Self::Rtmp(connection) => connection.start().await,
            Self::Whip(session) => session.connect().await,
        }
    }

    /// Sends what precedes samples. WHIP has the configurations of codecs in the samples.
    async fn headers(&mut self, media: &Media) -> anyhow::Result<()> {
        let Self::Rtmp(connection) = self else { return Ok(()) };
        for message in media.headers()? {
            connection.send(&message).await?;
        }
        Ok(())
    }

    /// Waits for a sample that is due at this time, and handles what the server says meanwhile.
    async fn wait_for(&mut self, due: Instant) -> anyhow::Result<()> {
        match self {
            Self::Rtmp(connection) => connection.wait(due).await,
            Self::Whip(session) => session.wait_for(due).await,
        }
    }

    async fn send(&mut self, due: Due<'_>) -> anyhow::Result<()> {
        match self {
            Self::Rtmp(connection) => connection.send(&due.message()?).await,
            Self::Whip(session) => session.send(due).await,
        }
    }

    /// Ends the stream, when the server has everything.
    async fn finish(self) -> anyhow::Result<()> {
        match self {
            Self::Rtmp(connection) => connection.finish().await,
            Self::Whip(session) => session.finish().await,
        }
    }

    /// Ends the stream after an error. A connection of RTMP ends by being dropped.
    async fn give_up(self) {
        if let Self::Whip(session) = self {
            session.give_up().await;
        }
    }
}

/// The signals SIGINT and SIGTERM, if they must not end the process at once.
struct Stop(Option<[Signal; 2]>);

impl Stop {
    fn new(waits: bool) -> std::io::Result<Self> {
        let both = || Ok([signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?]);
        waits.then(both).transpose().map(Self)
    }

    /// Waits for a signal.
    async fn asked(&mut self) {
        match &mut self.0 {
            Some([interrupt, terminate]) => {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
            }
            None => std::future::pending().await,
        }
    }
}
