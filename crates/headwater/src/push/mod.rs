//! Live streams pushed over WebSocket (RFC 6455): each chunk to all its viewers as soon as it exists.
//!
//! ```text
//! Request ─ respond ─ 101 ─▶ stream ─┬─ rides a fan       at the live edge: one write a chunk
//!                              │     └─ goes on alone     behind it, with a cursor of its own
//!                              └ session                  what any viewer says and is told
//! ```
//!
//! A message is a frame's head and a region of the window, nothing else. What a viewer says is read
//! by its own task, whichever way it is served.

mod describe;
mod messages;
mod session;
mod stream;
mod wire;

use std::rc::Rc;
use std::sync::Arc;

use live::Stream;
use protocol::push::SUBPROTOCOL;
use protocol::push::handshake::{self, Refusal};
use protocol::push::query::{Query, Unit};
use tokio::task::spawn_local;

use crate::Origin;
use crate::fan::Fans;
use crate::http::{PayloadFraming, Request, Response, Version};
use messages::Messages;
use stream::Viewer;

/// What the push viewers of one event loop share.
pub struct Push {
    origin: Arc<Origin>,
    /// Of chunks.
    chunks: Rc<Fans<Messages>>,
    /// Of whole segments.
    segments: Rc<Fans<Messages>>,
}

impl Push {
    /// Nobody yet. To be called on the event loop.
    pub fn new(origin: Arc<Origin>) -> Rc<Self> {
        let interval = origin.config.push.flush_interval.into();
        let fans = |unit| Fans::new(Messages { unit }, interval);
        Rc::new(Self { origin, chunks: fans(Unit::Chunk), segments: fans(Unit::Segment) })
    }

    fn fans(&self, unit: Unit) -> &Rc<Fans<Messages>> {
        match unit {
            Unit::Chunk => &self.chunks,
            Unit::Segment => &self.segments,
        }
    }

    /// Answers a request for `/live/NAME/push`: 101, or why not.
    pub async fn respond(self: &Rc<Self>, request: &Request, stream: &Arc<Stream>) -> Response {
        let (accepted, query) = match self.check(request) {
            Ok(checked) => checked,
            Err(response) => return response,
        };
        if !crate::deliver::ready(stream).await {
            return Response::text(503, "the stream has no media yet").header("Retry-After", 1);
        }
        let mut viewer = Viewer::new(self, stream, query);
        if let Err(refused) = viewer.choose() {
            return refused;
        }
        let response = Response::switching(move |connection| {
            spawn_local(viewer.run(connection));
        })
        .header("Upgrade", "websocket")
        .header("Connection", "Upgrade")
        .header("Sec-WebSocket-Accept", accepted.accept);
        match accepted.subprotocol {
            true => response.header("Sec-WebSocket-Protocol", SUBPROTOCOL),
            false => response,
        }
    }

    fn check(&self, request: &Request) -> Result<(handshake::Accepted, Query), Response> {
        let accepted = match request.version() {
            Version::Http11 => handshake::accept(&request.headers().collect::<Vec<_>>()),
            Version::Http10 => Err(Refusal::NotAsked),
        };
        let accepted = accepted.map_err(|refusal| {
            let response = Response::text(refusal.status(), refusal);
            match refusal.status() {
                426 => response.header("Upgrade", "websocket").header("Sec-WebSocket-Version", 13),
                _ => response,
            }
        })?;
        if request.payload() != PayloadFraming::Length(0) {
            return Err(Response::text(400, "a WebSocket's request has no payload"));
        }
        // Pages of other sites may open a WebSocket without asking first, as CORS has them do.
        let allowed = &self.origin.config.http.cors_origin;
        if let Some(from) =
            request.header("origin").filter(|from| allowed != "*" && from != allowed)
            && from.split_once("://").map(|(_, host)| host) != request.host()
        {
            return Err(Response::text(403, "not for pages of this origin"));
        }
        match Query::parse(request.query_pairs()) {
            Ok(query) => Ok((accepted, query)),
            Err(error) => Err(Response::text(400, error)),
        }
    }
}
