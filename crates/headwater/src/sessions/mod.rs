//! The sessions of publishers and players, one by one: peers, bytes, and how an administrator ends them.
//!
//! ```text
//! rtmp, push, webrtc, mp4, flv ─ Session ─┬▶ Sessions   list, end     control plane
//! hls, dash ──────────────────── Asking ──┴▶ history    those that ended within an hour
//!        ▲
//!        └── poll_over: the permission has expired, or an administrator ends it
//! ```
//!
//! Players of HLS and DASH have no connections of their own: `requests` has their sessions.

mod ended;
mod requests;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use http::net::{LogId, PerAddress};
use live::UnixMicros;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::access::{Again, EXPIRED, Grant, REVOKED};
use crate::clock::wall_clock;
pub use ended::Ended;
use ended::Kept;
pub use requests::Asking;
use requests::{Visit, Visits};

/// Number of maps with a lock each, so that event loops seldom wait for each other or for a list.
const SHARDS: usize = 16;

const SECOND: Duration = Duration::from_secs(1);

/// Longest reason that is remembered, in bytes.
const LONGEST_REASON: usize = 200;

/// The activity of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Doing {
    /// Sends media.
    Publish,
    /// Gets media.
    Play,
}

/// A peer that begins to publish or to play.
#[derive(Debug, Clone)]
pub struct Who {
    /// Whether the peer publishes or plays.
    pub doing: Doing,
    /// The stream or title: `live/NAME` or `vod/PATH`.
    pub path: String,
    /// The protocol or delivery, by its name in the API: `rtmp`, `whip`, `push` and so on.
    pub by: &'static str,
    /// The peer's address and port.
    pub peer: SocketAddr,
}

impl Who {
    fn is(&self, wanted: &impl Fn(Doing, &str, &str) -> bool) -> bool {
        wanted(self.doing, &self.path, self.by)
    }
}

/// Why a session must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// The permission has expired.
    Expired,
    /// An administrator ends the session.
    Ended,
    /// A new decision no longer allows the session.
    Revoked,
}

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => EXPIRED,
            Self::Ended => "an administrator ended this session",
            Self::Revoked => REVOKED,
        })
    }
}

/// Counts what a session gets or sends. Clones count together.
#[derive(Debug, Clone, Default)]
pub struct Meter(Arc<Traffic>);

#[derive(Debug, Default)]
struct Traffic {
    bytes: AtomicU64,
    /// Milliseconds from the media that were sent last to the newest media, plus one. [`UNKNOWN`] if nobody
    /// told that.
    behind: AtomicU32,
}

/// Nobody told how far a session is behind.
const UNKNOWN: u32 = 0;

impl Meter {
    /// Counts bytes that the kernel has taken, or that came.
    pub fn add(&self, bytes: u64) {
        self.0.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Notes how far the media that are sent now are behind the newest media, in seconds.
    pub fn is_behind(&self, seconds: f64) {
        let millis = (seconds.max(0.0) * 1000.0).round() as u32;
        self.0.behind.store(millis.saturating_add(1), Ordering::Relaxed);
    }

    /// The bytes so far.
    pub fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    fn behind(&self) -> Option<u32> {
        match self.0.behind.load(Ordering::Relaxed) {
            UNKNOWN => None,
            millis => Some(millis - 1),
        }
    }
}

/// The sessions that are open, and those that ended a short time ago.
#[derive(Debug)]
pub struct Sessions {
    open: [Mutex<HashMap<u64, Arc<Entry>>>; SHARDS],
    /// Players of HLS and DASH.
    visits: Visits,
    ended: Mutex<Kept>,
    /// How many there have been.
    count: AtomicU64,
    /// Bytes of those that ended.
    gone: Mutex<BTreeMap<(Doing, &'static str), u64>>,
}

#[derive(Debug)]
struct Entry {
    id: u64,
    who: Who,
    since: UnixMicros,
    meter: Meter,
    rendition: Mutex<Option<Arc<str>>>,
    reason: Mutex<Option<String>>,
    /// The attempt by which the peer was let in.
    again: Option<Again>,
    /// Why the session must end, if somebody ends it.
    ended: OnceLock<Over>,
    /// Whether the session's bytes are among those of sessions that ended.
    is_gone: AtomicBool,
    /// The session's task.
    waker: AtomicWaker,
}

/// A session as the API shows it.
#[derive(Debug, Clone)]
pub struct Told {
    /// Its number, which no other session of this process has.
    pub id: u64,
    /// The peer, its activity, and the stream or title.
    pub who: Who,
    /// When it began, by the wall clock.
    pub since: UnixMicros,
    /// Bytes that were sent to a player, or that came from a publisher. Those of RTP are without headers.
    pub bytes: u64,
    /// Milliseconds from the media that a player was sent to the newest part of the stream at that time.
    pub behind: Option<u32>,
    /// The rendition that a player gets, if there are several.
    pub rendition: Option<Arc<str>>,
}

/// The traffic of all sessions with a connection of their own.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    /// Bytes so far, by activity and protocol.
    pub bytes: BTreeMap<(Doing, &'static str), u64>,
    /// How far open players are behind, in milliseconds, by their protocol.
    pub behind: BTreeMap<&'static str, Vec<u32>>,
}

impl Default for Sessions {
    fn default() -> Self {
        Self::new(None)
    }
}

impl Sessions {
    /// Has no session. `per_address` limits those that are made of requests.
    pub fn new(per_address: Option<PerAddress>) -> Self {
        Self {
            open: std::array::from_fn(|_| Mutex::default()),
            visits: Visits::new(per_address),
            ended: Mutex::default(),
            count: AtomicU64::default(),
            gone: Mutex::default(),
        }
    }

