//! Files below a root: a folder of this machine, or objects of another.

use std::fmt::Debug;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustix::fs::{CWD, Dir, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

use crate::open_file::wait;
use crate::{Answer, FileState, FileVersion, OpenFile};

/// How often a path that goes through `..` of a link is looked up again, when a folder was renamed
/// during the lookup.
const RETRIES: usize = 8;

/// The place of files that are served. The kernel keeps paths inside a folder, symbolic links
/// included (`openat2` with `RESOLVE_BENEATH`). A link may leave the folder on its way, as every
/// absolute one does, if it leads back into the folder.
#[derive(Debug, Clone)]
pub struct Root(Location);

#[derive(Debug, Clone)]
enum Location {
    Folder(PathBuf),
    Store(Arc<dyn Objects>),
}

/// Objects of another machine, named like files. Paths have no empty component, no `.` and no `..`.
pub trait Objects: Debug + Send + Sync {
    /// What is known of a path without asking. Does not block.
    fn known(&self, path: &str) -> Option<io::Result<Metadata>>;

    /// Says that an object at this path, if it is one, will be read from this offset. What is there is asked for, unless
    /// it is known, and the first bytes are fetched by the same request. Does not block.
    fn foresee(&self, path: &str, from: u64);

    /// Asks what is at a path. The answer is an error of the kind [`io::ErrorKind::NotFound`] where
    /// nothing is.
    fn look_up(&self, path: &str) -> Answer<Metadata>;

    /// Asks what is at a path, and opens it if it is an object.
    fn open(&self, path: &str) -> Answer<(Option<Arc<OpenFile>>, Metadata)>;

    /// The names in a folder that begin with `begins`, if they are known. Does not block.
    fn known_list(&self, folder: &str, begins: &str) -> Option<Arc<Names>>;

    /// Asks for the names in a folder that begin with `begins`.
    fn list(&self, folder: &str, begins: &str) -> Answer<Arc<Names>>;
}

/// Names in a folder of objects.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// The names, in no order; `None` if there are too many.
    pub names: Option<Vec<String>>,
    /// A hash of the names. It takes the place of a folder's version.
    pub version: FileVersion,
}

/// What is known of a file or folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metadata {
    /// What it is.
    pub kind: Kind,
    /// Length in bytes.
    pub len: u64,
    /// When it was last modified.
    pub modified: Option<SystemTime>,
    /// Version of the content.
    pub version: FileVersion,
    /// State of the path. Only a local file has one.
    pub state: Option<FileState>,
}

/// What a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// Something that has no content to serve.
    Other,
}

impl From<&std::fs::Metadata> for Metadata {
    fn from(metadata: &std::fs::Metadata) -> Self {
        let kind = match metadata.file_type() {
            kind if kind.is_file() => Kind::File,
            kind if kind.is_dir() => Kind::Folder,
            _ => Kind::Other,
        };
        let modified = metadata.modified().ok();
        let (version, state) = (FileVersion::of(metadata), Some(FileState::of(metadata)));
        Self { kind, len: metadata.len(), modified, version, state }
    }
}

impl Metadata {
    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.kind == Kind::File
    }

    /// Whether it is a folder.
    pub fn is_dir(&self) -> bool {
        self.kind == Kind::Folder
    }
}

