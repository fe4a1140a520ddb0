//! A publisher by WHIP that sends simulcast. The publisher is str0m, and ffmpeg reads its layers by HLS.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use str0m::change::SdpAnswer;
use str0m::format::Codec;
use str0m::media::{Direction, MediaKind, Mid, Pt, Rid, Simulcast, SimulcastLayer};
use str0m::rtp::RtpWrite;
use str0m::{Candidate, Event, Output, Rtc, RtcConfig};
use testkit::{AccessUnit, Lateness, Server, access_unit_hashes_with};

use crate::support::{LIMIT, Sockets, input, post, restart, server};

/// Time between two frames. Few frames leave a busy machine time.
const FRAME: Duration = Duration::from_millis(100);
/// Frames from one keyframe to the next.
const KEYFRAMES: usize = 20;
/// Frames of a clip. It begins again after the last.
const FRAMES: usize = 200;

/// A layer, and its pictures as payloads of RTP.
struct Layer {
    rid: &'static str,
    size: (u64, u64),
    clip: PathBuf,
    pictures: Vec<Vec<Arc<[u8]>>>,
    /// RTP time of the first picture. It differs from layer to layer, as with browsers.
    base: u32,
    sequence: u64,
    /// How many frames after its capture a picture is sent.
    late: usize,
}

impl Layer {
    #[track_caller]
    fn new(folder: &Path, rid: &'static str, size: (u64, u64), base: u32) -> Self {
        let clip = folder.join(format!("{rid}.mp4"));
        let picture = format!("testsrc2=s={}x{}:r=10:d=20", size.0, size.1);
        let encode = "-c:v libx264 -preset ultrafast -bf 0 -g 20 -b:v 60k -pix_fmt yuv420p \
                      -x264-params slices=1:sliced-threads=0:scenecut=0";
        let input = ["-f", "lavfi", "-i", &picture];
        let options = input.into_iter().chain(encode.split_ascii_whitespace());
        testkit::ffmpeg(options.chain([clip.to_str().unwrap()]));
        let stream = ["-i", clip.to_str().unwrap(), "-c", "copy", "-f", "h264", "-"];
        let pictures = pictures(&testkit::ffmpeg(stream));
        assert_eq!(pictures.len(), FRAMES);
        Self { rid, size, clip, pictures, base, sequence: 1, late: 0 }
    }
}

/// The pictures of an H.264 byte stream with one slice in each, as payloads of RTP.
fn pictures(stream: &[u8]) -> Vec<Vec<Arc<[u8]>>> {
    let starts = stream.windows(3).enumerate().filter(|(_, bytes)| *bytes == [0, 0, 1]);
    let starts: Vec<_> = starts.map(|(at, _)| at + 3).collect();
    let (mut pictures, mut units) = (Vec::new(), Vec::new());
    for (index, start) in starts.iter().enumerate() {
        let end = starts.get(index + 1).map_or(stream.len(), |next| next - 3);
        // Zeros belong to the next start code.
        let zeros = stream[*start..end].iter().rev().take_while(|byte| **byte == 0).count();
        let unit = &stream[*start..end - zeros];
        units.push(unit);
        if matches!(unit[0] & 0x1f, 1 | 5) {
            pictures.push(rtp::h264::packetize(units.drain(..), 1100));
        }
    }
    pictures
}

struct Publisher {
    rtc: Rtc,
    sockets: Sockets,
    session: String,
    mid: Mid,
    payload: Pt,
    /// The payload type of Opus, of which nothing is sent.
    silent: Pt,
    layers: Vec<Layer>,
    answer: String,
    is_connected: bool,
    /// When frame 0 was due, when the newest was sent, and the next frame.
    begun: Instant,
    sent: Instant,
    /// By how much a frame was late at most.
    late: Duration,
    next: usize,
    /// Layers of which a keyframe was asked for, and the frame before which.
    asked: Vec<(Rid, usize)>,
    /// How often the server asked for packets that are missing.
    nacks: u64,
}

impl Publisher {
    /// Publishes `live/x`. It offers the layers in this order.
    #[track_caller]
    fn new(server: &Server, layers: Vec<Layer>) -> Self {
        Self::by(Rtc::builder().clear_codecs().enable_h264(true), server, layers)
    }

