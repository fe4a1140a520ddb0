use std::fmt::{self, Write};
use std::sync::Arc;

use super::request::{Skip, State};
use super::text::{Line, Quoted, Seconds, micros, micros_up};
use crate::utc::UtcMicros;

/// A media playlist: the segments of one track, RFC 8216bis 4.4.3 to 4.4.5.
///
/// Times are in ticks of `timescale` per second, and are written with six decimals. Within a
/// segment the ends of its parts are rounded, not their durations. So the parts add up to the
/// segment exactly, and a part is written the same in every state of the playlist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MediaPlaylist {
    /// Ticks in a second; not 0.
    pub timescale: u32,
    /// EXT-X-TARGETDURATION in seconds. No segment's duration, rounded to the nearest second,
    /// exceeds it. It must not change while the stream lasts.
    pub target_duration: u32,
    /// EXT-X-MEDIA-SEQUENCE: the Media Sequence Number of the first segment.
    pub media_sequence: u64,
    /// EXT-X-DISCONTINUITY-SEQUENCE: how many discontinuities have left the window.
    pub discontinuity_sequence: u64,
    /// EXT-X-PLAYLIST-TYPE; `None` for a sliding window.
    pub kind: Option<PlaylistType>,
    /// EXT-X-INDEPENDENT-SEGMENTS, RFC 8216bis 4.4.2.1: decoding can start at every segment of this
    /// playlist. It must also hold for all segments to come.
    pub independent_segments: bool,
    /// EXT-X-I-FRAMES-ONLY, RFC 8216bis 4.4.3.6: each segment is one intra-coded frame, shown until
    /// the frame of the next segment.
    pub i_frames_only: bool,
    /// Present where the playlist has parts.
    pub low_latency: Option<LowLatency>,
    /// Whether a player may request a state of the playlist that does not exist yet
    /// (CAN-BLOCK-RELOAD).
    pub blocking_reload: bool,
    /// Whether a player may ask for a delta update (CAN-SKIP-UNTIL).
    pub delta_updates: bool,
    /// How the playlist's date is rounded. Further dates are written after a discontinuity, and
    /// where durations lead players to a wrong date.
    pub date_rounding: Rounding,
    /// Complete segments, in order.
    pub segments: Vec<Segment>,
    /// The segment that is still being made.
    pub open: Option<OpenSegment>,
    /// EXT-X-PRELOAD-HINT: URI of the next part, which belongs to the open segment, or is part 0 of
    /// the segment after it.
    pub preload_hint: Option<String>,
    /// EXT-X-RENDITION-REPORT: how far the stream's other media playlists are.
    pub rendition_reports: Vec<RenditionReport>,
    /// Whether the stream is over: EXT-X-ENDLIST.
    pub ended: bool,
}

/// EXT-X-PLAYLIST-TYPE, RFC 8216bis 4.4.3.5.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlaylistType {
    /// Segments are added and never leave.
    Event,
    /// The playlist does not change any more.
    Vod,
}

/// Promises of a playlist with parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LowLatency {
    /// PART-TARGET in ticks: no part is longer. Must not change while the stream lasts.
    pub part_target: u64,
    /// PART-HOLD-BACK in ticks: how far from the end to play. At least twice the part target,
    /// better three times, RFC 8216bis 4.4.3.8.
    pub part_hold_back: u64,
}

/// How EXT-X-PROGRAM-DATE-TIME is rounded to milliseconds (RFC 8216bis 4.4.4.6), because players do
/// not read finer dates.
///
/// Players use dates to align tracks with each other, and a track's new playlist with the previous
/// one. Rounding that differs from segment to segment would shift tracks. So a playlist has one
/// date, and players add durations to it. The date is that of the first segment; in a delta update
/// it is that of the segment with the smallest rounding error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rounding {
    /// Down to the millisecond.
    Down,
    /// Up to the millisecond.
    Up,
}

impl Rounding {
    fn round(self, micros: u64) -> u64 {
        match self {
            Self::Down => micros / 1000 * 1000,
            Self::Up => micros.div_ceil(1000).saturating_mul(1000),
        }
    }

    fn rounds_by(self, micros: u64) -> u64 {
        self.round(micros).abs_diff(micros)
    }
}

