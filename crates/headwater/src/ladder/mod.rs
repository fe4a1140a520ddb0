//! Renditions of live streams that the origin itself makes, with ffmpeg.
//!
//! ```text
//!  window ─ source ─▶ matroska ─ pipe ─▶ ffmpeg ─ pipe of each ─▶ FLV ─ rendition ─▶ live::Derived
//!               └──────────── frames: exact times and places ─────────▲
//! ```
//!
//! One process decodes a stream once and makes all its renditions. It gets the parts in the
//! stream's window, as a viewer does. Input and output are pipes: this needs no address, port or
//! certificate, and nothing counts as a viewer or a publisher. ffmpeg's standard input is a pipe of
//! the origin, so ffmpeg ends when the origin does, for whatever reason.
//!
//! Only video is transcoded; all renditions share the publisher's audio. Each output frame is
//! matched with the frame it was made of ([`source::Frames`]) and gets that frame's time. So the
//! timestamps of a rendition equal those of its source to the tick.
//!
//! A [`companion`] is another such process, for viewers by WebRTC.

mod calls;
mod command;
pub mod companion;
pub mod confine;
mod log;
mod matroska;
mod output;
mod process;
mod rendition;
mod slots;
mod source;

use std::collections::{HashMap, HashSet};
use std::future::pending;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use command::{Made, Rate, fitting};
pub use companion::Companions;
use live::follow::{Next, TrackFollower};
use live::{Part, Refused, Segment, Status, Stream, Track};
use log::{Log, Severity};
use media::Kind;
use process::{BACK_OFF, End, Failures, Process};
use rendition::Rendition;
use slots::Applicant;
pub use slots::Slots;
use source::{Frames, MOST_BEHIND};
use tokio::process::ChildStdin;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::config::Sandbox;
use crate::{Origin, machine};

/// How long the manifests of a new stream wait for its renditions. Many players never look at a
/// rendition that is missing in the first manifest.
const AWAITED: Duration = Duration::from_secs(8);

/// Viewers are offered only the renditions, if so configured. After this many failures in a row,
/// they are offered the source instead.
const HOPELESS: u32 = 2;

/// Makes the renditions of every stream for which the configuration asks. Runs for ever.
pub async fn run(origin: Arc<Origin>, slots: Arc<Slots>) {
    let config = &origin.config;
    if (config.ladder.enabled || config.webrtc.transcodes())
        && config.ladder.sandbox != Sandbox::Off
    {
        if !machine::has_landlock() {
            tracing::warn!("ladder.sandbox: this kernel has no Landlock: ffmpeg can open any file");
        }
        if !machine::has_seccomp() {
            let then = "ffmpeg can reach the network and other processes";
            tracing::warn!("ladder.sandbox: this kernel has no seccomp: {then}");
        }
    }
    if !config.ladder.enabled {
        return;
    }
    let mut begun = origin.registry.begun();
    // The streams of this machine that are not over, by name.
    let mut streams: HashMap<String, Weak<Stream>> = HashMap::new();
    let mut ladders = JoinSet::new();
    loop {
        begun.mark_unchanged();
        streams.retain(|_, known| known.strong_count() > 0);
        for stream in origin.registry.streams() {
            let name = stream.name();
            // An earlier stream may have had the same name.
            let is_it = |known: &Weak<Stream>| known.as_ptr() == Arc::as_ptr(&stream);
            if streams.get(name).is_some_and(is_it) {
                continue;
            }
            // A copy has the renditions that its own machine makes.
            let is_own = !stream.is_mirrored() && stream.state().status != Status::Ended;
            if origin.config.ladder.wants(name) && is_own {
                streams.insert(name.to_owned(), Arc::downgrade(&stream));
                let (origin, slots) = (Arc::clone(&origin), Arc::clone(&slots));
                let (name, weak) = (name.to_owned(), Arc::downgrade(&stream));
                ladders.spawn(async move {
                    follow(origin, stream, slots).await;
                    (name, weak)
                });
            }
        }
        tokio::select! {
            changed = begun.changed() => if changed.is_err() { return },
            // A stream that was given to another machine may come back.
            Some(ended) = ladders.join_next() => if let Ok((name, stream)) = ended {
                streams.retain(|known, it| *known != name || !Weak::ptr_eq(it, &stream));
            },
        }
    }
}

