//! Sample entries. The bytes of a codec's configuration record must pass unchanged, so mp4-atom is
//! not used here: it parses records.

use bytes::Bytes;

use super::boxes::{Found, boxed, each_box, next_box};
use crate::codec::{self, Codec};
use crate::{Error, Kind, Track};

/// Writes the sample entry of a track. `properties` are more boxes for that of video.
pub(super) fn write(out: &mut Vec<u8>, track: &Track, properties: &[u8]) -> Result<(), Error> {
    let record = track.codec.record();
    let mut visual = |kind, record_kind, size| {
        let boxes = |out: &mut Vec<u8>| {
            boxed(out, record_kind, |out| {
                out.extend_from_slice(&record);
                Ok(())
            })?;
            out.extend_from_slice(properties);
            Ok(())
        };
        visual(out, kind, size, boxes)
    };
    match &track.codec {
        Codec::Avc(config) => visual(b"avc1", b"avcC", (config.width, config.height)),
        Codec::Hevc(config) => visual(b"hvc1", b"hvcC", (config.width, config.height)),
        Codec::Av1(config) => visual(b"av01", b"av1C", (config.width, config.height)),
        Codec::Aac(config) => {
            audio(out, b"mp4a", config.channels, config.sample_rate, |out| esds(out, &record))
        }
        Codec::Opus(config) => audio(out, b"Opus", u16::from(config.channels), 48_000, |out| {
            boxed(out, b"dOps", |out| {
                out.extend_from_slice(&record);
                Ok(())
            })
        }),
        Codec::Other(other) => {
            let name = String::from_utf8_lossy(&other.fourcc).into_owned();
            Err(Error::unsupported(format!("codec '{name}' in CMAF"), 0))
        }
    }
}

/// VisualSampleEntry, ISO/IEC 14496-12 12.1.3.
fn visual(
    out: &mut Vec<u8>,
    kind: &[u8; 4],
    size: (u32, u32),
    boxes: impl FnOnce(&mut Vec<u8>) -> Result<(), Error>,
) -> Result<(), Error> {
    let (Ok(width), Ok(height)) = (u16::try_from(size.0), u16::try_from(size.1)) else {
        return Err(Error::unsupported(format!("video size {}x{}", size.0, size.1), 0));
    };
    boxed(out, kind, |out| {
        // Reserved, data_reference_index.
        out.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 1]);
        // Pre-defined and reserved.
        out.extend_from_slice(&[0; 16]);
        out.extend_from_slice(&width.to_be_bytes());
        out.extend_from_slice(&height.to_be_bytes());
        // 72 dpi both ways, reserved, one frame per sample.
        out.extend_from_slice(&[0, 0x48, 0, 0, 0, 0x48, 0, 0, 0, 0, 0, 0, 0, 1]);
        // No compressor name, depth 24, pre-defined -1.
        out.extend_from_slice(&[0; 32]);
        out.extend_from_slice(&[0, 0x18, 0xFF, 0xFF]);
        boxes(out)
    })
}

/// AudioSampleEntry, ISO/IEC 14496-12 12.2.3.
fn audio(
    out: &mut Vec<u8>,
    kind: &[u8; 4],
    channels: u16,
    sample_rate: u32,
    configuration: impl FnOnce(&mut Vec<u8>) -> Result<(), Error>,
) -> Result<(), Error> {
    boxed(out, kind, |out| {
        out.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 1]);
        out.extend_from_slice(&[0; 8]);
        out.extend_from_slice(&channels.to_be_bytes());
        // 16 bits a sample, pre-defined, reserved.
        out.extend_from_slice(&[0, 16, 0, 0, 0, 0]);
        // 16.16 fixed point. Rates above 65,535 Hz do not fit: they are written as 0, and the
        // record has the rate.
        let rate = u16::try_from(sample_rate).unwrap_or(0);
        out.extend_from_slice(&(u32::from(rate) << 16).to_be_bytes());
        configuration(out)
    })
}

/// Writes an ES_Descriptor around an AudioSpecificConfig, ISO/IEC 14496-1 7.2.6 and 14496-14 5.6.1.
fn esds(out: &mut Vec<u8>, config: &[u8]) -> Result<(), Error> {
    let length = |size: usize| {
        // Seven bits per byte. The top bit is set in all bytes but the last.
        let size = u32::try_from(size).ok().filter(|&size| size < 1 << 28)?;
        let bytes = [21, 14, 7, 0].map(|shift| (size >> shift) as u8 & 0x7F);
        let skip = bytes.iter().take(3).take_while(|&&byte| byte == 0).count();
        let mut length = bytes[skip..].to_vec();
        let last = length.len() - 1;
        for byte in &mut length[..last] {
            *byte |= 0x80;
        }
        Some(length)
    };
    let descriptor = |tag: u8, head: &[u8], body: &[u8]| {
        let mut bytes = vec![tag];
        bytes.extend(length(head.len() + body.len())?);
        bytes.extend_from_slice(head);
        bytes.extend_from_slice(body);
        Some(bytes)
    };
    let es = || {
        let specific = descriptor(5, &[], config)?;
        // objectTypeIndication 0x40 (ISO/IEC 14496-3), streamType 5 (audio) with the reserved bit
        // set. Buffer size and bit rates are unknown.
        let decoder = descriptor(4, &[0x40, 0x15, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &specific)?;
        // SLConfigDescriptor: predefined 2, as in MP4 files.
        let mut body = decoder;
        body.extend(descriptor(6, &[], &[2])?);
        // ES_ID 0, no flags.
        descriptor(3, &[0, 0, 0], &body)
    };
    let es = es().ok_or_else(|| Error::Limit {
        what: "AudioSpecificConfig".into(),
        at: 0,
        value: config.len() as u64,
        limit: (1 << 28) - 64,
    })?;
    boxed(out, b"esds", |out| {
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&es);
        Ok(())
    })
}

