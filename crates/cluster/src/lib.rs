//! What the nodes of a cluster tell each other of their live streams, without I/O and clocks.
//!
//! ```text
//! live::mirror::Change ─ wire::write ─▶ messages ─▶ (NATS) ─▶ wire::Reader ─▶ live::mirror::Change
//! ```
//!
//! - [`wire`] writes changes of a stream as messages, and reads them.
//! - [`presence`] knows which node has which stream.
//! - [`placement`] says which nodes keep a copy of a stream that nobody watches there.
//! - [`name`] makes subjects and keys of streams' names.

pub mod name;
pub mod placement;
pub mod presence;
pub mod role;
pub mod wire;
