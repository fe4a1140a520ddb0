//! A publisher whose clocks drift apart for an hour.

use std::time::{Duration, UNIX_EPOCH};

use live::PublisherInfo;
use live::backup::Role;
use live::tap::{Tap, Tapped};
use media::codec::avc;
use rtp::reorder::Packet;
use rtp::{AUDIO_RATE, VIDEO_RATE};
use str0m::Rtc;
use str0m::format::Codec;
use str0m::media::{Frequency, MediaTime, SenderFeedback};
use str0m::rtp::Ssrc;
use str0m::rtp::rtcp::SenderInfo;
use tokio::time::{Instant, advance};

use super::{Publish, RtpStream};
use crate::Origin;
use crate::config::Config;
use crate::webrtc::offer::Line;

/// When the publisher began, by its own clock.
const BEGAN: Duration = Duration::from_secs(1_700_000_000);
const HOUR: i64 = 3_600_000_000;

/// A track of the publisher. It notes where in the stream its newest frame is.
struct Track {
    line: Line,
    ssrc: Ssrc,
    /// RTP units a second, as its own clock counts them.
    rate: u32,
    /// By how much the clock is too fast, in millionths.
    fast: i64,
    /// RTP time of the publisher's begin.
    begins: u32,
    /// Number of the next frame, and how many RTP units each lasts.
    next: i64,
    lasts: i64,
    tap: Option<Tap>,
    /// How far the newest frame that came out is from when it was captured, in microseconds.
    place: Option<i64>,
}

impl Track {
    /// When a frame is captured, in microseconds after the begin: a clock that is too fast captures early.
    fn captured(&self, frame: i64) -> i64 {
        let counted = frame * self.lasts * 1_000_000 / i64::from(self.rate);
        counted - counted * self.fast / 1_000_000
    }

    /// The clock's RTP time at a time after the begin, in microseconds.
    fn clock(&self, at: i64) -> u32 {
        let counted = at + at * self.fast / 1_000_000;
        self.begins.wrapping_add((counted * i64::from(self.rate) / 1_000_000) as u32)
    }

    /// The packet of the next frame.
    fn packet(&mut self, is_video: bool) -> Packet {
        let number = self.next;
        self.next += 1;
        // Each byte has seven bits of the number, so no start code comes of it.
        let digits = (0..4).map(|digit| 0x80 | (number >> (7 * digit)) as u8);
        let payload = if is_video {
            let key = number % 20 == 0;
            let slice: Vec<u8> =
                [if key { 0x65 } else { 0x41 }].into_iter().chain(digits).collect();
            let config = avc::Config::parse(testkit::avc_record(31).into()).unwrap();
            let sets = config.sps.iter().chain(&config.pps).filter(|_| key);
            let units = sets.map(AsRef::as_ref).chain([&slice[..]]);
            rtp::h264::packetize(units, 1100).remove(0)
        } else {
            // One frame of 60 ms, RFC 6716 3.1.
            [0x18].into_iter().chain(digits).collect()
        };
        let time = self.begins.wrapping_add((number * self.lasts) as u32);
        Packet { sequence: 1000 + number as u64, time, marker: is_video, payload }
    }

    /// Looks at what came out.
    fn look(&mut self) {
        while let Some(tapped) = self.tap.as_mut().and_then(Tap::take) {
            let Tapped::Unit(unit) = tapped else { panic!("{tapped:?}") };
            let data = &unit.sample.data;
            let digits = &data[data.len() - 4..];
            let number =
                digits.iter().rev().fold(0, |all, digit| all << 7 | i64::from(digit & 0x7f));
            let presents = live::rescale(unit.sample.pts(), unit.header.track.timescale, 1_000_000);
            self.place = Some(presents - self.captured(number));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn audio_and_video_stay_in_step_for_an_hour() {
    let origin = Origin::new(Config::default());
    let track = |mid: &str, ssrc: u32, payload: u8, rate, fast, lasts| Track {
        line: Line {
            mid: mid.into(),
            codec: if rate == VIDEO_RATE { Codec::H264 } else { Codec::Opus },
            payload: payload.into(),
            sends_again: false,
            numbers: None,
            terms: None,
        },
        ssrc: ssrc.into(),
        rate,
        fast,
        // It wraps while the hour lasts.
        begins: 0u32.wrapping_sub(1800 * rate),
        next: 0,
        lasts,
        tap: None,
        place: None,
    };
    // A frame each 100 ms, and a packet of audio each 60 ms. Clocks of sound cards and cameras are off by
    // some 50 millionths.
    let mut video = track("v", 1, 102, VIDEO_RATE, -60, 9_000);
    let mut audio = track("a", 2, 111, AUDIO_RATE, 60, 2_880);
    // It asks for keyframes in vain.
    let mut rtc = Rtc::builder().set_rtp_mode(true).build(Instant::now().into_std());
    let info = PublisherInfo { peer: None, protocol: "whip", rendition: None };
    let publisher = origin.publish("x", Role::Primary, info).unwrap();
    let stream = origin.registry.stream("x").unwrap();
    let times = (Duration::from_millis(200), Duration::from_secs(2));
    let mut publish =
        Publish::new(publisher, times, (Some(video.line), &[]), Some(audio.line)).unwrap();
    let (mut at, mut reported, mut worst, mut looked) = (0, 0, 0, 0);
    while at < HOUR {
        let (next_video, next_audio) = (video.captured(video.next), audio.captured(audio.next));
        let is_video = next_video <= next_audio;
        let next = next_video.min(next_audio);
        advance(Duration::from_micros((next - at) as u64)).await;
        at = next;
        let now = Instant::now();
        let track = if is_video { &mut video } else { &mut audio };
        let packet = track.packet(is_video);
        let Track { line, ssrc, .. } = *track;
        publish.take_packet(
            RtpStream { mid: line.mid, rid: None, ssrc, payload: line.payload },
            packet,
            now,
        );
        // Sender reports, each five seconds as RFC 3550 6.2 has it.
        if at >= reported {
            for track in [&video, &audio] {
                let rate = if track.rate == VIDEO_RATE {
                    Frequency::NINETY_KHZ
                } else {
                    Frequency::FORTY_EIGHT_KHZ
                };
                let sender_info = SenderInfo {
                    ssrc: track.ssrc,
                    ntp_time: UNIX_EPOCH + BEGAN + Duration::from_micros(at as u64),
                    rtp_time: MediaTime::new(track.clock(at).into(), rate),
                    sender_packet_count: 0,
                    sender_octet_count: 0,
                };
                let received_at = now.into_std();
                let mid = track.line.mid;
                publish.report(&SenderFeedback { mid, rid: None, received_at, sender_info });
            }
            reported = at + 5_000_000;
        }
        publish.let_pass(&mut rtc, now, &origin).unwrap();
        for (track, name) in [(&mut video, "v0"), (&mut audio, "a0")] {
            if track.tap.is_none() {
                track.tap = stream.track(name).map(|track| track.tap());
            }
            track.look();
        }
        // Both have reports after the first seconds.
        if let (Some(video), Some(audio)) = (video.place, audio.place)
            && at > 10_000_000
        {
            worst = worst.max((video - audio).abs());
            looked += 1;
        }
    }
    assert!(looked > 90_000, "{looked}");
    assert!(worst <= 15_000, "{worst} us apart");
    // Without sender reports they would be 432 ms apart.
    let counted = |track: &Track| i64::from(track.clock(HOUR).wrapping_sub(track.begins));
    let apart = counted(&video) / 90 - counted(&audio) / 48;
    assert_eq!(apart, -432);
}
