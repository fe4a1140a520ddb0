use mp4_atom::{Mdhd, Tkhd, Trex};

use super::boxes::{Found, decode, each_box, next_box};
use super::entry;
use crate::{Error, Track};

/// Contents of a header.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Header {
    /// Its tracks, in the order of the file.
    pub tracks: Vec<Track>,
    /// Defaults for the tracks' samples. CMAF repeats them in each chunk; other files do not.
    pub defaults: Vec<Defaults>,
}

/// `trex`, ISO/IEC 14496-12 8.8.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Defaults {
    /// track_ID.
    pub track_id: u32,
    /// Sample duration in the track's timescale.
    pub duration: u32,
    /// Sample size in bytes.
    pub size: u32,
    /// Sample flags.
    pub flags: u32,
}

/// Reads a header: `moov`, and anything else before the first `moof`.
///
/// # Errors
/// The bytes break the format's rules, end inside a box, or hold no `moov`.
pub fn read_header(data: &[u8]) -> Result<Header, Error> {
    let mut at = 0;
    while let Some(found) = next_box(data, at)? {
        match &found.kind {
            b"moov" => return moov(&found).map_err(|e| e.offset(found.body_at() as u64)),
            b"moof" => break,
            _ => at += found.size(),
        }
    }
    Err(Error::malformed("header without moov", at as u64))
}

fn moov(moov: &Found<'_>) -> Result<Header, Error> {
    let mut header = Header::default();
    each_box(moov.body, |found| match &found.kind {
        b"trak" => {
            header.tracks.push(trak(found).map_err(|e| e.offset(found.body_at() as u64))?);
            Ok(())
        }
        b"mvex" => each_box(found.body, |inner| {
            if &inner.kind == b"trex" {
                let trex: Trex = decode(inner)?;
                header.defaults.push(Defaults {
                    track_id: trex.track_id,
                    duration: trex.default_sample_duration,
                    size: trex.default_sample_size,
                    flags: trex.default_sample_flags,
                });
            }
            Ok(())
        })
        .map_err(|e| e.offset(found.body_at() as u64)),
        _ => Ok(()),
    })?;
    for (index, track) in header.tracks.iter().enumerate() {
        if header.tracks[..index].iter().any(|other| other.id == track.id) {
            return Err(Error::malformed(format!("track_ID {} twice", track.id), 0));
        }
    }
    Ok(header)
}

/// Reads the body of a `trak`.
fn trak(trak: &Found<'_>) -> Result<Track, Error> {
    let mut id = None;
    let mut mdhd: Option<Mdhd> = None;
    let mut handler = *b"    ";
    let mut codec = None;
    // The codec needs the handler, whatever the order of boxes. So mdia is read in two passes.
    each_box(trak.body, |found| {
        match &found.kind {
            b"tkhd" => id = Some(decode::<Tkhd>(found)?.track_id),
            b"mdia" => {
                let inside = |e: Error| e.offset(found.body_at() as u64);
                each_box(found.body, |inner| {
                    match &inner.kind {
                        b"mdhd" => mdhd = Some(decode(inner)?),
                        b"hdlr" => {
                            // Version, flags and pre_defined precede it.
                            let kind = inner.body.get(8..).and_then(|rest| rest.first_chunk());
                            handler = *kind.ok_or_else(|| {
                                let left = inner.body.len() as u64;
                                Error::cut_off("hdlr", inner.at as u64, 12, left)
                            })?;
                        }
                        _ => {}
                    }
                    Ok(())
                })
                .map_err(inside)?;
                each_box(found.body, |inner| {
                    if &inner.kind == b"minf" && codec.is_none() {
                        codec =
                            minf(inner, handler).map_err(|e| e.offset(inner.body_at() as u64))?;
                    }
                    Ok(())
                })
                .map_err(inside)?;
            }
            _ => {}
        }
        Ok(())
    })?;
    let missing = |what: &'static str| Error::malformed(what, 0);
    let id = id.filter(|&id| id != 0).ok_or_else(|| missing("trak without track_ID"))?;
    let mdhd =
        mdhd.filter(|mdhd| mdhd.timescale != 0).ok_or_else(|| missing("trak without timescale"))?;
    let codec = codec.ok_or_else(|| missing("trak without stsd"))?;
    let language = mdhd.language.as_bytes().try_into().ok();
    let language = language.filter(|code: &[u8; 3]| code.iter().all(u8::is_ascii_lowercase));
    Ok(Track { id, timescale: mdhd.timescale, codec, language: language.unwrap_or(*b"und") })
}

/// The codec described in the body of a `minf`.
fn minf(minf: &Found<'_>, handler: [u8; 4]) -> Result<Option<crate::Codec>, Error> {
    let mut codec = None;
    each_box(minf.body, |stbl| {
        if &stbl.kind != b"stbl" {
            return Ok(());
        }
        each_box(stbl.body, |stsd| {
            if &stsd.kind == b"stsd" {
                let read = entry::read(stsd.body, handler);
                codec = Some(read.map_err(|e| e.offset(stsd.body_at() as u64))?);
            }
            Ok(())
        })
        .map_err(|e| e.offset(stbl.body_at() as u64))
    })?;
    Ok(codec)
}
