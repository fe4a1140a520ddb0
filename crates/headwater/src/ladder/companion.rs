//! Companions: what viewers by WebRTC need of a stream that they cannot take as it is.
//!
//! A companion is one ffmpeg beside a stream. It makes Opus of AAC, and H.264 without B-frames of H.264
//! that has them. All viewers of the stream share it. It starts when the first of them has connected, and
//! ends some time after the last. Its tracks are in no list: only who holds a [`Watching`] knows them.
//!
//! ```text
//!  taps ─▶ matroska ─ pipe ─▶ ffmpeg ─┬ pipe ─▶ Ogg ─▶ Audio ───┬▶ live::Unlisted
//!    └─────── frames: exact times     └ pipe ─▶ FLV ─▶ Output ──┘
//! ```

use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::net::LogLimit;
use live::tap::{FromKeyframe, Tapped};
use live::{SegmentId, Stream, Track, Unlisted};
use media::codec::opus;
use media::{Codec, Kind, Sample, ogg};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::process::ChildStdin;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::command::{self, Video};
use super::log::{Log, Severity};
use super::matroska;
use super::output::{Made, Output};
use super::process::{self, BACK_OFF, End, Failures, Process};
use super::slots::{Applicant, Slot, Slots};
use super::source::{self, Frames};
use crate::Origin;

/// How long a companion waits for another viewer when the last has left.
const LINGERS: Duration = Duration::from_secs(10);

/// Samples of Opus in a second, by which its times count.
const OPUS_RATE: u32 = 48_000;

/// Packets of audio that are at most this far apart, in samples, follow each other: 10 ms.
const APART: i64 = 480;

/// The least that H.264 may have, in bits a second. The bitrate of a stream that has just begun may be
/// that of black frames.
const LEAST_BITRATE: u64 = 1_000_000;

/// Most bytes of one read.
const READ: usize = 64 << 10;

/// The companions of all streams.
#[derive(Debug)]
pub struct Companions {
    origin: Arc<Origin>,
    slots: Arc<Slots>,
    /// By the stream's name. One whose tracks have changed is no longer here. It runs on beside the new one
    /// until its viewers have left.
    running: Mutex<HashMap<String, Arc<Companion>>>,
    told: Mutex<LogLimit>,
}

/// Tracks of a stream that viewers cannot take.
#[derive(Debug)]
pub struct Sources {
    /// AAC that the companion converts to Opus.
    pub audio: Option<Arc<Track>>,
    /// H.264 with B-frames that the companion converts to H.264 without B-frames.
    pub video: Option<Arc<Track>>,
}

/// What keeps a companion running, and has its tracks. Each viewer has one.
#[derive(Debug)]
pub struct Watching(Arc<Companion>);

/// One companion.
#[derive(Debug)]
struct Companion {
    origin: Arc<Origin>,
    stream: Arc<Stream>,
    sources: Sources,
    audio: Option<Unlisted>,
    video: Option<Unlisted>,
    frames: Mutex<Frames>,
    viewers: watch::Sender<usize>,
    /// Whether a viewer has connected. Before that there is nobody to make anything for: anybody can
    /// ask for a session.
    is_wanted: watch::Sender<bool>,
    log: Arc<Log>,
}

impl Companions {
    /// There are none at first. They share these slots with the ladders.
    pub fn new(origin: Arc<Origin>, slots: Arc<Slots>) -> Arc<Self> {
        let told = Mutex::new(LogLimit::rare());
        Arc::new(Self { origin, slots, running: Mutex::default(), told })
    }

    /// The companion that makes what is needed of these sources of a stream. Its place is taken now, and
    /// ffmpeg starts by [`Watching::begin`]. `None` if it cannot be: the log says why. Call this on a runtime.
    pub fn watch(self: &Arc<Self>, stream: &Arc<Stream>, sources: Sources) -> Option<Watching> {
        match self.try_watch(stream, sources) {
            Ok(watching) => Some(watching),
            Err(why) => {
                let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
                if told.take(std::time::Instant::now()).is_some() {
                    let stream = stream.name();
                    tracing::warn!(stream, "companion: nothing is made for WebRTC viewers: {why}");
                }
                None
            }
        }
    }

