//! Compares what nodes answer for the same objects, without I/O.
//!
//! The body that came first is kept until all nodes have answered. Then only figures are left. If
//! more than [`MOST_BYTES`] wait, the oldest are given up. So that this does not happen where one node is faster than
//! others, [`Ledger::is_far_ahead`] says when it should wait for them.

use std::time::Duration;

use bytes::Bytes;
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Serialize;

use crate::summary::{Distribution, Values};

/// Most bytes of bodies that wait for other nodes.
const MOST_BYTES: usize = 256 << 20;
/// Most objects that wait.
const MOST_OBJECTS: usize = 50_000;
/// How many differences are described.
const DESCRIBED: usize = 100;

/// What stands between the name of a playlist or manifest and its state.
pub const STATE: &str = " in state ";

/// Names of the header fields of an [`Object`].
pub const FIELDS: [&str; 3] = ["ETag", "Content-Type", "Cache-Control"];

/// An answer of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Object {
    /// What is compared.
    pub body: Bytes,
    /// What was left out of the body because it may differ: EXT-X-RENDITION-REPORT, which tells of
    /// other playlists. If it differs, so may the ETag.
    pub aside: String,
    /// The values of [`FIELDS`].
    pub fields: [String; FIELDS.len()],
    /// Whether the answer may have begun before the object was whole, as it had no `Content-Length`. A node cannot
    /// know the ETag of what is not whole yet.
    pub is_growing: bool,
}

impl Object {
    /// Whether the answer has no ETag because it may have begun too early for that.
    fn is_before_its_etag(&self) -> bool {
        self.is_growing && self.fields[0].is_empty()
    }
}

/// What is expected of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// All nodes have it.
    Lasting,
    /// One of the states that a playlist or manifest goes through. A node may be asked when it is
    /// over.
    State,
}

/// A difference between two nodes.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Difference {
    /// The object.
    pub object: String,
    /// The node that differs, as its URL.
    pub node: String,
    /// The node that it differs from, which answered first.
    pub from: String,
    /// What differs: `body`, `ETag`, `Content-Type`, `Cache-Control`, or `absent` (the node does not
    /// have it).
    pub what: String,
    /// First byte that differs, from 0, if bodies do. Of a file: from its start.
    pub offset: Option<u64>,
    /// Lengths of both bodies, this node's first.
    pub lengths: Option<[u64; 2]>,
    /// Both values of a field, this node's first, or why the object is absent.
    pub values: Option<[String; 2]>,
}

/// How much was compared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Counts {
    /// Objects that all nodes have answered.
    pub objects: u64,
    /// Bytes of these, of one node.
    pub bytes: u64,
    /// Those of them that are states of playlists and manifests.
    pub states: u64,
    /// States of which only the reports of other renditions differed (EXT-X-RENDITION-REPORT). These
    /// tell what was known when the playlist was written, and are no difference.
    pub other_reports: u64,
    /// Those of them with the same strong ETag, which says that the bytes are the same (RFC 9110
    /// 8.8.1).
    pub other_reports_same_etag: u64,
    /// States that some nodes were not seen in.
    pub states_of_some: u64,
    /// Playlists and manifests of which no state was seen on all nodes. So they were not compared.
    pub never_in_one_state: u64,
    /// Objects that were given up because too many waited for other nodes.
    pub given_up: u64,
    /// Differences.
    pub differences: u64,
}

impl Counts {
    /// Whether all that was answered is the same, and was compared. Where the comparison was `interrupted`, nodes may
    /// have had no time to be in one state.
    pub fn passed(&self, interrupted: bool) -> bool {
        let was_compared = self.given_up == 0 && (interrupted || self.never_in_one_state == 0);
        self.objects > 0 && self.differences == 0 && was_compared
    }
}

#[derive(Debug)]
struct Waiting {
    kind: Kind,
    first: usize,
    object: Object,
    /// Where the body begins in the file that it is a range of.
    start: u64,
    /// For each node that has answered: when it had the object, if that says anything.
    had: Vec<Option<Option<Duration>>>,
}

/// A playlist or manifest that changes.
#[derive(Debug)]
struct Listing {
    /// Whether each node has answered with it.
    answered: Vec<bool>,
    first: usize,
    /// Whether all nodes were seen in one state of it.
    is_compared: bool,
}

/// All that nodes have answered.
#[derive(Debug)]
pub struct Ledger {
    nodes: Vec<String>,
    waiting: IndexMap<String, Waiting>,
    /// By name, without a state.
    listings: IndexMap<String, Listing>,
    bytes: usize,
    /// For each node, the bytes and the number of the objects that wait, and that it was the first to have.
    ahead: Vec<(usize, usize)>,
    counts: Counts,
    differences: Vec<Difference>,
    /// For each node, how much later than the first it had objects.
    behind: Vec<Lateness>,
}

/// How much later than the first a node had objects.
#[derive(Debug, Clone, Default)]
struct Lateness {
    values: Values,
    /// The latest, and its name.
    worst: (Duration, Option<String>),
}

