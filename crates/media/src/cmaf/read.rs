use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;
use mp4_atom::{Mfhd, Prft, Tfdt, Tfhd, Trun, TrunSamples};

use super::ReferenceTime;
use super::boxes::{Found, IS_NON_SYNC, decode, each_box, next_box, unix_from_ntp};
use super::read_header::{Defaults, Header};
use crate::{Error, Sample};

/// A chunk that was read: the samples of one track in one `moof`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// track_ID.
    pub track_id: u32,
    /// mfhd sequence_number.
    pub sequence_number: u32,
    /// tfdt baseMediaDecodeTime: the first sample's decode time in the track's timescale.
    /// Without a `tfdt` it is 0, ISO/IEC 14496-12 8.8.12.
    pub decode_time: u64,
    /// Whether a `styp` came before it.
    pub segment_start: bool,
    /// Contents of the `prft` before it.
    pub reference: Option<ReferenceTime>,
    /// The samples. Their data are slices of the input.
    pub samples: Vec<Sample>,
}

/// The chunks in `data`: any number of segments and chunks in a row, of any tracks.
///
/// `header` supplies defaults for fields that a chunk leaves out; a CMAF chunk leaves out none.
/// Boxes that are not part of a chunk, such as a header, are skipped.
pub fn chunks<'a>(data: &Bytes, header: Option<&'a Header>) -> Chunks<'a> {
    Chunks {
        data: data.clone(),
        header,
        at: 0,
        segment_start: false,
        reference: None,
        ready: VecDeque::new(),
        failed: false,
    }
}

/// Iterator over chunks; see [`chunks`]. It ends after the first error. Where the data end inside a
/// chunk, that error is [`Error::CutOff`]. The caller then keeps the data from [`Chunks::position`]
/// on until more arrive.
#[derive(Debug)]
pub struct Chunks<'a> {
    data: Bytes,
    header: Option<&'a Header>,
    at: usize,
    segment_start: bool,
    reference: Option<(u32, ReferenceTime)>,
    ready: VecDeque<Chunk>,
    failed: bool,
}

impl Chunks<'_> {
    /// How many bytes of the input were consumed: all before the first box of the next chunk.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Reads up to the end of the next `mdat` that follows a `moof`, and puts its chunks into
    /// `ready`.
    fn advance(&mut self) -> Result<(), Error> {
        let data = self.data.clone();
        let mut at = self.at;
        let mut moof: Option<Found<'_>> = None;
        while let Some(found) = next_box(&data, at)? {
            let end = at + found.size();
            match &found.kind {
                b"styp" => self.segment_start = true,
                b"prft" => self.reference = Some(prft(&found)?),
                b"moof" if moof.is_some() => {
                    return Err(Error::malformed("moof without mdat", at as u64));
                }
                b"moof" => moof = Some(found),
                b"mdat" => {
                    if let Some(moof) = moof.take() {
                        self.read_moof(&moof, found.body_at()..end)
                            .map_err(|e| e.offset(moof.body_at() as u64))?;
                        self.segment_start = false;
                        self.reference = None;
                        self.at = end;
                        return Ok(());
                    }
                    self.at = end;
                }
                _ => {}
            }
            at = end;
        }
        match moof {
            Some(moof) => Err(Error::cut_off("moof without its mdat", moof.at as u64, 8, 0)),
            None => {
                self.at = at;
                Ok(())
            }
        }
    }

    /// Reads the chunks of a `moof`, whose `mdat` has its payload at `payload`. Errors count from
    /// the start of the body of `moof`.
    fn read_moof(&mut self, moof: &Found<'_>, payload: Range<usize>) -> Result<(), Error> {
        let mut sequence_number = 0;
        let mut traf = Traf { moof: moof.at, payload, next_data: moof.at, free: 0 };
        each_box(moof.body, |found| {
            match &found.kind {
                b"mfhd" => sequence_number = decode::<Mfhd>(found)?.sequence_number,
                b"traf" => {
                    let chunk = traf
                        .read(found.body, self.header, &self.data)
                        .map_err(|e| e.offset(found.body_at() as u64))?;
                    let reference = self.reference.filter(|(track, _)| *track == chunk.track_id);
                    self.ready.push_back(Chunk {
                        sequence_number,
                        segment_start: self.segment_start,
                        reference: reference.map(|(_, reference)| reference),
                        ..chunk
                    });
                }
                _ => {}
            }
            Ok(())
        })
    }
}

impl Iterator for Chunks<'_> {
    type Item = Result<Chunk, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(chunk) = self.ready.pop_front() {
                return Some(Ok(chunk));
            }
            if self.failed || self.at >= self.data.len() {
                return None;
            }
            if let Err(error) = self.advance() {
                self.failed = true;
                self.ready.clear();
                return Some(Err(error));
            }
        }
    }
}

