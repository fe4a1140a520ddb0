//! Which renditions a cursor follows, and how it changes from one to another.

use std::sync::Arc;

use media::Kind;

use super::position::Position;
use super::{Cursor, Next, seconds};
use crate::{State, Track};

/// Which rendition of the video a viewer may be sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Choice {
    /// This rendition while it is there: the name of its track, or the name that its publisher gave
    /// it.
    pub rendition: Option<String>,
    /// The best rendition of at most this many bits per second, or the smallest if all have more.
    pub max: Option<u64>,
}

/// Another rendition of the video, which the cursor will follow from a keyframe on.
pub(super) struct Switch {
    pub(super) to: Position,
    /// Whether the cursor has stopped giving parts of the old rendition.
    pub(super) drops: bool,
}

/// The most seconds that one rendition may come later than another while the cursor waits for it.
const LATE: f64 = 1.0;

/// Times of two renditions are equal if they differ by no more than this many seconds. Publishers'
/// clocks count whole milliseconds, and some begin a frame of audio later.
pub(super) const SAME: f64 = 0.025;

impl Cursor {
    /// Changes to another rendition of the video where one of its keyframes starts, after all parts
    /// before that keyframe.
    pub fn switch_to(&mut self, track: &Arc<Track>) {
        let follows = self.tracks.iter().any(|followed| Arc::ptr_eq(&followed.track, track));
        let drops = self.switch.as_ref().is_some_and(|switch| switch.drops);
        self.switch = (!follows || drops).then(|| Switch { to: Position::of(track), drops });
    }

    /// Stops giving parts of the old video until the cursor switches.
    pub fn drop_video(&mut self) {
        if let Some(switch) = &mut self.switch {
            switch.drops = true;
        }
    }

    /// Stays with the present video. If parts of it were dropped, it goes on at a keyframe.
    pub fn stay(&mut self) {
        if let Some(now) = self.followed(Kind::Video).map(|position| Arc::clone(&position.track)) {
            self.switch_to(&now);
        }
    }

    /// The present renditions of the video.
    pub fn renditions(&self) -> Vec<Arc<Track>> {
        let state = self.state.borrow();
        let frames = |track: &&Arc<Track>| track.kind == Kind::Video && is_usable(track);
        state.tracks.iter().filter(frames).cloned().collect()
    }

    /// The rendition of the video that the cursor is about to change to.
    pub fn switches_to(&self) -> Option<&Arc<Track>> {
        self.switch.as_ref().map(|switch| &switch.to.track)
    }

    /// Sets the viewer's choice, and returns the best rendition of the video for it.
    pub fn wish(&mut self, choice: Choice) -> Option<Arc<Track>> {
        self.choice = choice;
        let best = best(&self.state.borrow(), &self.choice);
        best.into_iter().find(|track| track.kind == Kind::Video)
    }

    /// Changes to the other rendition if its keyframe has come and all parts before it are given or
    /// dropped.
    pub(super) fn change_over(&mut self) -> Option<Next> {
        let switch = self.switch.as_ref()?;
        if !switch.to.track.is_present() {
            // If parts of the old video were dropped, it goes on at a keyframe.
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
        // A part that reaches beyond the keyframe is left out: its frames would be decoded twice.
        let is_next = start <= here + SAME || next_end.is_some_and(|end| end > start + SAME);
        let is_over = next_end.is_none() && !now.track.is_present();
        if !switch.drops && !is_next && !is_over {
            return None;
        }
        let gap = start > here + SAME;
        if let Some(Switch { to, .. }) = self.switch.take() {
            self.tracks[index] = Position { next: place, ..to };
        }
        Some(Next::Switched { gap })
    }

    /// Follows other tracks if one of the present ones is gone and another can take its place, or
    /// if there is a track of a kind that the cursor has none of. No time is given twice: another
    /// video starts at its first keyframe after the given parts, other audio at its first part
    /// after them. `None` if nothing changes now.
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
            // The video is not gone, so the cursor waits for no other's keyframe.
            self.switch = None;
        }
        if changed { Some(Next::Tracks) } else { self.change_over() }
    }

    fn is_better(&self, track: &Track) -> bool {
        let switches = || self.switches_to().is_some_and(|to| is_usable(to));
        match self.followed(track.kind) {
            Some(now) if now.track.is_present() || now.track.name == track.name => false,
            // A video that is gone may have a successor already, which waits for its keyframe.
            Some(_) => track.kind != Kind::Video || !switches(),
            None => true,
        }
    }

    /// Whether there are better tracks to follow.
    pub(super) fn has_better(&self) -> bool {
        let state = self.state.borrow();
        // This runs at each wait, and the answer is nearly always no.
        let could_be = state.tracks.iter().any(|track| is_usable(track) && self.is_better(track));
        could_be && best(&state, &self.wishes()).iter().any(|track| self.is_better(track))
    }

    /// The viewer's choice. If the present video is gone, its successor may have no more bits per
    /// second than it had.
    fn wishes(&self) -> Choice {
        let mut wishes = self.choice.clone();
        if let Some(gone) = self.followed(Kind::Video).filter(|now| !now.track.is_present())
            && let Some((rate, _)) = gone.track.bitrate()
        {
            wishes.max = Some(wishes.max.map_or(rate, |max| max.min(rate)));
        }
        wishes
    }

    /// End time of the video to change to, in seconds, if it comes a little later than the present
    /// one. Parts of the present video that begin there may have a keyframe of the other.
    pub(super) fn late_other(&self) -> Option<f64> {
        let switch = self.switch.as_ref()?;
        let end = |position: &Position| {
            let window = position.windows.borrow();
            window.newest().map_or(f64::MIN, |newest| seconds(newest.end(), &newest.header.track))
        };
        let (end, other) = (end(self.followed(Kind::Video)?), end(&switch.to));
        (end - other < LATE).then_some(other)
    }

    /// Whether the present video is held back: it was dropped, or the other may have a keyframe
    /// within the next part.
    pub(super) fn withholds_video(&self) -> bool {
        let Some(switch) = &self.switch else { return false };
        let Some(now) = self.followed(Kind::Video) else { return false };
        let window = now.windows.borrow();
        let mut next = now.next;
        let next = window.part(&mut next).map(|(segment, part)| {
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

/// Whether the track can be followed: it is present and has parts.
fn is_usable(track: &Track) -> bool {
    track.is_present() && track.part_limit().is_some()
}

/// The best video for this choice, and the first audio.
pub(super) fn best(state: &State, choice: &Choice) -> Vec<Arc<Track>> {
    let of_kind = |kind| state.tracks.iter().filter(move |t| t.kind == kind && is_usable(t));
    let rate = |track: &&Arc<Track>| track.bitrate().map_or(0, |(mean, _)| mean);
    // Of equal ones the first; `max_by_key` would give the last.
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
