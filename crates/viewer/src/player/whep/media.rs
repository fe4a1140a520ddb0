//! RTP packets of a viewer: put in order, made access units, played and checked.

use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use media::codec::opus;
use media::stamp::REACH;
use media::{Codec, Sample};
use rtp::clock::Clock;
use rtp::reorder::{Next, Packet, Reorder};
use rtp::{AUDIO_RATE, AccessUnit, Depacketizer, Output, VIDEO_RATE, av1, h264, h265};
use str0m::Rtc;
use str0m::format::Codec as Format;
use str0m::media::{KeyframeRequestKind, Mid, Pt};
use str0m::rtp::rtcp::SenderInfo;
use str0m::rtp::{RtpPacket, Ssrc};

use crate::playback::{Stamps, Track};
use crate::skim::micros;
use crate::{Error, Kind, Micros, Viewer, verify};

/// Longest step between two frames that counts as the duration of the first. A longer step is a
/// hole.
const MAX_FRAME: Micros = 1_000_000;

/// Shortest time between two requests for a keyframe.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// For how long after a request the server may send a keyframe again, with what followed it.
const ANSWERED: Duration = Duration::from_secs(3);

/// After this time another RTP stream of the same kind takes the place of one that is silent.
const GONE: Duration = Duration::from_secs(1);

/// `dOps` of Opus in RTP (RFC 7587): two channels at 48 kHz.
const OPUS: [u8; 11] = [0, 2, 0, 0, 0, 0, 0xbb, 0x80, 0, 0, 0];

/// The packets of one track.
struct Input {
    mid: Mid,
    rate: u32,
    /// How long a missing packet is waited for: as long as the player has media to play.
    patience: Duration,
    /// The RTP stream, and when its last packet came.
    stream: Option<(Ssrc, Instant)>,
    reorder: Reorder,
    clock: Clock,
    /// Sequence number after the last packet that passed or was given up, and the highest that came.
    next: Option<u64>,
    highest: u64,
}

impl Input {
    fn new(mid: Mid, rate: u32, patience: Duration) -> Self {
        Self {
            mid,
            rate,
            patience,
            stream: None,
            reorder: Reorder::new(patience),
            clock: Clock::new(rate),
            next: None,
            highest: 0,
        }
    }

    /// Whether a packet of this stream is to be taken. A stream that is new begins anew.
    fn belongs(&mut self, ssrc: Ssrc, now: Instant) -> bool {
        match &mut self.stream {
            Some((known, heard)) if *known == ssrc => *heard = now,
            Some((_, heard)) if now.duration_since(*heard) < GONE => return false,
            _ => {
                *self = Self::new(self.mid, self.rate, self.patience);
                self.stream = Some((ssrc, now));
            }
        }
        true
    }

    /// The next packet or loss.
    fn pop(&mut self, now: Instant) -> Option<Next> {
        let next = self.reorder.pop(now)?;
        self.next = match &next {
            Next::Packet(packet) => Some(packet.sequence + 1),
            Next::Lost(count) => self.next.map(|next| next + count),
        };
        Some(next)
    }
}

/// Checks what comes.
struct Verifier {
    video: verify::Stream,
    audio: verify::Stream,
    video_codec: Option<Codec>,
    audio_codec: Codec,
}

/// The media of a viewer.
pub(super) struct Media<'a> {
    viewer: &'a Viewer,
    video: Input,
    audio: Input,
    depacketizer: Depacketizer,
    verifier: Option<Box<Verifier>>,
    /// When the viewer's first packet came, in this session or in one that was lost.
    first: Option<Instant>,
    /// Time of the last frame. `None` if frames are missing behind it.
    last: Option<Micros>,
    /// Whether packets are missing since the last frame, so that further frames may be, too.
    has_lost: bool,
    /// Whether a keyframe is wanted, and when one was asked for.
    wants: bool,
    asked: Option<Instant>,
    /// Bytes of payloads.
    pub(super) bytes: usize,
}

impl<'a> Media<'a> {
    pub(super) fn new(viewer: &'a Viewer, video: Mid, audio: Mid) -> Self {
        let patience = viewer.lane.options.buffer;
        let verifier = viewer.verify.then(|| {
            // Servers make Opus of other audio, so only the video is compared.
            let video = verify::Stream::new(Some(Track::Video), viewer.reference.clone());
            let audio = verify::Stream::new(Some(Track::Audio), None);
            let opus = opus::Config::parse(Bytes::from_static(&OPUS)).expect("a valid dOps");
            Box::new(Verifier { video, audio, video_codec: None, audio_codec: Codec::Opus(opus) })
        });
        Self {
            viewer,
            video: Input::new(video, VIDEO_RATE, patience),
            audio: Input::new(audio, AUDIO_RATE, patience),
            depacketizer: h264::depacketizer(),
            verifier,
            first: viewer.stats().webrtc.as_deref().and_then(|webrtc| webrtc.begun),
            last: None,
            has_lost: true,
            wants: false,
            asked: None,
            bytes: 0,
        }
    }

