//! The RTMP form of titles, made once for all players.
//!
//! A title's segments are cut into blocks of a quarter of a second, with the messages of all tracks
//! in the order in which every player gets them. A block is made when its first player comes to it,
//! on a thread that may wait for the disk. A cache of bounded size keeps it (`blocks`). The only memory
//! that a player itself holds is the block that it is being sent.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Piece;
use media::Kind;
use media::flv::{MAX_PAYLOAD, Message, Metadata, Packetizer};
use vod::{Sample, Title, Version};

use crate::wire;

/// Longest block in milliseconds. A paced player may be ahead of its plan by this much.
pub(super) const BLOCK: i64 = 250;

/// A block with this many bytes ends, however short it is.
const LARGE: usize = 1 << 20;

/// Why a title cannot be played, or not to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// No track has a codec that RTMP carries.
    #[error("no track that RTMP can carry{}", .0.as_ref().map(|e| format!(": {e}")).unwrap_or_default())]
    Unsupported(Option<media::Error>),
    /// A sample does not fit into RTMP.
    #[error("{0}")]
    Media(#[from] media::Error),
    /// The file cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The file has changed.
    #[error("the file has changed")]
    Changed,
}

/// A place in a title where a block begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Position {
    segment: u32,
    /// Index into the segment's samples.
    sample: u32,
    /// Decode time in milliseconds.
    pub(crate) time: i64,
}

/// How one player's blocks differ from the shared ones, if they do.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Own {
    /// Decode time in milliseconds at which its blocks end.
    pub(crate) until: Option<i64>,
    /// Milliseconds subtracted from its timestamps.
    pub(crate) base: i64,
}

/// The messages of all tracks in a short time.
#[derive(Debug)]
pub(crate) struct Block {
    /// The bytes that every player gets.
    pub(crate) bytes: Bytes,
    /// Decode time in milliseconds at which it ends.
    pub(crate) end: i64,
    /// Where the next block begins; `None` at the title's end.
    pub(crate) next: Option<Position>,
}

/// A title in RTMP form: one video and one audio track, as far as they exist.
#[derive(Debug)]
pub(crate) struct FlvTitle {
    title: Arc<Title>,
    /// Indexes into the title's tracks. Blocks are cut by the first track.
    tracks: Vec<usize>,
    /// In the same order as `tracks`.
    packetizers: Vec<Packetizer>,
    metadata: Bytes,
}

impl FlvTitle {
    pub(super) fn new(title: Arc<Title>) -> Result<Self, Error> {
        let mut refused = None;
        let (mut tracks, mut packetizers) = (Vec::new(), Vec::new());
        let chosen = title.chosen();
        for kind in [Kind::Video, Kind::Audio] {
            let of_kind = |at: &usize| title.tracks[*at].media.kind() == kind;
            // The tracks that any player would get go first.
            let others = (0..title.tracks.len()).filter(|at| !chosen.contains(at));
            for at in chosen.iter().copied().chain(others).filter(of_kind) {
                let track = &title.tracks[at].media;
                match Packetizer::new(0, &track.codec, track.timescale) {
                    Ok(packetizer) => {
                        tracks.push(at);
                        packetizers.push(packetizer);
                        break;
                    }
                    Err(error) => refused = Some(error),
                }
            }
        }
        if tracks.is_empty() {
            return Err(Error::Unsupported(refused));
        }
        let metadata = wire::chunks(&Message::metadata(0, &describe(&title, &tracks))?);
        Ok(Self { title, tracks, packetizers, metadata })
    }

    /// Version of the title.
    pub(super) fn version(&self) -> Version {
        self.title.version
    }

    /// Path of the title below the VOD root.
    pub(crate) fn path(&self) -> &str {
        &self.title.path
    }

    /// Duration of the title.
    pub(crate) fn duration(&self) -> Duration {
        self.title.duration
    }

    /// The messages that a decoder needs before the block at `place`.
    pub(crate) fn headers(&self, place: Position, own: Own) -> Result<Vec<Bytes>, Error> {
        let mut out = vec![self.metadata.clone()];
        for packetizer in &self.packetizers {
            out.push(wire::chunks(
                &packetizer.sequence_header(place.time.saturating_sub(own.base))?,
            ));
        }
        Ok(out)
    }

    /// The last keyframe at or before `milliseconds`, or the beginning. `None` if there are no
    /// media.
    pub(crate) fn seek(&self, milliseconds: f64) -> Option<Position> {
        if milliseconds <= 0.0 {
            return self.beginning();
        }
        // A player may name the time of a message. That time was rounded down, but the player means
        // this message.
        let seconds = (milliseconds + 1.0) / 1000.0;
        let time = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        let (&leading, _) = self.tracks.split_first()?;
        let track = self.title.tracks.get(leading)?;
        let sync = track.sync_at(time);
        // A segment begins with a keyframe, so the segment with the time also contains the
        // keyframe. If timestamps are irregular, the keyframe is in an earlier segment.
        for segment in (0..=track.segment_at(time)).rev() {
            if let Some((at, sample)) = self.title.last_sample(&self.tracks, segment, sync) {
                return Some(self.place(segment, at, &sample));
            }
        }
        self.beginning()
    }

    fn beginning(&self) -> Option<Position> {
        // Every segment has samples.
        let first = self.title.first_sample(&self.tracks, 0)?;
        Some(self.place(0, 0, &first))
    }

