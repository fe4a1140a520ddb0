//! Sample descriptions: the codec of a track and its configuration. ISO/IEC 14496-12 8.5.2 and 12,
//! 14496-14 5.6, 14496-15 5.4 and 8.4, AV1-ISOBMFF 2.2, Opus in ISOBMFF 4.3, QuickTime File Format
//! (audio descriptions of version 1 and 2).

use bytes::Bytes;

use super::boxes::{Body, name};
use super::{Description, limits};
use crate::cmaf::Display;
use crate::codec::{self, Codec, aac, av1, avc, hevc, opus};
use crate::{Error, Kind};

/// Reads `stsd`. A description that cannot be used is listed together with its problem.
pub(super) fn descriptions(mut stsd: Body, kind: Kind) -> Result<Vec<Description>, Error> {
    let (version, _) = stsd.version_flags()?;
    let at = stsd.at;
    let count = stsd.u32()?;
    if count > limits::DESCRIPTIONS {
        let (value, limit) = (u64::from(count), u64::from(limits::DESCRIPTIONS));
        return Err(Error::Limit { what: "stsd: entry count".into(), at, value, limit });
    }
    let mut entries = Vec::new();
    for entry in stsd.children().take(count as usize) {
        let entry = entry?;
        let other = || Codec::Other(codec::Other { kind, fourcc: entry.kind });
        let (codec, problem) = match codec(entry, kind, version) {
            Ok(codec) => (codec.unwrap_or_else(other), None),
            Err(problem) => (other(), Some(problem)),
        };
        let is_video = codec.kind() == Kind::Video;
        let properties = if is_video { properties(entry) } else { Bytes::new() };
        entries.push(Description { codec, properties, problem });
    }
    if entries.is_empty() {
        return Err(Error::malformed("stsd: no sample description", stsd.start));
    }
    Ok(entries)
}

/// The codec of one sample entry; `None` where this crate does not handle it.
fn codec(entry: Body, kind: Kind, version: u8) -> Result<Option<Codec>, Error> {
    let codec = match &entry.kind {
        b"avc1" | b"avc3" => Codec::Avc(record(video(entry)?, b"avcC", avc::Config::parse)?),
        b"hvc1" | b"hev1" => Codec::Hevc(record(video(entry)?, b"hvcC", hevc::Config::parse)?),
        b"av01" => {
            let mut config = record(video(entry)?, b"av1C", av1::Config::parse)?;
            if config.width == 0 {
                (config.width, config.height) = size(entry)?;
            }
            Codec::Av1(config)
        }
        b"Opus" => Codec::Opus(record(audio(entry, version)?, b"dOps", opus::Config::parse)?),
        b"mp4a" if kind == Kind::Audio => return mpeg4_audio(audio(entry, version)?),
        _ => return Ok(None),
    };
    Ok(Some(codec))
}

/// Skips the fields of VisualSampleEntry, 14496-12 12.1.3.
fn video(mut entry: Body) -> Result<Body, Error> {
    entry.take(78)?;
    Ok(entry)
}

/// How many bytes of properties are kept. A profile of colours in `colr` can be much larger, and is
/// left out: players do without it.
const PROPERTIES: usize = 1024;

/// The boxes that say how frames are shown. A broken one ends them, and is no reason to refuse the
/// track.
fn properties(entry: Body) -> Bytes {
    let mut properties = Vec::new();
    let Ok(boxes) = video(entry) else { return Bytes::new() };
    for each in boxes.children().map_while(Result::ok) {
        let from = (each.start - boxes.at) as usize;
        let whole = boxes.data.get(from..from + each.whole as usize).unwrap_or_default();
        if Display::is_property(each.kind) && properties.len() + whole.len() <= PROPERTIES {
            properties.extend_from_slice(whole);
        }
    }
    properties.into()
}

/// The width and height in VisualSampleEntry, 14496-12 12.1.3.
fn size(mut entry: Body) -> Result<(u32, u32), Error> {
    entry.take(24)?;
    Ok((entry.u16()?.into(), entry.u16()?.into()))
}

