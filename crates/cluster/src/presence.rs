//! Which node has which stream.
//!
//! Every node says once a second, and whenever that changes, which streams it has ([`Announcement`]). So every node
//! knows all streams ([`Directory`]), and a name that nobody has is unknown without asking anybody. Who is silent for
//! [`FORGOTTEN`] has gone. Who has been connected for [`SETTLED`] has heard everybody.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use live::UnixMicros;
use serde::{Deserialize, Serialize};

use crate::wire;

/// The subject of announcements.
pub const SUBJECT: &str = "headwater.nodes";
/// How often a node announces itself.
pub const INTERVAL: Duration = Duration::from_secs(1);
/// A node that is silent for this time has gone, and its streams with it. It is longer than a change of servers of the
/// message system takes.
pub const FORGOTTEN: Duration = Duration::from_secs(10);
/// After this time with a connection, a node has heard every other.
pub const SETTLED: Duration = Duration::from_millis(1500);
/// The most streams in one message. Names have up to 128 bytes, and a message up to a megabyte.
const A_MESSAGE: usize = 4000;
/// The most nodes that are remembered.
const MOST_NODES: usize = 1000;
/// The most streams of a node, and ten times as many of all nodes.
const MOST_STREAMS: usize = 10_000;
/// The longest text in an announcement, in bytes.
const LONGEST: usize = 256;

/// What a node says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announcement {
    /// Its name.
    pub node: String,
    /// Where viewers reach it, as a URL without a path; empty if that is not configured.
    pub address: String,
    /// Where it is, in the operator's own words.
    pub zone: String,
    /// How many viewers it has.
    pub viewers: u32,
    /// Whether it takes new viewers.
    pub ready: bool,
    /// The number of this message, and of how many: a node may have more streams than one message holds.
    pub message: (u32, u32),
    /// The streams that it has, by name, the epochs of their leases, and whether somebody publishes them.
    pub streams: Vec<(String, u64, bool)>,
}

impl Announcement {
    /// The messages of which it consists.
    pub fn split(self) -> Vec<Self> {
        let parts: Vec<_> = self.streams.chunks(A_MESSAGE).map(<[_]>::to_vec).collect();
        let parts = if parts.is_empty() { vec![Vec::new()] } else { parts };
        let count = u32::try_from(parts.len()).unwrap_or(u32::MAX);
        let part = |(number, streams)| Self { message: (number, count), streams, ..self.clone() };
        (0..).zip(parts).map(part).collect()
    }

    /// The announcement as bytes.
    ///
    /// # Errors
    /// None that is known.
    pub fn write(&self) -> Result<Bytes, wire::Error> {
        Ok(wire::seal(wire::head(self)?))
    }

    /// Reads an announcement.
    ///
    /// # Errors
    /// The bytes are no announcement.
    pub fn read(bytes: &[u8]) -> Result<Self, wire::Error> {
        Ok(postcard::from_bytes(wire::open(bytes)?)?)
    }
}

/// Where a stream is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The node that has it.
    pub node: String,
    /// The epoch of its lease.
    pub epoch: u64,
    /// Whether somebody publishes it. Otherwise the node waits for the publisher.
    pub is_live: bool,
}

/// What the nodes said.
#[derive(Debug, Default)]
pub struct Directory {
    nodes: HashMap<String, Node>,
}

#[derive(Debug)]
struct Node {
    heard: UnixMicros,
    address: String,
    zone: String,
    viewers: u32,
    ready: bool,
    streams: HashMap<String, (u64, bool)>,
    /// The streams of an announcement of which messages are still to come, and how many came.
    coming: (u32, HashMap<String, (u64, bool)>),
}

/// A node as others know it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Known {
    /// Its name.
    pub node: String,
    /// When it was heard last.
    pub heard: UnixMicros,
    /// Where viewers reach it; empty if it does not say.
    pub address: String,
    /// Where it is.
    pub zone: String,
    /// How many viewers it has.
    pub viewers: u32,
    /// Whether it takes new viewers.
    pub ready: bool,
    /// How many streams it has.
    pub streams: usize,
}

