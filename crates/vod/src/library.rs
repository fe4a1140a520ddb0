use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use payload::{Root, Wait};

use crate::find::{self, Contents, Folder, Folders};
use crate::{Error, Settings, Title, build};

/// Most titles of objects that are made at the same time.
const BUILDS_OF_OBJECTS: usize = 16;

/// The most open files that are kept with titles, because a process may open only so many.
const OPEN_FILES: usize = 1024;

/// The titles below a root.
///
/// A title is made when it is first requested. It is kept until memory is short, when the title
/// that was unused for the longest time is dropped first, or until one of its files changes, which
/// every call checks. One thread makes a title; other threads that request the same title wait.
#[derive(Debug)]
pub struct Library {
    root: Root,
    settings: Settings,
    kept: Mutex<Kept>,
    folders: Folders,
    builds: Builds,
}

/// Lets as many threads make titles at once as there are cores. More threads would only compete for
/// cores and memory. Threads that make titles of objects mostly wait for a store, so there may be
/// [`BUILDS_OF_OBJECTS`].
#[derive(Debug)]
struct Builds {
    free: Mutex<usize>,
    freed: Condvar,
}

/// Permission to make a title.
struct Turn<'a>(&'a Builds);

impl Builds {
    fn turn(&self) -> Turn<'_> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let free = self.freed.wait_while(free, |free| *free == 0);
        *free.unwrap_or_else(PoisonError::into_inner) -= 1;
        Turn(self)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
}

/// How many names of dropped titles are remembered, to notice that memory is too short.
const GONE: usize = 64;

#[derive(Debug, Default)]
struct Kept {
    titles: HashMap<String, Entry>,
    /// Counts the calls.
    now: u64,
    memory: usize,
    files: usize,
    /// Names of those that were let go of last.
    gone: VecDeque<String>,
    /// Whether it was already logged that dropped titles come back.
    said: bool,
}

#[derive(Debug)]
struct Entry {
    slot: Arc<Slot>,
    /// When it was last asked for.
    used: u64,
    /// Bytes and files that it takes; 0 while it is being made.
    memory: usize,
    files: usize,
}

/// Held while a title is being made.
type Slot = Mutex<Option<Made>>;

#[derive(Debug)]
struct Made {
    contents: Contents,
    /// The title, or the reason why a file cannot be packaged, which is remembered as well.
    title: Result<Arc<Title>, Error>,
}

impl Library {
    /// The titles below `root`, which need not exist yet.
    pub fn new(root: Root, settings: Settings) -> Self {
        let at_once = match root.objects() {
            Some(_) => BUILDS_OF_OBJECTS,
            None => std::thread::available_parallelism().map_or(1, usize::from),
        };
        let builds = Builds { free: Mutex::new(at_once), freed: Condvar::new() };
        let folders = Folders::default();
        Self { root, settings, kept: Mutex::default(), folders, builds }
    }

    /// The folder, or the objects.
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// The title at `path` below the root: a file, or a folder of MP4 files. Blocks while files are
    /// checked (microseconds), and while the title is made (milliseconds).
    ///
    /// # Errors
    /// There is nothing of that name ([`Error::NotFound`]), it cannot be packaged
    /// ([`Error::Unreadable`]), or reading failed ([`Error::Io`]).
    pub fn title(&self, path: &str) -> Result<Arc<Title>, Error> {
        if !is_plain(path) {
            return Err(Error::NotFound);
        }
        self.foresee(path);
        // A name that leads nowhere must not take memory.
        if let Err(error) = self.root.stat(path, Wait::AsLongAsItTakes) {
            self.forget(path);
            return Err(Error::io(path, error));
        }
        let slot = self.slot(path);
        let mut made = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = &*made
            && made.contents.is_current(&self.root, Wait::AsLongAsItTakes)
        {
            return made.title.clone();
        }
        let result = self.make(path, &mut made);
        if made.is_some() && matches!(&result, Ok(_) | Err(Error::Unreadable { .. })) {
            self.keep(path, &slot, &made);
        } else {
            *made = None;
            self.forget(path);
        }
        result
    }

