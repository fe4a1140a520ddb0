//! The blocks of the titles that are being played. A cache of bounded size keeps them, and all players
//! share them.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SetOnce};
use tokio::task::{JoinSet, spawn_blocking};
use vod::{Title, Version};

use super::fetched;
use super::flv::{Block, Error, FlvTitle, Own, Position};

/// Most threads that make blocks at the same time. Other files need threads too.
const MAKERS: usize = 128;

/// The titles that are being played, and their blocks in memory.
#[derive(Debug)]
pub struct FlvTitles {
    playing: Mutex<HashMap<Version, Weak<FlvTitle>>>,
    shared: Arc<Shared>,
}

/// What the threads that make blocks share.
#[derive(Debug)]
struct Shared {
    blocks: Mutex<Blocks>,
    makers: Arc<Semaphore>,
}

type Key = (Version, Position);
/// A player's turn. Its task and its thread share it.
type Turn = Arc<Option<OwnedSemaphorePermit>>;
/// A block, or `None` after the title's end.
type Made = Option<Arc<Block>>;

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
    slot: Arc<Slot>,
    used: u64,
    /// Bytes that it takes: [`OVERHEAD`] only while it is being made.
    memory: usize,
}

/// The place of a block that is made once for all players.
#[derive(Debug)]
struct Slot {
    made: SetOnce<Made>,
    /// The only permit. The thread that makes the block holds it.
    maker: Arc<Semaphore>,
}

/// Memory of a block besides its bytes.
const OVERHEAD: usize = 384;

/// What one player asks for: one block at a time.
///
/// A thread that reads a file cannot be stopped. So the player's next block is made only after that
/// thread has ended, whatever the player asks for meanwhile.
#[derive(Debug)]
pub(crate) struct Requests {
    /// The only permit. The player's task holds it, and so does the thread that makes the block.
    turn: Arc<Semaphore>,
    /// The task that waits for the block, if one was asked for. A task always gets its turn. The
    /// connection itself may wait for its peer, and players that wait for the same block must not
    /// wait for that peer.
    task: JoinSet<Result<Made, Error>>,
}

impl Default for Requests {
    fn default() -> Self {
        Self { turn: Arc::new(Semaphore::new(1)), task: JoinSet::new() }
    }
}

impl Requests {
    /// Waits for the block at `place`; `None` after the title's end. Cancel safe: the next call goes
    /// on waiting for the same block. Call [`forget`](Self::forget) first to ask for another one.
    pub(crate) async fn block(
        &mut self,
        flv_titles: &FlvTitles,
        flv_title: &Arc<FlvTitle>,
        place: Position,
        own: Own,
    ) -> Result<Made, Error> {
        if self.task.is_empty() {
            if let Some(made) = flv_titles.shared.made(flv_title, place, own) {
                return Ok(made);
            }
            let (shared, turn) = (Arc::clone(&flv_titles.shared), Arc::clone(&self.turn));
            self.task.spawn(shared.block(Arc::clone(flv_title), place, own, turn));
        }
        match self.task.join_next().await {
            Some(Ok(made)) => made,
            Some(Err(died)) => Err(io::Error::other(died).into()),
            None => Ok(None),
        }
    }

    /// Stops waiting for a block.
    pub(crate) fn forget(&mut self) {
        // This ends the task.
        self.task = JoinSet::new();
    }
}

impl FlvTitles {
    /// Makes it without titles. Its blocks take at most `limit` bytes, not counting those being
    /// made.
    pub fn new(limit: usize) -> Self {
        let (kept, order) = (HashMap::new(), BTreeMap::new());
        let blocks = Mutex::new(Blocks { kept, order, now: 0, memory: 0, limit });
        let makers = Arc::new(Semaphore::new(MAKERS));
        Self { playing: Mutex::default(), shared: Arc::new(Shared { blocks, makers }) }
    }

    /// Memory that the blocks take, in bytes.
    pub fn memory(&self) -> usize {
        lock(&self.shared.blocks).memory
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
}

impl Shared {
    /// The block at `place`, if it was made and serves this player.
    fn made(&self, flv_title: &FlvTitle, place: Position, own: Own) -> Option<Made> {
        if own.base != 0 {
            return None;
        }
        let slot = lock(&self.blocks).slot((flv_title.version(), place));
        slot.made.get().filter(|made| own.takes(made)).cloned()
    }

    /// Waits for the player's turn, and then for the block at `place`.
    async fn block(
        self: Arc<Self>,
        flv_title: Arc<FlvTitle>,
        place: Position,
        own: Own,
        turn: Arc<Semaphore>,
    ) -> Result<Made, Error> {
        // None of the semaphores is ever closed.
        let turn = Arc::new(turn.acquire_owned().await.ok());
        if own.base == 0 {
            let made = self.join(&flv_title, place, &turn).await?;
            if own.takes(&made) {
                return Ok(made);
            }
        }
        self.make(&flv_title, place, own, &turn, |_| ()).await
    }

