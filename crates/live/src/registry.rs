//! All live streams, by name.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use payload::memory::Memory;
use tokio::sync::watch;

use crate::change::Description;
use crate::error::{MOST_STREAMS, PublishError};
use crate::mirror::Mirror;
use crate::names::{is_name, is_rendition, shown};
use crate::publisher::Publisher;
use crate::stream::{Entry, Stream};
use crate::{PublisherInfo, Settings, UnixMicros};

/// Number of shards. A stream that begins copies its shard: with 10,000 streams this takes 4 us,
/// without shards 230 us.
const SHARDS: usize = 64;

/// Memory that live streams use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryUse {
    /// Bytes of windows and of the data that belongs to them.
    pub used: u64,
    /// The most bytes that they may use.
    pub limit: u64,
    /// Number of segments so far that left their window early because memory was nearly used up.
    pub given_up: u64,
}

/// Pause between two searches for streams that nobody publishes. A search looks at every stream.
const SEARCH_AGAIN: Duration = Duration::from_secs(1);

/// How many streams there are, and which ones a new stream may replace when that is the most.
#[derive(Debug, Default)]
struct StreamCount {
    streams: usize,
    /// Streams that nobody published at the last search. The first leaves first.
    resting: VecDeque<Weak<Stream>>,
    /// When the last search was.
    searched: Option<UnixMicros>,
}

/// Every live stream. Looking one up takes no lock.
#[derive(Debug)]
pub struct Registry {
    settings: Settings,
    memory: Arc<Memory>,
    shards: [ArcSwap<HashMap<Arc<str>, Arc<Stream>>>; SHARDS],
    /// Decides which shard a name belongs to. It is random, so nobody can choose names that all
    /// belong to one shard.
    hasher: RandomState,
    /// The lock is held while a shard is replaced.
    count: Mutex<StreamCount>,
    /// Number of streams that have begun.
    begun: watch::Sender<u64>,
    /// How far the wall clock is ahead of the clock that the origin uses, in microseconds.
    ahead: Arc<AtomicI64>,
}

impl Registry {
    /// A registry without streams and without a limit of memory.
    pub fn new(settings: Settings) -> Self {
        Self::with_memory(settings, u64::MAX)
    }

    /// A registry without streams. Together its streams may hold `limit` bytes of media and data
    /// about them. When that is nearly used up, no stream can begin, and streams that hold more
    /// than others get shorter windows.
    pub fn with_memory(settings: Settings, limit: u64) -> Self {
        Self {
            settings,
            memory: Arc::new(Memory::new(limit)),
            shards: std::array::from_fn(|_| ArcSwap::default()),
            hasher: RandomState::new(),
            count: Mutex::default(),
            begun: watch::Sender::new(0),
            ahead: Arc::default(),
        }
    }

    /// Memory that the streams use.
    pub fn memory(&self) -> MemoryUse {
        let budget = self.memory.budget();
        MemoryUse { used: budget.used(), limit: budget.limit(), given_up: budget.given_up() }
    }

    /// Whether there is memory for a further stream, or a stream without a publisher that gives way to it.
    pub fn has_room(&self) -> bool {
        self.memory.budget().has_room()
    }

    /// Sets how many microseconds the wall clock is ahead of the clock that never steps, because
    /// somebody set it or the machine slept. Everything here uses the clock that never steps; dates
    /// follow the wall clock.
    pub fn follow_wall_clock(&self, ahead: i64) {
        self.ahead.store(ahead, Ordering::Relaxed);
    }

    /// Number of streams that have begun; the receiver is notified of every further one.
    pub fn begun(&self) -> watch::Receiver<u64> {
        self.begun.subscribe()
    }

    /// A stream by name, `live/` not included.
    pub fn stream(&self, name: &str) -> Option<Arc<Stream>> {
        self.shard(name).load().get(name).cloned()
    }

