//! A viewer's place in a live stream, for deliveries that push every part to the viewer.

mod position;
mod rendition;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use media::Kind;
use position::Position;
pub use rendition::Choice;
use rendition::{SAME, Switch, best};
use tokio::sync::watch;

use crate::{Header, Part, PartIndex, Segment, State, Status, Stream, Track, UnixMicros, Window};

/// Follows one video and one audio track, or the one that there is, from the newest keyframe on.
///
/// If several parts are at hand, they come in the order of their decode times. Otherwise they come
/// as they are published: a track that stalls delays nothing else. A slow viewer has no queue of
/// its own: its unsent parts stay in the window. A viewer that falls too far behind is moved to the
/// newest keyframe.
pub struct Cursor {
    state: watch::Receiver<Arc<State>>,
    tracks: Vec<Position>,
    limits: Limits,
    choice: Choice,
    /// Whether it takes whole segments, once they are complete.
    whole: bool,
    /// Whether the viewer was sent back in time and has not caught up. Media that wait for it are
    /// then no sign of slowness.
    catching_up: bool,
    /// When the viewer was first skipped ahead, and since when it has kept up again.
    behind: Option<(UnixMicros, Option<UnixMicros>)>,
    /// The rendition of the video to change to.
    switch: Option<Switch>,
    /// The last part that it gave: index of its track, and place.
    given: Option<(usize, PartIndex)>,
    /// Whether that part was postponed and nothing has changed since.
    postponed: bool,
}

/// Limits of what a viewer may cost.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of the window that may wait for the viewer.
    pub queue: u64,
    /// How long the viewer may stay behind although it was skipped ahead.
    pub patience: std::time::Duration,
}

/// Why [`Cursor::stir`] stopped waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stir {
    /// There are parts.
    Parts,
    /// There are no parts, and the stream is over or has other tracks to follow.
    Other,
}

/// The next event for a viewer.
#[derive(Debug)]
pub enum Next {
    /// A part of a track.
    Part {
        /// Index of the track in [`Cursor::tracks`].
        track: usize,
        /// The segment of the part, as it was when the part was found.
        segment: Arc<Segment>,
        /// The part.
        part: Arc<Part>,
    },
    /// The cursor follows other tracks from here on; see [`Cursor::tracks`].
    Tracks,
    /// The cursor follows the other rendition from here on, starting with a keyframe.
    Switched {
        /// Whether media are missing before that keyframe.
        gap: bool,
    },
    /// The viewer was too slow and goes on at the newest keyframe.
    Skipped,
    /// The viewer was too slow for too long. Disconnect it.
    TooSlow,
    /// The stream is over.
    Ended,
}

impl Cursor {
    /// A cursor at the newest keyframe. `None` while the stream has no media.
    pub fn new(stream: &Arc<Stream>, limits: Limits) -> Option<Self> {
        Self::chosen(stream, limits, Choice::default(), false)
    }

    /// The same for a viewer with a choice of renditions. It takes `whole` segments or parts.
    pub fn chosen(
        stream: &Arc<Stream>,
        limits: Limits,
        choice: Choice,
        whole: bool,
    ) -> Option<Self> {
        let state = stream.subscribe();
        let tracks = best(&state.borrow(), &choice).iter().map(Position::of).collect();
        let mut cursor = Self {
            state,
            tracks,
            limits,
            choice,
            whole,
            catching_up: false,
            behind: None,
            switch: None,
            given: None,
            postponed: false,
        };
        cursor.seek_live().then_some(cursor)
    }

    /// A cursor on `tracks`, at these places.
    pub fn at(
        stream: &Stream,
        tracks: &[Arc<Track>],
        places: &[PartIndex],
        limits: Limits,
    ) -> Self {
        let position = |(track, &next)| Position { next, ..Position::of(track) };
        let tracks = tracks.iter().zip(places).map(position).collect();
        let (state, choice) = (stream.subscribe(), Choice::default());
        Self {
            state,
            tracks,
            limits,
            choice,
            whole: false,
            catching_up: false,
            behind: None,
            switch: None,
            given: None,
            postponed: false,
        }
    }

