//! Parses request heads.

use std::time::SystemTime;

/// The longest head, in bytes.
pub(crate) const MAX_HEAD: usize = 8 << 10;

/// The most header fields of a head.
const MAX_FIELDS: usize = 100;

/// A GET or HEAD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    /// Whether it is HEAD, whose answer has no body.
    pub(crate) head_only: bool,
    /// Decoded, relative to the root, without dot segments.
    pub(crate) path: Vec<u8>,
    /// `Range`, unless it is a HEAD.
    pub(crate) range: Option<String>,
    /// `If-Range`: the outer `Some` means that the field exists, the inner one that it is a date.
    pub(crate) if_range: Option<Option<SystemTime>>,
    /// `If-Modified-Since`
    pub(crate) modified_since: Option<SystemTime>,
    /// Whether the connection may be kept: the client allows it (RFC 9112 9.3), and no payload
    /// follows the head.
    pub(crate) keep_alive: bool,
}

/// Why a request is answered without a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// 400
    Malformed,
    /// 404: a path with dot segments, encoded slashes or control characters
    Path,
    /// 405
    Method,
    /// 408
    Timeout,
    /// 431
    TooLarge,
}

/// A request at the front of the input.
#[derive(Debug)]
pub(crate) struct Parsed {
    /// The request.
    pub(crate) request: Request,
    /// Bytes of its head.
    pub(crate) size: usize,
}

impl Request {
    /// Reads the head at the front of `input`; `None` while it is not complete.
    ///
    /// # Errors
    /// The request must be refused, and the connection closed after the answer.
    pub(crate) fn parse(input: &[u8]) -> Result<Option<Parsed>, Refusal> {
        let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
        let mut head = httparse::Request::new(&mut fields);
        let size = match head.parse(input) {
            Ok(httparse::Status::Complete(size)) => size,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(httparse::Error::TooManyHeaders) => return Err(Refusal::TooLarge),
            Err(_) => return Err(Refusal::Malformed),
        };
        let request = Self::read(
            head.method.unwrap_or_default(),
            head.path.unwrap_or_default(),
            head.version == Some(1),
            head.headers.iter().map(|field| (field.name, field.value)),
        )?;
        Ok(Some(Parsed { request, size }))
    }

    /// Reads the parts of a head. `persistent` tells whether the request's version of HTTP keeps
    /// connections by default.
    ///
    /// # Errors
    /// The request must be refused.
    pub(crate) fn read<'a>(
        method: &str,
        target: &str,
        persistent: bool,
        fields: impl Iterator<Item = (&'a str, &'a [u8])>,
    ) -> Result<Self, Refusal> {
        let mut request = Self {
            head_only: method == "HEAD",
            path: Vec::new(),
            range: None,
            if_range: None,
            modified_since: None,
            keep_alive: persistent,
        };
        let mut hosts = 0;
        let mut chunked = false;
        let mut length = None;
        let mut tagged = false;
        for (name, value) in fields {
            // None of these fields' grammars allow characters outside ASCII.
            let value = std::str::from_utf8(value).unwrap_or("\u{fffd}");
            let is = |other: &str| name.eq_ignore_ascii_case(other);
            if is("host") {
                hosts += 1;
            } else if is("connection") {
                request.keep_alive = keeps_alive(value, request.keep_alive);
            } else if is("transfer-encoding") {
                chunked = true;
            } else if is("content-length") {
                if length.is_some_and(|other| other != value)
                    || value.is_empty()
                    || !value.bytes().all(|digit| digit.is_ascii_digit())
                {
                    return Err(Refusal::Malformed);
                }
                length = Some(value);
            } else if is("range") && request.range.is_none() {
                request.range = Some(value.to_owned());
            } else if is("if-range") {
                request.if_range = Some(httpdate::parse_http_date(value).ok());
            } else if is("if-modified-since") {
                request.modified_since = httpdate::parse_http_date(value).ok();
            } else if is("if-none-match") {
                tagged = true;
            }
        }
        let known = matches!(method, "GET" | "HEAD");
        // A client that repeats Host, or sends a GET in chunks, tries to deceive a server or proxy.
        if hosts > 1 || (chunked && (known || length.is_some())) {
            return Err(Refusal::Malformed);
        }
        let path = decode(path_of(target).ok_or(Refusal::Malformed)?)?;
        if !known {
            return Err(Refusal::Method);
        }
        request.path = path;
        if request.head_only {
            request.range = None;
        }
        if tagged {
            // RFC 9110 13.1.3: a recipient without entity tags has none that matches.
            request.modified_since = None;
        }
        if length.is_some_and(|length| length.bytes().any(|digit| digit != b'0')) {
            request.keep_alive = false;
        }
        Ok(request)
    }
}

fn keeps_alive(connection: &str, so_far: bool) -> bool {
    let has = |option: &str| connection.split(',').any(|o| o.trim().eq_ignore_ascii_case(option));
    !has("close") && (so_far || has("keep-alive"))
}

