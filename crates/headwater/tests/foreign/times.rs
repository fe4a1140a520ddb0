//! Frames are shown at the publisher's times, whatever the pattern of frames and keyframes, over
//! every delivery. Meanwhile playlists and manifests keep their promises.
//!
//! ffmpeg encodes and publishes in real time, and ffprobe reads when frames are shown. A test
//! reports all faults of a publication together: one seldom comes alone, and each takes seconds to
//! find.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use shiguredo_mp4::demux::Fmp4SegmentDemuxer;
use testkit::push::Client;
use testkit::{Packet, Server, ffprobe_packets, http, playlist};

use crate::deliveries::walk_parts;
use crate::support::{LIMIT, Stops, ffmpeg_done, finish, publish_watched, server};

/// A frame's time may differ from the publisher's by this many seconds. The small addend is for the
/// rounding of decimals.
const WITHIN: f64 = 0.001 + 1e-6;

/// An access unit of audio at 48 kHz, in seconds. Audio counts its units, so it may be apart from
/// its times by as much.
const UNIT: f64 = 1024.0 / 48_000.0 + WITHIN;

/// Bytes of an access unit of silence in stereo.
const SILENT: u64 = 9;

/// How far a segment may begin from where a manifest expected it, in ticks of 90 kHz: 1 ms.
const CLOSE: u64 = 90;

/// Rounding of a playlist's decimals.
const ROUNDED: f64 = 1e-5;

/// Makes a clip: video from libavfilter, by a graph whose times are in milliseconds as in RTMP, and
/// a tone beside it. So the published times are exactly the file's.
#[track_caller]
pub(crate) fn clip(
    folder: &Path,
    name: &str,
    source_video: &str,
    seconds: u32,
    encoding: &[&str],
) -> PathBuf {
    let into = folder.join(format!("{name}.flv"));
    let source_video = format!("{source_video},settb=1/1000");
    let tone = format!("sine=frequency=440:sample_rate=48000:duration={seconds}");
    let seconds = seconds.to_string();
    let mut args = vec!["-f", "lavfi", "-i", &source_video, "-f", "lavfi", "-i", &tone];
    args.extend(["-map", "0:v", "-map", "1:a", "-fps_mode", "passthrough"]);
    args.extend(["-enc_time_base:v", "1:1000", "-c:v", "libx264", "-preset", "ultrafast"]);
    args.extend(["-pix_fmt", "yuv420p", "-sc_threshold", "0", "-c:a", "aac", "-b:a", "64k"]);
    args.extend(["-ac", "2", "-t", &seconds, "-flvflags", "no_duration_filesize"]);
    args.extend(encoding);
    args.push(into.to_str().unwrap());
    ffmpeg_done(args);
    into
}

/// 24, then 30, then 60 frames a second, three seconds each.
const FASTER_AND_FASTER: &str = "testsrc2=size=320x180:rate=24:duration=3[a];\
     testsrc2=size=320x180:rate=30:duration=3[b];testsrc2=size=320x180:rate=60:duration=3[c];\
     [a][b][c]concat=n=3:v=1:a=0";

/// Keyframes 0.3 to 7 s apart, in no order.
const IRREGULAR: &str = "0,1.2,1.5,3.4,3.9,4.8,11.8,12.1";

#[test]
fn frames_left_out() {
    judge(&[("fifths", "testsrc2=size=320x180:rate=30:duration=8,select='mod(n,5)'", 8, GOP)]);
}

#[test]
fn rates_that_change() {
    judge(&[
        ("faster", FASTER_AND_FASTER, 9, GOP),
        (
            "reordered",
            &format!("{FASTER_AND_FASTER},select='mod(n,5)'"),
            9,
            &["-g", "60", "-bf", "3"],
        ),
    ]);
}

#[test]
fn a_frame_a_second() {
    let pauses = "testsrc2=size=320x180:rate=30:duration=12,\
                  select='not(between(t,4,8))+not(mod(n,30))'";
    judge(&[
        ("slides", "testsrc2=size=320x180:rate=1:duration=12", 12, &["-g", "4"]),
        ("pauses", pauses, 12, GOP),
    ]);
}

