//! A publisher by WHIP: RTP packets become samples of its live stream.

use std::fmt;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use live::Publisher;
use media::Sample;
use media::codec::opus;
use rtp::clock::Clock;
use rtp::h264::{AccessUnit, Depacketizer, Output};
use rtp::reorder::{Next, Packet, Reorder};
use rtp::{AUDIO_RATE, VIDEO_RATE};
use str0m::Rtc;
use str0m::media::{KeyframeRequestKind, SenderFeedback};
use str0m::rtp::{RtpPacket, Ssrc};
use tokio::time::Instant;
use tracing::field::display;

use super::end::End;
use super::offer::Line;

use crate::Origin;
use crate::ingest::{Ingest, Source};

/// Shortest time between two requests for a keyframe.
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// Shortest time between two such requests that are made for viewers.
const FOR_VIEWERS: Duration = Duration::from_secs(1);

/// A step back of video by less than this comes of B-frames, or where video was put beside audio, in RTP
/// units. A longer one is a jump of the publisher's clock.
const SECOND: i64 = VIDEO_RATE as i64;

/// The profile that has no B-frames, ISO/IEC 14496-10 A.2.1.
const BASELINE: u8 = 66;

/// How long audio waits for the first keyframe. A stream that begins with audio alone would be cut
/// without regard to keyframes.
const AWAITED: Duration = Duration::from_secs(3);

/// After this time another RTP stream of the same kind takes the place of one that is silent. Until
/// then its packets are dropped: they are other layers of simulcast.
const GONE: Duration = Duration::from_secs(1);

/// `dOps` of Opus in RTP: two channels at 48 kHz, of which the decoder makes one if there is one.
const OPUS: [u8; 11] = [0, 2, 0, 0, 0, 0, 0xbb, 0x80, 0, 0, 0];

/// A track of the publisher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Video,
    Audio,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Video { "video" } else { "audio" })
    }
}

impl Source for Kind {
    fn number(self) -> u32 {
        self as u32
    }
}

/// One track's packets.
struct Input {
    line: Line,
    /// The RTP stream, and when its last packet came.
    stream: Option<(Ssrc, Instant)>,
    reorder: Reorder,
    clock: Clock,
}

/// The order of frames. RTP tells when a frame is shown, and frames come in the order of decoding.
#[derive(Debug, Default)]
struct Order {
    /// The last decode time, and the latest time at which a frame is shown.
    last: Option<i64>,
    latest: Option<i64>,
    /// Whether the codec has frames that are shown in another order than they come.
    reorders: bool,
    /// Whether video was put beside audio, and its times are still those that were there before.
    moved: bool,
}

impl Order {
    /// Notes that video was put beside audio.
    fn moved(&mut self) {
        self.moved = true;
    }

    /// The decode time and the presentation time of a frame that is shown at `presents`, all in RTP
    /// units.
    fn place(&mut self, presents: i64) -> (i64, i64) {
        let close = |last: &i64| (*last - SECOND..=*last).contains(&presents);
        let presents = match self.latest.filter(close) {
            // It is no B-frame, so it is shown after those before it. Viewers of WebRTC would otherwise
            // take the step for B-frames.
            Some(latest) if self.moved || !self.reorders => latest + 1,
            Some(_) => presents,
            None => {
                self.moved = false;
                presents
            }
        };
        let dts = self.last.filter(close).map_or(presents, |last| (last + 1).max(presents));
        self.last = Some(dts);
        self.latest = self.latest.filter(close).max(Some(presents));
        (dts, presents)
    }
}

/// A publisher. Dropping it ends the publication.
pub(super) struct Publish {
    ingest: Ingest,
    began: Instant,
    /// When the first packet came.
    first: Option<Instant>,
    jitter: Duration,
    video: Option<Input>,
    audio: Option<Input>,
    depacketizer: Depacketizer,
    /// How far keyframes may be apart: encoders of WebRTC send one only when they are asked.
    distance: Duration,
    /// When the last keyframe came.
    keyed: Option<Instant>,
    /// When a keyframe was asked for, and whether one is wanted that was not asked for yet.
    asked: Option<Instant>,
    wanted: bool,
    has_asked: bool,
    /// Places video on the timeline.
    order: Order,
    /// Whether the audio track is announced.
    has_audio: bool,
    /// Bytes of payloads.
    bytes: u64,
}

impl Publish {
    pub(super) fn new(
        publisher: Publisher,
        (jitter, distance): (Duration, Duration),
        video: Option<Line>,
        audio: Option<Line>,
    ) -> Self {
        let (stream, info) = (publisher.stream().name(), publisher.info());
        let (peer, rendition) = (info.peer.map(display), info.rendition.as_deref());
        tracing::info!(peer, stream, rendition, "whip publisher");
        let input = |line: Option<Line>, rate| {
            let (reorder, clock) = (Reorder::new(jitter), Clock::new(rate));
            line.map(|line| Input { line, stream: None, reorder, clock })
        };
        Self {
            ingest: Ingest::new(publisher),
            began: Instant::now(),
            first: None,
            jitter,
            video: input(video, VIDEO_RATE),
            audio: input(audio, AUDIO_RATE),
            depacketizer: Depacketizer::default(),
            distance,
            keyed: None,
            asked: None,
            wanted: false,
            has_asked: false,
            order: Order::default(),
            has_audio: false,
            bytes: 0,
        }
    }

