//! The nodes of a cluster, and their streams.
//!
//! Every node announces its streams once a second, and soon after a change ([`Announcement`]). So every node
//! knows all streams ([`Directory`]), and need not ask anybody to know that a name is unknown. A node that is
//! silent for [`FORGOTTEN`] has gone. A node that has been connected for [`SETTLED`] has heard all others.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use live::UnixMicros;
use serde::{Deserialize, Serialize};

use crate::role::Role;
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
/// The most streams in one message, and the most copies. Names have up to 128 bytes, and a message up to a megabyte.
const A_MESSAGE: usize = 2300;
/// The most nodes that are remembered.
const MOST_NODES: usize = 1000;
/// The most streams of a node, and the most copies. All nodes together may have ten times as many.
const MOST_STREAMS: usize = 10_000;
/// How long a node that has gone is remembered.
const REMEMBERED: Duration = Duration::from_mins(10);
/// The most nodes that have gone and are remembered.
const MOST_GONE: usize = 100;
/// The longest text in an announcement, in bytes.
const LONGEST: usize = 256;

/// A message with which a node announces itself and its streams.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announcement {
    /// The node's name.
    pub node: String,
    /// The node's address for viewers, as a URL without a path; empty if that is not configured.
    pub address: String,
    /// The node's place, in the operator's own words.
    pub zone: String,
    /// How many viewers it has.
    pub viewers: u32,
    /// Whether it takes new viewers.
    pub ready: bool,
    /// The number of this message, and how many there are: one may be too small for all streams of a node.
    pub message: (u32, u32),
    /// The streams that it has, by name, the epochs of their leases, and whether somebody publishes them.
    pub streams: Vec<(String, u64, bool)>,
    /// Streams, by name, with unusual seats here: the primary is not live while somebody publishes, or a
    /// publisher waits.
    pub seats: Vec<(String, Seats)>,
    /// Figures of the node for people to see. They follow the rest of the message.
    #[serde(skip)]
    pub report: Option<Report>,
}

/// The publishers of a stream that has two, as far as they are at one node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seats {
    /// The role of the publisher that is live there. A rendition's publisher is neither primary nor backup.
    pub live: Option<Role>,
    /// The publisher that waits there and sends.
    pub waits: Option<Role>,
}

/// Figures of a node, for people to see.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The share of its machine's processors that its program uses, in thousandths.
    pub load: u16,
    /// The streams of other nodes that it copies, and how long ago each copy had all that the stream's node told, in
    /// milliseconds.
    pub copies: Vec<(String, u32)>,
}

impl Announcement {
    /// Splits the announcement into messages.
    pub fn split(self) -> Vec<Self> {
        let copies = self.report.as_ref().map_or(0, |report| report.copies.len());
        let longest = self.streams.len().max(self.seats.len()).max(copies);
        let count = longest.div_ceil(A_MESSAGE).max(1);
        let total = u32::try_from(count).unwrap_or(u32::MAX);
        let part = |(number, begin)| Self {
            message: (number, total),
            streams: part_of(&self.streams, begin),
            seats: part_of(&self.seats, begin),
            report: self
                .report
                .as_ref()
                .map(|report| Report { load: report.load, copies: part_of(&report.copies, begin) }),
            node: self.node.clone(),
            address: self.address.clone(),
            zone: self.zone.clone(),
            ..self
        };
        (0..).zip((0..count).map(|part| part * A_MESSAGE)).map(part).collect()
    }

    /// The announcement as bytes.
    ///
    /// # Errors
    /// None that is known.
    pub fn write(&self) -> Result<Bytes, wire::Error> {
        let mut bytes = wire::head(self)?;
        if let Some(report) = &self.report {
            bytes.extend(postcard::to_allocvec(report)?);
        }
        Ok(wire::seal(bytes))
    }

