//! What `send::source` and `resends` send, as str0m receives it, and the keys that str0m does not get.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use live::UnixMicros;
use rtp::feedback;
use rtp::srtp::{Profile, Sender};
use str0m::change::SdpAnswer;
use str0m::config::{CryptoProvider, DtlsCert, DtlsVersion};
use str0m::crypto::CryptoError;
use str0m::crypto::dtls::{
    DtlsImplError, DtlsInstance, DtlsOutput, DtlsProvider, KeyingMaterial, ProtocolVersion,
    SrtpProfile,
};
use str0m::format::{Codec, FormatParams};
use str0m::media::{Direction, MediaKind};
use str0m::net::{DatagramRecv, Protocol, Receive};
use str0m::rtp::rtcp::{ReportBlock, Rtcp};
use str0m::rtp::{Extension, RawPacket, RtpPacket, RtpWrite};
use str0m::{Candidate, Event, Input, Output, Rtc};

use super::feed::Frame;
use super::resends::Resends;
use crate::webrtc::offer::{Agreed, Identity, Purpose, agree};
use crate::webrtc::send::batch::Batch;
use crate::webrtc::send::source::{self, Numbers, Packet, Source};

/// A handshake that is over at once. Its keying material counts from 0.
#[derive(Debug)]
struct Done {
    profile: SrtpProfile,
    told: u8,
}

impl DtlsInstance for Done {
    fn poll_output<'a>(&mut self, _: &'a mut [u8]) -> DtlsOutput<'a> {
        self.told += 1;
        match self.told {
            1 => DtlsOutput::KeyingMaterial(
                KeyingMaterial::new(&material(self.profile)),
                self.profile,
            ),
            2 => DtlsOutput::Connected,
            _ => DtlsOutput::Timeout(Instant::now() + Duration::from_secs(60)),
        }
    }

    fn set_active(&mut self, _: bool) {}

    fn handle_packet(&mut self, _: &[u8]) -> Result<(), DtlsImplError> {
        Ok(())
    }

    fn handle_timeout(&mut self, _: Instant) -> Result<(), DtlsImplError> {
        Ok(())
    }

    fn send_application_data(&mut self, data: &[u8]) -> Result<usize, DtlsImplError> {
        Ok(data.len())
    }

    fn is_active(&self) -> bool {
        true
    }

    fn protocol_version(&self) -> Option<ProtocolVersion> {
        None
    }

    fn close(&mut self) -> Result<(), DtlsImplError> {
        Ok(())
    }
}

fn material(profile: SrtpProfile) -> Vec<u8> {
    (0..profile.keying_material_len() as u8).collect()
}

#[derive(Debug)]
struct AtOnce(SrtpProfile);

static OF_EACH_PROFILE: [AtOnce; 3] = [
    AtOnce(SrtpProfile::AES128_CM_SHA1_80),
    AtOnce(SrtpProfile::AEAD_AES_128_GCM),
    AtOnce(SrtpProfile::AEAD_AES_256_GCM),
];

impl DtlsProvider for AtOnce {
    fn generate_certificate(&self) -> Option<DtlsCert> {
        str0m::crypto::from_feature_flags().dtls_provider.generate_certificate()
    }

    fn new_dtls(
        &self,
        _: &DtlsCert,
        _: Instant,
        _: DtlsVersion,
        _: Option<usize>,
    ) -> Result<Box<dyn DtlsInstance>, CryptoError> {
        Ok(Box::new(Done { profile: self.0, told: 0 }))
    }
}

/// Our side's keys of the keying material. The receiver is the client, so we are the server.
fn sender(profile: SrtpProfile) -> Sender {
    let known = match profile {
        SrtpProfile::AES128_CM_SHA1_80 => Profile::Aes128CmSha1_80,
        SrtpProfile::AEAD_AES_128_GCM => Profile::AeadAes128Gcm,
        _ => Profile::AeadAes256Gcm,
    };
    Sender::take(known, &mut material(profile), false).unwrap()
}

const SSRC: u32 = 0x0a0b_0c0d;
const RESENDS: u32 = 0x0102_0304;

/// A receiver of str0m's, and the payload types of H.264 and of its retransmissions.
struct Receiver {
    rtc: Rtc,
    payloads: (u8, u8),
}

