use std::ops::Range;

use super::boxes::{NON_SYNC, SYNC, ntp_from_unix};
use crate::{Error, Sample};

/// What the head of a chunk needs to know about a sample. The data may be in memory ([`Sample`]) or
/// stay in a file ([`SampleEntry`](crate::mp4::SampleEntry)).
pub trait SampleInfo {
    /// Decode time in the track's timescale.
    fn dts(&self) -> i64;
    /// Composition time minus decode time, in the track's timescale.
    fn cts(&self) -> i32;
    /// Duration in the track's timescale.
    fn duration(&self) -> u32;
    /// Whether decoding can start here.
    fn sync(&self) -> bool;
    /// Bytes of the sample's data.
    fn size(&self) -> usize;
}

impl SampleInfo for Sample {
    fn dts(&self) -> i64 {
        self.dts
    }

    fn cts(&self) -> i32 {
        self.cts
    }

    fn duration(&self) -> u32 {
        self.duration
    }

    fn sync(&self) -> bool {
        self.sync
    }

    fn size(&self) -> usize {
        self.data.len()
    }
}

/// Fields of a chunk besides its samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkInfo {
    /// track_ID, as in the header.
    pub track_id: u32,
    /// mfhd sequence_number: rises from chunk to chunk of a track (ISO/IEC 14496-12 8.8.5).
    pub sequence_number: u32,
    /// Present in the first chunk of a segment only.
    pub segment_start: Option<SegmentStart>,
}

/// Fields that only the first chunk of a segment has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SegmentStart {
    /// Written as `prft`, for players that measure latency.
    pub reference: Option<ReferenceTime>,
}

/// Relates a wall-clock time to a media time: ProducerReferenceTimeBox, ISO/IEC 14496-12 8.16.5.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReferenceTime {
    /// When the sample at `media_time` was captured, in microseconds since 1970 UTC.
    pub unix_micros: u64,
    /// Media time in the track's timescale, on the timeline of its decode times.
    pub media_time: u64,
}

/// Positions inside a written chunk, in bytes from its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Start of `moof`: behind `styp` and `prft`, or 0 where the chunk does not start a segment.
    pub moof: usize,
    /// Start of the first sample's data, behind the header of `mdat`.
    pub payload: usize,
    /// Size of the whole chunk in bytes.
    pub len: usize,
}

impl Layout {
    /// Range of each sample's data, in bytes from the chunk's first byte. `samples` must be those
    /// that the chunk was written from.
    pub fn samples<S: SampleInfo>(self, samples: &[S]) -> impl Iterator<Item = Range<usize>> {
        samples.iter().scan(self.payload, |at, sample| {
            let start = *at;
            *at += sample.size();
            Some(start..*at)
        })
    }
}

/// Appends a chunk to `out`: `moof` and `mdat`, preceded by `styp` and `prft` at the start of a
/// segment. ISO/IEC 23000-19 7.3.2.3.
///
/// Decode times determine how long samples last: each lasts until the next one's decode time, and
/// the last one as long as its own `duration`.
///
/// # Errors
/// There are no samples, decode times are negative or run backwards, or the chunk would exceed 4
/// GiB. `out` is then unchanged.
pub fn write_chunk(
    out: &mut Vec<u8>,
    info: &ChunkInfo,
    samples: &[Sample],
) -> Result<Layout, Error> {
    let layout = write_chunk_head(out, info, samples)?;
    out.reserve(layout.len - layout.payload);
    for sample in samples {
        out.extend_from_slice(&sample.data);
    }
    Ok(layout)
}

/// Appends a chunk without the samples' data. The caller puts the data after it, in order: with a
/// vectored write, or from the file that holds them.
///
/// # Errors
/// As [`write_chunk`].
pub fn write_chunk_head<S: SampleInfo>(
    out: &mut Vec<u8>,
    info: &ChunkInfo,
    samples: &[S],
) -> Result<Layout, Error> {
    let run = Run::of(samples)?;
    let start = out.len();
    // styp 32, prft 32, moof without its samples at most 108, the header of mdat 8.
    out.reserve(192 + run.entry_size() * samples.len());
    if let Some(segment) = &info.segment_start {
        out.extend_from_slice(STYP);
        if let Some(reference) = &segment.reference {
            write_prft(out, info.track_id, reference);
        }
    }
    let moof = out.len() - start;
    write_moof(out, info, samples, &run);
    out.extend_from_slice(&(run.payload + 8).to_be_bytes());
    out.extend_from_slice(b"mdat");
    let payload = out.len() - start;
    Ok(Layout { moof, payload, len: payload + run.payload as usize })
}

