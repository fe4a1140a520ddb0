//! Requests of WHIP and WHEP.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use http::net::{Full, LogId};
use live::{Delivery, PublishError, PublisherInfo, Stream, Track};
use media::{Codec, Kind};
use str0m::format::Codec as Format;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::offer::codecs::{self, Offered, carried};
use super::offer::ice::{self, Restart};
use super::offer::keys::Keys;
use super::offer::{self, Agreed, Line, Purpose, Refusal};
use super::play::choice;
use super::play::feed::{B_FRAMES, has_b_frames};
use super::play::{self, Watched};
use super::publish::Publish;
use super::server::Server;
use super::sessions::{Asked, Entry, INBOX, Waiting, Wanted, etag};
use crate::Origin;
use crate::access::{self, Action, Credentials, Grant, Verdict};
use crate::events::{Event, refusal};
use crate::ladder::companion::{Sources, Watching};
use crate::path::{StreamPath, published_as, shown};
use crate::sessions::{Doing, Meter, Who};
use crate::traces::Trace;

/// Longest offer, in bytes. Browsers' offers are below 10 KB.
pub(crate) const MOST_OFFER: usize = 64 << 10;

/// The media type of a message about ICE between a peer and the origin (RFC 8840).
const SDP_FRAGMENT: &str = "application/trickle-ice-sdpfrag";

/// Names of a live stream's resources (`deliver/route.rs`), which name no session: a stream may be called `a/whip`.
const RESOURCES: [&str; 6] = ["index.m3u8", "manifest.mpd", "live.mp4", "live.flv", "push", "cmcd"];

/// A request to publish or play by WebRTC.
pub(crate) struct Request<'a> {
    pub(crate) method: &'a Method,
    /// The rest of the path after `/live/`.
    pub(crate) path: &'a str,
    pub(crate) uri: &'a Uri,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) peer: SocketAddr,
    pub(crate) body: Result<Bytes, BytesRejection>,
    /// The token, if the path was a signed one.
    pub(crate) signed: Option<&'a str>,
}

/// The parts of a path below `/live/`.
struct Target<'a> {
    stream: &'a str,
    /// Whether it is WHIP. Otherwise it is WHEP.
    publishes: bool,
    /// The stream and the last component, `whip` or `whep`.
    resource: &'a str,
    session: Option<&'a str>,
}

impl Target<'_> {
    /// The activity of a session for this target, and its protocol.
    fn doing(&self) -> (Doing, &'static str) {
        match self.publishes {
            true => (Doing::Publish, "whip"),
            false => (Doing::Play, Delivery::WebRtc.name()),
        }
    }
}

/// A refusal: its status, and a sentence.
type Refused = (StatusCode, String);

/// Whether a path below `/live/` is for WebRTC.
pub(crate) fn is_signal(path: &str) -> bool {
    target(path).is_some()
}

/// The stream that a path below `/live/` for WebRTC names.
pub(crate) fn stream_of(path: &str) -> Option<&str> {
    target(path).map(|target| target.stream)
}

/// Reads a path below `/live/`. A slash at its end means nothing.
fn target(path: &str) -> Option<Target<'_>> {
    let path = path.trim_end_matches('/');
    let of = |resource, session| {
        let resource: &str = resource;
        let (stream, kind) = resource.rsplit_once('/')?;
        let publishes = match kind {
            "whip" => true,
            "whep" => false,
            _ => return None,
        };
        (!stream.is_empty()).then_some(Target { stream, publishes, resource, session })
    };
    let (before, last) = path.rsplit_once('/')?;
    of(path, None).or_else(|| of(before, Some(last)).filter(|_| !RESOURCES.contains(&last)))
}

