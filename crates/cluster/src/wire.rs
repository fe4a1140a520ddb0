//! Messages between nodes, as bytes.
//!
//! A message is a checksum, a head, in the format of postcard, and the bytes of a part after it. The head begins with
//! the [`FORMAT`] and the epoch: the number of the lease by which the sender has the stream. NATS takes messages of up
//! to a megabyte, so a longer part comes in pieces.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use live::mirror::{
    Adoption, Change, Description, NewPart, NewSegment, NewUnit, TrackDescription, WindowState,
};
use live::{Header, PublisherInfo, SampleLayout, Settings, Status, UnixMicros};
use media::Codec;
use media::codec::{aac, av1, avc, hevc, opus};
use serde::{Deserialize, Serialize};

use crate::role::Role;

/// The version of this format.
pub(crate) const FORMAT: u8 = 4;
/// The most bytes of a part in one message.
pub const PIECE: usize = 512 << 10;
/// The longest name in a question, in bytes.
const LONGEST_NAME: usize = 256;
/// The longest part that is put together. No part has more: a packager holds fewer bytes back.
const LONGEST_PART: u32 = 64 << 20;

/// The length of the checksum before each message: CRC-32, the lowest byte first. The system that carries messages keeps
/// them whole. The checksum tells what a node wrote from what other programs write to the same subjects.
const SUM: usize = 4;

/// Writes a message without its checksum, and leaves the place for that.
pub(crate) fn head(of: &impl Serialize) -> Result<Vec<u8>, Error> {
    Ok(postcard::to_extend(&(FORMAT, of), vec![0; SUM])?)
}

/// Puts the checksum before a message.
pub(crate) fn seal(mut message: Vec<u8>) -> Bytes {
    let sum = crc32fast::hash(&message[SUM..]);
    message[..SUM].copy_from_slice(&sum.to_le_bytes());
    message.into()
}

/// What a message says after its checksum and its format, both of which are right.
pub(crate) fn open(message: &[u8]) -> Result<&[u8], Error> {
    let (sum, message) = message.split_first_chunk::<SUM>().ok_or(Error::Damaged)?;
    if crc32fast::hash(message) != u32::from_le_bytes(*sum) {
        return Err(Error::Damaged);
    }
    let (format, rest) = postcard::take_from_bytes::<u8>(message)?;
    if format == FORMAT { Ok(rest) } else { Err(Error::Version(format)) }
}

/// Why bytes are no message.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// They are not what a node wrote.
    #[error("not a message of a node: its checksum is another")]
    Damaged,
    /// They are no message at all.
    #[error("not a message of a node: {0}")]
    Format(#[from] postcard::Error),
    /// The sender has another version of the program.
    #[error("a message of format {0}, not {FORMAT}")]
    Version(u8),
    /// A codec's configuration cannot be read.
    #[error("a track of {0} that cannot be described")]
    Codec(String),
    /// A part's pieces do not fit each other.
    #[error("a piece of a part that is not expected")]
    Piece,
    /// A number is out of range.
    #[error("{0} is out of range")]
    Range(&'static str),
}

/// What a node says of a stream.
#[derive(Debug, Clone)]
pub enum Message {
    /// The stream has changed.
    Change(Change),
    /// A unit of the stream, for copies whose viewers read single units.
    Unit(NewUnit),
    /// How far the stream is. A copy that is not as far asks for the rest.
    Beat(Beat),
    /// A question was answered: this is all that the asker lacked.
    Done,
    /// The stream is the asker's, as soon as its lease is given back. With epoch 0, the node that answers does not have
    /// the stream, and nobody publishes it there: its lease lasts on only because it could not be given back.
    Ceded,
}

/// The versions of a stream and its tracks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beat {
    /// [`Description::version`] of the stream.
    pub version: u64,
    /// [`WindowState::version`] of each track, by its track_ID.
    pub tracks: Vec<(u32, u64)>,
}

/// What a node asks of the node that has a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The name of the node that asks.
    pub asker: String,
    /// The stream's name.
    pub stream: String,
    /// What is asked for.
    pub ask: Ask,
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// Whether the node is there.
    Nothing,
    /// Everything that the asker lacks, who has this of each track
    /// ([`Mirror::places`](live::mirror::Mirror::places)).
    Changes(Vec<(u32, (u64, usize))>),
    /// Nothing: this says what viewers of a copy want, for the next seconds.
    Wants(Wants),
    /// The stream itself: its publisher came to the asker. It is granted unless somebody publishes the stream at the
    /// node that has it.
    Cede,
    /// The same, for a publisher of this role that waits at the asker, and all that the asker lacks, as of
    /// [`Ask::Changes`]. It is also granted if the publisher at the node that has the stream is silent, or is the
    /// backup of the one at the asker, and that one takes the stream back ([`live::backup::Claim`]).
    TakeOver(Vec<(u32, (u64, usize))>, Role, bool),
}

/// What viewers of a copy want, besides parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wants {
    /// The tracks of which they want single access units ([`Units`](live::mirror::Units)), on a subject of their own.
    pub units: Vec<u32>,
    /// The tracks that they play, by track_ID. One whose publisher has gone goes on as silence while it is played.
    pub played: Vec<u32>,
}

impl Question {
    /// The question as bytes.
    ///
    /// # Errors
    /// None that is known.
    pub fn write(&self) -> Result<Bytes, Error> {
        Ok(seal(head(self)?))
    }

