//! Which renditions a cursor follows, and how it goes from one to another.

use std::sync::Arc;

use media::Kind;

use super::position::Position;
use super::{Cursor, Next, seconds};
use crate::{State, Track};

/// Which rendition of the video a viewer may be sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Choice {
    /// This one while it is there, by the name of its track or its publisher's.
    pub rendition: Option<String>,
    /// The best of so many bits per second, or the least there is.
    pub max: Option<u64>,
}

/// Another rendition of the video, to be followed from a keyframe on.
pub(super) struct Switch {
    pub(super) to: Position,
    /// Nothing of the one before is given any more.
    pub(super) drops: bool,
}

/// Seconds by which one rendition may come later than another and be waited for.
const LATE: f64 = 1.0;

/// Seconds by which times of two renditions may differ and be the same: publishers' clocks are of whole
/// milliseconds, and some begin a frame of audio later.
pub(super) const SAME: f64 = 0.025;

impl Cursor {
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
    pub(super) fn change_over(&mut self) -> Option<Next> {
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
    pub(super) fn choose_again(&mut self) -> Option<Next> {
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
    pub(super) fn has_better(&self) -> bool {
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

    /// Until when there is the video that it is to go on with, in seconds, if that comes a little
    /// later than the one it has: what begins there may have a keyframe of it.
    pub(super) fn late_other(&self) -> Option<f64> {
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
    pub(super) fn withholds_video(&self) -> bool {
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
}

/// Whether there is a track to be followed.
fn is_usable(track: &Track) -> bool {
    track.is_present() && track.part_limit().is_some()
}

/// The best video by these wishes, and the first audio there is.
pub(super) fn best(state: &State, choice: &Choice) -> Vec<Arc<Track>> {
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
