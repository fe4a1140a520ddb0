//! The rules of `[[access.rule]]`.

use credentials::Secret;

use super::failures::network;
use super::proven::{Digest, Proven};
use super::{Attempt, Kind, contains};
use crate::config::Rule;

/// The rules, and what was found right by them.
pub(super) struct Rules {
    rules: Vec<Rule>,
    /// Secrets that were right, each with the rule's number.
    proven: Proven<()>,
    /// The same with the address (IPv6: the /64 network) that gave them.
    given: Proven<()>,
}

/// What comes of trying an attempt by all rules.
pub(super) enum Tried {
    Right,
    Wrong,
    /// Hashes must be computed.
    Slow,
}

impl Rules {
    pub(super) fn new(rules: &[Rule]) -> Self {
        Self { rules: rules.to_owned(), proven: Proven::new(), given: Proven::new() }
    }

    /// Whether any rule is about an action.
    pub(super) fn names(&self, kind: Kind) -> bool {
        self.rules.iter().any(|rule| rule.actions.contains(&kind))
    }

    /// The rules that an attempt fits, secrets aside.
    fn fitting<'a>(&'a self, attempt: &'a Attempt) -> impl Iterator<Item = (usize, &'a Rule)> {
        self.rules.iter().enumerate().filter(|(_, rule)| {
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
        let was_given = |(number, rule, _, tried): (usize, &Rule, &Secret, &str)| {
            self.given.get(&self.digest_given(attempt, number, rule, tried)).is_some()
        };
        self.is_open_to(attempt) || self.secrets(attempt).any(was_given)
    }

    /// Whether a rule that asks for no secret lets the peer in.
    pub(super) fn is_open_to(&self, attempt: &Attempt) -> bool {
        self.fitting(attempt).any(|(_, rule)| is_open(rule))
    }

    /// The secrets to be tried, each with its rule's number.
    fn secrets<'a>(
        &'a self,
        attempt: &'a Attempt,
    ) -> impl Iterator<Item = (usize, &'a Rule, &'a Secret, &'a str)> {
        self.fitting(attempt).filter_map(|(number, rule)| {
            let secret = rule.password.as_ref().or(rule.key.as_ref())?;
            Some((number, rule, secret, attempt.tried(rule.user.as_deref())?))
        })
    }

    /// Tries an attempt, as far as that takes no time.
    pub(super) fn look(&self, attempt: &Attempt) -> Tried {
        if self.known(attempt) {
            return Tried::Right;
        }
        let mut is_slow = false;
        for (number, rule, secret, tried) in self.secrets(attempt) {
            let is_right = match secret.plain() {
                Some(_) => secret.is(tried),
                None => self.proven.get(&self.digest(number, rule, tried)).is_some(),
            };
            if is_right {
                self.given.note(self.digest_given(attempt, number, rule, tried), ());
                return Tried::Right;
            }
            is_slow |= secret.plain().is_none();
        }
        if is_slow { Tried::Slow } else { Tried::Wrong }
    }

    /// The password in plain of a user, if `is_right` accepts it.
    pub(super) fn password(&self, user: &str, is_right: impl Fn(&str) -> bool) -> Option<&str> {
        let rules = self.rules.iter().filter(|rule| rule.user.as_deref() == Some(user));
        rules.filter_map(|rule| rule.password.as_ref()?.plain()).find(|password| is_right(password))
    }

    /// Computes the hashes, one after the other. Blocks.
    pub(super) fn find_out(&self, attempt: &Attempt) -> bool {
        let hashed = |secret: &Secret| secret.plain().is_none();
        for (number, rule, secret, tried) in self.secrets(attempt).filter(|it| hashed(it.2)) {
            if secret.is(tried) {
                self.proven.note(self.digest(number, rule, tried), ());
                self.given.note(self.digest_given(attempt, number, rule, tried), ());
                return true;
            }
        }
        false
    }

    fn digest_given(&self, attempt: &Attempt, number: usize, rule: &Rule, tried: &str) -> Digest {
        let user = rule.user.as_deref().unwrap_or_default();
        let address = network(attempt.ip).to_string();
        self.given.digest(&[&number.to_string(), user, tried, &address])
    }

    fn digest(&self, number: usize, rule: &Rule, tried: &str) -> Digest {
        let user = rule.user.as_deref().unwrap_or_default();
        self.proven.digest(&[&number.to_string(), user, tried])
    }
}

/// Whether the rule asks for no secret.
fn is_open(rule: &Rule) -> bool {
    rule.password.is_none() && rule.key.is_none()
}
