//! Several nodes as one: any node takes any publisher, and any node serves any viewer.
//!
//! ```text
//!  publisher ─▶ node A: stream ─ share ─▶ NATS ─▶ copy ─▶ node B: the same stream ─▶ viewers
//! ```
//!
//! The node that a publisher is connected to has its stream. It takes a lease of the name ([`lease`]) and
//! tells each change of the stream ([`share`]). Another node that is asked for the stream makes a copy while
//! somebody watches ([`copy`]). The copy begins with the first node's answer ([`answer`]). Every delivery
//! works from a copy as on the publisher's node, with the same bytes. All nodes know all streams
//! ([`announce`]). [`backup`] looks after publishers that wait for a stream of another node. Some copies are
//! kept although nobody watches ([`standing`]), if the operator asks for that.
//!
//! All of it speaks through a [`bus`]: NATS ([`nats`]), or the network of the simulation.
//!
//! The publisher's own viewers never wait for the message system: messages about a stream are made from its
//! window.

mod announce;
mod answer;
mod backup;
mod bus;
mod copy;
mod lease;
mod nats;
mod share;
#[cfg(test)]
mod simulation;
mod standing;
mod units;

pub(crate) use self::nats::probe;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use cluster::name;
use cluster::presence::{self, Directory, Holder, Known};
use cluster::wire::{self, Ask, Message, Question, Reader};
use live::backup::{Role, Seats};
use live::{PublishError, Registry, Status, Stream};
use prometheus_client::metrics::counter::Counter;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};

use self::bus::{Answer, Bus, Failed};
use self::lease::Leases;
use self::nats::Nats;
use crate::clock::Clock;
use crate::{config, titles};

/// How long a viewer waits for the first copy of a stream.
const PATIENCE: Duration = Duration::from_secs(5);

/// The least time between two copies that give way: the memory of one may be enough.
const GIVES_WAY: Duration = Duration::from_millis(100);

/// A node has gone when nobody answers this many questions to it.
const GONE: u32 = 3;
/// The time between two of these questions.
const RETURNS: Duration = Duration::from_millis(500);

/// This node's part in the cluster.
#[derive(Debug)]
pub struct Cluster {
    node: String,
    address: String,
    zone: String,
    /// Whether this node refuses new clients, because it is about to end.
    leaves: AtomicBool,
    bus: Arc<dyn Bus>,
    /// How many messages were refused: no node can have written them, or they belong to another lease.
    pub refused: Counter,
    leases: Leases,
    directory: Mutex<Directory>,
    /// The streams that this node has, the epochs of their leases, and whether somebody publishes them.
    own: Mutex<HashMap<String, (u64, bool)>>,
    /// Streams of this node that another node asked for.
    ceded: Mutex<HashSet<String>>,
    /// The streams of this node from which viewers of copies want single units.
    wanted: Mutex<units::Wanted>,
    /// Tells that `ceded` has one more.
    cedes: Notify,
    /// Tells that `own` has changed.
    owns: Notify,
    /// The copies that this node has or is making.
    copies: Mutex<HashMap<String, watch::Receiver<copy::Progress>>>,
    /// The streams that this node copies whether or not anybody watches them.
    standing: Mutex<HashSet<String>>,
    /// When the last copy gave way.
    gave_way: Mutex<Option<Instant>>,
    registry: Arc<Registry>,
    seats: Arc<Seats>,
    /// Viewers of files, which count as viewers of this node as well.
    title_viewers: Arc<titles::Viewers>,
    clock: Clock,
    runtime: tokio::runtime::Handle,
}

/// The answer of a node to [`Ask::Cede`]: another node asks for a stream whose lease this one has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cession {
    /// The node gives the lease back at its next beat: nobody publishes the stream there.
    Soon,
    /// The node does not have the stream. The lease lasts on because it could not be given back.
    LeftOver,
    /// The node keeps the stream.
    Refused,
}

/// A stream whose node cannot be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the node that has this stream cannot be reached")]
pub struct Unreachable;

