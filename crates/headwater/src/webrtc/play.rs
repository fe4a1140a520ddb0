//! A viewer by WHEP.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use live::{Stream, Track, Viewing};
use str0m::Rtc;
use str0m::media::Mid;
use str0m::rtp::RtpWrite;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, sleep_until};

use super::end::End;
use super::feed::{Fed, Feed, Feeds, Frame};
use super::offer::Line;
use crate::ladder::companion::Watching;

/// RTP clock rates: RFC 6184 8.2.1, RFC 7587 4.1.
const VIDEO_RATE: u32 = 90_000;
const AUDIO_RATE: u32 = 48_000;

/// Frames before the newest are shown this long after each other, in RTP units: a viewer that begins
/// gets all since the keyframe and must be at the newest at once.
const CATCH_UP: i64 = 9;

/// Bytes that are sent at once, and the pause after which as many are sent again: 100 Mbit/s. A whole
/// keyframe at once would fill the buffers on its way.
const BURST: usize = 25_000;
const PAUSE: Duration = Duration::from_millis(2);

/// Frames that may wait for their turn. With more, the viewer goes on at the next keyframe.
const MOST_WAITING: usize = 2_048;

/// Shortest time between two restarts from the newest keyframe, which a viewer asks for by PLI.
const RESTART: Duration = Duration::from_secs(1);

/// How much earlier than its sending a frame counts as captured, for sender reports. A report cannot
/// tell of a time that has not come, and frames do not come evenly.
const LEAD: Duration = Duration::from_millis(500);

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
    _companion: Option<Watching>,
    /// When more may be sent.
    pause: Option<Instant>,
    restarted: Option<Instant>,
    /// Time 0 of the stream, for sender reports.
    epoch: Option<Instant>,
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
            _companion: companion,
            pause: None,
            restarted: None,
            epoch: None,
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

    /// Takes what came, and sends what may be sent now.
    pub(super) fn send(&mut self, due: Due, rtc: &mut Rtc, now: Instant) -> Result<(), End> {
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
        let mut allowed = BURST;
        for output in [&mut self.audio, &mut self.video].into_iter().flatten() {
            write(output, rtc, &mut self.epoch, &mut allowed, now);
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
fn write(
    output: &mut Output,
    rtc: &mut Rtc,
    epoch: &mut Option<Instant>,
    allowed: &mut usize,
    now: Instant,
) {
    while let Some(frame) = output.waiting.front().cloned() {
        let time = match output.time {
            Some(time) => time,
            None => output.shown(&frame),
        };
        let at = captured(epoch, time, output.rate, now);
        let mut api = rtc.direct_api();
        let Some(stream) = api.stream_tx_by_mid(output.line.mid, None) else { return };
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

/// When a frame with this RTP time counts as captured. It is the same for audio and video.
fn captured(epoch: &mut Option<Instant>, time: i64, rate: u32, now: Instant) -> std::time::Instant {
    let since = live::rescale(time, rate, 1_000_000);
    let at = |epoch: Instant| {
        let by = Duration::from_micros(since.unsigned_abs());
        if since < 0 { epoch.checked_sub(by) } else { epoch.checked_add(by) }
    };
    let known = epoch.and_then(at).filter(|at| *at <= now && now.duration_since(*at) < 4 * LEAD);
    let at = known.unwrap_or_else(|| {
        let at = now.checked_sub(LEAD).unwrap_or(now);
        let by = Duration::from_micros(since.unsigned_abs());
        *epoch = if since < 0 { at.checked_add(by) } else { at.checked_sub(by) };
        at
    });
    at.into_std()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captures_are_in_the_past_and_on_one_clock() {
        let (mut epoch, now) = (None, Instant::now());
        let video = captured(&mut epoch, 90_000 * 1000, VIDEO_RATE, now);
        assert_eq!(Instant::from_std(video) + LEAD, now);
        // The audio of the same moment came 100 ms later.
        let later = now + Duration::from_millis(100);
        let audio = captured(&mut epoch, 48_000 * 1000, AUDIO_RATE, later);
        assert_eq!(audio, video);
        // A clock that runs ahead is followed, and so is one that jumps.
        for time in [1002, 10, 1_000_000, -5] {
            let at = captured(&mut epoch, 90_000 * time, VIDEO_RATE, later);
            assert_eq!(Instant::from_std(at) + LEAD, later, "{time}");
        }
        for time in [i64::MIN, i64::MAX] {
            assert!(Instant::from_std(captured(&mut epoch, time, VIDEO_RATE, later)) <= later);
        }
    }
}
