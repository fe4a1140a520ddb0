//! What the cache has of one version of an object.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use payload::OpenFile;

use crate::blocks::{Blocks, Sum};
use crate::meta::Meta;

/// What the cache keeps of one version of an object.
#[derive(Debug)]
pub(crate) struct Object {
    /// Name of its files in the cache's folder.
    pub(crate) name: String,
    /// Path below the root.
    pub(crate) path: String,
    pub(crate) meta: Meta,
    pub(crate) blocks: Mutex<Blocks>,
    /// Whether the index on the disk is older than the blocks.
    pub(crate) is_changed: AtomicBool,
    /// Whether there is a newer version, or the object was deleted.
    pub(crate) is_old: AtomicBool,
    /// Whether its files were removed. It is not used any more.
    pub(crate) is_gone: AtomicBool,
    /// The open copy, which all who read it share.
    pub(crate) open: Mutex<Weak<OpenFile>>,
}

impl Object {
    pub(crate) fn new(name: String, path: String, meta: Meta, blocks: Blocks) -> Self {
        Self {
            name,
            path,
            meta,
            blocks: Mutex::new(blocks),
            is_changed: AtomicBool::new(false),
            is_old: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            open: Mutex::default(),
        }
    }

    pub(crate) fn blocks(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn opened(&self) -> MutexGuard<'_, Weak<OpenFile>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A block has come, or does not.
    pub(crate) fn came(&self, number: u32, sum: Option<Sum>) {
        self.blocks().came(number, sum, now());
        self.is_changed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_old(&self) -> bool {
        self.is_old.load(Ordering::Relaxed)
    }

    /// The open copy, if somebody reads it.
    pub(crate) fn is_open(&self) -> Option<Arc<OpenFile>> {
        self.opened().upgrade()
    }
}

/// Milliseconds since 1970. They only tell which of two uses was later.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
