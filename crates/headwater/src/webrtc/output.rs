//! A track on its way to one viewer.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use live::{Track, UnixMicros};
use rtp::VIDEO_RATE;
use rtp::srtp::Sender;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use super::ages::Ages;
use super::batch::Batch;
use super::end::End;
use super::feed::{Fed, Feed, Feeds, Frame, KEPT_FOR};
use super::offer::Line;
use super::resends::Resends;
use super::source::{self, Counts, Numbers, Packet, Source};

/// Frames before the newest are shown this long after each other, in RTP units: a viewer that begins
/// gets all since the keyframe and must be at the newest at once.
const CATCH_UP: i64 = 9;

/// Frames that may wait for their turn. With more, the viewer goes on at the next keyframe.
const MOST_WAITING: usize = 2_048;

/// A keyframe of another track that is at most this much older than the last frame, in RTP units, is near
/// enough to go over to it: 250 ms. All frames since an older one would be a burst that a link cannot take.
const NEAR: i64 = VIDEO_RATE as i64 / 4;

/// Frames of a track, as they come.
type Frames = broadcast::Receiver<Fed>;

/// What a track, or the one that comes after it, has for a viewer.
pub(super) struct Came {
    is_next: bool,
    fed: Result<Fed, RecvError>,
}

/// Another track to go over to, at a keyframe.
struct Next {
    feed: Rc<Feed>,
    frames: Frames,
    /// Whether any keyframe will do. Otherwise it is one that is near, or the second: renditions that are made
    /// of others come later than these.
    takes_any: bool,
}

/// A track on its way to a viewer.
pub(super) struct Output {
    pub(super) line: Line,
    track: Arc<Track>,
    rate: u32,
    feed: Option<(Rc<Feed>, Frames)>,
    next: Option<Next>,
    /// The feed before this one, which keeps its frames for a viewer that asks for them again, and the RTP
    /// time at which it was left.
    before: Option<(Rc<Feed>, i64)>,
    /// Frames to send, and how many packets of the first are sent.
    waiting: VecDeque<Rc<Frame>>,
    sent: usize,
    /// RTP time of the first of `waiting`, once a packet of it is sent.
    time: Option<i64>,
    /// Whether frames are left out until a keyframe.
    waits: bool,
    /// RTP time of the last frame.
    last: Option<i64>,
    /// The RTP time of the last frame that was sent, and when that was.
    newest: Option<(i64, Instant, UnixMicros)>,
    source: Source,
    /// Packets that are sent again, if the viewer can take them.
    resends: Option<Resends>,
    is_reported: bool,
}

impl Output {
    /// `None` if the viewer did not agree on how packets are sent.
    pub(super) fn new(line: Line, track: Arc<Track>, rate: u32) -> Option<Self> {
        let terms = line.terms?;
        let extension = terms.extension.map(|identifier| source::extension(identifier, line.mid));
        let source = |ssrc, payload_type| {
            Source::new(ssrc, payload_type, extension.as_deref().unwrap_or_default())
        };
        // Sound that is late is of no use, and Opus hides what is missing.
        let resends = terms.resends.filter(|_| rate == VIDEO_RATE);
        Some(Self {
            line,
            track,
            rate,
            feed: None,
            next: None,
            before: None,
            waiting: VecDeque::new(),
            sent: 0,
            time: None,
            waits: true,
            last: None,
            newest: None,
            source: source(terms.ssrc, *line.payload),
            resends: resends.map(|(ssrc, payload)| Resends::new(source(ssrc, payload))),
            is_reported: false,
        })
    }

    /// Begins to play.
    pub(super) fn begin(&mut self, feeds: &Feeds) {
        let feed = feeds.of(&self.track);
        let (recent, frames) = feed.subscribe();
        self.feed = Some((feed, frames));
        if self.rate == VIDEO_RATE {
            self.restart(recent);
        } else {
            self.waits = false;
        }
    }

