use std::fmt::Write;

use super::text::{Line, Quoted};

/// A multivariant playlist: the renditions of a stream, RFC 8216bis 4.4.6.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MultivariantPlaylist {
    /// EXT-X-INDEPENDENT-SEGMENTS, RFC 8216bis 4.4.2.1: in every playlist, decoding can start at
    /// the first sample of every segment.
    pub independent_segments: bool,
    /// Audio renditions, which variants refer to by group.
    pub audio: Vec<Audio>,
    /// Subtitles, which variants refer to by group.
    pub subtitles: Vec<Subtitles>,
    /// Variants in any order. They are written from the highest bandwidth to the lowest.
    pub variants: Vec<Variant>,
    /// Playlists of intra-coded frames, in any order, written like the variants.
    pub i_frames: Vec<IFrames>,
}

/// An audio rendition: EXT-X-MEDIA with TYPE=AUDIO, RFC 8216bis 4.4.6.1.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Audio {
    /// GROUP-ID.
    pub group: String,
    /// NAME, unique within the group.
    pub name: String,
    /// LANGUAGE, an RFC 5646 tag.
    pub language: Option<String>,
    /// DEFAULT: played unless the viewer chooses otherwise; one per group. AUTOSELECT is written
    /// for every rendition.
    pub default: bool,
    /// CHANNELS: number of channels.
    pub channels: Option<u16>,
    /// URI of the media playlist; `None` where the variants' own streams contain the audio.
    pub uri: Option<String>,
}

/// Subtitles in WebVTT: EXT-X-MEDIA with TYPE=SUBTITLES, RFC 8216bis 4.4.6.1. AUTOSELECT is written
/// for all of them, so a player selects those in the viewer's language.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Subtitles {
    /// GROUP-ID.
    pub group: String,
    /// NAME, unique within the group.
    pub name: String,
    /// LANGUAGE, an RFC 5646 tag.
    pub language: Option<String>,
    /// DEFAULT: shown unless the viewer chooses otherwise; at most one per group.
    pub default: bool,
    /// FORCED: needed to understand the dialogue, even for viewers who chose no subtitles.
    pub forced: bool,
    /// URI of the media playlist.
    pub uri: String,
}

/// A variant: EXT-X-STREAM-INF, RFC 8216bis 4.4.6.2.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Variant {
    /// URI of the media playlist.
    pub uri: String,
    /// BANDWIDTH: the peak segment bit rate, in bits per second, of the variant and the largest
    /// rendition it is played with.
    pub bandwidth: u64,
    /// AVERAGE-BANDWIDTH, in bits per second.
    pub average_bandwidth: Option<u64>,
    /// CODECS: RFC 6381 strings of all codecs in the variant and its renditions.
    pub codecs: Vec<String>,
    /// RESOLUTION: width and height in pixels.
    pub resolution: Option<(u32, u32)>,
    /// FRAME-RATE: frames per second as numerator and denominator.
    pub frame_rate: Option<(u32, u32)>,
    /// AUDIO: GROUP-ID of the audio renditions it is played with.
    pub audio: Option<String>,
    /// SUBTITLES: GROUP-ID of the subtitles it can be shown with.
    pub subtitles: Option<String>,
}

/// A playlist of intra-coded frames, for fast forward, rewind and previews:
/// EXT-X-I-FRAME-STREAM-INF, RFC 8216bis 4.4.6.3.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IFrames {
    /// URI of the media playlist, whose [`i_frames_only`](super::MediaPlaylist::i_frames_only) is
    /// true.
    pub uri: String,
    /// BANDWIDTH: the peak bit rate, in bits per second, at normal speed.
    pub bandwidth: u64,
    /// AVERAGE-BANDWIDTH, in bits per second.
    pub average_bandwidth: Option<u64>,
    /// CODECS: RFC 6381 string of the frames.
    pub codecs: String,
    /// RESOLUTION: width and height in pixels.
    pub resolution: Option<(u32, u32)>,
}

