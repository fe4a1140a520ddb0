//! Takes what publishers send into live streams.
//!
//! [`Ingest`] is common to all publishers, whatever their protocol: it takes tracks and samples,
//! limits the errors that a publisher may make, and limits what the log says of them. [`flv`] reads
//! the tags of RTMP and FLV files into it.

pub mod clip;
pub mod flv;

use std::collections::HashMap;
use std::fmt::Display;

use live::backup::Seat;
use live::{Refused, UnixMicros};
use media::{Codec, Sample};

use crate::traces::Trace;

/// Passes a publisher's tracks and samples into its live stream.
#[derive(Debug)]
pub struct Ingest {
    publisher: Seat,
    /// Number of problems of each track. The first few are logged, the others only counted.
    problems: HashMap<Option<u32>, u64>,
    /// Number of problems of all tracks, and how many of them were not logged.
    problem_count: u64,
    unlogged: u64,
    /// Number of track configurations so far.
    configured: u64,
    /// Whether the stream has taken any sample.
    good: bool,
    trace: Trace,
}

/// A track, as its publisher's protocol identifies it.
pub trait Source: Copy + Display {
    /// The track's number for the live stream, unique among the publisher's tracks.
    fn number(self) -> u32;
}

/// How many problems of one track, and of all tracks, are logged one by one.
const LOGGED: (u64, u64) = (3, 16);

/// How many track configurations of a publisher are logged. A configuration may change with each
/// frame.
const TOLD: u64 = 64;

/// A publisher with this many problems and no good sample sends garbage.
const GARBAGE: u64 = 64;

/// Why a publisher may not go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The stream refuses its samples.
    #[error("{0}")]
    Refused(#[from] Refused),
    /// Nothing that it sent could be used.
    #[error("{0} problems and not one good sample")]
    Garbage(u64),
}

impl Ingest {
    /// Makes an ingest for this publisher.
    pub fn new(publisher: Seat) -> Self {
        Self {
            publisher,
            problems: HashMap::new(),
            problem_count: 0,
            unlogged: 0,
            configured: 0,
            good: false,
            trace: Trace::default(),
        }
    }

    /// Goes on with what is traced of the publisher, until viewers can watch.
    pub fn trace(&mut self, trace: Trace) {
        self.trace = trace;
    }

    /// The publisher.
    pub fn publisher(&self) -> &Seat {
        &self.publisher
    }

    /// Begins a track, or changes its configuration. The times of its samples are in `timescale`.
    /// `at` tells the place in the publisher's input, for the log.
    ///
    /// # Errors
    /// The publisher may not go on. A codec that is not supported counts as a problem and is
    /// logged.
    pub fn track(
        &mut self,
        track: impl Source,
        (codec, timescale): (Codec, u32),
        at: impl Display,
        now: UnixMicros,
    ) -> Result<(), Error> {
        let name = codec.rfc6381().into_owned();
        let added = self.publisher.track(track.number(), codec, timescale, *b"und", now);
        self.configured += 1;
        match added {
            Ok(()) if self.configured <= TOLD => {
                tracing::info!(stream = self.stream(), %track, codec = name, "track");
            }
            Ok(()) => {}
            // Viewers would lack this track, or decode it with its former header. The publisher may have more success
            // when it returns.
            Err(error @ (Refused::Replaced | Refused::TooOften | Refused::Io(_))) => {
                return Err(error.into());
            }
            Err(error) => self.problem(Some(track), &format_args!("{at}, {track}: {error}")),
        }
        Ok(())
    }

    /// Takes a sample of a track.
    ///
    /// # Errors
    /// The publisher may not go on.
    pub fn sample(
        &mut self,
        track: impl Source,
        sample: Sample,
        now: UnixMicros,
    ) -> Result<(), Error> {
        match self.publisher.sample(track.number(), sample, now) {
            Ok(()) => {
                if !std::mem::replace(&mut self.good, true) {
                    self.trace.first_media(self.publisher.stream());
                }
            }
            // The track was refused when it was announced, and the log says so.
            Err(Refused::UnknownTrack) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Takes the end of a track. Others may go on.
    pub fn end(&mut self, track: impl Source, now: UnixMicros) {
        self.publisher.end_track(track.number(), now);
    }

    /// Counts a problem in what the publisher sends, of one track or of all, and may log it.
    pub fn problem(&mut self, track: Option<impl Source>, problem: &dyn Display) {
        let count = self.problems.entry(track.map(Source::number)).or_default();
        *count += 1;
        self.problem_count += 1;
        let (of_track, of_all) = LOGGED;
        if *count > of_track || self.problem_count - self.unlogged > of_all {
            self.unlogged += 1;
        } else {
            let (stream, peer) = (self.publisher.name(), self.publisher.info().peer);
            let peer = peer.map(tracing::field::display);
            tracing::warn!(stream, peer, %problem, "publisher's media");
        }
    }

    /// Checks whether the publisher sends garbage. Call it now and then.
    ///
    /// # Errors
    /// The publisher sends garbage and may not go on.
    pub fn check(&self) -> Result<(), Error> {
        if !self.good && self.problem_count >= GARBAGE {
            return Err(Error::Garbage(self.problem_count));
        }
        Ok(())
    }

    fn stream(&self) -> &str {
        self.publisher.name()
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
