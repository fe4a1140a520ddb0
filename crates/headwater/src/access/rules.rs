//! The rules of `[[access.rule]]`.

use std::cell::LazyCell;
use std::net::IpAddr;
use std::sync::Arc;

use credentials::Secret;

use super::failures::network;
use super::proven::{Digest, Proven};
use super::tokens::Tokens;
use super::{Attempt, Kind, contains, unix_now};
use crate::config::Rule;

/// The rules, and what was found right by them.
pub(super) struct Rules {
    rules: Vec<Rule>,
    /// Secrets that were right, each with what the rule has of it.
    proven: Arc<Proven<()>>,
    /// The same with the address (IPv6: the /64 network) that gave them.
    given: Arc<Proven<()>>,
    /// A genuine token of these is no stream key.
    tokens: Vec<Arc<Tokens>>,
}

/// What comes of trying an attempt by all rules.
pub(super) enum Tried {
    Right,
    Wrong,
    /// Hashes must be computed.
    Slow,
}

impl Rules {
    /// Results of the rules `before` are kept where the secrets are the same.
    pub(super) fn new(rules: &[Rule], before: Option<&Self>, tokens: Vec<Arc<Tokens>>) -> Self {
        let known = before.map(|before| (Arc::clone(&before.proven), Arc::clone(&before.given)));
        let unknown = || (Arc::new(Proven::new()), Arc::new(Proven::new()));
        let (proven, given) = known.unwrap_or_else(unknown);
        Self { rules: rules.to_owned(), proven, given, tokens }
    }

    /// Whether any rule is about an action.
    pub(super) fn names(&self, kind: Kind) -> bool {
        self.rules.iter().any(|rule| rule.actions.contains(&kind))
    }

    /// The rules that an attempt fits, secrets aside.
    fn fitting<'a>(&'a self, attempt: &'a Attempt) -> impl Iterator<Item = &'a Rule> + Clone {
        self.rules.iter().filter(|rule| {
            let Attempt { kind, ip, path, .. } = attempt;
            rule.actions.contains(kind)
                && (rule.addresses.is_empty() || contains(&rule.addresses, *ip))
                && (!has_path(*kind) || rule.path.matches(path))
        })
    }

    /// Whether the attempt needs no secret, or one that was right before when this address gave it. Others who guess that
    /// secret learn nothing.
    pub(super) fn known(&self, attempt: &Attempt) -> bool {
        self.is_open_to(attempt) || self.given(attempt)
    }

    /// Whether the attempt has a secret that was right before when this address gave it.
    pub(super) fn given(&self, attempt: &Attempt) -> bool {
        self.secrets(attempt).any(|(rule, secret, tried)| {
            self.given.get(&self.digest_given(attempt.ip, rule, secret, tried)).is_some()
        })
    }

    /// Whether the attempt is allowed, and nothing must be tried for it.
    ///
    /// Where an address may observe without a secret, a secret makes the peer an administrator, so it is tried.
    pub(super) fn settles(&self, attempt: &Attempt) -> bool {
        let is_enough = || has_path(attempt.kind) || self.secrets(attempt).next().is_none();
        self.given(attempt) || self.is_open_to(attempt) && is_enough()
    }

    /// Whether a rule that asks for no secret lets the peer in.
    pub(super) fn is_open_to(&self, attempt: &Attempt) -> bool {
        self.fitting(attempt).any(is_open)
    }

