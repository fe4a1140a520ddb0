//! HLS playlists as a player reads them, RFC 8216bis. The parser is meant for any server and shares
//! no code with the renderer of our own playlists. Strings are borrowed from the playlist's text,
//! so parsing copies none of them.

use std::ops::Range;

use crate::text_time::{date, seconds};
use crate::{Error, Micros};

/// Longest playlist that is read, in bytes.
pub const MAX_SIZE: usize = 8 << 20;
/// Most entries of any list in a playlist or a manifest: segments, parts, renditions and so on.
const MAX_ENTRIES: usize = 100_000;

/// Either kind of playlist.
#[derive(Debug, Clone, PartialEq)]
pub enum Playlist<'a> {
    /// The renditions to choose from.
    Multivariant(Multivariant<'a>),
    /// The segments of one rendition.
    Media(Box<Media<'a>>),
}

/// A multivariant playlist, 4.4.6.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Multivariant<'a> {
    /// EXT-X-STREAM-INF, in the order of the playlist.
    pub variants: Vec<Variant<'a>>,
    /// EXT-X-MEDIA of TYPE=AUDIO.
    pub audio: Vec<Audio<'a>>,
}

/// A variant, 4.4.6.2.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Variant<'a> {
    /// Its media playlist.
    pub uri: &'a str,
    /// BANDWIDTH in bits per second.
    pub bandwidth: u64,
    /// CODECS, as it is written.
    pub codecs: Option<&'a str>,
    /// RESOLUTION.
    pub resolution: Option<(u32, u32)>,
    /// AUDIO: group of its audio renditions.
    pub audio: Option<&'a str>,
}

/// An audio rendition, 4.4.6.1.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Audio<'a> {
    /// GROUP-ID.
    pub group: &'a str,
    /// NAME.
    pub name: &'a str,
    /// DEFAULT.
    pub default: bool,
    /// URI of its media playlist; `None` if the variants contain this audio.
    pub uri: Option<&'a str>,
}

/// A media playlist.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Media<'a> {
    /// EXT-X-TARGETDURATION.
    pub target_duration: Micros,
    /// EXT-X-MEDIA-SEQUENCE.
    pub media_sequence: u64,
    /// Whether nothing more comes: EXT-X-ENDLIST.
    pub ended: bool,
    /// EXT-X-PART-INF: PART-TARGET.
    pub part_target: Option<Micros>,
    /// CAN-BLOCK-RELOAD.
    pub can_block_reload: bool,
    /// CAN-SKIP-UNTIL.
    pub can_skip_until: Option<Micros>,
    /// HOLD-BACK.
    pub hold_back: Option<Micros>,
    /// PART-HOLD-BACK.
    pub part_hold_back: Option<Micros>,
    /// EXT-X-SKIP: how many segments are left out before the first listed one.
    pub skipped: u64,
    /// Complete segments. The first has the number `media_sequence + skipped`. Segments that a
    /// delta update leaves out are not in the list.
    pub segments: Vec<Segment<'a>>,
    /// What the playlist says of the segment after the last complete one.
    pub open: Segment<'a>,
    /// Parts of all segments. The parts of one segment are next to each other.
    pub parts: Vec<Part<'a>>,
    /// EXT-X-PRELOAD-HINT of TYPE=PART.
    pub hint: Option<Location<'a>>,
}

/// A segment.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Segment<'a> {
    /// Where the segment is; empty for the open segment.
    pub place: Location<'a>,
    /// EXTINF; 0 for the open segment.
    pub duration: Micros,
    /// When it was captured, in microseconds since 1970: its EXT-X-PROGRAM-DATE-TIME, or else the
    /// date of another segment plus or minus the durations in between (4.4.4.6). There is no
    /// discontinuity between the two.
    pub date: Option<Micros>,
    /// EXT-X-DISCONTINUITY.
    pub discontinuity: bool,
    /// EXT-X-GAP.
    pub gap: bool,
    /// EXT-X-MAP that applies to it. `None` if the playlist has none; a delta update may have left
    /// it out.
    pub map: Option<Location<'a>>,
    /// Its parts among [`Media::parts`].
    pub parts: Range<usize>,
}

/// A part, 4.4.4.9.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Part<'a> {
    /// Where it is.
    pub place: Location<'a>,
    /// DURATION.
    pub duration: Micros,
    /// INDEPENDENT.
    pub independent: bool,
    /// GAP.
    pub gap: bool,
}

