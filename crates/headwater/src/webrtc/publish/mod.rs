//! A publisher by WHIP: RTP packets become samples of its live stream.

mod guard;
#[cfg(test)]
mod hour;
mod input;
mod layer;
mod order;

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use live::PublishError;
use live::backup::Seat;
use media::Sample;
use media::codec::opus;
use rtp::reorder::{Next, Packet};
use rtp::{AUDIO_RATE, AccessUnit, Output, VIDEO_RATE};
use str0m::Rtc;
use str0m::media::{Mid, Pt, Rid, SenderFeedback};
use str0m::rtp::{RtpHeader, RtpPacket, Ssrc};
use tokio::time::Instant;
use tracing::field::display;

use super::end::End;
use super::offer::Line;
use guard::Guard;
use input::{Input, Taken};
use layer::Layer;

use crate::Origin;
use crate::ingest::{Ingest, Source};
use crate::sessions::Meter;
use crate::traces::Trace;

/// Shortest time between two requests for a keyframe that are made for viewers.
const FOR_VIEWERS: Duration = Duration::from_secs(1);

/// How long audio waits for the first keyframe. A stream that begins with audio alone would be cut
/// without regard to keyframes.
const AWAITED: Duration = Duration::from_secs(3);

/// `dOps` of Opus in RTP: two channels at 48 kHz. If the audio is mono, the decoder makes one channel.
const OPUS: [u8; 11] = [0, 2, 0, 0, 0, 0, 0xbb, 0x80, 0, 0, 0];

/// A track of the publisher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Audio,
    /// A layer of the video: its place among the layers, and its name.
    Video(u32, Option<Rid>),
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Audio => f.write_str("audio"),
            Self::Video(_, None) => f.write_str("video"),
            Self::Video(_, Some(rid)) => write!(f, "video {rid}"),
        }
    }
}

impl Source for Kind {
    fn number(self) -> u32 {
        match self {
            Self::Audio => 0,
            Self::Video(place, _) => 1 + place,
        }
    }
}

/// The RTP stream of a packet: its place in the offer, its source and its payload type.
#[derive(Debug, Clone, Copy)]
pub(super) struct RtpStream {
    pub(super) mid: Mid,
    pub(super) rid: Option<Rid>,
    pub(super) ssrc: Ssrc,
    pub(super) payload: Pt,
}

/// A publisher. Dropping it ends the publication.
pub(super) struct Publish {
    ingest: Ingest,
    guard: Guard,
    began: Instant,
    /// When the first packet came.
    first: Option<Instant>,
    /// The layers of the video. Each is a rendition of the stream. The one whose first keyframe comes
    /// first leads the others (crates/live/README.md): nobody waits for a layer that its publisher may
    /// never send. Browsers begin with the smallest, and switch it off last.
    video: Vec<Layer>,
    /// The place of the layer whose packets came first.
    lead: Option<usize>,
    audio: Option<Input>,
    /// How far keyframes may be apart: encoders of WebRTC send one only when they are asked.
    distance: Duration,
    has_asked: bool,
    /// Whether the audio track is announced.
    has_audio: bool,
    /// Counts bytes of payloads.
    pub(super) meter: Meter,
}

impl Publish {
    /// Begins to publish. The video has these layers, or none without simulcast.
    ///
    /// # Errors
    /// A layer's name may not name a rendition, or names that of another publisher.
    pub(super) fn new(
        mut publisher: Seat,
        (jitter, distance): (Duration, Duration),
        (video, layers): (Option<Line>, &[Rid]),
        audio: Option<Line>,
    ) -> Result<Self, PublishError> {
        for (place, rid) in (0..).zip(layers) {
            publisher.rendition(Kind::Video(place, Some(*rid)).number(), rid)?;
        }
        let (stream, info) = (publisher.name(), publisher.info());
        let (peer, rendition) = (info.peer.map(display), info.rendition.as_deref());
        let (layers_count, backup) = (layers.len(), publisher.is_backup());
        tracing::info!(peer, stream, rendition, layers = layers_count, backup, "whip publisher");
        let rids = match layers {
            [] => vec![None],
            layers => layers.iter().copied().map(Some).collect(),
        };
        let layer = |rid| video.map(|line| Layer::new(line, rid, jitter));
        let lines = || video.iter().chain(&audio);
        let numbers = lines().find_map(|line| line.numbers);
        Ok(Self {
            ingest: Ingest::new(publisher),
            guard: Guard::new(numbers, lines().count()),
            began: Instant::now(),
            first: None,
            video: rids.into_iter().filter_map(layer).collect(),
            lead: None,
            audio: audio.map(|line| Input::new(line, AUDIO_RATE, jitter)),
            distance,
            has_asked: false,
            has_audio: false,
            meter: Meter::default(),
        })
    }

