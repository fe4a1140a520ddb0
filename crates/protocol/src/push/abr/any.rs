use super::{Decision, Evidence, Rule, Seen, ThreeState, Throughput};

/// One of the rules, for a server whose operator chooses it.
#[derive(Debug, Clone)]
pub enum AnyRule {
    /// [`Evidence`].
    Evidence(Evidence),
    /// [`ThreeState`].
    ThreeState(ThreeState),
    /// [`Throughput`].
    Throughput(Throughput),
}

impl Rule for AnyRule {
    fn decide(&mut self, seen: &Seen, ladder: &[u64], rendition: usize) -> Decision {
        match self {
            Self::Evidence(rule) => rule.decide(seen, ladder, rendition),
            Self::ThreeState(rule) => rule.decide(seen, ladder, rendition),
            Self::Throughput(rule) => rule.decide(seen, ladder, rendition),
        }
    }

    fn is_worth_sending(&self, seen: &Seen, bits: u64) -> bool {
        match self {
            Self::Evidence(rule) => rule.is_worth_sending(seen, bits),
            Self::ThreeState(rule) => rule.is_worth_sending(seen, bits),
            Self::Throughput(rule) => rule.is_worth_sending(seen, bits),
        }
    }

    fn switched(&mut self, now: u64) {
        match self {
            Self::Evidence(rule) => rule.switched(now),
            Self::ThreeState(rule) => rule.switched(now),
            Self::Throughput(rule) => rule.switched(now),
        }
    }
}
