//! Keeps the event loop from waiting for a disk: the next bytes to send are read into the page
//! cache before they are sent.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use payload::{Hold, OpenFile};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::Instant;

use crate::cache;
use crate::counters::{Tally, count};
use crate::source::Source;

/// Bytes that are read in at a time.
const WINDOW: u64 = 512 << 10;

/// Bytes that are checked at a time. The kernel tells in one call whether all of them are in memory,
/// and then as much can be sent in one call.
const LOOK: u64 = 4 << 20;

/// A client that asks for no more than this may only look what a file is.
const PROBE: u64 = 16 << 10;

/// How long pages are assumed to stay in memory. For a slower viewer they are checked again.
const FRESH: Duration = Duration::from_secs(1);

/// Which parts of a response's files are in the page cache, or are being read into it.
///
/// Where a window of a file had to be read in, the next window is read in while the first is sent.
/// So a viewer of a cold file waits only once.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    current: Option<Window>,
    next: Option<Window>,
}

#[derive(Debug)]
struct Window {
    file: Arc<OpenFile>,
    range: Range<u64>,
    /// When the window was last known to be in memory.
    at: Instant,
    reading: Option<JoinHandle<io::Result<Hold>>>,
    /// Keeps the bytes on this machine once they are read.
    hold: Option<Hold>,
}

impl Window {
    /// The first window of a range: a long one that is in memory, or else a short one, which is read
    /// in unless it is in memory.
    fn new(source: &Source, all: &Range<u64>, tally: &Tally) -> Self {
        let first = |length| all.start..all.end.min(all.start.saturating_add(length));
        let (long, short) = (first(LOOK), first(WINDOW));
        // A viewer must not keep much of a cache of objects from being replaced.
        let window = match short == long || source.file.is_copied() {
            true => None,
            false => Self::in_memory(source, long),
        };
        let window = window.or_else(|| Self::in_memory(source, short.clone()));
        let window = window.unwrap_or_else(|| {
            count(&tally.cold_reads, 1);
            let file = &source.file;
            let reading = Some(read_in(file, short.clone(), file.hold(&short)));
            Self { file: Arc::clone(file), range: short, at: Instant::now(), reading, hold: None }
        });
        if window.range.end - window.range.start > PROBE {
            window.file.read_ahead(window.range.end);
        }
        window
    }

    /// A window that can be sent without waiting; `None` if the range is not in memory.
    fn in_memory(source: &Source, range: Range<u64>) -> Option<Self> {
        let hold = Some(source.file.hold(&range)?);
        let at = HOT.with_borrow_mut(|hot| hot.holds(source, &range))?;
        Some(Self { file: Arc::clone(&source.file), range, at, reading: None, hold })
    }

    fn covers(&self, file: &Arc<OpenFile>, offset: u64) -> bool {
        Arc::ptr_eq(&self.file, file) && self.range.contains(&offset)
    }
}

