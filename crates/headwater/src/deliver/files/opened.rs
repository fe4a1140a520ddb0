//! Recently opened files. A file may be requested range by range, or by many viewers. Then each
//! request only checks the path instead of opening the file again.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use http::{Representation, Validators};
use payload::{FileState, Metadata, OpenFile};
use tokio::task::spawn_local;

use super::{REVALIDATE, media_type};

/// How long a file stays open. For this time a deleted file still takes disk space, and a path that
/// has become forbidden is still served.
const KEPT: Duration = Duration::from_secs(2);

/// Most files that an event loop keeps open.
const MOST: usize = 256;

/// Files up to this length are kept with their bytes.
const SHORT: u64 = 16 << 10;

/// File times have a granularity. A file that changed more recently than this may change again
/// without a new time.
const SETTLED: Duration = Duration::from_secs(2);

/// The open files of one event loop.
#[derive(Clone, Debug, Default)]
pub(in crate::deliver) struct Opened(Rc<Files>);

#[derive(Debug, Default)]
struct Files {
    /// Files by the requested path.
    files: RefCell<HashMap<Box<str>, Known>>,
    /// Whether a task is running that closes them.
    is_swept: Cell<bool>,
}

#[derive(Debug)]
struct Known {
    found: Found,
    /// The path from the process's working directory.
    at: CString,
    since: Instant,
    /// A time just before the last look at the path, if it was looked at since the file was opened.
    looked: Option<Instant>,
}

/// An open file.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) file: Arc<OpenFile>,
    pub(super) metadata: Metadata,
    pub(super) described: Rc<Described>,
    /// The content of a short file.
    pub(super) bytes: Option<Bytes>,
}

/// What answers say of a file.
#[derive(Debug)]
pub(super) struct Described {
    etag: String,
    modified: Option<SystemTime>,
    content_type: &'static str,
    fields: Vec<u8>,
}

impl Opened {
    /// Finds the file at a path below the root, if it is open, and was still the file at that path,
    /// unchanged, at some time after `received`. So requests that were received together share one
    /// look at the path.
    ///
    /// Whether the path may lead there was checked when the file was opened.
    pub(super) fn find(&self, path: &str, received: Instant) -> Option<Found> {
        let mut files = self.0.files.borrow_mut();
        let known = files.get_mut(path)?;
        let now = Instant::now();
        let must_look = known.looked.is_none_or(|looked| looked < received);
        if now - known.since >= KEPT || (must_look && !known.is_current()) {
            files.remove(path);
            return None;
        }
        if must_look {
            known.looked = Some(now);
            // Only right after a look are the bytes surely those of this version.
            if known.found.bytes.is_none() {
                known.found.bytes = known.found.read();
            }
        }
        Some(known.found.clone())
    }

    /// Keeps a file that was just opened.
    pub(super) fn keep(&self, root: &Path, path: &str, file: &Arc<OpenFile>, metadata: Metadata) {
        let at = CString::new(root.join(path).as_os_str().as_bytes());
        let mut files = self.0.files.borrow_mut();
        let Some(at) = at.ok().filter(|_| files.len() < MOST) else { return };
        let (found, now) = (Found::new(path, Arc::clone(file), metadata), Instant::now());
        files.insert(path.into(), Known { found, at, since: now, looked: None });
        if !self.0.is_swept.replace(true) {
            spawn_local(Rc::clone(&self.0).sweep());
        }
    }
}

impl Known {
    fn is_current(&self) -> bool {
        FileState::at(&self.at).is_ok_and(|now| Some(now) == self.found.metadata.state)
    }
}

impl Found {
    pub(super) fn new(path: &str, file: Arc<OpenFile>, metadata: Metadata) -> Self {
        // A date in the future is not a valid validator (RFC 9110 8.8.2.1).
        let modified = metadata.modified.filter(|&modified| modified <= SystemTime::now());
        let (etag, content_type) = (metadata.version.etag(), media_type::of(path));
        let mut described = Described { etag, modified, content_type, fields: Vec::new() };
        described.fields = Representation { fields: None, ..described.of(&metadata) }.fields();
        Self { file, metadata, described: Rc::new(described), bytes: None }
    }

    /// The file as something that can be served in ranges.
    pub(super) fn representation(&self) -> Representation<'_> {
        self.described.of(&self.metadata)
    }

    /// Reads the file if it is short, its pages are in memory, and it has not changed for a while.
    fn read(&self) -> Option<Bytes> {
        let changed = self.metadata.modified?;
        let age = SystemTime::now().duration_since(changed).ok()?;
        let is_worth_it = (1..=SHORT).contains(&self.metadata.len) && age > SETTLED;
        is_worth_it.then(|| http::read_now(&self.file, &(0..self.metadata.len))).flatten()
    }
}

