//! Finds the files of a title, and notices when they change.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use payload::{FileVersion, Objects, OpenFile, Root, Wait};

use crate::left_out::LeftOut;
use crate::rendered::hash;
use crate::source::Source;
use crate::text::{self, Script};
use crate::title::Version;
use crate::{Error, Settings};

/// Limits of a folder.
mod limits {
    /// Entries in the folder of a movie.
    pub(super) const ENTRIES: usize = 100_000;
    /// MP4 files of one title. A folder with more is a collection.
    pub(super) const RENDITIONS: usize = 16;
    /// WebVTT files of a title.
    pub(super) const SIDECARS: usize = 64;
    /// Folders whose listings are kept.
    pub(super) const FOLDERS: usize = 16;
}

/// A time longer than a tick of a file system's clock.
const TICK: Duration = Duration::from_millis(50);

/// File name extensions of MP4 files.
const MP4: [&str; 6] = ["mp4", "m4v", "m4a", "mov", "cmfv", "cmfa"];

/// Names of the files of a title, as they were found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Names {
    /// Folder below the root.
    folder: String,
    /// What names in the folder begin with that matter to the title. In a folder of this machine,
    /// all do.
    begins: String,
    /// The MP4 files, below the root, sorted.
    pub(crate) movies: Vec<String>,
    /// The WebVTT files, below the root, each with the part of its name that is not the movie's.
    pub(crate) sidecars: BTreeMap<String, String>,
}

/// Names and versions of a title's files. As long as they are the same, the title is the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Contents {
    names: Names,
    /// Version of the folder, which changes when a file is added or removed.
    folder: FileVersion,
    files: BTreeMap<String, FileVersion>,
}

/// A title's open files.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) contents: Contents,
    pub(crate) sources: Vec<Source>,
    pub(crate) beside: (Vec<Script>, Vec<LeftOut>),
}

impl Contents {
    /// Whether the files at these paths are still the ones that were found, and no file was added
    /// to their folder or removed.
    pub(crate) fn is_current(&self, root: &Root, wait: Wait) -> bool {
        let folder = root.folder_version(&self.names.folder, &self.names.begins, wait);
        folder.is_ok_and(|now| now == self.folder) && self.is_intact(root, wait)
    }

    fn is_intact(&self, root: &Root, wait: Wait) -> bool {
        let is_same = |path: &str, was: &FileVersion| {
            root.stat(path, wait).is_ok_and(|metadata| metadata.version == *was)
        };
        self.files.iter().all(|(path, was)| is_same(path, was))
    }

    /// Asks a store for all that [`is_current`](Self::is_current) compares.
    pub(crate) fn ask(&self, objects: &dyn Objects) -> impl Future<Output = ()> + Send + use<> {
        let listed = objects.list(&self.names.folder, &self.names.begins);
        let files: Vec<_> = self.files.keys().map(|path| objects.look_up(path)).collect();
        async move {
            // Who failed to answer is known by that.
            let _ = listed.await;
            for file in files {
                let _ = file.await;
            }
        }
    }

    /// Accepts a new listing of the folder if the title still has the same files, and returns
    /// whether it has.
    pub(crate) fn renew(&mut self, root: &Root, listing: &Listing) -> bool {
        let is_same = listing.refusal.is_none()
            && self.names == listing.names
            && self.is_intact(root, Wait::AsLongAsItTakes);
        if is_same {
            self.folder = listing.folder;
        }
        is_same
    }

    /// Version of a title made of these files and cut with these settings.
    pub(crate) fn version(&self, settings: &Settings) -> Version {
        let mut bytes = FORM.to_le_bytes().to_vec();
        bytes.extend(settings.segment_target.as_nanos().to_le_bytes());
        for (path, stamp) in &self.files {
            bytes.extend(path.as_bytes());
            bytes.extend(stamp.words().iter().flat_map(|word| word.to_le_bytes()));
        }
        Version(hash(&bytes))
    }

