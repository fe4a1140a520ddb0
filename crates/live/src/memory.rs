//! The anonymous memory file that holds a track's window, and regions of it.
//!
//! A track appends its chunks to *slabs*: runs of pages of one memory file (`memfd_create`),
//! mapped read-only for those who write from memory, reachable by descriptor and offset for those
//! who send from a file. A [`Region`] keeps its slab alive; when the last region of a slab is
//! dropped the slab is unmapped and its pages are given back to the kernel (a punched hole), while
//! the file's offsets go on growing: bytes once published are never overwritten.
//!
//! Nor are those that the kernel has yet to send. It holds the pages themselves (`sendfile`), and a
//! page that leaves the file whole keeps its bytes; but of a *large folio* the part in the hole is
//! zeroed where it is if it cannot be split, and while it is being sent it cannot. Where
//! `/sys/kernel/mm/transparent_hugepage/shmem_enabled` asks for them, writing to a memory file makes
//! folios of up to 2 MiB. A mapping can decline them, so the pages of a slab come into being by way of
//! its mapping, and are written to afterwards.

#![allow(unsafe_code)] // mmap and munmap have no safe form; both calls are in this file.

use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use bytes::Bytes;
use rustix::fs::{FallocateFlags, MemfdFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Offsets and lengths of slabs are multiples of this: holes are punched in whole pages.
const PAGE: usize = 4096;

struct File {
    fd: OwnedFd,
}

/// A mapped run of pages of the file.
struct Slab {
    file: Arc<File>,
    offset: u64,
    len: usize,
    map: NonNull<u8>,
}

// SAFETY: the mapping is read-only, and the bytes that a `Region` exposes were written before the
// region was made and are never written again.
unsafe impl Send for Slab {}
// SAFETY: as above; shared reads of memory nobody writes.
unsafe impl Sync for Slab {}

impl Slab {
    fn new(file: &Arc<File>, offset: u64, len: usize) -> io::Result<Self> {
        rustix::fs::ftruncate(&file.fd, offset + len as u64)?;
        // SAFETY: a new mapping at an address of the kernel's choosing replaces nothing; the file
        // was just made long enough, and is never shortened.
        let map = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ,
                MapFlags::SHARED,
                &file.fd,
                offset,
            )?
        };
        let map = NonNull::new(map.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let slab = Self { file: Arc::clone(file), offset, len, map };
        match slab.advise(0, len, Advice::LinuxNoHugepage) {
            // A kernel without large folios does not know the word.
            Ok(()) | Err(Errno::INVAL) => Ok(slab),
            Err(error) => Err(error.into()),
        }
    }

    /// Has the pages be there that are about to be written to, each by itself.
    fn populate(&self, start: usize, len: usize) -> io::Result<()> {
        let first = start / PAGE * PAGE;
        let end = (start + len).next_multiple_of(PAGE);
        match self.advise(first, end - first, Advice::LinuxPopulateRead) {
            // Linux has this since 5.14. Before, what folios are made is left to its settings.
            Ok(()) | Err(Errno::INVAL) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// About a range of whole pages, which lies within the slab.
    fn advise(&self, start: usize, len: usize, advice: Advice) -> rustix::io::Result<()> {
        debug_assert!(start + len <= self.len);
        // SAFETY: the range is mapped as long as the slab lives, and neither kind of advice given
        // above changes what is in it.
        unsafe { rustix::mm::madvise(self.map.as_ptr().add(start).cast(), len, advice) }
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        // SAFETY: `map` and `len` are what mmap returned and was given; no region of this slab is
        // left to read it.
        let unmapped = unsafe { rustix::mm::munmap(self.map.as_ptr().cast(), self.len) };
        let punched = rustix::fs::fallocate(
            &self.file.fd,
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            self.offset,
            self.len as u64,
        );
        if let Err(error) = unmapped.and(punched) {
            tracing::warn!(%error, "memory of a window could not be given back");
        }
    }
}

/// An immutable, reference-counted range of bytes in a file descriptor.
#[derive(Clone)]
pub struct Region {
    slab: Arc<Slab>,
    start: usize,
    len: usize,
}

impl Region {
    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The descriptor that holds the bytes, for `sendfile`.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.slab.file.fd.as_fd()
    }

    /// Where in the descriptor the bytes start.
    pub fn offset(&self) -> u64 {
        self.slab.offset + self.start as u64
    }

    /// The part of it from and to these offsets, as far as it has them.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Self {
        let end = range.end.min(self.len);
        let start = range.start.min(end);
        Self { slab: Arc::clone(&self.slab), start: self.start + start, len: end - start }
    }

    /// The same bytes as a [`Bytes`] that keeps them alive; nothing is copied.
    pub fn to_bytes(&self) -> Bytes {
        Bytes::from_owner(self.clone())
    }
}

