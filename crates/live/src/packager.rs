//! Cuts one track's samples into chunks and segments.
//!
//! Decode times are made to abut: a chunk is published before the sample after it is known, so the
//! duration of its last sample is a prediction, and the next chunk starts exactly where that
//! prediction ends. Presentation times stay what the publisher said (within [`JITTER`], the
//! rounding of millisecond clocks). So parts add up to segments, and segments to the timeline.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use media::cmaf::{ChunkInfo, ReferenceTime, SegmentStart};
use media::{Kind, Sample};

use crate::frames::FrameDuration;
use crate::memory::{Arena, Pressure, no_room};
use crate::timeline::ORIGIN;
use crate::window::{Beside, Header, Part, SampleLayout, Segment, Window};
use crate::{Settings, UnixMicros, rescale};

/// A decode time that differs from the predicted one by no more is the predicted one, in seconds:
/// clocks of a millisecond round.
pub(crate) const JITTER: f64 = 0.002;
/// The most samples that may wait for a chunk to fill: bounds memory when time stands still.
const MOST_PENDING: usize = 1024;
/// The most bytes that may wait for a chunk to fill.
const MOST_PENDING_BYTES: usize = 4 << 20;
/// The most bytes a window holds, whatever the media's times say: three quarters of a minute at
/// 100 Mbit/s are half of it.
const MOST_HELD_BYTES: usize = 1 << 30;

/// Where a track's segments may end: at its own keyframes, or where the leading track's do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cutting<'a> {
    /// Near the segment target: video at keyframes, audio anywhere.
    Leading,
    /// Where the leading track starts a segment: microseconds of stream time, newest last.
    Following(&'a VecDeque<i64>),
}

pub(crate) struct Packager {
    settings: Settings,
    header: Arc<Header>,
    /// A header for the next sample: the configuration changed.
    new_header: Option<Arc<Header>>,
    arena: Arena,
    scratch: Vec<u8>,
    frames: FrameDuration,
    /// The longest a part may be, in the track's timescale, once known: `PART-TARGET`.
    part_limit: Option<u32>,
    /// Samples of the chunk being filled, their times final but for the last one's duration.
    pending: Vec<Sample>,
    pending_bytes: usize,
    /// When the first of them came.
    pending_since: UnixMicros,
    /// The segment being made. Without parts while its first chunk fills.
    open: Option<Segment>,
    next_msn: u64,
    sequence: u32,
    period: u64,
    /// Decode time and distance of the last two keyframes.
    keyframe: Option<(i64, Option<i64>)>,
    window: Window,
    /// Bytes of the window's complete segments.
    held: usize,
}

impl Packager {
    pub(crate) fn new(settings: &Settings, header: Arc<Header>, period: u64, arena: Arena) -> Self {
        Self {
            settings: settings.clone(),
            next_msn: header.msn,
            arena,
            scratch: Vec::new(),
            frames: FrameDuration::new(&header.track),
            header,
            new_header: None,
            part_limit: None,
            pending: Vec::new(),
            pending_bytes: 0,
            pending_since: UnixMicros(0),
            open: None,
            sequence: 1,
            period,
            keyframe: None,
            window: Window::default(),
            held: 0,
        }
    }

    pub(crate) fn window(&self) -> &Window {
        &self.window
    }

    pub(crate) fn header(&self) -> &Arc<Header> {
        self.new_header.as_ref().unwrap_or(&self.header)
    }

    pub(crate) fn next_msn(&self) -> u64 {
        self.next_msn
    }

    /// Whether the next sample starts a segment, whatever it is.
    pub(crate) fn is_between_segments(&self) -> bool {
        self.open.is_none()
    }

    /// Where the segment being made starts, in the track's timescale.
    pub(crate) fn segment_start(&self) -> Option<i64> {
        self.open.as_ref().map(|segment| segment.start)
    }

    /// `PART-TARGET` in the track's timescale, once the frame rate is known.
    pub(crate) fn part_limit(&self) -> Option<u32> {
        self.part_limit
    }

