//! The published media of a track: its window, and the bytes of its parts.

mod copied;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use media::Sample;
use media::cmaf::{ChunkInfo, ReferenceTime, SegmentStart};
use payload::memory::{Arena, no_room};

use crate::UnixMicros;
use crate::window::{Beside, Header, Part, SampleLayout, Segment, Window};

/// The most bytes that a window holds, whatever the media's times say. Three quarters of a minute
/// at 100 Mbit/s take half of them.
const MOST_HELD_BYTES: usize = 1 << 30;
/// The largest buffer for chunks, in bytes, that is kept for the next chunk.
const MOST_SCRATCH: usize = 4 << 20;
/// The most complete segments that a window holds, listed in playlists or not. A publisher whose
/// clock hardly moves, or jumps, would make more.
const MOST_SEGMENTS: usize = 1 << 15;
/// The most parts of a segment, where the configuration makes no more. A publisher whose clock hardly
/// moves would make more, and each new part copies the list of the segment's parts.
pub(crate) const MOST_PARTS: usize = 512;

/// A segment that begins.
pub(crate) struct Begin {
    /// Decode time of its first sample.
    pub(crate) start: i64,
    /// Presentation time of its first sample.
    pub(crate) presents: i64,
    pub(crate) period: u64,
    pub(crate) discontinuity: bool,
    pub(crate) captured: UnixMicros,
    pub(crate) expected_end: Option<i64>,
    pub(crate) header: Arc<Header>,
}

/// How much of a track the window keeps, in the track's timescale.
///
/// The durations are sums over segments. The time while a publisher was away does not count:
/// otherwise the first segment after it would leave playlists shorter than three target durations
/// (RFC 8216bis 6.2.2).
pub(crate) struct Holding {
    /// Playlists list no segment that is presented before this time.
    pub(crate) from: i64,
    /// Duration that playlists list.
    pub(crate) listed: u64,
    /// Duration of the segments that viewers can ask for. Viewers with an older playlist have three
    /// target durations more than playlists list.
    pub(crate) held: u64,
    /// How long a segment may stay after it was published, by the wall clock.
    pub(crate) longest: Duration,
    /// The most parts of a segment.
    pub(crate) parts: usize,
}

/// Writes a track's chunks, and keeps its window.
pub(crate) struct Segments {
    arena: Arena,
    scratch: Vec<u8>,
    /// The segment being made. It has no parts while its first chunk fills.
    open: Option<Segment>,
    /// Bytes of its parts.
    open_bytes: usize,
    next_msn: u64,
    sequence: u32,
    window: Window,
    /// Bytes and ticks of the window's complete segments.
    held: (usize, u64),
    /// Ticks of those complete segments that playlists no longer list.
    unlisted: u64,
    /// Numbers and bit rates of the complete segments whose rate no later segment reaches. The
    /// rates fall: the first is the highest of the window.
    peaks: VecDeque<(u64, u64)>,
}

impl Segments {
    /// Starts without segments. The first one gets the number `msn`. Their bytes go into `arena`.
    pub(crate) fn new(msn: u64, arena: Arena) -> Self {
        Self {
            arena,
            scratch: Vec::new(),
            open: None,
            open_bytes: 0,
            next_msn: msn,
            sequence: 1,
            window: Window::default(),
            held: (0, 0),
            unlisted: 0,
            peaks: VecDeque::new(),
        }
    }

    pub(crate) fn window(&self) -> &Window {
        &self.window
    }

    pub(crate) fn next_msn(&self) -> u64 {
        self.next_msn
    }

    pub(crate) fn open(&self) -> Option<&Segment> {
        self.open.as_ref()
    }