/// The path of a target in origin form or absolute form (RFC 9112 3.2).
fn path_of(target: &str) -> Option<&str> {
    let path = if target.starts_with('/') {
        target
    } else {
        let (scheme, rest) = target.split_once("://")?;
        if !scheme.eq_ignore_ascii_case("http") {
            return None;
        }
        rest.find('/').map_or("/", |at| &rest[at..])
    };
    path.split('?').next()
}

/// Decodes a path once and makes it relative. A folder stands for its `index.html`.
fn decode(path: &str) -> Result<Vec<u8>, Refusal> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut bytes = path.bytes();
    while let Some(byte) = bytes.next() {
        let byte = match byte {
            b'%' => {
                let mut digit = || {
                    let digit = char::from(bytes.next()?).to_digit(16)?;
                    u8::try_from(digit).ok()
                };
                let (Some(high), Some(low)) = (digit(), digit()) else {
                    return Err(Refusal::Malformed);
                };
                match high << 4 | low {
                    b'/' => return Err(Refusal::Path),
                    other => other,
                }
            }
            other => other,
        };
        if byte == b'\\' || byte.is_ascii_control() {
            return Err(Refusal::Path);
        }
        decoded.push(byte);
    }
    if decoded.split(|byte| *byte == b'/').any(|segment| matches!(segment, b"." | b"..")) {
        return Err(Refusal::Path);
    }
    let slashes = decoded.iter().take_while(|byte| **byte == b'/').count();
    decoded.drain(..slashes);
    if decoded.is_empty() || decoded.ends_with(b"/") {
        decoded.extend_from_slice(b"index.html");
    }
    Ok(decoded)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    fn parse(head: &str) -> Result<Request, Refusal> {
        Request::parse(head.as_bytes()).map(|parsed| parsed.expect("complete").request)
    }

    fn path(target: &str) -> Result<String, Refusal> {
        parse(&format!("GET {target} HTTP/1.1\r\n\r\n"))
            .map(|request| String::from_utf8_lossy(&request.path).into_owned())
    }

    #[test]
    fn paths_are_decoded_once_and_stay_below() {
        for (target, expected) in [
            ("/a/b.mp4", "a/b.mp4"),
            ("/", "index.html"),
            ("//a/", "a/index.html"),
            ("/a%20b?c=/../", "a b"),
            ("/%2561", "%61"),
            ("http://host:80/a", "a"),
            ("HTTP://host", "index.html"),
            ("/..a", "..a"),
        ] {
            assert_eq!(path(target).as_deref(), Ok(expected), "{target}");
        }
        for target in ["/..", "/a/../b", "/%2e%2E/a", "/a%2fb", "/a%00", "/a\\b", "/./a", "/%0a"] {
            assert_eq!(path(target), Err(Refusal::Path), "{target}");
        }
        for target in ["/%", "/%4", "/%zz", "/%+1", "a", "*", "ftp://host/a"] {
            assert_eq!(path(target), Err(Refusal::Malformed), "{target}");
        }
    }

    #[test]
    fn fields_mean_what_they_say() {
        let request = parse(
            "GET /a HTTP/1.1\r\nhost: x\r\nRANGE: bytes=0-1\r\nConnection: x, Close\r\n\
             If-Modified-Since: Thu, 01 Jan 1970 00:00:10 GMT\r\nIf-Range: \"tag\"\r\n\r\n",
        );
        assert_eq!(
            request,
            Ok(Request {
                head_only: false,
                path: b"a".to_vec(),
                range: Some("bytes=0-1".to_owned()),
                if_range: Some(None),
                modified_since: Some(UNIX_EPOCH + Duration::from_secs(10)),
                keep_alive: false,
            })
        );
        let kept = |rest: &str| parse(&format!("GET / HTTP/{rest}\r\n\r\n")).map(|r| r.keep_alive);
        assert_eq!(kept("1.1"), Ok(true));
        assert_eq!(kept("1.0"), Ok(false));
        assert_eq!(kept("1.0\r\nConnection: Keep-Alive"), Ok(true));
        assert_eq!(kept("1.1\r\nContent-Length: 0"), Ok(true));
        assert_eq!(kept("1.1\r\nContent-Length: 3"), Ok(false));
    }

    #[test]
    fn bad_requests_are_refused() {
        for (head, expected) in [
            ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", Refusal::Malformed),
            ("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", Refusal::Malformed),
            ("GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", Refusal::Malformed),
            (
                "GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
                Refusal::Malformed,
            ),
            ("GET / HTTP/1.1\r\nno colon\r\n\r\n", Refusal::Malformed),
            ("GET / HTTP/2.0\r\n\r\n", Refusal::Malformed),
            ("POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", Refusal::Method),
        ] {
            assert_eq!(parse(head), Err(expected), "{head:?}");
        }
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(MAX_FIELDS + 1));
        assert_eq!(parse(&many), Err(Refusal::TooLarge));
        assert!(matches!(Request::parse(b"GET / HTTP/1.1\r\nA: b\r\n"), Ok(None)));
    }
}
