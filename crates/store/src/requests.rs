//! Requests to the store: few at once, each with an end.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use object_store::client::HttpError;
use object_store::list::{PaginatedListOptions, PaginatedListResult};
use object_store::path::Path;
use object_store::{Error, GetOptions, GetRange, GetResult};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::Settings;
use crate::bucket::Bucket;
use crate::counts::{Counter, Counts};
use crate::fault::Fault;
use crate::meta::Meta;
use crate::seldom::Seldom;

/// After this many failures without a success, the store counts as away.
const FAILURES: u32 = 3;
/// How long a store that is away is not asked.
const AWAY: Duration = Duration::from_secs(2);
/// The longest key that stores allow, in bytes.
pub(crate) const KEY: usize = 1024;
/// Most pages of names that are asked for; a page has 1,000.
const PAGES: usize = 10;

/// How the crate `object_store` begins the text of an answer that is no success.
const STATUS: &str = "Server returned non-2xx status code: ";

/// What all requests to a store share.
#[derive(Debug)]
pub(crate) struct Requests {
    bucket: Bucket,
    url: String,
    timeout: Duration,
    slots: Arc<Semaphore>,
    pub(crate) counts: Arc<Counts>,
    failures: AtomicU32,
    /// When a request failed last.
    failed: Mutex<Option<Instant>>,
    log: Seldom,
}

