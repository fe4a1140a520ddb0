//! What publishers send, on its way into a live stream.

pub mod clip;

use std::collections::HashMap;

use bytes::Bytes;
use live::{Publisher, Refused, UnixMicros};
use media::flv::{Demuxer, Event, TIMESCALE, TagKind, TrackId};
use media::{Kind, Sample};

/// FLV tags, or RTMP messages, into a live stream.
#[derive(Debug)]
pub struct Ingest {
    publisher: Publisher,
    demuxer: Demuxer,
    /// Problems of each track: the first few are logged, then only counted.
    problems: HashMap<Option<TrackId>, u64>,
    /// The last jump in time that was told, by track and milliseconds.
    jump: Option<(TrackId, i64)>,
    /// Problems of all tracks, and how many of them were not logged.
    problem_count: u64,
    unlogged: u64,
    /// Configurations of tracks so far.
    configured: u64,
    /// Whether any sample was good.
    good: bool,
}

/// How many problems of one track, and of all, are logged before only their number is.
const LOGGED: (u64, u64) = (3, 16);

/// So many configurations of a publisher's tracks are logged: one may change with each frame.
const TOLD: u64 = 64;

/// A publisher with so many problems and not one good sample sends garbage.
const GARBAGE: u64 = 64;

/// Why a publisher may not go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The stream does not take its samples.
    #[error("{0}")]
    Refused(#[from] Refused),
    /// Nothing it sent could be used.
    #[error("{0} problems and not one good sample")]
    Garbage(u64),
}

impl Ingest {
    /// Ingest by this publisher.
    pub fn new(publisher: Publisher) -> Self {
        Self {
            publisher,
            demuxer: Demuxer::new(),
            problems: HashMap::new(),
            jump: None,
            problem_count: 0,
            unlogged: 0,
            configured: 0,
            good: false,
        }
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
    ) -> Result<(), Error> {
        self.demuxer.handle_tag(kind, timestamp, payload);
        while let Some(event) = self.demuxer.poll_event() {
            match event {
                Event::Track { track, codec } => {
                    let name = codec.rfc6381().into_owned();
                    let added = self.publisher.track(source(track), codec, TIMESCALE, *b"und", now);
                    self.configured += 1;
                    match added {
                        Ok(()) if self.configured <= TOLD => tracing::info!(
                            stream = self.stream(), %track, codec = name, "track"
                        ),
                        Ok(()) => {}
                        // The publisher is not to blame, and without the track it would go on in
                        // vain: it may be better off when it returns.
                        Err(error @ (Refused::Replaced | Refused::Io(_))) => {
                            return Err(error.into());
                        }
                        Err(error) => {
                            let problem = format!("tag {}, {track}: {error}", self.tag());
                            self.problem(Some(track), &problem);
                        }
                    }
                }
                Event::Sample { track, ref sample, step } if event.jumped() => {
                    self.jumped(track, step, sample.dts);
                    self.sample(track, sample.clone(), now)?;
                }
                Event::Sample { track, sample, .. } => self.sample(track, sample, now)?,
                Event::Problem(problem) => self.problem(problem.track, &problem),
                Event::End { .. } | Event::Metadata(_) => {}
            }
        }
        if !self.good && self.problem_count >= GARBAGE {
            return Err(Error::Garbage(self.problem_count));
        }
        Ok(())
    }

    fn sample(&mut self, track: TrackId, sample: Sample, now: UnixMicros) -> Result<(), Refused> {
        match self.publisher.sample(source(track), sample, now) {
            Ok(()) => {
                self.good = true;
                Ok(())
            }
            // The track was refused, and said so when it was announced.
            Err(Refused::UnknownTrack) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Time ran back, or leapt: the stream's own timeline goes on as it can, and says where it had
    /// to begin a new period.
    fn jumped(&mut self, track: TrackId, step: i64, time: i64) {
        // Each track of a publisher feels the same jump.
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
        self.problem(Some(track), &problem);
    }

    /// Number of the tag being handled.
    fn tag(&self) -> u64 {
        self.demuxer.tags().saturating_sub(1)
    }

    fn stream(&self) -> &str {
        self.publisher.stream().name()
    }

    fn problem(&mut self, track: Option<TrackId>, problem: &dyn std::fmt::Display) {
        let count = self.problems.entry(track).or_default();
        *count += 1;
        self.problem_count += 1;
        let (of_track, of_all) = LOGGED;
        if *count > of_track || self.problem_count - self.unlogged > of_all {
            self.unlogged += 1;
        } else {
            let (stream, peer) = (self.publisher.stream().name(), self.publisher.info().peer);
            let peer = peer.map(tracing::field::display);
            tracing::warn!(stream, peer, %problem, "publisher's media");
        }
    }
}

impl Drop for Ingest {
    fn drop(&mut self) {
        if self.unlogged > 0 {
            let (stream, peer) = (self.stream(), self.publisher.info().peer);
            let (peer, unlogged) = (peer.map(tracing::field::display), self.unlogged);
            tracing::warn!(stream, peer, unlogged, "further problems of the publisher's media");
        }
    }
}

/// The number live knows a track by.
fn source(track: TrackId) -> u32 {
    let kind = if track.kind == Kind::Video { 0 } else { 1 << 8 };
    kind | u32::from(track.number)
}
