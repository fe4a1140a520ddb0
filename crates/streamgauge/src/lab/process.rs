//! The server of a peer: starts it, waits until it can be used, keeps its log, and ends it with all
//! its workers.

use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use rustix::process::Signal;

use super::folders::Folders;
use super::group::{Group, command};
use super::log::{last_lines, tail};
use super::machine::cpus;
use super::peer::{self, Ingest, Job, Peer, Ready};
use super::program::Seat;
use super::ready::{Condition, inside};
use super::signals::Stop;
use super::template::Template;

/// How long a server may take to end after the signal.
const PATIENCE: Duration = Duration::from_secs(10);

/// How many attempts there are to start a server whose ports turn out to be in use.
const ATTEMPTS: u32 = 5;

/// The ports that servers listen on. They lie below the ports that Linux uses for outgoing
/// connections (`net.ipv4.ip_local_port_range`, 32768 and up), so that no connection of a viewer,
/// open or closing, occupies them.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// The place where a server runs.
#[derive(Debug, Clone)]
pub struct Placement {
    /// Address to listen on, as in URLs.
    pub host: String,
    /// The folder of media.
    pub root: PathBuf,
    /// A new folder for files of the server. It is the working directory, and is made if it does
    /// not exist.
    pub work: PathBuf,
    /// The processors it may use, written as for taskset: `0`, `0-3,8`. `None`: all.
    pub cpus: Option<String>,
    /// Its network namespace. `None`: that of this program.
    pub netns: Option<String>,
    /// What the load will ask for, for servers that must know it before they start: {path} and
    /// {name}.
    pub wanted: Option<String>,
    /// This repository, its programs and its peers.
    pub folders: Folders,
}

/// How a server ended after the signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// By itself, with everything it had started.
    Asked,
    /// It was killed after 10 s.
    Killed,
}

/// A running server. Dropping it kills the server and everything the server started. The end of
/// this program does the same, whatever its cause.
#[derive(Debug)]
pub struct Server {
    peer: Peer,
    place: Placement,
    ports: Ports,
    command: Vec<String>,
    log: PathBuf,
    child: Child,
    group: Group,
    /// The origin that it takes everything from. It ends after this server.
    origin: Option<Box<Self>>,
}

#[derive(Debug, Clone, Copy)]
struct Ports {
    http: u16,
    rtmp: u16,
    webrtc: u16,
    /// Port of the origin's HTTP.
    origin: Option<u16>,
}

/// A page with counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Its URL.
    pub url: String,
    /// The metric that counts requests.
    pub requests: String,
    /// The metric that counts sent bytes.
    pub bytes: String,
}

/// Why an attempt to start a server failed.
enum Failure {
    /// Another program has one of its ports.
    PortInUse(anyhow::Error),
    Other(anyhow::Error),
}

impl Server {
    /// Starts the server of a peer and waits until it can be used. The server's output goes to
    /// `log`. An origin behind it starts first, in the folder `origin`, with its output in
    /// `origin.log` beside `log`.
    ///
    /// # Errors
    /// A program is missing, ends at once, or is not ready in time. The error quotes the last lines
    /// of the log.
    pub fn start(peer: &Peer, place: &Placement, log: &Path) -> anyhow::Result<Self> {
        Self::start_unless(&Stop::default(), peer, place, log)
    }

