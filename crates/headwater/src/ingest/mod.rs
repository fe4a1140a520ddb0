//! What publishers send, on its way into a live stream.

pub mod clip;

use std::collections::HashMap;

use bytes::Bytes;
use live::{Publisher, Refused, UnixMicros};
use media::Kind;
use media::flv::{Demuxer, Event, TIMESCALE, TagKind, TrackId};

/// FLV tags, or RTMP messages, into a live stream.
#[derive(Debug)]
pub struct Ingest {
    publisher: Publisher,
    demuxer: Demuxer,
    /// Problems of each track: the first few are logged, then only counted.
    problems: HashMap<Option<TrackId>, u64>,
}

/// How many problems of one track are logged before only their number is.
const LOGGED: u64 = 3;

impl Ingest {
    /// Ingest by this publisher.
    pub fn new(publisher: Publisher) -> Self {
        Self { publisher, demuxer: Demuxer::new(), problems: HashMap::new() }
    }

    /// Who publishes what.
    pub fn publisher(&self) -> &Publisher {
        &self.publisher
    }

    /// Takes a tag's payload, its timestamp in milliseconds as it stands in the tag.
    ///
    /// # Errors
    /// The publisher may not go on. What is merely broken or unsupported in the tag is logged.
    pub fn handle_tag(
        &mut self,
        kind: TagKind,
        timestamp: u32,
        payload: &Bytes,
        now: UnixMicros,
    ) -> Result<(), Refused> {
        self.demuxer.handle_tag(kind, timestamp, payload);
        while let Some(event) = self.demuxer.poll_event() {
            match event {
                Event::Track { track, codec } => {
                    let name = codec.rfc6381().into_owned();
                    let added = self.publisher.track(source(track), codec, TIMESCALE, *b"und", now);
                    match added {
                        Ok(()) => tracing::info!(
                            stream = self.stream(), %track, codec = name, "track"
                        ),
                        Err(Refused::Replaced) => return Err(Refused::Replaced),
                        Err(error) => self.problem(Some(track), &error),
                    }
                }
                Event::Sample { track, sample, .. } => {
                    match self.publisher.sample(source(track), sample, now) {
                        Ok(()) => {}
                        // The track was refused, and said so when it was announced.
                        Err(Refused::UnknownTrack) => {}
                        Err(error) => return Err(error),
                    }
                }
                Event::Problem(problem) => self.problem(problem.track, &problem),
                Event::End { .. } | Event::Metadata(_) => {}
            }
        }
        Ok(())
    }

    fn stream(&self) -> &str {
        self.publisher.stream().name()
    }

    fn problem(&mut self, track: Option<TrackId>, problem: &dyn std::fmt::Display) {
        let count = self.problems.entry(track).or_default();
        *count += 1;
        if *count <= LOGGED {
            let (stream, peer) = (self.publisher.stream().name(), self.publisher.info().peer);
            tracing::warn!(stream, ?peer, %problem, "publisher's media");
        }
    }
}

impl Drop for Ingest {
    fn drop(&mut self) {
        let unlogged: u64 = self.problems.values().map(|count| count.saturating_sub(LOGGED)).sum();
        if unlogged > 0 {
            tracing::warn!(stream = self.stream(), unlogged, "further problems of the publisher");
        }
    }
}

/// The number live knows a track by.
fn source(track: TrackId) -> u32 {
    let kind = if track.kind == Kind::Video { 0 } else { 1 << 8 };
    kind | u32::from(track.number)
}
