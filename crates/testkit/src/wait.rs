//! Waits for effects inside another process or thread.

use std::thread;
use std::time::{Duration, Instant};

/// Time between two checks.
const POLL: Duration = Duration::from_millis(5);

/// Waits until `is_so` returns true. `what` states the condition: `the stream is over`.
///
/// # Panics
/// `limit` passes first.
#[track_caller]
pub fn eventually(limit: Duration, what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !is_so() {
        assert!(Instant::now() < deadline, "not in {limit:?}: {what}");
        thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_condition_is_asked_until_it_holds() {
        let mut asked = 0;
        eventually(Duration::from_secs(60), "it is asked three times", || {
            asked += 1;
            asked == 3
        });
        assert_eq!(asked, 3);
    }

    #[test]
    #[should_panic(expected = "not in 20ms: pigs fly")]
    fn an_event_that_does_not_come_fails_the_test() {
        eventually(Duration::from_millis(20), "pigs fly", || false);
    }
}