    pub(crate) fn memory(&self) -> usize {
        let names = self.files.keys().map(|path| 3 * path.len() + 200);
        self.names.folder.len() + names.sum::<usize>()
    }
}

/// Version of the packaging itself. It must be increased whenever the bytes of a segment or of a
/// header change, because caches keep both forever.
const FORM: u32 = 5;

/// The files that may be the title at `path`, found by their names alone.
#[derive(Debug)]
pub(crate) struct Listing {
    names: Names,
    /// Version of the folder before it was listed. A file that is added during the listing is then
    /// noticed next time.
    folder: FileVersion,
    /// Why these files are no title.
    pub(crate) refusal: Option<media::Error>,
}

impl Listing {
    /// The record of files that are no title. It tells when to look again.
    pub(crate) fn into_contents(self) -> Contents {
        let names = Names { movies: Vec::new(), sidecars: BTreeMap::new(), ..self.names };
        Contents { names, folder: self.folder, files: BTreeMap::new() }
    }
}

/// What the names of a movie's files begin with. A folder of a store may have very many names, and only few belong to the
/// movie.
fn beginning(movie: &str) -> String {
    format!("{}.", stem(movie))
}

/// Has a store asked for all that [`list`] and [`open`] ask first, at the same time. Does not block.
pub(crate) fn foresee(objects: &dyn Objects, path: &str) {
    objects.foresee(path, 0);
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    // Another file may be a movie, too. But it may be a folder as well.
    if is_movie(name) {
        drop(objects.list(folder, &beginning(name)));
    }
}

/// Lists the files of the title at `path`. `now` is the wall clock.
pub(crate) fn list(
    root: &Root,
    folders: &Folders,
    path: &str,
    now: SystemTime,
) -> Result<Listing, Error> {
    let failed = |error| Error::io(path, error);
    let metadata = root.stat(path, Wait::AsLongAsItTakes).map_err(failed)?;
    let (folder, movie) = if metadata.is_dir() {
        (path, None)
    } else if metadata.is_file() {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        (folder, Some(name))
    } else {
        return Err(Error::NotFound);
    };
    let begins = match (movie, root.objects()) {
        (Some(name), Some(_)) => beginning(name),
        _ => String::new(),
    };
    let listed = match root.list_objects(folder, &begins) {
        Some(listed) => Arc::new(Folder::of_objects(&listed.map_err(failed)?)),
        None => folders.list(root, folder, now).map_err(failed)?,
    };
    let too_many = |what: &'static str, value: usize, limit: usize| media::Error::Limit {
        what: what.into(),
        at: 0,
        value: value as u64,
        limit: limit as u64,
    };
    let mut refusal = None;
    if listed.is_too_full {
        match movie {
            // The movie does not need other files, and it is unknown which ones belong to it.
            Some(_) => {
                tracing::warn!(title = path, "no subtitles are looked for in so full a folder");
            }
            None => {
                let entries = limits::ENTRIES;
                refusal = Some(too_many("entries of a title's folder", entries + 1, entries));
            }
        }
    }
    let below = |name: &str| {
        if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
    };
    let mut chosen: Vec<&str> = movie.map_or_else(|| listed.movies().collect(), |one| vec![one]);
    chosen.sort_unstable();
    if chosen.is_empty() && refusal.is_none() {
        return Err(Error::NotFound);
    }
    if chosen.len() > limits::RENDITIONS {
        refusal = Some(too_many("files of one title", chosen.len(), limits::RENDITIONS));
    }
    let sidecars = listed
        .sidecars(movie)
        .take(limits::SIDECARS)
        .map(|(name, suffix)| (below(name), suffix.to_owned()));
    let names = Names {
        sidecars: sidecars.collect(),
        movies: chosen.into_iter().map(below).collect(),
        folder: folder.to_owned(),
        begins,
    };
    Ok(Listing { names, folder: listed.stamp, refusal })
}

