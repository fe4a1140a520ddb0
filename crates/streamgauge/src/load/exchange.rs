//! Requests and answers of the event loop for HTTP/1.1.

use std::rc::Rc;

use super::target::{ByteRange, Target};
use super::trouble::Trouble;

/// A target in the form that a worker uses.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) target: Target,
    /// Index of its peer among those of the worker.
    pub(super) peer: usize,
    /// The request, without the Range field and the empty line.
    pub(super) head: Vec<u8>,
    /// For a target without HTTP: how many bytes answer it. The head is then the whole request.
    pub(super) bare: Option<u64>,
}

/// One request and the state of its answer. Times are in nanoseconds since the start of the run.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) asked: Rc<Asked>,
    pub(super) range: Option<ByteRange>,
    /// When it should have been sent. Latencies count from here.
    pub(super) due: u64,
    /// When the worker took it up, in an open loop. The worker's standstills before that are
    /// subtracted, so that standstills after it can be computed.
    pub(super) taken: Option<u64>,
    /// When a connection took it. The time-out counts from here.
    pub(super) begun: u64,
    /// When the first byte of its answer came; 0 before that.
    pub(super) first_byte: u64,
    pub(super) redirects: u32,
    pub(super) sent_again: u8,
}

/// A complete answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) exchange: Exchange,
    pub(super) status: u16,
    pub(super) location: Option<String>,
    pub(super) last_byte: u64,
    /// The error of a complete answer, if it has one.
    pub(super) fault: Option<Trouble>,
}
