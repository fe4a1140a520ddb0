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

/// State that all listeners share: the configuration, the live streams, the clock.
#[derive(Debug)]
pub struct Origin {
    /// The options it was started with.
    pub config: Config,
    /// The live streams.
    pub registry: Registry,
    /// Files packaged on the fly.
    pub titles: vod::Library,
    /// Viewers of the titles by HLS, DASH and push.
    pub title_viewers: titles::Viewers,
    /// The titles' blocks for RTMP players.
    pub flv_titles: FlvTitles,
    /// Decides which viewers of files go first when the link is short.
    pub balance: Arc<Balance>,
    /// What happened to viewers that read too slowly.
    pub slow_viewers: SlowViewers,
    /// Push viewers that were closed because of what they sent.
    pub violations: Violations,
    /// The renditions that push viewers have.
    pub chosen: Chosen,
    /// What happened to the ladder processes.
    pub ladders: Ladders,
    /// Whether the origin refuses new clients. `/readyz` tells this.
    pub draining: AtomicBool,
    started: (UnixMicros, Instant),
}

impl Origin {
    /// Makes an origin without streams.
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

    /// The wall clock at the start, plus the time since then: this clock never steps. Time-outs use
    /// it; with a step, a live publisher would look silent.
    pub fn now(&self) -> UnixMicros {
        self.started.0.after(self.started.1.elapsed())
    }

    /// The wall clock, which may be set at any time. Use it only for times of day that others see.
    pub fn wall_clock(&self) -> UnixMicros {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        UnixMicros::default().after(wall)
    }

    /// Makes the dates in live streams follow the wall clock. Call it about once a second.
    pub fn follow_wall_clock(&self) {
        let micros = |time: UnixMicros| i64::try_from(time.0).unwrap_or(i64::MAX);
        self.registry.follow_wall_clock(micros(self.wall_clock()) - micros(self.now()));
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
