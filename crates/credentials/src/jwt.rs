//! JSON Web Tokens (RFC 7519) that others sign: an identity provider, or the operator's own site.
//!
//! A token is signed with HS256, RS256, ES256 or EdDSA with Ed25519 (RFC 7518 3.1, RFC 8037 3.1), each with a key of its
//! kind only. The key alone decides what it can verify; a token only says which one it wants. So a public key never
//! serves as a shared secret, whatever a token says.
//!
//! What it allows is in a claim of our own, beside those of RFC 7519 4.1:
//!
//! ```json
//! "permissions": [{"actions": ["play"], "path": "live/**"}]
//! ```
//!
//! Without `path`, a permission is for all paths. A permission that cannot be read in full refuses the token: what was
//! not understood could have been a limit. Claims that nobody here knows are passed over, and those that count must not
//! be there twice (RFC 7519 4).

mod keys;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::{Number, Value};

use self::keys::Algorithm;
pub use self::keys::{Keys, NotKeys};
use crate::{Action, Pattern};

/// Longest token in bytes.
const LONGEST: usize = 8 << 10;

/// What tokens must say (RFC 7519 4.1).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Terms {
    /// The issuer that a token must name. Without it, any holder of a key may be the issuer.
    pub issuer: Option<String>,
    /// The audience that a token must name. Without it, a token must name none.
    pub audience: Option<String>,
    /// How far the clocks of issuers may be off. Only whole seconds count.
    pub leeway: Duration,
}

/// The content of a token that was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claims {
    /// The permissions of the token's bearer.
    pub permissions: Vec<Permission>,
    /// When [`verify`] begins to refuse it, in seconds since 1970: `exp` and the leeway. `None` means never.
    pub expires: Option<u64>,
    /// The name of the token's bearer.
    pub subject: Option<String>,
}

/// Actions that are allowed, and the streams and titles that they are allowed with.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Permission {
    /// The actions.
    pub actions: Vec<Action>,
    /// The paths of the streams and titles.
    #[serde(default = "Pattern::all")]
    pub path: Pattern,
}

/// Why a token is refused. Nothing of the token is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It costs more to look at than tokens do.
    #[error("the token is longer than {LONGEST} bytes")]
    TooLong,
    /// It is no signed token in the compact serialization (RFC 7515 7.1), or a claim has another type.
    #[error("the token has not the format of a signed JSON Web Token")]
    Format,
    /// Its header has `crit` (RFC 7515 4.1.11).
    #[error("the token needs extensions")]
    Critical,
    /// Nobody here verifies its algorithm, or the keys that it may mean are of other kinds.
    #[error("the token is signed with an algorithm that no key is for")]
    Algorithm,
    /// No key has its `kid`.
    #[error("the token is signed with an unknown key")]
    UnknownKey,
    /// Too many keys would have to be tried.
    #[error("the token does not tell which key it is signed with, and too many keys are possible")]
    Ambiguous,
    /// It was not signed with the key, or has been changed.
    #[error("the token's signature is wrong")]
    Signature,
    /// Its `exp` has come.
    #[error("the token has expired")]
    Expired,
    /// Its `nbf` has not come.
    #[error("the token is not valid yet")]
    NotYetValid,
    /// Its `iss` is missing or another.
    #[error("the token is by another issuer")]
    Issuer,
    /// Its `aud` is missing, or others are meant.
    #[error("the token is for another audience")]
    Audience,
    /// Its `permissions` are missing or cannot be read.
    #[error("the token has no claim `permissions` that can be read")]
    Permissions,
}

impl Refused {
    /// Whether the token names a key that is not in the set. The issuer may have a new one, so the set may be worth
    /// fetching again, but not each time: anybody can name a key.
    pub fn is_unknown_key(&self) -> bool {
        *self == Self::UnknownKey
    }
}

impl Claims {
    /// Whether the bearer may do it. For [`Action::Api`] and [`Action::Metrics`] the path does not count.
    pub fn allows(&self, action: Action, path: &str) -> bool {
        self.permissions.iter().any(|permission| {
            permission.actions.contains(&action)
                && (matches!(action, Action::Api | Action::Metrics)
                    || permission.path.matches(path))
        })
    }
}

