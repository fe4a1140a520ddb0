//! Errors of requests that cannot be understood.

/// Why a request was refused. The connection is closed after the answer, because it is unclear
/// where the next request begins, or because such a peer is not worth serving.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    /// The request line or a header field breaks RFC 9112, or the version is not 1.x.
    #[error("malformed head: {0}")]
    Syntax(httparse::Error),
    /// The head has more than `Config::max_head` bytes, or too many fields.
    #[error("head too large")]
    TooLarge,
    /// The head is not UTF-8.
    #[error("head is not UTF-8")]
    Encoding,
    /// The target has none of the forms of RFC 9112 3.2, or a form that this method does not allow.
    #[error("malformed request target")]
    Target,
    /// A `%` is not followed by two hexadecimal digits, or the encoded bytes are not UTF-8.
    #[error("malformed percent-encoding")]
    PercentEncoding,
    /// The path has dot segments, encoded slashes, backslashes or control characters.
    #[error("path with dot segments, encoded slashes or control characters")]
    Path,
    /// `Host` is missing (HTTP/1.1), repeated or malformed (RFC 9112 3.2).
    #[error("missing, repeated or malformed Host")]
    Host,
    /// `Content-Length` is not a number, or is repeated (RFC 9110 8.6).
    #[error("malformed or repeated Content-Length")]
    ContentLength,
    /// `Transfer-Encoding` occurs in HTTP/1.0, or with `Content-Length`, or is not `chunked`, or
    /// the request is a GET or HEAD (RFC 9112 6.1).
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
