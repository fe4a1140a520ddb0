//! `headwater publish`: sends a file to an RTMP server in real time.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use media::clock::Unwrapper;
use media::flv::{Message, Metadata, Packetizer, TagKind};
use media::mp4;
use protocol::rtmp::{ClientConfig, ClientEvent, ClientSession, PublishKind, Purpose, Url};
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use crate::deliver::files::OnDisk;

/// How to publish.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Begin again at the end; timestamps go on.
    pub repeat: bool,
    /// As fast as the server takes it, instead of in real time.
    pub fast: bool,
}

/// The server must answer within this.
const PATIENCE: Duration = Duration::from_secs(10);

/// Publishes the MP4 or FLV file `input` to `url`; returns at its end, or never with
/// [`Options::repeat`].
///
/// # Errors
/// The file cannot be read or holds nothing that RTMP carries, or the server refuses or goes away.
pub async fn run(input: &Path, url: &str, options: Options) -> anyhow::Result<()> {
    let media = Media::open(input).with_context(|| input.display().to_string())?;
    let parsed = Url::parse(url).with_context(|| url.to_owned())?;
    let socket = timeout(PATIENCE, TcpStream::connect((parsed.host.as_str(), parsed.port)))
        .await
        .context("connecting takes too long")?
        .with_context(|| format!("{}:{}", parsed.host, parsed.port))?;
    socket.set_nodelay(true)?;
    let config = ClientConfig::new(&parsed, Purpose::Publish(PublishKind::Live));
    let session = ClientSession::new(config, u64::from(std::process::id()));
    let mut connection = Connection { socket, session };
    timeout(PATIENCE, connection.start()).await.context("the server does not answer")??;
    tracing::info!(input = %input.display(), %url, "publishing");

    let start = Instant::now();
    for message in media.headers()? {
        connection.send(&message).await?;
    }
    let mut turn = 0;
    loop {
        let mut send = async |at: i64, message: Message| -> anyhow::Result<()> {
            if !options.fast {
                connection.wait(start + Duration::from_millis(at.unsigned_abs())).await?;
            }
            connection.send(&message).await
        };
        match &media {
            Media::Mp4(file) => {
                for message in file.messages(turn) {
                    let (at, message) = message?;
                    send(at, message).await?;
                }
            }
            Media::Flv(file) => {
                for message in file.messages(turn) {
                    let (at, message) = message?;
                    send(at, message).await?;
                }
            }
        }
        turn += 1;
        if !options.repeat {
            break;
        }
    }
    connection.finish().await
}

struct Connection {
    socket: TcpStream,
    session: ClientSession,
}

impl Connection {
    /// Handshake to `NetStream.Publish.Start`.
    async fn start(&mut self) -> anyhow::Result<()> {
        loop {
            self.flush().await?;
            if self.session.is_started() {
                return Ok(());
            }
            self.receive().await?;
        }
    }

