//! What the kernel knows of its own clock.

#![allow(unsafe_code, reason = "the one call for this is in no crate that is here")]

use std::time::Duration;

/// The state of the clock, as a daemon for NTP or PTP keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct State {
    /// Whether a daemon keeps it right.
    pub(super) is_synchronized: bool,
    /// By how much it may be wrong. Grows from one measurement of the daemon to the next.
    pub(super) may_be_off: Duration,
}

/// Asks the kernel. `None` where a container may not.
pub(super) fn read() -> Option<State> {
    // SAFETY: the structure has only numbers, and zeros are some. Without `modes`, nothing is set.
    let mut state: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a whole structure that lives during the call.
    let answer = unsafe { libc::adjtimex(&raw mut state) };
    let micros = u64::try_from(state.maxerror).unwrap_or_default();
    (answer >= 0).then(|| State {
        is_synchronized: answer != libc::TIME_ERROR && state.status & libc::STA_UNSYNC == 0,
        may_be_off: Duration::from_micros(micros),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_answers() {
        // A container may forbid the question; an answer has a sensible error.
        assert!(read().is_none_or(|state| state.may_be_off <= Duration::from_secs(3600)));
    }
}
