//! What publishers send, on its way into a live stream.
//!
//! [`Ingest`] is what any publisher has, whatever its protocol: tracks, samples, a limit to what may be wrong with them
//! and to what the log says of it. [`flv`] reads what RTMP and FLV files carry into it.

pub mod clip;
pub mod flv;

use std::collections::HashMap;
use std::fmt::Display;

use live::{Publisher, Refused, UnixMicros};
use media::{Codec, Sample};

/// A publisher's tracks and samples, into its live stream.
#[derive(Debug)]
pub struct Ingest {
    publisher: Publisher,
    /// Problems of each track: the first few are logged, then only counted.
    problems: HashMap<Option<u32>, u64>,
    /// Problems of all tracks, and how many of them were not logged.
    problem_count: u64,
    unlogged: u64,
    /// Configurations of tracks so far.
    configured: u64,
    /// Whether any sample was good.
    good: bool,
}

/// A track, as its publisher's protocol knows it.
pub trait Source: Copy + Display {
    /// The number live knows it by, of its own among the publisher's tracks.
    fn number(self) -> u32;
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
            problems: HashMap::new(),
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

    /// A track begins, or goes on with another configuration; its samples' times are in `timescale`. `at` says where in
    /// what the publisher sent that is.
    ///
    /// # Errors
    /// The publisher may not go on. A codec that cannot be taken is a problem, and is logged.
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
            // The publisher is not to blame, and without the track it would go on in vain: it may be better off
            // when it returns.
            Err(error @ (Refused::Replaced | Refused::Io(_))) => return Err(error.into()),
            Err(error) => self.problem(Some(track), &format_args!("{at}, {track}: {error}")),
        }
        Ok(())
    }

    /// A sample of a track.
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
            Ok(()) => self.good = true,
            // The track was refused, and said so when it was announced.
            Err(Refused::UnknownTrack) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Something is wrong with what the publisher sends, of a track or of all.
    pub fn problem(&mut self, track: Option<impl Source>, problem: &dyn Display) {
        let count = self.problems.entry(track.map(Source::number)).or_default();
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

    /// To be called now and then.
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
        self.publisher.stream().name()
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
