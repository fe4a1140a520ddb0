//! The server's certificate from an authority, by ACME (RFC 8555): gets it, keeps it, and renews it.
//!
//! ```text
//!                    ┌ authority   the account, requests to the directory
//! Acme::run ─ order ─┤
//!     │              └ answers ─┬▶ router               HTTP-01
//!     ▼                         └▶ http::Certificates   TLS-ALPN-01 (RFC 8737), and the certificate
//!  storage ─ certificate
//! ```
//!
//! Everything runs on the main runtime, never on an event loop of the media plane.

mod answers;
mod authority;
mod certificate;
mod order;
mod storage;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use answers::Answers;
use authority::Authority;
use axum::Router;
use certificate::Certificate;
use http::Certificates;
use instant_acme::CertificateIdentifier;
use order::Ways;
use storage::Storage;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};

use crate::client;
use crate::config::Tls;

/// The file with the certificate, its chain and its key.
const CERTIFICATE: &str = "certificate.pem";
/// How long after a failure the next try is, at first and at most. Each pause is four times the one before: authorities
/// take few failures in an hour.
const PAUSES: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(3600));
/// Longest pause that an authority can ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(24 * 3600);
/// Shortest pause, whatever lifetime an authority gives.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
/// The clock may be set, so it is looked at this often.
const LOOK: Duration = Duration::from_secs(3600);
/// For how long one try may take.
const PATIENCE: Duration = Duration::from_secs(300);
/// How often an order is begun anew because the authority refused the nonce of a request.
const AGAIN: usize = 5;
/// How long after a failure the authority is asked again when to renew.
const ADVICE: Duration = Duration::from_secs(6 * 3600);

/// Gets the certificate of the configured domains.
pub struct Acme {
    domains: BTreeSet<String>,
    authority: Authority,
    storage: Arc<Storage>,
    /// What could not be written yet, by the name of its file.
    unwritten: BTreeMap<&'static str, String>,
    certificates: Certificates,
    answers: Answers,
    ways: Ways,
    current: Option<Certificate>,
    /// When the authority wants the current certificate to be renewed.
    window: Option<Range<SystemTime>>,
    /// When it is asked for that.
    advice_due: Instant,
}

