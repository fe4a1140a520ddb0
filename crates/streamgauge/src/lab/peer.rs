//! A peer: a server that takes part in scenarios, described by one TOML file.
//!
//! `docs/peers.md` explains every key; `lab/peers/` has one file for each server.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use serde::de::Visitor;
use serde::{Deserialize, Deserializer};

pub use super::job::Job;
use super::number::Number;
use super::source;
use super::template::{Template, Unknown, is_name};

/// The content of a peer's file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    /// Name of the file without its ending.
    #[serde(skip)]
    pub name: String,
    /// Path of the file.
    #[serde(skip)]
    pub path: PathBuf,
    /// Name in headings: `nginx`.
    pub title: String,
    /// One sentence: what server it is, and why this is its best configuration for the job.
    pub about: String,
    /// Name of the peer that it takes everything from. The file of that peer lies beside its own.
    #[serde(default, rename = "origin")]
    behind: Option<String>,
    /// The peer that it takes everything from.
    #[serde(skip)]
    pub origin: Option<Box<Peer>>,
    /// How it is installed.
    #[serde(default)]
    pub install: Install,
    /// How it prints its version.
    pub version: Version,
    /// Files that are written into its work folder before it starts.
    #[serde(default, rename = "file")]
    pub files: Vec<File>,
    /// How to start it.
    pub start: Start,
    /// How to stop it.
    #[serde(default)]
    pub stop: Stop,
    /// The jobs that it can do, with the URL for each.
    pub serves: BTreeMap<Job, Template>,
    /// Where to publish live streams.
    #[serde(default)]
    pub publish: Publish,
    /// The page with its counters of requests and sent bytes.
    pub counters: Option<Counters>,
}

/// The content of a file that describes a peer by what it adds to another.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Variant {
    title: String,
    about: String,
    /// Name of the other peer. Its file lies beside this one.
    based_on: String,
    /// What it appends to files of the other peer.
    append: Vec<File>,
}

/// Most peers in a chain in which each is based on the next.
const MOST_BASES: u32 = 4;

/// `[install]`: where the server comes from. Empty if it comes with the machine.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Install {
    /// Debian packages.
    pub debian: Vec<String>,
    /// npm packages, `name@version`.
    pub npm: Vec<String>,
    /// Python packages, `name==version`.
    pub pypi: Vec<String>,
    /// Packages of this workspace.
    pub cargo: Vec<String>,
    /// A folder of this repository to run `make` in. The results go to BUILD.
    pub make: Option<PathBuf>,
    /// How a person gets it, if none of the above installs it, or not on every machine: one
    /// sentence.
    pub hint: Option<String>,
}

/// `[version]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Version {
    /// The first line that this command writes to standard output or error is the version.
    pub command: Command,
    /// The oldest version that the file is written for.
    pub at_least: Option<Number>,
    /// The first version that the file is not written for any more.
    pub below: Option<Number>,
}

/// `[[file]]`: a file in the work folder.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// Its path below the work folder.
    pub path: Below,
    /// Its content.
    pub text: Template,
}

/// `[start]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// Program and arguments. The program stays in the foreground.
    pub command: Command,
    /// Environment variables that are added to those of this program.
    #[serde(default)]
    pub environment: BTreeMap<String, Template>,
    /// How to tell that the server can be used.
    pub ready: Ready,
    /// How many seconds it may take to get ready.
    #[serde(default = "Start::seconds")]
    pub seconds: u32,
}

impl Start {
    /// Longer than any server takes, also on a machine that is busy with something else.
    const fn seconds() -> u32 {
        60
    }
}

/// `start.ready`: exactly one of these.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ready {
    /// A URL that gets any answer.
    Http(Template),
    /// A port that accepts connections.
    Tcp(Template),
    /// A line printed by the server that contains this text.
    Line(Template),
}

/// `[stop]`.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Stop {
    /// The signal for its process group. KILL follows 10 s later.
    pub signal: Signal,
}

/// A signal that asks a server to end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Signal {
    /// SIGTERM.
    #[default]
    Term,
    /// SIGINT.
    Int,
    /// SIGQUIT.
    Quit,
    /// SIGKILL.
    Kill,
}

/// `[publish]`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Publish {
    /// The URL for RTMP.
    pub rtmp: Option<Template>,
    /// The URL for WHIP.
    pub whip: Option<Template>,
}

/// How a live stream is published, the keys of `[publish]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ingest {
    /// Over RTMP.
    Rtmp,
    /// By WHIP.
    Whip,
}

/// `[counters]`: a page in Prometheus' text format, and the names of its metrics. Series of a
/// metric with different labels are added up.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counters {
    /// Its URL.
    pub page: Template,
    /// The metric that counts requests for media, playlists and manifests.
    pub requests: String,
    /// The metric that counts the bytes of the answers.
    pub bytes: String,
}

/// A program and its arguments, without a shell.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "Vec<Template>")]
pub struct Command(Vec<Template>);

impl TryFrom<Vec<Template>> for Command {
    type Error = &'static str;

    fn try_from(words: Vec<Template>) -> Result<Self, Self::Error> {
        if words.is_empty() { Err("no program") } else { Ok(Self(words)) }
    }
}

impl Command {
    /// Its words; there is at least one.
    fn words(&self) -> &[Template] {
        &self.0
    }

    /// Fills in the words of the command; there is at least one.
    ///
    /// # Errors
    /// A variable has no value.
    pub fn fill(&self, value: impl Fn(&str) -> Option<String>) -> Result<Vec<String>, Unknown> {
        self.0.iter().map(|word| word.fill(&value)).collect()
    }
}

