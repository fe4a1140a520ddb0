//! nginx, as a peer.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::{Port, Program, eventually};

/// Longest wait, on a machine that is busy with other tests.
const LIMIT: Duration = Duration::from_secs(60);

/// Starts nginx with this configuration and waits until it listens on `port`. Its configuration and
/// its other files are in `folder`. It stays in the foreground, as one process.
///
/// # Panics
/// nginx does not start.
#[track_caller]
pub fn nginx(folder: &Path, port: &Port, configuration: &str) -> Program {
    let file = folder.join("nginx.conf");
    let pid = folder.join("nginx.pid");
    let settings = format!("daemon off; master_process off; pid {};", pid.display());
    fs::write(&file, format!("{configuration}\n{settings}\n")).expect("writes the configuration");
    let mut command = Command::new("nginx");
    command.args(["-e", "stderr", "-p"]).arg(folder).arg("-c").arg(&file);
    let mut nginx = Program::spawn(&mut command);
    eventually(LIMIT, "nginx listens", || {
        assert!(nginx.is_running(), "{}", nginx.stderr());
        TcpStream::connect(("127.0.0.1", port.number())).is_ok()
    });
    nginx
}
