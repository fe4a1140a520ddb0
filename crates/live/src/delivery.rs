//! The ways in which viewers get streams.

/// The protocol by which a viewer watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Delivery {
    /// Low-latency HLS, known by its blocking reloads.
    LlHls,
    /// HLS.
    Hls,
    /// DASH.
    Dash,
    /// Progressive MP4.
    Mp4,
    /// HTTP-FLV.
    Flv,
    /// RTMP.
    Rtmp,
    /// Push over WebSocket.
    Push,
    /// WebRTC.
    WebRtc,
}

impl Delivery {
    /// Every delivery.
    pub const ALL: [Self; 8] = [
        Self::LlHls,
        Self::Hls,
        Self::Dash,
        Self::Mp4,
        Self::Flv,
        Self::Rtmp,
        Self::Push,
        Self::WebRtc,
    ];

    /// Name in the API and in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::LlHls => "llhls",
            Self::Hls => "hls",
            Self::Dash => "dash",
            Self::Mp4 => "mp4",
            Self::Flv => "flv",
            Self::Rtmp => "rtmp",
            Self::Push => "push",
            Self::WebRtc => "webrtc",
        }
    }
}