    /// Does the same, but gives up when this program is asked to end.
    ///
    /// # Errors
    /// Those of [`Self::start`], or [`Interrupted`](super::signals::Interrupted).
    pub fn start_unless(
        stop: &Stop,
        peer: &Peer,
        place: &Placement,
        log: &Path,
    ) -> anyhow::Result<Self> {
        let named = || peer.name.clone();
        File::create(log).with_context(|| log.display().to_string()).with_context(named)?;
        let start_origin = |origin: &Peer| {
            let place = Placement { work: place.work.join("origin"), ..place.clone() };
            Self::start_unless(stop, origin, &place, &log.with_file_name("origin.log"))
        };
        let origin = peer.origin.as_deref().map(start_origin).transpose().with_context(named)?;
        let port = origin.as_ref().map(Self::http);
        let mut attempt = 1;
        loop {
            match Self::attempt(stop, peer, place, log, port) {
                Ok(mut server) => {
                    server.origin = origin.map(Box::new);
                    return Ok(server);
                }
                Err(Failure::PortInUse(_)) if attempt < ATTEMPTS => attempt += 1,
                Err(Failure::PortInUse(error) | Failure::Other(error)) => {
                    return Err(error).with_context(named);
                }
            }
        }
    }

    fn attempt(
        stop: &Stop,
        peer: &Peer,
        place: &Placement,
        log: &Path,
        origin: Option<u16>,
    ) -> Result<Self, Failure> {
        let from = fs::metadata(log).map_or(0, |log| log.len());
        let mut server = Self::spawn(peer, place, log, origin).map_err(Failure::Other)?;
        let ready = server.condition(from).and_then(|condition| {
            inside(place.netns.as_deref(), || server.wait_until(&condition, stop))
        });
        let Err(error) = ready else { return Ok(server) };
        let said = tail(log, from).to_ascii_lowercase();
        // The texts of the C library, of Rust and Python, and of Node.js.
        let in_use = ["address already in use", "address in use", "eaddrinuse"];
        if in_use.iter().any(|words| said.contains(words)) {
            return Err(Failure::PortInUse(error));
        }
        Err(Failure::Other(error))
    }

    fn spawn(
        peer: &Peer,
        place: &Placement,
        log: &Path,
        origin: Option<u16>,
    ) -> anyhow::Result<Self> {
        let ports = Ports { origin, ..Ports::free()? };
        let value = |name: &str| place.value(name, ports, place.wanted.as_deref());
        fs::create_dir_all(&place.work).with_context(|| place.work.display().to_string())?;
        for (index, file) in peer.files.iter().enumerate() {
            let text = file.text.fill(value);
            let text = text.with_context(|| at(peer, &format!("file[{index}].text")))?;
            write(&place.work.join(&file.path), &text)?;
        }
        let own = peer.start.command.fill(value).with_context(|| at(peer, "start.command"))?;
        let words = place.seat().prefixed(&own);
        let output = OpenOptions::new().append(true).open(log);
        let output = output.with_context(|| log.display().to_string())?;
        let mut command = command(&words, output.try_clone()?, output);
        command.current_dir(&place.work);
        for (name, text) in &peer.start.environment {
            let text = text.fill(value);
            let key = || at(peer, &format!("start.environment.{name}"));
            command.env(name, text.with_context(key)?);
        }
        let group = Group::new()?;
        let child = group.spawn(&mut command)?;
        let (peer, place) = (peer.clone(), place.clone());
        let log = log.to_owned();
        Ok(Self { peer, place, ports, command: words, log, child, group, origin: None })
    }

    /// The condition to wait for. The server writes to its log from byte `from` on.
    fn condition(&self, from: u64) -> anyhow::Result<Condition> {
        let fill = |template: &Template| {
            let wanted = self.place.wanted.as_deref();
            let value = |name: &str| self.place.value(name, self.ports, wanted);
            template.fill(value).with_context(|| self.at("start.ready"))
        };
        Ok(match &self.peer.start.ready {
            Ready::Http(url) => {
                Condition::answers(&fill(url)?).with_context(|| self.at("start.ready.http"))?
            }
            Ready::Tcp(port) => {
                let port = fill(port)?;
                let number: Result<u16, _> = port.parse();
                ensure!(number.is_ok(), "{}: {port}: not a port", self.at("start.ready.tcp"));
                Condition::Accepts { address: format!("{}:{port}", self.place.host) }
            }
            Ready::Line(text) => {
                Condition::Prints { text: fill(text)?, log: self.log.clone(), from }
            }
        })
    }

