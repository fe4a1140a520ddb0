//! The head of a request: parsed once, checked, and owned.

use std::borrow::Cow;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::ops::Range;
use std::time::Instant;

use bytes::{Bytes, BytesMut};

use crate::bad_request::BadRequest;
use crate::target;

/// Most header fields of a head; with more, the answer is 431.
const MAX_FIELDS: usize = 100;

/// The method of a request (RFC 9110 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the methods' own names")]
pub enum Method {
    Get,
    Head,
    Options,
    Post,
    Put,
    Patch,
    Delete,
    /// Any other method.
    Other,
}

/// The version of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    Http11,
}

/// How the end of a request's payload is determined (RFC 9112 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadFraming {
    /// This many bytes follow the head.
    Length(u64),
    /// Chunked transfer coding.
    Chunked,
}

type Span = Range<u32>;

/// The head of a request.
#[derive(Clone, Debug)]
pub struct Request {
    /// The bytes as received, from the request line to the empty line. Valid UTF-8.
    head: Bytes,
    target: Span,
    query: Option<Span>,
    authority: Option<Span>,
    fields: Vec<(Span, Span)>,
    path: Path,
    method: Method,
    version: Version,
    peer: SocketAddr,
    received: Option<Instant>,
    keep_alive: bool,
    payload: PayloadFraming,
    content: Bytes,
}

#[derive(Clone, Debug)]
enum Path {
    /// The path needed no decoding.
    AsReceived(Span),
    Decoded(Box<str>),
}

impl Request {
    /// Takes one request head from the front of `input`; `None` if it is not complete yet. On an
    /// error nothing is taken.
    ///
    /// `max_head` is the largest accepted head, in bytes.
    pub fn parse(
        input: &mut BytesMut,
        peer: SocketAddr,
        max_head: usize,
    ) -> Result<Option<Self>, BadRequest> {
        let mut fields = [MaybeUninit::uninit(); MAX_FIELDS];
        let mut head = httparse::Request::new(&mut []);
        let size = match head.parse_with_uninit_headers(input, &mut fields) {
            Ok(httparse::Status::Complete(size)) if size <= max_head => size,
            Ok(httparse::Status::Partial) if input.len() <= max_head => return Ok(None),
            Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(BadRequest::TooLarge),
            Err(error) => return Err(BadRequest::Syntax(error)),
        };
        let base = input.as_ptr() as usize;
        let span = |text: &[u8]| {
            // The text is part of `input`, which is no longer than a head and one read.
            let start = (text.as_ptr() as usize).wrapping_sub(base) as u32;
            start..start.wrapping_add(text.len() as u32)
        };
        if std::str::from_utf8(&input[..size]).is_err() {
            return Err(BadRequest::Encoding);
        }
        let method = match head.method.unwrap_or_default() {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            "OPTIONS" => Method::Options,
            "POST" => Method::Post,
            "PUT" => Method::Put,
            "PATCH" => Method::Patch,
            "DELETE" => Method::Delete,
            _ => Method::Other,
        };
        let version = if head.version == Some(0) { Version::Http10 } else { Version::Http11 };
        let raw = head.path.unwrap_or_default();
        let parts = target::split(raw)?;
        if parts.path == "*" && method != Method::Options {
            return Err(BadRequest::Target);
        }
        if let Some(query) = parts.query {
            target::decode(query, true)?;
        }
        let path = match target::decode_path(parts.path)? {
            // For an absolute target without a path, `split` supplies this path.
            Cow::Borrowed("/") => Path::Decoded("/".into()),
            Cow::Borrowed(path) => Path::AsReceived(span(path.as_bytes())),
            Cow::Owned(path) => Path::Decoded(path.into_boxed_str()),
        };
        let framing = Framing::read(head.headers, version)?;
        if matches!(method, Method::Get | Method::Head)
            && framing.payload == PayloadFraming::Chunked
        {
            return Err(BadRequest::TransferEncoding);
        }
        let (target, query) = (span(raw.as_bytes()), parts.query.map(|q| span(q.as_bytes())));
        let authority = parts.authority.map(|authority| span(authority.as_bytes()));
        let fields =
            head.headers.iter().map(|f| (span(f.name.as_bytes()), span(f.value))).collect();
        Ok(Some(Self {
            head: input.split_to(size).freeze(),
            target,
            query,
            authority,
            fields,
            path,
            method,
            version,
            peer,
            received: None,
            keep_alive: framing.keep_alive,
            payload: framing.payload,
            content: Bytes::new(),
        }))
    }

