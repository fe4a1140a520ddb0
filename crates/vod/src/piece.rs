//! Bytes of samples as pieces of a segment.

use std::io;
use std::sync::Arc;

use media::mp4::SampleEntry;
use payload::{OpenFile, Piece};

/// Bytes of consecutive samples. Neighbours in the file become one range.
pub(crate) fn ranges<'a>(
    file: &'a Arc<OpenFile>,
    samples: &'a [SampleEntry],
) -> impl Iterator<Item = Piece> + 'a {
    let mut samples = samples.iter().filter(|sample| sample.size > 0).peekable();
    std::iter::from_fn(move || {
        let first = samples.next()?;
        // The positions of samples were checked against the length of the file.
        let mut end = first.offset.saturating_add(first.size.into());
        while let Some(next) = samples.next_if(|next| next.offset == end) {
            end = end.saturating_add(next.size.into());
        }
        Some(Piece::File { file: Arc::clone(file), range: first.offset..end, version: None })
    })
}

/// A gap of at most this many bytes between pieces is read along with them, instead of using
/// another call.
const GAP: u64 = 16 << 10;

/// Joins pieces, so that the same bytes are in fewer of them. Pieces shorter than `small` are read,
/// neighbours together, and joined with adjacent bytes in memory. Where audio and video alternate
/// in a file, a system call for each piece costs more than this copy. Blocks.
///
/// # Errors
/// A file cannot be read, or has become shorter.
pub fn gather(pieces: Vec<Piece>, small: u64) -> io::Result<Vec<Piece>> {
    let mut gathered: Vec<Piece> = Vec::with_capacity(pieces.len());
    let mut joined: Vec<u8> = Vec::new();
    let mut pieces = pieces.into_iter().peekable();
    while let Some(piece) = pieces.next() {
        match piece {
            Piece::Bytes(bytes) => joined.extend_from_slice(&bytes),
            Piece::Region(region) => joined.extend_from_slice(region.as_ref()),
            Piece::File { file, range, .. } if range.end.saturating_sub(range.start) < small => {
                let start = range.start;
                let mut parts = vec![range.clone()];
                let mut end = range.end;
                while let Some(next) = pieces.next_if(|next| follows(next, &file, end, small)) {
                    if let Piece::File { range, .. } = next {
                        end = range.end;
                        parts.push(range);
                    }
                }
                let len = usize::try_from(end.saturating_sub(start)).map_err(io::Error::other)?;
                let read = file.read_at(start, len)?;
                for part in parts {
                    // The part is within the bytes that were read, which fit into memory.
                    let from = (part.start - start) as usize;
                    joined.extend_from_slice(&read[from..from + (part.end - part.start) as usize]);
                }
            }
            Piece::File { .. } => {
                if !joined.is_empty() {
                    gathered.push(Piece::Bytes(std::mem::take(&mut joined).into()));
                }
                gathered.push(piece);
            }
        }
    }
    if !joined.is_empty() {
        gathered.push(Piece::Bytes(joined.into()));
    }
    Ok(gathered)
}

/// Whether a small piece lies in the same file at `end` or soon after it.
fn follows(piece: &Piece, file: &Arc<OpenFile>, end: u64, small: u64) -> bool {
    match piece {
        Piece::File { file: other, range, .. } => {
            Arc::ptr_eq(file, other)
                && (end..=end.saturating_add(GAP)).contains(&range.start)
                && (range.start..range.start.saturating_add(small)).contains(&range.end)
        }
        Piece::Bytes(_) | Piece::Region(_) => false,
    }
}
