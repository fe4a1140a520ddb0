mod fixtures;
mod keys;

use aws_lc_rs::hmac;
use proptest::prelude::*;
use serde_json::json;

use self::fixtures::*;
use super::*;

const SECRET: &str = "0123456789abcdef0123456789abcdef";
const NOW: u64 = 1_700_000_000;
const HS256_HEADER: &str = r#"{"alg":"HS256"}"#;

fn keys(text: &str) -> Keys {
    Keys::parse(text.as_bytes()).unwrap()
}

fn set(keys: &[&str]) -> Keys {
    self::keys(&format!(r#"{{"keys":[{}]}}"#, keys.join(",")))
}

/// A token that is signed with HS256, whatever its header says.
fn signed_with(secret: &[u8], header: &str, payload: impl AsRef<[u8]>) -> String {
    let encode = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
    let input = format!("{}.{}", encode(header.as_bytes()), encode(payload.as_ref()));
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), input.as_bytes());
    format!("{input}.{}", encode(tag.as_ref()))
}

/// What a payload allows, signed with the secret.
fn check(terms: &Terms, now: u64, payload: impl AsRef<[u8]>) -> Result<Claims, Refused> {
    verify(&signed_with(SECRET.as_bytes(), HS256_HEADER, payload), &keys(SECRET), terms, now)
}

/// Whether a payload is refused that has this claim beside a permission, and why.
fn check_claim(terms: &Terms, now: u64, name: &str, claim: &Value) -> Result<Claims, Refused> {
    let payload = json!({ "permissions": [{ "actions": ["play"] }], name: claim });
    check(terms, now, payload.to_string())
}

fn terms() -> Terms {
    Terms {
        issuer: Some("https://issuer.example".to_owned()),
        audience: Some("headwater".to_owned()),
        leeway: Duration::from_secs(60),
    }
}

#[test]
fn tokens_of_another_program_are_verified() {
    let all = set(&[RSA_JWK, VECTORS[2].jwk]);
    for (token, keys) in [
        (HS256, keys(SECRET)),
        (HS256, keys(&format!("{SECRET}\n"))),
        (HS256, keys(&format!("{SECRET}\r\n"))),
        (RS256, keys(RSA_KEY)),
        (RS256, all),
        (ES256, keys(EC_KEY)),
        (ES256, keys(EC_CERTIFICATE)),
        (ES256, keys(&format!("an issuer's key\r\n{}", EC_KEY.replace('\n', "\r\n")))),
        (EDDSA, keys(ED_KEY)),
    ] {
        let claims = verify(token, &keys, &terms(), NOW).unwrap();
        assert_eq!(claims.subject.as_deref(), Some("ann"));
        assert_eq!(claims.expires, Some(NOW + 3600 + 60));
        for (action, path, expected) in [
            (Action::Publish, "live/ann/cam", true),
            (Action::Play, "live/ann/cam", true),
            (Action::Play, "live/bob/cam", false),
            (Action::Play, "live/ann/../bob", false),
            (Action::Api, "anything", true),
            (Action::Api, "live/../a", true),
            (Action::Metrics, "", false),
        ] {
            assert_eq!(claims.allows(action, path), expected, "{action:?} {path}");
        }
    }
}

#[test]
fn the_vectors_of_the_specifications_are_verified() {
    for vector in &VECTORS {
        let keys = set(&[vector.jwk]);
        let text = payload(vector.token, &keys).unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), vector.payload);
        // Something else that is signed, or another signature.
        let (input, signature) = vector.token.rsplit_once('.').unwrap();
        for forged in [
            format!("{input}A.{signature}"),
            format!("{input}.{}{signature}", if signature.starts_with('A') { "B" } else { "A" }),
            format!("{input}."),
            format!("{input}.{}", &signature[..signature.len() / 2 / 4 * 4]),
            format!("{input}.{}", "A".repeat(signature.len())),
            format!("{input}.{}", signature.replacen(&signature[8..9], "-", 1)),
        ] {
            let refused = payload(&forged, &keys).unwrap_err();
            assert!(matches!(refused, Refused::Signature | Refused::Format), "{forged}");
        }
    }
}

