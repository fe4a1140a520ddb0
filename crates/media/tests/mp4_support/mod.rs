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

/// A box of this type with this payload.
pub(crate) fn boxed(kind: &[u8; 4], payload: &[u8]) -> Vec<u8> {
    let mut data = (payload.len() as u32 + 8).to_be_bytes().to_vec();
    data.extend_from_slice(kind);
    data.extend_from_slice(payload);
    data
}

/// A full box: version, flags, and then 32-bit words.
pub(crate) fn full(kind: &[u8; 4], version: u8, flags: u32, words: &[u32]) -> Vec<u8> {
    let mut payload = (u32::from(version) << 24 | flags).to_be_bytes().to_vec();
    payload.extend(words.iter().flat_map(|word| word.to_be_bytes()));
    boxed(kind, &payload)
}

/// Concatenates parts.
pub(crate) fn join(parts: &[Vec<u8>]) -> Vec<u8> {
    parts.concat()
}

/// Sample entries of an unknown codec.
pub(crate) fn stsd(entries: u32) -> Vec<u8> {
    let mut payload = vec![0; 4];
    payload.extend(entries.to_be_bytes());
    for entry in 0..entries {
        payload.extend(boxed(&[b't', b's', b't', b'0' + entry as u8], &[0; 78]));
    }
    boxed(b"stsd", &payload)
}

/// `moov` with one video track (ID 1, timescale 1000, movie timescale 100), with these sample
/// tables, this edit list, and further boxes behind the track.
pub(crate) fn moov(tables: &[Vec<u8>], elst: Option<Vec<u8>>, after: &[Vec<u8>]) -> Vec<u8> {
    let mvhd = full(b"mvhd", 0, 0, &[0, 0, 100, 0]);
    let tkhd = full(b"tkhd", 0, 7, &[0, 0, 1]);
    let mdhd = full(b"mdhd", 0, 0, &[0, 0, 1000, 0, 0x55c4 << 16]);
    let hdlr = full(b"hdlr", 0, 0, &[0, u32::from_be_bytes(*b"vide")]);
    let minf = boxed(b"minf", &boxed(b"stbl", &join(tables)));
    let mdia = boxed(b"mdia", &join(&[mdhd, hdlr, minf]));
    let edts = elst.map(|elst| boxed(b"edts", &elst)).unwrap_or_default();
    let trak = boxed(b"trak", &join(&[tkhd, edts, mdia]));
    let mut payload = join(&[mvhd, trak]);
    payload.extend(join(after));
    boxed(b"moov", &payload)
}
