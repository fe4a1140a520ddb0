//! Compares every generated MP4 and QuickTime file, and every one of the corpus, with ffprobe,
//! sample by sample.
//!
//! Each file is compared twice: with edit lists ignored, which compares the raw tables, and as
//! ffprobe presents the file. Where ffprobe 5.1 and this reader differ, the file is listed below
//! with the reason.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod mp4_support;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use bytes::Bytes;
use media::mp4::{Index, Reader, TrackIndex};
use media::{Codec, Kind};
use mp4_support::{corpus, made, media, name, on_disk, real};

/// Files of the corpus that are refused, and the error.
const REFUSED: [(&str, &str); 5] = [
    ("mp4ff_2xSencNoMdat.mp4", "moov: missing, a media segment without its header at byte 0"),
    ("mp4ff_aac_1.m4s", "moov: missing, a media segment without its header at byte 24"),
    (
        "mp4ff_interleaved_sidxs_segment.m4s",
        "moov: missing, a media segment without its header at byte 76",
    ),
    ("mp4ff_moof_enc.m4s", "moov: missing, a media segment without its header at byte 68"),
    ("mp4ff_seg_cenc_no_seig.m4v", "moov: missing, a media segment without its header at byte 44"),
];

/// Files that are read, with a problem on a track.
const PROBLEMS: [(&str, u32, &str); 1] = [
    // The moov of a file whose media were taken away.
    (
        "mp4ff_init_prog.mp4",
        1,
        "media of track 1 at byte 0 is cut off: 3326728 bytes announced, 5113 present",
    ),
];

/// How ffprobe's report on a track differs from ours, and why ours is right.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Exception {
    /// ffprobe refuses the file or the codec's configuration and lists no packets.
    Silent,
    /// ffprobe stops after so many packets.
    Stops(usize),
    /// ffprobe joins the PCM samples of a chunk into packets of up to 1024.
    Joined,
    /// ffprobe rewrites the payload, so sizes differ.
    Rewritten,
    /// ffprobe's parser examined the data and removed the keyframe flag.
    NotKey,
    /// ffprobe's parser examined encrypted data and found keyframes there.
    OtherKeys,
    /// ffprobe adds to all presentation times what it should subtract from decode times.
    PtsLate(i64),
    /// ffprobe's decode times are this much later than ours, so pictures are presented before they
    /// are decoded.
    DtsLate(i64),
    /// With the edit list, ffprobe's times are this much earlier than ours.
    Early(i64),
}

const EXCEPTIONS: [(&str, u32, Exception); 17] = [
    ("encrypted.mp4", 1, Exception::OtherKeys),
    // A free box of 3 bytes: "moov atom not found". Compared with its twin below instead.
    ("androidx_sample_malformed_free_box.mp4", 1, Exception::Silent),
    ("androidx_sample_malformed_free_box.mp4", 2, Exception::Silent),
    // moov refers to media that are not there.
    ("mp4ff_init_prog.mp4", 1, Exception::Silent),
    // "invalid sampling rate index 15": that index means the frequency is written out, 44100.
    ("membrane_ref_aac_fast_start_sr_44100.mp4", 1, Exception::Silent),
    // PCM, whose samples are single frames.
    ("pcm.mov", 2, Exception::Joined),
    ("androidx_sample_fixed_rechunk_no_elst.mp4", 1, Exception::Joined),
    ("androidx_sample_fpcm_32le.mp4", 2, Exception::Joined),
    ("androidx_sample_fpcm_64be.mp4", 1, Exception::Joined),
    ("androidx_sample_ipcm_16be.mp4", 2, Exception::Joined),
    ("androidx_sample_twos_pcm.mp4", 2, Exception::Joined),
    // Written for a file without the uuid box before moov. The absolute base data offsets of tfhd
    // miss the data by 8192 bytes, and the NAL lengths read there are meaningless.
    ("androidx_sample_fragmented_uuid.mp4", 1, Exception::NotKey),
    // Encrypted. ffprobe stops after the first fragment.
    ("mp4ff_cbcs.mp4", 1, Exception::Stops(91)),
    // ffprobe takes the CEA-608 bytes out of their cdat boxes, and drops samples without any.
    ("mp4ff_cbcs.mp4", 2, Exception::Rewritten),
    ("mp4ff_cbcsdec.mp4", 2, Exception::Rewritten),
    // Negative offsets in a trun of version 1. In fragments, ffprobe adds the largest, 29 frames,
    // to presentation times. In ctts (androidx_bt601.mov) it moves decode times, as we always do.
    ("mp4ff_vvc_400kbps_2s.mp4", 1, Exception::PtsLate(14_848)),
    // The same in ctts, but ffprobe does not examine the last two entries, and the file has five.
    ("androidx_water_180_mvhevc_5frames.mov", 1, Exception::DtsLate(256)),
];

