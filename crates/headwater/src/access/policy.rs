//! Who may do what, by one configuration.
//!
//! Most is decided at once, on the event loop. What takes long happens elsewhere while the peer waits.

use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use credentials::jwt::Refused;
use credentials::signed::Signer;
use http::net::LogLimit;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::adobe::{Adobe, Step};
use super::attempt::has_credentials;
use super::failures::Failures;
use super::rules::{Rules, Tried};
use super::tokens::{Token, Tokens};
use super::turns::Turns;
use super::webhook::{Answer, Question, Webhook};
use super::{Again, Asked, Attempt, Grant, Kind, Refusal, Verdict, contains, unix_now};
use crate::config;
use crate::config::OnFailure;

/// Hashes of passwords that are computed at a time. Each takes a processor and 19 MiB.
pub(super) const HASHES: usize = 2;

/// Lines about a webhook that does not decide: so many in so much time.
const LINES: (u32, Duration) = (5, Duration::from_secs(60));

/// What the name of an encoder's program begins with, whoever made it.
const ENCODER: &str = "FMLE/";

/// Why an RTMP peer must connect again.
#[derive(Debug)]
pub struct Rejected {
    /// What the peer is told.
    pub told: String,
    /// Why, if it was for its credentials.
    pub why: Option<Refusal>,
}

/// Who may do what, by one configuration.
pub(crate) struct Policy {
    config: config::Access,
    rules: Rules,
    signer: Option<Arc<Signer>>,
    /// Asks encoders for user and password, if it is to.
    adobe: Option<Adobe>,
    tokens: Option<Arc<Tokens>>,
    webhook: Option<Arc<Webhook>>,
    /// Whose signed paths and tokens were good under the configuration before: players that still have them do not guess.
    former: (Option<Arc<Signer>>, Option<Arc<Tokens>>),
    failures: Arc<Failures>,
    hashing: Semaphore,
    turns: Turns,
    /// Lines about a webhook that does not decide.
    told: Mutex<LogLimit>,
}

impl Policy {
    /// Reads the keys that the configuration names. What is the same as `before` goes on with all that it knows: which
    /// secrets were right, the keys from a URL, the webhook's answers, who guessed.
    ///
    /// # Errors
    /// The option that cannot be used, and why.
    pub(super) fn load(config: &config::Access, before: Option<&Self>) -> Result<Self, String> {
        let option = |name: &'static str| move |why: String| format!("access.{name}: {why}");
        let before = |is_same: fn(&config::Access, &config::Access) -> bool| {
            before.filter(|before| is_same(&before.config, config))
        };
        let signer = match config.signing_key.as_os_str().is_empty() {
            true => None,
            false => {
                let signer = config::signing_key(&config.signing_key);
                Some(Arc::new(signer.map_err(option("signing_key"))?))
            }
        };
        let jwt = &config.jwt;
        // A file may have other keys now.
        let same_url = before(|before, now| before.jwt == now.jwt && config::is_url(&now.jwt.keys));
        let tokens = match same_url {
            Some(before) => before.tokens.clone(),
            None if jwt.keys.is_empty() => None,
            None => Some(Arc::new(Tokens::new(jwt).map_err(option("jwt.keys"))?)),
        };
        let hook = &config.webhook;
        let webhook = match before(|before, now| before.webhook == now.webhook) {
            Some(before) => before.webhook.clone(),
            None if hook.url.is_empty() => None,
            None => {
                let asks = Webhook::new(&hook.url, hook.timeout.into(), hook.cache.into());
                let asks = asks.map_err(|error| error.to_string());
                Some(Arc::new(asks.map_err(option("webhook.url"))?))
            }
        };
        let rules = Rules::new(&config.rule, before(|_, _| true).map(|before| &before.rules));
        let failures = before(|before, now| before.max_failures == now.max_failures).map_or_else(
            || Arc::new(Failures::new(config.max_failures)),
            |before| Arc::clone(&before.failures),
        );
        let former = before(|_, _| true).map(|it| (it.signer.clone(), it.tokens.clone()));
        Ok(Self {
            config: config.clone(),
            former: former.unwrap_or_default(),
            rules,
            adobe: config.rtmp_challenge.then(Adobe::new),
            signer,
            tokens,
            webhook,
            failures,
            hashing: Semaphore::new(HASHES),
            turns: Turns::default(),
            told: Mutex::new(LogLimit::new(LINES.0, LINES.1)),
        })
    }

