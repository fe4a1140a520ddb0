//! AV1 by WHIP and WHEP. str0m packetizes what is published, and puts together what comes to a viewer.

use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

use str0m::change::SdpAnswer;
use str0m::media::{Direction, MediaKind, MediaTime, Mid};
use str0m::net::{DatagramRecv, Protocol, Receive};
use str0m::{Candidate, Event, Input, Output, Rtc};
use testkit::{Program, Server, access_unit_hashes_with};

use crate::support::{LIMIT, OFFER, post, server};

/// Two seconds of AV1, with a keyframe a second.
const CLIP: &str = "mp4/av1-aac.mp4";
const FRAME: Duration = Duration::from_micros(33_333);

/// The temporal units of the clip, without temporal delimiters.
fn temporal_units() -> Vec<Vec<u8>> {
    let clip = testkit::clip(CLIP);
    let options = ["-an", "-c", "copy", "-f", "ivf", "-"];
    let ivf = testkit::ffmpeg(["-i", clip.to_str().unwrap()].iter().chain(&options));
    let (mut rest, mut units) = (&ivf[32..], Vec::new());
    while let Some((size, after)) = rest.split_first_chunk() {
        let (unit, after) = after[8..].split_at(u32::from_le_bytes(*size) as usize);
        units.push(unit.strip_prefix(&[0x12, 0]).unwrap_or(unit).to_vec());
        rest = after;
    }
    assert_eq!(units.len(), 60);
    units
}

/// A peer that knows AV1 and H.264 and has one video.
struct Peer {
    rtc: Rtc,
    socket: UdpSocket,
    local: SocketAddr,
    mid: Mid,
    is_connected: bool,
    /// Of the packets that it sends, one in so many is lost for good: it does not hear that.
    loses: Option<usize>,
    sent: usize,
    /// Temporal units that came.
    came: Vec<Vec<u8>>,
}

impl Peer {
    #[track_caller]
    fn new(server: &Server, path: &str, direction: Direction) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let local = socket.local_addr().unwrap();
        let config = Rtc::builder().clear_codecs().enable_av1(true).enable_h264(true);
        let mut rtc = config.build(Instant::now());
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
        Self { rtc, socket, local, mid, is_connected, loses: None, sent: 0, came }
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

