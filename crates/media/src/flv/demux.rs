//! Turns FLV tags into tracks and samples.

use std::collections::VecDeque;

use bytes::Bytes;

use super::metadata::Metadata;
use super::payload::{Body, CodecId, MAX_TRACKS, Packet, parse_audio, parse_video};
use super::{TagKind, TrackId};
use crate::clock::Unwrapper;
use crate::codec::{aac, av1, avc, hevc, nal, opus};
use crate::{Codec, Error, Kind, Sample};

/// The longest step from one sample of a track to the next, in milliseconds, that does not count
/// as a jump in time.
pub const MAX_STEP: i64 = 10_000;

/// The longest sequence header that is accepted, in bytes. Most have some hundred bytes, or a few
/// thousand where the encoder describes itself in them. Longer ones cannot be kept in memory for
/// every stream.
pub const MAX_CONFIGURATION: usize = 32 << 10;

/// A sample that is a slice keeps its whole payload in memory. That is accepted for payloads up to
/// this size. From a larger payload, a sample that is less than half of it is copied, so that a
/// small sample never keeps 16 MiB in memory.
const SMALL: usize = 4 << 10;

/// Turns the tags of a file, or the messages of an RTMP stream, into samples.
///
/// Call [`handle_tag`](Self::handle_tag) with each tag, then [`poll_event`](Self::poll_event) until
/// it returns `None`. The demuxer keeps no media: a sample's data is a slice of its payload, or a
/// copy where it is a small part of the payload.
///
/// - **Configuration.** A track exists from its first valid sequence header on. A header that
///   differs from the last one makes another [`Event::Track`]; a repetition makes none. A header
///   that cannot be read leaves the track without configuration. For AV1 the header may be missing
///   or empty, as ffmpeg writes it: then the sequence header inside the first keyframe is used.
/// - **Dropped samples.** A sample is dropped with an [`Event::Problem`] if its track has no
///   configuration, if its codec is not handled, or if its own structure is wrong (NAL unit
///   lengths, OBU sizes). The first two problems are reported once, until something changes; the
///   last is reported each time. Other tracks and later samples are not affected. Frames without
///   any data are ignored.
/// - **Bounds.** Only the first [`MAX_TRACKS`] tracks are used, per tag and in all. Sequence
///   headers are copied, and have at most [`MAX_CONFIGURATION`] bytes. So a demuxer holds less than
///   3 MiB, and a tag makes less than 100 events.
/// - **Time.** One 32-bit clock, unwrapped by [`Unwrapper`], serves all tracks, so dts means the
///   same in each. Times are passed on as the publisher wrote them, even where they run back or
///   jump. [`Event::Sample`] gives the distance to the track's previous sample, and
///   [`Event::jumped`] tells whether this distance counts as a jump. The caller decides what to do
///   about a jump. TimestampOffsetNano is finer than the timescale and has no effect.
#[derive(Debug)]
pub struct Demuxer {
    clock: Unwrapper,
    tracks: Vec<Track>,
    /// Whether the event about too many tracks was already emitted.
    full: bool,
    events: VecDeque<Event>,
    packets: Vec<Packet>,
    tags: u64,
}

/// A result of [`Demuxer::handle_tag`].
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The publisher's description of the stream.
    Metadata(Metadata),
    /// A track, or a new configuration for one. It holds for all samples up to the track's next
    /// such event.
    Track {
        /// The track.
        track: TrackId,
        /// Its configuration.
        codec: Codec,
    },
    /// An access unit, with times in milliseconds ([`TIMESCALE`](super::TIMESCALE)). Its duration
    /// is 0, because FLV has no durations. `sync` is what the tag says; the access unit is not
    /// examined.
    Sample {
        /// The track of the sample.
        track: TrackId,
        /// The access unit.
        sample: Sample,
        /// Decode time minus that of the track's previous sample; 0 for the first sample.
        step: i64,
    },
    /// A track's sequence has ended; a new sequence header may follow.
    End {
        /// The track.
        track: TrackId,
    },
    /// Something was left out.
    Problem(Problem),
}

impl Event {
    /// Whether this is a sample whose time runs back, or lies more than [`MAX_STEP`] after the
    /// track's previous sample.
    pub fn jumped(&self) -> bool {
        matches!(self, Self::Sample { step, .. } if !(0..=MAX_STEP).contains(step))
    }
}

