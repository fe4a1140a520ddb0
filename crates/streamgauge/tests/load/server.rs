//! A server with known delays and faults that counts its requests and answers.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use testkit::uninterrupted;

/// The counts of the server.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) connections: AtomicU64,
    pub(crate) requests: AtomicU64,
    /// Bytes of request heads.
    pub(crate) request_bytes: AtomicU64,
    /// Bytes of the heads of answers, as written.
    pub(crate) head_bytes: AtomicU64,
    /// How often the server did each thing, by name.
    pub(crate) done: Mutex<HashMap<String, u64>>,
    /// The Range field of each request.
    pub(crate) ranges: Mutex<Vec<String>>,
}

impl Seen {
    pub(crate) fn done(&self, what: &str) -> u64 {
        self.done.lock().unwrap().get(what).copied().unwrap_or_default()
    }
}

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) seen: Arc<Seen>,
}

/// The bytes that it serves.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8).collect()
}

impl Server {
    /// Serves until the test ends. NAME in a request for `/NAME/…` decides what the server does.
    /// `/mix` takes the names in `mix` in turn.
    pub(crate) fn start(mix: &'static [&'static str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // The standard library lets 128 connections wait. A client whose connection finds no room tries again seconds later.
        rustix::net::listen(&listener, 1024).unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Seen::default());
        let of_all = seen.clone();
        thread::spawn(move || {
            while let Ok((socket, _)) = listener.accept() {
                of_all.connections.fetch_add(1, Relaxed);
                let connection = Connection { socket, seen: of_all.clone(), mix };
                // A client that closes its connection does not disturb the test.
                thread::spawn(move || drop(connection.serve()));
            }
        });
        Self { address, seen }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

struct Connection {
    socket: TcpStream,
    seen: Arc<Seen>,
    mix: &'static [&'static str],
}

struct Request {
    method: String,
    path: String,
    range: Option<(usize, usize)>,
    close: bool,
}

/// Whether the connection is kept.
type Goes = std::io::Result<bool>;

impl Connection {
    fn serve(mut self) -> std::io::Result<()> {
        self.socket.set_nodelay(true)?;
        let mut reader = BufReader::new(self.socket.try_clone()?);
        while let Some(request) = self.read(&mut reader)? {
            let number = self.seen.requests.fetch_add(1, Relaxed);
            let name = request.path.split('/').nth(1).unwrap_or_default().to_owned();
            let name = if name == "mix" {
                let at = usize::try_from(number).unwrap() % self.mix.len();
                self.mix[at].to_owned()
            } else {
                name
            };
            *self.seen.done.lock().unwrap().entry(name.clone()).or_default() += 1;
            if !self.answer(&name, &request)? || request.close {
                break;
            }
        }
        Ok(())
    }

    fn read(&self, reader: &mut impl BufRead) -> std::io::Result<Option<Request>> {
        let mut line = String::new();
        let mut length = reader.read_line(&mut line)?;
        if length == 0 {
            return Ok(None);
        }
        let mut words = line.split(' ').map(str::to_owned);
        let (method, path) = (words.next().unwrap(), words.next().unwrap());
        let mut request = Request { method, path, range: None, close: false };
        loop {
            let mut field = String::new();
            length += reader.read_line(&mut field)?;
            let field = field.trim_end();
            if field.is_empty() {
                break;
            }
            if let Some(range) = field.to_ascii_lowercase().strip_prefix("range: bytes=") {
                let (first, last) = range.split_once('-').unwrap();
                request.range = Some((first.parse().unwrap(), last.parse().unwrap()));
                self.seen.ranges.lock().unwrap().push(range.to_owned());
            }
            request.close |= field == "Connection: close";
        }
        self.seen.request_bytes.fetch_add(length as u64, Relaxed);
        Ok(Some(request))
    }

    fn write(&mut self, head: &str, body: &[u8]) -> std::io::Result<()> {
        self.seen.head_bytes.fetch_add(head.len() as u64, Relaxed);
        self.socket.write_all(&[head.as_bytes(), body].concat())
    }