/// Exceptions that only concern the edit list.
const EDITED: [(&str, u32, Exception); 1] = [
    // The edit starts in the middle of a picture. ffprobe begins with the next picture, moved to 0.
    // By 14496-12 8.6.6 the timeline starts exactly there, half a picture earlier.
    ("androidx_iibbibb_editlist_videoonly.mp4", 1, Exception::Early(8192)),
];

fn exception(table: &[(&str, u32, Exception)], file: &str, track: u32) -> Option<Exception> {
    table.iter().find(|(f, t, _)| (*f, *t) == (file, track)).map(|(_, _, exception)| *exception)
}

#[derive(Debug, Clone, PartialEq)]
struct Packet {
    dts: Option<i64>,
    pts: Option<i64>,
    size: u64,
    pos: Option<u64>,
    key: bool,
    discard: bool,
}

/// ffprobe's packets by track_ID.
fn probe(path: &Path, options: &[&str]) -> HashMap<u32, Vec<Packet>> {
    let entries = "packet=stream_index,pts,dts,size,flags,pos:stream=index,id";
    let out = Command::new("ffprobe")
        .args(["-v", "error", "-show_entries", entries, "-of", "json"])
        .args(options)
        .arg(path)
        .output()
        .unwrap();
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap_or_default();
    let list = |key: &str| json[key].as_array().cloned().unwrap_or_default();
    let mut ids = HashMap::new();
    let mut tracks = HashMap::new();
    for stream in list("streams") {
        let id = stream["id"].as_str().unwrap().trim_start_matches("0x");
        let id = u32::from_str_radix(id, 16).unwrap();
        ids.insert(stream["index"].as_u64(), id);
        tracks.insert(id, Vec::new());
    }
    for packet in list("packets") {
        let id = ids[&packet["stream_index"].as_u64()];
        let flags = packet["flags"].as_str().unwrap();
        tracks.get_mut(&id).unwrap().push(Packet {
            dts: packet["dts"].as_i64(),
            pts: packet["pts"].as_i64(),
            size: packet["size"].as_str().unwrap().parse().unwrap(),
            pos: packet["pos"].as_str().map(|pos| pos.parse().unwrap()),
            key: flags.starts_with('K'),
            discard: flags.contains('D'),
        });
    }
    tracks
}

/// Our samples as ffprobe would show them, with `shift` subtracted from their times.
fn packets(track: &TrackIndex, shift: i64) -> Vec<Packet> {
    let packet = |sample: media::mp4::SampleEntry| Packet {
        dts: Some(sample.dts - shift),
        pts: Some(sample.pts() - shift),
        size: sample.size.into(),
        pos: Some(sample.offset),
        key: sample.sync,
        discard: false,
    };
    track.samples.iter().map(packet).collect()
}

fn assert_same(label: &str, ours: &[Packet], theirs: &[Packet]) {
    assert_eq!(ours.len(), theirs.len(), "{label}: sample count");
    for (number, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
        assert_eq!(ours, theirs, "{label}: sample {number}, ours left, ffprobe right");
    }
}

