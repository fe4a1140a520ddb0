//! The rules of `[[access.rule]]`.

use std::net::IpAddr;
use std::sync::Arc;

use credentials::Secret;

use super::failures::network;
use super::proven::{Digest, Proven};
use super::{Attempt, Kind, contains};
use crate::config::Rule;

/// The rules, and what was found right by them.
pub(super) struct Rules {
    rules: Vec<Rule>,
    /// Secrets that were right, each with what the rule has of it.
    proven: Arc<Proven<()>>,
    /// The same with the address (IPv6: the /64 network) that gave them.
    given: Arc<Proven<()>>,
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
    pub(super) fn new(rules: &[Rule], before: Option<&Self>) -> Self {
        let known = before.map(|before| (Arc::clone(&before.proven), Arc::clone(&before.given)));
        let unknown = || (Arc::new(Proven::new()), Arc::new(Proven::new()));
        let (proven, given) = known.unwrap_or_else(unknown);
        Self { rules: rules.to_owned(), proven, given }
    }

    /// Whether any rule is about an action.
    pub(super) fn names(&self, kind: Kind) -> bool {
        self.rules.iter().any(|rule| rule.actions.contains(&kind))
    }

    /// The rules that an attempt fits, secrets aside.
    fn fitting<'a>(&'a self, attempt: &'a Attempt) -> impl Iterator<Item = &'a Rule> {
        self.rules.iter().filter(|rule| {
            let Attempt { kind, ip, path, .. } = attempt;
            let has_path = matches!(kind, Kind::Publish | Kind::Play);
            rule.actions.contains(kind)
                && (rule.addresses.is_empty() || contains(&rule.addresses, *ip))
                && (!has_path || rule.path.matches(path))
        })
    }

    /// Whether the attempt needs no secret, or one that was right before when this address gave it. Others who guess that
    /// secret learn nothing.
    pub(super) fn known(&self, attempt: &Attempt) -> bool {
        let was_given = |(rule, secret, tried): (&Rule, &Secret, &str)| {
            self.given.get(&self.digest_given(attempt.ip, rule, secret, tried)).is_some()
        };
        self.is_open_to(attempt) || self.secrets(attempt).any(was_given)
    }

    /// Whether a rule that asks for no secret lets the peer in.
    pub(super) fn is_open_to(&self, attempt: &Attempt) -> bool {
        self.fitting(attempt).any(is_open)
    }

    /// The secrets to be tried, each with its rule.
    fn secrets<'a>(
        &'a self,
        attempt: &'a Attempt,
    ) -> impl Iterator<Item = (&'a Rule, &'a Secret, &'a str)> {
        self.fitting(attempt).filter_map(|rule| {
            let secret = rule.password.as_ref().or(rule.key.as_ref())?;
            Some((rule, secret, attempt.tried(rule.user.as_deref())?))
        })
    }

    /// Tries an attempt, as far as that takes no time.
    pub(super) fn look(&self, attempt: &Attempt) -> Tried {
        if self.known(attempt) {
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
            is_slow |= secret.plain().is_none();
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
        let hashed = |secret: &Secret| secret.plain().is_none();
        for (rule, secret, tried) in self.secrets(attempt).filter(|it| hashed(it.1)) {
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

/// Whether the rule asks for no secret.
fn is_open(rule: &Rule) -> bool {
    rule.password.is_none() && rule.key.is_none()
}