    /// Reads an announcement.
    ///
    /// # Errors
    /// The bytes are no announcement.
    pub fn read(bytes: &[u8]) -> Result<Self, wire::Error> {
        let (mut announcement, rest) = postcard::take_from_bytes::<Self>(wire::open(bytes)?)?;
        if !rest.is_empty() {
            announcement.report = Some(postcard::from_bytes(rest)?);
        }
        Ok(announcement)
    }
}

/// The items of a list that one message has.
fn part_of<T: Clone>(list: &[T], begin: usize) -> Vec<T> {
    list.iter().skip(begin).take(A_MESSAGE).cloned().collect()
}

/// The node that has a stream, and the stream's publishers there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The name of the node.
    pub node: String,
    /// The epoch of the node's lease.
    pub epoch: u64,
    /// Whether somebody publishes the stream. Otherwise the node waits for the publisher.
    pub is_live: bool,
    /// The role of the publisher that is live at the node.
    ///
    /// `None` while the node waits for the publisher, or if only renditions are published.
    pub publisher: Option<Role>,
    /// The publisher that waits there and sends.
    pub waits: Option<Role>,
}

/// The announcements of all nodes.
#[derive(Debug, Default)]
pub struct Directory {
    nodes: HashMap<String, Node>,
    /// Nodes that are silent or that nobody answers for, and when they were heard last.
    gone: HashMap<String, Known>,
}

#[derive(Debug)]
struct Node {
    /// The content of the node's last announcement. Others may keep it while the next one comes.
    known: Known,
    /// The messages so far of an announcement that is not complete yet.
    coming: Coming,
}

/// The streams that a node has, by name: the epochs of their leases, and whether somebody publishes them.
pub type Streams = HashMap<String, (u64, bool)>;
/// The copies that a node has, by name, and how long ago they had all, in milliseconds.
pub type Copies = HashMap<String, u32>;

#[derive(Debug, Default)]
struct Coming {
    messages: u32,
    streams: Streams,
    seats: HashMap<String, Seats>,
    copies: Copies,
}

/// A node as others know it.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// The share of its machine's processors that its program uses, in thousandths, if it says that.
    pub load: Option<u16>,
    /// The streams that it has.
    pub streams: Arc<Streams>,
    /// Its publishers of streams that have two.
    pub seats: Arc<HashMap<String, Seats>>,
    /// The streams of other nodes that it copies.
    pub copies: Arc<Copies>,
}

impl Directory {
    /// Takes an announcement.
    pub fn hear(&mut self, announcement: Announcement, now: UnixMicros) {
        self.expire(now);
        if self.nodes.len() >= MOST_NODES && !self.nodes.contains_key(&announcement.node) {
            return;
        }
        let texts = [&announcement.node, &announcement.address, &announcement.zone];
        let names = announcement.streams.iter().map(|(name, ..)| name);
        let copied = announcement.report.iter().flat_map(|report| &report.copies);
        let seats = announcement.seats.iter().map(|(name, _)| name);
        let names = names.chain(copied.map(|(name, _)| name)).chain(seats);
        if texts.into_iter().chain(names).any(|text| text.len() > LONGEST) {
            return;
        }
        let others = self.nodes.iter().filter(|(name, _)| **name != announcement.node);
        // Copies are for people to see. They take no room from streams.
        let (mut room, mut room_for_copies) = (10 * MOST_STREAMS, 10 * MOST_STREAMS);
        for (_, Node { known, coming }) in others {
            room = room.saturating_sub(known.streams.len() + coming.streams.len());
            room = room.saturating_sub(known.seats.len() + coming.seats.len());
            room_for_copies =
                room_for_copies.saturating_sub(known.copies.len() + coming.copies.len());
        }
        let Announcement { node, address, zone, viewers, ready, message, streams, seats, report } =
            announcement;
        let (mut kept, mut coming) = match self.nodes.remove(&node) {
            Some(Node { known, coming }) => ((known.streams, known.seats, known.copies), coming),
            None => Default::default(),
        };
        let load = report.as_ref().map(|report| report.load);
        let (number, count) = message;
        if number == 0 {
            coming = Coming::default();
        }
        // If a message is lost, the whole waits for the next announcement.
        if number == coming.messages {
            coming.messages += 1;
            let room = room.min(MOST_STREAMS);
            let streams = streams.into_iter().map(|(name, epoch, live)| (name, (epoch, live)));
            coming.streams.extend(streams.take(room.saturating_sub(coming.streams.len())));
            let room = room.saturating_sub(coming.streams.len());
            coming.seats.extend(seats.into_iter().take(room.saturating_sub(coming.seats.len())));
            let room = room_for_copies.min(MOST_STREAMS).saturating_sub(coming.copies.len());
            let copies = report.map(|report| report.copies).unwrap_or_default();
            coming.copies.extend(copies.into_iter().take(room));
            if coming.messages >= count {
                let Coming { streams, seats, copies, .. } = std::mem::take(&mut coming);
                kept = (Arc::new(streams), Arc::new(seats), Arc::new(copies));
            }
        }
        self.gone.remove(&node);
        let (streams, seats, copies) = kept;
        let heard = now;
        let known =
            Known { node, heard, address, zone, viewers, ready, load, streams, seats, copies };
        self.nodes.insert(known.node.clone(), Node { known, coming });
    }