    /// Reads a question.
    ///
    /// # Errors
    /// The bytes are no question, or a name is longer than any.
    pub fn read(bytes: &[u8]) -> Result<Self, Error> {
        let question: Self = postcard::from_bytes(open(bytes)?)?;
        match question.asker.len().max(question.stream.len()) > LONGEST_NAME {
            true => Err(Error::Range("the length of a name")),
            false => Ok(question),
        }
    }
}

/// Writes a message of a stream that the sender has by the lease `epoch`. It becomes several messages if it is a
/// long part.
///
/// # Errors
/// None that is known: what [`live`] tells can be written.
pub fn write(epoch: u64, message: &Message) -> Result<Vec<Bytes>, Error> {
    let (of, part) = match message {
        Message::Change(Change::Stream(of)) => (Head::Stream(of.as_ref().into()), None),
        Message::Change(Change::Window(window)) => (Head::Window(window.into()), None),
        Message::Change(Change::Part(part)) => {
            (Head::Part(part.as_ref().try_into()?), Some(&part.bytes))
        }
        Message::Unit(unit) => (Head::Unit(unit.into()), Some(&unit.data)),
        Message::Beat(beat) => (Head::Beat(beat.clone()), None),
        Message::Done => (Head::Done, None),
        Message::Ceded => (Head::Ceded, None),
    };
    let mut first = head(&(epoch, of))?;
    let Some(part) = part else { return Ok(vec![seal(first)]) };
    if part.len() <= PIECE {
        first.extend_from_slice(part);
        return Ok(vec![seal(first)]);
    }
    if matches!(message, Message::Unit(_)) {
        // It comes with its part.
        return Ok(Vec::new());
    }
    let mut messages = vec![seal(first)];
    let mut offset = 0;
    for piece in part.chunks(PIECE) {
        let mut bytes = head(&(epoch, Head::Piece(offset)))?;
        bytes.extend_from_slice(piece);
        messages.push(seal(bytes));
        offset += u32::try_from(piece.len()).map_err(|_| Error::Range("a part's length"))?;
    }
    Ok(messages)
}

/// Reads the messages of one sender, in the order in which they were sent. If one is missing, so is at most the part
/// that it is a piece of.
#[derive(Debug, Default)]
pub struct Reader {
    /// A part whose pieces are coming, its epoch and the bytes so far.
    pieces: Option<(u64, Part, BytesMut)>,
}

impl Reader {
    /// Reads a message. Returns it with its epoch, or nothing if the rest of a part is still to come.
    ///
    /// # Errors
    /// The bytes are no message. The next may be one.
    pub fn read(&mut self, bytes: &Bytes) -> Result<Option<(u64, Message)>, Error> {
        let ((epoch, head), rest) = postcard::take_from_bytes::<(u64, Head)>(open(bytes)?)?;
        let rest = bytes.slice_ref(rest);
        let change = match head {
            Head::Stream(of) => Change::Stream(Arc::new(of.try_into()?)),
            Head::Window(window) => Change::Window(window.try_into()?),
            Head::Part(part) if part.length as usize == rest.len() => {
                Change::Part(Box::new(part.complete(rest)?))
            }
            Head::Part(part) if rest.is_empty() && part.length <= LONGEST_PART => {
                self.pieces = Some((epoch, part, BytesMut::new()));
                return Ok(None);
            }
            Head::Part(_) => return Err(Error::Range("a part's length")),
            Head::Piece(offset) => {
                let Some((of, part, mut sofar)) = self.pieces.take() else {
                    return Err(Error::Piece);
                };
                let end = sofar.len() + rest.len();
                if of != epoch
                    || offset as usize != sofar.len()
                    || end > part.length as usize
                    || rest.is_empty()
                {
                    return Err(Error::Piece);
                }
                sofar.extend_from_slice(&rest);
                if end < part.length as usize {
                    self.pieces = Some((of, part, sofar));
                    return Ok(None);
                }
                Change::Part(Box::new(part.complete(sofar.freeze())?))
            }
            Head::Unit(unit) => return Ok(Some((epoch, Message::Unit(unit.complete(rest))))),
            Head::Beat(beat) => return Ok(Some((epoch, Message::Beat(beat)))),
            Head::Done => return Ok(Some((epoch, Message::Done))),
            Head::Ceded => return Ok(Some((epoch, Message::Ceded))),
        };
        Ok(Some((epoch, Message::Change(change))))
    }
}

// The types below are those of `live::mirror`, as they are written. Their fields have the same meaning.

#[derive(Debug, Serialize, Deserialize)]
enum Head {
    Stream(Stream),
    Part(Part),
    /// The bytes from this offset of the part before.
    Piece(u32),
    Window(Window),
    Unit(Unit),
    Beat(Beat),
    Done,
    Ceded,
}

#[derive(Debug, Serialize, Deserialize)]
struct Stream {
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
struct Part {
    track: u32,
    place: (u64, u32),
    begins: Option<Segment>,
    start: i64,
    duration: u32,
    independent: bool,
    published: u64,
    /// Due time after the one before, composition time, whether decoding can start there, offset, size.
    samples: Vec<(i64, i32, bool, u32, u32)>,
    length: u32,
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
struct Unit {
    track: u32,
    place: (u64, i64),
    follows: Option<(u64, i64)>,
    header: u64,
    cts: i32,
    duration: u32,
    sync: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct Window {
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
    fn complete(self, bytes: Bytes) -> Result<NewPart, Error> {
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
    fn complete(self, data: Bytes) -> NewUnit {
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

#[cfg(test)]
mod tests;
