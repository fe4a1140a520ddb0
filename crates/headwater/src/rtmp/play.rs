//! A player: the shared messages of a live stream's parts.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use live::{Delivery, Part, Segment, Stream, Viewing};
use media::flv::Message;

use super::{Error, wire};
use crate::Origin;
use crate::deliver::cursor::{Cursor, Limits, Next};
use crate::deliver::muxed::{messages, metadata, milliseconds, packetizer};

/// Parts that go out in one write at most.
const BATCH: usize = 64;

/// What one player is sent.
pub(super) struct Play {
    stream: Arc<Stream>,
    peer: SocketAddr,
    limits: Limits,
    /// None until the stream has media.
    cursor: Option<Cursor>,
    /// Which header each track's parts had last; none before the first.
    headers: Vec<Option<u64>>,
    paused: bool,
    _viewing: Viewing,
}

impl Play {
    pub(super) fn new(stream: Arc<Stream>, peer: SocketAddr, limits: Limits) -> Self {
        let viewing = stream.watch(Delivery::Rtmp);
        let headers = Vec::new();
        Self { stream, peer, limits, cursor: None, headers, paused: false, _viewing: viewing }
    }

    pub(super) fn name(&self) -> &str {
        self.stream.name()
    }

    /// A paused player is sent nothing, and goes on at the newest keyframe.
    pub(super) fn pause(&mut self, paused: bool) {
        self.paused = paused;
        if paused {
            self.cursor = None;
        }
    }

    /// What to send next; `None` when the stream is over. May be dropped while it waits.
    pub(super) async fn next(&mut self, origin: &Origin) -> Result<Option<Vec<Bytes>>, Error> {
        if self.paused {
            // It keeps the stream's window in memory: not for longer than others may watch it.
            let mut state = self.stream.subscribe();
            let _ = state.wait_for(|state| state.status == live::Status::Ended).await;
            return Ok(None);
        }
        let mut out = Vec::new();
        if self.cursor.is_none() {
            if !self.stream.ready().await {
                return Ok(None);
            }
            let Some(cursor) = Cursor::new(&self.stream, self.limits) else { return Ok(None) };
            let tracks: Vec<_> = cursor.tracks().cloned().collect();
            self.headers = vec![None; tracks.len()];
            let metadata = Message::metadata(0, &metadata(&tracks)).map_err(broken)?;
            out.push(wire(&metadata));
            self.cursor = Some(cursor);
        }
        let Some(cursor) = &mut self.cursor else { return Ok(None) };
        let mut next = if out.is_empty() {
            cursor.next(|| origin.now()).await
        } else {
            match cursor.poll(origin.now()) {
                Some(next) => next,
                None => return Ok(Some(out)),
            }
        };
        loop {
            match next {
                Next::Part { track, segment, part } => {
                    self.part(&mut out, track, &segment, &part)?;
                }
                Next::Tracks => {
                    let tracks: Vec<_> =
                        self.cursor.iter().flat_map(Cursor::tracks).cloned().collect();
                    self.headers = vec![None; tracks.len()];
                    let metadata = Message::metadata(0, &metadata(&tracks)).map_err(broken)?;
                    out.push(wire(&metadata));
                }
                Next::Skipped => {
                    origin.slow_viewers.skipped(Delivery::Rtmp, self.stream.name(), self.peer);
                }
                Next::TooSlow => return Err(Error::TooSlow),
                Next::Ended => return Ok((!out.is_empty()).then_some(out)),
            }
            if out.len() >= BATCH {
                return Ok(Some(out));
            }
            let Some(cursor) = &mut self.cursor else { return Ok(Some(out)) };
            next = match cursor.poll(origin.now()) {
                Some(next) => next,
                None if out.is_empty() => cursor.next(|| origin.now()).await,
                None => return Ok(Some(out)),
            };
        }
    }

    fn part(
        &mut self,
        out: &mut Vec<Bytes>,
        track: usize,
        segment: &Segment,
        part: &Part,
    ) -> Result<(), Error> {
        if self.headers.get(track).copied().flatten() != Some(segment.header.msn) {
            let time = milliseconds(part.start, &segment.header.track);
            let packetizer = packetizer(&segment.header.track).map_err(broken)?;
            out.push(wire(&packetizer.sequence_header(time).map_err(broken)?));
            if let Some(known) = self.headers.get_mut(track) {
                *known = Some(segment.header.msn);
            }
        }
        if let Some(known) = part.rtmp.get() {
            out.push(known.clone());
            return Ok(());
        }
        let mut bytes = BytesMut::new();
        for message in messages(segment, part).map_err(broken)? {
            bytes.extend_from_slice(&wire(&message));
        }
        out.push(part.rtmp.get_or_init(|| bytes.freeze()).clone());
        Ok(())
    }
}

fn broken(error: media::Error) -> Error {
    Error::Io(std::io::Error::other(error))
}