    fn try_watch(
        self: &Arc<Self>,
        stream: &Arc<Stream>,
        sources: Sources,
    ) -> Result<Watching, String> {
        let config = &self.origin.config;
        if !config.webrtc.transcode {
            return Err("webrtc.transcode = false".to_owned());
        }
        let mut running = self.running();
        if let Some(known) = running.get(stream.name())
            && Arc::ptr_eq(&known.stream, stream)
            && known.sources.same_as(&sources)
        {
            return Ok(Watching::new(known));
        }
        if config.ladder.program().is_none() {
            let path = config.ladder.ffmpeg.display();
            return Err(format!("there is no program {path} (ladder.ffmpeg)"));
        }
        let applicant = Applicant::new(&config.ladder, stream.name(), &stream.state());
        let slot = self.slots.take_now(applicant);
        let slot = slot.map_err(|option| format!("no more processes by ladder.{option}"))?;
        let companion = Companion::new(Arc::clone(&self.origin), Arc::clone(stream), sources);
        let companion = Arc::new(companion.map_err(|error| error.to_string())?);
        let watching = Watching::new(&companion);
        running.insert(stream.name().to_owned(), Arc::clone(&companion));
        drop(running);
        tokio::spawn(Arc::clone(self).keep(companion, slot));
        Ok(watching)
    }

    fn running(&self) -> MutexGuard<'_, HashMap<String, Arc<Companion>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a companion until its stream is over, or until nobody has watched for a while.
    async fn keep(self: Arc<Self>, companion: Arc<Companion>, slot: Slot) {
        loop {
            let is_over = tokio::select! {
                () = companion.run() => true,
                // ffmpeg is killed with its handle.
                () = companion.is_idle() => false,
            };
            let mut running = self.running();
            // A viewer may have come since.
            if is_over || *companion.viewers.borrow() == 0 {
                running.retain(|_, known| !Arc::ptr_eq(known, &companion));
                break;
            }
        }
        for track in [&companion.audio, &companion.video].into_iter().flatten() {
            track.end();
        }
        companion.log.say(Severity::Info, "it has ended");
        drop(slot);
    }
}

impl Sources {
    /// Whether these are the same tracks.
    fn same_as(&self, other: &Self) -> bool {
        let same = |one: &Option<Arc<Track>>, other: &Option<Arc<Track>>| {
            one.as_ref().map(Arc::as_ptr) == other.as_ref().map(Arc::as_ptr)
        };
        same(&self.audio, &other.audio) && same(&self.video, &other.video)
    }
}

impl Watching {
    fn new(companion: &Arc<Companion>) -> Self {
        companion.viewers.send_modify(|viewers| *viewers += 1);
        Self(Arc::clone(companion))
    }

    /// Says that the viewer has connected. ffmpeg starts with the first.
    pub fn begin(&self) {
        self.0.is_wanted.send_replace(true);
    }

    /// The Opus that it makes, if any.
    pub fn audio(&self) -> Option<&Arc<Track>> {
        self.0.audio.as_ref().map(Unlisted::track)
    }

    /// The H.264 that it makes, if any.
    pub fn video(&self) -> Option<&Arc<Track>> {
        self.0.video.as_ref().map(Unlisted::track)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.viewers.send_modify(|viewers| *viewers -= 1);
    }
}

impl Companion {
    fn new(
        origin: Arc<Origin>,
        stream: Arc<Stream>,
        sources: Sources,
    ) -> Result<Self, live::Refused> {
        let audio = sources.audio.as_ref().map(|_| Unlisted::new(opus()));
        // Its own codec is known when ffmpeg has begun.
        let video = |source: &Arc<Track>| Unlisted::new(source.header().track.clone());
        let video = sources.video.as_ref().map(video);
        Ok(Self {
            origin,
            audio: audio.transpose()?,
            video: video.transpose()?,
            frames: Mutex::default(),
            viewers: watch::Sender::default(),
            is_wanted: watch::Sender::default(),
            log: Arc::new(Log::new("companion", stream.name())),
            stream,
            sources,
        })
    }

