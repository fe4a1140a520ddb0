//! The time limits of a connection. The peer's bytes stay in this process and the clock is paused, so
//! time passes only while everybody waits for it.

use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream as Blocking};
use std::os::fd::BorrowedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::routing::{get, post};
use bytes::Bytes;
use hyper_util::service::TowerToHyperService;
use payload::Region;
use payload::memory::{Account, Arena, Memory};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime;

use super::*;
use crate::Config;
use crate::counters::{Counters, Totals};
use crate::net::{Gate, Worker, unacknowledged};
use crate::socket::Socket;
use crate::{Body, BodyStream, Piece};

/// Time limit of heads.
const HEAD: Duration = Duration::from_secs(10);

/// Timers have steps of a millisecond.
const STEP: Duration = Duration::from_millis(2);

/// How many bytes are taken that the peer has not read.
const ROOM: usize = 64 << 10;

/// Bytes in a chunk of the endless answer.
const CHUNK: usize = 10_000;

/// A stream in this process. Its socket is used only for options and to ask the kernel.
struct Scripted {
    pipe: DuplexStream,
    tcp: TcpStream,
}

impl Socket for Scripted {
    fn poll_send(
        &mut self,
        parts: &[IoSlice<'_>],
        _: bool,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.pipe).poll_write_vectored(cx, parts)
    }

    fn poll_sendfile(
        &mut self,
        _: BorrowedFd<'_>,
        _: u64,
        _: usize,
        _: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(rustix::io::Errno::OPNOTSUPP.into()))
    }
}

impl Stream for Scripted {
    const SENDS_FILES: bool = false;

    fn tcp(&self) -> &TcpStream {
        &self.tcp
    }
}

impl AsyncRead for Scripted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_read(cx, buf)
    }
}

impl AsyncWrite for Scripted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.pipe).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_shutdown(cx)
    }
}

impl From<Scripted> for Box<dyn Transport> {
    fn from(_: Scripted) -> Self {
        unreachable!("no answer is an upgrade")
    }
}

/// A handler that says hello, or sends without end, or from a window.
#[derive(Clone, Default)]
struct Fixture {
    /// The regions that are sent, each once.
    regions: Rc<RefCell<Vec<Region>>>,
    /// How many chunks were pulled.
    pulled: Rc<Cell<usize>>,
}

impl Handler for Fixture {
    fn accepts(&self, request: &Request) -> bool {
        request.path().starts_with("/media/")
    }

    async fn handle(&self, request: Request) -> Response {
        match request.path() {
            "/media/endless" => Response::new(200).body(Body::Stream(Box::new(self.clone()))),
            "/media/region" => {
                let region = self.regions.borrow_mut().pop().unwrap();
                Response::new(200).body(Body::Pieces(vec![region.into()]))
            }
            _ => Response::new(200).body("hello"),
        }
    }
}

impl BodyStream for Fixture {
    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Option<io::Result<Vec<Piece>>>> {
        self.pulled.set(self.pulled.get() + 1);
        Poll::Ready(Some(Ok(vec![Bytes::from_static(&[7; CHUNK]).into()])))
    }

    fn drain(&mut self) {}
}

/// An event loop, and what its connections count.
struct Loop(Rc<Shared<Fixture>>);

impl Loop {
    fn new() -> Self {
        let gate = Arc::new(Gate::new(10, None));
        let counters = Arc::new(Counters::new(Arc::clone(&gate), 1));
        let router = Router::new()
            .route("/page", get(|| async { "page" }))
            .route("/echo", post(|body: Bytes| async move { body }));
        Self(Rc::new(Shared {
            worker: Worker::new(0),
            handler: Fixture::default(),
            config: Arc::new(Config { head_timeout: HEAD, ..Config::default() }),
            cors: Arc::default(),
            gate,
            counters,
            router: TowerToHyperService::new(router),
            control: runtime::Handle::current(),
        }))
    }

    /// Serves a connection whose peer does this, to its end. Returns what the peer returned.
    async fn serve<T>(&self, peer: impl AsyncFnOnce(Peer) -> T) -> T {
        let (tcp, _far) = socket();
        self.serve_over(TcpStream::from_std(tcp).unwrap(), peer).await
    }

