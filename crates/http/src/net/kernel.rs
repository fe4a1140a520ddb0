//! `SIOCOUTQ`, for which neither the standard library nor rustix nor socket2 has a call.

#![allow(unsafe_code)]

use std::os::fd::AsRawFd;

use tokio::net::TcpStream;

/// Bytes that the kernel has taken and the peer has not acknowledged (tcp(7), `SIOCOUTQ`). `None` of
/// a connection that is no more.
pub fn unacknowledged(tcp: &TcpStream) -> Option<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes an integer to a live one, during the call only.
    let result = unsafe { libc::ioctl(tcp.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result == 0 { u64::try_from(bytes).ok() } else { None }
}
