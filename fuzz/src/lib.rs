//! What several targets share.

use std::alloc::System;

use cap::Cap;

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// Does something that may take so many bytes of memory; with more, the process aborts, which is a
/// finding.
pub fn within<T>(bytes: usize, what: impl FnOnce() -> T) -> T {
    below(allocated().saturating_add(bytes), what)
}

/// Does something for which there may be so many bytes of memory in all.
pub fn below<T>(most: usize, what: impl FnOnce() -> T) -> T {
    ALLOCATOR.set_limit(most).expect("more than there is now");
    let done = what();
    ALLOCATOR.set_limit(usize::MAX).expect("no limit");
    done
}

/// Bytes of memory that the process has now.
pub fn allocated() -> usize {
    ALLOCATOR.allocated()
}

/// A folder of the fuzzer's own, in memory where there is such a place: it is written to for every
/// input.
pub fn folder() -> std::path::PathBuf {
    let memory = std::path::Path::new("/dev/shm");
    let at = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let folder = tempfile::Builder::new().prefix("headwater-fuzz").tempdir_in(at);
    folder.expect("a folder").keep()
}
