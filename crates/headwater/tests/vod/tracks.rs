//! Several audio tracks, languages, subtitles, and folders of renditions.

use std::fs;
use std::path::Path;

use crate::support::{
    Listed, bytes, connect, decoded, ffmpeg, read_dash, read_hls, samples, server, text, units,
};

/// Makes six seconds of video with this size, bitrate and keyframe interval.
fn pictures(size: &str, bitrate: &str, keyframe_interval: &str, into: &Path) {
    let source = format!("testsrc2=s={size}:r=25:d=6");
    let x264 = ["-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-bf", "2"];
    let gop = ["-g", keyframe_interval, "-keyint_min", keyframe_interval, "-sc_threshold", "0"];
    let rate = ["-b:v", bitrate, "-maxrate", bitrate, "-bufsize", bitrate];
    let args = ["-f", "lavfi", "-i", &source].into_iter().chain(x264).chain(gop).chain(rate);
    ffmpeg(args.chain([into.to_str().unwrap()]));
}

const CAPTIONS: [(&str, &str); 3] = [
    ("00:00:00,500 --> 00:00:01,500", "One"),
    ("00:00:01,900 --> 00:00:04,100", "Two & <b>more</b>"),
    ("00:00:05,000 --> 00:00:05,900", "Three"),
];

fn srt(into: &Path) {
    let cue = |(n, (time, text)): (usize, &(&str, &str))| format!("{}\n{time}\n{text}\n\n", n + 1);
    fs::write(into, CAPTIONS.iter().enumerate().map(cue).collect::<String>()).unwrap();
}

fn vtt(into: &Path, text: &str) {
    fs::write(into, format!("WEBVTT\n\n00:01.000 --> 00:03.000\n{text}\n")).unwrap();
}

/// The cues of a WebVTT text: start and end in milliseconds, and the lines.
fn cues(vtt: &str) -> Vec<(u64, u64, String)> {
    assert!(vtt.starts_with("WEBVTT"), "{vtt}");
    let millis = |time: &str| {
        let (clock, millis) = time.trim().split_once('.').unwrap();
        let seconds = clock.split(':').fold(0, |sum, part| sum * 60 + part.parse::<u64>().unwrap());
        seconds * 1000 + millis.parse::<u64>().unwrap()
    };
    let blocks = vtt.split("\n\n").filter_map(|block| {
        let at = block.lines().position(|line| line.contains("-->"))?;
        let (from, to) = block.lines().nth(at).unwrap().split_once("-->").unwrap();
        let to = to.trim().split(' ').next().unwrap();
        let text: Vec<_> = block.lines().skip(at + 1).collect();
        Some((millis(from), millis(to), text.join("\n")))
    });
    blocks.collect()
}

/// The MPEG-TS time of a segment's own time 0 (RFC 8216bis 3.1.4), in units of 90 kHz.
fn timestamp_map(vtt: &str) -> u64 {
    let line = vtt.lines().find(|line| line.starts_with("X-TIMESTAMP-MAP=")).unwrap();
    assert!(line.contains("LOCAL:00:00:00.000"), "{line}");
    let at = line.split("MPEGTS:").nth(1).unwrap();
    at.split(',').next().unwrap().parse().unwrap()
}

fn languages(listed: &[Listed]) -> Vec<Option<&str>> {
    listed.iter().map(|listed| listed.language.as_deref()).collect()
}

