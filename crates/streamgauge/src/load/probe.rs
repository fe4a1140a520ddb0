//! Where hosts are.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use super::Error;
use super::before::{Before, Ended};
use super::target::Target;
use super::url::Origin;

/// The address of every origin among the targets. A name with several has the first that somebody
/// listens at: `localhost` is often two, and the server at one of them.
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
    // That nobody listens is for the run to find.
    let found = if all.len() > 1 { all.iter().find(answers) } else { None };
    found.or(all.first()).copied().ok_or_else(|| io::Error::other("has no address"))
}

/// Where an origin is that is named by its address, which nobody has to be asked for.
pub(super) fn literal(origin: &Origin) -> Option<SocketAddr> {
    let address: IpAddr = origin.host.parse().ok()?;
    Some((address, origin.port).into())
}
