//! The limit of the kernel: no HTTP, no paths, no files to open. For each byte that a client sends,
//! it gets `--bytes` bytes of `--file`, by `sendfile` or, with `--write`, from memory by `write`.
//!
//! With `--broadcast TIME`, all clients get these bytes in this interval without asking. A client that
//! has not taken all of the last bytes is left out of the next ones.
//!
//! This is from no paper. Every architecture here, and the origin, does at least this much work to
//! send as many bytes. So its processor time per gigabyte is a lower bound for all of them.
//!
//! It has the structure that adds the least to the sending: an event loop with edge-triggered
//! `epoll`. A request costs one `read` (of a byte, or of all that have arrived: each is a request),
//! one `sendfile`, and a share of an `epoll_wait`. `--workers` loops share the listener.
//!
//! A connection that is silent, or takes nothing, for `--timeout` is closed within twice that time.
//! It occupies a descriptor, but no thread. A client that sends bytes faster than they are answered
//! occupies its loop for as long as it takes answers; a load generator does not do this.

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fs::sendfile;
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};

use crate::net;

/// Requests that are read at once.
const ASKED: usize = 64;

/// Events that are taken at once.
const EVENTS: usize = 256;

/// Marks events of the listener: no descriptor has this number.
const LISTENER: u64 = u64::MAX;

/// The bytes that are sent for each received byte.
#[derive(Debug)]
pub(crate) enum Source {
    /// The first bytes of a file, this many, with `sendfile`.
    File(File, usize),
    /// Memory, with `write`.
    Memory(Vec<u8>),
}

impl Source {
    /// The first `bytes` bytes of a file, or the whole file.
    ///
    /// # Errors
    /// The file cannot be read, is shorter, or is empty.
    pub(crate) fn open(path: &Path, bytes: Option<usize>, in_memory: bool) -> io::Result<Self> {
        let file = File::open(path)?;
        let length = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        let bytes = bytes.unwrap_or(length);
        if bytes == 0 || bytes > length {
            let error = format!("{bytes} bytes wanted of a file of {length}");
            return Err(io::Error::new(ErrorKind::InvalidInput, error));
        }
        if !in_memory {
            return Ok(Self::File(file, bytes));
        }
        let mut memory = vec![0; bytes];
        file.read_exact_at(&mut memory, 0)?;
        Ok(Self::Memory(memory))
    }

    fn length(&self) -> usize {
        match self {
            Self::File(_, length) => *length,
            Self::Memory(memory) => memory.len(),
        }
    }

    /// Sends bytes after the first `sent` ones, as many as the kernel takes.
    fn send(&self, mut socket: &TcpStream, sent: usize) -> io::Result<usize> {
        match self {
            Self::File(file, length) => {
                Ok(sendfile(socket, file, Some(&mut (sent as u64)), length - sent)?)
            }
            Self::Memory(memory) => socket.write(memory.get(sent..).unwrap_or_default()),
        }
    }
}

/// Serves forever.
///
/// # Errors
/// The loops cannot be created, or `epoll` fails.
pub(crate) fn run(
    listener: TcpListener,
    source: Source,
    workers: usize,
    timeout: Duration,
    broadcast: Option<Duration>,
) -> io::Result<Infallible> {
    listener.set_nonblocking(true)?;
    let shared = Arc::new(Shared { listener, source });
    // All loops exist before the ready line is printed.
    let loops =
        (1..workers).map(|_| Loop::new(Arc::clone(&shared))).collect::<io::Result<Vec<_>>>()?;
    let mut last = Loop::new(Arc::clone(&shared))?;
    for mut other in loops {
        thread::Builder::new().spawn(move || other.run(timeout, broadcast))?;
    }
    net::say_ready(&shared.listener)?;
    last.run(timeout, broadcast)
}

/// Shared by all loops.
struct Shared {
    listener: TcpListener,
    source: Source,
}

/// One event loop.
struct Loop {
    shared: Arc<Shared>,
    epoll: rustix::fd::OwnedFd,
    /// Indexed by descriptor. The kernel keeps descriptors small.
    connections: Vec<Option<Connection>>,
}

struct Connection {
    socket: TcpStream,
    /// Requests that were received and not answered yet.
    asked: usize,
    /// Bytes sent of the answer to the first of these.
    sent: usize,
    /// Whether it asked for or took something since all connections were last checked.
    active: bool,
}

