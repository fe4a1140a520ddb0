//! MP4 and QuickTime files (ISO/IEC 14496-12), progressive and fragmented: an index of every
//! track's samples.
//!
//! [`Index::read`] reads the boxes that describe the samples, and never the media itself.
//! [`Index::merge`] lists the samples of several tracks in the order of their decode times;
//! [`Reader`] also reads their bytes.
//!
//! Many real files are damaged, and the index uses as much of them as it can. A problem that
//! concerns one track is that track's [`problem`](TrackIndex::problem). A problem behind a valid
//! `moov` is the file's ([`Index::problem`]). Only a file without a usable `moov` is refused.
//!
//! No count in a file is trusted with memory: tables must fit in their boxes, a file has no more
//! samples than bytes, and [`limits`] bound the rest. The reader enters boxes along a fixed path,
//! never recursively.

mod boxes;
mod edit;
mod entry;
mod fragment;
mod movie;
mod progressive;
mod reader;
mod source;
mod table;

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;

use boxes::{Body, Header, name};
pub use edit::Edit;
use movie::Movie;
pub use reader::{Merge, Read, Reader};
pub use source::{OnDisk, ReadError, Source};
use source::{WINDOW, Window};
pub use table::{SampleEntry, SampleTable, Samples};

use crate::{Codec, Error, Track, cmaf};

/// Limits of what is accepted. Sensible files stay far below them.
pub mod limits {
    /// Bytes of a `moov`: enough for some 24 hours of three tracks.
    pub const MOOV: u64 = 128 << 20;
    /// Bytes of a `moof`.
    pub const MOOF: u64 = 16 << 20;
    /// Bytes of an `ftyp`.
    pub const FTYP: u64 = 4096;
    /// Boxes at the top level of a file: twice as many as a day of 100 ms fragments has.
    pub const BOXES: u32 = 4_000_000;
    /// Tracks in a file.
    pub const TRACKS: usize = 128;
    /// Sample descriptions of a track.
    pub const DESCRIPTIONS: u32 = 256;
    /// Bytes of memory for the samples of a file's tracks.
    pub const INDEX: usize = 64 << 20;
    /// Bytes of one sample that [`Reader`](super::Reader) reads.
    pub const SAMPLE: u32 = 64 << 20;
}

/// Index of a file: its tracks, and their samples.
#[derive(Debug, Clone)]
pub struct Index {
    /// The tracks in the order of the file, at least one.
    pub tracks: Vec<TrackIndex>,
    /// Major brand, then the compatible ones; empty where there is no `ftyp` (old QuickTime).
    pub brands: Vec<[u8; 4]>,
    /// Units per second of [`movie_duration`](Self::movie_duration).
    pub movie_timescale: u32,
    /// Duration from `mvhd`; 0 where it is unknown, as in a fragmented file.
    pub movie_duration: u64,
    /// Whether there are movie fragments.
    pub fragmented: bool,
    /// Why the file was not read to its end: a fragment is cut off or malformed. Everything read
    /// before it is valid.
    pub problem: Option<Error>,
}

/// A track and its samples.
#[derive(Debug, Clone)]
pub struct TrackIndex {
    /// Identity, timescale, language, and the codec of the first sample description.
    pub track: Track,
    /// Whether the file wants the track to be played (`tkhd` flags).
    pub enabled: bool,
    /// Whether the track has the chapters of another one, which refers to it by `chap` in its `tref` (QuickTime File
    /// Format, "Chapter Lists").
    pub has_chapters: bool,
    /// Transformation of video frames for display (`tkhd`), as [`cmaf::Matrix`].
    pub matrix: cmaf::Matrix,
    /// Width and height of video before that transformation (`tkhd`), as [`cmaf::Display::size`].
    pub size: (u32, u32),
    /// Name of the track in the file (`name` in the track's `udta`, QuickTime File Format and
    /// 3GPP).
    pub label: Option<String>,
    /// Sample descriptions, at least one where `problem` is `None`. If there are several, the
    /// configuration changes within the track: [`SampleEntry::description`] gives the one of each
    /// sample.
    pub descriptions: Vec<Description>,
    /// The edit list. Its shift is applied to all times here.
    pub edit: Edit,
    /// The samples, in decode order.
    pub samples: SampleTable,
    /// Why the track cannot be relied on: its codec configuration or its tables are broken, or the
    /// file ends before its samples do. An unknown codec is not a problem of the file: it is
    /// [`Codec::Other`].
    pub problem: Option<Error>,
}

