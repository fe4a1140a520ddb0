//! Puts the tracks of a publisher on one timeline.
//!
//! Each RTP stream counts from a random number, at its own rate. Sender reports (RFC 3550 6.4.1)
//! say which RTP time of a stream belongs to which wall-clock time of the sender. Until both tracks
//! have a report, a track begins at the time at which its first packet came.

use media::clock::Unwrapper;

/// How far video may drift from its place beside the audio until it is moved there again, in microseconds.
/// Below this nobody notices, and the times stay exact to the RTP clock.
const TOLERATED: i64 = 10_000;
/// How far video may be from its place when the first reports tell the place, in microseconds. Until then it is
/// where its first packet came, which only tells how busy the network and both machines were. It is more than the
/// 2 ms by which two times of a publisher that rounds to milliseconds may be apart: a smaller move looks like
/// rounding to the code that computes the frame rate, which would spread it over many frames.
const TOLERATED_AT_FIRST: i64 = 2_500;
/// A report that would move video by more than this is not believed, in microseconds.
const BELIEVED: i64 = 10_000_000;

/// One RTP stream's clock.
#[derive(Debug, Clone)]
pub struct Clock {
    rate: u32,
    unwrapper: Unwrapper,
    /// Added to unwrapped RTP times.
    offset: Option<i64>,
    /// The newest report: the RTP time, unwrapped, and the sender's wall clock in microseconds.
    report: Option<(i64, i64)>,
    /// Whether reports have told its place beside the other track.
    is_placed: bool,
}

impl Clock {
    /// Makes a clock that counts `rate` units a second.
    pub fn new(rate: u32) -> Self {
        Self { rate, unwrapper: Unwrapper::new(32), offset: None, report: None, is_placed: false }
    }

    /// Units a second.
    pub fn rate(&self) -> u32 {
        self.rate
    }

    /// The time of a packet with RTP time `time`, in the clock's units. If it is the first packet, it
    /// came `since` microseconds after the publisher's begin.
    pub fn time(&mut self, time: u32, since: i64) -> i64 {
        let time = self.unwrapper.unwrap(time.into());
        let begins = scale(since, 1_000_000, self.rate);
        time + *self.offset.get_or_insert_with(|| begins - time)
    }

    /// What the clock adds to RTP times, in its units, once it has a time. [`Clock::align`] changes it.
    pub fn offset(&self) -> Option<i64> {
        self.offset
    }

    /// Notes a sender report: the RTP time `time` belongs to `wall`, microseconds of the sender's
    /// wall clock. It has no effect before the first packet.
    pub fn report(&mut self, time: u32, wall: i64) {
        let Some(last) = self.unwrapper.last() else { return };
        // The report belongs to a time near the last packet's.
        let step = (time as i32).wrapping_sub(last as i32);
        self.report = Some((last.saturating_add(step.into()), wall));
    }

    /// The wall clock at time 0, in microseconds, if a report tells.
    fn epoch(&self) -> Option<i64> {
        let ((time, wall), offset) = (self.report?, self.offset?);
        Some(wall.saturating_sub(scale(time.saturating_add(offset), self.rate, 1_000_000)))
    }

    /// Moves the clock to its place beside `audio`, which stays where it is: samples of audio abut,
    /// and a frame of video may last a little longer or shorter. Returns by how many microseconds it
    /// moved.
    pub fn align(&mut self, audio: &Self) -> Option<i64> {
        let by = self.epoch()?.checked_sub(audio.epoch()?)?;
        let distance = by.saturating_abs();
        let least = if self.is_placed { TOLERATED } else { TOLERATED_AT_FIRST };
        self.is_placed |= distance <= BELIEVED;
        let moves = (least..=BELIEVED).contains(&distance);
        let offset = self.offset.as_mut().filter(|_| moves)?;
        *offset = offset.saturating_add(scale(by, 1_000_000, self.rate));
        Some(by)
    }
}

fn scale(time: i64, from: u32, to: u32) -> i64 {
    let scaled = (i128::from(time) * i128::from(to)).div_euclid(i128::from(from.max(1)));
    i64::try_from(scaled).unwrap_or(if scaled < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_put_video_beside_audio() {
        let (mut audio, mut video) = (Clock::new(48_000), Clock::new(90_000));
        // Video was captured 50 ms before the audio, and came 30 ms after it.
        assert_eq!(audio.offset(), None);
        assert_eq!(audio.time(4_294_967_000, 0), 0);
        assert_eq!(audio.offset(), Some(-4_294_967_000));
        assert_eq!(video.time(1000, 30_000), 2700);
        assert_eq!(video.align(&audio), None, "no report yet");
        audio.report(4_294_967_000, 1_700_000_000_000_000);
        assert_eq!(video.align(&audio), None, "only one");
        video.report(1000 + 9000, 1_699_999_999_950_000 + 100_000);
        assert_eq!(video.align(&audio), Some(-80_000));
        assert_eq!(video.time(1000, 0), -4500);
        assert_eq!(audio.time(4_294_967_000u32.wrapping_add(48_000), 0), 48_000);
        // It stays there.
        video.report(1000 + 90_000, 1_699_999_999_950_000 + 1_000_000);
        assert_eq!(video.align(&audio), None);
    }

    #[test]
    fn small_steps_and_absurd_ones_are_left_out() {
        // The first reports put video in its place, unless it is there already. Later it must be further away.
        for (error, moves_at_first, moves_later) in [
            (2_400, false, false),
            (2_600, true, false),
            (9_000, true, false),
            (11_000, true, true),
            (60_000_000, false, false),
        ] {
            let (mut audio, mut video) = (Clock::new(48_000), Clock::new(90_000));
            audio.time(0, 0);
            video.time(0, 0);
            audio.report(0, 0);
            let mut later = video.clone();
            video.report(0, error);
            assert_eq!(video.align(&audio).is_some(), moves_at_first, "{error}");
            later.report(0, 0);
            assert_eq!(later.align(&audio), None);
            later.report(0, error);
            assert_eq!(later.align(&audio).is_some(), moves_later, "{error}");
        }
        // A report that is not believed places nothing.
        let (mut audio, mut video) = (Clock::new(48_000), Clock::new(90_000));
        audio.time(0, 0);
        video.time(0, 0);
        audio.report(0, 0);
        video.report(0, 60_000_000);
        assert_eq!(video.align(&audio), None);
        video.report(0, 9_000);
        assert_eq!(video.align(&audio), Some(9_000));
        let mut clock = Clock::new(90_000);
        clock.report(0, 5);
        assert_eq!(clock.epoch(), None, "a report of nothing");
        for wall in [i64::MIN, i64::MAX] {
            let (mut audio, mut video) = (Clock::new(48_000), Clock::new(90_000));
            audio.time(u32::MAX, i64::MAX);
            video.time(0, i64::MIN);
            audio.report(1 << 31, wall);
            video.report(1 << 31, wall.wrapping_neg());
            assert_eq!(video.align(&audio), None);
        }
    }
}
