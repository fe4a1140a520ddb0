//! Files that a scenario needs. The scenario has a command for each. The command runs once, and its
//! file is kept below `lab/media` in Cargo's target folder, named by a hash of the command.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use sha2::{Digest, Sha256};

use super::log::last_lines;
use super::needed;
use super::program::{Program, Seat};
use super::scenario::{Media, Scenario};
use super::signals::Stop;

/// How long making a file may take.
const LONGEST: Duration = Duration::from_secs(1800);

/// The media of a scenario after they are made.
#[derive(Debug, Default)]
pub struct Made {
    /// Path of each file, by name.
    pub paths: BTreeMap<String, PathBuf>,
    /// SHA-256 of each file in hexadecimal digits; for a folder, of the names and sums of its
    /// files.
    pub sums: BTreeMap<String, String>,
}

impl Made {
    /// Makes the files that do not exist yet below `cache`. Calls `say` before a step that takes a
    /// while.
    ///
    /// # Errors
    /// A command fails, does not exist, or writes nothing.
    pub fn all(
        scenario: &Scenario,
        cache: &Path,
        stop: &Stop,
        say: &dyn Fn(&str),
    ) -> anyhow::Result<Self> {
        let mut made = Self::default();
        for (name, media) in &scenario.media {
            let path = make(media, cache, stop, &|| say(&format!("making media {name}")))
                .with_context(|| format!("media {name:?}"))?;
            made.sums.insert(name.clone(), sum(&path)?);
            made.paths.insert(name.clone(), path);
        }
        Ok(made)
    }

    /// Puts all files into an empty folder that a server serves. Uses hard links, because a server
    /// may refuse symbolic links that leave its root.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub fn link(&self, scenario: &Scenario, root: &Path) -> anyhow::Result<()> {
        fs::create_dir_all(root).with_context(|| root.display().to_string())?;
        for (name, media) in &scenario.media {
            let Some(path) = self.paths.get(name) else { continue };
            place(path, &root.join(&media.path))
                .with_context(|| format!("media {name:?}: {}", root.display()))?;
        }
        Ok(())
    }
}

/// Puts a file, or a folder of files, at another path.
fn place(from: &Path, to: &Path) -> std::io::Result<()> {
    if from.is_dir() {
        fs::create_dir_all(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            place(&entry.path(), &to.join(entry.file_name()))?;
        }
        return Ok(());
    }
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    match fs::hard_link(from, to) {
        Err(error) if error.kind() == std::io::ErrorKind::CrossesDevices => {
            fs::copy(from, to).map(|_| ())
        }
        linked => linked,
    }
}

fn make(media: &Media, cache: &Path, stop: &Stop, say: &dyn Fn()) -> anyhow::Result<PathBuf> {
    let is_folder = media.path.ends_with('/');
    let mut hash = Sha256::new();
    for part in media.make.iter().chain([&media.path]) {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    let folder = cache.join(&hex(&hash.finalize())[..32]);
    let name = Path::new(&media.path).file_name().context("path has no name")?;
    let path = folder.join(name);
    if path.exists() {
        return Ok(path);
    }
    say();
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    // The name keeps its extension: it tells ffmpeg which format to write.
    let partial = folder.join(format!(".{}", std::process::id()));
    fs::create_dir_all(&partial).with_context(|| partial.display().to_string())?;
    let out = partial.join(name);
    let made = (|| {
        if is_folder {
            fs::create_dir_all(&out)?;
        }
        let out = out.to_str().context("a path that is not UTF-8")?;
        let words = media.command(out)?;
        run(&words, &partial.join("log"), stop)?;
        ensure!(partial.join(name).exists(), "{} wrote nothing", words[0]);
        // Another run may have been faster. Its file is as good.
        if let Err(error) = fs::rename(partial.join(name), &path)
            && !path.exists()
        {
            return Err(error).context(path.display().to_string());
        }
        Ok(())
    })();
    let removed = fs::remove_dir_all(&partial);
    made?;
    removed?;
    Ok(path)
}

/// Runs a command to its end.
fn run(words: &[String], log: &Path, stop: &Stop) -> anyhow::Result<()> {
    ensure!(needed::is_there(&words[0]), "{}", needed::absent(&words[0]));
    let mut program = Program::start("command", &Seat::default(), words, log, log)?;
    program.wait(LONGEST, stop)?;
    ensure!(program.status() == Some(0), "{} failed: {}", words[0], last_lines(log));
    Ok(())
}

/// SHA-256 of a file, or of the names and sums of a folder's files.
pub(super) fn sum(path: &Path) -> anyhow::Result<String> {
    let mut hash = Sha256::new();
    if path.is_dir() {
        let mut names = Vec::new();
        for entry in fs::read_dir(path)? {
            names.push(entry?.path());
        }
        names.sort();
        for path in names {
            hash.update(path.file_name().unwrap_or_default().as_encoded_bytes());
            hash.update([0]);
            hash.update(sum(&path)?);
        }
    } else {
        let mut file = File::open(path).with_context(|| path.display().to_string())?;
        let mut buffer = vec![0; 1 << 18];
        loop {
            match file.read(&mut buffer)? {
                0 => break,
                length => hash.update(&buffer[..length]),
            }
        }
    }
    Ok(hex(&hash.finalize()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
