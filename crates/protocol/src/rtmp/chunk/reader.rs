use bytes::{Buf, Bytes};

use super::{DEFAULT_SIZE, EXTENDED, MAX_SIZE};
use crate::rtmp::Error;
use crate::rtmp::message::{self, Limits, Message};

/// The most chunk streams of a peer. Real peers use fewer than ten.
const MAX_STREAMS: usize = 64;
/// Most memory of all incomplete messages except the largest.
const MAX_PARTIAL: usize = 2 << 20;
/// Most memory that is allocated at a message's first byte. Longer messages grow by doubling. So
/// announcing 16 MiB costs nothing, and a frame up to this size is copied exactly once.
const INITIAL: usize = 256 << 10;
/// Bytes of basic header, message header and extended timestamp.
const MAX_HEADER: usize = 3 + 11 + 4;

/// Result of [`Reader::read`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Read {
    /// A whole message.
    Message(Message),
    /// A data message above the limit, or a message of unknown type, was skipped.
    Skipped(Error),
    /// An audio or video message was measured and dropped; see [`Reader::set_measure_media`].
    Measured(Measured),
}

/// Properties of an audio or video message that was not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measured {
    /// Message type ID: [`message::AUDIO`] or [`message::VIDEO`].
    pub kind: u8,
    /// Absolute time in milliseconds; wraps after 2^32.
    pub timestamp: u32,
    /// Bytes of payload; not 0.
    pub length: usize,
    /// The payload's first two bytes, which distinguish a sequence header from media. The second is
    /// 0 where it does not exist.
    pub start: [u8; 2],
}

/// Most bytes of [`Reader::front`]: enough for a tag's header, parameter sets and an SEI message or
/// metadata OBU.
const FRONT: usize = 192;

/// State of a chunk stream: its last message header, and its current message.
#[derive(Debug)]
struct Stream {
    csid: u32,
    timestamp: u32,
    /// Time that a new message without a timestamp field adds.
    delta: u32,
    length: usize,
    kind: u8,
    stream_id: u32,
    /// The extended timestamp field of the last header, if it had one.
    extended: Option<u32>,
    /// Missing bytes of the current message; 0 between messages.
    missing: usize,
    /// The current message so far; empty unless the message is kept.
    partial: Vec<u8>,
    fate: Fate,
    /// First bytes of the current message, where it is measured.
    start: [u8; 2],
    /// Position of the current message's first header.
    at: u64,
}

/// What happens to a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Keep,
    Drop,
    /// The message is dropped, and reported as skipped.
    Report,
    /// The message is dropped, except for its time, length and first bytes.
    Measure,
}

/// A chunk header as read, before it is applied.
struct Header {
    format: u8,
    csid: u32,
    /// Timestamp or delta, including the extension.
    time: u32,
    extended: Option<u32>,
    length: usize,
    kind: u8,
    stream_id: u32,
    /// Bytes of the header.
    size: usize,
}

#[derive(Debug, Clone, Copy)]
enum Stage {
    Header,
    /// Inside a chunk of the stream with that index. `left` bytes are missing, at least 1.
    Payload {
        stream: usize,
        left: usize,
    },
}

/// Reassembles messages.
///
/// Its memory is one message of up to 16 MiB, for which it allocates at most twice what has arrived
/// (or 256 KiB), and 2 MiB of other incomplete messages on at most 64 chunk streams. It keeps no
/// input. Its time is linear in the input, whatever the chunk sizes.
#[derive(Debug)]
pub struct Reader {
    chunk_size: usize,
    limits: Limits,
    discard_media: bool,
    measure_media: bool,
    /// First bytes of the measured video message that began last.
    front: Vec<u8>,
    /// Index of the stream of that message.
    front_of: Option<usize>,
    streams: Vec<Stream>,
    stage: Stage,
    /// Bytes of an incomplete header.
    scratch: [u8; MAX_HEADER],
    scratch_len: usize,
    /// Up to four bytes of input to read again, before any new input.
    again: Vec<u8>,
    /// Position in the session's input.
    at: u64,
    header_at: u64,
    media_bytes: u64,
}

