//! The players of the instrument, and what the bundled server must know of each.

use std::net::SocketAddr;
use std::time::Duration;

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::Serialize;

use super::stream::FRAME;

/// A player that is calibrated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Player {
    /// RTMP.
    Rtmp,
    /// HTTP-FLV.
    Flv,
    /// An endless fragmented MP4 over HTTP.
    Mp4,
    /// A file over HTTP: an MP4 that is not fragmented, with its index in front.
    File,
    /// CMAF chunks by WebSocket.
    Push,
    /// HLS with parts, blocking reloads and hints.
    LlHls,
    /// HLS with whole segments, by polling.
    Hls,
    /// DASH with chunks of segments that are being made.
    Dash,
    /// WebRTC by WHEP.
    Whep,
}

/// Where the bundled server listens.
#[derive(Debug, Clone, Copy)]
pub(super) struct Addresses {
    /// HTTP, with WebSocket and WHEP.
    pub(super) http: SocketAddr,
    /// RTMP.
    pub(super) rtmp: SocketAddr,
}

impl Player {
    /// All players.
    pub const ALL: [Self; 9] = [
        Self::Rtmp,
        Self::Flv,
        Self::Mp4,
        Self::File,
        Self::Push,
        Self::LlHls,
        Self::Hls,
        Self::Dash,
        Self::Whep,
    ];

    /// Its name, as in the document.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rtmp => "rtmp",
            Self::Flv => "flv",
            Self::Mp4 => "mp4",
            Self::File => "file",
            Self::Push => "push",
            Self::LlHls => "ll-hls",
            Self::Hls => "hls",
            Self::Dash => "dash",
            Self::Whep => "whep",
        }
    }

    /// What the player plays.
    pub(super) fn url(self, server: Addresses) -> String {
        let Addresses { http, rtmp } = server;
        match self {
            Self::Rtmp => format!("rtmp://{rtmp}/calibrate/stream"),
            Self::Flv => format!("http://{http}/live.flv"),
            Self::Mp4 => format!("http://{http}/live.mp4"),
            Self::File => format!("http://{http}/film.mp4"),
            Self::Push => format!("ws://{http}/push"),
            Self::LlHls | Self::Hls => format!("http://{http}/media.m3u8"),
            Self::Dash => format!("http://{http}/manifest.mpd"),
            Self::Whep => format!("http://{http}/whep"),
        }
    }

    /// How many frames come at once: one, a chunk, or a segment.
    pub(super) fn piece(self) -> u32 {
        match self {
            Self::Rtmp | Self::Flv | Self::Whep => 1,
            Self::Mp4 | Self::File | Self::Push | Self::LlHls | Self::Dash => PART,
            Self::Hls => SEGMENT,
        }
    }

    /// How many frames of a live stream exist when the player comes. A player of parts or segments begins
    /// three of them from the end (RFC 8216bis 4.4.3.8). The others get as much as a player of parts.
    pub(super) fn backlog(self) -> u32 {
        match self {
            Self::Hls => 3 * SEGMENT,
            _ => 3 * PART,
        }
    }

    /// How long before the player asks for it a segment is there. A player that polls asks once a second, so this is
    /// the latency that polling adds.
    pub(super) fn polls_after(self) -> Duration {
        match self {
            Self::Hls => Duration::from_millis(100),
            _ => Duration::ZERO,
        }
    }

    /// The duration of the last frame, if the delivery does not tell it before the next frame comes.
    pub(super) fn last_picture(self) -> Duration {
        match self {
            Self::Rtmp | Self::Flv | Self::Whep => FRAME,
            _ => Duration::ZERO,
        }
    }
}

/// Frames in a chunk or part: 200 ms.
pub(super) const PART: u32 = 5;
/// Frames in a segment: 1 s.
pub(super) const SEGMENT: u32 = 25;
