//! A copy of a stream, made of its changes.

use std::sync::Arc;

use payload::memory::Arena;

use super::check;
use crate::UnixMicros;
use crate::change::{Adoption, Change, Description, NewPart, TrackDescription, WindowState};
use crate::error::Refused;
use crate::packager::Packager;
use crate::stream::{Inner, Stream};
use crate::track::{Track, TrackState};
use crate::window::{PartIndex, Segment};

/// Whether a copy took a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// It did.
    Yes,
    /// It has that already.
    Already,
    /// A change before it is missing.
    Missing,
}

/// Makes a copy of a stream. When it is dropped, the copy ends: its viewers find the stream over.
#[derive(Debug)]
pub struct Mirror {
    stream: Arc<Stream>,
}

impl Mirror {
    /// The copy that `stream` is to be. It has no tracks yet.
    pub(crate) fn new(stream: Arc<Stream>) -> Self {
        Self { stream }
    }

    /// The copy.
    pub fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// What it has of each track, by its track_ID: the place after the last part.
    pub fn places(&self) -> Vec<(u32, PartIndex)> {
        places(&self.stream.lock())
    }

    /// Takes a change.
    ///
    /// # Errors
    /// There is no memory for it, or it is no change of this stream.
    pub fn apply(&mut self, change: &Change, now: UnixMicros) -> Result<Taken, Refused> {
        let mut inner = self.stream.lock();
        if !inner.is_mirrored {
            return Err(Refused::Replaced);
        }
        match change {
            Change::Stream(description) => self.describe(&mut inner, description, now),
            Change::Part(part) => take_part(&mut inner, part, now),
            Change::Window(window) => check::window(window).map(|()| show(&mut inner, window)),
        }
    }

    fn describe(
        &self,
        inner: &mut Inner,
        description: &Description,
        now: UnixMicros,
    ) -> Result<Taken, Refused> {
        if description.since != self.stream.since() {
            return Err(Refused::Over);
        }
        check::description(description)?;
        if !inner.tracks.is_empty() && !is_same(inner, &description.adoptions) {
            return Err(Refused::Over);
        }
        if description.version < self.stream.state().version {
            return Ok(Taken::Already);
        }
        let id = |track: &TrackDescription| track.header.track.id;
        let gone = inner.tracks.extract_if(.., |track| {
            !description.tracks.iter().any(|described| id(described) == track.id())
        });
        gone.for_each(TrackState::vanish);
        for described in &description.tracks {
            let index = match inner.track(id(described)) {
                Some(index) => index,
                None => {
                    add(inner, self.stream.settings(), described, now)?;
                    inner.tracks.len() - 1
                }
            };
            let track = &mut inner.tracks[index];
            if let Some(longest) = description.target_duration {
                // The machine that cuts the segments knows whether keyframes are regular.
                track.packager.set_target_duration(longest, false);
            }
            track.handle.set_present(described.coming);
            track.handle.set_offered(described.offered);
        }
        // The order is that of the stream, whatever came first.
        let place =
            |track: &TrackState| description.tracks.iter().position(|it| id(it) == track.id());
        inner.tracks.sort_by_key(place);
        inner.named = description.named;
        if inner.adoptions != description.adoptions {
            inner.adoptions.clone_from(&description.adoptions);
            inner.tracks.iter_mut().for_each(TrackState::follow_another);
        }
        self.stream.describe(inner, description);
        Ok(Taken::Yes)
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.stream.end_copy();
    }
}

/// The place after the last part of each track, by track_ID.
pub(super) fn places(inner: &Inner) -> Vec<(u32, PartIndex)> {
    let place = |track: &TrackState| Some((track.id(), track.packager.segments().next_place()?));
    inner.tracks.iter().filter_map(place).collect()
}

/// Whether a stream with these adoptions is what this copy is of. It is not if another machine went on with it from a
/// copy that did not have all segments that are here: that machine uses their numbers for others. Further parts of its
/// last segment do no harm.
fn is_same(inner: &Inner, adoptions: &[Adoption]) -> bool {
    let later = match inner.adoptions.last() {
        None if adoptions.len() < Description::MOST_ADOPTIONS => adoptions,
        // There may have been more.
        None => return false,
        Some(last) => match adoptions.iter().position(|adoption| adoption == last) {
            Some(known) => &adoptions[known + 1..],
            None => return false,
        },
    };
    // Each counts: a copy that was behind may have gone on from before the adoption before.
    later.iter().all(|adoption| {
        inner.tracks.iter().all(|track| {
            let here = track.packager.segments().next_place();
            let there = adoption.places.iter().find(|(id, _)| *id == track.id());
            here.is_none_or(|(here, _)| there.is_some_and(|&(_, (there, _))| here <= there))
        })
    })
}

/// The newest segment that was copied of a track.
pub(super) fn newest(track: &TrackState) -> Option<&Segment> {
    track.packager.segments().newest()
}

/// Adds a track without parts.
fn add(
    inner: &mut Inner,
    settings: &crate::Settings,
    described: &TrackDescription,
    now: UnixMicros,
) -> Result<(), Refused> {
    let header = Arc::clone(&described.header);
    let arena = Arena::new(&inner.memory, Arc::clone(&inner.account))?;
    let packager =
        Packager::new(settings, settings.target_duration, Arc::clone(&header), inner.period, arena);
    let TrackDescription { name, rendition, source, .. } = described.clone();
    let handle = Arc::new(Track::new(name, rendition, source, header));
    inner.tracks.push(TrackState::new(handle, packager, now));
    Ok(())
}

/// Stores a part, which viewers do not see yet.
fn take_part(inner: &mut Inner, part: &NewPart, now: UnixMicros) -> Result<Taken, Refused> {
    check::part(part)?;
    let Some(index) = inner.track(part.track) else { return Ok(Taken::Missing) };
    let track = &mut inner.tracks[index];
    let segments = track.packager.segments_mut();
    let taken = match (segments.next_place(), &part.begins) {
        (Some(end), _) if part.place < end => Taken::Already,
        (Some((msn, parts)), Some(segment)) => match segment.follows {
            // Where another machine went on with the stream, there may be more parts here than it had.
            Some(before) if part.place.0 != msn + 1 || parts < before => Taken::Missing,
            _ => Taken::Yes,
        },
        (None, Some(segment)) if segment.follows.is_none() => Taken::Yes,
        (Some(end), None) if part.place == end => Taken::Yes,
        _ => Taken::Missing,
    };
    if taken == Taken::Yes {
        track.last_sample = now;
        segments.copy_part(part)?;
        track.hand_part(part, now);
    }
    Ok(taken)
}

/// Shows viewers the parts that came, as far as this window has them.
fn show(inner: &mut Inner, window: &WindowState) -> Taken {
    let Some(index) = inner.track(window.track) else { return Taken::Missing };
    let pressure = inner.account.pressure();
    let track = &mut inner.tracks[index];
    let segments = track.packager.segments_mut();
    if window.version <= segments.window().version {
        return Taken::Already;
    }
    if window.end > segments.next_place() {
        return Taken::Missing;
    }
    if window.end < segments.next_place() {
        // Newer parts came before an older window. The window that shows them follows.
        return Taken::Already;
    }
    // As with a stream of this machine. Viewers see that with the new window, so each version of it is still one window.
    if pressure.is_some_and(|pressure| track.packager.give_way(pressure)) {
        inner.account.gave_up(1);
    }
    track.packager.segments_mut().copy_window(window);
    track.packager.set_part_limit(window.part_limit);
    track.publish();
    Taken::Yes
}