    /// Begins a session. It ends when it is dropped.
    pub fn begin(self: &Arc<Self>, who: Who, grant: Grant) -> Session {
        let id = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let entry = Arc::new(Entry {
            id,
            who,
            since: wall_clock(),
            meter: Meter::default(),
            rendition: Mutex::default(),
            reason: Mutex::default(),
            again: grant.again,
            ended: OnceLock::new(),
            is_gone: AtomicBool::default(),
            waker: AtomicWaker::new(),
        });
        self.shard(id).insert(id, Arc::clone(&entry));
        LogId::begin_session(id);
        Session { sessions: Arc::clone(self), entry, until: grant.until, expires: None, over: None }
    }

    /// The open sessions after a number that `wanted` selects, and how many are left out.
    ///
    /// `wanted` gets activity, path and protocol. There are at most `most`, and the oldest is the first.
    pub fn open(
        &self,
        after: u64,
        most: usize,
        wanted: impl Fn(Doing, &str, &str) -> bool,
    ) -> (Vec<Told>, usize) {
        let mut found = Vec::new();
        for shard in &self.open {
            let shard = lock(shard);
            let shard = shard.values().filter(|entry| entry.id > after && entry.who.is(&wanted));
            found.extend(shard.cloned().map(|entry| (entry.id, Open::Entry(entry))));
        }
        let visits = self.visits.open().into_iter();
        let visits = visits.filter(|visit| visit.id > after && visit.is(&wanted));
        found.extend(visits.map(|visit| (visit.id, Open::Visit(visit))));
        found.sort_unstable_by_key(|(id, _)| *id);
        let left_out = found.len().saturating_sub(most);
        (found.iter().take(most).map(|(_, open)| open.tell()).collect(), left_out)
    }

    /// The sessions that ended within the last hour and that `wanted` selects, and how many are left out.
    ///
    /// The session that ended last is the first. There are at most `most`.
    pub fn ended(
        &self,
        most: usize,
        wanted: impl Fn(Doing, &str, &str) -> bool,
    ) -> (Vec<Arc<Ended>>, usize) {
        let mut found: Vec<_> = {
            let mut kept = lock(&self.ended);
            kept.forget();
            kept.all().filter(|ended| ended.session.who.is(&wanted)).cloned().collect()
        };
        found.sort_by_key(|ended| std::cmp::Reverse(ended.when));
        let left_out = found.len().saturating_sub(most);
        found.truncate(most);
        (found, left_out)
    }

    /// The traffic of all sessions with a connection of their own. Other traffic is counted with its answers.
    pub fn figures(&self) -> Figures {
        // A counter must not go down. So no session is counted as gone meanwhile.
        let gone = lock(&self.gone);
        let mut figures = Figures { bytes: gone.clone(), ..Figures::default() };
        for shard in &self.open {
            for entry in lock(shard).values() {
                if entry.is_gone.load(Ordering::Acquire) {
                    continue;
                }
                let Who { doing, by, .. } = entry.who;
                *figures.bytes.entry((doing, by)).or_default() += entry.meter.bytes();
                if let Some(behind) = entry.meter.behind() {
                    figures.behind.entry(by).or_default().push(behind);
                }
            }
        }
        figures
    }

    /// The sessions that a new decision may end: their numbers, and the attempts that let them in.
    pub(crate) fn let_in(&self) -> Vec<(u64, Again)> {
        let mut found = Vec::new();
        for shard in &self.open {
            let shard = lock(shard);
            let open = shard.values().filter(|entry| entry.ended.get().is_none());
            found.extend(open.filter_map(|entry| Some((entry.id, entry.again.clone()?))));
        }
        found
    }