    /// The track that the viewer gets.
    pub(super) fn track(&self) -> &Arc<Track> {
        &self.track
    }

    /// Bytes of payloads sent so far. They wrap.
    pub(super) fn octets(&self) -> u32 {
        self.source.octets()
    }

    /// Whether it is the source of reports on this SSRC.
    pub(super) fn is_of(&self, ssrc: u32) -> bool {
        self.source.ssrc == ssrc
    }

    pub(super) async fn next(&mut self) -> Came {
        let Self { feed, next, .. } = self;
        tokio::select! {
            biased;
            fed = receive(feed.as_mut().map(|(_, frames)| frames)) => Came { is_next: false, fed },
            fed = receive(next.as_mut().map(|next| &mut next.frames)) => Came { is_next: true, fed },
        }
    }

    /// Goes over to another track: to its newest keyframe, if that is urgent, or else to one that is near.
    /// Returns whether that is done.
    pub(super) fn go_over(&mut self, feeds: &Feeds, track: &Arc<Track>, is_urgent: bool) -> bool {
        if Arc::ptr_eq(track, &self.track) {
            self.next = None;
            return false;
        }
        if let Some(next) = &mut self.next
            && Arc::ptr_eq(track, next.feed.track())
            && !is_urgent
        {
            return false;
        }
        let feed = feeds.of(track);
        let (recent, frames) = feed.subscribe();
        self.next = Some(Next { feed, frames, takes_any: is_urgent });
        let is_done = is_urgent && !recent.is_empty();
        if is_done {
            self.arrive(recent);
        }
        is_done
    }

    /// Goes over to another track at once, because the present one has ended.
    pub(super) fn replace(&mut self, feeds: &Feeds, track: &Arc<Track>) {
        let feed = feeds.of(track);
        let (recent, frames) = feed.subscribe();
        self.next = Some(Next { feed, frames, takes_any: true });
        self.arrive(recent);
    }

    /// Takes what the next track has. Returns whether the viewer gets it from here on.
    fn take_next(&mut self, fed: Result<Fed, RecvError>) -> bool {
        let Some(next) = &mut self.next else { return false };
        match fed {
            Ok(Fed::Frame(frame)) if frame.key => {
                let is_near = self.last.is_none_or(|last| frame.time >= last - NEAR);
                let is_done = is_near || next.takes_any;
                // A keyframe that comes later is a new one.
                next.takes_any = true;
                if is_done {
                    self.arrive(vec![frame]);
                }
                is_done
            }
            Ok(Fed::Frame(_)) | Err(RecvError::Lagged(_)) => false,
            Ok(Fed::Over(_)) | Err(RecvError::Closed) => {
                self.next = None;
                false
            }
        }
    }

    /// Goes over to the next track with these frames, of which the first is a keyframe. Without frames, it
    /// is waited for.
    fn arrive(&mut self, frames: Vec<Rc<Frame>>) {
        let Some(Next { feed, frames: coming, .. }) = self.next.take() else { return };
        self.track = Arc::clone(feed.track());
        let last = self.last.unwrap_or_default();
        self.before = self.feed.replace((feed, coming)).map(|(feed, _)| (feed, last));
        // What waits of the former track is sent up to there. A frame that is sent in part goes on.
        let from = frames.first().map_or(i64::MAX, |frame| frame.time);
        while self.waiting.len() > usize::from(self.sent > 0)
            && self.waiting.back().is_some_and(|frame| frame.time >= from)
        {
            self.waiting.pop_back();
        }
        self.waits = frames.is_empty();
        self.waiting.extend(frames);
    }

    /// Begins with the frames since the newest keyframe.
    fn restart(&mut self, frames: Vec<Rc<Frame>>) {
        if !frames.is_empty() {
            self.waiting = frames.into();
            (self.waits, self.sent, self.time) = (false, 0, None);
        }
    }