/// One entry of `stsd`.
#[derive(Debug, Clone, PartialEq)]
pub struct Description {
    /// The codec and its configuration; [`Codec::Other`] where the codec is unknown, encrypted
    /// (`encv`, `enca`) or broken.
    pub codec: Codec,
    /// How video frames are shown, as [`cmaf::Display::properties`].
    pub properties: Bytes,
    /// What is wrong with the configuration.
    pub problem: Option<Error>,
}

impl TrackIndex {
    /// When the presentation of the last sample ends, in the track's timescale. The edit list may
    /// end it earlier.
    pub fn end(&self) -> i64 {
        let end = self.samples.end_pts();
        self.edit.end.map_or(end, |edit| edit.min(end))
    }

    /// How frames are shown that have this sample description, counted from 0.
    pub fn display(&self, description: u16) -> cmaf::Display {
        let described = self.descriptions.get(usize::from(description));
        let properties = described.map(|each| each.properties.clone()).unwrap_or_default();
        cmaf::Display { matrix: self.matrix, size: self.size, properties }
    }
}

impl Index {
    /// Reads the index of a file that contains a `moov`, at its beginning or later, and any
    /// fragments.
    ///
    /// # Errors
    /// The source fails, or there is no `moov`, or the `moov` is cut off, malformed or above a
    /// limit.
    pub fn read<S: Source + ?Sized>(source: &S) -> Result<Self, ReadError> {
        let mut window = Window::new(source);
        let mut scan = Scan::new(&mut window);
        let mut brands = Vec::new();
        let mut segment = None;
        while let Some(top) = scan.next()? {
            match &top.kind {
                b"ftyp" if brands.is_empty() => {
                    brands = movie::brands(top.load(scan.window, limits::FTYP)?.body())?;
                }
                b"moov" => {
                    let moov = top.load(scan.window, limits::MOOV)?;
                    let movie = movie::read(moov.body(), scan.window.len)?;
                    drop(moov);
                    // Fragments before their moov are unusual, but valid.
                    let from = segment.unwrap_or(top.end);
                    return fragments(&mut window, from, movie, brands);
                }
                b"moof" => segment = segment.or(Some(top.at)),
                _ => {}
            }
            if top.cut(scan.window.len) {
                let len = scan.window.len;
                let what = format!("box {}", name(top.kind));
                return Err(Error::cut_off(what, top.at, top.end - top.at, len - top.at).into());
            }
        }
        Err(match segment {
            Some(at) => Error::malformed("moov: missing, a media segment without its header", at),
            None => Error::malformed("moov: missing", window.len),
        }
        .into())
    }

    /// Where the `moov` is, as far as the first `known` bytes tell, which alone are read. Behind media, nothing tells how
    /// long it is: then the range ends where the file does. So [`read`](Self::read) will read it, or a part of it.
    pub fn place<S: Source + ?Sized>(source: &S, known: u64) -> Option<Range<u64>> {
        let mut window = Window::new(source);
        let len = window.len;
        let mut scan = Scan::new(&mut window);
        while scan.at.saturating_add(WINDOW as u64).min(len) <= known {
            let top = scan.next().ok()??;
            if top.kind == *b"moov" {
                // After it, the header of the next box is read.
                return Some(top.at..top.end.saturating_add(WINDOW as u64).min(len));
            }
        }
        (scan.at < len).then_some(scan.at..len)
    }

    /// Reads the index of a media segment (`moof` and `mdat` without `moov`). The `moov` in `init`
    /// describes its tracks. Positions and offsets are those of the segment.
    ///
    /// # Errors
    /// The same as those of [`read`](Self::read), for the header.
    pub fn read_segment<S, I>(segment: &S, init: &I) -> Result<Self, ReadError>
    where
        S: Source + ?Sized,
        I: Source + ?Sized,
    {
        let mut header = Window::new(init);
        let mut scan = Scan::new(&mut header);
        while let Some(top) = scan.next()? {
            if top.kind == *b"moov" {
                let moov = top.load(scan.window, limits::MOOV)?;
                let movie = movie::read(moov.body(), segment.len())?;
                drop(moov);
                return fragments(&mut Window::new(segment), 0, movie, Vec::new());
            }
        }
        Err(Error::malformed("moov: missing from the header", header.len).into())
    }

    /// When the last track's presentation ends.
    pub fn duration(&self) -> Duration {
        let end = |track: &TrackIndex| {
            let end = u128::try_from(track.end()).unwrap_or_default();
            let nanos = end * 1_000_000_000 / u128::from(track.track.timescale.max(1));
            Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
        };
        self.tracks.iter().map(end).max().unwrap_or_default()
    }

