//! Answers with bytes of a representation: the whole, a range, or several ranges.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

use payload::{Piece, length};

use crate::range::ByteRanges;
use crate::{Method, Precondition, Request, Response, Validators, date};

/// A representation that can be served in ranges: a file, a segment, a header.
#[derive(Clone, Copy, Debug)]
pub struct Representation<'a> {
    /// Length in bytes.
    pub length: u64,
    /// `Content-Type`
    pub content_type: &'a str,
    /// `Cache-Control`
    pub cache_control: &'a str,
    /// Validators for conditional requests.
    pub validators: Validators<'a>,
    /// Its [header fields](Self::fields), if they were written before.
    pub fields: Option<&'a [u8]>,
}

impl Representation<'_> {
    /// The header fields that each answer with bytes of it has, except those of a range. Who
    /// answers often writes them once.
    pub fn fields(&self) -> Vec<u8> {
        self.describe(Response::new(200), self.content_type).into_fields()
    }

    /// Answers a GET or HEAD with 200, 206, 304, 412 or 416. `pieces` returns the pieces of a range
    /// of the representation, which is within its length; [`slice`](super::slice) does this where
    /// the pieces are known.
    ///
    /// Several ranges that do not merge into one are sent as `multipart/byteranges` (RFC 9110
    /// 14.6), in the requested order. If that would be longer than the whole, the whole is sent.
    pub fn respond(
        &self,
        request: &Request,
        mut pieces: impl FnMut(Range<u64>) -> Vec<Piece>,
    ) -> Response {
        match self.validators.evaluate(request) {
            Precondition::Proceed => {}
            Precondition::NotModified => {
                return self.validated(Response::new(304), self.cache_control);
            }
            // This answer concerns only this request, however long the representation may be
            // cached.
            Precondition::Failed => return self.validated(Response::new(412), "no-store"),
        }
        let whole = 0..self.length;
        // Range is defined for GET only (RFC 9110 14.2).
        let field = request
            .header("range")
            .filter(|_| request.method() == Method::Get && self.validators.range_applies(request));
        let selected = field.map_or(ByteRanges::Whole, |f| ByteRanges::select(f, self.length));
        match selected {
            ByteRanges::Unsatisfiable => {
                return Response::text(416, format_args!("the length is {} bytes", self.length))
                    .header("Content-Range", format_args!("bytes */{}", self.length));
            }
            ByteRanges::Parts(parts) => match parts.as_slice() {
                [range] => {
                    return self
                        .described(206)
                        .header("Content-Range", self.content_range(range))
                        .body(pieces(range.clone()));
                }
                parts => {
                    if let Some(response) = self.multipart(parts, &mut pieces) {
                        return response;
                    }
                }
            },
            ByteRanges::Whole => {}
        }
        self.described(200).body(pieces(whole))
    }

    /// `None` where the parts and their headers are not shorter than the whole.
    fn multipart(
        &self,
        parts: &[Range<u64>],
        mut pieces: impl FnMut(Range<u64>) -> Vec<Piece>,
    ) -> Option<Response> {
        let boundary = boundary();
        let mut all: Vec<Piece> = Vec::with_capacity(2 * parts.len() + 1);
        for (i, part) in parts.iter().enumerate() {
            let before = if i == 0 { "" } else { "\r\n" };
            let (content_type, range) = (self.content_type, self.content_range(part));
            let head = format!(
                "{before}--{boundary}\r\nContent-Type: {content_type}\r\n\
                 Content-Range: {range}\r\n\r\n"
            );
            all.push(Piece::Bytes(head.into()));
            all.extend(pieces(part.clone()));
        }
        all.push(Piece::Bytes(format!("\r\n--{boundary}--\r\n").into()));
        if length(&all) >= self.length {
            return None;
        }
        let content_type = format!("multipart/byteranges; boundary={boundary}");
        Some(self.describe(Response::new(206), &content_type).body(all))
    }

    fn described(&self, status: u16) -> Response {
        let response = Response::new(status);
        match self.fields {
            Some(fields) => response.with_fields(fields),
            None => self.describe(response, self.content_type),
        }
    }

    fn describe(&self, response: Response, content_type: &str) -> Response {
        self.validated(response, self.cache_control)
            .header("Content-Type", content_type)
            .header("Accept-Ranges", "bytes")
    }

    fn validated(&self, mut response: Response, cache_control: &str) -> Response {
        response = response.header("Cache-Control", cache_control);
        if let Some(etag) = self.validators.etag {
            response = response.header("ETag", format_args!("\"{etag}\""));
        }
        if let Some(modified) = self.validators.modified.and_then(date::of) {
            response = response.header("Last-Modified", modified);
        }
        response
    }

    fn content_range<'a>(&self, range: &'a Range<u64>) -> ContentRange<'a> {
        ContentRange { range, length: self.length }
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

