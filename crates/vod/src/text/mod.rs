//! Subtitles: WebVTT, from files beside the movie and from its tx3g tracks.

mod tx3g;
mod vtt;

use std::fmt::Write;
use std::time::Duration;

use bytes::Bytes;
use media::language::is_common;
pub(crate) use tx3g::{is_timed_text, read as read_tx3g};
pub(crate) use vtt::parse as parse_vtt;

use crate::LeftOut;
use crate::label::distinct;
use crate::shift::Timeline;

/// Limits for subtitles.
pub(crate) mod limits {
    /// Bytes of a WebVTT file, or of all samples of a tx3g track. A title of two hours has some 100
    /// KB.
    pub(crate) const BYTES: u64 = 4 << 20;
    /// Bytes of all subtitles of a title.
    pub(crate) const ALL: u64 = 8 << 20;
    /// Cues of one file or track.
    pub(crate) const CUES: usize = 100_000;
    /// Places of an object, of 1 MiB each, from which the samples of a tx3g track are fetched.
    pub(crate) const PLACES: usize = 64;
    /// Subtitles of a title.
    pub(crate) const TEXTS: usize = 64;
}

/// Subtitles as they were found in a file.
#[derive(Debug, Default)]
pub(crate) struct Script {
    /// Path of the file below the root.
    pub(crate) file: String,
    /// track_ID in the file, of a tx3g track.
    pub(crate) track: Option<u32>,
    /// RFC 5646 tag.
    pub(crate) language: Option<String>,
    pub(crate) label: Option<String>,
    /// STYLE and REGION blocks, each with the empty line after it.
    pub(crate) blocks: String,
    /// Cues, ordered by their start.
    pub(crate) cues: Vec<Cue>,
}

/// A WebVTT cue. Its times are in milliseconds: those of the files until the title is finished, and
/// then presentation times of the title.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cue {
    pub(crate) start: u64,
    /// End of the cue, later than `start`.
    pub(crate) end: u64,
    /// The identifier with its line end, or empty.
    pub(crate) id: Box<str>,
    /// Everything behind the timings: settings, then the lines of the payload, each after a line
    /// end.
    pub(crate) rest: Box<str>,
}

/// Subtitles of a title, as WebVTT.
#[derive(Debug)]
pub struct Text {
    /// `t0`, `t1` and so on.
    pub name: String,
    /// RFC 5646 tag of the language, where the file's name or the track names it.
    pub language: Option<String>,
    /// Name for viewers, unique within the title.
    pub label: String,
    /// All cues as one file.
    all: Bytes,
    /// Bytes before the first cue.
    head: usize,
    cues: Vec<Mark>,
    /// For each segment, the first cue that may show in it.
    firsts: Vec<u32>,
    duration: Duration,
    segment: Duration,
    /// The title's shift in units of MPEG's 90 kHz clock, modulo its 33 bits.
    mpegts: u64,
}

/// A cue in the whole file. Cues are ordered by their start.
#[derive(Debug, Clone, Copy)]
struct Mark {
    /// Start in milliseconds of presentation time.
    start: u64,
    end: u64,
    /// Position of its first byte. It ends where the next cue begins.
    at: u32,
}

/// Duration of segments. They are longer where there would be too many. RFC 8216 6.2.4 allows
/// subtitles a target duration of their own.
const SEGMENT: Duration = Duration::from_secs(30);

/// The most segments of a subtitle.
const SEGMENTS: u32 = 4096;

impl Script {
    /// Bytes of text.
    pub(crate) fn size(&self) -> u64 {
        let cues: usize = self.cues.iter().map(|cue| cue.id.len() + cue.rest.len()).sum();
        (self.blocks.len() + cues) as u64
    }
}

impl Text {
    /// Number of segments. They are numbered from 0, and the first begins at presentation time 0.
    pub fn segment_count(&self) -> u32 {
        let count = self.duration.as_nanos().div_ceil(self.segment.as_nanos().max(1));
        u32::try_from(count).unwrap_or(SEGMENTS).clamp(1, SEGMENTS)
    }

