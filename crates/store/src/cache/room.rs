//! The room that blocks have on the disk.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::files::{DATA, punch};
use super::{Cache, PART};
use crate::blocks::{self, Sum};
use crate::meta::hash;
use crate::object::Object;

impl Cache {
    /// Bytes of blocks on the disk.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes room for a block that is about to be written. Blocks while other blocks make room.
    pub(crate) fn take(&self, bytes: u64) {
        let before = self.used.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) > self.limit {
            self.make_room();
        }
    }

    /// Makes room for a block, writes it, and returns its digest. Blocks.
    pub(crate) fn keep(&self, file: &File, bytes: &[u8], number: u32) -> io::Result<Sum> {
        self.take(bytes.len() as u64);
        self.write(file, bytes, number).map(|()| hash(&[bytes]))
    }

    /// Writes a block, for which room was taken. Where the disk is full before the cache is, other
    /// blocks make room.
    pub(crate) fn write(&self, file: &File, bytes: &[u8], number: u32) -> io::Result<()> {
        let hole = blocks::hole(number);
        let write = || file.write_all_at(bytes, hole.start);
        let mut written = write();
        if is_full(&written) {
            let _room = self.room();
            // Others may have made room meanwhile.
            written = write();
            if is_full(&written) {
                let used = self.used();
                if let Some(others) = self.log.take() {
                    tracing::warn!(used, others, "the disk is full before the cache is");
                }
                self.free(used - used / PART);
                written = write();
            }
        }
        if written.is_err() {
            self.gave(bytes.len() as u64);
            punch(file, &hole)?;
        }
        written
    }

    /// Gives the room of a block back.
    pub(crate) fn gave(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Frees blocks if there are too many.
    pub(super) fn make_room(&self) {
        let _room = self.room();
        if self.used() > self.limit {
            self.free(self.limit - self.limit / PART);
        }
    }

    fn room(&self) -> MutexGuard<'_, ()> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Frees blocks until so many bytes are left: first those of versions that were replaced, then
    /// those that were unused for longest.
    fn free(&self, goal: u64) {
        let objects: Vec<_> = self.lock().all.values().cloned().collect();
        let mut free: Vec<(u64, u32, &Arc<Object>)> = Vec::new();
        for object in &objects {
            let is_old = object.is_old();
            let age = |used| if is_old { 0 } else { used };
            free.extend(object.blocks().free().map(|(used, at)| (age(used), at, object)));
        }
        free.sort_by_key(|(used, number, _)| (*used, *number));
        for (_, number, object) in free {
            if self.used() <= goal {
                break;
            }
            self.evict(object, number);
        }
        for object in objects.iter().filter(|object| object.blocks().is_empty()) {
            self.forget(object);
        }
    }

    /// Frees a block, unless somebody needs it.
    pub(super) fn evict(&self, object: &Arc<Object>, number: u32) {
        if let Err(error) = self.try_evict(object, number) {
            if error.kind() == io::ErrorKind::NotFound {
                self.lost(object);
            }
            if let Some(others) = self.log.take() {
                tracing::warn!(path = object.path, %error, others, "a cached block was not freed");
            }
        }
    }

    fn try_evict(&self, object: &Arc<Object>, number: u32) -> io::Result<()> {
        let file = match object.is_open() {
            Some(open) => open.local().try_clone(),
            None => File::options().write(true).open(self.path(&object.name, DATA)),
        }?;
        // Who needs the block from now on fetches it when the bytes are gone, which the end of the channel tells.
        // Meanwhile the blocks are not locked: a disk may be slow, and event loops ask for blocks.
        let (_leaves, gone) = watch::channel(());
        if !object.blocks().leave(number, gone) {
            return Ok(());
        }
        let punched = punch(&file, &blocks::hole(number));
        let stays = object.blocks().left(number, punched.is_ok());
        if !stays {
            object.is_changed.store(true, Ordering::Relaxed);
            let range = blocks::bytes(number, object.meta.size);
            self.gave(range.end - range.start);
            self.counts.evictions.add(1);
        }
        punched
    }
}

fn is_full(written: &io::Result<()>) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    written.as_ref().is_err_and(|error| matches!(error.kind(), StorageFull | QuotaExceeded))
}
