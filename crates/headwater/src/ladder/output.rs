//! Reads the video that ffmpeg writes, as FLV.

use std::sync::{Mutex, PoisonError};

use media::flv::{Demuxer, Event, Reader};
use media::{Codec, Error, Sample};

use super::source::{Frame, Frames};

/// Turns FLV into samples, and finds the frames that they were made of.
#[derive(Debug)]
pub(super) struct Output {
    reader: Reader,
    demuxer: Demuxer,
    /// Number of frames for which no source frame was found.
    lost: u64,
}

/// What ffmpeg made.
#[derive(Debug)]
pub(super) enum Made {
    /// The codec of the samples that follow.
    Codec(Codec),
    /// A sample, and the frame it was made of. Its own times are ffmpeg's.
    Sample(Sample, Frame),
    /// Something is wrong, and the rest goes on.
    Problem(String),
}

impl Output {
    pub(super) fn new() -> Self {
        Self { reader: Reader::new(), demuxer: Demuxer::new(), lost: 0 }
    }

    /// Takes bytes that ffmpeg wrote.
    pub(super) fn handle_bytes(&mut self, bytes: &[u8]) {
        self.reader.handle_bytes(bytes);
    }

    /// What comes next, if it is complete.
    ///
    /// # Errors
    /// The bytes are no FLV.
    pub(super) fn poll(&mut self, frames: &Mutex<Frames>) -> Result<Option<Made>, Error> {
        loop {
            while let Some(event) = self.demuxer.poll_event() {
                match event {
                    Event::Track { codec, .. } => return Ok(Some(Made::Codec(codec))),
                    Event::Sample { sample, .. } => {
                        let frames = frames.lock().unwrap_or_else(PoisonError::into_inner);
                        match frames.find(sample.pts()) {
                            Some(frame) => return Ok(Some(Made::Sample(sample, frame))),
                            None => self.lost += 1,
                        }
                    }
                    Event::Problem(problem) => {
                        return Ok(Some(Made::Problem(problem.to_string())));
                    }
                    Event::End { .. } | Event::Metadata(_) => {}
                }
            }
            let Some(tag) = self.reader.poll_tag()? else { return Ok(None) };
            self.demuxer.handle_tag(tag.kind, tag.timestamp, &tag.payload);
        }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if self.lost > 0 {
            tracing::debug!(frames = self.lost, "ffmpeg wrote frames made of none of the source");
        }
    }
}
