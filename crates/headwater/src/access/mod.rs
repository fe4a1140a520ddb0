//! Decides which peers may publish, play and observe: one place for all protocols.
//!
//! ```text
//! protocol ─ Asked ─ at_once ─┬▶ Verdict             nothing is configured, rules, signed paths, tokens,
//!                             │                      and what was found right before
//!                             └▶ Attempt ─ slowly ─▶ Verdict   hashes of passwords, the webhook, new keys
//! ```
//!
//! Most attempts are decided at once, on the event loop. Slow checks run elsewhere while the peer waits.
//! No secret is logged or told to anybody but the webhook.
//!
//! [`crate::review`] checks open sessions again and again: a session that is no longer allowed ends.
//! [`Access::reload`] takes another configuration.

mod adobe;
mod attempt;
mod failures;
mod page;
mod policy;
mod proven;
mod remote;
mod rules;
mod tokens;
mod turns;
mod webhook;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
pub(crate) use attempt::Attempt;
pub use attempt::{Asked, Credentials};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
pub use credentials::Action as Kind;
use http::net::LogId;
use ipnet::IpNet;
pub(crate) use policy::Policy;
pub use policy::Rejected;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::config;
use crate::path::StreamPath;

/// The reason for the end of a session: its permission has expired.
pub(crate) const EXPIRED: &str = "the permission has expired";

/// The reason for the end of a session: it was allowed before, and is not allowed now.
pub(crate) const REVOKED: &str = "this is no longer allowed";

/// A peer's wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action<'a> {
    /// Send media of a live stream.
    Publish(StreamPath<'a>),
    /// Get media of a stream or a title, by any delivery, or learn about it.
    Play(StreamPath<'a>),
    /// Learn about the origin as a whole: the list of its streams.
    Observe,
    /// Get the metrics.
    Measure,
}

impl<'a> Action<'a> {
    fn kind(self) -> Kind {
        match self {
            Self::Publish(_) => Kind::Publish,
            Self::Play(_) => Kind::Play,
            Self::Observe => Kind::Api,
            Self::Measure => Kind::Metrics,
        }
    }

    fn path(self) -> Option<StreamPath<'a>> {
        match self {
            Self::Publish(path) | Self::Play(path) => Some(path),
            Self::Observe | Self::Measure => None,
        }
    }
}

/// A permission.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grant {
    /// When the permission ends. Sessions that use the permission must end then.
    pub until: Option<Instant>,
    /// Whether the permission depends on an `Authorization` header. Shared caches must not keep the response.
    pub is_personal: bool,
    /// Whether the peer proved that it knows a secret, and was not let in for its address alone.
    pub by_secret: bool,
    /// Whether the webhook decided.
    pub by_hook: bool,
    /// The peer's attempt, if the peer stays for some time. The attempt is checked again and again.
    pub again: Option<Again>,
}

/// The attempt of a peer that was let in for some time. `Debug` hides it.
#[derive(Clone)]
pub struct Again(Arc<LetIn>);

struct LetIn {
    attempt: Attempt,
    /// Whether the webhook decided, now or later.
    by_hook: AtomicBool,
}

impl std::fmt::Debug for Again {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Again")
    }
}

impl Again {
    fn new(attempt: Attempt, grant: &Grant) -> Self {
        Self(Arc::new(LetIn { attempt, by_hook: AtomicBool::new(grant.by_hook) }))
    }

    /// The attempt by which the peer was let in.
    pub(crate) fn attempt(&self) -> &Attempt {
        &self.0.attempt
    }
}

impl PartialEq for Again {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Again {}

/// Why an attempt is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The peer gave no credentials.
    #[error("credentials are needed")]
    Anonymous,
    /// The peer's credentials are wrong, or not for this.
    #[error("not allowed with these credentials")]
    Wrong,
    /// The address gave too many wrong credentials.
    #[error("too many wrong credentials from this address: try again in {} s", seconds(*.0))]
    TooOften(Duration),
    /// Nothing is configured for publishing, and the address is not near.
    #[error("not allowed from this address: nothing in [access] says who may publish")]
    Foreign,
    /// The webhook or key server gives no decision now.
    #[error("this cannot be decided at present: try again")]
    Undecided,
}

/// The labels of the metric of refused attempts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Attempted {
    action: &'static str,
    protocol: &'static str,
    reason: &'static str,
}

