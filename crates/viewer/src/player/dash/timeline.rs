//! The segments of a manifest that come next, without I/O.

use crate::mpd::{Manifest, Period, Representation, Run, Template};
use crate::playback::Track;
use crate::skim::micros;
use crate::url::Url;
use crate::{Error, Micros, Rendition};

/// How many segments are listed at once. The next ones are listed once these have been fetched.
const AT_ONCE: usize = 4;
/// The end of a period may differ by this much from the end of its segments.
const ROUNDING: Micros = 1_000;
/// No segment is this short: a start that differs by less is the same segment with a corrected
/// time.
const SAME: Micros = 50_000;

/// A segment to fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Where it is.
    pub url: Url,
    /// URL of its header; `None` if the header is in the same file.
    pub header: Option<Url>,
    /// Start on the presentation's timeline.
    pub start: Micros,
    /// How long it is.
    pub duration: Micros,
    /// When it can be asked for, in microseconds since 1970; `None` for now.
    pub available: Option<Micros>,
    /// Whether the server sends it while it is being made.
    pub streamed: bool,
    /// Whether it is the only file of its representation, and may be of any length.
    pub is_file: bool,
    /// Presentation time of media time 0.
    pub origin: Micros,
    /// Start of its period, which identifies the period.
    pub period: Micros,
    /// Bit rate of its representation.
    pub bandwidth: u64,
}

/// What to fetch next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The next segments, a few at a time.
    pub segments: Vec<Segment>,
    /// Capture time of presentation time 0, microseconds since 1970.
    pub epoch: Option<Micros>,
    /// Whether the presentation is finished. Its player need not hurry.
    pub finished: bool,
}

/// Choice of rendition and position of a track.
#[derive(Debug, Clone, Copy)]
pub struct Cursor {
    /// The track.
    pub track: Track,
    /// Which of its renditions.
    pub rendition: Rendition,
    /// Whether segments are asked for while they are being made.
    pub low_latency: bool,
    /// Bits per second that the connection has carried, if known.
    pub rate: Option<f64>,
    /// Position on the presentation's timeline.
    pub next: Option<Micros>,
    /// Start of the segment that was fetched last. It is not fetched again, even if a later
    /// manifest corrects its end, which may have been a guess.
    pub fetched: Option<Micros>,
}

impl Cursor {
    fn has(&self, start: Micros) -> bool {
        self.fetched.is_some_and(|fetched| start < fetched.saturating_add(SAME))
    }
}

/// Lists what to fetch from the manifest as it is; `now` is in microseconds since 1970. Places a
/// player that begins.
///
/// # Errors
/// The manifest lacks what is needed for URLs.
pub fn step(
    manifest: &Manifest,
    url: &Url,
    cursor: &mut Cursor,
    now: Micros,
) -> Result<Step, Error> {
    let epoch = manifest.availability_start.filter(|_| manifest.dynamic);
    let edge = epoch.map(|epoch| now.saturating_sub(epoch));
    let mut step = Step { segments: Vec::new(), epoch, finished: !manifest.dynamic };
    if cursor.next.is_none()
        && let Some(edge) = edge
    {
        cursor.next = Some(begin(manifest, cursor, edge));
    }
    let from = cursor.next.unwrap_or(Micros::MIN);
    let following = manifest.periods.iter().skip(1).map(|next| Some(next.start)).chain([None]);
    for (period, following) in manifest.periods.iter().zip(following) {
        let Some(representation) = choose(period, cursor) else { continue };
        let last = following.or(period.duration.map(|duration| period.start + duration));
        let last = last.or(manifest.duration.filter(|_| !manifest.dynamic));
        let bounds = Bounds { from, end: last, edge };
        list(period, representation, url, cursor, bounds, &mut step)?;
        if step.segments.len() >= AT_ONCE {
            break;
        }
    }
    Ok(step)
}

/// The range in which segments are wanted, on the presentation's timeline.
#[derive(Clone, Copy)]
struct Bounds {
    from: Micros,
    /// End of the period, if known.
    end: Option<Micros>,
    /// Now, if the presentation is live.
    edge: Option<Micros>,
}

