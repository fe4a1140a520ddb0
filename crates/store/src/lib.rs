//! Files in an object store, served from a cache of their blocks on a local disk.
//!
//! ```text
//! path ─▶ names ─▶ (answers) ─▶ requests ─▶ the store
//!           │                      ▲
//!           ▼                      │ a block that is not here
//!         cache ─▶ object ─────▶ fetch ─▶ payload::OpenFile ─▶ vod, http
//!                    └ blocks      └ a local file with holes
//! ```
//!
//! A version of an object has a local file of the object's length. It has a hole where bytes are
//! missing. Who wants to read a range *holds* its blocks: blocks that are missing are fetched first,
//! and blocks that are held are not evicted. So all that sends or reads files works with objects,
//! too: `sendfile`, the page cache, the index of an MP4.
//!
//! - `bucket` is the address of a root, and the client of the crate `object_store`.
//! - `requests` bounds requests in number and time. `answers` keeps what the store said, and asks
//!   each question once. `names` knows what is at a path, and what is in a folder.
//! - `blocks` is which blocks of an object are here. `fetch` fetches what is missing of an open one.
//! - `cache` has all objects, each an `object`, and makes room. `index` is what it writes beside each of them, so that
//!   a cache outlives its process.
//! - `meta` tells versions apart. `fault`, `counts` and `seldom` are small types.
//!
//! A store has a runtime of its own. So it disturbs no event loop, and may be used from any thread.

mod answers;
mod blocks;
mod bucket;
mod cache;
mod counts;
mod fault;
mod fetch;
mod index;
mod meta;
mod names;
mod object;
mod requests;
mod seldom;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use payload::{Answer, Metadata, Names, Objects, OpenFile};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;

pub use bucket::is_address;
pub use counts::{Counter, Counts};
pub use fault::Error;

use cache::Cache;
use fetch::Fetcher;
use names::{Directory, Found};
use requests::Requests;

/// How often the indexes of the cache are written.
const FLUSH: Duration = Duration::from_secs(1);

/// Where a store is, and what it may cost.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Address of the root: `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX` or `az://CONTAINER/PREFIX`.
    pub url: String,
    /// Address of the server, if neither the store's own nor that of the environment.
    pub endpoint: String,
    /// Whether the server may be asked without TLS.
    pub allow_http: bool,
    /// Folder of the cache. It is made if it does not exist.
    pub cache: PathBuf,
    /// Bytes of blocks in the cache.
    pub cache_size: u64,
    /// How long it is assumed that an object does not change.
    pub revalidate: Duration,
    /// How long the store may take to answer, repeated requests included.
    pub timeout: Duration,
    /// Most requests at the same time.
    pub requests: usize,
    /// Bytes that are fetched ahead of a viewer.
    pub read_ahead: u64,
}

/// Asks a store for a name below the root, without a cache: whether it answers. Takes no longer than
/// [`Settings::timeout`], where its own name is found in time.
///
/// # Errors
/// The address is wrong, or the store does not answer as it should.
pub async fn probe(settings: &Settings) -> Result<(), Error> {
    let bucket = bucket::Bucket::open(settings)?;
    let asked = Requests::new(bucket, settings, Arc::default()).list("", "", 1).await;
    let refused = |fault: fault::Fault| Error::Address {
        url: settings.url.clone(),
        reason: fault.to_string(),
    };
    asked.map(drop).map_err(refused)
}

/// An object store, and its cache.
#[derive(Debug)]
pub struct Store {
    directory: Directory,
    fetcher: Arc<Fetcher>,
    limit: u64,
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
}