    /// Begins again from the newest keyframe, if nothing waits.
    pub(super) fn begin_again(&mut self) {
        if self.waiting.is_empty()
            && let Some((feed, frames)) = &mut self.feed
        {
            let (recent, coming) = feed.subscribe();
            if !recent.is_empty() {
                // Frames that have come and are not taken yet are among the recent ones, or older.
                *frames = coming;
            }
            self.restart(recent);
        }
    }

    /// Takes what came. Returns whether the viewer gets another track from here on.
    pub(super) fn take(&mut self, Came { is_next, fed }: Came) -> Result<bool, End> {
        if is_next {
            return Ok(self.take_next(fed));
        }
        match fed {
            Ok(Fed::Frame(frame)) => {
                self.waits &= !frame.key;
                if !self.waits {
                    self.waiting.push_back(frame);
                }
                if self.waiting.len() > MOST_WAITING {
                    self.skip();
                }
                Ok(false)
            }
            Ok(Fed::Over(why)) => Err(End::Stream(why)),
            Err(RecvError::Lagged(_)) => {
                self.skip();
                Ok(false)
            }
            Err(RecvError::Closed) => Err(End::Stream("the stream is over")),
        }
    }

    /// Why there are no more frames, if so.
    pub(super) fn over(&self) -> Option<&'static str> {
        self.feed.as_ref().and_then(|(feed, _)| feed.over())
    }

    /// Leaves out all until the next keyframe, but for a frame that is sent in part.
    fn skip(&mut self) {
        self.waiting.truncate(usize::from(self.sent > 0));
        self.waits = true;
    }

    /// Whether something can be sent.
    pub(super) fn has_more(&self) -> bool {
        !self.waiting.is_empty() || self.resends.as_ref().is_some_and(Resends::has_more)
    }

    /// RTP time at which the first frame that waits is shown.
    fn shown(&self, frame: &Frame) -> i64 {
        let newest = self.waiting.back().map_or(frame.time, |newest| newest.time);
        let behind = i64::try_from(self.waiting.len()).unwrap_or(0).saturating_sub(1);
        let time = if behind > 1 && self.rate == VIDEO_RATE {
            newest.saturating_sub(behind.saturating_mul(CATCH_UP)).max(frame.time)
        } else {
            frame.time
        };
        self.last.map_or(time, |last| time.max(last + 1))
    }

    /// Notes that the viewer asks again for packets of a source.
    pub(super) fn ask(&mut self, ssrc: u32, numbers: impl Iterator<Item = u16>) {
        if ssrc == self.source.ssrc
            && let Some(resends) = &mut self.resends
        {
            resends.ask(numbers);
        }
    }

    /// Notes that the viewer has reported on a source.
    pub(super) fn is_known(&mut self, ssrc: u32) {
        if ssrc == self.source.ssrc {
            self.source.is_known();
        } else if let Some(resends) = &mut self.resends
            && ssrc == resends.source().ssrc
        {
            resends.source().is_known();
        }
    }

    /// Writes packets while bytes are allowed: first those that are sent again, which are due sooner. The
    /// clocks show `now`.
    pub(super) fn write(
        &mut self,
        sender: &Sender,
        batch: &mut Batch,
        mut numbers: Option<&mut Numbers>,
        now: (Instant, UnixMicros),
        allowed: &mut usize,
    ) -> Result<(), End> {
        if let Some(resends) = &mut self.resends {
            resends.write(self.source.next(), sender, batch, numbers.as_deref_mut(), allowed);
        }
        let kept = KEPT_FOR * i64::from(VIDEO_RATE);
        self.before.take_if(|(_, left)| self.last.is_some_and(|last| last - *left > kept));
        while let Some(frame) = self.waiting.front().cloned() {
            let time = match self.time {
                Some(time) => time,
                None => self.shown(&frame),
            };
            (self.time, self.last) = (Some(time), Some(time));
            let packets = frame.payloads.iter().enumerate().skip(self.sent);
            for (index, payload) in packets {
                if *allowed == 0 {
                    return Ok(());
                }
                // RTP times wrap after 32 bits.
                let (time, full) = (time as u32, time);
                if index == 0
                    && let Some(resends) = &mut self.resends
                {
                    resends.begin(&frame, self.source.next(), time);
                }
                let is_last = index + 1 == frame.payloads.len();
                let marker = is_last && self.rate == VIDEO_RATE;
                let packet = Packet { time, marker, head: &[], payload };
                self.sent = index + 1;
                let numbers = numbers.as_deref_mut();
                let bytes = self.source.write(&packet, sender, batch, numbers);
                let bytes = bytes.ok_or(End::NotEncrypted)?;
                self.newest = Some((full, now.0, now.1));
                *allowed = allowed.saturating_sub(bytes);
                if let Some(resends) = &mut self.resends {
                    resends.earn(bytes);
                }
            }
            self.waiting.pop_front();
            (self.sent, self.time) = (0, None);
        }
        Ok(())
    }

    /// Whether something was sent, and no report yet.
    pub(super) fn wants_report(&self) -> bool {
        self.newest.is_some() && !self.is_reported
    }

    /// What a report at `now` says of it, where time 0 of the stream was captured at `epoch`. `None` while
    /// nothing is sent.
    pub(super) fn counts(&mut self, now: Instant, epoch: Option<i64>) -> Option<Counts> {
        let (time, sent, wall) = self.newest?;
        self.is_reported = true;
        let at = Ages { now: sent, wall, epoch }.captured(time, self.rate);
        let since = now.saturating_duration_since(at).as_micros();
        let since = since * u128::from(self.rate) / 1_000_000;
        // RTP times wrap after 32 bits.
        Some(self.source.counts((time as u32).wrapping_add(since as u32)))
    }
}

