//! Takes FLV tags, or RTMP messages, into a live stream.

use std::time::Duration;

use bytes::Bytes;
use live::UnixMicros;
use live::backup::Seat;
use media::Kind;
use media::flv::{Demuxer, Event, Metadata, TIMESCALE, TagKind, TrackId};

use super::{Error, Ingest, Source};
use crate::traces::Trace;

/// For how long audio at the beginning is left out while video is announced and has not come. Some cameras send no
/// sequence header of video before its first keyframe. How far apart keyframes are decides what segments may last, and
/// without video the audio would decide that for good.
const AWAITED: Duration = Duration::from_secs(5);

/// A publisher that sends FLV tags.
#[derive(Debug)]
pub struct FlvIngest {
    ingest: Ingest,
    demuxer: Demuxer,
    /// The last jump in time that was logged: its track, and its size in milliseconds.
    jump: Option<(TrackId, i64)>,
    /// Until when audio waits for the video that the publisher's metadata announced.
    awaits_video: Option<UnixMicros>,
    /// Whether a track has begun.
    has_tracks: bool,
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
        Self {
            ingest: Ingest::new(publisher),
            demuxer: Demuxer::new(),
            jump: None,
            awaits_video: None,
            has_tracks: false,
        }
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
                Event::Metadata(metadata) if !self.has_tracks => {
                    self.awaits_video = has_video(&metadata).then(|| now.after(AWAITED));
                }
                Event::Track { track, codec } => {
                    self.has_tracks = true;
                    if track.kind == Kind::Video {
                        self.awaits_video = None;
                    }
                    let at = format!("tag {}", self.tag());
                    self.ingest.track(track, (codec, TIMESCALE), at, now)?;
                }
                // Only audio comes before a video track.
                Event::Sample { .. } if self.awaits_video.is_some_and(|until| now < until) => {}
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

/// Whether metadata announce video. Publishers without video write zeros, or nothing.
fn has_video(metadata: &Metadata) -> bool {
    [metadata.video_codec, metadata.width].into_iter().flatten().any(|value| value > 0.0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use live::backup::{Role, Seats, Times};
    use live::{PublisherInfo, Registry, Settings};

    use super::*;

    const START: u64 = 1_700_000_000_000_000;

    /// What segments may last of a stream whose audio begins at once, and whose video has a keyframe each 8 s.
    /// `video_from` is when its sequence header and its first keyframe come, in milliseconds.
    fn target_duration(metadata: &Metadata, video_from: u32) -> Duration {
        let registry = Arc::new(Registry::new(Settings::default()));
        let [after, steady, silence] = [1, 3, 10].map(Duration::from_secs);
        let times = Times { after, steady, silence };
        let seats = Arc::new(Seats::new(registry, times));
        let info = PublisherInfo { peer: None, protocol: "rtmp", rendition: None };
        let seat = seats.enter("x", (Role::Primary, info), None, UnixMicros(START)).unwrap();
        let mut ingest = FlvIngest::new(seat);
        let mut take = |kind, millis: u32, payload: Vec<u8>| {
            let now = UnixMicros(START + u64::from(millis) * 1000);
            ingest.handle_tag(kind, millis, &payload.into(), now).unwrap();
        };
        take(TagKind::Script, 0, metadata.payload().to_vec());
        take(TagKind::Audio, 0, b"\xaf\x00\x11\x90".to_vec());
        for millis in 0..video_from + 20_000 {
            if millis % 21 == 0 {
                take(TagKind::Audio, millis, b"\xaf\x01audio".to_vec());
            }
            let Some(age) = millis.checked_sub(video_from) else { continue };
            if age == 0 {
                take(
                    TagKind::Video,
                    millis,
                    [&b"\x17\x00\0\0\0"[..], &testkit::avc_record(31)].concat(),
                );
            }
            if age % 40 == 0 {
                let kind = if age % 8_000 == 0 { 0x17 } else { 0x27 };
                take(TagKind::Video, millis, [kind, 1, 0, 0, 0, 0, 0, 0, 2, 0x65, 0x88].to_vec());
            }
        }
        let stream = ingest.publisher().stream().unwrap();
        stream.target_duration()
    }

    #[test]
    fn video_that_is_announced_decides_what_segments_may_last() {
        let announced = Metadata { video_codec: Some(7.0), ..Metadata::default() };
        let seconds = |metadata, video_from| target_duration(metadata, video_from).as_secs();
        assert_eq!(seconds(&announced, 4_000), 10);
        // It may never come.
        assert_eq!(seconds(&announced, 8_000), 4);
        assert_eq!(seconds(&Metadata::default(), 4_000), 4);
    }
}