/// Skips the fields of AudioSampleEntry, 14496-12 12.2.3, or of QuickTime's audio description. The
/// latter has more fields in its versions 1 and 2, if `stsd` itself has version 0.
fn audio(mut entry: Body, stsd_version: u8) -> Result<Body, Error> {
    entry.take(8)?;
    let version = entry.u16()?;
    entry.take(18)?;
    match version {
        1 if stsd_version == 0 => entry.take(16)?,
        2 if stsd_version == 0 => entry.take(36)?,
        _ => &[],
    };
    Ok(entry)
}

/// Reads the configuration record in the box `kind`. The record is copied, because a slice would
/// keep the whole `moov` in memory.
fn record<C>(
    entry: Body,
    kind: &[u8; 4],
    parse: impl FnOnce(Bytes) -> Result<C, Error>,
) -> Result<C, Error> {
    let config = entry.required(kind)?;
    parse(Bytes::copy_from_slice(config.data)).map_err(|error| error.offset(config.at))
}

/// Reads the elementary stream descriptor of MPEG-4 audio, which QuickTime files put inside `wave`.
fn mpeg4_audio(entry: Body) -> Result<Option<Codec>, Error> {
    let esds = match entry.child(b"esds") {
        Ok(Some(esds)) => esds,
        found => match entry.child(b"wave")? {
            Some(wave) => wave.required(b"esds")?,
            None => {
                found?;
                return Err(Error::malformed("mp4a: no esds inside", entry.start));
            }
        },
    };
    let Some(config) = decoder_specific(esds)? else { return Ok(None) };
    let record = Bytes::copy_from_slice(config.data);
    match aac::Config::parse(record) {
        Ok(config) => Ok(Some(Codec::Aac(config))),
        // Such a track, of xHE-AAC for instance, is left out. The others play.
        Err(Error::Unsupported { .. }) => Ok(None),
        Err(error) => Err(error.offset(config.at)),
    }
}

/// The AudioSpecificConfig in `esds`, ISO/IEC 14496-1 7.2.6; `None` where the stream is not AAC
/// (MP3 in `mp4a`).
fn decoder_specific(mut esds: Body) -> Result<Option<Body>, Error> {
    esds.version_flags()?;
    let mut stream = descriptor(&mut esds, 3)?;
    stream.u16()?;
    let flags = stream.u8()?;
    if flags & 0x80 != 0 {
        stream.u16()?;
    }
    if flags & 0x40 != 0 {
        let length = stream.u8()?;
        stream.take(length.into())?;
    }
    if flags & 0x20 != 0 {
        stream.u16()?;
    }
    let mut decoder = descriptor(&mut stream, 4)?;
    let object_type = decoder.u8()?;
    // 14496-1 table 5: MPEG-4 audio, and the three profiles of MPEG-2 AAC.
    if !matches!(object_type, 0x40 | 0x66..=0x68) {
        return Ok(None);
    }
    decoder.take(12)?;
    descriptor(&mut decoder, 5).map(Some)
}

/// Reads the payload of a descriptor and skips other descriptors before it. A length that exceeds
/// its container is cut to it, because several writers miscount there.
fn descriptor<'a>(body: &mut Body<'a>, wanted: u8) -> Result<Body<'a>, Error> {
    loop {
        let start = *body;
        if body.data.is_empty() {
            let what = format!("{}: no descriptor {wanted}", name(body.kind));
            return Err(Error::malformed(what, body.at));
        }
        let tag = body.u8()?;
        let mut length = 0usize;
        for _ in 0..4 {
            let byte = body.u8()?;
            length = length << 7 | usize::from(byte & 0x7f);
            if byte < 0x80 {
                break;
            }
        }
        let at = body.at;
        let data = body.take(length.min(body.data.len()))?;
        if tag == wanted {
            return Ok(Body { data, at, start: start.start, whole: start.whole, kind: start.kind });
        }
    }
}
