//! Tells the connections of a worker that the server is shutting down.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// A worker's signal to its connections to end. Idle connections close, responses in progress
/// finish, and endless responses end at their next boundary. New connections get one answer, which
/// refuses requests for media. The signal stays on its thread.
///
/// Watching costs nothing before the signal is given: a watcher registers its waker once.
#[derive(Clone, Default)]
pub struct Drain(Rc<State>);

#[derive(Default)]
struct State {
    begun: Cell<bool>,
    next: Cell<u64>,
    watchers: RefCell<HashMap<u64, Waker>>,
}

impl Drain {
    /// Whether the server is draining.
    pub fn has_begun(&self) -> bool {
        self.0.begun.get()
    }

    /// Ready when the server begins to drain.
    pub fn begun(&self) -> Watch {
        let key = self.0.next.get();
        self.0.next.set(key + 1);
        Watch { drain: self.clone(), key, waker: None }
    }

    /// Gives the signal.
    pub fn begin(&self) {
        self.0.begun.set(true);
        let watchers = std::mem::take(&mut *self.0.watchers.borrow_mut());
        watchers.into_values().for_each(Waker::wake);
    }
}

/// Future of [`Drain::begun`]. It may be polled again after it was ready.
pub struct Watch {
    drain: Drain,
    key: u64,
    waker: Option<Waker>,
}

impl Future for Watch {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.drain.has_begun() {
            return Poll::Ready(());
        }
        if !self.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            self.waker = Some(cx.waker().clone());
            self.drain.0.watchers.borrow_mut().insert(self.key, cx.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if self.waker.is_some() {
            self.drain.0.watchers.borrow_mut().remove(&self.key);
        }
    }
}
