//! What players tell of themselves by CMCD: in requests, and by beacons.

use std::time::Duration;

use http::{Request, Response};
use live::sessions::{Report, Reporter};
use live::{Delivery, Stream};
use protocol::cmcd::{self, Format, Kind, Object, Told};

use super::player;
use crate::Origin;

/// What somebody watches.
#[derive(Clone, Copy)]
pub(super) enum Watched<'a> {
    Live(&'a Stream),
    /// A title by its path, and the key of the player of this title.
    Title(&'a str, u64),
}

/// Whether the player tells something. Every request comes here, and most players tell nothing.
pub(super) fn is_told(request: &Request) -> bool {
    request.query().is_some_and(|query| query.contains("CMCD="))
        // Where players send header fields, the session is in this one.
        || request.header("cmcd-session").is_some()
}

/// Takes what a request tells. `delivery` is the one that this request shows, if it shows one. Returns whether the
/// viewer is counted by what it told.
pub(super) fn with(
    request: &Request,
    watched: Watched<'_>,
    delivery: Option<Delivery>,
    origin: &Origin,
) -> bool {
    is_told(request) && take(request, watched, delivery, false, origin)
}

/// Answers a beacon.
pub(super) fn by_beacon(request: &Request, watched: Watched<'_>, origin: &Origin) -> Response {
    take(request, watched, None, true, origin);
    // What nobody can read, or for which there is no room, is nothing that a player could mend.
    Response::new(204).header("Cache-Control", "no-store")
}

/// What a player tells of its session.
#[derive(Default)]
pub(super) struct Said {
    /// The key of the session, if the player names one.
    pub(super) session: Option<u64>,
    /// The delivery by which it makes requests.
    pub(super) delivery: Option<Delivery>,
    /// Whether it has ended.
    pub(super) is_over: bool,
}

/// What a request tells of its player's session, if it tells something.
pub(super) fn said(request: &Request, is_live: bool, origin: &Origin) -> Option<Said> {
    if !is_told(request) && request.content().is_empty() {
        return None;
    }
    read(request, |told| Said {
        session: told.session.map(|session| origin.reporters.key(session)),
        delivery: delivery_of(told, is_live),
        is_over: told.over,
    })
}

/// Reads all that a request tells.
fn read<T>(request: &Request, take: impl FnOnce(&Told<'_>) -> T) -> Option<T> {
    let parameter = request.parameter("CMCD");
    let content = std::str::from_utf8(request.content()).unwrap_or_default();
    let fields = cmcd::HEADERS.into_iter().flat_map(|name| request.header_values(name));
    let mut told = Told::default();
    for text in fields.chain(parameter.as_deref()).chain([content]) {
        told.add(text);
    }
    (told != Told::default()).then(|| take(&told))
}

fn take(
    request: &Request,
    watched: Watched<'_>,
    delivery: Option<Delivery>,
    is_regular: bool,
    origin: &Origin,
) -> bool {
    let taken = |told: &Told<'_>| {
        let player = match watched {
            Watched::Live(_) => player(request),
            Watched::Title(_, player) => player,
        };
        let session = told.session.map_or(player, |session| origin.reporters.key(session));
        let (by, now) = (Reporter { session, player }, origin.now());
        let delivery = delivery.or_else(|| delivery_of(told, matches!(watched, Watched::Live(_))));
        let report = Report { delivery, is_regular, ..report(told) };
        let permit = || origin.reporters.permit(request.peer().ip());
        match watched {
            Watched::Live(stream) => stream.told(by, &report, now, permit),
            Watched::Title(title, _) => origin.title_viewers.told(title, by, &report, now, permit),
        }
    };
    read(request, taken).unwrap_or(false)
}

/// The delivery by which a player makes requests. One that has a connection is counted by that.
fn delivery_of(told: &Told<'_>, is_live: bool) -> Option<Delivery> {
    match told.format? {
        Format::Hls if is_live && told.kind == Some(Kind::LowLatency) => Some(Delivery::LlHls),
        Format::Hls => Some(Delivery::Hls),
        Format::Dash => Some(Delivery::Dash),
        Format::Other => None,
    }
}

fn report(told: &Told<'_>) -> Report {
    // Requests for playlists and headers tell of no track.
    let has_track = told.object != Some(Object::Other);
    let bits = |kilobits: u64| kilobits.saturating_mul(1000);
    Report {
        delivery: None,
        buffer: told.buffer.filter(|_| has_track).map(Duration::from_millis),
        throughput: told.throughput.map(bits),
        bitrate: told.bitrate.filter(|_| has_track).map(bits),
        startup: told.startup.map(Duration::from_millis),
        has_stalled: told.starved,
        is_urgent: told.urgent,
        is_audio: told.object == Some(Object::Audio),
        is_regular: false,
        is_over: told.over,
    }
}
