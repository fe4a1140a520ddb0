use std::sync::Arc;

use bytes::BytesMut;

use super::{Cmaf, Media, Reference};
use crate::skim::whole_fragments;
use crate::stats::Verified;
use crate::{Error, Kind};

/// Largest fragment that is collected, in bytes.
const MAX_FRAGMENT: usize = 64 << 20;

/// Verifies fragmented MP4 in pieces of any size. It checks each fragment once it has come whole.
#[derive(Debug)]
pub struct Feed {
    verifier: Cmaf,
    buffer: BytesMut,
    /// Position of the buffer in the stream.
    at: u64,
}

impl Feed {
    /// Starts at the beginning of a stream or file.
    pub fn new(reference: Option<Arc<Reference>>) -> Self {
        Self { verifier: Cmaf::new(reference), buffer: BytesMut::new(), at: 0 }
    }

    /// The verifier of its fragments.
    pub fn verifier(&mut self) -> &mut Cmaf {
        &mut self.verifier
    }

    /// Takes the next bytes. Calls `media` for each fragment.
    ///
    /// # Errors
    /// Those of [`Cmaf::media`].
    pub fn read(
        &mut self,
        bytes: &[u8],
        counts: &mut Verified,
        media: &mut impl FnMut(Media),
    ) -> Result<(), Error> {
        self.buffer.extend_from_slice(bytes);
        let whole = whole_fragments(&self.buffer);
        if whole == 0 {
            if self.buffer.len() > MAX_FRAGMENT {
                return Err(Error::corrupt(format!("no fragment in {MAX_FRAGMENT} bytes")));
            }
            return Ok(());
        }
        let data = self.buffer.split_to(whole).freeze();
        let place = |error: Error| error.at(format!("from byte {}", self.at));
        if contains_header(&data) {
            self.verifier.header(&data, counts).map_err(place)?;
        }
        self.verifier.media(&data, counts, media).map_err(place)?;
        self.at += whole as u64;
        Ok(())
    }

    /// Forgets the bytes of a fragment that will be sent again. The next media may start anew.
    pub fn discard(&mut self) {
        self.buffer.clear();
        self.verifier.restart();
    }

    /// Checks that the end is a proper one.
    ///
    /// # Errors
    /// The stream ends within a fragment.
    pub fn finish(&mut self) -> Result<(), Error> {
        let left = std::mem::take(&mut self.buffer);
        // Boxes without media may come last.
        let mut kinds = boxes(&left);
        if left.is_empty() || kinds.all(|(kind, whole)| whole && kind != *b"moof") {
            return Ok(());
        }
        let at = format!("from byte {}", self.at);
        Err(Error::new(Kind::Corrupt, format!("fragment cut off after {} bytes", left.len()))
            .at(at))
    }
}

/// Iterates over the kinds of boxes in a row, each with whether it is whole.
fn boxes(data: &[u8]) -> impl Iterator<Item = ([u8; 4], bool)> {
    let mut rest = data;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let size = rest.first_chunk().map(|size| u32::from_be_bytes(*size) as usize);
        let kind = rest.get(4..8).and_then(|kind| kind.first_chunk().copied());
        let (Some(size), Some(kind)) = (size, kind) else {
            rest = &[];
            return Some(([0; 4], false));
        };
        let whole = (8..=rest.len()).contains(&size);
        rest = if whole { rest.get(size..).unwrap_or_default() } else { &[] };
        Some((kind, whole))
    })
}

fn contains_header(data: &[u8]) -> bool {
    boxes(data).any(|(kind, whole)| whole && kind == *b"moov")
}
