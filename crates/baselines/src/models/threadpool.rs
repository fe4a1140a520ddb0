//! Zheng and Gonzalez (2021), 4.3, the *multithreaded server*: "the main thread accepts incoming
//! client requests and places them into a shared buffer. A fixed number of worker threads are
//! spawned when the server starts and block until there are requests in the shared buffer. Once a
//! request is placed into the shared buffer, the worker threads handle the requests and send a
//! response back. Then the thread will look again into the shared buffer."
//!
//! Therefore each connection has one request: a connection waits in the buffer, and a worker
//! returns to the buffer after each response. This server cannot keep connections alive. A worker
//! follows the steps of the paper's figure 4: it reads the request, finds the file, sends the head,
//! and then reads and sends the file in turns.
//!
//! To repeat: figures 9 to 12. The paper's server is in C. `lab/peers/threadpool` is this server in
//! C, and makes the same system calls in the same order (`strace -f` shows it; without
//! optimisation, Rust's library adds checks of its own). So the two differ only in language.
//!
//! The paper does not tell the number of workers and places. The defaults, 4 and 16, are those of
//! the prethreaded server in the textbook that it cites for this design (Bryant and O'Hallaron,
//! *Computer Systems*, 12.5.5). When the buffer is full the main thread waits, as theirs does, and
//! connections wait in the kernel. When the kernel's queue is full too, connections are dropped, as
//! the paper expects.
//!
//! In this model a silent client occupies a worker until `--timeout`, and `--workers` silent
//! clients occupy the server.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::{self, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::net::{SendFlags, send};

use crate::http::{Answer, Root};
use crate::net::{self, Input};

/// The most bytes of a file that are read at a time.
const BLOCK: usize = 64 << 10;

/// Serves forever.
///
/// # Errors
/// The threads cannot be started.
pub(crate) fn run(
    listener: &TcpListener,
    root: &Arc<Root>,
    workers: usize,
    places: usize,
    timeout: Duration,
) -> io::Result<Infallible> {
    let buffer = Arc::new(SharedBuffer::new(places));
    for _ in 0..workers {
        let (buffer, root) = (Arc::clone(&buffer), Arc::clone(root));
        thread::Builder::new().spawn(move || {
            let mut block = vec![0; BLOCK];
            loop {
                // A broken connection affects no other.
                let _ = serve(&buffer.remove(), &root, timeout, &mut block);
            }
        })?;
    }
    net::say_ready(listener)?;
    loop {
        buffer.insert(net::accept(listener));
    }
}

fn serve(
    mut socket: &TcpStream,
    root: &Root,
    timeout: Duration,
    block: &mut [u8],
) -> io::Result<()> {
    let mut input = Input::new(timeout);
    if let Some(request) = input.next(socket)? {
        match Answer::to(&request, root).into_parts(false) {
            (head, None) => socket.write_all(&head)?,
            (head, Some(mut body)) => {
                send_head(socket, &head)?;
                loop {
                    let read = body.read(block)?;
                    if read == 0 {
                        break;
                    }
                    socket.write_all(&block[..read])?;
                }
            }
        }
    }
    input.close(socket);
    Ok(())
}

/// Sends a head before its body. The kernel waits for the body to fill the packet.
fn send_head(mut socket: &TcpStream, head: &[u8]) -> io::Result<()> {
    let sent = send(socket, head, SendFlags::MORE | SendFlags::NOSIGNAL)?;
    socket.write_all(head.get(sent..).unwrap_or_default())
}

/// Connections that wait for a worker.
#[derive(Debug)]
struct SharedBuffer {
    connections: Mutex<VecDeque<TcpStream>>,
    places: usize,
    filled: Condvar,
    freed: Condvar,
}

impl SharedBuffer {
    fn new(places: usize) -> Self {
        Self {
            connections: Mutex::new(VecDeque::new()),
            places,
            filled: Condvar::new(),
            freed: Condvar::new(),
        }
    }

    /// Waits for a free place.
    fn insert(&self, connection: TcpStream) {
        let connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let mut connections = self
            .freed
            .wait_while(connections, |connections| connections.len() >= self.places)
            .unwrap_or_else(PoisonError::into_inner);
        connections.push_back(connection);
        self.filled.notify_one();
    }

    /// Waits for a connection.
    fn remove(&self) -> TcpStream {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(connection) = connections.pop_front() {
                self.freed.notify_one();
                return connection;
            }
            connections = self.filled.wait(connections).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
