//! `limit` sends the file for every byte, in both ways of sending.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;

use testkit::{Program, SlowReader};

use crate::support::{LIMIT, Server, Site, baseline};

fn start(site: &Site, options: &[&str]) -> Server {
    let mut command = baseline();
    command.args(["limit", "--listen", "127.0.0.1:0", "--file"]);
    command.arg(site.root().join("big.bin")).args(options);
    Server::run(&mut command)
}

fn connect(server: &Server) -> TcpStream {
    let socket = TcpStream::connect(server.address).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    socket
}

fn every_byte_is_answered(ways: &[&str]) {
    let site = Site::new();
    for length in [1_usize, 65_536, 3_000_001] {
        let bytes = length.to_string();
        let options = [ways, &["--bytes", &bytes]].concat();
        let server = start(&site, &options);
        let mut socket = connect(&server);
        let mut answer = vec![0; length];
        for asked in [1, 1, 3, 1] {
            socket.write_all(&vec![b'x'; asked]).unwrap();
            for _ in 0..asked {
                socket.read_exact(&mut answer).unwrap();
                assert!(answer == site.big[..length]);
            }
        }
        // More requests than are read at once, followed by the end of sending.
        let many = if length > 100_000 { 5 } else { 150 };
        socket.write_all(&vec![b'x'; many]).unwrap();
        socket.shutdown(Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        socket.read_to_end(&mut rest).unwrap();
        assert!(rest == site.big[..length].repeat(many));
    }
}

#[test]
fn with_sendfile() {
    every_byte_is_answered(&[]);
}

#[test]
fn with_write() {
    every_byte_is_answered(&["--write"]);
}

/// Whether programs may use `io_uring` here. Containers often forbid it.
#[allow(clippy::print_stdout)]
fn has_uring() -> bool {
    // As the server makes it.
    let mut ring = io_uring::IoUring::<io_uring::squeue::Entry>::builder();
    let ring = ring.setup_single_issuer().setup_defer_taskrun().build(1);
    ring.inspect_err(|error| println!("not tested, because there is no io_uring: {error}")).is_ok()
}

#[test]
fn with_uring() {
    if has_uring() {
        every_byte_is_answered(&["--write", "--uring"]);
    }
}

#[test]
fn many_clients_and_several_loops() {
    let site = Site::new();
    for options in [&["--workers", "3", "--bytes", "1MiB"][..], &["--write", "--bytes", "1MiB"]] {
        let server = start(&site, options);
        let before = server.descriptors().len();
        thread::scope(|scope| {
            for _ in 0..50 {
                scope.spawn(|| {
                    let mut socket = connect(&server);
                    let mut answer = vec![0; 1 << 20];
                    for _ in 0..4 {
                        socket.write_all(b"x").unwrap();
                        socket.read_exact(&mut answer).unwrap();
                        assert!(answer == site.big[..1 << 20]);
                    }
                });
            }
        });
        server.wait_for_descriptors("all closed", |now| now.len() == before);
    }
}

/// Nobody asks. A client that takes nothing is left out, and does not delay the others.
#[test]
fn everybody_gets_a_broadcast() {
    let site = Site::new();
    for ways in [&[][..], &["--write"], &["--write", "--uring"]] {
        if ways.contains(&"--uring") && !has_uring() {
            continue;
        }
        let options = [ways, &["--bytes", "3000001", "--broadcast", "20ms"]].concat();
        let server = start(&site, &options);
        let slow = SlowReader::start(server.address, b"", 0).unwrap();
        let mut sockets: Vec<_> = (0..5).map(|_| connect(&server)).collect();
        let mut answer = vec![0; 3_000_001];
        for _ in 0..4 {
            for socket in &mut sockets {
                socket.read_exact(&mut answer).unwrap();
                assert!(answer == site.big[..3_000_001]);
            }
        }
        drop(slow);
    }
}

#[test]
fn silent_peers_are_given_up() {
    let site = Site::new();
    let are_given_up = |ways: &[&str]| {
        // Long enough that both are seen as open, where the machine stands still for some seconds.
        let server = start(&site, &[ways, &["--timeout", "10s"]].concat());
        let before = server.descriptors().len();
        let mut mute = connect(&server);
        let slow = SlowReader::start(server.address, b"x", 0).unwrap();
        server.wait_for_descriptors("both accepted", |now| now.len() == before + 2);
        // The end of a ring of this process may interrupt a read, which this one then goes on with.
        assert_eq!(mute.read_to_end(&mut Vec::new()).unwrap(), 0, "closed");
        server.wait_for_descriptors("both given up", |now| now.len() == before);
        drop(slow);
    };
    // Both ways at the same time.
    thread::scope(|scope| {
        scope.spawn(|| are_given_up(&[]));
        if has_uring() {
            are_given_up(&["--write", "--uring"]);
        }
    });
}

#[test]
fn bytes_that_the_file_does_not_have_are_refused() {
    let site = Site::new();
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty");
    fs::write(&empty, "").unwrap();
    for (file, options) in [
        (site.root().join("small.txt"), &["--bytes", "6"][..]),
        (site.root().join("small.txt"), &["--bytes", "0"]),
        (site.root().join("missing"), &[]),
        (empty, &[]),
    ] {
        let mut command = baseline();
        command.args(["limit", "--listen", "127.0.0.1:0", "--file"]).arg(file).args(options);
        let finished = Program::spawn(&mut command).wait(LIMIT);
        assert_eq!(finished.status.code(), Some(2), "{finished:?}");
        assert!(finished.stdout.is_empty() && !finished.stderr.is_empty(), "{finished:?}");
    }
}
