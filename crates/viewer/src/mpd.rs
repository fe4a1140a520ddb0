//! DASH manifests as a player reads them, ISO/IEC 23009-1. The parser is meant for any server and
//! shares no code with the renderer of our own manifests. It reads `SegmentTemplate` with a
//! timeline or with numbers and a duration, and whole files named by `BaseURL`. A level inherits
//! what it does not say itself from the level above.

use crate::hls::{bad, limit};
use crate::playback::Track;
use crate::text_time::{date, duration};
use crate::xml::{Event, Reader, attributes, unescape};
use crate::{Error, Micros};

/// Longest manifest that is read, in bytes.
pub const MAX_SIZE: usize = 8 << 20;

/// `MPD`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Manifest {
    /// `@type="dynamic"`.
    pub dynamic: bool,
    /// `@availabilityStartTime`, microseconds since 1970.
    pub availability_start: Option<Micros>,
    /// `@publishTime`, microseconds since 1970: which version of the manifest this is.
    pub published: Option<Micros>,
    /// `@minimumUpdatePeriod`.
    pub minimum_update: Option<Micros>,
    /// `@mediaPresentationDuration`.
    pub duration: Option<Micros>,
    /// `@suggestedPresentationDelay`.
    pub suggested_delay: Option<Micros>,
    /// `ServiceDescription/Latency@target`.
    pub latency_target: Option<Micros>,
    /// `Location`: where to ask for the manifest next.
    pub location: Option<String>,
    /// `Period`s, in order.
    pub periods: Vec<Period>,
}

/// `Period`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Period {
    /// Start on the presentation's timeline.
    pub start: Micros,
    /// Duration, if known.
    pub duration: Option<Micros>,
    /// Representations of all its adaptation sets.
    pub representations: Vec<Representation>,
}

/// `Representation`, together with what its adaptation set says.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Representation {
    /// `@id`.
    pub id: String,
    /// `@bandwidth` in bits per second.
    pub bandwidth: u64,
    /// Video or audio; `None` for anything else.
    pub track: Option<Track>,
    /// Index of its adaptation set within the period.
    pub set: usize,
    /// `BaseURL`s from the outermost to the innermost. Each is relative to the one before.
    pub base: Vec<String>,
    /// Its segments; `None` if it is one file.
    pub template: Option<Template>,
}

/// `SegmentTemplate`.
#[derive(Debug, Clone, PartialEq)]
pub struct Template {
    /// `@timescale`.
    pub timescale: u32,
    /// `@duration` in ticks.
    pub duration: Option<u64>,
    /// `@startNumber`.
    pub start_number: u64,
    /// `@presentationTimeOffset` in ticks.
    pub offset: u64,
    /// `@initialization`.
    pub initialization: Option<String>,
    /// `@media`.
    pub media: Option<String>,
    /// `@availabilityTimeOffset`; `None` for `INF`.
    pub availability_offset: Option<Micros>,
    /// `@availabilityTimeComplete`: whether segments become available only when they are complete.
    pub complete: bool,
    /// `SegmentTimeline`, runs of equal segments.
    pub timeline: Option<Vec<Run>>,
}

/// `S`: segments of equal duration in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Start of the first segment, in ticks.
    pub start: u64,
    /// Duration of each segment in ticks; never 0.
    pub duration: u64,
    /// How many segments; `None` if they go on to the end of the period, or to now.
    pub count: Option<u64>,
    /// Number of the first segment.
    pub number: u64,
}

impl Default for Template {
    fn default() -> Self {
        Self {
            timescale: 1,
            duration: None,
            start_number: 1,
            offset: 0,
            initialization: None,
            media: None,
            availability_offset: Some(0),
            complete: true,
            timeline: None,
        }
    }
}

/// What a level passes on to the levels below it.
#[derive(Debug, Clone, Default)]
struct Inherited {
    base: Vec<String>,
    template: Option<Template>,
    track: Option<Track>,
    set: usize,
}