impl Ahead {
    /// Ready when the byte at `range.start` can be sent without waiting. Returns the offset up to
    /// which bytes are in memory, which may be beyond the range. `range` is what will be sent of
    /// the file, as far as known, and not empty.
    pub(crate) fn poll(
        &mut self,
        source: &Source,
        range: &Range<u64>,
        tally: &Tally,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<u64>> {
        let file = &source.file;
        let usable = |window: &mut Window| {
            window.covers(file, range.start)
                && (window.reading.is_some() || window.at.elapsed() < FRESH)
        };
        let known = self.current.take_if(usable).or_else(|| self.next.take_if(usable));
        let current = known.unwrap_or_else(|| Window::new(source, range, tally));
        let current = self.current.insert(current);
        if let Some(reading) = &mut current.reading {
            let read = ready!(Pin::new(reading).poll(cx));
            current.reading = None;
            current.at = Instant::now();
            match read.map_err(io::Error::other).flatten() {
                Ok(hold) => current.hold = Some(hold),
                Err(error) => {
                    self.current = None;
                    return Poll::Ready(Err(error));
                }
            }
            let following = current.range.end..range.end;
            self.next = (!following.is_empty()).then(|| Window::new(source, &following, tally));
        }
        Poll::Ready(Ok(current.range.end))
    }

    /// Whether the next bytes to send are being read in.
    pub(crate) fn is_reading(&self) -> bool {
        self.current.as_ref().is_some_and(|current| current.reading.is_some())
    }
}

/// Reads a range into the page cache, and fetches it first if it is not on this machine.
fn read_in(
    file: &Arc<OpenFile>,
    range: Range<u64>,
    hold: Option<Hold>,
) -> JoinHandle<io::Result<Hold>> {
    let file = Arc::clone(file);
    let read = |file: Arc<OpenFile>, range, hold| {
        spawn_blocking(move || cache::read_in(file.local(), range).map(|()| hold))
    };
    match hold {
        Some(hold) => read(file, range, hold),
        None => {
            let fetch = file.fetch(&range);
            tokio::spawn(async move {
                let hold = fetch.await?;
                read(file, range, hold).await.map_err(io::Error::other).flatten()
            })
        }
    }
}

/// Files are recorded as being in memory in blocks of this many bytes.
const BLOCK: u64 = 256 << 10;

/// Blocks that a thread records: 1 GiB of files that many viewers watch.
const BLOCKS: usize = 4096;

thread_local! {
    static HOT: RefCell<Hot> = RefCell::default();
}

/// Blocks of files that were in memory a moment ago, for any response. So the kernel is not asked
/// about a popular file again for each viewer.
#[derive(Default)]
struct Hot(HashMap<(*const OpenFile, u64), Seen>);

struct Seen {
    /// Keeps the address of the file, which identifies it, from being reused.
    _file: Weak<OpenFile>,
    at: Instant,
}

impl Hot {
    /// When a range was last known to be in memory; `None` if it is not known to be. The range is
    /// not empty, and within the file.
    fn holds(&mut self, source: &Source, range: &Range<u64>) -> Option<Instant> {
        let (file, now) = (&source.file, Instant::now());
        let blocks = range.start / BLOCK..range.end.div_ceil(BLOCK);
        let key = |block| (Arc::as_ptr(file), block);
        let is_fresh = |seen: &Seen| now - seen.at < FRESH;
        let seen =
            |block| self.0.get(&key(block)).filter(|seen| is_fresh(seen)).map(|seen| seen.at);
        let mut each = blocks.clone().map(seen);
        if let Some(oldest) = each.try_fold(now, |oldest, at| Some(oldest.min(at?))) {
            return Some(oldest);
        }
        let whole = blocks.start * BLOCK..(blocks.end * BLOCK).min(source.size());
        if whole.end < range.end || !cache::holds(file.local(), &whole) {
            return cache::holds(file.local(), range).then_some(now);
        }
        if self.0.len() >= BLOCKS {
            self.0.retain(|_, seen| is_fresh(seen));
        }
        for block in blocks {
            if self.0.len() < BLOCKS {
                self.0.insert(key(block), Seen { _file: Arc::downgrade(file), at: now });
            }
        }
        Some(now)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::task::Waker;

    use super::*;
    use crate::source::Sources;

    /// One call to the kernel can send as much of a file as was looked at together.
    #[tokio::test(start_paused = true)]
    async fn what_is_in_memory_is_looked_at_in_long_stretches() {
        const SIZE: u64 = LOOK + 100_000;
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![7; SIZE as usize]).unwrap();
        let source = Sources::default().of(&Arc::new(file.into()), None).unwrap();
        let (mut ahead, tally) = (Ahead::default(), Tally::default());
        let mut resident = |from| {
            let mut cx = Context::from_waker(Waker::noop());
            match ahead.poll(&source, &(from..SIZE), &tally, &mut cx) {
                Poll::Ready(end) => end.unwrap(),
                Poll::Pending => panic!("the file was just written"),
            }
        };
        assert_eq!(resident(0), LOOK);
        assert_eq!(resident(1_000_000), LOOK);
        assert_eq!(resident(LOOK), SIZE);
    }

    /// A window that another response checked keeps the time of that check.
    #[tokio::test(start_paused = true)]
    async fn evidence_keeps_its_age() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 100_000]).unwrap();
        let source = Sources::default().of(&Arc::new(file.into()), None).unwrap();
        let seen = || {
            let (mut ahead, tally) = (Ahead::default(), Tally::default());
            let mut cx = Context::from_waker(Waker::noop());
            let resident = ahead.poll(&source, &(0..100_000), &tally, &mut cx);
            assert!(matches!(resident, Poll::Ready(Ok(100_000))), "{resident:?}");
            ahead.current.unwrap().at
        };
        let first = Instant::now();
        assert_eq!(seen(), first);
        tokio::time::advance(FRESH * 9 / 10).await;
        assert_eq!(seen(), first);
        tokio::time::advance(FRESH * 2 / 10).await;
        assert_eq!(seen(), Instant::now());
    }
}