impl Lateness {
    fn record(&mut self, name: &str, late: Duration) {
        self.values.record(late.as_secs_f64());
        if late > self.worst.0 {
            self.worst = (late, Some(name.to_owned()));
        }
    }
}

/// How much later than the first of all nodes a node had the objects that came to be meanwhile. Times
/// are in seconds.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Behind {
    /// Over all these objects.
    #[serde(flatten)]
    pub times: Distribution,
    /// The object with the longest time; absent if the node was always the first.
    pub worst: Option<String>,
}

impl Ledger {
    /// Makes an empty ledger for nodes with these names.
    pub fn new(nodes: Vec<String>) -> Self {
        let behind = nodes.iter().map(|_| Lateness::default()).collect();
        let ahead = vec![(0, 0); nodes.len()];
        Self {
            nodes,
            ahead,
            waiting: IndexMap::new(),
            listings: IndexMap::new(),
            bytes: 0,
            counts: Counts::default(),
            differences: Vec::new(),
            behind,
        }
    }

    /// Notes that a node answered with a playlist or manifest that changes. `name` is without a state.
    pub fn listed(&mut self, node: usize, name: &str) {
        if let Some(listing) = self.listings.get_mut(name) {
            listing.answered[node] = true;
        } else if self.listings.len() < MOST_OBJECTS {
            let mut answered = vec![false; self.nodes.len()];
            answered[node] = true;
            let listing = Listing { answered, first: node, is_compared: false };
            self.listings.insert(name.to_owned(), listing);
        }
    }

    /// The playlists and manifests that a node has not answered, but others have.
    pub fn unlisted(&self, node: usize) -> Vec<String> {
        let lacks = |(_, listing): &(&String, &Listing)| !listing.answered[node];
        self.listings.iter().filter(lacks).map(|(name, _)| name.clone()).collect()
    }

    /// Notes what a node answered for an object. `had` is the time at which it had the object; `None`
    /// if it had the object before anybody looked.
    pub fn record(
        &mut self,
        node: usize,
        (name, kind): (&str, Kind),
        (start, object): (u64, Object),
        had: Option<Duration>,
    ) {
        let Some(waiting) = self.waiting.get_mut(name) else {
            let mut of_all = vec![None; self.nodes.len()];
            of_all[node] = Some(had);
            self.bytes += object.body.len();
            self.ahead[node].0 += object.body.len();
            self.ahead[node].1 += 1;
            let waiting = Waiting { kind, first: node, object, start, had: of_all };
            self.waiting.insert(name.to_owned(), waiting);
            return self.limit();
        };
        if waiting.had[node].is_some() {
            return;
        }
        waiting.had[node] = Some(had);
        let found = differences(waiting, &object);
        if waiting.object.is_before_its_etag() && waiting.object.body == object.body {
            // Those that follow are compared with the ETag that there is now.
            waiting.object.fields[0].clone_from(&object.fields[0]);
            waiting.object.is_growing = object.is_growing;
        }
        if waiting.object.body == object.body && waiting.object.aside != object.aside {
            self.counts.other_reports += 1;
            let etag = &object.fields[0];
            let is_strong = !etag.is_empty() && !etag.starts_with("W/");
            let is_same = is_strong && *etag == waiting.object.fields[0];
            self.counts.other_reports_same_etag += u64::from(is_same);
        }
        let from = waiting.first;
        let is_complete = waiting.had.iter().all(Option::is_some);
        for difference in found {
            self.differ(name, node, from, difference);
        }
        if is_complete {
            self.complete(name);
        }
    }

    /// Notes that a node does not have an object that another has, and why.
    pub fn absent(&mut self, node: usize, name: &str, why: &str) {
        let values = Some([why.to_owned(), "200".to_owned()]);
        let absent = Found { what: "absent", offset: None, lengths: None, values };
        if let Some(listing) = self.listings.get_mut(name) {
            listing.answered[node] = true;
            let from = listing.first;
            return self.differ(name, node, from, absent);
        }
        let Some(waiting) = self.waiting.get_mut(name) else { return };
        let from = waiting.first;
        waiting.had[node] = Some(None);
        let is_complete = waiting.had.iter().all(Option::is_some);
        self.differ(name, node, from, absent);
        if is_complete {
            self.complete(name);
        }
    }

    /// How many differences there are so far.
    pub fn differences(&self) -> u64 {
        self.counts.differences
    }

    /// The lasting objects that a node has not answered yet, but others have.
    pub fn lacks(&self, node: usize) -> Vec<String> {
        let lacks =
            |waiting: &Waiting| waiting.kind == Kind::Lasting && waiting.had[node].is_none();
        let of = |(name, waiting): (&String, &Waiting)| lacks(waiting).then(|| name.clone());
        self.waiting.iter().filter_map(of).collect()
    }

