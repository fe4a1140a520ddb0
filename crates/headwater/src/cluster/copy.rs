//! Copies of streams that other nodes have.

mod ask;

pub(super) use self::ask::{ANSWER, longest_answer};

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cluster::name;
use cluster::presence::Holder;
use cluster::wire::{Ask, Beat, Message, Reader, Wants};
use futures_util::StreamExt;
use live::mirror::{Change, Mirror, NewUnit, Taken};
use live::{Status, Stream, UnixMicros};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::bus::{Incoming, Subscription};
use super::{Cluster, PATIENCE};

/// A copy that nobody watches for this time ends.
const UNWATCHED: Duration = Duration::from_secs(30);
/// A copy that hears nothing of its stream for this time asks the stream's node: a beat may be lost.
const SILENCE: Duration = Duration::from_millis(1200);
/// How often a copy looks whether it is needed, and where the stream is.
const TICK: Duration = Duration::from_millis(250);
/// The least time between two questions for the same stream.
const BETWEEN: Duration = Duration::from_millis(100);

/// A track counts as played for this time after somebody asked for it.
const PLAYED: Duration = Duration::from_secs(12);
/// For how long the node that has a stream remembers which units viewers of a copy want.
pub(super) const WANTS: Duration = Duration::from_secs(3);

/// How far the making of a copy is.
#[derive(Debug, Clone)]
pub(super) enum Progress {
    /// The node that has the stream was asked. Only a part of its answer may have come.
    Asks,
    /// The same, but this node had the stream before.
    Renews,
    /// There is a copy.
    Copy(Arc<Copied>),
    /// The node does not answer.
    Failed,
}

impl Progress {
    /// Whether there is neither a copy yet nor an end of the attempt.
    pub(super) fn is_under_way(&self) -> bool {
        matches!(self, Self::Asks | Self::Renews)
    }

    pub(super) fn copied(&self) -> Option<&Arc<Copied>> {
        if let Self::Copy(copied) = self { Some(copied) } else { None }
    }
}

/// A copy, and how far it is.
#[derive(Debug)]
pub(super) struct Copied {
    stream: Arc<Stream>,
    /// The epoch of the lease by which the stream's node has it.
    epoch: AtomicU64,
    /// When the copy last had all that the stream's node told, in microseconds.
    complete: AtomicU64,
}

impl Copied {
    pub(super) fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// How long ago the copy had all, in milliseconds.
    ///
    /// The stream's node tells each half second how far the stream is, so up to half a second means nothing.
    pub(super) fn behind(&self, now: UnixMicros) -> u32 {
        let complete = UnixMicros(self.complete.load(Ordering::Relaxed));
        u32::try_from(now.since(complete).as_millis()).unwrap_or(u32::MAX)
    }

    fn note_complete(&self, now: UnixMicros) {
        self.complete.store(now.0, Ordering::Relaxed);
    }
}

/// Why a copy ends.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error("nobody watches it")]
    Unwatched,
    #[error("memory is short, and nobody watches it")]
    GaveWay,
    #[error("the stream is over")]
    Over,
    #[error("its node does not answer")]
    NoAnswer,
    #[error("another node has the stream now")]
    Moved,
    #[error("the stream is this node's now")]
    Taken,
    #[error("{0}")]
    Refused(String),
}

/// The copy of a stream that `holder` has. Begins one if there is none.
///
/// If the epoch of the holder is 0, the holder has only a copy. Its answer then tells the epoch of that copy.
pub(super) fn ensure(
    cluster: &Arc<Cluster>,
    name: &str,
    holder: Holder,
) -> watch::Receiver<Progress> {
    let mut copies = cluster.copies();
    if let Some(known) = copies.get(name).filter(|known| known.has_changed().is_ok()) {
        return known.clone();
    }
    let was_here = cluster.registry.stream(name).is_some_and(|stream| stream.is_mirrored());
    let first = if was_here { Progress::Renews } else { Progress::Asks };
    let (progress, told) = watch::channel(first);
    copies.insert(name.to_owned(), told.clone());
    let (cluster, name) = (Arc::clone(cluster), name.to_owned());
    let runtime = cluster.runtime.clone();
    runtime.spawn(async move {
        let ended = follow(&cluster, &name, holder, &progress).await;
        match ended {
            End::GaveWay => tracing::warn!(stream = name, "copy ended: {ended}"),
            _ => tracing::debug!(stream = name, reason = %ended, "copy ended"),
        }
        // All of this is under the lock. So a caller that hears of the end and asks again begins anew.
        let mut copies = cluster.copies();
        progress.send_replace(Progress::Failed);
        drop(progress);
        copies.remove(&name);
    });
    told
}

