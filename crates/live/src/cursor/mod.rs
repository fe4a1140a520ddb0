//! A viewer's place in a live stream: for deliveries that push every part to the viewer.

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

use crate::{Header, Part, Segment, State, Status, Stream, Track, UnixMicros, Window};

/// Follows one video and one audio track, those there are, from the newest keyframe on.
///
/// Parts come in the order of their decode times where several are at hand, and as they are
/// published where not: a track that stalls holds nobody up. What waits for a slow viewer is the
/// window itself, so a viewer costs no queue; one that falls too far behind is moved to the newest
/// keyframe.
pub struct Cursor {
    state: watch::Receiver<Arc<State>>,
    tracks: Vec<Position>,
    limits: Limits,
    choice: Choice,
    /// Segments are taken whole, once they are complete.
    whole: bool,
    /// It was sent back in time and has not caught up: what waits for it is no sign of slowness.
    catching_up: bool,
    /// When it was first skipped ahead, and since when it has kept up again.
    behind: Option<(UnixMicros, Option<UnixMicros>)>,
    /// The video it is to go on with.
    switch: Option<Switch>,
    /// The track of the last part that it gave, and where that was.
    given: Option<(usize, PartIndex)>,
    /// That part was postponed, and nothing has changed since.
    postponed: bool,
}

/// What a viewer may cost.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of the window that may wait for it.
    pub queue: u64,
    /// How long it may be behind in spite of being skipped ahead.
    pub patience: std::time::Duration,
}

/// Segment and part that a cursor needs next, of one of its tracks.
pub type PartIndex = (u64, usize);

/// Why [`Cursor::stir`] stopped waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stir {
    /// There are parts.
    Parts,
    /// There are none, and the stream is over or has other tracks to follow.
    Other,
}

/// What comes next for a viewer.
#[derive(Debug)]
pub enum Next {
    /// A part of track `track`, counted as in [`Cursor::tracks`].
    Part {
        /// Which track.
        track: usize,
        /// The segment it belongs to, as it was when the part was found.
        segment: Arc<Segment>,
        /// The part.
        part: Arc<Part>,
    },
    /// It follows other tracks from here on; see [`Cursor::tracks`].
    Tracks,
    /// It follows the other rendition from here on, with a keyframe.
    Switched {
        /// Whether media are missing before it.
        gap: bool,
    },
    /// The viewer was too slow and goes on at the newest keyframe.
    Skipped,
    /// The viewer was too slow for too long and is to be disconnected.
    TooSlow,
    /// The stream is over.
    Ended,
}

impl Cursor {
    /// A cursor at the newest keyframe. `None` while the stream has no media.
    pub fn new(stream: &Arc<Stream>, limits: Limits) -> Option<Self> {
        Self::chosen(stream, limits, Choice::default(), false)
    }

    /// The same for a viewer with wishes, of segments taken `whole` or of parts.
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

