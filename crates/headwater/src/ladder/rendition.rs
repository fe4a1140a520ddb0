//! One rendition: takes ffmpeg's output into the stream.

use std::sync::{Arc, PoisonError};

use live::{Derived, Refused};
use media::flv::{Demuxer, Event, Reader, Tag};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use super::Ladder;
use super::log::Severity;

/// Most bytes of one read.
const READ: usize = 64 << 10;

/// A rendition that the origin makes.
pub(super) struct Rendition {
    derived: Derived,
    /// Decode time of its last frame, in the source's timescale.
    made: Option<i64>,
}

impl Rendition {
    pub(super) fn new(derived: Derived) -> Self {
        Self { derived, made: None }
    }

    /// Its name.
    pub(super) fn name(&self) -> &str {
        self.derived.rendition()
    }

    /// Decode time of its last frame, in the source's timescale.
    pub(super) fn made(&self) -> Option<i64> {
        self.made
    }

    /// Tells the stream that viewers need not wait for this rendition.
    pub(super) fn expect_nothing(&mut self) {
        self.derived.expect_nothing();
    }

    /// Takes ffmpeg's output until ffmpeg closes the pipe. Returns the rendition, unless the stream
    /// has refused it.
    pub(super) async fn read(
        mut self,
        mut output: pipe::Receiver,
        ladder: Arc<Ladder>,
    ) -> Option<Self> {
        self.derived.restart();
        let mut taker = Taker { reader: Reader::new(), demuxer: Demuxer::new(), lost: 0 };
        let mut buffer = vec![0; READ];
        let mut refused = None;
        loop {
            match output.read(&mut buffer).await {
                Ok(0) => break,
                // Keeps reading and drops the output: a full pipe would also stop the other
                // renditions.
                Ok(_) if refused.is_some() => {}
                Ok(size) => match taker.take(&buffer[..size], &mut self, &ladder) {
                    Ok(()) => {}
                    Err(Broken::Flv(error)) => {
                        let what =
                            format!("{}: what ffmpeg writes is no FLV: {error}", self.name());
                        ladder.log.say(Severity::Error, &what);
                        break;
                    }
                    Err(Broken::Refused(error)) => refused = Some(error),
                },
                Err(error) => {
                    ladder.log.say(Severity::Warning, &format!("{}: {error}", self.name()));
                    break;
                }
            }
        }
        match refused {
            None | Some(Refused::Over) => Some(self),
            Some(error) => {
                let what = format!("{} is no longer made: {error}", self.name());
                ladder.log.say(Severity::Error, &what);
                None
            }
        }
    }
}

/// Why no more output can be taken.
enum Broken {
    Flv(media::Error),
    Refused(Refused),
}

/// Turns FLV into samples.
struct Taker {
    reader: Reader,
    demuxer: Demuxer,
    /// Number of frames for which no source frame was found.
    lost: u64,
}

impl Taker {
    fn take(&mut self, bytes: &[u8], to: &mut Rendition, ladder: &Ladder) -> Result<(), Broken> {
        self.reader.handle_bytes(bytes);
        while let Some(tag) = self.reader.poll_tag().map_err(Broken::Flv)? {
            self.tag(&tag, to, ladder)?;
        }
        Ok(())
    }

    fn tag(&mut self, tag: &Tag, to: &mut Rendition, ladder: &Ladder) -> Result<(), Broken> {
        self.demuxer.handle_tag(tag.kind, tag.timestamp, &tag.payload);
        while let Some(event) = self.demuxer.poll_event() {
            match event {
                Event::Track { codec, .. } => {
                    to.derived.configure(codec).map_err(Broken::Refused)?;
                }
                Event::Sample { mut sample, .. } => {
                    let frames = ladder.frames.lock().unwrap_or_else(PoisonError::into_inner);
                    let found = frames.find(sample.pts());
                    drop(frames);
                    let Some(frame) = found else {
                        self.lost += 1;
                        continue;
                    };
                    sample.dts = frame.pts - i64::from(frame.early);
                    sample.cts = frame.early;
                    let (made, now) = (sample.dts, ladder.origin.now());
                    let track =
                        to.derived.sample(sample, frame.place, now).map_err(Broken::Refused)?;
                    if let Some(track) = track {
                        to.made = Some(made);
                        ladder.made(&track);
                    }
                }
                Event::Problem(problem) => {
                    ladder.log.say(Severity::Warning, &format!("{}: {problem}", to.name()));
                }
                Event::End { .. } | Event::Metadata(_) => {}
            }
        }
        Ok(())
    }
}

impl Drop for Taker {
    fn drop(&mut self) {
        if self.lost > 0 {
            tracing::debug!(frames = self.lost, "ladder: made of no frame of the source");
        }
    }
}
