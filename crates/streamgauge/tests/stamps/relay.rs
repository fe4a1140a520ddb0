//! A relay that holds back what a server says by a known time.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

/// A relay on a free port; its threads end with their connections, or with the test's process.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
}

impl Relay {
    /// To that server.
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
    // Whoever hangs up ends it; there is nobody to tell.
    let _ = io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}

/// Passes each piece on when it has been held for so long.
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