/// Reads a manifest.
///
/// # Errors
/// The text is no manifest, or lacks what a player needs. The error names the byte.
pub fn parse(text: &str) -> Result<Manifest, Error> {
    if text.len() > MAX_SIZE {
        return Err(Error::manifest(format!("manifest of {} bytes", text.len())));
    }
    let mut reader = Reader::new(text.trim_start_matches('\u{FEFF}'));
    let mut manifest = Manifest::default();
    match reader.next()? {
        Some(Event::Start { name: "MPD", attributes: list }) => {
            for (key, value) in attributes(list) {
                match key {
                    "type" => manifest.dynamic = value == "dynamic",
                    "availabilityStartTime" => manifest.availability_start = date(value),
                    "publishTime" => manifest.published = date(value),
                    "minimumUpdatePeriod" => manifest.minimum_update = duration(value),
                    "mediaPresentationDuration" => manifest.duration = duration(value),
                    "suggestedPresentationDelay" => manifest.suggested_delay = duration(value),
                    _ => {}
                }
            }
        }
        _ => return Err(Error::manifest("not a manifest: no MPD element")),
    }
    let mut inherited = Inherited::default();
    let mut depth = 1;
    while let Some(event) = reader.next()? {
        match event {
            Event::Start { name: "Period", attributes: list } => {
                let period = period(&mut reader, list, &inherited, manifest.periods.last())?;
                limit(manifest.periods.len())?;
                manifest.periods.push(period);
            }
            Event::Start { name: "BaseURL", .. } => {
                let text = element_text(&mut reader)?;
                // Further ones are alternatives to the first.
                if inherited.base.is_empty() {
                    inherited.base.push(text);
                }
            }
            Event::Start { name: "Location", .. } => {
                let text = element_text(&mut reader)?;
                // Further ones are alternatives to the first.
                manifest.location.get_or_insert(text.trim().to_owned());
            }
            Event::Start { name: "ServiceDescription", .. } => depth += 1,
            Event::Start { name: "Latency", attributes: list } => {
                for (key, value) in attributes(list) {
                    if key == "target" {
                        manifest.latency_target =
                            value.parse().ok().map(|millis: u32| i64::from(millis) * 1000);
                    }
                }
                reader.skip_element()?;
            }
            Event::Start { .. } => reader.skip_element()?,
            Event::End => depth -= 1,
            Event::Text(_) => {}
        }
        if depth == 0 {
            break;
        }
    }
    if manifest.periods.is_empty() {
        return Err(Error::manifest("manifest without a Period"));
    }
    if manifest.dynamic && manifest.availability_start.is_none() {
        return Err(Error::manifest("dynamic manifest without availabilityStartTime"));
    }
    Ok(manifest)
}

fn integer<T: std::str::FromStr>(what: &str, value: &str) -> Result<T, Error> {
    value.trim().parse().map_err(|_| bad(what, value))
}

/// Reads the text of the element that has just begun.
fn element_text(reader: &mut Reader<'_>) -> Result<String, Error> {
    let mut text = String::new();
    let mut depth = 1;
    while depth > 0 {
        match reader.next()? {
            Some(Event::Text(more)) => text.push_str(&unescape(more)),
            Some(Event::Start { .. }) => depth += 1,
            Some(Event::End) => depth -= 1,
            None => break,
        }
    }
    Ok(text)
}

fn period(
    reader: &mut Reader<'_>,
    list: &str,
    above: &Inherited,
    before: Option<&Period>,
) -> Result<Period, Error> {
    let mut period = Period::default();
    let mut start = None;
    for (key, value) in attributes(list) {
        match key {
            "start" => start = Some(duration(value).ok_or_else(|| bad("Period@start", value))?),
            "duration" => period.duration = duration(value),
            _ => {}
        }
    }
    // 5.3.2.1: a period without a start follows the period before, or is the first.
    let after =
        before.map_or(Some(0), |before| Some(before.start.saturating_add(before.duration?)));
    period.start = start.or(after).unwrap_or_default();
    let mut inherited = above.clone();
    let mut sets = 0;
    let outer = inherited.base.len();
    while let Some(event) = reader.next()? {
        match event {
            Event::Start { name: "AdaptationSet", attributes: list } => {
                inherited.set = sets;
                sets += 1;
                adaptation_set(reader, list, &inherited, &mut period.representations)?;
            }
            Event::Start { name, attributes: list } => {
                common(reader, name, list, &mut inherited, outer)?;
            }
            Event::End => break,
            Event::Text(_) => {}
        }
    }
    Ok(period)
}

