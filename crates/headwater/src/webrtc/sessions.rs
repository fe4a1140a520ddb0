//! All sessions, by ICE user fragment, whatever worker they run on.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::net::Permit;
use str0m::Rtc;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::end::SILENCE;
use super::path::Path;
use super::play::Watched;
use super::publish::Publish;

/// Length of an ICE user fragment of ours.
const FRAGMENT: usize = 16;

/// Datagrams that wait for a session's task. A burst of a keyframe's packets is well below.
pub(super) const INBOX: usize = 512;

/// From how many addresses a session's peer may send. A peer has a few, and gets others when it
/// changes its network. Requests from further ones are dropped.
const MOST_ADDRESSES: usize = 32;

/// A session that is agreed on, until the first datagram of its peer comes.
pub(super) struct Waiting {
    pub(super) rtc: Rtc,
    pub(super) wanted: Wanted,
    pub(super) inbox: mpsc::Receiver<Message>,
    pub(super) peer: SocketAddr,
    pub(super) permit: Permit,
}

/// What the peer wants: to publish, or to play.
pub(super) enum Wanted {
    Publish(Box<Publish>),
    Play(Watched),
}

/// A message to a session.
pub(super) enum Message {
    /// A datagram of its peer.
    Datagram(Datagram),
    /// A viewer needs a keyframe.
    Keyframe,
    /// The peer ended it by DELETE.
    End,
}

/// A datagram, or a packet that came by TCP.
pub(super) struct Datagram {
    /// The way back.
    pub(super) path: Path,
    pub(super) bytes: Box<[u8]>,
    pub(super) came: Instant,
}

pub(super) type Inbox = mpsc::Sender<Message>;

/// The entity tag of a session's ICE state.
pub(super) fn etag(fragment: &str) -> String {
    format!("\"{fragment}\"")
}

/// A session that was found for a datagram.
pub(super) struct Found {
    pub(super) inbox: Inbox,
    /// The session itself, if it waits to be run, and its place.
    pub(super) waiting: Option<(Box<Waiting>, Place)>,
}

/// The sessions.
#[derive(Default)]
pub(super) struct Sessions {
    table: Mutex<Table>,
    dropped: AtomicU64,
}

#[derive(Default)]
struct Table {
    /// By ICE user fragment.
    entries: HashMap<String, Entry>,
    /// Sessions that publish, by stream: the newest of each.
    publishers: HashMap<String, Inbox>,
}

/// How a session is known.
pub(super) struct Entry {
    /// The end of its URL after `whip/` or `whep/`. It is secret, so it proves who asks.
    pub(super) id: String,
    /// Its URL's part between `/live/` and `id`.
    pub(super) resource: String,
    /// The peer's ICE user fragment. Another one asks for an ICE restart.
    pub(super) peer: String,
    pub(super) inbox: Inbox,
    /// The stream that it publishes.
    pub(super) publishes: Option<String>,
    /// The session and since when it waits, until its peer's first datagram comes.
    pub(super) waiting: Option<(Instant, Box<Waiting>)>,
    /// Our ICE password. Who does not know it is not the peer.
    pub(super) password: String,
    /// From how many addresses its peer has sent.
    pub(super) addresses: usize,
}

/// What a request to a session leads to.
#[derive(Clone, Copy)]
pub(super) enum Asked {
    /// There is no such session.
    Unknown,
    /// `If-Match` has another tag.
    OtherTag,
    /// It asks for an ICE restart.
    Restart,
    Done,
}

/// Keeps a session known while it runs.
pub(super) struct Place {
    sessions: Arc<Sessions>,
    fragment: String,
}

impl Drop for Place {
    fn drop(&mut self) {
        // The entry is dropped after the lock is given back.
        let entry = self.sessions.table().remove(&self.fragment);
        drop(entry);
    }
}

impl Table {
    fn remove(&mut self, fragment: &str) -> Option<Entry> {
        let entry = self.entries.remove(fragment)?;
        if let Some(stream) = &entry.publishes
            && self.publishers.get(stream).is_some_and(|inbox| inbox.same_channel(&entry.inbox))
        {
            self.publishers.remove(stream);
        }
        Some(entry)
    }
}

