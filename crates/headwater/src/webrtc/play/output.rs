//! A track on its way to one viewer.

use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use live::{Track, UnixMicros};
use rtp::VIDEO_RATE;
use rtp::srtp::Sender;
use tokio::time::Instant;

use super::ages::Ages;
use super::feed::{Fed, Feed, Feeds, Frame, KEPT_FOR, Subscription, Watch};
use super::resends::Resends;
use crate::webrtc::end::End;
use crate::webrtc::offer::Line;
use crate::webrtc::send::batch::Batch;
use crate::webrtc::send::source::{self, Counts, Numbers, Packet, Source};

/// Frames before the newest are shown this long after each other, in RTP units: a viewer that begins
/// gets all since the keyframe and must be at the newest at once.
const CATCH_UP: i64 = 9;

/// Frames that may wait for their turn. With more, the viewer goes on at the next keyframe.
const MOST_WAITING: usize = 2_048;

/// A keyframe of another track that is at most this much older than the last frame, in RTP units, is near
/// enough to go over to it: 250 ms. All frames since an older one would be a burst that a link cannot take.
const NEAR: i64 = VIDEO_RATE as i64 / 4;

/// Subscribes a viewer to feeds.
#[derive(Clone)]
pub(in crate::webrtc) struct Subscriber {
    pub(in crate::webrtc) feeds: Rc<Feeds>,
    pub(in crate::webrtc) viewer: Weak<dyn Watch>,
}

impl Subscriber {
    fn subscribe(&self, track: &Arc<Track>) -> (Vec<Rc<Frame>>, Subscription) {
        self.feeds.of(track).subscribe(Weak::clone(&self.viewer))
    }
}

/// Another track to go over to, at a keyframe.
struct Next {
    subscription: Subscription,
    /// Whether any keyframe will do. Otherwise it is one that is near, or the second: renditions that are made
    /// of others come later than these.
    takes_any: bool,
}

