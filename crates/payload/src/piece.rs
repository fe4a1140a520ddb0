//! Pieces of payloads: bytes in memory, regions of a window, and ranges of files.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::{FileVersion, OpenFile, Region};

/// A range of bytes of a payload.
#[derive(Clone, Debug)]
pub enum Piece {
    /// Bytes in memory.
    Bytes(Bytes),
    /// Bytes in the window of a live track: part of a memory file, never changed.
    Region(Region),
    /// A range of a file. If the file is shorter than the range when it is sent, the connection
    /// ends early.
    File {
        /// The file, open for reading.
        file: Arc<OpenFile>,
        /// Offsets in the file, in bytes.
        range: Range<u64>,
        /// The version of the file that the viewer was told. The server sends bytes of this version
        /// only. `None` means the version that the file has when sending begins.
        version: Option<FileVersion>,
    },
}

impl Piece {
    /// Length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Region(region) => region.len() as u64,
            Self::File { range, .. } => range.end.saturating_sub(range.start),
        }
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads the bytes. Blocks where they are in a file.
    ///
    /// # Errors
    /// The file cannot be read, or has become shorter, or its bytes cannot be fetched.
    pub fn read(&self) -> io::Result<Bytes> {
        match self {
            Self::Bytes(bytes) => Ok(bytes.clone()),
            Self::Region(region) => Ok(region.to_bytes()),
            Self::File { file, range, .. } => {
                let len = usize::try_from(self.len()).map_err(io::Error::other)?;
                file.read_at(range.start, len)
            }
        }
    }

    /// The part between these offsets, cut to the length of the piece.
    #[must_use]
    pub fn slice(&self, range: Range<u64>) -> Self {
        let end = range.end.min(self.len());
        let start = range.start.min(end);
        match self {
            // Both offsets lie within the bytes, whose length is a usize.
            Self::Bytes(bytes) => Self::Bytes(bytes.slice(start as usize..end as usize)),
            Self::Region(region) => Self::Region(region.slice(start as usize..end as usize)),
            Self::File { file, range: whole, version } => {
                let range = whole.start + start..whole.start + end;
                Self::File { file: Arc::clone(file), range, version: *version }
            }
        }
    }
}

impl From<Bytes> for Piece {
    fn from(bytes: Bytes) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<Region> for Piece {
    fn from(region: Region) -> Self {
        Self::Region(region)
    }
}

/// Length of all pieces together, in bytes.
pub fn length(pieces: &[Piece]) -> u64 {
    pieces.iter().map(Piece::len).sum()
}

/// The pieces of a range of a payload. Nothing is copied.
pub fn slice(pieces: &[Piece], range: &Range<u64>) -> Vec<Piece> {
    let mut out = Vec::with_capacity(pieces.len());
    let mut at = 0;
    for piece in pieces {
        let end = at + piece.len();
        let (from, to) = (range.start.max(at), range.end.min(end));
        if from < to {
            out.push(piece.slice(from - at..to - at));
        }
        at = end;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices() {
        let file = Arc::new(tempfile::tempfile().unwrap().into());
        let pieces = [
            Piece::Bytes(Bytes::from_static(b"0123")),
            Piece::File { file, range: 100..110, version: None },
            Piece::Bytes(Bytes::new()),
            Piece::Bytes(Bytes::from_static(b"ef")),
        ];
        assert_eq!(length(&pieces), 16);
        let shown = |from, to| {
            let shown = slice(&pieces, &(from..to)).into_iter().map(|piece| match piece {
                Piece::Bytes(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
                Piece::File { range, .. } => format!("{range:?}"),
                Piece::Region(region) => format!("{region:?}"),
            });
            shown.collect::<Vec<_>>()
        };
        assert_eq!(shown(0, 16), ["0123", "100..110", "ef"]);
        assert_eq!(shown(3, 5), ["3", "100..101"]);
        assert_eq!(shown(6, 8), ["102..104"]);
        assert_eq!(shown(13, 15), ["109..110", "e"]);
        assert_eq!(shown(16, 20), [""; 0]);
    }
}
