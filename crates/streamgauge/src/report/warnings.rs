//! Warnings for readers of the figures, grouped by their reason.

use schemars::JsonSchema;
use serde::Serialize;

use crate::lab::record::PeerVersion;
use crate::runs::Study;

/// The most warnings of a kind that are printed.
const MOST: usize = 100;
/// The most kinds. The last of them has all other warnings.
const KINDS: usize = 100;
/// The last kind.
const OTHERS: &str = "others";

/// Warnings of one kind.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Warnings {
    /// What they have in common: the text, with an ellipsis for numbers in which they differ.
    pub reason: String,
    /// How many different ones there are.
    pub count: usize,
    /// The first hundred.
    pub first: Vec<String>,
}

/// Collects the warnings of runs, the failures, and the warnings of trials.
pub(super) fn collect(study: &Study) -> Vec<Warnings> {
    let mut groups: Vec<Warnings> = Vec::new();
    let mut say = |reason: &str, warning: String| {
        let is_known = groups.iter().any(|group| group.reason == reason);
        let reason = if is_known || groups.len() + 1 < KINDS { reason } else { OTHERS };
        let group = match groups.iter_mut().position(|group| group.reason == reason) {
            Some(at) => &mut groups[at],
            None => {
                groups.push(Warnings { reason: reason.to_owned(), count: 0, first: vec![] });
                let last = groups.len() - 1;
                &mut groups[last]
            }
        };
        if !group.first.contains(&warning) {
            group.count += 1;
            if group.first.len() < MOST {
                group.first.push(warning);
            }
        }
    };
    const OF_RUNS: &str = "of the run as a whole";
    for warning in study.runs.iter().flat_map(|run| &run.warnings) {
        if !warning.trim().is_empty() {
            say(OF_RUNS, warning.clone());
        }
    }
    for peer in study.peers.iter().filter(|peer| peer.versions.len() > 1) {
        say(
            OF_RUNS,
            format!("{} is of several versions: {}", peer.title, peer.versions.join("; ")),
        );
    }
    let instruments = study.runs.iter().map(|run| &run.instrument);
    let mut instruments: Vec<_> =
        instruments.filter(|of| !of.title.is_empty()).map(PeerVersion::named).collect();
    instruments.sort_unstable();
    instruments.dedup();
    if instruments.len() > 1 {
        say(
            OF_RUNS,
            format!("the runs were measured by several builds: {}", instruments.join("; ")),
        );
    }
    for load in &study.scenario.loads {
        if let Some(clocks) = clocks(study, &load.name) {
            let title = if load.title.is_empty() { &load.name } else { &load.title };
            let reason = "latencies of different clocks, which do not compare";
            say(reason, format!("{title}: delivery and time behind live are {clocks}"));
        }
    }
    for kept in &study.trials {
        if let Some(why) = &kept.trial.failed {
            say(&format!("failed: {}", kind(why)), format!("{} failed: {why}", study.called(kept)));
        }
    }
    let counted = || study.trials.iter().filter(|kept| kept.counts());
    let saturated: Vec<_> = counted().filter(|kept| kept.trial.saturated).collect();
    let reason = format!(
        "In {} of {} trials the generator was saturated.",
        saturated.len(),
        counted().count()
    );
    for kept in saturated {
        say(&reason, study.called(kept));
    }
    for kept in &study.trials {
        for warning in kept.trial.warnings.iter().filter(|warning| !warning.trim().is_empty()) {
            say(&kind(warning), format!("{}: {warning}", study.called(kept)));
        }
    }
    groups
}

/// By which clock the latencies of each server of a load are, if not all are by the same.
fn clocks(study: &Study, load: &str) -> Option<String> {
    let mut all: Vec<&str> = Vec::new();
    let mut words = Vec::new();
    for peer in &study.peers {
        let own = study.trials_of(load).filter(|kept| kept.trial.peer == peer.name);
        let mut of_peer: Vec<&str> = own
            .flat_map(|kept| kept.trial.metrics.keys())
            .filter_map(|metric| metric.strip_prefix("by_"))
            .collect();
        of_peer.sort_unstable();
        of_peer.dedup();
        if !of_peer.is_empty() {
            let clocks = of_peer.join(" and ").replace('_', "-");
            words.push(format!("by {clocks} of {}", peer.title));
            all.extend(of_peer);
        }
    }
    all.sort_unstable();
    all.dedup();
    (all.len() > 1).then(|| words.join(", "))
}

/// A warning without its numbers: in these, warnings of one kind differ.
fn kind(warning: &str) -> String {
    let mut kind = String::with_capacity(warning.len());
    let mut letters = warning.chars().peekable();
    while let Some(letter) = letters.next() {
        if !letter.is_ascii_digit() {
            kind.push(letter);
            continue;
        }
        // A comma or point belongs to the number only if another digit follows.
        let mut rest = letters.clone();
        while let Some(next) = rest.next() {
            let inside = matches!(next, ',' | '.') && rest.peek().is_some_and(char::is_ascii_digit);
            if !next.is_ascii_digit() && !inside {
                break;
            }
            letters.next();
        }
        kind.push('…');
    }
    kind
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_do_not_make_another_kind() {
        for (warning, known) in [
            ("loop 0 woke 1,492.5 ms late, twice.", "loop … woke … ms late, twice."),
            ("37758 requests failed", "… requests failed"),
            ("it took 3.", "it took …."),
            ("it died", "it died"),
        ] {
            assert_eq!(kind(warning), known);
        }
    }
}
