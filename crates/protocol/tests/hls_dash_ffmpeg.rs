//! ffmpeg plays a presentation from disk. We write its manifest and playlists, and the CMAF writer
//! its segments. ffmpeg must decode the same as from its own file.

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use media::cmaf::{self, ChunkInfo, SegmentStart};
use media::{Kind, Sample, Track};
use protocol::dash::{
    self, AdaptationSet, Address, Audio, Content, Manifest, Period, Presentation, Representation,
    Role, Segment, SegmentTemplate, Video,
};
use protocol::hls;
use testkit::{ffmpeg, framehash};

/// Hashes of a stream's decoded frames, in order.
fn frames(input: &Path, stream: &str) -> Vec<String> {
    let input = input.to_str().expect("is UTF-8");
    let frames = framehash(&ffmpeg(["-i", input, "-map", stream, "-f", "framemd5", "pipe:1"]));
    frames.into_iter().map(|frame| frame.md5).collect()
}

/// Writes a track's header and its segments of a second each. Returns its representation for a
/// manifest.
fn write_track(dir: &Path, id: &str, track: &Track, samples: &[Sample]) -> Representation {
    let dir = dir.join(id);
    fs::create_dir(&dir).expect("creates");
    fs::write(dir.join("init.0.mp4"), cmaf::header(&[track]).expect("writes")).expect("writes");
    let second = i64::from(track.timescale);
    let mut segments = Vec::new();
    let mut rest = samples;
    while let Some(first) = rest.first() {
        // Video is cut at keyframes, one per second.
        let end = (segments.len() as i64 + 1) * second;
        let cut = rest.iter().position(|s| s.dts > first.dts && s.dts >= end && s.sync);
        let (now, later) = rest.split_at(cut.unwrap_or(rest.len()));
        rest = later;
        let number = segments.len() as u32 + 1;
        let mut bytes = Vec::new();
        for (index, chunk) in now.chunks(7).enumerate() {
            let info = ChunkInfo {
                track_id: track.id,
                sequence_number: number,
                segment_start: (index == 0).then(SegmentStart::default),
            };
            cmaf::write_chunk(&mut bytes, &info, chunk).expect("writes");
        }
        fs::write(dir.join(format!("{number}.m4s")), bytes).expect("writes");
        let duration = now.iter().map(|sample| u64::from(sample.duration)).sum();
        segments.push(Segment { start: first.dts as u64, duration });
    }
    Representation {
        id: id.into(),
        bandwidth: 1_000_000,
        codecs: track.codec.rfc6381().into_owned(),
        video: track.codec.resolution().map(|(width, height)| Video {
            width,
            height,
            frame_rate: Some((25, 1)),
        }),
        audio: track.codec.audio().map(|(sample_rate, channels)| Audio { sample_rate, channels }),
        address: Address::Template(SegmentTemplate {
            timescale: track.timescale,
            initialization: "$RepresentationID$/init.0.mp4".into(),
            media: "$RepresentationID$/$Number$.m4s".into(),
            start_number: Some(1),
            presentation_time_offset: 0,
            availability_time_offset: None,
            segments,
        }),
    }
}

fn template(representation: &Representation) -> &SegmentTemplate {
    match &representation.address {
        Address::Template(template) => template,
        Address::File(url) => panic!("{url} is not segments"),
    }
}

/// A presentation on disk, its source, and the representations of its tracks for a manifest.
struct Disk {
    dir: tempfile::TempDir,
    source: PathBuf,
    representations: Vec<Representation>,
}

