//! CMAF headers and chunks: written ones read back, here and in another implementation, and no
//! input makes the reader panic.

use bytes::Bytes;
use media::cmaf::{self, ChunkInfo, ReferenceTime, SegmentStart};
use media::codec::{aac, opus};
use media::{Codec, Error, Sample, Track};
use mp4_atom::{Atom, Decode, Prft};
use proptest::prelude::*;
use shiguredo_mp4::demux::Fmp4SegmentDemuxer;

fn aac_track(id: u32) -> Track {
    // AAC-LC, 48 kHz, stereo.
    let config = aac::Config::parse(Bytes::from_static(&[0x11, 0x90])).expect("is valid");
    Track { id, timescale: 48_000, codec: Codec::Aac(config), language: *b"deu" }
}

fn opus_track(id: u32) -> Track {
    let record = [0, 2, 1, 0x38, 0, 0, 0xBB, 0x80, 0, 0, 0];
    let config = opus::Config::parse(Bytes::copy_from_slice(&record)).expect("is valid");
    Track { id, timescale: 48_000, codec: Codec::Opus(config), language: *b"und" }
}

fn sample(dts: i64, duration: u32, data: &'static [u8]) -> Sample {
    Sample { dts, cts: 0, duration, sync: true, data: Bytes::from_static(data) }
}

fn info(track_id: u32) -> ChunkInfo {
    ChunkInfo { track_id, sequence_number: 1, segment_start: None }
}

/// Types of the boxes in a row, and where each starts and ends.
fn boxes(data: &[u8]) -> Vec<(String, std::ops::Range<usize>)> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < data.len() {
        let size = u32::from_be_bytes(data[at..at + 4].try_into().expect("4 bytes")) as usize;
        found.push((String::from_utf8_lossy(&data[at + 4..at + 8]).into(), at..at + size));
        at += size;
    }
    found
}

#[test]
fn header_reads_back() {
    let (aac, opus) = (aac_track(7), opus_track(2));
    let bytes = cmaf::header(&[&aac, &opus]).expect("writes");
    let read = cmaf::read_header(&bytes).expect("reads");
    assert_eq!(read.tracks, [aac, opus]);
    assert_eq!(read.defaults.iter().map(|d| d.track_id).collect::<Vec<_>>(), [7, 2]);

    let mut oracle = Fmp4SegmentDemuxer::new();
    oracle.handle_init_segment(&bytes).expect("another reader takes it");
    let tracks = oracle.tracks().expect("has tracks");
    assert_eq!(tracks.iter().map(|t| t.track_id).collect::<Vec<_>>(), [7, 2]);
    assert_eq!(tracks[0].timescale.get(), 48_000);
}

#[test]
fn a_language_that_mdhd_cannot_hold_becomes_und() {
    let track = Track { language: *b"E\0!", ..aac_track(1) };
    let bytes = cmaf::header(&[&track]).expect("writes");
    assert_eq!(cmaf::read_header(&bytes).expect("reads").tracks[0].language, *b"und");
}

#[test]
fn headers_that_cannot_be_are_refused() {
    let track = aac_track(1);
    assert!(cmaf::header(&[]).is_err());
    assert!(cmaf::header(&[&track, &track]).is_err());
    assert!(cmaf::header(&[&Track { id: 0, ..track.clone() }]).is_err());
    assert!(cmaf::header(&[&Track { timescale: 0, ..track.clone() }]).is_err());
    let other = media::codec::Other { kind: media::Kind::Audio, fourcc: *b"ac-4" };
    let other = Track { codec: Codec::Other(other), ..track };
    assert!(matches!(cmaf::header(&[&other]), Err(Error::Unsupported { .. })));
}

#[test]
fn the_first_chunk_of_a_segment_says_so() {
    let reference = ReferenceTime { unix_micros: 1_795_291_260_123_456, media_time: 1 << 33 };
    let start =
        ChunkInfo { segment_start: Some(SegmentStart { reference: Some(reference) }), ..info(3) };
    let samples = [sample(1 << 33, 1024, b"abc"), sample((1 << 33) + 1024, 1024, b"def")];
    let mut out = Vec::new();
    let layout = cmaf::write_chunk(&mut out, &start, &samples).expect("writes");
    let first = out.len();
    cmaf::write_chunk(&mut out, &info(3), &[sample((1 << 33) + 2048, 1024, b"gh")])
        .expect("writes");

    let boxes = boxes(&out);
    let names: Vec<_> = boxes.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["styp", "prft", "moof", "mdat", "moof", "mdat"]);
    assert_eq!((layout.moof, layout.payload, layout.len), (boxes[2].1.start, first - 6, first));
    assert_eq!(&out[8..32], b"msdh\0\0\0\0msdhcmfscmffcmfl");

    // Version 1, flags 24 (ISO/IEC 14496-12 8.16.5): the time of capture.
    assert_eq!(out[40..44], [1, 0, 0, 24]);
    let prft = Prft::decode(&mut &out[boxes[1].1.clone()]).expect("another reader takes it");
    assert_eq!(Prft::KIND.to_string(), "prft");
    assert_eq!(prft.reference_track_id, 3);
    assert_eq!(prft.utc_time_semantics, mp4_atom::ReferenceTime::RealTime);
    assert_eq!(prft.ntp_timestamp >> 32, 1_795_291_260 + 2_208_988_800);

    let read: Vec<_> = cmaf::chunks(&out.into(), None).collect::<Result<_, _>>().expect("reads");
    assert_eq!((read[0].segment_start, read[0].reference), (true, Some(reference)));
    assert_eq!((read[1].segment_start, read[1].reference), (false, None));
    assert_eq!(read[0].decode_time, 1 << 33);
    assert_eq!(read[0].samples, samples);
}

