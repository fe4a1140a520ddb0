//! Players, one for each delivery. [`play`] picks by URL.

mod rtmp;

use std::fmt;
use std::str::FromStr;

use protocol::rtmp::Url as RtmpUrl;

use crate::{Error, Viewer};

/// What is to be played, and so how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// `rtmp://`
    Rtmp(RtmpUrl),
}

impl Target {
    /// What the delivery is called.
    pub fn protocol(&self) -> &'static str {
        match self {
            Self::Rtmp(_) => "rtmp",
        }
    }

    /// Connections that a viewer may have at once.
    pub fn connections(&self) -> u64 {
        match self {
            Self::Rtmp(_) => 1,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rtmp(url) => write!(f, "{}/{}", url.tc_url, url.name),
        }
    }
}

/// A URL that no player takes.
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
            other => Err(bad(&format_args!("{other} is not spoken"))),
        }
    }
}

/// Plays until the stream is over; drop it when the viewer's time is up.
///
/// # Errors
/// The viewer cannot go on, by the server's fault or its own.
pub async fn play(viewer: &Viewer, target: &Target) -> Result<(), Error> {
    match target {
        Target::Rtmp(url) => rtmp::play(viewer, url).await,
    }
}