/// Reads the first sample entry in the body of an `stsd`. `handler` gives the kind of an unknown
/// codec. Positions count from the start of that body.
pub(super) fn read(stsd: &[u8], handler: [u8; 4]) -> Result<Codec, Error> {
    let Some(entry) = next_box(stsd, 8)? else {
        return Err(Error::malformed("stsd without a sample entry", 0));
    };
    match &entry.kind {
        b"avc1" | b"avc3" => {
            let record = child(&entry, VISUAL, *b"avcC")?;
            codec::avc::Config::parse(record.bytes).map(Codec::Avc).map_err(record.placed)
        }
        b"hvc1" | b"hev1" => {
            let record = child(&entry, VISUAL, *b"hvcC")?;
            codec::hevc::Config::parse(record.bytes).map(Codec::Hevc).map_err(record.placed)
        }
        b"av01" => {
            let record = child(&entry, VISUAL, *b"av1C")?;
            codec::av1::Config::parse(record.bytes).map(Codec::Av1).map_err(record.placed)
        }
        b"Opus" => {
            let record = child(&entry, AUDIO, *b"dOps")?;
            codec::opus::Config::parse(record.bytes).map(Codec::Opus).map_err(record.placed)
        }
        b"mp4a" => {
            let record = child(&entry, AUDIO, *b"esds")?;
            match audio_specific_config(&record.bytes).map_err(&record.placed)? {
                Some(config) => {
                    codec::aac::Config::parse(config).map(Codec::Aac).map_err(record.placed)
                }
                None => Ok(other(handler, entry.kind)),
            }
        }
        _ => Ok(other(handler, entry.kind)),
    }
}

/// Bytes of a sample entry's own fields, before the boxes inside it.
const VISUAL: usize = 78;
const AUDIO: usize = 28;

fn other(handler: [u8; 4], fourcc: [u8; 4]) -> Codec {
    let kind = match &handler {
        b"vide" => Kind::Video,
        b"soun" => Kind::Audio,
        _ => Kind::Other,
    };
    Codec::Other(codec::Other { kind, fourcc })
}

struct Record<F> {
    bytes: Bytes,
    /// Moves an error's position: it counted from the start of the record, and then counts from the
    /// start of the `stsd`'s body.
    placed: F,
}

/// The payload of the box `kind` inside a sample entry whose own fields take `skip` bytes.
fn child(
    entry: &Found<'_>,
    skip: usize,
    kind: [u8; 4],
) -> Result<Record<impl Fn(Error) -> Error + use<>>, Error> {
    let inside = entry.body_at() + skip;
    let boxes = entry.body.get(skip..).ok_or_else(|| {
        let (needed, left) = (skip as u64, entry.body.len() as u64);
        Error::cut_off("sample entry", entry.at as u64, needed, left)
    })?;
    let mut found = None;
    each_box(boxes, |inner| {
        if inner.kind == kind && found.is_none() {
            found = Some((Bytes::copy_from_slice(inner.body), inside + inner.body_at()));
        }
        Ok(())
    })
    .map_err(|error| error.offset(inside as u64))?;
    let (bytes, at) = found.ok_or_else(|| {
        let name = String::from_utf8_lossy(&kind).into_owned();
        Error::malformed(format!("sample entry without {name}"), entry.at as u64)
    })?;
    Ok(Record { bytes, placed: move |error: Error| error.offset(at as u64) })
}

/// The AudioSpecificConfig in the payload of `esds`; `None` where the descriptor is not for MPEG-4
/// audio (MP3 and others use `mp4a` too).
fn audio_specific_config(esds: &Bytes) -> Result<Option<Bytes>, Error> {
    let broken = || Error::malformed("esds: descriptor", 4);
    let body = esds.get(4..).ok_or_else(broken)?;
    let (tag, es, _) = descriptor(body).ok_or_else(broken)?;
    let (&[_, _, flags], mut rest) = es.split_first_chunk::<3>().ok_or_else(broken)?;
    if tag != 3 {
        return Err(broken());
    }
    // Stream dependence, URL and OCR: optional fields before the inner descriptors.
    if flags & 0x80 != 0 {
        rest = rest.get(2..).ok_or_else(broken)?;
    }
    if flags & 0x40 != 0 {
        let length = usize::from(*rest.first().ok_or_else(broken)?);
        rest = rest.get(1 + length..).ok_or_else(broken)?;
    }
    if flags & 0x20 != 0 {
        rest = rest.get(2..).ok_or_else(broken)?;
    }
    while let Some((tag, body, after)) = descriptor(rest) {
        rest = after;
        if tag != 4 {
            continue;
        }
        let (head, mut inner) = body.split_first_chunk::<13>().ok_or_else(broken)?;
        if head[0] != 0x40 {
            return Ok(None);
        }
        while let Some((tag, config, after)) = descriptor(inner) {
            inner = after;
            if tag == 5 {
                return Ok(Some(esds.slice_ref(config)));
            }
        }
    }
    Err(Error::malformed("esds without AudioSpecificConfig", 4))
}

/// Reads the descriptor at the start of `data`, ISO/IEC 14496-1 8.3.3. Returns its tag, its body
/// and the bytes after it.
fn descriptor(data: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, mut rest) = data.split_first()?;
    let mut length = 0usize;
    for _ in 0..4 {
        let (&byte, after) = rest.split_first()?;
        rest = after;
        length = length << 7 | usize::from(byte & 0x7F);
        if byte & 0x80 == 0 {
            break;
        }
    }
    let (body, after) = rest.split_at_checked(length)?;
    Some((tag, body, after))
}
