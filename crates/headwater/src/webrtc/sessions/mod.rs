//! All sessions, by ICE user fragment, whatever worker they run on.

mod admit;
pub(super) mod datagrams;
mod paths;
mod session;
pub(super) mod shared;
mod stun;
pub(super) mod tcp;
mod viewer;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::net::{LogId, Permit};
use str0m::{IceCreds, Rtc};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::end::SILENCE;
use super::offer::ice::Restart;
use super::play::Watched;
use super::publish::Publish;
use super::send::path::Path;
use crate::sessions::Session as Listed;

/// Length of an ICE user fragment of ours.
const FRAGMENT: usize = 16;

/// Datagrams that wait for the task of a session. Where this process was not run for a while, it takes at once what the
/// kernel kept: up to twice [`http::net::UNRECEIVED`], which are some 3,600 packets of 1,200 bytes.
pub(super) const INBOX: usize = 4096;

/// The kernel counts 2,304 bytes for such a packet.
const _: () = assert!(INBOX >= 2 * http::net::UNRECEIVED / 2304);

/// The longest packet that a peer may send, in bytes. Packets of media and of DTLS fit into an Ethernet frame.
const LONGEST: usize = 8 << 10;

/// From how many addresses a session's peer may send, until it restarts ICE. A peer has a few, and gets others
/// when it changes its network. Requests from further ones are dropped.
const MOST_ADDRESSES: usize = 32;

/// The same for a whole session: workers know addresses until their session ends.
const MOST_EVER: usize = 1024;

/// Shortest time between two restarts of ICE.
const PAUSE: Duration = Duration::from_secs(1);

/// How long a restart waits for a request with its credentials. Then all is as before, because the peer has not
/// heard of it.
const UNPROVEN: Duration = Duration::from_secs(30);

/// A session that is agreed on, until the first datagram of its peer comes.
pub(super) struct Waiting {
    pub(super) rtc: Rtc,
    pub(super) wanted: Wanted,
    pub(super) inbox: mpsc::Receiver<Message>,
    pub(super) peer: SocketAddr,
    pub(super) permit: Permit,
    /// Ends when the peer may no longer publish or play.
    pub(super) listed: Listed,
    /// What the log calls the session.
    pub(super) id: LogId,
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
    /// The peer uses the credentials of a restart of ICE. A datagram that proves it follows.
    Restart(Box<Restart>),
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
    /// The session itself, if it waits to be run, and its registration.
    pub(super) waiting: Option<(Box<Waiting>, Registration)>,
}

/// The sessions.
#[derive(Default)]
pub(super) struct Sessions {
    table: Mutex<Table>,
    dropped: AtomicU64,
}

#[derive(Default)]
struct Table {
    /// By the first ICE user fragment of each.
    entries: HashMap<String, Entry>,
    /// The first user fragment, by those of restarts.
    restarts: HashMap<String, String>,
    /// Sessions that publish, by stream.
    publishers: HashMap<String, Vec<Inbox>>,
}

/// How a session is known.
pub(super) struct Entry {
    /// The end of its URL after `whip/` or `whep/`. It is secret, so it proves who asks.
    pub(super) id: String,
    /// Its URL's part between `/live/` and `id`.
    pub(super) resource: String,
    /// The credentials of both sides. Other ones of the peer ask for a restart of ICE.
    pub(super) own: IceCreds,
    pub(super) peer: IceCreds,
    /// A restart and since when it waits, until a request proves that the peer knows of it. Until then the
    /// session goes on with the credentials that it has.
    pub(super) next: Option<(Instant, Restart)>,
    /// When the peer asked for the last restart.
    pub(super) restarted: Option<Instant>,
    /// How each restart is told, see [`super::offer::ice::head`].
    pub(super) head: String,
    pub(super) inbox: Inbox,
    /// The stream that it publishes.
    pub(super) publishes: Option<String>,
    /// The session and since when it waits, until its peer's first datagram comes.
    pub(super) waiting: Option<(Instant, Box<Waiting>)>,
    /// From how many addresses its peer has sent, with these credentials and ever.
    pub(super) addresses: usize,
    pub(super) ever: usize,
}

impl Entry {
    /// The newest credentials of ours and of the peer.
    fn newest(&self) -> (&IceCreds, &IceCreds) {
        match &self.next {
            Some((_, restart)) => (&restart.own, &restart.peer),
            None => (&self.own, &self.peer),
        }
    }
}

/// What a request to a session leads to.
pub(super) enum Asked {
    /// There is no such session.
    Unknown,
    /// `If-Match` has another tag.
    OtherTag,
    /// It asks for a restart of ICE without `If-Match`.
    NoTag,
    /// It asks for a restart too soon after another.
    TooSoon,
    /// ICE restarts. The second is the head of what the peer is told.
    Restart(Restart, String),
    /// It asks once more for the restart that waits. It is told the same.
    Again(Restart, String),
    Done,
}