    /// The place of sample `at` in a segment with these samples, or of the first sample after the
    /// segment.
    fn next(&self, mut segment: u32, mut at: usize, mut samples: Vec<Sample>) -> Option<Position> {
        loop {
            if let Some(sample) = samples.get(at) {
                return Some(self.place(segment, at, sample));
            }
            (segment, at) = (segment + 1, 0);
            samples = self.title.samples(&self.tracks, segment)?;
        }
    }

    fn place(&self, segment: u32, at: usize, sample: &Sample) -> Position {
        // A segment has no more samples than its file, and those fit into a u32.
        Position { segment, sample: at as u32, time: self.milliseconds(sample, sample.dts) }
    }

    fn milliseconds(&self, sample: &Sample, time: i64) -> i64 {
        let timescale = self.title.tracks.get(sample.track).map_or(1, |t| t.media.timescale);
        let scaled = i128::from(time) * 1000;
        // Rounds down, as the packetizer does.
        i64::try_from(scaled.div_euclid(timescale.max(1).into())).unwrap_or(i64::MAX)
    }

    fn units(&self, sample: &Sample, milliseconds: i64) -> i64 {
        let timescale = self.title.tracks.get(sample.track).map_or(1, |t| t.media.timescale);
        let scaled = i128::from(milliseconds) * i128::from(timescale);
        i64::try_from(scaled.div_euclid(1000)).unwrap_or(i64::MAX)
    }

    /// What blocks from `place` on to the end of its segment are read from, where it may have to
    /// be fetched.
    pub(super) fn pieces(&self, place: Position) -> Vec<Piece> {
        let is_copied = |at: &usize| self.title.tracks[*at].file().is_copied();
        if !self.tracks.iter().any(is_copied) {
            return Vec::new();
        }
        let samples = self.title.samples(&self.tracks, place.segment).unwrap_or_default();
        let rest = samples.get(place.sample as usize..).unwrap_or_default();
        let piece = |sample: &Sample| {
            let file = Arc::clone(self.title.tracks.get(sample.track)?.file());
            let range = sample.offset..sample.offset.saturating_add(sample.size.into());
            Some(Piece::File { file, range, version: None })
        };
        rest.iter().filter_map(piece).collect()
    }

    /// Reads the block at `place`. Blocks the thread.
    pub(super) fn block(&self, place: Position, own: Own) -> Result<Option<Block>, Error> {
        if !self.title.is_intact() {
            return Err(Error::Changed);
        }
        let Some(samples) = self.title.samples(&self.tracks, place.segment) else {
            return Ok(None);
        };
        let rest = samples.get(place.sample as usize..).unwrap_or_default();
        let group = |time: i64| time.div_euclid(BLOCK);
        let (mut count, mut size, mut end) = (0, 0, place.time);
        for sample in rest {
            let time = self.milliseconds(sample, sample.dts);
            let beyond = own.until.is_some_and(|until| time >= until);
            if count > 0 && (group(time) != group(place.time) || size > LARGE || beyond) {
                break;
            }
            if sample.size as usize > MAX_PAYLOAD {
                let (value, limit) = (sample.size.into(), MAX_PAYLOAD as u64);
                let what = "sample in RTMP".into();
                return Err(media::Error::Limit { what, at: sample.offset, value, limit }.into());
            }
            size += sample.size as usize;
            end = end.max(self.milliseconds(sample, sample.dts + i64::from(sample.duration)));
            count += 1;
        }
        let taken = rest.get(..count).unwrap_or_default();
        let read = self.title.read(taken)?;
        // All players of the title share the block, so it must not contain bytes written meanwhile.
        if !self.title.is_intact() {
            return Err(Error::Changed);
        }
        let mut bytes = BytesMut::with_capacity(size + count * 32);
        for (sample, mut read) in taken.iter().zip(read) {
            read.dts -= self.units(sample, own.base);
            let track = self.tracks.iter().position(|track| *track == sample.track);
            let Some(packetizer) = track.and_then(|at| self.packetizers.get(at)) else { continue };
            bytes.extend_from_slice(&wire::chunks(&packetizer.sample(&read)?));
        }
        let next = self.next(place.segment, place.sample as usize + count, samples);
        // The next block's start ends this one, whatever duration a sample claims.
        let end = next.map_or(end, |next| next.time.max(place.time));
        Ok(Some(Block { bytes: bytes.freeze(), end, next }))
    }
}

/// Makes `onMetaData` of a file.
fn describe(title: &Title, tracks: &[usize]) -> Metadata {
    let tracks = || tracks.iter().filter_map(|at| title.tracks.get(*at));
    let mut metadata = Metadata::describe(tracks().map(|track| &track.media.codec));
    metadata.duration = Some(title.duration.as_secs_f64());
    for track in tracks() {
        let rate = track.bandwidth.average as f64 / 1000.0;
        if track.media.kind() == Kind::Video {
            metadata.video_data_rate = Some(rate);
            let exact = |rate: vod::FrameRate| f64::from(rate.frames) / f64::from(rate.seconds);
            metadata.frame_rate = track.frame_rate.map(exact).or(metadata.frame_rate);
        } else {
            metadata.audio_data_rate = Some(rate);
        }
    }
    let version = tracks().next().and_then(|track| track.file().version().ok());
    metadata.file_size = version.map(|version| version.size() as f64);
    metadata
}
