use std::io;
use std::sync::MutexGuard;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tracing_subscriber::fmt::MakeWriter;

use super::*;

/// For how long a test waits for something that must happen.
const LIMIT: Duration = Duration::from_secs(60);

/// A server that gives every request the reply that it was told last.
#[derive(Clone)]
pub(in crate::access) struct Server {
    pub(in crate::access) url: String,
    state: Arc<State>,
}

struct State {
    reply: Mutex<Reply>,
    /// Each reply takes one, and returns it.
    gate: Semaphore,
    requests: Mutex<Vec<String>>,
    count: watch::Sender<usize>,
    /// How many connections ended while the server sent something that never ends.
    cut: watch::Sender<usize>,
}

#[derive(Clone)]
pub(in crate::access) struct Reply {
    bytes: Vec<u8>,
    then: Then,
}

/// What the server does after the bytes of a reply.
#[derive(Clone, Copy)]
pub(in crate::access) enum Then {
    /// Takes the next request.
    Again,
    Close,
    /// Leaves the connection open, and says no more.
    Hold,
    /// Sends so many bytes more, until the connection ends.
    Flood(u64),
}

impl Reply {
    pub(in crate::access) fn new(bytes: impl AsRef<[u8]>, then: Then) -> Self {
        Self { bytes: bytes.as_ref().to_vec(), then }
    }

    /// A whole answer.
    pub(in crate::access) fn of(status: &str, body: &str) -> Self {
        let length = body.len();
        let location = "Location: /elsewhere";
        let head = format!("HTTP/1.1 {status}\r\n{location}\r\nContent-Length: {length}\r\n\r\n");
        Self::new(head + body, Then::Again)
    }
}

impl Server {
    pub(in crate::access) async fn start(reply: Reply) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/asked?at=once", listener.local_addr().unwrap());
        let state = Arc::new(State {
            reply: Mutex::new(reply),
            gate: Semaphore::new(1_000),
            requests: Mutex::default(),
            count: watch::Sender::default(),
            cut: watch::Sender::default(),
        });
        let server = Self { url, state };
        let accepting = server.clone();
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let server = accepting.clone();
                tokio::spawn(async move { server.serve(socket).await });
            }
        });
        server
    }

    async fn serve(self, mut socket: TcpStream) -> io::Result<()> {
        loop {
            let request = read(&mut socket).await?;
            self.requests().push(request);
            self.state.count.send_modify(|count| *count += 1);
            let _turn = self.state.gate.acquire().await;
            let reply = self.state.reply.lock().unwrap().clone();
            socket.write_all(&reply.bytes).await?;
            match reply.then {
                Then::Again => {}
                Then::Close => return Ok(()),
                Then::Hold => return std::future::pending().await,
                Then::Flood(size) => {
                    let mut endless = tokio::io::repeat(b'x').take(size);
                    let _ = tokio::io::copy(&mut endless, &mut socket).await;
                    let _ = socket.read(&mut [0]).await;
                    self.state.cut.send_modify(|cut| *cut += 1);
                    return Ok(());
                }
            }
        }
    }

    pub(in crate::access) fn requests(&self) -> MutexGuard<'_, Vec<String>> {
        self.state.requests.lock().unwrap()
    }

    pub(in crate::access) fn tell(&self, reply: Reply) {
        *self.state.reply.lock().unwrap() = reply;
    }

    /// Holds all replies back that have not begun, until [`Server::open`].
    pub(in crate::access) fn shut(&self) {
        self.state.gate.forget_permits(1_000);
    }

    pub(in crate::access) fn open(&self) {
        self.state.gate.add_permits(1_000);
    }

    /// Waits until there were so many requests in all.
    pub(in crate::access) async fn until_asked(&self, count: usize) {
        reached(&self.state.count, count).await;
    }

    /// Waits until so many connections ended that never would have.
    pub(in crate::access) async fn until_cut(&self, count: usize) {
        reached(&self.state.cut, count).await;
    }
}

async fn reached(count: &watch::Sender<usize>, wanted: usize) {
    let mut count = count.subscribe();
    let waited = timeout(LIMIT, count.wait_for(|count| *count >= wanted)).await;
    waited.expect("it must happen in time").unwrap();
}

