//! Ports for programs that do not accept port 0.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::fs::{self, File};
use std::hash::BuildHasher;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::Range;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};

/// These ports are below those that Linux assigns to port 0 and to outgoing connections
/// (`net.ipv4.ip_local_port_range`, 32768 and up). A port from that range could soon belong to
/// another test, once it was returned to the kernel. They are also below those of streamgauge's
/// lab, 20000 and up.
const PORTS: Range<u16> = 10_000..20_000;

/// A TCP port of 127.0.0.1. No other test has it while this value lives, and nobody listened on it
/// when it was found.
#[derive(Debug)]
pub struct Port {
    number: u16,
    /// Locked file, which tests in other processes check.
    _claim: File,
}

impl Port {
    /// Finds a port.
    ///
    /// # Panics
    /// There is no free port, or claims cannot be written to the folder for temporary files.
    pub fn find() -> Self {
        let user = rustix::process::getuid().as_raw();
        let claims = std::env::temp_dir().join(format!("headwater-test-ports-{user}"));
        let written = "claims of ports can be written";
        fs::create_dir_all(&claims).expect(written);
        // A random port, because connections to a program that has just ended may still be closing.
        let random = RandomState::new();
        (0..1000_u32)
            .map(|turn| PORTS.start + (random.hash_one(turn) % PORTS.len() as u64) as u16)
            .find_map(|number| {
                let claim = File::create(claims.join(number.to_string())).expect(written);
                claim.try_lock().ok()?;
                reserve(number).ok()?;
                Some(Self { number, _claim: claim })
            })
            .expect("one of a thousand ports is free")
    }

    /// The port number.
    pub fn number(&self) -> u16 {
        self.number
    }
}

/// Binds a socket to a port on which nobody listens. The socket does not listen itself.
///
/// A child that another thread starts has the sockets of this process until it becomes another program, which takes
/// long on a busy machine. If a socket in its hands listened, the port would not be free yet. A bound one does no harm:
/// Linux lets others bind, and listen, where all sockets allow their address to be used again.
fn reserve(number: u16) -> Result<OwnedFd, Errno> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, number))?;
    Ok(socket)
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn ports_that_are_held_differ_and_can_be_listened_on() {
        let ports: Vec<_> = (0..300).map(|_| Port::find()).collect();
        let _listeners: Vec<_> = ports
            .iter()
            .map(|port| {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port.number()));
                listener.unwrap_or_else(|error| panic!("{port}: {error}\n{}", sockets(port)))
            })
            .collect();
    }

    #[test]
    fn a_port_can_be_listened_on_while_another_has_its_reservation() {
        let port = Port::find();
        let _in_the_hands_of_a_child = reserve(port.number()).unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port.number()));
        listener.as_ref().unwrap_or_else(|error| panic!("{port}: {error}"));
        assert_eq!(reserve(port.number()).unwrap_err(), Errno::ADDRINUSE);
    }

    /// The TCP sockets of a port, as Linux lists them: with their state, owner and inode.
    fn sockets(port: &Port) -> String {
        let all = fs::read_to_string("/proc/net/tcp").unwrap_or_default();
        let local = format!(":{:04X} ", port.number());
        let lines: Vec<_> = all.lines().filter(|line| line.contains(&local)).collect();
        lines.join("\n")
    }
}