    fn wait_until(&mut self, condition: &Condition, stop: &Stop) -> anyhow::Result<()> {
        let seconds = self.peer.start.seconds;
        let ready = stop.wait(Duration::from_secs(seconds.into()), &mut || {
            let holds = condition.holds();
            // Checked last: another program may have answered on this port.
            self.check()?;
            Ok(holds.then_some(()))
        })?;
        ready.with_context(|| format!("not ready after {seconds} s; {}", quoted(&self.log)))
    }

    fn at(&self, key: &str) -> String {
        at(&self.peer, key)
    }

    /// Checks that the server still runs.
    ///
    /// # Errors
    /// It has ended. The error says how and quotes the last lines of its log.
    pub fn check(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait()? {
            None => self.origin.as_mut().map_or(Ok(()), |origin| origin.check()),
            Some(status) => bail!("the server has ended, {status}; {}", quoted(&self.log)),
        }
    }

    /// Its process. Its workers are children of this process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The server that it takes everything from, if there is one.
    pub fn origin(&self) -> Option<&Self> {
        self.origin.as_deref()
    }

    /// The page with its counters, if it has one.
    ///
    /// # Errors
    /// A variable of the URL is unknown.
    pub fn counters(&self) -> anyhow::Result<Option<Page>> {
        let Some(counters) = &self.peer.counters else { return Ok(None) };
        let value = |variable: &str| self.place.value(variable, self.ports, None);
        let url = counters.page.fill(value).with_context(|| self.at("counters.page"))?;
        let (requests, bytes) = (counters.requests.clone(), counters.bytes.clone());
        Ok(Some(Page { url, requests, bytes }))
    }

    /// Its network namespace; `None` for that of this program.
    pub fn netns(&self) -> Option<&str> {
        self.place.netns.as_deref()
    }

    /// Its peer.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Program and arguments, as it was started.
    pub fn command(&self) -> &[String] {
        &self.command
    }

    /// The port of `{http}`.
    pub fn http(&self) -> u16 {
        self.ports.http
    }

    /// The port of `{rtmp}`.
    pub fn rtmp(&self) -> u16 {
        self.ports.rtmp
    }

    /// The URL for a job. `wanted` is a file below the folder of media, or the name of a stream.
    ///
    /// # Errors
    /// The peer cannot do this job.
    pub fn url(&self, job: Job, wanted: &str) -> anyhow::Result<String> {
        let template = self.peer.serves(job);
        let template = template.with_context(|| format!("{}: no {job}", self.peer.name))?;
        let value = |variable: &str| self.place.value(variable, self.ports, Some(wanted));
        template.fill(value).with_context(|| self.at(&format!("serves.{job}")))
    }

    /// The URL to publish a stream of this name to. It is one of the origin if the peer itself takes no such
    /// streams.
    ///
    /// # Errors
    /// The peer takes no such streams.
    pub fn publish_url(&self, by: Ingest, name: &str) -> anyhow::Result<String> {
        let (template, key) = match by {
            Ingest::Rtmp => (self.peer.publish.rtmp.as_ref(), "publish.rtmp"),
            Ingest::Whip => (self.peer.publish.whip.as_ref(), "publish.whip"),
        };
        if let (None, Some(origin)) = (template, &self.origin) {
            return origin.publish_url(by, name);
        }
        let template = template.with_context(|| self.at(&format!("{key}: missing")))?;
        let value = |variable: &str| self.place.value(variable, self.ports, Some(name));
        template.fill(value).with_context(|| self.at(key))
    }

    /// Asks all its processes to end, and kills those that have not ended after 10 s. No process is
    /// left when this returns.
    ///
    /// # Errors
    /// It cannot be killed.
    pub fn stop(mut self) -> anyhow::Result<Ended> {
        self.group.signal(self.peer.stop.signal.into());
        let name = self.peer.name.clone();
        let asked = self.group.ended_within(PATIENCE).with_context(|| name.clone())?;
        if !asked {
            self.group.kill().context(name)?;
        }
        self.child.wait()?;
        let origin = self.origin.take().map(|origin| origin.stop()).transpose()?;
        let asked = asked && origin != Some(Ended::Killed);
        Ok(if asked { Ended::Asked } else { Ended::Killed })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A failure does not matter: the server has ended already, or ends now.
        let _ = self.group.kill();
        let _ = self.child.wait();
    }
}

