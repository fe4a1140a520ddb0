//! The answer that a connection is getting.

use crate::load::check::{Comparison, Reference, wrong_range};
use crate::load::exchange::Exchange;
use crate::load::response::{Body, Head};
use crate::load::tally::Fault;
use crate::load::trouble::Trouble;

/// What is known of it once its head is there, or where it has none.
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
    /// An answer to `exchange` that begins so.
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

    /// An answer of so many bytes, without HTTP.
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

    /// How many bytes come next that nobody looks at.
    pub(super) fn unseen(&self) -> u64 {
        if self.comparison.is_some() { 0 } else { self.body.unseen() }
    }

    /// Counts bytes of the body that nobody has looked at.
    pub(super) fn pass_over(&mut self, bytes: u64) {
        self.received += bytes;
        self.body.pass_over(bytes);
    }

    /// Takes what belongs to the body from the front of `bytes`; returns how many bytes.
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

    /// What is wrong with it, now that it is complete.
    pub(super) fn fault(&mut self) -> Option<Trouble> {
        self.fault.take().or(self.comparison.and_then(|comparison| comparison.fault()))
    }
}