    /// Takes a packet. [`Media::let_pass`] then hands it on.
    pub(super) fn take(&mut self, packet: RtpPacket, rtc: &mut Rtc, now: Instant) {
        let ssrc = packet.header.ssrc;
        let is_of = |input: &Input| input.stream.is_some_and(|(known, _)| known == ssrc);
        let mid = match () {
            () if is_of(&self.video) => self.video.mid,
            () if is_of(&self.audio) => self.audio.mid,
            () => match rtc.direct_api().stream_rx(&ssrc) {
                Some(stream) => stream.mid(),
                None => return,
            },
        };
        let is_video = mid == self.video.mid;
        let input = if is_video { &mut self.video } else { &mut self.audio };
        let is_new = input.stream.is_none_or(|(known, _)| known != ssrc);
        if input.mid != mid || !input.belongs(ssrc, now) {
            return;
        }
        if is_video && is_new {
            self.depacketizer = depacketizer(rtc, packet.header.payload_type);
            self.has_lost = true;
        }
        if self.first.is_none() {
            self.first = Some(now);
            if let Some(webrtc) = self.viewer.stats().webrtc.as_deref_mut() {
                webrtc.begun = Some(now);
            }
        }
        self.bytes += packet.payload.len();
        let sequence = *packet.seq_no;
        if sequence < input.highest && input.next.is_none_or(|next| sequence >= next) {
            self.viewer.count_rtp(|rtp| rtp.recovered += 1);
        }
        input.highest = input.highest.max(sequence);
        let packet = Packet {
            sequence,
            time: packet.header.timestamp,
            marker: packet.header.marker,
            payload: packet.payload,
        };
        input.reorder.push(packet, now);
    }

