use std::time::{SystemTime, UNIX_EPOCH};

use live::{Registry, Settings, UnixMicros};

use crate::config::Config;
use crate::deliver::cursor::Limits;
use crate::metrics::SlowViewers;

/// What every listener shares: the configuration, the live streams, the clock.
#[derive(Debug)]
pub struct Origin {
    /// The options it was started with.
    pub config: Config,
    /// The live streams.
    pub registry: Registry,
    /// What became of viewers that read too slowly.
    pub slow_viewers: SlowViewers,
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
        Self { registry: Registry::new(settings), slow_viewers: SlowViewers::default(), config }
    }

    /// The wall clock.
    pub fn now(&self) -> UnixMicros {
        let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        UnixMicros(u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX))
    }

    /// What one viewer of an endless delivery may cost.
    pub fn viewer_limits(&self) -> Limits {
        Limits {
            queue: self.config.live.viewer_queue.into(),
            patience: self.config.live.viewer_patience.into(),
        }
    }
}
