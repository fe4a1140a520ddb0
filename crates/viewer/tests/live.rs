//! Live playlists and manifests of a server that makes them as time passes: the requests, their
//! times, and their results.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod support;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use support::*;
use viewer::{End, Options, Rendition};

/// The clip as a live stream that grows when the player asks for more. So it does not matter how
/// long anybody takes. A part is one fragment, a segment two.
struct Stream {
    clip: AudioClip,
    /// How many parts there are. If more than `PARTS`, the stream has ended.
    made: AtomicU64,
    hints: bool,
}

/// Parts in the first playlist.
const BEFORE: u64 = 12;
/// Parts in the last playlist.
const PARTS: u64 = 24;

impl Stream {
    fn new(hints: bool) -> Self {
        Self { clip: AudioClip::new(PARTS as u32), made: AtomicU64::new(BEFORE), hints }
    }

    /// Makes the parts before this one, and this one. Returns whether it exists.
    fn make(&self, part: u64) -> bool {
        self.made.fetch_max(part + 1, Ordering::AcqRel);
        part < PARTS
    }

    fn playlist(&self, skip: bool) -> String {
        let made = self.made.load(Ordering::Acquire);
        let parts = made.min(PARTS);
        let segments = parts / 2;
        // A player on a busy machine may ask for a delta update late.
        let mut text = "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXT-X-PART-INF:PART-TARGET=0.512\n\
            #EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES,PART-HOLD-BACK=1.536,CAN-SKIP-UNTIL=120\n\
            #EXT-X-MEDIA-SEQUENCE:0\n"
            .to_owned();
        let first = if skip { segments.saturating_sub(4) } else { 0 };
        if first > 0 {
            text += &format!("#EXT-X-SKIP:SKIPPED-SEGMENTS={first}\n");
        } else {
            text += "#EXT-X-MAP:URI=\"init.mp4\"\n";
        }
        let part =
            |part: u64| format!("#EXT-X-PART:DURATION=0.512,URI=\"p{part}.m4s\",INDEPENDENT=YES\n");
        for segment in first..segments {
            if segment + 3 >= segments {
                text += &part(2 * segment);
                text += &part(2 * segment + 1);
            }
            text += &format!("#EXTINF:1.024,\n{segment}.m4s\n");
        }
        if parts % 2 == 1 {
            text += &part(parts - 1);
        }
        if made > PARTS {
            text += "#EXT-X-ENDLIST\n";
        } else if self.hints {
            text += &format!("#EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"p{parts}.m4s\"\n");
        }
        text
    }

    fn answer(&self, target: &str) -> Vec<Act> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let of = |name: &str| -> Option<u64> {
            query
                .split('&')
                .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
        };
        if let Some(msn) = of("_HLS_msn") {
            self.make(2 * msn + of("_HLS_part").unwrap_or(1));
        }
        match path.rsplit('/').next().unwrap() {
            "media.m3u8" => ok(self.playlist(query.contains("_HLS_skip=YES")).as_bytes()),
            "init.mp4" => ok(&self.clip.header()),
            name => {
                let name = name.strip_suffix(".m4s").unwrap();
                match name.strip_prefix('p') {
                    Some(part) => {
                        let part = part.parse().unwrap();
                        match self.make(part) {
                            true => ok(&self.clip.fragment(part as u32)),
                            false => status("404 Not Found"),
                        }
                    }
                    None => {
                        let segment: u32 = name.parse().unwrap();
                        let parts = [2 * segment, 2 * segment + 1];
                        ok(&parts.map(|part| self.clip.fragment(part)).concat())
                    }
                }
            }
        }
    }
}

