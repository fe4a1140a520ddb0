//! One publication in real time, watched over every delivery at once.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use testkit::http::Client;
use testkit::{Program, Server, playlist};

use crate::support::{
    Begin, FROM_START, LIMIT, Received, assert_came_through, finish, media, play, play_streams,
    publish, server_with, until_ready,
};

const STREAM: &str = "live/film";

/// Acts as a low-latency player: fetches every part as soon as it is there, by blocking reloads
/// named after the preload hint. Returns the header and all parts, concatenated. Calls `seen` with
/// each playlist.
pub(crate) fn walk_parts(
    server: &Server,
    stream: &str,
    track: &str,
    mut seen: impl FnMut(&str),
) -> Vec<u8> {
    let folder = format!("/{stream}/{track}");
    let mut client = Client::connect(server.http, LIMIT).unwrap();
    let mut get = |path: &str| {
        let answer = client.get(path, &[]);
        assert_eq!(answer.status(), 200, "{path}: {answer:?}");
        answer
    };
    let mut bytes = Vec::new();
    let mut fetched: Vec<String> = Vec::new();
    let mut query = String::new();
    let deadline = Instant::now() + LIMIT;
    loop {
        assert!(Instant::now() < deadline, "no end after {} parts", fetched.len());
        let answer = get(&format!("{folder}/media.m3u8{query}"));
        let playlist = answer.text();
        seen(playlist);
        let uris = |tag: &str| -> Vec<String> {
            playlist::uris(playlist, tag).map(str::to_owned).collect()
        };
        if fetched.is_empty() {
            bytes.extend(get(&format!("{folder}/{}", uris("#EXT-X-MAP:")[0])).body);
        }
        let parts = uris("#EXT-X-PART:");
        // The last fetched part is still listed, so none was missed.
        let new = match fetched.last() {
            Some(last) => parts.iter().position(|part| part == last).map(|at| at + 1).unwrap(),
            None => 0,
        };
        for part in &parts[new..] {
            bytes.extend(get(&format!("{folder}/{part}")).body);
            fetched.push(part.clone());
        }
        if playlist.contains("#EXT-X-ENDLIST") {
            return bytes;
        }
        assert!(query.is_empty() || new < parts.len(), "nothing new in answer to {query}");
        let (msn, part) = playlist::hint(playlist);
        query = format!("?_HLS_msn={msn}&_HLS_part={part}");
    }
}

/// GStreamer's DASH client, which writes each representation's segments to a file.
pub(crate) fn gstreamer_dash(server: &Server, stream: &str, into: &Path) -> Program {
    let location = format!("location={}", server.url(&format!("/{stream}/manifest.mpd")));
    let file = |name: &str| format!("location={}", into.join(name).display());
    let (video, audio) = (file("dash-v.mp4"), file("dash-a.mp4"));
    Program::spawn(Command::new("gst-launch-1.0").args([
        "-q",
        "souphttpsrc",
        &location,
        "!",
        "dashdemux",
        "name=d",
        "d.video_00",
        "!",
        "queue",
        "!",
        "filesink",
        &video,
        "d.audio_00",
        "!",
        "queue",
        "!",
        "filesink",
        &audio,
    ]))
}

/// The media of two tracks' files with unchanged times, so that the tracks can be compared.
pub(crate) fn joined(video: &Path, audio: &Path) -> Received {
    let as_it_is = |file: &Path| Received::by(play(file.to_str().unwrap(), &["-copyts"]));
    let mut both = as_it_is(video);
    both.streams.extend(as_it_is(audio).streams);
    both
}

#[test]
fn every_delivery_hands_on_the_source_unit_by_unit() {
    let server = server_with("window = \"5m\"\nreconnect = \"1s\"\nsilence = \"1m\"\n");
    let folder = tempfile::tempdir().unwrap();
    let file = media("mp4/minute.mp4");
    let source = Received::of(&file);
    let keyframes: Vec<bool> = testkit::ffprobe_packets(&file)
        .iter()
        .filter(|packet| packet.kind == "video")
        .map(testkit::Packet::is_keyframe)
        .collect();
    let publisher = publish(&file, &server.rtmp_url(STREAM), "1");
    until_ready(&server, STREAM);
    // It goes on when all who get its newest media are there: a busy machine may hold them up.
    publisher.pause();

    let url = |path: &str| server.url(&format!("/{STREAM}/{path}"));
    let joiners = [
        ("live.mp4", play(&url("live.mp4"), &[])),
        ("live.flv", play(&url("live.flv"), &[])),
        ("rtmp", play(&server.rtmp_url(STREAM), &[])),
    ];
    server.get_until("/metrics", LIMIT, |metrics| {
        ["mp4", "flv", "rtmp"].iter().all(|by| {
            let viewers = format!("headwater_viewers{{stream=\"{STREAM}\",delivery=\"{by}\"}}");
            metrics.metric(&viewers) == Some(1)
        })
    });
    publisher.resume();
    let name = |name: &str| folder.path().join(name);
    let (hls, dash) = std::thread::scope(|scope| {
        let tracks = ["v0", "a0"].map(|track| {
            let server = &server;
            (track, scope.spawn(move || walk_parts(server, STREAM, track, |_| {})))
        });
        server.until_listed(STREAM, &["v0", "a0"], 1, LIMIT);
        let hls = play(&url("index.m3u8"), FROM_START);
        // GStreamer rejects a manifest whose window is shorter than its delay.
        server.until_listed(STREAM, &["v0", "a0"], 3, LIMIT);
        let dash = gstreamer_dash(&server, STREAM, folder.path());
        for (track, walker) in tracks {
            std::fs::write(name(track), walker.join().unwrap()).unwrap();
        }
        (hls, dash)
    });
    finish(publisher);

    assert_came_through("HLS", &source, &Received::by(hls), Begin::Start);
    let parts = joined(&name("v0"), &name("a0"));
    assert_came_through("LL-HLS parts", &source, &parts, Begin::Start);
    for (name, player) in joiners {
        let received = Received::by(player);
        assert_came_through(name, &source, &received, Begin::Keyframe);
        let first = source.video().len() - received.video().len();
        assert!(keyframes[first], "{name} begins with picture {first}, no keyframe");
        assert!(first < 300, "{name} begins with picture {first}");
    }
    // Media that came during the publication, and all of them afterwards.
    finish(dash);
    let dash = joined(&name("dash-v.mp4"), &name("dash-a.mp4"));
    assert_came_through("DASH by GStreamer", &source, &dash, Begin::Keyframe);
    // One track at a time: ffmpeg stops at the end of the shorter one.
    let mut dash = Received::default();
    for map in ["0:v", "0:a"] {
        let player = play_streams(&url("manifest.mpd"), &["-copyts"], map);
        dash.streams.extend(Received::by(player).streams);
    }
    assert_came_through("DASH", &source, &dash, Begin::Start);
}