impl Reader {
    /// Creates a reader whose first byte has position `at` in the session's input.
    pub fn new(limits: Limits, at: u64) -> Self {
        Self {
            chunk_size: DEFAULT_SIZE,
            limits,
            discard_media: false,
            measure_media: false,
            front: Vec::new(),
            front_of: None,
            streams: Vec::new(),
            stage: Stage::Header,
            scratch: [0; MAX_HEADER],
            scratch_len: 0,
            again: Vec::new(),
            at,
            header_at: at,
            media_bytes: 0,
        }
    }

    /// Sets whether audio, video, data and aggregate messages are skipped. It holds for messages
    /// that begin from now on.
    pub fn set_discard_media(&mut self, discard: bool) {
        self.discard_media = discard;
    }

    /// Sets whether audio and video messages are reported as [`Read::Measured`] instead of being
    /// kept, unless they are discarded. It holds for messages that begin from now on. Aggregate
    /// messages are still kept.
    pub fn set_measure_media(&mut self, measure: bool) {
        self.measure_media = measure;
    }

    /// The first bytes, at most 192, of the video message that was last reported as
    /// [`Read::Measured`]. Empty if another one began before it ended.
    pub fn front(&self) -> &[u8] {
        &self.front
    }

    /// Position in the session's input.
    pub fn position(&self) -> u64 {
        self.at
    }

    /// Bytes of payload of audio, video and aggregate messages so far. Messages count before they are
    /// complete. Messages that are skipped do not count.
    pub fn media_bytes(&self) -> u64 {
        self.media_bytes
    }

    /// Bytes allocated for incomplete messages.
    pub fn allocated(&self) -> usize {
        self.streams.iter().map(|stream| stream.partial.capacity()).sum()
    }

    /// Releases spare memory.
    pub(crate) fn shrink(&mut self) {
        self.streams.shrink_to_fit();
        self.again.shrink_to_fit();
        self.front.shrink_to_fit();
    }

    /// Takes bytes from the front of `input` until a message is complete; `None` when the input is
    /// used up. Set Chunk Size and Abort are carried out here and not returned.
    ///
    /// # Errors
    /// The peer breaks the chunk format or exceeds a limit. Nothing can be read after that.
    pub fn read(&mut self, input: &mut &[u8]) -> Result<Option<Read>, Error> {
        loop {
            let read = if self.again.is_empty() {
                let read = self.step(input)?;
                if self.again.is_empty() {
                    return Ok(read);
                }
                read
            } else {
                let again = std::mem::take(&mut self.again);
                let mut bytes = &again[..];
                let read = self.step(&mut bytes)?;
                self.again.extend_from_slice(bytes);
                read
            };
            if read.is_some() {
                return Ok(read);
            }
        }
    }

    /// Like [`Reader::read`], but stops where bytes must be read again before `input` continues.
    fn step(&mut self, input: &mut &[u8]) -> Result<Option<Read>, Error> {
        loop {
            let index = match self.stage {
                Stage::Header => match self.header(input)? {
                    Some(index) => index,
                    None => return Ok(None),
                },
                Stage::Payload { stream: index, left } => {
                    if input.is_empty() {
                        return Ok(None);
                    }
                    let taken = left.min(input.len());
                    self.store(index, &input[..taken])?;
                    self.advance(input, taken);
                    if taken < left {
                        self.stage = Stage::Payload { stream: index, left: left - taken };
                        return Ok(None);
                    }
                    self.stage = Stage::Header;
                    index
                }
            };
            if self.streams[index].missing == 0
                && let Some(read) = self.finish(index)?
            {
                return Ok(Some(read));
            }
            if !self.again.is_empty() {
                return Ok(None);
            }
        }
    }

    fn advance(&mut self, input: &mut &[u8], by: usize) {
        input.advance(by);
        self.at += by as u64;
    }

