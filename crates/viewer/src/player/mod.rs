//! Players, one for each delivery. [`play`] picks one by the URL.

mod dash;
mod hls;
mod progressive;
mod push;
mod rtmp;
#[cfg(test)]
mod times;
mod whep;

pub use dash::timeline;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use protocol::rtmp::Url as RtmpUrl;
use tokio::time::sleep;

use crate::url::Url;
use crate::{Error, Kind, Micros, Viewer};

/// What to play. The kind decides which player plays it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// `rtmp://`, `rtmps://`
    Rtmp(RtmpUrl),
    /// `….m3u8`
    Hls(Url),
    /// `….mpd`
    Dash(Url),
    /// `….flv`, a file or a stream
    Flv(Url),
    /// Anything else over HTTP: an MP4, fragmented or not, a file or a stream
    Mp4(Url),
    /// `ws://`, `wss://`: CMAF by WebSocket
    Push(Url),
    /// `…/whep`: WebRTC
    Whep(Url),
}

impl Target {
    /// Name of the delivery.
    pub fn protocol(&self) -> &'static str {
        match self {
            Self::Rtmp(_) => "rtmp",
            Self::Hls(_) => "hls",
            Self::Dash(_) => "dash",
            Self::Flv(_) => "flv",
            Self::Mp4(_) => "mp4",
            Self::Push(_) => "push",
            Self::Whep(_) => "whep",
        }
    }

    /// Most connections that a viewer has at once.
    pub fn connections(&self) -> u64 {
        match self {
            Self::Rtmp(_) | Self::Flv(_) | Self::Mp4(_) | Self::Push(_) => 1,
            // Of WHEP, one is for the requests at the beginning and the end.
            Self::Hls(_) | Self::Whep(_) => 2,
            Self::Dash(_) => 3,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rtmp(url) => write!(f, "{}/{}", url.tc_url, url.name),
            Self::Hls(url)
            | Self::Dash(url)
            | Self::Flv(url)
            | Self::Mp4(url)
            | Self::Push(url)
            | Self::Whep(url) => url.fmt(f),
        }
    }
}

/// A URL that no player can play.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{url}: {why}")]
pub struct UnknownTarget {
    url: String,
    why: String,
}

impl FromStr for Target {
    type Err = UnknownTarget;

    fn from_str(url: &str) -> Result<Self, UnknownTarget> {
        let bad =
            |why: &dyn fmt::Display| UnknownTarget { url: url.to_owned(), why: why.to_string() };
        let (scheme, _) = url.split_once("://").ok_or_else(|| bad(&"a URL without a scheme"))?;
        match scheme.to_ascii_lowercase().as_str() {
            "rtmp" => RtmpUrl::parse(url).map(Self::Rtmp).map_err(|error| bad(&error.what)),
            "rtmps" => rtmps(url).map(Self::Rtmp).map_err(|error| bad(&error.what)),
            "ws" | "wss" => Url::parse(url).map(Self::Push).map_err(|error| bad(&error.what)),
            "http" | "https" => {
                let parsed = Url::parse(url).map_err(|error| bad(&error.what))?;
                if parsed.path().trim_end_matches('/').ends_with("/whep") {
                    return Ok(Self::Whep(parsed));
                }
                Ok(match parsed.path().rsplit('.').next() {
                    Some("m3u8" | "m3u") => Self::Hls(parsed),
                    Some("mpd") => Self::Dash(parsed),
                    Some("flv") => Self::Flv(parsed),
                    _ => Self::Mp4(parsed),
                })
            }
            other => Err(bad(&format_args!("{other} is not spoken"))),
        }
    }
}

/// Parses the URL of RTMP over TLS. It differs from RTMP in its scheme and default port.
fn rtmps(url: &str) -> Result<RtmpUrl, protocol::rtmp::Error> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let mut parsed = RtmpUrl::parse(&format!("rtmp://{rest}"))?;
    let authority = rest.split('/').next().unwrap_or_default();
    let host = authority.rfind(']').map_or(authority, |end| authority.get(end..).unwrap_or(""));
    if !host.contains(':') {
        parsed.port = 443;
    }
    parsed.tc_url = parsed.tc_url.replacen("rtmp", "rtmps", 1);
    Ok(parsed)
}

/// Plays until the stream is over. Drop the future when the viewer's time is up.
///
/// # Errors
/// The viewer cannot go on; the cause is the server or this machine.
pub async fn play(viewer: &Viewer, target: &Target) -> Result<(), Error> {
    let again = viewer.lane.options.reconnect;
    match target {
        // Boxed: each viewer takes only the memory that its own player needs.
        Target::Rtmp(url) => {
            reconnecting(viewer, again, || Box::pin(rtmp::play(viewer, url))).await
        }
        Target::Hls(url) => Box::pin(hls::play(viewer, url)).await,
        Target::Dash(url) => Box::pin(dash::play(viewer, url)).await,
        Target::Flv(url) => {
            reconnecting(viewer, again, || Box::pin(progressive::flv(viewer, url))).await
        }
        Target::Mp4(url) => {
            reconnecting(viewer, again, || Box::pin(progressive::mp4(viewer, url))).await
        }
        Target::Push(url) => reconnecting(viewer, true, || Box::pin(push::play(viewer, url))).await,
        Target::Whep(url) => {
            reconnecting(viewer, again, || Box::pin(whep::play(viewer, url))).await
        }
    }
}

