//! Single requests: which are refused with which status, and what answers look like.

use std::net::TcpStream;
use std::time::Duration;

use testkit::eventually;

use crate::support::{LIMIT, Origin, config, read_all, statuses};

/// Malformed requests and the statuses of their answers. The connection is closed after each.
#[test]
fn malformed() {
    let origin = Origin::start();
    let long = "a".repeat(9000);
    let many = (0..101).map(|i| format!("X-{i}: y\r\n")).collect::<String>();
    let get = |fields: &str| format!("GET /media/hello HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
    let target = |target: &str| format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n");
    let cases: Vec<(Vec<u8>, &str)> = [
        // Request line
        ("GET /media/hello\r\nHost: h\r\n\r\n".to_owned(), "400"),
        ("GET /media/hello HTTP/2.0\r\nHost: h\r\n\r\n".to_owned(), "400"),
        ("GET /media/hello HTTP/1.1x\r\nHost: h\r\n\r\n".to_owned(), "400"),
        ("GET  /media/hello HTTP/1.1\r\nHost: h\r\n\r\n".to_owned(), "400"),
        ("G(T /media/hello HTTP/1.1\r\nHost: h\r\n\r\n".to_owned(), "400"),
        ("/media/hello\r\n\r\n".to_owned(), "400"),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), "400"),
        ("\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}".to_owned(), "400"),
        // Target
        (target("media/hello"), "400"),
        (target("*"), "400"),
        (target("/media/hello#fragment"), "400"),
        (target("ftp://h/media/hello"), "400"),
        (target("/media/%zz"), "400"),
        (target("/media/%4"), "400"),
        (target("/media/%ff"), "400"),
        (target("/media/hello?a=%zz"), "400"),
        (target("/media/hello?a=%c3%28"), "400"),
        ("CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\n\r\n".to_owned(), "400"),
        // Paths that lead elsewhere
        (target("/media/../hello"), "404"),
        (target("/media/%2e%2e/hello"), "404"),
        (target("/media/..%2fhello"), "404"),
        (target("/media%2Fhello"), "404"),
        (target("/media%5Chello"), "404"),
        (target("/media/hello%00"), "404"),
        (target("/media/./hello"), "404"),
        (target("http://h/../etc/passwd"), "404"),
        // Fields
        ("GET /media/hello HTTP/1.1\r\n\r\n".to_owned(), "400"),
        (get("Host: h\r\n"), "400"),
        ("GET /media/hello HTTP/1.1\r\nHost: a/b\r\n\r\n".to_owned(), "400"),
        ("GET /media/hello HTTP/1.1\r\nHost: a b\r\n\r\n".to_owned(), "400"),
        ("GET /media/hello HTTP/1.1\r\nHost: a:b\r\n\r\n".to_owned(), "400"),
        (get("X-Folded: a\r\n b\r\n"), "400"),
        (get("X-Nul: a\0b\r\n"), "400"),
        (get("X-Cr: a\rb\r\n"), "400"),
        (get("X Space: a\r\n"), "400"),
        (get("X-Space : a\r\n"), "400"),
        (get("no colon\r\n"), "400"),
        (get(": no name\r\n"), "400"),
        // Framing
        (get("Content-Length: 1\r\nContent-Length: 2\r\n"), "400"),
        (get("Content-Length: 0\r\nContent-Length: 0\r\n"), "400"),
        (get("Content-Length: +1\r\n"), "400"),
        (get("Content-Length: -1\r\n"), "400"),
        (get("Content-Length: 1, 1\r\n"), "400"),
        (get("Content-Length: 99999999999999999999\r\n"), "400"),
        (get("Content-Length:\r\n"), "400"),
        (get("Transfer-Encoding: chunked\r\n"), "400"),
        (get("Transfer-Encoding: gzip, chunked\r\n"), "400"),
        (get("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"), "400"),
        (
            "POST /page HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
                .to_owned(),
            "400",
        ),
        ("POST /page HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(), "400"),
        // Size
        (target(&format!("/media/{long}")), "431"),
        (get(&format!("X-Long: {long}\r\n")), "431"),
        (format!("GET /media/hello HTTP/1.1\r\nHost: h\r\nX-Unfinished: {long}"), "431"),
        (get(&many), "431"),
    ]
    .into_iter()
    .map(|(request, status)| (request.into_bytes(), status))
    .chain([
        (b"GET /media/\xff HTTP/1.1\r\nHost: h\r\n\r\n".to_vec(), "400"),
        (b"GET /media/hello HTTP/1.1\r\nHost: h\r\nX: \xe9\r\n\r\n".to_vec(), "400"),
    ])
    .collect();
    for (request, status) in &cases {
        // Bytes that follow are not read as a request.
        let rest = b"GET /media/hello HTTP/1.1\r\nHost: h\r\n\r\n";
        let answer = origin.raw(&[&request[..], rest].concat());
        let text = String::from_utf8_lossy(&request[..request.len().min(200)]);
        assert_eq!(statuses(&answer), [*status], "{text:?}\n{answer}");
        assert!(answer.contains("\r\nConnection: close\r\n"), "{text:?}\n{answer}");
        assert!(answer.contains("\r\nX-Request-Id: "), "{text:?}\n{answer}");
    }
    assert_eq!(origin.totals().bad_requests, cases.len() as u64);
    assert_eq!(origin.totals().requests, 0);
}