/// The folders that were listed last. A folder that changes is listed once for all its titles,
/// however many are watched.
#[derive(Debug, Default)]
pub(crate) struct Folders {
    /// Listings by path, the last used at the end.
    kept: Mutex<Vec<(String, Arc<Slot>)>>,
    #[cfg(test)]
    pub(crate) listings: std::sync::atomic::AtomicUsize,
}

/// Locked while the folder is listed.
type Slot = Mutex<Option<Arc<Folder>>>;

/// The names in a folder.
#[derive(Debug)]
pub struct Folder {
    /// Version of the folder before it was listed. A file that is added during the listing is then
    /// noticed next time.
    stamp: FileVersion,
    /// Names, sorted; empty where the folder has too many entries.
    entries: Vec<String>,
    /// Indexes of the MP4 files in `entries`, sorted by their names without extension.
    movies: Vec<u32>,
    is_too_full: bool,
}

impl Folders {
    pub(crate) fn list(&self, root: &Root, path: &str, now: SystemTime) -> io::Result<Arc<Folder>> {
        let slot = self.slot(path);
        let mut known = slot.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = root.stat(path, Wait::AsLongAsItTakes)?.version;
        if let Some(known) = known.as_ref().filter(|known| known.stamp == stamp) {
            return Ok(Arc::clone(known));
        }
        #[cfg(test)]
        self.listings.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let folder = Arc::new(Folder::new(stamp, root.list(path, limits::ENTRIES)?));
        // A folder that changes twice within a tick of the file system's clock has the same time
        // after both changes. So a listing made right after a change may be incomplete, and is not
        // kept.
        *known = stamp.is_before(now - TICK).then(|| Arc::clone(&folder));
        Ok(folder)
    }

    fn slot(&self, path: &str) -> Arc<Slot> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let known = kept.iter().position(|(name, _)| name == path);
        let entry = match known {
            Some(at) => kept.remove(at),
            None => {
                if kept.len() == limits::FOLDERS {
                    kept.remove(0);
                }
                (path.to_owned(), Arc::default())
            }
        };
        let slot = Arc::clone(&entry.1);
        kept.push(entry);
        slot
    }
}

impl Folder {
    /// The names, sorted by their bytes; `None` where there are too many.
    pub fn names(&self) -> Option<&[String]> {
        (!self.is_too_full).then_some(&*self.entries)
    }

    /// Whether its files may be renditions of one title.
    pub fn is_title(&self) -> bool {
        (1..=limits::RENDITIONS).contains(&self.movies.len())
    }

    pub(crate) fn of_objects(listed: &Arc<payload::Names>) -> Self {
        Self::new(listed.version, listed.names.clone())
    }

    fn new(stamp: FileVersion, listed: Option<Vec<String>>) -> Self {
        let is_too_full = listed.is_none();
        let mut entries = listed.unwrap_or_default();
        entries.sort_unstable();
        entries.shrink_to_fit();
        let movie = |(at, name): (usize, &String)| is_movie(name).then_some(at as u32);
        let mut movies: Vec<u32> = entries.iter().enumerate().filter_map(movie).collect();
        movies.sort_by(|a, b| stem(&entries[*a as usize]).cmp(stem(&entries[*b as usize])));
        Self { stamp, entries, movies, is_too_full }
    }

    fn movies(&self) -> impl Iterator<Item = &str> {
        self.movies.iter().filter_map(|at| self.entries.get(*at as usize)).map(String::as_str)
    }

    /// Whether there is an MP4 file of this name, with any extension.
    fn has_movie(&self, wanted: &str) -> bool {
        let name = |at: &u32| self.entries.get(*at as usize).map_or("", |name| stem(name));
        self.movies.binary_search_by(|at| name(at).cmp(wanted)).is_ok()
    }

