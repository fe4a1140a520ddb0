//! A server in this process. The tests know all answers of its handler.

use std::cell::Cell;
use std::future::poll_fn;
use std::io::{self, IoSlice, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::{get, post};
use bytes::Bytes;
use http::net::{Drain, Worker};
use http::{
    Body, BodyStream, Config, Counters, Handler, Piece, Request, Response, Server, Totals,
    Upgraded, Validators,
};
use testkit::http::Client;
use tokio::sync::oneshot;
use tokio::task::spawn_local;

/// The longest wait in these tests.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Events inside the handler.
#[derive(Default)]
pub(crate) struct Seen {
    /// Requests that were dropped before their answer, because the peer left.
    pub(crate) abandoned: AtomicUsize,
    /// How many pieces were pulled from streams.
    pub(crate) pulled: AtomicUsize,
    /// While a test holds this lock, a worker that is asked to wait for it is blocked.
    pub(crate) hold: Mutex<()>,
}

/// A server that drains when dropped.
pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    pub(crate) seen: Arc<Seen>,
    counters: Arc<Counters>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

/// One worker, and time limits that no test reaches by accident.
pub(crate) fn config() -> Config {
    Config {
        workers: NonZeroUsize::MIN,
        head_timeout: LIMIT,
        idle_timeout: LIMIT,
        stall_timeout: LIMIT,
        grace: Duration::from_secs(5),
        ..Config::default()
    }
}

impl Origin {
    pub(crate) fn start() -> Self {
        Self::with(config())
    }

    pub(crate) fn with(config: Config) -> Self {
        let server = Server::bind((Ipv4Addr::LOCALHOST, 0).into(), config).expect("port 0 is free");
        let (address, counters) = (server.address(), server.counters());
        let (stop, stopped) = oneshot::channel::<()>();
        let seen = Arc::new(Seen::default());
        let handler = {
            let seen = Arc::clone(&seen);
            move |worker: Worker| Fixture {
                seen: Arc::clone(&seen),
                drain: worker.drain,
                // Checks that a handler may stay on its thread.
                requests: Rc::default(),
            }
        };
        let serve = async move {
            let stopped = async { drop(stopped.await) };
            server.run(handler, router(), stopped).await
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let thread = std::thread::spawn(move || runtime.block_on(serve));
        Self { address, seen, counters, stop: Some(stop), thread: Some(thread) }
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.address, LIMIT).expect("the server accepts")
    }

    pub(crate) fn totals(&self) -> Totals {
        self.counters.totals()
    }

    /// Begins to drain.
    pub(crate) fn stop(&mut self) {
        drop(self.stop.take());
    }

    /// Waits for the end of draining. Returns how long it took.
    pub(crate) fn join(&mut self) -> Duration {
        // The server may begin to drain before `stop` returns.
        let start = Instant::now();
        self.stop();
        let thread = self.thread.take().expect("joined once");
        thread.join().expect("no panic").expect("an orderly end");
        start.elapsed()
    }

    /// Sends bytes, closes the sending half, and returns all bytes until the server closes.
    pub(crate) fn raw(&self, bytes: &[u8]) -> String {
        let mut socket = TcpStream::connect(self.address).expect("the server accepts");
        socket.set_read_timeout(Some(LIMIT)).expect("a socket option");
        socket.write_all(bytes).expect("the server reads");
        socket.shutdown(std::net::Shutdown::Write).expect("still connected");
        read_all(&mut socket)
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        if self.thread.is_some() && !std::thread::panicking() {
            self.join();
        }
    }
}

/// All bytes until the connection is closed.
pub(crate) fn read_all(socket: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).expect("closed in order, in time");
    String::from_utf8(answer).expect("text")
}

/// The status codes of a sequence of answers.
pub(crate) fn statuses(answers: &str) -> Vec<&str> {
    answers.split("HTTP/1.1 ").skip(1).map(|answer| &answer[..3]).collect()
}

#[derive(Clone)]
struct Fixture {
    seen: Arc<Seen>,
    drain: Drain,
    requests: Rc<Cell<u64>>,
}

impl Handler for Fixture {
    fn accepts(&self, request: &Request) -> bool {
        request.path().starts_with("/media/")
    }

    fn posts(&self, request: &Request) -> bool {
        request.path() == "/media/post"
    }

