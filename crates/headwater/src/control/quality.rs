//! How a stream's viewers are, as their players tell.

use std::time::Duration;

use live::sessions;
use schemars::JsonSchema;
use serde::Serialize;

/// How the viewers of a stream are whose players tell of themselves: by CMCD (CTA-5004), as the players of this server
/// do.
#[derive(Serialize, JsonSchema)]
pub(super) struct Quality {
    /// How many they are.
    viewers: usize,
    /// Seconds of media ahead of the playhead.
    buffer_seconds: Option<Spread>,
    /// Seconds from the wish to play to the first frame.
    startup_seconds: Option<Spread>,
    /// Throughput that the players measured, in bit/s.
    throughput: Option<Spread>,
    /// Bitrate of what they play, in bit/s.
    bitrate: Option<Spread>,
    /// How many need media urgently: they start, seek, or have run out of media.
    urgent: usize,
    /// How often players ran out of media, since the stream began.
    stalls: u64,
}

/// What half of the viewers have, and what one in ten has. `null` stands for it if no player told it.
#[derive(Serialize, JsonSchema)]
struct Spread {
    /// Half of the viewers have no more than this, or no less.
    median: f64,
    /// One viewer in ten is worse off than this: has less, or waited longer.
    bad: f64,
}

impl From<sessions::Quality> for Quality {
    fn from(told: sessions::Quality) -> Self {
        // Milliseconds and bits are exact in this type, and nobody wants more decimals.
        let seconds = |time: Duration| time.as_millis() as f64 / 1000.0;
        let bits = |bits: u64| bits as f64;
        Self {
            viewers: told.viewers,
            buffer_seconds: told.buffer.map(|it| Spread::of(it, seconds)),
            startup_seconds: told.startup.map(|it| Spread::of(it, seconds)),
            throughput: told.throughput.map(|it| Spread::of(it, bits)),
            bitrate: told.bitrate.map(|it| Spread::of(it, bits)),
            urgent: told.urgent,
            stalls: told.stalls,
        }
    }
}

impl Spread {
    fn of<T>(told: sessions::Spread<T>, number: impl Fn(T) -> f64) -> Self {
        Self { median: number(told.median), bad: number(told.bad) }
    }
}
