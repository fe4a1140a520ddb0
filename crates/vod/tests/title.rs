//! The parts of a title: renditions of a folder, languages and subtitles.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;
use std::ops::Range;
use std::time::Duration;

use media::Kind;
use support::{Media, bytes, clip, corpus, ffmpeg, folder, index, made, media, starts};
use testkit::boxes::{boxed, full, moov};
use vod::{Error, Title};

fn names(title: &Title) -> Vec<&str> {
    title.tracks.iter().map(|track| track.name.as_str()).collect()
}

#[test]
fn a_folder_of_aligned_files_is_one_title_with_renditions() {
    let (root, library) = folder(64 << 20);
    let movie = root.path().join("movie");
    fs::create_dir(&movie).unwrap();
    clip(&movie.join("low.mp4"), 64, 50);
    // Twice as many keyframes, which include those of the other file.
    clip(&movie.join("high.mp4"), 256, 25);
    fs::write(movie.join("notes.txt"), "not a movie").unwrap();
    let title = library.title("movie").unwrap();
    assert_eq!(names(&title), ["v0", "v1", "a0"]);
    assert!(title.aligned);
    let widths: Vec<_> = title.tracks.iter().map(|track| track.resolution()).collect();
    assert_eq!(widths, [Some((256, 36)), Some((64, 36)), None]);
    assert!(title.tracks[0].bandwidth.average > title.tracks[1].bandwidth.average);
    for track in &title.tracks[..2] {
        assert_eq!(starts(&title, track), [0.0, 2.0, 4.0, 6.0, 8.0], "{}", track.name);
    }
    for (audio, video) in starts(&title, &title.tracks[2]).iter().zip([0.0, 2.0, 4.0, 6.0, 8.0]) {
        assert!((audio - video).abs() < 0.11, "{audio} {video}");
    }
    let ids: Vec<_> = title.tracks.iter().map(|track| track.media.id).collect();
    assert_eq!(ids, [1, 2, 3]);
    // The sound of the other file is the same.
    assert_eq!(title.left_out.len(), 1);
    assert!(title.left_out[0].reason.contains("the same"), "{:?}", title.left_out);
    assert!(title.reach.is_empty());

    // A rendition that is added makes it another title.
    clip(&movie.join("medium.mp4"), 128, 50);
    let more = library.title("movie").unwrap();
    assert_ne!(more.version, title.version);
    assert_eq!(names(&more), ["v0", "v1", "v2", "a0"]);
    // A rendition that is cut off is left out.
    let whole = fs::read(movie.join("low.mp4")).unwrap();
    fs::write(movie.join("low.mp4"), &whole[..whole.len() / 2]).unwrap();
    let fewer = library.title("movie").unwrap();
    assert_eq!(names(&fewer), ["v0", "v1", "a0"]);
    assert!(fewer.left_out.iter().any(|left| left.file == "movie/low.mp4" && left.track.is_none()));
}

#[test]
fn a_second_video_of_one_file_is_no_rendition_of_the_first() {
    let title = made().title("mp4/tracks.mp4");
    let alternate: Vec<_> = title.tracks.iter().map(|track| track.alternate).collect();
    assert_eq!(alternate, [false, true, false, false]);
    assert!(title.aligned);
}

#[test]
fn files_whose_keyframes_differ_are_cut_each_by_itself() {
    let (root, library) = folder(64 << 20);
    let movie = root.path().join("movie");
    fs::create_dir(&movie).unwrap();
    clip(&movie.join("low.mp4"), 64, 50);
    clip(&movie.join("high.mp4"), 256, 40);
    let title = library.title("movie").unwrap();
    assert!(!title.aligned);
    assert_eq!(starts(&title, &title.tracks[0]), [0.0, 1.6, 4.8, 6.4, 8.0]);
    assert_eq!(starts(&title, &title.tracks[1]), [0.0, 2.0, 4.0, 6.0, 8.0]);
}