    /// Takes one chunk header and begins its chunk. Returns the index of its stream once the header
    /// is complete.
    fn header(&mut self, input: &mut &[u8]) -> Result<Option<usize>, Error> {
        if self.scratch_len == 0 {
            self.header_at = self.at;
            if let Some(header) = self.parse(input)? {
                self.advance(input, header.size);
                return self.begin(&header).map(Some);
            }
        }
        while let Some(&byte) = input.first() {
            self.scratch[self.scratch_len] = byte;
            self.scratch_len += 1;
            self.advance(input, 1);
            if let Some(header) = self.parse(&self.scratch[..self.scratch_len])? {
                // A missing extended timestamp is noticed only after the bytes behind it were
                // examined. These bytes are read again.
                self.again.extend_from_slice(&self.scratch[header.size..self.scratch_len]);
                self.at -= (self.scratch_len - header.size) as u64;
                self.scratch_len = 0;
                return self.begin(&header).map(Some);
            }
        }
        Ok(None)
    }

    fn find(&self, csid: u32) -> Option<usize> {
        self.streams.iter().position(|stream| stream.csid == csid)
    }

    /// Reads a chunk header from the front of `bytes`; `None` where it is incomplete.
    fn parse(&self, bytes: &[u8]) -> Result<Option<Header>, Error> {
        let Some((&first, _)) = bytes.split_first() else { return Ok(None) };
        let format = first >> 6;
        let (csid, basic) = match (first & 63, bytes) {
            (0, [_, low, ..]) => (64 + u32::from(*low), 2),
            (1, [_, low, high, ..]) => (64 + u32::from(*low) + 256 * u32::from(*high), 3),
            (0 | 1, _) => return Ok(None),
            (csid, _) => (u32::from(csid), 1),
        };
        let known = self.find(csid).map(|index| &self.streams[index]);
        let size = basic + [11, 7, 3, 0][usize::from(format)];
        let Some(fields) = bytes.get(basic..size) else { return Ok(None) };
        let u24 = |at: usize| u32::from_be_bytes([0, fields[at], fields[at + 1], fields[at + 2]]);
        let mut header = Header {
            format,
            csid,
            time: 0,
            extended: None,
            length: 0,
            kind: 0,
            stream_id: 0,
            size,
        };
        if format < 3 {
            header.time = u24(0);
        }
        if format < 2 {
            header.length = u24(3) as usize;
            header.kind = fields[6];
        }
        if format == 0 {
            header.stream_id = u32::from_le_bytes([fields[7], fields[8], fields[9], fields[10]]);
        }
        if format >= 2 && known.is_none() {
            return Err(Error::misbehaved(
                format!("chunk of format {format} on a chunk stream without a header"),
                self.header_at,
            )
            .on_csid(csid));
        }
        if header.time == EXTENDED {
            let Some(&[a, b, c, d]) = bytes.get(size..size + 4) else { return Ok(None) };
            header.time = u32::from_be_bytes([a, b, c, d]);
            header.extended = Some(header.time);
            header.size += 4;
        }
        // 5.3.1.3 requires chunks of format 3 to repeat the extended timestamp. Not every encoder
        // does (nginx-rtmp and SRS found this too). So the field counts as an extended timestamp
        // only where it has the same value as before: that of the field itself or, with some
        // encoders, the absolute timestamp.
        if format == 3
            && let Some(stream) = known
            && let Some(extended) = stream.extended
        {
            let present = &bytes[size..bytes.len().min(size + 4)];
            let matches = |value: u32| value.to_be_bytes().starts_with(present);
            if matches(extended) || matches(stream.timestamp) {
                if present.len() < 4 {
                    return Ok(None);
                }
                header.extended = Some(extended);
                header.size += 4;
            }
        }
        Ok(Some(header))
    }

