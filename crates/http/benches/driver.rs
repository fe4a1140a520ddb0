//! Measures the connection driver by itself, over loopback, with one worker.
//!
//! `cargo bench -p headwater-http --bench driver`. With server and load on cores of their own:
//! `taskset`, or the scenario `streamgauge run media-plane`, which measures the whole origin beside
//! its rivals.

#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::BytesMut;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use http::{
    Config, FileVersion, Handler, OpenFile, Piece, Representation, Request, Response, Server,
    Validators,
};
use tokio::sync::oneshot;

/// Bytes of the file, all of them in the page cache.
const FILE: usize = 16 << 20;
/// Requests that a client sends before it reads the first answer.
const PIPELINED: usize = 16;

/// Serves `/file`, and answers all other paths with a small text.
#[derive(Clone)]
struct Media {
    file: Arc<OpenFile>,
    version: FileVersion,
}

impl Handler for Media {
    fn accepts(&self, _: &Request) -> bool {
        true
    }

    async fn handle(&self, request: Request) -> Response {
        if request.path() != "/file" {
            return Response::text(200, "small");
        }
        let representation = Representation {
            length: FILE as u64,
            content_type: "application/octet-stream",
            cache_control: "no-cache",
            validators: Validators { etag: None, modified: Some(SystemTime::UNIX_EPOCH) },
            fields: None,
        };
        representation.respond(&request, |range| {
            let (file, version) = (Arc::clone(&self.file), Some(self.version));
            vec![Piece::File { file, range, version }]
        })
    }
}

/// Runs `body` with the address of a server.
fn with_server(body: impl FnOnce(SocketAddr)) {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&vec![7; FILE]).unwrap();
    let media =
        Media { version: FileVersion::of(&file.metadata().unwrap()), file: Arc::new(file.into()) };
    let config = Config { workers: NonZeroUsize::MIN, ..Config::default() };
    let server = Server::bind((Ipv4Addr::LOCALHOST, 0).into(), config).unwrap();
    let address = server.address();
    let (stop, stopped) = oneshot::channel::<()>();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let serve = async move {
        let stopped = async { drop(stopped.await) };
        server.run(move |_| media.clone(), axum::Router::new(), stopped).await
    };
    let served = std::thread::spawn(move || runtime.block_on(serve));
    body(address);
    drop(stop);
    served.join().unwrap().unwrap();
}

fn get(path: &str, fields: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n")
}

/// Reads until `bytes` bytes have come.
fn read(socket: &mut TcpStream, bytes: usize, buffer: &mut [u8]) {
    let mut left = bytes;
    while left > 0 {
        let most = left.min(buffer.len());
        let read = socket.read(&mut buffer[..most]).unwrap();
        assert!(read > 0, "the server closed the connection");
        left -= read;
    }
}

/// Sends a request whose answer has `bytes` bytes of payload. Returns the length of the whole answer,
/// which is the same for the next requests.
fn length_of_answer(socket: &mut TcpStream, request: &str, bytes: usize) -> usize {
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let head = loop {
        let mut more = [0; 4096];
        let read = socket.read(&mut more).unwrap();
        answer.extend_from_slice(&more[..read]);
        if let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        assert!(read > 0, "the server closed the connection");
    };
    assert!(answer.starts_with(b"HTTP/1.1 20"), "{}", String::from_utf8_lossy(&answer[..head]));
    read(socket, head + bytes - answer.len(), &mut [0; 64 << 10]);
    head + bytes
}

fn answers(criterion: &mut Criterion) {
    with_server(|address| {
        let mut buffer = vec![0; 1 << 20];
        let range = |bytes: usize| get("/file", &format!("Range: bytes=4096-{}\r\n", 4095 + bytes));
        for (name, request, count, bytes) in [
            ("small", get("/small", ""), 1, 6),
            ("small, 16 pipelined", get("/small", ""), PIPELINED, 6),
            ("range of 64 KiB", range(64 << 10), 1, 64 << 10),
            ("range of 1 MiB", range(1 << 20), 1, 1 << 20),
        ] {
            let mut socket = TcpStream::connect(address).unwrap();
            socket.set_nodelay(true).unwrap();
            let answer = length_of_answer(&mut socket, &request, bytes);
            let requests = request.repeat(count);
            let mut group = criterion.benchmark_group("answer");
            group.throughput(Throughput::Bytes((count * bytes) as u64));
            group.bench_function(name, |bencher| {
                bencher.iter(|| {
                    socket.write_all(requests.as_bytes()).unwrap();
                    read(&mut socket, count * answer, &mut buffer);
                });
            });
            group.finish();
        }
    });
}

fn heads(criterion: &mut Criterion) {
    let peer = (Ipv4Addr::LOCALHOST, 1).into();
    let head = get(
        "/live/demo/v0/media.m3u8?_HLS_msn=123&_HLS_part=4",
        "User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36\r\nAccept: */*\r\n\
         Accept-Encoding: gzip, deflate, br\r\nAccept-Language: en\r\nReferer: http://localhost/\r\n",
    );
    criterion.bench_function("parse a request's head", |bencher| {
        bencher.iter(|| {
            let mut bytes = BytesMut::from(head.as_bytes());
            Request::parse(&mut bytes, peer, 16 << 10).unwrap().unwrap()
        });
    });
}

criterion_group!(driver, answers, heads);
criterion_main!(driver);