#[test]
fn a_folder_of_too_many_or_only_broken_files_is_refused() {
    let (root, library) = folder(64 << 20);
    for name in ["many", "broken"] {
        fs::create_dir(root.path().join(name)).unwrap();
    }
    for n in 0..17 {
        fs::write(root.path().join(format!("many/{n}.mp4")), b"").unwrap();
    }
    fs::write(root.path().join("broken/a.mp4"), b"nothing").unwrap();
    fs::write(root.path().join("broken/b.mp4"), b"").unwrap();
    let limit = library.title("many").unwrap_err();
    assert!(
        matches!(&limit, Error::Unreadable { reason: media::Error::Limit { .. }, .. }),
        "{limit}"
    );
    let broken = library.title("broken").unwrap_err().to_string();
    assert!(broken.starts_with("broken: moov: missing"), "{broken}");
}

/// A file of one track with so many samples of one byte and 1 ms, in sparse room for them.
fn samples_alike(path: &std::path::Path, handler: &[u8; 4], entry: &[u8], count: u32) {
    let described = [&[0, 0, 0, 0, 0, 0, 0, 1], entry].concat();
    let tables = [
        boxed(b"stsd", &described),
        full(b"stts", 0, 0, &[1, count, 1]),
        full(b"stsz", 0, 0, &[1, count]),
        full(b"stsc", 0, 0, &[1, 1, count, 1]),
        full(b"stco", 0, 0, &[1, 0]),
    ];
    let mut moov = moov(&tables, None, &[]);
    let at = moov.windows(4).position(|bytes| bytes == b"vide").unwrap();
    moov[at..at + 4].copy_from_slice(handler);
    fs::write(path, moov).unwrap();
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(u64::from(count) + 4096).unwrap();
}

/// What is known of keyframes takes memory, though the file describes all of them in a few bytes.
#[test]
fn more_keyframes_than_a_film_has_are_refused() {
    let (root, library) = folder(64 << 20);
    let avcc = boxed(b"avcC", &testkit::avc_record(31));
    let entry = boxed(b"avc1", &[vec![0; 78], avcc].concat());
    let refused = |count| {
        samples_alike(&root.path().join("keys.mp4"), b"vide", &entry, count);
        library.title("keys.mp4").unwrap_err()
    };
    let Error::Unreadable { reason, .. } = refused((1 << 20) + 1) else { panic!("another error") };
    assert!(matches!(reason, media::Error::Limit { value: 1_048_577, .. }), "{reason}");
    assert!(reason.to_string().starts_with("keyframes of track 1"), "{reason}");
}

/// Each frame of PCM is a sample: six minutes have more of them than any packaged track may have.
#[test]
fn the_codec_of_pcm_is_the_reason_not_its_length() {
    let (root, library) = folder(64 << 20);
    let entry = boxed(b"twos", &[0; 28]);
    samples_alike(&root.path().join("pcm.mov"), b"soun", &entry, (1 << 24) + 1);
    let error = library.title("pcm.mov").unwrap_err().to_string();
    assert!(error.ends_with("codec 'twos' of track 1 at byte 0 is not supported"), "{error}");
}

#[test]
fn chapters_are_no_subtitles() {
    let (root, library) = folder(64 << 20);
    let (film, chapters) = (root.path().join("film.mp4"), root.path().join("chapters"));
    clip(&root.path().join("plain.mp4"), 64, 50);
    let chapter = "[CHAPTER]\nTIMEBASE=1/1000\nSTART=0\nEND=5000\ntitle=First\n";
    fs::write(&chapters, format!(";FFMETADATA1\n{chapter}")).unwrap();
    let inputs = [root.path().join("plain.mp4"), chapters].map(|path| path.into_os_string());
    let [plain, chapters] = inputs.each_ref().map(|path| path.to_str().unwrap());
    ffmpeg(&["-i", plain, "-i", chapters, "-map_metadata", "1", "-c", "copy"], &film);
    // ffmpeg describes chapters as QuickTime text, other writers as 3GPP timed text.
    let mut bytes = fs::read(&film).unwrap();
    let described = bytes.windows(4).rposition(|four| four == b"stsd").unwrap() + 4 + 8 + 4;
    assert_eq!(bytes[described..described + 4], *b"text");
    bytes[described..described + 4].copy_from_slice(b"tx3g");
    fs::write(&film, bytes).unwrap();
    let title = library.title("film.mp4").unwrap();
    assert_eq!((names(&title), title.texts.len()), (vec!["v0", "a0"], 0));
    let left: Vec<_> = title.left_out.iter().map(|left| &*left.reason).collect();
    assert_eq!(left, ["chapters, which are track 3 (tx3g), at byte 0 is not supported"]);
}

