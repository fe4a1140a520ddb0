//! One event loop of several.

use std::rc::Rc;

use super::drain::Drain;
use super::tasks::{Task, Tasks};

/// One event loop, as what runs on it sees it.
#[derive(Clone)]
pub struct Worker {
    /// Its number, from 0.
    pub index: usize,
    /// When this worker begins to drain.
    pub drain: Drain,
    tasks: Rc<Tasks>,
}

impl Worker {
    /// The worker of this index. Without a server, it drains when its `drain` is told to.
    pub fn new(index: usize) -> Self {
        Self { index, drain: Drain::default(), tasks: Rc::default() }
    }

    /// To be held by what draining has to wait for, besides the server's own connections.
    pub fn task(&self) -> Task {
        Tasks::one_more(&self.tasks)
    }

    /// How many tasks it has to wait for.
    pub fn running(&self) -> usize {
        self.tasks.running()
    }

    /// Ready when it has none to wait for.
    pub async fn all_ended(&self) {
        self.tasks.all_ended().await;
    }
}