impl Described {
    fn of(&self, metadata: &Metadata) -> Representation<'_> {
        Representation {
            length: metadata.len,
            content_type: self.content_type,
            cache_control: REVALIDATE,
            validators: Validators { etag: Some(&self.etag), modified: self.modified },
            fields: Some(&self.fields),
        }
    }
}

impl Files {
    /// Closes files that have been open for long enough, until none is left.
    async fn sweep(self: Rc<Self>) {
        while !self.files.borrow().is_empty() {
            tokio::time::sleep(KEPT).await;
            self.files.borrow_mut().retain(|_, known| known.since.elapsed() < KEPT);
        }
        self.is_swept.set(false);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use tokio::task::LocalSet;

    use super::*;

    fn open(path: &Path) -> (Arc<OpenFile>, Metadata) {
        let file = File::open(path).unwrap();
        let metadata = Metadata::from(&file.metadata().unwrap());
        (Arc::new(file.into()), metadata)
    }

    const HOUR: Duration = Duration::from_secs(3600);

    /// Keeps the files for an hour longer than usual, however late a busy machine runs this test.
    fn keep_longer(opened: &Opened) {
        for known in opened.0.files.borrow_mut().values_mut() {
            known.since += HOUR;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_is_known_until_anything_of_it_changes() {
        LocalSet::new().run_until(known()).await;
    }

    async fn known() {
        let folder = tempfile::tempdir().unwrap();
        let (root, path) = (folder.path(), folder.path().join("file"));
        let past = SystemTime::now() - Duration::from_secs(60);
        let write = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            File::options().write(true).open(&path).unwrap().set_modified(past).unwrap();
        };
        let changes: [&dyn Fn(); 5] = [
            &|| write(b"more than before"),
            // Another file with the same length and times.
            &|| {
                std::fs::rename(&path, root.join("other")).unwrap();
                write(b"0123456789");
            },
            &|| std::fs::remove_file(&path).unwrap(),
            &|| {
                use std::os::unix::fs::PermissionsExt;
                std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
            },
            &|| {
                std::fs::remove_file(&path).unwrap();
                std::fs::create_dir(&path).unwrap();
            },
        ];
        for (i, change) in changes.iter().enumerate() {
            let opened = Opened::default();
            let find = |received| opened.find("file", received);
            assert!(find(Instant::now()).is_none());
            write(b"0123456789");
            let (file, metadata) = open(&path);
            opened.keep(root, "file", &file, metadata);
            keep_longer(&opened);
            let received = Instant::now();
            let found = find(received).unwrap();
            assert!(Arc::ptr_eq(&found.file, &file));
            assert_eq!(found.bytes.as_deref(), Some(&b"0123456789"[..]));
            // The file times must advance by one tick to show the change.
            let tick = || rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
            let then = tick();
            while tick() == then {
                std::thread::yield_now();
            }
            change();
            // A request that was received before the last look needs no other.
            assert!(Arc::ptr_eq(&find(received).unwrap().file, &file));
            assert!(find(Instant::now()).is_none(), "change {i}");
            assert!(opened.0.files.borrow().is_empty());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn files_that_are_open_for_long_are_closed() {
        LocalSet::new().run_until(closed()).await;
    }

    async fn closed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, b"new").unwrap();
        // It stays new.
        let written = SystemTime::now() + HOUR;
        File::options().write(true).open(&path).unwrap().set_modified(written).unwrap();
        let (file, metadata) = open(&path);
        let opened = Opened::default();
        for i in 0..2 * MOST {
            opened.keep(folder.path(), &format!("./{i}"), &file, metadata);
        }
        assert_eq!(opened.0.files.borrow().len(), MOST);
        opened.keep(folder.path(), "file", &file, metadata);
        keep_longer(&opened);
        let find = |path| opened.find(path, Instant::now());
        assert!(find("./0").is_none() && find("file").is_none());
        opened.keep(folder.path(), "file", &file, metadata);
        keep_longer(&opened);
        assert_eq!(find("file").unwrap().bytes, None);
        for known in opened.0.files.borrow_mut().values_mut() {
            known.since = Instant::now() - KEPT;
        }
        while opened.0.is_swept.get() {
            tokio::time::advance(KEPT).await;
        }
        assert_eq!((opened.0.files.borrow().len(), Arc::strong_count(&file)), (0, 1));
    }
}
