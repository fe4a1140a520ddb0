//! Publishers that are one too many, go away, or send unusable media. The good part of their media
//! goes on.

use std::io::{ErrorKind, Read};
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use media::flv::{Message, TagKind};
use testkit::http::Client as Http;
use testkit::{Program, eventually};

use testkit::rtmp::Client;

use crate::support::{BINARY, LIMIT, Origin, Playlist, brisk, clip};
use crate::watcher::Watcher;

/// Sends the clip's messages from one time to another, in milliseconds, as fast as the server takes
/// them. Sequence headers come first, whatever their time.
fn send_clip(client: &mut Client, from: u32, to: u32) {
    send_changed(client, from, to, |message| Some((message.timestamp(), message.payload())));
}

fn send_changed(
    client: &mut Client,
    from: u32,
    to: u32,
    mut change: impl FnMut(&Message) -> Option<(u32, Bytes)>,
) {
    let (headers, samples) = clip().split_at(2);
    let wanted = samples.iter().filter(|message| (from..to).contains(&message.timestamp()));
    for message in headers.iter().chain(wanted) {
        if let Some((time, payload)) = change(message) {
            client.tag(message.kind(), time, payload);
        }
    }
}

fn is_sample(message: &Message) -> bool {
    !clip()[..2].iter().any(|header| std::ptr::eq(header, message))
}

#[test]
fn second_publisher_on_a_live_name() {
    let origin = Origin::start("");
    let first = origin.publish("live/taken", &["--loop"]);
    origin.playlist("live/taken", "v0");
    let watcher = Watcher::start(origin.http, "live/taken");
    for options in [["--loop"], ["--fast"]] {
        let second = origin.publish("live/taken", &options).wait(LIMIT);
        assert_eq!(second.status.code(), Some(2), "{second:?}");
        assert!(second.stderr.contains("NetStream.Publish.BadName"), "{second:?}");
        // A stranger does not learn the first publisher's address.
        assert!(second.stderr.contains("already published"), "{second:?}");
        assert!(!second.stderr.contains("published by"), "{second:?}");
    }
    let line = origin.log_line(LIMIT, |line| line.contains("publish refused"));
    assert!(line.contains(" WARN ") && line.contains("stream=\"taken\""), "{line}");
    assert!(line.contains("already published by 127.0.0.1:"), "{line}");
    // The first publisher goes on undisturbed.
    watcher.finish();
    drop(first);
}

#[test]
fn silent_publisher_is_replaced() {
    // After three times this long, the server closes the first publisher by itself. On a busy machine
    // the second one may be late by less than that.
    const SILENCE: Duration = Duration::from_secs(6);
    let origin = Origin::start(&brisk(&format!("silence = \"{SILENCE:?}\"")));
    let begun = Instant::now();
    let mut first = Client::publish(origin.rtmp, "live/silent");
    send_clip(&mut first, 0, 1000);
    let mut second = loop {
        match Client::try_publish(origin.rtmp, "live/silent") {
            Ok(second) => break second,
            Err(code) => assert_eq!(code, "NetStream.Publish.BadName"),
        }
        assert!(begun.elapsed() < LIMIT, "never replaced");
        std::thread::sleep(Duration::from_millis(50));
    };
    // The silence began later than `begun`.
    assert!(begun.elapsed() >= SILENCE, "{:?}", begun.elapsed());
    let line = origin.log_line(LIMIT, |line| line.contains("silent publisher replaced"));
    assert!(line.contains(&format!("peer={}", first.address())), "{line}");
    send_clip(&mut second, 0, 4000);
    second.finish();
    let playlist = origin.playlist("live/silent", "v0");
    assert!(playlist.discontinuities() > 0 || playlist.first_msn() > 1, "{playlist:?}");
    // The server closes the connection of the replaced publisher.
    assert!(first.is_closed_within(LIMIT));
    let line = origin.warning(first.address());
    assert!(line.contains("another publisher took over"), "{line}");
    assert_eq!(origin.warnings(first.address()).len(), 1, "{}", origin.log());
}

