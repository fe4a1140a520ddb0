//! How long answers take, and how much is sent. Each event loop counts for itself, so that loops never wait for each other.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Upper bounds of the buckets, in microseconds. Longer times have a bucket more. An answer that needed no wait takes
/// less than the first, and no clock is read for it.
pub const BOUNDS: [u64; 12] = [
    1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    10_000_000,
];

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// A playlist or manifest, as it is now.
    Playlist,
    /// A playlist as it will be: a blocking reload.
    Reload,
    /// A segment, a header, subtitles or a file.
    Media,
    /// A part, which players ask for before it exists.
    Part,
}

impl Wanted {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Playlist, Self::Reload, Self::Media, Self::Part];

    /// Name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Playlist => "playlist",
            Self::Reload => "reload",
            Self::Media => "media",
            Self::Part => "part",
        }
    }
}

/// What carries an answer of bytes. Deliveries with connections of their own count by these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// HLS, by whole segments.
    Hls,
    /// Low-latency HLS: blocking reloads and parts.
    LlHls,
    /// DASH.
    Dash,
    /// Titles, by HLS or DASH: their segments are the same.
    Title,
    /// Files as they are.
    File,
}

impl Carrier {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Hls, Self::LlHls, Self::Dash, Self::Title, Self::File];

    /// Name in metrics: that of the delivery if it is one.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hls => "hls",
            Self::LlHls => "llhls",
            Self::Dash => "dash",
            Self::Title => "title",
            Self::File => "file",
        }
    }
}

/// The times of all event loops.
#[derive(Debug, Default)]
pub struct Timings(Mutex<Vec<Arc<Loop>>>);

/// The times of one event loop, on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Loop {
    answers: [Times; Wanted::ALL.len()],
    delays: Times,
    sent: [AtomicU64; Carrier::ALL.len()],
}

#[derive(Debug, Default)]
struct Times {
    buckets: [AtomicU64; BOUNDS.len() + 1],
    micros: AtomicU64,
}

/// How many times were how long.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Distribution {
    /// The number in each bucket, of [`BOUNDS`] and above.
    pub buckets: [u64; BOUNDS.len() + 1],
    /// Sum of all times in microseconds.
    pub micros: u64,
}

impl Timings {
    /// The times of one more event loop.
    pub fn join(&self) -> Arc<Loop> {
        let own = Arc::<Loop>::default();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&own));
        own
    }

    /// How long it took until an answer began.
    pub fn answers(&self, wanted: Wanted) -> Distribution {
        self.sum(|own| &own.answers[wanted as usize])
    }

    /// How long after its publication a part came out that somebody waited for.
    pub fn delays(&self) -> Distribution {
        self.sum(|own| &own.delays)
    }

    /// Bytes of payloads that were sent, or begun to be sent.
    pub fn sent(&self, by: Carrier) -> u64 {
        let loops = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        loops.iter().map(|own| own.sent[by as usize].load(Ordering::Relaxed)).sum()
    }

    fn sum(&self, of: impl Fn(&Loop) -> &Times) -> Distribution {
        let mut sum = Distribution::default();
        for own in &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            let times = of(own);
            for (sum, count) in sum.buckets.iter_mut().zip(&times.buckets) {
                *sum += count.load(Ordering::Relaxed);
            }
            sum.micros += times.micros.load(Ordering::Relaxed);
        }
        sum
    }
}

impl Loop {
    /// Counts an answer, which took this long, or needed no wait.
    pub fn answered(&self, wanted: Wanted, waited: Option<Duration>) {
        let times = &self.answers[wanted as usize];
        match waited {
            Some(time) => times.add(time),
            None => drop(times.buckets[0].fetch_add(1, Ordering::Relaxed)),
        }
    }

    /// Counts bytes of a payload.
    pub fn sends(&self, by: Carrier, bytes: u64) {
        self.sent[by as usize].fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts what somebody waited for that came out so long after its publication.
    pub fn delayed(&self, by: Duration) {
        self.delays.add(by);
    }
}

impl Times {
    fn add(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.partition_point(|&bound| bound < micros);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_in_the_bucket_of_its_bound() {
        let timings = Timings::default();
        let (a, b) = (timings.join(), timings.join());
        a.answered(Wanted::Part, None);
        b.answered(Wanted::Part, Some(Duration::from_millis(1)));
        b.answered(Wanted::Part, Some(Duration::from_micros(1001)));
        b.answered(Wanted::Reload, Some(Duration::from_secs(60)));
        a.delayed(Duration::from_secs(10));
        a.sends(Carrier::Dash, 5);
        b.sends(Carrier::Dash, 6);
        let part = timings.answers(Wanted::Part);
        assert_eq!((part.buckets[..3].to_vec(), part.micros), (vec![2, 1, 0], 2001));
        assert_eq!(timings.answers(Wanted::Reload).buckets.last(), Some(&1));
        assert_eq!(timings.delays().buckets[BOUNDS.len() - 1], 1);
        assert_eq!(timings.answers(Wanted::Media), Distribution::default());
        assert_eq!((timings.sent(Carrier::Dash), timings.sent(Carrier::Hls)), (11, 0));
    }
}
