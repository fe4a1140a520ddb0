//! How late media come, and how far behind live the playhead is. Both are measured by the clock that
//! tells most accurately when the media were captured.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Micros, Signed};

/// Longer times from capture to arrival count as this one: 100 s.
const LONGEST: u64 = 100_000_000;

/// How fast media come is looked at after so much of them, in microseconds. Frames alone come unevenly.
const STEP: Micros = 100_000;

/// The clock that tells when media were captured, from the least to the most accurate.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum CaptureClock {
    /// EXT-X-PROGRAM-DATE-TIME or `availabilityStartTime`: the server's clock, for each segment.
    DateTime,
    /// `prft` boxes: the server's clock, for each fragment.
    Prft,
    /// Stamps in the video itself: the publisher's clock, for each access unit.
    Stamp,
}

impl CaptureClock {
    /// Name of the clock in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::DateTime => "date-time",
            Self::Prft => "prft",
            Self::Stamp => "stamp",
        }
    }
}

/// Stamps of the first and the last access unit of some media (see [`media::stamp`]), in
/// microseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamps {
    /// Stamp of the first.
    pub first: Micros,
    /// Stamp of the last.
    pub last: Micros,
}

impl Stamps {
    /// Finds the stamps of the first and the last access unit; the front of each is enough.
    pub fn find(first: &[u8], last: &[u8]) -> Option<Self> {
        let find = |unit| media::stamp::find(unit).and_then(|unix| Micros::try_from(unix).ok());
        Some(Self { first: find(first)?, last: find(last)? })
    }

    /// Finds the stamp of a single access unit, or of a tag or message with one.
    pub fn of_one(unit: &[u8]) -> Option<Self> {
        let unix = media::stamp::find(unit).and_then(|unix| Micros::try_from(unix).ok())?;
        Some(Self { first: unix, last: unix })
    }
}

/// Smallest, mean and largest of a value that changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gauge {
    count: u32,
    sum: i64,
    min: i64,
    max: i64,
}

impl Default for Gauge {
    fn default() -> Self {
        Self { count: 0, sum: 0, min: i64::MAX, max: i64::MIN }
    }
}

impl Gauge {
    /// Records a value.
    pub fn record(&mut self, value: i64) {
        self.count = self.count.saturating_add(1);
        self.sum = self.sum.saturating_add(value);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Smallest, mean and largest value; `None` before the first.
    pub fn read(&self) -> Option<(i64, i64, i64)> {
        (self.count > 0).then(|| (self.min, self.sum / i64::from(self.count), self.max))
    }
}

/// The latencies of a player's media. Times without `unix` are on the playback timeline.
#[derive(Debug, Clone)]
pub struct Latencies {
    /// Capture time (since 1970) minus playback time, if known.
    captured: Option<Micros>,
    /// The most accurate clock that has told the capture time.
    clock: Option<CaptureClock>,
    /// Stamp of the last access unit of the media that come next.
    stamped: Option<Micros>,
    /// Smallest difference of arrival and playback time so far: the delay of the fastest media.
    fastest: Micros,
    /// Where media ended, and when they came: a [`STEP`] ago at most. `Micros::MIN` before the first.
    newest: (Micros, Micros),
    /// Whether media come as they are made: what the server had ready has come.
    is_live: bool,
    delivery: Gauge,
    /// The same in microseconds, with one exact digit. Made with the first value: not all streams tell.
    deliveries: Option<Box<Signed<u32>>>,
    /// `Micros::MIN` before the first.
    newest_delivery: Micros,
    behind: Gauge,
    late: Gauge,
}

impl Default for Latencies {
    fn default() -> Self {
        Self {
            captured: None,
            clock: None,
            stamped: None,
            fastest: Micros::MAX,
            newest: (Micros::MIN, Micros::MIN),
            is_live: false,
            delivery: Gauge::default(),
            deliveries: None,
            newest_delivery: Micros::MIN,
            behind: Gauge::default(),
            late: Gauge::default(),
        }
    }
}

impl Latencies {
    /// Records the capture time `unix` of the media at `at`, unless a more accurate clock has
    /// already given one for this timeline.
    pub(super) fn set_captured(&mut self, at: Micros, unix: Micros, clock: CaptureClock) {
        if self.captured.is_none() || self.clock <= Some(clock) {
            if self.clock.is_some_and(|known| known < clock) {
                // One clock measures everything: values of a less accurate clock are not mixed in.
                (self.delivery, self.deliveries) = (Gauge::default(), None);
                self.behind = Gauge::default();
            }
            self.clock = Some(clock);
            self.captured = Some(unix.saturating_sub(at));
        }
    }

