//! The memory of live windows: one anonymous memory file for all streams, and regions of it.
//!
//! A track appends its chunks to *slabs*: runs of pages of the file (`memfd_create`). Code that
//! writes from memory uses the file's mapping; code that sends from a file uses descriptor and
//! offset. The file grows by extents of 1 GiB of addresses, and each extent is mapped once and
//! forever. `pages` keeps track of the used pages. So neither descriptors nor mappings grow with
//! the number of streams or slabs; the kernel allows a process 65,530 mappings. `budget` limits the
//! memory of all streams together.
//!
//! A [`Region`] keeps its slab alive. When the last region of a slab is dropped, the slab's pages
//! are returned to the kernel (a punched hole). Only after that may another slab use their offsets.
//! So published bytes are never overwritten: a region keeps its pages from being returned. The
//! kernel may still have queued bytes to send (`sendfile`), but it refers to pages and not to
//! offsets. A whole page that has left the file keeps its bytes, and a new page comes to its offset.
//!
//! This is not true of a *large folio*. If it cannot be split, the part of it in the hole is zeroed
//! in place, and it cannot be split while it is being sent. Where
//! `/sys/kernel/mm/transparent_hugepage/shmem_enabled` asks for large folios, writing to a memory
//! file creates folios of up to 2 MiB. A mapping can decline them. So the pages of a slab are
//! created through the mapping, before anything is written to them. They are written through the
//! mapping as well, because writing to the file would take a lock that all streams share.

#![allow(unsafe_code)] // Mapped memory has no safe form; all of it is in this file.

mod budget;
mod pages;

use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

pub use budget::{Account, Budget, Charge, GaveUp, Holder, Pressure};
use bytes::Bytes;
use pages::Pages;
use rustix::fs::{FallocateFlags, MemfdFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Slabs are whole pages: holes are punched in those.
const PAGE: usize = 4096;
/// Bytes of an extent.
const EXTENT: usize = pages::EXTENT as usize * PAGE;
/// A slab has room for this many chunks of a track. With fewer, there would be more calls. With
/// more, there would be more memory in use: a slab is returned when the last of its chunks has left
/// the window.
const CHUNKS: usize = 8;
/// No slab is smaller, and none larger unless a chunk is.
const SLAB: (usize, usize) = (16 << 10, 1 << 20);

/// The memory of all live streams.
pub struct Memory {
    budget: Arc<Budget>,
    file: Mutex<Option<Arc<File>>>,
}

impl Memory {
    /// Memory of at most so many bytes. The file is made when it is first needed.
    pub fn new(limit: u64) -> Self {
        Self { budget: Budget::new(limit), file: Mutex::default() }
    }

    /// The budget: the memory in use, and its limit.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    fn file(&self) -> io::Result<Arc<File>> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &*file {
            return Ok(Arc::clone(file));
        }
        let made = Arc::new(File::new()?);
        *file = Some(Arc::clone(&made));
        Ok(made)
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("budget", &self.budget).finish_non_exhaustive()
    }
}

struct File {
    fd: OwnedFd,
    taken: Mutex<Taken>,
}

/// The parts of the file that exist, and those in use.
struct Taken {
    pages: Pages,
    /// Where each extent is mapped.
    extents: Vec<NonNull<u8>>,
}

// SAFETY: the addresses are those of mappings that last as long as the file; they are no thread's
// own.
unsafe impl Send for Taken {}

impl File {
    fn new() -> io::Result<Self> {
        let fd = rustix::fs::memfd_create("headwater-live", MemfdFlags::CLOEXEC)?;
        let taken = Taken { pages: Pages::default(), extents: Vec::new() };
        Ok(Self { fd, taken: Mutex::new(taken) })
    }

