use std::borrow::Cow;
use std::fmt;

/// Who can avoid the error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Blame {
    /// The peer broke the protocol.
    PeerMisbehaved,
    /// The peer follows the protocol, but asks for more memory than sensible peers need.
    LimitExceeded,
    /// The peer is right, but this implementation does not support that part.
    Unsupported,
    /// The caller requested something that the session's state does not allow.
    Caller,
}

impl fmt::Display for Blame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PeerMisbehaved => "peer misbehaved",
            Self::LimitExceeded => "limit exceeded",
            Self::Unsupported => "not supported",
            Self::Caller => "not possible now",
        })
    }
}

/// Why a session ends, a message is ignored, or a call is refused.
///
/// Positions are in bytes from the start of the session's input, handshake included. Those of the
/// AMF functions count from the start of the bytes they were given. An error about a whole message
/// has the position of the first byte of its first chunk.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{blame}: {what}{} at byte {at}", place(*.message_type, *.csid))]
#[non_exhaustive]
pub struct Error {
    /// Who is to blame.
    pub blame: Blame,
    /// What is wrong, as a noun phrase.
    pub what: Cow<'static, str>,
    /// Type of the message with the error, where it is known (RTMP 1.0, 5.4 and 7.1).
    pub message_type: Option<u8>,
    /// Chunk stream with the error, where it is known.
    pub csid: Option<u32>,
    /// Position in the input, in bytes.
    pub at: u64,
}

fn place(message_type: Option<u8>, csid: Option<u32>) -> String {
    match (message_type, csid) {
        (Some(kind), Some(csid)) => format!(" (message type {kind}, chunk stream {csid})"),
        (Some(kind), None) => format!(" (message type {kind})"),
        (None, Some(csid)) => format!(" (chunk stream {csid})"),
        (None, None) => String::new(),
    }
}

impl Error {
    fn new(blame: Blame, what: impl Into<Cow<'static, str>>, at: u64) -> Self {
        Self { blame, what: what.into(), message_type: None, csid: None, at }
    }

    pub(crate) fn misbehaved(what: impl Into<Cow<'static, str>>, at: u64) -> Self {
        Self::new(Blame::PeerMisbehaved, what, at)
    }

    pub(crate) fn limit(what: impl Into<Cow<'static, str>>, at: u64) -> Self {
        Self::new(Blame::LimitExceeded, what, at)
    }

    pub(crate) fn unsupported(what: impl Into<Cow<'static, str>>, at: u64) -> Self {
        Self::new(Blame::Unsupported, what, at)
    }

    pub(crate) fn caller(what: impl Into<Cow<'static, str>>, at: u64) -> Self {
        Self::new(Blame::Caller, what, at)
    }

    pub(crate) fn on(mut self, message_type: u8, csid: u32) -> Self {
        self.message_type = Some(message_type);
        self.csid = Some(csid);
        self
    }

    pub(crate) fn on_csid(mut self, csid: u32) -> Self {
        self.csid = Some(csid);
        self
    }

    /// Turns an error inside a message's payload into an error of the session. The position in the
    /// payload moves into the text, because chunk headers interrupt the payload in the input.
    pub(crate) fn in_payload(mut self, message_type: u8, csid: u32, message_at: u64) -> Self {
        self.what = Cow::Owned(format!("{} at payload byte {}", self.what, self.at));
        self.at = message_at;
        self.on(message_type, csid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_who_what_and_where() {
        let error = Error::misbehaved("chunk size 0", 4711).on(1, 2);
        assert_eq!(
            error.to_string(),
            "peer misbehaved: chunk size 0 (message type 1, chunk stream 2) at byte 4711"
        );
        let error = Error::unsupported("AMF3 value", 3).in_payload(20, 3, 100);
        assert_eq!(
            error.to_string(),
            "not supported: AMF3 value at payload byte 3 (message type 20, chunk stream 3) at byte 100"
        );
    }
}