impl Directory {
    /// Takes an announcement.
    pub fn hear(&mut self, announcement: Announcement, now: UnixMicros) {
        self.nodes.retain(|_, node| now.since(node.heard) < FORGOTTEN);
        if self.nodes.len() >= MOST_NODES && !self.nodes.contains_key(&announcement.node) {
            return;
        }
        let texts = [&announcement.node, &announcement.address, &announcement.zone];
        let names = announcement.streams.iter().map(|(name, ..)| name);
        if texts.into_iter().chain(names).any(|text| text.len() > LONGEST) {
            return;
        }
        let others = self.nodes.iter().filter(|(name, _)| **name != announcement.node);
        let others: usize = others.map(|(_, node)| node.streams.len() + node.coming.1.len()).sum();
        let room = MOST_STREAMS.min((10 * MOST_STREAMS).saturating_sub(others));
        let Announcement { node, address, zone, viewers, ready, message: (number, count), streams } =
            announcement;
        let before = self.nodes.remove(&node);
        let (mut known, (came, mut coming)) =
            before.map(|node| (node.streams, node.coming)).unwrap_or_default();
        let mut came = if number == 0 { 0 } else { came };
        if number == 0 {
            coming.clear();
        }
        // One that is lost makes the whole wait for the next announcement.
        if number == came {
            came += 1;
            let streams =
                streams.into_iter().map(|(name, epoch, is_live)| (name, (epoch, is_live)));
            coming.extend(streams.take(room.saturating_sub(coming.len())));
            if came >= count {
                known = std::mem::take(&mut coming);
            }
        }
        let coming = (came, coming);
        self.nodes.insert(
            node,
            Node { heard: now, address, zone, viewers, ready, streams: known, coming },
        );
    }

    /// Whether a node has announced itself lately.
    pub fn knows(&self, node: &str, now: UnixMicros) -> bool {
        self.nodes.get(node).is_some_and(|node| now.since(node.heard) < FORGOTTEN)
    }

    /// Forgets what a node said, because it has gone.
    pub fn forget(&mut self, node: &str) {
        self.nodes.remove(node);
    }

    /// Where a stream is. If two nodes say that they have it, the one with the newer lease does.
    pub fn holder(&self, stream: &str, now: UnixMicros) -> Option<Holder> {
        let present = self.nodes.iter().filter(|(_, node)| now.since(node.heard) < FORGOTTEN);
        let holders = present.filter_map(|(name, node)| Some((node.streams.get(stream)?, name)));
        let newest = holders.max();
        newest.map(|(&(epoch, is_live), node)| Holder { node: node.clone(), epoch, is_live })
    }

    /// Where to send a viewer: the address of the node with the fewest viewers, of those in `zone` if there are any.
    /// The viewer counts there at once: many come before a node announces itself again.
    pub fn route(&mut self, zone: Option<&str>, now: UnixMicros) -> Option<String> {
        let takes = |node: &Node| {
            node.ready && !node.address.is_empty() && now.since(node.heard) < FORGOTTEN
        };
        let nearest =
            self.nodes.iter_mut().filter(|(_, node)| takes(node)).min_by_key(|(name, node)| {
                let is_far = zone.is_some_and(|zone| node.zone != zone);
                (is_far, node.viewers, (*name).clone())
            });
        let (_, node) = nearest?;
        node.viewers = node.viewers.saturating_add(1);
        Some(node.address.clone())
    }