/// A resource, or a range of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Location<'a> {
    /// URI, as it is written.
    pub uri: &'a str,
    /// First byte and length; without a length, to the end of the resource.
    pub range: Option<(u64, Option<u64>)>,
}

impl Media<'_> {
    /// Number of the first listed segment.
    pub fn first(&self) -> u64 {
        // Both are below 2^60, the parser makes sure.
        self.media_sequence + self.skipped
    }

    /// Number of the open segment: one after the last complete one.
    pub fn open_number(&self) -> u64 {
        self.first() + self.segments.len() as u64
    }

    /// Dates the segments without a date: first forwards from the dated ones, then backwards
    /// (4.4.4.6).
    fn date_all(&mut self) {
        let mut told: Option<Micros> = None;
        for segment in self.segments.iter_mut().chain([&mut self.open]) {
            let goes_on = told.filter(|_| !segment.discontinuity);
            segment.date = segment.date.or(goes_on);
            told = segment.date.map(|date| date.saturating_add(segment.duration));
        }
        let mut told = self.open.date.filter(|_| !self.open.discontinuity);
        for segment in self.segments.iter_mut().rev() {
            let goes_on = told.map(|end| end.saturating_sub(segment.duration));
            segment.date = segment.date.or(goes_on);
            told = segment.date.filter(|_| !segment.discontinuity);
        }
    }
}

/// Reads a playlist.
///
/// # Errors
/// The text is no playlist, or lacks what a player needs. The error names the line.
pub fn parse(text: &str) -> Result<Playlist<'_>, Error> {
    if text.len() > MAX_SIZE {
        return Err(Error::manifest(format!("playlist of {} bytes", text.len())));
    }
    let text = text.strip_prefix('\u{FEFF}').unwrap_or(text);
    let mut parser = Parser::default();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_end();
        if number == 1 {
            if line != "#EXTM3U" {
                return Err(Error::manifest("not a playlist: no #EXTM3U").at("line 1"));
            }
            continue;
        }
        parser.line(line).map_err(|error| error.at(format!("line {number}")))?;
    }
    parser.finish()
}

#[derive(Default)]
struct Parser<'a> {
    multivariant: Multivariant<'a>,
    media: Media<'a>,
    /// Whether tags of a media playlist were seen.
    is_media: bool,
    has_target: bool,
    /// The variant whose URI comes next.
    variant: Option<Variant<'a>>,
    /// What the tags have said of the segment whose URI comes next.
    next: Segment<'a>,
    has_duration: bool,
    /// Where the next EXT-X-BYTERANGE without an offset begins.
    after: u64,
    /// The same for parts.
    after_part: u64,
    map: Option<Location<'a>>,
}

impl<'a> Parser<'a> {
    fn line(&mut self, line: &'a str) -> Result<(), Error> {
        if let Some(tag) = line.strip_prefix("#EXT") {
            let (name, value) = tag.split_once(':').unwrap_or((tag, ""));
            return self.tag(name, value);
        }
        if line.is_empty() || line.starts_with('#') {
            return Ok(());
        }
        self.uri(line)
    }

    fn tag(&mut self, name: &'a str, value: &'a str) -> Result<(), Error> {
        let media = &mut self.media;
        match name {
            "INF" => {
                let duration = value.split(',').next().unwrap_or_default().trim();
                self.next.duration = seconds(duration).ok_or_else(|| bad("EXTINF", value))?;
                self.has_duration = true;
                self.is_media = true;
            }
            "-X-TARGETDURATION" => {
                media.target_duration =
                    seconds(value.trim()).ok_or_else(|| bad("EXT-X-TARGETDURATION", value))?;
                self.has_target = true;
                self.is_media = true;
            }
            "-X-MEDIA-SEQUENCE" => {
                media.media_sequence = number_of_segment(name, value)?;
                self.is_media = true;
            }
            "-X-ENDLIST" => media.ended = true,
            "-X-PART-INF" => {
                for (key, value) in attributes(value) {
                    if key == "PART-TARGET" {
                        media.part_target =
                            Some(seconds(value).ok_or_else(|| bad("PART-TARGET", value))?);
                    }
                }
            }
            "-X-SERVER-CONTROL" => {
                for (key, value) in attributes(value) {
                    match key {
                        "CAN-BLOCK-RELOAD" => media.can_block_reload = value == "YES",
                        "CAN-SKIP-UNTIL" => media.can_skip_until = seconds(value),
                        "HOLD-BACK" => media.hold_back = seconds(value),
                        "PART-HOLD-BACK" => media.part_hold_back = seconds(value),
                        _ => {}
                    }
                }
            }
            "-X-SKIP" => {
                for (key, value) in attributes(value) {
                    if key == "SKIPPED-SEGMENTS" {
                        media.skipped = number_of_segment(key, value)?;
                    }
                }
            }
            "-X-PROGRAM-DATE-TIME" => self.next.date = date(value),
            "-X-DISCONTINUITY" => self.next.discontinuity = true,
            "-X-GAP" => self.next.gap = true,
            "-X-BYTERANGE" => self.next.place.range = Some(range(value, &mut self.after)?),
            "-X-MAP" => self.map = Some(map(value)?),
            "-X-PART" => self.part(value)?,
            "-X-PRELOAD-HINT" => self.hint(value)?,
            "-X-STREAM-INF" => self.variant = Some(variant(value)?),
            "-X-MEDIA" => self.rendition(value)?,
            _ => {}
        }
        Ok(())
    }

