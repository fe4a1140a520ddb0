//! Sockets for clients of any protocol.

use std::io::{self, ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType, connect, socket, sockopt};

/// Connects with a receive buffer of this many bytes. The kernel doubles this value, and grants
/// no less than some kilobytes. A server soon notices when nobody reads from such a socket.
///
/// # Errors
/// The server does not answer.
pub fn narrow_socket(address: SocketAddr, receive_buffer: usize) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket(family, SocketType::STREAM, None)?;
    // This must be set before connecting, because the window scale depends on it.
    sockopt::set_socket_recv_buffer_size(&socket, receive_buffer)?;
    connect(&socket, &address)?;
    Ok(socket.into())
}

/// Calls again as long as a signal interrupts. Linux interrupts a read with a time limit also when the process was
/// stopped and goes on (SIGSTOP and SIGCONT, signal(7)).
///
/// # Errors
/// Those of the call, except that.
pub fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Whether the peer closes the connection within `limit`. Bytes it sends before that are dropped.
///
/// # Panics
/// The socket has no read timeout to set.
pub fn is_closed_within(socket: &mut TcpStream, limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    let mut buffer = [0; 64 << 10];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        socket.set_read_timeout(Some(left)).expect("not zero");
        match uninterrupted(|| socket.read(&mut buffer)) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => return true,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_peer_that_says_something_and_closes_is_told_from_one_that_stays() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut socket = narrow_socket(listener.local_addr().unwrap(), 4096).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        peer.write_all(b"a last word").unwrap();
        assert!(!is_closed_within(&mut socket, Duration::from_millis(20)));
        drop(peer);
        assert!(is_closed_within(&mut socket, Duration::from_secs(60)));
    }
}