    /// Waits for the block at `place` that all players share. Makes it if nobody does.
    async fn join(
        self: &Arc<Self>,
        flv_title: &Arc<FlvTitle>,
        place: Position,
        turn: &Turn,
    ) -> Result<Made, Error> {
        let key = (flv_title.version(), place);
        let slot = lock(&self.blocks).slot(key);
        let maker = tokio::select! {
            biased;
            made = slot.made.wait() => return Ok(made.clone()),
            maker = Arc::clone(&slot.maker).acquire_owned() => maker,
        };
        // Another thread may have ended just now.
        if let Some(made) = slot.made.get() {
            return Ok(made.clone());
        }
        let shared = Arc::clone(self);
        let keep = move |made: &Made| {
            let _maker = maker;
            // Only the maker sets it.
            let _ = slot.made.set(made.clone());
            lock(&shared.blocks).made(&key, &slot);
        };
        self.make(flv_title, place, Own::default(), turn, keep).await
    }

    /// Makes a block on a thread that may wait for a disk. If the caller stops waiting, the thread
    /// still makes the block and calls `keep` with it. It holds the turn until it ends.
    async fn make(
        &self,
        flv_title: &Arc<FlvTitle>,
        place: Position,
        own: Own,
        turn: &Turn,
        keep: impl FnOnce(&Made) + Send + 'static,
    ) -> Result<Made, Error> {
        fetched(&flv_title.pieces(place)).await?;
        let maker = Arc::clone(&self.makers).acquire_owned().await;
        let (flv_title, turn) = (Arc::clone(flv_title), Arc::clone(turn));
        let thread = spawn_blocking(move || {
            let _held = (maker, turn);
            let made = flv_title.block(place, own)?.map(Arc::new);
            keep(&made);
            Ok(made)
        });
        thread.await.map_err(io::Error::other)?
    }
}

impl Blocks {
    /// The place where a block is or will be kept.
    fn slot(&mut self, key: Key) -> Arc<Slot> {
        self.now += 1;
        let kept = self.kept.entry(key).or_insert_with(|| {
            self.memory += OVERHEAD;
            Kept { slot: Arc::new(Slot::new()), used: self.now, memory: OVERHEAD }
        });
        self.order.remove(&kept.used);
        kept.used = self.now;
        self.order.insert(self.now, key);
        let slot = Arc::clone(&kept.slot);
        self.make_room();
        slot
    }

    /// Counts a block that was made.
    fn made(&mut self, key: &Key, slot: &Arc<Slot>) {
        if let Some(kept) = self.kept.get_mut(key)
            && Arc::ptr_eq(&kept.slot, slot)
            && kept.memory == OVERHEAD
        {
            let made = slot.made.get().and_then(Option::as_ref);
            let bytes = made.map_or(0, |block| block.bytes.len());
            kept.memory += bytes;
            self.memory += bytes;
        }
        self.make_room();
    }

    /// Drops the blocks that were unused for the longest time. Places of blocks that were never made
    /// take memory, too.
    fn make_room(&mut self) {
        while self.memory > self.limit
            && let Some((_, oldest)) = self.order.pop_first()
        {
            if let Some(gone) = self.kept.remove(&oldest) {
                self.memory -= gone.memory;
            }
        }
    }
}

impl Slot {
    fn new() -> Self {
        Self { made: SetOnce::new(), maker: Arc::new(Semaphore::new(1)) }
    }
}

impl Own {
    /// Whether a player takes this shared block whole.
    fn takes(self, made: &Made) -> bool {
        made.as_ref().is_none_or(|block| self.until.is_none_or(|until| block.end <= until))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use vod::{Library, Settings};

    use super::*;
    use crate::titles::flv::BLOCK;

    fn title(name: &str) -> Arc<Title> {
        Library::new(vod::Root::new(testkit::media_dir()), Settings::default()).title(name).unwrap()
    }

    /// Every block from the start on, as a player gets them.
    async fn all(flv_titles: &FlvTitles, flv_title: &Arc<FlvTitle>, own: Own) -> Vec<Arc<Block>> {
        let (mut blocks, mut next) = (Vec::new(), flv_title.seek(0.0));
        let mut requests = Requests::default();
        while let Some(place) = next {
            let block = requests.block(flv_titles, flv_title, place, own).await.unwrap().unwrap();
            next = block.next;
            blocks.push(block);
            assert!(flv_titles.memory() <= lock(&flv_titles.shared.blocks).limit);
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
        assert!(small.memory() > 0 && lock(&small.shared.blocks).kept.len() < one.len() / 5);
    }

    #[tokio::test]
    async fn places_of_blocks_that_are_not_made_are_within_the_limit() {
        let flv_titles = FlvTitles::new(10 * OVERHEAD);
        let flv_title = flv_titles.of(title("mp4/two-minutes.mp4")).unwrap();
        for at in 1..50 {
            let place = flv_title.seek(f64::from(at) * 2000.0).unwrap();
            assert!(flv_titles.shared.made(&flv_title, place, Own::default()).is_none());
            assert!(flv_titles.memory() <= 10 * OVERHEAD, "{at}");
        }
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
        let mut requests = Requests::default();
        let shifted = requests.block(&flv_titles, &flv_title, place, own).await.unwrap().unwrap();
        let plain =
            requests.block(&flv_titles, &flv_title, place, Own::default()).await.unwrap().unwrap();
        assert_eq!(shifted.bytes.len(), plain.bytes.len());
        let time =
            |block: &Block| u32::from_be_bytes([0, block.bytes[1], block.bytes[2], block.bytes[3]]);
        assert_eq!(i64::from(time(&plain)), place.time);
        assert_eq!(time(&shifted) + 1000, time(&plain));
    }
}
