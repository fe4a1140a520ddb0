//! Finds the addresses of hosts.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use super::Error;
use super::before::{Before, Ended};
use super::target::Target;
use super::url::Origin;

/// Finds the address of every origin among the targets. If a name has several addresses, the first
/// that accepts a connection is taken: `localhost` often has two, and the server listens on one.
pub(super) fn addresses(
    targets: &[Target],
    before: &Before<'_>,
) -> Result<HashMap<Origin, SocketAddr>, Error> {
    let mut addresses = HashMap::new();
    for Target { url, .. } in targets {
        if !addresses.contains_key(&url.origin) {
            let wrong = |source| Error::Host { host: url.origin.host.clone(), source };
            let address = match literal(&url.origin) {
                Some(address) => address,
                None => {
                    let origin = url.origin.clone();
                    match before.blocking(move |left| find(&origin, left)) {
                        Ok(found) => found.map_err(wrong)?,
                        Err(Ended::Stopped) => return Err(Error::Interrupted),
                        Err(Ended::Late) => {
                            let detail = "its address was not found in time";
                            return Err(wrong(io::Error::new(ErrorKind::TimedOut, detail)));
                        }
                        Err(Ended::Thread(error)) => return Err(Error::Loop(error)),
                    }
                }
            };
            addresses.insert(url.origin.clone(), address);
        }
    }
    Ok(addresses)
}

fn find(origin: &Origin, left: Duration) -> io::Result<SocketAddr> {
    let all: Vec<_> = (origin.host.as_str(), origin.port).to_socket_addrs()?.collect();
    let timeout = left.min(Duration::from_secs(1));
    let answers = |address: &&SocketAddr| TcpStream::connect_timeout(address, timeout).is_ok();
    // If nobody listens, the run will report it.
    let found = if all.len() > 1 { all.iter().find(answers) } else { None };
    found.or(all.first()).copied().ok_or_else(|| io::Error::other("has no address"))
}

/// Address of an origin whose host is an address. It needs no lookup.
pub(super) fn literal(origin: &Origin) -> Option<SocketAddr> {
    let address: IpAddr = origin.host.parse().ok()?;
    Some((address, origin.port).into())
}
