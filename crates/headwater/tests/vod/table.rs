//! The result for every MP4 that is made for tests and every one of the corpus; `made.txt` and
//! `table.txt` have it file by file.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use testkit::http::Client;
use testkit::{Program, Server};

use crate::support::{LIMIT, Listed, bytes, connect, read_dash, read_hls, samples, server};

const MADE: &str = include_str!("made.txt");
const CORPUS: &str = include_str!("table.txt");

const ENDINGS: [&str; 5] = [".mp4", ".m4v", ".m4a", ".mov", ".3gp"];

/// The files below a folder whose names end like those of MP4 files, sorted.
fn files(root: &Path, folder: &str, found: &mut Vec<String>) {
    for entry in fs::read_dir(root.join(folder)).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
        if entry.file_type().unwrap().is_dir() {
            files(root, &path, found);
        } else if ENDINGS.iter().any(|ending| path.ends_with(ending)) {
            found.push(path);
        }
    }
    found.sort_unstable();
}

/// Number of samples of each kind, as ffprobe counts them; empty if it finds none.
fn source_samples(file: &Path) -> BTreeMap<String, usize> {
    let args = ["-v", "quiet", "-ignore_editlist", "1", "-show_entries", "packet=codec_type"];
    let mut command = Command::new("ffprobe");
    let finished =
        Program::spawn(command.args(args).args(["-of", "csv=p=0"]).arg(file)).wait(LIMIT);
    let mut counts = BTreeMap::new();
    for kind in String::from_utf8(finished.stdout).unwrap().lines() {
        *counts.entry(kind.trim_end_matches(',').to_owned()).or_default() += 1;
    }
    counts
}

fn kind(track: &Listed) -> &'static str {
    if track.name.starts_with('v') { "video" } else { "audio" }
}

/// The tracks of a title, all fetched through both manifests: each with its codec and samples, and
/// how many more samples of its kind the file has.
fn served(client: &mut Client, file: &Path, title: &str) -> String {
    let hls = read_hls(client, title);
    let dash = read_dash(client, title);
    let source = source_samples(file);
    let mut line = Vec::new();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let all = [dash.of("video"), dash.of("audio")].concat();
    assert!(hls.media().all(|track| all.iter().any(|other| other.name == track.name)), "{title}");
    for by_dash in all {
        let fetched = by_dash.fetch(client);
        let track = hls.media().find(|other| other.name == by_dash.name);
        if let Some(track) = track {
            assert_eq!(by_dash.header, track.header, "{title}");
            let paths = |listed: &Listed| -> Vec<String> {
                listed.segments.iter().map(|(path, _)| path.clone()).collect()
            };
            assert_eq!(paths(by_dash), paths(track), "{title}");
            let (a, b) = (by_dash.duration(), track.duration());
            assert!((a - b).abs() < 1e-3 * track.segments.len() as f64, "{title}: {a} s and {b} s");
        }
        let (read, track) = (samples(fetched), by_dash);
        assert_eq!(read.len(), 1, "{title} {}: one track", track.name);
        let count: usize = read.into_values().sum();
        *counts.entry(kind(track)).or_default() += count;
        let codec = by_dash.codecs.split('.').next().unwrap();
        let only =
            if hls.media().any(|other| other.name == track.name) { "" } else { " by DASH alone" };
        line.push(format!("{} {codec} {count}{only}", track.name));
    }
    for track in &hls.i_frames {
        let segments = track.segments.len();
        let count: usize = samples(track.fetch(client)).into_values().sum();
        assert_eq!(count, segments, "{title} {}: a picture a segment", track.name);
    }
    for text in &hls.text {
        let whole = text.fetch(client);
        assert!(whole.starts_with(b"WEBVTT"), "{title} {}", text.name);
        line.push(format!("{} {}", text.name, text.language.as_deref().unwrap_or("-")));
    }
    for (kind, all) in source {
        let packaged = counts.get(&*kind).copied().unwrap_or(0);
        if packaged != all && matches!(&*kind, "video" | "audio") {
            line.push(format!("{packaged} of {all} {kind}"));
        }
    }
    line.join(", ")
}

/// The result for a file: that of [`served`], or why the file is refused.
fn outcome(server: &Server, client: &mut Client, root: &Path, path: &str) -> String {
    let index = format!("/vod/{path}/index.m3u8");
    let answer = client.get(&index, &[]);
    let file = root.join(path);
    if answer.status() == 200 {
        return served(client, &file, path);
    }
    // Every resource is refused with the reason. The file itself can still be fetched.
    assert_eq!(answer.status(), 422, "{path}: {answer:?}");
    assert!(!answer.header("cache-control").unwrap().contains("immutable"), "{path}");
    for resource in ["manifest.mpd", "v0/media.m3u8", "v0/init.mp4", "a0/0.m4s"] {
        assert_eq!(server.get(&format!("/vod/{path}/{resource}")).status(), 422, "{path}");
    }
    let reason = answer.text().trim_end().strip_prefix(path).unwrap().strip_prefix(": ").unwrap();
    assert!(bytes(client, &format!("/vod/{path}")) == fs::read(&file).unwrap(), "{path}");
    format!("422 {reason}")
}

#[test]
fn every_file_is_served_whole_or_refused_with_a_reason() {
    compare(&testkit::media_dir(), MADE);
}

#[test]
#[ignore = "corpus"]
fn corpus_every_file_is_served_whole_or_refused_with_a_reason() {
    compare(&testkit::corpus_dir(), CORPUS);
}

#[track_caller]
fn compare(root: &Path, table: &str) {
    let server = server(root);
    let mut client = connect(&server);
    let mut paths = Vec::new();
    files(root, "", &mut paths);
    let mut wrong = String::new();
    let mut expected: BTreeMap<&str, &str> = table
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.split_once(' ').unwrap())
        .map(|(path, outcome)| (path, outcome.trim_start()))
        .collect();
    for path in &paths {
        let outcome = outcome(&server, &mut client, root, path);
        if expected.remove(&**path) != Some(&*outcome) {
            wrong.push_str(&format!("{path} {outcome}\n"));
        }
    }
    assert!(wrong.is_empty(), "otherwise than in the table:\n{wrong}");
    assert!(expected.is_empty(), "in the table alone: {expected:?}");
}
