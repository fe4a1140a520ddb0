//! A small blocking HTTP/1.1 client that hides nothing. Tests see heads as they were sent, bodies
//! as they arrive, and every violation of RFC 9112 as an error.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::uninterrupted;

/// How long [`get`] waits for a complete answer.
const LIMIT: Duration = Duration::from_secs(60);

/// The longest head, chunk-size line or trailer section, in bytes.
const LONGEST_HEAD: u64 = 64 << 10;

/// Status line and header fields of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Status code, such as 206.
    pub status: u16,
    /// Header fields as sent, in order; see [`Head::header`].
    pub headers: Vec<(String, String)>,
}

/// A complete answer.
#[derive(Clone, PartialEq, Eq)]
pub struct Response {
    /// Status and header fields.
    pub head: Head,
    /// The body, without its transfer coding.
    pub body: Vec<u8>,
}

impl Head {
    /// The value of the only field with that name, which is case-insensitive.
    ///
    /// # Panics
    /// There are several such fields.
    #[track_caller]
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name));
        let (_, value) = found.next()?;
        assert!(found.next().is_none(), "several {name}: {:?}", self.headers);
        Some(value)
    }
}

impl Response {
    /// Status code, such as 206.
    pub fn status(&self) -> u16 {
        self.head.status
    }

    /// The value of the only field with that name; see [`Head::header`].
    #[track_caller]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.header(name)
    }

    /// The value of a counter or gauge, where this is an answer of `/metrics`. `name` has the
    /// labels, if any: `headwater_viewers{stream="live/x",delivery="push"}`.
    ///
    /// # Panics
    /// The value is not a whole number.
    #[track_caller]
    pub fn metric(&self, name: &str) -> Option<u64> {
        let mut lines = self.text().lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        Some(value.parse().unwrap_or_else(|error| panic!("{name} {value}: {error}")))
    }

    /// The body as text.
    ///
    /// # Panics
    /// It is not UTF-8.
    #[track_caller]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("a text body is UTF-8")
    }
}

impl std::fmt::Debug for Response {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = &self.body[..self.body.len().min(2000)];
        f.debug_struct("Response")
            .field("head", &self.head)
            .field("body", &String::from_utf8_lossy(shown))
            .field("length", &self.body.len())
            .finish()
    }
}

/// Sends a GET for a path on a new connection.
///
/// # Panics
/// There is no complete and correct answer in a minute.
#[track_caller]
pub fn get(address: SocketAddr, path: &str) -> Response {
    get_with(address, path, &[])
}

/// Like [`get`], with additional header fields.
///
/// # Panics
/// There is no complete and correct answer in a minute.
#[track_caller]
pub fn get_with(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Response {
    let ask = || {
        let mut client = Client::connect(address, LIMIT)?;
        client.send("GET", path, headers, b"")?;
        client.receive()
    };
    ask().unwrap_or_else(|error| panic!("GET http://{address}{path}: {error}"))
}

/// Calls `ask`, which requests `/metrics`, until the answer was rendered after this call began. A
/// server renders its metrics once a second, so an older answer does not show what the test has
/// just caused.
///
/// # Panics
/// There is no such answer in a minute.
#[track_caller]
pub fn current_metrics(mut ask: impl FnMut() -> Response) -> Response {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let deadline = Instant::now() + LIMIT;
    loop {
        let answer = ask();
        let mut lines = answer.text().lines();
        let rendered = lines.find_map(|line| line.strip_prefix("headwater_time_seconds "));
        if rendered.and_then(|time| time.parse().ok()).is_some_and(|at: f64| at >= now) {
            return answer;
        }
        assert!(Instant::now() < deadline, "no metrics since {now}: {answer:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A kept-alive connection. Requests may be pipelined; answers arrive in their order.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<Timed>,
    /// For each unanswered request, whether it was a HEAD.
    awaited: std::collections::VecDeque<bool>,
}

/// A socket whose reads share one deadline.
#[derive(Debug)]
struct Timed {
    socket: TcpStream,
    limit: Duration,
    deadline: Instant,
}

impl Read for Timed {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        self.socket.set_read_timeout(Some(left))?;
        uninterrupted(|| self.socket.read(into)).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => ErrorKind::TimedOut.into(),
            _ => error,
        })
    }
}