    /// Allocates a block of this many free pages. Returns its first page and the address of its
    /// mapping.
    fn allocate(&self, pages: u32) -> io::Result<(u32, NonNull<u8>)> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let block = match taken.pages.allocate(pages) {
            Some(block) => block,
            None if pages > pages::EXTENT => return Err(io::ErrorKind::FileTooLarge.into()),
            None => {
                let map = self.map(taken.extents.len())?;
                taken.extents.push(map);
                let extended = taken.pages.extend();
                let block = taken.pages.allocate(pages).filter(|_| extended);
                block.ok_or(io::ErrorKind::OutOfMemory)?
            }
        };
        let (extent, page) = (block / pages::EXTENT, block % pages::EXTENT);
        let map = taken.extents[extent as usize];
        // SAFETY: the extent is mapped in full, and the page is one of its pages.
        Ok((block, unsafe { map.add(page as usize * PAGE) }))
    }

    /// Extends the file by the next extent, and maps it.
    fn map(&self, extent: usize) -> io::Result<NonNull<u8>> {
        let offset = extent as u64 * EXTENT as u64;
        rustix::fs::ftruncate(&self.fd, offset + EXTENT as u64)?;
        // SAFETY: a new mapping at an address of the kernel's choosing replaces nothing; the file
        // was just made long enough, and is never shortened.
        let map = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                EXTENT,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE,
                &self.fd,
                offset,
            )?
        };
        let map = NonNull::new(map.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        match advise(map, EXTENT, Advice::LinuxNoHugepage) {
            // A kernel without large folios does not know this advice.
            Ok(()) | Err(Errno::INVAL) => Ok(map),
            Err(error) => {
                // SAFETY: it was mapped just now, and nobody else knows of it.
                let _ = unsafe { rustix::mm::munmap(map.as_ptr().cast(), EXTENT) };
                Err(error.into())
            }
        }
    }

    fn give_back(&self, block: u32, pages: u32) {
        let punched = rustix::fs::fallocate(
            &self.fd,
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            u64::from(block) * PAGE as u64,
            u64::from(pages) * PAGE as u64,
        );
        match punched {
            Ok(()) => {
                let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
                taken.pages.free(block, pages);
            }
            // These pages are then never used again, because their bytes may still be queued for
            // sending.
            Err(error) => tracing::warn!(%error, "memory of a window could not be given back"),
        }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let taken = self.taken.get_mut().unwrap_or_else(PoisonError::into_inner);
        for map in taken.extents.drain(..) {
            // SAFETY: it was mapped with this length, and slabs, which hold the file, are gone.
            let unmapped = unsafe { rustix::mm::munmap(map.as_ptr().cast(), EXTENT) };
            if let Err(error) = unmapped {
                tracing::warn!(%error, "memory of windows could not be unmapped");
            }
        }
    }
}

/// About whole pages that are mapped.
fn advise(start: NonNull<u8>, len: usize, advice: Advice) -> rustix::io::Result<()> {
    // SAFETY: the callers' ranges are mapped, and what they advise (no large folios, to have pages
    // be there) changes no byte.
    unsafe { rustix::mm::madvise(start.as_ptr().cast(), len, advice) }
}

/// A run of pages of the file that one track has.
struct Slab {
    file: Arc<File>,
    block: u32,
    pages: u32,
    map: NonNull<u8>,
    charge: Charge,
}

// SAFETY: `map` is memory that only this slab leads to. It is read where a `Region` says that it
// was written, and written once where none does.
unsafe impl Send for Slab {}
// SAFETY: as above; what is shared are reads of memory that nobody writes any more.
unsafe impl Sync for Slab {}

impl Slab {
    fn new(file: Arc<File>, len: usize, account: &Arc<Account>) -> io::Result<Self> {
        let pages = u32::try_from(len.div_ceil(PAGE)).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let charge = account.charge(u64::from(pages) * PAGE as u64).ok_or_else(no_room)?;
        let (block, map) = file.allocate(pages)?;
        let slab = Self { file, block, pages, map, charge };
        match advise(map, slab.len(), Advice::LinuxPopulateWrite) {
            // Linux supports this since 5.14. Before that, pages are created when they are written,
            // and if there is no memory for them, the kernel kills a process.
            Ok(()) | Err(Errno::INVAL) => Ok(slab),
            Err(error) => Err(error.into()),
        }
    }