/// Compares the raw tables.
fn compare_raw(label: &str, track: &TrackIndex, except: Option<Exception>, theirs: &[Packet]) {
    let mut ours = packets(track, track.edit.shift);
    match except {
        None | Some(Exception::Early(_)) => {}
        Some(Exception::Silent) => {
            assert!(
                theirs.is_empty() && !ours.is_empty(),
                "{label}: ffprobe has learnt to read it"
            );
            return;
        }
        Some(Exception::Stops(count)) => {
            assert!(ours.len() > count, "{label}");
            ours.truncate(count);
        }
        Some(Exception::Joined) => {
            let mut samples = ours.iter();
            for (number, theirs) in theirs.iter().enumerate() {
                let first = samples.clone().next().unwrap();
                assert_eq!((first.dts, first.pos), (theirs.dts, theirs.pos), "{label}: {number}");
                let mut size = 0;
                while size < theirs.size {
                    size += samples.next().unwrap().size;
                }
                assert_eq!(size, theirs.size, "{label}: packet {number}");
            }
            assert!(samples.next().is_none(), "{label}: samples left over");
            return;
        }
        Some(Exception::Rewritten) => {
            // Compared by position: a packet that exists has its sample's times.
            for theirs in theirs {
                let ours = ours.iter().find(|sample| sample.pos == theirs.pos).unwrap();
                assert_eq!((ours.dts, ours.pts), (theirs.dts, theirs.pts), "{label}");
            }
            assert!(ours.len() - theirs.len() < 2, "{label}");
            return;
        }
        Some(Exception::NotKey) => ours[0].key = false,
        Some(Exception::OtherKeys) => {
            for (ours, theirs) in ours.iter_mut().zip(theirs) {
                ours.key = theirs.key;
            }
        }
        Some(Exception::DtsLate(late)) => {
            assert!(theirs.iter().any(|packet| packet.pts < packet.dts), "{label}");
            for sample in &mut ours {
                sample.dts = sample.dts.map(|dts| dts + late);
            }
        }
        Some(Exception::PtsLate(late)) => {
            assert_eq!(i64::from(track.samples.lead()), late, "{label}: lead");
            for sample in &mut ours {
                sample.pts = sample.pts.map(|pts| pts + late);
                sample.dts = sample.dts.map(|dts| dts + late);
            }
        }
    }
    assert_same(label, &ours, theirs);
}

/// Compares the presentation: packets of ffprobe have our times, and samples it leaves out are not
/// presented.
fn compare_edited(
    label: &str,
    file: &str,
    track: &TrackIndex,
    except: Option<Exception>,
    theirs: &[Packet],
) {
    if matches!(except, Some(Exception::Silent | Exception::Joined)) {
        return;
    }
    let (dts_late, pts_late) = match except {
        Some(Exception::PtsLate(late)) => (late, late),
        Some(Exception::DtsLate(late)) => (late, 0),
        _ => (0, 0),
    };
    let edited = exception(&EDITED, file, track.track.id);
    let early = if let Some(Exception::Early(early)) = edited { early } else { 0 };
    let ours = packets(track, 0);
    let mut shown = 0;
    for packet in theirs {
        let place = |sample: &&Packet| {
            sample.pos == packet.pos
                && (sample.size == packet.size || except == Some(Exception::Rewritten))
        };
        let sample = ours.iter().filter(place).find(|sample| {
            let dts = sample.dts.map(|dts| dts + dts_late - early);
            let pts = sample.pts.map(|pts| pts + pts_late - early);
            (dts, pts) == (packet.dts, packet.pts)
        });
        let sample = sample.unwrap_or_else(|| {
            let place = ours.iter().find(place);
            panic!("{label}: {packet:?} is {place:?} with {:?}", track.edit)
        });
        shown += 1;
        if packet.discard && edited.is_none() {
            let pts = sample.pts.unwrap();
            let outside = pts < track.edit.start || track.edit.end.is_some_and(|end| pts >= end);
            assert!(outside, "{label}: {packet:?} discarded, {:?}", track.edit);
        }
    }
    let hidden = track
        .samples
        .iter()
        .filter(|sample| !track.edit.presents(sample.pts(), sample.duration))
        .count();
    let missing = ours.len() - shown;
    if !matches!(except, Some(Exception::Stops(_) | Exception::Rewritten)) {
        assert!(missing <= hidden, "{label}: {missing} left out, {hidden} not presented");
    }
}