/// A segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Its URI.
    pub uri: String,
    /// Its duration in ticks.
    pub duration: u64,
    /// URI of its header, EXT-X-MAP. It is written where it differs from the previous segment's.
    pub map: Option<Arc<str>>,
    /// When its first sample was captured, in microseconds since 1970 UTC.
    pub date: Option<u64>,
    /// Whether it does not continue the one before: EXT-X-DISCONTINUITY.
    pub discontinuity: bool,
    /// Whether it is missing: EXT-X-GAP.
    pub gap: bool,
    /// Its parts, whose durations add up to the segment's. They are written only near the end of
    /// the playlist.
    pub parts: Vec<Part>,
}

/// The segment that is still being made, with its parts so far.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OpenSegment {
    /// As [`Segment::map`].
    pub map: Option<Arc<str>>,
    /// As [`Segment::date`].
    pub date: Option<u64>,
    /// As [`Segment::discontinuity`].
    pub discontinuity: bool,
    /// Its parts so far.
    pub parts: Vec<Part>,
}

/// A part of a segment: EXT-X-PART, RFC 8216bis 4.4.4.9.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its URI.
    pub uri: String,
    /// Its duration in ticks.
    pub duration: u64,
    /// Whether it holds a sample that decoding can start with: INDEPENDENT.
    pub independent: bool,
    /// Whether it is missing: GAP.
    pub gap: bool,
}

/// How far another media playlist is: EXT-X-RENDITION-REPORT, RFC 8216bis 4.4.5.4.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenditionReport {
    /// Its URI, relative to this playlist.
    pub uri: String,
    /// Media Sequence Number of its last segment, complete or open.
    pub last_msn: u64,
    /// Index of the last part of that segment.
    pub last_part: Option<u64>,
}

/// CAN-SKIP-UNTIL in target durations: the smallest allowed value.
const SKIP_BOUNDARY: u64 = 6;
/// Parts are written within this many target durations before the end, RFC 8216bis 6.2.2.
const PARTS_WINDOW: u64 = 3;
/// How far, in microseconds, the date that players compute may be off before another date is
/// written. It is a little more than the error of rounding.
const DATE_OFF: u64 = 1500;

impl MediaPlaylist {
    /// The playlist's text. It is a delta update if the player asked for one, delta updates are
    /// enabled, and there are segments to skip.
    pub fn render(&self, skip: Skip) -> String {
        let mut out = String::new();
        self.render_to(&mut out, skip);
        out
    }

    /// Appends the playlist's text, like [`MediaPlaylist::render`].
    pub fn render_to(&self, out: &mut String, skip: Skip) {
        let parts: usize = self.segments.iter().map(|segment| segment.parts.len()).sum();
        out.reserve(512 + 96 * self.segments.len() + 80 * parts);
        self.write(out, skip).expect("a String takes every write");
    }

    /// The state by which [`Request::decide`](super::Request::decide) decides about requests.
    pub fn state(&self) -> State {
        let count = self.segments.len() as u64;
        State {
            open_msn: self.media_sequence + count,
            open_parts: self.open.as_ref().map_or(0, |open| open.parts.len() as u64),
            last_segment_parts: self.segments.last().map_or(0, |last| last.parts.len() as u64),
            part_target_micros: self.low_latency.map(|ll| self.micros(ll.part_target)),
            ended: self.ended,
        }
    }

    fn micros(&self, ticks: u64) -> u64 {
        micros(ticks, self.timescale)
    }

