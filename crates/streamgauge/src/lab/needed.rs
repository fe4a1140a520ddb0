//! Programs that a scenario needs besides its servers: whether they are installed, and how to
//! install them.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::scenario::{Load, Publisher, Tool};

/// The Debian packages of programs.
const PACKAGES: [(&str, &str); 9] = [
    ("ab", "apache2-utils"),
    ("ffmpeg", "ffmpeg"),
    ("ffprobe", "ffmpeg"),
    ("httperf", "httperf"),
    ("ip", "iproute2"),
    ("perf", "linux-perf"),
    ("taskset", "util-linux"),
    ("tc", "iproute2"),
    ("wrk", "wrk"),
];

impl Load {
    /// Foreign programs that the trials of this load start.
    fn programs(&self) -> BTreeSet<&'static str> {
        let tools = self.background.iter().map(|background| background.with).chain([self.with]);
        let others = tools.filter(|tool| !tool.is_ours()).map(Tool::name);
        let ffmpeg = |publish: &super::scenario::Publish| {
            matches!(publish.with, Publisher::Ffmpeg).then_some("ffmpeg")
        };
        others.chain(self.publish.iter().filter_map(ffmpeg)).collect()
    }

    /// The missing ones among them, in words.
    pub(super) fn missing(&self) -> Option<String> {
        let absent: Vec<_> =
            self.programs().into_iter().filter(|name| !is_there(name)).map(absent).collect();
        (!absent.is_empty()).then(|| absent.join("; "))
    }
}

/// A sentence for a missing program: `httperf is not there: apt-get install httperf`.
pub(super) fn absent(program: &str) -> String {
    let package = PACKAGES.iter().find(|(name, _)| *name == program);
    match package {
        Some((_, package)) => format!("{program} is not there: apt-get install {package}"),
        None => format!("{program} is not there"),
    }
}

/// Whether a program can be started, by its path or from a folder of PATH.
pub(super) fn is_there(program: &str) -> bool {
    find(program).is_some()
}

/// The path of a program that is given by its path, or lies in a folder of PATH.
pub(super) fn find(program: &str) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| {
        path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(is_program);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(is_program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_programs_are_named_with_their_package() {
        assert!(is_there("sh") && is_there("/bin/sh"));
        assert!(!is_there("no-such-program") && !is_there("/etc/passwd"));
        assert_eq!(absent("ab"), "ab is not there: apt-get install apache2-utils");
    }
}
