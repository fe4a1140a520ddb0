//! A viewer by WHEP.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use live::{Stream, Track, UnixMicros, Viewing};
use rtp::{AUDIO_RATE, VIDEO_RATE};
use str0m::Rtc;
use str0m::media::Mid;
use str0m::rtp::RtpWrite;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, sleep_until};

use super::end::End;
use super::feed::{Fed, Feed, Feeds, Frame};
use super::offer::Line;
use super::{BURST, PAUSE};
use crate::ladder::companion::Watching;

/// Frames before the newest are shown this long after each other, in RTP units: a viewer that begins
/// gets all since the keyframe and must be at the newest at once.
const CATCH_UP: i64 = 9;

/// Frames that may wait for their turn. With more, the viewer goes on at the next keyframe.
const MOST_WAITING: usize = 2_048;

/// Shortest time between two restarts from the newest keyframe, which a viewer asks for by PLI.
const RESTART: Duration = Duration::from_secs(1);

/// A frame that was captured longer ago counts as captured now: the clock was set, or the stream is
/// none that anybody calls live.
const LONG_AGO: Duration = Duration::from_secs(60);

/// The tracks of a stream that a viewer gets, and how its connection carries them.
pub(super) struct Watched {
    pub(super) stream: Arc<Stream>,
    pub(super) video: Option<(Line, Arc<Track>)>,
    pub(super) audio: Option<(Line, Arc<Track>)>,
    /// Makes one of the tracks, or both.
    pub(super) companion: Option<Watching>,
}

/// A track on its way to a viewer.
struct Output {
    line: Line,
    track: Arc<Track>,
    rate: u32,
    source: Option<(Rc<Feed>, broadcast::Receiver<Fed>)>,
    /// Frames to send, and how many packets of the first are sent.
    waiting: VecDeque<Rc<Frame>>,
    sent: usize,
    /// RTP time of the first of `waiting`, once a packet of it is sent.
    time: Option<i64>,
    /// Whether frames are left out until a keyframe.
    waits: bool,
    next_sequence: u64,
    /// RTP time of the last frame.
    last: Option<i64>,
}

/// What is to be done for a viewer.
pub(super) enum Due {
    /// Frames that wait can be sent.
    Waiting,
    Video(Result<Fed, RecvError>),
    Audio(Result<Fed, RecvError>),
}

/// A viewer.
pub(super) struct Play {
    stream: Arc<Stream>,
    video: Option<Output>,
    audio: Option<Output>,
    _viewing: Viewing,
    companion: Option<Watching>,
    /// When more may be sent.
    pause: Option<Instant>,
    restarted: Option<Instant>,
}

impl Output {
    fn new(line: Line, track: Arc<Track>, rate: u32) -> Self {
        Self {
            line,
            track,
            rate,
            source: None,
            waiting: VecDeque::new(),
            sent: 0,
            time: None,
            waits: true,
            next_sequence: 1,
            last: None,
        }
    }

    async fn next(&mut self) -> Result<Fed, RecvError> {
        match &mut self.source {
            Some((_, frames)) => frames.recv().await,
            None => std::future::pending().await,
        }
    }

    /// Begins with the frames since the newest keyframe.
    fn restart(&mut self, frames: Vec<Rc<Frame>>) {
        if !frames.is_empty() {
            self.waiting = frames.into();
            (self.waits, self.sent, self.time) = (false, 0, None);
        }
    }

    fn take(&mut self, fed: Result<Fed, RecvError>) -> Result<(), End> {
        match fed {
            Ok(Fed::Frame(frame)) => {
                self.waits &= !frame.key;
                if !self.waits {
                    self.waiting.push_back(frame);
                }
                if self.waiting.len() > MOST_WAITING {
                    self.skip();
                }
                Ok(())
            }
            Ok(Fed::Over(why)) => Err(End::Stream(why)),
            Err(RecvError::Lagged(_)) => {
                self.skip();
                Ok(())
            }
            Err(RecvError::Closed) => Err(End::Stream("the stream is over")),
        }
    }

    /// Leaves out all until the next keyframe, but for a frame that is sent in part.
    fn skip(&mut self) {
        self.waiting.truncate(usize::from(self.sent > 0));
        self.waits = true;
    }

