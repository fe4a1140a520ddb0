//! Decides by one configuration which peers may do which actions.
//!
//! Most attempts are decided at once, on the event loop. Slow checks run elsewhere while the peer waits.

use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

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

/// The beginning of an encoder's program name. Encoders of all vendors use this beginning.
const ENCODER: &str = "FMLE/";

/// Why an RTMP peer must connect again.
#[derive(Debug)]
pub struct Rejected {
    /// The text that the peer is told.
    pub told: String,
    /// Why the peer's credentials were refused, if that is the reason.
    pub why: Option<Refusal>,
}

/// Decides by one configuration which peers may do which actions.
pub(crate) struct Policy {
    config: config::Access,
    rules: Rules,
    signer: Option<Arc<Signer>>,
    /// Asks encoders for user and password, if the configuration says so.
    adobe: Option<Adobe>,
    tokens: Option<Arc<Tokens>>,
    webhook: Option<Arc<Webhook>>,
    /// The signer and the keys of tokens under the configuration before.
    ///
    /// Players that still have such signed paths or tokens do not guess.
    former: (Option<Arc<Signer>>, Option<Arc<Tokens>>),
    failures: Arc<Failures>,
    hashing: Semaphore,
    turns: Turns,
    /// Lines about a webhook that does not decide.
    told: Mutex<LogLimit>,
}

