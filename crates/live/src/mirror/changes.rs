//! How a stream changes.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::watch;

use crate::change::{Change, Description, NewPart, NewSegment, TrackDescription, WindowState};
use crate::stream::{State, Stream};
use crate::track::Track;
use crate::window::{Part, PartIndex, Segment, Window};

/// Tells each change of a stream, in an order in which a copy can be made of them. Changes that follow each other
/// quickly may be told as one.
#[derive(Debug)]
pub struct Changes {
    stream: Arc<Stream>,
    state: watch::Receiver<Arc<State>>,
    ready: watch::Receiver<bool>,
    target_duration: watch::Receiver<Option<Duration>>,
    /// What of the stream itself was told last: the version of its state, whether it is ready, and what a segment may
    /// last.
    told: Option<(u64, bool, Option<Duration>)>,
    tracks: Vec<TrackChanges>,
    /// What the receiver had of each track at the beginning.
    had: Vec<(u32, PartIndex)>,
}

/// What was told of a track.
#[derive(Debug)]
struct TrackChanges {
    track: Arc<Track>,
    windows: watch::Receiver<Arc<Window>>,
    /// The place after the last part that was told.
    end: Option<PartIndex>,
    /// The window that was told last.
    version: Option<u64>,
}

impl Changes {
    /// Tells all of the stream, and then what changes.
    pub fn new(stream: &Arc<Stream>) -> Self {
        Self::since(stream, Vec::new())
    }

    /// Tells of the stream what a copy lacks that has these parts of each track, by its track_ID
    /// ([`Mirror::places`](super::Mirror::places)), and then what changes.
    pub fn since(stream: &Arc<Stream>, had: Vec<(u32, PartIndex)>) -> Self {
        Self {
            state: stream.subscribe(),
            ready: stream.subscribe_ready(),
            target_duration: stream.subscribe_target_duration(),
            stream: Arc::clone(stream),
            told: None,
            tracks: Vec::new(),
            had,
        }
    }

    /// How much of the stream its window holds, as time.
    pub fn window(&self) -> Duration {
        self.stream.window()
    }

    /// Waits for the next change.
    pub async fn next(&mut self) -> Change {
        loop {
            if let Some(change) = self.take() {
                return change;
            }
            self.changed().await;
        }
    }

    /// The next change, if there is one now.
    pub fn take(&mut self) -> Option<Change> {
        let state = self.state.borrow_and_update().clone();
        let now = (
            state.version,
            *self.ready.borrow_and_update(),
            *self.target_duration.borrow_and_update(),
        );
        if self.told != Some(now) {
            // What is left of a track that goes is told before that.
            let goes =
                |told: &TrackChanges| !state.tracks.iter().any(|it| Arc::ptr_eq(it, &told.track));
            let left =
                self.tracks.iter_mut().filter(|told| goes(told)).find_map(TrackChanges::take);
            if left.is_some() {
                return left;
            }
            self.told = Some(now);
            return Some(Change::Stream(Arc::new(self.describe(&state, now))));
        }
        self.tracks.iter_mut().find_map(TrackChanges::take)
    }

    fn describe(
        &mut self,
        state: &State,
        (version, ready, target_duration): (u64, bool, Option<Duration>),
    ) -> Description {
        self.tracks.retain(|told| state.tracks.iter().any(|it| Arc::ptr_eq(it, &told.track)));
        for track in &state.tracks {
            if self.tracks.iter().any(|told| Arc::ptr_eq(&told.track, track)) {
                continue;
            }
            let id = track.header().track.id;
            let had = self.had.iter().find(|(known, _)| *known == id);
            self.tracks.push(TrackChanges {
                track: Arc::clone(track),
                windows: track.subscribe(),
                end: had.map(|&(_, place)| place),
                version: None,
            });
        }
        let (named, adoptions) = self.stream.past();
        Description {
            settings: self.stream.settings().clone(),
            since: self.stream.since(),
            status: state.status,
            epoch: state.epoch,
            version,
            target_duration,
            ready,
            publishers: state.publishers.clone(),
            named,
            adoptions,
            tracks: state.tracks.iter().map(|track| described(track)).collect(),
        }
    }

    /// Waits until something has changed since the last [`Self::take`].
    async fn changed(&mut self) {
        let mut state = pin!(self.state.changed());
        let mut ready = pin!(self.ready.changed());
        let mut target_duration = pin!(self.target_duration.changed());
        let windows = self.tracks.iter_mut().map(|told| Box::pin(told.windows.changed()));
        let mut windows: Vec<_> = windows.collect();
        poll_fn(|cx| {
            // A track that is gone has no further window, and the stream says so.
            let window = windows
                .iter_mut()
                .any(|window| matches!(window.as_mut().poll(cx), Poll::Ready(Ok(()))));
            let stream = state.as_mut().poll(cx).is_ready()
                | ready.as_mut().poll(cx).is_ready()
                | target_duration.as_mut().poll(cx).is_ready();
            if window || stream { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

fn described(track: &Track) -> TrackDescription {
    TrackDescription {
        name: track.name.clone(),
        rendition: track.rendition.clone(),
        source: track.source.clone(),
        header: track.header(),
        coming: track.is_coming(),
        offered: track.is_offered(),
    }
}

impl TrackChanges {
    fn take(&mut self) -> Option<Change> {
        let window = self.windows.borrow_and_update().clone();
        if let Some((place, follows)) = self.next_place(&window)
            && let Some(segment) = window.segment(place.0)
            && let Some(part) = segment.parts.get(place.1)
        {
            self.end = Some((place.0, place.1 + 1));
            return Some(Change::Part(Box::new(self.told(segment, part, place, follows))));
        }
        if self.version == Some(window.version) {
            return None;
        }
        self.version = Some(window.version);
        Some(Change::Window(WindowState {
            track: self.id(),
            version: window.version,
            first: window.all().next().map_or(0, |first| first.msn),
            end: window.newest().map(|newest| (newest.msn, newest.parts.len())),
            is_open: window.open.is_some(),
            unlisted: window.unlisted,
            ended: window.ended,
            rate: window.rate,
            part_limit: self.track.part_limit(),
        }))
    }

    fn id(&self) -> u32 {
        self.track.header().track.id
    }

    /// The place after the last part that was told and, if it is the first of a segment, the number of parts of the
    /// segment before.
    fn next_place(&self, window: &Window) -> Option<(PartIndex, Option<usize>)> {
        let oldest = || Some(((window.all().next()?.msn, 0), None));
        let Some(end) = self.end.filter(|end| !window.has_lost(*end)) else { return oldest() };
        let mut place = end;
        window.part(&mut place)?;
        let before = window.segment(end.0).filter(|before| place.0 > before.msn);
        Some((place, before.map(|before| before.parts.len())))
    }

    fn told(
        &self,
        segment: &Segment,
        part: &Part,
        place: PartIndex,
        follows: Option<usize>,
    ) -> NewPart {
        let begins = (place.1 == 0).then(|| NewSegment {
            follows,
            start: segment.start,
            presents: segment.presents,
            period: segment.period,
            period_start: segment.period_start,
            discontinuity: segment.discontinuity,
            captured: segment.captured,
            expected_end: segment.expected_end,
            header: Arc::clone(&segment.header),
        });
        NewPart {
            track: self.id(),
            place,
            begins,
            start: part.start,
            duration: part.duration,
            independent: part.independent,
            published: part.published,
            samples: part.samples.clone(),
            bytes: part.region.to_bytes(),
        }
    }
}
