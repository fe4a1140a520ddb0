//! Messages: their types (RTMP 1.0, 5.4, 6.2 and 7.1), protocol control and aggregates.

use bytes::{Buf, Bytes};

use super::Error;

/// Set Chunk Size (5.4.1).
pub const SET_CHUNK_SIZE: u8 = 1;
/// Abort Message (5.4.2).
pub const ABORT: u8 = 2;
/// Acknowledgement (5.4.3).
pub const ACKNOWLEDGEMENT: u8 = 3;
/// User Control Message (6.2).
pub const USER_CONTROL: u8 = 4;
/// Window Acknowledgement Size (5.4.4).
pub const WINDOW_ACK_SIZE: u8 = 5;
/// Set Peer Bandwidth (5.4.5).
pub const SET_PEER_BANDWIDTH: u8 = 6;
/// Audio (7.1.4); the payload is an FLV audio tag's.
pub const AUDIO: u8 = 8;
/// Video (7.1.5); the payload is an FLV video tag's.
pub const VIDEO: u8 = 9;
/// Data in AMF3 (7.1.2).
pub const DATA_AMF3: u8 = 15;
/// Command in AMF3 (7.1.1).
pub const COMMAND_AMF3: u8 = 17;
/// Data in AMF0 (7.1.2).
pub const DATA_AMF0: u8 = 18;
/// Command in AMF0 (7.1.1).
pub const COMMAND_AMF0: u8 = 20;
/// Aggregate (7.1.6).
pub const AGGREGATE: u8 = 22;

/// Longest messages by type. Longer commands end the session, and longer data messages are skipped.
/// Media messages are bounded by the format, at 16 MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a command or control message.
    pub command: usize,
    /// Bytes of a data message (metadata).
    pub data: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { command: 64 << 10, data: 256 << 10 }
    }
}

/// One received message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Chunk stream on which it arrived.
    pub csid: u32,
    /// Message type ID.
    pub kind: u8,
    /// Message stream ID.
    pub stream_id: u32,
    /// Absolute time in milliseconds; wraps after 2^32.
    pub timestamp: u32,
    /// The whole payload, in one piece.
    pub payload: Bytes,
    /// Position in the input of the message's first chunk header.
    pub at: u64,
}

/// A user control message (6.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UserControl {
    StreamBegin(u32),
    StreamEof(u32),
    StreamIsRecorded(u32),
    SetBufferLength {
        stream_id: u32,
        milliseconds: u32,
    },
    PingRequest(u32),
    PingResponse(u32),
    /// An event without consequences here: stream dry, buffer empty or ready, SWF verification.
    Other(u16),
}

impl UserControl {
    pub(crate) fn read(message: &Message) -> Result<Self, Error> {
        let cut_off = || {
            Error::misbehaved("user control message is cut off", message.at)
                .on(message.kind, message.csid)
        };
        let mut payload = &message.payload[..];
        let event = payload.try_get_u16().map_err(|_| cut_off())?;
        let mut word = || payload.try_get_u32().map_err(|_| cut_off());
        Ok(match event {
            0 => Self::StreamBegin(word()?),
            1 => Self::StreamEof(word()?),
            3 => Self::SetBufferLength { stream_id: word()?, milliseconds: word()? },
            4 => Self::StreamIsRecorded(word()?),
            6 => Self::PingRequest(word()?),
            7 => Self::PingResponse(word()?),
            other => Self::Other(other),
        })
    }

    /// The payload; empty for an event that is only received.
    pub(crate) fn payload(self) -> Vec<u8> {
        let (event, words): (u16, &[u32]) = match &self {
            Self::StreamBegin(id) => (0, &[*id]),
            Self::StreamEof(id) => (1, &[*id]),
            Self::SetBufferLength { stream_id, milliseconds } => (3, &[*stream_id, *milliseconds]),
            Self::StreamIsRecorded(id) => (4, &[*id]),
            Self::PingRequest(time) => (6, &[*time]),
            Self::PingResponse(time) => (7, &[*time]),
            Self::Other(event) => (*event, &[]),
        };
        let mut payload = event.to_be_bytes().to_vec();
        for word in words {
            payload.extend_from_slice(&word.to_be_bytes());
        }
        payload
    }
}

/// The 32-bit number a protocol control message starts with.
pub(crate) fn control_word(message: &Message) -> Result<u32, Error> {
    (&message.payload[..]).try_get_u32().map_err(|_| {
        Error::misbehaved("protocol control message is cut off", message.at)
            .on(message.kind, message.csid)
    })
}

/// The most messages in an aggregate. A server that uses aggregates collects for about a second.
/// Without a limit, 16 MiB could hold a million empty messages, each of which is an event.
const MAX_INNER: usize = 1024;

/// The messages inside an aggregate, read one at a time. Their payloads are slices of the
/// aggregate, or copies where they are a small part of it, so that keeping one does not keep 16
/// MiB.
///
/// The inner timestamps come from the FLV file that the aggregate was cut from. Only their distance
/// from the first one counts, and it is added to the aggregate's own timestamp (7.1.6).
#[derive(Debug)]
pub(crate) struct Aggregate {
    message: Message,
    first: Option<u32>,
    /// Bytes of the whole aggregate.
    size: usize,
    /// Number of messages read so far.
    drawn: usize,
}

impl Aggregate {
    pub(crate) fn new(message: Message) -> Self {
        let size = message.payload.len();
        Self { message, first: None, size, drawn: 0 }
    }