/// An answer to HEAD has no payload, not even an error text (RFC 9110 9.3.2).
#[test]
fn malformed_head_requests() {
    let origin = Origin::start();
    for (target, fields, status) in [
        ("/media/%zz", "", "400"),
        ("/media/../hello", "", "404"),
        ("/media/hello", "X-Folded: a\r\n b\r\n", "400"),
    ] {
        let request = format!("HEAD {target} HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        let answer = origin.raw(request.as_bytes());
        assert_eq!(statuses(&answer), [status], "{answer}");
        assert!(answer.ends_with("\r\n\r\n"), "{answer}");
    }
}

/// Unusual but valid requests.
#[test]
fn tolerated() {
    let origin = Origin::start();
    let hello = |request: &str| {
        let answer = origin.raw(request.as_bytes());
        assert_eq!(statuses(&answer), ["200"], "{request}\n{answer}");
        answer.rsplit("\r\n\r\n").next().unwrap_or_default().to_owned()
    };
    assert_eq!(hello("\r\n\r\nGET /media/hello HTTP/1.1\r\nHost: h\r\n\r\n"), "hello");
    assert_eq!(hello("GET /media/hello HTTP/1.1\nHost: h\n\n"), "hello");
    assert_eq!(hello("GET /media/hello HTTP/1.1\r\nHost:\r\n\r\n"), "hello");
    assert_eq!(hello("GET /media/hello HTTP/1.0\r\n\r\n"), "hello");
    assert_eq!(hello("GET //media//hello/ HTTP/1.1\r\nhOST: h\r\n\r\n"), "hello");
    assert_eq!(
        hello("GET http://other:1/media/echo?a HTTP/1.1\r\nHost: h\r\n\r\n"),
        "/media/echo other:1 a="
    );
    assert_eq!(
        hello("GET /media/echo/%e2%82%ac%20x?a=1&b=%26+%3d&&c=d=e HTTP/1.1\r\nHost: h:1\r\n\r\n"),
        "/media/echo/€ x h:1 a=1 b=& = c=d=e"
    );
    // The largest allowed head.
    let start = "GET /media/hello HTTP/1.1\r\nHost: h\r\nX: ";
    let field = "a".repeat(8192 - start.len() - 4);
    assert_eq!(hello(&format!("{start}{field}\r\n\r\n")), "hello");
}

#[test]
fn responses_have_their_headers() {
    let origin = Origin::start();
    let mut client = origin.client();
    client.send("GET", "/media/hello", &[], b"").unwrap();
    let got = client.receive().unwrap();
    assert_eq!((got.status(), got.text()), (200, "hello"));
    assert_eq!(got.header("Server"), Some("headwater"));
    assert_eq!(got.header("Content-Length"), Some("5"));
    assert_eq!(got.header("Connection"), None);
    assert_eq!(got.header("Access-Control-Allow-Origin"), Some("*"));
    let date = httpdate::parse_http_date(got.header("Date").unwrap()).unwrap();
    assert!(date.elapsed().unwrap() < LIMIT);

    client.send("HEAD", "/media/hello", &[], b"").unwrap();
    let head = client.receive().unwrap();
    let undated = |headers: &[(String, String)]| {
        headers.iter().filter(|(name, _)| name != "Date").cloned().collect::<Vec<_>>()
    };
    assert_eq!(undated(&head.head.headers), undated(&got.head.headers));
    assert_eq!(head.body, b"");

    client.send("HEAD", "/media/stream/3/10", &[], b"").unwrap();
    let head = client.receive().unwrap();
    assert_eq!(head.header("Transfer-Encoding"), Some("chunked"));

    client.send("GET", "/media/none", &[], b"").unwrap();
    let none = client.receive().unwrap();
    assert_eq!((none.status(), none.header("Content-Length")), (204, None));

    client.send("GET", "/media/bytes/5000", &[("If-None-Match", "\"v1\"")], b"").unwrap();
    let unchanged = client.receive().unwrap();
    assert_eq!((unchanged.status(), unchanged.header("Content-Length")), (304, None));
    assert_eq!(unchanged.header("ETag"), Some("\"v1\""));

    client.send("GET", "/media/bytes/5000", &[("Range", "bytes=1998-2001")], b"").unwrap();
    let part = client.receive().unwrap();
    assert_eq!((part.status(), part.header("Content-Range")), (206, Some("bytes 1998-2001/5000")));
    assert_eq!(part.body, [1998, 1999, 2000, 2001].map(|i: u32| (i % 251) as u8));

    client.send("GET", "/media/bytes/5000", &[("Range", "bytes=5000-")], b"").unwrap();
    let beyond = client.receive().unwrap();
    assert_eq!((beyond.status(), beyond.header("Content-Range")), (416, Some("bytes */5000")));

    client.send("GET", "/media/interim", &[], b"").unwrap();
    assert_eq!(client.receive().unwrap().status(), 500);
}

#[test]
fn other_methods() {
    let origin = Origin::start();
    let mut client = origin.client();
    for method in ["DELETE", "PUT", "PATCH", "POST", "PURGE"] {
        client.send(method, "/media/hello", &[], b"").unwrap();
        let answer = client.receive().unwrap();
        assert_eq!((answer.status(), answer.header("Allow")), (405, Some("GET, HEAD, OPTIONS")));
    }
    for path in ["/media/hello", "*"] {
        client.send("OPTIONS", path, &[], b"").unwrap();
        let answer = client.receive().unwrap();
        assert_eq!((answer.status(), answer.header("Allow")), (204, Some("GET, HEAD, OPTIONS")));
        assert_eq!(answer.header("Access-Control-Allow-Methods"), None);
    }
    let preflight = [
        ("Origin", "http://elsewhere"),
        ("Access-Control-Request-Method", "GET"),
        ("Access-Control-Request-Headers", "range"),
    ];
    client.send("OPTIONS", "/media/hello", &preflight, b"").unwrap();
    let answer = client.receive().unwrap();
    assert_eq!(answer.status(), 204);
    assert_eq!(answer.header("Access-Control-Allow-Origin"), Some("*"));
    assert_eq!(answer.header("Access-Control-Allow-Methods"), Some("GET, HEAD, OPTIONS"));
    assert_eq!(answer.header("Access-Control-Allow-Headers"), Some("range"));
    // All requests use one connection.
    assert_eq!(origin.totals().accepted, 1);

    let closed = Origin::with(http::Config { cors: None, ..config() });
    let mut client = closed.client();
    client.send("OPTIONS", "/media/hello", &preflight, b"").unwrap();
    let answer = client.receive().unwrap();
    assert_eq!(answer.header("Access-Control-Allow-Origin"), None);
    assert_eq!(answer.header("Access-Control-Allow-Methods"), None);
}

/// The handler gets the content of a POST that it takes, by either driver and however it is sent.
#[test]
fn content_of_a_post_reaches_the_handler() {
    let origin = Origin::start();
    let mut client = origin.client();
    let longest = vec![b'x'; 16 << 10];
    for _ in 0..2 {
        for content in [&b""[..], b"hello", &longest] {
            client.send("POST", "/media/post", &[], content).unwrap();
            assert_eq!(client.receive().unwrap().body, content);
        }
        // Of a longer one it gets nothing, and the connection goes on.
        client.send("POST", "/media/post", &[], &[&longest[..], b"x"].concat()).unwrap();
        assert_eq!(client.receive().unwrap().body, b"");
        client
            .send_raw(b"POST /media/post HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n")
            .unwrap();
        for byte in b"slow" {
            std::thread::yield_now();
            client.send_raw(&[*byte]).unwrap();
        }
        assert_eq!(client.receive().unwrap().text(), "slow");
        client.send("OPTIONS", "/media/post", &[], b"").unwrap();
        let answer = client.receive().unwrap();
        assert_eq!(answer.header("Allow"), Some("GET, HEAD, OPTIONS, POST"));
        client.send("PUT", "/media/post", &[], b"").unwrap();
        assert_eq!(client.receive().unwrap().status(), 405);
        // From here on, the connection is one of the control plane.
        client.send("GET", "/who", &[], b"").unwrap();
        client.receive().unwrap();
    }
    assert_eq!(origin.totals().accepted, 1);
    for payload in [
        "Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n",
        "Content-Length: 5\r\nExpect: 100-continue\r\n\r\nhello",
    ] {
        let answer =
            origin.raw(format!("POST /media/post HTTP/1.1\r\nHost: h\r\n{payload}").as_bytes());
        assert!(answer.contains("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\nhello"), "{answer}");
    }
}

/// The packet boundaries of a request do not matter.
#[test]
fn split_at_every_byte() {
    let origin = Origin::start();
    let request = b"GET /media/echo?a=b HTTP/1.1\r\nHost: h\r\nX: y\r\n\r\n";
    let mut client = origin.client();
    for at in 1..request.len() {
        let (first, second) = request.split_at(at);
        client.send_raw(first).unwrap();
        // Usually lets the server see the first part alone.
        std::thread::yield_now();
        client.send_raw(second).unwrap();
        assert_eq!(client.receive().unwrap().text(), "/media/echo h a=b", "split at {at}");
    }
    for byte in request {
        client.send_raw(&[*byte]).unwrap();
    }
    assert_eq!(client.receive().unwrap().status(), 200);
    assert_eq!(origin.totals().accepted, 1);
}

/// A connection without any bytes is closed without an answer. The unit tests of `connection` show
/// all that ends at this time limit.
#[test]
fn a_head_that_never_begins() {
    let head_timeout = Duration::from_millis(300);
    let origin = Origin::with(http::Config { head_timeout, ..config() });
    let start = std::time::Instant::now();
    let mut silent = TcpStream::connect(origin.address).unwrap();
    silent.set_read_timeout(Some(LIMIT)).unwrap();
    assert_eq!(read_all(&mut silent), "");
    assert!(start.elapsed() >= head_timeout);
    eventually(LIMIT, "all closed", || origin.totals().open == 0);
}