    async fn handle(&self, request: Request) -> Response {
        self.requests.set(self.requests.get() + 1);
        let mut segments = request.segments().skip(1);
        let action = segments.next().unwrap_or_default();
        let mut number = || segments.next().and_then(|n| n.parse::<usize>().ok()).unwrap_or(0);
        match action {
            "post" => Response::new(200).body(Bytes::copy_from_slice(request.content())),
            "hello" => Response::new(200).header("Content-Type", "text/plain").body("hello"),
            "echo" => {
                let pairs: Vec<_> =
                    request.query_pairs().map(|(name, value)| format!("{name}={value}")).collect();
                let (path, host) = (request.path(), request.host().unwrap_or("none"));
                Response::new(200).body(format!("{path} {host} {}", pairs.join(" ")))
            }
            // A given number of bytes, in pieces of 1,000, and in ranges if requested.
            "bytes" => {
                let all = pattern(number());
                let validators = Validators { etag: Some("v1"), modified: None };
                let representation = http::Representation {
                    length: all.len() as u64,
                    content_type: "video/mp4",
                    cache_control: "max-age=60",
                    validators,
                    fields: None,
                };
                representation.respond(&request, |range| {
                    let part = all.slice(range.start as usize..range.end as usize);
                    let pieces = part.chunks(1000).map(|piece| part.slice_ref(piece).into());
                    pieces.collect()
                })
            }
            // An answer that is never made.
            "wait" => {
                struct Abandoned(Arc<Seen>);
                impl Drop for Abandoned {
                    fn drop(&mut self) {
                        self.0.abandoned.fetch_add(1, Ordering::Release);
                    }
                }
                let _abandoned = Abandoned(Arc::clone(&self.seen));
                std::future::pending().await
            }
            // An answer that is made when the server drains.
            "late" => {
                self.drain.begun().await;
                Response::new(200).body("late")
            }
            // A given number of chunks of a given size.
            "stream" => {
                let (count, size) = (number(), number());
                self.streaming(Chunks::Finite(count), size)
            }
            "endless" => self.streaming(Chunks::Endless, number()),
            "waiting" => self.streaming(Chunks::Waiting, 0),
            "broken" => self.streaming(Chunks::Broken(3), 10),
            "switch" => {
                let switched = Response::switching(|upgraded| drop(spawn_local(echo(upgraded))));
                switched.header("Upgrade", "echo").header("Connection", "Upgrade")
            }
            "interim" => Response::new(100),
            "none" => Response::new(204),
            "hold" => {
                drop(self.seen.hold.lock());
                Response::new(204)
            }
            // How many requests there have been so far.
            "count" => Response::new(200).body(self.requests.get().to_string()),
            _ => Response::text(404, "no such thing"),
        }
    }
}

impl Fixture {
    fn streaming(&self, chunks: Chunks, size: usize) -> Response {
        let stream = Streaming { chunks, chunk: pattern(size), seen: Arc::clone(&self.seen) };
        Response::new(200).body(Body::Stream(Box::new(stream)))
    }
}

/// The protocol of an upgraded connection: sends back all bytes, to the end.
async fn echo(upgraded: Upgraded) {
    let Upgraded { transport, input, held: _held, .. } = upgraded;
    let send = |bytes: &[u8]| {
        let sent = transport.try_write_vectored(&[IoSlice::new(bytes)]).expect("a short one");
        assert_eq!(sent, bytes.len());
    };
    send(&input);
    let mut buffer = [0; 100];
    loop {
        poll_fn(|cx| transport.poll_read_ready(cx)).await.expect("connected");
        match transport.try_read(&mut buffer) {
            Ok(0) => return,
            Ok(read) => send(&buffer[..read]),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
    }
}

/// Bytes whose pattern differs at nearby positions.
pub(crate) fn pattern(size: usize) -> Bytes {
    let unit: Vec<u8> = (0..251).collect();
    Bytes::from(unit.repeat(size / unit.len() + 1)).slice(..size)
}

enum Chunks {
    Finite(usize),
    /// Always ready, until it is told to drain.
    Endless,
    /// Never ready, until it is told to drain.
    Waiting,
    /// Fails after this many chunks.
    Broken(usize),
    Ended,
}

struct Streaming {
    chunks: Chunks,
    chunk: Bytes,
    seen: Arc<Seen>,
}

impl BodyStream for Streaming {
    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Option<io::Result<Vec<Piece>>>> {
        match &mut self.chunks {
            Chunks::Ended | Chunks::Finite(0) => return Poll::Ready(None),
            Chunks::Broken(0) => return Poll::Ready(Some(Err(io::ErrorKind::Other.into()))),
            Chunks::Waiting => return Poll::Pending,
            Chunks::Finite(left) | Chunks::Broken(left) => *left -= 1,
            Chunks::Endless => {}
        }
        self.seen.pulled.fetch_add(1, Ordering::Release);
        // In two pieces, and an empty one.
        let (a, b) = (self.chunk.len() / 3, self.chunk.len());
        Poll::Ready(Some(Ok(vec![
            self.chunk.slice(..a).into(),
            Bytes::new().into(),
            self.chunk.slice(a..b).into(),
        ])))
    }

    fn drain(&mut self) {
        if !matches!(self.chunks, Chunks::Finite(_)) {
            self.chunks = Chunks::Ended;
        }
    }
}

fn router() -> Router {
    let who = |ConnectInfo(peer): ConnectInfo<SocketAddr>| async move { peer.to_string() };
    Router::new()
        .route("/page", get(|| async { "page" }))
        .route("/who", get(who))
        .route("/echo", post(|body: Bytes| async move { body }))
        .route("/panic", get(async || -> &'static str { panic!("on purpose") }))
}
