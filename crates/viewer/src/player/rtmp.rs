use std::io::ErrorKind;
use std::time::Duration;

use media::flv::{Metadata, TagKind};
use protocol::rtmp::{
    Capabilities, ClientConfig, ClientEvent, ClientSession, PlayStart, Purpose, Url, message,
};

use crate::playback::{Stamps, Track};
use crate::skim::FlvTimes;
use crate::socket::{Socket, write_all};
use crate::tls::Within;
use crate::verify;
use crate::watchdog::Watchdog;
use crate::{Error, Kind, Viewer};

/// Plays a live stream, or a file from its start, until the server ends it.
pub(super) async fn play(viewer: &Viewer, url: &Url) -> Result<(), Error> {
    let within = url.tc_url.starts_with("rtmps:").then_some(Within::Rtmp);
    let socket = Box::pin(viewer.connect(&url.host, url.port, within)).await?;
    let mut config = ClientConfig::new(url, Purpose::Play(PlayStart::Any));
    config.measure_media = !viewer.verify;
    let announced = viewer.lane.options.announce_buffer.as_millis();
    config.buffer_length = u32::try_from(announced).unwrap_or(u32::MAX);
    // A request to reconnect would end playing here, so the player does not say that it can.
    config.capabilities = config.capabilities.without(Capabilities::RECONNECT);
    // The version string of players of 2008. Some servers look for it.
    config.flash_ver = "LNX 9,0,124,2".to_owned();
    let mut player = Player {
        viewer,
        socket,
        session: ClientSession::new(config, viewer.lane.nonce()),
        watchdog: Watchdog::new(viewer.lane.options.patience),
        times: FlvTimes::default(),
        verifier: viewer.verify.then(|| Box::new(verify::Flv::new(viewer.reference.clone()))),
        media_bytes: 0,
    };
    player.run().await.map_err(|error| error.at(format!("byte {}", player.session.position())))
}

struct Player<'a> {
    viewer: &'a Viewer,
    socket: Socket,
    session: ClientSession,
    watchdog: Watchdog,
    times: FlvTimes,
    verifier: Option<Box<verify::Flv>>,
    /// Bytes that have counted as media.
    media_bytes: u64,
}

impl Player<'_> {
    async fn run(&mut self) -> Result<(), Error> {
        loop {
            self.flush().await?;
            let readable = self.socket.readable();
            self.watchdog
                .guard("reading", Duration::ZERO, readable)
                .await?
                .map_err(|error| Error::io(&error, "reading"))?;
            if self.read()? {
                return Ok(());
            }
        }
    }

    async fn flush(&mut self) -> Result<(), Error> {
        while let Some(piece) = self.session.poll_output() {
            write_all(&mut self.socket, &mut self.watchdog, &piece, |sent| {
                self.viewer.count_sent(sent);
            })
            .await?;
        }
        Ok(())
    }

    /// Reads once and handles the bytes; returns whether the stream is over.
    fn read(&mut self) -> Result<bool, Error> {
        let lane = &self.viewer.lane;
        let mut scratch = lane.scratch();
        let size = match self.socket.try_read(&mut scratch) {
            Ok(0) => return Err(Error::new(Kind::Dropped, "closed by the server")),
            Ok(size) => size,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(Error::io(&error, "reading")),
        };
        let over = self.handle(scratch.get(..size).unwrap_or_default());
        self.count(size);
        over
    }

    /// Counts the bytes of a read, after they were handled.
    fn count(&mut self, size: usize) {
        let media = self.session.media_bytes() - self.media_bytes;
        // The session may learn that up to four bytes of an earlier read belong to media, not to a
        // chunk's header. They have counted as overhead, so as many bytes wait for the next read.
        let media = usize::try_from(media).unwrap_or(usize::MAX).min(size);
        if media > 0 {
            self.media_bytes += media as u64;
            self.viewer.count_media(media);
        }
        self.viewer.count_overhead(size - media);
    }

    fn handle(&mut self, mut input: &[u8]) -> Result<bool, Error> {
        loop {
            let taken = self.session.handle_input(input)?;
            input = input.get(taken..).unwrap_or_default();
            let mut any = false;
            while let Some(event) = self.session.poll_event() {
                any = true;
                if self.event(event)? {
                    return Ok(true);
                }
            }
            if !any && (input.is_empty() || taken == 0) {
                return Ok(false);
            }
        }
    }

    fn event(&mut self, event: ClientEvent) -> Result<bool, Error> {
        match event {
            ClientEvent::Measured(measured) => {
                let track =
                    if measured.kind == message::VIDEO { Track::Video } else { Track::Audio };
                let stamps = match track {
                    Track::Video => Stamps::of_one(self.session.measured_front()),
                    Track::Audio => None,
                };
                self.played(track, measured.start, measured.timestamp, stamps);
            }
            ClientEvent::Audio { timestamp, payload } => {
                self.tag(TagKind::Audio, timestamp, &payload)?;
            }
            ClientEvent::Video { timestamp, payload } => {
                self.tag(TagKind::Video, timestamp, &payload)?;
            }
            ClientEvent::Metadata { payload, .. } => {
                // Damaged metadata do not harm a player; it is enough that they came.
                if let Ok(Some(metadata)) = Metadata::parse(&payload) {
                    expect(self.viewer, &metadata);
                }
            }
            ClientEvent::Rejected { code, description } => {
                return Err(Error::new(Kind::Rejected, format!("{code} {description}")));
            }
            ClientEvent::Reconnect { .. } => {
                return Err(Error::new(Kind::Unsupported, "asked to connect elsewhere"));
            }
            ClientEvent::Ended { .. } => {
                let now = self.viewer.now();
                self.viewer.stats().playback.complete(now);
                return Ok(true);
            }
            ClientEvent::Ignored(error) if self.viewer.verify => return Err(error.into()),
            _ => {}
        }
        Ok(false)
    }

    fn played(&mut self, track: Track, start: [u8; 2], timestamp: u32, stamps: Option<Stamps>) {
        let Some((from, to)) = self.times.unit(track, start, timestamp) else { return };
        if let Some(stamps) = stamps {
            self.viewer.stats().playback.set_stamps(to, stamps);
        }
        self.viewer.media(self.viewer.now(), track, from, to);
    }

    fn tag(&mut self, kind: TagKind, timestamp: u32, payload: &bytes::Bytes) -> Result<(), Error> {
        // The messages of an aggregate come whole even if nothing is verified.
        let track = if kind == TagKind::Video { Track::Video } else { Track::Audio };
        let start = [0, 1].map(|at| payload.get(at).copied().unwrap_or_default());
        if let Some(verifier) = &mut self.verifier {
            let counts = &mut self.viewer.stats().verified;
            verifier.tag(kind, timestamp, payload, counts, &mut |_| {})?;
        }
        let stamps = if track == Track::Video { Stamps::of_one(payload) } else { None };
        self.played(track, start, timestamp, stamps);
        Ok(())
    }
}

/// Takes the tracks that a stream's metadata announce.
pub(super) fn expect(viewer: &Viewer, metadata: &Metadata) {
    let mut stats = viewer.stats();
    if metadata.video_codec.is_some_and(|codec| codec > 0.0) {
        stats.playback.expect(Track::Video);
    }
    if metadata.audio_codec.is_some_and(|codec| codec > 0.0) {
        stats.playback.expect(Track::Audio);
    }
}
