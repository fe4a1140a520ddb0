//! The segments and parts of a media playlist that come next, without I/O: RFC 8216bis 6.3.

use crate::hls::{Location, Media, Part, Segment};
use crate::playback::Track;
use crate::{Error, Micros};

/// How many items are listed at once. The next ones are listed once these have been fetched.
const AT_ONCE: usize = 8;

/// The next thing to fetch: a segment, or the rest of one from a part on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Next {
    /// Media Sequence Number.
    pub(super) msn: u64,
    /// Index of the part.
    pub(super) part: usize,
}

/// A resource as the player remembers it, after the text of the playlist is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Resource {
    pub(super) uri: Box<str>,
    pub(super) range: Option<(u64, Option<u64>)>,
}

impl From<Location<'_>> for Resource {
    fn from(place: Location<'_>) -> Self {
        Self { uri: place.uri.into(), range: place.range }
    }
}

impl Resource {
    pub(super) fn is(&self, place: &Self) -> bool {
        self.uri == place.uri && self.range == place.range
    }
}

/// A segment or part to fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) place: Resource,
    pub(super) duration: Micros,
    /// PROGRAM-DATE-TIME of its start.
    pub(super) date: Option<Micros>,
    pub(super) discontinuity: bool,
    pub(super) gap: bool,
    pub(super) map: Option<Resource>,
    /// Position after this item.
    pub(super) next: Next,
    /// Whether it is a part.
    pub(super) part: bool,
    /// Whether it starts a segment.
    pub(super) starts: bool,
}

/// The items to fetch, and how to go on after them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) items: Vec<Item>,
    /// Whether the playlist has more items than these.
    pub(super) more: bool,
    /// Whether nothing comes after them.
    pub(super) ended: bool,
    /// Whether nothing is added to the playlist any more.
    pub(super) finished: bool,
    /// Position of the player once it has the items.
    pub(super) after: Next,
    /// The part after them, which does not exist yet.
    pub(super) hint: Option<Resource>,
    /// Whether this delta update leaves out too much, so that a full playlist is needed.
    pub(super) needs_full: bool,
    pub(super) can_block: bool,
    pub(super) with_parts: bool,
    pub(super) can_skip_until: Option<Micros>,
    pub(super) target_duration: Micros,
    pub(super) part_target: Option<Micros>,
    /// How far from the end a player begins. That much media is ready for it.
    pub(super) hold_back: Micros,
}

/// Lists what to fetch from the playlist as it is. For a player that begins, `next` is `None`; it
/// is set to where the player begins. Where media are gone between the last fetched item and the first
/// of these, returns also how long they are, about.
pub(super) fn step(
    media: &Media<'_>,
    next: &mut Option<Next>,
    track: Track,
    low_latency: bool,
) -> Result<(Step, Option<Micros>), Error> {
    let with_parts = low_latency && media.part_target.is_some() && !media.ended;
    let target = media.target_duration.max(1);
    let hold_back = match (with_parts, media.part_target) {
        (true, Some(part)) => media.part_hold_back.unwrap_or(3 * part),
        _ => media.hold_back.unwrap_or(3 * target),
    };
    let mut step = Step {
        items: Vec::new(),
        more: false,
        ended: false,
        finished: media.ended,
        after: Next { msn: media.first(), part: 0 },
        hint: None,
        needs_full: false,
        can_block: media.can_block_reload && !media.ended,
        with_parts,
        can_skip_until: media.can_skip_until,
        target_duration: target,
        part_target: media.part_target,
        hold_back,
    };
    let before = *next;
    if let Some(at) = before {
        if at.msn < media.first() && at.msn >= media.media_sequence {
            step.needs_full = true;
            return Ok((step, None));
        }
        // The position has left the window, or the server has started to count anew.
        if at.msn < media.media_sequence || at.msn > media.open_number() + 1 {
            *next = None;
        }
    }
    let mut at = match *next {
        Some(at) => at,
        None => begin(media, track, with_parts, hold_back),
    };
    let left = before.filter(|_| next.is_none()).map(|before| between(media, before, at));
    *next = Some(at);
    let from = at;
    let lost = left.or(collect(media, &mut at, &mut step));
    if lost.is_some() && left.is_none() {
        // The rest of that segment counts as lost only once.
        *next = Some(Next { msn: from.msn + 1, part: 0 });
    }
    if lost.is_some()
        && let Some(first) = step.items.first_mut()
    {
        // What is gone is measured in segments. A date tells more exactly where the media go on.
        first.discontinuity = true;
    }
    let behind = at.msn < media.open_number();
    step.after = at;
    step.more = behind;
    step.ended = media.ended && !behind;
    if with_parts && !behind {
        // Without a length, a hint among ranges of a resource also means the parts after the next one.
        // The playlist lists each of these with its own range, so the player would fetch them twice.
        let in_ranges = media.parts.last().is_some_and(|part| part.place.range.is_some());
        let is_one_part = |hint: &Location<'_>| match hint.range {
            Some((_, length)) => length.is_some(),
            None => !in_ranges,
        };
        step.hint = media.hint.filter(is_one_part).map(Resource::from);
    }
    Ok((step, lost))
}

