//! One layer of a publisher's video: its packets become frames. Without simulcast there is one layer.

use std::time::Duration;

use media::Sample;
use rtp::clock::Clock;
use rtp::reorder::{Next, Packet};
use rtp::{AccessUnit, Depacketizer, Output, VIDEO_RATE};
use str0m::Rtc;
use str0m::format::Codec;
use str0m::media::{KeyframeRequestKind, Mid, Rid};
use str0m::rtp::Ssrc;
use tokio::time::Instant;

use super::input::{Input, Taken};
use super::order::Order;
use crate::webrtc::offer::Line;

/// Shortest time between two requests for a keyframe.
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// A layer sends nothing now if another has sent for so long since. Its publisher has switched it off.
const OFF: Duration = Duration::from_secs(1);

/// The profile of H.264 that has no B-frames, ISO/IEC 14496-10 A.2.1.
const BASELINE: u8 = 66;

/// A layer of a publisher's video.
pub(super) struct Layer {
    /// Its name in the offer; `None` without simulcast.
    pub(super) rid: Option<Rid>,
    pub(super) input: Input,
    depacketizer: Depacketizer,
    /// Places frames on the timeline.
    order: Order,
    /// When the last keyframe came.
    keyed: Option<Instant>,
    /// When a keyframe was asked for, and whether one is wanted that was not asked for yet.
    asked: Option<Instant>,
    wanted: bool,
}

impl Layer {
    pub(super) fn new(line: Line, rid: Option<Rid>, jitter: Duration) -> Self {
        Self {
            rid,
            input: Input::new(line, VIDEO_RATE, jitter),
            depacketizer: match line.codec {
                Codec::Av1 => rtp::av1::depacketizer(),
                Codec::H265 => rtp::h265::depacketizer(),
                _ => rtp::h264::depacketizer(),
            },
            order: Order::default(),
            keyed: None,
            asked: None,
            wanted: false,
        }
    }

    /// Whether packets of this media description and layer are its own.
    pub(super) fn is(&self, mid: Mid, rid: Option<Rid>) -> bool {
        self.input.line.mid == mid && (self.rid.is_none() || self.rid == rid)
    }

    /// Whether packets of this media description and layer are its own, and are sent again if they are asked for.
    pub(super) fn sends_again(&self, mid: Mid, rid: Option<Rid>) -> bool {
        self.input.line.sends_again && self.is(mid, rid)
    }

    /// Takes a packet of the RTP stream `ssrc`. Returns false if it is dropped.
    pub(super) fn take(&mut self, ssrc: Ssrc, packet: Packet, now: Instant) -> bool {
        let taken = self.input.take(ssrc, packet, now);
        if taken == Taken::Anew {
            self.depacketizer.lose();
        }
        taken != Taken::Dropped
    }

    /// What the next packet that may pass leads to. `None` if none may pass yet.
    pub(super) fn pop(&mut self, now: Instant) -> Option<Vec<Output>> {
        let mut outputs = Vec::new();
        match self.input.reorder.pop(now.into_std())? {
            Next::Lost(_) => self.depacketizer.lose(),
            Next::Packet(packet) => {
                let (time, marker) = (packet.time, packet.marker);
                self.depacketizer
                    .push(time, marker, &packet.payload, |output| outputs.push(output));
            }
        }
        Some(outputs)
    }

    /// The sample of an access unit. The publisher's first packet came `since` microseconds ago.
    pub(super) fn sample(&mut self, unit: AccessUnit, since: i64, now: Instant) -> Sample {
        let presents = self.input.clock.time(unit.time, since);
        match unit.codec {
            Some(media::Codec::Avc(config)) => self.order.reorders = config.profile != BASELINE,
            Some(media::Codec::Hevc(_)) => self.order.reorders = true,
            _ => {}
        }
        let (dts, presents) = self.order.place(presents);
        if unit.key {
            (self.keyed, self.wanted) = (Some(now), false);
        }
        let cts = i32::try_from(presents - dts).unwrap_or(0);
        Sample { dts, cts, duration: 0, sync: unit.key, data: unit.data }
    }

    /// Whether a frame has passed.
    pub(super) fn has_begun(&self) -> bool {
        self.order.has_begun()
    }

    /// Moves it to its place beside another track. Returns by how many microseconds it moved.
    pub(super) fn align(&mut self, other: &Clock) -> Option<i64> {
        let by = self.input.clock.align(other)?;
        self.order.moved();
        Some(by)
    }

    /// Whether its packets come, when the newest packet of all layers came at `newest`.
    pub(super) fn is_on(&self, newest: Option<Instant>) -> bool {
        let (Some(heard), Some(newest)) = (self.input.heard(), newest) else { return false };
        newest.duration_since(heard) < OFF
    }

    /// Notes that a keyframe is wanted.
    pub(super) fn want_keyframe(&mut self) {
        self.wanted = true;
    }

    /// When a keyframe is due, if keyframes are to be `distance` apart.
    pub(super) fn due(&self, distance: Duration) -> Option<Instant> {
        Some(self.keyed? + distance)
    }

    /// When a keyframe was asked for last.
    pub(super) fn asked(&self) -> Option<Instant> {
        self.asked
    }

    /// From when on a keyframe may be asked for again.
    pub(super) fn may_ask(&self) -> Option<Instant> {
        self.asked.map(|asked| asked + ASK_AGAIN)
    }

    /// Asks for a keyframe if one is wanted or is needed to go on, but not too often. Returns whether it
    /// asked.
    pub(super) fn ask(&mut self, rtc: &mut Rtc, now: Instant) -> bool {
        self.wanted |= self.input.stream.is_some() && self.depacketizer.waits();
        let Some((ssrc, _)) = self.input.stream.filter(|_| self.wanted) else { return false };
        if self.may_ask().is_some_and(|at| now < at) {
            return false;
        }
        let mut api = rtc.direct_api();
        let Some(stream) = api.stream_rx(&ssrc) else { return false };
        stream.request_keyframe(KeyframeRequestKind::Pli);
        (self.asked, self.wanted) = (Some(now), false);
        true
    }
}