impl Refusal {
    /// Name in metrics.
    fn name(self) -> &'static str {
        match self {
            Self::Anonymous => "anonymous",
            Self::Wrong => "wrong",
            Self::TooOften(_) => "too_often",
            Self::Foreign => "foreign",
            Self::Undecided => "undecided",
        }
    }

    /// The status of HTTP.
    pub fn status(self) -> u16 {
        match self {
            Self::Anonymous => 401,
            Self::Wrong | Self::Foreign => 403,
            Self::TooOften(_) => 429,
            Self::Undecided => 503,
        }
    }

    /// The header fields of HTTP that go with the status: how to give credentials (RFC 9110 11.6.1), or when to try
    /// again.
    pub(crate) fn fields(self) -> Vec<(&'static str, String)> {
        match self {
            Self::Anonymous => {
                ["Basic realm=\"headwater\", charset=\"UTF-8\"", "Bearer realm=\"headwater\""]
                    .map(|how| ("www-authenticate", how.to_owned()))
                    .into()
            }
            Self::TooOften(wait) => vec![("retry-after", seconds(wait).to_string())],
            Self::Undecided => vec![("retry-after", "5".to_owned())],
            Self::Wrong | Self::Foreign => Vec::new(),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status()).unwrap_or(StatusCode::FORBIDDEN);
        let mut response = (status, format!("{self}\n")).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        for (name, value) in self.fields() {
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.append(HeaderName::from_static(name), value);
            }
        }
        response
    }
}

/// Whole seconds, at least one.
fn seconds(time: Duration) -> u64 {
    (time.as_secs() + u64::from(time.subsec_nanos() > 0)).max(1)
}

/// Fetches the keys of tokens from their URL, to find out whether that works. Takes 10 s at most.
pub(crate) async fn fetch_keys(config: &config::Jwt) -> Result<(), String> {
    tokens::fetch(config).await
}

/// A decision: the permission, or the reason for the refusal.
pub type Verdict = Result<Grant, Refusal>;

/// Decides which peers may do which actions.
pub struct Access {
    policy: ArcSwap<Policy>,
    /// Tells that the policy was replaced.
    changed: watch::Sender<()>,
    /// The runtime of slow checks, which must not run on an event loop that serves viewers.
    runtime: Option<Handle>,
    /// How many attempts were refused.
    pub(crate) refused: Family<Attempted, Counter>,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Access")
    }
}

impl Access {
    /// Reads the keys that the configuration names. Slow checks will run on the caller's runtime.
    ///
    /// # Errors
    /// The option that cannot be used, and why.
    pub fn load(config: &config::Access) -> Result<Self, String> {
        Ok(Self {
            policy: ArcSwap::from_pointee(Policy::load(config, None)?),
            changed: watch::Sender::default(),
            runtime: Handle::try_current().ok(),
            refused: Family::default(),
        })
    }

    /// Decides by another configuration from now on.
    ///
    /// Reads files. Addresses that guessed stay slowed down. Open sessions are checked again at once.
    ///
    /// # Errors
    /// The option that cannot be used, and why. Then nothing changes.
    pub fn reload(&self, config: &config::Access) -> Result<(), String> {
        self.policy.store(Arc::new(Policy::load(config, Some(&self.policy()))?));
        self.changed.send_replace(());
        self.warn();
        Ok(())
    }

    /// Warns the operator of probable mistakes in the configuration.
    pub fn warn(&self) {
        self.policy().warn();
    }

    /// Whether there are signed paths.
    pub(crate) fn signs(&self) -> bool {
        self.policy.load().signs()
    }

    /// Keeps the keys of tokens fresh, until the future is dropped.
    pub async fn keep_fresh(&self) {
        let mut changed = self.changed.subscribe();
        loop {
            let policy = self.policy();
            let keeping = async {
                policy.keep_fresh().await;
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = keeping => {}
                changed = changed.changed() => {
                    // `self` has the sender, so this does not happen.
                    let Ok(()) = changed else { return };
                }
            }
        }
    }

    /// Tells whenever another configuration decides.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// The policy that decides now.
    pub(crate) fn policy(&self) -> Arc<Policy> {
        self.policy.load_full()
    }

    /// Checks the query with which an RTMP peer connects to an application.
    ///
    /// The peer has not yet said whether it plays or publishes. Returns the query that counts. If the peer
    /// proved by Adobe's exchange that it knows a user and password, this query has them.
    ///
    /// # Errors
    /// The peer must connect again, and is told how.
    pub fn connects(&self, query: String, program: &str, ip: IpAddr) -> Result<String, Rejected> {
        self.policy().connects(query, program, ip.to_canonical()).inspect_err(|rejected| {
            if let Some(why) = rejected.why {
                let _ = self.counted(Kind::Publish, "rtmp", Err(why));
            }
        })
    }

