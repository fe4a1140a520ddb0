use std::collections::HashMap;
use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use media::codec::nal;
use media::flv::{self, Demuxer};
use media::{Codec, mp4, stamp};

use crate::playback::Track;
use crate::skim::track_of;

/// The access units of a file. For each it keeps a hash of the bytes that servers do not change.
#[derive(Debug, Default)]
pub struct Reference {
    tracks: [Units; 2],
}

#[derive(Debug, Default)]
struct Units {
    hashes: Vec<u64>,
    /// Positions of each hash. Silence and still frames come repeatedly.
    places: HashMap<u64, Vec<u32>>,
}

/// Why a reference cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ReferenceError {
    /// The file cannot be opened or read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The MP4 cannot be read.
    #[error("{0}")]
    Read(#[from] mp4::ReadError),
    /// The FLV cannot be read.
    #[error("{0}")]
    Format(#[from] media::Error),
    /// The file has nothing to compare with.
    #[error("no video or audio in the file")]
    Empty,
}

/// Positions in the reference where a stream may be; empty before its first access unit.
#[derive(Debug, Clone, Default)]
pub(super) struct Positions(Vec<u32>);

/// How an access unit compares with the one that should come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Matched {
    /// It is that one.
    Next,
    /// It is a later one; this many are missing.
    After(u64),
    /// It is an earlier one, this many before.
    Before(u64),
    /// It is not in the reference.
    Foreign,
}

impl Reference {
    /// Reads the first video and the first audio track of an MP4 or FLV file.
    ///
    /// # Errors
    /// There is no such file, or nothing in it to compare with.
    pub fn open(path: &Path) -> Result<Self, ReferenceError> {
        let file = File::open(path)?;
        let mut start = [0; 3];
        file.read_exact_at(&mut start, 0)?;
        let mut this = Self::default();
        let read = if start == *b"FLV" { this.read_flv(&file) } else { this.read_mp4(&file) };
        read?;
        if this.tracks.iter().all(|units| units.hashes.is_empty()) {
            return Err(ReferenceError::Empty);
        }
        Ok(this)
    }

    fn read_mp4(&mut self, file: &File) -> Result<(), ReferenceError> {
        let source = mp4::OnDisk::new(file)?;
        let index = mp4::Index::read(&source)?;
        for track in [Track::Video, Track::Audio] {
            let found = index
                .tracks
                .iter()
                .position(|t| track_of(t.track.kind()) == Some(track) && t.problem.is_none());
            let Some(number) = found else { continue };
            for read in mp4::Reader::new(index.merge([number]), &source) {
                self.push(track, &index.tracks[number].track.codec, &read?.sample.data);
            }
        }
        Ok(())
    }

    fn read_flv(&mut self, file: &File) -> Result<(), ReferenceError> {
        let (mut reader, mut demuxer) = (flv::Reader::new(), Demuxer::new());
        let mut codecs: [Option<Codec>; 2] = [None, None];
        let mut buffer = vec![0; 1 << 16];
        let mut at = 0;
        loop {
            let size = file.read_at(&mut buffer, at)?;
            if size == 0 {
                return Ok(());
            }
            at += size as u64;
            reader.handle_bytes(&buffer[..size]);
            while let Some(tag) = reader.poll_tag()? {
                demuxer.handle_tag(tag.kind, tag.timestamp, &tag.payload);
                while let Some(event) = demuxer.poll_event() {
                    match event {
                        flv::Event::Track { track, codec } if track.number == 0 => {
                            if let Some(of) = track_of(track.kind) {
                                codecs[of as usize] = Some(codec);
                            }
                        }
                        flv::Event::Sample { track, sample, .. } if track.number == 0 => {
                            if let Some(of) = track_of(track.kind)
                                && let Some(codec) = &codecs[of as usize]
                            {
                                self.push(of, codec, &sample.data);
                            }
                        }
                        _ => {}
                    }
                }
            }
        }
    }

    fn push(&mut self, track: Track, codec: &Codec, data: &[u8]) {
        let units = &mut self.tracks[track as usize];
        let hash = fingerprint(codec, data);
        // A file with 2^32 access units would last for years.
        let at = u32::try_from(units.hashes.len()).unwrap_or(u32::MAX);
        units.hashes.push(hash);
        units.places.entry(hash).or_default().push(at);
    }

