//! A publisher. Its messages go into its live stream, and the log tells when it comes and leaves.

use std::time::Duration;

use bytes::Bytes;
use live::UnixMicros;
use live::backup::Seat;
use media::flv::TagKind;
use tokio::time::Instant;
use tracing::field::display;

use crate::ingest;
use crate::ingest::flv::FlvIngest;
use crate::sessions::Meter;
use crate::traces::Trace;

/// A connection's publisher. Dropping it ends the publication.
pub(super) struct Publish {
    ingest: FlvIngest,
    began: Instant,
    /// Counts bytes of audio, video and metadata, without RTMP's own overhead.
    meter: Meter,
}

impl Publish {
    pub(super) fn new(publisher: Seat, meter: Meter, trace: Trace) -> Self {
        let (stream, info) = (publisher.name(), publisher.info());
        let (peer, rendition) = (info.peer.map(display), info.rendition.as_deref());
        tracing::info!(peer, stream, rendition, backup = publisher.is_backup(), "publisher");
        let mut ingest = FlvIngest::new(publisher);
        ingest.trace(trace);
        Self { ingest, began: Instant::now(), meter }
    }

    /// The stream's name.
    pub(super) fn name(&self) -> &str {
        self.ingest.publisher().name()
    }

    /// Whether another publisher has taken over the stream.
    pub(super) fn is_replaced(&self) -> bool {
        self.ingest.publisher().is_replaced()
    }

    /// Takes an FLV tag, as [`FlvIngest::handle_tag`].
    pub(super) fn handle_tag(
        &mut self,
        kind: TagKind,
        timestamp: u32,
        payload: &Bytes,
        now: UnixMicros,
    ) -> Result<(), ingest::Error> {
        self.meter.add(payload.len() as u64);
        self.ingest.handle_tag(kind, timestamp, payload, now)
    }
}

impl Drop for Publish {
    fn drop(&mut self) {
        let info = self.ingest.publisher().info();
        let (peer, rendition) = (info.peer.map(display), info.rendition.as_deref());
        let millis = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (after, bytes) = (Duration::from_millis(millis), self.meter.bytes());
        tracing::info!(peer, stream = self.name(), rendition, ?after, bytes, "publisher left");
    }
}
