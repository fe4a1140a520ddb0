//! Titles, as more than one delivery needs them: who watches them, their segments' pieces, and what RTMP
//! carries of them.

pub(crate) mod flv;
mod viewers;

pub use flv::FlvTitles;
use http::Piece;
use tokio::task::spawn_blocking;
pub use viewers::{Viewers, Viewing};
use vod::Title;

/// Pieces of a file that are shorter are read rather than sent from where they lie.
const SMALL: u64 = 16 << 10;

/// Whether a segment is mostly short pieces, as audio between frames is: on one thread they are
/// read at once, one by one they would be as many calls, and waits where they are cold.
fn is_scattered(pieces: &[Piece]) -> bool {
    let short =
        pieces.iter().filter(|piece| matches!(piece, Piece::File { .. }) && piece.len() < SMALL);
    let (count, bytes) = short.fold((0, 0), |(n, bytes), piece| (n + 1, bytes + piece.len()));
    count > 8 && bytes <= 1 << 20
}

/// A segment's pieces, the short ones read where they are many. `None` if that cannot be done, or
/// what was read may be another version's.
pub(crate) async fn gather(title: &Title, pieces: Vec<Piece>) -> Option<Vec<Piece>> {
    if !is_scattered(&pieces) {
        return Some(pieces);
    }
    let gathered = spawn_blocking(move || vod::gather(pieces, SMALL)).await;
    gathered.ok()?.ok().filter(|_| title.is_intact())
}
