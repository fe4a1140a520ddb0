//! The local copies of all objects, and the room that they have on the disk.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use payload::OpenFile;
use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};

use crate::blocks::{self, Blocks};
use crate::counts::Counts;
use crate::index::Index;
use crate::meta::{Meta, digest};
use crate::object::Object;
use crate::seldom::Seldom;
use crate::{Error, Settings};

/// Most objects of which the cache has anything.
const OBJECTS: usize = 65_536;

/// When the cache is full, this part of it is freed at once.
const PART: u64 = 20;

/// Extensions of the files of an object.
const DATA: &str = "data";
const INDEX: &str = "index";
/// An index that is being written.
const NEW: &str = "new";

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

    /// Bytes of blocks on the disk.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// The version at a path that was seen last, if the cache has any of it.
    pub(crate) fn newest(&self, path: &str) -> Option<Meta> {
        let objects = self.lock();
        let newest = objects.newest.get(path).filter(|object| !object.is_old());
        newest.map(|object| object.meta.clone())
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

    /// Opens the file of an object, which is made if there is none.
    pub(crate) fn file(&self, object: &Object) -> io::Result<File> {
        let path = self.path(&object.name, DATA);
        let mut options = File::options();
        options.read(true).write(true);
        match options.open(&path) {
            Ok(file) if file.metadata()?.len() == object.meta.size => return Ok(file),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // Somebody may have removed the file. A new one has none of the blocks.
        self.lost(object);
        let file = options.create(true).truncate(true).open(path)?;
        file.set_len(object.meta.size)?;
        Ok(file)
    }

    /// Forgets the blocks of an object whose file was lost.
    fn lost(&self, object: &Object) {
        let lost = object.blocks().lose();
        for number in lost {
            let range = blocks::bytes(number, object.meta.size);
            self.gave(range.end - range.start);
            object.is_changed.store(true, Ordering::Relaxed);
        }
    }

    /// The open copy of an object, if it is open.
    pub(crate) fn opened(&self, path: &str, meta: &Meta) -> Option<Arc<OpenFile>> {
        let newest = self.lock().newest.get(path).filter(|newest| newest.meta == *meta).cloned();
        newest?.is_open()
    }

    /// Takes room for a block that is about to be written. Blocks while other blocks make room.
    pub(crate) fn take(&self, bytes: u64) {
        let before = self.used.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) > self.limit {
            self.make_room();
        }
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

    /// Writes the indexes that are older than their blocks. Blocks.
    pub(crate) fn flush(&self) {
        let _flushing = self.flushing.lock().unwrap_or_else(PoisonError::into_inner);
        let objects: Vec<_> = self.lock().all.values().cloned().collect();
        for object in objects {
            if object.is_changed.swap(false, Ordering::Relaxed)
                && let Err(error) = self.write_index(&object)
            {
                object.is_changed.store(true, Ordering::Relaxed);
                if let Some(others) = self.log.take() {
                    tracing::warn!(path = object.path, %error, others, "index of a cached object");
                }
            }
        }
    }

    fn write_index(&self, object: &Object) -> io::Result<()> {
        let blocks = object.blocks().kept().collect();
        let (url, path, meta) = (self.url.clone(), object.path.clone(), object.meta.clone());
        Index { url, path, meta, blocks }.write(&self.path(&object.name, INDEX))
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

    /// Removes an object that has no blocks, and that nobody reads.
    fn forget(&self, object: &Arc<Object>) {
        let mut objects = self.lock();
        let open = object.opened();
        if open.strong_count() > 0 || !object.blocks().is_empty() {
            return;
        }
        object.is_gone.store(true, Ordering::Relaxed);
        objects.all.remove(&object.name);
        if objects.newest.get(&object.path).is_some_and(|newest| Arc::ptr_eq(newest, object)) {
            objects.newest.remove(&object.path);
        }
        self.remove(&object.name);
    }

    /// Frees blocks if there are too many.
    fn make_room(&self) {
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
    fn evict(&self, object: &Arc<Object>, number: u32) {
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
        // The lock is held until the bytes are gone, so that nobody fetches the block meanwhile.
        let mut blocks = object.blocks();
        if blocks.is_free(number) {
            punch(&file, &blocks::hole(number))?;
            blocks.remove(number);
            drop(blocks);
            object.is_changed.store(true, Ordering::Relaxed);
            let range = blocks::bytes(number, object.meta.size);
            self.gave(range.end - range.start);
            self.counts.evictions.add(1);
        }
        Ok(())
    }

    /// Finds the objects in the folder, and removes what belongs to none.
    fn load(&self) -> io::Result<()> {
        let mut names = HashSet::new();
        for entry in fs::read_dir(&self.folder)? {
            let name = entry?.file_name();
            if let Some((name, INDEX | NEW | DATA)) = name.to_str().and_then(|n| n.rsplit_once('.'))
                && is_name(name)
            {
                names.insert(name.to_owned());
            }
        }
        let mut objects = self.lock();
        for name in names {
            match self.found(&name) {
                Ok(Some(object)) if objects.all.len() < OBJECTS => {
                    let object = Arc::new(object);
                    let newest = objects.newest.get(&object.path);
                    let is_newer = newest.is_none_or(|n| n.meta.modified <= object.meta.modified);
                    if is_newer {
                        objects.is_newest(&object);
                    } else {
                        object.is_old.store(true, Ordering::Relaxed);
                    }
                    objects.all.insert(name, object);
                }
                _ => self.remove(&name),
            }
        }
        Ok(())
    }

    /// The object with files of this name; `None` if there is none, or if it is of another root.
    fn found(&self, name: &str) -> io::Result<Option<Object>> {
        let Some(index) = Index::read(&self.path(name, INDEX))? else { return Ok(None) };
        let file = File::options().write(true).open(self.path(name, DATA))?;
        let size = index.meta.size;
        if index.url != self.url || file.metadata()?.len() != size {
            return Ok(None);
        }
        // Blocks that came after the index was written take room, and are not known.
        let (mut end, mut used) = (0, 0);
        for (number, ..) in &index.blocks {
            let range = blocks::bytes(*number, size);
            if range.is_empty() || range.start < end {
                return Ok(None);
            }
            punch(&file, &(end..range.start))?;
            end = blocks::hole(*number).end;
            used += range.end - range.start;
        }
        if end < size {
            punch(&file, &(end..size.next_multiple_of(blocks::BLOCK)))?;
        }
        self.used.fetch_add(used, Ordering::Relaxed);
        let blocks = Blocks::found(index.blocks);
        Ok(Some(Object::new(name.to_owned(), index.path, index.meta, blocks)))
    }

    fn remove(&self, name: &str) {
        for ending in [INDEX, NEW, DATA] {
            match fs::remove_file(self.path(name, ending)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(name, ending, %error, "file of the cache not removed");
                }
                _ => {}
            }
        }
    }

    fn path(&self, name: &str, ending: &str) -> PathBuf {
        self.folder.join(format!("{name}.{ending}"))
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

/// Whether a name is one that the cache gives: the digits of a digest.
fn is_name(name: &str) -> bool {
    name.len() == 32 && name.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

fn is_full(written: &io::Result<()>) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    written.as_ref().is_err_and(|error| matches!(error.kind(), StorageFull | QuotaExceeded))
}

/// Makes a hole in a file.
fn punch(file: &File, range: &std::ops::Range<u64>) -> io::Result<()> {
    if range.is_empty() {
        return Ok(());
    }
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(fallocate(file, flags, range.start, range.end - range.start)?)
}

#[cfg(test)]
mod tests;
