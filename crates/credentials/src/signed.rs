//! Signed paths: the holder of a token may have the paths that the token names, until it expires.
//!
//! A token is these bytes in base64 with the URL-safe alphabet and without padding (RFC 4648 5):
//!
//! | bytes | meaning |
//! |---|---|
//! | 1 | 0x10, plus 1 where the token expires, plus 2 for an IPv4 address or 4 for an IPv6 address |
//! | 8 or none | when it expires: seconds since 1970, big-endian |
//! | 4, 16 or none | the only address that may use it, in network order |
//! | 1 to 256 | the pattern of paths, in UTF-8 |
//! | 32 | HMAC-SHA256 (RFC 2104) of all bytes before |
//!
//! There is one token for each permit and key. The token hides nothing: every holder can read its bytes. No
//! JSON Web Token that is signed with the same key is a token here, because its signed text begins with other
//! bytes.

mod checked;

use std::fmt;
use std::net::IpAddr;

use aws_lc_rs::hmac;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use checked::Checked;

use crate::Pattern;

/// Longest token in bytes. A permit makes at most 418.
const LONGEST: usize = 1024;
/// Bytes of a key that nobody can guess, at least.
const SHORTEST_KEY: usize = 32;
/// Bytes of the signature.
const TAG: usize = 32;

/// The first byte of a token, without its flags.
const VERSION: u8 = 0x10;
const EXPIRES: u8 = 1;
const IPV4: u8 = 2;
const IPV6: u8 = 4;

/// Makes and checks signed paths.
pub struct Signer {
    key: hmac::Key,
    checked: Checked,
}

/// A key that could be guessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("has less than {SHORTEST_KEY} bytes, so it could be guessed")]
pub struct ShortKey;

/// Why a text is no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotSigned {
    /// No token is as long.
    #[error("the token is longer than {LONGEST} bytes")]
    TooLong,
    /// It does not have the format of a token.
    #[error("the token has not the format of a signed path")]
    Format,
    /// Somebody without the key made or changed it.
    #[error("the token is not signed with the key")]
    Signature,
}

/// The content of a token: the paths, when it expires, and the only address that may use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permit {
    /// The paths: one, or a pattern.
    pub path: Pattern,
    /// From when on the permit allows nothing, in seconds since 1970.
    pub expires: Option<u64>,
    /// The only address that may use it. An IPv4-mapped IPv6 address means the IPv4 address.
    pub address: Option<IpAddr>,
}

impl Permit {
    /// Whether a client at `address` may have `path` at the time `now`, in seconds since 1970.
    pub fn allows(&self, path: &str, address: IpAddr, now: u64) -> bool {
        self.expires.is_none_or(|expires| now < expires)
            && self.address.is_none_or(|only| only.to_canonical() == address.to_canonical())
            && self.path.matches(path)
    }
}

impl Signer {
    /// Makes a signer with a secret key.
    ///
    /// # Errors
    /// The key has less than 32 bytes.
    pub fn new(key: &[u8]) -> Result<Self, ShortKey> {
        if key.len() < SHORTEST_KEY {
            return Err(ShortKey);
        }
        Ok(Self { key: hmac::Key::new(hmac::HMAC_SHA256, key), checked: Checked::default() })
    }

