//! What starts the children of a run, and carries the lines between them and their parent.

use std::fmt::Debug;
use std::time::Duration;

use tokio::sync::mpsc;

/// News of the child with a number.
pub type Told = mpsc::Sender<(usize, News)>;

/// News of a child.
#[derive(Debug)]
pub enum News {
    /// A line that it has sent, without the end of the line.
    Line(Vec<u8>),
    /// Nothing more comes from it.
    Closed,
}

/// Starts children. They are numbered as their jobs are.
pub trait Carrier {
    /// Starts a child for each job and sends it the job, a line. `role` tells the children what to
    /// do. What comes from them goes to `told`.
    ///
    /// # Errors
    /// A child cannot be started.
    fn start(
        &self,
        role: &str,
        jobs: &[Vec<u8>],
        told: &Told,
    ) -> anyhow::Result<Vec<Box<dyn Link>>>;

    /// How long an order may take to reach all children.
    fn lead(&self) -> Duration;
}

/// A child, as its parent knows it. Dropping it kills the child.
pub trait Link: Debug {
    /// Name in messages.
    fn name(&self) -> &str;

    /// Sends a line. If the child is gone, the end of its output tells.
    fn send(&mut self, line: Vec<u8>);

    /// What the monotonic clock of the child's machine shows when this machine's shows `time`.
    fn time_there(&self, time: Duration) -> Duration {
        time
    }

    /// How the child has ended, once its output is closed.
    ///
    /// # Errors
    /// The child did not end well. The error says how.
    fn end(&mut self) -> Result<(), String>;
}
