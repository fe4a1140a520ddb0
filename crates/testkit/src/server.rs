use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::http::{self, Response};
use crate::{Finished, Program};

/// No more arguments, for [`Server::start`] and [`Server::configured`].
pub const NO_ARGUMENTS: [&str; 0] = [];

/// The default VOD root, relative to the working directory.
const VOD_ROOT: &str = "media";

/// Time limit for a server to bind its listeners, on a machine that is busy with other tests.
const START: Duration = Duration::from_secs(60);

/// Time limit for the last lines of a server that has ended, where another process holds its log.
const LAST_WORDS: Duration = Duration::from_secs(60);

/// A `headwater serve` that a test starts, on free ports. It is stopped when dropped.
///
/// If the server has panicked, dropping it fails the test.
#[derive(Debug)]
pub struct Server {
    /// Address for HTTP.
    pub http: SocketAddr,
    /// Address for RTMP.
    pub rtmp: SocketAddr,
    /// Address for HTTP with TLS, if its configuration has one.
    pub https: Option<SocketAddr>,
    /// Address for WebRTC, unless its configuration disables it.
    pub webrtc: Option<SocketAddr>,
    /// Address for RTMP with TLS, if its configuration has one.
    pub rtmps: Option<SocketAddr>,
    /// Address of the control plane, if the arguments name another one than the default.
    pub control: Option<SocketAddr>,
    binary: OsString,
    program: Option<Program>,
    folder: TempDir,
}

impl Server {
    /// Starts `binary`, which a test knows as `env!("CARGO_BIN_EXE_headwater")`, with `serve`, free
    /// ports on 127.0.0.1 and `args`, which may name other addresses for HTTP and WebRTC, in a folder of its own.
    /// Returns when it is ready.
    ///
    /// # Panics
    /// The server ends, or is not ready in time.
    #[track_caller]
    pub fn start<A: AsRef<OsStr>>(
        binary: impl AsRef<OsStr>,
        args: impl IntoIterator<Item = A>,
    ) -> Self {
        Self::start_command(Command::new(binary), None, args)
    }

    /// Like [`Server::start`], with a configuration file of this text.
    ///
    /// # Panics
    /// The same as those of [`Server::start`].
    #[track_caller]
    pub fn configured<A: AsRef<OsStr>>(
        binary: impl AsRef<OsStr>,
        configuration: &str,
        args: impl IntoIterator<Item = A>,
    ) -> Self {
        Self::start_command(Command::new(binary), Some(configuration), args)
    }

    /// Like [`Server::configured`], with these variables in its environment.
    ///
    /// # Panics
    /// The same as those of [`Server::start`].
    #[track_caller]
    pub fn with_environment(
        binary: impl AsRef<OsStr>,
        configuration: &str,
        environment: &[(&str, &str)],
    ) -> Self {
        let mut command = Command::new(binary);
        command.envs(environment.iter().copied());
        Self::start_command(command, Some(configuration), NO_ARGUMENTS)
    }