    /// All streams, sorted by name.
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
    /// A name is bad or taken, there are too many streams, there is no memory for another one, the
    /// publisher may not add a rendition, or the stream begins anew too often.
    pub fn publish(
        &self,
        name: &str,
        info: PublisherInfo,
        now: UnixMicros,
    ) -> Result<Publisher, PublishError> {
        self.admit(name, info, Entry::First, now)
    }

    /// Begins publishing `name` for a publisher whose turn it is, or that sends a rendition. It goes on with a copy of
    /// the stream if there is one.
    pub(crate) fn publish_here(
        &self,
        name: &str,
        info: PublisherInfo,
        entry: Entry,
        now: UnixMicros,
    ) -> Result<Publisher, PublishError> {
        match self.admit(name, info.clone(), entry, now) {
            Err(PublishError::Elsewhere) => {
                self.adopt(name, now);
                self.admit(name, info, entry, now)
            }
            admitted => admitted,
        }
    }

    fn admit(
        &self,
        name: &str,
        info: PublisherInfo,
        entry: Entry,
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
            match Publisher::admit(stream, info.clone(), entry, now) {
                Err(PublishError::Over) => {}
                admitted => return admitted,
            }
        }
        // Viewers and caches may still hold segments of the stream that ended, so the numbers go on
        // after those.
        let after = before.as_ref().map_or(0, |stream| stream.next_msn());
        if !self.memory.budget().has_room() {
            return Err(PublishError::NoMemory { limit: self.memory.budget().limit() });
        }
        if before.is_none() && count.streams >= MOST_STREAMS && !self.make_room(&mut count, now) {
            return Err(PublishError::TooManyStreams);
        }
        let ahead = Arc::clone(&self.ahead);
        let settings = self.settings.clone();
        let stream = Arc::new(Stream::new(name.into(), settings, &self.memory, now, after, ahead));
        let publisher = Publisher::admit(&stream, info, entry, now)?;
        self.insert(&mut count, stream);
        self.begun.send_modify(|count| *count += 1);
        Ok(publisher)
    }

    /// Begins a copy of a stream that another machine has.
    ///
    /// # Errors
    /// The name is bad, the stream is published here, there are too many streams, or there is no memory for another
    /// one.
    pub fn mirror(
        &self,
        name: &str,
        of: &Description,
        now: UnixMicros,
    ) -> Result<Mirror, PublishError> {
        if !is_name(name) {
            return Err(PublishError::BadName(shown(name)));
        }
        crate::mirror::check::description(of)
            .map_err(|error| PublishError::Refused(error.to_string()))?;
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.stream(name);
        if let Some(stream) = before.as_ref().filter(|stream| !stream.leave()) {
            let publisher = stream.state().publishers.first().cloned();
            return Err(publisher.map_or(PublishError::Elsewhere, PublishError::InUse));
        }
        if !self.memory.budget().has_room() {
            return Err(PublishError::NoMemory { limit: self.memory.budget().limit() });
        }
        if before.is_none() && count.streams >= MOST_STREAMS && !self.make_room(&mut count, now) {
            return Err(PublishError::TooManyStreams);
        }
        let ahead = Arc::clone(&self.ahead);
        let stream = Arc::new(Stream::mirrored(name.into(), of, &self.memory, ahead));
        self.insert(&mut count, Arc::clone(&stream));
        Ok(Mirror::new(stream))
    }

    /// The copy that this machine's own stream became ([`Stream::become_copy`]). `None` if there is none.
    pub fn resume_mirror(&self, name: &str) -> Option<Mirror> {
        self.stream(name).filter(|stream| stream.is_mirrored()).map(Mirror::new)
    }

    /// Makes the copy of a stream that another machine had the stream itself: the machine has gone, and the publisher
    /// comes here. Returns whether there was a copy.
    pub fn adopt(&self, name: &str, now: UnixMicros) -> bool {
        let adopted = self.stream(name).is_some_and(|stream| stream.adopt(now));
        if adopted {
            self.begun.send_modify(|count| *count += 1);
        }
        adopted
    }

    /// Lists a stream. It replaces one of the same name.
    fn insert(&self, count: &mut StreamCount, stream: Arc<Stream>) {
        let shard = self.shard(stream.name());
        let mut streams = HashMap::clone(&shard.load());
        count.streams += usize::from(streams.insert(stream.name().into(), stream).is_none());
        shard.store(Arc::new(streams));
    }

    /// Does all work that depends on time: ends streams whose publisher did not return, forgets
    /// ended ones. Call it about once a second.
    pub fn sweep(&self, now: UnixMicros) {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        for shard in &self.shards {
            let streams = shard.load_full();
            let over: Vec<_> = streams.iter().filter(|(_, stream)| stream.sweep(now)).collect();
            if !over.is_empty() {
                count.streams -= over.len();
                let mut left = HashMap::clone(&streams);
                for (name, _) in over {
                    left.remove(name);
                }
                shard.store(Arc::new(left));
            }
        }
    }

    /// Ends and forgets one stream that nobody publishes. Streams that are over leave first, then
    /// those that were published for the shortest time: somebody who publishes one name after the
    /// other must not drive out streams whose encoders may return. Returns whether there is room.
    fn make_room(&self, count: &mut StreamCount, now: UnixMicros) -> bool {
        let searches = count.searched.is_none_or(|at| now.since(at) >= SEARCH_AGAIN);
        if count.resting.is_empty() && searches {
            count.searched = Some(now);
            let shards: Vec<_> = self.shards.iter().map(ArcSwap::load_full).collect();
            let streams = shards.iter().flat_map(|shard| shard.values());
            let mut resting: Vec<_> =
                streams.filter_map(|stream| Some((stream.rest()?, stream))).collect();
            resting.sort_unstable_by_key(|(rest, _)| *rest);
            count.resting = resting.iter().map(|(_, stream)| Arc::downgrade(stream)).collect();
        }
        while let Some(stream) = count.resting.pop_front() {
            // The stream may have been forgotten, or published again, since the search.
            let Some(stream) = stream.upgrade().filter(|stream| stream.leave()) else { continue };
            let shard = self.shard(stream.name());
            let mut streams = HashMap::clone(&shard.load());
            if streams.get(stream.name()).is_some_and(|known| Arc::ptr_eq(known, &stream)) {
                streams.remove(stream.name());
                count.streams -= 1;
                shard.store(Arc::new(streams));
                return true;
            }
        }
        false
    }

    fn shard(&self, name: &str) -> &ArcSwap<HashMap<Arc<str>, Arc<Stream>>> {
        &self.shards[self.hasher.hash_one(name) as usize % SHARDS]
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use media::codec::aac;
    use media::{Codec, Sample};

    use super::*;
    use crate::Refused;

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
    fn a_publisher_is_replaced_only_when_it_has_been_silent_for_long_enough() {
        let settings = Settings { silence: Duration::from_secs(1), ..Settings::default() };
        let registry = Registry::new(settings);
        let info = PublisherInfo { peer: None, protocol: "test", rendition: None };
        let begin = |at| registry.publish("x", info.clone(), UnixMicros(at));
        let mut first = begin(0).unwrap();
        // Without any media, its silence begins when it begins.
        assert!(matches!(begin(999_999), Err(PublishError::InUse(_))));
        let codec = aac::Config::parse(Bytes::from_static(&[0x11, 0x90])).unwrap();
        first.track(1, Codec::Aac(codec), 1000, *b"und", UnixMicros(0)).unwrap();
        let sample = Sample { dts: 0, cts: 0, duration: 0, sync: true, data: vec![7; 50].into() };
        first.sample(1, sample.clone(), UnixMicros(999_999)).unwrap();
        assert!(matches!(begin(1_999_998), Err(PublishError::InUse(_))));
        assert!(!first.is_replaced());
        let _second = begin(1_999_999).unwrap();
        assert!(first.is_replaced());
        let sample = Sample { dts: 1000, ..sample };
        let refused = first.sample(1, sample, UnixMicros(2_000_000)).unwrap_err();
        assert!(matches!(refused, Refused::Replaced), "{refused}");
    }
}
