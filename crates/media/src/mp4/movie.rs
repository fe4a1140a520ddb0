//! Reads `moov`: the tracks, their sample descriptions, and the samples of a progressive file.

use bytes::Bytes;

use super::boxes::{Body, name};
use super::edit::Edit;
use super::progressive::Described;
use super::table::Builder;
use super::{Description, TrackIndex, entry, limits, progressive};
use crate::codec::Other;
use crate::{Codec, Error, Kind, Track, cmaf};

/// A movie while its fragments are being read.
#[derive(Debug)]
pub(super) struct Movie {
    /// Units per second of the movie's own times.
    pub(super) timescale: u32,
    /// Duration from `mvhd`; 0 where it is unknown.
    pub(super) duration: u64,
    pub(super) tracks: Vec<TrackState>,
    /// Why the rest of `moov` was not read.
    pub(super) problem: Option<Error>,
}

/// A track while its samples are being found.
#[derive(Debug)]
pub(super) struct TrackState {
    pub(super) index: TrackIndex,
    /// Kind of the track by its handler, independent of its codec.
    pub(super) kind: Kind,
    pub(super) builder: Builder,
    pub(super) defaults: Defaults,
}

/// Defaults from `trex` for fragments that leave the fields out, 14496-12 8.8.3.
#[derive(Debug, Clone, Copy)]
pub(super) struct Defaults {
    /// Counts from 1.
    pub(super) description: u32,
    pub(super) duration: u32,
    pub(super) size: u32,
    pub(super) flags: u32,
}

impl TrackState {
    /// The track with all its samples. `len` is the length of the file.
    pub(super) fn finish(self, len: u64) -> TrackIndex {
        let mut index = self.index;
        index.samples = self.builder.finish(index.edit.shift);
        let end = index.samples.end_offset();
        if end > len && !index.samples.is_empty() {
            let cut = Error::cut_off(format!("media of track {}", index.track.id), 0, end, len);
            index.problem.get_or_insert(cut);
        }
        index
    }

    /// Records a problem, unless there already is one.
    pub(super) fn trouble(&mut self, problem: Error) {
        self.index.problem.get_or_insert(problem);
    }
}

/// Reads the payload of `moov`. `len` is the length of the file that holds the samples, which
/// cannot have more samples than bytes.
pub(super) fn read(moov: Body, len: u64) -> Result<Movie, Error> {
    let (timescale, duration) = header(moov.required(b"mvhd")?)?;
    let mut movie = Movie { timescale, duration, tracks: Vec::new(), problem: None };
    let mut budget = limits::INDEX;
    let mut extends = None;
    let mut chapters = Vec::new();
    for child in moov.children() {
        match child {
            Ok(trak) if trak.kind == *b"trak" => {
                if movie.tracks.len() == limits::TRACKS {
                    let limit = limits::TRACKS as u64;
                    let value = limit + 1;
                    let what = "moov: track count".into();
                    return Err(Error::Limit { what, at: trak.start, value, limit });
                }
                chapters.extend(chapters_of(trak));
                let mut track = track(trak, timescale, Builder::new(budget, len));
                let id = track.index.track.id;
                if movie.tracks.iter().any(|other| other.index.track.id == id) {
                    let what = format!("tkhd: track_ID {id} is taken");
                    track.trouble(Error::malformed(what, trak.start));
                }
                budget = budget.saturating_sub(track.builder.memory());
                movie.tracks.push(track);
            }
            Ok(mvex) if mvex.kind == *b"mvex" => extends = Some(mvex),
            Ok(cmov) if cmov.kind == *b"cmov" => {
                return Err(Error::unsupported("compressed moov", cmov.start));
            }
            Ok(_) => {}
            Err(problem) => movie.problem = Some(problem),
        }
    }
    if movie.tracks.is_empty() {
        let none = || Error::malformed("moov: no trak inside", moov.start);
        return Err(movie.problem.unwrap_or_else(none));
    }
    for track in &mut movie.tracks {
        track.index.has_chapters = chapters.contains(&track.index.track.id);
    }
    if let Some(mvex) = extends
        && let Err(problem) = defaults(mvex, &mut movie.tracks)
    {
        movie.problem.get_or_insert(problem);
    }
    Ok(movie)
}

