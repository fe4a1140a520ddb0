//! Zhuang and He (2021), 1.2, the *persistent server*: the simple one, but "if it sees
//! `Keep-Alive`, it would not close the connection after sending the response", and
//! `Content-Length` tells the client where the body ends.
//!
//! A thread for each connection, as in the authors' source; see [`simple`](super::simple). The
//! model has the property that a connection that is kept and silent holds its thread: the paper
//! leaves it open "until the process ends", here `--timeout` ends it.
//!
//! To repeat: tables 2 to 4. (`ab` needs `-k` to keep connections; the paper's commands do not.)
//!
//! Differs: the paper keeps a connection only where the request says `Connection: keep-alive`. An
//! HTTP/1.0 request has to say so here too, an HTTP/1.1 request means it without saying
//! (RFC 9112 9.3), because today's load generators do not say it.

use std::convert::Infallible;
use std::io::{self, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use super::PIECE;
use crate::http::{Answer, Root};
use crate::net::{self, Input};

/// Serves for ever, `threads` connections at a time.
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
        // A connection that breaks concerns nobody else.
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
