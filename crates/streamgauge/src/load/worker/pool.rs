//! The connections of an event loop, and which of them can take a request.

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

/// A connection's slot, and how many connections had the slot before. So the key of a connection
/// that is gone does not match a later one.
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

/// A server.
struct Peer {
    origin: Origin,
    address: SocketAddr,
    /// Idle connections; the one used last is at the back.
    idle: VecDeque<Key>,
    /// Connections with requests and room for more.
    partial: VecDeque<Key>,
}

/// All connections of an event loop, by server.
pub(super) struct Pool {
    epoll: OwnedFd,
    servers: Servers,
    peers: Vec<Peer>,
    places: Vec<Slot>,
    free: Vec<u32>,
    /// Connections with bytes to send.
    touched: Vec<Key>,
    /// The most requests without an answer on a connection.
    depth: usize,
}

impl Pool {
    /// Makes an empty pool. Each connection may have `depth` requests without an answer.
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

    /// Returns the index of an origin among the peers, and adds the origin if it is new.
    ///
    /// # Errors
    /// The address of the origin is unknown.
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

    /// Number of peers.
    pub(super) fn peers(&self) -> usize {
        self.peers.len()
    }

    /// Address of a peer.
    pub(super) fn address(&self, peer: usize) -> SocketAddr {
        self.peers[peer].address
    }

    /// Number of connections.
    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Iterates over the connections.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Key, &Connection)> {
        self.places.iter().enumerate().filter_map(|(number, place)| {
            let key = Key { place: number as u32, user: place.user };
            Some((key, place.connection.as_ref()?))
        })
    }

    /// The connection of a key, unless it is gone.
    pub(super) fn get(&mut self, key: Key) -> Option<&mut Connection> {
        let place = self.places.get_mut(key.place as usize)?;
        place.connection.as_mut().filter(|_| place.user == key.user)
    }

    /// Adds a connection that is being made, and listens to its events.
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

    /// Removes a connection.
    pub(super) fn remove(&mut self, key: Key) -> Option<Connection> {
        let place = self.places.get_mut(key.place as usize)?;
        let connection = place.connection.take_if(|_| place.user == key.user)?;
        *place = Slot { user: place.user.wrapping_add(1), ..Slot::default() };
        self.free.push(key.place);
        Some(connection)
    }

    /// Waits for events of connections, at most for `left`.
    pub(super) fn wait(&self, events: &mut Vec<epoll::Event>, left: Duration) {
        events.clear();
        let left = Timespec::try_from(left).unwrap_or_default();
        // After an interruption or error the loop goes on. It ends with the demand at the latest.
        let _ = epoll::wait(&self.epoll, spare_capacity(events), Some(&left));
    }

    /// The key of the connection that an event belongs to.
    pub(super) fn key_of(event: &epoll::Event) -> Key {
        Key::from_bits(event.data.u64())
    }

    /// Listens to a connection: for input unless it is paused, and for output if `written`.
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

    /// Notes that a connection has bytes to send.
    pub(super) fn touch(&mut self, key: Key) {
        let place = &mut self.places[key.place as usize];
        if !place.touched {
            place.touched = true;
            self.touched.push(key);
        }
    }

    /// Takes a connection that has bytes to send.
    pub(super) fn next_touched(&mut self) -> Option<Key> {
        let key = self.touched.pop()?;
        self.places[key.place as usize].touched = false;
        Some(key)
    }

    /// Lists a connection, if it can take a request.
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

    /// Takes an idle connection from the list: the one used last, or the `oldest`.
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

    /// Takes a connection with requests and room for more from the list.
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