#[test]
fn a_key_verifies_its_own_algorithm_only() {
    let all = [(HS256, SECRET), (RS256, RSA_KEY), (ES256, EC_KEY), (EDDSA, ED_KEY)];
    for (token, own) in all {
        for (_, key) in all {
            let result = verify(token, &keys(key), &terms(), NOW);
            assert_eq!(result.err(), (key != own).then_some(Refused::Algorithm));
        }
    }
    // The public key as a secret: its file, its DER and its text, as programs have taken them.
    let payload = r#"{"permissions":[{"actions":["play"]}]}"#;
    for key in [RSA_KEY, EC_KEY, ED_KEY, EC_CERTIFICATE] {
        let base64: String = key.lines().filter(|line| !line.starts_with('-')).collect();
        let der = base64::prelude::BASE64_STANDARD.decode(&base64).unwrap();
        for secret in [key.as_bytes(), key.trim().as_bytes(), &der, base64.as_bytes()] {
            let token = signed_with(secret, HS256_HEADER, payload);
            let result = verify(&token, &keys(key), &Terms::default(), NOW);
            assert_eq!(result, Err(Refused::Algorithm));
        }
    }
    let n = RSA_JWK.split('"').max_by_key(|part| part.len()).unwrap();
    let n = BASE64_URL_SAFE_NO_PAD.decode(n).unwrap();
    for header in [HS256_HEADER, r#"{"alg":"HS256","kid":"a"}"#] {
        let key = RSA_JWK.replace('{', r#"{"kid":"a","#);
        let result = verify(&signed_with(&n, header, payload), &set(&[&key]), &terms(), NOW);
        assert_eq!(result, Err(Refused::Algorithm));
    }
}

#[test]
fn other_algorithms_and_headers_are_refused() {
    let payload = r#"{"permissions":[{"actions":["play"]}]}"#;
    let check = |header: &str| {
        let token = signed_with(SECRET.as_bytes(), header, payload);
        let unsigned = token.rsplit_once('.').unwrap().0.to_owned() + ".";
        assert!(verify(&unsigned, &keys(SECRET), &Terms::default(), NOW).is_err());
        verify(&token, &keys(SECRET), &Terms::default(), NOW).map(|_| ())
    };
    assert_eq!(check(HS256_HEADER), Ok(()));
    assert_eq!(check(r#" {"typ":"JWT","alg":"HS\u003256","jku":"http://a","jwk":{}}"#), Ok(()));
    for name in ["none", "None", "", "HS512", "hs256", "RS256", "PS256", "ES384", "RSA-OAEP"] {
        assert_eq!(check(&format!(r#"{{"alg":"{name}"}}"#)), Err(Refused::Algorithm), "{name}");
    }
    for crit in ["[]", "null", r#"["exp"]"#, r#"["b64"]"#] {
        let header = format!(r#"{{"alg":"HS256","crit":{crit},"b64":false}}"#);
        assert_eq!(check(&header), Err(Refused::Critical), "{crit}");
    }
    for header in [
        "",
        "null",
        "{}",
        r#"["HS256"]"#,
        r#"{"alg":null}"#,
        r#"{"alg":["HS256"]}"#,
        r#"{"alg":"HS256","alg":"none"}"#,
        r#"{"alg":"HS256","kid":null}"#,
        r#"{"alg":"HS256","kid":1}"#,
        r#"{"alg":"HS256"} {}"#,
    ] {
        assert_eq!(check(header), Err(Refused::Format), "{header}");
    }
}

#[test]
fn times_are_compared_with_leeway() {
    let terms = Terms { leeway: Duration::from_secs(60), ..Terms::default() };
    let at = |name, now, date| check_claim(&terms, now, name, &date).map(|claims| claims.expires);
    assert_eq!(at("exp", NOW + 59, json!(NOW)), Ok(Some(NOW + 60)));
    assert_eq!(at("exp", NOW + 60, json!(NOW)), Err(Refused::Expired));
    assert_eq!(at("exp", NOW + 60, json!(NOW as f64 + 0.5)), Err(Refused::Expired));
    assert_eq!(at("exp", NOW, json!(0)), Err(Refused::Expired));
    assert_eq!(at("exp", NOW, json!(-1)), Err(Refused::Expired));
    assert_eq!(at("exp", NOW, json!(u64::MAX)), Ok(Some(u64::MAX)));
    assert_eq!(at("exp", NOW, json!(1e300)), Ok(Some(u64::MAX)));
    assert_eq!(at("nbf", NOW - 60, json!(NOW)), Ok(None));
    assert_eq!(at("nbf", NOW - 61, json!(NOW)), Err(Refused::NotYetValid));
    assert_eq!(at("nbf", u64::MAX, json!(u64::MAX)), Ok(None));
    assert_eq!(at("iat", 0, json!(NOW)), Ok(None));
    for name in ["exp", "nbf"] {
        for date in [json!(null), json!("1700000000"), json!([NOW]), json!(true)] {
            assert_eq!(at(name, NOW, date), Err(Refused::Format));
        }
    }
    let strict = |now| check_claim(&Terms::default(), now, "exp", &json!(NOW)).err();
    assert_eq!((strict(NOW - 1), strict(NOW)), (None, Some(Refused::Expired)));
    let patient = Terms { leeway: Duration::MAX, ..Terms::default() };
    assert_eq!(check_claim(&patient, NOW, "exp", &json!(1)).unwrap().expires, Some(u64::MAX));
}

#[test]
fn issuer_and_audience_are_those_of_the_terms() {
    let none = Terms::default();
    let issuer = Terms { issuer: Some("a".to_owned()), ..Terms::default() };
    let audience = Terms { audience: Some("a".to_owned()), ..Terms::default() };
    let refused = |terms, name, claim| check_claim(terms, NOW, name, &claim).err();
    assert_eq!(refused(&none, "iss", json!("b")), None);
    assert_eq!(refused(&issuer, "iss", json!("a")), None);
    for wrong in [json!("b"), json!("A"), json!("a "), json!("")] {
        assert_eq!(refused(&issuer, "iss", wrong), Some(Refused::Issuer));
    }
    assert_eq!(refused(&issuer, "jti", json!("a")), Some(Refused::Issuer));
    for right in [json!("a"), json!(["a"]), json!(["b", "a"])] {
        assert_eq!(refused(&audience, "aud", right.clone()), None);
        assert_eq!(refused(&none, "aud", right), Some(Refused::Audience));
    }
    for wrong in [json!("b"), json!([]), json!(["b"]), json!("")] {
        assert_eq!(refused(&audience, "aud", wrong), Some(Refused::Audience));
    }
    assert_eq!(refused(&none, "aud", json!([])), Some(Refused::Audience));
    assert_eq!(refused(&audience, "jti", json!("a")), Some(Refused::Audience));
    for (name, claim) in [
        ("iss", json!(null)),
        ("iss", json!(["a"])),
        ("aud", json!(null)),
        ("aud", json!(1)),
        ("aud", json!(["a", 1])),
        ("sub", json!(1)),
    ] {
        assert_eq!(refused(&none, name, claim), Some(Refused::Format), "{name}");
    }
}

#[test]
fn permissions_are_read_in_full_or_not_at_all() {
    let read = |permissions: &Value| {
        let payload = json!({ "permissions": permissions }).to_string();
        check(&Terms::default(), NOW, payload).map(|claims| claims.permissions)
    };
    let fine = json!({ "actions": ["play", "metrics"], "path": "live/**" });
    assert_eq!(read(&json!([])), Ok(vec![]));
    let path = "live/**".parse().unwrap();
    let actions = vec![Action::Play, Action::Metrics];
    assert_eq!(read(&json!([fine])), Ok(vec![Permission { actions, path }]));
    let everywhere = Permission { actions: vec![Action::Play], path: Pattern::all() };
    assert_eq!(read(&json!([{ "actions": ["play"] }])), Ok(vec![everywhere]));
    let long = "a".repeat(257);
    for path in ["live/../a", "..", "live/%2fa", "live/%2Fa", "live/a\0", "/live", "", &long] {
        let bad = json!({ "actions": ["play"], "path": path });
        assert_eq!(read(&json!([fine, bad])), Err(Refused::Permissions), "{path:?}");
    }
    for bad in [
        json!({ "actions": ["play"], "path": null }),
        json!({ "actions": ["play"], "path": ["live/a"] }),
        json!({ "actions": ["play", "fly"] }),
        json!({ "actions": "play" }),
        json!({ "path": "live/a" }),
        json!({ "actions": ["play"], "address": "192.0.2.1" }),
        json!(null),
        json!("play"),
    ] {
        assert_eq!(read(&json!([fine, bad])), Err(Refused::Permissions), "{bad}");
    }
    for bad in [json!(null), json!("play"), json!({}), json!(1)] {
        assert_eq!(read(&bad), Err(Refused::Permissions), "{bad}");
    }
    assert_eq!(check(&Terms::default(), NOW, "{}"), Err(Refused::Permissions));
}

#[test]
fn claims_that_nobody_knows_are_harmless() {
    let permissions = r#""permissions":[{"actions":["play"]}]"#;
    let check = |payload: String| check(&Terms::default(), NOW, payload).map(|_| ());
    assert_eq!(check(format!(r#"{{"a":1,"a":{{"exp":0}},{permissions},"x":null}}"#)), Ok(()));
    for twice in [r#""exp":1,"exp":9999999999"#, permissions, r#""aud":"a","aud":"b""#] {
        assert_eq!(check(format!("{{{twice},{permissions}}}")), Err(Refused::Format), "{twice}");
    }
    let nested = |name: &str| {
        let depth = 2000;
        format!(r#"{{"{name}":{}{},{permissions}}}"#, "[".repeat(depth), "]".repeat(depth))
    };
    assert_eq!(check(nested("a")), Ok(()));
    for name in ["permissions", "aud", "exp"] {
        assert_eq!(check(nested(name)), Err(Refused::Format), "{name}");
    }
    for text in [
        "",
        "null",
        "[]",
        "1",
        "{",
        "{}{}",
        "\u{feff}{}",
        "{\"exp\":1e999}",
        "{\"sub\":\"\\ud800\"}",
    ] {
        assert_eq!(check(text.to_owned()), Err(Refused::Format), "{text}");
    }
    let bytes = self::check(&Terms::default(), NOW, b"{\"sub\":\"\xff\"}");
    assert_eq!(bytes, Err(Refused::Format));
}

#[test]
fn long_tokens_are_refused_unseen() {
    let filled = |length: usize| {
        let start = r#"{"permissions":[{"actions":["play"]}],"a":""#;
        let payload = format!("{start}{}\"}}", "x".repeat(length - start.len() - 2));
        let token = signed_with(SECRET.as_bytes(), HS256_HEADER, payload);
        (token.len(), verify(&token, &keys(SECRET), &Terms::default(), NOW).map(|_| ()))
    };
    // The header has 20 bytes and the signature 43, with two dots.
    let (longest, result) = filled((LONGEST - 65) * 3 / 4);
    assert_eq!((longest, result), (LONGEST, Ok(())));
    assert_eq!(filled(LONGEST * 3 / 4).1, Err(Refused::TooLong));
    for token in ["", ".", "..", "a.b", "a.b.c", "a.b.c.d.e", "é.é.é"] {
        assert_eq!(verify(token, &keys(SECRET), &terms(), NOW), Err(Refused::Format), "{token}");
    }
    let nested = "[".repeat(3000);
    let result = verify(&signed_with(b"", &nested, ""), &keys(SECRET), &terms(), NOW);
    assert_eq!(result, Err(Refused::Format));
    let header = format!(r#"{{"a":{}{},"alg":"none"}}"#, "[".repeat(3000), "]".repeat(3000));
    let result = verify(&signed_with(b"", &header, ""), &keys(SECRET), &terms(), NOW);
    assert_eq!(result, Err(Refused::Algorithm));
}

proptest! {
    #[test]
    fn changed_tokens_are_refused(at in 0..HS256.len(), byte in 32..127_u8) {
        for (token, key) in [(HS256, SECRET), (ES256, EC_KEY), (EDDSA, ED_KEY)] {
            let mut bytes = token.as_bytes().to_vec();
            let at = at % bytes.len();
            prop_assume!(bytes[at] != byte);
            bytes[at] = byte;
            let changed = String::from_utf8(bytes).unwrap();
            prop_assert!(verify(&changed, &keys(key), &terms(), NOW).is_err());
            prop_assert!(verify(&token[..at], &keys(key), &terms(), NOW).is_err());
        }
    }

    #[test]
    fn any_text_is_read(token in "[A-Za-z0-9_-]{0,40}\\.[A-Za-z0-9_-]{0,40}\\.[A-Za-z0-9_-]{0,9}",
                        payload in any::<Vec<u8>>(), content in any::<Vec<u8>>()) {
        prop_assert!(verify(&token, &keys(SECRET), &terms(), NOW).is_err());
        prop_assert!(check(&terms(), NOW, payload).is_err());
        let _ = Keys::parse(&content);
    }
}