    /// The nodes, by name.
    pub fn nodes(&self) -> Vec<Known> {
        let known = |(name, node): (&String, &Node)| Known {
            node: name.clone(),
            heard: node.heard,
            address: node.address.clone(),
            zone: node.zone.clone(),
            viewers: node.viewers,
            ready: node.ready,
            streams: node.streams.len(),
        };
        let mut nodes: Vec<_> = self.nodes.iter().map(known).collect();
        nodes.sort();
        nodes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: UnixMicros = UnixMicros(1_700_000_000_000_000);

    fn announce(node: &str, streams: &[(&str, u64)]) -> Announcement {
        let streams = streams.iter().map(|&(name, epoch)| (name.to_owned(), epoch, true)).collect();
        let announcement = Announcement {
            node: node.to_owned(),
            address: format!("http://{node}"),
            zone: "eu".to_owned(),
            viewers: 0,
            ready: true,
            message: (0, 1),
            streams,
        };
        Announcement::read(&announcement.write().unwrap()).unwrap()
    }

    fn at(millis: u64) -> UnixMicros {
        START.after(Duration::from_millis(millis))
    }

    #[test]
    fn the_newest_lease_counts_and_who_is_silent_has_nothing() {
        let mut directory = Directory::default();
        let holder = |directory: &Directory, millis| {
            directory.holder("x", at(millis)).map(|holder| (holder.node, holder.epoch))
        };
        assert_eq!(holder(&directory, 0), None);
        directory.hear(announce("a", &[("x", 5), ("y", 6)]), at(0));
        assert_eq!(holder(&directory, 9_999), Some(("a".to_owned(), 5)));
        // It moved, and the old node does not know that yet.
        directory.hear(announce("b", &[("x", 9)]), at(1000));
        directory.hear(announce("a", &[("x", 5)]), at(2000));
        assert_eq!(holder(&directory, 2000), Some(("b".to_owned(), 9)));
        assert_eq!(holder(&directory, 11_000), Some(("a".to_owned(), 5)));
        assert!(directory.knows("a", at(11_999)) && !directory.knows("a", at(12_000)));
        directory.forget("a");
        assert!(!directory.knows("a", at(11_000)));
        assert_eq!(holder(&directory, 11_000), None);
        directory.hear(announce("b", &[]), at(20_000));
        let [known] = &directory.nodes()[..] else { panic!("{:?}", directory.nodes()) };
        assert_eq!((&*known.node, known.heard, known.streams), ("b", at(20_000), 0));
    }

    #[test]
    fn viewers_go_to_the_nearest_node_with_the_fewest() {
        let mut directory = Directory::default();
        assert_eq!(directory.route(None, START), None);
        for (node, zone, viewers, ready) in [
            ("a", "eu", 3, true),
            ("b", "us", 2, true),
            ("c", "us", 0, false),
            ("d", "us", 5, true),
        ] {
            let mut announcement = announce(node, &[]);
            (announcement.zone, announcement.viewers) = (zone.to_owned(), viewers);
            announcement.ready = ready;
            directory.hear(announcement, START);
        }
        let mut route = |zone| directory.route(zone, START).unwrap();
        assert_eq!(route(Some("eu")), "http://a");
        // In the United States, d has more than b until b has as many.
        let us: Vec<_> = (0..5).map(|_| route(Some("us"))).collect();
        assert_eq!(us, ["http://b", "http://b", "http://b", "http://b", "http://d"]);
        // Nobody is in Asia, and a has four by now.
        assert_eq!(route(Some("asia")), "http://a");
        assert_eq!(directory.route(None, START.after(FORGOTTEN)), None);
    }

    #[test]
    fn an_announcement_of_many_streams_comes_in_several_messages() {
        let mut announcement = announce("a", &[]);
        let names = (0..2 * A_MESSAGE + 5).map(|number| (format!("s{number}"), 7, true));
        announcement.streams = names.collect();
        let messages = announcement.split();
        assert_eq!(messages.len(), 3);
        let mut directory = Directory::default();
        let count = |directory: &Directory| directory.nodes()[0].streams;
        let [first, second, third] = &messages[..] else { panic!("{messages:?}") };
        for message in [first, second] {
            assert!(message.write().unwrap().len() < 1 << 20);
            directory.hear(message.clone(), START);
            assert_eq!(count(&directory), 0);
        }
        directory.hear(third.clone(), START);
        assert_eq!(count(&directory), 2 * A_MESSAGE + 5);
        // Of the next, a message is lost: what was known stays until one comes whole.
        for message in [first, third] {
            directory.hear(message.clone(), START);
            assert_eq!(count(&directory), 2 * A_MESSAGE + 5);
        }
        directory.hear(announce("a", &[("x", 8)]), START);
        assert_eq!(count(&directory), 1);
    }

    #[test]
    fn hostile_announcements_are_refused() {
        assert!(Announcement::read(&[]).is_err());
        let sealed = |rest: &[u8]| wire::seal([&[0; 4], rest].concat());
        let newer = [wire::FORMAT + 1, 1, b'a', 0, 0, 0, 0, 0, 1, 0];
        for bytes in [&[wire::FORMAT, 255, 255, 255, 255, 15], &newer[..]] {
            assert!(Announcement::read(&sealed(bytes)).is_err());
        }
        let damaged: Vec<_> = announce("a", &[]).write().unwrap().iter().map(|b| b ^ 1).collect();
        assert!(matches!(Announcement::read(&damaged), Err(wire::Error::Damaged)));
        let mut directory = Directory::default();
        for number in 0..MOST_NODES + 5 {
            directory.hear(announce(&format!("n{number}"), &[]), START);
        }
        assert_eq!(directory.nodes().len(), MOST_NODES);

        let mut directory = Directory::default();
        directory.hear(announce(&"n".repeat(LONGEST + 1), &[]), START);
        directory.hear(announce("n", &[(&"s".repeat(LONGEST + 1), 1)]), START);
        assert_eq!(directory.nodes(), []);
        for node in 0..12 {
            let mut announcement = announce(&format!("n{node}"), &[]);
            let names = (0..MOST_STREAMS + 5).map(|number| (format!("s{number}"), 7, true));
            announcement.streams = names.collect();
            directory.hear(announcement, START);
        }
        let counts: Vec<_> = directory.nodes().iter().map(|known| known.streams).collect();
        assert_eq!(counts.iter().max(), Some(&MOST_STREAMS));
        assert_eq!(counts.iter().sum::<usize>(), 10 * MOST_STREAMS);
    }
}
