//! The answer that a connection is receiving.

use crate::load::check::{Comparison, Reference, wrong_range};
use crate::load::exchange::Exchange;
use crate::load::response::{Body, Head};
use crate::load::tally::Fault;
use crate::load::trouble::Trouble;

/// The state of an answer, after its head if it has one.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) status: u16,
    pub(super) body: Body,
    pub(super) content_length: Option<u64>,
    /// Bytes of the body so far.
    pub(super) received: u64,
    pub(super) location: Option<String>,
    comparison: Option<Comparison>,
    fault: Option<Trouble>,
}

impl Incoming {
    /// Starts an answer to `exchange` with this head.
    pub(super) fn new(head: Head, exchange: &Exchange, reference: Option<&Reference>) -> Self {
        let has_body = exchange.asked.target.method != "HEAD";
        let reference = reference.filter(|_| has_body);
        Self {
            fault: wrong_range(&head, exchange.range),
            comparison: reference.and_then(|reference| Comparison::of(&head, reference)),
            status: head.status,
            body: head.body,
            content_length: head.content_length,
            received: 0,
            location: head.location,
        }
    }

    /// Starts an answer of this many bytes without HTTP.
    pub(super) fn bare(length: u64, reference: Option<&Reference>) -> Self {
        Self {
            status: 0,
            body: Body::Length(length),
            content_length: Some(length),
            received: 0,
            location: None,
            comparison: reference.map(|_| Comparison::new(0, length)),
            fault: None,
        }
    }

    /// How many of the next bytes nobody needs to see.
    pub(super) fn unseen(&self) -> u64 {
        if self.comparison.is_some() { 0 } else { self.body.unseen() }
    }

    /// Counts bytes of the body that nobody has seen.
    pub(super) fn pass_over(&mut self, bytes: u64) {
        self.received += bytes;
        self.body.pass_over(bytes);
    }

    /// Takes the bytes at the front of `bytes` that belong to the body; returns their number.
    pub(super) fn take(
        &mut self,
        bytes: &[u8],
        reference: Option<&Reference>,
        expected: &mut Vec<u8>,
    ) -> Result<usize, Trouble> {
        let Self { body, received, comparison, .. } = self;
        body.take(bytes, &mut |payload| {
            *received += payload.len() as u64;
            if let (Some(comparison), Some(reference)) = (comparison.as_mut(), reference) {
                comparison.take(reference, payload, expected);
            }
        })
        .map_err(|bad| Trouble::new(Fault::BadResponse, format!("the answer {bad}")))
    }

    /// Returns the error of the complete answer, if it has one.
    pub(super) fn fault(&mut self) -> Option<Trouble> {
        self.fault.take().or(self.comparison.and_then(|comparison| comparison.fault()))
    }
}
