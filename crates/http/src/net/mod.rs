//! What any protocol needs to serve connections: listeners that share a port, one accept loop, limits by address,
//! waiting for slow peers, and an orderly end. HTTP and RTMP run on it, each [`Worker`] on a thread of its own.

mod accept;
mod drain;
mod gate;
mod kernel;
mod listen;
mod log_limit;
mod patience;
mod tasks;
mod timer;
mod worker;

pub use accept::{Accepted, accept};
pub use drain::{Drain, Watch};
pub use gate::{Full, Gate, PerAddress, Permit};
pub use kernel::unacknowledged;
pub use listen::{datagrams, listen};
pub use log_limit::LogLimit;
pub use patience::{Look, Patience};
pub use tasks::Task;
pub use timer::Timer;
pub use worker::{Remote, Worker};