    /// Tells the operator of what is probably a mistake.
    pub(super) fn warn(&self) {
        if self.is_closed(Kind::Play) && !self.is_closed(Kind::Api) {
            tracing::warn!(
                "anybody may list the streams: [access] is about play, and not about api"
            );
        }
    }

    /// Whether there are signed paths.
    pub(super) fn signs(&self) -> bool {
        self.signer.is_some()
    }

    /// Keeps what is fetched from elsewhere fresh, until the future is dropped.
    pub(super) async fn keep_fresh(&self) {
        if let Some(tokens) = &self.tokens {
            tokens.keep_fresh().await;
        }
    }

    /// See [`super::Access::connects`].
    pub(super) fn connects(
        &self,
        query: String,
        program: &str,
        ip: IpAddr,
    ) -> Result<String, Rejected> {
        let Some(adobe) = &self.adobe else { return Ok(query) };
        let told = |told| Err(Rejected { told, why: None });
        let refused = |why| Err(Rejected { told: Adobe::refuse(), why: Some(why) });
        let now = unix_now();
        match Step::of(&query) {
            Step::Nothing => {
                let is_encoder = program.starts_with(ENCODER);
                let is_open = !self.is_closed(Kind::Publish) || self.rules.are_open_from(ip);
                let must = is_encoder && !is_open && !has_credentials(&query);
                if must { told(Adobe::ask()) } else { Ok(query) }
            }
            Step::Named(user) => told(adobe.challenge(user, ip, now)),
            Step::Unknown => refused(Refusal::Wrong),
            Step::Answered(answer) if !adobe.holds(&answer, ip, now) => {
                told(adobe.challenge(answer.user, ip, now))
            }
            Step::Answered(answer) => {
                let wait = self.failures.wait(ip);
                let is_right = |password: &str| adobe.knows(&answer, password);
                let right = self.rules.password((answer.user, ip), wait.is_some(), is_right);
                match (right, wait) {
                    (Some(password), _) => {
                        let [user, password] = [answer.user, password].map(percent_encoded);
                        Ok(format!("user={user}&password={password}"))
                    }
                    (None, Some(wait)) => refused(Refusal::TooOften(wait)),
                    (None, None) => {
                        self.failures.count(ip);
                        refused(Refusal::Wrong)
                    }
                }
            }
        }
    }

