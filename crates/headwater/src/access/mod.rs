//! Who may publish, play and observe: one place for all protocols.
//!
//! ```text
//! protocol ─ Asked ─ at_once ─┬▶ Verdict             nothing is configured, rules, signed paths, tokens,
//!                             │                      and what was found right before
//!                             └▶ Attempt ─ slowly ─▶ Verdict   hashes of passwords, the webhook, new keys
//! ```
//!
//! Most is decided at once, on the event loop. What takes long happens elsewhere while the peer waits.
//! No secret is logged or told to anybody but the webhook.

mod attempt;
mod failures;
mod page;
mod proven;
mod remote;
mod rules;
mod tokens;
mod turns;
mod webhook;

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(crate) use attempt::Attempt;
pub use attempt::{Asked, Credentials};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
pub use credentials::Action as Kind;
use credentials::jwt::Refused;
use credentials::signed::Signer;
use failures::Failures;
use http::net::{LogId, LogLimit};
use ipnet::IpNet;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use rules::{Rules, Tried};
use tokens::{Token, Tokens};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::Instant;
use turns::Turns;
use webhook::{Answer, Question, Webhook};

use crate::config;
use crate::config::OnFailure;
use crate::path::StreamPath;

/// What is said of those whose permission ended.
pub(crate) const EXPIRED: &str = "the permission has expired";

/// Hashes of passwords that are computed at a time. Each takes a processor and 19 MiB.
const HASHES: usize = 2;

/// Lines about a webhook that does not decide: so many in so much time.
const LINES: (u32, Duration) = (5, Duration::from_secs(60));

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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Grant {
    /// When it ends. Whoever plays or publishes by it must end then.
    pub until: Option<Instant>,
    /// Whether it is for whoever sent this `Authorization` header: shared caches must not keep what it gives.
    pub is_personal: bool,
    /// Whether the peer proved that it knows a secret, and was not let in for its address alone.
    pub by_secret: bool,
}

/// Why somebody may not.
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
    /// Who is asked does not decide at present.
    #[error("this cannot be decided at present: try again")]
    Undecided,
}

/// What somebody was refused.
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

/// Fetches the keys of tokens from their URL: whether they can be had. Takes 10 s at most.
pub(crate) async fn fetch_keys(config: &config::Jwt) -> Result<(), String> {
    tokens::fetch(config).await
}

/// What is decided.
pub type Verdict = Result<Grant, Refusal>;

/// Who may do what.
pub struct Access {
    publish_from: Vec<IpNet>,
    rules: Rules,
    signer: Option<Signer>,
    tokens: Option<(Tokens, Vec<Kind>)>,
    webhook: Option<(Webhook, config::Webhook)>,
    failures: Failures,
    hashing: Semaphore,
    turns: Turns,
    /// Lines about a webhook that does not decide.
    told: Mutex<LogLimit>,
    /// Where what takes time happens: not on an event loop that serves viewers.
    runtime: Option<Handle>,
    /// How often somebody was refused.
    pub(crate) refused: Family<Attempted, Counter>,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Access")
    }
}

impl Access {
    /// Reads the keys that the configuration names. What takes long will happen on the runtime of the caller.
    ///
    /// # Errors
    /// The option that cannot be used, and why.
    pub fn load(config: &config::Access) -> Result<Self, String> {
        let option = |name: &'static str| move |why: String| format!("access.{name}: {why}");
        let signer = match config.signing_key.as_os_str().is_empty() {
            true => None,
            false => Some(config::signing_key(&config.signing_key).map_err(option("signing_key"))?),
        };
        let tokens = match &config.jwt {
            jwt if jwt.keys.is_empty() => None,
            jwt => Some((Tokens::new(jwt).map_err(option("jwt.keys"))?, jwt.actions.clone())),
        };
        let webhook = match &config.webhook {
            hook if hook.url.is_empty() => None,
            hook => {
                let asks = Webhook::new(&hook.url, hook.timeout.into(), hook.cache.into());
                let asks =
                    asks.map_err(|error| error.to_string()).map_err(option("webhook.url"))?;
                Some((asks, hook.clone()))
            }
        };
        Ok(Self {
            publish_from: config.publish_from.clone(),
            rules: Rules::new(&config.rule),
            signer,
            tokens,
            webhook,
            failures: Failures::new(config.max_failures),
            hashing: Semaphore::new(HASHES),
            turns: Turns::default(),
            told: Mutex::new(LogLimit::new(LINES.0, LINES.1)),
            runtime: Handle::try_current().ok(),
            refused: Family::default(),
        })
    }