#[test]
fn parts_by_hint_or_by_blocking_reload_without_a_hole() {
    for hints in [true, false] {
        let stream = Stream::new(hints);
        let server = Server::start(move |asked| stream.answer(&asked.target));
        let reference = Some(AudioClip::new(PARTS as u32).reference());
        let report = verified(&server.url("/media.m3u8"), reference);
        assert_eq!((report.end, report.holes), (End::Ended, 0), "{report:#?}");
        assert!(report.troubles.is_empty(), "{report:#?}");
        assert_eq!(report.verified.unwrap().missing, 0);
        let asked = server.asked();
        let paths: Vec<&str> = asked.iter().map(|asked| asked.target.as_str()).collect();
        let count = |what: &str| paths.iter().filter(|path| path.contains(what)).count();
        // From the third part before the live end on, no part twice, none left out, and no whole
        // segment. The end of the stream shows in the playlist, so the last hint comes to nothing.
        let parts: Vec<&str> =
            paths.iter().copied().filter(|path| path.starts_with("/p")).collect();
        let wanted: Vec<String> =
            (BEFORE - 3..PARTS + u64::from(hints)).map(|part| format!("/p{part}.m4s")).collect();
        assert_eq!(parts, wanted);
        near(report.received, (PARTS - (BEFORE - 3)) as f64 * 0.512, 1e-6);
        assert!(!paths.iter().any(|path| path.as_bytes()[1].is_ascii_digit()), "{paths:?}");
        // A playlist for each part, and the first and the last.
        let reloads = (PARTS - BEFORE) as usize + 1;
        assert_eq!((count("_HLS_part="), count("_HLS_skip=YES")), (reloads, reloads), "{paths:?}");
        assert_eq!(count("media.m3u8"), reloads + 1, "{paths:?}");
        // The playlist comes after the part that it lists if the player follows hints.
        let last = paths.iter().rposition(|path| path.starts_with("/p")).unwrap();
        assert!(paths[last - 1].contains("_HLS_part="), "{paths:?}");
        let of_playlist = paths.iter().position(|path| path.contains("_HLS_part=0")).unwrap();
        let of_part = paths.iter().position(|path| *path == format!("/p{BEFORE}.m4s")).unwrap();
        assert_eq!(of_part < of_playlist, hints, "{paths:?}");
    }
}

#[test]
fn whole_segments_by_polling_where_low_latency_is_not_wanted() {
    let stream = Stream::new(true);
    let server = Server::start(move |asked| {
        // Each reload has one more segment, except the second.
        if asked.target == "/media.m3u8" && ![0, 2].contains(&asked.before) {
            stream.make(stream.made.load(Ordering::Acquire) + 1);
        }
        stream.answer(&asked.target)
    });
    let polls = Options { low_latency: false, ..options() };
    let begun = Instant::now();
    let report = watch(&server.url("/media.m3u8"), polls, false, None, LIMIT);
    assert_eq!((report.end, report.holes), (End::Ended, 0), "{report:#?}");
    let asked = server.asked();
    let paths: Vec<&str> = asked.iter().map(|asked| asked.target.as_str()).collect();
    let media: Vec<&str> = paths.iter().copied().filter(|path| path.ends_with(".m4s")).collect();
    // Three target durations before the end are three segments.
    let first = BEFORE / 2 - 3;
    let wanted: Vec<String> = (first..PARTS / 2).map(|segment| format!("/{segment}.m4s")).collect();
    assert_eq!(media, wanted);
    near(report.received, (PARTS / 2 - first) as f64 * 1.024, 1e-6);
    assert!(!paths.iter().any(|path| path.contains("_HLS")), "{paths:?}");
    // One reload for each target duration, or two if nothing was new. The first counts from the
    // start of the player.
    let loads = asked.iter().filter(|asked| asked.target == "/media.m3u8").map(|asked| asked.at);
    let loads: Vec<Instant> = [begun].into_iter().chain(loads.skip(1)).collect();
    assert_eq!(loads.len() as u64, 1 + (PARTS - BEFORE) / 2 + 1 + 1);
    for (number, pair) in loads.windows(2).enumerate() {
        let least = if number == 2 { 0.5 } else { 1.0 };
        // The player counts in microseconds.
        let found = (pair[1] - pair[0]).as_secs_f64() + 1e-5;
        assert!(found >= least, "{number}: {loads:?}");
    }
}