impl MultivariantPlaylist {
    /// The playlist's text.
    pub fn render(&self) -> String {
        let media = self.audio.len() + self.subtitles.len();
        let streams = self.variants.len() + self.i_frames.len();
        let mut out = String::with_capacity(128 + 256 * (media + streams));
        self.write(&mut out).expect("a String takes every write");
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        out.push_str("#EXTM3U\n#EXT-X-VERSION:6\n");
        if self.independent_segments {
            out.push_str("#EXT-X-INDEPENDENT-SEGMENTS\n");
        }
        for audio in &self.audio {
            audio.write(out)?;
        }
        for subtitles in &self.subtitles {
            subtitles.write(out)?;
        }
        let mut variants: Vec<_> = self.variants.iter().collect();
        variants.sort_by_key(|variant| std::cmp::Reverse(variant.bandwidth));
        for variant in variants {
            variant.write(out)?;
        }
        let mut i_frames: Vec<_> = self.i_frames.iter().collect();
        i_frames.sort_by_key(|i_frames| std::cmp::Reverse(i_frames.bandwidth));
        for i_frames in i_frames {
            i_frames.write(out)?;
        }
        Ok(())
    }
}

impl Audio {
    fn write(&self, out: &mut String) -> std::fmt::Result {
        let language = self.language.as_deref();
        write_media(out, "AUDIO", &self.group, &self.name, language, self.default)?;
        if let Some(channels) = self.channels {
            write!(out, ",CHANNELS=\"{channels}\"")?;
        }
        if let Some(uri) = &self.uri {
            write!(out, ",URI={}", Quoted(uri))?;
        }
        out.push('\n');
        Ok(())
    }
}

impl Subtitles {
    fn write(&self, out: &mut String) -> std::fmt::Result {
        let language = self.language.as_deref();
        write_media(out, "SUBTITLES", &self.group, &self.name, language, self.default)?;
        if self.forced {
            out.push_str(",FORCED=YES");
        }
        writeln!(out, ",URI={}", Quoted(&self.uri))
    }
}

/// The attributes that every EXT-X-MEDIA has.
fn write_media(
    out: &mut String,
    kind: &str,
    group: &str,
    name: &str,
    language: Option<&str>,
    default: bool,
) -> std::fmt::Result {
    let (group, name) = (Quoted(group), Quoted(name));
    write!(out, "#EXT-X-MEDIA:TYPE={kind},GROUP-ID={group},NAME={name}")?;
    if let Some(language) = language {
        write!(out, ",LANGUAGE={}", Quoted(language))?;
    }
    let default = if default { "YES" } else { "NO" };
    write!(out, ",DEFAULT={default},AUTOSELECT=YES")
}

impl Variant {
    fn write(&self, out: &mut String) -> std::fmt::Result {
        write!(out, "#EXT-X-STREAM-INF:BANDWIDTH={}", self.bandwidth)?;
        if let Some(average) = self.average_bandwidth {
            write!(out, ",AVERAGE-BANDWIDTH={average}")?;
        }
        if !self.codecs.is_empty() {
            write!(out, ",CODECS={}", Quoted(&self.codecs.join(",")))?;
        }
        if let Some((width, height)) = self.resolution {
            write!(out, ",RESOLUTION={width}x{height}")?;
        }
        if let Some((frames, seconds @ 1..)) = self.frame_rate {
            // Three decimals, RFC 8216bis 4.4.6.2.
            let millis = (u64::from(frames) * 1000 + u64::from(seconds) / 2) / u64::from(seconds);
            write!(out, ",FRAME-RATE={}.{:03}", millis / 1000, millis % 1000)?;
        }
        if let Some(audio) = &self.audio {
            write!(out, ",AUDIO={}", Quoted(audio))?;
        }
        if let Some(subtitles) = &self.subtitles {
            write!(out, ",SUBTITLES={}", Quoted(subtitles))?;
        }
        writeln!(out, "\n{}", Line(&self.uri))
    }
}

impl IFrames {
    fn write(&self, out: &mut String) -> std::fmt::Result {
        write!(out, "#EXT-X-I-FRAME-STREAM-INF:BANDWIDTH={}", self.bandwidth)?;
        if let Some(average) = self.average_bandwidth {
            write!(out, ",AVERAGE-BANDWIDTH={average}")?;
        }
        write!(out, ",CODECS={}", Quoted(&self.codecs))?;
        if let Some((width, height)) = self.resolution {
            write!(out, ",RESOLUTION={width}x{height}")?;
        }
        writeln!(out, ",URI={}", Quoted(&self.uri))
    }
}
