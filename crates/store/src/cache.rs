//! The local copies of all objects, and the room that they have on the disk.

mod files;
mod room;

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use payload::OpenFile;
use rustix::fs::{FlockOperation, flock};
use tokio::sync::watch;

use self::files::punch;
use crate::blocks::{self, Blocks, Need};
use crate::counts::Counts;
use crate::fault::Fault;
use crate::meta::{Meta, digest};
use crate::object::Object;
use crate::seldom::Seldom;
use crate::{Error, Settings};

/// Most objects in the cache, whole or in part.
const OBJECTS: usize = 65_536;

/// When the cache is full, this part of it is freed at once.
const PART: u64 = 20;

/// A folder with local copies of objects.
#[derive(Debug)]
pub(crate) struct Cache {
    folder: PathBuf,
    /// Address of the root.
    url: String,
    limit: u64,
    used: AtomicU64,
    objects: Mutex<Objects>,
    /// Held while room is made.
    room: Mutex<()>,
    /// Held while indexes are written.
    flushing: Mutex<()>,
    log: Seldom,
    counts: Arc<Counts>,
    /// Locked, so that no other process uses the folder.
    _lock: File,
}

#[derive(Debug, Default)]
struct Objects {
    /// By the names of their files.
    all: HashMap<String, Arc<Object>>,
    /// The newest version at each path.
    newest: BTreeMap<String, Arc<Object>>,
}

