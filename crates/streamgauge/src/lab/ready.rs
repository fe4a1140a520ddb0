//! Checks whether a started server can be used.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// How long one check may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// How many bytes of a log are searched for a line. A server reports early that it is ready.
const LOOKED_THROUGH: u64 = 1 << 20;

/// The condition to wait for, with its variables filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Condition {
    /// HTTP from this address answers this path.
    Answers { address: String, path: String },
    /// This address accepts connections.
    Accepts { address: String },
    /// A line that the server printed contains this text. The output is in this file, from this
    /// byte on.
    Prints { text: String, log: PathBuf, from: u64 },
}

impl Condition {
    /// Makes the condition that an `http://` URL is answered.
    ///
    /// # Errors
    /// It is another kind of URL, or has no port.
    pub(super) fn answers(url: &str) -> anyhow::Result<Self> {
        let rest = url.strip_prefix("http://").with_context(|| format!("{url}: not http://…"))?;
        let (address, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if !address.contains(':') || url.contains(|c: char| c.is_ascii_control() || c == ' ') {
            bail!("{url}: not http://HOST:PORT/PATH");
        }
        let path = if path.is_empty() { "/" } else { path };
        Ok(Self::Answers { address: address.to_owned(), path: path.to_owned() })
    }

    /// Whether the condition holds. A failed connection is no error; the condition does not hold
    /// yet.
    pub(super) fn holds(&self) -> bool {
        let looked = match self {
            Self::Answers { address, path } => answers(address, path),
            Self::Accepts { address } => connect(address).map(|_| true),
            Self::Prints { text, log, from } => prints(text, log, *from),
        };
        looked.unwrap_or(false)
    }
}

fn connect(address: &str) -> io::Result<TcpStream> {
    let address = address.to_socket_addrs()?.next().ok_or(io::ErrorKind::NotFound)?;
    TcpStream::connect_timeout(&address, PATIENCE)
}

/// Any answer is enough, even 404.
fn answers(address: &str, path: &str) -> io::Result<bool> {
    let mut connection = connect(address)?;
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.set_write_timeout(Some(PATIENCE))?;
    let head = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    connection.write_all(head.as_bytes())?;
    let mut answer = [0; 5];
    connection.read_exact(&mut answer)?;
    Ok(&answer == b"HTTP/")
}

fn prints(text: &str, log: &Path, from: u64) -> io::Result<bool> {
    let mut file = File::open(log)?;
    file.seek(SeekFrom::Start(from))?;
    let mut said = Vec::new();
    file.take(LOOKED_THROUGH).read_to_end(&mut said)?;
    Ok(String::from_utf8_lossy(&said).split_inclusive('\n').any(|line| {
        // A line without its end may go on.
        line.ends_with('\n') && line.contains(text)
    }))
}

/// Runs `work` in the network namespace with this name, or in the current one without a name.
/// Namespaces belong to threads, so the rest of this program stays where it is.
///
/// # Errors
/// There is no such namespace, or this program may not enter it.
pub(super) fn inside<T: Send>(
    netns: Option<&str>,
    work: impl FnOnce() -> anyhow::Result<T> + Send,
) -> anyhow::Result<T> {
    let Some(name) = netns else { return work() };
    let path = Path::new("/run/netns").join(name);
    let entered = || -> anyhow::Result<T> {
        let namespace = File::open(&path).with_context(|| path.display().to_string())?;
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
            .with_context(|| path.display().to_string())?;
        work()
    };
    std::thread::scope(|scope| match scope.spawn(entered).join() {
        Ok(done) => done,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let answers = |address: &str, path: &str| Condition::Answers {
            address: address.to_owned(),
            path: path.to_owned(),
        };
        assert_eq!(Condition::answers("http://h:1/a/b").expect("one"), answers("h:1", "/a/b"));
        assert_eq!(Condition::answers("http://h:1").expect("one"), answers("h:1", "/"));
        for bad in ["https://h:1/", "http://h/", "http://h:1/a b", "http://h:1/\r\nX: y"] {
            assert!(Condition::answers(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_port_accepts_while_somebody_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        let accepts = Condition::Accepts { address: address.clone() };
        assert!(accepts.holds());
        // A port that listens does not answer yet.
        let closer = std::thread::spawn(move || {
            for connection in listener.incoming().take(2) {
                drop(connection);
            }
        });
        assert!(!Condition::answers(&format!("http://{address}/")).expect("one").holds());
        closer.join().expect("no panic");
        assert!(!accepts.holds());
    }

    #[test]
    fn only_whole_lines_of_this_attempt_count() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("log");
        let prints = |from| Condition::Prints { text: "ready".to_owned(), log: log.clone(), from };
        assert!(!prints(0).holds());
        std::fs::write(&log, "is rea").expect("written");
        assert!(!prints(0).holds());
        std::fs::write(&log, "is ready").expect("written");
        assert!(!prints(0).holds());
        std::fs::write(&log, "is ready 1\n").expect("written");
        assert!(prints(0).holds());
        assert!(!prints(11).holds());
    }
}
