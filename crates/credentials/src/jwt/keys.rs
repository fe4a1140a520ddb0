//! Keys that verify tokens, and the forms in which they come.

use std::fmt;

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::hmac;
use aws_lc_rs::rsa::PublicEncryptingKey;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256,
    RsaPublicKeyComponents,
};
use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{PemObject, SectionKind};
use rustls::server::ParsedCertificate;
use serde::Deserialize;
use serde_json::Value;

use super::Refused;

/// Longest text of keys in bytes.
const LONGEST: usize = 1 << 20;
/// Bytes of a secret that nobody can guess, at least (RFC 7518 3.2).
const SHORTEST_SECRET: usize = 32;
/// Most keys that are kept of a set.
const MOST: usize = 100;
/// Most keys that are tried for a token that names none. More would let anybody take the machine's time.
const MOST_TRIED: usize = 8;

/// Algorithms of signatures (RFC 7518 3.1, RFC 8037 3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    Hs256,
    Rs256,
    Es256,
    EdDsa,
}

impl Algorithm {
    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "HS256" => Some(Self::Hs256),
            "RS256" => Some(Self::Rs256),
            "ES256" => Some(Self::Es256),
            "EdDSA" => Some(Self::EdDsa),
            _ => None,
        }
    }
}

/// Keys that verify tokens: one or several, secret or public.
#[derive(Clone)]
pub struct Keys(Vec<Key>);

/// A key, and the one algorithm that it is for.
#[derive(Clone)]
pub(super) struct Key {
    id: Option<String>,
    algorithm: Algorithm,
    material: Material,
}

#[derive(Clone)]
enum Material {
    Secret(Box<hmac::Key>),
    Public(ParsedPublicKey),
}

/// Why a text holds no [`Keys`]. The text itself is not told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotKeys {
    /// No set of keys is as long.
    #[error("has more than {LONGEST} bytes")]
    TooLong,
    /// Somebody could guess it.
    #[error("is a secret of less than {SHORTEST_SECRET} bytes")]
    ShortSecret,
    /// It is PEM, but not one `PUBLIC KEY` or one `CERTIFICATE`.
    #[error("must have one section `PUBLIC KEY` or `CERTIFICATE` of PEM, and no other")]
    Pem,
    /// It is what signs, which nobody needs here.
    #[error("has a private key: the public key is enough")]
    Private,
    /// It is public, so it must not be taken for a secret.
    #[error("is a public key without the lines of PEM around it")]
    Bare,
    /// No algorithm here is for it.
    #[error("is neither an RSA key of 2048 to 8192 bits nor an EC key on P-256 nor an Ed25519 key")]
    Kind,
    /// It is JSON, but no JSON Web Key Set.
    #[error("is not a JSON Web Key Set")]
    Set,
    /// A set has nothing that verifies tokens.
    #[error("has no key for HS256, RS256, ES256 or EdDSA")]
    Unusable,
}

impl Keys {
    /// Reads a public key in PEM (RSA, EC on P-256, Ed25519), a JSON Web Key Set (RFC 7517, it begins with `{`), or else
    /// a secret of at least 32 bytes, to which a newline at the end does not belong. Of a certificate only the key
    /// counts, neither its dates nor who signed it. Of a set, keys that cannot verify tokens are left out, and at most
    /// 100 are kept. A set may have secrets (`oct`), and must then be one itself.
    ///
    /// # Errors
    /// The text is none of that, or is a public key in another form.
    pub fn parse(content: &[u8]) -> Result<Self, NotKeys> {
        if content.len() > LONGEST {
            return Err(NotKeys::TooLong);
        }
        let text = content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content).trim_ascii();
        if text.starts_with(b"{") || text.starts_with(b"[") {
            return set(text);
        }
        if text.windows(10).any(|window| window == b"-----BEGIN") {
            return Ok(Self(vec![pem(text)?]));
        }
        if is_public(content) || is_public(text) {
            return Err(NotKeys::Bare);
        }
        let secret = content.strip_suffix(b"\n").unwrap_or(content);
        let secret = secret.strip_suffix(b"\r").unwrap_or(secret);
        Ok(Self(vec![Key::secret(secret).ok_or(NotKeys::ShortSecret)?]))
    }

    /// The keys that can have signed a token with such a header. A key without a name can be any.
    pub(super) fn candidates(
        &self,
        algorithm: Algorithm,
        id: Option<&str>,
    ) -> Result<Vec<&Key>, Refused> {
        let may_be = |key: &&Key| id.is_none() || key.id.is_none() || key.id.as_deref() == id;
        if !self.0.iter().any(|key| may_be(&key)) {
            return Err(Refused::UnknownKey);
        }
        let candidates = self.0.iter().filter(may_be).filter(|key| key.algorithm == algorithm);
        let candidates: Vec<_> = candidates.take(MOST_TRIED + 1).collect();
        match candidates.len() {
            0 => Err(Refused::Algorithm),
            1..=MOST_TRIED => Ok(candidates),
            _ => Err(Refused::Ambiguous),
        }
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|key| key.algorithm)).finish()
    }
}

