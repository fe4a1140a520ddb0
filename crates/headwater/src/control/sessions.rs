//! Those who publish and watch, one by one.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{ConnectInfo, Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use live::Delivery;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Control, Observer, api, json, rfc3339};
use crate::Origin;
use crate::path::StreamPath;
use crate::sessions::{Doing, Over, Told};

/// Most sessions in one answer.
const MOST: usize = 1000;

/// Which sessions a client asks for.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    stream: Option<String>,
    action: Option<Action>,
    protocol: Option<String>,
    /// Those that are over, and not those that are open.
    ended: bool,
    /// Of open ones, those with higher numbers than this.
    after: u64,
}

/// What somebody does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "SessionAction")]
#[serde(rename_all = "lowercase")]
pub(super) enum Action {
    /// Sends media.
    Publish,
    /// Gets media.
    Play,
}

impl From<Doing> for Action {
    fn from(doing: Doing) -> Self {
        match doing {
            Doing::Publish => Self::Publish,
            Doing::Play => Self::Play,
        }
    }
}

/// Sessions of this node.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Sessions")]
pub(super) struct SessionList {
    /// At most 1,000: open ones from the first that began, or ended ones from the last that ended.
    sessions: Vec<SessionInfo>,
    /// How many more there are. Ask for open ones `after` the last of these.
    left_out: usize,
    /// About how many players of HLS and DASH are counted as viewers and have no session. There may be too many players in
    /// all, or at one address. Or players only report here (CMCD), and a cache sends their media.
    only_counted: usize,
}

/// One who publishes or plays: over a connection of its own by RTMP, WebRTC, push, `live.mp4` or `live.flv`, or by requests
/// for HLS or DASH.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Session")]
struct SessionInfo {
    /// Its number. No other session of this process has it.
    id: u64,
    /// What it does.
    action: Action,
    /// The stream or title: `live/NAME` or `vod/PATH`.
    stream: String,
    /// How: a publisher by `rtmp` or `whip`, a viewer by `llhls`, `hls`, `dash`, `rtmp`, `push`, `webrtc`, `mp4` or `flv`.
    protocol: &'static str,
    /// Its address and port, of its first request if it makes requests. Only administrators get it.
    peer: Option<String>,
    /// When it began.
    #[schemars(extend("format" = "date-time"))]
    since: String,
    /// Bytes that were sent to a viewer, or that came from a publisher.
    bytes: u64,
    /// How far the media that a viewer was sent last were behind the newest when they were sent, in seconds. `null` if this
    /// is not known.
    behind_seconds: Option<f64>,
    /// The rendition that a viewer gets. `null` if there is only one, or if it is not known.
    rendition: Option<String>,
    /// When and why it ended. `null` while it is open.
    ended: Option<EndInfo>,
}

/// The end of a session.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SessionEnd")]
struct EndInfo {
    /// When it ended.
    #[schemars(extend("format" = "date-time"))]
    at: String,
    /// Why. `null` if the peer left or asks for nothing any more, or the stream ended.
    reason: Option<String>,
}

impl Wanted {
    fn has(&self, doing: Doing, path: &str, by: &str) -> bool {
        self.stream.as_ref().is_none_or(|stream| stream == path)
            && self.action.is_none_or(|action| action == doing.into())
            && self.protocol.as_ref().is_none_or(|protocol| protocol == by)
    }
}

/// Lists the open sessions, or those that ended within the last hour.
pub(super) async fn list(
    State(control): State<Arc<Control>>,
    Observer { is_admin }: Observer,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Response {
    let origin = &control.origin;
    // The text of the rejection may have what was sent.
    let Ok(Query(wanted)) = wanted else {
        let why = "action is publish or play, ended is true or false, after is a number\n";
        return (StatusCode::BAD_REQUEST, why).into_response();
    };
    let has = |doing: Doing, path: &str, by: &str| wanted.has(doing, path, by);
    let only_counted = if wanted.ended { 0 } else { only_counted(origin, &wanted) };
    let (sessions, left_out) = if wanted.ended {
        let (ended, left_out) = origin.sessions.ended(MOST, has);
        let infos = ended.iter().map(|ended| {
            let (at, reason) = (rfc3339(ended.at), ended.reason.clone());
            info(ended.session.clone(), Some(EndInfo { at, reason }), is_admin)
        });
        (infos.collect(), left_out)
    } else {
        let (open, left_out) = origin.sessions.open(wanted.after, MOST, has);
        (open.into_iter().map(|told| info(told, None, is_admin)).collect(), left_out)
    };
    api(json(&SessionList { sessions, left_out, only_counted }), true)
}

/// About how many viewers make requests and are no sessions. Both are counted in their own ways.
fn only_counted(origin: &Origin, wanted: &Wanted) -> usize {
    let by_requests = [Delivery::LlHls, Delivery::Hls, Delivery::Dash].map(Delivery::name);
    let has = |path: &str, by: &str| by_requests.contains(&by) && wanted.has(Doing::Play, path, by);
    let now = origin.now();
    let streams = origin.registry.streams().into_iter().map(|stream| {
        let path = StreamPath::Live(stream.name()).to_string();
        let counts = stream.viewers(now).into_iter();
        counts.filter(|(by, _)| has(&path, by.name())).map(|(_, count)| count).sum::<usize>()
    });
    let titles = origin.title_viewers.count(now).into_iter();
    let titles = titles.filter(|((path, by), _)| has(path, by)).map(|(_, count)| count);
    let counted = streams.chain(titles).sum::<usize>();
    counted
        .saturating_sub(origin.sessions.count_visits(|doing, path, by| wanted.has(doing, path, by)))
}

/// Ends a session.
pub(super) async fn end(
    State(control): State<Arc<Control>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Observer { is_admin }: Observer,
    Path(id): Path<String>,
) -> Response {
    if !is_admin {
        let why = "only administrators end sessions: control.admin, or credentials for \"api\"\n";
        return (StatusCode::FORBIDDEN, why).into_response();
    }
    match id.parse().ok().filter(|&id| control.origin.sessions.end(id, Over::Ended)) {
        Some(id) => {
            let session: u64 = id;
            tracing::info!(%peer, session, "session ended by an administrator");
            StatusCode::NO_CONTENT.into_response()
        }
        None => (StatusCode::NOT_FOUND, "no such session\n").into_response(),
    }
}

fn info(told: Told, ended: Option<EndInfo>, admin: bool) -> SessionInfo {
    let Told { id, who, since, bytes, behind, rendition } = told;
    SessionInfo {
        id,
        action: who.doing.into(),
        stream: who.path,
        protocol: who.by,
        peer: admin.then(|| who.peer.to_string()),
        since: rfc3339(since),
        bytes,
        behind_seconds: behind.map(|millis| f64::from(millis) / 1000.0),
        rendition: rendition.map(|rendition| rendition.to_string()),
        ended,
    }
}
