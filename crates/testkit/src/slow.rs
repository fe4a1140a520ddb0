use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::narrow_socket;

/// Time between two reads of a slow reader.
const TICK: Duration = Duration::from_millis(20);

/// Receive buffer of a slow reader. The less the kernel holds, the sooner the server notices that
/// nobody reads.
const RECEIVE_BUFFER: usize = 4096;

/// A viewer that sends its request at once and then reads slowly, or not at all.
///
/// It reports what it read and how the connection ended, so that a test can distinguish a viewer
/// that was cut off from one that was served. To make a program slow, use
/// [`crate::Program::pause`].
#[derive(Debug)]
pub struct SlowReader {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Ended>>,
}

#[derive(Debug, Default)]
struct Shared {
    bytes: AtomicU64,
    /// Whether to read at full speed from now on.
    hurry: AtomicBool,
    stop: AtomicBool,
    ended: AtomicBool,
}

/// The end of a slow reader's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The peer closed it in an orderly way.
    Closed,
    /// The peer reset it.
    Reset,
    /// It was still open when the reader stopped.
    Open,
}

impl SlowReader {
    /// Connects, sends `request`, then reads `rate` bytes per second; 0 reads nothing.
    ///
    /// # Errors
    /// The server does not answer, or does not take the request in 60 s.
    pub fn start(address: SocketAddr, request: &[u8], rate: u64) -> io::Result<Self> {
        let mut socket = narrow_socket(address, RECEIVE_BUFFER)?;
        socket.set_write_timeout(Some(Duration::from_secs(60)))?;
        socket.write_all(request)?;
        socket.set_read_timeout(Some(TICK))?;
        let shared = Arc::new(Shared::default());
        let thread = thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                let ended = read(&mut socket, &shared, rate);
                shared.ended.store(true, Ordering::Release);
                ended
            }
        });
        Ok(Self { shared, thread: Some(thread) })
    }

    /// [`SlowReader::start`] with a GET of `path`.
    ///
    /// # Errors
    /// The same as those of [`SlowReader::start`].
    pub fn get(address: SocketAddr, path: &str, rate: u64) -> io::Result<Self> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
        Self::start(address, request.as_bytes(), rate)
    }

    /// Bytes read so far, with heads.
    pub fn received(&self) -> u64 {
        self.shared.bytes.load(Ordering::Acquire)
    }

    /// Whether the connection has ended from the view of the slow reader, which first reads
    /// everything that the peer sent before.
    pub fn is_ended(&self) -> bool {
        self.shared.ended.load(Ordering::Acquire)
    }

    /// Reads at full speed from now on: so a viewer catches up, or learns at once that it was cut
    /// off.
    pub fn hurry(&self) {
        self.shared.hurry.store(true, Ordering::Release);
    }

    /// Reads on at its rate for at most `limit`. Returns how the connection ended, and the bytes
    /// read.
    pub fn finish(mut self, limit: Duration) -> (Ended, u64) {
        let deadline = Instant::now() + limit;
        while !self.is_ended() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(2));
        }
        self.shared.stop.store(true, Ordering::Release);
        let thread = self.thread.take().expect("taken only here and when dropped");
        let ended = thread.join().expect("reading does not panic");
        (ended, self.received())
    }
}

impl Drop for SlowReader {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn read(socket: &mut TcpStream, shared: &Shared, rate: u64) -> Ended {
    let start = Instant::now();
    let mut buffer = vec![0; 64 << 10];
    while !shared.stop.load(Ordering::Acquire) {
        let hurry = shared.hurry.load(Ordering::Acquire);
        let due = u128::from(rate) * start.elapsed().as_micros() / 1_000_000;
        let due = due.saturating_sub(u128::from(shared.bytes.load(Ordering::Acquire)));
        let room = if hurry { buffer.len() } else { usize::try_from(due).unwrap_or(usize::MAX) };
        if room == 0 {
            // A reset is visible without reading.
            if let Ok(Some(_)) = socket.take_error() {
                return Ended::Reset;
            }
            thread::sleep(TICK);
            continue;
        }
        let room = room.min(buffer.len());
        match socket.read(&mut buffer[..room]) {
            Ok(0) => return Ended::Closed,
            Ok(read) => {
                shared.bytes.fetch_add(read as u64, Ordering::AcqRel);
            }
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
                _ => return Ended::Reset,
            },
        }
        if !hurry {
            thread::sleep(TICK);
        }
    }
    Ended::Open
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use rustix::net::sockopt;

    use super::*;

    fn listener() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    /// Accepts a connection, reads the request's head, and returns the socket.
    fn accept(listener: &TcpListener) -> TcpStream {
        let (mut socket, _) = listener.accept().unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            socket.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        assert!(head.starts_with(b"GET /x HTTP/1.1\r\n"));
        socket
    }

    #[test]
    fn a_reader_that_reads_nothing_makes_the_sender_wait() {
        let (listener, address) = listener();
        let reader = SlowReader::get(address, "/x", 0).unwrap();
        let mut socket = accept(&listener);
        socket.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
        let error = socket.write_all(&vec![0; 64 << 20]).expect_err("nobody reads");
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        assert_eq!(reader.received(), 0);
        assert_eq!(reader.finish(Duration::ZERO), (Ended::Open, 0));
    }

    #[test]
    fn a_slow_reader_reads_at_its_pace_then_in_a_hurry_and_sees_the_end() {
        let (listener, address) = listener();
        let start = Instant::now();
        let reader = SlowReader::get(address, "/x", 10_000).unwrap();
        let mut socket = accept(&listener);
        let sent = thread::spawn(move || socket.write_all(&vec![0; 1 << 20]));
        while reader.received() == 0 {
            assert!(start.elapsed() < Duration::from_secs(60), "nothing was read");
            thread::sleep(Duration::from_millis(1));
        }
        let (received, elapsed) = (reader.received(), start.elapsed());
        assert!(
            received <= 10_000 + u64::try_from(elapsed.as_millis()).unwrap() * 10,
            "{received} bytes in {elapsed:?}"
        );
        assert!(!reader.is_ended());
        reader.hurry();
        assert_eq!(reader.finish(Duration::from_secs(60)), (Ended::Closed, 1 << 20));
        sent.join().unwrap().unwrap();
    }

    #[test]
    fn a_reset_is_seen_without_reading() {
        let (listener, address) = listener();
        let reader = SlowReader::get(address, "/x", 0).unwrap();
        let socket = accept(&listener);
        // Closing without lingering causes a reset.
        sockopt::set_socket_linger(&socket, Some(Duration::ZERO)).unwrap();
        drop(socket);
        assert_eq!(reader.finish(Duration::from_secs(60)), (Ended::Reset, 0));
    }
}
