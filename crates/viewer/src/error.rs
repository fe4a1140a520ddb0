use std::borrow::Cow;
use std::fmt;
use std::io;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What went wrong, as counters and reports name it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Kind {
    /// The host's name has no address.
    Resolve,
    /// Nobody listens there.
    Refused,
    /// The viewer waited too long for a connection, an answer or further bytes.
    Timeout,
    /// The two sides could not agree on TLS, the server's certificate is not trusted, or the bytes
    /// received are not TLS.
    Tls,
    /// The connection ended or was reset too early.
    Dropped,
    /// An HTTP status that is not the one expected.
    Status,
    /// Too many redirects.
    Redirect,
    /// The bytes received do not follow the protocol or the container.
    Garbage,
    /// A body shorter or longer than its Content-Length.
    Length,
    /// A playlist or manifest that cannot be read, or that lacks something the player needs.
    Manifest,
    /// An RTMP or WebSocket server refused.
    Rejected,
    /// The media are broken, or are not the source's.
    Corrupt,
    /// Correct, but this player does not support it.
    Unsupported,
    /// This machine is at fault, not the server: no descriptor, no port, no memory.
    Local,
}

impl Kind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 14] = [
        Self::Resolve,
        Self::Refused,
        Self::Timeout,
        Self::Tls,
        Self::Dropped,
        Self::Status,
        Self::Redirect,
        Self::Garbage,
        Self::Length,
        Self::Manifest,
        Self::Rejected,
        Self::Corrupt,
        Self::Unsupported,
        Self::Local,
    ];

    /// Name of the kind in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Resolve => "resolve",
            Self::Refused => "refused",
            Self::Timeout => "timeout",
            Self::Tls => "tls",
            Self::Dropped => "dropped",
            Self::Status => "status",
            Self::Redirect => "redirect",
            Self::Garbage => "garbage",
            Self::Length => "length",
            Self::Manifest => "manifest",
            Self::Rejected => "rejected",
            Self::Corrupt => "corrupt",
            Self::Unsupported => "unsupported",
            Self::Local => "local",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a viewer could not go on, or had to try again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {what}{}", in_brackets(.place))]
pub struct Error {
    /// The kind under which it is counted.
    pub kind: Kind,
    /// What is wrong, as a noun phrase.
    pub what: Cow<'static, str>,
    /// Where: a URL, a byte, a time of the media. Empty if there is nothing to say.
    pub place: String,
}

fn in_brackets(place: &str) -> String {
    if place.is_empty() { String::new() } else { format!(" ({place})") }
}

impl Error {
    /// Makes an error without a place.
    pub fn new(kind: Kind, what: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, what: what.into(), place: String::new() }
    }

    /// Adds a place. It goes before the places that the error already has.
    #[must_use]
    pub fn at(mut self, place: impl fmt::Display) -> Self {
        self.place = match self.place.as_str() {
            "" => place.to_string(),
            known => format!("{place}, {known}"),
        };
        self
    }

    /// Makes an error from an error of a socket.
    pub fn io(error: &io::Error, doing: &'static str) -> Self {
        use io::ErrorKind as E;
        let kind = match error.kind() {
            E::ConnectionRefused => Kind::Refused,
            E::TimedOut => Kind::Timeout,
            E::AddrNotAvailable | E::OutOfMemory => Kind::Local,
            // std has no kind for EMFILE, ENFILE and ENOBUFS.
            _ if matches!(error.raw_os_error(), Some(23 | 24 | 105)) => Kind::Local,
            // rustls reports its findings with this kind.
            E::InvalidData => Kind::Tls,
            E::HostUnreachable | E::NetworkUnreachable => Kind::Refused,
            _ => Kind::Dropped,
        };
        Self::new(kind, format!("{doing}: {error}"))
    }

    pub(crate) fn corrupt(what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Corrupt, what)
    }

    pub(crate) fn manifest(what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Manifest, what)
    }
}

impl From<protocol::rtmp::Error> for Error {
    fn from(error: protocol::rtmp::Error) -> Self {
        use protocol::rtmp::Blame;
        let kind = match error.blame {
            Blame::Unsupported => Kind::Unsupported,
            _ => Kind::Garbage,
        };
        Self::new(kind, error.to_string())
    }
}

impl From<str0m::RtcError> for Error {
    fn from(error: str0m::RtcError) -> Self {
        let kind = match error {
            str0m::RtcError::Dtls(_) => Kind::Tls,
            _ => Kind::Garbage,
        };
        Self::new(kind, format!("WebRTC: {error}"))
    }
}

impl From<media::Error> for Error {
    fn from(error: media::Error) -> Self {
        let kind = match error {
            media::Error::Unsupported { .. } => Kind::Unsupported,
            _ => Kind::Corrupt,
        };
        Self::new(kind, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_numbered_in_order() {
        for (at, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, at);
            assert_eq!(serde_name(kind), kind.name());
        }
    }

    fn serde_name(kind: Kind) -> String {
        // kebab-case of a one-word variant is its name in small letters.
        format!("{kind:?}").to_lowercase()
    }

    #[test]
    fn says_what_and_where() {
        let error = Error::corrupt("NAL unit cut off").at("sample 3").at("/v0/7.m4s");
        assert_eq!(error.to_string(), "corrupt: NAL unit cut off (/v0/7.m4s, sample 3)");
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert_eq!(Error::io(&refused, "connecting").kind, Kind::Refused);
        assert_eq!(Error::io(&io::Error::from_raw_os_error(24), "connecting").kind, Kind::Local);
    }
}