/// Segment type: a DASH media segment (`msdh`, ISO/IEC 23009-1 6.3.4.2) that is a CMAF segment,
/// which consists of fragments and chunks (ISO/IEC 23000-19 7.3.3.1).
const STYP: &[u8] = b"\0\0\0\x20stypmsdh\0\0\0\0msdhcmfscmffcmfl";

fn write_prft(out: &mut Vec<u8>, track_id: u32, reference: &ReferenceTime) {
    out.extend_from_slice(&32u32.to_be_bytes());
    out.extend_from_slice(b"prft");
    // Version 1 has a 64-bit media_time. Flags 24: the time of capture, or a constant offset from
    // it.
    out.extend_from_slice(&[1, 0, 0, 24]);
    out.extend_from_slice(&track_id.to_be_bytes());
    out.extend_from_slice(&ntp_from_unix(reference.unix_micros).to_be_bytes());
    out.extend_from_slice(&reference.media_time.to_be_bytes());
}

/// How the samples' flags are written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flags {
    /// All samples have the default flags.
    Default(u32),
    /// All samples but the first have the default flags, those of a non-sync sample.
    FirstSync,
    /// Each sample has its own flags.
    Each,
}

/// Fields of a `traf` with one run: those common to all samples, and those of each sample.
struct Run {
    decode_time: u64,
    count: u32,
    /// Bytes of all samples' data. Together with the header of `mdat` it still fits 32 bits.
    payload: u32,
    /// Duration and size, where they are the same for all samples.
    duration: Option<u32>,
    size: Option<u32>,
    flags: Flags,
    composition_offsets: bool,
}

impl Run {
    fn of<S: SampleInfo>(samples: &[S]) -> Result<Self, Error> {
        let (Some(first), Some(last)) = (samples.first(), samples.last()) else {
            return Err(Error::malformed("chunk without samples", 0));
        };
        let decode_time = u64::try_from(first.dts())
            .map_err(|_| Error::malformed("decode time before the origin", 0))?;
        let mut total: u64 = 0;
        for pair in samples.windows(2) {
            gap(&pair[0], &pair[1])?;
        }
        for sample in samples {
            total += sample.size() as u64;
        }
        // Sample entries take up to 16 bytes each in moof, whose size and data_offset are bounded
        // as well.
        let limit = u64::from(u32::MAX) - 8;
        let payload = u32::try_from(total).ok().filter(|&total| u64::from(total) <= limit);
        let count = u32::try_from(samples.len()).ok().filter(|&count| count <= MAX_SAMPLES);
        let (Some(payload), Some(count)) = (payload, count) else {
            return Err(Error::Limit { what: "chunk size".into(), at: 0, value: total, limit });
        };
        let size = samples.iter().all(|sample| sample.size() == first.size());
        let duration = durations(samples).all(|duration| duration == last.duration());
        let others = samples.get(1..).unwrap_or_default();
        let flags = if samples.iter().all(|sample| sample.sync() == first.sync()) {
            Flags::Default(flags_of(first))
        } else if first.sync() && others.iter().all(|sample| !sample.sync()) {
            Flags::FirstSync
        } else {
            Flags::Each
        };
        Ok(Self {
            decode_time,
            count,
            payload,
            duration: duration.then_some(last.duration()),
            // No sample is larger than the sum of all, which fits 32 bits.
            size: size.then_some(first.size() as u32),
            flags,
            composition_offsets: samples.iter().any(|sample| sample.cts() != 0),
        })
    }

    /// Bytes that `trun` takes for each sample.
    fn entry_size(&self) -> usize {
        4 * (usize::from(self.duration.is_none())
            + usize::from(self.size.is_none())
            + usize::from(self.flags == Flags::Each)
            + usize::from(self.composition_offsets))
    }
}

