//! Responses and their payloads.

use std::fmt::{self, Write as _};
use std::io;
use std::task::{Context, Poll};

use bytes::Bytes;
use payload::{Piece, length};

use crate::upgrade::{Switch, Upgraded};

/// The payload of a response.
#[derive(Default)]
pub enum Body {
    /// No payload: `Content-Length: 0`, or no length where the status allows no content.
    #[default]
    Empty,
    /// The whole payload, in order.
    Pieces(Vec<Piece>),
    /// A payload of unknown length. It is sent in chunked transfer coding, or for HTTP/1.0 up to
    /// the end of the connection.
    Stream(Box<dyn BodyStream>),
    /// A payload of known length that is not complete yet. If the stream ends early, the connection
    /// is closed, so that the client notices. Bytes beyond the length are not sent.
    Sized(u64, Box<dyn BodyStream>),
}

/// A payload that is made while it is sent.
pub trait BodyStream {
    /// The next pieces; `None` at the end. After an error the connection is closed without the end
    /// mark of the payload, so that the peer notices.
    ///
    /// It is called only when the kernel has accepted all earlier pieces. So the stream decides
    /// what to skip for a viewer that reads too slowly.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Vec<Piece>>>>;

    /// Called once when the server begins to drain; `poll_next` is called after it. An endless
    /// stream should end at its next boundary. A finite one may ignore it.
    fn drain(&mut self) {}

    /// Called when the connection is closed because the peer took no byte for
    /// `Config::stall_timeout`.
    fn stalled(&mut self) {}
}

impl Body {
    /// The length in bytes, if it is known.
    pub fn size(&self) -> Option<u64> {
        match self {
            Self::Empty => Some(0),
            Self::Pieces(pieces) => Some(length(pieces)),
            Self::Sized(size, _) => Some(*size),
            Self::Stream(_) => None,
        }
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::Pieces(vec![bytes.into()])
    }
}

impl From<Vec<Piece>> for Body {
    fn from(pieces: Vec<Piece>) -> Self {
        Self::Pieces(pieces)
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Bytes::from(text).into()
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Self {
        Bytes::from_static(text.as_bytes()).into()
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.size() {
            Some(size) => write!(f, "Body({size} bytes)"),
            None => f.write_str("Body(stream)"),
        }
    }
}

/// A response. Its headers are written in their final form. The driver adds `Server`, `Date`, the
/// framing (`Content-Length` or `Transfer-Encoding`, `Connection`) and CORS.
#[derive(Debug)]
pub struct Response {
    status: u16,
    /// Status line and header lines, each with CRLF.
    head: Vec<u8>,
    body: Body,
    switch: Option<Switch>,
}

impl Response {
    /// An empty response with this status code in 100–999; other codes become 500.
    pub fn new(status: u16) -> Self {
        let status = if (100..=999).contains(&status) { status } else { 500 };
        let mut response =
            Self { status, head: Vec::with_capacity(512), body: Body::Empty, switch: None };
        let digit = |unit| b'0' + (status / unit % 10) as u8;
        let code = [digit(100), digit(10), digit(1), b' '];
        for part in [b"HTTP/1.1 ".as_slice(), &code, reason(status).as_bytes(), b"\r\n"] {
            response.head.extend_from_slice(part);
        }
        response
    }

    /// A response with a line of plain text, for errors.
    pub fn text(status: u16, text: impl fmt::Display) -> Self {
        let text = format!("{text}\n");
        Self::new(status).header("Content-Type", "text/plain; charset=utf-8").body(text)
    }

    /// Adds a header field. Control characters in the value become spaces, so that no value can
    /// begin another field.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl fmt::Display) -> Self {
        self.head.extend_from_slice(name.as_bytes());
        self.head.extend_from_slice(b": ");
        let start = self.head.len();
        self.write(format_args!("{value}"));
        for byte in &mut self.head[start..] {
            if byte.is_ascii_control() && *byte != b'\t' {
                *byte = b' ';
            }
        }
        self.head.extend_from_slice(b"\r\n");
        self
    }

    /// Adds the header fields of another response, each a line with CRLF.
    #[must_use]
    pub(crate) fn with_fields(mut self, fields: &[u8]) -> Self {
        self.head.extend_from_slice(fields);
        self
    }

    /// The header fields set so far, each a line with CRLF.
    pub(crate) fn into_fields(mut self) -> Vec<u8> {
        let status = self.head.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        self.head.split_off(status)
    }

    /// Sets the payload.
    #[must_use]
    pub fn body(mut self, body: impl Into<Body>) -> Self {
        self.body = body.into();
        self
    }

    /// Replaces the payload by another that is made from it, such as a paced one.
    #[must_use]
    pub fn map_body(mut self, change: impl FnOnce(Body) -> Body) -> Self {
        self.body = change(self.body);
        self
    }

