//! Why a request failed, for both clients.

use std::io;

use rustix::io::Errno;

use super::tally::Fault;

/// A fault with its description.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) fault: Fault,
    pub(super) detail: String,
}

impl Trouble {
    pub(super) fn new(fault: Fault, detail: impl Into<String>) -> Self {
        Self { fault, detail: detail.into() }
    }

    pub(super) fn of_io(error: Errno) -> Self {
        let error = io::Error::from(error);
        Self::new(Fault::of_io(&error), error.to_string())
    }
}
