//! Which node has which stream.
//!
//! Every node says once a second, and whenever that changes, which streams it has ([`Announcement`]). So every node
//! knows all streams ([`Directory`]), and a name that nobody has is unknown without asking anybody. Who is silent for
//! [`FORGOTTEN`] has gone. A directory is young until it has heard everybody for [`SETTLED`].

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use live::UnixMicros;
use serde::{Deserialize, Serialize};

use crate::wire::{self, FORMAT};

/// The subject of announcements.
pub const SUBJECT: &str = "headwater.nodes";
/// How often a node announces itself.
pub const INTERVAL: Duration = Duration::from_secs(1);
/// A node that is silent for this time has gone, and its streams with it. It is longer than a change of servers of the
/// message system takes.
pub const FORGOTTEN: Duration = Duration::from_secs(10);
/// After this time, a node has heard of every other.
pub const SETTLED: Duration = Duration::from_millis(1500);
/// The most nodes, and the most streams of a node, that are remembered.
const MOST: usize = 10_000;

/// What a node says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announcement {
    /// Its name.
    pub node: String,
    /// The streams that it has, by name, and the epochs of their leases.
    pub streams: Vec<(String, u64)>,
}

impl Announcement {
    /// The announcement as bytes.
    ///
    /// # Errors
    /// None that is known.
    pub fn write(&self) -> Result<Bytes, wire::Error> {
        Ok(postcard::to_allocvec(&(FORMAT, self))?.into())
    }

    /// Reads an announcement.
    ///
    /// # Errors
    /// The bytes are no announcement.
    pub fn read(bytes: &[u8]) -> Result<Self, wire::Error> {
        let (format, rest) = postcard::take_from_bytes::<u8>(bytes)?;
        if format != FORMAT {
            return Err(wire::Error::Version(format));
        }
        Ok(postcard::from_bytes(rest)?)
    }
}

/// Where a stream is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The node that has it.
    pub node: String,
    /// The epoch of its lease.
    pub epoch: u64,
}

/// What the nodes said.
#[derive(Debug)]
pub struct Directory {
    /// When this node began to listen.
    since: UnixMicros,
    nodes: HashMap<String, Node>,
}

#[derive(Debug)]
struct Node {
    heard: UnixMicros,
    streams: HashMap<String, u64>,
}

impl Directory {
    /// A directory of a node that listens from now on.
    pub fn new(now: UnixMicros) -> Self {
        Self { since: now, nodes: HashMap::new() }
    }

    /// Takes an announcement.
    pub fn hear(&mut self, announcement: Announcement, now: UnixMicros) {
        self.nodes.retain(|_, node| now.since(node.heard) < FORGOTTEN);
        if self.nodes.len() >= MOST && !self.nodes.contains_key(&announcement.node) {
            return;
        }
        let streams = announcement.streams.into_iter().take(MOST).collect();
        self.nodes.insert(announcement.node, Node { heard: now, streams });
    }

    /// Forgets what a node said, because it has gone.
    pub fn forget(&mut self, node: &str) {
        self.nodes.remove(node);
    }

    /// Where a stream is. If two nodes say that they have it, the one with the newer lease does.
    pub fn holder(&self, stream: &str, now: UnixMicros) -> Option<Holder> {
        let present = self.nodes.iter().filter(|(_, node)| now.since(node.heard) < FORGOTTEN);
        let holders = present.filter_map(|(name, node)| Some((node.streams.get(stream)?, name)));
        holders.max().map(|(&epoch, node)| Holder { node: node.clone(), epoch })
    }

    /// Whether an unknown name may still become known, because this node has not listened for long.
    pub fn is_young(&self, now: UnixMicros) -> bool {
        now.since(self.since) < SETTLED
    }

    /// The nodes by name, when each was heard, and how many streams it has.
    pub fn nodes(&self) -> Vec<(String, UnixMicros, usize)> {
        let nodes = self.nodes.iter();
        let mut nodes: Vec<_> =
            nodes.map(|(name, node)| (name.clone(), node.heard, node.streams.len())).collect();
        nodes.sort();
        nodes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: UnixMicros = UnixMicros(1_700_000_000_000_000);

    fn announce(node: &str, streams: &[(&str, u64)]) -> Announcement {
        let streams = streams.iter().map(|&(name, epoch)| (name.to_owned(), epoch)).collect();
        let announcement = Announcement { node: node.to_owned(), streams };
        Announcement::read(&announcement.write().unwrap()).unwrap()
    }

    fn at(millis: u64) -> UnixMicros {
        START.after(Duration::from_millis(millis))
    }

    #[test]
    fn the_newest_lease_counts_and_who_is_silent_has_nothing() {
        let mut directory = Directory::new(START);
        let holder = |directory: &Directory, millis| {
            directory.holder("x", at(millis)).map(|holder| (holder.node, holder.epoch))
        };
        assert_eq!(holder(&directory, 0), None);
        assert!(directory.is_young(at(1499)) && !directory.is_young(at(1500)));
        directory.hear(announce("a", &[("x", 5), ("y", 6)]), at(0));
        assert_eq!(holder(&directory, 9_999), Some(("a".to_owned(), 5)));
        // It moved, and the old node does not know that yet.
        directory.hear(announce("b", &[("x", 9)]), at(1000));
        directory.hear(announce("a", &[("x", 5)]), at(2000));
        assert_eq!(holder(&directory, 2000), Some(("b".to_owned(), 9)));
        assert_eq!(holder(&directory, 11_000), Some(("a".to_owned(), 5)));
        directory.forget("a");
        assert_eq!(holder(&directory, 11_000), None);
        directory.hear(announce("b", &[]), at(20_000));
        assert_eq!(directory.nodes(), [("b".to_owned(), at(20_000), 0)]);
    }

    #[test]
    fn hostile_announcements_are_refused() {
        assert!(Announcement::read(&[]).is_err());
        assert!(Announcement::read(&[1, 255, 255, 255, 255, 15]).is_err());
        assert!(Announcement::read(&[3, 1, b'a', 0]).is_err());
        let mut directory = Directory::new(START);
        for number in 0..MOST + 5 {
            directory.hear(announce(&format!("n{number}"), &[]), START);
        }
        assert_eq!(directory.nodes().len(), MOST);
    }
}
