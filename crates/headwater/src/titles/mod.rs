//! Parts of titles that several deliveries need: viewers, the pieces of segments, and the RTMP form.

pub(crate) mod blocks;
pub(crate) mod flv;
mod viewers;

pub use blocks::FlvTitles;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use http::{OpenFile, Piece};
use tokio::task::spawn_blocking;
pub use viewers::{COUNTED, Viewers, Viewing};
use vod::Title;

/// Most lookups that share their turns at the same time. Each holds a thread, and other files need
/// threads too.
pub(crate) const LOOKUPS: usize = 16;

/// Shorter pieces of a file are read into memory instead of being sent from the file.
const SMALL: u64 = 16 << 10;

/// Whether a segment is mostly short pieces, as audio between video frames is. One thread reads
/// them all at once. Sent one by one, each would be a system call, and a wait if it is not in
/// memory.
fn is_scattered(pieces: &[Piece]) -> bool {
    let short =
        pieces.iter().filter(|piece| matches!(piece, Piece::File { .. }) && piece.len() < SMALL);
    let (count, bytes) = short.fold((0, 0), |(n, bytes), piece| (n + 1, bytes + piece.len()));
    count > 8 && bytes <= 1 << 20
}

/// Most bytes of an answer that are fetched before it begins.
///
/// Only the answer for a whole title may be longer. Its rest is fetched while the first bytes play.
const FETCHED_FIRST: u64 = 32 << 20;

/// Pieces of a copied file that lie nearer to each other than this are fetched together.
const NEAR: u64 = 1 << 20;

/// Waits until the pieces of objects are on this machine. So an answer begins only if it can be
/// completed. Pieces of other files need no waiting.
///
/// # Errors
/// The store does not answer in time, or no longer has this version.
pub(crate) async fn fetched(pieces: &[Piece]) -> io::Result<()> {
    let mut wanted: Vec<(Arc<OpenFile>, Range<u64>)> = Vec::new();
    let mut room = FETCHED_FIRST;
    for piece in pieces {
        let Piece::File { file, range, .. } = piece else { continue };
        if !file.is_copied() || room == 0 {
            continue;
        }
        let end = range.end.min(range.start.saturating_add(room));
        room -= end.saturating_sub(range.start);
        match wanted.last_mut() {
            Some((last, all))
                if Arc::ptr_eq(last, file)
                    && (all.start..all.end.saturating_add(NEAR)).contains(&range.start) =>
            {
                all.end = all.end.max(end);
            }
            _ => wanted.push((Arc::clone(file), range.start..end)),
        }
    }
    let missing = wanted.iter().filter(|(file, range)| file.hold(range).is_none());
    // All begin before the first is waited for.
    let fetches: Vec<_> = missing.map(|(file, range)| file.fetch(range)).collect();
    if let Some((file, range)) = wanted.last()
        && range.end - range.start > SMALL
    {
        file.read_ahead(range.end);
    }
    let mut holds = Vec::with_capacity(fetches.len());
    for fetch in fetches {
        holds.push(fetch.await?);
    }
    Ok(())
}

/// Returns a segment's pieces, and reads the short ones if they are many.
///
/// # Errors
/// Reading fails, the bytes cannot be fetched, or they may be another version's.
pub(crate) async fn gather(title: &Title, pieces: Vec<Piece>) -> io::Result<Vec<Piece>> {
    fetched(&pieces).await?;
    if !is_scattered(&pieces) {
        return Ok(pieces);
    }
    let gathered = spawn_blocking(move || vod::gather(pieces, SMALL)).await;
    let gathered = gathered.map_err(io::Error::other).flatten()?;
    if title.is_intact() { Ok(gathered) } else { Err(io::ErrorKind::StaleNetworkFileHandle.into()) }
}