/// A copy, and the state of the task that makes and keeps it.
struct Copying<'a> {
    cluster: &'a Cluster,
    name: &'a str,
    holder: Holder,
    mirror: Option<Mirror>,
    /// The epoch from which this copy has taken the description.
    ///
    /// Nothing else of an epoch is taken before its description: the node may have gone on with the stream
    /// from less than this copy has.
    described: Option<u64>,
    asked: Instant,
    /// Whether the copy takes changes as they come. It does not take them while it asks.
    is_kept: bool,
    /// Single units, while viewers read these.
    units: Option<Subscription>,
    /// When the stream's node was last told the wants of viewers here.
    told: Option<Instant>,
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// The next single unit; waits for ever while nobody reads these.
async fn next(units: &mut Option<Subscription>) -> Option<Incoming> {
    match units {
        Some(units) => units.next().await,
        None => std::future::pending().await,
    }
}

/// Makes and keeps a copy until something ends it.
async fn follow(
    cluster: &Cluster,
    name: &str,
    holder: Holder,
    progress: &watch::Sender<Progress>,
) -> End {
    let Ok(mut changes) = cluster.bus.subscribe(name::changes(name)).await else {
        return End::NoAnswer;
    };
    let mut copying = Copying {
        cluster,
        name,
        holder,
        // A stream that this node gave away is the copy from now on.
        mirror: cluster.registry.resume_mirror(name),
        described: None,
        asked: Instant::now(),
        is_kept: false,
        units: None,
        told: None,
    };
    let was_here = copying.mirror.is_some();
    // Changes that come while the node answers are dropped, and asked for afterwards: over a slow link they
    // could be many.
    let dropping = async {
        while changes.next().await.is_some() {}
        Err(End::NoAnswer)
    };
    let asked = tokio::select! {
        asked = copying.ask_for_all() => asked,
        ended = dropping => ended,
    };
    let is_begun = match &asked {
        Ok(()) => true,
        // Who watches a stream that was given away stays. The next beat makes the copy ask again.
        Err(End::NoAnswer | End::Moved) => was_here,
        Err(_) => false,
    };
    let (true, Some(mirror)) = (is_begun, &copying.mirror) else {
        let end = asked.err().unwrap_or(End::NoAnswer);
        return if copying.claim_alone().await { End::Taken } else { end };
    };
    if cluster.elsewhere(name).is_none() && copying.is_old() {
        return End::Over;
    }
    // Without an answer, nothing is known of the stream at its new node.
    let (epoch, complete) = match asked {
        Ok(()) => (copying.holder.epoch, copying.now().0),
        Err(_) => (0, 0),
    };
    let (epoch, complete) = (epoch.into(), complete.into());
    let copied = Arc::new(Copied { stream: Arc::clone(mirror.stream()), epoch, complete });
    progress.send_replace(Progress::Copy(Arc::clone(&copied)));
    copying.keep(&mut changes, &copied).await
}