    /// Ends a session. Returns whether there is one with this number.
    ///
    /// The session's task ends it soon. The first reason counts. A session that is made of requests is over
    /// at once, and its player is refused for an hour.
    pub fn end(&self, id: u64, over: Over) -> bool {
        let entry = self.shard(id).get(&id).cloned();
        let Some(entry) = entry else {
            let visit = self.visits.bar(id);
            return visit
                .map(|visit| self.remember_visit(&visit, Some(over.to_string())))
                .is_some();
        };
        let _ = entry.ended.set(over);
        entry.waker.wake();
        true
    }

    fn count_gone(&self, entry: &Entry) {
        let mut gone = lock(&self.gone);
        *gone.entry((entry.who.doing, entry.who.by)).or_default() += entry.meter.bytes();
        entry.is_gone.store(true, Ordering::Release);
    }

    fn shard(&self, id: u64) -> MutexGuard<'_, HashMap<u64, Arc<Entry>>> {
        lock(&self.open[(id % SHARDS as u64) as usize])
    }
}

/// A session that is open.
enum Open {
    Entry(Arc<Entry>),
    Visit(Arc<Visit>),
}

impl Open {
    fn tell(&self) -> Told {
        match self {
            Self::Entry(entry) => entry.tell(),
            Self::Visit(visit) => visit.tell(),
        }
    }
}

impl Entry {
    fn tell(&self) -> Told {
        Told {
            id: self.id,
            who: self.who.clone(),
            since: self.since,
            bytes: self.meter.bytes(),
            behind: self.meter.behind(),
            rendition: lock(&self.rendition).clone(),
        }
    }
}

/// The session of a peer that publishes or plays. It lasts until this is dropped.
#[derive(Debug)]
pub struct Session {
    sessions: Arc<Sessions>,
    entry: Arc<Entry>,
    /// When the permission expires.
    until: Option<Instant>,
    /// Made when the session is first polled: then it belongs to the event loop that polls.
    expires: Option<Pin<Box<Sleep>>>,
    over: Option<Over>,
}

impl Session {
    /// The stream or title: `live/NAME` or `vod/PATH`.
    pub fn path(&self) -> &str {
        &self.entry.who.path
    }

    /// Counts the session's bytes.
    pub fn meter(&self) -> &Meter {
        &self.entry.meter
    }

    /// Notes which rendition the player gets.
    pub fn gets(&self, rendition: Option<&str>) {
        *lock(&self.entry.rendition) = rendition.map(Arc::from);
    }

    /// Notes why the session ends, for the history. The first reason counts.
    pub fn because(&self, reason: impl fmt::Display) {
        lock(&self.entry.reason).get_or_insert_with(|| {
            let mut reason = reason.to_string();
            reason.truncate(reason.floor_char_boundary(LONGEST_REASON));
            reason
        });
    }

    /// Ready when the session must end. The task that polled last is woken then.
    pub fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<Over> {
        self.entry.waker.register(cx.waker());
        if let Some(over) = self.look() {
            return Poll::Ready(over);
        }
        let Some(until) = self.until else { return Poll::Pending };
        let expires = self.expires.get_or_insert_with(|| Box::pin(sleep_until(until)));
        if expires.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.over = Some(Over::Expired);
        Poll::Ready(Over::Expired)
    }

