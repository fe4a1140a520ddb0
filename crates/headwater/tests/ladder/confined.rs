//! ffmpeg decodes what strangers send. It can do little else.

use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;

use testkit::Server;

use crate::support::{LIMIT, RUNGS, clip, ffmpeg, is_over, media, named, with_renditions};
use crate::support::{publish, server, server_waiting};

/// Acts like a decoder that an attacker controls, reports each result, and waits for the end of its
/// input.
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

/// Tries the system calls that the sandbox refuses, and reports in one line how many there were and
/// which were not refused. The file is the test's own, and calls that would change the machine have
/// arguments that make them do nothing.
const CALLS: &str = r#"#!/usr/bin/python3
import ctypes, errno, mmap, os, platform, resource, socket, sys

libc = ctypes.CDLL(None, use_errno=True)
FILE, PARENT = "@FOLDER@/secret", os.getppid()
CLONE, KEYCTL, BPF, MODULE, REBOOT, KEXEC, SETTIME = {
    "x86_64": (56, 250, 321, 175, 169, 246, 227),
    "aarch64": (220, 219, 280, 105, 142, 104, 112),
}[platform.machine()]
SHMAT, SHMCTL, SEMOP, SEMTIMEDOP, SEMCTL, MSGSND, MSGRCV, MSGCTL = {
    "x86_64": (30, 31, 65, 220, 66, 69, 70, 71),
    "aarch64": (196, 195, 193, 192, 191, 189, 188, 187),
}[platform.machine()]
CLONE3, FCHMODAT2, DETACH = 435, 452, 17
NEWUSER, PARENT_OF_CLONE, SIGCHLD = 0x10000000, 0x8000, 17
GETCAP, SETFLAGS, F_SETOWN, READ_BOUND, NO_NEW_PRIVS = 0x20080522, 0x40086602, 8, 23, 39
usr = os.open("/usr", os.O_RDONLY)

def call(function, *arguments):
    found = function(*arguments)
    if found < 0:
        raise OSError(ctypes.get_errno(), "call")
    return found

def system(*arguments):
    return call(libc.syscall, *[ctypes.c_long(each) for each in arguments])

def clone(flags):
    if system(CLONE, flags | SIGCHLD, 0, 0, 0, 0) == 0:
        os._exit(0)

def capabilities():
    sets = (ctypes.c_uint32 * 6)()
    call(libc.capget, (ctypes.c_uint32 * 2)(GETCAP, 0), sets)
    root = os.getuid() == 0
    return sum(sets) + sum(libc.prctl(READ_BOUND, each) == 1 for each in range(64 if root else 0))