#[test]
fn publisher_that_says_nothing_more_is_closed() {
    let origin = Origin::start(&brisk("silence = \"5s\""));
    let mut client = Client::publish(origin.rtmp, "live/quiet");
    send_clip(&mut client, 0, 1000);
    assert!(client.is_closed_within(LIMIT));
    origin.warning(client.address());
    let warnings = origin.warnings(client.address());
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("no whole message was published for 15s"), "{warnings:?}");
    assert!(warnings[0].contains("stream=\"quiet\""), "{warnings:?}");
    origin.get_until("/api/v1/streams/live/quiet", LIMIT, |r| r.text().contains("offline"));
}

/// A part may be short only where it ends a segment (RFC 8216bis 4.4.4.9). What a publisher sent before it became silent
/// is a part, but nobody is silent to whom the server did not listen.
#[test]
fn media_that_come_while_the_server_stands_still_are_cut_into_whole_parts() {
    let short = "target_duration = \"1s\"\nwindow = \"4s\"";
    let brisk = brisk("reconnect = \"1s\"");
    assert!(brisk.contains(short));
    let origin = Origin::start(&brisk.replace(short, "target_duration = \"1m\"\nwindow = \"4m\""));
    let begun = Instant::now();
    let mut turns = 0..;
    let (stream, mut client) = loop {
        assert!(begun.elapsed() < LIMIT, "the server always seems to listen to a silent publisher");
        let stream = format!("live/still{}", turns.next().unwrap());
        let mut client = Client::publish(origin.rtmp, &stream);
        let sent = Instant::now();
        // The open part has media of 100 ms.
        send_clip(&mut client, 0, 1100);
        origin.playlist(&stream, "v0");
        origin.pause();
        // If this test was not run meanwhile, the publisher was silent to a server that listened.
        if sent.elapsed() < Duration::from_secs(2) {
            break (stream, client);
        }
        origin.resume();
    };
    std::thread::sleep(Duration::from_secs(5));
    send_clip(&mut client, 1100, 3000);
    origin.resume();
    client.finish();
    for track in ["v0", "a0"] {
        let playlist = Playlist(origin.until_ended(&stream, track, LIMIT));
        let least = 0.85 * playlist.value("#EXT-X-PART-INF:PART-TARGET=").parse::<f64>().unwrap();
        let segments = playlist.0.split("#EXTINF:").map(|segment| {
            let parts = segment.split("#EXT-X-PART:DURATION=").skip(1);
            parts.map(|part| part.split(',').next().unwrap().parse().unwrap()).collect::<Vec<f64>>()
        });
        let whole: Vec<_> = segments.filter_map(|mut parts| parts.pop().map(|_| parts)).collect();
        assert!(whole.iter().any(|parts| !parts.is_empty()), "{}", playlist.0);
        assert!(whole.iter().flatten().all(|part| *part >= least - 1e-5), "{}", playlist.0);
    }
}

#[test]
fn publisher_that_ends_in_order_is_not_complained_about() {
    // The client has no role again until it sees the stream offline, and may be late itself.
    let origin = Origin::start("[rtmp]\nsetup_timeout = \"1m\"\n");
    let mut client = Client::publish(origin.rtmp, "live/orderly");
    send_clip(&mut client, 0, 5500);
    client.session.close();
    client.flush();
    let closed =
        origin.get_until("/api/v1/streams/live/orderly", LIMIT, |r| r.text().contains("offline"));
    assert_eq!(closed.status(), 200);
    let peer = client.address();
    client.finish();
    assert!(origin.warnings(peer).is_empty(), "{}", origin.log());
}

#[test]
fn publisher_drops_and_returns() {
    let origin = Origin::start("");
    let mut first = Client::publish(origin.rtmp, "live/back");
    send_clip(&mut first, 0, 6000);
    let mut viewer = Http::connect(origin.http, LIMIT).unwrap();
    viewer.send("GET", "/live/back/live.flv", &[], b"").unwrap();
    let (head, mut body) = viewer.begin().unwrap();
    assert_eq!(head.status, 200);
    body.read_exact(&mut [0; 100]).unwrap();
    let before = origin.playlist("live/back", "v0");
    // The first publisher vanishes without any message.
    drop(first);
    origin.get_until("/api/v1/streams/live/back", LIMIT, |r| r.text().contains("offline"));
    let path = format!("/live/back/v0/media.m3u8?_HLS_msn={}", before.open_msn());
    let waiting = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| origin.get(&path));
        let mut second = Client::publish(origin.rtmp, "live/back");
        send_clip(&mut second, 0, 6000);
        second.finish();
        waiting.join().unwrap()
    });
    assert_eq!(waiting.status(), 200, "{waiting:?}");
    let after = origin.playlist("live/back", "v0");
    // Nothing is renumbered, and the playlist marks where the second publisher begins.
    assert_eq!(after.first_msn(), before.first_msn());
    assert!(after.open_msn() > before.open_msn(), "{after:?}");
    assert_eq!((before.discontinuities(), after.discontinuities()), (0, 1), "{after:?}");
    // The viewer of an endless response gets the rest on the same connection.
    body.read_exact(&mut vec![0; 300_000]).unwrap();
    assert!(!origin.probe("live/back", "v0").is_empty());
}

