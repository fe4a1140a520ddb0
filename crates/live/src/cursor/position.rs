//! A place in one track.

use std::sync::Arc;

use tokio::sync::watch;

use super::seconds;
use crate::{Part, PartIndex, Segment, Track, Window};

/// Where a viewer is in a track.
pub(super) struct Position {
    pub(super) track: Arc<Track>,
    pub(super) windows: watch::Receiver<Arc<Window>>,
    /// The part to send next.
    pub(super) next: PartIndex,
}

impl Position {
    pub(super) fn of(track: &Arc<Track>) -> Self {
        Self { track: Arc::clone(track), windows: track.subscribe(), next: (0, 0) }
    }

    /// Moves to the place where a viewer begins nearest to live.
    pub(super) fn go_live(&mut self, whole: bool) {
        let place = super::newest_start(&self.windows.borrow(), whole);
        self.next = place.unwrap_or((self.track.header().msn, 0));
    }

    /// Moves to the first part that starts at `time` or later, in seconds, or to the next part to
    /// come. For `whole` segments, moves to the first such segment.
    pub(super) fn go_past(&mut self, time: f64, whole: bool) {
        let window = self.windows.borrow().clone();
        let starts = |segment: &Segment, part: &Part| seconds(part.start, &segment.header.track);
        let newest = window.newest().map(|newest| (newest.msn, newest.parts.len()));
        self.next = newest.unwrap_or((self.track.header().msn, 0));
        // That part is close to the end, so the search starts there.
        for segment in window.all().rev() {
            let later = segment.parts.iter().position(|part| starts(segment, part) >= time);
            match later {
                Some(at) => self.next = (segment.msn, at),
                None => break,
            }
            if self.next.1 > 0 {
                break;
            }
        }
        if whole && self.next.1 > 0 {
            self.next = (self.next.0 + 1, 0);
        }
    }

    /// The next part. For `whole` segments, only those that are complete.
    pub(super) fn peek(&mut self, whole: bool) -> Option<(Arc<Segment>, Arc<Part>)> {
        let window = self.windows.borrow();
        let (segment, part) = window.part(&mut self.next)?;
        (!whole || window.is_complete(segment.msn)).then(|| (Arc::clone(segment), Arc::clone(part)))
    }

    /// Start time of the next part, in seconds, and its end time if the part is there already. For
    /// `whole` segments, those of the segment.
    pub(super) fn here(&self, whole: bool) -> (f64, Option<f64>) {
        let window = self.windows.borrow();
        let timed = |segment: &Segment, time: i64| seconds(time, &segment.header.track);
        let mut next = self.next;
        if let Some((segment, part)) = window.part(&mut next) {
            let end = match whole {
                true => window.is_complete(segment.msn).then(|| segment.end()),
                false => Some(part.start + i64::from(part.duration)),
            };
            return (timed(segment, part.start), end.map(|end| timed(segment, end)));
        }
        let before = window.segment(self.next.0).or_else(|| window.newest());
        (before.map_or(f64::MIN, |segment| timed(segment, segment.end())), None)
    }

    /// The first keyframe that starts at `time` or later, and its start time.
    pub(super) fn keyframe_from(&self, time: f64, whole: bool) -> Option<(PartIndex, f64)> {
        let window = self.windows.borrow();
        let segments = window.all().rev();
        let parts = segments.filter(|segment| !whole || window.is_complete(segment.msn)).flat_map(
            |segment| {
                let parts = if whole { segment.parts.get(..1) } else { segment.parts.get(..) };
                let parts = parts.unwrap_or_default().iter().enumerate().rev();
                parts.map(move |(at, part)| {
                    let start = seconds(part.start, &segment.header.track);
                    ((segment.msn, at), part.independent, start)
                })
            },
        );
        // That keyframe is close to the end, so the search starts there.
        let from = parts.take_while(|(.., start)| *start >= time);
        from.filter(|(_, independent, _)| *independent).last().map(|(place, _, at)| (place, at))
    }

    /// Whether the next part has left the window.
    pub(super) fn has_left(&self) -> bool {
        self.windows.borrow().has_lost(self.next)
    }

    /// Bytes of the window that are not yet sent and end at `until` or earlier. Counting stops just
    /// past `limit`. The newest part does not count: a viewer that keeps up always has that part to
    /// come. For `whole` segments, the newest complete segment does not count for the same reason,
    /// and a segment that still grows is not available.
    pub(super) fn waiting(&self, limit: u64, whole: bool, until: f64) -> u64 {
        let window = self.windows.borrow();
        let mut bytes = 0;
        let segments = window.all().rev().take_while(|segment| segment.msn >= self.next.0);
        let segments = segments.filter(|segment| !whole || window.is_complete(segment.msn));
        let parts = segments.skip(usize::from(whole)).flat_map(|segment| {
            let sent = if segment.msn == self.next.0 { self.next.1 } else { 0 };
            let parts = segment.parts.iter().skip(sent).rev();
            parts.map(move |part| (part, part.start + i64::from(part.duration), segment))
        });
        let is_beyond = |(_, end, segment): &(&Arc<Part>, i64, &Arc<Segment>)| {
            seconds(*end, &segment.header.track) > until
        };
        for (part, ..) in parts.skip(usize::from(!whole)).skip_while(is_beyond) {
            bytes += part.region.len() as u64;
            if bytes > limit {
                break;
            }
        }
        bytes
    }
}
