//! What peers give to be let in: tokens, their claims once the signature is right, key sets, signed paths, and the
//! patterns and hashes of a configuration.
#![no_main]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::LazyLock;

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use credentials::jwt::{Keys, Terms, verify};
use credentials::signed::{Permit, Signer};
use credentials::{Action, Pattern, Secret};
use libfuzzer_sys::fuzz_target;

const KEY: &[u8] = b"a key that has at least 32 bytes in it";
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

static KEYS: LazyLock<Keys> = LazyLock::new(|| Keys::parse(KEY).unwrap());
static SIGNER: LazyLock<Signer> = LazyLock::new(|| Signer::new(KEY).unwrap());

/// A token with these header and claims, whose signature is right.
fn token(header: &[u8], claims: &[u8]) -> String {
    let text = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, KEY), text.as_bytes());
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(tag))
}

fuzz_target!(|data: &[u8]| {
    let Some((kind, data)) = data.split_first() else { return };
    let text = std::str::from_utf8(data).unwrap_or_default();
    match kind % 6 {
        // Without the key, nothing gets in.
        0 => assert!(verify(text, &KEYS, &Terms::default(), 0).is_err()),
        1 => {
            let header = br#"{"alg":"HS256"}"#;
            if let Ok(claims) = verify(&token(header, data), &KEYS, &Terms::default(), 1000) {
                assert!(claims.expires.is_none_or(|at| at > 1000));
                let _ = claims.allows(Action::Play, "live/a/b");
            }
        }
        2 => {
            let claims = br#"{"permissions":[{"actions":["play"]}]}"#;
            let _ = verify(&token(data, claims), &KEYS, &Terms::default(), 0);
        }
        3 => {
            if let Ok(keys) = Keys::parse(data) {
                let _ = verify(
                    &token(br#"{"alg":"HS256","kid":"a"}"#, b"{}"),
                    &keys,
                    &Terms::default(),
                    0,
                );
            }
        }
        4 => {
            assert!(SIGNER.check(text).is_err());
            if let Ok(path) = text.parse::<Pattern>() {
                let permit = Permit { path, expires: Some(7), address: Some(HERE) };
                // A pattern may be longer than tokens are.
                if let Ok(read) = SIGNER.check(&SIGNER.sign(&permit)) {
                    assert_eq!(read, permit);
                }
            }
        }
        _ => {
            if let Some((pattern, path)) = text.split_once('\n')
                && let Ok(pattern) = pattern.parse::<Pattern>()
            {
                let _ = pattern.matches(path);
            }
            // Whether a hash can be read; what it is of takes too long.
            let _ = text.parse::<Secret>();
        }
    }
});
