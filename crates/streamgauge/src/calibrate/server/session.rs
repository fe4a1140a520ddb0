use std::cell::{Cell, OnceCell};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use media::Sample;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, sleep_until};
use viewer::Micros;

use crate::calibrate::script::{Script, micros};
use crate::calibrate::stream::Stream;

/// Most bytes that a slow link carries at once.
const SLICE: usize = 1000;
/// A link that was idle for longer than this does not make up for it.
const IDLE: Duration = Duration::from_millis(500);

/// The zero of a script, by two clocks.
#[derive(Debug, Clone, Copy)]
struct Zero {
    instant: Instant,
    /// Microseconds since 1970.
    unix: Micros,
}

/// What the server knows of its viewer, who gets all media through it.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) script: Script,
    pub(super) stream: Arc<Stream>,
    zero: OnceCell<Zero>,
    has_delayed: Cell<bool>,
    /// When the link is free, if it is slow.
    free: Cell<Option<Instant>>,
}

impl Session {
    pub(super) fn new(script: Script, stream: Arc<Stream>) -> Self {
        let (zero, has_delayed, free) = (OnceCell::new(), Cell::new(false), Cell::new(None));
        Self { script, stream, zero, has_delayed, free }
    }

    /// Takes note that the viewer asks. The first time is the zero of the script.
    pub(super) fn asked(&self) {
        self.zero();
    }

    fn zero(&self) -> Zero {
        *self.zero.get_or_init(|| {
            let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            Zero { instant: Instant::now(), unix: micros(unix) }
        })
    }

    /// Microseconds since 1970 at a time of the script.
    pub(super) fn unix(&self, time: Micros) -> Micros {
        self.zero().unix + time
    }

    /// A time of the script by the clock that waits use.
    pub(super) fn instant(&self, time: Micros) -> std::time::Instant {
        let zero = self.zero().instant;
        let away = Duration::from_micros(time.unsigned_abs());
        // A machine that has just been started may have no such time in its past.
        let at = if time < 0 { zero.checked_sub(away) } else { zero.checked_add(away) };
        at.unwrap_or(zero).into_std()
    }

    /// Waits once for the delay before the first byte of media.
    pub(super) async fn delay(&self) {
        if !self.has_delayed.replace(true) {
            tokio::time::sleep(self.script.delay).await;
        }
    }

    /// How many pieces have come.
    pub(super) fn released(&self) -> u32 {
        let now = micros(self.zero().instant.elapsed());
        let is_later = |piece: &u32| self.script.due(*piece) > now;
        (0..self.script.pieces()).find(is_later).unwrap_or(self.script.pieces())
    }

    /// Waits until a piece comes.
    pub(super) async fn wait_for(&self, piece: u32) {
        if let Ok(after) = u64::try_from(self.script.due(piece)) {
            sleep_until(self.zero().instant + Duration::from_micros(after)).await;
        }
    }

    /// The frames of a piece. One that never comes has none.
    pub(super) fn samples(&self, piece: u32) -> anyhow::Result<Vec<Sample>> {
        let sample = |picture: u32| {
            let captured = self.script.is_stamped.then(|| self.captured(picture));
            self.stream.sample(picture, captured, self.script.wrong == Some(picture))
        };
        self.script.of_piece(piece).map(sample).collect()
    }

    /// When a frame was captured, in microseconds since 1970.
    pub(super) fn captured(&self, picture: u32) -> Micros {
        self.unix(self.script.captured(picture))
    }

    /// The CMAF chunk of a piece; empty if the piece never comes.
    pub(super) fn chunk(&self, piece: u32) -> anyhow::Result<Vec<u8>> {
        let Some(first) = self.script.of_piece(piece).next() else { return Ok(Vec::new()) };
        let captured = (!self.script.is_stamped).then(|| self.captured(first));
        self.stream.chunk(&self.samples(piece)?, captured)
    }

    /// Sends bytes as fast as the viewer's link is.
    pub(super) async fn send(
        &self,
        socket: &mut (impl AsyncWrite + Unpin),
        bytes: &[u8],
    ) -> anyhow::Result<()> {
        let size = if self.script.rate.is_some() { SLICE } else { bytes.len().max(1) };
        for slice in bytes.chunks(size) {
            self.carry(slice.len()).await;
            socket.write_all(slice).await.context("sending")?;
        }
        Ok(())
    }

    /// Waits for as long as the link takes to carry so many bytes.
    pub(super) async fn carry(&self, bytes: usize) {
        let Some(rate) = self.script.rate else { return };
        let bits = u64::try_from(bytes).unwrap_or(u64::MAX).saturating_mul(8);
        let time = Duration::from_micros(bits.saturating_mul(1_000_000) / u64::from(rate.max(1)));
        let now = Instant::now();
        let free = self.free.get().filter(|free| *free + IDLE > now).unwrap_or(now) + time;
        self.free.set(Some(free));
        sleep_until(free).await;
    }
}