fn prft(found: &Found<'_>) -> Result<(u32, ReferenceTime), Error> {
    let read: Prft = decode(found)?;
    let unix_micros = unix_from_ntp(read.ntp_timestamp);
    Ok((read.reference_track_id, ReferenceTime { unix_micros, media_time: read.media_time }))
}

/// A `traf` being read. Positions of data are in bytes from the start of the input.
struct Traf {
    moof: usize,
    /// Range of the payload of `mdat`.
    payload: Range<usize>,
    /// End of the data of the previous `traf`.
    next_data: usize,
    /// How many samples of this `moof` so far take no bytes in it.
    free: usize,
}

/// The most samples of one `moof` that have no fields of their own. Such a sample takes no bytes
/// there, so without a limit a count alone could claim any amount of memory.
const MAX_FREE_SAMPLES: usize = 1 << 16;

impl Traf {
    /// Reads the boxes of a `traf`; errors count from the start of its body.
    fn read(&mut self, traf: &[u8], header: Option<&Header>, data: &Bytes) -> Result<Chunk, Error> {
        let mut tfhd: Option<Tfhd> = None;
        let mut decode_time = 0;
        let mut runs: Vec<(Trun, u64)> = Vec::new();
        each_box(traf, |found| {
            match &found.kind {
                b"tfhd" => tfhd = Some(decode(found)?),
                b"tfdt" => decode_time = decode::<Tfdt>(found)?.base_media_decode_time,
                b"trun" => runs.push((decode(found)?, found.at as u64)),
                _ => {}
            }
            Ok(())
        })?;
        let tfhd = tfhd.ok_or_else(|| Error::malformed("traf without tfhd", 0))?;
        if tfhd.base_data_offset.is_some() {
            return Err(Error::unsupported("tfhd: base_data_offset", 0));
        }
        // ISO/IEC 14496-12 8.8.7.1: the data of the first traf always count from its moof.
        let base = if tfhd.default_base_is_moof { self.moof } else { self.next_data };
        let header = header.and_then(|h| h.defaults.iter().find(|d| d.track_id == tfhd.track_id));
        let of_header = header.copied().unwrap_or_default();
        let defaults = Defaults {
            track_id: tfhd.track_id,
            duration: tfhd.default_sample_duration.unwrap_or(of_header.duration),
            size: tfhd.default_sample_size.unwrap_or(of_header.size),
            flags: tfhd.default_sample_flags.unwrap_or(of_header.flags),
        };
        let mut dts = i64::try_from(decode_time)
            .map_err(|_| Error::malformed(format!("tfdt: decode time {decode_time}"), 0))?;
        let mut samples = Vec::new();
        self.next_data = base;
        for (run, at) in &runs {
            if let Some(offset) = run.data_offset {
                let from = i64::try_from(base).ok().and_then(|b| b.checked_add(offset.into()));
                self.next_data = from
                    .and_then(|from| usize::try_from(from).ok())
                    .ok_or_else(|| Error::malformed(format!("trun: data_offset {offset}"), *at))?;
            }
            self.run(&run.samples, defaults, data, &mut dts, &mut samples)
                .map_err(|e| e.offset(*at))?;
        }
        Ok(Chunk {
            track_id: tfhd.track_id,
            sequence_number: 0,
            decode_time,
            segment_start: false,
            reference: None,
            samples,
        })
    }

    fn run(
        &mut self,
        run: &TrunSamples,
        defaults: Defaults,
        data: &Bytes,
        dts: &mut i64,
        samples: &mut Vec<Sample>,
    ) -> Result<(), Error> {
        if let TrunSamples::Inherited { .. } = run {
            self.free = self.free.saturating_add(run.len());
            if self.free > MAX_FREE_SAMPLES {
                return Err(Error::Limit {
                    what: "trun: sample_count".into(),
                    at: 0,
                    value: self.free as u64,
                    limit: MAX_FREE_SAMPLES as u64,
                });
            }
        }
        samples.reserve(run.len());
        for entry in run {
            let duration = entry.duration.unwrap_or(defaults.duration);
            let size = entry.size.unwrap_or(defaults.size) as usize;
            let flags = entry.flags.unwrap_or(defaults.flags);
            let start = self.next_data;
            let end = start
                .checked_add(size)
                .filter(|&end| start >= self.payload.start && end <= self.payload.end)
                .ok_or_else(|| {
                    Error::malformed(format!("trun: {size} bytes at {start} not in mdat"), 0)
                })?;
            let cts = entry.cts.unwrap_or(0);
            let cts = i32::try_from(cts)
                .map_err(|_| Error::malformed(format!("trun: composition offset {cts}"), 0))?;
            samples.push(Sample {
                dts: *dts,
                cts,
                duration,
                sync: flags & IS_NON_SYNC == 0,
                data: data.slice(start..end),
            });
            self.next_data = end;
            *dts = dts
                .checked_add(duration.into())
                .ok_or_else(|| Error::malformed("trun: durations past the end of time", 0))?;
        }
        Ok(())
    }
}