    /// Waits until nobody has watched for [`LINGERS`].
    async fn is_idle(&self) {
        let mut viewers = self.viewers.subscribe();
        loop {
            // The sender is here, so waiting does not fail.
            let _ = viewers.wait_for(|&viewers| viewers == 0).await;
            if timeout(LINGERS, viewers.wait_for(|&viewers| viewers > 0)).await.is_err() {
                return;
            }
        }
    }

    /// Runs one ffmpeg after the other, until the stream is over.
    async fn run(self: &Arc<Self>) {
        // The sender is here, so waiting does not fail.
        let _ = self.is_wanted.subscribe().wait_for(|is_wanted| *is_wanted).await;
        let mut failures = Failures::default();
        loop {
            let began = Instant::now();
            let failed = match self.make().await {
                End::Over | End::NothingLeft => return,
                End::Changed => {
                    // A publisher may change its configuration with each frame.
                    sleep_until(began + BACK_OFF.0).await;
                    continue;
                }
                End::Failed(why) => why,
            };
            self.origin.ladders.failed.fetch_add(1, Ordering::Relaxed);
            let wait = failures.add(began.elapsed());
            self.log.say(Severity::Error, &format!("{failed}; starting it again in {wait:?}"));
            sleep(wait).await;
        }
    }

    /// Runs one ffmpeg from its start to its end.
    async fn make(self: &Arc<Self>) -> End {
        let Sources { audio, video } = &self.sources;
        // All that comes from now on waits for ffmpeg.
        let inputs: Vec<_> = [audio, video].into_iter().flatten().map(Input::new).collect();
        let tracks: Vec<_> = inputs.iter().map(|input| (&input.codec, input.frame)).collect();
        let Some(header) = matroska::header(&tracks) else {
            return End::Failed("its codec cannot be decoded".to_owned());
        };
        let config = &self.origin.config.ladder;
        let made = video.as_deref().map(made);
        let arguments = |pipes: &[RawFd]| command::companion(config, audio.is_some(), made, pipes);
        let process = Process::start(config, tracks.len(), arguments, &self.log);
        let Process { child, group, input, outputs } = match process {
            Ok(process) => process,
            Err(end) => return end,
        };
        let what = match (audio, video) {
            (Some(_), None) => "audio",
            (None, _) => "video without B-frames",
            (Some(_), Some(_)) => "audio, and video without B-frames",
        };
        let pid = child.id().unwrap_or_default();
        self.log.say(Severity::Info, &format!("ffmpeg {pid} makes {what} for WebRTC viewers"));
        let (mut reading, mut outputs) = (JoinSet::new(), outputs.into_iter());
        if audio.is_some()
            && let Some(output) = outputs.next()
        {
            let mut audio = Audio::default();
            reading.spawn(
                Arc::clone(self).read(output, move |to, bytes| to.take_audio(&mut audio, bytes)),
            );
        }
        if let Some(output) = outputs.next() {
            let mut video = Output::new();
            reading.spawn(
                Arc::clone(self).read(output, move |to, bytes| to.take_video(&mut video, bytes)),
            );
        }
        let feed = self.feed(inputs, header, input);
        process::attend(&self.origin, (child, group), feed, async {
            while reading.join_next().await.is_some() {}
        })
        .await
    }

