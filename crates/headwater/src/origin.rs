use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};

use live::{Registry, Settings, UnixMicros};
use tokio::time::Instant;

use crate::config::Config;
use crate::deliver::TitleViewers;
use crate::deliver::cursor::Limits;
use crate::ladder;
use crate::metrics::{SlowViewers, Violations};
use crate::pace::Balance;
use crate::push::Chosen;
use crate::rtmp::Films;

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
    pub title_viewers: TitleViewers,
    /// What RTMP players are sent of them.
    pub films: Films,
    /// Who goes first when the link is short, of the viewers of files.
    pub balance: Arc<Balance>,
    /// What became of viewers that read too slowly.
    pub slow_viewers: SlowViewers,
    /// Push viewers that were closed for what they sent.
    pub violations: Violations,
    /// Which renditions push viewers have.
    pub chosen: Chosen,
    /// What became of renditions that are made here.
    pub ladders: ladder::Counters,
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
            window: live.window.into(),
            reconnect: live.reconnect.into(),
            silence: live.silence.into(),
        };
        let titles = vod::Settings {
            segment_target: config.vod.segment_target.into(),
            memory: usize::try_from(u64::from(config.vod.index_memory)).unwrap_or(usize::MAX),
        };
        let films = usize::try_from(u64::from(config.vod.segment_memory)).unwrap_or(usize::MAX);
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let started = UnixMicros::default().after(wall);
        Self {
            registry: Registry::new(settings),
            titles: vod::Library::new(config.vod.root.clone(), titles),
            title_viewers: TitleViewers::default(),
            films: Films::new(films),
            balance: Arc::new(Balance::new(started)),
            slow_viewers: SlowViewers::default(),
            violations: Violations::default(),
            chosen: Chosen::default(),
            ladders: ladder::Counters::default(),
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

    /// What one viewer of an endless delivery may cost.
    pub fn viewer_limits(&self) -> Limits {
        Limits {
            queue: self.config.live.viewer_queue.into(),
            patience: self.config.live.viewer_patience.into(),
        }
    }
}
