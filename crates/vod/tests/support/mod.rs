//! Shared by the tests: folders of media as libraries, and reading segments back.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use media::cmaf::{self, Chunk};
use media::mp4::{Index, TrackIndex};
use tempfile::TempDir;
use vod::{Library, Piece, Root, Settings, Title, Track};

/// A folder of media: the generated clips, or the corpus.
pub(crate) struct Media {
    root: PathBuf,
    folders: &'static [&'static str],
}

/// The generated clips.
pub(crate) fn made() -> Media {
    Media { root: testkit::media_dir(), folders: &["mp4"] }
}

/// The corpus, for tests that are ignored by default.
pub(crate) fn corpus() -> Media {
    Media { root: testkit::corpus_dir(), folders: &["bbb", "corrupt", "film", "mp4"] }
}

impl Media {
    /// The files of another folder.
    pub(crate) fn of(root: &Path) -> Self {
        Self { root: root.to_owned(), folders: &["."] }
    }

    /// A library of this folder.
    pub(crate) fn library(&self) -> Library {
        Library::new(Root::new(self.root.clone()), Settings::default())
    }

    pub(crate) fn title(&self, path: &str) -> Arc<Title> {
        self.library().title(path).unwrap()
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// Paths of all MP4 and QuickTime files, sorted.
    pub(crate) fn every_mp4(&self) -> Vec<String> {
        let mut found = Vec::new();
        for folder in self.folders {
            for entry in std::fs::read_dir(self.root.join(folder)).unwrap() {
                let name = entry.unwrap().file_name().into_string().unwrap();
                if [".mp4", ".mov", ".m4v"].iter().any(|end| name.ends_with(end)) {
                    found.push(format!("{folder}/{name}"));
                }
            }
        }
        found.sort();
        found
    }
}

/// A generated clip.
pub(crate) fn media(name: &str) -> PathBuf {
    testkit::clip(name)
}

/// The bytes of pieces, one after the other.
pub(crate) fn bytes(pieces: &[Piece]) -> Vec<u8> {
    pieces.iter().flat_map(|piece| piece.read().unwrap()).collect()
}

/// Header and all segments of a track, concatenated.
pub(crate) fn whole(track: &Track) -> Vec<u8> {
    let mut all = track.header().to_vec();
    for n in 0..track.segment_count() {
        all.extend(bytes(&track.segment(n).unwrap()));
    }
    assert!(track.segment(track.segment_count()).is_none());
    all
}

/// The chunks of a track's segments; each segment has one.
pub(crate) fn chunks(track: &Track) -> Vec<Chunk> {
    let read = cmaf::chunks(&Bytes::from(whole(track)), None).collect::<Result<Vec<_>, _>>();
    read.unwrap()
}

/// The index of a file, with its bytes.
pub(crate) fn index(path: &Path) -> (Index, Bytes) {
    let data = Bytes::from(std::fs::read(path).unwrap());
    (Index::read(&data).unwrap(), data)
}

/// The tracks of a title as text, for messages.
pub(crate) fn summary(title: &Title) -> String {
    let tracks: Vec<_> = title
        .tracks
        .iter()
        .map(|track| format!("{} {}", track.name, track.media.codec.rfc6381()))
        .chain(title.texts.iter().map(|text| text.name.clone()))
        .collect();
    tracks.join(", ")
}

/// Removes from `left` the track of the file that this track was made from, and returns it.
pub(crate) fn source<'a>(left: &mut Vec<&'a TrackIndex>, track: &Track) -> &'a TrackIndex {
    let same = |source: &&TrackIndex| {
        source.track.timescale == track.media.timescale
            && source.track.language == track.media.language
            && !source.samples.is_empty()
            && source.descriptions.iter().any(|each| each.codec == track.media.codec)
    };
    let place = left.iter().position(same).unwrap();
    left.remove(place)
}

/// How many samples at the end of a track its edit list hides.
pub(crate) fn behind_the_end(track: &TrackIndex) -> usize {
    let Some(end) = track.edit.end else { return 0 };
    let mut times: Vec<i64> = track.samples.iter().map(|sample| sample.pts()).collect();
    times.reverse();
    times.iter().take_while(|time| **time >= end).count()
}

/// Makes a file with ffmpeg, whose last argument is its path.
pub(crate) fn ffmpeg(arguments: &[&str], to: &Path) {
    testkit::ffmpeg(arguments.iter().map(OsStr::new).chain([to.as_os_str()]));
}

/// Ten seconds of video (25 frames a second, a keyframe every `gop`) at this width, and of audio.
pub(crate) fn clip(to: &Path, width: u32, gop: u32) {
    let picture = format!("testsrc2=s={width}x36:r=25:d=10");
    let gop = gop.to_string();
    let inputs = ["-f", "lavfi", "-i", &picture, "-f", "lavfi", "-i", "sine=r=48000:d=10"];
    let video = ["-c:v", "libx264", "-preset", "ultrafast", "-bf", "2", "-pix_fmt", "yuv420p"];
    let keys = ["-g", &gop, "-keyint_min", &gop, "-sc_threshold", "0", "-c:a", "aac"];
    ffmpeg(&[&inputs[..], &video, &keys].concat(), to);
}

/// A new folder, and a library of it whose titles are cut at 2 s.
pub(crate) fn folder(memory: usize) -> (TempDir, Library) {
    let root = tempfile::tempdir().unwrap();
    let settings = Settings { memory, ..Settings::default() };
    let library = Library::new(Root::new(root.path()), settings);
    (root, library)
}

/// Presentation times at which the segments of a track begin.
pub(crate) fn starts(title: &Title, track: &Track) -> Vec<f64> {
    let shift = title.shift.in_timescale(track.media.timescale);
    let seconds = |time: i64| (time - shift) as f64 / f64::from(track.media.timescale);
    track.segments().map(|segment| seconds(segment.start)).collect()
}
