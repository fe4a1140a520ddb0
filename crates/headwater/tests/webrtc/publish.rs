//! `headwater publish` over WHIP. ffmpeg reads what came in, by HLS.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use testkit::{
    AccessUnit, Program, Server, access_unit_hashes_with, certificate, decoded_pictures,
    eventually, from_start, playlist, rtmp, uninterrupted,
};

use crate::support::{LIMIT, Relay, despite_stops, server, small_clip};

/// A server that keeps everything, and whose streams end a second after their publisher. Packets wait
/// long for others, so that nothing is lost on a busy machine.
const PATIENT: &str = "[live]\nwindow = \"5m\"\nreconnect = \"1s\"\n[webrtc]\njitter = \"30s\"\n";

fn patient() -> Server {
    server(PATIENT)
}

/// Makes a clip with the pictures of another, which have no B-frames, and Opus. All of it fits into the buffer of a
/// socket of UDP, so that nothing is lost where the server is not run for a while.
fn clip_of(pictures: &str, folder: &Path, seconds: &str) -> PathBuf {
    let clip = folder.join("clip.mp4");
    let source = testkit::clip(pictures);
    let copied = ["-c:v", "copy", "-c:a", "libopus", "-b:a", "32k"];
    let (source, into) = (source.to_str().unwrap(), clip.to_str().unwrap());
    testkit::ffmpeg(["-i", source, "-t", seconds].iter().chain(&copied).chain(&[into]));
    clip
}

/// The access units of one track: `-an` leaves the video, `-vn` the audio.
fn units(input: &str, without: &str) -> Vec<AccessUnit> {
    access_unit_hashes_with(input, from_start(input), &[without])
}

fn hashes(units: &[AccessUnit]) -> Vec<&str> {
    units.iter().map(|unit| unit.md5.as_str()).collect()
}

/// Waits until there is no session any more, and its stream has no publisher.
fn until_gone(server: &Server, stream: &str) {
    server.get_until(&format!("/api/v1/streams/{stream}"), LIMIT, |answer| {
        answer.text().contains("\"offline\"") || answer.text().contains("\"ended\"")
    });
    assert_eq!(server.metric("headwater_webrtc_sessions"), 0);
}

/// Waits for the end of a publisher that fails, and returns what it said.
fn failed(publisher: Program) -> String {
    let finished = publisher.wait(LIMIT);
    assert_eq!(finished.status.code(), Some(2), "{finished:?}");
    finished.stderr
}

#[test]
fn a_file_comes_out_as_it_is() {
    comes_out_as_it_is("long/primary.flv", "3", |_| ());
}

/// All packets that come meanwhile wait in the server's socket. Where the request that ends the session comes as well,
/// either may be read first.
#[test]
fn a_file_that_is_over_while_the_server_stands_still_comes_out_as_it_is() {
    comes_out_as_it_is("long/primary.flv", "3", |server| {
        server.get_until("/api/v1/streams/live/x", LIMIT, |answer| {
            answer.text().contains("\"v0\"") && answer.text().contains("\"a0\"")
        });
        server.pause();
        thread::sleep(Duration::from_millis(3500));
        server.resume();
    });
}

#[test]
fn a_file_of_av1_comes_out_as_it_is() {
    comes_out_as_it_is("mp4/av1-aac.mp4", "2", |_| ());
}

#[test]
fn a_file_of_hevc_comes_out_as_it_is() {
    comes_out_as_it_is("mp4/hevc-aac.mp4", "2", |_| ());
}

