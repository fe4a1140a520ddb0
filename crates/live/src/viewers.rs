//! Counts a stream's viewers by protocol.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::UnixMicros;

/// How long after its last request a viewer that makes requests still counts.
const MEMORY: Duration = Duration::from_secs(10);
/// The most viewers that make requests which are counted separately.
const MOST: usize = 100_000;

/// The protocol by which a viewer watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Delivery {
    /// Low-latency HLS, known by its blocking reloads.
    LlHls,
    /// HLS.
    Hls,
    /// DASH.
    Dash,
    /// Progressive MP4.
    Mp4,
    /// HTTP-FLV.
    Flv,
    /// RTMP.
    Rtmp,
    /// Push over WebSocket.
    Push,
    /// WebRTC.
    WebRtc,
}

impl Delivery {
    /// Every delivery.
    pub const ALL: [Self; 8] = [
        Self::LlHls,
        Self::Hls,
        Self::Dash,
        Self::Mp4,
        Self::Flv,
        Self::Rtmp,
        Self::Push,
        Self::WebRtc,
    ];

    /// Name in the API and in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::LlHls => "llhls",
            Self::Hls => "hls",
            Self::Dash => "dash",
            Self::Mp4 => "mp4",
            Self::Flv => "flv",
            Self::Rtmp => "rtmp",
            Self::Push => "push",
            Self::WebRtc => "webrtc",
        }
    }
}

/// The viewers of one stream.
#[derive(Debug, Default)]
pub(crate) struct Viewers {
    connected: [AtomicUsize; Delivery::ALL.len()],
    /// When each viewer that makes requests was last seen.
    requesting: Mutex<HashMap<(Delivery, u64), UnixMicros>>,
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

    pub(crate) fn count(&self, now: UnixMicros) -> [(Delivery, usize); Delivery::ALL.len()] {
        let mut counts = Delivery::ALL
            .map(|delivery| (delivery, self.connected[delivery as usize].load(Ordering::Relaxed)));
        for (&(delivery, _), &at) in &*self.requesting() {
            if now.since(at) < MEMORY {
                counts[delivery as usize].1 += 1;
            }
        }
        counts
    }

    /// Forgets viewers whose requests have stopped.
    pub(crate) fn sweep(&self, now: UnixMicros) {
        self.requesting().retain(|_, &mut at| now.since(at) < MEMORY);
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
}
