//! One rendition: takes ffmpeg's output into the stream.

use std::sync::Arc;

use live::{Derived, Refused};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use super::Ladder;
use super::log::Severity;
use super::output::{Made, Output};

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
        let mut made = Output::new();
        let mut buffer = vec![0; READ];
        let mut refused = None;
        loop {
            match output.read(&mut buffer).await {
                Ok(0) => break,
                // Keeps reading and drops the output: a full pipe would also stop the other
                // renditions.
                Ok(_) if refused.is_some() => {}
                Ok(size) => match self.take(&mut made, &buffer[..size], &ladder) {
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

    /// Takes what ffmpeg wrote into the stream.
    fn take(&mut self, output: &mut Output, bytes: &[u8], ladder: &Ladder) -> Result<(), Broken> {
        output.handle_bytes(bytes);
        while let Some(made) = output.poll(&ladder.frames).map_err(Broken::Flv)? {
            match made {
                Made::Codec(codec) => self.derived.configure(codec).map_err(Broken::Refused)?,
                Made::Sample(mut sample, frame) => {
                    sample.dts = frame.pts - i64::from(frame.early);
                    sample.cts = frame.early;
                    let (made, now) = (sample.dts, ladder.origin.now());
                    let track =
                        self.derived.sample(sample, frame.place, now).map_err(Broken::Refused)?;
                    if let Some(track) = track {
                        self.made = Some(made);
                        ladder.made(&track);
                    }
                }
                Made::Problem(problem) => {
                    ladder.log.say(Severity::Warning, &format!("{}: {problem}", self.name()));
                }
            }
        }
        Ok(())
    }
}

/// Why no more output can be taken.
enum Broken {
    Flv(media::Error),
    Refused(Refused),
}