    /// The lasting objects that others had before anybody looked, and that a node has not answered
    /// yet. They may soon leave its window.
    pub fn lacks_of_first(&self, node: usize) -> Vec<String> {
        let lacks = |(_, waiting): &(&String, &Waiting)| {
            let was_there = waiting.had[waiting.first] == Some(None);
            waiting.kind == Kind::Lasting && was_there && waiting.had[node].is_none()
        };
        self.waiting.iter().filter(lacks).map(|(name, _)| name.clone()).collect()
    }

    /// Ends the comparison. Returns how much was compared, the differences that are described, and for
    /// each node how much later than the first it had objects.
    pub fn finish(mut self) -> (Counts, Vec<Difference>, Vec<Option<Behind>>) {
        let states = self.waiting.values().filter(|waiting| waiting.kind == Kind::State).count();
        self.counts.states_of_some += states as u64;
        let is_open = |listing: &&Listing| !listing.is_compared;
        self.counts.never_in_one_state = self.listings.values().filter(is_open).count() as u64;
        let behind = self.behind.into_iter().map(|Lateness { values, worst: (_, worst) }| {
            values.read().map(|times| Behind { times, worst })
        });
        (self.counts, self.differences, behind.collect())
    }

    fn differ(&mut self, object: &str, node: usize, from: usize, found: Found) {
        self.counts.differences += 1;
        if self.differences.len() < DESCRIBED {
            self.differences.push(Difference {
                object: object.to_owned(),
                node: self.nodes[node].clone(),
                from: self.nodes[from].clone(),
                what: found.what.to_owned(),
                offset: found.offset,
                lengths: found.lengths,
                values: found.values,
            });
        }
    }

    /// All nodes have answered.
    fn complete(&mut self, name: &str) {
        let Some(waiting) = self.waiting.shift_remove(name) else { return };
        self.waits_no_longer(&waiting);
        self.counts.objects += 1;
        self.counts.bytes += waiting.object.body.len() as u64;
        if waiting.kind == Kind::State {
            self.counts.states += 1;
            let listing = name.split_once(STATE).and_then(|(list, _)| self.listings.get_mut(list));
            if let Some(listing) = listing {
                listing.is_compared = true;
            }
        }
        // Where one had it before anybody looked, the times of the others say nothing.
        let times: Option<Vec<Duration>> = waiting.had.into_iter().map(Option::flatten).collect();
        let Some(times) = times else { return };
        let first = times.iter().min().copied().unwrap_or_default();
        for (behind, time) in self.behind.iter_mut().zip(times) {
            behind.record(name, time - first);
        }
    }

    fn limit(&mut self) {
        while self.bytes > MOST_BYTES || self.waiting.len() > MOST_OBJECTS {
            let Some((_, oldest)) = self.waiting.shift_remove_index(0) else { return };
            self.waits_no_longer(&oldest);
            self.counts.given_up += 1;
        }
    }

    fn waits_no_longer(&mut self, waiting: &Waiting) {
        let length = waiting.object.body.len();
        self.bytes -= length;
        let (bytes, count) = &mut self.ahead[waiting.first];
        (*bytes, *count) = (*bytes - length, *count - 1);
    }

    /// Whether a node has so many objects that others have not answered yet that it should wait for them. All nodes
    /// together may take half of the room.
    pub fn is_far_ahead(&self, node: usize) -> bool {
        let (bytes, count) = self.ahead.get(node).copied().unwrap_or_default();
        let share = 2 * self.nodes.len().max(1);
        bytes > MOST_BYTES / share || count > MOST_OBJECTS / share
    }

    /// How many objects all nodes have answered so far.
    pub fn objects(&self) -> u64 {
        self.counts.objects
    }
}

struct Found {
    what: &'static str,
    offset: Option<u64>,
    lengths: Option<[u64; 2]>,
    values: Option<[String; 2]>,
}

fn differences(waiting: &Waiting, object: &Object) -> Vec<Found> {
    let mut found = Vec::new();
    let (ours, first) = (&object.body, &waiting.object.body);
    if ours != first {
        let same = ours.iter().zip(first.iter()).take_while(|(ours, first)| ours == first).count();
        found.push(Found {
            what: "body",
            offset: Some(waiting.start + same as u64),
            lengths: Some([ours.len() as u64, first.len() as u64]),
            values: None,
        });
    }
    let is_same = ours == first && object.aside == waiting.object.aside;
    let is_before_etag = object.is_before_its_etag() || waiting.object.is_before_its_etag();
    for (at, what) in FIELDS.into_iter().enumerate() {
        let (ours, first) = (&object.fields[at], &waiting.object.fields[at]);
        // Another text may have another ETag.
        let is_comparable = what != "ETag" || is_same && !is_before_etag;
        if ours != first && is_comparable {
            let values = Some([ours.clone(), first.clone()]);
            found.push(Found { what, offset: None, lengths: None, values });
        }
    }
    found
}

#[cfg(test)]
mod tests;
