//! `streamgauge compare-nodes`: fetches the same stream or file from several nodes, and tells whether
//! each object is the same on all of them, and how far apart in time they had it.
//!
//! ```text
//!  args ─▶ compare ─▶ follow (hls, dash) of each node ─▶ fetch ─┬▶ ledger ─▶ document
//!                  └▶ file: range by range ─────────────────────┘
//! ```
//!
//! Each node is followed on its own, as a player of all renditions would. The [`ledger`] compares what
//! they answer. At the end, what a node was not seen to have is asked for once more.

pub mod args;
mod compare;
mod dash;
pub mod document;
mod fetch;
mod file;
mod hls;
pub mod ledger;
mod node;
