use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};

use live::cursor::Limits;
use live::{Registry, Settings, UnixMicros};
use tokio::time::Instant;

use crate::config::Config;
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
        let live_memory = match u64::from(config.live.memory) {
            0 => machine::memory().map_or(u64::MAX, |bytes| bytes / 2),
            bytes => bytes,
        };
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
