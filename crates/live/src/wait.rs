//! How long viewers wait for a stream, and what for.

use std::sync::Arc;
use std::time::Duration;

use crate::Stream;

/// How long a viewer is kept waiting for something that must come: three target durations
/// (RFC 8216bis 6.2.5.2), or of the least there may be while that is unknown.
pub fn patience(stream: &Stream) -> Duration {
    if !stream.is_settled() {
        return 3 * stream.settings().target_duration;
    }
    3 * stream.target_duration()
}

/// Waits until the stream's manifests can be written; false if that takes too long.
pub async fn ready(stream: &Arc<Stream>) -> bool {
    stream.is_ready()
        || tokio::time::timeout(patience(stream), stream.ready()).await.unwrap_or(false)
}

/// Whether playlists can be told: it is known which tracks there are, and what no segment will
/// exceed. Waits for it; false if that takes too long.
pub async fn settled(stream: &Arc<Stream>) -> bool {
    let known = async { stream.ready().await && stream.settled().await };
    stream.is_ready() && stream.is_settled()
        || tokio::time::timeout(patience(stream), known).await.unwrap_or(false)
}