    fn write(&self, out: &mut String, skip: Skip) -> fmt::Result {
        // EXT-X-SKIP takes version 9, EXT-X-MAP version 6: RFC 8216bis 8.
        let version = if self.delta_updates { 9 } else { 6 };
        writeln!(out, "#EXTM3U\n#EXT-X-VERSION:{version}")?;
        writeln!(out, "#EXT-X-TARGETDURATION:{}", self.target_duration)?;
        self.write_server_control(out)?;
        if let Some(low_latency) = &self.low_latency {
            // Parts are rounded to the nearest, so a limit that is rounded up stays above them.
            let target = micros_up(low_latency.part_target, self.timescale);
            writeln!(out, "#EXT-X-PART-INF:PART-TARGET={}", Seconds(target))?;
        }
        writeln!(out, "#EXT-X-MEDIA-SEQUENCE:{}", self.media_sequence)?;
        if self.discontinuity_sequence > 0 {
            writeln!(out, "#EXT-X-DISCONTINUITY-SEQUENCE:{}", self.discontinuity_sequence)?;
        }
        if self.independent_segments {
            out.push_str("#EXT-X-INDEPENDENT-SEGMENTS\n");
        }
        match self.kind {
            Some(PlaylistType::Event) => out.push_str("#EXT-X-PLAYLIST-TYPE:EVENT\n"),
            Some(PlaylistType::Vod) => out.push_str("#EXT-X-PLAYLIST-TYPE:VOD\n"),
            None => {}
        }
        if self.i_frames_only {
            out.push_str("#EXT-X-I-FRAMES-ONLY\n");
        }
        let skipped = if skip == Skip::No { 0 } else { self.skippable() };
        if skipped > 0 {
            writeln!(out, "#EXT-X-SKIP:SKIPPED-SEGMENTS={skipped}")?;
        }
        self.write_segments(out, skipped)?;
        if let Some(hint) = &self.preload_hint
            && !self.ended
        {
            writeln!(out, "#EXT-X-PRELOAD-HINT:TYPE=PART,URI={}", Quoted(hint))?;
        }
        for report in &self.rendition_reports {
            let uri = Quoted(&report.uri);
            write!(out, "#EXT-X-RENDITION-REPORT:URI={uri},LAST-MSN={}", report.last_msn)?;
            if let Some(part) = report.last_part {
                write!(out, ",LAST-PART={part}")?;
            }
            out.push('\n');
        }
        if self.ended {
            out.push_str("#EXT-X-ENDLIST\n");
        }
        Ok(())
    }

