//! ffmpeg decodes the very same pictures and sound from header and segments as from the source.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::ffi::OsStr;
use std::io::Write;
use std::process::Command;
use std::time::Duration;

use support::{corpus, every_mp4, index, media, source, whole};
use testkit::Program;

/// How long ffmpeg may take over one track.
const LIMIT: Duration = Duration::from_secs(120);

/// How much of a track is decoded. That the rest is the same is another test's matter.
const FRAMES: &str = "500";

/// Tracks that are not compared, and why. All others of the media folder are.
const NOT_COMPARED: [(&str, &str, &str); 7] = [
    ("mp4/androidx_sample_fragmented_uuid.mp4", "v0", "encrypted without saying so in its header"),
    ("mp4/androidx_sample_fragmented_uuid.mp4", "a0", "encrypted without saying so in its header"),
    ("mp4/androidx_sample_malformed_free_box.mp4", "v0", "ffmpeg finds no moov in the source"),
    ("mp4/androidx_sample_malformed_free_box.mp4", "a0", "ffmpeg finds no moov in the source"),
    ("mp4/androidx_sample_opus.mp4", "a0", "trimmed: it begins where the decoder knows no past"),
    ("mp4/membrane_ref_aac_fast_start_sr_44100.mp4", "a0", "ffmpeg decodes nothing of the source"),
    ("mp4/torchcodec_nasa_13013.mp4", "a0", "trimmed: it begins where the decoder knows no past"),
];

/// Hashes of the decoded frames of the track with this ID, in order; edit lists ignored, nothing
/// dropped or repeated.
fn frames(input: impl AsRef<OsStr>, track: u32) -> Vec<String> {
    let mut command = Command::new("ffmpeg");
    command.args(["-nostdin", "-v", "error", "-ignore_editlist", "1", "-flags2", "+skip_manual"]);
    command.arg("-i").arg(input).args([
        "-map",
        &format!("0:i:{track}"),
        "-fps_mode",
        "passthrough",
    ]);
    command.args(["-frames:v", FRAMES, "-frames:a", FRAMES, "-f", "framemd5", "pipe:1"]);
    let out = Program::spawn(&mut command).wait(LIMIT).stdout;
    let text = String::from_utf8(out).unwrap();
    let hash = |line: &str| line.rsplit(',').next().map(|hash| hash.trim().to_owned());
    text.lines().filter(|line| !line.starts_with('#')).filter_map(hash).collect()
}

fn compare(files: impl Fn(usize) -> bool) {
    let library = corpus();
    let paths = every_mp4();
    let mut compared = 0;
    for path in paths.iter().enumerate().filter(|(at, _)| files(*at)).map(|(_, path)| path) {
        let Ok(title) = library.title(path) else { continue };
        let (index, _) = index(&media(path));
        let mut left: Vec<_> = index.tracks.iter().collect();
        for track in &title.tracks {
            let id = source(&mut left, track).track.id;
            let name = track.name.as_str();
            if NOT_COMPARED.iter().any(|(file, other, _)| file == path && *other == name) {
                continue;
            }
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(&whole(track)).unwrap();
            let (ours, theirs) = (frames(file.path(), track.media.id), frames(media(path), id));
            assert!(ours == theirs && !ours.is_empty(), "{path} {name}: {} frames", ours.len());
            compared += ours.len();
        }
    }
    assert!(compared > 3_000, "{compared} frames");
}

#[test]
fn frames_of_every_fourth_file() {
    compare(|at| at % 4 == 0);
}

#[test]
fn frames_of_the_next() {
    compare(|at| at % 4 == 1);
}

#[test]
fn frames_of_those_after() {
    compare(|at| at % 4 == 2);
}

#[test]
fn frames_of_the_last() {
    compare(|at| at % 4 == 3);
}
