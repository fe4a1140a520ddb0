//! Titles that a worker need not ask the library for.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use live::UnixMicros;
use tokio::sync::{OnceCell, Semaphore};
use tokio::task::{spawn_blocking, spawn_local};
use vod::{Error, Title};

use crate::Origin;

/// How long a worker takes a path to lead to the same title.
const REMEMBERED: Duration = Duration::from_secs(1);
/// Titles that a worker remembers.
const MOST: usize = 1024;

/// Titles that a worker looks up at a time: each holds a thread, which other files need too.
const LOOKUPS: usize = 16;

/// Which titles a worker has just seen.
#[derive(Clone, Debug)]
pub(super) struct Recent(Rc<Shared>);

#[derive(Debug)]
struct Shared {
    /// By path.
    titles: RefCell<HashMap<Box<str>, Seen>>,
    turns: Semaphore,
    /// Whether somebody will let go of the titles.
    is_swept: Cell<bool>,
}

/// A title, and when its path led to it. It is kept for as long as it is remembered, so that one
/// that the library has no room for is not made again for each request.
#[derive(Debug)]
struct Seen {
    lookup: Rc<Lookup>,
    at: UnixMicros,
}

/// Empty while it is under way: all who ask meanwhile wait for the same.
type Lookup = OnceCell<Result<Arc<Title>, Error>>;

impl Default for Recent {
    fn default() -> Self {
        let (titles, is_swept) = (RefCell::default(), Cell::default());
        Self(Rc::new(Shared { titles, turns: Semaphore::new(LOOKUPS), is_swept }))
    }
}

impl Recent {
    pub(super) fn find(&self, path: &str, now: UnixMicros) -> Option<Arc<Title>> {
        let titles = self.0.titles.borrow();
        let seen = titles.get(path).filter(|seen| seen.is_fresh(now))?;
        seen.lookup.get()?.as_ref().ok().cloned()
    }

    /// Asks the library, together with whoever is asking it already.
    pub(super) async fn look_up(
        &self,
        origin: &Arc<Origin>,
        path: &str,
    ) -> Result<Arc<Title>, Error> {
        let lookup = self.lookup(path, origin.now());
        let ask = async || {
            // Never closed.
            let _turn = self.0.turns.acquire().await;
            let (library, wanted) = (Arc::clone(origin), path.to_owned());
            let asked = spawn_blocking(move || library.titles.title(&wanted)).await;
            asked.unwrap_or_else(|died| {
                let source = Arc::new(std::io::Error::other(died));
                Err(Error::Io { what: path.to_owned(), source })
            })
        };
        let title = lookup.get_or_init(ask).await.clone();
        if !self.0.is_swept.replace(true) {
            spawn_local(Rc::clone(&self.0).sweep(Arc::clone(origin)));
        }
        title
    }

    fn lookup(&self, path: &str, now: UnixMicros) -> Rc<Lookup> {
        let mut titles = self.0.titles.borrow_mut();
        if let Some(seen) = titles.get(path)
            && !seen.lookup.initialized()
        {
            return Rc::clone(&seen.lookup);
        }
        let lookup = Rc::new(Lookup::new());
        if titles.len() < MOST || titles.contains_key(path) {
            titles.insert(path.into(), Seen { lookup: Rc::clone(&lookup), at: now });
        }
        lookup
    }
}

impl Seen {
    fn is_fresh(&self, now: UnixMicros) -> bool {
        now.since(self.at) < REMEMBERED
    }
}

impl Shared {
    /// Lets go of titles as they are no longer remembered, until there are none.
    async fn sweep(self: Rc<Self>, origin: Arc<Origin>) {
        loop {
            tokio::time::sleep(REMEMBERED).await;
            let now = origin.now();
            let mut titles = self.titles.borrow_mut();
            // What is under way is held by those who wait for it.
            titles.retain(|_, seen| seen.is_fresh(now) || Rc::strong_count(&seen.lookup) > 1);
            if titles.is_empty() {
                break;
            }
        }
        self.is_swept.set(false);
    }
}
