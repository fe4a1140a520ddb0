//! Running out of file descriptors. The limit is per process, so this test has its own process.

#[path = "driver/support.rs"]
#[expect(dead_code, reason = "shared with the other tests, which use the rest")]
mod support;

use std::fs::File;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Socket, Type};
use support::{LIMIT, Origin};
use testkit::eventually;
use testkit::http::Client;

#[test]
fn accepting_survives() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(64), maximum: limit.maximum })
        .expect("a limit may be lowered");
    let origin = Origin::start();
    let hello = |client: &mut Client| {
        client.send("GET", "/media/hello", &[], b"").expect("still connected");
        client.receive().expect("an answer").status()
    };
    let mut served = origin.client();
    assert_eq!(hello(&mut served), 200);

    // Once all descriptors are taken, the kernel completes these connections, but the server cannot
    // accept them.
    let sockets = [(); 3].map(|()| {
        Socket::new(Domain::IPV4, Type::STREAM, None).expect("there are descriptors yet")
    });
    let mut taken = Vec::new();
    let error = loop {
        match File::open("/dev/null") {
            Ok(file) => taken.push(file),
            Err(error) => break error,
        }
    };
    assert_eq!(error.raw_os_error(), Some(Errno::MFILE.raw_os_error()));
    let mut waiting = sockets.map(|socket| {
        socket.connect(&origin.address.into()).expect("room in the backlog");
        Client::over(socket.into(), LIMIT).expect("a socket")
    });
    let accepted = origin.totals().accepted;
    for client in &mut waiting {
        client.send("GET", "/media/hello", &[], b"").expect("the kernel takes it");
    }
    // Connections that were accepted before are still served.
    assert_eq!(hello(&mut served), 200);
    assert_eq!(origin.totals().accepted, accepted);

    drop(taken);
    for client in &mut waiting {
        assert_eq!(client.receive().expect("accepted at last").status(), 200);
    }
    drop((served, waiting));
    eventually(LIMIT, "none is open", || origin.totals().open == 0);
    assert_eq!(hello(&mut origin.client()), 200);
}
