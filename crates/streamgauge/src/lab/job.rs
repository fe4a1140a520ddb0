//! The jobs that servers can do, the keys of a peer's `[serves]`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What a server can do, the keys of `[serves]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Job {
    /// Any file of the folder of media, whole or in ranges.
    File,
    /// A playlist and segments, as files in that folder.
    Pull,
    /// The segments of such a playlist, pushed over WebSocket.
    Push,
    /// Without HTTP: for each byte received, the number of bytes that was asked for.
    Limit,
    /// A file as an RTMP stream.
    RtmpVod,
    /// A file as HLS, packaged by the server.
    HlsVod,
    /// A file as DASH, packaged by the server.
    DashVod,
    /// A live stream over RTMP.
    RtmpLive,
    /// A live stream as endless FLV over HTTP.
    FlvLive,
    /// A live stream as endless fragmented MP4 over HTTP.
    Mp4Live,
    /// A live stream by HLS with whole segments.
    HlsLive,
    /// A live stream by low-latency HLS.
    LlhlsLive,
    /// A live stream by DASH.
    DashLive,
    /// A live stream, pushed over WebSocket.
    PushLive,
    /// A live stream over WebRTC, by WHEP.
    WhepLive,
}

impl Job {
    const ALL: [(&str, Self); 15] = [
        ("file", Self::File),
        ("pull", Self::Pull),
        ("push", Self::Push),
        ("limit", Self::Limit),
        ("rtmp-vod", Self::RtmpVod),
        ("hls-vod", Self::HlsVod),
        ("dash-vod", Self::DashVod),
        ("rtmp-live", Self::RtmpLive),
        ("flv-live", Self::FlvLive),
        ("mp4-live", Self::Mp4Live),
        ("hls-live", Self::HlsLive),
        ("llhls-live", Self::LlhlsLive),
        ("dash-live", Self::DashLive),
        ("push-live", Self::PushLive),
        ("whep-live", Self::WhepLive),
    ];

    /// Word for the job in files.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, job)| *job == self).map_or("", |(name, _)| name)
    }
}

impl FromStr for Job {
    type Err = UnknownJob;

    fn from_str(word: &str) -> Result<Self, UnknownJob> {
        let known = Self::ALL.iter().find(|(name, _)| *name == word);
        known.map(|(_, job)| *job).ok_or_else(|| UnknownJob(word.to_owned()))
    }
}

/// A word that is no [`Job`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown job `{0}`, expected one of {known}", known = known())]
pub struct UnknownJob(String);

fn known() -> String {
    Job::ALL.map(|(name, _)| name).join(", ")
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
