//! A peer for codecs that aiortc has not: str0m packetizes what is published, and puts together what comes to a
//! viewer. And how what it publishes comes out of the origin.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use str0m::change::SdpAnswer;
use str0m::format::Codec;
use str0m::media::{Direction, MediaKind, MediaTime, Mid};
use str0m::net::{DatagramRecv, Protocol, Receive};
use str0m::{Candidate, Event, IceCreds, Input, Output, Rtc};
use testkit::http::Response;
use testkit::{Program, Server, access_unit_hashes_with, from_start};

use crate::support::{LIMIT, despite_stops, post, server, socket};

/// Clips have 30 pictures a second.
const FRAME: Duration = Duration::from_micros(33_333);

/// The peer's own username fragment of ICE.
pub(crate) const FRAGMENT: &str = "peer";

/// A peer that prefers a codec to H.264, and has one video.
pub(crate) struct Peer {
    rtc: Rtc,
    socket: UdpSocket,
    local: SocketAddr,
    mid: Mid,
    /// How the server took the offer.
    pub(crate) answer: Response,
    pub(crate) is_connected: bool,
    /// Of the packets that it sends, one in so many is lost for good: it does not hear that.
    pub(crate) loses: Option<usize>,
    pub(crate) sent: usize,
    /// Access units that came.
    pub(crate) came: Vec<Vec<u8>>,
}

impl Peer {
    #[track_caller]
    pub(crate) fn new(server: &Server, path: &str, direction: Direction, codec: Codec) -> Self {
        let socket = socket();
        let local = socket.local_addr().unwrap();
        let (av1, hevc) = (codec == Codec::Av1, codec == Codec::H265);
        let config = Rtc::builder().clear_codecs().enable_av1(av1).enable_h265(hevc);
        // It comes last, because publishers get the codec that is the first of their offer.
        let config = config.enable_h264(true);
        let own =
            IceCreds { ufrag: FRAGMENT.to_owned(), pass: "0123456789012345678901".to_owned() };
        let mut rtc = config.set_local_ice_credentials(own).build(Instant::now());
        rtc.add_local_candidate(Candidate::host(local, "udp").unwrap());
        let mut sdp = rtc.sdp_api();
        let mid = sdp.add_media(MediaKind::Video, direction, None, None, None);
        let (offer, pending) = sdp.apply().unwrap();
        let answer = post(server, path, &offer.to_sdp_string());
        assert_eq!(answer.status(), 201, "{}", answer.text());
        assert!(!answer.text().contains("H264"), "{}", answer.text());
        let sdp = SdpAnswer::from_sdp_string(answer.text()).unwrap();
        rtc.sdp_api().accept_answer(pending, sdp).unwrap();
        let (is_connected, came) = (false, Vec::new());
        Self { rtc, socket, local, mid, answer, is_connected, loses: None, sent: 0, came }
    }

    /// Handles what comes until there is enough.
    #[track_caller]
    pub(crate) fn work(&mut self, enough: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        loop {
            let wakes = self.poll();
            if enough(self) {
                return;
            }
            assert!(begun.elapsed() < LIMIT, "{} units", self.came.len());
            let wait = wakes.saturating_duration_since(Instant::now());
            let wait = wait.clamp(Duration::from_millis(1), Duration::from_millis(10));
            self.socket.set_read_timeout(Some(wait)).unwrap();
            let mut buffer = [0; 2048];
            let input = match self.socket.recv_from(&mut buffer) {
                Ok((length, _)) if self.loses.is_some() && is_rtcp(&buffer[..length]) => continue,
                Ok((length, source)) => {
                    let contents = DatagramRecv::try_from(&buffer[..length]).unwrap();
                    let destination = self.local;
                    let receive = Receive { proto: Protocol::Udp, source, destination, contents };
                    Input::Receive(Instant::now(), receive)
                }
                Err(_) => Input::Timeout(Instant::now()),
            };
            self.rtc.handle_input(input).unwrap();
        }
    }

    /// Sends access units, each when it is due.
    #[track_caller]
    pub(crate) fn send(&mut self, units: impl IntoIterator<Item = Vec<u8>>) {
        let begun = Instant::now();
        for (frame, unit) in (0..).zip(units) {
            let due = begun + FRAME * frame;
            self.work(|_| Instant::now() >= due);
            let writer = self.rtc.writer(self.mid).unwrap();
            let payload = writer.payload_params().next().unwrap().pt();
            let time = MediaTime::from_90khz(u64::from(frame) * 3000);
            writer.write(payload, due, time, unit).unwrap();
        }
        // What is lost is asked for again.
        let until = Instant::now() + Duration::from_secs(2);
        self.work(|_| Instant::now() >= until);
    }

    fn poll(&mut self) -> Instant {
        loop {
            match self.rtc.poll_output().unwrap() {
                Output::Timeout(wakes) => return wakes,
                Output::Transmit(datagram) => {
                    let is_rtp = matches!(datagram.contents[0], 128..=191);
                    self.sent += usize::from(is_rtp && !is_rtcp(&datagram.contents));
                    if is_rtp && self.loses.is_some_and(|loses| self.sent.is_multiple_of(loses)) {
                        continue;
                    }
                    // One of the server's addresses may be out of reach.
                    let _ = self.socket.send_to(&datagram.contents, datagram.destination);
                }
                Output::Event(Event::Connected) => self.is_connected = true,
                Output::Event(Event::MediaData(data)) => self.came.push(data.data.to_vec()),
                Output::Event(_) => {}
            }
        }
    }
}

