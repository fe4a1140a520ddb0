//! The folder for the account and the certificate.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// Most bytes of a file.
const LARGEST: u64 = 1 << 20;

/// The folder of one authority. Accounts and certificates of others are of no use there. All methods block.
pub(super) struct Storage(PathBuf);

impl Storage {
    pub(super) fn new(folder: &Path, directory: &str) -> Self {
        let name = directory.strip_prefix("https://").unwrap_or(directory).trim_end_matches('/');
        let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-".contains(c);
        let name: String = name.chars().map(|c| if is_plain(c) { c } else { '-' }).collect();
        Self(folder.join(name))
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Reads a file, if there is one.
    pub(super) fn read(&self, name: &str) -> io::Result<Option<String>> {
        let mut text = String::new();
        match File::open(self.path(name)) {
            Ok(file) => file.take(LARGEST).read_to_string(&mut text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(Some(text))
    }

    /// Writes a file, which nobody else may read. Whatever happens, it is there as a whole, or as it was.
    pub(super) fn write(&self, name: &str, text: &str) -> io::Result<()> {
        self.make()?;
        let mut file = NamedTempFile::new_in(&self.0)?;
        file.write_all(text.as_bytes())?;
        file.as_file().sync_all()?;
        file.persist(self.path(name))?;
        File::open(&self.0)?.sync_all()
    }

    /// Holds other processes off until the file is dropped. `None` if one of them holds this one off.
    pub(super) fn lock(&self) -> io::Result<Option<File>> {
        self.make()?;
        let mut options = fs::OpenOptions::new();
        let lock = options.create(true).truncate(false).write(true).open(self.path("lock"))?;
        match lock.try_lock() {
            Ok(()) => Ok(Some(lock)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn make(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn files_are_whole_and_private() {
        let folder = tempfile::tempdir().unwrap();
        let storage = Storage::new(folder.path(), "https://acme.example.org:14000/dir/");
        assert_eq!(storage.0, folder.path().join("acme.example.org-14000-dir"));
        assert_eq!(storage.read("a").unwrap(), None);
        for text in ["first", "second, and longer", "3"] {
            storage.write("a", text).unwrap();
            assert_eq!(storage.read("a").unwrap().unwrap(), text);
        }
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&storage.0), mode(&storage.path("a"))), (0o700, 0o600));
        let names = fs::read_dir(&storage.0).unwrap().count();
        assert_eq!(names, 1, "what was written on the way is gone");
    }

    #[test]
    fn a_failed_write_leaves_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let storage = Storage::new(folder.path(), "https://a/");
        storage.write("a", "first").unwrap();
        // A folder in place of a file cannot be replaced by a file.
        fs::create_dir_all(storage.path("b/c")).unwrap();
        storage.write("b", "never").unwrap_err();
        assert_eq!(storage.read("a").unwrap().unwrap(), "first");
        assert_eq!(fs::read_dir(&storage.0).unwrap().count(), 2);
        storage.read("b").unwrap_err();
    }

    #[test]
    fn one_process_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let [one, two] = [(); 2].map(|()| Storage::new(folder.path(), "https://a/"));
        let lock = one.lock().unwrap();
        assert!(lock.is_some() && two.lock().unwrap().is_none());
        drop(lock);
        assert!(two.lock().unwrap().is_some());
    }
}
