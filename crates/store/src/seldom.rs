//! Limits how often the same fault is logged.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The shortest time between two lines.
const SPAN: Duration = Duration::from_secs(10);

/// Lets one line in 10 s through.
#[derive(Debug, Default)]
pub(crate) struct Seldom(Mutex<(Option<Instant>, u64)>);

impl Seldom {
    /// Whether a line may be logged now. If so, returns how many were held back before it.
    pub(crate) fn take(&self) -> Option<u64> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (logged, held_back) = &mut *last;
        if logged.is_some_and(|logged| logged.elapsed() < SPAN) {
            *held_back += 1;
            return None;
        }
        *logged = Some(Instant::now());
        Some(std::mem::take(held_back))
    }
}