#[test]
fn audio_tracks_and_subtitles_of_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    pictures("320x180", "300k", "25", &at("pictures.mp4"));
    srt(&at("cues.srt"));
    let movie = at("movie.mp4");
    let (video, captions) = (at("pictures.mp4"), at("cues.srt"));
    let tone = |hertz: u32| format!("sine=f={hertz}:r=48000:d=6");
    ffmpeg([
        "-i",
        video.to_str().unwrap(),
        "-f",
        "lavfi",
        "-i",
        &tone(440),
        "-f",
        "lavfi",
        "-i",
        &tone(880),
        "-f",
        "lavfi",
        "-i",
        &tone(220),
        "-i",
        captions.to_str().unwrap(),
        "-map",
        "0:v",
        "-map",
        "1",
        "-map",
        "2",
        "-map",
        "3",
        "-map",
        "4",
        "-c:v",
        "copy",
        "-c:a",
        "aac",
        "-ac:a:2",
        "1",
        "-c:s",
        "mov_text",
        "-metadata:s:a:0",
        "language=eng",
        "-metadata:s:a:1",
        "language=deu",
        "-metadata:s:a:2",
        "language=eng",
        "-metadata:s:s:0",
        "language=eng",
        "-disposition:a:0",
        "default",
        "-disposition:a:1",
        "0",
        "-disposition:a:2",
        "0",
        movie.to_str().unwrap(),
    ]);
    vtt(&at("movie.fr.vtt"), "Bonjour");
    let server = server(folder.path());
    let mut client = connect(&server);

    let hls = read_hls(&mut client, "movie.mp4");
    assert_eq!(languages(&hls.audio), [Some("en"), Some("de"), Some("en")], "{}", hls.index);
    let names: Vec<_> = hls.index.lines().filter_map(|line| line.split("NAME=\"").nth(1)).collect();
    assert_eq!(names.len(), 5, "{}", hls.index);
    for (n, name) in names.iter().enumerate() {
        assert!(!names[..n].contains(name), "two of one name: {}", hls.index);
    }
    assert_eq!(hls.index.matches("DEFAULT=YES").count(), 1, "{}", hls.index);
    let mut spoken = languages(&hls.text);
    spoken.sort_unstable();
    assert_eq!(spoken, [Some("en"), Some("fr")], "{}", hls.index);
    assert!(hls.index.contains("CHANNELS=\"1\""), "{}", hls.index);

    let dash = read_dash(&mut client, "movie.mp4");
    let roles = |content: &str| {
        let sets = dash.sets.iter().filter(|set| set.content == content);
        let role = |set: &crate::support::Set| {
            format!(
                "{} {}",
                set.renditions[0].language.as_deref().unwrap(),
                set.role.as_deref().unwrap()
            )
        };
        sets.map(role).collect::<Vec<_>>()
    };
    assert_eq!(roles("audio"), ["en main", "de alternate", "en alternate"], "{}", dash.xml);
    let mut subtitles = roles("text");
    subtitles.sort_unstable();
    assert_eq!(subtitles, ["en subtitle", "fr subtitle"], "{}", dash.xml);

    // Every track has the file's media.
    let file = movie.to_str().unwrap();
    for n in 0..3 {
        let map = format!("0:a:{n}");
        let source = units(file, &map);
        for manifest in ["index.m3u8", "manifest.mpd"] {
            let url = server.url(&format!("/vod/movie.mp4/{manifest}"));
            assert!(units(&url, &map) == source, "{manifest} {map}");
        }
    }

    // Each cue is in every segment during which it is shown, with times that match the video.
    let english = hls.text.iter().find(|text| text.language.as_deref() == Some("en")).unwrap();
    let whole = dash.of("text").into_iter().find(|text| text.name == english.name).unwrap();
    let whole = text(&mut client, &whole.segments[0].0);
    let expected: Vec<_> = [(500, 1500), (1900, 4100), (5000, 5900)].into();
    let times = |cues: &[(u64, u64, String)]| {
        cues.iter().map(|(from, to, _)| (*from, *to)).collect::<Vec<_>>()
    };
    assert_eq!(times(&cues(&whole)), expected, "{whole}");
    assert!(!whole.contains("X-TIMESTAMP-MAP"), "{whole}");
    let (mut start, mut seen, mut maps) = (0.0, Vec::new(), Vec::new());
    for (path, duration) in &english.segments {
        let segment = text(&mut client, path);
        maps.push(timestamp_map(&segment));
        let (from, to) = ((start * 1000.0) as u64, ((start + duration) * 1000.0) as u64);
        let shown = times(&cues(&segment));
        let expected: Vec<_> =
            expected.iter().copied().filter(|cue| cue.0 < to && cue.1 > from).collect();
        assert_eq!(shown, expected, "{from} to {to} ms: {segment}");
        seen.extend(shown);
        start += duration;
    }
    for cue in expected {
        assert!(seen.contains(&cue), "{cue:?}");
    }
    maps.dedup();
    assert_eq!(maps.len(), 1, "one timeline");
    // The first presentation time in the segments is the file's, because its edit list begins at 0.
    let playlist = format!("/vod/movie.mp4/{}/media.m3u8", hls.video[0].name);
    let packets = testkit::ffprobe_packets(server.url(&playlist));
    let first = packets.iter().filter_map(|packet| packet.pts_time).fold(f64::INFINITY, f64::min);
    assert!((first - maps[0] as f64 / 90_000.0).abs() < 0.002, "{first} {maps:?}");
}