    /// The stream's name.
    pub(super) fn name(&self) -> &str {
        self.ingest.publisher().stream().name()
    }

    /// Whether another publisher has taken over the stream.
    pub(super) fn is_replaced(&self) -> bool {
        self.ingest.publisher().is_replaced()
    }

    /// Takes a packet. [`Publish::let_pass`] then hands it on.
    pub(super) fn take(&mut self, packet: RtpPacket, rtc: &mut Rtc, now: Instant) {
        let ssrc = packet.header.ssrc;
        let Some(mid) = rtc.direct_api().stream_rx(&ssrc).map(|stream| stream.mid()) else {
            return;
        };
        let input = [&mut self.video, &mut self.audio].into_iter().flatten();
        let Some(input) = { input }.find(|input| input.line.mid == mid) else { return };
        let is_video = input.clock.rate() == VIDEO_RATE;
        match &mut input.stream {
            Some((known, heard)) if *known == ssrc => *heard = now,
            Some((_, heard)) if now.duration_since(*heard) < GONE => return,
            stream => {
                if stream.replace((ssrc, now)).is_some() {
                    input.reorder = Reorder::new(self.jitter);
                    input.clock = Clock::new(input.clock.rate());
                    if is_video {
                        self.depacketizer.lose();
                    }
                }
            }
        }
        self.first.get_or_insert(now);
        self.bytes += packet.payload.len() as u64;
        let packet = Packet {
            sequence: *packet.seq_no,
            time: packet.header.timestamp,
            marker: packet.header.marker,
            payload: packet.payload,
        };
        input.reorder.push(packet, now.into_std());
    }

    /// Takes a sender report.
    pub(super) fn report(&mut self, feedback: &SenderFeedback) {
        let info = &feedback.sender_info;
        let wall = match info.ntp_time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_micros()),
            Err(before) => i64::try_from(before.duration().as_micros()).map(|before| -before),
        };
        let Ok(wall) = wall else { return };
        let input = [&mut self.video, &mut self.audio].into_iter().flatten();
        for input in input {
            // Reports of streams that are not taken tell nothing.
            if input.stream.is_some_and(|(ssrc, _)| ssrc == info.ssrc) {
                // An RTP time has 32 bits.
                input.clock.report(info.rtp_time.numer() as u32, wall);
            }
        }
        if let (Some(video), Some(audio)) = (&mut self.video, &self.audio)
            && let Some(by) = video.clock.align(&audio.clock)
        {
            self.order.moved();
            tracing::debug!(stream = self.name(), by_us = by, "video put beside audio");
        }
    }

    /// Passes on what is complete or waited for too long. Returns when there may be more.
    pub(super) fn let_pass(
        &mut self,
        rtc: &mut Rtc,
        now: Instant,
        origin: &Origin,
    ) -> Result<Option<Instant>, End> {
        let at = now.into_std();
        while let Some(next) = self.audio.as_mut().and_then(|audio| audio.reorder.pop(at)) {
            if let Next::Packet(packet) = next {
                self.sound(&packet, now, origin)?;
            }
        }
        while let Some(next) = self.video.as_mut().and_then(|video| video.reorder.pop(at)) {
            match next {
                Next::Lost(_) => self.depacketizer.lose(),
                Next::Packet(packet) => {
                    let Packet { time, marker, payload, .. } = &packet;
                    let mut outputs = Vec::new();
                    self.depacketizer.push(*time, *marker, payload, |output| outputs.push(output));
                    for output in outputs {
                        match output {
                            Output::Unit(unit) => self.picture(unit, now, origin)?,
                            Output::Broken(Some(error)) => {
                                self.ingest.problem(Some(Kind::Video), &error);
                            }
                            Output::Broken(None) => {}
                        }
                    }
                }
            }
        }
        self.ingest.check().map_err(End::from)?;
        let is_due = self.keyed.is_some_and(|keyed| now.duration_since(keyed) >= self.distance);
        if self.wanted || is_due || (self.first.is_some() && self.depacketizer.waits()) {
            self.ask_for_keyframe(rtc, now);
        }
        let inputs = [&self.video, &self.audio];
        let deadlines = inputs.into_iter().flatten().filter_map(|input| input.reorder.deadline());
        let asks = self.keyed.map(|keyed| {
            let again = self.asked.map_or(now, |asked| asked + ASK_AGAIN);
            (keyed + self.distance).max(again)
        });
        Ok(deadlines.map(Instant::from_std).chain(asks).min())
    }

    /// Asks for a keyframe, but not too often.
    pub(super) fn ask_for_keyframe(&mut self, rtc: &mut Rtc, now: Instant) {
        self.wanted = true;
        let Some((ssrc, _)) = self.video.as_ref().and_then(|video| video.stream) else { return };
        if self.asked.is_some_and(|asked| now.duration_since(asked) < ASK_AGAIN) {
            return;
        }
        if let Some(stream) = rtc.direct_api().stream_rx(&ssrc) {
            stream.request_keyframe(KeyframeRequestKind::Pli);
            (self.asked, self.wanted, self.has_asked) = (Some(now), false, true);
        }
    }

    /// Asks for a keyframe because a viewer wants one. Viewers together get one a second: each costs all
    /// of them quality.
    pub(super) fn ask_for_viewers(&mut self, rtc: &mut Rtc, now: Instant) {
        if self.asked.is_none_or(|asked| now.duration_since(asked) >= FOR_VIEWERS) {
            self.ask_for_keyframe(rtc, now);
        }
    }

    /// Whether a keyframe was asked for since this was last called.
    pub(super) fn take_asked(&mut self) -> bool {
        std::mem::take(&mut self.has_asked)
    }

    /// Time since the first packet, in microseconds.
    fn since(&self, now: Instant) -> i64 {
        let since = now.duration_since(self.first.unwrap_or(now));
        i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
    }

    fn picture(&mut self, unit: AccessUnit, now: Instant, origin: &Origin) -> Result<(), End> {
        let since = self.since(now);
        let Some(video) = &mut self.video else { return Ok(()) };
        let presents = video.clock.time(unit.time, since);
        if let Some(config) = unit.config {
            self.order.reorders = config.profile != BASELINE;
            let at = format_args!("RTP time {}", unit.time);
            let codec = (media::Codec::Avc(config), VIDEO_RATE);
            self.ingest.track(Kind::Video, codec, at, origin.now())?;
        }
        let (dts, presents) = self.order.place(presents);
        if unit.key {
            (self.keyed, self.wanted) = (Some(now), false);
        }
        let cts = i32::try_from(presents - dts).unwrap_or(0);
        let sample = Sample { dts, cts, duration: 0, sync: unit.key, data: unit.data };
        self.ingest.sample(Kind::Video, sample, origin.now()).map_err(End::from)
    }

    fn sound(&mut self, packet: &Packet, now: Instant, origin: &Origin) -> Result<(), End> {
        let since = self.since(now);
        let Some(audio) = &mut self.audio else { return Ok(()) };
        let dts = audio.clock.time(packet.time, since);
        let early = now.duration_since(self.first.unwrap_or(now)) < AWAITED;
        if self.video.is_some() && self.order.last.is_none() && early {
            return Ok(());
        }
        let Some(duration) = opus::packet_duration(&packet.payload) else {
            self.ingest.problem(Some(Kind::Audio), &"not an Opus packet");
            return Ok(());
        };
        if !self.has_audio {
            let Ok(config) = opus::Config::parse(Bytes::from_static(&OPUS)) else { return Ok(()) };
            let at = format_args!("RTP time {}", packet.time);
            let codec = (media::Codec::Opus(config), AUDIO_RATE);
            self.ingest.track(Kind::Audio, codec, at, origin.now())?;
            self.has_audio = true;
        }
        let data = Bytes::copy_from_slice(&packet.payload);
        let sample = Sample { dts, cts: 0, duration, sync: true, data };
        self.ingest.sample(Kind::Audio, sample, origin.now()).map_err(End::from)
    }
}