    /// Feeds ffmpeg until a source ends or changes, or it takes no more.
    async fn feed(&self, mut inputs: Vec<Input>, header: Vec<u8>, mut to: ChildStdin) -> End {
        let mut bytes = header;
        // ffmpeg learns of each track by the packets that come first, and one of video says it all.
        let mut awaits_video = inputs.iter().any(|input| input.kind == Kind::Video);
        loop {
            let (number, input, tapped) = next(&mut inputs).await;
            match tapped {
                Tapped::Unit(unit) if unit.header.track.codec != input.codec => {
                    return End::Changed;
                }
                Tapped::Unit(unit) => {
                    let sample = &unit.sample;
                    input.waits &= !sample.sync;
                    awaits_video &= input.waits || input.kind != Kind::Video;
                    if input.waits || awaits_video {
                        continue;
                    }
                    let timescale = unit.header.track.timescale;
                    let at = if input.kind == Kind::Video {
                        // Nothing is cut here, so the segment's number does not matter.
                        let place = SegmentId { period: unit.period, msn: 0 };
                        let mut frames = self.frames.lock().unwrap_or_else(PoisonError::into_inner);
                        frames.add(sample.pts(), timescale, place)
                    } else {
                        source::millis(sample.pts(), timescale).unsigned_abs()
                    };
                    matroska::frame(&mut bytes, number, at, sample.sync, &sample.data);
                }
                Tapped::Lost(_) => {
                    input.waits = true;
                    self.origin.ladders.skipped.fetch_add(1, Ordering::Relaxed);
                    let what = "it is not made fast enough; skipped to the next keyframe";
                    self.log.say(Severity::Warning, what);
                }
                Tapped::Over => return End::Over,
            }
            if let Err(why) = process::give(&mut to, &bytes).await {
                return End::Failed(why);
            }
            bytes.clear();
        }
    }

    /// Reads one of ffmpeg's outputs until it is closed, or is wrong. ffmpeg ends then.
    async fn read(
        self: Arc<Self>,
        mut output: pipe::Receiver,
        mut take: impl FnMut(&Self, &[u8]) -> Result<(), String>,
    ) {
        let mut buffer = vec![0; READ];
        let why = loop {
            match output.read(&mut buffer).await {
                Ok(0) => return,
                Ok(size) => match take(&self, &buffer[..size]) {
                    Ok(()) => {}
                    Err(why) => break why,
                },
                Err(error) => break error.to_string(),
            }
        };
        self.log.say(Severity::Error, &format!("what ffmpeg writes cannot be taken: {why}"));
    }

    /// Takes audio that ffmpeg wrote.
    fn take_audio(&self, audio: &mut Audio, bytes: &[u8]) -> Result<(), String> {
        audio.reader.handle_bytes(bytes);
        let Some(to) = &self.audio else { return Ok(()) };
        while let Some(packet) = audio.reader.poll_packet().map_err(|error| error.to_string())? {
            if let Some(sample) = audio.sample(packet).map_err(|error| error.to_string())? {
                // Each packet can be decoded without those before it, so periods do not matter.
                to.hand(sample, 0, self.origin.now());
            }
        }
        Ok(())
    }

    /// Takes video that ffmpeg wrote.
    fn take_video(&self, output: &mut Output, bytes: &[u8]) -> Result<(), String> {
        output.handle_bytes(bytes);
        let Some(to) = &self.video else { return Ok(()) };
        while let Some(made) = output.poll(&self.frames).map_err(|error| error.to_string())? {
            match made {
                Made::Codec(codec) => to.configure(codec).map_err(|error| error.to_string())?,
                Made::Sample(sample, frame) => {
                    let sample = Sample { dts: frame.pts, cts: 0, ..sample };
                    to.hand(sample, frame.place.period, self.origin.now());
                }
                Made::Problem(problem) => self.log.say(Severity::Warning, &problem),
            }
        }
        Ok(())
    }
}

/// A track that ffmpeg gets.
struct Input {
    tap: FromKeyframe,
    kind: Kind,
    codec: Codec,
    /// Duration of a frame of video in nanoseconds, if known.
    frame: Option<u64>,
    /// Whether frames are left out until decoding can start.
    waits: bool,
}

impl Input {
    fn new(track: &Arc<Track>) -> Self {
        let is_video = track.kind == Kind::Video;
        let rate = track.frame_rate().filter(|_| is_video);
        let frame = rate.map(|(n, d)| u64::from(d) * 1_000_000_000 / u64::from(n.max(1)));
        let codec = track.header().track.codec.clone();
        Self { tap: track.tap_from_keyframe(), kind: track.kind, codec, frame, waits: true }
    }
}

/// Waits for the next unit of any input. Returns the input, and its number in Matroska.
async fn next(inputs: &mut [Input]) -> (u8, &mut Input, Tapped) {
    match inputs {
        [one] => {
            let tapped = one.tap.next().await;
            (1, one, tapped)
        }
        [one, two] => tokio::select! {
            tapped = one.tap.next() => (1, one, tapped),
            tapped = two.tap.next() => (2, two, tapped),
        },
        _ => std::future::pending().await,
    }
}

