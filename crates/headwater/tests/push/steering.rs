//! Viewers of titles that seek, pause and choose renditions; and files that change meanwhile.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::SocketAddr;
use std::path::Path;

use rustix::fs::{Advice, fadvise, fstatfs};
use serde_json::{Value, json};
use testkit::push::{Client, Frame};
use testkit::{eventually, narrow_socket, track_of, uninterrupted};

use crate::support::{LIMIT, metric};
use crate::titles::{ffmpeg, media, segments, server};

const LONG: &str = "mp4/two-minutes.mp4";
const LARGE: &str = "mp4/film.mp4";

/// `TMPFS_MAGIC` of linux/magic.h: a file system whose files are always in memory.
const TMPFS: u64 = 0x0102_1994;

fn is_event(frame: &Frame, name: &str) -> bool {
    frame.opcode == 1 && frame.event()["event"] == name
}

/// The next media message of the track with this number.
#[track_caller]
fn next_of(client: &mut Client, track: u32) -> Vec<u8> {
    let is_segment = |frame: &Frame| frame.opcode == 2 && frame.payload[4..8] != *b"ftyp";
    client.until(|frame| is_segment(frame) && track_of(&frame.payload) == track).payload
}

/// Index of the segment that a message is.
#[track_caller]
fn number(segments: &[Vec<u8>], message: &[u8]) -> usize {
    segments.iter().position(|segment| segment == message).expect("a segment of the playlist")
}

/// Waits until the server has done all earlier commands. Returns the frames that came before.
#[track_caller]
fn settle(client: &mut Client) -> Vec<Frame> {
    client.send(0x89, b"settled");
    let mut before = Vec::new();
    loop {
        let frame = client.next().unwrap();
        if frame.opcode == 10 {
            return before;
        }
        before.push(frame);
    }
}