    /// The title at `path`, or why there is none, if it is kept and current. It counts as no use of the title. Blocks while
    /// its files are checked.
    pub fn kept(&self, path: &str) -> Option<Result<Arc<Title>, Error>> {
        let slot = Arc::clone(&self.lock().titles.get(path)?.slot);
        let made = slot.try_lock().ok()?;
        let made = made.as_ref()?;
        let is_current = made.contents.is_current(&self.root, Wait::AsLongAsItTakes);
        is_current.then(|| made.title.clone())
    }

    /// The names in a folder below the root, which are read anew when the folder has changed. Blocks.
    ///
    /// # Errors
    /// There is no such folder that this process may read ([`Error::NotFound`]), or reading failed ([`Error::Io`]).
    pub fn folder(&self, path: &str) -> Result<Arc<Folder>, Error> {
        let listed = match self.root.list_objects(path, "") {
            Some(listed) => listed.map(|listed| Arc::new(Folder::of_objects(&listed))),
            None => self.folders.list(&self.root, path, SystemTime::now()),
        };
        listed.map_err(|error| Error::io(path, error))
    }

    /// The title of objects at `path`, if it is kept and known to be current. Does not block. `None`
    /// also where the root is a folder of this machine.
    pub fn known(&self, path: &str) -> Option<Result<Arc<Title>, Error>> {
        self.root.objects()?;
        let slot = self.lock().used(path)?;
        let made = slot.try_lock().ok()?;
        let made = made.as_ref()?;
        made.contents.is_current(&self.root, Wait::Never).then(|| made.title.clone())
    }

    /// Has a store asked for all that a title at `path` needs first, at the same time. So the lookups that follow wait for
    /// one answer. Does not block.
    pub fn foresee(&self, path: &str) {
        if let Some(objects) = self.root.objects() {
            find::foresee(&**objects, path);
        }
    }

    /// Asks what a store has at the places of a kept title's files. After that, [`known`](Self::known)
    /// tells whether the title is current. `None` if there is no such title.
    pub fn ask(&self, path: &str) -> Option<impl Future<Output = ()> + Send + use<>> {
        let objects = self.root.objects()?;
        let slot = self.lock().used(path)?;
        let made = slot.try_lock().ok()?;
        Some(made.as_ref()?.contents.ask(&**objects))
    }

    /// How many titles are kept, and the bytes of memory they take.
    pub fn usage(&self) -> (usize, usize) {
        let kept = self.lock();
        (kept.titles.len(), kept.memory)
    }

    fn make(&self, path: &str, made: &mut Option<Made>) -> Result<Arc<Title>, Error> {
        let _turn = self.builds.turn();
        let listing = find::list(&self.root, &self.folders, path, SystemTime::now())?;
        if let Some(reason) = listing.refusal.clone() {
            let error = Error::Unreadable { what: path.to_owned(), reason };
            tracing::warn!(title = path, %error, "not packaged");
            *made = Some(Made { contents: listing.into_contents(), title: Err(error.clone()) });
            return Err(error);
        }
        if let Some(made) = made
            && made.contents.renew(&self.root, &listing)
        {
            // Another file was added to the folder or removed from it.
            return made.title.clone();
        }
        let found = find::open(&self.root, listing)?;
        let contents = found.contents;
        let version = contents.version(&self.settings);
        let title = build::title(path, &found.sources, found.beside, &self.settings, version);
        let title = title.map(Arc::new);
        match &title {
            Err(error @ Error::Io { .. }) => return Err(error.clone()),
            Err(error) => tracing::warn!(title = path, %error, "not packaged"),
            Ok(_) => self.lock().made_again(path),
        }
        *made = Some(Made { contents, title: title.clone() });
        title
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        // No panic can leave the data half changed.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slot(&self, path: &str) -> Arc<Slot> {
        let mut kept = self.lock();
        if let Some(slot) = kept.used(path) {
            return slot;
        }
        let now = kept.now;
        let slot = Arc::new(Slot::default());
        let entry = Entry { slot: Arc::clone(&slot), used: now, memory: 0, files: 0 };
        kept.titles.insert(path.to_owned(), entry);
        slot
    }