impl Sessions {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a session that waits for its peer's first datagram.
    pub(super) fn add(&self, fragment: String, entry: Entry) {
        let mut table = self.table();
        if let Some(stream) = &entry.publishes {
            table.publishers.insert(stream.clone(), entry.inbox.clone());
        }
        table.entries.insert(fragment, entry);
    }

    /// The inbox of the session with this user fragment, for a request that proves by `knows` that
    /// its sender knows the password, and the session itself if it still waits to be run. `is_new` says
    /// that the peer has not sent from this address before.
    pub(super) fn admit(
        self: &Arc<Self>,
        fragment: &str,
        is_new: bool,
        knows: impl FnOnce(&str) -> bool,
    ) -> Option<Found> {
        let mut table = self.table();
        let entry = table.entries.get_mut(fragment)?;
        if !knows(&entry.password) || (is_new && entry.addresses >= MOST_ADDRESSES) {
            return None;
        }
        entry.addresses += usize::from(is_new);
        let place = || Place { sessions: Arc::clone(self), fragment: fragment.to_owned() };
        let waiting = entry.waiting.take().map(|(_, waiting)| (waiting, place()));
        Some(Found { inbox: entry.inbox.clone(), waiting })
    }

    /// Ends a session by its peer's wish.
    pub(super) fn end(&self, resource: &str, id: &str) -> Asked {
        let mut table = self.table();
        let Some((fragment, entry)) = table.find(resource, id) else { return Asked::Unknown };
        let (fragment, inbox) = (fragment.to_owned(), entry.inbox.clone());
        let is_waiting = entry.waiting.is_some();
        let entry = is_waiting.then(|| table.remove(&fragment));
        drop(table);
        drop(entry);
        // A session whose inbox is full ends when its peer is silent.
        let _ = inbox.try_send(Message::End);
        Asked::Done
    }

    /// Checks a PATCH of a session: `tag` is the header `If-Match`, `fragment` the peer's ICE user
    /// fragment, as far as the request has them.
    pub(super) fn patch(
        &self,
        resource: &str,
        id: &str,
        tag: Option<&str>,
        fragment: Option<&str>,
    ) -> Asked {
        let table = self.table();
        let Some((own, entry)) = table.find(resource, id) else { return Asked::Unknown };
        let is_own = |tag: &str| matches!(tag.trim(), "*") || tag.trim() == etag(own);
        if tag.is_some_and(|tags| !tags.split(',').any(is_own)) {
            return Asked::OtherTag;
        }
        if fragment.is_some_and(|fragment| fragment != entry.peer) {
            return Asked::Restart;
        }
        Asked::Done
    }

    /// Asks the publisher of this stream for a keyframe, if it publishes by WHIP.
    pub(super) fn ask_for_keyframe(&self, stream: &str) {
        let inbox = self.table().publishers.get(stream).cloned();
        if let Some(inbox) = inbox {
            // If its inbox is full, it has enough to do.
            let _ = inbox.try_send(Message::Keyframe);
        }
    }

    /// Drops sessions that have waited too long.
    pub(super) fn sweep(&self, now: Instant) {
        let mut table = self.table();
        let late: Vec<_> = table
            .entries
            .iter()
            .filter(|(_, entry)| {
                entry
                    .waiting
                    .as_ref()
                    .is_some_and(|(since, _)| now.duration_since(*since) > SILENCE)
            })
            .map(|(fragment, _)| fragment.clone())
            .collect();
        let late: Vec<_> = late.iter().filter_map(|fragment| table.remove(fragment)).collect();
        drop(table);
        for entry in late {
            tracing::info!(resource = entry.resource, "webrtc peer sent nothing");
        }
    }

    /// Counts a datagram that was dropped.
    pub(super) fn count_dropped(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

impl Table {
    /// The session with this URL.
    fn find(&self, resource: &str, id: &str) -> Option<(&str, &Entry)> {
        // An identifier begins with the user fragment.
        let fragment = id.get(..FRAGMENT)?;
        let (fragment, entry) = self.entries.get_key_value(fragment)?;
        (entry.id == id && entry.resource == resource).then_some((fragment.as_str(), entry))
    }
}
