//! Cuts one track's samples into chunks and segments.
//!
//! A chunk is published before the frame after it arrives, so nobody knows yet for how long its
//! last frame is shown. The packager does not need to know: it lets each frame be decoded when the
//! frame before it was due, so each decode duration ends when the frame itself is due. All decode
//! durations are known then, and decode times abut: parts add up to segments, and segments to the
//! timeline, at any frame rate and without one. Presentation times are the publisher's, within the
//! rounding of its clock. Where frames come far apart, the newest waits for the next instead. The
//! durations of audio access units are known, and audio is decoded when it is heard.

mod cuts;
mod limit;
mod times;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use media::{Kind, Sample};
use payload::memory::{Arena, Pressure};

pub(crate) use self::cuts::{Boundaries, Cutting};
use self::limit::least_part;
use self::times::{Timing, begin_earlier};
use crate::dates::Dates;
use crate::gop::Learnt;
use crate::segments::{Begin, Holding, MOST_PARTS, Segments};
use crate::window::{Header, Window};
use crate::{Settings, UnixMicros, rescale};

/// The most samples that may wait for a chunk to fill. This bounds memory when media time stands
/// still.
const MOST_PENDING: usize = 1024;
/// The most bytes that may wait for a chunk to fill.
const MOST_PENDING_BYTES: usize = 4 << 20;
/// How far decode times may be behind the source's after a pause. The following parts make up for
/// the lag. A longer lag goes into one part, which is then longer than `PART-TARGET`.
const MOST_LAG: Duration = Duration::from_secs(1);

pub(crate) struct Packager {
    settings: Settings,
    /// Longest duration of a segment: `EXT-X-TARGETDURATION`.
    target_duration: Duration,
    /// Whether keyframes most likely stay as far apart as they have been. Then one segment is
    /// enough to forecast the next.
    regular: bool,
    header: Arc<Header>,
    /// Header that the next sample needs, after the configuration changed.
    new_header: Option<Arc<Header>>,
    timing: Timing,
    /// Longest duration of a part, in the track's timescale: `PART-TARGET`. `None` until it is
    /// known.
    part_limit: Option<u32>,
    /// Samples of the chunk being filled. [`Packager::follows`] and [`Packager::publish`] may still
    /// adjust their times.
    pending: Vec<Sample>,
    /// When each of them is due, by the source's clock. These times increase.
    dues: Vec<i64>,
    pending_bytes: usize,
    /// When the first of them came, or when the part before them was published.
    pending_since: UnixMicros,
    /// When the newest sample came.
    came: UnixMicros,
    /// When the newest sample is due, by the source's clock.
    newest: i64,
    /// The due time of the newest sample that viewers get. It is later than that of the sample before,
    /// even where the source's clock runs back.
    told: i64,
    /// The due time of the sample that was pushed last, as viewers get it; `None` if it had no place.
    placed: Option<i64>,
    /// Duration of the newest sample.
    lasted: i64,
    /// Number of frames so far, as long as there are few.
    frames: u8,
    /// How long the newest frame is expected to last, if the track began with frames further apart
    /// than [`LEAD`]. Each frame of such a track is decoded [`LEAD`] before it is due, and lasts
    /// until the next is decoded. So the newest frame waits for the next.
    expects: Option<i64>,
    period: u64,
    /// The source's time of the first sample in the segment being made.
    opened: i64,
    /// Time of the last keyframe, and its distance from the keyframe before.
    keyframe: Option<(i64, Option<i64>)>,
    /// Playlists list no segment that is presented before this time.
    listed_from: i64,
    segments: Segments,
}

impl Packager {
    pub(crate) fn new(
        settings: &Settings,
        target_duration: Duration,
        header: Arc<Header>,
        period: u64,
        arena: Arena,
    ) -> Self {
        Self {
            settings: settings.clone(),
            target_duration,
            regular: false,
            timing: Timing::of(&header.track),
            segments: Segments::new(header.msn, arena),
            header,
            new_header: None,
            part_limit: None,
            pending: Vec::new(),
            dues: Vec::new(),
            pending_bytes: 0,
            pending_since: UnixMicros(0),
            came: UnixMicros(0),
            newest: 0,
            told: 0,
            placed: None,
            lasted: 0,
            frames: 0,
            expects: None,
            period,
            opened: 0,
            keyframe: None,
            listed_from: i64::MIN,
        }
    }

