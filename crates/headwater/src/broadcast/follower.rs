//! A viewer of a live stream in one container: its place, and what it needs from there on.

use std::sync::Arc;

use bytes::Bytes;
use live::cursor::{Cursor, Limits, PartIndex};
use live::{Header, Part, Segment, Stream, Track};

/// How parts are written for viewers.
pub trait Container {
    /// What has to come before `part`, the first of its track or the first with another header, for
    /// viewers who follow what `cursor` does.
    ///
    /// # Errors
    /// The container has no form for the track.
    fn header(
        &self,
        cursor: &Cursor,
        segment: &Segment,
        part: &Part,
    ) -> Result<Option<Bytes>, media::Error>;

    /// Gives `out` the part, in pieces that are kept somewhere and not made anew. Answers whether there is
    /// room to keep them.
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

/// A cursor, and which header the parts of each track had last.
pub struct Follower {
    pub(crate) cursor: Cursor,
    headers: Box<[Option<u64>]>,
}

/// Where a follower is: what another one that goes on from there has to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bookmark {
    places: Box<[PartIndex]>,
    headers: Box<[Option<u64>]>,
}

/// A part on its way to viewers.
#[derive(Debug)]
pub(super) struct Item {
    track: usize,
    /// What a viewer that has it needs next of the track.
    next: PartIndex,
    /// The header that comes before it, by its number.
    header: Option<(u64, Bytes)>,
    pieces: Vec<Bytes>,
}

/// Pieces that a burst has at most.
pub const PIECES: usize = 64;

/// Bytes of a burst after which nothing is added to it.
pub const BURST: usize = 256 << 10;

/// What a viewer with a cursor of its own is given at once. What it was given it cannot be spared any
/// more: a viewer that is too slow shows only when it has taken it.
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

    /// Whether it is to go out before anything is added.
    pub fn is_full(&self) -> bool {
        self.pieces.len() >= PIECES || self.bytes >= BURST
    }

    /// Its pieces; `None` if it has none.
    pub fn into_pieces(self) -> Option<Vec<Bytes>> {
        Some(self.pieces).filter(|pieces| !pieces.is_empty())
    }
}

impl Follower {
    /// One that has got nothing yet.
    pub fn new(cursor: Cursor) -> Self {
        let headers = cursor.tracks().map(|_| None).collect();
        Self { cursor, headers }
    }

    /// One that has got the newest header of each track.
    pub fn told(cursor: Cursor) -> Self {
        let headers = cursor.tracks().map(|track| Some(track.header().msn)).collect();
        Self { cursor, headers }
    }

    /// Whether the parts of this track had this header last.
    pub fn knows(&self, track: usize, header: &Header) -> bool {
        self.headers.get(track).copied().flatten() == Some(header.msn)
    }

    /// To be told when the cursor follows other tracks: their headers come before their parts.
    pub fn forget_headers(&mut self) {
        self.headers = self.cursor.tracks().map(|_| None).collect();
    }

    /// Gives `out` a part that the cursor came to, and its header before it where that is due. A part
    /// that there is no room for now is postponed: the cursor comes to it again.
    ///
    /// # Errors
    /// As those of the container.
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

    /// To be told when the viewer was given these headers.
    pub fn know_headers(&mut self, headers: &[Arc<Header>]) {
        self.headers = headers.iter().map(|header| Some(header.msn)).collect();
    }

    /// The same for who needs it at hand; `None` if there is no room for it now.
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
    /// Whether a viewer that is here has all that one there has.
    pub(super) fn is_not_before(&self, other: &Self) -> bool {
        let places = self.places.iter().zip(&other.places);
        let headers = self.headers.iter().zip(&other.headers);
        places.into_iter().all(|(here, there)| here >= there)
            && headers.into_iter().all(|(here, there)| here >= there)
    }

    /// What a viewer that is here lacks of `items`.
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

/// All of `items`.
pub(super) fn all(items: &[Item]) -> Vec<Bytes> {
    let pieces = items.iter().flat_map(|item| {
        let header = item.header.as_ref().map(|(_, header)| header);
        header.into_iter().chain(&item.pieces).cloned()
    });
    pieces.collect()
}
