//! Players of HLS and DASH: their sessions are made of requests.
//!
//! ```text
//! request ─ asks ─┬ unknown ─▶ visits   if the answer shows the delivery
//!                 ├ Asking              counts what is sent, and holds off the end
//!                 └ Over                an administrator ended it within the hour
//! sweep           a player that has asked for nothing for so long has left ─▶ history
//! ```
//!
//! A request takes one lock, which few others share, and allocates nothing.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use http::net::{Gate, PerAddress, Permit};
use live::sessions::REGULAR;
use live::{Delivery, UnixMicros};
use tokio::time::Instant;

use super::{Doing, Ended, Meter, Over, Sessions, Told, Who, lock};
use crate::clock::wall_clock;

/// The most sessions at once. Players beyond are only counted.
const MOST: usize = 100_000;

/// How long a player is refused that an administrator ended.
const BARRED_FOR: Duration = Duration::from_secs(3600);

/// Most such players.
const MOST_BARRED: usize = 100_000;

/// Number of maps with a lock each.
const SHARDS: usize = 64;

/// The players that make requests.
#[derive(Debug)]
pub(super) struct Visits {
    shards: [Mutex<Shard>; SHARDS],
    /// One address cannot make up as many as it likes, and none takes all places.
    gate: Arc<Gate>,
    /// Nobody can make two players alike without the keys.
    keys: RandomState,
}

#[derive(Debug, Default)]
struct Shard {
    /// Those that ask, by their keys.
    open: HashMap<u64, Open>,
    /// Those that an administrator ended, and until when they are refused.
    barred: HashMap<u64, Instant>,
}

#[derive(Debug)]
struct Open {
    visit: Arc<Visit>,
    /// A time by which nothing new had been asked for.
    last: Instant,
}

/// One such player.
#[derive(Debug)]
pub(super) struct Visit {
    pub(super) id: u64,
    /// The player as it began. The delivery may have changed since.
    who: Who,
    since: UnixMicros,
    /// How long it counts after a request.
    lasts: Duration,
    delivery: AtomicU8,
    meter: Meter,
    /// The video track that it asked for last, and whether there were several.
    rendition: Mutex<Option<(Arc<str>, bool)>>,
    /// Whether it has asked for something since the last sweep.
    has_asked: AtomicBool,
    /// How many of its requests are being answered.
    asking: AtomicU32,
    /// The reporter that reported last, regularly and also when it asks for nothing. 0 is none.
    reporter: AtomicU64,
    /// Whether an administrator ended it.
    is_ended: AtomicBool,
    permit: Permit,
}

/// A request of a player is being answered. The session does not end while this lives.
#[derive(Debug)]
pub struct Asking {
    visit: Arc<Visit>,
    /// Whether the player gets nothing, so that this request does not make its session last.
    is_refused: bool,
}

impl Visits {
    pub(super) fn new(per_address: Option<PerAddress>) -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            gate: Arc::new(Gate::new(MOST, per_address).fair()),
            keys: RandomState::new(),
        }
    }

    /// Those that ask now.
    pub(super) fn open(&self) -> Vec<Arc<Visit>> {
        let mut all = Vec::new();
        for shard in &self.shards {
            all.extend(lock(shard).open.values().map(|open| Arc::clone(&open.visit)));
        }
        all
    }

    /// Takes out the session with this number, whose player is refused from now on.
    pub(super) fn bar(&self, id: u64) -> Option<Arc<Visit>> {
        for shard in &self.shards {
            let mut shard = lock(shard);
            let key = shard.open.iter().find(|(_, open)| open.visit.id == id).map(|(key, _)| *key);
            let Some(key) = key else { continue };
            let Some(Open { visit, .. }) = shard.open.remove(&key) else { continue };
            visit.is_ended.store(true, Ordering::Release);
            if shard.barred.len() >= MOST_BARRED / SHARDS {
                let first = shard.barred.iter().min_by_key(|(_, until)| **until);
                if let Some(key) = first.map(|(key, _)| *key) {
                    shard.barred.remove(&key);
                }
            }
            shard.barred.insert(key, Instant::now() + BARRED_FOR);
            return Some(visit);
        }
        None
    }

    fn shard(&self, key: u64) -> MutexGuard<'_, Shard> {
        // The key is a hash, so the shards fill evenly.
        lock(&self.shards[(key % SHARDS as u64) as usize])
    }
}

impl Sessions {
    /// The key of a player that makes requests, by all that tells it from others.
    pub fn key(&self, player: impl Hash) -> u64 {
        self.visits.keys.hash_one(player)
    }