    /// Sets the longest duration of a segment. `regular` says that keyframes most likely stay as
    /// far apart as they have been.
    pub(crate) fn set_target_duration(&mut self, longest: Duration, regular: bool) {
        self.target_duration = longest;
        self.regular = regular;
    }

    /// Lets playlists list only segments that are presented from `micros` of stream time on, or at
    /// most one shortest segment earlier. This must be set before any playlist is told.
    pub(crate) fn list_from(&mut self, micros: i64) {
        let units = self.header.track.timescale;
        self.listed_from = rescale(micros, 1_000_000, units) - self.shortest_segment();
    }

    pub(crate) fn window(&self) -> &Window {
        self.segments.window()
    }

    pub(crate) fn segments(&self) -> &Segments {
        &self.segments
    }

    /// The segments, for a track that another machine cuts.
    pub(crate) fn segments_mut(&mut self) -> &mut Segments {
        &mut self.segments
    }

    /// Continues a track that another machine has cut, with the next period. The versions of its window go on above
    /// `least`, and leave out so many.
    pub(crate) fn adopt(&mut self, learnt: Option<Learnt>, least: u64, left_out: u64) {
        self.segments.leave_out(least, left_out);
        self.new_header = None;
        if let Some(newest) = self.segments.newest() {
            self.period = newest.period;
            self.header = Arc::clone(&newest.header);
            self.timing = Timing::of(&self.header.track);
            // The first frame is decoded as early as if the frames before were of this publisher. Otherwise the first
            // segment would last less long than the others, and tell a wrong time for the end of the next.
            if let (Timing::Frames(cadence), Some(part)) = (&mut self.timing, newest.parts.last()) {
                cadence.assume(f64::from(part.duration) / part.samples.len().max(1) as f64);
            }
            // There were frames before: the next is not decoded earlier than they end.
            self.frames = u8::MAX;
        }
        if let Some(Learnt { target_duration, regular }) = learnt {
            self.set_target_duration(target_duration, regular);
        }
    }

    /// Drops the samples that are in no part yet: another machine goes on with the track.
    pub(crate) fn discard(&mut self) {
        self.pending.clear();
        self.dues.clear();
        self.pending_bytes = 0;
        self.segments.discard();
    }

    /// Sets the longest that a part may be, in a track that another machine cuts.
    pub(crate) fn set_part_limit(&mut self, limit: Option<u32>) {
        self.part_limit = limit;
    }

    pub(crate) fn header(&self) -> &Arc<Header> {
        self.new_header.as_ref().unwrap_or(&self.header)
    }

    pub(crate) fn next_msn(&self) -> u64 {
        self.segments.next_msn()
    }

    /// Whether the segment being made ends before a sample of `period`, keyframe or not.
    pub(crate) fn must_end_segment(&self, period: u64) -> bool {
        let ends = self.new_header.is_some() || !self.is_in(period);
        ends && !self.is_between_segments()
    }

    /// Whether no segment is being made. If so, the next sample starts one, whatever it is.
    pub(crate) fn is_between_segments(&self) -> bool {
        self.segments.open().is_none()
    }

    /// Presentation times at which the segment being made starts and most likely ends, in the
    /// track's timescale.
    pub(crate) fn segment_times(&self) -> Option<(i64, Option<i64>)> {
        let open = self.segments.open()?;
        Some((open.presents, open.expected_end))
    }

    /// When the sample that was pushed last is due, as its [`SampleLayout`](crate::SampleLayout) says; `None` if it
    /// had no place.
    pub(crate) fn placed(&self) -> Option<i64> {
        self.placed
    }

    /// Longest duration of a segment, in the track's timescale.
    pub(crate) fn longest_segment(&self) -> i64 {
        self.duration_ticks(self.target_duration)
    }

    /// Whether the newest sample is of this period.
    pub(crate) fn is_in(&self, period: u64) -> bool {
        self.period == period
    }

