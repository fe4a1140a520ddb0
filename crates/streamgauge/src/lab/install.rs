//! `peers`: which servers are there, and installing them.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use comfy_table::{ContentArrangement, Table, presets::NOTHING};
use schemars::JsonSchema;
use serde::Serialize;

use super::folders::Folders;
use super::group::{Group, command};
use super::log::last_lines;
use super::peer::{Install, Peer};
use super::signals::{POLL, Stop};
use crate::progress::Steps;
use crate::{Exit, text};

/// How long a program may take to say its version.
const PATIENCE: Duration = Duration::from_secs(20);

/// What is kept of what it prints, in bytes.
const LONGEST_OUTPUT: usize = 1 << 16;

/// The longest version that is taken, in characters.
const LONGEST: usize = 200;

/// The servers that scenarios can compare: which are there, and installing them
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Install these, by name or file; all, if none is named
    #[arg(long, value_name = "NAME", num_args = 0..)]
    install: Option<Vec<String>>,
    /// One document on standard output, docs/schema/peers.schema.json
    #[arg(long)]
    json: bool,
}

/// What `peers` prints with `--json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Document {
    /// By name.
    pub peers: Vec<State>,
}

/// A peer, there or not.
#[derive(Debug, Serialize, JsonSchema)]
pub struct State {
    /// The name of its file.
    pub name: String,
    /// As headings have it.
    pub title: String,
    /// What it is.
    pub about: String,
    /// The jobs it can do, keys of its `[serves]`.
    pub serves: Vec<String>,
    /// What it says its version is; absent if it is not installed.
    pub version: Option<String>,
    /// Where it comes from: `Debian nginx`, `npm deno@2.9.6`.
    pub from: Vec<String>,
    /// Why it could not be installed, if that was asked for.
    pub failed: Option<String>,
}

impl Arguments {
    /// Shows the peers of the repository, or installs them and shows those.
    ///
    /// # Errors
    /// There is no repository, or a peer's file is refused.
    pub fn run(&self) -> anyhow::Result<Exit> {
        let folders = Folders::find()?;
        let named = self.install.as_deref().unwrap_or_default();
        let peers = if named.is_empty() {
            Peer::read_all(&folders.own_peers())?
        } else {
            named.iter().map(|name| find(name, &folders)).collect::<anyhow::Result<_>>()?
        };
        let progress = Steps::new(peers.len() as u64);
        let mut installer =
            Installer { folders: &folders, progress: &progress, at: 0, done: HashMap::new() };
        let states = peers.iter().enumerate().map(|(at, peer)| {
            installer.at = at as u64;
            progress.show(installer.at, &peer.name);
            let failed = self.install.as_ref().and_then(|_| installer.install(peer).err());
            state(peer, &folders, failed.as_ref())
        });
        let document = Document { peers: states.collect() };
        drop(progress);
        if self.json {
            text::json(&document)?;
        } else {
            show(&document)?;
        }
        let failed = document.peers.iter().any(|peer| peer.failed.is_some());
        Ok(if failed { Exit::Unusable } else { Exit::Success })
    }
}

/// The peer of a name in the repository, or of a file: what ends in `.toml` or has a slash in it.
///
/// # Errors
/// There is none, or its file is refused.
pub fn find(name: &str, folders: &Folders) -> anyhow::Result<Peer> {
    if name.contains('/') || Path::new(name).extension().is_some_and(|ending| ending == "toml") {
        return Peer::read(Path::new(name));
    }
    let path = folders.peer(name);
    ensure!(path.exists(), "no peer {name} in {}", folders.own_peers().display());
    Peer::read(&path)
}

