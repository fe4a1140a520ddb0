use bytes::Bytes;
use mp4_atom::{
    Dinf, Dref, DrefEntry, FourCC, Ftyp, Hdlr, Mdhd, Mvhd, Smhd, Stco, Stsc, Stsz, Stts, Tkhd,
    Trex, Url, Vmhd,
};

use super::boxes::{NON_SYNC, SYNC, atom, boxed};
use super::{Display, entry};
use crate::{Error, Kind, Track};

/// Writes the CMAF header of one or several tracks: `ftyp`, and `moov` with a `trak` and a `trex`
/// per track. With one track it follows ISO/IEC 23000-19 7.3.2.1. With several it is an ordinary
/// ISO base media header; the chunks stay the same.
///
/// The brands are `iso6`, `cmfc` and `cmf2`: chunks rely on no default in the header, there are no
/// edit lists, and composition offsets are signed.
///
/// # Errors
/// A codec has no CMAF binding here ([`Codec::Other`](crate::Codec::Other)), a frame has more
/// than 65,535 pixels on a side, there is no track, a track_ID or timescale is 0, or two tracks
/// have the same track_ID.
pub fn header(tracks: &[&Track]) -> Result<Bytes, Error> {
    header_shown(tracks, &Display::AS_CODED)
}

/// Like [`header`], and says how players show the frames of all its video tracks: some cameras
/// record sideways, and some pixels are not square.
///
/// # Errors
/// As [`header`].
pub fn header_shown(tracks: &[&Track], display: &Display) -> Result<Bytes, Error> {
    check(tracks)?;
    let mut out = Vec::with_capacity(128 + 768 * tracks.len());
    let brand = |name: &[u8; 4]| FourCC::new(name);
    atom(
        &mut out,
        &Ftyp {
            major_brand: brand(b"iso6"),
            minor_version: 0,
            compatible_brands: vec![brand(b"iso6"), brand(b"cmfc"), brand(b"cmf2")],
        },
    )?;
    let highest = tracks.iter().map(|track| track.id).max().unwrap_or(0);
    boxed(&mut out, b"moov", |out| {
        atom(
            out,
            &Mvhd {
                timescale: 1000,
                rate: 1.into(),
                volume: 1.into(),
                // All ones: readers must search for a free track_ID. ISO/IEC 14496-12 8.2.2.3.
                next_track_id: highest.saturating_add(1),
                ..Mvhd::default()
            },
        )?;
        for track in tracks {
            boxed(out, b"trak", |out| trak(out, track, display))?;
        }
        boxed(out, b"mvex", |out| {
            for track in tracks {
                let video = track.kind() == Kind::Video;
                atom(
                    out,
                    &Trex {
                        track_id: track.id,
                        default_sample_description_index: 1,
                        default_sample_duration: 0,
                        default_sample_size: 0,
                        default_sample_flags: if video { NON_SYNC } else { SYNC },
                    },
                )?;
            }
            Ok(())
        })
    })?;
    Ok(out.into())
}

fn check(tracks: &[&Track]) -> Result<(), Error> {
    if tracks.is_empty() {
        return Err(Error::malformed("header without tracks", 0));
    }
    for (index, track) in tracks.iter().enumerate() {
        if track.id == 0 || tracks[..index].iter().any(|other| other.id == track.id) {
            return Err(Error::malformed(format!("track_ID {} not unique or 0", track.id), 0));
        }
        if track.timescale == 0 {
            return Err(Error::malformed(format!("track {}: timescale 0", track.id), 0));
        }
    }
    Ok(())
}

fn trak(out: &mut Vec<u8>, track: &Track, display: &Display) -> Result<(), Error> {
    let video = track.kind() == Kind::Video;
    let display = if video { display } else { &Display::AS_CODED };
    let [a, b, u, c, d, v, x, y, w] = display.matrix;
    let (width, height) = match display.size {
        (width, height) if width >> 16 > 0 && height >> 16 > 0 => (width, height),
        // Sizes above 65,535 are refused with the sample entry.
        _ => track.codec.resolution().map_or((0, 0), |(w, h)| (w << 16, h << 16)),
    };
    let fixed = |size: u32| mp4_atom::FixedPoint::new((size >> 16) as u16, size as u16);
    atom(
        out,
        &Tkhd {
            track_id: track.id,
            enabled: true,
            in_movie: true,
            volume: u8::from(!video).into(),
            width: fixed(width),
            height: fixed(height),
            matrix: mp4_atom::Matrix { a, b, u, c, d, v, x, y, w },
            ..Tkhd::default()
        },
    )?;
    boxed(out, b"mdia", |out| {
        atom(
            out,
            &Mdhd { timescale: track.timescale, language: language(track), ..Mdhd::default() },
        )?;
        let (handler, name) = if video { (b"vide", "Video") } else { (b"soun", "Audio") };
        atom(out, &Hdlr { handler: FourCC::new(handler), name: name.into() })?;
        boxed(out, b"minf", |out| {
            if video {
                atom(out, &Vmhd::default())?;
            } else {
                atom(out, &Smhd::default())?;
            }
            // The data are in the same file.
            let here = DrefEntry::Url(Url { location: String::new() });
            atom(out, &Dinf { dref: Dref { entries: vec![here] } })?;
            boxed(out, b"stbl", |out| {
                boxed(out, b"stsd", |out| {
                    out.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 1]);
                    entry::write(out, track, &display.properties)
                })?;
                // These boxes are required, but empty: samples are in the chunks.
                atom(out, &Stts::default())?;
                atom(out, &Stsc::default())?;
                atom(out, &Stsz::default())?;
                atom(out, &Stco::default())
            })
        })
    })
}

/// Language code that `mdhd` can hold: three letters a to z, or `und`.
fn language(track: &Track) -> String {
    if track.language.iter().all(u8::is_ascii_lowercase) {
        track.language.iter().copied().map(char::from).collect()
    } else {
        "und".into()
    }
}
