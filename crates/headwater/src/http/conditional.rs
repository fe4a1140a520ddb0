//! Conditional requests (RFC 9110 13) and the answer for a representation that has bytes.

use std::fmt;
use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::range::ByteRanges;
use super::{Body, Method, Request, Response};

/// What tells one version of a representation from another.
#[derive(Clone, Copy, Debug, Default)]
pub struct Validators<'a> {
    /// Strong entity tag without its quotes: printable ASCII other than `"`.
    pub etag: Option<&'a str>,
    /// When the representation last changed; counts in whole seconds.
    pub modified: Option<SystemTime>,
}

/// What the preconditions of a request come to (RFC 9110 13.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// They hold, or there are none.
    Proceed,
    /// 304: the client has it.
    NotModified,
    /// 412: the client wants another version.
    Failed,
}

impl Validators<'_> {
    /// Evaluates the preconditions of a GET or HEAD.
    pub fn evaluate(&self, request: &Request) -> Precondition {
        let listed = |field, weak| self.listed(request, field, weak);
        let changed_since = |field: &str| {
            let date = httpdate::parse_http_date(request.header(field)?).ok()?;
            Some(whole_seconds(self.modified?) > date)
        };
        let failed = match listed("if-match", false) {
            Some(matched) => !matched,
            None => changed_since("if-unmodified-since") == Some(true),
        };
        if failed {
            return Precondition::Failed;
        }
        let not_modified = match listed("if-none-match", true) {
            Some(matched) => matched,
            None => changed_since("if-modified-since") == Some(false),
        };
        if not_modified { Precondition::NotModified } else { Precondition::Proceed }
    }

    /// Whether `If-Range` lets `Range` count (RFC 9110 13.1.5). Only an exact match does, and for a
    /// tag only a strong one.
    pub fn range_applies(&self, request: &Request) -> bool {
        let Some(value) = request.header("if-range") else { return true };
        if value.contains('"') {
            return value.strip_prefix('"').and_then(|v| v.strip_suffix('"')) == self.etag
                && self.etag.is_some();
        }
        match (httpdate::parse_http_date(value), self.modified) {
            (Ok(date), Some(modified)) => date == whole_seconds(modified),
            _ => false,
        }
    }

    /// Whether our tag is in a field, `None` without the field. `*` is any version.
    fn listed(&self, request: &Request, field: &str, weak: bool) -> Option<bool> {
        let mut found = None;
        for value in request.header_values(field) {
            let matches = value.trim() == "*"
                || tags(value).any(|(is_weak, tag)| Some(tag) == self.etag && (weak || !is_weak));
            found = Some(found.unwrap_or(false) || matches);
        }
        found
    }
}

/// The entity tags of a list, each with whether it is weak. Ends at what is no tag.
fn tags(mut list: &str) -> impl Iterator<Item = (bool, &str)> {
    std::iter::from_fn(move || {
        list = list.trim_start_matches([' ', '\t', ',']);
        let weak = list.starts_with("W/");
        let rest = list.strip_prefix("W/").unwrap_or(list).strip_prefix('"')?;
        let (tag, rest) = rest.split_once('"')?;
        list = rest;
        Some((weak, tag))
    })
}

fn whole_seconds(time: SystemTime) -> SystemTime {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    UNIX_EPOCH + Duration::from_secs(seconds)
}

/// A representation whose bytes can be served in ranges: a file, a segment, a header.
#[derive(Clone, Copy, Debug)]
pub struct Representation<'a> {
    /// In bytes.
    pub length: u64,
    /// `Content-Type`
    pub content_type: &'a str,
    /// `Cache-Control`
    pub cache_control: &'a str,
    /// For conditional requests.
    pub validators: Validators<'a>,
}

impl Representation<'_> {
    /// Answers a GET or HEAD with 200, 206, 304, 412 or 416. `bytes` gives the range of the
    /// representation it is asked for, which is within its length.
    ///
    /// Of several ranges that do not merge into one the whole is sent: `multipart/byteranges` is
    /// the server's choice (RFC 9110 14.2), and no player asks for it.
    pub fn respond(&self, request: &Request, bytes: impl FnOnce(Range<u64>) -> Body) -> Response {
        match self.validators.evaluate(request) {
            Precondition::Proceed => {}
            Precondition::NotModified => return self.validated(Response::new(304)),
            Precondition::Failed => return self.validated(Response::new(412)),
        }
        let whole = 0..self.length;
        // Range is defined for GET only (RFC 9110 14.2).
        let field = request
            .header("range")
            .filter(|_| request.method() == Method::Get && self.validators.range_applies(request));
        let selected = field.map_or(ByteRanges::Whole, |f| ByteRanges::select(f, self.length));
        match selected {
            ByteRanges::Unsatisfiable => {
                Response::text(416, format_args!("the length is {} bytes", self.length))
                    .header("Content-Range", format_args!("bytes */{}", self.length))
            }
            ByteRanges::Parts(parts) if parts.len() == 1 => {
                let range = parts.into_iter().next().unwrap_or(whole);
                let field = ContentRange { range: &range, length: self.length };
                self.described(206).header("Content-Range", field).body(bytes(range))
            }
            ByteRanges::Parts(_) | ByteRanges::Whole => self.described(200).body(bytes(whole)),
        }
    }

    fn described(&self, status: u16) -> Response {
        self.validated(Response::new(status))
            .header("Content-Type", self.content_type)
            .header("Accept-Ranges", "bytes")
    }

    fn validated(&self, mut response: Response) -> Response {
        response = response.header("Cache-Control", self.cache_control);
        if let Some(etag) = self.validators.etag {
            response = response.header("ETag", format_args!("\"{etag}\""));
        }
        if let Some(modified) = self.validators.modified {
            let modified = httpdate::HttpDate::from(whole_seconds(modified));
            response = response.header("Last-Modified", modified);
        }
        response
    }
}

