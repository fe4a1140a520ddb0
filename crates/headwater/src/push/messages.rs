//! Parts as WebSocket messages.

use std::sync::Arc;

use bytes::Bytes;
use live::cursor::Cursor;
use live::{Header, Part, Segment};
use media::cmaf;
use protocol::push::frame::{self, Head, Opcode};
use protocol::push::message::{Discontinuity, Event};
use protocol::push::query::Unit;

use crate::broadcast::Container;

/// Makes one WebSocket message of a chunk or of a segment: a frame's head, and regions of the
/// window.
pub(super) struct Messages {
    pub(super) unit: Unit,
}

impl Container for Messages {
    fn header(
        &self,
        cursor: &Cursor,
        segment: &Segment,
        _: &Part,
    ) -> Result<Option<Bytes>, media::Error> {
        let headers: Vec<_> = cursor
            .tracks()
            .map(|track| match track.header() {
                // The newest header may belong to a later segment.
                newest if newest.track.id != segment.header.track.id => newest,
                _ => Arc::clone(&segment.header),
            })
            .collect();
        header(&headers).map(Some)
    }

    fn part(
        &self,
        segment: &Segment,
        part: &Part,
        out: &mut Vec<Bytes>,
    ) -> Result<bool, media::Error> {
        let first = segment.parts.first().is_some_and(|first| first.start == part.start);
        if segment.discontinuity && first {
            out.push(event(&Event::Discontinuity { reason: Discontinuity::Publisher }));
        }
        match self.unit {
            Unit::Chunk => {
                out.push(head(part.region.len()));
                out.push(part.region.to_bytes());
            }
            Unit::Segment => {
                out.push(head(segment.len()));
                out.extend(segment.parts.iter().map(|part| part.region.to_bytes()));
            }
        }
        Ok(true)
    }
}

fn head(size: usize) -> Bytes {
    Bytes::copy_from_slice(Head::new(Opcode::Binary, size).as_ref())
}

/// Makes the message with the common CMAF header of these tracks.
pub(super) fn header(headers: &[Arc<Header>]) -> Result<Bytes, media::Error> {
    let tracks: Vec<_> = headers.iter().map(|header| &header.track).collect();
    Ok(frame::frame(Opcode::Binary, &cmaf::header(&tracks)?).into())
}

/// Makes the message of an event.
pub(super) fn event(event: &Event) -> Bytes {
    frame::frame(Opcode::Text, event.to_json().as_bytes()).into()
}