/// RFC 5761 4.
fn is_rtcp(datagram: &[u8]) -> bool {
    matches!(datagram, [128..=191, 192..=223, ..])
}

/// A server to which `headwater publish` sends a clip by RTMP, again and again.
#[track_caller]
pub(crate) fn by_rtmp(clip: &str) -> (Server, Program) {
    let server = server("");
    let publisher = publish_by_rtmp(&server, clip);
    (server, publisher)
}

#[track_caller]
fn publish_by_rtmp(server: &Server, clip: &str) -> Program {
    let to = server.rtmp_url("live/x");
    let publisher = server.publish(testkit::clip(clip), &to, &["--loop"]);
    server.get_until("/live/x/index.m3u8", LIMIT, |answer| answer.status() == 200);
    publisher
}

/// str0m watches a clip that comes by RTMP again and again. It gets each unit, of which `parts` are compared. The first is
/// a keyframe; each 30th unit is one.
#[track_caller]
pub(crate) fn comes_to_str0m(
    codec: Codec,
    clip: &str,
    units: &[Vec<u8>],
    parts: impl Fn(&[u8]) -> Vec<Vec<u8>>,
) {
    let sent: Vec<_> = units.iter().map(|unit| parts(unit)).collect();
    despite_stops("", |server| {
        let _publisher = publish_by_rtmp(server, clip);
        let mut peer = Peer::new(server, "/live/x/whep", Direction::RecvOnly, codec);
        peer.work(|peer| peer.came.len() >= 100);
        let mut came = peer.came.iter().map(|unit| parts(unit));
        let begin = came.next().and_then(|first| sent.iter().position(|unit| *unit == first));
        let Some(begin @ (0 | 30)) = begin else {
            return Err(format!("a keyframe comes first: {begin:?}"));
        };
        let mut wanted = sent.iter().cycle().skip(begin + 1);
        match came.position(|unit| Some(&unit) != wanted.next()) {
            Some(wrong) => Err(format!("unit {} differs", wrong + 1)),
            None => Ok(()),
        }
    });
}

/// Publishes the access units of a clip. ffmpeg reads each, byte for byte.
#[track_caller]
pub(crate) fn comes_out_as_it_is(codec: Codec, clip: &str, units: Vec<Vec<u8>>, name: &str) {
    // Packets wait long for others, so that nothing is lost on a busy machine.
    let server =
        server("[live]\nwindow = \"5m\"\nreconnect = \"1s\"\n[webrtc]\njitter = \"30s\"\n");
    let mut peer = Peer::new(&server, "/live/x/whip", Direction::SendOnly, codec);
    peer.work(|peer| peer.is_connected);
    peer.send(units);
    drop(peer);
    server.until_ended("live/x", "v0", LIMIT);
    let playlist = server.get("/live/x/index.m3u8");
    assert!(playlist.text().contains(&format!("CODECS=\"{name}")), "{}", playlist.text());
    assert!(playlist.text().contains("RESOLUTION=320x180"), "{}", playlist.text());
    let url = server.url("/live/x/index.m3u8");
    let hashes = |input: &str| {
        let units = access_unit_hashes_with(input, from_start(input), &["-an"]);
        units.into_iter().map(|unit| unit.md5).collect::<Vec<_>>()
    };
    let clip = testkit::clip(clip);
    let clip = clip.to_str().unwrap();
    assert_eq!(hashes(&url), hashes(clip));
    assert_eq!(pictures(&url), pictures(clip));
}

/// Publishes the access units of a clip three times, and loses one in 40 packets for good. What passes shows the
/// pictures that were sent.
#[track_caller]
pub(crate) fn nothing_else_is_shown_when_packets_are_lost(
    codec: Codec,
    clip: &str,
    units: &[Vec<u8>],
) {
    let server = server("[live]\nwindow = \"5m\"\nreconnect = \"1s\"\n");
    let mut peer = Peer::new(&server, "/live/x/whip", Direction::SendOnly, codec);
    peer.work(|peer| peer.is_connected);
    peer.loses = Some(40);
    peer.send(units.iter().chain(units).chain(units).cloned());
    let lost = peer.sent / 40;
    drop(peer);
    server.until_ended("live/x", "v0", LIMIT);
    let got = pictures(&server.url("/live/x/index.m3u8"));
    let sent = pictures(testkit::clip(clip).to_str().unwrap());
    assert!(lost >= 5, "{lost} lost");
    // Some do not pass: those after a loss, until the next keyframe.
    assert!((20..3 * sent.len() - lost).contains(&got.len()), "{} pictures", got.len());
    // A picture that lacks what it refers to would be another one.
    for (index, picture) in got.iter().enumerate() {
        assert!(sent.contains(picture), "picture {index} of {}", got.len());
    }
}

/// The MD5 of each picture that ffmpeg decodes.
#[track_caller]
fn pictures(input: &str) -> Vec<String> {
    // Times do not matter here, and ffmpeg guesses them where pictures are missing.
    let decode = ["-i", input, "-an", "-fps_mode", "drop", "-f", "framehash"];
    let options = from_start(input).iter().chain(&decode).chain(&["-hash", "md5", "-"]);
    let hashes = testkit::ffmpeg(["-xerror"].iter().chain(options));
    testkit::framehash(&hashes).into_iter().map(|picture| picture.md5).collect()
}