fn choose<'a>(period: &'a Period, cursor: &Cursor) -> Option<&'a Representation> {
    let of_track = |r: &&Representation| r.track == Some(cursor.track);
    let set = period.representations.iter().find(of_track)?.set;
    let mut ladder: Vec<_> =
        period.representations.iter().filter(of_track).filter(|r| r.set == set).collect();
    ladder.sort_by_key(|representation| representation.bandwidth);
    let last = ladder.len().saturating_sub(1);
    let index = match cursor.rendition {
        Rendition::Highest => last,
        Rendition::Lowest => 0,
        Rendition::Index(index) => index.min(last),
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        Rendition::Auto => {
            let rate = cursor.rate.unwrap_or_default();
            ladder.iter().rposition(|r| r.bandwidth as f64 <= 0.8 * rate).unwrap_or(0)
        }
    };
    ladder.get(index).copied()
}

/// Finds where a player of a live presentation begins: at the segment that lies as far behind now
/// as the manifest asks for.
fn begin(manifest: &Manifest, cursor: &Cursor, edge: Micros) -> Micros {
    let longest = |representation: &Representation| {
        let template = representation.template.as_ref()?;
        let runs = template.timeline.iter().flatten().map(|run| run.duration);
        let ticks = runs.chain(template.duration).max()?;
        Some(micros(i64::try_from(ticks).ok()?, template.timescale))
    };
    let segment = manifest
        .periods
        .last()
        .and_then(|period| choose(period, cursor))
        .and_then(longest)
        .unwrap_or(2_000_000);
    let low_latency = manifest.latency_target.filter(|_| cursor.low_latency);
    let delay = low_latency.or(manifest.suggested_delay).unwrap_or(3 * segment);
    let wanted = edge.saturating_sub(delay);
    // The last segment that starts by then, or else the first one.
    let mut best: Option<Micros> = None;
    for period in &manifest.periods {
        let Some(representation) = choose(period, cursor) else { continue };
        let Some(template) = &representation.template else { continue };
        match &template.timeline {
            Some(runs) => {
                for run in runs {
                    let start = |index: u64| {
                        at(
                            period,
                            template,
                            run.start.saturating_add(run.duration.saturating_mul(index)),
                        )
                    };
                    let length =
                        micros(i64::try_from(run.duration).unwrap_or(i64::MAX), template.timescale)
                            .max(1);
                    let most = run.count.map_or(u64::MAX, |count| count.saturating_sub(1));
                    let index = ((wanted - start(0)).max(0) / length).unsigned_abs().min(most);
                    let found = start(index);
                    if found <= wanted || best.is_none() {
                        best = Some(found);
                    }
                }
            }
            None => {
                let Some(ticks) = template.duration else { continue };
                let length =
                    micros(i64::try_from(ticks).unwrap_or(i64::MAX), template.timescale).max(1);
                if wanted >= period.start || best.is_none() {
                    let index = (wanted - period.start).max(0) / length;
                    best = Some(period.start + index * length);
                }
            }
        }
    }
    best.unwrap_or(wanted)
}

/// Converts a media time in ticks to the presentation's timeline.
fn at(period: &Period, template: &Template, ticks: u64) -> Micros {
    let ticks = i128::from(ticks) - i128::from(template.offset);
    let wide = ticks * 1_000_000 / i128::from(template.timescale.max(1));
    period.start.saturating_add(Micros::try_from(wide).unwrap_or(Micros::MAX))
}

