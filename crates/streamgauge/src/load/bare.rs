//! The smallest request: one byte, for which the server sends a fixed number of bytes
//! (`limit://HOST:PORT`, served by `baseline limit`). There is no HTTP, but connections, counters
//! and system calls are the same, so that the difference shows the cost of HTTP.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::before::{Before, Ended};
use super::target::Target;
use super::url::{Origin, Scheme};
use super::{Error, Plan};

/// The byte that is sent. Any other would do.
pub(super) const REQUEST: u8 = b'.';

/// How many bytes answer a request for `target`; `None` if the target speaks HTTP. The number is
/// known once [`find_lengths`] has asked.
pub(super) fn answer(target: &Target) -> Option<u64> {
    (target.url.origin.scheme == Scheme::Limit).then_some(target.length.unwrap_or_default())
}

/// Asks each server how many bytes it sends for one. The number must be that of the plan, if the
/// plan has one: answers have no heads, so after an answer of another length the next one could not
/// be found.
///
/// # Errors
/// [`Error::Bare`]: the number is another one or zero, or there is no answer.
pub(super) fn find_lengths(
    plan: &mut Plan,
    addresses: &HashMap<Origin, SocketAddr>,
    before: &Before<'_>,
) -> Result<(), Error> {
    let wanted = plan.rule.map(|rule| rule.size);
    let mut known: HashMap<Origin, u64> = HashMap::new();
    for target in &mut plan.targets {
        let origin = &target.url.origin;
        let wrong = |reason: String| Error::Bare { url: target.url.to_string(), reason };
        let length = match known.get(origin) {
            Some(length) => *length,
            None => {
                let address =
                    *addresses.get(origin).ok_or_else(|| wrong("no address".to_owned()))?;
                match before.blocking(move |left| ask(&address, left, wanted)) {
                    Ok(asked) => asked.map_err(|error| wrong(error.to_string()))?,
                    Err(Ended::Stopped) => return Err(Error::Interrupted),
                    Err(ended) => return Err(wrong(ended.to_string())),
                }
            }
        };
        if length == 0 {
            return Err(wrong("nothing was sent for a byte".to_owned()));
        }
        if let Some(wanted) = wanted.filter(|wanted| *wanted != length) {
            let more = if length > wanted { " or more" } else { "" };
            let reason =
                format!("{length} bytes{more} were sent for one, not {wanted} (--range-size)");
            return Err(wrong(reason));
        }
        known.insert(origin.clone(), length);
        target.length = Some(length);
    }
    // The lengths are now known.
    plan.rule = None;
    Ok(())
}

/// Sends one byte and counts the answer until the server closes, up to one byte more than `wanted`.
fn ask(address: &SocketAddr, timeout: Duration, wanted: Option<u64>) -> io::Result<u64> {
    let end = Instant::now() + timeout;
    let mut socket = TcpStream::connect_timeout(address, timeout)?;
    socket.set_nodelay(true)?;
    socket.write_all(&[REQUEST])?;
    socket.shutdown(Shutdown::Write)?;
    let mut buffer = vec![0; 64 << 10];
    let mut length = 0;
    while wanted.is_none_or(|wanted| length <= wanted) {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(ErrorKind::TimedOut, "the answer to a byte has no end"));
        }
        socket.set_read_timeout(Some(left))?;
        match socket.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => length += read as u64,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                return Err(io::Error::new(ErrorKind::TimedOut, "no end of an answer in time"));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}