    fn part(&mut self, value: &'a str) -> Result<(), Error> {
        let mut part = Part::default();
        let mut has_duration = false;
        for (key, value) in attributes(value) {
            match key {
                "URI" => part.place.uri = value,
                "DURATION" => {
                    part.duration = seconds(value).ok_or_else(|| bad("DURATION", value))?;
                    has_duration = true;
                }
                "INDEPENDENT" => part.independent = value == "YES",
                "GAP" => part.gap = value == "YES",
                "BYTERANGE" => part.place.range = Some(range(value, &mut self.after_part)?),
                _ => {}
            }
        }
        if part.place.uri.is_empty() || !has_duration {
            return Err(Error::manifest("EXT-X-PART without URI or DURATION"));
        }
        limit(self.media.parts.len())?;
        self.media.parts.push(part);
        Ok(())
    }

    fn hint(&mut self, value: &'a str) -> Result<(), Error> {
        let (mut place, mut is_part) = (Location::default(), false);
        let (mut start, mut length) = (None, None);
        for (key, value) in attributes(value) {
            match key {
                "TYPE" => is_part = value == "PART",
                "URI" => place.uri = value,
                "BYTERANGE-START" => start = Some(integer(key, value)?),
                "BYTERANGE-LENGTH" => length = Some(integer(key, value)?),
                _ => {}
            }
        }
        if start.is_some() || length.is_some() {
            place.range = Some((start.unwrap_or_default(), length));
        }
        if is_part && !place.uri.is_empty() {
            self.media.hint = Some(place);
        }
        Ok(())
    }

    fn rendition(&mut self, value: &'a str) -> Result<(), Error> {
        let (mut audio, mut is_audio) = (Audio::default(), false);
        for (key, value) in attributes(value) {
            match key {
                "TYPE" => is_audio = value == "AUDIO",
                "GROUP-ID" => audio.group = value,
                "NAME" => audio.name = value,
                "DEFAULT" => audio.default = value == "YES",
                "URI" => audio.uri = Some(value),
                _ => {}
            }
        }
        if is_audio {
            limit(self.multivariant.audio.len())?;
            self.multivariant.audio.push(audio);
        }
        Ok(())
    }

    fn uri(&mut self, uri: &'a str) -> Result<(), Error> {
        if let Some(mut variant) = self.variant.take() {
            variant.uri = uri;
            limit(self.multivariant.variants.len())?;
            self.multivariant.variants.push(variant);
            return Ok(());
        }
        if !self.has_duration {
            return Err(Error::manifest("URI without EXTINF or EXT-X-STREAM-INF"));
        }
        limit(self.media.segments.len())?;
        let mut segment = self.take_next();
        segment.place.uri = uri;
        if segment.place.range.is_none() {
            self.after = 0;
        }
        self.media.segments.push(segment);
        Ok(())
    }