/// What was left out, and where.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("tag {tag}{}: {reason}", .track.map(|track| format!(", {track}")).unwrap_or_default())]
pub struct Problem {
    /// The track, if the tag was readable that far.
    pub track: Option<TrackId>,
    /// Number of the tag, counted from 0.
    pub tag: u64,
    /// Time of the tag in milliseconds, unwrapped.
    pub time: i64,
    /// Why.
    pub reason: Reason,
}

/// Why something was left out. Positions in the errors count from the start of the tag's payload.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The codec is not handled. The track is ignored as long as it uses this codec.
    #[error("{0}")]
    Unsupported(Error),
    /// A sample came before any readable sequence header. All samples up to the next such header
    /// are dropped too, without another event.
    #[error("samples dropped that came before a sequence header")]
    NoConfiguration,
    /// There are already [`MAX_TRACKS`] tracks. This is reported once for all further tracks.
    #[error("passed over, and all further tracks: there are {MAX_TRACKS} before it")]
    TooManyTracks,
    /// The sequence header cannot be read.
    #[error("sequence header: {0}")]
    Configuration(Error),
    /// The sample's own structure does not add up.
    #[error("sample dropped: {0}")]
    Sample(Error),
    /// The tag cannot be read at all, or not beyond some track.
    #[error("{0}")]
    Tag(Error),
    /// The script data cannot be read.
    #[error("metadata: {0}")]
    Metadata(Error),
}

#[derive(Debug)]
struct Track {
    id: TrackId,
    config: Option<Config>,
    /// The configuration of the last [`Event::Track`].
    announced: Option<Codec>,
    /// The codec that was refused last, so that it is reported only once.
    refused: Option<CodecId>,
    /// Whether it was already reported that samples are dropped without a configuration.
    waiting: bool,
    /// Decode time of the last sample.
    dts: Option<i64>,
}

/// A sequence header as received, and the configuration read from it.
#[derive(Debug)]
struct Config {
    id: CodecId,
    header: Bytes,
    codec: Codec,
}

impl Default for Demuxer {
    fn default() -> Self {
        Self::new()
    }
}

impl Demuxer {
    /// A demuxer at the start of a stream.
    pub fn new() -> Self {
        Self {
            clock: Unwrapper::new(32),
            tracks: Vec::new(),
            full: false,
            events: VecDeque::new(),
            packets: Vec::new(),
            tags: 0,
        }
    }

    /// Takes a tag. `timestamp` is in milliseconds as in the tag's header: 24 bits, and the
    /// extension above them.
    pub fn handle_tag(&mut self, kind: TagKind, timestamp: u32, payload: &Bytes) {
        let tag = self.tags;
        self.tags += 1;
        if kind == TagKind::Script {
            // A script tag does not move the clock: many are stamped 0 wherever they stand.
            let time = self.clock.last().unwrap_or(timestamp.into());
            match Metadata::parse(payload) {
                Ok(Some(metadata)) => self.events.push_back(Event::Metadata(metadata)),
                Ok(None) => {}
                Err(error) => {
                    let reason = Reason::Metadata(error);
                    self.events.push_back(Event::Problem(Problem {
                        track: None,
                        tag,
                        time,
                        reason,
                    }));
                }
            }
            return;
        }
        let time = self.clock.unwrap(timestamp.into());
        let mut packets = std::mem::take(&mut self.packets);
        let (kind, result) = match kind {
            TagKind::Video => (Kind::Video, parse_video(payload, &mut packets)),
            _ => (Kind::Audio, parse_audio(payload, &mut packets)),
        };
        let size = payload.len();
        for packet in packets.drain(..) {
            self.handle_packet(kind, tag, time, detached(packet, size));
        }
        self.packets = packets;
        if let Err(error) = result {
            let reason = Reason::Tag(error);
            self.events.push_back(Event::Problem(Problem { track: None, tag, time, reason }));
        }
    }

    /// The next event, in the order of the tags; `None` when it needs more tags.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// How many tags were handled.
    pub fn tags(&self) -> u64 {
        self.tags
    }