    fn write_server_control(&self, out: &mut String) -> fmt::Result {
        let mut separator = ':';
        let mut attribute = |out: &mut String, text: fmt::Arguments<'_>| {
            if separator == ':' {
                out.push_str("#EXT-X-SERVER-CONTROL");
            }
            out.push(separator);
            separator = ',';
            out.write_fmt(text)
        };
        if self.blocking_reload {
            attribute(out, format_args!("CAN-BLOCK-RELOAD=YES"))?;
        }
        if let Some(low_latency) = &self.low_latency {
            let hold_back = Seconds(micros_up(low_latency.part_hold_back, self.timescale));
            attribute(out, format_args!("PART-HOLD-BACK={hold_back}"))?;
            // The default value, RFC 8216bis 4.4.3.8. It is written for players that need it
            // explicitly.
            attribute(out, format_args!("HOLD-BACK={}", 3 * u64::from(self.target_duration)))?;
        }
        if self.delta_updates {
            let until = SKIP_BOUNDARY * u64::from(self.target_duration);
            attribute(out, format_args!("CAN-SKIP-UNTIL={until}"))?;
        }
        if separator == ',' {
            out.push('\n');
        }
        Ok(())
    }

    fn write_segments(&self, out: &mut String, skipped: usize) -> fmt::Result {
        let parts_from = self.first_within(PARTS_WINDOW);
        // The player knows the tags of skipped segments, including the header.
        let mut map = self.segments[..skipped].last().and_then(|segment| segment.map.as_ref());
        let anchor = self.anchor(skipped);
        let mut clock = self.clock(skipped, anchor);
        for (index, segment) in self.segments.iter().enumerate().skip(skipped) {
            let start = Start {
                discontinuity: segment.discontinuity,
                map: segment.map.as_ref().filter(|&new| map != Some(new)),
                date: clock.date(segment.date, segment.discontinuity || index == anchor),
            };
            clock.pass(self.micros(segment.duration));
            map = segment.map.as_ref().or(map);
            write_start(out, &start)?;
            if index >= parts_from {
                self.write_parts(out, &segment.parts)?;
            }
            if segment.gap {
                out.push_str("#EXT-X-GAP\n");
            }
            let duration = Seconds(self.micros(segment.duration));
            writeln!(out, "#EXTINF:{duration},\n{}", Line(&segment.uri))?;
        }
        if let Some(open) = &self.open
            && self.low_latency.is_some()
        {
            let start = Start {
                discontinuity: open.discontinuity,
                map: open.map.as_ref().filter(|&new| map != Some(new)),
                date: clock.date(open.date, open.discontinuity || anchor == self.segments.len()),
            };
            write_start(out, &start)?;
            self.write_parts(out, &open.parts)?;
        }
        Ok(())
    }

    /// Index of the segment whose date is written.
    fn anchor(&self, skipped: usize) -> usize {
        if skipped == 0 {
            return 0;
        }
        let goes_on =
            |&(index, segment): &(usize, &Segment)| index == skipped || !segment.discontinuity;
        let listed = self.segments.iter().enumerate().skip(skipped).take_while(goes_on);
        let dated = listed.filter_map(|(index, segment)| Some((index, segment.date?)));
        dated
            .min_by_key(|&(_, date)| self.date_rounding.rounds_by(date))
            .map_or(skipped, |(index, _)| index)
    }

    /// The clock of players at the first written segment.
    fn clock(&self, skipped: usize, anchor: usize) -> Clock {
        let durations = self.segments[skipped..anchor].iter().map(|s| self.micros(s.duration));
        let before = durations.fold(0, u64::saturating_add);
        let date = self.segments.get(anchor).and_then(|segment| segment.date);
        let told = date.map(|date| self.date_rounding.round(date).saturating_sub(before));
        Clock { told, rounded: self.date_rounding }
    }

    fn write_parts(&self, out: &mut String, parts: &[Part]) -> fmt::Result {
        if self.low_latency.is_none() {
            return Ok(());
        }
        let mut end = 0;
        for part in parts {
            let start = self.micros(end);
            end = end.saturating_add(part.duration);
            let duration = Seconds(self.micros(end) - start);
            write!(out, "#EXT-X-PART:DURATION={duration},URI={}", Quoted(&part.uri))?;
            if part.independent {
                out.push_str(",INDEPENDENT=YES");
            }
            if part.gap {
                out.push_str(",GAP=YES");
            }
            out.push('\n');
        }
        Ok(())
    }

    /// How many segments a delta update leaves out: those before the Skip Boundary, RFC 8216bis
    /// 6.2.5.1.
    fn skippable(&self) -> usize {
        if self.delta_updates { self.first_within(SKIP_BOUNDARY) } else { 0 }
    }

    /// Index of the first segment whose end is less than this many target durations before the
    /// playlist's end.
    fn first_within(&self, target_durations: u64) -> usize {
        let target = u64::from(self.target_duration) * u64::from(self.timescale);
        let reach = target.saturating_mul(target_durations);
        let open = self.open.iter().flat_map(|open| &open.parts);
        let mut after = open.fold(0, |sum: u64, part| sum.saturating_add(part.duration));
        let mut first = self.segments.len();
        for segment in self.segments.iter().rev() {
            if after >= reach {
                break;
            }
            first -= 1;
            after = after.saturating_add(segment.duration);
        }
        first
    }
}

/// Tags before a segment or before its first part.
struct Start<'a> {
    discontinuity: bool,
    map: Option<&'a Arc<str>>,
    date: Option<u64>,
}

fn write_start(out: &mut String, start: &Start<'_>) -> fmt::Result {
    if start.discontinuity {
        out.push_str("#EXT-X-DISCONTINUITY\n");
    }
    if let Some(map) = start.map {
        writeln!(out, "#EXT-X-MAP:URI={}", Quoted(map))?;
    }
    if let Some(date) = start.date {
        writeln!(out, "#EXT-X-PROGRAM-DATE-TIME:{}", UtcMicros(date))?;
    }
    Ok(())
}

/// The date that players compute for the next segment, in microseconds.
struct Clock {
    told: Option<u64>,
    rounded: Rounding,
}

impl Clock {
    /// The date to write before the next segment, which was captured at `date`. It is always
    /// written where `must` is set, and otherwise only where the date that players compute is off.
    fn date(&mut self, date: Option<u64>, must: bool) -> Option<u64> {
        let wrong = |date: u64| self.told.is_none_or(|told| told.abs_diff(date) > DATE_OFF);
        let written = date.filter(|&date| must || wrong(date)).map(|date| self.rounded.round(date));
        self.told = written.or(self.told);
        written
    }

    /// Moves on by the duration of a segment.
    fn pass(&mut self, micros: u64) {
        self.told = self.told.map(|told| told.saturating_add(micros));
    }
}