    /// The token of a permit, which can stand in a URL as it is.
    pub fn sign(&self, permit: &Permit) -> String {
        let mut bytes = vec![VERSION];
        if let Some(expires) = permit.expires {
            bytes[0] |= EXPIRES;
            bytes.extend(expires.to_be_bytes());
        }
        match permit.address.map(|address| address.to_canonical()) {
            None => {}
            Some(IpAddr::V4(address)) => {
                bytes[0] |= IPV4;
                bytes.extend(address.octets());
            }
            Some(IpAddr::V6(address)) => {
                bytes[0] |= IPV6;
                bytes.extend(address.octets());
            }
        }
        bytes.extend(permit.path.as_str().as_bytes());
        let tag = hmac::sign(&self.key, &bytes);
        bytes.extend(tag.as_ref());
        BASE64_URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Reads a token. Whether its permit allows something is another question: [`Permit::allows`].
    ///
    /// # Errors
    /// The text is no token, or it is not signed with this key.
    pub fn check(&self, token: &str) -> Result<Permit, NotSigned> {
        if token.len() > LONGEST {
            return Err(NotSigned::TooLong);
        }
        if let Some(permit) = self.checked.get(token) {
            return Ok(permit);
        }
        let mut bytes = [0; LONGEST / 4 * 3];
        let length = BASE64_URL_SAFE_NO_PAD
            .decode_slice(token, &mut bytes)
            .map_err(|_| NotSigned::Format)?;
        let (said, tag) = bytes[..length].split_last_chunk::<TAG>().ok_or(NotSigned::Format)?;
        hmac::verify(&self.key, said, tag).map_err(|_| NotSigned::Signature)?;
        let permit = read(said).ok_or(NotSigned::Format)?;
        self.checked.insert(token, permit.clone());
        Ok(permit)
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signer")
    }
}

fn read(said: &[u8]) -> Option<Permit> {
    let (&first, mut rest) = said.split_first()?;
    let flags = first ^ VERSION;
    if flags & !(EXPIRES | IPV4 | IPV6) != 0 {
        return None;
    }
    let expires = match flags & EXPIRES {
        0 => None,
        _ => Some(u64::from_be_bytes(take(&mut rest)?)),
    };
    let address = match flags & (IPV4 | IPV6) {
        0 => None,
        IPV4 => Some(IpAddr::from(take::<4>(&mut rest)?)),
        IPV6 => Some(IpAddr::from(take::<16>(&mut rest)?)),
        _ => return None,
    };
    let path = str::from_utf8(rest).ok()?.parse().ok()?;
    Some(Permit { path, expires, address })
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*first)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: &[u8] = b"0123456789abcdef0123456789abcdef";
    /// Made with Python: `said = bytes([0x13]) + (1700003600).to_bytes(8, "big") + bytes([192, 0, 2, 7]) + b"live/cam"`
    /// and `base64.urlsafe_b64encode(said + hmac.new(KEY, said, hashlib.sha256).digest()).rstrip(b"=")`.
    const FOREIGN: &str = "EwAAAABlU_8QwAACB2xpdmUvY2FtXBOQUu2OPsNKICUR_xhmgGT9l-MCL77bGX0Qr-7AMc0";

    fn signer() -> Signer {
        Signer::new(KEY).unwrap()
    }

    fn permit() -> Permit {
        Permit {
            path: "live/cam".parse().unwrap(),
            expires: Some(1_700_003_600),
            address: Some("192.0.2.7".parse().unwrap()),
        }
    }

    fn permits() -> impl Strategy<Value = Permit> {
        let path = "[a-zé]{1,8}(/[a-z*-]{1,8}){0,3}"
            .prop_filter_map("is a pattern", |text| text.parse::<Pattern>().ok());
        let address = any::<Option<IpAddr>>().prop_map(|a| a.map(|a| a.to_canonical()));
        (path, any::<Option<u64>>(), address).prop_map(|(path, expires, address)| Permit {
            path,
            expires,
            address,
        })
    }

    /// The token of any bytes, signed.
    fn signed(said: &[u8]) -> String {
        let tag = hmac::sign(&signer().key, said);
        BASE64_URL_SAFE_NO_PAD.encode([said, tag.as_ref()].concat())
    }

    #[test]
    fn a_token_is_as_documented() {
        assert_eq!(signer().sign(&permit()), FOREIGN);
        assert_eq!(signer().check(FOREIGN), Ok(permit()));
        let longest = Permit {
            path: "x".repeat(256).parse().unwrap(),
            address: Some("2001:db8::1".parse().unwrap()),
            ..permit()
        };
        let token = signer().sign(&longest);
        assert_eq!(token.len(), 418);
        assert_eq!(signer().check(&token), Ok(longest));
    }

    #[test]
    fn keys_are_long_and_not_shown() {
        assert_eq!(Signer::new(&KEY[1..]).unwrap_err(), ShortKey);
        assert_eq!(format!("{:?}", signer()), "Signer");
    }