    /// Begins a segment.
    pub(crate) fn begin(&mut self, begin: Begin) {
        let before = self.window.newest().filter(|before| before.period == begin.period);
        let period_start = match before {
            Some(before) => before.period_start,
            None if begin.period == 0 => 0,
            None => begin.presents,
        };
        self.open_bytes = 0;
        self.open = Some(Segment {
            msn: self.next_msn,
            start: begin.start,
            presents: begin.presents,
            duration: 0,
            period: begin.period,
            period_start,
            discontinuity: begin.discontinuity,
            captured: begin.captured,
            expected_end: begin.expected_end,
            header: begin.header,
            parts: Vec::new(),
        });
    }

    /// Drops the segment being made if it has no parts yet.
    pub(crate) fn discard(&mut self) {
        self.open.take_if(|segment| segment.parts.is_empty());
    }

    /// Corrects the decode time at which the segment being made begins, if it has no parts yet.
    pub(crate) fn begin_at(&mut self, start: i64) {
        if let Some(open) = self.open.as_mut().filter(|open| open.parts.is_empty()) {
            open.start = start;
        }
    }

    /// Writes one chunk and adds it to the segment being made. Samples of video are decoded early:
    /// `dues` tells when each is due.
    pub(crate) fn publish(
        &mut self,
        chunk: &[Sample],
        dues: &[i64],
        now: UnixMicros,
    ) -> io::Result<()> {
        let (Some(first), Some(last), Some(segment)) =
            (chunk.first(), chunk.last(), &mut self.open)
        else {
            return Ok(());
        };
        let start = first.dts;
        let duration = u32::try_from(last.dts + i64::from(last.duration) - start).unwrap_or(0);
        let info = ChunkInfo {
            track_id: segment.header.track.id,
            sequence_number: self.sequence,
            segment_start: segment.parts.is_empty().then(|| SegmentStart {
                reference: Some(ReferenceTime {
                    unix_micros: segment.captured.0,
                    media_time: u64::try_from(segment.presents).unwrap_or(0),
                }),
            }),
        };
        self.scratch.clear();
        let layout =
            media::cmaf::write_chunk(&mut self.scratch, &info, chunk).map_err(io::Error::other)?;
        let region = self.arena.store(&self.scratch)?;
        self.open_bytes += region.len();
        let known = size_of::<Part>() + chunk.len() * size_of::<SampleLayout>();
        let known = region.charge(known).ok_or_else(no_room)?;
        let narrow = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let samples = layout
            .samples(chunk)
            .zip(chunk.iter().zip(dues))
            .map(|(range, (sample, &due))| SampleLayout {
                dts: due,
                cts: i32::try_from(sample.pts() - due).unwrap_or(0),
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
        let period = segment.period;
        self.window.open = Some(Arc::new(segment.clone()));
        if self.window.segments.back().is_some_and(|last| period > last.period + 1) {
            // The track was away for a whole period. A playlist could only tag one of the
            // discontinuities, and the number of this segment would not be that of the other
            // tracks' segments beside it (RFC 8216bis 6.2.4). So the playlist no longer lists the
            // segments before.
            self.unlist(self.window.segments.len());
        }
        self.window.version += 1;
        self.sequence = self.sequence.wrapping_add(1);
        if self.scratch.capacity() > MOST_SCRATCH {
            self.scratch = Vec::new();
        }
        Ok(())
    }

    /// Completes the segment being made. Returns whether there was one with parts. One without parts
    /// is dropped: what comes next may be of another period.
    pub(crate) fn close(&mut self, holding: &Holding, now: UnixMicros) -> bool {
        let Some(segment) = self.open.take().filter(|segment| !segment.parts.is_empty()) else {
            return false;
        };
        self.next_msn = segment.msn + 1;
        self.window.open = None;
        self.count(&segment);
        self.window.segments.push_back(Arc::new(segment));
        self.evict(holding, now);
        self.window.rate = self.peaks.front().map(|&(_, peak)| {
            let newest = self.window.segments.back().map_or(1, |last| last.header.track.timescale);
            (rate(self.held.0 as u64, self.held.1, newest), peak)
        });
        self.window.version += 1;
        true
    }

    /// Marks the window as complete: no segment follows.
    pub(crate) fn end(&mut self) {
        // A publisher may have gone right after its first frame. All that is left is listed then.
        self.unlist(self.window.unlisted.min(self.window.segments.len().saturating_sub(1)));
        self.window.ended = true;
        self.window.version += 1;
    }

    /// Whether the segment being made must end because it has lasted too long, or holds too many
    /// bytes or parts. This happens where media time hardly moves: segments end and leave the window
    /// by media time.
    pub(crate) fn is_overlong(&self, holding: &Holding, now: UnixMicros) -> bool {
        let Some((open, first)) =
            self.open.as_ref().and_then(|open| Some((open, open.parts.first()?)))
        else {
            return false;
        };
        now.since(first.published) > holding.longest
            || self.open_bytes > MOST_HELD_BYTES / 4
            || open.parts.len() >= holding.parts
    }

    /// Gives up the oldest complete segment, but never the newest. If there is a `least`, playlists
    /// must no longer list the segment, or list `least` ticks without it. Returns whether it gave
    /// one up.
    pub(crate) fn give_way(&mut self, least: Option<u64>) -> bool {
        let segments = &self.window.segments;
        let Some(oldest) = segments.front().filter(|_| segments.len() > 1) else { return false };
        let left = self.held.1 - oldest.duration;
        if self.window.unlisted == 0 && least.is_some_and(|least| left < least) {
            return false;
        }
        self.drop_oldest();
        self.window.version += 1;
        true
    }

    fn drop_oldest(&mut self) {
        let Some(oldest) = self.window.segments.pop_front() else { return };
        self.held.0 -= oldest.len();
        self.held.1 -= oldest.duration;
        self.peaks.pop_front_if(|&mut (msn, _)| msn == oldest.msn);
        if self.window.unlisted > 0 {
            self.window.unlisted -= 1;
            self.unlisted -= oldest.duration;
        }
    }

    /// Lets playlists list all complete segments but the oldest `count`.
    fn unlist(&mut self, count: usize) {
        let Window { segments, unlisted, .. } = &mut self.window;
        let (fewer, more) = (count.min(*unlisted), count.max(*unlisted));
        let between = segments.iter_from(fewer).take(more - fewer);
        let ticks = between.map(|segment| segment.duration).sum::<u64>();
        self.unlisted =
            if count > *unlisted { self.unlisted + ticks } else { self.unlisted - ticks };
        *unlisted = count;
    }

    fn count(&mut self, segment: &Segment) {
        self.held.0 += segment.len();
        self.held.1 += segment.duration;
        let timescale = segment.header.track.timescale;
        let rate = rate(segment.len() as u64, segment.duration, timescale);
        while self.peaks.back().is_some_and(|&(_, peak)| peak <= rate) {
            self.peaks.pop_back();
        }
        self.peaks.push_back((segment.msn, rate));
    }

    /// Drops from the playlists the segments that exceed the window or came long before the first
    /// frame, and from memory those that viewers with an older playlist have had time to fetch. Where
    /// the publisher's clock hardly moves, the wall clock, the bytes held and the number of segments
    /// decide.
    fn evict(&mut self, holding: &Holding, now: UnixMicros) {
        while let Some(first) = self.window.segments.front()
            && self.window.segments.len() > 1
        {
            let published = first.parts.last().map_or(now, |part| part.published);
            let leaves = self.held.1 - first.duration >= holding.held
                || now.since(published) > holding.longest
                || self.held.0 > MOST_HELD_BYTES
                || self.window.segments.len() > MOST_SEGMENTS;
            if !leaves {
                break;
            }
            self.drop_oldest();
        }
        while let Some(segment) = self.window.segments.get(self.window.unlisted) {
            let left = self.held.1 - self.unlisted - segment.duration;
            if left < holding.listed && segment.presents >= holding.from {
                break;
            }
            self.unlist(self.window.unlisted + 1);
        }
    }
}

fn rate(bytes: u64, ticks: u64, timescale: u32) -> u64 {
    bytes * 8 * u64::from(timescale) / ticks.max(1)
}