    /// Tells the operator of what is probably a mistake.
    pub fn warn(&self) {
        if self.is_closed(Kind::Play) && !self.is_closed(Kind::Api) {
            tracing::warn!(
                "anybody may list the streams: [access] is about play, and not about api"
            );
        }
    }

    /// Whether there are signed paths.
    pub(crate) fn signs(&self) -> bool {
        self.signer.is_some()
    }

    /// Keeps what is fetched from elsewhere fresh, until the future is dropped.
    pub async fn keep_fresh(&self) {
        if let Some((tokens, _)) = &self.tokens {
            tokens.keep_fresh().await;
        }
    }

    /// Decides, however long it takes.
    pub(crate) async fn may(self: &Arc<Self>, asked: &Asked<'_>) -> Verdict {
        match self.at_once(asked) {
            Ok(verdict) => verdict,
            Err(attempt) => self.finish(attempt).await,
        }
    }

    /// Decides what [`Self::at_once`] did not. It is decided to the end, though nobody may wait for it any more: whoever
    /// goes away has guessed all the same.
    pub(crate) async fn finish(self: &Arc<Self>, attempt: Box<Attempt>) -> Verdict {
        let (kind, protocol) = (attempt.kind, attempt.protocol);
        let decided = LogId::current().scope(Arc::clone(self).slowly(attempt));
        let task = match &self.runtime {
            Some(runtime) => runtime.spawn(decided),
            None => tokio::spawn(decided),
        };
        self.counted(kind, protocol, task.await.unwrap_or(Err(Refusal::Undecided)))
    }

    /// Counts a verdict if it is a refusal.
    fn counted(&self, kind: Kind, protocol: &'static str, verdict: Verdict) -> Verdict {
        if let Err(refusal) = verdict {
            let by = Attempted { action: kind.name(), protocol, reason: refusal.name() };
            self.refused.get_or_create(&by).inc();
        }
        verdict
    }

    /// Decides if that takes no time.
    ///
    /// # Errors
    /// It takes time: [`Self::slowly`] decides.
    pub(crate) fn at_once(&self, asked: &Asked<'_>) -> Result<Verdict, Box<Attempt>> {
        let verdict = self.know(asked)?;
        Ok(self.counted(asked.action.kind(), asked.protocol, verdict))
    }

    fn know(&self, asked: &Asked<'_>) -> Result<Verdict, Box<Attempt>> {
        let kind = asked.action.kind();
        if !self.is_closed(kind) {
            let is_near = || contains(&self.publish_from, asked.peer.ip().to_canonical());
            let may = kind != Kind::Publish || is_near();
            return Ok(if may { Ok(Grant::default()) } else { Err(Refusal::Foreign) });
        }
        let now = unix_now();
        // Players ask many times a second, so no more is read for them than their path.
        if let Some(token) = asked.credentials.signed
            && let Some(path) = asked.action.path()
            && let Some(grant) = self.signed((kind, &path.to_string()), token, asked.peer.ip(), now)
        {
            return Ok(Ok(grant));
        }
        let attempt = Attempt::read(asked);
        let verdict = self.look(&attempt, now);
        tracing::trace!(action = ?asked.action, peer = %asked.peer, ?verdict, "access");
        verdict.ok_or_else(|| Box::new(attempt))
    }

    /// Whether credentials of any kind are configured for an action.
    pub(crate) fn is_closed(&self, kind: Kind) -> bool {
        kind == Kind::Play && self.signer.is_some()
            || self.rules.names(kind)
            || self.tokens.as_ref().is_some_and(|(_, kinds)| kinds.contains(&kind))
            || self.webhook.as_ref().is_some_and(|(_, hook)| hook.actions.contains(&kind))
    }

    /// A permission without an end.
    fn grant(&self, attempt: &Attempt) -> Grant {
        let by_secret = !attempt.is_anonymous() && !self.rules.is_open_to(attempt);
        Grant { until: None, is_personal: attempt.is_personal, by_secret }
    }