impl Receiver {
    fn new(dtls_provider: &'static AtOnce) -> Self {
        let plain = str0m::crypto::from_feature_flags();
        let config = Rtc::builder()
            .set_crypto_provider(Arc::new(CryptoProvider { dtls_provider, ..plain }))
            .set_rtp_mode(true)
            .enable_raw_packets(true)
            .clear_extension_map()
            .set_extension(1, Extension::RtpMid)
            .clear_codecs()
            .enable_h264(true);
        let mut rtc = config.build(Instant::now());
        let params = rtc.codec_config().params().iter().find(|it| it.spec().codec == Codec::H264);
        let payloads = params.map(|it| (*it.pt(), *it.resend().unwrap())).unwrap();
        let mut api = rtc.direct_api();
        api.declare_media("v".into(), MediaKind::Video);
        api.expect_stream_rx(SSRC.into(), Some(RESENDS.into()), "v".into(), None);
        api.start_dtls(true).unwrap();
        let mut receiver = Self { rtc, payloads };
        receiver.events();
        receiver
    }

    /// What it tells: the packets that it decrypted, and reports.
    fn events(&mut self) -> (Vec<RtpPacket>, Vec<Rtcp>) {
        let (mut packets, mut reports) = (Vec::new(), Vec::new());
        loop {
            match self.rtc.poll_output().unwrap() {
                Output::Event(Event::RtpPacket(packet)) => packets.push(packet),
                Output::Event(Event::RawPacket(packet)) => {
                    if let RawPacket::RtcpRx(report) = *packet {
                        reports.push(report);
                    }
                }
                Output::Timeout(_) => return (packets, reports),
                _ => {}
            }
        }
    }

    fn receive(&mut self, datagram: &[u8]) -> (Vec<RtpPacket>, Vec<Rtcp>) {
        let address = ([127, 0, 0, 1], 9).into();
        let contents = DatagramRecv::try_from(datagram).unwrap();
        let (proto, source, destination) = (Protocol::Udp, address, address);
        let receive = Receive { proto, source, destination, contents };
        self.rtc.handle_input(Input::Receive(Instant::now(), receive)).unwrap();
        self.events()
    }
}

/// Takes the packets of a batch.
fn take(batch: &mut Batch) -> Vec<Vec<u8>> {
    let packets = batch.groups().flat_map(|(bytes, size)| bytes.chunks(size));
    let packets = packets.map(<[u8]>::to_vec).collect();
    batch.clear();
    packets
}

#[test]
fn str0m_decrypts_packets_and_what_is_sent_again_and_reports() {
    for provider in &OF_EACH_PROFILE {
        let mut receiver = Receiver::new(provider);
        let (mut sender, mut batch) = (sender(provider.0), Batch::default());
        let (payload, again) = receiver.payloads;
        let mut source = Source::new(SSRC, payload, &source::extension(1, "v".into()));
        let mut resends = Resends::new(Source::new(RESENDS, again, &[]));
        let frame = |number: u32| {
            let payloads = (0..3).map(|part| vec![number as u8, part, 7].into()).collect();
            Rc::new(Frame { number: 0, key: false, time: number.into(), payloads })
        };
        // The second packet of each frame is lost and sent again. On the way, sequence numbers wrap: not all
        // are sent.
        let mut frames = Vec::new();
        for number in 0..8 {
            let (frame, first) = (frame(number), source.next());
            resends.begin(&frame, first, 3000 * number);
            for (part, payload) in frame.payloads.iter().enumerate() {
                let (time, marker, head) = (3000 * number, part == 2, &[]);
                let packet = Packet { time, marker, head, payload };
                let bytes = source.write(&packet, &sender, &mut batch, None).unwrap();
                resends.earn(bytes);
                let datagram = take(&mut batch).remove(0);
                if part == 1 {
                    continue;
                }
                let (packets, _) = receiver.receive(&datagram);
                let [packet] = packets.as_slice() else { panic!("{:?} {number}", provider.0) };
                assert_eq!((*packet.seq_no, &packet.payload), (first + part as u64, payload));
                assert_eq!((packet.header.timestamp, packet.header.marker), (time, marker));
                assert_eq!(packet.header.ext_vals.mid, Some("v".into()));
            }
            resends.ask([(first + 1) as u16]);
            let mut allowed = 10_000;
            resends.write(source.next(), &sender, &mut batch, None, &mut allowed);
            let (packets, _) = receiver.receive(&take(&mut batch).remove(0));
            let [packet] = packets.as_slice() else { panic!("{:?} {number} again", provider.0) };
            assert_eq!((*packet.seq_no, &packet.payload), (first + 1, &frame.payloads[1]));
            assert_eq!((packet.header.timestamp, packet.header.marker), (3000 * number, false));
            frames.push(frame);
            source.skip(10_000);
        }
        assert!(source.next() > 1 << 16);
        let now = tokio::time::Instant::now();
        let asked = source::Reference::new(7, UNIX_EPOCH + Duration::from_secs(2), now).unwrap();
        let at = (now + Duration::from_secs(3), UnixMicros(0));
        let mut report = source::report(&[source.counts(9)], "me", &[asked], at, true);
        sender.protect_rtcp(&mut report).unwrap();
        let (_, reports) = receiver.receive(&report);
        let [
            Rtcp::SenderReport(report),
            Rtcp::SourceDescription(_),
            Rtcp::ExtendedReport(extended),
            Rtcp::Goodbye(_),
        ] = reports.as_slice()
        else {
            panic!("{reports:?}")
        };
        let [ReportBlock::Dlrr(answer)] = extended.blocks.as_slice() else {
            panic!("{extended:?}")
        };
        assert_eq!((*answer.items[0].ssrc, answer.items[0].last_rr_delay), (7, 3 << 16));
        let info = &report.sender_info;
        assert_eq!((*info.ssrc, info.sender_packet_count, info.sender_octet_count), (SSRC, 24, 72));
    }
}

