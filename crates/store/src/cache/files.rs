//! The files of objects in the cache's folder.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use rustix::fs::{FallocateFlags, fallocate};

use super::{Cache, OBJECTS};
use crate::blocks::{self, Blocks};
use crate::index::Index;
use crate::object::Object;

/// Extensions of the files of an object.
pub(super) const DATA: &str = "data";
pub(super) const INDEX: &str = "index";
/// An index that is being written.
pub(super) const NEW: &str = "new";

impl Cache {
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
    pub(super) fn lost(&self, object: &Object) {
        let lost = object.blocks().lose();
        for number in lost {
            let range = blocks::bytes(number, object.meta.size);
            self.gave(range.end - range.start);
            object.is_changed.store(true, Ordering::Relaxed);
        }
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

    /// Finds the objects in the folder, and removes what belongs to none.
    pub(super) fn load(&self) -> io::Result<()> {
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

    pub(super) fn remove(&self, name: &str) {
        for ending in [INDEX, NEW, DATA] {
            match fs::remove_file(self.path(name, ending)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(name, ending, %error, "file of the cache not removed");
                }
                _ => {}
            }
        }
    }

    pub(super) fn path(&self, name: &str, ending: &str) -> PathBuf {
        self.folder.join(format!("{name}.{ending}"))
    }
}

/// Whether a name is one that the cache gives: the digits of a digest.
fn is_name(name: &str) -> bool {
    name.len() == 32 && name.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// Makes a hole in a file.
pub(super) fn punch(file: &File, range: &Range<u64>) -> io::Result<()> {
    if range.is_empty() {
        return Ok(());
    }
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(fallocate(file, flags, range.start, range.end - range.start)?)
}