impl Policy {
    /// Reads the keys that the configuration names.
    ///
    /// The parts that are the same as in `before` keep their knowledge: secrets that were right, keys from a
    /// URL, answers of the webhook, and addresses that guessed.
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
            None => {
                let same_keys = before(|before, now| before.jwt.keys == now.jwt.keys);
                let before = same_keys.and_then(|before| before.tokens.as_deref());
                Some(Arc::new(Tokens::new(jwt, before).map_err(option("jwt.keys"))?))
            }
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
        let former = before(|_, _| true).map(|it| (it.signer.clone(), it.tokens.clone()));
        let former = former.unwrap_or_default();
        let all_tokens = [&tokens, &former.1].into_iter().flatten().cloned().collect();
        let known = before(|_, _| true).map(|before| &before.rules);
        let rules = Rules::new(&config.rule, known, all_tokens);
        let failures = match before(|_, _| true) {
            Some(before) if before.config.max_failures == config.max_failures => {
                Arc::clone(&before.failures)
            }
            before => {
                let known = before.map(|before| before.failures.as_ref());
                Arc::new(Failures::new(config.max_failures, known))
            }
        };
        Ok(Self {
            config: config.clone(),
            former,
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

    /// Warns the operator of probable mistakes in the configuration.
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

    /// Keeps the keys of tokens fresh, until the future is dropped.
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

    /// Decides if the decision takes no time.
    ///
    /// # Errors
    /// The decision takes time. [`Self::slowly`] makes it.
    pub(super) fn at_once(&self, asked: &Asked<'_>) -> Result<Verdict, Box<Attempt>> {
        let kind = asked.action.kind();
        if !self.is_closed(kind) {
            let may = self.is_open_to(kind, asked.peer.ip());
            return Ok(if may { Ok(Grant::default()) } else { Err(Refusal::Foreign) });
        }
        let now = unix_now();
        // Players ask many times a second, so only the path of their requests is read.
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

    /// Whether everybody with this address may do an action that is not closed.
    fn is_open_to(&self, kind: Kind, ip: IpAddr) -> bool {
        kind != Kind::Publish || contains(&self.config.publish_from, ip.to_canonical())
    }

    /// A permission without an end.
    fn grant(&self, attempt: &Attempt) -> Grant {
        let by_secret = self.rules.given(attempt);
        Grant { is_personal: attempt.is_personal, by_secret, ..Grant::default() }
    }

    /// The webhook that decides about this attempt, if there is one.
    fn hook(&self, attempt: &Attempt) -> Option<&Webhook> {
        let hook = self.webhook.as_deref()?;
        self.config.webhook.actions.contains(&attempt.kind).then_some(hook)
    }

    /// Decides by what the policy knows, if no signed path allows this. [`Self::slowly`] has the same order.
    fn look(&self, attempt: &Attempt, now: u64) -> Option<Verdict> {
        // A token cannot be guessed, so a good one counts however often others of the address tried.
        let token = self.token(attempt, now);
        if let Some(Ok(grant)) = token {
            return Some(Ok(grant));
        }
        if self.rules.settles(attempt) {
            return Some(Ok(self.grant(attempt)));
        }
        if let Some(verdict) = self.slowed(attempt) {
            return Some(verdict);
        }
        let answer = self.hook(attempt).map(|hook| hook.known(&question(attempt)));
        // Then the attempt is decided elsewhere. A wrong secret would not be counted here, so none is tried here.
        let is_undecided = matches!(token, Some(Err(UnknownKey))) || answer == Some(None);
        if is_undecided || self.needs_hash(attempt) {
            return None;
        }
        if let Tried::Right = self.rules.look(attempt) {
            return Some(Ok(self.grant(attempt)));
        }
        if let Some(grant) = self.open(attempt) {
            return Some(Ok(grant));
        }
        match answer {
            None => Some(Err(self.refuse(attempt))),
            Some(answer) => Some(self.obey(answer?, attempt)),
        }
    }

    /// Decides about an address that guessed too often, without trying anything. `None` if it need not wait.
    fn slowed(&self, attempt: &Attempt) -> Option<Verdict> {
        let wait = self.failures.wait(attempt.ip)?;
        if self.rules.known(attempt) {
            return Some(Ok(self.grant(attempt)));
        }
        Some(match self.hook(attempt).map(|hook| hook.known(&question(attempt))) {
            Some(Some(Answer::Allowed)) => self.obey(Answer::Allowed, attempt),
            // Nothing was tried: there is no reason to wait.
            None if attempt.is_anonymous() => Err(Refusal::Anonymous),
            _ => Err(Refusal::TooOften(wait)),
        })
    }

    /// Decides without a hash: by a secret that is plain or was given before, if the address need not wait.
    fn tried(&self, attempt: &Attempt) -> Option<Verdict> {
        let look = || matches!(self.rules.look(attempt), Tried::Right);
        self.slowed(attempt).or_else(|| look().then(|| Ok(self.grant(attempt))))
    }

    /// Whether hashes must be computed before the attempt can be refused.
    ///
    /// Users of the webhook are in no rule. Each of their requests would cost a hash if it had to take as long as
    /// those of other users.
    fn needs_hash(&self, attempt: &Attempt) -> bool {
        let hides_users = || self.hook(attempt).is_none() && self.rules.need_decoy(attempt);
        self.rules.need_hash(attempt) || hides_users()
    }

    /// The permission of an address that needs no secret, though the peer gave a wrong one. That is a guess.
    fn open(&self, attempt: &Attempt) -> Option<Grant> {
        self.rules.is_open_to(attempt).then(|| {
            self.failures.count(attempt.ip);
            self.grant(attempt)
        })
    }

    /// Decides an attempt that [`Self::look`] could not decide, in the same order.
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
        // Others of the address have guessed meanwhile. From here on, each wrong secret is counted.
        if let Some(verdict) = self.tried(&attempt) {
            return verdict;
        }
        if self.needs_hash(&attempt) {
            let turn = self.hashing.acquire().await;
            // Others have guessed, or have tried the same, meanwhile.
            if let Some(verdict) = self.tried(&attempt) {
                return verdict;
            }
            if self.hashed(&attempt, turn).await {
                return Ok(self.grant(&attempt));
            }
        }
        if let Some(grant) = self.open(&attempt) {
            return Ok(grant);
        }
        let Some(hook) = self.hook(&attempt) else { return Err(self.refuse(&attempt)) };
        let answer = hook.ask(question(&attempt)).await;
        self.obey(answer, &attempt)
    }

    /// Whether a hashed secret is right.
    ///
    /// The check takes a processor for some time. `turn` is the permission to use one.
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

    /// Whether the attempt has a token or a known secret that allows it.
    ///
    /// Nothing is tried, so nothing counts as a guess: a secret is known if this address gave it before.
    pub(crate) fn has_known_secret(&self, attempt: &Attempt) -> bool {
        matches!(self.token(attempt, unix_now()), Some(Ok(_))) || self.rules.given(attempt)
    }

    /// Whether a peer that was let in before is still allowed. `None` if the decision takes time.
    ///
    /// [`Self::still_slowly`] decides then. Nothing counts as a guess.
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
            _ if self.rules.is_open_to(attempt) => Some(true),
            Tried::Slow => None,
            Tried::Wrong => (has_key && self.hook(attempt).is_none()).then_some(false),
        }
    }

