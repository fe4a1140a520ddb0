//! Dates in HTTP (RFC 9110 5.6.7), and the `Date` header, which each thread formats once per
//! second.

use std::cell::RefCell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use httpdate::HttpDate;

/// The first second that no date can express, because years have four digits: 10000-01-01, in
/// seconds since 1970.
const END: u64 = 253_402_300_800;

thread_local! {
    static LINE: RefCell<(u64, Vec<u8>)> = const { RefCell::new((u64::MAX, Vec::new())) };
}

/// The date of a time; `None` before 1970 and after 9999, which times of files may be.
pub fn of(time: SystemTime) -> Option<HttpDate> {
    let seconds = time.duration_since(UNIX_EPOCH).ok()?.as_secs();
    (seconds < END).then(|| HttpDate::from(time))
}

/// Appends `Server` and `Date` (RFC 9110 6.6.1) to a head.
pub(crate) fn write_line(head: &mut Vec<u8>) {
    // A clock before 1970 is wrong, so 1970 is as good.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_have_no_date() {
        let after = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(of(UNIX_EPOCH).unwrap().to_string(), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(of(after(END - 1)).unwrap().to_string(), "Fri, 31 Dec 9999 23:59:59 GMT");
        for none in [after(END), after(1 << 40), UNIX_EPOCH - Duration::from_nanos(1)] {
            assert!(of(none).is_none(), "{none:?}");
        }
    }
}