    #[test]
    fn what_is_signed_but_is_no_permit_is_refused() {
        for said in [
            &b""[..],
            b"\x10",
            b"\x00live/a",
            b"\x20live/a",
            b"\x18live/a",
            b"\x161234567890123456live/a",
            b"\x11short",
            b"\x12abc",
            b"\x10live/../a",
            b"\x10live/\xff",
            b"\x10live/a\0",
        ] {
            assert_eq!(signer().check(&signed(said)), Err(NotSigned::Format), "{said:?}");
        }
        assert!(signer().check(&signed(b"\x10live/a")).is_ok());
        let long = signed(&[b"\x10".as_slice(), &[b'a'; 257]].concat());
        assert_eq!(signer().check(&long), Err(NotSigned::Format));
        assert_eq!(signer().check(&"A".repeat(1021)), Err(NotSigned::Format));
        assert_eq!(signer().check(&"A".repeat(1024)), Err(NotSigned::Signature));
        assert_eq!(signer().check(&"A".repeat(1025)), Err(NotSigned::TooLong));
        assert_eq!(signer().check(""), Err(NotSigned::Format));
        assert_eq!(signer().check("é"), Err(NotSigned::Format));
    }

    #[test]
    fn a_permit_allows_its_path_to_its_address_until_it_expires() {
        let [here, there, mapped] =
            ["192.0.2.7", "192.0.2.8", "::ffff:192.0.2.7"].map(|text| text.parse().unwrap());
        let until = 1_700_003_600;
        assert!(permit().allows("live/cam", here, until - 1));
        assert!(permit().allows("live/cam", mapped, 0));
        assert!(!permit().allows("live/cam", here, until));
        assert!(!permit().allows("live/cam", there, until - 1));
        assert!(!permit().allows("live/cam2", here, until - 1));
        let any = Permit { path: "live/*".parse().unwrap(), expires: None, address: None };
        assert!(any.allows("live/cam2", there, u64::MAX));
        assert!(!any.allows("live/../a", there, 0));
        let said_mapped = Permit { address: Some(mapped), ..permit() };
        assert!(said_mapped.allows("live/cam", here, 0));
        assert_eq!(signer().check(&signer().sign(&said_mapped)), Ok(permit()));
    }

    proptest! {
        #[test]
        fn tokens_read_the_same(permit in permits(), other in prop::array::uniform32(any::<u8>())) {
            let token = signer().sign(&permit);
            prop_assert!(token.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'));
            prop_assert_eq!(signer().check(&token), Ok(permit));
            let other = Signer::new(&other).unwrap();
            prop_assert_eq!(other.check(&token), Err(NotSigned::Signature));
        }

        #[test]
        fn texts_are_refused(text in ".{0,200}") {
            prop_assert!(signer().check(&text).is_err());
        }
    }

    proptest! {
        // Each case tries some thousand tokens.
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn changed_tokens_are_refused(permit in permits()) {
            let token = signer().sign(&permit);
            let known = signer();
            prop_assert_eq!(known.check(&token), Ok(permit.clone()));
            prop_assert_eq!(known.check(&token), Ok(permit));
            // Neither when nothing was checked before, nor beside the good one.
            let refuses = |text: &str| signer().check(text).is_err() && known.check(text).is_err();
            for at in 0..token.len() {
                prop_assert!(refuses(&token[..at]) && refuses(&token[at + 1..]));
                for bit in 0..7 {
                    let mut bytes = token.clone().into_bytes();
                    bytes[at] ^= 1 << bit;
                    prop_assert!(refuses(&String::from_utf8(bytes).unwrap()));
                }
            }
            for byte in 0..=127_u8 {
                let byte = char::from(byte).to_string();
                prop_assert!(refuses(&(token.clone() + &byte)) && refuses(&(byte + &token)));
            }
            let bytes = BASE64_URL_SAFE_NO_PAD.decode(&token).unwrap();
            for at in 0..bytes.len() * 8 {
                let mut bytes = bytes.clone();
                bytes[at / 8] ^= 1 << (at % 8);
                let changed = signer().check(&BASE64_URL_SAFE_NO_PAD.encode(bytes));
                prop_assert_eq!(changed, Err(NotSigned::Signature));
            }
        }
    }
}