/// Answers a request. `None` if its path is not for WebRTC.
pub(crate) async fn respond(server: &Server, request: &Request<'_>) -> Option<Response> {
    let target = target(request.path)?;
    let methods = if target.session.is_some() { "DELETE, PATCH" } else { "POST" };
    let allow = || [(header::ALLOW, format!("{methods}, OPTIONS"))];
    let mut response = match (request.method.as_str(), target.session) {
        ("POST", None) => post(server, request, &target).await,
        ("PATCH", Some(id)) => patch(server, request, &target, id),
        ("DELETE", Some(id)) => end(server, &target, id),
        ("OPTIONS", _) => Ok((StatusCode::NO_CONTENT, allow()).into_response()),
        _ => {
            let why = format!("only {methods}\n");
            Ok((StatusCode::METHOD_NOT_ALLOWED, allow(), why).into_response())
        }
    }
    .unwrap_or_else(|(status, why)| (status, format!("{why}\n")).into_response());
    let is_busy = [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE];
    let is_busy = is_busy.contains(&response.status());
    let headers = response.headers_mut();
    if is_busy {
        // In seconds. A response that already has the header keeps it.
        headers.entry(header::RETRY_AFTER).or_insert(HeaderValue::from_static("1"));
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Ok(origin) = HeaderValue::from_str(&server.origin.config.http.cors_origin)
        && !origin.is_empty()
    {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        for (name, value) in [
            (header::ACCESS_CONTROL_ALLOW_METHODS, "POST, PATCH, DELETE, OPTIONS"),
            (header::ACCESS_CONTROL_ALLOW_HEADERS, "Authorization, Content-Type, If-Match"),
            (header::ACCESS_CONTROL_EXPOSE_HEADERS, "ETag, Location, Retry-After"),
            (header::ACCESS_CONTROL_MAX_AGE, "86400"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
    }
    if request.method == Method::OPTIONS {
        let posts = HeaderValue::from_static("application/sdp");
        headers.insert(HeaderName::from_static("accept-post"), posts);
    }
    Some(response)
}

/// Begins a session, if the peer may have one.
async fn post(
    server: &Server,
    request: &Request<'_>,
    to: &Target<'_>,
) -> Result<Response, Refused> {
    let parent = request.headers.get("traceparent").and_then(|value| value.to_str().ok());
    let traces = &server.origin.traces;
    let mut trace = match to.publishes {
        true => traces.publisher(parent),
        false => traces.viewer(parent, std::time::Instant::now),
    };
    let (doing, by) = to.doing();
    trace.asks(doing, by, &StreamPath::Live(to.stream));
    let verdict = allowed(server, request, to).await;
    trace.phase("access");
    match verdict {
        Ok(grant) => begin(server, request, to, grant, &mut trace)
            .await
            .inspect_err(|(_, why)| trace.failed(why)),
        Err(refusal) => {
            let (peer, stream) = (request.peer, shown(to.resource));
            tracing::info!(%peer, stream, why = %refusal, "webrtc session refused");
            trace.failed(&refusal);
            if to.publishes {
                tell_refused(&server.origin, request, to.stream, &refusal);
            }
            Ok(refusal.into_response())
        }
    }
}

/// Whether the peer may publish, or play.
async fn allowed(server: &Server, request: &Request<'_>, to: &Target<'_>) -> Verdict {
    let path = StreamPath::Live(to.stream);
    let (action, protocol) = match to.publishes {
        true => (Action::Publish(path), "whip"),
        false => (Action::Play(path), "whep"),
    };
    let credentials =
        Credentials { signed: request.signed, ..Credentials::of(request.uri, request.headers) };
    let asked = access::Asked { action, peer: request.peer, protocol, credentials, lasts: true };
    server.origin.access.may(&asked).await
}

/// Begins a session.
async fn begin(
    server: &Server,
    request: &Request<'_>,
    to: &Target<'_>,
    grant: Grant,
    trace: &mut Trace,
) -> Result<Response, Refused> {
    let Server { origin, .. } = server;
    let refuse = |status, why: &str| Err((status, why.to_owned()));
    if origin.is_draining() {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, "draining");
    }
    if to.publishes
        && !is_of_this_site(request.uri, request.headers, &origin.config.http.cors_origin)
    {
        return refuse(StatusCode::FORBIDDEN, "pages of other sites may not publish");
    }
    let offer = text(request, "application/sdp")?;
    // Nothing is made for a peer that has enough sessions.
    let permit = server.gate.admit(request.peer.ip()).map_err(|full| {
        let why = match full {
            Full::Server => "too many sessions",
            Full::Address => "too many sessions of this address",
        };
        tracing::warn!(peer = %request.peer, why, "webrtc session refused");
        if !to.publishes {
            let limit = match full {
                Full::Server => "webrtc.max_sessions",
                Full::Address => "webrtc.max_sessions_per_address",
            };
            origin.events.tell(Event::ViewerLimit { limit, refused: 1 });
        }
        (StatusCode::TOO_MANY_REQUESTS, why.to_owned())
    })?;
    let watched = match to.publishes {
        true => None,
        false => Some(watched(server, to.stream).await?),
    };
    let addresses = server.addresses(request.peer);
    let offered = codecs::offered(offer);
    let (codec, chooses) = match &watched {
        Some(tracks) => {
            let codec = tracks.choose(&offered);
            (codec, codec.is_some_and(|(codec, _)| tracks.has_several(codec)))
        }
        // The publisher's preference is the order of its offer.
        None => (offered.first().copied(), false),
    };
    let purpose = if to.publishes { Purpose::Publish } else { Purpose::Play { chooses } };
    let takes_tcp = origin.config.webrtc.tcp;
    let agreed = offer::agree(&server.identity, offer, purpose, codec, &addresses, takes_tcp);
    let told = |(_, why): &Refused| {
        tracing::info!(peer = %request.peer, stream = shown(to.resource), why, "webrtc offer refused");
    };
    let agreed = agreed.map_err(|refusal| {
        let refused = match refusal {
            Refusal::NoOffer(why) => {
                (StatusCode::BAD_REQUEST, format!("not an SDP offer for this: {why}"))
            }
            Refusal::NoCodec => match watched.as_ref().map(Tracks::refuse_video) {
                Some(Err(refused)) => refused,
                _ => (StatusCode::NOT_ACCEPTABLE, "no H.264, AV1, HEVC or Opus is offered".into()),
            },
        };
        told(&refused);
        refused
    })?;
    let Agreed { rtc, answer, own, peer, video, audio, wants_video, layers, keys } = agreed;
    if wants_video && video.is_none() {
        watched.as_ref().map_or(Ok(()), Tracks::refuse_video).inspect_err(told)?;
    }
    let mut wanted = match watched {
        None => {
            let (role, rendition) = published_as(request.uri.query().unwrap_or_default());
            let info = PublisherInfo { peer: Some(request.peer), protocol: "whip", rendition };
            origin.fetch(to.stream, role).await;
            let publisher = origin.publish(to.stream, role, info);
            let publisher =
                publisher.map_err(|error| refused(origin, error, request, to.stream))?;
            let times =
                (origin.config.webrtc.jitter.into(), origin.config.live.segment_target.into());
            let publish = Publish::new(publisher, times, (video, &layers), audio);
            let publish = publish.map_err(|error| refused(origin, error, request, to.stream))?;
            Wanted::Publish(Box::new(publish))
        }
        Some(tracks) => Wanted::Play(tracks.watch(server, (video, audio), keys, &own.ufrag)?),
    };
    let epoch = match &wanted {
        Wanted::Play(watched) => play::epoch(&watched.stream),
        Wanted::Publish(_) => None,
    };
    let answer = match epoch {
        Some(epoch) => offer::tell_clock(&answer, epoch),
        None => answer,
    };
    let (inbox, messages) = mpsc::channel(INBOX);
    let fragment = own.ufrag.clone();
    // The fragment travels in the clear. The rest is as random as a password.
    let id = format!("{fragment}{}", str0m::IceCreds::new().pass);
    let (doing, by) = to.doing();
    let path = StreamPath::Live(to.stream).to_string();
    let listed = origin.sessions.begin(Who { doing, path, by, peer: request.peer }, grant);
    match &mut wanted {
        Wanted::Publish(publish) => {
            publish.meter = listed.meter().clone();
            publish.trace(std::mem::take(trace));
        }
        Wanted::Play(watched) => {
            watched.meter = listed.meter().clone();
            watched.trace = std::mem::take(trace);
            // A feed sends the first packet.
            watched.trace.keep_names();
        }
    }
    let waiting = Waiting {
        rtc,
        wanted,
        inbox: messages,
        peer: request.peer,
        permit,
        listed,
        id: LogId::current(),
    };
    let entry = Entry {
        id: id.clone(),
        resource: to.resource.to_owned(),
        own,
        peer,
        next: None,
        restarted: None,
        head: ice::head(&answer),
        inbox,
        publishes: to.publishes.then(|| to.stream.to_owned()),
        waiting: Some((Instant::now(), Box::new(waiting))),
        addresses: 0,
        ever: 0,
    };
    let tag = etag(&fragment);
    server.sessions.add(fragment, entry);
    let location = format!("/live/{}/{id}", to.resource);
    let headers = [
        (header::CONTENT_TYPE, "application/sdp".to_owned()),
        (header::LOCATION, location),
        (header::ETAG, tag),
        (HeaderName::from_static("accept-patch"), SDP_FRAGMENT.to_owned()),
    ];
    Ok((StatusCode::CREATED, headers, answer).into_response())
}

/// Whether a request comes from a page of this server, from a page of the one site that
/// `http.cors_origin` names, or from no page. Any page that a user opens could otherwise publish on
/// a server that only that user reaches: here `*` names no site.
fn is_of_this_site(uri: &Uri, headers: &HeaderMap, allowed: &str) -> bool {
    let Some(origin) = headers.get(header::ORIGIN) else { return true };
    origin.as_bytes() == allowed.as_bytes() || access::is_of_own_page(uri, headers)
}

/// The tracks of a stream that WebRTC can carry, and the tracks that a companion can convert for it.
struct Tracks {
    stream: Arc<Stream>,
    /// H.264 without B-frames, AV1, and HEVC without B-frames.
    avc: Option<Arc<Track>>,
    av1: Option<Arc<Track>>,
    hevc: Option<Arc<Track>>,
    /// Whether there is HEVC with B-frames. No companion converts it.
    is_reordered: bool,
    audio: Option<Arc<Track>>,
    sources: Sources,
}

impl Tracks {
    /// The codecs of video, by preference. More viewers have decoders in hardware for H.264, but AV1 and HEVC are
    /// better than H.264 that a companion has to make.
    fn codecs(&self) -> impl Iterator<Item = Format> {
        let avc = self.avc.as_ref().map(|_| Format::H264);
        let av1 = self.av1.as_ref().map(|_| Format::Av1);
        let hevc = self.hevc.as_ref().map(|_| Format::H265);
        let made = self.sources.video.as_ref().map(|_| Format::H264);
        avc.into_iter().chain(av1).chain(hevc).chain(made)
    }

    /// The codec of video for a viewer who can take one of these.
    fn choose(&self, offered: &[Offered]) -> Option<Offered> {
        self.codecs().find_map(|own| offered.iter().find(|(codec, _)| *codec == own)).copied()
    }

    /// Whether there are renditions in a codec to choose from.
    fn has_several(&self, codec: Format) -> bool {
        let makes_one = codec == Format::H264 && self.sources.video.is_some();
        choice::has_several(&self.stream.state(), codec, makes_one)
    }

    /// Refuses a viewer who wants to see the stream, and has no codec of its video.
    fn refuse_video(&self) -> Result<(), Refused> {
        let names: Vec<_> = self.codecs().map(codecs::name).collect();
        let why = match names.as_slice() {
            [] if self.is_reordered => B_FRAMES.to_owned(),
            [] => return Ok(()),
            names => format!("the stream's video is {}, which is not offered", names.join(" or ")),
        };
        Err((StatusCode::NOT_ACCEPTABLE, why))
    }

    /// Selects the tracks for a viewer who accepts video and audio by these lines.
    fn watch(
        self,
        server: &Server,
        (video, audio): (Option<Line>, Option<Line>),
        keys: Keys,
        cname: &str,
    ) -> Result<Watched, Refused> {
        let Self { stream, avc, av1, hevc, audio: opus, sources, .. } = self;
        let codec = video.map(|line| line.codec);
        let is_avc = codec == Some(Format::H264);
        let needs_video = is_avc && sources.video.is_some();
        let needs_audio = audio.is_some() && sources.audio.is_some();
        let companion = if needs_video || needs_audio {
            server.companions.watch(&stream, sources)
        } else {
            None
        };
        let made = companion.as_ref();
        if needs_video && made.is_none() {
            return Err((StatusCode::NOT_ACCEPTABLE, B_FRAMES.to_owned()));
        }
        let made_video = made.and_then(Watching::video).filter(|_| is_avc);
        let video_track = match codec {
            Some(Format::Av1) => av1,
            Some(Format::H265) => hevc,
            _ => avc,
        };
        let video_track = video_track.or_else(|| made_video.cloned());
        let video_track =
            video_track.map(|track| choice::begin(&stream.state(), made_video, track));
        let audio_track = opus.or_else(|| made?.audio().cloned());
        let (video, audio) = (video.zip(video_track), audio.zip(audio_track));
        if video.is_none() && audio.is_none() {
            let why = "the stream has no track that the offer could carry";
            return Err((StatusCode::NOT_ACCEPTABLE, why.to_owned()));
        }
        let cname = cname.to_owned();
        let (meter, trace) = (Meter::default(), Trace::default());
        Ok(Watched { stream, video, audio, companion, keys, cname, meter, trace })
    }
}

async fn watched(server: &Server, name: &str) -> Result<Tracks, Refused> {
    let stream = match server.origin.stream(name).await {
        Ok(Some(stream)) => stream,
        Ok(None) => return Err((StatusCode::NOT_FOUND, "no such stream".to_owned())),
        Err(error) => return Err((StatusCode::SERVICE_UNAVAILABLE, error.to_string())),
    };
    let state = stream.state();
    let find = |ours: fn(&Codec) -> bool| {
        let mut tracks = state.tracks.iter().filter(|track| track.is_present());
        tracks.find(|track| ours(&track.header().track.codec)).cloned()
    };
    let avc = find(|codec| carried(codec) == Some(Format::H264));
    let av1 = find(|codec| carried(codec) == Some(Format::Av1));
    let hevc = find(|codec| carried(codec) == Some(Format::H265));
    let audio = find(|codec| matches!(codec, Codec::Opus(_)));
    let aac = find(|codec| matches!(codec, Codec::Aac(_)));
    // A publisher that returns is there before its tracks are, and its audio may come first.
    let has = |kind: Kind, present: bool| {
        state.tracks.iter().any(|track| track.kind == kind && track.is_present() == present)
    };
    let awaits_video = has(Kind::Video, false) && !has(Kind::Video, true);
    let has_none = !has(Kind::Video, true) && !has(Kind::Audio, true);
    let is_live = state.status != live::Status::Ended;
    if state.tracks.is_empty() || is_live && (awaits_video || has_none) {
        return Err((StatusCode::SERVICE_UNAVAILABLE, "the stream has no media yet".to_owned()));
    }
    // Audio alone is for streams that have nothing else.
    let is_audio_only = aac.is_some() && state.tracks.iter().all(|track| track.kind == Kind::Audio);
    let has_video = avc.is_some() || av1.is_some() || hevc.is_some();
    if !has_video && audio.is_none() && !is_audio_only {
        let why =
            "the stream has no H.264, AV1, HEVC or Opus, and WebRTC carries nothing else here";
        return Err((StatusCode::NOT_ACCEPTABLE, why.to_owned()));
    }
    let (video, avc) = avc.map_or((None, None), |avc| match has_b_frames(&avc) {
        true => (Some(avc), None),
        false => (None, Some(avc)),
    });
    let is_reordered = hevc.as_ref().is_some_and(|hevc| has_b_frames(hevc));
    let hevc = hevc.filter(|_| !is_reordered);
    let sources = Sources { audio: aac.filter(|_| audio.is_none()), video };
    Ok(Tracks { stream, avc, av1, hevc, is_reordered, audio, sources })
}

/// The payload of a request, if it has this type and is text.
fn text<'a>(request: &'a Request<'_>, wanted: &str) -> Result<&'a str, Refused> {
    let kind = request.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case(wanted) {
        return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, format!("the payload must be {wanted}")));
    }
    let body = request.body.as_ref().map_err(|rejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            (StatusCode::PAYLOAD_TOO_LARGE, format!("more than {MOST_OFFER} bytes"))
        }
        status => (status, "the payload is not complete".to_owned()),
    })?;
    std::str::from_utf8(body).map_err(|_| (StatusCode::BAD_REQUEST, "not UTF-8".to_owned()))
}