impl Placement {
    /// The value of a variable of [`peer::VARIABLES`].
    fn value(&self, variable: &str, ports: Ports, wanted: Option<&str>) -> Option<String> {
        Some(match variable {
            "host" => self.host.clone(),
            "http" => ports.http.to_string(),
            "rtmp" => ports.rtmp.to_string(),
            "webrtc" => ports.webrtc.to_string(),
            "origin" => ports.origin?.to_string(),
            "root" => self.root.to_string_lossy().into_owned(),
            "work" => self.work.to_string_lossy().into_owned(),
            "cpus" => self.processors()?.to_string(),
            "user" => user()?,
            "path" | "name" => wanted?.to_owned(),
            other => return self.folders.value(other),
        })
    }

    /// How many processors the server may use.
    fn processors(&self) -> Option<usize> {
        match &self.cpus {
            Some(list) => cpus(list).map(|all| all.len()),
            None => std::thread::available_parallelism().map(usize::from).ok(),
        }
    }

    /// The place of its processes.
    fn seat(&self) -> Seat {
        Seat { cpus: self.cpus.clone(), netns: self.netns.clone() }
    }
}

impl Ports {
    /// Finds three ports that nobody listens on now, neither by TCP nor by UDP. The choice is random, so that programs that
    /// search at the same time rarely find the same ports.
    fn free() -> anyhow::Result<Self> {
        let (random, width) = (RandomState::new(), u64::from(PORTS.end - PORTS.start));
        let mut found = (0..1000_u32).filter_map(|turn| {
            let offset = u16::try_from(random.hash_one(turn) % width).ok()?;
            let port = PORTS.start + offset;
            let address = (Ipv4Addr::UNSPECIFIED, port);
            let is_free = TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok();
            is_free.then_some(port)
        });
        let http = found.next().context("no free port")?;
        let rtmp = found.find(|port| *port != http).context("no free port")?;
        let webrtc = found.find(|port| ![http, rtmp].contains(port)).context("no free port")?;
        Ok(Self { http, rtmp, webrtc, origin: None })
    }
}

impl From<peer::Signal> for Signal {
    fn from(signal: peer::Signal) -> Self {
        match signal {
            peer::Signal::Term => Self::TERM,
            peer::Signal::Int => Self::INT,
            peer::Signal::Quit => Self::QUIT,
            peer::Signal::Kill => Self::KILL,
        }
    }
}

/// Name of the user that this program runs as, or the user's number without a name.
fn user() -> Option<String> {
    let id = rustix::process::geteuid().as_raw();
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let named = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(id)).then(|| name.to_owned())
    };
    users.lines().find_map(named).or_else(|| Some(id.to_string()))
}

fn at(peer: &Peer, key: &str) -> String {
    format!("{}: {key}", peer.path.display())
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let shown = || path.display().to_string();
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(shown)?;
    }
    fs::write(path, text).with_context(shown)
}

/// Quotes the last lines of a log for an error.
fn quoted(log: &Path) -> String {
    match last_lines(log) {
        lines if lines.is_empty() => "it printed nothing".to_owned(),
        lines => format!("it printed last:\n{lines}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_ports_differ_and_can_be_listened_on() {
        let ports = Ports::free().expect("free ports");
        let Ports { http, rtmp, webrtc, .. } = ports;
        assert!(http != rtmp && http != webrtc && rtmp != webrtc, "{ports:?}");
        assert!([http, rtmp, webrtc].iter().all(|port| PORTS.contains(port)), "{ports:?}");
    }
}
