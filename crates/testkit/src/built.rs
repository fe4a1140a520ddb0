use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use crate::Program;

/// A program of another package of this workspace. It is the one that Cargo has built beside the
/// running tests. If it does not exist, it is built.
///
/// # Panics
/// It cannot be built.
pub fn built(package: &str, program: &str) -> PathBuf {
    // TARGET/debug/deps/load-…
    let tests = std::env::current_exe().expect("tests that run");
    let profile = tests.ancestors().nth(2).expect("TARGET/debug");
    let path = profile.join(program);
    if !path.exists() {
        let mut command = Command::new(env!("CARGO"));
        let target = profile.parent().expect("TARGET");
        command.args(["build", "-p", package]).env("CARGO_TARGET_DIR", target);
        let built = Program::spawn(&mut command).wait(Duration::from_secs(900));
        assert!(built.status.success(), "{}", built.stderr);
    }
    path
}

/// The origin's program: the one that `HEADWATER_BIN` names, or [`built`].
///
/// # Panics
/// It cannot be built.
pub fn headwater() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| match std::env::var_os("HEADWATER_BIN") {
        Some(named) => named.into(),
        None => built("headwater", "headwater"),
    })
}