/// Publishes a clip. `meanwhile` has the server.
#[track_caller]
fn comes_out_as_it_is(pictures: &str, seconds: &str, meanwhile: impl FnOnce(&Server)) {
    let (server, folder) = (patient(), tempfile::tempdir().unwrap());
    let clip = clip_of(pictures, folder.path(), seconds);
    let publisher = server.publish(&clip, &server.url("/live/x/whip"), &[]);
    meanwhile(&server);
    let finished = publisher.wait(LIMIT);
    assert!(finished.status.success(), "{}", finished.stderr);
    assert!(!finished.stderr.contains("WARN"), "{}", finished.stderr);
    until_gone(&server, "live/x");
    server.until_ended("live/x", "v0", LIMIT);
    server.until_ended("live/x", "a0", LIMIT);
    let (source, received) = (clip.to_str().unwrap(), server.url("/live/x/index.m3u8"));

    let mut ends: Vec<f64> = Vec::new();
    for without in ["-an", "-vn"] {
        let (sent, got) = (units(source, without), units(&received, without));
        // Sound before the first keyframe is left out.
        let first = sent.len() - got.len();
        assert!(first == 0 || (without == "-vn" && first <= 5), "{without}: {first} are missing");
        assert_eq!(hashes(&got), hashes(&sent[first..]), "{without}");
        let shifts = got.iter().zip(&sent[first..]).map(|(g, s)| g.pts_time() - s.pts_time());
        let shifts: Vec<f64> = shifts.collect();
        // At one place the first sender reports move a track beside the other, by as much as the first packets of
        // one came later than those of the other.
        let is_moved = |pair: &[f64]| (pair[1] - pair[0]).abs() > 0.002;
        let moved: Vec<bool> = shifts.windows(2).map(is_moved).collect();
        let places = moved.chunk_by(|one, next| one == next).filter(|run| run[0]).count();
        assert!(places <= 1, "{without}: {shifts:?}");
        // That is by a few milliseconds, but longer where the machine does not run the publisher for a while.
        let first_and_last = shifts.first().zip(shifts.last());
        assert!(first_and_last.is_some_and(|(a, b)| (a - b).abs() < 0.25), "{without}: {shifts:?}");
        ends.extend(shifts.last());
    }
    // From there on audio and video are as far apart as in the file, but for a few milliseconds (docs/webrtc.md).
    assert!((ends[0] - ends[1]).abs() < 1.0 / 30.0, "{ends:?}");
    assert!(!server.whole_log().contains("further problems"), "{}", server.log());
}

#[test]
fn a_server_of_another_hand_takes_it() {
    let folder = tempfile::tempdir().unwrap();
    let clip = clip_of("long/primary.flv", folder.path(), "3");
    let server = Program::spawn(&mut testkit::aiortc("whip_server.py"));
    let said = server.stdout_line(LIMIT, |line| line.contains("\"url\""));
    let said: Value = serde_json::from_str(&said).unwrap();
    let (binary, url) = (env!("CARGO_BIN_EXE_headwater"), said["url"].as_str().unwrap());
    let finished = testkit::headwater_publish(binary, &clip, url, &[]).wait(LIMIT);
    assert!(finished.status.success(), "{}", finished.stderr);
    let output = String::from_utf8(server.wait(LIMIT).stdout).unwrap();
    let came = |kind: &str| {
        let lines = output.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let line = { lines }.find(|line| line["kind"] == kind).unwrap();
        line["frames"].as_array().unwrap().clone()
    };
    let (video, audio) = (came("video"), came("audio"));
    // Each picture is that of the file, at its time. aiortc gives a picture to its decoder when the next one begins, so
    // that the last one is missing.
    let of_file = decoded_pictures(clip.to_str().unwrap());
    assert_eq!(video.len(), of_file.len() - 1);
    for (index, (frame, picture)) in video.iter().zip(&of_file).enumerate() {
        assert_eq!(frame[1], *picture, "picture {index}");
        // RTP times wrap.
        let since = frame[0].as_f64().unwrap() - video[0][0].as_f64().unwrap();
        let since = since.rem_euclid(2f64.powi(32) / 90_000.0);
        assert!((since * 25.0 - index as f64).abs() < 0.03, "picture {index} after {since} s");
    }
    // aiortc waits for some more packets of audio before it gives one to its decoder.
    let of_file = units(clip.to_str().unwrap(), "-vn").len();
    assert!(audio.len() + 5 > of_file, "{} of {of_file}", audio.len());
}