    /// The same, with the codec of video that `config` has.
    #[track_caller]
    fn by(config: RtcConfig, server: &Server, layers: Vec<Layer>) -> Self {
        let sockets = Sockets::new();
        let config = config.set_rtp_mode(true).enable_opus(true, false);
        let config = config.set_stats_interval(Some(Duration::from_millis(100)));
        let mut rtc = config.build(Instant::now());
        rtc.add_local_candidate(Candidate::host(sockets.local(), "udp").unwrap());
        let mut simulcast = Simulcast::new();
        for layer in &layers {
            simulcast.add_send_layer(SimulcastLayer::new(layer.rid));
        }
        let mut sdp = rtc.sdp_api();
        let mid = sdp.add_media(MediaKind::Video, Direction::SendOnly, None, None, Some(simulcast));
        sdp.add_media(MediaKind::Audio, Direction::SendOnly, None, None, None);
        let (offer, pending) = sdp.apply().unwrap();
        let answer = post(server, "/live/x/whip", &offer.to_sdp_string());
        assert_eq!(answer.status(), 201, "{}", answer.text());
        let sdp = SdpAnswer::from_sdp_string(answer.text()).unwrap();
        rtc.sdp_api().accept_answer(pending, sdp).unwrap();
        let agreed = rtc.media(mid).unwrap().remote_pts();
        let params = rtc.codec_config().params();
        let h264 = { params.iter() }.find(|it| agreed.contains(&it.pt())).unwrap();
        let opus = { params.iter() }.find(|it| it.spec().codec == Codec::Opus).unwrap();
        let (payload, silent) = (h264.pt(), opus.pt());
        let mut publisher = Self {
            rtc,
            sockets,
            session: answer.header("location").unwrap().to_owned(),
            mid,
            payload,
            silent,
            layers,
            answer: answer.text().to_owned(),
            is_connected: false,
            begun: Instant::now(),
            sent: Instant::now(),
            late: Duration::ZERO,
            next: 0,
            asked: Vec::new(),
            nacks: 0,
        };
        publisher.work(|publisher| publisher.is_connected);
        publisher.begun = Instant::now();
        publisher
    }

    /// Handles what comes until there is enough.
    #[track_caller]
    fn work(&mut self, enough: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        loop {
            let wakes = self.poll();
            if enough(self) {
                return;
            }
            assert!(begun.elapsed() < LIMIT, "{}", self.answer);
            let wait = wakes.saturating_duration_since(Instant::now());
            let wait = wait.clamp(Duration::from_millis(1), Duration::from_millis(10));
            let came = self.sockets.receive(wait);
            self.rtc.handle_input(input(came.as_ref())).unwrap();
        }
    }

    fn poll(&mut self) -> Instant {
        loop {
            match self.rtc.poll_output().unwrap() {
                Output::Timeout(wakes) => return wakes,
                Output::Transmit(datagram) => self.sockets.send(&datagram),
                Output::Event(Event::Connected) => self.is_connected = true,
                Output::Event(Event::KeyframeRequest(request)) => {
                    self.asked.push((request.rid.unwrap(), self.next));
                }
                Output::Event(Event::MediaEgressStats(stats)) => {
                    self.nacks = self.nacks.max(stats.nacks);
                }
                Output::Event(_) => {}
            }
        }
    }

    fn write(&mut self, rid: &str, packet: RtpWrite) {
        let mut api = self.rtc.direct_api();
        api.stream_tx_by_mid(self.mid, Some(rid.into())).unwrap().write_rtp(packet);
    }

    /// Sends the frames before `until` of these layers, each when it is due. Late ones follow each other at twice the
    /// speed: no buffer on the way holds those of seconds.
    #[track_caller]
    fn send(&mut self, until: usize, rids: &[&str]) {
        while self.next < until {
            let (frame, due) = (self.next, self.begun + FRAME * self.next as u32);
            let soonest = due.max(self.sent + FRAME / 2);
            self.work(|_| Instant::now() >= soonest);
            self.sent = Instant::now();
            self.late = self.late.max(self.sent - due);
            for at in 0..self.layers.len() {
                if !rids.contains(&self.layers[at].rid) {
                    continue;
                }
                let layer = &mut self.layers[at];
                let (frame, due) = (frame - layer.late, due - FRAME * layer.late as u32);
                let payloads = layer.pictures[frame % FRAMES].clone();
                let time = layer.base.wrapping_add(9000 * frame as u32);
                let (rid, count) = (layer.rid, payloads.len());
                for (index, payload) in payloads.into_iter().enumerate() {
                    let sequence = self.layers[at].sequence;
                    self.layers[at].sequence += 1;
                    let (payload_type, marker) = (self.payload, index + 1 == count);
                    let write = RtpWrite::new(payload_type, sequence.into(), time, due, payload);
                    self.write(rid, write.marker(marker).nackable(true));
                }
            }
            self.next += 1;
        }
        self.work(|_| true);
    }

