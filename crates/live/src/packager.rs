//! Cuts one track's samples into chunks and segments.
//!
//! A chunk is published before the frame after it is there, so how long its last frame is shown is not
//! known. Nor need it be: a frame is decoded when the one before it was due, and so lasts, as far as
//! decoding goes, until it is due itself. All durations are known then, and decode times abut: parts add
//! up to segments, and segments to the timeline, at any frame rate and at none. Presentation times are
//! what the publisher said, within the rounding of its clock. Access units of audio know how long they
//! last, and are decoded when they are heard.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use media::{Kind, Sample};
use payload::memory::{Arena, Pressure};

use crate::dates::Dates;
use crate::frames::{Cadence, Units};
use crate::segments::{Begin, Holding, Segments};
use crate::timeline::ORIGIN;
use crate::window::{Header, Window};
use crate::{Settings, UnixMicros, rescale};

/// The most samples that may wait for a chunk to fill: bounds memory when time stands still.
const MOST_PENDING: usize = 1024;
/// The most bytes that may wait for a chunk to fill.
const MOST_PENDING_BYTES: usize = 4 << 20;
/// PART-TARGET has room for the rounding of source clocks.
const ROUNDING: Duration = Duration::from_millis(1);
/// No part but a segment's last may be shorter than this much of PART-TARGET (RFC 8216bis 4.4.4.9).
/// A little more than it demands, because durations are written rounded.
const LEAST_PART: f64 = 0.86;
/// After a pause decode times may be so far behind the source's, until the following parts have made
/// up for it. More is caught up with in one part, which then is longer than PART-TARGET.
const MOST_LAG: Duration = Duration::from_secs(1);
/// TARGETDURATION is compared with durations rounded to seconds (RFC 8216bis 4.4.3.1): a segment
/// may be that much longer while it waits for its keyframe.
const ROUNDED: Duration = Duration::from_millis(450);
/// So many segments of the same duration foretell that of the next.
const ALIKE: usize = 3;

/// Where a track's segments may end: at its own keyframes, or where the leading track's do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cutting<'a> {
    /// Near the segment target: video at keyframes, audio anywhere.
    Leading,
    /// Where the leading track starts a segment.
    Following(&'a Boundaries),
}

/// Where the leading track starts segments, microseconds of stream time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Boundaries {
    /// Newest last.
    pub(crate) starts: VecDeque<i64>,
    /// Where the next most likely is.
    pub(crate) next: Option<i64>,
}

/// Segment starts of the leading track that followers may still cut at.
const BOUNDARIES: usize = 16;

impl Boundaries {
    pub(crate) fn push(&mut self, start: i64) {
        self.starts.push_back(start);
        if self.starts.len() > BOUNDARIES {
            self.starts.pop_front();
        }
    }
}

/// How the times of a track's samples are told.
enum Timing {
    /// Access units that know how long they last.
    Units(Units),
    /// Frames that last until the next.
    Frames(Cadence),
}

impl Timing {
    fn of(track: &media::Track) -> Self {
        match Units::of(track) {
            Some(units) => Self::Units(units),
            None => Self::Frames(Cadence::new(track.timescale)),
        }
    }
}

