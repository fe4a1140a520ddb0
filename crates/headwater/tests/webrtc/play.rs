//! What a viewer by WHEP gets, packet by packet. The viewer is str0m.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use rtp::Output as Unit;
use str0m::change::SdpAnswer;
use str0m::media::{Direction, MediaKind};
use str0m::rtp::rtcp::{Rtcp, SenderInfo};
use str0m::rtp::{RawPacket, RtpPacket};
use str0m::{Candidate, Event, Output, Rtc};
use testkit::{Program, Server};

use crate::support::{
    LIMIT, Sockets, ask, despite_stops, input, post, restart, server, small_clip,
};

/// Publishes ten pictures a second and sound, again and again.
#[track_caller]
pub(crate) fn publish(server: &Server, folder: &Path) -> Program {
    let clip = small_clip(folder, 10, 10);
    let publisher = server.publish(clip, &server.url("/live/x/whip"), &["--loop"]);
    server.get_until("/live/x/index.m3u8", LIMIT, |answer| answer.status() == 200);
    publisher
}

/// A viewer.
pub(crate) struct Viewer {
    rtc: Rtc,
    pub(crate) sockets: Sockets,
    /// Its session's URL, and what the server said of its media.
    session: String,
    answer: String,
    /// Of the packets of video that come for the first time, one in so many is lost.
    loses: Option<usize>,
    lost: usize,
    /// It sends no STUN.
    is_silent: bool,
    /// The parameter sets of video that came, without those that are the same as the ones before.
    pub(crate) sets: Vec<Vec<u8>>,
    /// Packets of each source, by sequence number. str0m puts those that were sent again among them.
    pub(crate) packets: BTreeMap<u32, BTreeMap<u64, RtpPacket>>,
    /// Sender reports, with the highest sequence number of the source that had come.
    reports: Vec<(SenderInfo, SystemTime, u64)>,
    cnames: BTreeSet<String>,
    left: Vec<u32>,
    /// Datagrams, and packets of RTX in them.
    came: usize,
    again: usize,
}

impl Viewer {
    #[track_caller]
    pub(crate) fn new(server: &Server) -> Self {
        Self::by(server, server.webrtc.unwrap().port())
    }

    /// A viewer that knows another port than the server's: that of a relay.
    #[track_caller]
    pub(crate) fn by(server: &Server, port: u16) -> Self {
        let sockets = Sockets::new();
        let config = Rtc::builder().set_rtp_mode(true).enable_raw_packets(true);
        let mut rtc = config.clear_codecs().enable_opus(true, false).enable_h264(true).build(now());
        rtc.add_local_candidate(Candidate::host(sockets.local(), "udp").unwrap());
        let mut sdp = rtc.sdp_api();
        sdp.add_media(MediaKind::Video, Direction::RecvOnly, None, None, None);
        sdp.add_media(MediaKind::Audio, Direction::RecvOnly, None, None, None);
        let (offer, pending) = sdp.apply().unwrap();
        let answer = post(server, "/live/x/whep", &offer.to_sdp_string());
        assert_eq!(answer.status(), 201, "{}", answer.text());
        let candidate = |port: u16| format!(" {port} typ host");
        let own = candidate(server.webrtc.unwrap().port());
        let sdp = answer.text().replace(&own, &candidate(port));
        let sdp = SdpAnswer::from_sdp_string(&sdp).unwrap();
        rtc.sdp_api().accept_answer(pending, sdp).unwrap();
        Self {
            rtc,
            sockets,
            session: answer.header("location").unwrap().to_owned(),
            answer: answer.text().to_owned(),
            loses: None,
            lost: 0,
            is_silent: false,
            sets: Vec::new(),
            packets: BTreeMap::new(),
            reports: Vec::new(),
            cnames: BTreeSet::new(),
            left: Vec::new(),
            came: 0,
            again: 0,
        }
    }

    /// The sources of a kind of media: the first, and that of packets that are sent again.
    #[track_caller]
    fn sources(&self, kind: &str) -> Vec<u32> {
        let media = self.answer.split("\r\nm=").find(|media| media.starts_with(kind)).unwrap();
        let sources = media.lines().filter_map(|line| line.strip_prefix("a=ssrc:"));
        let mut sources: Vec<_> =
            sources.map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect();
        sources.dedup();
        sources
    }

