//! One file per architecture.

pub(crate) mod hyper;
pub(crate) mod limit;
pub(crate) mod persistent;
pub(crate) mod pipelined;
pub(crate) mod simple;
pub(crate) mod staged;
pub(crate) mod threadpool;
pub(crate) mod uring;

/// The most bytes of a response that `simple`, `persistent` and `pipelined` hold in memory at a
/// time, in addition to its head. Their paper's servers hold the whole response.
pub(crate) const PIECE: usize = 4 << 20;