impl Client {
    /// Connects. `limit` is the time limit for connecting, for sending, and for each answer.
    ///
    /// # Errors
    /// The server does not answer, or not in time.
    pub fn connect(address: SocketAddr, limit: Duration) -> io::Result<Self> {
        let socket = TcpStream::connect_timeout(&address, limit)?;
        Self::over(socket, limit)
    }

    /// Uses a socket that is already connected.
    ///
    /// # Errors
    /// The socket's options cannot be set.
    pub fn over(socket: TcpStream, limit: Duration) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        socket.set_write_timeout(Some(limit))?;
        let deadline = Instant::now() + limit;
        Ok(Self {
            stream: BufReader::new(Timed { socket, limit, deadline }),
            awaited: std::collections::VecDeque::new(),
        })
    }

    /// Sends a request. It adds Host, and Content-Length where there is a body.
    ///
    /// # Errors
    /// The peer has gone, or takes no bytes.
    pub fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<()> {
        let peer = self.stream.get_ref().socket.peer_addr()?;
        let mut request = format!("{method} {path} HTTP/1.1\r\nHost: {peer}\r\n");
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        if !body.is_empty() {
            request.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        request.push_str("\r\n");
        let mut bytes = request.into_bytes();
        bytes.extend_from_slice(body);
        self.awaited.push_back(method == "HEAD");
        self.send_raw(&bytes)
    }

    /// Sends bytes unchanged: half a request, several, or none.
    ///
    /// # Errors
    /// The peer has gone, or takes no bytes.
    pub fn send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().socket.write_all(bytes)
    }

    /// Sends a request, and reads the answer.
    ///
    /// # Panics
    /// There is no complete and correct answer in time.
    #[track_caller]
    pub fn ask(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Response {
        let answer = self.send(method, path, headers, body).and_then(|()| self.receive());
        answer.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// Sends a GET, and reads the answer.
    ///
    /// # Panics
    /// There is no complete and correct answer in time.
    #[track_caller]
    pub fn get(&mut self, path: &str, headers: &[(&str, &str)]) -> Response {
        self.ask("GET", path, headers, b"")
    }

    /// Reads a complete answer.
    ///
    /// # Errors
    /// `TimedOut` when the answer is not complete in time, `UnexpectedEof` when the connection ends
    /// before that, `InvalidData` when the answer is not correct HTTP.
    pub fn receive(&mut self) -> io::Result<Response> {
        let (head, mut body) = self.begin()?;
        let mut bytes = Vec::new();
        body.read_to_end(&mut bytes)?;
        Ok(Response { head, body: bytes })
    }

    /// Reads an answer's head, and returns its body to be read as it arrives. The time limit starts
    /// again here.
    ///
    /// # Errors
    /// The same as those of [`Client::receive`].
    pub fn begin(&mut self) -> io::Result<(Head, Body<'_>)> {
        let timed = self.stream.get_mut();
        timed.deadline = Instant::now() + timed.limit;
        let is_head = self.awaited.pop_front().unwrap_or(false);
        let head = loop {
            let head = read_head(&mut self.stream)?;
            // 100 and 103 precede the answer; 101 is an answer.
            if !(100..200).contains(&head.status) || head.status == 101 {
                break head;
            }
        };
        let framing = if is_head || matches!(head.status, 101 | 204 | 304) {
            Framing::Length(0)
        } else {
            framing(&head)?
        };
        Ok((head, Body { stream: &mut self.stream, framing }))
    }

    /// Whether the peer closes the connection within `limit`. Bytes it sends before that are
    /// dropped.
    pub fn is_closed_within(&mut self, limit: Duration) -> bool {
        self.stream.get_mut().deadline = Instant::now() + limit;
        match io::copy(&mut self.stream, &mut io::sink()) {
            Ok(_) => true,
            Err(error) => error.kind() != ErrorKind::TimedOut,
        }
    }

    /// The socket, and bytes already read beyond the last answer: for use after a 101.
    pub fn into_parts(self) -> (TcpStream, Vec<u8>) {
        let read_ahead = self.stream.buffer().to_vec();
        (self.stream.into_inner().socket, read_ahead)
    }
}

/// The body of an answer, without its transfer coding. Reading returns 0 bytes at its end, and an
/// error where it breaks off.
#[derive(Debug)]
pub struct Body<'a> {
    stream: &'a mut BufReader<Timed>,
    framing: Framing,
}

