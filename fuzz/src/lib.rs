//! Shared by several targets: limits on memory, and a folder.

use std::alloc::System;

use cap::Cap;

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// Runs `what`, which may allocate this many bytes of memory. With more the process aborts, which
/// is a finding.
pub fn within<T>(bytes: usize, what: impl FnOnce() -> T) -> T {
    below(allocated().saturating_add(bytes), what)
}

/// Runs `what` while the process may have at most this many bytes of memory.
pub fn below<T>(most: usize, what: impl FnOnce() -> T) -> T {
    ALLOCATOR.set_limit(most).expect("more than there is now");
    let done = what();
    ALLOCATOR.set_limit(usize::MAX).expect("no limit");
    done
}

/// Bytes of memory that the process has allocated.
pub fn allocated() -> usize {
    ALLOCATOR.allocated()
}

/// A folder of the fuzzer's own. It is in memory where possible, because it is written for every
/// input.
pub fn folder() -> std::path::PathBuf {
    let memory = std::path::Path::new("/dev/shm");
    let at = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let folder = tempfile::Builder::new().prefix("headwater-fuzz").tempdir_in(at);
    folder.expect("a folder").keep()
}
