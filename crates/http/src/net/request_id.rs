//! `X-Request-Id`: by it, what the log has of a request is found.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

/// Name of the header field, in lower case.
pub const NAME: &str = "x-request-id";

/// Longest id that is taken from a client, or from a proxy before this server.
const LONGEST: usize = 64;

/// The client's id, if it can do no harm in a header or in a log.
pub fn given(value: &[u8]) -> Option<Arc<str>> {
    let is_harmless = |b: &u8| b.is_ascii_alphanumeric() || b"._-".contains(b);
    let is_taken = (1..=LONGEST).contains(&value.len()) && value.iter().all(is_harmless);
    std::str::from_utf8(value).ok().filter(|_| is_taken).map(Arc::from)
}

/// A new id. Its beginning tells this process from others, whose logs may be in one place.
pub fn make() -> Arc<str> {
    static PROCESS: LazyLock<u64> = LazyLock::new(|| RandomState::new().build_hasher().finish());
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{:08x}-{number}", *PROCESS >> 32).into()
}

/// The client's id in a head that may be malformed or incomplete, or else a new one.
pub(crate) fn in_head(head: &[u8]) -> Arc<str> {
    let lines = head.trim_ascii_start().split(|&byte| byte == b'\n').skip(1);
    let fields = lines.take_while(|line| !line.trim_ascii().is_empty());
    let value = |line: &[u8]| {
        let (name, value) = line.split_at_checked(NAME.len())?;
        let is_it = name.eq_ignore_ascii_case(NAME.as_bytes());
        given(value.strip_prefix(b":").filter(|_| is_it)?.trim_ascii())
    };
    fields.map(value).find_map(|id| id).unwrap_or_else(make)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_harmless_ids_are_taken_from_clients() {
        for good in ["a", "4bf92f35-77b3-4da6.a3ce_9", &"x".repeat(64)] {
            assert_eq!(given(good.as_bytes()).as_deref(), Some(good));
        }
        for bad in ["", "a b", "a\"b", "a\tb", "a=b", "\u{e4}", &"x".repeat(65)] {
            assert_eq!(given(bad.as_bytes()), None, "{bad:?}");
        }
    }

    #[test]
    fn made_ids_differ_and_could_come_from_a_client() {
        let (first, second) = (make(), make());
        assert_ne!(first, second);
        assert_eq!(given(first.as_bytes()), Some(first));
    }

    #[test]
    fn a_malformed_head_may_have_an_id() {
        let own = |head: &str| &*in_head(head.as_bytes()) == "r-1";
        assert!(own("\r\nG(T /x\r\nHost: h\r\nX-request-ID: r-1 \r\nBad\r\n\r\n"));
        assert!(own("GET /x HTTP/1.1\nX-Request-Id:r-1"));
        for other in ["", "x", "X-Request-Id: r-1", "G\r\nX-Request-Id: r 1", "G\r\nX-Request-Id"] {
            assert!(!own(other), "{other}");
        }
        assert!(!own("POST /x\r\n\r\nX-Request-Id: r-1\r\n"), "this is the payload");
    }
}
