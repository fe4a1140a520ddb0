use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use credentials::signed::{Permit, Signer};
use tokio::time::advance;

use std::path::Path;

use super::policy::{HASHES, question};
use super::remote::tests::{Reply, Server};
use super::*;

pub(crate) const SECRET: &[u8] = b"a secret that has at least 32 bytes";
const PEER: &str = "192.0.2.1:5000";

/// The hash of `right`.
fn hashed() -> String {
    String::from(credentials::Secret::hashed("right").unwrap())
}

fn access(text: &str) -> (tempfile::TempDir, Arc<Access>) {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    std::fs::write(&key, SECRET).unwrap();
    let text = text.replace("KEY", key.to_str().unwrap()).replace("HASH", &hashed());
    let config = config::Config::parse(&text, Path::new("headwater.toml")).unwrap();
    (folder, Arc::new(Access::load(&config.access).unwrap()))
}

fn asked<'a>(action: &str, path: &'a str, peer: &str, credentials: Credentials<'a>) -> Asked<'a> {
    let stream = || StreamPath::parse(path).unwrap();
    let action = match action {
        "publish" => Action::Publish(stream()),
        "play" => Action::Play(stream()),
        "api" => Action::Observe,
        _ => Action::Measure,
    };
    Asked { action, peer: peer.parse().unwrap(), protocol: "http", credentials, lasts: false }
}

async fn by_query(access: &Arc<Access>, action: &str, path: &str, query: &str) -> Verdict {
    let asked = asked(action, path, PEER, Credentials { query, ..Credentials::default() });
    // Whether a secret was given has a test of its own.
    access.may(&asked).await.map(|grant| Grant { by_secret: false, ..grant })
}