impl Cluster {
    /// Joins the cluster, and shares this node's streams from now on.
    ///
    /// # Errors
    /// The credentials cannot be read, or an address is not valid.
    pub async fn join(
        config: &config::Cluster,
        seats: Arc<Seats>,
        title_viewers: Arc<titles::Viewers>,
        clock: Clock,
    ) -> anyhow::Result<Arc<Self>> {
        let node = match &*config.node {
            "" => rustix::system::uname().nodename().to_string_lossy().into_owned(),
            node => node.to_owned(),
        };
        let bus = Arc::new(Nats::connect(config, &node, clock).await?);
        let address = config.advertise.trim_end_matches('/').to_owned();
        let place = (address, config.zone.clone());
        Ok(Self::begin(bus, node, place, config.copies.into(), (seats, title_viewers), clock))
    }

    /// Begins this node's part. It is at an address and in a zone. Each stream is copied on so many further nodes.
    fn begin(
        bus: Arc<dyn Bus>,
        node: String,
        (address, zone): (String, String),
        copies: usize,
        (seats, title_viewers): (Arc<Seats>, Arc<titles::Viewers>),
        clock: Clock,
    ) -> Arc<Self> {
        let cluster = Arc::new(Self {
            leases: Leases::new(Arc::clone(&bus), node.clone()),
            node,
            address,
            zone,
            leaves: AtomicBool::new(false),
            bus,
            refused: Counter::default(),
            directory: Mutex::default(),
            own: Mutex::default(),
            ceded: Mutex::default(),
            wanted: Mutex::default(),
            cedes: Notify::new(),
            owns: Notify::new(),
            copies: Mutex::default(),
            standing: Mutex::default(),
            gave_way: Mutex::default(),
            registry: Arc::clone(seats.registry()),
            seats,
            title_viewers,
            clock,
            runtime: tokio::runtime::Handle::current(),
        });
        tokio::spawn(announce::hear(Arc::clone(&cluster)));
        tokio::spawn(announce::watch(Arc::clone(&cluster)));
        tokio::spawn(announce::run(Arc::clone(&cluster)));
        tokio::spawn(answer::run(Arc::clone(&cluster)));
        tokio::spawn(share::run(Arc::clone(&cluster)));
        tokio::spawn(backup::run(Arc::clone(&cluster)));
        if copies > 0 {
            tokio::spawn(standing::run(Arc::clone(&cluster), copies));
        }
        cluster
    }

    /// The other node that has a stream, as far as this one knows.
    pub fn elsewhere(&self, stream: &str) -> Option<Holder> {
        self.directory().holder(stream, self.clock.now()).filter(|holder| holder.node != self.node)
    }

    /// Whether a publisher of this role waits at another node for a stream.
    pub fn waits_elsewhere(&self, stream: &str, role: Role) -> bool {
        self.directory().waits(stream, role.into(), &self.node, self.clock.now()).is_some()
    }

    /// Finds out whether the other node where a publisher of this role waits is still there.
    ///
    /// If that node does not answer, its publisher counts no longer: the encoder may be the one that comes
    /// here. No more than an answer is needed, because a publisher that waits has nothing that two could use
    /// at once.
    pub async fn look_for_waiting(&self, stream: &str, role: Role) {
        loop {
            let now = self.clock.now();
            let node =
                self.directory().waits(stream, role.into(), &self.node, now).map(str::to_owned);
            let Some(node) = node else { return };
            if matches!(self.ask_whether_there(&node).await, Ok(Answer::Payload(_))) {
                return;
            }
            self.directory().forget_waiting(&node, stream);
        }
    }

    /// The nodes that this one knows, and those that have gone a short time ago, both by name.
    pub fn nodes(&self) -> (Vec<Known>, Vec<Known>) {
        let mut directory = self.directory();
        directory.expire(self.clock.now());
        (directory.nodes(), directory.gone())
    }

    /// The address to send a viewer to: the node with the fewest viewers, in `zone` if nodes are there.
    pub fn route(&self, zone: Option<&str>) -> Option<String> {
        self.directory().route(zone, self.clock.now())
    }

    /// Tells other nodes to send no further viewers here.
    pub fn leave(&self) {
        self.leaves.store(true, Ordering::Relaxed);
        self.owns.notify_one();
    }

    /// The name of this node.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// The node to copy a stream from: the one that has it, or one with a copy if no node has it any more.
    fn source(&self, stream: &str) -> Option<Holder> {
        self.elsewhere(stream).or_else(|| {
            // A copy would replace what viewers can still watch here.
            if self.has_rest(stream) {
                return None;
            }
            let node = self.directory().copier(stream, &self.node, self.clock.now())?;
            Some(Holder { node, epoch: 0, is_live: false, publisher: None, waits: None })
        })
    }