    /// Decides if that takes no time.
    ///
    /// # Errors
    /// It takes time: [`Self::slowly`] decides.
    pub(super) fn at_once(&self, asked: &Asked<'_>) -> Result<Verdict, Box<Attempt>> {
        let kind = asked.action.kind();
        if !self.is_closed(kind) {
            let may = self.is_open_to(kind, asked.peer.ip());
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
    pub(super) fn is_closed(&self, kind: Kind) -> bool {
        kind == Kind::Play && self.signer.is_some()
            || self.rules.names(kind)
            || self.tokens.is_some() && self.config.jwt.actions.contains(&kind)
            || self.webhook.is_some() && self.config.webhook.actions.contains(&kind)
    }

    /// Whether everybody with this address may do what is not closed.
    fn is_open_to(&self, kind: Kind, ip: IpAddr) -> bool {
        kind != Kind::Publish || contains(&self.config.publish_from, ip.to_canonical())
    }

    /// A permission without an end.
    fn grant(&self, attempt: &Attempt) -> Grant {
        let by_secret = !attempt.is_anonymous() && !self.rules.is_open_to(attempt);
        Grant { is_personal: attempt.is_personal, by_secret, ..Grant::default() }
    }

    /// The server that decides about this, if one does.
    fn hook(&self, attempt: &Attempt) -> Option<&Webhook> {
        let hook = self.webhook.as_deref()?;
        self.config.webhook.actions.contains(&attempt.kind).then_some(hook)
    }

    /// Decides by what is known, if the path is not signed for this. [`Self::slowly`] has the same order.
    fn look(&self, attempt: &Attempt, now: u64) -> Option<Verdict> {
        // It cannot be guessed, so it counts however often others of the address tried.
        let token = self.token(attempt, now);
        if let Some(Ok(grant)) = token {
            return Some(Ok(grant));
        }
        let answer = self.hook(attempt).map(|hook| hook.known(&question(attempt)));
        if let Some(wait) = self.failures.wait(attempt.ip) {
            let is_known = self.rules.known(attempt) || answer == Some(Some(Answer::Allowed));
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
            Some(answer) => Some(self.obey(answer?, attempt)),
        }
    }

    /// Decides what [`Self::look`] did not, in the same order.
    pub(super) async fn slowly(self: Arc<Self>, attempt: Box<Attempt>) -> Verdict {
        // This may be another policy than the one that did not decide at once.
        if !self.is_closed(attempt.kind) && self.is_open_to(attempt.kind, attempt.ip) {
            return Ok(Grant::default());
        }
        let Some(_turn) = self.turns.take(attempt.ip).await else {
            return Err(Refusal::TooOften(Duration::from_secs(1)));
        };
        if let Some(Err(UnknownKey)) = self.token(&attempt, unix_now())
            && let Some(tokens) = &self.tokens
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
            // Others have tried the same meanwhile.
            let is_known = matches!(self.rules.look(&attempt), Tried::Right);
            if is_known || self.hashed(&attempt, turn).await {
                return Ok(self.grant(&attempt));
            }
        }
        let Some(hook) = self.hook(&attempt) else { return Err(self.refuse(&attempt)) };
        let question = question(&attempt);
        if hook.known(&question).is_none()
            && let Some(wait) = self.failures.wait(attempt.ip)
        {
            return Err(Refusal::TooOften(wait));
        }
        let answer = hook.ask(question).await;
        self.obey(answer, &attempt)
    }

    /// Whether a hashed secret is right, which takes a processor for some time. `turn` is one of those that may.
    async fn hashed<T>(self: &Arc<Self>, attempt: &Attempt, turn: T) -> bool {
        let (policy, tried) = (Arc::clone(self), attempt.clone());
        let found = spawn_blocking(move || policy.rules.find_out(&tried)).await;
        drop(turn);
        found.unwrap_or(false)
    }

    /// How long an address that guessed must wait.
    #[cfg(test)]
    pub(super) fn wait(&self, ip: IpAddr) -> Option<Duration> {
        self.failures.wait(ip)
    }

    /// Whether somebody who was let in before still is. `None` if that takes time: [`Self::still_slowly`] tells. Nothing
    /// counts as a guess.
    pub(crate) fn still(&self, attempt: &Attempt) -> Option<bool> {
        let now = unix_now();
        if !self.is_closed(attempt.kind) {
            return Some(self.is_open_to(attempt.kind, attempt.ip));
        }
        let place = (attempt.kind, &*attempt.path);
        if self.signed(place, &attempt.signed, attempt.ip, now).is_some() {
            return Some(true);
        }
        let has_key = match self.token(attempt, now) {
            Some(Ok(_)) => return Some(true),
            Some(Err(UnknownKey)) => false,
            None => true,
        };
        match self.rules.look(attempt) {
            Tried::Right => Some(true),
            Tried::Slow => None,
            Tried::Wrong => (has_key && self.hook(attempt).is_none()).then_some(false),
        }
    }

    /// As [`Self::still`], but it may wait. `asks_hook`: whether to ask the webhook about those whom it let in. If it is not
    /// asked, they stay. `None` if this cannot be found out now.
    pub(crate) async fn still_slowly(
        self: Arc<Self>,
        again: &Again,
        asks_hook: bool,
    ) -> Option<bool> {
        let attempt = again.attempt();
        if let Some(Err(UnknownKey)) = self.token(attempt, unix_now())
            && let Some(tokens) = &self.tokens
        {
            tokens.fetch_again().await;
            if let Some(Ok(_)) = self.token(attempt, unix_now()) {
                return Some(true);
            }
            if !tokens.has_keys() {
                return None;
            }
        }
        if let Tried::Slow = self.rules.look(attempt) {
            let turn = self.hashing.acquire().await;
            let is_known = matches!(self.rules.look(attempt), Tried::Right);
            if is_known || self.hashed(attempt, turn).await {
                return Some(true);
            }
        }
        let Some(hook) = self.hook(attempt) else { return Some(false) };
        let was_by_hook = again.0.by_hook.load(Ordering::Relaxed);
        if was_by_hook && !asks_hook {
            return None;
        }
        match hook.ask(Question { recheck: true, ..question(attempt) }).await {
            Answer::Allowed => {
                again.0.by_hook.store(true, Ordering::Relaxed);
                Some(true)
            }
            Answer::Refused => Some(false),
            Answer::None(why) => {
                tracing::debug!(path = attempt.path, ip = %attempt.ip, why, "not asked again");
                // What else let the peer in is gone, so nobody allows this any more.
                let is_allowed = self.config.webhook.on_failure == OnFailure::Allow;
                if was_by_hook || is_allowed { None } else { Some(false) }
            }
        }
    }

    /// How often the webhook is asked about somebody who was let in. `None` for never.
    pub(crate) fn recheck(&self) -> Option<Duration> {
        self.webhook.as_ref()?;
        Some(self.config.webhook.recheck.into()).filter(|every: &Duration| !every.is_zero())
    }

    fn obey(&self, answer: Answer, attempt: &Attempt) -> Verdict {
        match answer {
            // It may have allowed the address, whatever was given besides.
            Answer::Allowed => Ok(Grant { by_secret: false, by_hook: true, ..self.grant(attempt) }),
            Answer::Refused => Err(self.refuse(attempt)),
            Answer::None(why) => {
                let is_allowed = self.config.webhook.on_failure == OnFailure::Allow;
                let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(left_out) = told.take(std::time::Instant::now()) {
                    let (action, path) = (attempt.kind.name(), &attempt.path);
                    let does = if is_allowed { "allowed" } else { "refused" };
                    tracing::warn!(
                        action, path, ip = %attempt.ip, why, does, left_out,
                        "the webhook does not decide"
                    );
                }
                let grant = Grant { by_secret: false, by_hook: true, ..self.grant(attempt) };
                if is_allowed { Ok(grant) } else { Err(Refusal::Undecided) }
            }
        }
    }

    /// Counts wrong credentials.
    fn refuse(&self, attempt: &Attempt) -> Refusal {
        if attempt.is_anonymous() {
            return Refusal::Anonymous;
        }
        if let Some(Err(UnknownKey)) = self.token(attempt, unix_now())
            && self.tokens.as_ref().is_some_and(|tokens| !tokens.has_keys())
        {
            // Nobody can tell yet whether this token is good.
            return Refusal::Undecided;
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
        let is_signed = |signer: &Arc<Signer>| signer.check(&attempt.signed).is_ok();
        let is_token = |tokens: &Arc<Tokens>| match tokens.look(&attempt.token, unix_now()) {
            Token::Good(_) => true,
            Token::Bad(why) => why == Refused::Expired,
            Token::UnknownKey | Token::NoKeys => false,
        };
        let (signer, tokens) = &self.former;
        [&self.signer, signer].into_iter().flatten().any(is_signed)
            || [&self.tokens, tokens].into_iter().flatten().any(is_token)
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
        is_allowed.then_some(Grant { until, by_secret: true, ..Grant::default() })
    }

    /// The permission of a token.
    fn token(&self, attempt: &Attempt, now: u64) -> Option<Result<Grant, UnknownKey>> {
        let kind = attempt.kind;
        let tokens = self.tokens.as_ref()?;
        if attempt.token.is_empty() || !self.config.jwt.actions.contains(&kind) {
            return None;
        }
        match tokens.look(&attempt.token, now) {
            Token::Good(claims) if claims.allows(kind, &attempt.path) => {
                let until = claims.expires.and_then(|until| at_unix(until, now));
                let is_personal = attempt.is_personal;
                Some(Ok(Grant { until, is_personal, by_secret: true, ..Grant::default() }))
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

/// The instant of `at`. `at` and `now` are in seconds since 1970. `None` if the clock cannot hold it.
fn at_unix(at: u64, now: u64) -> Option<Instant> {
    Instant::now().checked_add(Duration::from_secs(at.saturating_sub(now)))
}

/// What the webhook is asked. What a low-latency player asks for anew with each reload is no part of it, so that an answer
/// holds for the player.
pub(super) fn question(attempt: &Attempt) -> Question {
    let Attempt { kind, path, protocol, ip, user, password, key, token, query, .. } =
        attempt.clone();
    let pairs = query.split('&').filter(|pair| !pair.starts_with("_HLS_"));
    let query = pairs.collect::<Vec<_>>().join("&");
    let password = if password.is_empty() { key } else { password };
    Question { action: kind, path, protocol, ip, user, password, token, query, recheck: false }
}

/// Encodes each byte, so that no byte means something in a query.
fn percent_encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}