impl Key {
    fn secret(bytes: &[u8]) -> Option<Self> {
        let material = Material::Secret(Box::new(hmac::Key::new(hmac::HMAC_SHA256, bytes)));
        (bytes.len() >= SHORTEST_SECRET).then_some(Self {
            id: None,
            algorithm: Algorithm::Hs256,
            material,
        })
    }

    /// Reads a SubjectPublicKeyInfo (RFC 5280 4.1).
    fn from_der(der: &[u8]) -> Option<Self> {
        // The library would take these lengths for bare points on a curve.
        if !der.starts_with(&[0x30]) || matches!(der.len(), 32 | 33 | 65) {
            return None;
        }
        Self::rsa(der).or_else(|| Self::es256(der)).or_else(|| Self::ed25519(der))
    }

    fn rsa(der: &[u8]) -> Option<Self> {
        // The library asks for the size only when it verifies.
        let bits = PublicEncryptingKey::from_der(der).ok()?.key_size_bits();
        let key = ParsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, der).ok()?;
        (2048..=8192).contains(&bits).then_some(Self::public(Algorithm::Rs256, key))
    }

    /// Reads a SubjectPublicKeyInfo or a point.
    fn es256(bytes: &[u8]) -> Option<Self> {
        let key = ParsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, bytes).ok()?;
        Some(Self::public(Algorithm::Es256, key))
    }

    /// Reads a SubjectPublicKeyInfo or a point.
    fn ed25519(bytes: &[u8]) -> Option<Self> {
        Some(Self::public(Algorithm::EdDsa, ParsedPublicKey::new(&ED25519, bytes).ok()?))
    }

    fn public(algorithm: Algorithm, key: ParsedPublicKey) -> Self {
        Self { id: None, algorithm, material: Material::Public(key) }
    }

    /// Whether the signature of `input` is by this key. Secrets are compared in constant time.
    pub(super) fn verifies(&self, input: &[u8], signature: &[u8]) -> bool {
        match &self.material {
            Material::Secret(key) => hmac::verify(key, input, signature).is_ok(),
            Material::Public(key) => key.verify_sig(input, signature).is_ok(),
        }
    }
}

fn pem(text: &[u8]) -> Result<Key, NotKeys> {
    let sections: Result<Vec<(SectionKind, Vec<u8>)>, _> =
        PemObject::pem_slice_iter(text).collect();
    let sections = sections.map_err(|_| NotKeys::Pem)?;
    let is_private = |kind| {
        matches!(
            kind,
            SectionKind::PrivateKey | SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey
        )
    };
    if sections.iter().any(|(kind, _)| is_private(*kind)) {
        return Err(NotKeys::Private);
    }
    match sections.as_slice() {
        [(SectionKind::PublicKey, der)] => Key::from_der(der).ok_or(NotKeys::Kind),
        [(SectionKind::Certificate, der)] => {
            let der = CertificateDer::from_slice(der);
            let certificate = ParsedCertificate::try_from(&der).map_err(|_| NotKeys::Pem)?;
            Key::from_der(&certificate.subject_public_key_info()).ok_or(NotKeys::Kind)
        }
        _ => Err(NotKeys::Pem),
    }
}

