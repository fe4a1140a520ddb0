//! Reads WebVTT (W3C WebVTT: The Web Video Text Tracks Format, section 6.1) as a browser does:
//! errors are skipped, and only a file without the signature is refused.

use std::ops::RangeInclusive;

use super::{Cue, limits};

/// Contents of a file: its STYLE and REGION blocks, and its cues ordered by their start. At most
/// [`limits::CUES`] cues are read.
///
/// # Errors
/// The signature is missing.
pub(crate) fn parse(bytes: &[u8]) -> Result<(String, Vec<Cue>), String> {
    let text = String::from_utf8_lossy(bytes);
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    // Section 6.1, steps 1 and 2: NUL becomes U+FFFD, and all line ends become LF.
    let text = text.replace('\0', "\u{fffd}").replace("\r\n", "\n").replace('\r', "\n");
    let mut lines = text.split('\n');
    let signed = lines.next().and_then(|line| line.strip_prefix("WEBVTT"));
    if !signed.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t'])) {
        return Err("no WEBVTT at the start of the file".to_owned());
    }
    let mut blocks = String::new();
    let mut cues: Vec<Cue> = Vec::new();
    // The header ends at the first empty line or the first timings.
    let mut in_header = true;
    let mut block: Vec<&str> = Vec::new();
    // The end of the file ends the last block.
    for line in lines.chain([""]) {
        // Timings inside a block begin another cue: step 6.4 of "collect a WebVTT block". Only such a line looks at the
        // lines before, because a block may have all lines of the file.
        let begun = || block.iter().any(|line| line.contains("-->"));
        if line.contains("-->") && (in_header || begun()) {
            finish(&block, in_header, &mut blocks, &mut cues);
            block.clear();
            in_header = false;
        }
        if !line.is_empty() {
            block.push(line);
            continue;
        }
        finish(&block, in_header, &mut blocks, &mut cues);
        block.clear();
        in_header = false;
        if cues.len() >= limits::CUES {
            break;
        }
    }
    cues.sort_by_key(|cue| cue.start);
    Ok((blocks, cues))
}

fn finish(block: &[&str], header: bool, blocks: &mut String, cues: &mut Vec<Cue>) {
    if header {
        return;
    }
    let at = block.iter().take(2).position(|line| line.contains("-->"));
    match (at, block) {
        (Some(at), _) => cues.extend(cue(block, at)),
        // Styles and regions are accepted only before the first cue.
        (None, [first, rest @ ..]) if cues.is_empty() => {
            let name = first.trim_end_matches([' ', '\t']);
            if matches!(name, "STYLE" | "REGION") && !rest.is_empty() {
                blocks.push_str(name);
                for line in rest {
                    blocks.push('\n');
                    blocks.push_str(line);
                }
                blocks.push_str("\n\n");
            }
        }
        _ => {}
    }
}

/// The cue whose timings are on line `at` of its block; `None` where the timings are invalid.
fn cue(block: &[&str], at: usize) -> Option<Cue> {
    let (start, rest) = block.get(at)?.split_once("-->")?;
    let rest = rest.trim_start_matches(SPACE);
    let (end, settings) = rest.split_once(SPACE).unwrap_or((rest, ""));
    let (start, end) = (millis(start.trim_matches(SPACE))?, millis(end)?);
    // Timings are on the first line or the second. In the latter case the first line is the
    // identifier.
    let id = block.first().filter(|_| at > 0).map_or(String::new(), |id| format!("{id}\n"));
    let settings = settings.trim_matches(SPACE);
    let mut rest = String::new();
    if !settings.is_empty() && !settings.contains("-->") {
        rest.push(' ');
        rest.push_str(settings);
    }
    for line in block.get(at + 1..)? {
        rest.push('\n');
        rest.push_str(line);
    }
    (start < end).then(|| Cue { start, end, id: id.into(), rest: rest.into() })
}

const SPACE: [char; 3] = [' ', '\t', '\u{c}'];

