//! A viewer's place in a live stream: for deliveries that push every part to the viewer.

mod position;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use media::Kind;
use position::Position;
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
}

/// Another rendition of the video, to be followed from a keyframe on.
struct Switch {
    to: Position,
    /// Nothing of the one before is given any more.
    drops: bool,
}

/// Seconds by which one rendition may come later than another and be waited for.
const LATE: f64 = 1.0;

/// Seconds by which times of two renditions may differ and be the same: publishers' clocks are of whole
/// milliseconds, and some begin a frame of audio later.
const SAME: f64 = 0.025;

/// What a viewer may cost.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of the window that may wait for it.
    pub queue: u64,
    /// How long it may be behind in spite of being skipped ahead.
    pub patience: std::time::Duration,
}

/// Which rendition of the video a viewer may be sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Choice {
    /// This one while it is there, by the name of its track or its publisher's.
    pub rendition: Option<String>,
    /// The best of so many bits per second, or the least there is.
    pub max: Option<u64>,
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

    /// Goes on with another rendition of the video where a keyframe of it starts, after all that
    /// comes before that.
    pub fn switch_to(&mut self, track: &Arc<Track>) {
        let follows = self.tracks.iter().any(|followed| Arc::ptr_eq(&followed.track, track));
        let drops = self.switch.as_ref().is_some_and(|switch| switch.drops);
        self.switch = (!follows || drops).then(|| Switch { to: Position::of(track), drops });
    }

    /// Gives nothing more of the video before it switches.
    pub fn drop_video(&mut self) {
        if let Some(switch) = &mut self.switch {
            switch.drops = true;
        }
    }

    /// Stays with the video it has; one of which something was dropped goes on at a keyframe.
    pub fn stay(&mut self) {
        if let Some(now) = self.followed(Kind::Video).map(|position| Arc::clone(&position.track)) {
            self.switch_to(&now);
        }
    }

    /// The renditions of the video there are now.
    pub fn renditions(&self) -> Vec<Arc<Track>> {
        let state = self.state.borrow();
        let frames = |track: &&Arc<Track>| track.kind == Kind::Video && is_usable(track);
        state.tracks.iter().filter(frames).cloned().collect()
    }

    /// The rendition of the video that it is to go on with.
    pub fn switches_to(&self) -> Option<&Arc<Track>> {
        self.switch.as_ref().map(|switch| &switch.to.track)
    }

    /// The best rendition of the video by these wishes, which count from now on.
    pub fn wish(&mut self, choice: Choice) -> Option<Arc<Track>> {
        self.choice = choice;
        let best = best(&self.state.borrow(), &self.choice);
        best.into_iter().find(|track| track.kind == Kind::Video)
    }

    /// Follows the other rendition if its keyframe has come, and all before it is given or dropped.
    fn change_over(&mut self) -> Option<Next> {
        let switch = self.switch.as_ref()?;
        if !switch.to.track.is_present() {
            // Where something was dropped, that goes on at a keyframe.
            return match switch.drops {
                true => {
                    self.stay();
                    self.switch.as_ref().filter(|switch| switch.to.track.is_present())?;
                    self.change_over()
                }
                false => {
                    self.switch = None;
                    None
                }
            };
        }
        let index = self.tracks.iter().position(|followed| followed.track.kind == Kind::Video)?;
        let now = &self.tracks[index];
        let (here, next_end) = now.here(self.whole);
        let (place, start) = switch.to.keyframe_from(here - SAME, self.whole)?;
        // A part that reaches over the keyframe is left out: its frames would be decoded twice.
        let is_next = start <= here + SAME || next_end.is_some_and(|end| end > start + SAME);
        let is_over = next_end.is_none() && !now.track.is_present();
        if !switch.drops && !is_next && !is_over {
            return None;
        }
        let gap = start > here + SAME;
        if let Some(Switch { to, .. }) = self.switch.take() {
            self.tracks[index] = Position { msn: place.0, part: place.1, ..to };
        }
        Some(Next::Switched { gap })
    }

    /// Follows other tracks if one it follows is gone and another can take its place, or if there
    /// is one of a kind it has none of. No time of a kind comes twice: another video is gone on with at
    /// its first keyframe after what was given, other audio at its first part after that. `None` if
    /// nothing changes now.
    fn choose_again(&mut self) -> Option<Next> {
        let best = best(&self.state.borrow(), &self.wishes());
        if !best.iter().any(|track| self.is_better(track)) {
            return None;
        }
        let before = std::mem::take(&mut self.tracks);
        let mut before: Vec<_> = before.into_iter().map(Some).collect();
        let mut changed = false;
        for track in &best {
            let of_kind = |now: &&mut Option<Position>| {
                now.as_ref().is_some_and(|now| now.track.kind == track.kind)
            };
            let position = match before.iter_mut().find(of_kind).and_then(Option::take) {
                Some(now) if now.track.is_present() || now.track.name == track.name => now,
                Some(now) if track.kind == Kind::Video => {
                    self.switch = Some(Switch { to: Position::of(track), drops: false });
                    now
                }
                gone => {
                    changed = true;
                    let mut position = Position::of(track);
                    match gone {
                        Some(gone) => position.go_past(gone.here(self.whole).0 - SAME, self.whole),
                        None => position.go_live(self.whole),
                    }
                    position
                }
            };
            self.tracks.push(position);
        }
        if self.followed(Kind::Video).is_none_or(|now| now.track.is_present()) {
            // Nobody waits for a keyframe instead of what is gone.
            self.switch = None;
        }
        if changed { Some(Next::Tracks) } else { self.change_over() }
    }

    fn followed(&self, kind: Kind) -> Option<&Position> {
        self.tracks.iter().find(|followed| followed.track.kind == kind)
    }

    fn is_better(&self, track: &Track) -> bool {
        let switches = || self.switches_to().is_some_and(|to| is_usable(to));
        match self.followed(track.kind) {
            Some(now) if now.track.is_present() || now.track.name == track.name => false,
            // It waits for a keyframe.
            Some(_) => track.kind != Kind::Video || !switches(),
            None => true,
        }
    }

    /// Whether there are tracks that it is to follow instead.
    fn has_better(&self) -> bool {
        let state = self.state.borrow();
        // Asked at each wait, and the answer is nearly always no.
        let could_be = state.tracks.iter().any(|track| is_usable(track) && self.is_better(track));
        could_be && best(&state, &self.wishes()).iter().any(|track| self.is_better(track))
    }

    /// In the place of a frame that is gone, one of no more bits per second than it had.
    fn wishes(&self) -> Choice {
        let mut wishes = self.choice.clone();
        if let Some(gone) = self.followed(Kind::Video).filter(|now| !now.track.is_present())
            && let Some((rate, _)) = gone.track.bitrate()
        {
            wishes.max = Some(wishes.max.map_or(rate, |max| max.min(rate)));
        }
        wishes
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

    /// The next part that is there already, if any.
    pub fn poll(&mut self, now: UnixMicros) -> Option<Next> {
        if let Some(slow) = self.keep_up(now) {
            return Some(slow);
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
            self.mark();
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
        }
    }

    /// Until when there is the video that it is to go on with, in seconds, if that comes a little
    /// later than the one it has: what begins there may have a keyframe of it.
    fn late_other(&self) -> Option<f64> {
        let switch = self.switch.as_ref()?;
        let end = |position: &Position| {
            let window = position.windows.borrow();
            window.newest().map_or(f64::MIN, |newest| seconds(newest.end(), &newest.header.track))
        };
        let (end, other) = (end(self.followed(Kind::Video)?), end(&switch.to));
        (end - other < LATE).then_some(other)
    }

    /// Whether the video it has is not given now: it was dropped, or the other may have a keyframe
    /// within the part that is next.
    fn withholds_video(&self) -> bool {
        let Some(switch) = &self.switch else { return false };
        let Some(now) = self.followed(Kind::Video) else { return false };
        let window = now.windows.borrow();
        let next = now.next_in(&window).map(|(segment, part)| {
            let end = match self.whole {
                true => segment.end(),
                false => part.start + i64::from(part.duration),
            };
            seconds(end, &segment.header.track)
        });
        let late = || Some((next?, self.late_other()?));
        switch.drops || late().is_some_and(|(next, other)| other < next - SAME)
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

/// Whether there is a track to be followed.
fn is_usable(track: &Track) -> bool {
    track.is_present() && track.part_limit().is_some()
}

/// The best video by these wishes, and the first audio there is.
fn best(state: &State, choice: &Choice) -> Vec<Arc<Track>> {
    let of_kind = |kind| state.tracks.iter().filter(move |t| t.kind == kind && is_usable(t));
    let rate = |track: &&Arc<Track>| track.bitrate().map_or(0, |(mean, _)| mean);
    // Of equals the first, which `max_by_key` would not give.
    let videos = || of_kind(Kind::Video);
    let named =
        |track: &&Arc<Track>| choice.rendition.as_ref().is_some_and(|name| track.is_called(name));
    let fits = |track: &&Arc<Track>| choice.max.is_none_or(|max| rate(track) <= max);
    let video = videos()
        .find(named)
        .or_else(|| videos().filter(fits).min_by_key(|track| std::cmp::Reverse(rate(track))))
        .or_else(|| videos().min_by_key(rate));
    let audio = of_kind(Kind::Audio).next();
    video.into_iter().chain(audio).cloned().collect()
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
