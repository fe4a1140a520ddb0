//! What is at a path of the store, and which names a folder has.

use std::collections::HashMap;
use std::sync::Arc;

use payload::{FileVersion, Kind, Metadata, Names};
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};

use crate::Settings;
use crate::answers::{Answers, Question};
use crate::blocks::hole;
use crate::cache::Cache;
use crate::fault::Fault;
use crate::meta::{Meta, hash};
use crate::requests::{Fetched, KEY, Listed, Requests};

/// Most names of a folder. A longer folder has no list.
pub(crate) const NAMES: usize = 10_000;
/// Most paths and names that are remembered.
const REMEMBERED: usize = 50_000;

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    Object(Meta),
    Folder,
    Nothing,
}

impl Found {
    pub(crate) fn metadata(&self) -> std::io::Result<Metadata> {
        match self {
            Self::Object(meta) => Ok(meta.metadata()),
            Self::Folder => Ok(Metadata {
                kind: Kind::Folder,
                len: 0,
                modified: None,
                version: FileVersion::default(),
                state: None,
            }),
            Self::Nothing => Err(std::io::ErrorKind::NotFound.into()),
        }
    }
}

/// Names of a folder, or some of them.
#[derive(Debug)]
struct List {
    names: Arc<Names>,
    items: HashMap<String, Found>,
    /// Whether the cache made the list, and not the store. Then names may be missing.
    is_cached: bool,
}

/// What is known of the names in a store.
#[derive(Debug, Clone)]
pub(crate) struct Directory {
    paths: Arc<Answers<Found>>,
    lists: Arc<Answers<Arc<List>>>,
    requests: Arc<Requests>,
    cache: Arc<Cache>,
}

impl Directory {
    pub(crate) fn new(
        runtime: &Handle,
        settings: &Settings,
        requests: Arc<Requests>,
        cache: Arc<Cache>,
    ) -> Self {
        let (good, timeout) = (settings.revalidate, settings.timeout);
        let paths = Answers::new(runtime.clone(), good, timeout, REMEMBERED, |_| 0);
        let weight = |list: &Arc<List>| list.items.len();
        let lists = Answers::new(runtime.clone(), good, timeout, REMEMBERED, weight);
        Self { paths: Arc::new(paths), lists: Arc::new(lists), requests, cache }
    }

    /// What is at a path, if it is known.
    pub(crate) fn known(&self, path: &str) -> Option<Found> {
        if path.is_empty() {
            return Some(Found::Folder);
        }
        if !is_key(path) {
            return Some(Found::Nothing);
        }
        let known = self.paths.known(path, || self.question(path, None));
        // An answer that is on its way brings bytes along, perhaps.
        if known.is_some() || self.paths.coming(path).is_some() {
            known
        } else {
            self.implied(path)
        }
    }

    /// What is at a path, if it is known. Otherwise the store is asked, and if it is an object, this block is fetched by
    /// the same request.
    pub(crate) fn foresee(&self, path: &str, block: u32) -> Option<Found> {
        let known = self.known(path);
        if known.is_none() {
            drop(self.paths.get(path, || self.question(path, Some(block))));
        }
        known
    }

    /// Asks what is at a path.
    pub(crate) fn look_up(
        &self,
        path: &str,
    ) -> impl Future<Output = Result<Found, Fault>> + Send + use<> {
        let known = self.known(path);
        let asked = known.is_none().then(|| self.paths.get(path, || self.question(path, None)));
        async move {
            match (known, asked) {
                (Some(known), _) => Ok(known),
                (None, Some(asked)) => asked.await,
                (None, None) => Ok(Found::Nothing),
            }
        }
    }

    /// The names in a folder that begin with `begins`, if they are known.
    pub(crate) fn known_list(&self, folder: &str, begins: &str) -> Option<Arc<Names>> {
        if !is_folder(folder) {
            return Some(Arc::default());
        }
        Some(Arc::clone(&self.list_of(folder, begins)?.names))
    }

    /// Asks for the names in a folder that begin with `begins`.
    pub(crate) fn list(
        &self,
        folder: &str,
        begins: &str,
    ) -> impl Future<Output = Result<Arc<Names>, Fault>> + Send + use<> {
        let known = self.known_list(folder, begins);
        let name = list_name(folder, begins);
        let asked =
            known.is_none().then(|| self.lists.get(&name, || self.list_question(folder, begins)));
        async move {
            match (known, asked) {
                (Some(known), _) => Ok(known),
                (None, Some(asked)) => Ok(Arc::clone(&asked.await?.names)),
                (None, None) => Ok(Arc::default()),
            }
        }
    }

    /// Forgets an object that was replaced.
    pub(crate) fn forget(&self, path: &str) {
        self.paths.forget(path);
        let (folder, name) = split(path);
        for begins in std::iter::once("").chain(beginnings(name)) {
            self.lists.forget(&list_name(folder, begins));
        }
    }

