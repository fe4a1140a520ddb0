use std::io;
use std::sync::Arc;

use bytes::Bytes;
use media::mp4::{Index, Source};
use media::{Codec, Sample};

use super::{Reference, Stream};
use crate::skim::track_of;
use crate::stats::Verified;
use crate::{Error, Kind};

/// Largest index and largest access unit, in bytes.
const MAX_KEPT: usize = 64 << 20;

/// Verifies a file that has its index in front of the media, as it comes. Checks that every access
/// unit is where the index says.
#[derive(Debug)]
pub struct Progressive {
    reference: Option<Arc<Reference>>,
    /// Bytes that have come and may still be needed.
    kept: Vec<u8>,
    /// Position of the first kept byte in the file.
    at: u64,
    /// `None` until the index has come.
    file: Option<File>,
}

#[derive(Debug)]
struct File {
    tracks: Vec<(Codec, u32, Stream)>,
    /// In the order in which they lie in the file.
    units: Vec<Unit>,
    next: usize,
}

#[derive(Debug)]
struct Unit {
    offset: u64,
    size: u32,
    track: usize,
    dts: i64,
    cts: i32,
    duration: u32,
    sync: bool,
}

impl Progressive {
    /// Starts at the beginning of a file.
    pub fn new(reference: Option<Arc<Reference>>) -> Self {
        Self { reference, kept: Vec::new(), at: 0, file: None }
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// The index or an access unit is broken, or is not the source's.
    pub fn read(&mut self, data: &[u8], counts: &mut Verified) -> Result<(), Error> {
        self.kept.extend_from_slice(data);
        if self.file.is_none() {
            self.index(counts)?;
        }
        self.units(counts)?;
        if self.kept.len() > MAX_KEPT {
            return Err(Error::new(
                Kind::Unsupported,
                format!("{MAX_KEPT} bytes without an access unit"),
            ));
        }
        Ok(())
    }

    /// Reads the index once the media have begun.
    fn index(&mut self, counts: &mut Verified) -> Result<(), Error> {
        let Some(end) = mdat_end(&self.kept) else { return Ok(()) };
        let known = Bytes::copy_from_slice(&self.kept);
        let len = end.max(known.len() as u64);
        let index = Index::read(&Front { known, len }).map_err(|error| match error {
            media::mp4::ReadError::Format(error) => Error::from(error),
            media::mp4::ReadError::Io { .. } => Error::corrupt(error.to_string()),
        })?;
        let (mut tracks, mut units) = (Vec::new(), Vec::new());
        let mut seen = Vec::new();
        for track in &index.tracks {
            if let Some(problem) = &track.problem {
                return Err(problem.clone().into());
            }
            let of = track_of(track.track.kind());
            let first = of.is_some() && !seen.contains(&of);
            seen.push(of);
            let number = tracks.len();
            let stream = Stream::new(of, self.reference.clone().filter(|_| first));
            tracks.push((track.track.codec.clone(), track.track.timescale, stream));
            if of.is_none() {
                continue;
            }
            units.extend(track.samples.iter().map(|sample| Unit {
                offset: sample.offset,
                size: sample.size,
                track: number,
                dts: sample.dts,
                cts: sample.cts,
                duration: sample.duration,
                sync: sample.sync,
            }));
        }
        // The sort is stable: empty access units keep their order.
        units.sort_by_key(|unit| unit.offset);
        counts.units += 1;
        self.file = Some(File { tracks, units, next: 0 });
        Ok(())
    }

    fn units(&mut self, counts: &mut Verified) -> Result<(), Error> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut done = 0;
        while let Some(unit) = file.units.get(file.next) {
            let from = usize::try_from(unit.offset.saturating_sub(self.at)).unwrap_or(usize::MAX);
            done = from.min(self.kept.len());
            let Some(data) = self.kept.get(from..from.saturating_add(unit.size as usize)) else {
                break;
            };
            let sample = Sample {
                dts: unit.dts,
                cts: unit.cts,
                duration: unit.duration,
                sync: unit.sync,
                data: Bytes::copy_from_slice(data),
            };
            if let Some((codec, timescale, stream)) = file.tracks.get_mut(unit.track) {
                stream
                    .sample(codec, *timescale, &sample, counts)
                    .map_err(|error| error.at(format!("byte {}", unit.offset)))?;
            }
            file.next += 1;
        }
        if file.next == file.units.len() {
            done = self.kept.len();
        }
        self.kept.drain(..done);
        self.at += done as u64;
        Ok(())
    }

    /// Checks that the end is a proper one.
    ///
    /// # Errors
    /// Access units are missing.
    pub fn finish(&mut self) -> Result<(), Error> {
        match &self.file {
            None => Err(Error::new(Kind::Garbage, "MP4 without media")),
            Some(file) if file.next < file.units.len() => {
                let missing = file.units.len() - file.next;
                Err(Error::corrupt(format!("file cut off: {missing} access units missing")))
            }
            Some(_) => Ok(()),
        }
    }
}

/// Returns the end of the first `mdat`.
fn mdat_end(data: &[u8]) -> Option<u64> {
    let mut at = 0usize;
    loop {
        let rest = data.get(at..)?;
        let size = u32::from_be_bytes(*rest.first_chunk()?);
        let is_mdat = rest.get(4..8)? == b"mdat";
        let (header, size) = match size {
            1 => (16, u64::from_be_bytes(*rest.get(8..)?.first_chunk()?)),
            0 => (8, u64::MAX >> 2),
            size => (8, u64::from(size)),
        };
        if is_mdat {
            return Some(at as u64 + size.max(header));
        }
        at = at.checked_add(usize::try_from(size).ok()?.max(8))?;
    }
}

/// The front of a file, for reading its index. The rest has not come yet; it is media, which the
/// index does not read.
struct Front {
    known: Bytes,
    len: u64,
}

impl Source for Front {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(self.known.len());
        let mut bytes = self.known.slice(from..from.saturating_add(len).min(self.known.len()));
        if bytes.len() < len {
            let mut padded = bytes.to_vec();
            padded.resize(len, 0);
            bytes = padded.into();
        }
        Ok(bytes)
    }
}
