//! Where things are: this repository, its programs, and the peers that were installed.

use std::path::{Path, PathBuf};

use anyhow::Context;

use super::template::Variable;

/// Folders that templates name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folders {
    /// This repository: the folder that holds `lab/peers`.
    pub repository: PathBuf,
    /// This repository's own programs: where the running one is.
    pub programs: PathBuf,
    /// What is installed for peers goes here.
    pub peers: PathBuf,
}

impl Folders {
    /// The repository is looked for from the current folder upwards, then from the running program
    /// upwards. Peers go to `target/peers` in it, or to `peers` in what `CARGO_TARGET_DIR` names.
    ///
    /// # Errors
    /// It is found in neither.
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
        })
    }

    /// The value of a variable that does not depend on a server.
    pub fn value(&self, variable: Variable) -> Option<String> {
        let folder = match variable {
            Variable::Repository => &self.repository,
            Variable::Programs => &self.programs,
            Variable::Peers => &self.peers,
            _ => return None,
        };
        Some(folder.to_string_lossy().into_owned())
    }
}

fn upwards(from: &Path) -> Option<&Path> {
    from.ancestors().find(|folder| folder.join("lab/peers").is_dir())
}

/// Cargo puts tests one folder deeper than the programs they test.
fn programs(running: &Path) -> &Path {
    let folder = running.parent().unwrap_or(running);
    match folder.parent() {
        Some(above) if folder.ends_with("deps") => above,
        _ => folder,
    }
}