    /// Sends frames of these layers until the server says something. Returns the stream's video tracks.
    #[track_caller]
    fn send_until(
        &mut self,
        server: &Server,
        rids: &[&str],
        enough: impl Fn(&[Value]) -> bool,
    ) -> Vec<Value> {
        let begun = Instant::now();
        loop {
            self.send(self.next + 5, rids);
            let tracks = tracks(server);
            if enough(&tracks) {
                return tracks;
            }
            assert!(begun.elapsed() < LIMIT, "{tracks:?}");
        }
    }
}

/// The tracks that the server offers, once there is a stream.
fn tracks(server: &Server) -> Vec<Value> {
    let answer = server.get("/api/v1/streams/live/x");
    let stream: Value = serde_json::from_str(answer.text()).unwrap_or_default();
    stream["tracks"].as_array().cloned().unwrap_or_default()
}

/// The name of the track that is this layer.
#[track_caller]
fn name(tracks: &[Value], rid: &str) -> String {
    let track = tracks.iter().find(|track| track["rendition"] == rid);
    track.unwrap_or_else(|| panic!("no {rid}: {tracks:?}"))["name"].as_str().unwrap().to_owned()
}

fn has(tracks: &[Value], rids: &[&str]) -> bool {
    let names: BTreeSet<_> =
        tracks.iter().filter_map(|track| track["rendition"].as_str()).collect();
    names == rids.iter().copied().collect()
}

/// The access units that HLS has of a track, until `until` says otherwise to ffmpeg.
#[track_caller]
fn received(server: &Server, track: &str, until: &[&str]) -> Vec<AccessUnit> {
    let playlist = server.url(&format!("/live/x/{track}/media.m3u8"));
    let options = ["-copyts", "-live_start_index", "0"];
    access_unit_hashes_with(playlist, &options, until)
}

#[test]
fn each_layer_is_a_rendition_and_all_share_one_time() {
    let server =
        server("[live]\nwindow = \"5m\"\nreconnect = \"1s\"\n[webrtc]\njitter = \"30s\"\n");
    let folder = tempfile::tempdir().unwrap();
    let of = |rid, size, base| Layer::new(folder.path(), rid, size, base);
    let mut layers = vec![
        of("h", (960, 540), 1_000_000),
        of("m", (640, 360), u32::MAX - 90_000),
        of("l", (320, 180), 2_000_000_000),
    ];
    // Its pictures come later than those of the others, and are still shown at the same times.
    layers[0].late = 3;
    let mut publisher = Publisher::new(&server, layers);
    let told = "a=simulcast:recv h;m;l\r\n";
    assert!(publisher.answer.contains(told), "{}", publisher.answer);
    for rid in ["h", "m", "l"] {
        assert!(
            publisher.answer.contains(&format!("a=rid:{rid} recv\r\n")),
            "{}",
            publisher.answer
        );
    }
    for extension in ["sdes:rtp-stream-id", "sdes:repaired-rtp-stream-id"] {
        assert!(publisher.answer.contains(extension), "{}", publisher.answer);
    }
    // The largest layer begins later, as with browsers, and nobody waits for it.
    publisher.send_until(&server, &["l", "m"], |tracks| has(tracks, &["l", "m"]));
    let begins = publisher.next.next_multiple_of(KEYFRAMES) + publisher.layers[0].late;
    publisher.send(begins, &["l", "m"]);
    publisher.asked.clear();
    publisher.send(begins + 90, &["l", "m", "h"]);
    let tracks = publisher.send_until(&server, &["l", "m", "h"], |tracks| {
        has(tracks, &["l", "m", "h"]) && tracks.iter().all(|track| track["frame_rate"].is_f64())
    });

    // Keyframes of all layers are asked for at one time.
    let asked = |frame: usize| {
        let rids = publisher.asked.iter().filter(|(_, at)| at.abs_diff(frame) <= 2);
        rids.map(|(rid, _)| rid.to_string()).collect::<Vec<_>>()
    };
    let together = publisher.asked.iter().map(|(_, frame)| asked(*frame));
    let together =
        { together }.find(|rids| ["h", "m", "l"].iter().all(|it| rids.iter().any(|rid| rid == it)));
    assert!(together.is_some(), "{:?}", publisher.asked);

    let sizes = publisher.layers.iter().map(|layer| (layer.rid, layer.size, layer.clip.clone()));
    let sizes: Vec<_> = sizes.collect();
    let playlist = server.get("/live/x/index.m3u8");
    for (_, (width, height), _) in &sizes {
        let resolution = format!("RESOLUTION={width}x{height}");
        assert!(playlist.text().contains(&resolution), "{}", playlist.text());
    }
    drop(publisher);
    let mut shifts = Vec::new();
    for (rid, size, clip) in &sizes {
        let track = tracks.iter().find(|track| track["rendition"] == *rid).unwrap();
        let named = (track["width"].as_u64().unwrap(), track["height"].as_u64().unwrap());
        assert_eq!(named, *size, "{rid}");
        let track = name(&tracks, rid);
        server.until_ended("live/x", &track, LIMIT);
        let (sent, got) = (access_unit_hashes_with(clip, &[], &[]), received(&server, &track, &[]));
        assert!(got.len() > 40, "{rid}: {} pictures", got.len());
        let first = sent.iter().position(|unit| unit.md5 == got[0].md5).unwrap();
        for (index, unit) in got.iter().enumerate() {
            let sent = &sent[(first + index) % FRAMES];
            assert_eq!(unit.md5, sent.md5, "{rid}: picture {index} of {}", got.len());
        }
        // Times of one clip, as if it did not begin again.
        let last = got.last().unwrap();
        let at = sent.iter().position(|unit| unit.md5 == last.md5).unwrap();
        shifts.push((*rid, last.pts_time() - sent[at].pts_time()));
    }
    // Each layer counts from a number of its own. Reports put all beside each other.
    let clip = FRAME.as_secs_f64() * FRAMES as f64;
    for (rid, shift) in &shifts {
        let apart = (shift - shifts[0].1).rem_euclid(clip);
        assert!(apart.min(clip - apart) < 0.05, "{rid}: {shifts:?}");
    }
}