/// Bytes that were fetched. Those who keep them in memory keep one of the few requests with them.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) bytes: Bytes,
    pub(crate) slot: OwnedSemaphorePermit,
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
            slots: Arc::new(Semaphore::new(settings.requests)),
            counts,
            failures: AtomicU32::new(0),
            failed: Mutex::default(),
            log: Seldom::default(),
        }
    }

    /// When a question that is put now has to be answered. It may need several requests.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// Asks for the metadata of an object, until a deadline.
    pub(crate) async fn head(&self, path: &str, until: Instant) -> Result<Meta, Fault> {
        let key = self.key(path)?;
        let options = GetOptions { head: true, ..GetOptions::default() };
        let asked = self.bucket.client.get_opts(&key, options);
        let (found, _): (GetResult, _) = self.run(&self.counts.heads, path, until, asked).await?;
        Ok(Meta::of(&found.meta))
    }

    /// Fetches a range of an object, or its beginning where the object ends within it, and learns the metadata from the
    /// same answer. Has a deadline, as [`head`](Self::head) has.
    pub(crate) async fn first(
        &self,
        path: &str,
        range: Range<u64>,
        until: Instant,
    ) -> Result<(Meta, Fetched), Fault> {
        let key = self.key(path)?;
        let range = Some(GetRange::Bounded(range));
        let options = GetOptions { range, ..GetOptions::default() };
        let fetched = async {
            let found = self.bucket.client.get_opts(&key, options).await?;
            let (meta, range) = (Meta::of(&found.meta), found.range.clone());
            Ok((meta, range, found.bytes().await?))
        };
        let ((meta, range, bytes), slot) =
            self.run(&self.counts.gets, path, until, fetched).await?;
        Ok((meta, self.whole(path, bytes, range.end - range.start, slot)?))
    }

    /// Fetches a range of one version of an object.
    pub(crate) async fn range(
        &self,
        path: &str,
        meta: &Meta,
        range: Range<u64>,
    ) -> Result<Fetched, Fault> {
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
        // Its turn may take as long as the request itself.
        let until = self.deadline() + self.timeout;
        let (bytes, slot) = match self.run(&self.counts.gets, path, until, fetched).await {
            Err(Fault::Beyond) => return Err(Fault::Changed),
            fetched => fetched?,
        };
        self.whole(path, bytes.ok_or(Fault::Changed)?, length, slot)
    }

    /// Checks that all bytes came, and counts them.
    fn whole(
        &self,
        path: &str,
        bytes: Bytes,
        length: u64,
        slot: OwnedSemaphorePermit,
    ) -> Result<Fetched, Fault> {
        if bytes.len() as u64 != length {
            return Err(Fault::away(format_args!("{path}: {} bytes, not {length}", bytes.len())));
        }
        self.counts.bytes.add(length);
        Ok(Fetched { bytes, slot })
    }

    /// Lists the names directly in a folder that begin with `begins`, at most `most` or a little
    /// more.
    pub(crate) async fn list(
        &self,
        folder: &str,
        begins: &str,
        most: usize,
    ) -> Result<Listed, Fault> {
        let until = self.deadline();
        let slash = if folder.is_empty() { "" } else { "/" };
        let above = format!("{}{folder}{slash}", self.bucket.prefix);
        let prefix = format!("{above}{begins}");
        if prefix.len() > KEY {
            return Ok(Listed::default());
        }
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
            let page = self.run(&self.counts.lists, folder, until, asked).await;
            // A prefix without objects has an empty list. So the bucket itself was not found.
            if matches!(page, Err(Fault::NotFound)) {
                self.log(folder, "the bucket was not found");
                return Err(Fault::away("the bucket was not found"));
            }
            let (page, _): (PaginatedListResult, _) = page?;
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
        let key = format!("{}{path}", self.bucket.prefix);
        let key = Some(key).filter(|key| key.len() <= KEY).ok_or(Fault::NotFound)?;
        Path::parse(key).map_err(|_| Fault::NotFound)
    }

    /// Makes a request when one of the few slots is free, and ends it at `until` or after the timeout. Only a request
    /// that was sent, and that the store did not answer or could not serve, counts as a failure: one viewer, one key or
    /// many viewers at once must not keep others from the store.
    async fn run<T>(
        &self,
        counter: &Counter,
        path: &str,
        until: Instant,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> Result<(T, OwnedSemaphorePermit), Fault> {
        if self.is_away() {
            return Err(Fault::away("it did not answer before"));
        }
        let slot = timeout_at(until.min(self.deadline()), Arc::clone(&self.slots).acquire_owned());
        let Ok(Ok(slot)) = slot.await else {
            return Err(Fault::away("too many requests wait"));
        };
        counter.add(1);
        let (sent, until) = (Instant::now(), until.min(self.deadline()));
        let (reason, is_failure) = match timeout_at(until, request).await {
            Ok(Ok(answer)) => {
                self.failures.store(0, Ordering::Relaxed);
                return Ok((answer, slot));
            }
            Ok(Err(Error::NotFound { .. })) => {
                self.failures.store(0, Ordering::Relaxed);
                return Err(Fault::NotFound);
            }
            Ok(Err(Error::Precondition { .. })) => {
                self.failures.store(0, Ordering::Relaxed);
                return Err(Fault::Changed);
            }
            Ok(Err(error)) => match status(&error) {
                Some(416) => {
                    self.failures.store(0, Ordering::Relaxed);
                    return Err(Fault::Beyond);
                }
                _ => reason(&error),
            },
            // A request that began shortly before its deadline says little about the store.
            Err(_) => {
                let took = until - sent;
                (format!("no answer within {took:.1?}"), took >= self.timeout / 2)
            }
        };
        self.counts.errors.add(1);
        if is_failure {
            self.failures.fetch_add(1, Ordering::Relaxed);
            *self.failed() = Some(Instant::now());
        }
        self.log(path, &reason);
        Err(Fault::away(reason))
    }

    /// Whether the store failed several times, the last time a moment ago.
    fn is_away(&self) -> bool {
        self.failures.load(Ordering::Relaxed) >= FAILURES
            && self.failed().is_some_and(|failed| failed.elapsed() < AWAY)
    }

    fn log(&self, path: &str, failure: &str) {
        if let Some(others) = self.log.take() {
            let store = &self.url;
            tracing::error!(store, path, failure, others, "the store does not answer as it should");
        }
    }

    fn failed(&self) -> MutexGuard<'_, Option<Instant>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a request failed, and whether it is the store that fails. The text has nothing of the body of
/// an answer, which may tell secrets to those who read the log.
fn reason(error: &Error) -> (String, bool) {
    match error {
        Error::PermissionDenied { .. } => return ("it forbids this".to_owned(), false),
        Error::Unauthenticated { .. } => return ("it wants other credentials".to_owned(), false),
        Error::InvalidPath { .. } => return ("a name in it is no path".to_owned(), false),
        _ => {}
    }
    if let Some(status) = status(error) {
        return (format!("status {status}"), status >= 500 || status == 429);
    }
    let known = causes(error).find_map(|cause| {
        if let Some(http) = cause.downcast_ref::<HttpError>() {
            return Some((format!("{:?}", http.kind()), true));
        }
        let is_path = cause.is::<object_store::path::Error>();
        is_path.then(|| ("a name in it is no path".to_owned(), false))
    });
    known.unwrap_or_else(|| ("an answer that is not understood".to_owned(), true))
}

/// The status of an answer that is no success. The type that has it is not public, and its text is.
fn status(error: &Error) -> Option<u16> {
    causes(error).find_map(|cause| cause.to_string().strip_prefix(STATUS)?.get(..3)?.parse().ok())
}

fn causes(error: &Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error as &(dyn std::error::Error + 'static)), |e| e.source())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Cause(&'static str);

    fn requests(cache: &std::path::Path) -> Requests {
        let settings = Settings {
            url: "s3://films".to_owned(),
            endpoint: "http://192.0.2.1".to_owned(),
            allow_http: true,
            cache: cache.to_owned(),
            cache_size: 0,
            revalidate: Duration::from_secs(5),
            timeout: Duration::from_secs(10),
            requests: 1,
            read_ahead: 0,
        };
        Requests::new(Bucket::open(&settings).unwrap(), &settings, Arc::default())
    }

    #[tokio::test(start_paused = true)]
    async fn the_requests_of_a_question_have_one_deadline() {
        let folder = tempfile::tempdir().unwrap();
        let requests = requests(folder.path());
        let asked = Instant::now();
        let failures = || requests.failures.load(Ordering::Relaxed);
        let counter = &requests.counts.heads;
        let slow = async {
            tokio::time::sleep(Duration::from_secs(7)).await;
            Ok(())
        };
        let never = || std::future::pending::<object_store::Result<()>>();
        let until = requests.deadline();
        drop(requests.run(counter, "a", until, slow).await.unwrap());
        let fault = requests.run(counter, "a", until, never()).await.unwrap_err();
        assert_eq!((asked.elapsed(), failures()), (Duration::from_secs(10), 0), "{fault}");
        // A request with all of its time says that the store is away.
        let fault = requests.run(counter, "a", requests.deadline(), never()).await.unwrap_err();
        assert_eq!((asked.elapsed(), failures()), (Duration::from_secs(20), 1), "{fault}");
        // Who waits for a turn waits no longer than until the deadline.
        let _all = Arc::clone(&requests.slots).acquire_owned().await.unwrap();
        let until = Instant::now() + Duration::from_secs(3);
        let fault = requests.run(counter, "a", until, never()).await.unwrap_err();
        assert_eq!((asked.elapsed(), failures()), (Duration::from_secs(23), 1), "{fault}");
    }

    #[test]
    fn only_a_store_that_fails_counts_and_no_body_is_told() {
        let of = |text| reason(&Error::Generic { store: "S3", source: Box::new(Cause(text)) });
        let client = "Server returned non-2xx status code: 400 Bad Request: <Key>films</Key>";
        assert_eq!(of(client), ("status 400".to_owned(), false));
        let many = "Server returned non-2xx status code: 429 Too Many Requests: ";
        assert_eq!(of(many), ("status 429".to_owned(), true));
        let server = "Server returned non-2xx status code: 503 Service Unavailable: token";
        assert_eq!(of(server), ("status 503".to_owned(), true));
        let (text, is_failure) = of("token");
        assert!(is_failure && !text.contains("token"), "{text}");
        let path = Path::parse("films//x").unwrap_err();
        assert!(!reason(&Error::InvalidPath { source: path }).1);
    }
}