/// Reads a request, with the body that it says it has.
async fn read(socket: &mut TcpStream) -> io::Result<String> {
    let mut request = Vec::new();
    loop {
        if socket.read_buf(&mut request).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let text = String::from_utf8_lossy(&request);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
            return Ok(text.into_owned());
        }
    }
}

/// The URL of an address that refuses connections for as long as the socket is there.
pub(in crate::access) fn refusing() -> (TcpSocket, String) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}/", socket.local_addr().unwrap());
    (socket, url)
}

/// Moves the time of timers, which otherwise is that of the machine.
pub(in crate::access) async fn pass(time: Duration) {
    tokio::time::pause();
    // Timers fire a millisecond late at most.
    tokio::time::advance(time + Duration::from_millis(1)).await;
    tokio::time::resume();
}

/// All that this thread logs while the guard lives.
#[derive(Clone, Default)]
pub(in crate::access) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub(in crate::access) fn begin(level: tracing::Level) -> (Self, impl Drop) {
        let log = Self::default();
        let subscriber = tracing_subscriber::fmt().with_max_level(level).with_ansi(false);
        let guard = tracing::subscriber::set_default(subscriber.with_writer(log.clone()).finish());
        (log, guard)
    }

    pub(in crate::access) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

const REFRESH: Duration = Duration::from_secs(300);

/// A document that is a text and not `wrong`, and its server. Nothing is fetched yet.
async fn document(text: &str) -> (Server, Arc<Remote<String>>) {
    let parse = |body: &[u8]| match String::from_utf8_lossy(body).into_owned() {
        wrong if wrong == "wrong" => Err("it is wrong".to_owned()),
        text => Ok(text),
    };
    let server = Server::start(Reply::of("200 OK", text)).await;
    let remote = Remote::new(&server.url, REFRESH, parse).unwrap();
    (server, remote)
}

/// Waits for the end of the fetch that asked the server this many times in all.
async fn fetched(server: &Server, remote: &Remote<String>, count: usize) {
    server.until_asked(count).await;
    let mut under_way = remote.under_way.subscribe();
    timeout(LIMIT, under_way.wait_for(|is| !is)).await.unwrap().unwrap();
}

fn text(remote: &Remote<String>) -> Option<String> {
    remote.get().map(|text| text.as_str().to_owned())
}

#[tokio::test]
async fn a_document_is_fetched_again_and_again() {
    let (server, remote) = document("one").await;
    assert_eq!(text(&remote), None);
    let keeping = tokio::spawn(Arc::clone(&remote).keep_fresh());
    fetched(&server, &remote, 1).await;
    assert_eq!(text(&remote).as_deref(), Some("one"));
    for (count, new) in [(2, "two"), (3, "three")] {
        server.tell(Reply::of("200 OK", new));
        pass(REFRESH).await;
        fetched(&server, &remote, count).await;
        assert_eq!(text(&remote).as_deref(), Some(new));
    }
    let requests = server.requests();
    assert!(requests.iter().all(|asked| asked.starts_with("GET /asked?at=once HTTP/1.1\r\n")));
    keeping.abort();
}

