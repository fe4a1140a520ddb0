//! Counts, for the metrics, which renditions push viewers have and how often they switch.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use live::{Stream, Track};

/// Push viewers of live streams, by the rendition they get. The lock is taken when a viewer comes,
/// goes or switches.
#[derive(Debug, Default)]
pub struct Chosen {
    viewers: Mutex<HashMap<(String, String), usize>>,
    up: AtomicU64,
    down: AtomicU64,
}

impl Chosen {
    /// Numbers of viewers by stream and rendition.
    pub fn viewers(&self) -> Vec<((String, String), usize)> {
        self.lock().iter().map(|(key, &count)| (key.clone(), count)).collect()
    }

    /// How often viewers switched to a rendition with a higher bit rate, and to one with a lower.
    pub fn switches(&self) -> [(&'static str, u64); 2] {
        [("up", self.up.load(Ordering::Relaxed)), ("down", self.down.load(Ordering::Relaxed))]
    }

    /// Notes that a viewer switches from rendition `before` to `now`.
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