    /// The same cursor with other limits.
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// The same cursor with another choice of renditions, which it uses when it next chooses.
    pub fn with_choice(self, choice: Choice) -> Self {
        Self { choice, ..self }
    }

    /// The same cursor, for whole segments or for parts.
    pub fn with_whole(self, whole: bool) -> Self {
        Self { whole, ..self }
    }

    /// Whether it takes whole segments.
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// The place that it needs next in each track.
    pub fn places(&self) -> impl Iterator<Item = PartIndex> {
        self.tracks.iter().map(|position| position.next)
    }

    /// Whether the viewer was skipped ahead and has not kept up for long enough since.
    pub fn is_behind(&self) -> bool {
        self.behind.is_some()
    }

    /// Whether it can only wait for the next part.
    pub fn is_at_edge(&mut self) -> bool {
        self.tracks.iter_mut().all(|position| position.peek(self.whole).is_none())
            && self.state.borrow().status != Status::Ended
            && self.switch.is_none()
            && !self.has_better()
    }

    /// Whether the viewer was sent back in time and has not caught up.
    pub fn is_catching_up(&self) -> bool {
        self.catching_up
    }

    /// Bytes that are ready for the viewer and not yet given to it. The newest part of each track
    /// does not count or, for whole segments, the newest segment.
    pub fn waiting(&self) -> u64 {
        let other = self.late_other();
        let waiting = self.tracks.iter().map(|position| {
            let until = other.filter(|_| position.track.kind == Kind::Video);
            position.waiting(u64::MAX, self.whole, until.map_or(f64::INFINITY, |end| end + SAME))
        });
        waiting.sum()
    }

    /// Waits until there is something to do, without doing it.
    pub async fn stir(&mut self) -> Stir {
        loop {
            self.mark();
            if self.tracks.iter_mut().any(|position| position.peek(self.whole).is_some()) {
                return Stir::Parts;
            }
            if self.state.borrow().status == Status::Ended || self.has_better() {
                return Stir::Other;
            }
            self.changed().await;
        }
    }

    /// The tracks it follows.
    pub fn tracks(&self) -> impl Iterator<Item = &Arc<Track>> {
        self.tracks.iter().map(|position| &position.track)
    }

    /// Seconds of media from the next part to the newest: how far behind live a viewer begins that
    /// plays at once.
    pub fn behind(&mut self) -> f64 {
        let whole = self.whole;
        let behind = self.tracks.iter_mut().filter_map(|position| {
            let start = position.peek(whole).map(|(_, part)| part.start)?;
            let window = position.track.window();
            let newest = window.newest()?;
            let timescale = f64::from(newest.header.track.timescale);
            Some((newest.end() - start) as f64 / timescale)
        });
        behind.fold(0.0, f64::max)
    }

    /// The header of the next part of each track.
    pub fn headers(&mut self) -> Vec<Arc<Header>> {
        let whole = self.whole;
        let headers = self.tracks.iter_mut().map(|position| match position.peek(whole) {
            Some((segment, _)) => segment.header.clone(),
            None => position.track.header(),
        });
        headers.collect()
    }

    fn followed(&self, kind: Kind) -> Option<&Position> {
        self.tracks.iter().find(|followed| followed.track.kind == kind)
    }

    /// Moves to the keyframe at or before `time`, in seconds of the stream's timeline, or to the
    /// first of the window. Returns false if there is no keyframe.
    pub fn seek(&mut self, time: f64) -> bool {
        let Some(first) = self.tracks.first() else { return false };
        let window = first.windows.borrow().clone();
        let starts = |segment: &Segment, part: &Part| seconds(part.start, &segment.header.track);
        let keyframes = window.listed().chain(&window.open).flat_map(|segment| {
            let parts = segment.parts.iter().enumerate().filter(|(_, part)| part.independent);
            parts.map(move |(at, part)| ((segment.msn, at), starts(segment, part)))
        });
        let mut found = None;
        for (place, start) in keyframes {
            if found.is_some() && start > time {
                break;
            }
            found = Some(place);
        }
        let Some(place) = found else { return false };
        self.catching_up = true;
        if let Some((_, kept_up)) = &mut self.behind {
            // A viewer must prove anew after a seek that it keeps up: neither its earlier place nor
            // the media that follow show it.
            *kept_up = None;
        }
        self.go_to(place)
    }