    #[track_caller]
    fn start_command<A: AsRef<OsStr>>(
        mut command: Command,
        configuration: Option<&str>,
        args: impl IntoIterator<Item = A>,
    ) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::create_dir(folder.path().join(VOD_ROOT)).expect("the folder is new");
        let args: Vec<_> = args.into_iter().collect();
        let binary = command.get_program().to_owned();
        command.arg("serve");
        for listener in ["--http", "--rtmp", "--webrtc"] {
            if args.iter().all(|arg| arg.as_ref() != listener) {
                command.args([listener, "127.0.0.1:0"]);
            }
        }
        if let Some(configuration) = configuration {
            let path = folder.path().join("headwater.toml");
            std::fs::write(&path, configuration).expect("the folder is new");
            command.arg("--config").arg(path);
        }
        let program = Program::spawn(command.args(args).current_dir(folder.path()));
        let ready = program.stdout_line(START, |_| true);
        let Addresses { http, rtmp, https, webrtc, rtmps, control } = addresses(&ready)
            .unwrap_or_else(|| panic!("not `ready http=IP:PORT rtmp=IP:PORT`: {ready:?}"));
        let program = Some(program);
        Self { http, rtmp, https, webrtc, rtmps, control, binary, program, folder }
    }

    /// Publishes a file with the same binary, as [`headwater_publish`] does.
    ///
    /// # Panics
    /// The binary cannot be started.
    #[track_caller]
    pub fn publish(&self, file: impl AsRef<OsStr>, url: &str, options: &[&str]) -> Program {
        headwater_publish(&self.binary, file, url, options)
    }

    /// Stops the server's process, as [`Program::pause`] does.
    pub fn pause(&self) {
        self.program().pause();
    }

    /// Lets the process go on.
    pub fn resume(&self) {
        self.program().resume();
    }

    fn program(&self) -> &Program {
        self.program.as_ref().expect("taken only by `stop`, which consumes")
    }

    /// Where operators ask: the listener of the control plane if it has an address of its own, else that for HTTP.
    pub fn operators(&self) -> SocketAddr {
        self.control.unwrap_or(self.http)
    }

    /// The `http://` URL of a path that starts with a slash.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.http)
    }

    /// The `rtmp://` URL of a stream: `live/name`.
    pub fn rtmp_url(&self, stream: &str) -> String {
        format!("rtmp://{}/{stream}", self.rtmp)
    }

    /// Its working directory. When it started, this held its configuration file, if it has one, and
    /// an empty VOD root.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The path of `/vod/NAME` in the default VOD root.
    pub fn vod(&self, name: &str) -> PathBuf {
        self.folder().join(VOD_ROOT).join(name)
    }

    /// Writes the file that it serves as `/vod/NAME`, and returns its path.
    ///
    /// # Panics
    /// The file cannot be written.
    #[track_caller]
    pub fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.vod(name);
        let folder = path.parent().expect("it is below the VOD root");
        std::fs::create_dir_all(folder).expect("the folder is ours");
        std::fs::write(&path, bytes).expect("the folder is ours");
        path
    }

    /// Sends a request on a new connection.
    ///
    /// # Panics
    /// There is no answer in time.
    #[track_caller]
    pub fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
        limit: Duration,
    ) -> Response {
        let client = http::Client::connect(self.http, limit);
        client.expect("it listens").ask(method, path, headers, body)
    }

    /// Sends a GET for a path on a new connection.
    ///
    /// # Panics
    /// There is no complete answer in a minute.
    #[track_caller]
    pub fn get(&self, path: &str) -> Response {
        http::get(self.http, path)
    }

    /// Current metrics from `/metrics`.
    ///
    /// # Panics
    /// The same as those of [`http::current_metrics`].
    #[track_caller]
    pub fn metrics(&self) -> Response {
        http::current_metrics(|| self.get("/metrics"))
    }

    /// The current value of a counter or gauge; see [`Response::metric`].
    ///
    /// # Panics
    /// There is none of that name.
    #[track_caller]
    pub fn metric(&self, name: &str) -> u64 {
        let metrics = self.metrics();
        metrics.metric(name).unwrap_or_else(|| panic!("no {name}: {}", metrics.text()))
    }

    /// Sends GETs until `wanted` accepts the answer: for effects of a stream that was just
    /// published.
    ///
    /// # Panics
    /// `limit` passes first. The message has the last answer and the server's log.
    #[track_caller]
    pub fn get_until(
        &self,
        path: &str,
        limit: Duration,
        wanted: impl Fn(&Response) -> bool,
    ) -> Response {
        let deadline = Instant::now() + limit;
        loop {
            let response = self.get(path);
            if wanted(&response) {
                return response;
            }
            assert!(
                Instant::now() < deadline,
                "{path}: not what was waited for after {limit:?}: {response:?}"
            );
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the media playlists of these tracks of a live stream, `live/x`, list this many complete segments. ffmpeg
    /// gives up on a playlist without any.
    ///
    /// # Panics
    /// `limit` passes first.
    #[track_caller]
    pub fn until_listed(&self, stream: &str, tracks: &[&str], segments: usize, limit: Duration) {
        for track in tracks {
            self.get_until(&format!("/{stream}/{track}/media.m3u8"), limit, |answer| {
                answer.status() == 200 && answer.text().matches("#EXTINF").count() >= segments
            });
        }
    }

    /// Waits until a live stream, `live/x`, is over. Returns the media playlist of one of its tracks.
    ///
    /// # Panics
    /// `limit` passes first.
    #[track_caller]
    pub fn until_ended(&self, stream: &str, track: &str, limit: Duration) -> String {
        let path = format!("/{stream}/{track}/media.m3u8");
        let ended = self.get_until(&path, limit, |answer| {
            answer.status() == 200 && answer.text().contains("#EXT-X-ENDLIST")
        });
        ended.text().to_owned()
    }

    /// Process id.
    pub fn id(&self) -> u32 {
        self.program().id()
    }

    /// Physical memory in KiB, as the kernel counts it, without pages of files: those of the program itself come as it
    /// begins to run, and others go whenever the kernel needs them.
    ///
    /// # Panics
    /// The server has ended.
    #[track_caller]
    pub fn memory(&self) -> u64 {
        self.kib("RssAnon:") + self.kib("RssShmem:")
    }

    /// Physical memory in KiB with pages of files, as [`Server::peak_memory`] counts it.
    ///
    /// # Panics
    /// The server has ended.
    #[track_caller]
    pub fn resident_memory(&self) -> u64 {
        self.kib("VmRSS:")
    }

    /// The most physical memory that the server had at any time so far, in KiB.
    ///
    /// # Panics
    /// The server has ended.
    #[track_caller]
    pub fn peak_memory(&self) -> u64 {
        self.kib("VmHWM:")
    }

    #[track_caller]
    fn kib(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id()));
        let status = status.expect("the server runs");
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
        number.and_then(|number| number.trim().parse().ok()).expect("a number of kB")
    }

    /// How many descriptors it has open, of files and of sockets.
    ///
    /// # Panics
    /// The server has ended.
    #[track_caller]
    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.id())).expect("the server runs").count()
    }

    /// Its log, with all lines that were logged before this call. A thread of the server writes the
    /// lines some time after the events, so this sends SIGHUP and waits for its line. No other
    /// SIGHUP may be under way.
    ///
    /// # Panics
    /// The server does not answer SIGHUP with a line within a minute.
    #[track_caller]
    pub fn whole_log(&self) -> String {
        let answers = |log: &str| log.matches("SIGHUP: ").count();
        let before = answers(&self.log());
        self.program().hang_up();
        let begun = Instant::now();
        loop {
            let log = self.log();
            if answers(&log) > before {
                return log;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "no answer to SIGHUP:\n{log}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Its log so far, without lines that are still on their way to standard error.
    pub fn log(&self) -> String {
        self.program().stderr()
    }

    /// Waits for the first line of its log that `wanted` accepts.
    ///
    /// # Panics
    /// `limit` passes without such a line.
    #[track_caller]
    pub fn log_line(&self, limit: Duration, wanted: impl Fn(&str) -> bool) -> String {
        self.program().stderr_line(limit, wanted)
    }

    /// Sends SIGTERM, which makes it drain. A second SIGTERM stops it at once.
    pub fn terminate(&self) {
        self.program().terminate();
    }

    /// Whether it is still running.
    pub fn is_running(&mut self) -> bool {
        self.program.as_mut().is_some_and(Program::is_running)
    }

    /// Sends SIGTERM and waits for its end.
    ///
    /// # Panics
    /// It has not ended after `limit`.
    #[track_caller]
    pub fn stop(mut self, limit: Duration) -> Finished {
        self.program.take().expect("taken only here").stop(limit)
    }
}

impl Server {
    /// Kills it, as a machine that loses its power does.
    pub fn kill(mut self) {
        drop(self.program.take());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let Some(mut program) = self.program.take() else { return };
        // A second signal ends the connections of viewers that a test has left open.
        for _ in 0..2 {
            program.terminate();
            if program.ended_within(Duration::from_secs(1)).is_some() {
                break;
            }
        }
        if !thread::panicking() {
            let log = program.last_stderr(LAST_WORDS);
            assert!(!log.contains("panicked at"), "the server panicked:\n{log}");
        }
    }
}

/// Starts `headwater publish` for a file, a URL and these options.
///
/// # Panics
/// `binary` cannot be started.
#[track_caller]
pub fn headwater_publish(
    binary: impl AsRef<OsStr>,
    file: impl AsRef<OsStr>,
    url: &str,
    options: &[&str],
) -> Program {
    Program::spawn(Command::new(binary).arg("publish").arg(file).arg(url).args(options))
}

#[derive(Debug, PartialEq, Eq)]
struct Addresses {
    http: SocketAddr,
    rtmp: SocketAddr,
    https: Option<SocketAddr>,
    webrtc: Option<SocketAddr>,
    rtmps: Option<SocketAddr>,
    control: Option<SocketAddr>,
}

/// `ready http=IP:PORT rtmp=IP:PORT`, possibly followed by ` https=IP:PORT`, ` webrtc=IP:PORT`, ` rtmps=IP:PORT` and
/// ` control=IP:PORT`
fn addresses(line: &str) -> Option<Addresses> {
    let mut words = line.split(' ').peekable();
    let ready = words.next()? == "ready";
    let http = words.next()?.strip_prefix("http=")?.parse().ok()?;
    let rtmp = words.next()?.strip_prefix("rtmp=")?.parse().ok()?;
    let mut optional = |name| match words.next_if(|word| word.starts_with(name)) {
        Some(word) => word.strip_prefix(name)?.parse().ok().map(Some),
        None => Some(None),
    };
    let (https, webrtc) = (optional("https=")?, optional("webrtc=")?);
    let (rtmps, control) = (optional("rtmps=")?, optional("control=")?);
    let found = Addresses { http, rtmp, https, webrtc, rtmps, control };
    (ready && words.next().is_none()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that starts and stops like the server.
    fn stand_in(script: &str, args: &[&str]) -> Server {
        let mut command = Command::new("sh");
        command.args(["-c", script, "headwater"]);
        Server::start_command(command, None, args)
    }

    #[test]
    fn the_ready_line_tells_where_it_listens_and_sigterm_ends_it() {
        let server = stand_in(
            "echo \"$*\" >&2; trap 'exit 0' TERM
             echo 'ready http=127.0.0.1:4000 rtmp=[::1]:5000'; while :; do sleep 0.01; done",
            &["--demo"],
        );
        assert_eq!(server.url("/x"), "http://127.0.0.1:4000/x");
        assert_eq!(server.rtmp_url("live/x"), "rtmp://[::1]:5000/live/x");
        let args = server.log_line(START, |_| true);
        let listeners = ["--http", "--rtmp", "--webrtc"];
        let listeners = listeners.map(|listener| format!("{listener} 127.0.0.1:0")).join(" ");
        assert_eq!(args, format!("serve {listeners} --demo"));
        let finished = server.stop(START);
        assert!(finished.status.success(), "{finished:?}");
    }

    #[test]
    fn a_configuration_lasts_as_long_as_the_server() {
        let mut command = Command::new("sh");
        let script =
            "cat \"$9\" >&2; echo 'ready http=127.0.0.1:4000 rtmp=127.0.0.1:5000'; exec sleep 60";
        command.args(["-c", script, "headwater"]);
        let server = Server::start_command(command, Some("workers = 1\n"), ["--demo"]);
        assert_eq!(server.log_line(START, |_| true), "workers = 1");
        let path = server.folder().join("headwater.toml");
        assert_eq!(std::fs::read_to_string(path).unwrap(), "workers = 1\n");
        let file = server.put("a/b.bin", b"film");
        assert_eq!(file, server.vod("a/b.bin"));
        assert_eq!(std::fs::read(file).unwrap(), b"film");
    }

    #[test]
    #[should_panic(expected = "no such line")]
    fn a_server_that_ends_at_once_fails_the_test_with_what_it_said() {
        stand_in("echo no >&2; exit 2", &[]);
    }

    #[test]
    #[should_panic(expected = "the server panicked")]
    fn a_panic_in_the_server_fails_the_test() {
        drop(stand_in(
            "echo \"thread 'main' panicked at x.rs\" >&2
             echo 'ready http=127.0.0.1:4000 rtmp=127.0.0.1:5000'; exec sleep 60",
            &[],
        ));
    }

    #[test]
    fn only_the_promised_line_counts() {
        let [http, rtmp, tls, udp] =
            [1, 2, 3, 4].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let line = format!("ready http={http} rtmp={rtmp}");
        let found = |https, webrtc| {
            Some(Addresses { http, rtmp, https, webrtc, rtmps: None, control: None })
        };
        assert_eq!(addresses(&line), found(None, None));
        assert_eq!(addresses(&format!("{line} https={tls}")), found(Some(tls), None));
        assert_eq!(addresses(&format!("{line} webrtc={udp}")), found(None, Some(udp)));
        let both = format!("{line} https={tls} webrtc={udp}");
        assert_eq!(addresses(&both), found(Some(tls), Some(udp)));
        assert_eq!(addresses(&format!("{line} webrtc={udp} https={tls}")), None);
        for line in [
            "ready http=127.0.0.1:1 rtmp=127.0.0.1:2 https=",
            "ready",
            "ready http=127.0.0.1:1",
            "Ready http=127.0.0.1:1 rtmp=127.0.0.1:2",
            "ready http=127.0.0.1:1 rtmp=127.0.0.1:2 ",
            "ready rtmp=127.0.0.1:1 http=127.0.0.1:2",
        ] {
            assert_eq!(addresses(line), None, "{line:?}");
        }
    }
}