    fn handle_packet(&mut self, kind: Kind, tag: u64, time: i64, packet: Packet) {
        let id = TrackId { kind, number: packet.track };
        let found = self.tracks.iter().position(|track| track.id == id);
        let index = found.unwrap_or(self.tracks.len());
        if found.is_none() && index < MAX_TRACKS {
            self.tracks.push(Track::new(id));
        }
        let handled = match self.tracks.get_mut(index) {
            Some(track) => track.handle(time, packet, &mut self.events),
            None if std::mem::replace(&mut self.full, true) => Ok(()),
            None => Err(Reason::TooManyTracks),
        };
        if let Err(reason) = handled {
            self.events.push_back(Event::Problem(Problem { track: Some(id), tag, time, reason }));
        }
    }
}

/// Copies the packet's sample out of a payload of `size` bytes, if the sample is a small part of
/// it.
fn detached(mut packet: Packet, size: usize) -> Packet {
    if let Body::Frame { data, .. } = &mut packet.body
        && size > SMALL
        && data.len() < size / 2
    {
        *data = Bytes::copy_from_slice(data);
    }
    packet
}

impl Track {
    fn new(id: TrackId) -> Self {
        Self { id, config: None, announced: None, refused: None, waiting: false, dts: None }
    }

    fn handle(
        &mut self,
        time: i64,
        packet: Packet,
        events: &mut VecDeque<Event>,
    ) -> Result<(), Reason> {
        let Packet { codec, at, .. } = packet;
        if !is_supported(self.id.kind, codec) {
            // An existing configuration stays: a stray tag must not end the track.
            if self.refused.replace(codec) == Some(codec) {
                return Ok(());
            }
            return Err(Reason::Unsupported(Error::unsupported(codec.to_string(), 0)));
        }
        match packet.body {
            Body::SequenceStart(header) => self.configure(codec, &header, at, events),
            Body::Frame { data, .. } if data.is_empty() => Ok(()),
            Body::Frame { cts, keyframe, data } => {
                let sample = Sample { dts: time, cts, duration: 0, sync: keyframe, data };
                self.sample(codec, sample, at, events)
            }
            Body::SequenceEnd if self.config.is_some() => {
                events.push_back(Event::End { track: self.id });
                Ok(())
            }
            Body::SequenceEnd | Body::Ignored => Ok(()),
        }
    }

    fn configure(
        &mut self,
        id: CodecId,
        header: &Bytes,
        at: u64,
        events: &mut VecDeque<Event>,
    ) -> Result<(), Reason> {
        let config = self.config.as_ref();
        if config.is_some_and(|config| config.id == id && config.header == header) {
            return Ok(());
        }
        if id == CodecId::AV1 && header.is_empty() {
            // The configuration is read from a keyframe, unless it is known already.
            self.config = self.config.take().filter(|config| config.id == id);
            self.waiting = false;
            return Ok(());
        }
        if header.is_empty() && config.is_some_and(|config| config.id == id) {
            // Encoders send it between frames. It says nothing new, and the frames go on.
            return Ok(());
        }
        let parsed = within("bytes of a sequence header", header.len()).and_then(|()| {
            // The header is copied, so that a few bytes do not keep a whole receive buffer.
            let header = Bytes::copy_from_slice(header);
            parse_configuration(id, &header).map(|codec| Config { id, header, codec })
        });
        match parsed {
            Ok(config) => {
                self.set_configuration(config, events);
                Ok(())
            }
            Err(error) => {
                self.config = None;
                self.waiting = true;
                Err(Reason::Configuration(error.offset(at)))
            }
        }
    }

    fn set_configuration(&mut self, config: Config, events: &mut VecDeque<Event>) {
        // A header with the same meaning in other bytes, or the same header after a broken one, is
        // no change.
        if self.announced.as_ref() != Some(&config.codec) {
            self.announced = Some(config.codec.clone());
            events.push_back(Event::Track { track: self.id, codec: config.codec.clone() });
        }
        self.config = Some(config);
        self.refused = None;
        self.waiting = false;
    }