#[test]
fn a_layer_that_is_switched_off_holds_up_nothing_and_comes_again() {
    let server = server("[live]\nwindow = \"5m\"\nsilence = \"2s\"\n[webrtc]\njitter = \"30s\"\n");
    let folder = tempfile::tempdir().unwrap();
    let layers = vec![
        Layer::new(folder.path(), "hi", (640, 360), 7),
        Layer::new(folder.path(), "lo", (320, 180), 90_000),
    ];
    let lateness = Lateness::of(&server);
    let mut publisher = Publisher::new(&server, layers);
    // The layer that is switched off later is the one that comes first.
    publisher.send_until(&server, &["hi"], |tracks| has(tracks, &["hi"]));
    publisher.send(publisher.next.next_multiple_of(KEYFRAMES), &["hi"]);
    let begun = publisher.next;
    let tracks = publisher.send_until(&server, &["hi", "lo"], |it| has(it, &["hi", "lo"]));
    let low = name(&tracks, "lo");
    publisher.send(publisher.next.next_multiple_of(KEYFRAMES), &["hi", "lo"]);
    publisher.send_until(&server, &["lo"], |tracks| has(tracks, &["lo"]));
    let listed = server.get("/live/x/index.m3u8");
    assert!(!listed.text().contains("640x360"), "{}", listed.text());
    // It comes again with a keyframe, as browsers send it.
    publisher.send(publisher.next.next_multiple_of(KEYFRAMES), &["lo"]);
    publisher.send_until(&server, &["hi", "lo"], |tracks| has(tracks, &["hi", "lo"]));
    publisher.send(publisher.next + 30, &["hi", "lo"]);
    let playlist = server.get(&format!("/live/x/{low}/media.m3u8"));
    // A layer begins at the time at which it comes. Its first report moves one that came late: that far that its time
    // runs back.
    let late = publisher.late.max(lateness.longest());
    let moves = usize::from(late >= Duration::from_secs(1));
    assert!(playlist.text().matches("DISCONTINUITY").count() <= moves, "{}", playlist.text());
    // Packets of a layer that was not agreed on are dropped, and so is sound among pictures.
    let mut api = publisher.rtc.direct_api();
    api.declare_stream_tx(4711.into(), None, publisher.mid, Some("x".into()));
    for index in 0..50 {
        let (pt, payload) = (publisher.payload, publisher.layers[0].pictures[0][0].clone());
        publisher.write("x", RtpWrite::new(pt, (1 + index).into(), 5, Instant::now(), payload));
        let (pt, next) = (publisher.silent, publisher.layers[0].sequence + index);
        publisher.write("hi", RtpWrite::new(pt, next.into(), 5, Instant::now(), [0u8; 20]));
    }
    let tracks = publisher.send_until(&server, &["lo"], |tracks| has(tracks, &["lo"]));
    assert!(tracks.iter().all(|track| track["kind"] == "video"), "{tracks:?}");
    assert!(!server.whole_log().contains("publisher's media"), "{}", server.log());
    // No picture of the layer that stayed is missing or wrong. A slow machine has sent few of them until here.
    publisher.send(publisher.next.max(begun + 100), &["lo"]);
    let sent = access_unit_hashes_with(&publisher.layers[1].clip, &[], &[]);
    let got = received(&server, &low, &["-frames:v", "80"]);
    let first = sent.iter().position(|unit| unit.md5 == got[0].md5).unwrap();
    assert_eq!(got.len(), 80);
    for (index, unit) in got.iter().enumerate() {
        assert_eq!(unit.md5, sent[(first + index) % FRAMES].md5, "picture {index}");
    }
}

