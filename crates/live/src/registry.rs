//! The streams there are, by name.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use payload::memory::Memory;
use tokio::sync::watch;

use crate::error::{MOST_STREAMS, PublishError};
use crate::publisher::Publisher;
use crate::stream::Stream;
use crate::{PublisherInfo, Settings, UnixMicros};

/// A shard is copied for each stream that begins in it: of 10,000 streams, this is 4 us instead of 230.
const SHARDS: usize = 64;

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
    shards: [ArcSwap<HashMap<Arc<str>, Arc<Stream>>>; SHARDS],
    /// Which shard a name belongs to; nobody can choose names that all belong to one.
    hasher: RandomState,
    /// Held while a shard is replaced: how many streams there are.
    count: Mutex<usize>,
    /// How many streams have begun.
    begun: watch::Sender<u64>,
    /// What the wall clock is ahead of the clock that the origin goes by, in microseconds.
    ahead: Arc<AtomicI64>,
}

impl Registry {
    /// No streams yet, and no limit to what they may hold.
    pub fn new(settings: Settings) -> Self {
        Self::with_memory(settings, u64::MAX)
    }

    /// No streams yet. Together they may hold `limit` bytes of media and of what is known of it: when
    /// that is nearly used up, none begins, and those that hold more than others have shorter windows.
    pub fn with_memory(settings: Settings, limit: u64) -> Self {
        Self {
            settings,
            memory: Arc::new(Memory::new(limit)),
            shards: std::array::from_fn(|_| ArcSwap::default()),
            hasher: RandomState::new(),
            count: Mutex::new(0),
            begun: watch::Sender::new(0),
            ahead: Arc::default(),
        }
    }

    /// What the streams hold.
    pub fn memory(&self) -> MemoryUse {
        let budget = self.memory.budget();
        MemoryUse { used: budget.used(), limit: budget.limit(), given_up: budget.given_up() }
    }

    /// The wall clock is so many microseconds ahead of the clock that never steps, which everything
    /// here goes by: it was set, or the machine slept. What is told of times of day follows.
    pub fn follow_wall_clock(&self, ahead: i64) {
        self.ahead.store(ahead, Ordering::Relaxed);
    }

    /// How many streams have begun, with word of every further one.
    pub fn begun(&self) -> watch::Receiver<u64> {
        self.begun.subscribe()
    }

    /// A stream by name, `live/` not included.
    pub fn stream(&self, name: &str) -> Option<Arc<Stream>> {
        self.shard(name).load().get(name).cloned()
    }

    /// Every stream, by name.
    pub fn streams(&self) -> Vec<Arc<Stream>> {
        let shards = self.shards.iter().map(ArcSwap::load);
        let mut streams: Vec<_> =
            shards.flat_map(|shard| shard.values().cloned().collect::<Vec<_>>()).collect();
        streams.sort_by(|a, b| a.name().cmp(b.name()));
        streams
    }

    /// Begins publishing `name`, or returns to it.
    ///
    /// # Errors
    /// A name is bad or taken, there are too many streams, or there is no memory for a further one.
    pub fn publish(
        &self,
        name: &str,
        info: PublisherInfo,
        now: UnixMicros,
    ) -> Result<Publisher, PublishError> {
        if !is_name(name) {
            return Err(PublishError::BadName(shown(name)));
        }
        if let Some(rendition) = info.rendition.as_deref().filter(|name| !is_rendition(name)) {
            return Err(PublishError::BadRendition(shown(rendition)));
        }
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.stream(name);
        if let Some(stream) = &before {
            match Publisher::admit(stream, info.clone(), now) {
                Err(PublishError::Over) => {}
                admitted => return admitted,
            }
        }
        // Viewers and caches may still hold segments of the stream that ended.
        let after = before.as_ref().map_or(0, |stream| stream.next_msn());
        if before.is_none() && *count >= MOST_STREAMS {
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
            Arc::clone(&self.ahead),
        ));
        let publisher = Publisher::admit(&stream, info, now)?;
        let shard = self.shard(&name);
        let mut streams = HashMap::clone(&shard.load());
        *count += usize::from(streams.insert(name, stream).is_none());
        shard.store(Arc::new(streams));
        self.begun.send_modify(|count| *count += 1);
        Ok(publisher)
    }

    /// Does what time demands: ends streams whose publisher did not return, forgets ended ones.
    /// To be called about once a second.
    pub fn sweep(&self, now: UnixMicros) {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        for shard in &self.shards {
            let streams = shard.load_full();
            let over: Vec<_> = streams.iter().filter(|(_, stream)| stream.sweep(now)).collect();
            if !over.is_empty() {
                *count -= over.len();
                let mut left = HashMap::clone(&streams);
                for (name, _) in over {
                    left.remove(name);
                }
                shard.store(Arc::new(left));
            }
        }
    }

    fn shard(&self, name: &str) -> &ArcSwap<HashMap<Arc<str>, Arc<Stream>>> {
        &self.shards[self.hasher.hash_one(name) as usize % SHARDS]
    }
}

/// Whether `name` may name a stream: path segments of `A-Z a-z 0-9 . _ -` that do not start with
/// a dot, 1 to 128 bytes in all.
pub(crate) fn is_name(name: &str) -> bool {
    name.len() <= 128 && name.split('/').all(is_segment)
}

/// Whether `name` may name a rendition: one path segment of 1 to 64 bytes.
fn is_rendition(name: &str) -> bool {
    name.len() <= 64 && is_segment(name)
}

fn is_segment(segment: &str) -> bool {
    !segment.is_empty()
        && !segment.starts_with('.')
        && segment.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

/// As much of a bad name as is told.
fn shown(name: &str) -> String {
    name.chars().take(160).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_limit_to_streams_and_who_has_gone_makes_room() {
        let registry = Registry::new(Settings::default());
        let info = PublisherInfo { peer: None, protocol: "test", rendition: None };
        let begin = |name: &str| registry.publish(name, info.clone(), UnixMicros(0));
        let mut held: Vec<_> =
            (0..MOST_STREAMS).map(|number| begin(&format!("s{number:05}")).unwrap()).collect();
        assert_eq!(begin("late").unwrap_err(), PublishError::TooManyStreams);
        let streams = registry.streams();
        assert_eq!(streams.len(), MOST_STREAMS);
        assert!(streams.iter().enumerate().all(|(i, s)| s.name() == format!("s{i:05}")));
        assert!(streams.iter().all(|s| Arc::ptr_eq(s, &registry.stream(s.name()).unwrap())));
        held.truncate(MOST_STREAMS - 1);
        registry.sweep(UnixMicros(1));
        let late = begin("late").unwrap();
        assert_eq!(begin("later").unwrap_err(), PublishError::TooManyStreams);
        assert!(matches!(begin("late").unwrap_err(), PublishError::InUse(_)));
        drop((held, late));
        registry.sweep(UnixMicros(2));
        assert!(registry.streams().is_empty());
    }

    #[test]
    fn names() {
        for good in ["a", "demo", "a/b", "A-1_2.x", &"n".repeat(128)] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "/", "a/", "/a", ".a", "a/.b", "a b", "ü", "a//b", &"n".repeat(129)] {
            assert!(!is_name(bad), "{bad}");
        }
        for good in ["low", "1080p_3.5M", &"n".repeat(64)] {
            assert!(is_rendition(good), "{good}");
        }
        for bad in ["", ".", "../..", "a/b", "\"x\"", "a%20b", "<b>", "x\n", &"n".repeat(65)] {
            assert!(!is_rendition(bad), "{bad}");
        }
    }
}