    /// The WebVTT files of a title, each with the part of its name that is not the movie's. A movie
    /// has those that are named after it; a folder has all of them.
    fn sidecars<'a>(&'a self, movie: Option<&'a str>) -> impl Iterator<Item = (&'a str, &'a str)> {
        let own = movie.map(stem);
        // Files of a movie begin with its name and a dot, so they are adjacent in the list.
        let prefix = own.map(|own| format!("{own}.")).unwrap_or_default();
        let first = self.entries.partition_point(|name| **name < *prefix);
        let candidates = self.entries[first..].iter();
        candidates.take_while(move |name| name.starts_with(&prefix)).filter_map(move |name| {
            let script = name.strip_suffix(".vtt").or_else(|| name.strip_suffix(".VTT"))?;
            if script.is_empty() || script.starts_with('.') {
                return None;
            }
            // `movie.extended.en.vtt` belongs to `movie.extended.mp4`, if that file exists. The
            // movie itself may have any extension.
            let shorter = |name: &&'a str| name.rsplit_once('.').map(|(name, _)| name);
            let mut names = std::iter::successors(Some(script), shorter);
            let owner = names.find(|name| own == Some(*name) || self.has_movie(name));
            let suffix = match owner {
                Some(owner) if own.is_none_or(|own| own == owner) => script.strip_prefix(owner)?,
                // In the folder of a title, every script belongs to the title.
                None if own.is_none() => script,
                _ => return None,
            };
            Some((name.as_str(), suffix))
        })
    }
}

/// Whether a file of this name is taken for a movie.
pub fn is_movie(name: &str) -> bool {
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
    !name.starts_with('.') && MP4.iter().any(|known| known.eq_ignore_ascii_case(ending))
}

fn stem(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(stem, _)| stem)
}

/// Opens the files of a title, and reads its subtitles.
pub(crate) fn open(root: &Root, listing: Listing) -> Result<Found, Error> {
    let Listing { names, folder, .. } = listing;
    let mut files = BTreeMap::new();
    let mut sources = Vec::new();
    // What is there is asked for all of them at the same time, where the listing does not tell.
    if let Some(objects) = root.objects() {
        names.movies.iter().chain(names.sidecars.keys()).for_each(|name| objects.foresee(name, 0));
    }
    for name in &names.movies {
        let (file, metadata) = root.open(name).map_err(|error| Error::io(name, error))?;
        files.insert(name.clone(), metadata.version);
        let (name, len, stamp) = (name.clone(), metadata.len, metadata.version);
        sources.push(Source { name, file, len, stamp, failure: OnceLock::new() });
    }
    fetch_indexes(&sources)?;
    let mut beside = (Vec::new(), Vec::new());
    let mut left = text::limits::ALL;
    for (name, suffix) in &names.sidecars {
        let (file, metadata) = match root.open(name) {
            Ok(opened) => opened,
            Err(error) if root.objects().is_some() && error.kind() != io::ErrorKind::NotFound => {
                return Err(Error::io(name, error));
            }
            // A script that has vanished, or leads out of the root, is ignored.
            Err(_) => continue,
        };
        files.insert(name.clone(), metadata.version);
        match script(name, suffix, &file, metadata.len, left)? {
            Ok(script) => {
                left = left.saturating_sub(metadata.len);
                beside.0.push(script);
            }
            Err(reason) => {
                let (file, codec) = (name.clone(), "wvtt".to_owned());
                beside.1.push(LeftOut { file, track: None, codec, reason });
            }
        }
    }
    Ok(Found { contents: Contents { names, folder, files }, sources, beside })
}

/// Fetches the indexes of objects: the heads of all at the same time, and then what these tell.
fn fetch_indexes(sources: &[Source]) -> Result<(), Error> {
    let copied = || sources.iter().filter(|source| source.file.is_copied());
    for range in [Source::head, Source::index] {
        let fetched = payload::fetch_all(copied().map(|source| (&*source.file, range(source))));
        for (source, fetched) in copied().zip(fetched) {
            fetched.map_err(|error| Error::io(&source.name, error))?;
        }
    }
    Ok(())
}