/// Makes the renditions of one stream until the stream is over, or is another machine's.
async fn follow(origin: Arc<Origin>, stream: Arc<Stream>, slots: Arc<Slots>) {
    let renditions = async {
        while make_renditions(&origin, &stream, &slots).await {}
        // No more is made of this stream.
        pending::<()>().await;
    };
    // Where one of the others ends, `make_renditions` is dropped at whatever point it waits. A
    // process that is left is killed with its handle.
    tokio::select! {
        () = renditions => {}
        () = ended(stream.subscribe()) => {}
        () = given_away(&stream) => {}
    }
}

/// Makes renditions of one source track. Returns whether another may follow, because this one ended.
async fn make_renditions(origin: &Arc<Origin>, stream: &Arc<Stream>, slots: &Arc<Slots>) -> bool {
    // The source is the publisher's main video. If the publisher sends renditions itself, they have
    // a rendition's name.
    let is_source = |track: &&Arc<Track>| {
        track.kind == Kind::Video && track.rendition.is_none() && !track.window().ended
    };
    let mut state = stream.subscribe();
    // The publisher's address decides which slots the stream may take.
    let known = state.wait_for(|state| {
        let has_publisher = state.publishers.iter().any(|it| it.rendition.is_none());
        has_publisher && state.tracks.iter().any(|track| is_source(&track))
    });
    let Ok(known) = known.await.map(|state| Arc::clone(&state)) else { return false };
    let Some(source) = known.tracks.iter().find(is_source).cloned() else { return true };
    let log = Arc::new(Log::new("ladder", stream.name()));
    let config = &origin.config.ladder;
    let waits = |option: &str| {
        let what = match option {
            "max_per_address" => {
                let most = config.max_per_address;
                format!("ladder.max_per_address = {most} of its publisher have theirs made")
            }
            "max_outside" => {
                "places are left for ladder.own_networks only (ladder.max_outside)".to_owned()
            }
            _ => format!("ladder.max_streams = {} have theirs made", config.max_streams),
        };
        log.say(Severity::Warning, &format!("no renditions yet: {what}"));
    };
    let applicant = Applicant::new(config, stream.name(), &known);
    drop(known);
    let Some(_place) = slots.take(applicant, waits).await else { return false };
    let ladder = Arc::new(Ladder {
        origin: Arc::clone(origin),
        stream: Arc::clone(stream),
        source: Arc::clone(&source),
        frames: Mutex::default(),
        log,
    });
    let mut supervisor = Supervisor { ladder, renditions: Vec::new(), given_up: HashSet::new() };
    supervisor.run().await;
    source.window().ended
}

/// Waits until a stream is over and its last frames have had time to come out.
async fn ended(mut state: watch::Receiver<Arc<live::State>>) {
    let _ = state.wait_for(|state| state.status == Status::Ended).await;
    sleep(2 * process::LAST).await;
}

/// Waits until a stream is a copy of what another machine goes on with.
async fn given_away(stream: &Stream) {
    let mut state = stream.subscribe();
    // The copy tells of what the other machine has.
    while !stream.is_mirrored() && state.changed().await.is_ok() {}
}

/// State that everything about a stream's renditions shares.
struct Ladder {
    origin: Arc<Origin>,
    stream: Arc<Stream>,
    source: Arc<Track>,
    frames: Mutex<Frames>,
    log: Arc<Log>,
}

impl Ladder {
    /// Notes that a rendition got a frame.
    fn made(&self, rendition: &Track) {
        if !self.origin.config.ladder.source
            && self.source.is_present()
            && rendition.part_limit().is_some()
        {
            self.stream.offer(&self.source, false);
        }
    }
}