    /// Applies a header, which starts a message or continues one.
    fn begin(&mut self, header: &Header) -> Result<usize, Error> {
        let index = match self.find(header.csid) {
            Some(index) => index,
            None if self.streams.len() < MAX_STREAMS => {
                self.streams.push(Stream {
                    csid: header.csid,
                    timestamp: 0,
                    delta: 0,
                    length: 0,
                    kind: 0,
                    stream_id: 0,
                    extended: None,
                    missing: 0,
                    partial: Vec::new(),
                    fate: Fate::Keep,
                    start: [0; 2],
                    at: 0,
                });
                self.streams.len() - 1
            }
            None => {
                return Err(Error::limit(
                    format!("more than {MAX_STREAMS} chunk streams"),
                    self.header_at,
                )
                .on_csid(header.csid));
            }
        };
        let stream = &mut self.streams[index];
        if stream.missing > 0 {
            if header.format != 3 {
                return Err(Error::misbehaved(
                    format!("new message with {} bytes of the last one missing", stream.missing),
                    self.header_at,
                )
                .on(stream.kind, stream.csid));
            }
            self.stage =
                Stage::Payload { stream: index, left: stream.missing.min(self.chunk_size) };
            return Ok(index);
        }
        match header.format {
            0 => {
                stream.timestamp = header.time;
                // A format 3 after this adds the timestamp itself. This is strange, but it is
                // 5.3.1.2.4 and the behaviour of ffmpeg, librtmp and SRS. With an extended
                // timestamp it would be a leap of hours, so there the format 3 repeats the time.
                stream.delta = if header.extended.is_some() { 0 } else { header.time };
                stream.stream_id = header.stream_id;
            }
            1 | 2 => {
                stream.delta = header.time;
                stream.timestamp = stream.timestamp.wrapping_add(header.time);
            }
            _ => stream.timestamp = stream.timestamp.wrapping_add(stream.delta),
        }
        if header.format < 2 {
            stream.length = header.length;
            stream.kind = header.kind;
        }
        if header.format < 3 {
            stream.extended = header.extended;
        }
        stream.at = self.header_at;
        stream.missing = stream.length;
        stream.fate = match stream.kind {
            message::AUDIO
            | message::VIDEO
            | message::AGGREGATE
            | message::DATA_AMF0
            | message::DATA_AMF3
                if self.discard_media =>
            {
                Fate::Drop
            }
            message::AUDIO | message::VIDEO if self.measure_media => Fate::Measure,
            message::AUDIO | message::VIDEO | message::AGGREGATE => Fate::Keep,
            message::DATA_AMF0 | message::DATA_AMF3 if stream.length <= self.limits.data => {
                Fate::Keep
            }
            message::SET_CHUNK_SIZE..=message::SET_PEER_BANDWIDTH
            | message::COMMAND_AMF0
            | message::COMMAND_AMF3 => {
                if stream.length > self.limits.command {
                    return Err(Error::limit(
                        format!(
                            "message of {} bytes where {} are accepted",
                            stream.length, self.limits.command
                        ),
                        self.header_at,
                    )
                    .on(stream.kind, stream.csid));
                }
                Fate::Keep
            }
            _ => Fate::Report,
        };
        if stream.fate == Fate::Measure && stream.kind == message::VIDEO {
            self.front.clear();
            self.front_of = Some(index);
        }
        if stream.missing > 0 {
            self.stage =
                Stage::Payload { stream: index, left: stream.missing.min(self.chunk_size) };
        }
        Ok(index)
    }

