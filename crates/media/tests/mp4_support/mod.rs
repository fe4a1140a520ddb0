//! Shared by the MP4 tests: files as sources, and boxes written by hand.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::fs::File;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use media::mp4::OnDisk;

/// Opens a file as a source, as the origin does.
pub(crate) fn on_disk(path: &Path) -> OnDisk<File> {
    OnDisk::new(File::open(path).unwrap()).unwrap()
}

/// The files of a folder whose name has one of these endings, sorted.
pub(crate) fn files(folder: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| endings.iter().any(|end| path.to_str().unwrap().ends_with(end)))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no media in {}", folder.display());
    files
}

const ENDINGS: [&str; 6] = [".mp4", ".mov", ".m4s", ".m4v", ".isma", ".cmfv"];

/// Every MP4 or QuickTime file that is generated for tests.
pub(crate) fn made() -> Vec<PathBuf> {
    files(&testkit::media_dir().join("mp4"), &ENDINGS)
}

/// Every MP4 or QuickTime file of the corpus.
pub(crate) fn corpus() -> Vec<PathBuf> {
    let folders = ["bbb", "film", "mp4"].map(|folder| testkit::corpus_dir().join(folder));
    folders.iter().flat_map(|folder| files(folder, &ENDINGS)).collect()
}

pub(crate) fn read(path: &Path) -> Bytes {
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).into()
}

/// A generated clip.
pub(crate) fn media(name: &str) -> Bytes {
    read(&testkit::clip(name))
}

/// A file of the corpus.
pub(crate) fn real(name: &str) -> Bytes {
    read(&testkit::corpus_dir().join(name))
}

pub(crate) fn name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap()
}