async fn receive(frames: Option<&mut Frames>) -> Result<Fed, RecvError> {
    match frames {
        Some(frames) => frames.recv().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use str0m::format::Codec;
    use tokio::task::LocalSet;

    use super::super::feed::tests::{numbers, publish, publisher, settle};
    use super::*;

    fn output(track: Arc<Track>) -> Output {
        let terms = source::Terms { ssrc: 1, resends: None, extension: None, numbers: None };
        let (codec, terms) = (Codec::H264, Some(terms));
        let line = Line { mid: "v".into(), codec, payload: 96.into(), terms };
        Output::new(line, track, VIDEO_RATE).unwrap()
    }

    /// Takes all that has come.
    async fn take(output: &mut Output) {
        loop {
            let came = tokio::select! {
                biased;
                came = output.next() => came,
                () = std::future::ready(()) => return,
            };
            assert_eq!(output.take(came).ok(), Some(false));
        }
    }

    /// What waits to be sent, as [`numbers`].
    fn waiting(output: &mut Output) -> Vec<(i64, bool)> {
        numbers(output.waiting.make_contiguous())
    }

    #[tokio::test]
    async fn a_viewer_that_begins_again_gets_each_frame_once() {
        let test = async {
            let (_registry, mut publisher) = publisher();
            publish(&mut publisher, 0..63, 0);
            let mut output = output(publisher.stream().track("v0").unwrap());
            let feeds = Feeds::default();
            output.begin(&feeds);
            settle().await;
            publish(&mut publisher, 63..75, 0);
            settle().await;
            let frames =
                |range: std::ops::Range<i64>| range.map(|n| (n, n % 50 == 0)).collect::<Vec<_>>();
            take(&mut output).await;
            assert_eq!(waiting(&mut output), frames(50..75));
            // All are sent. More come, and before the viewer's task takes them, the viewer asks for a
            // keyframe, within a group of pictures and over its end.
            for (until, expected) in [(80, 50..80), (105, 100..105)] {
                output.waiting.clear();
                publish(&mut publisher, expected.start.max(until - 5)..until, 0);
                settle().await;
                output.begin_again();
                take(&mut output).await;
                assert_eq!(waiting(&mut output), frames(expected));
            }
        };
        LocalSet::new().run_until(test).await;
    }
}
