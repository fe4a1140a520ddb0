//! Viewers that ask for media that have gone, have not come, or never will.

use std::time::{Duration, Instant};

use media::flv::{Message, TagKind};
use testkit::eventually;
use testkit::rtmp::Client;

use crate::support::{BRISK, LIMIT, Origin, Playlist, assert_refused, brisk, clip};

/// An origin whose stream was published faster than real time, and whose publisher has gone. The
/// server waits longer for its return than any test does.
fn stopped() -> Origin {
    let origin = Origin::start(&brisk("reconnect = \"10m\""));
    let publisher = origin.publish("live/gone", &["--fast"]);
    assert!(publisher.wait(LIMIT).status.success());
    origin
}

fn is_keyframe(message: &&Message) -> bool {
    message.kind() == TagKind::Video && message.payload().starts_with(&[0x17, 1])
}

#[test]
fn segment_that_has_left_the_window() {
    let origin = stopped();
    let playlist = origin.playlist("live/gone", "v0");
    // The clip lasts 16 s in segments of 1 s. Playlists list 4 s, and 3 s more are held.
    let gone = playlist.open_msn() - 12;
    for name in [format!("{gone}.m4s"), format!("{gone}.0.m4s"), "1.m4s".to_owned()] {
        assert_refused(&origin.get(&format!("/live/gone/v0/{name}")), 404);
    }
    // Listed segments are there, and so are those that were listed a moment ago.
    let first = playlist.first_msn();
    for msn in [first, first - 1] {
        assert_eq!(origin.get(&format!("/live/gone/v0/{msn}.m4s")).status(), 200);
    }
    // A blocking reload for a segment of the past is answered at once with the present playlist.
    let path = format!("/live/gone/v0/media.m3u8?_HLS_msn={gone}");
    assert_eq!(origin.get(&path).status(), 200);
}

#[test]
fn segment_far_in_the_future() {
    let origin = stopped();
    let open = origin.playlist("live/gone", "v0").open_msn();
    for name in
        [format!("{}.m4s", open + 2), format!("{}.0.m4s", open + 2), format!("{}.m4s", u64::MAX)]
    {
        assert_refused(&origin.get(&format!("/live/gone/v0/{name}")), 400);
    }
    assert_refused(&origin.get(&format!("/live/gone/v0/{open}.99.m4s")), 400);
}

/// A viewer that closes its sending side after the request still gets the answer, however long that
/// takes. The server does not wait for one that resets its connection.
#[test]
fn blocking_reload_of_a_viewer_that_closes_its_half() {
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpStream};

    // A reload waits for three target durations.
    let short = "target_duration = \"1s\"\nwindow = \"4s\"";
    assert!(BRISK.contains(short));
    let long = BRISK.replace(short, "target_duration = \"20s\"\nwindow = \"2m\"");
    let origin = Origin::start(&long);
    let mut publisher = Client::publish(origin.rtmp, "live/half");
    let (before, after) = clip().split_at(clip().len() / 2);
    before.iter().for_each(|message| publisher.send(message));
    // A segment ends at each keyframe but the first. The window lists them all, so when there are so
    // many, all that ends a segment has arrived.
    let whole = before.iter().filter(is_keyframe).count() - 1;
    eventually(LIMIT, "all has arrived", || {
        origin.playlist("live/half", "v0").segments().len() == whole
    });
    let open = origin.playlist("live/half", "v0").open_msn();
    let mut viewer = TcpStream::connect(origin.http).unwrap();
    viewer.set_read_timeout(Some(LIMIT)).unwrap();
    let path = format!("/live/half/v0/media.m3u8?_HLS_msn={open}");
    write!(viewer, "GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    viewer.shutdown(Shutdown::Write).unwrap();
    // The server has had time to close the connection: it answered another client meanwhile.
    viewer.set_nonblocking(true).unwrap();
    origin.get("/healthz");
    let unanswered = viewer.read(&mut [0; 1]).map_err(|error| error.kind());
    assert_eq!(unanswered.unwrap_err(), std::io::ErrorKind::WouldBlock);
    viewer.set_nonblocking(false).unwrap();
    after.iter().for_each(|message| publisher.send(message));
    let mut answer = String::new();
    viewer.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    // The segment is complete. So much was published at once that it may have left the playlist
    // already.
    assert!(Playlist(answer).open_msn() > open);
    publisher.finish();
}