#[derive(Debug, Clone, Copy)]
enum Framing {
    /// This many bytes are left.
    Length(u64),
    /// Chunked: this many bytes of the current chunk are left, and whether it is the first one.
    Chunked { left: u64, first: bool },
    /// Until the connection closes.
    Close,
}

impl Read for Body<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        if let Framing::Chunked { left: 0, first } = self.framing {
            if !first {
                expect_line_end(self.stream)?;
            }
            let size = read_chunk_size(self.stream)?;
            if size == 0 {
                // Any trailer fields, and the empty line that ends them.
                while !read_line(self.stream)?.is_empty() {}
                self.framing = Framing::Length(0);
            } else {
                self.framing = Framing::Chunked { left: size, first: false };
            }
        }
        let most = match self.framing {
            Framing::Length(left) | Framing::Chunked { left, .. } => left,
            Framing::Close => u64::MAX,
        };
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(into.len());
        if most == 0 {
            return Ok(0);
        }
        let read = self.stream.read(&mut into[..most])?;
        match &mut self.framing {
            Framing::Length(left) | Framing::Chunked { left, .. } => {
                if read == 0 {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                *left -= read as u64;
            }
            Framing::Close => {}
        }
        Ok(read)
    }
}

/// Determines how a body is delimited: RFC 9112, 6.3.
fn framing(head: &Head) -> io::Result<Framing> {
    if let Some(coding) = head.header("Transfer-Encoding") {
        if !coding.eq_ignore_ascii_case("chunked") {
            return Err(invalid(format!("transfer coding {coding:?}")));
        }
        if head.header("Content-Length").is_some() {
            return Err(invalid("both Transfer-Encoding and Content-Length"));
        }
        return Ok(Framing::Chunked { left: 0, first: true });
    }
    match head.header("Content-Length") {
        Some(length) => number(length, 10).map(Framing::Length),
        None => Ok(Framing::Close),
    }
}

fn read_head(from: &mut impl BufRead) -> io::Result<Head> {
    let status_line = read_line(from)?;
    let status = status_line
        .strip_prefix("HTTP/1.1 ")
        .and_then(|rest| {
            rest.get(..3).filter(|_| matches!(rest.as_bytes().get(3), None | Some(b' ')))
        })
        .ok_or_else(|| invalid(format!("status line {status_line:?}")))?;
    let status = u16::try_from(number(status, 10)?).expect("three digits");
    let mut headers = Vec::new();
    let mut length = status_line.len() as u64;
    loop {
        let line = read_line(from)?;
        length += line.len() as u64;
        if length > LONGEST_HEAD {
            return Err(invalid("a head without an end"));
        }
        if line.is_empty() {
            return Ok(Head { status, headers });
        }
        let (name, value) = line
            .split_once(':')
            .filter(|(name, _)| !name.is_empty() && !name.contains([' ', '\t']))
            .ok_or_else(|| invalid(format!("header field {line:?}")))?;
        headers.push((name.to_owned(), value.trim_matches([' ', '\t']).to_owned()));
    }
}

/// Reads a line without its end, which must be CR LF.
fn read_line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    from.take(LONGEST_HEAD).read_until(b'\n', &mut line)?;
    if !line.ends_with(b"\n") && (line.len() as u64) < LONGEST_HEAD {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    let Some(line) = line.strip_suffix(b"\r\n") else {
        return Err(invalid(format!("line end of {:?}", String::from_utf8_lossy(&line))));
    };
    String::from_utf8(line.to_vec()).map_err(|_| invalid("a head that is not UTF-8"))
}

fn read_chunk_size(from: &mut impl BufRead) -> io::Result<u64> {
    let line = read_line(from)?;
    number(line.split(';').next().unwrap_or_default().trim_end(), 16)
}

fn expect_line_end(from: &mut impl BufRead) -> io::Result<()> {
    if read_line(from)?.is_empty() { Ok(()) } else { Err(invalid("a chunk longer than its size")) }
}

fn number(text: &str, radix: u32) -> io::Result<u64> {
    // from_str_radix alone would accept a sign.
    if text.starts_with('+') {
        return Err(invalid(format!("number {text:?}")));
    }
    u64::from_str_radix(text, radix).map_err(|_| invalid(format!("number {text:?}")))
}

