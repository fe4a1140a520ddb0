//! The page cache: checks what can be read of a file without waiting for a disk, and reads in the
//! rest.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use payload::OpenFile;
use rustix::fs::Advice;
use rustix::io::{Errno, ReadWriteFlags};

/// The kernel caches files in pages of at least this many bytes, and counts them.
const PAGE: u64 = 4096;

/// Where the kernel cannot count pages, one byte in each stretch of this length is tried.
const STRIDE: usize = 64 << 10;

/// Whether all bytes of a range are in memory. The range is not empty, and within the file.
///
/// The kernel counts pages that it is still reading in. But the last byte of the range tells
/// whether they have arrived, because the kernel reads ahead from front to back.
pub(crate) fn holds(file: &File, range: &Range<u64>) -> bool {
    match pages(file, range) {
        Some(count) => {
            let wanted = range.end.div_ceil(PAGE) - range.start / PAGE;
            count >= wanted && probe(file, range.end - 1) != Probe::Absent
        }
        None => (range.start..range.end)
            .step_by(STRIDE)
            .chain([range.end - 1])
            .all(|offset| probe(file, offset) == Probe::Present),
    }
}

/// How many pages of a range are in the page cache. `None` where the kernel does not tell: before
/// Linux 6.5, and since 6.13 for files of another user that this process may not write.
fn pages(file: &File, range: &Range<u64>) -> Option<u64> {
    static MISSING: AtomicBool = AtomicBool::new(false);
    // A length of 0 would mean to the end of the file.
    let length = NonZeroU64::new(range.end.saturating_sub(range.start))?;
    if MISSING.load(Ordering::Relaxed) {
        return None;
    }
    match cachestat::count(file, range.start, length) {
        Ok(count) => Some(count),
        Err(error) => {
            let errno = Errno::from_io_error(&error);
            if errno == Some(Errno::NOSYS) {
                MISSING.store(true, Ordering::Relaxed);
            }
            None
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Probe {
    Present,
    Absent,
    /// The file system does not tell, such as one in memory or one on top of others.
    Unknown,
}

/// Whether the byte at an offset can be read without waiting.
fn probe(file: &File, offset: u64) -> Probe {
    let mut byte = [0];
    let read = rustix::io::preadv2(
        file,
        &mut [IoSliceMut::new(&mut byte)],
        offset,
        ReadWriteFlags::NOWAIT,
    );
    match read {
        Ok(_) => Probe::Present,
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Probe::Unknown,
        Err(_) => Probe::Absent,
    }
}

/// The bytes of a short range, if all of them are in memory.
pub fn read_now(file: &OpenFile, range: &Range<u64>) -> Option<Bytes> {
    let _hold = file.hold(range)?;
    let file = file.local();
    let mut bytes = vec![0; usize::try_from(range.end.checked_sub(range.start)?).ok()?];
    let mut filled = 0;
    while filled < bytes.len() {
        let rest = &mut [IoSliceMut::new(&mut bytes[filled..])];
        let offset = range.start + filled as u64;
        match rustix::io::preadv2(file, rest, offset, ReadWriteFlags::NOWAIT) {
            // The file has become shorter. The caller's other way of reading notices this.
            Ok(0) => return None,
            Ok(n) => filled += n,
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS) if holds(file, range) => {
                file.read_exact_at(&mut bytes, range.start).ok()?;
                break;
            }
            Err(_) => return None,
        }
    }
    Some(bytes.into())
}

/// Reads a range into the page cache. Blocks.
///
/// The bytes go to `/dev/null`, which takes pages without reading them. So nothing is copied.
pub(crate) fn read_in(file: &File, mut range: Range<u64>) -> io::Result<()> {
    static NOWHERE: OnceLock<Option<File>> = OnceLock::new();
    // A single request to the disk for the whole range. It is only advice, so it may fail.
    if let Some(length) = NonZeroU64::new(range.end.saturating_sub(range.start)) {
        let _ = rustix::fs::fadvise(file, range.start, Some(length), Advice::WillNeed);
    }
    let nowhere = NOWHERE.get_or_init(|| File::options().write(true).open("/dev/null").ok());
    while let Some(nowhere) = nowhere
        && range.start < range.end
    {
        let count = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        match rustix::fs::sendfile(nowhere, file, Some(&mut range.start), count) {
            // The file has become shorter.
            Ok(0) => return Ok(()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => break,
            Err(error) => return Err(error.into()),
        }
    }
    // This file system has no `sendfile`.
    let mut scratch = vec![0; if range.start < range.end { STRIDE } else { 0 }];
    while range.start < range.end {
        match file.read_at(&mut scratch, range.start)? {
            0 => break,
            n => range.start += n as u64,
        }
    }
    Ok(())
}

/// `cachestat(2)`, which neither the standard library nor rustix provides.
#[allow(unsafe_code)]
mod cachestat {
    use std::fs::File;
    use std::io;
    use std::num::NonZeroU64;
    use std::os::fd::AsRawFd;

    /// Number of the system call on every architecture but Alpha.
    const NUMBER: libc::c_long = 451;

    #[repr(C)]
    struct CacheStatRange {
        off: u64,
        len: u64,
    }

    #[repr(C)]
    #[derive(Default)]
    struct CacheStat {
        nr_cache: u64,
        nr_dirty: u64,
        nr_writeback: u64,
        nr_evicted: u64,
        nr_recently_evicted: u64,
    }

    /// How many pages of the range are in the page cache.
    pub(crate) fn count(file: &File, off: u64, len: NonZeroU64) -> io::Result<u64> {
        let range = CacheStatRange { off, len: len.get() };
        let mut stat = CacheStat::default();
        // SAFETY: both pointers are to live structures with the kernel's layout (linux/mman.h). The
        // kernel reads the first and writes the second, only during the call.
        let result =
            unsafe { libc::syscall(NUMBER, file.as_raw_fd(), &raw const range, &raw mut stat, 0) };
        if result == 0 { Ok(stat.nr_cache) } else { Err(io::Error::last_os_error()) }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const SIZE: u64 = 1 << 20;

    /// Asks the kernel to drop a file from memory, and returns whether it did. The kernel keeps
    /// pages that are in use, so several attempts may be needed.
    fn evict(file: &File) -> bool {
        (0..100).any(|_| {
            rustix::fs::fadvise(file, 0, None, Advice::DontNeed).unwrap();
            !(0..SIZE).step_by(4096).any(|at| holds(file, &(at..at + 1)))
        })
    }

    /// A file on the disk, which is not in memory unless its file system requires it.
    fn cold() -> (tempfile::NamedTempFile, Vec<u8>) {
        let bytes: Vec<u8> = (0..SIZE).map(|i| ((i * i) >> 7) as u8).collect();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&bytes).unwrap();
        file.as_file().sync_all().unwrap();
        evict(file.as_file());
        (file, bytes)
    }

    /// Whether `is_so` holds at least once for a file that is not in memory. The check itself makes
    /// the disk read, and a fast disk may be finished at once. So it holds sometimes, not always.
    fn once(file: &File, mut is_so: impl FnMut() -> bool) -> bool {
        (0..100).any(|_| {
            evict(file);
            is_so()
        })
    }

    #[test]
    fn ranges_that_were_read_in_are_cached() {
        let (file, bytes) = cold();
        let file = file.as_file();
        let opened = OpenFile::from(file.try_clone().unwrap());
        let in_memory = rustix::fs::fstatfs(file).unwrap().f_type == 0x0102_1994;
        if !in_memory {
            assert!(!holds(file, &(0..SIZE)));
            assert!(!holds(file, &(SIZE - 1..SIZE)));
            assert!(once(file, || read_now(&opened, &(5000..6000)).is_none()));
        }
        read_in(file, 0..SIZE / 2).unwrap();
        assert!(holds(file, &(0..SIZE / 2)));
        assert!(holds(file, &(1..2)) && holds(file, &(4095..4097)));
        assert_eq!(read_now(&opened, &(5000..6000)).unwrap(), bytes[5000..6000]);
        assert!(in_memory || !holds(file, &(0..SIZE)));
        read_in(file, 0..SIZE).unwrap();
        assert!(holds(file, &(0..SIZE)));
        // Beyond the end of the file, nothing needs waiting.
        assert_eq!(read_now(&opened, &(SIZE - 1..SIZE + 1)), None);
        read_in(file, 0..2 * SIZE).unwrap();
    }

    /// The checks that are used where the kernel does not count pages.
    #[test]
    fn probes() {
        let (file, _) = cold();
        let file = file.as_file();
        if probe(file, 0) == Probe::Unknown {
            return;
        }
        assert!(once(file, || probe(file, SIZE - 1) == Probe::Absent));
        read_in(file, 0..SIZE).unwrap();
        assert_eq!(probe(file, SIZE - 1), Probe::Present);
        assert_eq!(probe(file, 0), Probe::Present);
    }
}
