//! The stream that the bundled server publishes: H.264 frames that no viewer decodes, each with other bytes.
//!
//! All access units have the same size, so the bit rate is known. No two have the same content, so a viewer that
//! compares them with the reference notices each one that is missing, changed or out of order.

use std::io::Write;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use media::cmaf::{self, ChunkInfo, ReferenceTime, SegmentStart};
use media::codec::{Codec, avc};
use media::flv::{Message, Packetizer, file_header};
use media::{Sample, Track, stamp};
use tempfile::NamedTempFile;
use viewer::Micros;

use crate::fleet::Original;

/// Duration of a frame.
pub(super) const FRAME: Duration = Duration::from_millis(40);
/// Frames from one keyframe to the next.
const GROUP: u32 = 5;
/// Bytes of an access unit without its stamp: 800 kbit/s.
pub(super) const SIZE: usize = 4000;
/// Units of time in a second.
pub(super) const TIMESCALE: u32 = 1000;
/// Units of time in a frame.
pub(super) const TICKS: u32 = 40;
/// track_ID of the video.
const TRACK: u32 = 1;

/// SPS and PPS of 1280×720 in Baseline at level 3.1, each with its NAL unit header.
const SPS: [u8; 23] = [
    0x67, 0x42, 0xc0, 31, 0xda, 0x01, 0x40, 0x16, 0xec, 0x04, 0x40, 0x00, 0x00, 0x03, 0x00, 0x40,
    0x00, 0x00, 0x0f, 0x23, 0xc6, 0x0c, 0xa8,
];
const PPS: [u8; 5] = [0x68, 0xce, 0x0f, 0x2c, 0x80];

/// Writes the stream in every container that players read.
#[derive(Debug)]
pub(super) struct Stream {
    track: Track,
    packetizer: Packetizer,
    /// The access units, without stamps.
    units: Vec<Vec<u8>>,
}

impl Stream {
    /// Makes a stream of so many frames.
    ///
    /// # Errors
    /// The crate `media` does not accept the parameter sets.
    pub(super) fn new(pictures: u32) -> anyhow::Result<Self> {
        let record = avc::record(&[Bytes::from_static(&SPS)], &[Bytes::from_static(&PPS)])?;
        let codec = Codec::Avc(avc::Config::parse(record)?);
        let packetizer = Packetizer::new(0, &codec, TIMESCALE)?;
        let track = Track { id: TRACK, timescale: TIMESCALE, codec, language: *b"und" };
        Ok(Self { track, packetizer, units: (0..pictures).map(unit).collect() })
    }

    /// The codec, as playlists and manifests name it (RFC 6381).
    pub(super) fn codec(&self) -> String {
        self.track.codec.rfc6381().into_owned()
    }

    /// A frame. If the time of its capture is given, in microseconds since 1970, the frame has it as a stamp.
    ///
    /// A frame that is to be wrong has another byte in its middle.
    pub(super) fn sample(
        &self,
        number: u32,
        captured: Option<Micros>,
        is_wrong: bool,
    ) -> anyhow::Result<Sample> {
        let unit = usize::try_from(number).ok().and_then(|number| self.units.get(number));
        let mut unit = unit.with_context(|| format!("no picture {number}"))?.clone();
        if is_wrong && let Some(byte) = unit.get_mut(SIZE / 2) {
            *byte = 1 + *byte % 255;
        }
        if let Some(captured) = captured {
            unit = stamp::insert(&self.track.codec, &unit, captured.unsigned_abs())?;
        }
        Ok(Sample {
            dts: i64::from(number) * i64::from(TICKS),
            cts: 0,
            duration: TICKS,
            sync: is_keyframe(number),
            data: unit.into(),
        })
    }

    /// The CMAF header.
    pub(super) fn header(&self) -> anyhow::Result<Bytes> {
        Ok(cmaf::header(&[&self.track])?)
    }

    /// A CMAF chunk of some frames.
    ///
    /// If the time of the first frame's capture is given, in microseconds since 1970, the chunk tells it
    /// (`prft`).
    pub(super) fn chunk(
        &self,
        samples: &[Sample],
        captured: Option<Micros>,
    ) -> anyhow::Result<Vec<u8>> {
        let first = samples.first().context("a chunk without samples")?.dts.unsigned_abs();
        let reference = captured.map(|captured| {
            let unix_micros = captured.unsigned_abs();
            SegmentStart { reference: Some(ReferenceTime { unix_micros, media_time: first }) }
        });
        let sequence_number = u32::try_from(first / u64::from(TICKS) + 1)?;
        let info = ChunkInfo { track_id: TRACK, sequence_number, segment_start: reference };
        let mut chunk = Vec::new();
        cmaf::write_chunk(&mut chunk, &info, samples)?;
        Ok(chunk)
    }

    /// The head of an FLV file.
    pub(super) fn flv_head() -> Bytes {
        file_header(false, true)
    }

    /// The message before all frames, by FLV and RTMP.
    pub(super) fn sequence_header(&self) -> anyhow::Result<Message> {
        Ok(self.packetizer.sequence_header(0)?)
    }

    /// A frame's message, by FLV and RTMP.
    pub(super) fn message(&self, sample: &Sample) -> anyhow::Result<Message> {
        Ok(self.packetizer.sample(sample)?)
    }

    /// A frame as WebRTC packetizes it: NAL units behind start codes, the parameter sets before a keyframe.
    pub(super) fn annex_b(sample: &Sample) -> Vec<u8> {
        const START: [u8; 4] = [0, 0, 0, 1];
        let mut out = Vec::new();
        if sample.sync {
            out.extend([&START[..], &SPS, &START, &PPS].concat());
        }
        for nal in media::codec::nal::units(&sample.data, 4).flatten() {
            out.extend_from_slice(&START);
            out.extend_from_slice(nal);
        }
        out
    }

    /// Writes the frames as a file, for viewers that compare. The second value removes the file when it is
    /// dropped.
    pub(super) fn reference(&self) -> anyhow::Result<(Original, NamedTempFile)> {
        let mut flv = [&Self::flv_head()[..], &self.sequence_header()?.tag()].concat();
        for number in (0..).take(self.units.len()) {
            flv.extend_from_slice(&self.message(&self.sample(number, None, false)?)?.tag());
        }
        let file = NamedTempFile::with_suffix(".flv")?;
        file.as_file().write_all(&flv)?;
        Ok((Original::open(file.path())?, file))
    }
}

/// Whether decoding can start at a frame.
fn is_keyframe(number: u32) -> bool {
    number.is_multiple_of(GROUP)
}

/// The access unit of a frame, without a stamp: one NAL unit behind its length.
///
/// Its `first_mb_in_slice` is 0. None of its bytes is 0, so the NAL unit needs no emulation prevention.
fn unit(number: u32) -> Vec<u8> {
    let slice = if is_keyframe(number) { 0x65 } else { 0x41 };
    let length = u32::try_from(SIZE - 4).unwrap_or(u32::MAX);
    let mut unit = [&length.to_be_bytes()[..], &[slice, 0x80]].concat();
    let mut state = number.wrapping_mul(2_654_435_761).wrapping_add(1);
    unit.extend(
        std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            1 + u8::try_from(state >> 24).unwrap_or_default() % 255
        })
        .take(SIZE - 6),
    );
    unit
}
