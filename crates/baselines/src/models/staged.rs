//! Zhuang and He (2021), 5.1, the improvement that the paper asks for: "current design is to
//! overlap \[receiving+parsing, reading files\] with \[sending\]. We could further divide the
//! server stage into overlap \[receiving+parsing\], \[reading files\] and \[sending\], because in
//! some scenarios, reading files from disk is the bottleneck. Just imagine how CPU pipelines
//! instructions."
//!
//! So a connection has three threads, one per stage, and a bounded queue (`--queue`) between each
//! two:
//!
//! ```text
//! receive and parse ── requests ──▶ find and read ── blocks ──▶ send
//! ```
//!
//! One thread per stage keeps responses in their order without numbering them. Files are read in
//! blocks of [`BLOCK`] bytes, so that the stages also overlap within one long response.
//!
//! There are no published results to compare with. Beside [`pipelined`](super::pipelined) it shows
//! the effect of the third stage.

use std::convert::Infallible;
use std::io::{self, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use crate::http::{Answer, Refusal, Request, Root};
use crate::net::{self, Input};

/// The most bytes of a file that are read at a time. A block is long enough that passing it to
/// another thread is a small part of its cost, and short enough that stages overlap in a response
/// of a megabyte.
const BLOCK: usize = 256 << 10;

type Requested = Result<Request, Refusal>;

/// Serves forever, `threads` connections at a time, each with up to `queue` waiting requests and as
/// many waiting blocks.
///
/// # Errors
/// Standard output is closed.
pub(crate) fn run(
    listener: &TcpListener,
    root: Root,
    threads: usize,
    queue: usize,
    timeout: Duration,
) -> io::Result<Infallible> {
    net::thread_each(listener, threads, move |socket| {
        let mut input = Input::new(timeout);
        let (requests, to_read) = sync_channel(queue);
        let (blocks, to_send) = sync_channel(queue);
        thread::scope(|scope| {
            let reader = || read(&socket, &root, to_read, blocks);
            let sender = || send(&socket, to_send);
            let start = thread::Builder::new;
            if start().spawn_scoped(scope, sender).is_ok()
                && start().spawn_scoped(scope, reader).is_ok()
            {
                // A broken connection affects no other.
                let _ = receive(&socket, &mut input, requests);
            }
            // The scope waits for the other stages. Each of them ends when the stage before it has
            // ended and its queue is empty.
        });
        input.close(&socket);
    })
}

/// Stage 1: receives and parses requests.
#[expect(clippy::needless_pass_by_value, reason = "its end is what tells the next thread to end")]
fn receive(
    socket: &TcpStream,
    input: &mut Input,
    requests: SyncSender<Requested>,
) -> io::Result<()> {
    while let Some(request) = input.next(socket)? {
        let keep = keeps(&request);
        if requests.send(request).is_err() || !keep {
            break;
        }
    }
    Ok(())
}

/// Stage 2: finds and reads files.
#[expect(clippy::needless_pass_by_value, reason = "its end is what tells the next thread to end")]
fn read(
    socket: &TcpStream,
    root: &Root,
    requests: Receiver<Requested>,
    blocks: SyncSender<Vec<u8>>,
) {
    for request in requests {
        let mut response = Answer::to(&request, root).into_pieces(keeps(&request), BLOCK);
        loop {
            let sent = match response.next() {
                Ok(None) => break,
                Ok(Some(block)) => blocks.send(block).is_ok(),
                Err(_) => false,
            };
            if !sent {
                return give_up(socket);
            }
        }
    }
}

/// Stage 3: sends blocks.
fn send(mut socket: &TcpStream, blocks: Receiver<Vec<u8>>) {
    for block in blocks {
        if socket.write_all(&block).is_err() {
            return give_up(socket);
        }
    }
}

fn keeps(request: &Requested) -> bool {
    request.as_ref().is_ok_and(|request| request.keep_alive)
}

/// Wakes the first stage, which may be waiting for a request, so that it ends.
fn give_up(socket: &TcpStream) {
    let _ = socket.shutdown(Shutdown::Both);
}
