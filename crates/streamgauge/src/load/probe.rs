//! Where hosts are.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use super::Error;
use super::target::Target;
use super::url::Origin;

/// The address of every origin among the targets. A name with several has the first that somebody
/// listens at: `localhost` is often two, and the server at one of them.
pub(super) fn addresses(
    targets: &[Target],
    timeout: Duration,
) -> Result<HashMap<Origin, SocketAddr>, Error> {
    let mut addresses = HashMap::new();
    for Target { url, .. } in targets {
        if !addresses.contains_key(&url.origin) {
            let address = find(&url.origin, timeout)
                .map_err(|source| Error::Host { host: url.origin.host.clone(), source })?;
            addresses.insert(url.origin.clone(), address);
        }
    }
    Ok(addresses)
}

fn find(origin: &Origin, timeout: Duration) -> io::Result<SocketAddr> {
    let all: Vec<_> = (origin.host.as_str(), origin.port).to_socket_addrs()?.collect();
    let timeout = timeout.min(Duration::from_secs(1));
    let answers = |address: &&SocketAddr| TcpStream::connect_timeout(address, timeout).is_ok();
    // That nobody listens is for the run to find.
    let found = if all.len() > 1 { all.iter().find(answers) } else { None };
    found.or(all.first()).copied().ok_or_else(|| io::Error::other("has no address"))
}

/// An address of an origin, whoever listens there.
pub(super) fn first_address(origin: &Origin) -> io::Result<SocketAddr> {
    let mut all = (origin.host.as_str(), origin.port).to_socket_addrs()?;
    all.next().ok_or_else(|| io::Error::other("has no address"))
}