#[test]
fn audio_tracks_have_languages_and_labels() {
    let (root, library) = folder(64 << 20);
    let sine = |f: u32| format!("sine=f={f}:r=48000:d=3");
    let (one, two, three) = (sine(300), sine(400), sine(500));
    let mut arguments = vec!["-f", "lavfi", "-i", "testsrc2=s=64x36:r=25:d=3"];
    for sound in [&one, &two, &three] {
        arguments.extend(["-f", "lavfi", "-i", sound.as_str()]);
    }
    arguments.extend(["-map", "0", "-map", "1", "-map", "2", "-map", "3"]);
    arguments.extend(["-c:v", "libx264", "-preset", "ultrafast", "-c:a", "aac"]);
    arguments.extend(["-metadata:s:a:0", "language=eng", "-metadata:s:a:1", "language=deu"]);
    arguments.extend(["-metadata:s:a:2", "language=eng", "-metadata:s:a:2", "title=Commentary"]);
    arguments.extend(["-disposition:a:0", "0", "-disposition:a:1", "default"]);
    ffmpeg(&arguments, &root.path().join("a.mp4"));
    let title = library.title("a.mp4").unwrap();
    assert_eq!(names(&title), ["v0", "a0", "a1", "a2"]);
    let audio: Vec<_> = title.tracks[1..]
        .iter()
        .map(|track| (track.language.as_deref().unwrap(), track.label.as_str(), track.default))
        .collect();
    assert_eq!(audio, [("en", "en", false), ("de", "de", true), ("en", "Commentary", false)]);
    assert_eq!(title.chosen(), [0, 2]);
}

const SUBTITLES: &str = "1\n00:00:00,500 --> 00:00:01,500\nHello & there\n\n\
    2\n00:00:02,000 --> 00:00:03,250\nTwo\nlines\n";

#[test]
fn subtitles_come_from_files_beside_the_movie_and_from_its_tracks() {
    let (root, library) = folder(64 << 20);
    let script = root.path().join("a.srt");
    fs::write(&script, SUBTITLES).unwrap();
    let mut arguments = vec!["-f", "lavfi", "-i", "testsrc2=s=64x36:r=25:d=5", "-i"];
    arguments.extend([script.to_str().unwrap(), "-map", "0", "-map", "1", "-c:v", "libx264"]);
    arguments.extend(["-bf", "2", "-c:s", "mov_text", "-metadata:s:s:0", "language=fra"]);
    ffmpeg(&arguments, &root.path().join("a.mp4"));
    let vtt = |text: &str| format!("WEBVTT\n\n00:01.000 --> 00:02.000\n{text}\n");
    for (name, text) in [
        ("a.vtt", "plain"),
        ("a.en.vtt", "english"),
        ("a.en.sdh.vtt", "described"),
        ("a.b.de.vtt", "another movie's"),
        ("ab.de.vtt", "another movie's"),
    ] {
        fs::write(root.path().join(name), vtt(text)).unwrap();
    }
    fs::copy(root.path().join("a.mp4"), root.path().join("a.b.mp4")).unwrap();
    fs::write(root.path().join("a.it.vtt"), b"\0\xff not WebVTT").unwrap();
    fs::File::create(root.path().join("a.es.vtt")).unwrap().set_len(5 << 20).unwrap();

    let title = library.title("a.mp4").unwrap();
    let texts: Vec<_> = title
        .texts
        .iter()
        .map(|text| (text.name.as_str(), text.language.as_deref(), text.label.as_str()))
        .collect();
    let expected = [
        ("t0", Some("en"), "en sdh"),
        ("t1", Some("en"), "en"),
        ("t2", None, "subtitles"),
        ("t3", Some("fr"), "fr"),
    ];
    assert_eq!(texts, expected);
    let left: Vec<_> =
        title.left_out.iter().map(|left| (left.file.as_str(), left.reason.as_str())).collect();
    let limit = "5242880 bytes exceed the limit of 4194304";
    assert_eq!(left, [("a.es.vtt", limit), ("a.it.vtt", "no WEBVTT at the start of the file")]);

    assert_eq!(title.texts[1].all(), "WEBVTT\n\n00:00:01.000 --> 00:00:02.000\nenglish\n\n");
    let french = "00:00:00.500 --> 00:00:01.500\nHello &amp; there\n\n\
        00:00:02.000 --> 00:00:03.250\nTwo\nlines\n\n";
    assert_eq!(title.texts[3].all(), format!("WEBVTT\n\n{french}"));
    assert_eq!(title.texts[3].segment_count(), 1);
    let mpegts = title.shift.in_timescale(title.shift.per_second) * 90_000
        / i64::from(title.shift.per_second);
    assert!(mpegts > 0, "B-frames need a shift");
    let map = format!("X-TIMESTAMP-MAP=MPEGTS:{mpegts},LOCAL:00:00:00.000");
    assert_eq!(title.texts[3].segment(0).unwrap(), format!("WEBVTT\n{map}\n\n{french}"));

    // A script that changes makes it another title.
    fs::write(root.path().join("a.en.vtt"), vtt("changed")).unwrap();
    let changed = library.title("a.mp4").unwrap();
    assert_ne!(changed.version, title.version);
    assert!(String::from_utf8_lossy(&changed.texts[1].all()).contains("changed"));

    let other = library.title("a.b.mp4").unwrap();
    assert_eq!(other.texts.len(), 2);
    assert_eq!(other.texts[0].language.as_deref(), Some("de"));
}

