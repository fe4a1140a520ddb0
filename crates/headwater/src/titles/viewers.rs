//! Counts the viewers of titles.
//!
//! A player of a title requests its playlists once and then segments, and segments are the same for
//! HLS and DASH. So the first request shows the delivery, and requests for segments show that the
//! player still watches. A push viewer counts for as long as its connection lasts.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use live::sessions::{Permit, Quality, Report, Reporter, Sessions};
use live::{Delivery, UnixMicros};

use crate::path::StreamPath;

/// How long a viewer counts after its last request. Players with much in their buffer seldom send
/// requests.
pub const COUNTED: Duration = Duration::from_secs(30);
/// How long a viewer's delivery is remembered, so that it is known after a pause.
const KNOWN: Duration = Duration::from_secs(600);
/// Most viewers that are told apart.
const MOST: usize = 100_000;
/// Number of maps with a lock each, so that event loops seldom wait for each other.
const SHARDS: usize = 64;

/// The viewers of all titles.
#[derive(Debug)]
pub struct Viewers {
    /// Viewers by a hash of title and viewer.
    shards: [Mutex<HashMap<u64, Viewer>>; SHARDS],
    /// Viewers with a connection of their own.
    connected: Arc<Mutex<Connected>>,
    /// Viewers that tell of themselves, by title.
    told: Mutex<HashMap<Arc<str>, Arc<Sessions>>>,
}

type Connected = BTreeMap<(Arc<str>, &'static str), usize>;

/// Counts a viewer. Dropping it ends that.
#[derive(Debug)]
pub struct Viewing {
    connected: Arc<Mutex<Connected>>,
    by: (Arc<str>, &'static str),
}

impl Drop for Viewing {
    fn drop(&mut self) {
        let mut connected = self.connected.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = connected.get_mut(&self.by) {
            *count -= 1;
            if *count == 0 {
                connected.remove(&self.by);
            }
        }
    }
}

#[derive(Debug)]
struct Viewer {
    title: Arc<str>,
    delivery: Delivery,
    last: UnixMicros,
}

impl Default for Viewers {
    fn default() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            connected: Arc::default(),
            told: Mutex::default(),
        }
    }
}

impl Viewers {
    /// Notes that a viewer asked for a playlist or manifest of `title`. `key` identifies viewer and
    /// title.
    pub(crate) fn opened(&self, key: u64, title: &str, delivery: Delivery, now: UnixMicros) {
        let mut shard = self.shard(key);
        if let Some(viewer) = shard.get_mut(&key) {
            (viewer.delivery, viewer.last) = (delivery, now);
            return;
        }
        if shard.len() >= MOST / SHARDS {
            shard.retain(|_, viewer| now.since(viewer.last) < COUNTED);
        }
        if shard.len() < MOST / SHARDS {
            shard.insert(key, Viewer { title: title.into(), delivery, last: now });
        }
    }

    /// Notes that a viewer asked for media of a title. Returns its delivery, if that is known.
    pub(crate) fn watches(&self, key: u64, now: UnixMicros) -> Option<Delivery> {
        let mut shard = self.shard(key);
        let viewer = shard.get_mut(&key)?;
        viewer.last = now;
        Some(viewer.delivery)
    }

    /// Takes what a viewer of `title`, a path below the root, tells of itself. `permit` is called if the viewer is a new
    /// one. Returns whether it is counted by that; if not, the other methods count it.
    pub(crate) fn told(
        &self,
        title: &str,
        by: Reporter,
        report: &Report,
        now: UnixMicros,
        permit: impl FnOnce() -> Option<Permit>,
    ) -> bool {
        let sessions = {
            let mut told = self.lock_told();
            match told.get(title) {
                Some(sessions) => Arc::clone(sessions),
                None if report.is_over => return false,
                None => Arc::clone(told.entry(title.into()).or_default()),
            }
        };
        let is_kept = sessions.told(by, report, COUNTED, now, permit);
        if is_kept && report.is_over {
            self.shard(by.player).remove(&by.player);
        }
        is_kept
    }

    /// How the viewers of each title are that told of themselves.
    pub fn quality(&self, now: UnixMicros) -> Vec<(Arc<str>, Quality)> {
        let told = self.lock_told().clone();
        told.into_iter()
            .filter_map(|(title, sessions)| Some((path_of(&title), sessions.quality(now)?)))
            .collect()
    }

