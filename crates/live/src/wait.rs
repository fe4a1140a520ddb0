//! How long viewers wait for a stream, and what for.

use std::sync::Arc;
use std::time::Duration;

use crate::{State, Status, Stream, Track};

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
/// exceed. Waits for it; false if that takes too long, or will not be.
pub async fn settled(stream: &Arc<Stream>) -> bool {
    let has_nothing = |state: &State| state.tracks.iter().all(|track| is_empty(track));
    let known = async {
        tokio::select! {
            biased;
            known = async { stream.ready().await && stream.settled().await } => known,
            () = cut_short(stream, has_nothing) => false,
        }
    };
    stream.is_ready() && stream.is_settled()
        || tokio::time::timeout(patience(stream), known).await.unwrap_or(false)
}

/// Whether no segment of it is complete.
pub fn is_empty(track: &Track) -> bool {
    track.window().segments.is_empty()
}

/// Waits until the stream's publisher has gone while it still has nothing of what is waited for: unless
/// somebody returns, nothing comes then.
pub async fn cut_short(stream: &Stream, has_nothing: impl Fn(&State) -> bool) {
    let mut state = stream.subscribe();
    let is_cut = |state: &Arc<State>| state.status == Status::Offline && has_nothing(state);
    // It tells of its state for as long as there is one.
    let _ = state.wait_for(is_cut).await;
}
