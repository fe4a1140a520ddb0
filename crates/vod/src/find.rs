//! Which files a title is made of, and whether they still are what they were.

use std::collections::{BTreeMap, HashSet};
use std::fs::Metadata;
use std::io::Read;
use std::sync::Arc;

use crate::build::Source;
use crate::rendered::hash;
use crate::root::{Root, Stamp};
use crate::text::{self, Script};
use crate::title::{LeftOut, Version};
use crate::{Error, Settings};

/// The most of anything a folder may hold.
mod limits {
    /// Files in the folder of a movie.
    pub(super) const ENTRIES: usize = 100_000;
    /// MP4 files that are one title. A folder of more is a collection.
    pub(super) const RENDITIONS: usize = 16;
    /// WebVTT files of a title.
    pub(super) const SIDECARS: usize = 64;
}

/// Names of MP4 files.
const MP4: [&str; 6] = ["mp4", "m4v", "m4a", "mov", "cmfv", "cmfa"];

/// Names of a title's files, by which it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Names {
    /// Folder below the root.
    folder: String,
    /// The MP4 files, below the root, sorted.
    pub(crate) movies: Vec<String>,
    /// The WebVTT files, below the root, each with what its name says beside the movie's.
    pub(crate) sidecars: BTreeMap<String, String>,
}

/// Names and stamps: as long as they are the same, the title is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Contents {
    names: Names,
    /// Of the folder: it changes when a file comes or goes.
    folder: Stamp,
    files: BTreeMap<String, Stamp>,
}

/// A title's files, open.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) contents: Contents,
    pub(crate) sources: Vec<Source>,
    pub(crate) beside: (Vec<Script>, Vec<LeftOut>),
}

impl Contents {
    /// Whether the files at these paths still are the ones that were found.
    pub(crate) fn is_current(&self, root: &Root) -> bool {
        let stamp = |path: &str| root.stat(path).ok().map(|metadata| Stamp::of(&metadata));
        stamp(&self.names.folder) == Some(self.folder)
            && self.files.iter().all(|(path, was)| stamp(path) == Some(*was))
    }

    /// Whether both are the same files with the same content, whatever else their folder has
    /// gained or lost.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.names == other.names && self.files == other.files
    }

    /// Of these files, cut this way.
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

/// How titles are packaged, counted: what changes the bytes of a segment counts it up, because
/// caches keep segments for good.
const FORM: u32 = 3;

/// Which files may be the title at `path`, found by names alone.
#[derive(Debug)]
pub(crate) struct Listing {
    names: Names,
    /// Of the folder, before it was listed: what comes while it is listed is seen next time.
    folder: Stamp,
    /// Why they are no title.
    pub(crate) refusal: Option<media::Error>,
}

impl Listing {
    /// What is remembered of files that are no title: when to look again.
    pub(crate) fn into_contents(self) -> Contents {
        let names = Names { movies: Vec::new(), sidecars: BTreeMap::new(), ..self.names };
        Contents { names, folder: self.folder, files: BTreeMap::new() }
    }
}