    async fn serve_over<T>(&self, tcp: TcpStream, peer: impl AsyncFnOnce(Peer) -> T) -> T {
        let (near, far) = tokio::io::duplex(ROOM);
        let permit = self.0.gate.admit(Ipv4Addr::LOCALHOST.into()).unwrap();
        let address = (Ipv4Addr::LOCALHOST, 1).into();
        let stream = Scripted { pipe: near, tcp };
        let driver = drive(stream, address, permit, Rc::clone(&self.0));
        let ((), result) = tokio::join!(driver, peer(Peer(far)));
        assert_eq!(self.totals().open, 0);
        result
    }

    /// Gives the handler regions of this length. Only these keep memory afterwards.
    fn store(&self, count: usize, length: usize) -> Memory {
        let memory = Memory::new(u64::MAX);
        let mut arena = Arena::new(&memory, Account::open(memory.budget())).unwrap();
        let regions = (0..count).map(|_| arena.store(&vec![7; length]).unwrap());
        self.0.handler.regions.borrow_mut().extend(regions);
        memory
    }

    fn totals(&self) -> Totals {
        self.0.counters.totals()
    }
}

/// A socket of a connection that nobody serves, and its other end.
fn socket() -> (Blocking, Blocking) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let near = Blocking::connect(listener.local_addr().unwrap()).unwrap();
    near.set_nonblocking(true).unwrap();
    (near, listener.accept().unwrap().0)
}

/// The peer's end of a connection.
struct Peer(DuplexStream);

impl Peer {
    async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Sends a GET and waits for the end of its answer, which is known.
    async fn get(&mut self, path: &str, end: &str) {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n")).await;
        self.receive(end).await;
    }

    /// Receives until the bytes end in this way.
    async fn receive(&mut self, end: &str) {
        let mut answer = Vec::new();
        while !answer.ends_with(end.as_bytes()) {
            answer.push(self.0.read_u8().await.unwrap());
        }
    }

    /// Receives all bytes until the connection is closed. Returns them and how long it took.
    async fn rest(mut self) -> (String, Duration) {
        let (began, mut bytes) = (Instant::now(), String::new());
        self.0.read_to_string(&mut bytes).await.unwrap();
        (bytes, began.elapsed())
    }

