//! The server's part of the opening handshake (RFC 6455 4.2).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};

use super::SUBPROTOCOL;

/// GUID that `Sec-WebSocket-Accept` is computed with (1.3).
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The answer to a request that may become a WebSocket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// The value of `Sec-WebSocket-Accept`.
    pub accept: String,
    /// Whether the client offered [`SUBPROTOCOL`]. Then the answer names it in
    /// `Sec-WebSocket-Protocol`.
    pub subprotocol: bool,
}

/// Why a request cannot become a WebSocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The request does not ask for a WebSocket.
    #[error("only over a WebSocket: `Upgrade: websocket`, by HTTP/1.1")]
    NotAsked,
    /// `Sec-WebSocket-Version` is not 13. The answer must name the supported version (4.4).
    #[error("Sec-WebSocket-Version has to be 13")]
    Version,
    /// `Sec-WebSocket-Key` is missing, repeated, or not 16 bytes in base64.
    #[error("Sec-WebSocket-Key has to be 16 bytes in base64")]
    Key,
}

impl Refusal {
    /// Status code of the answer. An answer with 426 also has `Upgrade: websocket` and
    /// `Sec-WebSocket-Version: 13`.
    pub fn status(self) -> u16 {
        match self {
            Self::NotAsked | Self::Version => 426,
            Self::Key => 400,
        }
    }
}

/// Checks the header fields of a GET over HTTP/1.1, and computes the answer.
///
/// # Errors
/// The fields do not ask for a WebSocket in the required way (4.2.1).
pub fn accept(fields: &[(&str, &str)]) -> Result<Accepted, Refusal> {
    let values = |name: &'static str| {
        let fields = fields.iter().filter(move |(field, _)| field.eq_ignore_ascii_case(name));
        fields.map(|(_, value)| *value)
    };
    let lists = |name: &'static str, wanted: &str| {
        let mut words = values(name).flat_map(|value| value.split(','));
        words.any(|word| word.trim().eq_ignore_ascii_case(wanted))
    };
    if !lists("upgrade", "websocket") || !lists("connection", "upgrade") {
        return Err(Refusal::NotAsked);
    }
    let mut versions = values("sec-websocket-version");
    if versions.next().map(str::trim) != Some("13") || versions.next().is_some() {
        return Err(Refusal::Version);
    }
    let mut keys = values("sec-websocket-key").map(str::trim);
    let (Some(key), None) = (keys.next(), keys.next()) else { return Err(Refusal::Key) };
    if !STANDARD.decode(key).is_ok_and(|nonce| nonce.len() == 16) {
        return Err(Refusal::Key);
    }
    // Names of subprotocols are case-sensitive (11.3.4).
    let mut offered = values("sec-websocket-protocol").flat_map(|value| value.split(','));
    let subprotocol = offered.any(|name| name.trim() == SUBPROTOCOL);
    let hash = Sha1::new().chain_update(key).chain_update(GUID).finalize();
    Ok(Accepted { accept: STANDARD.encode(hash), subprotocol })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: [(&str, &str); 5] = [
        ("Host", "server.example.com"),
        ("Upgrade", "WebSocket"),
        ("Connection", "keep-alive, Upgrade"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("Sec-WebSocket-Version", "13"),
    ];

    fn with(changes: &[(&'static str, &'static str)]) -> Result<Accepted, Refusal> {
        let kept = GOOD.into_iter().filter(|(name, _)| changes.iter().all(|(c, _)| c != name));
        let fields: Vec<_> = kept.chain(changes.iter().copied()).collect();
        accept(&fields)
    }

    /// The example of RFC 6455 1.3.
    #[test]
    fn the_key_of_the_specification() {
        let accepted = with(&[]).unwrap();
        assert_eq!(accepted.accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert!(!accepted.subprotocol);
    }

    #[test]
    fn subprotocols() {
        for (offered, accepted) in [
            ("headwater.v1", true),
            ("chat, headwater.v1 , x", true),
            ("Headwater.v1", false),
            ("headwater.v2", false),
            ("", false),
        ] {
            let got = with(&[("Sec-WebSocket-Protocol", offered)]).unwrap().subprotocol;
            assert_eq!(got, accepted, "{offered}");
        }
    }

    #[test]
    fn requests_that_stay_http() {
        for (changes, refusal) in [
            (&[("Upgrade", "h2c")][..], Refusal::NotAsked),
            (&[("Connection", "keep-alive")], Refusal::NotAsked),
            (&[("Sec-WebSocket-Version", "8")], Refusal::Version),
            (&[("Sec-WebSocket-Version", "8"), ("Sec-WebSocket-Version", "13")], Refusal::Version),
            (&[("Sec-WebSocket-Key", "")], Refusal::Key),
            (&[("Sec-WebSocket-Key", "dGhlIHNhbXBsZQ==")], Refusal::Key),
            (&[("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZ!==")], Refusal::Key),
        ] {
            assert_eq!(with(changes), Err(refusal), "{changes:?}");
        }
        assert_eq!(accept(&[("Host", "x")]), Err(Refusal::NotAsked));
        assert_eq!((Refusal::NotAsked.status(), Refusal::Key.status()), (426, 400));
    }
}