impl Loop {
    fn new(shared: Arc<Shared>) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        // EXCLUSIVE: a connection wakes one loop, not all of them.
        let flags = EventFlags::IN | EventFlags::EXCLUSIVE;
        epoll::add(&epoll, &shared.listener, EventData::new_u64(LISTENER), flags)?;
        Ok(Self { shared, epoll, connections: Vec::new() })
    }

    fn run(&mut self, timeout: Duration, broadcast: Option<Duration>) -> io::Result<Infallible> {
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
        let mut next_look = Instant::now() + timeout;
        let mut next_broadcast = broadcast.map(|interval| (Instant::now() + interval, interval));
        loop {
            let next = next_broadcast.map_or(next_look, |(at, _)| at.min(next_look));
            let wait = Timespec::try_from(next.saturating_duration_since(Instant::now()));
            let wait = wait.map_err(io::Error::other)?;
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&wait)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in events.drain(..) {
                if event.data.u64() == LISTENER {
                    self.accept();
                } else {
                    self.serve(event);
                }
            }
            if let Some((at, interval)) = &mut next_broadcast
                && *at <= Instant::now()
            {
                self.broadcast();
                *at += *interval;
            }
            if next_look <= Instant::now() {
                self.close_idle();
                next_look = Instant::now() + timeout;
            }
        }
    }

    fn accept(&mut self) {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = match accept_with(&self.shared.listener, flags) {
            Ok(socket) => TcpStream::from(socket),
            // Another loop was faster, or the client has gone.
            Err(Errno::WOULDBLOCK | Errno::INTR | Errno::CONNABORTED) => return,
            Err(_) => return thread::sleep(net::OUT_OF_DESCRIPTORS),
        };
        let Ok(index) = usize::try_from(socket.as_raw_fd()) else { return };
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let data = EventData::new_u64(index as u64);
        if epoll::add(&self.epoll, &socket, data, flags).is_err() {
            return;
        }
        if self.connections.len() <= index {
            self.connections.resize_with(index + 1, || None);
        }
        if let Some(place) = self.connections.get_mut(index) {
            *place = Some(Connection { socket, asked: 0, sent: 0, active: true });
        }
    }

    fn serve(&mut self, event: Event) {
        let index = usize::try_from(event.data.u64()).unwrap_or(usize::MAX);
        let Some(place) = self.connections.get_mut(index) else { return };
        let Some(connection) = place else { return };
        // An edge is reported once. If the client has also ended its sending, everything must be
        // read now.
        let flags = event.flags;
        let all = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        if connection.serve(&self.shared.source, all).is_err() {
            // Closing the socket also removes it from the epoll.
            *place = None;
        }
    }

    /// Sends to all that have taken everything before.
    fn broadcast(&mut self) {
        for place in &mut self.connections {
            if let Some(connection) = place
                && connection.asked == 0
            {
                connection.asked = 1;
                if connection.answer(&self.shared.source).is_err() {
                    *place = None;
                }
            }
        }
    }

    fn close_idle(&mut self) {
        for place in &mut self.connections {
            match place {
                Some(connection) if connection.active => connection.active = false,
                _ => *place = None,
            }
        }
    }
}

impl Connection {
    /// Answers received requests, as far as the kernel takes the answers. `all` means to read until
    /// there is nothing more. Otherwise a short read counts as the last.
    ///
    /// # Errors
    /// The connection must be closed.
    fn serve(&mut self, source: &Source, all: bool) -> io::Result<()> {
        self.active = true;
        let mut asked = [0; ASKED];
        let mut drained = false;
        loop {
            if !self.answer(source)? || drained {
                return Ok(());
            }
            match self.socket.read(&mut asked) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => (self.asked, drained) = (read, read < ASKED && !all),
                Err(error) => return again(error),
            }
        }
    }

    /// Answers received requests. Returns whether the kernel has taken all answers.
    ///
    /// # Errors
    /// The connection must be closed.
    fn answer(&mut self, source: &Source) -> io::Result<bool> {
        while self.asked > 0 {
            match source.send(&self.socket, self.sent) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(sent) => (self.sent, self.active) = (self.sent + sent, true),
                Err(error) => return again(error).map(|()| false),
            }
            if self.sent == source.length() {
                (self.sent, self.asked) = (0, self.asked - 1);
            }
        }
        Ok(true)
    }
}

/// Ignores `WouldBlock`: another edge is reported when the kernel is ready again.
fn again(error: io::Error) -> io::Result<()> {
    if error.kind() == ErrorKind::WouldBlock { Ok(()) } else { Err(error) }
}
