//! Keeping the event loop from waiting for a disk: what is to be sent next is in the page cache
//! before it is sent.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::Instant;

use super::cache;
use super::limits::{Tally, count};

/// Bytes asked for, and read in, at a time.
const WINDOW: u64 = 512 << 10;

/// How long pages are taken to stay: a viewer that is slower has them asked for again.
const FRESH: Duration = Duration::from_secs(1);

/// What of a response's files is in the page cache, or on its way there.
///
/// Where a window had to be read in, the one after it is read in while the first is being sent, so
/// a viewer of a cold file waits once.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    current: Option<Window>,
    next: Option<Window>,
}

#[derive(Debug)]
struct Window {
    file: Arc<File>,
    range: Range<u64>,
    /// When it was last known to be in memory.
    at: Instant,
    reading: Option<JoinHandle<io::Result<()>>>,
}

impl Window {
    fn new(file: &Arc<File>, range: Range<u64>, tally: &Tally) -> Self {
        let reading = (!cache::holds(file, &range)).then(|| {
            count(&tally.cold_reads, 1);
            let (file, range) = (Arc::clone(file), range.clone());
            spawn_blocking(move || cache::read_in(&file, range))
        });
        Self { file: Arc::clone(file), range, at: Instant::now(), reading }
    }

    fn covers(&self, file: &Arc<File>, offset: u64) -> bool {
        Arc::ptr_eq(&self.file, file) && self.range.contains(&offset)
    }
}

impl Ahead {
    /// Ready when the bytes at `range.start` can be sent without waiting; up to which offset, which
    /// may be beyond the range. `range` is what will be sent of the file, as far as that is known,
    /// and not empty.
    pub(super) fn poll(
        &mut self,
        file: &Arc<File>,
        range: &Range<u64>,
        tally: &Tally,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<u64>> {
        let window = |from: u64| from..range.end.min(from.saturating_add(WINDOW));
        let usable = |window: &mut Window| {
            window.covers(file, range.start)
                && (window.reading.is_some() || window.at.elapsed() < FRESH)
        };
        let known = self.current.take_if(usable).or_else(|| self.next.take_if(usable));
        let current = known.unwrap_or_else(|| Window::new(file, window(range.start), tally));
        let current = self.current.insert(current);
        if let Some(reading) = &mut current.reading {
            let read = ready!(Pin::new(reading).poll(cx));
            current.reading = None;
            current.at = Instant::now();
            if let Err(error) = read.map_err(io::Error::other).flatten() {
                self.current = None;
                return Poll::Ready(Err(error));
            }
            let following = window(current.range.end);
            self.next = (!following.is_empty()).then(|| Window::new(file, following, tally));
        }
        Poll::Ready(Ok(current.range.end))
    }

    /// Whether what is to be sent is being read in.
    pub(super) fn is_reading(&self) -> bool {
        self.current.as_ref().is_some_and(|current| current.reading.is_some())
    }
}