#[test]
fn a_publisher_that_restarts_ice_keeps_its_track() {
    let server =
        server("[live]\nwindow = \"5m\"\nreconnect = \"1s\"\n[webrtc]\njitter = \"30s\"\n");
    let folder = tempfile::tempdir().unwrap();
    let layers = vec![Layer::new(folder.path(), "hi", (320, 180), 7)];
    let mut publisher = Publisher::new(&server, layers);
    let tracks = publisher.send_until(&server, &["hi"], |tracks| has(tracks, &["hi"]));
    let track = name(&tracks, "hi");
    let mut restarts = 0;
    // Twice, because the second restart has the first one before it.
    for _ in 0..2 {
        publisher.send(publisher.next + 20, &["hi"]);
        publisher.sockets.add();
        let session = (publisher.session.as_str(), publisher.answer.as_str());
        let (local, port) = (publisher.sockets.local(), server.webrtc.unwrap().port());
        restart(&server, &mut publisher.rtc, session, local, port);
        restarts += 1;
        // Reports of the server come by the new way only when its own ICE has gone over.
        let begun = Instant::now();
        while publisher.sockets.media.last() == Some(&0) {
            publisher.send(publisher.next + 1, &["hi"]);
            assert!(begun.elapsed() < LIMIT, "{restarts} restarts");
        }
        publisher.sockets.close_old();
    }
    publisher.send(publisher.next + 20, &["hi"]);
    assert_eq!(server.metric("headwater_webrtc_sessions"), 1);
    let (clip, sent) = (publisher.layers[0].clip.clone(), publisher.next);
    drop(publisher);
    let playlist = server.until_ended("live/x", &track, LIMIT);
    assert!(!playlist.contains("DISCONTINUITY"), "{playlist}");
    let (of_clip, got) = (access_unit_hashes_with(clip, &[], &[]), received(&server, &track, &[]));
    assert!(got.len() > 60 && got.len() <= sent, "{} of {sent}", got.len());
    let first = of_clip.iter().position(|unit| unit.md5 == got[0].md5).unwrap();
    for (index, unit) in got.iter().enumerate() {
        assert_eq!(unit.md5, of_clip[(first + index) % FRAMES].md5, "picture {index}");
    }
    // The last picture waits for the next, which never came.
    assert!(first + got.len() + 1 >= sent, "{first} + {} of {sent}", got.len());
}

#[test]
fn packets_of_a_layer_that_are_lost_are_asked_for_without_rtx() {
    let server = server("[live]\nwindow = \"5m\"\n[webrtc]\njitter = \"30s\"\n");
    let folder = tempfile::tempdir().unwrap();
    let layers = vec![Layer::new(folder.path(), "hi", (320, 180), 7)];
    let mut config = Rtc::builder().clear_codecs();
    config.codec_config().add_h264(102.into(), None, true, 0x42_e0_1f);
    let mut publisher = Publisher::by(config, &server, layers);
    assert!(!publisher.answer.contains("rtx"), "{}", publisher.answer);
    publisher.send_until(&server, &["hi"], |tracks| has(tracks, &["hi"]));
    let before = publisher.nacks;
    // Packets with these numbers never come.
    publisher.layers[0].sequence += 2;
    let begun = Instant::now();
    while publisher.nacks == before {
        publisher.send(publisher.next + 1, &["hi"]);
        assert!(begun.elapsed() < LIMIT, "{}", server.log());
    }
}