#[test]
fn values_that_samples_share_are_written_once() {
    let audio: Vec<_> = (0..9).map(|n| sample(n * 1024, 1024, b"0123456789")).collect();
    let mut out = Vec::new();
    let layout = cmaf::write_chunk_head(&mut out, &info(1), &audio).expect("writes");
    // moof 8, mfhd 16, traf 8, tfhd 28, tfdt 20, trun 20; mdat 8.
    assert_eq!(layout.payload, 108);

    // Nine sizes that differ.
    let mut varied = audio.clone();
    varied[3].data = Bytes::from_static(b"short");
    let layout = cmaf::write_chunk_head(&mut out, &info(1), &varied).expect("writes");
    assert_eq!(layout.payload, 108 - 4 + 9 * 4);

    // A sync sample and others: first_sample_flags.
    let mut video = audio;
    video[1..].iter_mut().for_each(|sample| sample.sync = false);
    let layout = cmaf::write_chunk_head(&mut out, &info(1), &video).expect("writes");
    assert_eq!(layout.payload, 108 + 4);
}

#[test]
fn chunks_that_cannot_be_are_refused_and_leave_no_bytes() {
    let mut out = vec![1];
    for samples in [
        vec![],
        vec![sample(-1, 1, b"a")],
        vec![sample(5, 1, b"a"), sample(4, 1, b"b")],
        vec![sample(0, 1, b"a"), sample(1 << 32, 1, b"b")],
        vec![sample(i64::MIN, 1, b"a"), sample(i64::MAX, 1, b"b")],
    ] {
        let result = cmaf::write_chunk(&mut out, &info(1), &samples);
        assert!(result.is_err(), "{samples:?}");
    }
    assert_eq!(out, [1]);
}

#[test]
fn data_that_end_within_a_chunk_are_kept_until_more_come() {
    let mut out = Vec::new();
    cmaf::write_chunk(&mut out, &info(1), &[sample(0, 1024, b"abc")]).expect("writes");
    let first = out.len();
    cmaf::write_chunk(&mut out, &info(1), &[sample(1024, 1024, b"defg")]).expect("writes");
    for end in first..out.len() {
        let mut chunks = cmaf::chunks(&Bytes::copy_from_slice(&out[..end]), None);
        assert!(chunks.next().expect("has one").is_ok());
        if end > first {
            assert!(matches!(chunks.next(), Some(Err(Error::CutOff { .. }))), "at {end}");
        }
        assert!(chunks.next().is_none());
        assert_eq!(chunks.position(), first);
    }
}

#[test]
fn a_count_alone_allocates_nothing() {
    let mut out = Vec::new();
    cmaf::write_chunk(&mut out, &info(1), &[sample(0, 1, b"")]).expect("writes");
    let trun = out.windows(4).position(|window| window == b"trun").expect("has a trun");
    out[trun + 8..trun + 12].copy_from_slice(&u32::MAX.to_be_bytes());
    let mut chunks = cmaf::chunks(&out.into(), None);
    assert!(matches!(chunks.next(), Some(Err(Error::Limit { .. }))));
}

prop_compose! {
    /// Samples in a row: decode times follow from durations.
    fn run()(
        start in prop_oneof![0..1_000_000i64, 1i64 << 40..1 << 41],
        samples in prop::collection::vec(
            (
                prop_oneof![Just(1024u32), 0..100_000u32],
                prop_oneof![Just(0), -90_000..90_000i32],
                any::<bool>(),
                prop::collection::vec(any::<u8>(), 0..40),
            ),
            1..20,
        ),
        same in any::<[bool; 4]>(),
    ) -> Vec<Sample> {
        // Often all samples share a field, as in real streams.
        let first = samples[0].clone();
        let mut dts = start;
        samples.into_iter().map(|(duration, cts, sync, data)| {
            let sample = Sample {
                dts,
                duration: if same[0] { first.0 } else { duration },
                cts: if same[1] { first.1 } else { cts },
                sync: if same[2] { first.2 } else { sync },
                data: if same[3] { first.3.clone().into() } else { data.into() },
            };
            dts += i64::from(sample.duration);
            sample
        }).collect()
    }
}

