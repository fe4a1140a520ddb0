//! Where the programs of peers are: `--peer-bin NAME=PATH`, installed by this program, or on PATH.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, ensure};

use super::needed;
use super::peer::Peer;
use super::template::is_name;

/// The value of `--peer-bin`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerBin {
    /// The name that templates have for the program: `{bin.NAME}`.
    pub name: String,
    /// Its path, relative to the current folder.
    pub path: PathBuf,
}

impl FromStr for PeerBin {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let expected = "expected NAME=PATH, like mediamtx=/opt/mediamtx/mediamtx";
        let (name, path) = text.split_once('=').ok_or(expected)?;
        if !is_name(name) || path.is_empty() {
            return Err(expected);
        }
        Ok(Self { name: name.to_owned(), path: path.into() })
    }
}

/// The paths of programs that were given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Binaries(BTreeMap<String, PathBuf>);

impl Binaries {
    /// Takes the paths that were given for the programs of these peers.
    ///
    /// # Errors
    /// There is no program at a path, a name is given twice, or none of the peers has a program of
    /// this name.
    pub fn new<'a>(
        given: &[PeerBin],
        peers: impl IntoIterator<Item = &'a Peer>,
    ) -> anyhow::Result<Self> {
        let origin = |peer: &'a Peer| peer.origin.as_deref();
        let all = peers.into_iter().flat_map(|peer| [Some(peer), origin(peer)]).flatten();
        let mut known: Vec<_> = all.flat_map(Peer::programs).collect();
        known.sort_unstable();
        known.dedup();
        let mut paths = BTreeMap::new();
        for PeerBin { name, path } in given {
            let at = || format!("--peer-bin {name}={}", path.display());
            ensure!(
                known.contains(&&**name),
                "{}: no peer here has a program of this name; their programs: {}",
                at(),
                if known.is_empty() { "none".to_owned() } else { known.join(", ") }
            );
            // A server starts in a folder of its own.
            let path = std::path::absolute(path).with_context(at)?;
            ensure!(
                needed::is_there(&path.to_string_lossy()),
                "{}: there is no such program",
                at()
            );
            ensure!(paths.insert(name.clone(), path).is_none(), "{}: {name} is given twice", at());
        }
        Ok(Self(paths))
    }

    /// The path of a program: the one that was given, or what make or npm installed into `peers`,
    /// or what lies in a folder of PATH. `None` if there is no such program.
    pub(super) fn find(&self, name: &str, peers: &Path) -> Option<PathBuf> {
        if let Some(path) = self.0.get(name) {
            return Some(path.clone());
        }
        let installed = [peers.join(name), peers.join("npm/node_modules/.bin").join(name)];
        let installed = installed.iter().find_map(|path| needed::find(&path.to_string_lossy()));
        installed.or_else(|| needed::find(name))
    }

    /// Adds names for the paths, so that records name the programs.
    pub(super) fn add_to<'a>(&'a self, names: &mut Vec<(&'a Path, &'a str)>) {
        names.extend(self.0.iter().map(|(name, path)| (path.as_path(), name.as_str())));
    }
}