/// The log tells when a stream was published and how much came, however its publisher left.
#[test]
fn a_publisher_that_leaves_is_told_of() {
    let origin = Origin::start("");
    let bytes: usize = clip().iter().map(|message| message.payload().len()).sum();
    let orderly = |client: Client| client.finish();
    // It leaves without any message. The server takes what came before.
    let silent = |mut client: Client| {
        client.socket.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(client.is_closed_within(LIMIT));
    };
    for (name, leave) in [("order", orderly as fn(Client)), ("silent", silent)] {
        let rendition = format!("live/{name}?rendition=low");
        for stream in [format!("live/{name}"), rendition] {
            let mut client = Client::publish(origin.rtmp, &stream);
            let peer = client.address();
            clip().iter().for_each(|message| client.send(message));
            leave(client);
            let line = origin.log_line(LIMIT, |line| {
                line.contains("publisher left") && line.contains(&format!("peer={peer} "))
            });
            assert!(line.contains(" INFO ") && line.contains(" after="), "{line}");
            assert!(line.contains(&format!("stream=\"{name}\"")), "{line}");
            assert_eq!(line.contains("rendition=\"low\""), stream.contains("low"), "{line}");
            assert!(line.contains(&format!("bytes={bytes}")), "{line}");
        }
    }
}

/// Waits for the log line about an unusable track or tag. It names stream, peer and tag.
#[track_caller]
fn problem(origin: &Origin, stream: &str, says: &str) -> String {
    let line = origin.log_line(LIMIT, |line| line.contains(" WARN ") && line.contains(says));
    assert!(line.contains(&format!("stream=\"{stream}\"")), "{line}");
    assert!(line.contains(" peer=127.0.0.1:"), "{line}");
    let after = line.split_once("tag ").unwrap_or_else(|| panic!("no tag: {line}")).1;
    assert!(after.starts_with(|c: char| c.is_ascii_digit()), "{line}");
    line
}

#[track_caller]
fn assert_only(origin: &Origin, stream: &str, tracks: &[&str]) {
    let playlist = origin.get_until(&format!("/{stream}/index.m3u8"), LIMIT, |r| r.status() == 200);
    for track in ["v0", "a0"] {
        let offered = playlist.text().contains(&format!("{track}/media.m3u8"));
        assert_eq!(offered, tracks.contains(&track), "{track}: {}", playlist.text());
    }
}

#[test]
fn unsupported_codec_mp3_beside_good_video() {
    let origin = Origin::start("");
    let ffmpeg = Program::spawn(
        Command::new("ffmpeg")
            .args(["-nostdin", "-loglevel", "error", "-i"])
            .arg(testkit::demo_clip())
            .args(["-t", "6", "-c:v", "copy", "-c:a", "libmp3lame", "-ar", "44100", "-f", "flv"])
            .arg(origin.rtmp_url("live/mp3")),
    );
    assert!(ffmpeg.wait(LIMIT).status.success());
    let line = problem(&origin, "mp3", "audio track 0");
    assert!(line.contains("not supported"), "{line}");
    assert_only(&origin, "live/mp3", &["v0"]);
    // ffmpeg sent six seconds. The last segment is not complete.
    assert!(origin.probe("live/mp3", "v0").len() >= 120);
    assert_eq!(origin.whole_log().matches("publisher's media").count(), 1, "{}", origin.log());
}

