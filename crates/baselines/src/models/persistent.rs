//! Zhuang and He (2021), 1.2, the *persistent server*: the simple one, but "if it sees
//! `Keep-Alive`, it would not close the connection after sending the response", and
//! `Content-Length` tells the client where the body ends.
//!
//! A thread for each connection, as in the authors' source; see [`simple`](super::simple). In this
//! model a connection that is kept and silent occupies its thread. The paper leaves it open "until
//! the process ends"; here `--timeout` ends it.
//!
//! To repeat: tables 2 to 4. (`ab` needs `-k` to keep connections; the paper's commands lack it.)
//!
//! Differences: the paper keeps a connection only where the request says `Connection: keep-alive`.
//! Here this is required only of HTTP/1.0 requests. HTTP/1.1 requests keep the connection by
//! default (RFC 9112 9.3), because today's load generators do not send the field.

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
    while let Some(request) = input.next(socket)? {
        let keep = request.as_ref().is_ok_and(|request| request.keep_alive);
        let mut response = Answer::to(&request, root).into_pieces(keep, PIECE);
        while let Some(piece) = response.next()? {
            socket.write_all(&piece)?;
        }
        if !keep {
            break;
        }
    }
    input.close(socket);
    Ok(())
}