fn invalid(what: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what.into())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// How long a test waits for bytes that never come. If Linux does not run the test for so long, bytes that came seem to
    /// be late.
    const STALL: Duration = Duration::from_secs(3);

    /// A client whose peer has sent `answer`, and closed the connection if `close` is set.
    fn answered(answer: &'static [u8], close: bool) -> (Client, Option<TcpStream>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let peer = thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            socket.write_all(answer).unwrap();
            (!close).then_some(socket)
        });
        let client = Client::connect(address, Duration::from_secs(60)).unwrap();
        (client, peer.join().unwrap())
    }

    fn failure(answer: &'static [u8], close: bool, limit: Duration) -> ErrorKind {
        let (mut client, _peer) = answered(answer, close);
        client.stream.get_mut().limit = limit;
        client.receive().expect_err("not a whole answer").kind()
    }

    #[test]
    fn bodies_are_read_whatever_their_framing() {
        for (answer, close) in [
            (&b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"[..], false),
            (b"HTTP/1.1 200\r\ncontent-length:5\r\n\r\nhello", false),
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                  4\r\nhell\r\n1;a=b\r\no\r\n0\r\nT: x\r\n\r\n",
                false,
            ),
            (b"HTTP/1.1 200 OK\r\n\r\nhello", true),
            (
                b"HTTP/1.1 103 E\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
                false,
            ),
        ] {
            let (mut client, _peer) = answered(answer, close);
            let response = client.receive().unwrap();
            assert_eq!((response.status(), response.text()), (200, "hello"));
        }
    }

    #[test]
    fn answers_follow_each_other_on_one_connection() {
        let (mut client, _peer) = answered(
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n\
              HTTP/1.1 304 N\r\nETag: \"x\"\r\n\r\n\
              HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na",
            false,
        );
        client.send("HEAD", "/", &[], b"").unwrap();
        client.send("GET", "/", &[("If-None-Match", "\"x\"")], b"").unwrap();
        assert_eq!(client.get("/", &[]).body, b"");
        let second = client.receive().unwrap();
        assert_eq!((second.status(), second.header("etag")), (304, Some("\"x\"")));
        assert_eq!(client.receive().unwrap().body, b"a");
    }

    #[test]
    fn an_endless_body_is_read_as_it_comes() {
        let (mut client, _peer) =
            answered(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", false);
        client.stream.get_mut().limit = STALL;
        let (head, mut body) = client.begin().unwrap();
        assert_eq!(head.status, 200);
        let mut three = [0; 3];
        body.read_exact(&mut three).unwrap();
        assert_eq!(&three, b"abc");
        assert_eq!(body.read(&mut three).unwrap_err().kind(), ErrorKind::TimedOut);
    }

    #[test]
    fn broken_stalled_and_wrong_responses_are_errors_of_their_kind() {
        use ErrorKind::{InvalidData, TimedOut, UnexpectedEof};
        for (answer, close, expected) in [
            (&b""[..], true, UnexpectedEof),
            (b"HTTP/1.1 200 OK\r\nContent-Le", true, UnexpectedEof),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", true, UnexpectedEof),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", false, TimedOut),
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n",
                true,
                UnexpectedEof,
            ),
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
                false,
                InvalidData,
            ),
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n+1\r\na\r\n",
                false,
                InvalidData,
            ),
            (b"HTTP/1.1 200 OK\nContent-Length: 0\n\n", false, InvalidData),
            (b"HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\na", false, InvalidData),
            (b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", false, InvalidData),
            (b"HTTP/1.0 200 OK\r\n\r\n", true, InvalidData),
            (b"HTTP/1.1 2000 OK\r\n\r\n", true, InvalidData),
        ] {
            let limit = if expected == TimedOut { STALL } else { Duration::from_secs(60) };
            let found = failure(answer, close, limit);
            assert_eq!(found, expected, "{:?}", String::from_utf8_lossy(answer));
        }
    }

    #[test]
    fn an_upgraded_socket_keeps_what_was_read_ahead() {
        let (mut client, _peer) =
            answered(b"HTTP/1.1 101 S\r\nUpgrade: websocket\r\n\r\nframes", false);
        let (head, _) = client.begin().unwrap();
        assert_eq!((head.status, head.header("upgrade")), (101, Some("websocket")));
        let (_socket, read_ahead) = client.into_parts();
        assert_eq!(read_ahead, b"frames");
    }

    #[test]
    fn closing_is_told_from_keeping_open() {
        assert!(answered(b"rest", true).0.is_closed_within(Duration::from_secs(60)));
        let (mut client, _peer) = answered(b"rest", false);
        assert!(!client.is_closed_within(Duration::from_millis(50)));
    }
}
