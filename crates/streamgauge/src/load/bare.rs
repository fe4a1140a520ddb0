//! The least that can be asked for: a byte, for which the server sends a number of bytes, always the
//! same (`limit://HOST:PORT`, as `baseline limit` serves it). No HTTP, but the same connections,
//! counters and system calls, so that what HTTP adds can be told.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::before::{Before, Ended};
use super::target::Target;
use super::url::{Origin, Scheme};
use super::{Error, Plan};

/// What is sent; any byte will do.
pub(super) const REQUEST: u8 = b'.';

/// How many bytes answer a request for `target`, if that is without HTTP. Known once
/// [`find_lengths`] has asked.
pub(super) fn answer(target: &Target) -> Option<u64> {
    (target.url.origin.scheme == Scheme::Limit).then_some(target.length.unwrap_or_default())
}

/// Finds out how many bytes each server sends for one. That must be what the plan says, if it says
/// so: answers have no heads, so one of another length could not be told from the next.
///
/// # Errors
/// [`Error::Bare`]: it is another number, none, or there is no answer.
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
    // What is to be asked for is settled.
    plan.rule = None;
    Ok(())
}

/// Sends a byte and no more, and counts what comes until the server closes, at most one byte more
/// than `wanted`.
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