#[test]
fn all_subtitles_together_are_bounded() {
    let (root, library) = folder(64 << 20);
    fs::copy(media("mp4/pictures-ntsc.mp4"), root.path().join("a.mp4")).unwrap();
    let padding = "NOTE ".to_owned() + &"x".repeat((4 << 20) - 100);
    for language in ["de", "en", "fr"] {
        let cue = "00:00.000 --> 00:01.000\nHello\n";
        let name = root.path().join(format!("a.{language}.vtt"));
        fs::write(name, format!("WEBVTT\n\n{cue}\n{padding}\n")).unwrap();
    }
    let title = library.title("a.mp4").unwrap();
    assert_eq!(title.texts.len(), 2);
    let [left] = &title.left_out[..] else { panic!("{:?}", title.left_out) };
    assert_eq!(left.file, "a.fr.vtt");
    assert_eq!(left.reason, "all subtitles exceed the limit of 8388608 bytes");
}

#[test]
fn the_scripts_of_a_folder_are_its_titles() {
    let (root, library) = folder(64 << 20);
    let movie = root.path().join("movie");
    fs::create_dir(&movie).unwrap();
    fs::copy(media("mp4/pictures-ntsc.mp4"), movie.join("low.mp4")).unwrap();
    for name in ["en.vtt", "low.de.vtt", "low.en.vtt", ".hidden.vtt"] {
        fs::write(movie.join(name), "WEBVTT\n").unwrap();
    }
    let title = library.title("movie").unwrap();
    let languages: Vec<_> = title.texts.iter().map(|text| text.language.as_deref()).collect();
    assert_eq!(languages, [Some("en"), Some("de")]);
}

#[test]
fn seeking_finds_the_segment_and_the_keyframe() {
    let title = made().title("mp4/minute.mp4");
    let (video, audio) = (title.track("v0").unwrap(), title.track("a0").unwrap());
    let at = Duration::from_secs_f64;
    assert_eq!(video.segment_at(Duration::ZERO), 0);
    assert_eq!(video.segment_at(at(1.999)), 0);
    assert_eq!(video.segment_at(at(2.0)), 1);
    assert_eq!(video.segment_at(at(31.0)), 15);
    assert_eq!(video.segment_at(Duration::MAX), video.segment_count() - 1);
    // There is a keyframe every second, so decoding for 31.7 s begins at 31 s.
    assert_eq!(title.presentation_time(video, video.sync_at(at(31.7))), at(31.0));
    assert_eq!(title.presentation_time(video, video.sync_at(Duration::MAX)), at(60.0));
    assert_eq!(video.sync_at(Duration::ZERO), 0);
    let sound = title.presentation_time(audio, audio.sync_at(at(31.7)));
    assert!(sound <= at(31.7) && sound > at(31.65), "{sound:?}");
    assert!(title.track("v1").is_none() && title.text("t0").is_none());
}