/// Why there is no new certificate.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("{0}")]
    Authority(#[from] instant_acme::Error),
    #[error("http.tls.acme.directory {0}")]
    Client(#[from] client::Unusable),
    /// The authority does not see that this server has the domain.
    #[error("{domain} by {way}: {why}")]
    Refused { domain: String, way: &'static str, why: String },
    #[error("the authority's certificate cannot be used: {0}")]
    Certificate(String),
    #[error("no answer to TLS-ALPN-01 can be made: {0}")]
    Answer(String),
    #[error("another process asks for it")]
    Busy,
    #[error("not done in {PATIENCE:?}")]
    Late,
}

impl Acme {
    /// Reads what is kept, so that it is used from the beginning. Blocks.
    ///
    /// # Errors
    /// TLS cannot be set up, or there is no file with the directory's authorities.
    pub fn open(tls: &Tls) -> anyhow::Result<Self> {
        let certificates = Certificates::new()?;
        let storage = Arc::new(Storage::new(&tls.acme.storage, &tls.acme.directory));
        let mut acme = Self {
            domains: tls.domains.iter().map(|domain| domain.to_ascii_lowercase()).collect(),
            authority: Authority::new(&tls.acme)?,
            storage,
            unwritten: BTreeMap::new(),
            answers: Answers::new(certificates.clone()),
            certificates,
            ways: Ways::default(),
            current: None,
            window: None,
            advice_due: Instant::now(),
        };
        match acme.kept() {
            Ok(Some(certificate)) => acme.take(certificate),
            Ok(None) => {}
            Err(why) => {
                let file = acme.storage.path(CERTIFICATE);
                tracing::warn!(file = %file.display(), why, "the kept certificate cannot be used");
            }
        }
        Ok(acme)
    }

    /// Where listeners have the certificate from.
    pub fn certificates(&self) -> &Certificates {
        &self.certificates
    }

    /// Answers authorities that ask by HTTP.
    pub fn router(&self) -> Router {
        self.answers.router()
    }

    /// Gets the certificate when there is none, and whenever it is time to renew it, until the future is dropped.
    pub async fn run(mut self) {
        let (mut tries, mut failed_writes) = (0, 0);
        loop {
            self.take_advice().await;
            let mut pause = Duration::ZERO;
            if self.is_due() {
                tries += 1;
                match self.renew(tries == 1).await {
                    // The authority may say that the new one is to be renewed at once.
                    Ok(()) => self.take_advice().await,
                    Err(error) => {
                        pause = pause_after(tries).max(self.authority.asked_pause());
                        tracing::warn!(%error, again_in = ?pause, "no new certificate");
                    }
                }
            }
            if !self.is_due() {
                tries = 0;
                let left = self.due().duration_since(SystemTime::now()).unwrap_or_default();
                pause = left.min(self.advice_due.saturating_duration_since(Instant::now()));
                pause = pause.min(LOOK);
            } else if pause.is_zero() {
                // The new one is due already: this clock or that of the authority is wrong.
                pause = pause_after(tries);
            }
            if self.write().await {
                failed_writes = 0;
            } else {
                failed_writes += 1;
                pause = pause.min(pause_after(failed_writes));
            }
            sleep(pause.max(SHORTEST_PAUSE)).await;
        }
    }

    /// When the current certificate is to be renewed; in the past without one, or if it is for other domains.
    fn due(&self) -> SystemTime {
        match &self.current {
            Some(current) if current.names == self.domains => current.due(self.window.as_ref()),
            _ => SystemTime::UNIX_EPOCH,
        }
    }

    fn is_due(&self) -> bool {
        self.due() <= SystemTime::now()
    }

    /// Asks the authority when the current certificate should be renewed (RFC 9773), if it is time for that. Many
    /// authorities do not tell.
    async fn take_advice(&mut self) {
        let Some(id) = self.current.as_ref().and_then(|current| current.id.clone()) else { return };
        if self.advice_due > Instant::now() || self.is_due() {
            return;
        }
        let asked = timeout(PATIENCE, async {
            let account = self.account().await?;
            Ok::<_, Error>(account.renewal_info(&id).await?)
        });
        let again = match asked.await.unwrap_or(Err(Error::Late)) {
            Ok((info, again)) => {
                let window = info.suggested_window;
                self.window = Some(window.start.into()..window.end.into());
                again.clamp(Duration::from_secs(60), LONGEST_PAUSE)
            }
            Err(error) => {
                tracing::debug!(%error, "the authority does not tell when to renew the certificate");
                ADVICE
            }
        };
        self.advice_due = Instant::now() + again;
    }

    /// Tries once to get a certificate.
    async fn renew(&mut self, is_first: bool) -> Result<(), Error> {
        let storage = Arc::clone(&self.storage);
        let _lock = match blocking(move || storage.lock()).await {
            Ok(None) => return Err(Error::Busy),
            Ok(lock) => lock,
            // A folder that cannot be written has no lock either. `write` tells of that.
            Err(_) => None,
        };
        // Another process may have been faster.
        let storage = Arc::clone(&self.storage);
        let found = blocking(move || storage.read(CERTIFICATE)).await.ok().flatten();
        if let Some(found) = found.and_then(|pem| Certificate::parse(&pem).ok())
            && found.names == self.domains
            && found.due(None) > SystemTime::now()
            && self.current.as_ref().is_none_or(|current| current.ends < found.ends)
        {
            self.take(found);
            return Ok(());
        }

        // An authority may refuse the second order that replaces the same certificate, so only the first says it.
        let replaced = self.current.as_ref().and_then(|current| current.id.clone());
        let replaced = replaced.filter(|_| is_first && self.window.is_some());
        let mut asked = self.order(replaced).await;
        if let Err(Error::Authority(error)) = &asked
            && authority::knows_no_account(error)
        {
            tracing::warn!(%error, "the account is gone, so there will be another one");
            self.authority.forget();
            asked = self.order(None).await;
        }
        // A refused nonce is no reason to wait (RFC 8555 6.5).
        for _ in 0..AGAIN {
            match &asked {
                Err(Error::Authority(error)) if authority::refused_nonce(error) => {}
                _ => break,
            }
            asked = self.order(None).await;
        }
        let pem = asked?;
        let certificate = Certificate::parse(&pem).map_err(Error::Certificate)?;
        if certificate.names != self.domains {
            return Err(Error::Certificate("it is for other domains".to_owned()));
        }
        self.unwritten.insert(CERTIFICATE, pem);
        // While the lock is held.
        self.write().await;
        self.take(certificate);
        Ok(())
    }

    /// Asks the authority for a certificate.
    async fn order(
        &mut self,
        replaced: Option<CertificateIdentifier<'_>>,
    ) -> Result<String, Error> {
        let account = self.account().await?;
        let asked = order::get(&account, &self.domains, replaced, &mut self.ways, &self.answers);
        let asked = timeout(PATIENCE, asked).await;
        self.answers.clear();
        asked.unwrap_or(Err(Error::Late))
    }

    /// The account, with a new file for it if it is new.
    async fn account(&mut self) -> Result<instant_acme::Account, Error> {
        let storage = Arc::clone(&self.storage);
        let (account, file) = self.authority.account(storage).await?;
        if let Some(file) = file {
            self.unwritten.insert(authority::ACCOUNT, file);
        }
        Ok(account)
    }

    /// Uses a certificate.
    fn take(&mut self, certificate: Certificate) {
        if let Err(error) = self.certificates.supply(Arc::clone(&certificate.key)) {
            tracing::error!(%error, "the certificate cannot be used");
            return;
        }
        let names = certificate.names.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
        let until = http::date::of(certificate.ends).map(tracing::field::display);
        tracing::info!(domains = names, until, "certificate in use");
        (self.current, self.window, self.advice_due) = (Some(certificate), None, Instant::now());
    }

    /// The certificate that is kept, if there is one. Blocks.
    fn kept(&self) -> Result<Option<Certificate>, String> {
        let pem = self.storage.read(CERTIFICATE).map_err(|error| error.to_string())?;
        pem.map(|pem| Certificate::parse(&pem)).transpose()
    }

    /// Writes what is not written yet. Returns whether that succeeded.
    async fn write(&mut self) -> bool {
        while let Some((name, text)) = self.unwritten.first_key_value() {
            let (storage, name, text) = (Arc::clone(&self.storage), *name, text.clone());
            let file = self.storage.path(name);
            if let Err(error) = blocking(move || storage.write(name, &text)).await {
                let (file, what) = (file.display(), "it is used, and will be written later");
                tracing::warn!(%file, %error, "cannot be written: {what}");
                return false;
            }
            self.unwritten.remove(name);
        }
        true
    }
}

/// Runs what waits for a disk on a thread that may wait.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    spawn_blocking(work).await.unwrap_or_else(|died| Err(io::Error::other(died)))
}

/// How long after so many failures in a row the next try is.
fn pause_after(failures: u32) -> Duration {
    let (first, most) = PAUSES;
    first.saturating_mul(1 << (2 * failures.saturating_sub(1)).min(16)).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_have_an_end() {
        let seconds = [1, 2, 3, 5, 6, 1000].map(|failures| pause_after(failures).as_secs());
        assert_eq!(seconds, [10, 40, 160, 2560, 3600, 3600]);
    }
}
