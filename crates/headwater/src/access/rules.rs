//! The rules of `[[access.rule]]`.

use super::proven::{Digest, Proven};
use super::{Attempt, Kind, contains};
use crate::config::Rule;

/// The rules, and what was found right by them.
pub(super) struct Rules {
    rules: Vec<Rule>,
    /// Secrets that were right, each with the rule's number.
    proven: Proven<()>,
}

/// What comes of trying an attempt by all rules.
pub(super) enum Tried {
    Right,
    Wrong,
    /// The hashes of these rules must be computed.
    Slow(Vec<usize>),
}

impl Rules {
    pub(super) fn new(rules: &[Rule]) -> Self {
        Self { rules: rules.to_owned(), proven: Proven::new() }
    }

    /// Whether any rule is about an action.
    pub(super) fn name(&self, kind: Kind) -> bool {
        self.rules.iter().any(|rule| rule.actions.contains(&kind))
    }

    /// The rules that an attempt fits, secrets aside.
    fn fitting<'a>(&'a self, attempt: &'a Attempt) -> impl Iterator<Item = (usize, &'a Rule)> {
        self.rules.iter().enumerate().filter(|(_, rule)| {
            let Attempt { kind: Some(kind), ip: Some(ip), path, .. } = attempt else {
                return false;
            };
            let has_path = matches!(kind, Kind::Publish | Kind::Play);
            rule.actions.contains(kind)
                && (rule.addresses.is_empty() || contains(&rule.addresses, *ip))
                && (!has_path || rule.path.matches(path))
        })
    }

    /// Whether the attempt needs no secret, or one that was right before.
    pub(super) fn known(&self, attempt: &Attempt) -> bool {
        self.fitting(attempt).any(|(number, rule)| {
            is_open(rule)
                || digests(&self.proven, attempt, number, rule)
                    .any(|it| self.proven.get(&it).is_some())
        })
    }

    /// Tries an attempt, as far as that takes no time.
    pub(super) fn look(&self, attempt: &Attempt) -> Tried {
        if self.known(attempt) {
            return Tried::Right;
        }
        let mut slow = Vec::new();
        for (number, rule) in self.fitting(attempt) {
            let Some(secret) = rule.password.as_ref().or(rule.key.as_ref()) else { continue };
            for tried in attempt.tried(rule.user.as_deref()) {
                if secret.plain().is_none() {
                    slow.push(number);
                    break;
                }
                if secret.is(tried) {
                    self.proven.note(digest(&self.proven, number, rule, tried), ());
                    return Tried::Right;
                }
            }
        }
        if slow.is_empty() { Tried::Wrong } else { Tried::Slow(slow) }
    }

    /// Computes the hashes of these rules, one after the other. Blocks.
    pub(super) fn find_out(&self, attempt: &Attempt, numbers: &[usize]) -> bool {
        for (number, rule) in numbers.iter().filter_map(|at| Some((*at, self.rules.get(*at)?))) {
            let Some(secret) = rule.password.as_ref().or(rule.key.as_ref()) else { continue };
            let right = attempt.tried(rule.user.as_deref()).find(|tried| secret.is(tried));
            if let Some(right) = right {
                self.proven.note(digest(&self.proven, number, rule, right), ());
                return true;
            }
        }
        false
    }
}

/// Whether the rule asks for no secret.
fn is_open(rule: &Rule) -> bool {
    rule.password.is_none() && rule.key.is_none()
}

fn digests<'a>(
    proven: &'a Proven<()>,
    attempt: &'a Attempt,
    number: usize,
    rule: &'a Rule,
) -> impl Iterator<Item = Digest> + 'a {
    attempt.tried(rule.user.as_deref()).map(move |tried| digest(proven, number, rule, tried))
}

fn digest(proven: &Proven<()>, number: usize, rule: &Rule, tried: &str) -> Digest {
    proven.digest(&[&number.to_string(), rule.user.as_deref().unwrap_or_default(), tried])
}