impl Root {
    /// The folder at `path`. It need not exist yet: each access opens it again.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(Location::Folder(path.into()))
    }

    /// Objects of another machine.
    pub fn of_objects(objects: Arc<dyn Objects>) -> Self {
        Self(Location::Store(objects))
    }

    /// Path of the folder, if it is one of this machine.
    pub fn folder(&self) -> Option<&Path> {
        match &self.0 {
            Location::Folder(path) => Some(path),
            Location::Store(_) => None,
        }
    }

    /// The objects, if they are on another machine.
    pub fn objects(&self) -> Option<&Arc<dyn Objects>> {
        match &self.0 {
            Location::Folder(_) => None,
            Location::Store(objects) => Some(objects),
        }
    }

    /// Opens a regular file for reading. Blocks.
    ///
    /// # Errors
    /// The error of the system or of the store; [`io::ErrorKind::NotFound`] also where `path` names
    /// something other than a file, [`io::ErrorKind::CrossesDevices`] where it leads out of the
    /// root.
    pub fn open(&self, path: &str) -> io::Result<(Arc<OpenFile>, Metadata)> {
        if let Location::Store(objects) = &self.0 {
            let (file, metadata) = wait(objects.open(path))?;
            return Ok((file.ok_or(io::ErrorKind::NotFound)?, metadata));
        }
        let (file, metadata) = self.find(path, Wait::AsLongAsItTakes)?;
        if metadata.is_file() { Ok((file, metadata)) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    /// Opens a file or a folder of this machine for reading.
    ///
    /// # Errors
    /// The error of the system; [`io::ErrorKind::CrossesDevices`] where `path` leads out of the
    /// root, [`io::ErrorKind::Unsupported`] where the root is a store. Where opening would have to
    /// wait and `wait` forbids it, an error that [`Wait::is_needed`] accepts.
    pub fn find(&self, path: &str, wait: Wait) -> io::Result<(Arc<OpenFile>, Metadata)> {
        // NONBLOCK: a FIFO without a writer must not block the thread.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = self.beneath(path, flags, wait)?;
        let metadata = Metadata::from(&file.metadata()?);
        Ok((Arc::new(file.into()), metadata))
    }

    /// Metadata of a file or a folder.
    ///
    /// # Errors
    /// Those of [`find`](Self::find), and the error of the store.
    pub fn stat(&self, path: &str, patience: Wait) -> io::Result<Metadata> {
        let Location::Store(objects) = &self.0 else {
            let file = self.beneath(path, OFlags::PATH, patience)?;
            return Ok(Metadata::from(&file.metadata()?));
        };
        match (objects.known(path), patience) {
            (Some(known), _) => known,
            (None, Wait::Never) => Err(Errno::AGAIN.into()),
            (None, Wait::AsLongAsItTakes) => wait(objects.look_up(path)),
        }
    }

    /// Version of a folder: it changes when a file whose name begins with `begins` is added or
    /// removed. In a folder of this machine, it changes with any file.
    ///
    /// # Errors
    /// Those of [`stat`](Self::stat).
    pub fn folder_version(
        &self,
        folder: &str,
        begins: &str,
        patience: Wait,
    ) -> io::Result<FileVersion> {
        let Location::Store(objects) = &self.0 else {
            return Ok(self.stat(folder, patience)?.version);
        };
        match (objects.known_list(folder, begins), patience) {
            (Some(names), _) => Ok(names.version),
            (None, Wait::Never) => Err(Errno::AGAIN.into()),
            (None, Wait::AsLongAsItTakes) => Ok(wait(objects.list(folder, begins))?.version),
        }
    }

    /// Names of the entries of a folder, in no order; `None` if there are more than `most`. Blocks.
    ///
    /// # Errors
    /// Those of [`stat`](Self::stat).
    pub fn list(&self, folder: &str, most: usize) -> io::Result<Option<Vec<String>>> {
        if let Location::Store(objects) = &self.0 {
            let listed = wait(objects.list(folder, ""))?;
            return Ok(listed.names.clone().filter(|names| names.len() <= most));
        }
        let folder =
            self.beneath(folder, OFlags::RDONLY | OFlags::DIRECTORY, Wait::AsLongAsItTakes)?;
        let mut names = Vec::new();
        for entry in Dir::read_from(folder)? {
            if names.len() == most {
                return Ok(None);
            }
            // A name that is not UTF-8 cannot be requested.
            if let Ok(name) = entry?.file_name().to_str() {
                names.push(name.to_owned());
            }
        }
        Ok(Some(names))
    }

    /// Names in a folder of a store that begin with `begins`; `None` where the root is a folder of
    /// this machine. Blocks.
    ///
    /// # Errors
    /// The error of the store.
    pub fn list_objects(&self, folder: &str, begins: &str) -> Option<io::Result<Arc<Names>>> {
        self.objects().map(|objects| wait(objects.list(folder, begins)))
    }

    fn beneath(&self, path: &str, flags: OFlags, wait: Wait) -> io::Result<std::fs::File> {
        let Location::Folder(folder) = &self.0 else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let cached = match wait {
            Wait::Never => ResolveFlags::CACHED,
            Wait::AsLongAsItTakes => ResolveFlags::empty(),
        };
        let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat2(CWD, folder, directory, Mode::empty(), cached)?;
        let path = if path.is_empty() { "." } else { path };
        let resolve = cached | ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let open = || openat2(&root, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve);
        let mut opened = open();
        for _ in 0..RETRIES {
            if wait == Wait::Never || !matches!(opened, Err(Errno::AGAIN)) {
                break;
            }
            opened = open();
        }
        if matches!(opened, Err(Errno::XDEV)) && is_plain(path) {
            let inside = back_inside(&root, path, cached)?;
            // Without links nothing leads out of the root, whatever was changed since the look.
            let resolve = resolve | ResolveFlags::NO_SYMLINKS;
            opened = openat2(&root, inside, flags | OFlags::CLOEXEC, Mode::empty(), resolve);
        }
        Ok(opened?.into())
    }
}

/// Whether a path by itself stays below the folder where it begins.
fn is_plain(path: &str) -> bool {
    !path.starts_with('/') && path.split('/').all(|name| name != "..")
}

/// Where in the root a path ends whose links leave the root on their way.
///
/// # Errors
/// The error of the system; [`Errno::XDEV`] where the path leads out.
fn back_inside(root: &OwnedFd, path: &str, cached: ResolveFlags) -> rustix::io::Result<PathBuf> {
    let end = end_inside(root, path, cached);
    if matches!(end, Err(Errno::NOTDIR)) {
        // A name behind a link to a file outside: the link leads out. The search ends at the first part of the path
        // that is no folder of the root, however many names a request has behind that.
        for (at, _) in path.match_indices('/') {
            end_inside(root, &path[..at], cached)?;
        }
    }
    end
}

/// Where in the root a path ends. It opens places only (`O_PATH`), which reads no file and waits for
/// no pipe.
fn end_inside(root: &OwnedFd, path: &str, cached: ResolveFlags) -> rustix::io::Result<PathBuf> {
    let resolve = cached | ResolveFlags::NO_MAGICLINKS;
    let end = openat2(root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)?;
    let real = |place: &OwnedFd| {
        let link = format!("/proc/self/fd/{}", place.as_raw_fd());
        std::fs::read_link(link).map_err(|_| Errno::XDEV)
    };
    let (root, end) = (real(root)?, real(&end)?);
    // Compares whole names: `/media-2` is not below `/media`.
    let inside = end.strip_prefix(root).map_err(|_| Errno::XDEV)?;
    let is_root = inside.as_os_str().is_empty();
    Ok(if is_root { PathBuf::from(".") } else { inside.to_owned() })
}

/// Whether an answer may wait for a disk or for a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Answers only from memory.
    Never,
    /// Waits if necessary.
    AsLongAsItTakes,
}

