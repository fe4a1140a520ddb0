//! Contests: cases of loads in which at least two servers can be compared.

use indexmap::IndexMap;

use crate::lab::scenario::{Load, Tool};
use crate::lab::template::Template;
use crate::runs::marks::neglects;
use crate::runs::{Kept, Study, dimension};

/// A case of a load, and the servers that were measured in it.
pub(super) struct Contest<'a> {
    pub(super) study: &'a Study,
    /// What was delivered, in words: `low-latency HLS`.
    pub(super) delivery: String,
    /// The load and its parameters in words.
    pub(super) case: String,
    /// Whether the load was simulated players. Otherwise it was requests.
    pub(super) has_viewers: bool,
    pub(super) entrants: Vec<Entrant<'a>>,
}

/// A server in a contest.
pub(super) struct Entrant<'a> {
    /// The peer's number in the study.
    pub(super) peer: usize,
    pub(super) trials: Vec<&'a Kept>,
    /// Whether its figures may win: the generator was not saturated, nothing failed, and most
    /// viewers were served.
    pub(super) is_sound: bool,
}

/// What a load asks for, by its job.
const DELIVERIES: [(&str, &str); 14] = [
    ("file", "files over HTTP"),
    ("pull", "segments of files over HTTP"),
    ("push", "segments of files pushed over WebSocket"),
    ("rtmp-vod", "files over RTMP"),
    ("hls-vod", "files over HLS"),
    ("dash-vod", "files over DASH"),
    ("rtmp-live", "live RTMP"),
    ("flv-live", "live HTTP-FLV"),
    ("mp4-live", "live MP4 over HTTP"),
    ("hls-live", "live HLS"),
    ("llhls-live", "low-latency HLS"),
    ("dash-live", "live DASH"),
    ("push-live", "live push over WebSocket"),
    ("whep-live", "live WebRTC by WHEP"),
];

/// Finds the contests of all studies, in the order of the scenarios. A load beside another load in
/// the background is none: it shows how servers bear the other.
pub(super) fn find(studies: &[Study]) -> Vec<Contest<'_>> {
    let mut contests = Vec::new();
    for study in studies {
        for load in study.scenario.loads.iter().filter(|load| load.background.is_none()) {
            let mut cases: IndexMap<String, Vec<&Kept>> = IndexMap::new();
            for kept in study.trials_of(&load.name) {
                let case = (&kept.trial.parameters, &kept.trial.scaled);
                let case = serde_json::to_string(&case).unwrap_or_default();
                cases.entry(case).or_default().push(kept);
            }
            contests.extend(cases.values().filter_map(|trials| contest(study, load, trials)));
        }
    }
    contests
}

fn contest<'a>(study: &'a Study, load: &Load, trials: &[&'a Kept]) -> Option<Contest<'a>> {
    let parameters = &trials.first()?.trial.parameters;
    let entrant = |peer: usize| {
        let name = &study.peers[peer].name;
        let own = trials.iter().copied().filter(|kept| kept.trial.peer == *name);
        let trials: Vec<&Kept> = own.collect();
        // No criterion is a metric that itself tells how many were served.
        let is_sound = !trials.is_empty()
            && !neglects(&trials, "server_us_per_request")
            && trials.iter().all(|kept| !kept.trial.saturated && kept.trial.failed.is_none());
        Entrant { peer, trials, is_sound }
    };
    let entrants: Vec<Entrant<'_>> =
        (0..study.peers.len()).map(entrant).filter(|entrant| !entrant.trials.is_empty()).collect();
    if entrants.iter().filter(|entrant| entrant.is_sound).count() < 2 {
        return None;
    }
    let value = |name: &str| parameters.get(name).map(dimension::bare);
    let job = Template::new(&load.job).fill(value).unwrap_or_else(|_| load.job.clone());
    let delivery = DELIVERIES.iter().find(|(known, _)| *known == job);
    let title = if load.title.is_empty() { &load.name } else { &load.title };
    let words = parameters.iter().map(|(name, value)| dimension::full(name, value));
    let case: Vec<String> = std::iter::once(title.clone()).chain(words).collect();
    Some(Contest {
        study,
        delivery: delivery.map_or(job.clone(), |(_, words)| (*words).to_owned()),
        case: case.join(", "),
        has_viewers: matches!(load.with, Tool::Viewers | Tool::Capacity),
        entrants,
    })
}

impl Contest<'_> {
    /// How many servers can be compared.
    pub(super) fn size(&self) -> usize {
        self.sound().count()
    }

    /// Whether each of them has several repetitions, so that their spread is known.
    pub(super) fn is_repeated(&self) -> bool {
        self.sound().all(|entrant| entrant.trials.len() > 1)
    }

    fn sound(&self) -> impl Iterator<Item = &Entrant<'_>> {
        self.entrants.iter().filter(|entrant| entrant.is_sound)
    }
}

impl Entrant<'_> {
    /// The values of a metric, one for each repetition.
    pub(super) fn values(&self, metric: &str) -> Vec<f64> {
        self.trials.iter().filter_map(|kept| kept.metric(metric)).collect()
    }
}