    /// Whether the session must end now.
    pub fn look(&mut self) -> Option<Over> {
        if self.over.is_none() {
            let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
            self.over = match self.entry.ended.get().copied() {
                // Permissions expire at a whole second, and `until` is up to a second after that. A new
                // decision about the peer may see the expiry earlier.
                Some(Over::Revoked) if left.is_some_and(|left| left < SECOND) => {
                    Some(Over::Expired)
                }
                None => left.filter(Duration::is_zero).map(|_| Over::Expired),
                ended => ended,
            };
        }
        self.over
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(over) = self.over {
            self.because(over);
        }
        self.sessions.count_gone(&self.entry);
        LogId::end_session(self.entry.id);
        let entry = self.sessions.shard(self.entry.id).remove(&self.entry.id);
        let Some(entry) = entry else { return };
        let reason = lock(&entry.reason).take();
        let (session, at, when) = (entry.tell(), wall_clock(), Instant::now());
        lock(&self.sessions.ended).add(Ended { session, at, reason, when }, None);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::time::{advance, timeout};

    use super::ended::{MOST_REMEMBERED, REMEMBERED_FOR};
    use super::*;

    fn who(path: &str) -> Who {
        let peer = "192.0.2.1:5".parse().unwrap();
        Who { doing: Doing::Play, path: path.to_owned(), by: "push", peer }
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_is_listed_while_it_lasts_and_remembered_for_an_hour() {
        let sessions = Arc::new(Sessions::default());
        let (a, b) = (
            sessions.begin(who("live/a"), Grant::default()),
            sessions.begin(who("live/b"), Grant::default()),
        );
        a.meter().clone().add(5);
        a.gets(Some("v1"));
        let told = sessions.open(0, 9, |_, _, _| true).0;
        assert_eq!(told.iter().map(|it| it.id).collect::<Vec<_>>(), [1, 2]);
        assert_eq!((told[0].bytes, told[0].rendition.as_deref()), (5, Some("v1")));
        assert_eq!((told[0].behind, told[1].behind), (None, None));
        a.meter().is_behind(0.0);
        b.meter().is_behind(1.2345);
        let behind = |path: &str| sessions.open(0, 9, |_, of, _| of == path).0[0].behind;
        assert_eq!(sessions.open(1, 9, |_, _, _| true).0[0].id, 2);
        let (first, left_out) = sessions.open(0, 1, |_, _, _| true);
        assert_eq!((first.len(), left_out), (1, 1));
        assert_eq!((behind("live/a"), behind("live/b")), (Some(0), Some(1235)));
        a.because("é".repeat(LONGEST_REASON));
        a.because("another");
        let figures = sessions.figures();
        assert_eq!(figures.bytes[&(Doing::Play, "push")], 5);
        assert_eq!(figures.behind["push"].len(), 2);
        drop((b, a));
        assert!(sessions.open(0, 9, |_, _, _| true).0.is_empty());
        let figures = sessions.figures();
        assert_eq!((figures.bytes[&(Doing::Play, "push")], figures.behind.len()), (5, 0));
        let ended = sessions.ended(9, |_, _, _| true).0;
        assert_eq!(ended.iter().map(|it| it.session.id).collect::<Vec<_>>(), [1, 2]);
        let reasons: Vec<_> = ended.iter().map(|it| it.reason.clone()).collect();
        assert_eq!(reasons, [Some("é".repeat(LONGEST_REASON / 2)), None]);
        advance(REMEMBERED_FOR).await;
        assert!(sessions.ended(9, |_, _, _| true).0.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_than_so_many_are_remembered() {
        let sessions = Arc::new(Sessions::default());
        for _ in 0..MOST_REMEMBERED + 5 {
            drop(sessions.begin(who("live/a"), Grant::default()));
        }
        let notable = sessions.begin(who("live/a"), Grant::default());
        notable.because("a reason");
        drop(notable);
        let most = MOST_REMEMBERED;
        for _ in 0..most {
            drop(sessions.begin(who("live/a"), Grant::default()));
        }
        let (ended, left_out) = sessions.ended(2 * most, |_, _, _| true);
        assert_eq!((ended.len(), left_out), (most + 1, 0));
        assert!(ended.iter().any(|it| it.reason.as_deref() == Some("a reason")));
        assert_eq!(sessions.ended(10, |_, _, _| true).1, most - 9);
    }

    #[tokio::test(start_paused = true)]
    async fn its_task_learns_when_an_administrator_ends_it_or_it_expires() {
        let sessions = Arc::new(Sessions::default());
        let until = Some(Instant::now() + Duration::from_secs(20));
        let grant = Grant { until, ..Grant::default() };
        for (ends, expected) in [(true, Over::Ended), (false, Over::Expired)] {
            let mut session = sessions.begin(who("live/a"), grant.clone());
            let id = session.entry.id;
            assert_eq!(session.look(), None);
            let task =
                tokio::spawn(
                    async move { (poll_fn(|cx| session.poll_over(cx)).await, session.look()) },
                );
            tokio::task::yield_now().await;
            if ends {
                assert!(sessions.end(id, Over::Ended));
            }
            let found = timeout(Duration::from_secs(21), task).await.unwrap().unwrap();
            assert_eq!(found, (expected, Some(expected)));
            assert_eq!(sessions.ended(1, |_, _, _| true).0[0].reason, Some(expected.to_string()));
            assert!(!sessions.end(id, Over::Ended), "it is over");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_permission_that_has_expired_is_not_said_to_be_revoked() {
        let sessions = Arc::new(Sessions::default());
        let until = Some(Instant::now() + Duration::from_millis(20_900));
        let grant = Grant { until, ..Grant::default() };
        for (after, expected) in [(19, Over::Revoked), (1, Over::Expired)] {
            advance(Duration::from_secs(after)).await;
            let mut session = sessions.begin(who("live/a"), grant.clone());
            assert!(sessions.end(session.entry.id, Over::Revoked));
            assert_eq!(session.look(), Some(expected));
        }
    }
}