    /// Takes the stamps of the media that come next, which begin at `at`.
    pub(super) fn set_stamps(&mut self, at: Micros, stamps: Stamps) {
        self.set_captured(at, stamps.first, CaptureClock::Stamp);
        self.stamped = Some(stamps.last);
    }

    /// Begins a new timeline of media: capture times of the one before say nothing about it.
    pub(super) fn begin_timeline(&mut self) {
        self.captured = None;
        self.stamped = None;
        self.fastest = Micros::MAX;
        self.newest = (Micros::MIN, Micros::MIN);
    }

    /// Notes where media end that came at `now`. A server may have media ready for a viewer that comes, for instance
    /// those since the newest keyframe. They come faster than they were made, and tell nothing of how soon media
    /// come: a server without them would seem faster, and serves its viewers worse.
    fn follow(&mut self, now: Micros, to: Micros) {
        let (end, came) = self.newest;
        let made = to.saturating_sub(end);
        if made < STEP {
            return;
        }
        self.newest = (to, now);
        let is_first = end == Micros::MIN;
        self.is_live |= !is_first && now.saturating_sub(came).saturating_mul(2) >= made;
    }

    /// Measures media that arrived at `now`, which is `unix` since 1970. They end at `to`, and the
    /// playhead is at `position`, on the playback timeline.
    pub(super) fn measure(
        &mut self,
        (now, unix): (Micros, Micros),
        to: Micros,
        position: Option<Micros>,
    ) {
        self.follow(now, to);
        let delay = now - to;
        self.fastest = self.fastest.min(delay);
        self.late.record(delay - self.fastest);
        let stamped = self.stamped.take();
        let Some(captured) = self.captured else { return };
        // Once there are stamps, media without a stamp are not measured: the capture time of their
        // end is known less accurately.
        let newest = match self.clock {
            Some(CaptureClock::Stamp) => stamped,
            _ => Some(captured.saturating_add(to)),
        };
        if let Some(newest) = newest {
            let delivery = unix.saturating_sub(newest);
            self.newest_delivery = delivery;
            if self.is_live {
                self.delivery.record(delivery);
                let deliveries = self.deliveries.get_or_insert_with(|| {
                    Box::new(Signed::new(LONGEST, 1).expect("a range and precision that exist"))
                });
                deliveries.record(delivery);
            }
        }
        if let Some(position) = position {
            self.behind.record(unix.saturating_sub(captured.saturating_add(position)));
        }
    }

    /// The clock that latencies are measured by.
    pub fn clock(&self) -> Option<CaptureClock> {
        self.clock
    }

    /// Time from capture to arrival, of media that the server had not ready when the viewer came.
    pub fn delivery(&self) -> &Gauge {
        &self.delivery
    }

    /// The time from capture to arrival within which this share of what came arrived, with one exact digit. `None`
    /// before the first value.
    pub fn delivered(&self, share: f64) -> Option<Micros> {
        Some(self.deliveries.as_ref()?.at(share))
    }

    /// Time from capture to arrival of the newest media.
    pub fn newest_delivery(&self) -> Option<Micros> {
        Some(self.newest_delivery).filter(|delivery| *delivery > Micros::MIN)
    }

    /// Time from capture to the playhead.
    pub fn behind(&self) -> &Gauge {
        &self.behind
    }

