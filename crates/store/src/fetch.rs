//! Fetches blocks of objects that are open for reading.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use payload::{Answer, Copied, FileVersion, Hold, OpenFile};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::task::spawn_blocking;

use crate::blocks::{self, BLOCK, Blocks, Coming, Need, Sum};
use crate::cache::Cache;
use crate::counts::Counts;
use crate::fault::Fault;
use crate::meta::{Meta, hash};
use crate::names::Directory;
use crate::object::{Object, now};
use crate::requests::{Fetched, Requests};
use crate::seldom::Seldom;

/// What fetches blocks. All objects share it.
#[derive(Debug)]
pub(crate) struct Fetcher {
    pub(crate) runtime: Handle,
    pub(crate) requests: Arc<Requests>,
    pub(crate) directory: Directory,
    pub(crate) cache: Arc<Cache>,
    pub(crate) counts: Arc<Counts>,
    /// Blocks that may be read ahead at the same time.
    pub(crate) ahead: Arc<Semaphore>,
    /// How many blocks are read ahead of a viewer.
    pub(crate) read_ahead: u32,
    pub(crate) log: Seldom,
}

/// An object that is open for reading.
#[derive(Debug)]
pub(crate) struct Opened {
    file: Arc<File>,
    object: Arc<Object>,
    fetcher: Arc<Fetcher>,
}

/// Keeps blocks of an object.
struct Pins {
    object: Arc<Object>,
    blocks: Range<u32>,
}

impl Drop for Pins {
    fn drop(&mut self) {
        self.object.blocks().unpin(self.blocks.clone());
    }
}

impl Opened {
    pub(crate) fn new(file: File, object: Arc<Object>, fetcher: Arc<Fetcher>) -> Self {
        Self { file: Arc::new(file), object, fetcher }
    }

    fn pins(&self, blocks: Range<u32>) -> Pins {
        Pins { object: Arc::clone(&self.object), blocks }
    }

    /// Has a block fetched, if that is necessary and nobody does it yet.
    fn begin(&self, blocks: &mut Blocks, number: u32) -> Option<Coming> {
        let (sum, leaving) = match blocks.need(number) {
            Need::Nothing => return None,
            Need::Wait(coming) => return Some(coming),
            Need::Fetch(sum) => (sum, None),
            Need::FetchAfter(gone) => (None, Some(gone)),
        };
        let (give, coming) = watch::channel(None);
        blocks.comes(number, coming.clone());
        let (file, object, fetcher) =
            (Arc::clone(&self.file), Arc::clone(&self.object), Arc::clone(&self.fetcher));
        self.fetcher.runtime.spawn(async move {
            if let Some(mut gone) = leaving {
                // It ends with an error when the bytes have gone.
                let _ = gone.changed().await;
            }
            let came = fetcher.fill(&file, &object, number, sum).await;
            let sum = came.as_ref().ok().copied();
            object.came(number, sum);
            let _ = give.send(Some(came.map(drop)));
        });
        Some(coming)
    }
}

impl Copied for Opened {
    fn local(&self) -> &File {
        &self.file
    }

    fn version(&self) -> FileVersion {
        self.object.meta.version()
    }

    fn hold(&self, range: &Range<u64>) -> Option<Hold> {
        let touched = blocks::touched(range);
        {
            let mut blocks = self.object.blocks();
            if !blocks.are_here(touched.clone()) {
                return None;
            }
            blocks.pin(touched.clone(), now());
        }
        self.fetcher.counts.hits.add(u64::from(touched.end - touched.start));
        Some(Hold::new(self.pins(touched)))
    }