    fn take_next(&mut self) -> Segment<'a> {
        self.has_duration = false;
        self.after_part = 0;
        let mut segment = std::mem::take(&mut self.next);
        segment.map = self.map;
        let from = self.media.segments.last().map_or(0, |last| last.parts.end);
        segment.parts = from..self.media.parts.len();
        segment
    }

    fn finish(mut self) -> Result<Playlist<'a>, Error> {
        if self.is_media {
            if !self.has_target {
                return Err(Error::manifest("media playlist without EXT-X-TARGETDURATION"));
            }
            self.media.open = self.take_next();
            self.media.date_all();
            return Ok(Playlist::Media(Box::new(self.media)));
        }
        if self.multivariant.variants.is_empty() {
            return Err(Error::manifest("playlist with neither segments nor variants"));
        }
        Ok(Playlist::Multivariant(self.multivariant))
    }
}

/// Refuses a further entry of a list that has as many as a playlist or a manifest may list.
pub(crate) fn limit(entries: usize) -> Result<(), Error> {
    if entries < MAX_ENTRIES {
        Ok(())
    } else {
        Err(Error::manifest(format!("more than {MAX_ENTRIES} entries")))
    }
}

/// The error for a value that cannot be read.
pub(crate) fn bad(what: &str, value: &str) -> Error {
    let shown: String = value.chars().take(60).collect();
    Error::manifest(format!("{what}: {shown:?}"))
}

fn integer(what: &str, value: &str) -> Result<u64, Error> {
    value.trim().parse().map_err(|_| bad(what, value))
}

/// Parses an integer and leaves room to count on from it.
fn number_of_segment(what: &str, value: &str) -> Result<u64, Error> {
    integer(what, value)
        .and_then(|number| if number < 1 << 60 { Ok(number) } else { Err(bad(what, value)) })
}

/// Parses `LENGTH[@OFFSET]`, 4.4.4.2. Without an offset the range follows the range before.
fn range(value: &str, after: &mut u64) -> Result<(u64, Option<u64>), Error> {
    let (length, offset) = value.split_once('@').unwrap_or((value, ""));
    let length: u64 = integer("BYTERANGE", length)?;
    let from = if offset.is_empty() { *after } else { integer("BYTERANGE", offset)? };
    *after = from.checked_add(length).ok_or_else(|| bad("BYTERANGE", value))?;
    Ok((from, Some(length)))
}

fn map(value: &str) -> Result<Location<'_>, Error> {
    let mut place = Location::default();
    for (key, value) in attributes(value) {
        match key {
            "URI" => place.uri = value,
            "BYTERANGE" => place.range = Some(range(value, &mut 0)?),
            _ => {}
        }
    }
    if place.uri.is_empty() { Err(Error::manifest("EXT-X-MAP without URI")) } else { Ok(place) }
}

fn variant(value: &str) -> Result<Variant<'_>, Error> {
    let mut variant = Variant::default();
    let mut has_bandwidth = false;
    for (key, value) in attributes(value) {
        match key {
            "BANDWIDTH" => {
                variant.bandwidth = integer(key, value)?;
                has_bandwidth = true;
            }
            "CODECS" => variant.codecs = Some(value),
            "AUDIO" => variant.audio = Some(value),
            "RESOLUTION" => {
                let size = value.split_once('x');
                variant.resolution = size
                    .and_then(|(width, height)| Some((width.parse().ok()?, height.parse().ok()?)));
            }
            _ => {}
        }
    }
    // 4.4.6.2 requires it, but playlists with one variant sometimes lack it.
    if !has_bandwidth {
        variant.bandwidth = 0;
    }
    Ok(variant)
}