pub(crate) struct Packager {
    settings: Settings,
    /// What no segment exceeds: `EXT-X-TARGETDURATION`.
    target_duration: Duration,
    /// Whether that is what regular publishers get, whose first segment foretells the others.
    regular: bool,
    header: Arc<Header>,
    /// A header for the next sample: the configuration changed.
    new_header: Option<Arc<Header>>,
    timing: Timing,
    /// The longest a part may be, in the track's timescale, once known: `PART-TARGET`.
    part_limit: Option<u32>,
    /// Samples of the chunk being filled, their times final but for the last one's duration.
    pending: Vec<Sample>,
    pending_bytes: usize,
    /// When the first of them came.
    pending_since: UnixMicros,
    /// When the newest sample is due, by the source's clock.
    newest: i64,
    /// How long it lasts.
    lasted: i64,
    /// Only the track's first frame has come.
    first_waits: bool,
    period: u64,
    /// The source's time of the first sample of the segment being made.
    opened: i64,
    /// Time and distance of the last two keyframes.
    keyframe: Option<(i64, Option<i64>)>,
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
            pending_bytes: 0,
            pending_since: UnixMicros(0),
            newest: 0,
            lasted: 0,
            first_waits: false,
            period,
            opened: 0,
            keyframe: None,
        }
    }

    /// No segment is to exceed `longest`; `regular` says that keyframes are expected to be as far
    /// apart as they have been.
    pub(crate) fn set_target_duration(&mut self, longest: Duration, regular: bool) {
        self.target_duration = longest;
        self.regular = regular;
    }

    pub(crate) fn window(&self) -> &Window {
        self.segments.window()
    }

    pub(crate) fn header(&self) -> &Arc<Header> {
        self.new_header.as_ref().unwrap_or(&self.header)
    }

    pub(crate) fn next_msn(&self) -> u64 {
        self.segments.next_msn()
    }

    /// Whether the next sample starts a segment, whatever it is.
    pub(crate) fn is_between_segments(&self) -> bool {
        self.segments.open().is_none()
    }

    /// Where the segment being made starts, and where it most likely ends, by presentation time in
    /// the track's timescale.
    pub(crate) fn segment_times(&self) -> Option<(i64, Option<i64>)> {
        let open = self.segments.open()?;
        Some((open.presents, open.expected_end))
    }

    /// What no segment exceeds, in the track's timescale.
    pub(crate) fn longest_segment(&self) -> i64 {
        self.duration_ticks(self.target_duration)
    }

    /// Whether its newest sample is of this period.
    pub(crate) fn is_in(&self, period: u64) -> bool {
        self.period == period
    }

    /// `PART-TARGET` in the track's timescale, once the frame rate is known.
    pub(crate) fn part_limit(&self) -> Option<u32> {
        self.part_limit
    }

    /// How far from where the last sample ends the next may begin and still follow on it, where
    /// samples know how long they last; `None` where they do not.
    pub(crate) fn tolerance(&self) -> Option<i64> {
        match &self.timing {
            Timing::Units(units) => Some(units.tolerance()),
            Timing::Frames(_) => None,
        }
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

    /// Samples that follow need `header`.
    pub(crate) fn reconfigure(&mut self, header: Arc<Header>) {
        self.new_header = Some(header);
    }

    /// Takes a sample, its decode time on the stream's timeline in the track's timescale, its
    /// duration what the source says or 0. Answers whether the window changed.
    pub(crate) fn push(
        &mut self,
        mut sample: Sample,
        period: u64,
        cutting: Cutting<'_>,
        now: UnixMicros,
        dates: &Dates,
    ) -> io::Result<bool> {
        let mut changed = false;
        let new_period = period != self.period;
        if new_period || self.new_header.is_some() {
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
        let discontinuity = new_period && self.window().newest().is_some();
        self.period = period;

        if !self.place(&mut sample, new_period, now, &mut changed)? {
            return Ok(changed);
        }
        if self.starts_segment(&sample, cutting) || self.segments.is_overlong(&self.holding(), now)
        {
            changed |= self.flush(now)?;
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
        self.pending.push(sample);
        let crowded =
            self.pending.len() >= MOST_PENDING || self.pending_bytes >= MOST_PENDING_BYTES;
        if crowded || now.since(self.pending_since) >= self.target_duration {
            changed |= self.flush(now)?;
        } else if self.part_limit.is_some() || self.has_learnt() {
            changed |= self.publish(false, now)?;
        }
        Ok(changed)
    }

    /// Publishes what is pending, without closing the segment. Answers whether there was any.
    pub(crate) fn flush(&mut self, now: UnixMicros) -> io::Result<bool> {
        self.publish(true, now)
    }

    /// Publishes the parts that are complete, and what is left if it is to be `all`. Answers whether
    /// there was any.
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
                // Access units of audio last as long as they last.
                Some(over) if matches!(self.timing, Timing::Units(_)) => over.max(1),
                Some(over) if over > 0 && self.pending[over].dts - first >= least => over,
                // It fills the part that would else be too short, and the one after it is decoded
                // earlier. After a pause parts make up for it, if it was not too long.
                Some(over) => {
                    let sample = &mut self.pending[over];
                    let too_long = ends(sample) - (first + limit).max(sample.dts + 1);
                    if too_long <= lag {
                        sample.duration -= u32::try_from(too_long).unwrap_or(0);
                        if let Some(next) = self.pending.get_mut(over + 1) {
                            next.dts -= too_long;
                            next.cts = narrow(i64::from(next.cts) + too_long);
                            next.duration += u32::try_from(too_long).unwrap_or(0);
                        }
                    }
                    over + 1
                }
            };
            let early = matches!(self.timing, Timing::Frames(_));
            let written = self.segments.publish(&self.pending[..count], early, now);
            // Also where there was no room for it: it is not tried again with all that follows.
            let taken = self.pending.drain(..count).map(|sample| sample.data.len()).sum::<usize>();
            self.pending_bytes -= taken;
            written?;
            self.pending_since = now;
            published = true;
        }
        Ok(published)
    }

    /// Whether no further frame is to be waited for: the pending ones fill a part, as far as can be
    /// told when the next is due.
    fn is_complete(&self, least: i64, limit: i64) -> bool {
        let (Some(first), Some(last)) = (self.pending.first(), self.pending.last()) else {
            return false;
        };
        let filled = last.dts + i64::from(last.duration) - first.dts;
        let step = match &self.timing {
            Timing::Frames(cadence) => cadence.step(),
            Timing::Units(_) => None,
        };
        filled >= least && filled + step.unwrap_or(i64::from(last.duration)) > limit
    }

    /// Nothing will follow: everything is published, the last segment complete.
    pub(crate) fn end_stream(&mut self, now: UnixMicros) -> io::Result<()> {
        self.flush(now)?;
        self.close_segment(now);
        self.segments.end();
        Ok(())
    }

    /// Gives the oldest complete segment up, to make room: one that playlists no longer list, or one
    /// without which they are not shorter than three target durations (RFC 8216bis 6.2.2), or, at last,
    /// any but the newest. Answers whether there was one.
    pub(crate) fn give_way(&mut self, pressure: Pressure) -> bool {
        let least = match pressure {
            Pressure::Shorten => Some(3 * self.longest_segment()),
            _ => None,
        };
        self.segments.give_way(least)
    }

    fn close_segment(&mut self, now: UnixMicros) -> bool {
        let holding = self.holding();
        self.segments.close(&holding, now)
    }

    /// How much of the track stays.
    fn holding(&self) -> Holding {
        // RFC 8216bis 6.2.2: players begin three target durations before the end.
        let listed = self.settings.window.max(4 * self.target_duration);
        let held = listed + 3 * self.target_duration;
        Holding {
            listed: self.duration_ticks(listed),
            held: self.duration_ticks(held),
            longest: 2 * held,
        }
    }

    /// Settles the sample's decode time and duration, and the duration of the one before it. False
    /// if there is no place for it: audio that overlaps with what was published already.
    fn place(
        &mut self,
        sample: &mut Sample,
        new_period: bool,
        now: UnixMicros,
        changed: &mut bool,
    ) -> io::Result<bool> {
        let said = sample.dts;
        let end = self.end();
        let cadence = match &mut self.timing {
            Timing::Frames(cadence) => cadence,
            Timing::Units(units) => {
                let gap = end.map_or(0, |end| said - end);
                // A period may begin up to a unit after its time, where the one before ends.
                if !new_period && gap < -units.tolerance() * 3 / 2 {
                    tracing::debug!(track = self.header.track.id, gap, "overlapping audio dropped");
                    return Ok(false);
                }
                // What is missing before it leaves a hole: silence stands in for it where it can
                // (`TrackState`), and audio can be decoded from any access unit on.
                let follows = !new_period && gap <= units.tolerance();
                let at = if follows { end } else { end.map(|end| end.max(said)) };
                if !follows && end.is_some() {
                    *changed |= self.flush(now)?;
                }
                let Timing::Units(units) = &mut self.timing else { return Ok(false) };
                sample.dts = at.unwrap_or(said).max(0);
                sample.duration = units.duration(sample);
                units.advance();
                self.newest = sample.dts;
                return Ok(true);
            }
        };
        // After a gap frames last as long as they did before.
        let usual = cadence.usual();
        let due = cadence.observe(said, sample.duration);
        let shown = due + i64::from(sample.cts);
        let before = due - usual.unwrap_or(0);
        // How long the frame before the first would have lasted, the second tells.
        if std::mem::take(&mut self.first_waits)
            && let [first] = &mut self.pending[..]
        {
            let lasts = (due - first.dts).clamp(1, first.dts.max(1));
            first.dts -= lasts;
            first.cts = narrow(i64::from(first.cts) + lasts);
            first.duration = u32::try_from(lasts).unwrap_or(1);
            self.segments.begin_earlier(first.dts);
        }
        let end = self.end();
        sample.dts = match end {
            // Nothing came for longer than a segment may last.
            Some(end) if new_period || due - end > self.longest_segment() => before.max(end),
            Some(end) => end,
            None => before.max(0),
        };
        self.newest = due;
        // A clock that runs back is held, unless the publisher wants the frame shown before that.
        sample.cts = narrow((shown - sample.dts).max(i64::from(sample.cts.min(0))));
        sample.duration = u32::try_from(due - sample.dts).unwrap_or(1).max(1);
        self.first_waits = usual.is_none() && end.is_none();
        Ok(true)
    }

    /// Whether there is enough pending to tell how long a part is.
    fn has_learnt(&self) -> bool {
        let (Some(first), Some(last)) = (self.pending.first(), self.pending.last()) else {
            return false;
        };
        let filled = last.dts + i64::from(last.duration) - first.dts;
        let frame = i64::from(last.duration);
        let target = self.duration_ticks(self.settings.part_target);
        match &self.timing {
            Timing::Units(_) => filled + frame / 2 >= target,
            // One step may be a pause, and a rate shows after a few.
            Timing::Frames(cadence) => {
                self.pending.len() > 4 && filled + cadence.step().unwrap_or(0) / 2 >= target
                    || cadence.step().is_some() && filled + frame / 2 >= target
            }
        }
    }

    /// The longest a part may be, decided now if it was not: the whole number of frames nearest
    /// to the target, rounded up by a millisecond for the rounding of source clocks.
    fn settled_limit(&mut self) -> u32 {
        if let Some(limit) = self.part_limit {
            return limit;
        }
        let target = self.duration_ticks(self.settings.part_target);
        let lasts = |sample: &Sample| i64::from(sample.duration);
        let newest = self.pending.last().map_or(1, lasts).max(1);
        let longest = self.pending.iter().map(lasts).max().unwrap_or(1);
        let (frame, usual) = match &self.timing {
            Timing::Units(_) => (Some(newest), newest),
            Timing::Frames(cadence) => (cadence.step(), cadence.usual().unwrap_or(newest)),
        };
        let limit = match frame {
            Some(frame) => ((target + frame / 2) / frame).max(1) * frame,
            // Frames in no order fill a part of any length, but for those that are rarer.
            None if usual < target => target,
            None => longest.max(usual),
        };
        let limit = limit + self.duration_ticks(ROUNDING);
        let limit = limit.min(self.duration_ticks(self.target_duration));
        let limit = u32::try_from(limit).unwrap_or(u32::MAX).max(1);
        self.part_limit = Some(limit);
        limit
    }

    fn starts_segment(&self, sample: &Sample, cutting: Cutting<'_>) -> bool {
        let Some(open) = self.segments.open() else { return false };
        let elapsed = self.newest - self.opened;
        let video = self.header.track.kind() == Kind::Video;
        let rounded = if video { ROUNDED } else { Duration::ZERO };
        let at_latest = self.duration_ticks(self.target_duration + rounded);
        let ends = (sample.dts + i64::from(sample.duration)).max(self.newest);
        if ends - open.start > at_latest {
            return true;
        }
        let target = self.duration_ticks(self.settings.segment_target);
        match cutting {
            Cutting::Following(boundaries) => boundaries
                .starts
                .iter()
                .rev()
                .map(|&boundary| rescale(boundary, 1_000_000, self.header.track.timescale))
                .take_while(|&boundary| boundary > open.start + target / 8)
                .any(|boundary| boundary <= sample.pts()),
            Cutting::Leading if video => {
                let Some((_, distance)) = self.keyframe.filter(|_| sample.sync) else {
                    return sample.sync && elapsed >= target;
                };
                // The distance to the keyframe before stands for the distance to the next.
                let next = match self.keyframe {
                    Some((at, _)) if self.newest > at => self.newest - at,
                    _ => distance.unwrap_or(0),
                };
                // Nearest to a multiple of the target on the stream's timeline, not to the target
                // after this segment's start: so renditions agree, whenever each began.
                let due = self.due(self.opened, target);
                self.newest + next / 2 >= due || elapsed + next > at_latest
            }
            Cutting::Leading => elapsed + i64::from(sample.duration) / 2 >= target,
        }
    }

    /// When a segment that starts at `start` should end: the multiple of the target after the one
    /// that the start is nearest to. Counted from the stream's origin, where the first publisher's
    /// first keyframe is; a start halfway between two belongs to the earlier.
    fn due(&self, start: i64, target: i64) -> i64 {
        let target = target.max(1);
        let origin = rescale(ORIGIN, 1_000_000, self.header.track.timescale);
        let turn = (start - origin + target * 9 / 20).div_euclid(target);
        origin + (turn + 1) * target
    }

    /// Where a segment that begins with `first` most likely ends, if that can be told: where the
    /// leading track's does, or as long as those before it lasted.
    fn expected_end(&self, first: &Sample, cutting: Cutting<'_>) -> Option<i64> {
        if let Cutting::Following(boundaries) = cutting {
            let next = rescale(boundaries.next?, 1_000_000, self.header.track.timescale);
            let Timing::Units(units) = &self.timing else { return None };
            let end = first.dts + i64::from(first.duration);
            return units.first_from(end, next).filter(|_| next > end);
        }
        let before = self.window().segments.iter().rev().take_while(|s| s.period == self.period);
        let durations: Vec<u64> = before.take(ALIKE).map(|segment| segment.duration).collect();
        let last = *durations.first()?;
        let frame = u64::from(first.duration);
        let alike = durations.iter().all(|other| other.abs_diff(last) < frame.max(1));
        let known = durations.len() == ALIKE || self.regular;
        (alike && known).then(|| first.pts() + i64::try_from(last).unwrap_or(0))
    }

    fn duration_ticks(&self, duration: Duration) -> i64 {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        rescale(micros, 1_000_000, self.header.track.timescale)
    }
}

/// The least that a part may last which is not its segment's last.
fn least_part(limit: i64) -> i64 {
    (limit as f64 * LEAST_PART).ceil() as i64
}

fn narrow(cts: i64) -> i32 {
    i32::try_from(cts).unwrap_or(if cts < 0 { i32::MIN } else { i32::MAX })
}