#[test]
fn unsupported_codec_sorenson_beside_good_audio() {
    let origin = Origin::start("");
    let mut client = Client::publish(origin.rtmp, "live/h263");
    send_changed(&mut client, 0, 6000, |message| {
        let payload = match message.kind() {
            TagKind::Video => Bytes::from_static(&[0x22, 0, 0, 0x84, 0]),
            _ => message.payload(),
        };
        Some((message.timestamp(), payload))
    });
    client.finish();
    let line = problem(&origin, "h263", "video track 0");
    assert!(line.contains("not supported"), "{line}");
    assert_only(&origin, "live/h263", &["a0"]);
    assert!(origin.probe("live/h263", "a0").len() >= 100);
    assert_eq!(origin.whole_log().matches("publisher's media").count(), 1, "{}", origin.log());
}

#[test]
fn unsupported_codec_ac3_in_enhanced_tags() {
    let origin = Origin::start("");
    let mut client = Client::publish(origin.rtmp, "live/ac3");
    send_changed(&mut client, 0, 6000, |message| {
        let payload = match message.kind() {
            // Sequence start, then coded frames.
            TagKind::Audio => {
                let mut tag = BytesMut::from(&[0x90 | u8::from(is_sample(message))][..]);
                tag.put_slice(b"ac-3");
                tag.put_slice(&[0x0b, 0x77, 1, 2, 3]);
                tag.freeze()
            }
            _ => message.payload(),
        };
        Some((message.timestamp(), payload))
    });
    client.finish();
    let line = problem(&origin, "ac3", "audio track 0");
    assert!(line.contains("ac-3") && line.contains("not supported"), "{line}");
    assert_only(&origin, "live/ac3", &["v0"]);
    assert!(origin.probe("live/ac3", "v0").len() >= 120);
    assert_eq!(origin.whole_log().matches("publisher's media").count(), 1, "{}", origin.log());
}

#[test]
fn broken_bitstream() {
    let origin = Origin::start("");
    let mut client = Client::publish(origin.rtmp, "live/broken");
    let (mut pictures, mut broken) = (0, 0);
    send_changed(&mut client, 0, 8000, |message| {
        let mut payload = BytesMut::from(&message.payload()[..]);
        if message.kind() == TagKind::Video && is_sample(message) {
            pictures += 1;
            if pictures % 7 == 0 {
                broken += 1;
                // The length of the first NAL unit goes beyond the end.
                payload[5..9].copy_from_slice(&0x00ff_ffffu32.to_be_bytes());
            }
        }
        Some((message.timestamp(), payload.freeze()))
    });
    client.finish();
    let line = problem(&origin, "broken", "video track 0");
    assert!(line.contains("sample dropped") && line.contains("at byte"), "{line}");
    // The log has a few lines, then a count of the rest.
    let log = origin.whole_log();
    let told = log.lines().filter(|line| line.contains("sample dropped")).count();
    assert_eq!(told, 3, "{log}");
    let rest = origin.log_line(LIMIT, |line| line.contains("further problems"));
    assert!(rest.contains(&format!("unlogged={}", broken - told)), "{rest}, {broken} in all");
    // The good frames are there, each once, and so is the audio.
    assert_only(&origin, "live/broken", &["v0", "a0"]);
    let video = origin.probe("live/broken", "v0");
    assert!(video.len() > 100, "{}", video.len());
    assert!(origin.probe("live/broken", "a0").len() > 200);
}

#[test]
fn a_track_of_nothing_but_broken_samples_holds_up_nobody() {
    /// Pause between one second of media and the next.
    const PACE: Duration = Duration::from_millis(500);
    let origin = Origin::start(&brisk("silence = \"4s\""));
    let mut client = Client::publish(origin.rtmp, "live/half");
    let send = |client: &mut Client, from, to| {
        send_changed(client, from, to, |message| {
            let mut payload = BytesMut::from(&message.payload()[..]);
            if message.kind() == TagKind::Video && is_sample(message) {
                payload[5..9].fill(0xff);
            }
            Some((message.timestamp(), payload.freeze()))
        });
    };
    std::thread::scope(|scope| {
        // The publisher goes on until this is dropped, also while a request waits for an answer.
        let (_goes_on, ends) = mpsc::channel::<()>();
        scope.spawn(move || {
            for second in 0.. {
                send(&mut client, second * 1000, second * 1000 + 1000);
                if ends.recv_timeout(PACE) == Err(mpsc::RecvTimeoutError::Disconnected) {
                    break;
                }
            }
        });
        // Manifests wait for an announced track, but only as long as it may be silent.
        eventually(LIMIT, "the audio is offered alone", || {
            let playlist = origin.get("/live/half/a0/media.m3u8");
            let offered = origin.get("/api/v1/streams/live/half");
            playlist.status() == 200 && !offered.text().contains("\"v0\"")
        });
    });
    assert_only(&origin, "live/half", &["a0"]);
    problem(&origin, "half", "sample dropped");
}

