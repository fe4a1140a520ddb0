use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind};
#[cfg(test)]
use std::task::Poll;
use std::time::Duration;

use rustix::net::RecvFlags;
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::watchdog::Watchdog;
use crate::{Error, tls};

/// A connection, plain or over TLS. It is read once it is ready, into a buffer that belongs to its
/// lane.
#[derive(Debug)]
pub(crate) enum Socket {
    Plain(TcpStream),
    Tls(Box<tls::Stream>),
    #[cfg(test)]
    Double(Box<crate::double::Connection>),
}

impl Socket {
    /// Waits until there may be something to read. Only one task waits for a socket, so the
    /// socket's own future is not needed; it would be ten times as large as this one.
    pub(crate) fn readable(&self) -> impl Future<Output = io::Result<()>> {
        poll_fn(move |context| match self {
            Self::Plain(tcp) => tcp.poll_read_ready(context),
            Self::Tls(stream) => stream.poll_readable(context),
            #[cfg(test)]
            Self::Double(double) => double.poll_readable(context),
        })
    }

    fn writable(&self) -> impl Future<Output = io::Result<()>> {
        poll_fn(move |context| match self {
            Self::Plain(tcp) => tcp.poll_write_ready(context),
            Self::Tls(stream) => stream.poll_writable(context),
            #[cfg(test)]
            Self::Double(_) => Poll::Ready(Ok(())),
        })
    }

    /// Reads the bytes that are there; 0 at the end.
    pub(crate) fn try_read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.try_read(into),
            Self::Tls(stream) => stream.try_read(into),
            #[cfg(test)]
            Self::Double(double) => double.try_read(into),
        }
    }

    /// Reads and throws away the bytes that are there, at most as many as `into` is long.
    pub(crate) fn try_discard(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.try_io(Interest::READABLE, || {
                // The kernel drops the bytes and returns their number (tcp(7)).
                let (_, size) = rustix::net::recv(&*tcp, into, RecvFlags::TRUNC)?;
                Ok(size)
            }),
            Self::Tls(stream) => stream.try_read(into),
            #[cfg(test)]
            Self::Double(double) => double.try_read(into),
        }
    }

    fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.try_write(bytes),
            Self::Tls(stream) => stream.try_write(bytes),
            #[cfg(test)]
            Self::Double(double) => double.try_write(bytes),
        }
    }

    /// Whether accepted bytes have not been sent yet.
    fn owes(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(stream) => stream.owes(),
            #[cfg(test)]
            Self::Double(_) => false,
        }
    }
}

/// Sends all bytes. Calls `sent` with the number of bytes after each write.
pub(crate) async fn write_all(
    socket: &mut Socket,
    watchdog: &mut Watchdog,
    mut bytes: &[u8],
    sent: impl Fn(usize),
) -> Result<(), Error> {
    while !bytes.is_empty() || socket.owes() {
        match socket.try_write(bytes) {
            Ok(written) => {
                sent(written);
                bytes = bytes.get(written..).unwrap_or_default();
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                // Boxed: requests are short, so waiting here is rare.
                Box::pin(watchdog.guard("writing", Duration::ZERO, socket.writable()))
                    .await?
                    .map_err(|error| Error::io(&error, "writing"))?;
            }
            Err(error) => return Err(Error::io(&error, "writing")),
        }
    }
    Ok(())
}