impl Cache {
    /// Opens the folder, and finds what an earlier process left there.
    pub(crate) fn open(settings: &Settings, counts: Arc<Counts>) -> Result<Self, Error> {
        let folder = settings.cache.clone();
        let shown = || folder.display().to_string();
        let failed = |source| Error::Cache { folder: shown(), source };
        fs::create_dir_all(&folder).map_err(failed)?;
        let lock = File::create(folder.join("lock")).map_err(failed)?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(Error::InUse(shown()));
        }
        // A file system without holes would fill up.
        punch(&lock, &blocks::hole(0)).map_err(failed)?;
        let cache = Self {
            url: settings.url.clone(),
            limit: settings.cache_size,
            used: AtomicU64::new(0),
            objects: Mutex::default(),
            room: Mutex::default(),
            flushing: Mutex::default(),
            log: Seldom::default(),
            counts,
            _lock: lock,
            folder: folder.clone(),
        };
        cache.load().map_err(failed)?;
        cache.make_room();
        Ok(cache)
    }

    /// The version at a path that was seen last, if the cache has any of it.
    pub(crate) fn newest(&self, path: &str) -> Option<Meta> {
        let objects = self.lock();
        let newest = objects.newest.get(path).filter(|object| !object.is_old());
        newest.map(|object| object.meta.clone())
    }

    /// Whether a block of the version at a path that was seen last is here, or comes.
    pub(crate) fn has(&self, path: &str, block: u32) -> bool {
        let newest = self.lock().newest.get(path).filter(|object| !object.is_old()).cloned();
        newest.is_some_and(|object| !matches!(object.blocks().need(block), Need::Fetch(None)))
    }

    /// The store says that there is no object at this path.
    pub(crate) fn deleted(&self, path: &str) {
        if let Some(object) = self.lock().newest.remove(path) {
            object.is_old.store(true, Ordering::Relaxed);
        }
    }

    /// Names in a folder that begin with `begins`, as far as the cache has them: objects with their
    /// metadata, and folders.
    pub(crate) fn below(
        &self,
        folder: &str,
        begins: &str,
        most: usize,
    ) -> Vec<(String, Option<Meta>)> {
        let above = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let prefix = format!("{above}{begins}");
        let objects = self.lock();
        let below = objects.newest.range(prefix.clone()..);
        let below = below.take_while(|(path, _)| path.starts_with(&prefix));
        let below = below.filter(|(_, object)| !object.is_old());
        let mut found = BTreeMap::new();
        for (path, object) in below {
            let name = &path[above.len()..];
            match name.split_once('/') {
                Some((folder, _)) => found.entry(folder.to_owned()).or_insert(None),
                None => found.entry(name.to_owned()).or_insert(Some(object.meta.clone())),
            };
            if found.len() == most {
                break;
            }
        }
        found.into_iter().collect()
    }

    /// The open copy of an object, if it is open. Does not wait for who opens or removes its files.
    pub(crate) fn opened(&self, path: &str, meta: &Meta) -> Option<Arc<OpenFile>> {
        let newest = self.lock().newest.get(path).filter(|newest| newest.meta == *meta).cloned();
        match newest?.open.try_lock() {
            Ok(open) => open.upgrade(),
            Err(TryLockError::Poisoned(open)) => open.into_inner().upgrade(),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The object with this version, which is the newest at its path from now on.
    pub(crate) fn object(&self, path: &str, meta: &Meta) -> Arc<Object> {
        let etag = meta.etag.as_deref().unwrap_or_default().as_bytes();
        let (size, modified) = (meta.size.to_le_bytes(), meta.modified.to_le_bytes());
        let name: String = digest(&[self.url.as_bytes(), path.as_bytes(), etag, &size, &modified])
            .iter()
            .take(16)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let mut objects = self.lock();
        if let Some(object) = objects.all.get(&name).cloned() {
            objects.is_newest(&object);
            return object;
        }
        if objects.all.len() >= OBJECTS {
            drop(objects);
            self.drop_objects();
            objects = self.lock();
        }
        let object = Object::new(name.clone(), path.to_owned(), meta.clone(), Blocks::default());
        let object = Arc::new(object);
        let object = Arc::clone(objects.all.entry(name).or_insert(object));
        objects.is_newest(&object);
        object
    }

    /// Keeps a block that came with the answer to what is at a path, unless it is here or comes by another way. Blocks.
    pub(crate) fn adopt(&self, path: &str, meta: &Meta, number: u32, bytes: &[u8]) {
        let object = self.object(path, meta);
        let (give, coming) = watch::channel(None);
        let file = {
            // The object is not removed meanwhile, and not while it has a block that comes.
            let _open = object.opened();
            let is_gone = object.is_gone.load(Ordering::Relaxed);
            // Who reads the block will find the same error.
            let Some(file) = (!is_gone).then(|| self.file(&object).ok()).flatten() else { return };
            let mut blocks = object.blocks();
            if !matches!(blocks.need(number), Need::Fetch(None)) {
                return;
            }
            blocks.comes(number, coming);
            file
        };
        let kept = self.keep(&file, bytes, number);
        object.came(number, kept.as_ref().ok().copied());
        let _ = give.send(Some(kept.map(drop).map_err(Fault::from)));
    }

    /// Drops the objects that were unused for longest.
    fn drop_objects(&self) {
        let all: Vec<_> = self.lock().all.values().cloned().collect();
        let last = |object: &Object| object.blocks().free().map(|(used, _)| used).max();
        let mut ages: Vec<_> = all.iter().map(|object| (last(object), object)).collect();
        ages.sort_by_key(|(used, _)| *used);
        let count = ages.len().div_ceil(PART as usize);
        for (_, object) in ages.into_iter().take(count) {
            let numbers: Vec<u32> = object.blocks().free().map(|(_, number)| number).collect();
            for number in numbers {
                self.evict(object, number);
            }
            self.forget(object);
        }
    }

    /// Removes an object that has no blocks, and that nobody reads. Who opens it meanwhile waits, and opens a new one.
    fn forget(&self, object: &Arc<Object>) {
        let open = object.opened();
        let is_gone = object.is_gone.load(Ordering::Relaxed);
        if is_gone || open.strong_count() > 0 || !object.blocks().is_empty() {
            return;
        }
        object.is_gone.store(true, Ordering::Relaxed);
        // All others of the cache are not locked meanwhile: a disk may be slow.
        self.remove(&object.name);
        let mut objects = self.lock();
        objects.all.remove(&object.name);
        if objects.newest.get(&object.path).is_some_and(|newest| Arc::ptr_eq(newest, object)) {
            objects.newest.remove(&object.path);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Objects {
    /// This is the version at its path from now on.
    fn is_newest(&mut self, object: &Arc<Object>) {
        let before = self.newest.insert(object.path.clone(), Arc::clone(object));
        object.is_old.store(false, Ordering::Relaxed);
        if let Some(before) = before.filter(|before| !Arc::ptr_eq(before, object)) {
            before.is_old.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;