struct ContentRange<'a> {
    range: &'a Range<u64>,
    length: u64,
}

impl fmt::Display for ContentRange<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never empty: a selected range has at least one byte.
        write!(f, "bytes {}-{}/{}", self.range.start, self.range.end - 1, self.length)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use bytes::{Bytes, BytesMut};

    use super::*;

    /// Status, `Content-Range` and body length of the answer to a request with these header lines
    /// for 100 bytes with the tag `"v1"`, modified at 1994-11-15 12:45:26.5.
    fn answer(method: &str, fields: &str) -> (u16, Option<String>, u64) {
        let head = format!("{method} / HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let mut head = BytesMut::from(head.as_str());
        let request = Request::parse(&mut head, peer, 8192).unwrap().unwrap();
        let modified = UNIX_EPOCH + Duration::from_millis(784_903_526_500);
        let representation = Representation {
            length: 100,
            content_type: "video/mp4",
            cache_control: "max-age=1",
            validators: Validators { etag: Some("v1"), modified: Some(modified) },
        };
        let response = representation.respond(&request, |range| {
            Bytes::from(vec![0; (range.end - range.start) as usize]).into()
        });
        let range = response.headers().find(|(name, _)| *name == "Content-Range");
        let range = range.map(|(_, value)| value.to_owned());
        let (status, (_, body)) = (response.status(), response.into_parts());
        (status, range, body.size().unwrap())
    }

    #[test]
    fn preconditions() {
        for (fields, status) in [
            ("", 200),
            ("If-None-Match: \"v1\"\r\n", 304),
            ("If-None-Match: W/\"v1\"\r\n", 304),
            ("If-None-Match: \"v0\", W/\"a,b\" , \"v1\"\r\n", 304),
            ("If-None-Match: \"v0\"\r\nIf-None-Match: \"v1\"\r\n", 304),
            ("If-None-Match: *\r\n", 304),
            ("If-None-Match: \"v2\"\r\n", 200),
            ("If-None-Match: v1\r\n", 200),
            ("If-Match: \"v1\"\r\n", 200),
            ("If-Match: *\r\n", 200),
            ("If-Match: W/\"v1\"\r\n", 412),
            ("If-Match: \"v2\"\r\n", 412),
            ("If-Modified-Since: Tue, 15 Nov 1994 12:45:26 GMT\r\n", 304),
            ("If-Modified-Since: Tue, 15 Nov 1994 12:45:25 GMT\r\n", 200),
            ("If-Modified-Since: yesterday\r\n", 200),
            ("If-Unmodified-Since: Tue, 15 Nov 1994 12:45:26 GMT\r\n", 200),
            ("If-Unmodified-Since: Tue, 15 Nov 1994 12:45:25 GMT\r\n", 412),
            // A tag is worth more than a date (RFC 9110 13.1.3).
            ("If-None-Match: \"v2\"\r\nIf-Modified-Since: Tue, 15 Nov 1994 12:45:26 GMT\r\n", 200),
        ] {
            assert_eq!(answer("GET", fields).0, status, "{fields}");
            assert_eq!(answer("HEAD", fields).0, status, "{fields}");
        }
    }

    #[test]
    fn ranges() {
        let part = |range: &str, size| (206, Some(range.to_owned()), size);
        assert_eq!(answer("GET", "Range: bytes=10-19\r\n"), part("bytes 10-19/100", 10));
        assert_eq!(answer("GET", "Range: bytes=-1\r\n"), part("bytes 99-99/100", 1));
        assert_eq!(answer("GET", "Range: bytes=0-1,2-3\r\n"), part("bytes 0-3/100", 4));
        assert_eq!(answer("GET", "Range: bytes=0-1,5-6\r\n"), (200, None, 100));
        assert_eq!(answer("GET", "Range: lines=1-2\r\n"), (200, None, 100));
        assert_eq!(answer("HEAD", "Range: bytes=10-19\r\n"), (200, None, 100));
        let (status, range, _) = answer("GET", "Range: bytes=100-\r\n");
        assert_eq!((status, range.as_deref()), (416, Some("bytes */100")));
        for (condition, status) in [
            ("\"v1\"", 206),
            ("\"v2\"", 200),
            ("W/\"v1\"", 200),
            ("Tue, 15 Nov 1994 12:45:26 GMT", 206),
            ("Tue, 15 Nov 1994 12:45:27 GMT", 200),
            ("v1", 200),
        ] {
            let fields = format!("Range: bytes=0-0\r\nIf-Range: {condition}\r\n");
            assert_eq!(answer("GET", &fields).0, status, "{condition}");
        }
        // Preconditions come first.
        assert_eq!(answer("GET", "Range: bytes=100-\r\nIf-None-Match: \"v1\"\r\n").0, 304);
    }
}