    /// RTP time at which the first frame that waits is shown.
    fn shown(&self, frame: &Frame) -> i64 {
        let scale = |time| live::rescale(time, self.track.header().track.timescale, self.rate);
        let newest = self.waiting.back().map_or(frame.time, |newest| newest.time);
        let behind = i64::try_from(self.waiting.len()).unwrap_or(0).saturating_sub(1);
        let time = if behind > 1 && self.rate == VIDEO_RATE {
            scale(newest).saturating_sub(behind.saturating_mul(CATCH_UP)).max(scale(frame.time))
        } else {
            scale(frame.time)
        };
        self.last.map_or(time, |last| time.max(last + 1))
    }
}

impl Play {
    pub(super) fn new(Watched { stream, video, audio, companion }: Watched) -> Self {
        let viewing = stream.watch(live::Delivery::WebRtc);
        Self {
            video: video.map(|(line, track)| Output::new(line, track, VIDEO_RATE)),
            audio: audio.map(|(line, track)| Output::new(line, track, AUDIO_RATE)),
            stream,
            _viewing: viewing,
            companion,
            pause: None,
            restarted: None,
        }
    }

    /// The stream's name.
    pub(super) fn name(&self) -> &str {
        self.stream.name()
    }

    /// Whether a media description is that of the video.
    pub(super) fn is_video(&self, mid: Mid) -> bool {
        self.video.as_ref().is_some_and(|video| video.line.mid == mid)
    }

    /// Begins to play.
    pub(super) fn begin(&mut self, feeds: &Feeds) {
        if let Some(companion) = &self.companion {
            companion.begin();
        }
        for output in [&mut self.video, &mut self.audio].into_iter().flatten() {
            let feed = feeds.of(&output.track);
            let (recent, frames) = feed.subscribe();
            output.source = Some((feed, frames));
            if output.rate == VIDEO_RATE {
                output.restart(recent);
            } else {
                output.waits = false;
            }
        }
    }

    /// Begins again from the newest keyframe, because the viewer lost a picture. Returns false if that
    /// was done too recently.
    pub(super) fn begin_again(&mut self, now: Instant) -> bool {
        if self.restarted.is_some_and(|at| now.duration_since(at) < RESTART) {
            return false;
        }
        self.restarted = Some(now);
        if let Some(video) = &mut self.video
            && video.waiting.is_empty()
            && let Some((feed, _)) = &video.source
        {
            let recent = feed.recent();
            video.restart(recent);
        }
        true
    }

    /// Waits for something to send.
    pub(super) async fn next(&mut self) -> Due {
        let Self { video, audio, pause, .. } = self;
        let has_more = [&*video, &*audio].into_iter().flatten().any(|out| !out.waiting.is_empty());
        let (until, next_video, next_audio) = (*pause, next(video), next(audio));
        let paused = async {
            match until {
                _ if !has_more => std::future::pending().await,
                Some(until) => sleep_until(until).await,
                None => {}
            }
        };
        tokio::select! {
            biased;
            fed = next_audio => Due::Audio(fed),
            fed = next_video => Due::Video(fed),
            () = paused => Due::Waiting,
        }
    }

    /// Takes what came, and sends what may be sent now. The wall clock shows `wall`.
    pub(super) fn send(
        &mut self,
        due: Due,
        rtc: &mut Rtc,
        now: Instant,
        wall: UnixMicros,
    ) -> Result<(), End> {
        let Self { video, audio, .. } = self;
        match (due, video, audio) {
            (Due::Video(fed), Some(video), _) => video.take(fed)?,
            (Due::Audio(fed), _, Some(audio)) => audio.take(fed)?,
            _ => {}
        }
        for output in [&self.video, &self.audio].into_iter().flatten() {
            if let Some(why) = output.source.as_ref().and_then(|(feed, _)| feed.over()) {
                return Err(End::Stream(why));
            }
        }
        if self.pause.is_some_and(|until| now < until) {
            return Ok(());
        }
        let ages = Ages { now, wall, epoch: epoch(&self.stream) };
        let mut allowed = BURST;
        for output in [&mut self.audio, &mut self.video].into_iter().flatten() {
            write(output, rtc, &ages, &mut allowed);
        }
        self.pause = Some(now + PAUSE).filter(|_| allowed == 0);
        Ok(())
    }
}

