//! One file for each architecture.

pub(crate) mod hyper;
pub(crate) mod limit;
pub(crate) mod persistent;
pub(crate) mod pipelined;
pub(crate) mod simple;
pub(crate) mod staged;
pub(crate) mod threadpool;

/// The most of one response that `simple`, `persistent` and `pipelined` hold in memory at a time,
/// besides its head; their paper's servers hold all of it.
pub(crate) const PIECE: usize = 4 << 20;
