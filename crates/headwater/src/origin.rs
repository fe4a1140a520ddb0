use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context;
use live::backup::{Role, Seat, Seats, Times};
use live::cursor::Limits;
use live::{PublishError, PublisherInfo, Registry, Settings, Status, Stream, UnixMicros};
use store::Store;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use vod::Root;

use crate::access::Access;
use crate::clock::{self, Clock};
use crate::cluster::{Cluster, Unreachable};
use crate::config::{Config, Size};
use crate::counts::{Chosen, Ladders, Reporters, SlowViewers, Timings, Violations};
use crate::events::Events;
use crate::history::History;
use crate::machine;
use crate::pace::Balance;
use crate::sessions::Sessions;
use crate::titles::{self, FlvTitles};
use crate::traces::Traces;

/// Two clocks are compared only if reading them takes at most this long. If the process has to wait
/// between the two, the wall clock looks as if somebody had set it.
const AT_ONCE: Duration = Duration::from_millis(10);

/// How long a publisher waits until it is known which nodes are still there, and then for what they have of its stream.
const FETCH: Duration = Duration::from_secs(3);

/// State that all listeners share: the configuration, the live streams, the clock.
#[derive(Debug)]
pub struct Origin {
    /// The options it was started with.
    pub config: Config,
    /// Decides which peers may do which actions.
    pub access: Arc<Access>,
    /// The live streams.
    pub registry: Arc<Registry>,
    /// The publishers of the live streams.
    pub seats: Arc<Seats>,
    /// Files packaged on the fly.
    pub titles: vod::Library,
    /// Where the files are, if not on this machine.
    pub store: Option<Arc<Store>>,
    /// Viewers of the titles by HLS, DASH and push.
    pub title_viewers: Arc<titles::Viewers>,
    /// The titles' blocks for RTMP players.
    pub flv_titles: FlvTitles,
    /// Lookups of titles for RTMP players take turns.
    pub rtmp_lookups: Arc<Semaphore>,
    /// Decides which viewers of files go first when the link is short.
    pub balance: Arc<Balance>,
    /// Those who publish and play, one by one.
    pub sessions: Arc<Sessions>,
    /// The figures of the last hour.
    pub history: History,
    /// What operators want to know at once.
    pub events: Arc<Events>,
    /// What happened to viewers that read too slowly.
    pub slow_viewers: SlowViewers,
    /// Push viewers that were closed because of what they sent.
    pub violations: Violations,
    /// The renditions that push viewers have.
    pub chosen: Chosen,
    /// How long answers take, and how much is sent.
    pub timings: Timings,
    /// Places for viewers that tell of themselves.
    pub reporters: Reporters,
    /// How long publishers and viewers wait, for an operator's collector.
    pub traces: Traces,
    /// What happened to the ladder processes.
    pub ladders: Ladders,
    /// Whether the origin refuses new clients. `/readyz` tells this.
    pub drains: watch::Sender<bool>,
    /// The other nodes, if there is a cluster.
    pub cluster: OnceLock<Arc<Cluster>>,
    /// The clock that never steps.
    pub clock: Clock,
}

impl Origin {
    /// Makes an origin without streams. Its files are on this machine, or in a store. Blocks while
    /// the store's cache is read.
    ///
    /// # Errors
    /// The address of the store is wrong, or its cache cannot be used; or keys of `[access]` cannot be read.
    pub fn open(config: Config) -> anyhow::Result<Self> {
        let store = config.vod.store().map(|settings| Store::open(&settings)).transpose();
        let access = Access::load(&config.access).map_err(anyhow::Error::msg)?;
        Ok(Self::with_store(config, access, store.context("vod.root")?))
    }

    /// Makes an origin without streams, with files on this machine.
    ///
    /// # Panics
    /// Keys of `[access]` cannot be read.
    pub fn new(config: Config) -> Self {
        let access =
            Access::load(&config.access).expect("keys of a configuration that was checked");
        Self::with_store(config, access, None)
    }

