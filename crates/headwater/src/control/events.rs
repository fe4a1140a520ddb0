//! Events as they happen: server-sent events (HTML, 9.2).

use std::convert::Infallible;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::QueryRejection;
use axum::extract::{ConnectInfo, Extension, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use http::net::{Gate, PerAddress};
use serde::Deserialize;

use super::{Control, Observer};
use crate::access::Door;
use crate::events::Next;

/// Most clients that follow at once.
const MOST: usize = 64;

/// Most of one address (IPv6: one /64 network).
const MOST_OF_ADDRESS: NonZeroUsize = NonZeroUsize::new(16).unwrap();

/// After so much time without an event, a comment shows that the connection lives.
const BEAT: Duration = Duration::from_secs(15);

/// The places of clients that follow.
pub(super) fn places() -> Arc<Gate> {
    Arc::new(Gate::new(MOST, Some(PerAddress { max: MOST_OF_ADDRESS, except: Vec::new() })))
}

/// Where a client begins.
#[derive(Debug, Deserialize)]
pub(super) struct Wanted {
    after: Option<u64>,
}

/// Sends events from now on, or those after the one that `Last-Event-ID` names: browsers send it when they come again.
/// A page cannot set this header when it comes first, and names the event in the query.
pub(super) async fn follow(
    State(control): State<Arc<Control>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Observer { is_admin }: Observer,
    Extension(door): Extension<Door>,
    wanted: Result<Query<Wanted>, QueryRejection>,
    headers: HeaderMap,
) -> Response {
    let origin = &control.origin;
    let Ok(Query(wanted)) = wanted else {
        return (StatusCode::BAD_REQUEST, "after is a number\n").into_response();
    };
    let Ok(place) = control.followers.admit(peer.ip()) else {
        return (StatusCode::TOO_MANY_REQUESTS, "too many clients follow the events\n")
            .into_response();
    };
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let last = last.or(wanted.after);
    let begun = origin.drains.subscribe();
    let reader = origin.events.read(last);
    let events = stream::unfold((reader, place), move |(mut reader, place)| {
        let mut begun = begun.clone();
        async move {
            let drains = async {
                match door {
                    // It would keep the viewers' listener from its end.
                    Door::Public => drop(begun.wait_for(|&begun| begun).await),
                    Door::Control => std::future::pending().await,
                }
            };
            let next = tokio::select! {
                biased;
                next = reader.next() => next,
                () = drains => return None,
            };
            let event = match next {
                Next::Event(record) => Event::default()
                    .event(record.event.name())
                    .id(record.id.to_string())
                    .data(record.json(is_admin)),
                Next::Lost(lost) => {
                    Event::default().event("lost").data(format!("{{\"lost\":{lost}}}"))
                }
            };
            Some((Ok::<_, Infallible>(event), (reader, place)))
        }
    });
    let beat = KeepAlive::new().interval(BEAT);
    ([(header::CACHE_CONTROL, "no-store")], Sse::new(events).keep_alive(beat)).into_response()
}