/// How long the media are that left the window between two positions, by the mean of the listed
/// segments. At least one segment is gone. Where the server counts anew, nobody knows how much is gone: 0.
fn between(media: &Media<'_>, from: Next, to: Next) -> Micros {
    if to.msn < from.msn {
        return 0;
    }
    let listed = media.segments.iter().map(|segment| segment.duration);
    let sum = listed.fold(0, Micros::saturating_add);
    let mean = Micros::try_from(media.segments.len())
        .ok()
        .and_then(|count| sum.checked_div(count))
        .unwrap_or(media.target_duration);
    let segments = (to.msn - from.msn).max(1);
    let gone = mean.saturating_mul(Micros::try_from(segments).unwrap_or(Micros::MAX));
    gone.saturating_sub(fetched(media, from)).max(0)
}

/// How long the parts are that were fetched of the segment at a position.
fn fetched(media: &Media<'_>, at: Next) -> Micros {
    let parts = Micros::try_from(at.part).unwrap_or(Micros::MAX);
    parts.saturating_mul(media.part_target.unwrap_or_default())
}

/// Adds the items that come next. Returns how long the rest of a segment is that is gone, if any is.
fn collect(media: &Media<'_>, at: &mut Next, step: &mut Step) -> Option<Micros> {
    let mut lost = None;
    loop {
        let index = usize::try_from(at.msn - media.first()).unwrap_or(usize::MAX);
        let (segment, complete) = match media.segments.get(index) {
            Some(segment) => (segment, true),
            None if at.msn == media.open_number() && step.with_parts => (&media.open, false),
            None => return lost,
        };
        let parts = media.parts.get(segment.parts.clone()).unwrap_or_default();
        if !complete || (step.with_parts && !parts.is_empty()) {
            let mut since: Micros = parts.iter().take(at.part).map(|part| part.duration).sum();
            for (number, part) in parts.iter().enumerate().skip(at.part) {
                if step.items.len() >= AT_ONCE {
                    return lost;
                }
                at.part = number + 1;
                step.items.push(of_part(segment, part, number, since, *at));
                since += part.duration;
            }
            if !complete {
                return lost;
            }
        } else if at.part == 0 {
            if step.items.len() >= AT_ONCE {
                return lost;
            }
            step.items.push(of_segment(segment, at.msn));
        } else {
            // Some of its parts were fetched, and its parts are no longer listed: the rest is lost.
            lost = Some(segment.duration.saturating_sub(fetched(media, *at)).max(0));
        }
        *at = Next { msn: at.msn + 1, part: 0 };
    }
}

