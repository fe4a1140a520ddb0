//! The `Date` header, formatted once per second and thread.

use std::cell::RefCell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

thread_local! {
    static LINE: RefCell<(u64, Vec<u8>)> = const { RefCell::new((u64::MAX, Vec::new())) };
}

/// Appends `Server` and `Date` (RFC 9110 6.6.1) to a head.
pub(super) fn write_line(head: &mut Vec<u8>) {
    // A clock before 1970 is no better date than 1970.
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    LINE.with_borrow_mut(|(second, line)| {
        if *second != seconds {
            let now = UNIX_EPOCH + Duration::from_secs(seconds);
            let now = httpdate::fmt_http_date(now);
            *line = format!("Server: headwater\r\nDate: {now}\r\n").into_bytes();
            *second = seconds;
        }
        head.extend_from_slice(line);
    });
}
