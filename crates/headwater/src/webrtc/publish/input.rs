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

/// By how many microseconds the two clocks of a sender may differ from one report to the next, beside a tenth of that
/// time. A sender takes both times at once, but rounds them.
const OUT_OF_STEP: i64 = 100_000;

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
    /// The newest report: the RTP time, and the sender's wall clock in microseconds.
    reported: Option<(u32, i64)>,
    jitter: Duration,
}

impl Input {
    /// Takes packets by this line, which wait for a missing one for `jitter`. The RTP clock counts
    /// `rate` units a second.
    pub(super) fn new(line: Line, rate: u32, jitter: Duration) -> Self {
        let (reorder, clock) = (Reorder::new(jitter), Clock::new(rate));
        Self { line, stream: None, reorder, clock, reported: None, jitter }
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
            self.reported = None;
        }
        self.reorder.push(packet, now.into_std());
        taken
    }

    /// Takes a sender report. Those of other streams tell nothing. Nor do those without a wall clock: a sender may
    /// send 0 in its place, or the time since it began (RFC 3550 6.4.1). str0m makes 1970 of both. If the wall clock
    /// goes otherwise than the RTP clock since the report before, the two times are not of one moment.
    pub(super) fn report(&mut self, feedback: &SenderFeedback) {
        let info = &feedback.sender_info;
        if self.stream.is_none_or(|(ssrc, _)| ssrc != info.ssrc) {
            return;
        }
        let wall = info.ntp_time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let Ok(wall @ 1..) = i64::try_from(wall.as_micros()) else { return };
        // An RTP time has 32 bits.
        let time = info.rtp_time.numer() as u32;
        let before = self.reported.replace((time, wall));
        if before.is_none_or(|before| are_in_step(before, (time, wall), self.clock.rate())) {
            self.clock.report(time, wall);
        }
    }

    /// When its last packet came.
    pub(super) fn heard(&self) -> Option<Instant> {
        self.stream.map(|(_, heard)| heard)
    }
}

/// Whether both clocks of a sender went on by the same time from one report to the next.
fn are_in_step(before: (u32, i64), now: (u32, i64), rate: u32) -> bool {
    let units = i64::from(now.0.wrapping_sub(before.0) as i32);
    let by_rtp = units * 1_000_000 / i64::from(rate.max(1));
    let by_wall = now.1.saturating_sub(before.1);
    by_wall.saturating_sub(by_rtp).saturating_abs() <= OUT_OF_STEP + by_rtp.abs() / 10
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use rtp::{AUDIO_RATE, VIDEO_RATE};
    use str0m::format::Codec;
    use str0m::media::{Frequency, MediaTime};
    use str0m::rtp::rtcp::SenderInfo;

    use super::*;

    /// A wall clock, in microseconds since 1970.
    const WALL: u64 = 1_700_000_000_000_000;

    /// Audio and video whose first packets came at once, with RTP time 0.
    fn inputs() -> [Input; 2] {
        [(1, AUDIO_RATE, Codec::Opus), (2, VIDEO_RATE, Codec::H264)].map(|(ssrc, rate, codec)| {
            let (mid, payload) = ("m".into(), 96.into());
            let line = Line { mid, codec, payload, sends_again: false, numbers: None, terms: None };
            let mut input = Input::new(line, rate, Duration::from_millis(1));
            let packet = Packet { sequence: 0, time: 0, marker: true, payload: [0].into() };
            input.take(ssrc.into(), packet, Instant::now());
            input.clock.time(0, 0);
            input
        })
    }

    /// Reports that so many milliseconds of RTP time belong to this wall clock.
    fn report(input: &mut Input, millis: u32, wall: u64) {
        let rate = input.clock.rate();
        let frequency = Frequency::new(rate).unwrap();
        let sender_info = SenderInfo {
            ssrc: input.stream.unwrap().0,
            ntp_time: SystemTime::UNIX_EPOCH + Duration::from_micros(wall),
            rtp_time: MediaTime::new(u64::from(millis * (rate / 1000)), frequency),
            sender_packet_count: 0,
            sender_octet_count: 0,
        };
        let (mid, received_at) = (input.line.mid, Instant::now().into_std());
        input.report(&SenderFeedback { mid, rid: None, received_at, sender_info });
    }

    #[test]
    fn reports_without_a_wall_clock_move_nothing() {
        let [mut audio, mut video] = inputs();
        // Reports of the two come at different times.
        for second in 0..20 {
            report(&mut audio, second * 1000, 0);
            report(&mut video, second * 1000 + 400, 0);
            assert_eq!(video.clock.align(&audio.clock), None, "{second}");
        }
    }

    #[test]
    fn reports_with_a_wall_clock_that_stands_or_runs_wrong_move_nothing() {
        for speed in [0, 500, 1500] {
            let [mut audio, mut video] = inputs();
            for second in 0..20 {
                let at = |millis: u32| WALL + u64::from(millis) * speed;
                report(&mut audio, second * 1000, at(second * 1000));
                let millis = if second == 0 { 0 } else { second * 1000 + 400 };
                report(&mut video, millis, at(millis));
                assert_eq!(video.clock.align(&audio.clock), None, "{speed} {second}");
            }
        }
    }

    #[test]
    fn a_wall_clock_that_was_set_is_believed_from_the_next_report_on() {
        let [mut audio, mut video] = inputs();
        report(&mut audio, 0, WALL);
        report(&mut video, 0, WALL);
        assert_eq!(video.clock.align(&audio.clock), None);
        let set = |millis: u64| WALL + 5_000_000 + millis * 1000;
        report(&mut video, 1000, set(1000));
        assert_eq!(video.clock.align(&audio.clock), None, "a step");
        report(&mut video, 2000, set(2000));
        assert_eq!(video.clock.align(&audio.clock), Some(5_000_000));
        // RTP times wrap.
        let (before, now) = ((u32::MAX - 44_999, WALL as i64), (45_000, WALL as i64 + 1_000_000));
        assert!(are_in_step(before, now, VIDEO_RATE));
    }
}