    /// The secrets to be tried, each with its rule.
    ///
    /// A genuine token is no stream key. Otherwise, its holder could cause a hash with each request.
    fn secrets<'a>(
        &'a self,
        attempt: &'a Attempt,
    ) -> impl Iterator<Item = (&'a Rule, &'a Secret, &'a str)> {
        let is_token = LazyCell::new(|| {
            self.tokens.iter().any(|tokens| tokens.is_genuine(&attempt.token, unix_now()))
        });
        self.fitting(attempt).filter_map(move |rule| {
            let secret = rule.password.as_ref().or(rule.key.as_ref())?;
            let tried = attempt.tried(rule.user.as_deref())?;
            (tried != attempt.token || !*is_token).then_some((rule, secret, tried))
        })
    }

    /// The password of an attempt with a user, and the fitting rules that have users.
    fn by_user<'a>(
        &'a self,
        attempt: &'a Attempt,
    ) -> Option<(&'a str, impl Iterator<Item = &'a Rule> + Clone)> {
        let tried = attempt.tried(Some(&attempt.user)).filter(|_| !attempt.user.is_empty())?;
        Some((tried, self.fitting(attempt).filter(|rule| rule.user.is_some())))
    }

    /// Whether the attempt has what a rule asks for, right or wrong: a user with a password, or a key.
    pub(super) fn are_tried_by(&self, attempt: &Attempt) -> bool {
        let has_users = self.by_user(attempt).is_some_and(|(_, mut rules)| rules.next().is_some());
        has_users || self.secrets(attempt).next().is_some()
    }

    /// The hash of another user, for a user that has none, and what is tried on it.
    ///
    /// Computing it hides from the peer which users exist: all wrong passwords take as long.
    fn decoy<'a>(&'a self, attempt: &'a Attempt) -> Option<(&'a Secret, &'a str)> {
        let (tried, rules) = self.by_user(attempt)?;
        let mut hashed = rules.filter(|rule| rule.password.as_ref().is_some_and(is_hashed));
        let is_users = |rule: &Rule| rule.user.as_deref() == Some(&*attempt.user);
        if hashed.clone().any(is_users) {
            return None;
        }
        Some((hashed.next()?.password.as_ref()?, tried))
    }

    /// Whether the attempt must cost a hash because its user has none.
    pub(super) fn need_decoy(&self, attempt: &Attempt) -> bool {
        self.decoy(attempt).is_some()
    }

    /// Whether hashes must be computed to find out if a secret is right.
    pub(super) fn need_hash(&self, attempt: &Attempt) -> bool {
        self.secrets(attempt).any(|(rule, secret, tried)| {
            is_hashed(secret) && self.proven.get(&self.digest(rule, secret, tried)).is_none()
        })
    }

    /// Tries an attempt, as far as that takes no time.
    pub(super) fn look(&self, attempt: &Attempt) -> Tried {
        if self.settles(attempt) {
            return Tried::Right;
        }
        let mut is_slow = false;
        for (rule, secret, tried) in self.secrets(attempt) {
            let is_right = match secret.plain() {
                Some(_) => secret.is(tried),
                None => self.proven.get(&self.digest(rule, secret, tried)).is_some(),
            };
            if is_right {
                self.given.note(self.digest_given(attempt.ip, rule, secret, tried), ());
                return Tried::Right;
            }
            is_slow |= is_hashed(secret);
        }
        if is_slow { Tried::Slow } else { Tried::Wrong }
    }

    /// Whether a rule that asks for no secret lets this address publish something.
    pub(super) fn are_open_from(&self, ip: IpAddr) -> bool {
        self.for_rtmp(ip).any(|rule| is_open(rule) && rule.actions.contains(&Kind::Publish))
    }

    /// The password in plain of a user at this address, if `is_right` accepts it and the user may publish or play
    /// something by it. If the address `must_wait`, only one that it has given before.
    pub(super) fn password(
        &self,
        (user, ip): (&str, IpAddr),
        must_wait: bool,
        is_right: impl Fn(&str) -> bool,
    ) -> Option<&str> {
        let mut rules = self.for_rtmp(ip).filter(|rule| rule.user.as_deref() == Some(user));
        rules.find_map(|rule| {
            let secret = rule.password.as_ref()?;
            let password = secret.plain().filter(|password| is_right(password))?;
            let given = self.digest_given(ip, rule, secret, password);
            if must_wait {
                self.given.get(&given)?;
            }
            self.given.note(given, ());
            Some(password)
        })
    }

    /// The rules about publishing and playing that this address fits.
    fn for_rtmp(&self, ip: IpAddr) -> impl Iterator<Item = &Rule> {
        self.rules.iter().filter(move |rule| {
            let actions = [Kind::Publish, Kind::Play];
            actions.iter().any(|action| rule.actions.contains(action))
                && (rule.addresses.is_empty() || contains(&rule.addresses, ip))
        })
    }

    /// Computes the hashes, one after the other. Blocks.
    pub(super) fn find_out(&self, attempt: &Attempt) -> bool {
        if let Some((secret, tried)) = self.decoy(attempt) {
            let _ = secret.is(tried);
        }
        for (rule, secret, tried) in self.secrets(attempt).filter(|it| is_hashed(it.1)) {
            if secret.is(tried) {
                self.proven.note(self.digest(rule, secret, tried), ());
                self.given.note(self.digest_given(attempt.ip, rule, secret, tried), ());
                return true;
            }
        }
        false
    }

    fn digest_given(&self, ip: IpAddr, rule: &Rule, secret: &Secret, tried: &str) -> Digest {
        let user = rule.user.as_deref().unwrap_or_default();
        let (secret, address) = (String::from(secret.clone()), network(ip).to_string());
        self.given.digest(&[&secret, user, tried, &address])
    }

    fn digest(&self, rule: &Rule, secret: &Secret, tried: &str) -> Digest {
        let user = rule.user.as_deref().unwrap_or_default();
        self.proven.digest(&[&String::from(secret.clone()), user, tried])
    }
}

/// Whether an action is about a stream or a title.
fn has_path(kind: Kind) -> bool {
    matches!(kind, Kind::Publish | Kind::Play)
}

fn is_hashed(secret: &Secret) -> bool {
    secret.plain().is_none()
}

/// Whether the rule asks for no secret.
fn is_open(rule: &Rule) -> bool {
    rule.password.is_none() && rule.key.is_none()
}