#[test]
fn msn_more_than_two_ahead() {
    let origin = stopped();
    let open = origin.playlist("live/gone", "v0").open_msn();
    // RFC 8216bis 6.2.5.2 counts from the last complete segment.
    for query in [
        format!("_HLS_msn={}", open + 2),
        format!("_HLS_msn={}&_HLS_part=0", open + 2),
        format!("_HLS_msn={}", u64::MAX),
        format!("_HLS_msn={open}&_HLS_part=99"),
    ] {
        assert_refused(&origin.get(&format!("/live/gone/v0/media.m3u8?{query}")), 400);
    }
}

#[test]
fn malformed_directives() {
    let origin = stopped();
    for query in [
        "_HLS_msn=",
        "_HLS_msn=-1",
        "_HLS_msn=x",
        "_HLS_msn=1.5",
        "_HLS_msn=99999999999999999999",
        "_HLS_msn=1&_HLS_msn=1",
        "_HLS_msn=1&_HLS_part=x",
        "_HLS_part=0",
        "_HLS_skip=NO",
    ] {
        let response = origin.get(&format!("/live/gone/v0/media.m3u8?{query}"));
        assert_refused(&response, 400);
        assert!(response.text().contains("_HLS_"), "{query}: {response:?}");
    }
}

#[test]
fn blocking_reload_that_outlasts_three_target_durations() {
    let origin = stopped();
    // The last segment was open when the publisher left, so nothing begins one after it.
    let keyframes = clip().iter().filter(is_keyframe).count() as u64;
    eventually(LIMIT, "all has arrived", || {
        origin.playlist("live/gone", "v0").open_msn() >= keyframes
    });
    let open = origin.playlist("live/gone", "v0").open_msn();
    let waits = [
        format!("v0/media.m3u8?_HLS_msn={}", open + 1),
        format!("v0/{}.m4s", open + 1),
        format!("v0/{}.0.m4s", open + 1),
    ];
    std::thread::scope(|scope| {
        for path in &waits {
            let origin = &origin;
            scope.spawn(move || {
                let start = Instant::now();
                let response = origin.get(&format!("/live/gone/{path}"));
                let took = start.elapsed();
                // Without a bound the answer would come when the stream ends, ten minutes after its
                // publisher has left. `get` waits for one minute.
                assert_refused(&response, 503);
                assert!(took >= Duration::from_millis(2900), "{path}: {took:?}");
            });
        }
    });
}

/// A publisher that is cut off at once leaves nothing that a playlist could list. A viewer that
/// waits for it is told so when the publisher has gone, and a later viewer at once. Three target
/// durations, here 180 s, would be longer than most players wait. `get` waits for 60 s.
#[test]
fn nobody_waits_for_a_stream_that_was_cut_off_before_its_first_segment() {
    let origin = Origin::start(
        "[live]\ntarget_duration = \"60s\"\nkeyframe_distance = \"150s\"\nwindow = \"240s\"\n",
    );
    // Before the target duration is known, and after.
    for (name, until) in [("young", 900), ("settled", 1900)] {
        let stream = format!("live/{name}");
        let mut publisher = Client::publish(origin.rtmp, &stream);
        for message in clip().iter().filter(|message| message.timestamp() < until) {
            publisher.send(message);
        }
        for kind in ["video", "audio"] {
            let told = format!("stream=\"{name}\" track={kind}");
            origin.log_line(LIMIT, |line| line.contains("ingest: track") && line.contains(&told));
        }
        let paths = ["v0/media.m3u8", "a0/media.m3u8", "manifest.mpd"];
        let ask = |path: &str| {
            let answer = origin.get(&format!("/{stream}/{path}"));
            assert_refused(&answer, 503);
            assert_eq!(answer.header("Retry-After"), Some("1"), "{path}");
        };
        std::thread::scope(|scope| {
            let waiting = paths.map(|path| scope.spawn(move || ask(path)));
            let deadline = Instant::now() + Duration::from_millis(300);
            while Instant::now() < deadline {
                assert!(waiting.iter().all(|one| !one.is_finished()), "{name}: it may still come");
                std::thread::sleep(Duration::from_millis(10));
            }
            drop(publisher);
        });
        paths.iter().for_each(|path| ask(path));
    }
}