    fn with_store(config: Config, access: Access, store: Option<Arc<Store>>) -> Self {
        let clock = Clock::start();
        let live = &config.live;
        let settings = Settings {
            part_target: live.part_target.into(),
            segment_target: live.segment_target.into(),
            target_duration: live.target_duration.into(),
            keyframe_distance: live.keyframe_distance.into(),
            window: live.window.into(),
            reconnect: live.reconnect.into(),
            silence: live.silence.into(),
            foreign_renditions: live.foreign_renditions,
        };
        let times = Times {
            after: live.backup_after.into(),
            steady: live.backup_steady.into(),
            silence: live.silence.into(),
        };
        let titles = vod::Settings {
            segment_target: config.vod.segment_target.into(),
            memory: usize::try_from(u64::from(config.vod.index_memory)).unwrap_or(usize::MAX),
        };
        let flv_titles =
            usize::try_from(u64::from(config.vod.segment_memory)).unwrap_or(usize::MAX);
        let root = match store.clone() {
            Some(store) => Root::of_objects(store),
            None => Root::new(config.vod.folder()),
        };
        let events = Arc::<Events>::default();
        let live_memory = live_memory(config.live.memory, machine::memory);
        let registry = Arc::new(Registry::with_memory(settings, live_memory));
        Self {
            seats: Arc::new(Seats::new(Arc::clone(&registry), times)),
            access: Arc::new(access),
            registry,
            traces: Traces::new(&config.traces),
            titles: vod::Library::new(root, titles),
            store,
            title_viewers: Arc::default(),
            flv_titles: FlvTitles::new(flv_titles),
            rtmp_lookups: Arc::new(Semaphore::new(titles::LOOKUPS)),
            balance: Arc::new(Balance::new(clock.now())),
            sessions: Arc::new(Sessions::new(
                config.http.per_address(config.http.max_sessions_per_address),
            )),
            slow_viewers: SlowViewers::new(Arc::clone(&events)),
            history: History::default(),
            events,
            violations: Violations::default(),
            chosen: Chosen::default(),
            timings: Timings::default(),
            reporters: Reporters::new(
                config.http.per_address(config.http.max_sessions_per_address),
            ),
            ladders: Ladders::default(),
            drains: watch::Sender::new(false),
            cluster: OnceLock::new(),
            clock,
            config,
        }
    }

    /// Whether [`Origin::fetch`] may find something: a publisher of the live stream `name` comes here, and the stream is
    /// not here, or a publisher of this role waits at another node.
    pub fn may_fetch(&self, name: &str, role: Role) -> bool {
        let Some(cluster) = self.cluster.get() else { return false };
        self.is_elsewhere(name) || cluster.waits_elsewhere(name, role)
    }

    /// Gets what other nodes have of the live stream `name`, whose publisher of this role comes here, so that the stream
    /// goes on. Finds out whether the nodes are still there that have it, or where a publisher of this role waits. Takes
    /// a few seconds at most.
    pub async fn fetch(&self, name: &str, role: Role) {
        let Some(cluster) = self.cluster.get() else { return };
        let published = || cluster.elsewhere(name).filter(|holder| holder.is_live);
        let looked = async {
            cluster.look_for_waiting(name, role).await;
            if self.is_elsewhere(name)
                && let Some(holder) = published()
            {
                cluster.has_gone(&holder.node).await;
            }
        };
        let _ = timeout(FETCH, looked).await;
        // A node that did not answer may have been forgotten meanwhile, because it was silent for too long.
        if self.is_elsewhere(name) && published().is_none() {
            // A copy that is being made for a viewer may have asked the node that has gone. The next one does not.
            let copied = async {
                if self.stream(name).await.is_err() {
                    let _ = self.stream(name).await;
                }
            };
            // Where nothing comes, the stream begins anew.
            let _ = timeout(FETCH, copied).await;
        }
    }

    /// Whether no stream of this name goes on here.
    fn is_elsewhere(&self, name: &str) -> bool {
        let stream = self.registry.stream(name);
        stream.is_none_or(|it| it.is_mirrored() || it.state().status == Status::Ended)
    }