/// Reads an element that every level may have, and passes over any other. `outer` is how many base
/// URLs come from the levels above.
fn common(
    reader: &mut Reader<'_>,
    name: &str,
    list: &str,
    into: &mut Inherited,
    outer: usize,
) -> Result<(), Error> {
    match name {
        "BaseURL" => {
            let text = element_text(reader)?;
            if into.base.len() == outer {
                into.base.push(text);
            }
            Ok(())
        }
        "SegmentTemplate" => {
            let above = into.template.take().unwrap_or_default();
            into.template = Some(template(reader, list, above)?);
            Ok(())
        }
        "SegmentList" => Err(Error::new(crate::Kind::Unsupported, "SegmentList")),
        _ => reader.skip_element(),
    }
}

fn track_of(key: &str, value: &str) -> Option<Track> {
    match (key, value.split('/').next().unwrap_or_default()) {
        ("contentType" | "mimeType", "video") => Some(Track::Video),
        ("contentType" | "mimeType", "audio") => Some(Track::Audio),
        _ => None,
    }
}

fn adaptation_set(
    reader: &mut Reader<'_>,
    list: &str,
    above: &Inherited,
    into: &mut Vec<Representation>,
) -> Result<(), Error> {
    let mut inherited = above.clone();
    for (key, value) in attributes(list) {
        inherited.track = track_of(key, value).or(inherited.track);
    }
    let outer = inherited.base.len();
    let first = into.len();
    while let Some(event) = reader.next()? {
        match event {
            Event::Start { name: "Representation", attributes: list } => {
                limit(into.len())?;
                into.push(representation(reader, list, &inherited)?);
            }
            Event::Start { name: "ContentComponent", attributes: list } => {
                for (key, value) in attributes(list) {
                    inherited.track = track_of(key, value).or(inherited.track);
                }
                reader.skip_element()?;
            }
            Event::Start { name, attributes: list } => {
                common(reader, name, list, &mut inherited, outer)?;
            }
            Event::End => break,
            Event::Text(_) => {}
        }
    }
    // The template may stand after the representations that it is for.
    for representation in into.get_mut(first..).unwrap_or_default() {
        if representation.template.is_none() {
            representation.template.clone_from(&inherited.template);
        }
        representation.track = representation.track.or(inherited.track);
    }
    Ok(())
}

fn representation(
    reader: &mut Reader<'_>,
    list: &str,
    above: &Inherited,
) -> Result<Representation, Error> {
    let mut inherited = above.clone();
    let mut representation = Representation { set: above.set, ..Representation::default() };
    for (key, value) in attributes(list) {
        match key {
            "id" => representation.id = unescape(value).into_owned(),
            "bandwidth" => representation.bandwidth = integer("bandwidth", value)?,
            _ => inherited.track = track_of(key, value).or(inherited.track),
        }
    }
    let outer = inherited.base.len();
    while let Some(event) = reader.next()? {
        match event {
            Event::Start { name, attributes: list } => {
                common(reader, name, list, &mut inherited, outer)?;
            }
            Event::End => break,
            Event::Text(_) => {}
        }
    }
    representation.track = inherited.track;
    representation.base = inherited.base;
    representation.template = inherited.template;
    Ok(representation)
}

