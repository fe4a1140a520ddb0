//! A player of a live stream. Players share the RTMP messages made of the stream's parts.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Transport;
use live::cursor::{Cursor, Limits, Next};
use live::{Delivery, Part, Segment, Stream, Viewing};
use media::flv::Message;

use super::Error;
use crate::Origin;
use crate::broadcast::{self, Burst, Container, Follower, Subscription};
use crate::deliver::flv::{converted, metadata, sequence_header};
use crate::sessions::Meter;
use crate::wire;

/// How often a player looks whether a stream has tracks again.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

pub(super) type Broadcasts = broadcast::Broadcasts<Messages>;

/// Makes RTMP messages of parts.
pub(super) struct Messages;

/// The state of one player.
pub(super) struct Play {
    stream: Arc<Stream>,
    peer: SocketAddr,
    limits: Limits,
    mode: Mode,
    paused: bool,
    /// Counts what it gets.
    pub(super) meter: Meter,
    _viewing: Viewing,
}

/// How a player follows the stream.
enum Mode {
    /// Not at all: it has not started yet, or it is paused.
    None,
    /// Alone, with a cursor of its own.
    Alone(Box<Follower>),
    /// With all other subscribed players, at the live edge.
    Subscribed(Subscription),
}

impl Play {
    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }

    pub(super) fn new(
        stream: Arc<Stream>,
        (peer, meter): (SocketAddr, Meter),
        limits: Limits,
    ) -> Self {
        let viewing = stream.watch(Delivery::Rtmp);
        Self { stream, peer, limits, mode: Mode::None, paused: false, meter, _viewing: viewing }
    }

    pub(super) fn name(&self) -> &str {
        self.stream.name()
    }

    /// Pauses or resumes. A paused player gets nothing, and resumes at the newest keyframe.
    pub(super) fn pause(&mut self, paused: bool) {
        self.paused = paused;
        if paused {
            self.mode = Mode::None;
        }
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused
    }

    /// Subscribes the player to the broadcast if possible, and returns whether it is subscribed.
    /// Everything that the player was given before must have been sent.
    pub(super) fn join(
        &mut self,
        broadcasts: &Rc<Broadcasts>,
        socket: &Rc<impl Transport + 'static>,
    ) -> bool {
        self.mode = match std::mem::replace(&mut self.mode, Mode::None) {
            Mode::Alone(follower) => {
                match broadcasts.join(&self.stream, follower, (socket, &self.meter)) {
                    Ok(subscription) => Mode::Subscribed(subscription),
                    Err(follower) => Mode::Alone(follower),
                }
            }
            place => place,
        };
        self.subscription().is_some()
    }

    pub(super) fn subscription(&self) -> Option<&Subscription> {
        match &self.mode {
            Mode::Subscribed(subscription) => Some(subscription),
            Mode::None | Mode::Alone(_) => None,
        }
    }

    /// Ends the subscription, if there is one: the player goes on with its own cursor. Returns the
    /// bytes that must be sent first.
    pub(super) fn leave(&mut self) -> Result<Bytes, Error> {
        match std::mem::replace(&mut self.mode, Mode::None) {
            Mode::Subscribed(subscription) => {
                let (unsent, follower) = subscription.leave(self.limits)?;
                self.mode = Mode::Alone(Box::new(follower));
                Ok(unsent)
            }
            place => {
                self.mode = place;
                Ok(Bytes::new())
            }
        }
    }

    /// Waits for what to send next; `None` when the stream is over. Cancel safe.
    pub(super) async fn next(&mut self, origin: &Origin) -> Result<Option<Vec<Bytes>>, Error> {
        if self.paused {
            // A paused player keeps the stream's window in memory. It may do so no longer than
            // others may watch the stream.
            let mut state = self.stream.subscribe();
            let _ = state.wait_for(|state| state.status == live::Status::Ended).await;
            return Ok(None);
        }
        let mut out = Burst::default();
        if let Mode::None = self.mode {
            if !self.stream.ready().await {
                return Ok(None);
            }
            // A publisher that returns is there before its tracks are.
            let mut cursor = loop {
                if let Some(cursor) = Cursor::new(&self.stream, self.limits) {
                    break cursor;
                }
                if self.stream.state().status == live::Status::Ended {
                    return Ok(None);
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            };
            out.push(announce(&mut cursor)?);
            self.meter.is_behind(cursor.behind());
            self.mode = Mode::Alone(Box::new(Follower::new(cursor)));
        }
        let Mode::Alone(follower) = &mut self.mode else { return std::future::pending().await };
        let mut next = if out.is_empty() {
            follower.cursor.next(|| origin.now()).await
        } else {
            match follower.cursor.poll(origin.now()) {
                Some(next) => next,
                None => return Ok(out.into_pieces()),
            }
        };
        loop {
            match next {
                Next::Part { track, segment, part } => {
                    let part = (track, &*segment, &*part);
                    follower.write(&Messages, part, |piece| out.push(piece)).map_err(broken)?;
                }
                Next::Tracks | Next::Switched { .. } => {
                    follower.forget_headers();
                    out.push(announce(&mut follower.cursor)?);
                }
                Next::Skipped => {
                    self.meter.is_behind(follower.cursor.behind());
                    origin.slow_viewers.skipped(Delivery::Rtmp, self.stream.name(), self.peer);
                }
                Next::TooSlow => return Err(Error::TooSlow),
                Next::Ended => return Ok(out.into_pieces()),
            }
            if out.is_full() {
                return Ok(out.into_pieces());
            }
            next = match follower.cursor.poll(origin.now()) {
                Some(next) => next,
                None if out.is_empty() => follower.cursor.next(|| origin.now()).await,
                None => return Ok(out.into_pieces()),
            };
        }
    }
}

impl Container for Messages {
    fn header(
        &self,
        _: &Cursor,
        segment: &Segment,
        part: &Part,
    ) -> Result<Option<Bytes>, media::Error> {
        Ok(Some(wire::chunks(&sequence_header(segment, part)?)))
    }

    fn part(
        &self,
        segment: &Segment,
        part: &Part,
        out: &mut Vec<Bytes>,
    ) -> Result<bool, media::Error> {
        converted(&part.rtmp, segment, part, wire::chunks, out)
    }
}

/// Makes the messages that describe the tracks. They precede the parts.
fn announce(cursor: &mut Cursor) -> Result<Bytes, Error> {
    let tracks: Vec<_> = cursor.tracks().cloned().collect();
    let metadata = metadata(&tracks, cursor.behind());
    let metadata = Message::metadata(0, &metadata).map_err(broken)?;
    Ok(wire::chunks(&metadata))
}

fn broken(error: media::Error) -> Error {
    Error::Io(std::io::Error::other(error))
}
