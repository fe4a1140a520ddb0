//! A relay that delays the bytes of a server by a known time.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

/// A relay on a free port. Its threads end with their connections, or with the process of the test.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
}

impl Relay {
    /// Starts a relay to this server.
    pub(crate) fn start(server: SocketAddr, held: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for viewer in listener.incoming().flatten() {
                let server = TcpStream::connect(server).unwrap();
                let (from, to) = (viewer.try_clone().unwrap(), server.try_clone().unwrap());
                thread::spawn(move || pass_on(from, to));
                thread::spawn(move || hold_back(server, viewer, held));
            }
        });
        Self { address }
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream) {
    // A closed connection ends the relay. Nobody needs to know.
    let _ = io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}

/// Passes on each piece after holding it for `held`.
fn hold_back(mut from: TcpStream, mut to: TcpStream, held: Duration) {
    let (sender, receiver) = channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        for (due, bytes) in receiver {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                return;
            }
        }
    });
    let mut buffer = vec![0; 1 << 16];
    while let Ok(size @ 1..) = from.read(&mut buffer) {
        if sender.send((Instant::now() + held, buffer[..size].to_vec())).is_err() {
            return;
        }
    }
}
