//! Listeners and sockets of datagrams that share an address, one for each event loop.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

/// How many connections the kernel completes before they are accepted. The kernel allows fewer if
/// `net.core.somaxconn` is less.
pub const BACKLOG: i32 = 4096;

/// Bytes that may wait in the kernel to be received, for each socket of datagrams. The kernel's usual 208 KiB
/// are some 90 full packets, with what it keeps beside each: less than half a second of one publisher, on a
/// machine that is busy. The kernel gives less than this if `net.core.rmem_max` is less.
pub const UNRECEIVED: usize = 4 << 20;

/// Creates a listener per worker, and returns the address that they share.
///
/// The kernel distributes connections among the listeners. It keeps at most `unsent` unsent bytes
/// per connection (`TCP_NOTSENT_LOWAT`).
///
/// # Errors
/// [`AddrInUse`](io::ErrorKind::AddrInUse) even if the other holder of the port shares it: two
/// servers on one port would each get half of the connections.
pub fn listen(
    address: SocketAddr,
    workers: NonZeroUsize,
    unsent: u32,
) -> io::Result<(Vec<std::net::TcpListener>, SocketAddr)> {
    let first = bind(address, unsent, true)?;
    let address = first.local_addr()?;
    let mut listeners = vec![first];
    for _ in 1..workers.get() {
        listeners.push(bind(address, unsent, false)?);
    }
    Ok((listeners, address))
}

/// Binds a UDP socket for each worker to one shared address. Returns the sockets and the address.
/// The kernel chooses a socket by the addresses of both ends: all datagrams of a peer come to one
/// socket.
///
/// # Errors
/// As those of [`listen`].
pub fn datagrams(
    address: SocketAddr,
    workers: NonZeroUsize,
) -> io::Result<(Vec<std::net::UdpSocket>, SocketAddr)> {
    let bind = |address: SocketAddr, first| -> io::Result<std::net::UdpSocket> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        share(&socket, address, first)?;
        socket.set_recv_buffer_size(UNRECEIVED)?;
        socket.set_nonblocking(true)?;
        Ok(socket.into())
    };
    let first = bind(address, true)?;
    let address = first.local_addr()?;
    let mut sockets = vec![first];
    for _ in 1..workers.get() {
        sockets.push(bind(address, false)?);
    }
    Ok((sockets, address))
}

/// Binds a socket to an address that further sockets of this process will share.
fn share(socket: &Socket, address: SocketAddr, first: bool) -> io::Result<()> {
    // The first socket is bound before it allows sharing, so binding fails if another process has
    // the port.
    if !first {
        socket.set_reuse_port(true)?;
    }
    socket.bind(&address.into())?;
    socket.set_reuse_port(true)
}

fn bind(address: SocketAddr, unsent: u32, first: bool) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    share(&socket, address, first)?;
    // Accepted connections inherit these options.
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_notsent_lowat(unsent)?;
    // A peer that vanished is detected in a minute or two, even when nothing is sent to it.
    let keepalive = TcpKeepalive::new().with_time(Duration::from_secs(60));
    socket.set_tcp_keepalive(&keepalive.with_interval(Duration::from_secs(15)).with_retries(4))?;
    socket.set_nonblocking(true)?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}
