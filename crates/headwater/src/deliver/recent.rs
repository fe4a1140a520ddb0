//! Titles that a worker has recently looked up. It need not ask the library for them again.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use live::UnixMicros;
use tokio::sync::{OnceCell, Semaphore, SetOnce};
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
    turns: Arc<Semaphore>,
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

/// A lookup for which all requests of the title wait.
#[derive(Debug, Default)]
struct Lookup {
    /// Set when the lookup has begun. From then on it goes on even if all requests are aborted, and
    /// later requests join it.
    begun: OnceCell<()>,
    /// Empty until the lookup has ended.
    title: SetOnce<Result<Arc<Title>, Error>>,
}

impl Default for Recent {
    fn default() -> Self {
        let (titles, is_swept) = (RefCell::default(), Cell::default());
        let turns = Arc::new(Semaphore::new(LOOKUPS));
        Self(Rc::new(Shared { titles, turns, is_swept }))
    }
}

impl Recent {
    pub(super) fn find(&self, path: &str, now: UnixMicros) -> Option<Arc<Title>> {
        let titles = self.0.titles.borrow();
        let seen = titles.get(path).filter(|seen| seen.is_fresh(now))?;
        seen.lookup.title.get()?.as_ref().ok().cloned()
    }

    /// Looks up a title. Joins a lookup of the same title if one runs.
    pub(super) async fn look_up(
        &self,
        origin: &Arc<Origin>,
        path: &str,
    ) -> Result<Arc<Title>, Error> {
        let lookup = self.lookup(path, origin.now());
        if !self.0.is_swept.replace(true) {
            spawn_local(Rc::clone(&self.0).sweep(Arc::clone(origin)));
        }
        lookup.begun.get_or_init(|| self.begin(origin, path, &lookup)).await;
        lookup.title.wait().await.clone()
    }

    /// Begins a lookup, when it is its turn. Each task that waits for a thread has one of the turns,
    /// so aborted requests leave few tasks behind.
    async fn begin(&self, origin: &Arc<Origin>, path: &str, lookup: &Rc<Lookup>) {
        let begun = look_up::begin(origin, path, &self.0.turns).await;
        let lookup = Rc::clone(lookup);
        spawn_local(async move {
            // Only this task sets it.
            let _ = lookup.title.set(begun.title().await);
        });
    }

    fn lookup(&self, path: &str, now: UnixMicros) -> Rc<Lookup> {
        let mut titles = self.0.titles.borrow_mut();
        if let Some(seen) = titles.get(path)
            && !seen.lookup.title.initialized()
        {
            return Rc::clone(&seen.lookup);
        }
        let lookup = Rc::<Lookup>::default();
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
            // Requests that wait hold a lookup, and so does the task of one that runs.
            titles.retain(|_, seen| seen.is_fresh(now) || Rc::strong_count(&seen.lookup) > 1);
            if titles.is_empty() {
                break;
            }
        }
        self.is_swept.set(false);
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::LocalSet;

    use super::*;
    use crate::look_up::tests::Slow;

    #[tokio::test]
    async fn a_request_joins_the_lookup_of_an_aborted_one() {
        let slow = Slow::default();
        let (origin, recent) = (slow.origin(), Recent::default());
        let test = async {
            for _ in 0..3 {
                tokio::select! {
                    biased;
                    _ = recent.look_up(&origin, "a.mp4") => panic!("the store does not answer"),
                    () = slow.until_asked(1) => {}
                }
            }
            slow.answer();
            assert!(matches!(recent.look_up(&origin, "a.mp4").await, Err(Error::NotFound)));
            assert_eq!(slow.asked(), 1);
        };
        LocalSet::new().run_until(test).await;
    }
}