    /// Decode time after the last sample, in the track's timescale.
    pub(crate) fn end(&self) -> Option<i64> {
        match self.pending.last() {
            Some(last) => Some(last.dts + i64::from(last.duration)),
            None => self.window().newest().map(|segment| segment.end()),
        }
    }

    /// Duration of the last sample.
    pub(crate) fn last_duration(&self) -> i64 {
        self.lasted
    }

    /// Sets the header that the following samples need.
    pub(crate) fn reconfigure(&mut self, header: Arc<Header>) {
        self.new_header = Some(header);
    }

    /// Takes a sample. Its decode time is on the stream's timeline, in the track's timescale; its
    /// duration is the source's, or 0. Returns whether the window changed.
    pub(crate) fn push(
        &mut self,
        mut sample: Sample,
        period: u64,
        cutting: Cutting<'_>,
        now: UnixMicros,
        dates: &Dates,
    ) -> io::Result<bool> {
        let mut changed = false;
        self.placed = None;
        let new_period = period != self.period;
        if new_period || self.new_header.is_some() {
            self.settle(sample.dts, 0);
            changed |= self.flush(now)?;
            changed |= self.close_segment(now);
            if let Some(header) = self.new_header.take() {
                self.header = Arc::new(Header {
                    msn: self.segments.next_msn(),
                    track: header.track.clone(),
                    bytes: header.bytes.clone(),
                });
                if let Timing::Units(_) = self.timing {
                    self.timing = Timing::of(&self.header.track);
                }
            }
            if let Timing::Frames(cadence) = &mut self.timing {
                cadence.restart();
            }
            self.keyframe = None;
        }
        self.period = period;

        if !self.place(&mut sample, new_period, now, &mut changed)? {
            return Ok(changed);
        }
        if self.starts_segment(&sample, cutting) || self.segments.is_overlong(&self.holding(), now)
        {
            let end = self.end().unwrap_or(0);
            changed |= self.flush(now)?;
            // What a part may last may be decided only now, and the last frame be cut to it.
            begin_earlier(&mut sample, end - self.end().unwrap_or(0));
            changed |= self.close_segment(now);
        }
        if sample.sync && self.header.track.kind() == Kind::Video {
            let distance = self.keyframe.map(|(at, _)| self.newest - at);
            self.keyframe = Some((self.newest, distance));
        }
        if self.segments.open().is_none() {
            self.opened = self.newest;
            let expected_end = self.expected_end(&sample, cutting);
            let timescale = self.header.track.timescale;
            let newest = self.window().newest();
            let discontinuity = newest.is_some_and(|newest| newest.period != period);
            self.segments.begin(Begin {
                start: sample.dts,
                presents: sample.pts(),
                period,
                discontinuity,
                captured: dates.of(period, rescale(sample.pts(), timescale, 1_000_000)),
                expected_end,
                header: Arc::clone(&self.header),
            });
        }
        if self.pending.is_empty() {
            self.pending_since = now;
        }
        self.lasted = i64::from(sample.duration);
        self.pending_bytes += sample.data.len();
        let due = match self.timing {
            Timing::Units(_) => sample.dts,
            Timing::Frames(_) => self.told,
        };
        self.dues.push(due);
        self.placed = Some(due);
        self.pending.push(sample);
        self.came = now;
        if self.expects.is_none() {
            changed |= self.publish_parts(now)?;
        }
        Ok(changed)
    }

    /// Publishes the parts that are complete. Publishes all pending samples if they are too many,
    /// or wait for too long.
    fn publish_parts(&mut self, now: UnixMicros) -> io::Result<bool> {
        let crowded =
            self.pending.len() >= MOST_PENDING || self.pending_bytes >= MOST_PENDING_BYTES;
        if crowded || now.since(self.pending_since) >= self.target_duration {
            self.flush(now)
        } else if self.part_limit.is_some() || self.has_learnt() {
            self.publish(false, now)
        } else {
            Ok(false)
        }
    }

    /// How long ago the newest sample came, silence that stands in for audio included.
    pub(crate) fn quiet(&self, now: UnixMicros) -> Duration {
        now.since(self.came)
    }

    /// Publishes all pending samples without closing the segment. Returns whether there were any.
    pub(crate) fn flush(&mut self, now: UnixMicros) -> io::Result<bool> {
        self.publish(true, now)
    }

