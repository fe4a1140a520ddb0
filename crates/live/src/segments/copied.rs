//! Parts that another machine has cut.

use std::io;
use std::sync::Arc;

use payload::memory::no_room;

use super::{MOST_SEGMENTS, Segments};
use crate::change::{NewPart, WindowState};
use crate::window::{Beside, Part, PartIndex, SampleLayout, Segment};

/// The most parts of a segment of a copy. No stream has so many.
const MOST_COPIED: usize = 1 << 16;
/// The longest segment of a copy, in a track's timescale. No stream has such a long one, and sums of all segments
/// stay far below what a number holds.
const LONGEST: i64 = 1 << 40;

impl Segments {
    /// The place after the newest part.
    pub(crate) fn next_place(&self) -> Option<PartIndex> {
        self.newest().map(|newest| (newest.msn, newest.parts.len()))
    }

    /// The newest segment, with parts that viewers may not see yet.
    pub(crate) fn newest(&self) -> Option<&Segment> {
        self.open.as_ref().or(self.window.segments.back().map(Arc::as_ref))
    }

    /// Leaves out so many versions above this one, or above `least` if that is more.
    pub(crate) fn leave_out(&mut self, least: u64, versions: u64) {
        self.window.version = self.window.version.max(least) + versions;
    }

    /// Adds the next part, or the first of a segment. Viewers do not see it before [`Segments::copy_window`].
    pub(crate) fn copy_part(&mut self, new: &NewPart) -> io::Result<()> {
        let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        let length = u32::try_from(new.bytes.len()).map_err(|_| invalid("a part is too long"))?;
        let is_inside = |sample: &SampleLayout| {
            sample.offset.checked_add(sample.size).is_some_and(|end| end <= length)
        };
        if !new.samples.iter().all(is_inside) {
            return Err(invalid("a sample is not in its part"));
        }
        let start = new.begins.as_ref().map(|begins| begins.start);
        let start = start.or(self.open.as_ref().map(|open| open.start)).unwrap_or(new.start);
        if !(0..=LONGEST).contains(&new.start.saturating_sub(start)) {
            return Err(invalid("a part does not follow the start of its segment"));
        }
        let region = self.arena.store(&new.bytes)?;
        let known = size_of::<Part>() + size_of_val(&*new.samples);
        let known = region.charge(known).ok_or_else(no_room)?;
        let part = Part {
            start: new.start,
            duration: new.duration,
            independent: new.independent,
            region,
            samples: new.samples.clone(),
            published: new.published,
            flv: Beside::default(),
            rtmp: Beside::default(),
            _known: known,
        };
        if let Some(begins) = &new.begins {
            // Each message has a header of its own. Segments share one, as in the stream itself.
            let known = self.newest().map(|newest| &newest.header);
            let header =
                Arc::clone(known.filter(|it| **it == begins.header).unwrap_or(&begins.header));
            match begins.follows {
                Some(_) => self.complete(),
                None => self.forget(),
            }
            if self.window.segments.len() >= MOST_SEGMENTS {
                return Err(invalid("there are too many segments"));
            }
            self.open = Some(Segment {
                msn: new.place.0,
                start: begins.start,
                presents: begins.presents,
                duration: 0,
                period: begins.period,
                period_start: begins.period_start,
                discontinuity: begins.discontinuity,
                captured: begins.captured,
                expected_end: begins.expected_end,
                header,
                parts: Vec::new(),
            });
        } else if self.open.is_none() {
            // The newest segment was shown as complete, and is not.
            return Err(invalid("a complete segment has a further part"));
        }
        let segment = self.open.as_mut().filter(|open| open.parts.len() < MOST_COPIED);
        let segment = segment.ok_or_else(|| invalid("a segment has too many parts"))?;
        let before = u64::try_from(new.start.saturating_sub(segment.start)).unwrap_or(0);
        segment.duration = before.saturating_add(u64::from(new.duration));
        segment.parts.push(Arc::new(part));
        self.next_msn = segment.msn;
        Ok(())
    }

    /// Makes the window one that has all parts up to now.
    pub(crate) fn copy_window(&mut self, state: &WindowState) {
        if !state.is_open {
            self.complete();
        }
        while self.window.segments.front().is_some_and(|oldest| oldest.msn < state.first) {
            self.drop_oldest();
        }
        self.window.open = self.open.clone().map(Arc::new);
        // This machine may hold fewer segments, if its memory is short.
        let oldest = self.window.segments.front().map_or(state.first, |oldest| oldest.msn);
        let missing = usize::try_from(oldest.saturating_sub(state.first)).unwrap_or(usize::MAX);
        let unlisted = state.unlisted.saturating_sub(missing);
        self.unlist(unlisted.min(self.window.segments.len()));
        self.window.ended = state.ended;
        self.window.rate = state.rate;
        self.window.version = state.version;
    }

    /// Completes the newest segment.
    fn complete(&mut self) {
        if let Some(segment) = self.open.take() {
            self.next_msn = segment.msn + 1;
            self.count(&segment);
            self.window.segments.push_back(Arc::new(segment));
        }
    }

    /// Drops all segments.
    pub(crate) fn forget(&mut self) {
        self.open = None;
        while !self.window.segments.is_empty() {
            self.drop_oldest();
        }
    }
}
