//! `SIOCOUTQ`, which neither the standard library nor rustix nor socket2 provides.

#![allow(unsafe_code)]

use std::os::fd::AsRawFd;

use tokio::net::TcpStream;

/// Bytes that the kernel has taken and the peer has not acknowledged (tcp(7), `SIOCOUTQ`). `None`
/// for a connection that no longer exists.
pub fn unacknowledged(tcp: &TcpStream) -> Option<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes one integer, which lives longer than the call.
    let result = unsafe { libc::ioctl(tcp.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result == 0 { u64::try_from(bytes).ok() } else { None }
}
