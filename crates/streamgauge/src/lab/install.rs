//! `peers`: shows which servers are installed, and installs them.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread::sleep;

use anyhow::{Context, bail, ensure};
use comfy_table::{ContentArrangement, Table, presets::NOTHING};
use schemars::JsonSchema;
use serde::Serialize;

use super::binaries::{Binaries, PeerBin};
use super::folders::Folders;
use super::group::command;
use super::log::last_lines;
use super::peer::{Install, Peer};
use super::signals::POLL;
use super::version::version;
use crate::progress::Steps;
use crate::{Exit, text};

/// The servers that scenarios can compare: which are there, and installing them
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Install these, by name or file; all that need no more than packages, if none is named
    #[arg(long, value_name = "NAME", num_args = 0..)]
    install: Option<Vec<String>>,
    /// The program NAME of a peer is at PATH; may be repeated
    #[arg(long = "peer-bin", value_name = "NAME=PATH")]
    peer_bins: Vec<PeerBin>,
    /// One document on standard output, docs/schema/peers.schema.json
    #[arg(long)]
    json: bool,
}

/// What `peers` prints with `--json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Document {
    /// The peers by name.
    pub peers: Vec<State>,
}

/// The state of a peer, installed or not.
#[derive(Debug, Serialize, JsonSchema)]
pub struct State {
    /// The name of its file.
    pub name: String,
    /// Name in headings.
    pub title: String,
    /// What kind of server it is.
    pub about: String,
    /// The jobs that it can do, keys of its `[serves]`.
    pub serves: Vec<String>,
    /// The version that it prints; absent if it cannot be used.
    pub version: Option<String>,
    /// Why it cannot be used, and how to get it; absent if it can be used.
    pub unusable: Option<String>,
    /// The packages that it comes from: `Debian nginx`, `npm deno@2.9.6`.
    pub from: Vec<String>,
    /// Why it could not be installed, if it should have been.
    pub failed: Option<String>,
}

impl Arguments {
    /// Shows the peers of the repository, or installs peers and shows them.
    ///
    /// # Errors
    /// There is no repository, or a peer's file is refused.
    pub fn run(&self) -> anyhow::Result<Exit> {
        let mut folders = Folders::find()?;
        let named = self.install.as_deref().unwrap_or_default();
        let peers = if named.is_empty() {
            Peer::read_all(&folders.own_peers())?
        } else {
            named.iter().map(|name| find(name, &folders)).collect::<anyhow::Result<_>>()?
        };
        folders.binaries = Binaries::new(&self.peer_bins, &peers)?;
        let progress = Steps::new(peers.len() as u64);
        let wanted = |peer: &Peer| !named.is_empty() || peer.install.hint.is_none();
        let mut installer =
            Installer { folders: &folders, progress: &progress, at: 0, done: HashMap::new() };
        let states = peers.iter().enumerate().map(|(at, peer)| {
            installer.at = at as u64;
            progress.show(installer.at, &peer.name);
            let install = self.install.is_some() && wanted(peer);
            let failed = if install { installer.install(peer).err() } else { None };
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

/// Finds a peer of the repository by name, or by file: the text ends in `.toml` or has a slash in
/// it.
///
/// # Errors
/// There is no such peer, or its file is refused.
pub fn find(name: &str, folders: &Folders) -> anyhow::Result<Peer> {
    if name.contains('/') || Path::new(name).extension().is_some_and(|ending| ending == "toml") {
        return Peer::read(Path::new(name));
    }
    let path = folders.peer(name);
    ensure!(path.exists(), "no peer {name} in {}", folders.own_peers().display());
    Peer::read(&path)
}

fn state(peer: &Peer, folders: &Folders, failed: Option<&anyhow::Error>) -> State {
    let (version, unusable) = match version(peer, folders) {
        Ok(version) => (Some(version.version), None),
        Err(error) => (None, Some(format!("{error:#}"))),
    };
    State {
        name: peer.name.clone(),
        title: peer.title.clone(),
        about: peer.about.clone(),
        serves: peer.serves.keys().map(ToString::to_string).collect(),
        version,
        unusable,
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
        let mut why = peer.unusable.clone().unwrap_or_default();
        if !peer.from.is_empty() {
            let from = peer.from.join(", ");
            why += &format!("\n{from}: streamgauge peers --install {}", peer.name);
        }
        table.add_row([
            peer.name.clone(),
            peer.serves.join(" "),
            peer.version.clone().unwrap_or(why),
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
    /// The sources in words, one text for each.
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

/// Runs the commands that install peers. A command that several peers need runs once.
struct Installer<'a> {
    folders: &'a Folders,
    progress: &'a Steps,
    /// How many peers are done.
    at: u64,
    /// Commands that have run, each with why it failed, if it failed.
    done: HashMap<Vec<String>, Option<String>>,
}

impl Installer<'_> {
    fn install(&mut self, peer: &Peer) -> anyhow::Result<()> {
        let steps = self.steps(&peer.install)?;
        let installs = !steps.is_empty();
        for words in steps {
            if !self.done.contains_key(&words) {
                let failed = self.run(&words).err().map(|error| format!("{error:#}"));
                self.done.insert(words.clone(), failed);
            }
            if let Some(Some(failed)) = self.done.get(&words) {
                bail!("{failed}");
            }
        }
        let usable = version(peer, self.folders).map(|_| ());
        if installs { usable.context("installed, but") } else { usable }
    }

    /// Runs a command to its end. Its output goes to standard error, because standard output is for
    /// the document. On a terminal the last line of the output stands beside the progress bar, and
    /// the last lines are printed if the command fails.
    fn run(&self, words: &[String]) -> anyhow::Result<()> {
        let shown = words.join(" ");
        if !self.progress.is_shown() {
            self.progress.tell(&shown);
            let mut command = command(words, io::stderr(), io::stderr());
            let status = command.status().with_context(|| words[0].clone())?;
            ensure!(status.success(), "{shown}: {status}");
            return Ok(());
        }
        // A file instead of a pipe, because a process that the command started may hold a pipe
        // forever.
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

    /// The commands that install a peer, in order.
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

    /// Arguments that make cargo put a program beside this one, where peers look for it, with the
    /// same optimisation.
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
