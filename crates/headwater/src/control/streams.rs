//! The live streams, and who publishes and watches them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{self, ConnectInfo, Path};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use live::backup::Role;
use live::{Status, Stream, Track, UnixMicros};
use media::Kind;
use schemars::JsonSchema;
use serde::Serialize;

use super::quality::Quality;
use super::{Control, NO_SIGNED_PATHS, Observer, api, json, may, rfc3339};
use crate::Origin;
use crate::access::{self, Action, Asked, Credentials};
use crate::health::{Advice, Health};
use crate::path::StreamPath;

/// The streams that this origin has, or copies from other nodes.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Streams")]
pub(super) struct StreamList<'a> {
    /// The name of this node. It is left out where there is no cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<&'a str>,
    /// All streams that are live, offline, or have ended a short time ago.
    streams: Vec<StreamInfo>,
}

/// A live stream.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Stream")]
pub(super) struct StreamInfo {
    /// Its path: `live/NAME`.
    name: String,
    /// Whether somebody publishes it.
    state: State,
    /// When it began.
    #[schemars(extend("format" = "date-time"))]
    since: String,
    /// Those whose media are used.
    publishers: Vec<PublisherInfo>,
    /// Publishers that are connected here, and whose media are dropped for now.
    waiting: Vec<PublisherInfo>,
    /// What a backup does that is connected to any node. `null` if there is none.
    backup: Option<Backup>,
    /// Its tracks: video by falling bitrate, then audio.
    tracks: Vec<TrackInfo>,
    /// How its media come in. `null` if it is over.
    health: Option<HealthInfo>,
    /// How many viewers it has here, by delivery: `llhls`, `hls`, `dash`, `mp4`, `flv`, `rtmp`, `push` and `webrtc`.
    #[schemars(with = "BTreeMap<String, u64>")]
    viewers: serde_json::Map<String, serde_json::Value>,
    /// How its viewers here are, as their players tell. `null` if none does.
    quality: Option<Quality>,
}

/// How the media of a stream come in. A figure that is not known is `null`.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Health")]
struct HealthInfo {
    /// The longest time between two keyframes in the window, in seconds.
    keyframe_distance_seconds: Option<f64>,
    /// Age of the newest part, in seconds.
    part_age_seconds: Option<f64>,
    /// How far audio is ahead of video, in seconds. Below 0 it is behind.
    audio_offset_seconds: Option<f64>,
    /// How often the timeline has broken off since the stream began.
    discontinuities: u64,
    /// What of this matters, in words. Empty if all is well.
    advice: Vec<Advice>,
}

/// Whether somebody publishes a stream.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum State {
    /// Somebody publishes it.
    Live,
    /// The publisher was lost and may come back.
    Offline,
    /// The stream is over. Viewers can watch the rest of its window for a while.
    Ended,
}

/// What a stream's backup does.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Backup {
    /// Its media are used.
    Live,
    /// It is connected, and its media are dropped for now.
    Waiting,
}

/// A publisher of a stream.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Publisher")]
struct PublisherInfo {
    /// Its address and port. Only administrators (`[control] admin`) get it. `null` for others, and for what this
    /// server publishes itself.
    peer: Option<String>,
    /// How its media come: `rtmp`, `whip`, `file` (a clip that this server publishes itself) or `ladder` (a rendition
    /// that this server makes).
    protocol: &'static str,
    /// The rendition that it sends. `null` if it sends the stream itself.
    rendition: Option<String>,
    /// Whether it is the stream's backup.
    backup: bool,
}

/// A track of a stream or title.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Track")]
pub(super) struct TrackInfo {
    /// Its name in URLs: `v0`, `v1` and so on, then `a0` and so on.
    name: String,
    /// Whether it is video or audio.
    kind: TrackKind,
    /// Its codec, as in RFC 6381.
    codec: String,
    /// Its mean bitrate in bit/s. 0 until it has been measured.
    bitrate: u64,
    /// The rendition that it belongs to. `null` if that has no name.
    rendition: Option<String>,
    /// Width of the frames in pixels. Only video has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    width: Option<u32>,
    /// Height of the frames in pixels. Only video has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    height: Option<u32>,
    /// Frames per second. Only video has it, once it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    frame_rate: Option<f64>,
    /// Samples per second. Only audio has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    sample_rate: Option<u32>,
    /// How many channels there are. Only audio has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    channels: Option<u16>,
}

/// The kind of a track.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum TrackKind {
    /// Video.
    Video,
    /// Audio.
    Audio,
}