impl Store {
    /// Opens a store. Nothing is asked of it yet. Reads the indexes of the cache, which blocks.
    ///
    /// # Errors
    /// The address is wrong, or the cache cannot be used.
    pub fn open(settings: &Settings) -> Result<Arc<Self>, Error> {
        let bucket = bucket::Bucket::open(settings)?;
        let counts = Arc::new(Counts::default());
        let cache = Arc::new(Cache::open(settings, Arc::clone(&counts))?);
        let mut runtime = Builder::new_multi_thread();
        runtime.worker_threads(2).thread_name("store").enable_all();
        let runtime = runtime.build()?;
        let handle = runtime.handle();
        let requests = Arc::new(Requests::new(bucket, settings, Arc::clone(&counts)));
        let (asked, kept) = (Arc::clone(&requests), Arc::clone(&cache));
        let directory = Directory::new(handle, settings, asked, kept);
        let fetcher = Arc::new(Fetcher {
            runtime: handle.clone(),
            requests,
            directory: directory.clone(),
            cache: Arc::clone(&cache),
            counts,
            ahead: Arc::new(Semaphore::new(settings.requests.div_ceil(2))),
            read_ahead: u32::try_from(settings.read_ahead.div_ceil(blocks::BLOCK))
                .unwrap_or(u32::MAX),
            log: seldom::Seldom::default(),
        });
        handle.spawn(async move {
            let mut interval = tokio::time::interval(FLUSH);
            interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                interval.tick().await;
                let cache = Arc::clone(&cache);
                let _ = tokio::task::spawn_blocking(move || cache.flush()).await;
            }
        });
        let limit = settings.cache_size;
        Ok(Arc::new(Self { directory, fetcher, limit, runtime: Some(runtime) }))
    }

    /// What happened since the start.
    pub fn counts(&self) -> &Counts {
        &self.fetcher.counts
    }

    /// Bytes of blocks in the cache, and how many there may be.
    pub fn room(&self) -> (u64, u64) {
        (self.fetcher.cache.used(), self.limit)
    }

    /// Writes down what the cache has, for the next process. Blocks.
    pub fn flush(&self) {
        self.fetcher.cache.flush();
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.flush();
        // A runtime must not be waited for where others run.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Objects for Store {
    fn known(&self, path: &str) -> Option<io::Result<Metadata>> {
        self.directory.known(path).map(|found| found.metadata())
    }

    fn foresee(&self, path: &str, from: u64) {
        // Nothing is that long.
        let Ok(block) = u32::try_from(from / blocks::BLOCK) else { return };
        let known = self.directory.foresee(path, block);
        if let Some(Found::Object(meta)) = known
            && from < meta.size
            && !self.fetcher.cache.has(path, block)
        {
            let (path, fetcher) = (path.to_owned(), Arc::clone(&self.fetcher));
            // Who reads it waits for the same block, or finds the same error.
            fetcher.runtime.clone().spawn_blocking(move || {
                fetcher.open(&path, &meta).map(|opened| drop(opened.fetch(&(from..from + 1))))
            });
        }
    }

    fn look_up(&self, path: &str) -> Answer<Metadata> {
        let found = self.directory.look_up(path);
        Box::pin(async move { found.await?.metadata() })
    }

    fn open(&self, path: &str) -> Answer<(Option<Arc<OpenFile>>, Metadata)> {
        let known = self.directory.known(path);
        if let Some(Found::Object(meta)) = &known
            && let Some(opened) = self.fetcher.cache.opened(path, meta)
        {
            return Box::pin(std::future::ready(Ok((Some(opened), meta.metadata()))));
        }
        let found = self.directory.look_up(path);
        let (path, fetcher) = (path.to_owned(), Arc::clone(&self.fetcher));
        Box::pin(async move {
            let found = found.await?;
            let metadata = found.metadata()?;
            let Found::Object(meta) = found else { return Ok((None, metadata)) };
            let runtime = fetcher.runtime.clone();
            let opened = runtime.spawn_blocking(move || fetcher.open(&path, &meta)).await;
            Ok((Some(opened.map_err(io::Error::other).flatten()?), metadata))
        })
    }

    fn known_list(&self, folder: &str, begins: &str) -> Option<Arc<Names>> {
        self.directory.known_list(folder, begins)
    }

    fn list(&self, folder: &str, begins: &str) -> Answer<Arc<Names>> {
        let listed = self.directory.list(folder, begins);
        Box::pin(async move { Ok(listed.await?) })
    }
}