    /// A player asks for something. `None` if its session has not begun.
    ///
    /// # Errors
    /// An administrator ended this player's session.
    pub fn asks(&self, key: u64) -> Result<Option<Asking>, Over> {
        let shard = self.visits.shard(key);
        match shard.open.get(&key) {
            Some(open) => Ok(Some(Asking::of(&open.visit))),
            None if shard.barred.contains_key(&key) => Err(Over::Ended),
            None => Ok(None),
        }
    }

    /// Begins the session of a player that makes requests, and that counts for `lasts` after each. `None` if there are
    /// too many: then the player is only counted.
    ///
    /// # Errors
    /// An administrator ended this player's session.
    pub fn visits(
        &self,
        key: u64,
        delivery: Delivery,
        lasts: Duration,
        who: impl FnOnce() -> Who,
    ) -> Result<Option<Asking>, Over> {
        let mut shard = self.visits.shard(key);
        if shard.barred.contains_key(&key) {
            return Err(Over::Ended);
        }
        // Another event loop may have been faster.
        if let Some(open) = shard.open.get(&key) {
            return Ok(Some(Asking::of(&open.visit)));
        }
        let who = who();
        let Ok(permit) = self.visits.gate.admit(who.peer.ip()) else { return Ok(None) };
        let visit = Arc::new(Visit {
            id: self.count.fetch_add(1, Ordering::Relaxed) + 1,
            who,
            since: wall_clock(),
            lasts,
            delivery: AtomicU8::new(delivery as u8),
            meter: Meter::default(),
            rendition: Mutex::default(),
            has_asked: AtomicBool::default(),
            asking: AtomicU32::default(),
            reporter: AtomicU64::default(),
            is_ended: AtomicBool::default(),
            permit,
        });
        let asking = Asking::of(&visit);
        shard.open.insert(key, Open { visit, last: Instant::now() });
        Ok(Some(asking))
    }

    /// A player says that it has ended.
    pub fn leaves(&self, key: u64) {
        let open = self.visits.shard(key).open.remove(&key);
        if let Some(Open { visit, .. }) = open {
            self.remember_visit(&visit, None);
        }
    }

    /// How many players that make requests `wanted` selects.
    pub fn count_visits(&self, wanted: impl Fn(Doing, &str, &str) -> bool) -> usize {
        self.visits.open().iter().filter(|visit| visit.is(&wanted)).count()
    }

    /// Ends the sessions of players that have asked for nothing for as long as they count. Call it about once a second.
    pub fn sweep(&self) {
        let (now, mut left) = (Instant::now(), Vec::new());
        for shard in &self.visits.shards {
            let mut shard = lock(shard);
            shard.barred.retain(|_, until| now < *until);
            shard.open.retain(|_, Open { visit, last }| {
                if visit.has_asked.swap(false, Ordering::Relaxed)
                    || visit.asking.load(Ordering::Relaxed) > 0
                {
                    *last = now;
                }
                let is_here = now.duration_since(*last) < visit.lasts();
                if !is_here {
                    left.push(Arc::clone(visit));
                }
                is_here
            });
        }
        for visit in left {
            self.remember_visit(&visit, None);
        }
    }

    pub(super) fn remember_visit(&self, visit: &Visit, reason: Option<String>) {
        let ended = Ended { session: visit.tell(), at: wall_clock(), reason, when: Instant::now() };
        let mut kept = lock(&self.ended);
        kept.add(ended, Some(visit.permit.network()));
    }
}

impl Visit {
    /// Name of the delivery that it has now.
    fn by(&self) -> &'static str {
        Delivery::ALL[usize::from(self.delivery.load(Ordering::Relaxed))].name()
    }

    /// Whether it is wanted.
    pub(super) fn is(&self, wanted: &impl Fn(Doing, &str, &str) -> bool) -> bool {
        wanted(self.who.doing, &self.who.path, self.by())
    }

    pub(super) fn tell(&self) -> Told {
        let rendition = lock(&self.rendition).clone();
        Told {
            id: self.id,
            who: Who { by: self.by(), ..self.who.clone() },
            since: self.since,
            bytes: self.meter.bytes(),
            behind: self.meter.behind(),
            rendition: rendition.filter(|(_, is_one_of_several)| *is_one_of_several).map(|it| it.0),
        }
    }

    fn lasts(&self) -> Duration {
        let has_reported = self.reporter.load(Ordering::Relaxed) > 0;
        if has_reported { self.lasts.max(REGULAR) } else { self.lasts }
    }
}

