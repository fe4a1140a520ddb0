//! The publishers of all streams, by name.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::rules::Rules;
use super::{Claim, Role, Times};
use crate::{PublisherInfo, Registry, Status, UnixMicros};

/// The publishers of one name.
#[derive(Debug)]
pub(super) struct Pair(Mutex<Rules>);

impl Pair {
    pub(super) fn lock(&self) -> MutexGuard<'_, Rules> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The publishers of a name that are here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Presence {
    /// The role of the publisher that is live.
    pub live: Option<Role>,
    /// The publishers that wait and send.
    pub waiting: Vec<(Role, PublisherInfo)>,
}

/// How often publishers took over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Switches {
    /// How often a backup went on in place of the primary.
    pub to_backup: u64,
    /// How often a primary went on again in place of its backup.
    pub to_primary: u64,
}

/// The publishers of all live streams.
///
/// There is a pair for each name with a taken seat, and for each name that was given to another machine in
/// the last seconds. So the number of publishers bounds the number of pairs.
#[derive(Debug)]
pub struct Seats {
    registry: Arc<Registry>,
    times: Times,
    pairs: Mutex<HashMap<Arc<str>, Arc<Pair>>>,
    /// How often a publisher of each role took over.
    switches: [AtomicU64; 2],
}

impl Seats {
    /// Begins without publishers. Their media will go into the streams of `registry`.
    pub fn new(registry: Arc<Registry>, times: Times) -> Self {
        Self { registry, times, pairs: Mutex::default(), switches: Default::default() }
    }

    /// The streams.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// The publishers of a name that are here.
    pub fn presence(&self, name: &str, now: UnixMicros) -> Presence {
        let Some(pair) = self.get(name) else { return Presence::default() };
        let rules = pair.lock();
        let waiting = rules.waiting(now).map(|(role, info)| (role, info.clone()));
        Presence { live: rules.live(), waiting: waiting.collect() }
    }

    /// The publishers that wait here and send: the name of the stream, and the role.
    ///
    /// Also forgets the streams that were given away and have no publisher here.
    pub fn waiting(&self, now: UnixMicros) -> Vec<(Arc<str>, Role)> {
        let mut pairs = self.pairs();
        pairs.retain(|_, pair| {
            let mut rules = pair.lock();
            rules.expire(now);
            !rules.is_empty()
        });
        let roles = pairs.iter().flat_map(|(name, pair)| {
            let rules = pair.lock();
            rules.waiting(now).map(|(role, _)| (Arc::clone(name), role)).collect::<Vec<_>>()
        });
        roles.collect()
    }

    /// The publishers that are live here: the name of the stream, and the role.
    pub fn live(&self) -> HashMap<Arc<str>, Role> {
        let pairs = self.pairs();
        let live = |(name, pair): (&Arc<str>, &Arc<Pair>)| {
            let live = pair.lock().live()?;
            Some((Arc::clone(name), live))
        };
        pairs.iter().filter_map(live).collect()
    }

    /// Whether a publisher here sends, and goes on with its next keyframe.
    pub fn has_next(&self, name: &str, now: UnixMicros) -> bool {
        self.get(name).is_some_and(|pair| pair.lock().has_next(now))
    }

    /// Notes which role is live at another machine, and the epoch of that machine's lease.
    ///
    /// Returns whether publishers here wait for that.
    pub fn place(&self, name: &str, found: Option<(Role, u64)>, now: UnixMicros) -> bool {
        self.with(name, |_, rules| rules.place(found, now))
    }

    /// The publisher here that should go on with a stream that another machine has.
    ///
    /// If there is no copy of the stream here, only that machine knows whether its publisher is silent.
    pub fn claims(&self, name: &str, now: UnixMicros) -> Option<Claim> {
        let pair = self.get(name)?;
        let stream = self.registry.stream(name).map(|it| (it.state().status, it.newest_arrival()));
        let silent = match stream {
            Some((Status::Live, newest)) => now.since(newest) >= self.times.after,
            Some((Status::Offline | Status::Ended, _)) | None => true,
        };
        pair.lock().claims(silent, now)
    }

    /// When the publisher at another machine counts as silent, if a publisher here would then go on with the copy.
    pub fn silent_from(&self, name: &str, now: UnixMicros) -> Option<UnixMicros> {
        self.get(name)?.lock().claims(true, now)?;
        let newest = self.registry.stream(name)?.newest_arrival();
        Some(newest.after(self.times.after))
    }

    /// Lets a publisher that waits here go on with a stream, from the copy if there is one.
    ///
    /// The other machine gave the stream away. That machine had the stream by a lease of this epoch.
    pub fn take(&self, name: &str, epoch: u64, now: UnixMicros) {
        self.registry.adopt(name, now);
        self.with(name, |_, rules| rules.granted(epoch));
    }

    /// Gives a stream to a publisher at another machine. Returns whether it does.
    ///
    /// The publisher here must be silent, or the backup of the other one. From then on, publishers here wait.
    pub fn cede(&self, name: &str, to: Claim, now: UnixMicros) -> bool {
        let stream = self.registry.stream(name).filter(|stream| !stream.is_mirrored());
        let Some(stream) = stream else { return false };
        let cedes = self.with(name, |_, rules| rules.cede(to, now));
        if cedes {
            tracing::info!(stream = name, to = ?to.role, "given to a publisher at another machine");
            stream.cede(now);
        }
        cedes
    }

    /// How often publishers took over.
    pub fn switches(&self) -> Switches {
        let [to_primary, to_backup] = &self.switches;
        Switches {
            to_backup: to_backup.load(Ordering::Relaxed),
            to_primary: to_primary.load(Ordering::Relaxed),
        }
    }

    /// Counts and logs that a publisher takes over.
    ///
    /// A stream begins no more than a few periods in a minute, so there are no more lines than that.
    pub(super) fn switched(&self, stream: &str, info: &PublisherInfo, to: Role) {
        self.switches[to as usize].fetch_add(1, Ordering::Relaxed);
        let peer = info.peer.map(tracing::field::display);
        match to {
            Role::Backup => tracing::warn!(stream, peer, "backup goes on in place of the primary"),
            Role::Primary => tracing::info!(stream, peer, "primary goes on in place of its backup"),
        }
    }

    /// Changes the rules of a name, whether or not a seat is taken.
    pub(super) fn with<T>(
        &self,
        name: &str,
        change: impl FnOnce(&Arc<Pair>, &mut Rules) -> T,
    ) -> T {
        let mut pairs = self.pairs();
        let pair = pairs.get(name).cloned();
        let pair = pair.unwrap_or_else(|| Arc::new(Pair(Mutex::new(Rules::new(self.times)))));
        let mut rules = pair.lock();
        let changed = change(&pair, &mut rules);
        if rules.is_empty() {
            pairs.remove(name);
        } else if !pairs.contains_key(name) {
            pairs.insert(name.into(), Arc::clone(&pair));
        }
        changed
    }

    fn get(&self, name: &str) -> Option<Arc<Pair>> {
        self.pairs().get(name).cloned()
    }

    fn pairs(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<Pair>>> {
        self.pairs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