    /// Counts the memory of a finished title, and makes room for it.
    fn keep(&self, path: &str, slot: &Arc<Slot>, made: &Option<Made>) {
        let Some(made) = made else { return };
        let (memory, files) =
            made.title.as_ref().map_or((256, 0), |title| (title.memory(), title.files.len()));
        let memory = memory + made.contents.memory() + path.len();
        let mut kept = self.lock();
        let Some(entry) = kept.titles.get_mut(path).filter(|entry| Arc::ptr_eq(&entry.slot, slot))
        else {
            return;
        };
        let before = (entry.memory, entry.files);
        (entry.memory, entry.files) = (memory, files);
        kept.memory = kept.memory + memory - before.0;
        kept.files = kept.files + files - before.1;
        while kept.memory > self.settings.memory || kept.files > OPEN_FILES {
            // Those being made take nothing yet.
            let others = kept
                .titles
                .iter()
                .filter(|(name, entry)| entry.memory > 0 && name.as_str() != path);
            let Some(oldest) = others.min_by_key(|(_, entry)| entry.used) else { break };
            let oldest = oldest.0.clone();
            kept.remove(&oldest);
            if kept.gone.len() == GONE {
                kept.gone.pop_front();
            }
            kept.gone.push_back(oldest);
        }
    }

    fn forget(&self, path: &str) {
        self.lock().remove(path);
    }
}

/// Whether a path is one of a file below the root.
fn is_plain(path: &str) -> bool {
    let plain = |name: &str| !matches!(name, "" | "." | "..");
    !path.contains('\0') && path.split('/').all(plain)
}

impl Kept {
    /// The slot of a title, which is used now.
    fn used(&mut self, path: &str) -> Option<Arc<Slot>> {
        self.now += 1;
        let entry = self.titles.get_mut(path)?;
        entry.used = self.now;
        Some(Arc::clone(&entry.slot))
    }

    /// A title was made. Logs once that it was made before and dropped not long ago.
    fn made_again(&mut self, path: &str) {
        if !self.said && self.gone.iter().any(|gone| gone == path) {
            self.said = true;
            let (titles, memory) = (self.titles.len(), self.memory);
            tracing::warn!(
                title = path,
                titles,
                memory,
                "titles are read again and again: more are watched than are kept in memory"
            );
        }
    }

    fn remove(&mut self, path: &str) {
        if let Some(entry) = self.titles.remove(path) {
            self.memory -= entry.memory;
            self.files -= entry.files;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use super::*;

    #[test]
    fn when_a_folder_changes_its_titles_are_neither_listed_nor_read_each_by_itself() {
        let folder = tempfile::tempdir().unwrap();
        let clip = testkit::clip("mp4/pictures.mp4");
        let names: Vec<String> = (0..20).map(|number| format!("{number}.mp4")).collect();
        for name in &names {
            fs::copy(&clip, folder.path().join(name)).unwrap();
        }
        fs::write(folder.path().join("0.en.vtt"), "WEBVTT\n").unwrap();
        let mut day = SystemTime::UNIX_EPOCH;
        // A day later each time, and long ago, so that the clock does not decide what is kept.
        let mut changed = || {
            day += Duration::from_secs(86_400);
            fs::File::open(folder.path()).unwrap().set_modified(day).unwrap();
        };
        let library = Library::new(Root::new(folder.path()), Settings::default());
        let titles = || names.iter().map(|name| library.title(name).unwrap()).collect::<Vec<_>>();
        let listings = || library.folders.listings.load(Ordering::Relaxed);
        changed();
        let before = titles();
        assert_eq!(listings(), 1);
        fs::write(folder.path().join("other.txt"), "").unwrap();
        changed();
        for (before, after) in before.iter().zip(titles()) {
            assert!(Arc::ptr_eq(before, &after), "it is the same title");
        }
        assert_eq!(listings(), 2);
        titles();
        assert_eq!(listings(), 2, "nothing has changed");
        fs::write(folder.path().join("1.de.vtt"), "WEBVTT\n").unwrap();
        changed();
        let after = titles();
        assert_eq!(listings(), 3);
        for (number, (before, after)) in before.iter().zip(&after).enumerate() {
            assert_eq!(Arc::ptr_eq(before, after), number != 1, "{number}");
        }
        assert_eq!(after[1].texts.len(), 1);
    }
}
