//! A proxy between the origin and the store.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use testkit::eventually;
use testkit::http::Client;

/// How long the store has to answer the proxy, on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// A request that passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) range: Option<String>,
}

impl Asked {
    /// Whether it asked for bytes of an object.
    pub(crate) fn is_for_bytes(&self) -> bool {
        self.method == "GET" && self.range.is_some()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Open,
    /// Requests for bytes wait.
    Held,
    /// All requests wait, until so many since the start may pass.
    Stepped(usize),
    /// All connections are closed.
    Away,
}

#[derive(Debug)]
struct Shared {
    store: SocketAddr,
    mode: Mutex<Mode>,
    changed: Condvar,
    asked: Mutex<Vec<Asked>>,
    /// Requests since the start.
    count: AtomicUsize,
    /// Connections that are open.
    open: AtomicUsize,
}

/// The proxy. Dropping it does not end its threads; the process does.
#[derive(Debug, Clone)]
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    /// The bucket that is asked for through it.
    pub(crate) bucket: String,
    shared: Arc<Shared>,
}

impl Proxy {
    pub(crate) fn before(store: SocketAddr, bucket: &str) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (mode, asked) = (Mutex::new(Mode::Open), Mutex::default());
        let (changed, count, open) = (Condvar::new(), AtomicUsize::new(0), AtomicUsize::new(0));
        let shared = Arc::new(Shared { store, mode, changed, asked, count, open });
        let (bucket, kept) = (bucket.to_owned(), Arc::clone(&shared));
        let proxy = Self { address, bucket, shared: kept };
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let shared = Arc::clone(&shared);
                shared.open.fetch_add(1, Ordering::Relaxed);
                // A connection that ends ends its thread.
                std::thread::spawn(move || {
                    let ended = connection.ok().and_then(|connection| serve(&shared, connection));
                    shared.open.fetch_sub(1, Ordering::Relaxed);
                    ended
                });
            }
        });
        proxy
    }

    /// Waits until all requests of an origin that has ended have come: its last ones may still be on their way.
    pub(crate) fn until_left(&self) {
        eventually(LIMIT, "the origin's connections end", || {
            self.shared.open.load(Ordering::Relaxed) == 0
        });
    }

    /// What was asked since the last call.
    pub(crate) fn take(&self) -> Vec<Asked> {
        std::mem::take(&mut self.shared.asked.lock().unwrap())
    }

    /// What was asked so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.shared.asked.lock().unwrap().clone()
    }

    pub(crate) fn open(&self) {
        self.set(Mode::Open);
    }

    /// Lets requests for bytes wait.
    pub(crate) fn hold(&self) {
        self.set(Mode::Held);
    }

    /// Lets all requests wait, until [`round`](Self::round) lets them pass.
    pub(crate) fn step(&self) {
        self.set(Mode::Stepped(self.shared.count.load(Ordering::Relaxed)));
    }

    /// Waits until so many requests wait at the same time, and lets these pass.
    pub(crate) fn round(&self, requests: usize) {
        let Mode::Stepped(before) = *self.shared.mode.lock().unwrap() else { unreachable!() };
        let came = || self.shared.count.load(Ordering::Relaxed) - before;
        eventually(LIMIT, "the requests of a round wait", || came() >= requests);
        assert_eq!(came(), requests, "{:?}", self.asked());
        self.set(Mode::Stepped(before + requests));
    }

    /// Lets the store go away.
    pub(crate) fn close(&self) {
        self.set(Mode::Away);
    }

    fn set(&self, mode: Mode) {
        *self.shared.mode.lock().unwrap() = mode;
        self.shared.changed.notify_all();
    }
}

/// Serves one connection of the origin. `None` when it ends.
fn serve(shared: &Shared, mut origin: TcpStream) -> Option<()> {
    loop {
        let head = head(&mut origin)?;
        let (asked, headers) = parse(&head)?;
        let mut mode = shared.mode.lock().unwrap();
        if *mode == Mode::Away {
            return None;
        }
        shared.asked.lock().unwrap().push(asked.clone());
        let before = shared.count.fetch_add(1, Ordering::Relaxed);
        let waits = |mode: &mut Mode| match *mode {
            Mode::Held => asked.is_for_bytes(),
            Mode::Stepped(passed) => before >= passed,
            Mode::Open | Mode::Away => false,
        };
        mode = shared.changed.wait_while(mode, waits).unwrap();
        drop(mode);
        let headers: Vec<_> = headers.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        let mut store = Client::connect(shared.store, LIMIT).ok()?;
        store.send(&asked.method, &asked.target, &headers, b"").ok()?;
        let answer = store.receive().ok()?;
        let mut out = format!("HTTP/1.1 {} OK\r\n", answer.status()).into_bytes();
        for name in ["content-type", "etag", "last-modified", "content-range"] {
            if let Some(value) = answer.header(name) {
                out.extend(format!("{name}: {value}\r\n").bytes());
            }
        }
        let length = match asked.method.as_str() {
            "HEAD" => answer.header("content-length").unwrap_or("0").to_owned(),
            _ => answer.body.len().to_string(),
        };
        out.extend(format!("content-length: {length}\r\n\r\n").bytes());
        out.extend(&answer.body);
        origin.write_all(&out).ok()?;
    }
}

/// Reads a request's head. Requests here have no body.
fn head(origin: &mut TcpStream) -> Option<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        origin.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    String::from_utf8(head).ok()
}

fn parse(head: &str) -> Option<(Asked, Vec<(String, String)>)> {
    let (line, rest) = head.split_once("\r\n")?;
    let mut words = line.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let headers: Vec<(String, String)> = rest
        .lines()
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let range = headers.iter().find(|(name, _)| name == "range").map(|(_, value)| value.clone());
    let is_passed = |name: &str| {
        matches!(name, "range" | "if-match" | "authorization") || name.starts_with("x-amz-")
    };
    let passed = headers.into_iter().filter(|(name, _)| is_passed(name));
    Some((Asked { method, target, range }, passed.collect()))
}
