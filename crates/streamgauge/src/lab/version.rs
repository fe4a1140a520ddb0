//! Asks the program of a peer for its version, and checks that the peer's file is written for it.

use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use super::folders::Folders;
use super::group::{Group, command};
use super::media::sum;
use super::needed::find;
use super::number::Number;
use super::peer::{PROGRAM, Peer, Version};
use super::record::PeerVersion;
use super::signals::Stop;

/// How long a program may take to print its version.
const PATIENCE: Duration = Duration::from_secs(20);

/// How much of a program's output is kept, in bytes.
const LONGEST_OUTPUT: usize = 1 << 16;

/// The longest version that is kept, in characters.
const LONGEST: usize = 200;

/// The version of an installed peer: the first line that its program prints, and the sum of the program.
///
/// # Errors
/// The peer cannot be used: a program of it does not exist, fails, prints nothing, takes longer
/// than 20 s, or is of a version that the file is not written for. The error tells how to get the
/// program, if the file does.
pub fn version(peer: &Peer, folders: &Folders) -> anyhow::Result<PeerVersion> {
    let usable = programs_are_there(peer, folders).and_then(|()| {
        let key = || format!("{}: version.command", peer.path.display());
        let words =
            peer.version.command.fill(|variable| folders.value(variable)).with_context(key)?;
        let version = ask(&words)?;
        peer.version.check(&version)?;
        // A program may be one that can be started and not read.
        let build = find(&words[0]).and_then(|program| build(&program).ok()).unwrap_or_default();
        Ok(PeerVersion { title: peer.title.clone(), version, build })
    });
    match &peer.install.hint {
        Some(hint) => usable.map_err(|error| anyhow::anyhow!("{error:#}. How to get it: {hint}")),
        None => usable,
    }
}

/// The version of this program.
///
/// # Errors
/// Its file cannot be read.
pub fn own() -> anyhow::Result<PeerVersion> {
    const NAME: &str = env!("CARGO_PKG_NAME");
    // Also where the file was replaced meanwhile.
    let program = Path::new("/proc/self/exe");
    let version = format!("{NAME} {}", env!("CARGO_PKG_VERSION"));
    Ok(PeerVersion { title: NAME.to_owned(), version, build: build(program)? })
}

/// The part of a program's sum that records have.
fn build(program: &Path) -> anyhow::Result<String> {
    let mut sum = sum(program)?;
    sum.truncate(12);
    Ok(sum)
}

fn programs_are_there(peer: &Peer, folders: &Folders) -> anyhow::Result<()> {
    for name in peer.programs() {
        ensure!(
            folders.value(&format!("{PROGRAM}{name}")).is_some(),
            "there is no program {name} on PATH, and no --peer-bin {name}=PATH says where it is"
        );
    }
    Ok(())
}

fn ask(words: &[String]) -> anyhow::Result<String> {
    let (mut said, end) = io::pipe().context("a pipe")?;
    // A process that it started may hold the other end forever.
    rustix::io::ioctl_fionbio(&said, true)?;
    let group = Group::new()?;
    let mut child = group.spawn(&mut command(words, end.try_clone()?, end))?;
    let mut text = Vec::new();
    let ended = Stop::default().wait(PATIENCE, &mut || {
        let status = child.try_wait()?;
        take(&mut said, &mut text).with_context(|| words[0].clone())?;
        Ok(status)
    })?;
    let Some(status) = ended else {
        // The child may have left the group, which ends here.
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

/// Takes the bytes that can be read now. Drops bytes that do not fit, so that the writing process
/// does not wait.
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

impl Version {
    /// Checks that the version in a line is one that the file is written for.
    fn check(&self, line: &str) -> anyhow::Result<()> {
        if self.at_least.is_none() && self.below.is_none() {
            return Ok(());
        }
        let number = Number::find(line).with_context(|| format!("no version in {line:?}"))?;
        let wanted = || match (&self.at_least, &self.below) {
            (Some(first), Some(end)) => format!("from {first} on and below {end}"),
            (Some(first), None) => format!("from {first} on"),
            (None, Some(end)) => format!("below {end}"),
            (None, None) => String::new(),
        };
        let fits = self.at_least.as_ref().is_none_or(|first| number >= *first)
            && self.below.as_ref().is_none_or(|end| number < *end);
        ensure!(fits, "the program is {line:?}, but the peer's file is for versions {}", wanted());
        Ok(())
    }
}