/// Lists the streams.
pub(super) async fn list(
    extract::State(control): extract::State<Arc<Control>>,
    Observer { is_admin: admin }: Observer,
) -> Response {
    let origin = &control.origin;
    let render = || {
        let (streams, now) = (origin.registry.streams(), origin.now());
        let streams = streams.iter().map(|stream| describe(origin, stream, now, admin)).collect();
        json(&StreamList { node: origin.cluster.get().map(|cluster| cluster.node()), streams })
    };
    // Pages of other sites have no business with it.
    api(control.list.get(admin, render).await, true)
}

/// Describes one stream.
pub(super) async fn single(
    extract::State(control): extract::State<Arc<Control>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Path(name): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let credentials = Credentials::of(&uri, &headers);
    describe_one(&control, (peer, &uri), name, credentials).await
}

/// Describes one stream to a client whose signed path allows that.
pub(super) async fn signed(
    extract::State(control): extract::State<Arc<Control>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Path((token, name)): Path<(String, String)>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    if !control.origin.access.signs() {
        return (StatusCode::NOT_FOUND, NO_SIGNED_PATHS).into_response();
    }
    let credentials = Credentials { signed: Some(&token), ..Credentials::of(&uri, &headers) };
    describe_one(&control, (peer, &uri), name, credentials).await
}

async fn describe_one(
    control: &Control,
    (peer, uri): (SocketAddr, &Uri),
    name: String,
    credentials: Credentials<'_>,
) -> Response {
    let origin = &control.origin;
    let path = StreamPath::parse(&name);
    if let Some(path) = path
        && let Err(refusal) = may(origin, Action::Play(path), peer, credentials).await
    {
        return refusal.into_response();
    }
    let stream = match path {
        Some(StreamPath::Live(live)) => origin.registry.stream(live),
        Some(StreamPath::Vod(_)) | None => None,
    };
    let Some(stream) = stream else {
        // Browsers report each 404, and a page may wait for a stream for hours.
        let asks = uri.query().unwrap_or_default().split('&').any(|pair| pair == "absent=null");
        return match asks {
            true => api(Some(Bytes::from_static(b"null")), false),
            false => (StatusCode::NOT_FOUND, "no such stream\n").into_response(),
        };
    };
    let action = Action::Observe;
    let observes = Asked { action, peer, protocol: "http", credentials, lasts: false };
    // A viewer's credentials need not be for this, so they must not count as a guess.
    let admin = access::may_administer(&origin.config.control.admin, peer, credentials)
        || origin.access.has_known_secret(&observes);
    let render = || json(&describe(origin, &stream, origin.now(), admin));
    api(control.single.get((name, admin), render).await, admin)
}

/// Describes a stream. Only administrators get the addresses of publishers.
fn describe(origin: &Origin, stream: &Stream, now: UnixMicros, admin: bool) -> StreamInfo {
    let (state, presence) = (stream.state(), origin.seats.presence(stream.name(), now));
    let cluster = origin.cluster.get();
    let elsewhere = || Some(cluster?.elsewhere(stream.name())?.publisher?.into());
    let live = presence.live.or_else(elsewhere);
    let is_backup = |(role, _): &(Role, _)| *role == Role::Backup;
    let waits = presence.waiting.iter().any(is_backup)
        || cluster.is_some_and(|it| it.waits_elsewhere(stream.name(), Role::Backup));
    let info = |publisher: &live::PublisherInfo, role: Option<Role>| PublisherInfo {
        peer: publisher.peer.filter(|_| admin).map(|peer| peer.to_string()),
        protocol: publisher.protocol,
        rendition: publisher.rendition.clone(),
        backup: publisher.rendition.is_none() && role == Some(Role::Backup),
    };
    StreamInfo {
        name: StreamPath::Live(stream.name()).to_string(),
        state: match state.status {
            Status::Live => State::Live,
            Status::Offline => State::Offline,
            Status::Ended => State::Ended,
        },
        since: rfc3339(stream.since()),
        publishers: state.publishers.iter().map(|publisher| info(publisher, live)).collect(),
        waiting: presence.waiting.iter().map(|(role, it)| info(it, Some(*role))).collect(),
        backup: match live {
            Some(Role::Backup) => Some(Backup::Live),
            _ => waits.then_some(Backup::Waiting),
        },
        tracks: state.tracks.iter().filter(|track| track.is_present()).map(track).collect(),
        health: (state.status != Status::Ended).then(|| health(&Health::of(stream, now))),
        viewers: stream
            .viewers(now)
            .into_iter()
            .map(|(delivery, count)| (delivery.name().to_owned(), count.into()))
            .collect(),
        quality: stream.quality(now).map(Quality::from),
    }
}