    /// Goes on with what is traced of the publisher, until viewers can watch.
    pub(super) fn trace(&mut self, trace: Trace) {
        self.ingest.trace(trace);
    }

    /// The stream's name.
    pub(super) fn name(&self) -> &str {
        self.ingest.publisher().name()
    }

    /// Whether another publisher has taken over the stream.
    pub(super) fn is_replaced(&self) -> bool {
        self.ingest.publisher().is_replaced()
    }

    /// Whether str0m may see a datagram of the peer.
    pub(super) fn admits(&mut self, datagram: &[u8]) -> bool {
        self.guard.admits(datagram)
    }

    /// Takes a packet. [`Publish::let_pass`] then hands it on.
    pub(super) fn take(
        &mut self,
        packet: RtpPacket,
        rtc: &mut Rtc,
        now: Instant,
    ) -> Result<(), End> {
        self.guard.decrypted(&packet.header)?;
        let RtpHeader { ssrc, payload_type, timestamp, marker, .. } = packet.header;
        let mut api = rtc.direct_api();
        let Some(stream) = api.stream_rx(&ssrc) else { return Ok(()) };
        if self.video.iter().any(|layer| layer.sends_again(stream.mid(), stream.rid())) {
            // str0m does not ask for missing packets where there is no RTX. pion and libdatachannel (OBS) send them
            // again as they were.
            stream.suppress_nack(false);
        }
        let stream =
            RtpStream { mid: stream.mid(), rid: stream.rid(), ssrc, payload: payload_type };
        let sequence = *packet.seq_no;
        let packet = Packet { sequence, time: timestamp, marker, payload: packet.payload };
        self.take_packet(stream, packet, now);
        Ok(())
    }

    /// Takes a packet of an RTP stream.
    pub(super) fn take_packet(&mut self, stream: RtpStream, packet: Packet, now: Instant) {
        let RtpStream { mid, rid, ssrc, payload } = stream;
        let bytes = packet.payload.len() as u64;
        // The other codec of the connection has no place in this media description.
        let is_audio = self.audio.as_ref().is_some_and(|audio| audio.line.payload == payload);
        let is_taken = if is_audio {
            let audio = self.audio.as_mut().filter(|audio| audio.line.mid == mid);
            audio.is_some_and(|audio| audio.take(ssrc, packet, now) != Taken::Dropped)
        } else {
            let place = self.video.iter().position(|layer| layer.is(mid, rid));
            place.is_some_and(|place| {
                self.lead.get_or_insert(place);
                self.video[place].take(ssrc, packet, now)
            })
        };
        if is_taken {
            self.first.get_or_insert(now);
            self.meter.add(bytes);
        }
    }

    /// Takes a sender report.
    pub(super) fn report(&mut self, feedback: &SenderFeedback) {
        let inputs = self.video.iter_mut().map(|layer| &mut layer.input);
        inputs.chain(&mut self.audio).for_each(|input| input.report(feedback));
        // Without audio, layers are put beside the one that came first.
        let audio = self.audio.as_ref().filter(|audio| audio.stream.is_some());
        let lead = self.lead.map(|place| &self.video[place].input);
        let Some(clock) = audio.or(lead).map(|input| input.clock.clone()) else { return };
        let stream = self.ingest.publisher().name();
        for layer in &mut self.video {
            if let Some(by) = layer.align(&clock) {
                let rid = layer.rid.map(display);
                tracing::debug!(stream, layer = rid, by_us = by, "video put in its place");
            }
        }
    }

    /// Passes on what is complete or waited for too long. Returns when there may be more.
    pub(super) fn let_pass(
        &mut self,
        rtc: &mut Rtc,
        now: Instant,
        origin: &Origin,
    ) -> Result<Option<Instant>, End> {
        let at = now.into_std();
        while let Some(next) = self.audio.as_mut().and_then(|audio| audio.reorder.pop(at)) {
            if let Next::Packet(packet) = next {
                self.take_audio(&packet, now, origin)?;
            }
        }
        for place in 0..self.video.len() {
            while let Some(outputs) = self.video[place].pop(now) {
                for output in outputs {
                    self.take_video(place, output, now, origin)?;
                }
            }
        }
        self.ingest.check().map_err(End::from)?;
        self.ask_for_keyframes(rtc, now);
        let newest = self.video.iter().filter_map(|layer| layer.input.heard()).max();
        let inputs = self.video.iter().map(|layer| &layer.input).chain(&self.audio);
        let deadlines = inputs.filter_map(|input| input.reorder.deadline()).map(Instant::from_std);
        let asks = self.video.iter().filter(|layer| layer.is_on(newest)).filter_map(|layer| {
            Some(layer.due(self.distance)?.max(layer.may_ask().unwrap_or(now)))
        });
        Ok(deadlines.chain(asks).min())
    }

