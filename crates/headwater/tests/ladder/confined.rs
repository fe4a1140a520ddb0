//! That ffmpeg, which decodes what strangers send, can do little else.

use std::net::TcpListener;

use testkit::Server;

use crate::support::{LIMIT, RUNGS, clip, ffmpeg, is_over, media, multivariant, named, program};
use crate::support::{publish, server};

/// Does what a decoder that was taken over would, says how it went, and waits for the end of its input.
const TRIES: &str = r#"#!/usr/bin/python3
import ctypes, errno, os, resource, signal, socket, sys

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
FOLDER, PORT, IO_URING_SETUP = "@FOLDER@", int("@PORT@"), 425

def tries(name, what):
    try:
        found = what()
    except MemoryError:
        found = "MemoryError"
    except OSError as error:
        found = errno.errorcode.get(error.errno, str(error))
    print(f"[info] {name}: {found}.", file=sys.stderr, flush=True)

def io_uring():
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall(IO_URING_SETUP, 1, None)
    raise OSError(ctypes.get_errno(), "io_uring")

def write(path):
    with open(path, "wb", buffering=0) as file:
        return file.write(b"x")

tries("reads", lambda: open(FOLDER + "/secret").read())
tries("lists", lambda: os.listdir(FOLDER))
tries("origin", lambda: len(open(f"/proc/{os.getppid()}/environ").read()))
tries("writes", lambda: write(FOLDER + "/written"))
tries("connects", lambda: socket.create_connection(("127.0.0.1", PORT)))
tries("datagram", lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM))
tries("local", lambda: socket.socket(socket.AF_UNIX))
tries("io_uring", io_uring)
tries("signals", lambda: os.kill(os.getppid(), 0))
tries("environment", lambda: sorted(set(os.environ) - {"LC_CTYPE", "LD_LIBRARY_PATH"}))
tries("processors", lambda: len(os.sched_getaffinity(0)))
tries("memory", lambda: len(bytearray(512 << 20)))
sys.stdin.buffer.read()
"#;

/// What became of the thing that was tried.
fn tried(server: &Server, name: &str) -> String {
    let begin = format!("ffmpeg: {name}: ");
    let line = server.log_line(LIMIT, |line| line.contains(&begin));
    let found = line.split(&begin).nth(1).unwrap();
    found[..found.rfind('.').unwrap()].to_owned()
}

/// A server whose ffmpeg makes these tries, with these lines in `[ladder]`, and who listens where it
/// tries to connect.
fn trying(folder: &tempfile::TempDir, lines: &str) -> (Server, TcpListener) {
    let path = folder.path().join("tries");
    std::fs::write(folder.path().join("secret"), "secret").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let text = TRIES
        .replace("@FOLDER@", folder.path().to_str().unwrap())
        .replace("@PORT@", &port.to_string());
    program(&path, &text);
    let limits = "memory = \"256MiB\"\ncores = 1\n";
    (server(&format!("ffmpeg = {path:?}\n{limits}{lines}{RUNGS}"), &["--demo"]), listener)
}

#[test]
fn it_reads_writes_reaches_and_takes_no_more_than_it_needs() {
    let folder = tempfile::tempdir().unwrap();
    let (server, _listener) = trying(&folder, "sandbox = \"require\"\n");
    for (name, expected) in [
        ("reads", "EACCES"),
        ("lists", "EACCES"),
        ("origin", "EACCES"),
        ("writes", "EACCES"),
        ("connects", "EPERM"),
        ("datagram", "EPERM"),
        ("local", "EPERM"),
        ("io_uring", "EPERM"),
        ("signals", "EPERM"),
        ("environment", "['PATH']"),
        ("processors", "1"),
        ("memory", "MemoryError"),
    ] {
        assert_eq!(tried(&server, name), expected, "{name}: {}", server.log());
    }
    assert!(!folder.path().join("written").exists());
}

#[test]
fn what_it_may_read_besides_is_configured() {
    let folder = tempfile::tempdir().unwrap();
    let (server, _listener) = trying(&folder, &format!("read = [{:?}]\n", folder.path()));
    assert_eq!(tried(&server, "reads"), "secret");
    assert_eq!(tried(&server, "writes"), "EACCES");
}

#[test]
fn without_a_sandbox_it_still_has_limits() {
    let folder = tempfile::tempdir().unwrap();
    let (server, _listener) = trying(&folder, "sandbox = \"off\"\n");
    assert_eq!(tried(&server, "reads"), "secret");
    assert_eq!(tried(&server, "writes"), "EFBIG");
    assert_eq!(tried(&server, "environment"), "['PATH']");
    assert_eq!(tried(&server, "processors"), "1");
    assert_eq!(tried(&server, "memory"), "MemoryError");
}

/// The demo's ladder needs some 150 MiB.
#[test]
fn one_that_wants_too_much_memory_fails_and_the_stream_goes_on() {
    let server = server(&format!("memory = \"64MiB\"\n{RUNGS}"), &["--demo"]);
    let said = server.log_line(LIMIT, |line| line.contains("starting it again in 2s"));
    assert!(said.contains("stream=\"demo\"") && said.contains("ffmpeg ended"), "{said}");
    let segments = |text: &str| text.matches("#EXTINF").count() >= 2;
    media(&server, "live/demo", "v0/media.m3u8", segments);
}

#[test]
fn a_confined_ffmpeg_makes_renditions_as_any() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(&format!("sandbox = \"require\"\n{RUNGS}"), &[]);
    let publisher = publish(&server, &clip(&folder, "640x360", 5), "live/x", &[]);
    let offered = multivariant(&server, "live/x");
    let low = media(&server, "live/x", &named(&offered, "160x90"), is_over);
    assert!(publisher.wait(LIMIT).status.success());
    let file = folder.path().join("low.cmaf");
    low.download(&server, &file);
    ffmpeg(["-xerror", "-i", file.to_str().unwrap(), "-f", "null", "-"]);
    // It said nothing: there was nothing that it missed.
    let log = server.whole_log();
    let said: Vec<_> = log.lines().filter(|line| line.contains("ladder: ffmpeg: ")).collect();
    assert!(said.is_empty(), "{said:?}");
}

#[test]
fn one_address_and_all_strangers_leave_places() {
    let folder = tempfile::tempdir().unwrap();
    let file = clip(&folder, "320x180", 20);
    let places = "max_streams = 3\nmax_per_address = 1\nreserved = 1\nreserved_for = [\"own/*\"]\n";
    let server = server(&format!("{places}{RUNGS}"), &["--demo"]);
    let streams = |server: &Server| server.log().lines().filter(|l| l.contains(" makes ")).count();
    // The demo is nobody's; of two strangers' streams from one address one has a place.
    let strangers = ["live/a", "live/b"].map(|to| publish(&server, &file, to, &["--loop"]));
    let told = server.log_line(LIMIT, |line| line.contains("no renditions yet"));
    assert!(told.contains("ladder.max_per_address = 1 of its publisher"), "{told}");
    // It comes last, from the same address, and finds a place.
    let own = publish(&server, &file, "live/own/x", &["--loop"]);
    server.log_line(LIMIT, |line| line.contains("stream=\"own/x\"") && line.contains(" makes "));
    server.get_until("/live/own/x/index.m3u8", LIMIT, |answer| answer.text().contains("160x90"));
    crate::support::until(|| streams(&server) == 3);
    drop((strangers, own));
}