/// How many of these files are read, how many samples they have, and how many files are refused.
fn compare(files: Vec<PathBuf>) -> (usize, u32, usize) {
    let (mut read, mut samples, mut refused) = (0, 0, 0);
    for path in files {
        let file = name(&path);
        let expected = REFUSED.iter().find(|(name, _)| *name == file);
        let index = match (Index::read(&on_disk(&path)), expected) {
            (Ok(index), None) => index,
            (Err(error), Some((_, text))) => {
                assert_eq!(error.to_string(), *text, "{file}");
                refused += 1;
                continue;
            }
            (Ok(_), Some(_)) => panic!("{file}: read, should be refused"),
            (Err(error), None) => panic!("{file}: {error}"),
        };
        assert_eq!(index.problem, None, "{file}");
        let raw = probe(&path, &["-ignore_editlist", "1"]);
        let edited = probe(&path, &[]);
        for track in &index.tracks {
            let id = track.track.id;
            let label = format!("{file} {track}");
            let problem = PROBLEMS.iter().find(|(name, track, _)| (*name, *track) == (file, id));
            match (&track.problem, problem) {
                (None, None) => {}
                (Some(error), Some((_, _, text))) => {
                    assert!(error.to_string().contains(text), "{label}: {error}");
                }
                (found, expected) => panic!("{label}: {found:?}, expected {expected:?}"),
            }
            assert!(track.edit.exact, "{label}: {:?}", track.edit);
            let except = exception(&EXCEPTIONS, file, id);
            let none = Vec::new();
            compare_raw(&label, track, except, raw.get(&id).unwrap_or(&none));
            compare_edited(&label, file, track, except, edited.get(&id).unwrap_or(&none));
            samples += track.samples.len();
        }
        let known = raw.keys().filter(|id| index.tracks.iter().any(|t| t.track.id == **id));
        assert_eq!(known.count(), raw.len(), "{file}: ffprobe has more tracks");
        read += 1;
    }
    (read, samples, refused)
}

#[test]
fn every_file_is_read_as_ffprobe_reads_it() {
    let files = made();
    let count = files.len();
    let (read, samples, refused) = compare(files);
    assert_eq!((read, refused), (count, 0));
    assert!(samples > 20_000, "{samples} samples");
}

#[test]
#[ignore = "corpus"]
fn corpus_every_file_is_read_as_ffprobe_reads_it_or_refused() {
    let (read, samples, refused) = compare(corpus());
    assert_eq!(refused, REFUSED.len(), "a refused file is gone from the corpus");
    assert!(read > 100 && samples > 20_000, "{read} files, {samples} samples");
}

/// Media segments without their header, with and without an index of their own in front.
#[test]
fn a_segment_without_its_header_is_refused() {
    for clip in ["mp4/fragmented.mp4", "mp4/fragmented-hevc.mp4", "mp4/fragmented-aac.mp4"] {
        let data = media(clip);
        let moof = data.windows(4).position(|at| at == b"moof").unwrap() - 4;
        let sidx = data[..moof].windows(4).position(|at| at == b"sidx").map(|at| at - 4);
        assert_eq!(sidx.is_some(), clip.contains("aac"), "{clip}");
        for from in [Some(moof), sidx].into_iter().flatten() {
            let error = Index::read(&data.slice(from..)).unwrap_err().to_string();
            let at = moof - from;
            let expected =
                format!("moov: missing, a media segment without its header at byte {at}");
            assert_eq!(error, expected, "{clip}");
        }
    }
}

/// The header of a file whose media were taken away.
#[test]
fn media_that_are_not_there_are_a_problem_of_their_track() {
    for clip in ["mp4/film.mp4", "mp4/intra.mp4"] {
        let whole = media(clip);
        let mdat = whole.windows(4).position(|at| at == b"mdat").unwrap() - 4;
        let header = whole.slice(..mdat + 8);
        let whole = Index::read(&whole).unwrap();
        let index = Index::read(&header).unwrap();
        assert_eq!(index.tracks.len(), whole.tracks.len(), "{clip}");
        for (track, whole) in index.tracks.iter().zip(&whole.tracks) {
            let (announced, present) = (whole.samples.end_offset(), header.len());
            let text = format!(
                "media of track {} at byte 0 is cut off: {announced} bytes announced, {present} \
                 present",
                track.track.id
            );
            assert!(track.problem.as_ref().unwrap().to_string().contains(&text), "{track}");
            assert_eq!(packets(track, 0), packets(whole, 0), "{clip} {track}");
        }
    }
}

/// Checks that both files have the same samples, and at least one.
#[track_caller]
fn assert_twins(file: &Bytes, twin: &Bytes) {
    let samples = |file| {
        let index = Index::read(file).unwrap();
        index.tracks.iter().flat_map(|track| packets(track, 0)).collect::<Vec<_>>()
    };
    let found = samples(file);
    assert!(!found.is_empty() && found == samples(twin));
}