    /// Decode time after the last sample, in the track's timescale.
    pub(crate) fn end(&self) -> Option<i64> {
        match self.pending.last() {
            Some(last) => Some(last.dts + i64::from(last.duration)),
            None => self.window.newest().map(|segment| segment.end()),
        }
    }

    /// Duration of the last sample, as far as it is known.
    pub(crate) fn last_duration(&self) -> i64 {
        match (self.pending.last(), self.window.newest()) {
            (Some(last), _) => i64::from(last.duration),
            (None, Some(segment)) => segment.parts.last().map_or(0, |part| {
                let last = part.samples.last().map_or(part.start, |sample| sample.dts);
                part.start + i64::from(part.duration) - last
            }),
            (None, None) => 0,
        }
    }

    /// Samples that follow need `header`.
    pub(crate) fn reconfigure(&mut self, header: Arc<Header>) {
        // The frame rate is most likely what it was.
        let guess = self.frames.guess;
        self.frames = FrameDuration::new(&header.track);
        self.frames.guess = guess;
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
        captured: UnixMicros,
    ) -> io::Result<bool> {
        let mut changed = false;
        if period != self.period || self.new_header.is_some() {
            changed |= self.flush(now)?;
            changed |= self.close_segment(now);
            if let Some(header) = self.new_header.take() {
                self.header = Arc::new(Header {
                    msn: self.next_msn,
                    track: header.track.clone(),
                    bytes: header.bytes.clone(),
                });
            }
            self.frames.restart();
            self.keyframe = None;
        }
        let discontinuity = period != self.period && self.window.newest().is_some();
        let new_period = period != self.period;
        self.period = period;

        if !self.place(&mut sample, new_period, now, &mut changed)? {
            return Ok(changed);
        }
        if self.starts_segment(&sample, cutting) || self.is_overlong(now) {
            changed |= self.flush(now)?;
            changed |= self.close_segment(now);
        }
        if sample.sync && self.header.track.kind() == Kind::Video {
            let distance = self.keyframe.map(|(at, _)| sample.dts - at);
            self.keyframe = Some((sample.dts, distance));
        }
        if self.open.is_none() {
            let before = self.window.newest().filter(|before| before.period == period);
            let period_start = match before {
                Some(before) => before.period_start,
                None if period == 0 => 0,
                None => sample.dts,
            };
            self.open = Some(Segment {
                msn: self.next_msn,
                start: sample.dts,
                duration: 0,
                period,
                period_start,
                discontinuity,
                captured,
                header: Arc::clone(&self.header),
                parts: Vec::new(),
            });
        }
        if self.pending.is_empty() {
            self.pending_since = now;
        }
        self.pending_bytes += sample.data.len();
        self.pending.push(sample);
        let waited = now.since(self.pending_since);
        if self.chunk_is_full() || waited >= self.settings.target_duration {
            changed |= self.flush(now)?;
        }
        Ok(changed)
    }

    /// Publishes what is pending, without closing the segment. Answers whether there was any.
    pub(crate) fn flush(&mut self, now: UnixMicros) -> io::Result<bool> {
        if self.pending.is_empty() {
            return Ok(false);
        }
        let limit = i64::from(self.settled_limit());
        let pending = std::mem::take(&mut self.pending);
        self.pending_bytes = 0;
        let mut rest = &pending[..];
        while let Some(first) = rest.first() {
            let fits =
                |sample: &Sample| sample.dts + i64::from(sample.duration) - first.dts <= limit;
            let count = rest.iter().take_while(|sample| fits(sample)).count().max(1);
            let (chunk, after) = rest.split_at(count);
            self.publish(chunk, now)?;
            rest = after;
        }
        self.pending = pending;
        self.pending.clear();
        Ok(true)
    }