    /// Notes which nodes have gone: they were silent for too long.
    pub fn expire(&mut self, now: UnixMicros) {
        let silent = self.nodes.extract_if(|_, node| now.since(node.known.heard) >= FORGOTTEN);
        let silent: Vec<_> = silent.map(|(_, node)| node.known).collect();
        for known in silent {
            self.bury(known);
        }
        self.gone.retain(|_, known| now.since(known.heard) < REMEMBERED);
    }

    /// Whether a node has announced itself lately.
    pub fn knows(&self, node: &str, now: UnixMicros) -> bool {
        self.nodes.get(node).is_some_and(|node| now.since(node.known.heard) < FORGOTTEN)
    }

    /// The nodes that have announced nothing for so long, but are not forgotten.
    pub fn quiet(&self, time: Duration, now: UnixMicros) -> Vec<String> {
        let quiet = self.present(now).filter(|node| now.since(node.heard) >= time);
        quiet.map(|node| node.node.clone()).collect()
    }

    /// Whether a node has gone, and has not announced itself since.
    pub fn has_gone(&self, node: &str) -> bool {
        self.gone.contains_key(node)
    }

    /// Forgets what a node said, because it has gone.
    pub fn forget(&mut self, node: &str) {
        if let Some(node) = self.nodes.remove(node) {
            self.bury(node.known);
        }
    }

    /// Keeps the name of a node that has gone, for people to see.
    fn bury(&mut self, known: Known) {
        if self.gone.len() >= MOST_GONE {
            let oldest = self.gone.values().min_by_key(|known| known.heard);
            let oldest = oldest.map(|known| known.node.clone()).unwrap_or_default();
            self.gone.remove(&oldest);
        }
        let (streams, seats, copies) = Default::default();
        let known = Known { ready: false, streams, seats, copies, ..known };
        self.gone.insert(known.node.clone(), known);
    }

    /// Where a stream is. If two nodes say that they have it, the one with the newer lease does.
    pub fn holder(&self, stream: &str, now: UnixMicros) -> Option<Holder> {
        let having = self.present(now).filter_map(|it| Some((it.streams.get(stream)?, it)));
        let (&(epoch, is_live), it) = having.max_by_key(|(lease, it)| (*lease, &it.node))?;
        let primary = Seats { live: is_live.then_some(Role::Primary), waits: None };
        let Seats { live: publisher, waits } = it.seats.get(stream).copied().unwrap_or(primary);
        Some(Holder { node: it.node.clone(), epoch, is_live, publisher, waits })
    }