    /// Sends temporal units, each when it is due.
    #[track_caller]
    fn send(&mut self, units: impl IntoIterator<Item = Vec<u8>>) {
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

#[test]
fn ffmpeg_reads_each_temporal_unit_that_str0m_publishes() {
    // Packets wait long for others, so that nothing is lost on a busy machine.
    let server = server("[live]\nwindow = \"5m\"\nreconnect = \"1s\"\n[webrtc]\njitter = \"5s\"\n");
    let mut peer = Peer::new(&server, "/live/x/whip", Direction::SendOnly);
    peer.work(|peer| peer.is_connected);
    peer.send(temporal_units());
    drop(peer);
    server.get_until("/live/x/v0/media.m3u8", LIMIT, |it| it.text().contains("#EXT-X-ENDLIST"));
    let playlist = server.get("/live/x/index.m3u8");
    assert!(playlist.text().contains("CODECS=\"av01.0."), "{}", playlist.text());
    assert!(playlist.text().contains("RESOLUTION=320x180"), "{}", playlist.text());
    let url = server.url("/live/x/index.m3u8");
    let hashes = |input, options: &[&str]| {
        let units = access_unit_hashes_with(input, options, &["-an"]);
        units.into_iter().map(|unit| unit.md5).collect::<Vec<_>>()
    };
    let sent = hashes(testkit::clip(CLIP).to_str().unwrap().to_owned(), &[]);
    assert_eq!(hashes(url.clone(), &["-live_start_index", "0"]), sent);
    assert_eq!(pictures(&url), pictures(testkit::clip(CLIP).to_str().unwrap()));
}

/// The MD5 of each picture that ffmpeg decodes.
#[track_caller]
fn pictures(input: &str) -> Vec<String> {
    let from_start: &[_] =
        if input.starts_with("http") { &["-live_start_index", "0"] } else { &[] };
    // Times do not matter here, and ffmpeg guesses them where pictures are missing.
    let decode = ["-i", input, "-an", "-fps_mode", "drop", "-f", "framehash"];
    let options = from_start.iter().chain(&decode).chain(&["-hash", "md5", "-"]);
    let hashes = testkit::ffmpeg(["-xerror"].iter().chain(options));
    testkit::framehash(&hashes).into_iter().map(|picture| picture.md5).collect()
}

#[test]
fn what_passes_when_packets_are_lost_for_good_shows_the_pictures_that_were_sent() {
    let server = server("[live]\nwindow = \"5m\"\nreconnect = \"1s\"\n");
    let mut peer = Peer::new(&server, "/live/x/whip", Direction::SendOnly);
    peer.work(|peer| peer.is_connected);
    peer.loses = Some(40);
    let units = temporal_units();
    peer.send(units.iter().chain(&units).chain(&units).cloned());
    let lost = peer.sent / 40;
    drop(peer);
    server.get_until("/live/x/v0/media.m3u8", LIMIT, |it| it.text().contains("#EXT-X-ENDLIST"));
    let got = pictures(&server.url("/live/x/index.m3u8"));
    let sent = pictures(testkit::clip(CLIP).to_str().unwrap());
    assert!(lost >= 5, "{lost} lost");
    // Some do not pass: those after a loss, until the next keyframe.
    assert!((20..3 * sent.len() - lost).contains(&got.len()), "{} pictures", got.len());
    // A picture that lacks what it refers to would be another one.
    for (index, picture) in got.iter().enumerate() {
        assert!(sent.contains(picture), "picture {index} of {}", got.len());
    }
}

#[test]
fn str0m_gets_each_temporal_unit_that_rtmp_brings() {
    let server = server("");
    let mut command = Command::new(env!("CARGO_BIN_EXE_headwater"));
    let to = format!("rtmp://{}/live/x", server.rtmp);
    let clip = testkit::clip(CLIP);
    let _publisher = Program::spawn(command.arg("publish").arg(clip).arg(to).arg("--loop"));
    server.get_until("/live/x/index.m3u8", LIMIT, |answer| answer.status() == 200);
    let mut peer = Peer::new(&server, "/live/x/whep", Direction::RecvOnly);
    peer.work(|peer| peer.came.len() >= 100);
    let sent = temporal_units();
    let first = sent.iter().position(|unit| *unit == peer.came[0]).unwrap();
    assert!([0, 30].contains(&first), "a keyframe comes first: {first}");
    for (index, (got, sent)) in peer.came.iter().zip(sent.iter().cycle().skip(first)).enumerate() {
        assert!(got == sent, "temporal unit {index}");
    }
}

/// What the server answers to publishers who offer these codecs: payload type 96 is H.264, 45 AV1.
fn answer(server: &Server, stream: &str, payloads: &str, level: &str) -> String {
    let offer = OFFER.replace("SAVPF 96", &format!("SAVPF {payloads}"));
    let av1 = format!("a=rtpmap:45 AV1/90000\r\na=fmtp:45 level-idx={level};profile=0;tier=0\r\n");
    let answer = post(server, &format!("/live/{stream}/whip"), &(offer + &av1));
    assert_eq!(answer.status(), 201, "{}", answer.text());
    answer.text().to_owned()
}

#[test]
fn the_answer_has_the_codec_that_the_publisher_prefers_and_no_other() {
    let server = server("");
    for (index, (payloads, level, wanted, other)) in [
        ("96 45", "5", "96 H264/90000", "AV1"),
        ("45 96", "5", "45 AV1/90000", "H264"),
        ("45", "13", "45 AV1/90000", "H264"),
        ("45 96", "8", "45 AV1/90000", "H264"),
    ]
    .into_iter()
    .enumerate()
    {
        let answer = answer(&server, &format!("x{index}"), payloads, level);
        let (_, video) = answer.split_once("\r\nm=video ").unwrap();
        assert!(video.contains(&format!("\r\na=rtpmap:{wanted}\r\n")), "{payloads}: {video}");
        assert!(!video.contains(other), "{payloads}: {video}");
    }
}
