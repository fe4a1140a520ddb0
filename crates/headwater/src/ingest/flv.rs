//! Takes FLV tags, or RTMP messages, into a live stream.

use bytes::Bytes;
use live::UnixMicros;
use live::backup::Seat;
use media::Kind;
use media::flv::{Demuxer, Event, TIMESCALE, TagKind, TrackId};

use super::{Error, Ingest, Source};
use crate::traces::Trace;

/// A publisher that sends FLV tags.
#[derive(Debug)]
pub struct FlvIngest {
    ingest: Ingest,
    demuxer: Demuxer,
    /// The last jump in time that was logged: its track, and its size in milliseconds.
    jump: Option<(TrackId, i64)>,
}

impl Source for TrackId {
    fn number(self) -> u32 {
        let kind = if self.kind == Kind::Video { 0 } else { 1 << 8 };
        kind | u32::from(self.number)
    }
}

impl FlvIngest {
    /// Makes an ingest for this publisher.
    pub fn new(publisher: Seat) -> Self {
        Self { ingest: Ingest::new(publisher), demuxer: Demuxer::new(), jump: None }
    }

    /// Goes on with what is traced of the publisher, as [`Ingest::trace`].
    pub fn trace(&mut self, trace: Trace) {
        self.ingest.trace(trace);
    }

    /// The publisher.
    pub fn publisher(&self) -> &Seat {
        self.ingest.publisher()
    }

    /// Takes a tag's payload. `timestamp` is in milliseconds, as in the tag.
    ///
    /// # Errors
    /// The publisher may not go on. A tag that is merely broken or unsupported is logged.
    pub fn handle_tag(
        &mut self,
        kind: TagKind,
        timestamp: u32,
        payload: &Bytes,
        now: UnixMicros,
    ) -> Result<(), Error> {
        self.demuxer.handle_tag(kind, timestamp, payload);
        while let Some(event) = self.demuxer.poll_event() {
            match event {
                Event::Track { track, codec } => {
                    let at = format!("tag {}", self.tag());
                    self.ingest.track(track, (codec, TIMESCALE), at, now)?;
                }
                Event::Sample { track, ref sample, step } if event.jumped() => {
                    self.jumped(track, step, sample.dts);
                    self.ingest.sample(track, sample.clone(), now)?;
                }
                Event::Sample { track, sample, .. } => self.ingest.sample(track, sample, now)?,
                Event::Problem(problem) => self.ingest.problem(problem.track, &problem),
                Event::End { track } => self.ingest.end(track, now),
                Event::Metadata(_) => {}
            }
        }
        self.ingest.check()
    }

    /// Logs that a track's time ran back or leapt ahead. The stream's own timeline continues if
    /// possible; otherwise a new period begins, and the stream logs that itself.
    fn jumped(&mut self, track: TrackId, step: i64, time: i64) {
        // Each track of a publisher makes the same jump; it is logged once.
        if let Some((other, by)) = self.jump
            && other != track
            && by.abs_diff(step) < 1000
        {
            self.jump = None;
            return;
        }
        self.jump = Some((track, step));
        let way = if step < 0 { "back" } else { "ahead" };
        let (tag, by) = (self.tag(), step.unsigned_abs());
        let problem = format!("tag {tag}, {track}: time jumps {way} by {by} ms, to {time} ms");
        self.ingest.problem(Some(track), &problem);
    }

    /// Number of the tag being handled.
    fn tag(&self) -> u64 {
        self.demuxer.tags().saturating_sub(1)
    }
}
