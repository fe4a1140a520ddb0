//! Files that payloads are sent from.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use tokio::task::spawn_blocking;

/// Bytes of one read into memory.
pub(super) const READ: u64 = 256 << 10;

/// Reads the beginning of a range, at most [`READ`] bytes, on a blocking thread.
pub(super) async fn read(file: Arc<File>, range: Range<u64>) -> io::Result<Bytes> {
    let size = range.end.saturating_sub(range.start).min(READ);
    let read = spawn_blocking(move || {
        let mut bytes = vec![0; size as usize];
        file.read_exact_at(&mut bytes, range.start)?;
        Ok(bytes.into())
    });
    read.await.map_err(io::Error::other)?
}
