//! The sessions of players that make requests: which one a request belongs to, and what its answer adds.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response};
use live::{Delivery, Stream, Track, Window};
use media::Kind;

use super::route::{Packaged, Resource};
use super::told::{self, Said};
use super::{measure, player};
use crate::Origin;
use crate::counts::Wanted;
use crate::path::StreamPath;
use crate::sessions::{Asking, Doing, Over, Who};
use crate::titles;

/// A request of a player, whose session may not have begun.
pub(super) struct Visit<'a> {
    request: &'a Request,
    origin: &'a Origin,
    path: StreamPath<'a>,
    key: u64,
    lasts: Duration,
    asking: Option<Asking>,
    /// The delivery that the request shows.
    delivery: Cell<Option<Delivery>>,
    is_over: bool,
}

/// A path whose empty segments do not count: titles have as many spellings as there are slashes.
#[derive(Clone, Copy)]
struct Plain<'a>(&'a str);

impl<'a> Plain<'a> {
    fn segments(self) -> impl Iterator<Item = &'a str> {
        self.0.split('/').filter(|segment| !segment.is_empty())
    }
}

impl Hash for Plain<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.segments().for_each(|segment| segment.hash(state));
    }
}

/// The request of a player for a resource of a live stream. `None` if its answer is a session of its own.
pub(super) fn live<'a>(
    request: &'a Request,
    origin: &'a Origin,
    name: &'a str,
    resource: Resource<'_>,
) -> Result<Option<Visit<'a>>, Response> {
    if resource.is_endless() {
        return Ok(None);
    }
    let is_beacon = resource == Resource::Beacon;
    let visit = Visit::new(request, origin, StreamPath::Live(name), is_beacon)?;
    // Other resources do not show the delivery: players of another one may ask for them.
    if let Resource::MediaPlaylist { .. } | Resource::Manifest = resource {
        let is_reload = matches!(measure::live(resource, request), Some((Wanted::Reload, _)));
        visit.delivery.set(if is_reload { Some(Delivery::LlHls) } else { resource.delivery() });
    }
    Ok(Some(visit))
}

/// The request of a player for a resource of a title. The title tells what it shows: there may be a file of that name.
pub(super) fn title<'a>(
    request: &'a Request,
    origin: &'a Origin,
    asked: Option<(&'a str, Packaged<'_>)>,
) -> Result<Option<Visit<'a>>, Response> {
    let Some((title, resource)) = asked.filter(|(_, it)| *it != Packaged::Push) else {
        return Ok(None);
    };
    let (path, is_beacon) = (StreamPath::Vod(title), resource == Packaged::Beacon);
    Visit::new(request, origin, path, is_beacon).map(Some)
}

impl<'a> Visit<'a> {
    fn new(
        request: &'a Request,
        origin: &'a Origin,
        path: StreamPath<'a>,
        is_beacon: bool,
    ) -> Result<Self, Response> {
        let is_live = matches!(path, StreamPath::Live(_));
        let said = told::said(request, is_live, origin).unwrap_or_default();
        let Said { session, delivery, is_over: has_left } = said;
        let (StreamPath::Live(name) | StreamPath::Vod(name)) = path;
        let (sessions, name) = (&origin.sessions, Plain(name));
        let key_of = |by_session: bool, of: u64| sessions.key((is_live, name, by_session, of));
        let by_player = || key_of(false, player(request));
        let mut key = session.map_or_else(by_player, |session| key_of(true, session));
        let mut asking = sessions.asks(key).map_err(refused)?;
        let mut is_over = has_left && session.is_some();
        if let Some(session) = session.filter(|_| is_beacon && asking.is_none()) {
            // Its requests for media name no session. Another page of the same browser may have reported since.
            key = by_player();
            asking = sessions.asks(key).map_err(refused)?;
            is_over &= asking.as_ref().is_some_and(|asking| asking.has_reported(session));
        }
        let reporter = session.filter(|_| is_beacon && !has_left);
        if let (Some(session), Some(asking)) = (reporter, &asking) {
            asking.reports(session);
        }
        // A player that sends only beacons may get its media from elsewhere.
        let delivery = Cell::new(delivery.filter(|_| !is_beacon));
        let lasts = if is_live { live::COUNTED } else { titles::COUNTED };
        Ok(Self { request, origin, path, key, lasts, asking, delivery, is_over })
    }