/// `[H…H:]MM:SS.mmm`, in milliseconds: "collect a WebVTT timestamp" of section 6.3. A browser takes hours of one digit,
/// too, though section 4.4 lets nobody write them.
fn millis(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.')?;
    let number = |digits: &str, length: RangeInclusive<usize>| -> Option<u64> {
        let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
        (plain && length.contains(&digits.len())).then(|| digits.parse().ok())?
    };
    let mut parts = whole.rsplit(':');
    let seconds = number(parts.next()?, 2..=2).filter(|seconds| *seconds < 60)?;
    let minutes = number(parts.next()?, 2..=2).filter(|minutes| *minutes < 60)?;
    // More than a thousand years.
    let hours = parts.next().map_or(Some(0), |hours| number(hours, 1..=8))?;
    let fraction = number(fraction, 3..=3).filter(|_| parts.next().is_none())?;
    Some(((hours * 60 + minutes) * 60 + seconds) * 1_000 + fraction)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cues(text: &str) -> Vec<(u64, u64, String, String)> {
        let (_, cues) = parse(text.as_bytes()).unwrap();
        cues.into_iter().map(|cue| (cue.start, cue.end, cue.id.into(), cue.rest.into())).collect()
    }

    fn plain(start: u64, end: u64, text: &str) -> (u64, u64, String, String) {
        (start, end, String::new(), format!("\n{text}"))
    }

    #[test]
    fn a_usual_file_is_read() {
        let text = "\u{feff}WEBVTT - a film\r\nKind: captions\r\n\r\nNOTE nothing\r\n\r\n\
            STYLE\r\n::cue { color: red }\r\n\r\nREGION\r\nid:a\r\n\r\n\
            first\r\n00:01.000 --> 00:02.500 line:0 align:start\r\nHello\r\n<i>world</i>\r\n\r\n\
            100:00:00.001 --> 100:00:01.000\r\nlate\r\n";
        let (blocks, cues) = parse(text.as_bytes()).unwrap();
        assert_eq!(blocks, "STYLE\n::cue { color: red }\n\nREGION\nid:a\n\n");
        assert_eq!(cues.len(), 2);
        let first = &cues[0];
        assert_eq!((first.start, first.end, &*first.id), (1_000, 2_500, "first\n"));
        assert_eq!(&*first.rest, " line:0 align:start\nHello\n<i>world</i>");
        assert_eq!((cues[1].start, &*cues[1].rest), (360_000_001, "\nlate"));
    }

    #[test]
    fn bad_cues_are_passed_over() {
        let text = "WEBVTT\n00:00.000 --> 00:01.000\nat once\n\nno timings\nat all\n\n\
            00:02.000 --> 00:01.000\nbackwards\n\n0:1.0 --> 00:05.000\nbadly written\n\n\
            00:61.000 --> 02:00.000\nno such second\n\n\
            00:04.000 --> 00:05.000\nfourth\n00:05.000-->00:06.000\nno empty line before\n\n\
            00:03.000 --> 00:04.000\nout of order\n\n\
            1:00:00.000 --> 1:00:01.000\none digit of hours";
        let expected = [
            plain(0, 1_000, "at once"),
            plain(3_000, 4_000, "out of order"),
            plain(4_000, 5_000, "fourth"),
            plain(5_000, 6_000, "no empty line before"),
            plain(3_600_000, 3_601_000, "one digit of hours"),
        ];
        assert_eq!(cues(text), expected);
        assert_eq!(cues("WEBVTT"), []);
        assert_eq!(cues("WEBVTT\n\n-->\n\n --> \n\n-->-->\n"), []);
    }

    #[test]
    fn other_files_are_refused() {
        for text in ["", "WEBVTTX\n", "1\n00:00:01,000 --> 00:00:02,000\nSubRip\n", "\u{1}"] {
            assert!(parse(text.as_bytes()).is_err(), "{text:?}");
        }
    }

    /// Each line is looked at a few times. In a block of so many lines, a look at all lines before each would take hours.
    #[test]
    fn a_block_may_have_all_lines_of_the_file() {
        let lines = "a\n".repeat(2_000_000);
        assert_eq!(cues(&format!("WEBVTT\n\n{lines}")), []);
        let text = format!("WEBVTT\n\nid\n00:00.000 --> 00:01.000\n{lines}");
        assert_eq!(cues(&text).len(), 1);
    }

    #[test]
    fn cues_are_bounded() {
        let text = format!("WEBVTT\n\n{}", "00:00.000 --> 00:01.000\n\n".repeat(limits::CUES + 5));
        assert_eq!(cues(&text).len(), limits::CUES);
        let text = format!("WEBVTT\n\n{}", "00:00.000 --> 00:01.000\n".repeat(limits::CUES + 5));
        assert!(cues(&text).len() <= limits::CUES + 5);
    }

    proptest! {
        #[test]
        fn whatever_is_read_reads_back_the_same(
            lines in prop::collection::vec(
                prop_oneof![
                    Just(String::new()),
                    Just("00:00.000 --> 00:01.000".to_owned()),
                    Just("10:00:00.000 --> 99:00:01.000 line:1".to_owned()),
                    Just("STYLE".to_owned()),
                    Just("NOTE".to_owned()),
                    "[ -~\\r\\t]{0,12}",
                    ".{0,6}",
                ],
                0..40,
            ),
        ) {
            let text = format!("WEBVTT\n{}", lines.join("\n"));
            let (blocks, cues) = parse(text.as_bytes()).unwrap();
            let mut written = format!("WEBVTT\n\n{blocks}");
            for cue in &cues {
                prop_assert!(cue.start < cue.end);
                let times = (super::super::Clock(cue.start), super::super::Clock(cue.end));
                written.push_str(&format!("{}{} --> {}{}\n\n", cue.id, times.0, times.1, cue.rest));
            }
            prop_assert_eq!(parse(written.as_bytes()).unwrap(), (blocks, cues));
        }

        #[test]
        fn no_bytes_make_it_fall_over(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
            let _ = parse(&[b"WEBVTT\n\n".as_slice(), &bytes].concat());
        }
    }
}