#[test]
fn b_frames_pass_with_a_warning() {
    let server = patient();
    for (name, file) in [("mp4", "mp4/pictures.mp4"), ("flv", "flv/b-frames.flv")] {
        let clip = testkit::clip(file);
        let finished =
            server.publish(&clip, &server.url(&format!("/live/{name}/whip")), &[]).wait(LIMIT);
        assert!(finished.status.success(), "{}", finished.stderr);
        assert_eq!(finished.stderr.matches("has B-frames").count(), 1, "{}", finished.stderr);
        let stream = format!("live/{name}");
        server.until_ended(&stream, "v0", LIMIT);
        let sent = units(clip.to_str().unwrap(), "-an");
        let url = server.url(&format!("/{stream}/index.m3u8"));
        let got = units(&url, "-an");
        assert_eq!(hashes(&got), hashes(&sent), "{file}");
        // Frames are shown in the order of the file.
        let of_file = decoded_pictures(clip.to_str().unwrap());
        assert_eq!(decoded_pictures(&url), of_file, "{file}");
    }
}

#[test]
fn a_loop_goes_on_until_a_signal_ends_it() {
    let (server, folder) = (patient(), tempfile::tempdir().unwrap());
    let clip = small_clip(folder.path(), 15, 2);
    let mut publisher = server.publish(&clip, &server.url("/live/x/whip"), &["--loop"]);
    server.until_listed("live/x", &["v0"], 3, LIMIT);
    assert!(publisher.is_running());
    let finished = publisher.stop(LIMIT);
    assert!(finished.status.success(), "{}", finished.stderr);
    until_gone(&server, "live/x");

    let playlist = server.until_ended("live/x", "v0", LIMIT);
    assert!(!playlist.contains("#EXT-X-DISCONTINUITY"), "{playlist}");
    let sent = units(clip.to_str().unwrap(), "-an");
    let got = units(&server.url("/live/x/index.m3u8"), "-an");
    assert!(got.len() > 2 * sent.len(), "{} of {}", got.len(), sent.len());
    for (index, (got, sent)) in got.iter().zip(sent.iter().cycle()).enumerate() {
        assert_eq!(got.md5, sent.md5, "unit {index}");
    }
    for (index, pair) in got.windows(2).enumerate() {
        let step = pair[1].dts_time() - pair[0].dts_time();
        assert!(step > 0.0 && step < 0.1, "{index}: {step} s");
    }
}

#[test]
fn what_whip_does_not_carry_is_left_out_and_stamps_pass() {
    let (server, clip) = (server(""), testkit::clip("flv/legacy.flv"));
    let publisher = server.publish(&clip, &server.url("/live/x/whip"), &["--stamp"]);
    publisher.stderr_line(LIMIT, |line| {
        line.contains("track left out: WHIP carries H.264, AV1")
            && line.contains("audio track 0")
            && line.contains("mp4a.40.2")
    });
    let playlist = server
        .get_until("/live/x/v0/media.m3u8", LIMIT, |answer| answer.text().contains("#EXTINF"));
    let segment = playlist::listed(playlist.text()).next().unwrap();
    let segment = server.get(&format!("/live/x/v0/{segment}"));
    assert!(media::stamp::find(&segment.body).is_some());
    assert!(!server.get("/api/v1/streams/live/x").text().contains("\"a0\""));
}