#[test]
fn iframes_are_keyframes_as_segments_of_their_own() {
    let title = made().title("mp4/film.mp4");
    let video = title.track("v0").unwrap();
    assert_eq!(video.iframe_count(), 10);
    let frames: Vec<_> = video.iframes().collect();
    assert_eq!(frames.iter().map(|frame| frame.duration).sum::<u64>(), 10 * 90_000);
    let whole: Vec<_> =
        support::chunks(video).into_iter().flat_map(|chunk| chunk.samples).collect();
    for (n, frame) in (0..).zip(&frames) {
        let read = bytes(&video.iframe(n).unwrap());
        assert_eq!(read.len() as u64, frame.bytes);
        let chunks: Vec<_> = media::cmaf::chunks(&read.into(), None).map(Result::unwrap).collect();
        let [sample] = &chunks[0].samples[..] else { panic!("one sample") };
        assert!(sample.sync && sample.pts() == frame.start);
        assert!(whole.iter().any(|other| (other.dts, &other.data) == (sample.dts, &sample.data)));
    }
    assert!(video.iframe(10).is_none());
    assert!(video.iframe_bandwidth > 0);
    assert_eq!(title.track("a0").unwrap().iframe_count(), 0);
    // Every picture of this one is a keyframe.
    let intra = made().title("mp4/intra.mp4");
    assert_eq!(intra.tracks[0].iframe_count(), 2);
}

/// Playing up to a segment's end must need every sample before it, and no byte behind its reach.
fn check_reach(media: &Media) {
    let library = media.library();
    for path in media.every_mp4() {
        let Ok(title) = library.title(&path) else { continue };
        let (index, data) = index(&media.path(&path));
        assert_eq!(title.reach.len(), title.tracks[0].segment_count() as usize, "{path}");
        let rising = |pair: &[vod::Reach]| pair[0].offset <= pair[1].offset;
        assert!(title.reach.windows(2).all(rising), "{path}");
        let last = title.reach.last().unwrap().offset;
        let good = index.tracks.iter().filter(|track| track.problem.is_none());
        let end = good.map(|track| track.samples.end_offset()).max().unwrap();
        assert_eq!(last, end.min(data.len() as u64), "{path}");
        for (n, reach) in (0..).zip(&title.reach) {
            let samples = title.samples(&title.chosen(), n).unwrap();
            let furthest = samples.iter().map(|sample| sample.offset + u64::from(sample.size));
            assert!(furthest.max().unwrap() <= reach.offset, "{path} {n}");
        }
    }
}

#[test]
#[ignore = "corpus"]
fn corpus_reach_covers_what_has_been_played() {
    check_reach(&corpus());
}

#[test]
fn reach_covers_what_has_been_played() {
    check_reach(&made());
    let title = made().title("mp4/minute.mp4");
    let half = title.reach.iter().find(|reach| reach.until >= Duration::from_secs(30)).unwrap();
    assert!((5_000_000..10_000_000).contains(&half.offset), "{half:?}");
}

#[test]
fn a_title_begins_with_its_media() {
    // tfdt of 1000 s; an empty edit of 10 s.
    begins_with_its_media(&made(), "mp4/fragmented-late.mp4", 3.9..4.2);
    begins_with_its_media(&made(), "mp4/late.mp4", 3.9..4.2);
}

#[test]
#[ignore = "corpus"]
fn corpus_a_title_begins_with_its_media() {
    // tfdt of 143,165 s; of 10 s.
    begins_with_its_media(&corpus(), "mp4/androidx_sample_fragmented_uuid.mp4", 0.9..1.2);
    begins_with_its_media(&corpus(), "mp4/mp4ff_cbcsdec.mp4", 5.0..8.0);
    let late = "bbb/androidx_bbb_800x640_768kbps_30fps_avc_2b_firstpts_10_sec.mp4";
    begins_with_its_media(&corpus(), late, 3.9..4.2);
}