    /// Takes a sender report, which says where a track is beside the other one.
    pub(super) fn report(&mut self, info: &SenderInfo) {
        let wall = match info.ntp_time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => Micros::try_from(after.as_micros()),
            Err(before) => Micros::try_from(before.duration().as_micros()).map(|before| -before),
        };
        let Ok(wall) = wall else { return };
        for input in [&mut self.video, &mut self.audio] {
            if input.stream.is_some_and(|(ssrc, _)| ssrc == info.ssrc) {
                // An RTP time has 32 bits.
                input.clock.report(info.rtp_time.numer() as u32, wall);
            }
        }
        let audio = &mut self.audio.clock;
        let before = audio.offset();
        audio.align(&self.video.clock);
        if let (Some(before), Some(after)) = (before, audio.offset())
            && before != after
        {
            let by = micros(after - before, AUDIO_RATE);
            self.viewer.stats().playback.move_track(Track::Audio, by);
            if let Some(verifier) = &mut self.verifier {
                verifier.audio.restart();
            }
        }
    }

    /// Passes on what is complete or was waited for too long.
    pub(super) fn let_pass(&mut self, now: Instant) -> Result<(), Error> {
        while let Some(next) = self.audio.pop(now) {
            match next {
                Next::Lost(count) => self.viewer.count_rtp(|rtp| rtp.lost += count),
                Next::Packet(packet) => {
                    self.viewer.count_rtp(|rtp| rtp.packets += 1);
                    self.audio_packet(&packet)?;
                }
            }
        }
        while let Some(next) = self.video.pop(now) {
            match next {
                Next::Lost(count) => {
                    self.viewer.count_rtp(|rtp| rtp.lost += count);
                    self.depacketizer.lose();
                    (self.has_lost, self.wants) = (true, true);
                }
                Next::Packet(packet) => {
                    self.viewer.count_rtp(|rtp| rtp.packets += 1);
                    self.video_packet(&packet, now)?;
                }
            }
        }
        Ok(())
    }

    /// When a packet that is missing will be given up.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let inputs = [&self.video, &self.audio];
        inputs.into_iter().filter_map(|input| input.reorder.deadline()).min()
    }

    /// Asks for a keyframe if one is wanted, but not too often. Returns whether it did.
    pub(super) fn ask_for_keyframe(&mut self, rtc: &mut Rtc, now: Instant) -> bool {
        let is_early = self.asked.is_some_and(|asked| now.duration_since(asked) < ASK_AGAIN);
        let Some((ssrc, _)) = self.video.stream.filter(|_| self.wants && !is_early) else {
            return false;
        };
        let mut api = rtc.direct_api();
        let Some(stream) = api.stream_rx(&ssrc) else { return false };
        stream.request_keyframe(KeyframeRequestKind::Pli);
        (self.asked, self.wants) = (Some(now), false);
        self.viewer.count_rtp(|rtp| rtp.keyframe_requests += 1);
        true
    }

    fn video_packet(&mut self, packet: &Packet, now: Instant) -> Result<(), Error> {
        // Padding.
        if packet.payload.is_empty() {
            return Ok(());
        }
        // A packet may end the frame before it, and be one of its own.
        let mut outputs = [None, None];
        let mut places = outputs.iter_mut();
        self.depacketizer.push(packet.time, packet.marker, &packet.payload, |output| {
            if let Some(place) = places.next() {
                *place = Some(output);
            }
        });
        for output in outputs.into_iter().flatten() {
            match output {
                Output::Unit(unit) => self.frame(unit, now)?,
                Output::Broken(error) => self.broken(error, packet)?,
            }
        }
        Ok(())
    }

    /// Handles a frame that cannot be decoded.
    fn broken(&mut self, error: Option<media::Error>, packet: &Packet) -> Result<(), Error> {
        self.wants = true;
        let at = |error: Error| error.at(format!("RTP packet {}", packet.sequence));
        if self.verifier.is_some() {
            if let Some(error) = error {
                return Err(at(error.into()));
            }
            if !self.has_lost {
                let what = "RTP payloads that make no access unit";
                return Err(at(Error::new(Kind::Corrupt, what)));
            }
        }
        self.has_lost = true;
        self.last = None;
        Ok(())
    }

    fn since(&self) -> Micros {
        let since = self.first.map(|first| first.elapsed().as_micros()).unwrap_or_default();
        Micros::try_from(since).unwrap_or(Micros::MAX)
    }

    fn frame(&mut self, unit: AccessUnit, now: Instant) -> Result<(), Error> {
        let time = self.video.clock.time(unit.time, self.since());
        if let Some(verifier) = &mut self.verifier {
            // If such a keyframe is lost, what followed it may still come.
            let may_repeat = unit.key || self.has_lost;
            if may_repeat && self.asked.is_some_and(|asked| now.duration_since(asked) < ANSWERED) {
                verifier.video.restart();
            }
            if let Some(codec) = unit.codec {
                verifier.video_codec = Some(codec);
            }
            if let Some(codec) = &verifier.video_codec {
                let data = unit.data.clone();
                let sample = Sample { dts: time, cts: 0, duration: 0, sync: unit.key, data };
                let counts = &mut self.viewer.stats().verified;
                counts.units += 1;
                verifier.video.sample(codec, VIDEO_RATE, &sample, counts)?;
            }
        }
        (self.has_lost, self.wants) = (false, false);
        let to = micros(time, VIDEO_RATE);
        let last = self.last.replace(to).filter(|last| (0..=MAX_FRAME).contains(&(to - last)));
        let at = self.viewer.now();
        {
            let mut stats = self.viewer.stats();
            if let Some(webrtc) = stats.webrtc.as_deref_mut() {
                webrtc.first_frame.get_or_insert(at);
            }
            let front = unit.data.get(..REACH).unwrap_or(&unit.data);
            if let Some(stamps) = Stamps::of_one(front) {
                stats.playback.set_stamps(to, stamps);
            }
        }
        // How long a frame lasts is known when the next one comes.
        self.viewer.media(at, Track::Video, last.unwrap_or(to), to);
        Ok(())
    }

    fn audio_packet(&mut self, packet: &Packet) -> Result<(), Error> {
        if packet.payload.is_empty() {
            return Ok(());
        }
        let time = self.audio.clock.time(packet.time, self.since());
        let duration = opus::packet_duration(&packet.payload);
        if let Some(verifier) = &mut self.verifier {
            let data = Bytes::from_owner(packet.payload.clone());
            let length = duration.unwrap_or_default();
            let sample = Sample { dts: time, cts: 0, duration: length, sync: true, data };
            let counts = &mut self.viewer.stats().verified;
            counts.units += 1;
            verifier.audio.sample(&verifier.audio_codec, AUDIO_RATE, &sample, counts)?;
        }
        let from = micros(time, AUDIO_RATE);
        let to = micros(time + i64::from(duration.unwrap_or_default()), AUDIO_RATE);
        self.viewer.media(self.viewer.now(), Track::Audio, from, to);
        Ok(())
    }
}

/// Makes frames of packets of this payload type.
fn depacketizer(rtc: &Rtc, payload: Pt) -> Depacketizer {
    let mut ours = rtc.codec_config().params().iter();
    match ours.find(|ours| ours.pt() == payload).map(|ours| ours.spec().codec) {
        Some(Format::Av1) => av1::depacketizer(),
        Some(Format::H265) => h265::depacketizer(),
        _ => h264::depacketizer(),
    }
}