impl Drop for Publish {
    fn drop(&mut self) {
        let info = self.ingest.publisher().info();
        let (peer, rendition) = (info.peer.map(display), info.rendition.as_deref());
        let millis = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (after, bytes) = (Duration::from_millis(millis), self.bytes);
        tracing::info!(peer, stream = self.name(), rendition, ?after, bytes, "whip publisher left");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decode and presentation times of frames that are shown at these times.
    fn placed(order: &mut Order, times: &[i64]) -> Vec<(i64, i64)> {
        times.iter().map(|time| order.place(*time)).collect()
    }

    #[test]
    fn video_that_is_put_beside_audio_has_no_b_frames() {
        let mut order = Order { reorders: true, ..Order::default() };
        assert_eq!(placed(&mut order, &[0, 3000, 6000]), [(0, 0), (3000, 3000), (6000, 6000)]);
        order.moved();
        // It was moved back by two frames, and shows those that come after those that were shown.
        let later = placed(&mut order, &[3000, 6000, 9000, 12_000]);
        assert_eq!(later, [(6001, 6001), (6002, 6002), (9000, 9000), (12_000, 12_000)]);
    }

    #[test]
    fn b_frames_stay_in_their_order() {
        let mut order = Order { reorders: true, ..Order::default() };
        let times = placed(&mut order, &[0, 9000, 3000, 6000, 18_000]);
        assert_eq!(times, [(0, 0), (9000, 9000), (9001, 3000), (9002, 6000), (18_000, 18_000)]);
    }

    #[test]
    fn a_codec_without_b_frames_has_none() {
        let mut order = Order::default();
        assert_eq!(placed(&mut order, &[0, 9000, 3000]), [(0, 0), (9000, 9000), (9001, 9001)]);
        // A clock that jumps is not held up.
        let jumped = -100 * SECOND;
        assert_eq!(placed(&mut order, &[jumped, 9002]), [(jumped, jumped), (9002, 9002)]);
    }
}
