use clap::ValueEnum;
use schemars::JsonSchema;
use serde::Serialize;

use super::player::Player;

/// What is done to a player.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Injection {
    /// The first byte of media comes late.
    Delay,
    /// All media come late.
    Latency,
    /// All media come late, and only the server tells when they were captured.
    ServerClock,
    /// The link carries less than the stream's bit rate.
    Rate,
    /// The delivery pauses.
    Outage,
    /// Pictures never come.
    Hole,
    /// A byte is wrong.
    Corruption,
    /// Single packets come only when they are asked for, and those of one picture never come.
    Loss,
}

impl Injection {
    /// All of them, in the order in which they are made.
    pub const ALL: [Self; 8] = [
        Self::Delay,
        Self::Latency,
        Self::ServerClock,
        Self::Rate,
        Self::Outage,
        Self::Hole,
        Self::Corruption,
        Self::Loss,
    ];

    /// Its name, as in the document.
    pub fn name(self) -> &'static str {
        match self {
            Self::Delay => "delay",
            Self::Latency => "latency",
            Self::ServerClock => "server-clock",
            Self::Rate => "rate",
            Self::Outage => "outage",
            Self::Hole => "hole",
            Self::Corruption => "corruption",
            Self::Loss => "loss",
        }
    }

    /// Whether it can be done to a player, and shows in what the player reports.
    pub(super) fn concerns(self, player: Player) -> bool {
        match self {
            // A file has no latency, and its index lists just what is there.
            Self::Latency | Self::Hole => player != Player::File,
            // These have no place for the server's clock.
            Self::ServerClock => {
                !matches!(player, Player::Rtmp | Player::Flv | Player::File | Player::Whep)
            }
            // The others have connections that lose nothing.
            Self::Loss => player == Player::Whep,
            Self::Delay | Self::Rate | Self::Outage | Self::Corruption => true,
        }
    }

    /// Whether the viewer compares the stream with the original.
    pub(super) fn is_compared(self) -> bool {
        matches!(self, Self::Hole | Self::Corruption)
    }
}