    /// The server that decides about this, if one does.
    fn hook(&self, attempt: &Attempt) -> Option<&(Webhook, config::Webhook)> {
        self.webhook.as_ref().filter(|(_, hook)| hook.actions.contains(&attempt.kind))
    }

    /// Decides by what is known, if the path is not signed for this. [`Self::slowly`] has the same order.
    fn look(&self, attempt: &Attempt, now: u64) -> Option<Verdict> {
        // It cannot be guessed, so it counts however often others of the address tried.
        let token = self.token(attempt, now);
        if let Some(Ok(grant)) = token {
            return Some(Ok(grant));
        }
        let answer =
            self.hook(attempt).map(|(hook, terms)| (hook.known(&question(attempt)), terms));
        if let Some(wait) = self.failures.wait(attempt.ip) {
            let is_known =
                self.rules.known(attempt) || matches!(answer, Some((Some(Answer::Allowed), _)));
            return Some(match answer {
                _ if is_known => Ok(self.grant(attempt)),
                // Nothing was tried: there is no reason to wait.
                None if attempt.is_anonymous() => Err(Refusal::Anonymous),
                _ => Err(Refusal::TooOften(wait)),
            });
        }
        match self.rules.look(attempt) {
            Tried::Right => return Some(Ok(self.grant(attempt))),
            Tried::Slow => return None,
            Tried::Wrong => {}
        }
        if let Some(Err(UnknownKey)) = token {
            return None;
        }
        match answer {
            None => Some(Err(self.refuse(attempt))),
            Some((answer, terms)) => Some(self.obey(answer?, terms, attempt)),
        }
    }

    /// Decides what [`Self::look`] did not, in the same order.
    async fn slowly(self: Arc<Self>, attempt: Box<Attempt>) -> Verdict {
        let Some(_turn) = self.turns.take(attempt.ip).await else {
            return Err(Refusal::TooOften(Duration::from_secs(1)));
        };
        if let Some(Err(UnknownKey)) = self.token(&attempt, unix_now())
            && let Some((tokens, _)) = &self.tokens
        {
            tokens.fetch_again().await;
            if let Some(Ok(grant)) = self.token(&attempt, unix_now()) {
                return Ok(grant);
            }
        }
        if let Tried::Slow = self.rules.look(&attempt) {
            let turn = self.hashing.acquire().await;
            // Others of the address have guessed meanwhile.
            if let Some(wait) = self.failures.wait(attempt.ip) {
                return Err(Refusal::TooOften(wait));
            }
            let (access, tried) = (Arc::clone(&self), attempt.clone());
            let found = spawn_blocking(move || access.rules.find_out(&tried)).await;
            drop(turn);
            if found.unwrap_or(false) {
                return Ok(self.grant(&attempt));
            }
        }
        let Some((hook, terms)) = self.hook(&attempt) else { return Err(self.refuse(&attempt)) };
        let question = question(&attempt);
        if hook.known(&question).is_none()
            && let Some(wait) = self.failures.wait(attempt.ip)
        {
            return Err(Refusal::TooOften(wait));
        }
        let answer = hook.ask(question).await;
        self.obey(answer, terms, &attempt)
    }

    fn obey(&self, answer: Answer, terms: &config::Webhook, attempt: &Attempt) -> Verdict {
        match answer {
            // It may have allowed the address, whatever was given besides.
            Answer::Allowed => Ok(Grant { by_secret: false, ..self.grant(attempt) }),
            Answer::Refused => Err(self.refuse(attempt)),
            Answer::None(why) => {
                let is_allowed = terms.on_failure == OnFailure::Allow;
                let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(left_out) = told.take(std::time::Instant::now()) {
                    let (action, path) = (attempt.kind.name(), &attempt.path);
                    let does = if is_allowed { "allowed" } else { "refused" };
                    tracing::warn!(
                        action, path, ip = %attempt.ip, why, does, left_out,
                        "the webhook does not decide"
                    );
                }
                let grant = Grant { by_secret: false, ..self.grant(attempt) };
                if is_allowed { Ok(grant) } else { Err(Refusal::Undecided) }
            }
        }
    }

    /// Counts wrong credentials.
    fn refuse(&self, attempt: &Attempt) -> Refusal {
        if attempt.is_anonymous() {
            return Refusal::Anonymous;
        }
        if attempt.guesses() || !self.is_genuine(attempt) {
            self.failures.count(attempt.ip);
        }
        let action = attempt.kind.name();
        tracing::debug!(action, path = attempt.path, ip = %attempt.ip, "wrong credentials");
        Refusal::Wrong
    }

