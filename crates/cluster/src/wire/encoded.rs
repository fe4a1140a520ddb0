//! The types of [`live::mirror`] as messages have them. Their fields have the same meaning.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use live::mirror::{
    Adoption, Description, NewPart, NewSegment, NewUnit, TrackDescription, WindowState,
};
use live::{Header, PublisherInfo, SampleLayout, Settings, Status, UnixMicros};
use media::Codec;
use media::codec::{aac, av1, avc, hevc, opus};
use serde::{Deserialize, Serialize};

use super::Error;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Stream {
    /// Durations in microseconds: part target, segment target, target duration, keyframe distance, window, reconnect,
    /// silence.
    durations: [u64; 7],
    foreign_renditions: bool,
    since: u64,
    status: u8,
    epoch: u64,
    version: u64,
    target_duration: Option<u64>,
    ready: bool,
    publishers: Vec<Publisher>,
    named: [u32; 2],
    adoptions: Vec<Adopted>,
    tracks: Vec<Track>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Adopted {
    at: u64,
    places: Vec<(u32, (u64, u64))>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Publisher {
    peer: Option<std::net::SocketAddr>,
    protocol: String,
    rendition: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Track {
    name: String,
    rendition: Option<String>,
    source: (Option<String>, u32),
    header: TrackHeader,
    coming: bool,
    offered: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct TrackHeader {
    msn: u64,
    id: u32,
    timescale: u32,
    /// `avc1`, `hvc1`, `av01`, `mp4a` or `Opus`, and the codec's configuration record.
    codec: [u8; 4],
    record: Vec<u8>,
    language: [u8; 3],
    bytes: Vec<u8>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Part {
    track: u32,
    place: (u64, u32),
    begins: Option<Segment>,
    start: i64,
    duration: u32,
    independent: bool,
    published: u64,
    /// Due time after the one before, composition time, whether decoding can start there, offset, size.
    samples: Vec<(i64, i32, bool, u32, u32)>,
    pub(super) length: u32,
}

#[derive(Debug, Serialize, Deserialize)]
struct Segment {
    follows: Option<u32>,
    start: i64,
    presents: i64,
    period: u64,
    period_start: i64,
    discontinuity: bool,
    captured: u64,
    expected_end: Option<i64>,
    header: TrackHeader,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Unit {
    track: u32,
    place: (u64, i64),
    follows: Option<(u64, i64)>,
    header: u64,
    cts: i32,
    duration: u32,
    sync: bool,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Window {
    track: u32,
    version: u64,
    first: u64,
    end: Option<(u64, u64)>,
    is_open: bool,
    unlisted: u64,
    ended: bool,
    rate: Option<(u64, u64)>,
    part_limit: Option<u32>,
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

impl From<&Description> for Stream {
    fn from(of: &Description) -> Self {
        let settings = &of.settings;
        let durations = [
            settings.part_target,
            settings.segment_target,
            settings.target_duration,
            settings.keyframe_distance,
            settings.window,
            settings.reconnect,
            settings.silence,
        ];
        Self {
            durations: durations.map(micros),
            foreign_renditions: settings.foreign_renditions,
            since: of.since.0,
            status: match of.status {
                Status::Live => 0,
                Status::Offline => 1,
                Status::Ended => 2,
            },
            epoch: of.epoch.0,
            version: of.version,
            target_duration: of.target_duration.map(micros),
            ready: of.ready,
            publishers: of.publishers.iter().map(Publisher::from).collect(),
            named: of.named,
            adoptions: of.adoptions.iter().map(Adopted::from).collect(),
            tracks: of.tracks.iter().map(Track::from).collect(),
        }
    }
}

impl TryFrom<Stream> for Description {
    type Error = Error;

    fn try_from(of: Stream) -> Result<Self, Error> {
        let [
            part_target,
            segment_target,
            target_duration,
            keyframe_distance,
            window,
            reconnect,
            silence,
        ] = of.durations.map(Duration::from_micros);
        let settings = Settings {
            part_target,
            segment_target,
            target_duration,
            keyframe_distance,
            window,
            reconnect,
            silence,
            foreign_renditions: of.foreign_renditions,
        };
        Ok(Self {
            settings,
            since: UnixMicros(of.since),
            status: match of.status {
                0 => Status::Live,
                1 => Status::Offline,
                2 => Status::Ended,
                _ => return Err(Error::Range("a stream's status")),
            },
            epoch: UnixMicros(of.epoch),
            version: of.version,
            target_duration: of.target_duration.map(Duration::from_micros),
            ready: of.ready,
            publishers: of.publishers.into_iter().map(PublisherInfo::from).collect(),
            named: of.named,
            adoptions: of.adoptions.into_iter().map(Adoption::from).collect(),
            tracks: of
                .tracks
                .into_iter()
                .map(TrackDescription::try_from)
                .collect::<Result<_, _>>()?,
        })
    }
}

impl From<&Adoption> for Adopted {
    fn from(of: &Adoption) -> Self {
        let places = of.places.iter().map(|&(id, (msn, at))| (id, (msn, at as u64)));
        Self { at: of.at.0, places: places.collect() }
    }
}

impl From<Adopted> for Adoption {
    fn from(of: Adopted) -> Self {
        let place = |at| usize::try_from(at).unwrap_or(usize::MAX);
        let places = of.places.into_iter().map(|(id, (msn, at))| (id, (msn, place(at))));
        Self { at: UnixMicros(of.at), places: places.collect() }
    }
}

impl From<&PublisherInfo> for Publisher {
    fn from(info: &PublisherInfo) -> Self {
        let PublisherInfo { peer, protocol, rendition } = info.clone();
        Self { peer, protocol: protocol.to_owned(), rendition }
    }
}

impl From<Publisher> for PublisherInfo {
    fn from(Publisher { peer, protocol, rendition }: Publisher) -> Self {
        let known = ["rtmp", "whip", "file", "ladder"];
        let protocol = known.into_iter().find(|known| *known == protocol).unwrap_or("other");
        Self { peer, protocol, rendition }
    }
}

impl From<&TrackDescription> for Track {
    fn from(of: &TrackDescription) -> Self {
        Self {
            name: of.name.clone(),
            rendition: of.rendition.clone(),
            source: of.source.clone(),
            header: (&*of.header).into(),
            coming: of.coming,
            offered: of.offered,
        }
    }
}

impl TryFrom<Track> for TrackDescription {
    type Error = Error;

    fn try_from(of: Track) -> Result<Self, Error> {
        Ok(Self {
            name: of.name,
            rendition: of.rendition,
            source: of.source,
            header: Arc::new(of.header.try_into()?),
            coming: of.coming,
            offered: of.offered,
        })
    }
}

impl From<&Header> for TrackHeader {
    fn from(header: &Header) -> Self {
        let media::Track { id, timescale, codec, language } = &header.track;
        Self {
            msn: header.msn,
            id: *id,
            timescale: *timescale,
            codec: match codec {
                Codec::Avc(_) => *b"avc1",
                Codec::Hevc(_) => *b"hvc1",
                Codec::Av1(_) => *b"av01",
                Codec::Aac(_) => *b"mp4a",
                Codec::Opus(_) => *b"Opus",
                _ => *b"????",
            },
            record: codec.record().into(),
            language: *language,
            bytes: header.bytes.to_vec(),
        }
    }
}

impl TryFrom<TrackHeader> for Header {
    type Error = Error;

    fn try_from(of: TrackHeader) -> Result<Self, Error> {
        let record = Bytes::from(of.record);
        let fault = |name: &str| Error::Codec(name.to_owned());
        let codec = match &of.codec {
            b"avc1" => avc::Config::parse(record).map(Codec::Avc).map_err(|_| fault("H.264"))?,
            b"hvc1" => hevc::Config::parse(record).map(Codec::Hevc).map_err(|_| fault("HEVC"))?,
            b"av01" => av1::Config::parse(record).map(Codec::Av1).map_err(|_| fault("AV1"))?,
            b"mp4a" => aac::Config::parse(record).map(Codec::Aac).map_err(|_| fault("AAC"))?,
            b"Opus" => opus::Config::parse(record).map(Codec::Opus).map_err(|_| fault("Opus"))?,
            other => return Err(Error::Codec(String::from_utf8_lossy(other).into_owned())),
        };
        if of.timescale == 0 {
            return Err(Error::Range("a timescale"));
        }
        let track =
            media::Track { id: of.id, timescale: of.timescale, codec, language: of.language };
        Ok(Self { msn: of.msn, track, bytes: of.bytes.into() })
    }
}

impl TryFrom<&NewPart> for Part {
    type Error = Error;

    fn try_from(part: &NewPart) -> Result<Self, Error> {
        let narrow = |number: usize, what| u32::try_from(number).map_err(|_| Error::Range(what));
        let begins = part.begins.as_ref().map(|begins| {
            Ok::<_, Error>(Segment {
                follows: begins
                    .follows
                    .map(|parts| narrow(parts, "a number of parts"))
                    .transpose()?,
                start: begins.start,
                presents: begins.presents,
                period: begins.period,
                period_start: begins.period_start,
                discontinuity: begins.discontinuity,
                captured: begins.captured.0,
                expected_end: begins.expected_end,
                header: (&*begins.header).into(),
            })
        });
        let mut before = part.start;
        let samples = part.samples.iter().map(|sample| {
            let after = sample.dts.wrapping_sub(std::mem::replace(&mut before, sample.dts));
            (after, sample.cts, sample.sync, sample.offset, sample.size)
        });
        Ok(Self {
            track: part.track,
            place: (part.place.0, narrow(part.place.1, "a number of parts")?),
            begins: begins.transpose()?,
            start: part.start,
            duration: part.duration,
            independent: part.independent,
            published: part.published.0,
            samples: samples.collect(),
            length: narrow(part.bytes.len(), "a part's length")?,
        })
    }
}

impl Part {
    pub(super) fn complete(self, bytes: Bytes) -> Result<NewPart, Error> {
        let begins = self.begins.map(|begins| {
            Ok::<_, Error>(NewSegment {
                follows: begins.follows.map(|parts| parts as usize),
                start: begins.start,
                presents: begins.presents,
                period: begins.period,
                period_start: begins.period_start,
                discontinuity: begins.discontinuity,
                captured: UnixMicros(begins.captured),
                expected_end: begins.expected_end,
                header: Arc::new(begins.header.try_into()?),
            })
        });
        let begins = begins.transpose()?;
        if begins.is_some() != (self.place.1 == 0) {
            return Err(Error::Range("a part's place"));
        }
        let mut dts = self.start;
        let samples = self.samples.into_iter().map(|(after, cts, sync, offset, size)| {
            dts = dts.wrapping_add(after);
            SampleLayout { dts, cts, sync, offset, size }
        });
        Ok(NewPart {
            track: self.track,
            place: (self.place.0, self.place.1 as usize),
            begins,
            start: self.start,
            duration: self.duration,
            independent: self.independent,
            published: UnixMicros(self.published),
            samples: samples.collect(),
            bytes,
        })
    }
}

impl From<&NewUnit> for Unit {
    fn from(of: &NewUnit) -> Self {
        let &NewUnit { track, place, follows, header, cts, duration, sync, data: _ } = of;
        Self { track, place, follows, header, cts, duration, sync }
    }
}

impl Unit {
    pub(super) fn complete(self, data: Bytes) -> NewUnit {
        let Self { track, place, follows, header, cts, duration, sync } = self;
        NewUnit { track, place, follows, header, cts, duration, sync, data }
    }
}

impl From<&WindowState> for Window {
    fn from(of: &WindowState) -> Self {
        Self {
            track: of.track,
            version: of.version,
            first: of.first,
            end: of.end.map(|(msn, parts)| (msn, parts as u64)),
            is_open: of.is_open,
            unlisted: of.unlisted as u64,
            ended: of.ended,
            rate: of.rate,
            part_limit: of.part_limit,
        }
    }
}

impl TryFrom<Window> for WindowState {
    type Error = Error;

    fn try_from(of: Window) -> Result<Self, Error> {
        let parts = |parts| usize::try_from(parts).map_err(|_| Error::Range("a number of parts"));
        Ok(Self {
            track: of.track,
            version: of.version,
            first: of.first,
            end: of.end.map(|(msn, at)| Ok::<_, Error>((msn, parts(at)?))).transpose()?,
            is_open: of.is_open,
            unlisted: parts(of.unlisted)?,
            ended: of.ended,
            rate: of.rate,
            part_limit: of.part_limit,
        })
    }
}