    /// Writes one chunk and adds it to the window.
    fn publish(&mut self, chunk: &[Sample], now: UnixMicros) -> io::Result<()> {
        let (Some(first), Some(last), Some(segment)) =
            (chunk.first(), chunk.last(), &mut self.open)
        else {
            return Ok(());
        };
        let start = first.dts;
        let duration = u32::try_from(last.dts + i64::from(last.duration) - start).unwrap_or(0);
        let info = ChunkInfo {
            track_id: self.header.track.id,
            sequence_number: self.sequence,
            segment_start: segment.parts.is_empty().then(|| SegmentStart {
                reference: Some(ReferenceTime {
                    unix_micros: segment.captured.0,
                    media_time: u64::try_from(start).unwrap_or(0),
                }),
            }),
        };
        self.scratch.clear();
        let layout =
            media::cmaf::write_chunk(&mut self.scratch, &info, chunk).map_err(io::Error::other)?;
        let region = self.arena.store(&self.scratch)?;
        let known = size_of::<Part>() + chunk.len() * size_of::<SampleLayout>();
        let known = region.charge(known).ok_or_else(no_room)?;
        let narrow = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let samples = layout
            .samples(chunk)
            .zip(chunk)
            .map(|(range, sample)| SampleLayout {
                dts: sample.dts,
                cts: sample.cts,
                sync: sample.sync,
                offset: narrow(range.start),
                size: narrow(range.len()),
            })
            .collect();
        segment.duration = u64::try_from(start - segment.start).unwrap_or(0) + u64::from(duration);
        segment.parts.push(Arc::new(Part {
            start,
            duration,
            independent: first.sync,
            region,
            samples,
            published: now,
            flv: Beside::default(),
            rtmp: Beside::default(),
            _known: known,
        }));
        if self.window.segments.back().is_some_and(|last| segment.period > last.period + 1) {
            // The track was away for a whole period. A playlist could only tag one of the
            // discontinuities, and the number of this segment would not be that of the other
            // tracks' segments beside it (RFC 8216bis 6.2.4): what was before is no longer listed.
            self.window.unlisted = self.window.segments.len();
        }
        self.window.open = Some(Arc::new(segment.clone()));
        self.window.version += 1;
        self.sequence = self.sequence.wrapping_add(1);
        if self.scratch.capacity() > MOST_PENDING_BYTES {
            self.scratch = Vec::new();
        }
        Ok(())
    }

    /// Nothing will follow: everything is published, the last segment complete.
    pub(crate) fn end_stream(&mut self, now: UnixMicros) -> io::Result<()> {
        self.flush(now)?;
        self.close_segment(now);
        self.window.ended = true;
        self.window.version += 1;
        Ok(())
    }

    /// Settles the sample's decode time and duration, and the duration of the one before it. False
    /// if there is no place for it: sound that overlaps with what was published already.
    fn place(
        &mut self,
        sample: &mut Sample,
        new_period: bool,
        now: UnixMicros,
        changed: &mut bool,
    ) -> io::Result<bool> {
        let said = sample.dts;
        let expected = self.end();
        if !new_period {
            self.frames.observe(said, sample.duration);
        }
        // A frame that may last longer than a part is declared as long as a part may be, and the
        // next one starts after a hole.
        let most = self.duration_ticks(self.settings.target_duration);
        let frame = i64::from(self.frames.next(sample));
        let frame = frame.min(self.part_limit.map_or(most, i64::from));
        if let Some(expected) = expected {
            let gap = said - expected;
            let target = self.duration_ticks(self.settings.part_target);
            let longest = self.part_limit.map_or(target, i64::from);
            if new_period {
                sample.dts = said.max(expected);
            } else if gap.abs() <= self.ticks(JITTER).max(self.frames.tolerance()) {
                sample.dts = expected;
            } else if gap < 0 && self.frames.counts() {
                tracing::debug!(track = self.header.track.id, gap, "overlapping audio dropped");
                return Ok(false);
            } else if self.pending.first().is_none_or(|first| {
                said - first.dts > if self.is_learning() { longest.max(most) } else { longest }
            }) {
                // The chunk before is published, or would become too long if its last sample
                // lasted until this one.
                *changed |= self.flush(now)?;
                self.meet(sample, expected, frame);
            } else if let Some(last) = self.pending.last_mut() {
                // Not published yet: its duration becomes what it was.
                let at = said.max(last.dts + 1);
                last.duration = u32::try_from(at - last.dts).unwrap_or(1);
                if gap < 0 && sample.pts() < at {
                    sample.cts = 0;
                } else {
                    sample.cts = narrow(sample.pts() - at);
                }
                sample.dts = at;
            }
        } else {
            sample.dts = said.max(0);
        }
        sample.duration = u32::try_from(frame).unwrap_or(1).max(1);
        self.frames.advance();
        Ok(true)
    }

