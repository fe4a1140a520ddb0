//! Compares what nodes answer for the same objects, without I/O.
//!
//! The body that came first is kept until all nodes have answered. Then only figures are left. If
//! more than [`MOST_BYTES`] wait, the oldest are given up.

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
    /// Whether all that was answered is the same, and was compared.
    pub fn passed(&self) -> bool {
        let left_out = self.given_up + self.never_in_one_state;
        self.objects > 0 && self.differences == 0 && left_out == 0
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
        Self {
            nodes,
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
            let waiting = Waiting { kind, first: node, object, start, had: of_all };
            self.waiting.insert(name.to_owned(), waiting);
            return self.limit();
        };
        if waiting.had[node].is_some() {
            return;
        }
        waiting.had[node] = Some(had);
        let found = differences(waiting, &object);
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
        self.bytes -= waiting.object.body.len();
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
            self.bytes -= oldest.object.body.len();
            self.counts.given_up += 1;
        }
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
    for (at, what) in FIELDS.into_iter().enumerate() {
        let (ours, first) = (&object.fields[at], &waiting.object.fields[at]);
        // Another text may have another ETag.
        if ours != first && (is_same || what != "ETag") {
            let values = Some([ours.clone(), first.clone()]);
            found.push(Found { what, offset: None, lengths: None, values });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(nodes: usize) -> Ledger {
        Ledger::new((0..nodes).map(|node| format!("n{node}")).collect())
    }

    fn object(body: &str, etag: &str) -> Object {
        let fields = [etag.to_owned(), "video/mp4".to_owned(), String::new()];
        Object { body: Bytes::copy_from_slice(body.as_bytes()), aside: String::new(), fields }
    }

    fn at(millis: u64) -> Option<Duration> {
        Some(Duration::from_millis(millis))
    }

    #[test]
    fn the_first_byte_that_differs_is_named() {
        let mut ledger = ledger(3);
        for (node, body, etag) in [(1, "abcdef", "1"), (0, "abcxef", "1"), (2, "abcde", "2")] {
            ledger.record(node, ("x.m4s", Kind::Lasting), (100, object(body, etag)), None);
        }
        let (counts, differences, _) = ledger.finish();
        assert_eq!((counts.objects, counts.bytes, counts.differences), (1, 6, 2));
        let of = |at: usize| {
            let Difference { node, from, what, offset, lengths, .. } = &differences[at];
            (&**node, &**from, &**what, *offset, *lengths)
        };
        assert_eq!(of(0), ("n0", "n1", "body", Some(103), Some([6, 6])));
        assert_eq!(of(1), ("n2", "n1", "body", Some(105), Some([5, 6])));
    }

    #[test]
    fn fields_are_compared_of_the_same_bytes() {
        let mut ledger = ledger(2);
        let other = Object { aside: "LAST-PART=3".to_owned(), ..object("a", "2") };
        ledger.record(0, ("p", Kind::State), (0, object("a", "1")), None);
        ledger.record(1, ("p", Kind::State), (0, other), None);
        ledger.record(0, ("q", Kind::Lasting), (0, object("a", "1")), None);
        ledger.record(1, ("q", Kind::Lasting), (0, object("a", "2")), None);
        let (counts, differences, _) = ledger.finish();
        assert_eq!((counts.other_reports, counts.states, counts.objects), (1, 1, 2));
        assert_eq!(counts.other_reports_same_etag, 0);
        assert_eq!(differences.len(), 1);
        assert_eq!((&*differences[0].object, &*differences[0].what), ("q", "ETag"));
        assert_eq!(differences[0].values, Some(["2".to_owned(), "1".to_owned()]));
    }

    #[test]
    fn nodes_are_as_late_as_they_are() {
        let mut ledger = ledger(2);
        for n in 0..100 {
            let name = format!("{n}");
            // One in ten comes first from node 1.
            let (zero, one) = if n % 10 == 0 { (5, 0) } else { (0, 20) };
            let object = || (0, object("a", "1"));
            ledger.record(0, (&name, Kind::Lasting), object(), at(1000 + zero));
            ledger.record(1, (&name, Kind::Lasting), object(), at(1000 + one));
        }
        // Nobody saw when node 0 got this one.
        ledger.record(0, ("old", Kind::Lasting), (0, object("a", "1")), None);
        ledger.record(1, ("old", Kind::Lasting), (0, object("a", "1")), at(90_000));
        let (counts, _, behind) = ledger.finish();
        assert_eq!(counts.objects, 101);
        assert_eq!(behind[0].as_ref().unwrap().worst.as_deref(), Some("0"));
        let [zero, one] = [0, 1].map(|node| behind[node].as_ref().unwrap().times);
        assert_eq!((zero.count, one.count), (100, 100));
        assert!(zero.p50 == 0.0 && (zero.max - 0.005).abs() < 1e-4, "{zero:?}");
        assert!((one.p50 - 0.02).abs() < 1e-4 && one.min == 0.0, "{one:?}");
    }

    #[test]
    fn what_a_node_lacks_is_told_and_states_may_be_missed() {
        let mut ledger = ledger(2);
        ledger.record(0, ("a", Kind::Lasting), (0, object("a", "1")), None);
        ledger.record(0, ("s", Kind::State), (0, object("a", "1")), None);
        assert_eq!((ledger.lacks(1), ledger.lacks(0).len()), (vec!["a".to_owned()], 0));
        ledger.absent(1, "a", "status 404");
        let (counts, differences, _) = ledger.finish();
        assert_eq!((counts.differences, counts.states_of_some), (1, 1));
        assert_eq!((&*differences[0].what, &*differences[0].node), ("absent", "n1"));
    }

    #[test]
    fn a_playlist_that_a_node_never_answers_is_absent() {
        let mut ledger = ledger(2);
        ledger.record(0, ("x", Kind::Lasting), (0, object("a", "1")), None);
        ledger.record(1, ("x", Kind::Lasting), (0, object("a", "1")), None);
        ledger.listed(0, "p");
        ledger.record(0, ("p in state 1", Kind::State), (0, object("a", "1")), None);
        assert_eq!((ledger.unlisted(1), ledger.unlisted(0).len()), (vec!["p".to_owned()], 0));
        ledger.absent(1, "p", "status 500");
        let (counts, differences, _) = ledger.finish();
        assert_eq!((counts.differences, counts.never_in_one_state), (1, 1));
        assert_eq!((&*differences[0].what, &*differences[0].node), ("absent", "n1"));
        assert!(!counts.passed());
    }

    #[test]
    fn playlists_are_compared_in_one_state_at_least() {
        for (other, never) in [("p in state 1", 0), ("p in state 2", 1)] {
            let mut ledger = ledger(2);
            for (node, state) in [(0, "p in state 1"), (1, other)] {
                ledger.record(node, ("x", Kind::Lasting), (0, object("a", "1")), None);
                ledger.listed(node, "p");
                ledger.record(node, (state, Kind::State), (0, object("a", "1")), None);
            }
            let (counts, ..) = ledger.finish();
            assert_eq!((counts.never_in_one_state, counts.passed()), (never, never == 0));
        }
    }

    #[test]
    fn what_was_there_before_anybody_looked_is_asked_for_early() {
        let mut ledger = ledger(2);
        ledger.record(0, ("old", Kind::Lasting), (0, object("a", "1")), None);
        ledger.record(0, ("new", Kind::Lasting), (0, object("a", "1")), at(1000));
        assert_eq!((ledger.lacks_of_first(1), ledger.lacks(1).len()), (vec!["old".to_owned()], 2));
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut ledger = ledger(2);
        let body = Bytes::from(vec![0; MOST_BYTES / 4]);
        for n in 0..6 {
            let object = Object { body: body.clone(), ..Object::default() };
            ledger.record(0, (&n.to_string(), Kind::Lasting), (0, object), None);
        }
        assert!(ledger.bytes <= MOST_BYTES);
        let (counts, ..) = ledger.finish();
        assert_eq!((counts.given_up, counts.passed()), (2, false));
    }
}
