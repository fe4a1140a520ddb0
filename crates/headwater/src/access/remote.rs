//! Asks other servers: the client of HTTP for that, and documents that are fetched again and again.
//!
//! The client follows no redirection and takes no proxy from the environment, because requests have passwords. It
//! trusts the authorities of this system, or those in the file that the environment's `SSL_CERT_FILE` names.

use std::net::ToSocketAddrs;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Client, Url, redirect};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};

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
/// For how long a connection is kept for the next request. Servers keep theirs for longer, so that a request hardly
/// ever meets the end of its connection.
const IDLE: Duration = Duration::from_secs(1);
/// Most names that are looked up at once. A look-up takes a thread, and goes on when nobody waits for it any more.
const LOOK_UPS: usize = 4;

/// Why a server cannot be asked. The URL is not told: it may have a password.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unusable {
    /// Not a URL of HTTP.
    #[error("is not an http:// or https:// URL")]
    Url,
    /// Only the certificates of authorities are missing.
    #[error(
        "cannot be asked: this system has no certificates of authorities: SSL_CERT_FILE may name a file"
    )]
    NoAuthorities,
    /// TLS cannot be set up.
    #[error("cannot be asked: {0}")]
    Tls(#[from] rustls::Error),
    /// The client cannot be set up.
    #[error("cannot be asked: {0}")]
    Client(#[from] reqwest::Error),
    /// The system has no random numbers.
    #[error("cannot be asked: no random numbers")]
    NoRandom,
}

/// A client for the server of a URL, and the URL.
pub(crate) fn client(url: &str) -> Result<(Client, Url), Unusable> {
    let url = Url::parse(url).map_err(|_| Unusable::Url)?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(Unusable::Url);
    }
    let client = Client::builder()
        .tls_backend_preconfigured(tls(url.scheme() == "https")?)
        .redirect(redirect::Policy::none())
        .no_proxy()
        .dns_resolver(LookUps(Arc::new(Semaphore::new(LOOK_UPS))))
        .user_agent(concat!("headwater/", env!("CARGO_PKG_VERSION")))
        .pool_idle_timeout(IDLE)
        .build()?;
    Ok((client, url))
}

/// TLS, with authorities if it is `needed`.
fn tls(needed: bool) -> Result<ClientConfig, Unusable> {
    let mut roots = RootCertStore::empty();
    if needed {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            return Err(Unusable::NoAuthorities);
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions()?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

/// Looks names up as the system does, a few at once.
struct LookUps(Arc<Semaphore>);

impl Resolve for LookUps {
    fn resolve(&self, name: Name) -> Resolving {
        let turns = Arc::clone(&self.0);
        Box::pin(async move {
            let turn = turns.acquire_owned().await?;
            let found = tokio::task::spawn_blocking(move || {
                let found = (name.as_str(), 0).to_socket_addrs();
                drop(turn);
                found
            });
            Ok(Box::new(found.await??) as Addrs)
        })
    }
}

/// Why an exchange failed, for the log. The URL is not told.
pub(crate) fn reason(error: reqwest::Error) -> String {
    format!("{:#}", anyhow::Error::new(error.without_url()))
}

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
        let (client, url) = client(url)?;
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
        let mut body = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(reason)? {
            if body.len() + piece.len() > LONGEST {
                return Err(format!("longer than {} KiB", LONGEST >> 10));
            }
            body.extend_from_slice(&piece);
        }
        (self.parse)(&body)
    }
}

/// Makes a connection to the server of a URL, and sends nothing on it. Takes 10 s at most.
pub(crate) async fn reach(url: &str) -> Result<(), String> {
    let (_, url) = client(url).map_err(|error| error.to_string())?;
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let port = url.port_or_known_default().unwrap_or_default();
    match timeout(PATIENCE, TcpStream::connect((host, port))).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(format!("{host}:{port}: {error}")),
        Err(_) => Err(format!("{host}:{port}: no connection in {PATIENCE:?}")),
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
