use std::time::Duration;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::access::remote::tests::{Log, Reply, Server, Then, pass, refusing};

/// A time-out that only ends when a test moves the time.
const LONG: Duration = Duration::from_secs(3600);
/// For how long answers hold.
const HOLDS: Duration = Duration::from_secs(100_000);

const PASSWORDS: [&str; 3] = ["pass-word", "tok-en", "que-ry"];

fn question(path: &str) -> Question {
    let [password, token, query] = PASSWORDS.map(str::to_owned);
    let ip = "192.0.2.7".parse().unwrap();
    let (path, user) = (path.to_owned(), "alice".to_owned());
    let (action, protocol) = (Action::Publish, "rtmp");
    Question { action, path, protocol, ip, user, password, token, query, recheck: false }
}

/// A server with this reply, and a hook whose answers hold for this time.
async fn hook(reply: Reply, holds: Duration) -> (Server, Webhook) {
    let server = Server::start(reply).await;
    let hook = Webhook::new(&server.url, LONG, holds).unwrap();
    (server, hook)
}

fn ok() -> Reply {
    Reply::of("200 OK", "")
}

#[tokio::test]
async fn the_question_is_that_of_mediamtx() {
    let (server, hook) = hook(ok(), HOLDS).await;
    assert_eq!(hook.ask(question("live/a")).await, Answer::Allowed);
    let request = server.requests().pop().unwrap();
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /asked?at=once HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("content-type: application/json"), "{head}");
    let [password, token, query] = PASSWORDS;
    let expected = serde_json::json!({
        "action": "publish", "path": "live/a", "protocol": "rtmp", "ip": "192.0.2.7",
        "user": "alice", "password": password, "token": token, "query": query,
    });
    assert_eq!(serde_json::from_str::<serde_json::Value>(body).unwrap(), expected);
}

#[tokio::test]
async fn the_status_decides() {
    let (server, hook) = hook(ok(), Duration::ZERO).await;
    for (status, expected) in [
        ("200 OK", Some(Answer::Allowed)),
        ("204 No Content", Some(Answer::Allowed)),
        ("299 Fine", Some(Answer::Allowed)),
        ("401 Unauthorized", Some(Answer::Refused)),
        ("403 Forbidden", Some(Answer::Refused)),
        ("302 Found", None),
        ("307 Temporary Redirect", None),
        ("400 Bad Request", None),
        ("404 Not Found", None),
        ("429 Too Many Requests", None),
        ("500 Internal Server Error", None),
        ("503 Service Unavailable", None),
    ] {
        server.tell(Reply::of(status, if status.starts_with("204") { "" } else { "words" }));
        let answer = hook.ask(question("live/a")).await;
        let why = Answer::None(format!("the status is {status}"));
        assert_eq!(answer, expected.unwrap_or(why), "{status}");
    }
    // No redirection was followed.
    assert_eq!(server.requests().len(), 12);
}

#[tokio::test]
async fn what_is_no_answer_decides_nothing() {
    let (server, hook) = hook(ok(), HOLDS).await;
    for (broken, why) in [
        (Reply::new("SSH-2.0-OpenSSH_9.2\r\n\r\n", Then::Hold), "invalid HTTP"),
        (Reply::new("HTTP/1.1 abc OK\r\n\r\n", Then::Hold), "invalid HTTP"),
        (Reply::new("HTTP/1.1 200 OK\r\nX", Then::Close), ""),
        (Reply::new("HTTP/1.1 200 OK\r\nX: ", Then::Flood(u64::MAX)), "head"),
        (Reply::new("", Then::Close), ""),
    ] {
        server.tell(broken);
        let Answer::None(told) = hook.ask(question("live/a")).await else { panic!("{why}") };
        assert!(told.contains(why) && !told.contains("http://"), "{told}");
    }
    let (_socket, url) = refusing();
    let hook = Webhook::new(&url, LONG, HOLDS).unwrap();
    let Answer::None(told) = hook.ask(question("live/a")).await else { panic!("refused") };
    assert!(told.contains("refused"), "{told}");
    assert_eq!(hook.known(&question("live/a")), None);
}

#[tokio::test]
async fn silence_ends_with_the_time_out() {
    let (server, hook) = hook(ok(), HOLDS).await;
    let silences = ["", "HTTP/1.1 200 OK\r\nX: 1"].map(|bytes| Reply::new(bytes, Then::Hold));
    for (count, silence) in (1..).zip(silences) {
        server.tell(silence);
        // All who ask meanwhile wait for the same exchange.
        let (answer, other, ()) =
            tokio::join!(hook.ask(question("live/a")), hook.ask(question("live/a")), async {
                server.until_asked(count).await;
                pass(LONG).await;
            });
        assert_eq!(answer, Answer::None("no answer in 3600s".to_owned()));
        assert_eq!(other, answer);
        assert_eq!(server.requests().len(), count);
    }
}

