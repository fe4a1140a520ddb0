//! The tasks that a worker waits for before it ends.

use std::cell::Cell;
use std::rc::Rc;

use tokio::sync::Notify;

/// Counts the tasks of a worker.
#[derive(Default)]
pub(super) struct Tasks {
    running: Cell<usize>,
    ended: Notify,
}

impl Tasks {
    pub(super) fn running(&self) -> usize {
        self.running.get()
    }

    /// Ready when no task is running.
    pub(super) async fn all_ended(&self) {
        while self.running.get() > 0 {
            self.ended.notified().await;
        }
    }

    pub(super) fn one_more(tasks: &Rc<Self>) -> Task {
        tasks.running.set(tasks.running.get() + 1);
        Task(Rc::clone(tasks))
    }
}

/// While it lives, the worker does not end, unless draining takes too long.
pub struct Task(Rc<Tasks>);

impl Drop for Task {
    fn drop(&mut self) {
        let running = self.0.running.get() - 1;
        self.0.running.set(running);
        if running == 0 {
            self.0.ended.notify_one();
        }
    }
}
