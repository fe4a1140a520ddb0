//! The names by which log lines tell which connection, session or request they are about.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::task::futures::TaskLocalFuture;

tokio::task_local! {
    static CURRENT: LogId;
}

/// The number of the next connection that a line is about.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// In place of a number: there is none, or a connection has none yet.
const NONE: u64 = 0;
const UNNAMED: u64 = u64::MAX;

/// Names what a task does for a peer. The log adds it to each line that is written within [`LogId::scope`]: no place in
/// the code that logs has to know it.
///
/// A connection gets its number, which no other connection of this process has, with the first line that is about it, or
/// when a second task goes on with it. So the many about which nothing is logged cost next to nothing.
#[derive(Clone, Debug, Default)]
pub struct LogId {
    connection: Cell<u64>,
    session: Cell<u64>,
    request: Option<Arc<str>>,
}

/// The names that a line gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Names<'a> {
    /// The connection's number.
    pub connection: Option<u64>,
    /// The number by which the API lists who publishes or plays.
    pub session: Option<u64>,
    /// The id of a request to the control plane, or of the one that began the session.
    pub request: Option<&'a str>,
}

impl LogId {
    /// A new connection.
    pub fn connection() -> Self {
        Self { connection: Cell::new(UNNAMED), ..Self::default() }
    }

    /// A request that has an id.
    pub fn request(id: Arc<str>) -> Self {
        Self { request: Some(id), ..Self::default() }
    }

    /// The same, for a request that has an id.
    #[must_use]
    pub(crate) fn and_request(self, id: Arc<str>) -> Self {
        Self { request: Some(id), ..self }
    }

    /// That of the current task, for another task that goes on with the same.
    pub fn current() -> Self {
        let named = |id: &Self| {
            id.names();
            id.clone()
        };
        CURRENT.try_with(named).unwrap_or_default()
    }

    /// Names all that a future does.
    pub fn scope<F: Future>(self, future: F) -> TaskLocalFuture<Self, F> {
        CURRENT.scope(self, future)
    }

    /// Names what a function does.
    pub fn within<T>(self, does: impl FnOnce() -> T) -> T {
        CURRENT.sync_scope(self, does)
    }

    /// Notes that what the current task does is a session of the API, from now on. `number` is not 0.
    pub fn begin_session(number: u64) {
        let _ = CURRENT.try_with(|id| id.session.set(number));
    }

    /// Notes that this session is over: the connection may go on, with another one later.
    pub fn end_session(number: u64) {
        let _ = CURRENT.try_with(|id| {
            if id.session.get() == number {
                id.session.set(NONE);
            }
        });
    }

    /// Calls a function with the names of what the caller does.
    pub fn tell(told: impl FnOnce(Names<'_>)) {
        // Outside of any scope, nothing is to be told.
        let _ = CURRENT.try_with(|id| told(id.names()));
    }

    /// The names. The connection has a number from now on at the latest.
    fn names(&self) -> Names<'_> {
        if self.connection.get() == UNNAMED {
            self.connection.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        let number = |cell: &Cell<u64>| Some(cell.get()).filter(|&number| number != NONE);
        let request = self.request.as_deref();
        Names { connection: number(&self.connection), session: number(&self.session), request }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of a connection and of a session.
    fn told() -> Option<(Option<u64>, Option<u64>)> {
        let mut found = None;
        LogId::tell(|names| found = Some((names.connection, names.session)));
        found
    }

    #[tokio::test]
    async fn a_task_has_the_names_of_its_scope_and_others_have_their_own() {
        assert_eq!(told(), None);
        let (own, other, again) = LogId::connection()
            .scope(async {
                CURRENT.with(|id| assert_eq!(id.connection.get(), UNNAMED, "nothing was logged"));
                let own = told().unwrap();
                let other = LogId::connection().scope(async { told().unwrap() });
                let other = tokio::spawn(other).await.unwrap();
                assert_eq!(tokio::spawn(async { told() }).await.unwrap(), None);
                let same = tokio::spawn(LogId::current().scope(async { told().unwrap() }));
                (own, other, same.await.unwrap())
            })
            .await;
        assert_eq!(again, own);
        assert!(own.0.is_some() && other.0.is_some() && own != other);
        assert_ne!(LogId::connection().within(told).unwrap(), own);
    }

    #[tokio::test]
    async fn a_session_begins_and_ends_within_what_made_it() {
        let task = LogId::request("r-1".into()).scope(async {
            assert_eq!(told(), Some((None, None)));
            LogId::begin_session(7);
            let task = LogId::current();
            LogId::end_session(6);
            assert_eq!(told(), Some((None, Some(7))), "another one ended");
            LogId::end_session(7);
            assert_eq!(told(), Some((None, None)));
            task
        });
        task.await.within(|| {
            LogId::tell(|names| {
                let expected = Names { connection: None, session: Some(7), request: Some("r-1") };
                assert_eq!(names, expected);
            });
        });
        LogId::begin_session(8);
        assert_eq!(told(), None);
    }
}