/// Keeps a session known while it runs.
pub(super) struct Registration {
    sessions: Arc<Sessions>,
    fragment: String,
}

impl Drop for Registration {
    fn drop(&mut self) {
        // The entry is dropped after the lock is given back.
        let entry = self.sessions.table().remove(&self.fragment);
        drop(entry);
    }
}

impl Table {
    fn remove(&mut self, fragment: &str) -> Option<Entry> {
        let entry = self.entries.remove(fragment)?;
        for own in [&entry.own, entry.newest().0] {
            self.restarts.remove(&own.ufrag);
        }
        if let Some(stream) = &entry.publishes
            && let Some(inboxes) = self.publishers.get_mut(stream)
        {
            inboxes.retain(|inbox| !inbox.same_channel(&entry.inbox));
            if inboxes.is_empty() {
                self.publishers.remove(stream);
            }
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
            let inboxes = table.publishers.entry(stream.clone()).or_default();
            inboxes.push(entry.inbox.clone());
        }
        table.entries.insert(fragment, entry);
    }

    /// The inbox of the session with this user fragment, for a request that proves by `knows` that
    /// its sender knows the password, and the session itself if it still waits to be run. `is_new` says
    /// that the peer has not sent from this address before. The first request with the credentials of a
    /// restart puts them in place of those before.
    pub(super) fn admit(
        self: &Arc<Self>,
        fragment: &str,
        is_new: bool,
        knows: impl FnOnce(&str) -> bool,
    ) -> Option<Found> {
        let mut table = self.table();
        let Table { entries, restarts, .. } = &mut *table;
        let first = restarts.get(fragment).map_or(fragment, String::as_str);
        let entry = entries.get_mut(first)?;
        let (newest, _) = entry.newest();
        let own = [&entry.own, newest].into_iter().find(|own| own.ufrag == fragment)?;
        let restarts_ice = own.ufrag != entry.own.ufrag;
        let addresses = if restarts_ice { 0 } else { entry.addresses };
        let is_full = addresses >= MOST_ADDRESSES || entry.ever >= MOST_EVER;
        if !knows(&own.pass) || (is_new && is_full) {
            return None;
        }
        let first = first.to_owned();
        if restarts_ice {
            let room = entry.inbox.try_reserve().ok()?;
            let (_, restart) = entry.next.take()?;
            restarts.remove(&entry.own.ufrag);
            (entry.own, entry.peer) = (restart.own.clone(), restart.peer.clone());
            room.send(Message::Restart(Box::new(restart)));
        }
        entry.addresses = addresses + usize::from(is_new);
        entry.ever += usize::from(is_new);
        let registration = || Registration { sessions: Arc::clone(self), fragment: first };
        let waiting = entry.waiting.take().map(|(_, waiting)| (waiting, registration()));
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

    /// Takes a PATCH of a session: `tag` is the header `If-Match`, as far as there is one. `restart` is the restart
    /// for which the peer's credentials ask, if the request has any and they are not those that are known.
    pub(super) fn patch(
        &self,
        (resource, id): (&str, &str),
        tag: Option<&str>,
        restart: Option<Restart>,
        now: Instant,
    ) -> Asked {
        let mut table = self.table();
        let Some(first) = table.find(resource, id).map(|(first, _)| first.to_owned()) else {
            return Asked::Unknown;
        };
        let Table { entries, restarts, .. } = &mut *table;
        let Some(entry) = entries.get_mut(&first) else { return Asked::Unknown };
        let (own, known) = entry.newest();
        // RFC 9725 has the asterisk in quotes.
        let is_tag_of =
            |own: &IceCreds, tag: &str| matches!(tag, "*" | "\"*\"") || tag == etag(&own.ufrag);
        let tags = || tag.into_iter().flat_map(|tags| tags.split(',').map(str::trim));
        // The answer to the restart may be lost. The peer then sends the same request once more. Candidates that it
        // adds come in another.
        if let Some((_, next)) = &entry.next
            && restart.as_ref().is_some_and(|restart| restart.asked == next.asked)
            && tags().any(|tag| is_tag_of(&entry.own, tag))
        {
            return Asked::Again(next.clone(), entry.head.clone());
        }
        if tag.is_some() && !tags().any(|tag| is_tag_of(own, tag)) {
            return Asked::OtherTag;
        }
        let Some(restart) = restart.filter(|restart| restart.peer != *known) else {
            return Asked::Done;
        };
        if tag.is_none() {
            return Asked::NoTag;
        }
        if entry.restarted.is_some_and(|at| now.duration_since(at) < PAUSE) {
            return Asked::TooSoon;
        }
        entry.restarted = Some(now);
        if let Some((_, before)) = entry.next.replace((now, restart.clone())) {
            restarts.remove(&before.own.ufrag);
        }
        restarts.insert(restart.own.ufrag.clone(), first);
        Asked::Restart(restart, entry.head.clone())
    }

    /// Asks the publishers of this stream that publish by WHIP for a keyframe.
    pub(super) fn ask_for_keyframe(&self, stream: &str) {
        for inbox in self.table().publishers.get(stream).into_iter().flatten() {
            // If its inbox is full, it has enough to do.
            let _ = inbox.try_send(Message::Keyframe);
        }
    }

    /// Drops sessions and restarts that have waited too long, and waiting sessions that somebody ended.
    pub(super) fn sweep(&self, now: Instant) {
        let mut table = self.table();
        let Table { entries, restarts, .. } = &mut *table;
        for entry in entries.values_mut() {
            let is_late = |(since, _): &mut (Instant, _)| now.duration_since(*since) > UNPROVEN;
            if let Some((_, restart)) = entry.next.take_if(is_late) {
                restarts.remove(&restart.own.ufrag);
            }
        }
        let is_over = |entry: &mut Entry| {
            entry.waiting.as_mut().is_some_and(|(since, waiting)| {
                waiting.listed.look().is_some() || now.duration_since(*since) > SILENCE
            })
        };
        let fragments = table
            .entries
            .iter_mut()
            .filter_map(|(fragment, entry)| is_over(entry).then(|| fragment.clone()));
        let fragments: Vec<_> = fragments.collect();
        let over: Vec<_> = fragments.iter().filter_map(|fragment| table.remove(fragment)).collect();
        drop(table);
        for Entry { resource, waiting, .. } in over {
            let Some((_, mut waiting)) = waiting else { continue };
            waiting.id.clone().within(|| {
                match waiting.listed.look() {
                    Some(over) => tracing::info!(resource, %over, "webrtc session over"),
                    None => tracing::info!(resource, "webrtc peer sent nothing"),
                }
                // A publisher says that it leaves.
                drop(waiting);
            });
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

#[cfg(test)]
mod tests {
    use super::*;

    const RESOURCE: &str = "x/whep";

    /// A session that runs, whose inbox has room for so many messages.
    struct Session {
        sessions: Arc<Sessions>,
        id: String,
        first: IceCreds,
        inbox: mpsc::Receiver<Message>,
        begun: Instant,
    }

    impl Session {
        fn new(room: usize) -> Self {
            let sessions = Arc::<Sessions>::default();
            let (inbox, messages) = mpsc::channel(room);
            let first = IceCreds::new();
            let id = format!("{}secret", first.ufrag);
            let entry = Entry {
                id: id.clone(),
                resource: RESOURCE.to_owned(),
                own: first.clone(),
                peer: IceCreds::new(),
                next: None,
                restarted: None,
                head: String::new(),
                inbox,
                publishes: None,
                waiting: None,
                addresses: 0,
                ever: 0,
            };
            sessions.add(first.ufrag.clone(), entry);
            Self { sessions, id, first, inbox: messages, begun: Instant::now() }
        }

        /// Asks for a restart so long after the begin.
        fn ask(&self, millis: u64, tag: &str) -> Asked {
            let now = self.begun + Duration::from_millis(millis);
            let peer = IceCreds::new();
            let restart = Restart::new(peer.clone(), Vec::new(), &peer.ufrag);
            self.sessions.patch((RESOURCE, &self.id), Some(tag), Some(restart), now)
        }

        /// Restarts. Returns our credentials.
        fn restart(&self, millis: u64) -> IceCreds {
            let Asked::Restart(restart, _) = self.ask(millis, "*") else { panic!("refused") };
            restart.own
        }

        /// Whether a request with these credentials is for the session.
        fn admits(&self, own: &IceCreds, is_new: bool) -> bool {
            let knows = |password: &str| password == own.pass;
            self.sessions.admit(&own.ufrag, is_new, knows).is_some()
        }

        fn sweep(&self, millis: u64) {
            self.sessions.sweep(self.begun + Duration::from_millis(millis));
        }
    }

    #[test]
    fn the_first_request_that_proves_a_restart_ends_the_time_before_it() {
        let mut session = Session::new(8);
        let mut before = session.first.clone();
        for number in 0..3 {
            let next = session.restart(number * 1000);
            assert!(session.admits(&before, false));
            let other = IceCreds { pass: before.pass.clone(), ..next.clone() };
            assert!(!session.admits(&other, false), "the password is of the time before");
            assert!(session.inbox.try_recv().is_err());
            assert!(session.admits(&next, false) && !session.admits(&before, false));
            let Ok(Message::Restart(restart)) = session.inbox.try_recv() else {
                panic!("no restart")
            };
            assert_eq!(restart.own, next);
            // It is told once, and stays.
            session.sweep(1_000_000);
            assert!(session.admits(&next, false) && session.inbox.try_recv().is_err());
            assert_eq!(session.sessions.table().restarts.len(), 1);
            before = next;
        }
        assert!(!session.admits(&session.first, false));
        let registration = Registration {
            sessions: Arc::clone(&session.sessions),
            fragment: session.first.ufrag.clone(),
        };
        drop(registration);
        assert!(!session.admits(&before, false));
        assert!(session.sessions.table().restarts.is_empty());
    }

    #[test]
    fn a_restart_that_nobody_proves_leaves_all_as_it_was() {
        let mut session = Session::new(8);
        let next = session.restart(0);
        let tag = etag(&session.first.ufrag);
        assert!(matches!(session.ask(5_000, &tag), Asked::OtherTag));
        session.sweep(30_000);
        session.sweep(30_001);
        assert!(!session.admits(&next, false) && session.admits(&session.first, false));
        assert!(session.inbox.try_recv().is_err());
        assert!(session.sessions.table().restarts.is_empty());
        assert!(matches!(session.ask(40_000, &tag), Asked::Restart(..)));
        // One that is just in time.
        let next = session.restart(50_000);
        session.sweep(80_000);
        assert!(session.admits(&next, false));
    }

    #[test]
    fn who_asks_for_a_restart_again_gets_the_same_answer() {
        let session = Session::new(8);
        let peer = IceCreds::new();
        let ask_by = |tag: &str, fragment: &str| {
            let asked = Some(Restart::new(peer.clone(), Vec::new(), fragment));
            session.sessions.patch((RESOURCE, &session.id), Some(tag), asked, session.begun)
        };
        let ask = |tag: &str| ask_by(tag, "restart");
        let own = |asked: Asked| match asked {
            Asked::Restart(restart, _) | Asked::Again(restart, _) => Some(restart.own),
            _ => None,
        };
        let first = own(ask("*")).unwrap();
        for tag in ["\"*\"", &etag(&session.first.ufrag)] {
            assert_eq!(own(ask(tag)), Some(first.clone()), "{tag}");
        }
        // Candidates that are added ask for no restart.
        for tag in ["*", &etag(&first.ufrag)] {
            assert!(matches!(ask_by(tag, "restart and a candidate"), Asked::Done), "{tag}");
        }
        let tag = etag(&session.first.ufrag);
        assert!(matches!(ask_by(&tag, "restart and a candidate"), Asked::OtherTag));
        assert_eq!(session.sessions.table().restarts.len(), 1);
    }

    #[test]
    fn restarts_are_rare_and_one_waits() {
        let session = Session::new(8);
        let first = session.restart(0);
        assert!(matches!(session.ask(999, "*"), Asked::TooSoon));
        assert!(session.admits(&session.first, false));
        let second = session.restart(1_000);
        assert_eq!(session.sessions.table().restarts.len(), 1);
        assert!(!session.admits(&first, false) && session.admits(&second, false));
        assert!(!session.admits(&session.first, false));
    }

    #[test]
    fn a_session_that_has_no_room_hears_of_the_restart_later() {
        let mut session = Session::new(1);
        let next = session.restart(0);
        session.sessions.table().entries[&session.first.ufrag]
            .inbox
            .try_send(Message::Keyframe)
            .unwrap();
        assert!(!session.admits(&next, false) && session.admits(&session.first, false));
        assert!(matches!(session.inbox.try_recv(), Ok(Message::Keyframe)));
        assert!(session.admits(&next, false));
        assert!(matches!(session.inbox.try_recv(), Ok(Message::Restart(_))));
    }

    #[test]
    fn addresses_are_limited_for_each_time_and_for_ever() {
        let mut session = Session::new(8);
        let (mut own, mut count) = (session.first.clone(), 0);
        for number in 1..=MOST_EVER / MOST_ADDRESSES {
            for _ in 0..MOST_ADDRESSES {
                assert!(session.admits(&own, true));
                count += 1;
            }
            assert!(!session.admits(&own, true) && session.admits(&own, false));
            own = session.restart(1000 * number as u64);
            assert!(session.admits(&own, false));
            session.inbox.try_recv().unwrap();
        }
        assert_eq!(count, MOST_EVER);
        assert!(!session.admits(&own, true) && session.admits(&own, false));
    }
}