/// A file whose media begin late is a piece of something longer. It must still play from the start.
fn begins_with_its_media(media: &Media, path: &str, seconds: Range<f64>) {
    let title = media.title(path);
    assert!(seconds.contains(&title.duration.as_secs_f64()), "{path}: {:?}", title.duration);
    let first = title.tracks.iter().map(|track| starts(&title, track)[0]);
    assert!(first.fold(f64::MAX, f64::min).abs() < 0.05, "{path}");
    assert!(title.reach[0].until <= Duration::from_secs(4), "{path}: {:?}", title.reach[0]);
    assert!(title.samples(&title.chosen(), 0).unwrap()[0].dts < 180_000, "{path}");
    assert_eq!(title.tracks[0].segment_at(Duration::ZERO), 0);
    assert!(title.tracks[0].sync_at(Duration::ZERO) < 180_000, "{path}");
}

/// Cut at 5 s, with keyframes every 4 s: the second from 4 s on is only decoded.
#[test]
fn a_title_begins_where_its_edit_list_does() {
    let (root, library) = folder(64 << 20);
    let (whole, cut) = (root.path().join("whole.mp4"), root.path().join("cut.mp4"));
    clip(&whole, 64, 100);
    ffmpeg(&["-ss", "5", "-i", whole.to_str().unwrap(), "-c", "copy"], &cut);
    let title = library.title("cut.mp4").unwrap();
    let (index, data) = index(&cut);
    // For each sample of the title, found by its data: its presentation times in the title and in
    // the file.
    let seconds = |time: i64, timescale: u32| time as f64 / f64::from(timescale);
    let mut presented = Vec::new();
    for (track, source) in title.tracks.iter().zip(&index.tracks) {
        let timescale = track.media.timescale;
        let chunks = support::chunks(track);
        let samples: Vec<_> = chunks.iter().flat_map(|chunk| &chunk.samples).collect();
        let first = samples[0].data.as_ref();
        let place = |number: u32| {
            let entry = source.samples.get(number).unwrap();
            let at = usize::try_from(entry.offset).unwrap();
            (entry.pts(), &data[at..at + entry.size as usize])
        };
        let skipped = (0..source.samples.len()).find(|number| place(*number).1 == first).unwrap();
        let times = samples.iter().zip(skipped..).map(|(sample, number)| {
            let (pts, data) = place(number);
            assert_eq!(sample.data, data);
            let shown = sample.pts() - title.shift.in_timescale(timescale);
            (seconds(shown, timescale), seconds(pts, timescale))
        });
        presented.push(times.collect::<Vec<_>>());
        // Samples are decoded one after the other, and each lasts until the next. None is shown
        // before it is decoded.
        for pair in samples.windows(2) {
            assert_eq!(pair[0].dts + i64::from(pair[0].duration), pair[1].dts);
            assert!(pair[0].duration > 0);
        }
        assert!(samples.iter().all(|sample| sample.cts >= 0 && sample.dts >= 0));
    }
    let [video, audio] = &presented[..] else { panic!("{}", presented.len()) };
    let (lead, shown): (Vec<_>, Vec<_>) = video.iter().partition(|(_, file)| *file < 0.0);
    assert_eq!((lead.len(), shown.len()), (25, 125));
    let begins = shown.iter().map(|(at, _)| *at).fold(f64::MAX, f64::min);
    // Together they last less than a visible frame, and the frames after them have kept their
    // times.
    assert!((0.0..0.005).contains(&begins), "{begins}");
    assert!(shown.iter().all(|(at, file)| (at - file - begins).abs() < 1e-4), "{shown:?}");
    let mut hidden: Vec<f64> = lead.iter().map(|(at, _)| *at).collect();
    hidden.sort_by(f64::total_cmp);
    assert!(hidden[0] >= 0.0 && hidden.windows(2).all(|pair| pair[0] < pair[1]), "{hidden:?}");
    assert!(hidden.iter().all(|at| *at < begins), "{hidden:?}");
    // The sound is heard with its pictures. Some sound before it prepares the decoder.
    assert!(audio.iter().all(|(at, file)| (at - file - begins).abs() < 0.001), "{audio:?}");
    assert!((-0.2..=0.0).contains(&audio[0].0), "{:?}", audio[0]);
    assert!((5.0..5.05).contains(&title.duration.as_secs_f64()), "{:?}", title.duration);
    let starts = starts(&title, &title.tracks[0]);
    assert!((0.0..0.001).contains(&starts[0]) && (starts[1] - 3.0).abs() < 0.005, "{starts:?}");
}