/// Reads timescale and duration of `mvhd` and `mdhd`, 14496-12 8.2.2 and 8.4.2, which begin the
/// same.
fn header(body: Body) -> Result<(u32, u64), Error> {
    header_and_rest(body).map(|(timescale, duration, _)| (timescale, duration))
}

fn header_and_rest(mut body: Body) -> Result<(u32, u64, Body), Error> {
    let (version, _) = body.version_flags()?;
    body.take(if version == 0 { 8 } else { 16 })?;
    let timescale = body.u32()?;
    let duration = body.u32_or_u64(version)?;
    // All ones mean that the duration is unknown.
    let unknown = if version == 0 { u64::from(u32::MAX) } else { u64::MAX };
    Ok((timescale, if duration == unknown { 0 } else { duration }, body))
}

/// Reads one track. Any error becomes the track's own problem.
fn track(trak: Body, movie: u32, builder: Builder) -> TrackState {
    let codec = Codec::Other(Other { kind: Kind::Other, fourcc: *b"    " });
    let index = TrackIndex {
        track: Track { id: 0, timescale: 1, codec, language: *b"und" },
        enabled: true,
        has_chapters: false,
        matrix: cmaf::UPRIGHT,
        size: (0, 0),
        label: None,
        descriptions: Vec::new(),
        edit: Edit::NONE,
        samples: super::SampleTable::default(),
        problem: None,
    };
    let defaults = Defaults { description: 1, duration: 0, size: 0, flags: 0 };
    let mut state = TrackState { index, kind: Kind::Other, builder, defaults };
    if let Err(problem) = fill(&mut state, trak, movie) {
        state.trouble(problem);
    }
    state
}

fn fill(state: &mut TrackState, trak: Body, movie: u32) -> Result<(), Error> {
    let mut tkhd = trak.required(b"tkhd")?;
    let (version, flags) = tkhd.version_flags()?;
    tkhd.take(if version == 0 { 8 } else { 16 })?;
    state.index.enabled = flags & 1 != 0;
    state.index.track.id = tkhd.u32()?;
    if state.index.track.id == 0 {
        return Err(Error::malformed("tkhd: track_ID 0", tkhd.start));
    }

    state.index.label = label(trak);

    // Skips durations, layer and volume. A matrix or a size that is cut off is ignored.
    if tkhd.take(if version == 0 { 24 } else { 28 }).is_ok()
        && let Some((words, rest)) = tkhd.data.as_chunks::<4>().0.split_first_chunk::<9>()
    {
        state.index.matrix = words.map(i32::from_be_bytes);
        if let [width, height, ..] = *rest {
            state.index.size = (u32::from_be_bytes(width), u32::from_be_bytes(height));
        }
    }

    let mdia = trak.required(b"mdia")?;
    let mdhd = mdia.required(b"mdhd")?;
    let (timescale, _, mut rest) = header_and_rest(mdhd)?;
    if timescale == 0 {
        return Err(Error::malformed("mdhd: timescale 0", mdhd.start));
    }
    state.index.track.timescale = timescale;
    state.index.track.language = language(rest.u16()?);

    let mut hdlr = mdia.required(b"hdlr")?;
    hdlr.take(8)?;
    state.kind = match &hdlr.array::<4>()? {
        b"vide" => Kind::Video,
        b"soun" => Kind::Audio,
        _ => Kind::Other,
    };

    if let Some(elst) = trak.child(b"edts").ok().flatten().and_then(|e| e.child(b"elst").ok()?) {
        match Edit::parse(elst, movie, timescale) {
            Ok(edit) => state.index.edit = edit,
            Err(problem) => state.trouble(problem),
        }
    }

    let stbl = mdia.required(b"minf")?.required(b"stbl")?;
    let described = stbl.required(b"stsd").and_then(|stsd| entry::descriptions(stsd, state.kind));
    let descriptions = match described {
        Ok(descriptions) => descriptions,
        Err(problem) => {
            state.trouble(problem);
            let codec = Codec::Other(Other { kind: state.kind, fourcc: *b"    " });
            vec![Description { codec, properties: Bytes::new(), problem: None }]
        }
    };
    if let Some(problem) = descriptions.iter().find_map(|each| each.problem.clone()) {
        state.trouble(problem);
    }
    if let Some(first) = descriptions.first() {
        state.index.track.codec = first.codec.clone();
    }
    let count = descriptions.len();
    state.index.descriptions = descriptions;
    let (kind, codec) = (state.kind, &state.index.track.codec);
    let described = Described { kind, codec, descriptions: count };
    progressive::read(stbl, described, &mut state.builder)
}