impl Copying<'_> {
    fn now(&self) -> UnixMicros {
        self.cluster.clock.now()
    }

    /// Takes changes as they come.
    async fn keep(&mut self, changes: &mut Subscription, copied: &Copied) -> End {
        self.is_kept = true;
        let mut reader = Reader::default();
        let mut heard = Instant::now();
        let (mut watched, mut gone) = (Instant::now(), None);
        let (begun, mut claimed) = (Instant::now(), Instant::now());
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let claims = self.silent_from().map(|from| from.max(claimed + BETWEEN));
            let message = tokio::select! {
                message = changes.next() => match message {
                    Some(message) => message,
                    None => return End::NoAnswer,
                },
                Some(message) = next(&mut self.units) => message,
                // A publisher that waits here goes on at once. With the next tick, viewers would miss more.
                () = sleep_until(claims.unwrap_or(claimed)), if claims.is_some() => {
                    if self.claim().await {
                        return End::Taken;
                    }
                    claimed = Instant::now();
                    continue;
                }
                _ = ticks.tick() => {
                    if !copied.stream().is_mirrored() {
                        return End::Taken;
                    }
                    let is_watched = self.is_watched();
                    // A viewer that asked for the copy may not be counted yet.
                    let is_young = begun.elapsed() < PATIENCE;
                    if !is_watched && !is_young && self.cluster.gives_way() {
                        return End::GaveWay;
                    }
                    if is_watched || self.cluster.standing().contains(self.name) {
                        watched = Instant::now();
                    } else if watched.elapsed() > UNWATCHED {
                        return End::Unwatched;
                    }
                    self.tell_wants().await;
                    match self.cluster.elsewhere(self.name) {
                        Some(holder) => {
                            gone = None;
                            if (&holder.node, holder.epoch) != (&self.holder.node, self.holder.epoch) {
                                // The new node goes on with the stream, if it had a copy.
                                let before = std::mem::replace(&mut self.holder, holder);
                                match self.ask().await {
                                    Ok(()) => copied.epoch.store(self.holder.epoch, Ordering::Relaxed),
                                    Err(end @ End::Refused(_)) => return end,
                                    // The next turn tries again. A copy that has begun to follow the new node
                                    // does not go back.
                                    Err(_) if self.described != Some(self.holder.epoch) => {
                                        self.holder = before;
                                    }
                                    Err(_) => {}
                                }
                            }
                        }
                        // The stream is over, or its node has gone, or this one has lost its connection.
                        // Without a connection, nobody knows.
                        None if !self.cluster.is_connected() => {}
                        None if gone.get_or_insert_with(Instant::now).elapsed() > self.rests() => return End::Over,
                        None => {}
                    }
                    if self.claim().await {
                        return End::Taken;
                    }
                    let is_silent = heard.elapsed() > SILENCE && self.asked.elapsed() > SILENCE;
                    // Without a connection, questions would wait until nobody needs the answer any more. A
                    // node that has gone is not asked: that takes a second, in which the next node would not
                    // be seen.
                    let is_known = !self.cluster.is_silent(&self.holder.node);
                    if is_silent && is_known && self.cluster.is_connected() {
                        // Messages may be lost, or the node has gone. The copy stays until the directory says so.
                        if self.ask().await.is_err() && self.cluster.is_connected() {
                            self.cluster.has_gone(&self.holder.node).await;
                        }
                    }
                    continue;
                }
            };
            let (epoch, message) = match reader.read(&message.payload) {
                Ok(Some(read)) => read,
                Ok(None) => continue,
                Err(error) => {
                    self.cluster.refuse(&error);
                    continue;
                }
            };
            // The node that had the stream before may not know yet that another node has it now.
            if epoch != self.holder.epoch {
                self.cluster.refused.inc();
                continue;
            }
            heard = Instant::now();
            let is_complete = match &message {
                Message::Change(change) => match self.apply(change) {
                    Ok(taken) => taken != Taken::Missing,
                    Err(end) => return end,
                },
                Message::Unit(unit) => match self.hand(unit.clone()) {
                    Ok(()) => continue,
                    Err(end) => return end,
                },
                Message::Beat(beat) => {
                    let has_all = !self.lacks(beat);
                    if has_all && self.described == Some(self.holder.epoch) {
                        copied.note_complete(self.now());
                        copied.epoch.store(self.holder.epoch, Ordering::Relaxed);
                    }
                    has_all
                }
                Message::Done | Message::Ceded => true,
            };
            if !is_complete && self.asked.elapsed() > BETWEEN {
                // If another node has the stream now, the directory says so.
                if let Err(end @ End::Refused(_)) = self.ask().await {
                    return end;
                }
            }
        }
    }

    /// When the stream's publisher counts as silent, if another one waits here.
    fn silent_from(&self) -> Option<Instant> {
        let now = self.now();
        let from = self.cluster.seats.silent_from(self.name, now)?;
        Some(Instant::now() + from.since(now))
    }

    /// How long viewers can watch the rest of a stream that no node has any more.
    fn rests(&self) -> Duration {
        let Some(mirror) = &self.mirror else { return Duration::ZERO };
        let stream = mirror.stream();
        if stream.state().status == Status::Ended {
            stream.window()
        } else {
            stream.settings().reconnect
        }
    }

    /// Whether the newest media are so old that the stream is over, if no node has it. Otherwise two copies could keep
    /// each other for ever.
    fn is_old(&self) -> bool {
        let Some(mirror) = &self.mirror else { return true };
        let newest = mirror.stream().newest_published();
        newest.is_none_or(|newest| self.now().since(newest) > self.rests())
    }

    fn is_watched(&self) -> bool {
        let Some(mirror) = &self.mirror else { return false };
        if !self.cluster.seats.presence(self.name, self.now()).waiting.is_empty() {
            return true;
        }
        mirror.stream().viewers(self.now()).iter().any(|(_, viewers)| *viewers > 0)
    }

    /// Tells the stream's node which single units and tracks the viewers here want, if any.
    async fn tell_wants(&mut self) {
        let Some(mirror) = &self.mirror else { return };
        let (bus, now) = (&self.cluster.bus, self.now());
        let units = mirror.read_by_unit();
        if units.is_empty() {
            self.units = None;
        } else if self.units.is_none() {
            self.units = bus.subscribe(name::units(self.name)).await.ok();
            self.told = None;
        }
        let played = mirror.asked_for(UnixMicros(now.0.saturating_sub(micros(PLAYED))));
        // A played track is remembered for longer.
        let remembered =
            if units.is_empty() { mirror.stream().settings().reconnect } else { WANTS };
        let is_due = self.told.is_none_or(|told| told.elapsed() >= remembered / 3);
        if is_due && !(units.is_empty() && played.is_empty()) {
            self.told = Some(Instant::now());
            let ask = Ask::Wants(Wants { units, played });
            let Ok(question) = self.cluster.question(self.name, ask) else { return };
            let to = name::questions(&self.holder.node);
            let _ = bus.publish(to, None, question).await;
        }
    }

    /// Hands a unit to viewers that read single units.
    fn hand(&mut self, unit: NewUnit) -> Result<(), End> {
        let now = self.now();
        let Some(mirror) = &mut self.mirror else { return Ok(()) };
        mirror.hand(unit, now).map_err(|error| End::Refused(error.to_string()))
    }

    fn lacks(&self, beat: &Beat) -> bool {
        let Some(mirror) = &self.mirror else { return true };
        let state = mirror.stream().state();
        let has = |&(id, version): &(u32, u64)| {
            let mut tracks = state.tracks.iter();
            tracks.any(|track| track.header().track.id == id && track.window().version >= version)
        };
        state.version < beat.version || !beat.tracks.iter().all(has)
    }

    fn apply(&mut self, change: &Change) -> Result<Taken, End> {
        let now = self.now();
        let refused = |error: &dyn std::error::Error| End::Refused(error.to_string());
        if self.mirror.is_none() {
            let Change::Stream(of) = change else { return Ok(Taken::Missing) };
            let mirror = self.cluster.registry.mirror(self.name, of, now);
            self.mirror = Some(mirror.map_err(|error| refused(&error))?);
        }
        let Some(mirror) = &mut self.mirror else { return Ok(Taken::Missing) };
        if matches!(change, Change::Stream(_)) {
            let taken = mirror.apply(change, now).map_err(|error| refused(&error));
            self.described = taken.is_ok().then_some(self.holder.epoch);
            return taken;
        }
        if self.described != Some(self.holder.epoch) {
            return Ok(Taken::Missing);
        }
        mirror.apply(change, now).map_err(|error| refused(&error))
    }
}