proptest! {
    #[test]
    fn chunks_read_back(samples in run(), sequence_number in any::<u32>(), prefix in 0..3usize) {
        let mut out = vec![0; prefix];
        let info = ChunkInfo { track_id: 2, sequence_number, segment_start: None };
        let layout = cmaf::write_chunk(&mut out, &info, &samples).expect("writes");
        let chunk = Bytes::from(out).slice(prefix..);
        prop_assert_eq!(chunk.len(), layout.len);
        for (range, sample) in layout.samples(&samples).zip(&samples) {
            prop_assert_eq!(&chunk[range], &sample.data[..]);
        }

        let read: Vec<_> = cmaf::chunks(&chunk, None).collect::<Result<_, _>>().expect("reads");
        prop_assert_eq!(read.len(), 1);
        prop_assert_eq!(read[0].track_id, 2);
        prop_assert_eq!(read[0].sequence_number, sequence_number);
        prop_assert_eq!(&read[0].samples, &samples);

        let header = cmaf::header(&[&aac_track(1), &opus_track(2)]).expect("writes");
        let mut oracle = Fmp4SegmentDemuxer::new();
        oracle.handle_init_segment(&header).expect("another reader takes the header");
        let read = oracle.handle_media_segment(&chunk).expect("and the chunk");
        prop_assert_eq!(read.len(), samples.len());
        for (read, sample) in read.iter().zip(&samples) {
            prop_assert_eq!(read.track.track_id, 2);
            prop_assert_eq!(read.timestamp, sample.dts as u64);
            prop_assert_eq!(read.duration, sample.duration);
            prop_assert_eq!(read.composition_time_offset.unwrap_or(0), i64::from(sample.cts));
            prop_assert_eq!(read.keyframe, sample.sync);
            let start = read.data_offset as usize;
            prop_assert_eq!(&chunk[start..start + read.data_size], &sample.data[..]);
        }
    }

    #[test]
    fn damaged_bytes_give_errors_not_panics(
        samples in run(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        end in any::<prop::sample::Index>(),
    ) {
        let mut bytes = cmaf::header(&[&aac_track(1), &opus_track(2)]).expect("writes").to_vec();
        let start = ChunkInfo { segment_start: Some(SegmentStart {
            reference: Some(ReferenceTime { unix_micros: 1, media_time: 2 }),
        }), ..info(2) };
        cmaf::write_chunk(&mut bytes, &start, &samples).expect("writes");
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        bytes.truncate(end.index(bytes.len() + 1));
        let bytes = Bytes::from(bytes);
        let header = cmaf::read_header(&bytes).ok();
        let mut position = 0;
        let mut chunks = cmaf::chunks(&bytes, header.as_ref());
        while let Some(chunk) = chunks.next() {
            // Everything that was read lies within the input, and each read makes progress.
            if let Ok(chunk) = chunk {
                prop_assert!(chunk.samples.iter().all(|s| s.data.len() <= bytes.len()));
                prop_assert!(chunks.position() > position);
                position = chunks.position();
            }
        }
        prop_assert!(chunks.position() <= bytes.len());
    }
}

#[test]
fn a_head_is_the_same_whether_the_data_are_in_memory_or_in_a_file() {
    let samples = [sample(0, 1024, b"abc"), sample(1024, 1024, b"defg"), sample(2048, 960, b"h")];
    let entry = |sample: &Sample| media::mp4::SampleEntry {
        dts: sample.dts,
        cts: sample.cts,
        duration: sample.duration,
        sync: sample.sync,
        offset: 1 << 40,
        size: sample.data.len() as u32,
        description: 0,
    };
    let elsewhere: Vec<_> = samples.iter().map(entry).collect();
    let (mut here, mut there) = (Vec::new(), Vec::new());
    let layout = cmaf::write_chunk_head(&mut here, &info(1), &samples).expect("writes");
    assert_eq!(cmaf::write_chunk_head(&mut there, &info(1), &elsewhere).expect("writes"), layout);
    assert_eq!(here, there);
    assert!(layout.samples(&elsewhere).eq(layout.samples(&samples)));
}

#[test]
fn frames_are_shown_as_asked_and_audio_is_not_turned() {
    let display = cmaf::Display {
        matrix: [0, 1 << 16, 0, -(1 << 16), 0, 0, 180 << 16, 0, 1 << 30],
        size: (1024 << 16, 576 << 16 | 0x8000),
        properties: Bytes::from_static(b"\0\0\0\x10pasp\0\0\0\x40\0\0\0\x2d"),
    };
    let record = Bytes::from(testkit::avc_record(31));
    let codec = Codec::Avc(media::codec::avc::Config::parse(record).expect("is valid"));
    let video = Track { id: 1, timescale: 90_000, codec, language: *b"und" };
    let audio = aac_track(2);
    let bytes = cmaf::header_shown(&[&video, &audio], &display).expect("writes");
    let index = media::mp4::Index::read(&bytes).expect("reads");
    let shown: Vec<_> = index.tracks.iter().map(|track| track.display(0)).collect();
    assert_eq!(shown, [display, cmaf::Display::AS_CODED]);
}