fn template(reader: &mut Reader<'_>, list: &str, above: Template) -> Result<Template, Error> {
    let mut template = above;
    for (key, value) in attributes(list) {
        match key {
            "timescale" => template.timescale = integer::<u32>(key, value)?.max(1),
            "duration" => template.duration = Some(integer(key, value)?),
            "startNumber" => template.start_number = integer(key, value)?,
            "presentationTimeOffset" => template.offset = integer(key, value)?,
            "initialization" => template.initialization = Some(unescape(value).into_owned()),
            "media" => template.media = Some(unescape(value).into_owned()),
            "availabilityTimeOffset" if value == "INF" => template.availability_offset = None,
            "availabilityTimeOffset" => {
                let offset = crate::text_time::seconds(value);
                template.availability_offset = Some(offset.ok_or_else(|| bad(key, value))?);
            }
            "availabilityTimeComplete" => template.complete = value != "false",
            _ => {}
        }
    }
    if template.duration == Some(0) {
        return Err(Error::manifest("SegmentTemplate with a duration of 0"));
    }
    while let Some(event) = reader.next()? {
        match event {
            Event::Start { name: "SegmentTimeline", .. } => {
                template.timeline = Some(timeline(reader, template.start_number)?);
            }
            Event::Start { .. } => reader.skip_element()?,
            Event::End => break,
            Event::Text(_) => {}
        }
    }
    Ok(template)
}

fn timeline(reader: &mut Reader<'_>, first: u64) -> Result<Vec<Run>, Error> {
    let mut runs: Vec<Run> = Vec::new();
    let mut number = first;
    while let Some(event) = reader.next()? {
        match event {
            Event::Start { name: "S", attributes: list } => {
                let (mut start, mut length, mut repeats) = (None, None, 0i64);
                for (key, value) in attributes(list) {
                    match key {
                        "t" => start = Some(integer::<u64>("S@t", value)?),
                        "d" => length = Some(integer::<u64>("S@d", value)?),
                        "r" => repeats = integer("S@r", value)?,
                        _ => {}
                    }
                }
                let duration = length
                    .filter(|&length| length > 0)
                    .ok_or_else(|| Error::manifest("S without a duration"))?;
                let count = u64::try_from(repeats).ok().map(|repeats| repeats.saturating_add(1));
                let start = match (start, runs.last_mut()) {
                    (Some(start), Some(before)) => {
                        // A run without a count lasts until the next run.
                        let between = start.saturating_sub(before.start) / before.duration;
                        before.count.get_or_insert(between);
                        start
                    }
                    (Some(start), None) => start,
                    (None, before) => before.and_then(|before| before.end()).unwrap_or_default(),
                };
                if let Some(before) = runs.last() {
                    number = before.number.saturating_add(before.count.unwrap_or_default());
                }
                limit(runs.len())?;
                runs.push(Run { start, duration, count, number });
                reader.skip_element()?;
            }
            Event::Start { .. } => reader.skip_element()?,
            Event::End => break,
            Event::Text(_) => {}
        }
    }
    Ok(runs)
}

impl Run {
    /// End of the last segment; `None` if it is not known.
    pub fn end(&self) -> Option<u64> {
        Some(self.start.saturating_add(self.duration.saturating_mul(self.count?)))
    }
}

impl Representation {
    /// Expands the identifiers of a template (5.3.9.4.4).
    pub fn expand(&self, template: &str, number: u64, time: u64) -> String {
        let mut out = String::with_capacity(template.len() + 16);
        let mut parts = template.split('$');
        out.push_str(parts.next().unwrap_or_default());
        while let Some(identifier) = parts.next() {
            let Some(literal) = parts.next() else {
                // A dollar sign without its pair.
                out.push('$');
                out.push_str(identifier);
                break;
            };
            let (name, format) = identifier.split_once('%').unwrap_or((identifier, ""));
            let value = match name {
                "" => "$".to_owned(),
                "RepresentationID" => self.id.clone(),
                "Number" => padded(number, format),
                "Time" => padded(time, format),
                "Bandwidth" => padded(self.bandwidth, format),
                other => format!("${other}$"),
            };
            out.push_str(&value);
            out.push_str(literal);
        }
        out
    }
}

