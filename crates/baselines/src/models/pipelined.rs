//! Zhuang and He (2021), 1.3, the *pipelined server*: the persistent one, but it "would not wait
//! for send to finish before handling the next request". It generates the response string, lets
//! another thread send it, and continues with the next request. "Once the connection is about to be
//! terminated, it would wait for all data to be sent before close."
//!
//! In the authors' source there is one such thread for each connection, which waits on a condition
//! variable for a queue of responses. Here it is the same, with a bounded queue (`--queue`).
//!
//! To repeat: tables 2 to 4, and why this was slower than `persistent`: threads and locks cost
//! every request, while only a client that pipelines has anything to overlap.
//!
//! It differs like [`persistent`](super::persistent).

use std::convert::Infallible;
use std::io::{self, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use super::PIECE;
use crate::http::{Answer, Root};
use crate::net::{self, Input};

/// Serves forever, `threads` connections at a time, each with up to `queue` waiting responses.
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
        let (responses, to_send) = sync_channel(queue);
        thread::scope(|scope| {
            let sender = || send(&socket, to_send);
            if thread::Builder::new().spawn_scoped(scope, sender).is_ok() {
                // A broken connection affects no other.
                let _ = handle(&socket, &mut input, &root, responses);
            }
            // The scope waits for the sender, which ends when it has sent everything in the queue.
        });
        input.close(&socket);
    })
}

/// Receives and parses requests, and reads the files.
#[expect(clippy::needless_pass_by_value, reason = "its end is what tells the next thread to end")]
fn handle(
    socket: &TcpStream,
    input: &mut Input,
    root: &Root,
    responses: SyncSender<Vec<u8>>,
) -> io::Result<()> {
    while let Some(request) = input.next(socket)? {
        let keep = request.as_ref().is_ok_and(|request| request.keep_alive);
        let mut response = Answer::to(&request, root).into_pieces(keep, PIECE);
        while let Some(piece) = response.next()? {
            if responses.send(piece).is_err() {
                return Ok(());
            }
        }
        if !keep {
            break;
        }
    }
    Ok(())
}

/// Sends responses in their order until the queue ends.
fn send(mut socket: &TcpStream, responses: Receiver<Vec<u8>>) {
    for response in responses {
        if socket.write_all(&response).is_err() {
            // Wakes the other thread, which may be waiting for a request.
            let _ = socket.shutdown(Shutdown::Both);
            return;
        }
    }
}