    /// Tells caches that serve several users not to keep it (RFC 9111 5.2.2.7): its `Cache-Control` becomes `private`,
    /// and what is meant for such caches only goes.
    #[must_use]
    pub fn without_shared_caches(mut self) -> Self {
        const FIELD: &[u8] = b"\r\nCache-Control: ";
        let Some(at) = self.head.windows(FIELD.len()).position(|window| window == FIELD) else {
            return self;
        };
        let start = at + FIELD.len();
        let end =
            self.head[start..].iter().position(|byte| *byte == b'\r').map_or(start, |n| start + n);
        let value = String::from_utf8_lossy(&self.head[start..end]);
        let is_kept = |part: &&str| *part != "public" && !part.starts_with("s-maxage=");
        let parts: Vec<_> = value.split(", ").filter(is_kept).collect();
        if !parts.contains(&"no-store") {
            let value = format!("private, {}", parts.join(", "));
            self.head.splice(start..end, value.into_bytes());
        }
        self
    }

    /// The pieces of the payload, if all of them are known.
    pub fn pieces(&self) -> &[Piece] {
        match &self.body {
            Body::Pieces(pieces) => pieces,
            Body::Empty | Body::Stream(_) | Body::Sized(..) => &[],
        }
    }

    /// A 101 after which the connection belongs to `switch`. By HTTP/2, and for a request without
    /// `Upgrade` on a connection of the control plane, the answer becomes a 426.
    pub fn switching(switch: impl FnOnce(Upgraded) + 'static) -> Self {
        let mut response = Self::new(101);
        response.switch = Some(Switch(Box::new(switch)));
        response
    }

    /// Takes the function that receives the connection.
    pub(crate) fn take_switch(&mut self) -> Option<Switch> {
        self.switch.take()
    }

    /// The status code.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The header fields set so far.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        let text = std::str::from_utf8(&self.head).unwrap_or_default();
        text.split("\r\n").skip(1).filter_map(|line| line.split_once(": "))
    }

    /// Whether a response with this status has content (RFC 9110 6.4.1).
    pub(crate) fn may_have_content(&self) -> bool {
        self.status >= 200 && self.status != 204 && self.status != 304
    }

    /// Status line and header lines without the empty line at the end, and the payload.
    pub(crate) fn into_parts(self) -> (Vec<u8>, Body) {
        (self.head, self.body)
    }

    fn write(&mut self, arguments: fmt::Arguments<'_>) {
        struct Sink<'a>(&'a mut Vec<u8>);
        impl fmt::Write for Sink<'_> {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                self.0.extend_from_slice(text.as_bytes());
                Ok(())
            }
        }
        // Writing to memory cannot fail. If a `Display` fails, its field is cut short.
        let _ = Sink(&mut self.head).write_fmt(arguments);
    }
}

/// The reason phrase of the status codes used here (RFC 9110 15, RFC 6585).
fn reason(status: u16) -> &'static str {
    match status {
        101 => "Switching Protocols",
        200 => "OK",
        204 => "No Content",
        206 => "Partial Content",
        304 => "Not Modified",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        408 => "Request Timeout",
        412 => "Precondition Failed",
        416 => "Range Not Satisfiable",
        422 => "Unprocessable Content",
        426 => "Upgrade Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_begins_another_field() {
        let response = Response::new(200).header("X-Name", "a\r\nSet-Cookie: b\0");
        assert_eq!(response.head, b"HTTP/1.1 200 OK\r\nX-Name: a  Set-Cookie: b \r\n");
        assert_eq!(response.headers().collect::<Vec<_>>(), [("X-Name", "a  Set-Cookie: b ")]);
    }

    #[test]
    fn refusals_have_a_reason() {
        for (status, reason) in [
            (401, "Unauthorized"),
            (403, "Forbidden"),
            (429, "Too Many Requests"),
            (503, "Service Unavailable"),
        ] {
            let expected = format!("HTTP/1.1 {status} {reason}\r\n");
            assert_eq!(Response::new(status).head, expected.as_bytes());
        }
    }

    #[test]
    fn what_is_for_one_user_is_in_no_shared_cache() {
        for (before, after) in [
            ("public, max-age=30, immutable", "private, max-age=30, immutable"),
            ("max-age=0, s-maxage=1, must-revalidate", "private, max-age=0, must-revalidate"),
            ("no-cache", "private, no-cache"),
            ("no-store", "no-store"),
        ] {
            let response = Response::new(200).header("Cache-Control", before).header("ETag", "1");
            let response = response.without_shared_caches();
            let fields: Vec<_> = response.headers().collect();
            assert_eq!(fields, [("Cache-Control", after), ("ETag", "1")], "{before}");
        }
        let without = Response::new(200).without_shared_caches();
        assert_eq!(without.headers().count(), 0);
    }

    #[test]
    fn sizes() {
        assert_eq!(Response::text(404, "no such stream").body.size(), Some(15));
        assert_eq!(Body::Empty.size(), Some(0));
        assert_eq!(Response::new(7).status(), 500);
    }
}