    /// Packets of the kind of media of which fewer have come.
    pub(crate) fn packets_of_both(&self) -> usize {
        let of = |kind| self.packets.get(&self.sources(kind)[0]).map_or(0, BTreeMap::len);
        of("video").min(of("audio"))
    }

    /// Whether video has come.
    pub(crate) fn has_begun(&self) -> bool {
        self.packets.contains_key(&self.sources("video")[0])
    }

    pub(crate) fn of(&self, kind: &str) -> &BTreeMap<u64, RtpPacket> {
        &self.packets[&self.sources(kind)[0]]
    }

    /// The highest sequence number of a kind of media that came.
    pub(crate) fn newest(&self, kind: &str) -> u64 {
        self.of(kind).keys().next_back().copied().unwrap()
    }

    /// The numbers of video that are missing from `from` on.
    pub(crate) fn missing(&self, from: u64) -> Vec<u64> {
        let video = self.of("video");
        (from..=self.newest("video")).filter(|number| !video.contains_key(number)).collect()
    }

    /// Plays for a second.
    #[track_caller]
    pub(crate) fn play_on(&mut self) {
        let until = now() + Duration::from_secs(1);
        self.play(|_| now() >= until);
    }

    /// Plays until it has what it needs.
    #[track_caller]
    pub(crate) fn play(&mut self, enough: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !enough(self) {
            assert!(begun.elapsed() < LIMIT, "{} datagrams, {:?}", self.came, self.reports);
            let wakes = self.poll();
            let wait = wakes.saturating_duration_since(now());
            let wait = wait.clamp(Duration::from_millis(1), Duration::from_millis(100));
            let came = self.sockets.receive(wait);
            if let Some((datagram, ..)) = &came {
                self.came += 1;
                let is_rtp =
                    (128..192).contains(&datagram[0]) && !(192..224).contains(&datagram[1]);
                if is_rtp && self.is_lost(datagram) {
                    continue;
                }
            }
            self.rtc.handle_input(input(came.as_ref())).unwrap();
        }
    }

    /// Restarts ICE on another socket, by this port in the place of the server's. The old socket stays.
    #[track_caller]
    pub(crate) fn restart(&mut self, server: &Server, port: u16) {
        self.sockets.add();
        let session = (self.session.as_str(), self.answer.as_str());
        restart(server, &mut self.rtc, session, self.sockets.local(), port);
    }

    /// Whether a packet of RTP is lost on the way.
    fn is_lost(&mut self, packet: &[u8]) -> bool {
        let source = u32::from_be_bytes(packet[8..12].try_into().unwrap());
        let video = self.sources("video");
        self.again += usize::from(video[1] == source);
        let sequence = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
        let is_lost =
            video[0] == source && self.loses.is_some_and(|loses| sequence.is_multiple_of(loses));
        self.lost += usize::from(is_lost);
        is_lost
    }

    fn poll(&mut self) -> Instant {
        loop {
            match self.rtc.poll_output().unwrap() {
                Output::Timeout(wakes) => return wakes,
                Output::Transmit(datagram) if self.is_silent && datagram.contents[0] < 4 => {}
                Output::Transmit(datagram) => self.sockets.send(&datagram),
                Output::Event(Event::RtpPacket(packet)) => {
                    self.note_sets(&packet);
                    let source = self.packets.entry(*packet.header.ssrc).or_default();
                    source.insert(*packet.seq_no, packet);
                }
                Output::Event(Event::RawPacket(packet)) => self.take(*packet),
                Output::Event(_) => {}
            }
        }
    }

    /// Notes parameter sets of video. They come together in one packet (RFC 6184 5.7.1).
    fn note_sets(&mut self, packet: &RtpPacket) {
        let is_video = self.sources("video")[0] == *packet.header.ssrc;
        if let [0x78, _, length, sets @ ..] = packet.payload.as_ref()
            && is_video
            && self.sets.last().is_none_or(|last| !sets.starts_with(last))
        {
            self.sets.push(sets[..usize::from(*length)].to_vec());
        }
    }

