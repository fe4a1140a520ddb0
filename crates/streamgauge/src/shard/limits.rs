//! Computes how many processes a run needs.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::ensure;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files that a process has open besides connections: standard streams, and those of its event
/// loops.
const RESERVE: u64 = 64;

/// Most processes of one run. Each may need an address of its own.
const MOST: u64 = 250;

/// Local ports that are left to other programs.
const SPARE_PORTS: u64 = 500;

/// Raises the soft limit of open descriptors to the hard limit; returns the resulting limit.
pub fn raise_descriptor_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    // If it cannot be raised, the current limit counts.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// How many local ports the kernel uses for connections (`net.ipv4.ip_local_port_range`).
fn local_ports() -> u64 {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    let ends: Vec<u64> =
        range.iter().flat_map(|range| range.split_whitespace()).flat_map(str::parse).collect();
    match ends[..] {
        [first, last] if first <= last => last - first + 1,
        // The default of Linux.
        _ => 28_232,
    }
}

/// The needs of a run's connections to one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    connections: u64,
    /// Whether the server is on the loopback of this machine. Connections may come from all its
    /// addresses (127.0.0.0/8).
    loopback: bool,
    ports: u64,
}

impl Needs {
    /// Takes the number of connections at once, and the URL of the server.
    pub fn new(connections: u64, url: &str) -> Self {
        Self { connections, loopback: is_loopback(url), ports: local_ports() }
    }

    /// Returns the number of processes: the number asked for, or as few as possible if each may
    /// open `allowed` files.
    ///
    /// # Errors
    /// The number asked for is too small, or more processes are needed than allowed.
    pub fn processes(&self, asked: Option<u32>, allowed: u64) -> anyhow::Result<u32> {
        let each = allowed.saturating_sub(RESERVE);
        ensure!(
            each > 0,
            "{allowed} open files are allowed, and {RESERVE} are needed to begin with"
        );
        let for_files = self.connections.div_ceil(each).max(1);
        let for_ports = if self.is_past_ports() && self.loopback {
            self.connections.div_ceil(self.ports_of_one())
        } else {
            1
        };
        let least = for_files.max(for_ports);
        let processes = asked.map_or(least, u64::from);
        ensure!(
            processes >= least,
            "{} connections need {least} processes of at most {each} each",
            self.connections
        );
        ensure!(processes <= MOST, "{processes} processes are more than {MOST}");
        Ok(u32::try_from(processes).unwrap_or(u32::MAX))
    }

    /// Local address of the process with this number, from 0. `None` unless the server is on the
    /// loopback and one address has too few ports.
    pub fn source(&self, number: u32) -> Option<IpAddr> {
        let last = u8::try_from(number + 2).ok()?;
        (self.loopback && self.is_past_ports()).then(|| Ipv4Addr::new(127, 0, 0, last).into())
    }

    fn ports_of_one(&self) -> u64 {
        self.ports.saturating_sub(SPARE_PORTS).max(1)
    }

    fn is_past_ports(&self) -> bool {
        self.connections > self.ports_of_one()
    }
}

/// Whether a URL has an IPv4 address of the loopback. IPv6 has only ::1 there, so it offers no
/// further addresses.
fn is_loopback(url: &str) -> bool {
    let authority = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = authority.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.split(':').next().unwrap_or_default();
    host.parse().is_ok_and(|address: Ipv4Addr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs(connections: u64, loopback: bool) -> Needs {
        Needs { connections, loopback, ports: 28_232 }
    }

    #[test]
    fn as_few_processes_as_will_do() {
        let of = |connections, loopback, asked, allowed| {
            needs(connections, loopback)
                .processes(asked, allowed)
                .map_err(|error| error.to_string())
        };
        assert_eq!(of(1, true, None, 20_000), Ok(1));
        assert_eq!(of(19_936, true, None, 20_000), Ok(1));
        assert_eq!(of(19_937, true, None, 20_000), Ok(2));
        assert_eq!(of(300, true, None, 128), Ok(5));
        assert_eq!(of(300, true, Some(8), 128), Ok(8));
        // Enough files, but not enough ports.
        assert_eq!(of(60_000, true, None, 1 << 20), Ok(3));
        assert_eq!(of(60_000, false, None, 1 << 20), Ok(1));
        let error = of(300, true, Some(4), 128).unwrap_err();
        assert!(error.contains("need 5 processes"), "{error}");
        assert!(of(1, true, None, 64).is_err());
        assert!(of(1_000_000, true, None, 128).is_err());
    }

    #[test]
    fn an_address_each_where_one_has_too_few_ports() {
        assert_eq!(needs(27_000, true).source(0), None);
        assert_eq!(needs(30_000, false).source(0), None);
        assert_eq!(needs(30_000, true).source(0), Some([127, 0, 0, 2].into()));
        assert_eq!(needs(30_000, true).source(249), Some([127, 0, 0, 251].into()));
        assert!(local_ports() > 1);
    }

    #[test]
    fn only_addresses_of_the_loopback_have_others_beside_them() {
        for (url, loopback) in [
            ("rtmp://127.0.0.1/live/x", true),
            ("http://127.3.2.1:8080/x.m3u8?a=http://h/", true),
            ("http://127.0.0.1?x", true),
            ("http://10.0.0.1/127.0.0.1", false),
            ("http://[::1]:80/x", false),
            ("http://example.org/", false),
        ] {
            assert_eq!(is_loopback(url), loopback, "{url}");
        }
    }
}