/// A boundary line that occurs in a payload only with a probability of 2^-128: the author of a file
/// cannot know the keys.
fn boundary() -> String {
    let half = || RandomState::new().hash_one(0);
    format!("{:016x}{:016x}", half(), half())
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};
    use std::time::{Duration, UNIX_EPOCH};

    use bytes::{Bytes, BytesMut};

    use super::*;

    /// The answer to a request with these header lines. The representation has 100 bytes, the tag
    /// `"v1"`, and was modified at 1994-11-15 12:45:26.5.
    fn response(method: &str, fields: &str) -> Response {
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
            fields: None,
        };
        let bytes = |range: Range<u64>| {
            vec![Bytes::from(vec![0; (range.end - range.start) as usize]).into()]
        };
        let response = representation.respond(&request, bytes);
        // The same answer with fields that were written before. A multipart answer has a boundary of
        // its own.
        let fields = representation.fields();
        let again =
            Representation { fields: Some(&fields), ..representation }.respond(&request, bytes);
        let fields = |response: &Response| -> Vec<_> {
            let fields = response.headers().filter(|(_, value)| !value.starts_with("multipart"));
            fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
        };
        assert_eq!((again.status(), fields(&again)), (response.status(), fields(&response)));
        response
    }

    /// Status, `Content-Range` and body length of an answer.
    fn answer(method: &str, fields: &str) -> (u16, Option<String>, u64) {
        let response = response(method, fields);
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
            ("If-None-Match: \"v0\"\"v1\"\r\n", 200),
            ("If-None-Match: \"v0\" \"v1\"\r\n", 200),
            ("If-Match: \"v1\"\r\n", 200),
            ("If-Match: *\r\n", 200),
            ("If-Match: W/\"v1\"\r\n", 412),
            ("If-Match: \"v2\"\r\n", 412),
            ("If-Modified-Since: Tue, 15 Nov 1994 12:45:26 GMT\r\n", 304),
            ("If-Modified-Since: Tue, 15 Nov 1994 12:45:25 GMT\r\n", 200),
            ("If-Modified-Since: yesterday\r\n", 200),
            ("If-Unmodified-Since: Tue, 15 Nov 1994 12:45:26 GMT\r\n", 200),
            ("If-Unmodified-Since: Tue, 15 Nov 1994 12:45:25 GMT\r\n", 412),
            // A tag takes precedence over a date (RFC 9110 13.1.3).
            ("If-None-Match: \"v2\"\r\nIf-Modified-Since: Tue, 15 Nov 1994 12:45:26 GMT\r\n", 200),
        ] {
            assert_eq!(answer("GET", fields).0, status, "{fields}");
            assert_eq!(answer("HEAD", fields).0, status, "{fields}");
        }
    }

    #[test]
    fn of_a_failed_precondition_nothing_is_kept() {
        for (fields, cache_control) in [
            ("", "max-age=1"),
            ("If-None-Match: \"v1\"\r\n", "max-age=1"),
            ("If-Match: \"v2\"\r\n", "no-store"),
        ] {
            let response = response("GET", fields);
            let found = response.headers().find(|(name, _)| *name == "Cache-Control");
            assert_eq!(found, Some(("Cache-Control", cache_control)), "{fields}");
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
        // Preconditions are evaluated first.
        assert_eq!(answer("GET", "Range: bytes=100-\r\nIf-None-Match: \"v1\"\r\n").0, 304);
    }
}