/// Formats a number as `%0WIDTHd` asks for.
fn padded(number: u64, format: &str) -> String {
    let width = format.strip_prefix('0').and_then(|rest| rest.strip_suffix('d'));
    let width: usize = width.and_then(|width| width.parse().ok()).unwrap_or_default();
    format!("{number:0width$}", width = width.min(32))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIVE: &str = r#"<?xml version="1.0"?>
        <MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="dynamic" minimumUpdatePeriod="PT1S"
             availabilityStartTime="1970-01-01T00:00:10Z" suggestedPresentationDelay="PT3S">
          <ServiceDescription id="0"><Latency min="500" target="1000"/></ServiceDescription>
          <BaseURL>a/</BaseURL>
          <Period id="p" start="PT1S">
            <AdaptationSet contentType="video">
              <SegmentTemplate timescale="90000" initialization="$RepresentationID$/init.mp4"
                  media="$RepresentationID$/$Number%05d$.m4s?a&amp;b" startNumber="7"
                  availabilityTimeOffset="1.8" availabilityTimeComplete="false">
                <SegmentTimeline><S t="180000" d="180000" r="1"/><S d="90000"/><S t="900000" d="9" r="-1"/>
                </SegmentTimeline>
              </SegmentTemplate>
              <Representation id="v0" bandwidth="1000"/>
              <Representation id="v1" bandwidth="2000"><BaseURL>b/</BaseURL></Representation>
            </AdaptationSet>
            <AdaptationSet mimeType="audio/mp4">
              <Representation id="a0" bandwidth="64">
                <SegmentTemplate duration="2" media="$Time$"/>
              </Representation>
            </AdaptationSet>
          </Period>
          <UTCTiming schemeIdUri="urn:mpeg:dash:utc:direct:2014" value="x"/>
        </MPD>"#;

    #[test]
    fn live_manifest() {
        let manifest = parse(LIVE).unwrap();
        assert!(manifest.dynamic);
        assert_eq!(manifest.availability_start, Some(10_000_000));
        assert_eq!(manifest.latency_target, Some(1_000_000));
        let [period] = &manifest.periods[..] else { panic!() };
        assert_eq!(period.start, 1_000_000);
        let [v0, v1, a0] = &period.representations[..] else { panic!() };
        assert_eq!(
            (v0.track, v1.set, a0.track, a0.set),
            (Some(Track::Video), 0, Some(Track::Audio), 1)
        );
        assert_eq!(v1.base, ["a/", "b/"]);
        let template = v0.template.as_ref().unwrap();
        assert_eq!((template.availability_offset, template.complete), (Some(1_800_000), false));
        let run = |start, duration, count, number| Run { start, duration, count, number };
        assert_eq!(
            template.timeline.as_ref().unwrap()[..],
            [
                run(180_000, 180_000, Some(2), 7),
                run(540_000, 90_000, Some(1), 9),
                run(900_000, 9, None, 10)
            ]
        );
        assert_eq!(v1.template, v0.template);
        assert_eq!(v0.expand(template.media.as_ref().unwrap(), 9, 1), "v0/00009.m4s?a&b");
        let template = a0.template.as_ref().unwrap();
        assert_eq!((template.duration, template.start_number), (Some(2), 1));
        assert_eq!(a0.expand("$$x$Time$-$Bandwidth$", 3, 4), "$x4-64");
        assert_eq!(a0.expand("$RepresentationID$_$Number$_$Bad", 3, 4), "a0_3_$Bad");
    }

    #[test]
    fn a_live_presentation_may_count_from_1970() {
        let text = LIVE.replace("start=\"PT1S\"", "start=\"PT1732800000.5S\"");
        let period = &parse(&text).unwrap().periods[0];
        assert_eq!(period.start, 1_732_800_000_500_000);
    }

    #[test]
    fn bad_manifests_are_refused() {
        for text in [
            "",
            "<html/>",
            "<MPD/>",
            "<MPD type=\"dynamic\"><Period/></MPD>",
            "<MPD><Period><AdaptationSet><Representation><SegmentTemplate duration=\"0\"/>",
            "<MPD><Period><AdaptationSet><Representation><SegmentTemplate timescale=\"x\"/>",
            "<MPD><Period>",
        ] {
            assert_eq!(parse(text).unwrap_err().kind, crate::Kind::Manifest, "{text}");
        }
    }
}
