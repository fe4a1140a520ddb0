//! What the event loop of HTTP/1.1 asks, and what comes of it.

use std::rc::Rc;

use super::target::{ByteRange, Target};
use super::trouble::Trouble;

/// A target as a worker asks for it.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) target: Target,
    /// The place of its peer among the worker's.
    pub(super) peer: usize,
    /// The request, without the Range field and the empty line.
    pub(super) head: Vec<u8>,
    /// Without HTTP: how many bytes answer it. The head is then all of the request.
    pub(super) bare: Option<u64>,
}

/// One request and what has come of it. Times are nanoseconds since the run began.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) asked: Rc<Asked>,
    pub(super) range: Option<ByteRange>,
    /// When it should have been sent: where latencies begin.
    pub(super) due: u64,
    /// When the worker took it up, in an open loop; less its standstills until then, so that those
    /// after it can be told.
    pub(super) taken: Option<u64>,
    /// When a connection took it: where the time-out begins.
    pub(super) begun: u64,
    /// When the first byte of its answer came; 0 before.
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
    /// What is wrong with it, although it is complete.
    pub(super) fault: Option<Trouble>,
}
