//! Requests to the store: few at once, each with an end.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use object_store::list::{PaginatedListOptions, PaginatedListResult};
use object_store::path::Path;
use object_store::{Error, GetOptions, GetRange, GetResult};
use tokio::sync::Semaphore;

use crate::Settings;
use crate::bucket::Bucket;
use crate::counts::{Counter, Counts};
use crate::fault::Fault;
use crate::meta::Meta;

/// After this many failures without a success, the store counts as away.
const FAILURES: u32 = 3;
/// How long a store that is away is not asked.
const AWAY: Duration = Duration::from_secs(2);
/// How often a failing store is logged.
const LOGGED: Duration = Duration::from_secs(10);
/// Most pages of names that are asked for; a page has 1,000.
const PAGES: usize = 10;

/// What all requests to a store share.
#[derive(Debug)]
pub(crate) struct Requests {
    bucket: Bucket,
    url: String,
    timeout: Duration,
    slots: Semaphore,
    counts: Arc<Counts>,
    failures: AtomicU32,
    last: Mutex<Last>,
}

#[derive(Debug, Default)]
struct Last {
    /// When a request failed last.
    failed: Option<Instant>,
    /// When a failure was logged last, and how many were not logged since.
    logged: Option<Instant>,
    unlogged: u64,
}

/// What is below a prefix.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    /// Names with the metadata of objects, or without of folders.
    pub(crate) items: Vec<(String, Option<Meta>)>,
    /// Whether there is more than was asked for.
    pub(crate) is_cut: bool,
}

impl Requests {
    pub(crate) fn new(bucket: Bucket, settings: &Settings, counts: Arc<Counts>) -> Self {
        Self {
            bucket,
            url: settings.url.clone(),
            timeout: settings.timeout,
            slots: Semaphore::new(settings.requests),
            counts,
            failures: AtomicU32::new(0),
            last: Mutex::default(),
        }
    }

    /// Asks for the metadata of an object.
    pub(crate) async fn head(&self, path: &str) -> Result<Meta, Fault> {
        let key = self.key(path)?;
        let options = GetOptions { head: true, ..GetOptions::default() };
        let asked = self.bucket.client.get_opts(&key, options);
        let found: GetResult = self.run(&self.counts.heads, path, asked).await?;
        Ok(Meta::of(&found.meta))
    }

    /// Fetches a range of one version of an object.
    pub(crate) async fn range(
        &self,
        path: &str,
        meta: &Meta,
        range: Range<u64>,
    ) -> Result<Bytes, Fault> {
        let key = self.key(path)?;
        let length = range.end - range.start;
        let options = GetOptions {
            if_match: meta.strong_etag(),
            range: Some(GetRange::Bounded(range)),
            ..GetOptions::default()
        };
        let fetched = async {
            let found = self.bucket.client.get_opts(&key, options.clone()).await?;
            let now = Meta::of(&found.meta);
            // A store that knows no If-Match answers with another version.
            if now != *meta {
                return Ok(None);
            }
            found.bytes().await.map(Some)
        };
        let bytes = self.run(&self.counts.gets, path, fetched).await?.ok_or(Fault::Changed)?;
        if bytes.len() as u64 != length {
            return Err(Fault::away(format_args!("{path}: {} bytes, not {length}", bytes.len())));
        }
        self.counts.bytes.add(length);
        Ok(bytes)
    }

    /// Lists the names directly in a folder that begin with `begins`, at most `most` or a little
    /// more.
    pub(crate) async fn list(
        &self,
        folder: &str,
        begins: &str,
        most: usize,
    ) -> Result<Listed, Fault> {
        let slash = if folder.is_empty() { "" } else { "/" };
        let above = format!("{}{folder}{slash}", self.bucket.prefix);
        let prefix = format!("{above}{begins}");
        let prefix = Some(prefix.as_str()).filter(|prefix| !prefix.is_empty());
        let (mut listed, mut page_token) = (Listed::default(), None);
        for _ in 0..PAGES {
            let options = PaginatedListOptions {
                delimiter: Some("/".into()),
                max_keys: Some(most.min(1000)),
                page_token: page_token.take(),
                ..PaginatedListOptions::default()
            };
            let asked = self.bucket.client.list_paginated(prefix, options);
            let page: PaginatedListResult = self.run(&self.counts.lists, folder, asked).await?;
            let below = |path: &Path| path.as_ref().strip_prefix(&above).map(str::to_owned);
            let folders = page.result.common_prefixes.iter().map(|path| (below(path), None));
            let objects = page.result.objects.iter();
            let objects = objects.map(|meta| (below(&meta.location), Some(Meta::of(meta))));
            // The object that some programs make for an empty folder has no name in it.
            let named = folders.chain(objects).filter_map(|(name, meta)| Some((name?, meta)));
            listed.items.extend(named.filter(|(name, _)| !name.is_empty()));
            page_token = page.page_token;
            if page_token.is_none() || listed.items.len() >= most {
                break;
            }
        }
        listed.is_cut = page_token.is_some();
        Ok(listed)
    }

    /// The key of an object. A path that cannot be a key leads nowhere.
    fn key(&self, path: &str) -> Result<Path, Fault> {
        Path::parse(format!("{}{path}", self.bucket.prefix)).map_err(|_| Fault::NotFound)
    }

    async fn run<T>(
        &self,
        counter: &Counter,
        path: &str,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, Fault> {
        if self.is_away() {
            return Err(Fault::away("it did not answer before"));
        }
        let timely = tokio::time::timeout(self.timeout, async {
            // The semaphore is never closed.
            let _slot = self.slots.acquire().await;
            counter.add(1);
            request.await
        });
        let failure = match timely.await {
            Ok(Ok(answer)) => {
                self.failures.store(0, Ordering::Relaxed);
                return Ok(answer);
            }
            Ok(Err(Error::NotFound { .. })) => {
                self.failures.store(0, Ordering::Relaxed);
                return Err(Fault::NotFound);
            }
            Ok(Err(Error::Precondition { .. })) => {
                self.failures.store(0, Ordering::Relaxed);
                return Err(Fault::Changed);
            }
            // The store answers. What one viewer may not have must not keep others from the rest.
            Ok(Err(error @ (Error::PermissionDenied { .. } | Error::Unauthenticated { .. }))) => {
                self.failures.store(0, Ordering::Relaxed);
                self.counts.errors.add(1);
                let failure = error.to_string();
                self.log(path, &failure);
                return Err(Fault::away(failure));
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {:?}", self.timeout),
        };
        self.counts.errors.add(1);
        self.failures.fetch_add(1, Ordering::Relaxed);
        self.last().failed = Some(Instant::now());
        self.log(path, &failure);
        Err(Fault::away(failure))
    }

    /// Whether the store failed several times, the last time a moment ago.
    fn is_away(&self) -> bool {
        self.failures.load(Ordering::Relaxed) >= FAILURES
            && self.last().failed.is_some_and(|failed| failed.elapsed() < AWAY)
    }

    fn log(&self, path: &str, failure: &str) {
        let mut last = self.last();
        let now = Instant::now();
        if last.logged.is_some_and(|logged| now - logged < LOGGED) {
            last.unlogged += 1;
            return;
        }
        last.logged = Some(now);
        let (store, others) = (&self.url, std::mem::take(&mut last.unlogged));
        tracing::error!(store, path, failure, others, "the store does not answer as it should");
    }

    fn last(&self) -> std::sync::MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