#[test]
fn time_that_jumps_or_runs_back() {
    let hour = 3_600_000;
    for (name, by) in [("ahead", hour), ("back", -hour), ("little", -700i64)] {
        let origin = Origin::start("");
        let mut client = Client::publish(origin.rtmp, &format!("live/{name}"));
        let base = 2 * hour;
        send_changed(&mut client, 0, 12_000, |message| {
            let mut time = base + i64::from(message.timestamp());
            if message.timestamp() >= 6000 {
                time += by;
            }
            Some((u32::try_from(time).unwrap(), message.payload()))
        });
        client.finish();
        let way = if by > 0 { "jumps ahead by" } else { "jumps back by" };
        let line = problem(&origin, name, way);
        assert!(line.contains(" track 0: time "), "{line}");
        let log = origin.whole_log();
        assert_eq!(log.matches("time jumps").count(), 1, "one line for both tracks:\n{log}");
        // All twelve seconds are there on one timeline. Nothing stalled.
        let playlist = origin.playlist(&format!("live/{name}"), "v0");
        assert!(playlist.segments().len() >= 5, "{playlist:?}");
        // A jump back of less than a second may also be held.
        let told = if name == "little" { 0..=1 } else { 1..=1 };
        assert!(told.contains(&playlist.discontinuities()), "{playlist:?}");
        for track in ["v0", "a0"] {
            let packets = origin.probe(&format!("live/{name}"), track);
            let times: Vec<_> = packets.iter().filter_map(|packet| packet.dts_time).collect();
            assert!(times.len() > 200, "{name} {track}: {}", times.len());
            for pair in times.windows(2) {
                let step = pair[1] - pair[0];
                assert!((0.0..1.0).contains(&step), "{name} {track}: {pair:?}");
            }
        }
    }
}

/// Each jump of a clock makes every viewer's player start anew, and adds a period to manifests. A
/// publisher whose clock jumps with each frame is told so and disconnected, with one line in the
/// log. Playlists and manifests of the stream stay small.
#[test]
fn a_clock_that_jumps_with_each_frame() {
    let origin = Origin::start("");
    let mut client = Client::publish(origin.rtmp, "live/jumpy");
    let mut frames = 0;
    send_changed(&mut client, 0, 8000, |message| {
        if message.kind() != TagKind::Video {
            return None;
        }
        frames += u32::from(is_sample(message));
        // Before that come some seconds of media.
        let jumps = if frames > 100 { frames % 2 } else { 0 };
        Some((message.timestamp() + jumps * 100_000, message.payload()))
    });
    is_refused_in_one_line(&origin, &mut client, "jumpy");
}

/// So is a publisher whose configuration changes with each frame.
#[test]
fn a_configuration_that_changes_with_each_frame() {
    let origin = Origin::start("");
    let mut client = Client::publish(origin.rtmp, "live/changes");
    let mut video = clip().iter().filter(|message| message.kind() == TagKind::Video);
    let header = video.next().unwrap().payload();
    for (number, message) in (0..100).zip(video) {
        // Nobody reads what follows the parameter sets.
        let changed = [&header[..], &[number]].concat();
        client.tag(TagKind::Video, message.timestamp(), changed.into());
        client.tag(TagKind::Video, message.timestamp(), message.payload());
    }
    is_refused_in_one_line(&origin, &mut client, "changes");
}