    fn len(&self) -> usize {
        self.pages as usize * PAGE
    }

    fn offset(&self) -> u64 {
        u64::from(self.block) * PAGE as u64
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        self.file.give_back(self.block, self.pages);
    }
}

/// Why what a stream sends is not taken.
pub fn no_room() -> io::Error {
    io::Error::new(io::ErrorKind::OutOfMemory, "the memory for live streams is used up")
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
        self.slab.offset() + self.start as u64
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

    /// Counts this many more bytes as held by the region's stream; `None` if there is no room for
    /// them.
    pub fn charge(&self, bytes: usize) -> Option<Charge> {
        self.slab.charge.account().charge(bytes as u64)
    }

    /// The same for another form of them ([`Account::charge_beside`]).
    pub fn charge_beside(&self, bytes: usize) -> Option<Charge> {
        self.slab.charge.account().charge_beside(bytes as u64)
    }
}

impl AsRef<[u8]> for Region {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `start + len` lies within the slab (checked where regions are made), which is
        // mapped as long as its file lives, and nobody else's as long as it lives itself; and these
        // bytes are never written again.
        unsafe { std::slice::from_raw_parts(self.slab.map.as_ptr().add(self.start), self.len) }
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region").field("offset", &self.offset()).field("len", &self.len).finish()
    }
}

/// Writes a track's regions, one after the other.
pub struct Arena {
    file: Arc<File>,
    account: Arc<Account>,
    /// Approximate bytes of a chunk: a running mean in which a new chunk counts for a quarter. It
    /// begins small, because a track's first chunk contains a keyframe.
    usual: usize,
    /// The current slab, and how many of its bytes are used. Only the arena writes to the rest.
    current: Option<(Arc<Slab>, usize)>,
}

impl Arena {
    /// An arena for a track of the stream with this account.
    ///
    /// # Errors
    /// There is no memory file, and none can be made.
    pub fn new(memory: &Memory, account: Arc<Account>) -> io::Result<Self> {
        Ok(Self { file: memory.file()?, account, usual: 0, current: None })
    }

