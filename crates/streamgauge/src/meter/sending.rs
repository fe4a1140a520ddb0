//! Threads that wait until a socket takes more bytes.

use std::fs;
use std::io;

use rustix::io::Errno;

/// Numbers of the system calls that write to the descriptor in their first argument: write, writev,
/// sendto, sendmsg, sendfile.
#[cfg(target_arch = "x86_64")]
const CALLS: &[u64] = &[1, 20, 44, 46, 40];
#[cfg(target_arch = "aarch64")]
const CALLS: &[u64] = &[64, 66, 206, 211, 71];
/// The numbers differ by architecture. For others nothing is known.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const CALLS: &[u64] = &[];

/// Whether a thread waits in a call that writes to a socket. `None` if it is not known: this program
/// may not read it, or the architecture is another.
pub(super) fn is_sending(pid: i32, thread: i32) -> Option<bool> {
    if CALLS.is_empty() {
        return None;
    }
    let call = match fs::read_to_string(format!("/proc/{pid}/task/{thread}/syscall")) {
        Ok(call) => call,
        Err(error) => return has_ended(&error).then_some(false),
    };
    let Some(descriptor) = written_to(&call) else { return Some(false) };
    match fs::read_link(format!("/proc/{pid}/fd/{descriptor}")) {
        Ok(target) => Some(target.to_string_lossy().starts_with("socket:")),
        Err(error) => has_ended(&error).then_some(false),
    }
}

/// The descriptor to which a thread waits to write, by its file `syscall` (proc_pid_syscall(5)).
/// `None` if the thread does something else.
fn written_to(call: &str) -> Option<u64> {
    // A thread that runs, or that waits outside of a call, has no number.
    let mut words = call.split_whitespace();
    let number: u64 = words.next()?.parse().ok()?;
    let descriptor = words.next()?.strip_prefix("0x")?;
    let descriptor = u64::from_str_radix(descriptor, 16).ok()?;
    CALLS.contains(&number).then_some(descriptor)
}

/// Whether a file in /proc cannot be read because its thread or descriptor is gone.
fn has_ended(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || Errno::from_io_error(error) == Some(Errno::SRCH)
}

#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use testkit::eventually;

    use super::{CALLS, is_sending, written_to};

    const LIMIT: Duration = Duration::from_secs(60);

    /// The id of a thread of this process that waits for nobody but its peer.
    fn thread_that(work: impl FnOnce() + Send + 'static) -> i32 {
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            tell.send(rustix::thread::gettid().as_raw_nonzero().get()).expect("it is waited for");
            work();
        });
        told.recv_timeout(LIMIT).expect("the thread runs")
    }

    #[test]
    fn a_thread_sends_while_its_peer_takes_nothing() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut socket, _) = listener.accept().unwrap();
        let mut waiting = socket.try_clone().unwrap();
        let reader = thread_that(move || drop(waiting.read(&mut [0])));
        // More than the buffers of both ends take.
        let writer = thread_that(move || drop(socket.write_all(&vec![0; 256 << 20])));
        eventually(LIMIT, "the writer waits", || is_sending(pid, writer) == Some(true));
        // A thread that waits to read does not send.
        assert_eq!(is_sending(pid, reader), Some(false));
        peer.set_nonblocking(true).unwrap();
        let mut taken = vec![0; 1 << 20];
        eventually(LIMIT, "the writer has written everything", || {
            drop(peer.read(&mut taken));
            is_sending(pid, writer) == Some(false) && !is_alive(pid, writer)
        });
    }

    fn is_alive(pid: i32, thread: i32) -> bool {
        std::path::Path::new(&format!("/proc/{pid}/task/{thread}")).exists()
    }

    #[test]
    fn calls_are_read() {
        let write = CALLS[0];
        assert_eq!(written_to(&format!("{write} 0x1f 0x7f 0x8 0x0 0x0 0x0 0x7f 0x7f\n")), Some(31));
        for other in ["running\n", "-1 0x7ffc 0x7f00\n", "9999 0x3 0x0\n", "", "x"] {
            assert_eq!(written_to(other), None, "{other}");
        }
    }
}