EPERM = {
    "chmod": lambda: os.chmod(FILE, 0o777),
    "fchmod": lambda: os.fchmod(usr, os.fstat(usr).st_mode & 0o7777),
    "fchmodat2": lambda: system(FCHMODAT2, usr, 0, 0, 0),
    "chown": lambda: os.chown(FILE, os.getuid(), os.getgid()),
    "lchown": lambda: os.lchown(FILE, os.getuid(), os.getgid()),
    "utime": lambda: os.utime(FILE, (1, 1)),
    "setxattr": lambda: os.setxattr(FILE, "user.x", b"1"),
    "removexattr": lambda: os.removexattr(FILE, "user.x"),
    "chattr": lambda: call(libc.ioctl, usr, ctypes.c_ulong(SETFLAGS), None),
    "truncate": lambda: os.truncate(FILE, 0),
    "link": lambda: os.link(FILE, FILE + "2"),
    "symlink": lambda: os.symlink("/etc", FILE + "3"),
    "rename": lambda: os.rename(FILE, FILE + "4"),
    "unlink": lambda: os.unlink(FILE),
    "mkdir": lambda: os.mkdir(FILE + "5"),
    "mkfifo": lambda: os.mkfifo(FILE + "6"),
    "inotify": lambda: call(libc.inotify_init1, 0),
    "socketpair": lambda: socket.socketpair(),
    "ptrace": lambda: call(libc.ptrace, DETACH, PARENT, None, None),
    "process_vm_readv": lambda: call(libc.process_vm_readv, PARENT, None, 0, None, 0, 0),
    "prlimit": lambda: resource.prlimit(PARENT, resource.RLIMIT_CORE),
    "setpriority": lambda: os.setpriority(os.PRIO_PROCESS, PARENT, 19),
    "sched_setscheduler": lambda: os.sched_setscheduler(PARENT, 0, os.sched_param(0)),
    "kill": lambda: os.kill(PARENT, 0),
    "tgkill": lambda: call(libc.tgkill, PARENT, PARENT, 0),
    "setown": lambda: call(libc.fcntl, 0, F_SETOWN, PARENT),
    "setsid": lambda: os.setsid(),
    "setpgid": lambda: os.setpgid(0, 0),
    "user namespace": lambda: clone(NEWUSER),
    "sibling": lambda: clone(PARENT_OF_CLONE),
    "unshare": lambda: call(libc.unshare, NEWUSER),
    "mount": lambda: call(libc.mount, None, None, None, 0, None),
    "chroot": lambda: call(libc.chroot, b"/usr"),
    "swapon": lambda: call(libc.swapon, None, 0),
    "sethostname": lambda: call(libc.sethostname, None, 1),
    "settime": lambda: system(SETTIME, -1, 0),
    "reboot": lambda: system(REBOOT, 0, 0, 0, 0),
    "kexec_load": lambda: system(KEXEC, 0, 0, 0, -1),
    "init_module": lambda: system(MODULE, 0, 0, 0),
    "bpf": lambda: system(BPF, -1, 0, 0),
    "keyctl": lambda: system(KEYCTL, -1, 0, 0, 0, 0),
    "shmget": lambda: call(libc.shmget, 0, 4096, 0o1600),
    "shmat": lambda: system(SHMAT, -1, 0, 0),
    "shmctl": lambda: system(SHMCTL, -1, -1, 0),
    "semop": lambda: system(SEMOP, -1, 0, 0),
    "semtimedop": lambda: system(SEMTIMEDOP, -1, 0, 0, 0),
    "semctl": lambda: system(SEMCTL, -1, 0, -1, 0),
    "msgsnd": lambda: system(MSGSND, -1, 0, 0, 0),
    "msgrcv": lambda: system(MSGRCV, -1, 0, 0, 0, 0),
    "msgctl": lambda: system(MSGCTL, -1, -1, 0),
}
ENOSYS = {"clone3": lambda: system(CLONE3, 0, 0)}
ENOMEM = {"shared": lambda: mmap.mmap(-1, 8 << 30, flags=mmap.MAP_SHARED | 0x4020)}

def errno_of(what):
    try:
        return f"gave {what()}"
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))

wrong = []
for expected, calls in (("EPERM", EPERM), ("ENOSYS", ENOSYS), ("ENOMEM", ENOMEM)):
    for name, what in calls.items():
        found = errno_of(what)
        if found != expected:
            wrong.append(f"{name} {found}")
if capabilities() or libc.prctl(NO_NEW_PRIVS, 0, 0, 0, 0) != 1:
    wrong.append("has privileges")
# The process keeps the rights it needs: threads and children, its own priority, to end itself.
if os.fork() == 0:
    os._exit(0)
os.wait()
os.setpriority(os.PRIO_PROCESS, 0, 19)
call(libc.tgkill, os.getpid(), os.getpid(), 0)
print(f"[info] calls: {len(EPERM)}, not refused: {wrong}.", file=sys.stderr, flush=True)
sys.stdin.buffer.read()
"#;

/// The result of the attempt `name`.
fn tried(server: &Server, name: &str) -> String {
    let begin = format!("ffmpeg: {name}: ");
    let line = server.log_line(LIMIT, |line| line.contains(&begin));
    let found = line.split(&begin).nth(1).unwrap();
    found[..found.rfind('.').unwrap()].to_owned()
}

/// A server whose ffmpeg is this program, with these lines in `[ladder]`, and a listener on the
/// port that the program tries to connect to.
fn trying(folder: &tempfile::TempDir, tries: &str, lines: &str) -> (Server, TcpListener) {
    let path = folder.path().join("tries");
    std::fs::write(folder.path().join("secret"), "secret").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let text = tries
        .replace("@FOLDER@", folder.path().to_str().unwrap())
        .replace("@PORT@", &port.to_string());
    testkit::write_program(&path, &text);
    let limits = "memory = \"256MiB\"\ncores = 1\n";
    (server(&format!("ffmpeg = {path:?}\n{limits}{lines}{RUNGS}"), &["--demo"]), listener)
}