    /// Begins publishing the live stream `name`, returns to it, or waits beside its other publisher.
    ///
    /// # Errors
    /// Those of [`Seats::enter`], and that another node has a publisher of this role.
    pub fn publish(
        &self,
        name: &str,
        role: Role,
        info: PublisherInfo,
    ) -> Result<Seat, PublishError> {
        let elsewhere = match self.cluster.get() {
            Some(cluster) => cluster.other_publisher(name, role, info.rendition.as_deref())?,
            None => None,
        };
        self.seats.enter(name, (role, info), elsewhere, self.now())
    }

    /// A live stream by its name, `live/` not included, wherever in the cluster it is.
    ///
    /// # Errors
    /// Another node has it, and cannot be reached.
    pub async fn stream(&self, name: &str) -> Result<Option<Arc<Stream>>, Unreachable> {
        let known = self.known(name);
        let Some(cluster) = self.cluster.get().filter(|_| known.is_none()) else {
            return Ok(known);
        };
        let copy = cluster.copy(name).await;
        let here = self.registry.stream(name);
        match copy {
            Ok(copy) => Ok(copy.or(here)),
            // Over a slow link, a copy takes longer than a viewer waits.
            Err(error) => {
                let goes_on = |stream: &Arc<Stream>| stream.state().status != Status::Ended;
                here.filter(goes_on).map(Some).ok_or(error)
            }
        }
    }

    /// A live stream by its name, if it can be had without a question to other nodes.
    pub fn known(&self, name: &str) -> Option<Arc<Stream>> {
        let stream = self.registry.stream(name)?;
        let Some(cluster) = self.cluster.get() else { return Some(stream) };
        // Another node may have a new stream of the name of one that is over.
        let is_over = stream.state().status == Status::Ended;
        let is_begun = || stream.is_mirrored() && cluster.begins_copy(name);
        (!is_over && !is_begun()).then_some(stream)
    }

    /// Whether the origin refuses new clients, because it ends.
    pub fn is_draining(&self) -> bool {
        *self.drains.borrow()
    }

    /// Whether viewers who come again, to any node of a cluster, find the stream when this node has ended.
    pub fn goes_on_elsewhere(&self, stream: &Stream) -> bool {
        self.cluster.get().is_some() && stream.state().status != Status::Ended
    }

    /// The time by the clock that never steps. Time-outs use it.
    pub fn now(&self) -> UnixMicros {
        self.clock.now()
    }

    /// The wall clock, which may be set at any time. Use it only for times of day that others see.
    pub fn wall_clock(&self) -> UnixMicros {
        clock::wall_clock()
    }

    /// Makes the dates in live streams follow the wall clock. Call it about once a second.
    pub fn follow_wall_clock(&self) {
        let micros = |time: UnixMicros| i64::try_from(time.0).unwrap_or(i64::MAX);
        let (now, wall) = (self.now(), self.wall_clock());
        if self.now().since(now) <= AT_ONCE {
            self.registry.follow_wall_clock(micros(wall).saturating_sub(micros(now)));
        }
    }

    /// Limits on what one viewer of an endless delivery may cost.
    pub fn viewer_limits(&self) -> Limits {
        Limits {
            queue: self.config.live.viewer_queue.into(),
            patience: self.config.live.viewer_patience.into(),
        }
    }
}