    /// Publishes the complete parts and, if `all`, the samples left over. Returns whether it
    /// published a part.
    fn publish(&mut self, all: bool, now: UnixMicros) -> io::Result<bool> {
        if self.pending.is_empty() {
            return Ok(false);
        }
        let limit = i64::from(self.settled_limit());
        let (least, lag) = (least_part(limit), self.duration_ticks(MOST_LAG));
        let mut published = false;
        while let Some(first) = self.pending.first().map(|first| first.dts) {
            let ends = |sample: &Sample| sample.dts + i64::from(sample.duration);
            let over = self.pending.iter().position(|sample| ends(sample) - first > limit);
            let count = match over {
                None if all || self.is_complete(least, limit) => self.pending.len(),
                None => break,
                // The duration of an audio access unit cannot change.
                Some(over) if matches!(self.timing, Timing::Units(_)) => over.max(1),
                Some(over) if over > 0 && self.pending[over].dts - first >= least => over,
                // Without this frame the part would be too short, so the frame fills the part.
                // The part has room for less than the frame's duration: the frame after it is
                // decoded earlier by the difference. So the parts after a pause make up for the
                // pause, unless it was too long.
                Some(over) => {
                    let sample = &mut self.pending[over];
                    let too_long = ends(sample) - (first + limit).max(sample.dts + 1);
                    if too_long <= lag {
                        sample.duration -= u32::try_from(too_long).unwrap_or(0);
                        if let Some(next) = self.pending.get_mut(over + 1) {
                            begin_earlier(next, too_long);
                        }
                    }
                    over + 1
                }
            };
            let written = self.segments.publish(&self.pending[..count], &self.dues[..count], now);
            if let Err(error) = written {
                self.lose();
                return Err(error);
            }
            self.dues.drain(..count);
            let taken = self.pending.drain(..count).map(|sample| sample.data.len()).sum::<usize>();
            self.pending_bytes -= taken;
            self.pending_since = now;
            published = true;
        }
        Ok(published)
    }

    /// Drops the pending samples, because there was no room for a part of them: the packager does not
    /// try again to publish them, together with all that follow. The segment that they would have
    /// begun never was. If they were the first of their period, the next sample begins the period.
    fn lose(&mut self) {
        self.discard();
        if let Some(newest) = self.segments.newest() {
            self.period = newest.period;
        }
    }

    /// Ends the stream: publishes all pending samples and completes the last segment.
    /// The stream also ends if there is no room for these samples.
    pub(crate) fn end_stream(&mut self, now: UnixMicros) -> io::Result<()> {
        let flushed = self.flush(now);
        self.close_segment(now);
        self.segments.end();
        flushed.map(drop)
    }

    /// Gives up the oldest complete segment, to make room, but never the newest. With
    /// [`Pressure::Shorten`], gives it up only if no playlist lists it, or if playlists still list
    /// three target durations afterwards (RFC 8216bis 6.2.2). Returns whether it gave one up.
    pub(crate) fn give_way(&mut self, pressure: Pressure) -> bool {
        let least = match pressure {
            Pressure::Shorten => Some(3 * self.longest_segment().unsigned_abs()),
            _ => None,
        };
        self.segments.give_way(least)
    }

    fn close_segment(&mut self, now: UnixMicros) -> bool {
        let holding = self.holding();
        self.segments.close(&holding, now)
    }

    /// How much of the track the window keeps.
    fn holding(&self) -> Holding {
        // RFC 8216bis 6.2.2: players begin three target durations before the end.
        let listed = self.settings.window.max(4 * self.target_duration);
        let held = listed + 3 * self.target_duration;
        let parts = self.target_duration.as_micros() / self.settings.part_target.as_micros().max(1);
        Holding {
            from: self.listed_from,
            listed: self.duration_ticks(listed).unsigned_abs(),
            held: self.duration_ticks(held).unsigned_abs(),
            longest: 2 * held,
            parts: MOST_PARTS.max(2 * usize::try_from(parts).unwrap_or(MOST_PARTS)),
        }
    }

    fn duration_ticks(&self, duration: Duration) -> i64 {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        rescale(micros, 1_000_000, self.header.track.timescale)
    }
}