#[test]
fn frames_that_come_unevenly() {
    // Up to 15 ms early or late, the same in each run.
    let uneven = "testsrc2=size=320x180:rate=30:duration=8,settb=1/1000,\
                  setpts='20+N*1000/30+random(0)*30-15'";
    judge(&[("uneven", uneven, 8, GOP)]);
}

#[test]
fn keyframes_at_any_distance() {
    let source_video = "testsrc2=size=320x180:rate=30:duration=14";
    let forced = ["-g", "1000", "-force_key_frames", IRREGULAR];
    judge(&[("irregular", source_video, 14, &forced)]);
}

#[test]
fn tracks_that_begin_three_seconds_late() {
    let late = |track: &'static str| {
        move |folder: &Path| {
            let source_video = "testsrc2=size=320x180:rate=30:duration=8";
            let clip = clip(folder, &format!("{track}-in-step"), source_video, 8, GOP);
            let into = folder.join(format!("{track}-late.flv"));
            let clip = clip.to_str().unwrap();
            let mut args = vec!["-i", clip, "-itsoffset", "3", "-i", clip];
            args.extend(["-map", if track == "audio" { "0:v" } else { "1:v" }]);
            args.extend(["-map", if track == "audio" { "1:a" } else { "0:a" }]);
            args.extend(["-c", "copy", "-flvflags", "no_duration_filesize"]);
            args.push(into.to_str().unwrap());
            ffmpeg_done(args);
            let packets = ffprobe_packets(&into);
            let begins = |kind: &str| {
                packets.iter().find(|packet| packet.kind == kind).unwrap().pts_time.unwrap()
            };
            let other = if track == "audio" { "video" } else { "audio" };
            assert!((begins(track) - begins(other) - 3.0).abs() < 0.1, "{track} is 3 s late");
            into
        }
    };
    judge_made(&[("late-audio", &late("audio")), ("late-video", &late("video"))]);
}

#[test]
fn audio_that_stops_and_returns() {
    let make = |folder: &Path| {
        let source_video = "testsrc2=size=320x180:rate=30:duration=9";
        let clip = clip(folder, "whole", source_video, 9, GOP);
        let into = folder.join("at-times.flv");
        let mut args = vec!["-i", clip.to_str().unwrap(), "-c:v", "copy"];
        args.extend(["-af", "aselect='lt(mod(t,6),3)'", "-c:a", "aac", "-ar", "48000"]);
        args.extend(["-flvflags", "no_duration_filesize", into.to_str().unwrap()]);
        ffmpeg_done(args);
        let packets = ffprobe_packets(&into);
        let audio = packets.iter().filter(|packet| packet.kind == "audio");
        let times: Vec<_> = audio.map(|packet| packet.pts_time.unwrap()).collect();
        let longest = times.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max);
        assert!((2.9..3.1).contains(&longest), "a pause of {longest} s");
        into
    };
    judge_made(&[("at-times", &make)]);
}

const GOP: &[&str] = &["-g", "60"];