/// A track on its way to a viewer.
pub(in crate::webrtc) struct Output {
    pub(in crate::webrtc) line: Line,
    track: Arc<Track>,
    rate: u32,
    subscriber: Subscriber,
    subscription: Option<Subscription>,
    /// The number of the next frame that may come by the subscription. Those before were recent when the
    /// viewer began.
    expects: u64,
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
    pub(in crate::webrtc) fn new(
        line: Line,
        track: Arc<Track>,
        rate: u32,
        subscriber: Subscriber,
    ) -> Option<Self> {
        let terms = line.terms?;
        let extension = terms.extension.map(|identifier| source::extension(identifier, line.mid));
        let source = |ssrc, payload_type| {
            Source::new(ssrc, payload_type, extension.as_deref().unwrap_or_default())
        };
        // Audio that is late is of no use, and Opus hides what is missing.
        let resends = terms.resends.filter(|_| rate == VIDEO_RATE);
        Some(Self {
            line,
            track,
            rate,
            subscriber,
            subscription: None,
            expects: 0,
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
    pub(in crate::webrtc) fn begin(&mut self) {
        let (recent, subscription) = self.subscriber.subscribe(&self.track);
        self.subscription = Some(subscription);
        if self.rate == VIDEO_RATE {
            self.restart(recent);
        } else {
            self.waits = false;
        }
    }

    /// The track that the viewer gets.
    pub(in crate::webrtc) fn track(&self) -> &Arc<Track> {
        &self.track
    }

    /// Bytes of payloads sent so far. They wrap.
    pub(in crate::webrtc) fn octets(&self) -> u32 {
        self.source.octets()
    }

    /// Whether it is the source of reports on this SSRC.
    pub(in crate::webrtc) fn is_of(&self, ssrc: u32) -> bool {
        self.source.ssrc == ssrc
    }

    /// Goes over to another track: to its newest keyframe, if that is urgent, or else to one that is near.
    /// Returns whether that is done.
    pub(in crate::webrtc) fn go_over(&mut self, track: &Arc<Track>, is_urgent: bool) -> bool {
        if Arc::ptr_eq(track, &self.track) {
            self.next = None;
            return false;
        }
        if let Some(next) = &mut self.next
            && Arc::ptr_eq(track, next.subscription.feed().track())
            && !is_urgent
        {
            return false;
        }
        let (recent, subscription) = self.subscriber.subscribe(track);
        self.next = Some(Next { subscription, takes_any: is_urgent });
        let is_done = is_urgent && !recent.is_empty();
        if is_done {
            self.arrive(recent);
        }
        is_done
    }

    /// Goes over to another track at once, because the present one has ended.
    pub(in crate::webrtc) fn replace(&mut self, track: &Arc<Track>) {
        let (recent, subscription) = self.subscriber.subscribe(track);
        self.next = Some(Next { subscription, takes_any: true });
        self.arrive(recent);
    }

    /// Takes what the next track has. Returns whether the viewer gets it from here on.
    fn take_next(&mut self, fed: &Fed) -> bool {
        let Some(next) = &mut self.next else { return false };
        match fed {
            Fed::Frame(frame) if frame.key => {
                let is_near = self.last.is_none_or(|last| frame.time >= last - NEAR);
                let is_done = is_near || next.takes_any;
                // A keyframe that comes later is a new one.
                next.takes_any = true;
                if is_done {
                    self.arrive(vec![Rc::clone(frame)]);
                }
                is_done
            }
            Fed::Frame(_) => false,
            Fed::Over(_) => {
                self.next = None;
                false
            }
        }
    }

    /// Goes over to the next track with these frames. The first frame is a keyframe.
    ///
    /// Without frames, the output waits for a keyframe.
    fn arrive(&mut self, frames: Vec<Rc<Frame>>) {
        let Some(Next { subscription, .. }) = self.next.take() else { return };
        self.track = Arc::clone(subscription.feed().track());
        let last = self.last.unwrap_or_default();
        let before = self.subscription.replace(subscription);
        self.before = before.map(|before| (Rc::clone(before.feed()), last));
        self.expects = after(&frames);
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
            self.expects = after(&frames);
            self.waiting = frames.into();
            (self.waits, self.sent, self.time) = (false, 0, None);
        }
    }

    /// Begins again from the newest keyframe, if nothing waits.
    pub(in crate::webrtc) fn begin_again(&mut self) {
        if self.waiting.is_empty()
            && let Some(subscription) = &self.subscription
        {
            self.restart(subscription.feed().recent());
        }
    }

    /// Takes what a feed has, if it is of this track or of the next. Returns whether the viewer gets another
    /// track from here on.
    pub(in crate::webrtc) fn take(&mut self, feed: &Rc<Feed>, fed: &Fed) -> Result<bool, End> {
        let is_of = |own: &Subscription| Rc::ptr_eq(own.feed(), feed);
        if self.next.as_ref().is_some_and(|next| is_of(&next.subscription)) {
            return Ok(self.take_next(fed));
        }
        if !self.subscription.as_ref().is_some_and(is_of) {
            return Ok(false);
        }
        match fed {
            Fed::Frame(frame) if frame.number < self.expects => Ok(false),
            Fed::Frame(frame) => {
                self.expects = frame.number + 1;
                self.waits &= !frame.key;
                if !self.waits {
                    self.waiting.push_back(Rc::clone(frame));
                }
                if self.waiting.len() > MOST_WAITING {
                    self.skip();
                }
                Ok(false)
            }
            Fed::Over(why) => Err(End::Stream(why)),
        }
    }

    /// Why there are no more frames, if so.
    pub(in crate::webrtc) fn over(&self) -> Option<&'static str> {
        self.subscription.as_ref().and_then(|subscription| subscription.feed().over())
    }

    /// Leaves out all until the next keyframe, but for a frame that is sent in part.
    fn skip(&mut self) {
        self.waiting.truncate(usize::from(self.sent > 0));
        self.waits = true;
    }

    /// Whether something can be sent.
    pub(in crate::webrtc) fn has_more(&self) -> bool {
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
    pub(in crate::webrtc) fn ask(&mut self, ssrc: u32, numbers: impl Iterator<Item = u16>) {
        if ssrc == self.source.ssrc
            && let Some(resends) = &mut self.resends
        {
            resends.ask(numbers);
        }
    }

    /// Notes that the viewer has reported on a source.
    pub(in crate::webrtc) fn is_known(&mut self, ssrc: u32) {
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
    pub(in crate::webrtc) fn write(
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
    pub(in crate::webrtc) fn wants_report(&self) -> bool {
        self.newest.is_some() && !self.is_reported
    }

    /// What a report at `now` says of it, where time 0 of the stream was captured at `epoch`. `None` while
    /// nothing is sent.
    pub(in crate::webrtc) fn counts(&mut self, now: Instant, epoch: Option<i64>) -> Option<Counts> {
        let (time, sent, wall) = self.newest?;
        self.is_reported = true;
        let at = Ages { now: sent, wall, epoch }.captured(time, self.rate);
        let since = now.saturating_duration_since(at).as_micros();
        let since = since * u128::from(self.rate) / 1_000_000;
        // RTP times wrap after 32 bits.
        Some(self.source.counts((time as u32).wrapping_add(since as u32)))
    }
}

/// The number of the frame that follows these.
fn after(frames: &[Rc<Frame>]) -> u64 {
    frames.last().map_or(0, |frame| frame.number + 1)
}

#[cfg(test)]
mod tests {
    use str0m::format::Codec;
    use tokio::task::LocalSet;

    use super::super::feed::tests::{Viewer, numbers, publish, publisher, settle};
    use super::*;

    fn output(track: Arc<Track>, viewer: &Rc<Viewer>) -> Output {
        let terms = source::Terms { ssrc: 1, resends: None, extension: None, numbers: None };
        let (codec, terms) = (Codec::H264, Some(terms));
        let line = Line {
            mid: "v".into(),
            codec,
            payload: 96.into(),
            sends_again: false,
            numbers: None,
            terms,
        };
        let subscriber = Subscriber { feeds: Rc::default(), viewer: viewer.weak() };
        Output::new(line, track, VIDEO_RATE, subscriber).unwrap()
    }

    /// Takes all that the viewer has got.
    fn take(output: &mut Output, viewer: &Viewer) {
        let feed = Rc::clone(output.subscription.as_ref().unwrap().feed());
        for frame in viewer.frames.take() {
            assert_eq!(output.take(&feed, &Fed::Frame(frame)).ok(), Some(false));
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
            let viewer = Rc::new(Viewer::default());
            let mut output = output(publisher.stream().track("v0").unwrap(), &viewer);
            output.begin();
            settle().await;
            publish(&mut publisher, 63..75, 0);
            settle().await;
            let frames =
                |range: std::ops::Range<i64>| range.map(|n| (n, n % 50 == 0)).collect::<Vec<_>>();
            take(&mut output, &viewer);
            assert_eq!(waiting(&mut output), frames(50..75));
            // All are sent. More come, and before the viewer gets them, it asks for a keyframe, within a group of pictures and over its end.
            for (until, expected) in [(80, 50..80), (105, 100..105)] {
                output.waiting.clear();
                publish(&mut publisher, expected.start.max(until - 5)..until, 0);
                settle().await;
                output.begin_again();
                take(&mut output, &viewer);
                assert_eq!(waiting(&mut output), frames(expected));
            }
        };
        LocalSet::new().run_until(test).await;
    }
}
