//! Serves connections of any protocol: listeners that share a port, the accept loop, limits per
//! address, waiting for slow peers, and an orderly end. HTTP and RTMP use it. Each [`Worker`] has
//! its own thread.

mod accept;
mod drain;
mod gate;
mod kernel;
mod listen;
mod log_id;
mod log_limit;
mod patience;
pub mod request_id;
mod tasks;
mod timer;
mod worker;

pub use accept::{Accepted, accept};
pub use drain::{Drain, Watch};
pub use gate::{Full, Gate, PerAddress, Permit};
pub use kernel::{Told, told, unacknowledged};
pub use listen::{BACKLOG, UNRECEIVED, datagrams, listen};
pub use log_id::{LogId, Names};
pub use log_limit::LogLimit;
pub use patience::{Look, Patience};
pub use tasks::Task;
pub use timer::Timer;
pub use worker::{Remote, Worker};
