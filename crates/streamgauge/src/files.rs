//! Reads foreign files up to a limit, and replaces files of this program atomically.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use anyhow::{Context, ensure};
use serde::Serialize;

/// Reads a file's bytes, up to a limit.
///
/// # Errors
/// The file cannot be read, or is larger.
pub(crate) fn bytes(path: &Path, limit: u64) -> anyhow::Result<Vec<u8>> {
    let shown = || path.display().to_string();
    let mut bytes = Vec::new();
    let file = File::open(path).with_context(shown)?;
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes).with_context(shown)?;
    ensure!(bytes.len() as u64 <= limit, "{}: more than {limit} bytes", shown());
    Ok(bytes)
}

/// Reads a file's text, up to a limit.
///
/// # Errors
/// The file cannot be read, is larger, or is not UTF-8.
pub(crate) fn text(path: &Path, limit: u64) -> anyhow::Result<String> {
    String::from_utf8(bytes(path, limit)?).with_context(|| path.display().to_string())
}

/// Replaces a file. A reader sees the old text or the new one, and nothing in between.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn replace(path: &Path, text: &str) -> anyhow::Result<()> {
    let shown = || path.display().to_string();
    // Replaces the file that a link leads to, not the link.
    let path = fs::canonicalize(path).unwrap_or(path.to_owned());
    let file = path.file_name().with_context(shown)?.to_string_lossy().into_owned();
    let new = path.with_file_name(format!(".{file}.{}", std::process::id()));
    let written = fs::write(&new, text).and_then(|()| {
        if let Ok(old) = fs::metadata(&path) {
            fs::set_permissions(&new, old.permissions())?;
        }
        fs::rename(&new, &path)
    });
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written.with_context(shown)
}

/// Replaces a file by a document in JSON.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn replace_json(path: &Path, document: &impl Serialize) -> anyhow::Result<()> {
    replace(path, &(serde_json::to_string_pretty(document)? + "\n"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_limit_is_the_longest_that_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        fs::write(&path, b"abc\xff").unwrap();
        assert_eq!(bytes(&path, 4).unwrap(), b"abc\xff");
        for error in [bytes(&path, 3).unwrap_err(), text(&path, 4).unwrap_err()] {
            assert!(format!("{error:#}").contains(path.to_str().unwrap()), "{error:#}");
        }
    }

    #[test]
    fn the_target_of_a_link_is_replaced_and_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link] = ["file", "link"].map(|name| folder.path().join(name));
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        symlink(&file, &link).unwrap();
        replace(&link, "new").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