/// A token of HS256.
pub(crate) fn token(claims: &str) -> String {
    let encode = |data: &[u8]| URL_SAFE_NO_PAD.encode(data);
    let text = format!("{}.{}", encode(br#"{"alg":"HS256"}"#), encode(claims.as_bytes()));
    let signature = sign(&Key::new(HMAC_SHA256, SECRET), text.as_bytes());
    format!("{text}.{}", encode(signature.as_ref()))
}

const ALLOWED: Verdict =
    Ok(Grant { until: None, is_personal: false, by_secret: false, by_hook: false, again: None });

#[tokio::test]
async fn with_nothing_configured_only_near_addresses_publish() {
    let (_folder, access) = access("");
    for (action, path, peer, expected) in [
        ("publish", "live/a", "127.0.0.1:1", ALLOWED),
        ("publish", "live/a", "[::1]:1", ALLOWED),
        ("publish", "live/a", "[::ffff:192.168.1.1]:1", ALLOWED),
        ("publish", "live/a", "[fd00::1]:1", ALLOWED),
        ("publish", "live/a", PEER, Err(Refusal::Foreign)),
        ("publish", "live/a", "[2001:db8::1]:1", Err(Refusal::Foreign)),
        ("publish", "live/a", "[::ffff:192.0.2.1]:1", Err(Refusal::Foreign)),
        ("play", "live/a", PEER, ALLOWED),
        ("play", "vod/a.mp4", PEER, ALLOWED),
        ("api", "live/a", PEER, ALLOWED),
        ("metrics", "live/a", PEER, ALLOWED),
    ] {
        let asked = asked(action, path, peer, Credentials::default());
        assert_eq!(access.may(&asked).await, expected, "{action} {path} {peer}");
    }
}

#[tokio::test]
async fn any_rule_that_matches_allows() {
    let (_folder, access) = access(
        "[[access.rule]]\nactions = [\"publish\"]\npath = \"live/cam*\"\nkey = \"one\"\n\
         [[access.rule]]\nactions = [\"publish\", \"api\"]\nuser = \"alice\"\npassword = \"HASH\"\n\
         [[access.rule]]\nactions = [\"publish\"]\npath = \"live/office\"\naddresses = [\"192.0.2.0/24\"]\n",
    );
    for (action, path, query, expected) in [
        ("publish", "live/cam1", "key=one", ALLOWED),
        ("publish", "live/cam1", "", Err(Refusal::Anonymous)),
        ("publish", "live/cam1", "backup=1", Err(Refusal::Anonymous)),
        ("publish", "live/cam1", "key=two", Err(Refusal::Wrong)),
        ("publish", "live/cam/1", "key=one", Err(Refusal::Wrong)),
        ("publish", "live/x", "key=one", Err(Refusal::Wrong)),
        ("publish", "live/x", "user=alice&password=right", ALLOWED),
        ("publish", "live/x", "user=alice&pass=wrong", Err(Refusal::Wrong)),
        ("publish", "live/x", "user=bob&pass=right", Err(Refusal::Wrong)),
        ("publish", "live/x", "key=right", Err(Refusal::Wrong)),
        ("publish", "live/office", "", ALLOWED),
        ("api", "live/x", "user=alice&pass=right", ALLOWED),
        ("api", "live/x", "", Err(Refusal::Anonymous)),
        // Nothing is said of these.
        ("play", "live/x", "", ALLOWED),
        ("metrics", "live/x", "key=two", ALLOWED),
    ] {
        assert_eq!(
            by_query(&access, action, path, query).await,
            expected,
            "{action} {path} {query}"
        );
    }
    let elsewhere = asked("publish", "live/office", "198.51.100.1:1", Credentials::default());
    assert_eq!(access.may(&elsewhere).await, Err(Refusal::Anonymous));
    let basic = Some("Basic YWxpY2U6cmlnaHQ=");
    let basic = Credentials { authorization: basic, ..Credentials::default() };
    let personal = Ok(Grant { is_personal: true, by_secret: true, ..Grant::default() });
    assert_eq!(access.may(&asked("publish", "live/x", PEER, basic)).await, personal);
    // It was right before, so no hash is computed.
    let again = access.at_once(&asked("publish", "live/x", PEER, basic));
    assert!(again.is_ok_and(|verdict| verdict == personal));
}

#[tokio::test]
async fn a_permission_tells_whether_a_secret_was_given_for_it() {
    let (_folder, access) = access(
        "[access.jwt]\nkeys = \"KEY\"\nactions = [\"api\"]\n\
         [[access.rule]]\nactions = [\"api\"]\nkey = \"right\"\n\
         [[access.rule]]\nactions = [\"metrics\"]\naddresses = [\"192.0.2.0/24\"]\n\
         [[access.rule]]\nactions = [\"metrics\"]\nkey = \"right\"\n",
    );
    let token = token(r#"{"permissions":[{"actions":["api"]}]}"#);
    let token = format!("token={token}");
    for (action, query, expected) in [
        // The address alone would do, but the secret makes the peer an administrator.
        ("metrics", "key=right", true),
        ("api", "key=right", true),
        ("api", &*token, true),
        // The address alone would have done, whatever was given besides.
        ("metrics", "", false),
        ("metrics", "key=guess", false),
        // Nothing is configured.
        ("play", "key=right", false),
    ] {
        let asked = asked(action, "live/a", PEER, Credentials { query, ..Credentials::default() });
        let grant = access.may(&asked).await.unwrap();
        assert_eq!(grant.by_secret, expected, "{action} {query}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wrong_secret_counts_though_the_address_needs_none() {
    let (_folder, access) = access(
        "[access]\nmax_failures = 2\n\
         [[access.rule]]\nactions = [\"api\"]\naddresses = [\"192.0.2.0/24\"]\n\
         [[access.rule]]\nactions = [\"api\"]\nuser = \"op\"\npassword = \"HASH\"\n",
    );
    let observe = async |query| {
        let asked = asked("api", "live/a", PEER, Credentials { query, ..Credentials::default() });
        access.may(&asked).await.map(|grant| grant.by_secret)
    };
    for query in ["user=op&password=a", "user=op&password=b", "user=op&password=right", ""] {
        assert_eq!(observe(query).await, Ok(false), "{query}");
    }
    advance(Duration::from_secs(60)).await;
    assert_eq!(observe("user=op&password=right").await, Ok(true));
}

/// Four wrong keys with a token are given, and then the right key.
async fn assert_slowed(other: &str) {
    let rule =
        "[access]\nmax_failures = 3\n[[access.rule]]\nactions = [\"play\"]\nkey = \"right\"\n";
    let (_folder, access) = access(&format!("{rule}{other}"));
    for number in 0..4 {
        let verdict = by_query(&access, "play", "live/a", "key=no&token=x").await;
        let expected = if number < 3 { Refusal::Undecided } else { Refusal::TooOften(SOME) };
        assert_eq!(verdict.map_err(some), Err(expected), "{other} {number}");
    }
    let right = by_query(&access, "play", "live/a", "key=right&token=x").await;
    assert_eq!(right.map_err(some), Err(Refusal::TooOften(SOME)), "{other}");
}

/// Stands for any time that an address must wait.
const SOME: Duration = Duration::from_secs(1);

fn some(refusal: Refusal) -> Refusal {
    if let Refusal::TooOften(_) = refusal { Refusal::TooOften(SOME) } else { refusal }
}

#[tokio::test]
async fn guesses_count_while_the_webhook_does_not_decide() {
    let webhook = Server::start(Reply::of("500 Internal Server Error", "")).await;
    let webhook = format!("[access.webhook]\nurl = \"{}\"\nactions = [\"play\"]\n", webhook.url);
    assert_slowed(&webhook).await;
}

/// Each attempt waits for the keys, which nobody fetches here.
#[tokio::test(start_paused = true)]
async fn guesses_count_while_there_are_no_keys() {
    assert_slowed("[access.jwt]\nkeys = \"http://127.0.0.1:1/\"\nactions = [\"play\"]\n").await;
}

#[tokio::test]
async fn an_answer_of_the_webhook_gives_a_guesser_no_more_than_before() {
    let webhook = Server::start(Reply::of("200 OK", "")).await;
    let (_folder, access) = access(&format!(
        "[access]\nmax_failures = 1\n\
         [[access.rule]]\nactions = [\"api\"]\nkey = \"right\"\n\
         [access.webhook]\nurl = \"{}\"\nactions = [\"api\"]\ncache = \"1h\"\ntimeout = \"60s\"\n",
        webhook.url
    ));
    let observe = async |query| {
        let asked = asked("api", "live/a", PEER, Credentials { query, ..Credentials::default() });
        let verdict = access.may(&asked).await.map_err(some);
        verdict.map(|grant| (grant.by_secret, grant.by_hook))
    };
    assert_eq!(observe("key=junk").await, Ok((false, true)));
    webhook.tell(Reply::of("403 Forbidden", ""));
    assert_eq!(observe("key=wrong").await, Err(Refusal::Wrong));
    assert_eq!(observe("key=right").await, Err(Refusal::TooOften(SOME)));
    assert_eq!(observe("key=junk").await, Ok((false, true)));
}

#[tokio::test]
async fn a_genuine_token_is_tried_as_no_secret_and_an_unknown_user_takes_as_long_as_a_known_one() {
    let (_folder, access) = access(
        "[access.jwt]\nkeys = \"KEY\"\nactions = [\"play\"]\n\
         [[access.rule]]\nactions = [\"play\"]\nkey = \"HASH\"\n\
         [[access.rule]]\nactions = [\"publish\"]\nuser = \"bob\"\npassword = \"plain\"\n\
         [[access.rule]]\nactions = [\"publish\"]\nuser = \"alice\"\npassword = \"HASH\"\n",
    );
    let tokens = [
        r#"{"exp":1,"permissions":[{"actions":["play"]}]}"#,
        r#"{"permissions":[{"actions":["play"],"path":"live/b"}]}"#,
    ];
    for claims in tokens {
        let query = format!("token={}", token(claims));
        let credentials = Credentials { query: &query, ..Credentials::default() };
        let verdict = access.at_once(&asked("play", "live/a", PEER, credentials));
        assert!(verdict.is_ok_and(|verdict| verdict == Err(Refusal::Wrong)), "{claims}");
    }
    for user in ["alice", "bob", "nobody"] {
        let query = format!("user={user}&password=wrong");
        let credentials = Credentials { query: &query, ..Credentials::default() };
        let asked = asked("publish", "live/a", PEER, credentials);
        assert!(access.at_once(&asked).is_err(), "{user}");
        assert_eq!(access.may(&asked).await, Err(Refusal::Wrong), "{user}");
    }
}

#[tokio::test(start_paused = true)]
async fn guesses_are_slowed_down_and_others_of_the_address_go_on() {
    let (_folder, access) = access(
        "[access]\nmax_failures = 5\nsigning_key = \"KEY\"\n\
         [access.jwt]\nkeys = \"KEY\"\nactions = [\"play\"]\n\
         [[access.rule]]\nactions = [\"play\"]\nkey = \"right\"\n",
    );
    let play = |query: &'static str| by_query(&access, "play", "live/a", query);
    assert_eq!(play("key=right").await, ALLOWED);
    for _ in 0..5 {
        assert_eq!(play("key=wrong").await, Err(Refusal::Wrong));
    }
    let wait = Duration::from_secs(12);
    for query in ["key=wrong", "key=another", "token=x"] {
        assert_eq!(play(query).await, Err(Refusal::TooOften(wait)), "{query}");
    }
    // Who guesses right now is not told so. Who was right before goes on.
    let unknown = Credentials { authorization: Some("Basic OnJpZ2h0"), ..Credentials::default() };
    assert!(access.may(&asked("play", "live/a", PEER, unknown)).await.is_ok(), "the same secret");
    assert_eq!(play("key=right").await, ALLOWED);
    assert_eq!(play("").await, Err(Refusal::Anonymous));
    // What cannot be guessed is looked at.
    let good = format!("token={}", token(r#"{"permissions":[{"actions":["play"]}]}"#));
    assert_eq!(by_query(&access, "play", "live/a", &good).await, ALLOWED);
    let signer = Signer::new(SECRET).unwrap();
    let permit = |path: &str| {
        signer.sign(&Permit { path: path.parse().unwrap(), expires: None, address: None })
    };
    let (good, other) = (permit("live/a"), permit("live/b"));
    let by_path = async |signed| {
        let verdict = access.may(&asked("play", "live/a", PEER, signed)).await;
        verdict.map(|grant| Grant { by_secret: false, ..grant })
    };
    let signed = |token| Credentials { signed: Some(token), ..Credentials::default() };
    assert_eq!(by_path(signed(&good)).await, ALLOWED);
    // Another address that guesses is not told which secret others use.
    let guess = |query| {
        asked("play", "live/a", "192.0.2.7:1", Credentials { query, ..Credentials::default() })
    };
    for _ in 0..5 {
        assert_eq!(access.may(&guess("key=wrong")).await, Err(Refusal::Wrong));
    }
    for query in ["key=wrong", "key=right"] {
        assert_eq!(access.may(&guess(query)).await, Err(Refusal::TooOften(wait)), "{query}");
    }
    // Others may try.
    let other_peer = asked("play", "live/a", "192.0.2.2:1", Credentials::default());
    assert_eq!(access.may(&other_peer).await, Err(Refusal::Anonymous));
    advance(wait).await;
    assert_eq!(play("key=wrong").await, Err(Refusal::Wrong));
    advance(Duration::from_secs(120)).await;
    // A token that is ours is no guess.
    for _ in 0..20 {
        assert_eq!(by_path(signed(&other)).await, Err(Refusal::Wrong));
    }
    for _ in 0..5 {
        let both = Credentials { query: "key=wrong", ..signed(&other) };
        assert_eq!(by_path(both).await, Err(Refusal::Wrong));
    }
    assert!(matches!(by_path(signed(&other)).await, Err(Refusal::TooOften(_))));
}

async fn publish(access: &Arc<Access>, path: &str, claims: &str) -> Verdict {
    by_query(access, "publish", path, &format!("token={}", token(claims))).await
}

#[tokio::test]
async fn permissions_end() {
    let (_folder, access) = access(
        "[access]\nsigning_key = \"KEY\"\n[access.jwt]\nkeys = \"KEY\"\naudience = \"us\"\n",
    );
    let now = unix_now();
    let claims = |expires: u64| {
        format!(
            r#"{{"aud":"us","exp":{expires},"permissions":[{{"actions":["publish"],"path":"live/*"}}]}}"#
        )
    };
    let until = publish(&access, "live/a", &claims(now + 100)).await.unwrap().until.unwrap();
    let left = until - Instant::now();
    assert!((90..=105).contains(&left.as_secs()), "{left:?}");
    assert_eq!(publish(&access, "live/a/b", &claims(now + 100)).await, Err(Refusal::Wrong));
    assert_eq!(publish(&access, "live/a", &claims(now - 100)).await, Err(Refusal::Wrong));
    assert_eq!(
        publish(&access, "live/a", &claims(now + 100).replace("us", "them")).await,
        Err(Refusal::Wrong)
    );
    let unsigned = format!("token={}.", token(&claims(now + 100)).rsplit_once('.').unwrap().0);
    assert_eq!(by_query(&access, "publish", "live/a", &unsigned).await, Err(Refusal::Wrong));

    let signer = Signer::new(SECRET).unwrap();
    let address = Some("192.0.2.1".parse().unwrap());
    let path = "live/*".parse().unwrap();
    let token = signer.sign(&Permit { path, expires: Some(now + 100), address });
    let signed = Credentials { signed: Some(&token), ..Credentials::default() };
    let until = access.may(&asked("play", "live/a", PEER, signed)).await.unwrap().until.unwrap();
    assert!((90..=100).contains(&(until - Instant::now()).as_secs()));
    for (action, path, peer) in [
        ("play", "live/a", "192.0.2.2:1"),
        ("play", "live/a/b", PEER),
        // A signed path is for viewers.
        ("publish", "live/a", PEER),
    ] {
        let verdict = access.may(&asked(action, path, peer, signed)).await;
        assert_eq!(verdict, Err(Refusal::Wrong), "{action} {path} {peer}");
    }
    let permit = signer.check(&token).unwrap();
    assert!(!permit.allows("live/a", "192.0.2.1".parse().unwrap(), now + 101));
}

#[test]
fn keys_are_read_where_a_configuration_names_them() {
    let refused =
        |text: &str| config::Config::parse(text, Path::new("h.toml")).unwrap_err().to_string();
    let folder = tempfile::tempdir().unwrap();
    let short = folder.path().join("short");
    std::fs::write(&short, "short").unwrap();
    let short = short.display();
    for (text, expected) in [
        ("[access]\nsigning_key = \"/no/such\"\n".to_owned(), "h.toml:2: access.signing_key: /no/such: "),
        (format!("[access]\nsigning_key = \"{short}\"\n"), "h.toml:2: access.signing_key: "),
        (format!("[access.jwt]\nkeys = \"{short}\"\n"), "h.toml:2: access.jwt.keys: "),
        ("[access.webhook]\nurl = \"ftp://x\"\n".to_owned(), "h.toml:2: access.webhook.url: must be "),
        ("[[access.rule]]\nactions = []\n".to_owned(), "h.toml:1: access.rule: number 1 has no action"),
        (
            "[[access.rule]]\nactions = [\"play\"]\n[[access.rule]]\nactions = [\"play\"]\nuser = \"x\"\n"
                .to_owned(),
            "h.toml:1: access.rule: number 2 has a user and no password",
        ),
        (
            "[[access.rule]]\nactions = [\"play\"]\npath = \"live/../x\"\n".to_owned(),
            "h.toml:3: access.rule",
        ),
        ("[[access.rule]]\nactions = [\"play\"]\nkey = \"\"\n".to_owned(), "h.toml:3: access.rule"),
    ] {
        let message = refused(&text);
        assert!(message.starts_with(expected), "{message}\n{expected}");
    }
}

#[test]
fn refusals_tell_how_to_go_on() {
    for (refusal, status, field) in [
        (Refusal::Anonymous, 401, Some("www-authenticate")),
        (Refusal::Wrong, 403, None),
        (Refusal::TooOften(Duration::from_millis(100)), 429, Some("retry-after")),
        (Refusal::Foreign, 403, None),
        (Refusal::Undecided, 503, Some("retry-after")),
    ] {
        assert_eq!(refusal.status(), status);
        assert_eq!(refusal.fields().first().map(|(name, _)| *name), field);
    }
    assert_eq!(Refusal::TooOften(Duration::from_millis(1100)).fields()[0].1, "2");
}

#[tokio::test]
async fn hashes_are_computed_for_few_at_a_time() {
    let (_folder, access) = access(
        "[access]\nmax_failures = 3\n[[access.rule]]\nactions = [\"play\"]\nuser = \"a\"\npassword = \"HASH\"\n",
    );
    let guesses = (0..50).map(|number| {
        let access = Arc::clone(&access);
        tokio::spawn(async move {
            let query = format!("user=a&password={number}");
            by_query(&access, "play", "live/a", &query).await
        })
    });
    let (mut wrong, mut slowed) = (0, 0);
    for guess in guesses.collect::<Vec<_>>() {
        match guess.await.unwrap() {
            Err(Refusal::Wrong) => wrong += 1,
            Err(Refusal::TooOften(_)) => slowed += 1,
            other => panic!("{other:?}"),
        }
    }
    // Those whose hashes were being computed already.
    assert!((3..=3 + HASHES).contains(&wrong), "{wrong} {slowed}");
    assert_eq!(wrong + slowed, 50);
}

#[tokio::test]
async fn a_guess_counts_though_nobody_waits_for_its_end() {
    let (_folder, access) = access(
        "[access]\nmax_failures = 1\n[[access.rule]]\nactions = [\"play\"]\nuser = \"a\"\npassword = \"HASH\"\n",
    );
    let credentials = Credentials { query: "user=a&password=x", ..Credentials::default() };
    let guess = asked("play", "live/a", PEER, credentials);
    let mut guessed = Box::pin(access.may(&guess));
    assert!(futures_util::poll!(&mut guessed).is_pending());
    drop(guessed);
    while access.policy().wait(guess.peer.ip()).is_none() {
        tokio::task::yield_now().await;
    }
}

#[test]
fn reloads_of_a_player_are_one_question() {
    let of = |query| {
        let credentials = Credentials { query, ..Credentials::default() };
        question(&Attempt::read(&asked("play", "live/a", PEER, credentials)))
    };
    assert_eq!(of("key=k&_HLS_msn=7&_HLS_part=1"), of("_HLS_msn=8&key=k"));
    assert_eq!(of("key=k&_HLS_msn=7").query, "key=k");
    assert_ne!(of("key=k"), of("key=l"));
}

#[tokio::test]
async fn encoders_are_asked_for_user_and_password_if_they_give_nothing() {
    let rule = |user: &str, terms: &str| {
        format!("[[access.rule]]\nuser = \"{user}\"\npassword = \"p\"\n{terms}\n")
    };
    let publishes = "actions = [\"publish\"]";
    let rule = &[
        rule("a", publishes),
        rule("new", publishes),
        rule("op", "actions = [\"api\"]"),
        rule("far", &format!("{publishes}\naddresses = [\"10.0.0.0/8\"]")),
    ]
    .concat();
    let (_folder, off) = access(rule);
    let on = format!("[access]\nrtmp_challenge = true\nmax_failures = 2\n{rule}");
    let (_other, access) = access(&on);
    let ip = "192.0.2.1".parse().unwrap();
    let encoder = "FMLE/3.0 (compatible; FMSc/1.0)";
    let connects = |access: &Access, query: &str, program| {
        let connected = access.connects(query.to_owned(), program, ip);
        connected.map_err(|rejected| (rejected.told, rejected.why.is_some()))
    };
    for (access, query, program) in [
        (&off, "", encoder),
        (&off, "authmod=adobe&user=a", encoder),
        (&access, "", "LNX 9,0,124,2"),
        (&access, "key=k", encoder),
        (&access, "user=a&password=p", encoder),
    ] {
        assert_eq!(connects(access, query, program), Ok(query.to_owned()), "{query} {program}");
    }
    let open = format!("{on}[[access.rule]]\n{publishes}\naddresses = [\"192.0.2.0/24\"]\n");
    let (_near, open) = self::access(&open);
    assert_eq!(connects(&open, "", encoder), Ok(String::new()), "the address may publish");
    for (query, expected, is_wrong) in [
        ("", "code=403 need auth; authmod=adobe", false),
        ("backup=1&key=", "code=403 need auth; authmod=adobe", false),
        ("authmod=adobe&user=a", "?reason=needauth&user=a&salt=", false),
        ("authmod=adobe&user=nobody", "?reason=needauth&user=nobody&salt=", false),
        // The challenge is none of ours.
        (
            "authmod=adobe&user=a&challenge=c&response=r&opaque=1-0",
            "?reason=needauth&user=a",
            false,
        ),
        ("authmod=llnw&user=a", "?reason=authfailed", true),
    ] {
        let (told, wrong) = connects(&access, query, encoder).unwrap_err();
        assert!(told.contains(expected) && wrong == is_wrong, "{query}: {told}");
    }
    let answer = |user: &str, password: &str| {
        let (told, _) =
            connects(&access, &format!("authmod=adobe&user={user}"), encoder).unwrap_err();
        let [salt, challenge] = ["salt=", "opaque="].map(|name| {
            let (_, rest) = told.split_once(name).unwrap();
            rest.split('&').next().unwrap().to_owned()
        });
        let response = adobe::respond([user, &salt, password], [&challenge, "c"]);
        let answer = format!("authmod=adobe&user={user}&challenge=c&response={response}");
        connects(&access, &format!("{answer}&opaque={challenge}"), encoder)
    };
    assert_eq!(answer("a", "p"), Ok("user=%61&password=%70".to_owned()));
    // Wrong answers are guesses, also those with passwords that are good for something else only.
    for (user, password) in [("a", "q"), ("b", "p"), ("op", "p"), ("far", "p")] {
        let (told, is_wrong) = answer(user, password).unwrap_err();
        assert!(told.contains("?reason=authfailed") && is_wrong, "{told}");
    }
    assert!(access.policy().wait(ip).is_some());
    assert!(answer("a", "p").is_ok(), "who was let in before goes on");
    assert!(answer("new", "p").is_err(), "others must wait");
}

/// Whether somebody who was let in still is, however long that takes to find out.
async fn still(access: &Access, again: &Again) -> Option<bool> {
    match access.policy().still(again.attempt()) {
        None => access.policy().still_slowly(again, true).await,
        known => known,
    }
}

#[tokio::test]
async fn who_was_let_in_is_looked_at_again() {
    let rule = |terms: &str| format!("[[access.rule]]\nactions = [\"publish\"]\n{terms}\n");
    let secret = rule("user = \"alice\"\npassword = \"HASH\"");
    let jwt = "[access.jwt]\nkeys = \"KEY\"\n";
    let claims = r#"{"iss":"us","permissions":[{"actions":["publish"],"path":"live/*"}]}"#;
    let given = format!("token={}", token(claims));
    for (before, query, after, expected) in [
        ("", "", "", Some(true)),
        ("", "", "[access]\npublish_from = [\"10.0.0.0/8\"]\n", Some(false)),
        // With credentials configured, an address alone is not enough.
        ("", "", &rule("key = \"k\""), Some(false)),
        ("", "key=k", &rule("key = \"k\""), Some(true)),
        (&rule("key = \"k\""), "key=k", &rule("key = \"k\""), Some(true)),
        (&rule("key = \"k\""), "key=k", &rule("key = \"other\""), Some(false)),
        (&rule("key = \"k\""), "key=k", &rule("key = \"k\"\npath = \"live/b\""), Some(false)),
        (&secret, "user=alice&pass=right", &secret, Some(true)),
        (&secret, "user=alice&pass=right", &secret.replace("alice", "bob"), Some(false)),
        (jwt, &given, jwt, Some(true)),
        (jwt, &given, &format!("{jwt}issuer = \"them\"\n"), Some(false)),
        // The keys were not fetched yet: nobody knows.
        (jwt, &given, "[access.jwt]\nkeys = \"http://127.0.0.1:1/\"\n", None),
        // Nothing allows it, and the webhook does not.
        ("", "", "[access.webhook]\nurl = \"http://127.0.0.1:1/\"\n", Some(false)),
        ("", "", "[access.webhook]\nurl = \"http://127.0.0.1:1/\"\non_failure = \"allow\"\n", None),
    ] {
        let (folder, access) = access(before);
        let key = folder.path().join("key");
        let mut asked =
            asked("publish", "live/a", "127.0.0.1:1", Credentials { query, ..Default::default() });
        asked.lasts = true;
        let again = access.may(&asked).await.unwrap().again.unwrap();
        let after = after.replace("KEY", key.to_str().unwrap()).replace("HASH", &hashed());
        let config = config::Config::parse(&after, Path::new("headwater.toml")).unwrap();
        access.reload(&config.access).unwrap();
        assert_eq!(still(&access, &again).await, expected, "{before} {query} {after}");
        assert_eq!(format!("{again:?}"), "Again", "it has secrets");
    }
}

#[tokio::test]
async fn what_is_configured_as_before_goes_on_with_what_it_knows() {
    let hashed = "[[access.rule]]\nactions = [\"play\"]\nuser = \"a\"\npassword = \"HASH\"\n"
        .replace("HASH", &hashed());
    let (_folder, access) = access(&hashed);
    let query = "user=a&password=right";
    let credentials = Credentials { query, ..Credentials::default() };
    let play = asked("play", "live/a", PEER, credentials);
    assert!(access.at_once(&play).is_err(), "a hash must be computed");
    assert!(access.may(&play).await.is_ok());
    let reload = |text: &str| {
        let config = config::Config::parse(text, Path::new("headwater.toml")).unwrap();
        access.reload(&config.access).unwrap();
    };
    reload(&hashed);
    assert!(access.at_once(&play).is_ok_and(|verdict| verdict.is_ok()), "no hash is computed");
    reload(&("[[access.rule]]\nactions = [\"play\"]\nkey = \"k\"\n".to_owned() + &hashed));
    assert!(access.at_once(&play).is_ok_and(|verdict| verdict.is_ok()), "the secret is the same");
    let other = hashed.replace("\"a\"", "\"b\"");
    reload(&other);
    assert_eq!(access.may(&play).await, Err(Refusal::Wrong), "the user is another");
    // Who guessed before is remembered under another limit. A key set that has not come yet makes nobody a guesser.
    reload("[access]\nmax_failures = 1\n[access.jwt]\nkeys = \"http://127.0.0.1:1/\"\n");
    let query = "token=a.b.c";
    let credentials = Credentials { query, ..Credentials::default() };
    let guesser = asked("play", "live/a", PEER, credentials);
    assert!(matches!(access.may(&guesser).await, Err(Refusal::TooOften(_))));
    let play = asked("play", "live/a", "192.0.2.9:1", credentials);
    assert_eq!(access.may(&play).await, Err(Refusal::Undecided));
    assert_eq!(access.policy().wait("192.0.2.9".parse().unwrap()), None);
}