#[tokio::test]
async fn what_cannot_be_read_leaves_the_old_document() {
    let (log, _logged) = Log::begin(tracing::Level::INFO);
    let (server, remote) = document("one").await;
    tokio::spawn(Arc::clone(&remote).keep_fresh());
    fetched(&server, &remote, 1).await;
    let ok = |rest: &str| format!("HTTP/1.1 200 OK\r\n{rest}");
    let endless = "Transfer-Encoding: chunked\r\n\r\nffffffff\r\n";
    let bad = [
        Reply::of("500 Internal Server Error", "two"),
        Reply::of("302 Found", "two"),
        Reply::of("404 Not Found", "two"),
        Reply::of("200 OK", "wrong"),
        Reply::of("200 OK", &"x".repeat(LONGEST + 1)),
        Reply::new(ok(endless), Then::Flood(u64::MAX)),
        Reply::new(ok("Content-Length: 10000000\r\n\r\n"), Then::Flood(10_000_000)),
        Reply::new(ok("Content-Length: 9\r\n\r\ntwo"), Then::Close),
        Reply::new(ok("Transfer-Encoding: chunked\r\n\r\ntwo\r\n"), Then::Hold),
        Reply::new("SSH-2.0-OpenSSH_9.2\r\n\r\n", Then::Hold),
        Reply::new("", Then::Close),
    ];
    // A machine that stands still may see more fetches than one for each of these.
    let next = |reply| {
        server.tell(reply);
        server.requests().len() + 1
    };
    for (index, reply) in bad.into_iter().enumerate() {
        let count = next(reply);
        pass(REFRESH).await;
        fetched(&server, &remote, count).await;
        assert_eq!(text(&remote).as_deref(), Some("one"), "{index}");
    }
    // Half of a document, and then time passes.
    let count = next(Reply::new(ok("Content-Length: 9\r\n\r\ntwo"), Then::Hold));
    pass(REFRESH).await;
    server.until_asked(count).await;
    pass(PATIENCE).await;
    fetched(&server, &remote, count).await;
    assert_eq!(text(&remote).as_deref(), Some("one"));
    server.until_cut(2).await;

    let count = next(Reply::of("200 OK", "two"));
    pass(REFRESH).await;
    fetched(&server, &remote, count).await;
    assert_eq!(text(&remote).as_deref(), Some("two"));
    let log = log.text();
    let said = |what: &str| log.lines().filter(|line| line.contains(what)).count();
    assert_eq!((said("WARN"), said("INFO"), log.lines().count()), (1, 1, 2), "{log}");
    assert!(log.contains("500") && log.contains("failures="), "{log}");
    assert!(log.contains("/asked") && !log.contains("at=once"), "{log}");
}

#[tokio::test]
async fn whoever_misses_something_has_it_fetched_but_seldom() {
    let (server, remote) = document("one").await;
    // The first fetch is about to begin, so nobody has to ask for one.
    tokio::join!(remote.fetch_again(), async {
        tokio::spawn(Arc::clone(&remote).keep_fresh());
    });
    fetched(&server, &remote, 1).await;
    server.tell(Reply::of("200 OK", "two"));
    tokio::join!(remote.fetch_again(), remote.fetch_again(), remote.fetch_again());
    fetched(&server, &remote, 2).await;
    assert_eq!(text(&remote).as_deref(), Some("two"));
    for _ in 0..100 {
        remote.fetch_again().await;
    }
    pass(APART).await;
    remote.fetch_again().await;
    fetched(&server, &remote, 3).await;
    // None of the hundred had it fetched.
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn nobody_waits_for_long_and_the_fetch_goes_on() {
    let (server, remote) = document("one").await;
    tokio::spawn(Arc::clone(&remote).keep_fresh());
    fetched(&server, &remote, 1).await;
    server.shut();
    server.tell(Reply::of("200 OK", "two"));
    tokio::join!(remote.fetch_again(), async {
        server.until_asked(2).await;
        pass(WAIT).await;
    });
    assert_eq!(text(&remote).as_deref(), Some("one"));
    server.open();
    fetched(&server, &remote, 2).await;
    assert_eq!(text(&remote).as_deref(), Some("two"));
}

#[test]
fn pauses_grow() {
    let seconds = |failures, refresh| pause_after(failures, Duration::from_secs(refresh)).as_secs();
    let pauses = [1, 2, 3, 7, 100, u32::MAX].map(|failures| seconds(failures, 300));
    assert_eq!(pauses, [1, 2, 4, 60, 60, 60]);
    assert_eq!([4, 5].map(|failures| seconds(failures, 10)), [8, 10]);
    assert_eq!(seconds(1, 0), 1);
}

#[test]
fn other_urls_are_not_asked() {
    for url in ["", "keys.json", "/keys.json", "ftp://a.example/", "file:///keys.json", "http://"] {
        let error = client::new(url, &[]).map(|_| ()).unwrap_err();
        assert!(matches!(error, Unusable::Url), "{url}: {error}");
    }
    for url in ["http://a.example", "http://user:password@a.example/", "http://[::1]:81/?a=b"] {
        client::new(url, &[]).unwrap();
    }
}