    /// Duration of each segment, in order.
    pub fn segments(&self) -> impl Iterator<Item = Duration> + '_ {
        (0..self.segment_count()).map(|n| {
            let start = self.segment.saturating_mul(n);
            self.segment.min(self.duration.saturating_sub(start))
        })
    }

    /// Segment `n` for HLS, RFC 8216 3.5: the cues that show in it, at presentation times, and
    /// X-TIMESTAMP-MAP, which relates them to stream time.
    pub fn segment(&self, n: u32) -> Option<Bytes> {
        if n >= self.segment_count() {
            return None;
        }
        let (start, end) = (self.millis(n), self.millis(n + 1));
        let first = self.firsts.get(n as usize).copied().unwrap_or_default() as usize;
        let after = self.cues.partition_point(|cue| cue.start < end);
        let head = format!("WEBVTT\nX-TIMESTAMP-MAP=MPEGTS:{},LOCAL:00:00:00.000\n\n", self.mpegts);
        let mut out = head.into_bytes();
        out.extend_from_slice(self.all.get(SIGNATURE.len()..self.head).unwrap_or_default());
        for cue in first..after {
            if let Some(mark) = self.cues.get(cue).filter(|mark| mark.end > start) {
                let end = self.cues.get(cue + 1).map_or(self.all.len(), |next| next.at as usize);
                out.extend_from_slice(self.all.get(mark.at as usize..end).unwrap_or_default());
            }
        }
        Some(out.into())
    }

    /// Time at which a segment begins, in milliseconds.
    fn millis(&self, n: u32) -> u64 {
        u64::try_from(self.segment.saturating_mul(n).as_millis()).unwrap_or(u64::MAX)
    }

    /// The whole subtitle as one file, at presentation times.
    pub fn all(&self) -> Bytes {
        self.all.clone()
    }

    /// Writes all cues once. Requests are answered with parts of this text.
    fn write(&mut self, script: Script) {
        let mut out = SIGNATURE.to_owned() + &script.blocks;
        self.head = out.len();
        let count = self.segment_count() as usize;
        let length = u64::try_from(self.segment.as_millis()).unwrap_or(u64::MAX).max(1);
        for Cue { start, end, id, rest } in script.cues {
            // Subtitles are limited to far less than 4 GiB.
            let at = u32::try_from(out.len()).unwrap_or(u32::MAX);
            let (from, to) = (Clock(start), Clock(end));
            // Writing to a String cannot fail.
            let _ = write!(out, "{id}{from} --> {to}{rest}\n\n");
            let last = usize::try_from(end.saturating_sub(1) / length).unwrap_or(usize::MAX);
            // The cue that reaches a segment first is its first cue.
            let reached = last.saturating_add(1).min(count);
            if reached > self.firsts.len() {
                self.firsts.resize(reached, self.cues.len() as u32);
            }
            self.cues.push(Mark { start, end, at });
        }
        self.firsts.resize(count, self.cues.len() as u32);
        self.cues.shrink_to_fit();
        out.shrink_to_fit();
        self.all = out.into();
    }

    /// Bytes of memory it holds.
    pub(crate) fn memory(&self) -> usize {
        self.all.len()
            + self.cues.capacity() * size_of::<Mark>()
            + self.firsts.capacity() * size_of::<u32>()
    }
}

/// First bytes of every file.
const SIGNATURE: &str = "WEBVTT\n\n";

/// Why subtitles are left out if all of them together would be too large.
pub(crate) fn too_much() -> String {
    format!("all subtitles exceed the limit of {} bytes", limits::ALL)
}

/// Milliseconds in the form of WebVTT: `01:02:03.004`.
struct Clock(u64);

impl std::fmt::Display for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (seconds, millis) = (self.0 / 1_000, self.0 % 1_000);
        let (minutes, seconds) = (seconds / 60, seconds % 60);
        write!(f, "{:02}:{:02}:{seconds:02}.{millis:03}", minutes / 60, minutes % 60)
    }
}