#[test]
fn a_low_latency_manifest_is_followed_as_its_segments_are_made() {
    const PART: Duration = Duration::from_millis(512);
    for verify in [true, false] {
        let clip = AudioClip::new(PARTS as u32);
        // The presentation's time 0, by both clocks. The server's clock is a little later, so no
        // chunk can come before its time. Twelve parts exist at the first question.
        let zero = OnceLock::new();
        let server = Server::start(move |asked| {
            let (unix, began) = *zero.get_or_init(|| {
                let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
                (unix - PART * BEFORE as u32, Instant::now() - PART * BEFORE as u32)
            });
            let path = asked.target.as_str();
            if path == "/x.mpd" {
                let parts = began.elapsed().as_micros() / PART.as_micros();
                // The list includes the segment that is being made.
                let segments = (parts as u64 / 2 + 1).min(PARTS / 2);
                let start = protocol_date(unix);
                let kind = match parts as u64 {
                    0..PARTS => format!(
                        "type=\"dynamic\" availabilityStartTime=\"{start}\" \
                         minimumUpdatePeriod=\"PT0S\""
                    ),
                    _ => format!(
                        "type=\"static\" mediaPresentationDuration=\"PT{}S\"",
                        PART.as_secs_f64() * PARTS as f64
                    ),
                };
                let text = format!(
                    "<MPD {kind}>\
                     <ServiceDescription><Latency target=\"1500\"/></ServiceDescription>\
                     <Period start=\"PT0S\"><AdaptationSet contentType=\"audio\"><SegmentTemplate \
                     timescale=\"48000\" initialization=\"init.mp4\" media=\"s$Number$.m4s\" startNumber=\"0\" \
                     availabilityTimeOffset=\"0.5\" availabilityTimeComplete=\"false\"><SegmentTimeline>\
                     <S t=\"0\" d=\"49152\" r=\"{}\"/></SegmentTimeline></SegmentTemplate>\
                     <Representation id=\"a\" bandwidth=\"64000\"/></AdaptationSet></Period></MPD>",
                    segments - 1
                );
                return ok(text.as_bytes());
            }
            if path == "/init.mp4" {
                return ok(&clip.header());
            }
            let segment: u64 =
                path.strip_prefix("/s").unwrap().strip_suffix(".m4s").unwrap().parse().unwrap();
            let mut acts =
                vec![Act::Send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec())];
            for part in [2 * segment, 2 * segment + 1] {
                let bytes = clip.fragment(part as u32);
                acts.push(Act::WaitUntil(began + PART * (part as u32 + 1)));
                acts.push(Act::Send(
                    [format!("{:x}\r\n", bytes.len()).as_bytes(), &bytes, b"\r\n"].concat(),
                ));
            }
            acts.push(Act::Send(b"0\r\n\r\n".to_vec()));
            acts
        });
        let reference = verify.then(|| AudioClip::new(PARTS as u32).reference());
        let begun = Instant::now();
        let report = watch(&server.url("/x.mpd"), options(), verify, reference, LIMIT);
        let whole = begun.elapsed().as_secs_f64();
        assert_eq!((report.end, report.holes), (End::Ended, 0), "{report:#?}");
        assert!(report.troubles.is_empty(), "{report:#?}");
        // Every segment once, in order, and up to the end.
        let asked = server.asked();
        let media: Vec<&str> = asked
            .iter()
            .map(|asked| asked.target.as_str())
            .filter(|path| path.ends_with(".m4s"))
            .collect();
        let wanted: Vec<String> = (0..PARTS / 2)
            .rev()
            .take(media.len())
            .map(|segment| format!("/s{segment}.m4s"))
            .collect();
        assert!(media.iter().rev().eq(wanted.iter()), "{media:?}");
        near(report.received, media.len() as f64 * 1.024, 1e-6);
        // A chunk arrives when its last sample has been captured, or later on a busy machine. The
        // first may be 2.5 s old: the latency that is wanted, and a segment.
        let delivery = report.delivery.unwrap();
        assert!(delivery.min >= -0.001 && delivery.max < 3.0 + whole, "{delivery:?}");
        let behind = report.behind_live.unwrap().mean;
        assert!(behind > 0.0 && behind < 3.0 + whole, "{behind}");
    }
}

/// A segment of video is listed while it is being made, but none of audio. Audio segments are
/// listed and fetched while the video's is on its way.
#[test]
fn a_track_goes_on_while_a_segment_of_the_other_is_made() {
    let (clip, told) = (AudioClip::new(4), std::sync::mpsc::channel());
    let (audio_came, comes) = (told.0, std::sync::Mutex::new(told.1));
    let server = Server::start(move |asked| match asked.target.as_str() {
        "/x.mpd" => {
            let segments = asked.before.min(2);
            let set = |kind: &str, more: usize| {
                format!(
                    "<AdaptationSet contentType=\"{kind}\"><SegmentTemplate timescale=\"48000\" \
                     initialization=\"init.mp4\" media=\"{kind}$Number$.m4s\" startNumber=\"0\">\
                     <SegmentTimeline><S t=\"0\" d=\"24576\" r=\"{more}\"/></SegmentTimeline>\
                     </SegmentTemplate><Representation id=\"{kind}\" bandwidth=\"64000\"/></AdaptationSet>"
                )
            };
            let (kind, update) = match asked.before {
                0..20 => ("dynamic", " availabilityStartTime=\"1970-01-01T00:00:00Z\""),
                _ => ("static", " mediaPresentationDuration=\"PT1.536S\""),
            };
            let text = format!(
                "<MPD type=\"{kind}\" minimumUpdatePeriod=\"PT0.1S\"{update}><Period start=\"PT0S\">{}{}\
                 </Period></MPD>",
                set("video", 0),
                set("audio", segments)
            );
            ok(text.as_bytes())
        }
        "/init.mp4" => ok(&clip.header()),
        "/video0.m4s" => {
            // This segment is complete once the player has asked for the audio beside it.
            let came = comes.lock().unwrap().recv_timeout(LIMIT / 4);
            if came.is_ok() { ok(&clip.fragment(0)) } else { status("500 No Audio") }
        }
        path => {
            let number = path.strip_prefix("/audio").unwrap().strip_suffix(".m4s").unwrap();
            if number == "2" {
                let _ = audio_came.send(());
            }
            ok(&clip.fragment(number.parse().unwrap()))
        }
    });
    let report = watch(&server.url("/x.mpd"), options(), false, None, LIMIT);
    assert_eq!((report.end, report.troubles.len()), (End::Ended, 0), "{report:#?}");
}