/// Whether the bytes are a public key or a certificate in a form that is easily mistaken for a secret: DER, the base64
/// inside of PEM, or that of SSH.
fn is_public(bytes: &[u8]) -> bool {
    let joined: Vec<u8> = bytes.iter().copied().filter(|b| !b.is_ascii_whitespace()).collect();
    bytes.starts_with(b"ssh-")
        || bytes.starts_with(b"ecdsa-sha2-")
        || is_der(bytes)
        || BASE64_STANDARD.decode(joined).is_ok_and(|der| is_der(&der))
}

/// Whether the bytes are one sequence of DER, which begins with another or with an integer, as keys of all kinds and
/// certificates do. Such keys are never plain text.
fn is_der(bytes: &[u8]) -> bool {
    let (length, rest) = match bytes {
        [0x30, length @ ..=0x7f, rest @ ..] => (usize::from(*length), rest),
        [0x30, 0x81, length, rest @ ..] => (usize::from(*length), rest),
        [0x30, 0x82, high, low, rest @ ..] => {
            (usize::from(u16::from_be_bytes([*high, *low])), rest)
        }
        _ => return false,
    };
    rest.len() == length && matches!(rest, [0x30 | 0x02, ..]) && !bytes.is_ascii()
}

#[derive(Deserialize)]
struct Set {
    keys: Vec<Value>,
}

/// A JSON Web Key (RFC 7517 4, RFC 7518 6, RFC 8037 2).
#[derive(Deserialize)]
#[serde(tag = "kty")]
enum Jwk {
    #[serde(rename = "oct")]
    Secret { k: String },
    #[serde(rename = "RSA")]
    Rsa { n: String, e: String },
    #[serde(rename = "EC")]
    Ec { crv: String, x: String, y: String },
    #[serde(rename = "OKP")]
    Okp { crv: String, x: String },
}

/// What a key is for (RFC 7517 4.2 to 4.5).
#[derive(Deserialize)]
struct Uses {
    #[serde(rename = "use")]
    purpose: Option<String>,
    key_ops: Option<Vec<String>>,
    alg: Option<String>,
    kid: Option<String>,
}

fn set(json: &[u8]) -> Result<Keys, NotKeys> {
    let set: Set = serde_json::from_slice(json).map_err(|_| NotKeys::Set)?;
    let keys: Vec<_> = set.keys.iter().filter_map(jwk).take(MOST).collect();
    if keys.is_empty() { Err(NotKeys::Unusable) } else { Ok(Keys(keys)) }
}

fn jwk(json: &Value) -> Option<Key> {
    let uses = Uses::deserialize(json).ok()?;
    let decode = |text: String| BASE64_URL_SAFE_NO_PAD.decode(text).ok();
    let key = match Jwk::deserialize(json).ok()? {
        Jwk::Secret { k } => Key::secret(&decode(k)?)?,
        Jwk::Rsa { n, e } => {
            let key = RsaPublicKeyComponents { n: decode(n)?, e: decode(e)? };
            Key::rsa(key.as_der().ok()?.as_ref())?
        }
        Jwk::Ec { crv, x, y } if crv == "P-256" => {
            let point = [vec![4], decode(x)?, decode(y)?].concat();
            (point.len() == 65).then(|| Key::es256(&point))??
        }
        Jwk::Okp { crv, x } if crv == "Ed25519" => {
            let point = decode(x)?;
            (point.len() == 32).then(|| Key::ed25519(&point))??
        }
        Jwk::Ec { .. } | Jwk::Okp { .. } => return None,
    };
    let is_usable = uses.purpose.is_none_or(|purpose| purpose == "sig")
        && uses.key_ops.is_none_or(|uses| uses.iter().any(|one| one == "verify"))
        && uses.alg.is_none_or(|name| Algorithm::named(&name) == Some(key.algorithm));
    is_usable.then_some(Key { id: uses.kid, ..key })
}
