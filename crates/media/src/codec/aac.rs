//! MPEG-4 audio: AudioSpecificConfig, ISO/IEC 14496-3 1.6.2.

use std::sync::LazyLock;

use bytes::Bytes;

use super::bits::Bits;
use crate::Error;

const SBR: u8 = 5;
const PS: u8 = 29;
const ER_BSAC: u8 = 22;

/// Table 1.18: sampling frequency index.
const SAMPLE_RATES: [u32; 13] = [
    96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000, 11_025, 8_000,
    7_350,
];

/// Rates that a record may write out instead of their index: the range of [`SAMPLE_RATES`]. With 24
/// bits for a rate, an access unit could last from 61 µs to 17 minutes.
const WRITTEN_OUT: std::ops::RangeInclusive<u32> = 7_350..=96_000;

/// Contents of an AudioSpecificConfig.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The AudioSpecificConfig itself.
    pub record: Bytes,
    /// Audio object type that is signalled first (2 AAC-LC, 5 SBR, 29 PS).
    pub object_type: u8,
    /// Output sampling rate in Hz: that of the extension where SBR is signalled.
    pub sample_rate: u32,
    /// Channels of the output.
    pub channels: u16,
    /// Output PCM samples per access unit: 1024, 960, or twice that with explicit SBR.
    pub frame_length: u32,
    /// Whether spectral band replication is signalled, before the core's object type or behind it.
    pub sbr: bool,
    /// Whether parametric stereo is signalled: two channels out of one.
    pub ps: bool,
    /// Audio object type of the core, which SBR and PS extend: mostly 2, AAC-LC.
    pub core_object_type: u8,
    /// Channel configuration of the core (table 1.19). 0: a program config element lists them.
    pub channel_config: u8,
}

impl Config {
    /// Reads an AudioSpecificConfig.
    ///
    /// # Errors
    /// The record is cut off or breaks the codec's rules, or its object type is not one of the AAC
    /// family (GASpecificConfig).
    pub fn parse(record: Bytes) -> Result<Self, Error> {
        let mut bits = Bits::new(&record, "AudioSpecificConfig");
        let object_type = object_type(&mut bits)?;
        let core_rate = sample_rate(&mut bits)?;
        let channel_config = bits.u8(4)?;
        let mut sbr = matches!(object_type, SBR | PS);
        let mut ps = object_type == PS;
        let mut rate = core_rate;
        let mut core = object_type;
        if sbr {
            rate = sample_rate(&mut bits)?;
            core = self::object_type(&mut bits)?;
            if core == ER_BSAC {
                bits.skip(4)?;
            }
        }

        let ga = ga_specific_config(&mut bits, core, channel_config)?;
        if matches!(core, 17 | 19..=27) {
            let ep_config = bits.u(2)?;
            if ep_config > 1 {
                return Err(Error::unsupported(
                    format!("AAC error protection {ep_config}"),
                    bits.byte(),
                ));
            }
        }

        // Backward-compatible signalling (1.6.5.2) stands where old decoders expect padding.
        // Nothing else that may follow matters here, so a cut-off end is no error.
        if !sbr && bits.left() >= 16 && bits.u(11)? == 0x2b7 && self::object_type(&mut bits)? == SBR
        {
            sbr = bits.left() >= 1 && bits.flag()?;
            if sbr {
                rate = sample_rate(&mut bits)?;
                ps = bits.left() >= 12 && bits.u(11)? == 0x548 && bits.flag()?;
            }
        }

        let channels = match (ps, ga.channels) {
            (true, 1) => 2,
            (_, channels) => channels,
        };
        // SBR doubles the sampling rate, and with it the samples of a frame. Downsampled SBR leaves
        // both as they are.
        let frame_length = ga.frame_length * if sbr && rate != core_rate { 2 } else { 1 };
        Ok(Self {
            record,
            object_type,
            sample_rate: rate,
            channels,
            frame_length,
            sbr,
            ps,
            core_object_type: core,
            channel_config,
        })
    }

    /// An access unit that decodes to silence, of [`frame_length`](Self::frame_length) samples a
    /// channel. Without data of SBR or PS a decoder plays the silent core. `None` for cores other
    /// than AAC-LC, for channels that a program config element lists, for 22.2, and for 7.1 with top
    /// channels.
    pub fn silence(&self) -> Option<Bytes> {
        let unit = SILENCE.get(usize::from(self.channel_config))?;
        unit.clone().filter(|_| self.core_object_type == 2)
    }

    /// RFC 6381 codec string, 3.3: `mp4a.40.` and the object type.
    pub fn rfc6381(&self) -> String {
        format!("mp4a.40.{}", self.object_type)
    }
}

/// GetAudioObjectType(), table 1.16: 5 bits; the value 31 means that 6 more follow.
fn object_type(bits: &mut Bits<'_>) -> Result<u8, Error> {
    Ok(match bits.u8(5)? {
        31 => 32 + bits.u8(6)?,
        object_type => object_type,
    })
}

fn sample_rate(bits: &mut Bits<'_>) -> Result<u32, Error> {
    let index = bits.u(4)?;
    if index == 15 {
        let rate = bits.u(24)?;
        if !WRITTEN_OUT.contains(&rate) {
            let what = format!("an AAC sampling rate of {rate} Hz");
            return Err(Error::unsupported(what, bits.byte()));
        }
        return Ok(rate);
    }
    SAMPLE_RATES
        .get(index as usize)
        .copied()
        .ok_or_else(|| bits.malformed("a reserved sampling frequency index"))
}

