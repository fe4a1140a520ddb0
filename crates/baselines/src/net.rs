//! Sockets, as far as they are no architecture's subject.

use std::convert::Infallible;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};

use crate::http::{MAX_HEAD, Parsed, Refusal, Request};

/// Connections that may wait to be accepted; the kernel takes less where `somaxconn` is less.
const BACKLOG: i32 = 4096;

/// Between two attempts to accept when the process or the machine is out of descriptors.
pub(crate) const OUT_OF_DESCRIPTORS: Duration = Duration::from_millis(10);

/// How long a connection that must close is read on, so that what is unread does not make the
/// kernel reset it before the client has seen the answer.
const LINGER: Duration = Duration::from_secs(1);

/// Binds; port 0 is a free one.
///
/// What is accepted inherits `TCP_NODELAY`, if `nodelay`, and `timeout`, for reading and for sending, from the
/// listener: Linux copies a listener's options, which saves three system calls a connection.
///
/// # Errors
/// The address cannot be had.
pub(crate) fn listen(
    address: SocketAddr,
    timeout: Duration,
    nodelay: bool,
) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_tcp_nodelay(nodelay)?;
    socket.set_read_timeout(Some(timeout))?;
    socket.set_write_timeout(Some(timeout))?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Says on standard output where the server listens, `ready http=IP:PORT`, now that everything
/// else is ready too.
///
/// # Errors
/// Standard output is closed.
pub(crate) fn say_ready(listener: &TcpListener) -> io::Result<()> {
    writeln!(io::stdout(), "ready http={}", listener.local_addr()?)
}

/// The next connection.
pub(crate) fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept() {
            Ok((socket, _)) => return socket,
            Err(error) => match error.kind() {
                // The first is the listener's own time-out.
                ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted => {}
                _ => thread::sleep(OUT_OF_DESCRIPTORS),
            },
        }
    }
}

/// Serves each connection on a thread of its own, at most `most` at a time: the way of
/// the servers of Zhuang and He, who have no bound.
///
/// # Errors
/// Standard output is closed.
pub(crate) fn thread_each(
    listener: &TcpListener,
    most: usize,
    serve: impl Fn(TcpStream) + Send + Sync + 'static,
) -> io::Result<Infallible> {
    let (serve, places) = (Arc::new(serve), Arc::new(Slots::new(most)));
    say_ready(listener)?;
    loop {
        let place = Slots::take(&places);
        let socket = accept(listener);
        let serve = Arc::clone(&serve);
        let started = thread::Builder::new().spawn(move || {
            let _place = place;
            serve(socket);
        });
        if started.is_err() {
            // No thread to be had: the connection is closed with what would have served it, and
            // others may end meanwhile.
            thread::sleep(OUT_OF_DESCRIPTORS);
        }
    }
}

/// How many threads there may be.
#[derive(Debug)]
struct Slots {
    free: Mutex<usize>,
    freed: Condvar,
}

/// One of them, given back when dropped.
#[derive(Debug)]
struct Slot(Arc<Slots>);

impl Slots {
    fn new(free: usize) -> Self {
        Self { free: Mutex::new(free), freed: Condvar::new() }
    }

    fn take(places: &Arc<Self>) -> Slot {
        let free = places.free.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free = places
            .freed
            .wait_while(free, |free| *free == 0)
            .unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
        Slot(Arc::clone(places))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
}

/// What was received of a connection and not yet used: at most one head.
#[derive(Debug)]
pub(crate) struct Input {
    buffer: Box<[u8]>,
    /// Bytes of the buffer in use, from its front. Never more than it has.
    filled: usize,
    timeout: Duration,
}

impl Input {
    /// Of a connection that has sent nothing yet. A head must be complete within `timeout`
    /// (counted from its first byte; one read more, of another `timeout`, may be on its way).
    pub(crate) fn new(timeout: Duration) -> Self {
        Self { buffer: vec![0; MAX_HEAD].into(), filled: 0, timeout }
    }

    /// The next request, or why there is none to be served. `None` when the client has ended the
    /// connection, or begun no request in time.
    ///
    /// # Errors
    /// The connection is broken.
    pub(crate) fn next(
        &mut self,
        mut socket: &TcpStream,
    ) -> io::Result<Option<Result<Request, Refusal>>> {
        let mut deadline = None;
        loop {
            match Request::parse(&self.buffer[..self.filled]) {
                Ok(Some(Parsed { request, size })) => {
                    self.buffer.copy_within(size..self.filled, 0);
                    self.filled -= size;
                    return Ok(Some(Ok(request)));
                }
                Ok(None) if self.filled == self.buffer.len() => {
                    return Ok(Some(Err(Refusal::TooLarge)));
                }
                Ok(None) => {}
                Err(refusal) => return Ok(Some(Err(refusal))),
            }
            if deadline.is_some_and(|deadline| deadline < Instant::now()) {
                return Ok(Some(Err(Refusal::Timeout)));
            }
            match socket.read(&mut self.buffer[self.filled..]) {
                Ok(0) => return Ok(None),
                Ok(read) => {
                    self.filled += read;
                    deadline = deadline.or_else(|| Instant::now().checked_add(self.timeout));
                }
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => {}
                    ErrorKind::WouldBlock | ErrorKind::TimedOut if self.filled == 0 => {
                        return Ok(None);
                    }
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                        return Ok(Some(Err(Refusal::Timeout)));
                    }
                    _ => return Err(error),
                },
            }
        }
    }

    /// Closes the connection. Where more was received than answered, it is first read on for a
    /// moment, or the kernel would reset it under the answer.
    pub(crate) fn close(self, mut socket: &TcpStream) {
        if self.filled == 0 || socket.shutdown(Shutdown::Write).is_err() {
            return;
        }
        let mut dropped = self.buffer;
        let deadline = Instant::now() + LINGER;
        let _ = socket.set_read_timeout(Some(LINGER));
        while Instant::now() < deadline && matches!(socket.read(&mut dropped), Ok(1..)) {}
    }
}
