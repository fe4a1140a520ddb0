//! Enhanced FLV written by hand, because ffmpeg 5.1 cannot write it.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use bytes::Bytes;
use media::codec::Codec;
use media::flv::Metadata;
use media::mp4::{Index, Reader};
use media::{Kind, Sample, Track};

/// The first track of a kind in a generated clip, with its samples.
fn track(clip: &str, kind: Kind) -> (Track, Vec<Sample>) {
    let data = Bytes::from(std::fs::read(testkit::clip(clip)).unwrap());
    let index = Index::read(&data).unwrap();
    let at = index.tracks.iter().position(|track| track.track.kind() == kind).unwrap();
    let samples = Reader::new(index.merge([at]), &data).map(|read| read.unwrap().sample);
    (index.tracks[at].track.clone(), samples.collect())
}

/// Makes a file with the video of one clip, in HEVC or AV1, and the audio of another, in Opus or
/// AAC. Some encoders send temporal delimiters and some do not, so `with_delimiters` chooses.
pub(crate) fn enhanced(video: &str, audio: &str, with_delimiters: bool) -> Vec<u8> {
    let (video, pictures) = track(video, Kind::Video);
    let (audio, audio_samples) = track(audio, Kind::Audio);
    let (width, height) = video.codec.resolution().unwrap();
    let metadata =
        Metadata { width: Some(width.into()), height: Some(height.into()), ..Metadata::default() };
    let mut tags = vec![(0, 18, metadata.payload().to_vec())];
    let (fourcc, frame) = match &video.codec {
        Codec::Hevc(_) => (b"hvc1", 1),
        Codec::Av1(_) => (b"av01", 1),
        other => panic!("{other:?}"),
    };
    tags.push((0, 9, [&[0x90][..], fourcc, &video.codec.record()].concat()));
    match &audio.codec {
        Codec::Opus(config) => {
            tags.push((0, 8, [&b"\x90Opus"[..], &config.opus_head()].concat()));
        }
        Codec::Aac(config) => tags.push((0, 8, [&[0xaf, 0], &config.record[..]].concat())),
        other => panic!("{other:?}"),
    }
    // Both clocks begin with the first frame of video in decode order.
    let origin = pictures[0].dts;
    let mut media = Vec::new();
    for sample in &pictures {
        let milliseconds = |time: i64| time * 1000 / i64::from(video.timescale);
        let time = milliseconds(sample.dts - origin);
        let cts = milliseconds(sample.pts() - origin) - time;
        let key = if sample.sync { 0x10 } else { 0x20 };
        let [_, cts_bytes @ ..] = (cts as i32).to_be_bytes();
        let start = match &video.codec {
            Codec::Hevc(_) if cts == 0 => [&[0x80 | key | 3][..], fourcc].concat(),
            Codec::Hevc(_) => [&[0x80 | key | frame][..], fourcc, &cts_bytes].concat(),
            _ if with_delimiters => [&[0x80 | key | frame][..], fourcc, &[0x12, 0]].concat(),
            _ => [&[0x80 | key | frame][..], fourcc].concat(),
        };
        media.push((time, 9, [&start[..], &sample.data].concat()));
    }
    for sample in &audio_samples {
        let time = (sample.dts - audio_samples[0].dts) * 1000 / i64::from(audio.timescale);
        let start =
            if matches!(audio.codec, Codec::Opus(_)) { &b"\x91Opus"[..] } else { &[0xaf, 1] };
        media.push((time, 8, [start, &sample.data].concat()));
    }
    media.sort_by_key(|(time, ..)| *time);
    tags.extend(media);

    let mut file = b"FLV\x01\x05\0\0\0\x09\0\0\0\0".to_vec();
    for (time, kind, payload) in tags {
        let [_, size @ ..] = (payload.len() as u32).to_be_bytes();
        let [high, low @ ..] = (time as u32).to_be_bytes();
        file.push(kind);
        file.extend(size);
        file.extend(low);
        file.extend([high, 0, 0, 0]);
        file.extend(&payload);
        file.extend((payload.len() as u32 + 11).to_be_bytes());
    }
    file
}

/// A file of each codec that FLV has carried since 2023.
pub(crate) fn enhanced_files() -> Vec<(String, Vec<u8>)> {
    let (hevc, av1, opus) = ("mp4/fragmented-hevc.mp4", "mp4/av1-aac.mp4", "mp4/opus.mp4");
    vec![
        ("HEVC and AAC".into(), enhanced(hevc, hevc, false)),
        ("AV1 and AAC".into(), enhanced(av1, av1, false)),
        ("AV1 and Opus, with temporal delimiters".into(), enhanced(av1, opus, true)),
        ("HEVC and Opus".into(), enhanced(hevc, opus, false)),
    ]
}