/// Iterates over the attributes of a tag, 4.2: names, and values without their quotes. Ends at the
/// first malformed one.
fn attributes(list: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = list;
    std::iter::from_fn(move || {
        let (name, after) = rest.split_once('=')?;
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => {
                let (value, after) = quoted.split_once('"')?;
                (value, after.strip_prefix(',').unwrap_or(after))
            }
            None => {
                let (value, after) = after.split_once(',').unwrap_or((after, ""));
                (value.trim(), after)
            }
        };
        rest = after;
        Some((name.trim(), value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOW_LATENCY: &str = "#EXTM3U\n\
        #EXT-X-VERSION:9\n\
        #EXT-X-TARGETDURATION:4\n\
        #EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES,PART-HOLD-BACK=1.0,CAN-SKIP-UNTIL=24.0\n\
        #EXT-X-PART-INF:PART-TARGET=0.33334\n\
        #EXT-X-MEDIA-SEQUENCE:266\n\
        #EXT-X-SKIP:SKIPPED-SEGMENTS=3\n\
        #EXT-X-PROGRAM-DATE-TIME:2026-11-21T20:01:00.250Z\n\
        #EXTINF:4.00008,\n\
        fileSequence269.mp4\n\
        #EXT-X-MAP:URI=\"init,2.mp4\",BYTERANGE=\"10@20\"\n\
        #EXT-X-PART:DURATION=0.33334,URI=\"filePart270.0.mp4\",INDEPENDENT=YES\n\
        #EXT-X-PART:DURATION=0.33334,URI=\"filePart270.1.mp4\",BYTERANGE=100@7\n\
        #EXT-X-PART:DURATION=0.33334,URI=\"filePart270.1.mp4\",BYTERANGE=50\n\
        #EXTINF:4.00008,title\n\
        fileSequence270.mp4\n\
        #EXT-X-DISCONTINUITY\n\
        #EXT-X-PART:DURATION=0.2,URI=\"filePart271.0.mp4\"\n\
        #EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"filePart271.1.mp4\"\n\
        #EXT-X-RENDITION-REPORT:URI=\"../1M/media.m3u8\",LAST-MSN=271,LAST-PART=0\n";

    #[test]
    fn low_latency_delta_update() {
        let Playlist::Media(media) = parse(LOW_LATENCY).unwrap() else { panic!() };
        assert_eq!((media.first(), media.open_number()), (269, 271));
        assert_eq!(media.part_target, Some(333_340));
        assert_eq!(media.part_hold_back, Some(1_000_000));
        assert!(media.can_block_reload && !media.ended);
        let [first, second] = &media.segments[..] else { panic!() };
        assert_eq!(first.date, Some(1_795_291_260_250_000));
        assert_eq!((first.map, first.parts.clone()), (None, 0..0));
        assert_eq!(second.place.uri, "fileSequence270.mp4");
        let map = second.map.unwrap();
        assert_eq!((map.uri, map.range), ("init,2.mp4", Some((20, Some(10)))));
        let ranges: Vec<_> =
            media.parts[second.parts.clone()].iter().map(|p| p.place.range).collect();
        assert_eq!(ranges, [None, Some((7, Some(100))), Some((107, Some(50)))]);
        assert!(
            media.open.discontinuity && media.parts[media.open.parts.start].duration == 200_000
        );
        assert_eq!(media.hint.unwrap().uri, "filePart271.1.mp4");
    }

    #[test]
    fn multivariant() {
        let text = "#EXTM3U\r\n\
            #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"a\",NAME=\"x, y\",DEFAULT=YES,URI=\"a0.m3u8\"\r\n\
            #EXT-X-MEDIA:TYPE=SUBTITLES,GROUP-ID=\"s\",NAME=\"x\",URI=\"s.m3u8\"\r\n\
            #EXT-X-STREAM-INF:BANDWIDTH=1280000,CODECS=\"avc1.4d401e,mp4a.40.2\",RESOLUTION=640x360,AUDIO=\"a\"\r\n\
            low.m3u8\r\n\
            # a comment\r\n\
            #EXT-X-STREAM-INF:BANDWIDTH=2560000\r\n\
            http://other/high.m3u8\r\n";
        let Playlist::Multivariant(playlist) = parse(text).unwrap() else { panic!() };
        assert_eq!(playlist.audio.len(), 1);
        assert_eq!((playlist.audio[0].name, playlist.audio[0].default), ("x, y", true));
        assert_eq!(playlist.variants[0].resolution, Some((640, 360)));
        assert_eq!(playlist.variants[0].codecs, Some("avc1.4d401e,mp4a.40.2"));
        assert_eq!(playlist.variants[1].uri, "http://other/high.m3u8");
    }

    #[test]
    fn errors_name_the_line() {
        for (text, place) in [
            ("", ""),
            ("#EXTM3U", ""),
            ("<html>", "line 1"),
            ("#EXTM3U\n#EXTINF:x,\na.ts", "line 2"),
            ("#EXTM3U\n#EXT-X-TARGETDURATION:4\na.ts", "line 3"),
            ("#EXTM3U\n#EXTINF:4,\na.ts", ""),
            ("#EXTM3U\n#EXT-X-PART:DURATION=1", "line 2"),
            ("#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=much\nx", "line 2"),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.kind, crate::Kind::Manifest, "{text:?}");
            assert_eq!(error.place, place, "{text:?}: {error}");
        }
    }
}