fn of_part(
    segment: &Segment<'_>,
    part: &Part<'_>,
    number: usize,
    since: Micros,
    next: Next,
) -> Item {
    Item {
        place: part.place.into(),
        duration: part.duration,
        date: segment.date.map(|date| date + since),
        discontinuity: segment.discontinuity && number == 0,
        gap: part.gap,
        map: segment.map.map(Resource::from),
        next,
        part: true,
        starts: number == 0,
    }
}

fn of_segment(segment: &Segment<'_>, msn: u64) -> Item {
    Item {
        place: segment.place.into(),
        duration: segment.duration,
        date: segment.date,
        discontinuity: segment.discontinuity,
        gap: segment.gap,
        map: segment.map.map(Resource::from),
        next: Next { msn: msn + 1, part: 0 },
        part: false,
        starts: true,
    }
}

/// Finds where a player begins. In a finished playlist that is the start; otherwise it is as far
/// from the end as the server asks for (RFC 8216bis 6.3.3), with parts at one where decoding can
/// start.
fn begin(media: &Media<'_>, track: Track, with_parts: bool, hold_back: Micros) -> Next {
    let first = Next { msn: media.first(), part: 0 };
    if media.ended {
        return first;
    }
    let numbered = media.segments.iter().enumerate();
    let numbered = numbered.map(|(index, segment)| (segment, media.first() + index as u64));
    if with_parts {
        let open = (&media.open, media.open_number());
        let mut distance = 0;
        let mut best = None;
        'parts: for (segment, msn) in numbered.clone().chain([open]).rev() {
            let parts = media.parts.get(segment.parts.clone()).unwrap_or_default();
            for (part, listed) in parts.iter().enumerate().rev() {
                distance += listed.duration;
                let independent = listed.independent || track == Track::Audio;
                if independent {
                    best = Some(Next { msn, part });
                    if distance >= hold_back {
                        break 'parts;
                    }
                }
            }
        }
        if let Some(best) = best {
            return best;
        }
    }
    let mut distance = 0;
    for (segment, msn) in numbered.rev() {
        distance += segment.duration;
        if distance >= hold_back {
            return Next { msn, part: 0 };
        }
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hls::{Playlist, parse};

    fn playlist(first: u64, segments: u64, parts_of_open: u64, ended: bool) -> String {
        let mut text = format!(
            "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXT-X-PART-INF:PART-TARGET=0.5\n\
             #EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES,PART-HOLD-BACK=1.5\n\
             #EXT-X-MEDIA-SEQUENCE:{first}\n"
        );
        let part = |msn: u64, part: u64| {
            let independent = if part == 0 { ",INDEPENDENT=YES" } else { "" };
            format!("#EXT-X-PART:DURATION=0.5,URI=\"{msn}.{part}\"{independent}\n")
        };
        for msn in first..first + segments {
            if msn + 2 >= first + segments && !ended {
                (0..4).for_each(|number| text += &part(msn, number));
            }
            text += &format!("#EXTINF:2,\n{msn}\n");
        }
        (0..parts_of_open).for_each(|number| text += &part(first + segments, number));
        if ended {
            text += "#EXT-X-ENDLIST\n";
        } else {
            let msn = first + segments;
            text += &format!("#EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"{msn}.{parts_of_open}\"\n");
        }
        text
    }

    fn run(text: &str, next: &mut Option<Next>, low_latency: bool) -> (Vec<String>, Step) {
        let Playlist::Media(media) = parse(text).unwrap() else { panic!() };
        let mut names = Vec::new();
        loop {
            let (step, lost) = step(&media, next, Track::Video, low_latency).unwrap();
            assert_eq!(lost, None);
            names.extend(step.items.iter().map(|item| item.place.uri.to_string()));
            *next = Some(step.after);
            if !step.more || step.items.is_empty() {
                return (names, step);
            }
        }
    }

    #[test]
    fn begins_at_the_hold_back_and_follows_parts() {
        let mut next = None;
        // 1.0 s of the open segment are too little, so the player begins one segment earlier.
        let (names, step) = run(&playlist(10, 5, 2, false), &mut next, true);
        assert_eq!(names, ["14.0", "14.1", "14.2", "14.3", "15.0", "15.1"]);
        assert_eq!(next, Some(Next { msn: 15, part: 2 }));
        assert_eq!(step.hint.unwrap().uri.as_ref(), "15.2");
        let (names, _) = run(&playlist(11, 5, 0, false), &mut next, true);
        assert_eq!(names, ["15.2", "15.3"]);
        assert_eq!(next, Some(Next { msn: 16, part: 0 }));
        let (names, step) = run(&playlist(11, 5, 1, false), &mut next, true);
        assert_eq!(names, ["16.0"]);
        assert!(!step.ended);
    }

    #[test]
    fn whole_segments_and_the_end() {
        let mut next = None;
        let (names, step) = run(&playlist(10, 5, 2, false), &mut next, false);
        assert_eq!((names, step.hint), (vec!["12".to_owned(), "13".into(), "14".into()], None));
        let (names, step) = run(&playlist(11, 5, 0, true), &mut next, false);
        assert_eq!((names, step.ended), (vec!["15".to_owned()], true));
        let mut next = None;
        let (names, step) = run(&playlist(0, 20, 0, true), &mut next, true);
        assert_eq!((names.len(), step.ended), (20, true));
    }

    #[test]
    fn falling_behind_and_counting_anew_are_losses() {
        for (msn, part, expected) in [
            // The player begins anew at segment 14, of 2 s each.
            (9, 0, Some(10_000_000)),
            (9, 3, Some(8_500_000)),
            // The parts of segment 10 are not listed any more.
            (10, 3, Some(500_000)),
            (10, 0, None),
            (15, 0, None),
            // A server that counts anew does not tell how much is gone.
            (17, 0, Some(0)),
            (1000, 0, Some(0)),
        ] {
            let mut next = Some(Next { msn, part });
            let text = playlist(10, 5, 2, false);
            let Playlist::Media(media) = parse(&text).unwrap() else { panic!() };
            let (_, lost) = step(&media, &mut next, Track::Video, true).unwrap();
            assert_eq!(lost, expected, "{msn} {part}");
            // It is lost once, also for a player that takes none of the items.
            let (_, lost) = step(&media, &mut next, Track::Video, true).unwrap();
            assert_eq!(lost, None, "{msn} {part}");
        }
        let text =
            playlist(10, 5, 2, false).replace("#EXTINF", "#EXT-X-SKIP:SKIPPED-SEGMENTS=3\n#EXTINF");
        let Playlist::Media(media) = parse(&text).unwrap() else { panic!() };
        let mut next = Some(Next { msn: 11, part: 0 });
        assert!(step(&media, &mut next, Track::Video, true).unwrap().0.needs_full);
    }

    #[test]
    fn a_hint_is_used_only_if_it_means_one_part() {
        let range = ",BYTERANGE=100@";
        for (in_ranges, hint, used) in [
            (false, "", true),
            (true, "", false),
            (true, ",BYTERANGE-START=200", false),
            (false, ",BYTERANGE-START=0", false),
            (true, ",BYTERANGE-START=200,BYTERANGE-LENGTH=50", true),
        ] {
            let mut text = playlist(10, 5, 2, false);
            text = text.trim_end().to_owned() + hint + "\n";
            if in_ranges {
                text = text.replace("\"15.0\"", &format!("\"15\"{range}0"));
                text = text.replace("\"15.1\"", &format!("\"15\"{range}100"));
            }
            let (_, step) = run(&text, &mut Some(Next { msn: 15, part: 0 }), true);
            assert_eq!((step.after.part, step.hint.is_some()), (2, used), "{text}");
        }
    }
}