fn refused(origin: &Origin, error: PublishError, request: &Request<'_>, stream: &str) -> Refused {
    let (error, why) = refusal(error);
    tell_refused(origin, request, stream, &why);
    tracing::warn!(peer = %request.peer, stream = shown(stream), %error, "publish refused");
    let status = match error {
        PublishError::InUse(_) | PublishError::Elsewhere => StatusCode::CONFLICT,
        PublishError::BadName(_)
        | PublishError::BadRendition(_)
        | PublishError::BackupOfRendition => StatusCode::BAD_REQUEST,
        PublishError::Foreign => StatusCode::FORBIDDEN,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, why)
}

/// Tells operators of a publisher that is refused.
fn tell_refused(origin: &Origin, request: &Request<'_>, stream: &str, why: &dyn std::fmt::Display) {
    let path = StreamPath::Live(shown(stream)).to_string();
    origin.events.tell(Event::refused(&path, "whip", request.peer, why));
}

/// Takes a peer's candidates or its new ICE credentials.
///
/// No candidate is needed: the peer's STUN requests come from these addresses. If the credentials are new,
/// ICE restarts.
fn patch(
    server: &Server,
    request: &Request<'_>,
    to: &Target<'_>,
    id: &str,
) -> Result<Response, Refused> {
    let fragment = text(request, SDP_FRAGMENT)?;
    let peer = ice::credentials(fragment)
        .map_err(|why| (StatusCode::BAD_REQUEST, format!("not an SDP fragment: {why}")))?;
    let tag = request.headers.get(header::IF_MATCH).map(|tag| tag.to_str().unwrap_or_default());
    let takes_tcp = server.origin.config.webrtc.tcp;
    let candidates = || ice::candidates(&server.addresses(request.peer), takes_tcp);
    let restart = peer.map(|peer| Restart::new(peer, candidates(), fragment));
    let asked = server.sessions.patch((to.resource, id), tag, restart, Instant::now());
    if matches!(asked, Asked::Restart(..)) {
        tracing::info!(peer = %request.peer, stream = to.resource, "ice restart");
    }
    match asked {
        Asked::Restart(restart, head) | Asked::Again(restart, head) => {
            let headers = [
                (header::CONTENT_TYPE, SDP_FRAGMENT.to_owned()),
                (header::ETAG, etag(&restart.own.ufrag)),
            ];
            let told = restart.tell(&head, &server.identity.crypto());
            Ok((StatusCode::OK, headers, told).into_response())
        }
        asked => answer(&asked, StatusCode::NO_CONTENT),
    }
}

