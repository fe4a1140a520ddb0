//! ffmpeg must decode exactly the same pictures and sound from header and segments as from the
//! source.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use support::{Media, behind_the_end, corpus, index, made, source, whole};
use testkit::Program;

/// Time limit of ffmpeg for one file.
const LIMIT: Duration = Duration::from_secs(180);

/// How many frames of a track are decoded. Another test checks that the rest has the same bytes.
const FRAMES: &str = "32";

/// Tracks that are not compared, with reasons.
const NOT_COMPARED: [(&str, &str, &str); 11] = [
    ("mp4/opus-trimmed.mp4", "a0", "trimmed: it begins where the decoder knows no past"),
    ("mp4/tracks.mp4", "a0", "trimmed: it begins where the decoder knows no past"),
    ("mp4/trimmed.mp4", "v0", "trimmed: it begins a keyframe later than the file"),
    ("mp4/trimmed.mp4", "a0", "trimmed: it begins where the decoder knows no past"),
    ("mp4/androidx_sample_fragmented_uuid.mp4", "v0", "its offsets miss the media by 8,192 bytes"),
    ("mp4/androidx_sample_fragmented_uuid.mp4", "a0", "its offsets miss the media by 8,192 bytes"),
    ("mp4/androidx_sample_malformed_free_box.mp4", "v0", "ffmpeg finds no moov in the source"),
    ("mp4/androidx_sample_malformed_free_box.mp4", "a0", "ffmpeg finds no moov in the source"),
    ("mp4/androidx_sample_opus.mp4", "a0", "trimmed: it begins where the decoder knows no past"),
    ("mp4/membrane_ref_aac_fast_start_sr_44100.mp4", "a0", "ffmpeg decodes nothing of the source"),
    ("mp4/torchcodec_nasa_13013.mp4", "a0", "trimmed: it begins where the decoder knows no past"),
];

/// Hashes of the decoded frames of tracks, each given by its file and ID. Edit lists are ignored,
/// and no frame is dropped or repeated. One run of ffmpeg decodes all tracks.
fn frames(tracks: &[(&Path, u32)]) -> Vec<Vec<String>> {
    let mut command = Command::new("ffmpeg");
    command.args(["-nostdin", "-v", "error"]);
    for (input, _) in tracks {
        command.args(["-ignore_editlist", "1", "-flags2", "+skip_manual", "-i"]).arg(input);
    }
    // Each track has its own output. In a common output, the first stream that has its frames would
    // end the others.
    let folder = tempfile::tempdir().unwrap();
    let outputs: Vec<_> = (0..tracks.len()).map(|n| folder.path().join(n.to_string())).collect();
    for ((number, (_, id)), output) in tracks.iter().enumerate().zip(&outputs) {
        command.args(["-map", &format!("{number}:i:{id}"), "-fps_mode", "passthrough"]);
        command.args(["-frames:v", FRAMES, "-frames:a", FRAMES]);
        // A fast hash, because the pictures of some files have 12 megabytes each.
        command.args(["-f", "framehash", "-hash", "murmur3"]).arg(output);
    }
    Program::spawn(&mut command).wait(LIMIT);
    let hash = |line: &str| line.rsplit(',').next().map(|hash| hash.trim().to_owned());
    let hashes = |text: String| {
        text.lines().filter(|line| !line.starts_with('#')).filter_map(hash).collect()
    };
    outputs.iter().map(|output| hashes(fs::read_to_string(output).unwrap())).collect()
}

fn compare(media: &Media, files: impl Fn(usize) -> bool) {
    let library = media.library();
    let paths = media.every_mp4();
    let mut compared = 0;
    for path in paths.iter().enumerate().filter(|(at, _)| files(*at)).map(|(_, path)| path) {
        let Ok(title) = library.title(path) else { continue };
        let (index, _) = index(&media.path(path));
        let mut left: Vec<_> = index.tracks.iter().collect();
        let (mut names, mut ours, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
        for track in &title.tracks {
            let from = source(&mut left, track);
            let id = from.track.id;
            let name = track.name.as_str();
            if NOT_COMPARED.iter().any(|(file, other, _)| file == path && *other == name) {
                continue;
            }
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(&whole(track)).unwrap();
            names.push((name, from.samples.len() as usize - behind_the_end(from)));
            ours.push((file, track.media.id));
            theirs.push((media.path(path), id));
        }
        if names.is_empty() {
            continue;
        }
        let ours = ours.iter().map(|(file, id)| (file.path(), *id));
        let theirs = theirs.iter().map(|(file, id)| (file.as_path(), *id));
        let decoded = frames(&ours.chain(theirs).collect::<Vec<_>>());
        let (ours, theirs) = decoded.split_at(names.len());
        for (((name, kept), ours), theirs) in names.iter().zip(ours).zip(theirs) {
            let theirs = &theirs[..theirs.len().min(*kept)];
            let apart = ours.iter().zip(theirs).position(|(ours, theirs)| ours != theirs);
            assert!(
                ours == theirs && !ours.is_empty(),
                "{path} {name}: {} frames of {}, the first that differs is {apart:?}",
                ours.len(),
                theirs.len()
            );
            compared += ours.len();
        }
    }
    assert!(compared > 500, "{compared} frames");
}

#[test]
fn frames_of_every_other_file() {
    compare(&made(), |at| at % 2 == 0);
}

#[test]
fn frames_of_the_others() {
    compare(&made(), |at| at % 2 == 1);
}

#[test]
#[ignore = "corpus"]
fn corpus_frames_of_every_fourth_file() {
    compare(&corpus(), |at| at % 4 == 0);
}

#[test]
#[ignore = "corpus"]
fn corpus_frames_of_the_next() {
    compare(&corpus(), |at| at % 4 == 1);
}

#[test]
#[ignore = "corpus"]
fn corpus_frames_of_those_after() {
    compare(&corpus(), |at| at % 4 == 2);
}

#[test]
#[ignore = "corpus"]
fn corpus_frames_of_the_last() {
    compare(&corpus(), |at| at % 4 == 3);
}
