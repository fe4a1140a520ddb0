use bytes::Bytes;

use super::{DEFAULT_SIZE, EXTENDED, MAX_CSID, MAX_SIZE};
use crate::rtmp::output::Output;

/// The last message header of a chunk stream. Later headers refer to it.
#[derive(Debug)]
struct Last {
    csid: u32,
    timestamp: u32,
    /// `None` after a header of format 0. Readers differ about the meaning of a format 3 that
    /// follows it, so none is written.
    delta: Option<u32>,
    length: usize,
    kind: u8,
    stream_id: u32,
}

/// Cuts messages into chunks.
#[derive(Debug)]
pub struct Writer {
    chunk_size: usize,
    streams: Vec<Last>,
}

impl Default for Writer {
    fn default() -> Self {
        Self { chunk_size: DEFAULT_SIZE, streams: Vec::new() }
    }
}

impl Writer {
    /// Sets the chunk size from the next message on, clamped to 1..=[`MAX_SIZE`]. Before that, the
    /// peer must be told by a Set Chunk Size message in the old size.
    pub fn set_chunk_size(&mut self, size: usize) {
        self.chunk_size = size.clamp(1, MAX_SIZE);
    }

    /// Releases spare memory.
    pub(crate) fn shrink(&mut self) {
        self.streams.shrink_to_fit();
    }

    /// Appends one message to `out`, with the shortest header that is sufficient.
    ///
    /// A long payload is not copied but queued as slices. It is cut at [`MAX_SIZE`] bytes; callers
    /// check the length before.
    pub(crate) fn message(
        &mut self,
        out: &mut Output,
        (csid, kind, stream_id): (u32, u8, u32),
        timestamp: u32,
        mut payload: Bytes,
    ) {
        payload.truncate(MAX_SIZE);
        let length = payload.len();
        let known = self.streams.iter().position(|last| last.csid == csid);
        let mut header = Vec::with_capacity(18);
        let mut next = Last { csid, timestamp, delta: None, length, kind, stream_id };
        let field = match known.map(|index| &self.streams[index]) {
            // A time that runs back has no delta (5.3.1.2.1), and neither has another message
            // stream.
            Some(last)
                if last.stream_id == stream_id
                    && timestamp.wrapping_sub(last.timestamp) < EXTENDED =>
            {
                let delta = timestamp.wrapping_sub(last.timestamp);
                next.delta = Some(delta);
                if last.length != length || last.kind != kind {
                    push_basic(&mut header, 1, csid);
                    push_u24(&mut header, delta);
                    push_u24(&mut header, length as u32);
                    header.push(kind);
                } else if last.delta != Some(delta) {
                    push_basic(&mut header, 2, csid);
                    push_u24(&mut header, delta);
                } else {
                    push_basic(&mut header, 3, csid);
                }
                delta
            }
            _ => {
                push_full(&mut header, csid, kind, stream_id, timestamp, length);
                timestamp
            }
        };
        match known {
            Some(index) => self.streams[index] = next,
            None => self.streams.push(next),
        }
        out.copy(&header);
        let mut continuation = Vec::with_capacity(7);
        push_continuation(&mut continuation, csid, field);
        loop {
            let rest = payload.split_off(payload.len().min(self.chunk_size));
            out.push(std::mem::replace(&mut payload, rest));
            if payload.is_empty() {
                return;
            }
            out.copy(&continuation);
        }
    }
}

/// The bytes of one message that can be sent to any number of players: message stream 1, a header
/// of format 0, the absolute `timestamp` in milliseconds.
///
/// `chunk_size` must be the size that all these players were told
/// ([`ServerConfig::chunk_size`](crate::rtmp::ServerConfig)). `csid` must be one of
/// [`SHARED_AUDIO`](super::csid::SHARED_AUDIO), [`SHARED_VIDEO`](super::csid::SHARED_VIDEO) and
/// [`SHARED_DATA`](super::csid::SHARED_DATA). The bytes may be sent wherever a session's own output
/// is at a message boundary.
///
/// A payload longer than [`MAX_SIZE`], which RTMP cannot carry, is cut. A chunk size outside
/// 1..=[`MAX_SIZE`] is clamped.
pub fn shared_message(
    csid: u32,
    kind: u8,
    timestamp: u32,
    payload: &[u8],
    chunk_size: usize,
) -> Bytes {
    let payload = &payload[..payload.len().min(MAX_SIZE)];
    let chunk_size = chunk_size.clamp(1, MAX_SIZE);
    let mut continuation = Vec::with_capacity(7);
    push_continuation(&mut continuation, csid, timestamp);
    let chunks = payload.len().div_ceil(chunk_size).max(1);
    let mut out = Vec::with_capacity(18 + payload.len() + (chunks - 1) * continuation.len());
    push_full(&mut out, csid, kind, 1, timestamp, payload.len());
    for (index, chunk) in payload.chunks(chunk_size).enumerate() {
        if index > 0 {
            out.extend_from_slice(&continuation);
        }
        out.extend_from_slice(chunk);
    }
    out.into()
}

/// Basic header (5.3.1.1). An ID that the header cannot hold is clamped; callers use constants.
fn push_basic(out: &mut Vec<u8>, format: u8, csid: u32) {
    let format = format << 6;
    match csid.clamp(2, MAX_CSID) {
        csid @ 2..=63 => out.push(format | csid as u8),
        csid @ 64..=319 => out.extend_from_slice(&[format, (csid - 64) as u8]),
        csid => {
            let [low, high, ..] = (csid - 64).to_le_bytes();
            out.extend_from_slice(&[format | 1, low, high]);
        }
    }
}

/// Basic and message header of format 0 (5.3.1.2.1).
fn push_full(out: &mut Vec<u8>, csid: u32, kind: u8, stream_id: u32, time: u32, length: usize) {
    push_basic(out, 0, csid);
    push_u24(out, time.min(EXTENDED));
    push_u24(out, length as u32);
    out.push(kind);
    out.extend_from_slice(&stream_id.to_le_bytes());
    if time >= EXTENDED {
        out.extend_from_slice(&time.to_be_bytes());
    }
}

/// Header of a message's second and later chunks. `time` is the timestamp field of its first
/// header.
fn push_continuation(out: &mut Vec<u8>, csid: u32, time: u32) {
    push_basic(out, 3, csid);
    if time >= EXTENDED {
        out.extend_from_slice(&time.to_be_bytes());
    }
}

fn push_u24(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_be_bytes()[1..]);
}