    /// The copy of a stream that another node has. If there is none yet, makes one and waits for it. `None` if no node
    /// has the stream.
    ///
    /// # Errors
    /// The node does not answer.
    pub async fn copy(self: &Arc<Self>, name: &str) -> Result<Option<Arc<Stream>>, Unreachable> {
        if self.source(name).is_none() {
            // A node that has just connected has not heard of all streams.
            while self.is_young()
                && self.source(name).is_none()
                && self.registry.stream(name).is_none()
            {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        let Some(holder) = self.source(name) else {
            let here = self.registry.stream(name);
            // Without a connection, nobody knows what others have.
            return if here.is_some() || self.is_connected() { Ok(here) } else { Err(Unreachable) };
        };
        let mut progress = copy::ensure(self, name, holder);
        let made = timeout(PATIENCE, progress.wait_for(|progress| !progress.is_under_way()));
        match made.await.map(|made| made.map(|made| made.clone())) {
            Ok(Ok(copy::Progress::Copy(copied))) => Ok(Some(Arc::clone(copied.stream()))),
            _ => Err(Unreachable),
        }
    }

    /// Whether the first copy of a stream is being made. Then only a part of the stream is here.
    pub fn begins_copy(&self, name: &str) -> bool {
        let copies = self.copies();
        copies.get(name).is_some_and(|it| matches!(*it.borrow(), copy::Progress::Asks))
    }

    fn directory(&self) -> MutexGuard<'_, Directory> {
        self.directory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a node has gone: nobody in NATS answers for the node, for longer than a reconnection takes.
    pub async fn has_gone(&self, node: &str) -> bool {
        for turn in 0..GONE {
            if turn > 0 {
                tokio::time::sleep(RETURNS).await;
            }
            if !matches!(self.ask_whether_there(node).await, Ok(Answer::Unheard)) {
                return false;
            }
            // This node has found that out before, or meanwhile.
            if self.directory().has_gone(node) {
                return true;
            }
        }
        self.directory().forget(node);
        true
    }

    /// Asks a node whether it is there.
    ///
    /// An error leaves the answer open, also if this node has no connection. The caller decides.
    async fn ask_whether_there(&self, node: &str) -> Result<Answer, Failed> {
        if !self.is_connected() {
            return Err(Failed("there is no connection".to_owned()));
        }
        let question = self.question("", Ask::Nothing);
        let question = question.map_err(|error| Failed(error.to_string()))?;
        self.bus.request(name::questions(node), question).await
    }

    /// Whether a node has announced nothing for so long that it is forgotten.
    fn is_silent(&self, node: &str) -> bool {
        !self.directory().knows(node, self.clock.now())
    }

    /// A question of this node about a stream, as bytes.
    fn question(&self, stream: &str, ask: Ask) -> Result<Bytes, wire::Error> {
        Question { asker: self.node.clone(), stream: stream.to_owned(), ask }.write()
    }

    /// Asks a node for a stream whose lease it has.
    ///
    /// # Errors
    /// The node does not answer.
    async fn cedes(&self, node: &str, stream: &str) -> Result<Cession, Failed> {
        let failed = |error: wire::Error| Failed(error.to_string());
        let question = self.question(stream, Ask::Cede).map_err(failed)?;
        let answer = self.bus.request(name::questions(node), question).await?;
        let Answer::Payload(answer) = answer else {
            return Err(Failed("the node is not there".to_owned()));
        };
        Ok(match Reader::default().read(&answer).map_err(failed)? {
            Some((0, Message::Ceded)) => Cession::LeftOver,
            Some((_, Message::Ceded)) => Cession::Soon,
            _ => Cession::Refused,
        })
    }

    /// Notes that another node asked for a stream of this one.
    fn cede(&self, stream: &str) {
        self.ceded.lock().unwrap_or_else(PoisonError::into_inner).insert(stream.to_owned());
        self.cedes.notify_waiters();
    }

    /// Whether another node asked for a stream of this one since the last call.
    fn is_ceded(&self, stream: &str) -> bool {
        self.ceded.lock().unwrap_or_else(PoisonError::into_inner).remove(stream)
    }

    /// Finds the publisher of a stream at another node, for a publisher of this role that comes here.
    ///
    /// Returns the role of the publisher that is live there or has the next turn, and the epoch of that
    /// node's lease.
    ///
    /// # Errors
    /// A publisher of this role is at another node. A rendition's publisher must connect to the stream's
    /// node.
    pub fn other_publisher(
        &self,
        stream: &str,
        role: Role,
        rendition: Option<&str>,
    ) -> Result<Option<(Role, u64)>, PublishError> {
        let holder = self.elsewhere(stream);
        // A publisher that waits has the next turn if no publisher is live.
        let partner = || self.waits_elsewhere(stream, role.other()).then_some(role.other());
        let of = |holder: &Holder| holder.publisher.or(holder.waits).map(Role::from);
        let other = holder.as_ref().and_then(|it| Some((of(it).or_else(partner)?, it.epoch)));
        let waits = || self.waits_elsewhere(stream, role);
        match other {
            // Only renditions are published there, or a rendition is to be published here.
            None if holder.is_some_and(|holder| holder.is_live) => Err(PublishError::Elsewhere),
            Some((other, _)) if other == role || rendition.is_some() => {
                Err(PublishError::Elsewhere)
            }
            _ if rendition.is_none() && waits() => Err(PublishError::Elsewhere),
            other => Ok(other),
        }
    }

    /// Counts and logs a message that is refused.
    fn refuse(&self, error: &dyn std::error::Error) {
        self.refused.inc();
        tracing::debug!(%error, "message refused");
    }

    fn is_connected(&self) -> bool {
        self.bus.is_connected()
    }

    /// Whether this node has been connected for so short a time that it has not heard of all others.
    fn is_young(&self) -> bool {
        self.clock.now().since(self.bus.connected()) < presence::SETTLED
    }

    /// Whether this node knows the other nodes and their streams.
    fn has_heard_all(&self) -> bool {
        self.is_connected() && !self.is_young()
    }

    /// Whether a stream is published here, or its publisher may return. A stream that was given away becomes the copy
    /// itself, when it is shared no longer.
    fn has_own(&self, stream: &str) -> bool {
        let stream = self.registry.stream(stream);
        stream.is_some_and(|it| !it.is_mirrored() && it.state().status != Status::Ended)
    }

    /// Whether a stream is over, and viewers can still watch its last segments here.
    fn has_rest(&self, stream: &str) -> bool {
        let state = self.registry.stream(stream).map(|it| it.state());
        state.is_some_and(|it| it.status == Status::Ended && !it.tracks.is_empty())
    }

    /// Whether a stream is published here at this time.
    fn has_live(&self, stream: &str) -> bool {
        let stream = self.registry.stream(stream);
        stream.is_some_and(|it| !it.is_mirrored() && it.state().status == Status::Live)
    }

    /// Notes that this node has a stream, by a lease of this epoch, and tells the others.
    ///
    /// A task of an older lease may not yet know the newer lease.
    fn own(&self, stream: &str, epoch: u64, is_live: bool) {
        let (own, mut owned) = ((epoch, is_live), self.owned());
        let known = owned.get(stream);
        if known.is_none_or(|known| known.0 <= epoch && *known != own) {
            owned.insert(stream.to_owned(), own);
            self.owns.notify_one();
        }
    }

    /// Notes that this node does not have a stream any more by a lease of this epoch.
    fn disown(&self, stream: &str, epoch: u64) {
        let mut owned = self.owned();
        if owned.get(stream).is_some_and(|known| known.0 == epoch) {
            owned.remove(stream);
            self.owns.notify_one();
        }
    }

    fn owned(&self) -> MutexGuard<'_, HashMap<String, (u64, bool)>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The copy that this node has of a stream.
    fn copied(&self, stream: &str) -> Option<Arc<copy::Copied>> {
        self.copies().get(stream)?.borrow().copied().cloned()
    }

    /// When the last copy gave way.
    fn gave_way(&self) -> MutexGuard<'_, Option<Instant>> {
        self.gave_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a copy that nobody watches should make room for other streams. Says so to one copy at a time.
    fn gives_way(&self) -> bool {
        if self.registry.has_room() {
            return false;
        }
        let mut last = self.gave_way();
        let is_due = last.is_none_or(|last| last.elapsed() >= GIVES_WAY);
        if is_due {
            *last = Some(Instant::now());
        }
        is_due
    }

    fn wanted(&self) -> MutexGuard<'_, units::Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn standing(&self) -> MutexGuard<'_, HashSet<String>> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn copies(&self) -> MutexGuard<'_, HashMap<String, watch::Receiver<copy::Progress>>> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
