//! Waits of viewers for a stream, and their time limits.

use std::sync::Arc;
use std::time::Duration;

use crate::{State, Status, Stream, Track};

/// How long a viewer waits for something that must come: three target durations (RFC 8216bis
/// 6.2.5.2). While the target duration is unknown, three times the least possible one.
pub fn patience(stream: &Stream) -> Duration {
    if !stream.is_settled() {
        return 3 * stream.settings().target_duration;
    }
    3 * stream.target_duration()
}

/// Waits until the stream's manifests can be written. Returns false if that takes too long.
pub async fn ready(stream: &Arc<Stream>) -> bool {
    stream.is_ready()
        || tokio::time::timeout(patience(stream), stream.ready()).await.unwrap_or(false)
}

/// Waits until playlists can be written: the tracks are known, and so is the target duration.
/// Returns false if that takes too long or cannot happen.
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

/// Whether playlists list no complete segment of the track.
pub fn is_empty(track: &Track) -> bool {
    !track.window().has_listed()
}

/// Waits until the stream's publisher has gone and the stream still `has_nothing` of what the
/// caller waits for. Nothing comes then unless a publisher returns.
pub async fn cut_short(stream: &Stream, has_nothing: impl Fn(&State) -> bool) {
    let mut state = stream.subscribe();
    let is_cut = |state: &Arc<State>| state.status == Status::Offline && has_nothing(state);
    // The stream keeps the sender while it exists, so this cannot fail.
    let _ = state.wait_for(is_cut).await;
}