#[test]
fn a_confined_encoder_reads_writes_reaches_and_takes_no_more_than_it_needs() {
    let folder = tempfile::tempdir().unwrap();
    let (server, _listener) = trying(&folder, TRIES, "sandbox = \"require\"\n");
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

/// This holds even if the origin runs as root.
#[test]
fn calls_that_frames_do_not_need_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (server, _listener) = trying(&folder, CALLS, "sandbox = \"require\"\n");
    assert_eq!(tried(&server, "calls"), "50, not refused: []", "{}", server.log());
    let file = folder.path().join("secret").metadata().unwrap();
    assert_eq!((file.mode() & 0o111, file.nlink(), file.len()), (0, 1, 6));
    assert!(file.mtime() > 1);
}

#[test]
fn folders_that_the_encoder_may_read_are_configured() {
    let folder = tempfile::tempdir().unwrap();
    let (server, _listener) = trying(&folder, TRIES, &format!("read = [{:?}]\n", folder.path()));
    assert_eq!(tried(&server, "reads"), "secret");
    assert_eq!(tried(&server, "writes"), "EACCES");
}

#[test]
fn without_a_sandbox_it_still_has_limits() {
    let folder = tempfile::tempdir().unwrap();
    let (server, _listener) = trying(&folder, TRIES, "sandbox = \"off\"\n");
    assert_eq!(tried(&server, "reads"), "secret");
    assert_eq!(tried(&server, "writes"), "EFBIG");
    assert_eq!(tried(&server, "environment"), "['PATH']");
    assert_eq!(tried(&server, "processors"), "1");
    assert_eq!(tried(&server, "memory"), "MemoryError");
}

/// The demo's ladder needs about 150 MiB.
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
    let server = server_waiting("12s", &format!("sandbox = \"require\"\n{RUNGS}"), &[]);
    let publisher = publish(&server, &clip(&folder, "640x360", 5), "live/x", &[]);
    let offered = with_renditions(&server, "live/x");
    let low = media(&server, "live/x", &named(&offered, "160x90"), is_over);
    assert!(publisher.wait(LIMIT).status.success());
    let file = folder.path().join("low.cmaf");
    low.download(&server, &file);
    ffmpeg(["-xerror", "-i", file.to_str().unwrap(), "-f", "null", "-"]);
    // ffmpeg printed nothing, so the sandbox refused nothing that it needs.
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
    // The demo belongs to no address. Of two strangers' streams from one address, one gets a place.
    let strangers = ["live/a", "live/b"].map(|to| publish(&server, &file, to, &["--loop"]));
    let told = server.log_line(LIMIT, |line| line.contains("no renditions yet"));
    assert!(told.contains("ladder.max_per_address = 1 of its publisher"), "{told}");
    // This stream comes last, from the same address, and gets a place.
    let own = publish(&server, &file, "live/own/x", &["--loop"]);
    server.log_line(LIMIT, |line| line.contains("stream=\"own/x\"") && line.contains(" makes "));
    server.get_until("/live/own/x/index.m3u8", LIMIT, |answer| answer.text().contains("160x90"));
    testkit::eventually(LIMIT, "all three have a ladder", || streams(&server) == 3);
    drop((strangers, own));
}

#[test]
fn publishers_from_elsewhere_leave_places() {
    let folder = tempfile::tempdir().unwrap();
    let file = clip(&folder, "320x180", 20);
    let places = "max_streams = 2\nown_networks = []\nmax_outside = 1\n";
    let server = server(&format!("{places}{RUNGS}"), &[]);
    let first = publish(&server, &file, "live/a", &["--loop"]);
    server.log_line(LIMIT, |line| line.contains("stream=\"a\"") && line.contains(" makes "));
    let second = publish(&server, &file, "live/b", &["--loop"]);
    let told = server.log_line(LIMIT, |line| line.contains("no renditions yet"));
    assert!(told.contains("stream=\"b\"") && told.contains("ladder.max_outside"), "{told}");
    // The place that the first stream leaves is the second one's.
    drop(first);
    server.log_line(LIMIT, |line| line.contains("stream=\"b\"") && line.contains(" makes "));
    drop(second);
}
