use std::sync::Arc;

use bytes::Bytes;
use media::flv::{Demuxer, Event, Reason, TIMESCALE, TagKind, TrackId};
use media::{Codec, Sample};

use super::{Reference, Stream};
use crate::playback::Track;
use crate::skim::track_of;
use crate::stats::Verified;
use crate::{Error, Kind};

/// Reads FLV tags or RTMP messages and checks them.
#[derive(Debug)]
pub struct Flv {
    demuxer: Demuxer,
    tracks: Vec<FlvTrack>,
    reference: Option<Arc<Reference>>,
}

#[derive(Debug)]
struct FlvTrack {
    id: TrackId,
    codec: Codec,
    stream: Stream,
}

/// An access unit that has been checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// Its track, which is the first of its kind.
    pub track: Track,
    /// The access unit, with times in milliseconds.
    pub sample: Sample,
}

impl Flv {
    /// Starts at the beginning of a stream.
    pub fn new(reference: Option<Arc<Reference>>) -> Self {
        Self { demuxer: Demuxer::new(), tracks: Vec::new(), reference }
    }

    /// Takes a tag, or an RTMP message of the type with the same number. Calls `unit` for each of
    /// its access units.
    ///
    /// # Errors
    /// Its content is broken, or is not the source's.
    pub fn tag(
        &mut self,
        kind: TagKind,
        timestamp: u32,
        payload: &Bytes,
        counts: &mut Verified,
        unit: &mut impl FnMut(Unit),
    ) -> Result<(), Error> {
        let number = self.demuxer.tags();
        self.demuxer.handle_tag(kind, timestamp, payload);
        counts.units += 1;
        while let Some(event) = self.demuxer.poll_event() {
            self.event(event, counts, unit)
                .map_err(|error| error.at(format!("tag {number} at {timestamp} ms")))?;
        }
        Ok(())
    }

    fn event(
        &mut self,
        event: Event,
        counts: &mut Verified,
        unit: &mut impl FnMut(Unit),
    ) -> Result<(), Error> {
        match event {
            Event::Track { track: id, codec } => {
                match self.tracks.iter_mut().find(|track| track.id == id) {
                    // Another configuration: another publisher, or another section of a file.
                    Some(track) => {
                        track.codec = codec;
                        track.stream.restart();
                    }
                    None => {
                        // The reference has only the first track of each kind.
                        let first = id.number == 0;
                        let reference = self.reference.clone().filter(|_| first);
                        let stream = Stream::new(track_of(id.kind), reference);
                        self.tracks.push(FlvTrack { id, codec, stream });
                    }
                }
            }
            Event::Sample { track: id, sample, .. } => {
                if let Some(track) = self.tracks.iter_mut().find(|track| track.id == id) {
                    track.stream.sample(&track.codec, TIMESCALE, &sample, counts)?;
                    if let Some(track) = track_of(id.kind).filter(|_| id.number == 0) {
                        unit(Unit { track, sample });
                    }
                }
            }
            Event::End { track: id } => {
                if let Some(track) = self.tracks.iter_mut().find(|track| track.id == id) {
                    track.stream.restart();
                }
            }
            Event::Problem(problem) => {
                let kind = match problem.reason {
                    Reason::Unsupported(_) => Kind::Unsupported,
                    _ => Kind::Corrupt,
                };
                return Err(Error::new(kind, problem.to_string()));
            }
            Event::Metadata(_) => {}
        }
        Ok(())
    }
}
