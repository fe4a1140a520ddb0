//! Titles that a worker has recently looked up. It need not ask the library for them again.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use live::UnixMicros;
use tokio::sync::{OnceCell, Semaphore};
use tokio::task::spawn_local;
use vod::{Error, Title};

use crate::Origin;
use crate::look_up;
use crate::titles::LOOKUPS;

/// How long a worker assumes that a path leads to the same title.
const REMEMBERED: Duration = Duration::from_secs(1);
/// Most titles that a worker remembers.
const MOST: usize = 1024;

/// The titles that a worker has recently seen.
#[derive(Clone, Debug)]
pub(super) struct Recent(Rc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Titles by path.
    titles: RefCell<HashMap<Box<str>, Seen>>,
    turns: Semaphore,
    /// Whether a task is running that forgets them.
    is_swept: Cell<bool>,
}

/// A title, and the time of its lookup. This keeps the title alive. So a title for which the
/// library has no room is not built again for each request.
#[derive(Debug)]
struct Seen {
    lookup: Rc<Lookup>,
    at: UnixMicros,
}

/// Empty while the lookup runs. All requests meanwhile wait for the same lookup.
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

    /// Looks up a title. Joins a lookup of the same title if one runs.
    pub(super) async fn look_up(
        &self,
        origin: &Arc<Origin>,
        path: &str,
    ) -> Result<Arc<Title>, Error> {
        let lookup = self.lookup(path, origin.now());
        let title =
            lookup.get_or_init(|| look_up::title(origin, path, &self.0.turns)).await.clone();
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
    /// Forgets titles when their time is over, until none is left.
    async fn sweep(self: Rc<Self>, origin: Arc<Origin>) {
        loop {
            tokio::time::sleep(REMEMBERED).await;
            let now = origin.now();
            let mut titles = self.titles.borrow_mut();
            // Requests that wait hold a running lookup.
            titles.retain(|_, seen| seen.is_fresh(now) || Rc::strong_count(&seen.lookup) > 1);
            if titles.is_empty() {
                break;
            }
        }
        self.is_swept.set(false);
    }
}