/// Syntactic elements of a raw_data_block(), with their identifiers (table 4.85): one channel, a pair
/// of channels, low-frequency effects.
#[derive(Clone, Copy, PartialEq)]
enum Element {
    Sce = 0,
    Cpe = 1,
    Lfe = 3,
}

/// A silent access unit of AAC-LC for each channel configuration that has its elements in a fixed
/// order (table 1.19). They are made once, because a stream without its audio needs one for each
/// frame of its video.
static SILENCE: LazyLock<[Option<Bytes>; 16]> = LazyLock::new(|| {
    use Element::{Cpe, Lfe, Sce};
    std::array::from_fn(|channel_config| {
        let elements: &[Element] = match channel_config {
            1 => &[Sce],
            2 => &[Cpe],
            3 => &[Sce, Cpe],
            4 => &[Sce, Cpe, Sce],
            5 => &[Sce, Cpe, Cpe],
            6 => &[Sce, Cpe, Cpe, Lfe],
            7 | 12 => &[Sce, Cpe, Cpe, Cpe, Lfe],
            11 => &[Sce, Cpe, Cpe, Sce, Lfe],
            _ => return None,
        };
        Some(silent_unit(elements))
    })
});

/// A raw_data_block() (4.4.2.1) of these elements, without a spectrum: each channel has one scale
/// factor band, and its only section has the codebook of zeros.
fn silent_unit(elements: &[Element]) -> Bytes {
    // Values and their widths in bits.
    let mut fields = Vec::new();
    // ics_info(): a long window, max_sfb 1, no prediction.
    let window = [(0, 1 + 2 + 1), (1, 6), (0, 1)];
    let gain = (100, 8);
    // section_data(): codebook 0, of length 1. No pulses, no TNS, no gain control.
    let no_spectrum = [(0, 4), (1, 5), (0, 3)];
    for (index, element) in elements.iter().enumerate() {
        let tag = elements[..index].iter().filter(|earlier| *earlier == element).count() as u32;
        fields.extend([(*element as u32, 3), (tag, 4)]);
        if *element == Element::Cpe {
            // common_window, and a mask that has no band in mid/side stereo.
            fields.push((1, 1));
            fields.extend(window);
            fields.extend([(1, 2), (0, 1)]);
            for _ in 0..2 {
                fields.push(gain);
                fields.extend(no_spectrum);
            }
        } else {
            fields.push(gain);
            fields.extend(window);
            fields.extend(no_spectrum);
        }
    }
    const END: (u32, u32) = (7, 3);
    fields.push(END);

    let bits =
        fields.iter().flat_map(|&(value, width)| (0..width).rev().map(move |i| value >> i & 1));
    let bits: Vec<u32> = bits.collect();
    let byte = |bits: &[u32]| {
        bits.iter().enumerate().fold(0, |byte, (i, bit)| byte | (*bit as u8) << (7 - i))
    };
    bits.chunks(8).map(byte).collect()
}

struct GaSpecificConfig {
    channels: u16,
    frame_length: u32,
}

/// GASpecificConfig(), 4.4.1.
fn ga_specific_config(
    bits: &mut Bits<'_>,
    object_type: u8,
    channel_config: u8,
) -> Result<GaSpecificConfig, Error> {
    // Main, LC, SSR, LTP, scalable; then the error-resilient LC, LTP, scalable and LD.
    if !matches!(object_type, 1..=4 | 6 | 17 | 19 | 20 | 23) {
        return Err(Error::unsupported(
            format!("MPEG-4 audio object type {object_type}"),
            bits.byte(),
        ));
    }
    let short = bits.flag()?;
    let frame_length = match (object_type, short) {
        (23, false) => 512,
        (23, true) => 480,
        (_, false) => 1024,
        (_, true) => 960,
    };
    if bits.flag()? {
        // coreCoderDelay
        bits.skip(14)?;
    }
    let extension = bits.flag()?;
    // Table 1.19: channel configuration.
    let channels = match channel_config {
        0 => program_config_element(bits)?,
        1..=6 => u16::from(channel_config),
        11 => 7,
        7 | 12 | 14 => 8,
        13 => 24,
        _ => return Err(bits.malformed("a reserved channel configuration")),
    };
    if matches!(object_type, 6 | 20) {
        // layerNr
        bits.skip(3)?;
    }
    if extension {
        if matches!(object_type, 17 | 19 | 20 | 23) {
            bits.skip(3)?;
        }
        bits.skip(1)?;
    }
    Ok(GaSpecificConfig { channels, frame_length })
}

/// Channels of a program_config_element(), 4.4.1.1.
fn program_config_element(bits: &mut Bits<'_>) -> Result<u16, Error> {
    // element_instance_tag, object_type, sampling_frequency_index
    bits.skip(4 + 2 + 4)?;
    let (front, side, back) = (bits.u(4)?, bits.u(4)?, bits.u(4)?);
    let (lfe, associated, coupling) = (bits.u(2)?, bits.u(3)?, bits.u(4)?);
    for mixdown in [4, 4, 3] {
        if bits.flag()? {
            bits.skip(mixdown)?;
        }
    }
    let mut channels = lfe;
    for _ in 0..front + side + back {
        channels += if bits.flag()? { 2 } else { 1 };
        bits.skip(4)?;
    }
    bits.skip(4 * lfe + 4 * associated + 5 * coupling)?;
    bits.align()?;
    let comment = bits.u(8)?;
    bits.skip(8 * comment)?;
    match u16::try_from(channels) {
        Ok(channels) if channels > 0 => Ok(channels),
        _ => Err(bits.malformed("a program config element without channels")),
    }
}
