use base64::prelude::BASE64_STANDARD;

use super::*;

#[test]
fn keys_are_found_by_their_names() {
    let named = |name: &str, secret: &str| {
        let secret = BASE64_URL_SAFE_NO_PAD.encode(secret.repeat(32));
        json!({ "kty": "oct", "kid": name, "k": secret }).to_string()
    };
    let check = |keys: &Keys, secret: &str, header: &str| {
        let token = signed_with(secret.repeat(32).as_bytes(), header, "{}");
        payload(&token, keys).map(|_| ())
    };
    let (a, b) = (r#"{"alg":"HS256","kid":"a"}"#, r#"{"alg":"HS256","kid":"b"}"#);
    let both = set(&[&named("a", "1"), &named("b", "2")]);
    assert_eq!(check(&both, "1", a), Ok(()));
    assert_eq!(check(&both, "2", a), Err(Refused::Signature));
    assert_eq!(check(&both, "2", b), Ok(()));
    assert_eq!(check(&both, "2", HS256_HEADER), Ok(()));
    assert_eq!(check(&both, "3", HS256_HEADER), Err(Refused::Signature));
    let unknown = check(&both, "1", r#"{"alg":"HS256","kid":"c"}"#).unwrap_err();
    assert_eq!((unknown, unknown.is_unknown_key()), (Refused::UnknownKey, true));
    assert!(!check(&both, "3", a).unwrap_err().is_unknown_key());
    // Two of one name, and one without a name.
    let same = set(&[&named("a", "1"), &named("a", "2")]);
    assert_eq!(check(&same, "2", a), Ok(()));
    let nameless = set(&[&named("a", "1"), &named("b", "2").replace(r#""kid":"b","#, "")]);
    assert_eq!(check(&nameless, "2", b), Ok(()));
    assert_eq!(check(&set(&[&named("a", "1"), RSA_JWK]), "1", b), Err(Refused::Algorithm));
    // So many that none is tried.
    let many: Vec<_> = (0..9).map(|n| named("a", &n.to_string())).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    assert_eq!(check(&set(&many), "1", HS256_HEADER), Err(Refused::Ambiguous));
    assert_eq!(check(&set(&many[1..]), "8", HS256_HEADER), Ok(()));
}

#[test]
fn sets_keep_what_verifies_tokens() {
    let usable = |key: &str| Keys::parse(format!(r#" {{"keys":[1,{key}]}}"#).as_bytes()).err();
    let ec = VECTORS[2].jwk;
    let with = |members: &str| ec.replace('{', &format!("{{{members},"));
    for key in [ec, VECTORS[0].jwk, VECTORS[1].jwk, VECTORS[3].jwk, RSA_JWK] {
        assert_eq!(usable(key), None, "{key}");
    }
    for members in [
        r#""use":"sig""#,
        r#""alg":"ES256""#,
        r#""key_ops":["sign","verify"]"#,
        r#""x5c":[],"d":"AAAA","ext":true,"kid":"a""#,
    ] {
        assert_eq!(usable(&with(members)), None, "{members}");
    }
    for key in [
        with(r#""use":"enc""#),
        with(r#""alg":"RS256""#),
        with(r#""alg":"ES512""#),
        with(r#""alg":"none""#),
        with(r#""key_ops":["sign"]"#),
        with(r#""kid":1"#),
        ec.replace("P-256", "P-384"),
        ec.replace("f83O", "f83P"),
        ec.replace(r#""x":"f83O"#, r#""x":""#),
        ec.replace("EC", "EC2"),
        VECTORS[3].jwk.replace("Ed25519", "X25519"),
        VECTORS[3].jwk.replace("URo", "UR"),
        VECTORS[1].jwk.replace("ofgW", "AAAA"),
        r#"{"kty":"RSA","n":"u1-1","e":"AQAB"}"#.to_owned(),
        r#"{"kty":"oct","k":"c2hvcnQ"}"#.to_owned(),
        r#"{"keys":[]}"#.to_owned(),
    ] {
        assert_eq!(usable(&key), Some(NotKeys::Unusable), "{key}");
    }
    assert_eq!(format!("{:?}", set(&[ec, RSA_JWK, "{}"])), "[Es256, Rs256]");
    let all = vec![ec; 150];
    assert_eq!(format!("{:?}", set(&all)).matches("Es256").count(), 100);
    for text in ["{", "{}", "[]", r#"{"keys":{}}"#, "\u{feff} {\"a\":1}", RSA_JWK] {
        assert_eq!(Keys::parse(text.as_bytes()).unwrap_err(), NotKeys::Set, "{text}");
    }
    let nested = format!(r#"{{"keys":[{}]}}"#, "[".repeat(100_000));
    assert_eq!(Keys::parse(nested.as_bytes()).unwrap_err(), NotKeys::Set);
    assert_eq!(Keys::parse(&vec![b'{'; 2 << 20]).unwrap_err(), NotKeys::TooLong);
}

#[test]
fn texts_that_are_no_keys() {
    let base64: String = RSA_KEY.lines().filter(|line| !line.starts_with('-')).collect();
    let der = BASE64_STANDARD.decode(&base64).unwrap();
    // Without its head, a SubjectPublicKeyInfo of RSA is what PKCS #1 has.
    let pkcs1 = &der[24..];
    for (content, expected) in [
        (&b""[..], NotKeys::ShortSecret),
        (&SECRET.as_bytes()[1..], NotKeys::ShortSecret),
        (b"0123456789abcdef0123456789abcde\n", NotKeys::ShortSecret),
        (SMALL_KEY.as_bytes(), NotKeys::Kind),
        (P384_KEY.as_bytes(), NotKeys::Kind),
        ([RSA_KEY, EC_KEY].concat().as_bytes(), NotKeys::Pem),
        (RSA_KEY.replace("PUBLIC", "RSA PUBLIC").as_bytes(), NotKeys::Pem),
        (RSA_KEY.replace("PUBLIC", "PRIVATE").replace(" KEY", "").as_bytes(), NotKeys::Pem),
        (RSA_KEY.replace("PUBLIC", "EC PRIVATE").as_bytes(), NotKeys::Private),
        (RSA_KEY.replace("PUBLIC KEY", "CERTIFICATE").as_bytes(), NotKeys::Pem),
        (EC_CERTIFICATE.replace("CERTIFICATE", "PUBLIC KEY").as_bytes(), NotKeys::Kind),
        (RSA_KEY.split_once("-----END").unwrap().0.as_bytes(), NotKeys::Pem),
        (RSA_KEY.replace("-----BEGIN", "key: -----BEGIN").as_bytes(), NotKeys::Pem),
        (RSA_KEY.replace("MIIB", "!!!!").as_bytes(), NotKeys::Pem),
        (&der, NotKeys::Bare),
        (pkcs1, NotKeys::Bare),
        (base64.as_bytes(), NotKeys::Bare),
        (format!("{base64}\n").as_bytes(), NotKeys::Bare),
        (b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOTW0XEBkV", NotKeys::Bare),
    ] {
        assert_eq!(Keys::parse(content).unwrap_err(), expected, "{}", content.escape_ascii());
    }
    // Secrets of any bytes, and of texts that look a little like DER.
    for secret in [[0; 32].as_slice(), &[0x30; 50], &[0xff; 64], &[b'\n'; 33], &[0x30; 32]] {
        assert_eq!(format!("{:?}", Keys::parse(secret).unwrap()), "[Hs256]");
    }
}
