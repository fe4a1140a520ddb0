//! What errors of hyper mean for requests.

use std::io;

use crate::load::tally::Fault;
use crate::load::trouble::Trouble;

/// Whether an error only means that the server had closed a kept connection.
pub(super) fn is_stale(error: &hyper::Error) -> bool {
    let h2 = cause::<h2::Error>(error);
    let refused = |e: &h2::Error| {
        e.is_go_away() || e.is_io() || e.reason() == Some(h2::Reason::REFUSED_STREAM)
    };
    error.is_canceled()
        || error.is_incomplete_message()
        || error.is_closed()
        || h2.is_some_and(refused)
        || cause::<io::Error>(error).is_some_and(|e| Fault::of_io(e) == Fault::Reset)
}

fn cause<T: std::error::Error + 'static>(error: &hyper::Error) -> Option<&T> {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

/// Describes an error for its request. `begun` tells whether its answer had begun.
pub(super) fn describe(error: &hyper::Error, begun: bool) -> Trouble {
    let ended = if begun { Fault::ShortBody } else { Fault::Closed };
    let fault = if let Some(error) = cause::<io::Error>(error) {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => ended,
            io::ErrorKind::InvalidData => Fault::BadResponse,
            _ => Fault::of_io(error),
        }
    } else if let Some(error) = cause::<h2::Error>(error) {
        if error.is_remote() && error.is_reset() {
            Fault::Reset
        } else if error.is_go_away() && error.is_remote() {
            ended
        } else {
            Fault::BadResponse
        }
    } else if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
        ended
    } else {
        Fault::BadResponse
    };
    let mut detail = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        detail.push_str(&format!(": {error}"));
        source = error.source();
    }
    Trouble::new(fault, detail)
}
