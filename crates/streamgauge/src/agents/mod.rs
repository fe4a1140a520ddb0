//! A run that several machines share: an *agent* runs on each ([`agent`]), and the verb that the user
//! starts takes some of them as its *crew* ([`Crew`]).
//!
//! ```text
//!  Shards ─▶ crew ─▶ NATS ─▶ agent ─▶ pipes ─▶ children (streamgauge shard)
//!         ◀─      ◀─      ◀─       ◀─
//! ```
//!
//! An agent starts the same children that a run on one machine has ([`crate::shard`]), and passes on
//! bytes between their pipes and NATS. So it knows nothing of what they do. It serves one run at a
//! time. [`wire`] has the messages, [`clock`] tells how far two clocks are apart, `nats` connects.
//!
//! Core NATS delivers a message once or not at all. So what goes to a child is confirmed piece by
//! piece, and what comes from it is numbered: a gap ends the child's part of the run with an error.
//! A child sends no more than [`wire::WINDOW`] pieces that nobody has taken.
//!
//! Each second the crew asks each agent for its clocks. A side that hears nothing from the other for
//! [`wire::SILENCE`] gives up: an agent becomes idle, and the run goes on without the agent.

pub mod agent;
pub mod args;
pub mod clock;
mod crew;
mod log;
mod nats;
mod report;
mod spread;
pub mod wire;

pub use crew::{Crew, Doubts};
pub use nats::Servers;
pub use report::{Agent, Clocks, Lost};
pub use spread::Spread;
