//! Other implementations of WebRTC publish and play: pion (Go), and webrtcbin of GStreamer.
//! GStreamer also makes RTP packets of HEVC, and reads such packets.
//! `scripts/interop.sh` installs both and runs these tests. `make test` does not: pion's build takes minutes on
//! a slow machine.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod payloads;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use testkit::{Finished, Program, Server, access_unit_hashes_with, decoded_pictures, from_start};

/// The longest wait in these tests.
const LIMIT: Duration = Duration::from_secs(90);

/// A server that keeps everything, and whose streams end a second after their publisher. Packets wait long for
/// others, so that nothing is lost on a busy machine. It has an address that libnice reaches from any interface.
fn server() -> Server {
    let configuration = "[live]\nwindow = \"5m\"\nreconnect = \"1s\"\n[webrtc]\njitter = \"30s\"\n[ladder]\nnice = 0\n";
    Server::configured(env!("CARGO_BIN_EXE_headwater"), configuration, ["--webrtc", "0.0.0.0:0"])
}

/// Ten seconds with 30 pictures a second, a keyframe each second and no B-frames, and Opus.
struct Film {
    folder: TempDir,
    pictures: Vec<String>,
    sounds: Vec<String>,
}

impl Film {
    #[track_caller]
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let [film, video, audio] = ["film.mp4", "film.h264", "film.ogg"].map(file);
        // Noise, so that no two pictures and no two packets are equal.
        let pictures = "testsrc2=s=480x270:r=30:d=10,noise=alls=8:allf=t:all_seed=1";
        let sounds = "anoisesrc=d=10:a=0.1:c=pink:seed=1:r=48000";
        let encode = "-c:v libx264 -preset veryfast -profile:v baseline -g 30 -sc_threshold 0 \
                      -b:v 700k -maxrate 900k -bufsize 450k -pix_fmt yuv420p -c:a libopus -ac 2";
        let sources = ["-f", "lavfi", "-i", pictures, "-f", "lavfi", "-i", sounds];
        testkit::ffmpeg(sources.into_iter().chain(encode.split_ascii_whitespace()).chain([&*film]));
        // pion reads these: access units in Annex B, and one packet of Opus on each page.
        let video_only = ["-an", "-c", "copy", "-bsf:v", "h264_mp4toannexb", &video];
        let audio_only = ["-vn", "-c", "copy", "-page_duration", "20000", &audio];
        testkit::ffmpeg(["-i", &film].into_iter().chain(video_only).chain(audio_only));
        let (pictures, sounds) = (decoded_pictures(&film), sounds_of(&film));
        assert_eq!(pictures.len(), 300);
        Self { folder, pictures, sounds }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `headwater publish` sends it once. Returns when there is something to play.
    #[track_caller]
    fn publish(&self, server: &Server) -> Program {
        let publisher = server.publish(self.path("film.mp4"), &server.url("/live/x/whip"), &[]);
        server.get_until("/live/x/index.m3u8", LIMIT, |answer| answer.status() == 200);
        publisher
    }

    /// ffmpeg sends it by RTMP, with AAC, again and again. Returns when there is something to play.
    #[track_caller]
    fn publish_by_rtmp(&self, server: &Server) -> Program {
        let mut ffmpeg = Command::new("ffmpeg");
        ffmpeg.args(["-nostdin", "-loglevel", "warning", "-re", "-stream_loop", "-1", "-i"]);
        ffmpeg.arg(self.path("film.mp4")).args(["-c:v", "copy", "-c:a", "aac", "-f", "flv"]);
        let publisher = Program::spawn(ffmpeg.arg(server.rtmp_url("live/x")));
        server.get_until("/live/x/index.m3u8", LIMIT, |answer| answer.status() == 200);
        publisher
    }

    /// Checks the pictures that a player got of the film that is sent again and again.
    #[track_caller]
    fn has(&self, pictures: &[String], least: usize) {
        part(pictures, &[&self.pictures[..], &self.pictures[..]].concat(), least);
    }

    /// Checks what a player got who came late and stayed to the end.
    #[track_caller]
    fn has_end(&self, pictures: &[String], sounds: &[String]) {
        let first = part(pictures, &self.pictures, 120);
        assert_eq!(first + pictures.len(), self.pictures.len(), "the end is missing");
        // A player begins at a keyframe.
        assert_eq!(first % 30, 0);
        part(sounds, &self.sounds, 200);
    }
}

/// MD5 of each packet of sound.
#[track_caller]
fn sounds_of(input: &str) -> Vec<String> {
    let units = access_unit_hashes_with(input, from_start(input), &["-vn"]);
    units.into_iter().map(|unit| unit.md5).collect()
}

