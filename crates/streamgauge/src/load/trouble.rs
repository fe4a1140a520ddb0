//! Why a request failed, of whichever client.

use std::io;

use rustix::io::Errno;

use super::tally::Fault;

/// Why something failed.
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