    fn ok(&mut self, length: usize, body: &[u8]) -> Goes {
        self.write(&format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n"), body)?;
        Ok(true)
    }

    fn answer(&mut self, name: &str, request: &Request) -> Goes {
        let number = |at: usize| -> usize {
            request.path.split('/').nth(at).and_then(|n| n.parse().ok()).unwrap_or(1000)
        };
        let wait = |millis: usize| thread::sleep(Duration::from_millis(millis as u64));
        match name {
            "ok" if request.method == "HEAD" => self.ok(number(2), &[]),
            "ok" => self.ok(number(2), &pattern(number(2))),
            "status" => {
                let status = number(2);
                self.write(&format!("HTTP/1.1 {status} X\r\nContent-Length: 3\r\n\r\n"), b"abc")?;
                Ok(true)
            }
            "delay" => {
                wait(number(2));
                self.ok(1000, &pattern(1000))
            }
            // Half of the body, a pause, and the other half.
            "halves" => {
                self.ok(1000, &pattern(500))?;
                wait(number(2));
                self.socket.write_all(&pattern(1000)[500..])?;
                Ok(true)
            }
            "chunked" => {
                let body = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
                self.write(body, b"")?;
                self.write("190\r\n", &pattern(400))?;
                self.write("\r\n258\r\n", &pattern(600))?;
                self.write("\r\n0\r\n\r\n", b"")?;
                Ok(true)
            }
            "until_close" => {
                self.write("HTTP/1.1 200 OK\r\n\r\n", &pattern(number(2)))?;
                Ok(false)
            }
            "http10" => {
                self.write("HTTP/1.0 200 OK\r\nContent-Length: 1000\r\n\r\n", &pattern(1000))?;
                Ok(false)
            }
            "file" => {
                let whole = pattern(number(2));
                let Some((first, last)) = request.range else { return self.ok(number(2), &whole) };
                let body = &whole[first..=last.min(whole.len() - 1)];
                let head = format!(
                    "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {first}-{}/{}\r\n\
                     Content-Length: {}\r\n\r\n",
                    first + body.len() - 1,
                    whole.len(),
                    body.len()
                );
                self.write(&head, body)?;
                Ok(true)
            }
            "wrong_range" => {
                self.write(
                    "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 1-100/1000\r\n\
                     Content-Length: 100\r\n\r\n",
                    &pattern(100),
                )?;
                Ok(true)
            }
            "corrupt" => {
                let mut body = pattern(1000);
                body[777] ^= 1;
                self.ok(1000, &body)
            }
            // Faults from here on.
            "closed" => Ok(false),
            "reset" => {
                rustix::net::sockopt::set_socket_linger(&self.socket, Some(Duration::ZERO))?;
                Ok(false)
            }
            "short_body" => {
                self.ok(1000, &pattern(500))?;
                Ok(false)
            }
            "short_head" => {
                self.write("HTTP/1.1 200 OK\r\nContent-Le", b"")?;
                Ok(false)
            }
            "content_length" => self.ok(500, &pattern(1000)),
            "bad_response" => {
                self.write("SSH-2.0-OpenSSH_9.2\r\n", b"")?;
                Ok(true)
            }
            "timeout" => {
                // Longer than any time-out in these tests. It ends when the client is gone.
                let end = Instant::now() + Duration::from_secs(60);
                self.socket.set_read_timeout(Some(Duration::from_millis(100)))?;
                while Instant::now() < end {
                    match uninterrupted(|| self.socket.peek(&mut [0])) {
                        Ok(0) => return Ok(false),
                        Ok(_) => wait(10),
                        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                        Err(error) => return Err(error),
                    }
                }
                Ok(false)
            }
            "too_many_redirects" => self.redirect("/too_many_redirects"),
            "elsewhere" => self.redirect("http://elsewhere.invalid/"),
            "bad_redirect" => self.redirect("ftp://nowhere/"),
            "hops" => match number(2) {
                0 => self.ok(1000, &pattern(1000)),
                left => self.redirect(&format!("/hops/{}", left - 1)),
            },
            other => panic!("no such path: {other}"),
        }
    }

    fn redirect(&mut self, to: &str) -> Goes {
        let head = format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 4\r\n\r\n");
        self.write(&head, b"gone")?;
        Ok(true)
    }
}