/// Plays by one connection. If `again` is true, a connection that is lost after media came is made again.
async fn reconnecting<F: Future<Output = Result<(), Error>> + Unpin>(
    viewer: &Viewer,
    again: bool,
    play: impl Fn() -> F,
) -> Result<(), Error> {
    let mut tries = Tries::default();
    let mut began = false;
    loop {
        let before = viewer.stats().media_bytes;
        let Err(error) = play().await else { return Ok(()) };
        if viewer.stats().media_bytes > before {
            began = true;
            tries.reset();
        }
        // A server that has just begun may not have the stream yet.
        let passes =
            matches!(error.kind, Kind::Dropped | Kind::Timeout | Kind::Refused | Kind::Status);
        if !(again && began && passes) {
            return Err(error);
        }
        tries.failed(viewer, error).await?;
        viewer.stats().reconnects += 1;
    }
}

/// Removes what the viewer has at the server, if there is anything, once its player is done. What
/// it watched ends before that.
pub async fn part(viewer: &Viewer) {
    let session = viewer.session.take();
    if let Some(session) = session {
        let now = viewer.now();
        if let Some(webrtc) = viewer.stats().webrtc.as_deref_mut() {
            webrtc.left = Some(now);
        }
        Box::pin(whep::end(viewer, &session)).await;
    }
}

/// Fewer bytes do not tell how fast a connection is.
const TELLING: u64 = 16 << 10;

/// Measures what a connection carries.
#[derive(Debug, Default)]
struct Link {
    /// Bits per second; 0 if not known.
    rate: f64,
    /// Bytes that are not in the rate yet, and the microseconds that they took. Each viewer keeps them,
    /// so they are small.
    pending: (u32, u32),
}

impl Link {
    /// Takes the bytes of an answer and the time that they took. Short answers count together, once
    /// they have enough bytes.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    fn measure(&mut self, bytes: u64, took: Micros) {
        let bytes = bytes + u64::from(self.pending.0);
        let took = took + Micros::from(self.pending.1);
        if bytes < TELLING {
            let short = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
            self.pending = (short(bytes), short(took.max(0).unsigned_abs()));
            return;
        }
        self.pending = (0, 0);
        let now = (bytes as f64 * 8e6 / took.max(1) as f64).max(1.0);
        // It averages times, not rates: quick answers long ago do not make up for one slow answer.
        self.rate = self.rate().map_or(now, |before| 1.0 / (0.7 / before + 0.3 / now));
    }

    /// Bits per second, if known.
    fn rate(&self) -> Option<f64> {
        (self.rate > 0.0).then_some(self.rate)
    }
}

/// How many failures in a row a player gets over.
const TRIES: u32 = 3;
/// The first pause after a failure. Each further pause is twice as long.
const PAUSE: Duration = Duration::from_millis(250);

/// Counts failures in a row.
#[derive(Debug, Default)]
struct Tries(u32);

impl Tries {
    /// Resets the count after a success.
    fn reset(&mut self) {
        self.0 = 0;
    }

    /// Whether one more failure would be too many.
    fn are_spent(&self) -> bool {
        self.0 >= TRIES
    }

    /// Counts a failure and waits a little.
    ///
    /// # Errors
    /// The failure itself, if it was one too many or trying again is of no use.
    async fn failed(&mut self, viewer: &Viewer, error: Error) -> Result<(), Error> {
        self.0 += 1;
        if self.0 > TRIES || error.kind == Kind::Corrupt {
            return Err(error);
        }
        viewer.trouble(error.kind);
        sleep(PAUSE * (1 << (self.0 - 1))).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Clock, Lane, Options, Totals};

    #[test]
    fn targets_by_url() {
        for (url, protocol) in [
            ("rtmp://h/live/x", "rtmp"),
            ("rtmps://h/live/x", "rtmp"),
            ("https://h/x.m3u8", "hls"),
            ("HTTP://h/x.mpd?a", "dash"),
            ("ws://h/x", "push"),
            ("wss://h/x.m3u8", "push"),
            ("https://h/x", "mp4"),
            ("https://h/live/x.flv/whep?token=1", "whep"),
            ("http://h/rtc/v1/whep/?stream=x", "whep"),
            ("http://h/whep.mp4", "mp4"),
        ] {
            assert_eq!(url.parse::<Target>().unwrap().protocol(), protocol, "{url}");
        }
        for (url, port) in [("rtmps://[::1]/a/b", 443), ("rtmps://h:1/a/b", 1)] {
            let Target::Rtmp(parsed) = url.parse().unwrap() else { panic!() };
            assert_eq!((parsed.port, format!("{}/b", parsed.tc_url)), (port, url.to_owned()));
        }
        assert!("ftp://h/x".parse::<Target>().is_err());
    }

    /// A viewer that is not verified costs its future, its counters, and some 200 bytes for each
    /// connection. It may cost 8 KiB. One by WHEP has str0m's state besides.
    #[tokio::test]
    async fn futures_are_small() {
        let lane = Lane::new(Clock::start(), Options::default(), Totals::default().into());
        let viewer = Viewer::join(&lane, (0, 0), false, None);
        let url = Url::nowhere();
        let rtmp_url = RtmpUrl::parse("rtmp://h/live/x").expect("a URL");
        for (name, size, most) in [
            ("viewer", size_of::<Viewer>(), 700),
            ("rtmp", size_of_val(&rtmp::play(&viewer, &rtmp_url)), 2000),
            ("hls", size_of_val(&hls::play(&viewer, &url)), 500),
            ("hls playlist", hls::size_of_playing(&viewer), 2000),
            ("dash", size_of_val(&dash::play(&viewer, &url)), 5500),
            ("mp4", size_of_val(&progressive::mp4(&viewer, &url)), 2000),
            ("flv", size_of_val(&progressive::flv(&viewer, &url)), 2000),
            ("push", size_of_val(&push::play(&viewer, &url)), 1000),
            ("whep", size_of_val(&whep::play(&viewer, &url)), 2000),
        ] {
            assert!(size <= most, "{name}: {size} bytes");
        }
    }
}