#[test]
fn a_viewer_goes_to_any_second() {
    let server = server(&testkit::media_dir(), "");
    let (video, audio) = (segments(&server, LONG, "v0"), segments(&server, LONG, "a0"));
    let numbers = (track_of(&video[0]), track_of(&audio[0]));
    let playlist = server.get(&format!("/vod/{LONG}/v0/media.m3u8"));
    let durations = playlist.text().lines().filter_map(|line| line.strip_prefix("#EXTINF:"));
    let mut ends: Vec<f64> = Vec::new();
    for duration in durations {
        let seconds: f64 = duration.trim_end_matches(',').parse().unwrap();
        ends.push(ends.last().unwrap_or(&0.0) + seconds);
    }
    // A segment begins with a keyframe, so a seek goes to the segment that contains the time.
    let at = |time: f64| ends.iter().position(|end| time < *end).unwrap_or(ends.len() - 1);

    let path = format!("/vod/{LONG}/push?pace=realtime&from=60.5");
    let mut client = Client::connect(server.http, &path);
    let first = next_of(&mut client, numbers.0);
    assert_eq!(number(&video, &first), at(60.5));
    for time in [100.2, 3.0, 61.0, 0.0, 110.0, 44.4] {
        client.say(&json!({"seek": time}).to_string());
        let event = client.until(|frame| is_event(frame, "discontinuity")).event();
        assert_eq!(event["reason"], "seek");
        // The audio of that time comes as well.
        let (mut of_video, mut of_audio) = (None, None);
        while of_video.is_none() || of_audio.is_none() {
            let frame = client.until(|frame| frame.opcode == 2);
            let (place, list) = match track_of(&frame.payload) == numbers.0 {
                true => (&mut of_video, &video),
                false => (&mut of_audio, &audio),
            };
            place.get_or_insert(number(list, &frame.payload));
        }
        assert_eq!(of_video, Some(at(time)), "{time}");
        let audio = of_audio.unwrap();
        assert!(audio <= at(time) && audio + 1 >= at(time), "{time} {audio}");
    }
    // A seek beyond the end goes to the last segment.
    client.say(r#"{"seek": 1e9}"#);
    client.until(|frame| is_event(frame, "discontinuity"));
    assert_eq!(number(&video, &next_of(&mut client, numbers.0)), video.len() - 1);
    client.until(|frame| is_event(frame, "end"));
    assert_eq!(client.closed(), 1000);

    let mut client = Client::connect(server.http, &format!("/vod/{LONG}/push?pace=realtime"));
    for _ in 0..500 {
        client.say(r#"{"seek": 7}"#);
    }
    assert_eq!(client.closed(), 1008);
}

#[test]
fn a_viewer_in_real_time_that_pauses_is_sent_the_rest() {
    let server = server(&testkit::media_dir(), "");
    let video = segments(&server, LARGE, "v0");
    let mut client = Client::connect(server.http, &format!("/vod/{LARGE}/push?pace=realtime"));
    let track = track_of(&video[0]);
    assert_eq!(number(&video, &next_of(&mut client, track)), 0);
    client.say(r#"{"pause": true}"#);
    let came = settle(&mut client);
    let came = came.iter().filter(|frame| frame.opcode == 2 && track_of(&frame.payload) == track);
    let came = 1 + came.count();
    client.say(r#"{"pause": false}"#);
    for expected in came..video.len() {
        assert_eq!(number(&video, &next_of(&mut client, track)), expected);
    }
    client.until(|frame| is_event(frame, "end"));
    assert_eq!(client.closed(), 1000);
}

/// Three renditions of so many seconds with the same keyframes, a second apart.
fn renditions(folder: &Path, seconds: u32) {
    for (name, rate, size) in
        [("low", "100k", "160x120"), ("medium", "300k", "320x240"), ("high", "900k", "640x480")]
    {
        let picture =
            format!("testsrc2=size={size}:rate=24:duration={seconds},noise=alls=20:allf=t");
        let sound = format!("sine=duration={seconds}");
        let file = folder.join(format!("{name}.mp4"));
        ffmpeg(
            ["-f", "lavfi", "-i", &picture, "-f", "lavfi", "-i", &sound]
                .into_iter()
                .chain(["-c:v", "libx264", "-preset", "ultrafast", "-b:v", rate, "-g", "24"])
                .chain(["-keyint_min", "24", "-sc_threshold", "0", "-pix_fmt", "yuv420p"])
                .chain(["-c:a", "aac", "-b:a", "64k", file.to_str().unwrap()]),
        );
    }
}

#[test]
fn a_folder_of_renditions_is_one_title() {
    let folder = tempfile::tempdir().unwrap();
    let movie = folder.path().join("movie");
    std::fs::create_dir(&movie).unwrap();
    // A busy machine may hold up the viewer for some seconds before it says what it wants.
    renditions(&movie, 40);
    let server = server(folder.path(), "");
    let hello = |query: &str| {
        let mut client = Client::connect(server.http, &format!("/vod/movie/push?{query}"));
        client.next().unwrap().event()
    };
    let all = hello("");
    let rates: Vec<u64> = all["renditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|each| each["bitrate"].as_u64().unwrap())
        .collect();
    assert!(rates.len() == 3 && rates[0] > rates[1] && rates[1] > rates[2], "{all}");
    assert_eq!(all["renditions"][2]["resolution"], "160x120");
    assert_eq!(all["rendition"], "v0");
    for (query, rendition) in [
        ("rendition=v1", "v1"),
        ("rendition=low", "v2"),
        ("max=1", "v2"),
        ("max=100M", "v0"),
        (&format!("max={}", rates[1]), "v1"),
        (&format!("max={}", rates[1] - 1), "v2"),
    ] {
        assert_eq!(hello(query)["rendition"], rendition, "{query}");
    }

    let all: Vec<_> =
        ["v0", "v1", "v2"].map(|track| segments(&server, "movie", track)).into_iter().collect();
    let mut client = Client::connect(server.http, "/vod/movie/push?pace=realtime&rendition=high");
    let (mut next, mut current, mut wanted) = (0, 0, [2, 1, 0].into_iter());
    let mut header = false;
    loop {
        let frame = client.next().unwrap();
        if frame.opcode == 1 {
            let event = frame.event();
            match event["event"].as_str().unwrap() {
                "hello" => {}
                "end" => break,
                "rendition" => {
                    let name = event["rendition"].as_str().unwrap();
                    current = name[1..].parse().unwrap();
                    header = false;
                }
                other => panic!("{other}"),
            }
            continue;
        }
        if frame.opcode == 9 {
            continue;
        }
        if frame.payload[4..8] == *b"ftyp" {
            header = true;
            continue;
        }
        assert!(header, "media before the header");
        if track_of(&frame.payload) > 3 {
            continue;
        }
        // No segment is left out, and none comes twice, whatever its rendition.
        assert_eq!(number(&all[current], &frame.payload), next);
        next += 1;
        match wanted.next() {
            Some(rendition) => {
                client.say(&json!({"rendition": format!("v{rendition}")}).to_string());
            }
            None if next == 4 => client.say(&json!({"rendition": null, "max": 1}).to_string()),
            None => {}
        }
    }
    assert_eq!((next, current), (all[0].len(), 2));
}

/// If the viewer changes its mind several times while nothing can be sent, there is one event.
#[test]
fn a_viewer_is_told_of_the_rendition_that_it_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let movie = folder.path().join("movie");
    std::fs::create_dir(&movie).unwrap();
    renditions(&movie, 16);
    let server = server(folder.path(), "");
    let mut client = Client::connect(server.http, "/vod/movie/push?pace=realtime&rendition=v0");
    client.until(|frame| frame.opcode == 2);
    client.say(r#"{"pause": true}"#);
    settle(&mut client);
    for _ in 0..10 {
        for rendition in 0..3 {
            client.say(&json!({"rendition": format!("v{rendition}")}).to_string());
        }
    }
    let said = settle(&mut client);
    assert!(said.iter().all(|frame| frame.opcode == 9), "{said:?}");
    client.say(r#"{"pause": false}"#);
    let event = client.until(|frame| frame.opcode == 1).event();
    assert_eq!(event, json!({"event": "rendition", "rendition": "v2"}));
    assert_eq!(client.next().unwrap().payload[4..8], *b"ftyp");
    client.say(r#"{"pause": true, "rendition": "v0"}"#);
    settle(&mut client);
    client.say(r#"{"pause": false, "rendition": "v2"}"#);
    let event = client.until(|frame| frame.opcode == 1).event();
    assert_eq!(event["event"], "end");
}

#[test]
fn renditions_with_other_keyframes_are_gone_to_where_they_allow_it() {
    let folder = tempfile::tempdir().unwrap();
    let movie = folder.path().join("movie");
    std::fs::create_dir(&movie).unwrap();
    for (name, rate, keyframes) in [("a", "100k", "36"), ("b", "900k", "60")] {
        let picture = "testsrc2=size=320x240:rate=24:duration=12,noise=alls=20:allf=t";
        let file = movie.join(format!("{name}.mp4"));
        ffmpeg(
            ["-f", "lavfi", "-i", picture, "-c:v", "libx264", "-preset", "ultrafast", "-b:v", rate]
                .into_iter()
                .chain(["-g", keyframes, "-sc_threshold", "0", file.to_str().unwrap()]),
        );
    }
    let server = server(folder.path(), "");
    let (high, low) = (segments(&server, "movie", "v0"), segments(&server, "movie", "v1"));
    let mut client = Client::connect(server.http, "/vod/movie/push?pace=realtime");
    let first = next_of(&mut client, track_of(&high[0]));
    assert_eq!(number(&high, &first), 0);
    client.say(r#"{"rendition": "a"}"#);
    let event = client.until(|frame| frame.opcode == 1 && !is_event(frame, "hello")).event();
    assert_eq!(event, json!({"event": "discontinuity", "reason": "tracks"}));
    assert_eq!(client.next().unwrap().event(), json!({"event": "rendition", "rendition": "v1"}));
    assert_eq!(client.next().unwrap().payload[4..8], *b"ftyp");
    let mut last = None;
    loop {
        let frame = client.next().unwrap();
        if frame.opcode == 1 {
            assert_eq!(frame.event()["event"], "end");
            break;
        }
        let number = number(&low, &frame.payload);
        assert!(last.is_none_or(|last| number == last + 1));
        last = Some(number);
    }
    assert_eq!(last, Some(low.len() - 1));
}

#[test]
fn a_file_that_is_not_in_memory_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("film.mp4");
    std::fs::copy(media(LARGE), &path).unwrap();
    let server = server(folder.path(), "");
    let file = File::open(&path).unwrap();
    file.sync_all().unwrap();
    let before = metric(&server, "headwater_http_cold_reads_total");
    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    let mut client = Client::connect(server.http, "/vod/film.mp4/push?pace=fast");
    let (mut sent_video, mut sent_audio) = (Vec::new(), Vec::new());
    loop {
        let frame = client.next().unwrap();
        match frame.opcode {
            2 if frame.payload[4..8] == *b"ftyp" => {}
            2 if track_of(&frame.payload) == 1 => sent_video.push(frame.payload),
            2 => sent_audio.push(frame.payload),
            _ if is_event(&frame, "end") => break,
            _ => assert!(is_event(&frame, "hello")),
        }
    }
    let (video, audio) = (segments(&server, "film.mp4", "v0"), segments(&server, "film.mp4", "a0"));
    assert!(sent_video == video && sent_audio == audio, "other bytes");
    if fstatfs(&file).unwrap().f_type.cast_unsigned() != TMPFS {
        let reads = metric(&server, "headwater_http_cold_reads_total");
        assert!(reads > before, "{before}, then {reads}");
    }
}

#[test]
fn replaced_files_play_on_and_changed_files_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("film.mp4");
    std::fs::copy(media(LARGE), &path).unwrap();
    let server = server(folder.path(), "");
    let video = segments(&server, "film.mp4", "v0");
    let track = track_of(&video[0]);
    let begin = || {
        let mut client = Client::connect(server.http, "/vod/film.mp4/push?pace=realtime");
        let first = next_of(&mut client, track);
        assert_eq!(number(&video, &first), 0);
        client.say(r#"{"pause": true}"#);
        let came = settle(&mut client).into_iter();
        let media = came.filter(|frame| frame.opcode == 2 && track_of(&frame.payload) == track);
        (client, 1 + media.count())
    };
    let (mut stays, came) = begin();
    std::fs::rename(&path, folder.path().join("old.mp4")).unwrap();
    std::fs::copy(media("mp4/surround-60.mp4"), &path).unwrap();
    stays.say(r#"{"pause": false}"#);
    for expected in came..video.len() {
        assert_eq!(number(&video, &next_of(&mut stays, track)), expected);
    }
    assert_eq!(stays.closed(), 1000);

    std::fs::copy(folder.path().join("old.mp4"), &path).unwrap();
    let (mut hears, _) = begin();
    let mut file = File::options().write(true).open(&path).unwrap();
    file.seek(SeekFrom::Start(1 << 20)).unwrap();
    file.write_all(b"something else").unwrap();
    drop(file);
    hears.say(r#"{"pause": false}"#);
    let event = hears.until(|frame| is_event(frame, "error")).event();
    assert_eq!(event["code"], "file");
    let said = event["message"].as_str().unwrap();
    assert!(said.contains("changed") && !said.contains('/'), "{said}");
    assert_eq!(hears.closed(), 1011);
    server.log_line(LIMIT, |line| line.contains("vod/film.mp4") && line.contains("changed"));
}

/// If the file no longer has the announced bytes, the connection ends: no close frame can follow
/// half a segment.
#[test]
fn a_file_that_shrinks_under_a_segment_ends_the_connection() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("film.mp4");
    std::fs::copy(media(LARGE), &path).unwrap();
    let server = server(folder.path(), "workers = 1");
    let whole = std::fs::metadata(&path).unwrap().len() as usize;
    let mut client = narrow(server.http, "/vod/film.mp4/push?pace=fast");
    // The first segment is much longer than the kernel takes at once.
    eventually(LIMIT, "it is being sent", || {
        metric(&server, "headwater_http_sent_bytes_total") > 100_000
    });
    File::options().write(true).open(&path).unwrap().set_len(1000).unwrap();
    let (mut received, mut buffer) = (0, vec![0; 64 << 10]);
    while let Ok(read @ 1..) = uninterrupted(|| client.socket.read(&mut buffer)) {
        received += read;
    }
    assert!(received < whole / 2, "{received} of {whole}");
    server.log_line(LIMIT, |line| line.contains("became shorter") && line.contains("vod/film.mp4"));
}

/// A client with a small receive buffer.
fn narrow(address: SocketAddr, path: &str) -> Client {
    Client::over(narrow_socket(address, 4 << 10).unwrap(), path)
}

#[test]
fn one_that_breaks_the_protocol_gets_no_half_segment() {
    let server = server(&testkit::media_dir(), "workers = 1");
    let path = format!("/vod/{LARGE}/push?pace=fast");
    let mut client = narrow(server.http, &path);
    client.socket.write_all(&[0x81, 1, b'x']).unwrap();
    // A client that reads on finds whole frames, and the close frame after them.
    assert_eq!(client.closed(), 1002);
}

#[test]
fn one_that_takes_nothing_is_closed_and_the_others_are_served() {
    let server = server(&testkit::media_dir(), "workers = 1\n[http]\nsend_timeout = \"20s\"\n");
    let path = format!("/vod/{LARGE}/push?pace=fast");
    let deaf: Vec<_> = (0..5).map(|_| narrow(server.http, &path)).collect();
    let closed = "headwater_slow_viewers_closed_total{delivery=\"push\",reason=\"stalled\"}";
    let mut reads = Client::connect(server.http, &path);
    reads.until(|frame| is_event(frame, "end"));
    eventually(LIMIT, "five are closed", || metric(&server, closed) == 5);
    server.log_line(LIMIT, |line| line.contains("takes nothing") && line.contains(LARGE));
    let gauge = format!("headwater_viewers{{stream=\"vod/{LARGE}\",delivery=\"push\"}}");
    drop(reads);
    eventually(LIMIT, "none is left", || metric(&server, &gauge) == 0);
    drop(deaf);
}

#[test]
fn a_server_that_shuts_down_says_so() {
    let server = server(&testkit::media_dir(), "");
    let mut client = Client::connect(server.http, &format!("/vod/{LONG}/push?pace=realtime"));
    let hello: Value = client.next().unwrap().event();
    assert!((hello["duration"].as_f64().unwrap() - 120.0).abs() < 1.0, "{hello}");
    server.terminate();
    assert_eq!(client.closed(), 1001);
}