#[test]
fn what_cannot_be_published_is_refused_with_a_reason() {
    let server = server("");
    let taken = rtmp::Client::publish(server.rtmp, "live/taken");
    let (film, sound) = (testkit::clip("mp4/film.mp4"), testkit::clip("mp4/sound.mp4"));
    let url = server.url("/live/x/whip");
    // The way to the server leads over another one.
    let elsewhere = server.url("/live/taken/whip");
    let redirect = format!(
        "HTTP/1.1 307 Temporary Redirect\r\nLocation: {elsewhere}\r\nContent-Length: 0\r\n\r\n"
    );
    let front = front(move |_| redirect.clone().into_bytes());

    let port = testkit::Port::find();
    let nobody = format!("127.0.0.1:{port}");
    for (file, url, options, why) in [
        (&film, &elsewhere, &[][..], "the server refused: 409 Conflict: already published"),
        (&film, &format!("http://{front}/x"), &[], "the server refused: 409 Conflict"),
        (&film, &server.url("/live/.x/whip"), &[], "400 Bad Request: "),
        (&film, &server.url("/live/x"), &[], "the server refused: 405 Method Not Allowed"),
        (&film, &format!("http://{nobody}/live/x/whip"), &[], &format!("{nobody}: ")),
        // This port has no TLS.
        (&film, &url.replace("http:", "https:"), &[], ": TLS: "),
        (&film, &url, &["--fast"], "--fast is not possible by WHIP"),
        (&sound, &url, &[], "the file has no H.264, AV1"),
    ] {
        let said = failed(server.publish(file, url, options));
        assert!(said.contains(why), "{url} {options:?}: {said}");
    }
    drop(taken);
    assert_eq!(server.metric("headwater_webrtc_sessions"), 0);
}

#[test]
fn a_server_that_ends_is_an_error() {
    let clip = testkit::clip("mp4/film.mp4");
    let [ends, dies] = [server(""), server("")];
    let begin = |server: &Server| {
        let publisher = server.publish(&clip, &server.url("/live/x/whip"), &["--loop"]);
        server.get_until("/live/x/index.m3u8", LIMIT, |answer| answer.status() == 200);
        publisher
    };
    let (told, left) = (begin(&ends), begin(&dies));
    ends.terminate();
    // It leaves no word, so only time tells.
    assert!(
        Command::new("kill").args(["-KILL", &dies.id().to_string()]).status().unwrap().success()
    );
    let said = failed(told);
    assert!(said.contains("the server ended the session"), "{said}");
    let said = failed(left);
    assert!(
        said.contains("nothing came for 10 s")
            || said.contains("the connection to the server is lost"),
        "{said}"
    );
}

#[test]
fn packets_that_are_lost_are_sent_again() {
    lost_packets_come_again(|_| ());
}

/// It does not send at once all that was due meanwhile: the server could not ask for so much in time.
#[test]
fn packets_of_a_publisher_that_was_held_up_are_sent_again() {
    lost_packets_come_again(|publisher| {
        publisher.pause();
        thread::sleep(Duration::from_secs(3));
        publisher.resume();
    });
}

/// Publishes a clip over a network that loses one in 20 datagrams on each way. `meanwhile` has the publisher as soon
/// as its media come.
#[track_caller]
fn lost_packets_come_again(meanwhile: impl Fn(&Program)) {
    let clip = testkit::clip("mp4/vfr.mp4");
    let sent = units(clip.to_str().unwrap(), "-an");
    despite_stops(PATIENT, |server| {
        let relay = Relay::new(server.webrtc.unwrap(), 20);
        let front = front(through(server, relay.port));
        let publisher = server.publish(&clip, &format!("http://{front}/live/x/whip"), &[]);
        server.get_until("/api/v1/streams/live/x", LIMIT, |it| it.text().contains("\"v0\""));
        meanwhile(&publisher);
        let finished = publisher.wait(LIMIT);
        assert!(finished.status.success(), "{}", finished.stderr);
        assert!(relay.dropped() > 5, "{}", relay.dropped());
        server.until_ended("live/x", "v0", LIMIT);
        let got = units(&server.url("/live/x/index.m3u8"), "-an");
        // Nobody knows of the last packets that they are missing.
        let is_whole = got.len() + 2 >= sent.len() && hashes(&got) == hashes(&sent[..got.len()]);
        is_whole.then_some(()).ok_or_else(|| format!("{} of {}", got.len(), sent.len()))
    });
}