struct Supervisor {
    ladder: Arc<Ladder>,
    /// The renditions whose names belong to this ladder.
    renditions: Vec<Rendition>,
    /// Names of renditions that are not made, because a publisher uses them or the stream refuses them.
    given_up: HashSet<String>,
}

impl Supervisor {
    async fn run(&mut self) {
        let log = Arc::clone(&self.ladder.log);
        let counters = &Arc::clone(&self.ladder.origin).ladders;
        let mut failures = Failures::default();
        loop {
            let began = Instant::now();
            let failed = match self.make().await {
                End::Over => return,
                End::NothingLeft => {
                    self.ladder.stream.offer(&self.ladder.source, true);
                    return;
                }
                End::Changed => {
                    // A publisher may change its configuration with each frame.
                    sleep_until(began + BACK_OFF.0).await;
                    continue;
                }
                End::Failed(why) => why,
            };
            counters.failed.fetch_add(1, Ordering::Relaxed);
            let wait = failures.add(began.elapsed());
            log.say(Severity::Error, &format!("{failed}; starting it again in {wait:?}"));
            for rendition in &mut self.renditions {
                rendition.expect_nothing();
            }
            if failures.0 >= HOPELESS {
                self.ladder.stream.offer(&self.ladder.source, true);
            }
            sleep(wait).await;
        }
    }

    /// Claims the names of the renditions for a source of this size, and gives up all others.
    fn claim(&mut self, size: (u32, u32)) -> Vec<Made> {
        let Ladder { origin, stream, log, .. } = &*self.ladder;
        let mut made = fitting(&origin.config.ladder.rungs, size);
        self.renditions.retain(|known| made.iter().any(|made| made.rung.name == known.name()));
        for Made { rung, .. } in &made {
            let known = self.renditions.iter().any(|known| known.name() == rung.name);
            if known || self.given_up.contains(&rung.name) {
                continue;
            }
            match stream.derive(&rung.name, AWAITED, origin.now()) {
                Ok(derived) => self.renditions.push(Rendition::new(derived)),
                Err(error) => {
                    log.say(Severity::Warning, &format!("{} is not made: {error}", rung.name));
                    self.given_up.insert(rung.name.clone());
                }
            }
        }
        made.retain(|made| self.renditions.iter().any(|known| known.name() == made.rung.name));
        made
    }

    /// Runs one process from its start to its end.
    async fn make(&mut self) -> End {
        match self.start().await {
            Ok(started) => self.attend(started).await,
            Err(end) => end,
        }
    }

    /// Starts ffmpeg for the next media of the source.
    async fn start(&mut self) -> Result<Started, End> {
        let ladder = Arc::clone(&self.ladder);
        let failed = |why: &str| End::Failed(why.to_owned());
        let size = ladder.source.header().track.codec.resolution();
        let size = size.ok_or_else(|| failed("the size of its frames is not known"))?;
        // Names are claimed before there is any media, so that manifests wait for the renditions.
        self.claim(size);
        let done = self.renditions.iter().map(Rendition::made).min().flatten();
        let mut source = TrackFollower::from_newest(&ladder.source, done, MOST_BEHIND);
        let (segment, part) = loop {
            match source.next().await {
                Next::Part(segment, part) => break (segment, part),
                Next::Skipped => {}
                Next::Over => return Err(End::Over),
            }
        };
        let track = &segment.header.track;
        let made = self.claim(track.codec.resolution().unwrap_or(size));
        if made.is_empty() {
            // The log tells why.
            return Err(End::NothingLeft);
        }
        let frames = part.samples.len() as u64;
        let rate = Rate { frames, ticks: part.duration.into(), timescale: track.timescale };
        let header = matroska::header(&[(&track.codec, Some(rate.frame()))]);
        let header = header.ok_or_else(|| failed("its codec cannot be decoded"))?;
        let mut config = ladder.origin.config.ladder.clone();
        // With this interval, no segment must end without a keyframe.
        let longest = ladder.origin.config.live.target_duration;
        config.keyframe_interval = config.keyframe_interval.min(longest);
        let arguments = |pipes: &[RawFd]| command::renditions(&config, &made, pipes, rate);
        let process = Process::start(&config, made.len(), arguments, &ladder.log)?;
        let what: Vec<String> = made.iter().map(Made::to_string).collect();
        let pid = process.child.id().unwrap_or_default();
        ladder.log.say(Severity::Info, &format!("ffmpeg {pid} makes {}", what.join(", ")));
        Ok(Started { process, made, header, source, first: (segment, part) })
    }

