//! Single access units of a stream, for copies whose viewers read a [`Tap`].
//!
//! Without them, such viewers get a unit when its part is complete. Each unit names the unit before it, and a
//! copy hands it on after that one. A unit that is lost comes with its part.

use std::collections::{HashMap, HashSet};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use media::Sample;
use tokio::sync::watch;

use super::Mirror;
use super::check;
use crate::UnixMicros;
use crate::change::{NewUnit, UnitPlace};
use crate::error::Refused;
use crate::stream::{State, Stream};
use crate::tap::{TURN, Tap, Tapped};
use crate::track::Track;

/// Tells each access unit of a stream as it comes.
#[derive(Debug)]
pub struct Units {
    stream: Arc<Stream>,
    state: watch::Receiver<Arc<State>>,
    /// The tracks that are told unit by unit, by track_ID.
    wanted: HashSet<u32>,
    tracks: HashMap<u32, TrackUnits>,
}

#[derive(Debug)]
struct TrackUnits {
    track: Arc<Track>,
    tap: Tap,
    last: Option<UnitPlace>,
}

impl Units {
    /// Tells the units that come from now on, of the tracks that [`Units::limit`] selects.
    pub fn new(stream: &Arc<Stream>) -> Self {
        let (state, stream) = (stream.subscribe(), Arc::clone(stream));
        Self { stream, state, wanted: HashSet::new(), tracks: HashMap::new() }
    }

    /// Sets the tracks that are told unit by unit, by track_ID.
    pub fn limit(&mut self, is_wanted: impl Fn(u32) -> bool) {
        let ids =
            self.stream.state().tracks.iter().map(|it| it.header().track.id).collect::<Vec<_>>();
        self.wanted = ids.into_iter().filter(|id| is_wanted(*id)).collect();
    }

    /// Waits for the next unit.
    pub async fn next(&mut self) -> NewUnit {
        loop {
            let state = self.state.borrow_and_update().clone();
            let is_there =
                |told: &TrackUnits| state.tracks.iter().any(|it| Arc::ptr_eq(it, &told.track));
            self.tracks.retain(|id, told| self.wanted.contains(id) && is_there(told));
            for track in &state.tracks {
                let id = track.header().track.id;
                if !self.wanted.contains(&id) {
                    continue;
                }
                self.tracks.entry(id).or_insert_with(|| TrackUnits {
                    track: Arc::clone(track),
                    tap: track.tap(),
                    last: None,
                });
            }
            let taps = self.tracks.iter_mut().map(|(id, told)| Box::pin(told.next(*id)));
            let mut taps: Vec<_> = taps.collect();
            if taps.is_empty() {
                let _ = self.state.changed().await;
                continue;
            }
            let first = poll_fn(|cx| {
                let mut ready = taps.iter_mut().map(|tap| tap.as_mut().poll(cx));
                ready.find(Poll::is_ready).unwrap_or(Poll::Pending)
            });
            tokio::select! {
                unit = first => return unit,
                _ = self.state.changed() => {}
            }
        }
    }
}

impl TrackUnits {
    /// Waits for the next unit. Nothing is lost if the wait is given up.
    async fn next(&mut self, track: u32) -> NewUnit {
        loop {
            match self.tap.next().await {
                Tapped::Unit(unit) => {
                    let Sample { dts, cts, duration, sync, data } = unit.sample.clone();
                    let place = (unit.period % TURN, dts);
                    let follows = self.last.replace(place);
                    let header = unit.header.msn;
                    return NewUnit { track, place, follows, header, cts, duration, sync, data };
                }
                Tapped::Lost(_) => self.last = None,
                // The state says that the track has gone.
                Tapped::Over => std::future::pending().await,
            }
        }
    }
}

impl Mirror {
    /// The tracks of this copy that viewers read by single units, by track_ID.
    pub fn read_by_unit(&self) -> Vec<u32> {
        let inner = self.stream().lock();
        let read = inner.tracks.iter().filter(|track| track.handle.taps.are_read());
        read.map(crate::track::TrackState::id).collect()
    }

    /// The tracks that viewers of this copy have asked for since `since`, by track_ID.
    pub fn asked_for(&self, since: UnixMicros) -> Vec<u32> {
        let inner = self.stream().lock();
        let asked = inner.tracks.iter().filter(|track| track.handle.asked() > since);
        asked.map(crate::track::TrackState::id).collect()
    }

    /// Hands a unit to viewers that read single units, as soon as they have the unit before it.
    ///
    /// # Errors
    /// It is no unit of a stream.
    pub fn hand(&mut self, unit: NewUnit, now: UnixMicros) -> Result<(), Refused> {
        check::unit(&unit)?;
        let mut inner = self.stream().lock();
        let Some(index) = inner.track(unit.track) else { return Ok(()) };
        let track = &mut inner.tracks[index];
        let header = track.handle.header();
        track.handing.unit(unit, &track.handle.taps, &header, now);
        Ok(())
    }
}