/// A viewer's connection and ours, and a way between them that loses nothing.
struct Pair {
    viewer: Rtc,
    own: Agreed,
    now: Instant,
    /// What our side sends by RTP or RTCP.
    sent: Vec<Vec<u8>>,
    /// What the viewer sends by RTCP.
    heard: Vec<Vec<u8>>,
    came: Vec<RtpPacket>,
}

const VIEWER: ([u8; 4], u16) = ([127, 0, 0, 1], 1001);
const OWN: ([u8; 4], u16) = ([127, 0, 0, 1], 1002);

impl Pair {
    fn new() -> Self {
        let now = Instant::now();
        let mut viewer = Rtc::builder().set_rtp_mode(true).build(now);
        viewer.add_local_candidate(Candidate::host(VIEWER.into(), "udp").unwrap());
        let mut api = viewer.sdp_api();
        api.add_media(MediaKind::Video, Direction::RecvOnly, None, None, None);
        let (offer, pending) = api.apply().unwrap();
        let identity = Identity::new().unwrap();
        let own = agree(
            &identity,
            &offer.to_sdp_string(),
            Purpose::Play { chooses: true },
            Some((Codec::H264, FormatParams::default())),
            &[OWN.into()],
            false,
        );
        let own = own.unwrap_or_else(|refusal| panic!("{refusal:?}"));
        let answer = SdpAnswer::from_sdp_string(&own.answer).unwrap();
        viewer.sdp_api().accept_answer(pending, answer).unwrap();
        Self { viewer, own, now, sent: Vec::new(), heard: Vec::new(), came: Vec::new() }
    }

    /// Takes what one side wants to send, and gives it to the other. Returns whether our side is connected.
    fn exchange(&mut self) -> bool {
        let mut is_connected = false;
        let mut datagrams = Vec::new();
        for is_own in [false, true] {
            let rtc = if is_own { &mut self.own.rtc } else { &mut self.viewer };
            rtc.handle_input(Input::Timeout(self.now)).unwrap();
            loop {
                match rtc.poll_output().unwrap() {
                    Output::Timeout(_) => break,
                    Output::Event(Event::Connected) => is_connected |= is_own,
                    Output::Event(Event::RtpPacket(packet)) => self.came.push(packet),
                    Output::Event(_) => {}
                    Output::Transmit(transmit) => {
                        let bytes = transmit.contents.to_vec();
                        if (128..192).contains(&bytes[0]) {
                            let to = if is_own { &mut self.sent } else { &mut self.heard };
                            to.push(bytes.clone());
                        }
                        datagrams.push((is_own, bytes));
                    }
                }
            }
        }
        for (is_own, bytes) in datagrams {
            self.give(!is_own, &bytes);
        }
        self.now += Duration::from_millis(20);
        is_connected
    }

    fn give(&mut self, to_own: bool, datagram: &[u8]) {
        let (source, destination) = if to_own { (VIEWER, OWN) } else { (OWN, VIEWER) };
        let (source, destination) = (source.into(), destination.into());
        let contents = DatagramRecv::try_from(datagram).unwrap();
        let receive = Receive { proto: Protocol::Udp, source, destination, contents };
        let rtc = if to_own { &mut self.own.rtc } else { &mut self.viewer };
        rtc.handle_input(Input::Receive(self.now, receive)).unwrap();
    }
}