/// ffmpeg must show the same pictures from the segments as from the file with its edit list.
#[test]
fn shown_frames_are_those_of_the_edit_list() {
    let (root, library) = folder(64 << 20);
    let (whole, cut) = (root.path().join("whole.mp4"), root.path().join("cut.mp4"));
    clip(&whole, 64, 100);
    ffmpeg(&["-ss", "5", "-i", whole.to_str().unwrap(), "-c", "copy"], &cut);
    let title = library.title("cut.mp4").unwrap();
    let segments = root.path().join("segments.mp4");
    fs::write(&segments, support::whole(&title.tracks[0])).unwrap();
    let shown = |file: &std::path::Path| -> Vec<String> {
        let hashes = root.path().join("hashes");
        // At the file's frame rate, as on a display, where nobody sees pictures without duration.
        let rate = ["-map", "0:v", "-vf", "setpts=PTS-STARTPTS,fps=25:round=down"];
        let input = ["-i", file.to_str().unwrap()];
        ffmpeg(&[&input[..], &rate, &["-f", "framehash", "-hash", "md5"]].concat(), &hashes);
        let hashes = fs::read_to_string(&hashes).unwrap();
        let frames = hashes.lines().filter(|line| !line.starts_with('#'));
        frames.map(|line| line.rsplit(',').next().unwrap().trim().to_owned()).collect()
    };
    let (by_file, by_segments) = (shown(&cut), shown(&segments));
    assert_eq!(by_file.len(), 125);
    assert_eq!(by_segments, by_file);
}

/// A file that was cut without another encoding has an edit list that ends within a group of pictures.
#[test]
fn a_title_ends_where_its_edit_list_does() {
    let (root, library) = folder(64 << 20);
    let (whole, cut) = (root.path().join("whole.mp4"), root.path().join("cut.mp4"));
    clip(&whole, 64, 250);
    // The longest video that ends at 2 s in its edit list: the second field of the only entry of `elst`.
    fs::copy(&whole, &cut).unwrap();
    let mut bytes = fs::read(&cut).unwrap();
    let lists: Vec<_> = bytes.windows(4).enumerate().filter(|(_, four)| *four == b"elst").collect();
    let lists: Vec<usize> = lists.into_iter().map(|(at, _)| at).collect();
    assert_eq!(lists.len(), 2);
    for at in lists {
        // Version and flags, the number of entries, and then the duration in the movie's timescale, 1,000.
        assert_eq!(bytes[at + 4..at + 12], [0, 0, 0, 0, 0, 0, 0, 1]);
        bytes[at + 12..at + 16].copy_from_slice(&2_000u32.to_be_bytes());
    }
    fs::write(&cut, bytes).unwrap();
    let title = library.title("cut.mp4").unwrap();
    assert!((2.0..2.1).contains(&title.duration.as_secs_f64()), "{:?}", title.duration);
    for track in &title.tracks {
        let timescale = f64::from(track.media.timescale);
        let shift = title.shift.in_timescale(track.media.timescale);
        let chunks = support::chunks(track);
        let times =
            chunks.iter().flat_map(|chunk| &chunk.samples).map(|sample| sample.pts() - shift);
        let last = times.max().unwrap() as f64 / timescale;
        assert!((1.9..2.1).contains(&last), "{}: {last}", track.name);
    }
}