/// What a peer's program says its version is: its first line.
///
/// # Errors
/// The program is not there, fails, says nothing, or takes longer than 20 s: it is not installed.
pub fn version(peer: &Peer, folders: &Folders) -> anyhow::Result<String> {
    let key = || format!("{}: version.command", peer.path.display());
    let words = peer.version.command.fill(|variable| folders.value(variable)).with_context(key)?;
    let (mut said, end) = io::pipe().context("a pipe")?;
    // Somebody it started may hold the other end for ever.
    rustix::io::ioctl_fionbio(&said, true)?;
    let group = Group::new()?;
    let mut child = group.spawn(&mut command(&words, end.try_clone()?, end))?;
    let mut text = Vec::new();
    let ended = Stop::default().wait(PATIENCE, &mut || {
        let status = child.try_wait()?;
        take(&mut said, &mut text).with_context(|| words[0].clone())?;
        Ok(status)
    })?;
    let Some(status) = ended else {
        // It may have left the group, which ends here.
        child.kill()?;
        child.wait()?;
        bail!("{}: no version after {PATIENCE:?}", words[0]);
    };
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    ensure!(status.success(), "{}: {status}: {line}", words[0]);
    ensure!(!line.is_empty(), "{}: it printed nothing", words[0]);
    Ok(line.chars().filter(|c| !c.is_control()).take(LONGEST).collect())
}