    fn fetch(&self, range: &Range<u64>) -> Answer<Hold> {
        if range.end > self.object.meta.size {
            return Box::pin(std::future::ready(Err(io::ErrorKind::UnexpectedEof.into())));
        }
        let touched = blocks::touched(range);
        let waits: Vec<Coming> = {
            let mut blocks = self.object.blocks();
            blocks.pin(touched.clone(), now());
            touched.clone().filter_map(|number| self.begin(&mut blocks, number)).collect()
        };
        self.fetcher.counts.misses.add(waits.len() as u64);
        let pins = self.pins(touched);
        Box::pin(async move {
            for mut coming in waits {
                let came = coming.wait_for(Option::is_some).await;
                let came = came.ok().and_then(|came| came.clone());
                came.unwrap_or_else(|| Err(Fault::away("the fetch ended")))?;
            }
            Ok(Hold::new(pins))
        })
    }

    fn read_ahead(&self, from: u64) {
        let size = self.object.meta.size;
        let end = from.saturating_add(u64::from(self.fetcher.read_ahead) * BLOCK).min(size);
        let mut blocks = self.object.blocks();
        for number in blocks::touched(&(from..end)) {
            if !matches!(blocks.need(number), Need::Fetch(_)) {
                continue;
            }
            let Ok(permit) = Arc::clone(&self.fetcher.ahead).try_acquire_owned() else { return };
            let Some(mut coming) = self.begin(&mut blocks, number) else { continue };
            self.fetcher.runtime.spawn(async move {
                let _ = coming.wait_for(Option::is_some).await;
                drop(permit);
            });
        }
    }
}

impl Fetcher {
    /// Opens the local copy of an object. Blocks for a short time.
    pub(crate) fn open(self: &Arc<Self>, path: &str, meta: &Meta) -> io::Result<Arc<OpenFile>> {
        loop {
            let object = self.cache.object(path, meta);
            let mut open = object.opened();
            if let Some(opened) = open.upgrade() {
                return Ok(opened);
            }
            // Otherwise it was dropped just now, because it had no blocks.
            if !object.is_gone.load(Ordering::Relaxed) {
                let file = self.cache.file(&object)?;
                let opened = Opened::new(file, Arc::clone(&object), Arc::clone(self));
                let opened = Arc::new(OpenFile::Copied(Box::new(opened)));
                *open = Arc::downgrade(&opened);
                return Ok(opened);
            }
        }
    }

    /// Brings a block into the local file, and returns its digest.
    async fn fill(
        &self,
        file: &Arc<File>,
        object: &Arc<Object>,
        number: u32,
        sum: Option<Sum>,
    ) -> Result<Sum, Fault> {
        let range = blocks::bytes(number, object.meta.size);
        let length = range.end - range.start;
        if let Some(sum) = sum {
            if check(Arc::clone(file), range.clone(), sum).await {
                return Ok(sum);
            }
            self.cache.gave(length);
            self.counts.damaged.add(1);
            if let Some(others) = self.log.take() {
                let path = &object.path;
                tracing::warn!(path, block = number, others, "damaged in the cache, fetched again");
            }
        }
        let fetched = self.requests.range(&object.path, &object.meta, range.clone()).await;
        if matches!(fetched, Err(Fault::Changed | Fault::NotFound)) {
            self.directory.forget(&object.path);
            object.is_old.store(true, Ordering::Relaxed);
        }
        let Fetched { bytes, slot } = fetched?;
        let (file, cache) = (Arc::clone(file), Arc::clone(&self.cache));
        let written = spawn_blocking(move || {
            let written = cache.keep(&file, &bytes, number);
            // Bytes that wait for the disk are bounded as those are that come from the store.
            drop(slot);
            written
        });
        Ok(written.await.map_err(io::Error::other).flatten()?)
    }
}

/// Whether the bytes on the disk have this digest.
async fn check(file: Arc<File>, range: Range<u64>, sum: Sum) -> bool {
    let checked = spawn_blocking(move || {
        // A block fits into memory.
        let mut bytes = vec![0; (range.end - range.start) as usize];
        file.read_exact_at(&mut bytes, range.start).is_ok() && hash(&[&bytes]) == sum
    });
    checked.await.unwrap_or(false)
}