    /// Decides as [`Self::still`] does, but may wait. `None` if no decision is possible now.
    ///
    /// `asks_hook` says whether to ask the webhook about peers that the webhook let in. If not, they stay.
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
                // The rule or token that let the peer in is gone, so nothing allows this any more.
                let is_allowed = self.config.webhook.on_failure == OnFailure::Allow;
                if was_by_hook || is_allowed { None } else { Some(false) }
            }
        }
    }

    /// How often the webhook is asked about a peer that was let in. `None` for never.
    pub(crate) fn recheck(&self) -> Option<Duration> {
        self.webhook.as_ref()?;
        Some(self.config.webhook.recheck.into()).filter(|every: &Duration| !every.is_zero())
    }

    fn obey(&self, answer: Answer, attempt: &Attempt) -> Verdict {
        match answer {
            // The webhook may have allowed the address, whatever credentials the peer gave.
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
                if is_allowed {
                    return Ok(Grant { by_secret: false, by_hook: true, ..self.grant(attempt) });
                }
                Err(self.undecided(attempt))
            }
        }
    }

    /// Refuses an attempt about which nobody decides now.
    ///
    /// If the attempt has what a rule asks for, it is a guess, and a wrong one. Without a count, everybody could guess
    /// freely while the webhook or the key server is away.
    fn undecided(&self, attempt: &Attempt) -> Refusal {
        if self.rules.are_tried_by(attempt) {
            self.failures.count(attempt.ip);
        }
        Refusal::Undecided
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
            return self.undecided(attempt);
        }
        if attempt.guesses() || !self.is_genuine(attempt) {
            self.failures.count(attempt.ip);
        }
        let action = attempt.kind.name();
        tracing::debug!(action, path = attempt.path, ip = %attempt.ip, "wrong credentials");
        Refusal::Wrong
    }

    /// Whether a signed path or a token is genuine, even if it does not allow this, or no longer does.
    ///
    /// Players go on asking after theirs has expired. That is no guess.
    fn is_genuine(&self, attempt: &Attempt) -> bool {
        let is_signed = |signer: &Arc<Signer>| signer.check(&attempt.signed).is_ok();
        let is_token = |tokens: &Arc<Tokens>| tokens.is_genuine(&attempt.token, unix_now());
        let (signer, tokens) = &self.former;
        [&self.signer, signer].into_iter().flatten().any(is_signed)
            || [&self.tokens, tokens].into_iter().flatten().any(is_token)
    }

    /// The permission of a signed path.
    ///
    /// A signed path cannot be guessed, so a good one counts however often others of the address tried.
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

/// The key of a token is not known. The key set may have it by now.
struct UnknownKey;

/// The instant of `at`. `at` and `now` are in seconds since 1970. `None` if the clock cannot hold it.
fn at_unix(at: u64, now: u64) -> Option<Instant> {
    Instant::now().checked_add(Duration::from_secs(at.saturating_sub(now)))
}

/// The question to the webhook.
///
/// A low-latency player changes a part of its query with each reload. The question leaves that part out, so
/// that one answer holds for the player.
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
