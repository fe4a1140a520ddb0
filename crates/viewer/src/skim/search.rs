//! Stamps of segments, and whether looking for them is of use.

use super::{Fragment, Mp4, Mp4Event};
use crate::playback::Stamps;

/// Decides whether to look for stamps in a track's segments, which would otherwise be thrown away
/// in the kernel. It looks into the first few segments, and into all others if one of those had
/// stamps.
#[derive(Debug, Default)]
pub struct Search {
    without: u8,
    found: bool,
}

/// After this many segments without stamps, no further one is examined.
pub(super) const LOOKS: u8 = 4;

impl Search {
    /// Whether to look into the next segment.
    pub fn is_on(&self) -> bool {
        self.found || self.without < LOOKS
    }

    /// Takes the result for a segment.
    pub fn took(&mut self, stamps: Option<Stamps>) {
        match stamps {
            Some(_) => self.found = true,
            None => self.without = self.without.saturating_add(1),
        }
    }
}

/// Finds the stamps of a segment's first and last access unit. A segment that is not MP4 has none.
#[derive(Debug, Default)]
pub struct SegmentStamps {
    skimmer: Mp4,
    found: Option<Stamps>,
    is_over: bool,
}

impl SegmentStamps {
    /// Takes the next bytes of the segment.
    pub fn read(&mut self, bytes: &[u8]) {
        if self.is_over {
            return;
        }
        let found = &mut self.found;
        let read = self.skimmer.read(bytes, &mut |event| {
            if let Mp4Event::Fragment(Fragment { stamps: Some(stamps), .. }) = event {
                let first = found.map_or(stamps.first, |found| found.first);
                *found = Some(Stamps { first, last: stamps.last });
            }
        });
        self.is_over = read.is_err();
    }

    /// The stamps found.
    pub fn stamps(&self) -> Option<Stamps> {
        self.found
    }
}