    /// Feeds ffmpeg and takes its output, until it ends.
    async fn attend(&mut self, started: Started) -> End {
        let ladder = &self.ladder;
        let Started { process, made, header, source, first } = started;
        let Process { child, group, input, outputs } = process;
        let (mut reading, mut is_ceded) = (JoinSet::new(), false);
        let closed = Arc::new(Notify::new());
        for (made, output) in made.iter().zip(outputs) {
            let at = self.renditions.iter().position(|known| known.name() == made.rung.name);
            if let Some(at) = at {
                let rendition = self.renditions.swap_remove(at);
                let read = rendition.read(output, Arc::clone(ladder));
                let closed = Arc::clone(&closed);
                reading.spawn(async move {
                    let read = read.await;
                    closed.notify_one();
                    read
                });
            }
        }
        // Where one of several pipes is closed, some versions of ffmpeg go on with the others. This ladder begins again.
        let feed = async {
            tokio::select! {
                end = feed(ladder, source, header, first, input) => end,
                () = closed.notified() => End::Failed("one of its outputs is closed".to_owned()),
            }
        };
        let end = process::attend(&ladder.origin, (child, group), feed, async {
            while let Some(read) = reading.join_next().await {
                match read {
                    Ok(Ok(rendition)) => self.renditions.push(rendition),
                    Ok(Err(Refused::Replaced)) => is_ceded = true,
                    Ok(Err(_)) | Err(_) => {}
                }
            }
        })
        .await;
        if is_ceded {
            // Another machine may have the stream soon, and this ladder ends then. Until a publisher
            // is back here, nothing may be made: the other machine would not know of it.
            self.renditions.clear();
            let mut state = ladder.stream.subscribe();
            let state = state.wait_for(|state| state.status != Status::Offline).await;
            let is_over = state.is_ok_and(|state| state.status == Status::Ended);
            return if is_over { End::Over } else { End::Changed };
        }
        for made in made {
            if !self.renditions.iter().any(|back| back.name() == made.rung.name) {
                self.given_up.insert(made.rung.name);
            }
        }
        end
    }
}

/// A process, its renditions and its input.
struct Started {
    process: Process,
    made: Vec<Made>,
    /// The bytes before the first part.
    header: Vec<u8>,
    source: TrackFollower,
    first: (Arc<Segment>, Arc<Part>),
}

/// Feeds ffmpeg until its source ends or changes, or it takes no more.
async fn feed(
    ladder: &Ladder,
    mut source: TrackFollower,
    header: Vec<u8>,
    first: (Arc<Segment>, Arc<Part>),
    mut input: ChildStdin,
) -> End {
    let configuration = first.0.header.msn;
    let mut bytes = header;
    let mut next = Some(first);
    loop {
        let (segment, part) = match next.take() {
            Some(next) => next,
            None => match source.next().await {
                Next::Part(segment, part) => (segment, part),
                Next::Skipped => {
                    ladder.origin.ladders.skipped.fetch_add(1, Ordering::Relaxed);
                    let what =
                        "renditions are not made fast enough; skipped to the newest keyframe";
                    ladder.log.say(Severity::Warning, what);
                    continue;
                }
                Next::Over => return End::Over,
            },
        };
        if segment.header.msn != configuration {
            return End::Changed;
        }
        {
            let mut frames = ladder.frames.lock().unwrap_or_else(PoisonError::into_inner);
            for (layout, at) in frames.note(&segment, &part) {
                matroska::frame(&mut bytes, 1, at, layout.sync, part.sample(layout));
            }
        }
        if let Err(why) = process::give(&mut input, &bytes).await {
            return End::Failed(why);
        }
        bytes.clear();
    }
}