    /// What other answers say of a path: nothing is below an object, and a folder whose names are
    /// all known has no others. Nor has it others that begin as names do that are all known.
    fn implied(&self, path: &str) -> Option<Found> {
        let (folder, name) = split(path);
        let mut lists = beginnings(name).filter_map(|begins| self.list_of(folder, begins));
        if let Some(list) = lists.find(|list| list.is_whole()) {
            return Some(list.items.get(name).cloned().unwrap_or(Found::Nothing));
        }
        let mut above = path;
        while let Some((folder, below)) = above.rsplit_once('/') {
            if let Some(Found::Object(_) | Found::Nothing) =
                self.paths.known(folder, || self.question(folder, None))
            {
                return Some(Found::Nothing);
            }
            if let Some(list) = self.list_of(folder, "")
                && list.is_whole()
            {
                match list.items.get(below) {
                    Some(found) if above.len() == path.len() => return Some(found.clone()),
                    Some(Found::Folder) => {}
                    _ => return Some(Found::Nothing),
                }
            }
            above = folder;
        }
        None
    }

    /// Asks the store what is at a path, and fetches this block if it is an object. The names of a folder are kept, because
    /// they tell what is below it. All questions have one deadline, because a viewer waits for them.
    async fn ask(&self, path: &str, block: Option<u32>) -> Result<Found, Fault> {
        let until = self.requests.deadline();
        let object = async || match self.object(path, block, until).await {
            Ok(meta) => Ok(Some(Found::Object(meta))),
            Err(Fault::NotFound) => Ok(None),
            Err(fault) => Err(fault),
        };
        let folder = async || {
            // The names that begin as this one does may be known, or on their way.
            let like = timeout_at(until, self.like(path)).await.ok().flatten();
            let name = split(path).1;
            if like.is_some_and(|list| !matches!(list.items.get(name), Some(Found::Folder))) {
                return Ok(None);
            }
            let question = || self.list_question(path, "");
            let list = timeout_at(until, self.lists.get(&list_name(path, ""), question)).await;
            let list = list.map_err(|_| Fault::away("no list of the folder in time"))??;
            Ok::<_, Fault>((!list.items.is_empty()).then_some(Found::Folder))
        };
        let found = if is_of_object(split(path).1) {
            match object().await? {
                None => folder().await?,
                found => found,
            }
        } else {
            match folder().await? {
                None => object().await?,
                found => found,
            }
        };
        Ok(found.unwrap_or(Found::Nothing))
    }

    /// Asks for an object. Its metadata comes with the block, unless that is here.
    async fn object(&self, path: &str, block: Option<u32>, until: Instant) -> Result<Meta, Fault> {
        let Some(number) = block.filter(|number| !self.cache.has(path, *number)) else {
            return self.requests.head(path, until).await;
        };
        self.requests.counts.misses.add(1);
        let (meta, fetched) = match self.requests.first(path, hole(number), until).await {
            // It is empty, or ends before that.
            Err(Fault::Beyond) => return self.requests.head(path, until).await,
            first => first?,
        };
        let (cache, path, version) = (Arc::clone(&self.cache), path.to_owned(), meta.clone());
        let Fetched { bytes, slot } = fetched;
        let adopted = spawn_blocking(move || {
            cache.adopt(&path, &version, number, &bytes);
            // Bytes that wait for the disk are bounded as those are that come from the store.
            drop(slot);
        });
        let _ = adopted.await;
        Ok(meta)
    }

    /// The names that begin as the last of a path does, if they are known or on their way.
    async fn like(&self, path: &str) -> Option<Arc<List>> {
        let (folder, name) = split(path);
        let begins = beginnings(name).last()?;
        let list = match self.lists.coming(&list_name(folder, begins)) {
            Some(coming) => coming.await.ok(),
            None => self.list_of(folder, begins),
        };
        list.filter(|list| list.is_whole())
    }

    fn list_of(&self, folder: &str, begins: &str) -> Option<Arc<List>> {
        let name = list_name(folder, begins);
        self.lists.known(&name, || self.list_question(folder, begins))
    }

    fn question(&self, path: &str, block: Option<u32>) -> Question<Found> {
        let (this, asked) = (self.clone(), path.to_owned());
        let reply = Box::pin(async move {
            let found = this.ask(&asked, block).await?;
            if !matches!(found, Found::Object(_)) {
                this.cache.deleted(&asked);
            }
            Ok(found)
        });
        let (cache, path) = (Arc::clone(&self.cache), path.to_owned());
        Question { reply, cached: Box::new(move || cache.newest(&path).map(Found::Object)) }
    }