    /// Appends payload to the current message.
    fn store(&mut self, index: usize, bytes: &[u8]) -> Result<(), Error> {
        let stream = &mut self.streams[index];
        if stream.fate == Fate::Measure {
            let gone = stream.length - stream.missing;
            for (at, byte) in stream.start.iter_mut().enumerate().skip(gone) {
                *byte = bytes.get(at - gone).copied().unwrap_or_default();
            }
            if self.front_of == Some(index) && self.front.len() < FRONT {
                let wanted = bytes.len().min(FRONT - self.front.len());
                self.front.reserve_exact(FRONT - self.front.len());
                self.front.extend_from_slice(&bytes[..wanted]);
            }
        }
        stream.missing -= bytes.len();
        let is_media = matches!(stream.kind, message::AUDIO | message::VIDEO | message::AGGREGATE);
        if is_media && stream.fate != Fate::Drop {
            self.media_bytes += bytes.len() as u64;
        }
        if stream.fate != Fate::Keep {
            return Ok(());
        }
        let needed = stream.partial.len() + bytes.len();
        if needed > stream.partial.capacity() {
            let doubled = stream.partial.capacity() * 2;
            let capacity = doubled.max(INITIAL).max(needed).min(stream.length);
            self.check_partial(index, capacity)?;
            let partial = &mut self.streams[index].partial;
            partial.reserve_exact(capacity - partial.len());
        }
        self.streams[index].partial.extend_from_slice(bytes);
        Ok(())
    }

    /// Checks that the stream's message may take `capacity` bytes.
    fn check_partial(&self, index: usize, capacity: usize) -> Result<(), Error> {
        let stream = &self.streams[index];
        let all = self.allocated() - stream.partial.capacity() + capacity;
        if all > MAX_PARTIAL {
            let capacities = self.streams.iter().map(|stream| stream.partial.capacity());
            let largest = capacities.max().unwrap_or_default().max(capacity);
            if all - largest > MAX_PARTIAL {
                return Err(Error::limit(
                    format!("more than {MAX_PARTIAL} bytes of unfinished messages"),
                    self.header_at,
                )
                .on(stream.kind, stream.csid));
            }
        }
        Ok(())
    }

    /// Takes a complete message out of its stream. A message about chunks is carried out.
    fn finish(&mut self, index: usize) -> Result<Option<Read>, Error> {
        let stream = &mut self.streams[index];
        let what = || format!("message of {} bytes", stream.length);
        let error = match (stream.fate, stream.kind) {
            (Fate::Keep, _) => None,
            (Fate::Drop, _) => return Ok(None),
            (Fate::Measure, _) if stream.length == 0 => return Ok(None),
            (Fate::Measure, kind) => {
                if kind == message::VIDEO && self.front_of != Some(index) {
                    self.front.clear();
                    self.front_of = None;
                }
                return Ok(Some(Read::Measured(Measured {
                    kind,
                    timestamp: stream.timestamp,
                    length: stream.length,
                    start: stream.start,
                })));
            }
            (Fate::Report, message::DATA_AMF0 | message::DATA_AMF3) => {
                let most = self.limits.data;
                Some(Error::limit(format!("{} where {most} are accepted", what()), stream.at))
            }
            (Fate::Report, _) => Some(Error::unsupported(what(), stream.at)),
        };
        if let Some(error) = error {
            return Ok(Some(Read::Skipped(error.on(stream.kind, stream.csid))));
        }
        let message = Message {
            csid: stream.csid,
            kind: stream.kind,
            stream_id: stream.stream_id,
            timestamp: stream.timestamp,
            payload: Bytes::from(std::mem::take(&mut stream.partial)),
            at: stream.at,
        };
        match message.kind {
            message::SET_CHUNK_SIZE => {
                let size = message::control_word(&message)? as usize;
                // 5.4.1: the first bit must be zero, and sizes above 16 MiB mean 16 MiB.
                if size == 0 || size > 0x7FFF_FFFF {
                    return Err(Error::misbehaved(format!("chunk size {size}"), message.at)
                        .on(message.kind, message.csid));
                }
                self.chunk_size = size.min(MAX_SIZE);
                Ok(None)
            }
            message::ABORT => {
                if let Some(aborted) = self.find(message::control_word(&message)?) {
                    let aborted = &mut self.streams[aborted];
                    aborted.partial = Vec::new();
                    aborted.missing = 0;
                }
                Ok(None)
            }
            _ => Ok(Some(Read::Message(message))),
        }
    }
}