impl Asking {
    /// The lock of the player's shard must be held: a sweep must not end the session meanwhile.
    fn of(visit: &Arc<Visit>) -> Self {
        visit.asking.fetch_add(1, Ordering::Relaxed);
        Self { visit: Arc::clone(visit), is_refused: false }
    }

    /// What counts its bytes.
    pub fn meter(&self) -> &Meter {
        &self.visit.meter
    }

    /// Whether an administrator has ended the session meanwhile.
    pub fn is_ended(&self) -> bool {
        self.visit.is_ended.load(Ordering::Acquire)
    }

    /// Notes that there is nothing for the player: a session does not outlive its stream because its player goes on to
    /// ask.
    pub fn gets_nothing(&mut self) {
        self.is_refused = true;
    }

    /// Notes by which delivery this request is.
    pub fn is_by(&self, delivery: Delivery) {
        let before = self.visit.delivery.load(Ordering::Relaxed);
        // A low-latency player asks for some playlists as any player does.
        let is_part_of_it = delivery == Delivery::Hls && before == Delivery::LlHls as u8;
        if before != delivery as u8 && !is_part_of_it {
            self.visit.delivery.store(delivery as u8, Ordering::Relaxed);
        }
    }

    /// Notes who reports regularly, also when the player asks for nothing.
    pub fn reports(&self, reporter: u64) {
        self.visit.reporter.store(reporter, Ordering::Relaxed);
    }

    /// Whether this one reported last.
    pub fn has_reported(&self, reporter: u64) -> bool {
        self.visit.reporter.load(Ordering::Relaxed) == reporter
    }