    /// How many access units a track has.
    pub fn units(&self, track: Track) -> usize {
        self.tracks[track as usize].hashes.len()
    }

    /// Compares the next access unit and moves on. The file may be published in a loop.
    pub(super) fn next(
        &self,
        track: Track,
        place: &mut Positions,
        codec: &Codec,
        data: &[u8],
    ) -> Matched {
        let units = &self.tracks[track as usize];
        let count = units.hashes.len();
        let hash = fingerprint(codec, data);
        let Some(places) = units.places.get(&hash) else { return Matched::Foreign };
        let after = |at: u32| if at as usize + 1 == count { 0 } else { at + 1 };
        if place.0.is_empty() {
            place.0 = places.iter().map(|&at| after(at)).collect();
            return Matched::Next;
        }
        let awaited = std::mem::take(&mut place.0);
        place.0 = awaited
            .iter()
            .filter(|&&at| units.hashes.get(at as usize) == Some(&hash))
            .map(|&at| after(at))
            .collect();
        if !place.0.is_empty() {
            return Matched::Next;
        }
        let count = count as u64;
        let ahead = |from: u32, to: u32| (u64::from(to) + count - u64::from(from)) % count;
        let nearest = awaited
            .iter()
            .flat_map(|&from| places.iter().map(move |&to| (from, to)))
            .min_by_key(|&(from, to)| ahead(from, to));
        // Neither list is empty here.
        let Some((from, to)) = nearest else { return Matched::Foreign };
        place.0 = vec![after(to)];
        match ahead(from, to) {
            missing if missing <= count / 2 => Matched::After(missing),
            missing => Matched::Before(count - missing),
        }
    }
}

/// Hashes the parts of an access unit that servers do not change. For H.264 and HEVC it leaves out
/// NAL units that packagers add, drop or move to the configuration (parameter sets, delimiters,
/// filler). For any codec it leaves out a stamp, which a publisher adds.
fn fingerprint(codec: &Codec, data: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    let data = &*stamp::without(codec, data);
    let mut of = |length_size: u8, passed_over: fn(u8) -> bool| {
        for unit in nal::units(data, length_size).flatten() {
            if unit.first().is_some_and(|&first| !passed_over(first)) {
                hasher.write_usize(unit.len());
                hasher.write(unit);
            }
        }
    };
    match codec {
        // H.264 table 7-1: SPS, PPS, delimiter, filler.
        Codec::Avc(config) => {
            of(config.nal_length_size, |first| matches!(first & 0x1F, 7 | 8 | 9 | 12));
        }
        // H.265 table 7-1: VPS, SPS, PPS, delimiter, filler.
        Codec::Hevc(config) => {
            of(config.nal_length_size, |first| matches!((first >> 1) & 0x3F, 32..=35 | 38));
        }
        _ => hasher.write(data),
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(units: &[&[u8]]) -> Reference {
        let mut reference = Reference::default();
        for unit in units {
            reference.push(Track::Audio, &codec(), unit);
        }
        reference
    }

    fn codec() -> Codec {
        Codec::Other(media::codec::Other { kind: media::Kind::Audio, fourcc: *b"test" })
    }

    /// Compares the given units, one after the other.
    fn compare(reference: &Reference, units: &[&[u8]]) -> Vec<Matched> {
        let mut place = Positions::default();
        units.iter().map(|unit| reference.next(Track::Audio, &mut place, &codec(), unit)).collect()
    }

    #[test]
    fn follows_loops_repetitions_and_holes() {
        use Matched::{After, Before, Foreign, Next};
        // "s" is silence: the same bytes again and again.
        let reference = reference(&[b"a", b"s", b"s", b"b", b"s", b"c", b"d", b"e"]);
        // Joined at a silence; only later units show which one.
        assert_eq!(compare(&reference, &[b"s", b"s", b"b", b"s", b"c"]), [Next; 5]);
        assert_eq!(compare(&reference, &[b"d", b"e", b"a", b"s"]), [Next; 4]);
        assert_eq!(compare(&reference, &[b"a", b"s", b"b"]), [Next, Next, After(1)]);
        assert_eq!(compare(&reference, &[b"d", b"c"]), [Next, Before(2)]);
        assert_eq!(compare(&reference, &[b"a", b"x"]), [Next, Foreign]);
    }
}