impl Wait {
    /// Whether an attempt with [`Never`](Self::Never) failed because it would have had to wait, or
    /// because the kernel does not support such attempts (`RESOLVE_CACHED` needs Linux 5.12).
    pub fn is_needed(error: &io::Error) -> bool {
        matches!(Errno::from_io_error(error), Some(Errno::AGAIN | Errno::INVAL | Errno::NOSYS))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_may_leave_the_folder_if_they_lead_back() {
        let folder = tempfile::tempdir().unwrap();
        let (root, beside) = (folder.path().join("media"), folder.path().join("media-2"));
        for place in [&root, &beside] {
            std::fs::create_dir_all(place.join("films")).unwrap();
            std::fs::write(place.join("films/a.mp4"), "film").unwrap();
        }
        for (to, link) in [
            (root.join("films/a.mp4"), "file"),
            (root.join("films"), "folder"),
            (root.clone(), "root"),
            (PathBuf::from("../media/films"), "round"),
            (beside.join("films/a.mp4"), "beside"),
            (folder.path().to_owned(), "above"),
            (root.join("none"), "dangling"),
            (PathBuf::from("/proc/self/cwd"), "magic"),
        ] {
            symlink(to, root.join(link)).unwrap();
        }
        // The root itself may be reached by a link.
        let other = folder.path().join("by-link");
        symlink(&root, &other).unwrap();
        for root in [Root::new(&root), Root::new(&other)] {
            for path in [
                "file",
                "folder/a.mp4",
                "root/folder/a.mp4",
                "round/a.mp4",
                "above/media/films/a.mp4",
            ] {
                let (_, metadata) = root.open(path).unwrap();
                assert_eq!(metadata.len, 4, "{path}");
            }
            let listed = root.list("folder", 10).unwrap().unwrap();
            assert!(listed.contains(&"a.mp4".to_owned()), "{listed:?}");
            assert!(root.stat("root", Wait::AsLongAsItTakes).unwrap().is_dir());
            let long = format!("beside{}", "/x".repeat(2000));
            for path in ["beside", "beside/v0/init.mp4", &long, "above/media-2/films/a.mp4"] {
                let error = root.open(path).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::CrossesDevices, "{path}");
            }
            assert_eq!(root.open("dangling").unwrap_err().kind(), io::ErrorKind::NotFound);
            assert_eq!(root.open("file/x").unwrap_err().kind(), io::ErrorKind::NotADirectory);
            assert!(root.stat("magic", Wait::AsLongAsItTakes).is_err());
        }
        // Only links may leave it.
        let film = root.join("films/a.mp4");
        let root = Root::new(&root);
        for path in [film.to_str().unwrap(), "../media/films/a.mp4"] {
            let error = root.open(path).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::CrossesDevices, "{path}");
        }
    }
}
