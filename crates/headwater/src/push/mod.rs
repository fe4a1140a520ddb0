//! Pushes streams over WebSocket (RFC 6455). Each chunk of a live stream goes to all viewers as
//! soon as it exists. Each segment of a title goes out when it is due.
//!
//! ```text
//!                         ┌▶ stream ─┬ subscribed   at the live edge, to a broadcast: one write a chunk
//! Request ─ respond ─ 101 ┤          └ alone        behind it, with a cursor of its own
//!                         └▶ title ── cursor        its segments, when they are due
//!                            session                of either: what it says and is told
//! ```
//!
//! A message is a frame's head with a region of the window or with a segment's pieces; nothing else
//! is copied or made. Each viewer's own task reads its commands, whichever way the viewer is
//! served.

mod abr;
mod describe;
mod messages;
mod session;
mod stream;
#[cfg(test)]
mod tests;
mod title;
mod title_cursor;
mod wire;

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use http::net::LogId;
use http::{Method, PayloadFraming, Request, Response, Upgraded, Version};
use live::{Delivery, Stream};
use messages::Messages;
use protocol::push::SUBPROTOCOL;
use protocol::push::handshake::{self, Refusal};
use protocol::push::query::{Query, Unit};
use tokio::task::spawn_local;
use vod::Title;

use crate::Origin;
use crate::access::Grant;
use crate::broadcast::Broadcasts;
use crate::path::StreamPath;
use crate::sessions::{self, Doing, Who};
use crate::traces::Trace;

/// State that the push viewers of one event loop share.
pub struct Push {
    origin: Arc<Origin>,
    /// Broadcasts of chunks.
    chunks: Rc<Broadcasts<Messages>>,
    /// Broadcasts of whole segments.
    segments: Rc<Broadcasts<Messages>>,
}

impl Push {
    /// Makes it without viewers. Call this on the event loop.
    pub fn new(origin: Arc<Origin>) -> Rc<Self> {
        let interval = origin.config.push.flush_interval.into();
        let broadcasts = |unit| Broadcasts::new(Messages { unit }, interval);
        Rc::new(Self {
            origin,
            chunks: broadcasts(Unit::Chunk),
            segments: broadcasts(Unit::Segment),
        })
    }

    /// Lists a viewer.
    fn list(&self, path: StreamPath<'_>, peer: SocketAddr, grant: Grant) -> sessions::Session {
        let by = Delivery::Push.name();
        let who = Who { doing: Doing::Play, path: path.to_string(), by, peer };
        self.origin.sessions.begin(who, grant)
    }

    fn broadcasts(&self, unit: Unit) -> &Rc<Broadcasts<Messages>> {
        match unit {
            Unit::Chunk => &self.chunks,
            Unit::Segment => &self.segments,
        }
    }

    /// Answers a request for `/live/NAME/push`: 101, or the reason against it.
    pub async fn respond(
        self: &Rc<Self>,
        request: &Request,
        stream: &Arc<Stream>,
        grant: Grant,
        trace: &mut Trace,
    ) -> Response {
        let (accepted, query) = match self.check(request) {
            Ok(checked) => checked,
            Err(response) => return response,
        };
        if !live::wait::ready(stream).await {
            return Response::text(503, "the stream has no media yet").header("Retry-After", 1);
        }
        let mut viewer = stream::Viewer::new(self, stream, query);
        match viewer.choose() {
            Ok(()) => {
                let trace = std::mem::take(trace);
                switching(&accepted, move |connection| {
                    go_on(viewer.run(connection, grant, trace));
                })
            }
            Err(refused) => refused,
        }
    }

    /// Answers a request for `/vod/PATH/push`.
    pub fn play(
        self: &Rc<Self>,
        request: &Request,
        title: &Arc<Title>,
        grant: Grant,
        trace: &mut Trace,
    ) -> Response {
        let (accepted, query) = match self.check(request) {
            Ok(checked) => checked,
            Err(response) => return response,
        };
        match title::Viewer::new(self, title, query) {
            Ok(viewer) => {
                let trace = std::mem::take(trace);
                switching(&accepted, move |connection| {
                    go_on(viewer.run(connection, grant, trace));
                })
            }
            Err(refused) => refused,
        }
    }

    fn check(&self, request: &Request) -> Result<(handshake::Accepted, Query), Response> {
        let accepted = match (request.method(), request.version()) {
            (Method::Get, Version::Http11) => {
                handshake::accept(&request.headers().collect::<Vec<_>>())
            }
            _ => Err(Refusal::NotAsked),
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
        // Browsers do not apply CORS to WebSockets, so the origin is checked here.
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

/// Runs a viewer, who was listed before, in a task that the log calls by the same names.
fn go_on(viewer: impl Future<Output = ()> + 'static) {
    spawn_local(LogId::current().scope(viewer));
}

fn switching(accepted: &handshake::Accepted, switch: impl FnOnce(Upgraded) + 'static) -> Response {
    let response = Response::switching(switch)
        .header("Upgrade", "websocket")
        .header("Connection", "Upgrade")
        .header("Sec-WebSocket-Accept", &accepted.accept);
    match accepted.subprotocol {
        true => response.header("Sec-WebSocket-Protocol", SUBPROTOCOL),
        false => response,
    }
}