#[test]
fn str0m_never_has_the_keys_of_our_side() {
    let mut pair = Pair::new();
    assert!(pair.own.keys.take().is_none(), "before the handshake");
    assert!((0..500).any(|_| pair.exchange()), "never connected");
    let (sender, _) = pair.own.keys.take().unwrap();
    assert!(pair.own.keys.take().is_none(), "they are given once");

    // What str0m sends, against all rules, nobody can read. It is not of our key.
    let line = pair.own.video.unwrap();
    let terms = line.terms.unwrap();
    let write = |rtc: &mut Rtc, sequence: u64| {
        rtc.direct_api().declare_stream_tx(terms.ssrc.into(), None, line.mid, None);
        let payload: Arc<[u8]> = [7; 50].into();
        let packet = RtpWrite::new(line.payload, sequence.into(), 0, Instant::now(), payload);
        rtc.direct_api().stream_tx_by_mid(line.mid, None).unwrap().write_rtp(packet);
    };
    write(&mut pair.own.rtc, 1);
    (0..10).for_each(|_| _ = pair.exchange());
    let is_media = |packet: &&Vec<u8>| packet[1] & 0x7f == *line.payload;
    assert_eq!(pair.sent.iter().filter(is_media).count(), 1);
    assert!(pair.came.is_empty(), "{:?}", pair.came);

    // The same packet by our key arrives.
    let mut source = Source::new(terms.ssrc, *line.payload, &[]);
    let mut batch = Batch::default();
    let packet = Packet { time: 0, marker: false, head: &[], payload: &[7; 50] };
    source.write(&packet, &sender, &mut batch, None).unwrap();
    let packet = take(&mut batch).remove(0);
    assert!(!pair.sent.contains(&packet));
    pair.give(false, &packet);
    pair.exchange();
    assert_eq!(pair.came.iter().map(|packet| *packet.seq_no).collect::<Vec<_>>(), [1]);
}

#[test]
fn a_viewer_tells_which_numbered_packets_came() {
    let mut pair = Pair::new();
    assert!((0..500).any(|_| pair.exchange()), "never connected");
    let (sender, mut receiver) = pair.own.keys.take().unwrap();
    let line = pair.own.video.unwrap();
    let terms = line.terms.unwrap();
    let mut numbers = Numbers::new(terms.numbers.unwrap()).unwrap();
    let tag = source::extension(terms.extension.unwrap(), line.mid);
    let mut source = Source::new(terms.ssrc, *line.payload, &tag);
    let (mut batch, mut told) = (Batch::default(), Vec::new());
    let first = numbers.estimator.next();
    // Five come together each 20 ms, and one in their midst is lost.
    let lost = 22;
    for number in 0..50 {
        let packet = Packet { time: 0, marker: false, head: &[], payload: &[7; 50] };
        numbers.now = 20_000 * (number / 5);
        source.write(&packet, &sender, &mut batch, Some(&mut numbers)).unwrap();
        let packet = take(&mut batch).remove(0);
        if number != lost {
            pair.give(false, &packet);
        }
        if number % 5 < 4 {
            continue;
        }
        pair.exchange();
        for mut report in pair.heard.drain(..) {
            receiver.unprotect_rtcp(&mut report).unwrap();
            let feedback = feedback::read(&report, numbers.estimator.next());
            told.extend(feedback.iter().copied());
            numbers.estimator.take(feedback);
        }
    }
    let came =
        |number: u64| told.iter().find_map(|told| told.1.filter(|_| told.0 == first + number));
    // str0m learns by its first packets which source it is.
    assert!((10..35).all(|number| came(number).is_some() == (number != lost)), "{told:?}");
    assert!(told.contains(&(first + lost, None)), "{told:?}");
    let apart = came(32).unwrap() - came(12).unwrap();
    assert!((apart - 80_000).abs() < 2_000, "{apart}");
    assert!(numbers.estimator.observed().lost > 0.0);
}

#[test]
fn str0m_tells_the_path_when_it_is_asked_and_the_terms_are_those_of_the_answer() {
    let mut pair = Pair::new();
    assert!((0..500).any(|_| pair.exchange()), "never connected");
    let wait = |pair: &mut Pair| {
        let until = pair.now + Duration::from_secs(10);
        while pair.now < until {
            pair.exchange();
        }
    };
    wait(&mut pair);
    assert!(pair.sent.is_empty(), "{:?}", pair.sent);
    // It reports at once on a source that is new to it, and no more when that is forgotten.
    let terms = pair.own.video.and_then(|line| line.terms).unwrap();
    let (resends, _) = terms.resends.unwrap();
    let line = pair.own.video.unwrap();
    let mut api = pair.own.rtc.direct_api();
    api.declare_stream_tx(terms.ssrc.into(), Some(resends.into()), line.mid, None);
    pair.exchange();
    pair.exchange();
    line.forget(&mut pair.own.rtc);
    wait(&mut pair);
    assert_eq!(pair.sent.iter().map(|report| report[1]).collect::<Vec<_>>(), [200]);
    for source in [terms.ssrc, resends] {
        let named = format!("a=ssrc:{source} cname:{}\r\n", pair.own.own.ufrag);
        assert!(pair.own.answer.contains(&named), "{}", pair.own.answer);
    }
    let extension =
        format!("a=extmap:{} urn:ietf:params:rtp-hdrext:sdes:mid", terms.extension.unwrap());
    assert!(pair.own.answer.contains(&extension), "{}", pair.own.answer);
}
