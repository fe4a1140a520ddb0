//! One RTP stream of a publisher: its packets in order, and its clock.

use std::time::{Duration, SystemTime};

use rtp::clock::Clock;
use rtp::reorder::{Packet, Reorder};
use str0m::media::SenderFeedback;
use str0m::rtp::Ssrc;
use tokio::time::Instant;

use crate::webrtc::offer::Line;

/// After this time another RTP stream of the same kind takes the place of one that is silent. Until
/// then its packets are dropped.
const GONE: Duration = Duration::from_secs(1);

/// What became of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// It is of another RTP stream than the one that is taken.
    Dropped,
    /// It goes on with the stream.
    Next,
    /// It begins another stream in place of one that is silent.
    Anew,
}

/// Takes the packets of one RTP stream.
pub(super) struct Input {
    pub(super) line: Line,
    /// The RTP stream, and when its last packet came.
    pub(super) stream: Option<(Ssrc, Instant)>,
    pub(super) reorder: Reorder,
    pub(super) clock: Clock,
    jitter: Duration,
}

impl Input {
    /// Takes packets by this line, which wait for a missing one for `jitter`. The RTP clock counts
    /// `rate` units a second.
    pub(super) fn new(line: Line, rate: u32, jitter: Duration) -> Self {
        let (reorder, clock) = (Reorder::new(jitter), Clock::new(rate));
        Self { line, stream: None, reorder, clock, jitter }
    }

    /// Takes a packet of the RTP stream `ssrc`.
    pub(super) fn take(&mut self, ssrc: Ssrc, packet: Packet, now: Instant) -> Taken {
        let taken = match &mut self.stream {
            Some((known, heard)) if *known == ssrc => {
                *heard = now;
                Taken::Next
            }
            Some((_, heard)) if now.duration_since(*heard) < GONE => return Taken::Dropped,
            stream => match stream.replace((ssrc, now)) {
                None => Taken::Next,
                Some(_) => Taken::Anew,
            },
        };
        if taken == Taken::Anew {
            self.reorder = Reorder::new(self.jitter);
            self.clock = Clock::new(self.clock.rate());
        }
        self.reorder.push(packet, now.into_std());
        taken
    }

    /// Takes a sender report. Those of other streams tell nothing.
    pub(super) fn report(&mut self, feedback: &SenderFeedback) {
        let info = &feedback.sender_info;
        let wall = match info.ntp_time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_micros()),
            Err(before) => i64::try_from(before.duration().as_micros()).map(|before| -before),
        };
        if let Ok(wall) = wall
            && self.stream.is_some_and(|(ssrc, _)| ssrc == info.ssrc)
        {
            // An RTP time has 32 bits.
            self.clock.report(info.rtp_time.numer() as u32, wall);
        }
    }

    /// When its last packet came.
    pub(super) fn heard(&self) -> Option<Instant> {
        self.stream.map(|(_, heard)| heard)
    }
}