/// Lists the files of the title at `path`.
pub(crate) fn list(root: &Root, path: &str) -> Result<Listing, Error> {
    let failed = |error| Error::io(path, error);
    let metadata = root.stat(path).map_err(failed)?;
    let (folder, movie) = if metadata.is_dir() {
        (path, None)
    } else if metadata.is_file() {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        (folder, Some(name))
    } else {
        return Err(Error::NotFound);
    };
    let stamp = Stamp::of(&root.stat(folder).map_err(failed)?);
    let listed = root.list(folder, limits::ENTRIES).map_err(failed)?;
    let too_many = |what: &'static str, value: usize, limit: usize| media::Error::Limit {
        what: what.into(),
        at: 0,
        value: value as u64,
        limit: limit as u64,
    };
    let mut refusal = None;
    if listed.is_none() {
        match movie {
            // The movie does not need the others; nor is it known what belongs to it.
            Some(_) => {
                tracing::warn!(title = path, "no subtitles are looked for in so full a folder");
            }
            None => {
                let entries = limits::ENTRIES;
                refusal = Some(too_many("entries of a title's folder", entries + 1, entries));
            }
        }
    }
    let mut entries = listed.unwrap_or_default();
    entries.sort_unstable();
    let below = |name: &str| {
        if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
    };
    let movies: Vec<&str> =
        entries.iter().map(String::as_str).filter(|name| is_movie(name)).collect();
    let chosen: Vec<&str> = movie.map_or_else(|| movies.clone(), |movie| vec![movie]);
    if chosen.is_empty() && refusal.is_none() {
        return Err(Error::NotFound);
    }
    if chosen.len() > limits::RENDITIONS {
        refusal = Some(too_many("files of one title", chosen.len(), limits::RENDITIONS));
    }
    let sidecars = sidecars(&entries, &movies, movie)
        .take(limits::SIDECARS)
        .map(|(name, suffix)| (below(name), suffix.to_owned()));
    let names = Names {
        sidecars: sidecars.collect(),
        movies: chosen.into_iter().map(below).collect(),
        folder: folder.to_owned(),
    };
    Ok(Listing { names, folder: stamp, refusal })
}

/// The WebVTT files of a title, each with what its name says beside the movie's: of one movie those
/// that are named after it, of a folder all.
fn sidecars<'a>(
    entries: &'a [String],
    movies: &[&'a str],
    movie: Option<&'a str>,
) -> impl Iterator<Item = (&'a str, &'a str)> {
    let own = movie.map(stem);
    // A movie's name may have another ending.
    let stems: HashSet<&str> = movies.iter().map(|name| stem(name)).chain(own).collect();
    entries.iter().filter_map(move |name| {
        let script = name.strip_suffix(".vtt").or_else(|| name.strip_suffix(".VTT"))?;
        if script.is_empty() || script.starts_with('.') {
            return None;
        }
        if own.is_some_and(|own| !script.starts_with(own)) {
            return None;
        }
        // `movie.extended.en.vtt` is that of `movie.extended.mp4`, if that exists.
        let shorter = |name: &&'a str| name.rsplit_once('.').map(|(name, _)| name);
        let owner = std::iter::successors(Some(script), shorter).find(|name| stems.contains(name));
        let suffix = match owner {
            Some(owner) if own.is_none_or(|own| own == owner) => script.strip_prefix(owner)?,
            // In the folder of a title every script is the title's.
            None if own.is_none() => script,
            _ => return None,
        };
        Some((name.as_str(), suffix))
    })
}

fn is_movie(name: &str) -> bool {
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
    for name in &names.movies {
        let (file, metadata) = root.open(name).map_err(|error| Error::io(name, error))?;
        let stamp = Stamp::of(&metadata);
        files.insert(name.clone(), stamp);
        let (name, len) = (name.clone(), metadata.len());
        sources.push(Source { name, file: Arc::new(file), len, stamp });
    }
    let mut beside = (Vec::new(), Vec::new());
    let mut left = text::limits::ALL;
    for (name, suffix) in &names.sidecars {
        // A script that vanished meanwhile, or leads out of the root, is none.
        let Ok((file, metadata)) = root.open(name) else { continue };
        files.insert(name.clone(), Stamp::of(&metadata));
        match script(name, suffix, file, &metadata, left) {
            Ok(script) => {
                left = left.saturating_sub(metadata.len());
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

fn script(
    name: &str,
    suffix: &str,
    file: std::fs::File,
    metadata: &Metadata,
    left: u64,
) -> Result<Script, String> {
    let limit = text::limits::BYTES;
    if metadata.len() > limit {
        return Err(format!("{} bytes exceed the limit of {limit}", metadata.len()));
    }
    if metadata.len() > left {
        return Err(text::too_much());
    }
    let mut bytes = Vec::new();
    file.take(limit.min(left)).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    let (blocks, cues) = text::parse_vtt(&bytes)?;
    let (language, label) = text::names(suffix);
    Ok(Script { file: name.to_owned(), track: None, language, label, blocks, cues })
}