    /// Whether a signed path or a token is ours, though it does not allow this, or not any more. Players go on to ask
    /// after the time of theirs is over: that is no guess.
    fn is_genuine(&self, attempt: &Attempt) -> bool {
        let is_signed = |signer: &Signer| signer.check(&attempt.signed).is_ok();
        let is_token = |(tokens, _): &(Tokens, _)| match tokens.look(&attempt.token, unix_now()) {
            Token::Good(_) => true,
            Token::Bad(why) => why == Refused::Expired,
            Token::UnknownKey | Token::NoKeys => false,
        };
        self.signer.as_ref().is_some_and(is_signed) || self.tokens.as_ref().is_some_and(is_token)
    }

    /// The permission of a signed path. It cannot be guessed, so it counts however often others of the address tried.
    fn signed(
        &self,
        (kind, path): (Kind, &str),
        token: &str,
        ip: IpAddr,
        now: u64,
    ) -> Option<Grant> {
        let permit = self.signer.as_ref()?.check(token).ok()?;
        let is_allowed = kind == Kind::Play && permit.allows(path, ip, now);
        let until = permit.expires.and_then(|at| at_unix(at, now));
        is_allowed.then_some(Grant { until, is_personal: false, by_secret: true })
    }

    /// The permission of a token.
    fn token(&self, attempt: &Attempt, now: u64) -> Option<Result<Grant, UnknownKey>> {
        let kind = attempt.kind;
        let (tokens, kinds) = self.tokens.as_ref()?;
        if attempt.token.is_empty() || !kinds.contains(&kind) {
            return None;
        }
        match tokens.look(&attempt.token, now) {
            Token::Good(claims) if claims.allows(kind, &attempt.path) => {
                let until = claims.expires.and_then(|until| at_unix(until, now));
                let is_personal = attempt.is_personal;
                Some(Ok(Grant { until, is_personal, by_secret: true }))
            }
            Token::UnknownKey | Token::NoKeys => Some(Err(UnknownKey)),
            Token::Good(_) => None,
            Token::Bad(why) => {
                tracing::debug!(path = attempt.path, ip = %attempt.ip, %why, "token refused");
                None
            }
        }
    }
}

/// The set of keys may have the key of a token by now.
struct UnknownKey;

/// A time in seconds since 1970, which is `now`. One beyond all limits is no time.
fn at_unix(at: u64, now: u64) -> Option<Instant> {
    Instant::now().checked_add(Duration::from_secs(at.saturating_sub(now)))
}

/// Seconds since 1970. Tokens and signed paths are made by others, by the clock that the system has.
pub(crate) fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// What the webhook is asked. What a low-latency player asks for anew with each reload is no part of it, so that an answer
/// holds for the player.
fn question(attempt: &Attempt) -> Question {
    let Attempt { kind, path, protocol, ip, user, password, key, token, query, .. } =
        attempt.clone();
    let pairs = query.split('&').filter(|pair| !pair.starts_with("_HLS_"));
    let query = pairs.collect::<Vec<_>>().join("&");
    let password = if password.is_empty() { key } else { password };
    Question { action: kind, path, protocol, ip, user, password, token, query }
}

/// Whether a peer may see the addresses of publishers: only with an address in these networks, and if it asks for
/// itself.
pub(crate) fn may_administer(networks: &[IpNet], peer: SocketAddr, with: Credentials<'_>) -> bool {
    with.own && contains(networks, peer.ip().to_canonical())
}

/// Where a request of an operator comes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// By a listener of the viewers.
    Public,
    /// By that of the operators.
    Control,
}

/// Whether a request may be for operators at all: what `[access]` says counts besides. No page of another site may have
/// sent it, nor one whose owner points its name to this machine (DNS rebinding).
pub(crate) fn may_operate(
    control: &config::Control,
    door: Door,
    peer: SocketAddr,
    (uri, headers): (&Uri, &HeaderMap),
) -> bool {
    let Some(host) = page::host(uri, headers) else { return false };
    let is_named = || {
        page::is_own_name(&host)
            || control.hosts.iter().any(|name| name.eq_ignore_ascii_case(host.host()))
    };
    page::is_own_page(&host, headers)
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