/// The tracks that have the chapters of this one. References are often irregular, which is no reason to refuse a track.
fn chapters_of(trak: Body) -> Vec<u32> {
    let tref = trak.child(b"tref").ok().flatten();
    let chap = tref.and_then(|tref| tref.child(b"chap").ok().flatten());
    let tracks = chap.map_or(&[][..], |chap| chap.data.as_chunks::<4>().0);
    tracks.iter().take(limits::TRACKS).map(|id| u32::from_be_bytes(*id)).collect()
}

/// How many bytes of a track's name are read.
const LABEL: usize = 256;

/// The track's name. User data is often irregular, which is no reason to refuse a track.
fn label(trak: Body) -> Option<String> {
    let udta = trak.child(b"udta").ok()??;
    let name = udta.child(b"name").ok()??;
    let name = name.data.get(..LABEL).unwrap_or(name.data);
    let name = std::str::from_utf8(name).ok()?.trim_matches(|c: char| c.is_control() || c == ' ');
    (!name.is_empty() && !name.contains(char::is_control)).then(|| name.to_owned())
}

/// `trex` of each track.
fn defaults(mvex: Body, tracks: &mut [TrackState]) -> Result<(), Error> {
    for child in mvex.children() {
        let mut trex = child?;
        if trex.kind != *b"trex" {
            continue;
        }
        trex.version_flags()?;
        let id = trex.u32()?;
        let defaults = Defaults {
            description: trex.u32()?,
            duration: trex.u32()?,
            size: trex.u32()?,
            flags: trex.u32()?,
        };
        if let Some(track) = tracks.iter_mut().find(|track| track.index.track.id == id) {
            track.defaults = defaults;
        }
    }
    Ok(())
}

/// QuickTime's language codes of `mdhd` from before it used ISO 639, counted from 0: QuickTime File
/// Format, "Language code values".
const MACINTOSH: [&[u8; 3]; 24] = [
    b"eng", b"fra", b"deu", b"ita", b"nld", b"swe", b"spa", b"dan", b"por", b"nor", b"heb", b"jpn",
    b"ara", b"fin", b"ell", b"isl", b"mlt", b"tur", b"hrv", b"zho", b"urd", b"hin", b"tha", b"kor",
];

/// Language of `mdhd`: three letters of five bits, or a Macintosh code below 0x400.
fn language(packed: u16) -> [u8; 3] {
    if packed < 0x400 {
        return **MACINTOSH.get(usize::from(packed)).unwrap_or(&b"und");
    }
    let letters = [packed >> 10, packed >> 5, packed].map(|bits| (bits & 31) as u8 + 0x60);
    if letters.iter().all(u8::is_ascii_lowercase) { letters } else { *b"und" }
}

/// Reads the brands of `ftyp`, 14496-12 4.3: the major one, then the compatible ones.
pub(super) fn brands(mut ftyp: Body) -> Result<Vec<[u8; 4]>, Error> {
    let major = ftyp.array()?;
    ftyp.u32()?;
    let compatible = ftyp.data.as_chunks::<4>().0;
    Ok(std::iter::once(major).chain(compatible.iter().copied()).collect())
}

/// For messages: `track 2 (avc1)`.
impl std::fmt::Display for TrackIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "track {}", self.track.id)?;
        match &self.track.codec {
            Codec::Other(other) => write!(f, " ({})", name(other.fourcc).trim()),
            codec => write!(f, " ({})", codec.rfc6381()),
        }
    }
}
