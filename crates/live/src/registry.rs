//! The streams there are, by name.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use tokio::sync::watch;

use crate::memory::Memory;
use crate::publisher::{Publisher, PublisherInfo};
use crate::stream::Stream;
use crate::{Settings, Status, UnixMicros};

/// The most streams at once: bounds what publishers can make the origin hold.
const MOST_STREAMS: usize = 10_000;

/// Why nobody may publish under a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// The name is not one.
    #[error("{0:?} is not a stream name (1 to 128 of A-Z a-z 0-9 . _ - and /)")]
    BadName(String),
    /// Somebody publishes it.
    #[error("already published{}", .0.peer.map(|peer| format!(" by {peer}")).unwrap_or_default())]
    InUse(PublisherInfo),
    /// Too many streams.
    #[error("the limit of {MOST_STREAMS} streams is reached")]
    TooManyStreams,
    /// Those there are hold nearly all the memory there is for them.
    #[error("the memory for live streams, {limit} bytes, is used up")]
    NoMemory {
        /// How much there is.
        limit: u64,
    },
}

/// What live streams hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryUse {
    /// Bytes of windows and what belongs to them.
    pub used: u64,
    /// How many they may be.
    pub limit: u64,
    /// Segments that left their window early so far, because it was nearly as many.
    pub given_up: u64,
}

/// Every live stream. Looking one up takes no lock.
#[derive(Debug)]
pub struct Registry {
    settings: Settings,
    memory: Arc<Memory>,
    streams: ArcSwap<HashMap<Arc<str>, Arc<Stream>>>,
    /// Held while the map is replaced.
    changing: Mutex<()>,
    /// How many streams have begun.
    begun: watch::Sender<u64>,
}

impl Registry {
    /// No streams yet, and no limit to what they may hold.
    pub fn new(settings: Settings) -> Self {
        Self::with_memory(settings, u64::MAX)
    }

    /// No streams yet. Together they may hold `limit` bytes of media and of what is known of it: when
    /// that is nearly used up, none begins, and those that hold more than others have shorter windows.
    pub fn with_memory(settings: Settings, limit: u64) -> Self {
        let (streams, begun) = (ArcSwap::default(), watch::Sender::new(0));
        let memory = Arc::new(Memory::new(limit));
        Self { settings, memory, streams, changing: Mutex::new(()), begun }
    }

    /// What the streams hold.
    pub fn memory(&self) -> MemoryUse {
        let budget = self.memory.budget();
        MemoryUse { used: budget.used(), limit: budget.limit(), given_up: budget.given_up() }
    }

    /// How many streams have begun, with word of every further one.
    pub fn begun(&self) -> watch::Receiver<u64> {
        self.begun.subscribe()
    }

    /// A stream by name, `live/` not included.
    pub fn stream(&self, name: &str) -> Option<Arc<Stream>> {
        self.streams.load().get(name).cloned()
    }

    /// Every stream, by name.
    pub fn streams(&self) -> Vec<Arc<Stream>> {
        let mut streams: Vec<_> = self.streams.load().values().cloned().collect();
        streams.sort_by(|a, b| a.name().cmp(b.name()));
        streams
    }

    /// Begins publishing `name`, or returns to it.
    ///
    /// # Errors
    /// The name is bad or taken, there are too many streams, or there is no memory for a further one.
    pub fn publish(
        &self,
        name: &str,
        info: PublisherInfo,
        now: UnixMicros,
    ) -> Result<Publisher, PublishError> {
        if !is_name(name) {
            return Err(PublishError::BadName(name.chars().take(160).collect()));
        }
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.stream(name);
        if let Some(stream) = &before
            && stream.state().status != Status::Ended
        {
            return stream.admit(info, now).map_err(PublishError::InUse);
        }
        // Viewers and caches may still hold segments of the stream that ended.
        let after = before.map_or(0, |stream| stream.next_msn());
        let mut streams = HashMap::clone(&self.streams.load());
        if streams.len() >= MOST_STREAMS {
            return Err(PublishError::TooManyStreams);
        }
        if !self.memory.budget().has_room() {
            return Err(PublishError::NoMemory { limit: self.memory.budget().limit() });
        }
        let name: Arc<str> = name.into();
        let stream = Arc::new(Stream::new(
            Arc::clone(&name),
            self.settings.clone(),
            &self.memory,
            now,
            after,
        ));
        let publisher = stream.admit(info, now).map_err(PublishError::InUse)?;
        streams.insert(name, stream);
        self.streams.store(Arc::new(streams));
        self.begun.send_modify(|count| *count += 1);
        Ok(publisher)
    }

    /// Does what time demands: ends streams whose publisher did not return, forgets ended ones.
    /// To be called about once a second.
    pub fn sweep(&self, now: UnixMicros) {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let streams = self.streams.load_full();
        let over: Vec<_> = streams
            .iter()
            .filter(|(_, stream)| stream.sweep(now))
            .map(|(name, _)| Arc::clone(name))
            .collect();
        if !over.is_empty() {
            let mut streams = HashMap::clone(&streams);
            for name in over {
                streams.remove(&name);
            }
            self.streams.store(Arc::new(streams));
        }
    }
}

/// Whether `name` may name a stream: path segments of `A-Z a-z 0-9 . _ -` that do not start with
/// a dot, 1 to 128 bytes in all.
pub(crate) fn is_name(name: &str) -> bool {
    let good = |segment: &str| {
        !segment.is_empty()
            && !segment.starts_with('.')
            && segment.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    };
    name.len() <= 128 && name.split('/').all(good)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for good in ["a", "demo", "a/b", "A-1_2.x", &"n".repeat(128)] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "/", "a/", "/a", ".a", "a/.b", "a b", "ü", "a//b", &"n".repeat(129)] {
            assert!(!is_name(bad), "{bad}");
        }
    }
}