/// Where in `sent` all of `got` is, without a gap. It must be at least so many.
#[track_caller]
fn part(got: &[String], sent: &[String], least: usize) -> usize {
    assert!(got.len() >= least, "{} of {}", got.len(), sent.len());
    let place = sent.windows(got.len()).position(|part| part == got);
    let places = || got.iter().map(|it| sent.iter().position(|sent| sent == it));
    place.unwrap_or_else(|| panic!("not in a row: {:?}", places().collect::<Vec<_>>()))
}

/// What ffmpeg reads by HLS of a stream that is over: pictures and sounds.
#[track_caller]
fn received(server: &Server) -> (Vec<String>, Vec<String>) {
    for track in ["v0", "a0"] {
        server.until_ended("live/x", track, LIMIT);
    }
    let url = server.url("/live/x/index.m3u8");
    (decoded_pictures(&url), sounds_of(&url))
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The program in `pion/`.
#[track_caller]
fn pion(options: &[&str]) -> Program {
    let program = root().join("target/interop/pion");
    assert!(program.is_file(), "no pion: scripts/interop.sh builds it");
    Program::spawn(Command::new(program).args(options))
}

/// The script with GStreamer. Debian's Python has its bindings.
#[track_caller]
fn webrtcbin(options: &[&str]) -> Program {
    let script = root().join("crates/headwater/tests/interop/webrtcbin.py");
    Program::spawn(Command::new("/usr/bin/python3").arg(script).args(options))
}

/// A certificate for DTLS and its key in one file.
fn certificate(folder: &Path) -> String {
    let [certificate, key, both] = ["certificate", "key", "both"].map(|name| folder.join(name));
    testkit::certificate::make("webrtc", &certificate, &key);
    let read = |path| std::fs::read_to_string(path).unwrap();
    std::fs::write(&both, read(certificate) + &read(key)).unwrap();
    both.to_str().unwrap().to_owned()
}

#[track_caller]
fn succeeded(program: Program) -> Finished {
    let finished = program.wait(LIMIT);
    assert!(finished.status.success(), "{finished:?}");
    finished
}

fn lines(path: &Path) -> Vec<String> {
    std::fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect()
}

#[track_caller]
fn pion_publishes(options: &[&str]) {
    let (server, film) = (server(), Film::new());
    let (video, audio) = (film.path("film.h264"), film.path("film.ogg"));
    let to = server.url("/live/x/whip");
    let own = ["publish", &to, video.to_str().unwrap(), audio.to_str().unwrap()];
    succeeded(pion(&[options, &own].concat()));
    assert_eq!(server.metric("headwater_webrtc_sessions"), 0);
    let (pictures, sounds) = received(&server);
    assert_eq!(pictures, film.pictures);
    // Sound that came before the first keyframe is left out.
    let first = part(&sounds, &film.sounds, film.sounds.len() - 5);
    assert_eq!(first + sounds.len(), film.sounds.len());
}

#[test]
#[ignore = "interop"]
fn pion_publishes_by_udp() {
    pion_publishes(&[]);
}

#[test]
#[ignore = "interop"]
fn pion_publishes_by_tcp() {
    pion_publishes(&["-tcp"]);
}

#[test]
#[ignore = "interop"]
fn pion_sends_again_what_it_lost() {
    pion_publishes(&["-lose", "20"]);
}

/// Lets pion play, and returns what it said of it. A picture comes each 1/30 s by the RTP clock.
#[track_caller]
fn pion_play(server: &Server, folder: &Path, pictures: &str, options: &[&str]) -> Value {
    let from = server.url("/live/x/whep");
    let own = ["play", &from, folder.to_str().unwrap(), pictures];
    let finished = succeeded(pion(&[options, &own].concat()));
    let said: Value = serde_json::from_slice(&finished.stdout).unwrap();
    assert_eq!(said["lost"], 0, "{said}");
    said
}

#[track_caller]
fn pion_plays(options: &[&str]) {
    let (server, film) = (server(), Film::new());
    let publisher = film.publish(&server);
    let said = pion_play(&server, film.folder.path(), "1000", options);
    assert_eq!(said["ended"], true, "{said}");
    assert_eq!((&said["least"], &said["most"]), (&3000.into(), &3000.into()), "{said}");
    succeeded(publisher);
    let [video, audio] = ["video.h264", "audio.ogg"].map(|name| film.path(name));
    film.has_end(&decoded_pictures(video.to_str().unwrap()), &sounds_of(audio.to_str().unwrap()));
}

#[test]
#[ignore = "interop"]
fn pion_plays_by_udp() {
    pion_plays(&[]);
}

#[test]
#[ignore = "interop"]
fn pion_plays_by_tcp() {
    pion_plays(&["-tcp"]);
}

#[test]
#[ignore = "interop"]
fn pion_gets_again_what_it_lost() {
    let (server, film) = (server(), Film::new());
    let _publisher = film.publish(&server);
    let said = pion_play(&server, film.folder.path(), "120", &["-lose", "20"]);
    assert!(said["again"].as_u64() > Some(10), "{said}");
    let video = film.path("video.h264");
    part(&decoded_pictures(video.to_str().unwrap()), &film.pictures, 120);
}

#[test]
#[ignore = "interop"]
fn pion_plays_what_rtmp_brings() {
    let (server, film) = (server(), Film::new());
    let _publisher = film.publish_by_rtmp(&server);
    let said = pion_play(&server, film.folder.path(), "200", &[]);
    // pion deleted its session.
    assert_eq!(said["ended"], false, "{said}");
    assert_eq!(server.metric("headwater_webrtc_sessions"), 0);
    // FLV has milliseconds.
    let step = |name: &str| said[name].as_u64().unwrap();
    assert!(step("least") >= 2900 && step("most") <= 3100, "{said}");
    let video = film.path("video.h264");
    film.has(&decoded_pictures(video.to_str().unwrap()), 200);
    // A companion makes Opus of AAC. It begins when the player comes.
    assert!(sounds_of(film.path("audio.ogg").to_str().unwrap()).len() > 100);
}

#[track_caller]
fn gstreamer_publishes(options: &[&str]) {
    let (server, folder) = (server(), tempfile::tempdir().unwrap());
    let (to, pem) = (server.url("/live/x/whip"), certificate(folder.path()));
    let own = ["publish", &to, folder.path().to_str().unwrap(), "--pem", &pem];
    let publisher = webrtcbin(&[&own, options].concat());
    // It makes keyframes only when the server asks, and segments end at keyframes.
    server.until_listed("live/x", &["v0"], 4, LIMIT);
    publisher.terminate();
    succeeded(publisher);
    assert_eq!(server.metric("headwater_webrtc_sessions"), 0);
    let (pictures, sounds) = received(&server);
    let sent = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    // What GStreamer had not sent yet when the session was deleted is missing at the end.
    assert_eq!(part(&pictures, &decoded_pictures(&sent("video.h264")), 200), 0);
    // It writes its last packets of sound late.
    let recorded = sounds_of(&sent("audio.ogg"));
    let both = sounds.len().min(recorded.len()) - 50;
    part(&sounds[..both], &recorded, 200);
}

#[test]
#[ignore = "interop"]
fn gstreamer_publishes_by_udp() {
    gstreamer_publishes(&[]);
}

#[test]
#[ignore = "interop"]
fn gstreamer_publishes_by_tcp() {
    gstreamer_publishes(&["--tcp"]);
}

#[track_caller]
fn gstreamer_plays(options: &[&str]) {
    let (server, film) = (server(), Film::new());
    let publisher = film.publish(&server);
    let (from, pem) = (server.url("/live/x/whep"), certificate(film.folder.path()));
    let own = ["play", &from, film.folder.path().to_str().unwrap(), "--pem", &pem];
    succeeded(webrtcbin(&[&own, options].concat()));
    succeeded(publisher);
    film.has_end(&lines(&film.path("pictures")), &lines(&film.path("sounds")));
}

#[test]
#[ignore = "interop"]
fn gstreamer_plays_by_udp() {
    gstreamer_plays(&[]);
}

#[test]
#[ignore = "interop"]
fn gstreamer_plays_by_tcp() {
    gstreamer_plays(&["--tcp"]);
}

#[test]
#[ignore = "interop"]
fn gstreamer_plays_what_rtmp_brings() {
    let (server, film) = (server(), Film::new());
    let _publisher = film.publish_by_rtmp(&server);
    let (from, pem) = (server.url("/live/x/whep"), certificate(film.folder.path()));
    let folder = film.folder.path().to_str().unwrap();
    succeeded(webrtcbin(&["play", &from, folder, "--pem", &pem, "--pictures", "200"]));
    // GStreamer deleted its session.
    assert_eq!(server.metric("headwater_webrtc_sessions"), 0);
    film.has(&lines(&film.path("pictures")), 200);
    assert!(lines(&film.path("sounds")).len() > 100);
}

#[test]
#[ignore = "interop"]
fn a_certificate_with_rsa_is_refused_and_the_log_says_so() {
    let (server, folder) = (server(), tempfile::tempdir().unwrap());
    let to = server.url("/live/x/whip");
    let publisher = webrtcbin(&["publish", &to, folder.path().to_str().unwrap()]);
    assert!(!publisher.wait(LIMIT).status.success());
    server.get_until("/metrics", LIMIT, |answer| {
        answer.metric("headwater_webrtc_sessions") == Some(0)
    });
    let log = server.whole_log();
    assert!(log.contains("not connected in time: ") && log.contains("certificate"), "{log}");
}
