use std::collections::VecDeque;

use super::Error;
use super::amf0::{Reader, Value};
use super::command;
use super::message::{self, Aggregate, Message};
use bytes::{Buf, Bytes};

/// How many media messages may wait for the caller. Any other waiting event stops the input by
/// itself.
const MAX_WAITING: usize = 32;

/// A media or data message from either side.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Media {
    Audio { timestamp: u32, payload: Bytes },
    Video { timestamp: u32, payload: Bytes },
    Metadata { timestamp: u32, values: Vec<Value>, payload: Bytes },
    Ignored(Error),
}

/// Events that wait for the caller, and the aggregate message whose messages are being read.
///
/// It bounds the memory of events: a session takes no more input while a possibly large event
/// waits, or many small ones.
#[derive(Debug)]
pub(crate) struct Inbox<E> {
    events: VecDeque<E>,
    hold: bool,
    aggregate: Option<Box<Aggregate>>,
}

impl<E: From<Media>> Inbox<E> {
    pub(crate) fn new() -> Self {
        Self { events: VecDeque::new(), hold: false, aggregate: None }
    }

    /// Whether more input may be taken.
    pub(crate) fn is_open(&self) -> bool {
        !self.hold && self.aggregate.is_none() && self.events.len() < MAX_WAITING
    }

    /// Releases spare memory.
    pub(crate) fn shrink(&mut self) {
        self.events.shrink_to_fit();
    }

    pub(crate) fn push(&mut self, event: E) {
        self.hold = true;
        self.events.push_back(event);
    }

    /// Takes a media, data or aggregate message.
    pub(crate) fn message(&mut self, message: Message) {
        if message.kind == message::AGGREGATE {
            self.aggregate = Some(Box::new(Aggregate::new(message)));
            return;
        }
        match media(message) {
            None => {}
            Some(media @ (Media::Audio { .. } | Media::Video { .. })) => {
                self.events.push_back(media.into());
            }
            Some(other) => self.push(other.into()),
        }
    }

    pub(crate) fn poll(&mut self) -> Option<E> {
        if let Some(event) = self.events.pop_front() {
            self.hold &= !self.events.is_empty();
            return Some(event);
        }
        while let Some(aggregate) = &mut self.aggregate {
            match aggregate.next() {
                Ok(Some(message)) => {
                    if let Some(media) = media(message) {
                        return Some(media.into());
                    }
                }
                Ok(None) => self.aggregate = None,
                Err(error) => {
                    self.aggregate = None;
                    return Some(Media::Ignored(error).into());
                }
            }
        }
        None
    }
}

/// Turns a message into an event for the caller; `None` if it is empty or of another type.
fn media(message: Message) -> Option<Media> {
    let Message { kind, timestamp, .. } = message;
    match kind {
        // Some servers send empty audio messages as keep-alives.
        _ if message.payload.is_empty() => None,
        message::AUDIO => Some(Media::Audio { timestamp, payload: message.payload }),
        message::VIDEO => Some(Media::Video { timestamp, payload: message.payload }),
        message::DATA_AMF0 | message::DATA_AMF3 => {
            Some(data(message).unwrap_or_else(Media::Ignored))
        }
        _ => None,
    }
}

/// Removes from a data message what only publishing needs: the leading 0 of its AMF3 form, and the
/// name `@setDataFrame` before the name and values that players get.
fn data(message: Message) -> Result<Media, Error> {
    let mut values = command::values(&message)?;
    let timestamp = message.timestamp;
    let body = command::body(&message);
    let mut payload = message.payload;
    payload.advance(body);
    if values.first().and_then(Value::as_str) == Some("@setDataFrame") {
        values.remove(0);
        let mut reader = Reader::new(&payload);
        // The value was decoded before, so it can be decoded again.
        if reader.value().is_ok() {
            let name = reader.position();
            payload.advance(name);
        }
    }
    Ok(Media::Metadata { timestamp, values, payload })
}
