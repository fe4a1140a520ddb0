//! Renditions that are announced and never come, that go away, or that come from a stranger.

use std::io::Read;
use std::time::{Duration, Instant};

use bytes::Bytes;
use media::flv::{Message, TagKind};
use protocol::rtmp::ClientEvent;
use testkit::http::{Client as Http, Response};
use testkit::push::Client as Push;

use testkit::rtmp::Client;

use crate::support::{ALL, LIMIT, Origin, announce, clip, send_second, try_publish_from};

/// A viewer that waits in vain waits for three target durations. With these settings this is longer
/// than any test waits for an answer.
const PATIENT: &str = "[live]\nsegment_target = \"500ms\"\nsilence = \"3s\"\n\
                       target_duration = \"30s\"\nkeyframe_distance = \"30s\"\nwindow = \"2m\"\n";

fn multivariant(origin: &Origin) -> Response {
    origin.get("/live/x/index.m3u8")
}

fn manifest(origin: &Origin) -> Response {
    origin.get("/live/x/manifest.mpd")
}

/// Names of the video renditions that HLS and DASH list; both must agree. If DASH has several in a
/// set, players change between them only if it says that their segments are aligned.
#[track_caller]
pub(crate) fn listed(origin: &Origin) -> (Vec<String>, Vec<String>) {
    let playlist = multivariant(origin);
    assert_eq!(playlist.status(), 200, "{playlist:?}");
    let uris = playlist.text().lines().filter_map(|line| line.strip_suffix("/media.m3u8"));
    let mut hls: Vec<_> = uris.map(str::to_owned).collect();
    let manifest = manifest(origin);
    assert_eq!(manifest.status(), 200, "{manifest:?}");
    let sets = manifest.text().split("<AdaptationSet ").skip(1);
    let mut dash = Vec::new();
    for set in sets.filter(|set| set.contains("contentType=\"video\"")) {
        let named = set.split("<Representation id=\"").skip(1);
        let named: Vec<_> = named.map(|rest| rest.split('"').next().expect("an end")).collect();
        let head = set.split('>').next().expect("an element");
        assert!(named.len() < 2 || head.contains("segmentAlignment=\"true\""), "{set}");
        dash.extend(named.into_iter().map(str::to_owned));
    }
    hls.sort();
    dash.sort();
    (hls, dash)
}

