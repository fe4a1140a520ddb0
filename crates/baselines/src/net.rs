//! Sockets, as far as they do not depend on the architecture.

use std::convert::Infallible;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};

use crate::http::{MAX_HEAD, Parsed, Refusal, Request};

/// Connections that may wait to be accepted. The kernel allows fewer if `somaxconn` is lower.
const BACKLOG: i32 = 4096;

/// Pause between attempts to accept when the process or the machine has no descriptors left.
pub(crate) const OUT_OF_DESCRIPTORS: Duration = Duration::from_millis(10);

/// How long bytes are still read from a connection that must close. Unread bytes would make the
/// kernel reset it before the client has seen the answer.
const LINGER: Duration = Duration::from_secs(1);

/// Binds a listener; port 0 selects a free port.
///
/// Accepted connections inherit `TCP_NODELAY`, if `nodelay` is set, and `timeout`, for reading and
/// sending, from the listener: Linux copies a listener's options. This saves three system calls per
/// connection.
///
/// # Errors
/// The address cannot be bound.
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

/// Prints the server's address on standard output, `ready http=IP:PORT`. To be called when
/// everything else is ready.
///
/// # Errors
/// Standard output is closed.
pub(crate) fn say_ready(listener: &TcpListener) -> io::Result<()> {
    writeln!(io::stdout(), "ready http={}", listener.local_addr()?)
}

/// Waits for the next connection.
pub(crate) fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept() {
            Ok((socket, _)) => return socket,
            Err(error) => match error.kind() {
                // `WouldBlock` is the listener's own time-out.
                ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted => {}
                _ => thread::sleep(OUT_OF_DESCRIPTORS),
            },
        }
    }
}

/// Serves each connection on its own thread, at most `most` at a time. This is the method of Zhuang
/// and He's servers, which have no limit.
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
            // No thread is available. The connection was closed together with the closure that
            // would have served it. Other threads may end meanwhile.
            thread::sleep(OUT_OF_DESCRIPTORS);
        }
    }
}

/// A limited number of threads.
#[derive(Debug)]
struct Slots {
    free: Mutex<usize>,
    freed: Condvar,
}

/// A place for one thread, which is freed when dropped.
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

/// Bytes of a connection that were received and not used yet: at most one head.
#[derive(Debug)]
pub(crate) struct Input {
    buffer: Box<[u8]>,
    /// Bytes of the buffer in use, from its front; never more than its length.
    filled: usize,
    timeout: Duration,
}

impl Input {
    /// Input of a connection that has sent nothing yet. A head must be complete within `timeout`
    /// from its first byte; one more read of at most `timeout` may already have begun.
    pub(crate) fn new(timeout: Duration) -> Self {
        Self { buffer: vec![0; MAX_HEAD].into(), filled: 0, timeout }
    }

    /// The next request, or why it must be refused. `None` when the client has ended the
    /// connection, or has begun no request in time.
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

    /// Closes the connection. If more was received than answered, it first reads on for a moment,
    /// because the kernel would otherwise reset the connection before the answer arrives.
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