    /// Like [`rest`](Self::rest), and sends this byte every 10 ms until the server takes no more.
    /// Returns how many it took, too.
    async fn drip(self, byte: u8) -> (String, Duration, usize) {
        let (reader, mut writer) = tokio::io::split(self.0);
        let (began, mut reader, mut answer) = (Instant::now(), reader, String::new());
        let read = async {
            reader.read_to_string(&mut answer).await.unwrap();
            began.elapsed()
        };
        let write = async {
            let mut taken = 0;
            while writer.write_all(&[byte]).await.is_ok() {
                taken += 1;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            taken
        };
        let (took, taken) = tokio::join!(read, write);
        (answer, took, taken)
    }
}

#[track_caller]
fn assert_due(took: Duration, due: Duration) {
    assert!((due..=due + STEP).contains(&took), "{took:?}, not {due:?}");
}

#[track_caller]
fn assert_late(answer: &str) {
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    // hyper writes names of fields in lower case.
    assert!(answer.to_lowercase().contains("\r\nx-request-id: "), "{answer}");
    assert!(answer.to_lowercase().contains("\r\nconnection: close\r\n"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_head_that_takes_too_long() {
    let it = Loop::new();
    // Sending a byte now and then does not extend the time. It begins with the first byte.
    let (answer, took, _) = it
        .serve(async |mut peer: Peer| {
            tokio::time::sleep(HEAD / 2).await;
            peer.send("GET /media/hello HTTP/1.1\r\nHost: h\r\nX: ").await;
            peer.drip(b'a').await
        })
        .await;
    assert_late(&answer);
    assert_due(took, HEAD);
    assert_eq!(it.totals().bad_requests, 1);
    // A connection without any bytes is closed without an answer.
    let (answer, took) = it.serve(Peer::rest).await;
    assert_eq!(answer, "");
    assert_due(took, HEAD);
    // The second head of a connection has the same time limit as the first.
    let (answer, took) = it
        .serve(async |mut peer: Peer| {
            peer.get("/media/hello", "hello").await;
            tokio::time::sleep(HEAD * 2).await;
            peer.send("GET /media").await;
            peer.rest().await
        })
        .await;
    assert_late(&answer);
    assert_due(took, HEAD);
    // So has one that begins with many bytes and no end of a line.
    let (answer, took) = it
        .serve(async |mut peer: Peer| {
            peer.get("/media/hello", "hello").await;
            tokio::time::sleep(HEAD * 2).await;
            peer.send(format!("GET /media/{}", "a".repeat(600))).await;
            peer.rest().await
        })
        .await;
    assert_late(&answer);
    assert_due(took, HEAD);
    // So has one after a slow payload.
    let (answer, took) = it
        .serve(async |mut peer: Peer| {
            peer.send("GET /media/hello HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\n").await;
            peer.receive("hello").await;
            tokio::time::sleep(HEAD * 9 / 10).await;
            peer.send("x").await;
            tokio::time::sleep(HEAD * 9 / 10).await;
            peer.send("GET /media").await;
            peer.rest().await
        })
        .await;
    assert_late(&answer);
    assert_due(took, HEAD);
}

/// The payload of a GET is dropped. One that does not arrive, or arrives byte by byte, ends the
/// connection.
#[tokio::test(start_paused = true)]
async fn a_payload_that_takes_too_long() {
    let it = Loop::new();
    let request = "GET /media/hello HTTP/1.1\r\nHost: h\r\nContent-Length: 60000\r\n\r\n";
    let (answer, took) = it
        .serve(async |mut peer: Peer| {
            peer.send(request).await;
            peer.rest().await
        })
        .await;
    assert!(answer.ends_with("\r\n\r\nhello"), "{answer}");
    assert_due(took, HEAD);
    let (answer, took, taken) = it
        .serve(async |mut peer: Peer| {
            peer.send(request).await;
            peer.drip(b'x').await
        })
        .await;
    assert!(answer.ends_with("\r\n\r\nhello"), "{answer}");
    assert_due(took, HEAD);
    assert!(taken < 60_000, "all of it was taken");
}

/// On a connection of the control plane, the time of a head begins with the answer before it. A
/// head that has begun is answered, even if it arrives byte by byte. An idle connection is closed
/// without an answer.
#[tokio::test(start_paused = true)]
async fn a_head_that_takes_too_long_on_a_control_connection() {
    let it = Loop::new();
    for (begun, drips) in
        [("GET /pa", false), ("", false), ("GET /page HTTP/1.1\r\nHost: h\r\nX: ", true)]
    {
        let (answer, took) = it
            .serve(async |mut peer: Peer| {
                peer.get("/page", "page").await;
                peer.send(begun).await;
                match drips {
                    true => {
                        let (answer, took, _) = peer.drip(b'a').await;
                        (answer, took)
                    }
                    false => peer.rest().await,
                }
            })
            .await;
        if begun.is_empty() {
            assert_eq!(answer, "");
        } else {
            assert_late(&answer);
        }
        assert_due(took, HEAD);
    }
    assert_eq!((it.totals().handed_over, it.totals().bad_requests), (3, 2));
}

/// The reader of a payload is told that it does not arrive, and the peer that it took too long.
#[tokio::test(start_paused = true)]
async fn a_payload_that_takes_too_long_on_a_control_connection() {
    let it = Loop::new();
    for framing in ["Content-Length: 1000000", "Transfer-Encoding: chunked"] {
        let (answer, took, _) = it
            .serve(async |mut peer: Peer| {
                peer.send(format!("POST /echo HTTP/1.1\r\nHost: h\r\n{framing}\r\n\r\n")).await;
                // In a chunked payload, an extension of the first chunk arrives slowly, and may
                // have any length.
                peer.send("1;a=").await;
                peer.drip(b'1').await
            })
            .await;
        assert_late(&answer);
        assert_due(took, HEAD);
    }
    assert_eq!(it.totals().bad_requests, 2);
    // A payload that nobody reads is not waited for.
    let (answer, took) = it
        .serve(async |mut peer: Peer| {
            peer.send("POST /nothing HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n").await;
            peer.rest().await
        })
        .await;
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
    assert_due(took, Duration::ZERO);
}

/// A stream is asked for more only when its last pieces are taken.
#[tokio::test(start_paused = true)]
async fn never_ahead_of_a_slow_reader() {
    let it = Loop::new();
    let pulled = &it.0.handler.pulled;
    it.serve(async |mut peer: Peer| {
        peer.send("GET /media/endless HTTP/1.1\r\nHost: h\r\n\r\n").await;
        tokio::time::sleep(HEAD).await;
        // The last one is taken in part.
        let most = ROOM / CHUNK + 1;
        assert_eq!(pulled.get(), most);
        // The rest follows as it is read.
        peer.0.read_exact(&mut vec![0; 100 * CHUNK]).await.unwrap();
        assert!((100..=100 + most).contains(&pulled.get()), "{}", pulled.get());
    })
    .await;
}

/// A peer that reads all the time stays connected, however slow it is. Here there is no room for
/// another write for much longer than the time limit.
#[tokio::test(start_paused = true)]
async fn a_peer_that_is_slow() {
    let it = Loop::new();
    let stall = it.0.config.stall_timeout;
    let (mut near, mut far) = socket();
    // The kernel has something for the peer.
    let full = loop {
        if let Err(error) = near.write(&[0; 65_536]) {
            break error;
        }
    };
    assert_eq!(full.kind(), ErrorKind::WouldBlock);
    let tcp = TcpStream::from_std(near.try_clone().unwrap()).unwrap();
    let left = TcpStream::from_std(near).unwrap();
    let left = || unacknowledged(&left).unwrap();
    it.serve_over(tcp, async |mut peer: Peer| {
        peer.send("GET /media/endless HTTP/1.1\r\nHost: h\r\n\r\n").await;
        for _ in 0..8 {
            tokio::time::sleep(stall * 3 / 4).await;
            assert_eq!((it.totals().stalled, it.totals().open), (0, 1));
            // This blocks, so no time passes until the kernel sees that the peer has read.
            let before = left();
            while left() == before {
                assert!(far.read(&mut [0; 1024]).unwrap() > 0);
            }
        }
        // The kernel may see the last bytes in several steps.
        tokio::time::sleep(stall * 20).await;
        assert_eq!(it.totals().stalled, 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn short_regions_that_wait_keep_no_memory_of_their_window() {
    const COUNT: usize = 100;
    let it = Loop::new();
    let memory = it.store(COUNT, CHUNK);
    it.serve(async |mut peer: Peer| {
        peer.send("GET /media/region HTTP/1.1\r\nHost: h\r\n\r\n".repeat(COUNT)).await;
        tokio::time::sleep(STEP).await;
        let unsent = it.0.handler.regions.take().len();
        assert!((1..COUNT - ROOM / CHUNK).contains(&unsent), "{unsent}");
        assert_eq!((memory.budget().used(), it.totals().open), (0, 1));
    })
    .await;
}

/// A peer that takes a byte now and then has never stalled.
#[tokio::test(start_paused = true)]
async fn a_long_region_that_is_taken_too_slowly() {
    let it = Loop::new();
    let memory = it.store(1, 3 * ROOM);
    let limit = it.0.config.region_timeout;
    it.serve(async |mut peer: Peer| {
        peer.send("GET /media/region HTTP/1.1\r\nHost: h\r\n\r\n").await;
        let began = Instant::now();
        while it.totals().open == 1 {
            assert!(memory.budget().used() > 0 && began.elapsed() < limit * 2);
            tokio::time::sleep(it.0.config.stall_timeout / 2).await;
            peer.0.read_u8().await.unwrap();
        }
        assert!(began.elapsed() >= limit, "{:?}", began.elapsed());
    })
    .await;
    assert_eq!((memory.budget().used(), it.totals().stalled), (0, 1));
}
