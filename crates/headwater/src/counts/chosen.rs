//! Which renditions push viewers have, and how often they changed: for the metrics.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use live::{Stream, Track};

/// Push viewers of live streams by the rendition they are sent. It is locked when a viewer comes,
/// goes or is sent another.
#[derive(Debug, Default)]
pub struct Chosen {
    viewers: Mutex<HashMap<(String, String), usize>>,
    up: AtomicU64,
    down: AtomicU64,
}

impl Chosen {
    /// Viewers by stream and rendition.
    pub fn viewers(&self) -> Vec<((String, String), usize)> {
        self.lock().iter().map(|(key, &count)| (key.clone(), count)).collect()
    }

    /// How often viewers were sent a rendition of more bits per second than before, and of fewer.
    pub fn switches(&self) -> [(&'static str, u64); 2] {
        [("up", self.up.load(Ordering::Relaxed)), ("down", self.down.load(Ordering::Relaxed))]
    }

    /// A viewer that had `before` has `now`.
    pub(crate) fn change(
        &self,
        stream: &Stream,
        before: Option<&Arc<Track>>,
        now: Option<&Arc<Track>>,
    ) {
        if let (Some(before), Some(now)) = (before, now) {
            if Arc::ptr_eq(before, now) {
                return;
            }
            let rate = |track: &Track| track.bitrate().map_or(0, |(mean, _)| mean);
            let count = if rate(now) > rate(before) { &self.up } else { &self.down };
            count.fetch_add(1, Ordering::Relaxed);
        }
        let key = |track: &Arc<Track>| (stream.name().to_owned(), track.name.clone());
        let mut viewers = self.lock();
        if let Some(key) = before.map(key)
            && let Some(count) = viewers.get_mut(&key)
        {
            *count -= 1;
            if *count == 0 {
                viewers.remove(&key);
            }
        }
        if let Some(key) = now.map(key) {
            *viewers.entry(key).or_default() += 1;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(String, String), usize>> {
        self.viewers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