/// Reads a script. The inner error is the script's, the outer one that of a store.
fn script(
    name: &str,
    suffix: &str,
    file: &OpenFile,
    len: u64,
    left: u64,
) -> Result<Result<Script, String>, Error> {
    let limit = text::limits::BYTES;
    if len > limit {
        return Ok(Err(format!("{len} bytes exceed the limit of {limit}")));
    }
    if len > left {
        return Ok(Err(text::too_much()));
    }
    // The length is below the limit, which fits into memory.
    let bytes = match file.read_at(0, len as usize) {
        Ok(bytes) => bytes,
        Err(error) if file.is_copied() => return Err(Error::io(name, error)),
        Err(error) => return Ok(Err(error.to_string())),
    };
    Ok(text::parse_vtt(&bytes).map(|(blocks, cues)| {
        let (language, label) = text::names(suffix);
        Script { file: name.to_owned(), track: None, language, label, blocks, cues }
    }))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::sync::atomic::Ordering;

    use super::*;

    /// The time `by` after the last change of the folder.
    fn after(folder: &Path, by: Duration) -> SystemTime {
        fs::metadata(folder).unwrap().modified().unwrap() + by
    }

    #[test]
    fn a_folder_is_listed_once_for_all_titles_and_again_when_it_changes() {
        let temporary = tempfile::tempdir().unwrap();
        let (root, folders) = (Root::new(temporary.path()), Folders::default());
        let films = temporary.path().join("films");
        fs::create_dir(&films).unwrap();
        for number in 0..50 {
            for ending in ["mp4", "en.vtt", "extended.de.vtt"] {
                fs::write(films.join(format!("{number}.{ending}")), "").unwrap();
            }
        }
        let list = |number: u32, by: Duration| {
            let path = format!("films/{number}.mp4");
            let listing = list(&root, &folders, &path, after(&films, by)).unwrap();
            listing.names.sidecars.into_iter().collect::<Vec<_>>()
        };
        let listings = || folders.listings.load(Ordering::Relaxed);
        let found = |number: u32| {
            [("en.vtt", ".en"), ("extended.de.vtt", ".extended.de")]
                .map(|(ending, says)| (format!("films/{number}.{ending}"), says.to_owned()))
        };
        for number in 0..50 {
            assert_eq!(list(number, 2 * TICK), found(number));
        }
        assert_eq!(listings(), 1);
        // A file is added, so all titles look again.
        fs::write(films.join("1.extended.mp4"), "").unwrap();
        for number in 0..50 {
            let count = if number == 1 { 1 } else { 2 };
            assert_eq!(list(number, 2 * TICK), found(number)[..count]);
        }
        assert_eq!(listings(), 2);
        // Within a tick of a change, another change may have the same time.
        fs::remove_file(films.join("1.extended.mp4")).unwrap();
        for _ in 0..3 {
            assert_eq!(list(1, Duration::ZERO), found(1));
        }
        assert_eq!(listings(), 5);
    }

    #[test]
    fn names_of_few_folders_are_kept() {
        let temporary = tempfile::tempdir().unwrap();
        let (root, folders) = (Root::new(temporary.path()), Folders::default());
        for number in 0..=limits::FOLDERS {
            fs::create_dir(temporary.path().join(number.to_string())).unwrap();
            fs::write(temporary.path().join(format!("{number}/a.mp4")), "").unwrap();
        }
        for number in (0..=limits::FOLDERS).chain([0]) {
            let now = after(&temporary.path().join(number.to_string()), 2 * TICK);
            list(&root, &folders, &format!("{number}/a.mp4"), now).unwrap();
        }
        assert_eq!(folders.kept.lock().unwrap().len(), limits::FOLDERS);
        assert_eq!(folders.listings.load(Ordering::Relaxed), limits::FOLDERS + 2);
    }
}
