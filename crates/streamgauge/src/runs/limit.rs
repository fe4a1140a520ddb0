//! What limited a server in a trial: the link, its processors, a single thread, or the clients.

use super::Kept;
use crate::lab::link::mbit;
use crate::lab::machine::cpus;
use crate::lab::record::Machine;
use crate::lab::scenario::Load;

/// A link, processors or a thread that were used by this share of what they have were the limit.
const FULL: f64 = 0.9;

/// The meaning of the words, for readers.
pub(crate) const LIMITS: &str = "Italic: what limited the server. It is the link or the server’s processors, whichever was used more, if 90 % or more of it was used on average while the load ran; one thread, if the server’s busiest thread used as much of a processor; the link or the processors “at times”, if they were that full in a second; the clients, if the generator was saturated and none of these was full; otherwise nothing that is measured.";

/// Names what limited the server in a trial; `None` if the trial has no figures.
pub(crate) fn limit(kept: &Kept, load: &Load, machine: &Machine) -> Option<String> {
    let link = load.link.as_deref().and_then(mbit);
    let processors = processors(machine);
    let used = |name: &str, of: Option<f64>| Some(kept.metric(name)? / of?);
    let fullest = |link: Option<f64>, processors: Option<f64>| {
        let of = [("link", link), ("processors", processors)];
        let of = of.into_iter().filter_map(|(name, used)| Some((name, used?)));
        let most = of.max_by(|(_, a), (_, b)| a.total_cmp(b));
        most.filter(|(_, used)| *used >= FULL).map(|(name, _)| name)
    };
    // Without it, nothing is known.
    kept.metric("server_cores")?;
    let mean = fullest(used("out_mbit_mean", link), used("server_cores", processors));
    if let Some(name) = mean {
        return Some(name.to_owned());
    }
    // A server with one thread leaves all other processors idle.
    if kept.metric("server_thread_cores").is_some_and(|used| used >= FULL) {
        return Some("one thread".to_owned());
    }
    let peak = fullest(used("out_mbit_peak", link), used("server_cores_peak", processors));
    let otherwise = if kept.trial.saturated { "clients" } else { "nothing" };
    Some(peak.map_or(otherwise.to_owned(), |name| format!("{name} at times")))
}

/// How many processors servers have.
fn processors(machine: &Machine) -> Option<f64> {
    let own = cpus(&machine.server_cpus).map(|cpus| cpus.len() as f64);
    own.or(Some(f64::from(machine.processors))).filter(|count| *count > 0.0)
}