fn list(
    period: &Period,
    representation: &Representation,
    url: &Url,
    cursor: &Cursor,
    bounds: Bounds,
    step: &mut Step,
) -> Result<(), Error> {
    let mut base = url.clone();
    for reference in &representation.base {
        base = base.resolve(reference)?;
    }
    let Some(template) = &representation.template else {
        // One file: either nothing of it was played yet, or all of it.
        if bounds.from <= period.start && !cursor.has(period.start) {
            let duration = bounds.end.map_or(1, |end| end - period.start);
            step.segments.push(Segment {
                url: base,
                header: None,
                start: period.start,
                duration,
                available: None,
                streamed: true,
                is_file: true,
                origin: period.start,
                period: period.start,
                bandwidth: representation.bandwidth,
            });
        }
        return Ok(());
    };
    let Some(media) = &template.media else {
        return Err(Error::manifest("SegmentTemplate without media").at(url));
    };
    let early = template.availability_offset.unwrap_or(Micros::MAX / 4);
    let streamed = cursor.low_latency && !template.complete && early > 0;
    let early = if cursor.low_latency { early } else { 0 };
    let mut push = |number: u64, ticks: u64, length: u64| -> Result<bool, Error> {
        let (start, end) =
            (at(period, template, ticks), at(period, template, ticks.saturating_add(length)));
        let over = bounds.end.is_some_and(|last| start + ROUNDING >= last);
        if over || step.segments.len() >= AT_ONCE {
            return Ok(false);
        }
        if cursor.has(start) || start.saturating_add((end - start) / 2) < bounds.from {
            return Ok(true);
        }
        let whole = step.epoch.map(|epoch| epoch.saturating_add(end));
        let available = whole.map(|whole| whole.saturating_sub(early.min(end - start)));
        // A segment in a timeline exists, unless the server offers it before it is complete.
        let listed = template.timeline.is_some() && template.availability_offset == Some(0);
        let expand = |text: &str| base.resolve(&representation.expand(text, number, ticks));
        step.segments.push(Segment {
            url: expand(media)?,
            header: template.initialization.as_deref().map(expand).transpose()?,
            start,
            duration: end - start,
            available: available.filter(|_| !listed),
            streamed,
            is_file: false,
            origin: at(period, template, 0),
            period: period.start,
            bandwidth: representation.bandwidth,
        });
        Ok(true)
    };
    if let Some(runs) = &template.timeline {
        for run in runs {
            let first = skip(run, bounds.from, |ticks| at(period, template, ticks));
            let count = run.count.unwrap_or_else(|| open_run(run, period, template, bounds, early));
            for index in first..count.max(first) {
                let ticks = run.start.saturating_add(run.duration.saturating_mul(index));
                if !push(run.number.saturating_add(index), ticks, run.duration)? {
                    return Ok(());
                }
            }
        }
        return Ok(());
    }
    let Some(length) = template.duration else {
        return Err(Error::manifest("SegmentTemplate without duration or timeline").at(url));
    };
    let run = Run {
        start: template.offset,
        duration: length,
        count: None,
        number: template.start_number,
    };
    let first = skip(&run, bounds.from, |ticks| at(period, template, ticks));
    let count = open_run(&run, period, template, bounds, early);
    for index in first..count.max(first) {
        let ticks = run.start.saturating_add(length.saturating_mul(index));
        if !push(run.number.saturating_add(index), ticks, length)? {
            break;
        }
    }
    Ok(())
}

/// Counts the segments of a run that certainly lie before a time.
fn skip(run: &Run, from: Micros, at: impl Fn(u64) -> Micros) -> u64 {
    let length = (at(run.start.saturating_add(run.duration)) - at(run.start)).max(1);
    let before = from.saturating_sub(at(run.start)).max(0) / length;
    let most = run.count.unwrap_or(u64::MAX);
    before.unsigned_abs().saturating_sub(1).min(most)
}

