//! More connections than the limit, and a kernel that has run out of files.

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::time::Instant;

use socket2::{Domain, Socket, Type};
use testkit::{Program, Server, eventually, write_program};

use crate::support::{LIMIT, connect, metric, put, start};

/// Connections below the limit.
const INSIDE: usize = 50;

/// Attempts that are open at one time.
const BURST: usize = 500;

/// Number of attempts above the limit: `HEADWATER_ATTEMPTS`, or enough for each ordinary test run.
fn attempts() -> usize {
    let wished = std::env::var("HEADWATER_ATTEMPTS").ok();
    wished.map_or(5000, |wished| wished.parse().expect("HEADWATER_ATTEMPTS is a number"))
}

fn connect_from(address: IpAddr, to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((address, 0)).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    socket.into()
}

/// The server answers every attempt with a refusal and closes it. An attempt leaves no memory and
/// no descriptor in use, and not every one is logged. The connections below the limit go on.
#[test]
fn attempts_above_the_limit() {
    for limit in ["max_connections", "max_connections_per_address"] {
        // Most of the connections below the limit are idle for as long as the flood takes.
        let limits = format!("{limit} = {INSIDE}\nidle_timeout = \"10m\"\n");
        let server = start(&format!("[http]\nunlimited_networks = []\n{limits}"));
        let (_, bytes) = put(&server, "file.bin", 1000);
        let mut inside: Vec<_> = (0..INSIDE).map(|_| connect(&server)).collect();
        for client in &mut inside {
            assert_eq!(client.get("/vod/file.bin", &[]).body, bytes);
        }
        let mut flood = |attempts: usize| {
            for from in (0..attempts).step_by(BURST) {
                let burst = BURST.min(attempts - from);
                let address = Ipv4Addr::LOCALHOST.into();
                let refused: Vec<_> =
                    (0..burst).map(|_| connect_from(address, server.http)).collect();
                for mut socket in refused {
                    let mut answer = String::new();
                    socket.read_to_string(&mut answer).unwrap();
                    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer:?}");
                    assert!(answer.contains("\r\nRetry-After: "), "{answer}");
                }
                let client = &mut inside[from / BURST % INSIDE];
                assert_eq!(client.get("/vod/file.bin", &[]).body, bytes);
            }
        };
        // The first burst may take memory once. Further attempts must not.
        flood(BURST);
        let (before, open) = (server.memory(), server.descriptors());
        flood(attempts());
        let after = server.memory();
        assert!(after < before + (2 << 10), "{before} KiB before, {after} KiB after");
        // The server closes the last ones when it has heard that they have closed.
        eventually(LIMIT, "closed", || server.descriptors() <= open);
        let refused = metric(&mut inside[0], "headwater_http_connections_refused_total");
        assert_eq!(refused, (BURST + attempts()) as u64);
        let log = server.whole_log();
        let lines = log.lines().filter(|line| line.contains("refused: the limit of")).count();
        assert!((1..=20).contains(&lines), "{lines} log lines:\n{log}");
        if limit.ends_with("address") {
            // The limit holds for this address only. Another address may connect.
            let other = connect_from(Ipv4Addr::new(127, 0, 0, 2).into(), server.http);
            let mut other = testkit::http::Client::over(other, LIMIT).unwrap();
            assert_eq!(other.get("/vod/file.bin", &[]).body, bytes);
        }
    }
}

/// An `accept4` that fails as the kernel's does when it runs out of something. The first error is
/// the one for the system as a whole, which a test cannot bring about.
const EXHAUSTED: &str = r"
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_int calls;

int accept4(int fd, struct sockaddr *address, socklen_t *length, int flags) {
    static const int errors[] = {ENFILE, EMFILE, ENOBUFS, ENOMEM, ECONNABORTED, ENFILE};
    unsigned call = atomic_fetch_add(&calls, 1);
    if (call < sizeof errors / sizeof *errors) {
        errno = errors[call];
        return -1;
    }
    return syscall(SYS_accept4, fd, address, length, flags);
}
";

#[test]
fn a_system_that_is_out_of_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("accept.c"), EXHAUSTED).unwrap();
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-o", &path("accept.so"), &path("accept.c")]);
    let compiled = Program::spawn(&mut compile).wait(LIMIT);
    assert!(compiled.status.success(), "{}", compiled.stderr);
    let script = format!(
        "#!/bin/sh\nLD_PRELOAD={} exec {} \"$@\"\n",
        path("accept.so"),
        crate::support::BINARY
    );
    write_program(&folder.path().join("headwater"), &script);

    let began = Instant::now();
    let server = Server::start(folder.path().join("headwater"), ["--workers", "1"]);
    let (_, bytes) = put(&server, "file.bin", 1000);
    let mut clients: Vec<_> = (0..5).map(|_| connect(&server)).collect();
    for client in &mut clients {
        assert_eq!(client.get("/vod/file.bin", &[]).body, bytes);
    }
    let line = server.log_line(LIMIT, |line| line.contains("cannot accept connections"));
    assert!(line.contains(" WARN ") && line.contains("os error 23"), "{line}");
    // The log tells it once in five seconds, not each time.
    let most = 1 + began.elapsed().as_secs() / 5;
    let log = server.whole_log();
    let told = log.matches("cannot accept connections").count() as u64;
    assert!((1..=most).contains(&told), "{told}: {log}");
}
