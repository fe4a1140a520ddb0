use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};

use live::cursor::Limits;
use live::{Registry, Settings, UnixMicros};
use tokio::time::Instant;

use crate::config::{Config, Size};
use crate::counts::{Chosen, Ladders, SlowViewers, Violations};
use crate::machine;
use crate::pace::Balance;
use crate::titles::{self, FlvTitles};

/// What every listener shares: the configuration, the live streams, the clock.
#[derive(Debug)]
pub struct Origin {
    /// The options it was started with.
    pub config: Config,
    /// The live streams.
    pub registry: Registry,
    /// Files packaged on the fly.
    pub titles: vod::Library,
    /// Who watches those by HLS, DASH and push.
    pub title_viewers: titles::Viewers,
    /// What RTMP players are sent of them.
    pub flv_titles: FlvTitles,
    /// Who goes first when the link is short, of the viewers of files.
    pub balance: Arc<Balance>,
    /// What became of viewers that read too slowly.
    pub slow_viewers: SlowViewers,
    /// Push viewers that were closed for what they sent.
    pub violations: Violations,
    /// Which renditions push viewers have.
    pub chosen: Chosen,
    /// What became of renditions that are made here.
    pub ladders: Ladders,
    /// It takes nobody new: `/readyz` says so.
    pub draining: AtomicBool,
    started: (UnixMicros, Instant),
}

impl Origin {
    /// An origin without streams.
    pub fn new(config: Config) -> Self {
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
        let titles = vod::Settings {
            segment_target: config.vod.segment_target.into(),
            memory: usize::try_from(u64::from(config.vod.index_memory)).unwrap_or(usize::MAX),
        };
        let flv_titles =
            usize::try_from(u64::from(config.vod.segment_memory)).unwrap_or(usize::MAX);
        let live_memory = live_memory(config.live.memory, machine::memory);
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let started = UnixMicros::default().after(wall);
        Self {
            registry: Registry::with_memory(settings, live_memory),
            titles: vod::Library::new(config.vod.root.clone(), titles),
            title_viewers: titles::Viewers::default(),
            flv_titles: FlvTitles::new(flv_titles),
            balance: Arc::new(Balance::new(started)),
            slow_viewers: SlowViewers::default(),
            violations: Violations::default(),
            chosen: Chosen::default(),
            ladders: Ladders::default(),
            draining: AtomicBool::new(false),
            started: (started, Instant::now()),
            config,
        }
    }

    /// The wall clock as it was at the start, and the time since: it never steps. Time-outs go by
    /// it, and a step would take a live publisher for a silent one.
    pub fn now(&self) -> UnixMicros {
        self.started.0.after(self.started.1.elapsed())
    }

    /// The wall clock, which may be set at any time: for what is told of times of day.
    pub fn wall_clock(&self) -> UnixMicros {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        UnixMicros::default().after(wall)
    }

    /// Has the live streams' dates follow the wall clock. To be called about once a second.
    pub fn follow_wall_clock(&self) {
        let micros = |time: UnixMicros| i64::try_from(time.0).unwrap_or(i64::MAX);
        self.registry.follow_wall_clock(micros(self.wall_clock()) - micros(self.now()));
    }

    /// What one viewer of an endless delivery may cost.
    pub fn viewer_limits(&self) -> Limits {
        Limits {
            queue: self.config.live.viewer_queue.into(),
            patience: self.config.live.viewer_patience.into(),
        }
    }
}

/// What live streams may hold together, on a machine that has so much memory for us.
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

    /// A machine of 8 GiB, and what is said of its control groups.
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
        // More than there is.
        assert_eq!(default_with(&[nested, own("17179869184\n")]), 4 * GIB);
        // The least of all there are above it holds, wherever it is.
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
    fn what_is_configured_counts_and_nothing_is_refused_where_nothing_is_known() {
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