/// Writes a time since 1970 in ISO 8601.
fn protocol_date(since: Duration) -> String {
    let days = since.as_secs() / 86_400;
    let (hour, minute) = (since.as_secs() / 3600 % 24, since.as_secs() / 60 % 60);
    let (year, month, day) = civil(days as i64);
    let (second, micro) = (since.as_secs() % 60, since.subsec_micros());
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micro:06}Z")
}

fn civil(days: i64) -> (i64, u32, u32) {
    let mut year = 1970;
    let mut left = days;
    let leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    while left >= 365 + i64::from(leap(year)) {
        left -= 365 + i64::from(leap(year));
        year += 1;
    }
    let february = 28 + i64::from(leap(year));
    for (month, length) in (1..).zip([31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]) {
        if left < length {
            return (year, month, left as u32 + 1);
        }
        left -= length;
    }
    unreachable!("a day of the year")
}

/// Segments are long enough to tell how fast the connection is. The player switches to the higher
/// rendition, at the start of a segment, if the connection carries it, and back to the lower one
/// when it no longer does.
#[test]
fn renditions_are_switched_as_the_connection_allows() {
    let clip = AudioClip::new(32);
    let segment = |number: u32| -> Vec<u8> {
        (4 * number..4 * number + 4).flat_map(|fragment| clip.fragment(fragment)).collect()
    };
    let segments: Vec<Vec<u8>> = (0..8).map(segment).collect();
    let (header, reference) = (clip.header(), clip.reference());
    assert!(segments[0].len() > 20_000);
    let server = Server::start(move |asked| {
        match asked.target.as_str() {
        "/index.m3u8" => ok(b"#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=300000,CODECS=\"mp4a.40.2\"\n\
            high/media.m3u8\n#EXT-X-STREAM-INF:BANDWIDTH=80000,CODECS=\"mp4a.40.2\"\nlow/media.m3u8\n"),
        "/high/media.m3u8" | "/low/media.m3u8" => {
            let mut text =
                "#EXTM3U\n#EXT-X-TARGETDURATION:3\n#EXT-X-MAP:URI=\"init.mp4\"\n".to_owned();
            (0..8).for_each(|number| text += &format!("#EXTINF:2.048,\n{number}.m4s\n"));
            ok((text + "#EXT-X-ENDLIST\n").as_bytes())
        }
        "/high/init.mp4" | "/low/init.mp4" => ok(&header),
        // 20 kB in 1.5 s: some 110 kbit/s.
        target @ ("/high/3.m4s" | "/high/4.m4s" | "/high/5.m4s" | "/high/6.m4s") => {
            let number: usize = target[6..7].parse().unwrap();
            late(1500, &segments[number])
        }
        target => {
            let number = target.rsplit('/').next().unwrap().strip_suffix(".m4s").unwrap();
            ok(&segments[number.parse::<usize>().unwrap()])
        }
    }
    });
    let automatic = Options { rendition: Rendition::Auto, ..options() };
    let url = server.url("/index.m3u8");
    let report = watch(&url, automatic, true, Some(reference), LIMIT);
    assert_eq!((report.end, report.troubles.len()), (End::Ended, 0), "{report:#?}");
    assert_eq!((report.holes, report.verified.unwrap().matched), (0, 32 * u64::from(UNITS)));
    near(report.received, 32.0 * 0.512, 1e-6);
    let asked = server.asked();
    let media: Vec<&str> = asked.iter().map(|asked| asked.target.as_str()).collect();
    let media: Vec<&str> = media.into_iter().filter(|path| path.ends_with(".m4s")).collect();
    assert_eq!(media.len(), 8, "none twice: {media:?}");
    assert_eq!(media[..2], ["/low/0.m4s", "/high/1.m4s"]);
    assert!(
        media.iter().any(|path| path.starts_with("/low/") && *path != "/low/0.m4s"),
        "{media:?}"
    );
    assert!(report.switches >= 2, "{report:#?}");
}