    /// Decides, however long it takes.
    pub(crate) async fn may(&self, asked: &Asked<'_>) -> Verdict {
        match self.at_once(asked) {
            Ok(verdict) => verdict,
            Err(attempt) => self.finish(attempt).await,
        }
    }

    /// Decides an attempt that [`Self::at_once`] could not decide.
    ///
    /// The decision is completed even if nobody waits for it any more: a peer that went away has guessed all
    /// the same.
    pub(crate) async fn finish(&self, attempt: Box<Attempt>) -> Verdict {
        let (kind, protocol) = (attempt.kind, attempt.protocol);
        let lasting = attempt.lasts.then(|| (*attempt).clone());
        let decided = LogId::current().scope(self.policy().slowly(attempt));
        let task = match &self.runtime {
            Some(runtime) => runtime.spawn(decided),
            None => tokio::spawn(decided),
        };
        let verdict = task.await.unwrap_or(Err(Refusal::Undecided));
        self.counted(kind, protocol, verdict).map(|grant| {
            let again = lasting.map(|attempt| Again::new(attempt, &grant));
            Grant { again, ..grant }
        })
    }

    /// Counts a verdict if it is a refusal.
    fn counted(&self, kind: Kind, protocol: &'static str, verdict: Verdict) -> Verdict {
        if let Err(refusal) = verdict {
            let by = Attempted { action: kind.name(), protocol, reason: refusal.name() };
            self.refused.get_or_create(&by).inc();
        }
        verdict
    }

    /// Whether a peer gives a token or a known secret that allows this. No guess is made or counted.
    pub(crate) fn has_known_secret(&self, asked: &Asked<'_>) -> bool {
        self.policy.load().has_known_secret(&Attempt::read(asked))
    }

    /// Decides if the decision takes no time.
    ///
    /// # Errors
    /// The decision takes time. [`Self::finish`] makes it.
    pub(crate) fn at_once(&self, asked: &Asked<'_>) -> Result<Verdict, Box<Attempt>> {
        let verdict = self.policy.load().at_once(asked)?;
        let verdict = self.counted(asked.action.kind(), asked.protocol, verdict);
        Ok(verdict.map(|grant| {
            let again = asked.lasts.then(|| Again::new(Attempt::read(asked), &grant));
            Grant { again, ..grant }
        }))
    }
}

/// Seconds since 1970, by the system's clock: others make tokens and signed paths by that clock.
pub(crate) fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Whether a peer may see the addresses of publishers.
///
/// The peer's address must be in these networks, and the peer must ask for itself.
pub(crate) fn may_administer(networks: &[IpNet], peer: SocketAddr, with: Credentials<'_>) -> bool {
    with.own && contains(networks, peer.ip().to_canonical())
}

/// The listener at which an operator's request arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// A listener for viewers.
    Public,
    /// The listener for operators.
    Control,
}

/// Whether a request may be an operator's at all. The rules of `[access]` apply as well.
///
/// The request must not come from a page of another site, nor from a site that points its name to this
/// machine (DNS rebinding). Programs that speak HTTP/1.0 need not name a host.
pub(crate) fn may_operate(
    control: &config::Control,
    door: Door,
    peer: SocketAddr,
    (uri, headers): (&Uri, &HeaderMap),
) -> bool {
    let host = page::host(uri, headers);
    let is_ours = match &host {
        Some(host) => page::is_own_page(host, headers),
        None => page::is_nameless(uri, headers),
    };
    let is_named = || {
        host.as_ref().is_none_or(|host| {
            page::is_own_name(host)
                || control.hosts.iter().any(|name| name.eq_ignore_ascii_case(host.host()))
        })
    };
    is_ours
        && match door {
            Door::Control => {
                let is_open = control.hosts.is_empty() && !control.listen.ip().is_loopback();
                is_open || is_named()
            }
            Door::Public => {
                let is_near = contains(&control.admin, peer.ip().to_canonical());
                control.is_by_default() && is_near && !page::is_forwarded(headers) && is_named()
            }
        }
}

fn contains(networks: &[IpNet], address: IpAddr) -> bool {
    networks.iter().any(|network| network.contains(&address))
}

/// The host that a request names, in HTTP/2 too. `None` if it names several or none.
pub(crate) fn host(uri: &Uri, headers: &HeaderMap) -> Option<Authority> {
    page::host(uri, headers)
}

/// Whether no page of another origin sent the request, as far as browsers tell.
pub(crate) fn is_of_own_page(uri: &Uri, headers: &HeaderMap) -> bool {
    host(uri, headers).is_some_and(|host| page::is_own_page(&host, headers))
}

#[cfg(test)]
pub(crate) mod tests;
