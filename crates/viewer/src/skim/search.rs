//! Stamps of segments, and whether it is of use to look for them.

use super::{Fragment, Mp4, Mp4Event};
use crate::playback::Stamps;

/// Whether it is of use to look into a track's segments for stamps, for which else they would be
/// thrown away in the kernel: into the first few, and into all if one of those has them.
#[derive(Debug, Default)]
pub struct Search {
    without: u8,
    found: bool,
}

/// Segments without stamps after which none is looked into.
pub(super) const LOOKS: u8 = 4;

impl Search {
    /// Whether to look into the next.
    pub fn is_on(&self) -> bool {
        self.found || self.without < LOOKS
    }

    /// One has been looked into.
    pub fn took(&mut self, stamps: Option<Stamps>) {
        match stamps {
            Some(_) => self.found = true,
            None => self.without = self.without.saturating_add(1),
        }
    }
}

/// The stamps of a segment, of its first and its last access unit; none where it is no MP4.
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

    /// What was found.
    pub fn stamps(&self) -> Option<Stamps> {
        self.found
    }
}
