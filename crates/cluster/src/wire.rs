//! Messages between nodes, as bytes.
//!
//! A message is a checksum, a head, in the format of postcard, and the bytes of a part after it. The head begins with
//! the [`FORMAT`] and the epoch: the number of the lease by which the sender has the stream. NATS takes messages of up
//! to a megabyte, so a longer part comes in pieces.

mod encoded;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use live::mirror::{Change, NewUnit};
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

/// Checks a message's checksum and format, and returns the rest of the message.
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
    /// Everything that the asker lacks. The argument says what the asker has of each track
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
    /// The tracks that they read by single access units ([`Units`](live::mirror::Units)). These units have a
    /// subject of their own.
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
    pieces: Option<(u64, encoded::Part, BytesMut)>,
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

/// A message without the bytes of a part.
#[derive(Debug, Serialize, Deserialize)]
enum Head {
    Stream(encoded::Stream),
    Part(encoded::Part),
    /// The bytes from this offset of the part before.
    Piece(u32),
    Window(encoded::Window),
    Unit(encoded::Unit),
    Beat(Beat),
    Done,
    Ceded,
}

#[cfg(test)]
mod tests;