    /// Stores `bytes`, contiguously.
    ///
    /// # Errors
    /// There is no memory, or the budget has none for this stream.
    pub fn store(&mut self, bytes: &[u8]) -> io::Result<Region> {
        self.usual = (3 * self.usual + bytes.len()) / 4;
        let (slab, start) = match self.current.take() {
            Some((slab, used)) if slab.len() - used >= bytes.len() => (slab, used),
            // Dropped before another slab is allocated, because it may have no regions any more.
            full => {
                drop(full);
                let (least, most) = SLAB;
                let usual = (self.usual * CHUNKS).next_power_of_two().clamp(least, most);
                let slab =
                    Slab::new(Arc::clone(&self.file), bytes.len().max(usual), &self.account)?;
                (Arc::new(slab), 0)
            }
        };
        // SAFETY: the bytes from `start` on are within the slab, as was just seen; no region leads
        // to them, since regions end where `current` says that the slab is filled to, and no other
        // arena has the slab. `bytes` is not part of it for the same reason.
        unsafe {
            let to = slab.map.as_ptr().add(start);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
        let region = Region { slab: Arc::clone(&slab), start, len: bytes.len() };
        self.current = Some((slab, start + bytes.len()));
        Ok(region)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::io::Read;
    use std::os::fd::AsRawFd;

    use proptest::prelude::*;

    use super::*;

    fn arena(memory: &Memory) -> Arena {
        Arena::new(memory, Account::open(memory.budget())).unwrap()
    }

    /// Bytes that the file has pages for.
    fn resident(arena: &Arena) -> u64 {
        rustix::fs::fstat(&arena.file.fd).unwrap().st_blocks.unsigned_abs() * 512
    }

    fn extents(memory: &Memory) -> usize {
        memory.file().unwrap().taken.lock().unwrap().extents.len()
    }

    #[test]
    fn regions_keep_their_bytes_until_dropped_and_then_give_the_memory_back() {
        let memory = Memory::new(u64::MAX);
        let mut arena = arena(&memory);
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
        assert!(resident(&arena) >= 100 * 5000);
        assert_eq!(resident(&arena), memory.budget().used());
        let last = regions.last().unwrap().to_bytes();
        drop(regions);
        // One slab of eight chunks is still referenced, by `last` and by the arena itself.
        assert_eq!(resident(&arena), 64 << 10);
        assert_eq!(memory.budget().used(), 64 << 10);
        assert_eq!(last, vec![99; 5000]);
        drop(last);
        let file = Arc::downgrade(&arena.file);
        drop(arena);
        assert_eq!(memory.budget().used(), 0);
        drop(memory);
        assert!(file.upgrade().is_none());
    }

    /// So nothing is refused for memory that is not there, and what is counted cannot fail to come
    /// later.
    #[test]
    fn counted_memory_is_resident_before_it_is_filled() {
        let memory = Memory::new(u64::MAX);
        let mut tracks = [arena(&memory), arena(&memory)];
        let _regions = tracks.each_mut().map(|arena| arena.store(&[5; 100]).unwrap());
        assert_eq!(memory.budget().used(), 2 * SLAB.0 as u64);
        assert_eq!(resident(&tracks[0]), memory.budget().used());
    }

    #[test]
    fn a_chunk_larger_than_a_slab_is_stored_whole() {
        let memory = Memory::new(u64::MAX);
        let mut arena = arena(&memory);
        let small = arena.store(b"before").unwrap();
        let large = arena.store(&vec![7; 3 << 20]).unwrap();
        assert_eq!(small.as_ref(), b"before");
        assert_eq!(large.len(), 3 << 20);
        assert!(large.as_ref().iter().all(|&b| b == 7));
        let error = arena.store(&vec![7; EXTENT + 1]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(arena.store(b"after").unwrap().as_ref(), b"after");
    }

    #[test]
    fn chunks_beyond_the_budget_are_refused_and_take_nothing() {
        let memory = Memory::new(1 << 20);
        let (mut large, mut small) = (arena(&memory), arena(&memory));
        let mut held = Vec::new();
        let error = loop {
            match large.store(&[1; 10_000]) {
                Ok(region) => held.push(region),
                Err(error) => break error,
            }
        };
        assert_eq!(error.to_string(), "the memory for live streams is used up");
        assert!(memory.budget().used() <= 1 << 20);
        assert!(!memory.budget().has_room());
        assert!(resident(&large) <= memory.budget().used());
        assert_eq!(small.store(&[2; 100]).unwrap().as_ref(), [2; 100], "its share is its own");
        assert!(held.iter().all(|region| region.as_ref() == [1; 10_000]));
        held.clear();
        assert_eq!(large.store(&[3; 10_000]).unwrap().as_ref(), [3; 10_000]);
    }

    /// Ten thousand streams of two tracks. The kernel's limits for a process do not allow a mapping
    /// for each.
    #[test]
    fn many_tracks_need_one_descriptor_and_few_mappings() {
        let memory = Memory::new(u64::MAX);
        let mut tracks: Vec<Arena> = (0..20_000).map(|_| arena(&memory)).collect();
        let regions: Vec<Region> =
            tracks.iter_mut().map(|arena| arena.store(&[5; 100]).unwrap()).collect();
        assert_eq!(extents(&memory), 1);
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let inode = rustix::fs::fstat(regions[0].fd()).unwrap().st_ino.to_string();
        let mapped = |line: &&str| line.split_whitespace().nth(4) == Some(&inode);
        assert_eq!(maps.lines().filter(mapped).count(), 1);
        assert!(
            regions.iter().all(|region| region.fd().as_raw_fd() == regions[0].fd().as_raw_fd())
        );
    }

    /// Code that sends from the file holds its pages, which keep their bytes only without large
    /// folios.
    #[test]
    fn mappings_decline_large_folios() {
        if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            return;
        }
        let region = arena(&Memory::new(u64::MAX)).store(&[7; 10_000]).unwrap();
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

    /// A place may be used again only when nobody can reach its old bytes: neither through a
    /// region, nor in a pipe or socket where the kernel has queued them.
    #[derive(Debug, Clone)]
    enum Step {
        Store { track: usize, size: usize },
        Forget(prop::sample::Index),
        Slice(prop::sample::Index, usize),
        Send(prop::sample::Index),
        Receive,
    }

    fn step() -> impl Strategy<Value = Step> {
        let index = any::<prop::sample::Index>;
        prop_oneof![
            6 => (0..3_usize, 1..60_000_usize).prop_map(|(track, size)| Step::Store { track, size }),
            5 => index().prop_map(Step::Forget),
            1 => (index(), 0..60_000_usize).prop_map(|(index, at)| Step::Slice(index, at)),
            2 => index().prop_map(Step::Send),
            1 => Just(Step::Receive),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn published_bytes_never_change(steps in prop::collection::vec(step(), 1..300)) {
            let memory = Memory::new(8 << 20);
            let mut tracks: Vec<Arena> = (0..3).map(|_| arena(&memory)).collect();
            let mut held: Vec<(Region, Vec<u8>)> = Vec::new();
            let mut queued: VecDeque<(io::PipeReader, Vec<u8>)> = VecDeque::new();
            let receive = |queued: &mut VecDeque<(io::PipeReader, Vec<u8>)>| {
                let Some((mut pipe, sent)) = queued.pop_front() else { return };
                let mut came = Vec::new();
                pipe.read_to_end(&mut came).unwrap();
                assert!(came == sent, "the kernel sent what was published");
            };
            for (turn, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Store { track, size } => {
                        let bytes: Vec<u8> =
                            (0..size).map(|i| (i as u8).wrapping_mul(31) ^ turn as u8).collect();
                        match tracks[track].store(&bytes) {
                            Ok(region) => held.push((region, bytes)),
                            Err(error) => {
                                prop_assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
                            }
                        }
                    }
                    Step::Forget(index) if !held.is_empty() => {
                        held.swap_remove(index.index(held.len()));
                    }
                    Step::Slice(index, at) if !held.is_empty() => {
                        let (region, bytes) = &held[index.index(held.len())];
                        let at = at.min(bytes.len());
                        let rest = (region.slice(at..bytes.len()), bytes[at..].to_vec());
                        held.push(rest);
                    }
                    Step::Send(index) if !held.is_empty() => {
                        let (region, bytes) = &held[index.index(held.len())];
                        let (reader, writer) = io::pipe().unwrap();
                        let mut offset = region.offset();
                        let sent = rustix::fs::sendfile(
                            &writer, region.fd(), Some(&mut offset), region.len(),
                        );
                        // A pipe has room for sixteen pages, of which some are not sent in full.
                        queued.push_back((reader, bytes[..sent.unwrap_or(0)].to_vec()));
                        if queued.len() > 20 {
                            receive(&mut queued);
                        }
                    }
                    Step::Receive => receive(&mut queued),
                    Step::Forget(_) | Step::Slice(..) | Step::Send(_) => {}
                }
                for (region, bytes) in &held {
                    prop_assert!(region.as_ref() == &bytes[..]);
                }
                prop_assert!(memory.budget().used() <= memory.budget().limit());
                prop_assert!(resident(&tracks[0]) <= memory.budget().used());
            }
            drop((held, tracks));
            while !queued.is_empty() {
                receive(&mut queued);
            }
            prop_assert_eq!(memory.budget().used(), 0);
            prop_assert!(extents(&memory) <= 1, "places are used again");
        }
    }
}
