//! The connections of an event loop: which there are, and which can take a request.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use crate::load::connection::Connection;
use crate::load::redirect::Servers;
use crate::load::trouble::Trouble;
use crate::load::url::Origin;

/// A connection's place and the count of its users, so that a name of one that has gone is known
/// as such.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    place: u32,
    user: u32,
}

impl Key {
    fn to_bits(self) -> u64 {
        u64::from(self.user) << 32 | u64::from(self.place)
    }

    fn from_bits(bits: u64) -> Self {
        Self { place: bits as u32, user: (bits >> 32) as u32 }
    }
}

#[derive(Default)]
struct Slot {
    user: u32,
    connection: Option<Connection>,
    in_idle: bool,
    in_partial: bool,
    touched: bool,
}

/// One server that is asked.
struct Peer {
    origin: Origin,
    address: SocketAddr,
    /// Connections without a request, the latest used last.
    idle: VecDeque<Key>,
    /// Connections with fewer requests than may be pipelined.
    partial: VecDeque<Key>,
}

/// All connections of an event loop, by the server they lead to.
pub(super) struct Pool {
    epoll: OwnedFd,
    servers: Servers,
    peers: Vec<Peer>,
    places: Vec<Slot>,
    free: Vec<u32>,
    /// Connections with something to send.
    touched: Vec<Key>,
    /// The most requests that a connection has without an answer.
    depth: usize,
}

impl Pool {
    /// None yet, of which each may have so many requests without an answer.
    pub(super) fn new(depth: usize, servers: Servers) -> std::io::Result<Self> {
        Ok(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            servers,
            peers: Vec::new(),
            places: Vec::new(),
            free: Vec::new(),
            touched: Vec::new(),
            depth,
        })
    }

    /// The place of an origin among the peers, where it gets one if it has none.
    ///
    /// # Errors
    /// It is not known where it is.
    pub(super) fn peer_of(&mut self, origin: &Origin) -> Result<usize, Trouble> {
        if let Some(place) = self.peers.iter().position(|peer| peer.origin == *origin) {
            return Ok(place);
        }
        let address = self.servers.find(origin)?;
        self.peers.push(Peer {
            origin: origin.clone(),
            address,
            idle: VecDeque::new(),
            partial: VecDeque::new(),
        });
        Ok(self.peers.len() - 1)
    }

    /// How many peers there are.
    pub(super) fn peers(&self) -> usize {
        self.peers.len()
    }

    /// Where a peer is.
    pub(super) fn address(&self, peer: usize) -> SocketAddr {
        self.peers[peer].address
    }

    /// How many connections there are.
    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Key, &Connection)> {
        self.places.iter().enumerate().filter_map(|(number, place)| {
            let key = Key { place: number as u32, user: place.user };
            Some((key, place.connection.as_ref()?))
        })
    }

    /// One of them, unless it has gone.
    pub(super) fn get(&mut self, key: Key) -> Option<&mut Connection> {
        let place = self.places.get_mut(key.place as usize)?;
        place.connection.as_mut().filter(|_| place.user == key.user)
    }

    /// Takes one in that connects, and listens to it.
    pub(super) fn add(&mut self, connection: Connection) -> Result<Key, Errno> {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(Slot::default());
            (self.places.len() - 1) as u32
        });
        let key = Key { place, user: self.places[place as usize].user };
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT;
        let data = epoll::EventData::new_u64(key.to_bits());
        let added = epoll::add(&self.epoll, &connection.socket, data, flags);
        self.places[place as usize].connection = Some(connection);
        if added.is_err() {
            self.remove(key);
        }
        added.map(|()| key)
    }

    /// Gives one up.
    pub(super) fn remove(&mut self, key: Key) -> Option<Connection> {
        let place = self.places.get_mut(key.place as usize)?;
        let connection = place.connection.take_if(|_| place.user == key.user)?;
        *place = Slot { user: place.user.wrapping_add(1), ..Slot::default() };
        self.free.push(key.place);
        Some(connection)
    }

    /// Waits for events, as long as `left` at most: each is of a connection.
    pub(super) fn wait(&self, events: &mut Vec<epoll::Event>, left: Duration) {
        events.clear();
        let left = Timespec::try_from(left).unwrap_or_default();
        // Interrupted or failing, the loop goes round, and ends with the demand at the latest.
        let _ = epoll::wait(&self.epoll, spare_capacity(events), Some(&left));
    }

    /// Whose event it is.
    pub(super) fn key_of(event: &epoll::Event) -> Key {
        Key::from_bits(event.data.u64())
    }

    /// Asks to be told when a connection can be read from, unless it is not to be read from, and
    /// when it can be `written` to.
    pub(super) fn watch(&self, key: Key, written: bool) -> Result<(), Errno> {
        let Some(connection) = self.places[key.place as usize].connection.as_ref() else {
            return Ok(());
        };
        let mut flags = epoll::EventFlags::empty();
        flags.set(epoll::EventFlags::IN, !connection.paused);
        flags.set(epoll::EventFlags::OUT, written);
        let data = epoll::EventData::new_u64(key.to_bits());
        epoll::modify(&self.epoll, &connection.socket, data, flags)
    }

    /// Notes that a connection has something to send.
    pub(super) fn touch(&mut self, key: Key) {
        let place = &mut self.places[key.place as usize];
        if !place.touched {
            place.touched = true;
            self.touched.push(key);
        }
    }

    /// One that has something to send, which is then forgotten.
    pub(super) fn next_touched(&mut self) -> Option<Key> {
        let key = self.touched.pop()?;
        self.places[key.place as usize].touched = false;
        Some(key)
    }

    /// Lets a connection be found, if it can take a request.
    pub(super) fn list(&mut self, key: Key) {
        let Some(place) = self.places.get_mut(key.place as usize) else { return };
        let Some(connection) = place.connection.as_ref().filter(|c| !c.closing) else { return };
        let peer = &mut self.peers[connection.peer];
        if connection.flying.is_empty() {
            if !place.in_idle {
                place.in_idle = true;
                peer.idle.push_back(key);
            }
        } else if connection.flying.len() < self.depth && !place.in_partial {
            place.in_partial = true;
            peer.partial.push_back(key);
        }
    }

    /// A connection without a request, which is not listed any more: the latest used, or the
    /// `oldest`.
    pub(super) fn idle(&mut self, peer: usize, oldest: bool) -> Option<Key> {
        loop {
            let idle = &mut self.peers[peer].idle;
            let key = if oldest { idle.pop_front() } else { idle.pop_back() }?;
            self.places[key.place as usize].in_idle = false;
            if self.get(key).is_some_and(|c| c.flying.is_empty() && !c.closing) {
                return Some(key);
            }
        }
    }

    /// A connection with requests that can take another, which is not listed any more.
    pub(super) fn partial(&mut self, peer: usize) -> Option<Key> {
        loop {
            let key = self.peers[peer].partial.pop_front()?;
            self.places[key.place as usize].in_partial = false;
            let depth = self.depth;
            if self.get(key).is_some_and(|c| c.flying.len() < depth && !c.closing) {
                return Some(key);
            }
        }
    }
}
