//! [`limit`](super::limit) with `io_uring` in the place of `epoll`, to see what that saves.
//!
//! Bytes come from memory. All that is to be sent and received since the last call goes to the
//! kernel in one `io_uring_enter`: a broadcast to thousands of clients, or the answers to all
//! requests that had come. There is one loop. The kernel must be Linux 6.1 or later.
//!
//! A send is done when the client has taken all of it. So a client is closed, too, that takes one
//! answer for longer than twice `--timeout`.

// The crate io-uring leaves to its callers that buffers live until the kernel has done with them.
#![allow(unsafe_code)]

use std::convert::Infallible;
use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::io::Errno;

use crate::net;

/// Operations that are handed to the kernel at once. More take further calls.
const ENTRIES: u32 = 4096;

/// Requests that are read at once.
const ASKED: usize = 64;

/// Marks what becomes of the listener: no descriptor has this number.
const LISTENER: u64 = u64::MAX;

/// Marks what becomes of a send. The rest of the number is the connection's.
const SEND: u64 = 1 << 32;

/// Serves forever.
///
/// # Errors
/// The kernel has no `io_uring`, or an older one.
pub(crate) fn run(
    listener: TcpListener,
    bytes: Vec<u8>,
    timeout: Duration,
    broadcast: Option<Duration>,
) -> io::Result<Infallible> {
    let ring = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_cqsize(4 * ENTRIES)
        .build(ENTRIES)?;
    // The kernel may use this memory for as long as the process lives.
    let room = Box::leak(Box::new([0; ASKED])).as_mut_ptr();
    let mut all = Loop {
        ring,
        listener,
        bytes: bytes.leak(),
        room,
        connections: Vec::new(),
        done: Vec::new(),
    };
    net::say_ready(&all.listener)?;
    all.accept()?;
    all.run(timeout, broadcast)
}

struct Loop {
    ring: IoUring,
    listener: TcpListener,
    bytes: &'static [u8],
    /// Where the kernel puts all requests. Only their number counts.
    room: *mut u8,
    /// Indexed by descriptor. The kernel keeps descriptors small.
    connections: Vec<Option<Box<Connection>>>,
    /// Room for what the kernel has completed.
    done: Vec<cqueue::Entry>,
}

/// A connection. It lives until the kernel has done all that it was asked to do for it: another
/// connection may then have its number.
struct Connection {
    socket: TcpStream,
    /// Requests that were received and not answered yet.
    asked: usize,
    /// Bytes sent of the answer to the first of these.
    sent: usize,
    receives: bool,
    sends: bool,
    /// Whether it failed or ended.
    is_over: bool,
    /// Whether it asked for or took something since all connections were last checked.
    active: bool,
}

impl Loop {
    fn run(&mut self, timeout: Duration, broadcast: Option<Duration>) -> io::Result<Infallible> {
        let mut next_look = Instant::now() + timeout;
        let mut next_broadcast = broadcast.map(|interval| (Instant::now() + interval, interval));
        loop {
            let next = next_broadcast.map_or(next_look, |(at, _)| at.min(next_look));
            let wait = Timespec::from(next.saturating_duration_since(Instant::now()));
            let arguments = SubmitArgs::new().timespec(&wait);
            match self.ring.submitter().submit_with_args(1, &arguments) {
                Ok(_) => {}
                Err(error) => match Errno::from_io_error(&error) {
                    // BUSY: completions must be taken first.
                    Some(Errno::TIME | Errno::INTR | Errno::BUSY) => {}
                    _ => return Err(error),
                },
            }
            let mut done = std::mem::take(&mut self.done);
            done.extend(self.ring.completion());
            for done in done.drain(..) {
                self.complete(&done)?;
            }
            self.done = done;
            if let Some((at, interval)) = &mut next_broadcast
                && *at <= Instant::now()
            {
                *at += *interval;
                self.broadcast()?;
            }
            if next_look <= Instant::now() {
                self.close_idle();
                next_look = Instant::now() + timeout;
            }
        }
    }

