//! 3GPP timed text (TS 26.245) as WebVTT. The text is kept, its styles are not.

use std::ops::Range;

use media::mp4::{self, TrackIndex};
use media::{Codec, Error};

use super::{Cue, Script, limits};
use crate::source::Source;

/// Whether this is a track of timed text.
pub(crate) fn is_timed_text(track: &TrackIndex) -> bool {
    matches!(&track.track.codec, Codec::Other(other) if other.fourcc == *b"tx3g")
}

/// Reads the samples of a track. Each is shown as long as it lasts. `left` is how many bytes may
/// still be read.
///
/// # Errors
/// The track is broken or too large, or cannot be read. Or the file is an object that must be fetched,
/// and the samples are too far apart: reading them would fetch the whole file.
pub(crate) fn read(source: &Source, track: &TrackIndex, left: u64) -> Result<Script, Error> {
    if let Some(problem) = &track.problem {
        return Err(problem.clone());
    }
    let count = track.samples.len();
    let limit = |what: &'static str, value: u64, limit: u64| Error::Limit {
        what: what.into(),
        at: 0,
        value,
        limit,
    };
    if count as usize > limits::CUES {
        return Err(limit("tx3g samples", count.into(), limits::CUES as u64));
    }
    let bytes: u64 = track.samples.iter().map(|sample| u64::from(sample.size)).sum();
    let most = limits::BYTES.min(left);
    if bytes > most {
        return Err(limit("tx3g bytes", bytes, most));
    }
    if source.file.is_copied() {
        let mut places: Vec<Range<u64>> = Vec::new();
        for entry in &track.samples {
            let (start, end) = (entry.offset, entry.offset.saturating_add(entry.size.into()));
            match places.last_mut().filter(|place| place.start >> 20 == start >> 20) {
                Some(place) => *place = place.start.min(start)..place.end.max(end),
                None => places.push(start..end),
            }
        }
        if places.len() > limits::PLACES {
            let value = places.len() as u64;
            return Err(limit("places of tx3g samples to fetch", value, limits::PLACES as u64));
        }
        // What fails here fails again where it is read.
        payload::fetch_all(places.into_iter().map(|place| (&*source.file, place))).for_each(drop);
    }
    let timescale = u64::from(track.track.timescale.max(1));
    let millis = |time: i64| {
        let time = u128::try_from(time).unwrap_or_default();
        u64::try_from(time * 1_000 / u128::from(timescale)).unwrap_or(u64::MAX)
    };
    let mut cues = Vec::new();
    for entry in &track.samples {
        let start = millis(entry.pts());
        let end = millis(entry.pts().saturating_add(entry.duration.into()));
        // An empty sample is a pause.
        if entry.size <= 2 || start >= end {
            continue;
        }
        let at = entry.offset;
        let bytes = mp4::Source::read_at(source, at, entry.size as usize).map_err(|_| {
            let (needed, left) = (entry.size.into(), source.len.saturating_sub(at));
            Error::CutOff { what: "tx3g sample".into(), at, needed, left }
        })?;
        if let Some(rest) = text(&bytes).map(|text| payload(&text)).filter(|rest| !rest.is_empty())
        {
            cues.push(Cue { start, end, id: "".into(), rest: rest.into() });
        }
    }
    cues.sort_by_key(|cue| cue.start);
    Ok(Script {
        file: source.name.clone(),
        track: Some(track.track.id),
        language: media::language::tag(track.track.language),
        label: track.label.clone(),
        blocks: String::new(),
        cues,
    })
}

/// The string at the start of a sample, TS 26.245 5.17: its length, then UTF-8, or UTF-16 with a
/// byte order mark. Boxes with styles follow it.
fn text(sample: &[u8]) -> Option<String> {
    let (length, rest) = sample.split_first_chunk::<2>()?;
    let text = rest.get(..usize::from(u16::from_be_bytes(*length))).unwrap_or(rest);
    let utf16 = |text: &[u8], unit: fn([u8; 2]) -> u16| {
        let units = text.as_chunks::<2>().0.iter().map(|pair| unit(*pair));
        char::decode_utf16(units).map(|each| each.unwrap_or('\u{fffd}')).collect()
    };
    Some(match text {
        [0xfe, 0xff, text @ ..] => utf16(text, u16::from_be_bytes),
        [0xff, 0xfe, text @ ..] => utf16(text, u16::from_le_bytes),
        _ => String::from_utf8_lossy(text).into_owned(),
    })
}

/// The lines of a cue, each after a line end. They are escaped, and none is empty, because an empty
/// line would end the cue.
fn payload(text: &str) -> String {
    let mut payload = String::new();
    for line in text.split(['\n', '\r', '\u{2028}']).map(|line| line.trim_matches('\0')) {
        if line.trim().is_empty() {
            continue;
        }
        payload.push('\n');
        for letter in line.chars() {
            match letter {
                '&' => payload.push_str("&amp;"),
                '<' => payload.push_str("&lt;"),
                '>' => payload.push_str("&gt;"),
                '\0' => payload.push('\u{fffd}'),
                other => payload.push(other),
            }
        }
    }
    payload
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_become_cue_text() {
        let sample =
            |text: &[u8]| [&(text.len() as u16).to_be_bytes(), text, b"\0\0\0\x08styl"].concat();
        let payload = |bytes: &[u8]| text(bytes).map(|text| payload(&text));
        assert_eq!(
            payload(&sample(b"one\r\n\r\n<two> & -->")).unwrap(),
            "\none\n&lt;two&gt; &amp; --&gt;"
        );
        assert_eq!(payload(&sample(b"\xfe\xff\0h\0i")).unwrap(), "\nhi");
        assert_eq!(payload(&sample(b"\xff\xfeh\0i\0x")).unwrap(), "\nhi");
        assert_eq!(payload(&sample(b"")).unwrap(), "");
        assert_eq!(payload(b"\xff\xffshort").unwrap(), "\nshort");
        assert_eq!(payload(b"\0"), None);
    }
}
