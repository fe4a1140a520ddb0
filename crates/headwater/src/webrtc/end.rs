//! How sessions end.

use std::time::Duration;

use str0m::RtcError;

use crate::sessions::Over;

/// After this time without a datagram of its peer a session ends. So does one that is not connected
/// after this time.
pub(super) const SILENCE: Duration = Duration::from_secs(10);

/// Why a session is over.
#[derive(Debug, thiserror::Error)]
pub(super) enum End {
    #[error("the peer ended it")]
    Asked,
    #[error("the connection is lost")]
    Lost,
    /// The error is why the peer's last datagram was refused, if it was.
    #[error("not connected in time{}", .0.as_ref().map(|why| format!(": {why}")).unwrap_or_default())]
    NeverConnected(Option<RtcError>),
    #[error("nothing can be encrypted for the peer")]
    NotEncrypted,
    #[error("nothing came for {} s", SILENCE.as_secs())]
    Silent,
    #[error("the server ends")]
    Drained,
    #[error("{0}")]
    Over(Over),
    #[error("an error of the server")]
    Failed,
    #[error("{0}")]
    Refused(#[from] crate::ingest::Error),
    #[error("another publisher took the stream over")]
    Replaced,
    #[error("{0}")]
    Stream(&'static str),
    #[error("{0}")]
    Rtc(#[from] RtcError),
}