    /// Moves to the newest keyframe. Returns false if there is none.
    pub fn seek_live(&mut self) -> bool {
        let Some(first) = self.tracks.first() else { return false };
        let window = first.windows.borrow().clone();
        self.catching_up = false;
        newest_start(&window, self.whole).is_some_and(|place| self.go_to(place))
    }

    /// Moves to a part of the first track, and in the others to the part that plays at the same
    /// time.
    fn go_to(&mut self, (msn, part): PartIndex) -> bool {
        let Some(first) = self.tracks.first() else { return false };
        let window = first.windows.borrow().clone();
        let part = if self.whole { 0 } else { part };
        let start = window.segment(msn).and_then(|segment| {
            Some(seconds(segment.parts.get(part)?.start, &segment.header.track))
        });
        let start = start.unwrap_or(0.0);
        for (index, position) in self.tracks.iter_mut().enumerate() {
            let window = position.windows.borrow().clone();
            if index == 0 {
                position.next = (msn, part);
                continue;
            }
            // The other track goes to the part that plays at that time, or to the next one to come.
            let is_over =
                |segment: &&Arc<Segment>| seconds(segment.end(), &segment.header.track) <= start;
            let found = window.all().skip_while(is_over).find_map(|segment| {
                let playing = segment.parts.iter().position(|part| {
                    let end = part.start + i64::from(part.duration);
                    seconds(end, &segment.header.track) > start
                })?;
                Some((segment.msn, playing))
            });
            let newest = || {
                let newest = window.newest().map(|newest| (newest.msn, newest.parts.len()));
                newest.unwrap_or((position.track.header().msn, 0))
            };
            let (msn, part) = found.unwrap_or_else(newest);
            position.next = (msn, if self.whole { 0 } else { part });
        }
        true
    }

    /// Takes back the last part, which the caller could not use. It comes again once something has
    /// changed. Until then it waits as for a slow viewer.
    pub fn postpone(&mut self) {
        let Some((track, place)) = self.given.take() else { return };
        if let Some(position) = self.tracks.get_mut(track) {
            position.next = place;
            self.postponed = true;
        }
    }

    /// The next event that needs no waiting, if any.
    pub fn poll(&mut self, now: UnixMicros) -> Option<Next> {
        if let Some(slow) = self.keep_up(now) {
            self.postponed = false;
            return Some(slow);
        }
        if self.postponed {
            return None;
        }
        if let Some(switched) = self.change_over() {
            return Some(switched);
        }
        let withheld = self.withholds_video();
        let mut best: Option<(usize, f64, Arc<Segment>, Arc<Part>)> = None;
        for index in 0..self.tracks.len() {
            if withheld && self.tracks[index].track.kind == Kind::Video {
                continue;
            }
            let Some((segment, part)) = self.tracks[index].peek(self.whole) else { continue };
            let start = seconds(part.start, &segment.header.track);
            if best.as_ref().is_none_or(|(_, earliest, ..)| start < *earliest) {
                best = Some((index, start, segment, part));
            }
        }
        let (track, _, segment, part) = best?;
        let position = &mut self.tracks[track];
        self.given = Some((track, position.next));
        if self.whole {
            position.next = (segment.msn + 1, 0);
        } else {
            position.next.1 += 1;
        }
        Some(Next::Part { track, segment, part })
    }

    /// Waits for the next event.
    pub async fn next(&mut self, clock: impl Fn() -> UnixMicros) -> Next {
        loop {
            // A postponed part comes again with the changes since it was given.
            if !self.postponed {
                self.mark();
            }
            if let Some(next) = self.poll(clock()) {
                return next;
            }
            if self.state.borrow().status == Status::Ended {
                return Next::Ended;
            }
            if let Some(next) = self.choose_again() {
                return next;
            }
            self.changed().await;
            self.postponed = false;
        }
    }