/// Memory for all live streams, on a machine with this much memory for the process.
fn live_memory(configured: Size, machine: impl FnOnce() -> Option<u64>) -> u64 {
    match u64::from(configured) {
        0 => machine().map_or(u64::MAX, |bytes| bytes / 2),
        bytes => bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::tests::machine;

    /// The clock that never steps stands still here, so both clocks are always read at once.
    #[tokio::test(start_paused = true)]
    async fn dates_follow_the_wall_clock_by_as_much_as_it_was_set() {
        let mut origin = Origin::new(Config::default());
        let began = origin.now();
        let info = PublisherInfo { peer: None, protocol: "test", rendition: None };
        let mut publisher = origin.registry.publish("x", info, began).unwrap();
        let video = media::codec::avc::Config::parse(testkit::avc_record(31).into()).unwrap();
        publisher.track(0, media::Codec::Avc(video), 1000, *b"und", began).unwrap();
        let hour = Duration::from_secs(3600);
        for (period, started) in
            [began, UnixMicros(began.0 - 3_600_000_000), began.after(hour)].into_iter().enumerate()
        {
            // The wall clock cannot be set here. So the clock that never steps takes the step.
            origin.clock.started.0 = started;
            origin.follow_wall_clock();
            for millis in (0..4000).step_by(100).map(|millis| period as i64 * 4000 + millis) {
                let sync = millis % 2000 == 0;
                let data = bytes::Bytes::from_static(&[0; 64]);
                let sample = media::Sample { dts: millis, cts: 0, duration: 0, sync, data };
                let now = began.after(Duration::from_millis(millis.unsigned_abs()));
                publisher.sample(0, sample, now).unwrap();
            }
        }
        let window = publisher.stream().track("v0").unwrap().window();
        let mut seconds =
            window.all().map(|s| (s.period, s.epoch() / 1_000_000)).collect::<Vec<_>>();
        seconds.dedup();
        let (periods, epochs): (Vec<_>, Vec<_>) = seconds.into_iter().unzip();
        assert_eq!(periods, [0, 1, 2]);
        // The time that this test takes counts, too.
        let is_ahead = |epoch: i64, by: i64| (-1..60).contains(&(epoch - epochs[0] - by));
        assert!(is_ahead(epochs[1], 3600) && is_ahead(epochs[2], -3600), "{epochs:?}");
    }

    /// The default memory on a machine with 8 GiB and these control groups.
    fn default_with(groups: &[(&str, &str)]) -> u64 {
        let mut files = vec![("proc/meminfo", "MemTotal:        8388608 kB\n")];
        files.extend_from_slice(groups);
        live_memory(Config::default().live.memory, || machine(&files))
    }

    #[test]
    fn live_streams_have_half_of_what_the_machine_and_each_control_group_allow() {
        const GIB: u64 = 1 << 30;
        let nested = ("proc/self/cgroup", "0::/pods/one/origin\n");
        let own = |limit| ("sys/fs/cgroup/pods/one/origin/memory.max", limit);
        let parent = |limit| ("sys/fs/cgroup/pods/one/memory.max", limit);
        let top = |limit| ("sys/fs/cgroup/pods/memory.max", limit);
        assert_eq!(default_with(&[]), 4 * GIB);
        assert_eq!(default_with(&[nested]), 4 * GIB, "no limit is told");
        assert_eq!(default_with(&[nested, own("max\n")]), 4 * GIB);
        assert_eq!(default_with(&[nested, own("2147483648\n")]), GIB);
        // The limit is above the machine's memory.
        assert_eq!(default_with(&[nested, own("17179869184\n")]), 4 * GIB);
        // The lowest limit of all groups above applies, at whatever level.
        let above = [nested, own("max\n"), parent("1073741824\n"), top("4294967296\n")];
        assert_eq!(default_with(&above), GIB / 2);
        let highest = [nested, own("4294967296\n"), parent("max\n"), top("1073741824\n")];
        assert_eq!(default_with(&highest), GIB / 2);
        // A container that sees its own group as the root.
        let container =
            [("proc/self/cgroup", "0::/\n"), ("sys/fs/cgroup/memory.max", "536870912\n")];
        assert_eq!(default_with(&container), GIB / 4);
    }

    #[test]
    fn the_configured_limit_counts_and_an_unknown_machine_has_none() {
        let asked = || -> Option<u64> { panic!("the machine is asked") };
        assert_eq!(live_memory(Size::from_mib(64), asked), 64 << 20);
        assert_eq!(live_memory(Size::default(), || None), u64::MAX);
    }

    #[test]
    fn the_registry_has_what_was_found() {
        let mut config = Config::default();
        let found = |config: &Config| Origin::new(config.clone()).registry.memory().limit;
        assert_eq!(found(&config), machine::memory().unwrap() / 2);
        config.live.memory = Size::from_mib(64);
        assert_eq!(found(&config), 64 << 20);
    }
}