#[test]
fn a_free_box_shorter_than_its_header_hides_nothing() {
    let whole = media("mp4/short.mp4");
    let free = whole.windows(4).position(|at| at == b"free").unwrap();
    let mut broken = whole.to_vec();
    assert_eq!(broken[free - 4..free], [0, 0, 0, 8]);
    broken[free - 1] = 3;
    assert_twins(&broken.into(), &whole);
}

#[test]
#[ignore = "corpus"]
fn corpus_a_free_box_shorter_than_its_header_hides_nothing() {
    let file = |name| real(&format!("mp4/androidx_sample_{name}.mp4"));
    assert_twins(&file("malformed_free_box"), &file("unsupported_brands"));
}

#[test]
fn samples_are_found_by_number_by_time_and_by_sync() {
    find(made());
}

#[test]
#[ignore = "corpus"]
fn corpus_samples_are_found_by_number_by_time_and_by_sync() {
    find(corpus());
}

fn find(files: Vec<PathBuf>) {
    for path in files {
        let Ok(index) = Index::read(&on_disk(&path)) else { continue };
        for track in &index.tracks {
            let label = format!("{} {track}", name(&path));
            let all: Vec<_> = track.samples.iter().collect();
            assert_eq!(all.len(), track.samples.len() as usize, "{label}");
            let step = (all.len() / 500).max(1);
            let mut before = None;
            for (number, sample) in all.iter().enumerate() {
                let at = number as u32;
                if sample.sync {
                    before = Some(at);
                }
                if number % step != 0 {
                    continue;
                }
                assert_eq!(track.samples.get(at), Some(*sample), "{label}: sample {number}");
                assert_eq!(track.samples.sync_at_or_before(at), before, "{label}: {number}");
                let after = all[number..].iter().position(|s| s.sync).map(|n| at + n as u32);
                assert_eq!(track.samples.sync_at_or_after(at), after, "{label}: {number}");
                let found = track.samples.at_dts(sample.dts).unwrap();
                assert_eq!(all[found as usize].dts, sample.dts, "{label}: sample {number}");
            }
            assert_eq!(track.samples.get(track.samples.len()), None, "{label}");
            let sync = all.iter().filter(|sample| sample.sync).count();
            assert_eq!(track.samples.sync_count() as usize, sync, "{label}");
            let end = all.iter().map(|sample| sample.pts() + i64::from(sample.duration)).max();
            assert_eq!(track.samples.end_pts(), end.unwrap_or(track.edit.shift), "{label}");
        }
    }
}