/// How the video of a source is made.
fn made(source: &Track) -> Video {
    let end = source.window().newest().map_or(0, |newest| newest.presented_end());
    let bits = source.bitrate().map_or(0, |(_, densest)| densest);
    Video {
        // Viewers begin at the live edge.
        from: source::millis(end, source.header().track.timescale),
        most: bits.max(LEAST_BITRATE),
    }
}

/// The Opus of a companion: 48 kHz and two channels.
fn opus() -> media::Track {
    let config = opus::Config {
        record: Bytes::from_static(&[0, 2, 0, 120, 0, 0, 0xbb, 0x80, 0, 0, 0]),
        channels: 2,
        pre_skip: 120,
        input_sample_rate: OPUS_RATE,
    };
    media::Track { id: 1, timescale: OPUS_RATE, codec: Codec::Opus(config), language: *b"und" }
}

/// Reads the audio that ffmpeg writes.
#[derive(Debug, Default)]
struct Audio {
    reader: ogg::Reader,
    /// Number of packets read.
    packets: u64,
    /// Samples that the encoder put before the first. Positions in Ogg count them (RFC 7845 4).
    pre_skip: i64,
    /// Where the last packet ends.
    end: i64,
}

impl Audio {
    /// The sample in a packet. The first two packets are headers (RFC 7845 3).
    fn sample(&mut self, packet: ogg::Packet) -> Result<Option<Sample>, media::Error> {
        self.packets += 1;
        if self.packets == 1 {
            self.pre_skip = opus::Config::from_opus_head(&packet.data)?.pre_skip.into();
        }
        let Some(duration) = opus::packet_duration(&packet.data).filter(|_| self.packets > 2)
        else {
            return Ok(None);
        };
        let follows = self.end.saturating_add(duration.into());
        let end = packet.end.map_or(follows, |end| end.saturating_sub(self.pre_skip));
        // Where the source's times run back, what has been heard is left out.
        if end < follows.saturating_sub(APART) {
            return Ok(None);
        }
        // Other packets follow the one before, unless there is a gap. The source has times in
        // milliseconds, and players hear a gap of a few samples.
        self.end = if end > follows.saturating_add(APART) { end } else { follows };
        let dts = self.end.saturating_sub(duration.into());
        Ok(Some(Sample { dts, cts: 0, duration, sync: true, data: packet.data }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audio_has_the_time_that_its_source_had() {
        let mut audio = Audio::default();
        let head = b"OpusHead\x01\x02\x78\x00\x80\xbb\x00\x00\x00\x00\x00";
        // A packet of 20 ms at 48 kHz is a byte that says so (RFC 6716 3.1), and more.
        let mut take = |data: &'static [u8], end| {
            let packet = ogg::Packet { data: data.into(), end };
            audio.sample(packet).unwrap().map(|sample| (sample.dts, sample.duration))
        };
        assert_eq!(take(head, Some(0)), None);
        assert_eq!(take(b"OpusTags", Some(0)), None);
        // ffmpeg writes pts + duration + pre-skip.
        assert_eq!(take(&[0xfc, 1], Some(480_000 + 960 + 120)), Some((480_000, 960)));
        assert_eq!(take(&[0xfc, 1], None), Some((480_960, 960)));
        // Times that are rounded leave no gap, but a real one stays.
        assert_eq!(take(&[0xfc, 1], Some(481_929 + 960 + 120)), Some((481_920, 960)));
        assert_eq!(take(&[0xfc, 1], Some(490_000 + 960 + 120)), Some((490_000, 960)));
        // Where times run back, packets are left out until they go on.
        assert_eq!(take(&[0xfc, 1], Some(490_000 + 960 + 120)), None);
        assert_eq!(take(&[0xfc, 1], Some(i64::MIN)), None);
        assert_eq!(take(&[0xfc, 1], Some(490_960 + 960 + 120)), Some((490_960, 960)));
    }
}