#[test]
fn subtitles_of_a_longer_title_are_cut() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sound.mp4");
    let source = "sine=f=440:r=48000:d=75";
    ffmpeg(["-f", "lavfi", "-i", source, "-c:a", "aac", file.to_str().unwrap()]);
    let cue =
        |second: usize| format!("00:{second:02}.500 --> 00:{:02}.500\n{second}\n\n", second + 1);
    let sidecar: String = (0..59).map(cue).collect();
    fs::write(folder.path().join("sound.en.vtt"), format!("WEBVTT\n\n{sidecar}")).unwrap();
    let server = server(folder.path());
    let mut client = connect(&server);
    let hls = read_hls(&mut client, "sound.mp4");
    let english = &hls.text[0];
    assert!(english.segments.len() > 1, "{english:?}");
    assert!((english.duration() - 75.0).abs() < 0.1, "{english:?}");
    let (mut start, mut seen) = (0.0, Vec::new());
    for (path, duration) in &english.segments {
        let (from, to) = ((start * 1000.0) as u64, ((start + duration) * 1000.0) as u64);
        for cue in cues(&text(&mut client, path)) {
            assert!(cue.0 < to && cue.1 > from, "{cue:?} in {from} to {to} ms");
            seen.push(cue.2);
        }
        start += duration;
    }
    // Cues that are shown at the end of a segment are also in the next one.
    seen.dedup();
    assert_eq!(seen, (0..59).map(|second| second.to_string()).collect::<Vec<_>>());
}

#[test]
fn audio_alone_with_an_alternative() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sound.mp4");
    ffmpeg([
        "-f",
        "lavfi",
        "-i",
        "sine=f=440:r=48000:d=6",
        "-f",
        "lavfi",
        "-i",
        "sine=f=880:r=44100:d=6",
        "-map",
        "0",
        "-map",
        "1",
        "-c:a",
        "aac",
        "-metadata:s:a:0",
        "language=swe",
        "-metadata:s:a:1",
        "language=fin",
        file.to_str().unwrap(),
    ]);
    let server = server(folder.path());
    let mut client = connect(&server);
    let index = text(&mut client, "/vod/sound.mp4/index.m3u8");
    assert_eq!(index.matches("#EXT-X-STREAM-INF").count(), 1, "{index}");
    assert_eq!(index.matches("#EXT-X-MEDIA:TYPE=AUDIO").count(), 2, "{index}");
    assert!(index.contains("LANGUAGE=\"sv\"") && index.contains("LANGUAGE=\"fi\""), "{index}");
    let dash = read_dash(&mut client, "sound.mp4");
    assert_eq!(dash.of("audio").len(), 2, "{}", dash.xml);
    for (n, track) in dash.of("audio").into_iter().enumerate() {
        let map = format!("0:a:{n}");
        let source = units(file.to_str().unwrap(), &map);
        assert_eq!(samples(track.fetch(&mut client)).values().sum::<usize>(), source.len());
        // ffmpeg lists the alternatives of HLS before the variant's own audio.
        let url = |manifest: &str| server.url(&format!("/vod/sound.mp4/{manifest}"));
        assert!(units(&url("manifest.mpd"), &map) == source, "DASH {map}");
        assert!(units(&url("index.m3u8"), &format!("0:a:{}", 1 - n)) == source, "HLS {map}");
    }
}