/// Names the subtitles that were found, and fits them to a title. Of two files with the same
/// language and label, the first stays.
pub(crate) fn finish(
    scripts: Vec<Script>,
    duration: Duration,
    timeline: Timeline,
    left_out: &mut Vec<LeftOut>,
) -> Vec<Text> {
    let mut segment = SEGMENT;
    while duration.as_nanos() > segment.as_nanos() * u128::from(SEGMENTS) {
        segment = segment.saturating_mul(2);
    }
    let shift = timeline.shift;
    let ticks = u128::from(shift.units) * 90_000 / u128::from(shift.per_second.max(1));
    // The remainder fits 64 bits.
    let mpegts = (ticks % (1 << 33)) as u64;
    let mut texts: Vec<Text> = Vec::new();
    let mut labels = Vec::new();
    let mut seen: Vec<(Option<String>, Option<String>)> = Vec::new();
    for mut script in scripts {
        let key = (script.language.clone(), script.label.clone());
        let twice = script.track.is_none() && seen.contains(&key);
        if twice || texts.len() == limits::TEXTS {
            left_out.push(LeftOut {
                file: script.file,
                track: script.track,
                codec: "wvtt".to_owned(),
                reason: if twice {
                    "subtitles of that name are there already"
                } else {
                    "too many subtitles"
                }
                .to_owned(),
            });
            continue;
        }
        let label = match &key {
            (_, Some(label)) => label,
            (Some(language), None) => language,
            (None, None) => "subtitles",
        };
        let label = distinct(label, &mut labels);
        script.cues.retain_mut(|cue| {
            let presented =
                |time: u64| time.saturating_add_signed(timeline.start_millis().saturating_neg());
            (cue.start, cue.end) = (presented(cue.start), presented(cue.end));
            cue.start < cue.end
        });
        let mut text = Text {
            name: format!("t{}", texts.len()),
            language: script.language.take(),
            label,
            all: Bytes::new(),
            head: 0,
            cues: Vec::new(),
            firsts: Vec::new(),
            duration,
            segment,
            mpegts,
        };
        text.write(script);
        texts.push(text);
        seen.push(key);
    }
    texts
}

/// Language and label from the part between a movie's name and `.vtt`: `.en`, `.pt-BR`, `.en.forced`,
/// `.commentary`. Without a dot at its beginning, the part is a whole name in the folder of a title, `The.Film.en`.
pub(crate) fn names(suffix: &str) -> (Option<String>, Option<String>) {
    let mut words: Vec<&str> = suffix.split('.').filter(|word| !word.is_empty()).collect();
    // In a whole name, the words of the film's own name may come before the language, which most writers put last.
    let is_known =
        |word: &&str| is_tag(word) && is_common(word.split('-').next().unwrap_or_default());
    let first = words.iter().position(|word| is_tag(word));
    let begins = suffix.starts_with('.') || words.first().is_some_and(is_known);
    let last = || words.iter().rposition(&is_known);
    let at = first.filter(|_| begins).or_else(last).or(first);
    let language = at.map(|at| words.remove(at).to_owned());
    let language = language.map(|tag| {
        let code = <[u8; 3]>::try_from(tag.to_ascii_lowercase().as_bytes()).ok();
        code.and_then(media::language::tag).unwrap_or(tag)
    });
    // A label that repeats the language distinguishes `en.sdh` from `en`.
    let label = (!words.is_empty()).then(|| {
        language
            .iter()
            .map(String::as_str)
            .chain(words.iter().copied())
            .collect::<Vec<_>>()
            .join(" ")
    });
    (language, label)
}