/// Verifies a token at the time `now`, in seconds since 1970.
///
/// # Errors
/// The token is not signed with one of the keys, or does not say what the terms ask for.
pub fn verify(token: &str, keys: &Keys, terms: &Terms, now: u64) -> Result<Claims, Refused> {
    claims(&payload(token, keys)?, terms, now)
}

/// The header of a token, as far as it counts.
#[derive(Deserialize)]
struct Header<'a> {
    #[serde(borrow)]
    alg: Cow<'a, str>,
    #[serde(borrow, default, deserialize_with = "given")]
    kid: Option<Cow<'a, str>>,
    #[serde(default, deserialize_with = "given")]
    crit: Option<IgnoredAny>,
}

/// The payload of a token, as far as it counts.
#[derive(Deserialize)]
struct Payload {
    #[serde(default, deserialize_with = "given")]
    iss: Option<String>,
    #[serde(default, deserialize_with = "given")]
    sub: Option<String>,
    #[serde(default, deserialize_with = "given")]
    aud: Option<Audience>,
    #[serde(default, deserialize_with = "given")]
    exp: Option<Number>,
    #[serde(default, deserialize_with = "given")]
    nbf: Option<Number>,
    permissions: Option<Value>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

impl Audience {
    fn includes(&self, name: &str) -> bool {
        match self {
            Self::One(one) => one == name,
            Self::Many(many) => many.iter().any(|one| one == name),
        }
    }
}

/// Reads what is there, so that `null` is not taken for a missing member: it must not mean that a token never expires.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

/// The payload of a token whose signature is right.
fn payload(token: &str, keys: &Keys) -> Result<Vec<u8>, Refused> {
    if token.len() > LONGEST {
        return Err(Refused::TooLong);
    }
    let (input, signature) = token.rsplit_once('.').ok_or(Refused::Format)?;
    let (header, payload) = input.split_once('.').ok_or(Refused::Format)?;
    let header = decode(header)?;
    let header: Header<'_> = object(&header)?;
    if header.crit.is_some() {
        return Err(Refused::Critical);
    }
    let algorithm = Algorithm::named(&header.alg).ok_or(Refused::Algorithm)?;
    let signature = decode(signature)?;
    let candidates = keys.candidates(algorithm, header.kid.as_deref())?;
    if !candidates.iter().any(|key| key.verifies(input.as_bytes(), &signature)) {
        return Err(Refused::Signature);
    }
    decode(payload)
}

fn claims(payload: &[u8], terms: &Terms, now: u64) -> Result<Claims, Refused> {
    let payload: Payload = object(payload)?;
    let leeway = terms.leeway.as_secs();
    let expires = payload.exp.map(|exp| seconds(&exp).saturating_add(leeway));
    if expires.is_some_and(|expires| now >= expires) {
        return Err(Refused::Expired);
    }
    if payload.nbf.is_some_and(|nbf| now.saturating_add(leeway) < seconds(&nbf)) {
        return Err(Refused::NotYetValid);
    }
    if terms.issuer.is_some() && payload.iss != terms.issuer {
        return Err(Refused::Issuer);
    }
    let is_for_us = match (&payload.aud, &terms.audience) {
        (None, None) => true,
        (Some(audience), Some(name)) => audience.includes(name),
        _ => false,
    };
    if !is_for_us {
        return Err(Refused::Audience);
    }
    let permissions = payload.permissions.ok_or(Refused::Permissions)?;
    let permissions = Vec::deserialize(permissions).map_err(|_| Refused::Permissions)?;
    Ok(Claims { permissions, expires, subject: payload.sub })
}

fn decode(text: &str) -> Result<Vec<u8>, Refused> {
    BASE64_URL_SAFE_NO_PAD.decode(text).map_err(|_| Refused::Format)
}

/// Reads a JSON object. A list of the same values would be taken, too, if nobody looked.
fn object<'de, T: Deserialize<'de>>(json: &'de [u8]) -> Result<T, Refused> {
    if !json.trim_ascii_start().starts_with(b"{") {
        return Err(Refused::Format);
    }
    serde_json::from_slice(json).map_err(|_| Refused::Format)
}

/// A time (RFC 7519 2, NumericDate), without parts of a second. One before 1970 is 1970.
fn seconds(date: &Number) -> u64 {
    // `as` keeps a float within the bounds of the integer.
    date.as_u64().or_else(|| date.as_f64().map(|seconds| seconds as u64)).unwrap_or(0)
}
