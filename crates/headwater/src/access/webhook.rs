//! A server that decides who may publish and play.
//!
//! It gets a `POST` with a [`Question`] in JSON, whose fields have the names that they have in the HTTP authentication
//! of MediaMTX. The status alone decides: 200 to 299 allows, 401 and 403 refuse, and with anything else nobody has
//! decided. So no body is read.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_lc_rs::hmac;
use bytes::Bytes;
use credentials::Action;
use reqwest::{Client, StatusCode, Url, header};
use serde::Serialize;
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::{Instant, timeout};

use crate::client::{self, Unusable};

/// Most answers that are kept.
const MOST_KEPT: usize = 10_000;
/// Most exchanges at once.
const EXCHANGES: usize = 64;

/// What the server is asked. `Debug` hides what may be secret.
#[derive(Clone, PartialEq, Eq, Hash, Serialize)]
pub(super) struct Question {
    pub(super) action: Action,
    /// The path of a stream or a title.
    pub(super) path: String,
    /// The name of the protocol.
    pub(super) protocol: &'static str,
    /// The peer's address.
    pub(super) ip: IpAddr,
    /// Empty if the peer gave none, as the three below.
    pub(super) user: String,
    pub(super) password: String,
    pub(super) token: String,
    /// The part of a URL after the `?`.
    pub(super) query: String,
    /// Whether the peer was let in before, and goes on if it still may.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) recheck: bool,
}

impl fmt::Debug for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { action, path, protocol, ip, .. } = self;
        write!(f, "{} {path:?} by {protocol} from {ip}", action.name())
    }
}

/// The server's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    Allowed,
    Refused,
    /// Nobody decided: why, for the log.
    None(String),
}

/// The server, and its answers that still hold.
pub(super) struct Webhook {
    client: Client,
    url: Url,
    /// For how long one exchange may take, with the wait for its turn.
    timeout: Duration,
    turns: Semaphore,
    /// Keeps questions, which have passwords, out of the cache: it has their codes only.
    key: hmac::Key,
    cache: Mutex<Cache>,
}

impl Webhook {
    /// Asks nothing yet. An answer holds for `cache`, which may be zero.
    ///
    /// # Errors
    /// The URL is not one of HTTP, or TLS or random numbers are not to be had.
    pub(super) fn new(url: &str, timeout: Duration, cache: Duration) -> Result<Self, Unusable> {
        let (client, url) = client::new(url, &[])?;
        let mut key = [0; 32];
        aws_lc_rs::rand::fill(&mut key).map_err(|_| Unusable::NoRandom)?;
        Ok(Self {
            client,
            url,
            timeout,
            turns: Semaphore::new(EXCHANGES),
            key: hmac::Key::new(hmac::HMAC_SHA256, &key),
            cache: Mutex::new(Cache { holds: cache, ..Cache::default() }),
        })
    }

    /// Asks, unless an answer still holds. Many who ask the same at the same time share one exchange. Takes no longer
    /// than the time-out.
    pub(super) async fn ask(&self, question: Question) -> Answer {
        let body = written(&question);
        let slot = self.cache().slot(self.code(&body));
        // Its time begins here. Those who wait for somebody else's exchange came later than that began, so they wait
        // no longer than they may. If its owner goes away, the next of them begins anew with the time that is left.
        let exchange = timeout(self.timeout, self.exchange(body));
        let exchange = async {
            let late = |_| Answer::None(format!("no answer in {:?}", self.timeout));
            (exchange.await.unwrap_or_else(late), Instant::now())
        };
        slot.get_or_init(|| exchange).await.0.clone()
    }

    /// An answer that still holds.
    pub(super) fn known(&self, question: &Question) -> Option<Answer> {
        let code = self.code(&written(question));
        let cache = self.cache();
        cache.slots.get(&code).and_then(|slot| cache.answer(slot)).cloned()
    }

    async fn exchange(&self, body: Bytes) -> Answer {
        // Nobody closes the semaphore.
        let _turn = self.turns.acquire().await;
        let request = self.client.post(self.url.clone());
        let request = request.header(header::CONTENT_TYPE, "application/json").body(body);
        // The client closes a connection with a body that nobody reads, unless all of it is there already.
        match request.send().await.map(|response| response.status()) {
            Ok(status) if status.is_success() => Answer::Allowed,
            Ok(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => Answer::Refused,
            Ok(status) => Answer::None(format!("the status is {status}")),
            Err(error) => Answer::None(client::reason(error)),
        }
    }

    fn code(&self, body: &[u8]) -> Code {
        let mut code = Code::default();
        code.copy_from_slice(hmac::sign(&self.key, body).as_ref());
        code
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn written(question: &Question) -> Bytes {
    serde_json::to_vec(question).expect("texts and an address can be written").into()
}

/// Stands for a question: nobody who reads it can try passwords on it without the process's key.
type Code = [u8; 32];

/// An answer and its time, or the place that it will have.
type Slot = OnceCell<(Answer, Instant)>;

/// Answers, and the places of those that somebody waits for.
#[derive(Default)]
struct Cache {
    /// For how long an answer holds.
    holds: Duration,
    slots: HashMap<Code, Arc<Slot>>,
    /// All slots, the oldest first, and some that were replaced.
    by_age: VecDeque<(Code, Arc<Slot>)>,
}

impl Cache {
    /// The slot of a question: that with an answer that holds or that will come, or a new one.
    fn slot(&mut self, code: Code) -> Arc<Slot> {
        if let Some(slot) = self.slots.get(&code).filter(|slot| self.is_useful(slot)) {
            return Arc::clone(slot);
        }
        while let Some((code, slot)) = self.by_age.front()
            && (self.by_age.len() >= MOST_KEPT || !self.is_useful(slot))
        {
            if self.slots.get(code).is_some_and(|current| Arc::ptr_eq(current, slot)) {
                self.slots.remove(code);
            }
            self.by_age.pop_front();
        }
        let slot = Arc::<Slot>::default();
        self.slots.insert(code, Arc::clone(&slot));
        self.by_age.push_back((code, Arc::clone(&slot)));
        slot
    }

    fn is_useful(&self, slot: &Slot) -> bool {
        !slot.initialized() || self.answer(slot).is_some()
    }

    /// The answer in a slot, if it still holds. One that decides nothing never does.
    fn answer<'s>(&self, slot: &'s Slot) -> Option<&'s Answer> {
        let (answer, at) = slot.get()?;
        let holds = !matches!(answer, Answer::None(_)) && at.elapsed() < self.holds;
        holds.then_some(answer)
    }
}

#[cfg(test)]
mod tests;
