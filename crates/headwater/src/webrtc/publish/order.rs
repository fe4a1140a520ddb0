//! Decode times of video that comes by RTP.

use rtp::VIDEO_RATE;

/// A step back of video by less than this comes of B-frames, or where video was put beside audio, in RTP
/// units. A longer one is a jump of the publisher's clock.
const SECOND: i64 = VIDEO_RATE as i64;
/// Sender reports put video up to this much back beside audio (`rtp::clock`), in RTP units.
const BELIEVED: i64 = 10 * SECOND;

/// The order of frames. RTP tells when a frame is shown, and frames come in the order of decoding.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// The last decode time, and the latest time at which a frame is shown.
    last: Option<i64>,
    latest: Option<i64>,
    /// Whether the codec has frames that are shown in another order than they come.
    pub(super) reorders: bool,
    /// Whether video was put beside audio, and its times are still those that were there before.
    moved: bool,
}

impl Order {
    /// Whether a frame was placed.
    pub(super) fn has_begun(&self) -> bool {
        self.last.is_some()
    }

    /// Notes that video was put beside audio.
    pub(super) fn moved(&mut self) {
        self.moved = true;
    }

    /// The decode time and the presentation time of a frame that is shown at `presents`, all in RTP
    /// units.
    pub(super) fn place(&mut self, presents: i64) -> (i64, i64) {
        let reach = if self.moved { BELIEVED } else { SECOND };
        let close = |last: &i64| (*last - reach..=*last).contains(&presents);
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

    /// The first frames of an encoder that looks ahead come long after their audio.
    #[test]
    fn video_that_is_put_far_back_waits_for_its_audio() {
        let mut order = Order { reorders: true, ..Order::default() };
        let late = 4 * SECOND;
        assert_eq!(placed(&mut order, &[late]), [(late, late)]);
        order.moved();
        let times = [late - 3 * SECOND, late - SECOND, late, late + 3000];
        let held = [late + 1, late + 2, late + 3, late + 3000].map(|time| (time, time));
        assert_eq!(placed(&mut order, &times), held);
        // From here on, a long step back is a jump of the clock again.
        assert_eq!(
            placed(&mut order, &[late - 2 * SECOND]),
            [(late - 2 * SECOND, late - 2 * SECOND)]
        );
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
