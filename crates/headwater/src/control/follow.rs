//! Events and lines of the log as they happen: server-sent events (HTML, 9.2).

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
use futures_util::{StreamExt, stream};
use http::net::{Gate, PerAddress};
use serde::Deserialize;
use serde_json::json;
use tokio::time::sleep_until;

use super::{Control, Follower, Observer};
use crate::access::{Access, Door, Grant};
use crate::events::Record;
use crate::followed::{Followed, Next};
use crate::{log, review};

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

/// Who asks, and for what.
type Asked =
    (ConnectInfo<SocketAddr>, Extension<Door>, Result<Query<Wanted>, QueryRejection>, HeaderMap);

/// Sends what happens on this origin.
pub(super) async fn events(
    State(control): State<Arc<Control>>,
    Follower(Observer { is_admin }, grant): Follower,
    asked: Asked,
) -> Response {
    let told = move |record: &Record| {
        Event::default().event(record.event.name()).data(record.json(is_admin))
    };
    follow(&control, (asked, grant), Arc::clone(control.origin.events.recent()), told)
}

/// Sends the log. Its lines have addresses of peers, so only administrators get them.
pub(super) async fn log(
    State(control): State<Arc<Control>>,
    Follower(Observer { is_admin }, grant): Follower,
    asked: Asked,
) -> Response {
    if !is_admin {
        let why = "only administrators read the log: control.admin, or credentials for \"api\"\n";
        return (StatusCode::FORBIDDEN, why).into_response();
    }
    let told =
        |line: &String| Event::default().event("line").data(json!({ "line": line }).to_string());
    follow(&control, (asked, grant), Arc::clone(log::tail()), told)
}

/// Sends entries from now on, or those after the one that `Last-Event-ID` names: browsers send it when they come again.
/// A page cannot set this header when it comes first, and names the entry in the query.
fn follow<T: Send + Sync + 'static>(
    control: &Control,
    ((ConnectInfo(peer), Extension(door), wanted, headers), grant): (Asked, Grant),
    entries: Arc<Followed<T>>,
    told: impl Fn(&T) -> Event + Send + Sync + 'static,
) -> Response {
    let Ok(Query(wanted)) = wanted else {
        return (StatusCode::BAD_REQUEST, "after is a number\n").into_response();
    };
    let Ok(permit) = control.followers.admit(peer.ip()) else {
        return (StatusCode::TOO_MANY_REQUESTS, "too many clients follow\n").into_response();
    };
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let reader = entries.read(last.or(wanted.after));
    let begun = control.origin.drains.subscribe();
    let told = Arc::new(told);
    let sent = stream::unfold((reader, permit), move |(mut reader, permit)| {
        let (mut begun, entries, told) = (begun.clone(), Arc::clone(&entries), Arc::clone(&told));
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
                next = entries.next(&mut reader) => next,
                () = drains => return None,
            };
            let event = match next {
                Next::Entry(id, entry) => told(&entry).id(id.to_string()),
                Next::Lost(lost) => {
                    Event::default().event("lost").data(format!("{{\"lost\":{lost}}}"))
                }
            };
            Some((Ok::<_, Infallible>(event), (reader, permit)))
        }
    });
    let sent = sent.take_until(Box::pin(until_over(Arc::clone(&control.origin.access), grant)));
    let beat = KeepAlive::new().interval(BEAT);
    ([(header::CACHE_CONTROL, "no-store")], Sse::new(sent).keep_alive(beat)).into_response()
}

/// Waits until a permission ends or is taken away.
async fn until_over(access: Arc<Access>, grant: Grant) {
    let expired = async {
        match grant.until {
            Some(until) => sleep_until(until).await,
            None => std::future::pending().await,
        }
    };
    let revoked = async {
        match &grant.again {
            Some(again) => review::revoked(&access, again, grant.by_secret).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = expired => {}
        () = revoked => {}
    }
}