    fn sample(
        &mut self,
        codec: CodecId,
        mut sample: Sample,
        mut at: u64,
        events: &mut VecDeque<Event>,
    ) -> Result<(), Reason> {
        if codec == CodecId::AV1 {
            let delimiter = av1::temporal_delimiter(&sample.data);
            sample.data = sample.data.slice(delimiter..);
            at += delimiter as u64;
            self.learn_av1(&sample.data, events)
                .map_err(|error| Reason::Sample(error.offset(at)))?;
        }
        let Some(config) = self.config.as_ref().filter(|config| config.id == codec) else {
            if std::mem::replace(&mut self.waiting, true) {
                return Ok(());
            }
            return Err(Reason::NoConfiguration);
        };
        check(&config.codec, &sample.data).map_err(|error| Reason::Sample(error.offset(at)))?;
        let step = self.dts.map_or(0, |last| sample.dts.saturating_sub(last));
        self.dts = Some(sample.dts);
        events.push_back(Event::Sample { track: self.id, sample, step });
        Ok(())
    }

    /// Takes the configuration from the sequence header inside the temporal unit, where the tags
    /// have not supplied a complete one.
    fn learn_av1(
        &mut self,
        temporal_unit: &[u8],
        events: &mut VecDeque<Event>,
    ) -> Result<(), Error> {
        let known = self.config.as_ref().map(|config| &config.codec);
        if matches!(known, Some(Codec::Av1(config)) if config.width > 0) {
            return Ok(());
        }
        if let Some(codec) = av1::Config::from_temporal_unit(temporal_unit)? {
            within("bytes of a sequence header", codec.record.len())?;
            // Later headers in tags are still compared with the last header from a tag.
            let header = self.config.take().map(|config| config.header).unwrap_or_default();
            let codec = Codec::Av1(codec);
            self.set_configuration(Config { id: CodecId::AV1, header, codec }, events);
        }
        Ok(())
    }
}

/// FourCCs of the video codecs that a [`Demuxer`] makes tracks of.
pub const VIDEO_FOURCCS: [&str; 3] = ["avc1", "hvc1", "av01"];
/// FourCCs of its audio codecs.
pub const AUDIO_FOURCCS: [&str; 2] = ["mp4a", "Opus"];

fn is_supported(kind: Kind, codec: CodecId) -> bool {
    let CodecId::Fourcc(fourcc) = codec else { return false };
    let supported: &[&str] = match kind {
        Kind::Video => &VIDEO_FOURCCS,
        Kind::Audio => &AUDIO_FOURCCS,
        Kind::Other => &[],
    };
    supported.iter().any(|one| one.as_bytes() == fourcc)
}

/// Checks that a configuration is short enough to be kept.
fn within(what: &'static str, size: usize) -> Result<(), Error> {
    let (value, limit) = (size as u64, MAX_CONFIGURATION as u64);
    if value <= limit {
        Ok(())
    } else {
        Err(Error::Limit { what: what.into(), at: 0, value, limit })
    }
}

fn parse_configuration(id: CodecId, header: &Bytes) -> Result<Codec, Error> {
    let record = header.clone();
    match id {
        CodecId::AVC => avc::Config::parse(record).map(Codec::Avc),
        CodecId::HEVC => hevc::Config::parse(record).map(Codec::Hevc),
        CodecId::AV1 => av1::Config::parse(record).map(Codec::Av1),
        CodecId::AAC => aac::Config::parse(record).map(Codec::Aac),
        CodecId::OPUS => opus::Config::from_opus_head(header).map(Codec::Opus),
        other => Err(Error::unsupported(other.to_string(), 0)),
    }
}