/// Whether a word is an RFC 5646 tag: a language of two or three letters, and subtags. Words of two letters, and words
/// with capitals, must be known languages: others are `CC`, `SDH` or words of a title.
fn is_tag(word: &str) -> bool {
    let mut subtags = word.split('-');
    let language = subtags.next().unwrap_or_default();
    let is_code = match language.len() {
        2 => is_common(language),
        3 if language.bytes().all(|byte| byte.is_ascii_lowercase()) => language != "sdh",
        3 => is_common(language),
        _ => false,
    };
    is_code
        && subtags.all(|subtag| {
            (2..=8).contains(&subtag.len()) && subtag.bytes().all(|b| b.is_ascii_alphanumeric())
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Shift;

    fn starting(start: i64, shift: Shift) -> Timeline {
        Timeline { start, shift }
    }

    #[test]
    fn file_names_say_language_and_label() {
        let names = |suffix| {
            let (language, label) = names(suffix);
            (language.unwrap_or_default(), label.unwrap_or_default())
        };
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(names(""), pair("", ""));
        assert_eq!(names("en"), pair("en", ""));
        assert_eq!(names("eng"), pair("en", ""));
        assert_eq!(names("pt-BR"), pair("pt-BR", ""));
        assert_eq!(names("en.sdh"), pair("en", "en sdh"));
        assert_eq!(names("sdh.en"), pair("en", "en sdh"));
        assert_eq!(names(".SDH.en"), pair("en", "en SDH"));
        assert_eq!(names(".CC.EN"), pair("EN", "EN CC"));
        assert_eq!(names(".en.hi"), pair("en", "en hi"));
        assert_eq!(names(".fil"), pair("fil", ""));
        assert_eq!(names("The.Big.Film.en"), pair("en", "en The Big Film"));
        assert_eq!(names("The.Big.Film"), pair("", "The Big Film"));
        assert_eq!(names("the.film.en"), pair("en", "en the film"));
        assert_eq!(names("en.hi"), pair("en", "en hi"));
        assert_eq!(names("en.alt"), pair("en", "en alt"));
        assert_eq!(names("pt-BR.sdh"), pair("pt-BR", "pt-BR sdh"));
        assert_eq!(names("commentary"), pair("", "commentary"));
        assert_eq!(names(".."), pair("", ""));
    }

    fn script(cues: Vec<Cue>) -> Script {
        Script { cues, ..Script::default() }
    }

    fn cue(start: u64, end: u64, text: &str) -> Cue {
        Cue { start, end, id: "".into(), rest: format!("\n{text}").into() }
    }

    #[test]
    fn a_cue_is_in_every_segment_it_shows_in() {
        let timeline = starting(0, Shift { units: 64, per_second: 768 });
        let cues = vec![cue(0, 29_999, "a"), cue(29_000, 30_001, "b"), cue(60_000, 61_000, "c")];
        let mut left_out = Vec::new();
        let duration = Duration::from_secs(65);
        let texts =
            finish(vec![script(cues), script(Vec::new())], duration, timeline, &mut left_out);
        assert_eq!((texts.len(), left_out.len()), (1, 1));
        let text = &texts[0];
        let seconds: Vec<_> = text.segments().map(|each| each.as_secs()).collect();
        assert_eq!(seconds, [30, 30, 5]);
        let head = "WEBVTT\nX-TIMESTAMP-MAP=MPEGTS:7500,LOCAL:00:00:00.000\n\n";
        let a = "00:00:00.000 --> 00:00:29.999\na\n\n";
        let b = "00:00:29.000 --> 00:00:30.001\nb\n\n";
        let c = "00:01:00.000 --> 00:01:01.000\nc\n\n";
        assert_eq!(text.segment(0).unwrap(), format!("{head}{a}{b}"));
        assert_eq!(text.segment(1).unwrap(), format!("{head}{b}"));
        assert_eq!(text.segment(2).unwrap(), format!("{head}{c}"));
        assert_eq!(text.segment(3), None);
        assert_eq!(text.all(), format!("WEBVTT\n\n{a}{b}{c}"));
    }

    #[test]
    fn cues_keep_to_the_frames_where_the_title_begins_elsewhere_than_its_files() {
        let at = |start| {
            let cues = vec![cue(0, 1_000, "a"), cue(9_000, 11_000, "b"), cue(12_000, 13_000, "c")];
            let timeline = starting(start, Shift { units: 0, per_second: 2 });
            let duration = Duration::from_secs(20);
            let texts = finish(vec![script(cues)], duration, timeline, &mut Vec::new());
            String::from_utf8(texts[0].all().to_vec()).unwrap()
        };
        let late =
            "WEBVTT\n\n00:00:00.000 --> 00:00:01.000\nb\n\n00:00:02.000 --> 00:00:03.000\nc\n\n";
        assert_eq!(at(20), late);
        assert!(at(-1).starts_with("WEBVTT\n\n00:00:00.500 --> 00:00:01.500\na\n"), "{}", at(-1));
    }

    #[test]
    fn a_title_of_a_century_has_a_bounded_number_of_segments() {
        let duration = Duration::from_secs(100 * 365 * 86_400);
        let timeline = starting(0, Shift { units: u64::MAX, per_second: 1 });
        let texts = finish(vec![script(Vec::new())], duration, timeline, &mut Vec::new());
        assert!(texts[0].segment_count() <= SEGMENTS);
        let total: Duration = texts[0].segments().sum();
        assert_eq!(total, duration);
        assert!(texts[0].segment(texts[0].segment_count() - 1).is_some());
    }
}