/// The most samples in a chunk: more than any real chunk has, and few enough for every size in
/// `moof` to fit 31 bits.
const MAX_SAMPLES: u32 = 1 << 24;

/// How long `sample` lasts, given the sample after it.
fn gap<S: SampleInfo>(sample: &S, next: &S) -> Result<u32, Error> {
    let gap = i128::from(next.dts()) - i128::from(sample.dts());
    u32::try_from(gap).map_err(|_| {
        Error::malformed(format!("decode time {} after {}", next.dts(), sample.dts()), 0)
    })
}

/// How long each sample lasts. The decode times were checked to rise.
fn durations<S: SampleInfo>(samples: &[S]) -> impl Iterator<Item = u32> {
    let gaps = samples.windows(2).map(|pair| pair[1].dts().wrapping_sub(pair[0].dts()) as u32);
    gaps.chain(samples.last().map(|sample| sample.duration()))
}

fn flags_of<S: SampleInfo>(sample: &S) -> u32 {
    if sample.sync() { SYNC } else { NON_SYNC }
}

/// Writes `moof`, ISO/IEC 14496-12 8.8.4 to 8.8.8 and 8.8.12. Sizes are computed first, so that
/// every byte is written once.
fn write_moof<S: SampleInfo>(out: &mut Vec<u8>, info: &ChunkInfo, samples: &[S], run: &Run) {
    // default-base-is-moof and default_sample_flags, then the fields that all samples share.
    let mut tfhd_flags = 0x02_0020;
    let mut tfhd = 20;
    // data_offset.
    let mut trun_flags = 0x1;
    let mut trun = 20 + run.entry_size() * samples.len();
    if run.duration.is_some() {
        tfhd_flags |= 0x8;
        tfhd += 4;
    } else {
        trun_flags |= 0x100;
    }
    if run.size.is_some() {
        tfhd_flags |= 0x10;
        tfhd += 4;
    } else {
        trun_flags |= 0x200;
    }
    let default_flags = match run.flags {
        Flags::Default(flags) => flags,
        Flags::FirstSync => {
            trun_flags |= 0x4;
            trun += 4;
            NON_SYNC
        }
        Flags::Each => {
            trun_flags |= 0x400;
            NON_SYNC
        }
    };
    if run.composition_offsets {
        trun_flags |= 0x800;
    }
    let traf = 8 + tfhd + 20 + trun;
    let moof = 8 + 16 + traf;

    // Sizes stay below 2^31 by MAX_SAMPLES.
    let mut word = |value: u32| out.extend_from_slice(&value.to_be_bytes());
    word(moof as u32);
    word(u32::from_be_bytes(*b"moof"));
    word(16);
    word(u32::from_be_bytes(*b"mfhd"));
    word(0);
    word(info.sequence_number);
    word(traf as u32);
    word(u32::from_be_bytes(*b"traf"));
    word(tfhd as u32);
    word(u32::from_be_bytes(*b"tfhd"));
    word(tfhd_flags);
    word(info.track_id);
    if let Some(duration) = run.duration {
        word(duration);
    }
    if let Some(size) = run.size {
        word(size);
    }
    word(default_flags);
    word(20);
    word(u32::from_be_bytes(*b"tfdt"));
    word(1 << 24);
    word((run.decode_time >> 32) as u32);
    word(run.decode_time as u32);
    word(trun as u32);
    word(u32::from_be_bytes(*b"trun"));
    // Version 1: composition offsets are signed.
    word(1 << 24 | trun_flags);
    word(run.count);
    word(moof as u32 + 8);
    if run.flags == Flags::FirstSync {
        word(SYNC);
    }
    if run.entry_size() == 0 {
        return;
    }
    for (sample, duration) in samples.iter().zip(durations(samples)) {
        if run.duration.is_none() {
            word(duration);
        }
        if run.size.is_none() {
            word(sample.size() as u32);
        }
        if run.flags == Flags::Each {
            word(flags_of(sample));
        }
        if run.composition_offsets {
            word(sample.cts() as u32);
        }
    }
}