    /// Notes which video track the player gets. `several` tells whether there are others.
    pub fn gets(&self, track: &str, several: impl FnOnce() -> bool) {
        let mut rendition = lock(&self.visit.rendition);
        if rendition.as_ref().is_none_or(|(name, _)| **name != *track) {
            *rendition = Some((track.into(), several()));
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if !self.is_refused {
            self.visit.has_asked.store(true, Ordering::Relaxed);
        }
        self.visit.asking.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::access::Grant;
    use crate::sessions::ended::OF_NETWORK;

    const LASTS: Duration = Duration::from_secs(10);

    fn who(peer: &str) -> Who {
        let peer = format!("{peer}:5").parse().unwrap();
        Who { doing: Doing::Play, path: "live/a".to_owned(), by: "hls", peer }
    }

    /// The player with this key comes for HLS.
    fn comes(sessions: &Sessions, key: u64, peer: &str) -> Result<Option<Asking>, Over> {
        sessions.visits(key, Delivery::Hls, LASTS, || who(peer))
    }

    /// Waits for so many seconds, with a sweep after each.
    async fn wait(sessions: &Sessions, seconds: u64) {
        for _ in 0..seconds {
            advance(Duration::from_secs(1)).await;
            sessions.sweep();
        }
    }

    fn open(sessions: &Sessions) -> Vec<Told> {
        sessions.open(0, 9, |_, _, _| true).0
    }

    fn limited(max: usize) -> Sessions {
        let max = max.try_into().unwrap();
        Sessions::new(Some(PerAddress { max, except: vec!["10.0.0.0/8".parse().unwrap()] }))
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_of_requests_lasts_as_long_as_its_player_asks() {
        let sessions = Arc::new(Sessions::default());
        assert!(sessions.asks(1).unwrap().is_none());
        let asking = comes(&sessions, 1, "192.0.2.1").unwrap().unwrap();
        asking.meter().add(7);
        asking.gets("v0", || false);
        let told = open(&sessions).remove(0);
        assert_eq!((told.id, told.who.by, told.bytes, told.rendition), (1, "hls", 7, None));
        for (track, delivery, by) in
            [("v1", Delivery::LlHls, "llhls"), ("v1", Delivery::Hls, "llhls")]
        {
            asking.is_by(delivery);
            asking.gets(track, || true);
            let told = open(&sessions).remove(0);
            assert_eq!((told.who.by, told.rendition.as_deref()), (by, Some("v1")));
            assert_eq!(sessions.count_visits(|_, _, found| found == by), 1);
        }
        // Its bytes are counted where they are sent.
        assert!(sessions.figures().bytes.is_empty());
        // A long answer is being sent.
        wait(&sessions, 60).await;
        drop(asking);
        wait(&sessions, 10).await;
        drop(sessions.asks(1).unwrap().unwrap());
        wait(&sessions, 10).await;
        let mut asking = sessions.asks(1).unwrap().unwrap();
        asking.gets_nothing();
        drop(asking);
        assert_eq!(open(&sessions).len(), 1);
        wait(&sessions, 1).await;
        assert!(open(&sessions).is_empty() && sessions.asks(1).unwrap().is_none());
        let ended = sessions.ended(9, |_, _, _| true).0.remove(0);
        assert_eq!((ended.session.id, ended.session.bytes, &ended.reason), (1, 7, &None));

        // One that reports stays for longer, and says when it leaves.
        let asking = comes(&sessions, 1, "192.0.2.1").unwrap().unwrap();
        asking.reports(5);
        assert!(asking.has_reported(5) && !asking.has_reported(6));
        drop(asking);
        wait(&sessions, REGULAR.as_secs()).await;
        assert_eq!(open(&sessions)[0].id, 2);
        sessions.leaves(1);
        assert!(open(&sessions).is_empty());
        assert_eq!(sessions.ended(9, |_, _, _| true).0.len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_player_whose_session_was_ended_is_refused_for_an_hour() {
        let sessions = Arc::new(Sessions::default());
        let asking = comes(&sessions, 1, "192.0.2.1").unwrap().unwrap();
        let _other = comes(&sessions, 2, "192.0.2.1").unwrap().unwrap();
        assert!(sessions.end(1, Over::Ended) && !sessions.end(1, Over::Ended));
        assert!(asking.is_ended(), "answers on their way are broken off");
        drop(asking);
        let ended = sessions.ended(9, |_, _, _| true).0.remove(0);
        assert_eq!(ended.reason, Some(Over::Ended.to_string()));
        wait(&sessions, BARRED_FOR.as_secs() - 1).await;
        assert_eq!(sessions.asks(1).unwrap_err(), Over::Ended);
        assert_eq!(comes(&sessions, 1, "192.0.2.1").unwrap_err(), Over::Ended);
        assert_eq!(open(&sessions)[0].id, 2);
        wait(&sessions, 1).await;
        assert!(comes(&sessions, 1, "192.0.2.1").unwrap().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn one_address_drives_nobody_out() {
        let sessions = Arc::new(limited(3));
        drop(comes(&sessions, 0, "192.0.2.1").unwrap().unwrap());
        let gone = comes(&sessions, 1, "192.0.2.7").unwrap().unwrap();
        assert!(sessions.end(2, Over::Ended));
        drop((gone, sessions.begin(who("192.0.2.1"), Grant::default())));
        wait(&sessions, 11).await;
        let mut key = 1;
        while key < 2 * OF_NETWORK as u64 {
            for _ in 0..3 {
                key += 1;
                drop(comes(&sessions, key, "192.0.2.7").unwrap().unwrap());
            }
            let more = comes(&sessions, u64::MAX, "192.0.2.7");
            assert!(more.unwrap().is_none(), "it is only counted");
            wait(&sessions, 1).await;
            (2..=key).for_each(|key| sessions.leaves(key));
        }
        let (ended, _) = sessions.ended(usize::MAX, |_, _, _| true);
        let of_one = ended.iter().filter(|it| it.session.who.peer == who("192.0.2.7").peer);
        assert_eq!(of_one.count(), OF_NETWORK + 1, "the one that an administrator ended is kept");
        assert_eq!(ended.len(), OF_NETWORK + 3);
        // All are forgotten in time, and so is the count of the network.
        wait(&sessions, 3600).await;
        assert!(sessions.ended(9, |_, _, _| true).0.is_empty());
        assert!(lock(&sessions.ended).of_network.is_empty());
        // A proxy has no limit of its own. It cannot fill the list.
        let of_proxy = (0..MOST as u64).map(|key| comes(&sessions, key, "10.0.0.1").unwrap());
        assert_eq!(of_proxy.flatten().count(), MOST / 4 * 3);
        drop(comes(&sessions, u64::MAX, "192.0.2.7").unwrap().unwrap());
        let (open, _) = sessions.open(0, usize::MAX, |_, _, _| true);
        let one = open.iter().find(|told| told.who.peer == who("192.0.2.7").peer).unwrap();
        assert!(sessions.end(one.id, Over::Ended));
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_are_refused_are_bounded() {
        let sessions = Arc::new(Sessions::default());
        let keys = 0..(MOST_BARRED / SHARDS) as u64 + 2;
        for key in keys.clone() {
            // All in one shard.
            let asking = comes(&sessions, key * SHARDS as u64, "192.0.2.1").unwrap().unwrap();
            assert!(sessions.end(asking.visit.id, Over::Ended));
            advance(Duration::from_millis(1)).await;
        }
        let refused = keys.filter(|key| sessions.asks(key * SHARDS as u64).is_err());
        assert_eq!(refused.min(), Some(2), "the first ones are forgotten");
    }
}