    /// Marks the current state as seen: [`Self::changed`] waits for later changes.
    fn mark(&mut self) {
        for position in &mut self.tracks {
            position.windows.mark_unchanged();
        }
        if let Some(switch) = &mut self.switch {
            switch.to.windows.mark_unchanged();
        }
        self.state.mark_unchanged();
    }

    /// Waits until something has changed since the marks were set.
    async fn changed(&mut self) {
        let mut tracks = self.tracks.iter_mut();
        let (first, second) = (tracks.next(), tracks.next());
        tokio::select! {
            () = change(first) => {}
            () = change(second) => {}
            () = change(self.switch.as_mut().map(|switch| &mut switch.to)) => {}
            _ = self.state.changed() => {}
        }
    }

    /// Moves a viewer that fell behind to the newest keyframe, or reports it as too slow.
    fn keep_up(&mut self, now: UnixMicros) -> Option<Next> {
        let drops = self.switch.as_ref().is_some_and(|switch| switch.drops);
        let given = |position: &&Position| !drops || position.track.kind != Kind::Video;
        let mut tracks = self.tracks.iter().filter(given);
        let lost = tracks.clone().any(Position::has_left);
        let waits =
            |position: &Position| position.waiting(self.limits.queue, self.whole, f64::INFINITY);
        let waiting: u64 = tracks.by_ref().map(waits).sum();
        if !lost && self.catching_up {
            self.catching_up = waiting > self.limits.queue / 4;
            return None;
        }
        if !lost && waiting <= self.limits.queue {
            // A skip ahead does not prove that the viewer keeps up. Only time does.
            if let Some((_, kept_up)) = &mut self.behind
                && waiting <= self.limits.queue / 4
                && now.since(*kept_up.get_or_insert(now)) > self.limits.patience
            {
                self.behind = None;
            }
            return None;
        }
        self.skip_ahead(now, lost)
    }

    /// Moves a viewer that has fallen behind to the newest keyframe if that is ahead, or reports it
    /// as too slow.
    pub fn skip(&mut self, now: UnixMicros) -> Option<Next> {
        self.skip_ahead(now, false)
    }

    fn skip_ahead(&mut self, now: UnixMicros, anyway: bool) -> Option<Next> {
        let since = self.behind.map(|(since, _)| since);
        if since.is_some_and(|since| now.since(since) > self.limits.patience) {
            return Some(Next::TooSlow);
        }
        match self.go_ahead(anyway) {
            None => return Some(Next::TooSlow),
            Some(true) => {
                self.behind = Some((since.unwrap_or(now), None));
                return Some(Next::Skipped);
            }
            Some(false) => {}
        }
        // One group of frames is larger than the queue, so there is no keyframe ahead to skip to.
        // Going back to its beginning would only add to the waiting bytes. A viewer that has just
        // joined there is not too slow.
        self.behind = since.map(|since| (since, None));
        None
    }

    /// Moves to the newest keyframe if that is ahead, or in any case if `anyway`. Returns whether
    /// it moved; `None` if there is no keyframe.
    fn go_ahead(&mut self, anyway: bool) -> Option<bool> {
        let before: Vec<_> = self.places().collect();
        if !self.seek_live() {
            return None;
        }
        if anyway || self.places().next() > before.first().copied() {
            return Some(true);
        }
        for (position, place) in self.tracks.iter_mut().zip(before) {
            position.next = place;
        }
        Some(false)
    }
}

/// The place to begin nearest to live: the newest keyframe or, for `whole` segments, the newest
/// segment.
fn newest_start(window: &Window, whole: bool) -> Option<PartIndex> {
    if whole {
        return Some((window.segments.back().or(window.open.as_ref())?.msn, 0));
    }
    // A viewer can join a stream without keyframes (intra refresh) anywhere.
    window.newest_independent().or_else(|| {
        let newest = window.newest()?;
        Some((newest.msn, newest.parts.len().checked_sub(1)?))
    })
}

/// Waits until the track's window changes; for ever if there is no track.
async fn change(position: Option<&mut Position>) {
    if let Some(position) = position
        && position.windows.changed().await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}

fn seconds(time: i64, track: &media::Track) -> f64 {
    time as f64 / f64::from(track.timescale)
}