/// Ends a session.
fn end(server: &Server, to: &Target<'_>, id: &str) -> Result<Response, Refused> {
    answer(&server.sessions.end(to.resource, id), StatusCode::OK)
}

fn answer(asked: &Asked, done: StatusCode) -> Result<Response, Refused> {
    let (status, why) = match asked {
        Asked::Done | Asked::Restart(..) | Asked::Again(..) => return Ok(done.into_response()),
        Asked::Unknown => (StatusCode::NOT_FOUND, "no such session"),
        Asked::OtherTag => (StatusCode::PRECONDITION_FAILED, "If-Match has another tag"),
        Asked::NoTag => (StatusCode::PRECONDITION_REQUIRED, "an ICE restart needs If-Match: *"),
        Asked::TooSoon => (StatusCode::TOO_MANY_REQUESTS, "ICE restarts once a second at most"),
    };
    Err((status, why.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_of_this_site_or_of_the_one_that_is_configured_publish() {
        let within = |target: &'static str, host: Option<&'static str>, origin, allowed| {
            let mut headers = HeaderMap::new();
            for (name, value) in [(header::HOST, host), (header::ORIGIN, origin)] {
                value.map(|value| headers.insert(name, HeaderValue::from_static(value)));
            }
            is_of_this_site(&Uri::from_static(target), &headers, allowed)
        };
        let of = |origin, allowed| within("/live/x/whip", Some("tv.example:8080"), origin, allowed);
        assert!(of(None, "*"), "a program is no page");
        assert!(of(Some("http://tv.example:8080"), "*"));
        assert!(of(Some("https://studio.example"), "https://studio.example"));
        for origin in ["https://elsewhere.example", "http://tv.example", "null"] {
            assert!(!of(Some(origin), "*") && !of(Some(origin), "https://studio.example"));
        }
        // HTTP/2 has the host in the URI.
        let of = |origin| within("https://tv.example/live/x/whip", None, Some(origin), "*");
        assert!(of("https://tv.example") && !of("https://elsewhere.example"));
    }

    #[test]
    fn what_paths_name() {
        let of = |path| target(path).map(|to| (to.stream, to.publishes, to.resource, to.session));
        assert_eq!(of("a/whip"), Some(("a", true, "a/whip", None)));
        assert_eq!(of("a/b/whep"), Some(("a/b", false, "a/b/whep", None)));
        assert_eq!(of("a/whep/x"), Some(("a", false, "a/whep", Some("x"))));
        assert_eq!(of("a/whip/whip"), Some(("a/whip", true, "a/whip/whip", None)));
        assert_eq!(of("a/whip/"), of("a/whip"));
        assert_eq!(of("a/whep/x//"), of("a/whep/x"));
        for path in ["a", "whip", "/whip", "whip/", "/", "a/index.m3u8", "a/whip/x/y", "a/WHIP"] {
            assert_eq!(of(path), None, "{path}");
        }
        // These are resources of the streams `a/whip` and `a/whep`.
        for path in ["a/whip/index.m3u8", "a/whep/push", "a/whip/cmcd/", "a/whip/v0/init.mp4"] {
            assert_eq!(of(path), None, "{path}");
        }
    }
}