    fn take(&mut self, packet: RawPacket) {
        let RawPacket::RtcpRx(packet) = packet else { return };
        match packet {
            Rtcp::SenderReport(report) => {
                let info = report.sender_info;
                let source = self.packets.get(&*info.ssrc);
                let newest = source.and_then(|packets| packets.keys().next_back());
                self.reports.push((info, SystemTime::now(), newest.copied().unwrap_or(0)));
            }
            Rtcp::SourceDescription(all) => {
                let names = all.reports.iter().flat_map(|it| it.values.iter());
                self.cnames.extend(names.map(|(_, name)| name.clone()));
            }
            Rtcp::Goodbye(goodbye) => self.left.extend(goodbye.reports.iter().map(|it| **it)),
            _ => {}
        }
    }
}

fn now() -> Instant {
    Instant::now()
}

/// How many access units these packets make, and how many after the first keyframe are broken.
pub(crate) fn units<'a>(packets: impl Iterator<Item = &'a RtpPacket>) -> (usize, usize) {
    let (mut depacketizer, mut whole, mut broken) = (rtp::h264::depacketizer(), 0, 0);
    for packet in packets {
        let header = &packet.header;
        depacketizer.push(
            header.timestamp,
            header.marker,
            &packet.payload,
            |output| match output {
                Unit::Unit(_) => whole += 1,
                Unit::Broken(_) => broken += usize::from(whole > 0),
            },
        );
    }
    (whole, broken)
}

#[test]
fn what_is_lost_comes_again_from_the_cache_of_all_viewers() {
    // What is asked for more than 3 s late is gone.
    despite_stops("", |server| {
        let folder = tempfile::tempdir().unwrap();
        let _publisher = publish(server, folder.path());
        let play = |loses| {
            let mut viewer = Viewer::new(server);
            viewer.play(|viewer| viewer.packets.len() == 2);
            // What it gets to begin with may be more than str0m asks for again: its newest 100 packets.
            viewer.play_on();
            let from = viewer.newest("video");
            viewer.loses = Some(loses);
            viewer.play(|viewer| viewer.lost >= 30);
            // Those that were lost last have time to come.
            viewer.loses = None;
            viewer.play_on();
            // Units count from the first keyframe on, which may have come only now.
            viewer.play(|viewer| units(viewer.of("video").range(from..).map(|(_, it)| it)).0 > 20);
            viewer.play_on();
            (viewer, from)
        };
        // They lose other packets of the same frames.
        let viewers = std::thread::scope(|scope| {
            let viewers = [2, 3].map(|loses| scope.spawn(move || play(loses)));
            viewers.map(|viewer| viewer.join().unwrap())
        });
        for (viewer, from) in viewers {
            let (video, last) = (viewer.of("video"), viewer.newest("video"));
            let missing = viewer.missing(from);
            if !missing.is_empty() {
                return Err(format!("{missing:?} of {from} to {last} are missing"));
            }
            assert!(viewer.again >= viewer.lost, "{} of {}", viewer.again, viewer.lost);
            let (whole, broken) = units(video.range(from..).map(|(_, packet)| packet));
            assert!(whole > 20 && broken == 0, "{whole} {broken}");
            assert!(viewer.of("audio").len() > 50);
            // The tag of the media description is there until the viewer has reported.
            let tag = |packet: &RtpPacket| packet.header.ext_vals.mid;
            assert!(tag(&video[video.keys().next().unwrap()]).is_some());
            assert!(tag(&video[&last]).is_none());
        }
        Ok(())
    });
}

