//! How much freed memory the C library keeps.
//!
//! glibc asks the kernel for each large block, and returns the block when it is freed. But each
//! time such a block is freed, glibc raises the size from which a block is large, up to 32 MiB. So
//! after one message of 16 MiB, further ones lie in the heap of the thread that reads them. A heap
//! keeps up to twice this size when it is free, for good, and each event loop may have a heap. This
//! module fixes both bounds.

#![allow(unsafe_code, reason = "the call has no safe form")]

/// Blocks of at least this many bytes are large. Nearly all frames are smaller.
#[cfg(target_env = "gnu")]
const LARGE: libc::c_int = 1 << 20;

/// A heap keeps this many free bytes at its end, because frames come and go, and the kernel should
/// not be asked for each.
#[cfg(target_env = "gnu")]
const KEPT: libc::c_int = 4 << 20;

/// Makes the C library return large blocks to the kernel as soon as they are free. Call it before
/// anything allocates much.
pub fn return_large_blocks() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the calls set two numbers of the allocator, and any thread may make them. If they
    // fail, the allocator keeps memory as before.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT);
    }
}
