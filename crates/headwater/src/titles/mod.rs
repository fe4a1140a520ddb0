//! What several deliveries need of titles: their viewers, the pieces of their segments, and their
//! RTMP form.

pub(crate) mod flv;
mod viewers;

pub use flv::FlvTitles;
use http::Piece;
use tokio::task::spawn_blocking;
pub use viewers::{Viewers, Viewing};
use vod::Title;

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

/// Returns a segment's pieces, and reads the short ones if they are many. `None` if reading fails,
/// or if the bytes may be another version's.
pub(crate) async fn gather(title: &Title, pieces: Vec<Piece>) -> Option<Vec<Piece>> {
    if !is_scattered(&pieces) {
        return Some(pieces);
    }
    let gathered = spawn_blocking(move || vod::gather(pieces, SMALL)).await;
    gathered.ok()?.ok().filter(|_| title.is_intact())
}
