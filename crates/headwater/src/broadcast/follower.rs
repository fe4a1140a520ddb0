//! A viewer of a live stream in one container: its place, and the headers that it knows.

use std::sync::Arc;

use bytes::Bytes;
use live::cursor::{Cursor, Limits};
use live::{Header, Part, PartIndex, Segment, Stream, Track};

/// A container format for parts.
pub trait Container {
    /// Makes the bytes that must precede `part`, which is the first of its track or the first with
    /// another header. For viewers that follow the tracks of `cursor`.
    ///
    /// # Errors
    /// The container has no form for the track.
    fn header(
        &self,
        cursor: &Cursor,
        segment: &Segment,
        part: &Part,
    ) -> Result<Option<Bytes>, media::Error>;

    /// Adds the part to `out`, in pieces that are kept and shared. Returns whether there is room to
    /// keep them.
    ///
    /// # Errors
    /// The container has no form for its samples.
    fn part(
        &self,
        segment: &Segment,
        part: &Part,
        out: &mut Vec<Bytes>,
    ) -> Result<bool, media::Error>;
}

/// A cursor, and the last header of each track.
pub struct Follower {
    pub(crate) cursor: Cursor,
    headers: Box<[Option<u64>]>,
}

/// A follower's place, with everything that another follower needs to go on from there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bookmark {
    places: Box<[PartIndex]>,
    headers: Box<[Option<u64>]>,
}

/// A part in the form in which viewers get it.
#[derive(Debug)]
pub(super) struct Item {
    track: usize,
    /// The next part of the track for a viewer that has this one.
    next: PartIndex,
    /// The header that precedes it, with the header's number.
    header: Option<(u64, Bytes)>,
    pieces: Vec<Bytes>,
}

/// Most pieces in a burst.
pub const PIECES: usize = 64;

/// A burst with this many bytes gets no more.
pub const BURST: usize = 256 << 10;

/// Media given at once to a viewer with its own cursor. A burst is kept small: a viewer cannot
/// skip what it was given, and shows only afterwards whether it is too slow.
#[derive(Debug, Default)]
pub struct Burst {
    pieces: Vec<Bytes>,
    bytes: usize,
}

impl Burst {
    /// Adds a piece.
    pub fn push(&mut self, piece: Bytes) {
        self.bytes += piece.len();
        self.pieces.push(piece);
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Whether it must be sent before anything is added.
    pub fn is_full(&self) -> bool {
        self.pieces.len() >= PIECES || self.bytes >= BURST
    }

    /// Its pieces; `None` if it is empty.
    pub fn into_pieces(self) -> Option<Vec<Bytes>> {
        Some(self.pieces).filter(|pieces| !pieces.is_empty())
    }
}

impl Follower {
    /// A follower without headers.
    pub fn new(cursor: Cursor) -> Self {
        let headers = cursor.tracks().map(|_| None).collect();
        Self { cursor, headers }
    }

    /// A follower that has these headers of the tracks.
    pub fn told(cursor: Cursor, headers: &[Arc<Header>]) -> Self {
        let headers = headers.iter().map(|header| Some(header.msn)).collect();
        Self { cursor, headers }
    }

    /// Whether the last header of this track is `header`.
    pub fn knows(&self, track: usize, header: &Header) -> bool {
        self.headers.get(track).copied().flatten() == Some(header.msn)
    }

    /// Call this when the cursor follows other tracks: their headers must precede their parts.
    pub fn forget_headers(&mut self) {
        self.headers = self.cursor.tracks().map(|_| None).collect();
    }

    /// Adds the cursor's part to `out`, with its header before it if needed. If there is no room
    /// for the part now, it is postponed: the cursor returns it again.
    ///
    /// # Errors
    /// The same as those of the container.
    pub fn write(
        &mut self,
        container: &impl Container,
        (track, segment, part): (usize, &Segment, &Part),
        mut out: impl FnMut(Bytes),
    ) -> Result<(), media::Error> {
        let Some(item) = self.item(container, (track, segment, part))? else {
            self.cursor.postpone();
            return Ok(());
        };
        if let Some((_, header)) = item.header {
            out(header);
        }
        item.pieces.into_iter().for_each(out);
        Ok(())
    }

    /// Call this when the viewer was given these headers.
    pub fn know_headers(&mut self, headers: &[Arc<Header>]) {
        self.headers = headers.iter().map(|header| Some(header.msn)).collect();
    }

    /// Makes the item of a part; `None` if there is no room for it now.
    pub(super) fn item(
        &mut self,
        container: &impl Container,
        (track, segment, part): (usize, &Segment, &Part),
    ) -> Result<Option<Item>, media::Error> {
        let msn = segment.header.msn;
        let mut header = None;
        if !self.knows(track, &segment.header) {
            header = container.header(&self.cursor, segment, part)?.map(|header| (msn, header));
        }
        let mut pieces = Vec::new();
        if !container.part(segment, part, &mut pieces)? {
            return Ok(None);
        }
        if let Some(known) = self.headers.get_mut(track) {
            *known = Some(msn);
        }
        let next = self.cursor.places().nth(track).unwrap_or_default();
        Ok(Some(Item { track, next, header, pieces }))
    }

    pub(super) fn bookmark(&self) -> Bookmark {
        Bookmark { places: self.cursor.places().collect(), headers: self.headers.clone() }
    }

    pub(super) fn at(
        stream: &Stream,
        tracks: &[Arc<Track>],
        bookmark: &Bookmark,
        limits: Limits,
    ) -> Self {
        let cursor = Cursor::at(stream, tracks, &bookmark.places, limits);
        Self { cursor, headers: bookmark.headers.clone() }
    }
}

impl Bookmark {
    /// Whether a viewer here has everything that a viewer at `other` has.
    pub(super) fn is_not_before(&self, other: &Self) -> bool {
        let places = self.places.iter().zip(&other.places);
        let headers = self.headers.iter().zip(&other.headers);
        places.into_iter().all(|(here, there)| here >= there)
            && headers.into_iter().all(|(here, there)| here >= there)
    }

    /// The pieces of `items` that a viewer here lacks.
    pub(super) fn lacks(&self, items: &[Item]) -> Vec<Bytes> {
        let mut out = Vec::new();
        let mut headers = self.headers.clone();
        for Item { track, next, header, pieces } in items {
            if self.places.get(*track).is_some_and(|place| next <= place) {
                continue;
            }
            if let (Some((number, header)), Some(known)) = (header, headers.get_mut(*track))
                && known.replace(*number) != Some(*number)
            {
                out.push(header.clone());
            }
            out.extend_from_slice(pieces);
        }
        out
    }
}

/// The pieces of all `items`.
pub(super) fn all(items: &[Item]) -> Vec<Bytes> {
    let pieces = items.iter().flat_map(|item| {
        let header = item.header.as_ref().map(|(_, header)| header);
        header.into_iter().chain(&item.pieces).cloned()
    });
    pieces.collect()
}