    /// How much later media arrived than the fastest media.
    pub fn late(&self) -> &Gauge {
        &self.late
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::playback::{Playback, Track};

    const MS: Micros = 1000;

    #[test]
    fn latency_is_from_capture_to_arrival_and_to_the_playhead() {
        let mut playback = Playback::new(0);
        let unix = 1_000_000_000;
        playback.set_captured(0, unix - 700 * MS, CaptureClock::DateTime);
        playback.media(0, unix, Track::Video, 0, 200 * MS);
        // The 200 ms of media were captured until 500 ms ago; the playhead has not reached their
        // end.
        assert_eq!(playback.latencies().newest_delivery(), Some(500 * MS));
        playback.media(100 * MS, unix + 100 * MS, Track::Video, 200 * MS, 400 * MS);
        assert_eq!(playback.latencies().behind().read().unwrap().2, 700 * MS);
        assert_eq!(playback.latencies().delivery().read(), Some((400 * MS, 400 * MS, 400 * MS)));
        assert_eq!(playback.latencies().late().read(), Some((0, 0, 0)));
    }

    #[test]
    fn what_the_server_had_ready_is_no_delivery() {
        let mut playback = Playback::new(0);
        let unix = 1_000_000_000;
        // The newest keyframe is 1.9 s old when the viewer comes.
        playback.set_captured(0, unix - 1900 * MS, CaptureClock::Stamp);
        for frame in 0..100 {
            let captured = unix + 40 * MS * frame - 1900 * MS;
            // What is ready takes 2 ms a frame to send.
            let came = (captured + 10 * MS).max(unix + 2 * MS * frame);
            let stamps = Stamps { first: captured, last: captured };
            playback.set_stamps(40 * MS * frame, stamps);
            playback.media(came - unix, came, Track::Video, 40 * MS * frame, 40 * MS * (frame + 1));
        }
        let latencies = playback.latencies();
        assert_eq!(latencies.delivery().read(), Some((10 * MS, 10 * MS, 10 * MS)));
        assert!(latencies.delivered(0.99).unwrap() < 11 * MS);
        assert_eq!(latencies.newest_delivery(), Some(10 * MS));
        // The playhead is behind by all that is older.
        assert!(latencies.behind().read().unwrap().1 > 1800 * MS);
    }

    #[test]
    fn shares_of_deliveries_are_told_with_one_digit() {
        let mut playback = Playback::new(0);
        assert_eq!(playback.latencies().delivered(0.5), None);
        let unix = 1_000_000_000;
        playback.set_captured(0, unix, CaptureClock::Prft);
        // Each arrives 20 ms after its end, one in fifty 300 ms after it.
        for frame in 0..200 {
            let late = if frame % 50 == 49 { 300 * MS } else { 20 * MS };
            let (from, to) = (40 * MS * frame, 40 * MS * (frame + 1));
            playback.media(to + late, unix + to + late, Track::Video, from, to);
        }
        let [half, most] = [0.5, 0.99].map(|share| playback.latencies().delivered(share).unwrap());
        assert!((19 * MS..22 * MS).contains(&half), "{half}");
        assert!((280 * MS..330 * MS).contains(&most), "{most}");
        // A server whose clock is 1 s ahead.
        let mut playback = Playback::new(0);
        playback.set_captured(0, unix + 1000 * MS, CaptureClock::Prft);
        playback.media(60 * MS, unix + 60 * MS, Track::Video, 0, 40 * MS);
        playback.media(160 * MS, unix + 160 * MS, Track::Video, 40 * MS, 140 * MS);
        let half = playback.latencies().delivered(0.5).unwrap();
        assert!((-1030 * MS..-930 * MS).contains(&half), "{half}");
    }

    #[test]
    fn stamps_are_from_sending_to_arrival_whatever_else_there_is() {
        let mut playback = Playback::new(0);
        let unix = 1_000_000_000;
        playback.set_captured(0, unix, CaptureClock::Prft);
        playback.media(-100 * MS, unix - 100 * MS, Track::Video, -100 * MS, -60 * MS);
        playback.media(0, unix, Track::Video, -60 * MS, 40 * MS);
        assert_eq!(playback.latencies().delivery().read(), Some((-40 * MS, -40 * MS, -40 * MS)));
        // Two frames, sent 340 and 300 ms ago. The server's clock no longer counts.
        playback.set_captured(40 * MS, unix, CaptureClock::Prft);
        let stamps = Stamps { first: unix - 240 * MS, last: unix - 200 * MS };
        playback.set_stamps(40 * MS, stamps);
        playback.set_captured(40 * MS, unix, CaptureClock::DateTime);
        playback.media(100 * MS, unix + 100 * MS, Track::Video, 40 * MS, 120 * MS);
        assert_eq!(playback.latencies().newest_delivery(), Some(300 * MS));
        assert_eq!(playback.latencies().clock(), Some(CaptureClock::Stamp));
        // The values of the less accurate clock are gone.
        assert_eq!(playback.latencies().delivery().read(), Some((300 * MS, 300 * MS, 300 * MS)));
        // At the end of the first frame, where the second begins. It was sent 340 ms ago.
        assert_eq!(playback.latencies().behind().read().unwrap().2, 340 * MS);
        // Audio has no stamps.
        playback.media(100 * MS, unix + 100 * MS, Track::Audio, 0, 90 * MS);
        assert_eq!(playback.latencies().delivery().read().unwrap().2, 300 * MS);
    }
}