/// Makes clips, publishes them at the same time and fails if any has faults. A clip has a name, a
/// video graph, a duration in seconds and encoder options.
#[track_caller]
fn judge(clips: &[(&str, &str, u32, &[&str])]) {
    let makes: Vec<_> = clips
        .iter()
        .map(|&(name, source_video, seconds, encoding)| {
            (name, move |folder: &Path| clip(folder, name, source_video, seconds, encoding))
        })
        .collect();
    let makes: Vec<_> = makes.iter().map(|(name, make)| (*name, make as Make<'_>)).collect();
    judge_made(&makes);
}

/// Makes a clip in a folder.
type Make<'a> = &'a (dyn Fn(&Path) -> PathBuf + Sync);

/// [`judge`], with clips that are made in other ways.
#[track_caller]
fn judge_made(clips: &[(&str, Make<'_>)]) {
    let server = server();
    let folder = tempfile::tempdir().unwrap();
    let faults: Vec<Faults> = thread::scope(|scope| {
        let publications: Vec<_> = clips
            .iter()
            .map(|&(name, make)| {
                let (server, folder) = (&server, folder.path());
                scope.spawn(move || publication(server, folder, name, &make(folder)))
            })
            .collect();
        publications.into_iter().map(|publication| publication.join().unwrap()).collect()
    });
    let told: String = faults.iter().map(|faults| faults.0.as_str()).collect();
    assert!(told.is_empty(), "\n{told}");
}

/// Faults, one in each line.
#[derive(Debug, Default)]
struct Faults(String);

impl Faults {
    fn add(&mut self, fault: impl std::fmt::Display) {
        writeln!(self.0, "{fault}").unwrap();
    }
}

/// Publishes a clip once, watches it over every delivery, and returns the faults.
fn publication(server: &Server, folder: &Path, name: &str, clip: &Path) -> Faults {
    let stream = format!("live/{name}");
    let url = |path: &str| server.url(&format!("/{stream}/{path}"));
    let source = ffprobe_packets(clip);
    let apart = audio_after_video(&source);
    let source = video(source);
    let rtmp = server.rtmp_url(&stream);
    let progress = folder.join(format!("{name}-progress"));
    let stops = Stops::watch(progress.clone(), || ());
    let publisher = publish_watched(clip, &rtmp, &progress);
    // Viewers begin early, so that they see most of the publication. They wait until there are
    // media.
    server.get_until("/api/v1/streams", LIMIT, |answer| {
        let listed: Value = serde_json::from_slice(&answer.body).unwrap();
        let streams = listed["streams"].as_array().unwrap();
        let ours = streams.iter().find(|one| one["name"] == *stream);
        ours.is_some_and(|ours| ours["tracks"].as_array().unwrap().len() == 2)
    });

    let mut faults = Faults::default();
    let over = AtomicBool::new(false);
    let (mp4, flv) = (url("live.mp4"), url("live.flv"));
    let (joined, walked, named) = thread::scope(|scope| {
        let joiners = [("live.mp4", &mp4), ("live.flv", &flv), ("RTMP", &rtmp)]
            .map(|(by, url)| (by, scope.spawn(move || video(ffprobe_packets(url)))));
        let push = folder.join(format!("{name}-push.mp4"));
        let pushed = scope.spawn({
            let stream = &stream;
            move || {
                std::fs::write(&push, pushed(server, stream)).unwrap();
                video(ffprobe_packets(&push))
            }
        });
        let walks = ["v0", "a0"].map(|track| {
            let stream = &stream;
            let mut seen = Vec::new();
            scope.spawn(move || {
                let media =
                    walk_parts(server, stream, track, |playlist| seen.push(playlist.to_owned()));
                let file = folder.join(format!("{name}-{track}-parts.mp4"));
                std::fs::write(&file, &media).unwrap();
                (seen, ffprobe_packets(&file), media)
            })
        });
        let named = scope.spawn(|| named_by_manifests(server, &stream, &over));
        finish(publisher);
        let mut joined: Vec<_> = joiners.map(|(by, it)| (by, it.join().unwrap())).into();
        joined.push(("push", pushed.join().unwrap()));
        let walked = walks.map(|walk| walk.join().unwrap());
        over.store(true, Ordering::Relaxed);
        (joined, walked, named.join().unwrap())
    });

    for (by, got) in &joined {
        let keyframe = source.len().checked_sub(got.len()).and_then(|at| source.get(at));
        if !keyframe.is_some_and(Packet::is_keyframe) {
            faults.add(format_args!("{name} by {by}: begins with no keyframe"));
        }
        same_times(&format!("{name} by {by}"), &source, got, &mut faults);
    }
    let (mut offsets, mut segments) = (Vec::new(), Vec::new());
    for (track, (playlists, parts, media)) in ["v0", "a0"].into_iter().zip(&walked) {
        let about = format!("{name}, {track}");
        // For so long that the publisher seems silent.
        let stops = stops.at_least(Duration::from_secs(2)).len();
        keeps_its_word(&about, playlists, stops, &mut faults);
        abut(&format!("{about} by parts of HLS"), media, &mut faults);
        if track == "v0" {
            all_of("parts of HLS", name, &source, parts, &mut faults);
        }
        let whole = server.until_ended(&stream, track, LIMIT);
        let hls = Hls::fetch(server, &stream, track, &whole, folder);
        abut(&format!("{about} by HLS"), &hls.bytes, &mut faults);
        if track == "v0" {
            all_of("HLS", name, &source, &hls.packets, &mut faults);
            for (segment, packets) in hls.segments() {
                // With one frame a second, keyframes are further apart than before.
                if !packets[0].is_keyframe() && name != "pauses" {
                    faults.add(format_args!("{about}: {} begins with no keyframe", segment.uri));
                }
            }
        }
        offsets
            .extend(hls.segments().map(|(segment, packets)| Offset::of(track, segment, &packets)));
        segments.extend(hls.packets);
    }
    one_date_time(name, &offsets, &mut faults);
    let in_hls = audio_after_video(&segments);
    if (in_hls - apart).abs() > UNIT {
        faults.add(format_args!(
            "{name} by HLS: audio ends {in_hls:+.3} s after video, instead of {apart:+.3} s"
        ));
    }

    let manifest = server.get(&format!("/{stream}/manifest.mpd"));
    let times = segment_times(manifest.text(), "video");
    let dash = folder.join(format!("{name}-dash.mp4"));
    let mut bytes = server.get(&format!("/{stream}/v0/init.mp4")).body;
    for time in &times {
        let answer = server.get(&format!("/{stream}/v0/t{time}.m4s"));
        assert_eq!(answer.status(), 200, "{name}: the manifest names t{time}.m4s");
        bytes.extend(answer.body);
    }
    std::fs::write(&dash, bytes).unwrap();
    all_of("DASH", name, &source, &video(ffprobe_packets(&dash)), &mut faults);
    // The segment expected after the publisher's end never came. A difference of a few milliseconds
    // is a clock's rounding, and the server still answers such a name.
    let last = times.last().copied().unwrap_or(0);
    for time in named.into_iter().filter(|time| *time < last) {
        let near = times.iter().any(|real| real.abs_diff(time) < CLOSE);
        let status = server.get(&format!("/{stream}/v0/t{time}.m4s")).status();
        // A wrong forecast is a fault only with irregular keyframes. After regular ones nobody can
        // know that the next is late.
        if status != 200 || !near && name == "irregular" {
            let seconds = time as f64 / 90_000.0;
            faults.add(format_args!(
                "{name} by DASH: named a segment at {seconds:.3} s, where none began ({status})"
            ));
        }
    }
    faults
}

/// How many seconds after the last frame of video the last access unit of audio begins. The server's
/// silence does not count: its access units are smaller than the publisher's.
fn audio_after_video(packets: &[Packet]) -> f64 {
    let last = |kind: &str| {
        let loud = |packet: &&Packet| packet.kind == kind && packet.size > SILENT;
        let of_kind = packets.iter().filter(loud);
        of_kind.map(|packet| packet.pts_time.unwrap()).fold(f64::NEG_INFINITY, f64::max)
    };
    last("audio") - last("video")
}

fn video(packets: Vec<Packet>) -> Vec<Packet> {
    packets.into_iter().filter(|packet| packet.kind == "video").collect()
}

/// Everything that push sends from the beginning to the end: header and chunks.
fn pushed(server: &Server, stream: &str) -> Vec<u8> {
    let mut client = Client::connect(server.http, &format!("/{stream}/push"));
    let mut media = Vec::new();
    while let Some(frame) = client.next() {
        match frame.opcode {
            2 => media.extend(frame.payload),
            8 => break,
            _ => {}
        }
    }
    media
}

/// Asserts that the frames are a run of the source's in its order, up to its last, each at its
/// time: all differ by the same.
fn same_times(name: &str, source: &[Packet], got: &[Packet], faults: &mut Faults) {
    let Some(first) = source.len().checked_sub(got.len()).filter(|_| !got.is_empty()) else {
        faults.add(format_args!("{name}: {} frames of {}", got.len(), source.len()));
        return;
    };
    let source = &source[first..];
    if let Some(at) = (0..got.len()).find(|&at| got[at].size != source[at].size) {
        faults.add(format_args!(
            "{name}: {} frames, frame {at} is not {} of the source",
            got.len(),
            first + at
        ));
        return;
    }
    let shown = |packets: &[Packet]| {
        let mut times: Vec<f64> = packets.iter().map(|packet| packet.pts_time.unwrap()).collect();
        times.sort_by(f64::total_cmp);
        times
    };
    let (wanted, times) = (shown(source), shown(got));
    let late = |at: usize| (times[at] - times[0]) - (wanted[at] - wanted[0]);
    let wrong: Vec<usize> = (0..times.len()).filter(|&at| late(at).abs() > WITHIN).collect();
    if let Some(&worst) = wrong.iter().max_by(|a, b| late(**a).abs().total_cmp(&late(**b).abs())) {
        faults.add(format_args!(
            "{name}: {} of {} frames at another time; frame {}, of {:.3} s, by {:+.3} ms",
            wrong.len(),
            times.len(),
            first + worst,
            wanted[worst],
            late(worst) * 1000.0
        ));
    }
}

/// [`same_times`], from the source's first frame on.
fn all_of(by: &str, name: &str, source: &[Packet], got: &[Packet], faults: &mut Faults) {
    let name = format!("{name} by {by}");
    if got.len() < source.len() {
        faults.add(format_args!("{name}: {} frames of {}", got.len(), source.len()));
    }
    same_times(&name, source, got, faults);
}

/// Asserts that decode times rise, and that each sample lasts until the next is decoded, within
/// chunks and between them. A parser by others reads the chunks, because ffprobe reports no
/// durations.
#[track_caller]
fn abut(name: &str, file: &[u8], faults: &mut Faults) {
    let mut demuxer = Fmp4SegmentDemuxer::new();
    let first = boxes(file).find(|(kind, _)| kind == b"moof").unwrap().1.start;
    demuxer.handle_init_segment(&file[..first]).unwrap();
    let mut end = None;
    let mut moof = 0;
    for (kind, at) in boxes(file) {
        match &kind {
            b"moof" => moof = at.start,
            b"mdat" => {
                for sample in demuxer.handle_media_segment(&file[moof..at.end]).unwrap() {
                    let (begin, lasts) = (sample.timestamp, u64::from(sample.duration));
                    if lasts == 0 || end.is_some_and(|end| begin != end) {
                        faults.add(format_args!(
                            "{name}: decoded at {begin} for {lasts}, the one before until {end:?}"
                        ));
                        return;
                    }
                    end = Some(begin + lasts);
                }
            }
            _ => {}
        }
    }
}

/// Types and places of a file's boxes.
fn boxes(file: &[u8]) -> impl Iterator<Item = ([u8; 4], Range<usize>)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let head = file.get(at..at + 8)?;
        let size = u32::from_be_bytes(*head.first_chunk().unwrap()) as usize;
        let begin = at;
        at += size;
        Some((*head.last_chunk().unwrap(), begin..at))
    })
}

/// A segment as a media playlist names it.
#[derive(Debug, Clone, PartialEq)]
struct Segment {
    uri: String,
    /// EXTINF.
    duration: f64,
    /// EXT-X-PROGRAM-DATE-TIME in seconds since 1970, or the date that follows from the durations
    /// since the last one.
    date: Option<f64>,
    /// Durations of its listed parts.
    parts: Vec<f64>,
}

/// The value of an attribute, or of a tag with a single value.
fn number(line: &str, before: &str) -> Option<f64> {
    let rest = &line[line.find(before)? + before.len()..];
    let end = rest.find([',', ' ']).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// Complete segments, and the parts of the incomplete one.
fn segments(text: &str) -> (Vec<Segment>, Vec<f64>) {
    let (mut found, mut parts, mut duration, mut date) = (Vec::new(), Vec::new(), None, None);
    for line in text.lines() {
        if line.starts_with("#EXT-X-PART:") {
            parts.push(number(line, "DURATION=").unwrap());
        } else if line.starts_with("#EXTINF:") {
            duration = number(line, "#EXTINF:");
        } else if line.starts_with("#EXT-X-PROGRAM-DATE-TIME:") {
            date = line.split_once(':').map(|(_, text)| playlist::date(text));
        } else if !line.starts_with('#') && !line.is_empty() {
            let parts = std::mem::take(&mut parts);
            let (uri, duration) = (line.to_owned(), duration.take().unwrap());
            found.push(Segment { uri, duration, date, parts });
            date = date.map(|date| date + duration);
        }
    }
    (found, parts)
}

/// Asserts the promises of a server by RFC 8216bis, over all playlists of a track that were seen.
///
/// The server publishes what it holds when nothing has come for 3 s. So each time that the machine or the publisher stands
/// still may leave one short part.
fn keeps_its_word(name: &str, playlists: &[String], stops: usize, faults: &mut Faults) {
    let mut promised = BTreeSet::new();
    // What is to be told of short parts, by how long they are.
    let mut short: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut complete: BTreeMap<String, Segment> = BTreeMap::new();
    for playlist in playlists {
        let tagged = |tag: &str| playlist.lines().find(|line| line.starts_with(tag));
        let target = number(tagged("#EXT-X-TARGETDURATION:").unwrap(), "DURATION:").unwrap();
        let most = number(tagged("#EXT-X-PART-INF:").unwrap(), "PART-TARGET=").unwrap();
        promised.insert(format!("{target} s a segment, {most} s a part"));
        let (segments, open) = segments(playlist);
        let mut told = |what: String| {
            if !faults.0.contains(&what) {
                faults.add(what);
            }
        };
        for segment in segments {
            let Segment { uri, duration, .. } = &segment;
            if duration.round() > target {
                told(format!("{name}: {uri} lasts {duration} s, TARGETDURATION is {target}"));
            }
            if let Some(before) = complete.get(uri).filter(|before| before.duration != *duration) {
                told(format!("{name}: {uri} was {} s, then {duration} s", before.duration));
            }
            if let Some((_, all_but_last)) = segment.parts.split_last() {
                let sum: f64 = segment.parts.iter().sum();
                if (sum - duration).abs() > ROUNDED * (1 + segment.parts.len()) as f64 {
                    told(format!("{name}: {uri} lasts {duration} s, its parts {sum} s"));
                }
                for part in all_but_last {
                    if *part < 0.85 * most - ROUNDED {
                        let fault =
                            format!("{name}: a part of {uri} lasts {part} s, target {most}");
                        short.entry(part.to_string()).or_default().push(fault);
                    }
                }
            }
            complete.entry(uri.clone()).or_insert(segment);
        }
        // The newest part may turn out to be the last of its segment.
        for part in open.iter().rev().skip(1) {
            if *part < 0.85 * most - ROUNDED {
                let fault =
                    format!("{name}: a part of the open segment lasts {part} s, target {most}");
                short.entry(part.to_string()).or_default().push(fault);
            }
        }
        for part in complete.values().flat_map(|segment| &segment.parts).chain(&open) {
            // A part with a frame after a pause lasts as long as the pause.
            if *part > most + ROUNDED && !name.starts_with("pauses") {
                told(format!("{name}: a part lasts {part} s, target {most}"));
            }
        }
    }
    if short.len() > stops {
        let told: BTreeSet<_> = short.into_values().flatten().collect();
        told.into_iter().for_each(|fault| faults.add(fault));
    }
    if promised.len() > 1 {
        faults.add(format_args!("{name}: promises {promised:?}"));
    }
}

/// A track's complete segments after the end of the stream, fetched by name and read by ffprobe.
struct Hls {
    /// Each segment, and its offset in the file.
    listed: Vec<(Segment, u64)>,
    bytes: Vec<u8>,
    packets: Vec<Packet>,
}

impl Hls {
    #[track_caller]
    fn fetch(server: &Server, stream: &str, track: &str, playlist: &str, folder: &Path) -> Self {
        let maps: Vec<&str> = playlist::uris(playlist, "#EXT-X-MAP:").collect();
        assert_eq!(maps.len(), 1, "{playlist}");
        let get = |name: &str| {
            let answer = server.get(&format!("/{stream}/{track}/{name}"));
            assert_eq!(answer.status(), 200, "{stream}, {track}: {name}");
            answer.body
        };
        let mut bytes = get(maps[0]);
        let mut listed = Vec::new();
        for segment in segments(playlist).0 {
            let at = bytes.len() as u64;
            bytes.extend(get(&segment.uri));
            listed.push((segment, at));
        }
        let file = folder.join(format!("{}-{track}-hls.mp4", stream.replace('/', "-")));
        std::fs::write(&file, &bytes).unwrap();
        Self { listed, bytes, packets: ffprobe_packets(&file) }
    }

    /// Each segment and its packets.
    fn segments(&self) -> impl Iterator<Item = (&Segment, Vec<&Packet>)> {
        self.listed.iter().enumerate().filter_map(|(index, (segment, from))| {
            let to = self.listed.get(index + 1).map_or(u64::MAX, |next| next.1);
            let within = |packet: &&Packet| (*from..to).contains(&packet.position.unwrap());
            let packets: Vec<&Packet> = self.packets.iter().filter(within).collect();
            (!packets.is_empty()).then_some((segment, packets))
        })
    }
}

/// Program date-time minus media time of a segment, at its first frame shown.
#[derive(Debug)]
struct Offset {
    of: String,
    begins: f64,
    seconds: f64,
}

impl Offset {
    fn of(track: &str, segment: &Segment, packets: &[&Packet]) -> Self {
        let date = segment.date.unwrap_or(f64::NAN);
        let times = packets.iter().map(|packet| packet.pts_time.unwrap());
        let begins = times.fold(f64::INFINITY, f64::min);
        Self { of: format!("{track}/{}", segment.uri), begins, seconds: date - begins }
    }
}

/// Asserts that program date-time minus media time is one number for all segments of all tracks,
/// but for the rounding of dates to milliseconds: hls.js aligns tracks by it.
fn one_date_time(name: &str, offsets: &[Offset], faults: &mut Faults) {
    if let Some(undated) = offsets.iter().find(|offset| !offset.seconds.is_finite()) {
        faults.add(format_args!("{name}: no date of {}", undated.of));
        return;
    }
    let differ = |one: &Offset, other: &Offset| (one.seconds - other.seconds).abs() > WITHIN;
    if !offsets.iter().any(|one| offsets.iter().any(|other| differ(one, other))) {
        return;
    }
    let least = offsets.iter().map(|it| it.seconds).fold(f64::INFINITY, f64::min);
    faults.add(format_args!("{name}: program date-time minus media time is not one number"));
    for Offset { of, begins, seconds } in offsets {
        let ms = (seconds - least) * 1000.0;
        faults.add(format_args!("  {of}, from {begins:.6} s: {ms:+.3} ms"));
    }
}

/// Times of the segments that a manifest names for video or audio.
fn segment_times(manifest: &str, content: &str) -> Vec<u64> {
    let mpd = dash_mpd_core::parse(manifest).unwrap_or_else(|error| panic!("{error}: {manifest}"));
    let mut times = Vec::new();
    for set in mpd.periods.iter().flat_map(|period| &period.adaptations) {
        if set.contentType.as_deref() != Some(content) {
            continue;
        }
        let of_first = set.representations[0].SegmentTemplate.as_ref();
        let template = set.SegmentTemplate.as_ref().or(of_first).unwrap();
        let mut at = 0;
        for run in &template.SegmentTimeline.as_ref().unwrap().segments {
            at = run.t.unwrap_or(at);
            for _ in 0..=run.r.unwrap_or(0) {
                times.push(at);
                at += run.d;
            }
        }
    }
    times
}

/// Times of all video segments that any manifest names until the stream is over.
fn named_by_manifests(server: &Server, stream: &str, over: &AtomicBool) -> BTreeSet<u64> {
    let mut named = BTreeSet::new();
    let deadline = Instant::now() + LIMIT;
    while !over.load(Ordering::Relaxed) && Instant::now() < deadline {
        // The first manifest may take long to come.
        let mut client = http::Client::connect(server.http, LIMIT).unwrap();
        let manifest = client.get(&format!("/{stream}/manifest.mpd"), &[]);
        if manifest.status() == 200 && manifest.text().contains("type=\"dynamic\"") {
            named.extend(segment_times(manifest.text(), "video"));
        }
        thread::sleep(Duration::from_millis(50));
    }
    named
}