/// Checks that an access unit follows its codec's framing.
fn check(codec: &Codec, data: &[u8]) -> Result<(), Error> {
    match codec {
        Codec::Avc(config) => nal::check(data, config.nal_length_size),
        Codec::Hevc(config) => nal::check(data, config.nal_length_size),
        Codec::Av1(_) => av1::check(data),
        Codec::Opus(_) => match opus::packet_duration(data) {
            Some(_) => Ok(()),
            None => Err(Error::malformed("Opus packet of impossible duration", 0)),
        },
        Codec::Aac(_) | Codec::Other(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `AvMultitrackType` ManyTracks of AVC: each track has a number, a length and that many bytes.
    fn tag(packet_type: u8, tracks: impl IntoIterator<Item = (u8, Vec<u8>)>) -> Bytes {
        let mut tag = vec![0x96, 0x10 | packet_type];
        tag.extend_from_slice(b"avc1");
        for (number, body) in tracks {
            tag.push(number);
            tag.extend_from_slice(&(body.len() as u32).to_be_bytes()[1..]);
            tag.extend_from_slice(&body);
        }
        tag.into()
    }

    /// An AVCDecoderConfigurationRecord of Baseline, 16 by 16, with `padding` bytes behind it.
    fn record(padding: usize) -> Vec<u8> {
        let mut record = vec![1, 66, 0, 10, 0xff, 0xe1, 0, 6];
        record.extend_from_slice(&[0x67, 66, 0, 10, 0xfb, 0xc8, 1, 0, 1, 0x68]);
        record.resize(record.len() + padding, 0);
        record
    }

    /// Bytes that the demuxer holds: waiting events and packets, and configurations.
    fn held(demuxer: &Demuxer) -> usize {
        let configurations = demuxer.tracks.iter().flat_map(|track| {
            let header = track.config.as_ref().map(|config| config.header.len());
            header.into_iter().chain(track.announced.as_ref().map(|codec| codec.record().len()))
        });
        demuxer.events.capacity() * size_of::<Event>()
            + demuxer.packets.capacity() * size_of::<Packet>()
            + demuxer.tracks.capacity() * size_of::<Track>()
            + configurations.sum::<usize>()
    }

    fn events(demuxer: &mut Demuxer) -> Vec<Event> {
        std::iter::from_fn(|| demuxer.poll_event()).collect()
    }

    /// Which limits were exceeded.
    fn limits(events: &[Event]) -> Vec<(&str, u64)> {
        let limit = |event| match event {
            &Event::Problem(Problem {
                reason:
                    Reason::Tag(Error::Limit { ref what, limit, .. })
                    | Reason::Configuration(Error::Limit { ref what, limit, .. })
                    | Reason::Sample(Error::Limit { ref what, limit, .. }),
                ..
            }) => Some((&**what, limit)),
            _ => None,
        };
        events.iter().filter_map(limit).collect()
    }

    #[test]
    fn an_empty_header_between_frames_changes_nothing() {
        let mut demuxer = Demuxer::new();
        let frame = || (VIDEO_CODED_FRAMES_X, vec![0, 0, 0, 2, 0x65, 0x88]);
        let empty = (SEQUENCE_START, vec![]);
        for (packet_type, body) in [(SEQUENCE_START, record(0)), frame(), empty, frame()] {
            demuxer.handle_tag(TagKind::Video, 0, &tag(packet_type, [(0, body)]));
        }
        let events = events(&mut demuxer);
        let samples = events.iter().filter(|event| matches!(event, Event::Sample { .. })).count();
        assert_eq!((samples, events.len()), (2, 3), "{events:?}");
    }

    #[test]
    fn a_tag_of_four_million_empty_tracks_costs_nothing() {
        let mut tag = vec![0x96, 0x13];
        tag.extend_from_slice(b"avc1");
        tag.resize(crate::flv::MAX_PAYLOAD / 4 * 4 + 2, 0);
        let tag = Bytes::from(tag);
        let mut demuxer = Demuxer::new();
        for _ in 0..2 {
            demuxer.handle_tag(TagKind::Video, 0, &tag);
            assert!(held(&demuxer) < 64 << 10, "{}", held(&demuxer));
            let events = events(&mut demuxer);
            assert_eq!(limits(&events), [("tracks of a tag", MAX_TRACKS as u64)], "{events:?}");
            assert!(events.len() <= 2, "{events:?}");
        }
        drop(demuxer);
        assert!(tag.is_unique());
    }

    #[test]
    fn tracks_are_bounded_over_all_tags() {
        let mut demuxer = Demuxer::new();
        let mut all = Vec::new();
        for number in 0..=255 {
            for kind in [TagKind::Video, TagKind::Audio] {
                let tag = match kind {
                    TagKind::Video => tag(SEQUENCE_START, [(number, record(0))]),
                    _ => [b"\x95\x00mp4a", &[number][..], b"\x12\x10"].concat().into(),
                };
                demuxer.handle_tag(kind, 0, &tag);
                all.extend(events(&mut demuxer));
            }
        }
        let tracks = all.iter().filter(|event| matches!(event, Event::Track { .. })).count();
        assert_eq!((tracks, demuxer.tracks.len()), (MAX_TRACKS, MAX_TRACKS));
        let [Event::Problem(problem)] = &all[MAX_TRACKS..] else { panic!("{all:?}") };
        assert_eq!(
            problem.to_string(),
            "tag 32, video track 16: passed over, and all further tracks: there are 32 before it"
        );
    }

    #[test]
    fn configurations_are_short_and_not_of_the_message() {
        let mut demuxer = Demuxer::new();
        let longest = MAX_CONFIGURATION - record(0).len();
        for attempt in 0..3 {
            // A different header each time, so that the announced one and the last one are two.
            let header = |number| {
                let mut header = record(longest);
                *header.last_mut().unwrap() = attempt;
                (number, header)
            };
            let tag = tag(SEQUENCE_START, (0..MAX_TRACKS as u8).map(header));
            demuxer.handle_tag(TagKind::Video, 0, &tag);
            assert!(held(&demuxer) < 3 << 20, "{}", held(&demuxer));
            let events = events(&mut demuxer);
            assert_eq!(events.len(), MAX_TRACKS, "{events:?}");
            assert!(tag.is_unique(), "no configuration keeps the message it came in");
        }
        let long = tag(SEQUENCE_START, [(0, record(longest + 1)), (1, record((15 << 20) + 1))]);
        demuxer.handle_tag(TagKind::Video, 0, &long);
        let events = events(&mut demuxer);
        let limit = ("bytes of a sequence header", MAX_CONFIGURATION as u64);
        assert_eq!(limits(&events), [limit, limit], "{events:?}");
        assert!(held(&demuxer) < 3 << 20 && long.is_unique());
    }

    #[test]
    fn a_small_sample_does_not_keep_a_large_message() {
        let mut demuxer = Demuxer::new();
        let headers = (0..2).map(|number| (number, record(0)));
        demuxer.handle_tag(TagKind::Video, 0, &tag(SEQUENCE_START, headers));
        events(&mut demuxer);
        let unit = |size: usize| [&(size as u32).to_be_bytes()[..], &vec![0x41; size]].concat();
        let frames = [(0, unit(1 << 20)), (1, unit(10))];
        let message = tag(VIDEO_CODED_FRAMES_X, frames);
        demuxer.handle_tag(TagKind::Video, 0, &message);
        let found = events(&mut demuxer);
        let [Event::Sample { sample: large, .. }, Event::Sample { sample: small, .. }] = &found[..]
        else {
            panic!("{found:?}")
        };
        assert!(message.as_ptr_range().contains(&large.data.as_ptr()), "not copied");
        assert!(!message.as_ptr_range().contains(&small.data.as_ptr()), "copied");
        assert_eq!((large.data.len(), small.data.len()), (4 + (1 << 20), 14));
    }

    #[test]
    fn tags_that_take_long_to_walk_are_refused() {
        let mut demuxer = Demuxer::new();
        let mut many = vec![0x97];
        // TimestampOffsetNano with one byte, again and again.
        many.extend([0, 0, 0x07].repeat(5 << 20));
        demuxer.handle_tag(TagKind::Video, 0, &many.into());
        assert_eq!(limits(&events(&mut demuxer)), [("ModEx packets of a tag", 16)]);

        demuxer.handle_tag(TagKind::Video, 0, &tag(SEQUENCE_START, [(0, record(0))]));
        assert_eq!(events(&mut demuxer).len(), 1);
        // Empty NAL units, which count as padding.
        let empty = tag(VIDEO_CODED_FRAMES_X, [(0, vec![0; 8 << 20])]);
        demuxer.handle_tag(TagKind::Video, 0, &empty);
        let limit = ("NAL units of an access unit", nal::MAX_UNITS as u64);
        assert_eq!(limits(&events(&mut demuxer)), [limit]);

        // Empty OBUs of two bytes each.
        let mut obus = b"\x93av01".to_vec();
        obus.extend([0x2a, 0].repeat(4 << 20));
        demuxer.handle_tag(TagKind::Video, 0, &obus.into());
        assert_eq!(limits(&events(&mut demuxer)), [("OBUs of a temporal unit", 16_384)]);
    }

    const SEQUENCE_START: u8 = 0;
    const VIDEO_CODED_FRAMES_X: u8 = 3;
}
