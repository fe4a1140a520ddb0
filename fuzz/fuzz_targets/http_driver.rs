//! Any bytes on a connection, in pieces of any length. The driver must answer with whole responses,
//! one after the other, and then close. It must not panic, nor wait for something that cannot come.

#![no_main]

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::sync::OnceLock;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use bytes::Bytes;
use http::{
    Body, BodyStream, Config, Handler, Piece, Representation, Request, Response, Server, Validators,
};
use libfuzzer_sys::fuzz_target;

/// Time limit of a connection; and a payload of its handler.
const LIMIT: Duration = Duration::from_secs(5);
const PAYLOAD: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// First bytes of every answer. To HTTP/1.0, hyper answers with HTTP/1.0.
const START: &[u8] = b"HTTP/1.";

fuzz_target!(|data: &[u8]| {
    let Some((&cut, input)) = data.split_first() else { return };
    let mut socket = TcpStream::connect(server()).expect("the server accepts");
    socket.set_nodelay(true).expect("a socket option");
    socket.set_read_timeout(Some(LIMIT)).expect("a socket option");
    for piece in input.chunks(usize::from(cut).max(1) * 16) {
        // The server may have closed, with an answer that tells the reason.
        if socket.write_all(piece).is_err() {
            break;
        }
    }
    let _ = socket.shutdown(Shutdown::Write);
    let mut answers = Vec::new();
    if let Err(error) = socket.read_to_end(&mut answers) {
        assert_ne!(error.kind(), io::ErrorKind::WouldBlock, "the connection stays open");
        // Bytes that were in flight at a reset may be lost.
        return;
    }
    let (mut rest, mut count) = (&answers[..], 0);
    while !rest.is_empty() {
        let status = answer(&mut rest).expect("a whole response");
        count += usize::from(status >= 200);
    }
    let lines = input.iter().filter(|&&byte| byte == b'\n').count();
    assert!(count <= lines + 1, "{count} answers to {lines} lines");
});

/// Takes one response from the front.
fn answer(rest: &mut &[u8]) -> Option<u16> {
    let end = rest.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&rest[..end]).ok()?;
    assert!(rest.starts_with(START), "{head}");
    let status: u16 = head.get(9..12)?.parse().ok()?;
    let after = &rest[end..];
    let field = |name: &str| {
        let mut lines = head.lines().filter_map(|line| line.split_once(": "));
        lines.find_map(|(key, value)| key.eq_ignore_ascii_case(name).then_some(value))
    };
    let payload = if field("transfer-encoding").is_some() {
        chunks(after)
    } else {
        field("content-length").and_then(|length| after.get(length.parse().ok()?..))
    };
    // An answer to HEAD has a length but no payload. An answer that ends with the connection has
    // neither.
    let follows = |rest: &&[u8]| rest.is_empty() || rest.starts_with(START);
    *rest = match payload.filter(follows) {
        Some(next) => next,
        None if follows(&after) => after,
        None => &[],
    };
    Some(status)
}

/// The bytes behind a chunked payload.
fn chunks(mut rest: &[u8]) -> Option<&[u8]> {
    loop {
        let line = rest.windows(2).position(|window| window == b"\r\n")?;
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..line]).ok()?, 16).ok()?;
        let end = line + 2 + size;
        assert_eq!(rest.get(end..end + 2)?, b"\r\n");
        rest = &rest[end + 2..];
        if size == 0 {
            return Some(rest);
        }
    }
}

/// A server that lives as long as the fuzzer.
fn server() -> SocketAddr {
    static ADDRESS: OnceLock<SocketAddr> = OnceLock::new();
    *ADDRESS.get_or_init(|| {
        let config = Config { workers: NonZeroUsize::MIN, ..Config::default() };
        let server = Server::bind((Ipv4Addr::LOCALHOST, 0).into(), config).expect("a free port");
        let address = server.address();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()
                .expect("a runtime");
            let router = Router::new().route("/echo", post(|payload: Bytes| async { payload }));
            let end = runtime.block_on(server.run(|_| Fixture, router, std::future::pending()));
            panic!("the server ended: {end:?}");
        });
        address
    })
}

#[derive(Clone)]
struct Fixture;

impl Handler for Fixture {
    fn accepts(&self, request: &Request) -> bool {
        request.path().starts_with("/m/")
    }

    async fn handle(&self, request: Request) -> Response {
        match request.path() {
            "/m/s" => Response::new(200).body(Body::Stream(Box::new(Streamed(3)))),
            "/m/w" => {
                tokio::task::yield_now().await;
                Response::text(404, "nothing")
            }
            _ => Representation {
                length: PAYLOAD.len() as u64,
                content_type: "video/mp4",
                cache_control: "no-cache",
                validators: Validators { etag: Some("v1"), modified: None },
            }
            .respond(&request, |range| {
                vec![Bytes::from_static(&PAYLOAD[range.start as usize..range.end as usize]).into()]
            }),
        }
    }
}

/// This many chunks are left.
struct Streamed(usize);

impl BodyStream for Streamed {
    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Option<io::Result<Vec<Piece>>>> {
        let Some(left) = self.0.checked_sub(1) else { return Poll::Ready(None) };
        self.0 = left;
        Poll::Ready(Some(Ok(vec![Bytes::from_static(PAYLOAD).into()])))
    }
}
