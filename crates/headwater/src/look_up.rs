//! Looks up titles.

use std::io;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, spawn_blocking};
use vod::{Error, Title};

use crate::Origin;

/// A lookup that has begun.
pub(crate) enum Begun {
    /// The title was known.
    Known(Result<Arc<Title>, Error>),
    /// A thread looks for the title at this path.
    Runs(JoinHandle<Result<Arc<Title>, Error>>, String),
}

/// Looks up a title, on a thread that may wait. A title of objects that is kept needs no thread. So
/// its viewers do not wait for titles that are being fetched.
pub(crate) async fn title(
    origin: &Arc<Origin>,
    path: &str,
    turns: &Arc<Semaphore>,
) -> Result<Arc<Title>, Error> {
    begin(origin, path, turns).await.title().await
}

/// Begins to look up a title, when it is its turn. A caller that stops waiting before that leaves
/// nothing behind.
pub(crate) async fn begin(origin: &Arc<Origin>, path: &str, turns: &Arc<Semaphore>) -> Begun {
    if let Some(known) = origin.titles.known(path) {
        return Begun::Known(known);
    }
    if let Some(asked) = origin.titles.ask(path) {
        asked.await;
        if let Some(known) = origin.titles.known(path) {
            return Begun::Known(known);
        }
    }
    // The semaphore is never closed.
    let turn = Arc::clone(turns).acquire_owned().await;
    let (library, wanted) = (Arc::clone(origin), path.to_owned());
    let thread = spawn_blocking(move || {
        // The thread cannot be stopped. It holds the turn to its end, also when nobody waits for
        // the title any more.
        let _turn = turn;
        library.titles.title(&wanted)
    });
    Begun::Runs(thread, path.to_owned())
}

impl Begun {
    /// Waits for the title.
    pub(crate) async fn title(self) -> Result<Arc<Title>, Error> {
        let (thread, path) = match self {
            Self::Known(known) => return known,
            Self::Runs(thread, path) => (thread, path),
        };
        thread.await.unwrap_or_else(|died| {
            let source = Arc::new(io::Error::other(died));
            Err(Error::Io { what: path, source })
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::pin::pin;

    use payload::{Answer, Metadata, Names, Objects, OpenFile, Root};
    use tokio::sync::{SetOnce, watch};

    use super::*;
    use crate::config::Config;

    /// A store that has nothing, and says so only when the test lets it.
    #[derive(Debug, Default)]
    pub(crate) struct Slow(Arc<State>);

    #[derive(Debug, Default)]
    struct State {
        /// How many threads have asked.
        asked: watch::Sender<usize>,
        /// Set when the store answers.
        answers: Arc<SetOnce<()>>,
    }

    impl Slow {
        /// An origin with this store.
        pub(crate) fn origin(&self) -> Arc<Origin> {
            let mut origin = Origin::new(Config::default());
            let root = Root::of_objects(Arc::<State>::clone(&self.0));
            origin.titles = vod::Library::new(root, vod::Settings::default());
            Arc::new(origin)
        }

        /// Waits until so many threads have asked.
        pub(crate) async fn until_asked(&self, times: usize) {
            self.0.asked.subscribe().wait_for(|asked| *asked >= times).await.unwrap();
        }

        /// How many threads have asked.
        pub(crate) fn asked(&self) -> usize {
            *self.0.asked.borrow()
        }

        /// Has the store answer.
        pub(crate) fn answer(&self) {
            let _ = self.0.answers.set(());
        }
    }

    impl Drop for Slow {
        /// The threads of a test that failed must end.
        fn drop(&mut self) {
            self.answer();
        }
    }

    impl Objects for State {
        fn known(&self, _: &str) -> Option<io::Result<Metadata>> {
            None
        }
        fn foresee(&self, _: &str, _: u64) {}
        fn look_up(&self, _: &str) -> Answer<Metadata> {
            self.asked.send_modify(|asked| *asked += 1);
            let answers = Arc::clone(&self.answers);
            Box::pin(async move {
                answers.wait().await;
                Err(io::ErrorKind::NotFound.into())
            })
        }
        fn open(&self, _: &str) -> Answer<(Option<Arc<OpenFile>>, Metadata)> {
            Box::pin(std::future::ready(Err(io::ErrorKind::NotFound.into())))
        }
        fn known_list(&self, _: &str, _: &str) -> Option<Arc<Names>> {
            None
        }
        fn list(&self, _: &str, _: &str) -> Answer<Arc<Names>> {
            Box::pin(std::future::ready(Err(io::ErrorKind::NotFound.into())))
        }
    }

    #[tokio::test]
    async fn aborted_lookups_keep_their_turns_until_their_threads_end() {
        let slow = Slow::default();
        let (origin, turns) = (slow.origin(), Arc::new(Semaphore::new(2)));
        for path in ["a.mp4", "b.mp4"] {
            let before = slow.asked();
            tokio::select! {
                _ = title(&origin, path, &turns) => panic!("the store does not answer"),
                () = slow.until_asked(before + 1) => {}
            }
        }
        assert_eq!(turns.available_permits(), 0);
        let mut next = pin!(title(&origin, "c.mp4", &turns));
        tokio::select! {
            biased;
            _ = &mut next => panic!("there is no turn"),
            () = std::future::ready(()) => {}
        }
        slow.answer();
        assert!(matches!(next.await, Err(Error::NotFound)));
        assert_eq!(slow.asked(), 3);
    }
}