    fn list_question(&self, folder: &str, begins: &str) -> Question<Arc<List>> {
        let (requests, cache) = (Arc::clone(&self.requests), Arc::clone(&self.cache));
        let (folder, begins) = (folder.to_owned(), begins.to_owned());
        let (asked, beginning) = (folder.clone(), begins.clone());
        let reply = Box::pin(async move {
            let listed = requests.list(&asked, &beginning, NAMES).await?;
            Ok(Arc::new(List::of(listed, false)))
        });
        let cached = Box::new(move || {
            let items = cache.below(&folder, &begins, NAMES);
            let listed = Listed { items, is_cut: false };
            (!listed.items.is_empty()).then(|| Arc::new(List::of(listed, true)))
        });
        Question { reply, cached }
    }
}

impl List {
    fn of(listed: Listed, is_cached: bool) -> Self {
        let found = |meta: Option<Meta>| meta.map_or(Found::Folder, Found::Object);
        let mut names: Vec<String> = listed.items.iter().map(|(name, _)| name.clone()).collect();
        names.sort_unstable();
        names.dedup();
        let hashed: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
        let version = FileVersion::of_object(hash(&hashed), names.len() as u64, 0);
        let is_whole = !listed.is_cut && names.len() <= NAMES;
        let names = is_whole.then_some(names);
        // Where an object and a folder have the same name, the last of the two is taken.
        let mut items: Vec<_> = listed.items;
        items.sort_by_key(|(name, meta)| meta.is_some() == is_of_object(name));
        let items = items.into_iter().map(|(name, meta)| (name, found(meta))).collect();
        Self { names: Arc::new(Names { names, version }), items, is_cached }
    }

    /// Whether no name is missing.
    fn is_whole(&self) -> bool {
        self.names.names.is_some() && !self.is_cached
    }
}

/// Whether a name is an object's where an object and a folder have it: a name with a dot in it is
/// probably a file's.
fn is_of_object(name: &str) -> bool {
    name.contains('.')
}

/// Most dots of a name after which its beginnings are looked at.
const DOTS: usize = 8;

/// Prefixes of a name that select lists with it: `film.en.vtt` is in the lists of `film.` and `film.en.`.
fn beginnings(name: &str) -> impl Iterator<Item = &str> {
    let dots = name.match_indices('.').map(|(at, _)| at);
    // The last dot is that of the ending: a list of a title's files has the prefix up to that dot.
    let last = name.rfind('.').filter(|_| dots.clone().nth(DOTS).is_some());
    dots.take(DOTS).chain(last).filter_map(|at| name.get(..=at))
}

/// The folder of a path, and the name in it.
fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// The name of a list. No path has a zero byte.
fn list_name(folder: &str, begins: &str) -> String {
    format!("{folder}\0{begins}")
}

/// Whether a path can be the key of an object.
fn is_key(path: &str) -> bool {
    let plain = |name: &str| !matches!(name, "" | "." | "..");
    path.len() <= KEY && !path.bytes().any(|b| b.is_ascii_control()) && path.split('/').all(plain)
}

fn is_folder(path: &str) -> bool {
    path.is_empty() || is_key(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_are_no_keys() {
        let long = "x".repeat(KEY + 1);
        for path in ["", "/a", "a/", "a//b", "a/../b", "./a", "a\nb", long.as_str()] {
            assert!(!is_key(path), "{path:?}");
        }
        for path in ["a", "a b/ü.mp4", "a/..b/c."] {
            assert!(is_key(path), "{path:?}");
        }
    }

    #[test]
    fn names_have_beginnings_that_lists_have() {
        let of = |name| beginnings(name).collect::<Vec<_>>();
        assert_eq!(of("film.en.vtt"), ["film.", "film.en."]);
        assert_eq!((of("film"), of(".x"), of("ü.")), (vec![], vec!["."], vec!["ü."]));
        let many = "x.".repeat(500);
        assert_eq!((of(&many).len(), of(&many)[DOTS]), (DOTS + 1, &*many));
    }

    #[test]
    fn a_list_has_a_version_that_its_names_decide() {
        let meta = |size| Meta::new(size, None, 0);
        let list = |items: &[(&str, Option<u64>)], is_cut| {
            let items = items.iter().map(|(name, size)| ((*name).to_owned(), size.map(meta)));
            List::of(Listed { items: items.collect(), is_cut }, false)
        };
        let one = list(&[("a", Some(1)), ("b", None)], false);
        let same = list(&[("b", None), ("a", Some(2))], false);
        let other = list(&[("ab", None)], false);
        assert_eq!(one.names, same.names);
        assert_ne!(one.names.version, other.names.version);
        assert_eq!(list(&[("a", Some(1))], true).names.names, None);
        for order in [[Some(1), None], [None, Some(1)]] {
            let both = list(&order.map(|size| ("a", size)), false);
            assert_eq!(both.items["a"], Found::Folder);
            let both = list(&order.map(|size| ("a.mp4", size)), false);
            assert_eq!(both.items["a.mp4"], Found::Object(meta(1)));
        }
    }
}