    /// The chunk before ends at `expected`, and `sample` came at another time: it is decoded where
    /// that chunk ends, and still shown when it was meant to be.
    fn meet(&self, sample: &mut Sample, expected: i64, frame: i64) {
        let room = self.part_limit.map_or(0, |limit| (i64::from(limit) - frame).max(0));
        if sample.dts - expected > room {
            // Nothing came for longer than a part: a hole, which the next segment's times show.
            return;
        }
        let pts = sample.pts();
        sample.dts = expected;
        sample.cts = narrow((pts - expected).max(i64::from(sample.cts.min(0))));
    }

    fn starts_segment(&self, sample: &Sample, cutting: Cutting<'_>) -> bool {
        let Some(open) = &self.open else { return false };
        let elapsed = sample.dts - open.start;
        let at_latest = self.duration_ticks(self.settings.target_duration);
        if elapsed + i64::from(sample.duration) > at_latest {
            return true;
        }
        let target = self.duration_ticks(self.settings.segment_target);
        let video = self.header.track.kind() == Kind::Video;
        match cutting {
            Cutting::Following(boundaries) => boundaries
                .iter()
                .rev()
                .map(|&boundary| rescale(boundary, 1_000_000, self.header.track.timescale))
                .take_while(|&boundary| boundary > open.start + target / 4)
                .any(|boundary| boundary <= sample.dts),
            Cutting::Leading if video => {
                let Some((_, distance)) = self.keyframe.filter(|_| sample.sync) else {
                    return sample.sync && elapsed >= target;
                };
                // The distance to the keyframe before stands for the distance to the next.
                let next = match self.keyframe {
                    Some((at, _)) if sample.dts > at => sample.dts - at,
                    _ => distance.unwrap_or(0),
                };
                // Nearest to a multiple of the target on the stream's timeline, not to the target
                // after this segment's start: so renditions agree, whenever each began.
                let due = self.due(open.start, target);
                sample.dts + next / 2 >= due || elapsed + next > at_latest
            }
            Cutting::Leading => elapsed + i64::from(sample.duration) / 2 >= target,
        }
    }

    /// How long after it was published anything may stay, by the wall clock.
    fn longest_held(&self) -> Duration {
        2 * (self.settings.window + 3 * self.settings.target_duration)
    }