async fn next(output: &mut Option<Output>) -> Result<Fed, RecvError> {
    match output {
        Some(output) => output.next().await,
        None => std::future::pending().await,
    }
}

/// Writes packets of a track while bytes are allowed.
fn write(output: &mut Output, rtc: &mut Rtc, ages: &Ages, allowed: &mut usize) {
    while let Some(frame) = output.waiting.front().cloned() {
        let time = match output.time {
            Some(time) => time,
            None => output.shown(&frame),
        };
        let at = ages.captured(time, output.rate);
        let mut api = rtc.direct_api();
        let Some(stream) = api.stream_tx_by_mid(output.line.mid, None) else {
            // The peer gave it up.
            output.waiting.clear();
            return;
        };
        (output.time, output.last) = (Some(time), Some(time));
        let packets = frame.payloads.iter().enumerate().skip(output.sent);
        for (index, payload) in packets {
            if *allowed == 0 {
                return;
            }
            *allowed = allowed.saturating_sub(payload.len());
            let is_last = index + 1 == frame.payloads.len();
            let marker = is_last && output.rate == VIDEO_RATE;
            let sequence = output.next_sequence.into();
            output.next_sequence += 1;
            output.sent = index + 1;
            // RTP times wrap after 32 bits.
            let time = time as u32;
            let write = RtpWrite::new(output.line.payload, sequence, time, at, Arc::clone(payload));
            stream.write_rtp(write.marker(marker).nackable(output.rate == VIDEO_RATE));
        }
        output.waiting.pop_front();
        (output.sent, output.time) = (0, None);
    }
}

/// When time 0 of a stream was captured, in microseconds of the wall clock. `None` until it has media.
pub(super) fn epoch(stream: &Stream) -> Option<i64> {
    let of = |track: &Arc<Track>| track.window().newest().map(|segment| segment.epoch());
    stream.state().tracks.iter().find_map(of)
}

/// What tells how old frames are.
struct Ages {
    now: Instant,
    /// The wall clock, now.
    wall: UnixMicros,
    /// When time 0 of the stream was captured, in microseconds of the wall clock, if known.
    epoch: Option<i64>,
}

impl Ages {
    /// When a frame with this RTP time was captured. Sender reports tell viewers, who put video beside
    /// audio by this and know how far behind they are.
    fn captured(&self, time: i64, rate: u32) -> std::time::Instant {
        let age = self.epoch.and_then(|epoch| {
            let at = epoch.saturating_add(live::rescale(time, rate, 1_000_000));
            let age = i64::try_from(self.wall.0).ok()?.saturating_sub(at);
            // A report cannot tell of a time that has not come.
            Some(Duration::from_micros(age.max(0).unsigned_abs()))
        });
        let age = age.filter(|age| *age < LONG_AGO).unwrap_or_default();
        self.now.checked_sub(age).unwrap_or(self.now).into_std()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captures_are_in_the_past_and_on_one_clock() {
        let now = Instant::now() + LONG_AGO;
        let ages = |wall, epoch| Ages { now, wall: UnixMicros(wall), epoch };
        let ago = |ages: Ages, time, rate| {
            now.into_std().duration_since(ages.captured(time, rate)).as_micros()
        };
        let epoch = 1_700_000_000_000_000_i64;
        let wall = epoch.unsigned_abs() + 10_000_000;
        // Video and audio of one moment, 10 s after the beginning, of which 0.3 s are gone.
        for (time, rate) in [(90_000 * 97 / 10, VIDEO_RATE), (48_000 * 97 / 10, AUDIO_RATE)] {
            assert_eq!(ago(ages(wall, Some(epoch)), time, rate), 300_000);
        }
        // What seems to come from the future, or is of no known time, is captured now.
        assert_eq!(ago(ages(wall, Some(epoch)), 90_000 * 11, VIDEO_RATE), 0);
        assert_eq!(ago(ages(wall, None), 90_000 * 5, VIDEO_RATE), 0);
        for time in [i64::MIN, i64::MAX, -90_000 * 3600] {
            assert_eq!(ago(ages(wall, Some(epoch)), time, VIDEO_RATE), 0);
        }
    }
}