/// Asserts that a publisher is told why it may not go on, with a line in the log, and that its stream is small.
#[track_caller]
fn is_refused_in_one_line(origin: &Origin, client: &mut Client, stream: &str) {
    let peer = client.address();
    // The last message before the connection is closed gives the reason.
    let mut told = Vec::new();
    if let Err(error) = client.socket.read_to_end(&mut told) {
        // The server closes a connection that still has something to be read two seconds later.
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "it is told, and the connection ends");
    }
    let told = String::from_utf8_lossy(&told);
    let reason = "its clock jumped, it paused, or its tracks changed, too often within a minute";
    assert!(told.contains("NetStream.Failed") && told.contains(reason), "{told}");
    origin.log_line(LIMIT, |line| line.contains(" WARN ") && line.contains(reason));
    let warnings = origin.warnings(peer);
    let of_end = warnings.iter().filter(|line| line.contains(reason));
    assert_eq!(of_end.count(), 1, "{warnings:?}");
    // The log tells of a few jumps as well, then how many more there were.
    assert!(warnings.len() <= 5, "{warnings:?}");
    for path in ["index.m3u8", "v0/media.m3u8", "manifest.mpd"] {
        let answer = origin.get(&format!("/live/{stream}/{path}"));
        assert_eq!(answer.status(), 200, "{path}: {answer:?}");
        assert!(answer.body.len() < 100_000, "{path}: {} bytes", answer.body.len());
    }
}

#[test]
fn a_file_published_by_a_stranger_to_no_stream() {
    let origin = Origin::start("");
    for (name, code) in [
        ("elsewhere/x", "NetStream.Publish.BadName"),
        ("live/.hidden", "NetStream.Publish.BadName"),
        ("live/a b", "NetStream.Publish.BadName"),
    ] {
        assert_eq!(Client::try_publish(origin.rtmp, name).err().as_deref(), Some(code), "{name}");
        origin.log_line(LIMIT, |line| line.contains(" WARN ") && line.contains("publish refused"));
    }
    // The publisher finds out that a file has no media before it sends anything.
    let text = testkit::demo_clip().with_extension("txt");
    let finished =
        testkit::headwater_publish(BINARY, text, "rtmp://127.0.0.1:1/live/x", &[]).wait(LIMIT);
    assert_eq!(finished.status.code(), Some(2), "{finished:?}");
}

/// The memory of all streams has a limit. When it is nearly reached, further streams are refused
/// with a reason, and the present ones go on.
#[test]
fn more_streams_than_there_is_memory_for() {
    let origin = Origin::start(&brisk("memory = \"16MiB\"\nsilence = \"1m\""));
    let mut first = Client::publish(origin.rtmp, "live/first");
    let headers = clip().iter().take(2);
    headers.for_each(|header| first.send(header));
    // Many keyframes of 80 KiB: a window of these is 16 MiB.
    let mut frame = vec![0x17, 1, 0, 0, 0, 0, 1, 0x3f, 0xfc, 0x65];
    frame.resize(5 + (80 << 10), 0x88);
    let frame = Bytes::from(frame);
    let mut at = 0;
    let mut publish = |first: &mut Client, frames: u32| {
        for _ in 0..frames {
            first.tag(TagKind::Video, at * 33, frame.clone());
            at += 1;
        }
    };
    publish(&mut first, 175);
    let used = |response: &testkit::http::Response| {
        let mut lines = response.text().lines();
        let line = lines.find_map(|line| line.strip_prefix("headwater_live_memory_bytes "));
        line.expect("a gauge").parse::<u64>().expect("a number")
    };
    origin.get_until("/metrics", LIMIT, |response| used(response) > 13 << 20);
    let begun = Instant::now();
    let mut refused = 0;
    for turn in 0.. {
        publish(&mut first, 1);
        // A stream that holds nearly all the memory gives up some when it is swept.
        while used(&origin.metrics()) <= 13 << 20 {
            publish(&mut first, 10);
        }
        match Client::try_publish(origin.rtmp, &format!("live/late-{turn}")) {
            Err(code) => {
                assert_eq!(code, "NetStream.Publish.Denied");
                refused += 1;
            }
            // A busy machine has swept the first stream just before this one came.
            Ok(_) => assert!(begun.elapsed() < LIMIT, "{}", origin.log()),
        }
        if refused == 3 {
            break;
        }
    }
    let line = origin.log_line(LIMIT, |line| line.contains("publish refused"));
    assert!(line.contains("the memory for live streams, 16777216 bytes, is used up"), "{line}");
    publish(&mut first, 825);
    assert!(used(&origin.metrics()) <= 16 << 20);
    // The publisher says nothing more, so the server would close it after a while.
    first.finish();
    let playlist = origin.playlist("live/first", "v0");
    assert!(!playlist.segments().is_empty());
    origin.log_line(LIMIT, |line| line.contains("live.memory is nearly used up"));
}
