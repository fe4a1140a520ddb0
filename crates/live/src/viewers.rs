//! Counts a stream's viewers by protocol.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::UnixMicros;
use crate::delivery::Delivery;
use crate::sessions::{Permit, Report, Reporter, Sessions};

/// How long after its last request a viewer that makes requests still counts.
pub const COUNTED: Duration = Duration::from_secs(10);
/// The most viewers that make requests which are counted separately.
const MOST: usize = 100_000;

/// The viewers of one stream.
#[derive(Debug, Default)]
pub(crate) struct Viewers {
    connected: [AtomicUsize; Delivery::ALL.len()],
    /// When each viewer that makes requests was last seen.
    requesting: Mutex<HashMap<(Delivery, u64), UnixMicros>>,
    /// The viewers that tell of themselves.
    pub(crate) sessions: Sessions,
}

impl Viewers {
    pub(crate) fn watch(self: &Arc<Self>, delivery: Delivery) -> Viewing {
        self.connected[delivery as usize].fetch_add(1, Ordering::Relaxed);
        Viewing { viewers: Arc::clone(self), delivery }
    }

    pub(crate) fn seen(&self, delivery: Delivery, who: u64, now: UnixMicros) {
        let mut requesting = self.requesting();
        if delivery == Delivery::LlHls {
            // Its first requests looked like plain HLS.
            requesting.remove(&(Delivery::Hls, who));
        }
        if requesting.len() < MOST || requesting.contains_key(&(delivery, who)) {
            requesting.insert((delivery, who), now);
        }
    }

    /// Takes what a viewer tells of itself. Returns whether it is counted by that.
    pub(crate) fn told(
        &self,
        by: Reporter,
        report: &Report,
        now: UnixMicros,
        permit: impl FnOnce() -> Option<Permit>,
    ) -> bool {
        let is_kept = self.sessions.told(by, report, COUNTED, now, permit);
        if is_kept && report.is_over {
            let mut requesting = self.requesting();
            for delivery in Delivery::ALL {
                requesting.remove(&(delivery, by.player));
            }
        }
        is_kept
    }

    pub(crate) fn count(&self, now: UnixMicros) -> [(Delivery, usize); Delivery::ALL.len()] {
        let mut counts = Delivery::ALL
            .map(|delivery| (delivery, self.connected[delivery as usize].load(Ordering::Relaxed)));
        let players = self.sessions.count(now, &mut counts);
        for (&(delivery, who), &at) in &*self.requesting() {
            if now.since(at) < COUNTED && !players.contains(&who) {
                counts[delivery as usize].1 += 1;
            }
        }
        counts
    }

    /// Forgets viewers whose requests have stopped.
    pub(crate) fn sweep(&self, now: UnixMicros) {
        self.requesting().retain(|_, &mut at| now.since(at) < COUNTED);
        self.sessions.sweep(now);
    }

    fn requesting(&self) -> MutexGuard<'_, HashMap<(Delivery, u64), UnixMicros>> {
        self.requesting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts one viewer for as long as this guard lives.
#[derive(Debug)]
pub struct Viewing {
    viewers: Arc<Viewers>,
    delivery: Delivery,
}

impl Drop for Viewing {
    fn drop(&mut self) {
        self.viewers.connected[self.delivery as usize].fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(viewers: &Viewers, delivery: Delivery, now: u64) -> usize {
        viewers.count(UnixMicros(now)).into_iter().find(|(by, _)| *by == delivery).unwrap().1
    }

    #[test]
    fn every_delivery_is_counted_in_its_place() {
        let viewers = Arc::new(Viewers::default());
        for (at, delivery) in Delivery::ALL.into_iter().enumerate() {
            assert_eq!(delivery as usize, at);
            assert_eq!(viewers.count(UnixMicros(0))[at], (delivery, 0));
        }
        let watching = viewers.watch(Delivery::Rtmp);
        viewers.seen(Delivery::Dash, 1, UnixMicros(0));
        viewers.seen(Delivery::Dash, 2, UnixMicros(0));
        assert_eq!(count(&viewers, Delivery::Rtmp, 1), 1);
        assert_eq!(count(&viewers, Delivery::Dash, 1), 2);
        drop(watching);
        assert_eq!(count(&viewers, Delivery::Rtmp, 1), 0);
    }

    #[test]
    fn a_viewer_by_request_is_forgotten_and_is_not_both_hls_and_low_latency() {
        let viewers = Viewers::default();
        viewers.seen(Delivery::Hls, 7, UnixMicros(0));
        viewers.seen(Delivery::LlHls, 7, UnixMicros(1));
        assert_eq!(count(&viewers, Delivery::Hls, 2), 0);
        assert_eq!(count(&viewers, Delivery::LlHls, 2), 1);
        assert_eq!(count(&viewers, Delivery::LlHls, 10_000_001), 0);
        viewers.sweep(UnixMicros(10_000_001));
        assert!(viewers.requesting().is_empty());
    }

    #[test]
    fn a_viewer_that_tells_of_itself_is_not_counted_again_by_its_requests() {
        let viewers = Viewers::default();
        let told = |session, player, is_over| {
            let delivery = Some(Delivery::Hls);
            let report = Report { delivery, is_over, ..Report::default() };
            let by = Reporter { session, player };
            viewers.told(by, &report, UnixMicros(0), || Some(Box::new(())))
        };
        viewers.seen(Delivery::Hls, 7, UnixMicros(0));
        viewers.seen(Delivery::Hls, 8, UnixMicros(0));
        assert_eq!(count(&viewers, Delivery::Hls, 1), 2);
        // Two pages behind one address, with the same browser.
        assert!(told(1, 7, false) && told(2, 7, false));
        assert_eq!(count(&viewers, Delivery::Hls, 1), 3);
        assert!(told(1, 7, true) && told(2, 7, true));
        assert_eq!(count(&viewers, Delivery::Hls, 1), 1);
    }
}