    /// Another node than `here` at which a publisher of this role waits, and sends.
    pub fn waits(&self, stream: &str, role: Role, here: &str, now: UnixMicros) -> Option<&str> {
        let waits = |it: &&Known| it.seats.get(stream).is_some_and(|it| it.waits == Some(role));
        let mut nodes = self.present(now).filter(|it| it.node != here).filter(waits);
        nodes.next().map(|it| &*it.node)
    }

    /// Forgets that a publisher waits for a stream at a node, until the node says so again.
    pub fn forget_waiting(&mut self, node: &str, stream: &str) {
        let node = self.nodes.get_mut(node);
        if let Some(seats) = node.and_then(|it| Arc::make_mut(&mut it.known.seats).get_mut(stream))
        {
            seats.waits = None;
        }
    }

    fn present(&self, now: UnixMicros) -> impl Iterator<Item = &Known> {
        let known = self.nodes.values().map(|node| &node.known);
        known.filter(move |known| now.since(known.heard) < FORGOTTEN)
    }

    /// Another node than `here` that has a copy of a stream: of several, the one whose copy had all of it last.
    pub fn copier(&self, stream: &str, here: &str, now: UnixMicros) -> Option<String> {
        let nodes = self.nodes.values().map(|node| &node.known);
        let present = nodes.filter(|it| it.node != here && now.since(it.heard) < FORGOTTEN);
        let copiers = present.filter_map(|node| Some((node.copies.get(stream)?, &node.node)));
        copiers.min().map(|(_, node)| node.clone())
    }

    /// The address to send a viewer to: the node with the fewest viewers, in `zone` if nodes are there.
    ///
    /// The viewer counts there at once: many come before a node announces itself again.
    pub fn route(&mut self, zone: Option<&str>, now: UnixMicros) -> Option<String> {
        let takes = |node: &Known| {
            node.ready && !node.address.is_empty() && now.since(node.heard) < FORGOTTEN
        };
        let nodes = self.nodes.values_mut().map(|node| &mut node.known);
        let nearest = nodes.filter(|node| takes(node)).min_by_key(|node| {
            let is_far = zone.is_some_and(|zone| node.zone != zone);
            (is_far, node.viewers, node.node.clone())
        });
        let node = nearest?;
        node.viewers = node.viewers.saturating_add(1);
        Some(node.address.clone())
    }

    /// The nodes, by name.
    pub fn nodes(&self) -> Vec<Known> {
        by_name(self.nodes.values().map(|node| &node.known))
    }

    /// Nodes that have gone within the last ten minutes, by name: up to 100.
    pub fn gone(&self) -> Vec<Known> {
        by_name(self.gone.values())
    }
}

fn by_name<'a>(nodes: impl Iterator<Item = &'a Known>) -> Vec<Known> {
    let mut nodes: Vec<_> = nodes.cloned().collect();
    nodes.sort_by(|one, other| one.node.cmp(&other.node));
    nodes
}

/// A stream as people see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shared<'a> {
    /// Its name.
    pub name: &'a str,
    /// The node that has it, and whether somebody publishes it there. `None` if only copies are left.
    pub holder: Option<(&'a str, bool)>,
    /// The nodes that copy it, and how long ago each copy had all, in milliseconds.
    pub copies: Vec<(&'a str, u32)>,
}

/// The first `most` streams of these nodes, by name, and how many more there are.
pub fn streams(nodes: &[Known], most: usize) -> (Vec<Shared<'_>>, usize) {
    let names = nodes.iter().flat_map(|node| node.streams.keys().chain(node.copies.keys()));
    let mut names: Vec<_> = names.map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    let more = names.len().saturating_sub(most);
    names.truncate(most);
    let shared = |name| {
        let having = nodes.iter().filter_map(|node| Some((node.streams.get(name)?, &*node.node)));
        let copying = nodes.iter().filter_map(|node| Some((&*node.node, *node.copies.get(name)?)));
        let holder = having.max().map(|(&(_, is_live), node)| (node, is_live));
        Shared { name, holder, copies: copying.collect() }
    };
    (names.into_iter().map(shared).collect(), more)
}

#[cfg(test)]
mod tests;