#[test]
fn a_folder_of_renditions_is_one_title() {
    let folder = tempfile::tempdir().unwrap();
    let movie = folder.path().join("films/movie");
    fs::create_dir_all(&movie).unwrap();
    for (name, size, bitrate) in
        [("low", "320x180", "150k"), ("medium", "640x360", "500k"), ("high", "1280x720", "2M")]
    {
        pictures(size, bitrate, "50", &movie.join(format!("{name}.mp4")));
    }
    vtt(&movie.join("en.vtt"), "Hello");
    let server = server(folder.path());
    let mut client = connect(&server);

    let hls = read_hls(&mut client, "films/movie");
    let names: Vec<_> = hls.video.iter().map(|track| track.name.as_str()).collect();
    assert_eq!(names, ["v0", "v1", "v2"], "by falling bitrate: {}", hls.index);
    assert!(hls.video.is_sorted_by(|a, b| a.bandwidth > b.bandwidth), "{}", hls.index);
    let durations = |track: &Listed| track.segments.iter().map(|s| s.1).collect::<Vec<_>>();
    assert_eq!(durations(&hls.video[0]), [2.0, 2.0, 2.0]);
    assert!(hls.video.iter().all(|track| durations(track) == [2.0, 2.0, 2.0]), "{hls:?}");
    assert_eq!(hls.i_frames.len(), 3, "{}", hls.index);
    assert_eq!(languages(&hls.text), [Some("en")]);
    let dash = read_dash(&mut client, "films/movie");
    let videos = dash.sets.iter().filter(|set| set.content == "video").collect::<Vec<_>>();
    assert!(
        videos.len() == 1 && videos[0].aligned && videos[0].renditions.len() == 3,
        "{}",
        dash.xml
    );
    for (listed, name) in hls.video.iter().zip(["high", "medium", "low"]) {
        let file = movie.join(format!("{name}.mp4"));
        let fetched = folder.path().join(name);
        fs::write(&fetched, listed.fetch(&mut client)).unwrap();
        let source = decoded(file.to_str().unwrap(), &[], "0:v");
        assert_eq!(source.len(), 150);
        assert!(decoded(fetched.to_str().unwrap(), &[], "0:v") == source, "{name}");
    }
    assert!(!server.whole_log().contains("keyframes"), "{}", server.log());
}

#[test]
fn renditions_that_are_not_aligned_are_said_to_be() {
    let folder = tempfile::tempdir().unwrap();
    let movie = folder.path().join("movie");
    fs::create_dir(&movie).unwrap();
    pictures("320x180", "150k", "35", &movie.join("low.mp4"));
    pictures("640x360", "600k", "50", &movie.join("high.mp4"));
    let server = server(folder.path());
    let mut client = connect(&server);
    let dash = read_dash(&mut client, "movie");
    assert!(dash.sets.iter().all(|set| !set.aligned), "{}", dash.xml);
    let hls = read_hls(&mut client, "movie");
    assert_ne!(hls.video[0].segments.len(), 0);
    for listed in &hls.video {
        // Each is complete by itself.
        let counts = samples(listed.fetch(&mut client));
        assert_eq!(counts.into_values().sum::<usize>(), 150, "{listed:?}");
        assert!((listed.duration() - 6.0).abs() < 0.001, "{listed:?}");
    }
    let lines = server.whole_log();
    let said = lines.lines().filter(|line| line.contains("keyframes of the renditions differ"));
    assert_eq!(said.count(), 1, "{lines}");
}

#[test]
fn i_frames_are_pictures_that_decode_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("movie.mp4");
    pictures("320x180", "300k", "25", &file);
    let server = server(folder.path());
    let mut client = connect(&server);
    let hls = read_hls(&mut client, "movie.mp4");
    let frames = &hls.i_frames[0];
    assert_eq!(frames.segments.len(), 6, "{frames:?}");
    assert!((frames.duration() - 6.0).abs() < 0.001, "{frames:?}");
    assert!(frames.bandwidth < hls.video[0].bandwidth, "{}", hls.index);
    let source = decoded(file.to_str().unwrap(), &[], "0:v");
    let header = bytes(&mut client, frames.header.as_ref().unwrap());
    for (n, (path, _)) in frames.segments.iter().enumerate() {
        let alone = folder.path().join("alone.mp4");
        let segment = bytes(&mut client, path);
        fs::write(&alone, [&header[..], &segment[..]].concat()).unwrap();
        assert_eq!(
            decoded(alone.to_str().unwrap(), &[], "0:v"),
            [source[25 * n].clone()],
            "{path}"
        );
    }
}