    /// Whether the segment being made must end because it could not leave the window: it has
    /// gathered too much, and media time, by which segments end and leave, hardly moves.
    fn is_overlong(&self, now: UnixMicros) -> bool {
        let Some((open, first)) =
            self.open.as_ref().and_then(|open| Some((open, open.parts.first()?)))
        else {
            return false;
        };
        now.since(first.published) > self.longest_held() || open.len() > MOST_HELD_BYTES / 4
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

    fn close_segment(&mut self, now: UnixMicros) -> bool {
        let Some(segment) = self.open.take_if(|segment| !segment.parts.is_empty()) else {
            return false;
        };
        self.next_msn = segment.msn + 1;
        self.window.open = None;
        self.held += segment.len();
        self.window.segments.push_back(Arc::new(segment));
        self.evict(now);
        self.window.version += 1;
        true
    }

    /// Drops from the playlists what exceeds the window, and from memory what viewers with an
    /// older playlist have had three target durations to fetch. Where the publisher's clock hardly
    /// moves, the wall clock decides: twice as long as a segment is held, it may stay.
    fn evict(&mut self, now: UnixMicros) {
        let listed = self.duration_ticks(self.settings.window);
        let held = listed + 3 * self.duration_ticks(self.settings.target_duration);
        let Some(end) = self.window.segments.back().map(|last| last.end()) else { return };
        let longest = self.longest_held();
        let segments = &mut self.window.segments;
        while let Some(first) = segments.front()
            && segments.len() > 1
        {
            let published = first.parts.last().map_or(now, |part| part.published);
            let leaves = end - first.end() >= held
                || now.since(published) > longest
                || self.held > MOST_HELD_BYTES;
            if !leaves {
                break;
            }
            self.held -= first.len();
            segments.pop_front();
            self.window.unlisted = self.window.unlisted.saturating_sub(1);
        }
        while segments
            .get(self.window.unlisted)
            .is_some_and(|segment| end - segment.end() >= listed && segment.end() < end)
        {
            self.window.unlisted += 1;
        }
    }

    /// Gives the oldest complete segment up, to make room: one that playlists no longer list, or one
    /// without which they are not shorter than three target durations (RFC 8216bis 6.2.2), or, at last,
    /// any but the newest. Answers whether there was one.
    pub(crate) fn give_way(&mut self, pressure: Pressure) -> bool {
        let least = 3 * self.duration_ticks(self.settings.target_duration);
        let segments = &self.window.segments;
        let (Some(newest), Some(second)) = (segments.back(), segments.get(1)) else { return false };
        let spared = self.window.unlisted > 0 || newest.end() - second.start >= least;
        if !spared && pressure == Pressure::Shorten {
            return false;
        }
        let oldest = self.window.segments.pop_front();
        self.held -= oldest.map_or(0, |segment| segment.len());
        self.window.unlisted = self.window.unlisted.saturating_sub(1);
        self.window.version += 1;
        true
    }

    fn chunk_is_full(&mut self) -> bool {
        let (Some(first), Some(last)) = (self.pending.first(), self.pending.last()) else {
            return false;
        };
        let filled = last.dts + i64::from(last.duration) - first.dts;
        let frame = i64::from(last.duration);
        // The first chunk waits until its frames tell the frame duration.
        let target = self.duration_ticks(self.settings.part_target);
        if self.part_limit.is_none() && (self.frames.is_unknown() || filled + frame / 2 < target) {
            return self.is_overfull();
        }
        filled + frame > i64::from(self.settled_limit()) || self.is_overfull()
    }

    /// The longest a part may be, decided now if it was not: the whole number of frames nearest
    /// to the target, rounded up by a millisecond for the rounding of source clocks.
    fn settled_limit(&mut self) -> u32 {
        if let Some(limit) = self.part_limit {
            return limit;
        }
        let target = self.duration_ticks(self.settings.part_target);
        let newest = self.pending.last().map_or(1, |last| last.duration);
        let frame = i64::from(self.frames.steady(newest));
        let frames = ((target + frame / 2) / frame).max(1);
        let limit = frames * frame + self.ticks(0.001);
        let limit = limit.min(self.duration_ticks(self.settings.target_duration));
        let limit = u32::try_from(limit).unwrap_or(u32::MAX).max(1);
        self.part_limit = Some(limit);
        limit
    }

    /// Whether the first sample's duration is only a guess, which the second corrects.
    fn is_learning(&self) -> bool {
        self.part_limit.is_none() && self.pending.len() == 1 && self.frames.fixed.is_none()
    }

    fn is_overfull(&self) -> bool {
        self.pending.len() >= MOST_PENDING || self.pending_bytes >= MOST_PENDING_BYTES
    }

    fn ticks(&self, seconds: f64) -> i64 {
        (f64::from(self.header.track.timescale) * seconds) as i64
    }

    fn duration_ticks(&self, duration: Duration) -> i64 {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        rescale(micros, 1_000_000, self.header.track.timescale)
    }
}

fn narrow(cts: i64) -> i32 {
    i32::try_from(cts).unwrap_or(if cts < 0 { i32::MIN } else { i32::MAX })
}