    /// The next inner message; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Message>, Error> {
        let left = &mut self.message.payload;
        // Some servers leave out the last back pointer.
        if left.is_empty() {
            return Ok(None);
        }
        if self.drawn == MAX_INNER {
            let what = format!("more than {MAX_INNER} messages in an aggregate");
            return Err(
                Error::limit(what, self.message.at).on(self.message.kind, self.message.csid)
            );
        }
        self.drawn += 1;
        let cut_off = Error::misbehaved("aggregate message is cut off", self.message.at)
            .on(self.message.kind, self.message.csid);
        let Some(&[kind, l0, l1, l2, t0, t1, t2, t3, ..]) = left.get(..11) else {
            return Err(cut_off);
        };
        let length = u32::from_be_bytes([0, l0, l1, l2]) as usize;
        // As in an FLV tag, the most significant byte comes last.
        let inner = u32::from_be_bytes([t3, t0, t1, t2]);
        if left.len() < 11 + length {
            return Err(cut_off);
        }
        let is_data = matches!(kind & 0x1F, DATA_AMF0 | DATA_AMF3);
        let most = Limits::default().data;
        if is_data && length > most {
            let what =
                format!("data message of {length} bytes in an aggregate where {most} are accepted");
            return Err(
                Error::limit(what, self.message.at).on(self.message.kind, self.message.csid)
            );
        }
        left.advance(11);
        let mut payload = left.split_to(length);
        if length < self.size / 2 {
            payload = Bytes::copy_from_slice(&payload);
        }
        left.advance(left.len().min(4));
        let first = *self.first.get_or_insert(inner);
        let since_first = inner.wrapping_sub(first);
        Ok(Some(Message {
            kind: kind & 0x1F,
            timestamp: self.message.timestamp.wrapping_add(since_first),
            payload,
            ..self.message.clone()
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Blame;
    use super::*;

    fn message(kind: u8, payload: &[u8]) -> Message {
        Message {
            csid: 2,
            kind,
            stream_id: 0,
            timestamp: 5000,
            payload: Bytes::copy_from_slice(payload),
            at: 0,
        }
    }

    #[test]
    fn user_control_round_trips_and_refuses_cut_off() {
        for event in [
            UserControl::StreamBegin(1),
            UserControl::StreamEof(2),
            UserControl::SetBufferLength { stream_id: 1, milliseconds: 3000 },
            UserControl::StreamIsRecorded(1),
            UserControl::PingRequest(u32::MAX),
            UserControl::PingResponse(7),
            UserControl::Other(31),
        ] {
            let payload = event.payload();
            assert_eq!(UserControl::read(&message(USER_CONTROL, &payload)), Ok(event));
            if !matches!(event, UserControl::Other(_)) {
                let cut = &payload[..payload.len() - 1];
                assert!(UserControl::read(&message(USER_CONTROL, cut)).is_err());
            }
        }
        assert!(UserControl::read(&message(USER_CONTROL, &[0])).is_err());
        assert!(control_word(&message(WINDOW_ACK_SIZE, &[0, 0, 1])).is_err());
    }

    fn tag(kind: u8, time: u32, payload: &[u8]) -> Vec<u8> {
        let [t3, t0, t1, t2] = time.to_be_bytes();
        let mut tag = vec![kind, 0, 0, payload.len() as u8, t0, t1, t2, t3, 0, 0, 0];
        tag.extend_from_slice(payload);
        tag.extend_from_slice(&(11 + payload.len() as u32).to_be_bytes());
        tag
    }

    #[test]
    fn aggregate_is_split_with_shifted_timestamps() {
        let bytes = [
            tag(AUDIO, 0x0100_0000, b"one"),
            tag(VIDEO, 0x0100_0017, b"three"),
            tag(AUDIO, 0x0100_002E, b""),
        ]
        .concat();
        // With and without the last back pointer.
        for end in [bytes.len(), bytes.len() - 4] {
            let mut aggregate = Aggregate::new(message(AGGREGATE, &bytes[..end]));
            let mut seen = Vec::new();
            while let Some(inner) = aggregate.next().unwrap() {
                seen.push((inner.kind, inner.timestamp, inner.payload));
            }
            assert_eq!(
                seen,
                [
                    (AUDIO, 5000, Bytes::from_static(b"one")),
                    (VIDEO, 5023, Bytes::from_static(b"three")),
                    (AUDIO, 5046, Bytes::new()),
                ]
            );
        }
        let mut cut = Aggregate::new(message(AGGREGATE, &bytes[..12]));
        assert!(cut.next().is_err());
    }

    #[test]
    fn aggregate_has_an_end_and_is_not_kept_for_a_part_of_it() {
        let whole = message(AGGREGATE, &tag(AUDIO, 0, b"").repeat(1 << 16));
        let mut aggregate = Aggregate::new(whole);
        for _ in 0..MAX_INNER {
            assert!(aggregate.next().unwrap().is_some());
        }
        let error = aggregate.next().unwrap_err();
        assert_eq!(error.blame, Blame::LimitExceeded, "{error}");

        let mut data = vec![DATA_AMF0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        data.resize(data.len() + (5 << 16), 0);
        let error = Aggregate::new(message(AGGREGATE, &data)).next().unwrap_err();
        assert_eq!(error.blame, Blame::LimitExceeded, "{error}");

        let whole = message(AGGREGATE, &[tag(VIDEO, 0, &[1; 200]), tag(AUDIO, 0, b"abc")].concat());
        let place = whole.payload.as_ptr_range();
        let mut aggregate = Aggregate::new(whole);
        let [large, small] = [(); 2].map(|()| aggregate.next().unwrap().unwrap().payload);
        assert!(place.contains(&large.as_ptr()) && !place.contains(&small.as_ptr()));
        assert_eq!((&large[..], &small[..]), (&[1; 200][..], &b"abc"[..]));
    }
}