/// Samples that shiguredo_mp4 finds, in its order: (track_ID, decode time, duration, composition
/// offset, position, size, keyframe).
fn shiguredo(data: &[u8]) -> Vec<(u32, i64, u32, i64, u64, usize, bool)> {
    use shiguredo_mp4::demux::{DemuxError, Input, Mp4FileDemuxer};
    let mut demuxer = Mp4FileDemuxer::new();
    let mut samples = Vec::new();
    loop {
        if demuxer.required_input().is_some() {
            demuxer.handle_input(Input { position: 0, data });
        }
        match demuxer.next_sample() {
            Ok(Some(sample)) => samples.push((
                sample.track.track_id,
                sample.timestamp.cast_signed(),
                sample.duration,
                sample.composition_time_offset.unwrap_or_default(),
                sample.data_offset,
                sample.data_size,
                sample.keyframe,
            )),
            Ok(None) => return samples,
            Err(DemuxError::InputRequired(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_second_reader_finds_the_same_samples() {
    for name in [
        "mp4/film.mp4",
        "mp4/surround.mp4",
        "mp4/late-index.mp4",
        "mp4/surround-60.mp4",
        "mp4/short.mp4",
        "mp4/vfr.mp4",
        "mp4/hevc.mp4",
        "mp4/av1.mp4",
        "mp4/opus-trimmed.mp4",
    ] {
        compare_with_shiguredo(name, &media(name));
    }
}

#[test]
#[ignore = "corpus"]
fn corpus_a_second_reader_finds_the_same_samples() {
    for name in [
        "bbb/bbb_10s_1080p_h264_aac.mp4",
        "bbb/bbb_30s_480p_51ch_moovend.mp4",
        "bbb/androidx_bbb_800x640_768kbps_30fps_avc_pyramid_3b.mp4",
        "film/sintel_trailer_52s_720p_h264_aac.mp4",
        "mp4/membrane_ref_two_tracks_fast_start.mp4",
        "mp4/androidx_h265_bframes.mp4",
        "mp4/torchcodec_testsrc2_av1_10bit.mp4",
        "mp4/androidx_sample_opus.mp4",
        "mp4/mp4ff_prog_8s.mp4",
        "mp4/mediabunny_cursed-vfr.mp4",
    ] {
        compare_with_shiguredo(name, &real(name));
    }
}

fn compare_with_shiguredo(file: &str, data: &Bytes) {
    let index = Index::read(data).unwrap();
    let mut theirs: HashMap<u32, Vec<_>> = HashMap::new();
    for (id, dts, duration, cts, offset, size, sync) in shiguredo(data) {
        let sample = (dts, duration, cts, offset, size, sync);
        theirs.entry(id).or_default().push(sample);
    }
    for track in &index.tracks {
        let lead = i64::from(track.samples.lead());
        let ours = track.samples.iter().map(|s| {
            let (dts, cts) = (s.dts - track.edit.shift + lead, i64::from(s.cts) - lead);
            (dts, s.duration, cts, s.offset, s.size as usize, s.sync)
        });
        let theirs = theirs.remove(&track.track.id).unwrap();
        assert!(ours.eq(theirs), "{file} {track}");
    }
    assert!(theirs.is_empty(), "{file}: more tracks");
}

#[test]
fn the_reader_gives_all_samples_in_decode_order_with_their_bytes() {
    for file in ["mp4/film.mp4", "mp4/fragmented-hevc.mp4"] {
        let data = media(file);
        let index = Index::read(&data).unwrap();
        let tracks = 0..index.tracks.len();
        let mut counts = vec![0; index.tracks.len()];
        let mut last = f64::MIN;
        for read in Reader::new(index.merge(tracks), &data) {
            let read = read.unwrap();
            let track = &index.tracks[read.track];
            let time = read.sample.dts as f64 / f64::from(track.track.timescale);
            assert!(time >= last, "{file}: {time} after {last}");
            last = time;
            let entry = track.samples.get(counts[read.track]).unwrap();
            let at = entry.offset as usize;
            assert_eq!(read.sample.data, data[at..at + entry.size as usize]);
            assert_eq!(read.sample.pts(), entry.pts());
            counts[read.track] += 1;
            if track.track.kind() == Kind::Video {
                // A whole number of NAL units shows that nothing was read from a wrong position.
                let mut rest = &read.sample.data[..];
                while let Some((length, after)) = rest.split_first_chunk::<4>() {
                    rest = &after[u32::from_be_bytes(*length) as usize..];
                }
                assert!(rest.is_empty(), "{file}: NAL lengths");
            }
        }
        let expected: Vec<u32> = index.tracks.iter().map(|t| t.samples.len()).collect();
        assert_eq!(counts, expected, "{file}");
    }
}

#[test]
fn merging_starts_anywhere() {
    let data = media("mp4/film.mp4");
    let index = Index::read(&data).unwrap();
    let starts: Vec<(usize, u32)> = index
        .tracks
        .iter()
        .enumerate()
        .map(|(at, track)| {
            let second = 5 * i64::from(track.track.timescale);
            let sample = track.samples.at_dts(second).unwrap();
            (at, track.samples.sync_at_or_before(sample).unwrap())
        })
        .collect();
    let merged: Vec<_> = index.merge_from(starts.clone()).collect();
    let left: usize =
        starts.iter().map(|(at, from)| (index.tracks[*at].samples.len() - from) as usize).sum();
    assert_eq!(merged.len(), left);
    for (at, from) in starts {
        let first = merged.iter().find(|(track, _)| *track == at).unwrap().1;
        assert_eq!(Some(first), index.tracks[at].samples.get(from));
        assert!(first.sync);
    }
    assert_eq!(index.merge([9]).count(), 0);
}

#[test]
fn a_segment_is_read_with_its_header() {
    let data = media("mp4/fragmented.mp4");
    let whole = Index::read(&data).unwrap();
    assert!(whole.fragmented);
    let moof = data.windows(4).position(|at| at == b"moof").unwrap() - 4;
    let (init, segment) = (data.slice(..moof), data.slice(moof..));
    let parts = Index::read_segment(&segment, &init).unwrap();
    assert_eq!(parts.problem, None);
    for (whole, part) in whole.tracks.iter().zip(&parts.tracks) {
        assert!(!part.samples.is_empty());
        assert_eq!((&whole.track, whole.edit, &part.problem), (&part.track, part.edit, &None));
        let moved = part.samples.iter().map(|mut sample| {
            sample.offset += moof as u64;
            sample
        });
        assert!(moved.eq(whole.samples.iter()), "{whole}");
    }
}

#[test]
fn tracks_are_told_apart() {
    let index = Index::read(&media("mp4/tracks.mp4")).unwrap();
    let kinds: Vec<_> = index.tracks.iter().map(|track| track.track.kind()).collect();
    let (video, audio, other) = (Kind::Video, Kind::Audio, Kind::Other);
    assert_eq!(kinds, [video, audio, other, video, audio, other]);

    let index = Index::read(&media("mp4/encrypted.mp4")).unwrap();
    assert_is_encrypted(&index);
}

#[test]
#[ignore = "corpus"]
fn corpus_tracks_are_told_apart() {
    let index = Index::read(&real("mp4/torchcodec_nasa_13013.mp4")).unwrap();
    let kinds: Vec<_> = index.tracks.iter().map(|track| track.track.kind()).collect();
    let (video, audio, other) = (Kind::Video, Kind::Audio, Kind::Other);
    assert_eq!(kinds, [video, audio, other, video, audio, other]);

    let index = Index::read(&real("mp4/membrane_ref_video_variable_parameters.mp4")).unwrap();
    let track = &index.tracks[0];
    let most = track.samples.iter().map(|sample| sample.description).max().unwrap();
    assert!(track.descriptions.len() > usize::from(most));

    let index = Index::read(&real("mp4/mp4ff_cbcs.mp4")).unwrap();
    assert_is_encrypted(&index);

    let index = Index::read(&real("mp4/androidx_sample_2_byte_NAL_length.mp4")).unwrap();
    assert_eq!(index.tracks[0].problem, None);
    assert_eq!(index.tracks[0].track.codec.record()[4] & 3, 1);
}

#[track_caller]
fn assert_is_encrypted(index: &Index) {
    let Codec::Other(other) = &index.tracks[0].track.codec else { panic!("encrypted") };
    assert_eq!((other.kind, &other.fourcc), (Kind::Video, b"encv"));
    assert_eq!(index.tracks[0].descriptions.len(), 1);
}

#[test]
fn lengths_of_nal_units_take_two_bytes() {
    let clip = testkit::Avc::of("mp4/pictures-ntsc.mp4").with_two_byte_lengths();
    let file = Bytes::from(clip.mp4());
    let index = Index::read(&file).unwrap();
    let track = &index.tracks[0];
    assert_eq!((&index.problem, &track.problem), (&None, &None));
    assert_eq!(track.track.codec.record()[4] & 3, 1);
    assert_eq!(track.samples.len() as usize, clip.samples.len());
    for (found, written) in track.samples.iter().zip(&clip.samples) {
        let at = found.offset as usize;
        assert_eq!(file[at..at + found.size as usize], written.data);
        assert_eq!((found.dts, found.sync), (written.dts, written.is_key));
        assert_eq!(i64::from(found.cts), i64::from(written.cts));
    }
}

/// The second half of the pictures needs other decoder parameters than the first.
#[test]
fn samples_name_the_description_they_are_decoded_with() {
    let (first, second) =
        (testkit::Avc::of("mp4/pictures.mp4"), testkit::Avc::of("mp4/pictures-ntsc.mp4"));
    assert_ne!(first.records, second.records);
    let count = first.samples.len();
    let clip = first.followed_by(&second);
    let index = Index::read(&Bytes::from(clip.mp4())).unwrap();
    let track = &index.tracks[0];
    assert_eq!(track.descriptions.len(), 2);
    let used: Vec<_> = track.samples.iter().map(|sample| sample.description).collect();
    assert_eq!(used.len(), clip.samples.len());
    assert!(used[..count].iter().all(|used| *used == 0));
    assert!(used[count..].iter().all(|used| *used == 1));
}
