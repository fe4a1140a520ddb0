//! `onMetaData`: a publisher's description of its stream.

use bytes::Bytes;

use super::amf::{self, Reader, Value};
use crate::{Codec, Error};

/// The longest `encoder` that is kept, in bytes.
const MAX_ENCODER: usize = 256;

/// The properties of `onMetaData` that are used here (annex E.5), where present. They are the
/// publisher's claims: the codec configurations are more reliable.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metadata {
    /// Duration in seconds; for a file.
    pub duration: Option<f64>,
    /// Size in bytes; for a file.
    pub file_size: Option<f64>,
    /// Video width in pixels.
    pub width: Option<f64>,
    /// Video height in pixels.
    pub height: Option<f64>,
    /// Frames per second.
    pub frame_rate: Option<f64>,
    /// Video bit rate in kbit/s.
    pub video_data_rate: Option<f64>,
    /// Audio bit rate in kbit/s.
    pub audio_data_rate: Option<f64>,
    /// `videocodecid`: the legacy number, or the four-character code as a number.
    pub video_codec: Option<f64>,
    /// `audiocodecid`, in the same form.
    pub audio_codec: Option<f64>,
    /// Audio sampling rate in Hz.
    pub audio_sample_rate: Option<f64>,
    /// Whether the audio has two channels, not one.
    pub stereo: Option<bool>,
    /// For a live stream: how many seconds of existing media follow. A player that starts at once
    /// begins that far behind live. This is not a property of annex E.5; players ignore properties
    /// they do not know.
    pub behind: Option<f64>,
    /// The program that encoded it.
    pub encoder: Option<String>,
}

impl Metadata {
    /// Reads script data: `onMetaData` and its properties. RTMP publishers put `@setDataFrame`
    /// before them; files do not. `None` for other script data, such as cue points.
    ///
    /// # Errors
    /// The data are not AMF0, or cut off.
    pub fn parse(payload: &[u8]) -> Result<Option<Self>, Error> {
        let mut reader = Reader::new(payload);
        let mut name = reader.value()?;
        if name == Value::String(b"@setDataFrame") {
            name = reader.value()?;
        }
        if name != Value::String(b"onMetaData") {
            return Ok(None);
        }
        let mut metadata = Self::default();
        reader.properties(|name, value| metadata.set(name, value))?;
        Ok(Some(metadata))
    }

    fn set(&mut self, name: &[u8], value: Value<'_>) {
        if let Value::Boolean(stereo) = value
            && name == b"stereo"
        {
            self.stereo = Some(stereo);
        }
        if let Value::String(string) = value {
            let short = &string[..string.len().min(MAX_ENCODER)];
            match name {
                b"encoder" => self.encoder = Some(String::from_utf8_lossy(short).into_owned()),
                b"videocodecid" => self.video_codec = fourcc_number(string),
                b"audiocodecid" => self.audio_codec = fourcc_number(string),
                _ => {}
            }
        }
        let Value::Number(number) = value else {
            return;
        };
        let field = match name {
            b"duration" => &mut self.duration,
            b"filesize" => &mut self.file_size,
            b"width" => &mut self.width,
            b"height" => &mut self.height,
            b"framerate" | b"fps" => &mut self.frame_rate,
            b"videodatarate" => &mut self.video_data_rate,
            b"audiodatarate" => &mut self.audio_data_rate,
            b"videocodecid" => &mut self.video_codec,
            b"audiocodecid" => &mut self.audio_codec,
            b"audiosamplerate" => &mut self.audio_sample_rate,
            b"behind" => &mut self.behind,
            _ => return,
        };
        if number.is_finite() {
            *field = Some(number);
        }
    }

    /// Metadata from the configurations of a stream's tracks: those of the first video and the
    /// first audio track.
    pub fn describe<'a>(codecs: impl IntoIterator<Item = &'a Codec>) -> Self {
        let mut metadata = Self::default();
        for codec in codecs {
            if let (None, Some((width, height))) = (metadata.width, codec.resolution()) {
                metadata.width = Some(width.into());
                metadata.height = Some(height.into());
                let (id, rate) = match codec {
                    Codec::Avc(config) => (7.0, config.frame_rate),
                    Codec::Hevc(config) => (number(*b"hvc1"), config.frame_rate),
                    Codec::Av1(config) => (number(*b"av01"), config.frame_rate),
                    _ => continue,
                };
                metadata.video_codec = Some(id);
                metadata.frame_rate =
                    rate.map(|(frames, seconds)| f64::from(frames) / f64::from(seconds));
            }
            if let (None, Some((rate, channels))) = (metadata.audio_sample_rate, codec.audio()) {
                metadata.audio_sample_rate = Some(rate.into());
                metadata.stereo = Some(channels > 1);
                metadata.audio_codec = match codec {
                    Codec::Aac(_) => Some(10.0),
                    Codec::Opus(_) => Some(number(*b"Opus")),
                    _ => None,
                };
            }
        }
        metadata
    }

    /// `onMetaData` and the properties that are set, as a script tag or an RTMP data message
    /// carries them.
    pub fn payload(&self) -> Bytes {
        let numbers = [
            ("duration", self.duration),
            ("filesize", self.file_size),
            ("width", self.width),
            ("height", self.height),
            ("framerate", self.frame_rate),
            ("videocodecid", self.video_codec),
            ("videodatarate", self.video_data_rate),
            ("audiocodecid", self.audio_codec),
            ("audiodatarate", self.audio_data_rate),
            ("audiosamplerate", self.audio_sample_rate),
            ("behind", self.behind),
        ];
        let count = numbers.iter().filter(|(_, number)| number.is_some()).count()
            + usize::from(self.stereo.is_some())
            + usize::from(self.encoder.is_some());
        let mut out = Vec::new();
        amf::write_string(&mut out, "onMetaData");
        // Thirteen properties at most.
        amf::write_ecma_array(&mut out, count as u32);
        for (name, number) in numbers {
            if let Some(number) = number {
                amf::write_number_property(&mut out, name, number);
            }
        }
        if let Some(stereo) = self.stereo {
            amf::write_boolean_property(&mut out, "stereo", stereo);
        }
        if let Some(encoder) = &self.encoder {
            amf::write_string_property(&mut out, "encoder", encoder);
        }
        amf::write_end(&mut out);
        out.into()
    }
}

/// A four-character code as Enhanced RTMP writes it into a property: a big-endian number.
fn number(fourcc: [u8; 4]) -> f64 {
    u32::from_be_bytes(fourcc).into()
}

/// The same number from a property that is written as a string.
fn fourcc_number(string: &[u8]) -> Option<f64> {
    string.try_into().ok().map(number)
}