    fn bytes(&self, span: &Span) -> &[u8] {
        // Every span is that of a token in the head.
        self.head.get(span.start as usize..span.end as usize).unwrap_or_default()
    }

    fn text(&self, span: &Span) -> &str {
        // The head was checked to be UTF-8.
        std::str::from_utf8(self.bytes(span)).unwrap_or_default()
    }

    /// The method.
    pub fn method(&self) -> Method {
        self.method
    }

    /// The version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The path: begins with `/`, percent-decoded once, with runs of slashes merged. It has no dot
    /// segments, encoded slashes, backslashes or control characters. `*` for `OPTIONS *`.
    pub fn path(&self) -> &str {
        match &self.path {
            Path::AsReceived(span) => self.text(span),
            Path::Decoded(path) => path,
        }
    }

    /// Takes the first `length` bytes of [`path`](Self::path) away, up to a slash, which stays. Nothing happens if there
    /// is none.
    pub fn cut_path(&mut self, length: usize) {
        if !self.path().get(length..).is_some_and(|rest| rest.starts_with('/')) {
            return;
        }
        match &mut self.path {
            // A path is no longer than a head.
            Path::AsReceived(span) => span.start += length as u32,
            Path::Decoded(path) => *path = path[length..].into(),
        }
    }

    /// The segments of [`path`](Self::path), without the empty one after a trailing slash.
    pub fn segments(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.path().split('/').filter(|segment| !segment.is_empty())
    }

    /// The target as received.
    pub fn target(&self) -> &str {
        self.text(&self.target)
    }

    /// The query as received, without the `?`.
    pub fn query(&self) -> Option<&str> {
        self.query.as_ref().map(|span| self.text(span))
    }

    /// The names and values of the query, decoded. A name without `=` has an empty value.
    pub fn query_pairs(&self) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
        let pairs = self.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            // `parse` has decoded the whole query, so its parts decode too.
            let decode = |text| target::decode(text, true).unwrap_or(Cow::Borrowed(text));
            (decode(name), decode(value))
        })
    }

    /// The first value of a query parameter.
    pub fn parameter(&self, name: &str) -> Option<Cow<'_, str>> {
        self.query_pairs().find_map(|(key, value)| (key == name).then_some(value))
    }

    /// The first value of a header field. The name is case-insensitive.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.header_values(name).next()
    }

    /// All values of a header field. The name is case-insensitive.
    pub fn header_values<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        let is_named = move |key: &Span| self.bytes(key).eq_ignore_ascii_case(name.as_bytes());
        let named = self.fields.iter().filter(move |(key, _)| is_named(key));
        named.map(|(_, value)| self.text(value))
    }

    /// All header fields, in the order received.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields.iter().map(|(name, value)| (self.text(name), self.text(value)))
    }

    /// The requested host, with its port if there is one: from the target, or else from `Host`.
    pub fn host(&self) -> Option<&str> {
        self.authority.as_ref().map(|span| self.text(span)).or_else(|| self.header("host"))
    }

    /// The other end of the connection.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// A time when all of the head had been received. Requests that came in one read have the same.
    pub fn received(&self) -> Instant {
        self.received.unwrap_or_else(Instant::now)
    }

    /// Sets [`received`](Self::received), which is the present otherwise.
    pub(crate) fn set_received(&mut self, at: Instant) {
        self.received = Some(at);
    }

    /// Whether the peer wants the connection to stay open (RFC 9112 9.3).
    pub fn keep_alive(&self) -> bool {
        self.keep_alive
    }

    /// How the end of the payload is determined.
    pub fn payload(&self) -> PayloadFraming {
        self.payload
    }

    /// The payload of a POST that the handler takes, if it is not too long.
    pub fn content(&self) -> &[u8] {
        &self.content
    }

    pub(crate) fn set_content(&mut self, content: Bytes) {
        self.content = content;
    }

    /// The head as received.
    pub(crate) fn head(&self) -> &Bytes {
        &self.head
    }
}

