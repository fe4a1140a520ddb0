//! Why a request cannot be understood.

/// Why a request was refused. The connection is closed after the answer: where the next request
/// would begin is in doubt, or the peer is not worth it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    /// Request line or header field that RFC 9112 does not allow, or a version other than 1.x.
    #[error("malformed head: {0}")]
    Syntax(httparse::Error),
    /// The head has more than `Config::max_head` bytes, or too many fields.
    #[error("head too large")]
    TooLarge,
    /// The head is not UTF-8.
    #[error("head is not UTF-8")]
    Encoding,
    /// The target has none of the forms of RFC 9112 3.2, or the form is not for this method.
    #[error("malformed request target")]
    Target,
    /// A `%` without two hexadecimal digits, or what it encodes is not UTF-8.
    #[error("malformed percent-encoding")]
    PercentEncoding,
    /// Dot segments, encoded slashes, backslashes or control characters in the path.
    #[error("path with dot segments, encoded slashes or control characters")]
    Path,
    /// `Host` missing (HTTP/1.1), repeated or malformed (RFC 9112 3.2).
    #[error("missing, repeated or malformed Host")]
    Host,
    /// `Content-Length` that is no number, or more than one (RFC 9110 8.6).
    #[error("malformed or repeated Content-Length")]
    ContentLength,
    /// `Transfer-Encoding` in HTTP/1.0, beside `Content-Length`, other than `chunked`, or on a GET
    /// or HEAD (RFC 9112 6.1).
    #[error("Transfer-Encoding that leaves the framing in doubt")]
    TransferEncoding,
}

impl BadRequest {
    /// The status code of the answer.
    pub fn status(self) -> u16 {
        match self {
            Self::TooLarge => 431,
            Self::Path => 404,
            _ => 400,
        }
    }
}