    /// Bytes of memory the sample tables hold.
    pub fn memory(&self) -> usize {
        self.tracks.iter().map(|track| track.samples.memory()).sum()
    }
}

/// Reads the fragments from position `from` on, and completes the index.
fn fragments<S: Source + ?Sized>(
    window: &mut Window<'_, S>,
    from: u64,
    mut movie: Movie,
    brands: Vec<[u8; 4]>,
) -> Result<Index, ReadError> {
    let mut fragmented = false;
    let mut scan = Scan::new(window);
    scan.at = from;
    let mut read = || -> Result<(), ReadError> {
        while let Some(top) = scan.next()? {
            if top.kind == *b"moof" {
                fragmented = true;
                let moof = top.load(scan.window, limits::MOOF)?;
                if let Err(problem) = fragment::read(moof.body(), &mut movie.tracks) {
                    movie.problem.get_or_insert(problem);
                }
                let used = movie.tracks.iter().map(|track| track.builder.memory()).sum::<usize>();
                if used > limits::INDEX {
                    let (value, limit) = (used as u64, limits::INDEX as u64);
                    let what = "moof: index".into();
                    return Err(Error::Limit { what, at: top.at, value, limit }.into());
                }
            }
        }
        Ok(())
    };
    match read() {
        Ok(()) => {}
        Err(ReadError::Format(problem)) => {
            movie.problem.get_or_insert(problem);
        }
        Err(failed) => return Err(failed),
    }
    let len = window.len;
    Ok(Index {
        tracks: movie.tracks.into_iter().map(|track| track.finish(len)).collect(),
        brands,
        movie_timescale: movie.timescale,
        movie_duration: movie.duration,
        fragmented,
        problem: movie.problem,
    })
}

/// A box at the top level of a file.
#[derive(Debug, Clone, Copy)]
struct Top {
    kind: [u8; 4],
    at: u64,
    header: u64,
    /// Position behind the box, as announced: beyond the end of the file where the box is cut off.
    end: u64,
}

impl Top {
    /// Whether the file ends before the box does.
    fn cut(&self, len: u64) -> bool {
        self.end > len
    }

    /// Reads the whole box.
    fn load<S: Source + ?Sized>(
        &self,
        window: &mut Window<'_, S>,
        limit: u64,
    ) -> Result<Loaded, ReadError> {
        let size = self.end - self.at;
        if self.cut(window.len) {
            let what = format!("box {}", name(self.kind));
            return Err(Error::cut_off(what, self.at, size, window.len - self.at).into());
        }
        if size > limit {
            let what = format!("box {}", name(self.kind)).into();
            return Err(Error::Limit { what, at: self.at, value: size, limit }.into());
        }
        // The limits are far below what usize holds.
        let data = window.get(self.at, size as usize)?;
        Ok(Loaded { top: *self, data })
    }
}

/// A box at the top level, in memory.
struct Loaded {
    top: Top,
    data: Bytes,
}

impl Loaded {
    fn body(&self) -> Body<'_> {
        Body {
            data: self.data.get(self.top.header as usize..).unwrap_or_default(),
            at: self.top.at + self.top.header,
            start: self.top.at,
            whole: self.data.len() as u64,
            kind: self.top.kind,
        }
    }
}

/// Iterates over the boxes at the top level of a file.
struct Scan<'w, 'a, S: ?Sized> {
    window: &'w mut Window<'a, S>,
    at: u64,
    seen: u32,
}

impl<'w, 'a, S: Source + ?Sized> Scan<'w, 'a, S> {
    fn new(window: &'w mut Window<'a, S>) -> Self {
        Self { window, at: 0, seen: 0 }
    }

    /// The next box; `None` where fewer bytes are left than a header has.
    fn next(&mut self) -> Result<Option<Top>, ReadError> {
        let (at, len) = (self.at, self.window.len);
        if len.saturating_sub(at) < 8 {
            return Ok(None);
        }
        self.seen += 1;
        if self.seen > limits::BOXES {
            let (value, limit) = (self.seen.into(), limits::BOXES.into());
            return Err(Error::Limit { what: "box count".into(), at, value, limit }.into());
        }
        let header = Header::parse(&self.window.get(at, Header::MAX)?, at)?;
        let end = header.size.map_or(len, |size| at.saturating_add(size));
        self.at = end;
        Ok(Some(Top { kind: header.kind, at, header: header.len, end }))
    }
}