    /// Counts a viewer of `title` with its own connection, until the returned value is dropped.
    pub fn connected(&self, title: &str, delivery: Delivery) -> Viewing {
        let by = (Arc::from(title), delivery.name());
        let mut connected = self.connected.lock().unwrap_or_else(PoisonError::into_inner);
        *connected.entry(by.clone()).or_default() += 1;
        Viewing { connected: Arc::clone(&self.connected), by }
    }

    /// Number of viewers of each title, by delivery.
    pub fn count(&self, now: UnixMicros) -> BTreeMap<(Arc<str>, &'static str), usize> {
        let mut counts = self.connected.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut players = HashSet::new();
        for (title, sessions) in self.lock_told().clone() {
            let mut told = Delivery::ALL.map(|delivery| (delivery, 0));
            players.extend(sessions.count(now, &mut told));
            let title = path_of(&title);
            for (delivery, count) in told.into_iter().filter(|(_, count)| *count > 0) {
                *counts.entry((Arc::clone(&title), delivery.name())).or_default() += count;
            }
        }
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let here = shard
                .iter()
                .filter(|(key, viewer)| now.since(viewer.last) < COUNTED && !players.contains(key));
            for (_, viewer) in here {
                let by = (Arc::clone(&viewer.title), viewer.delivery.name());
                *counts.entry(by).or_default() += 1;
            }
        }
        counts
    }

    /// Forgets viewers that do not come back.
    pub fn sweep(&self, now: UnixMicros) {
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.retain(|_, viewer| now.since(viewer.last) < KNOWN);
        }
        self.lock_told().retain(|_, sessions| !sessions.sweep(now));
    }

    fn lock_told(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<Sessions>>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shard(&self, key: u64) -> MutexGuard<'_, HashMap<u64, Viewer>> {
        // The key is a hash, so the shards fill evenly.
        self.shards[(key % SHARDS as u64) as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn path_of(title: &str) -> Arc<str> {
    StreamPath::Vod(title).to_string().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> UnixMicros {
        UnixMicros(seconds * 1_000_000)
    }

    #[test]
    fn viewers_are_counted_by_what_they_asked_for_first() {
        let viewers = Viewers::default();
        let count = |now| {
            let counts = viewers.count(at(now)).into_iter();
            counts.map(|((title, by), n)| format!("{title} {by} {n}")).collect::<Vec<_>>()
        };
        viewers.opened(1, "vod/a.mp4", Delivery::Hls, at(0));
        viewers.opened(2, "vod/a.mp4", Delivery::Hls, at(0));
        viewers.opened(3, "vod/a.mp4", Delivery::Dash, at(0));
        viewers.opened(4, "vod/b.mp4", Delivery::Dash, at(0));
        // A request for media does not tell the delivery.
        viewers.watches(5, at(0));
        assert_eq!(count(1), ["vod/a.mp4 dash 1", "vod/a.mp4 hls 2", "vod/b.mp4 dash 1"]);
        viewers.watches(1, at(20));
        viewers.opened(3, "vod/a.mp4", Delivery::Hls, at(20));
        assert_eq!(count(40), ["vod/a.mp4 hls 2"]);
        // The viewer is back from a pause.
        viewers.sweep(at(599));
        viewers.watches(4, at(599));
        assert_eq!(count(600), ["vod/b.mp4 dash 1"]);
        viewers.sweep(at(2000));
        viewers.watches(4, at(2000));
        assert_eq!(count(2000), [""; 0]);
    }

    #[test]
    fn viewers_are_bounded() {
        let viewers = Viewers::default();
        let total = |now| viewers.count(at(now)).into_values().sum::<usize>();
        for key in 0..2 * MOST as u64 {
            viewers.opened(key, "vod/a.mp4", Delivery::Hls, at(0));
        }
        assert_eq!(total(0), MOST / SHARDS * SHARDS);
        // Viewers that have left make room.
        viewers.opened(2 * MOST as u64, "vod/a.mp4", Delivery::Hls, at(60));
        assert_eq!(total(60), 1);
    }

    #[test]
    fn connected_viewers_count_until_they_leave() {
        let viewers = Viewers::default();
        let count = || viewers.count(at(0)).into_values().sum::<usize>();
        let one = viewers.connected("vod/a.mp4", Delivery::Push);
        let other = viewers.connected("vod/a.mp4", Delivery::Push);
        viewers.opened(1, "vod/a.mp4", Delivery::Hls, at(0));
        let by = (Arc::from("vod/a.mp4"), "push");
        assert_eq!((viewers.count(at(0)).get(&by), count()), (Some(&2), 3));
        drop(one);
        assert_eq!(count(), 2);
        drop(other);
        assert_eq!(viewers.count(at(0)).get(&by), None);
    }
}