fn health(health: &Health) -> HealthInfo {
    let rounded = |value: Option<f64>| value.map(|value| (value * 1000.0).round() / 1000.0);
    HealthInfo {
        keyframe_distance_seconds: rounded(health.keyframe_distance),
        part_age_seconds: rounded(health.part_age),
        audio_offset_seconds: rounded(health.audio_offset),
        discontinuities: health.discontinuities,
        advice: health.advice(),
    }
}

fn track(track: &Arc<Track>) -> TrackInfo {
    let header = track.header();
    let bitrate = track.bitrate().map_or(0, |(mean, _)| mean);
    TrackInfo {
        rendition: track.rendition.clone(),
        ..TrackInfo::new(&track.name, &header.track, bitrate, track.frame_rate())
    }
}

impl TrackInfo {
    pub(super) fn new(
        name: &str,
        media: &media::Track,
        bitrate: u64,
        frame_rate: Option<(u32, u32)>,
    ) -> Self {
        let video = media.kind() == Kind::Video;
        let (width, height) = media.codec.resolution().unzip();
        let (sample_rate, channels) = media.codec.audio().unzip();
        Self {
            name: name.to_owned(),
            kind: if video { TrackKind::Video } else { TrackKind::Audio },
            codec: media.codec.rfc6381().into_owned(),
            bitrate,
            rendition: None,
            width,
            height,
            frame_rate: frame_rate
                .filter(|_| video)
                .map(|(n, d)| (f64::from(n) / f64::from(d) * 1000.0).round() / 1000.0),
            sample_rate,
            channels,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::once;
    use super::*;

    #[tokio::test]
    async fn a_secret_for_the_api_shows_addresses_in_the_answer_about_one_stream() {
        let rule = "[control]\nadmin = []\n\
            [[access.rule]]\nactions = [\"api\"]\nuser = \"op\"\npassword = \"pw\"\n";
        let config = crate::config::Config::parse(rule, std::path::Path::new("h.toml")).unwrap();
        let origin = Arc::new(Origin::new(config));
        let control = Arc::new(Control::new(Arc::clone(&origin), None));
        let peer = SocketAddr::from(([192, 0, 2, 1], 1000));
        let info = live::PublisherInfo { peer: Some(peer), protocol: "test", rendition: None };
        let _publisher = origin.registry.publish("a", info, origin.now()).unwrap();
        let shows_address = async |query: &str| {
            let uri = format!("/api/v1/streams/live/a?{query}").parse().unwrap();
            let (state, name) = (extract::State(Arc::clone(&control)), Path("live/a".to_owned()));
            let answer = single(state, ConnectInfo(peer), name, uri, HeaderMap::new()).await;
            let body = axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap();
            String::from_utf8_lossy(&body).contains("192.0.2.1:1000")
        };
        let right = "user=op&password=pw";
        let credentials = Credentials { query: right, ..Credentials::default() };
        // No secret is tried here: one counts that this address gave before, and that was right for the API.
        assert!(!shows_address(right).await);
        may(&origin, Action::Observe, peer, credentials).await.unwrap();
        assert!(shows_address(right).await);
        assert!(!shows_address("").await);
        assert!(!shows_address("user=op&password=guess").await);
    }

    /// The list is the most expensive answer.
    #[tokio::test(start_paused = true)]
    async fn the_list_is_rendered_once_a_second_however_many_streams_are_asked_for() {
        let origin = Arc::new(Origin::new(crate::config::Config::default()));
        let control = Arc::new(Control::new(Arc::clone(&origin), None));
        let peer = || ConnectInfo(SocketAddr::from(([192, 0, 2, 1], 1000)));
        let mut publishers = Vec::new();
        let mut publish = |name: String| {
            let info = live::PublisherInfo { peer: None, protocol: "test", rendition: None };
            publishers.push(origin.registry.publish(&name, info, origin.now()).unwrap());
        };
        for i in 0..once::MOST + 1 {
            publish(format!("s{i}"));
            let (name, state) = (Path(format!("live/s{i}")), extract::State(Arc::clone(&control)));
            let answer = single(state, peer(), name, Uri::default(), HeaderMap::new()).await;
            assert_eq!(answer.status(), StatusCode::OK);
        }
        let listed = async || {
            let state = extract::State(Arc::clone(&control));
            let answer = list(state, Observer { is_admin: false }).await;
            axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap()
        };
        let before = listed().await;
        publish("new".to_owned());
        assert_eq!(listed().await, before);
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
        assert_ne!(listed().await, before);
    }
}