/// What the header fields say about the connection.
struct Framing {
    keep_alive: bool,
    payload: PayloadFraming,
}

impl Framing {
    fn read(fields: &[httparse::Header<'_>], version: Version) -> Result<Self, BadRequest> {
        let (mut hosts, mut length, mut chunked) = (0, None, false);
        let (mut close, mut keep_alive) = (false, version == Version::Http11);
        for field in fields {
            // The caller has checked that this is UTF-8.
            let value = std::str::from_utf8(field.value).unwrap_or_default();
            let is = |name| field.name.eq_ignore_ascii_case(name);
            if is("host") {
                hosts += 1;
                if !target::is_host(value) {
                    return Err(BadRequest::Host);
                }
            } else if is("content-length") {
                // `parse` alone would accept a sign.
                if value.is_empty() || !value.bytes().all(|digit| digit.is_ascii_digit()) {
                    return Err(BadRequest::ContentLength);
                }
                let value = value.parse::<u64>().map_err(|_| BadRequest::ContentLength)?;
                // Refused even if the values agree: an intermediary may have used another of them.
                if length.replace(value).is_some() {
                    return Err(BadRequest::ContentLength);
                }
            } else if is("transfer-encoding") {
                // Any other coding, or `chunked` twice, could not be decoded here.
                if chunked || !value.eq_ignore_ascii_case("chunked") {
                    return Err(BadRequest::TransferEncoding);
                }
                chunked = true;
            } else if is("connection") {
                for option in value.split(',').map(str::trim) {
                    close |= option.eq_ignore_ascii_case("close");
                    keep_alive |= option.eq_ignore_ascii_case("keep-alive");
                }
            }
        }
        if hosts > 1 || (hosts == 0 && version == Version::Http11) {
            return Err(BadRequest::Host);
        }
        if chunked && (length.is_some() || version == Version::Http10) {
            return Err(BadRequest::TransferEncoding);
        }
        let payload = match length {
            _ if chunked => PayloadFraming::Chunked,
            length => PayloadFraming::Length(length.unwrap_or(0)),
        };
        Ok(Self { keep_alive: keep_alive && !close, payload })
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::*;

    fn parse(input: &mut BytesMut) -> Result<Option<Request>, BadRequest> {
        Request::parse(input, SocketAddr::from((Ipv4Addr::LOCALHOST, 1)), 8192)
    }

    #[test]
    fn the_front_of_a_path_can_be_cut_off_at_a_slash() {
        for (path, length, rest) in [
            ("/s/token/live/x?a=1", 8, "/live/x"),
            ("/s/token/vod/a%20b", 8, "/vod/a b"),
            ("/a", 0, "/a"),
            ("/a/b", 1, "/a/b"),
            ("/a/b", 9, "/a/b"),
            ("/%C3%BC/b", 2, "/\u{fc}/b"),
        ] {
            let head = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
            let mut request = parse(&mut BytesMut::from(&*head)).unwrap().unwrap();
            request.cut_path(length);
            assert_eq!(request.path(), rest, "{path}");
        }
    }

    fn check(request: &Request) -> Result<(), TestCaseError> {
        let path = request.path();
        prop_assert!(path.starts_with('/') || path == "*");
        prop_assert!(!path.contains("//") && !path.contains(['\\', '\0']));
        prop_assert!(request.segments().all(|segment| !["", ".", ".."].contains(&segment)));
        for (name, value) in request.headers() {
            prop_assert!(!name.is_empty() && !value.contains(['\r', '\n', '\0']));
        }
        request.query_pairs().for_each(drop);
        Ok(())
    }

    #[test]
    fn parts() {
        let mut input = BytesMut::from(
            "GET http://a:1//x/%C3%A9/?q=%26&r HTTP/1.1\r\nHost: b\r\nAccept: c\r\nACCEPT:d \r\n\r\nrest",
        );
        let request = parse(&mut input).unwrap().unwrap();
        assert_eq!(&input[..], b"rest");
        assert_eq!((request.method(), request.version()), (Method::Get, Version::Http11));
        assert_eq!(request.target(), "http://a:1//x/%C3%A9/?q=%26&r");
        assert_eq!(request.path(), "/x/é/");
        assert_eq!(request.segments().collect::<Vec<_>>(), ["x", "é"]);
        assert_eq!(request.query(), Some("q=%26&r"));
        assert_eq!(request.parameter("q").as_deref(), Some("&"));
        assert_eq!(request.parameter("r").as_deref(), Some(""));
        assert_eq!(request.parameter("s"), None);
        assert_eq!(request.host(), Some("a:1"));
        assert_eq!(request.header_values("accept").collect::<Vec<_>>(), ["c", "d"]);
        assert_eq!(request.payload(), PayloadFraming::Length(0));
        assert!(request.keep_alive());

        // Defaults for parts that the target leaves out.
        let mut input = BytesMut::from("OPTIONS * HTTP/1.0\r\n\r\nGET http://a HTTP/1.0\r\n\r\n");
        assert_eq!(parse(&mut input).unwrap().unwrap().path(), "*");
        assert_eq!(parse(&mut input).unwrap().unwrap().path(), "/");
    }

    proptest! {
        #[test]
        fn any_bytes(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
            middle in "[ -~\\r\\n%./?:]{0,60}",
        ) {
            let framed = format!("GET /{middle} HTTP/1.1\r\nHost: h\r\n\r\n");
            for bytes in [&bytes[..], framed.as_bytes()] {
                let mut input = BytesMut::from(bytes);
                if let Ok(Some(request)) = parse(&mut input) {
                    prop_assert_eq!(&[&request.head()[..], &input[..]].concat(), bytes);
                    check(&request)?;
                }
            }
        }

        /// A written head reads back unchanged, and no prefix of it counts as complete.
        #[test]
        fn round_trip(
            segments in proptest::collection::vec("[^/\\\\\\x00-\\x1f\\x7f]{1,8}", 1..5),
            query in proptest::collection::vec(("\\PC{1,5}", "\\PC{0,5}"), 0..4),
            fields in proptest::collection::vec(("X-[A-Za-z0-9]{1,8}", "([!-~]([ -~]{0,10}[!-~])?)?"), 0..8),
        ) {
            prop_assume!(segments.iter().all(|segment| segment != "." && segment != ".."));
            let encode = |text: &str| {
                text.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>()
            };
            let path = segments.iter().map(|s| format!("/{}", encode(s))).collect::<String>();
            let pairs: Vec<_> =
                query.iter().map(|(n, v)| format!("{}={}", encode(n), encode(v))).collect();
            let lines = fields.iter().map(|(n, v)| format!("{n}: {v}\r\n")).collect::<String>();
            let head =
                format!("GET {path}?{} HTTP/1.1\r\nHost: h\r\n{lines}\r\n", pairs.join("&"));
            for end in 0..head.len() {
                let mut input = BytesMut::from(&head[..end]);
                prop_assert!(matches!(parse(&mut input), Ok(None)), "taken at {}", end);
            }
            let request = parse(&mut BytesMut::from(&head[..]));
            let Ok(Some(request)) = request else { panic!("{request:?}") };
            check(&request)?;
            prop_assert_eq!(request.segments().collect::<Vec<_>>(), segments);
            let read: Vec<_> = request
                .query_pairs()
                .map(|(name, value)| (name.into_owned(), value.into_owned()))
                .collect();
            prop_assert_eq!(read, query);
            let read: Vec<_> = request.headers().skip(1).collect();
            let written: Vec<_> = fields.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
            prop_assert_eq!(read, written);
        }
    }
}
