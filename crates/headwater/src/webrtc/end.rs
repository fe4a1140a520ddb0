//! How sessions end.

use std::time::Duration;

use str0m::RtcError;

use crate::sessions::Over;

/// After this time without a datagram of its peer a session ends. So does one that is not connected
/// after this time, unless its peer is still heard of.
pub(super) const SILENCE: Duration = Duration::from_secs(10);

/// After this time a session that is not connected ends in any case.
pub(super) const CONNECTS: Duration = Duration::from_secs(30);

/// How far a peer came that did not connect.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unconnected {
    /// Its datagrams came, and no path was agreed on.
    #[error("ICE has not ended")]
    Ice,
    #[error("DTLS has not ended")]
    Dtls,
    /// Why its last datagram was refused.
    #[error("{0}")]
    Refused(RtcError),
}

/// Why a session is over.
#[derive(Debug, thiserror::Error)]
pub(super) enum End {
    #[error("the peer ended it")]
    Asked,
    #[error("the connection is lost")]
    Lost,
    #[error("not connected in time: {0}")]
    NeverConnected(Unconnected),
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
