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

    /// Takes ffmpeg's output until ffmpeg closes the pipe, or until the stream does not take it:
    /// ffmpeg then finds the pipe closed and ends, and encodes nothing that nobody gets. Returns the
    /// rendition, which may go on with another process.
    ///
    /// # Errors
    /// The stream takes no more of it.
    pub(super) async fn read(
        mut self,
        mut output: pipe::Receiver,
        ladder: Arc<Ladder>,
    ) -> Result<Self, Refused> {
        self.derived.restart();
        let mut made = Output::new();
        let mut buffer = vec![0; READ];
        let mut is_over = false;
        loop {
            let size = match output.read(&mut buffer).await {
                Ok(0) => return Ok(self),
                Ok(_) if is_over => continue,
                Ok(size) => size,
                Err(error) => {
                    ladder.log.say(Severity::Warning, &format!("{}: {error}", self.name()));
                    return Ok(self);
                }
            };
            match self.take(&mut made, &buffer[..size], &ladder) {
                Ok(()) => {}
                Err(Broken::Flv(error)) => {
                    let what = format!("{}: what ffmpeg writes is no FLV: {error}", self.name());
                    ladder.log.say(Severity::Error, &what);
                    return Ok(self);
                }
                // ffmpeg ends with its input. Until then the last frames are read and dropped.
                Err(Broken::Refused(Refused::Over)) => is_over = true,
                // Other streams may need less memory soon.
                Err(Broken::Refused(error @ Refused::Io(_))) => {
                    ladder.log.say(Severity::Error, &format!("{}: {error}", self.name()));
                    return Ok(self);
                }
                // The stream was given to another machine.
                Err(Broken::Refused(error @ Refused::Replaced)) => return Err(error),
                Err(Broken::Refused(error)) => {
                    let what = format!("{} is no longer made: {error}", self.name());
                    ladder.log.say(Severity::Error, &what);
                    return Err(error);
                }
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use live::{Publisher, PublisherInfo, Segment, SegmentId};
    use media::codec::avc;
    use media::flv::{Packetizer, file_header};
    use media::{Codec, Sample};
    use tokio::io::AsyncWriteExt;
    use tokio::time::timeout;

    use super::*;
    use crate::Origin;
    use crate::config::{Config, Size};
    use crate::ladder::log::Log;

    /// How long a reader may take that does not wait for anything.
    const LIMIT: Duration = Duration::from_secs(60);

    /// A stream of 25 frames a second that is not offered itself.
    struct Scene {
        ladder: Arc<Ladder>,
        publisher: Publisher,
        frames: i64,
    }

    impl Scene {
        fn new() -> Self {
            let mut config = Config::default();
            config.ladder.source = false;
            config.live.memory = Size::from_mib(16);
            let origin = Arc::new(Origin::new(config));
            let info = PublisherInfo { peer: None, protocol: "test", rendition: None };
            let mut publisher = origin.registry.publish("x", info, origin.now()).unwrap();
            publisher.track(0, codec(31), 1000, *b"und", origin.now()).unwrap();
            let stream = Arc::clone(publisher.stream());
            let source = stream.track("v0").unwrap();
            let log = Arc::new(Log::new("ladder", "x"));
            let ladder =
                Arc::new(Ladder { origin, stream, source, frames: Default::default(), log });
            Self { ladder, publisher, frames: 0 }
        }

        fn rendition(&self) -> Rendition {
            let Ladder { origin, stream, .. } = &*self.ladder;
            Rendition::new(stream.derive("low", Duration::ZERO, origin.now()).unwrap())
        }

        /// Publishes until there is no memory for more. Returns what holds it.
        fn fill(&mut self) -> Vec<Arc<Segment>> {
            let mut held = Vec::new();
            // Memory is taken for several parts at once, and for fewer as these get smaller.
            for size in [100_000, 5_000, 100] {
                let mut refused = 0;
                while refused < 30 {
                    let (dts, sync) = (self.frames * 40, self.frames % 25 == 0);
                    self.frames += 1;
                    let data = vec![7; size].into();
                    let sample = Sample { dts, cts: 0, duration: 0, sync, data };
                    match self.publisher.sample(0, sample, self.ladder.origin.now()) {
                        Ok(()) => held.extend(self.ladder.source.window().all().cloned()),
                        Err(Refused::Io(_)) => refused += 1,
                        Err(error) => panic!("{error}"),
                    }
                }
            }
            held
        }

        /// Lets a rendition read three seconds from an ffmpeg that does not end, until the rendition does
        /// not read on.
        async fn read(&self, rendition: Rendition) -> Result<Rendition, Refused> {
            let packets = Packetizer::new(0, &codec(10), 1000).unwrap();
            let mut flv = file_header(false, true).to_vec();
            flv.extend(packets.sequence_header(0).unwrap().tag());
            let place = SegmentId { period: 0, msn: self.ladder.source.header().msn };
            for frame in 25..100 {
                let (dts, sync) = (frame * 40, frame % 25 == 0);
                self.ladder.frames.lock().unwrap().add(dts * 90, 90_000, place);
                let data = Bytes::from_static(&[0, 0, 0, 4, 0x65, 1, 2, 3]);
                let sample = Sample { dts, cts: 0, duration: 40, sync, data };
                flv.extend(packets.sample(&sample).unwrap().tag());
            }
            let (mut ffmpeg, output) = pipe::pipe().unwrap();
            let reading = tokio::spawn(rendition.read(output, Arc::clone(&self.ladder)));
            ffmpeg.write_all(&flv).await.unwrap();
            let writes = async { while ffmpeg.write_all(b"more").await.is_ok() {} };
            timeout(LIMIT, writes).await.expect("the pipe is closed");
            reading.await.unwrap()
        }
    }

    fn codec(level: u8) -> Codec {
        Codec::Avc(avc::Config::parse(testkit::avc_record(level).into()).unwrap())
    }

    #[tokio::test]
    async fn one_for_which_there_is_no_memory_closes_its_pipe_and_goes_on_later() {
        let mut scene = Scene::new();
        let rendition = scene.rendition();
        let held = scene.fill();
        let rendition = scene.read(rendition).await.expect("it may go on");
        assert!(scene.ladder.source.is_present(), "viewers have nothing else");
        drop(held);
        let rendition = scene.read(rendition).await.expect("it goes on");
        assert!(rendition.made().is_some());
        assert!(!scene.ladder.source.is_present());
    }

    #[tokio::test]
    async fn one_that_the_stream_refuses_closes_its_pipe() {
        let mut scene = Scene::new();
        let rendition = scene.rendition();
        for source in 1..16 {
            let now = scene.ladder.origin.now();
            scene.publisher.track(source, codec(31), 1000, *b"und", now).unwrap();
        }
        let refused = scene.read(rendition).await.err();
        assert!(matches!(refused, Some(Refused::TooManyTracks)), "{refused:?}");

        let scene = Scene::new();
        let rendition = scene.rendition();
        scene.ladder.stream.expel();
        let refused = scene.read(rendition).await.err();
        assert!(matches!(refused, Some(Refused::Replaced)), "{refused:?}");
    }
}