#[test]
fn reports_tell_when_packets_were_captured_and_how_many_there_are() {
    let server = server("");
    let folder = tempfile::tempdir().unwrap();
    let _publisher = publish(&server, folder.path());
    let mut viewer = Viewer::new(&server);
    let of = |viewer: &Viewer, kind: &str| {
        let source = viewer.sources(kind)[0];
        let of = viewer.reports.iter().filter(|(info, ..)| *info.ssrc == source);
        of.map(|(info, at, newest)| (*info, *at, *newest)).collect::<Vec<_>>()
    };
    viewer.play(|viewer| ["video", "audio"].iter().all(|kind| of(viewer, kind).len() >= 12));
    for (kind, rate) in [("video", 90_000.0), ("audio", 48_000.0)] {
        let reports = of(&viewer, kind);
        let (first, ..) = reports[0];
        // They come once a second. A machine that stands still for some seconds makes few of them late.
        let late = |(info, at, _): &(SenderInfo, SystemTime, u64)| {
            at.duration_since(info.ntp_time).unwrap_or_default()
        };
        let mut delays: Vec<_> = reports.iter().map(late).collect();
        delays.sort();
        assert!(delays[delays.len() / 2] < Duration::from_secs(5), "{kind} {delays:?}");
        for (info, _, newest) in &reports {
            // All packets of a source are counted, and they come in order: the first is 1.
            assert_eq!(u64::from(info.sender_packet_count), *newest, "{kind}");
            // Both clocks run alike. A frame that comes early counts as captured when it came.
            let wall = info.ntp_time.duration_since(first.ntp_time).unwrap().as_secs_f64();
            let media = info.rtp_time.numer().wrapping_sub(first.rtp_time.numer()) as u32 as i32;
            assert!((f64::from(media) / rate - wall).abs() < 0.05, "{kind} {media} {wall}");
        }
        // The first report comes with the first packets, so none of them is missing.
        let (info, _, newest) = &reports[0];
        let sent = viewer.of(kind).range(..=newest).map(|(_, packet)| packet.payload.len());
        assert_eq!(sent.sum::<usize>(), info.sender_octet_count as usize, "{kind}");
    }
    // Time 0 of both tracks is one moment.
    let zero = |kind, rate| {
        let (info, ..) = of(&viewer, kind)[1];
        let since = info.ntp_time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64();
        since - info.rtp_time.numer() as f64 / rate
    };
    let apart = zero("video", 90_000.0) - zero("audio", 48_000.0);
    assert!(apart.abs() < 0.05, "{apart}");
    assert_eq!(viewer.cnames.len(), 1, "{:?}", viewer.cnames);
    assert!(viewer.answer.contains(&format!(" cname:{}\r\n", viewer.cnames.first().unwrap())));

    // The server says farewell.
    let session = viewer.session.clone();
    assert_eq!(ask(&server, "DELETE", &session, &[], b"").status(), 200);
    viewer.play(|viewer| viewer.left.len() >= 2);
    let expected = ["video", "audio"].map(|kind| viewer.sources(kind)[0]);
    assert_eq!(BTreeSet::from_iter(viewer.left.clone()), BTreeSet::from(expected));
}

#[test]
fn a_viewer_that_sends_no_requests_goes_on() {
    let server = server("");
    let folder = tempfile::tempdir().unwrap();
    let _publisher = publish(&server, folder.path());
    let mut viewer = Viewer::new(&server);
    viewer.play(|viewer| viewer.packets.len() == 2);
    // As libnice does, which does not ask again whether there is a way. str0m takes such a peer for lost
    // after 15 s.
    viewer.is_silent = true;
    let time = |viewer: &Viewer| viewer.of("audio")[&viewer.newest("audio")].time.as_seconds();
    let until = time(&viewer) + 20.0;
    viewer.play(|viewer| time(viewer) > until);
    assert!(viewer.left.is_empty());
}

#[test]
fn a_viewer_that_changes_its_address_goes_on() {
    let server = server("");
    let folder = tempfile::tempdir().unwrap();
    let _publisher = publish(&server, folder.path());
    let mut viewer = Viewer::new(&server);
    viewer.play(|viewer| viewer.packets.len() == 2);
    // As behind a router that gives it another port: str0m knows nothing of it.
    for _ in 0..2 {
        viewer.sockets.rebind();
        let before = viewer.came;
        let newest = viewer.newest("video");
        viewer.play(|viewer| viewer.came > before + 50 && viewer.newest("video") > newest + 20);
    }
    assert_eq!(server.metric("headwater_webrtc_sessions"), 2);
}