    /// Asks for the keyframes that are wanted. When that of one layer is due, those of all are: so their
    /// segments begin together.
    fn ask_for_keyframes(&mut self, rtc: &mut Rtc, now: Instant) {
        let newest = self.video.iter().filter_map(|layer| layer.input.heard()).max();
        let is_due = |layer: &Layer| layer.due(self.distance).is_some_and(|due| now >= due);
        let is_due = self.video.iter().any(|layer| layer.is_on(newest) && is_due(layer));
        for layer in self.video.iter_mut().filter(|layer| layer.is_on(newest)) {
            if is_due {
                layer.want_keyframe();
            }
            self.has_asked |= layer.ask(rtc, now);
        }
    }

    /// Asks for keyframes because a viewer wants one. Viewers together get one a second: each costs all
    /// of them quality.
    pub(super) fn ask_for_viewers(&mut self, rtc: &mut Rtc, now: Instant) {
        let asked = self.video.iter().filter_map(Layer::asked).max();
        if asked.is_none_or(|asked| now.duration_since(asked) >= FOR_VIEWERS) {
            self.video.iter_mut().for_each(Layer::want_keyframe);
            self.ask_for_keyframes(rtc, now);
        }
    }

    /// Whether a keyframe was asked for since this was last called.
    pub(super) fn take_asked(&mut self) -> bool {
        std::mem::take(&mut self.has_asked)
    }

    /// Time since the first packet, in microseconds.
    fn since(&self, now: Instant) -> i64 {
        let since = now.duration_since(self.first.unwrap_or(now));
        i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
    }

    /// Takes what a packet of the layer at `place` led to.
    fn take_video(
        &mut self,
        place: usize,
        output: Output,
        now: Instant,
        origin: &Origin,
    ) -> Result<(), End> {
        let since = self.since(now);
        let layer = &mut self.video[place];
        let kind = Kind::Video(u32::try_from(place).unwrap_or(0), layer.rid);
        let unit = match output {
            Output::Unit(unit) => unit,
            Output::Broken(error) => {
                if let Some(error) = error {
                    self.ingest.problem(Some(kind), &error);
                }
                return Ok(());
            }
        };
        if let AccessUnit { codec: Some(codec), time, .. } = &unit {
            let codec = (codec.clone(), VIDEO_RATE);
            self.ingest.track(kind, codec, format_args!("RTP time {time}"), origin.now())?;
        }
        let sample = layer.sample(unit, since, now);
        self.ingest.sample(kind, sample, origin.now()).map_err(End::from)
    }

    fn take_audio(&mut self, packet: &Packet, now: Instant, origin: &Origin) -> Result<(), End> {
        let since = self.since(now);
        let Some(audio) = &mut self.audio else { return Ok(()) };
        let dts = audio.clock.time(packet.time, since);
        let early = now.duration_since(self.first.unwrap_or(now)) < AWAITED;
        let is_first = !self.video.is_empty() && !self.video.iter().any(Layer::has_begun);
        if is_first && early {
            return Ok(());
        }
        let Some(duration) = opus::packet_duration(&packet.payload) else {
            self.ingest.problem(Some(Kind::Audio), &"not an Opus packet");
            return Ok(());
        };
        if !self.has_audio {
            let Ok(config) = opus::Config::parse(Bytes::from_static(&OPUS)) else { return Ok(()) };
            let at = format_args!("RTP time {}", packet.time);
            let codec = (media::Codec::Opus(config), AUDIO_RATE);
            self.ingest.track(Kind::Audio, codec, at, origin.now())?;
            self.has_audio = true;
        }
        let data = Bytes::copy_from_slice(&packet.payload);
        let sample = Sample { dts, cts: 0, duration, sync: true, data };
        self.ingest.sample(Kind::Audio, sample, origin.now()).map_err(End::from)
    }
}

impl Drop for Publish {
    fn drop(&mut self) {
        let info = self.ingest.publisher().info();
        let (peer, rendition) = (info.peer.map(display), info.rendition.as_deref());
        let millis = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (after, bytes) = (Duration::from_millis(millis), self.meter.bytes());
        tracing::info!(peer, stream = self.name(), rendition, ?after, bytes, "whip publisher left");
    }
}