impl Disk {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("creates");
        let source = dir.path().join("source.mp4");
        ffmpeg([
            "-f",
            "lavfi",
            "-i",
            "testsrc2=s=320x180:r=25:d=4",
            "-f",
            "lavfi",
            "-i",
            "sine=f=440:r=48000:d=4",
            "-c:v",
            "libx264",
            "-preset",
            "ultrafast",
            "-g",
            "25",
            "-pix_fmt",
            "yuv420p",
            "-c:a",
            "aac",
            "-f",
            "mp4",
            "-use_editlist",
            "0",
            "-movflags",
            "empty_moov+default_base_moof+frag_keyframe",
            source.to_str().expect("is UTF-8"),
        ]);
        let bytes = Bytes::from(fs::read(&source).expect("reads"));
        let header = cmaf::read_header(&bytes).expect("reads");
        let chunks: Vec<_> =
            cmaf::chunks(&bytes, Some(&header)).collect::<Result<_, _>>().expect("reads");
        let representations = header.tracks.iter().map(|track| {
            let of_track = chunks.iter().filter(|chunk| chunk.track_id == track.id);
            let samples: Vec<_> = of_track.flat_map(|chunk| chunk.samples.clone()).collect();
            let id = if track.kind() == Kind::Video { "v0" } else { "a0" };
            let representation = write_track(dir.path(), id, track, &samples);
            let count = template(&representation).segments.len();
            assert!((4..=5).contains(&count), "a segment a second, not {count}");
            representation
        });
        let representations = representations.collect();
        Self { dir, source, representations }
    }

    /// Checks that both streams of `name` decode to the same as those of the source.
    fn check(&self, name: &str) {
        let path = self.dir.path().join(name);
        for (stream, least) in [("0:v", 100), ("0:a", 180)] {
            let (ours, original) = (frames(&path, stream), frames(&self.source, stream));
            assert!(original.len() >= least, "{} frames", original.len());
            assert_eq!(ours, original, "{name} {stream}");
        }
    }
}

#[test]
fn ffmpeg_plays_the_manifest() {
    let disk = Disk::new();
    let sets = disk.representations.iter().enumerate().map(|(number, representation)| {
        let video = representation.video.is_some();
        AdaptationSet {
            id: number as u32,
            content: if video { Content::Video } else { Content::Audio },
            language: None,
            label: None,
            role: Some(Role::Main),
            producer_reference_time: None,
            aligned: false,
            starts_with_sap: true,
            representations: vec![representation.clone()],
        }
    });
    let manifest = Manifest {
        presentation: Presentation::Static { duration: 4000 },
        profiles: vec![dash::PROFILE_LIVE.into(), dash::PROFILE_CMAF.into()],
        min_buffer_time: 1000,
        max_segment_duration: Some(1100),
        service_description: None,
        periods: vec![Period {
            id: "0".into(),
            start: 0,
            duration: None,
            adaptation_sets: sets.collect(),
        }],
        utc_timing: vec![],
    };
    fs::write(disk.dir.path().join("manifest.mpd"), manifest.render()).expect("writes");
    disk.check("manifest.mpd");
}

#[test]
fn ffmpeg_plays_the_playlists() {
    let disk = Disk::new();
    for representation in &disk.representations {
        let template = template(representation);
        let segment = |(number, segment): (usize, &Segment)| hls::Segment {
            uri: format!("{}.m4s", number + 1),
            duration: segment.duration,
            map: Some("init.0.mp4".into()),
            date: None,
            discontinuity: false,
            gap: false,
            parts: vec![],
        };
        let playlist = hls::MediaPlaylist {
            timescale: template.timescale,
            target_duration: 1,
            media_sequence: 1,
            discontinuity_sequence: 0,
            kind: Some(hls::PlaylistType::Vod),
            independent_segments: true,
            i_frames_only: false,
            low_latency: None,
            blocking_reload: false,
            delta_updates: false,
            date_rounding: hls::Rounding::Down,
            segments: template.segments.iter().enumerate().map(segment).collect(),
            open: None,
            preload_hint: None,
            rendition_reports: vec![],
            ended: true,
        };
        let path = disk.dir.path().join(&representation.id).join("media.m3u8");
        fs::write(path, playlist.render(hls::Skip::No)).expect("writes");
    }
    let codecs = disk.representations.iter().map(|r| r.codecs.clone()).collect();
    let multivariant = hls::MultivariantPlaylist {
        independent_segments: true,
        audio: vec![hls::Audio {
            group: "audio".into(),
            name: "a0".into(),
            default: true,
            uri: Some("a0/media.m3u8".into()),
            ..hls::Audio::default()
        }],
        variants: vec![hls::Variant {
            uri: "v0/media.m3u8".into(),
            bandwidth: 1_000_000,
            codecs,
            resolution: Some((320, 180)),
            frame_rate: Some((25, 1)),
            audio: Some("audio".into()),
            ..hls::Variant::default()
        }],
        ..hls::MultivariantPlaylist::default()
    };
    fs::write(disk.dir.path().join("index.m3u8"), multivariant.render()).expect("writes");
    disk.check("index.m3u8");
}
