//! Opus: OpusSpecificBox (`dOps`), and the OpusHead of RFC 7845 that Enhanced RTMP carries.

use bytes::Bytes;

use crate::Error;

/// Longest possible packet: 120 ms at 48 kHz (RFC 6716 3.2.5).
const MAX_DURATION: u32 = 5760;

/// Configuration of an Opus track.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Payload of `dOps` (big-endian), also where the source had an OpusHead.
    pub record: Bytes,
    /// Output channels.
    pub channels: u8,
    /// Samples at 48 kHz to discard at the start.
    pub pre_skip: u16,
    /// Sampling rate in Hz of the encoder's input, for display only: decoding is at 48 kHz. 0 where
    /// unknown.
    pub input_sample_rate: u32,
}

impl Config {
    /// Reads the payload of a `dOps` box ("Encapsulation of Opus in ISO Base Media File Format",
    /// 4.3.2).
    ///
    /// # Errors
    /// The record is cut off or breaks the rules.
    pub fn parse(record: Bytes) -> Result<Self, Error> {
        let &[version, channels, s1, s0, r3, r2, r1, r0, _, _, family, ..] = record.as_ref() else {
            return Err(Error::cut_off("dOps", 0, 11, record.len() as u64));
        };
        if version != 0 {
            return Err(Error::unsupported(format!("dOps version {version}"), 0));
        }
        channel_mapping("dOps", channels, family, 11, record.get(11..).unwrap_or_default())?;
        Ok(Self {
            channels,
            pre_skip: u16::from_be_bytes([s1, s0]),
            input_sample_rate: u32::from_be_bytes([r3, r2, r1, r0]),
            record,
        })
    }

    /// Reads an identification header (`OpusHead`, RFC 7845 5.1) and turns it into the payload of
    /// `dOps`: the same fields, but big-endian, version 0 and without the magic.
    ///
    /// # Errors
    /// The header is cut off or breaks the rules.
    pub fn from_opus_head(head: &[u8]) -> Result<Self, Error> {
        if !head.starts_with(b"OpusHead") {
            return Err(Error::malformed("Opus header without 'OpusHead'", 0));
        }
        let &[version, channels, s0, s1, r0, r1, r2, r3, g0, g1, family, ref mapping @ ..] =
            head.get(8..).unwrap_or_default()
        else {
            return Err(Error::cut_off("OpusHead", 0, 19, head.len() as u64));
        };
        // The upper half is the major version. Only 0 is known.
        if version >> 4 != 0 {
            return Err(Error::unsupported(format!("OpusHead version {version}"), 8));
        }
        let used = channel_mapping("OpusHead", channels, family, 19, mapping)?;
        let mut record = vec![0, channels, s1, s0, r3, r2, r1, r0, g1, g0, family];
        record.extend_from_slice(mapping.get(..used).unwrap_or_default());
        Self::parse(record.into())
    }

    /// Identification header (`OpusHead`, RFC 7845 5.1) with the same fields.
    pub fn opus_head(&self) -> Bytes {
        let mut head = b"OpusHead\x01".to_vec();
        if let &[_, channels, s1, s0, r3, r2, r1, r0, g1, g0, ref rest @ ..] = self.record.as_ref()
        {
            head.extend_from_slice(&[channels, s0, s1, r0, r1, r2, r3, g0, g1]);
            head.extend_from_slice(rest);
        }
        head.into()
    }
}

/// Checks the channel mapping (RFC 7845 5.1.1) that starts at byte `at`, and returns how many bytes
/// it takes.
fn channel_mapping(
    what: &'static str,
    channels: u8,
    family: u8,
    at: u64,
    mapping: &[u8],
) -> Result<usize, Error> {
    if channels == 0 {
        return Err(Error::malformed(format!("{what}: no channels"), at - 10));
    }
    if family == 0 {
        return match channels {
            1 | 2 => Ok(0),
            _ => Err(Error::malformed(
                format!("{what}: {channels} channels in mapping family 0"),
                at - 10,
            )),
        };
    }
    let needed = 2 + usize::from(channels);
    let Some(table) = mapping.get(..needed) else {
        return Err(Error::cut_off(what, 0, at + needed as u64, at + mapping.len() as u64));
    };
    match table {
        &[streams, coupled, ..] if streams == 0 || coupled > streams => {
            Err(Error::malformed(format!("{what}: {coupled} of {streams} streams coupled"), at))
        }
        _ => Ok(needed),
    }
}

/// Duration of a packet in samples at 48 kHz (RFC 6716 3.1 and 3.2). `None` where the bytes cannot
/// be an Opus packet.
pub fn packet_duration(packet: &[u8]) -> Option<u32> {
    let (&toc, rest) = packet.split_first()?;
    let size = usize::from(toc >> 3);
    let frame = match size {
        0..12 => [480, 960, 1920, 2880][size & 3],
        12..16 => [480, 960][size & 1],
        _ => [120, 240, 480, 960][size & 3],
    };
    let frames = match toc & 3 {
        0 => 1,
        1 | 2 => 2,
        _ => u32::from(rest.first()? & 0x3f),
    };
    Some(frames * frame).filter(|duration| (1..=MAX_DURATION).contains(duration))
}
