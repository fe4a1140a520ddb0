//! Reads the ends of programs' log files, to quote them in errors.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// How much of the end of a log an error quotes, in bytes and lines.
const QUOTED: u64 = 4096;
const QUOTED_LINES: usize = 15;

/// Reads the end of a file, but nothing before byte `from`.
pub(super) fn tail(path: &Path, from: u64) -> String {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let start = file.metadata()?.len().saturating_sub(QUOTED).max(from);
        file.seek(SeekFrom::Start(start))?;
        let mut end = Vec::new();
        file.take(QUOTED).read_to_end(&mut end)?;
        Ok(end)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}

/// Reads the last lines of a file.
pub(super) fn last_lines(path: &Path) -> String {
    let end = tail(path, 0);
    let lines: Vec<&str> = end.lines().collect();
    lines[lines.len().saturating_sub(QUOTED_LINES)..].join("\n")
}