#[test]
fn requests_go_over_tls_to_a_server_that_is_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["own", "other"] {
        certificate::make(name, &path(name), &path(&format!("{name}.key")));
    }
    let server =
        server(&format!("{PATIENT}{}", certificate::table(&path("own"), &path("own.key"))));
    let url = format!("https://{}/live/x/whip", server.https.unwrap());
    let clip = clip_of("long/primary.flv", folder.path(), "2");
    let publish = |trusted: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_headwater"));
        command.arg("publish").args([&clip, Path::new(&url)]).env("SSL_CERT_FILE", path(trusted));
        Program::spawn(&mut command)
    };
    let said = failed(publish("other"));
    assert!(said.contains("TLS") && said.contains("UnknownIssuer"), "{said}");
    let finished = publish("own").wait(LIMIT);
    assert!(finished.status.success(), "{}", finished.stderr);
    server.until_ended("live/x", "v0", LIMIT);
    let sent = units(clip.to_str().unwrap(), "-an");
    assert_eq!(hashes(&units(&server.url("/live/x/index.m3u8"), "-an")), hashes(&sent));
}

#[test]
fn media_that_find_no_way_are_an_error() {
    let server = server("");
    // Nothing comes from this port.
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let front = front(through(&server, address.port()));
    let clip = testkit::clip("mp4/film.mp4");
    let [waits, stops] = ["x", "y"]
        .map(|name| server.publish(&clip, &format!("http://{front}/live/{name}/whip"), &[]));
    let sessions = |count| server.metric("headwater_webrtc_sessions") == count;
    eventually(LIMIT, "two sessions", || sessions(2));
    // A signal ends a session that is not connected yet.
    let finished = stops.stop(LIMIT);
    assert!(finished.status.success(), "{}", finished.stderr);
    let said = failed(waits);
    let why = format!("not connected after 10 s: media go by UDP, to one of [{address}]");
    assert!(said.contains(&why), "{said}");
    // The sessions were deleted.
    eventually(LIMIT, "no session", || sessions(0));
}

/// Hands requests on to the server. Its answers name another port for media.
fn through(server: &Server, port: u16) -> impl Fn(&[u8]) -> Vec<u8> + Send + 'static {
    let candidate = |port: u16| format!(" {port} typ host");
    let (own, other) = (candidate(server.webrtc.unwrap().port()), candidate(port));
    assert_eq!(own.len(), other.len(), "Content-Length stays right");
    let to = server.http;
    move |request| {
        let mut server = TcpStream::connect(to).unwrap();
        server.write_all(request).unwrap();
        String::from_utf8(message(&mut server)).unwrap().replace(&own, &other).into_bytes()
    }
}

/// An HTTP server that answers each request with what `answer` makes of it.
fn front(answer: impl Fn(&[u8]) -> Vec<u8> + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // The thread ends with the test's process.
    thread::spawn(move || {
        for peer in listener.incoming() {
            let mut peer = peer.unwrap();
            let request = message(&mut peer);
            peer.write_all(&answer(&request)).unwrap();
        }
    });
    address
}

/// Reads a request or a response, whose payload has a length.
fn message(from: &mut TcpStream) -> Vec<u8> {
    from.set_read_timeout(Some(LIMIT)).unwrap();
    let (mut message, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&message).to_ascii_lowercase();
        if let Some((head, payload)) = text.split_once("\r\n\r\n") {
            let length = head
                .split("content-length: ")
                .nth(1)
                .map_or(0, |rest| rest.lines().next().unwrap().trim().parse().unwrap());
            if payload.len() >= length {
                return message;
            }
        }
        let size = uninterrupted(|| from.read(&mut buffer)).unwrap();
        assert!(size > 0, "a message that ends early: {text}");
        message.extend(&buffer[..size]);
    }
}
