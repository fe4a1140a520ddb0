//! `SIOCOUTQ` and `TCP_INFO`, which neither the standard library nor rustix nor socket2 provides.

#![allow(unsafe_code)]

use std::mem::MaybeUninit;
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

/// What the kernel reports of a connection. Times are in microseconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Told {
    /// Bytes in the kernel that are not acknowledged. `TCP_INFO` gives no such figure: it would
    /// have to be added up from sent and resent bytes, and bytes in a full queue of this host
    /// count as neither.
    pub unacknowledged: u64,
    /// Bytes that are acknowledged.
    pub acknowledged: u64,
    /// Time in which it had data to send. It counts in ticks of the kernel's clock (4 ms at 250
    /// a second).
    pub busy: u64,
    /// The part of that time in which the peer's receive window was full.
    pub viewer_limited: u64,
    /// The smoothed round trip.
    pub rtt: u64,
    /// The shortest round trip.
    pub min_rtt: u64,
}

/// Reads `TCP_INFO`. `None` if the kernel is older than Linux 4.10 or the connection is gone.
pub fn told(tcp: &TcpStream) -> Option<Told> {
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let room = size_of::<libc::tcp_info>();
    let mut size = libc::socklen_t::try_from(room).ok()?;
    // SAFETY: `info` is alive during the call, has `size` bytes, and its fields are integers.
    // The kernel writes at most `size` bytes to it, and only during the call.
    let result = unsafe {
        libc::getsockopt(
            tcp.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut size,
        )
    };
    let known = std::mem::offset_of!(libc::tcp_info, tcpi_sndbuf_limited);
    if result != 0 || usize::try_from(size).ok()? < known {
        return None;
    }
    // SAFETY: every bit pattern is a valid integer, and fields that the kernel has not written
    // are 0.
    let info = unsafe { info.assume_init() };
    Some(Told {
        unacknowledged: unacknowledged(tcp)?,
        acknowledged: info.tcpi_bytes_acked,
        busy: info.tcpi_busy_time,
        viewer_limited: info.tcpi_rwnd_limited,
        rtt: info.tcpi_rtt.into(),
        min_rtt: info.tcpi_min_rtt.into(),
    })
}

#[cfg(test)]
mod tests {
    use std::io;

    use socket2::SockRef;
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    use super::*;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let (near, far) =
            tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
        (near.unwrap(), far.unwrap().0)
    }

    #[tokio::test]
    async fn the_kernel_tells_what_waits_and_what_came_through() {
        let (near, mut far) = pair().await;
        SockRef::from(&near).set_send_buffer_size(64 << 10).unwrap();
        let block = [7; 64 << 10];
        let mut sent = 0_u64;
        loop {
            match near.try_write(&block) {
                Ok(size) => sent += size as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        let seen = told(&near).unwrap();
        assert!(seen.unacknowledged > 0 && seen.acknowledged + seen.unacknowledged >= sent);
        let mut got = vec![0; usize::try_from(sent).unwrap()];
        far.read_exact(&mut got).await.unwrap();
        let seen = loop {
            let seen = told(&near).unwrap();
            if seen.unacknowledged == 0 {
                break seen;
            }
            tokio::task::yield_now().await;
        };
        assert!(seen.acknowledged >= sent && seen.min_rtt > 0, "{seen:?}");
    }
}