    /// Hands an operation to the kernel with the next call, or now if there are many.
    ///
    /// # Safety
    /// What the operation points to lives until the operation is complete.
    unsafe fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: the caller's promise.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            self.ring.submit()?;
        }
        Ok(())
    }

    fn accept(&mut self) -> io::Result<()> {
        let fd = Fd(self.listener.as_raw_fd());
        let entry = opcode::AcceptMulti::new(fd).flags(libc::SOCK_CLOEXEC).build();
        // SAFETY: the operation points to nothing.
        unsafe { self.push(&entry.user_data(LISTENER)) }
    }

    fn complete(&mut self, done: &cqueue::Entry) -> io::Result<()> {
        let result = usize::try_from(done.result());
        if done.user_data() == LISTENER {
            match result {
                Ok(index) => self.add(index)?,
                // Out of descriptors, or the client has gone.
                Err(_) => thread::sleep(net::OUT_OF_DESCRIPTORS),
            }
            return if cqueue::more(done.flags()) { Ok(()) } else { self.accept() };
        }
        let is_send = done.user_data() & SEND != 0;
        let index = (done.user_data() & !SEND) as usize;
        let length = self.bytes.len();
        let Some(Some(connection)) = self.connections.get_mut(index) else { return Ok(()) };
        let did = result.unwrap_or(0);
        connection.is_over |= did == 0;
        connection.active = true;
        if is_send {
            connection.sends = false;
            connection.sent += did;
            if connection.sent == length {
                (connection.sent, connection.asked) = (0, connection.asked - 1);
            }
        } else {
            connection.receives = false;
            connection.asked += did;
        }
        self.go_on(index)
    }

    fn add(&mut self, index: usize) -> io::Result<()> {
        let fd = i32::try_from(index).map_err(io::Error::other)?;
        // SAFETY: the kernel has just opened it for this process, and nobody else knows it.
        let socket = TcpStream::from(unsafe { OwnedFd::from_raw_fd(fd) });
        if self.connections.len() <= index {
            self.connections.resize_with(index + 1, || None);
        }
        let Some(place) = self.connections.get_mut(index) else { return Ok(()) };
        *place = Some(Box::new(Connection {
            socket,
            asked: 0,
            sent: 0,
            receives: false,
            sends: false,
            is_over: false,
            active: true,
        }));
        self.go_on(index)
    }

    /// Asks the kernel for what comes next on a connection. Closes it when it is over.
    fn go_on(&mut self, index: usize) -> io::Result<()> {
        let Some(place) = self.connections.get_mut(index) else { return Ok(()) };
        let Some(connection) = place else { return Ok(()) };
        if connection.is_over {
            // The operation that is left fails at once.
            let _ = connection.socket.shutdown(Shutdown::Both);
            if !connection.receives && !connection.sends {
                *place = None;
            }
            return Ok(());
        }
        let fd = Fd(connection.socket.as_raw_fd());
        let mut entries = [const { None }; 2];
        if connection.asked > 0 && !connection.sends {
            connection.sends = true;
            let rest = self.bytes.get(connection.sent..).unwrap_or_default();
            let length = u32::try_from(rest.len()).unwrap_or(u32::MAX);
            // WAITALL: the kernel goes on by itself when the socket has room again.
            let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
            let entry = opcode::Send::new(fd, rest.as_ptr(), length).flags(flags).build();
            entries[0] = Some(entry.user_data(SEND | index as u64));
        }
        // A client is not read from while it has not taken its answers.
        if connection.asked == 0 && !connection.receives {
            connection.receives = true;
            let entry = opcode::Recv::new(fd, self.room, ASKED as u32).build();
            entries[1] = Some(entry.user_data(index as u64));
        }
        for entry in entries.iter().flatten() {
            // SAFETY: the bytes and the room for requests live forever. Nobody reads that room, so
            // it does not matter who writes there.
            unsafe { self.push(entry)? };
        }
        Ok(())
    }

    /// Sends to all that have taken everything before.
    fn broadcast(&mut self) -> io::Result<()> {
        for index in 0..self.connections.len() {
            if let Some(Some(connection)) = self.connections.get_mut(index)
                && connection.asked == 0
            {
                connection.asked = 1;
                self.go_on(index)?;
            }
        }
        Ok(())
    }

    fn close_idle(&mut self) {
        for connection in self.connections.iter_mut().flatten() {
            if !connection.active {
                connection.is_over = true;
                // What is under way fails, and the connection is closed with that.
                let _ = connection.socket.shutdown(Shutdown::Both);
            }
            connection.active = false;
        }
    }
}