    /// Waits, while the server may say something.
    async fn wait(&mut self, until: Instant) -> anyhow::Result<()> {
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

    /// Takes in what has arrived, which must not be the end.
    fn take_in(&mut self) -> anyhow::Result<()> {
        ensure!(self.read()? != Some(0), "the server closed the connection");
        Ok(())
    }

    /// Reads what has arrived, at most so much at once. Answers how many bytes, 0 at the end, or
    /// `None` if nothing has.
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
                    ClientEvent::Ended { code } => bail!("the server ended the stream: {code}"),
                    // After the end: it did not take all that was sent before.
                    ClientEvent::Status { level, code, description } if level == "error" => {
                        bail!("the server reports {code}: {description}")
                    }
                    event => tracing::debug!(?event, "server"),
                }
            }
        }
        Ok(Some(size))
    }

    async fn send(&mut self, message: &Message) -> anyhow::Result<()> {
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
                // It is read from also while it takes nothing: it could wait for us to read, as we
                // wait for it. What it says may also be that it wants no more.
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
                        // Its last words say more than that it is gone.
                        while self.read()?.is_some_and(|size| size > 0) {}
                        return Err(error.into());
                    }
                }
            }
        }
        Ok(())
    }

    /// Says that it is over, and waits until the server has taken everything.
    async fn finish(mut self) -> anyhow::Result<()> {
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

/// A file to publish. Messages come with the time they are due, in milliseconds from the start.
enum Media {
    Mp4(Mp4),
    Flv(Flv),
}

impl Media {
    fn open(path: &Path) -> anyhow::Result<Self> {
        let file = File::open(path)?;
        let mut magic = [0; 3];
        file.read_exact_at(&mut magic, 0).context("too short for a media file")?;
        if &magic == b"FLV" {
            Flv::open(file).map(Self::Flv)
        } else {
            Mp4::open(file).map(Self::Mp4)
        }
    }

    /// `onMetaData` and the sequence headers that the file does not send by itself.
    fn headers(&self) -> anyhow::Result<Vec<Message>> {
        match self {
            Self::Mp4(file) => file.headers(),
            Self::Flv(_) => Ok(Vec::new()),
        }
    }
}

struct Mp4 {
    source: OnDisk,
    index: mp4::Index,
    /// For each track of the index, if it can be published.
    packetizers: Vec<Option<Packetizer>>,
    /// Milliseconds before 0 at which the earliest track starts to decode.
    lead: i64,
}

impl Mp4 {
    fn open(file: File) -> anyhow::Result<Self> {
        let len = file.metadata()?.len();
        let source = OnDisk { file, len };
        let index = mp4::Index::read(&source)?;
        let (mut video, mut audio) = (0, 0);
        let mut packetizers = Vec::with_capacity(index.tracks.len());
        for (number, track) in index.tracks.iter().enumerate() {
            let next = match track.track.kind() {
                media::Kind::Video => &mut video,
                media::Kind::Audio => &mut audio,
                media::Kind::Other => {
                    packetizers.push(None);
                    continue;
                }
            };
            let made = match &track.problem {
                Some(problem) => Err(problem.clone()),
                None => Packetizer::new(*next, &track.track.codec, track.track.timescale),
            };
            match made {
                Ok(packetizer) => {
                    *next += 1;
                    packetizers.push(Some(packetizer));
                }
                Err(error) => {
                    tracing::warn!(track = number, %error, "track left out");
                    packetizers.push(None);
                }
            }
        }
        ensure!(packetizers.iter().any(Option::is_some), "no track that RTMP can carry");
        let mut this = Self { source, index, packetizers, lead: 0 };
        let first = |track: &mp4::TrackIndex| {
            let first = track.samples.iter().next()?;
            Some(live::rescale(first.dts, track.track.timescale, 1000))
        };
        this.lead =
            this.published().filter_map(|at| first(&this.index.tracks[at])).min().unwrap_or(0);
        this.lead = (-this.lead).max(0);
        Ok(this)
    }

    fn published(&self) -> impl Iterator<Item = usize> {
        self.packetizers.iter().enumerate().filter_map(|(at, made)| made.as_ref().map(|_| at))
    }

    fn headers(&self) -> anyhow::Result<Vec<Message>> {
        let codecs = self.published().map(|at| &self.index.tracks[at].track.codec);
        let mut metadata = Metadata::describe(codecs);
        metadata.duration = Some(self.index.duration().as_secs_f64());
        let mut out = vec![Message::metadata(0, &metadata)?];
        for packetizer in self.packetizers.iter().flatten() {
            out.push(packetizer.sequence_header(0)?);
        }
        Ok(out)
    }

    fn messages(&self, turn: i64) -> impl Iterator<Item = anyhow::Result<(i64, Message)>> {
        // Turns are counted in microseconds: rounded to milliseconds, a long loop would drift.
        let micros = i64::try_from(self.index.duration().as_micros()).unwrap_or(i64::MAX);
        let base = micros.saturating_mul(turn) + self.lead * 1000;
        mp4::Reader::new(self.index.merge(self.published()), &self.source).map(move |read| {
            let mut read = read?;
            let timescale = self.index.tracks[read.track].track.timescale;
            read.sample.dts += live::rescale(base, 1_000_000, timescale);
            let at = live::rescale(read.sample.dts, timescale, 1000);
            let packetizer = self.packetizers[read.track].as_ref().context("a track left out")?;
            Ok((at, packetizer.sample(&read.sample)?))
        })
    }
}

/// Read twice: to know its length, and tag by tag while it is sent.
struct Flv {
    file: File,
    /// Time of the earliest audio or video tag, in milliseconds.
    first: i64,
    /// Milliseconds from there to where the file would go on.
    turn: i64,
}

impl Flv {
    fn open(file: File) -> anyhow::Result<Self> {
        let mut span: Option<(i64, i64)> = None;
        let (mut pictures, mut sounds) = (0, 0);
        for read in Tags::of(&file) {
            let (time, tag) = read?;
            match tag.kind {
                TagKind::Video => pictures += 1,
                TagKind::Audio => sounds += 1,
                TagKind::Script => {}
            }
            if let Some(time) = time {
                let (first, last) = span.unwrap_or((time, time));
                span = Some((first.min(time), last.max(time)));
            }
        }
        let Some((first, last)) = span else { bail!("no audio or video in the file") };
        // The last tag lasts as long as tags of its kind do on average.
        let frames = if pictures > 0 { pictures } else { sounds };
        let frame: i64 = (last - first) / frames.max(1);
        Ok(Self { file, first, turn: last - first + frame.clamp(1, 1000) })
    }

    fn messages(&self, turn: i64) -> impl Iterator<Item = anyhow::Result<(i64, Message)>> {
        Tags::of(&self.file).map(move |read| {
            let (time, tag) = read?;
            let at = time.map_or(0, |time| time - self.first) + turn * self.turn;
            Ok((at, Message::new(tag.kind, at, &[&tag.payload])?))
        })
    }
}

/// A file's tags in its order, those of audio and video with their times in milliseconds.
struct Tags<'a> {
    file: &'a File,
    /// Where to read on; `None` at the end.
    at: Option<u64>,
    reader: media::flv::Reader,
    /// A recording of a long stream may wrap on the way.
    clock: Unwrapper,
    buffer: Box<[u8]>,
}

impl<'a> Tags<'a> {
    fn of(file: &'a File) -> Self {
        Self {
            file,
            at: Some(0),
            reader: media::flv::Reader::new(),
            clock: Unwrapper::new(32),
            buffer: vec![0; 1 << 16].into(),
        }
    }

    fn read(&mut self) -> anyhow::Result<Option<(Option<i64>, media::flv::Tag)>> {
        loop {
            if let Some(tag) = self.reader.poll_tag()? {
                let time = match tag.kind {
                    TagKind::Script => None,
                    _ => Some(self.clock.unwrap(u64::from(tag.timestamp))),
                };
                return Ok(Some((time, tag)));
            }
            let Some(at) = self.at else { return Ok(None) };
            let size = self.file.read_at(&mut self.buffer, at)?;
            self.reader.handle_bytes(&self.buffer[..size]);
            self.at = (size > 0).then_some(at + size as u64);
            if size == 0 {
                self.reader.finish()?;
            }
        }
    }
}

impl Iterator for Tags<'_> {
    type Item = anyhow::Result<(Option<i64>, media::flv::Tag)>;

    fn next(&mut self) -> Option<Self::Item> {
        let read = self.read().transpose();
        if matches!(read, Some(Err(_))) {
            self.at = None;
        }
        read
    }
}
