//! What operators make at the command line: signed paths and hashes of passwords.

use std::fmt::Write;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use credentials::signed::Permit;
use credentials::{Pattern, Secret};

use crate::access::unix_now;
use crate::config::signing_key;
use crate::deliver::stream_of;

/// Makes a signed path: `/s/TOKEN/PATH`. It is good for the stream or title of `path`, or for all that a pattern matches.
///
/// # Errors
/// The path cannot be signed, or the key cannot be read.
pub fn signed(
    path: &str,
    expires: Option<Duration>,
    address: Option<IpAddr>,
    key: &Path,
) -> anyhow::Result<String> {
    let path = path.strip_prefix('/').unwrap_or(path);
    let (first, rest) = path.split_once('/').unwrap_or((path, ""));
    anyhow::ensure!(
        ["live", "vod", "**", "*"].contains(&first) && (!rest.is_empty() || first == "**"),
        "{path:?} is neither live/NAME nor vod/PATH"
    );
    let stream = if path.contains('*') { path.to_owned() } else { stream_of(path) };
    let permit = Permit {
        path: stream.parse::<Pattern>()?,
        expires: expires.map(|time| unix_now().saturating_add(time.as_secs().max(1))),
        address: address.map(|address| address.to_canonical()),
    };
    let signer = signing_key(key).map_err(anyhow::Error::msg)?;
    // A path in a URL: RFC 3986 3.3.
    let mut encoded = String::new();
    for byte in path.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' => encoded.push(byte.into()),
            _ if b"/-._~!$&'()*+,;=:@".contains(&byte) => encoded.push(byte.into()),
            _ => write!(encoded, "%{byte:02X}")?,
        }
    }
    Ok(format!("/s/{}/{encoded}", signer.sign(&permit)))
}

/// Makes the hash of a password.
///
/// # Errors
/// The password is empty or too long.
pub fn hashed(password: &str) -> anyhow::Result<String> {
    Ok(Secret::hashed(password)?.into())
}
