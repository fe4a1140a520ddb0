//! Zhuang and He (2021), 1.1, the *simple server*: "for each connection, buffer the request until
//! its head is complete, find the resource, check `If-Modified-Since` before reading the file,
//! generate the response string and send it back. After send finishes, close the connection,
//! because it does not support persistence."
//!
//! The paper does not tell how connections run concurrently. Its authors' published source
//! (XinyanHe/Simple-HTTP-Server) starts a detached thread for each, which blocks in `recv` and
//! `send`. So does this model, with a limit on their number.
//!
//! To repeat: tables 2 to 4.
//!
//! Differences: the whole response is one string only up to [`PIECE`] bytes of the file; a longer
//! file is read and sent in turns. `Content-Length` is sent here too (in the paper only from the
//! persistent server on), so that a client can distinguish the end from a broken connection.

use std::convert::Infallible;
use std::io::{self, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use super::PIECE;
use crate::http::{Answer, Root};
use crate::net::{self, Input};

/// Serves forever, `threads` connections at a time.
///
/// # Errors
/// Standard output is closed.
pub(crate) fn run(
    listener: &TcpListener,
    root: Root,
    threads: usize,
    timeout: Duration,
) -> io::Result<Infallible> {
    net::thread_each(listener, threads, move |socket| {
        // A broken connection affects no other.
        let _ = serve(&socket, &root, timeout);
    })
}

fn serve(mut socket: &TcpStream, root: &Root, timeout: Duration) -> io::Result<()> {
    let mut input = Input::new(timeout);
    if let Some(request) = input.next(socket)? {
        let mut response = Answer::to(&request, root).into_pieces(false, PIECE);
        while let Some(piece) = response.next()? {
            socket.write_all(&piece)?;
        }
    }
    input.close(socket);
    Ok(())
}