    /// Notes the delivery that the request shows.
    pub(super) fn shows(&self, delivery: Delivery) {
        self.delivery.set(Some(delivery));
    }

    /// Notes which video track is asked for. `several` tells whether there are others.
    pub(super) fn gets(&self, track: &str, several: impl FnOnce() -> bool) {
        if let Some(asking) = &self.asking {
            asking.gets(track, several);
        }
    }

    /// Notes what the answer for media of a live stream has.
    pub(super) fn gets_live(&self, stream: &Stream, resource: Resource<'_>) {
        let Some(asking) = &self.asking else { return };
        let (Resource::Part { track, .. }
        | Resource::Segment { track, .. }
        | Resource::SegmentAt { track, .. }) = resource
        else {
            return;
        };
        let Some(track) = stream.track(track) else { return };
        if track.kind == Kind::Video {
            let is_video = |it: &&Arc<Track>| it.kind == Kind::Video;
            let several = || stream.state().tracks.iter().filter(is_video).nth(1).is_some();
            asking.gets(&track.name, several);
        }
        if let Some(seconds) = behind(&track.window(), resource) {
            asking.meter().is_behind(seconds);
        }
    }

    /// Takes the answer. Begins the session if there is none and the request shows the delivery. Returns the answer, or
    /// that an administrator ended the session meanwhile.
    pub(super) fn answered(self, answer: Response) -> (Response, Option<Asking>) {
        let Self { request, origin, path, key, lasts, asking, delivery, is_over } = self;
        if is_over {
            origin.sessions.leaves(key);
            return (answer, None);
        }
        let delivery = delivery.get();
        if let Some(mut asking) = asking {
            if answer.status() >= 400 {
                asking.gets_nothing();
            }
            if asking.is_ended() {
                return (refused(Over::Ended), None);
            }
            if let Some(delivery) = delivery {
                asking.is_by(delivery);
            }
            return (answer, Some(asking));
        }
        let begins = request.method() == Method::Get && answer.status() < 400;
        let Some(delivery) = delivery.filter(|_| begins) else { return (answer, None) };
        let (doing, peer) = (Doing::Play, request.peer());
        let who = || {
            let path = match path {
                StreamPath::Live(_) => path.to_string(),
                StreamPath::Vod(title) => {
                    let plain = Plain(title).segments().collect::<Vec<_>>().join("/");
                    StreamPath::Vod(&plain).to_string()
                }
            };
            Who { doing, path, by: delivery.name(), peer }
        };
        match origin.sessions.visits(key, delivery, lasts, who) {
            Ok(asking) => (answer, asking),
            Err(over) => (refused(over), None),
        }
    }
}

/// How far media are behind the newest of their track, in seconds.
fn behind(window: &Window, resource: Resource<'_>) -> Option<f64> {
    let newest = window.newest()?;
    let sent = match resource {
        Resource::Part { msn, part, .. } => {
            let part = window.segment(msn)?.parts.get(part)?;
            part.start + i64::from(part.duration)
        }
        Resource::Segment { msn, .. } => window.segment(msn)?.end(),
        Resource::SegmentAt { time, .. } => {
            window.all().rev().find(|segment| segment.presents == time)?.end()
        }
        _ => return None,
    };
    let behind = newest.end().saturating_sub(sent) as f64;
    Some(behind / f64::from(newest.header.track.timescale.max(1)))
}

fn refused(over: Over) -> Response {
    Response::text(403, over).header("Cache-Control", "no-store")
}
