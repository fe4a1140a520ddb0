//! The RTMP form of titles, made once for all players.
//!
//! A title's segments are cut into blocks of a quarter of a second, with the messages of all tracks
//! in the order in which every player gets them. A block is made when its first player comes to it,
//! on a thread that may wait for the disk. A cache of bounded size keeps it. The only memory that a
//! player itself holds is the block that it is being sent.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Piece;
use media::Kind;
use media::flv::{MAX_PAYLOAD, Message, Metadata, Packetizer};
use tokio::sync::OnceCell;
use tokio::task::spawn_blocking;
use vod::{Sample, Title, Version};

use super::fetched;
use crate::wire;

/// Longest block in milliseconds. A paced player may be ahead of its plan by this much.
const BLOCK: i64 = 250;

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
    fn new(title: Arc<Title>) -> Result<Self, Error> {
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
            let samples = self.title.samples(&self.tracks, segment)?;
            let led = |sample: &Sample| sample.track == leading && sample.dts <= sync;
            if let Some(at) = samples.iter().rposition(led) {
                return Some(self.place(segment, at, samples.get(at)?));
            }
        }
        self.beginning()
    }

    fn beginning(&self) -> Option<Position> {
        self.next(0, 0, self.title.samples(&self.tracks, 0)?)
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
    fn pieces(&self, place: Position) -> Vec<Piece> {
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
    fn block(&self, place: Position, own: Own) -> Result<Option<Block>, Error> {
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

/// The titles that are being played, and their blocks in memory.
#[derive(Debug)]
pub struct FlvTitles {
    playing: Mutex<HashMap<Version, Weak<FlvTitle>>>,
    blocks: Mutex<Blocks>,
}

type Key = (Version, Position);
type Slot = Arc<OnceCell<Option<Arc<Block>>>>;

#[derive(Debug)]
struct Blocks {
    kept: HashMap<Key, Kept>,
    /// Keys by the time of their last use.
    order: BTreeMap<u64, Key>,
    /// Number of uses so far.
    now: u64,
    memory: usize,
    limit: usize,
}

#[derive(Debug)]
struct Kept {
    slot: Slot,
    used: u64,
    /// Bytes that it takes: [`OVERHEAD`] only while it is being made.
    memory: usize,
}

/// Memory of a block besides its bytes.
const OVERHEAD: usize = 256;

impl FlvTitles {
    /// Makes it without titles. Its blocks take at most `limit` bytes, not counting those being
    /// made.
    pub fn new(limit: usize) -> Self {
        let (kept, order) = (HashMap::new(), BTreeMap::new());
        let blocks = Blocks { kept, order, now: 0, memory: 0, limit };
        Self { playing: Mutex::default(), blocks: Mutex::new(blocks) }
    }

    /// Memory that the blocks take, in bytes.
    pub fn memory(&self) -> usize {
        lock(&self.blocks).memory
    }

    /// The RTMP form of a title. All its players share it.
    pub(crate) fn of(&self, title: Arc<Title>) -> Result<Arc<FlvTitle>, Error> {
        let mut playing = lock(&self.playing);
        if let Some(flv_title) = playing.get(&title.version).and_then(Weak::upgrade) {
            return Ok(flv_title);
        }
        playing.retain(|_, flv_title| flv_title.strong_count() > 0);
        let version = title.version;
        let flv_title = Arc::new(FlvTitle::new(title)?);
        playing.insert(version, Arc::downgrade(&flv_title));
        Ok(flv_title)
    }

    /// Waits for the block at `place`; `None` after the title's end. Cancel safe.
    pub(crate) async fn block(
        &self,
        flv_title: &Arc<FlvTitle>,
        place: Position,
        own: Own,
    ) -> Result<Option<Arc<Block>>, Error> {
        let make = async |own| {
            fetched(&flv_title.pieces(place)).await?;
            let flv_title = Arc::clone(flv_title);
            let made = spawn_blocking(move || flv_title.block(place, own)).await;
            Ok(made.map_err(io::Error::other)??.map(Arc::new))
        };
        if own.base != 0 {
            return make(own).await;
        }
        let key = (flv_title.title.version, place);
        let slot = lock(&self.blocks).slot(key);
        let block = match slot.get() {
            Some(block) => block.clone(),
            None => {
                let made = slot.get_or_try_init(|| make(Own::default())).await?.clone();
                lock(&self.blocks).made(&key, &slot);
                made
            }
        };
        match block {
            // The block is cut short for this player alone.
            Some(block) if own.until.is_some_and(|until| block.end > until) => make(own).await,
            block => Ok(block),
        }
    }
}

impl Blocks {
    /// The place where a block is or will be kept.
    fn slot(&mut self, key: Key) -> Slot {
        self.now += 1;
        let kept = self.kept.entry(key).or_insert_with(|| {
            self.memory += OVERHEAD;
            Kept { slot: Slot::default(), used: self.now, memory: OVERHEAD }
        });
        self.order.remove(&kept.used);
        kept.used = self.now;
        self.order.insert(self.now, key);
        Arc::clone(&kept.slot)
    }

    /// Counts a block that was made, and drops others to make room.
    fn made(&mut self, key: &Key, slot: &Slot) {
        if let Some(kept) = self.kept.get_mut(key)
            && Arc::ptr_eq(&kept.slot, slot)
            && kept.memory == OVERHEAD
        {
            let bytes = slot.get().and_then(Option::as_ref).map_or(0, |block| block.bytes.len());
            kept.memory += bytes;
            self.memory += bytes;
        }
        while self.memory > self.limit
            && let Some((_, oldest)) = self.order.pop_first()
        {
            if let Some(gone) = self.kept.remove(&oldest) {
                self.memory -= gone.memory;
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use vod::{Library, Settings};

    use super::*;

    fn title(name: &str) -> Arc<Title> {
        Library::new(vod::Root::new(testkit::media_dir()), Settings::default()).title(name).unwrap()
    }

    /// Every block from the start on, as a player gets them.
    async fn all(flv_titles: &FlvTitles, flv_title: &Arc<FlvTitle>, own: Own) -> Vec<Arc<Block>> {
        let (mut blocks, mut next) = (Vec::new(), flv_title.seek(0.0));
        while let Some(place) = next {
            let block = flv_titles.block(flv_title, place, own).await.unwrap().unwrap();
            next = block.next;
            blocks.push(block);
            assert!(flv_titles.memory() <= lock(&flv_titles.blocks).limit);
        }
        blocks
    }

    #[tokio::test]
    async fn blocks_are_made_once_and_kept_within_the_limit() {
        let title = title("mp4/surround.mp4");
        let flv_titles = FlvTitles::new(64 << 20);
        let flv_title = flv_titles.of(Arc::clone(&title)).unwrap();
        assert!(Arc::ptr_eq(&flv_title, &flv_titles.of(Arc::clone(&title)).unwrap()));
        let (one, other) = tokio::join!(
            all(&flv_titles, &flv_title, Own::default()),
            all(&flv_titles, &flv_title, Own::default())
        );
        assert_eq!(one.len(), other.len());
        assert!(one.iter().zip(&other).all(|(one, other)| Arc::ptr_eq(one, other)));
        // The blocks follow each other. None is longer than allowed, except where a single frame
        // is.
        for pair in one.windows(2) {
            assert_eq!(pair[0].next.map(|next| next.time), Some(pair[0].end));
        }
        assert!(one.len() > 30_000 / BLOCK as usize - 2, "{}", one.len());

        // With a tenth of the memory the bytes are the same; blocks are made again where needed.
        let bytes = |blocks: &[Arc<Block>]| -> Vec<u8> {
            blocks.iter().flat_map(|block| block.bytes.iter().copied()).collect()
        };
        let small = FlvTitles::new(bytes(&one).len() / 10);
        let flv_title = small.of(title).unwrap();
        for _ in 0..2 {
            assert!(bytes(&all(&small, &flv_title, Own::default()).await) == bytes(&one));
        }
        assert!(small.memory() > 0 && lock(&small.blocks).kept.len() < one.len() / 5);
    }

    #[tokio::test]
    async fn a_player_of_a_part_has_blocks_of_its_own() {
        let flv_titles = FlvTitles::new(64 << 20);
        let flv_title = flv_titles.of(title("mp4/film.mp4")).unwrap();
        let whole = all(&flv_titles, &flv_title, Own::default()).await;
        // A player that stops in the middle of a block: only that block is cut.
        let own = Own { until: Some(whole[3].end + 100), base: 0 };
        let part = all(&flv_titles, &flv_title, own).await;
        assert!((0..4).all(|at| Arc::ptr_eq(&whole[at], &part[at])));
        assert!(part[4].bytes.len() < whole[4].bytes.len());
        assert!(whole[4].bytes.starts_with(&part[4].bytes));
        // Timestamps are smaller by the base; everything else is the same.
        let own = Own { until: None, base: 1000 };
        let place = whole[9].next.unwrap();
        let shifted = flv_titles.block(&flv_title, place, own).await.unwrap().unwrap();
        let plain = flv_titles.block(&flv_title, place, Own::default()).await.unwrap().unwrap();
        assert_eq!(shifted.bytes.len(), plain.bytes.len());
        let time =
            |block: &Block| u32::from_be_bytes([0, block.bytes[1], block.bytes[2], block.bytes[3]]);
        assert_eq!(i64::from(time(&plain)), place.time);
        assert_eq!(time(&shifted) + 1000, time(&plain));
    }
}
