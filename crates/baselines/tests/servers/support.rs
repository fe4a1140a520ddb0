use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use tempfile::TempDir;
use testkit::Program;
use testkit::http::{Client, Response};

/// Time limit of anything, on a machine that is busy with other tests.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Modification time of `big.bin`: the time in the second paper's example.
pub(crate) const MODIFIED: &str = "Mon, 06 Dec 2021 14:56:55 GMT";
const MODIFIED_SECONDS: u64 = 1_638_802_615;

/// Longer than two of the pieces that models hold in memory, and not a multiple of any of them.
pub(crate) const BIG: usize = (9 << 20) + 12_345;

/// Makes a test for each HTTP server from a function that takes its [`Kind`].
macro_rules! each_server {
    ($check:ident) => {
        mod $check {
            use super::super::support::Kind;

            #[test]
            fn threadpool() {
                super::$check(Kind::Threadpool);
            }
            #[test]
            fn threadpool_in_c() {
                super::$check(Kind::ThreadpoolInC);
            }
            #[test]
            fn simple() {
                super::$check(Kind::Simple);
            }
            #[test]
            fn persistent() {
                super::$check(Kind::Persistent);
            }
            #[test]
            fn pipelined() {
                super::$check(Kind::Pipelined);
            }
            #[test]
            fn staged() {
                super::$check(Kind::Staged);
            }
            #[test]
            fn hyper() {
                super::$check(Kind::Hyper);
            }
        }
    };
}
pub(crate) use each_server;

/// An HTTP server under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Threadpool,
    ThreadpoolInC,
    Simple,
    Persistent,
    Pipelined,
    Staged,
    Hyper,
}

impl Kind {
    /// Whether the model keeps connections alive.
    pub(crate) fn keeps_alive(self) -> bool {
        matches!(self, Self::Persistent | Self::Pipelined | Self::Staged | Self::Hyper)
    }

    fn command(self) -> Command {
        let model = match self {
            Self::ThreadpoolInC => return Command::new(threadpool_in_c()),
            Self::Threadpool => "threadpool",
            Self::Simple => "simple",
            Self::Persistent => "persistent",
            Self::Pipelined => "pipelined",
            Self::Staged => "staged",
            Self::Hyper => "hyper",
        };
        let mut command = baseline();
        command.arg(model);
        command
    }
}

/// The `baseline` program.
pub(crate) fn baseline() -> Command {
    Command::new(env!("CARGO_BIN_EXE_baseline"))
}

/// Builds the thread pool in C once, as `make peers` does, but with sanitizers: a read or write
/// outside of its memory ends the program, and so fails the test.
fn threadpool_in_c() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/peers/threadpool");
        let build = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sanitized");
        let mut make = Command::new("make");
        make.arg("-C").arg(source).arg(format!("BUILD={}", build.display()));
        make.arg("CFLAGS=-O1 -g -fsanitize=address,undefined -fno-sanitize-recover");
        Program::output(&mut make, Duration::from_secs(60));
        build.join("threadpool")
    })
}

/// A server that one test starts, and that ends with it.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    program: Option<Program>,
}

impl Server {
    pub(crate) fn start(kind: Kind, root: &Path, options: &[&str]) -> Self {
        let mut command = kind.command();
        command.args(["--listen", "127.0.0.1:0"]).arg("--root").arg(root).args(options);
        Self::run(&mut command)
    }

    /// Starts a server that may have at most `descriptors` descriptors.
    pub(crate) fn start_limited(kind: Kind, root: &Path, descriptors: u32) -> Self {
        let command = kind.command();
        let mut limited = Command::new("sh");
        limited
            .args(["-c", &format!("ulimit -n {descriptors} && exec \"$0\" \"$@\"")])
            .arg(command.get_program())
            .args(command.get_args())
            .args(["--listen", "127.0.0.1:0"])
            .arg("--root")
            .arg(root);
        Self::run(&mut limited)
    }

    pub(crate) fn run(command: &mut Command) -> Self {
        let program = Program::spawn(command);
        let ready = program.stdout_line(LIMIT, |_| true);
        let address = ready.strip_prefix("ready http=").and_then(|address| address.parse().ok());
        let address = address.unwrap_or_else(|| panic!("not `ready http=IP:PORT`: {ready:?}"));
        Self { address, program: Some(program) }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address, LIMIT).expect("the server accepts")
    }

    /// One request on its own connection.
    #[track_caller]
    pub(crate) fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Response {
        let mut client = self.connect();
        client.send(method, path, headers, b"").expect("the request is taken");
        client.receive().unwrap_or_else(|error| panic!("{method} {path} {headers:?}: {error}"))
    }

    /// Sends raw bytes on their own connection. Returns the answer, read like the answer to a GET.
    #[track_caller]
    pub(crate) fn ask_raw(&self, bytes: &[u8]) -> Response {
        let mut client = self.connect();
        client.send_raw(bytes).expect("the request is taken");
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]);
        client.receive().unwrap_or_else(|error| panic!("{shown:?}: {error}"))
    }

    /// The numbers of the descriptors that the server has open.
    pub(crate) fn descriptors(&self) -> Vec<u32> {
        let id = self.program.as_ref().expect("runs until it is dropped").id();
        let entries = fs::read_dir(format!("/proc/{id}/fd")).expect("it runs");
        entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
    }

    /// Waits until `wanted` accepts the server's open descriptors.
    #[track_caller]
    pub(crate) fn wait_for_descriptors(&self, what: &str, wanted: impl Fn(&[u32]) -> bool) {
        let deadline = Instant::now() + LIMIT;
        loop {
            let now = self.descriptors();
            if wanted(&now) {
                return;
            }
            assert!(Instant::now() < deadline, "{what}: {now:?}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn stop(mut self) -> testkit::Finished {
        self.program.take().expect("taken only here").stop(LIMIT)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let Some(mut program) = self.program.take() else { return };
        let running = program.is_running();
        let said = program.stderr();
        if !thread::panicking() {
            assert!(running, "the server has ended:\n{said}");
            assert!(!said.contains("panicked at"), "the server panicked:\n{said}");
        }
    }
}

/// The served folder, and its contents.
#[derive(Debug)]
pub(crate) struct Site {
    folder: TempDir,
    /// Contents of `big.bin`.
    pub(crate) big: Vec<u8>,
}

impl Site {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let root = folder.path().join("root");
        let big = testkit::noise(1, BIG);
        fs::create_dir_all(root.join("sub")).unwrap();
        fs::write(folder.path().join("secret.txt"), "secret").unwrap();
        fs::write(root.join("big.bin"), &big).unwrap();
        fs::write(root.join("small.txt"), "hello").unwrap();
        fs::write(root.join("empty.txt"), "").unwrap();
        fs::write(root.join("a b.mp4"), "a space").unwrap();
        fs::write(root.join("index.html"), "<p>root").unwrap();
        fs::write(root.join("sub/index.html"), "<p>sub").unwrap();
        symlink("../secret.txt", root.join("outside.txt")).unwrap();
        symlink("/etc/passwd", root.join("absolute.txt")).unwrap();
        symlink("../small.txt", root.join("sub/inside.txt")).unwrap();
        let modified = UNIX_EPOCH + Duration::from_secs(MODIFIED_SECONDS);
        File::open(root.join("big.bin")).unwrap().set_modified(modified).unwrap();
        Self { folder, big }
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }
}