/// Waits until this many tracks were announced.
#[track_caller]
fn until_announced(origin: &Origin, tracks: usize) {
    let begun = Instant::now();
    while origin.log().matches("headwater::ingest: track").count() < tracks {
        assert!(begun.elapsed() < LIMIT, "{}", origin.log());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Playlists and manifests do not wait for a rendition that was announced and sends nothing, in
/// either order. The other media of the stream are offered at once.
#[test]
fn a_rendition_that_sends_nothing_keeps_nobody_waiting() {
    for order in [["live/x", "live/x?rendition=low"], ["live/x?rendition=low", "live/x"]] {
        let origin = Origin::start(PATIENT);
        let mut publishers = Vec::new();
        for (already, name) in order.into_iter().enumerate() {
            let mut publisher = Client::publish(origin.rtmp, name);
            announce(&mut publisher);
            until_announced(&origin, 2 * already + 2);
            publishers.push(publisher);
        }
        let sends = usize::from(order[1] == "live/x");
        (0..3).for_each(|second| send_second(&mut publishers[sends], second, ALL));
        // If an answer comes within the time limit of `get`, it did not wait.
        let only = [["v0"], ["v1"]][sends];
        assert_eq!(listed(&origin), (names(&only), names(&only)), "{order:?}");
        assert_sends_video(&origin);
    }
}

/// Asserts that viewers of each delivery that never ends are sent video at once.
#[track_caller]
fn assert_sends_video(origin: &Origin) {
    let mut push = Push::connect(origin.http, "/live/x/push");
    push.until(|frame| frame.opcode == 2 && frame.payload[4..8] != *b"ftyp");
    let is_video = |event: &ClientEvent| {
        // Not the codec's configuration.
        matches!(event, ClientEvent::Video { payload, .. } if payload.get(1) != Some(&0))
    };
    Client::play(origin.rtmp, "live/x").until(is_video).expect("media");
    for (path, sign) in [("live.flv", b"onMetaData" as &[u8]), ("live.mp4", b"mdat")] {
        let mut viewer = Http::connect(origin.http, LIMIT).expect("the server listens");
        viewer.send("GET", &format!("/live/x/{path}"), &[], b"").expect("the server listens");
        let (head, mut body) = viewer.begin().expect("an answer");
        assert_eq!(head.status, 200, "{path}");
        let mut received = Vec::new();
        // Besides the header, there is more than the codecs' configuration.
        while received.len() < 4_000 || !received.windows(sign.len()).any(|bytes| bytes == sign) {
            let mut buffer = [0; 4096];
            let read = body.read(&mut buffer).expect("media");
            assert!(read > 0, "{path} ended");
            received.extend_from_slice(&buffer[..read]);
        }
    }
}

/// Publishes three seconds and sees them offered. Other renditions end their segments where this
/// one does.
#[track_caller]
pub(crate) fn begin(origin: &Origin) -> Client {
    let mut publisher = Client::publish(origin.rtmp, "live/x");
    announce(&mut publisher);
    (0..3).for_each(|second| send_second(&mut publisher, second, ALL));
    assert_eq!(listed(origin), (names(&["v0"]), names(&["v0"])));
    publisher
}

pub(crate) fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

/// Publishes further seconds of both renditions until viewers are offered the expected ones.
#[track_caller]
fn until_listed(
    origin: &Origin,
    high: &mut Client,
    mut low: Option<&mut Client>,
    seconds: &mut std::ops::RangeFrom<u32>,
    wanted: &[&str],
) {
    let begun = Instant::now();
    loop {
        let second = seconds.next().expect("it has no end");
        send_second(high, second, ALL);
        if let Some(low) = &mut low {
            send_second(low, second, &[TagKind::Video]);
        }
        let now = listed(origin);
        if now.0 == wanted && now.1 == wanted {
            return;
        }
        assert!(begun.elapsed() < LIMIT, "{now:?} instead of {wanted:?}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// A rendition whose publisher has left disappears from all manifests within a known time, and the
/// others stay. While both are there, DASH has them in sets with aligned segments.
#[test]
fn a_rendition_whose_publisher_left_is_offered_no_longer() {
    let origin = Origin::start(PATIENT);
    let (mut high, mut seconds) = (begin(&origin), 3..);
    let mut low = Client::publish(origin.rtmp, "live/x?rendition=low");
    low.send(&clip()[0]);
    until_listed(&origin, &mut high, Some(&mut low), &mut seconds, &["v0", "v1"]);
    drop(low);
    until_listed(&origin, &mut high, None, &mut seconds, &["v0"]);
}

/// A message of the clip's video as Enhanced RTMP's second track. `packet_type` 2 ends the track.
pub(crate) fn as_second_track(legacy: &[u8], packet_type: u8) -> Bytes {
    let mut bytes = vec![0x80 | legacy[0] & 0xf0 | 6, packet_type];
    bytes.extend_from_slice(b"avc1\x01");
    // A configuration has no composition time there.
    match packet_type {
        0 => bytes.extend_from_slice(&legacy[5..]),
        1 => bytes.extend_from_slice(&legacy[2..]),
        _ => {}
    }
    bytes.into()
}

/// A publisher of two video tracks ends one and goes on with the other. Viewers of the track do not
/// wait for it.
#[test]
fn a_track_that_its_publisher_ends_ends_in_playlists_and_manifests() {
    let origin = Origin::start(PATIENT);
    let mut publisher = begin(&origin);
    let second_track = |publisher: &mut Client, message: &Message, at: u32, packet_type: u8| {
        publisher.tag(TagKind::Video, at, as_second_track(&message.payload(), packet_type));
    };
    let header = &clip()[..2].iter().find(|message| message.kind() == TagKind::Video).unwrap();
    second_track(&mut publisher, header, 3000, 0);
    for second in 3..6 {
        send_second(&mut publisher, second, ALL);
        let of_second = |message: &&Message| message.timestamp() / 1000 == second;
        for message in clip()[2..].iter().filter(of_second) {
            if message.kind() == TagKind::Video {
                second_track(&mut publisher, message, message.timestamp(), 1);
            }
        }
    }
    let both = (names(&["v0", "v1"]), names(&["v0", "v1"]));
    let begun = Instant::now();
    while listed(&origin) != both {
        assert!(begun.elapsed() < LIMIT, "{}", origin.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    second_track(&mut publisher, header, 6000, 2);
    let (begun, mut seconds) = (Instant::now(), 6..);
    while origin.get("/live/x/v1/media.m3u8").status() != 404 {
        assert!(begun.elapsed() < LIMIT, "{}", origin.log());
        send_second(&mut publisher, seconds.next().expect("it has no end"), ALL);
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(listed(&origin), (names(&["v0"]), names(&["v0"])));
}

/// All renditions of a stream come from the stream's address. A stranger is told why it may not add
/// one, and the log tells it as well. Viewers are offered the same renditions as before.
#[test]
fn a_stranger_adds_no_rendition() {
    let origin = Origin::start(PATIENT);
    let _first = begin(&origin);
    let refused = try_publish_from([127, 0, 0, 2], origin.rtmp, "live/x?rendition=evil").err();
    let (code, reason) = refused.expect("it may not");
    assert_eq!(code, "NetStream.Publish.Denied");
    assert!(reason.contains("published from another address"), "{reason}");
    // It does not learn the publisher's address.
    assert!(!reason.contains("127.0.0.1"), "{reason}");
    let line = origin.log_line(LIMIT, |line| line.contains("publish refused"));
    assert!(line.contains(" WARN ") && line.contains(" peer=127.0.0.2:"), "{line}");
    assert!(line.contains("stream=\"x\"") && line.contains(&reason), "{line}");
    assert_eq!(listed(&origin), (names(&["v0"]), names(&["v0"])));
    // From the same address a rendition is admitted.
    let own = try_publish_from([127, 0, 0, 1], origin.rtmp, "live/x?rendition=low");
    assert!(own.is_ok(), "{:?}", own.err());
}

/// Playlists, manifests, metrics and logs contain a rendition's name, and viewers request it.
#[test]
fn a_rendition_that_cannot_be_called_so_is_refused() {
    let origin = Origin::start(PATIENT);
    let _first = begin(&origin);
    let long = "x".repeat(65);
    for (name, shown) in [
        ("../..", "\"../..\""),
        ("a,URI=\"http://evil/\"", "\"a,URI="),
        ("nl\n#EXT-X-ENDLIST", "\"nl\\n#EXT-X-ENDLIST\""),
        ("<script>", "\"<script>\""),
        (&long, &long),
    ] {
        let stream = format!("live/x?rendition={name}");
        let refused = try_publish_from([127, 0, 0, 1], origin.rtmp, &stream).err();
        let (code, reason) = refused.unwrap_or_else(|| panic!("{name} is let in"));
        assert_eq!(code, "NetStream.Publish.BadName");
        assert!(reason.contains(shown) && reason.contains("is not a rendition's name"), "{reason}");
    }
    assert_eq!(listed(&origin), (names(&["v0"]), names(&["v0"])));
}

/// If the configuration allows it, renditions may come from anywhere.
#[test]
fn foreign_renditions_are_let_in_where_that_is_configured() {
    let origin = Origin::start(&format!("{PATIENT}foreign_renditions = true\n"));
    let (mut first, mut seconds) = (begin(&origin), 3..);
    let second = try_publish_from([127, 0, 0, 2], origin.rtmp, "live/x?rendition=low");
    let mut second = second.unwrap_or_else(|refused| panic!("{refused:?}"));
    second.send(&clip()[0]);
    until_listed(&origin, &mut first, Some(&mut second), &mut seconds, &["v0", "v1"]);
    assert!(origin.warnings(second.address()).is_empty(), "{}", origin.log());
}