    /// A cursor at `places` of `tracks`.
    pub fn at(
        stream: &Stream,
        tracks: &[Arc<Track>],
        places: &[PartIndex],
        limits: Limits,
    ) -> Self {
        let position = |(track, &(msn, part)): (_, &PartIndex)| {
            let position = Position::of(track);
            Position { msn, part, ..position }
        };
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

    /// The same with other limits.
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// The same with other wishes, which count when it chooses the next time.
    pub fn with_choice(self, choice: Choice) -> Self {
        Self { choice, ..self }
    }

    /// The same, of segments taken whole or of parts.
    pub fn with_whole(self, whole: bool) -> Self {
        Self { whole, ..self }
    }

    /// Whether it takes segments whole.
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// What it needs next of each track.
    pub fn places(&self) -> impl Iterator<Item = PartIndex> {
        self.tracks.iter().map(|position| (position.msn, position.part))
    }

    /// Whether it was skipped ahead and has not kept up for long enough since.
    pub fn is_behind(&self) -> bool {
        self.behind.is_some()
    }

    /// Whether there is nothing for it but to wait for the next part.
    pub fn is_at_edge(&mut self) -> bool {
        self.tracks.iter_mut().all(|position| position.peek(self.whole).is_none())
            && self.state.borrow().status != Status::Ended
            && self.switch.is_none()
            && !self.has_better()
    }

    /// Whether it was sent back in time and has not caught up.
    pub fn is_catching_up(&self) -> bool {
        self.catching_up
    }

    /// Bytes there are that it could be given and has not come to, but for the newest part of each
    /// track, or the newest segment where they are taken whole.
    pub fn waiting(&self) -> u64 {
        let other = self.late_other();
        let waiting = self.tracks.iter().map(|position| {
            let until = other.filter(|_| position.track.kind == Kind::Video);
            position.waiting(u64::MAX, self.whole, until.map_or(f64::INFINITY, |end| end + SAME))
        });
        waiting.sum()
    }

    /// Waits until there is something to be done, and does nothing of it.
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

    /// How many seconds of media there are by now from what it needs next on: how far behind live a
    /// viewer begins that plays at once.
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

    /// What decodes what it needs next, of each track.
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
    /// first of the window; false if there is none.
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
            // What follows is no proof of keeping up, nor is having been somewhere else.
            *kept_up = None;
        }
        self.go_to(place)
    }

    /// Moves to the newest keyframe; false if there is none.
    pub fn seek_live(&mut self) -> bool {
        let Some(first) = self.tracks.first() else { return false };
        let window = first.windows.borrow().clone();
        self.catching_up = false;
        newest_start(&window, self.whole).is_some_and(|place| self.go_to(place))
    }

    /// Moves to a part of the first track, and of the others to what is played then.
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
                (position.msn, position.part) = (msn, part);
                continue;
            }
            // The other track: the part that is playing then, or the next to come.
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
            (position.msn, position.part) = (msn, if self.whole { 0 } else { part });
        }
        true
    }

    /// Takes back the part that came last, which could not be used. It comes again once something has
    /// changed; until then it waits as it does for a slow viewer.
    pub fn postpone(&mut self) {
        let Some((track, (msn, part))) = self.given.take() else { return };
        if let Some(position) = self.tracks.get_mut(track) {
            (position.msn, position.part) = (msn, part);
            self.postponed = true;
        }
    }

    /// The next part that is there already, if any.
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
        self.given = Some((track, (position.msn, position.part)));
        if self.whole {
            (position.msn, position.part) = (segment.msn + 1, 0);
        } else {
            position.part += 1;
        }
        Some(Next::Part { track, segment, part })
    }

    /// The next part, waited for.
    pub async fn next(&mut self, clock: impl Fn() -> UnixMicros) -> Next {
        loop {
            // What is postponed comes again with what has changed since it was given.
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

    /// What changes from here on is waited for.
    fn mark(&mut self) {
        for position in &mut self.tracks {
            position.windows.mark_unchanged();
        }
        if let Some(switch) = &mut self.switch {
            switch.to.windows.mark_unchanged();
        }
        self.state.mark_unchanged();
    }

    /// Waits until something changed since the marks were set.
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

    /// Moves a viewer that fell behind, or gives it up.
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
            // Being skipped ahead is no proof of keeping up: only time is.
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

    /// Moves a viewer that has fallen behind to the newest keyframe if that is ahead, or gives it up.
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
        // One group of frames is more than the queue: there is nowhere to skip to, going back to
        // its beginning would only add to what is waiting, and who has just joined there is not to
        // blame.
        self.behind = since.map(|since| (since, None));
        None
    }

    /// Moves to the newest keyframe if that is ahead, or `anyway`; whether it has, `None` if there is
    /// no keyframe.
    fn go_ahead(&mut self, anyway: bool) -> Option<bool> {
        let before: Vec<_> = self.places().collect();
        if !self.seek_live() {
            return None;
        }
        if anyway || self.places().next() > before.first().copied() {
            return Some(true);
        }
        for (position, place) in self.tracks.iter_mut().zip(before) {
            (position.msn, position.part) = place;
        }
        Some(false)
    }
}

/// Where to begin nearest to live: at the newest keyframe, or at the newest segment of those that are
/// taken `whole`.
fn newest_start(window: &Window, whole: bool) -> Option<PartIndex> {
    if whole {
        return Some((window.segments.back().or(window.open.as_ref())?.msn, 0));
    }
    // A stream without keyframes (intra refresh) is joined anywhere.
    window.newest_independent().or_else(|| {
        let newest = window.newest()?;
        Some((newest.msn, newest.parts.len().checked_sub(1)?))
    })
}

/// Ready when the track's window changes; never if there is none.
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