/// Takes what there is to be read now. What a version has no room for is dropped, so that who writes
/// it does not wait.
fn take(from: &mut impl Read, to: &mut Vec<u8>) -> io::Result<()> {
    let mut buffer = [0; 4096];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => {
                let room = LONGEST_OUTPUT.saturating_sub(to.len());
                to.extend_from_slice(&buffer[..length.min(room)]);
                if room == 0 {
                    return Ok(());
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn state(peer: &Peer, folders: &Folders, failed: Option<&anyhow::Error>) -> State {
    State {
        name: peer.name.clone(),
        title: peer.title.clone(),
        about: peer.about.clone(),
        serves: peer.serves.keys().map(ToString::to_string).collect(),
        version: version(peer, folders).ok(),
        from: peer.install.sources(),
        failed: failed.map(|error| format!("{error:#}")),
    }
}

fn show(document: &Document) -> io::Result<()> {
    let mut table = Table::new();
    table.load_style(NOTHING);
    let header = ["peer", "serves", "version"];
    table.set_content_arrangement(ContentArrangement::Dynamic).set_header(header);
    for peer in &document.peers {
        let from = if peer.from.is_empty() {
            "not installed".to_owned()
        } else {
            format!(
                "not installed: {}\nstreamgauge peers --install {}",
                peer.from.join(", "),
                peer.name
            )
        };
        table.add_row([
            peer.name.clone(),
            peer.serves.join(" "),
            peer.version.clone().unwrap_or(from),
        ]);
    }
    let mut out = io::stdout().lock();
    writeln!(out, "{table}")?;
    for peer in &document.peers {
        if let Some(failed) = &peer.failed {
            writeln!(out, "{}: {failed}", peer.name)?;
        }
    }
    Ok(())
}

impl Install {
    /// In words, one for each source.
    fn sources(&self) -> Vec<String> {
        let listed = [
            ("Debian", self.debian.join(" ")),
            ("npm", self.npm.join(" ")),
            ("PyPI", self.pypi.join(" ")),
            ("cargo", self.cargo.join(" ")),
            (
                "make",
                self.make.as_deref().map_or_else(String::new, |path| path.display().to_string()),
            ),
        ];
        let named = listed.into_iter().filter(|(_, names)| !names.is_empty());
        named.map(|(source, names)| format!("{source} {names}")).collect()
    }
}

/// Runs what installs peers. What several have in common is done once.
struct Installer<'a> {
    folders: &'a Folders,
    progress: &'a Steps,
    /// Peers that are done.
    at: u64,
    /// Why each command failed, or nothing.
    done: HashMap<Vec<String>, Option<String>>,
}

impl Installer<'_> {
    fn install(&mut self, peer: &Peer) -> anyhow::Result<()> {
        for words in self.steps(&peer.install)? {
            if !self.done.contains_key(&words) {
                let failed = self.run(&words).err().map(|error| format!("{error:#}"));
                self.done.insert(words.clone(), failed);
            }
            if let Some(Some(failed)) = self.done.get(&words) {
                bail!("{failed}");
            }
        }
        version(peer, self.folders).context("installed, but")?;
        Ok(())
    }

    /// Runs a command to its end. What it prints goes to standard error: the other is the
    /// document's. On a terminal its last line stands behind the bar, and its end is told if it
    /// fails.
    fn run(&self, words: &[String]) -> anyhow::Result<()> {
        let shown = words.join(" ");
        if !self.progress.is_shown() {
            self.progress.tell(&shown);
            let mut command = command(words, io::stderr(), io::stderr());
            let status = command.status().with_context(|| words[0].clone())?;
            ensure!(status.success(), "{shown}: {status}");
            return Ok(());
        }
        // A file, not a pipe, which somebody that the command started may hold for ever.
        let folder = &self.folders.peers;
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        let path = folder.join("install.log");
        let log = File::create(&path).with_context(|| path.display().to_string())?;
        let mut command = command(words, log.try_clone()?, log);
        let mut child = command.spawn().with_context(|| words[0].clone())?;
        let status = loop {
            let said = last_lines(&path);
            let said = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or(&shown);
            let said: String = said.chars().filter(|c| !c.is_control()).collect();
            self.progress.show(self.at, &said);
            if let Some(status) = child.try_wait()? {
                break status;
            }
            sleep(POLL);
        };
        if !status.success() {
            self.progress.tell(&last_lines(&path));
        }
        ensure!(status.success(), "{shown}: {status}");
        Ok(())
    }

    /// The commands, in order.
    fn steps(&self, install: &Install) -> anyhow::Result<Vec<Vec<String>>> {
        let Folders { repository, peers, .. } = self.folders;
        let mut steps = Vec::new();
        let mut step = |program: &Path, arguments: &[&str], more: &[String]| {
            let mut words = vec![program.to_string_lossy().into_owned()];
            words.extend(arguments.iter().map(|&word| word.to_owned()));
            words.extend_from_slice(more);
            steps.push(words);
        };
        if !install.debian.is_empty() {
            step(&repository.join("scripts/debian.sh"), &[], &install.debian);
        }
        if !install.npm.is_empty() {
            let folder = peers.join("npm");
            fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
            let folder = folder.to_string_lossy();
            let arguments = ["install", "--prefix", &folder, "--no-audit", "--no-fund"];
            step(Path::new("npm"), &arguments, &install.npm);
        }
        if !install.pypi.is_empty() {
            let folder = peers.join("venv");
            step(Path::new("python3"), &["-m", "venv", &folder.to_string_lossy()], &[]);
            let python = folder.join("bin/python");
            step(&python, &["-m", "pip", "install", "--quiet"], &install.pypi);
        }
        for package in &install.cargo {
            step(Path::new("cargo"), &["build", "--package", package], &self.beside());
        }
        if let Some(folder) = &install.make {
            let folder = repository.join(folder);
            let build = format!("BUILD={}", peers.display());
            step(Path::new("make"), &["-C", &folder.to_string_lossy(), &build], &[]);
        }
        Ok(steps)
    }

    /// What makes cargo put a program beside this one, which is where peers look for it: as
    /// optimised as this one is.
    fn beside(&self) -> Vec<String> {
        let manifest = self.folders.repository.join("Cargo.toml");
        let mut words = vec!["--manifest-path".to_owned(), manifest.to_string_lossy().into_owned()];
        let profile = self.folders.programs.file_name();
        if profile.is_none_or(|profile| profile != "debug") {
            words.push("--release".to_owned());
        }
        let target: Option<PathBuf> = self.folders.programs.parent().map(Path::to_owned);
        if let Some(target) = target.filter(|target| target.join("CACHEDIR.TAG").exists()) {
            words.extend(["--target-dir".to_owned(), target.to_string_lossy().into_owned()]);
        }
        words
    }
}
