//! Folders: this repository, its programs, and the installed peers.

use std::path::{Path, PathBuf};

use anyhow::Context;

use super::binaries::Binaries;
use super::peer::PROGRAM;

/// Folders that templates can name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folders {
    /// This repository: the folder that holds `lab/peers`.
    pub repository: PathBuf,
    /// Folder of this repository's own programs: that of the running program.
    pub programs: PathBuf,
    /// Folder into which peers are installed.
    pub peers: PathBuf,
    /// Programs of peers whose paths were given.
    pub binaries: Binaries,
}

/// Replaces folders by names in records. A record says how to repeat a command, not where this
/// machine keeps files.
#[derive(Debug, Default)]
pub struct Names(Vec<(String, String)>);

impl Names {
    /// Takes the folders and programs of a run, each with its name.
    pub fn new(folders: &[(&Path, &str)]) -> Self {
        let mut names: Vec<_> = folders
            .iter()
            .map(|(folder, name)| (folder.to_string_lossy().into_owned(), (*name).to_owned()))
            .filter(|(folder, _)| folder.len() > 1)
            .collect();
        // The longest folder first, so that a folder within another has its own name.
        names.sort_by_key(|(folder, _)| std::cmp::Reverse(folder.len()));
        Self(names)
    }

    /// Replaces folders by their names in a text, such as an argument or an error, wherever a path
    /// begins.
    pub fn shorten(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (folder, name)| replaced(&text, folder, name))
    }
}

/// Replaces a folder by a name in a text, where the folder begins a path and its last component is
/// whole.
fn replaced(text: &str, folder: &str, name: &str) -> String {
    let of_path = |letter: char| letter.is_alphanumeric() || "/._-~%".contains(letter);
    let (mut short, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(folder) {
        let (before, behind) = (&rest[..at], &rest[at + folder.len()..]);
        let begun = before.chars().next_back().or(short.chars().next_back()).is_some_and(of_path);
        let within = behind.strip_prefix('/');
        let goes_on = within.is_none() && behind.starts_with(of_path);
        short += before;
        short += match (begun || goes_on, within) {
            (true, _) => folder,
            (false, Some(_)) => name,
            (false, None) if name.is_empty() => ".",
            (false, None) => name.trim_end_matches('/'),
        };
        rest = if begun || goes_on { behind } else { within.unwrap_or(behind) };
    }
    short + rest
}

impl Folders {
    /// Finds the folders. Looks for the repository from the current folder upwards, then from the
    /// running program upwards. Peers go to `target/peers` in it, or to `peers` in the folder that
    /// `CARGO_TARGET_DIR` names.
    ///
    /// # Errors
    /// No repository is found.
    pub fn find() -> anyhow::Result<Self> {
        let current = std::env::current_dir().context("the current folder")?;
        let program = std::env::current_exe().context("the running program")?;
        let repository = upwards(&current).or_else(|| upwards(&program)).with_context(|| {
            format!("no lab/peers in or above {} or {}", current.display(), program.display())
        })?;
        let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
        let target = target.unwrap_or_else(|| "target".into());
        Ok(Self {
            peers: repository.join(target).join("peers"),
            repository: repository.to_owned(),
            programs: programs(&program).to_owned(),
            binaries: Binaries::default(),
        })
    }

    /// Folder with the files of this repository's peers.
    pub fn own_peers(&self) -> PathBuf {
        self.repository.join("lab/peers")
    }

    /// File of one of these peers, by name.
    pub fn peer(&self, name: &str) -> PathBuf {
        self.own_peers().join(format!("{name}.toml"))
    }

    /// The value of a variable that is the same for all servers.
    pub fn value(&self, variable: &str) -> Option<String> {
        if let Some(name) = variable.strip_prefix(PROGRAM) {
            let path = self.binaries.find(name, &self.peers)?;
            return Some(path.to_string_lossy().into_owned());
        }
        let folder = match variable {
            "repository" => &self.repository,
            "programs" => &self.programs,
            "peers" => &self.peers,
            _ => return None,
        };
        Some(folder.to_string_lossy().into_owned())
    }
}

fn upwards(from: &Path) -> Option<&Path> {
    from.ancestors().find(|folder| folder.join("lab/peers").is_dir())
}

/// Returns the folder of programs. Cargo puts tests one folder deeper than the programs they test.
fn programs(running: &Path) -> &Path {
    let folder = running.parent().unwrap_or(running);
    match folder.parent() {
        Some(above) if folder.ends_with("deps") => above,
        _ => folder,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_name_folders_by_what_they_are() {
        let [run, programs, media] = ["/a/run", "/a/target/release", "/a"].map(Path::new);
        let server = Path::new("/opt/mine-2/mine");
        let names = Names::new(&[(media, "media/"), (run, ""), (programs, ""), (server, "mine")]);
        for (argument, shown) in [
            ("/a/target/release/headwater", "headwater"),
            ("--output=/a/run/trials/x", "--output=trials/x"),
            ("/a/run", "."),
            ("/a", "media"),
            ("/a/film.mp4", "media/film.mp4"),
            ("/ab/film.mp4", "/ab/film.mp4"),
            ("http://127.0.0.1:20000/a/run/x", "http://127.0.0.1:20000/a/run/x"),
            (
                "open() \"/a/run/log\" failed; /a/film (/a)",
                "open() \"log\" failed; media/film (media)",
            ),
            ("/a/target/release: not in /b/a", ".: not in /b/a"),
            ("mine=/opt/mine-2/mine", "mine=mine"),
            ("/opt/mine-2/mine.conf", "/opt/mine-2/mine.conf"),
        ] {
            assert_eq!(names.shorten(argument), shown);
        }
    }
}