#[tokio::test]
async fn bodies_are_not_read() {
    let (server, hook) = hook(ok(), Duration::ZERO).await;
    let head = |body: &str| format!("HTTP/1.1 200 OK\r\n{body}\r\n\r\n");
    for (count, (body, then)) in (1..).zip([
        ("Content-Length: 10000000", Then::Flood(10_000_000)),
        ("Transfer-Encoding: chunked\r\n\r\nffffffff", Then::Flood(u64::MAX)),
        ("Connection: close", Then::Flood(u64::MAX)),
        // One byte, and no more.
        ("Content-Length: 10000000", Then::Flood(1)),
    ]) {
        server.tell(Reply::new(head(body), then));
        assert_eq!(hook.ask(question("live/a")).await, Answer::Allowed, "{body}");
        server.until_cut(count).await;
    }
    // A broken body does not change an answer.
    server.tell(Reply::new(head("Transfer-Encoding: chunked\r\n\r\nnonsense"), Then::Hold));
    assert_eq!(hook.ask(question("live/a")).await, Answer::Allowed);
}

#[tokio::test]
async fn servers_that_nobody_vouches_for_decide_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let [certificate, key] = ["certificate.pem", "key.pem"].map(|name| folder.path().join(name));
    testkit::certificate::make("localhost", &certificate, &key);
    let certificate = CertificateDer::from_pem_file(certificate).unwrap();
    let key = PrivateKeyDer::from_pem_file(key).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.unwrap().with_no_client_auth().with_single_cert(vec![certificate], key);
    let acceptor = TlsAcceptor::from(Arc::new(config.unwrap()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    let hook = Webhook::new(&url, LONG, HOLDS).unwrap();
    let (answer, accepted) = tokio::join!(hook.ask(question("live/a")), async {
        acceptor.accept(listener.accept().await.unwrap().0).await
    });
    let Answer::None(told) = answer else { panic!("{answer:?}") };
    assert!(told.contains("certificate"), "{told}");
    assert!(accepted.is_err());
}

#[tokio::test]
async fn names_are_looked_up() {
    let (server, _) = hook(ok(), HOLDS).await;
    let url = server.url.replace("127.0.0.1", "localhost");
    let hook = Webhook::new(&url, LONG, HOLDS).unwrap();
    assert_eq!(hook.ask(question("live/a")).await, Answer::Allowed);
    let hook = Webhook::new("http://name.invalid/", LONG, HOLDS).unwrap();
    let answer = hook.ask(question("live/a")).await;
    assert!(matches!(answer, Answer::None(_)), "{answer:?}");
}

#[tokio::test]
async fn an_answer_holds_for_its_time() {
    for (reply, answer) in
        [(ok(), Answer::Allowed), (Reply::of("403 Forbidden", "no"), Answer::Refused)]
    {
        let (server, hook) = hook(reply, HOLDS).await;
        assert_eq!(hook.known(&question("live/a")), None);
        for _ in 0..3 {
            assert_eq!(hook.ask(question("live/a")).await, answer);
            assert_eq!(hook.known(&question("live/a")), Some(answer.clone()));
        }
        // Everything in a question counts.
        let of = question("live/a");
        let (ip, text) = ("192.0.2.8".parse().unwrap(), String::new);
        let others = [
            Question { action: Action::Play, ..of.clone() },
            Question { path: "live/b".to_owned(), ..of.clone() },
            Question { protocol: "http", ..of.clone() },
            Question { ip, ..of.clone() },
            Question { user: text(), ..of.clone() },
            Question { password: text(), ..of.clone() },
            Question { token: text(), ..of.clone() },
            Question { query: text(), ..of.clone() },
        ];
        for other in &others {
            assert_eq!(hook.known(other), None, "{other:?}");
            hook.ask(other.clone()).await;
        }
        assert_eq!(server.requests().len(), 1 + others.len());
        pass(HOLDS).await;
        assert_eq!(hook.known(&of), None);
        server.tell(Reply::of("204 No Content", ""));
        assert_eq!(hook.ask(of).await, Answer::Allowed);
        assert_eq!(server.requests().len(), 2 + others.len());
        // All that was too old went out then.
        let cache = hook.cache();
        assert_eq!((cache.slots.len(), cache.by_age.len()), (1, 1));
    }
}

#[tokio::test]
async fn what_decides_nothing_is_asked_again() {
    let (server, hook) = hook(Reply::of("500 Internal Server Error", ""), HOLDS).await;
    for count in 1..4 {
        assert!(matches!(hook.ask(question("live/a")).await, Answer::None(_)));
        assert_eq!((hook.known(&question("live/a")), server.requests().len()), (None, count));
    }
    server.tell(ok());
    assert_eq!(hook.ask(question("live/a")).await, Answer::Allowed);
    assert_eq!(hook.known(&question("live/a")), Some(Answer::Allowed));
}

#[tokio::test]
async fn many_who_ask_the_same_share_one_exchange() {
    // Answers hold for no time, so that only the exchange is shared.
    let (server, hook) = hook(ok(), Duration::ZERO).await;
    server.shut();
    let ask = || hook.ask(question("live/a"));
    let (one, two, three, other, ()) =
        tokio::join!(ask(), ask(), ask(), hook.ask(question("live/b")), async {
            server.until_asked(2).await;
            server.open();
        });
    assert_eq!([one, two, three, other], [const { Answer::Allowed }; 4]);
    assert_eq!(server.requests().len(), 2);
    assert_eq!(hook.known(&question("live/a")), None);
    assert_eq!(ask().await, Answer::Allowed);
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn whoever_goes_away_leaves_the_question_to_the_others() {
    let (server, hook) = hook(ok(), HOLDS).await;
    let hook = Arc::new(hook);
    server.shut();
    let asking = Arc::clone(&hook);
    let first = tokio::spawn(async move { asking.ask(question("live/a")).await });
    server.until_asked(1).await;
    let (answer, ()) = tokio::join!(hook.ask(question("live/a")), async {
        first.abort();
        server.until_asked(2).await;
        server.open();
    });
    assert_eq!(answer, Answer::Allowed);
    assert!(first.await.unwrap_err().is_cancelled());
}

#[tokio::test]
async fn only_so_many_exchanges_at_once() {
    let (server, hook) = hook(ok(), HOLDS).await;
    let hook = Arc::new(hook);
    server.shut();
    let ask_all = || {
        let mut asking = JoinSet::new();
        for number in 0..EXCHANGES + 36 {
            let hook = Arc::clone(&hook);
            asking.spawn(async move { hook.ask(question(&format!("live/{number}"))).await });
        }
        asking
    };
    let asking = ask_all();
    server.until_asked(EXCHANGES).await;
    assert_eq!(hook.turns.available_permits(), 0);
    pass(LONG).await;
    let late = Answer::None("no answer in 3600s".to_owned());
    assert!(asking.join_all().await.iter().all(|answer| *answer == late));
    // The others waited in vain for their turn.
    assert_eq!(server.requests().len(), EXCHANGES);

    let asking = ask_all();
    server.until_asked(2 * EXCHANGES).await;
    assert_eq!(server.requests().len(), 2 * EXCHANGES);
    server.open();
    assert!(asking.join_all().await.iter().all(|answer| *answer == Answer::Allowed));
}

#[tokio::test]
async fn the_oldest_answers_go_when_there_are_too_many() {
    let mut cache = Cache { holds: HOLDS, ..Cache::default() };
    let code = |number: usize| {
        let mut code = Code::default();
        code[..8].copy_from_slice(&number.to_le_bytes());
        code
    };
    for number in 0..MOST_KEPT + 10 {
        let slot = cache.slot(code(number));
        // Some never get an answer.
        if number % 3 > 0 {
            slot.set((Answer::Allowed, Instant::now())).unwrap();
        }
        assert!(Arc::ptr_eq(&slot, &cache.slot(code(number))));
    }
    assert_eq!((cache.slots.len(), cache.by_age.len()), (MOST_KEPT, MOST_KEPT));
    let kept = |number| cache.slots.contains_key(&code(number));
    assert!(!kept(0) && !kept(9) && kept(10) && kept(MOST_KEPT + 9));
    // One and the same question that nobody decides takes no more room either.
    for _ in 0..2 * MOST_KEPT {
        let slot = cache.slot(code(0));
        slot.set((Answer::None(String::new()), Instant::now())).unwrap();
    }
    assert!(cache.by_age.len() <= MOST_KEPT && cache.slots.contains_key(&code(0)));
}

#[tokio::test]
async fn nothing_prints_a_secret() {
    let (log, _logged) = Log::begin(tracing::Level::TRACE);
    let server = Server::start(ok()).await;
    let url = server.url.replace("http://", "http://origin:hook-pass@");
    let hook = Webhook::new(&url, LONG, Duration::ZERO).unwrap();
    let mut told = format!("{:?}", question("live/a"));
    assert_eq!(told, "publish \"live/a\" by rtmp from 192.0.2.7");
    let broken = Reply::new("nonsense\r\n\r\n", Then::Close);
    for reply in [ok(), Reply::of("500 Internal Server Error", ""), broken] {
        server.tell(reply);
        tracing::debug!(question = ?question("live/a"), "asked");
        told += &format!("{:?}", hook.ask(question("live/a")).await);
    }
    // The server does get what the URL has.
    assert!(server.requests()[0].contains("authorization: Basic "));
    told += &log.text();
    assert!(told.contains("asked"), "the log is empty");
    for secret in PASSWORDS.iter().chain(&["hook-pass", "at=once"]) {
        assert!(!told.contains(secret), "{secret}: {told}");
    }
}

#[test]
fn asking_may_move_between_threads() {
    fn is_send(_: impl Send) {}
    let hook = Webhook::new("http://127.0.0.1/", LONG, HOLDS).unwrap();
    is_send(hook.ask(question("live/a")));
}