/// A remux may change the shape of pixels and the colours in the container alone.
#[test]
fn frames_are_shown_as_the_container_says() {
    let (root, library) = folder(64 << 20);
    let (coded, wide) = (root.path().join("coded.mp4"), root.path().join("wide.mp4"));
    let picture = ["-f", "lavfi", "-i", "testsrc2=s=64x36:r=25:d=2", "-c:v", "libx264"];
    let colours = ["-color_primaries", "bt2020", "-color_trc", "smpte2084"];
    ffmpeg(&[&picture[..], &colours].concat(), &coded);
    let none = "h264_metadata=colour_primaries=2:transfer_characteristics=2";
    let copy = ["-i", coded.to_str().unwrap(), "-c", "copy", "-aspect", "4:1", "-bsf:v", none];
    ffmpeg(&[&copy[..], &["-movflags", "+write_colr"]].concat(), &wide);

    let title = library.title("wide.mp4").unwrap();
    let segments = root.path().join("segments.mp4");
    fs::write(&segments, support::whole(&title.tracks[0])).unwrap();
    let shape = |file: &std::path::Path| {
        let show = ["-v", "error", "-show_entries", "stream=sample_aspect_ratio", "-of", "csv=p=0"];
        let mut ffprobe = std::process::Command::new("ffprobe");
        let text = testkit::Program::output(ffprobe.args(show).arg(file), Duration::from_secs(60));
        String::from_utf8(text).unwrap()
    };
    assert_eq!(shape(&segments).trim(), "9:4");
    let [from, to] = [&wide, &segments].map(|file| index(file).0.tracks.remove(0));
    assert_eq!(to.display(0), from.display(0));
    let properties = from.display(0).properties;
    let has = |kind: &[u8]| properties.windows(kind.len()).any(|bytes| bytes == kind);
    assert!(has(b"pasp") && has(b"colrnclx"), "{properties:?}");
    // One header for all tracks says so too, as that of the download does.
    let together = media::mp4::Index::read(&title.header(&[0]).unwrap()).unwrap();
    assert_eq!(together.tracks[0].display(0), from.display(0));
}

/// One picture, without a duration in the file.
#[test]
#[ignore = "corpus"]
fn corpus_what_lasts_no_time_is_given_some() {
    let title = corpus().title("corrupt/mp4parse_hevc_white_frame.mp4");
    assert!(title.duration >= Duration::from_millis(1), "{:?}", title.duration);
}

#[test]
fn samples_without_a_duration_are_given_one() {
    let (root, library) = folder(64 << 20);
    let made = root.path().join("one.mp4");
    let mut arguments =
        vec!["-f", "lavfi", "-i", "testsrc2=s=64x36:r=25:d=0.04", "-c:v", "libx264"];
    arguments.extend(["-movflags", "+frag_keyframe+empty_moov+default_base_moof"]);
    ffmpeg(&arguments, &made);
    let mut bytes = fs::read(&made).unwrap();
    // Its duration in tfhd, and in trex.
    let (index, _) = index(&made);
    let before = index.tracks[0].samples.get(0).unwrap().duration.to_be_bytes();
    let at: Vec<_> = (0..bytes.len() - 4).filter(|at| bytes[*at..].starts_with(&before)).collect();
    for at in at {
        bytes[at..at + 4].fill(0);
    }
    fs::write(&made, &bytes).unwrap();
    let title = library.title("one.mp4").unwrap();
    assert_eq!(title.duration, Duration::from_millis(40));
    let [segment] = support::chunks(&title.tracks[0]).try_into().unwrap();
    let timescale = title.tracks[0].media.timescale;
    assert_eq!(segment.samples[0].duration, timescale / 25);
    assert_eq!(title.tracks[0].segments().next().unwrap().duration, u64::from(timescale / 25));
}

#[test]
fn rates_agree_with_ffprobe() {
    let title = made().title("mp4/minute.mp4");
    let packets = testkit::ffprobe_packets(media("mp4/minute.mp4"));
    for (track, kind) in title.tracks.iter().zip(["video", "audio"]) {
        let size: u64 = packets.iter().filter(|p| p.kind == kind).map(|p| p.size).sum();
        let exact = (size * 8) as f64 / 60.15;
        let average = track.bandwidth.average as f64;
        // The boxes take some bytes as well.
        assert!(average > exact && average < exact * 1.05, "{kind}: {average} of {exact}");
        assert!(track.bandwidth.peak >= track.bandwidth.average);
        assert_eq!(track.media.kind() == Kind::Video, track.frame_rate.is_some());
    }
    let rate = title.tracks[0].frame_rate.unwrap();
    assert_eq!((rate.frames, rate.seconds), (30, 1));
    assert_eq!(rate.per_second(), 30.0);
}