impl AsRef<[u8]> for Region {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `start + len` lies within the slab (checked where regions are made), the slab
        // is mapped as long as it lives, and these bytes are never written again.
        unsafe { std::slice::from_raw_parts(self.slab.map.as_ptr().add(self.start), self.len) }
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region").field("offset", &self.offset()).field("len", &self.len).finish()
    }
}

/// Writes regions, one after the other.
pub(crate) struct Arena {
    file: Arc<File>,
    slab_len: usize,
    /// Where the next slab goes.
    end: u64,
    current: Option<(Arc<Slab>, usize)>,
}

impl Arena {
    /// A new memory file, its slabs `slab_len` bytes long (rounded up to pages).
    pub(crate) fn new(slab_len: usize) -> io::Result<Self> {
        let fd = rustix::fs::memfd_create("headwater-window", MemfdFlags::CLOEXEC)?;
        let slab_len = slab_len.max(1).next_multiple_of(PAGE);
        Ok(Self { file: Arc::new(File { fd }), slab_len, end: 0, current: None })
    }

    /// Stores `bytes`, contiguously.
    pub(crate) fn store(&mut self, bytes: &[u8]) -> io::Result<Region> {
        let (slab, start) = match self.current.take() {
            Some((slab, used)) if slab.len - used >= bytes.len() => (slab, used),
            _ => {
                let len = bytes.len().max(self.slab_len).next_multiple_of(PAGE);
                let slab = Arc::new(Slab::new(&self.file, self.end, len)?);
                self.end += len as u64;
                (slab, 0)
            }
        };
        slab.populate(start, bytes.len())?;
        let mut written = 0;
        while written < bytes.len() {
            let at = slab.offset + (start + written) as u64;
            match rustix::io::pwrite(&self.file.fd, &bytes[written..], at) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => written += n,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let region = Region { slab: Arc::clone(&slab), start, len: bytes.len() };
        self.current = Some((slab, start + bytes.len()));
        Ok(region)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_keep_their_bytes_until_dropped_and_then_give_the_memory_back() {
        let mut arena = Arena::new(10_000).unwrap();
        let blocks = |arena: &Arena| rustix::fs::fstat(&arena.file.fd).unwrap().st_blocks;
        let regions: Vec<Region> =
            (0..100u8).map(|i| arena.store(&vec![i; 5000]).unwrap()).collect();
        for (i, region) in regions.iter().enumerate() {
            assert!(region.as_ref().iter().all(|&b| usize::from(b) == i));
            let mut read = vec![0; region.len()];
            rustix::io::pread(region.fd(), &mut read[..], region.offset()).unwrap();
            assert_eq!(read, region.as_ref());
            let slice = region.slice(4000..6000);
            assert_eq!((slice.offset(), slice.len()), (region.offset() + 4000, 1000));
            assert_eq!(slice.as_ref(), &region.as_ref()[4000..]);
            assert!(region.slice(6000..7000).is_empty());
        }
        assert!(blocks(&arena) * 512 >= 100 * 5000);
        let last = regions.last().unwrap().to_bytes();
        drop(regions);
        // One slab of three pages is still referenced, by `last` and by the arena itself.
        assert!(blocks(&arena) * 512 <= 3 * 4096, "{} blocks", blocks(&arena));
        assert_eq!(last, vec![99; 5000]);
    }

    #[test]
    fn a_chunk_larger_than_a_slab_is_stored_whole() {
        let mut arena = Arena::new(4096).unwrap();
        let small = arena.store(b"before").unwrap();
        let large = arena.store(&vec![7; 1 << 20]).unwrap();
        assert_eq!(small.as_ref(), b"before");
        assert_eq!(large.len(), 1 << 20);
        assert!(large.as_ref().iter().all(|&b| b == 7));
    }

    /// Whoever sends from the file holds its pages, which only then keep their bytes.
    #[test]
    fn mappings_decline_large_folios() {
        if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            return;
        }
        let region = Arena::new(1 << 20).unwrap().store(&[7; 10_000]).unwrap();
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let address = region.slab.map.as_ptr() as usize;
        let mut flags = smaps.lines().skip_while(|line| {
            let range = line.split_once(' ').map_or("", |(range, _)| range).split_once('-');
            let number = |hex| usize::from_str_radix(hex, 16).ok();
            !range.is_some_and(|(from, to)| {
                number(from).zip(number(to)).is_some_and(|(from, to)| (from..to).contains(&address))
            })
        });
        let flags = flags.find_map(|line| line.strip_prefix("VmFlags:")).unwrap();
        assert!(flags.split_whitespace().any(|flag| flag == "nh"), "{flags}");
    }
}