/// Counts the segments of a run without a count: up to the end of the period, or to the last one
/// that can be asked for before the segment that is being made now is complete. A segment can be asked
/// for by `early` before it is complete.
fn open_run(run: &Run, period: &Period, template: &Template, bounds: Bounds, early: Micros) -> u64 {
    let start = at(period, template, run.start);
    let length = (at(period, template, run.start.saturating_add(run.duration)) - start).max(1);
    // A server may have a segment complete a little before its end. The next one is listed by then.
    let edge = bounds.edge.map(|edge| edge.saturating_add(early.min(length)));
    let end = match (bounds.end, edge) {
        (Some(end), Some(edge)) => end.min(edge),
        (Some(end), None) => end,
        (None, Some(edge)) => edge,
        (None, None) => return 0,
    };
    let count = (end.saturating_sub(start).max(0) + length - 1) / length;
    count.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mpd::parse;

    fn cursor(track: Track) -> Cursor {
        Cursor {
            track,
            rendition: Rendition::Highest,
            low_latency: true,
            rate: None,
            next: None,
            fetched: None,
        }
    }

    fn names(step: &Step) -> Vec<&str> {
        step.segments.iter().map(|segment| segment.url.target()).collect()
    }

    fn numbers(attributes: &str, template: &str) -> Manifest {
        parse(&format!(
            "<MPD {attributes}><Period><AdaptationSet contentType=\"video\">\
             <SegmentTemplate timescale=\"10\" duration=\"20\" initialization=\"i\" media=\"$Number$\" {template}/>\
             <Representation id=\"a\" bandwidth=\"1\"/></AdaptationSet></Period></MPD>"
        ))
        .unwrap()
    }

    #[test]
    fn numbers_on_demand_end_with_the_presentation() {
        let manifest = numbers("mediaPresentationDuration=\"PT11S\"", "startNumber=\"0\"");
        let url = Url::parse("http://h/d/m.mpd").unwrap();
        let mut cursor = cursor(Track::Video);
        let first = step(&manifest, &url, &mut cursor, 0).unwrap();
        assert_eq!(names(&first), ["/d/0", "/d/1", "/d/2", "/d/3"]);
        assert!(first.finished && first.segments[0].available.is_none());
        cursor.next = Some(8_000_000);
        assert_eq!(names(&step(&manifest, &url, &mut cursor, 0).unwrap()), ["/d/4", "/d/5"]);
        cursor.next = Some(12_000_000);
        assert!(step(&manifest, &url, &mut cursor, 0).unwrap().segments.is_empty());
    }

    #[test]
    fn live_numbers_begin_behind_now_and_wait_until_they_are_there() {
        let manifest = numbers(
            "type=\"dynamic\" availabilityStartTime=\"1970-01-01T00:01:40Z\" suggestedPresentationDelay=\"PT5S\"",
            "availabilityTimeOffset=\"1.5\" availabilityTimeComplete=\"false\"",
        );
        let url = Url::parse("http://h/m.mpd").unwrap();
        let mut cursor = cursor(Track::Video);
        // 21 s into the presentation: 16 s is in segment 8, which has number 9; 20 s is being made.
        let found = step(&manifest, &url, &mut cursor, 121_000_000).unwrap();
        // The next one is listed, too: it can be asked for 0.5 s after it begins.
        assert_eq!(names(&found), ["/9", "/10", "/11", "/12"]);
        assert_eq!(found.segments[2].available, Some(120_500_000));
        assert_eq!(found.segments[3].available, Some(122_500_000));
        assert!(found.segments[2].streamed);
        cursor.low_latency = false;
        let found = step(&manifest, &url, &mut cursor, 121_000_000).unwrap();
        assert_eq!(names(&found), ["/9", "/10", "/11"]);
        assert_eq!(found.segments[2].available, Some(122_000_000));
        assert!(!found.segments[2].streamed);
    }

    #[test]
    fn timelines_go_on_where_they_were_across_periods() {
        let manifest = parse(
            "<MPD type=\"dynamic\" availabilityStartTime=\"1970-01-01T00:00:00Z\">\
             <Period start=\"PT0S\"><AdaptationSet mimeType=\"audio/mp4\"><Representation id=\"a\">\
             <SegmentTemplate timescale=\"1000\" media=\"a$Time$\"><SegmentTimeline>\
             <S t=\"4000\" d=\"2000\" r=\"1\"/></SegmentTimeline></SegmentTemplate>\
             </Representation></AdaptationSet></Period>\
             <Period start=\"PT8S\"><AdaptationSet mimeType=\"audio/mp4\"><Representation id=\"b\">\
             <SegmentTemplate timescale=\"1000\" media=\"b$Time$\" presentationTimeOffset=\"500\">\
             <SegmentTimeline><S t=\"500\" d=\"2000\"/></SegmentTimeline></SegmentTemplate>\
             </Representation></AdaptationSet></Period></MPD>",
        )
        .unwrap();
        let url = Url::parse("http://h/m.mpd").unwrap();
        let mut cursor = cursor(Track::Audio);
        let found = step(&manifest, &url, &mut cursor, 12_500_000).unwrap();
        // Three segments behind 12.5 s.
        assert_eq!(names(&found), ["/a6000", "/b500"]);
        assert_eq!(found.segments[1].start, 8_000_000);
        cursor.next = Some(found.segments[0].start + found.segments[0].duration);
        assert_eq!(names(&step(&manifest, &url, &mut cursor, 12_500_000).unwrap()), ["/b500"]);
    }
    #[test]
    fn a_guessed_end_neither_repeats_a_segment_nor_skips_one() {
        let manifest = |runs: &str| {
            parse(&format!(
                "<MPD type=\"dynamic\" availabilityStartTime=\"1970-01-01T00:00:00Z\"><Period start=\"PT0S\">\
                 <AdaptationSet mimeType=\"video/mp4\"><Representation id=\"a\">\
                 <SegmentTemplate timescale=\"1000\" media=\"$Time$\"><SegmentTimeline>{runs}\
                 </SegmentTimeline></SegmentTemplate></Representation></AdaptationSet></Period></MPD>"
            ))
            .unwrap()
        };
        let url = Url::parse("http://h/m.mpd").unwrap();
        // The segment at 4 s was fetched while it was made; it lasted 2 s in the end.
        let now = manifest("<S t=\"4000\" d=\"2000\"/><S t=\"6000\" d=\"300\"/>");
        let mut cursor = cursor(Track::Video);
        (cursor.next, cursor.fetched) = (Some(4_000_000), Some(4_000_000));
        assert_eq!(names(&step(&now, &url, &mut cursor, 7_000_000).unwrap()), ["/6000"]);
    }
}