/// The variables that templates of a peer can use (docs/peers.md).
pub const VARIABLES: [&str; 14] = [
    "host",
    "http",
    "rtmp",
    "webrtc",
    "origin",
    "root",
    "work",
    "cpus",
    "user",
    "repository",
    "programs",
    "peers",
    "path",
    "name",
];

/// A variable that begins with this and goes on with a program's name is the path of that program.
pub const PROGRAM: &str = "bin.";

/// Checks that all variables are known. This happens while the file is read, in a visitor, so that
/// an error names the place in the file.
impl<'de> Deserialize<'de> for Template {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Template;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Template, E> {
                let template = Template::new(text);
                let known = |name: &str| VARIABLES.contains(&name) || name.starts_with(PROGRAM);
                if let Some(name) = template.variables().find(|name| !known(name)) {
                    return Err(E::custom(unknown(name)));
                }
                Ok(template)
            }
        }
        from.deserialize_str(Text)
    }
}

fn unknown(variable: &str) -> String {
    let known = VARIABLES.map(|name| format!("{{{name}}}")).join(", ");
    format!(
        "unknown variable {{{variable}}}, expected one of {known}, {{bin.PROGRAM}} (and {{{{ for a \
         brace)"
    )
}

/// A path that stays below the folder it is relative to.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "PathBuf")]
pub struct Below(PathBuf);

impl TryFrom<PathBuf> for Below {
    type Error = &'static str;

    fn try_from(path: PathBuf) -> Result<Self, Self::Error> {
        let normal = |part| matches!(part, std::path::Component::Normal(_));
        if path.as_os_str().is_empty() || !path.components().all(normal) {
            return Err("not a path below the work folder");
        }
        Ok(Self(path))
    }
}

impl AsRef<Path> for Below {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Peer {
    /// Reads the peer that the file at `path` describes. Its name is that of the file.
    ///
    /// # Errors
    /// The file cannot be read, is not TOML, lacks a key, has an unknown key or a bad value. The
    /// error names file, line and key.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let mut peer = Self::read_alone(path, 0)?;
        if let Some(name) = &peer.behind {
            let at = || format!("{}: origin", path.display());
            let origin = Self::read_alone(&beside(path, name).with_context(at)?, 0);
            let origin = origin.with_context(at)?;
            ensure!(origin.behind.is_none(), "{}: {name} has an origin itself", at());
            peer.origin = Some(Box::new(origin));
        }
        Ok(peer)
    }

    /// Reads a peer without its origin. As many peers as `bases` are based on it.
    fn read_alone(path: &Path, bases: u32) -> anyhow::Result<Self> {
        let text = source::text(path)?;
        let name = path.file_stem().and_then(|stem| stem.to_str());
        let name = name.with_context(|| format!("{}: not a file's name", path.display()))?;
        let is_variant = source::parse::<toml::Table>(&text, path)?.contains_key("based_on");
        let mut peer = if is_variant {
            Self::vary(source::parse(&text, path)?, path, bases)?
        } else {
            source::parse(&text, path)?
        };
        peer.name = name.to_owned();
        peer.path = path.to_owned();
        Ok(peer)
    }

    /// Reads the peer that `variant` is based on, and adds what `variant` adds.
    fn vary(variant: Variant, path: &Path, bases: u32) -> anyhow::Result<Self> {
        let Variant { title, about, based_on, append } = variant;
        let at = || format!("{}: based_on", path.display());
        ensure!(
            bases < MOST_BASES,
            "{}: more than {MOST_BASES} peers are based on each other",
            at()
        );
        let base = beside(path, &based_on).with_context(at)?;
        let mut peer = Self::read_alone(&base, bases + 1).with_context(at)?;
        for (number, more) in append.into_iter().enumerate() {
            let file = peer.files.iter_mut().find(|file| file.path.0 == more.path.0);
            let file = file.with_context(|| {
                let named = more.path.0.display();
                format!("{}: append[{number}].path: {based_on} has no file {named}", path.display())
            })?;
            file.text.append(more.text);
        }
        Ok(Self { title, about, ..peer })
    }

    /// The URL for a job, if the peer does that job.
    pub fn serves(&self, job: Job) -> Option<&Template> {
        self.serves.get(&job)
    }

    /// The names of the programs in its variables `{bin.NAME}`, without those of its origin.
    pub fn programs(&self) -> BTreeSet<&str> {
        let commands = self.version.command.words().iter().chain(self.start.command.words());
        let texts = self.files.iter().map(|file| &file.text);
        let all = commands.chain(texts).chain(self.start.environment.values());
        all.flat_map(Template::variables).filter_map(|name| name.strip_prefix(PROGRAM)).collect()
    }

    /// Reads all peers of a folder, sorted by name.
    ///
    /// # Errors
    /// The folder cannot be read, or one of its files is refused.
    pub fn read_all(folder: &Path) -> anyhow::Result<Vec<Self>> {
        let shown = || folder.display().to_string();
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(folder).with_context(shown)? {
            let path = entry.with_context(shown)?.path();
            if path.extension().is_some_and(|ending| ending == "toml") {
                paths.push(path);
            }
        }
        paths.sort_by_key(|path| path.file_stem().map(ToOwned::to_owned));
        paths.iter().map(|path| Self::read(path)).collect()
    }
}

/// The file of the peer `name` in the folder of the file at `path`.
fn beside(path: &Path, name: &str) -> anyhow::Result<PathBuf> {
    ensure!(is_name(name), "{name:?}: not the name of a file beside this one");
    Ok(path.with_file_name(format!("{name}.toml")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_variable_is_refused_with_those_there_are() {
        let error = unknown("hots");
        assert!(error.starts_with("unknown variable {hots}, expected one of {host}, "), "{error}");
        assert!(error.ends_with("{name}, {bin.PROGRAM} (and {{ for a brace)"), "{error}");
    }
}
