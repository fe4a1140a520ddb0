//! Documents of other servers that are fetched again and again.

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use reqwest::{Client, Url};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};

use crate::client::{self, Unusable, reason};

/// Longest document, in bytes.
const LONGEST: usize = 256 << 10;
/// For how long one fetch may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long after a failure the next fetch is, at first and at most.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// How far apart those fetches are that somebody asked for.
const APART: Duration = Duration::from_secs(10);
/// For how long somebody waits who asked for one.
const WAIT: Duration = Duration::from_secs(3);

/// A document at a URL that is fetched again and again. The newest that could be parsed is kept, for ever.
pub(super) struct Remote<T> {
    client: Client,
    url: Url,
    /// The URL without a password and a query, for the log.
    name: String,
    refresh: Duration,
    parse: fn(&[u8]) -> Result<T, String>,
    newest: RwLock<Option<Arc<T>>>,
    /// Whether a fetch goes on or is just about to begin, as the first one is.
    under_way: watch::Sender<bool>,
    wanted: Notify,
    /// When somebody last asked for a fetch and got one.
    asked: Mutex<Option<Instant>>,
}

impl<T> Remote<T> {
    /// Fetches nothing yet: that is what [`Remote::keep_fresh`] does. `parse` turns a body of at most 256 KiB into the
    /// document, or says why that cannot be done.
    ///
    /// # Errors
    /// The URL is not one of HTTP, or TLS cannot be set up.
    pub(super) fn new(
        url: &str,
        refresh: Duration,
        parse: fn(&[u8]) -> Result<T, String>,
    ) -> Result<Arc<Self>, Unusable> {
        let (client, url) = client::new(url, &[])?;
        Ok(Arc::new(Self {
            name: format!("{}{}", url.origin().ascii_serialization(), url.path()),
            client,
            url,
            refresh,
            parse,
            newest: RwLock::default(),
            under_way: watch::Sender::new(true),
            wanted: Notify::new(),
            asked: Mutex::default(),
        }))
    }

    /// Begins with a document that was fetched before, until another comes.
    pub(super) fn begin_with(&self, document: Option<Arc<T>>) {
        *self.newest.write().unwrap_or_else(PoisonError::into_inner) = document;
    }

    /// The newest document. `None` until the first one came.
    pub(super) fn get(&self) -> Option<Arc<T>> {
        self.newest.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps the document fresh until the future is dropped: fetches it at once, then after each `refresh`, and sooner
    /// after a failure or if somebody asks. One such future runs.
    pub(super) async fn keep_fresh(self: Arc<Self>) {
        let (mut failures, name) = (0, self.name.as_str());
        loop {
            self.under_way.send_replace(true);
            let pause = match self.fetch_in_time().await {
                Ok(document) => {
                    let mut newest = self.newest.write().unwrap_or_else(PoisonError::into_inner);
                    *newest = Some(Arc::new(document));
                    if failures > 0 {
                        tracing::info!(url = name, failures, "fetched again");
                    }
                    failures = 0;
                    self.refresh.max(PAUSES.0)
                }
                Err(why) => {
                    if failures == 0 {
                        tracing::warn!(url = name, why, "not fetched, will be tried again");
                    } else {
                        tracing::debug!(url = name, why, "not fetched");
                    }
                    failures += 1;
                    pause_after(failures, self.refresh)
                }
            };
            self.under_way.send_replace(false);
            tokio::select! {
                () = sleep(pause) => {}
                () = self.wanted.notified() => {}
            }
        }
    }

    /// Asks for a fetch now, and waits for its end, but not for long. Returns at once if somebody else asked for one
    /// shortly before and that one has ended.
    pub(super) async fn fetch_again(&self) {
        let mut under_way = self.under_way.subscribe();
        {
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            let is_under_way = *under_way.borrow();
            if !is_under_way {
                if asked.is_some_and(|asked| asked.elapsed() < APART) {
                    return;
                }
                *asked = Some(Instant::now());
                self.under_way.send_replace(true);
                self.wanted.notify_one();
            }
        }
        // Nobody is told whether it came in time: the caller looks into what there is.
        let _ = timeout(WAIT, under_way.wait_for(|is_under_way| !is_under_way)).await;
    }

    /// Fetches the document, and does not keep it.
    pub(super) async fn fetch_in_time(&self) -> Result<T, String> {
        let fetched = timeout(PATIENCE, self.fetch()).await;
        fetched.unwrap_or_else(|_| Err(format!("no answer in {PATIENCE:?}")))
    }

    async fn fetch(&self) -> Result<T, String> {
        let mut response = self.client.get(self.url.clone()).send().await.map_err(reason)?;
        if !response.status().is_success() {
            return Err(format!("the status is {}", response.status()));
        }
        (self.parse)(&client::body(&mut response, LONGEST).await?)
    }
}

/// How long after so many failures in a row the next fetch is: never later than it would be anyway.
fn pause_after(failures: u32, refresh: Duration) -> Duration {
    let (first, most) = PAUSES;
    let pause = first.saturating_mul(1 << (failures - 1).min(16));
    pause.min(most).min(refresh).max(first)
}

#[cfg(test)]
pub(super) mod tests;
